"""A graph measured: every layer's output shape, parameters, multiply-accumulates, and what it keeps for training.

    model = measure(read("vit-b16.json"))            # RIGHT
    model = measure(graph, a_publication's convention)

A `Model` is what the rest works on; `shared.graph.trace` makes one from a torch module.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention, steps
from shared.graph.kinds import KINDS, POSITION_TYPES
from shared.graph.place import Mismatch, Missing, Place, Shape
from shared.graph.read import STICKY, Graph, Node
from shared.text import quoted

ENDS = frozenset({"input", "output"})
LARGEST_COUNT = 10**30  # of anything in one layer: sums of them are still floats


@dataclass
class Layer:
    """One layer in topological order. Counts are for one declared input; None means that they are not known.

    parameters  trained numbers, each counted once (0 where another layer owns the weights)
    row         the parameters that a table of single layers prints (a convention may print less than it counts)
    macs        multiply-accumulates of one forward pass
    kept        numbers kept for the backward pass
    problem     why the layer cannot take its input
    """

    id: str
    name: str
    type: str
    settings: dict[str, Any]
    output: Shape | None
    parameters: int | None
    row: int | None
    macs: int | None
    kept: int | None = None
    parents: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    known: bool = True


@dataclass
class Model:
    """A measured architecture."""

    name: str
    source: str
    layers: list[Layer]
    convention: Convention = RIGHT
    official_parameters: int | None = None

    @property
    def body(self) -> list[Layer]:
        """The layers that are no input, output or sticky note."""
        return [layer for layer in self.layers if layer.type not in ENDS]

    @property
    def inputs(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.type == "input"]

    @property
    def outputs(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.type == "output"]

    def total(self, count: str) -> int:
        """Sum of `parameters`, `row`, `macs` or `kept` over the layers where it is known (see `unknown`)."""
        return sum(getattr(layer, count) or 0 for layer in self.layers)

    def unknown(self, count: str) -> list[Layer]:
        """Layers whose count is not known: a total is then a lower bound."""
        return [layer for layer in self.layers if getattr(layer, count) is None]

    @property
    def parameters(self) -> int:
        return self.total("parameters")

    @property
    def macs(self) -> int:
        return self.total("macs")

    @property
    def memory_known(self) -> bool:
        """Whether every layer says what it holds: otherwise memory is a lower bound."""
        kept = self.convention.activations_in_memory and self.unknown("kept")
        return not kept and not self.unknown("parameters")

    @property
    def unknown_types(self) -> dict[str, int]:
        """Types that are in no table, with how many layers have them."""
        return dict(Counter(layer.type for layer in self.layers if not layer.known))

    @property
    def problems(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.problem]

    @property
    def passes_forward(self) -> bool | None:
        """True, False (see `problems`), or None: some shape is not known."""
        return {"yes": True, "no": False}.get(self.forward.partition(":")[0])

    @property
    def forward(self) -> str:
        """`yes`, `no: <first layer that cannot>`, or why it is not known."""
        if self.problems:
            return f"no: {self.problems[0].name} {self.problems[0].problem}"
        unknown = [layer for layer in self.layers if layer.output is None and layer.type not in POSITION_TYPES]
        return f"unknown: the shape after {unknown[0].name} is not known" if unknown else "yes"


def measure(graph: Graph, convention: Convention = RIGHT) -> Model:
    """Propagate shapes in topological order and count. Raises UserError for settings that no layer can have."""
    order = [node for node in graph.order(convention.file_order) if node.type not in STICKY]
    owners = _owners(order, graph) if convention.tied else {}
    shapes: dict[str, Shape | None] = {}
    known: dict[str, Layer] = {}
    layers = []
    for node in order:
        place = _place(graph, node, shapes, convention)
        key = repr((node.type, node.shape, node.settings, place.inputs))  # a repeated block is measured once
        if key not in known:
            known[key] = _measured(place)
        notes, parents = [*known[key].notes], [*graph.parents[node.id]]
        layer = replace(known[key], id=node.id, name=node.name, settings=node.settings, notes=notes, parents=parents)
        if node.id in owners:
            # what is left of a tied layer is a bias that it says it has
            biased = node.type == "linear" and place.flag("bias", False)
            layer.parameters = (place.given("outputs") or 0) if biased else 0
            layer.notes.append(f"its weights are those of {owners[node.id]}")
        elif node.settings.get("tied") is True and convention.tied:
            layer.notes.append("is declared tied, but no other layer has weights of its shape: counted")
        layer.row = layer.parameters
        if convention.declared_rows:
            layer.row = _count(_place(graph, node, {}, convention, declared=True), "parameters") or 0
        shapes[node.id] = layer.output
        layers.append(layer)
    return Model(graph.name, graph.source, layers, convention, graph.official_parameters)


def _place(
    graph: Graph, node: Node, shapes: dict[str, Shape | None], convention: Convention, declared: bool = False
) -> Place:
    """`node` with what comes in. A source of positions is no operand: it has no shape, and that is not a lack."""
    sources = {id for id in graph.parents[node.id] if not graph.parents[id] and graph.by_id[id].type in POSITION_TYPES}
    inputs = [] if declared else [shapes.get(id) for id in graph.parents[node.id] if id not in sources]
    return Place(KINDS.get(node.type), node, inputs, convention, graph.source, declared)


def _measured(place: Place) -> Layer:
    node = place.node
    layer = Layer(node.id, node.name, node.type, node.settings, None, None, None, None, notes=place.notes)
    if place.kind is None:
        layer.known = False
        layer.notes.append(f"unknown type {quoted(node.type)}: counted as unknown")
        return layer
    try:
        layer.output = place.out
    except Missing as missing:
        _lacks(place, missing, "the output shape is unknown")
    except Mismatch as mismatch:
        layer.problem, layer.output = str(mismatch), mismatch.shape
    layer.parameters = _count(place, "parameters", say=layer.output is not None)
    layer.macs = None if layer.problem else _count(place, "macs")
    if layer.output is not None and not layer.problem:
        layer.kept = _count(place, "kept")
    elif node.type in POSITION_TYPES:
        layer.macs = layer.kept = 0
    if max(layer.parameters or 0, layer.macs or 0, layer.kept or 0, prod(layer.output or ())) > LARGEST_COUNT:
        raise place.bad("its parameters, operations or outputs are more than 10^30; no model has that many")
    return layer


def _lacks(place: Place, missing: Missing, what: str) -> None:
    if place.inputs and str(missing) not in ("its input", "one of its inputs", "its second input"):
        place.note(f"its {missing} is not given: {what}")


def _count(place: Place, what: str, say: bool = False) -> int | None:
    """`parameters`, `macs` or `kept`; None: not known. `say`: note which setting is missing."""
    try:
        return getattr(place, what) if place.kind else None
    except Missing as missing:
        if say:
            _lacks(place, missing, f"its {what} are unknown")
    except Mismatch:
        pass  # the shape's problem says it
    return None


def _owners(order: list[Node], graph: Graph) -> dict[str, str]:
    """For each node with `tied: true`, the name of the layer that owns its weights: the first embedding or linear
    layer whose matrix has the same shape and that is not tied itself."""
    owners: dict[tuple[int | None, int | None], str] = {}
    tied: list[tuple[str, tuple[int | None, int | None]]] = []
    for node in order:
        if node.type in ("embedding", "linear"):
            place = Place(KINDS[node.type], node, [], source=graph.source)
            matrix = (place.given("rows" if node.type == "embedding" else "outputs"), place.given("width"))
            if node.settings.get("tied") is True:
                tied.append((node.id, matrix))
            elif None not in matrix:
                owners.setdefault(matrix, node.name)
    return {id: owners[matrix] for id, matrix in tied if matrix in owners}


def check_exists(model: Model) -> None:
    """Raises UserError for a model without a single layer to count."""
    if not model.body:
        raise UserError(f"{model.source}: has inputs and outputs only; there is no layer to compare")


# two conventions on one graph -----------------------------------------------------------------------------------------

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
            said = what == "row" and (layer.parameters, other[layer.id].parameters) == (first, second)
            if first == second or said:
                continue
            key = (layer.type, what, first, second)
            if key in found:
                found[key] = replace(found[key], times=found[key].times + 1)
            else:
                reasons = tuple(_reasons(graph, layer, what, ours, theirs, shapes))
                found[key] = Disagreement(layer.name, layer.type, what, first, second, reasons)
    return list(found.values())


def _reasons(graph: Graph, layer: Layer, what: str, ours: Model, theirs: Model, shapes: dict) -> list[str]:
    """The rules that alone change this count when they are taken from the other convention."""

    def count(convention: Convention, declared: bool) -> int:
        place = _place(graph, graph.by_id[layer.id], shapes, convention, declared)
        return _count(place, "macs" if what == "macs" else "parameters") or 0

    base = count(ours.convention, False)
    found = [
        words
        for words, convention in steps(ours.convention, theirs.convention)
        if count(convention, what == "row" and convention.declared_rows) != base
    ]
    if what != "macs" and layer.parameters not in (None, base):
        found.append("weights that the graph declares tied are counted again for each layer that uses them")
    return found
