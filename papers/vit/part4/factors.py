"""What the article does not print about its recipe, one change at a time: the trainer with one thing different.

Source: ViT, explained, Part 4, "Section 4.3 in miniature". Not printed: the ResNet's initialisation, what the crop pads
with, the normalisation, and on which parameters the weight decay works. JPEG images stand for a copy of the data that
is not lossless.
"""

from __future__ import annotations

import dataclasses
import io
import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from papers.vit.part4 import networks
from papers.vit.part4.runs import PLAIN, Curve, Recipe, Run
from papers.vit.part4.stream import Arrays, Augmentation, TrainingData, crop_flip
from shared.errors import UserError

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
        if isinstance(module, networks.BasicBlock):
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
    """One change of the recipe: `what` in words, then what makes it; the defaults are the recipe's.

    images      of training and testing, made of the unchanged ones
    init        called in turn with the fresh network and the run's seed
    """

    what: str
    images: Callable[[TrainingData], TrainingData] = lambda data: data
    init: tuple[Callable[[nn.Module, int], None], ...] = ()
    optimizer: Callable[[nn.Module, Recipe], torch.optim.Optimizer] = networks.adamw
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


def plan(config: Any) -> list[Run]:
    """The plain recipe and every factor with each seed, then the plain recipe's other seeds.

    config: the script's. "all" stands for the factors that the network and the padding have. UserError for a factor
    that is unknown or that they lack.
    """
    if len(config.models) != 1 or len(config.sizes) != 1:
        raise UserError("--factors: name one network and one number of images, as --models ResNet --sizes 1000")
    model, size = config.models[0], config.sizes[0]
    can_mirror = 0 < config.pad < config.image_size
    lacks = set(RESNET_ONLY if model != "ResNet" else ()) | set(() if can_mirror else ["padding"])
    for name in config.factors:
        if name not in (*FACTORS, "all"):
            raise UserError(f"--factors {name}: choose from {', '.join(FACTORS)}, or all")
        if name in lacks and name in RESNET_ONLY:
            raise UserError(f"--factors {name}: the article leaves the ResNet's initialisation open, not the ViT's")
        if name in lacks:
            raise UserError(
                f"--factors padding: a mirror needs --pad between 1 and {config.image_size - 1}, not {config.pad}"
            )
    if config.plain_seeds < config.seeds:
        raise UserError(
            f"--plain-seeds {config.plain_seeds}: every factor is held against the plain recipe of its seed; "
            f"at least --seeds {config.seeds}"
        )
    chosen = [name for name in FACTORS if name not in lacks] if "all" in config.factors else config.factors
    jobs = [(name, seed) for seed in range(config.seeds) for name in dict.fromkeys((PLAIN, *chosen))]
    jobs += [(PLAIN, seed) for seed in range(config.seeds, config.plain_seeds)]
    return [Run(model, size, seed, config.variant, change) for change, seed in jobs]


COLUMNS = ["factor", "seed", "step", "best", "held out", "best against plain", "all test images against plain"]


def against_plain(curves: dict[Run, Curve]) -> dict[Run, tuple[float, float]]:
    """(best validation, all test images) of each changed run less those of the plain run of its seed, in points."""
    plain = {run.seed: curve for run, curve in curves.items() if run.change == PLAIN}
    return {
        run: (curve.best_accuracy - same.best_accuracy, curve.test_accuracy - same.test_accuracy)
        for run, curve in curves.items()
        if run.change != PLAIN and (same := plain.get(run.seed))
    }


def table(curves: dict[Run, Curve]) -> tuple[list[list[Any]], list[str]]:
    """(rows of `COLUMNS`, the same as text): accuracies in %, differences from the plain run of the seed in points."""
    rows, apart = [], against_plain(curves)
    lines = ["  factor         seed   step  best validation  held out   against plain: best   all test images"]
    for run, curve in curves.items():
        best, on_all = (f"{points:+.2f}" for points in apart[run]) if run in apart else ("", "")
        accuracies = f"{curve.best_accuracy:.2f}", f"{curve.held_out_accuracy:.2f}"
        rows.append([run.change, run.seed, curve.best.step, *accuracies, best, on_all])
        name, seed, step, validation, held_out = rows[-1][:5]
        lines.append(f"  {name:<14}{seed:>5}{step:>7}{validation:>16}%{held_out:>9}%{best:>22}{on_all:>20}".rstrip())
    return rows, lines


def mean_lines(curves: dict[Run, Curve]) -> list[str]:
    """With several seeds of a factor: the mean of its differences from plain, on all test images, and its error."""
    apart: dict[str, list[float]] = {}
    for run, (_, on_all) in against_plain(curves).items():
        apart.setdefault(run.change, []).append(on_all)
    return [
        f"  {name:<14} {statistics.fmean(points):+.2f} points on all test images, standard error "
        f"{statistics.stdev(points) / math.sqrt(len(points)):.2f} over {len(points)} seeds"
        for name, points in apart.items()
        if len(points) > 1
    ]


def noise_lines(curves: dict[Run, Curve]) -> list[str]:
    """How far chance puts two runs apart, from the plain recipe's seeds: 95 % of differences, by Student's t."""
    plain = [curve for run, curve in curves.items() if run.change == PLAIN]
    if (n := len(plain)) < 2:
        return ["  how far chance puts two runs apart is not known: that needs two finished seeds of the plain recipe"]
    from scipy.stats import t

    best = [curve.best_accuracy for curve in plain]
    on_best, on_all = statistics.stdev(best), statistics.stdev(curve.test_accuracy for curve in plain)
    width = float(t.ppf(0.975, n - 1)) * math.sqrt(2)
    return [
        f"  plain: {statistics.fmean(best):.2f}% on average over {n} seeds, sample deviation {on_best:.2f} points; "
        "19 of 20 pairs",
        f"  of runs lie within {width * on_best:.1f} points in the best validation and {width * on_all:.1f} on all "
        f"test images (Student's t, {n - 1} degree{'s' * (n > 2)} of freedom;",
        f"  a pair of one seed shares its images and should lie closer); differences looked at: {len(curves) - n}",
    ]
