"""One command line for every script: a dataclass of options, a TOML file below it, one-line errors, exit codes.

    @dataclass
    class Config(cli.Common):
        sizes: tuple[int, ...] = (1000, 5000)
        \"""the help text of --sizes\"""

Exit codes: 0 done; 1 a verdict differs under --strict; 2 bad input or set-up; 3 a fault of the suite itself (one line
too, and all of it with PAPERS_TRACEBACK=1); 130 interrupted, 143 told to end.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import itertools
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from shared import process
from shared.errors import UserError
from shared.paths import ROOT
from shared.schema import read_toml
from shared.text import notice

GROUPS = ("what", "data", "protocol", "machine", "output")  # of options in --help, in this order
MARK = re.compile(r"\[(\w+)\] +")


def positional(default: Any = "") -> Any:
    """A field of an options dataclass that stands on the command line without a name; `default` when it is left out.
    A tuple takes all that come."""
    return field(default=default, metadata={"positional": True})


@dataclass
class Basic:
    """What every script's options inherit that writes results."""

    config: Path | None = field(default=None, metadata={"in_file": False})
    """[what] TOML file with values for these options (configs/ has some); the command line wins"""
    results: Path | None = None
    """[output] folder for the log, the JSON and the figures (default: results/)"""


@dataclass
class Common(Basic):
    """The same where published numbers are judged."""

    strict: bool = False
    """[output] exit with code 1 when a verdict differs"""
    show_equal: bool = False
    """list the numbers that print as published too, not only the others"""


@dataclass
class Images:
    """What every script with images inherits: where they are found, and what nobody guesses where there is a choice."""

    data_root: Path | None = None
    """[data] mirror of the image sets (default: PAPERS_DATA)"""
    label: str = ""
    """name of the label column, where the data come as a table (default: found, if only one column fits)"""
    image: str = ""
    """name of the image column (default: found, if only one column fits)"""
    split: str = ""
    """split to take images from, as it is called there; all: every folder is a class (default: the usual one)"""

    @property
    def where(self) -> dict[str, Any]:
        """`shared.data`'s arguments of these names."""
        return {"root": self.data_root, "label": self.label or None, "image": self.image or None}


@dataclass
class TrainTest(Images):
    """The same for scripts that also test."""

    test_split: str = ""
    """[data] split to test on (default: test, or validation where there is none)"""


C = TypeVar("C")


def run(main: Callable[[Any], object], config_type: type[C], argv: list[str] | None = None) -> NoReturn:
    """Parse `argv` into `config_type`, call `main(config)`, exit.

    `main` returns None, an exit code, or an object whose `differs` counts its differing verdicts (a `Record`).
    """
    # a terminal that cannot print ± gets an escape in its place; the run goes on
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    process.set_up()
    try:
        config = parse(config_type, sys.argv[1:] if argv is None else argv, doc=main.__globals__.get("__doc__"))
        result = main(config)
        code = result if isinstance(result, int) else 0
        if getattr(config, "strict", False) and getattr(result, "differs", 0):
            code = 1
        sys.stdout.flush()
    except KeyboardInterrupt:
        notice(f"interrupted; {process.KEPT}")
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output (head, less) left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        fail(error)
    sys.exit(code)


