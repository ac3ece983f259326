"""Atomic writing: an earlier file survives whatever goes wrong."""

from __future__ import annotations

import errno
import os

import pytest

from shared.errors import UserError
from shared.paths import atomic_write, atomic_write_all, cache_dir, data_root, results_dir, sha256_file


def test_writes_text_and_bytes_and_makes_folders(tmp_path):
    atomic_write(tmp_path / "a" / "b.txt", "ü\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "ü\n".encode()
    atomic_write(tmp_path / "a" / "b.txt", b"\0")
    assert sha256_file(tmp_path / "a" / "b.txt").startswith("6e340b9c")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_full_disk_leaves_the_earlier_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    path.write_text("earlier")

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"result\.json: cannot be written \(No space left on device\)"):
        atomic_write(path, "new")
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_belong_together_are_replaced_together(tmp_path, monkeypatch):
    log, result = tmp_path / "a.log", tmp_path / "a.json"
    atomic_write_all({log: "old", result: "old"})
    real = os.fsync
    for last in (1, 2):  # the disk fills at the first file, at the second
        calls = []

        def full(fd, calls=calls, last=last):
            calls.append(fd)
            if len(calls) == last:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(fd)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="No space left"):
            atomic_write_all({log: "new", result: "new"})
        assert (log.read_text(), result.read_text()) == ("old", "old")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.log"]


def test_a_reader_never_sees_half_a_file(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    path.write_text("earlier")
    seen = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(path.read_text()), real(fd)))
    atomic_write(path, "new")
    assert seen == ["earlier"] and path.read_text() == "new"


def test_a_path_that_no_file_can_have_is_a_users_mistake(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="cannot be written"):
        atomic_write(tmp_path / "a\0b" / "x", "")
    monkeypatch.setenv("PAPERS_RESULTS", "~nosuchuser/x")
    with pytest.raises(UserError, match="PAPERS_RESULTS=~nosuchuser/x"):
        results_dir()


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match="results"):
        atomic_write(tmp_path / "results" / "vit" / "x.json", "")


def test_environment_moves_the_folders(monkeypatch, tmp_path):
    for name, where in (("PAPERS_RESULTS", results_dir), ("PAPERS_CACHE", cache_dir), ("PAPERS_DATA", data_root)):
        monkeypatch.setenv(name, str(tmp_path / name))
        assert where() == tmp_path / name
    monkeypatch.setenv("PAPERS_DATA", "")
    assert data_root() is None
