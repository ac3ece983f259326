"""A graph measured: every layer's output shape, parameters, multiply-accumulates, and what it keeps for training.

    model = measure(read("vit-b16.json"))            # RIGHT
    model = measure(graph, a_publication's convention)

A `Model` is what the rest works on; `shared.graph.trace` makes one from a torch module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention
from shared.graph.layers import KINDS, Mismatch, Missing, Place, Shape
from shared.graph.read import STICKY, Graph, Node, quoted

ENDS = frozenset({"input", "output"})
LARGEST_COUNT = 10**30  # of anything in one layer: sums of them are still floats


@dataclass
class Layer:
    """One layer in topological order. Counts are for one declared input; None means that they are not known.

    parameters  trained numbers, each counted once (0 where another layer owns the weights)
    row         the same as a table of single layers prints it (a convention may print less than it counts)
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
        found: dict[str, int] = {}
        for layer in self.layers:
            if not layer.known:
                found[layer.type] = found.get(layer.type, 0) + 1
        return found

    @property
    def problems(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.problem]

    @property
    def passes_forward(self) -> bool | None:
        """True, False (see `problems`), or None: some shape is not known."""
        if self.problems:
            return False
        return None if any(layer.output is None and layer.type not in _SHAPELESS for layer in self.layers) else True

    @property
    def forward(self) -> str:
        """`yes`, `no: <first layer that cannot>`, or why it is not known."""
        if self.passes_forward:
            return "yes"
        if self.problems:
            return f"no: {self.problems[0].name} {self.problems[0].problem}"
        unknown = next(layer for layer in self.layers if layer.output is None and layer.type not in _SHAPELESS)
        return f"unknown: the shape after {unknown.name} is not known"


_SHAPELESS = frozenset({"rope", "alibi", "positionalEncoding", "learnedPositionalEmbedding"})


def measure(graph: Graph, convention: Convention = RIGHT) -> Model:
    """Propagate shapes in topological order and count. Raises UserError for settings that no layer can have."""
    order = [node for node in graph.order(convention.file_order) if node.type not in STICKY]
    ties = _ties(order, graph) if convention.tied else {}
    shapes: dict[str, Shape | None] = {}
    sources = {node.id for node in order if not graph.parents[node.id]}
    layers = []
    for node in order:
        # a source of positions is no operand: it has no shape, and that is not a lack
        parents = [id for id in graph.parents[node.id] if not (id in sources and _positions(graph.node(id)))]
        place = Place(node, [shapes.get(id) for id in parents], convention, graph.source)
        layer = _measured(place, node)
        layer.parents = list(graph.parents[node.id])
        if node.id in ties:
            layer.parameters = _own_bias(place, node)
            layer.notes.append(f"its weights are those of {ties[node.id]}")
        elif node.settings.get("tied") is True and convention.tied:
            layer.notes.append("is declared tied, but no other layer has weights of its shape: counted")
        if convention.declared_rows:
            layer.row = _count(Place(node, [], convention, graph.source, declared=True), "parameters") or 0
        else:
            layer.row = layer.parameters
        shapes[node.id] = layer.output
        layers.append(layer)
    return Model(graph.name, graph.source, layers, convention, graph.official_parameters)


def _own_bias(place: Place, node: Node) -> int:
    """What is left of a layer that is tied: a bias that it says it has."""
    return (place.size("outFeatures", "outDim") or 0) if node.type == "linear" and place.bias(False) else 0


def _positions(node: Node) -> bool:
    kind = KINDS.get(node.type)
    return bool(kind and kind.positions)


def _measured(place: Place, node: Node) -> Layer:
    kind = KINDS.get(node.type)
    layer = Layer(node.id, node.name, node.type, node.settings, None, None, None, None, notes=place.notes)
    if kind is None:
        layer.known = False
        layer.notes.append(f"unknown type {quoted(node.type)}: counted as unknown")
        return layer
    try:
        layer.output = kind.shape(place)
    except Missing as missing:
        if place.inputs and str(missing) not in ("its input", "one of its inputs"):
            layer.notes.append(f"its {missing} is not given: the output shape is unknown")
    except Mismatch as mismatch:
        layer.problem, layer.output = str(mismatch), mismatch.shape
    layer.parameters = _count(place, "parameters")
    layer.macs = None if layer.problem else _count(place, "macs")
    if layer.output is not None and not layer.problem:
        shape = layer.output
        layer.kept = _try(lambda: kind.kept(place, shape))
    elif kind.positions:
        layer.macs = layer.kept = 0
    if max(layer.parameters or 0, layer.macs or 0, layer.kept or 0, prod(layer.output or ())) > LARGEST_COUNT:
        raise place.bad("its parameters, operations or outputs are more than 10^30; no model has that many")
    return layer


def _count(place: Place, what: str) -> int | None:
    kind = KINDS.get(place.node.type)
    return None if kind is None else _try(lambda: getattr(kind, what)(place))


def _try(count: Callable[[], int]) -> int | None:
    try:
        return count()
    except (Missing, Mismatch):
        return None


def _ties(order: list[Node], graph: Graph) -> dict[str, str]:
    """For each node with `tied: true`, the name of the layer that owns its weights: the first embedding or linear
    layer whose matrix has the same shape and that is not tied itself."""
    matrices = {node.id: _matrix(node, graph) for node in order}
    found = {}
    for node in order:
        if node.settings.get("tied") is not True or matrices[node.id] is None:
            continue
        for owner in order:
            owns = owner.id != node.id and owner.settings.get("tied") is not True
            if owns and matrices[owner.id] == matrices[node.id]:
                found[node.id] = owner.name
                break
    return found


def _matrix(node: Node, graph: Graph) -> tuple[int, int] | None:
    """(vocabulary, width) of an embedding, (out, in) of a linear layer: what tied layers have in common."""
    keys = {
        "embedding": (("numEmbeddings", "vocabSize"), ("embeddingDim", "embedDim", "dim")),
        "linear": (("outFeatures", "outDim"), ("inFeatures", "inDim")),
    }.get(node.type)
    if keys is None:
        return None
    place = Place(node, [], source=graph.source)
    rows, width = place.size(*keys[0]), place.size(*keys[1])
    return (rows, width) if rows and width else None


def check_exists(model: Model) -> None:
    """Raises UserError for a model without a single layer to count."""
    if not model.body:
        raise UserError(f"{model.source}: has inputs and outputs only; there is no layer to compare")
