"""Which gaps of Table 2 are more than the luck of three fine-tuning runs a side?"""

from __future__ import annotations

import math
from itertools import product

from papers.vit.tables_source import BIT, H14, L16, error_cut, half_unit, spread, value
from shared.published import Number, Published
from shared.record import Record


def noise(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Table 2's gaps with Welch's t, three runs a side, beside the article's rule (gap in units of the larger std)."""
    record.section("noise: gaps of Table 2 against the standard error of two means of three runs (Welch)")
    record.say(
        "  luck of fine-tuning only: each model was pre-trained once, and the test set's own error is not in it;"
    )
    record.say("  p with the range that the rounding of the printed means and deviations leaves open")
    rows = []
    for ours in (L16, H14):
        record.say(f"  {ours} against {BIT}")
        record.say(
            f"    {'dataset':<20}{'gap':>7}{'s.e.':>8}{'t':>7}{'dof':>6}{'p':>8}  {'(range)':<20}different at 5 %?   "
            "article's rule       error cut, 95 % interval"
        )
        for dataset, cells in tables["table2"].rows.items():
            row = {"model": ours, "dataset": dataset, **compare(cells[ours], cells[BIT])}
            rows.append(row)
            head = f"    {dataset:<20}{row['gap']:>+7.2f}"
            if row["p"] is None:
                record.say(
                    f"{head}{'-':>8}{'-':>7}{'-':>6}{'-':>8}  {'':<20}{'cannot tell: no deviation printed':<41}"
                    f"{_percent(row['cut'])}, no interval"
                )
                continue
            low, high = row["p_range"]
            word = {True: "yes", False: "no", None: "rounding decides"}[row["different"]]
            record.say(
                f"{head}{row['se']:>8.3f}{row['t'] + 0.0:>7.1f}{row['dof']:>6.1f}{row['p']:>8.4f}"
                f"  {f'({low:.4f} to {high:.4f})':<20}{word:<19}{row['in_std']:>4.1f} larger std      "
                f"{_percent(row['cut'])} ({_percent(row['cut_low'])} to {_percent(row['cut_high'])})"
            )
        called = sum(row["different"] is True for row in rows if row["model"] == ours)
        record.say(f"    different at the 5 % level: {called} of {len(tables['table2'].rows)} rows")
    return rows


def _percent(share: float) -> str:
    return f"{round(100 * share) + 0:d}%" if math.isfinite(share) else "-"


def compare(a: Number, b: Number) -> dict:
    """Two printed means with Welch's t, and the cut of b's errors with Fieller's interval (which excludes no cut
    exactly when t is significant); p is None where a deviation or the number of runs is not printed."""
    m1, m2, gap = value(a), value(b), value(a) - value(b)
    s1, s2 = spread(a), spread(b)
    row: dict = {"gap": gap, "cut": error_cut(m2, m1), "p": None, "different": None}
    if math.isnan(s1 + s2) or min(a.n or 0, b.n or 0) < 2 or max(s1, s2) == 0:
        return row
    t, dof, p, se = welch(gap, s1, s2, a.n, b.n)
    # what the printed digits stand for: the gap may be two half units off, each deviation one; the corners bound p
    slack = half_unit(a) + half_unit(b)
    gaps = [gap - slack, gap + slack, *([0.0] if abs(gap) < slack else [])]
    corners = [
        welch(g, max(0.0, s1 + i * half_unit(a)), max(0.0, s2 + j * half_unit(b)), a.n, b.n)
        for g, i, j in product(gaps, (-1, 1), (-1, 1))
        if max(s1 + i * half_unit(a), s2 + j * half_unit(b)) > 0
    ]
    low, high = (f(c[2] for c in [*corners, (t, dof, p, se)]) for f in (min, max))
    cut_low, cut_high = fieller(100 - m1, 100 - m2, s1**2 / a.n, s2**2 / b.n, dof)
    return row | {
        "se": se, "t": t, "dof": dof, "p": p, "p_range": (low, high), "in_std": abs(gap) / max(s1, s2),
        "different": True if high < 0.05 else False if low >= 0.05 else None, "cut_low": cut_low, "cut_high": cut_high,
    }  # fmt: skip


def welch(gap: float, s1: float, s2: float, n1: int, n2: int) -> tuple[float, float, float, float]:
    """(t, degrees of freedom, two-sided p, standard error) of a difference of two means of n1 and n2 runs."""
    from scipy.special import stdtr

    v1, v2 = s1**2 / n1, s2**2 / n2
    dof = (v1 + v2) ** 2 / (v1**2 / (n1 - 1) + v2**2 / (n2 - 1))
    se = math.sqrt(v1 + v2)
    return gap / se, dof, 2 * float(stdtr(dof, -abs(gap) / se)), se


def fieller(e1: float, e2: float, v1: float, v2: float, dof: float) -> tuple[float, float]:
    """95 % interval of the cut 1 - e1/e2 of two error rates with variances v1, v2; infinite where e2 may be 0."""
    from scipy.special import stdtrit

    g = float(stdtrit(dof, 0.975)) ** 2
    a, b, c = e2**2 - g * v2, e1 * e2, e1**2 - g * v1  # a r^2 - 2 b r + c <= 0 for the ratio r = e1/e2
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    return 1 - (b + root) / a, 1 - (b - root) / a
