"""While a run trains: its checked checkpoint, `checkpoints/<run>.ckpt`, and the lock that keeps a second start out."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from papers.vit.scratch_files import require_same
from shared import paths
from shared.errors import UserError

MAGIC = b"scratch1"  # then sha256 of the rest, then torch.save's bytes


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors and plain values) so that damage is noticed on reading."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    paths.atomic_write(path, MAGIC + hashlib.sha256(payload).digest() + payload)


def load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The state saved at `path`, on the CPU; None if there is none yet.

    Raises UserError for a damaged file, and for one of another configuration (`identity`), naming what differs.
    """
    if not path.exists():
        return None
    data = path.read_bytes()
    head, payload = data[: len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    if head != MAGIC + hashlib.sha256(payload).digest():
        raise UserError(
            f"{path}: this checkpoint is damaged (its checksum does not fit); delete it to train the run anew"
        )
    state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    require_same(path, state["identity"], identity)
    return state


@contextlib.contextmanager
def only_start(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process. A second start on it raises UserError; a killed one leaves nothing behind."""
    path = folder / "checkpoints" / "lock"  # beside what is no evidence either and stays out of version control
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a+")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); choose another --results folder") from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise UserError(
                f"{folder}: another start ({file.read().strip() or 'process unknown'}) is training into this folder; "
                "wait for it or choose another --results"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield
