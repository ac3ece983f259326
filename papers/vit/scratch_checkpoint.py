"""Files of one training run: a checked checkpoint, the curve, and the lock that keeps a second start out.

A run is three files in a folder: `<run>.json` (the curve: a function of the configuration alone, so an interrupted and
an uninterrupted run write the same bytes on the CPU), `<run>.machine.json` (when, how long, on what) and, while it
trains, `checkpoints/<run>.ckpt`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from shared import paths
from shared.errors import UserError

SCHEMA = 1
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


def require_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise UserError naming the first key in which a run on disk differs from the one asked for."""
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise UserError(
                f"{path}: belongs to another run ({key} is {found.get(key)!r}, asked for {wanted.get(key)!r}); "
                "choose another --results folder or delete the file"
            )


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """A JSON object of this schema, or a UserError naming the file."""
    content = paths.read_json(path, f"{kind} file", "delete it to train the run anew")
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise UserError(f"{path}: not a {kind} file of schema {SCHEMA}; delete it to train the run anew")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """One line a key: thousands of losses stay one line of a diff."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    paths.atomic_write(path, f"{{\n{lines}\n}}\n")


@contextlib.contextmanager
def only_start(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process. A second start on it raises UserError; a killed one leaves nothing behind."""
    path = folder / "checkpoints" / "lock"  # beside what is no evidence either and stays out of version control
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
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
