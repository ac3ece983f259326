"""What a paper is called, and in which order its experiments are read: `papers/<paper>/paper.toml`, all of it optional.

title = "A paper"          source = "where it was published"      url = "https://..."     order = 1
[[experiments]]            name = "table1"    title = "Table 1"   run = "make table1"     optional = true
[groups]                   "table1/1" = "a title for the ids of <source> that begin with <first part>"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import UserError
from shared.report.names import slug, words


@dataclass(frozen=True)
class Entry:
    """One experiment as `paper.toml` lists it. `run` makes its result; an `optional` one is not missed.

    `figure_from`: the experiment whose first drawing answers this one's question, when another script draws it.
    """

    name: str
    title: str = ""
    run: str = ""
    optional: bool = False
    figure_from: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper's name and reading order; `groups` gives titles to `<source>/<first part of the id>`."""

    name: str
    title: str
    source: str = ""
    url: str = ""
    order: int = 100
    experiments: dict[str, Entry] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    @property
    def anchor(self) -> str:
        return f"paper-{slug(self.name)}"


def read_papers(root: Path) -> list[Paper]:
    """Every `paper.toml` below `root`, by `order` and then by name. UserError names a damaged one."""
    return sorted(map(read_paper, root.glob("*/paper.toml")), key=lambda paper: (paper.order, paper.name))


def read_paper(path: Path) -> Paper:
    name = path.parent.name
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = [Entry(**entry) for entry in data.pop("experiments", [])]
        return Paper(name, data.pop("title", words(name)), experiments={entry.name: entry for entry in entries}, **data)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a paper's description ({error}); README shows one under 'Add a paper'") from None
