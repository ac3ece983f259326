"""The command line of `compare.py`: the suite's dataclasses by argparse, because a graph comparison starts in 0.3 s."""

from __future__ import annotations

import argparse
import difflib
import sys
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from shared import cli
from shared.errors import UserError

C = TypeVar("C", bound=cli.Common)
_COMMON = {
    "config": "TOML file with values for these options; the command line wins",
    "results": "folder for the log, the JSON and the page (default: results/)",
    "strict": "exit with code 1 when a verdict differs",
}


def option(default: Any, words: str) -> Any:
    """A dataclass field that is an option, with its help text."""
    return field(default=default, metadata={"help": words})


def positional(words: str) -> Any:
    """A dataclass field that stands on the command line without a name."""
    return field(default="", metadata={"help": words, "positional": True})


def parse(config_type: type[C], argv: list[str], doc: str | None = None) -> C:
    """As `shared.cli.parse`: defaults, then the file of `--config`, then `argv`. Raises UserError in one line."""
    parser = _Parser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        prog=Path(sys.argv[0]).name,
    )  # fmt: skip
    hints = get_type_hints(config_type)
    for one in fields(config_type):
        words = one.metadata.get("help") or _COMMON.get(one.name, "")
        if one.metadata.get("positional"):
            parser.add_argument(one.name, nargs="?", default=argparse.SUPPRESS, help=words)
            continue
        kind = next((kind for kind in get_args(hints[one.name]) if kind is not type(None)), hints[one.name])
        flag = f"--{one.name.replace('_', '-')}"
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=words)
        else:
            shown = "" if one.default is None else f" (default: {one.default})"
            parser.add_argument(
                flag, type=kind, default=argparse.SUPPRESS, metavar=kind.__name__.upper(), help=f"{words}{shown}"
            )
    given = vars(parser.parse_intermixed_args(argv))
    base = cli.read_config(config_type, given["config"]) if given.get("config") else config_type()
    return replace(base, **given)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        if unknown:
            name = unknown[0].partition("=")[0]
            near = difflib.get_close_matches(name, list(self._option_string_actions), 1)
            hint = f"did you mean {near[0]}?" if near else "--help lists all"
            raise UserError(f"unknown argument {unknown[0]}; {hint}")
        raise UserError(f"{message}; --help lists the options")
