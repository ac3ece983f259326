"""Convolution and pooling over images [C, H, W] or [B, C, H, W] and signals [C, L], [B, C, L] or [B, L, C]."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from shared.graph.layers import Kind, Mismatch, Place, Shape, same_shape, text
from shared.graph.layers_dense import EMBEDDED, channels

IN, OUT = ("inChannels", "inChans"), ("outChannels",)
IMAGE = "an image [channels, height, width] with or without a batch"


def _in_channels(place: Place) -> int:
    """Declared, by the convention of a row that lacks them, or the input's channel axis."""
    declared = place.size(*IN)
    if declared is not None:
        return declared
    if place.declared and place.convention.row_channels is not None:
        return place.convention.row_channels
    return place.x[_channel_axis(place)]


def _channel_axis(place: Place) -> int:
    x = place.x
    axes = 1 if place.node.type.endswith("1d") else 2
    declared = place.size(*IN)
    if axes == 1 and declared and x[-1] == declared and (len(x) < 2 or x[-2] != declared):
        return len(x) - 1
    return len(x) - axes - 1


def _padding(place: Place, kernel: Shape, dilation: Shape) -> Shape:
    """Both sides of an axis together: an even kernel's `same` is not the same on both."""
    words = place.setting("padding")
    if words == "valid":
        return (0,) * len(kernel)
    if words == "same":
        return tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
    return tuple(2 * side for side in place.pair("padding", default=0, axes=len(kernel), least=0))


