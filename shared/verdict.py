"""Published against measured: the one rule that turns two numbers into a verdict.

The five verdicts
    equal           prints the same string as the publication
    agrees          not the same string, but inside the tolerance
    differs         outside the tolerance
    not comparable  measured on a stand-in (another model, other images)
    not run         there is no measurement

The tolerance is a sum of a rounding term and a statistical term, each printed:

    tolerance = rounding + Z * sqrt(published_std^2/n + measured_std^2/n' + p(100-p)/N + p(100-p)/N')

    rounding            half a unit of the last printed digit
    published_std^2/n   the publication's own spread over n repeats, as the variance of their mean (if it prints one)
    measured_std^2/n'   the same of our repeats
    p(100-p)/N          a percentage's binomial variance on the publication's N test images, and on our N' (each
                        side's number stands in for the other's where only one is known); N^2 p(1-p)/N for a
                        count of images among them

A deterministic number (a count of parameters, arithmetic on a table) has no statistical term. A term that is not known
is left out, never guessed. `Number.tolerance` overrides the rule for one number and needs `Number.tolerance_reason`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from shared.published import Number

Z = 2.0  # two standard errors: about 1 in 20 true agreements is called a difference

Name = Literal["equal", "agrees", "differs", "not comparable", "not run"]
VERDICTS: tuple[Name, ...] = get_args(Name)
EQUAL, AGREES, DIFFERS, NOT_COMPARABLE, NOT_RUN = VERDICTS


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published number and what became of it. Text fields print as they stand; numbers are in `unit`."""

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

    def line(self) -> str:
        """`id: published 53.9, measured 54.6, difference +0.7, tolerance 2.4 (rounding 0.05, ...): agrees`."""
        spread = f" ± {self.published_std}" if self.published_std else ""
        ours = f" ± {self.measured_std:.3g}" if self.measured_std is not None else ""
        parts = [f"published {self.published}{spread}", f"measured {self.measured or '-'}{ours}"]
        if self.difference is not None:
            parts.append(f"difference {self.difference:+.4g}")
        if self.tolerance is not None:
            terms = ", ".join(f"{name} {value:.3g}" for name, value in self.tolerance_terms.items())
            parts.append(f"tolerance {self.tolerance:.3g} ({terms})")
        because = f" ({self.reason})" if self.reason else ""
        return f"{self.id}: {', '.join(parts)}: {self.verdict}{because}"

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
    """

    value: float | str | None
    std: float | None = None
    n: int = 1
    images: int | None = None
    stand_in: str | None = None
    terms: dict[str, float] | None = None
    same_runs: bool = False
    why_not_run: str = ""


def judge(number: Number, measured: Measured | float | str | None, *, unit: str | None = None, **more: Any) -> Verdict:
    """Judge one published number. `more`: the fields of `Measured`, where `measured` is a bare value.

    unit: our unit; another one than the publication's is an error of the program (ValueError), as is a number that is
    measured where a text is published.
    """
    ours = measured if isinstance(measured, Measured) else Measured(measured, **more)
    value = ours.value
    if unit is not None and unit != number.unit:
        raise ValueError(f"{number.id}: measured in {unit!r}, published in {number.unit!r}")
    if ours.std is not None and not (0 <= ours.std < math.inf and ours.n >= 1):
        raise ValueError(f"{number.id}: std must be finite and >= 0, n >= 1; got std={ours.std}, n={ours.n}")

    def verdict(name: Name, text: str | None, reason: str | None = "", **fields: Any) -> Verdict:
        published = {"published": number.printed, "published_std": number.std, "unit": number.unit}
        return Verdict(
            id=number.id, source=number.source, measured=text, verdict=name, reason=reason or "", **published, **fields
        )

    if value is None:
        return verdict(NOT_RUN, None, ours.why_not_run or "no measurement")
    if isinstance(value, str):
        if ours.stand_in:
            return verdict(NOT_COMPARABLE, value, ours.stand_in)
        return verdict(EQUAL if value == number.printed else DIFFERS, value)

    value = float(value)  # whatever array library it came from
    if number.value is None:
        raise ValueError(f"{number.id}: {number.printed!r} is a text; print the measurement in its form to compare")
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
        terms = tolerance_terms(number, std=ours.std, n=ours.n, images=ours.images)
    if number.tolerance is None:
        terms |= ours.terms or {}
    tolerance = sum(terms.values())
    if text == number.printed:
        name = EQUAL
    else:  # the factor: a difference on the edge must not depend on the last bit of a sum
        name = AGREES if abs(spread["difference"]) <= tolerance * (1 + 1e-9) else DIFFERS
    return verdict(name, text, number.tolerance_reason, tolerance=tolerance, tolerance_terms=terms, **spread)


def tolerance_terms(
    number: Number, *, std: float | None = None, n: int = 1, images: int | None = None
) -> dict[str, float]:
    """The named terms whose sum is the tolerance, in the publication's unit (see the module's docstring)."""
    terms = rounding_term(number)
    if number.tolerance is not None:
        return terms
    variances = {}
    if number.std is not None:
        variances["published spread"] = float(number.std) ** 2 / (number.n or 1)
    if std is not None:
        variances["measured spread"] = std**2 / n
    theirs, ours = number.images or images, images or number.images
    if theirs and number.unit == "%":
        p = min(max(number.value, 0.0), 100.0)
        variances["binomial"] = p * (100 - p) * (1 / theirs + 1 / ours)
    elif theirs and number.unit == "images":
        p = min(number.value / theirs, 1.0)  # a count among them
        variances["binomial"] = theirs**2 * p * (1 - p) * (1 / theirs + 1 / ours)
    total = math.sqrt(sum(variances.values()))
    if total > 0:
        # the statistical term is Z times the root of a sum of squares; its parts are shown in proportion to variance
        terms |= {name: Z * total * variance / total**2 for name, variance in variances.items()}
    return terms


def rounding_term(number: Number) -> dict[str, float]:
    """Half a unit of the last printed digit, or the stated tolerance that overrides the whole rule."""
    if number.tolerance is not None:
        return {"stated": number.tolerance}
    return {"rounding": 0.5 * 10.0**-number.decimals}


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
