"""A new paper: files that run, to be filled with its own numbers.

    python -m shared.scaffold toy       papers/toy/ with a script and its published numbers, a configuration, a test

The files are those of shared/templates/paper/, with the paper's name in them. Nothing that is there is overwritten.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from string import Template

from shared import cli
from shared.errors import UserError
from shared.paths import IS_CHECKOUT, ROOT, atomic_write_all
from shared.text import quoted, say

TEMPLATES = Path(__file__).parent / "templates" / "paper"
FILES = {  # template -> what becomes of it
    "paper.toml.txt": "papers/$name/paper.toml",
    "published.json.txt": "papers/$name/published/tables.json",
    "script.py.txt": "papers/$name/${name}_tables.py",
    "config.toml.txt": "configs/$name/tables.toml",
    "test.py.txt": "tests/papers/$name/test_${name}_tables.py",
}
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass
class Config:
    name: str = cli.positional()
    """the new paper's short name, which becomes a folder: small letters, digits and _"""


def main(config: Config, root: Path = ROOT) -> None:
    name = config.name
    if not IS_CHECKOUT:
        raise UserError(f"{root}: an installed copy; a new paper is made in a clone of the repository")
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        what = "name the paper" if not name else f"{quoted(name)} cannot name a paper"
        raise UserError(f"{what}: small letters, digits and _, a letter first, as in: make paper NAME=toy")
    for folder in ("papers", "configs", "tests/papers"):
        if (root / folder / name).exists():
            raise UserError(f"{folder}/{name} is there already; choose another name, or delete it")
    words = {"name": name, "title": name.replace("_", " ").capitalize()}
    texts = {
        root / Template(path).substitute(words): Template((TEMPLATES / template).read_text(encoding="utf-8"))
        for template, path in FILES.items()
    }
    atomic_write_all({path: text.substitute(words) for path, text in texts.items()})
    for path in texts:
        say(f"  {path.relative_to(root).as_posix()}")
    say("It runs as it is, on an example. Next:")
    script, test = (Template(FILES[key]).substitute(words) for key in ("script.py.txt", "test.py.txt"))
    say(f"  python {script}\n  python -m pytest {test}\n  make check ARGS={name}/\n  make report")


if __name__ == "__main__":
    cli.run(main, Config)
