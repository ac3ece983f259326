"""Convolution and pooling: over images [C, H, W], signals [C, L] or volumes [C, D, H, W], each with or without a batch.

A signal may also come as [L, C], where only its last axis has the declared channels.
"""

from __future__ import annotations

from shared.graph.place import Mismatch, Place, Shape, size, text

# the features of an image, of a signal or of a flat vector, where nothing before it says
CHANNELS = "x[at] if at != -1 else x[-3] if len(x) >= 3 else x[-1]"


def padding(p: Place) -> Shape:
    """Both sides of an axis together: an even kernel's `same` is not the same on both."""
    _, words = p.setting("padding")
    if words == "valid":
        return (0,) * p.window_axes
    if words == "same":
        return tuple(d * (k - 1) for k, d in zip(p.kernel, p.dilation, strict=True))
    return tuple(2 * side for side in p.each("padding", 0, 0))


def spatial(p: Place) -> Shape:
    """The input. Raises UserError if it has not as many axes as the kind needs."""
    words, ranks = {
        1: ("a signal [channels, length]", (2, 3, 4)),
        2: ("an image [channels, height, width]", (3, 4)),
        3: ("a volume [channels, depth, height, width]", (4, 5)),
    }[p.window_axes]
    if len(p.x) not in ranks:
        raise p.bad(f"takes {words} with or without a batch, gets {text(p.x)}")
    return p.x


def channel_axis(p: Place) -> int:
    """Before the axes of the window; of a signal the last one where only that has the declared channels."""
    x, declared = spatial(p), p.given("channels")
    last = p.window_axes == 1 and declared and x[-1] == declared and x[-2] != declared
    return len(x) - 1 if last else len(x) - p.window_axes - 1


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
        for n, s, side, k, e, d in zip(x[-p.window_axes :], p.stride, sides, p.kernel, extra, p.dilation, strict=True)
    )
    if min(axes) < 1:
        raise Mismatch(f"its padding {text(sides)} leaves nothing of {text(x)}")
    return check_channels(p, (*x[: -p.window_axes - 1], p.outputs, *axes))


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
    return (*x[: -p.window_axes], *windows(p, x[-p.window_axes :]))


WINDOW = {
    "window_axes": 2,
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
    "window_axes": 2,
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


def conv_axis(p: Place) -> int:
    """Where the channels stand, from the end."""
    at = channel_axis(p)
    return -1 if at == len(p.x) - 1 else -p.window_axes - 1


def adaptive_shape(p: Place) -> Shape:
    """Pooled to `outputSize` along each axis, whatever comes in."""
    x = spatial(p)
    return (*x[: -p.window_axes], *p.each("outputSize", 1))


def pad_shape(p: Place) -> Shape:
    """`padding` on both sides of each axis of an image."""
    x, sides = spatial(p), p.each("padding", 0, 0)
    return (*x[: -p.window_axes], *(n + 2 * side for n, side in zip(x[-p.window_axes :], sides, strict=True)))


def shuffle_shape(p: Place) -> Shape:
    """[C * r^2, H, W] -> [C, H * r, W * r]"""
    x, r = spatial(p), p.factor
    if x[-3] % (r * r):
        raise Mismatch(f"its {r} x {r} pixels do not divide the {x[-3]} channels of {text(x)}")
    return (*x[:-3], x[-3] // (r * r), x[-2] * r, x[-1] * r)


def unshuffle_shape(p: Place) -> Shape:
    """[C, H * r, W * r] -> [C * r^2, H, W]"""
    x, r = spatial(p), p.factor
    if x[-1] % r or x[-2] % r:
        raise Mismatch(f"{r} does not divide {text(x)}")
    return (*x[:-3], x[-3] * r * r, x[-2] // r, x[-1] // r)


SHUFFLE = {"window_axes": 2, "factor": size("upscaleFactor factor scaleFactor")}
UNSHUFFLE = {"window_axes": 2, "factor": size("downscaleFactor factor")}
