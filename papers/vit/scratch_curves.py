"""Saved training curves as the article prints them. Reads JSON only: no torch, so printing takes no time."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.vit.scratch_files import RUN_FILE, read_curve
from papers.vit.scratch_recipe import VARIANTS, Run, departure_of
from shared.errors import UserError
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


def parse(content: dict[str, Any]) -> Curve:
    """A curve from the content of a run's file, as `read_curve` gives it."""
    who, images = content["identity"], content["validation_images"]
    return Curve(
        who["model"], who["size"], who["steps"], content["complete"],
        [(v["step"], 100 * v["correct"] / images) for v in content["validations"]], content["losses"], who,
    )  # fmt: skip


def read(folder: Path, seed: int) -> tuple[list[Curve], list[str]]:
    """(curves of a seed by size, the ViT first; one line for each run that is not shown). Other files are passed by."""
    every, left_out = read_all(folder)
    found = [curve for curve in every if curve.identity["seed"] == seed]
    # one line a cell: a finished run before one cut short, then the reference before the other arithmetics
    found.sort(key=lambda c: (c.size, c.model != "ViT", not c.complete, VARIANTS.index(c.identity["variant"])))
    kept: dict[tuple[int, str], Curve] = {}
    for curve in found:
        if (curve.size, curve.model) in kept:
            state = "" if curve.complete else " (cut short)"
            variant = f"{curve.identity['variant']}{state}"
            left_out.append(f"{curve.size:,} images {curve.model}: also there in {variant}, not shown")
        kept.setdefault((curve.size, curve.model), curve)
    return list(kept.values()), left_out


def read_all(folder: Path) -> tuple[list[Curve], list[str]]:
    """(every curve in the folder; one line for each file that is damaged)."""
    found, left_out = [], []
    for path in sorted(folder.glob("*.json")):
        if RUN_FILE.fullmatch(path.name):
            try:
                found.append(parse(named(path, read_curve(path))))
            except UserError as error:
                left_out.append(f"left out: {error}")
    return found, left_out


def named(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The curve, if the file has the name of its run: a copy under another name is no second run."""
    run = Run(*(content["identity"][key] for key in ("model", "size", "seed", "variant")))
    if path.stem != run.name:
        raise UserError(f"{path}: holds the run {run.name}, which its name does not say; rename or delete it")
    return content


def with_repeats(folder: Path, shown: list[Curve]) -> dict[tuple[str, int], list[Curve]]:
    """Each shown run with the other seeds of its network, size, arithmetic and recipe, however far they came."""

    def apart_from_the_seed(curve: Curve) -> dict[str, Any]:
        return {key: value for key, value in curve.identity.items() if key not in ("seed", "train_sha256")}

    every, _ = read_all(folder)
    return {
        (curve.model, curve.size): [c for c in every if apart_from_the_seed(c) == apart_from_the_seed(curve)]
        for curve in shown
    }


def at_step(repeats: list[Curve], step: int) -> list[float]:
    """Validation accuracies in % at `step`, of the seeds that came so far."""
    return [accuracy for curve in repeats for at, accuracy in curve.validations if at == step]


def seed_lines(repeats: dict[tuple[str, int], list[Curve]]) -> list[str]:
    """How far apart the seeds are at the steps that a line shows, where there are several."""
    lines = []
    for (model, size), curves in repeats.items():
        for step in sorted({round(share * curves[0].steps) for share in SHARES}):
            values = at_step(curves, step)
            if len(values) > 1:
                lines.append(
                    f"{size:>8,} images  {model:<6} step {step}: {statistics.fmean(values):.1f} ± "
                    f"{statistics.stdev(values):.1f} % over {len(values)} seeds, {min(values):.1f} to {max(values):.1f}"
                )
    return lines


def arithmetic(curves: list[Curve]) -> str:
    """In which variant the shown runs were trained, in words."""
    cells: dict[str, list[str]] = {}
    for curve in curves:
        cells.setdefault(curve.identity["variant"], []).append(f"{curve.model} {curve.size:,}")
    if len(cells) == 1:
        return f"trained in {next(iter(cells))}"
    return "trained in " + "; ".join(f"{variant}: {', '.join(runs)}" for variant, runs in cells.items())


def spread_against_one_run(values: list[float]) -> float | None:
    """Deviation of the difference between the mean of our seeds' values and the article's one run; None for one seed.

    The article's run is one more draw from the spread that our seeds show: ours is the variance of a mean, s^2/n, and
    the article's is s^2.
    """
    return statistics.stdev(values) * math.sqrt(1 + 1 / len(values)) if len(values) > 1 else None


def judge(record: Record, numbers: Published, repeats: dict[tuple[str, int], list[Curve]], seed: int) -> None:
    """The article's twelve accuracies and twelve losses along the curves against ours.

    An accuracy is the mean of the seeds that reached the step. A loss is the shown seed's.
    """
    for id, number in numbers.numbers.items():
        kind, _, rest = id.partition(", ")
        if kind not in ("curve", "loss"):
            continue
        size_words, _, what = rest.partition(" images/")
        model, _, step = what.partition(" step ")
        curves = repeats.get((model, int(size_words.replace(",", ""))), [])
        if kind == "loss":
            curves = [c for c in curves if c.identity["seed"] == seed]
        values = at_step(curves, int(step))
        if not values:
            record.judge(number, None, why_not_run="no curve of this run reaches the step")
            continue
        why = departure_of(curves[0].identity)
        if kind == "curve":
            images, std = int(curves[0].identity["validation"]), spread_against_one_run(values)
            record.judge(number, statistics.fmean(values), std=std, images=images, stand_in=why)
        else:
            why = why or f"the article does not print how its loss is smoothed (ours: {SMOOTHING})"
            record.judge(number, curves[0].loss_at(int(step)), stand_in=why)
