"""The few-shot figures: accuracy against k, and the sheet of one draw's training images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from shared.paths import atomic_write

# told apart without colour: marker, line and grey together
STYLES = [
    ("o", "-", "#000000"), ("s", "--", "#5a5a5a"), ("^", "-.", "#000000"), ("D", ":", "#5a5a5a"),
    ("v", "-", "#8a8a8a"), ("P", "--", "#000000"), ("X", "-.", "#8a8a8a"),
]  # fmt: skip
CELL, LABEL, COLUMNS, MARGIN = 108, 18, 8, 6  # pixels


def accuracy(title: str, outcomes: dict[str, dict], protocol: str, classes: int, path: Path) -> str:
    """Draw `path` (PNG and SVG) from a result's outcomes by model; returns the caption."""
    from shared import plots

    figure, axes = plots.figure_and_axes(7.0, 3.8)
    every: set[int] = set()
    for (name, outcome), (marker, line, colour) in zip(outcomes.items(), STYLES * 9, strict=False):
        shots = outcome[protocol]["shots"]
        k = np.array([int(key) for key in shots])
        every |= set(k.tolist())
        mean = [shots[key]["mean"] for key in shots]
        spread = [shots[key]["std"] or 0.0 for key in shots]
        label = name + (" (stand-in)" if outcome["stand_in"] else "")
        axes.errorbar(k, mean, yerr=spread, marker=marker, linestyle=line, color=colour, capsize=3, label=label)
    axes.axhline(100 / classes, color="#8a8a8a", linewidth=0.8)
    axes.annotate("chance", (min(every), 100 / classes), xytext=(0, 3), textcoords="offset points", size=8)
    axes.set_xscale("log")
    axes.set_xticks(sorted(every), [str(k) for k in sorted(every)])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("labelled images a class, k")
    axes.set_ylabel("test accuracy, %")
    draws = len(next(iter(outcomes.values()))[protocol]["shots"][str(min(every))]["correct"])
    axes.set_title(f"{title}: mean ± standard deviation over {draws} draws", loc="left", size=10)
    best_first = sorted(axes.get_legend_handles_labels()[0], key=lambda h: -h.lines[0].get_ydata()[-1])
    axes.legend(handles=best_first, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    plots.save(figure, path)
    return f"{title}: few-shot accuracy of frozen models by images a class; bars: standard deviation over the draws"


def sheet(images: list[np.ndarray], names: list[str], title: str, path: Path) -> None:
    """One PNG with every image, squashed to a square as the models see it, over its name."""
    from PIL import Image, ImageDraw, ImageFont

    rows = -(-len(images) // COLUMNS)
    head = 24
    size = MARGIN + COLUMNS * (CELL + MARGIN), head + MARGIN + rows * (CELL + LABEL + MARGIN)
    page = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(page)
    draw.text((MARGIN, 5), title, fill="black", font=ImageFont.load_default(14))
    for i, (image, name) in enumerate(zip(images, names, strict=True)):
        row, column = divmod(i, COLUMNS)
        x, y = MARGIN + column * (CELL + MARGIN), head + MARGIN + row * (CELL + LABEL + MARGIN)
        page.paste(Image.fromarray(image).resize((CELL, CELL), Image.Resampling.LANCZOS), (x, y))
        height = 12.0
        while draw.textlength(name, font=ImageFont.load_default(height)) > CELL and height > 6:
            height -= 0.5  # the longest names are set smaller, not cut
        draw.text((x, y + CELL + 2), name, fill="black", font=ImageFont.load_default(height))
    buffer = io.BytesIO()
    page.save(buffer, "PNG", optimize=True)
    atomic_write(path, buffer.getvalue())
