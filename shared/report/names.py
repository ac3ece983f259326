"""Names of files, sources and ids as titles and anchors."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote


def words(name: str) -> str:
    """A file's name as a title: `fewshot-offline` is "Fewshot offline", `table6` "Table 6"."""
    text = re.sub(r"(?<=[a-z])(?=\d)", " ", re.sub(r"[-_]+", " ", name)).strip()
    return text[:1].upper() + text[1:]


def slug(text: str) -> str:
    """Letters, digits and single dashes, for an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def unique(anchor: str, used: set[str]) -> str:
    """`anchor`, or with a number that no other has: two ids may have one slug."""
    candidate, number = anchor, 1
    while candidate in used:
        number += 1
        candidate = f"{anchor}-{number}"
    used.add(candidate)
    return candidate


def href(path: Path) -> str:
    return quote(path.as_posix())
