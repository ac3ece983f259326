"""Few-shot accuracy of frozen models by a linear probe (ridge regression): by hand, then models x data sets x shots.

    python vit_part4_fewshot.py                               the article's seven models: network; a GPU: minutes
    python vit_part4_fewshot.py --config configs/vit/fewshot-offline.toml  two models out of wheels: CPU, minutes
    python vit_part4_fewshot.py --config configs/vit/fewshot-demo.toml     embedded digits, one model: a minute
    python vit_part4_fewshot.py --models wheel:efficientnet-lite0 --data digits --experiment mine       your own run
    torchrun --nproc-per-node 8 vit_part4_fewshot.py                  several GPUs share the images

Expected on the article's data: ViT-L/16 64.0 ± 3.3 % at 1-shot CIFAR-100 and 84.3 ± 0.3 % at 10-shot; 74.6 ± 3.0 % and
86.9 ± 0.2 % on Pets. A second run takes its features from the cache. Writes results/vit/<experiment>.{log,json}.

Which images are used: part4/split.py. How lambda is chosen and accuracy counted: part4/probes.py. Here: the rest.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared import cli, published
from shared.errors import UserError
from shared.record import Record, aligned
from shared.text import notice, printable
from shared.verdict import Measured

if TYPE_CHECKING:
    from papers.vit.part4.probes import Outcome
    from papers.vit.part4.split import Split
    from shared.device import Choice
    from shared.features import Deferred

QUESTION = (
    "How well does a linear probe (ridge regression) name images from a frozen model, given 1 to 10 images per class?"
)
ARTICLE_MODELS = {
    "google/vit-base-patch32-224-in21k": "ViT-B/32",
    "google/vit-base-patch16-224-in21k": "ViT-B/16",
    "google/vit-large-patch32-224-in21k": "ViT-L/32",
    "google/vit-large-patch16-224-in21k": "ViT-L/16",
    "google/vit-huge-patch14-224-in21k": "ViT-H/14",
    "google/bit-50": "BiT R50x1",
    "microsoft/resnet-50": "ResNet-50 (ImageNet-1k)",
}
ARTICLE_DATA = {"cifar100": "CIFAR-100", "pets": "Oxford-IIIT Pets"}
PRECISION_IMAGES = 4


@dataclass
class Config(cli.Common, cli.TrainTest):
    models: tuple[str, ...] = tuple(ARTICLE_MODELS)
    """[what] models whose features are probed: hub names or folders, timm:<name>, wheel:<name>"""
    weights: Literal["auto", "model", "ema"] = "auto"
    """of a checkpoint that holds both: the weights as trained (model), or their moving average (ema; auto takes it);
    for one model alone write `<name>#model` or `<name>#ema`"""
    data: tuple[str, ...] = tuple(ARTICLE_DATA)
    """[data] cifar100, pets, cifar10, imagenette, digits, <owner>/<name>[@revision][:configuration] on the hub, a
    folder or zip with a sub-folder per class, or what `datasets` reads: a parquet file, metadata.csv, a saved set"""
    protocol: Literal["article", "big_vision", "both"] = "both"
    """[protocol] article: features as they are, lambda chosen on other images; big_vision (the authors' code):
    standardised features, a bias, lambda 2^10"""
    shots: tuple[int, ...] = (1, 2, 5, 10)
    """images per class, article's protocol"""
    draws: int = 5
    """random draws for each number of shots, article's protocol"""
    lambdas: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
    """penalties of the ridge regression to choose from, article's protocol"""
    seed: int = 0
    """decides which images are test, selection and pool images, and which are drawn"""
    pool: int = 20
    """training images per class that draws are taken from"""
    selection: int = 5
    """other training images per class, to choose lambda"""
    test: int | None = None
    """test images per class (default: 10 for cifar100, 30 for pets, else up to 30)"""
    big_vision_shots: tuple[int, ...] = (1, 5, 10, 25)
    """images per class, big_vision's protocol"""
    big_vision_seeds: int = 3
    """seeds 0, 1, ... of big_vision's protocol"""
    precision_model: str = "google/vit-huge-patch14-224-in21k"
    """model whose features are also computed in float32, to see what the run's own precision changes; the last model of
    the run where this one is not in it"""
    device: str = "auto"
    """[machine] auto, cpu, cuda, cuda:N or mps"""
    dtype: str = "auto"
    """auto, fp16, bf16 or fp32"""
    compile: bool = False
    """compile the models: minutes first, then faster"""
    experiment: str = "fewshot"
    """[output] name of the log and the JSON"""
    figures: bool = True
    """[output] draw accuracy against the images per class"""


def main(config: Config) -> Record | None:
    check(config)
    from shared.device import rank_and_world

    if rank_and_world()[0] > 0:
        # under torchrun: this process computes its share of the features; the first one fits, prints and writes
        measure(config)
        return None
    with Record("vit", config.experiment, config=config, question=QUESTION, results=config.results) as record:
        record.seed = config.seed
        numbers = tiny_example(record)
        run = measure(config)
        numbers |= say_accuracy(record, run, another_protocol(config))
        numbers |= say_breeds(record, run)
        numbers |= say_precision(record, run)
        say_origin(record, run)
        say_lambda_and_errors(record, run)
        say_big_vision(record, run)
        if not any(d.spec in ARTICLE_DATA for d in run.data):
            # four images by hand say nothing about a run on other images: they would be its only `equal` numbers
            numbers = {id: value for id, value in numbers.items() if not id.startswith("tiny example/")}
        article = published.load("vit", "fewshot")
        record.judge_all(article, numbers, lambda number: why_not_run(number, run))
        record.print_verdicts()
        say_unpublished(record, run)
        if config.figures:
            draw_accuracy(record, article)
        record.answer(best_of(run))
        record.cannot_show(
            "no JFT-300M and no fine-tuning; the test sets are small, and all draws of a data set are scored on the "
            "same test images, so the SD over draws leaves out the standard error of the test set, given beside it. "
            "The checkpoints are released ones, not the paper's runs."
        )
    return record


# ---- the closed form, by hand


def tiny_example(record: Record) -> dict[str, str]:
    """Section 1: the W that brings the scores x W of every image closest to its targets; four images, for a pencil.

    Least squares with a penalty on large weights, |X W - Y|^2 + lambda |W|^2, has its minimum where
    (X'X + lambda I) W = X'Y. `shared.ridge` solves the same for the real features, by faster ways.
    """
    import numpy as np

    x = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 3.0]])  # [n, d]: one row of features per image
    labels, lambda_ = np.array([0, 0, 1, 1]), 1.0
    y = np.where(labels[:, None] == np.arange(2), 1.0, -1.0)  # [n, K]: +1 at the image's class, -1 elsewhere
    xtx = x.T @ x  # [d, d]: how the features vary together
    xty = x.T @ y  # [d, K]: how each feature goes with each class
    regular = xtx + lambda_ * np.eye(2)  # lambda on the diagonal also makes sure that there is an inverse
    w = np.linalg.inv(regular) @ xty  # [d, K]
    scores = np.array([1.0, 2.0]) @ w  # a new image's scores, one per class; the largest is the predicted class

    printed = {"X^T X": xtx, "X^T Y": xty, "W": w, "scores": scores}
    text = {name: str(np.round(matrix, 6).tolist()) for name, matrix in printed.items()}
    record.say("== 1. the few-shot closed form on a tiny example: 4 images, 2 features, 2 classes, lambda = 1 ==")
    record.say(f"  X (one row per image) = {x.tolist()}   classes {labels.tolist()}")
    record.say(f"  Y (targets in {{-1, 1}}) = {y.tolist()}")
    record.say(f"  X^T X = {text['X^T X']}   + lambda I = {regular.tolist()}")
    record.say(f"  X^T Y = {text['X^T Y']}")
    record.say(f"  W = (X^T X + I)^-1 X^T Y = {text['W']}")
    record.say(f"  new image x = [1, 2]: scores x W = {text['scores']} -> class {int(scores.argmax())}")
    return {f"tiny example/{name}": value for name, value in text.items()}


