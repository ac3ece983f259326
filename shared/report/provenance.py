"""Where a result's numbers come from, as lines to read."""

from __future__ import annotations

import shlex
from typing import Any


def provenance(origin: dict) -> list[tuple[str, list[str]]]:
    """(what, lines) in reading order; what the result does not know is left out."""
    git, machine, config = origin.get("git") or {}, origin.get("machine") or {}, origin.get("config") or {}
    commit = git.get("commit")
    changed = {True: " with uncommitted changes", False: "", None: ""}[git.get("dirty")]
    lines: list[tuple[str, list[str]]] = [
        ("command", [shlex.join(["python", *map(str, origin.get("command") or [])])]),
        ("configuration", [f"{key} = {_value(value)}" for key, value in config.items() if value is not None]),
        ("seed", [_value(origin.get("seed"))] if origin.get("seed") is not None else []),
        ("images", [_item(item) for item in origin.get("data") or []]),
        ("weights", [_item(item) for item in origin.get("models") or []]),
        ("device", [", ".join(str(origin[k]) for k in ("device", "dtype", "reason") if origin.get(k))]),
        ("machine", [", ".join(f"{key}: {value}" for key, value in machine.items())]),
        ("versions", [", ".join(_versions(origin))]),
        ("code", [f"commit {commit}{changed}" if commit else "not in a git checkout"]),
        ("started", [str(origin.get("started") or "")]),
        ("took", [f"{origin['duration_s']} s"] if "duration_s" in origin else []),
        ("peak memory", [f"{origin['peak_memory_mb']} MB"] if "peak_memory_mb" in origin else []),
    ]
    return [(what, [line for line in each if line]) for what, each in lines if any(each)]


def _versions(origin: dict) -> list[str]:
    python = [f"Python {origin['python']}"] if origin.get("python") else []
    return python + [f"{name} {version}" for name, version in (origin.get("packages") or {}).items()]


def _item(item: dict) -> str:
    name = item.get("name", "")
    rest = [f"{key.replace('_', ' ')}: {value}" for key, value in item.items() if key != "name" and value is not None]
    return f"{name} ({', '.join(rest)})"


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
