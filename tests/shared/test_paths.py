"""Atomic writing: an earlier file survives whatever goes wrong."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared import paths
from shared.errors import UserError
from shared.paths import ROOT, atomic_write, atomic_write_all, cache_dir, data_root, results_dir, sha256_file


def test_writes_text_and_bytes_and_makes_folders(tmp_path):
    atomic_write(tmp_path / "a" / "b.txt", "ü\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "ü\n".encode()
    atomic_write(tmp_path / "a" / "b.txt", b"\0")
    assert sha256_file(tmp_path / "a" / "b.txt").startswith("6e340b9c")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_full_disk_leaves_the_earlier_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    path.write_text("earlier", encoding="utf-8")

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"result\.json: cannot be written \(No space left on device\)"):
        atomic_write(path, "new")
    assert path.read_text(encoding="utf-8") == "earlier"
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
        assert (log.read_text(encoding="utf-8"), result.read_text(encoding="utf-8")) == ("old", "old")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.log"]


def test_a_reader_never_sees_half_a_file(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    path.write_text("earlier", encoding="utf-8")
    seen = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(path.read_text(encoding="utf-8")), real(fd)))
    atomic_write(path, "new")
    assert seen == ["earlier"] and path.read_text(encoding="utf-8") == "new"


def test_a_path_that_no_file_can_have_is_a_users_mistake(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="cannot be written"):
        atomic_write(tmp_path / "a\0b" / "x", "")
    monkeypatch.setenv("PAPERS_RESULTS", "~nosuchuser/x")
    with pytest.raises(UserError, match="PAPERS_RESULTS=~nosuchuser/x"):
        results_dir()


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "results").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="results"):
        atomic_write(tmp_path / "results" / "vit" / "x.json", "")


def test_environment_moves_the_folders(monkeypatch, tmp_path):
    for name, where in (("PAPERS_RESULTS", results_dir), ("PAPERS_CACHE", cache_dir), ("PAPERS_DATA", data_root)):
        monkeypatch.setenv(name, str(tmp_path / name))
        assert where() == tmp_path / name
    monkeypatch.setenv("PAPERS_DATA", "")
    assert data_root() is None


KILLED = """
import os, sys, pathlib
from shared import paths
target = pathlib.Path(sys.argv[1])
if sys.argv[2] == "file":
    os.fsync = lambda fd: os.kill(os.getpid(), 9)
    paths.atomic_write(target / "x.json", "half")
elif sys.argv[2] == "together":
    os.replace = lambda *names: os.kill(os.getpid(), 9)
    paths.atomic_write_all({target / "x.json": "half", target / "x.log": "half"})
else:
    with paths.temporary_folder(target / "wheel") as folder:
        (folder / "big.whl").write_bytes(b"half")
        os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(os.name == "nt", reason="kill -9")
@pytest.mark.parametrize("how", ["file", "together", "folder"])
def test_what_a_killed_process_left_is_removed_by_the_next_one_here(how, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "_swept", set())
    command = [sys.executable, "-c", KILLED, str(tmp_path), how]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False, timeout=60)
    assert list(tmp_path.iterdir())  # it was killed in the middle
    strangers = {".x.json.tmp", ".hidden", "x.1.tmp", f".y.{os.getppid()}.tmp"}  # the last one's writer lives
    for name in strangers:
        (tmp_path / name).touch()
    (tmp_path / ".old.99999999.probe").touch()  # of earlier versions
    atomic_write(tmp_path / "z", "")
    assert {entry.name for entry in tmp_path.iterdir()} == strangers | {"z"}


@pytest.mark.skipif(paths.fcntl is None, reason="locks")
def test_a_writer_that_is_no_process_of_ours_is_known_by_its_lock(tmp_path, monkeypatch):
    """Another container's or machine's, in a folder that both see."""
    monkeypatch.setattr(paths, "_swept", set())
    other = tmp_path / ".x.99999999.tmp"
    with open(other, "wb") as file:
        assert paths.lock(file)
        atomic_write(tmp_path / "z", "")
        assert other.exists()
    paths._swept.clear()
    atomic_write(tmp_path / "z", "")
    assert not other.exists()


@pytest.mark.parametrize(
    ("code", "in_cache", "says"),
    [
        (errno.ENOSPC, False, "free space or name another folder with --results"),
        (errno.ENOSPC, True, "free space or set PAPERS_CACHE to another folder"),
        (errno.EROFS, True, "; set PAPERS_CACHE to another folder"),
        (errno.EROFS, False, "; name another folder with --results"),
        (errno.EACCES, True, "make it writable or set PAPERS_CACHE"),
        (errno.EDQUOT, True, "free space or set PAPERS_CACHE"),
        (errno.ENAMETOOLONG, False, "choose a shorter name"),
    ],
)
def test_the_way_out_fits_the_folder_and_the_reason(code, in_cache, says, tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))

    def fails(*args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(UserError) as error:
        atomic_write(tmp_path / ("cache" if in_cache else "results") / "x.json", "")
    assert says in str(error.value) and os.strerror(code) in str(error.value)


def test_no_home_matters_only_where_a_home_is_needed(tmp_path, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("PAPERS_CACHE")
    with pytest.raises(UserError, match="no home folder to keep a cache in; set PAPERS_CACHE"):
        cache_dir()


def test_without_file_locks_the_suite_imports_and_writes(tmp_path):
    """Windows has neither `fcntl` nor `resource`."""
    code = (
        "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "import shared.report.__main__, shared.check, papers.vit.vit_part4_scratch, papers.vit.vit_part4_fewshot\n"
        "import shared.training.experiment as training\n"
        "from shared.record import Record\n"
        "with Record('toy', 'x') as record: record.say('a line')\n"
        "assert record.as_json()['provenance']['peak_memory_mb'] is None\n"
        "with training.only_start(record.directory): print('trains')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PAPERS_RESULTS": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.stdout == "a line\ntrains\n", done.stderr
    assert "no file locks: nothing keeps a second start from training into this folder" in done.stderr
