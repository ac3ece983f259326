"""A graph, drawn: layers from top to bottom by depth, edges along the tensors, repeated blocks drawn once.

On a page as SVG, for a paper as a figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from papers.comparisons.comparison import Comparison
from papers.comparisons.text import NAME_WIDTH
from shared.graph.align import ADDED, CHANGED, REMOVED
from shared.graph.fold import fold
from shared.graph.kinds import label
from shared.graph.measure import Layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, GAP, LANE, LEFT = 230, 34, 16, 288, 40  # pixels: a box, between boxes, from lane to lane, the margin
INCH = 88  # pixels of an inch of a figure
LETTERS = 28  # that fit into a box
MOST_BOXES = 700
SIGNS = {ADDED: "+", REMOVED: "−", CHANGED: "≠"}  # a sign as well as a colour
TINTS = {ADDED: "#e3f3ea", REMOVED: "#fbe6e4", CHANGED: "#fbf0d9"}  # as in compare.css
LEGEND = "a curved line skips layers; a bracket is a block that repeats. + added, − removed, ≠ changed, none the same."


@dataclass
class _Box:
    layer: Layer
    depth: int = 0
    lane: int = 0

    @property
    def x(self) -> int:
        return LEFT + self.lane * LANE

    @property
    def y(self) -> int:
        return GAP + self.depth * (HEIGHT + GAP)


@dataclass
class _Plan:
    """Where everything of one graph stands. edges: pairs of boxes; blocks: those of a block that repeats, how often."""

    boxes: list[_Box]
    edges: list[tuple[_Box, _Box]]
    blocks: list[tuple[list[_Box], int]]
    status: dict[int, str]  # id of a layer -> what the comparison says of its row

    @property
    def width(self) -> int:
        return LANE * (1 + max(box.lane for box in self.boxes))

    @property
    def height(self) -> int:
        return GAP + (HEIGHT + GAP) * (1 + max(box.depth for box in self.boxes))


def _plan(compared: Comparison, side: int) -> _Plan:
    model = compared.models[side]
    status = {id((row.left, row.right)[side]): row.status for row in compared.rows}
    folds = fold(model.layers, lambda layer: (layer.type, layer.output, layer.parameters, status.get(id(layer))))
    boxes = {layer.id: _Box(layer) for part in folds for layer in part.items}
    drawn_for = {  # for every layer the one that is drawn in its place
        model.layers[at].id: part.items[(at - part.start) % len(part.items)].id
        for part in folds
        for at in range(part.start, part.end)
    }
    edges = [(boxes[start], boxes[end]) for start, end in _place(boxes, drawn_for)]
    blocks = [([boxes[layer.id] for layer in part.items], part.times) for part in folds if part.times > 1]
    return _Plan(list(boxes.values()), edges, blocks, status)


def figure(compared: Comparison) -> Figure | None:
    """Both graphs side by side for a paper; None where one is too large."""
    from shared.plots import figure_and_axes

    plans = [_plan(compared, side) for side in (0, 1)]
    if any(len(plan.boxes) > MOST_BOXES for plan in plans):
        return None
    width, height = sum(plan.width for plan in plans) / INCH, max(plan.height for plan in plans) / INCH
    ratios = {"width_ratios": [plan.width for plan in plans]}
    drawn, both = figure_and_axes(width, height + 0.3, columns=2, gridspec_kw=ratios)
    for axes, plan, model in zip(both, plans, compared.models, strict=True):
        _fill(axes, plan)
        axes.set_xlim(0, plan.width)
        axes.set_ylim(max(one.height for one in plans), 0)
        axes.set_axis_off()
        axes.set_title(model.name, loc="left", fontsize=9)
    return drawn


def _fill(axes: Axes, plan: _Plan) -> None:
    """The boxes of one graph with their names, its edges and brackets; x and y in pixels, y downwards."""
    from matplotlib.patches import FancyBboxPatch

    from shared.plots import SMALLEST

    for start, end in plan.edges:
        x = [start.x + WIDTH // 2, end.x + WIDTH // 2]
        y = [start.y + HEIGHT, end.y]
        if end.depth > start.depth + 1:  # beside the boxes
            side = max(x) + WIDTH // 2 + min(16, 4 + 2 * (end.depth - start.depth))
            x, y = [x[0], side, side, x[1]], [y[0], y[0] + 8, y[1] - 8, y[1]]
        axes.plot(x, y, color="#565a62", linewidth=0.8, zorder=1)
    for box in plan.boxes:
        status = plan.status.get(id(box.layer), "")
        look = {"facecolor": TINTS.get(status, "white"), "edgecolor": "#565a62", "linewidth": 0.6, "zorder": 2}
        axes.add_patch(FancyBboxPatch((box.x, box.y), WIDTH, HEIGHT, "round,pad=0,rounding_size=4", **look))
        axes.text(box.x + 7, box.y + 14, _short(box.layer.name), fontsize=SMALLEST)
        axes.text(box.x + 7, box.y + 29, label(box.layer.type)[:LETTERS], fontsize=SMALLEST, color="#565a62")
        axes.text(box.x + WIDTH - 18, box.y + 23, SIGNS.get(status, ""), fontsize=10, fontweight="bold")
    for block, times in plan.blocks:
        top, bottom = min(box.y for box in block), max(box.y for box in block) + HEIGHT
        left = min(box.x for box in block)
        axes.plot([left - 6, left - 12, left - 12, left - 6], [top, top, bottom, bottom], color="#565a62", linewidth=1)
        axes.text(left - 24, (top + bottom) / 2, f"× {times}", fontsize=SMALLEST, rotation=90, va="center")


def in_words(compared: Comparison) -> str:
    """What the figure shows, for whoever does not see it: each graph's layers from top to bottom."""
    said = []
    for side, model in enumerate(compared.models):
        plan = _plan(compared, side)
        names = [f"{box.layer.name} ({plan.status.get(id(box.layer)) or 'no status'})" for box in plan.boxes]
        said.append(f"{model.name}: {', '.join(names)}.")
    return " ".join(said)


