"""From the name of a data set to its encoded images with their labels.

A source is read lazily: labels and names at once, an image's bytes when its row is asked for. Parquet files of the hub
are read directly, row group by row group: `datasets` would write a second copy of everything and takes seconds to
import. A further format is one more class with `read`, `where` and `identity` (`Rows`) and one function that makes a
`Source` of it, called from `find`.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shared import hub, paths
from shared.errors import UserError
from shared.models import labels as imagenet_labels
from shared.specs import REPOSITORY

if TYPE_CHECKING:
    import pyarrow as pa


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
    (ImageNet ids in ImageNet's data sets), `class_names` the same in normal form."""

    split: str
    words: str
    rows: Rows
    labels: np.ndarray
    class_names: list[str]
    names: list[str]
    class_ids: list[str]
    stand_in: str | None = None


def normal_name(name: str) -> str:
    """The one spelling of a class name: lower case, single blanks for underscores and blanks; hyphens stay.

    "English_springer", "english springer" and "English Springer" all give "english springer".
    """
    return " ".join(re.split(r"[_\s]+", name.strip("_ \t"))).casefold()


def find(
    name: str, split: str, *, root: Path | None = None, revision: str | None = None, label: str | None = None
) -> Source:
    """The split of the data set called `name`; see `shared.data.load_images`, which has the same arguments."""
    if name == "digits":
        return digits_source(split)
    if name not in HUB_SETS and Path(name).expanduser().is_dir():
        return folder_source(Path(name).expanduser(), split)
    known = HUB_SETS.get(name) or next((s for s in HUB_SETS.values() if s.repository == name), None)
    if known:
        repository, folder, revision = known.repository, known.folder, revision or known.revision
        split = "validation" if split == "val" and "validation" in known.images else split
        if split not in known.images:
            raise UserError(f"{name}: no split {split}; it has {', '.join(known.images)}")
    else:
        repository, _, folder = name.partition(":")
        if not REPOSITORY.fullmatch(repository):
            choices = ", ".join([*HUB_SETS, "digits"])
            raise UserError(f"data set {name!r}: expected {choices}, <owner>/<name> on the hub, or an existing folder")
    imagenette = known is not None and known is HUB_SETS["imagenette"]
    root = root or paths.data_root()
    if imagenette and not hub.in_mirror(root, repository):
        source = imagenette_source(split)
        if len(source.labels) != known.images[split]:
            counts = f"{len(source.labels):,} of {known.images[split]:,} images"
            raise UserError(f"{source.words}: {counts} of {split}; delete the folder to have it fetched again")
    else:
        source = _hub_source(repository, folder, split, root=root, revision=revision, label=label)
        if known and len(source.labels) != known.images[split]:
            source.stand_in = f"copy with {len(source.labels):,} of {known.images[split]:,} images"
        elif imagenette:
            source.stand_in = "parquet copy, not the 160-pixel files of torchvision"
    if imagenette:
        # a class folder is called by its ImageNet id; its name is the first synonym in ImageNet's list
        names = dict(zip(*imagenet_labels.imagenet(), strict=True))
        source.class_names = [normal_name(names[wnid].partition(",")[0]) for wnid in source.class_ids]
    return source


# Parquet files of a hub repository ----------------------------------------------------------------------------------


def _hub_source(
    repository: str, folder: str, split: str, *, root: Path | None, revision: str | None, label: str | None
) -> Source:
    """All parquet files of a split. folder: the configuration, or "" for the only one that has such a split."""
    place = hub.find(
        repository,
        lambda names, where: split_files(names, where, folder, split),
        kind="dataset",
        revision=revision,
        root=root,
    )
    mirror = place.revision == hub.MIRROR
    words = f"mirror {place.path}" if mirror else f"hub {repository} at {place.path.name}"
    return parquet_source(place.files, split, words, label=label)


