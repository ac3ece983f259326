"""Which images are trained on and which are tested, with their targets.

A data set with splits keeps them: `train` and `test`, else `validation`. One with a single split is cut: a share of
each class, by the seed, is tested. Classes may have any sizes: one with a single image is trained on; one that
only test images have cannot be learnt, and those images are left out and counted. All of this is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared.data import ImageSet
from shared.errors import UserError
from shared.folders import some
from shared.probe import lists, shots
from shared.probe.lists import Listed, Task
from shared.sources import ALL, ROLES, Collection, Few, Source, known_name, open_set, role

if TYPE_CHECKING:
    from shared.probe.__main__ import Config

HELD_OUT = 0.2  # of the training images, where a held-out split chooses lambda and the data set has none
UNEVEN = 10  # times between the largest and the smallest class, from which on it is warned about
FEW = 100  # test images, below which it is warned about


@dataclass
class Part:
    """Images with their targets: int64 [n] (classes) or float64 [n, K]. split: what it is called."""

    images: ImageSet
    targets: np.ndarray
    split: str

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> Part:
        """The images `rows`, an index or a mask."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return Part(self.images.subset(rows), self.targets[rows], self.split)

    def in_words(self, task: Task, names: list[str]) -> str:
        """How many images have each label, or how large the numbers are."""
        if task == "labels":
            counts = self.targets.sum(0).astype(int).tolist()
            return some([f"{name} {count:,}" for name, count in zip(names, counts, strict=True)], 8)
        ends = zip(names, self.targets.min(0), self.targets.max(0), self.targets.mean(0), strict=True)
        return some([f"{name} {low:.4g} to {high:.4g}, mean {mean:.4g}" for name, low, high, mean in ends], 4)


@dataclass
class Sets:
    """One data set, ready. names: of the classes, labels or columns, in the targets' order. held_out: the data set's
    own validation images, where `--select split` asks for them. notes: what was assumed; warnings: what to be careful
    with. keep: bool [train], the training images that are no copies of test images; None before it was looked at."""

    name: str
    title: str
    task: Task
    names: list[str]
    train: Part
    test: Part
    held_out: Part | None = None
    keep: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def parts(self) -> dict[str, Part]:
        """By role, without absent ones."""
        parts = {"train": self.train, "test": self.test, "held out": self.held_out}
        return {role: part for role, part in parts.items() if part is not None}

    @property
    def stand_in(self) -> str | None:
        return self.train.images.stand_in or self.test.images.stand_in


def open_sets(name: str, config: Config) -> Sets:
    """The data set `name` as the options ask for it. UserError where it cannot be trained or tested."""
    listed = _listed(name, config)
    sets = _of_list(listed, name, config) if listed else _of_collection(name, config)
    if config.skip_bad:
        sets = _without_unreadable(sets)
    if sets.test.images is sets.train.images:
        _cut(sets, config.test_share, config.seed)
    if sets.task == "classes":
        _one_list_of_classes(sets)
    if 0 < config.test_images < len(sets.test):
        sets.notes.append(f"tested on {config.test_images:,} of {len(sets.test):,} images, by seed {config.seed}")
        chosen = np.random.default_rng([config.seed, 3]).permutation(len(sets.test))[: config.test_images]
        sets.test = sets.test.take(np.sort(chosen))
    _check(sets)
    if set(config.protocol) == {"few-shot"} and sets.task == "classes":
        few = np.sort(np.concatenate(shots.candidates(sets.train.targets, config.shots, config.seed)))
        if len(few) < len(sets.train):
            sets.notes.append(f"few-shot alone looks at {len(few):,} of the {len(sets.train):,} training images")
            sets.train = sets.train.take(few)
    return sets


# Where the targets are -----------------------------------------------------------------------------------------------


def _listed(name: str, config: Config) -> Listed | None:
    """The list of files and targets that `--labels` names, or that the data set itself is."""
    path = Path(config.labels or name).expanduser()
    if not config.labels and not lists.is_list(path):
        if config.task not in ("auto", "classes"):
            raise UserError(f"--task {config.task}: such targets stand in a list of files: --labels file.csv")
        return None
    folder = path.parent
    if config.labels:
        if not lists.is_list(path):
            raise UserError(f"--labels {path}: no such list; expected a CSV or Parquet file of file names and targets")
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise UserError(f"--data {name}: with --labels it is the folder that the list's file names start from")
    return lists.read(path, folder, config.image, config.label, config.task, skip_missing=config.skip_bad)