# ---- the same for real models and images


@dataclass
class Model:
    """One encoder of the run."""

    spec: str
    title: str  # the article's name for its models, else the model's own
    encoder: Deferred
    choice: Choice  # where it is really computed

    @property
    def stand_in(self) -> str | None:
        return self.encoder.identity.stand_in

    @property
    def starred(self) -> str:
        """The title; a star marks a stand-in."""
        return self.title + (" *" if self.stand_in else "")


@dataclass
class Run:
    """All that was measured. article, big_vision: what came out by (data set, model); empty where it was not asked for.

    precise, cosines: the model of the precision check, and one cosine per image.
    """

    models: list[Model]
    data: list[Split]
    choice: Choice
    notes: list[str]
    article: dict[tuple[str, str], Outcome]
    big_vision: dict[tuple[str, str], Outcome]
    precise: Model
    cosines: list[float]

    @property
    def width(self) -> int:
        """Of the tables' first column: the article's 24 characters, more where a name needs them."""
        return max(24, *(len(m.starred) + 1 for m in self.models))


def measure(config: Config) -> Run:
    """Choose the images, take the features, fit the closed form: every number that is told and judged."""
    import numpy as np

    from papers.vit.part4 import probes
    from shared import device, features, models, specs

    given = [specs.with_weights(text, config.weights) for text in config.models]
    names = [specs.parse_with_weights(text).text for text in given]
    specs.refuse_twice(names)
    choice = device.choose(config.device, config.dtype)
    if config.compile and choice.device.type == "cpu":
        device.require_compiler("--compile")
    # The images: the seed fixes which are test, selection and pool before any feature is known.
    data = [open_data(name, config) for name in config.data]
    encoders = []
    for spec in names:
        encoder = features.deferred(spec, choice, compile=config.compile)
        title = ARTICLE_MODELS.get(spec, encoder.identity.name)
        encoders.append(Model(spec, title, encoder, models.computed_in(encoder.identity, choice)))
    specs.name_apart(encoders, "spec")
    specs.name_apart(data, "spec")

    first_process = device.rank_and_world()[0] == 0
    if first_process:
        images = sum(len(d.used) + len(d.tested) for d in data)
        what = f"features of {images:,} images with each of {len(encoders)} models, unless cached"
        notice(f"{what}, {choice}{features.yardstick(choice, may_compile=not config.compile)}")
    notes: list[str] = []

    def note(line: str) -> None:
        if line not in notes:
            notes.append(line)
            notice(line)

    article, big_vision = {}, {}
    for m in encoders:
        for at, d in enumerate(data):
            # The features, float32 [images, dim]: for a ViT the pre-logits, for a ResNet the pooled numbers.
            later = sum(len(other.used) + len(other.tested) for other in data[at + 1 :])
            train = features.extract(m.encoder, d.used, m.choice, say=note, later=later + len(d.tested))
            test = features.extract(m.encoder, d.tested, m.choice, say=note, later=later)
            if not first_process:
                continue
            place = np.empty(len(d.train), dtype=np.int64)  # from a row of the training part to its row of features
            place[d.used_rows] = np.arange(len(train))
            # The closed form for every draw and every lambda; lambda is chosen on the selection images.
            if config.protocol != "big_vision":
                pool, selection = train[place[d.pool.ravel()]], train[place[d.selection.ravel()]]
                where = str(m.choice.device)
                article[d.title, m.title] = probes.article(d, pool, selection, test, config.lambdas, where)
            if config.protocol != "article":
                seeds, shots = [train[place[rows]] for rows in d.authors], tuple(sorted(config.big_vision_shots))
                big_vision[d.title, m.title] = probes.big_vision(d, seeds, test, shots)

    # The precision: a few test images again in float32 on the CPU.
    asked_for = specs.parse_with_weights(specs.with_weights(config.precision_model, config.weights)).text
    precise = next((m for m in encoders if m.spec == asked_for), encoders[-1])
    few = data[0].tested.subset(range(min(PRECISION_IMAGES, len(data[0].tested))))
    cpu = device.choose("cpu", "fp32")
    a = features.extract(precise.encoder, few, precise.choice, say=note).astype(np.float64)
    b = features.extract(features.deferred(precise.spec, cpu), few, cpu, say=note).astype(np.float64)
    cosines = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return Run(encoders, data, choice, notes, article, big_vision, precise, cosines.tolist())


