"""Published numbers as data: `papers/<paper>/published/<experiment>.json`, read strictly.

A file holds numbers one by one (`numbers`), or a table (`columns` and `rows`), or both:

    {"schema": 1, "paper": "vit", "experiment": "table2", "source": "arXiv:2010.11929, Table 2", "unit": "%",
     "defaults": {"n": 3},
     "columns": ["ViT-H/14 (JFT)", ...], "rows": {"ImageNet": ["88.55 ± 0.04", ...], ...},
     "numbers": {"core-days/ViT-H/14 (JFT)": {"printed": "2.5", "unit": "thousand core-days"}, ...}}

Numbers are strings, because the printed digits are the fact: 85.30 is not 85.3. A table's cell is `printed`,
`printed ± std` or null, and gets the id `<row>/<column>`. `units` gives single columns another unit; `defaults` stands
under every number; `groups` names sets of rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path

from shared.errors import UserError
from shared.paths import ROOT
from shared.schema import read_json

SCHEMA = 1
_NUMERAL = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?", re.ASCII)
_SPREAD = re.compile(r"\d+(\.\d+)?", re.ASCII)
_FILE_KEYS = {
    "schema", "paper", "experiment", "source", "unit", "units", "defaults", "columns", "rows", "groups", "numbers",
    "note",
}  # fmt: skip


@dataclass(frozen=True)
class Number:
    """One published number.

    printed     the string as printed ("53.9", "+0.22", "1,250", "31M", "fits"); all else follows from it
    std         the printed spread, in the same unit (a string), over `n` repeats
    images    size of the test set that a percentage was scored on
    tolerance   overrides the rule in `shared.verdict`; needs `tolerance_reason`
    source      "<paper>/<experiment>": the file it stands in
    """

    id: str
    printed: str
    unit: str = ""
    std: str | None = None
    n: int | None = None
    images: int | None = None
    tolerance: float | None = None
    tolerance_reason: str | None = None
    note: str = ""
    source: str = ""

    @property
    def value(self) -> float | None:
        """The numeral as a float, or None where the printed string is not one numeral."""
        return float(self.printed.replace(",", "")) if _NUMERAL.fullmatch(self.printed) else None

    @property
    def decimals(self) -> int:
        """Printed digits after the point; 0 for a text."""
        return len(self.printed.partition(".")[2]) if self.value is not None else 0

    def format(self, measured: float) -> str:
        """`measured` in the printed format: the same decimals, thousands commas and plus sign; a zero has no sign."""
        sign = "+" if self.printed.startswith("+") else ""
        comma = "," if "," in self.printed else ""
        text = f"{measured:{sign}{comma}.{self.decimals}f}"
        return self.printed if self.value == 0 and not text.strip("+-0.") else text


class Named(dict):
    """A dictionary from a published file: what is not in it is an error of the file, named."""

    def __init__(self, where: str, items: dict | None = None):
        super().__init__(items or {})
        self.where = where

    def __missing__(self, key: str) -> None:
        raise UserError(f"{self.where}: {key!r} is missing; restore the file from version control")


@dataclass(frozen=True)
class Published:
    """One file of published numbers: all of them by id, and a table's cells by row and column (None: printed blank)."""

    paper: str
    experiment: str
    origin: str
    numbers: dict[str, Number]
    columns: list[str] = field(default_factory=list)
    rows: dict[str, dict[str, Number | None]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)

    def __getitem__(self, id: str) -> Number:
        return self.numbers[id]

    def column(self, name: str) -> dict[str, Number]:
        """The printed cells of one column, by row."""
        return {row: cells[name] for row, cells in self.rows.items() if cells[name] is not None}


def published_file(paper: str, experiment: str) -> Path:
    return ROOT / "papers" / paper / "published" / f"{experiment}.json"


def load(paper: str, experiment: str) -> Published:
    """Read and check one file. Raises `UserError` naming the file and the key at fault."""
    path = published_file(paper, experiment)
    published = read(path)
    if (published.paper, published.experiment) != (paper, experiment):
        raise UserError(
            f"{path}: holds the numbers of {published.paper}/{published.experiment}, expected {paper}/{experiment}; "
            "restore the file from version control"
        )
    return published


def load_all(root: Path = ROOT / "papers") -> list[Published]:
    """Every published file of every paper, in a fixed order."""
    return [read(path) for path in sorted(root.glob("*/published/*.json"))]


