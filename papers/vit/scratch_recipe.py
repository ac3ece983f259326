"""The recipe of "Section 4.3 in miniature" and the names of its runs. Source: ViT, explained, Part 4."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shared.errors import UserError

# sha256 of the 5,000 validation images that every seed uses, see scratch_data.Arrays.fingerprint
CIFAR10_VALIDATION = "4871d210a89a3e84d753b1888fe7413099926c1ff450b5a1a726a53afe7d6070"
VARIANTS = ("float32", "float32-compiled", "bf16", "bf16-compiled")
PLAIN = "plain"  # the recipe with nothing changed, see scratch_factors


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


@dataclass(frozen=True)
class Run:
    """One cell of the table: which network on how many images with which seed, and the arithmetic."""

    model: str
    size: int
    seed: int = 0
    variant: str = "float32"

    @property
    def name(self) -> str:
        variant = "" if self.variant == "float32" else f"-{self.variant}"
        return f"{self.model}-{self.size}-seed{self.seed}{variant}"


def check_numbers(config: Any) -> None:
    """Raise UserError for a training's options that make no experiment; `config`: a script's, with their names."""
    # one image a batch leaves batch normalisation nothing to normalise
    for key, least in {"seeds": 1, "steps": 1, "batch": 2, "every": 1, "validation": 1, "threads": 0}.items():
        if getattr(config, key) < least:
            raise UserError(f"--{key} {getattr(config, key)}: must be at least {least}")
    if config.pad < 0:
        raise UserError(f"--pad {config.pad}: must not be negative")
    if not 0 <= config.warmup <= config.steps:
        raise UserError(f"--warmup {config.warmup}: must lie between 0 and --steps {config.steps}")


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


def departure_of(identity: dict) -> str | None:
    """`departure` of a run on disk: its recipe, and the images by their hash (the mirror's name is not in it)."""
    recipe = Recipe(**{key: identity[key] for key in vars(Recipe())})
    if identity.get("change"):
        return f"another recipe (change: {identity['change']})"
    return departure("cifar10", None, recipe, identity["validation_sha256"])
