"""Printed numbers as publications write them: `53.9`, `+0.22`, `1,250`, `−2.4`, `99.9%`, `~1,797`, `1.2k`, `1e3`.

One numeral, read with its form, so that a measurement can be printed in the same one and its rounding is known. What is
no numeral (`fits`, `2 to 4`, `12,34`, `1.`) is a text: it is compared letter by letter.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

_SPACES = "\u2009\u202f\u00a0"  # thin, narrow no-break and no-break space: between thousands, before a percent sign
_POWERS = {"": 0, "k": 3, "K": 3, "M": 6, "B": 9, "T": 12}
_FORM = re.compile(
    rf"(?P<about>[~≈][ {_SPACES}]?)?(?P<sign>[+\-−])?"
    rf"(?P<whole>\d{{1,3}}(?P<comma>[,{_SPACES}])\d{{3}}(?:(?P=comma)\d{{3}})*|\d+)(?:\.(?P<digits>\d+))?"
    rf"(?:(?P<e>[eE])(?P<exponent>[+\-−]?\d{{1,3}})|(?P<suffix>[kKMBT]))?(?P<percent>[ {_SPACES}]?%)?",
    re.ASCII,
)
_SPREAD = re.compile(r"\s*(?:±|\+/?[-−])\s*")


@dataclass(frozen=True)
class Numeral:
    """value: the number; decimals: printed digits after the point; power: of ten, that a suffix or exponent stands for.

    The rest is how it is written: `before` and `after` the digits, a plus sign, the mark between thousands.
    """

    value: float
    decimals: int
    power: int
    before: str
    after: str
    plus: bool
    comma: str
    minus: str

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit: what rounding leaves open."""
        return 0.5 * 10.0 ** (self.power - self.decimals)

    def format(self, value: float, more: int = 0) -> str:
        """`value` in this form, with `more` digits after the point."""
        text = f"{value / 10.0**self.power:{'+' if self.plus else ''}{',' * bool(self.comma)}.{self.decimals + more}f}"
        text = text.replace(",", self.comma or ",").replace("-", self.minus)
        return f"{self.before}{text}{self.after}"


@lru_cache(maxsize=4096)
def numeral(text: str) -> Numeral | None:
    """The numeral that `text` is, or None."""
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    power = int(form["exponent"].replace("−", "-")) if form["e"] else _POWERS[form["suffix"] or ""]
    sign = "-" if form["sign"] in ("-", "−") else ""
    whole = re.sub(rf"[,{_SPACES}]", "", form["whole"])
    value = float(f"{sign}{whole}.{form['digits'] or 0}e{power}")
    if not math.isfinite(value):
        return None
    after = (form["e"] + form["exponent"] if form["e"] else form["suffix"] or "") + (form["percent"] or "")
    comma, minus = form["comma"] or "", "−" if "−" in text else "-"
    decimals = len(form["digits"] or "")
    return Numeral(value, decimals, power, form["about"] or "", after, form["sign"] == "+", comma, minus)


def split_spread(text: str) -> tuple[str, str | None]:
    """`88.5 ± 0.4` as ("88.5", "0.4"), also with `+-` and `+/-`; None where there is no spread, "" for an empty one."""
    printed, *spread = _SPREAD.split(text, maxsplit=1)
    if not spread or numeral(printed) is None:
        return text.strip(), None
    if spread[0].endswith("%") and not printed.endswith("%"):  # 88.5 ± 0.4 %: both are percentages
        printed += "%"
    return printed, spread[0].removesuffix("%").rstrip()