def _windows(place: Place, spatial: Shape, *, stride: int | None, ceil: bool = False) -> Shape:
    """How many windows fit along each axis. `stride` None: a window's own size, as pools have it."""
    axes = len(spatial)
    kernel = place.pair("kernelSize", "poolSize", axes=axes)
    strides = kernel if stride is None and place.setting("stride") is None else place.pair(
        "stride", default=stride or 1, axes=axes
    )  # fmt: skip
    dilation = place.pair("dilation", default=1, axes=axes)
    padding = _padding(place, kernel, dilation)
    found = []
    for size, k, s, d, p in zip(spatial, kernel, strides, dilation, padding, strict=True):
        room = size + p - d * (k - 1) - 1
        if room < 0:
            raise Mismatch(f"its kernel {text(kernel)} is larger than its padded input {text(spatial)}")
        last = -(-room // s) if ceil else room // s
        # a window that would start in the padding behind the input is left out, as torch does
        found.append(last if ceil and last * s >= size + p // 2 else last + 1)
    return tuple(found)


def _expect_channels(place: Place, axis: int, found: Shape) -> None:
    declared = place.size(*IN)
    if declared is not None and place.x[axis] != declared:
        raise Mismatch(f"expects {declared} channels, gets {text(place.x)}", found)


def conv2d_shape(place: Place) -> Shape:
    x = place.rank(3, 4, words=IMAGE)
    found = (*x[:-3], _out_channels(place), *_windows(place, x[-2:], stride=1))
    _expect_channels(place, len(x) - 3, found)
    return found


def conv1d_shape(place: Place) -> Shape:
    x = place.rank(2, 3, 4, words="a signal [channels, length] with or without a batch")
    axis = _channel_axis(place)
    if axis == len(x) - 1:
        place.note(f"its channels are the last axis of {text(x)}")
        found = (*x[:-2], *_windows(place, x[-2:-1], stride=1), _out_channels(place))
    else:
        found = (*x[:-2], _out_channels(place), *_windows(place, x[-1:], stride=1))
    _expect_channels(place, axis, found)
    return found


def _out_channels(place: Place) -> int:
    if place.node.type.startswith("depthwise"):
        multiplier = place.size("depthMultiplier") or 1
        return place.size(*OUT) or _in_channels(place) * multiplier
    return place.need(*OUT)


def _kernel(place: Place) -> int:
    return prod(place.pair("kernelSize", axes=1 if place.node.type.endswith("1d") else 2))


def _groups(place: Place) -> int:
    if place.node.type.startswith("depthwise"):
        return _in_channels(place)
    return place.size("groups") or 1


def _weights(place: Place) -> int:
    incoming, out, groups = _in_channels(place), _out_channels(place), _groups(place)
    if incoming % groups or out % groups:
        raise place.bad(f"{incoming} and {out} channels do not divide into {groups} groups")
    return out * (incoming // groups) * _kernel(place)


def conv_parameters(place: Place) -> int:
    return _weights(place) + (_out_channels(place) if place.bias() else 0)


def conv_macs(place: Place) -> int:
    out = prod(_shape_function(place)(place))
    return out // _out_channels(place) * _weights(place)


def _shape_function(place: Place) -> Callable[[Place], Shape]:
    return conv1d_shape if place.node.type.endswith("1d") else conv2d_shape


# separable and transposed ---------------------------------------------------------------------------------------------


def _separable(place: Place) -> tuple[int, int, int]:
    """(input channels, depthwise channels, output channels)."""
    incoming = _in_channels(place)
    return incoming, incoming * (place.size("depthMultiplier") or 1), place.need(*OUT)


def separable_parameters(place: Place) -> int:
    """A depthwise kernel without bias, then a 1x1 convolution with one (Keras' SeparableConv2D)."""
    _, depth, out = _separable(place)
    return depth * _kernel(place) + depth * out + (out if place.bias() else 0)


def separable_macs(place: Place) -> int:
    _, depth, out = _separable(place)
    places = prod(conv2d_shape(place)) // out
    return places * (depth * _kernel(place) + depth * out)


def transposed_shape(place: Place) -> Shape:
    x = place.rank(3, 4, words=IMAGE)
    kernel = place.pair("kernelSize")
    stride = place.pair("stride", default=1)
    padding = place.pair("padding", default=0, least=0)
    extra = place.pair("outputPadding", default=0, least=0)
    dilation = place.pair("dilation", default=1)
    spatial = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + e
        for n, s, p, k, e, d in zip(x[-2:], stride, padding, kernel, extra, dilation, strict=True)
    )
    found = (*x[:-3], place.need(*OUT), *spatial)
    if min(spatial) < 1:
        raise Mismatch(f"its padding {text(padding)} leaves nothing of {text(x)}")
    _expect_channels(place, len(x) - 3, found)
    return found


def transposed_macs(place: Place) -> int:
    """Each input pixel meets the whole kernel once."""
    x = place.rank(3, 4, words=IMAGE)
    return prod(x) // x[-3] * _weights(place)


# patches, pools, squeeze and excitation -------------------------------------------------------------------------------


def patch_shape(place: Place) -> Shape:
    """[C, H, W] -> [patches, D]; a batch axis stays."""
    x = place.rank(3, 4, words=IMAGE)
    size = place.pair("patchSize")
    stride = size if place.setting("stride") is None else place.pair("stride")
    count = 1
    for side, p, s in zip(x[-2:], size, stride, strict=True):
        if side < p:
            raise Mismatch(f"its patch {text(size)} is larger than its input {text(x)}")
        count *= (side - p) // s + 1
    found = (*x[:-3], count, place.need(*EMBEDDED))
    _expect_channels(place, len(x) - 3, found)
    return found


def _patch_channels(place: Place) -> int:
    """A patch embedding that does not say reads colour images."""
    return place.size(*IN) or (3 if place.declared else place.x[-3])


def patch_parameters(place: Place) -> int:
    width = place.need(*EMBEDDED)
    return width * _patch_channels(place) * prod(place.pair("patchSize")) + (width if place.bias() else 0)


def patch_macs(place: Place) -> int:
    return prod(patch_shape(place)) * _patch_channels(place) * prod(place.pair("patchSize"))


def pool2d_shape(place: Place) -> Shape:
    x = place.rank(3, 4, words=IMAGE)
    return (*x[:-2], *_windows(place, x[-2:], stride=None, ceil=place.flag("ceilMode", False)))


def pool1d_shape(place: Place) -> Shape:
    x = place.rank(2, 3, 4, words="a signal [channels, length]")
    return (*x[:-1], *_windows(place, x[-1:], stride=None, ceil=place.flag("ceilMode", False)))


def global2d_shape(place: Place) -> Shape:
    """[.., C, H, W] -> [.., C]."""
    return place.rank(3, 4, words=IMAGE)[:-2]


def global1d_shape(place: Place) -> Shape:
    """Mean over the tokens: [.., L, D] -> [.., D]."""
    x = place.rank(2, 3, 4, words="a sequence [tokens, features]")
    return (*x[:-2], x[-1])


def upsample_shape(place: Place) -> Shape:
    x = place.rank(3, 4, words=IMAGE)
    factor = place.pair("scaleFactor")
    return (*x[:-2], *(n * f for n, f in zip(x[-2:], factor, strict=True)))


def _squeezed(place: Place) -> tuple[int, int]:
    count = channels(place, "channels", "numChannels", *IN)
    return count, max(1, count // (place.size("reduction") or 16))


def squeeze_shape(place: Place) -> Shape:
    count, _ = _squeezed(place)
    if count not in place.x[-3:]:
        raise Mismatch(f"expects {count} channels, gets {text(place.x)}", place.x)
    return place.x


def squeeze_parameters(place: Place) -> int:
    count, inner = _squeezed(place)
    return 2 * count * inner + inner + count


def squeeze_macs(place: Place) -> int:
    count, inner = _squeezed(place)
    return 2 * count * inner


_CONV2D = Kind(conv2d_shape, conv_parameters, conv_macs)
KINDS = {
    "conv2d": _CONV2D,
    "depthwiseConv2d": _CONV2D,
    "conv1d": Kind(conv1d_shape, conv_parameters, conv_macs),
    "separableConv2d": Kind(conv2d_shape, separable_parameters, separable_macs),
    "transposeConv2d": Kind(transposed_shape, conv_parameters, transposed_macs),
    "patchEmbed": Kind(patch_shape, patch_parameters, patch_macs),
    **{name: Kind(pool2d_shape) for name in ("maxpool2d", "avgpool2d")},
    **{name: Kind(pool1d_shape) for name in ("maxpool1d", "avgpool1d")},
    **{name: Kind(global2d_shape) for name in ("globalAvgPool2d", "globalMaxPool2d")},
    **{name: Kind(global1d_shape) for name in ("globalAvgPool1d", "globalMaxPool1d")},
    "upsample": Kind(upsample_shape),
    "seBlock": Kind(squeeze_shape, squeeze_parameters, squeeze_macs),
    "localResponseNorm": Kind(same_shape),
}