def draw(compared: Comparison, side: int) -> tuple[str, int, int]:
    """The SVG element of `models[side]`, its width and height in pixels; a sentence where it would be too large."""
    model, plan = compared.models[side], _plan(compared, side)
    if len(plan.boxes) > MOST_BOXES:
        return f"<p>{len(plan.boxes)} boxes are too many to draw; the table above has them all.</p>", 0, 0
    width, height = plan.width, plan.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(f"Graph of {model.name}: {len(plan.boxes)} boxes", quote=True)}">'
    ]
    parts += [_edge(start, end) for start, end in plan.edges]
    parts += [_box(box, plan.status.get(id(box.layer), "")) for box in plan.boxes]
    parts += [_bracket(block, times) for block, times in plan.blocks]
    return "".join([*parts, "</svg>"]), width, height


def _place(boxes: dict[str, _Box], drawn_for: dict[str, str]) -> list[tuple[str, str]]:
    """The edges; gives each box its depth, below all its parents, and its lane, the first parent's or the next free."""
    edges = []
    taken: dict[int, set[int]] = {}
    for id, box in boxes.items():
        parents = [drawn_for.get(parent, parent) for parent in box.layer.parents]
        parents = [parent for parent in dict.fromkeys(parents) if parent in boxes and parent != id]
        edges += [(parent, id) for parent in parents]
        box.depth = 1 + max((boxes[parent].depth for parent in parents), default=-1)
        box.lane = boxes[parents[0]].lane if parents else 0
        row = taken.setdefault(box.depth, set())
        while box.lane in row:
            box.lane += 1
        row.add(box.lane)
    return edges


def _edge(start: _Box, end: _Box) -> str:
    x1, x2, y1, y2 = start.x + WIDTH // 2, end.x + WIDTH // 2, start.y + HEIGHT, end.y
    if end.depth == start.depth + 1:
        return f'<path class="edge" d="M{x1} {y1} L{x2} {y2}"/>'
    # a connection that skips layers runs beside the boxes
    side = max(x1, x2) + WIDTH // 2 + min(16, 4 + 2 * (end.depth - start.depth))
    bend = f"C{side} {y1 + 8} {side} {y1 + 8} {side} {y1 + 24} L{side} {y2 - 24} C{side} {y2 - 8} {side} {y2 - 8}"
    return f'<path class="edge skip" d="M{x1} {y1} {bend} {x2} {y2}"/>'


def _box(box: _Box, status: str) -> str:
    x, y, layer = box.x, box.y, box.layer
    whole = escape(f"{layer.name[: 4 * NAME_WIDTH]} ({label(layer.type)}) {status}", quote=True)
    return (
        f'<g class="box {status}"><title>{whole}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
        f'<text x="{x + 8}" y="{y + 14}">{escape(_short(layer.name))}</text>'
        f'<text class="type" x="{x + 8}" y="{y + 28}">{escape(label(layer.type)[:LETTERS])}</text>'
        f'<text class="sign" x="{x + WIDTH - 16}" y="{y + 22}">{SIGNS.get(status, "")}</text></g>'
    )


def _short(name: str) -> str:
    return name if len(name) <= LETTERS else f"…{name[1 - LETTERS :]}"


def _bracket(block: list[_Box], times: int) -> str:
    top, bottom = min(box.y for box in block), max(box.y for box in block) + HEIGHT
    left, middle = min(box.x for box in block), (top + bottom) // 2
    return (
        f'<path class="bracket" d="M{left - 6} {top} H{left - 12} V{bottom} H{left - 6}"/>'
        f'<text class="times" transform="translate({left - 17} {middle}) rotate(-90)" text-anchor="middle">'
        f"× {times}</text>"
    )
