"""Top-1 and top-5 over all 1,000 ImageNet classes on Imagenette, and what one such number hides.

    python vit_part4_top5.py                                               network; a GPU: minutes, a laptop: an hour
    python vit_part4_top5.py --config configs/vit/top5-offline.toml        EfficientNet-Lite0 from its wheel: minutes
    python vit_part4_top5.py --models timm:resnet18.a1_in1k --gallery all  any ImageNet-1k classifier

Expected on the 160-pixel images: ViT-B/16 83.13 % and 96.66 %, ViT-L/16 84.92 % and 97.63 %, ResNet-50 79.36 % and
95.95 %. The article's command list speaks of four classifiers, its text and its log have three; the fourth here is
google/bit-50, for which nothing is printed. Writes results/vit/top5.{log,json} (or the name in the config).

`measure` runs the classifiers, `tell` says what they gave in the order of the article's log, `measured_numbers` is what
is judged. How an image is scored stands in part4/scoring.py, how it is drawn in shared/gallery.py.
"""

from __future__ import annotations

import functools
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.vit.part4 import scoring
from papers.vit.part4.scoring import Counts, Scores
from shared import cli, gallery, specs
from shared.errors import UserError
from shared.published import Published, load
from shared.record import Record, aligned
from shared.text import WIDTH, notice
from shared.verdict import Measured, wilson

if TYPE_CHECKING:
    from shared.data import ImageSet
    from shared.device import Choice
    from shared.models import Identity

IMAGENETTE = ("imagenette", "frgfm/imagenette")  # the data set's two spellings
PRINTED_NAMES = {
    "google/vit-base-patch16-224": "ViT-B/16",
    "google/vit-large-patch16-224": "ViT-L/16",
    "microsoft/resnet-50": "ResNet-50",
    "google/bit-50": "BiT R50x1",
    "wheel:efficientnet-lite0": "EfficientNet-Lite0",
}
DRAWN = 8  # images that the article draws
DRAWN_FROM = "ViT-L/16"  # whose eight images the article prints
SHEET = 56  # images on a contact sheet at most
COLOURS = "Green: the label. Red: a wrong first guess. Bars and percentages: softmax over all classes of the model."
FOUR_OR_THREE = (
    "The article's command list speaks of 4 classifiers; its text and its log have 3, and nothing is printed for a "
    "fourth. google/bit-50 is the fourth in the default run."
)
NO_DRAW = (
    "random.Random(3).sample cannot have drawn the eight printed images from the list sorted by file name: of its 499 "
    "places it draws none closer together than 303 and 309, but n03028079_9481 and n03028079_9560 stand two places "
    "apart even in the list of all 3,925 images; numpy.random.default_rng(3).choice can have drawn them (it draws "
    "places 42, 88, 89, 117, 290, 398, 399, 432)"
)


@dataclass
class Config(cli.Common, cli.Images):
    models: tuple[str, ...] = (
        "google/vit-base-patch16-224",
        "google/vit-large-patch16-224",
        "microsoft/resnet-50",
        "google/bit-50",
    )
    """[what] classifiers: hub names or folders, timm:<name>, wheel:<name>"""
    weights: Literal["auto", "model", "ema"] = "auto"
    """of a checkpoint that holds both: the weights as trained (model), or their moving average (ema; auto takes it);
    for one model alone write `<name>#model` or `<name>#ema`"""
    data: str = "imagenette"
    """[data] imagenette, or images by class: a folder, zip or table of your own,
    <owner>/<name>[@revision][:configuration]"""
    split: str = ""
    """split to score (default: validation of imagenette; else test, validation or the only one)"""
    ways: tuple[Literal["own", "squash", "crop"], ...] = ("own", "squash", "crop")
    """[protocol] how an image becomes the network's input: own (the model's recipe), squash, crop; the first one gives
    the main result"""
    gallery: Literal["eight", "all", "none"] = "eight"
    """[output] eight: the drawn images with five guesses; all: also a sheet per class of what stayed wrong"""
    gallery_of: str = "google/vit-large-patch16-224"
    """whose images are drawn and shown; the first model where this one is not run"""
    seed: int = 3
    """[protocol] decides which images are drawn"""
    stands_for: str = ""
    """[what] the article's model that the first model stands in for: its lines become `not comparable`"""
    device: str = "auto"
    """[machine] auto, cpu, cuda, cuda:1 or mps"""
    dtype: str = "auto"
    """auto, float32, float16 or bfloat16"""
    cache: bool = True
    """keep logits on disk for the next run"""
    experiment: str = "top5"
    """[output] name of the log and the JSON in the results folder"""


