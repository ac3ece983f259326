"""`findings.json`: every number in it comes out of the graphs, in the order in which it stands there."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from papers.comparisons.compare import missing
from papers.comparisons.comparison import Comparison
from papers.comparisons.models import build, find
from papers.comparisons.pages import FINDINGS, PAIRS, both_counts, cells, findings
from shared import specs
from shared.graph.align import changed_fields
from shared.graph.cost import fits, gigabytes, memory, short
from shared.graph.measure import Layer, Model, measure
from shared.graph.read import read

KNOWN = json.loads(FINDINGS.read_text(encoding="utf-8"))
# a number with its sign or unit; digits inside a name (GPT-2, ViT-B/16, Conv2D_1, 16GB) are none
NUMBER = re.compile(r"(?<![\w./-])[+-]?\d[\d,]*(?:\.\d+)?[KMB]?(?!\w)")


@cache
def counts(pair: str) -> tuple[Comparison, Comparison]:
    return both_counts([find(f"graph:{name}") for name in PAIRS[pair]])


@cache
def whole(name: str) -> tuple[int, int]:
    """Parameters and blocks of the whole model, as its library builds it."""
    with torch.device("meta"):
        module, _ = build(specs.parse(name))
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


def test_findings_of_the_zoo_are_sizes_of_its_graphs(shared_folder: Path) -> None:
    """Each product in a sentence is its number, and its factors are settings of the graph."""
    for name, finding in KNOWN["zoo"].items():
        model = measure(read(shared_folder / "graphs" / "zoo" / f"{name}.json"))
        assert (model.parameters, model.official_parameters) == (finding["counted"], finding["official"])
        embedding = next(layer for layer in model.layers if layer.type == "embedding").settings
        experts = [layer.settings for layer in model.layers if layer.type in ("moeLayer", "sharedExpertMoE")]
        attention = sum("ttention" in layer.type or layer.type == "mla" for layer in model.layers)
        each = sum(3 * one["embedDim"] * one["expertDim"] for one in experts)
        all_of = sum(3 * one["embedDim"] * one["expertDim"] * one["numExperts"] for one in experts)
        length, width = embedding.get("maxSeqLen", 0), embedding["embeddingDim"]
        rows = embedding.get("vocabSize") or embedding.get("numEmbeddings")
        known = {
            f"learned positions: {length:,} x {width:,}, the graph has no position layer": length * width,
            f"causal masks stored with the weights: {attention} attention layers x {length:,}^2": attention * length**2,
            f"an output layer of its own: {rows:,} x {width:,}, the graph has none": rows * width,
            f"one always-on expert in each of {len(experts)} expert layers, the graph has none": each,
            f"scales of 4-bit experts: one for each 32 of {all_of:,} expert weights": all_of // 32,
        }
        for one in finding["missing"]:
            assert known[one["what"]] == one["parameters"]
        left = model.parameters + sum(one["parameters"] for one in finding["missing"]) - model.official_parameters
        assert abs(left) < 0.002 * model.official_parameters
        counts = model.parameters, model.official_parameters
        assert missing(finding, *counts).startswith(
            f"off by {left / counts[1]:+.2%} with {finding['missing'][0]['what']}"
        )
        assert missing(finding, counts[0] + 1, counts[1]) == "no reason is known"
