"""The table script: the article's log to the letter, and an audit that cannot miss a changed cell."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.vit import vit_part4_tables
from papers.vit.part4 import audit
from papers.vit.part4.article import article_sheet
from papers.vit.part4.cells import read_tables
from shared import cli
from shared.paths import ROOT
from shared.published import load, published_file
from shared.record import Record
from shared.text import folded

SCRIPT = ROOT / "papers" / "vit" / "vit_part4_tables.py"
# a number standing alone: not inside a name such as ViT-L/16, R152x4, CIFAR-10, 8-core or Table 2
FIGURE = re.compile(r"(?<![\w/.,-])[+-]?\d[\d,]*(?:\.\d+)?(?=k\b|x\b|%|[^\w/.-]|$|\.(?!\d))")


@pytest.fixture(scope="module")
def sheet():
    return article_sheet(read_tables())


def make_record(tmp_path: Path, **options) -> Record:
    return Record("vit", "tables", results=tmp_path, quiet=True, **options)


def run_all(tables, monkeypatch) -> Record:
    """The script's own `main` on the tables given, nothing written."""
    monkeypatch.setattr(vit_part4_tables, "read_tables", lambda: tables)
    monkeypatch.setattr(Record, "write", lambda self: None)

    def say(record, text="", *, exact=False):
        record.lines += (text if exact else folded(text)).split("\n")

    monkeypatch.setattr(Record, "say", say)
    return vit_part4_tables.main(vit_part4_tables.Config())


def test_the_log_is_the_articles_line_by_line(sheet, published_log):
    ours = [line for line in sheet.lines if line]
    for expected, line in zip(published_log("vit_part4_tables"), ours, strict=True):
        assert line == expected


def test_the_expected_log_is_the_articles(published_log, shared_folder):
    article = (shared_folder / "published/article_logs/vit_part4_tables.txt").read_text(encoding="utf-8")
    assert [line for line in article.split("\n") if line] == published_log("vit_part4_tables")


def test_every_figure_of_the_log_carries_a_verdict_and_all_are_equal(sheet, published_log):
    published = load("vit", "tables")
    assert set(published.numbers) == set(sheet.figures)
    with_figures = [line for line in published_log("vit_part4_tables") if not line.startswith("==")]
    # what the log prints beside the figures: names and settings with digits of their own
    names = (
        r"TPUv3|Table \d+|ViT-\w/\d+|H/14|8-core|I21k|R\d+x\d+|R50|L2|CIFAR-?\d+|Flowers-?102|ImageNet-21k|JFT-300M|"
        r"19 tasks|top-[15]|384 px|D\.\d+"
    )
    printed = [f for line in with_figures for f in FIGURE.findall(re.sub(names, "~", line))]
    ours = [n.printed for n in published.numbers.values() if re.fullmatch(r"[+-]?[\d,.]+", n.printed)]
    assert printed == ours


def test_the_script_judges_everything(tmp_path, capsys):
    record = vit_part4_tables.main(vit_part4_tables.Config(results=tmp_path))
    data = Record.load(tmp_path / "vit" / "tables.json")
    of_log = [v for v in data["verdicts"] if v["source"] == "vit/tables"]
    assert {v["verdict"] for v in of_log} == {"equal"} and len(of_log) == len(load("vit", "tables").numbers)
    cells = {(n.source, n.id) for name in vit_part4_tables.read_tables() for n in load("vit", name).numbers.values()}
    assert cells <= {(v["source"], v["id"]) for v in data["verdicts"]}
    assert record.differs == 0
    assert (tmp_path / "vit" / "tables.log").read_text(encoding="utf-8") == capsys.readouterr().out.strip("\n") + "\n"


def test_known_pairs_of_the_audit(tmp_path):
    tables = read_tables()
    rows = {row["what"] + row["tables"]: row for row in audit.cross_table(make_record(tmp_path), tables)}
    huge = rows["ViT-H/14 (JFT) ImageNet5/6"]
    assert (huge["first"], huge["second"], huge["equal"]) == ("88.04", "88.08", False)
    pets = rows["ViT-H/14 (JFT) Oxford-IIIT Pets5/6"]
    assert (pets["first"], pets["second"], pets["difference"]) == ("97.56", "97.11", -0.45)
    assert all(row["equal"] for row in rows.values() if row["tables"] == "6/7")
    counts = {pair: sum(row["tables"] == pair for row in rows.values()) for pair in ("2/5", "5/6", "6/7", "2/9")}
    assert counts == {"2/5": 18, "5/6": 30, "6/7": 10, "2/9": 3}