@dataclass(frozen=True)
class Way:
    """One classifier's scores on one image set, the images entering the network in one way."""

    name: str
    preprocessing: str
    images: ImageSet
    scores: Scores
    counts: Counts


@dataclass
class Classifier:
    """A classifier and what was measured on it. `subset`: the data set's classes as indices of its label list."""

    spec: str
    name: str
    identity: Identity
    subset: np.ndarray
    choice: Choice
    ways: list[Way] = field(default_factory=list)
    found: str = "by wnid"  # how the data set's classes were found in its list

    @property
    def headline(self) -> Way:
        """The first way on the first image set."""
        return self.ways[0]

    @property
    def ids(self) -> tuple[str, ...]:
        """What tells its classes apart: wnids, or the labels of a list of its own."""
        return self.identity.label_wnids or self.identity.label_names

    @functools.cached_property
    def labels(self) -> list[str]:
        """The names of its classes as the article prints them."""
        return [scoring.first_name(name) for name in self.identity.label_names]

    def answer(self, i: int) -> tuple[str, str, int]:
        """For image `i` of the headline: its label, the top-1, and the label's rank."""
        scores = self.headline.scores
        return self.labels[scores.label[i]], self.labels[scores.top[i, 0]], int(scores.rank[i])

    @functools.cached_property
    def classes(self) -> list[dict]:
        """The headline class by class, see `scoring.by_class`."""
        return scoring.by_class(self.headline.scores, self.subset, self.identity.label_names, self.ids)


def main(config: Config) -> Record | None:
    from shared.device import rank_and_world

    if rank_and_world()[0] != 0:  # under torchrun the processes share the images, and the first one writes
        measure(config)
        return None
    question = (
        "How many top-1 errors on ImageNet classes have the label among the five best guesses, and what else does one "
        "accuracy hide?"
    )
    with Record("vit", config.experiment, config=config, results=config.results, question=question) as record:
        record.seed = config.seed
        tell(record, config, *measure(config))
    return record


def measure(config: Config) -> tuple[list[Classifier], list[ImageSet], list[str]]:
    """The classifiers with their scores, the image sets, and what the extraction reported.

    UserError for a model or data set that cannot be found, or that is not over ImageNet-1k's classes.
    """
    from shared import features, models  # here, so that --help need not load torch
    from shared.data import load_images, load_test, tell_assumed
    from shared.device import choose

    if not config.models or not config.ways:
        raise UserError("models and ways: at least one of each is needed; leave the option out for the defaults")
    imagenette = config.data in IMAGENETTE
    sets = [load_test(config.data, config.split, **config.where)]
    if (
        imagenette and sets[0].split == "validation"
    ):  # most of its images are ImageNet training images: add 500 that are not
        sets.append(load_images(config.data, "ilsvrc_val", root=config.data_root))
    choice = choose(config.device, config.dtype)
    specs.refuse_twice([specs.with_weights(text, config.weights) for text in config.models])
    classifiers: list[Classifier] = []
    for text in config.models:  # all of them before the first is run: a wrong one is refused at once
        spec = specs.parse(specs.with_weights(text, config.weights)).text
        identity = models.describe(spec, transform=config.ways[0], head=True)
        subset, found = classes_of(spec, identity, sets[0])
        name = PRINTED_NAMES.get(spec, identity.name)
        if name in [c.name for c in classifiers]:  # results are kept by name
            name = spec
        classifiers.append(Classifier(spec, name, identity, subset, models.computed_in(identity, choice), found=found))
    tell_assumed(*sets)
    total = sum(map(len, sets))
    passes = len(classifiers) * len(config.ways) * total
    cost = f"up to {passes:,} forward passes, less what is cached, {choice}{features.yardstick(choice)}"
    what = f"{len(classifiers)} classifier(s), {len(config.ways)} way(s) to enter the network, {total:,} images"
    notice(f"{what}: {cost}")  # for the person who waits, not for the log
    # ImageNet's numbers of the nouns leave no doubt; anything else is said
    of_data = f"classes of {sets[0].name} were found in the list of labels"
    notes = [f"{c.name}: {of_data} {c.found}" for c in classifiers if c.found != "by wnid"]
    for classifier in classifiers:
        run(classifier, config, sets, notes)
    return classifiers, sets, notes


