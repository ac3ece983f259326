"""Section 4.2: residual and plain networks trained on CIFAR-10 with the paper's recipe; the error at the end is judged.

    python resnet_cifar.py                                        ResNet-20 and plain-20, 64,000 updates each
    python resnet_cifar.py --config configs/resnet/cifar-short.toml      8,000 updates, three seeds: minutes per run
    python resnet_cifar.py --models ResNet-110 plain-110 --experiment cifar-110
    python resnet_cifar.py --models ResNet-8 --data digits --image-size 8 --validation 100 --steps 200 --every 50

Expected: ResNet-20 ends near the printed 8.75 % test error, plain-20 about a point above it. How long the runs will
take is measured and said first: with bfloat16 units on two quiet cores about two hours each. CIFAR-10 comes from
PAPERS_DATA, the hub's cache or the network. A killed start goes on from the last point; curves grow in
results/resnet/<experiment>/. Writes results/resnet/<experiment>.log and .json.

What is judged is the network after the last update. The test error of the points before is drawn, as in Figure 6;
nothing is chosen by it, nor by the validation images: the schedule is the paper's. Where its text can be read in more
than one way, READINGS says how it was.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec
import torch

from papers.resnet import architectures, networks
from shared import cli, process, published
from shared.device import rank_and_world
from shared.errors import UserError
from shared.plots import publish
from shared.published import Number, Published
from shared.record import Record
from shared.text import notice
from shared.training import experiment, runs, stream, trainer
from shared.training.runs import Natural, Positive, RunFiles, Variant
from shared.training.stream import Augmentation, TrainingData
from shared.verdict import Measured, standard_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shared.data import ImageSet

READINGS = (
    "45,000 images are trained on, 5,000 (as many of each class) kept apart: printed for the choice of the schedule, "
    "open for the errors; --validation 0 trains on all 50,000",
    "weight decay on every parameter: the text names no exception",
    "pixels in 0..1 less the mean of each over the images trained on; then zeros are padded",
    "batch normalisation as in PyTorch (momentum 0.1), He's initialisation by the inputs of a unit",
    "the training error below 80 % that ends the warm-up of 110 layers and more is that of the last 100 updates",
)
NETWORK = re.compile(r"(ResNet|plain)-(\d+)")
# sha256 of CIFAR-10's test images, see shared.training.stream.Arrays.fingerprint
CIFAR10_TEST = "2c33b053d1cd726af8d86e174a96dd89d7000ba1412add026d68142375b89d51"
WARMED = 110  # layers from which a network is warmed up
WINDOW = 100  # updates over which the training error is taken that ends a warm-up


@dataclass(frozen=True)
class Recipe:
    """The paper's numbers. Steps are updates, `validation` counts training images that are kept apart."""

    steps: Positive = 64_000
    lr: float = 0.1
    drops: tuple[Positive, ...] = (32_000, 48_000)
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batch: Positive = 128
    pad: Natural = 4
    validation: Natural = 5_000
    every: Positive = 1_000
    image_size: Positive = 32
    warmup_lr: float = 0.01
    warmup_below: float = 80.0  # % training error

    def rate(self, step: int) -> float:
        """Learning rate of the update after `step` earlier ones: a tenth from each drop on."""
        return self.lr / 10 ** sum(step >= drop for drop in self.drops)

    def validates(self, done: int) -> bool:
        """Whether the network is scored after `done` updates: every `every`, and at the end."""
        return done % self.every == 0 or done == self.steps


PAPER = Recipe()


