"""Section 4.3 in miniature: a small ViT and a small ResNet from scratch on growing parts of CIFAR-10, one recipe.

    python vit_part4_scratch.py                             the article's six runs: 1.5 to 2 hours on two cores
    python vit_part4_scratch.py --variant bf16-compiled     in half of the time on a CPU with AMX (newer Intel ones)
    python vit_part4_scratch.py --config configs/vit/scratch-demo.toml         embedded digits, under 2 minutes
    python vit_part4_scratch.py --data digits --sizes 200 800 --validation 200 --experiment mine      your own images
    python vit_part4_scratch.py --config configs/vit/scratch-factors.toml      ablations, see below
    torchrun --nproc-per-node 2 vit_part4_scratch.py --threads 1     one run per rank, same results as one after another

Expected (float32): the ResNet ahead at every size, by 11 to 21 points; ViT 39 % and 64 %, ResNet 51 to 55 % and 84 % at
1,000 and 50,000 images. CIFAR-10 comes from PAPERS_DATA, the hub's cache or the network.

The recipe is in part4/runs.py, the networks in part4/networks.py, the loop in shared/training. Curves grow in
results/vit/<experiment>/ (vit_part4_scratch_curves.py prints and draws them); a killed start goes on from the last
validation. Writes results/vit/<experiment>.log and .json.

With --factors: ablations of details that the article does not state. Does any of them move the result of one network on
one number of images? Initialisation, weight decay, normalisation, padding, and JPEG images in the place of lossless
ones, each changed alone, with the images, their order and their crops of the same seed; the plain recipe is repeated
with more seeds, for the SD over seeds. Result and folder are then called <experiment>-factors.
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.vit.part4.runs import (
    LOOKS,
    NAMES,
    PLAIN,
    SIZES,
    Curve,
    Recipe,
    Run,
    departure,
    seeds_beside,
)
from shared import cli, process, published
from shared.errors import UserError
from shared.plots import publish
from shared.published import Published
from shared.record import Record
from shared.text import notice
from shared.training.runs import Variant, read_starts
from shared.verdict import Measured, Z, binomial_variance, standard_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from papers.vit.part4.trainer import Experiment
    from shared.data import ImageSet

JUDGED_SEED = 0  # of every point, however many seeds some have: the article has one run per point too
DATA_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
Cell = dict[int, Curve]  # the finished runs of a network on a number of images, by seed
Cells = dict[tuple[str, int], Cell]


@dataclass
class Config(cli.Common, cli.TrainTest):
    experiment: str = "scratch"
    """[output] name of the result and of the folder of its runs"""
    data: str = "cifar10"
    """[data] cifar10, digits, <owner>/<name>[@revision][:configuration] on the hub, a folder or zip with a sub-folder
    per class, perhaps below train/ and test/, or what `datasets` reads"""
    test_split: str = ""
    """[data] split whose images validate; what --validation leaves of it is held out (default: test, or validation
    where there is none; a fifth of every class where there is one split only)"""
    models: tuple[str, ...] = ("ViT", "ResNet")
    """[what] ViT, ResNet or both"""
    sizes: tuple[int, ...] = SIZES
    """training images, each a multiple of the number of classes"""
    seeds: int = 1
    """runs of each network and size; a seed chooses the subset, the order, the crops and the initial weights. Seed 0 is
    printed in the table and judged, further ones give the SD over seeds"""
    factors: tuple[str, ...] = ()
    """change the recipe instead, each of these alone: jpeg, init, he, zero, decay, normalisation, padding; all: those
    that the network has; plain: nothing but the recipe itself"""
    plain_seeds: int = 3
    """with --factors, repeats of the unchanged recipe: for the SD over seeds"""
    steps: int = 2500
    """[protocol] updates per run"""
    warmup: int = 250
    """updates until the full learning rate"""
    batch: int = 128
    """images per update"""
    validation: int = 5000
    """images of the test split that choose the best step"""
    every: int = 250
    """updates between two validations (and checkpoints)"""
    image_size: int = 32
    """pixels; images of another size are squashed to it"""
    pad: int = 4
    """black pixels around an image before the random crop"""
    variant: Variant = "float32"
    """[machine] arithmetic; float32 is the reference"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps"""
    threads: int = 0
    """CPU threads (0: torch's choice); another number changes the last digits of the results"""
    estimate: bool = True
    """[what] time 20 steps of each network first and say how long all will take"""
    until: int | None = None
    """stop every run at this validation step; the schedule stays, no result is written, and the same command without
    it goes on"""
    figures: bool = True
    """[output] draw the result (--no-figures: print only)"""
    train: bool = True
    """--no-train: print and judge the runs that are finished"""