def classes_of(spec: str, identity: Identity, images: ImageSet) -> scoring.Mapping:
    """Where the images' classes stand in the model's list of labels. UserError where that is not certain."""
    return scoring.map_classes(spec, identity.label_wnids, identity.label_names, images.name, images.class_ids)


def run(classifier: Classifier, config: Config, sets: Sequence[ImageSet], notes: list[str]) -> None:
    """Fill `classifier.ways`: way by way, set by set. Ways with one preprocessing are computed once."""
    from shared import features, models
    from shared.features import SHARD

    chunk = 8 * SHARD  # images whose logits are in memory at once (8 MB); whole shards, so that the cache finds them
    identities = {way: models.describe(classifier.spec, transform=way, head=True) for way in config.ways}
    left = {(identity.preprocessing, which): len(s) for identity in identities.values() for which, s in enumerate(sets)}
    done: dict[tuple[str, int], Scores] = {}
    for way, identity in identities.items():
        load = functools.partial(models.load_classifier, classifier.spec, classifier.choice, transform=way)
        source = features.Deferred(identity, load)  # the weights are read once for all sets, if at all
        for which, images in enumerate(sets):
            key = identity.preprocessing, which
            if key not in done:
                subset = classes_of(classifier.spec, identity, images).columns
                parts = []
                for start in range(0, len(images), chunk):
                    part = images.subset(slice(start, start + chunk))
                    left[key] -= len(part)
                    how = {"cache": config.cache, "say": notes.append, "later": sum(left.values())}
                    logits = features.extract(source, part, classifier.choice, **how)
                    parts.append(scoring.score(logits, subset[part.labels], subset))
                if not parts:
                    raise UserError(f"data {images.name}: no image in split {images.split}; name another split")
                done[key] = Scores.join(parts)
            scores = done[key]
            classifier.ways.append(Way(way, identity.preprocessing, images, scores, scoring.count(scores)))


def tell(record: Record, config: Config, classifiers: list[Classifier], sets: list[ImageSet], notes: list[str]) -> None:
    """Everything from the first line to the last: the article's log first, then what the suite adds."""
    published = load("vit", "top5")
    images, imagenette = sets[0], sets[0].name in IMAGENETTE
    shown = next((c for c in classifiers if c.spec == config.gallery_of), classifiers[0])
    tell_origin(record, classifiers, sets)

    title = "Imagenette" if imagenette else Path(images.name).name
    title += "" if images.split == "all" else f" {images.split}"
    record.section(
        f"top-1 and top-5 accuracy over all {list_of(classifiers)} classes, on the {len(images):,} {title} pictures",
        exact=True,
    )
    for c in classifiers:
        n = c.headline.counts
        record.say(
            f"  {c.name:12} top-1 {n.top1:.2f}%   top-5 {n.top5:.2f}%   "
            f"top-1 wrong on {n.wrong} pictures, of which {n.forgiven} have the label in the top 5",
            exact=True,
        )
    # "Are those real errors? Here are eight of them": drawn from the images that top-5 forgives
    candidates = np.flatnonzero(shown.headline.scores.forgiven)
    drawn = scoring.draw(images.names, candidates, DRAWN, config.seed)
    record.say("\n" + "\n".join(drawn_lines(shown, drawn, len(candidates), config.seed)), exact=True)
    if config.gallery != "none" and drawn:
        title = f"{shown.name}: top-1 is not the label, but the top five contain it"
        note = f"{len(drawn)} of {len(candidates):,} such images (seed {config.seed})"
        path = record.figures_dir / f"{config.experiment}_drawn.png"
        gallery.draw_cards(path, title, f"{note}. {COLOURS}", [card(shown, i) for i in drawn])
        record.figure(path, f"{title}; {note}", kind="gallery")

    tell_counts(record, classifiers, notes, imagenette)
    tell_seen(record, classifiers)
    tell_classes(record, classifiers)
    tell_ways(record, classifiers)
    if imagenette:
        tell_article_images(record, config, shown, published)
        for c in classifiers:
            if c.name == DRAWN_FROM:
                tell_article_draw(record, c, config.seed, published)
    if config.gallery == "all":
        draw_sheets(record, config, shown)
    if imagenette and images.split == "validation":  # the images that the article's numbers are of
        numbers = measured_numbers(classifiers, config.stands_for, published)
    else:
        numbers = {}
    record.judge_all(published, numbers, why_not_run="another data set")
    record.results["models"] = {c.name: results_of(c) for c in classifiers}
    files = [images.names[i] for i in drawn]
    record.results["drawn"] = {"model": shown.name, "candidates": len(candidates), "files": files}
    record.print_verdicts()
    record.answer(in_words(classifiers))
    record.cannot_show(
        "how good a classifier is. Ten easy classes stand for ImageNet's 1,000, the images are stored small, and "
        "most of them are training images. It is a lesson about the metric, not a benchmark."
    )


