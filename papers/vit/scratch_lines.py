"""What vit_part4_scratch.py prints: the article's lines from curve files, then what the suite adds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from papers.vit import scratch_models
from papers.vit.scratch_recipe import Recipe

DATA_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


@dataclass(frozen=True)
class Score:
    """Accuracies in % of one network on one number of images, a value for each of `seeds`; `steps` of the best."""

    best: list[float]
    held_out: list[float]
    steps: list[int]
    seeds: list[int]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.best)

    @property
    def std(self) -> float | None:
        """Sample deviation over the seeds; None for a single one."""
        return statistics.stdev(self.best) if len(self.best) > 1 else None


def score(curves: Iterable[dict[str, Any]]) -> Score:
    """Curves of the seeds of one cell -> its accuracies."""
    curves = list(curves)
    return Score(
        [100 * c["best"]["correct"] / c["validation_images"] for c in curves],
        [100 * c["best"]["held_out_correct"] / c["held_out_images"] for c in curves],
        [c["best"]["step"] for c in curves],
        [c["identity"]["seed"] for c in curves],
    )


def paired(one: Score | None, other: Score | None) -> tuple[Score, Score] | None:
    """Both with the seeds only that both have, in one order: what a gap is made of. None without a common seed."""
    common = sorted(set(one.seeds) & set(other.seeds)) if one and other else []

    def only(s: Score) -> Score:
        at = [s.seeds.index(seed) for seed in common]
        return Score([s.best[i] for i in at], [s.held_out[i] for i in at], [s.steps[i] for i in at], common)

    return (only(one), only(other)) if common else None


def millions(count: int) -> str:
    """1,205,898 -> "1.21M", as the article prints parameters."""
    return f"{count / 1e6:.2f}M"


def data_name(data: str) -> str:
    """As the log spells it: the article's name, or the folder's own."""
    return DATA_NAMES.get(data, data.rstrip("/").rpartition("/")[2])


def header(data: str, recipe: Recipe, models: tuple[str, ...], classes: int) -> list[str]:
    """The article's first lines: both networks with their cost, and the recipe."""
    m = scratch_models
    tokens = (recipe.image_size // m.PATCH) ** 2
    words = {
        "ViT": f"({m.PATCH}x{m.PATCH} patches -> {tokens} tokens + [class], D {m.DIM}, {m.LAYERS} layers, "
        f"{m.HEADS} heads, MLP {m.MLP}):",
        "ResNet": f"(ResNet-18 layout, widths {'-'.join(map(str, m.WIDTHS))}, BatchNorm):",
    }
    title = f"Section 4.3 in miniature: {data_name(data)} from scratch, same recipe for both models and every data size"
    lines = [f"== {title} =="]
    for name in models:
        parameters = m.parameter_count(name, classes=classes, image_size=recipe.image_size)
        cost = m.multiply_adds(name, classes=classes, image_size=recipe.image_size)
        lines.append(
            f"  {name:<6} {words[name]:<71} {millions(parameters)} parameters, "
            f"{cost.weights / 1e6:.0f}M multiply-adds per image"
        )
    return [
        *lines,
        f"  recipe: AdamW lr {recipe.lr:g}, warm-up {recipe.warmup} steps then cosine, weight decay "
        f"{recipe.weight_decay:g}, batch {recipe.batch}, {recipe.steps} steps, crop + flip;",
        f"          validation on {recipe.validation:,} {data_name(data)} test images every {recipe.every} steps, "
        "best value kept (early stopping)",
    ]


def table(scores: dict[tuple[str, int], Score], sizes: tuple[int, ...], recipe: Recipe, classes: int) -> list[str]:
    """The article's table and its last line; a cell without a finished run prints "-"."""
    lines = ["    images  per class  epochs   ViT best  ResNet best  ResNet - ViT"]
    for size in sizes:
        vit, resnet = scores.get(("ViT", size)), scores.get(("ResNet", size))
        both = paired(vit, resnet)
        gap = f"{both[1].mean - both[0].mean:+.1f}" if both else "-"
        cells = [f"{s.mean:.1f}%" if s else "-" for s in (vit, resnet)]
        epochs = recipe.steps * recipe.batch / size
        lines.append(f"{size:>10,}{size // classes:>11,}{epochs:>8.0f}{cells[0]:>11}{cells[1]:>13}{gap:>13}")
    first, last = sizes[0], sizes[-1]
    gains = []
    for name in scratch_models.NAMES:
        low, high = scores.get((name, first)), scores.get((name, last))
        if both := paired(low, high):
            low, high = both
            gains.append(f"{name} {low.mean:.1f}% -> {high.mean:.1f}% ({high.mean - low.mean:+.1f})")
    if gains and first != last:
        lines.append(f"  going from {first:,} to {last:,} images: {', '.join(gains)}")
    return lines


def cost_lines(models: tuple[str, ...], recipe: Recipe, classes: int) -> list[str]:
    """Multiply-adds in both conventions."""
    lines = []
    totals = {}
    for name in models:
        cost = scratch_models.multiply_adds(name, classes=classes, image_size=recipe.image_size)
        totals[name] = cost.total
        attention = f" + {cost.attention:,} in attention products" if cost.attention else ""
        lines.append(
            f"  {name:<6} {cost.weights:,} in layers with weights{attention} = {cost.total / 1e6:.1f}M in all; "
            f"the line above prints {cost.weights / 1e6:.0f}M"
        )
    if len(totals) == 2:
        lines.append(
            "  the article's figure leaves the attention products out; with them one ViT image costs "
            f"{totals['ViT'] / totals['ResNet']:.2f} of a ResNet's"
        )
    return lines


def held_out_rows(scores: dict[tuple[str, int], Score]) -> list[list[Any]]:
    """[images, model, seed, step, validation %, held-out %, difference] for every finished run."""
    rows = []
    for (name, size), s in scores.items():
        for seed, best, other, step in zip(s.seeds, s.best, s.held_out, s.steps, strict=True):
            rows.append([f"{size:,}", name, seed, step, f"{best:.2f}", f"{other:.2f}", f"{best - other:+.2f}"])
    return rows


def runs_a_point(scores: dict[tuple[str, int], Score]) -> str:
    """How many runs stand behind an accuracy, in words."""
    counts = sorted({len(s.seeds) for s in scores.values()} or {0})
    if counts == [1]:
        return "one run"
    return f"{counts[0]} runs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} runs"


HELD_OUT_COLUMNS = ["images", "model", "seed", "step", "validation", "held out", "difference"]


def held_out_lines(scores: dict[tuple[str, int], Score]) -> list[str]:
    """The table of `held_out_rows` as text, with the mean difference over all runs."""
    lines = ["    images  model   seed   step  validation   held out  difference"]
    for images, name, seed, step, best, other, difference in held_out_rows(scores):
        lines.append(f"{images:>10}  {name:<6}{seed:>6}{step:>7}{best:>11}%{other:>10}%{difference:>12}")
    differences = [b - o for s in scores.values() for b, o in zip(s.best, s.held_out, strict=True)]
    if differences:
        lines.append(f"  mean difference over {len(differences)} runs: {statistics.fmean(differences):+.2f} points")
    return lines


def binomial_variance(accuracy: float, images: int) -> float:
    """Variance in squared points of an accuracy in % scored on `images`."""
    return accuracy * (100 - accuracy) / images


def gap_error(vit: Score, resnet: Score, images: int) -> float:
    """Standard error in points of mean(ResNet) - mean(ViT), of `paired` scores.

    Over the seeds when there are several (paired: both networks see one seed's images); else the binomial error of
    two accuracies on `images`, which leaves the luck of the run out.
    """
    if len(vit.best) > 1:
        gaps = [r - v for v, r in zip(vit.best, resnet.best, strict=True)]
        return statistics.stdev(gaps) / math.sqrt(len(gaps))
    return math.sqrt(binomial_variance(vit.mean, images) + binomial_variance(resnet.mean, images))


def seed_lines(scores: dict[tuple[str, int], Score], sizes: tuple[int, ...], images: int) -> list[str]:
    """Mean and sample deviation over the seeds, and the gap with its standard error."""
    lines = []
    for size in sizes:
        cells = {n: scores[n, size] for n in scratch_models.NAMES if (n, size) in scores}
        spread = "   ".join(
            f"{n} {s.mean:.2f}%" + (f" ± {s.std:.2f} over {len(s.best)} seeds" if s.std is not None else " (one seed)")
            for n, s in cells.items()
        )
        if both := paired(cells.get("ViT"), cells.get("ResNet")):
            vit, resnet = both
            seeds = len(vit.seeds)
            what = f"over {seeds} seeds" if seeds > 1 else "of the two test scores; the run's luck is not in it"
            error = gap_error(vit, resnet, images)
            spread += f"   gap {resnet.mean - vit.mean:+.2f}, standard error {error:.2f} {what}"
        if cells:
            lines.append(f"{size:>10,}  {spread}")
    return lines