def check(config: Config) -> None:
    """Raise UserError for values that make no experiment."""
    from papers.vit.part4 import networks

    for model in config.models:
        if model not in NAMES:
            raise UserError(f"--models {model}: choose from {', '.join(NAMES)}")
    networks.check_image_size(config.image_size)
    # one image per batch leaves batch normalisation nothing to normalise
    least = {"seeds": 1, "steps": 1, "batch": 2, "every": 1, "validation": 1, "threads": 0, "pad": 0}
    for key, bound in least.items():
        if getattr(config, key) < bound:
            raise UserError(f"--{key} {getattr(config, key)}: must be at least {bound}")
    if not 0 <= config.warmup <= config.steps:
        raise UserError(f"--warmup {config.warmup}: must lie between 0 and --steps {config.steps}")
    if config.test_split and config.test_split == (config.split or "train"):
        raise UserError(
            f"--test-split {config.test_split}: images that are trained on cannot validate; name another split"
        )
    if not config.models or not config.sizes:
        raise UserError("--models and --sizes: name at least one of each")
    until = config.until
    if until is not None and until != config.steps and (until % config.every or not 0 < until < config.steps):
        raise UserError(
            f"--until {until}: must be a step with a validation, a multiple of --every {config.every} up to "
            f"--steps {config.steps}"
        )


def main(config: Config) -> Record | None:
    from papers.vit.part4 import trainer
    from shared.device import rank_and_world
    from shared.training import stream
    from shared.training.experiment import arithmetic

    check(config)
    process.use_threads(config.threads)
    rank, _ = rank_and_world()
    choice, _ = arithmetic(config.variant, config.device, training=config.train)
    # the learning rate and the weight decay have no option here: they keep the article's values
    recipe = Recipe(**{key: getattr(config, key) for key in vars(Recipe()) if hasattr(config, key)})
    question = "From scratch and at equal cost: how do a ViT and a ResNet gain from more images?"
    runs = [
        Run(model, size, seed, config.variant)
        for seed in range(config.seeds)
        for size in sorted(config.sizes)
        for model in config.models
    ]
    if config.factors:
        question = "Does anything that the article leaves out of its recipe move the result?"
        runs = plan(config)
    train_set, test_set = stream.load_sets(config.data, train=config.split, test=config.test_split, **config.where)
    train, test = (stream.arrays_of(images, config.image_size) for images in (train_set, test_set))
    stream.note_copies(train_set, test_set)

    name = config.experiment + "-factors" * bool(config.factors)
    with Record("vit", name, config=config, question=question, results=config.results, quiet=rank > 0) as record:
        folder = record.directory / name
        which = {"runs": runs, "train": train, "test": test, "recipe": recipe}
        experiment = trainer.Experiment(**which, device=choice.device, folder=folder, until=config.until)
        for run in runs:  # a size that does not fit or a damaged file is found out before anything trains
            experiment.curve(run)
            read_starts(run.machine_file(folder))
        if not config.factors:
            record.say("\n".join(header(config, recipe, len(train_set.class_names))), exact=True)
        if config.train and rank == 0:
            notice(f"training {choice}")
        before, failed = experiment.train_all(config.estimate) if config.train else (runs, {})
        if rank > 0:
            record.discard()  # the first process writes the result of all
            return None
        if config.until and config.until < config.steps:
            record.say("\n".join(f"  {experiment.line(run)}" for run in runs))
            record.say(f"  --until: the curves are in {folder}; no result is written or changed")
            record.discard()
            return None

        record.use_device(choice.name, config.variant, choice.reason)
        why = origin(record, config, experiment, train_set, test_set)
        if config.factors:
            tell_factors(record, config, experiment, failed, why)
        else:
            tell(record, config, experiment, before, why)
    return record


