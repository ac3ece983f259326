"""The images behind the counts: cards with the five best guesses, and contact sheets of what stayed wrong.

Drawn with Pillow, pixel by pixel the same on every run. Photographs keep their shape; text that does not fit is cut
with an ellipsis. A figure stays below one megabyte: above it, the number of colours is reduced to 256.
"""

from __future__ import annotations

import importlib.util
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from shared.paths import atomic_write

INK, GREY, PAPER, BAR = "#1a1a1a", "#6b6b6b", "#ffffff", "#e6ebf1"
RIGHT, WRONG = "#11663a", "#a02b20"
MARGIN = 24
LIMIT = 1_000_000  # bytes of a figure


@dataclass(frozen=True)
class Card:
    """One image: uint8 [H, W, 3], its file name, its label and the label's rank, the guesses, best first.

    A guess is (name, share, is the label); shares are between 0 and 1.
    """

    image: np.ndarray
    file: str
    label: str
    rank: int
    guesses: Sequence[tuple[str, float, bool]]


def draw_cards(path: Path, title: str, note: str, cards: Sequence[Card], columns: int = 4, side: int = 224) -> Path:
    """Write the cards as one PNG: the image, the file name, the label, and the guesses with their shares."""
    line, gap, small, heading = 20, 20, _font(12), _font(14, bold=True)
    height = side + 48 + max((len(card.guesses) for card in cards), default=0) * line
    canvas, places = _page(title, note, len(cards), columns, (side, height), gap)
    draw = ImageDraw.Draw(canvas)
    for card, (x, y) in zip(cards, places, strict=True):
        _paste(canvas, card.image, x, y, side)
        y += side + 6
        draw.text((x, y), _fit(card.file, small, side), fill=GREY, font=small)
        draw.text((x, y + 18), _fit(f"label: {card.label}", heading, side), fill=INK, font=heading)
        y += 42
        for rank, (name, share, is_label) in enumerate(card.guesses, start=1):
            font = _font(12, bold=is_label)
            colour = RIGHT if is_label else WRONG if rank == 1 else INK
            percent = f"{100 * share:.0f}%" if share >= 0.005 else "<1%"
            draw.rectangle((x, y - 1, x + round(share * (side - 1)), y + line - 5), fill=BAR)
            draw.text((x + 3, y), str(rank), fill=colour, font=font)
            draw.text((x + 18, y), _fit(name, font, side - 62), fill=colour, font=font)
            draw.text((x + side - 3, y), percent, fill=GREY, font=small, anchor="ra")
            y += line
    return _save(canvas, path)


def draw_sheet(path: Path, title: str, note: str, cards: Sequence[Card], columns: int = 7, side: int = 132) -> Path:
    """Write a contact sheet as one PNG: small images, each with its first guess and the rank of its label."""
    small = _font(11)
    canvas, places = _page(title, note, len(cards), columns, (side, side + 34), 10)
    draw = ImageDraw.Draw(canvas)
    for card, (x, y) in zip(cards, places, strict=True):
        _paste(canvas, card.image, x, y, side)
        draw.text((x, y + side + 3), _fit(card.guesses[0][0], small, side), fill=WRONG, font=small)
        draw.text((x, y + side + 17), f"label at rank {card.rank}", fill=GREY, font=small)
    return _save(canvas, path)


def _page(
    title: str, note: str, count: int, columns: int, cell: tuple[int, int], gap: int
) -> tuple[Image.Image, list[tuple[int, int]]]:
    """A white page with a title and a wrapped note, and the upper left corners of `count` cells below, in pixels."""
    inner = columns * cell[0] + (columns - 1) * gap
    notes = textwrap.wrap(note, inner // 7)
    top = MARGIN + 42 + 17 * len(notes)
    places = [(MARGIN + i % columns * (cell[0] + gap), top + i // columns * (cell[1] + gap)) for i in range(count)]
    bottom = max((y for _, y in places), default=top) + (cell[1] if count else 0)
    canvas = Image.new("RGB", (inner + 2 * MARGIN, bottom + MARGIN), PAPER)
    draw, heading = ImageDraw.Draw(canvas), _font(18, bold=True)
    draw.text((MARGIN, MARGIN), _fit(title, heading, inner), fill=INK, font=heading)
    for i, text in enumerate(notes):
        draw.text((MARGIN, MARGIN + 30 + 17 * i), text, fill=GREY, font=_font(12))
    return canvas, places


def _paste(canvas: Image.Image, image: np.ndarray, x: int, y: int, side: int) -> None:
    """The image inside a square of `side`, its shape kept, on a pale ground."""
    image = Image.fromarray(image)
    scale = side / max(image.size)
    size = tuple(max(1, round(length * scale)) for length in image.size)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    ImageDraw.Draw(canvas).rectangle((x, y, x + side - 1, y + side - 1), fill=BAR)
    canvas.paste(image, (x + (side - size[0]) // 2, y + (side - size[1]) // 2))


@cache
def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans out of matplotlib's folder: the same letters on every machine. Importing matplotlib takes 0.3 s."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    package = Path(importlib.util.find_spec("matplotlib").origin).parent
    return ImageFont.truetype(package / "mpl-data" / "fonts" / "ttf" / name, size)


def _fit(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    """`text`, cut with an ellipsis so that it takes at most `width` pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def _save(canvas: Image.Image, path: Path) -> Path:
    buffer = io.BytesIO()
    canvas.save(buffer, "png")
    if buffer.tell() > LIMIT:
        buffer = io.BytesIO()
        canvas.quantize(256, method=Image.Quantize.MEDIANCUT).save(buffer, "png")
    atomic_write(path, buffer.getvalue())
    return path
