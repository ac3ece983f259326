"""What `vit_part4_top5.py` says, section by section, from scores that are there already."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from papers.vit import top5_images
from papers.vit import top5_lines as lines
from papers.vit.top5_run import Classifier, origin_groups
from papers.vit.top5_scoring import Counts, by_class, draw, origin, telling_names
from papers.vit.top5_verdicts import DRAWN_FROM, NO_DRAW, judge
from shared.data import ImageSet
from shared.published import load
from shared.record import Record

if TYPE_CHECKING:
    from papers.vit.vit_part4_top5 import Config

DRAWN = 8
FOUR_OR_THREE = (
    "The article's command list speaks of 4 classifiers; its text and its log have 3, and nothing is printed for a "
    "fourth. google/bit-50 is the fourth in the default run."
)


def tell(record: Record, config: Config, found: list[Classifier], sets: list[ImageSet], notes: list[str]) -> None:
    """Everything from the first line to the last. `found` have been run on `sets`."""
    published = load("vit", "top5")
    images, imagenette = sets[0], is_imagenette(sets[0])
    origins(record, found, sets)
    title = "Imagenette" if imagenette else Path(images.name).name
    title += "" if images.split == "all" else f" {images.split}"
    record.section(lines.headline(len(images), title))
    for c in found:
        record.say(lines.model_line(c.name, c.headline.counts))
    shown = next((c for c in found if c.spec == config.gallery_of), found[0])
    candidates = np.flatnonzero(shown.headline.scores.forgiven)
    drawn = draw(images.names, candidates, DRAWN, config.seed)
    record.say()
    for line in lines.examples_lines(
        shown.name, shown.headline.scores, drawn, len(candidates), config.seed, images.names,
        shown.identity.label_names,
    ):  # fmt: skip
        record.say(line)

    top5_images.drawn_images(record, config, shown, drawn, len(candidates))
    counting(record, found, notes)
    seen(record, found)
    classes(record, found)
    entering(record, found)
    if imagenette:
        top5_images.article_images(record, config, shown, published)
        for c in found:
            if c.name == DRAWN_FROM:
                top5_images.article_draw(record, c, config.seed, published)
    top5_images.contact_sheets(record, config, shown)
    judge(record, found, config.stands_for, published, same_data=imagenette and images.split == "validation")
    record.results["models"] = {c.name: results_of(c) for c in found}
    files = [images.names[i] for i in drawn]
    record.results["drawn"] = {"model": shown.name, "candidates": len(candidates), "files": files}
    record.print_verdicts()
    record.cannot_show(
        "how good a classifier is. Ten easy classes stand for ImageNet's 1,000, the images are stored small, and "
        "most of them are training images. It is a lesson about the metric, not a benchmark."
    )


def is_imagenette(images: ImageSet) -> bool:
    return images.name in ("imagenette", "frgfm/imagenette")


def origins(record: Record, found: list[Classifier], sets: list[ImageSet]) -> None:
    """Which images, which weights and which arithmetic, for the JSON."""
    choices = list(dict.fromkeys(c.choice for c in found))  # one, unless a model is not computed in the common dtype
    record.use_device(
        choices[0].name, ", ".join(choice.dtype_name for choice in choices), "; ".join(c.reason for c in choices)
    )
    for part in sets:
        record.use_data(
            part.name, split=part.split, source=part.source, images=len(part), fingerprint=part.fingerprint,
            stand_in=part.stand_in,
        )  # fmt: skip
    for c in found:
        record.use_model(
            c.identity.name, revision=c.identity.revision, weights_sha256=c.identity.weights_sha256,
            preprocessing=c.headline.preprocessing, stand_in=c.identity.stand_in,
        )  # fmt: skip


def counting(record: Record, found: list[Classifier], notes: list[str]) -> None:
    """That the outcomes add up, the ties, what stands in for what, and the article's count of classifiers."""
    record.section("the counts add up")
    columns = ["model", "top-1", "top-5", "top-1 wrong", "of which label in the top 5", "rest", "ties"]
    rows = []
    for c in found:
        n, ties = c.headline.counts, int(c.headline.scores.tied.sum())
        record.say(lines.sum_line(c.name, n, ties))
        rows.append(
            [c.name, f"{n.top1:.2f}%", f"{n.top5:.2f}%", f"{n.wrong:,}", f"{n.forgiven:,}", f"{n.rest:,}", f"{ties:,}"]
        )
    record.table("Top-1 and top-5 over 1,000 classes", columns, rows)
    for note in notes:
        record.say(f"  {note}")
    images = found[0].headline.images
    if images.stand_in:
        record.say(f"  stand-in images: {images.stand_in}; {images.source}")
    for c in found:
        if c.identity.stand_in:
            record.say(f"  stand-in model: {c.name}: {c.identity.stand_in}")
    if is_imagenette(images):
        record.say(_wrapped(FOUR_OR_THREE))
        record.say(_wrapped(f"Its eight images: {NO_DRAW}."))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def seen(record: Record, found: list[Classifier]) -> None:
    """Accuracy on images that ImageNet trains on and on images that it does not, with Wilson intervals."""
    images = found[0].headline.images
    parts = [origin(name) for name in images.names]
    record.section("images seen in training and images not seen (in brackets: Wilson's interval at 95 %)")
    record.say(
        f"  {parts.count('validation'):,} of the {len(images):,} images are named ILSVRC2012_val_*: they are from "
        f"ImageNet's validation set.\n  {parts.count('training'):,} are ImageNet training images: a classifier "
        "trained on ImageNet has seen them with their labels."
    )
    columns = ["model", "images", "how many", "top-1", "top-5"]
    rows = []
    for c in found:
        groups = origin_groups(c.headline)
        groups += [
            (f"all {len(w.images):,} of ImageNet validation, not seen", w.counts)
            for w in c.ways[1:]
            if w.images is not images and w.way == c.headline.way
        ]
        rows += [[c.name, *row] for row in lines.origin_rows(groups)]
    record.say("\n".join(lines.aligned(columns, rows, left=(0, 1))))
    record.table("Seen and unseen images", columns, rows, note="In brackets: Wilson's interval at 95 %.")


