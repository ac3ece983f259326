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
from dataclasses import asdict, dataclass, field

from shared.published import Number

Z = 2.0  # two standard errors: about 1 in 20 true agreements is called a difference

EQUAL, AGREES, DIFFERS = "equal", "agrees", "differs"
NOT_COMPARABLE, NOT_RUN = "not comparable", "not run"
VERDICTS = (EQUAL, AGREES, DIFFERS, NOT_COMPARABLE, NOT_RUN)


@dataclass(frozen=True)
class Verdict:
    """One published number and what became of it. Text fields print as they stand; numbers are in `unit`."""

    id: str
    published: str
    measured: str | None
    unit: str
    verdict: str
    difference: float | None = None
    tolerance: float | None = None
    tolerance_terms: dict[str, float] = field(default_factory=dict)
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
        return asdict(self)


@dataclass(frozen=True)
class Measured:
    """One measured number with what its tolerance needs: the arguments of `judge` under one id."""

    value: float | str | None
    std: float | None = None
    n: int = 1
    images: int | None = None
    stand_in: str | None = None
    terms: dict[str, float] | None = None
    same_runs: bool = False
    why_not_run: str = ""


def judge(
    number: Number,
    measured: float | str | None,
    *,
    std: float | None = None,
    n: int = 1,
    images: int | None = None,
    unit: str | None = None,
    stand_in: str | None = None,
    why_not_run: str | None = None,
    same_runs: bool = False,
    terms: dict[str, float] | None = None,
) -> Verdict:
    """Judge one published number.

    measured     the number at full precision in the publication's unit, a finished string to compare letter by
                 letter, or None: not run, for the reason `why_not_run`
    std, n       our sample standard deviation over `n` repeats, in the same unit
    images     our test-set size, for the binomial term
    unit         our unit; another one than the publication's is an error of the program: ValueError
    same_runs    the measurement is arithmetic on the published runs themselves: no statistical term
    terms        further named parts of the tolerance that follow from the measurement: the rounding of its inputs
    stand_in     why the measurement is not of the published thing: the verdict is then `not comparable`
    """
    if unit is not None and unit != number.unit:
        raise ValueError(f"{number.id}: measured in {unit!r}, published in {number.unit!r}")
    if std is not None and not (0 <= std < math.inf and n >= 1):
        raise ValueError(f"{number.id}: std must be finite and >= 0, n >= 1; got std={std}, n={n}")
    if measured is not None and not isinstance(measured, str):
        measured = float(measured)  # whatever array library it came from
        if number.value is None:
            raise ValueError(f"{number.id}: {number.printed!r} is a text; print the measurement in its form to compare")
    common = {"id": number.id, "published": number.printed, "published_std": number.std, "unit": number.unit,
              "source": number.source}  # fmt: skip
    if measured is None:
        return Verdict(**common, measured=None, verdict=NOT_RUN, reason=why_not_run or "no measurement")
    if isinstance(measured, str):
        return _judge_text(number, measured, common, stand_in)
    common["measured_std"] = None if std is None else float(std)
    text = number.format(measured) if math.isfinite(measured) else str(measured)
    difference = measured - number.value if math.isfinite(measured) else None
    if stand_in:
        return Verdict(**common, measured=text, verdict=NOT_COMPARABLE, difference=difference, reason=stand_in)
    if difference is None:
        return Verdict(**common, measured=text, verdict=DIFFERS, reason="the measurement is not a finite number")
    tolerance = rounding_term(number) if same_runs else tolerance_terms(number, std=std, n=n, images=images)
    if number.tolerance is None:
        tolerance |= terms or {}
    if text == number.printed:
        verdict = EQUAL
    else:
        verdict = AGREES if abs(difference) <= sum(tolerance.values()) * (1 + 1e-9) else DIFFERS
    reason = number.tolerance_reason or ""
    return Verdict(
        **common,
        measured=text,
        verdict=verdict,
        difference=difference,
        tolerance=sum(tolerance.values()),
        tolerance_terms=tolerance,
        reason=reason,
    )


def _judge_text(number: Number, text: str, common: dict, stand_in: str | None) -> Verdict:
    if stand_in:
        return Verdict(**common, measured=text, verdict=NOT_COMPARABLE, reason=stand_in)
    return Verdict(**common, measured=text, verdict=EQUAL if text == number.printed else DIFFERS)


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
