"""The figures of `vit_part5_compute.py`. Readable without colour: every series has its own marker and line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from papers.vit.part4.audit import DATASETS, frontier
from papers.vit.part5.architectures import ALL, NO_PADDING
from papers.vit.part5.compute import AVERAGE, ODD, Count, Rows, joint_frontier, odd_half, of, points
from papers.vit.part5.scaling import LARGEST, LIMIT, SMALLEST, VITS, Curve, exponents
from shared.plots import figure_and_axes, mark_cut
from shared.published import Number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {"ViT": ("o", "-", "#1b4f8a"), "hybrid": ("D", ":", "#7a7a7a"), "ResNet": ("s", "--", "#c8642c")}
FIGURE5 = (
    "Figure 5 from Table 6: accuracy against pre-training compute. Lines: each family's Pareto front "
    "(no cheaper one is better); ringed: the Pareto front of ViTs and ResNets. Crossed: the one compute of 7 epochs "
    "that is not half of the same model's at 14. One run per point, no deviation in print."
)
COUNTED = (
    "exaFLOPs of Table 6, counted from the architectures, above what is printed. Bars: the rounding of the printed "
    "number and of the 303 million images."
)
SIDE = (
    "Multiply-adds of one image against its side, counted, at every size that divides into patches. Right: the local "
    "exponent, which would reach 4 if attention's products decided."
)


def all_of(
    rows: Rows, counts: dict[str, Count], images: Number, curves: dict[str, Curve]
) -> Iterator[tuple[Figure, str, str]]:
    """Each figure with its name and caption; the first answers the script's question."""
    yield figure5(rows, counts), "part5-compute-figure5", FIGURE5
    yield counted(counts, images), "part5-compute-counted", COUNTED
    yield image_size(curves), "part5-compute-image-size", SIDE


def figure5(rows: Rows, counts: dict[str, Count]) -> Figure:
    figure, panels = figure_and_axes(7.4, 6.9, columns=3, rows=3)
    flat = list(panels.flat)
    for axes, data in zip(flat, (AVERAGE, *DATASETS), strict=False):
        _panel(axes, rows, data, odd_half(counts))
    handles, labels = flat[0].get_legend_handles_labels()
    for axes in flat[len(DATASETS) + 1 :]:
        axes.set_axis_off()
    # the words reach into the free place beside: the panels above are not moved apart for them
    flat[-2].legend(handles, labels, loc="center left").set_in_layout(False)
    for axes in flat[: len(DATASETS) + 1]:
        axes.set_ylabel("accuracy, %" if axes in panels[:, 0] else "")
        mark_cut(axes)
        axes.set_ylabel(axes.get_ylabel() if axes in panels[:, 0] else "")
    figure.supxlabel("pre-training compute, exaFLOPs (log scale)", fontsize=9)
    return figure


def _panel(axes: Axes, rows: Rows, data: str, half: float) -> None:
    for family, (marker, line, colour) in LOOKS.items():
        dots = {"color": colour, "markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.4}
        own = points(of(rows, family), data)
        axes.plot(*zip(*own, strict=True), marker, **dots)
        axes.plot(*zip(*frontier(own), strict=True), marker + line, lw=1.2, label=f"{family}, frontier", **dots)
    ringed = [(row.compute, row.scores[data]) for row in joint_frontier(rows, ("ViT", "ResNet"), data)]
    ring = {"markersize": 9, "markerfacecolor": "none", "markeredgecolor": "black", "markeredgewidth": 0.9}
    axes.plot(*zip(*ringed, strict=True), "o", linestyle="none", label="frontier of ViT and ResNet", **ring)
    odd = rows[ODD]
    at = (odd.compute, odd.scores[data])
    axes.plot(
        *at,
        "x",
        color="black",
        markersize=6,
        markeredgewidth=1.2,
        label=f"printed {odd.compute:g}; half of 14 epochs: {half:g}",
    )
    axes.set_title(data, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(40, 6000)
    axes.set_xticks([50, 200, 1000, 4000], ["50", "200", "1,000", "4,000"])
    axes.minorticks_off()


def counted(counts: dict[str, Count], images: Number) -> Figure:
    of_images = images.half_unit / images.value
    figure, axes = figure_and_axes(7.4, 4.6)
    names = list(counts)
    axes.axvline(0, color="black", lw=0.8)
    shown = {ALL: ("o", "#1b4f8a", "all products"), NO_PADDING: ("D", "#c8642c", "without zero padding")}
    for reading, (marker, colour, label) in shown.items():
        own = {name: count for name, count in counts.items() if reading in count.readings}
        off = [100 * (count.readings[reading] / count.row.compute - 1) for count in own.values()]
        at = [names.index(name) for name in own]
        if reading == ALL:
            open_by = [100 * (c.row.cell.half_unit / c.row.compute + of_images) for c in own.values()]
            axes.errorbar(off, at, xerr=open_by, fmt=marker, color=colour, ms=5, capsize=2, elinewidth=0.8, label=label)
        else:
            axes.plot(off, at, marker, color=colour, markersize=6, markerfacecolor="none", label=label)
    odd = counts[ODD]
    note = f"printed {odd.row.cell.printed}; half of 14 epochs: {odd_half(counts):g}"
    axes.annotate(note, (100 * odd.off, names.index(ODD)), xytext=(10, -3), textcoords="offset points", fontsize=8)
    axes.set_yticks(range(len(names)), [f"{name}  {count.row.cell.printed}" for name, count in counts.items()])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("counted above printed, %")
    axes.grid(visible=True, axis="x")
    axes.legend(loc="lower right")
    return figure


def image_size(curves: dict[str, Curve]) -> Figure:
    figure, (left, right) = figure_and_axes(9, 3.8, columns=2)
    looks = dict(zip(curves, ("o:", "^:", "o-", "^-", "D-", "s--", "v--"), strict=True))
    for name, curve in curves.items():
        colour = LOOKS["ViT" if name in VITS else "ResNet"][2]
        look = {"color": colour, "markersize": 4, "lw": 1, "markevery": max(1, len(curve) // 7), "label": name}
        left.plot(*zip(*[(size, macs / 1e9) for size, macs in curve], strict=True), looks[name], **look)
        right.plot(*zip(*exponents(curve), strict=True), looks[name], **look)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlim(SMALLEST * 0.95, LARGEST * 1.05)
        ticks = (64, 128, 224, 384, 512)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("side of the image, px (log scale)")
    left.set_yscale("log")
    left.set_ylabel("multiply-adds, billion (log scale)")
    for exponent, words in ((2, "as the pixels"), (LIMIT, "limit of attention")):
        right.axhline(exponent, color="black", lw=0.8, ls="--")
        right.annotate(f"{exponent:g}: {words}", (70, exponent + 0.04), fontsize=8)
    right.set_ylim(1.5, 4.3)
    right.set_ylabel("exponent of the side")
    mark_cut(right)
    right.legend(ncols=2, loc="center left", bbox_to_anchor=(0.02, 0.66))
    return figure
