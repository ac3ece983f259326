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
from shared.graph.reshapes import (
    broadcast_shape,
    chunk_shape,
    concatenate_shape,
    flatten_shape,
    input_shape,
    matmul_shape,
    matrices,
    mean_shape,
    permute_axis,
    permute_order,
    permute_shape,
    reshape_shape,
    squeeze_shape,
    unsqueeze_shape,
)
from shared.graph.windows import (
    CHANNELS,
    CONV,
    DEPTHWISE,
    PATCHES,
    POOL,
    SEPARABLE,
    SHUFFLE,
    SQUEEZE,
    UNSHUFFLE,
    adaptive_shape,
    conv_axis,
    conv_shape,
    pad_shape,
    patch_shape,
    pool_shape,
    shuffle_shape,
    spatial,
    transposed_shape,
    unshuffle_shape,
)

# features -------------------------------------------------------------------------------------------------------------

WIDTH = size("embedDim hiddenDim dModel dim", "features")
INNER = size("ffDim dFf ffnDim intermediateSize")
EMBEDDED = {"rows": size("numEmbeddings vocabSize"), "width": size("embeddingDim embedDim dim")}
LINEAR = {
    "sides": "width + outputs",
    "width": size("inFeatures inDim inputSize", "features"),
    "outputs": size("outFeatures outDim projDim"),
}
FF = {
    "width": WIDTH,
    "inner": INNER,
    "matrices": 2,
    "ff_weights": "matrices * width * inner",
    "ff_biases": "bias * ((matrices - 1) * inner + width)",
    "ff_kept": "tokens * matrices * inner",
    "sides": "matrices * (width + inner)",
}
GATED = FF | {
    "width": size("embedDim dim dModel", "features"),
    # with a `dim` for the width, `hiddenDim` is the inner size
    "inner": size("ffDim dFf ffnDim intermediateSize hiddenDim"),
    "matrices": 3,
}
NORM = {"width": size("normalizedShape numFeatures embedDim hiddenDim dModel dim", "features", product=True)}
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
    return (*looked_up(p), width)


def bag_shape(p: Place) -> Shape:
    """[.., L] -> [.., D]: the bag's vectors are summed."""
    return (*looked_up(p)[:-1], p.width)


def looked_up(p: Place) -> Shape:
    """What comes in, if it may be whole numbers."""
    image = len(p.x) == 3 and p.x[0] in (1, 3, 4) and p.x[1] == p.x[2] >= 8
    if len(p.x) > 3 or image:
        raise Mismatch(f"looks up whole numbers, gets {text(p.x)}, an image")
    if p.origins and p.origins[0] in COMPUTED:
        raise Mismatch(f"looks up whole numbers, gets what a layer of type {p.origins[0]} computes")
    return p.x


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
    tokens = 1 if len(x) < 2 else x[-1] if p.at == -2 else x[-2]
    if longest and tokens > longest:
        raise Mismatch(f"has {longest} positions for the {tokens} tokens of {text(x)}", x)
    return x


def position_parameters(p: Place) -> int:
    """`positionalEncoding` is learned unless its settings say that it is fixed."""
    fixed = not p.flag("learned", True) or str(p.setting("type", "encoding")[1]).startswith("sin")
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
    "working": "width * experts + active * 3 * width * inner",
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
    wanted = p.given("key_width") or p.width
    fits = p.node.type == "crossAttention" or wanted in other[-2:]
    return other if fits else None


def key_axis(p: Place) -> int:
    """Which axis of the keys' source holds its features, from the end: the one of the declared width, or else the one
    that the layers before it say; never the tokens of a source [features, tokens]."""
    source, said = p.key_source or (), p.axes[1] if len(p.axes) > 1 else None
    wanted = p.given("key_width") or p.width
    tagged = said if said is not None and len(source) >= -said else -1
    for axis in (tagged, -1, -2):
        if len(source) >= -axis and source[axis] == wanted:
            if axis != -1:
                p.note(f"its keys' {wanted} features are axis {len(source) + axis + 1} of {text(source)}")
            return axis
    if p.given("key_width") is not None:
        raise Mismatch(f"expects keys of {wanted} features, gets {text(source)}", p.x)
    return tagged


