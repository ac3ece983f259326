"""Printed numbers are read in every form that publications use, and printed again in the same one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import UserError
from shared.numerals import numeral, split_spread
from shared.published import Number, read
from shared.verdict import judge


@pytest.mark.parametrize(
    ("text", "value", "half_unit", "measured", "shown"),
    [
        ("−2.4", -2.4, 0.05, -2.36, "−2.4"),
        ("99.9%", 99.9, 0.05, 98.0, "98.0%"),
        ("99.9\u2009%", 99.9, 0.05, 98.0, "98.0\u2009%"),
        ("1\u2009797", 1797, 0.5, 12345, "12\u2009345"),
        ("1\u202f797.5", 1797.5, 0.05, 1000, "1\u202f000.0"),
        ("~1,797", 1797, 0.5, 1800, "~1,800"),
        ("≈ 31", 31, 0.5, 30.2, "≈ 30"),
        ("1.797k", 1797, 0.5, 1800, "1.800k"),
        ("31M", 31e6, 5e5, 31_120_896, "31M"),
        ("1e3", 1000, 500, 1200, "1e3"),
        ("1.5e−4", 1.5e-4, 5e-6, 1.61e-4, "1.6e−4"),
        ("+0.22", 0.22, 0.005, -0.3, "-0.30"),
        ("12,345,678", 12345678, 0.5, 9, "9"),
    ],
)
def test_forms_are_read_and_printed_again(text, value, half_unit, measured, shown):
    form = numeral(text)
    assert form.value == pytest.approx(value) and form.half_unit == pytest.approx(half_unit)
    assert form.format(measured) == shown and form.format(form.value) == text
    assert judge(Number("n", text), value).verdict == "equal"
    assert judge(Number("n", text), value + 3 * half_unit).verdict == "differs"


@given(st.floats(-1e9, 1e9), st.integers(0, 5), st.sampled_from(["", "k", "M", "e2", "%"]))
def test_what_a_form_prints_it_reads(value, decimals, after):
    text = f"{value:,.{decimals}f}{after}"
    assert numeral(text).format(numeral(text).value) == text


@pytest.mark.parametrize(
    ("text", "printed", "spread"),
    [
        ("88.5 ± 0.4", "88.5", "0.4"),
        ("88.5 +- 0.4", "88.5", "0.4"),
        ("88.5+/-0.4", "88.5", "0.4"),
        ("88.5 ± 0.4%", "88.5%", "0.4"),
        ("99.50 ±", "99.50", ""),
        ("-1.5", "-1.5", None),
        ("fits ± a bit", "fits ± a bit", None),
    ],
)
def test_a_spread_is_told_from_its_number(text, printed, spread):
    assert split_spread(text) == (printed, spread)


def published(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "t.json"
    path.write_text(
        '{"schema": 1, "paper": "toy", "experiment": "t", "source": "a toy", ' + text + "}", encoding="utf-8"
    )
    return path


def test_a_cells_percent_sign_and_spread_are_its_unit_and_std(tmp_path):
    file = read(published(tmp_path, '"columns": ["A"], "rows": {"r": ["99.9 +- 0.2%"]}'))
    assert (file["r/A"].printed, file["r/A"].std, file["r/A"].unit) == ("99.9%", "0.2", "%")
    named = read(published(tmp_path, '"unit": "percent", "numbers": {"n": {"printed": "99.9", "images": 100}}'))
    assert named["n"].unit == "%" and "binomial" in judge(named["n"], 98.0).tolerance_terms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('"columns": ["A"], "rows": {"r": ["1"], "s": ["2"], "r": ["3"]}', "key 'r' stands twice"),
        ('"numbers": {"n": {"printed": "1"}, "n": {"printed": "2"}}', "key 'n' stands twice"),
        ('"unit": "precent", "numbers": {"n": {"printed": "1"}}', "numbers/n/unit: expected 'percent' in the place of"),
        ('"unit": "imagse", "numbers": {"n": {"printed": "1"}}', "expected 'images' in the place of 'imagse'"),
        ('"columns": ["A"], "rows": {"r": ["1"]}, "units": {"B": "%"}', "units/B: expected the name of a column"),
        ('"columns": ["A"], "rows": {"r": ["1"]}, "each": {"q": {"n": 1}}', "each/q: expected the name of a column or"),
        ('"unit": "points", "numbers": {"n": {"printed": "5%"}}', "'5%' is a percentage"),
        ('"numbers": {"n": {"printed": "1", "kind": "guess"}}', "kind"),
    ],
)
def test_what_would_be_misread_is_named_in_one_line(tmp_path, text, says):
    path = published(tmp_path, text)
    with pytest.raises(UserError) as error:
        read(path)
    assert says in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_number_against_a_text_is_one_line(tmp_path):
    file = read(published(tmp_path, json.dumps({"numbers": {"n": {"printed": "2 to 4"}}})[1:-1]))
    with pytest.raises(UserError, match="toy/t n: '2 to 4' is a text, and the number 3 was measured"):
        judge(file["n"], 3.0)


def test_rows_and_columns_may_have_their_own_kind_reference_and_work(tmp_path):
    each = '"each": {"B": {"kind": "arithmetic", "reference": ["x", "y"]}, "s": {"printed_in": "another paper"}}'
    file = read(published(tmp_path, f'"columns": ["A", "B"], "rows": {{"r": ["1", "2"], "s": ["3", "4"]}}, {each}'))
    assert (file["r/A"].kind, file["r/A"].reference, file["r/A"].printed_in) == ("measured", ("t",), "the paper")
    assert (file["s/B"].kind, file["s/B"].reference, file["s/B"].printed_in) == (
        "arithmetic",
        ("x", "y"),
        "another paper",
    )
