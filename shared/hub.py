"""Finding the files of a data set: in a mirror of the hub, in the hub's cache, on the network."""

from __future__ import annotations

import re
from pathlib import Path

from shared import paths
from shared.errors import UserError
from shared.sources import Source, image_files_source

WAY_OUT = "set PAPERS_DATA or --data-root to a mirror (<root>/<owner>/<name>/...), or connect to the network"
COMMIT = re.compile(r"[0-9a-f]{40}")


def in_mirror(root: Path | None, repository: str) -> bool:
    """Whether the mirror has this repository. UserError for a root that is no folder."""
    if root is None:
        return False
    if not root.is_dir():
        raise UserError(f"data root {root}: no such folder; set PAPERS_DATA or --data-root to a mirror, or unset it")
    return (root / repository).is_dir()


def parquet_files(
    repository: str, folder: str, split: str, *, root: Path | None, revision: str | None
) -> tuple[list[Path], str]:
    """All parquet files of a split, in order, and where they come from in words.

    folder: the folder (configuration) in the repository, or "" to find the only one with such a split.
    """
    if in_mirror(root, repository):
        return split_files(root / repository, folder, split), f"mirror {root / repository}"
    pinned = revision is not None and COMMIT.fullmatch(revision)
    snapshot = _cached(repository, folder, split, revision) if pinned else None
    snapshot = snapshot or _download(repository, folder, split, revision)
    return split_files(snapshot, folder, split), f"hub {repository} at {snapshot.name}"


def split_files(repository: Path, folder: str, split: str) -> list[Path]:
    """The parquet files of a split under a repository in hub layout: `<folder>/<split>-00000-of-00002.parquet` and so
    on, `<folder>/<split>.parquet`, or `<folder>/<split>/0000.parquet`. UserError names a missing file."""
    name = re.compile(rf"{re.escape(split)}(-(\d{{5}})-of-(\d{{5}}))?\.parquet")
    by_folder: dict[str, list[Path]] = {}
    for file in sorted(repository.rglob("*.parquet")):
        converted = file.parent.name == split and file.stem.isdigit()
        where = (file.parent.parent if converted else file.parent).relative_to(repository).as_posix()
        if (converted or name.fullmatch(file.name)) and folder in ("", where):
            by_folder.setdefault(where, []).append(file)
    if not by_folder:
        expected = repository / folder / f"{split}-00000-of-00001.parquet"
        raise UserError(f"{expected}: missing from the copy; fetch it from the hub, or unset PAPERS_DATA / --data-root")
    if len(by_folder) > 1:
        choices = ", ".join(sorted(by_folder))
        raise UserError(f"{repository}: several configurations have a split {split} ({choices}); add :<configuration>")
    ((where, files),) = by_folder.items()
    numbered = [match for file in files if (match := name.fullmatch(file.name)) and match[3]]
    for number in range(int(numbered[0][3]) if numbered else 0):
        expected = repository / where / f"{split}-{number:05d}-of-{numbered[0][3]}.parquet"
        if expected not in files:
            raise UserError(f"{expected}: missing from the copy; fetch it from the hub")
    return files


def _cached(repository: str, folder: str, split: str, revision: str | None) -> Path | None:
    """The hub's snapshot in its cache, when an earlier run has downloaded all of this split; asks no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot = snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True)
        split_files(Path(snapshot), folder, split)
    except (LocalEntryNotFoundError, UserError):
        return None
    return Path(snapshot)


def _download(repository: str, folder: str, split: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        # Without a network this fails at once, where snapshot_download of a commit tries for half a minute.
        commit = HfApi().dataset_info(repository, revision=revision, timeout=10).sha
        patterns = [f"{folder}/{split}*.parquet"] if folder else [f"*{split}*.parquet"]
        snapshot = Path(snapshot_download(repository, repo_type="dataset", revision=commit, allow_patterns=patterns))
        if not any(snapshot.rglob("*.parquet")):
            raise UserError(
                f"{repository}: no parquet file of a split {split} at {revision or 'main'}; name another split, or ask "
                "for the hub's own conversion with revision refs/convert/parquet"
            )
        return snapshot
    except RevisionNotFoundError as error:
        raise UserError(
            f"{repository}: the hub has no revision {revision}; name a commit, tag or branch of it"
        ) from error
    except GatedRepoError as error:
        raise UserError(
            f"{repository}: access has to be granted on its hub page first; then run `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(
            f"{repository}: no folder here, and the hub has no such public data set; check the spelling or log in"
        ) from error
    except HFValidationError as error:
        raise UserError(f"{repository}: not a hub repository's name (<owner>/<name>)") from error
    except UserError:
        raise
    except Exception as error:  # the HTTP client's errors, whose classes differ between its versions; offline mode
        cached = _cached(repository, folder, split, revision)
        if cached:
            return cached
        raise UserError(
            f"{repository}: no folder here, not in the hub's cache, and the hub cannot be reached "
            f"({type(error).__name__}); {WAY_OUT}"
        ) from error


def torchvision_imagenette(split: str) -> Source:
    """Imagenette at 160 pixels (shortest side) with its own file names, kept in the cache folder.

    ilsvrc_val: the ILSVRC2012_val_* files of both parts, the 500 ImageNet validation images of the ten classes.
    """
    home = paths.cache_dir() / "imagenette"
    parts = {"train": ["train"], "validation": ["val"], "ilsvrc_val": ["train", "val"]}[split]
    for part in parts:
        if not (home / "imagenette2-160" / part).is_dir():
            _download_imagenette(home, part)
    prefix = "ILSVRC2012_val_" if split == "ilsvrc_val" else ""
    folders = [home / "imagenette2-160" / part for part in parts]
    wnids = sorted({entry.name for folder in folders for entry in folder.iterdir() if entry.is_dir()})
    classes = {
        wnid: sorted((f for d in folders for f in (d / wnid).glob(f"{prefix}*.JPEG")), key=lambda file: file.name)
        for wnid in wnids
    }
    return image_files_source(classes, split, f"torchvision Imagenette 160px in {home}", home)


def _download_imagenette(home: Path, part: str) -> None:
    from torchvision.datasets import Imagenette

    try:
        home.mkdir(parents=True, exist_ok=True)
        Imagenette(home, split=part, size="160px", download=True)  # checked by its md5 before it is unpacked
    except (OSError, RuntimeError) as error:  # URLError is an OSError; RuntimeError: damaged download
        raise UserError(f"imagenette: cannot be downloaded ({error}); {WAY_OUT}") from error
