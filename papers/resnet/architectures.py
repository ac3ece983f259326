"""The paper's networks as plain data, and what they cost: counted layer by layer, without PyTorch.

    imagenet(34)                      ResNet-34 as in Table 1: option A
    imagenet(50, stride_in="3x3")     ResNet-50 with the stride where torchvision has it
    imagenet(18, shortcuts="none")    plain-18
    cifar(20), cifar(1202, "B")       section 4.2: 6n + 2 layers
    vgg(19)                           VGG-19, the paper's yardstick

`papers.resnet.networks` builds the torch module of each; the tests hold both to the same counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from shared.errors import UserError

# What adds a block's input to its output (section 3.3). "A": the input itself, padded with zero channels where there
# are more; "B": a 1x1 projection there; "C": a projection in every block; "none": a plain net.
Shortcuts = Literal["none", "A", "B", "C"]
# Where a bottleneck that halves the image has its stride. The paper (and its released models): in the first 1x1.
StrideIn = Literal["1x1", "3x3"]

IMAGENET_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
CIFAR_DEPTHS = (20, 32, 44, 56, 110, 1202)  # Table 6
VGG_LAYERS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # 3x3 convolutions between the poolings


@dataclass(frozen=True)
class Conv:
    """A convolution without biases, before a batch normalisation; padded so that stride 1 keeps the image's size."""

    width_in: int
    width: int
    kernel: int
    stride: int = 1

    @property
    def weights(self) -> int:
        return self.kernel**2 * self.width_in * self.width


@dataclass(frozen=True)
class Pool:
    """A max pooling, padded so that stride 1 would keep the image's size."""

    kernel: int
    stride: int


@dataclass(frozen=True)
class Block:
    """relu(convs(x) + shortcut(x)); without a shortcut relu(convs(x))."""

    convs: tuple[Conv, ...]
    shortcut: Literal["none", "identity", "pad", "projection"]

    @property
    def width_in(self) -> int:
        return self.convs[0].width_in

    @property
    def width(self) -> int:
        return self.convs[-1].width

    @property
    def stride(self) -> int:
        return prod(conv.stride for conv in self.convs)

    @property
    def weights(self) -> int:
        """Of its convolutions on the path; its multiply-adds for one pixel where the stride is 1."""
        return sum(conv.weights for conv in self.convs)

    @property
    def projection(self) -> Conv | None:
        return Conv(self.width_in, self.width, 1, self.stride) if self.shortcut == "projection" else None


@dataclass(frozen=True)
class Layer:
    """One layer with weights as it is counted. `size`: the side of its output in pixels; a linear layer has 1.

    after: its biases ("biases"), or the scale and shift of the batch normalisation behind it ("norm").
    """

    kind: Literal["conv", "linear"]
    kernel: int
    width_in: int
    width: int
    size: int
    after: Literal["biases", "norm"]
    stage: int
    shortcut: bool = False

    @property
    def weights(self) -> int:
        return self.kernel**2 * self.width_in * self.width

    @property
    def parameters(self) -> int:
        return self.weights + self.width * (2 if self.after == "norm" else 1)

    @property
    def multiply_adds(self) -> int:
        """Of one image: every weight is used once for each pixel of the output. Biases and norms are not counted."""
        return self.weights * self.size**2