@dataclass
class Config(cli.Common, cli.TrainTest):
    experiment: str = "cifar"
    """[output] name of the result and of the folder of its runs"""
    data: str = "cifar10"
    """[data] cifar10, digits, <owner>/<name>[@revision][:configuration] on the hub, a folder or zip with a sub-folder
    per class, perhaps below train/ and test/, or what `datasets` reads"""
    models: tuple[str, ...] = ("ResNet-20", "plain-20")
    """[what] ResNet-N or plain-N with N = 6n + 2 layers: 20, 32, 44, 56, 110"""
    seeds: int = 1
    """repeats; a seed chooses the order, the crops and the initial weights. The mean over them is judged"""
    steps: int = PAPER.steps
    """[protocol] updates per run"""
    drops: tuple[int, ...] = PAPER.drops
    """updates after which the learning rate is divided by 10"""
    batch: int = PAPER.batch
    """images per update"""
    validation: int = PAPER.validation
    """training images kept apart, of every class as many; 0: train on all"""
    every: int = PAPER.every
    """updates between two points of the curve (and checkpoints)"""
    image_size: int = PAPER.image_size
    """pixels; images of another size are squashed to it"""
    pad: int = PAPER.pad
    """pixels padded a side before the random crop"""
    variant: Variant | Literal["auto"] = "auto"
    """[machine] arithmetic; auto: bf16 where there are units for it, else float32; compiled where a compiler is"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps"""
    threads: int = 0
    """CPU threads (0: torch's choice); another number changes the last bits"""
    estimate: bool = True
    """[what] time 20 steps of each network first and say how long all will take"""
    until: int | None = None
    """stop every run at this point of its curve; the schedule stays, no result is written, and the same command without
    it goes on"""
    figures: bool = True
    """[output] draw the curves (--no-figures: print only)"""
    train: bool = True
    """--no-train: print and judge the runs that are finished"""


# one run -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run(RunFiles):
    """Which network is trained with which seed, in which arithmetic."""

    model: str
    seed: Natural = 0
    variant: Variant = "float32"

    @property
    def name(self) -> str:
        return f"{self.model}-seed{self.seed}" + ("" if self.variant == "float32" else f"-{self.variant}")


def network(model: str) -> architectures.ResNet:
    """ "ResNet-20": option A, "plain-20": no shortcuts. UserError for what section 4.2 has not."""
    if not (match := NETWORK.fullmatch(model)):
        raise UserError(f"--models {model}: expected ResNet-N or plain-N, as ResNet-20")
    return architectures.cifar(int(match[2]), "A" if match[1] == "ResNet" else "none")


def layers(model: str) -> int:
    return int(NETWORK.fullmatch(model)[2])


@dataclass(frozen=True)
class Point:
    """The network after `step` updates. Wrong of `seen` images in training since the last point, and of all others."""

    step: Positive
    loss: float
    seen: Positive
    wrong: Natural
    validation_wrong: Natural
    test_wrong: Natural


