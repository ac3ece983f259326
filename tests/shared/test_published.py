"""Published numbers are read strictly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.errors import UserError
from shared.published import Number, load_all, read

GOOD = {
    "schema": 1,
    "paper": "toy",
    "experiment": "table",
    "source": "Toy, Table 1",
    "unit": "%",
    "defaults": {"n": 3},
    "columns": ["A", "B"],
    "rows": {"r": ["88.50 ± 0.04", None], "s": ["1,250", "+0.2"]},
    "units": {"B": "points"},
    "numbers": {"mean/A": {"printed": "90", "n": 1}},
    "groups": {"all": ["r", "s"]},
}


def write(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "table.json"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def test_cells_and_numbers_keep_their_digits(tmp_path):
    published = read(write(tmp_path, GOOD))
    cell = published.rows["r"]["A"]
    assert (cell.printed, cell.value, cell.std, cell.n, cell.unit, cell.decimals) == ("88.50", 88.5, "0.04", 3, "%", 2)
    assert published.rows["r"]["B"] is None
    assert published["s/B"].unit == "points" and published["s/B"].format(0.249) == "+0.2"
    assert published["s/A"].value == 1250 and published["s/A"].format(1250.4) == "1,250"
    assert published["mean/A"].n == 1 and published["mean/A"].source == "toy/table"
    assert set(published.column("A")) == {"r", "s"} and published.groups["all"] == ["r", "s"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"schema": 2}, "schema"),
        ({"colums": []}, "colums"),
        ({"source": ""}, "source"),
        ({"rows": {"r": ["1"]}}, "rows/r"),
        ({"rows": {"r": [1.0, None]}}, "rows/r/0: expected str"),
        ({"rows": ["r"]}, "rows"),
        ({"numbers": {"r/A": {"printed": "1"}}}, "numbers/r/A"),
        ({"numbers": {"x": {"prnted": "1"}}}, "numbers/x: unknown key 'prnted'"),
        ({"numbers": {"x": {"printed": 1.0}}}, "x/printed"),
        ({"numbers": {"x": {"printed": "1", "std": "wide"}}}, "x/std"),
        ({"numbers": {"x": {"printed": "1", "n": 0}}}, "x/n"),
        ({"numbers": {"x": {"printed": "1", "tolerance": 3.0}}}, "tolerance_reason"),
        ({"numbers": [1]}, "numbers"),
        ({"columns": ["A", "A"]}, "columns"),
        ({"rows": {"r": ["99.50 ±", None]}}, "r/A/std"),
        ({"rows": {"r": ["99.50 ± -1", None]}}, "r/A/std"),
        ({"numbers": {"x": {"printed": "1", "std": "1,0"}}}, "x/std"),
        ({"numbers": {"x": {"printed": "1", "tolerance": "3", "tolerance_reason": "r"}}}, "x/tolerance"),
        ({"numbers": {"x": {"printed": "1", "tolerance": float("inf"), "tolerance_reason": "r"}}}, "Infinity"),
        ({"numbers": {"x": {"printed": "1", "id": "y"}}}, "x/id"),
        ({"unit": 5}, "unit"),
        ({"groups": {"g": [[1]]}}, "groups/g"),
        ({"groups": {"g": ["absent"]}}, "groups/g"),
    ],
)
def test_a_wrong_shape_names_file_and_key(tmp_path, change, names):
    path = write(tmp_path, GOOD | change)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(path) in str(error.value) and names in str(error.value)


@pytest.mark.parametrize("content", [b"", b'{"schema": 1, "pap', b"\xff\xfe\x00", b"[]", b"[" * 100_000, b"3"])
def test_a_damaged_file_is_one_line_that_names_it(tmp_path, content):
    path = write(tmp_path, content)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_what_is_not_in_the_file_is_named_when_it_is_asked_for(tmp_path):
    path = write(tmp_path, GOOD)
    published = read(path)
    for named in (published, published.rows, published.rows["r"], published.groups):
        with pytest.raises(UserError) as error:
            named["absent"]
        assert str(path) in str(error.value) and "'absent' is missing" in str(error.value)


def test_only_numerals_are_numbers():
    for text in ("1,2,,3", "12,34", "fits", "1.", "١", "2 to 4", "$1", "1e999"):
        assert Number("n", text).value is None and Number("n", text).decimals == 0
    assert Number("n", "-1,234.50").value == -1234.5 and Number("n", "-1,234.50").decimals == 2


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.json: no such file"):
        read(tmp_path / "nowhere.json")


def test_every_committed_file_reads_and_ids_do_not_collide():
    every = load_all()
    assert {"table1", "table2", "table5", "table6", "table7", "table8", "table9", "objectnet", "tables"} <= {
        p.experiment for p in every if p.paper == "vit"
    }
    keys = [(n.source, n.id) for p in every for n in p.numbers.values()]
    assert len(keys) == len(set(keys)) > 600
    for p in every:
        assert all(n.source == f"{p.paper}/{p.experiment}" for n in p.numbers.values())