def in_words(classifiers: Sequence[Classifier]) -> str:
    """Of each classifier: the errors that the five best guesses forgive, and how far one accuracy is from its parts."""
    said = []
    for c in classifiers:
        n = c.headline.counts
        parts = {part: own for part, own in by_origin(c.headline).items() if part in (scoring.NOT_SEEN, scoring.SEEN)}
        share = f" ({100 * n.forgiven / n.wrong:.0f} %)" if n.wrong else ""
        text = f"{c.name} is wrong on {n.wrong:,} of {n.images:,} images, and {n.forgiven:,} of these errors{share} "
        text += f"have the label among the five best guesses. One accuracy of {n.top1:.1f} % hides"
        hidden = [f"{own.top1:.1f} % on {own.images:,} images of {part}" for part, own in parts.items() if own.images]
        hidden += [
            f"{100 * c.headline.scores.right_of_subset.mean():.1f} % among the data set's {len(c.subset)} classes"
        ]
        by_class = sorted((row["top-1"] / row["images"], row["class"]) for row in c.classes if row["images"])
        (worst, of_worst), (best, of_best) = by_class[0], by_class[-1]
        hidden.append(f"from {100 * worst:.1f} % ({of_worst}) to {100 * best:.1f} % ({of_best}) by class")
        said.append(f"{text}: {'; '.join(hidden)}.")
    return " ".join(said)


def list_of(classifiers: list[Classifier]) -> str:
    """Among how many classes they choose, and of which list."""
    sizes = "/".join(str(n) for n in dict.fromkeys(c.identity.dim for c in classifiers))
    return f"{sizes} ImageNet" if all(c.identity.label_wnids for c in classifiers) else f"{sizes} of the models' own"


def tell_origin(record: Record, classifiers: list[Classifier], sets: list[ImageSet]) -> None:
    """Which images, which weights and which arithmetic, for the JSON."""
    choices = list(dict.fromkeys(c.choice for c in classifiers))  # one, unless a model is not run in the common dtype
    dtypes, reasons = ", ".join(c.dtype_name for c in choices), "; ".join(c.reason for c in choices)
    record.use_device(choices[0].name, dtypes, reasons)
    for images in sets:
        record.use_images(images)
    for c in classifiers:
        record.use_identity(c.identity, preprocessing=c.headline.preprocessing)


def drawn_lines(shown: Classifier, drawn: Sequence[int], candidates: int, seed: int) -> list[str]:
    """The drawn images, as the article prints them. `drawn` are rows of the headline's scores, out of `candidates`."""
    how = f"{len(drawn)} picked at random, seed {seed}"
    if len(drawn) == candidates:
        how = "there is none" if candidates == 0 else f"all {candidates} there are"
    lines = [f"  {shown.name}, pictures whose top-1 is not the label but whose top-5 contains it ({how}):"]
    for i in drawn:
        label, best, rank = shown.answer(i)
        lines.append(f"    {shown.headline.images.names[i]:28} label: {label:16} top-1: {best:22} label at rank {rank}")
    return lines


