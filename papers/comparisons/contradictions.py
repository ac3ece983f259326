"""What is wrong on a comparison page: each claim beside the arithmetic against it.

Everything is worked out from the two counts of the same graphs, so a page without a fault would give an empty list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from papers.comparisons.report import Report
from shared.graph.align import ADDED, REMOVED, changed_fields
from shared.graph.cost import fits, memory
from shared.graph.layers import text
from shared.graph.layers_attention import BIASED
from shared.graph.measure import Layer, Model
from shared.graph.names import gigabytes, short

# trained parameters and blocks of the whole models, as the libraries build them (tests build and count them)
WHOLE = {
    "BERT Base": (109_482_240, 12),
    "ViT-B/16": (86_567_656, 12),
    "GPT-2": (124_439_808, 12),
    "T5 Small": (60_506_624, 6),
}


@dataclass(frozen=True)
class Contradiction:
    """`claim`: what the page prints. `arithmetic`: why it does not hold, with the numbers."""

    claim: str
    arithmetic: str


def contradictions(published: Report, right: Report) -> list[Contradiction]:
    """In the order of the page: sides, deltas, GPU table, rows."""
    found: list[Contradiction] = []
    for theirs, ours in zip(published.models, right.models, strict=True):
        found += _whole_model(theirs)
        found += _rows_and_total(theirs)
        found += _counts(theirs, ours)
        found += _structure(theirs)
    found += _deltas(published, right)
    found += _inputs(published, right)
    found += _fit(published, right)
    found += _key_names(published)
    return found


def _whole_model(model: Model) -> list[Contradiction]:
    if model.name not in WHOLE:
        return []
    parameters, blocks = WHOLE[model.name]
    return [
        Contradiction(
            f"{model.name} has {short(model.parameters)} parameters",
            f"the graph holds one block of {blocks}: {model.parameters:,} here, {parameters:,} in the whole model",
        )
    ]


def _rows_and_total(model: Model) -> list[Contradiction]:
    rows, total = model.total("row"), model.parameters
    if rows == total:
        return []
    missing = [layer for layer in model.layers if layer.row != layer.parameters]
    parts = " + ".join(f"{layer.name} {(layer.parameters or 0) - (layer.row or 0):,}" for layer in missing)
    return [
        Contradiction(
            f"{model.name}: {short(total)} parameters, and rows that print {short(rows)}",
            f"{total:,} - {rows:,} = {total - rows:,} = {parts}: rows whose settings lack a size",
        )
    ]


def _counts(theirs: Model, ours: Model) -> list[Contradiction]:
    """Biases, ties, positions, and products that the page's own count leaves out."""
    found = []
    for printed, true in zip(theirs.layers, ours.layers, strict=True):
        if printed.row and true.parameters and printed.row < true.parameters and printed.type == "conv2d":
            found.append(
                Contradiction(
                    f"{theirs.name}: {printed.name} has {short(printed.row)} parameters",
                    f"a row without inChannels counts one input channel: {_convolution(printed, theirs, 1)} = "
                    f"{printed.row:,}; in truth {_convolution(printed, theirs)} = {true.parameters:,}",
                )
            )
        counted, right = printed.parameters or 0, true.parameters or 0
        if counted != right and printed.type in BIASED:
            found.append(
                Contradiction(
                    f"{theirs.name}: {printed.name} has {short(counted)} parameters",
                    f"four biases of {(right - counted) // 4} are left out of this attention type alone: "
                    f"{counted:,} + {right - counted:,} = {right:,}",
                )
            )
        if counted > right and right == 0:
            found.append(
                Contradiction(
                    f"{theirs.name}: {printed.name} has {short(counted)} parameters of its own",
                    f"its table is the shared one: {theirs.parameters:,} - {counted:,} = "
                    f"{theirs.parameters - counted:,}",
                )
            )
        if counted == 0 and right:
            longest = printed.settings.get("maxLen") or 1
            found.append(
                Contradiction(
                    f"{theirs.name}: {printed.name} has no parameters",
                    f"learned positions: {longest} x {right // longest} = {right:,}",
                )
            )
    attention = [
        (true.macs or 0) - (printed.macs or 0)
        for printed, true in zip(theirs.layers, ours.layers, strict=True)
        if printed.type in BIASED
    ]
    if any(attention):
        found.append(
            Contradiction(
                f"{theirs.name}: its cost rests on {theirs.macs:,} operations",
                f"attention counts one of its two products and cross attention the query's length: "
                f"{sum(attention):,} multiply-accumulates more; {ours.macs:,} in all, without the element-wise ones",
            )
        )
    return found