def origin(
    record: Record, config: Config, experiment: Experiment, train_set: ImageSet, test_set: ImageSet
) -> str | None:
    """Note what the numbers came from. Returns why they cannot be compared with the article's, see `departure`."""
    from shared.training import stream

    record.seed = 0
    one = train_set.split == test_set.split  # a set in one piece
    record.use_images(train_set, config.data, "train" if one else None)
    record.use_images(test_set, config.data, "test" if one else None)
    pixels = "{0}x{0}, random crop (padding {1}, black) and flip in training, mean {2}, std {3}"
    if config.factors:
        pixels = "{0}x{0}, in training random crop (padding {1}) and flip"
    recipe, last = experiment.recipe, experiment.runs[-1]
    pixels = pixels.format(recipe.image_size, recipe.pad, *stream.channel_statistics(experiment.train.images))
    none = {"revision": None, "weights_sha256": None, "stand_in": train_set.stand_in}
    for model in config.models:
        record.use_model(f"{model} from scratch", preprocessing=pixels, **none)
    validation = experiment.data(replace(last, change="")).fingerprints["validation"]  # the same of every run
    return departure(config.data, train_set.stand_in or test_set.stand_in, recipe, validation)


# the article's section -----------------------------------------------------------------------------------------------


def cells_of(runs: list[Run], curves: dict[Run, Curve]) -> Cells:
    """The finished runs of each network on each number of images, by their seeds; the smallest number first."""
    cells: Cells = {(run.model, run.size): {} for run in sorted(runs, key=lambda run: run.size)}
    for run, curve in curves.items():
        cells[run.model, run.size][run.seed] = curve
    return {key: cell for key, cell in cells.items() if cell}


def judged(cells: Cells) -> Cells:
    """The run of each cell that is printed in the article's table and judged."""
    return {key: {JUDGED_SEED: cell[JUDGED_SEED]} for key, cell in cells.items() if JUDGED_SEED in cell}


def accuracies(cell: Cell) -> list[float]:
    """Best validation accuracies in %, a value per seed."""
    return [curve.best_accuracy for curve in cell.values()]


def mean(cell: Cell) -> float:
    return statistics.fmean(accuracies(cell))


def std(cell: Cell) -> float | None:
    """Sample SD over the seeds; None for a single one."""
    return statistics.stdev(accuracies(cell)) if len(cell) > 1 else None


def paired(one: Cell | None, other: Cell | None) -> tuple[Cell, Cell] | None:
    """Both with the seeds only that both have, in one order: what a gap is made of. None without a common seed."""
    common = sorted(one.keys() & other.keys()) if one and other else []
    return ({seed: one[seed] for seed in common}, {seed: other[seed] for seed in common}) if common else None


