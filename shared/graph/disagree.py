"""Where two conventions count one graph differently, and which rule is behind it."""

from __future__ import annotations

from dataclasses import dataclass

from shared.graph.convention import steps
from shared.graph.layers import KINDS, Mismatch, Missing, Place
from shared.graph.measure import Layer, Model
from shared.graph.read import Graph

COUNTS = {"parameters": "parameters", "row": "parameters of the row", "macs": "multiply-accumulates"}


@dataclass(frozen=True)
class Disagreement:
    """One count of a layer (or of `times` equal layers) under two conventions, with the rules that differ on it."""

    layer: str
    type: str
    what: str
    ours: int | None
    theirs: int | None
    reasons: tuple[str, ...]
    times: int = 1


def disagreements(graph: Graph, ours: Model, theirs: Model) -> list[Disagreement]:
    """Layer by layer, equal ones together. `ours` and `theirs` measure the same graph."""
    shapes = {layer.id: layer.output for layer in ours.layers}
    other = {layer.id: layer for layer in theirs.layers}
    found: dict[tuple, Disagreement] = {}
    for layer in ours.layers:
        for what in COUNTS:
            first, second = getattr(layer, what), getattr(other[layer.id], what)
            if first == second:
                continue
            if what == "row" and (layer.parameters, other[layer.id].parameters) == (first, second):
                continue  # said already
            key = (layer.type, what, first, second)
            if key in found:
                found[key] = _again(found[key])
                continue
            reasons = tuple(_reasons(graph, layer, what, ours, theirs, shapes))
            found[key] = Disagreement(layer.name, layer.type, what, first, second, reasons)
    return list(found.values())


def _again(known: Disagreement) -> Disagreement:
    return Disagreement(known.layer, known.type, known.what, known.ours, known.theirs, known.reasons, known.times + 1)


def _reasons(graph: Graph, layer: Layer, what: str, ours: Model, theirs: Model, shapes: dict) -> list[str]:
    """The rules that alone change this count when they are taken from the other convention."""
    kind, node = KINDS.get(layer.type), graph.node(layer.id)
    if kind is None:
        return []
    inputs = [shapes[id] for id in graph.parents[layer.id] if id in shapes and shapes[id] is not None]

    def count(convention, declared: bool) -> int:
        place = Place(node, [] if declared else inputs, convention, graph.source, declared)
        try:
            return getattr(kind, "macs" if what == "macs" else "parameters")(place)
        except (Missing, Mismatch):
            return 0

    base = count(ours.convention, False)
    found = []
    for words, convention in steps(ours.convention, theirs.convention):
        declared = what == "row" and convention.declared_rows
        if count(convention, declared) != base:
            found.append(words)
    if what != "macs" and layer.parameters not in (None, base):
        found.append("weights that the graph declares tied are counted again for each layer that uses them")
    return found