def classes(record: Record, found: list[Classifier]) -> None:
    """A row a class: three accuracies and the most frequent confusions."""
    few = f"of {len(found[0].own)}"
    record.section("class by class")
    record.say(
        f"  {few}: the best among the data set's {len(found[0].own)} classes only. Last: the most frequent wrong top-1."
    )
    columns = ["class", "images", "top-1", "top-5", few, "most frequent wrong top-1"]
    for c in found:
        telling = telling_names(c.identity.label_names, c.identity.label_wnids)
        rows = lines.class_rows(by_class(c.headline.scores, c.own), telling)
        right = c.headline.scores.right_of_few
        record.say(f"\n  {c.name}: top-1 {few} classes: {lines.share(int(right.sum()), len(right))}")
        record.say("\n".join("  " + line for line in lines.aligned(columns, rows, left=(0, 5))))
        record.table(f"{c.name}, class by class", columns, rows)


def entering(record: Record, found: list[Classifier]) -> None:
    """Accuracy by the way in which the stored images become the network's input."""
    height, width = found[0].headline.images.image(0).shape[:2]
    record.section("how the stored images enter the network")
    record.say(
        f"  The first image is stored as {width}x{height}. own: the model's published recipe; crop: shortest "
        f"side, then the centre.\n  The headline is `{found[0].headline.way}`, whichever is best."
    )
    columns = ["model", "images", "way", "top-1", "top-5", "preprocessing"]
    rows = [
        [c.name, f"{w.images.split}, {len(w.images):,}", w.way, f"{w.counts.top1:.2f}%", f"{w.counts.top5:.2f}%",
         w.preprocessing]
        for c in found for w in c.ways
    ]  # fmt: skip
    record.say("\n".join(lines.aligned(columns, rows, left=(0, 1, 2, 5))))
    record.table("How the stored images enter", columns, rows)


def results_of(c: Classifier) -> dict:
    """One classifier's numbers for the JSON, at full precision."""
    scores = c.headline.scores
    telling = telling_names(c.identity.label_names, c.identity.label_wnids)
    return {
        "spec": c.spec,
        "headline": _numbers(c.headline.counts) | {"ties": int(scores.tied.sum())},
        "by origin": {what: _numbers(counts) for what, counts in origin_groups(c.headline)},
        "top-1 among the data set's classes": 100 * float(scores.right_of_few.mean()),
        "by class": [
            {
                "class": telling[row.index],
                "wnid": c.identity.label_wnids[row.index],
                "images": row.images,
                "top-1": row.top1,
                "top-5": row.top5,
                "top-1 among the data set's classes": row.of_few,
                "wrong top-1": [{"class": telling[k], "images": n} for k, n in row.confusions],
            }
            for row in by_class(scores, c.own)
        ],
        "ways": [
            {"split": w.images.split, "way": w.way, "preprocessing": w.preprocessing} | _numbers(w.counts)
            for w in c.ways
        ],
    }


def _numbers(counts: Counts | None) -> dict:
    if counts is None:
        return {"images": 0}
    return {
        "images": counts.images,
        "right": counts.right,
        "wrong, label in the top 5": counts.forgiven,
        "rest": counts.rest,
        "top-1": counts.top1,
        "top-5": counts.top5,
    }