def open_data(name: str, config: Config) -> Split:
    """One data set, and which of its images have which role. UserError where it has too few."""
    from papers.vit.part4 import split as splits
    from shared.data import load_two, tell_assumed
    from shared.sources import known_name

    name = known_name(name)
    authors = {}
    if config.protocol != "article":
        authors = {"authors_shots": max(config.big_vision_shots), "authors_seeds": config.big_vision_seeds}
    # big_vision draws from all training images, and its lambda is given: it needs neither a pool nor selection images
    article = config.protocol != "big_vision"
    sizes = splits.Sizes(config.pool if article else 0, config.selection if article else 0, config.test)
    train, test = load_two(name, train=config.split, test=config.test_split, **config.where)
    if test is train:
        train.notes.append("one split only: the test images are of it too, and are in no draw")
    tell_assumed(train, test)
    split = splits.make(train, test, sizes, seed=config.seed, **authors)
    split.draws = splits.draws(split, tuple(sorted(config.shots)) if article else (), config.draws, seed=config.seed)
    split.spec, split.title = name, ARTICLE_DATA.get(name) or (Path(name).name if Path(name).is_absolute() else name)
    return split


# ---- the log, section by section; a section that measures what the article prints returns it by the published ids


def say_table_of(
    record: Record, run: Run, d: Split, title: str, protocol: str, outcomes: dict[tuple[str, str], Outcome]
) -> None:
    """A data set's table in the article's format, and under it what its stars and ties mean."""
    rows = [(m, outcomes[d.title, m.title]) for m in run.models]
    shots = list(rows[0][1].correct)
    lines = [
        f"-- {title} ({d.classes} classes, chance = {100 / d.classes:.1f}%) --",
        f"  {'model':<{run.width}}{'dim':>6}{'lambda':>8}" + "".join(f"{f'{k}-shot':>14}" for k in shots),
    ]
    cells = [[m.starred, m.encoder.identity.dim, f"{o.lambda_:g}", *map(o.cell, shots)] for m, o in rows]
    lines += [
        f"  {name:<{run.width}}{dim:>6}{lambda_:>8}" + "".join(f"{cell:>14}" for cell in accuracies)
        for name, dim, lambda_, *accuracies in cells
    ]
    record.say_table(
        f"{title}: test accuracy in % (mean ± SD over draws), {protocol}",
        ["model", "dim", "lambda", *(f"{k}-shot" for k in shots)],
        cells,
        lines=lines,
        exact=True,
        note=f"{d.classes} classes: chance is {100 / d.classes:.1f} %. * a stand-in",
    )
    for m, o in rows:
        if m.stand_in:
            record.say(f"  * stand-in: {m.title} is {m.stand_in}")
        if o.tied:
            scored = o.images * sum(map(len, o.correct.values()))
            words = "scored images have their largest score at several classes; the first of them was taken"
            record.say(f"  {m.starred}: {o.tied:,} of {scored:,} {words}")
    if d.stand_in:
        record.say(f"  stand-in images: {d.title}, {d.stand_in}")


