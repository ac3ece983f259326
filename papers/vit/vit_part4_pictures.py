"""What "1-shot" means: all training images of the first 1-shot draw, and accuracy against shots, of a few-shot result.

    python vit_part4_pictures.py                              after vit_part4_fewshot.py; seconds
    python vit_part4_pictures.py --result fewshot-offline     after the run with the two offline models

Nothing is drawn at random here: the images are the rows that the result names, checked against its fingerprint.
Expected: one image for each of 37 breeds, a figure a data set. Writes results/vit/figures/, pictures.{log,json}.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared import cli
from shared.errors import UserError
from shared.paths import atomic_write, results_dir
from shared.record import Record

if TYPE_CHECKING:
    from shared.data import ImageSet

# marker, line and grey of a model: told apart without colour
STYLES = (
    *(("o", "-", "#000000"), ("s", "--", "#5a5a5a"), ("^", "-.", "#000000"), ("D", ":", "#5a5a5a")),
    *(("v", "-", "#8a8a8a"), ("P", "--", "#000000"), ("X", "-.", "#8a8a8a")),
)
CELL, LABEL, HEAD, COLUMNS, MARGIN = 108, 18, 24, 8, 6  # of the sheet; all but COLUMNS in pixels


@dataclass
class Config(cli.Common):
    result: str = "fewshot"
    """[what] name of the few-shot result (results/vit/<name>.json), or a path"""
    data: str = "Oxford-IIIT Pets"
    """[data] data set of the result whose training images are shown; "none" shows none"""
    shots: int = 1
    """number of shots that is shown"""
    draw: int = 0
    """which of its draws, from 0"""
    data_root: Path | None = None
    """mirror of the image sets (default: PAPERS_DATA)"""


def main(config: Config) -> Record:
    path = Path(config.result)
    if path.suffix != ".json":
        path = Path(config.results or results_dir()) / "vit" / f"{config.result}.json"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("fewshot*.json"))) or "none yet"
        raise UserError(f"{path}: no such result; make fewshot writes it; --result takes one that is there: {there}")
    result = Record.load(path)
    if not isinstance(result["results"].get("data"), dict):
        raise UserError(f"{path}: not a few-shot result; name one with --result (make fewshot writes it)")
    shown = find_draw(config, path, result) if config.data != "none" else None
    suffix = result["experiment"].removeprefix("fewshot")
    question = "What does a 1-shot training set look like, and what does each further image bring?"
    with Record("vit", f"pictures{suffix}", config=config, results=config.results, question=question) as record:
        record.seed = result["provenance"]["seed"]
        record.say(f"== figures of {result['experiment']} (seed {record.seed}) ==")
        if shown is not None:
            names = [shown.class_names[label] for label in shown.labels]
            title = f"{config.data}: all {len(shown)} training images of {config.shots}-shot draw {config.draw + 1}"
            file = record.figures_dir / f"fewshot{suffix}-{_slug(config.data)}-{config.shots}-shot.png"
            caption = f"{title}, seed {record.seed}: what one fit of the linear map has seen"
            sheet(shown.batch(range(len(shown))), names, title, file)
            record.figure(file, caption, kind="gallery")
            record.use_images(shown, config.data, split="train")
            images = list(zip(names, shown.names, strict=True))
            record.results["images"] = [{"class": name, "file": image} for name, image in images]
            record.say(f"  {file.name}: {caption}")
            record.say("\n".join(f"    {name:<28} {image}" for name, image in images))
        for title, kept in result["results"]["data"].items():
            protocol = "article" if all(o["article"] for o in kept["outcomes"].values()) else "big_vision"
            file = record.figures_dir / f"fewshot{suffix}-{_slug(title)}.png"
            caption = accuracy_figure(title, kept["outcomes"], protocol, kept["classes"], file)
            record.figure(file, caption)
            record.say(f"  {file.name}: {caption}")
        record.cannot_show(
            "whether another draw would do better: it is one of several, whose spread is in the figures."
        )
    return record


def find_draw(config: Config, path: Path, result: dict) -> ImageSet:
    """The images of one draw. UserError: the result has no such draw, or its images are not here."""
    from papers.vit.part4.split import all_rows
    from shared.data import load_two

    kept = result["results"]["data"].get(config.data)
    if kept is None:
        known = ", ".join(result["results"]["data"])
        raise UserError(f"{path}: no data set {config.data!r}; --data takes one of: {known}, none")
    rows, outcome = kept["rows"], next(iter(kept["outcomes"].values()))
    pool, selection, *authors = map(_rows, [rows["pool"], rows["selection"], *rows["big_vision"]])
    if outcome["article"]:
        by_shots = {k: list(map(_rows, draws)) for k, draws in rows["draws"].items()}
    else:  # only big_vision's draws were fitted: the first k of each class, in a seed's order
        orders = [order.reshape(kept["classes"], -1) for order in authors]
        by_shots = {k: [order[:, : int(k)].ravel() for order in orders] for k in outcome["big_vision"]["shots"]}
    draws = by_shots.get(str(config.shots), [])
    if not 0 <= config.draw < len(draws):
        known = ", ".join(f"{k} ({len(d)} draws)" for k, d in by_shots.items())
        raise UserError(f"{path}: no draw {config.draw} at k = {config.shots}; it has k = {known}")
    asked = result["provenance"]["config"] or {}
    columns = {"label": asked.get("label") or None, "image": asked.get("image") or None}
    where = {"train": rows["train_split"], "test": rows["test_split"], "root": config.data_root}
    images = load_two(kept["spec"], **where, **columns)[0]
    used = all_rows(pool, selection, authors)
    origins = {(d["name"], d["split"]): d["fingerprint"] for d in result["provenance"]["data"]}
    if len(images) <= used.max() or images.subset(used).fingerprint != origins[config.data, "train"]:
        raise UserError(f"{kept['spec']}: not the images that {path.name} was computed from; set PAPERS_DATA as then")
    return images.subset(draws[config.draw])


def _rows(text: str) -> np.ndarray:
    """int64 [n]: the rows of one line of a result."""
    return np.array(text.split(), dtype=np.int64)


def _slug(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def sheet(images: list[np.ndarray], names: list[str], title: str, path: Path) -> None:
    """One PNG with every image (uint8 [H, W, 3]), squashed to a square as the models see it, over its name."""
    from PIL import Image, ImageDraw, ImageFont

    rows = -(-len(images) // COLUMNS)
    size = MARGIN + COLUMNS * (CELL + MARGIN), HEAD + MARGIN + rows * (CELL + LABEL + MARGIN)
    page = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(page)
    draw.text((MARGIN, 5), title, fill="black", font=ImageFont.load_default(14))
    for i, (image, name) in enumerate(zip(images, names, strict=True)):
        row, column = divmod(i, COLUMNS)
        x, y = MARGIN + column * (CELL + MARGIN), HEAD + MARGIN + row * (CELL + LABEL + MARGIN)
        page.paste(Image.fromarray(image).resize((CELL, CELL), Image.Resampling.LANCZOS), (x, y))
        height = 12.0
        while draw.textlength(name, font=ImageFont.load_default(height)) > CELL and height > 6:
            height -= 0.5  # the longest names are set smaller, not cut
        draw.text((x, y + CELL + 2), name, fill="black", font=ImageFont.load_default(height))
    buffer = io.BytesIO()
    page.save(buffer, "PNG", optimize=True)
    atomic_write(path, buffer.getvalue())


def accuracy_figure(title: str, outcomes: dict[str, dict], protocol: str, classes: int, path: Path) -> str:
    """Draw accuracy against k as `path` (PNG and SVG), from a result's outcomes by model; returns the caption."""
    from shared import plots

    figure, axes = plots.figure_and_axes(7.0, 3.8)
    every: set[int] = set()
    for (name, outcome), (marker, line, grey) in zip(outcomes.items(), STYLES * 9, strict=False):
        shots = {int(k): values for k, values in outcome[protocol]["shots"].items()}
        every |= shots.keys()
        mean, spread = [v["mean"] for v in shots.values()], [v["std"] or 0.0 for v in shots.values()]
        label = name + (" (stand-in)" if outcome["stand_in"] else "")
        axes.errorbar(list(shots), mean, spread, marker=marker, linestyle=line, color=grey, capsize=3, label=label)
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


if __name__ == "__main__":
    cli.run(main, Config)
