"""Verdicts of vit_part4_scratch.py: the article's table, gaps, gains and costs against ours."""

from __future__ import annotations

import math

from papers.vit import scratch_models
from papers.vit.scratch_curves import spread_against_one_run
from papers.vit.scratch_lines import Score, binomial_variance, gap_error, millions, paired
from papers.vit.scratch_recipe import Recipe
from shared.published import Published
from shared.record import Record
from shared.verdict import Z

SIZES = (1000, 5000, 50000)


def judge_accuracies(
    record: Record, published: Published, scores: dict[tuple[str, int], Score], images: int, why: str | None
) -> None:
    """Six accuracies, three gaps, two gains. `why`: see `departure`."""
    for size in SIZES:
        row = f"{size:,} images"
        vit, resnet = scores.get(("ViT", size)), scores.get(("ResNet", size))
        for name, ours in (("ViT", vit), ("ResNet", resnet)):
            number = published[f"{row}/{name} best"]
            if ours is None:
                record.judge(number, None, why_not_run="this run was not finished")
                continue
            std = spread_against_one_run(ours.best)
            record.judge(number, ours.mean, std=std, images=images, stand_in=why)
        both = paired(vit, resnet)
        record.judge(
            published[f"{row}/ResNet - ViT"],
            both[1].mean - both[0].mean if both else None,
            stand_in=why,
            terms={"both sides' errors": gap_tolerance(*both, images)} if both else None,
            why_not_run="one of the two runs was not finished",
        )
    for name in scratch_models.NAMES:
        both = paired(scores.get((name, SIZES[0])), scores.get((name, SIZES[-1])))
        record.judge(
            published[f"1,000 -> 50,000 images/{name} gains"],
            both[1].mean - both[0].mean if both else None,
            stand_in=why,
            terms={"both sides' errors": gap_tolerance(*both, images)} if both else None,
            why_not_run="one of the two runs was not finished",
        )


def gap_tolerance(one: Score, other: Score, images: int) -> float:
    """Points that two differences of accuracies may lie apart, the article's from one run and ours from n.

    The two are `paired`. Both sides carry the binomial error of two scores; where we have several seeds, both also
    carry the spread of a run.
    """
    variance = 2 * (binomial_variance(one.mean, images) + binomial_variance(other.mean, images))
    if len(one.seeds) > 1:
        variance += gap_error(one, other, images) ** 2 * (len(one.seeds) + 1)
    return Z * math.sqrt(variance)


def judge_costs(record: Record, published: Published, recipe: Recipe, classes: int) -> None:
    """Parameters and multiply-adds as printed, and the epochs that 2,500 steps make."""
    if recipe == Recipe() and classes == 10:
        for name in scratch_models.NAMES:
            parameters = scratch_models.parameter_count(name)
            record.judge(published[f"cost/{name} parameters"], millions(parameters))
            record.judge(
                published[f"cost/{name} multiply-adds"], f"{scratch_models.multiply_adds(name).weights / 1e6:.0f}M"
            )
        for size in SIZES:
            record.judge(published[f"{size:,} images/epochs"], f"{recipe.steps * recipe.batch / size:.0f}")
