"""Figures of vit_part4_scratch_curves.py. Both networks differ by line and marker, so grey print and poor sight do."""

from __future__ import annotations

from pathlib import Path

from papers.vit.scratch_curves import Curve, smooth
from papers.vit.scratch_recipe import departure_of
from shared import plots
from shared.published import Published

LOOKS = {
    "ViT": {"color": "#1f4e9c", "linestyle": "-", "marker": "o"},
    "ResNet": {"color": "#c05a00", "linestyle": "--", "marker": "s"},
}


def draw_curves(curves: list[Curve], path: Path) -> Path:
    """Accuracy above, loss below, a column for each number of images."""
    import matplotlib
    from matplotlib.figure import Figure

    sizes = sorted({c.size for c in curves})
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(1.2 + 2.7 * len(sizes), 4.8), layout="constrained")
        axes = figure.subplots(2, len(sizes), sharex="col", sharey="row", squeeze=False)
        for column, size in enumerate(sizes):
            above, below = axes[0][column], axes[1][column]
            for curve in (c for c in curves if c.size == size):
                look = LOOKS[curve.model]
                steps, accuracies = zip(*curve.validations, strict=True)
                above.plot(steps, accuracies, markersize=3.5, label=curve.model, **look)
                every = max(1, curve.steps // 10)
                below.plot(
                    range(1, len(curve.losses) + 1), smooth(curve.losses), markevery=(every - 1, every),
                    markersize=3.5, label=curve.model, **look,
                )  # fmt: skip
                if not curve.complete:
                    above.annotate("cut short", (steps[-1], accuracies[-1]), fontsize=7)
            above.set_title(f"{size:,} images", fontsize=9)
            below.set_xlabel("step")
        axes[0][0].set_ylabel("validation accuracy (%)")
        axes[1][0].set_ylabel("training loss, smoothed (nats)")
        # the last panel may lack a network that the others show
        lines = {line.get_label(): line for panel in axes[0] for line in panel.get_lines()}
        axes[0][-1].legend(handles=list(lines.values()), frameon=False, loc="lower right")
    return plots.save(figure, path)


def draw_sizes(curves: list[Curve], numbers: Published, path: Path) -> Path:
    """Best accuracy against the number of images: ours filled, the article's hollow (not beside other images)."""
    figure, axes = plots.figure_and_axes(4.6, 3.4)
    for model, look in LOOKS.items():
        ours = sorted((c.size, c.best) for c in curves if c.model == model and c.complete)
        if ours:
            axes.plot(*zip(*ours, strict=True), label=f"{model}, ours", markersize=5, **look)
        if any(departure_of(c.identity) for c in curves):
            continue
        published = [(s, numbers[f"{s:,} images/{model} best"].value) for s in (1000, 5000, 50000)]
        axes.plot(
            *zip(*published, strict=True), label=f"{model}, article", markersize=8, markerfacecolor="none",
            color=look["color"], marker=look["marker"], linestyle="none",
        )  # fmt: skip
    ticks = sorted({tick for line in axes.lines for tick in line.get_xdata()})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{t:,}" for t in ticks], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("training images")
    axes.set_ylabel("best validation accuracy (%)")
    axes.legend(frameon=False, fontsize=8, loc="best")
    return plots.save(figure, path)
