"""Merges, reshapes, inputs and outputs, and the layers of graph and recommendation networks."""

from __future__ import annotations

from math import prod

from shared.graph.layers import Kind, Mismatch, Missing, Place, Shape, no_memory, text
from shared.graph.read import integer

# inputs and outputs ---------------------------------------------------------------------------------------------------


def input_shape(place: Place) -> Shape:
    if place.node.shape is None:
        raise Missing("shape")
    return place.node.shape


def output_shape(place: Place) -> Shape:
    return place.x


# merges ---------------------------------------------------------------------------------------------------------------


def _known(place: Place) -> list[Shape]:
    if not place.inputs:
        raise Missing("its input")
    if any(shape is None for shape in place.inputs):
        raise Missing("one of its inputs")
    return [shape for shape in place.inputs if shape is not None]


def broadcast_shape(place: Place) -> Shape:
    """Element by element, with broadcasting. A merge of one parent passes it on (8 public files have one)."""
    shapes = _known(place)
    if len(shapes) == 1:
        place.note("has one parent: there is nothing to merge")
        return shapes[0]
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    found = []
    for sizes in zip(*padded, strict=True):
        wide = {size for size in sizes if size > 1}
        if len(wide) > 1:
            raise Mismatch(f"cannot combine {' and '.join(map(text, shapes))}", shapes[0])
        found.append(wide.pop() if wide else 1)
    return tuple(found)


def concatenate_shape(place: Place) -> Shape:
    """Along `dim`/`axis`: from the end if negative; of images the channels, of all else the features, if not given.

    A given axis counts from a batch axis where the shapes have none: public files write 1 for the channels of
    [C, H, W].
    """
    shapes = _known(place)
    rank = max(map(len, shapes))
    for shape in shapes:
        if len(shape) < rank:
            place.note(f"{text(shape)} gets leading axes of 1")
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    given = place.setting("dim", "axis")
    axis = integer(given) if given is not None else (-3 if rank >= 3 and _images(padded) else -1)
    if axis is None or not -rank <= axis < rank:
        raise place.bad(f"axis {given!r} is not an axis of {text(padded[0])}")
    candidates = [axis % rank]
    if given is not None and axis >= 1:
        candidates.append(axis - 1)
    for candidate in candidates:
        others = {shape[:candidate] + shape[candidate + 1 :] for shape in padded}
        if len(others) == 1:
            joined = sum(shape[candidate] for shape in padded)
            return (*padded[0][:candidate], joined, *padded[0][candidate + 1 :])
    at = candidates[0]
    joined = sum(shape[at] for shape in padded)
    raise Mismatch(
        f"cannot concatenate {' and '.join(map(text, shapes))}", (*padded[0][:at], joined, *padded[0][at + 1 :])
    )


def _images(shapes: list[Shape]) -> bool:
    """Whether the last two axes agree and the channels need not: images of one size."""
    return len({shape[-2:] for shape in shapes}) == 1


def _matrices(place: Place) -> tuple[Shape, Shape]:
    shapes = _known(place)
    if len(shapes) != 2:
        raise Mismatch(f"multiplies two matrices, has {len(shapes)} parents", shapes[0])
    first, second = (shape if len(shape) > 1 else (1, *shape) for shape in shapes)
    return first, second


def matmul_shape(place: Place) -> Shape:
    """[.., M, K] x [.., K, N] -> [.., M, N]; where K fits only its last axis, times the transpose."""
    first, second = _matrices(place)
    if first[-1] == second[-2]:
        return (*first[:-1], second[-1])
    if first[-1] == second[-1]:
        place.note(f"{text(first)} times the transpose of {text(second)}")
        return (*first[:-1], second[-2])
    raise Mismatch(f"cannot multiply {text(first)} by {text(second)}", (*first[:-1], second[-1]))


def matmul_macs(place: Place) -> int:
    return prod(matmul_shape(place)) * _matrices(place)[0][-1]


def mean_shape(place: Place) -> Shape:
    """Of several parents: element by element. Of one: over `dim` (default: the tokens)."""
    shapes = _known(place)
    if len(shapes) > 1:
        return broadcast_shape(place)
    x = shapes[0]
    axis = integer(place.setting("dim", "axis") if place.setting("dim", "axis") is not None else -2)
    if axis is None or not -len(x) <= axis < len(x):
        raise place.bad(f"axis {place.setting('dim', 'axis')!r} is not an axis of {text(x)}")
    axis %= len(x)
    return (*x[:axis], *x[axis + 1 :]) or (1,)