def say_accuracy(record: Record, run: Run, another_protocol: str | None) -> dict[str, Measured]:
    """The article's tables (big_vision's where only that was run). The JSON gets every count and every row.

    another_protocol: why the accuracies are not comparable with the article's, or None.
    """
    numbers, kept = {}, record.results.setdefault("data", {})
    for d in run.data:
        record.say()
        title = d.title if run.article else f"{d.title}, big_vision's protocol"
        protocol = "the article's protocol" if run.article else "big_vision's protocol"
        say_table_of(record, run, d, title, protocol, run.article or run.big_vision)
        outcomes = {}
        for m in run.models:
            o, authors = run.article.get((d.title, m.title)), run.big_vision.get((d.title, m.title))
            outcomes[m.title] = {
                "spec": m.spec,
                "dim": m.encoder.identity.dim,
                "stand_in": m.stand_in,
                "article": o and o.as_json(),
                "big_vision": authors and authors.as_json(),
            }
            if o and m.spec in ARTICLE_MODELS and d.spec in ARTICLE_DATA:
                cell, stand_in = f"{ARTICLE_DATA[d.spec]}/{m.title}", d.stand_in or another_protocol
                numbers[f"{cell}/lambda"] = Measured(o.lambda_, stand_in=stand_in)
                for k, draws in o.correct.items():
                    mean, std, n = o.mean(k), o.std(k), len(draws)
                    numbers[f"{cell}/{k}-shot"] = Measured(mean, std, n, images=o.images, stand_in=stand_in)
        kept[d.title] = {"classes": d.classes, "class_names": d.test.class_names, "spec": d.spec}
        kept[d.title] |= {"rows": d.rows_as_text(), "left_out": d.left_out, "outcomes": outcomes}
    return numbers


