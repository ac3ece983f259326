"""Published against measured: the one rule that turns two numbers into a verdict.

The six verdicts
    equal           prints the same string as the publication
    agrees          not the same string, but inside the tolerance
    undecided       inside the tolerance, but the tolerance is too wide for that to say anything
    differs         outside the tolerance
    not comparable  measured on a stand-in (another model, other images)
    not run         there is no measurement

The tolerance is a sum of a rounding term and a statistical term, each printed:

    tolerance = rounding + Z * sqrt(published_std^2/n + measured_std^2/n' + p(100-p)/N + p(100-p)/N')

    rounding            half a unit of the last printed digit
    published_std^2/n   the publication's own spread over n repeats, as the variance of their mean (if it prints one)
    measured_std^2/n'   the same of our repeats
    p(100-p)/N          a percentage's binomial variance on the publication's N test images, and on our N'; p is the
                        share of right answers in both together, so that neither side is favoured and a printed 100 %
                        has an error too (a side's N stands in for the other's where only one is known); of a fraction
                        or a count of images the same in its unit

A deterministic number (a count of parameters, arithmetic on a table) has no statistical term. A term that is not known
is left out, never guessed. `Number.tolerance` overrides the rule for one number and needs `Number.tolerance_reason`.

Too wide is a tolerance above 5 % of what the number is a part of (5 points of a percentage, 5 % of the test images of a
count), and above a quarter of any other number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from shared.errors import UserError
from shared.numerals import numeral
from shared.published import Kind, Number

Z = 2.0  # two standard errors: about 1 in 20 true agreements is called a difference
WIDEST_PART = 0.05  # of the whole that a percentage, a fraction or a count of images is a part of
WIDEST = 0.25  # of any other number

Name = Literal["equal", "agrees", "undecided", "differs", "not comparable", "not run"]
VERDICTS: tuple[Name, ...] = get_args(Name)
EQUAL, AGREES, UNDECIDED, DIFFERS, NOT_COMPARABLE, NOT_RUN = VERDICTS


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published number and what became of it. Text fields print as they stand; numbers are in `unit`.

    kind    how this verdict came about (`published.Kind`); "" in results of before: then it is the number's
    runs    the training runs behind the measurement, by their `path` in the result's provenance
    """

    id: str
    published: str
    measured: str | None
    unit: str
    verdict: Name
    difference: float | None = None
    tolerance: float | None = None
    tolerance_terms: dict[str, float] = {}
    reason: str = ""
    source: str = ""
    published_std: str | None = None
    measured_std: float | None = None
    kind: Kind | Literal[""] = ""
    runs: list[str] = []

    def __post_init__(self) -> None:
        """Refuse what the rule cannot have said (ValueError): a result may have been edited or damaged."""
        numbers = (self.difference, self.tolerance, self.measured_std, *self.tolerance_terms.values())
        if not all(math.isfinite(number) for number in numbers if number is not None):
            raise ValueError(f"{self.id!r}: difference, tolerance and spread are finite numbers")
        known = self.difference is not None and self.tolerance is not None
        # the slack: a float32 measurement on the edge is a few of its last digits outside
        inside = known and abs(self.difference) <= 1.001 * self.tolerance
        if (
            (self.verdict == NOT_RUN) != (self.measured is None)
            or (self.verdict == EQUAL and self.measured != self.published)
            or (self.verdict in (AGREES, UNDECIDED) and not inside)
        ):
            raise ValueError(f"{self.id!r}: {self.verdict!r} does not follow from its numbers")

    @property
    def shown(self) -> str:
        """The measurement to read: with one digit more where its rounding would make the difference look wrong."""
        form = numeral(self.published)
        if self.verdict in (EQUAL, NOT_RUN) or self.difference is None or form is None:
            return self.measured or "-"
        return form.format(form.value + self.difference, more=1)

    @property
    def shown_difference(self) -> str:
        """With a sign, to the digits of `shown`; "" without a difference."""
        form = numeral(self.published)
        if self.difference is None or form is None:
            return ""
        digits = form.decimals + 1 - form.power
        return f"{self.difference:+.{digits}f}" if digits >= 0 else f"{self.difference:+,.0f}"

    def line(self) -> str:
        """`id: published 53.9, measured 54.60, difference +0.70, tolerance 2.4 (rounding 0.05, ...): agrees`."""
        because = f" ({self.reason})" if self.reason else ""
        return f"{self.numbers()}: {self.verdict}{because}"

    def numbers(self) -> str:
        """`line` up to the verdict."""
        spread = f" ± {self.published_std}" if self.published_std else ""
        ours = f" ± {self.measured_std:.3g}" if self.measured_std is not None else ""
        parts = [f"published {self.published}{spread}", f"measured {self.shown}{ours}"]
        if self.shown_difference and self.verdict != EQUAL:
            parts.append(f"difference {self.shown_difference}")
        if self.tolerance is not None and self.verdict != EQUAL:
            terms = ", ".join(f"{name} {value:.3g}" for name, value in self.tolerance_terms.items())
            parts.append(f"tolerance {self.tolerance:.3g} ({terms})")
        return f"{self.id}: {', '.join(parts)}"

    def as_json(self) -> dict:
        return msgspec.structs.asdict(self)


