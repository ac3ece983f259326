"""Saved training curves as the article prints them. Reads JSON only: no torch, so printing takes no time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.vit.scratch_recipe import departure_of
from shared.published import Published
from shared.record import Record

TITLE = "== the training curves of vit_part4_scratch.py: validation accuracy (%) and smoothed training loss =="
# Share of the old value in the moving average of the loss; of 0.9 to 0.99 the nearest to the losses that are printed.
SMOOTHING = 0.99
SHARES = (0.2, 0.6, 1.0)  # of all steps: where a line shows the curve; 500, 1,500 and 2,500 of the article's 2,500


@dataclass(frozen=True)
class Curve:
    """One run: validations as (step, accuracy in %), the loss of every step, and how far it was to go."""

    model: str
    size: int
    steps: int
    complete: bool
    validations: list[tuple[int, float]]
    losses: list[float]
    identity: dict[str, Any]

    @property
    def best_step(self) -> int:
        """The first step with the best accuracy."""
        return max(self.validations, key=lambda v: v[1])[0]

    @property
    def best(self) -> float:
        return max(accuracy for _, accuracy in self.validations)

    def loss_at(self, step: int) -> float:
        """Moving average of the loss after `step` updates, started at the first loss."""
        return smooth(self.losses[:step])[-1]

    def line(self) -> str:
        """The article's line: three points and the best."""
        shown = []
        for share in SHARES:
            step = round(share * self.steps)
            # a run with other distances between validations shows the nearest ones
            reached = min(self.validations, key=lambda v: abs(v[0] - step))
            if (self.complete or reached[0] == step) and reached not in shown:
                shown.append(reached)
        points = "  ".join(f"step {s}: {a:.1f}% / loss {self.loss_at(s):.3f}" for s, a in shown)
        return f"{self.size:>8,} images  {self.model:<6} {points}   best {self.best:.1f}% at step {self.best_step}"

    def missing(self) -> str:
        """What a run that was cut short lacks."""
        return (
            f"{self.size:,} images {self.model}: the curve ends at step {self.validations[-1][0]:,} of {self.steps:,}; "
            "start vit_part4_scratch.py again to go on"
        )


def smooth(losses: list[float]) -> list[float]:
    """Exponential moving average with SMOOTHING, one value a loss."""
    values: list[float] = []
    for loss in losses:
        values.append(SMOOTHING * values[-1] + (1 - SMOOTHING) * loss if values else loss)
    return values


def parse(content: Any) -> Curve:
    """A curve from a run's file. KeyError, TypeError or ValueError if it is not one."""
    who = content["identity"]
    pictures = int(content["validation_pictures"])
    return Curve(
        str(who["model"]), int(who["size"]), int(who["steps"]), bool(content["complete"]),
        [(int(v["step"]), 100 * int(v["correct"]) / pictures) for v in content["validations"]],
        [float(x) for x in content["losses"]], who,
    )  # fmt: skip


def read(folder: Path, seed: int) -> tuple[list[Curve], list[str]]:
    """(curves of a seed by size, the ViT first; one line for each file that is no curve)."""
    found, damaged = [], []
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith(".machine.json"):
            continue
        try:
            content = json.loads(path.read_text())
            curve = parse(content)
            if curve.validations and content["identity"]["seed"] == seed:
                found.append(curve)
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged.append(
                f"{path}: damaged curve ({type(error).__name__}: {error}), left out; delete it and train again"
            )
    # one line a cell: of several variants of one run, the reference comes first and the others are named
    found.sort(key=lambda c: (c.size, c.model != "ViT", c.identity["variant"]))
    kept: dict[tuple[int, str], Curve] = {}
    for curve in found:
        if (curve.size, curve.model) in kept:
            damaged.append(f"{curve.size:,} images {curve.model}: also there in {curve.identity['variant']}, not shown")
        kept.setdefault((curve.size, curve.model), curve)
    return list(kept.values()), damaged


def judge(record: Record, numbers: Published, curves: list[Curve]) -> None:
    """The article's twelve accuracies and twelve losses along the curves against ours."""
    by_cell = {(c.model, c.size): c for c in curves}
    for id, number in numbers.numbers.items():
        kind, _, rest = id.partition(", ")
        if kind not in ("curve", "loss"):
            continue
        size_words, _, what = rest.partition(" images/")
        model, _, step = what.partition(" step ")
        curve = by_cell.get((model, int(size_words.replace(",", ""))))
        accuracy = dict(curve.validations).get(int(step)) if curve else None
        if accuracy is None:
            record.judge(number, None, why_not_run="no curve of this run reaches the step")
            continue
        why = departure_of(curve.identity)
        if kind == "curve":
            record.judge(number, accuracy, pictures=int(curve.identity["validation"]), stand_in=why)
        else:
            why = why or f"the article does not print how its loss is smoothed (ours: {SMOOTHING})"
            record.judge(number, curve.loss_at(int(step)), stand_in=why)
