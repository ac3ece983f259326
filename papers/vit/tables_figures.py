"""Figures from the paper's tables: Figure 2's VTAB groups, Figure 3's accuracies, Table 6's accuracy against compute.

Readable without colour: every series has its own marker, line style or hatch as well.
"""

from __future__ import annotations

from pathlib import Path

from papers.vit.tables_audit import FIVE, frontier
from papers.vit.tables_source import RELEASED, mean, value
from shared.plots import figure_and_axes, save
from shared.published import Published

FAMILIES = {"ViT": ("o", "-", "#1b4f8a"), "hybrid": ("D", ":", "#7a7a7a"), "ResNet": ("s", "--", "#c8642c")}

UPPER_LEFT = {  # labels that would sit on a neighbour's point to the lower right
    "ViT-L/32, 7 epochs", "ViT-L/16, 14 epochs", "R50x1+ViT-B/32, 7 epochs", "R50x1+ViT-L/32, 7 epochs",
    "R50x1+ViT-L/16, 7 epochs",
}  # fmt: skip


def draw(tables: dict[str, Published], directory: Path) -> list[tuple[Path, str]]:
    """Write PNG and SVG of each figure into `directory`; returns the PNGs with their captions."""
    return [
        (
            figure2(tables, directory),
            "Figure 2, recomputed from Table 9: VTAB accuracy by task group, three ViT models",
        ),
        (figure3(tables, directory), "Figure 3, from Table 5: ImageNet accuracy by pre-training set"),
        (table6(tables, directory), "Table 6: accuracy against pre-training compute, average of five data sets"),
    ]


def figure2(tables: dict[str, Published], directory: Path) -> Path:
    table9 = tables["table9"]
    groups = {"VTAB": list(table9.rows), **table9.groups}
    figure, axes = figure_and_axes(7.5, 3.6)
    width = 0.26
    for i, (column, hatch, shade) in enumerate(
        zip(RELEASED, ("", "///", "..."), ("#1b4f8a", "#7fa8d1", "#dfe8f2"), strict=True)
    ):
        scores = [mean([value(table9.rows[task][column]) for task in tasks]) for tasks in groups.values()]
        at = [x + (i - 1) * width for x in range(len(groups))]
        bars = axes.bar(
            at, scores, width * 0.92, label=column, color=shade, hatch=hatch, edgecolor="#222", linewidth=0.6
        )
        axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=1)
    axes.set_xticks(range(len(groups)), [f"{name}\n{len(tasks)} tasks" for name, tasks in groups.items()])
    axes.set_ylim(0, 100)
    axes.set_ylabel("accuracy, %")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    return save(figure, directory / "figure2-vtab.png")


def figure3(tables: dict[str, Published], directory: Path) -> Path:
    table5 = tables["table5"]
    sets = [row.partition("/")[0] for row in table5.rows if row.endswith("/ImageNet")]
    figure, axes = figure_and_axes(6.2, 3.8)
    styles = ("o-", "o--", "s-", "s--", "^-")
    greys = ("#7fa8d1", "#7fa8d1", "#1b4f8a", "#1b4f8a", "#c8642c")
    for model, style, colour in zip(table5.columns, styles, greys, strict=True):
        points = [
            (i, value(cell))
            for i, name in enumerate(sets)
            if (cell := table5.rows[f"{name}/ImageNet"][model]) is not None
        ]
        axes.plot(*zip(*points, strict=True), style, color=colour, label=model, markersize=5)
    axes.set_xticks(range(len(sets)), [f"{n}\n{size}" for n, size in zip(sets, ("1.3M", "14M", "303M"), strict=True)])
    axes.set_xlim(-0.2, 2.2)
    axes.set_xlabel("pre-training set (images)")
    axes.set_ylabel("ImageNet top-1, %")
    axes.legend(frameon=False, fontsize=8)
    return save(figure, directory / "figure3-pretraining.png")


def table6(tables: dict[str, Published], directory: Path) -> Path:
    table = tables["table6"]
    figure, axes = figure_and_axes(6.8, 4.2)
    for family, (marker, line, colour) in FAMILIES.items():
        prefix = {"ViT": "ViT", "ResNet": "ResNet", "hybrid": "R50x1+"}[family]
        rows = {row: cells for row, cells in table.rows.items() if row.startswith(prefix)}
        points = {r: (value(cells["exaFLOPs"]), mean([value(cells[d]) for d in FIVE])) for r, cells in rows.items()}
        dots = {"color": colour, "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.5}
        axes.plot(*zip(*points.values(), strict=True), marker, **dots)
        axes.plot(*zip(*frontier(list(points.values())), strict=True), f"{marker}{line}", lw=1.2, label=family, **dots)
        for row, point in points.items():
            name, _, epochs = row.partition(", ")
            for long, brief in (("R50x1+ViT-", "R50+"), ("ResNet", "R"), ("ViT-", "")):
                name = name.replace(long, brief)
            upper_left = row in UPPER_LEFT
            axes.annotate(
                name + ("*" if epochs.startswith("14") else ""), point, fontsize=6.5, color=colour,
                textcoords="offset points", xytext=(-4, 4) if upper_left else (5, -8),
                ha="right" if upper_left else "left",
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(40, 7000)
    axes.set_xticks([50, 100, 200, 500, 1000, 2000, 5000], ["50", "100", "200", "500", "1,000", "2,000", "5,000"])
    axes.minorticks_off()
    axes.set_xlabel("pre-training compute, exaFLOPs (log scale; * 14 epochs, others 7)")
    axes.set_ylabel("average accuracy on five data sets, %")
    axes.legend(frameon=False, fontsize=8, loc="lower right", title="lines: no cheaper one is better", title_fontsize=7)
    return save(figure, directory / "table6-compute.png")