def say_breeds(record: Record, run: Run) -> dict[str, str]:
    """Pets' labels that the ImageNet-1k models were trained with: a reason for their good results there."""
    from shared.models.labels import imagenet

    def letters(name: str) -> str:
        return "".join(filter(str.isalpha, name))

    pets = next((d for d in run.data if d.spec == "pets"), None)
    if pets is None:
        return {}
    breeds = pets.test.class_names
    synonyms = sorted({name.strip().casefold() for names in imagenet()[1] for name in names.split(",")})
    # ImageNet says "Persian cat" where Pets says "Persian"
    same = [breed for breed in breeds if any(breed + kind in synonyms for kind in ("", " cat", " dog"))]
    names, count = ", ".join(same), str(len(same))
    record.say(f"\n  {count} of {len(breeds)} breeds have an ImageNet-1k class of the same name: {names}", exact=True)
    # others stand inside a class's name, but for hyphens and blanks: "german short-haired pointer"
    inside = {breed: [name for name in synonyms if letters(breed) in letters(name)] for breed in breeds}
    longer = {breed: names[0] for breed, names in inside.items() if names and breed not in same}
    record.results["breeds"] = {"same_name": same, "longer_name": longer}
    return {"breeds/with an ImageNet-1k class of the same name": count, "breeds/the names": names}


def say_precision(record: Record, run: Run) -> dict[str, float]:
    """Section 4: whether the run's own precision changes the features."""
    m, data, dtype = run.precise, run.data[0].title, run.precise.choice.dtype_name
    cpu = m.choice.device.type == "cpu"
    record.section(
        f"4. does {dtype} change the features? {m.starred} on {len(run.cosines)} {data} test pictures, {dtype} on the "
        f"{'CPU' if cpu else 'GPU'} against float32 on the CPU",
        exact=True,
    )
    if cpu and dtype == "float32":
        record.say("  float32 on the CPU is this run's own precision: nothing to compare")
    else:
        values = ", ".join(f"{cosine:.6f}" for cosine in run.cosines)
        record.say(f"  cosine similarity {dtype} vs float32, per picture: {values}")
    record.results["precision"] = {"model": m.spec, "data": data, "dtype": dtype, "cosine": run.cosines}
    if ARTICLE_MODELS.get(m.spec) != "ViT-H/14" or dtype != "float16":
        return {}
    return {f"float16/ViT-H/14/cosine of image {i}": cosine for i, cosine in enumerate(run.cosines, start=1)}


def say_origin(record: Record, run: Run) -> None:
    """Images, models and device: what the numbers above came from."""
    record.section("images, models, device")
    for d in run.data:
        roles = {"pool": d.pool, "selection": d.selection, "test images": d.test_rows}
        roles = {role: rows for role, rows in roles.items() if rows.size}
        parts = " + ".join(f"{rows.size:,} {role}" for role, rows in roles.items())
        parts += f" ({' + '.join(str(rows.shape[1]) for rows in roles.values())} per class)"
        if d.authors:
            further = len(d.used) - d.pool.size - d.selection.size
            parts += f", {further:,} further training images for big_vision"
        record.say(f"  {d.title}: {parts}, from {d.train.source}")
        for line in dict.fromkeys([*d.train.assumed(), *d.test.assumed()]):
            record.say(f"    {line}")
        if d.stand_in:
            record.say(f"    stand-in: {d.stand_in}")
        count = len(d.left_out)
        why = f": {'; '.join(d.left_out)}" if count else " (no exact duplicate of another one in use)"
        record.say(f"    left out by content: {count} training image{'s' if count != 1 else ''}{why}")
        record.use_images(d.used, d.title, split="train", of=d.train)
        record.use_images(d.tested, d.title, split="test", of=d.test)
    longer = record.results.get("breeds", {}).get("longer_name")
    if longer:
        names = ", ".join(f"{breed} ({name})" for breed, name in longer.items())
        record.say(f"  breeds that ImageNet-1k has under a longer name: {names}")
    for m in run.models:
        record.use_identity(m.encoder.identity, m.title)
        preprocessing = m.encoder.identity.preprocessing
        record.say(f"  {m.starred}: {printable(m.spec)} in {m.choice.dtype_name}, images by: {preprocessing}")
        if m.encoder.identity.transform_from:
            record.say(f"    {m.encoder.identity.transform_from}")
    dtypes = " and ".join(sorted({m.choice.dtype_name for m in run.models}))
    # a model's own reason for its precision continues the run's
    reasons = dict.fromkeys(m.choice.reason.removeprefix(run.choice.reason) for m in run.models)
    reason = run.choice.reason + "".join(reasons)
    record.use_device(run.choice.name, dtypes, reason)
    record.say(f"  computed on {run.choice.name} in {dtypes} ({reason})", *(f"  {n}" for n in run.notes))
    record.results["notes"] = run.notes


