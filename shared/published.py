"""Published numbers as data: `papers/<paper>/published/<experiment>.json`, read strictly.

A file holds numbers one by one (`numbers`), or a table (`columns` and `rows`), or both:

    {"schema": 1, "paper": "vit", "experiment": "table2", "source": "arXiv:2010.11929, Table 2", "unit": "%",
     "defaults": {"n": 3},
     "columns": ["ViT-H/14 (JFT)", ...], "rows": {"ImageNet": ["88.55 ± 0.04", ...], ...},
     "numbers": {"core-days/ViT-H/14 (JFT)": {"printed": "2.5", "unit": "thousand core-days"}, ...}}

Numbers are strings, because the printed digits are the fact: 85.30 is not 85.3 (`shared.numerals` says which forms are
read as numbers). A table's cell is `printed`, `printed ± std` or null, and gets the id `<row>/<column>`. `defaults`
stands under every number, `each` under those of a row or column (`units` is short for the unit of columns); `groups`
names sets of rows.

What is asked of a number beside its value, all with a default:

    kind         how it can be checked: `cell` (a page reproduced), `arithmetic` (from other printed numbers, from a
                 configuration), `measured` (by an experiment; the default)
    reference    the experiments whose result counts, the first that measured it; the file's own name by default.
                 Results of any other experiment are listed beside, whenever they were made
    printed_in   the work that prints it; "the paper" by default
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shared.errors import UserError
from shared.numerals import Numeral, numeral, split_spread
from shared.paths import ROOT
from shared.schema import checked, read_json

RESTORE = "restore the file from version control"
PROPORTIONS = ("%", "points", "fraction", "images")  # units that the verdict's rule knows; others are only names
_UNITS = {"percent": "%", "per cent": "%", "percentage": "%", "pct": "%", "percentage points": "points"}

Kind = Literal["cell", "arithmetic", "measured"]
KINDS: dict[Kind, str] = {
    "cell": "cells reproduced",
    "arithmetic": "arithmetic re-derived",
    "measured": "measured by an experiment",
}
_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class Number:
    """One published number.

    printed     the string as printed ("53.9", "+0.22", "1,250", "31M", "fits"); all else follows from it
    std         the printed spread, in the same unit (a string), over `n` repeats
    images      size of the test set that a percentage was scored on
    tolerance   overrides the rule in `shared.verdict`; needs `tolerance_reason`
    source      "<paper>/<experiment>": the file it stands in
    kind, reference, printed_in: see the module's docstring
    """

    id: str
    printed: _Text
    unit: str = ""
    std: Annotated[str, Meta(pattern=r"\A[0-9]+(\.[0-9]+)?\Z")] | None = None
    n: _Count | None = None
    images: _Count | None = None
    tolerance: Annotated[float, Meta(gt=0)] | None = None
    tolerance_reason: str | None = None
    note: str = ""
    source: str = ""
    kind: Kind = "measured"
    reference: Annotated[tuple[_Text, ...], Meta(min_length=1)] = ("",)
    printed_in: _Text = "the paper"

    def __post_init__(self) -> None:
        if self.tolerance is not None and not self.tolerance_reason:
            raise ValueError("a tolerance is set: expected a tolerance_reason beside it")
        unit = _UNITS.get(self.unit.lower(), self.unit)
        if self._numeral and self.printed.endswith("%"):
            if unit not in ("", "%"):
                raise ValueError(f"{self.printed!r} is a percentage: expected the unit '%', got {unit!r}")
            unit = "%"
        object.__setattr__(self, "unit", unit)

    @property
    def _numeral(self) -> Numeral | None:
        return numeral(self.printed)

    @property
    def value(self) -> float | None:
        """The numeral as a float, or None where the printed string is not one numeral."""
        return self._numeral.value if self._numeral else None

    @property
    def decimals(self) -> int:
        """Printed digits after the point; 0 for a text."""
        return self._numeral.decimals if self._numeral else 0

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit; 0 for a text."""
        return self._numeral.half_unit if self._numeral else 0.0

    def format(self, measured: float) -> str:
        """`measured` in the printed format: decimals, commas, plus sign, suffix; a zero has no sign."""
        text = self._numeral.format(measured)
        return self.printed if self.value == 0 and not any("1" <= digit <= "9" for digit in text) else text