def test_welch_is_scipys(tmp_path):
    from scipy.stats import ttest_ind_from_stats

    tables = read_tables()
    rows = {(r["model"], r["dataset"]): r for r in audit.noise(make_record(tmp_path), tables)}
    for (model, dataset), row in rows.items():
        a, b = tables["table2"].rows[dataset][model], tables["table2"].rows[dataset]["BiT-L (R152x4)"]
        if b.std is None:
            assert row["different"] is None and row["p"] is None
            continue
        expected = ttest_ind_from_stats(a.value, float(a.std), 3, b.value, float(b.std), 3, equal_var=False)
        assert (row["t"], row["p"]) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
        assert row["cut_low"] < row["cut"] < row["cut_high"]
        assert (row["cut_low"] > 0 or row["cut_high"] < 0) == (row["p"] < 0.05)  # the interval says what the test says
        assert row["p_range"][0] <= row["p"] <= row["p_range"][1]
        assert row["in_std"] == pytest.approx(abs(a.value - b.value) / max(float(a.std), float(b.std)))
    called = {dataset for (model, dataset), row in rows.items() if row["different"] and model.startswith("ViT-L")}
    assert called == {"ImageNet", "CIFAR-100", "Oxford-IIIT Pets", "Oxford Flowers-102"}
    undecided = {dataset for (_, dataset), row in rows.items() if row["p"] and row["different"] is None}
    assert undecided == {"CIFAR-10", "Oxford Flowers-102"}


def test_fiellers_interval_holds_the_ratio_95_times_in_100():
    rng = np.random.default_rng(0)
    e1, e2, std, trials = 0.5, 0.63, 0.06, 2000
    held = 0
    for x, y in zip(rng.normal(e1, std, (trials, 3)), rng.normal(e2, std, (trials, 3)), strict=True):
        dof = audit.welch(y.mean() - x.mean(), x.std(ddof=1), y.std(ddof=1), 3, 3)[1]
        low, high = audit.fieller(x.mean(), y.mean(), x.var(ddof=1) / 3, y.var(ddof=1) / 3, dof)
        held += low <= 1 - e1 / e2 <= high
    assert 0.93 < held / trials < 0.98


def test_the_compute_claim_on_frontiers_of_known_ratio():
    vit = [(10.0, 80.0), (100.0, 90.0)]
    thrice = [(30.0, 80.0), (300.0, 90.0)]
    row = audit.compute_ratio(vit, thrice)
    assert (row["min"], row["median"], row["max"]) == pytest.approx((3, 3, 3))
    assert row["inside_2_4"] == 1 and row["rival_cheaper"] == 0
    # both frontiers bend at 85: the ratio's logarithm (base 2) rises from -1 to 2, then from 2 to 3
    row = audit.compute_ratio([(10.0, 80.0), (20.0, 85.0), (100.0, 90.0)], [(5.0, 80.0), (80.0, 85.0), (800.0, 90.0)])
    assert (row["min"], row["median"], row["max"]) == pytest.approx((0.5, 4.0, 8.0))
    assert row["inside_2_4"] == pytest.approx(0.5 / 3) and row["rival_cheaper"] == pytest.approx(0.5 / 3)
    assert audit.compute_needed(vit, 85.0) == pytest.approx(math.sqrt(1000))
    assert audit.frontier([(3, 1.0), (1, 2.0), (2, 1.5), (4, 3.0)]) == [(1, 2.0), (4, 3.0)]


def test_ranges_that_touch_in_a_point_or_not_at_all():
    vit = [(10.0, 80.0), (100.0, 90.0)]
    assert not audit.compute_ratio(vit, [(30.0, 70.0), (300.0, 75.0)])["overlap"]
    assert not audit.compute_ratio(vit, [(30.0, 95.0)])["overlap"]
    point = audit.compute_ratio(vit, [(5.0, 90.0)])
    assert (point["min"], point["median"], point["max"], point["rival_cheaper"]) == pytest.approx((0.05, 0.05, 0.05, 1))