def say_lambda_and_errors(record: Record, run: Run) -> None:
    """Every lambda's score, and the SD over draws beside the standard error of the test set."""

    def error(o: Outcome, k: int) -> str:
        std = o.std(k)
        return f"{'-' if std is None else f'{std:.1f}'} / {o.binomial(k):.1f}"

    def chosen(o: Outcome, lambda_: float) -> str:
        return ("[{:.2f}]" if lambda_ == o.lambda_ else "{:.2f} ").format(o.selection[lambda_])

    for d in run.data if run.article else ():
        rows = [(m.starred, run.article[d.title, m.title]) for m in run.models]
        lambdas, shots = sorted(rows[0][1].selection), list(d.draws)
        record.section(f"{d.title}: mean accuracy on the selection images, by lambda (the chosen one in brackets)")
        cells = [[name, *(chosen(o, lambda_) for lambda_ in lambdas)] for name, o in rows]
        record.say("\n".join(aligned(["model", *(f"{lambda_:g}" for lambda_ in lambdas)], cells)))
        title = f"{d.title}: SD over draws / standard error of the"
        record.section(f"{title} {len(d.tested):,} test images, in points")
        record.say_table(
            f"{title} test set",
            ["model", *(f"{k}-shot" for k in shots)],
            [[name, *(error(o, k) for k in shots)] for name, o in rows],
            note="Points. All draws are scored on the same test images; the second number is not in the first.",
            group=f"errors {d.title}",
        )


def say_big_vision(record: Record, run: Run) -> None:
    """The authors' protocol, and both side by side at the shots that they share."""
    for d in run.data if run.big_vision else ():
        seeds = len(d.authors)
        if run.article:  # else it was the main table
            how = f"features standardised, a constant one of 100 added, {seeds} seeds, few shots within more"
            record.section(f"{d.title}: big_vision's protocol ({how})")
            say_table_of(record, run, d, d.title, "big_vision's protocol", run.big_vision)
        # where a class has few training images, the seeds draw mostly the same ones
        shares = {k: d.shared_by_seeds(k) for k in run.big_vision[d.title, run.models[0].title].correct}
        record.results["data"][d.title]["coinciding_shots"] = [k for k, share in shares.items() if share == 1]
        for k, share in shares.items():
            if share == 1:
                record.say(
                    f"  at {k}-shot the {seeds} seeds draw the same images (a class has only {k} training images): "
                    "one fit, not several; its ± 0.0 says nothing about spread"
                )
            elif share > 0.5:
                record.say(
                    f"  at {k}-shot any two seeds share {share:.0%} of their images or more (few training images per "
                    "class): the ± says little about spread"
                )
        rows = []
        for m in run.models if run.article else ():
            article, big_vision = run.article[d.title, m.title], run.big_vision[d.title, m.title]
            for k in sorted(article.correct.keys() & big_vision.correct):
                difference = f"{big_vision.mean(k) - article.mean(k):+.1f}"
                rows.append([m.starred, str(k), article.cell(k), big_vision.cell(k), difference])
        if rows:
            title, columns = f"{d.title}: the two protocols side by side", ("article", "big_vision", "difference")
            record.section(f"{title} (same test images)")
            record.say_table(title, ["model", "k", *columns], rows, group="protocols")


def draw_accuracy(record: Record, article: published.Published) -> None:
    """A figure per data set: accuracy against the images per class, from the numbers that go into the JSON."""
    from papers.vit.part4 import accuracy
    from shared.plots import publish

    for title, kept in record.results["data"].items():
        figure, caption = accuracy.draw(title, kept["outcomes"], kept["classes"], article)
        name = f"{record.experiment}-{'-'.join(re.findall('[a-z0-9]+', title.lower()))}"
        publish(record, figure, name, caption, data=f"results/vit/{record.experiment}.json")