def _of_list(listed: Listed, name: str, config: Config) -> Sets:
    rows = np.arange(len(listed.files))

    def part(rows: np.ndarray, split: str) -> Part:
        return Part(ImageSet(name, listed.source(rows, split)), listed.targets[rows], split)

    notes, spec = list(listed.notes), str(listed.path.resolve())
    if listed.splits is None:
        whole = part(rows, ALL)
        sets = Sets(spec, listed.path.stem, listed.task, listed.names, whole, whole, notes=notes)
    else:
        splits = dict.fromkeys(listed.splits)
        collection = Collection(str(listed.path), [split for split in splits if split], None)
        chosen = _roles(collection, config)
        of = np.array(listed.splits)
        parts = {role: part(np.flatnonzero(of == split), split) for role, split in chosen.items()}
        sets = Sets(spec, listed.path.stem, listed.task, listed.names, parts["train"], parts["test"])
        sets.held_out, sets.notes = parts.get("held out"), notes
    return sets


def _of_collection(name: str, config: Config) -> Sets:
    """Images with their classes, from whatever `shared.data` reads."""
    name = known_name(name)
    where = {"root": config.data_root, "label": config.label or None, "image": config.image or None}
    try:
        collection = open_set(name, classes_only=config.split == ALL, empty_classes=True, **where)
        chosen = _roles(collection, config)
        loaded = {split: ImageSet(name, _load(collection, split, chosen, config)) for split in set(chosen.values())}
    except UserError as error:
        raise UserError(f"{error}{_hint(name)}") from error
    title = Path(name).name if Path(name).is_absolute() else name
    names = loaded[chosen["train"]].class_names
    parts = {role: Part(loaded[split], loaded[split].labels, split) for role, split in chosen.items()}
    sets = Sets(name, title, "classes", names, parts["train"], parts["test"], parts.get("held out"))
    if collection.splits != [ALL]:
        sets.notes.append(f"splits found: {', '.join(collection.splits)}")
    return sets


def _load(collection: Collection, split: str, chosen: dict[str, str], config: Config) -> Source:
    """A split; where few of its images are asked for, only those of its files that have them."""
    train, test = split == chosen["train"], split == chosen["test"]
    a_class = shots.most(config.shots) if train and set(config.protocol) == {"few-shot"} else 0
    in_all = config.test_images if test and not train else 0
    if train and test:  # it will be cut
        a_class = int(np.ceil(a_class / (1 - config.test_share)))
    if collection.load_some and (a_class or in_all):
        return collection.load_some(split, Few(a_class, in_all, config.seed))
    return collection.load(split)