def tell_counts(record: Record, classifiers: list[Classifier], notes: list[str], imagenette: bool) -> None:
    """That the outcomes add up (`scoring.count` has checked it), the ties, what stands in for what."""
    record.section("the counts add up")
    columns = ["model", "top-1", "top-5", "top-1 wrong", "of which label in the top 5", "rest", "ties"]
    rows, lines = [], []
    for c in classifiers:
        n, ties = c.headline.counts, int(c.headline.scores.tied.sum())
        lines.append(
            f"  {c.name:20} {n.right:,} right + {n.forgiven:,} wrong with the label in the top {scoring.TOP} + "
            f"{n.rest:,} rest = {n.images:,} images"
        )
        if ties:
            lines.append(f"  {'':20} equal logits on {ties:,}: the class with the lower number goes first")
        numbers = (n.wrong, n.forgiven, n.rest, ties)
        rows.append([c.name, f"{n.top1:.2f}%", f"{n.top5:.2f}%", *(f"{number:,}" for number in numbers)])
    record.say_table(f"Top-1 and top-5 over {classifiers[0].identity.dim:,} classes", columns, rows, lines=lines)
    notes = list(dict.fromkeys(notes))
    record.results["notes"] = notes
    for note in notes:
        record.say(f"  {note}")
    tell_images(record, list(dict.fromkeys(way.images for c in classifiers for way in c.ways)))
    images = classifiers[0].headline.images
    if images.stand_in:
        record.say(f"  stand-in images: {images.stand_in}; {images.source}")
    for c in classifiers:
        if c.identity.stand_in:
            record.say(f"  stand-in model: {c.name}: {c.identity.stand_in}")
    if imagenette:
        for text in (FOUR_OR_THREE, f"Its eight images: {NO_DRAW}."):
            record.say(f"  {text}")


def tell_images(record: Record, sets: Sequence[ImageSet]) -> None:
    """What was assumed of the images, and which of them stand twice, by content."""
    from shared.data import copies, repeated

    record.say_assumed()
    for images in sets:
        again = repeated(images)
        if len(again):
            record.say(f"  by content: {len(again):,} of {images.split} are copies, e.g. {images.where(int(again[0]))}")
    for images in sets[1:]:
        count = len(copies(images, sets[0]))
        record.say(
            f"  by content: {count:,} of the {len(images):,} images of {images.split} are in {sets[0].split} too"
        )


def tell_seen(record: Record, classifiers: list[Classifier]) -> None:
    """Accuracy on images that ImageNet trains on and on images that it does not, with Wilson intervals."""
    images = classifiers[0].headline.images
    parts = [scoring.origin(name) for name in images.names]
    record.section("images seen in training and images not seen (in brackets: Wilson's interval at 95 %)")
    record.say(
        f"  {parts.count(scoring.NOT_SEEN):,} of the {len(images):,} images are named ILSVRC2012_val_*: they are from "
        f"ImageNet's validation set.\n  {parts.count(scoring.SEEN):,} are ImageNet training images: a classifier "
        "trained on ImageNet has seen them with their labels."
    )
    rows = []
    for c in classifiers:
        groups = by_origin(c.headline)
        for w in c.ways[1:]:  # the 500 further images, entering in the headline's way
            if w.images is not images and w.name == c.headline.name:
                groups[f"all {len(w.images):,} of ImageNet validation, not seen"] = w.counts
        for part, n in groups.items():
            rows.append([c.name, part, f"{n.images:,}", share(n.right, n.images), share(n.in_top5, n.images)])
    columns = ["model", "images", "how many", "top-1", "top-5"]
    note = "In brackets: Wilson's interval at 95 %."
    record.say_table("Seen and unseen images", columns, rows, left=(0, 1), note=note)


def by_origin(way: Way) -> dict[str, Counts]:
    """Counts of all images and of those from each part of ImageNet, told by file name; no row for 0 unknown ones."""
    origins = np.array([scoring.origin(name) for name in way.images.names])
    groups = {part: scoring.count(way.scores.take(origins == part)) for part in scoring.ORIGINS}
    return {"all": way.counts} | {part: n for part, n in groups.items() if n.images or part != scoring.UNKNOWN}


def share(successes: int, n: int) -> str:
    """`84.92% (83.77 to 86.01)`: a proportion with its Wilson interval at 95 %; `-` when there is nothing to count."""
    if n == 0:
        return "-"
    low, high = wilson(successes, n)
    return f"{100 * successes / n:.2f}% ({100 * low:.2f} to {100 * high:.2f})"


def tell_classes(record: Record, classifiers: list[Classifier]) -> None:
    """A row per class: three accuracies and the most frequent confusions."""
    k = len(classifiers[0].subset)
    record.section("class by class")
    record.say(f"  of {k}: the best among the data set's {k} classes only. Last: the most frequent wrong top-1.")
    columns = ["class", "images", "top-1", "top-5", f"of {k}", "most frequent wrong top-1"]
    for c in classifiers:
        rows, right = class_rows(c.classes), c.headline.scores.right_of_subset
        record.say(f"\n  {c.name}: top-1 of {k} classes: {share(int(right.sum()), len(right))}")
        lines = [f"  {line}" for line in aligned(columns, rows, left=(0, 5), width=WIDTH - 2)]
        record.say_table(f"{c.name}, class by class", columns, rows, lines=lines)