# reshapes -------------------------------------------------------------------------------------------------------------


def flatten_shape(place: Place) -> Shape:
    """[C, H, W] -> [C*H*W]; a leading axis of 1 before others is a batch and stays."""
    x = place.x
    keep = 1 if len(x) > 1 and (x[0] == 1 or len(x) == 4) else 0
    return (*x[:keep], prod(x[keep:]))


def reshape_shape(place: Place) -> Shape:
    """To `shape` (one axis may be -1). Raises Mismatch if the number of values changes."""
    x, value = place.x, place.setting("shape", "targetShape")
    items = [integer(item) for item in value] if isinstance(value, list) else []
    if not items or any(item is None or (item < 1 and item != -1) for item in items) or items.count(-1) > 1:
        raise place.bad(f"shape: expected positive whole numbers with at most one -1, got {value!r}")
    fixed = prod(item for item in items if item != -1)
    free = prod(x) // fixed if -1 in items else 0
    found = tuple(free if item == -1 else item for item in items)
    if prod(found) != prod(x):
        raise Mismatch(f"cannot reshape {text(x)} ({prod(x):,} values) to {text(found)} ({prod(found):,})", found)
    return found


# graph and recommendation networks ------------------------------------------------------------------------------------


def _graph_sizes(place: Place) -> tuple[int, int]:
    return place.width("inChannels", "inFeatures"), place.need("outChannels", "outFeatures")


def graph_shape(place: Place) -> Shape:
    features, out = _graph_sizes(place)
    place.axis(features, result=(*place.x[:-1], out))
    return (*place.x[:-1], out)


def sage_parameters(place: Place) -> int:
    """One matrix for the node, one with a bias for its neighbours (GraphSAGE, arXiv:1706.02216, algorithm 1)."""
    features, out = _graph_sizes(place)
    return 2 * features * out + (out if place.bias() else 0)


def sage_macs(place: Place) -> int:
    features, out = _graph_sizes(place)
    place.note("the neighbours' sum depends on the data: not counted")
    return place.tokens(features) * 2 * features * out


def graph_conv_parameters(place: Place) -> int:
    """None where `useTransform` is false (LightGCN: arXiv:2002.02126, equation 3)."""
    if not place.flag("useTransform", True):
        return 0
    features, out = _graph_sizes(place)
    return features * out + (out if place.bias() else 0)


def graph_conv_macs(place: Place) -> int:
    features, out = _graph_sizes(place)
    place.note("the neighbours' sum depends on the data: not counted")
    return place.tokens(features) * features * out if place.flag("useTransform", True) else 0


def _vectors(place: Place) -> tuple[int, int]:
    """(vectors that meet each other, their width)."""
    shapes = _known(place)
    widths = {shape[-1] for shape in shapes}
    if len(widths) > 1:
        raise Mismatch(f"cannot pair vectors of {' and '.join(map(text, shapes))}", shapes[0])
    return sum(prod(shape[:-1]) for shape in shapes), widths.pop()


def interaction_shape(place: Place) -> Shape:
    """Dot products of all pairs, next to the first parent's vector (DLRM, arXiv:1906.00091, section 2.1.3)."""
    count, width = _vectors(place)
    return (count * (count - 1) // 2 + width,)


def interaction_macs(place: Place) -> int:
    count, width = _vectors(place)
    return count * (count - 1) // 2 * width


KINDS = {
    "input": Kind(input_shape, kept=no_memory),
    "output": Kind(output_shape, kept=no_memory),
    **{name: Kind(broadcast_shape) for name in ("add", "multiply", "subtract", "average")},
    "concatenate": Kind(concatenate_shape),
    "matmul": Kind(matmul_shape, macs=matmul_macs),
    "mean": Kind(mean_shape),
    "flatten": Kind(flatten_shape, kept=no_memory),
    "reshape": Kind(reshape_shape, kept=no_memory),
    "graphSAGE": Kind(graph_shape, sage_parameters, sage_macs),
    "graphConv": Kind(graph_shape, graph_conv_parameters, graph_conv_macs),
    "featureInteraction": Kind(interaction_shape, macs=interaction_macs),
}
