"""The two small networks of "Section 4.3 in miniature", what trains them, what they cost, and what may be changed.

Sources: ViT, explained, Part 4, "Section 4.3 in miniature" (4x4 patches, D 128, 6 layers, 4 heads, MLP 512; a ResNet-18
layout with widths 24-48-96-192 and BatchNorm). The ViT is transformers' own code with transformers' own initialisation.
The article does not print the ResNet's: it is PyTorch's default here, as a reader copying the recipe would have it.

The changes (`FACTORS`) are what the article leaves open: the ResNet's initialisation, what the crop pads with, the
normalisation, and on which parameters the weight decay works. JPEG images stand for a copy of the data that is not
lossless.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from PIL import Image
from torch import nn

from papers.vit.part4.runs import NAMES, PLAIN, Recipe, Run
from shared.errors import UserError
from shared.training.stream import Arrays, Augmentation, TrainingData, crop_flip

PATCH, DIM, LAYERS, HEADS, MLP = 4, 128, 6, 4, 512
WIDTHS = (24, 48, 96, 192)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a skip; [B, Cin, H, W] -> [B, Cout, H/stride, W/stride]."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or width_in != width:
            self.skip = nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.skip(x))


class ResNet(nn.Module):
    """ResNet-18's layout for small images: 3x3 stem, no max-pool, two blocks each; [B, 3, H, W] -> [B, classes]."""

    def __init__(self, classes: int, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        blocks: list[nn.Module] = []
        width_in = widths[0]
        for stage, width in enumerate(widths):
            blocks += [BasicBlock(width_in, width, 1 if stage == 0 else 2), BasicBlock(width, width, 1)]
            width_in = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width_in, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


class ViT(nn.Module):
    """transformers' ViTForImageClassification at the article's size; [B, 3, S, S] -> [B, classes]."""

    def __init__(self, classes: int, image_size: int, attention: str) -> None:
        from transformers import ViTConfig, ViTForImageClassification

        super().__init__()
        config = ViTConfig(
            image_size=image_size,
            patch_size=PATCH,
            hidden_size=DIM,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=MLP,
            num_labels=classes,
            attn_implementation=attention,
        )
        self.vit = ViTForImageClassification(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.vit(pixel_values=x).logits


def check_image_size(image_size: int) -> None:
    """Raise UserError for a size that does not divide into patches."""
    if image_size < 2 * PATCH or image_size % PATCH:
        raise UserError(f"image size {image_size} must be a multiple of the {PATCH}-pixel patch, at least {2 * PATCH}")


def build(name: str, *, classes: int = 10, image_size: int = 32, seed: int = 0, attention: str = "eager") -> nn.Module:
    """A fresh float32 network on the CPU, its weights a function of `seed` alone (the caller's generator is untouched).

    attention: transformers' name of the ViT's attention code ("eager" or "sdpa"): speed and rounding, not the network.
    Raises UserError for a name that is not in NAMES and for an image that does not divide into 4x4 patches.
    """
    if name not in NAMES:
        raise UserError(f"model {name!r} is unknown; choose from {', '.join(NAMES)}")
    check_image_size(image_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ViT(classes, image_size, attention) if name == "ViT" else ResNet(classes)


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW over every parameter; the fused kernel changes the speed only."""
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def attention_code(run: Run, device: torch.device) -> str:
    """The faster attention: PyTorch's fused one, except for bf16 on a CPU, where its backward pass is slow."""
    return "eager" if device.type == "cpu" and run.variant.startswith("bf16") else "sdpa"


def compiles(run: Run, device: torch.device) -> bool:
    """Whether the network is compiled: in a compiled variant, except where it was measured to gain nothing."""
    gains_nothing = run.model == "ViT" and run.variant == "float32-compiled" and device.type == "cpu"
    return run.variant.endswith("compiled") and not gains_nothing


@dataclass(frozen=True)
class Cost:
    """Numbers to train, and multiply-adds of one image's forward pass: in layers with weights, and in attention.

    The article's 77M leaves the attention products (q k^T, then v) out, which is `weights`; the true count is `total`.
    """

    parameters: int
    weights: int
    attention: int

    @property
    def total(self) -> int:
        return self.weights + self.attention

    @property
    def printed(self) -> tuple[str, str]:
        """Parameters and multiply-adds as the article prints them: "1.21M", "77M"."""
        return f"{self.parameters / 1e6:.2f}M", f"{self.weights / 1e6:.0f}M"


@lru_cache
def cost(name: str, classes: int = 10, image_size: int = 32) -> Cost:
    """Counted, not typed: PyTorch's operation counter over a forward pass on the meta device (two operations each)."""
    from torch.utils.flop_counter import FlopCounterMode

    model = build(name, classes=classes, image_size=image_size).to("meta").eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, image_size, image_size, device="meta"))
    counts = counter.get_flop_counts()["Global"]
    # Products of two activations are batched (bmm); every product with a weight is a convolution or an (add)mm.
    attention = sum(n for op, n in counts.items() if "bmm" in str(op))
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return Cost(parameters, weights=(sum(counts.values()) - attention) // 2, attention=attention // 2)


# what the article does not print about its recipe, one change at a time -----------------------------------------------

JPEG_QUALITY = 75  # Pillow's default
RESNET_ONLY = ("init", "he", "zero")  # the ViT's initialisation is transformers' own


def he_init(model: nn.Module, seed: int) -> None:
    """He's initialisation of the convolutions: normal, by fan-out."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def zero_init(model: nn.Module, seed: int) -> None:
    """The last BatchNorm of every block starts at 0: at first a block passes its input on."""
    for module in model.modules():
        if isinstance(module, BasicBlock):
            nn.init.zeros_(module.bn2.weight)


def decay_matrices_only(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW that leaves biases and the parameters of norms alone (a ViT's position embeddings have three axes)."""
    kinds: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        kinds[parameter.ndim > 1].append(parameter)
    groups = [{"params": kinds[True]}, {"params": kinds[False], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def centred(data: TrainingData) -> TrainingData:
    """Pixels to -1..1 instead of the training images' own mean and deviation."""
    half = (0.5,) * len(data.mean)
    return replace(data, mean=half, std=half)


def through_jpeg(data: TrainingData) -> TrainingData:
    """Every image, of training and of testing, written and read as JPEG. The normalisation stays."""

    def lossy(arrays: Arrays) -> Arrays:
        images = torch.empty_like(arrays.images, device="cpu")
        for i, image in enumerate(arrays.images.cpu()):
            file = io.BytesIO()
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=JPEG_QUALITY)
            images[i] = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)
        return replace(arrays, images=images.to(arrays.images.device))

    parts = {part: lossy(getattr(data, part)) for part in ("train", "validation", "held_out")}
    return replace(data, **parts)


@dataclass(frozen=True)
class Factor:
    """One change of the recipe: `what` in words, then what makes it; the defaults are the recipe's.

    images      of training and testing, made of the unchanged ones
    init        called in turn with the fresh network and the run's seed
    """

    what: str
    images: Callable[[TrainingData], TrainingData] = lambda data: data
    init: tuple[Callable[[nn.Module, int], None], ...] = ()
    optimizer: Callable[[nn.Module, Recipe], torch.optim.Optimizer] = adamw
    augment: Callable[[torch.Tensor, Augmentation, int], torch.Tensor] = crop_flip


FACTORS: dict[str, Factor] = {
    PLAIN: Factor("nothing: the recipe as vit_part4_scratch.py has it"),
    "jpeg": Factor(f"images through JPEG (quality {JPEG_QUALITY}), in training and in testing", images=through_jpeg),
    "init": Factor("he and zero together, as they usually come", init=(he_init, zero_init)),
    "he": Factor("He initialisation of the convolutions (normal, fan-out) instead of PyTorch's", init=(he_init,)),
    "zero": Factor("the last BatchNorm of every block starts at 0", init=(zero_init,)),
    "decay": Factor(
        "weight decay on tensors of two or more axes only: no bias, no norm", optimizer=decay_matrices_only
    ),
    "normalisation": Factor("pixels to -1..1, instead of the training images' mean and deviation", images=centred),
    "padding": Factor(
        "the crop's padding mirrors the image, instead of black", augment=partial(crop_flip, mode="reflect")
    ),
}