def key_count(p: Place) -> int:
    """How many tokens the keys come from."""
    if p.key_source is None:
        return p.length
    others = [size for at, size in enumerate(p.key_source) if at != len(p.key_source) + p.key_axis]
    return prod(others[-1:] if p.key_axis in (-1, -2) else others)


def seen_keys(p: Place) -> int:
    """How many keys a query sees: all, a window, or a few blocks."""
    seen = min(p.key_tokens, p.window) if p.window else p.key_tokens
    if p.blocks and p.block:
        seen = min(seen, p.blocks * p.block)
        p.note(f"each query sees {p.blocks} blocks of {p.block} keys; compression and gates are not in its settings")
    return seen


def attention_shape(p: Place) -> Shape:
    shape = same_width(p)
    if p.key_source is not None:
        p.key_axis  # noqa: B018 - raises where the source's features are not the declared ones
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
    "key_axis": key_axis,
    "key_width": size("kvDim", "key_source[key_axis] if key_source else width"),
    # features on a channel axis make all other axes one sequence
    "length": "tokens if x[-1] != width or at != -1 else x[-2] if len(x) > 1 else 1",
    "sequences": "tokens // length",
    "key_tokens": key_count,
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
    "sides": "2 * (width + queries) + 2 * (key_width + keys)",
    "cached": "2 * keys",
}
# DeepSeek-V2, arXiv:2405.04434, section 2.1
LATENT = ATTENTION | {
    # of a query and a key without their positions, and of a value
    "head_size": size("headDim qkNopeHeadDim nopeHeadDim", "given('value_size') or split"),
    "split": split_width,
    "value_size": size("vHeadDim valueHeadDim", "head_size"),
    "rope": size("ropeHeadDim qkRopeHeadDim", 0, least=0),
    "query_latent": size("qLatentDim qLoraRank", 0, least=0),
    "latent": size("kvLatentDim kvLoraRank"),
    "queries": "heads * (head_size + rope)",
    "heads_out": "heads * value_size",
    "query_weights": "query_latent * (width + queries) if query_latent else width * queries",
    "key_weights": "width * (latent + rope) + latent * heads * (head_size + value_size)",
    "weights": "query_weights + key_weights + heads_out * width",
    "norms": "latent + query_latent",  # RMS norms of the two latents
    "query_sides": "width + 2 * query_latent + queries if query_latent else width + queries",
    "key_sides": "width + 2 * latent + rope + heads * (head_size + value_size)",
    "sides": "query_sides + key_sides + heads_out + width",
    "cached": "latent + rope",  # the latent that keys and values are made of, and the positions' part of the keys
}
BLOCK = ATTENTION | FF | {"layers": size("numLayers", 1)}
BLOCK |= {"sides": "layers * (2 * (width + queries) + 2 * (key_width + keys) + matrices * (width + inner))"}
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
    "width": size("inputSize inFeatures", "features"),
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


PERMUTED = {"order": permute_order, "one": size("dim0", least=-8), "two": size("dim1", least=-8)}
CHUNK = {
    "along": size("dim axis", least=-8),
    "chunks": size("chunks numChunks numSplits splits sections", 2),
    "part": size("splitSize"),
    "start": size("start", least=-(10**12)),
    "end": size("end", least=-(10**12)),
}
GRAPH = {"width": size("inChannels inFeatures", "features"), "outputs": size("outChannels outFeatures"), "matrices": 1}

# the table ------------------------------------------------------------------------------------------------------------

Norm = partial(Kind, family="normalisation")
Positions = partial(Kind, position_shape, sizes=POSITIONS, family="positions")
FeedForward = partial(Kind, same_width, "ff_weights + ff_biases", "tokens * ff_weights", "ff_kept + values")
Attention = partial(
    Kind, attention_shape, "weights + biases", "macs_once", "kept_once + values", family="attention", rank=2
)
Convolution = partial(Kind, conv_shape, "weights + biases", "values // outputs * weights", axis=conv_axis)
Transposed = partial(Kind, transposed_shape, "weights + biases", "prod(x) // channels * weights", axis=conv_axis)
Pool = partial(Kind, axis=lambda p: -p.window_axes - 1)  # channels stand before the axes of the window
Recurrent = partial(Kind, recurrent_shape, "weights + biases", recurrent_macs, "tokens * states", rank=2)

