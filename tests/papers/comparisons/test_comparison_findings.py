"""`findings.json`: every number in it comes out of the graphs, in the order in which it stands there."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from papers.comparisons.building import build
from papers.comparisons.comparison import Comparison
from papers.comparisons.lacking import fitting, missing
from papers.comparisons.models import BUILTINS, find
from papers.comparisons.pages import FINDINGS, PAIRS, both_counts, cells, findings
from shared import specs
from shared.graph.align import changed_fields
from shared.graph.cost import fits, gigabytes, memory, short
from shared.graph.measure import Layer, Model, measure
from shared.graph.read import parse, read

KNOWN = json.loads(FINDINGS.read_text(encoding="utf-8"))
# a number with its sign or unit; digits inside a name (GPT-2, ViT-B/16, Conv2D_1, 16GB) are none
NUMBER = re.compile(r"(?<![\w./-])[+-]?\d[\d,]*(?:\.\d+)?[KMB]?(?!\w)")


@cache
def counts(pair: str) -> tuple[Comparison, Comparison]:
    return both_counts([find(f"graph:{name}") for name in PAIRS[pair]])


@cache
def whole(name: str) -> tuple[int, int]:
    """Parameters and blocks of the whole model, as its library builds it."""
    module = build(specs.parse(name), BUILTINS[name][1:], None, None).module
    return sum(one.numel() for one in module.parameters()), module.config.num_hidden_layers


class Graph:
    """One graph counted both ways."""

    def __init__(self, name: str):
        self.name = name
        pair, names = next((pair, names) for pair, names in PAIRS.items() if name in names)
        correct, page = (compared.models[names.index(name)] for compared in counts(pair))
        self.correct: Model = correct
        self.page: Model = page

    def layer(self, name: str) -> tuple[Layer, Layer]:
        return next(both for both in zip(self.correct.layers, self.page.layers, strict=True) if both[0].name == name)

    # each of these: the numbers of one finding, in its order

    def one_block(self) -> list:
        parameters, blocks = whole(self.name)
        return [short(self.page.parameters), blocks, self.page.parameters, parameters]

    def rows(self) -> list:
        rows, total = self.page.total("row"), self.page.parameters
        lacking = [layer.parameters - layer.row for layer in self.page.layers if layer.row != layer.parameters]
        assert sum(lacking) == total - rows
        return [short(total), short(rows), total, rows, total - rows, *lacking]

    def positions(self, name: str) -> list:
        correct, page = self.layer(name)
        assert page.parameters == 0
        length, width = page.settings["maxLen"], correct.output[-1]
        assert length * width == correct.parameters
        return [length, width, correct.parameters]

    def biases(self, name: str) -> list:
        correct, page = self.layer(name)
        missing = correct.parameters - page.parameters
        return [short(page.parameters), missing // 4, page.parameters, missing, correct.parameters]

    def shared_table(self, name: str) -> list:
        correct, page = self.layer(name)
        assert correct.parameters == 0
        total = self.page.parameters
        return [short(page.parameters), total, page.parameters, total - page.parameters]

    def cost(self) -> list:
        attention = [
            (correct.macs, page.macs)
            for correct, page in zip(self.correct.layers, self.page.layers, strict=True)
            if "ttention" in correct.type
        ]
        assert attention
        return [self.page.macs, sum(correct - page for correct, page in attention), self.correct.macs]

    def no_residual(self) -> list:
        types = [layer.type for layer in self.page.layers]
        assert "multiHeadAttention" in types and "feedForward" in types and "add" not in types
        return []

    def convolution(self, name: str) -> list:
        correct, page = self.layer(name)
        out, kernel, channels = page.settings["outChannels"], page.settings["kernelSize"], correct.output[-3]
        assert "inChannels" not in page.settings
        assert correct.parameters == out * channels * kernel * kernel + out
        printed = [page.row, out, 1, kernel, kernel, out, page.row]
        return [*printed, out, channels, kernel, kernel, out, correct.parameters]

    def head(self) -> list:
        tokens, classes = self.page.outputs[0].output
        patches = next(layer for layer in self.page.layers if layer.type == "patchEmbed").output[0]
        assert tokens == patches
        return [tokens, classes, tokens, classes]


GRAPHS = {
    "bert-base": [("one_block",), ("positions", "pos_embed"), ("cost",), ("no_residual",)],
    "vit-b16": [("one_block",), ("rows",), ("positions", "pos_embed"), ("cost",), ("head",)],
    "gpt2": [("one_block",), ("rows",), ("positions", "pos_embed"), ("biases", "attn"), ("cost",)],
    "t5-small": [("one_block",), ("rows",), ("shared_table", "dec_embed"), ("biases", "dec_self_attn"), ("cost",)],
    "resnet-block": [("rows",), ("convolution", "Conv2D_1"), ("convolution", "Conv2D_2")],
}


def headline(pair: str) -> list:
    """The difference that the page prints, of one block each, and that of the whole models."""
    left, right = counts(pair)[1].models
    (first, _), (second, _) = (whole(name) for name in PAIRS[pair])
    difference = right.parameters - left.parameters
    return [short(abs(difference)), f"{difference:+,}", second, first, f"{second - first:+,}"]


def batch_axis(pair: str) -> list:
    text, image = (model.inputs[0].output for model in counts(pair)[1].models)
    assert text[0] == 1 and len(image) == 3
    return [*text, *image, *text, text[0], *image]


def key_names(pair: str) -> list:
    """The only row of the page that differs in the names of its settings alone."""
    rows = enumerate(counts(pair)[1].rows, 1)
    ((number, row),) = [
        (n, r) for n, r in rows if r.changed and r.left and r.right and not changed_fields(r.left, r.right)
    ]
    left, right = row.left.settings, row.right.settings
    assert list(left.values()) == list(right.values())
    return [number, *left.values(), *right.values()]


def too_large(pair: str) -> list:
    """GPT-2 with the activations of the batch that the pages assume, in decimal GB, and the batch that would fit."""
    correct, page = counts(pair)
    plain = memory(page.models[0], page.assumed)
    # the pages' parameters with the correct count's activations
    need = 4 * plain.weights + memory(correct.models[0], page.assumed).activations
    largest = (16e9 / page.assumed.factor - 4 * plain.weights) // memory(correct.models[0], page.assumed).per_sample
    assert fits(page.models[0], page.assumed)[0].fits and need * page.assumed.factor > 16e9
    sizes = [4 * plain.weights, need - 4 * plain.weights]
    words = [gigabytes(plain.training), page.assumed.batch, *map(gigabytes, sizes), page.assumed.factor]
    words += [gigabytes(need * page.assumed.factor), int(largest)]
    return [str(word).removesuffix(" GB") for word in words]


def added_and_removed(pair: str) -> list:
    page = counts(pair)[1]
    added, removed = page.counts["added"], page.counts["removed"]
    first, second = (len(model.body) for model in page.models)
    ends = [f"{added - removed:+d}", second, first, f"{second - first:+d}"]
    assert ends[0] != ends[-1]
    return [added, removed, first, second, added, removed, *ends, *(len(model.inputs) for model in page.models)]


def second_input(pair: str) -> list:
    correct, page = counts(pair)
    assert page.same_input and not correct.same_input
    return [size for model in correct.models for layer in model.inputs for size in layer.output]


PAGES = {
    "bert-base-vs-vit-b16": [headline, batch_axis, key_names],
    "gpt2-vs-bert-base": [headline, too_large, key_names],
    "bert-base-vs-t5-small": [headline, added_and_removed, second_input],
    "resnet-block-vs-vit-b16": [],
}


def assert_numbers(finding: dict[str, str], computed: list) -> None:
    printed = NUMBER.findall(f"{finding['claim']} | {finding['arithmetic']}")
    assert [one.replace(",", "") for one in printed] == [str(one).replace(",", "") for one in computed]


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, checks in GRAPHS.items() for at in range(len(checks))])
def test_a_graphs_finding_has_the_graphs_numbers(name: str, at: int) -> None:
    assert len(KNOWN["graphs"][name]) == len(GRAPHS[name])
    check, *arguments = GRAPHS[name][at]
    assert_numbers(KNOWN["graphs"][name][at], getattr(Graph(name), check)(*arguments))


@pytest.mark.parametrize(("pair", "at"), [(pair, at) for pair, checks in PAGES.items() for at in range(len(checks))])
def test_a_pages_finding_has_the_graphs_numbers(pair: str, at: int) -> None:
    assert len(KNOWN["pages"][pair]) == len(PAGES[pair])
    assert_numbers(KNOWN["pages"][pair][at], PAGES[pair][at](pair))


def test_coincidence_is_said_where_the_printed_difference_is_the_true_one() -> None:
    for pair in ("bert-base-vs-vit-b16", "gpt2-vs-bert-base", "bert-base-vs-t5-small"):
        printed, _, _, _, true = headline(pair)
        said = "coincidence" in KNOWN["pages"][pair][0]["arithmetic"]
        assert said == (printed == short(abs(int(true.replace(",", "")))))


@pytest.mark.parametrize("pair", PAIRS)
def test_a_claim_is_what_the_page_prints(pair: str) -> None:
    """Every short number, every layer and the headline of a claim stand in the page's cells."""
    printed = set(cells(counts(pair)[1]).values())
    for finding in findings(pair):
        where, claim = finding["where"], finding["claim"]
        if layer := re.fullmatch(r"Layer by layer, (\w+): Params", where):
            assert layer[1] in printed and f"{layer[1]} has " in claim
        elif where == "headline":
            assert any(cell.startswith(claim) for cell in printed)
        elif where == "Sides: Parameters":
            assert re.search(r"has (\S+) parameters", claim)[1] in printed


