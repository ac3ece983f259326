"""Parameters of each layer as bars on a logarithmic axis, so that 1.5K can be seen beside 23M, as SVG.

Places along the axis are percentages and text keeps its size, so the same drawing fits a telephone and a wide screen.
"""

from __future__ import annotations

from html import escape
from math import log10

from papers.comparisons.comparison import Comparison
from shared.graph.align import Row
from shared.graph.cost import short
from shared.graph.fold import Fold

WIDTH = 720  # pixels, as a file
HEAD, LABEL, BAR, GAP = 44, 15, 10, 8  # pixels: legend and axis, a row's name, a bar, between rows
PLOT = 84  # percent of the width that the axis takes; what is left is for the number behind the longest bar
MOST_ROWS = 60


def caption(compared: Comparison) -> str:
    left, right = (model.name for model in compared.models)
    words = f"Parameters of each layer of {left} and {right}, on a logarithmic axis"
    left_out = max(0, len(_rows(compared)) - MOST_ROWS)
    return f"{words}; the first {MOST_ROWS} rows, {left_out} more are in the table." if left_out else f"{words}."


def as_file(compared: Comparison, css: str) -> str:
    """The text of an SVG file, with the style sheet `css` in it."""
    return draw(compared, f"<style>{escape(css, quote=False)}</style>", WIDTH) + "\n"


def draw(compared: Comparison, style: str = "", width: int | None = None) -> str:
    """The SVG element, as wide as its place (or `width` pixels); "" where no layer has parameters."""
    rows = _rows(compared)[:MOST_ROWS]
    if not rows:
        return ""
    decades = max(1, max(len(str(count)) for _, counts in rows for count in counts))
    height = HEAD + len(rows) * (LABEL + 2 * BAR + GAP)
    title = escape(caption(compared), quote=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" width="{width or "100%"}" height="{height}" '
        f'role="img" aria-label="{title}">{style}'
    ]
    if style:
        parts.append(f'<title>{title}</title><rect class="paper" width="100%" height="100%"/>')
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
