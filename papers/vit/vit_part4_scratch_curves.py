"""Print and draw the training curves that vit_part4_scratch.py saved: validation accuracy and smoothed training loss.

    python vit_part4_scratch_curves.py                                a few seconds; reads results/vit/scratch/
    python vit_part4_scratch_curves.py --experiment scratch-demo

Expected: with 1,000 images both losses end near 0; with 50,000 both curves still rise at the last step. A run
that was cut short prints what it has. Writes results/vit/<experiment>-curves.log, .json and figures.
"""

from __future__ import annotations

import re
import statistics
import sys
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.vit.part4.runs import LOOKS, Curve, departure_of, read_all, seeds_beside
from shared import cli, published
from shared.errors import UserError
from shared.plots import publish
from shared.published import Published
from shared.record import Record, require_plain
from shared.training.runs import VARIANTS, read_starts
from shared.verdict import Measured, standard_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "== the training curves of vit_part4_scratch.py: validation accuracy (%) and smoothed training loss =="
# Weight of the old value in the moving average of the loss. The article does not print its own; among weights from 0.9
# to 0.99 this one brings our curves nearest to the losses that it prints, so those losses are not comparable.
SMOOTHING = 0.99
SHARES = (0.2, 0.6, 1.0)  # of all steps: where a line shows the curve; 500, 1,500 and 2,500 of the article's 2,500
CURVES_CAPTION = (
    "Validation accuracy, and smoothed training loss (log scale), against the step, a panel for each number of images. "
    "Band: two standard errors of the validation images; faint lines: other seeds."
)
BESIDE = " Hollow: the article's printed points, its accuracies with the same error."
POINT = re.compile(r"(curve|loss), ([\d,]+) images/(\w+) step (\d+)")  # of the published ids
Repeats = dict[tuple[str, int], list[Curve]]  # all seeds of a network on a number of images


@dataclass
class Config(cli.Common):
    experiment: str = "scratch"
    """[what] which experiment's runs: the name given to vit_part4_scratch.py"""
    seed: int = 0
    """which repeat is printed, drawn and judged at every point; further ones are told beside it"""
    figures: bool = True
    """[output] draw PNG, SVG and PDF (--no-figures: print only)"""


def main(config: Config) -> Record:
    require_plain(config.experiment)
    question = "How do both networks learn: do they memorise, and are they still rising when the recipe ends?"
    name = f"{config.experiment}-curves"
    with Record("vit", name, config=config, results=config.results, question=question) as record:
        folder = record.directory / config.experiment
        curves, repeats, left_out = read(folder, config.seed)
        if not curves and left_out:
            raise UserError(left_out[0].removeprefix("left out: "))
        if not curves:
            raise UserError(f"{folder}: no curves of seed {config.seed}; train first with vit_part4_scratch.py")
        sizes = [c.run.size for c in curves]
        between = [c for c in curves if min(sizes) < c.run.size < max(sizes)]
        record.say("\n".join([TITLE, *(line(c) for c in curves if c not in between)]), exact=True)
        if between:
            record.section("the sizes between, which the article does not print")
            record.say("\n".join(map(line, between)), exact=True)  # in the article's form
        seeds = seed_lines(repeats)
        if seeds:
            record.section("how far apart the seeds are")
            record.say("\n".join(seeds))
        record.section("how to read this")
        record.say(
            f"  the loss is an exponential moving average, {SMOOTHING} of the old value and {1 - SMOOTHING:.2f} of "
            "each step's (the article does not print its constant)"
        )
        record.say(f"  {arithmetic(curves)}")
        if seeds:
            record.say(
                f"  lines, figures and verdicts are of seed {config.seed} at every point; further seeds were run at "
                "some points only, so their spread widens no tolerance"
            )
        for text in [missing(c) for c in curves if not c.complete] + left_out:
            record.say(f"  {text}")

        for c in (c for cell in repeats.values() for c in cell):
            starts = read_starts(c.run.machine_file(folder))
            record.use_run(c.run.curve_file(folder), c.run.seed, [start.words for start in starts])
        record.seed = config.seed
        rows = []
        for c in curves:
            points = [[step, accuracy, loss_at(c, step)] for step, accuracy in c.points]
            key, best = f"{c.run.model}/{c.run.size}", [c.best.step, c.best_accuracy]
            record.results[key] = {
                "variant": c.run.variant,
                "complete": c.complete,
                "validations": points,
                "best": best,
            }
            rows += [[f"{c.run.size:,}", c.run.model, step, f"{a:.1f}", f"{loss:.3f}"] for step, a, loss in points]
        columns = ["images", "model", "step", "accuracy", "loss"]
        record.table("Validation accuracy (%) and smoothed training loss", columns, rows)
        article = published.load("vit", "scratch")
        if config.figures:
            beside = None if any(map(departure_of, curves)) else article
            caption = CURVES_CAPTION + BESIDE * bool(beside)
            publish(record, draw_curves(curves, repeats, beside), name, caption, data=f"results/vit/{folder.name}/")
        numbers = measured(article, repeats, config.seed, Path(config.experiment))
        record.judge_all(replace(article, numbers={id: article[id] for id in numbers}), numbers, "")
        record.print_verdicts()
        record.answer(in_words(curves))
        record.cannot_show(
            "how much of a curve is the luck of the run, where there is one seed; the validation images also choose "
            "its best step."
        )
    return record