@dataclass(frozen=True)
class Measured:
    """One measured number with what its verdict needs.

    value        at full precision in the publication's unit, a finished string to compare letter by letter, or None:
                 not run, for the reason `why_not_run`
    std, n       our sample standard deviation over `n` repeats, in the same unit
    images       our test-set size, for the binomial term
    stand_in     why the measurement is not of the published thing: the verdict is then `not comparable`
    terms        further named parts of the tolerance that follow from the measurement: the rounding of its inputs
    same_runs    the measurement is arithmetic on the published runs themselves: no statistical term
    reason       an explanation that belongs to the verdict: why it differs, what else was measured
    runs         the training runs it was made from, by their `path` in the result's provenance
    """

    value: float | str | None
    std: float | None = None
    n: int = 1
    images: int | None = None
    stand_in: str | None = None
    terms: dict[str, float] | None = None
    same_runs: bool = False
    why_not_run: str = ""
    reason: str = ""
    runs: tuple[str, ...] = ()


def judge(number: Number, measured: Measured | float | str | None, *, unit: str | None = None, **more: Any) -> Verdict:
    """Judge one published number. `more`: the fields of `Measured`, where `measured` is a bare value.

    unit: our unit; another one than the publication's is an error of the program (ValueError). A number that is
    measured where a text is published is a UserError: either file may be at fault.
    """
    ours = measured if isinstance(measured, Measured) else Measured(measured, **more)
    value = ours.value
    if unit is not None and unit != number.unit:
        raise ValueError(f"{number.id}: measured in {unit!r}, published in {number.unit!r}")
    if ours.std is not None and not (0 <= ours.std < math.inf and ours.n >= 1):
        raise ValueError(f"{number.id}: std must be finite and >= 0, n >= 1; got std={ours.std}, n={ours.n}")

    def verdict(name: Name, text: str | None, reason: str | None = "", **fields: Any) -> Verdict:
        return Verdict(
            id=number.id,
            published=number.printed,
            published_std=number.std,
            unit=number.unit,
            source=number.source,
            measured=text,
            verdict=name,
            reason="; ".join(filter(None, [reason, ours.reason])),
            kind="arithmetic" if ours.same_runs else number.kind,
            runs=list(ours.runs),
            **fields,
        )

    if value is None:
        return verdict(NOT_RUN, None, ours.why_not_run or "no measurement")
    if isinstance(value, str):
        if ours.stand_in:
            return verdict(NOT_COMPARABLE, value, ours.stand_in)
        return verdict(EQUAL if value == number.printed else DIFFERS, value)

    last_digit = resolution(value)
    value = float(value)  # whatever array library it came from
    if number.value is None:
        raise UserError(
            f"{number.source} {number.id}: {number.printed!r} is a text, and the number {value:g} was measured; write "
            "it as one number in the published file, or print the measurement in its form"
        )
    finite = math.isfinite(value)
    text = number.format(value) if finite else str(value)
    spread = {
        "measured_std": None if ours.std is None else float(ours.std),
        "difference": value - number.value if finite else None,
    }
    if ours.stand_in:
        return verdict(NOT_COMPARABLE, text, ours.stand_in, **spread)
    if not finite:
        return verdict(DIFFERS, text, "the measurement is not a finite number", **spread)
    if ours.same_runs:
        terms = rounding_term(number)
    else:
        terms = tolerance_terms(number, value, std=ours.std, n=ours.n, images=ours.images)
    if number.tolerance is None:
        terms |= ours.terms or {}
    tolerance = sum(terms.values())
    # the slack: a difference on the edge must not depend on the last bit of a sum, or of a float32 measurement
    slack = 1e-9 * tolerance + last_digit * max(abs(value), abs(number.value))
    if text == number.printed:
        name = EQUAL
    elif abs(spread["difference"]) <= tolerance + slack:
        name = UNDECIDED if tolerance > widest(number, ours.images) else AGREES
    else:
        name = DIFFERS
    return verdict(name, text, number.tolerance_reason, tolerance=tolerance, tolerance_terms=terms, **spread)


