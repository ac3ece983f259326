"""The verdict rule at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from shared.errors import UserError
from shared.published import Number
from shared.verdict import Verdict, judge, wilson


def number(printed: str, **fields) -> Number:
    return Number("n", printed, **({"unit": "%"} | fields))


@pytest.mark.parametrize(
    ("printed", "measured", "expected"),
    [
        ("53.9", 53.9, "equal"),
        ("53.9", 53.94999, "equal"),
        ("53.9", 53.951, "differs"),
        ("53.9", 53.849, "differs"),
        ("0.23", 0.225, "agrees"),  # prints 0.23 or 0.22 by the float's last bit: half a unit away is inside either way
        ("1,250", 1250.4, "equal"),
        ("1,250", 1250.6, "differs"),
        ("+0.22", 0.22, "equal"),
        ("-0.0", -0.0058, "equal"),
        ("85.30", 85.3, "equal"),
        ("0", 0.0, "equal"),
    ],
)
def test_a_deterministic_number_is_known_to_its_printed_rounding(printed, measured, expected):
    verdict = judge(number(printed, unit=""), measured).verdict
    assert verdict == expected or (expected == "agrees" and verdict == "equal")


def test_rounding_half_cases_agree_on_both_sides():
    for measured in (53.85, 53.95):
        assert judge(number("53.9", unit=""), measured).verdict in ("equal", "agrees")


def test_each_spread_widens_the_tolerance_by_the_stated_formula():
    plain = judge(number("50.0"), 51.0)
    assert plain.verdict == "differs" and plain.tolerance == pytest.approx(0.05)
    one_sided = judge(number("50.0", std="2.0", n=4), 51.0)
    assert one_sided.tolerance == pytest.approx(0.05 + 2 * 2.0 / math.sqrt(4))
    both = judge(number("50.0", std="2.0", n=4), 51.0, std=3.0, n=9, images=1000)
    assert both.tolerance == pytest.approx(0.05 + 2 * math.sqrt(2**2 / 4 + 3**2 / 9 + 2 * 50.5 * 49.5 / 1000))
    assert sum(both.tolerance_terms.values()) == pytest.approx(both.tolerance)
    assert set(both.tolerance_terms) == {"rounding", "published spread", "measured spread", "binomial"}


def test_each_sides_own_test_set_counts():
    pooled = (1000 * 50 + 100_000 * 50.2) / 101_000
    expected = 0.05 + 2 * math.sqrt(pooled * (100 - pooled) * (1 / 1000 + 1 / 100_000))
    assert judge(number("50.0", images=1000), 50.2, images=100_000).tolerance == pytest.approx(expected)
    both = 0.05 + 2 * math.sqrt(2 * 30.1 * 69.9 / 400)
    assert judge(number("30.0", images=400), 30.2).tolerance == pytest.approx(both)
    assert judge(number("30.0"), 30.2, images=400).tolerance == pytest.approx(both)
    assert judge(number("30.0", unit="points"), 30.2, images=400).tolerance == pytest.approx(0.05)
    assert judge(number("150.0", images=400), 150.2).tolerance == pytest.approx(0.05)  # no variance outside 0..100


@pytest.mark.parametrize(("unit", "whole"), [("%", 100), ("percent", 100), ("fraction", 1), ("images", 30)])
@pytest.mark.parametrize("edge", [0, 30])
def test_at_0_and_100_percent_it_does_not_matter_which_side_printed(unit, whole, edge):
    """30 of 30 right against 29, and 0 against 1: the pooled share gives both orders one tolerance."""
    sides = [f"{whole * right / 30:.4f}" for right in (edge, abs(edge - 1))]
    one = judge(number(sides[0], unit=unit, images=30), float(sides[1]))
    other = judge(number(sides[1], unit=unit, images=30), float(sides[0]))
    assert one.tolerance == pytest.approx(other.tolerance) and one.verdict == other.verdict != "differs"
    assert one.tolerance == pytest.approx(2 * whole * math.sqrt(2 / 30 * 59 / 60 / 60), rel=1e-3)
    far = judge(number(sides[0], unit=unit, images=30), float(f"{whole * abs(edge - 9) / 30:.4f}"))
    assert far.verdict == "differs"


@pytest.mark.parametrize(
    ("unit", "printed", "images", "inside", "verdict"),
    [
        ("%", "50.0", 1000, 52.0, "agrees"),  # tolerance 4.5 points
        ("%", "50.0", 300, 52.0, "undecided"),  # 8.2 points
        ("fraction", "0.500", 1000, 0.52, "agrees"),
        ("fraction", "0.500", 300, 0.52, "undecided"),
        ("images", "500", 1000, 520, "agrees"),  # 45 of 1,000
        ("images", "150", 300, 156, "undecided"),  # 24 of 300
        ("%", "50.0", 300, 50.0, "equal"),  # prints the same text
        ("%", "50.0", 300, 60.0, "differs"),
    ],
)
def test_a_tolerance_too_wide_to_say_anything_is_undecided(unit, printed, images, inside, verdict):
    assert judge(number(printed, unit=unit, images=images), inside).verdict == verdict


def test_other_numbers_are_undecided_above_a_quarter_of_themselves():
    for printed, tolerance, verdict in (("1", 9.0, "undecided"), ("100", 26.0, "undecided"), ("-100", 25.0, "agrees")):
        one = number(printed, unit="", tolerance=tolerance, tolerance_reason="a decade")
        assert judge(one, float(printed) + 2).verdict == verdict
    gap = number("+1.0", unit="points")  # small itself, but of a hundred
    assert judge(gap, 2.0, terms={"both sides": 1.0}).verdict == "agrees"
    assert judge(gap, 2.0, terms={"both sides": 6.0}).verdict == "undecided"


def test_half_units_are_inside_also_in_float32_and_with_many_digits():
    for printed, measured in (
        ("54.6", np.float32(54.65)),
        ("54.6", np.float32(54.55)),
        ("0.1234", np.float32(0.12345)),
        ("12345678.5", 12345678.55),
        ("1234567890.12", 1234567890.125),
        ("12,345,678", 12345678.5),
    ):
        assert judge(number(printed, unit=""), measured).verdict in ("equal", "agrees"), printed
    for printed, measured in (("54.6", np.float32(54.66)), ("12345678.5", 12345678.56)):
        assert judge(number(printed, unit=""), measured).verdict == "differs", printed


def test_a_reason_stands_in_every_kind_of_verdict():
    for measured, stand_in in ((50.0, None), (57.0, None), (50.0, "another model"), ("a text", None)):
        assert "because" in judge(number("50.0"), measured, stand_in=stand_in, reason="because").line()


def test_what_was_measured_is_shown_so_that_the_difference_adds_up():
    for printed, measured, shown in (
        ("307", 304.351, "measured 304.4, difference -2.6"),
        ("+15.5", 14.36, "measured +14.36, difference -1.14"),
        ("1,797", 1700.25, "measured 1,700.2, difference -96.8"),
        ("31M", 29_412_000, "measured 29.4M, difference -1,588,000"),
        ("1.20M", 1_250_000, "measured 1.250M, difference +50,000"),
    ):
        assert shown in judge(number(printed, unit=""), measured).line()


def test_a_verdict_that_its_numbers_do_not_give_is_refused():
    good = judge(number("50.0", images=1000), 51.0)
    assert good.verdict == "agrees"
    fields = good.as_json()
    for change in (
        {"verdict": "equal"},
        {"difference": 30.0},
        {"difference": math.nan},
        {"tolerance": math.inf},
        {"tolerance_terms": {"rounding": math.nan}},
        {"measured": None},
        {"verdict": "not run"},
        {"tolerance": None},
        {"verdict": "undecided", "difference": 9.0},
    ):
        with pytest.raises(ValueError, match="'n'"):
            Verdict(**fields | change)


def test_a_spread_without_its_number_of_runs_is_one_run():
    assert judge(number("50.0", std="2.0"), 50.2).tolerance == pytest.approx(0.05 + 4)


def test_the_line_says_everything():
    line = judge(number("50.0", std="2.0"), 48.8, std=0.25, n=4).line()
    assert line.startswith(
        "n: published 50.0 ± 2.0, measured 48.80 ± 0.25, difference -1.20, tolerance 4.06 (rounding 0.05"
    )
    assert line.endswith("): agrees")


def test_a_zero_has_no_sign():
    for printed, measured in (("+0.00", -0.001), ("-0.0", 0.004), ("0", -0.2)):
        assert judge(number(printed, unit=""), measured).verdict == "equal"
    assert judge(number("+0.00", unit=""), -0.01).verdict == "differs"


def test_any_array_librarys_number_will_do_and_a_text_needs_a_text():
    verdict = judge(number("50.0"), np.float32(50.0), std=np.float64(0.5))
    assert type(verdict.difference) is float and type(verdict.measured_std) is float
    with pytest.raises(UserError, match="is a text"):
        judge(number("31 to 33", unit=""), 31.0)
    with pytest.raises(ValueError, match="std"):
        judge(number("50.0"), 50.0, std=math.inf)


def test_zero_spread_adds_nothing_and_missing_spread_is_not_named():
    verdict = judge(number("50.0", std="0.00"), 50.2, std=0.0, n=5)
    assert verdict.verdict == "differs" and verdict.tolerance_terms == {"rounding": 0.05}


def test_a_printed_accuracy_of_100_has_no_binomial_term_against_itself():
    same = judge(number("100.0", images=100), 100.0)
    assert same.verdict == "equal" and set(same.tolerance_terms) == {"rounding"}


def test_the_edge_of_the_tolerance_belongs_to_it():
    n = number("50.0", std="1.0", n=1)
    assert judge(n, 50.0 + 2.05).verdict == "agrees"
    assert judge(n, 50.0 + 2.06).verdict == "differs"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_measurement_that_is_no_number_differs(bad):
    verdict = judge(number("50.0", std="90.0"), bad)
    assert verdict.verdict == "differs" and verdict.difference is None


def test_a_wrong_unit_is_a_bug_of_the_program():
    with pytest.raises(ValueError, match="published in '%'"):
        judge(number("50.0"), 0.5, unit="fraction")
    with pytest.raises(ValueError, match="std"):
        judge(number("50.0"), 50.0, std=-1.0)


def test_stand_ins_and_missing_runs_are_never_judged():
    stand_in = judge(number("53.9"), 53.9, stand_in="another model")
    assert (stand_in.verdict, stand_in.reason) == ("not comparable", "another model")
    missing = judge(number("53.9"), None, why_not_run="no network")
    assert (missing.verdict, missing.measured, missing.reason) == ("not run", None, "no network")


def test_text_is_compared_letter_by_letter():
    fits = number("fits", unit="")
    assert judge(fits, "fits").verdict == "equal"
    assert judge(fits, "does not fit").verdict == "differs"
    assert judge(fits, "fits", stand_in="another model").verdict == "not comparable"


def test_a_stated_tolerance_replaces_the_rule_and_its_reason_is_shown():
    loose = number("50.0", tolerance=3.0, tolerance_reason="bf16 variant")
    verdict = judge(loose, 52.9, std=0.1, terms={"rounding of the values": 9.0})
    assert verdict.verdict == "agrees" and verdict.tolerance_terms == {"stated": 3.0}
    assert "bf16 variant" in verdict.line()


def test_arithmetic_on_the_same_runs_gets_no_statistical_term():
    verdict = judge(number("76.28", std="0.46", n=3), 76.4, same_runs=True, terms={"rounding of the values": 0.05})
    assert verdict.verdict == "differs" and verdict.tolerance == pytest.approx(0.055)


@given(st.floats(-1e6, 1e6), st.integers(0, 4), st.floats(-10, 10))
def test_the_verdict_follows_from_difference_and_tolerance(value, decimals, shift):
    n = number(f"{value:.{decimals}f}", unit="")
    verdict = judge(n, n.value + shift)
    if verdict.verdict == "differs":
        assert abs(shift) > verdict.tolerance * (1 - 1e-6) - 1e-9
    else:
        assert abs(shift) <= verdict.tolerance * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (1, 3), (662, 3925), (67, 134), (480, 500)])
def test_wilson_is_scipys(k, n):
    interval = binomtest(k, n).proportion_ci(method="wilson")
    assert wilson(k, n) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_wilson_without_trials_knows_nothing_and_refuses_nonsense():
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError):
        wilson(3, 2)