@dataclass(frozen=True)
class ResNet:
    """A residual or plain network: a convolution, perhaps a pooling, stages of blocks, a mean, a linear layer.

    In `layers` the first convolution is stage 0, the linear layer stands in the last one.
    """

    name: str
    image_size: int
    stem: Conv
    pool: Pool | None
    stages: tuple[tuple[Block, ...], ...]
    classes: int

    @property
    def blocks(self) -> list[Block]:
        return [block for blocks in self.stages for block in blocks]

    def layers(self) -> Iterator[Layer]:
        def convolution(conv: Conv, size: int, stage: int, shortcut: bool = False) -> Layer:
            return Layer("conv", conv.kernel, conv.width_in, conv.width, size, "norm", stage, shortcut)

        size = self.image_size // self.stem.stride
        yield convolution(self.stem, size, 0)
        size //= self.pool.stride if self.pool else 1
        for stage, blocks in enumerate(self.stages, start=1):
            for block in blocks:
                if block.projection:
                    yield convolution(block.projection, size // block.stride, stage, shortcut=True)
                for conv in block.convs:
                    size //= conv.stride
                    yield convolution(conv, size, stage)
        yield Layer("linear", 1, self.stages[-1][-1].width, self.classes, 1, "biases", len(self.stages) + 1)


@dataclass(frozen=True)
class VGG:
    """3x3 convolutions with biases, a 2x2 pooling after every stage, three linear layers."""

    name: str
    stages: tuple[tuple[Conv, ...], ...]
    linear: tuple[tuple[int, int], ...]
    image_size: int = 224

    def layers(self) -> Iterator[Layer]:
        for stage, convs in enumerate(self.stages):
            for conv in convs:
                yield Layer("conv", 3, conv.width_in, conv.width, self.image_size >> stage, "biases", stage)
        for width_in, width in self.linear:
            yield Layer("linear", 1, width_in, width, 1, "biases", len(self.stages))


Network = ResNet | VGG


# what a network costs ------------------------------------------------------------------------------------------------


def weighted_layers(network: Network) -> int:
    """The depth in a network's name: layers with weights, but for projections beside the path."""
    return sum(not layer.shortcut for layer in network.layers())


def projections(network: Network) -> int:
    return sum(layer.shortcut for layer in network.layers())


def output_sizes(network: Network) -> dict[int, int]:
    """Stage -> side of its output in pixels."""
    return {layer.stage: layer.size for layer in network.layers() if not layer.shortcut}


def parameters(network: Network, *, norms: bool = True, linear: bool = True) -> int:
    """Trained numbers. Without `norms`: no scale and shift of a normalisation; without `linear`: convolutions only."""
    counted = (layer for layer in network.layers() if linear or layer.kind == "conv")
    return sum(layer.weights if layer.after == "norm" and not norms else layer.parameters for layer in counted)


def multiply_adds(network: Network, *, linear: bool = True) -> int:
    """Of one image's forward pass, in convolutions and (with `linear`) in linear layers."""
    return sum(layer.multiply_adds for layer in network.layers() if linear or layer.kind == "conv")


# the paper's networks ------------------------------------------------------------------------------------------------


def cifar(depth: int, shortcuts: Shortcuts = "A") -> ResNet:
    """Section 4.2: 3x3 convolutions on 32, 16 and 8 pixels with 16, 32 and 64 filters, n = (depth - 2) / 6 blocks each.

    Raises UserError for a depth that is not 6n + 2.
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        near = 6 * max(1, round((depth - 2) / 6)) + 2
        raise UserError(f"no network of section 4.2 has {depth} layers; a depth is 6n + 2, for instance {near}")
    stages, width_in = [], 16
    for stage, width in enumerate((16, 32, 64)):
        stages.append(_stage(width_in, (width, width), (3, 3), blocks, shortcuts, stride_at=0 if stage else None))
        width_in = width
    return ResNet(_name(depth, shortcuts), 32, Conv(3, 16, 3), None, tuple(stages), classes=10)


def imagenet(depth: int, shortcuts: Shortcuts | None = None, stride_in: StrideIn = "1x1") -> ResNet:
    """Table 1. `shortcuts`: the paper's own where None: A for 18 and 34 layers (Table 2), B for more (section 4.1).

    stride_in: matters for bottlenecks (50 layers and more) alone. Raises UserError for another depth.
    """
    if depth not in IMAGENET_BLOCKS:
        raise UserError(f"Table 1 has no network of {depth} layers; expected one of {_listed(IMAGENET_BLOCKS)}")
    bottleneck = depth >= 50
    shortcuts = shortcuts or ("B" if bottleneck else "A")
    stages, width_in = [], 64
    for stage, (width, blocks) in enumerate(zip((64, 128, 256, 512), IMAGENET_BLOCKS[depth], strict=True)):
        widths, kernels = ((width, width, 4 * width), (1, 3, 1)) if bottleneck else ((width, width), (3, 3))
        # a stage halves the size in its first block's first convolution, or in a bottleneck's 3x3, the second one
        stride_at = (1 if bottleneck and stride_in == "3x3" else 0) if stage else None
        stages.append(_stage(width_in, widths, kernels, blocks, shortcuts, stride_at))
        width_in = widths[-1]
    return ResNet(_name(depth, shortcuts), 224, Conv(3, 64, 7, 2), Pool(3, 2), tuple(stages), classes=1000)


def vgg(depth: int) -> VGG:
    """VGG-16 or VGG-19 (configurations D and E of its paper). Raises UserError for another depth."""
    if depth not in VGG_LAYERS:
        raise UserError(f"no VGG of {depth} layers here; expected one of {_listed(VGG_LAYERS)}")
    stages, width_in = [], 3
    for width, count in zip((64, 128, 256, 512, 512), VGG_LAYERS[depth], strict=True):
        stages.append((Conv(width_in, width, 3), *[Conv(width, width, 3)] * (count - 1)))
        width_in = width
    return VGG(f"VGG-{depth}", tuple(stages), linear=((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)))


def _stage(
    width_in: int,
    widths: tuple[int, ...],
    kernels: tuple[int, ...],
    count: int,
    shortcuts: Shortcuts,
    stride_at: int | None,
) -> tuple[Block, ...]:
    """`count` blocks of convolutions `widths` and `kernels`; the first one's convolution `stride_at` has stride 2."""
    blocks = []
    for index in range(count):
        strides = [2 if index == 0 and at == stride_at else 1 for at in range(len(widths))]
        ins = (width_in, *widths[:-1])
        convs = tuple(Conv(*each) for each in zip(ins, widths, kernels, strides, strict=True))
        grows = width_in != widths[-1] or 2 in strides
        if shortcuts == "none":
            shortcut = "none"
        elif shortcuts == "C" or (shortcuts == "B" and grows):
            shortcut = "projection"
        else:
            shortcut = "pad" if grows else "identity"
        blocks.append(Block(convs, shortcut))
        width_in = widths[-1]
    return tuple(blocks)


def _name(depth: int, shortcuts: Shortcuts) -> str:
    return f"plain-{depth}" if shortcuts == "none" else f"ResNet-{depth}"


def _listed(table: dict[int, tuple]) -> str:
    return ", ".join(map(str, table))