def test_what_follows_the_articles_part_is_as_recorded(monkeypatch):
    """Audit, noise, compute and rounding, to the letter: these are our own figures, pinned here."""
    record = run_all(read_tables(), monkeypatch)
    start = next(i for i, line in enumerate(record.lines) if line.startswith("== cross-table audit"))
    end = record.lines.index("== the inputs: every printed cell ==")
    expected = (Path(__file__).parent / "expected_tables_audit.txt").read_text(encoding="utf-8").split("\n")
    assert record.lines[start : end - 1] == expected[:-1]


def test_an_impossible_mean_is_called_so(tmp_path):
    tables = read_tables()
    tables["table7"] = changed(tables["table7"], "average/ResNet50 SGD", "88.70")
    rows = {row["what"]: row for row in audit.rounding(make_record(tmp_path), tables)}
    assert not rows["Table 7 ResNet50 SGD"]["possible"]
    assert all(row["possible"] for what, row in rows.items() if what != "Table 7 ResNet50 SGD")


def changed(published, id: str, printed: str):
    """The same file of numbers with another printed value at `id`."""
    return with_number(published, dataclasses.replace(published.numbers[id], printed=printed))


def with_number(published, number):
    """The same file of numbers with `number` in place of the one of its id."""
    id = number.id
    rows = {
        row: {column: number if cell is not None and cell.id == id else cell for column, cell in cells.items()}
        for row, cells in published.rows.items()
    }
    return dataclasses.replace(published, numbers=published.numbers | {id: number}, rows=rows)


CELLS = [(name, id) for name, table in read_tables().items() for id in table.numbers]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CELLS), st.integers(1, 30), st.booleans())
def test_changing_any_cell_changes_a_line_and_a_verdict(cell, units, up):
    name, id = cell
    tables = read_tables()
    number = tables[name][id]
    step = units * 10.0**-number.decimals * (1 if up else -1)
    if number.value + step <= 0 or (number.unit == "%" and number.value + step >= 100):
        step = -step
    with pytest.MonkeyPatch.context() as patch:
        before = run_all(tables, patch)
        after = run_all(tables | {name: changed(tables[name], id, number.format(number.value + step))}, patch)
    assert before.lines != after.lines
    assert [v.as_json() for v in before.verdicts] != [v.as_json() for v in after.verdicts]


def test_changing_any_printed_deviation_changes_a_line_and_a_verdict(monkeypatch):
    tables = read_tables()
    before = run_all(tables, monkeypatch)
    with_std = [id for id, number in tables["table2"].numbers.items() if number.std]
    assert len(with_std) == 27
    for id in with_std:
        number = dataclasses.replace(tables["table2"][id], std="0.99")
        after = run_all(tables | {"table2": with_number(tables["table2"], number)}, monkeypatch)
        assert before.lines != after.lines and before.verdicts != after.verdicts, id


def test_changing_a_cell_that_the_article_uses_makes_a_verdict_differ(monkeypatch):
    tables = read_tables()
    for name, id in (
        ("table2", "CIFAR-100/ViT-L/16 (JFT)"),
        ("table5", "JFT-300M/ImageNet/ViT-B/16"),
        ("table7", "CIFAR10/ResNet50 Adam"),
        ("table9", "SVHN/ViT-L/16 (I21k)"),
        ("objectnet", "R152x4/BiT-S top-1"),
    ):
        number = tables[name][id]
        other = changed(tables[name], id, number.format(number.value + 1.5))
        assert run_all(tables | {name: other}, monkeypatch).differs, id


def rewritten(change) -> bytes:
    """Table 5's file after `change(data)`."""
    data = json.loads(published_file("vit", "table5").read_text(encoding="utf-8"))
    change(data)
    return json.dumps(data).encode()