def tell(record: Record, config: Config, experiment: Experiment, before: list[Run], why: str | None) -> None:
    """The article's table, what the suite adds to it, and the verdicts. `why`: see `departure`."""
    runs, curves, recipe, classes = experiment.runs, experiment.finished(), experiment.recipe, experiment.classes
    sizes, cells = sorted(config.sizes), cells_of(runs, curves)
    record.say("\n".join(table(judged(cells), sizes, recipe, classes)))
    record.section("multiply-adds of one image, counted in both conventions")
    record.say("\n".join(cost_lines(config.models, recipe, classes)))
    if curves:
        rest = len(experiment.test) - recipe.validation
        record.section(f"the other {rest:,} test images at the chosen step: nothing was chosen on them")
        held_out_table(record, cells)
        record.section("how sure the gap is")
        record.say("\n".join(seed_lines(cells, sizes, recipe.validation)))
    record.section("runs")
    for run in curves:
        record.say(f"  {experiment.line(run)}")
    if reused := sum(run in curves for run in before):
        record.say(
            f"  {reused} of {len(runs)} runs were found finished in {experiment.folder.name}/ and not repeated "
            "(delete their files to train them anew)"
        )
    for run in runs:
        if run not in curves:
            record.say(f"  {experiment.line(run)}")
    record.section("the images")
    record.say_assumed()
    record.results = {"runs": {}, "cells": {}}
    for run, curve in curves.items():
        digests = {key: value for key, value in curve.identity.items() if key.endswith("_sha256")}
        starts = read_starts(run.machine_file(experiment.folder))
        record.use_run(run.curve_file(experiment.folder), run.seed, [start.words for start in starts])
        record.results["runs"][run.name] = curve.summary() | {"images_sha256": digests, "starts": starts}
    for (model, size), cell in cells.items():
        record.results["cells"][f"{model}/{size}"] = {
            "best": accuracies(cell),
            "held_out": [curve.held_out_accuracy for curve in cell.values()],
            "steps": [curve.best.step for curve in cell.values()],
            "seeds": list(cell),
            "mean": mean(cell),
            "std": std(cell),
        }
    numbers = measured(
        cells, recipe, classes, why, Path(experiment.folder.name), {(run.model, run.size) for run in runs}
    )
    article = published.load("vit", "scratch")
    record.judge_all(replace(article, numbers={id: article[id] for id in numbers}), numbers, "")
    record.print_verdicts()
    if cells and config.figures:
        caption = SIZES_CAPTION if why is None else SIZES_CAPTION.partition(" Hollow")[0]
        figure = draw_sizes(cells, article if why is None else None, recipe.validation)
        publish(record, figure, f"{record.experiment}-sizes", caption, data=f"results/vit/{record.experiment}/")
    if gaps := gaps_in_words(cells):
        record.answer(gaps)
    record.cannot_show(
        f"at how many images the ViT overtakes the ResNet, which the paper finds between 9 and 90 million; a point is "
        f"{runs_a_point(cells)}, the validation images choose the step, and the images are small."
    )


def header(config: Config, recipe: Recipe, classes: int) -> list[str]:
    """The article's first lines: both networks with their cost, and the recipe."""
    from papers.vit.part4 import networks as n

    words = {
        "ViT": f"({n.PATCH}x{n.PATCH} patches -> {(recipe.image_size // n.PATCH) ** 2} tokens + [class], D {n.DIM}, "
        f"{n.LAYERS} layers, {n.HEADS} heads, MLP {n.MLP}):",
        "ResNet": f"(ResNet-18 layout, widths {'-'.join(map(str, n.WIDTHS))}, BatchNorm):",
    }
    images = DATA_NAMES.get(config.data, config.data.rstrip("/").rpartition("/")[2])
    lines = [f"== Section 4.3 in miniature: {images} from scratch, same recipe for both models and every data size =="]
    for name in config.models:
        parameters, multiply_adds = n.cost(name, classes, recipe.image_size).printed
        lines.append(f"  {name:<6} {words[name]:<71} {parameters} parameters, {multiply_adds} multiply-adds per image")
    return [
        *lines,
        f"  recipe: AdamW lr {recipe.lr:g}, warm-up {recipe.warmup} steps then cosine, weight decay "
        f"{recipe.weight_decay:g}, batch {recipe.batch}, {recipe.steps} steps, crop + flip;",
        f"          validation on {recipe.validation:,} {images} test images every {recipe.every} steps, "
        "best value kept (early stopping)",
    ]


def table(cells: Cells, sizes: Sequence[int], recipe: Recipe, classes: int) -> list[str]:
    """The article's table and its last line; a cell without a finished run prints "-"."""
    lines = ["    images  per class  epochs   ViT best  ResNet best  ResNet - ViT"]
    for size in sizes:
        row = [cells.get((name, size)) for name in NAMES]
        vit, resnet = (f"{mean(cell):.1f}%" if cell else "-" for cell in row)
        gap = f"{mean(both[1]) - mean(both[0]):+.1f}" if (both := paired(*row)) else "-"
        epochs = recipe.steps * recipe.batch / size
        lines.append(f"{size:>10,}{size // classes:>11,}{epochs:>8.0f}{vit:>11}{resnet:>13}{gap:>13}")
    first, last = sizes[0], sizes[-1]
    gains = []
    for name in NAMES:
        if both := paired(cells.get((name, first)), cells.get((name, last))):
            low, high = map(mean, both)
            gains.append(f"{name} {low:.1f}% -> {high:.1f}% ({high - low:+.1f})")
    if gains and first != last:
        lines.append(f"  going from {first:,} to {last:,} images: {', '.join(gains)}")
    return lines


