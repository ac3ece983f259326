"""One factor at a time: does anything that the article leaves out of its recipe move the ResNet on 1,000 images?

    python vit_part4_scratch_factors.py                     ten runs: 75 minutes on two cores with AMX
    python vit_part4_scratch_factors.py --factors jpeg init --plain-seeds 1

Initialisation, weight decay, normalisation, padding, and JPEG images in the place of lossless ones, each changed
singly, with the images, their order and their crops of the same seed; the plain recipe is repeated with more seeds,
so that luck has a size.

Writes results/vit/<experiment>.log and .json, and curves below results/vit/<experiment>/<factor>/; a killed start goes
on from the last validation.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from papers.vit.scratch_files import machine_file, read_starts
from papers.vit.scratch_lines import score
from papers.vit.scratch_recipe import PLAIN, check_numbers
from shared import cli, published
from shared.errors import UserError
from shared.record import Record


@dataclass
class Config(cli.Common):
    experiment: str = "scratch-factors"
    """name of the result and of the folder of its runs"""
    data: str = "cifar10"
    """cifar10, digits, a hub data set, or a folder with train/ and test/, one sub-folder a class"""
    data_root: Path | None = None
    """mirror of the hub (default: PAPERS_DATA)"""
    model: str = "ResNet"
    """ViT or ResNet"""
    size: int = 1000
    """training images, a multiple of the number of classes"""
    factors: tuple[str, ...] = ()
    """what to change, each alone: jpeg, init, he, zero, decay, normalisation, padding (none given: all that the model
    has); plain: nothing but the recipe itself"""
    seeds: int = 1
    """repeats of every factor"""
    plain_seeds: int = 3
    """repeats of the recipe itself: how far apart luck puts two runs"""
    steps: int = 2500
    """updates a run"""
    warmup: int = 250
    """updates until the full learning rate"""
    batch: int = 128
    """images an update"""
    validation: int = 5000
    """images of the test split that choose the best step"""
    every: int = 250
    """updates between two validations (and checkpoints)"""
    image_size: int = 32
    """pixels; images of another size are squashed to it"""
    pad: int = 4
    """pixels around an image before the random crop"""
    variant: Literal["float32", "float32-compiled", "bf16", "bf16-compiled"] = "bf16-compiled"
    """arithmetic"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps"""
    threads: int = 0
    """CPU threads (0: torch's choice); another number changes the last bits"""
    estimate: bool = True
    """time 20 steps first and say how long all will take"""
    train: bool = True
    """--no-train: print the runs that are finished"""


