"""Text of files, names and messages made harmless for whoever reads it: a terminal, a log, an error line.

What a log holds is also broken to `WIDTH` columns here, and the words of verdicts get their colour on a terminal.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import unicodedata
from typing import Any, TextIO

# Control characters (ESC begins a terminal's commands), invisible ones that turn the direction of reading, halves of a
# pair, and the two separators that some readers take for the end of a line.
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
WIDTH = 100  # columns of a log
# The codes of a terminal: green, yellow, red, and dim where nothing was held against the publication.
COLOURS = {
    "equal": 32,
    "agrees": 32,
    "undecided": 33,
    "differs": 31,
    "not comparable": 2,
    "not run": 2,
    "no published number to compare with": 2,
}
# a verdict closes a sentence after a colon, follows its count or the word; a count of 0 is no finding
VERDICT = re.compile(rf"(:\s+|\b[1-9][\d,]* |^  verdict +)({'|'.join(COLOURS)})(?=[,;:]|\s+[(\[]|\s*$)", re.MULTILINE)


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


def folded(text: str, width: int = WIDTH) -> str:
    """`text` with every line of at most `width` characters: a longer one is broken at blanks and goes on indented.

    A word that is longer by itself, such as a path, stays whole.
    """
    return "\n".join(line if len(line) <= width else _broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    further = " " * (len(line) - len(line.lstrip(" ")) + 2)
    whole = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False, "expand_tabs": False}
    return textwrap.fill(line, width, subsequent_indent=further, **whole)


def coloured(text: str) -> str:
    """`text` with the words of verdicts in colour."""
    return VERDICT.sub(lambda found: f"{found[1]}\x1b[{COLOURS[found[2]]}m{found[2]}\x1b[0m", text)


def shows_colour(file: TextIO) -> bool:
    """Whether it is a terminal whose user wants colours (https://no-color.org)."""
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: Any = "", file: TextIO | None = None, end: str = "\n") -> None:
    """`print` for everything that the suite shows: harmless, and on the screen at once.

    The lint forbids a plain `print`, so that no name from a file comes to a terminal as it is.
    """
    file, text = file or sys.stdout, printable(text, keep="\n\t")
    print(coloured(text) if shows_colour(file) else text, file=file, end=end, flush=True)


def notice(text: Any) -> None:
    """One line for the person who waits, not for the log: on stderr."""
    say(printable(text), file=sys.stderr)