def chain(*layers: tuple[str, dict]) -> dict:
    parts = [("input", {"shape": [1, 4]}), *layers]
    components = [{"id": str(at), "type": type, "params": settings} for at, (type, settings) in enumerate(parts)]
    return {
        "components": components,
        "connections": [{"from": str(at), "to": str(at + 1)} for at in range(len(layers))],
    }


def test_what_fills_a_gap_is_a_candidate_and_all_of_them_are_named() -> None:
    """A reason is never given: several sets of candidates may fit, and each is named."""
    width, rows, blocks = 16, 100, 4
    attention = [("layerNorm", {}), ("multiHeadAttention", {"embedDim": width, "numHeads": 2})]
    data = chain(("embedding", {"vocabSize": rows, "embeddingDim": width}), *attention * blocks)
    bare = measure(parse(data, "f")).parameters
    for more, named in (
        (rows * width, "an output layer of its own: 100 x 16"),
        (512 * width, "learned positions: 512 x 16"),
        (blocks * 1024**2, "causal masks stored with the weights: 4 attention layers x 1,024^2"),
        (rows * width + 512 * width, "learned positions: 512 x 16"),
    ):
        said = missing(measure(parse(data, "f")), bare + more)
        assert named in said and said.startswith("the reason is not known; what would fill the gap: ")
    assert missing(measure(parse(data, "f")), bare * 7 + 12_345) == "no reason is known"
    experts = {"embedDim": 16, "numExperts": 64, "expertDim": 8, "topK": 2}
    data = chain(("embedding", {"vocabSize": 100, "embeddingDim": 16}), ("moeLayer", experts))
    model = measure(parse(data, "f"))
    # one always-on expert is as large as the scales of 64 would be at one each 64; both sizes are tried
    assert "always-on expert in each of 1 expert layers" in missing(model, model.parameters + 3 * 16 * 8)
    assert "one for each 32 of 24,576 expert weights (768)" in missing(model, model.parameters + 768)
    several = fitting(model, model.parameters + 768)
    assert all(abs(sum(one.parameters for one in some) - 768) <= 0.002 * (model.parameters + 768) for some in several)


def test_candidates_of_the_zoo_fill_the_gaps(shared_folder: Path) -> None:
    for name in ("gpt-oss-120b", "gpt2-small", "kimi-k2.6", "llama-4-scout", "pythia-1.4b"):
        model = measure(read(shared_folder / "graphs" / "zoo" / f"{name}.json"))
        assert fitting(model, model.official_parameters or 0)