def class_rows(classes: Sequence[dict]) -> list[list[str]]:
    """[class, images, top-1, top-5, top-1 of the data set's classes, most frequent wrong top-1 with counts]."""
    rows = []
    for row in classes:
        n, right = row["images"], (row["top-1"], row["top-5"], row[scoring.OF_SUBSET])
        confused = ", ".join(f"{wrong['class']} {wrong['images']}" for wrong in row["wrong top-1"]) or "none"
        rows.append([row["class"], f"{n:,}", *(f"{100 * r / n:.1f}%" if n else "-" for r in right), confused])
    return rows


def tell_ways(record: Record, classifiers: list[Classifier]) -> None:
    """Accuracy by the way in which the stored images become the network's input."""
    first = classifiers[0].headline
    height, width = first.images.image(0).shape[:2]
    record.section("how the stored images enter the network")
    record.say(
        f"  The first image is stored as {width}x{height}. own: the model's published recipe; crop: shortest "
        f"side, then the centre.\n  The headline is `{first.name}`, whichever is best."
    )
    rows = []
    for c in classifiers:
        for w in c.ways:
            percents = f"{w.counts.top1:.2f}%", f"{w.counts.top5:.2f}%"
            rows.append([c.name, f"{w.images.split}, {len(w.images):,}", w.name, *percents, w.preprocessing])
    columns = ["model", "images", "way", "top-1", "top-5", "preprocessing"]
    lines = aligned(columns[:-1], [row[:-1] for row in rows], left=(0, 1, 2))
    lines += dict.fromkeys(f"  {c.name}, {w.name}: {w.preprocessing}" for c in classifiers for w in c.ways)
    record.say_table("How the stored images enter", columns, rows, lines=lines)
    for c in classifiers:
        if c.identity.transform_from:
            record.say(f"  {c.name}: {c.identity.transform_from}")


def tell_article_images(record: Record, config: Config, shown: Classifier, published: Published) -> None:
    """The article's eight images (there ViT-L/16's), as the classifier shown here sees them."""
    names = shown.headline.images.names
    rows = [names.index(file) for file in printed_files(published) if file in names]
    if not rows:
        return
    record.section(f"the eight images that the article shows (there ViT-L/16's), as {shown.name} sees them")
    columns = ["image", "label", "ViT-L/16's top-1", "label at rank", f"top-1 of {shown.name}", "label at rank"]
    table = []
    for i in rows:
        printed = [published[f"eight images/{names[i]}/{what}"].printed for what in ("top-1", "rank of the label")]
        label, best, rank = shown.answer(i)
        table.append([names[i], label, *printed, best, str(rank)])
    record.say_table("The article's eight images", columns, table, left=(0, 1, 2, 4))
    if config.gallery != "none":
        title = f"The article's eight images, as {shown.name} sees them"
        path = record.figures_dir / f"{config.experiment}_article.png"
        note = f"In the article they are ViT-L/16's. {COLOURS}"
        record.figure(gallery.draw_cards(path, title, note, [card(shown, i) for i in rows]), title, kind="gallery")


def tell_article_draw(record: Record, classifier: Classifier, seed: int, published: Published) -> None:
    """Which call drew the article's eight: how many of them two ways to draw from the same candidates would show."""
    names, printed = classifier.headline.images.names, printed_files(published)
    ordered = scoring.in_file_order(names, np.flatnonzero(classifier.headline.scores.forgiven))
    n, k = len(ordered), len(printed)
    if n < k:
        return
    draws = {
        "random.Random.sample": random.Random(seed).sample(range(n), k),
        "numpy.random.default_rng.choice": np.random.default_rng(seed).choice(n, k, replace=False),
    }
    hits = {call: sum(names[ordered[i]] in printed for i in drawn) for call, drawn in draws.items()}
    record.results["images of the article's eight that a call draws"] = hits
    text = ", ".join(f"{call} {hit}" for call, hit in hits.items())
    record.say(f"  of the article's eight images, drawn from {classifier.name}'s {n} with seed {seed}: {text}")


