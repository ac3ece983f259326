"""The networks of section 4.4 as graphs, so that `shared.graph.measure` counts them: no torch, no weights.

A ViT, a residual network in BiT's layout, a hybrid of both, and the axial ViT of appendix D.6. Sizes of the ViTs are
Table 1's. The rest is the paper's text: 4.1 (hybrids, group normalisation), BiT's layout (arXiv:1912.11370: a
bottleneck's stride stands in its 3x3), JFT's 18 thousand classes for the last layer. Where no count depends on a
setting (dropout, the order of norm and layer) it is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from shared.errors import UserError
from shared.graph.measure import Layer, Model, measure
from shared.graph.read import Graph, Node

ENCODERS = {  # layers, width, MLP size, heads: Table 1
    "B": (12, 768, 3072, 12),
    "L": (24, 1024, 4096, 16),
    "H": (32, 1280, 5120, 16),
}
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}
CLASSES = 18_000  # of JFT, as 4.1 gives them
GROUPS = 32  # of BiT's group normalisation; no count depends on it
EXAMPLES = ("ViT-B/16", "ResNet50x1", "R50x1+ViT-B/16", "Axial-ViT-B/16")
RESIDUAL = r"R(?:es[nN]et)?(?P<depth>\d+)x(?P<width>\d+)"
NAME = re.compile(
    rf"(?=.)(?:(?P<axial>Axial-)|{RESIDUAL}(?:\+(?=V)|$))?(?:ViT-(?P<size>[BLH])/(?P<patch>[1-9]\d*))?(?<!-)"
)


@dataclass
class Drawing:
    """A graph as it grows, one layer after the other; `last` is the layer that the next one is put behind."""

    name: str

    def __post_init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[tuple[str, str]] = []
        self.last = ""

    def add(self, type: str, *parents: str, shape: tuple[int, ...] | None = None, **settings: Any) -> str:
        """A layer behind `parents` (none: behind `last`); returns its id."""
        id = f"{type}-{len(self.nodes) + 1}"
        self.nodes.append(Node(id, type, id, settings, shape))
        self.edges += [(parent, id) for parent in (parents or (self.last,)) if parent]
        self.last = id
        return id

    def source(self, type: str, shape: tuple[int, ...] | None = None, **settings: Any) -> str:
        """A layer that nothing goes into; `last` stays."""
        last, self.last = self.last, ""
        id = self.add(type, shape=shape, **settings)
        self.last = last
        return id

    def graph(self) -> Graph:
        return Graph(self.name, self.name, tuple(self.nodes), tuple(self.edges), self.name)


def network(name: str, image: int = 224) -> Graph:
    """`ViT-B/16`, `ResNet50x1` (also `R50x1`), `R50x1+ViT-B/16` or `Axial-ViT-B/16` for images of `image` pixels."""
    found = NAME.fullmatch(name)
    if not found:
        raise UserError(f"network {name!r}: expected a name such as {', '.join(EXAMPLES)}")
    drawing = Drawing(name)
    drawing.last = drawing.source("input", shape=(3, image, image))
    patch = int(found["patch"] or 0)
    if found["depth"]:
        blocks = _blocks(int(found["depth"]), name)
        if patch == 16:  # 4.1, option (ii): no stage 4, its blocks in stage 3 instead: a sequence four times as long
            blocks = (*blocks[:2], blocks[2] + blocks[3])
        _residual(drawing, blocks, int(found["width"]))
        patch = 1  # a hybrid's patch is one place of the last feature map
    if found["size"]:
        (_axial if found["axial"] else _encoder)(drawing, found["size"], patch, image // int(found["patch"]))
    else:
        drawing.add("globalAvgPool2d")
    drawing.add("linear", outFeatures=CLASSES)
    drawing.add("output")
    return drawing.graph()


@lru_cache(maxsize=4096)
def counted(name: str, image: int = 224) -> Model:
    """The network measured; multiply-adds of one image's forward pass are its `macs`."""
    model = measure(network(name, image))
    if not model.passes_forward:
        raise UserError(f"{name} at {image} px: {model.forward}; choose a multiple of its patch")
    return model


def _blocks(depth: int, name: str) -> tuple[int, ...]:
    if depth not in BLOCKS:
        raise UserError(f"network {name!r}: a residual network has {', '.join(map(str, BLOCKS))} layers here")
    return BLOCKS[depth]


