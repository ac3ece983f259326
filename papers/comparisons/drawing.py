"""A graph as SVG: layers from top to bottom by depth, edges along the tensors, repeated blocks drawn once."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from papers.comparisons.comparison import Comparison
from papers.comparisons.text import NAME_WIDTH
from shared.graph.align import ADDED, CHANGED, REMOVED
from shared.graph.fold import Fold, fold
from shared.graph.kinds import label
from shared.graph.measure import Layer

WIDTH, HEIGHT, GAP, LANE, LEFT = 230, 34, 16, 288, 40  # pixels: a box, between boxes, from lane to lane, the margin
TITLE = 40  # pixels above each of two graphs in one image
LETTERS = 28  # that fit into a box
MOST_BOXES = 700
SIGNS = {ADDED: "+", REMOVED: "−", CHANGED: "≠"}  # a sign as well as a colour
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


def both(compared: Comparison, css: str) -> str:
    """Both graphs side by side as the text of an SVG file, with the style sheet `css` in it."""
    drawn = [(model.name, *draw(compared, side)) for side, model in enumerate(compared.models)]
    width = sum(one[2] for one in drawn) + LEFT
    height = TITLE + max(one[3] for one in drawn)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<style>{escape(css, quote=False)}</style><rect width="{width}" height="{height}"/>'
    ]
    x = 0
    for name, svg, one_width, _ in drawn:
        parts.append(f'<text x="{x + LEFT}" y="{TITLE - GAP}">{escape(name)}</text>')
        parts.append(svg.replace("<svg ", f'<svg x="{x}" y="{TITLE}" ', 1))
        x += one_width + LEFT
    return "".join([*parts, "</svg>\n"])


def draw(compared: Comparison, side: int) -> tuple[str, int, int]:
    """The SVG element of `models[side]`, its width and height in pixels; a sentence where it would be too large."""
    model = compared.models[side]
    status = {id((row.left, row.right)[side]): row.status for row in compared.rows}
    folds = fold(model.layers, lambda layer: (layer.type, layer.output, layer.parameters, status.get(id(layer))))
    boxes = {layer.id: _Box(layer) for part in folds for layer in part.items}
    if len(boxes) > MOST_BOXES:
        return f"<p>{len(boxes)} boxes are too many to draw; the table above has them all.</p>", 0, 0
    drawn_for = {  # for every layer the one that is drawn in its place
        model.layers[at].id: part.items[(at - part.start) % len(part.items)].id
        for part in folds
        for at in range(part.start, part.end)
    }
    edges = _place(boxes, drawn_for)
    width = LANE * (1 + max(box.lane for box in boxes.values()))
    height = GAP + (HEIGHT + GAP) * (1 + max(box.depth for box in boxes.values()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(f"Graph of {model.name}: {len(boxes)} boxes", quote=True)}">'
    ]
    parts += [_edge(boxes[start], boxes[end]) for start, end in edges]
    parts += [_box(box, status.get(id(box.layer), "")) for box in boxes.values()]
    parts += [_bracket(part, boxes) for part in folds if part.times > 1]
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
    name = layer.name if len(layer.name) <= LETTERS else f"…{layer.name[1 - LETTERS :]}"
    whole = escape(f"{layer.name[: 4 * NAME_WIDTH]} ({label(layer.type)}) {status}", quote=True)
    return (
        f'<g class="box {status}"><title>{whole}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
        f'<text x="{x + 8}" y="{y + 14}">{escape(name)}</text>'
        f'<text class="type" x="{x + 8}" y="{y + 28}">{escape(label(layer.type)[:LETTERS])}</text>'
        f'<text class="sign" x="{x + WIDTH - 16}" y="{y + 22}">{SIGNS.get(status, "")}</text></g>'
    )


def _bracket(part: Fold[Layer], boxes: dict[str, _Box]) -> str:
    block = [boxes[layer.id] for layer in part.items]
    top, bottom = min(box.y for box in block), max(box.y for box in block) + HEIGHT
    left, middle = min(box.x for box in block), (top + bottom) // 2
    return (
        f'<path class="bracket" d="M{left - 6} {top} H{left - 12} V{bottom} H{left - 6}"/>'
        f'<text class="times" transform="translate({left - 17} {middle}) rotate(-90)" text-anchor="middle">'
        f"× {part.times}</text>"
    )