def split_files(names: list[str], where: str, folder: str, split: str) -> list[str]:
    """Those of a repository's file names that are a split's parquet files, in order. UserError names a missing one.

    They are called `<folder>/<split>-00000-of-00002.parquet` and so on, `<folder>/<split>.parquet`, or
    `<folder>/<split>/0000.parquet` (the hub's own conversion).
    """
    pattern = re.compile(rf"{re.escape(split)}(-(\d{{5}})-of-(\d{{5}}))?\.parquet")
    by_folder: dict[str, list[Path]] = {}
    for file in (Path(name) for name in sorted(names) if name.endswith(".parquet")):
        converted = file.parent.name == split and file.stem.isdigit()
        place = (file.parent.parent if converted else file.parent).as_posix()
        if (converted or pattern.fullmatch(file.name)) and folder in ("", place):
            by_folder.setdefault(place, []).append(file)
    copy = "missing from the copy; fetch it from the hub"
    if not by_folder:
        expected = Path(where, folder, f"{split}-00000-of-00001.parquet")
        raise UserError(
            f"{expected}: {copy}, or unset PAPERS_DATA / --data-root; on the hub itself name another split, or ask for "
            "its own conversion with revision refs/convert/parquet"
        )
    if len(by_folder) > 1:
        choices = ", ".join(sorted(by_folder))
        raise UserError(f"{where}: several configurations have a split {split} ({choices}); add :<configuration>")
    ((place, files),) = by_folder.items()
    numbered = [match for file in files if (match := pattern.fullmatch(file.name)) and match[3]]
    for number in range(int(numbered[0][3]) if numbered else 0):
        expected = Path(place, f"{split}-{number:05d}-of-{numbered[0][3]}.parquet")
        if expected not in files:
            raise UserError(f"{Path(where, expected)}: {copy}")
    return [file.as_posix() for file in files]


def parquet_source(files: list[Path], split: str, words: str, *, label: str | None = None) -> Source:
    """Images of hub parquet files: a struct column (bytes, path) with any name, an integer or text label column.

    label: the label column's name; None takes `label`, else `fine_label`, else the only integer column. UserError when
    a file is damaged, a column is missing, or a label lies outside the class names.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(files[0])
        image, label = _columns(files[0], schema, label)
        table = pa.concat_tables(pq.ParquetFile(file).read(columns=[f"{image}.path", label]) for file in files)
        paths = table.column(image).combine_chunks().field("path").to_pylist()
        names = [path or f"{split}-{row:06d}" for row, path in enumerate(paths)]
        rows = ParquetRows(files, image, names)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{files[0]}: not a readable parquet file ({error}); fetch it again") from error
    given = table.column(label)
    if pa.types.is_integer(given.type):
        # By way of a list: pyarrow's conversion to numpy imports pandas, half a second.
        labels = np.array([-1 if value is None else value for value in given.to_pylist()], np.int64)
        raw_names = _class_names(schema, label) or [str(i) for i in range(int(labels.max(initial=-1)) + 1)]
    else:
        texts = given.to_pylist()
        raw_names = sorted(set(texts))
        labels = np.searchsorted(raw_names, texts).astype(np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(raw_names):
        row = int(np.flatnonzero((labels < 0) | (labels >= len(raw_names)))[0])
        why = f"label {labels[row]}, but the column {label} names {len(raw_names)} classes"
        raise UserError(f"{rows.where(row)}: {why}")
    return Source(split, words, rows, labels, [normal_name(name) for name in raw_names], names, raw_names)


def _columns(file: Path, schema: pa.Schema, asked: str | None) -> tuple[str, str]:
    """(image column, label column)."""
    import pyarrow as pa

    structs = [field for field in schema if pa.types.is_struct(field.type)]
    images = [field.name for field in structs if {"bytes", "path"} <= {child.name for child in field.type}]
    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    candidates = [asked] if asked else ["label", "fine_label", *(integers if len(integers) == 1 else [])]
    label = next((name for name in candidates if name in schema.names), None)
    columns = ", ".join(schema.names)
    if not images:
        raise UserError(f"{file}: no image column (a struct of bytes and path) among {columns}")
    if label is None:
        raise UserError(f"{file}: no column {asked or 'label or fine_label'} among {columns}")
    return images[0], label


def _class_names(schema: pa.Schema, label: str) -> list[str] | None:
    """The names of a ClassLabel, from the `huggingface` entry of the file's metadata."""
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])["info"]
        return list(info["features"][label]["names"])
    except (KeyError, TypeError, ValueError):
        return None