def read(folder: Path, seed: int) -> tuple[list[Curve], Repeats, list[str]]:
    """(a seed's curves by size, the ViT first; all seeds of each; a line for each run that is not shown).

    All seeds: those of the same network, size, arithmetic and recipe, however far they came.
    """
    every, left_out = read_all(folder)
    of_seed = [c for c in every if c.run.seed == seed]
    # one line per cell: a finished run before one cut short, then the reference before the other arithmetics
    of_seed.sort(key=lambda c: (c.run.size, c.run.model != "ViT", not c.complete, VARIANTS.index(c.run.variant)))
    shown: dict[tuple[str, int], Curve] = {}
    for c in of_seed:
        run = c.run
        if (run.model, run.size) in shown:
            state = "" if c.complete else " (cut short)"
            left_out.append(f"{run.size:,} images {run.model}: also there in {run.variant}{state}, not shown")
        shown.setdefault((run.model, run.size), c)

    def apart_from_the_seed(c: Curve) -> dict[str, Any]:
        return {key: value for key, value in c.identity.items() if key not in ("seed", "train_sha256")}

    repeats = {
        cell: [c for c in every if apart_from_the_seed(c) == apart_from_the_seed(curve)]
        for cell, curve in shown.items()
    }
    return list(shown.values()), repeats, left_out


def smooth(losses: list[float]) -> list[float]:
    """Exponential moving average with SMOOTHING, started at the first loss; one value per loss."""
    return list(accumulate(losses, lambda old, loss: SMOOTHING * old + (1 - SMOOTHING) * loss))


def loss_at(curve: Curve, step: int) -> float:
    """Moving average of the loss after `step` updates."""
    return smooth(curve.losses[:step])[-1]


def line(curve: Curve) -> str:
    """The article's line: three points and the best."""
    shown = []
    for share in SHARES:
        step = round(share * curve.steps)
        # a run with other distances between validations shows the nearest ones
        reached = min(curve.points, key=lambda point: abs(point[0] - step))
        if (curve.complete or reached[0] == step) and reached not in shown:
            shown.append(reached)
    points = "  ".join(f"step {s}: {a:.1f}% / loss {loss_at(curve, s):.3f}" for s, a in shown)
    best = f"best {curve.best_accuracy:.1f}% at step {curve.best.step}"
    return f"{curve.run.size:>8,} images  {curve.run.model:<6} {points}   {best}"


def missing(curve: Curve) -> str:
    """What a run that was cut short lacks."""
    return (
        f"{curve.run.size:,} images {curve.run.model}: the curve ends at step {curve.last_step:,} of {curve.steps:,}; "
        "start vit_part4_scratch.py again to go on"
    )


def at_step(curves: list[Curve], step: int) -> list[float]:
    """Validation accuracies in % at `step`, of the seeds that came so far."""
    return [accuracy for curve in curves for at, accuracy in curve.points if at == step]


def seed_lines(repeats: Repeats) -> list[str]:
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
        cells.setdefault(curve.run.variant, []).append(f"{curve.run.model} {curve.run.size:,}")
    if len(cells) == 1:
        return f"trained in {next(iter(cells))}"
    return "trained in " + "; ".join(f"{variant}: {', '.join(runs)}" for variant, runs in cells.items())


def measured(article: Published, repeats: Repeats, seed: int, folder: Path = Path()) -> dict[str, Measured]:
    """Our numbers for the article's twelve accuracies and twelve losses along the curves, by their published ids.

    Both are the shown seed's, at every point. What further seeds gave at the step stands beside an accuracy; `folder`
    is that of the runs, for their names.
    """
    numbers = {}
    for id in article.numbers:
        point = POINT.fullmatch(id)
        if not point:
            continue
        kind, size, model, step = point[1], int(point[2].replace(",", "")), point[3], int(point[4])
        every = repeats.get((model, size), [])
        curves = [c for c in every if c.run.seed == seed]
        values = at_step(curves, step)
        if not values:
            why = "no curve of this run reaches the step" if every else "not part of this run"
            numbers[id] = Measured(None, why_not_run=why)
            continue
        why, runs = departure_of(curves[0]), (curves[0].run.curve_file(folder).as_posix(),)
        if kind == "curve":
            images, reason = curves[0].validation_images, seeds_beside(at_step(every, step))
            numbers[id] = Measured(values[0], images=images, stand_in=why, reason=reason, runs=runs)
        else:
            why = why or f"the article does not print how its loss is smoothed (ours: {SMOOTHING})"
            numbers[id] = Measured(loss_at(curves[0], step), stand_in=why, runs=runs)
    return numbers


