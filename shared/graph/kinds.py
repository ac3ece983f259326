"""The table of kinds: for each layer type its sizes, output shape, parameters, multiply-accumulates and memory.

`KINDS` at the end has one row for each kind; types that count alike share one. A formula is an expression in the sizes
of the row, such as "2 * width * inner". Besides them it may use `x`, the shape that comes in, `out`, the one that goes
out, and what `place.COMMON` names. A type that is not in the table is unknown: it is reported, its counts are None, and
None stays None in every total that it would belong to.

Shapes are tuples as the files write them: images [C, H, W] or [B, C, H, W], token ids [B, L], hidden states
[L, D] or [B, L, D]. A layer's features are its last axis, or the channel axis where only that one has the size.
"""

from __future__ import annotations

import re
from functools import partial
from math import prod

from shared.graph.place import Kind, Mismatch, Missing, Place, Shape, size, text
from shared.graph.read import integer

# features -------------------------------------------------------------------------------------------------------------

CHANNELS = "x[-3] if len(x) >= 3 else x[-1]"  # of an image, of a signal or of a flat vector
WIDTH = size("embedDim hiddenDim dModel dim", "x[-1]")
INNER = size("ffDim dFf ffnDim intermediateSize")
EMBEDDED = {"rows": size("numEmbeddings vocabSize"), "width": size("embeddingDim embedDim dim")}
LINEAR = {"width": size("inFeatures inDim inputSize", "x[-1]"), "outputs": size("outFeatures outDim projDim")}
FF = {
    "width": WIDTH,
    "inner": INNER,
    "matrices": 2,
    "ff_weights": "matrices * width * inner",
    "ff_biases": "bias * ((matrices - 1) * inner + width)",
    "ff_kept": "tokens * matrices * inner",
}
GATED = FF | {
    "width": size("embedDim dim dModel", "x[-1]"),
    # with a `dim` for the width, `hiddenDim` is the inner size
    "inner": size("ffDim dFf ffnDim intermediateSize hiddenDim"),
    "matrices": 3,
}
NORM = {"width": size("normalizedShape numFeatures embedDim hiddenDim dModel dim", "x[-1]", product=True)}
CHANNEL_NORM = {
    "width": size("numFeatures normalizedShape numChannels channels", CHANNELS, product=True),
    "groups": size("numGroups", 1),
}
POSITIONS = {"width": WIDTH, "longest": size("maxLen maxSeqLen")}


def same_width(p: Place) -> Shape:
    """Same shape; the features must be as declared."""
    p.axis(p.width)
    return p.x


def linear_shape(p: Place) -> Shape:
    """The features' axis is replaced. Two implied steps of public files are allowed and noted: several parents are
    concatenated, and trailing axes are flattened, where exactly that gives `inFeatures`."""
    out, features, x = p.outputs, p.width, p.x
    if x[-1] == features:
        return (*x[:-1], out)
    parents = [shape for shape in p.inputs if shape]
    if len(parents) > 1 and sum(shape[-1] for shape in parents) == features:
        p.note(f"its {len(parents)} parents are concatenated to {features} features")
        return (*min(parents, key=len)[:-1], out)
    for axis in range(len(x) - 1) if features not in x else ():
        if prod(x[axis:]) == features:
            p.note(f"{text(x)} is flattened to {features} features")
            return (*x[:axis], out)
    axis = p.axis(features, result=(*x[:-1], out))
    return (*x[:axis], out, *x[axis + 1 :])


def embedding_shape(p: Place) -> Shape:
    """[.., L] -> [.., L, D]. Without a parent it gives its whole table; a hidden-sized input is taken as its output."""
    width = p.width
    if not p.inputs:
        p.note("has no input: gives its whole table")
        return (p.rows, width)
    if len(p.x) >= 3 and p.x[-1] == width:
        p.note(f"its input {text(p.x)} is hidden-sized already: taken as the embedding's output")
        return p.x
    return (*p.x, width)


def norm_shape(p: Place) -> Shape:
    declared = p.shape_setting("normalizedShape")
    if len(declared) > 1 and p.x[-len(declared) :] != declared:
        raise Mismatch(f"normalises {text(declared)}, gets {text(p.x)}", p.x)
    if len(declared) == 1:
        p.axis(declared[0], result=p.x)
    return p.x


