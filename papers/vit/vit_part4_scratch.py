"""Section 4.3 in miniature: a small ViT and a small ResNet from scratch on growing parts of CIFAR-10, one recipe.

    python vit_part4_scratch.py                             the article's six runs: 1.5 to 2 hours on two cores
    python vit_part4_scratch.py --variant bf16-compiled     the same in half of the time where the CPU has AMX
    python vit_part4_scratch.py --config configs/vit/scratch-demo.toml         embedded digits, under 2 minutes
    python vit_part4_scratch.py --data my/images --sizes 200 800 --validation 500 --experiment mine
    torchrun --nproc-per-node 2 vit_part4_scratch.py --threads 1      one run a rank, same results as one after another

Expected (float32): the ResNet ahead at every size, by 11 to 21 points; ViT 39 % and 64 %, ResNet 51 to 55 % and 84 % at
1,000 and 50,000 images. CIFAR-10 comes from PAPERS_DATA, the hub's cache or the network.

Curves grow in results/vit/<experiment>/ (vit_part4_scratch_curves.py prints and draws them); a killed start goes on
from the last validation. Writes results/vit/<experiment>.log and .json.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from papers.vit.scratch_files import machine_file, read_starts
from papers.vit.scratch_recipe import check_numbers
from shared import cli, published
from shared.errors import UserError
from shared.record import Record


@dataclass
class Config(cli.Common):
    experiment: str = "scratch"
    """name of the result and of the folder of its runs"""
    data: str = "cifar10"
    """cifar10, digits, a hub data set, or a folder with train/ and test/, one sub-folder a class"""
    data_root: Path | None = None
    """mirror of the hub (default: PAPERS_DATA)"""
    test_split: str = "test"
    """split whose images validate; what --validation leaves of it is held out"""
    models: tuple[str, ...] = ("ViT", "ResNet")
    """ViT, ResNet or both"""
    sizes: tuple[int, ...] = (1000, 5000, 50000)
    """training images, each a multiple of the number of classes"""
    seeds: int = 1
    """repeats; a seed chooses the subset, the order, the crops and the initial weights"""
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
    """black pixels around an image before the random crop"""
    variant: Literal["float32", "float32-compiled", "bf16", "bf16-compiled"] = "float32"
    """arithmetic; float32 is the reference"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps"""
    threads: int = 0
    """CPU threads (0: torch's choice); another number changes the last bits"""
    estimate: bool = True
    """time 20 steps of each network first and say how long all will take"""
    until: int | None = None
    """stop every run at this validation step; the schedule stays, no result is written, and the same command without
    it goes on"""
    train: bool = True
    """--no-train: print and judge the runs that are finished"""


