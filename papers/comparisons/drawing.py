"""A graph as inline SVG: layers from top to bottom by depth, edges along the tensors, repeated blocks drawn once."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from papers.comparisons.view_text import NAME_WIDTH
from shared.graph.align import ADDED, CHANGED, REMOVED, Row
from shared.graph.fold import Fold, fold
from shared.graph.measure import Layer, Model
from shared.graph.names import label

BOX_WIDTH, BOX_HEIGHT, GAP, LANE, LEFT = 230, 34, 16, 288, 40  # pixels
LETTERS = 28  # that fit into a box
MOST_BOXES = 700
SIGNS = {ADDED: "+", REMOVED: "−", CHANGED: "≠"}  # a sign as well as a colour


@dataclass
class _Box:
    layer: Layer
    depth: int = 0
    lane: int = 0


def draw(model: Model, rows: list[Row], side: str) -> str:
    """The SVG element of one model; `rows` give each layer its status, `side` is `left` or `right`."""
    status = {id(getattr(row, side)): row.status for row in rows if getattr(row, side) is not None}
    folds = fold(model.layers, lambda layer: (layer.type, layer.output, layer.parameters, status.get(id(layer))))
    boxes, shown = _boxes(folds, model.layers)
    if len(boxes) > MOST_BOXES:
        return f"<p>{len(boxes)} boxes are too many to draw; the table above has them all.</p>"
    edges = _place(boxes, shown)
    lanes = 1 + max(box.lane for box in boxes.values())
    width, height = lanes * LANE, (1 + max(box.depth for box in boxes.values())) * (BOX_HEIGHT + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(f"Graph of {model.name}: {len(boxes)} boxes", quote=True)}">'
    ]
    parts += [_edge(boxes[start], boxes[end]) for start, end in edges]
    parts += [_box(box, status.get(id(box.layer), "")) for box in boxes.values()]
    parts += [_bracket(part, boxes) for part in folds if part.times > 1]
    return "".join([*parts, "</svg>"])


def _boxes(folds: list[Fold[Layer]], layers: list[Layer]) -> tuple[dict[str, _Box], dict[str, str]]:
    """The layers that are drawn, and for every layer the one that is drawn for it."""
    boxes = {layer.id: _Box(layer) for part in folds for layer in part.items}
    shown = {
        layers[at].id: part.items[(at - part.start) % len(part.items)].id
        for part in folds
        for at in range(part.start, part.end)
    }
    return boxes, shown


def _place(boxes: dict[str, _Box], shown: dict[str, str]) -> list[tuple[str, str]]:
    edges = []
    taken: dict[int, set[int]] = {}
    for id, box in boxes.items():
        parents = [shown.get(parent, parent) for parent in box.layer.parents]
        parents = [parent for parent in dict.fromkeys(parents) if parent in boxes and parent != id]
        edges += [(parent, id) for parent in parents]
        box.depth = 1 + max((boxes[parent].depth for parent in parents), default=-1)
        lane = boxes[parents[0]].lane if parents else 0
        row = taken.setdefault(box.depth, set())
        while lane in row:
            lane += 1
        row.add(lane)
        box.lane = lane
    return edges


def _corner(box: _Box) -> tuple[int, int]:
    return LEFT + box.lane * LANE, GAP + box.depth * (BOX_HEIGHT + GAP)


def _edge(start: _Box, end: _Box) -> str:
    (x1, y1), (x2, y2) = _corner(start), _corner(end)
    x1, x2, y1 = x1 + BOX_WIDTH // 2, x2 + BOX_WIDTH // 2, y1 + BOX_HEIGHT
    if end.depth == start.depth + 1:
        return f'<path class="edge" d="M{x1} {y1} L{x2} {y2}"/>'
    # a connection that skips layers runs beside the boxes
    side = max(x1, x2) + BOX_WIDTH // 2 + min(16, 4 + 2 * (end.depth - start.depth))
    bend = f"C{side} {y1 + 8} {side} {y1 + 8} {side} {y1 + 24} L{side} {y2 - 24} C{side} {y2 - 8} {side} {y2 - 8}"
    return f'<path class="edge skip" d="M{x1} {y1} {bend} {x2} {y2}"/>'


def _box(box: _Box, status: str) -> str:
    x, y = _corner(box)
    layer = box.layer
    sign = SIGNS.get(status, "")
    name = layer.name if len(layer.name) <= LETTERS else f"…{layer.name[1 - LETTERS :]}"
    whole = escape(f"{layer.name[: 4 * NAME_WIDTH]} ({label(layer.type)}) {status}", quote=True)
    return (
        f'<g class="box {status}"><title>{whole}</title>'
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"/>'
        f'<text x="{x + 8}" y="{y + 14}">{escape(name)}</text>'
        f'<text class="type" x="{x + 8}" y="{y + 28}">{escape(label(layer.type)[:LETTERS])}</text>'
        f'<text class="sign" x="{x + BOX_WIDTH - 16}" y="{y + 22}">{sign}</text></g>'
    )


def _bracket(part: Fold[Layer], boxes: dict[str, _Box]) -> str:
    corners = [_corner(boxes[layer.id]) for layer in part.items]
    top, bottom = min(y for _, y in corners), max(y for _, y in corners) + BOX_HEIGHT
    left, middle = min(x for x, _ in corners), (top + bottom) // 2
    return (
        f'<path class="bracket" d="M{left - 6} {top} H{left - 12} V{bottom} H{left - 6}"/>'
        f'<text class="times" transform="translate({left - 17} {middle}) rotate(-90)" text-anchor="middle">'
        f"× {part.times}</text>"
    )