def best_of(run: Run) -> str:
    """The best model of each data set, with few and with many images per class."""
    outcomes, said = run.article or run.big_vision, []
    for d in run.data:
        few, *_, many = sorted(outcomes[d.title, run.models[0].title].correct) * 2
        best = max(run.models, key=lambda m: outcomes[d.title, m.title].mean(many))
        o = outcomes[d.title, best.title]
        said.append(
            f"on {d.title} {best.starred} is the best of {len(run.models)}, with {o.cell(few)} % right from {few} "
            f"image{'s' * (few > 1)} per class and {o.cell(many)} % from {many} (chance {100 / d.classes:.1f} %)"
        )
    text = "; ".join(said) + "."
    return text[:1].upper() + text[1:] + " * a stand-in." * any(m.stand_in for m in run.models)


def why_not_run(number: published.Number, run: Run) -> str:
    """Why this run has no measurement of a published number."""
    first, _, rest = number.id.partition("/")
    if first == "tiny example":
        return "judged in runs on the article's images"
    if first == "breeds":
        return "Pets is not in this run"
    if first == "float16":
        return "ViT-H/14 in float16 is not in this run"
    name, _, column = rest.rpartition("/")
    spec = next(spec for spec, title in ARTICLE_MODELS.items() if title == name)
    if spec not in {m.spec for m in run.models}:
        return f"{spec} is not among this run's models"
    if first not in {ARTICLE_DATA.get(d.spec) for d in run.data}:
        return f"{first}'s images are not in this run"
    return f"{column} is not in this run" if run.article else "the article's protocol was not run"


def say_unpublished(record: Record, run: Run) -> None:
    """Accuracies without a published counterpart: named, so that nobody takes them for a reproduction."""
    cells = [(d, m) for d in run.data for m in run.models if run.article]
    cells = [(d, m) for d, m in cells if m.spec not in ARTICLE_MODELS or d.spec not in ARTICLE_DATA]
    if cells:
        record.section("measured here: no published number to compare with")
    for d, m in cells:
        why = f"stand-in: {m.stand_in}" if m.stand_in else "not a model and data set of the article"
        o = run.article[d.title, m.title]
        accuracies = ", ".join(f"{k}-shot {o.cell(k)}" for k in o.correct)
        record.say(f"  {d.title}/{m.title}: {accuracies}: not comparable ({why})")


# ---- the options


def another_protocol(config: Config) -> str | None:
    """The options that make lambda, and so the accuracies, another quantity than the article's; None where none does.

    Fewer draws, another seed or test size measure the same quantity; the tolerance knows them.
    """
    changed = [f"--{o}" for o in ("shots", "lambdas") if set(getattr(config, o)) != set(getattr(Config, o))]
    changed += [f"--{o}" for o in ("pool", "selection") if getattr(config, o) != getattr(Config, o)]
    return f"not the article's protocol: {', '.join(changed)} differ from its values" if changed else None


def check(config: Config) -> None:
    """UserError for values that cannot mean anything, before torch is imported."""
    smallest = dict.fromkeys(("draws", "pool", "selection", "test", "big_vision_seeds"), 1) | {"seed": 0}
    for name, value in vars(config).items():
        given = f"--{name.replace('_', '-')} {value}"
        if name in smallest and value is not None and value < smallest[name]:
            raise UserError(f"{given}: expected {smallest[name]} or more")
        if isinstance(value, tuple):
            if not value or len(set(value)) < len(value):
                raise UserError(
                    f"{given}: {'one value stands twice' if value else 'no value'}; name one or more, each once"
                )
            if name == "lambdas" and not all(0 < lambda_ < float("inf") for lambda_ in value):
                raise UserError(f"{given}: expected numbers above 0")
            if name.endswith("shots") and min(value) < 1:
                raise UserError(f"{given}: expected whole numbers from 1")
    if config.protocol != "big_vision" and max(config.shots) > config.pool:
        raise UserError(f"--shots {max(config.shots)}: the pool has {config.pool} images per class; raise --pool")


if __name__ == "__main__":
    cli.run(main, Config)
