"""Why a graph's count is not the official count of the model that it draws.

A graph leaves things out, and an official count holds things that are no trained weights. Each candidate here is a
general rule with a size that follows from the graph alone. `explain` looks for the fewest candidates that together
close the gap, and says so only if they do: no rule knows a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from shared.graph.layers_attention import BIASED
from shared.graph.layers_dense import OUT, VOCABULARY
from shared.graph.measure import Model
from shared.graph.read import integer

TOLERANCE = 0.02  # an official count within 2 % is met
CLOSED = 0.002  # a gap is explained when what is left is below 0.2 % of the official count
ATTENTION = BIASED | {"groupedQueryAttention", "localAttention", "mla", "nativeSparseAttention"}


@dataclass(frozen=True)
class Omission:
    """Something that the graph does not hold, and how many numbers it would add."""

    words: str
    parameters: int


@dataclass(frozen=True)
class Explanation:
    """`within`: the counts agree to 2 %. Otherwise `omissions` close the gap to `left` of the official count, or are
    empty: then no rule explains it."""

    counted: int
    official: int
    within: bool
    omissions: tuple[Omission, ...]
    left: float

    @property
    def difference(self) -> float:
        """Counted against official, as a share."""
        return self.counted / self.official - 1


def explain(model: Model) -> Explanation | None:
    """None for a graph that carries no official count."""
    official = model.official_parameters
    if not official:
        return None
    gap = official - model.parameters
    within = abs(gap) <= TOLERANCE * official
    if within:
        return Explanation(model.parameters, official, True, (), -gap / official)
    candidates = omissions(model)
    for size in range(1, len(candidates) + 1):
        # of equally few candidates the set that leaves least
        best = min(combinations(candidates, size), key=lambda some: abs(gap - sum(o.parameters for o in some)))
        left = sum(o.parameters for o in best) - gap
        if abs(left) <= CLOSED * official:
            return Explanation(model.parameters, official, False, best, left / official)
    return Explanation(model.parameters, official, False, (), -gap / official)


def omissions(model: Model) -> list[Omission]:
    """What this graph may lack, by general rules."""
    found = []
    embeddings = [layer for layer in model.layers if layer.type == "embedding"]
    attentions = [layer for layer in model.layers if layer.type in ATTENTION]
    experts = [layer for layer in model.layers if layer.type in ("moeLayer", "sharedExpertMoE")]
    longest = max((_size(layer, "maxSeqLen") for layer in embeddings), default=0)
    positions = any(
        layer.type in ("positionalEncoding", "learnedPositionalEmbedding", "rope", "alibi")
        or "ropeHeadDim" in layer.settings
        for layer in model.layers
    )
    if longest and not positions:
        width = max(_size(layer, "embeddingDim") for layer in embeddings)
        found.append(
            Omission(f"learned positions: {longest:,} x {width:,}, the graph has no position layer", longest * width)
        )
        found.append(
            Omission(
                f"causal masks stored with the weights: {len(attentions)} attention layers x {longest:,}^2",
                len(attentions) * longest**2,
            )
        )
    for layer in embeddings:
        rows, width = _size(layer, *VOCABULARY), _size(layer, "embeddingDim")
        heads = [head for head in model.layers if head.type == "linear" and _size(head, *OUT) == rows]
        if rows and width and not heads:
            words = f"an output layer of its own: {rows:,} x {width:,}, the graph has none"
            found.append(Omission(words, rows * width))
            break
    if experts:
        each = [3 * _size(layer, "embedDim") * _size(layer, "expertDim") for layer in experts]
        all_of = sum(one * _size(layer, "numExperts") for one, layer in zip(each, experts, strict=True))
        if not any(_size(layer, "numSharedExperts") for layer in experts):
            found.append(
                Omission(f"one always-on expert in each of {len(experts)} expert layers, the graph has none", sum(each))
            )
        found.append(Omission(f"scales of 4-bit experts: one for each 32 of {all_of:,} expert weights", all_of // 32))
    return [omission for omission in found if omission.parameters]


def _size(layer, *keys: str) -> int:
    return next((integer(layer.settings[key]) or 0 for key in keys if layer.settings.get(key) is not None), 0)
