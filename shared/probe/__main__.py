"""How good are a vision model's features on your images? A linear probe in closed form; the model is not trained.

    python -m shared.probe --data ~/photos --model wheel:efficientnet-lite0
    python -m shared.probe --data pets cifar10 --model timm:resnet18.a1_in1k facebook/dinov2-small --name compare
    python -m shared.probe --data ~/photos --labels list.csv --model timm:vit_base_patch16_224
    python -m shared.probe --data ~/photos --model wheel:efficientnet-lite0 --save head.safetensors
    python -m shared.probe predict head.safetensors new.jpg more/

Photos lie in a folder per class, below train/ and test/ if they are split; or a list names file and target. Writes
results/probe/<name>.{log,json,csv}; a later run of the same name adds its rows. `predict` asks a saved probe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np

from shared import cli
from shared.errors import UserError
from shared.paths import atomic_write, require_writable
from shared.probe import rows
from shared.probe.rows import Row
from shared.record import aligned, require_plain
from shared.specs import COMMIT, name_apart
from shared.text import WIDTH, notice, say

if TYPE_CHECKING:
    from shared.device import Choice
    from shared.probe.images import Sets
    from shared.probe.probing import Model, Taken
    from shared.record import Record

QUESTION = "How well do frozen models' features tell these images apart?"
PROTOCOLS = ("all", "few-shot", "knn", "logistic")
SHOWN = 20  # classes in the log


@dataclass
class Machine:
    """Where it is computed."""

    device: str = "auto"
    """[machine] auto, cpu, cuda, cuda:N or mps"""
    dtype: str = "auto"
    """auto, fp16, bf16 or fp32"""
    batch_size: int = 0
    """images in the network at a time (default: 32 on a CPU, 256 on a GPU)"""


@dataclass
class Config(cli.Basic, cli.TrainTest, Machine):
    model: tuple[str, ...] = ()
    """[what] models: owner/name on the hub, a folder, timm:<name>, timm:<name>@<file>, wheel:<name>"""
    transform: Literal["own", "squash", "crop"] = "own"
    """what is done to an image first: own: as the model was published; squash: the whole image to a square; crop: the
    middle of it"""
    pool: Literal["own", "cls", "mean", "cls+mean"] = "own"
    """which numbers of a transformer: own: as is usual for it; the class token, the mean of the patches, or both"""
    compile: bool = False
    """compile the models: minutes first, then faster"""
    data: tuple[str, ...] = ()
    """[data] a folder or zip with a sub-folder per class, a list (CSV, Parquet), what `datasets` reads, owner/name on
    the hub, or cifar10, cifar100, pets, imagenette, digits"""
    labels: str = ""
    """list (CSV, Parquet) of file names below --data, and targets"""
    task: Literal["auto", "classes", "labels", "number"] = "auto"
    """what a list's targets are: a class an image, any number of labels an image, or numbers"""
    test_share: float = 0.2
    """share of the images to test on, where they come in one split"""
    test_images: int = 0
    """test on at most so many images, chosen by the seed (default: all)"""
    skip_bad: bool = False
    """leave out images that cannot be read, and name them"""
    duplicates: Literal["drop", "keep"] = "drop"
    """training images that are in the test set too, pixel by pixel"""
    near_duplicates: Literal["auto", "always", "never"] = "auto"
    """warn about training images that look nearly like a test image (default: where there are at most 100,000)"""
    protocol: tuple[str, ...] = ("all", "few-shot", "knn")
    """[protocol] all: ridge regression on all training images; few-shot: on a few images a class; knn: nearest
    neighbours; logistic: scikit-learn's, a sweep over penalties (slow)"""
    select: Literal["loo", "split"] = "loo"
    """what chooses lambda: leave-one-out, or a held-out split (validation where there is one, else a fifth of train)"""
    lambdas: tuple[float, ...] = ()
    """penalties of `all` to choose from (default: a factor of root 10 apart, around the features' scale)"""
    shots: tuple[int, ...] = (1, 5, 10)
    """images per class of few-shot"""
    draws: int = 5
    """random draws for each number of shots"""
    seed: int = 0
    """of all that is random: the cut into train and test, draws, resampling"""
    name: str = "probe"
    """[output] name of the log, the JSON, the CSV and the figures"""
    save: Path | None = None
    """file for the trained probe, for one model on one data set: head.safetensors"""
    figures: bool = True
    """draw the confusion matrix, the calibration and the most confident mistakes of each row"""


