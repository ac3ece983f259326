"""What is true stands first: the real models' counts, and that a page's graph is one block."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from papers.comparisons import bars
from papers.comparisons.building import build
from papers.comparisons.comparison import compare
from papers.comparisons.models import BUILTINS, GRAPHS, find, page_graph, page_names
from papers.comparisons.pages import PAIRS, both_counts
from papers.comparisons.text import as_markdown, as_text
from papers.comparisons.webpage import as_html
from papers.comparisons.whole import part, table, whole_of
from shared import specs
from shared.graph.measure import measure
from shared.graph.read import loads, parse

PARTS = {
    "bert-base": "one block of twelve",
    "vit-b16": "one block of twelve",
    "gpt2": "one block of twelve",
    "t5-small": "one encoder block of six and one decoder block of six",
    "resnet-block": "one residual block of eight",
}


@pytest.mark.parametrize("name", PARTS)
def test_the_table_of_real_models_is_what_counting_gives(name: str) -> None:
    whole = table()[name]
    model = find(whole.model).measure()
    assert (whole.parameters, whole.macs) == (model.parameters, model.macs)
    assert [tuple(shape) for shape in whole.inputs] == [layer.output for layer in model.inputs]
    spec = specs.parse(whole.model)
    how = BUILTINS[spec.name][1:] if spec.kind == "builtin" else None
    module = build(spec, how, None, None).module
    if name == "t5-small":
        blocks = [module.config.num_layers, module.config.num_decoder_layers]
    elif name == "resnet-block":
        blocks = [sum(type(one).__name__ == "BasicBlock" for one in module.modules())]
    else:
        blocks = [module.config.num_hidden_layers]
    assert list(whole.blocks.values()) == blocks
    assert whole.part == PARTS[name]


def test_every_graph_of_the_pages_has_its_real_model() -> None:
    assert set(table()) == set(page_names()) == set(PARTS)
    assert all(whole_of(page_graph(name)).model for name in PARTS)


def changed(name: str, **more) -> dict:
    data = json.loads((GRAPHS / f"{name}.json").read_text(encoding="utf-8"))
    return data | more


def test_only_the_pages_own_graph_is_known_to_be_a_block() -> None:
    same = loads(json.dumps(changed("gpt2")), "elsewhere.json")
    assert whole_of(same).name == "GPT-2"
    data = changed("gpt2")
    data["components"][4]["params"]["numHeads"] = 6
    other = parse(data, "f")
    assert whole_of(other) is None and part(other, measure(other)) is None


@pytest.mark.parametrize(("official", "said"), [(85_120_849, False), (86_000_000, False), (170_241_698, True)])
def test_a_files_official_count_is_held_against_the_graph(official: int, said: bool) -> None:
    data = changed("gpt2", id="mine", realParamCount=official)
    graph = parse(data, "f")
    found = part(graph, measure(graph))
    assert (found is not None) == said
    if said:
        assert found.words == "GPT-2: 50% of the official count"
        assert f"{official:,}" in found.banner and "85,120,849" in found.banner


@pytest.mark.parametrize("pair", PAIRS)
def test_nothing_is_said_of_a_block_before_the_banner(pair: str) -> None:
    sources = [find(f"graph:{name}") for name in PAIRS[pair]]
    correct, published = both_counts(sources)
    real = [
        dict(zip(("a", "b"), whole_of(source.graph).cells(published.assumed)[:2], strict=True)) for source in sources
    ]
    text = as_html(correct, {"real_models": real}, published=published)
    shown = re.sub(r"\s+", " ", text[text.index("<body>") :])
    for name, model in zip(PAIRS[pair], published.models, strict=True):
        banner = f"{model.name}: the published page describes {PARTS[name]}. It has {model.parameters:,} parameters"
        assert 0 < shown.index(banner) < min(map(shown.index, ("T4 16GB", "Est. train cost", "fits")))
        assert shown.index(f"{table()[name].parameters:,}") < shown.index("The published page, reproduced")
    first = [shown.index(words) for words in ("The real models", "The published page, reproduced", "What contradicts")]
    assert first == sorted(first)
    assert shown.index("What contradicts the page") < shown.index("The same graphs, counted correctly")


def test_right_about_its_own_model_is_only_quoted_from_the_page() -> None:
    correct, published = both_counts([find("graph:bert-base"), find("graph:vit-b16")])
    assert "right about" in as_text(published) and "right about" not in as_text(correct)
    assert "not of the real model (BERT Base: one block of twelve; ViT-B/16: one block of twelve)" in as_text(correct)


def test_markdown_begins_with_the_banner_and_the_page_follows_as_it_is() -> None:
    _, published = both_counts([find("graph:bert-base"), find("graph:t5-small")])
    lines = as_markdown(published).splitlines()
    assert [line[:2] for line in lines[:2]] == ["> ", "> "]
    bare = compare(*published.models, published.assumed)
    assert lines[3:] == as_markdown(bare).splitlines()


def lengths(svg: str, side: int) -> list[float]:
    return [float(one) for one in re.findall(rf'class="side{side}" x="0" y="\d+" width="([\d.]+)%"', svg)]


def test_bars_are_logarithmic_with_an_axis_so_that_small_layers_are_seen() -> None:
    correct, _ = both_counts([find("graph:bert-base"), find("graph:t5-small")])
    svg = bars.draw(correct)
    left = lengths(svg, 1)
    layers = [row.left.parameters for row in correct.rows if row.left and row.left.parameters]
    assert len(left) == len(layers)
    longest, smallest = layers.index(max(layers)), layers.index(min(layers))
    assert left[longest] == max(left) and left[smallest] == min(left) > 0.3 * max(left)
    assert ">1.0M</text>" in svg and svg.count('class="grid"') == 9
    assert "logarithmic axis" in bars.caption(correct) and "BERT Base and T5 Small" in bars.caption(correct)


def test_bars_fold_repeated_blocks_and_say_what_they_leave_out(tmp_path: Path) -> None:
    nodes = [{"id": "i", "type": "input", "inputShape": [8]}]
    nodes += [
        {"id": f"l{at}", "type": "linear", "name": f"<l{at}>", "params": {"inFeatures": 8, "outFeatures": 8}}
        for at in range(70)
    ]
    edges = [{"from": a["id"], "to": b["id"]} for a, b in itertools.pairwise(nodes)]
    model = measure(parse({"id": "a", "components": nodes, "connections": edges}, "f"))
    folded = compare(model, model)
    assert "l0&gt; × 70" in bars.draw(folded) and "<l0>" not in bars.draw(folded)
    for at, node in enumerate(nodes[1:]):
        node["params"]["outFeatures"] = nodes[1:][at]["params"]["outFeatures"] = 8 + at
        node["params"]["inFeatures"] = 8 if at == 0 else 7 + at
    long = measure(parse({"id": "a", "components": nodes, "connections": edges}, "f"))
    assert "the first 60 rows, 10 more are in the table" in bars.caption(compare(long, long))
    empty = measure(parse({"id": "a", "components": [{"id": "i", "type": "relu"}], "connections": []}, "f"))
    assert bars.draw(compare(empty, empty)) == ""
