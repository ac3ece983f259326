"""What each change of the recipe does, beside what luck does: drawn and in words."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from papers.vit.part4.runs import PLAIN, Curve, Run
from shared.verdict import binomial_variance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = (
    "What each change of the recipe does to the accuracy on all test images, against the plain recipe's run of the "
    "same seed. Bars: two standard errors of the two test scores. Grey: within it 19 of 20 pairs of plain runs of "
    "different seeds lie (Student's t)."
)


NAMES = {  # of the changes, short enough for an axis; what each is in full stands in the log
    "jpeg": "images through JPEG",
    "init": "He initialisation, BatchNorm from 0",
    "he": "He initialisation",
    "zero": "last BatchNorm of a block from 0",
    "decay": "no decay on biases and norms",
    "normalisation": "pixels to -1..1",
    "padding": "mirrored padding",
}


def differences(curves: dict[Run, Curve]) -> dict[str, list[tuple[float, float]]]:
    """By change: (difference from the plain run of the seed on all test images, its standard error), in points."""
    plain = {run.seed: curve for run, curve in curves.items() if run.change == PLAIN}
    found: dict[str, list[tuple[float, float]]] = {}
    for run, curve in curves.items():
        if run.change != PLAIN and run.seed in plain:
            pair = [curve, plain[run.seed]]
            images = (c.validation_images + c.held_out_images for c in pair)
            error = math.sqrt(sum(binomial_variance(c.test_accuracy, n) for c, n in zip(pair, images, strict=True)))
            found.setdefault(run.change, []).append((curve.test_accuracy - plain[run.seed].test_accuracy, error))
    return found


def luck(curves: dict[Run, Curve]) -> float | None:
    """Points within which 19 of 20 pairs of plain runs lie on all test images; None from one seed."""
    from scipy.stats import t

    plain = [curve.test_accuracy for run, curve in curves.items() if run.change == PLAIN]
    if len(plain) < 2:
        return None
    return float(t.ppf(0.975, len(plain) - 1)) * math.sqrt(2) * statistics.stdev(plain)


def draw(curves: dict[Run, Curve]) -> Figure | None:
    """A row for each change; None where there is none."""
    from shared.plots import figure_and_axes

    found, band = differences(curves), luck(curves)
    if not found:
        return None
    figure, axes = figure_and_axes(7.2, 1.3 + 0.36 * len(found))
    if band:
        axes.axvspan(-band, band, color="#e4e4e4", zorder=0, label="two seeds, nothing changed")
    axes.axvline(0, color="black", linewidth=0.8)
    names = list(found)
    points = [(points, name, 2 * error) for name, each in found.items() for points, error in each]
    x, y, errors = zip(*points, strict=True)
    look = {"fmt": "o", "color": "#c05a00", "capsize": 3, "elinewidth": 0.8}
    axes.errorbar(x, [names.index(name) for name in y], xerr=errors, label="changed minus plain", **look)
    axes.set_yticks(range(len(names)), [NAMES[name] for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.set_xlabel("difference in accuracy on all test images, points")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2)
    return figure


def in_words(curves: dict[Run, Curve]) -> str:
    """Which changes move the result by more than luck does."""
    found, band = differences(curves), luck(curves)
    if not found or band is None:
        return ""
    means = {NAMES[name]: statistics.fmean(points for points, _ in each) for name, each in found.items()}
    sizes = ", ".join(f"{name} {points:+.1f}" for name, points in sorted(means.items(), key=lambda item: item[1]))
    beyond = [name for name, points in means.items() if abs(points) > band] or ["none"]
    return (
        f"On all test images, in points against the plain recipe: {sizes}. Two plain runs of different seeds lie up to "
        f"{band:.1f} points apart by luck (19 of 20 pairs); more than that: {', '.join(beyond)}."
    )
