"""Parameters of each layer as bars on a logarithmic axis, so that 1.5K can be seen beside 23M.

On a page as SVG: places along the axis are percentages and text keeps its size, so that one drawing fits a telephone
and a wide screen. For a paper as a figure.
"""

from __future__ import annotations

from html import escape
from math import log10
from typing import TYPE_CHECKING

from papers.comparisons.comparison import Comparison
from shared.graph.align import Row
from shared.graph.cost import short
from shared.graph.fold import Fold

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = "#1d4f8c", "#b4540a"  # of the two sides, as in compare.css
HEAD, LABEL, BAR, GAP = 44, 15, 10, 8  # pixels: legend and axis, a row's name, a bar, between rows
PLOT = 84  # percent of the width that the axis takes; what is left is for the number behind the longest bar
MOST_ROWS = 60


def caption(compared: Comparison) -> str:
    left, right = (model.name for model in compared.models)
    words = f"Parameters of each layer of {left} and {right}, on a logarithmic axis"
    left_out = max(0, len(_rows(compared)) - MOST_ROWS)
    return f"{words}; the first {MOST_ROWS} rows, {left_out} more are in the table." if left_out else f"{words}."


def figure(compared: Comparison) -> Figure | None:
    """The same bars for a paper; None where no layer has parameters."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from shared.plots import SMALLEST, figure_and_axes

    rows = _rows(compared)[:MOST_ROWS]
    if not rows:
        return None
    drawn, axes = figure_and_axes(7, 1 + 0.36 * len(rows))
    for side, (model, colour) in enumerate(zip(compared.models, COLOURS, strict=True)):
        # a bar begins at 1, the left end of the axis, and ends at its count
        own = [(at + (side - 0.5) * 0.4, counts[side] - 1) for at, (_, counts) in enumerate(rows) if counts[side]]
        if own:
            bars = axes.barh(*zip(*own, strict=True), 0.36, left=1, color=colour, label=model.name)
            axes.bar_label(bars, [short(length + 1) for _, length in own], fontsize=SMALLEST, padding=2)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(1, 12 * max(count for _, counts in rows for count in counts))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: short(round(count))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    axes.set_xlabel("parameters (log scale)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2)
    return drawn


def draw(compared: Comparison) -> str:
    """The SVG element, as wide as its place; "" where no layer has parameters."""
    rows = _rows(compared)[:MOST_ROWS]
    if not rows:
        return ""
    decades = max(1, max(len(str(count)) for _, counts in rows for count in counts))
    height = HEAD + len(rows) * (LABEL + 2 * BAR + GAP)
    title = escape(caption(compared), quote=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" width="100%" height="{height}" '
        f'role="img" aria-label="{title}">'
    ]
    for side, model in enumerate(compared.models):
        name = escape(model.name if len(model.name) <= 24 else f"{model.name[:23]}…")
        x = (0, 50)[side]
        parts.append(f'<rect class="side{side + 1}" x="{x}%" y="4" width="10" height="10"/>')
        parts.append(f'<text x="{x}%" dx="16" y="13">{name}</text>')
    for decade in range(decades + 1):
        x = f"{decade / decades * PLOT:.2f}%"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{HEAD - 6}" y2="{height}"/>')
        if decades < 7 or decade % 2 == 0:
            anchor = "start" if decade == 0 else "middle"
            parts.append(
                f'<text class="type" x="{x}" y="{HEAD - 10}" text-anchor="{anchor}">{short(10**decade)}</text>'
            )
    for at, (name, counts) in enumerate(rows):
        y = HEAD + at * (LABEL + 2 * BAR + GAP)
        parts.append(f'<text x="0" y="{y + LABEL - 4}">{escape(name)}</text>')
        for side, count in enumerate(counts):
            top = y + LABEL + side * BAR
            long = log10(count) / decades * PLOT if count else 0
            if count:
                parts.append(
                    f'<rect class="side{side + 1}" x="0" y="{top}" width="{max(long, 0.3):.2f}%" height="{BAR - 1}"/>'
                )
                parts.append(f'<text class="type" x="{long:.2f}%" dx="4" y="{top + 9}">{short(count)}</text>')
    return "".join([*parts, "</svg>"])


def _rows(compared: Comparison) -> list[tuple[str, tuple[int, int]]]:
    """A label and both sides' parameters of every row that has some; a repeated block stands once."""
    found = []
    for part in compared.folds:
        for row in part.items:
            counts = tuple(layer.parameters or 0 if layer else 0 for layer in (row.left, row.right))
            if any(counts):
                found.append((_label(row, part), counts))
    return found


def _label(row: Row, part: Fold[Row]) -> str:
    names = dict.fromkeys(layer.name for layer in (row.left, row.right) if layer)
    text = " | ".join(name if len(name) <= 30 else f"…{name[-29:]}" for name in names)
    return f"{text} × {part.times}" if part.times > 1 else text
