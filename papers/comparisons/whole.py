"""What is true of a graph that is only a part of a model: the real model's counts, and a banner that says which part.

Two kinds are known. The graphs of the comparison pages hold one block of six, eight or twelve; their real models were
counted once (`whole.json`), because building them takes torch. And a graph file may carry its model's official count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from papers.comparisons.models import page_graph, page_names
from shared.graph.cost import Assumptions, dollars, gigabytes, memory, train_cost
from shared.graph.measure import Layer, Model
from shared.graph.place import text
from shared.graph.read import Graph
from shared.specs import Spec, parse

TABLE = Path(__file__).parent / "whole.json"
TOLERANCE = 0.02  # an official count is met within 2 %
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
COLUMNS = ["the real model", "parameters", "MACs", "at input", "weights", "to train, before activations", "train cost"]
REAL_NOTE = (
    "Counted on the modules that their libraries build. Memory in full precision; training adds the gradients and "
    "Adam's two moments. The cost is under the assumptions of the comparison."
)


@dataclass(frozen=True)
class Whole:
    """A real model. `model` is what `compare.py` takes; blocks: how many of each kind, of which the graph has one."""

    model: str
    name: str
    parameters: int
    macs: int
    inputs: list[list[int]]
    blocks: dict[str, int]

    @property
    def part(self) -> str:
        """`one block of twelve`"""
        return " and ".join(f"one {kind} of {WORDS[count]}" for kind, count in self.blocks.items())

    def cells(self, assumed: Assumptions) -> list[str]:
        """A row below `COLUMNS`. Memory and cost follow from the two counts; activations are left out."""
        layer = Layer("all", self.name, "all", {}, None, self.parameters, self.parameters, self.macs)
        model = Model(self.name, self.model, [layer])
        need = memory(model, assumed)
        shapes = " and ".join(text(tuple(shape)) for shape in self.inputs)
        sizes = [gigabytes(need.weights), gigabytes(need.weights + need.gradients + need.adam)]
        counts = [f"{self.parameters:,}", f"{self.macs:,}"]
        return [self.name, *counts, shapes, *sizes, dollars(train_cost(model, assumed).dollars)]


@cache
def table() -> dict[str, Whole]:
    """The real models by the names of the pages' graphs."""
    return {name: Whole(**one) for name, one in json.loads(TABLE.read_text(encoding="utf-8"))["models"].items()}


def page_of(spec: Spec) -> str | None:
    """The pages' graph whose real model a specification names; None for any other model."""
    return next((graph for graph, whole in table().items() if parse(whole.model) == spec), None)


def content(graph: Graph) -> tuple:
    """What makes a graph the same as another: edges, and each node's id, type, name and settings but for a tie (the
    pages tie nothing)."""
    return graph.edges, [
        (node.id, node.type, node.name, {key: value for key, value in node.settings.items() if key != "tied"})
        for node in graph.nodes
    ]


def whole_of(graph: Graph | None) -> Whole | None:
    """The real model behind a graph of the pages; None for any other graph."""
    if graph is None or graph.id not in page_names() or content(graph) != content(page_graph(graph.id)):
        return None
    return table()[graph.id]


@dataclass(frozen=True)
class Part:
    """One side that is not the whole model: `words` to stand beside an answer about it, `banner` for the beginning."""

    words: str
    banner: str


def part(graph: Graph | None, model: Model) -> Part | None:
    """What `graph`, measured as `model`, leaves out; None where nothing is known to be left out."""
    whole = whole_of(graph)
    if whole is not None:
        real = "the real model" if whole.name == model.name else whole.name
        banner = (
            f"{model.name}: the published page describes {whole.part}. It has {model.parameters:,} parameters, "
            f"{real} has {whole.parameters:,}."
        )
        return Part(f"{model.name}: {whole.part}", banner)
    official = model.official_parameters
    if not official or abs(model.parameters / official - 1) <= TOLERANCE:
        return None
    share = f"{model.parameters / official:.0%} of the official count"
    return Part(
        f"{model.name}: {share}",
        f"{model.name}: the graph has {model.parameters:,} parameters, its file says that the real model has "
        f"{official:,}.",
    )