def measured(
    cells: Cells,
    recipe: Recipe,
    classes: int,
    why: str | None,
    folder: Path = Path(),
    asked: Container[tuple[str, int]] | None = None,
) -> dict[str, Measured]:
    """Every number of the article's section by its published id: costs and epochs, six accuracies, gaps, gains.

    Measured is the run of `JUDGED_SEED`; what further seeds gave stands beside it. why: a stand-in's reason for the
    accuracies, see `departure`. Another recipe has no costs and epochs to compare. folder: the runs', for their names.
    asked: the networks and sizes that this run was to have; None for all.
    """
    from papers.vit.part4 import networks

    numbers: dict[str, Measured] = {}
    one_run = judged(cells)
    if recipe == Recipe() and classes == 10:
        for name in NAMES:
            for what, printed in zip(("parameters", "multiply-adds"), networks.cost(name).printed, strict=True):
                numbers[f"cost/{name} {what}"] = Measured(printed)
        for size in SIZES:
            numbers[f"{size:,} images/epochs"] = Measured(f"{recipe.steps * recipe.batch / size:.0f}")

    def absent(*keys: tuple[str, int]) -> str:
        if asked is not None and not all(key in asked for key in keys):
            return "not part of this run"
        return "this run was not finished" if len(keys) == 1 else "one of the two runs was not finished"

    def difference(low: tuple[str, int], high: tuple[str, int]) -> Measured:
        if not (low in one_run and high in one_run):
            return Measured(None, why_not_run=absent(low, high))
        both = one_run[low], one_run[high]
        terms = {"both sides' errors": gap_tolerance(*both, recipe.validation)}
        pairs = paired(cells[low], cells[high])
        gaps = [b - a for a, b in zip(*map(accuracies, pairs), strict=True)]
        reason = seeds_beside(gaps, "points")
        return Measured(mean(both[1]) - mean(both[0]), stand_in=why, terms=terms, reason=reason, runs=names(*both))

    def names(*of: Cell) -> tuple[str, ...]:
        return tuple(curve.run.curve_file(folder).as_posix() for cell in of for curve in cell.values())

    for size in SIZES:
        for name in NAMES:
            ours = Measured(None, why_not_run=absent((name, size)))
            if cell := one_run.get((name, size)):
                images, reason = recipe.validation, seeds_beside(accuracies(cells[name, size]))
                ours = Measured(mean(cell), images=images, stand_in=why, reason=reason, runs=names(cell))
            numbers[f"{size:,} images/{name} best"] = ours
        numbers[f"{size:,} images/ResNet - ViT"] = difference(("ViT", size), ("ResNet", size))
    for name in NAMES:
        numbers[f"1,000 -> 50,000 images/{name} gains"] = difference((name, SIZES[0]), (name, SIZES[-1]))
    return numbers


# what the suite adds to it -------------------------------------------------------------------------------------------


def cost_lines(models: Sequence[str], recipe: Recipe, classes: int) -> list[str]:
    """Multiply-adds in both conventions."""
    from papers.vit.part4 import networks

    costs = {name: networks.cost(name, classes, recipe.image_size) for name in models}
    lines = []
    for name, cost in costs.items():
        attention = f" + {cost.attention:,} in attention products" if cost.attention else ""
        lines.append(
            f"  {name:<6} {cost.weights:,} in layers with weights{attention} = {cost.total / 1e6:.1f}M in all; "
            f"the line above prints {cost.printed[1]}"
        )
    if len(costs) == 2:
        lines.append(
            "  the article's figure leaves the attention products out; with them one ViT image costs "
            f"{costs['ViT'].total / costs['ResNet'].total:.2f} of a ResNet's"
        )
    return lines


