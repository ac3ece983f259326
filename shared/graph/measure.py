"""A graph measured: every layer's output shape, parameters, multiply-accumulates, and what it keeps for training.

    model = measure(read("vit-b16.json"))            # RIGHT
    model = measure(graph, a_publication's convention)

A `Model` is what the rest works on; `shared.graph.trace` makes one from a torch module.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention, steps
from shared.graph.kinds import KINDS, POSITION_TYPES
from shared.graph.place import Mismatch, Missing, Place, Shape, text
from shared.graph.read import STICKY, Graph, Node
from shared.text import quoted

Standing = Literal["exact", "at least", "not known"]
ENDS = frozenset({"input", "output"})
LARGEST_COUNT = 10**30  # of anything in one layer: sums of them are still floats


@dataclass
class Layer:
    """One layer in topological order. Counts are for one declared input; None means that they are not known.

    parameters  trained numbers, each counted once (0 where another layer owns the weights)
    row         the parameters that a table shows beside this layer; the comparison pages show 0 where a setting is
                missing, though their total counts the layer
    macs        multiply-accumulates of one forward pass
    kept        numbers kept for the backward pass
    active      parameters that work on one token, where those are not all (experts)
    sides       inputs and outputs of its matrices together: an adapter of rank r has r times as many weights
    cached      numbers that attention keeps of each earlier token while text is generated
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
    active: int | None = None
    sides: int = 0
    cached: int = 0


@dataclass
class Model:
    """A measured architecture.

    built_as    the class of a module that was built
    stored      type, quantisation and bytes of the published weights, where a configuration says them
    lacks       what that class is known to lack of the model that was meant, a sentence
    not_run     why a module could not be run: its parameters are known, its operations and shapes are not
    decided     decisions of a dry run that hang on values, and how often (`shared.graph.dryrun`)
    """

    name: str
    source: str
    layers: list[Layer]
    convention: Convention = RIGHT
    official_parameters: int | None = None
    built_as: str = ""
    lacks: str = ""
    stored: dict[str, Any] | None = None
    not_run: str = ""
    decided: dict[str, int] = field(default_factory=dict)

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

    def total_is(self, what: Literal["parameters", "row", "macs", "memory", "cost"]) -> Standing:
        """How a total stands to the truth. Behind a layer that cannot take its input nothing bounds it."""
        if what == "memory":
            partly = not self.memory_known
        elif what == "cost":
            partly = bool(self.unknown("macs") or self.unknown("parameters"))
        else:
            partly = bool(self.unknown(what))
        if what != "parameters" and self.problems:
            return "not known"
        return ("not known" if what in ("macs", "cost") and self.not_run else "at least") if partly else "exact"

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
        if self.not_run:
            return f"unknown: {self.not_run}"
        unknown = [layer for layer in self.layers if layer.output is None and layer.type not in POSITION_TYPES]
        return f"unknown: the shape after {unknown[0].name} is not known" if unknown else "yes"


def measure(graph: Graph, convention: Convention = RIGHT) -> Model:
    """Propagate shapes in topological order and count. Raises UserError for settings that no layer can have.

    Behind a layer that cannot take its input shapes are only assumed: they serve to find further problems, but no
    count that hangs on them is known.
    """
    order = [node for node in graph.order(convention.file_order) if node.type not in STICKY]
    owners = _owners(order, graph) if convention.tied else {}
    batch = _batch(order, graph) if convention == RIGHT else {}
    shapes: dict[str, Shape | None] = {}
    axes: dict[str, int | None] = {}
    broken: set[str] = set()
    known: dict[str, tuple[Layer, int | None]] = {}
    layers = []
    for node in order:
        if node.id in batch:
            node = replace(node, shape=(1, *(node.shape or ())[1:]))
        place = _place(graph, node, shapes, convention, axes=axes)
        assumed = any(parent in broken for parent in graph.parents[node.id])
        key = repr((node.type, node.shape, node.settings, node.parameters, place.inputs, place.axes, assumed))
        if key not in known:  # a repeated block is measured once
            known[key] = _measured(place, assumed)
        found, axes[node.id] = known[key]
        notes, parents = [*found.notes], [*graph.parents[node.id]]
        layer = replace(found, id=node.id, name=node.name, settings=node.settings, notes=notes, parents=parents)
        if node.id in batch:
            layer.notes.append(f"declares a batch of {batch[node.id]:,}: counts are for one sample of it")
        if node.id in owners:
            # what is left of a tied layer is a bias that it says it has
            biased = node.type == "linear" and place.flag("bias", False)
            layer.parameters = (place.given("outputs") or 0) if biased else 0
            layer.notes.append(f"its weights are those of {owners[node.id]}")
        elif convention.tied and place.flag("tied", False):
            layer.notes.append("is declared tied, but no other layer has weights of its shape: counted")
        layer.row = layer.parameters
        if convention.declared_rows:
            layer.row = _count(_place(graph, node, {}, convention, declared=True), "parameters") or 0
        shapes[node.id] = layer.output
        if assumed or layer.problem:
            broken.add(node.id)
        layers.append(layer)
    return Model(graph.name, graph.source, layers, convention, graph.official_parameters)


EMBEDDINGS = frozenset({"embedding", "embeddingBag"})
PASSING = frozenset({"identity", "cast", "dropout", "layerNorm", "rmsNorm", "batchNorm", "positionalEncoding"})