def probe(config: Config) -> Record | None:
    check(config)
    from shared.device import choose, rank_and_world
    from shared.probe import drawings, probing
    from shared.record import Record

    choice = choose(config.device, config.dtype)
    if rank_and_world()[0] > 0:  # under torchrun: this process computes its share of the features
        for _ in each(config, choice):
            pass
        return None
    with Record("probe", config.name, config=config, question=QUESTION, results=config.results) as record:
        record.seed = config.seed
        earlier = rows.Earlier.read(record.directory / f"{config.name}.json")
        new, figures = [], []
        told = None
        for model, sets, taken in each(config, choice):
            if sets is not told:
                tell_data(record, sets)
                told = sets
            tell_model(record, model, sets)
            found = probing.probe(model, sets, taken, config)
            row = rows.make(model, sets, taken, found, config)
            new.append(row)
            tell_details(record, row)
            if config.figures:
                figures += drawings.details(record, model, sets, found, row)
            if config.save:
                found.head.save(config.save)
                record.say(f"  the trained probe is in {config.save}; `python -m shared.probe predict` asks it")
        every = rows.merged(earlier.rows, new)
        tell_table(record, every, new)
        if config.figures or earlier.figures:
            figures = drawings.overall(record, every) + figures
        drawings.enter(record, figures + earlier.that_stay(record, replaced=new))
        record.results["rows"] = every
        rows.publish_csv(record, every)
        record.use_device(choice.name, " and ".join(sorted({row["dtype"] for row in new})), choice.reason)
        record.answer(answer(new))
        record.cannot_show(
            "whether fine-tuning would order the models in the same way. The interval is that of the test set's size "
            "alone: it knows nothing of images of another origin, nor of labels that are wrong."
        )
    return record


def each(config: Config, choice: Choice) -> Iterator[tuple[Model, Sets, Taken]]:
    """Every model on every data set, with its features. What cannot be opened is found out before any work."""
    from shared import features
    from shared.device import rank_and_world, require_compiler
    from shared.probe import images, probing

    if config.compile and choice.device.type == "cpu":
        require_compiler("--compile")
    settings = {"transform": config.transform, "pool": config.pool, "compile": config.compile}
    models = [probing.open_model(spec, choice, **settings) for spec in config.model]
    data = [images.open_sets(name, config) for name in config.data]
    name_apart(models, "name")
    name_apart(data, "name")
    first = rank_and_world()[0] == 0
    if first:
        count = sum(len(part) for sets in data for part in sets.parts.values())
        each_of = f"each of {len(models)} models" if len(models) > 1 else models[0].title
        what = f"features of {count:,} images with {each_of}, unless cached"
        notice(f"{what}, {choice}{features.yardstick(choice)}")
    for sets in data:
        for model in models:
            taken = probing.take_features(model, sets, config.batch_size)
            if first:
                if sets.keep is None:  # the images are decoded now
                    probing.find_copies(sets, drop=config.duplicates == "drop", near=config.near_duplicates)
                yield model, sets, taken


def can_write(option: str, path: Path) -> None:
    """UserError, before anybody has worked for it, where the file that an option names cannot be written."""
    try:
        require_writable(path)
    except UserError as error:
        raise UserError(f"{option} {str(error).rpartition('; ')[0]}; name another file") from error


