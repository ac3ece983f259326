"""Text of files, names and messages made harmless for whoever reads it: a terminal, a log, an error line."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any, TextIO

# Control characters (ESC begins a terminal's commands), invisible ones that turn the direction of reading, halves of a
# pair, and the two separators that some readers take for the end of a line.
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(value: Any, keep: str = "") -> str:
    """`value` as text that a terminal only shows: what would command it stands as an escape, `\\x1b`, `\\n`, `\\udce9`.

    keep: characters that are left as they are, a line's end where the text is the suite's own and has several.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(_escaped(c) if c not in keep and unicodedata.category(c) in UNSAFE else c for c in text)


def _escaped(character: str) -> str:
    """As Python writes it, above the ASCII controls as JSON does: a JSON text on the screen stays one."""
    if character < " ":
        return character.encode("unicode_escape").decode()
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def quoted(value: Any) -> str:
    """A short quotation for an error line."""
    text = printable(value if isinstance(value, str) else repr(value)[:60])
    return f"'{text if len(text) <= 40 else text[:39] + '…'}'"


def say(text: Any = "", file: TextIO | None = None, end: str = "\n") -> None:
    """`print` for everything that the suite shows: harmless, and on the screen at once.

    The lint forbids a plain `print`, so that no name from a file comes to a terminal as it is.
    """
    print(printable(text, keep="\n\t"), file=file or sys.stdout, end=end, flush=True)


def notice(text: Any) -> None:
    """One line for the person who waits, not for the log: on stderr."""
    say(printable(text), file=sys.stderr)
