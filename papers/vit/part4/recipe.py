"""The recipe of "Section 4.3 in miniature", and when a number of ours can be held against the article's.

Source: ViT, explained, Part 4: AdamW, lr 0.001, 250 warm-up steps then cosine to 0, weight decay 0.05, batch 128, 2,500
steps, random crop with 4 pixels of padding and flip; validation every 250 steps, the best kept. What the article does
not print is the plainest choice: decay on every parameter, no label smoothing, no gradient clipping, black padding.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from papers.vit.part4.curves import PLAIN, Curve

NAMES = ("ViT", "ResNet")
SIZES = (1000, 5000, 50000)  # training images of the article's six runs
# sha256 of the 5,000 validation images that every seed uses, see stream.Arrays.fingerprint
CIFAR10_VALIDATION = "4871d210a89a3e84d753b1888fe7413099926c1ff450b5a1a726a53afe7d6070"


@dataclass(frozen=True)
class Recipe:
    """The article's numbers. `validation` counts images of the test split, `every` counts steps."""

    steps: int = 2500
    warmup: int = 250
    lr: float = 1e-3
    weight_decay: float = 0.05
    batch: int = 128
    pad: int = 4
    validation: int = 5000
    every: int = 250
    image_size: int = 32

    def rate(self, step: int) -> float:
        """Learning rate of the update after `step` earlier ones: linear from 0 to `lr`, then half a cosine to 0."""
        if step < self.warmup:
            return self.lr * step / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def validates(self, done: int) -> bool:
        """Whether the network is validated after `done` updates: every `every`, and at the end."""
        return done % self.every == 0 or done == self.steps


def recipe_of(config: Any) -> Recipe:
    """The recipe that a script's options make; what is no option stays the article's."""
    return Recipe(**{key: getattr(config, key) for key in vars(Recipe()) if hasattr(config, key)})


def departure(data: str, stand_in: str | None, recipe: Recipe, validation_sha256: str) -> str | None:
    """Why the numbers cannot be compared with the article's: other images or another recipe; None if they can."""
    if stand_in:
        return stand_in
    if data not in ("cifar10", "uoft-cs/cifar10"):
        return f"other images ({data})"
    article = Recipe()
    changed = [key for key in vars(article) if getattr(recipe, key) != getattr(article, key)]
    if changed:
        return f"another recipe ({', '.join(f'{k} {getattr(recipe, k)}' for k in changed)})"
    return None if validation_sha256 == CIFAR10_VALIDATION else "validated on other images than CIFAR-10's test split"


def departure_of(curve: Curve) -> str | None:
    """`departure` of a run on disk: its recipe, and the images by their hash (the mirror's name is not in it)."""
    change = curve.identity.get("change", PLAIN)
    if change != PLAIN:
        return f"another recipe (change: {change})"
    return departure("cifar10", None, Recipe(**curve.part(Recipe)), curve.identity.get("validation_sha256", ""))


def spread_against_one_run(values: list[float]) -> float | None:
    """Deviation of the difference between the mean of our seeds' values and the article's one run; None for one seed.

    The article's run is one more draw from the spread that our seeds show: ours is the variance of a mean, s^2/n, and
    the article's is s^2.
    """
    return statistics.stdev(values) * math.sqrt(1 + 1 / len(values)) if len(values) > 1 else None
