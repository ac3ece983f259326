"""Layers of matrix products over the features: linear, embedding, feed-forward, experts, normalisation, positions."""

from __future__ import annotations

from math import prod

from shared.graph.layers import Kind, Mismatch, Place, Shape, no_memory, same_shape, text

IN = ("inFeatures", "inDim", "inputSize")
OUT = ("outFeatures", "outDim", "projDim")
WIDTH = ("embedDim", "hiddenDim", "dModel", "dim")
FF = ("ffDim", "dFf", "ffnDim", "intermediateSize")
VOCABULARY = ("numEmbeddings", "vocabSize")
EMBEDDED = ("embeddingDim", "embedDim", "dim")


# linear ---------------------------------------------------------------------------------------------------------------


def linear_shape(place: Place) -> Shape:
    """The features' axis is replaced. Two implied steps of public files are allowed and noted: several parents are
    concatenated, and trailing axes are flattened, where exactly that gives `inFeatures`."""
    out, features = place.need(*OUT), place.size(*IN)
    x = place.x
    if features is None or x[-1] == features:
        return (*x[:-1], out)
    parents = [shape for shape in place.inputs if shape]
    if len(parents) > 1 and sum(shape[-1] for shape in parents) == features:
        place.note(f"its {len(parents)} parents are concatenated to {features} features")
        return (*min(parents, key=len)[:-1], out)
    for axis in range(len(x) - 1) if features not in x else ():
        if prod(x[axis:]) == features:
            place.note(f"{text(x)} is flattened to {features} features")
            return (*x[:axis], out)
    axis = place.axis(features, result=(*x[:-1], out))
    return (*x[:axis], out, *x[axis + 1 :])


def _linear_in(place: Place) -> int:
    return place.width(*IN)


def linear_parameters(place: Place) -> int:
    out = place.need(*OUT)
    return _linear_in(place) * out + (out if place.bias() else 0)


def linear_macs(place: Place) -> int:
    return prod(linear_shape(place)) * _linear_in(place)


# embedding ------------------------------------------------------------------------------------------------------------


def embedding_shape(place: Place) -> Shape:
    """[.., L] -> [.., L, D]. Without a parent it gives its whole table; a hidden-sized input is taken as its output."""
    width = place.need(*EMBEDDED)
    if not place.inputs:
        place.note("has no input: gives its whole table")
        return (place.need(*VOCABULARY), width)
    x = place.x
    if len(x) >= 3 and x[-1] == width:
        place.note(f"its input {text(x)} is hidden-sized already: taken as the embedding's output")
        return x
    return (*x, width)


def bag_shape(place: Place) -> Shape:
    """[.., N] -> [.., D]: the bag's vectors are summed."""
    return (*place.x[:-1], place.need(*EMBEDDED))


def embedding_parameters(place: Place) -> int:
    return place.need(*VOCABULARY) * place.need(*EMBEDDED)


# feed-forward and experts ---------------------------------------------------------------------------------------------


def wide_shape(place: Place) -> Shape:
    """Same shape; the features must be as declared."""
    width = place.size(*WIDTH)
    if width is not None:
        place.axis(width)
    return place.x


def _ff(place: Place) -> tuple[int, int]:
    return place.width(*WIDTH), place.need(*FF)


def ff_parameters(place: Place) -> int:
    width, inner = _ff(place)
    return 2 * width * inner + (inner + width if place.bias() else 0)


def ff_macs(place: Place) -> int:
    width, inner = _ff(place)
    return place.tokens(width) * 2 * width * inner


def ff_kept(place: Place, shape: Shape) -> int:
    """The inner activations before and after the non-linearity, and the output."""
    width, inner = _ff(place)
    return place.tokens(width) * 2 * inner + prod(shape)


def _gated(place: Place) -> tuple[int, int]:
    """A gated feed-forward's `hiddenDim` is its inner size, because `dim` is its width."""
    return place.width("embedDim", "dim", "dModel"), place.need("intermediateSize", "hiddenDim", *FF)


def gated_shape(place: Place) -> Shape:
    place.axis(_gated(place)[0])
    return place.x


def gated_parameters(place: Place) -> int:
    width, inner = _gated(place)
    return 3 * width * inner + (2 * inner + width if place.bias(False) else 0)


def gated_macs(place: Place) -> int:
    width, inner = _gated(place)
    return place.tokens(width) * 3 * width * inner


def gated_kept(place: Place, shape: Shape) -> int:
    width, inner = _gated(place)
    return place.tokens(width) * 3 * inner + prod(shape)


def _experts(place: Place) -> tuple[int, int, int, int]:
    """(width, inner, experts, always-on experts)."""
    shared = place.size("numSharedExperts", least=0) or 0
    inner = place.need("expertDim", "intermediateSize", *FF)
    return place.width(*WIDTH), inner, place.need("numExperts"), shared


def _routed(place: Place) -> int:
    """How many experts a token is sent to. Raises UserError for more than there are."""
    chosen, experts = place.need("topK"), place.need("numExperts")
    if chosen > experts:
        raise place.bad(f"topK: {chosen} of {experts} experts cannot be chosen")
    return chosen


def experts_parameters(place: Place) -> int:
    """A router and gated experts without biases."""
    width, inner, experts, shared = _experts(place)
    return width * experts + (experts + shared) * 3 * width * inner


def experts_macs(place: Place) -> int:
    """Only the experts that a token is sent to compute."""
    width, inner, experts, shared = _experts(place)
    return place.tokens(width) * (width * experts + (_routed(place) + shared) * 3 * width * inner)


def experts_kept(place: Place, shape: Shape) -> int:
    width, inner, _, shared = _experts(place)
    return place.tokens(width) * (_routed(place) + shared) * 3 * inner + prod(shape)


