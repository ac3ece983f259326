"""One command line for every script: a dataclass by tyro, a TOML file below it, one-line errors, exit codes.

Exit codes: 0 done; 1 a verdict differs under --strict; 2 bad input or set-up; 130 interrupted.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from shared.errors import UserError
from shared.paths import ROOT


@dataclass
class Common:
    """What every script's `Config` inherits."""

    config: Path | None = None
    """TOML file with values for these options (configs/ has some); the command line wins"""
    results: Path | None = None
    """folder for the log, the JSON and the figures (default: results/)"""
    strict: bool = False
    """exit with code 1 when a verdict differs"""


C = TypeVar("C", bound=Common)


def run(
    main: Callable[[Any], object],
    config_type: type[C],
    argv: list[str] | None = None,
    parser: Callable[..., Any] | None = None,
) -> NoReturn:
    """Parse `argv` into `config_type`, call `main(config)`, exit.

    `main` returns None, an exit code, or an object whose `differs` counts its differing verdicts (a `Record`).
    `parser` stands in for `parse`, with its arguments, where a script must start faster than tyro loads.
    """
    # a terminal that has no ± must not cost the result
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        config = (parser or parse)(
            config_type, sys.argv[1:] if argv is None else argv, doc=main.__globals__.get("__doc__")
        )
        result = main(config)
        code = result if isinstance(result, int) else 0
        if config.strict and getattr(result, "differs", 0):
            code = 1
        sys.stdout.flush()
    except UserError as error:
        fail(error)
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept, the same command continues", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output (head, less) left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    sys.exit(code)


def fail(error: UserError) -> NoReturn:
    """Print the one line and exit with code 2."""
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


def parse(config_type: type[C], argv: list[str], doc: str | None = None) -> C:
    """`config_type` from its defaults, then the file of `--config`, then `argv`. Raises `UserError` on a bad file."""
    import tyro

    path = _config_argument(argv)
    default = read_config(config_type, path) if path else config_type()
    return tyro.cli(config_type, args=argv, default=default, description=doc or config_type.__doc__)


def _config_argument(argv: list[str]) -> Path | None:
    path = None
    for i, argument in enumerate(argv):
        if argument == "--config" and i + 1 < len(argv):
            path = Path(argv[i + 1])
        elif argument.startswith("--config="):
            path = Path(argument.partition("=")[2])
    return path


def read_config(config_type: type[C], path: Path) -> C:
    """A config from a TOML file. A relative path that is not there is looked up from the repository's root too."""
    if not path.exists() and not path.is_absolute() and (ROOT / path).exists():
        path = ROOT / path
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        known = ", ".join(str(p.relative_to(ROOT)) for p in sorted((ROOT / "configs").rglob("*.toml")))
        raise UserError(f"{path}: no such configuration file; the suite has {known or 'none yet'}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as TOML ({error})") from None
    hints = get_type_hints(config_type)
    names = [f.name for f in fields(config_type) if f.name != "config"]
    for key in values:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
            raise UserError(f"{path}: unknown key {key!r}; {hint}")
    coerced = {key: _coerce(value, hints[key], f"{path}: {key}") for key, value in values.items()}
    return config_type(**coerced | {"config": path})


def _coerce(value: Any, hint: Any, where: str) -> Any:
    """A TOML value as the annotated type: arrays become tuples, texts become paths, integers become floats."""
    origin, args = get_origin(hint), get_args(hint)
    expected = UserError(f"{where}: expected {_words(hint)}, got {value!r}")
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise expected
        return origin(_coerce(item, args[0], where) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise expected
        return {key: _coerce(item, args[1], f"{where}.{key}") for key, item in value.items()}
    if str(origin) == "typing.Literal":
        if value not in args:
            raise expected
        return value
    if args:  # a union: the first member that takes the value
        for member in args:
            if member is type(None):
                continue
            try:
                return _coerce(value, member, where)
            except UserError:
                continue
        raise expected
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and type(value) is int:
        return float(value)
    if hint is not Any and (type(value) is not hint):
        raise expected
    return value


def _words(hint: Any) -> str:
    return getattr(hint, "__name__", None) if not get_args(hint) else str(hint).replace("typing.", "")
