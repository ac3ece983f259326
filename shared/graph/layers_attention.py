"""Attention, blocks that contain it, and the state-space layer that stands in its place.

One count serves all: projections of queries, keys, values and output, and the two products of every query with the
keys that it sees. What differs between the types is the number of key heads, the keys that a query sees, and biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from shared.graph.layers import Kind, Missing, Place, Shape
from shared.graph.layers_dense import FF, WIDTH, ff_kept, ff_macs, ff_parameters

HEADS = ("numHeads",)
BIASED = frozenset({"multiHeadAttention", "causalAttention", "selfAttention", "crossAttention", "transformerBlock"})


@dataclass(frozen=True)
class Heads:
    """Sizes of one attention layer: `queries` = heads x head size, `keys` = key-value heads x head size."""

    width: int
    heads: int
    queries: int
    keys: int


def heads(place: Place) -> Heads:
    """Raises UserError where the width does not divide into the heads, or the heads into the key heads."""
    width = place.width(*WIDTH)
    count = place.need(*HEADS)
    size = place.size("headDim")
    if size is None:
        if width % count:
            raise place.bad(f"{width} features do not divide into {count} heads")
        size = width // count
    key_heads = place.size("numKVHeads", "numKeyValueHeads") or count
    if count % key_heads:
        raise place.bad(f"{count} heads do not divide into {key_heads} key-value heads")
    return Heads(width, count, count * size, key_heads * size)


def _keys_from(place: Place) -> Shape | None:
    """The shape that keys and values come from: a second parent whose features fit; None for self-attention.

    A parent of another width (a modulation) is no source of keys, except for cross attention, which takes a width of
    its own.
    """
    if len(place.inputs) < 2:
        return None
    other = place.inputs[1]
    if other is None:
        raise Missing("its second input")
    crossing = place.node.type == "crossAttention"
    expected = place.size("kvDim") or place.width(*WIDTH)
    return other if crossing or other[-1] == expected else None


def _key_width(place: Place) -> int:
    if place.declared:
        return place.size("kvDim") or place.width(*WIDTH)
    source = _keys_from(place)
    return place.size("kvDim") or (source[-1] if source else place.width(*WIDTH))


def attention_shape(place: Place) -> Shape:
    """The main input's shape; its features must be as declared."""
    sizes = heads(place)
    place.axis(sizes.width)
    if len(place.inputs) > 1 and place.inputs[1] is not None and _keys_from(place) is None:
        place.note("its second parent has another width: taken as a modulation, not as keys")
    return place.x


def attention_parameters(place: Place) -> int:
    """q, k, v and output projections, with biases where the type has them (`bias` overrides)."""
    sizes = heads(place)
    weights = 2 * sizes.width * sizes.queries + 2 * _key_width(place) * sizes.keys
    type = place.node.type
    if type in place.convention.unbiased or not place.bias(type in BIASED):
        return weights
    return weights + sizes.queries + 2 * sizes.keys + sizes.width


def _key_tokens(place: Place, length: int) -> int:
    """How many keys there are for a sequence of `length` queries."""
    source = _keys_from(place)
    if source is None or not place.convention.own_key_length:
        return length
    return source[-2] if len(source) > 1 else 1


def _lengths(place: Place, width: int) -> tuple[int, int, int]:
    """(sequences, queries a sequence, keys a query sees). A channel axis makes all other axes one sequence."""
    x = place.x
    tokens = place.tokens(width)
    if x[-1] != width:
        sequences, length = 1, tokens
    else:
        length = x[-2] if len(x) > 1 else 1
        sequences = tokens // length
    keys = _key_tokens(place, length)
    window = place.size("windowSize")
    if window:
        keys = min(keys, window)
    blocks, block = place.size("topBlocks"), place.size("blockSize")
    if blocks and block:
        keys = min(keys, blocks * block)
        place.note(f"each query sees {blocks} blocks of {block} keys; compression and gates are not in its settings")
    return sequences, length, keys


def attention_macs(place: Place) -> int:
    """Projections, and both products over the keys that each query sees."""
    sizes = heads(place)
    sequences, length, keys = _lengths(place, sizes.width)
    source = _keys_from(place)
    key_tokens = _key_tokens(place, length)
    if source is None and place.node.type == "crossAttention" and not place.declared:
        place.note("its keys come from outside the graph: their projections and products are not counted")
        return sequences * length * 2 * sizes.width * sizes.queries
    projections = length * 2 * sizes.width * sizes.queries + key_tokens * 2 * _key_width(place) * sizes.keys
    products = place.convention.attention_products * length * keys * sizes.queries
    return sequences * (projections + products)


def attention_kept(place: Place, shape: Shape) -> int:
    """q, k, v, the scores and their softmax (no fused attention), the heads' output, the output."""
    sizes = heads(place)
    sequences, length, keys = _lengths(place, sizes.width)
    inner = length * 2 * sizes.queries + _key_tokens(place, length) * 2 * sizes.keys
    return sequences * (inner + 2 * sizes.heads * length * keys) + prod(shape)


# multi-head latent attention ------------------------------------------------------------------------------------------


def _latent(place: Place) -> tuple[int, int, int, int, int, int]:
    """(width, heads, head size, rope size, query latent or 0, key latent): DeepSeek-V2, arXiv:2405.04434, 2.1."""
    width, count = place.width(*WIDTH), place.need(*HEADS)
    head = place.size("headDim", "vHeadDim")
    if head is None:
        if width % count:
            raise place.bad(f"{width} features do not divide into {count} heads")
        head = width // count
        place.note(f"gives no head size: {width} / {count} = {head} is assumed")
    return width, count, head, place.size("ropeHeadDim") or 0, place.size("qLatentDim") or 0, place.need("kvLatentDim")


