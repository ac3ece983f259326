"""From the name of a data set to its encoded images with their labels.

    open_set("cifar10")                       a set that the suite knows: its parquet files are read directly
    open_set("me/birds@v2:small")             any set of the hub (or of the mirror): a revision, a configuration
    open_set("~/photos")                      a folder or zip of images by class (`shared.folders`)
    open_set("~/saved")                       whatever `datasets` reads (`shared.tables`)

Each gives a `Collection`: the splits as they are found, and a function that reads one of them as a `Source`, lazily:
labels and names at once, an image's bytes when its row is asked for. What had to be assumed stands in `Source.notes`.
A further format is one more class with `read`, `where` and `identity` (`Rows`) and a function that makes a `Source`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from shared import hub, paths
from shared.errors import UserError
from shared.models import labels as imagenet_labels
from shared.specs import REPOSITORY
from shared.text import printable


@dataclass(frozen=True)
class HubSet:
    """A data set of the hub: where its parquet files lie, the commit they are read at, and how many images it has."""

    repository: str
    folder: str
    revision: str | None  # a commit; None reads the newest one and names it in the source
    images: dict[str, int]


HUB_SETS = {
    "cifar10": HubSet(
        "uoft-cs/cifar10", "plain_text", "0b2714987fa478483af9968de7c934580d0bb9a2", {"train": 50_000, "test": 10_000}
    ),
    "cifar100": HubSet(
        "uoft-cs/cifar100", "cifar100", "aadb3af77e9048adbea6b47c21a81e47dd092ae5", {"train": 50_000, "test": 10_000}
    ),
    "pets": HubSet("timm/oxford-iiit-pet", "data", None, {"train": 3_680, "test": 3_669}),
    "imagenette": HubSet("frgfm/imagenette", "data", None, {"train": 9_469, "validation": 3_925, "ilsvrc_val": 500}),
}
GRAMMAR = re.compile(r"(?P<name>[\w.-]+/[\w.-]+|[\w-]+)(@(?P<revision>[^:@]+))?(:(?P<configuration>.+))?")
# the hub's spellings of the three usual splits, also with "set"; any case counts, and words beside them: val-2, Testset
ROLES = {
    "train": ("train", "training"),
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "val", "dev"),
}
_ROLE = {f"{word}{ending}": role for role, words in ROLES.items() for word in words for ending in ("", "set")}
ALL = "all"  # the one split of images that come without splits


class Rows(Protocol):
    """Images in a fixed order, of which any can be read: what a format has to offer."""

    identity: str  # changes when a file behind it changes

    def read(self, rows: Sequence[int]) -> list[bytes] | list[np.ndarray]:
        """Encoded bytes, or pixels (uint8 [H, W, 3]) where nothing is encoded, in the order of `rows`."""

    def where(self, row: int) -> str:
        """The image's name in an error message."""


@dataclass
class Source:
    """Rows with what is known of them. `names` are file names, `class_ids` the class names as the source spells them
    (ImageNet ids in ImageNet's data sets), `class_names` the same in normal form. `notes`: what had to be assumed, and
    what was left out, a line each."""

    split: str
    words: str
    rows: Rows
    labels: np.ndarray
    class_names: list[str]
    names: list[str]
    class_ids: list[str]
    stand_in: str | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Names come from files, and go into lines with others: a line's end in one is shown as `\\n`."""
        for key in ("class_names", "names", "class_ids", "notes"):
            setattr(self, key, [printable(text) for text in getattr(self, key)])
        self.words = printable(self.words)


