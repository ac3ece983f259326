"""Where files come from: folder, mirror, the hub's cache, the network; and one clear line where none has them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import huggingface_hub
import pytest
from checkpoints import FLOAT32, images, random_model, save
from huggingface_hub import errors
from PIL import Image

from shared import hub, models
from shared.data import load_images
from shared.errors import UserError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A hub cache with one repository, `us/tiny`, at COMMIT as main; no network."""
    store = tmp_path / "hub"
    repository = store / "models--us--tiny"
    save(random_model("vit"), repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(store))
    answer(monkeypatch, OSError("[Errno -3] name resolution"))
    return repository


def answer(monkeypatch, error: Exception) -> list[tuple]:
    """Every question to the hub ends with `error`; the list of questions."""
    asked = []

    def model_info(self, *args, **kwargs):
        asked.append((args, kwargs))
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    return asked


def refusal(kind: type[Exception]) -> Exception:
    return kind.__new__(kind)  # its __init__ wants a response of the HTTP client's, which changed between versions


def test_cache_serves_without_network(cached):
    encoder = models.load_encoder("us/tiny", FLOAT32)
    assert (encoder.name, encoder.revision) == ("us/tiny", COMMIT)
    assert encoder.encode(images()).shape == (5, 32)


def test_pinned_commit_in_the_cache_asks_nobody(cached, monkeypatch):
    asked = answer(monkeypatch, OSError())
    assert models.describe("us/tiny", revision=COMMIT).revision == COMMIT
    assert models.describe(f"us/tiny@{COMMIT}").name == "us/tiny"
    assert asked == []


def test_neither_cache_nor_network(cached):
    with pytest.raises(UserError, match="us/other: not in the hub's cache, and the hub cannot be reached") as error:
        models.describe("us/other")
    assert "HF_HOME" in str(error.value) and "wheel:" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(UserError, match="us/tiny: not in the hub's cache at revision v2"):
        models.describe("us/tiny", revision="v2")


def test_cache_without_the_weights_says_so(cached):
    (cached / "snapshots" / COMMIT / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights in"):
        models.describe("us/tiny")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.RevisionNotFoundError, "has no revision v9"),
        (errors.RepositoryNotFoundError, "no such public model"),
        (errors.GatedRepoError, "asks for a login"),
    ],
)
def test_what_the_hub_refuses(cached, monkeypatch, kind, words):
    answer(monkeypatch, refusal(kind))
    with pytest.raises(UserError, match=f"us/tiny: .*{words}"):
        models.describe("us/tiny", revision="v9")


def test_download_takes_settings_and_one_format_of_weights(cached, monkeypatch, tmp_path):
    taken = []

    class Info:
        sha = COMMIT
        siblings = [  # noqa: RUF012
            type("File", (), {"rfilename": name})
            for name in (
                "config.json",
                "preprocessor_config.json",
                "model.safetensors",
                "pytorch_model.bin",
                "modeling.py",
            )
        ]

    def download(name, *, repo_type, revision, allow_patterns):
        taken.extend((file, revision) for file in allow_patterns)
        return str(cached / "snapshots" / COMMIT)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, *a, **k: Info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert models.describe("us/tiny").revision == COMMIT
    assert taken == [(name, COMMIT) for name in ("config.json", "preprocessor_config.json", "model.safetensors")]


def test_mirror_comes_before_the_hub(cached, monkeypatch, tmp_path):
    shutil.copytree(cached / "snapshots" / COMMIT, tmp_path / "mirror" / "us" / "tiny")
    monkeypatch.setenv("PAPERS_DATA", str(tmp_path / "mirror"))
    assert models.describe("us/tiny").revision.startswith("mirror, settings ")
    (tmp_path / "mirror" / "us" / "tiny" / "preprocessor_config.json").unlink()
    with pytest.raises(UserError, match=r"mirror/us/tiny/preprocessor_config\.json: no such settings file of us/tiny"):
        models.describe("us/tiny")


@pytest.mark.parametrize("spec", ["no-such-folder", "a/b/c", "us/ti ny", "us/"])
def test_neither_folder_nor_repository(spec):
    with pytest.raises(UserError, match="no such folder, and not a hub repository's name"):
        models.describe(spec)


