"""What a graph may lack of the model whose official count its file carries: candidates, never reasons.

A count says how many numbers are missing, not which. So every set of at most three candidates that fills the gap is
named, and none is called the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from shared.graph.kinds import ATTENTION_TYPES, POSITION_TYPES
from shared.graph.measure import Model

FITS = 0.002  # of the official count
MOST = 4  # sets that are named
ROTARY = frozenset({"rope", "alibi"})


@dataclass(frozen=True)
class Candidate:
    """`parameters` more than the graph has (negative: that it counts and the other does not)."""

    what: str
    parameters: int

    @property
    def kind(self) -> str:
        """Two of one kind exclude each other."""
        return self.what.partition(":")[0].partition(",")[0]


def candidates(model: Model) -> list[Candidate]:
    """What graphs are known to leave out, in the sizes of this one."""
    found = list(_table(model))
    found += list(_experts(model))
    attention = [layer for layer in model.layers if layer.type in ATTENTION_TYPES]
    biases = sum(
        (one.settings.get("outFeatures") or 0)
        for one in model.layers
        if one.type == "linear" and one.settings.get("bias") is False
    )
    found.append(Candidate("biases of the linear layers that the graph calls without one", biases))
    for length in (1024, 2048):
        words = f"causal masks stored with the weights: {len(attention)} attention layers x {length:,}^2"
        found.append(Candidate(words, len(attention) * length**2))
    return [one for one in dict.fromkeys(found) if one.parameters]


def _table(model: Model) -> Iterator[Candidate]:
    """An output layer, positions, a layer that predicts a further token: all of the embedding's width."""
    embedding = next((layer for layer in model.layers if layer.type == "embedding"), None)
    if embedding is None:
        return
    given = embedding.settings
    rows, width = given.get("numEmbeddings") or given.get("vocabSize"), None
    for key in ("embeddingDim", "embedDim", "dim"):
        width = width or given.get(key)
    if not isinstance(rows, int) or not isinstance(width, int):
        return
    size = f"{rows:,} x {width:,}"
    heads = [one for one in model.layers if one.type in ("linear", "lmHead") and rows in one.settings.values()]
    if not heads:
        yield Candidate(f"an output layer of its own: {size}, the graph has none", rows * width)
    for one in heads:
        if one.parameters and one.parameters >= rows * width:
            yield Candidate(f"an output layer tied to the embedding, which the graph counts: {size}", -rows * width)
    types = {layer.type for layer in model.layers}
    for length in {given.get("maxSeqLen"), 512, 1024, 2048} - {None}:
        if isinstance(length, int) and not types & POSITION_TYPES:
            words = f"learned positions: {length:,} x {width:,}, the graph has no position layer"
            yield Candidate(words, length * width)
    yield Candidate(f"token types: 2 x {width:,}", 2 * width)
    block = _block(model)
    if block:
        more = block + 2 * width * width
        yield Candidate("a layer that predicts a further token: one block and the layer before it", more)
        words = "a layer that predicts a further token, with its own embedding and output layer"
        yield Candidate(words, more + 2 * rows * width)


def _block(model: Model) -> int:
    """Parameters from the last attention layer to the next of the layers that repeat: the last block."""
    places = [at for at, layer in enumerate(model.layers) if layer.type in ATTENTION_TYPES]
    if len(places) < 2:
        return 0
    return sum(layer.parameters or 0 for layer in model.layers[places[-2] : places[-1]])


def _experts(model: Model) -> Iterator[Candidate]:
    rows = [layer.settings for layer in model.layers if layer.type in ("moeLayer", "sharedExpertMoE")]
    sizes = [
        (3 * one["embedDim"] * (one.get("expertDim") or 0), one.get("numExperts") or 0)
        for one in rows
        if isinstance(one.get("embedDim"), int) and isinstance(one.get("expertDim"), int)
    ]
    if not sizes or any(type(count) is not int for _, count in sizes):
        return
    if not any(one.get("numSharedExperts") for one in rows):
        words = f"one always-on expert in each of {len(sizes)} expert layers, the graph has none"
        yield Candidate(words, sum(each for each, _ in sizes))
    total = sum(each * count for each, count in sizes)
    for group in (32, 128):
        words = f"scales of 4-bit experts: one for each {group} of {total:,} expert weights"
        yield Candidate(words, total // group)


def fitting(model: Model, official: int) -> list[tuple[Candidate, ...]]:
    """Every set of at most three candidates that meets the official count, the smaller sets first."""
    gap, found = official - model.parameters, []
    for size in (1, 2, 3):
        for some in combinations(candidates(model), size):
            if len({one.kind for one in some}) < size:
                continue
            fits = abs(gap - sum(one.parameters for one in some)) <= FITS * official
            # a set that holds a smaller one says no more
            if fits and not any(set(other) < set(some) for other in found):
                found.append(some)
    return found


def missing(model: Model, official: int) -> str:
    """A sentence about the gap."""
    sets = fitting(model, official)
    if not sets:
        return "no reason is known"
    words = ["".join(" + " * bool(at) + f"{one.what} ({one.parameters:,})" for at, one in enumerate(s)) for s in sets]
    more = f"; and {len(words) - MOST} more sets" if len(words) > MOST else ""
    return f"the reason is not known; what would fill the gap: {'; or '.join(words[:MOST])}{more}"