def draw_curves(curves: list[Curve], repeats: Repeats, article: Published | None) -> Figure:
    """Accuracy above, loss below, a column for each number of images. article: its numbers, if they can be compared."""
    from shared import plots

    sizes = sorted({c.run.size for c in curves})
    sharing = {"sharex": "col", "sharey": "row", "squeeze": False}
    figure, axes = plots.figure_and_axes(1.2 + 2.7 * len(sizes), 5.2, len(sizes), 2, **sharing)
    for curve in curves:
        above, below = axes[:, sizes.index(curve.run.size)]
        look = LOOKS[curve.run.model] | {"label": curve.run.model, "markersize": 3.5}
        draw_accuracy(above, curve, look)
        draw_loss(below, curve, look)
        for other in repeats.get((curve.run.model, curve.run.size), []):
            if other is not curve:
                faint = look | {"label": None, "marker": None, "linewidth": 0.8, "alpha": 0.45}
                above.plot(*zip(*other.points, strict=True), **faint)
        if article:
            draw_printed(above, below, curve, article)
        above.set_title(f"{curve.run.size:,} images", fontsize=9)
        below.set_xlabel("step")
    axes[0][0].set_ylabel("validation accuracy, %")
    axes[0][0].set_ylim(bottom=0)
    axes[1][0].set_ylabel("training loss, nats (log scale)")
    axes[1][0].set_yscale("log")
    # the last panel may lack a network that the others show
    lines = {label: line for panel in axes[0] for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    axes[0][-1].legend(lines.values(), lines.keys(), loc="lower right")
    return figure


def draw_accuracy(axes: Axes, curve: Curve, look: dict[str, Any]) -> None:
    """The validations with a band of two standard errors."""
    steps, accuracies = zip(*curve.points, strict=True)
    axes.plot(steps, accuracies, **look)
    errors = [2 * standard_error(accuracy, curve.validation_images) for accuracy in accuracies]
    low, high = ([a + sign * e for a, e in zip(accuracies, errors, strict=True)] for sign in (-1, 1))
    axes.fill_between(steps, low, high, color=look["color"], alpha=0.18, linewidth=0)
    if not curve.complete:
        axes.annotate("cut short", (steps[-1], accuracies[-1]), fontsize=8)


def draw_loss(axes: Axes, curve: Curve, look: dict[str, Any]) -> None:
    """The moving average of the loss; a fifth of its points draws the line, ten markers tell it from the other."""
    averaged = smooth(curve.losses)
    marks = set(range(max(1, curve.steps // 10), len(averaged) + 1, max(1, curve.steps // 10)))
    steps = sorted({1, len(averaged), *range(5, len(averaged) + 1, 5), *marks})
    marked = [place for place, step in enumerate(steps) if step in marks]
    axes.plot(steps, [averaged[step - 1] for step in steps], markevery=marked, **look)


def draw_printed(above: Axes, below: Axes, curve: Curve, article: Published) -> None:
    """The article's points of this curve, hollow: accuracies with their test error, losses as printed."""
    look = {key: LOOKS[curve.run.model][key] for key in ("color", "marker")}
    hollow = look | {"markerfacecolor": "none", "markersize": 7, "linestyle": "none"}
    hollow |= {"label": f"{curve.run.model}, article"}
    for kind, axes in (("curve", above), ("loss", below)):
        printed = printed_points(article, kind, curve.run.size, curve.run.model)
        if printed and kind == "curve":
            errors = [standard_error(accuracy, curve.validation_images) for accuracy in printed.values()]
            axes.errorbar(list(printed), list(printed.values()), errors, capsize=3, elinewidth=0.8, **hollow)
        elif printed:
            axes.plot(list(printed), list(printed.values()), **hollow)


def printed_points(article: Published, kind: str, size: int, model: str) -> dict[int, float]:
    """The article's values along a curve by step. kind: "curve" for accuracies in %, "loss" for nats."""
    found = {}
    for id, number in article.numbers.items():
        if (point := POINT.fullmatch(id)) and (point[1], point[2], point[3]) == (kind, f"{size:,}", model):
            found[int(point[4])] = number.value
    return found


def in_words(curves: list[Curve]) -> str:
    """Whether they memorise (the loss at the end), and what the last two fifths of the steps still bring."""
    said = []
    for c in (c for c in curves if c.complete):
        step, accuracy = min(c.points, key=lambda point: abs(point[0] - 0.6 * c.steps))
        said.append(
            f"{c.run.model} on {c.run.size:,} images ends at a loss of {loss_at(c, c.last_step):.3f}, and its last "
            f"{c.steps - step:,} steps bring {c.points[-1][1] - accuracy:+.1f} points"
        )
    return "; ".join(said) + "." if said else "no run is finished yet."


if __name__ == "__main__":
    cli.run(main, Config)
