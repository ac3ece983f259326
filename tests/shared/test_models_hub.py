"""Where files come from: folder, mirror, the hub's cache, the network; and one clear line where none has them."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub
import pytest
from checkpoints import FLOAT32, images, random_model, save
from huggingface_hub import errors

from shared import models
from shared.errors import UserError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A hub cache with one repository, `us/tiny`, at COMMIT as main; no network."""
    store = tmp_path / "hub"
    repository = store / "models--us--tiny"
    save(random_model("vit"), repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
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


def test_index_may_not_point_outside(tmp_path):
    folder = Path(save(random_model("vit"), tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../secret.safetensors"}}')
    with pytest.raises(UserError, match="file names in the same folder"):
        models.describe(str(folder))