@dataclass(frozen=True)
class Few:
    """Some images of a split: so many of each class, or so many in all, by the seed; 0 asks for none of that kind."""

    a_class: int
    in_all: int
    seed: int

    def enough(self, source: Source) -> bool:
        """Whether a source has them."""
        smallest = np.bincount(source.labels, minlength=len(source.class_names)).min(initial=len(source.labels))
        return int(smallest) >= self.a_class and len(source.labels) >= self.in_all

    def choose(self, names: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Some of the names, in their order; classes: that of each name."""
        rng, chosen = np.random.default_rng(self.seed), []
        by_class: dict[str, list[int]] = {}
        for i, own in enumerate(classes):
            by_class.setdefault(own, []).append(i)
        for rows in by_class.values() if self.a_class else ():
            chosen += rng.permutation(rows)[: self.a_class].tolist()
        chosen += rng.permutation(len(names))[: self.in_all].tolist()
        return [names[i] for i in sorted(set(chosen))]


@dataclass
class Collection:
    """A data set before a split is chosen: `splits` as they are found, and `load`, which reads one of them.

    way_out: what else may help who named none of them, for the error line.
    load_some: the same where a few images are wanted: files that these are not in are not even fetched. None where
    that saves nothing.
    """

    where: str
    splits: list[str]
    load: Callable[[str], Source]
    way_out: str = ""
    load_some: Callable[[str, Few], Source] | None = None

    def pick(self, asked: str) -> str:
        """The split that `asked` names: itself, in another case, or under another of the hub's words for it.

        UserError, with the splits that there are, for none or several.
        """
        for same in (str, str.casefold):
            if chosen := [split for split in self.splits if same(split) == same(asked)]:
                return chosen[0]
        if self.splits == [ALL] and asked == "train":
            return ALL
        chosen = [split for split in self.splits if role(split) == role(asked) is not None]
        chosen = [split for split in chosen if split.casefold() in _ROLE] or chosen  # validation before ilsvrc_val
        if len(chosen) == 1:
            return chosen[0]
        has = ", ".join(self.splits)
        if chosen:
            raise UserError(f"{self.where}: {asked} may be any of {', '.join(chosen)}; name one: --split, --test-split")
        if self.splits == [ALL]:
            raise UserError(
                f"{self.where}: no {asked}/ in it; make train/ and test/ with one sub-folder per class in each"
            )
        raise UserError(
            f"{self.where}: no split {asked}; it has {has}; name one of these: --split, --test-split{self.way_out}"
        )

    def pick_train(self, asked: str = "") -> str:
        """The split to train on: `asked`, else `train`, else the only one."""
        return self.splits[0] if not asked and len(self.splits) == 1 else self.pick(asked or "train")

    def pick_test(self, asked: str = "") -> str:
        """The split to test on: `asked`, else the only one, else `test`, else `validation`."""
        if not asked and len(self.splits) == 1:
            return self.splits[0]
        usual = [name for name in ("test", "validation") if any(role(split) == name for split in self.splits)]
        if asked or usual:
            return self.pick(asked or usual[0])
        has = ", ".join(self.splits)
        raise UserError(
            f"{self.where}: which split is for testing? It has {has}; name one: --split, --test-split{self.way_out}"
        )


def role(split: str) -> str | None:
    """`train`, `test` or `validation` for a name with one of the hub's words for it; None for others, and for two."""
    roles = {_ROLE[word] for word in re.split(r"[-._ 0-9]+", split.casefold()) if word in _ROLE}
    return roles.pop() if len(roles) == 1 else None


def normal_name(name: str) -> str:
    """The one spelling of a class name: lower case, single blanks for underscores and blanks; hyphens stay.

    "English_springer", "english springer" and "English Springer" all give "english springer".
    """
    return " ".join(re.split(r"[_\s]+", name.strip("_ \t"))).casefold()


def normal_names(names: Sequence[str]) -> list[str]:
    """`normal_name` of each; as they are where two would become one: `Cat` and `cat` stay two classes of a table."""
    normal = [normal_name(name) for name in names]
    return normal if len(set(normal)) == len(names) and all(normal) else list(names)


def known_name(name: str) -> str:
    """One spelling for one data set: the short name of a hub's (cifar100), the absolute path of a user's files."""
    if name not in (*HUB_SETS, "digits") and _exists(name):
        return str(Path(name).expanduser().resolve())
    return next((short for short, hub_set in HUB_SETS.items() if hub_set.repository == name), name)


def open_set(
    name: str,
    *,
    root: Path | None = None,
    revision: str | None = None,
    label: str | None = None,
    image: str | None = None,
    classes_only: bool = False,
    empty_classes: bool = False,
) -> Collection:
    """The data set called `name`; see `shared.data.load_images`, which has the same arguments.

    classes_only: sub-folders called train or test are classes too (`--split all`). empty_classes: a class folder
    without an image is no error.
    """
    if name == "digits":
        return Collection("digits", ["train", "test"], digits_source)
    if name not in HUB_SETS and _exists(name):
        return _open_files(Path(name).expanduser(), label, image, classes_only, empty_classes)
    parts = GRAMMAR.fullmatch(name)
    repository, configuration = (parts["name"], parts["configuration"] or "") if parts else (name, "")
    known = HUB_SETS.get(repository) or next((s for s in HUB_SETS.values() if s.repository == repository), None)
    revision = (parts and parts["revision"]) or revision
    root = root or paths.data_root()
    if known:
        return _open_known(name, known, configuration, root, revision, label, image)
    if not parts or not REPOSITORY.fullmatch(repository):
        choices = ", ".join([*HUB_SETS, "digits"])
        absent = "no such folder or file, and no name of a data set; " if re.search(r"[/\\~]|^\.", name) else ""
        raise UserError(
            f"data set {name!r}: {absent}expected {choices}, <owner>/<name> on the hub (@<revision>, "
            ":<configuration>), or an existing folder or file"
        )
    from shared import tables

    return tables.open_repository(repository, configuration, root, revision, label, image)


def _exists(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # a text that can be no path
        return False


def _open_files(
    path: Path, label: str | None, image: str | None, classes_only: bool, empty_classes: bool
) -> Collection:
    """A folder or file of the user's: images by class, else what `datasets` knows."""
    from shared import folders

    tree = folders.look_at(path)
    if tree:
        return folders.collection(tree, classes_only, empty_classes)
    from shared import tables

    return tables.open_local(path, label, image)


def _open_known(
    name: str,
    known: HubSet,
    configuration: str,
    root: Path | None,
    revision: str | None,
    label: str | None,
    image: str | None,
) -> Collection:
    """A set whose files are known: `datasets`, which takes a second to import, is not asked."""
    from shared import parquet

    imagenette = known is HUB_SETS["imagenette"]
    own = imagenette and not hub.in_mirror(root, known.repository)

    def load(split: str) -> Source:
        if own:
            source = imagenette_source(split)
            if len(source.labels) != known.images[split]:
                counts = f"{len(source.labels):,} of {known.images[split]:,} images"
                raise UserError(f"{source.words}: {counts} of {split}; delete the folder to have it fetched again")
        else:
            place = hub.find(
                known.repository,
                lambda names, where: parquet.split_files(names, where, configuration or known.folder, split),
                kind="dataset",
                revision=revision or known.revision,
                root=root,
            )
            source = parquet.source(place.files, split, parquet.words(place, known.repository), label, image)
            if len(source.labels) != known.images[split]:
                source.stand_in = f"copy with {len(source.labels):,} of {known.images[split]:,} images"
            elif imagenette:
                source.stand_in = "parquet copy, not the 160-pixel files of torchvision"
        if imagenette:
            # a class folder is called by its ImageNet id; its name is the first synonym in ImageNet's list
            synonyms = dict(zip(*imagenet_labels.imagenet(), strict=True))
            names = [normal_name(synonyms[wnid].partition(",")[0]) for wnid in source.class_ids]
            source = replace(source, class_names=names)
        return source

    return Collection(name, list(known.images), load)


# Imagenette and digits -----------------------------------------------------------------------------------------------


def imagenette_source(split: str) -> Source:
    """Imagenette at 160 pixels (shortest side) with its own file names, kept in the cache folder.

    ilsvrc_val: the ILSVRC2012_val_* files of both parts, the 500 ImageNet validation images of the ten classes.
    """
    from shared import folders

    home = paths.cache_dir() / "imagenette"
    parts = {"train": ["train"], "validation": ["val"], "ilsvrc_val": ["train", "val"]}[split]
    for part in parts:
        if not (home / "imagenette2-160" / part).is_dir():
            _download_imagenette(home, part)
    prefix = "ILSVRC2012_val_" if split == "ilsvrc_val" else ""
    below = [home / "imagenette2-160" / part for part in parts]
    wnids = sorted({entry.name for folder in below for entry in folder.iterdir() if entry.is_dir()})
    classes = {
        wnid: sorted((f for d in below for f in (d / wnid).glob(f"{prefix}*.JPEG")), key=lambda file: file.name)
        for wnid in wnids
    }
    return folders.files_source(classes, split, f"torchvision Imagenette 160px in {home}", home)


def _download_imagenette(home: Path, part: str) -> None:
    from torchvision.datasets import Imagenette

    try:
        home.mkdir(parents=True, exist_ok=True)
        Imagenette(home, split=part, size="160px", download=True)  # checked by its md5 before it is unpacked
    except (OSError, RuntimeError) as error:  # URLError is an OSError; RuntimeError: damaged download
        raise UserError(f"imagenette: cannot be downloaded ({error}); {hub.WAY_OUT['dataset']}") from error


def digits_source(split: str) -> Source:
    """scikit-learn's embedded digits: 1,797 grey 8x8 images, 0..16 scaled to 0..255; the last 500 are the test split.

    The file's order is by writer, so train and test come mostly from different hands.
    """
    parts = {"train": slice(0, 1297), "test": slice(1297, None)}
    from sklearn.datasets import load_digits  # takes a second

    bunch = load_digits()
    grey = np.rint(bunch.images[parts[split]] * (255 / 16)).astype(np.uint8)
    pixels = np.repeat(grey[..., None], 3, axis=3)
    labels = bunch.target[parts[split]].astype(np.int64)
    names = [f"digits-{split}-{i:04d}" for i in range(len(labels))]
    classes = list("0123456789")
    words, stand_in = "scikit-learn's embedded digits", "embedded digits, 8x8 grey"
    return Source(split, words, ArrayRows(pixels, names), labels, classes, names, classes, stand_in)


@dataclass
class ArrayRows:
    """Pixels in memory, uint8 [n, H, W, 3]: nothing to decode, nothing to remember on disk."""

    pixels: np.ndarray
    names: list[str]
    identity: str = ""

    def where(self, row: int) -> str:
        return self.names[row]

    def read(self, rows: Sequence[int]) -> list[np.ndarray]:
        return [self.pixels[row] for row in rows]