@pytest.mark.parametrize(
    "shards",
    [
        {"a": "../../secret.safetensors"},
        {"a": "/etc/passwd"},
        {"a": "..\\secret"},
        {"a": "x" * 5000 + ".safetensors"},
        {"a": "x\0y"},
        {"a": 7},
        {"a": None},
        {"a": ["b"]},
        {},
        [],
        "model.safetensors",
        7,
        None,
    ],
)
def test_index_may_not_point_outside(tmp_path, shards):
    folder = Path(save(random_model("vit"), tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}), encoding="utf-8")
    with pytest.raises(UserError, match="file names in the same folder"):
        models.describe(str(folder))


@pytest.mark.parametrize("name", ["a/" + "b" * 5000, "x" * 5000, "a" * 300 + "/" + "b" * 300])
def test_names_longer_than_a_files(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PAPERS_DATA", str(tmp_path))
    answer(monkeypatch, OSError())
    with pytest.raises(UserError) as error:
        models.describe(name)
    assert "\n" not in str(error.value)


# What an earlier run has found out of a file ------------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights-sha256"


def exchange(path: Path, how: str) -> None:
    """Other bytes, equally many, and the time of change as before: as tar, rsync and container layers leave it."""
    before = path.stat()
    other = bytes(reversed(path.read_bytes()))
    if how == "in place":
        path.write_bytes(other)
    else:
        path.with_name("other").write_bytes(other)
        path.with_name("other").rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("how", ["in place", "another file"])
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_other_bytes_of_equal_size_and_time(tmp_path, own_cache, monkeypatch, how, limit):
    monkeypatch.setattr(hub, "HASHED_ANEW", limit)
    file = tmp_path / "weights"
    file.write_bytes(b"one after another")
    first, identity = hub.sha256_of([file]), hub.file_identity(file)
    assert first == hub.sha256_of([file]) == hashlib.sha256(b"one after another").hexdigest()
    time.sleep(0.02)  # a file system's clock goes in steps
    exchange(file, how)
    assert hub.file_identity(file) != identity
    assert hub.sha256_of([file]) == hashlib.sha256(file.read_bytes()).hexdigest() != first


@pytest.mark.parametrize("memory", ["hello", "", "0" * 64, "0" * 64 + " " + "0" * 64, "0" * 65 + "\n", "\udcff"])
def test_a_memory_that_was_changed_is_not_believed(tmp_path, own_cache, monkeypatch, memory):
    monkeypatch.setattr(hub, "HASHED_ANEW", 0)
    file = tmp_path / "weights"
    file.write_bytes(b"numbers")
    right = hub.sha256_of([file])
    for kept in own_cache.iterdir():
        kept.write_text(memory, encoding="utf-8", errors="surrogateescape")
    assert hub.sha256_of([file]) == right
    (kept,) = own_cache.iterdir()
    kept.write_text(kept.read_text(encoding="ascii").translate(str.maketrans("0f", "f0")), encoding="ascii")
    assert hub.sha256_of([file]) == right
    assert hub.assumed([file])[0].startswith("the sha256 of weights is computed once, then taken as long as path, size")


def test_a_small_file_is_hashed_in_every_run(tmp_path, own_cache):
    file = tmp_path / "weights"
    file.write_bytes(b"numbers")
    assert hub.sha256_of([file]) == hashlib.sha256(b"numbers").hexdigest()
    assert hub.assumed([file]) == () and not own_cache.exists()


def test_images_of_equal_size_and_time_are_hashed_again(tmp_path, own_cache):
    """The content hashes of images are kept by the same identity of their files."""
    for name in ("a", "b"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), "red").save(tmp_path / "set" / name / "1.bmp")
    before = load_images(str(tmp_path / "set"), "all").fingerprint
    assert load_images(str(tmp_path / "set"), "all").fingerprint == before
    changed = tmp_path / "set" / "a" / "1.bmp"
    state = changed.stat()
    time.sleep(0.02)
    Image.new("RGB", (8, 8), "blue").save(changed)
    os.utime(changed, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert load_images(str(tmp_path / "set"), "all").fingerprint != before