def resolution(value: Any) -> float:
    """Relative size of a number's last bit after one operation: float64's unless its array library says less."""
    bits = {"float32": 23, "float16": 10, "bfloat16": 7}
    return 2.0 ** (1 - bits.get(str(getattr(value, "dtype", "")).rpartition(".")[2], 52))


def whole(number: Number, images: int | None = None) -> float | None:
    """What a number is a part of, in its unit: 100 of a percentage, the test images of a count; None: of nothing."""
    test_set = float(number.images or images or 0) or None
    return {"%": 100.0, "points": 100.0, "fraction": 1.0, "images": test_set}.get(number.unit)


def widest(number: Number, images: int | None = None) -> float:
    """The largest tolerance inside which a measurement still says something; see the module's docstring."""
    total = whole(number, images)
    return WIDEST * abs(number.value) if total is None else WIDEST_PART * total


def tolerance_terms(
    number: Number, value: float, *, std: float | None = None, n: int = 1, images: int | None = None
) -> dict[str, float]:
    """The named terms whose sum is the tolerance of the measurement `value`, in the publication's unit (see the
    module's docstring)."""
    terms = rounding_term(number)
    if number.tolerance is not None:
        return terms
    variances = {}
    if number.std is not None:
        variances["published spread"] = float(number.std) ** 2 / (number.n or 1)
    if std is not None:
        variances["measured spread"] = std**2 / n
    theirs, ours = number.images or images, images or number.images
    total = whole(number, images)
    if theirs and total and number.unit != "points":  # a difference's error is not that of its size: `terms`
        shares = [min(max(side / total, 0.0), 1.0) for side in (number.value, value)]
        p = (theirs * shares[0] + ours * shares[1]) / (theirs + ours)
        variances["binomial"] = total**2 * p * (1 - p) * (1 / theirs + 1 / ours)
    variance = math.fsum(variances.values())
    if variance > 0:
        # the statistical term is Z times the root of a sum of squares; its parts are shown in proportion to variance
        terms |= {name: Z * part / math.sqrt(variance) for name, part in variances.items()}
    return terms


def binomial_variance(percent: float, images: int) -> float:
    """Of a percentage that was scored on so many images, in squared points."""
    return percent * (100 - percent) / images


def standard_error(percent: float, images: int) -> float:
    """Standard error of the test set, in points: of a percentage that was scored on so many images."""
    return math.sqrt(binomial_variance(percent, images))


def rounding_term(number: Number) -> dict[str, float]:
    """Half a unit of the last printed digit, or the stated tolerance that overrides the whole rule."""
    return {"rounding": number.half_unit} if number.tolerance is None else {"stated": number.tolerance}


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson's score interval for a proportion, as (low, high) in 0..1; (0, 1) for n = 0."""
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be in 0..{n}, got {successes}")
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
