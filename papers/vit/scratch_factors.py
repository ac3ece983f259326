"""What the article does not print about its recipe, one change at a time: the trainer with one thing different.

Source: ViT, explained, Part 4, "Section 4.3 in miniature". Not printed: the ResNet's initialisation, what the crop pads
with, the normalisation, and on which parameters the weight decay works. JPEG images stand for a copy of the data that
is not lossless.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from papers.vit import scratch_models
from papers.vit.scratch_data import Arrays, Augmentation, TrainingData, crop_flip
from papers.vit.scratch_files import curve_file
from papers.vit.scratch_recipe import PLAIN, Recipe, Run
from papers.vit.scratch_train import Augment, Trainer, finished_curve, identity

JPEG_QUALITY = 75  # Pillow's default


def he_init(run: Run, classes: int) -> nn.Module:
    """The ResNet with He's initialisation of its convolutions: normal, by fan-out."""
    model = scratch_models.build(run.model, classes=classes, seed=run.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def zero_init(run: Run, classes: int) -> nn.Module:
    """The ResNet with the last BatchNorm of every block starting at 0: at first a block passes its input on."""
    return zeroed(scratch_models.build(run.model, classes=classes, seed=run.seed))


def zeroed(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, scratch_models.BasicBlock):
            nn.init.zeros_(module.bn2.weight)
    return model


def he_and_zero_init(run: Run, classes: int) -> nn.Module:
    """Both, as they usually come together."""
    return zeroed(he_init(run, classes))


def decay_matrices_only(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW that leaves biases and the parameters of norms alone (a ViT's position embeddings have three axes)."""
    kinds: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        kinds[parameter.ndim > 1].append(parameter)
    groups = [{"params": kinds[True]}, {"params": kinds[False], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def mirrored(images: torch.Tensor, draws: Augmentation, pad: int) -> torch.Tensor:
    """`crop_flip` with a mirror around the image."""
    return crop_flip(images, draws, pad, mode="reflect")


def centred(data: TrainingData) -> TrainingData:
    """Pixels to -1..1 instead of the training images' own mean and deviation."""
    half = (0.5,) * len(data.mean)
    return dataclasses.replace(data, mean=half, std=half)


def through_jpeg(data: TrainingData) -> TrainingData:
    """Every image, of training and of testing, written and read as JPEG. The normalisation stays."""

    def lossy(arrays: Arrays) -> Arrays:
        images = torch.empty_like(arrays.images, device="cpu")
        for i, image in enumerate(arrays.images.cpu()):
            file = io.BytesIO()
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=JPEG_QUALITY)
            images[i] = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)
        return dataclasses.replace(arrays, images=images.to(arrays.images.device))

    parts = {part: lossy(getattr(data, part)) for part in ("train", "validation", "held_out")}
    return dataclasses.replace(data, **parts)


@dataclasses.dataclass(frozen=True)
class Factor:
    """One change of the recipe: `what` in words, then what makes it; a field that is None stays the recipe's."""

    what: str
    images: Callable[[TrainingData], TrainingData] | None = None
    model: Callable[[Run, int], nn.Module] | None = None
    optimizer: Callable[[nn.Module, Recipe], torch.optim.Optimizer] | None = None
    augment: Augment | None = None


FACTORS: dict[str, Factor] = {
    PLAIN: Factor("nothing: the recipe as vit_part4_scratch.py has it"),
    "jpeg": Factor(f"images through JPEG (quality {JPEG_QUALITY}), in training and in testing", through_jpeg),
    "init": Factor("he and zero together, as they usually come", model=he_and_zero_init),
    "he": Factor("He initialisation of the convolutions (normal, fan-out) instead of PyTorch's", model=he_init),
    "zero": Factor("the last BatchNorm of every block starts at 0", model=zero_init),
    "decay": Factor(
        "weight decay on tensors of two or more axes only: no bias, no norm", optimizer=decay_matrices_only
    ),
    "normalisation": Factor("pixels to -1..1, instead of the training images' mean and deviation", centred),
    "padding": Factor("the crop's padding mirrors the image, instead of black", augment=mirrored),
}


def images_of(name: str, data: TrainingData) -> TrainingData:
    """The images that the change `name` trains and tests on."""
    change = FACTORS[name].images
    return change(data) if change else data


def trainer(name: str, run: Run, recipe: Recipe, data: TrainingData, device: torch.device) -> Trainer:
    """The run's trainer with the change `name`, which is part of its curve's identity. `data`: the plain recipe's."""
    factor = FACTORS[name]
    options = {key: made for key in ("optimizer", "augment") if (made := getattr(factor, key))}
    model = factor.model(run, data.classes) if factor.model else None
    return Trainer(run, recipe, images_of(name, data), device, model=model, change=change_of(name), **options)


def finished(name: str, run: Run, recipe: Recipe, data: TrainingData, folder: Path) -> dict[str, Any] | None:
    """The curve of a finished run below `folder`/`name`; None if there is none."""
    path = curve_file(folder / name, run)
    if not path.exists():
        return None
    return finished_curve(path, identity(run, recipe, images_of(name, data), change_of(name)))


def change_of(name: str) -> str:
    """As a curve's identity has it: the plain recipe's is that of vit_part4_scratch.py, which names no change."""
    return "" if name == PLAIN else name