def _batch(order: list[Node], graph: Graph) -> dict[str, int]:
    """Inputs whose first axis is a batch of several samples, with its size: one axis more than the layer behind them
    takes of a sample. Only where all that have one agree, and no layer reshapes to it."""
    children: dict[str, list[str]] = {}
    for start, end in graph.edges:
        children.setdefault(start, []).append(end)

    def ranks(node: Node, shape: Shape, depth: int = 4) -> set[int]:
        """Axes of a sample, for each layer behind `node` that tells; -1 where its declared features are no axis."""
        found: set[int] = set()
        for id in children.get(node.id, ()):
            child = graph.by_id[id]
            kind = KINDS.get(child.type)
            if child.type in PASSING and depth:
                found |= ranks(child, shape, depth - 1)
            elif kind and kind.rank:
                place = Place(kind, child, [], source=graph.source)
                declared = [place.given(name) for name in ("channels", "width") if name in kind.sizes]
                fits = child.type in EMBEDDINGS or all(one is None or one in shape[1:] for one in declared)
                found.add(kind.rank if fits else -1)
        return found

    sizes = {}
    for node in order:
        shape = node.shape or ()
        if node.type == "input" and shape and shape[0] > 1 and ranks(node, shape) == {len(shape) - 1}:
            sizes[node.id] = shape[0]
    count = next(iter(sizes.values()), 0)
    targets = [node.settings.get("shape") for node in order if node.type in ("reshape", "view")]
    fixed = any(isinstance(target, list) and target[:1] == [count] for target in targets)
    return sizes if len(set(sizes.values())) == 1 and not fixed else {}


def _place(
    graph: Graph,
    node: Node,
    shapes: dict[str, Shape | None],
    convention: Convention,
    declared: bool = False,
    axes: dict[str, int | None] | None = None,
) -> Place:
    """`node` with what comes in. A source of positions is no operand: it has no shape, and that is not a lack."""
    parents = graph.parents[node.id]
    sources = {id for id in parents if not graph.parents[id] and graph.by_id[id].type in POSITION_TYPES}
    used = [] if declared else [id for id in parents if id not in sources]
    found = [(axes or {}).get(id) for id in used], [graph.by_id[id].type for id in used]
    inputs = [shapes.get(id) for id in used]
    return Place(KINDS.get(node.type), node, inputs, convention, graph.source, declared, *found)


def _measured(place: Place, assumed: bool = False) -> tuple[Layer, int | None]:
    """The layer, and which axis of its output holds its features. assumed: what comes in is not known for sure."""
    node = place.node
    layer = Layer(node.id, node.name, node.type, node.settings, None, None, None, None, notes=place.notes)
    if place.kind is None:
        _unknown(layer, node)
        return layer, None
    try:
        layer.output = place.out
    except Missing as missing:
        _lacks(place, missing, "the output shape is unknown")
    except Mismatch as mismatch:
        layer.problem, layer.output = str(mismatch), mismatch.shape
    if assumed or layer.problem:
        layer.parameters = _count(replace(place, inputs=[], axes=(), notes=[]), "parameters")
        layer.macs = 0 if place.kind.macs == 0 and not layer.problem else None
    else:
        layer.parameters = _count(place, "parameters", say=layer.output is not None)
        layer.macs = _count(place, "macs")
        layer.sides = _count(place, "sides") or 0
        layer.cached = _count(place, "cached") or 0
        working = _count(place, "working")
        layer.active = working if working != layer.parameters else None
        layer.kept = _count(place, "kept") if layer.output is not None else None
        if layer.output is None and node.type in POSITION_TYPES:
            layer.macs = layer.kept = 0
    if max(layer.parameters or 0, layer.macs or 0, layer.kept or 0, prod(layer.output or ())) > LARGEST_COUNT:
        raise place.bad("its parameters, operations or outputs are more than 10^30; no model has that many")
    if layer.output is None or layer.problem:
        return layer, None
    if node.type != "input" and node.shape and prod(node.shape) not in (prod(layer.output), prod(layer.output[1:])):
        place.note(f"the file says that its output is {text(node.shape)}")
    return layer, place.out_axis


def _unknown(layer: Layer, node: Node) -> None:
    """A type that is in no table: what the file itself says of it is taken."""
    layer.known = False
    layer.notes.append(f"unknown type {quoted(node.type)}{_near(node.type)}: counted as unknown")
    if node.parameters is not None:
        layer.parameters = node.parameters
        layer.notes.append("its parameters are those that the file declares")
    if node.shape is not None:
        layer.output = node.shape
        layer.notes.append(f"its output {text(node.shape)} is the one that the file declares")


def _near(type: str) -> str:
    """`; did you mean linear?`"""
    plain = {name.lower(): name for name in KINDS}
    lower = type.lower()
    near = [lower] if lower in plain else difflib.get_close_matches(lower, plain, 1, 0.75)
    return f"; did you mean {plain[near[0]]}?" if near else ""


def _lacks(place: Place, missing: Missing, what: str) -> None:
    if place.inputs and str(missing) not in ("its input", "one of its inputs", "its second input"):
        place.note(f"its {missing} is not given: {what}")


def _count(place: Place, what: str, say: bool = False) -> int | None:
    """`parameters`, `macs`, `kept` or another size of the row; None: not known. `say`: note what is missing."""
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
            if place.flag("tied", False):
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