# the types of a kind: shape, parameters, macs, kept, sizes
_TABLE = {
    "input": Kind(input_shape, kept=0),
    "output identity cast": Kind(kept=0),
    "dropout dropout1d dropout2d dropout3d alphaDropout dropPath stochasticDepth localResponseNorm": Kind(),
    "relu relu6 leakyRelu squaredRelu gelu quickGelu elu selu celu swish silu mish": Kind(family="activation"),
    "hardswish hardSwish hardsigmoid hardSigmoid hardtanh softplus softsign": Kind(family="activation"),
    "sigmoid logSigmoid tanh softmax logSoftmax": Kind(family="activation"),
    # half of the features gate the other half
    "glu": Kind(chunk_shape, sizes=CHUNK | {"chunks": 2}, family="activation"),
    "prelu": Kind(parameters="slopes", sizes={"slopes": size("numParameters", 1)}, family="activation"),
    "linear projection dense": Kind(linear_shape, "(width + bias) * outputs", "values * width", sizes=LINEAR),
    "embedding": Kind(embedding_shape, "rows * width", sizes=EMBEDDED, axis="-1", rank=1),
    # logits over a vocabulary
    "lmHead": Kind(
        linear_shape,
        "(width + bias) * outputs",
        "values * width",
        sizes={
            "width": size("embedDim inFeatures hiddenDim dModel dim", "features"),
            "outputs": size("vocabSize outFeatures numClasses"),
        },
        biased=False,
    ),
    "layerScale": Kind(channel_shape, "width", sizes={"width": NORM["width"]}),
    "embeddingBag": Kind(bag_shape, "rows * width", sizes=EMBEDDED, axis="-1", rank=1),
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
    "multiHeadAttention causalAttention selfAttention crossAttention flashAttention": Attention(ATTENTION),
    "groupedQueryAttention localAttention slidingWindowAttention nativeSparseAttention": Attention(
        ATTENTION, biased=False
    ),
    "multiQueryAttention": Attention(ATTENTION | {"key_heads": size("numKVHeads numKeyValueHeads", 1)}, biased=False),
    # in windows of windowSize x windowSize patches: Swin, arXiv:2103.14030, equation 2
    "windowAttention shiftedWindowAttention": Attention(ATTENTION | {"seen": "min(key_tokens, window * window)"}),
    "mla": Kind(
        same_width,
        "weights + norms",
        "sequences * length * (weights + seen * (heads_out + (products - 1) * queries))",
        "sequences * (length * (norms + 2 * queries + 2 * heads_out) + scores) + values",
        LATENT,
        biased=False,
        family="attention",
        rank=2,
    ),
    # attention, feed-forward and two layer norms, `numLayers` times
    "transformerBlock": Kind(
        same_width,
        "layers * (weights + biases + ff_weights + ff_biases + 4 * width)",
        "layers * (macs_once + tokens * ff_weights)",
        "layers * (kept_once + ff_kept + 4 * values)",
        BLOCK,
        family="attention",
        rank=2,
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
    "bidirectionalLSTM bidirectionalLstm biLSTM": Recurrent(RECURRENT | {"gates": 4, "directions": 2}),
    "bidirectionalGRU bidirectionalGru biGRU": Recurrent(RECURRENT | {"gates": 3, "directions": 2}),
    "conv2d": Convolution(sizes=CONV, rank=3),
    "conv1d": Convolution(sizes=CONV | {"window_axes": 1}, rank=2),
    "conv3d": Convolution(sizes=CONV | {"window_axes": 3}, rank=4),
    "depthwiseConv2d": Convolution(sizes=DEPTHWISE, rank=3),
    "depthwiseConv1d": Convolution(sizes=DEPTHWISE | {"window_axes": 1}, rank=2),
    "pointwiseConv2d": Convolution(sizes=CONV | {"kernel": "(1, 1)"}, rank=3),
    "separableConv2d": Convolution(sizes=SEPARABLE, rank=3),
    # each input pixel meets the whole kernel once
    "transposeConv2d convTranspose2d": Transposed(sizes=CONV, rank=3),
    "transposeConv1d convTranspose1d": Transposed(sizes=CONV | {"window_axes": 1}, rank=2),
    "transposeConv3d convTranspose3d": Transposed(sizes=CONV | {"window_axes": 3}, rank=4),
    "patchEmbed": Kind(patch_shape, "width * (pixels + bias)", "values * pixels", sizes=PATCHES, axis="-1", rank=3),
    "maxpool2d avgpool2d": Pool(pool_shape, sizes=POOL, rank=3),
    "maxpool1d avgpool1d": Pool(pool_shape, sizes=POOL | {"window_axes": 1}),
    "maxpool3d avgpool3d": Pool(pool_shape, sizes=POOL | {"window_axes": 3}, rank=4),
    "adaptiveAvgPool1d adaptiveMaxPool1d": Pool(adaptive_shape, sizes={"window_axes": 1}),
    "adaptiveAvgPool2d adaptiveMaxPool2d": Pool(adaptive_shape, sizes={"window_axes": 2}, rank=3),
    "adaptiveAvgPool3d adaptiveMaxPool3d": Pool(adaptive_shape, sizes={"window_axes": 3}, rank=4),
    "globalAvgPool2d globalMaxPool2d": Kind(lambda p: spatial(p)[:-2], sizes={"window_axes": 2}, axis="-1", rank=3),
    "globalAvgPool3d globalMaxPool3d": Kind(lambda p: spatial(p)[:-3], sizes={"window_axes": 3}, axis="-1", rank=4),
    # over the tokens: [.., L, D] -> [.., D], or of what a convolution gives [C, L] -> [C]
    "globalAvgPool1d globalMaxPool1d": Kind(
        lambda p: (*spatial(p)[:-2], p.features), sizes={"window_axes": 1}, axis="-1"
    ),
    "pixelShuffle": Pool(shuffle_shape, sizes=SHUFFLE, rank=3),
    "pixelUnshuffle spaceToDepth": Pool(unshuffle_shape, sizes=UNSHUFFLE, rank=3),
    "zeroPad2d pad2d reflectionPad2d": Pool(pad_shape, sizes={"window_axes": 2}, rank=3),
    "upsample": Kind(
        lambda p: (*spatial(p)[:-2], *(n * factor for n, factor in zip(p.x[-2:], p.each("scaleFactor"), strict=True))),
        sizes={"window_axes": 2},
    ),
    "seBlock": Kind(channel_shape, "2 * width * inner + inner + width", "2 * width * inner", sizes=SQUEEZE),
    "add multiply subtract average residual residualAdd skipConnection sum maximum divide": Kind(broadcast_shape),
    "concatenate": Kind(concatenate_shape, sizes={"along": size("dim axis", least=-8)}),
    "matmul": Kind(matmul_shape, macs=lambda p: p.values * matrices(p)[0][-1]),
    "mean": Kind(mean_shape, sizes={"along": size("dim axis", -2, least=-8)}),
    "flatten": Kind(
        flatten_shape, kept=0, sizes={"start": size("startDim", least=-8), "end": size("endDim", least=-8)}, axis="-1"
    ),
    "reshape view": Kind(reshape_shape, kept=0, axis="-1"),
    "permute": Kind(permute_shape, kept=0, sizes=PERMUTED, axis=permute_axis),
    "transpose": Kind(permute_shape, kept=0, sizes=PERMUTED, axis=permute_axis),
    "squeeze": Kind(squeeze_shape, kept=0, sizes={"along": size("dim axis", least=-8)}, axis="-1"),
    "unsqueeze": Kind(unsqueeze_shape, kept=0, sizes={"along": size("dim axis", 0, least=-8)}),
    "split chunk slice": Kind(chunk_shape, kept=0, sizes=CHUNK),
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


ATTENTION_TYPES = of_family("attention")
# whose output is computed: no list of whole numbers for an embedding to look up
COMPUTED = frozenset(type for type, kind in KINDS.items() if kind.macs != 0 or kind.family)
NORMALISATIONS, POSITION_TYPES = of_family("normalisation"), of_family("positions")


def label(type: str) -> str:
    """`multiHeadAttention` -> `Multi Head Attention`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type)
    return words[:1].upper() + words[1:]
