"""Inputs, merges of several parents, and layers that only move numbers."""

from __future__ import annotations

from math import prod

from shared.graph.place import Mismatch, Missing, Place, Shape, text
from shared.graph.read import integer


def input_shape(p: Place) -> Shape:
    if p.node.shape is None:
        raise Missing("shape")
    return p.node.shape


def padded(shapes: list[Shape]) -> list[Shape]:
    """All of one rank, by leading axes of 1."""
    rank = max(map(len, shapes))
    return [(1,) * (rank - len(shape)) + shape for shape in shapes]


def broadcast_shape(p: Place) -> Shape:
    """Element by element, with broadcasting. A merge of one parent passes it on (8 public files have one)."""
    if len(p.xs) == 1:
        p.note("has one parent: there is nothing to merge")
        return p.x
    wide = [{n for n in axis if n > 1} for axis in zip(*padded(p.xs), strict=True)]
    if any(len(lengths) > 1 for lengths in wide):
        raise Mismatch(f"cannot combine {' and '.join(map(text, p.xs))}", p.x)
    return tuple(lengths.pop() if lengths else 1 for lengths in wide)


def concatenate_shape(p: Place) -> Shape:
    """Along `dim`/`axis`: from the end if negative; of images the channels, of all else the features, if not given.

    A given axis counts from a batch axis where the shapes have none: public files write 1 for the channels of
    [C, H, W].
    """
    shapes = padded(p.xs)
    for before, after in zip(p.xs, shapes, strict=True):
        if before != after:
            p.note(f"{text(before)} gets leading axes of 1")
    rank, given = len(shapes[0]), p.given("along")
    # images of one size: the last two axes agree and the channels need not
    images = rank >= 3 and len({shape[-2:] for shape in shapes}) == 1
    axis = given if given is not None else -3 if images else -1
    if not -rank <= axis < rank:
        raise p.bad(f"axis {axis!r} is not an axis of {text(shapes[0])}")

    def joined(at: int) -> Shape:
        return (*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :])

    for at in [axis % rank, *([axis - 1] if given is not None and axis >= 1 else [])]:
        if len({shape[:at] + shape[at + 1 :] for shape in shapes}) == 1:
            return joined(at)
    raise Mismatch(f"cannot concatenate {' and '.join(map(text, p.xs))}", joined(axis % rank))


def matrices(p: Place) -> tuple[Shape, Shape]:
    if len(p.xs) != 2:
        raise Mismatch(f"multiplies two matrices, has {len(p.xs)} parents", p.x)
    first, second = (shape if len(shape) > 1 else (1, *shape) for shape in p.xs)
    return first, second


def matmul_shape(p: Place) -> Shape:
    """[.., M, K] x [.., K, N] -> [.., M, N]; where K fits only its last axis, times the transpose."""
    first, second = matrices(p)
    if first[-1] == second[-2]:
        return (*first[:-1], second[-1])
    if first[-1] == second[-1]:
        p.note(f"{text(first)} times the transpose of {text(second)}")
        return (*first[:-1], second[-2])
    raise Mismatch(f"cannot multiply {text(first)} by {text(second)}", (*first[:-1], second[-1]))


def mean_shape(p: Place) -> Shape:
    """Of several parents: element by element. Of one: over `dim` (default: the tokens)."""
    if len(p.xs) > 1:
        return broadcast_shape(p)
    x, axis = p.x, p.along
    if not -len(x) <= axis < len(x):
        raise p.bad(f"axis {axis!r} is not an axis of {text(x)}")
    axis %= len(x)
    return (*x[:axis], *x[axis + 1 :]) or (1,)


def flatten_shape(p: Place) -> Shape:
    """[C, H, W] -> [C*H*W], or the axes from `startDim` to `endDim`; a leading axis of 1 before others is a batch and
    stays."""
    x, start, end = p.x, p.given("start"), p.given("end")
    if start is not None or end is not None:
        first, last = ((axis if axis is not None else default) for axis, default in ((start, 1), (end, -1)))
        # `startDim` 1 counts a batch axis, which the shapes need not have
        first -= 1 if first >= 1 and x[0] != 1 and len(x) < 4 else 0
        first, last = first % len(x), last % len(x)
        if first > last:
            raise p.bad(f"startDim {start} lies behind endDim {end} of {text(x)}")
        return (*x[:first], prod(x[first : last + 1]), *x[last + 1 :])
    keep = 1 if len(x) > 1 and (x[0] == 1 or len(x) == 4) else 0
    if len(x) == 2 and not keep:
        p.note(f"{text(x)} is taken as one sample without a batch axis: {prod(x)} numbers (startDim says otherwise)")
    return (*x[:keep], prod(x[keep:]))