def held_out_table(record: Record, cells: Cells) -> None:
    """A row for every finished run, then the mean difference over all of them."""
    rows, differences = [], []
    lines = ["    images  model   seed   step  validation   held out  difference"]
    for (model, size), cell in cells.items():
        for seed, curve in cell.items():
            difference = curve.best_accuracy - curve.held_out_accuracy
            differences.append(difference)
            best, other = f"{curve.best_accuracy:.2f}", f"{curve.held_out_accuracy:.2f}"
            rows.append([f"{size:,}", model, seed, curve.best.step, best, other, f"{difference:+.2f}"])
            start = f"{size:>10,}  {model:<6}{seed:>6}{curve.best.step:>7}"
            lines.append(f"{start}{best:>11}%{other:>10}%{difference:>+12.2f}")
    lines.append(f"  mean difference over {len(differences)} runs: {statistics.fmean(differences):+.2f} points")
    title = "Accuracy (%) at the best validation step, and on held-out images"
    columns = ["images", "model", "seed", "step", "validation", "held out", "difference"]
    record.say_table(title, columns, rows, lines=lines)


SIZES_CAPTION = (
    "Best validation accuracy against the training images (log scale), as in Figure 4. Thick bars: the SD over "
    "seeds, where there are several; thin ones: with the standard error of the validation images too. Hollow: "
    "the article's printed accuracies with the same error, drawn to the right of ours."
)


def draw_sizes(cells: Cells, article: Published | None, images: int) -> Figure:
    """Best accuracy against the number of training images. article: its numbers, where they are of the same images."""
    from shared.plots import beside, direct_errors, figure_and_axes

    error = functools.partial(standard_error, images=images)
    figure, axes = figure_and_axes(5.2, 3.6)
    for model, look in LOOKS.items():
        look = look | {"markersize": 4}
        ours = {size: cell for (name, size), cell in cells.items() if name == model}
        means = [mean(cell) for cell in ours.values()]
        if ours:
            spread = [std(cell) for cell in ours.values()]
            direct_errors(axes, list(ours), means, spread, map(error, means), label=f"{model}, ours", **look)
        printed = [article[f"{size:,} images/{model} best"].value for size in SIZES] if article else []
        if printed:
            hollow = look | {"markerfacecolor": "none", "linestyle": "none", "elinewidth": 0.8, "capsize": 3}
            hollow |= {"label": f"{model}, article", "transform": beside(axes, 7)}
            axes.errorbar(SIZES, printed, list(map(error, printed)), **hollow)
    ticks = sorted({size for _, size in cells})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("training images (log scale)")
    axes.set_ylabel("best validation accuracy, %")
    axes.legend(loc="lower right")
    return figure


def gaps_in_words(cells: Cells) -> str:
    """Who is ahead at each size, and what each network gains from the smallest to the largest."""
    sizes = sorted({size for _, size in cells})
    both = {size: paired(cells.get(("ViT", size)), cells.get(("ResNet", size))) for size in sizes}
    gaps = {size: mean(pair[1]) - mean(pair[0]) for size, pair in both.items() if pair}
    if not gaps:
        return ""
    ahead = "The ResNet is ahead" if min(gaps.values()) > 0 else "ResNet minus ViT"
    at = ", ".join(f"{gap:+.1f} points at {size:,} images" for size, gap in gaps.items())
    text = f"{ahead}: {at}."
    if len(gaps) > 1:
        low, high = min(gaps), max(gaps)
        gains = [f"the {name} {mean(cells[name, high]) - mean(cells[name, low]):+.1f}" for name in NAMES]
        text += f" From {low:,} to {high:,} images {' and '.join(gains)} points."
    return text


def runs_a_point(cells: Cells) -> str:
    """How many runs stand behind an accuracy, in words."""
    fewest, most = (extreme(map(len, cells.values()), default=0) for extreme in (min, max))
    if fewest == most == 1:
        return "one run"
    return f"{fewest} runs" if fewest == most else f"{fewest} to {most} runs"


def seed_lines(cells: Cells, sizes: Sequence[int], images: int) -> list[str]:
    """Mean and SD over the seeds, and the gap with its standard error."""
    lines, single = [], False
    for size in sizes:
        row = {name: cells[name, size] for name in NAMES if (name, size) in cells}
        parts = []
        for name, cell in row.items():
            spread = f" ± {std(cell):.2f} over {len(cell)} seeds" if len(cell) > 1 else " (one seed)"
            parts.append(f"{name} {mean(cell):.2f}%{spread}")
        if both := paired(row.get("ViT"), row.get("ResNet")):
            several = f" over {len(both[0])} seeds" if len(both[0]) > 1 else ""
            single |= not several
            gap = mean(both[1]) - mean(both[0])
            parts.append(f"gap {gap:+.2f}, standard error {gap_error(*both, images):.2f}{several}")
        if row:
            lines.append(f"{size:>10,}  {'   '.join(parts)}")
    if single:
        lines.append("  of one seed the standard error is that of the two test scores; the luck of a run is not in it")
    return lines