def channel_shape(p: Place) -> Shape:
    """Same shape; the channels must be as declared."""
    features = p.given("width")
    if features and features % p.groups:
        raise p.bad(f"{features} channels do not divide into {p.groups} groups")
    if features and features not in p.x[-3:]:
        raise Mismatch(f"expects {features} channels, gets {text(p.x)}", p.x)
    return p.x


def channel_norm_parameters(p: Place) -> int:
    """Two by channel; the running statistics are buffers, not parameters."""
    if not p.affine:
        return 0
    if p.given("width") is None and (len(p.x) == 2 or (len(p.x) == 3 and p.x[-1] != p.x[-2])):
        p.note(f"says no number of channels: {p.width} of {text(p.x)} is assumed")
    return 2 * p.width


def position_shape(p: Place) -> Shape:
    """Adds positions to the main input; a source without a parent has no shape of its own."""
    longest, x = p.given("longest"), p.x
    if longest and len(x) > 1 and x[-2] > longest:
        raise Mismatch(f"has {longest} positions for the {x[-2]} tokens of {text(x)}", x)
    return x


def position_parameters(p: Place) -> int:
    """`positionalEncoding` is learned unless its settings say that it is fixed."""
    fixed = p.setting("learned")[1] is False or str(p.setting("type", "encoding")[1]).startswith("sin")
    return 0 if fixed else p.longest * p.width


def active_experts(p: Place) -> int:
    """How many experts work on a token. Raises UserError if it is sent to more than there are."""
    if p.top > p.experts:
        raise p.bad(f"topK: {p.top} of {p.experts} experts cannot be chosen")
    return p.top + p.always_on


EXPERTS = {
    "width": WIDTH,
    "inner": size("expertDim intermediateSize ffDim dFf ffnDim"),
    "experts": size("numExperts"),
    "always_on": size("numSharedExperts", 0, least=0),
    "top": size("topK"),
    "active": active_experts,
}

# attention, recurrence and state space --------------------------------------------------------------------------------


def split_width(p: Place) -> int:
    """The size of one head where it is not given. Raises UserError where the width does not divide into the heads."""
    if p.width % p.heads:
        raise p.bad(f"{p.width} features do not divide into {p.heads} heads")
    if p.node.type == "mla":
        p.note(f"gives no head size: {p.width} / {p.heads} = {p.width // p.heads} is assumed")
    return p.width // p.heads


def key_features(p: Place) -> int:
    """Key heads x head size. Raises UserError where the heads do not divide into the key heads."""
    if p.heads % p.key_heads:
        raise p.bad(f"{p.heads} heads do not divide into {p.key_heads} key-value heads")
    return p.key_heads * p.head_size


def key_source(p: Place) -> Shape | None:
    """The shape that keys and values come from: a second parent whose features fit; None for self-attention.

    A parent of another width (a modulation) is no source of keys, except for cross attention, which takes a width of
    its own.
    """
    if len(p.inputs) < 2:
        return None
    other = p.inputs[1]
    if other is None:
        raise Missing("its second input")
    fits = p.node.type == "crossAttention" or other[-1] == (p.given("key_width") or p.width)
    return other if fits else None


def seen_keys(p: Place) -> int:
    """How many keys a query sees: all, a window, or a few blocks."""
    seen = min(p.key_tokens, p.window) if p.window else p.key_tokens
    if p.blocks and p.block:
        seen = min(seen, p.blocks * p.block)
        p.note(f"each query sees {p.blocks} blocks of {p.block} keys; compression and gates are not in its settings")
    return seen


def attention_shape(p: Place) -> Shape:
    shape = same_width(p)
    if len(p.inputs) > 1 and p.inputs[1] is not None and p.key_source is None:
        p.note("its second parent has another width: taken as a modulation, not as keys")
    return shape


def attention_macs(p: Place) -> int:
    """Projections, and both products over the keys that each query sees."""
    projections = p.length * 2 * p.width * p.queries
    if p.key_source is None and p.node.type == "crossAttention":
        p.note("its keys come from outside the graph: their projections and products are not counted")
        return p.sequences * projections
    projections += p.key_tokens * 2 * p.key_width * p.keys
    return p.sequences * (projections + p.products * p.length * p.seen * p.queries)


