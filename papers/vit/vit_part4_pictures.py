"""What "1-shot" means: the whole training set of the first 1-shot draw, and accuracy against k, from a few-shot result.

    python vit_part4_pictures.py                              after vit_part4_fewshot.py; seconds
    python vit_part4_pictures.py --result fewshot-offline     after the run with the two offline models

Nothing is drawn at random here: the images are the rows that the result names, checked against its fingerprint.
Expected: one image for each of 37 breeds, a figure a data set. Writes results/vit/figures/, images.{log,json}.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared import cli
from shared.errors import UserError
from shared.paths import results_dir
from shared.record import Record

if TYPE_CHECKING:
    from shared.data import ImageSet


@dataclass
class Config(cli.Common):
    result: str = "fewshot"
    """name of the few-shot result (results/vit/<name>.json), or a path"""
    data: str = "Oxford-IIIT Pets"
    """data set of the result whose training images are shown; "none" shows none"""
    shots: int = 1
    """which k"""
    draw: int = 0
    """which of its draws, from 0"""
    data_root: Path | None = None
    """mirror of the image sets (default: PAPERS_DATA)"""


def main(config: Config) -> Record:
    from papers.vit import fewshot_figures as figures

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
    with Record(
        "vit", f"images{suffix}", config=config, results=config.results,
        question="What does a 1-shot training set look like, and what does each further image bring?",
    ) as record:  # fmt: skip
        record.seed = result["provenance"]["seed"]
        record.say(f"== figures of {result['experiment']} (seed {record.seed}) ==")
        if shown is not None:
            names = [shown.class_names[label] for label in shown.labels]
            title = f"{config.data}: all {len(shown)} training images of {config.shots}-shot draw {config.draw + 1}"
            sheet = record.figures_dir / f"fewshot{suffix}-{_slug(config.data)}-{config.shots}-shot.png"
            figures.sheet(shown.batch(range(len(shown))), names, title, sheet)
            caption = f"{title}, seed {record.seed}: what one fit of the linear map has seen"
            record.figure(sheet, caption, kind="gallery")
            record.use_data(
                config.data, split="train", source=shown.source, images=len(shown), fingerprint=shown.fingerprint,
                stand_in=shown.stand_in,
            )  # fmt: skip
            record.results["images"] = [{"class": c, "file": f} for c, f in zip(names, shown.names, strict=True)]
            record.say(f"  {sheet.name}: {caption}")
            for c, file in zip(names, shown.names, strict=True):
                record.say(f"    {c:<28} {file}")
        for title, kept in result["results"]["data"].items():
            protocol = "article" if all(o["article"] for o in kept["outcomes"].values()) else "big_vision"
            figure = record.figures_dir / f"fewshot{suffix}-{_slug(title)}.png"
            caption = figures.accuracy(title, kept["outcomes"], protocol, kept["classes"], figure)
            record.figure(figure, caption)
            record.say(f"  {figure.name}: {caption}")
        record.cannot_show(
            "whether another draw would do better: it is one of several, whose spread is in the figures."
        )
    return record


def find_draw(config: Config, path: Path, result: dict) -> ImageSet:
    """The images of one draw. UserError: the result has no such draw, or its images are not to be had."""
    from shared.data import load_images

    kept = result["results"]["data"].get(config.data)
    if kept is None:
        known = ", ".join(result["results"]["data"])
        raise UserError(f"{path}: no data set {config.data!r}; --data takes one of: {known}, none")
    by_shots = _draws(kept)
    draws = by_shots.get(str(config.shots), [])
    if not 0 <= config.draw < len(draws):
        known = ", ".join(f"{k} ({len(d)} draws)" for k, d in by_shots.items())
        raise UserError(f"{path}: no draw {config.draw} at k = {config.shots}; it has k = {known}")
    images = load_images(kept["spec"], "train", root=config.data_root)
    expected = next(
        d["fingerprint"] for d in result["provenance"]["data"] if d["name"] == config.data and d["split"] == "train"
    )
    used = _used_rows(kept["rows"])
    if len(images) <= used.max() or images.subset(used).fingerprint != expected:
        raise UserError(f"{kept['spec']}: not the images that {path.name} was computed from; set PAPERS_DATA as then")
    return images.subset(draws[config.draw])


def _draws(kept: dict) -> dict[str, list[np.ndarray]]:
    """By k, the train rows of each draw that was fitted: the article's, or big_vision's where only that one was run."""
    rows, outcome = kept["rows"], next(iter(kept["outcomes"].values()))
    if outcome["article"]:
        return {k: [_rows(draw) for draw in draws] for k, draws in rows["draws"].items()}
    orders = [_rows(order).reshape(kept["classes"], -1) for order in rows["big_vision"]]
    return {k: [order[:, : int(k)].ravel() for order in orders] for k in outcome["big_vision"]["shots"]}


def _rows(text: str) -> np.ndarray:
    return np.array(text.split(), dtype=np.int64)


def _used_rows(rows: dict) -> np.ndarray:
    """The train rows of a result in the order that its fingerprint was taken in (`Split.train_rows`)."""
    pool, selection = (_rows(rows[role]) for role in ("pool", "selection"))
    article = np.concatenate([pool, selection])
    authors = _rows(" ".join(rows["big_vision"]))
    return np.concatenate([article, np.setdiff1d(authors, article)])


def _slug(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


if __name__ == "__main__":
    cli.run(main, Config)