@dataclass(frozen=True)
class Curve(runs.Curve):
    """A run's points. warmup: updates at the low learning rate; None while that lasts."""

    PARTS = (Run, Recipe)

    warmup: Natural | None
    validation_images: Natural
    test_images: Positive
    points: Annotated[list[Point], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Refuse what no training can have left (ValueError; `read` names the file)."""
        steps = [point.step for point in self.points]
        if steps != sorted(set(steps)):
            raise ValueError("the steps of its points do not rise")
        for p in self.points:
            if p.wrong > p.seen or p.validation_wrong > self.validation_images or p.test_wrong > self.test_images:
                raise ValueError(f"step {p.step}: more wrong than there are images")
        if self.complete and steps[-1] != self.identity.get("steps"):
            raise ValueError("called complete, but it ends before its last step")

    @property
    def last_step(self) -> int:
        return self.points[-1].step

    @property
    def so_far(self) -> str:
        return f"{self.test_error:.2f} % test error"

    @property
    def test_error(self) -> float:
        """In %, after the last update that is in the curve."""
        return self.errors("test")[-1]

    def errors(self, of: Literal["training", "validation", "test"]) -> list[float]:
        """In %, a value per point; NaN of no image."""
        if of == "training":
            return [100 * p.wrong / p.seen for p in self.points]
        images = getattr(self, f"{of}_images")
        return [100 * getattr(p, f"{of}_wrong") / images if images else math.nan for p in self.points]


class Trainer(trainer.Trainer):
    """The state of one run: besides the shared trainer's, its points and its warm-up."""

    curve_type = Curve
    KEPT = ("done", "losses", "points", "warmup", "recent")

    def __init__(self, run: Run, recipe: Recipe, data: TrainingData, device: torch.device) -> None:
        plan = replace(network(run.model), classes=data.classes, image_size=recipe.image_size)
        super().__init__(
            run,
            recipe,
            data,
            device,
            networks.initialise(networks.build(plan), run.seed),
            lambda model: sgd(model, recipe),
            layout=torch.channels_last,  # what a convolution's fast kernels want
            compiled=run.variant.endswith("compiled"),
        )
        self.points: list[dict[str, Any]] = []
        self.warmup = None if layers(run.model) >= WARMED else 0
        self.recent: list[int] = []  # while it is warmed up: wrong images of the last updates
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)  # since the last point

    def identity(self) -> dict[str, Any]:
        return identity(self.run, self.recipe, self.data)

    def rate(self) -> float:
        return self.recipe.warmup_lr if self.warmup is None else self.recipe.rate(self.done)

    def inputs(self, images: torch.Tensor, draws: Augmentation) -> torch.Tensor:
        """The mean first, then padding, crop and flip: what is padded is the mean image's 0."""
        cropped = self.augment(self.normalise(images).contiguous(), draws, self.recipe.pad)
        return cropped.contiguous(memory_format=self.layout)

    def observe(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Count the wrong ones, and end the warm-up when they are few enough."""
        wrong = (logits.argmax(1) != labels).sum()
        self.wrong += wrong
        if self.warmup is None:
            self.recent = [*self.recent, int(wrong)][-WINDOW:]
            error = 100 * sum(self.recent) / (len(self.recent) * self.recipe.batch)
            if len(self.recent) == WINDOW and error < self.recipe.warmup_below:
                self.warmup, self.recent = self.done, []

    def score(self) -> dict[str, str]:
        first = self.points[-1]["step"] if self.points else 0
        loss = float(f"{statistics.fmean(self.losses[first:]):.6g}")
        point = {"step": self.done, "loss": loss, "seen": (self.done - first) * self.recipe.batch}
        point["wrong"] = int(self.wrong)
        self.wrong.zero_()
        for part, images in (("validation", self.data.validation), ("test", self.data.held_out)):
            point[f"{part}_wrong"] = len(images) - self.correct(images) if len(images) else 0
        self.points.append(point)
        return {"test error": f"{100 * point['test_wrong'] / len(self.data.held_out):.1f}%"}

    def curve(self, identity: dict[str, Any], complete: bool) -> Curve:
        points = [Point(**point) for point in self.points]
        images = len(self.data.validation), len(self.data.held_out)
        return Curve(1, identity, complete, self.warmup, *images, points)


def sgd(model: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """SGD with momentum and weight decay over every parameter; the fused kernel changes the speed only."""
    settings = {"lr": recipe.lr, "momentum": recipe.momentum, "weight_decay": recipe.weight_decay}
    return torch.optim.SGD(model.parameters(), **settings, fused=True)


def identity(run: Run, recipe: Recipe, data: TrainingData) -> dict[str, Any]:
    """Everything that a run's numbers depend on besides the machine; a file of another identity is refused."""
    digests = {f"{part}_sha256": digest for part, digest in data.fingerprints.items()}
    plan = asdict(recipe) | {"drops": list(recipe.drops)}
    return asdict(run) | plan | {"classes": data.classes} | digests


# all runs ------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Experiment(experiment.Experiment[Run]):
    """All runs, on the same images."""

    curve_type = Curve

    data: TrainingData

    def trainer(self, run: Run, recipe: Recipe | None = None) -> Trainer:
        return Trainer(run, recipe or self.recipe, self.data, self.device)

    def identity(self, run: Run) -> dict[str, Any]:
        return identity(run, self.recipe, self.data)

    def scored(self, last: int) -> int:
        points = sum(self.recipe.validates(step) for step in range(1, last + 1))
        return points * (len(self.data.validation) + len(self.data.held_out))


def check(config: Config, recipe: Recipe) -> None:
    """Raise UserError for values that make no experiment."""
    for model in config.models:
        network(model)
    # one image a batch leaves batch normalisation nothing to normalise
    least = {"seeds": 1, "steps": 1, "batch": 2, "every": 1, "validation": 0, "threads": 0, "pad": 0}
    for key, bound in least.items():
        if getattr(config, key) < bound:
            raise UserError(f"--{key} {getattr(config, key)}: must be at least {bound}")
    if recipe.image_size < 4 or recipe.image_size % 4:
        raise UserError(f"--image-size {recipe.image_size}: must be a multiple of 4, as it is halved twice")
    if list(recipe.drops) != sorted(set(recipe.drops)) or not all(0 < drop < recipe.steps for drop in recipe.drops):
        raise UserError(f"--drops {' '.join(map(str, recipe.drops))}: must rise, between 0 and --steps {recipe.steps}")
    if not config.models or len(set(config.models)) < len(config.models):
        raise UserError("--models: name at least one, and each once")
    until = config.until
    if until is not None and not (0 < until <= recipe.steps and recipe.validates(until)):
        raise UserError(f"--until {until}: must be a multiple of --every {recipe.every} up to --steps {recipe.steps}")


def main(config: Config) -> Record | None:
    # what is no option stays the paper's
    recipe = Recipe(**{f.name: getattr(config, f.name) for f in fields(Recipe) if hasattr(config, f.name)})
    check(config, recipe)
    process.use_threads(config.threads)
    rank, _ = rank_and_world()
    choice, variant = experiment.arithmetic(config.variant, config.device, training=config.train)
    todo = [Run(model, seed, variant) for model in config.models for seed in range(config.seeds)]
    train_set, test_set = stream.load_sets(config.data, train=config.split, test=config.test_split, **config.where)
    train, test = (stream.arrays_of(images, recipe.image_size) for images in (train_set, test_set))
    stream.note_copies(train_set, test_set)
    question = "Do a residual and a plain network, trained as the paper says, end with the error that it prints?"
    more = {"config": config, "question": question, "results": config.results, "quiet": rank > 0}
    with Record("resnet", config.experiment, **more) as record:
        data = stream.keep_apart(train, test, recipe.validation, choice.device)
        folder = record.directory / config.experiment
        everything = {"runs": todo, "data": data, "recipe": recipe, "device": choice.device, "folder": folder}
        plan = Experiment(**everything, until=config.until)
        for run in todo:  # a damaged file is found out before anything trains
            plan.curve(run)
            runs.read_starts(run.machine_file(folder))
        if config.train and rank == 0:
            notice(f"training in {variant} {choice}")
        if config.train:
            plan.train_all(config.estimate)
        if rank > 0:
            record.discard()  # the first process writes the result of all
            return None
        if config.until and config.until < recipe.steps:
            record.say("\n".join(f"  {plan.line(run)}" for run in todo))
            record.say(f"  --until: the curves are in {folder}; no result is written or changed")
            record.discard()
            return None
        record.use_device(choice.name, variant, choice.reason)
        why = origin(record, config, plan, train_set, test_set)
        tell(record, config, plan, why)
    return record


def origin(record: Record, config: Config, plan: Experiment, train_set: ImageSet, test_set: ImageSet) -> str | None:
    """Note what the numbers came from. Returns why they cannot be compared with the paper's, see `departure`."""
    record.seed = 0
    one = train_set.split == test_set.split  # a set in one piece
    record.use_images(train_set, config.data, "train" if one else None)
    record.use_images(test_set, config.data, "test" if one else None)
    recipe = plan.recipe
    pixels = (
        f"{recipe.image_size}x{recipe.image_size}, pixels in 0..1 less the mean of each pixel, in training random crop "
        f"(padding {recipe.pad}, zeros) and flip"
    )
    none = {"revision": None, "weights_sha256": None, "stand_in": train_set.stand_in}
    for model in config.models:
        record.use_model(f"{model} from scratch", preprocessing=pixels, **none)
    stand_in = train_set.stand_in or test_set.stand_in
    return departure(config.data, stand_in, recipe, plan.data.fingerprints["held_out"])


def departure(data: str, stand_in: str | None, recipe: Recipe, test_sha256: str = CIFAR10_TEST) -> str | None:
    """Why the numbers cannot be compared with the paper's: other images or another recipe; None if they can.

    Whether the validation images are trained on too is a reading (READINGS), and how often a point is made changes
    nothing.
    """
    if stand_in:
        return stand_in
    if data not in ("cifar10", "uoft-cs/cifar10"):
        return f"other images ({data})"
    if recipe.image_size == PAPER.image_size and test_sha256 != CIFAR10_TEST:
        return "tested on other images than CIFAR-10's test split"
    free = {"every": PAPER.every} | ({"validation": PAPER.validation} if recipe.validation == 0 else {})
    same = replace(recipe, **free)
    drops = tuple(drop * recipe.steps // PAPER.steps for drop in PAPER.drops)
    if recipe.steps < PAPER.steps and same == replace(PAPER, steps=recipe.steps, drops=drops):
        return f"a short run: {recipe.steps:,} updates in place of {PAPER.steps:,}, the drops in proportion"
    changed = [f.name for f in fields(Recipe) if getattr(same, f.name) != getattr(PAPER, f.name)]
    return f"another recipe ({', '.join(f'{key} {getattr(recipe, key)}' for key in changed)})" if changed else None


# what came out -------------------------------------------------------------------------------------------------------


Repeats = dict[str, list[Curve]]  # the finished runs of each network, by seed


def tell(record: Record, config: Config, plan: Experiment, why: str | None) -> None:
    """The curves in numbers, what is judged, and the figure. `why`: see `departure`."""
    curves = plan.finished()
    repeats: Repeats = {}
    for run, curve in curves.items():
        repeats.setdefault(run.model, []).append(curve)
    record.say("\n".join(header(config, plan, why)))
    if curves:
        record.section("errors after the last update, %")
        record.say_table(*last_errors(curves), left=(0,), note="training: on cropped images, in the last updates")
        record.say("\n".join(spread_lines(repeats, len(plan.data.held_out))))
        record.section("the curves of seed 0, %")
        record.say_table(*points_table({run: c for run, c in curves.items() if run.seed == 0}), left=(0,))
    record.section("runs")
    for run in plan.runs:
        record.say(f"  {plan.line(run)}")
    record.section("the images")
    record.say_assumed()
    record.results = {"runs": {}, "test_error": {}, "readings": list(READINGS)}
    for run, curve in curves.items():
        starts = runs.read_starts(run.machine_file(plan.folder))
        record.use_run(run.curve_file(plan.folder), run.seed, [start.words for start in starts])
        digests = {key: value for key, value in curve.identity.items() if key.endswith("_sha256")}
        errors = {of: curve.errors(of)[-1] for of in ("training", "validation", "test")}
        record.results["runs"][run.name] = {"errors": errors, "warmup": curve.warmup, "images_sha256": digests}
    for model, cell in repeats.items():
        record.results["test_error"][model] = [curve.test_error for curve in cell]
    numbers = measured(repeats, plan, why)
    for table in answered(config.models, numbers, why):
        record.judge_all(table, numbers, why_not_run)
    record.print_verdicts()
    if curves and config.figures:
        printed = published.load("resnet", "table6") if why is None else None
        caption = CAPTION + PRINTED * bool(printed and any(f"{model}/error" in printed.numbers for model in repeats))
        figure = draw(curves, printed)
        publish(record, figure, record.experiment, caption, data=f"results/resnet/{record.experiment}/")
    if repeats:
        record.answer(in_words(repeats, why))
    other = "; of other runs than its own nothing follows for its numbers" * bool(why)
    record.cannot_show(
        "how far the paper's own run was from its mean: it prints one run of each network of 20 to 56 layers. "
        f"Which images were kept apart there is not printed{other}."
    )


def header(config: Config, plan: Experiment, why: str | None) -> list[str]:
    """What is trained, on what, how, and how the text was read."""
    recipe, data = plan.recipe, plan.data
    lines = [f"== Section 4.2: {', '.join(config.models)} on {config.data}, {recipe.steps:,} updates =="]
    if why:
        lines.append(f"  not the paper's experiment: {why}")
    for model in config.models:
        plain = replace(network(model), classes=data.classes, image_size=recipe.image_size)
        counts = architectures.parameters(plain), architectures.multiply_adds(plain)
        lines.append(f"  {model:<12}{counts[0]:>12,} parameters{counts[1] / 1e6:>8.1f}M multiply-adds an image")
    drops = ", ".join(f"{drop:,}" for drop in recipe.drops)
    train, validation, test = (f"{len(part):,}" for part in (data.train, data.validation, data.held_out))
    lines += [
        f"  {train} images to train on, {validation} kept apart, {test} to test",
        f"  SGD, learning rate {recipe.lr:g} divided by 10 after {drops} updates, momentum {recipe.momentum:g}, weight "
        f"decay {recipe.weight_decay:g}, batch {recipe.batch}",
        f"  arithmetic: {plan.runs[0].variant}; images kept apart: sha256 {data.fingerprints['validation']}",
        *(f"  reading: {reading}" for reading in READINGS),
    ]
    return lines


def last_errors(curves: dict[Run, Curve]) -> tuple[str, list[str], list[list[Any]]]:
    """A row for every finished run."""
    rows = []
    for run, curve in curves.items():
        error = standard_error(curve.test_error, curve.test_images)
        shown = [f"{curve.errors(of)[-1]:.2f}" for of in ("training", "validation", "test")]
        rows.append([run.model, run.seed, f"{curve.steps:,}", *shown, f"{error:.2f}"])
    columns = ["network", "seed", "updates", "training", "validation", "test", "± (test images)"]
    return "Error (%) after the last update", columns, rows


def spread_lines(repeats: Repeats, images: int) -> list[str]:
    """Mean and SD over the seeds, where there are several."""
    lines = []
    for model, cell in repeats.items():
        errors = [curve.test_error for curve in cell]
        if len(errors) > 1:
            values = f"{statistics.fmean(errors):.2f} ± {statistics.stdev(errors):.2f}"
            lines.append(f"  {model}: {values} % over {len(errors)} seeds, {min(errors):.2f} to {max(errors):.2f}")
        if any(curve.warmup for curve in cell):
            ended = ", ".join(f"{curve.warmup:,}" for curve in cell)
            lines.append(f"  {model}: the warm-up ended after {ended} updates (printed: about 400)")
    return lines or [f"  one run each; ±: the standard error of {images:,} test images, the luck of a run is not in it"]


def points_table(curves: dict[Run, Curve]) -> tuple[str, list[str], list[list[Any]]]:
    """Sixteen points of each run at most, the last one among them."""
    rows = []
    for run, curve in curves.items():
        count = len(curve.points)
        for i in sorted({math.ceil(count * part / 16) - 1 for part in range(1, 17)}):
            shown = [f"{curve.errors(of)[i]:.2f}" for of in ("training", "validation", "test")]
            rows.append([run.model, f"{curve.points[i].step:,}", f"{curve.points[i].loss:.3f}", *shown])
    return "Error (%) by updates", ["network", "updates", "loss", "training", "validation", "test"], rows


def measured(repeats: Repeats, plan: Experiment, why: str | None) -> dict[str, Measured | float | str]:
    """The paper's numbers by their ids: the test errors, and the settings that the runs were made with."""
    numbers: dict[str, Measured | float | str] = {}
    for model, cell in repeats.items():
        errors = [curve.test_error for curve in cell]
        std = statistics.stdev(errors) if len(errors) > 1 else None
        files = [Run(**curve.part(Run)).curve_file(Path(plan.folder.name)).as_posix() for curve in cell]
        more = {"images": cell[0].test_images, "stand_in": why, "runs": tuple(files)}
        mean = Measured(statistics.fmean(errors), std=std, n=len(errors), **more)
        if model == "ResNet-110":
            numbers["ResNet-110/mean"] = mean
            if len(errors) == 5:  # as printed: the best of five
                numbers["ResNet-110/error"] = Measured(min(errors), **more)
        else:
            numbers[f"{model}/error"] = mean
    if why is None and repeats:
        numbers |= settings(plan)
    return numbers


def settings(plan: Experiment) -> dict[str, float | str]:
    """What section 4.2 prints of the training, as the runs here have it: counted on the images, read off the recipe."""
    recipe, data = plan.recipe, plan.data
    first, second = recipe.drops
    found: dict[str, float | str] = {
        "training images": len(data.train) + len(data.validation),
        "test images": len(data.held_out),
        "classes": data.classes,
        "weight decay": recipe.weight_decay,
        "momentum": recipe.momentum,
        "mini-batch": recipe.batch,
        "learning rate at the start": recipe.lr,
        "learning rate first divided by 10 at": first,
        "learning rate again divided by 10 at": second,
        "training ends at": recipe.steps,
        "padding a side": recipe.pad,
        "crop": f"{recipe.image_size}×{recipe.image_size}",
    }
    if len(data.validation):
        found["images trained on while choosing"] = len(data.train)
        found["images validated on while choosing"] = len(data.validation)
    if any(layers(run.model) >= WARMED for run in plan.runs):
        found["warm-up learning rate of ResNet-110"] = recipe.warmup_lr
        found["warm-up until the training error is below"] = recipe.warmup_below
    return {f"4.2/{name}": value for name, value in found.items()}


def answered(models: Sequence[str], numbers: Mapping[str, Any], why: str | None) -> list[Published]:
    """The printed numbers that are judged: Table 6's errors of residual networks, and the settings in the text.

    Of a stand-in (`why`) only the errors of its own networks.
    """
    rows = models if why else [f"ResNet-{depth}" for depth in architectures.CIFAR_DEPTHS]
    ids = [*(f"{row}/error" for row in rows), *([] if why else ["ResNet-110/mean"]), *numbers]
    tables = (published.load("resnet", name) for name in ("table6", "text"))
    return [replace(table, numbers={id: table[id] for id in ids if id in table.numbers}) for table in tables]


def why_not_run(number: Number) -> str:
    five = " in five runs, of which the printed one is the best" * (number.id == "ResNet-110/error")
    return f"not trained here{five} (--models trains it)"


CAPTION = (
    "Error against the updates, as in Figure 6. Thin dashed: training error of the augmented images since "
    "the last point; thick: test error. Faint: other seeds. As there, most of what is above 20 % is cut off."
)
PRINTED = " Dotted: the error that the paper prints."
COLOURS = ("#1b4f8a", "#c05a00", "#4c8a1b", "#8a1b6e", "#6a6a6a", "#b8a000")


def draw(curves: dict[Run, Curve], printed: Published | None) -> Figure:
    """Figure 6: training and test error of every run. printed: Table 6, where it is of the same experiment."""
    from shared.plots import figure_and_axes

    figure, axes = figure_and_axes(5.6, 4.2)
    colours = dict(zip(dict.fromkeys(run.model for run in curves), itertools.cycle(COLOURS), strict=False))
    labelled = set()
    for run, curve in curves.items():
        first, name = run.model not in labelled, run.model
        labelled.add(name)
        steps = [point.step for point in curve.points]
        look = {"color": colours[name], "alpha": 1.0 if first else 0.35}
        for of, line, width in (("test", "-", 1.8), ("training", "--", 0.9)):
            axes.plot(steps, curve.errors(of), line, linewidth=width, label=f"{name}, {of}" if first else None, **look)
        if first and printed and (number := printed.numbers.get(f"{name}/error")):
            look = {"color": colours[name], "linestyle": ":", "linewidth": 1}
            axes.axhline(number.value, label=f"{name}, printed {number.printed}", **look)
    worst = max(curve.test_error for curve in curves.values())
    axes.set_ylim(0, max(20, 2 * worst))  # the paper's figure ends at 20 %, too
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("updates")
    axes.set_ylabel("error, %")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)  # the curves need all of the panel
    return figure


def in_words(repeats: Repeats, why: str | None) -> str:
    """The errors, and the step from the plain network to the residual one of the same depth."""
    means = {model: statistics.fmean(curve.test_error for curve in cell) for model, cell in repeats.items()}
    table = published.load("resnet", "table6")
    parts = []
    for model, mean in means.items():
        number = table.numbers.get(f"{model}/error")
        beside = f" (printed {number.printed})" if number and why is None else ""
        several = f", the mean of {len(repeats[model])} seeds" * (len(repeats[model]) > 1)
        parts.append(f"{mean:.2f} % of {model}{several}{beside}")
    text = f"The test error after the last update: {'; '.join(parts)}."
    for model, mean in means.items():
        other = model.replace("plain", "ResNet")
        if other != model and other in means:
            text += f" Shortcuts change it by {means[other] - mean:+.2f} points at {layers(model)} layers."
    return text + (f" Not the paper's experiment: {why}." if why else "")


if __name__ == "__main__":
    cli.run(main, Config)