def latent_shape(place: Place) -> Shape:
    place.axis(_latent(place)[0])
    return place.x


def latent_parameters(place: Place) -> int:
    width, count, head, rope, query, latent = _latent(place)
    queries = count * (head + rope)
    query_weights = width * query + query * queries if query else width * queries
    key_weights = width * (latent + rope) + latent * count * 2 * head
    return query_weights + key_weights + count * head * width + latent + query  # the latents' RMS norms


def latent_macs(place: Place) -> int:
    width, count, head, rope, query, latent = _latent(place)
    sequences, length, keys = _lengths(place, width)
    products = count * (head + rope) + count * head if place.convention.attention_products == 2 else count * head
    return sequences * length * (latent_parameters(place) - latent - query + keys * products)


def latent_kept(place: Place, shape: Shape) -> int:
    width, count, head, rope, query, latent = _latent(place)
    sequences, length, keys = _lengths(place, width)
    inner = length * (query + latent + count * (2 * (head + rope) + 2 * head))
    return sequences * (inner + 2 * count * length * keys) + prod(shape)


# a whole block --------------------------------------------------------------------------------------------------------


def _layers(place: Place) -> int:
    return place.size("numLayers") or 1


def block_shape(place: Place) -> Shape:
    place.axis(heads(place).width)
    place.need(*FF)
    return place.x


def block_parameters(place: Place) -> int:
    """Attention, feed-forward and two layer norms, `numLayers` times."""
    once = attention_parameters(place) + ff_parameters(place) + 4 * heads(place).width
    return _layers(place) * once


def block_macs(place: Place) -> int:
    return _layers(place) * (attention_macs(place) + ff_macs(place))


def block_kept(place: Place, shape: Shape) -> int:
    return _layers(place) * (attention_kept(place, shape) + ff_kept(place, shape) + 2 * prod(shape))


# state space ----------------------------------------------------------------------------------------------------------


def _state(place: Place) -> tuple[int, int, int, int, int]:
    """(width, inner, state, convolution, rank of the step). Mamba, arXiv:2312.00752, section 3.4 and its defaults."""
    width = place.width(*WIDTH)
    inner = (place.size("expand") or 2) * width
    return width, inner, place.need("dState"), place.size("dConv") or 4, place.size("dtRank") or ceil(width / 16)


def mamba_shape(place: Place) -> Shape:
    place.axis(_state(place)[0])
    return place.x


def mamba_parameters(place: Place) -> int:
    width, inner, state, conv, rank = _state(place)
    selection = inner * (rank + 2 * state) + rank * inner + inner
    return width * 2 * inner + inner * (conv + 1) + selection + inner * state + inner + inner * width


def mamba_macs(place: Place) -> int:
    """Projections and the convolution; the scan's element-wise recurrence is not a matrix product."""
    width, inner, state, conv, rank = _state(place)
    each = width * 2 * inner + inner * conv + inner * (rank + 2 * state) + rank * inner + inner * width
    return place.tokens(width) * each


def mamba_kept(place: Place, shape: Shape) -> int:
    width, inner, state, _, rank = _state(place)
    return place.tokens(width) * (4 * inner + rank + 2 * state) + prod(shape)


def recurrent_shape(place: Place) -> Shape:
    """[.., L, in] -> [.., L, hidden], or [.., hidden] where `returnSequences` is false."""
    hidden = place.need("hiddenSize") * (2 if place.flag("bidirectional", False) else 1)
    features = place.size("inputSize", "inFeatures")
    axis = place.axis(features, result=(*place.x[:-1], hidden)) if features else len(place.x) - 1
    x = place.x
    if not place.flag("returnSequences", True):
        return (*x[:-2], hidden)
    return (*x[:axis], hidden, *x[axis + 1 :])


def _recurrent(place: Place, gates: int, biases: int) -> int:
    """Weights (and biases: torch keeps two a gate) of all layers and directions."""
    hidden, features = place.need("hiddenSize"), place.width("inputSize", "inFeatures")
    directions = 2 if place.flag("bidirectional", False) else 1
    first = features + hidden + biases
    later = hidden * directions + hidden + biases
    return directions * gates * hidden * (first + (_layers(place) - 1) * later)


def _recurrent_kind(gates: int) -> Kind:
    def macs(place: Place) -> int:
        features = place.width("inputSize", "inFeatures")
        if len(place.x) < 2:
            raise Missing("a sequence")
        return place.tokens(features) * _recurrent(place, gates, 0)

    def kept(place: Place, shape: Shape) -> int:
        features = place.width("inputSize", "inFeatures")
        directions = 2 if place.flag("bidirectional", False) else 1
        return place.tokens(features) * _layers(place) * directions * (gates + 1) * place.need("hiddenSize")

    return Kind(recurrent_shape, lambda place: _recurrent(place, gates, 2 if place.bias() else 0), macs, kept)


KINDS = {
    **dict.fromkeys(
        ("multiHeadAttention", "causalAttention", "selfAttention", "crossAttention", "groupedQueryAttention",
         "localAttention", "nativeSparseAttention"),
        Kind(attention_shape, attention_parameters, attention_macs, attention_kept),
    ),
    "mla": Kind(latent_shape, latent_parameters, latent_macs, latent_kept),
    "transformerBlock": Kind(block_shape, block_parameters, block_macs, block_kept),
    "mamba": Kind(mamba_shape, mamba_parameters, mamba_macs, mamba_kept),
    "lstm": _recurrent_kind(4),
    "gru": _recurrent_kind(3),
    "rnn": _recurrent_kind(1),
}  # fmt: skip