def variance_of_gap(one: Cell, other: Cell, images: int) -> float:
    """Variance in squared points of the difference of two accuracies in %, each scored on `images`."""
    return sum(binomial_variance(mean(cell), images) for cell in (one, other))


def gap_error(one: Cell, other: Cell, images: int) -> float:
    """Standard error in points of mean(other) - mean(one), of `paired` cells.

    Over the seeds when there are several (paired: both networks see one seed's images); else the binomial error of
    two accuracies on `images`, which leaves the luck of the run out.
    """
    if len(one) > 1:
        gaps = [b - a for a, b in zip(accuracies(one), accuracies(other), strict=True)]
        return statistics.stdev(gaps) / math.sqrt(len(gaps))
    return math.sqrt(variance_of_gap(one, other, images))


def gap_tolerance(one: Cell, other: Cell, images: int) -> float:
    """Points that two differences of accuracies may lie apart, the article's and ours, of one run per point.

    Both sides carry the binomial error of two scores; the luck of a run is in neither.
    """
    return Z * math.sqrt(2 * variance_of_gap(one, other, images))


# with --factors: one change at a time -------------------------------------------------------------------------------


def plan(config: Config) -> list[Run]:
    """The plain recipe and every factor with each seed, then the plain recipe's other seeds.

    "all" stands for the factors that the network and the padding have. UserError for a factor
    that is unknown or that they lack.
    """
    from papers.vit.part4.networks import FACTORS, RESNET_ONLY

    if len(config.models) != 1 or len(config.sizes) != 1:
        raise UserError("--factors: name one network and one number of images, as --models ResNet --sizes 1000")
    model, size = config.models[0], config.sizes[0]
    can_mirror = 0 < config.pad < config.image_size
    lacks = set(RESNET_ONLY if model != "ResNet" else ()) | set(() if can_mirror else ["padding"])
    for name in config.factors:
        if name not in (*FACTORS, "all"):
            raise UserError(f"--factors {name}: choose from {', '.join(FACTORS)}, or all")
        if name in lacks and name in RESNET_ONLY:
            raise UserError(f"--factors {name}: the article leaves the ResNet's initialisation open, not the ViT's")
        if name in lacks:
            raise UserError(
                f"--factors padding: a mirror needs --pad between 1 and {config.image_size - 1}, not {config.pad}"
            )
    if config.plain_seeds < config.seeds:
        raise UserError(
            f"--plain-seeds {config.plain_seeds}: every factor is held against the plain recipe of its seed; "
            f"at least --seeds {config.seeds}"
        )
    chosen = [name for name in FACTORS if name not in lacks] if "all" in config.factors else config.factors
    jobs = [(name, seed) for seed in range(config.seeds) for name in dict.fromkeys((PLAIN, *chosen))]
    jobs += [(PLAIN, seed) for seed in range(config.seeds, config.plain_seeds)]
    return [Run(model, size, seed, config.variant, change) for change, seed in jobs]


COLUMNS = ["factor", "seed", "step", "best", "held out", "best against plain", "all test images against plain"]