def _hint(name: str) -> str:
    """A further way out where the targets of a folder's images may stand in a list."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return ""
    found = sorted(f for f in folder.glob("*") if f.suffix.lower() in (".csv", ".tsv"))
    if found:
        return f"; if {found[0].name} has the targets: --labels {found[0]}"
    return "; or name a list of file names and targets: --labels file.csv"


def _roles(collection: Collection, config: Config) -> dict[str, str]:
    """Which split trains, which tests and, if `--select split` asks for it, which chooses lambda."""
    train = collection.pick_train(config.split)
    tests = [split for split in collection.splits if role(split) in ("test", "validation") and split != train]
    test = train
    if config.test_split:
        test = collection.pick(config.test_split)
    elif tests:
        test = collection.pick_test()
    elif len(collection.splits) > 1 and not config.split:
        others = ", ".join(split for split in collection.splits if split != train)
        raise UserError(
            f"{collection.where}: is one of {others} to test on? --test-split names it, --split {train} cuts that one"
        )
    chosen = {"train": train, "test": test}
    spare = [split for split in tests if split.casefold() in ROLES["validation"] and split != test]
    if config.select == "split" and len(spare) == 1:
        chosen["held out"] = spare[0]
    return chosen


# What can be used ----------------------------------------------------------------------------------------------------


def _without_unreadable(sets: Sets) -> Sets:
    """The same without images that cannot be decoded, each of which is named."""
    whole = sets.test.images is sets.train.images
    parts = {}
    for name, part in sets.parts.items():
        if whole and name == "test":
            continue
        bad = unreadable(part.images)
        if bad:
            sets.warnings.append(f"{part.split}: left out, unreadable: {some(list(bad.values()), 4)}")
        keep = np.setdiff1d(np.arange(len(part)), list(bad))
        parts[name] = part.take(keep) if bad else part
    train = parts["train"]
    test = train if whole else parts["test"]
    return replace(sets, train=train, test=test, held_out=parts.get("held out"))


def unreadable(images: ImageSet) -> dict[int, str]:
    """Index -> why, of the images that cannot be decoded. Those that can are then decoded, or at least hashed."""
    bad: dict[int, str] = {}

    def look(rows: np.ndarray) -> None:
        try:
            images.subset(rows).digests(save=False)
        except UserError as error:
            if len(rows) == 1:
                bad[int(rows[0])] = str(error).rpartition("; ")[0] or str(error)
                return
            for half in np.array_split(rows, 2):
                look(half)

    for start in range(0, len(images), 256):
        look(np.arange(start, min(start + 256, len(images))))
    images.remember()
    return bad


def _cut(sets: Sets, share: float, seed: int) -> None:
    """Training and test images from one split: of each class a share, where it has two images or more."""
    whole = sets.train
    test = stratified(whole.targets if sets.task == "classes" else np.zeros(len(whole), int), share, [seed])
    if not test.any():
        raise UserError(f"{sets.name}: each class has one image, so none can be tested; add images")
    how = "of each class" if sets.task == "classes" else "of all images"
    sets.train, sets.test = whole.take(~test), whole.take(test)
    sets.train.split, sets.test.split = "train", "test"
    sets.notes.append(f"one split only: {share:.0%} {how} are tested, by seed {seed}")


def stratified(classes: np.ndarray, share: float, seed: list[int]) -> np.ndarray:
    """bool [n]: a random share of each class, at least one image and never all; none of a class with one image."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(classes), bool)
    for c in np.unique(classes):
        rows = np.flatnonzero(classes == c)
        count = min(max(1, int(share * len(rows) + 0.5)), len(rows) - 1)
        chosen[rng.permutation(rows)[:count]] = True
    return chosen


def _one_list_of_classes(sets: Sets) -> None:
    """Targets as numbers of the classes that training images have, in their order; the other parts by name."""
    own = sets.train.images.class_names
    used = [own[c] for c in np.unique(sets.train.targets)]
    place = {name: i for i, name in enumerate(used)}

    def renumbered(part: Part) -> Part:
        names = part.images.class_names
        new = np.array([place.get(name, -1) for name in names])
        targets = new[part.targets]
        unknown = sorted({names[c] for c in part.targets[targets < 0]})
        if unknown:
            count = int((targets < 0).sum())
            sets.warnings.append(
                f"{part.split}: {count:,} images left out, of classes without training images: {some(unknown)}"
            )
        kept = Part(part.images, targets, part.split)
        return kept.take(targets >= 0) if unknown else kept

    sets.names = used
    sets.train, sets.test = renumbered(sets.train), renumbered(sets.test)
    sets.held_out = sets.held_out and renumbered(sets.held_out)


def _check(sets: Sets) -> None:
    for name, part in sets.parts.items():
        if not len(part):
            raise UserError(f"{sets.name}: no {name} images with a known target; name other splits, or add images")
    if len(sets.train) < 2:
        raise UserError(f"{sets.name}: one training image; two or more are needed")
    if sets.task == "classes":
        if len(sets.names) < 2:
            raise UserError(f"{sets.name}: one class only ({sets.names[0]}); two or more are needed")
        counts = np.bincount(sets.train.targets)
        if counts.max() >= UNEVEN * counts.min():
            large, small = int(counts.argmax()), int(counts.argmin())
            sets.warnings.append(
                f"uneven classes: {sets.names[large]} has {counts[large]:,} training images, {sets.names[small]} has "
                f"{counts[small]:,}; look at the balanced accuracy"
            )
    if sets.stand_in:
        sets.warnings.append(f"not the whole or the original images: {sets.stand_in}")
    if len(sets.test) < FEW:
        sets.warnings.append(f"{len(sets.test)} test images: accuracies move by several points by chance")
