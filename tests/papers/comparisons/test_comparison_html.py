"""The comparison page: escaped, self-contained, and as a browser shows it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from papers.comparisons import bars, drawing
from papers.comparisons.comparison import Comparison
from papers.comparisons.models import find, page_graph
from papers.comparisons.pages import both_counts
from papers.comparisons.text import as_markdown
from papers.comparisons.webpage import as_html
from shared.graph.measure import measure
from shared.graph.read import parse
from shared.paths import ROOT

NASTY = '<script>alert(1)</script><img src=x onerror="alert(2)">'


def load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


graphs = load("graphs_of_shared_tests", ROOT / "tests" / "shared" / "graphs.py")


def page(*names: str) -> str:
    return as_html(Comparison(tuple(measure(page_graph(name)) for name in names)))


def nasty() -> str:
    data = json.loads(json.dumps(graphs.block()))
    data["name"] = NASTY
    for node in data["components"]:
        node["name"] = NASTY
    data["components"][4]["type"] = NASTY
    model = measure(parse(data, NASTY))
    return as_html(Comparison((model, model)))


def test_names_with_markup_in_them_stay_text() -> None:
    text = nasty()
    assert "<script" not in text and "<img" not in text
    assert "&lt;script&gt;alert(1)" in text
    markdown = as_markdown(Comparison((measure(parse(graphs.block() | {"name": NASTY + "|`x`"}, "f")),) * 2))
    assert "<script" not in markdown and "\\|" in markdown


def test_the_page_is_one_file_without_scripts_or_requests() -> None:
    text = page("bert-base", "t5-small")
    assert "<script" not in text
    assert re.findall(r'(?:src|href)="', text) == []
    assert "default-src 'none'" in text
    assert text.count("<svg") == 3  # the bars, and both graphs


def test_every_row_has_its_status_as_a_word_and_a_colour() -> None:
    text = page("bert-base", "t5-small")
    rows = re.findall(r'<tr class="(\w+)">\s*<td class="number">.*?</b> (\w+)</span>', text, re.S)
    assert len(rows) == 25
    assert all(colour == word for colour, word in rows)
    assert {word for _, word in rows} == {"added", "removed", "changed", "same"}


def test_repetitions_are_in_the_page_but_folded() -> None:
    models = tuple(measure(parse(graphs.block(blocks=blocks), "f")) for blocks in (3, 5))
    text = as_html(Comparison(models))
    assert "× 3</b> rows 15 to 20 come 3 times, to row 32" in re.sub(r"\s+", " ", text)
    assert len(re.findall(r'<tr class="\w+ again">', text)) == 6 * (5 - 2)


def test_the_drawing_has_a_box_a_layer_and_its_edges() -> None:
    svg = page("gpt2", "gpt2").split("<svg")[2].split("</svg>")[0]
    assert svg.count("<rect") == 12
    assert svg.count('class="edge') == 13
    assert "bracket" not in svg
    folded = as_html(Comparison((measure(parse(graphs.block(blocks=4), "f")),) * 2)).split("<svg")[2]
    assert "× 4</text>" in folded


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(tmp_path: Path, show, axe, scheme: str) -> None:
    sources = [find(f"graph:{name}") for name in ("bert-base", "t5-small")]
    correct, published = both_counts(sources)
    found = {"real_models": [{"the real model": "BERT Base", "parameters": "109,482,240"}]}
    texts = {"pair": page("bert-base", "t5-small"), "published": as_html(correct, found, published=published)}
    for name, text in texts.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
        assert axe(show(tmp_path / f"{name}.html", color_scheme=scheme)) == []


def test_the_figures_for_a_paper_show_what_the_page_shows() -> None:
    correct, _ = both_counts([find(f"graph:{name}") for name in ("resnet-block", "vit-b16")])
    drawn = bars.figure(correct)
    (axes,) = drawn.axes
    assert axes.get_xscale() == "log" and axes.get_xlim()[0] == 1
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ResNet Block", "ViT-B/16"]
    graphs = drawing.figure(correct)
    names = {text.get_text() for axes in graphs.axes for text in axes.texts}
    assert {layer.name for model in correct.models for layer in model.layers} <= names
    assert "Conv2D_1 (removed)" in drawing.in_words(correct) and "patch_embed (added)" in drawing.in_words(correct)


def test_the_page_in_a_browser(tmp_path: Path, show) -> None:
    files = {"pair": page("bert-base", "t5-small"), "nasty": nasty()}
    models = tuple(measure(parse(graphs.block(blocks=blocks), "f")) for blocks in (3, 5))
    files["folded"] = as_html(Comparison(models))
    for name, text in files.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    for name in files:
        for width in (360, 1280):
            scheme = "dark" if width == 360 else "light"
            shown = show(tmp_path / f"{name}.html", viewport={"width": width, "height": 800}, color_scheme=scheme)
            assert shown.errors == []
            assert shown.requests == [(tmp_path / f"{name}.html").as_uri()]
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
    hidden = "[...document.querySelectorAll('tr.again')].filter(e => e.offsetParent !== null).length"
    shown = show(tmp_path / "folded.html")
    assert shown.evaluate(hidden) == 0
    shown.click("#every")
    assert shown.evaluate(hidden) == 18
    background = "getComputedStyle(document.body.parentElement).backgroundColor"
    assert shown.evaluate(background) == "rgb(250, 249, 246)"
    assert show(tmp_path / "folded.html", color_scheme="dark").evaluate(background) == "rgb(21, 23, 26)"