def main(config: Config) -> Record:
    import torch

    from papers.vit import scratch_data, scratch_factors, scratch_models, scratch_runs
    from papers.vit.scratch_recipe import Run, departure
    from papers.vit.scratch_train import NotFinite
    from shared.device import rank_and_world

    check(config, scratch_models.NAMES, tuple(scratch_factors.FACTORS))
    scratch_models.check_image_size(config.image_size)
    if config.threads:
        torch.set_num_threads(config.threads)
    rank, world = rank_and_world()
    choice = scratch_runs.device_of(config)
    recipe = scratch_runs.recipe_of(config)
    train, train_set = scratch_data.read_images(config.data, "train", config.image_size, config.data_root)
    test, test_set = scratch_data.read_images(config.data, "test", config.image_size, config.data_root)
    jobs = [(name, Run(config.model, config.size, seed, config.variant))
            for name, seed in plan(config, tuple(scratch_factors.FACTORS))]  # fmt: skip

    with Record(
        "vit", config.experiment, config=config, results=config.results, quiet=rank > 0,
        question="Does anything that the article leaves out of its recipe move the result?",
    ) as record:  # fmt: skip
        folder = record.directory / config.experiment
        bench = scratch_runs.Bench(train, test, recipe, choice.device, folder)

        def finished(name: str, run: Run) -> dict[str, Any] | None:
            return scratch_factors.finished(name, run, recipe, bench.data(run), folder)

        for name, run in jobs:
            read_starts(machine_file(folder / name, run))  # what is damaged is found out before anything trains
            finished(name, run)
        failed: dict[tuple[str, Run], str] = {}
        with scratch_runs.ranks(folder) if config.train else contextlib.nullcontext():
            todo = [(name, run) for name, run in jobs if config.train and not finished(name, run)]
            if todo and rank == 0 and config.estimate:
                scratch_runs.announce(bench, [run for _, run in todo], world)
            for name, run in todo[rank::world]:
                trainer = scratch_factors.trainer(name, run, recipe, bench.data(run), choice.device)
                try:
                    scratch_runs.train_one(trainer, folder / name)
                except NotFinite as error:  # what a change does to the training is a result; the others go on
                    failed[name, run] = str(error).partition("; the last")[0]
        if rank > 0:
            raise SystemExit(0)  # rank 0 tells the story
        curves = {(name, run.seed): curve for name, run in jobs if (curve := finished(name, run))}
        rows = table(curves)
        record.say(
            f"== one factor at a time: {config.model}, {config.size:,} training images, {recipe.steps:,} steps, "
            f"{config.variant} =="
        )
        record.say("\n".join([*lines(rows), *mean_lines(curves), *noise_lines(curves)]))
        numbers = published.load("vit", "scratch").numbers
        printed = f"{config.size:,} images/{config.model} best"
        validation = bench.data(jobs[0][1]).fingerprints["validation"]
        stand_in = train_set.stand_in or test_set.stand_in
        if printed in numbers and departure(config.data, stand_in, recipe, validation) is None:
            record.say(f"  the article's one run of its recipe has {numbers[printed].printed}% (best validation)")
        record.section("what was changed")
        for name in dict.fromkeys(name for name, _ in jobs):
            record.say(f"  {name:<14} {scratch_factors.FACTORS[name].what}")
        record.section("runs")
        for name, run in jobs:
            if (name, run.seed) in curves:
                told = scratch_runs.time_line(run, read_starts(machine_file(folder / name, run)))
            else:
                told = failed.get((name, run)) or scratch_runs.unfinished_line(folder / name, run)
            record.say(f"  {name:<14} {told.strip()}")

        record.seed = 0
        record.use_device(choice.name, config.variant, choice.reason)
        record.use_model(
            f"{config.model} from scratch", revision=None, weights_sha256=None, stand_in=train_set.stand_in,
            preprocessing=f"{recipe.image_size}x{recipe.image_size}, in training random crop (padding {recipe.pad})"
            " and flip",
        )  # fmt: skip
        for part, images, arrays in (("train", train_set, train), ("test", test_set, test)):
            record.use_data(
                config.data, split=part, source=images.source, images=len(arrays),
                fingerprint=images.fingerprint, stand_in=images.stand_in,
            )  # fmt: skip
        record.results = {
            f"{name}/seed{seed}": {
                "best": curve["best"], "validations": curve["validations"],
                "validation_images": curve["validation_images"], "held_out_images": curve["held_out_images"],
            }
            for (name, seed), curve in curves.items()
        }  # fmt: skip
        record.table("Accuracy (%) with one thing changed, and the difference from the plain recipe", COLUMNS, rows)
        record.cannot_show(
            "factors together, and other networks or numbers of images; a difference that is smaller than what a "
            "seed changes is no finding."
        )
    return record


def check(config: Config, models: tuple[str, ...], factors: tuple[str, ...]) -> None:
    """Raise UserError for values that make no experiment."""
    if config.model not in models:
        raise UserError(f"--model {config.model}: choose from {', '.join(models)}")
    for name in config.factors:
        if name not in factors:
            raise UserError(f"--factors {name}: choose from {', '.join(factors)}")
    for name in [name for name in config.factors if name in RESNET_ONLY and config.model != "ResNet"]:
        raise UserError(f"--factors {name}: the article leaves the ResNet's initialisation open, not the ViT's")
    check_numbers(config)
    if config.plain_seeds < config.seeds:
        raise UserError(
            f"--plain-seeds {config.plain_seeds}: every factor is held against the plain recipe of its seed; "
            f"at least --seeds {config.seeds}"
        )
    if "padding" in config.factors and not 0 < config.pad < config.image_size:
        raise UserError(
            f"--factors padding: a mirror needs --pad between 1 and {config.image_size - 1}, not {config.pad}"
        )


