"""A training run and what it leaves to read: its curve, and a note of the machine. No torch, so reading is quick.

`<run>.json` is the curve: a function of the configuration alone, so an interrupted and an uninterrupted run write the
same bytes on the CPU. `<run>.machine.json` says when, how long and on what. Knows no paper.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from shared import paths
from shared.errors import UserError
from shared.schema import checked, read_json

SCHEMA = 1
RUN_FILE = re.compile(r".+-\d+-seed\d+(-[\w-]+)?\.json")
PLAIN = "plain"  # a run's `change` where nothing is changed, beside runs where something is
TRAIN_ANEW = "delete it to train the run anew"

Variant = Literal["float32", "float32-compiled", "bf16", "bf16-compiled"]
VARIANTS: tuple[str, ...] = get_args(Variant)
Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class Run:
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

    def curve_file(self, experiment: Path) -> Path:
        """Below the experiment's folder; each change of the recipe has a folder of its own there."""
        return experiment / self.change / f"{self.name}.json"

    def machine_file(self, experiment: Path) -> Path:
        return experiment / self.change / f"{self.name}.machine.json"

    def checkpoint_file(self, experiment: Path) -> Path:
        return experiment / self.change / "checkpoints" / f"{self.name}.ckpt"


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
class Curve:
    """The curve of a run, finished (`complete`) or not: the validations, and the loss of every update in nats.

    identity: all that the numbers depend on besides the machine (`trainer.identity`): run, recipe, images.
    """

    schema: Literal[1]
    identity: dict[str, str | int | float | list[float]]
    complete: bool
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

    @classmethod
    def read(cls, path: Path, recipe: type | None = None) -> Curve:
        """The curve at `path`. UserError that names the file: absent, damaged, or its identity holds no `recipe`."""
        curve = read_json(path, "curve", TRAIN_ANEW, cls)
        for kind in (Run, recipe) if recipe else (Run,):
            lacks = {f.name for f in fields(kind)} - curve.identity.keys() - {"change"}
            if lacks:
                raise UserError(f"{path}: identity: {min(lacks)!r} is missing; {TRAIN_ANEW}")
            checked(curve.part(kind), kind, path, TRAIN_ANEW, at="identity")
        return curve

    @classmethod
    def of(cls, path: Path, identity: dict[str, Any]) -> Curve | None:
        """The curve of the run with this identity; None if there is none, UserError if another run's lies there."""
        if not path.exists():
            return None
        curve = cls.read(path)
        require_same(path, curve.identity, identity)
        return curve

    def done(self, until: int | None = None) -> bool:
        """Whether nothing is left to train: the run is complete, or has come to the step `until`."""
        return self.complete or (until is not None and until <= self.last_step < self.steps)

    def part(self, kind: type) -> dict[str, Any]:
        """What the identity holds of the dataclass `kind`: the run, or its recipe."""
        return {f.name: self.identity[f.name] for f in fields(kind) if f.name in self.identity}

    @property
    def run(self) -> Run:
        return Run(**self.part(Run))

    @property
    def steps(self) -> int:
        """Updates that the run is to have in the end."""
        return self.identity["steps"]

    @property
    def last_step(self) -> int:
        return self.validations[-1].step

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


@dataclass(frozen=True)
class Start:
    """One start of a run: what its speed and last bits depend on. Kept apart from the curve, which must not vary."""

    started: str
    from_step: Natural
    to_step: Natural
    seconds: float
    evaluation_seconds: float
    device: str
    threads: int
    torch: str


@dataclass(frozen=True)
class MachineNote:
    """All starts of a run, the first one first."""

    schema: Literal[1]
    starts: list[Start]


def read_starts(path: Path) -> list[Start]:
    """Every start of a run, from its machine note; none if there is no note. UserError for a damaged one."""
    way_out = "delete it: only the times of the run are lost"
    return read_json(path, "note of the machine", way_out, MachineNote).starts if path.exists() else []


def read_all(folder: Path, recipe: type) -> tuple[list[Curve], list[str]]:
    """(every curve in the folder; one line for each file that is left out). Other files are passed by.

    A copy under another name is no second run.
    """
    curves, left_out = [], []
    for path in sorted(folder.glob("*.json")):
        if not RUN_FILE.fullmatch(path.name):
            continue
        try:
            curve = Curve.read(path, recipe)
            if path.stem != (name := curve.run.name):
                raise UserError(f"{path}: holds the run {name}, which its name does not say; rename or delete it")
            curves.append(curve)
        except UserError as error:
            left_out.append(f"left out: {error}")
    return curves, left_out


def require_same(path: Path, on_disk: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise UserError naming the first key in which a run on disk differs from the one asked for."""
    for key in sorted(on_disk.keys() | wanted.keys()):
        if on_disk.get(key) != wanted.get(key):
            raise UserError(
                f"{path}: belongs to another run ({key} is {on_disk.get(key)!r}, asked for {wanted.get(key)!r}); "
                "choose another --results folder or delete the file"
            )


def write_json(path: Path, content: Curve | MachineNote) -> None:
    """One line a key: thousands of losses stay one line of a diff."""
    items = asdict(content).items()
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in items)
    paths.atomic_write(path, f"{{\n{lines}\n}}\n")
