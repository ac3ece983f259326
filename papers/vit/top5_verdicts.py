"""The article's lines of `vit_part4_top5.py` against what was measured."""

from __future__ import annotations

import math

from papers.vit.top5_images import printed_files
from papers.vit.top5_run import Classifier
from papers.vit.top5_scoring import Counts, short
from shared.published import Number, Published
from shared.record import Record
from shared.verdict import Z

DRAWN_FROM = "ViT-L/16"  # whose eight images the article prints
NO_DRAW = (
    "random.Random(3).sample on the list sorted by file name cannot have given the printed rows: its closest pair of "
    "the 499 places is 303 and 309, but n03028079_9481 and n03028079_9560 are two apart among all 3,925 file names; "
    "numpy.random.default_rng(3).choice (places 42, 88, 89, 117, 290, 398, 399, 432) can have"
)


def judge(record: Record, found: list[Classifier], stands_for: str, published: Published, same_data: bool) -> None:
    """A verdict for each published number. same_data: the images are Imagenette's validation part, or a copy."""
    if not same_data:
        for number in published.numbers.values():
            record.judge(number, None, why_not_run="another data set")
        return
    for row, numbers in published.rows.items():
        name = row.partition("/")[2]
        run, stand_in = _who_answers(found, stands_for, name)
        counts = run.headline.counts if run else None
        for column, number in numbers.items():
            record.judge(
                number, _measured(counts, column) if counts else None, stand_in=stand_in,
                images=counts.images if counts else None,
                terms=binomial(number) if number.unit == "images" else None,
                why_not_run=f"{name} is not among the models of this run",
            )  # fmt: skip
    _judge_images(record, found, stands_for, published)


def binomial(number: Number) -> dict[str, float]:
    """The tolerance's binomial term for a count among `number.images`, in images: `shared.verdict`'s own rule."""
    p = number.value / number.images
    return {"binomial": Z * math.sqrt(2 * number.images * p * (1 - p))}


def _measured(counts: Counts, column: str) -> float:
    return {
        "top-1": counts.top1,
        "top-5": counts.top5,
        "top-1 wrong": counts.wrong,
        "of which label in the top 5": counts.forgiven,
    }[column]


def _judge_images(record: Record, found: list[Classifier], stands_for: str, published: Published) -> None:
    """What ViT-L/16 says of the eight printed images, image by image; the draw itself cannot be repeated."""
    run, stand_in = _who_answers(found, stands_for, DRAWN_FROM)
    place = {name: i for i, name in enumerate(run.headline.images.names)} if run else {}
    why = "the image is not in this set" if run else f"{DRAWN_FROM} is not among the models of this run"
    for file in printed_files(published):
        i = place.get(file)
        best = short(run.identity.label_names[run.headline.scores.top[i, 0]]) if i is not None else None
        rank = int(run.headline.scores.rank[i]) if i is not None else None
        for what, measured in (("top-1", best), ("rank of the label", rank)):
            record.judge(published[f"eight images/{file}/{what}"], measured, stand_in=stand_in, why_not_run=why)
    record.judge(published["eight images/the draw"], None, why_not_run=NO_DRAW)


def _who_answers(found: list[Classifier], stands_for: str, name: str) -> tuple[Classifier | None, str | None]:
    """The run that is judged against the article's model `name`, and why it only stands in for it, if it does."""
    run = next((c for c in found if c.name == name), None)
    reasons = []
    if run is None and stands_for == name:
        run = found[0]
        reasons.append(f"{run.name} in place of {name}")
    if run is not None:
        reasons += [reason for reason in (run.identity.stand_in, run.headline.images.stand_in) if reason]
    return run, "; ".join(reasons) or None