def printed_files(published: Published) -> list[str]:
    """The file names of the article's eight images."""
    return [id.split("/")[1] for id in published.numbers if id.startswith("eight images/") and id.endswith("/top-1")]


def draw_sheets(record: Record, config: Config, shown: Classifier) -> None:
    """A sheet for each class of the images that stay wrong: the label is not in the top five."""
    images, scores = shown.headline.images, shown.headline.scores
    for index, wnid in zip(shown.subset, images.class_ids, strict=True):
        of_class = scores.label == index
        rest = sorted(np.flatnonzero(of_class & (scores.rank > scoring.TOP)), key=lambda i: images.names[i])
        if not rest:
            continue
        title = f"{shown.labels[index]}: what stayed wrong"
        note = f"{len(rest)} of {of_class.sum():,} images whose label is not among the five best guesses of "
        note += shown.name + (f"; the first {SHEET} by file name" if len(rest) > SHEET else "")
        path = record.figures_dir / f"{config.experiment}_wrong_{re.sub(r'[^A-Za-z0-9]+', '-', wnid)[:60]}.png"
        gallery.draw_sheet(path, title, f"{note}. Red: the first guess.", [card(shown, i) for i in rest[:SHEET]])
        record.figure(path, f"{title}; {note}", kind="gallery")


def card(shown: Classifier, i: int) -> gallery.Card:
    """Image `i` of the headline, with its label and its five best guesses."""
    images, scores = shown.headline.images, shown.headline.scores
    label = scores.label[i]
    guesses = [
        (shown.labels[k], float(share), bool(k == label))
        for k, share in zip(scores.top[i], scores.probability[i], strict=True)
    ]
    return gallery.Card(images.image(i), images.names[i], shown.labels[label], int(scores.rank[i]), guesses)


def measured_numbers(classifiers: list[Classifier], stands_for: str, published: Published) -> dict[str, Measured]:
    """What is judged, by the published ids: each model's four numbers, and ViT-L/16's answers to the eight images."""
    numbers = {}
    for id in published.numbers:
        group, _, rest = id.partition("/")  # "Imagenette/ViT-B/16/top-1", "eight images/n02102040_880.JPEG/top-1"
        subject, _, what = rest.rpartition("/")
        model = subject if group == "Imagenette" else DRAWN_FROM
        c, stand_in = answering(classifiers, stands_for, model)
        if c is None:
            numbers[id] = Measured(None, why_not_run=f"{model} is not among the models of this run")
            continue
        n, files = c.headline.counts, c.headline.images.names
        value: float | str | None = None
        if group == "Imagenette":
            value = dict(zip(published.columns, (n.top1, n.top5, n.wrong, n.forgiven), strict=True))[what]
        elif subject in files:
            _, best, rank = c.answer(files.index(subject))
            value = best if what == "top-1" else rank
        why = "the image is not in this set"  # said of a value that is None
        numbers[id] = Measured(value, images=n.images, stand_in=stand_in, why_not_run=why)
    return numbers | {"eight images/the draw": Measured(None, why_not_run=NO_DRAW)}


def answering(classifiers: list[Classifier], stands_for: str, model: str) -> tuple[Classifier | None, str | None]:
    """The classifier that is judged against the article's `model`, and why it only stands in for it, if it does."""
    c = next((c for c in classifiers if c.name == model), None)
    reasons = []
    if c is None and stands_for == model:
        c = classifiers[0]
        reasons.append(f"{c.name} in place of {model}")
    if c is not None:
        reasons += [reason for reason in (c.identity.stand_in, c.headline.images.stand_in) if reason]
    return c, "; ".join(reasons) or None


def results_of(c: Classifier) -> dict:
    """One classifier's numbers for the JSON, at full precision."""
    return {
        "spec": c.spec,
        "headline": c.headline.counts.as_json() | {"ties": int(c.headline.scores.tied.sum())},
        "by origin": {title: counts.as_json() for title, counts in by_origin(c.headline).items()},
        scoring.OF_SUBSET: 100 * float(c.headline.scores.right_of_subset.mean()),
        "by class": c.classes,
        "ways": [
            {"split": w.images.split, "way": w.name, "preprocessing": w.preprocessing} | w.counts.as_json()
            for w in c.ways
        ],
    }


if __name__ == "__main__":
    cli.run(main, Config)