def permute_order(p: Place) -> list[int]:
    """Where each axis of the output comes from. `dims` may count a batch axis that the shape does not have."""
    x, (key, value) = p.x, p.setting("dims", "order", "axes", "perm")
    if value is None:  # transpose: two axes, the last two if none are given
        first, second = (p.given(name) if p.given(name) is not None else at for name, at in (("one", -2), ("two", -1)))
        order = list(range(len(x)))
        if not (-len(x) <= first < len(x) and -len(x) <= second < len(x)):
            raise p.bad(f"{first} and {second} are not both axes of {text(x)}")
        order[first], order[second] = order[second], order[first]
        return order
    items = [integer(item) for item in value] if isinstance(value, list) else []
    order, whole = [item for item in items if item is not None], None not in items
    if len(order) == len(x) + 1 and order[0] == 0:
        order = [item - 1 for item in order[1:]]
    order = [item % len(x) if -len(x) <= item < len(x) else -1 for item in order]
    if not whole or sorted(order) != list(range(len(x))):
        raise Mismatch(f"{key} {value!r} does not order the axes of {text(x)}")
    return order


def permute_shape(p: Place) -> Shape:
    return tuple(p.x[axis] for axis in p.order)


def permute_axis(p: Place) -> int:
    """The features move with their axis."""
    return p.order.index(len(p.x) + p.at) - len(p.x)


def chunk_shape(p: Place) -> Shape:
    """One of `chunks` equal parts of an axis (default: the features); with `start` and `end` that stretch."""
    x, axis = p.x, p.given("along")
    axis = p.at if axis is None else axis
    if not -len(x) <= axis < len(x):
        raise p.bad(f"axis {axis!r} is not an axis of {text(x)}")
    start, end, part = p.given("start"), p.given("end"), p.given("part")
    if start is not None or end is not None:
        count = len(range(x[axis])[start:end])
    elif part is not None:
        count = min(part, x[axis])
    else:
        count = x[axis] // p.chunks
        if x[axis] % p.chunks:
            raise Mismatch(f"{p.chunks} parts do not divide axis {axis} of {text(x)}")
    if not count:
        raise Mismatch(f"leaves nothing of {text(x)}")
    axis %= len(x)
    return (*x[:axis], count, *x[axis + 1 :])


def squeeze_shape(p: Place) -> Shape:
    """Without the axis `dim`, or without every axis of 1."""
    x, axis = p.x, p.given("along")
    if axis is None:
        return tuple(n for n in x if n != 1) or (1,)
    if not -len(x) <= axis < len(x):
        raise p.bad(f"axis {axis!r} is not an axis of {text(x)}")
    return x if x[axis] != 1 else (x[: axis % len(x)] + x[axis % len(x) + 1 :]) or (1,)


def unsqueeze_shape(p: Place) -> Shape:
    """With a new axis of 1 at `dim`."""
    x, axis = p.x, p.along
    if not -len(x) - 1 <= axis <= len(x):
        raise p.bad(f"axis {axis!r} is not an axis of {text(x)}")
    at = axis % (len(x) + 1)
    return (*x[:at], 1, *x[at:])


def reshape_shape(p: Place) -> Shape:
    """To `shape` (one axis may be -1). Raises Mismatch if the number of values changes."""
    x, (_, value) = p.x, p.setting("shape", "targetShape")
    items = [integer(item) for item in value] if isinstance(value, list) else []
    if not items or any(item is None or (item < 1 and item != -1) for item in items) or items.count(-1) > 1:
        raise p.bad(f"shape: expected positive whole numbers with at most one -1, got {value!r}")
    fixed = prod(item for item in items if item is not None and item != -1)
    found = tuple(prod(x) // fixed if item == -1 else item for item in items if item is not None)
    if prod(found) != prod(x):
        raise Mismatch(f"cannot reshape {text(x)} ({prod(x):,} values) to {text(found)} ({prod(found):,})", found)
    return found
