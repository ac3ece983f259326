"""Deep Residual Learning: counts under each reading, verdicts, cross-checks that notice a changed cell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from papers.resnet import agreement, resnet_tables
from papers.resnet.resnet_tables import OWN, TABLES, difference, flops_readings, ratio_of_printed, rule
from shared.paths import ROOT
from shared.published import Number, Published, load
from shared.record import Record
from shared.verdict import judge

SCRIPT = ROOT / "papers" / "resnet" / "resnet_tables.py"


@pytest.fixture(scope="module")
def tables() -> dict[str, Published]:
    return {name: load("resnet", name) for name in TABLES}


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("results")
    resnet_tables.main(resnet_tables.Config(results=folder))
    return Record.load(folder / "resnet" / "tables.json") | {
        "log": (folder / "resnet" / "tables.log").read_text(encoding="utf-8")
    }


def silent() -> Record:
    return Record("resnet", "tables", quiet=True)


def changed(tables: dict[str, Published], table: str, id: str, printed: str) -> dict[str, Published]:
    """The tables with one cell printed otherwise."""
    numbers = tables[table].numbers | {id: replace(tables[table][id], printed=printed)}
    row, _, column = id.partition("/")
    rows = dict(tables[table].rows)
    if row in rows:
        rows[row] = rows[row] | {column: numbers[id]}
    return tables | {table: replace(tables[table], numbers=numbers, rows=rows)}


def test_every_digit_is_that_of_the_reference(tables, shared_folder):
    for number in range(1, 7):
        reference = json.loads((shared_folder / f"published/he2015/table{number}.json").read_text(encoding="utf-8"))
        theirs = [cell for row in reference["rows"].values() for cell in row if cell is not None]
        # what the suite prints once in a number's unit: 1.8×10^9, 0.27M, the mark of a test set
        theirs = [re.sub(r"×10\^9$|(?<=\d)M$|†$", "", cell) for cell in theirs]
        ours = []
        for cell in tables[f"table{number}"].numbers.values():
            ours += [cell.printed, *([cell.std] if cell.std else [])]
        assert Counter(ours) == Counter(theirs), number


def test_every_printed_number_has_a_verdict_and_a_reason_where_it_was_not_measured(tables, result):
    verdicts = result["verdicts"]
    every = [(n.source, n.id) for published in tables.values() for n in published.numbers.values()]
    assert [(v["source"], v["id"]) for v in verdicts] == every
    counts = Counter(v["verdict"] for v in verdicts)
    assert counts["equal"] + counts["agrees"] + counts["differs"] >= 35
    assert all(v["reason"] for v in verdicts if v["verdict"] == "not run")
    assert counts["not comparable"] == 0


def test_what_differs_is_known_and_explained(result):
    odd = {
        f"{v['source']} {v['id']}": v["verdict"] for v in result["verdicts"] if v["verdict"] in ("agrees", "differs")
    }
    assert odd == {
        "resnet/table1 FLOPs/50-layer": "differs",
        "resnet/text 4.1/34-layer ResNet better than the 18-layer one by": "agrees",
        "resnet/text 4.1/FLOPs of the 50-layer ResNet": "differs",
        "resnet/text 4.1/FLOPs of VGG-16": "differs",
        "resnet/text 4.2/parameters of ResNet-110 against Highway-32": "differs",
    }
    for id in odd:
        assert "not known" not in result["results"]["reasons"][id]
        assert f"{id}: " in result["log"]


@pytest.mark.parametrize(
    ("name", "reading", "count"),  # counted independently, 10^9 multiply-adds
    [
        ("18-layer", OWN, 1.795),
        ("18-layer", "option B", 1.814),
        ("18-layer", "option C", 1.878),
        ("34-layer", OWN, 3.644),
        ("34-layer", "option B", 3.664),
        ("34-layer", "option C", 3.831),
        ("50-layer", OWN, 3.858),
        ("50-layer", "stride in the 3x3", 4.089),
        ("101-layer", OWN, 7.570),
        ("101-layer", "stride in the 3x3", 7.801),
        ("152-layer", OWN, 11.282),
        ("152-layer", "stride in the 3x3", 11.514),
        ("VGG-16", OWN, 15.470),
        ("VGG-16", "no linear layer", 15.347),
        ("VGG-19", OWN, 19.632),
        ("VGG-19", "no linear layer", 19.508),
    ],
)
def test_multiply_adds_under_each_reading(tables, name, reading, count):
    assert flops_readings(tables)[name].counts[reading] / 1e9 == pytest.approx(count, abs=0.0005)


def test_what_prints_the_digits_is_found_not_typed(tables):
    flops = flops_readings(tables)
    assert flops["50-layer"].ways() == (
        "option B with the stride in the first 1x1 (truncated), no linear layer (truncated)"
    )
    assert flops["VGG-16"].ways() == "no linear layer (rounded or truncated)"
    assert flops["34-layer"].prints("option B") == "3.7"
    assert flops["34-layer"].prints("option B", truncated=True) == "3.6"
    assert "rounded" in flops_readings(changed(tables, "table1", "FLOPs/50-layer", "3.9"))["50-layer"].ways()
    assert flops_readings(changed(tables, "table1", "FLOPs/50-layer", "9.9"))["50-layer"].ways() == "no reading here"


def test_parameters_of_the_cifar_networks(result):
    counts = {name: own["option A, plain"] for name, own in result["results"]["parameters"].items()}
    assert list(counts.values()) == [269722, 464154, 658586, 853018, 1727962, 19421274]
    assert "option B: 4 of 6 as printed, not 32, 56" in result["log"]


def test_differences_are_those_of_the_printed_digits(tables):
    two = tables["table2"]
    assert difference(two["18 layers/ResNet"], two["34 layers/ResNet"]) == 2.85
    assert difference(Number("a", "7.1"), Number("b", "6.79")) == 0.31


def test_the_open_range_of_a_ratio_holds_every_ratio_of_its_inputs():
    part, whole = Number("a", "3.6"), Number("b", "19.6")
    measured = ratio_of_printed(part, whole)
    ends = [100 * (3.6 + a) / (19.6 + b) for a in (-0.05, 0.05) for b in (-0.05, 0.05)]
    open_by = measured.terms["rounding of inputs"]
    assert max(abs(end - measured.value) for end in ends) == pytest.approx(open_by, rel=0.01)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({3: 20, 5: 32, 9: 56}, "6n+2"),
        ({3: 6, 5: 10, 9: 18}, "2n"),
        ({3: 20, 5: 32, 9: 57}, "no rule"),
        ({3: 20, 5: 33, 9: 59}, "no rule"),  # not on one line of whole numbers
    ],
)
def test_a_rule_is_read_off_counts(counts, expected):
    assert rule(counts) == expected


@pytest.mark.parametrize(
    ("table", "id", "printed", "sentence"),
    [
        ("table2", "34 layers/plain", "27.90", "the deeper plain net is worse"),
        ("table2", "34 layers/ResNet", "25.30", "Tables 2 and 3: ResNet-34 A"),
        ("table3", "ResNet-34 C/top-5 err.", "7.64", "C beats B (top-5 err.)"),
        ("table4", "ResNet-101/top-1 err.", "19.07", "Table 4: 50 layers"),
        ("table5", "BN-inception/top-5 err. (test)", "4.28", "every earlier ensemble"),
        ("table6", "ResNet-56/error", "7.69", "gains from 20 to 110"),
    ],
)
def test_a_changed_cell_breaks_its_sentence(tables, table, id, printed, sentence):
    def failing(given: dict[str, Published]) -> set[str]:
        return {row["sentence"] for row in agreement.claims(silent(), given) if not row["holds"]}

    new = failing(changed(tables, table, id, printed)) - failing(tables)
    assert any(sentence in each for each in new), new


@pytest.mark.parametrize(
    ("table", "cell", "printed", "id"),
    [
        ("table2", "18 layers/ResNet", "27.98", "4.1/34-layer ResNet better than the 18-layer one by"),
        ("table2", "34 layers/plain", "28.94", "4.1/34-layer ResNet better than plain-34 by"),
        ("table4", "ResNet-152/top-5 err.", "4.94", "4.1/single-model top-5 error of ResNet-152"),
        ("table5", "ResNet (ILSVRC’15)/top-5 err. (test)", "3.75", "4.1/ensemble top-5 error"),
        ("table6", "ResNet-110/error", "6.34", "4.2/test error of ResNet-110"),
        ("table6", "FitNet/# params", "1.5", "4.2/parameters of ResNet-110 against FitNet"),
        ("text", "4.1/FLOPs of VGG-19", "16.9", "3.3/share of VGG-19"),
    ],
)
def test_a_changed_cell_changes_what_the_text_says_of_it(tables, table, cell, printed, id):
    new = changed(tables, table, cell, printed)
    measured = resnet_tables.text_numbers(new, flops_readings(new))[id]
    assert judge(tables["text"][id], measured).verdict == "differs"


def test_the_steps_know_the_error_of_a_test_set(tables):
    steps = {(row["what"], row["error"]): row for row in agreement.gaps(silent(), tables)}
    assert len(steps) == 22
    deeper = steps["Table 2 ResNet 18 -> 34", "top-1"]
    assert deeper["change"] == -2.85 and deeper["beyond"]
    # two proportions near 26.5 % of 50,000 images each: 2 sqrt(2 x 26.5 x 73.5 / 50,000) = 0.558
    assert deeper["two_standard_errors"] == pytest.approx(0.558, abs=0.002)
    assert not steps["Table 2 18 layers plain -> ResNet", "top-1"]["beyond"]
    assert not steps["Table 3 34 A -> 34 B", "top-1"]["beyond"]


def test_top1_and_top5_order_all_but_two_pairs_alike(tables):
    found = {tuple(row["pair"]) for row in agreement.orders(silent(), tables)}
    assert found == {("PReLU-net", "ResNet-34 C"), ("PReLU-net", "ResNet-34 B")}
    moved = changed(tables, "table3", "ResNet-50/top-5 err.", "6.00")
    assert ("ResNet-50", "ResNet-101") in {tuple(row["pair"]) for row in agreement.orders(silent(), moved)}


def test_ensembles_stand_beside_their_own_single_models(tables):
    rows = {row["method"]: row for row in agreement.ensembles(silent(), tables)}
    assert rows["ResNet (ILSVRC’15)"]["single"] == "ResNet-152"
    assert rows["VGG (ILSVRC’14)"]["single_error"] == "8.43" and rows["VGG (v5)"]["change"] == -0.3
    assert {row["single"] for row in rows.values()} >= {"PReLU-net", "BN-inception"}


def test_figures_are_drawn_and_named(tmp_path):
    record = resnet_tables.main(resnet_tables.Config(results=tmp_path, figures=True))
    data = Record.load(tmp_path / "resnet" / "tables.json")
    assert record.differs == 4 and len(data["figures"]) == 2
    for figure in data["figures"]:
        path = tmp_path / "resnet" / figure["path"]
        assert path.stat().st_size > 10_000 and path.with_suffix(".svg").exists() and figure["caption"]


def test_the_script_needs_no_torch_and_strict_counts_what_differs(tmp_path: Path):
    code = (
        "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(SCRIPT), "--strict", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 1, done.stderr  # four numbers differ
    assert (tmp_path / "resnet" / "tables.log").read_text(encoding="utf-8") == done.stdout.strip("\n") + "\n"