class ParquetRows:
    """Encoded images in parquet files: one row group at a time is in memory, its rows are read together."""

    def __init__(self, files: list[Path], image: str, names: list[str]) -> None:
        import pyarrow.parquet as pq

        self.files, self.image, self.names = files, image, names
        self.identity = json.dumps(["parquet", image, [hub.file_identity(file) for file in files]])
        self._open = [pq.ParquetFile(file) for file in files]  # mapped files would stay in the resident memory
        self._groups = [(f, g) for f, file in enumerate(self._open) for g in range(file.num_row_groups)]
        counts = [self._open[f].metadata.row_group(g).num_rows for f, g in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._held: tuple[int, object] | None = None
        self._lock = threading.Lock()

    def where(self, row: int) -> str:
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        file = self._groups[group][0]
        first = self._starts[[f for f, _ in self._groups].index(file)]
        return f"{self.files[file]} row {row - first} ({self.names[row]})"

    def read(self, rows: Sequence[int]) -> list[bytes]:
        rows = np.asarray(rows, np.int64)
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        result: list[bytes] = [b""] * len(rows)
        for group in np.unique(groups):
            column = self._group(int(group))
            for position in np.flatnonzero(groups == group):
                value = column[int(rows[position] - self._starts[group])].as_py()
                if value is None:
                    raise UserError(f"{self.where(int(rows[position]))}: no bytes in the row; fetch the file again")
                result[position] = value
        return result

    def _group(self, group: int) -> pa.Array:
        with self._lock:
            if self._held is None or self._held[0] != group:
                self._held = None  # two groups are never in memory at once
                file, number = self._groups[group]
                try:
                    table = self._open[file].read_row_group(number, columns=[f"{self.image}.bytes"])
                except OSError as error:  # ArrowException's reading errors are OSErrors too
                    why = f"row group {number} is damaged ({error}); fetch the file again"
                    raise UserError(f"{self.files[file]}: {why}") from error
                self._held = group, table.column(0).combine_chunks().field("bytes")
            return self._held[1]


# A folder of image files ---------------------------------------------------------------------------------------------


def folder_source(folder: Path, split: str) -> Source:
    """A folder of the user's own: one sub-folder a class, below `train/` and `test/` when there are such folders.

    Without them all images form one split, called "all", which answers for "train" too; a "test" is then refused,
    since it would be the same images. Files are ordered by class folder, then name. UserError, with the counts, for
    fewer than two classes, an empty class, a class in one split only, or two folders with one normal name.
    """
    splits = [name for name in ("train", "val", "validation", "test") if (folder / name).is_dir()]
    if not splits:
        if split not in ("train", "all"):
            raise UserError(f"{folder}: no {split}/ in it; make train/ and test/ with one sub-folder a class in each")
        return image_files_source(_classes(folder), "all", f"folder {folder}", folder)
    if split not in splits:
        raise UserError(f"{folder}: no {split}/ in it, only {', '.join(name + '/' for name in splits)}")
    classes = {name: _classes(folder / name) for name in splits}
    here = classes[split]
    for name, there in classes.items():
        counts = ", ".join(
            f"{c}: {len(here.get(c, []))} in {split}/, {len(there.get(c, []))} in {name}/"
            for c in sorted(set(there) ^ set(here))
        )
        if counts:
            raise UserError(f"{folder}: every class has to be in every split, but images of {counts}")
    return image_files_source(here, split, f"folder {folder / split}", folder / split)


def image_files_source(classes: dict[str, list[Path]], split: str, words: str, folder: Path) -> Source:
    """Image files by class folder, in that order; `folder` is only for the messages."""
    names = [normal_name(name) for name in classes]
    counts = ", ".join(f"{name}: {len(files)} images" for name, files in classes.items()) or "no class folder"
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{folder}: two class folders both read as {twice[0]!r}; rename one")
    if len(names) < 2:
        raise UserError(f"{folder}: at least two classes are needed, one sub-folder each, but there is {counts}")
    empty = [name for name, files in classes.items() if not files]
    if empty:
        raise UserError(f"{folder}: no images in {', '.join(empty)} ({counts})")
    files = [file for of_class in classes.values() for file in of_class]
    labels = np.repeat(np.arange(len(names)), [len(of_class) for of_class in classes.values()]).astype(np.int64)
    return Source(split, words, FileRows(files), labels, names, [file.name for file in files], list(classes))


def _classes(folder: Path) -> dict[str, list[Path]]:
    from PIL import Image

    suffixes = set(Image.registered_extensions())
    return {
        entry.name: [f for f in sorted(entry.rglob("*")) if f.suffix.lower() in suffixes and not f.name.startswith(".")]
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    }


class FileRows:
    """Every image is a file of its own."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.identity = json.dumps(["files", [hub.file_identity(file) for file in files]])

    def where(self, row: int) -> str:
        return str(self.files[row])

    def read(self, rows: Sequence[int]) -> list[bytes]:
        try:
            return [self.files[row].read_bytes() for row in rows]
        except OSError as error:
            why = f"cannot be read ({error.strerror}); it was there at the start"
            raise UserError(f"{error.filename}: {why}") from error


def imagenette_source(split: str) -> Source:
    """Imagenette at 160 pixels (shortest side) with its own file names, kept in the cache folder.

    ilsvrc_val: the ILSVRC2012_val_* files of both parts, the 500 ImageNet validation images of the ten classes.
    """
    home = paths.cache_dir() / "imagenette"
    parts = {"train": ["train"], "validation": ["val"], "ilsvrc_val": ["train", "val"]}[split]
    for part in parts:
        if not (home / "imagenette2-160" / part).is_dir():
            _download_imagenette(home, part)
    prefix = "ILSVRC2012_val_" if split == "ilsvrc_val" else ""
    folders = [home / "imagenette2-160" / part for part in parts]
    wnids = sorted({entry.name for folder in folders for entry in folder.iterdir() if entry.is_dir()})
    classes = {
        wnid: sorted((f for d in folders for f in (d / wnid).glob(f"{prefix}*.JPEG")), key=lambda file: file.name)
        for wnid in wnids
    }
    return image_files_source(classes, split, f"torchvision Imagenette 160px in {home}", home)


def _download_imagenette(home: Path, part: str) -> None:
    from torchvision.datasets import Imagenette

    try:
        home.mkdir(parents=True, exist_ok=True)
        Imagenette(home, split=part, size="160px", download=True)  # checked by its md5 before it is unpacked
    except (OSError, RuntimeError) as error:  # URLError is an OSError; RuntimeError: damaged download
        raise UserError(f"imagenette: cannot be downloaded ({error}); {hub.WAY_OUT['dataset']}") from error


# scikit-learn's digits -----------------------------------------------------------------------------------------------


def digits_source(split: str) -> Source:
    """scikit-learn's embedded digits: 1,797 grey 8x8 images, 0..16 scaled to 0..255; the last 500 are the test split.

    The file's order is by writer, so train and test come mostly from different hands.
    """
    parts = {"train": slice(0, 1297), "test": slice(1297, None)}
    if split not in parts:
        raise UserError(f"digits: no split {split}; it has train and test")
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
