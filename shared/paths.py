"""Where things are, and writing them so that a kill or a full disk leaves the earlier file.

`ROOT` holds the code that runs: a checkout, or the folder that pip installed into. Both hold `papers/`, `shared/` and
`configs/`. A script that is started as a file sees its own folder first, then whatever is installed, perhaps another
checkout's code. So each begins, before its imports of `papers` and `shared`, with

    if not __package__:  # started as a file: the code of this checkout, not an installed one
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from shared.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()  # or a source archive; pip installs the packages without it


def _from_environment(name: str, default: Path | None) -> Path | None:
    value = os.environ.get(name)
    try:
        return Path(value).expanduser() if value else default
    except RuntimeError:
        raise UserError(f"{name}={value}: there is no such home folder; give a whole path") from None


def results_dir() -> Path:
    """Evidence: `<paper>/<experiment>.{log,json}` in the checkout's results/, or in ./results of an installed copy.

    `PAPERS_RESULTS` moves it.
    """
    return _from_environment("PAPERS_RESULTS", (ROOT if IS_CHECKOUT else Path.cwd()) / "results")


def cache_dir() -> Path:
    """Features, wheel weights, fingerprints: all can be deleted. `PAPERS_CACHE` moves it."""
    return _from_environment("PAPERS_CACHE", Path.home() / ".cache" / "paper-suite")


def data_root() -> Path | None:
    """A mirror laid out `<hub repository>/<path in it>` (`PAPERS_DATA`), or None: ask the network."""
    return _from_environment("PAPERS_DATA", None)


def atomic_write(path: Path, data: bytes | str) -> None:
    """`atomic_write_all` for one file."""
    atomic_write_all({Path(path): data})


def atomic_write_all(files: dict[Path, bytes | str]) -> None:
    """Write files that belong together: temporary files in the same folders, flush, fsync; then all renames.

    Text is written as UTF-8; what is not Unicode (an odd file name) is escaped. Raises `UserError` that names the file
    when a folder cannot be written or the disk is full; all earlier files are then untouched and no temporary file
    stays behind.
    """
    temporaries = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in files}
    path = None
    try:
        for path, temporary in temporaries.items():
            data = files[path]
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path}: cannot be written ({why}); free space or name another folder with --results"
        ) from error
    finally:
        for temporary in temporaries.values():
            with suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
