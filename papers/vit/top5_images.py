"""Which images `vit_part4_top5.py` shows: the drawn ones, the article's own eight, and what stayed wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from papers.vit import top5_lines as lines
from papers.vit.top5_gallery import Card, draw_cards, draw_sheet
from papers.vit.top5_run import Classifier
from papers.vit.top5_scoring import TOP, in_file_order, short
from shared.published import Published
from shared.record import Record

if TYPE_CHECKING:
    from papers.vit.vit_part4_top5 import Config

SHEET = 56  # images on a contact sheet at most
COLOURS = "Green: the label. Red: a wrong first guess. Bars and percentages: softmax over all 1,000 classes."


def printed_files(published: Published) -> list[str]:
    """The file names of the article's eight images."""
    return [id.split("/")[1] for id in published.numbers if id.startswith("eight images/") and id.endswith("/top-1")]


def drawn_images(record: Record, config: Config, shown: Classifier, drawn: Sequence[int], candidates: int) -> None:
    """The drawn images as cards."""
    if config.gallery == "none" or not drawn:
        return
    title = f"{shown.name}: top-1 is not the label, but the top five contain it"
    note = f"{len(drawn)} of {candidates:,} such images (seed {config.seed})"
    path = record.figures_dir / f"{config.experiment}_drawn.png"
    draw_cards(path, title, f"{note}. {COLOURS}", [_card(shown, i) for i in drawn])
    record.figure(path, f"{title}; {note}", kind="gallery")


def article_images(record: Record, config: Config, shown: Classifier, published: Published) -> None:
    """The article's eight images (there ViT-L/16's), as the classifier shown here sees them."""
    images, scores, names = shown.headline.images, shown.headline.scores, shown.identity.label_names
    place = {name: i for i, name in enumerate(images.names)}
    rows = [place[file] for file in printed_files(published) if file in place]
    if not rows:
        return
    record.section(f"the eight images that the article shows (there ViT-L/16's), as {shown.name} sees them")
    columns = ["image", "label", "ViT-L/16's top-1", "label at rank", f"top-1 of {shown.name}", "label at rank"]
    table = []
    for i in rows:
        printed = [published[f"eight images/{images.names[i]}/{what}"] for what in ("top-1", "rank of the label")]
        label, best = short(names[scores.label[i]]), short(names[scores.top[i, 0]])
        table.append([images.names[i], label, *(number.printed for number in printed), best, str(scores.rank[i])])
    record.say("\n".join(lines.aligned(columns, table, left=(0, 1, 2, 4))))
    record.table("The article's eight images", columns, table)
    if config.gallery != "none":
        title = f"The article's eight images, as {shown.name} sees them"
        path = record.figures_dir / f"{config.experiment}_article.png"
        draw_cards(path, title, f"In the article they are ViT-L/16's. {COLOURS}", [_card(shown, i) for i in rows])
        record.figure(path, title, kind="gallery")


def article_draw(record: Record, run: Classifier, seed: int, published: Published) -> None:
    """Which call drew the article's eight: how many of them each of two draws from `run`'s candidates would show."""
    names = run.headline.images.names
    ordered = in_file_order(names, np.flatnonzero(run.headline.scores.forgiven))
    printed = printed_files(published)
    if len(ordered) < len(printed):
        return
    places = {
        "random.Random.sample": random.Random(seed).sample(range(len(ordered)), len(printed)),
        "numpy.random.default_rng.choice": np.random.default_rng(seed).choice(
            len(ordered), len(printed), replace=False
        ),
    }
    hits = {call: sum(names[ordered[i]] in printed for i in drawn) for call, drawn in places.items()}
    record.results["images of the article's eight that a call draws"] = hits
    found = ", ".join(f"{call} {n}" for call, n in hits.items())
    record.say(f"  of the article's eight images, drawn from {run.name}'s {len(ordered)} with seed {seed}: {found}")


def contact_sheets(record: Record, config: Config, shown: Classifier) -> None:
    """With `--gallery all`, a sheet a class of the images that stay wrong: the label is not in the top five."""
    if config.gallery != "all":
        return
    images, scores = shown.headline.images, shown.headline.scores
    for index, wnid in zip(shown.own, images.class_ids, strict=True):
        rest = np.flatnonzero((scores.label == index) & (scores.rank > TOP))
        if not len(rest):
            continue
        rest = sorted(rest, key=lambda i: images.names[i])
        title = f"{short(shown.identity.label_names[index])}: what stayed wrong"
        of = int((scores.label == index).sum())
        note = f"{len(rest)} of {of:,} images whose label is not among the five best guesses of {shown.name}"
        if len(rest) > SHEET:
            note += f"; the first {SHEET} by file name"
        path = record.figures_dir / f"{config.experiment}_wrong_{wnid}.png"
        draw_sheet(path, title, f"{note}. Red: the first guess.", [_card(shown, i) for i in rest[:SHEET]])
        record.figure(path, f"{title}; {note}", kind="gallery")


def _card(shown: Classifier, i: int) -> Card:
    way, names = shown.headline, shown.identity.label_names
    label = way.scores.label[i]
    guesses = [
        (short(names[k]), float(share), bool(k == label))
        for k, share in zip(way.scores.top[i], way.scores.probability[i], strict=True)
    ]
    return Card(way.images.image(i), way.images.names[i], short(names[label]), int(way.scores.rank[i]), guesses)