ATTENTION = {
    "width": WIDTH,
    "heads": size("numHeads"),
    "head_size": size("headDim", split_width),
    "key_heads": size("numKVHeads numKeyValueHeads", "heads"),
    "queries": "heads * head_size",
    "keys": key_features,
    "key_source": key_source,
    "key_width": size("kvDim", "key_source[-1] if key_source else width"),
    # features on a channel axis make all other axes one sequence
    "length": "tokens if x[-1] != width else x[-2] if len(x) > 1 else 1",
    "sequences": "tokens // length",
    "key_tokens": "length if key_source is None else key_source[-2] if len(key_source) > 1 else 1",
    "window": size("windowSize", 0),
    "blocks": size("topBlocks", 0),
    "block": size("blockSize", 0),
    "seen": seen_keys,
    "products": 2,  # q k^T, and weights v
    # projections of queries, keys, values and output
    "weights": "2 * width * queries + 2 * key_width * keys",
    "biases": "bias * (queries + 2 * keys + width)",
    "macs_once": attention_macs,
    # the scores and their softmax (no fused attention); q, k, v and the heads' output
    "scores": "2 * heads * length * seen",
    "kept_once": "sequences * (length * 2 * queries + key_tokens * 2 * keys + scores)",
}
# DeepSeek-V2, arXiv:2405.04434, section 2.1
LATENT = ATTENTION | {
    "head_size": size("headDim vHeadDim", split_width),
    "rope": size("ropeHeadDim", 0),
    "query_latent": size("qLatentDim", 0),
    "latent": size("kvLatentDim"),
    "queries": "heads * (head_size + rope)",
    "heads_out": "heads * head_size",
    "query_weights": "query_latent * (width + queries) if query_latent else width * queries",
    "weights": "query_weights + width * (latent + rope) + latent * 2 * heads_out + heads_out * width",
    "norms": "latent + query_latent",  # RMS norms of the two latents
}
BLOCK = ATTENTION | FF | {"layers": size("numLayers", 1)}
# Mamba, arXiv:2312.00752, section 3.4 and its defaults
MAMBA = {
    "width": WIDTH,
    "expand": size("expand", 2),
    "inner": "expand * width",
    "state": size("dState"),
    "conv": size("dConv", 4),
    "rank": size("dtRank", "ceil(width / 16)"),
    "products": "inner * (3 * width + conv + 2 * rank + 2 * state)",
}
RECURRENT = {
    "width": size("inputSize inFeatures", "x[-1]"),
    "hidden": size("hiddenSize"),
    "layers": size("numLayers", 1),
    "directions": "2 if flag('bidirectional', False) else 1",
    # of all layers and directions; a gate has a matrix for the input, one for the state, and two biases, as in torch
    "units": "directions * gates * hidden",
    "weights": "units * (width + hidden + (layers - 1) * (hidden * directions + hidden))",
    "biases": "bias * 2 * units * layers",
    "states": "layers * directions * (gates + 1) * hidden",  # kept: the gates and the state, at each token
}


def recurrent_shape(p: Place) -> Shape:
    """[.., L, in] -> [.., L, hidden], or [.., hidden] where `returnSequences` is false."""
    hidden = p.hidden * p.directions
    axis = p.axis(p.width, result=(*p.x[:-1], hidden))
    if not p.flag("returnSequences", True):
        return (*p.x[:-2], hidden)
    return (*p.x[:axis], hidden, *p.x[axis + 1 :])


def recurrent_macs(p: Place) -> int:
    if len(p.x) < 2:
        raise Missing("a sequence")
    return p.tokens * p.weights


# convolution and pooling over images [C, H, W] or [B, C, H, W] and signals [C, L], [B, C, L] or [B, L, C] -------------


def padding(p: Place) -> Shape:
    """Both sides of an axis together: an even kernel's `same` is not the same on both."""
    _, words = p.setting("padding")
    if words == "valid":
        return (0,) * p.axes
    if words == "same":
        return tuple(d * (k - 1) for k, d in zip(p.kernel, p.dilation, strict=True))
    return tuple(2 * side for side in p.each("padding", 0, 0))


def spatial(p: Place) -> Shape:
    """The input. Raises UserError if it has not as many axes as the kind needs."""
    words, ranks = (
        ("a signal [channels, length]", (2, 3, 4)) if p.axes == 1 else ("an image [channels, height, width]", (3, 4))
    )
    if len(p.x) not in ranks:
        raise p.bad(f"takes {words} with or without a batch, gets {text(p.x)}")
    return p.x


