"""Where things are, and writing them so that a kill or a full disk leaves the earlier file.

`ROOT` holds the code that runs: a checkout, or the folder that pip installed into. Both hold `papers/`, `shared/` and
`configs/`. A script that is started as a file sees its own folder first, then whatever is installed, perhaps another
checkout's code. So each begins, before its imports of `papers` and `shared`, with

    if not __package__:  # started as a file: the code of this checkout, not an installed one
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from shared.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

ROOT = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()  # or a source archive; pip installs the packages without it


def _from_environment(name: str, default: Callable[[], Path | None]) -> Path | None:
    value = os.environ.get(name)
    if not value:
        return default()
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise UserError(f"{name}={value}: there is no such home folder; give a whole path") from None


def results_dir() -> Path:
    """Evidence: `<paper>/<experiment>.{log,json}` in the checkout's results/, or in ./results of an installed copy.

    `PAPERS_RESULTS` moves it.
    """
    return _from_environment("PAPERS_RESULTS", lambda: (ROOT if IS_CHECKOUT else Path.cwd()) / "results")


def cache_dir() -> Path:
    """Features, wheel weights, fingerprints: all can be deleted. `PAPERS_CACHE` moves it."""
    return _from_environment("PAPERS_CACHE", _home_cache)


def _home_cache() -> Path:
    try:
        return Path.home() / ".cache" / "paper-suite"
    except RuntimeError:  # a container's user without an entry in passwd
        raise UserError("there is no home folder to keep a cache in; set PAPERS_CACHE (or HOME) to a folder") from None


def data_root() -> Path | None:
    """A mirror laid out `<hub repository>/<path in it>` (`PAPERS_DATA`), or None: ask the network."""
    return _from_environment("PAPERS_DATA", lambda: None)


# writing -------------------------------------------------------------------------------------------------------------

TEMPORARY = re.compile(r"\..*\.(\d+)\.(tmp|probe)", re.DOTALL)  # .<name>.<process>.tmp, files and folders
ABANDONED = 24 * 3600  # seconds; where processes cannot be asked for, an older one's writer is taken to be dead
_own: set[Path] = set()  # this process's temporaries that are on disk now
_swept: set[Path] = set()  # folders that this process has looked through


def atomic_write(path: Path, data: bytes | str) -> None:
    """`atomic_write_all` for one file."""
    atomic_write_all({Path(path): data})


def atomic_write_all(files: dict[Path, bytes | str]) -> None:
    """Write files that belong together: temporary files in the same folders, flush, fsync; then all renames.

    Text is written as UTF-8; what is not Unicode (an odd file name) is escaped. Raises `UserError` that names the file
    when a folder cannot be written or the disk is full; all earlier files are then untouched and no temporary file
    stays behind. What a killed process has left in these folders is removed.
    """
    temporaries = {path: _temporary(path) for path in files}
    path = None
    try:
        for path, temporary in temporaries.items():
            data = files[path]
            _make_folder(path.parent)
            _own.add(temporary)
            with open(temporary, "wb") as file:
                with suppress(OSError):
                    lock(file)  # tells the `_sweep` of another machine or container that this one's writer lives
                file.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise not_writable(path, error) from error
    finally:
        remove_temporaries(temporaries.values())


@contextmanager
def temporary_folder(near: Path) -> Iterator[Path]:
    """An empty folder beside `near`, gone afterwards; that of a killed process is removed by the next one here."""
    folder = _temporary(near)
    try:
        _make_folder(near.parent)
        _own.add(folder)
        folder.mkdir()
        held = os.open(folder, os.O_RDONLY) if fcntl else None
    except (OSError, ValueError) as error:
        raise not_writable(near, error) from error
    try:
        with suppress(OSError):
            lock(held)
        yield folder
    finally:
        remove_temporaries([folder])
        if held is not None:
            os.close(held)


def require_writable(path: Path) -> None:
    """Raise UserError if `path` could not be written later, before anybody has worked for it."""
    temporary = _temporary(path)
    try:
        _make_folder(path.parent)
        _own.add(temporary)
        temporary.write_bytes(b"")
    except (OSError, ValueError) as error:
        raise not_writable(path, error) from error
    finally:
        remove_temporaries([temporary])


def remove_temporaries(which: Iterable[Path] | None = None) -> None:
    """This process's own temporaries: `which`, or all of them when it is told to end."""
    for temporary in list(_own if which is None else which):
        _remove(temporary)
        _own.discard(temporary)


def not_writable(path: Path | None, error: Exception) -> UserError:
    """What to raise for a file that cannot be written: the reason, and the way out that fits the file's place."""
    code, why = getattr(error, "errno", None), getattr(error, "strerror", None) or error
    in_cache = False
    with suppress(UserError):
        in_cache = path is not None and path.is_relative_to(cache_dir())
    elsewhere = "set PAPERS_CACHE to another folder" if in_cache else "name another folder with --results"
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        elsewhere = f"free space or {elsewhere}"
    elif code in (errno.EACCES, errno.EPERM):
        elsewhere = f"make it writable or {elsewhere}"
    elif code == errno.ENAMETOOLONG:
        elsewhere = "choose a shorter name"
    return UserError(f"{path}: cannot be written ({why}); {elsewhere}")


def lock(file: IO | int) -> bool:
    """Take the open file's lock, which ends with it or its process, however that ends. False: another process has it.

    OSError where there are no locks: Windows, and some network file systems.
    """
    if fcntl is None:
        raise OSError(errno.ENOSYS, "this system has no file locks")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if folder not in _swept:
        _swept.add(folder)
        _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove temporaries of processes that are dead."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if (found := TEMPORARY.fullmatch(name)) and int(found[1]) != os.getpid():
                with suppress(OSError):  # somebody else's, or another start was quicker
                    if _is_dead(int(found[1]), folder / name):
                        _remove(folder / name)


def _is_dead(process: int, temporary: Path) -> bool:
    """Whether the process that was writing `temporary` is gone; where that cannot be known, whether it is a day old."""
    if fcntl is None:  # Windows, whose os.kill would end the process
        return time.time() - temporary.stat().st_mtime > ABANDONED
    with suppress(ProcessLookupError, OverflowError):
        os.kill(process, 0)
        return False
    descriptor = os.open(temporary, os.O_RDONLY)
    try:  # a process of another container or machine is not among ours, but it holds the lock
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
    return True


def _remove(temporary: Path) -> None:
    with suppress(OSError, ValueError):
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