def check(config: Config) -> None:
    """UserError for values that cannot mean anything, before torch is imported."""
    if not config.data or not config.model:
        missing = "--data" if not config.data else "--model"
        raise UserError(
            f"{missing} is missing; for a start: python -m shared.probe --data digits --model wheel:efficientnet-lite0"
        )
    require_plain(config.name, "--name")
    unknown = [name for name in config.protocol if name not in PROTOCOLS]
    if unknown or not config.protocol:
        raise UserError(f"--protocol {' '.join(unknown) or 'without a name'}: expected {', '.join(PROTOCOLS)}")
    if not 0 < config.test_share < 1:
        raise UserError(f"--test-share {config.test_share:g}: expected a share between 0 and 1, such as 0.2")
    for name, smallest in {"draws": 1, "seed": 0, "batch_size": 0, "test_images": 0}.items():
        if getattr(config, name) < smallest:
            raise UserError(f"--{name.replace('_', '-')} {getattr(config, name)}: expected {smallest} or more")
    if not all(0 < lambda_ < float("inf") for lambda_ in config.lambdas):
        raise UserError(f"--lambdas {' '.join(f'{v:g}' for v in config.lambdas)}: expected numbers above 0")
    if not config.shots or min(config.shots) < 1:
        raise UserError(f"--shots {' '.join(map(str, config.shots))}: expected whole numbers from 1")
    if config.labels and len(config.data) > 1:
        raise UserError("--labels names the targets of one data set; give one --data")
    if config.save:
        if len(config.model) > 1 or len(config.data) > 1 or "all" not in config.protocol:
            raise UserError(f"--save {config.save}: needs one model, one data set and the protocol all")
        can_write("--save", config.save)


# What is told --------------------------------------------------------------------------------------------------------


def tell_data(record: Record, sets: Sets) -> None:
    """Which images, what was assumed of them, and what to beware of."""
    record.section(f"images: {sets.title}")
    lines = []
    for part, its in sets.parts.items():
        record.use_images(its.images, sets.title, split=part)
        first, *more = its.images.assumed()
        first = first.removeprefix(f"{its.images.split}: ")
        if sets.task != "classes":
            first = f"{len(its):,} images; {its.in_words(sets.task, sets.names)}; {its.images.source}"
        lines += [f"{part}: {first}", *more]
    lines += sets.notes
    lines += [f"warning: {line}" for line in sets.warnings]
    record.say("\n".join(f"  {line}" for line in dict.fromkeys(lines)))


def tell_model(record: Record, model: Model, sets: Sets) -> None:
    """Which numbers of which model, before anything is said of how good they are."""
    record.section(f"{model.title} on {sets.title}")
    identity = model.encoder.identity
    record.say(f"  model: {identity.facts}; {identity.dim:,} numbers an image, in {model.choice.dtype_name}")
    # a model is itself here: whose stand-in it may be is a question of papers
    its = {"revision": identity.revision, "weights_sha256": identity.weights_sha256}
    record.use_model(model.title, preprocessing=identity.preprocessing, **its)


