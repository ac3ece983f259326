"""JSON and TOML files read as typed values: one checker for results, published numbers, configurations, curves.

    curve = read_json(path, "curve", "delete it and train again", Curve)

`type` is anything msgspec converts to: a dataclass or `msgspec.Struct` with annotated fields, `list[float]`, a
`Literal`, `Annotated[int, msgspec.Meta(ge=1)]`. It is strict: no text is taken for a number, no key is left over (at
depth: of Structs with `forbid_unknown_fields=True`; a plain dataclass refuses left-over keys where it is the whole).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from shared.errors import UserError

T = TypeVar("T")


CHECKSUM = "checksum"  # the key of a file that the suite writes and reads again


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """`content` (JSON types) with a checksum of all that it says as its last key."""
    return {**content, CHECKSUM: _checksum(content)}


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, kind: str, way_out: str, type: type[T] = Any, *, seal: bool = False) -> T:
    """A JSON file as `type`. Raises UserError in one line: the file, the key, what was expected, and `way_out`.

    kind: what the file should be, for the message ("result", "curve"). Without `type`, whatever JSON holds. seal: the
    suite wrote it by `sealed`, and what was changed since is refused; a file of before has no checksum to compare.
    """

    def loads(data: bytes) -> Any:
        value = json.loads(data, parse_constant=_not_json, object_pairs_hook=_once)
        if seal and isinstance(value, dict) and CHECKSUM in value and value.pop(CHECKSUM) != _checksum(value):
            raise ValueError("its checksum does not fit: it was changed after it was written")
        return value

    return _read(path, kind, way_out, type, loads, f"damaged {kind}")


def read_toml(path: Path, kind: str, way_out: str, type: type[T] = Any) -> T:
    """As `read_json`, for TOML."""
    return _read(path, kind, way_out, type, lambda data: tomllib.loads(data.decode()), "not readable as TOML")


def _read(path: Path, kind: str, way_out: str, type: type[T], loads: Callable[[bytes], Any], fault: str) -> T:
    try:
        value = loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such {kind}; {way_out}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: {fault} ({error}); {way_out}") from None
    return checked(value, type, path, way_out)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a key that stands twice JSON keeps the last without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return found


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def checked(value: Any, type: type[T], path: Path | str, way_out: str, at: str = "") -> T:
    """`value`, as JSON or TOML gave it, as `type`. UserError `<path>: <key>: expected ..., got ...; <way_out>`.

    at: the key that `value` itself has in the file, put before those inside it.
    """
    try:
        if is_dataclass(type) and isinstance(value, dict):  # msgspec skips a dataclass's unknown keys
            for key in sorted(value.keys() - _names(type)):
                raise msgspec.ValidationError(f"Object contains unknown field `{key}`")
        return msgspec.convert(value, type, dec_hook=_to_path)
    except (RecursionError, OverflowError) as error:
        raise UserError(f"{path}: {at + ': ' if at else ''}too deep or too large ({error}); {way_out}") from None
    except (msgspec.ValidationError, UnicodeError) as error:
        place, what, hint = _explain(error, value, type)
        key = "/".join([at] * bool(at) + place)
        raise UserError(f"{path}: {key + ': ' if key else ''}{what}; {hint or way_out}") from None


def _to_path(type: Any, value: Any) -> Any:
    if type is Path and isinstance(value, str):
        return Path(value)
    raise TypeError("Expected `path`")  # msgspec adds the key


def _names(type: Any) -> list[str]:
    """The keys that an object of this type may have in a file: no field with the metadata `in_file=False`."""
    if is_dataclass(type):
        return [field.name for field in fields(type) if field.metadata.get("in_file", True)]
    return list(type.__struct_fields__)


def _explain(error: Exception, value: Any, type: Any) -> tuple[list[str], str, str]:
    """The keys that lead to what is wrong, what is wrong with it, and what may help ("" where nothing is known)."""
    message, _, route = str(error).partition(" - at `$")
    # msgspec names neither a dictionary's key nor the members of a Literal: follow its route through value and type
    place = []
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", route):
        type = _without_none(type)
        if name:
            place.append(name)
            value, type = value[name], get_type_hints(type, include_extras=True)[name]
        elif index == "...":  # a dictionary's value; msgspec does not say under which key
            type = get_args(type)[1]
            place.append(next(key for key in value if not _fits(value[key], type)))
            value = value[place[-1]]
        else:
            place.append(index)
            one_for_all = get_origin(type) is list or ... in get_args(type)  # else tuple[X, Y]
            value, type = value[int(index)], get_args(type)[0 if one_for_all else int(index)]
    type = _without_none(type)
    if missing := re.search(r"missing required field `(.+)`", message):
        return place, f"{missing[1]!r} is missing", ""
    if unknown := re.search(r"unknown field `(.+)`", message):
        names = _names(type)
        near = difflib.get_close_matches(unknown[1], names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
        return place, f"unknown key {unknown[1]!r}", hint
    if not message.startswith(("Expected", "Invalid")):  # what a type's own __post_init__ says
        return place, message, ""
    if get_origin(type) is Literal:
        expected = f"expected one of {', '.join(map(repr, get_args(type)))}"
    else:
        words = {"`": "", "array": "list", "Expected": "expected", "Invalid": "invalid"}
        expected = re.sub("|".join(words), lambda match: words[match[0]], message.partition(", got")[0])
    return place, f"{expected}, got {value!r:.80}", ""


def _without_none(type: Any) -> Any:
    """`X` of `X | None` and of `Annotated[X, ...]`."""
    if get_origin(type) is Annotated:
        return _without_none(get_args(type)[0])
    if get_origin(type) in (Union, UnionType):
        return _without_none(next(member for member in get_args(type) if member is not NoneType))
    return type


def _fits(value: Any, type: Any) -> bool:
    try:
        msgspec.convert(value, type, dec_hook=_to_path)
        return True
    except (msgspec.ValidationError, UnicodeError):
        return False
