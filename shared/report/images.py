"""Figures brought into the page as data: whole in the section, small on the card."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, UnidentifiedImageError

LARGEST_SVG = 400_000  # bytes; above it a drawing's PNG is taken, if there is one
CARD_WIDTH = 1100  # pixels: twice the card's width on a desktop, for fine screens


@dataclass(frozen=True)
class Embedded:
    """`uri` is a data: address; width and height in CSS pixels (None for an SVG, which brings its own)."""

    uri: str
    width: int | None = None
    height: int | None = None


def embed(files: list[Path], *, photographs: bool) -> Embedded:
    """One of a drawing's files, as an image for the section. ValueError in words when none can be shown."""
    problems = []
    for file in _by_preference(files, photographs):
        try:
            data = file.read_bytes()
            if file.suffix == ".svg":
                if b"<svg" not in data[:4096] or b"</svg>" not in data[-64:]:
                    raise ValueError("not a whole SVG")
                return Embedded(_uri("image/svg+xml", data))
            with Image.open(BytesIO(data)) as image:
                image.load()  # a file cut short shows here, not as half an image
                return Embedded(_uri(Image.MIME[image.format], data), *image.size)
        except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            problems.append(f"{file.name}: {getattr(error, 'strerror', None) or error}")
    raise ValueError("; ".join(problems) or "no file is named")


def thumbnail(files: list[Path]) -> Embedded:
    """A small copy for the card: of the PNG also where only the SVG is listed, since it cannot be scaled here."""
    for file in [*files, *(file.with_suffix(".png") for file in files)]:
        if file.suffix != ".svg" and file.exists():
            try:
                with Image.open(file) as image:
                    small = image.convert("RGB")
                    small.thumbnail((CARD_WIDTH, 2 * CARD_WIDTH), Image.Resampling.LANCZOS)
                    buffer = BytesIO()
                    small.save(buffer, "WEBP", quality=82, method=4)
                    return Embedded(_uri("image/webp", buffer.getvalue()), *small.size)
            except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
                continue  # the section says what is wrong with it
    return embed(files, photographs=False)


def _by_preference(files: list[Path], photographs: bool) -> list[Path]:
    def rank(file: Path) -> int:
        if file.suffix != ".svg":
            return 1
        small = file.exists() and file.stat().st_size <= LARGEST_SVG
        return 0 if small and not photographs else 2

    return sorted(files, key=rank)


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