def tell_details(record: Record, row: Row) -> None:
    """How lambda was chosen, the few-shot protocols side by side, classes from worst to best, and what to beware of."""
    protocols = row["protocols"]
    if its := protocols.get("all"):
        chosen = f"lambda {its['lambda']:.4g} (the best of {len(its['lambdas'])} by {its['select']})"
        calibration = f", calibration error {100 * its['ece']:.1f} %" if "ece" in its else ""
        record.say(f"  ridge regression on {row['train']:,} images: {chosen}{calibration}")
    for _, columns, cells in rows.details(row):
        lines = aligned(columns, cells)
        if len(lines) > SHOWN + 1:  # the worst and the best; the page has all
            lines = [*lines[: SHOWN // 2 + 1], f"  ... {len(cells) - SHOWN} more ...", *lines[-(SHOWN // 2) :]]
        record.say("\n".join(lines))
    for line in row["warnings"][row["of_images"] :]:
        record.say(f"  warning: {line}")


def tell_table(record: Record, every: list[Row], new: list[Row]) -> None:
    """All rows of the result, a table a data set: those of earlier runs too, which a mark names."""
    now = {id(row) for row in new}
    for data, task in dict.fromkeys((row["data"], row["task"]) for row in every):
        own = [row for row in every if (row["data"], row["task"]) == (data, task)]
        columns, cells = rows.table(own)
        for row, line in zip(own, cells, strict=True):
            line[0] += "" if id(row) in now else " (earlier)"
        record.section(f"{data}: accuracy in %" if task == "classes" else data)
        record.say_table(f"{data}: all models", columns, cells, lines=in_parts(columns, cells))
    for row in every:
        where = f"{row['model']} on {row['data']}"
        for title, columns, cells in rows.details(row):
            record.table(f"{where}: {title}", columns, cells, group=row["file"])


def in_parts(columns: list[str], cells: list[list[str | None]]) -> list[str]:
    """A table on the screen: one, or where that is too wide, the other probes in one of their own below."""
    lines = aligned(columns, cells, width=2 * WIDTH)
    if max(map(len, lines)) <= WIDTH:
        return lines
    others = [0, *(i for i, name in enumerate(columns) if rows.is_another_probe(name))]
    first = [i for i in range(len(columns)) if i not in others[1:]]
    parts = [
        aligned([columns[i] for i in some], [[line[i] for i in some] for line in cells]) for some in (first, others)
    ]
    return [*parts[0], "", *parts[1]] if len(others) > 1 else parts[0]


def answer(new: list[Row]) -> str:
    """Which model is best on each data set, in words."""
    said = []
    for data in dict.fromkeys(row["data"] for row in new):
        own = [row for row in new if row["data"] == data]
        best = max(own, key=lambda row: rows.headline(row)[1])
        what, _, words = rows.headline(best)
        if what:
            of = f"the best of {len(own)} models is {best['model']}, with" if len(own) > 1 else f"{best['model']} has"
            said.append(f"on {data} {of} {words}")
    text = "; ".join(said) or "no accuracy was asked for"
    return f"{text[:1].upper()}{text[1:]}."


# A saved probe -------------------------------------------------------------------------------------------------------


@dataclass
class Predict(Machine):
    head: str = cli.positional()
    """file that `--save` has written"""
    images: tuple[str, ...] = cli.positional(())
    """images and folders of images"""
    top: int = 3
    """[what] classes to name for each image"""
    output: Path | None = None
    """[output] write a CSV there, instead of a table on the screen"""
    skip_bad: bool = False
    """[data] leave out images that cannot be read, and name them"""


def predict(config: Predict) -> None:
    """Ask a saved probe about images."""
    from shared import features
    from shared.data import ImageSet
    from shared.device import choose
    from shared.folders import FileRows
    from shared.probe import head as heads
    from shared.probe import images, probing
    from shared.sources import Source

    if not config.head or not config.images:
        raise UserError("name a saved probe and images: python -m shared.probe predict head.safetensors image.jpg")
    if config.top < 1:
        raise UserError(f"--top {config.top}: expected 1 or more")
    if config.output:
        can_write("--output", config.output)
    path = Path(config.head).expanduser()
    head = heads.load(path)
    about, files = head.about, heads.image_files(config.images)
    names = [str(file) for file in files]
    source = Source("all", "files", FileRows(files), np.zeros(len(files), np.int64), ["?"], names, ["?"])
    given = ImageSet("images", source)
    bad = images.unreadable(given)
    if bad and not config.skip_bad:
        raise UserError(
            f"{len(bad)} of {len(files)} images cannot be read, the first: {next(iter(bad.values()))}; take such out, "
            "or leave them out with --skip-bad"
        )
    for why in bad.values():
        notice(f"left out: {why}")
    readable = np.setdiff1d(np.arange(len(files)), list(bad))
    if not len(readable):
        raise UserError("no image that can be read")
    # the precision that the head was trained in, unless another one is asked for
    dtypes = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    choice = choose(config.device, dtypes.get(about.dtype, "auto") if config.dtype == "auto" else config.dtype)
    commit = about.revision if COMMIT.fullmatch(about.revision) else None
    model = probing.open_model(about.model, choice, transform=about.transform, pool=about.pool, revision=commit)
    heads.require_same_model(head, model.encoder.identity, path)
    batch = config.batch_size or "auto"
    taken = features.extract(model.encoder, given.subset(readable), model.choice, cache=False, batch_size=batch)
    columns, cells = heads.answers(head, head.scores(taken), config.top)
    lines = [[names[row], *own] for row, own in zip(readable, cells, strict=True)]
    if config.output:
        atomic_write(config.output, rows.write_csv(["file", *columns], lines))
        say(config.output)
    else:
        say("\n".join(aligned(["file", *columns], lines, width=sys.maxsize)))  # no log: a path stays whole


COMMANDS = {"predict": (predict, Predict)}


def main(arguments: list[str] | None = None) -> NoReturn:
    """The command line: `predict` first asks a saved probe, everything else probes."""
    cli.run_command(COMMANDS, probe, Config, arguments)


if __name__ == "__main__":
    main()