def run_command(
    commands: Mapping[str, tuple[Callable[[Any], object], type]],
    main: Callable[[Any], object],
    config_type: type,
    argv: list[str] | None = None,
) -> NoReturn:
    """As `run`, for a script whose first word may be one of `commands`; without one it is `main`."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in commands:
        run(*commands[argv[0]], argv[1:])
    run(main, config_type, argv)


def fail(error: Exception) -> NoReturn:
    """One line on stderr for whatever ended the script, and its exit code."""
    if os.environ.get("PAPERS_TRACEBACK"):
        traceback.print_exception(error)
    words = " ".join(str(error).split())
    code = 2
    if isinstance(error, MemoryError):
        words = f"out of memory ({words or 'no more is said'}); take fewer or smaller images, a smaller model or batch"
    elif isinstance(error, OSError) and error.errno:  # the disk, the network, a permission: the system's own words
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        names = [name if len(name) <= 300 else f"{name[:140]}...{name[-140:]}" for name in names]
        words = f"{', '.join(names) or 'a file or connection'}: {error.strerror}"
    elif not isinstance(error, UserError):
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        words = (
            f"{type(error).__name__}: {words} (in {place}); a fault of the suite: PAPERS_TRACEBACK=1 shows all of it"
        )
        code = 3
    notice(f"error: {words}")
    sys.exit(code)


def parse(config_type: type[C], argv: Sequence[str], doc: str | None = None) -> C:
    """`config_type` from its defaults, then the file of `--config`, then `argv`. Raises `UserError` in one line.

    doc: what --help prints above the options. By argparse, because a library that does more takes longer to load than
    the quick scripts run.
    """
    # reading the source for the help texts takes longer than the rest, so only where they are shown
    help_texts = _help_texts(config_type) if {"-h", "--help"} & set(argv) else {}
    names = " ".join(f"[{option.name}]" for option in fields(config_type) if option.metadata.get("positional"))
    parser = _Parser(
        prog=_started_as(),
        usage=f"%(prog)s {names} [options]".replace("  ", " "),
        description=_as_started(doc or config_type.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    hints = get_type_hints(config_type)
    shown = {group: parser.add_argument_group(group) for group in GROUPS}
    for option in fields(config_type):
        group, words = help_texts.get(option.name, ("", ""))
        _add(shown.get(group, parser), option, hints[option.name], words)
    # argparse gives lists; a config's defaults are tuples, which nobody can change by accident
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(parser.parse_intermixed_args(argv)).items()
    }
    base = read_config(config_type, given["config"]) if given.get("config") else config_type()
    return replace(base, **given)


def _add(parser: argparse._ActionsContainer, option: Field, hint: Any, words: str) -> None:
    """One field as an argument: its default stays out, so that what was given can be told from what was not."""
    settings: dict[str, Any] = {"default": argparse.SUPPRESS}
    if option.metadata.get("positional"):
        parser.add_argument(option.name, nargs="*" if get_origin(hint) is tuple else "?", help=words, **settings)
        return
    kind = hint
    if get_origin(hint) is tuple:
        settings |= {"nargs": "*", "action": "extend"}  # `--model a --model b` names both
    if get_origin(hint) not in (Literal, None):  # X of tuple[X, ...] and of X | None
        kind = next(member for member in get_args(hint) if member is not NoneType)
    if kind is bool:
        settings["action"] = argparse.BooleanOptionalAction
    elif get_origin(kind) is Literal:
        settings["choices"] = get_args(kind)
    else:
        settings |= {"type": kind, "metavar": kind.__name__.upper()}
    if "(default:" not in words and option.default is not False and option.default not in (None, "", ()):
        shown = " ".join(map(str, option.default)) if isinstance(option.default, tuple) else option.default
        words += f" (default: {'on' if shown is True else shown})"
    parser.add_argument(f"--{option.name.replace('_', '-')}", help=words.replace("%", "%%"), **settings)


def _started_as() -> str:
    """The name that a usage line gives: of the script, or of the module behind `python -m`."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    script = Path(sys.argv[0])
    if spec and spec.origin and Path(spec.origin) == script and spec.name.startswith(("papers.", "shared.")):
        return f"python -m {spec.name.removesuffix('.__main__')}"
    return script.name


def _as_started(doc: str) -> str:
    """The examples (indented lines) with the script's path as it was typed, so that they can be pasted as they are."""
    script = Path(sys.argv[0])
    return re.sub(rf"(?m)^(    .*?)(?<![\w/]){re.escape(script.name)}\b", lambda m: m[1] + str(script), doc)


def _help_texts(config_type: type) -> dict[str, tuple[str, str]]:
    """A field's group and help: the text below it in the source, or its metadata `help`.

    A text that starts with `[group]` puts its field and those below it, in the same class, into that group; so does
    metadata `group` its own.
    """
    texts: dict[str, tuple[str, str]] = {}
    for owner in reversed(config_type.__mro__[:-1]):
        body, group = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body, ""
        for statement, below in itertools.pairwise(body):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    words = " ".join(text.split())
                    mark = MARK.match(words)
                    group = mark[1] if mark else group
                    texts[name] = (group, words[mark.end() :] if mark else words)
    own = {f.name: f.metadata for f in fields(config_type) if "help" in f.metadata}
    return texts | {name: (its.get("group", ""), its["help"]) for name, its in own.items()}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        if unknown:
            near = difflib.get_close_matches(unknown[0].partition("=")[0], list(self._option_string_actions), 1)
            hint = f"did you mean {near[0]}?" if near else "--help lists all"
            raise UserError(f"unknown argument {unknown[0]}; {hint}")
        raise UserError(f"{message}; --help lists the options")


def read_config(config_type: type[C], path: Path) -> C:
    """A config from a TOML file. A relative path that is not there is looked up from the repository's root too."""
    if not path.exists() and not path.is_absolute() and (ROOT / path).exists():
        path = ROOT / path
    way_out = "--help says what each option takes"
    if not path.exists():
        known = ", ".join(str(p.relative_to(ROOT)) for p in sorted((ROOT / "configs").rglob("*.toml")))
        way_out = f"the suite has {known or 'none yet'}"
    return replace(read_toml(path, "configuration file", way_out, config_type), config=path)