def _convolution(layer: Layer, model: Model, channels: int | None = None) -> str:
    out, kernel = layer.settings["outChannels"], layer.settings["kernelSize"]
    shape = next(parent.output for parent in model.layers if parent.id == layer.parents[0]) or (0, 0, 0)
    return f"{out} x {channels or shape[-3]} x {kernel} x {kernel} + {out}"


def _structure(model: Model) -> list[Contradiction]:
    found = []
    types = [layer.type for layer in model.layers]
    if any(type in BIASED for type in types) and "add" not in types:
        found.append(
            Contradiction(
                f"{model.name} passes forward", "it has attention and a feed-forward layer, but no residual additions"
            )
        )
    heads = [layer for layer in model.outputs if layer.output and len(layer.output) == 2]
    if "patchEmbed" in types and heads:
        tokens, classes = heads[0].output or (0, 0)
        found.append(
            Contradiction(
                f"{model.name}: output {text(heads[0].output)}",
                f"its head is applied to each of {tokens} patches; a classifier gives {classes} numbers, from a class "
                "token that the graph does not have",
            )
        )
    return found


def _deltas(published: Report, right: Report) -> list[Contradiction]:
    found = []
    first, second = published.models
    if first.name in WHOLE and second.name in WHOLE:
        true, said = WHOLE[second.name][0] - WHOLE[first.name][0], second.parameters - first.parameters
        chance = ", which prints the same by coincidence" if short(abs(true)) == short(abs(said)) else ""
        found.append(
            Contradiction(
                published.headline.split(":")[0],
                f"a difference of graphs of one block each ({said:+,}); the whole models differ by "
                f"{WHOLE[second.name][0]:,} - {WHOLE[first.name][0]:,} = {true:+,}{chance}",
            )
        )
    added, removed = published.counts[ADDED], published.counts[REMOVED]
    layers = [len(model.body) for model in published.models]
    if added - removed != layers[1] - layers[0]:
        inputs = [len(model.inputs) for model in published.models]
        found.append(
            Contradiction(
                f"{added} layers added, {removed} removed; {layers[0]} layers against {layers[1]}",
                f"{added} - {removed} = {added - removed:+d}, but {layers[1]} - {layers[0]} = "
                f"{layers[1] - layers[0]:+d}: rows count the inputs ({inputs[0]} against {inputs[1]}), layers do not",
            )
        )
    return found


def _inputs(published: Report, right: Report) -> list[Contradiction]:
    found = []
    shapes = [model.inputs[0].output or () for model in published.models]
    if len(shapes[0]) != len(shapes[1]):
        text_side = 0 if len(shapes[0]) == 2 else 1
        found.append(
            Contradiction(
                f"inputs {text(shapes[0])} and {text(shapes[1])}",
                f"{text(shapes[text_side])} carries a batch of 1, {text(shapes[1 - text_side])} carries none",
            )
        )
    if published.same_input and not right.same_input:
        found.append(
            Contradiction(
                "memory for the graph at the input shape both declare; no note of different inputs",
                f"{right.sides[0].cells['Input']} against {right.sides[1].cells['Input']}: one input is left out",
            )
        )
    return found


def _fit(published: Report, right: Report) -> list[Contradiction]:
    found = []
    for theirs, ours in zip(published.models, right.models, strict=True):
        with_activations = replace(theirs, convention=ours.convention)
        need = memory(with_activations, published.assumed)
        for said, true in zip(fits(theirs, published.assumed), fits(with_activations, published.assumed), strict=True):
            if said.fits and not true.fits:
                plain = memory(theirs, published.assumed)
                found.append(
                    Contradiction(
                        f"{theirs.name} fits a {said.gpu}, by {gigabytes(plain.training)}",
                        f"the page says that memory depends on the input, but counts no activations: with those of a "
                        f"batch of {need.batch} it is ({gigabytes(4 * need.weights)} + {gigabytes(need.activations)}) "
                        f"x {published.assumed.factor} = {gigabytes(need.training)}; {true.largest_batch} fit",
                    )
                )
    return found


def _key_names(published: Report) -> list[Contradiction]:
    return [
        Contradiction(
            f"row {number}: {row.left.name} against {row.right.name} is changed ({', '.join(row.changed)})",
            f"{_settings(row.left)} and {_settings(row.right)} are the same sizes under other names",
        )
        for number, row in enumerate(published.rows, 1)
        if row.left and row.right and row.changed and not changed_fields(row.left, row.right)
    ]


def _settings(layer: Layer) -> str:
    return ", ".join(f"{key} {value}" for key, value in layer.settings.items())