class Named(dict):
    """A dictionary from a published file: what is not in it is an error of the file, named."""

    def __init__(self, where: str, items: dict | None = None):
        super().__init__(items or {})
        self.where = where

    def __missing__(self, key: str) -> None:
        raise UserError(f"{self.where}: {key!r} is missing; {RESTORE}")


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
            f"{RESTORE}"
        )
    return published


def load_all(root: Path = ROOT / "papers") -> list[Published]:
    """Every published file of every paper, in a fixed order."""
    return [read(path) for path in sorted(root.glob("*/published/*.json"))]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What a file of published numbers may hold; see the module's docstring."""

    schema: Literal[1]
    paper: _Text
    experiment: _Text
    source: _Text
    unit: str = ""
    defaults: dict[str, Any] = {}
    columns: list[str] = []
    rows: dict[str, list[str | None]] = {}
    units: dict[str, str] = {}
    each: dict[str, dict[str, Any]] = {}
    numbers: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    note: str = ""


def read(path: Path) -> Published:
    """`load` for a file anywhere."""
    file = read_json(path, "file of published numbers", RESTORE, _File)
    own_name = {"source": f"{file.paper}/{file.experiment}", "reference": [file.experiment]}
    defaults = {"unit": file.unit} | own_name | file.defaults

    def expect(holds: object, key: str, expected: str) -> None:
        if not holds:
            raise UserError(f"{path}: {key}: expected {expected}; {RESTORE}")

    def number(id: str, own: dict[str, Any], at: str) -> Number:
        expect("id" not in own | file.defaults, f"{at}/id", "no such key: an id stands before its number")
        if isinstance(own.get("printed"), str) and own.get("std") is None:
            printed, std = split_spread(own["printed"])
            own = own | {"printed": printed, "std": std}
        one = checked(defaults | own | {"id": id}, Number, path, RESTORE, at)
        near = difflib.get_close_matches(one.unit.lower(), [*_UNITS, *PROPORTIONS], 1, 0.75)
        typo = near and one.unit not in (*_UNITS, *PROPORTIONS)
        expect(not typo, f"{at}/unit", f"{near[0]!r} in the place of {one.unit!r}" if near else "")
        return one

    # the table's cells first: a number of its own may not take a cell's id, or one of the two would never be judged
    numbers: dict[str, Number] = Named(f"{path}: numbers")
    rows: dict[str, dict[str, Number | None]] = Named(f"{path}: rows")
    expect(len(set(file.columns)) == len(file.columns), "columns", "every name once")
    for key, members in (("units", file.units.keys()), ("each", file.each.keys() - file.rows.keys())):
        strangers = sorted(members - set(file.columns))
        expect(not strangers, f"{key}/{''.join(strangers[:1])}", "the name of a column" + " or row" * (key == "each"))
    for row, cells in file.rows.items():
        expect(len(cells) == len(file.columns), f"rows/{row}", f"a list of {len(file.columns)} cells")
        rows[row] = Named(f"{path}: rows/{row}")
        for column, cell in zip(file.columns, cells, strict=True):
            if cell is None:  # printed blank: there is nothing to judge, but a table that is drawn again needs the gap
                rows[row][column] = None
                continue
            id = f"{row}/{column}"
            # "99.50 ±" without a spread keeps an empty one, which the check of `std` then refuses
            own = file.each.get(column, {}) | file.each.get(row, {}) | {"printed": cell}
            if column in file.units:
                own["unit"] = file.units[column]
            rows[row][column] = numbers[id] = number(id, own, f"rows/{id}")
    for id, own in file.numbers.items():
        expect(id not in numbers, f"numbers/{id}", "an id that no cell of the table has")
        numbers[id] = number(id, own, f"numbers/{id}")
    expect(numbers, "rows and numbers", "at least one number in them")
    for name, members in file.groups.items():
        expect(set(members) <= set(rows), f"groups/{name}", "a list of row names")
    groups = Named(f"{path}: groups", file.groups)
    return Published(file.paper, file.experiment, file.source, numbers, file.columns, rows, groups)