def plan(config: Config, factors: tuple[str, ...]) -> list[tuple[str, int]]:
    """(factor, seed) of every run: the plain recipe, every factor, then the plain recipe's other seeds."""
    has = dict.fromkeys(RESNET_ONLY, config.model == "ResNet")
    has["padding"] = 0 < config.pad < config.image_size
    chosen = config.factors or [name for name in factors if has.get(name, True)]
    first = [(name, seed) for seed in range(config.seeds) for name in dict.fromkeys((PLAIN, *chosen))]
    return first + [(PLAIN, seed) for seed in range(config.seeds, config.plain_seeds)]


def both_halves(curve: dict[str, Any]) -> float:
    """Accuracy in % on all test images, validation and held out, of the weights of the best validation."""
    right = curve["best"]["correct"] + curve["best"]["held_out_correct"]
    return 100 * right / (curve["validation_images"] + curve["held_out_images"])


def table(curves: dict[tuple[str, int], dict[str, Any]]) -> list[list[Any]]:
    """[factor, seed, step, best %, held-out %, and both against the plain recipe with the same seed, in points]."""
    rows = []
    for (name, seed), curve in curves.items():
        s, plain = score([curve]), curves.get((PLAIN, seed))
        against = ["", ""]
        if plain and name != PLAIN:
            against = [
                f"{s.mean - score([plain]).mean:+.2f}",
                f"{both_halves(curve) - both_halves(plain):+.2f}",
            ]
        rows.append([name, seed, s.steps[0], f"{s.best[0]:.2f}", f"{s.held_out[0]:.2f}", *against])
    return rows


def lines(rows: list[list[Any]]) -> list[str]:
    """The table as text."""
    text = ["  factor         seed   step  best validation  held out   against plain: best   all test images"]
    for name, seed, step, best, held_out, against, on_all in rows:
        text.append(f"  {name:<14}{seed:>5}{step:>7}{best:>16}%{held_out:>9}%{against:>22}{on_all:>20}".rstrip())
    return text


def mean_lines(curves: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """With several seeds of a factor: the mean of its differences from plain, on all test images, and its error."""
    text = []
    for name in dict.fromkeys(name for name, _ in curves if name != PLAIN):
        apart = [
            both_halves(curve) - both_halves(curves[PLAIN, seed])
            for (which, seed), curve in curves.items()
            if which == name and (PLAIN, seed) in curves
        ]
        if len(apart) > 1:
            error = statistics.stdev(apart) / math.sqrt(len(apart))
            text.append(
                f"  {name:<14} {statistics.fmean(apart):+.2f} points on all test images, standard error {error:.2f} "
                f"over {len(apart)} seeds"
            )
    return text


def noise_lines(curves: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """How far chance puts two runs apart, from the plain recipe's seeds: 95 % of differences, by Student's t."""
    plain = [curve for (name, _), curve in curves.items() if name == PLAIN]
    if len(plain) < 2:
        return ["  how far chance puts two runs apart is not known: that needs two finished seeds of the plain recipe"]
    from scipy.stats import t

    best, n = score(plain), len(plain)
    halves = statistics.stdev(both_halves(curve) for curve in plain)
    width = float(t.ppf(0.975, n - 1)) * math.sqrt(2)
    return [
        f"  plain: {best.mean:.2f}% on average over {n} seeds, sample deviation {best.std:.2f} points; 19 of 20 pairs",
        f"  of runs lie within {width * best.std:.1f} points in the best validation and {width * halves:.1f} on all "
        f"test images (Student's t, {n - 1} degree{'s' * (n > 2)} of freedom;",
        f"  a pair of one seed shares its images and should lie closer); differences looked at: {len(curves) - n}",
    ]


RESNET_ONLY = ("init", "he", "zero")  # the ViT's initialisation is transformers' own
COLUMNS = ["factor", "seed", "step", "best", "held out", "best against plain", "all test images against plain"]

if __name__ == "__main__":
    cli.run(main, Config)