BAD_FILES = {
    "absent": (None, "no such file"),
    "empty": (b"", "damaged file"),
    "not UTF-8": (b"\xff\xfe", "damaged file"),
    "truncated": (rewritten(lambda d: None)[:500], "damaged file"),
    "another table": (published_file("vit", "table6").read_bytes(), "holds the numbers of vit/table6"),
    "a row gone": (rewritten(lambda d: d["rows"].pop("JFT-300M/ImageNet")), "JFT-300M/ImageNet"),
    "a column renamed": (rewritten(lambda d: d["columns"].__setitem__(0, "ViT-B/15")), "ViT-B/16"),
    "a cell gone": (rewritten(lambda d: d["rows"]["JFT-300M/ImageNet"].__setitem__(0, None)), "blank cells"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_published_file_is_one_line_and_the_earlier_result_stays(tmp_path, monkeypatch, capsys, kind):
    content, says = BAD_FILES[kind]
    vit_part4_tables.main(vit_part4_tables.Config(results=tmp_path))
    before = (tmp_path / "vit" / "tables.json").read_bytes()
    bad = tmp_path / "table5.json"
    if content is not None:
        bad.write_bytes(content)
    monkeypatch.setattr("shared.published.published_file", lambda p, e: bad if e == "table5" else published_file(p, e))
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        cli.run(vit_part4_tables.main, vit_part4_tables.Config, ["--results", str(tmp_path)])
    err = capsys.readouterr().err
    assert exit.value.code == 2 and "table5.json" in err and says in err and err.count("\n") == 1
    assert (tmp_path / "vit" / "tables.json").read_bytes() == before


def test_table1_is_counted_without_memory(tmp_path):
    record = make_record(tmp_path)
    rows = {(r["model"], r["patch"]): r["counts"] for r in audit.table1(record, read_tables())}
    assert list(rows["ViT-Large", 32].values()) == [305_510_400, 306_560_000, 306_535_400, 307_585_000]
    assert rows["ViT-Base", 16]["encoder + head"] == 86_567_656
    assert rows["ViT-Huge", 14]["encoder"] == 630_764_800
    assert {v.id: v.verdict for v in record.verdicts} == {
        "ViT-Base/params": "equal", "ViT-Large/params": "differs", "ViT-Huge/params": "equal",
    }  # fmt: skip


def test_figures_show_every_printed_number_that_they_are_of():
    from shared.plots import in_words

    tables = read_tables()
    figure2, figure3, table6 = (draw(tables) for draw, *_ in vit_part4_tables.FIGURES)
    assert "77.63 at VTAB 19 tasks" in in_words(figure2)
    for id, cell in tables["table5"].numbers.items():
        if id.split("/")[1] == "ImageNet":
            assert f"{cell.value:.4g} at" in in_words(figure3)
    assert "axis cut" in in_words(figure3) and "axis cut" in in_words(table6) and "axis cut" not in in_words(figure2)


def test_the_audit_is_in_tables(tmp_path):
    record = vit_part4_tables.main(vit_part4_tables.Config(results=tmp_path))
    tables = {table["title"]: table["rows"] for table in record.as_json()["tables"]}
    audit, *rest = tables.values()
    assert len(audit) == len(record.results["cross_table"]) and audit[0][4] and not audit[-1][4]  # unequal ones first
    welch = [rows for title, rows in tables.items() if title.startswith("Welch's test")]
    compute = [rows for title, rows in tables.items() if title.startswith("2 to 4 times less compute?")]
    assert sum(map(len, welch)) == len(record.results["noise"])
    assert sum(map(len, compute)) == len(record.results["compute"]) and len(rest) == 4
    answer = record.as_json()["answer"]
    assert f"of {len(audit)} quantities" in answer
    assert f"{sum(row[7] == 'yes' for row in welch[0])} of {len(welch[0])} rows" in answer


@pytest.mark.parametrize("folder", [ROOT, SCRIPT.parent])
def test_runs_from_the_root_and_from_its_folder_without_torch(tmp_path, folder):
    probe = (
        "import runpy, sys; sys.argv = ['t', '--results', sys.argv[1]]\n"
        f"try: runpy.run_path({str(SCRIPT.relative_to(folder))!r}, run_name='__main__')\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "heavy = {'torch', 'matplotlib', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(tmp_path)], cwd=folder, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("== 1. TPUv3-core-days")