def _residual(drawing: Drawing, blocks: tuple[int, ...], width: int) -> None:
    """BiT's body: a 7x7, max pooling, stages of bottlenecks; every convolution without bias, group norms before it."""
    channels = 64 * width
    _conv(drawing, channels, 7, 2)
    drawing.add("maxpool2d", kernelSize=3, stride=2, padding=1)
    for stage, count in enumerate(blocks):
        inner = channels * 2**stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            start = drawing.last
            normed = _norm(drawing)
            # in the first block of a stage the skip is projected, from the normed input as BiT has it
            skip = start if block else _conv(drawing, 4 * inner, 1, stride, behind=normed)
            _conv(drawing, inner, 1, behind=normed)
            _norm(drawing)
            _conv(drawing, inner, 3, stride)
            _norm(drawing)
            drawing.add("add", _conv(drawing, 4 * inner, 1), skip)
    _norm(drawing)


def _conv(drawing: Drawing, outputs: int, kernel: int, stride: int = 1, behind: str = "") -> str:
    settings = {"outChannels": outputs, "kernelSize": kernel, "stride": stride, "padding": kernel // 2, "bias": False}
    return drawing.add("conv2d", *filter(None, [behind]), **settings)


def _norm(drawing: Drawing) -> str:
    drawing.add("groupNorm", numGroups=GROUPS)
    return drawing.add("relu")


def _encoder(drawing: Drawing, size: str, patch: int, grid: int) -> None:
    """Patches, the class token in front, positions, the blocks. `grid`: patches a side."""
    layers, width, mlp, heads = ENCODERS[size]
    patches = drawing.add("patchEmbed", patchSize=patch, embedDim=width)
    token = drawing.source("embedding", numEmbeddings=1, embeddingDim=width)
    drawing.add("concatenate", token, patches, dim=-2)
    drawing.add("learnedPositionalEmbedding", maxLen=grid**2 + 1, embedDim=width)
    drawing.add("transformerBlock", numLayers=layers, hiddenDim=width, ffDim=mlp, numHeads=heads)
    drawing.add("layerNorm", normalizedShape=width)
    # the class token alone goes on. The table of kinds has no choice of a token; the mean has its shape and cost, none
    drawing.add("mean")


def _axial(drawing: Drawing, size: str, patch: int, grid: int) -> None:
    """D.6: each block becomes two, one attends along rows and one along columns, each with its own MLP.

    The paper says nothing of a class token here, and a row of one more token would be no row: the mean is taken.
    """
    layers, width, mlp, heads = ENCODERS[size]
    drawing.add("patchEmbed", patchSize=patch, embedDim=width)
    drawing.add("learnedPositionalEmbedding", maxLen=grid**2, embedDim=width)
    # [rows, columns, width]: attention works on each row by itself. A square grid's columns cost the same
    drawing.add("reshape", targetShape=[grid, grid, width])
    drawing.add("transformerBlock", numLayers=2 * layers, hiddenDim=width, ffDim=mlp, numHeads=heads)
    drawing.add("reshape", targetShape=[grid**2, width])
    drawing.add("layerNorm", normalizedShape=width)
    drawing.add("mean")


# readings: what else a count might have left out ---------------------------------------------------------------------

ALL, NO_PADDING, NO_SCORES, NO_PATCHES, NO_HEAD = (
    "all products",
    "without zero padding",
    "without attention's products",
    "without patch projection",
    "without last layer",
)


def readings(name: str, image: int = 224) -> dict[str, int]:
    """Multiply-adds of one image under each reading that changes the count; `ALL` is the full one."""
    model = counted(name, image)
    shapes = {layer.id: layer.output for layer in model.layers}

    def of(type: str) -> list[tuple[Layer, tuple[int, ...]]]:
        """The layers of a type, each with the shape that comes in."""
        return [(layer, shapes[layer.parents[0]]) for layer in model.layers if layer.type == type]

    left_out = {
        NO_PADDING: sum(layer.macs - unpadded(layer, shape[-1]) for layer, shape in of("conv2d")),
        NO_SCORES: sum(scores(layer, shape) for layer, shape in of("transformerBlock")),
        NO_PATCHES: sum(layer.macs for layer, _ in of("patchEmbed")),
        NO_HEAD: sum(layer.macs for layer, _ in of("linear")),
    }
    return {ALL: model.macs} | {reading: model.macs - less for reading, less in left_out.items() if less}


def unpadded(layer: Layer, size: int) -> int:
    """A convolution's multiply-adds on `size` x `size` inputs, those with the zeros around the image left out."""
    kernel, stride, padding = (layer.settings[key] for key in ("kernelSize", "stride", "padding"))
    outputs = layer.output[-1]
    inside = sum(0 <= at * stride - padding + tap < size for at in range(outputs) for tap in range(kernel))
    return layer.macs * inside**2 // (outputs * kernel) ** 2  # both axes alike; divides without a rest


def scores(layer: Layer, shape: tuple[int, ...]) -> int:
    """The two products of attention in all blocks, q k^T and weights v, on [.., tokens, width]."""
    *sequences, tokens, width = shape
    return layer.settings["numLayers"] * 2 * prod(sequences) * tokens**2 * width