def read(path: Path) -> Published:
    """`load` for a file anywhere."""
    data = read_json(path, "file of published numbers", "restore it from version control")
    check = _Checker(path)
    check(isinstance(data, dict), "the file", "an object")
    for key in data:
        check(key in _FILE_KEYS, key, f"one of {', '.join(sorted(_FILE_KEYS))}")
    check(data.get("schema") == SCHEMA, "schema", str(SCHEMA))
    for key in ("paper", "experiment", "source"):
        check(isinstance(data.get(key), str) and data[key], key, "a text")
    check("rows" in data or "numbers" in data, "rows or numbers", "present")
    source = f"{data['paper']}/{data['experiment']}"
    defaults = {"unit": data.get("unit", ""), "source": source, **check.object(data, "defaults")}

    numbers: dict[str, Number] = Named(f"{path}: numbers")
    rows: dict[str, dict[str, Number | None]] = Named(f"{path}: rows")
    columns, units = data.get("columns", []), check.object(data, "units")
    check(isinstance(columns, list) and all(isinstance(name, str) for name in columns), "columns", "a list of texts")
    check(len(set(columns)) == len(columns), "columns", "every name once")
    for row, cells in check.object(data, "rows").items():
        check(isinstance(cells, list) and len(cells) == len(columns), f"rows/{row}", f"a list of {len(columns)} cells")
        rows[row] = Named(f"{path}: rows/{row}")
        for column, cell in zip(columns, cells, strict=True):
            id = f"{row}/{column}"
            if cell is None:
                rows[row][column] = None
                continue
            check(isinstance(cell, str), f"rows/{id}", "a text such as '88.55 ± 0.04', or null")
            printed, sign, std = (part.strip() for part in cell.partition("±"))
            fields_ = defaults | {"printed": printed, "std": std if sign else None}
            if column in units:
                fields_["unit"] = units[column]
            rows[row][column] = numbers[id] = check.number(id, fields_)
    for id, fields_ in check.object(data, "numbers").items():
        check(isinstance(fields_, dict), f"numbers/{id}", "an object")
        check(id not in numbers, f"numbers/{id}", "an id that no cell of the table has")
        numbers[id] = check.number(id, defaults | fields_)
    check(numbers, "numbers", "at least one")
    groups = Named(f"{path}: groups", check.object(data, "groups"))
    for name, members in groups.items():
        known = isinstance(members, list) and all(isinstance(member, str) and member in rows for member in members)
        check(known, f"groups/{name}", "a list of row names")
    return Published(data["paper"], data["experiment"], data["source"], numbers, columns, rows, groups)


_NUMBER_KEYS = {f.name for f in fields(Number)} - {"id"}


class _Checker:
    """Says which key of which file is not as expected."""

    def __init__(self, path: Path):
        self.path = path

    def __call__(self, holds: object, key: str, expected: str) -> None:
        if not holds:
            raise UserError(f"{self.path}: {key}: expected {expected}; restore the file from version control")

    def object(self, data: dict, key: str) -> dict:
        value = data.get(key, {})
        self(isinstance(value, dict), key, "an object")
        return value

    def number(self, id: str, values: dict) -> Number:
        for key in values:
            self(key in _NUMBER_KEYS, f"{id}/{key}", f"one of {', '.join(sorted(_NUMBER_KEYS))}")
        self(isinstance(values.get("printed"), str) and values["printed"], f"{id}/printed", "the printed text")
        for key in ("unit", "note", "source"):
            self(isinstance(values.get(key, ""), str), f"{id}/{key}", "a text")
        std = values.get("std")
        self(
            std is None or (isinstance(std, str) and _SPREAD.fullmatch(std)),
            f"{id}/std",
            "a numeral in quotes or null",
        )
        for key in ("n", "images"):
            count = values.get(key)
            self(count is None or (type(count) is int and count > 0), f"{id}/{key}", "a positive integer")
        tolerance = values.get("tolerance")
        of_use = tolerance is None or (type(tolerance) in (int, float) and 0 < tolerance < float("inf"))
        self(of_use, f"{id}/tolerance", "a number above 0")
        self(
            tolerance is None or (isinstance(values.get("tolerance_reason"), str) and values["tolerance_reason"]),
            f"{id}/tolerance_reason",
            "a written reason, because a tolerance is set",
        )
        return Number(id=id, **values)
