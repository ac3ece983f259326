"""Where the encoded images lie: parquet files in hub layout, a folder of image files, or scikit-learn's digits.

A source is read lazily: labels and names at once, the images' bytes only for the rows asked for.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from shared.errors import UserError


class Rows(Protocol):
    """Random access to images in a fixed order."""

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


# ------------------------------------------------------------------------------------------------------------- parquet


def parquet_source(files: list[Path], split: str, words: str, *, label: str | None = None) -> Source:
    """Images of hub parquet files: a struct column (bytes, path) with any name, an integer or text label column.

    label: the label column's name; None takes `label`, else `fine_label`, else the only integer column. UserError when
    a file is damaged, a column is missing, or a label lies outside the class names.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(files[0])
        image = _image_column(files[0], schema)
        label = _label_column(files[0], schema, label)
        table = pa.concat_tables(pq.ParquetFile(file).read(columns=[f"{image}.path", label]) for file in files)
        rows = ParquetRows(files, image)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{files[0]}: not a readable parquet file ({error}); fetch it again") from error
    paths = table.column(image).combine_chunks().field("path").to_pylist()
    rows.names = [path or f"{split}-{row:06d}" for row, path in enumerate(paths)]
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
        raise UserError(
            f"{rows.where(row)}: label {labels[row]}, but the column {label} names {len(raw_names)} classes"
        )
    return Source(split, words, rows, labels, [normal_name(name) for name in raw_names], rows.names, raw_names)


def _image_column(file: Path, schema) -> str:
    import pyarrow as pa

    for field in schema:
        if pa.types.is_struct(field.type) and {"bytes", "path"} <= {child.name for child in field.type}:
            return field.name
    raise UserError(f"{file}: no image column (a struct of bytes and path) among {', '.join(schema.names)}")


def _label_column(file: Path, schema, asked: str | None) -> str:
    import pyarrow as pa

    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    for name in [asked] if asked else ["label", "fine_label", *(integers if len(integers) == 1 else [])]:
        if name in schema.names:
            return name
    raise UserError(f"{file}: no column {asked or 'label or fine_label'} among {', '.join(schema.names)}")


def _class_names(schema, label: str) -> list[str] | None:
    """The names of a ClassLabel, from the `huggingface` entry of the file's metadata."""
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])["info"]
        return list(info["features"][label]["names"])
    except (KeyError, TypeError, ValueError):
        return None


class ParquetRows:
    """One row group at a time is held in memory; rows of one group asked for together are read together."""

    def __init__(self, files: list[Path], image: str) -> None:
        import pyarrow.parquet as pq

        self.files = files
        self.image = image
        self.names: list[str] = []
        self.identity = json.dumps(["parquet", image, [file_identity(file) for file in files]])
        self._open = [pq.ParquetFile(file) for file in files]  # mapped files would stay in the resident memory
        self._groups = [(f, g) for f, file in enumerate(self._open) for g in range(file.num_row_groups)]
        counts = [self._open[f].metadata.row_group(g).num_rows for f, g in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._held: tuple[int, object] | None = None
        self._lock = threading.Lock()

    def where(self, row: int) -> str:
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        file = self._groups[group][0]
        first = self._starts[next(g for g, (f, _) in enumerate(self._groups) if f == file)]
        name = f" ({self.names[row]})" if self.names else ""
        return f"{self.files[file]} row {row - first}{name}"

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

    def _group(self, group: int):
        with self._lock:
            if self._held is None or self._held[0] != group:
                self._held = None  # two groups are never in memory at once
                file, number = self._groups[group]
                try:
                    table = self._open[file].read_row_group(number, columns=[f"{self.image}.bytes"])
                except OSError as error:  # ArrowException's reading errors are OSErrors too
                    message = f"{self.files[file]}: row group {number} is damaged ({error}); fetch the file again"
                    raise UserError(message) from error
                self._held = group, table.column(0).combine_chunks().field("bytes")
            return self._held[1]


def file_identity(file: Path) -> list:
    """Path, size and time of change: a file with all three unchanged is taken to be unchanged."""
    state = file.stat()
    return [str(file.resolve()), state.st_size, state.st_mtime_ns]


# -------------------------------------------------------------------------------------------------------------- folder


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
    found = {name: _classes(folder / name) for name in splits}
    for name, classes in found.items():
        missing = sorted(set(classes) ^ set(found[split]))
        if missing:
            here = found[split]
            counts = ", ".join(
                f"{c}: {len(here.get(c, []))} in {split}/, {len(classes.get(c, []))} in {name}/" for c in missing
            )
            raise UserError(f"{folder}: every class has to be in every split, but images of {counts}")
    return image_files_source(found[split], split, f"folder {folder / split}", folder / split)


def image_files_source(classes: dict[str, list[Path]], split: str, words: str, folder: Path) -> Source:
    """Image files by class folder, in that order; `folder` is only for the messages."""
    names = [normal_name(name) for name in classes]
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise UserError(f"{folder}: two class folders both read as {doubled[0]!r}; rename one")
    if len(names) < 2:
        counts = ", ".join(f"{name}: {len(files)} images" for name, files in classes.items()) or "no class folder"
        raise UserError(f"{folder}: at least two classes are needed, one sub-folder each, but found {counts}")
    empty = [name for name, files in classes.items() if not files]
    if empty:
        counts = ", ".join(f"{name} {len(files)}" for name, files in classes.items())
        raise UserError(f"{folder}: no images in {', '.join(empty)} (images a class: {counts})")
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
    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.identity = json.dumps(["files", [file_identity(file) for file in files]])

    def where(self, row: int) -> str:
        return str(self.files[row])

    def read(self, rows: Sequence[int]) -> list[bytes]:
        try:
            return [self.files[row].read_bytes() for row in rows]
        except OSError as error:
            raise UserError(
                f"{error.filename}: cannot be read ({error.strerror}); it was there at the start"
            ) from error


# -------------------------------------------------------------------------------------------------------------- digits


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


class ArrayRows:
    """Pixels in memory: nothing to decode, nothing to remember on disk."""

    identity = ""

    def __init__(self, pixels: np.ndarray, names: list[str]) -> None:
        self.pixels = pixels
        self.names = names

    def where(self, row: int) -> str:
        return self.names[row]

    def read(self, rows: Sequence[int]) -> list[np.ndarray]:
        return [self.pixels[row] for row in rows]
