"""The four pages, cell by cell."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from papers.comparisons.comparison import Comparison
from papers.comparisons.models import page_graph
from papers.comparisons.pages import AS_PUBLISHED, PAIRS, PUBLISHED_COST, TAGLINES, cells, pair_of
from papers.comparisons.text import as_markdown
from shared.graph.cost import train_cost
from shared.graph.measure import measure
from shared.published import load
from shared.verdict import judge


def reports(pair: str) -> tuple[Comparison, Comparison]:
    graphs = [page_graph(name) for name in PAIRS[pair]]
    published = Comparison(tuple(measure(graph, AS_PUBLISHED) for graph in graphs), PUBLISHED_COST)
    return published, Comparison(tuple(measure(graph) for graph in graphs))


@pytest.mark.parametrize(
    ("pair", "count", "rows"), list(zip(PAIRS, (150, 144, 209, 151), (15, 14, 25, 17), strict=True))
)
def test_every_printed_cell_is_equal(pair: str, count: int, rows: int) -> None:
    printed, found = load("comparisons", pair).numbers, cells(reports(pair)[0])
    assert len(printed) == count
    assert len([id for id in printed if id.endswith("/status")]) == rows
    wrong = [
        verdict.line() for id, number in printed.items() if (verdict := judge(number, found.get(id))).verdict != "equal"
    ]
    assert wrong == []


def test_the_published_data_is_what_the_pages_print(shared_folder: Path) -> None:
    """Each row's name and type and each printed text stands on the page itself."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (shared_folder / "seeds").iterdir()}
    for pair in PAIRS:
        text = pages[pair]
        for id, number in load("comparisons", pair).numbers.items():
            if number.printed not in ("(blank)", "—") and not id.startswith(
                ("deltas/relative", "rows", "notes", "counts")
            ):
                assert number.printed.lstrip("+-").split(" (")[0] in text, (pair, id, number.printed)
            if id.startswith("notes"):
                assert number.printed in text


def test_the_markdown_is_the_page_but_for_its_links(shared_folder: Path) -> None:
    for pair in ("bert-base-vs-vit-b16", "gpt2-vs-bert-base"):
        ours = as_markdown(reports(pair)[0], tagline=TAGLINES[pair]).splitlines()
        page = (shared_folder / "seeds" / f"{pair}.md").read_text(encoding="utf-8").splitlines()
        changes = [line for line in difflib.unified_diff(page, ours, n=0, lineterm="") if line[:1] in "+-"][2:]
        assert all(line[:1] == "-" for line in changes)
        left_out = [line[1:] for line in changes if line[1:]]
        graphs = [f"- {model.name}" for model in reports(pair)[0].models]
        expected = ["Source", "## Graphs", *graphs, "- Check a graph of your own"]
        assert [line.split(":")[0] for line in left_out] == expected


@pytest.mark.parametrize(
    ("name", "layers", "parameters", "rows", "macs", "cost"),
    [
        ("bert-base", 9, 31_120_896, 31_120_896, 4_129_554_432, 0.19677),
        ("vit-b16", 11, 8_449_000, 7_680_000, 1_683_806_208, 0.10523),
        ("gpt2", 10, 84_331_345, 45_683_712, 47_581_495_296, 1.82304),
        ("t5-small", 20, 56_734_592, 40_252_928, 4_406_116_352, 0.20712),
        ("resnet-block", 7, 74_112, 1_280, 75_890_688, 0.04505),
    ],
)
def test_totals_at_full_precision(name, layers, parameters, rows, macs, cost) -> None:
    model = measure(page_graph(name), AS_PUBLISHED)
    assert (len(model.body), model.parameters, model.total("row"), model.macs) == (layers, parameters, rows, macs)
    assert train_cost(model, PUBLISHED_COST).dollars == pytest.approx(cost, abs=5e-6)


@pytest.mark.parametrize(
    ("name", "parameters", "macs"),
    [
        ("bert-base", 31_120_896 + 512 * 768, 4_129_554_432 + 512 * 512 * 768 - 3 * 2 * 512 * 768),
        ("vit-b16", 8_449_000 + 197 * 768, 1_683_806_208 + 196 * 196 * 768 - 3 * 2 * 196 * 768),
        ("gpt2", 84_331_345 + 1024 * 768 + 4 * 768, 47_581_495_296 + 1024 * 1024 * 768 - 3 * 2 * 1024 * 768),
        ("t5-small", 56_734_592 - 32128 * 512 + 4 * 512, None),
        ("resnet-block", 74_112, 2 * 1024 * 64 * 64 * 9),
    ],
)
def test_the_right_count_differs_by_what_the_pages_leave_out(name, parameters, macs) -> None:
    model = measure(page_graph(name))
    assert model.parameters == parameters == model.total("row")
    if macs is not None:
        assert model.macs == macs


def test_a_pair_is_the_pages_only_if_its_graphs_are(shared_folder: Path) -> None:
    from shared.graph.read import read

    graphs = [page_graph(name) for name in PAIRS["bert-base-vs-t5-small"]]
    assert pair_of(*graphs) == "bert-base-vs-t5-small"
    assert pair_of(*graphs[::-1]) is None
    theirs = [read(shared_folder / "graphs" / f"{name}.json") for name in ("bert-base", "t5-small")]
    assert pair_of(*theirs) == "bert-base-vs-t5-small"
    assert pair_of(theirs[0], read(shared_folder / "graphs" / "zoo" / "t5-small.json")) is None
