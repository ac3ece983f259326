"""What "1-shot" means: all training images of the first 1-shot draw, of a few-shot result.

    python vit_part4_pictures.py                              after vit_part4_fewshot.py; seconds
    python vit_part4_pictures.py --result fewshot-offline     after the run with the two offline models

Nothing is drawn at random here: the images are the rows that the result names, checked against its fingerprint.
Expected: one image for each of 37 breeds. Writes results/vit/figures/, pictures.{log,json}.
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

CELL, LABEL, HEAD, COLUMNS, MARGIN = 108, 32, 24, 8, 6  # of the sheet; all but COLUMNS in pixels


@dataclass
class Config(cli.Common):
    result: str = "fewshot"
    """[what] name of the few-shot result (results/vit/<name>.json), or a path"""
    data: str = "Oxford-IIIT Pets"
    """[data] data set of the result whose training images are shown"""
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
    shown = find_draw(config, path, result)
    suffix = suffix_of(result["experiment"])
    question = f"What does a {config.shots}-shot training set look like?"
    with Record("vit", f"pictures{suffix}", config=config, results=config.results, question=question) as record:
        record.seed = result["provenance"]["seed"]
        record.say(f"== figures of {result['experiment']} (seed {record.seed}) ==")
        names = [shown.class_names[label] for label in shown.labels]
        title = f"{config.data}: all {len(shown)} training images of {config.shots}-shot draw {config.draw + 1}"
        file = record.figures_dir / f"fewshot{suffix}-{_slug(config.data)}-{config.shots}-shot.png"
        caption = f"{title}, seed {record.seed}: what one fit of the linear probe has seen"
        sheet(shown.batch(range(len(shown))), names, title, file)
        record.figure(file, caption, kind="gallery")
        record.use_images(shown, config.data, split="train")
        images = list(zip(names, shown.names, strict=True))
        record.results["images"] = [{"class": name, "file": image} for name, image in images]
        record.say(f"  {file.name}: {caption}")
        record.say("\n".join(f"    {name:<28} {image}" for name, image in images))
        record.answer(
            f"{len(shown):,} images of {len(set(names))} classes, {config.shots} for each: all that one fit of the "
            "linear probe has seen."
        )
        record.cannot_show(
            "whether another draw would do better: it is one of several, whose spread is in the few-shot figures."
        )
    return record


def suffix_of(experiment: str) -> str:
    """What a few-shot result's name gives to names made of it: `-offline` of fewshot-offline, `-mine` of mine."""
    rest = experiment.removeprefix("fewshot").lstrip("-")
    return f"-{rest}" if rest else ""


def find_draw(config: Config, path: Path, result: dict) -> ImageSet:
    """The images of one draw. UserError: the result has no such draw, or its images are not here."""
    from papers.vit.part4.split import all_rows
    from shared.data import load_two

    kept = result["results"]["data"].get(config.data)
    if kept is None:
        known = ", ".join(result["results"]["data"])
        raise UserError(f"{path}: no data set {config.data!r}; --data takes one of: {known}")
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
    font = ImageFont.load_default(12)

    def two_lines(name: str) -> list[str]:
        lines = [""]
        for word in name.split():
            longer = f"{lines[-1]} {word}".strip()
            if len(lines) == 1 and lines[-1] and draw.textlength(longer, font=font) > CELL:
                lines.append(word)
            else:
                lines[-1] = longer
        return lines

    for i, (image, name) in enumerate(zip(images, names, strict=True)):
        row, column = divmod(i, COLUMNS)
        x, y = MARGIN + column * (CELL + MARGIN), HEAD + MARGIN + row * (CELL + LABEL + MARGIN)
        page.paste(Image.fromarray(image).resize((CELL, CELL), Image.Resampling.LANCZOS), (x, y))
        # long names take two lines, not smaller letters
        draw.text((x, y + CELL + 2), "\n".join(two_lines(name)), fill="black", font=font, spacing=2)
    buffer = io.BytesIO()
    page.save(buffer, "PNG", optimize=True, dpi=(96, 96))  # 12 pixels of a letter are 9 points
    atomic_write(path, buffer.getvalue())


if __name__ == "__main__":
    cli.run(main, Config)
