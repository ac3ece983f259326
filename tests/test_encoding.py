"""Text has its encoding named wherever it is opened: the system's own is ASCII under LC_ALL=C, another on Windows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.paths import ROOT

FOLDERS = ("shared", "papers", "benchmarks", "tests")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
BINARY_MODES = {"rb", "wb", "ab", "r+b", "w+b", "a+b", "xb"}
NO_TEXT = ("os", "Image", "tarfile")  # their `open` gives no text


def unnamed(source: str) -> Iterator[int]:
    """The lines of calls that open text (`open`, `read_text`, `write_text`, a subprocess) without an encoding."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        owner = getattr(called.value, "id", "") if isinstance(called, ast.Attribute) else ""
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        modes = [a.value for a in [*node.args, given.get("mode")] if isinstance(a, ast.Constant)]
        as_text = [given.get(key) for key in ("text", "universal_newlines")]  # a subprocess's
        text = name in ("read_text", "write_text") or any(
            isinstance(a, ast.Constant) and a.value is True for a in as_text
        )
        text |= name == "open" and owner not in NO_TEXT and not BINARY_MODES & set(modes)
        positional = (name == "read_text" and node.args) or (name == "write_text" and len(node.args) > 1)
        if text and "encoding" not in given and None not in given and not positional:
            yield node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_text_is_opened_with_its_encoding(path: Path) -> None:
    lines = sorted(unnamed(path.read_text(encoding="utf-8")))
    assert not lines, f"{path.relative_to(ROOT)}: lines {lines} open text without encoding="


@pytest.mark.parametrize(
    "call",
    ["p.read_text()", "p.write_text(t)", "open(p)", "p.open('a+')", "subprocess.run(c, text=True)", "open(p, 'w')"],
)
def test_the_check_sees_each_way(call: str) -> None:
    assert list(unnamed(call)) == [1]
    assert not list(unnamed(f"{call[:-1]}{', ' * (not call.endswith('()'))}encoding='utf-8')"))