def tell_factors(
    record: Record, config: Config, experiment: Experiment, failed: dict[Run, str], why: str | None
) -> None:
    """What each change of the recipe does, against the plain recipe and what luck does to it."""
    from papers.vit.part4 import changes
    from papers.vit.part4.networks import FACTORS

    curves, first = experiment.finished(), experiment.runs[0]
    cell = f"{first.model}, {first.size:,} training images, {experiment.recipe.steps:,} steps, {first.variant}"
    record.say(f"== one factor at a time: {cell} ==")
    rows, lines = factor_table(curves)
    title = "Accuracy (%) with one thing changed, and the difference from the plain recipe"
    lines += [*mean_lines(curves), *noise_lines(curves)]
    record.say_table(title, COLUMNS, rows, lines=lines)
    printed = published.load("vit", "scratch").numbers.get(f"{first.size:,} images/{first.model} best")
    if printed and why is None:
        record.say(f"  the article's one run of its recipe has {printed.printed}% (best validation)")
    if config.figures and (drawn := changes.draw(curves)):
        publish(
            record, drawn, f"{record.experiment}-changes", changes.CAPTION, data=f"results/vit/{record.experiment}/"
        )
    record.section("what was changed")
    for change in dict.fromkeys(run.change for run in experiment.runs):
        record.say(f"  {change:<14} {FACTORS[change].what}")
    record.section("runs")
    for run in experiment.runs:
        record.say(f"  {run.change:<14} {failed.get(run) or experiment.line(run)}")
    record.section("the images")
    record.say_assumed()
    record.results = {f"{run.change}/seed{run.seed}": curve.summary() for run, curve in curves.items()}
    if said := changes.in_words(curves):
        record.answer(said)
    record.cannot_show(
        "factors together, and other networks or numbers of images; a difference that is smaller than what a "
        "seed changes is no finding."
    )


def against_plain(curves: dict[Run, Curve]) -> dict[Run, tuple[float, float]]:
    """(best validation, all test images) of each changed run less those of the plain run of its seed, in points."""
    plain = {run.seed: curve for run, curve in curves.items() if run.change == PLAIN}
    return {
        run: (curve.best_accuracy - same.best_accuracy, curve.test_accuracy - same.test_accuracy)
        for run, curve in curves.items()
        if run.change != PLAIN and (same := plain.get(run.seed))
    }


def factor_table(curves: dict[Run, Curve]) -> tuple[list[list[Any]], list[str]]:
    """(rows of `COLUMNS`, the same as text): accuracies in %, differences from the plain run of the seed in points."""
    rows, apart = [], against_plain(curves)
    lines = ["  factor         seed   step  best validation  held out   against plain: best   all test images"]
    for run, curve in curves.items():
        best, on_all = (f"{points:+.2f}" for points in apart[run]) if run in apart else ("", "")
        accuracies = f"{curve.best_accuracy:.2f}", f"{curve.held_out_accuracy:.2f}"
        rows.append([run.change, run.seed, curve.best.step, *accuracies, best, on_all])
        name, seed, step, validation, held_out = rows[-1][:5]
        lines.append(f"  {name:<14}{seed:>5}{step:>7}{validation:>16}%{held_out:>9}%{best:>22}{on_all:>20}".rstrip())
    return rows, lines


def mean_lines(curves: dict[Run, Curve]) -> list[str]:
    """With several seeds of a factor: the mean of its differences from plain, on all test images, and its error."""
    apart: dict[str, list[float]] = {}
    for run, (_, on_all) in against_plain(curves).items():
        apart.setdefault(run.change, []).append(on_all)
    return [
        f"  {name:<14} {statistics.fmean(points):+.2f} points on all test images, standard error "
        f"{statistics.stdev(points) / math.sqrt(len(points)):.2f} over {len(points)} seeds"
        for name, points in apart.items()
        if len(points) > 1
    ]


def noise_lines(curves: dict[Run, Curve]) -> list[str]:
    """How far chance puts two runs apart, from the plain recipe's seeds: 95 % of differences, by Student's t."""
    plain = [curve for run, curve in curves.items() if run.change == PLAIN]
    if (n := len(plain)) < 2:
        return ["  how far chance puts two runs apart is not known: that needs two finished seeds of the plain recipe"]
    from scipy.stats import t

    best = [curve.best_accuracy for curve in plain]
    on_best, on_all = statistics.stdev(best), statistics.stdev(curve.test_accuracy for curve in plain)
    width = float(t.ppf(0.975, n - 1)) * math.sqrt(2)
    return [
        f"  plain: {statistics.fmean(best):.2f}% on average over {n} seeds, SD {on_best:.2f} points; 19 of 20 pairs of "
        f"runs lie within {width * on_best:.1f} points of each other in the best validation and {width * on_all:.1f} "
        f"on all test images (Student's t, {n - 1} degree{'s' * (n > 2)} of freedom; two runs of one seed share their "
        f"images and should lie closer); differences looked at: {len(curves) - n}",
    ]


if __name__ == "__main__":
    cli.run(main, Config)