def main(config: Config) -> Record | int:
    import torch

    from papers.vit import scratch_data, scratch_lines, scratch_models, scratch_runs, scratch_verdicts
    from papers.vit.scratch_recipe import departure
    from shared.device import rank_and_world

    check(config, scratch_models.NAMES)
    scratch_models.check_image_size(config.image_size)
    if config.threads:
        torch.set_num_threads(config.threads)
    rank, _ = rank_and_world()
    choice = scratch_runs.device_of(config)
    recipe = scratch_runs.recipe_of(config)
    train, train_set = scratch_data.read_images(config.data, "train", config.image_size, config.data_root)
    test, test_set = scratch_data.read_images(config.data, config.test_split, config.image_size, config.data_root)
    classes = len(train_set.class_names)
    sizes = tuple(sorted(config.sizes))
    runs = scratch_runs.plan(config.models, sizes, config.seeds, config.variant)

    with Record(
        "vit", config.experiment, config=config, results=config.results, quiet=rank > 0,
        question="From scratch and at equal cost: how do a ViT and a ResNet gain from more images?",
    ) as record:  # fmt: skip
        folder = record.directory / config.experiment
        bench = scratch_runs.Bench(train, test, recipe, choice.device, folder, config.until)
        for run in runs:
            bench.data(run)  # a size that does not fit or a damaged note is found out before anything trains
            read_starts(machine_file(bench.folder, run))
        record.say("\n".join(scratch_lines.header(config.data, recipe, config.models, classes)))
        already = scratch_runs.train_all(bench, runs, show_estimate=config.estimate) if config.train else runs
        if rank > 0:
            raise SystemExit(0)  # rank 0 tells the story
        if config.until and config.until < config.steps:
            for run in runs:
                finished = "  " + run.name + " is finished" if bench.finished(run) else None
                record.say(finished or scratch_runs.unfinished_line(bench.folder, run, config.until))
            record.say(f"  --until: the curves are in {bench.folder}; no result is written or changed")
            raise SystemExit(0)
        curves = {run: curve for run in runs if (curve := bench.finished(run))}
        scores = {
            (name, size): scratch_lines.score(of_cell)
            for size in sizes
            for name in config.models
            if (of_cell := [curve for run, curve in curves.items() if (run.model, run.size) == (name, size)])
        }
        record.say("\n".join(scratch_lines.table(scores, sizes, recipe, classes)))
        tell_more(record, config, recipe, scores, sizes, classes, len(test) - recipe.validation)
        for run in curves:
            record.say(scratch_runs.time_line(run, read_starts(machine_file(bench.folder, run))))
        reused = [run for run in already if run in curves]
        if reused:
            record.say(
                f"  {len(reused)} of {len(runs)} runs were found finished in {bench.folder.name}/ and not repeated "
                "(delete their files to train them anew)"
            )
        for run in runs:
            if run not in curves:
                record.say(scratch_runs.unfinished_line(bench.folder, run))

        record.seed = 0
        record.use_device(choice.name, config.variant, choice.reason)
        mean, std = scratch_data.channel_statistics(train.images)
        for name in config.models:
            record.use_model(
                f"{name} from scratch", revision=None, weights_sha256=None, stand_in=train_set.stand_in,
                preprocessing=f"{recipe.image_size}x{recipe.image_size}, random crop (padding {recipe.pad}, black) "
                f"and flip in training, mean {mean}, std {std}",
            )  # fmt: skip
        for part, images, arrays in (("train", train_set, train), (config.test_split, test_set, test)):
            record.use_data(
                config.data, split=part, source=images.source, images=len(arrays),
                fingerprint=images.fingerprint, stand_in=images.stand_in,
            )  # fmt: skip
        record.results = {
            "runs": {run.name: summary(bench, run, curve) for run, curve in curves.items()},
            "cells": {f"{name}/{size}": vars(s) | {"mean": s.mean, "std": s.std} for (name, size), s in scores.items()},
        }
        record.table(
            "Accuracy (%) at the best validation step, and on held-out images",
            scratch_lines.HELD_OUT_COLUMNS, scratch_lines.held_out_rows(scores),
        )  # fmt: skip
        numbers = published.load("vit", "scratch")
        validation = bench.data(runs[-1]).fingerprints["validation"]  # of every run; the last one is at hand
        why = departure(config.data, train_set.stand_in or test_set.stand_in, recipe, validation)
        scratch_verdicts.judge_costs(record, numbers, recipe, classes)
        scratch_verdicts.judge_accuracies(record, numbers, scores, recipe.validation, why)
        record.print_verdicts()
        record.cannot_show(
            "the cross-over itself, which the paper finds between 9 and 90 million images; a point is "
            f"{scratch_lines.runs_a_point(scores)}, the validation images choose the step, "
            "and the images are small."
        )
    return record


def check(config: Config, names: tuple[str, ...]) -> None:
    """Raise UserError for values that make no experiment."""
    for model in config.models:
        if model not in names:
            raise UserError(f"--models {model}: choose from {', '.join(names)}")
    check_numbers(config)
    if config.test_split == "train":
        raise UserError("--test-split train: images that are trained on cannot validate; name another split")
    if not config.models or not config.sizes:
        raise UserError("--models and --sizes: name at least one of each")
    until = config.until
    if until is not None and until != config.steps and (until % config.every or not 0 < until < config.steps):
        raise UserError(
            f"--until {until}: must be a step with a validation, a multiple of --every {config.every} up to "
            f"--steps {config.steps}"
        )


def tell_more(record, config, recipe, scores, sizes, classes, held_out) -> None:
    """What the suite adds to the article's log."""
    from papers.vit import scratch_lines

    record.section("multiply-adds of one image, counted in both conventions")
    record.say("\n".join(scratch_lines.cost_lines(config.models, recipe, classes)))
    if scores:
        record.section(f"the other {held_out:,} test images at the chosen step: nothing was chosen on them")
        record.say("\n".join(scratch_lines.held_out_lines(scores)))
        record.section("how sure the gap is")
        record.say("\n".join(scratch_lines.seed_lines(scores, sizes, recipe.validation)))
    record.section("runs")


def summary(bench, run, curve) -> dict:
    """A run in the result file: its scores, its images, the machine it was trained on."""
    return {
        "best": curve["best"], "validations": curve["validations"],
        "validation_images": curve["validation_images"], "held_out_images": curve["held_out_images"],
        "images_sha256": {k: v for k, v in curve["identity"].items() if k.endswith("_sha256")},
        "starts": read_starts(machine_file(bench.folder, run)),
    }  # fmt: skip


if __name__ == "__main__":
    cli.run(main, Config)