# normalisation --------------------------------------------------------------------------------------------------------


def _normalised(place: Place) -> int:
    declared = place.shape_setting("normalizedShape")
    return prod(declared) if declared else place.width("numFeatures", *WIDTH)


def norm_shape(place: Place) -> Shape:
    declared = place.shape_setting("normalizedShape")
    if declared and len(declared) > 1:
        if place.x[-len(declared) :] != declared:
            raise Mismatch(f"normalises {text(declared)}, gets {text(place.x)}", place.x)
    elif declared:
        place.axis(declared[0], result=place.x)
    return place.x


def _affine(place: Place) -> bool:
    """Whether a normalisation has a scale of its own; an instance norm only where it says so (as in torch)."""
    usual = place.node.type != "instanceNorm"
    return place.flag("affine", usual) and place.flag("elementwiseAffine", True)


def layer_norm_parameters(place: Place) -> int:
    return _normalised(place) * (2 if place.bias() else 1) if _affine(place) else 0


def rms_norm_parameters(place: Place) -> int:
    return _normalised(place) if _affine(place) else 0


def channels(place: Place, *keys: str) -> int:
    """The declared channels, or the channel axis of an image, a signal or a flat vector."""
    declared = place.shape_setting(*keys)
    if declared:
        return prod(declared)
    x = place.x
    return x[-3] if len(x) >= 3 else x[-1]


BATCH_NORM = ("numFeatures", "normalizedShape", "numChannels", "channels")


def batch_norm_shape(place: Place) -> Shape:
    if place.setting(*BATCH_NORM) is not None:
        features = channels(place, *BATCH_NORM)
        if features not in place.x[-3:]:
            raise Mismatch(f"normalises {features} channels, gets {text(place.x)}", place.x)
    return place.x


def batch_norm_parameters(place: Place) -> int:
    """Two by channel; the running statistics are buffers, not parameters."""
    if not _affine(place):
        return 0
    found = channels(place, *BATCH_NORM)
    if place.setting(*BATCH_NORM) is None and (len(place.x) == 2 or (len(place.x) == 3 and place.x[-1] != place.x[-2])):
        place.note(f"says no number of channels: {found} of {text(place.x)} is assumed")
    return 2 * found


def group_norm_shape(place: Place) -> Shape:
    groups, features = place.size("numGroups"), place.size("numChannels", "numFeatures")
    if groups and features and features % groups:
        raise place.bad(f"{features} channels do not divide into {groups} groups")
    return batch_norm_shape(place)


def norm_macs(place: Place) -> int:
    return place.convention.norm_macs * prod(place.x) if place.convention.norm_macs else 0


def activation_macs(place: Place) -> int:
    return place.convention.activation_macs * prod(place.x) if place.convention.activation_macs else 0


# positions ------------------------------------------------------------------------------------------------------------


def position_shape(place: Place) -> Shape | None:
    """Adds positions to the main input; a source without a parent has no shape of its own."""
    if not place.inputs:
        return None
    longest, x = place.size("maxLen", "maxSeqLen"), place.x
    if longest and len(x) > 1 and x[-2] > longest:
        raise Mismatch(f"has {longest} positions for the {x[-2]} tokens of {text(x)}", x)
    return x


def learned_parameters(place: Place) -> int:
    return place.need("maxLen", "maxSeqLen") * place.width(*WIDTH)


def encoding_parameters(place: Place) -> int:
    """`positionalEncoding` is learned unless its settings say that it is fixed."""
    fixed = place.setting("learned") is False or str(place.setting("type", "encoding")).startswith("sin")
    return 0 if fixed or not place.convention.learned_positions else learned_parameters(place)


def prelu_parameters(place: Place) -> int:
    return place.size("numParameters") or 1


KINDS = {
    **{name: Kind(linear_shape, linear_parameters, linear_macs) for name in ("linear", "projection")},
    "embedding": Kind(embedding_shape, embedding_parameters),
    "embeddingBag": Kind(bag_shape, embedding_parameters),
    "feedForward": Kind(wide_shape, ff_parameters, ff_macs, ff_kept),
    **{name: Kind(gated_shape, gated_parameters, gated_macs, gated_kept) for name in ("swiglu", "geglu")},
    **{
        name: Kind(wide_shape, experts_parameters, experts_macs, experts_kept)
        for name in ("moeLayer", "sharedExpertMoE")
    },
    "layerNorm": Kind(norm_shape, layer_norm_parameters, norm_macs),
    "rmsNorm": Kind(norm_shape, rms_norm_parameters, norm_macs),
    "batchNorm": Kind(batch_norm_shape, batch_norm_parameters, norm_macs),
    "instanceNorm": Kind(batch_norm_shape, batch_norm_parameters, norm_macs),
    "groupNorm": Kind(group_norm_shape, batch_norm_parameters, norm_macs),
    "positionalEncoding": Kind(position_shape, encoding_parameters, positions=True),
    "learnedPositionalEmbedding": Kind(position_shape, learned_parameters, positions=True),
    **{name: Kind(position_shape, kept=no_memory, positions=True) for name in ("rope", "alibi")},
    **{
        name: Kind(same_shape, macs=activation_macs)
        for name in (
            "relu", "relu6", "leakyRelu", "gelu", "elu", "swish", "silu", "mish", "hardswish", "sigmoid", "tanh",
            "softmax", "softplus",
        )
    },
    "prelu": Kind(same_shape, prelu_parameters, activation_macs),
    "dropout": Kind(same_shape),
    "identity": Kind(same_shape, kept=no_memory),
}  # fmt: skip
