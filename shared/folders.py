"""Images in class folders, on disk or in a zip: `<class>/<image>`, perhaps below folders of splits.

    photos/cat/1.jpg  photos/dog/2.jpg                        one split, called "all"
    photos/Train/cat/1.jpg  photos/Test/cat/7.jpg             a split for each folder with one of the hub's words for it

A class's images may lie in folders below its own. Links to folders are followed. Hidden files and folders (`.name`,
`__name`), dangling links, links back to a folder above, files that are not images: counted by kind and told, at every
depth. Where a folder may be a split or a class, neither is guessed: `--split all` reads every folder as a class.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from shared import hub
from shared.errors import UserError
from shared.sources import ALL, Collection, Rows, Source, normal_name, role

METADATA = {"metadata.csv", "metadata.jsonl", "metadata.parquet"}  # labels in a table: `datasets` reads these
TABLES = {".parquet", ".arrow"}  # hold the images too: images beside them are a page's decoration
WITHOUT_IMAGES = {".tar", ".zip", ".gz", ".csv", ".tsv", ".json", ".jsonl", ".ndjson"}  # tables where no image is
HIDDEN = "hidden"
LARGEST = 1 << 30  # bytes of one image file; a larger one is not an image that anyone means
Classes = dict[str, list[str]]  # class folder: its images' paths below the tree's place, sorted


@dataclass
class Tree:
    """What lies below `place`, a folder or a zip: images as paths with "/", all folders, the rest by why."""

    place: Path
    files: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    ignored: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_zip(self) -> bool:
        return self.place.suffix.lower() == ".zip" and self.place.is_file()

    def add(self, name: str) -> None:
        """A regular file by its path below `place`."""
        suffix = PurePosixPath(name).suffix.lower()
        if suffix in image_suffixes():
            self.files.append(name)
        else:
            self.ignored[f"{suffix} (not an image suffix)" if suffix else "without a suffix"].append(name)

    def ignored_words(self) -> str:
        """`12 .heic (not an image suffix), e.g. cat/1.heic; 1 hidden, e.g. cat/.ipynb_checkpoints`, or ""."""
        return "; ".join(f"{len(names)} {why}, e.g. {min(names)}" for why, names in sorted(self.ignored.items()))


def some(items: Sequence[str], most: int = 6) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


@functools.cache
def image_suffixes() -> set[str]:
    """Suffixes of the formats that `shared.data.decode` opens."""
    from PIL import Image

    from shared.data import formats

    return {suffix for suffix, kind in Image.registered_extensions().items() if kind in formats()}


def look_at(path: Path) -> Tree | None:
    """The images below a folder or in a zip; None where the labels are in a table, or there is no image at all."""
    tree = _in_zip(path) if path.suffix.lower() == ".zip" else _on_disk(path) if path.is_dir() else None
    return None if tree is None or _is_table(tree) else tree


def from_names(place: Path, names: Iterable[str]) -> Tree | None:
    """The same of the file names of a hub repository or a zip."""
    tree = Tree(place)
    for name in names:
        hidden = next((part for part in name.split("/") if part.startswith((".", "__"))), None)
        if hidden:
            tree.ignored[HIDDEN].append(name)
            continue
        tree.folders.update(str(folder) for folder in PurePosixPath(name).parents if str(folder) != ".")
        tree.add(name)
    tree.files.sort(key=lambda name: name.split("/"))
    return None if _is_table(tree) else tree


def _is_table(tree: Tree) -> bool:
    others = [PurePosixPath(name) for why, names in tree.ignored.items() if why != HIDDEN for name in names]
    suffixes = TABLES if tree.files else TABLES | WITHOUT_IMAGES
    return any(other.name in METADATA or other.suffix.lower() in suffixes for other in others)


def _on_disk(folder: Path) -> Tree:
    tree = Tree(folder)

    def visit(below: str, above: tuple[str, ...]) -> None:
        here = folder / below
        real = os.path.realpath(here)
        if real in above:
            tree.ignored["link to a folder above it"].append(below)
            return
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise UserError(f"{here}: cannot be read ({error.strerror}); change its permissions") from error
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith((".", "__")):
                tree.ignored[HIDDEN].append(name)
            elif entry.is_dir():
                tree.folders.add(name)
                visit(name, (*above, real))
            elif entry.is_file():
                tree.add(name)
            elif entry.is_symlink():
                tree.ignored["dangling link"].append(name)
            else:
                tree.ignored["not a regular file"].append(name)

    visit("", ())
    tree.files.sort(key=lambda name: name.split("/"))
    return tree


def _in_zip(path: Path) -> Tree | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path}: not a readable zip ({error}); make it again, or unpack it and name the folder"
        ) from error
    return from_names(path, names)


# Splits and classes --------------------------------------------------------------------------------------------------


def collection(tree: Tree, classes_only: bool, empty_classes: bool = False) -> Collection:
    """The splits of a tree, each with its classes. classes_only: every folder is a class. empty_classes: a class folder
    without an image is left out and noted, not refused."""
    base = _base(tree)
    splits = {ALL: _classes(tree, base)} if classes_only else _splits(tree, base)
    kind = "zip" if tree.is_zip else "folder"

    def load(split: str) -> Source:
        place = tree.place / base if split == ALL else tree.place / base / split
        classes, notes = splits[split], []
        if empty_classes and (empty := [name for name, files in classes.items() if not files]):
            classes = {name: files for name, files in classes.items() if files}
            notes = [f"class folders without an image, left out: {some(empty)}"]
        source = tree_source(tree, classes, split, f"{kind} {place}")
        source.notes[:0] = notes
        return source

    return Collection(str(tree.place), list(splits), load, "; --split all reads every folder as a class")


def tree_source(tree: Tree, classes: Classes, split: str, words: str) -> Source:
    """The images of a tree by class folder, in that order."""
    if not tree.is_zip:
        files = {name: [tree.place / file for file in of_class] for name, of_class in classes.items()}
        return files_source(files, split, words, tree.place, tree.ignored_words())
    rows = ZipRows(tree.place, [name for of_class in classes.values() for name in of_class])
    return _source(classes, split, words, rows, tree.place, tree.ignored_words())


def files_source(classes: dict[str, list[Path]], split: str, words: str, folder: Path, ignored: str = "") -> Source:
    """Image files by class folder, in that order; `folder` is only for the messages."""
    rows = FileRows([file for of_class in classes.values() for file in of_class])
    texts = {name: [file.name for file in files] for name, files in classes.items()}
    return _source(texts, split, words, rows, folder, ignored)


def _source(classes: Classes, split: str, words: str, rows: Rows, folder: Path, ignored: str) -> Source:
    names = [normal_name(name) for name in classes]
    counts = some([f"{name}: {len(files)} images" for name, files in classes.items()], 12) or "no class folder"
    notes = [f"ignored: {ignored}"] if ignored else []
    more = "".join(f"; {note}" for note in notes)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{folder}: two class folders both read as {twice[0]!r}; rename one")
    if len(names) < 2:
        raise UserError(f"{folder}: at least two classes are needed, one sub-folder each, but there is {counts}{more}")
    empty = [name for name, files in classes.items() if not files]
    if empty:
        raise UserError(f"{folder}: no images in {some(empty)} ({counts}){more}")
    labels = np.repeat(np.arange(len(names)), [len(of_class) for of_class in classes.values()]).astype(np.int64)
    files = [name.rpartition("/")[2] for of_class in classes.values() for name in of_class]
    return Source(split, words, rows, labels, names, files, list(classes), notes=notes)


def _splits(tree: Tree, base: str) -> dict[str, Classes]:
    """By split as it is called in the tree. UserError where a folder may be a split or a class."""
    groups = {name: files for name, files in _below(tree, base)[0].items() if files}
    depth = base.count("/") + bool(base) + 1
    flat = {name for name, files in groups.items() if any(file.count("/") == depth for file in files)}
    named = [name for name in groups if role(name)]
    splits = [name for name in named if name not in flat]
    unlabelled = [name for name in named if name in flat]
    others = [name for name in groups if name not in named]
    way_out = "--split all reads every folder as a class"
    if not splits:
        if not others and len({role(name) for name in named}) > 1:
            raise UserError(
                f"{tree.place}: {' and '.join(named)} hold images and no class folders; put one sub-folder per class "
                f"into each, or the labels into a metadata.csv; if these are the classes, {way_out}"
            )
        classes = _classes(tree, base)
        if _inside_all(groups, depth):
            # years, folds, "Trainset" and "Testset": each can be a split, and which is for what is not guessed
            return {name: _classes(tree, f"{base}/{name}" if base else name) for name in groups}
        return {ALL: classes}
    if others and len({role(name) for name in splits}) == 1:
        raise UserError(
            f"{tree.place}: is {splits[0]} a split or a class? Beside it are {some(others)}; {way_out}; if it is a "
            "split, take the other folders out"
        )
    for why, names in (("in a split without class folders", unlabelled), ("beside the splits", others)):
        for name in names:
            tree.ignored[why] += groups[name]
    return {name: _classes(tree, f"{base}/{name}" if base else name) for name in splits}


def _inside_all(groups: Classes, depth: int) -> bool:
    """Whether every group has the same folders inside, two or more, and no image beside them."""
    inside = [{file.split("/")[depth] for file in files if file.count("/") > depth} for files in groups.values()]
    flat = any(file.count("/") == depth for files in groups.values() for file in files)
    return len(inside) > 1 and not flat and len(set.intersection(*inside)) > 1


def _base(tree: Tree) -> str:
    """The folder whose sub-folders are splits or classes: below a single folder around them all, if there is one."""
    base = ""
    while True:
        groups, loose = _below(tree, base)
        filled = [name for name, files in groups.items() if files]
        inside = f"{base}/{filled[0]}" if base and filled else "".join(filled[:1])
        if loose or len(filled) != 1 or role(filled[0]) or _below(tree, inside)[1]:
            return base
        base = inside


def _below(tree: Tree, folder: str) -> tuple[Classes, list[str]]:
    """The images by the folder just below `folder` that they lie in; and those that lie in none."""
    start = len(folder) + 1 if folder else 0
    parents = (name.rpartition("/") for name in tree.folders)
    groups: Classes = {name: [] for name in sorted(name for parent, _, name in parents if parent == folder)}
    loose = []
    for file in tree.files:
        if not folder or file.startswith(f"{folder}/"):
            name, slash, _ = file[start:].partition("/")
            groups[name].append(file) if slash else loose.append(file)
    return groups, loose


def _classes(tree: Tree, folder: str) -> Classes:
    """Class folder: its images. UserError where the splits lie inside of the class folders."""
    classes, loose = _below(tree, folder)
    if loose:
        tree.ignored["outside of the class folders"] += loose
    depth = folder.count("/") + bool(folder) + 1
    inner = {file.split("/")[depth] for files in classes.values() for file in files}
    if len({role(name) for name in inner} - {None}) > 1 and all(map(role, inner)):
        first, second, *_ = sorted(inner)
        raise UserError(
            f"{tree.place}: {first} and {second} lie inside of the class folders; put the splits first: "
            f"{first}/{next(iter(classes))}/..."
        )
    return classes


# Reading -------------------------------------------------------------------------------------------------------------


class FileRows:
    """Every image is a file of its own."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.identity = json.dumps(["files", [hub.file_identity(file) for file in files]])

    def where(self, row: int) -> str:
        return str(self.files[row])

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [read_file(self.files[row]) for row in rows]


def read_file(file: Path) -> bytes:
    """A file that was seen before. UserError when it is gone or too large for an image."""
    try:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if size > LARGEST:
                raise UserError(f"{file}: {size:,} bytes are no image; take it out")
            return opened.read()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}); it was there at the start") from error


class ZipRows:
    """Images in a zip, read one by one; nothing is unpacked."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path, self.names = path, names
        self.identity = json.dumps(["zip", hub.file_identity(path), names])
        self._archive = zipfile.ZipFile(path)
        self._lock = threading.Lock()

    def where(self, row: int) -> str:
        return f"{self.path}: {self.names[row]}"

    def read(self, rows: Sequence[int]) -> list[bytes]:
        return [self._read(row) for row in rows]

    def _read(self, row: int) -> bytes:
        name = self.names[row]
        size = self._archive.getinfo(name).file_size
        if size > LARGEST:
            raise UserError(f"{self.where(row)}: {size:,} bytes are no image; take it out")
        try:
            with self._lock:
                return self._archive.read(name)
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:  # a password, ...
            raise UserError(f"{self.where(row)}: cannot be read ({error}); make the zip again") from error