def channel_axis(p: Place) -> int:
    """Before the axes of the window; of a signal the last one where only that has the declared channels."""
    x, declared = spatial(p), p.given("channels")
    last = p.axes == 1 and declared and x[-1] == declared and x[-2] != declared
    return len(x) - 1 if last else len(x) - p.axes - 1


def check_channels(p: Place, result: Shape) -> Shape:
    """`result`; Mismatch if the input has other channels than the settings say."""
    declared = p.given("channels")
    if declared is not None and p.x[channel_axis(p)] != declared:
        raise Mismatch(f"expects {declared} channels, gets {text(p.x)}", result)
    return result


def windows(p: Place, axes: Shape) -> Shape:
    """How many windows fit along each of these axes."""
    found = []
    for n, k, s, d, both in zip(axes, p.kernel, p.stride, p.dilation, p.padding, strict=True):
        room = n + both - d * (k - 1) - 1
        if room < 0:
            raise Mismatch(f"its kernel {text(p.kernel)} is larger than its padded input {text(axes)}")
        last = -(-room // s) if p.round_up else room // s
        # a window that would start in the padding behind the input is left out, as torch does
        found.append(last if p.round_up and last * s >= n + both // 2 else last + 1)
    return tuple(found)


def conv_shape(p: Place) -> Shape:
    x, at = spatial(p), channel_axis(p)
    if at == len(x) - 1:
        p.note(f"its channels are the last axis of {text(x)}")
        return check_channels(p, (*x[:-2], *windows(p, x[-2:-1]), p.outputs))
    return check_channels(p, (*x[:at], p.outputs, *windows(p, x[at + 1 :])))


def conv_weights(p: Place) -> int:
    if p.channels % p.groups or p.outputs % p.groups:
        raise p.bad(f"{p.channels} and {p.outputs} channels do not divide into {p.groups} groups")
    return p.outputs * (p.channels // p.groups) * p.area


def transposed_shape(p: Place) -> Shape:
    x, sides, extra = spatial(p), p.each("padding", 0, 0), p.each("outputPadding", 0, 0)
    axes = tuple(
        (n - 1) * s - 2 * side + d * (k - 1) + 1 + e
        for n, s, side, k, e, d in zip(x[-2:], p.stride, sides, p.kernel, extra, p.dilation, strict=True)
    )
    if min(axes) < 1:
        raise Mismatch(f"its padding {text(sides)} leaves nothing of {text(x)}")
    return check_channels(p, (*x[:-3], p.outputs, *axes))


def patch_shape(p: Place) -> Shape:
    """[C, H, W] -> [patches, D]; a batch axis stays."""
    x, count = spatial(p), 1
    for n, k, s in zip(x[-2:], p.patch, p.stride, strict=True):
        if n < k:
            raise Mismatch(f"its patch {text(p.patch)} is larger than its input {text(x)}")
        count *= (n - k) // s + 1
    return check_channels(p, (*x[:-3], count, p.width))


def pool_shape(p: Place) -> Shape:
    x = spatial(p)
    return (*x[: -p.axes], *windows(p, x[-p.axes :]))


WINDOW = {
    "axes": 2,
    "kernel": "each('kernelSize poolSize')",
    "area": "prod(kernel)",
    "stride": "each('stride', 1)",
    "dilation": "each('dilation', 1)",
    "padding": padding,
    "round_up": False,
}
POOL = WINDOW | {"stride": "each('stride', kernel)", "round_up": "flag('ceilMode', False)"}
CONV = WINDOW | {
    "channels": size("inChannels inChans", lambda p: p.x[channel_axis(p)]),
    "outputs": size("outChannels"),
    "groups": size("groups", 1),
    "multiplier": size("depthMultiplier", 1),
    "depth": "channels * multiplier",
    "weights": conv_weights,
    "biases": "bias * outputs",
}
DEPTHWISE = CONV | {"outputs": size("outChannels", "depth"), "groups": "channels"}
# a depthwise kernel without bias, then a 1x1 convolution with one (Keras' SeparableConv2D)
SEPARABLE = CONV | {"weights": "depth * area + depth * outputs"}
PATCHES = {
    "axes": 2,
    "channels": size("inChannels inChans", "x[-3]"),
    "width": size("embedDim embeddingDim dim"),
    "patch": "each('patchSize')",
    "stride": "each('stride', patch)",
    "pixels": "channels * prod(patch)",
}
SQUEEZE = {
    "width": size("channels numChannels inChannels inChans", CHANNELS, product=True),
    "groups": 1,
    "reduction": size("reduction", 16),
    "inner": "max(1, width // reduction)",
}

# inputs, merges, reshapes, graph and recommendation networks ----------------------------------------------------------


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
    """[C, H, W] -> [C*H*W]; a leading axis of 1 before others is a batch and stays."""
    keep = 1 if len(p.x) > 1 and (p.x[0] == 1 or len(p.x) == 4) else 0
    return (*p.x[:keep], prod(p.x[keep:]))


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


def graph_macs(p: Place) -> int:
    found = p.tokens * p.matrices * p.width * p.outputs
    p.note("the neighbours' sum depends on the data: not counted")
    return found


def pairs_of_vectors(p: Place) -> int:
    """How many pairs the vectors of all parents make."""
    if len({shape[-1] for shape in p.xs}) > 1:
        raise Mismatch(f"cannot pair vectors of {' and '.join(map(text, p.xs))}", p.x)
    count = sum(prod(shape[:-1]) for shape in p.xs)
    return count * (count - 1) // 2


GRAPH = {"width": size("inChannels inFeatures", "x[-1]"), "outputs": size("outChannels outFeatures"), "matrices": 1}

# the table ------------------------------------------------------------------------------------------------------------

Norm = partial(Kind, family="normalisation")
Positions = partial(Kind, position_shape, sizes=POSITIONS, family="positions")
FeedForward = partial(Kind, same_width, "ff_weights + ff_biases", "tokens * ff_weights", "ff_kept + values")
Attention = partial(Kind, attention_shape, "weights + biases", "macs_once", "kept_once + values", family="attention")
Recurrent = partial(Kind, recurrent_shape, "weights + biases", recurrent_macs, "tokens * states")

# the types of a kind: shape, parameters, macs, kept, sizes
_TABLE = {
    "input": Kind(input_shape, kept=0),
    "output identity": Kind(kept=0),
    "dropout localResponseNorm": Kind(),
    "relu relu6 leakyRelu gelu elu swish silu mish hardswish sigmoid tanh softmax softplus": Kind(family="activation"),
    "prelu": Kind(parameters="slopes", sizes={"slopes": size("numParameters", 1)}, family="activation"),
    "linear projection": Kind(linear_shape, "(width + bias) * outputs", "values * width", sizes=LINEAR),
    "embedding": Kind(embedding_shape, "rows * width", sizes=EMBEDDED),
    # the bag's vectors are summed
    "embeddingBag": Kind(lambda p: (*p.x[:-1], p.width), "rows * width", sizes=EMBEDDED),
    # kept: the inner values before and after the non-linearity (and the gate), and the output
    "feedForward": FeedForward(FF),
    "swiglu geglu": FeedForward(GATED, biased=False),
    # a router and gated experts without biases; only the experts that a token is sent to compute
    "moeLayer sharedExpertMoE": Kind(
        same_width,
        "width * experts + (experts + always_on) * 3 * width * inner",
        "tokens * (width * experts + active * 3 * width * inner)",
        "tokens * active * 3 * inner + values",
        EXPERTS,
    ),
    "layerNorm": Norm(norm_shape, "width * (1 + bias) if affine else 0", sizes=NORM),
    "rmsNorm": Norm(norm_shape, "width if affine else 0", sizes=NORM),
    "batchNorm groupNorm": Norm(channel_shape, channel_norm_parameters, sizes=CHANNEL_NORM),
    # without a scale of its own unless it says so, as in torch
    "instanceNorm": Norm(
        channel_shape,
        channel_norm_parameters,
        sizes=CHANNEL_NORM | {"affine": "flag('affine', False) and flag('elementwiseAffine', True)"},
    ),
    "positionalEncoding": Positions(position_parameters),
    "learnedPositionalEmbedding": Positions("longest * width"),
    "rope alibi": Positions(kept=0),
    "multiHeadAttention causalAttention selfAttention crossAttention": Attention(ATTENTION),
    "groupedQueryAttention localAttention nativeSparseAttention": Attention(ATTENTION, biased=False),
    "mla": Kind(
        same_width,
        "weights + norms",
        "sequences * length * (weights + seen * (heads_out + (products - 1) * queries))",
        "sequences * (length * (norms + 2 * queries + 2 * heads_out) + scores) + values",
        LATENT,
        biased=False,
        family="attention",
    ),
    # attention, feed-forward and two layer norms, `numLayers` times
    "transformerBlock": Kind(
        same_width,
        "layers * (weights + biases + ff_weights + ff_biases + 4 * width)",
        "layers * (macs_once + tokens * ff_weights)",
        "layers * (kept_once + ff_kept + 4 * values)",
        BLOCK,
        family="attention",
    ),
    # projections and the convolution; the scan's element-wise recurrence is not a matrix product
    "mamba": Kind(
        same_width,
        "products + inner * (state + 3)",
        "tokens * products",
        "tokens * (4 * inner + rank + 2 * state) + values",
        MAMBA,
    ),
    "lstm": Recurrent(RECURRENT | {"gates": 4}),
    "gru": Recurrent(RECURRENT | {"gates": 3}),
    "rnn": Recurrent(RECURRENT | {"gates": 1}),
    "conv2d": Kind(conv_shape, "weights + biases", "values // outputs * weights", sizes=CONV),
    "depthwiseConv2d": Kind(conv_shape, "weights + biases", "values // outputs * weights", sizes=DEPTHWISE),
    "conv1d": Kind(conv_shape, "weights + biases", "values // outputs * weights", sizes=CONV | {"axes": 1}),
    "separableConv2d": Kind(conv_shape, "weights + biases", "values // outputs * weights", sizes=SEPARABLE),
    # each input pixel meets the whole kernel once
    "transposeConv2d": Kind(transposed_shape, "weights + biases", "prod(x) // x[-3] * weights", sizes=CONV),
    "patchEmbed": Kind(patch_shape, "width * (pixels + bias)", "values * pixels", sizes=PATCHES),
    "maxpool2d avgpool2d": Kind(pool_shape, sizes=POOL),
    "maxpool1d avgpool1d": Kind(pool_shape, sizes=POOL | {"axes": 1}),
    "globalAvgPool2d globalMaxPool2d": Kind(lambda p: spatial(p)[:-2], sizes={"axes": 2}),
    # over the tokens: [.., L, D] -> [.., D]
    "globalAvgPool1d globalMaxPool1d": Kind(lambda p: (*spatial(p)[:-2], p.x[-1]), sizes={"axes": 1}),
    "upsample": Kind(
        lambda p: (*spatial(p)[:-2], *(n * factor for n, factor in zip(p.x[-2:], p.each("scaleFactor"), strict=True))),
        sizes={"axes": 2},
    ),
    "seBlock": Kind(channel_shape, "2 * width * inner + inner + width", "2 * width * inner", sizes=SQUEEZE),
    "add multiply subtract average": Kind(broadcast_shape),
    "concatenate": Kind(concatenate_shape, sizes={"along": size("dim axis", least=-8)}),
    "matmul": Kind(matmul_shape, macs=lambda p: p.values * matrices(p)[0][-1]),
    "mean": Kind(mean_shape, sizes={"along": size("dim axis", -2, least=-8)}),
    "flatten": Kind(flatten_shape, kept=0),
    "reshape": Kind(reshape_shape, kept=0),
    # one matrix for the node, one with a bias for its neighbours: GraphSAGE, arXiv:1706.02216, algorithm 1
    "graphSAGE": Kind(linear_shape, "(2 * width + bias) * outputs", graph_macs, sizes=GRAPH | {"matrices": 2}),
    # no matrix where `useTransform` is false: LightGCN, arXiv:2002.02126, equation 3
    "graphConv": Kind(
        linear_shape,
        "(width + bias) * outputs if matrices else 0",
        graph_macs,
        sizes=GRAPH | {"matrices": "flag('useTransform', True)"},
    ),
    # dot products of all pairs, next to the first parent's vector: DLRM, arXiv:1906.00091, section 2.1.3
    "featureInteraction": Kind(
        lambda p: (pairs_of_vectors(p) + p.x[-1],), macs=lambda p: pairs_of_vectors(p) * p.x[-1]
    ),
}
KINDS = {type: kind for types, kind in _TABLE.items() for type in types.split()}


def of_family(family: str) -> frozenset[str]:
    return frozenset(type for type, kind in KINDS.items() if kind.family == family)


NORMALISATIONS, POSITION_TYPES = of_family("normalisation"), of_family("positions")


def label(type: str) -> str:
    """`multiHeadAttention` -> `Multi Head Attention`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type)
    return words[:1].upper() + words[1:]
