"""The networks of `papers.resnet.architectures` as torch modules, and the paper's initialisation.

network = initialise(build(cifar(20)), seed=0)        # [B, 3, 32, 32] float -> [B, 10] logits
with torch.device("meta"):
    build(imagenet(152))                              # its shapes without its memory
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from papers.resnet.architectures import VGG, Block, Conv, Network, ResNet


class ConvNorm(nn.Sequential):
    """A convolution and batch normalisation, "right after each convolution and before activation" (section 3.4)."""

    def __init__(self, conv: Conv) -> None:
        # with padding (k - 1) / 2 stride 1 keeps the size and stride 2 halves it
        super().__init__(
            nn.Conv2d(conv.width_in, conv.width, conv.kernel, conv.stride, conv.kernel // 2, bias=False),
            nn.BatchNorm2d(conv.width),
        )


class Pad(nn.Module):
    """Option A where a block grows: every second pixel of the input, and zero channels behind its own."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.stride, self.extra = block.stride, block.width - block.width_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra))


class ResidualBlock(nn.Module):
    """Section 3: relu(F(x) + shortcut(x)); in a plain net relu(F(x)). [B, Cin, H, W] -> [B, C, H/stride, W/stride]."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        convs = [ConvNorm(conv) for conv in block.convs]
        self.residual = nn.Sequential(*(part for conv in convs for part in (conv, nn.ReLU())))[:-1]
        self.shortcut: nn.Module | None = None
        if block.shortcut == "identity":
            self.shortcut = nn.Identity()
        elif block.shortcut == "pad":
            self.shortcut = Pad(block)
        elif block.projection:
            self.shortcut = ConvNorm(block.projection)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.residual(x)
        return torch.relu(y if self.shortcut is None else y + self.shortcut(x))


class ResidualNetwork(nn.Module):
    """A residual or plain network; [B, 3, S, S] -> [B, classes] logits."""

    def __init__(self, network: ResNet) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvNorm(network.stem), nn.ReLU())
        if network.pool:
            self.stem.append(nn.MaxPool2d(network.pool.kernel, network.pool.stride, network.pool.kernel // 2))
        self.stages = nn.Sequential(*(nn.Sequential(*map(ResidualBlock, blocks)) for blocks in network.stages))
        self.head = nn.Linear(network.stages[-1][-1].width, network.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))


class VGGNetwork(nn.Sequential):
    """VGG with dropout before its last two linear layers; [B, 3, 224, 224] -> [B, 1000] logits."""

    def __init__(self, network: VGG) -> None:
        parts: list[nn.Module] = []
        for convs in network.stages:
            for conv in convs:
                parts += [nn.Conv2d(conv.width_in, conv.width, conv.kernel, padding=1), nn.ReLU()]
            parts.append(nn.MaxPool2d(2))
        parts.append(nn.Flatten())
        for here, behind in pairwise((*network.linear, None)):
            parts.append(nn.Linear(*here))
            if behind:
                parts += [nn.ReLU(), nn.Dropout()]
        super().__init__(*parts)


def build(network: Network) -> nn.Module:
    """The module with PyTorch's default weights; see `initialise`."""
    return ResidualNetwork(network) if isinstance(network, ResNet) else VGGNetwork(network)


def initialise(module: nn.Module, seed: int) -> nn.Module:
    """He's initialisation in place, a function of `seed` alone: weights from N(0, 2 / inputs of a unit), biases 0.

    "We initialize the weights as in [13]"; of its two equal forms this one keeps the variance of the forward pass.
    """
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight, mode="fan_in", nonlinearity="relu", generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return module
