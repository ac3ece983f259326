"""Typed reading: what is wrong is named with its whole path in the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from shared.errors import UserError
from shared.schema import read_json, read_toml


class Point(msgspec.Struct, forbid_unknown_fields=True):
    step: Annotated[int, msgspec.Meta(ge=0)]
    kind: Literal["train", "test"] = "train"


@dataclass
class Curve:
    points: list[Point]
    named: dict[str, Point | None] = field(default_factory=dict)
    folder: Path | None = None
    range: tuple[int, float] = (0, 1.0)


def read(tmp_path: Path, value: object) -> Curve:
    path = tmp_path / "curve.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return read_json(path, "curve", "train again", Curve)


def test_values_come_as_their_types(tmp_path):
    curve = read(tmp_path, {"points": [{"step": 3}], "named": {"a": None}, "folder": "x"})
    assert curve == Curve([Point(3)], {"a": None}, Path("x"))
    (tmp_path / "c.toml").write_text("[[points]]\nstep = 1\n", encoding="utf-8")
    assert read_toml(tmp_path / "c.toml", "curve", "", Curve).points == [Point(1)]
    assert read_json(tmp_path / "curve.json", "curve", "")["folder"] == "x"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "expected object, got []"),
        ({}, "'points' is missing"),
        ({"points": [], "pints": 1}, "unknown key 'pints'; did you mean 'points'?"),
        ({"points": 3}, "points: expected list, got 3; train again"),
        ({"points": [{"step": 1}, {"step": "2"}]}, "points/1/step: expected int, got '2'; train again"),
        ({"points": [{"step": -1}]}, "points/0/step: expected int >= 0, got -1"),
        ({"points": [{"step": True}]}, "points/0/step: expected int, got True"),
        ({"points": [{"stepp": 1}]}, "points/0: unknown key 'stepp'; did you mean 'step'?"),
        ({"points": [{"step": 1, "kind": "tst"}]}, "points/0/kind: expected one of 'train', 'test', got 'tst'"),
        ({"points": [], "named": {"a": None, "b/c": {}}}, "named/b/c: 'step' is missing"),
        ({"points": [], "range": [1, "x"]}, "range/1: expected float, got 'x'"),
        ({"points": [], "folder": 5}, "folder: expected path, got 5"),
        ({"points": [{"step": float("nan")}]}, "damaged curve (NaN is not JSON); train again"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(tmp_path, value, says):
    with pytest.raises(UserError) as error:
        read(tmp_path, value)
    assert str(error.value).startswith(f"{tmp_path / 'curve.json'}: {says}")


def test_an_absent_or_damaged_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no such curve; train again"):
        read_json(tmp_path / "none.json", "curve", "train again")
    for content in (b"", b'{"a": 1', b"\xff", b"[" * 100_000, b"1" * 5000):
        (tmp_path / "c.json").write_bytes(content)
        with pytest.raises(UserError, match=r"c\.json: damaged curve \(.*\); train again"):
            read_json(tmp_path / "c.json", "curve", "train again")
