"""A run of "Section 4.3 in miniature": the article's recipe, which run it is, and what it leaves to read.

Source: ViT, explained, Part 4: AdamW, lr 0.001, 250 warm-up steps then cosine to 0, weight decay 0.05, batch 128, 2,500
steps, random crop with 4 pixels of padding and flip; validation every 250 steps, the best kept. What the article does
not print is the plainest choice: decay on every parameter, no label smoothing, no gradient clipping, black padding.

What is the same for every paper's runs stands in shared/training/runs.py. No torch here, so reading is quick.
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import UserError
from shared.training import runs
from shared.training.runs import Natural, Positive, RunFiles, Variant

NAMES = ("ViT", "ResNet")
# they differ by line and marker too, so that grey print and poor sight do
LOOKS = {
    "ViT": {"color": "#1f4e9c", "linestyle": "-", "marker": "o"},
    "ResNet": {"color": "#c05a00", "linestyle": "--", "marker": "s"},
}
SIZES = (1000, 5000, 50000)  # training images of the article's six runs
# sha256 of the 5,000 validation images that every seed uses, see shared.training.stream.Arrays.fingerprint
CIFAR10_VALIDATION = "4871d210a89a3e84d753b1888fe7413099926c1ff450b5a1a726a53afe7d6070"
RUN_FILE = re.compile(r".+-\d+-seed\d+(-[\w-]+)?\.json")
PLAIN = "plain"  # a run's `change` where nothing is changed, beside runs where something is


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
class Run(RunFiles):
    """Which network is trained on how many images with which seed, in which arithmetic; `change`: of the recipe."""

    model: str
    size: Positive
    seed: Natural = 0
    variant: Variant = "float32"
    change: str = ""

    @property
    def name(self) -> str:
        variant = "" if self.variant == "float32" else f"-{self.variant}"
        return f"{self.model}-{self.size}-seed{self.seed}{variant}"

    @property
    def changed(self) -> bool:
        """Whether it departs from the recipe."""
        return self.change not in ("", PLAIN)

    @property
    def subfolder(self) -> str:
        """Each change of the recipe has a folder of its own."""
        return self.change


@dataclass(frozen=True)
class Validation:
    """After `step` updates the network named `correct` validation images correctly."""

    step: Positive
    correct: Natural


@dataclass(frozen=True)
class Best(Validation):
    """The best validation, of equals the first; `held_out_correct`: the same weights on the held-out images."""

    held_out_correct: Natural | None


@dataclass(frozen=True)
class Curve(runs.Curve):
    """The validations of a run, and the loss of every update in nats; its identity: `trainer.identity`."""

    PARTS = (Run, Recipe)
    LATER = frozenset({"change"})

    validation_images: Positive
    held_out_images: Positive
    validations: list[Validation]
    best: Best
    losses: list[float]

    def __post_init__(self) -> None:
        """Refuse what no training can have left (ValueError; `read` names the file)."""
        steps = [v.step for v in self.validations]
        if not steps or steps != sorted(set(steps)) or steps[-1] > len(self.losses):
            raise ValueError("validations and losses do not fit")
        if max(v.correct for v in self.validations) > self.validation_images:
            raise ValueError(f"more correct than the {self.validation_images} validation images")
        # `max` keeps the first of equals, as the training does
        first_best = max(self.validations, key=lambda v: v.correct)
        if (self.best.step, self.best.correct) != (first_best.step, first_best.correct):
            raise ValueError("its best is not the best of its validations")
        if self.complete != (self.best.held_out_correct is not None):
            raise ValueError("the held-out images are scored when a run is complete, and only then")
        if (self.best.held_out_correct or 0) > self.held_out_images:
            raise ValueError(f"more correct than the {self.held_out_images} held-out images")
        if self.complete and not steps[-1] == len(self.losses) == self.identity.get("steps"):
            raise ValueError("called complete, but it ends before its last step")

    @property
    def run(self) -> Run:
        return Run(**self.part(Run))

    @property
    def recipe(self) -> Recipe:
        return Recipe(**self.part(Recipe))

    @property
    def last_step(self) -> int:
        return self.validations[-1].step

    @property
    def so_far(self) -> str:
        return f"{self.best_accuracy:.1f}%"

    @property
    def points(self) -> list[tuple[int, float]]:
        """(step, validation accuracy in %) of every validation."""
        return [(v.step, 100 * v.correct / self.validation_images) for v in self.validations]

    @property
    def best_accuracy(self) -> float:
        """In %, on the validation images."""
        return 100 * self.best.correct / self.validation_images

    @property
    def held_out_accuracy(self) -> float:
        """In %, of the weights of the best validation; only a complete run has one."""
        return 100 * self.best.held_out_correct / self.held_out_images

    @property
    def test_accuracy(self) -> float:
        """The same on all test images, validation and held-out."""
        images = self.validation_images + self.held_out_images
        return 100 * (self.best.correct + self.best.held_out_correct) / images

    def summary(self) -> dict[str, Any]:
        """What the result file of an experiment says of a run."""
        return {key: getattr(self, key) for key in ("best", "validations", "validation_images", "held_out_images")}


def read_all(folder: Path) -> tuple[list[Curve], list[str]]:
    """(every curve in the folder; one line for each file that is left out). Other files are passed by.

    A copy under another name is no second run.
    """
    curves, left_out = [], []
    for path in sorted(folder.glob("*.json")):
        if not RUN_FILE.fullmatch(path.name):
            continue
        try:
            curve = Curve.read(path)
            if path.stem != (name := curve.run.name):
                raise UserError(f"{path}: holds the run {name}, which its name does not say; rename or delete it")
            curves.append(curve)
        except UserError as error:
            left_out.append(f"left out: {error}")
    return curves, left_out


# against the article --------------------------------------------------------------------------------------------------


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
    return departure("cifar10", None, curve.recipe, curve.identity.get("validation_sha256", ""))


def seeds_beside(values: list[float], unit: str = "%") -> str:
    """What all seeds of a point gave, in `unit`, to stand beside the one that is judged; "" where there is one seed.

    One run is judged at every point, as the article has one: a spread that is known at some points only would widen the
    tolerance just there.
    """
    if len(values) < 2:
        return ""
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    found = f"{mean:.1f} ± {spread:.1f} {unit}, {min(values):.1f} to {max(values):.1f}"
    return f"one run is judged, and the luck of a run is not in the tolerance: {len(values)} seeds here give {found}"
