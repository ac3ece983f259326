"""Print and draw the training curves that vit_part4_scratch.py saved: validation accuracy and smoothed training loss.

    python vit_part4_scratch_curves.py                                a few seconds; reads results/vit/scratch/
    python vit_part4_scratch_curves.py --experiment scratch-demo

Expected: with 1,000 images both losses end near 0; with 50,000 both curves still rise at the last step. A run
that was cut short prints what it has. Writes results/vit/<experiment>-curves.log, .json and figures (PNG and SVG).
"""

from __future__ import annotations

from dataclasses import dataclass

from papers.vit import scratch_curves as curves
from shared import cli, published
from shared.errors import UserError
from shared.record import Record, require_plain


@dataclass
class Config(cli.Common):
    experiment: str = "scratch"
    """which experiment's runs: the name given to vit_part4_scratch.py"""
    seed: int = 0
    """which repeat is printed and drawn; an accuracy's verdict is that of the mean over all"""
    figures: bool = True
    """draw PNG and SVG (--no-figures: print only)"""


def main(config: Config) -> Record:
    require_plain(config.experiment)
    with Record(
        "vit", f"{config.experiment}-curves", config=config, results=config.results,
        question="How do both networks learn: do they memorise, and are they still rising when the recipe ends?",
    ) as record:  # fmt: skip
        found, left_out = curves.read(record.directory / config.experiment, config.seed)
        if not found and left_out:
            raise UserError(left_out[0].removeprefix("left out: "))
        if not found:
            raise UserError(
                f"{record.directory / config.experiment}: no curves of seed {config.seed}; "
                "train first with vit_part4_scratch.py"
            )
        ends = {min(c.size for c in found), max(c.size for c in found)}
        record.say(curves.TITLE)
        record.say("\n".join(c.line() for c in found if c.size in ends))
        between = [c for c in found if c.size not in ends]
        if between:
            record.section("the sizes between, which the article does not print")
            record.say("\n".join(c.line() for c in between))
        repeats = curves.with_repeats(record.directory / config.experiment, found)
        seeds = curves.seed_lines(repeats)
        if seeds:
            record.section("how far apart the seeds are")
            record.say("\n".join(seeds))
        record.section("how to read this")
        record.say(
            f"  the loss is an exponential moving average, {curves.SMOOTHING} of the old value and "
            f"{1 - curves.SMOOTHING:.2f} of each step's (the article does not print its constant)"
        )
        record.say(f"  {curves.arithmetic(found)}")
        if seeds:
            record.say(
                f"  lines and figures show seed {config.seed}; an accuracy's verdict is that of the mean over the "
                "seeds that reached the step, with what their spread allows"
            )
        for line in [c.missing() for c in found if not c.complete] + left_out:
            record.say(f"  {line}")

        record.seed = config.seed
        record.results = {
            f"{c.model}/{c.size}": {
                "variant": c.identity["variant"], "complete": c.complete,
                "validations": [[step, accuracy, c.loss_at(step)] for step, accuracy in c.validations],
                "best": [c.best_step, c.best],
            }
            for c in found
        }  # fmt: skip
        record.table(
            "Validation accuracy (%) and smoothed training loss",
            ["images", "model", "step", "accuracy", "loss"],
            [
                [f"{c.size:,}", c.model, step, f"{a:.1f}", f"{c.loss_at(step):.3f}"]
                for c in found
                for step, a in c.validations
            ],
        )
        numbers = published.load("vit", "scratch")
        if config.figures:
            from papers.vit import scratch_figures

            record.figure(
                scratch_figures.draw_sizes(found, numbers, record.figures_dir / f"{config.experiment}-sizes.png"),
                "Best validation accuracy against the number of training images, as in Figure 4: ViT and ResNet, "
                "ours, and the article's where the images are the same.",
            )
            record.figure(
                scratch_figures.draw_curves(found, record.figures_dir / f"{config.experiment}-curves.png"),
                "Validation accuracy and smoothed training loss against the step, a panel for each number of images, "
                "ViT and ResNet.",
            )
        curves.judge(record, numbers, repeats, config.seed)
        record.print_verdicts()
        record.cannot_show(
            "how much of a curve is the luck of the run, where there is one seed; the validation images also choose "
            "its best step."
        )
    return record


if __name__ == "__main__":
    cli.run(main, Config)
