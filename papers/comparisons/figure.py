"""A comparison as one image: the parameters of every aligned row, one model on each side."""

from __future__ import annotations

from pathlib import Path

from papers.comparisons.report import Report
from shared.graph.align import ADDED, CHANGED, REMOVED, SAME
from shared.graph.measure import Layer
from shared.graph.names import label, short
from shared.plots import figure_and_axes, save

# told apart without colour by the sign in front of the name
LOOKS = {SAME: ("=", "#9aa0a8"), CHANGED: ("≠", "#b7791f"), ADDED: ("+", "#1b6a47"), REMOVED: ("−", "#b3261e")}


def draw(report: Report, path: Path) -> str:
    """Write `path` (PNG and its SVG twin), return the caption. Rows without parameters on either side are left out."""
    rows = [row for row in report.rows if _parameters(row.left) or _parameters(row.right)]
    left, right = (model.name for model in report.models)
    figure, axes = figure_and_axes(7.0, 1.0 + 0.27 * len(rows))
    largest = max((max(_parameters(row.left), _parameters(row.right)) for row in rows), default=1)
    for at, row in enumerate(rows):
        _, colour = LOOKS[row.status]
        for layer, side in ((row.left, -1), (row.right, 1)):
            count = _parameters(layer)
            if count:
                axes.barh(at, side * count, color=colour, height=0.7)
                axes.annotate(
                    short(count), (side * count, at), xytext=(3 * side, 0), textcoords="offset points", va="center",
                    ha="right" if side < 0 else "left", fontsize=7,
                )  # fmt: skip
    named = [(row.left or row.right, LOOKS[row.status][0]) for row in rows]
    axes.set_yticks(range(len(rows)), [f"{sign} {label(layer.type)}" for layer, sign in named if layer])
    axes.invert_yaxis()
    axes.set_xlim(-1.18 * largest, 1.18 * largest)
    axes.set_xticks([])
    axes.grid(False)
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(f"{left}      parameters a layer      {right}", fontsize=9)
    save(figure, path)
    return (
        f"Parameters of each aligned layer, {left} to the left, {right} to the right; "
        "= same, ≠ changed, + added, − removed; layers without parameters are left out"
    )


def _parameters(layer: Layer | None) -> int:
    """As the row prints them; 0 where there is no layer, or its count is unknown."""
    return (layer.row or 0) if layer is not None else 0
