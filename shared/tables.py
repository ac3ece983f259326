"""Images with their labels in tables, as `datasets` understands them.

Parquet, CSV and JSON (`metadata.csv` beside images), WebDataset tars, zips, `save_to_disk` folders, a repository's
README with configurations: which files make which split, under which names, is `datasets`' own answer. The images of
parquet files are then read directly (`shared.parquet`); for the others `datasets` makes its table in the cache folder.

Importing it takes most of a second, so only the functions here do it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from shared import columns, folders, hub, parquet, paths, process
from shared.errors import UserError
from shared.sources import ALL, Collection, Few, Source, role

if TYPE_CHECKING:
    import datasets

KINDS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
KINDS |= {".arrow": "arrow", ".tar": "webdataset", ".zip": "imagefolder"}
EXPECTED = "a folder or zip with one sub-folder per class, a parquet, arrow, CSV, JSON or tar file, or a saved data set"


def open_local(path: Path, label: str | None, image: str | None) -> Collection:
    """A folder or file of the user's that `datasets` reads. UserError where it finds nothing to read."""
    if path.is_dir() and any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return _open_saved(path, label, image)
    if path.is_dir():
        meaning = resolve(str(path), str(path))
    elif path.suffix.lower() in KINDS and path.is_file():
        meaning = Meaning(KINDS[path.suffix.lower()], {role(path.stem) or "train": [str(path)]}, {})
    else:
        raise UserError(f"{path}: not a data set; expected {EXPECTED}")

    def read(split: str, names: list[str]) -> Source:
        files = [Path(name) for name in names]
        return _told(_read(meaning, files, split, f"files of {path}", label, image), files)

    return _collection(str(path), meaning, read)


def open_repository(
    repository: str, configuration: str, root: Path | None, revision: str | None, label: str | None, image: str | None
) -> Collection:
    """A repository, from the mirror, the hub's cache or the network: only a split's own files are fetched."""
    found: list[Meaning | folders.Tree] = []

    def look(names: list[str], where: str) -> list[str]:
        """Find out what the file names mean, before anything is fetched."""
        local = Path(where).is_dir()
        tree = None if configuration else folders.from_names(Path(where), names)
        path = where if local else repository
        found[:] = [tree or resolve(path, where, configuration, None if local else revision)]
        return [name for name in names if name == "README.md"]

    place = hub.find(repository, look, kind="dataset", revision=revision, root=root)
    (meaning,) = found
    words = parquet.words(place, repository)
    if isinstance(meaning, folders.Tree):
        return _open_images(meaning, repository, revision, root)

    def read(split: str, chosen: list[str]) -> Source:
        if meaning.module == "parquet":
            parquet.complete([meaning.relative(file) for file in meaning.files[split]], str(place.path))
        names = [meaning.relative(file) for file in chosen]
        files = hub.find(repository, lambda *_: names, kind="dataset", revision=revision, root=root).files
        return _told(_read(meaning, files, split, words, label, image), files)

    return _collection(repository, meaning, read)


def _collection(where: str, meaning: Meaning, read: Callable[[str, list[str]], Source]) -> Collection:
    """The splits of `meaning`; `read(split, files)` reads some of a split's files."""

    def load_some(split: str, few: Few) -> Source:
        """File by file, in the order of the seed, until there are enough images."""
        files = meaning.files[split]
        order = np.random.default_rng(few.seed).permutation(len(files)).tolist()
        count, classes = 1, -1
        while True:
            source = read(split, [files[i] for i in sorted(order[:count])])
            found = len(np.unique(source.labels))
            # files may be sorted by class: as long as more of them bring new classes, there may be others
            if count == len(order) or (few.enough(source) and found == classes):
                break
            count, classes = min(2 * count, len(order)), found
        if count < len(order):
            source.notes.append(
                f"read {count} of the {len(order)} files of {split}, by seed {few.seed}, which are enough"
            )
        return source

    return Collection(where, list(meaning.files), lambda split: read(split, meaning.files[split]), load_some=load_some)


def _told(source: Source, files: Sequence[Path]) -> Source:
    """The source; of a split that is made of tables with several names, not only numbers, these are noted."""
    names = [file.name for file in files if file.suffix.lower() in KINDS and file.name not in folders.METADATA]
    if len({re.sub(r"\d+", "", name) for name in names}) > 1:
        source.notes.append(f"files of {source.split}: {folders.some(names)}")
    return source


def _open_images(tree: folders.Tree, repository: str, revision: str | None, root: Path | None) -> Collection:
    """Class folders in a repository: the splits are known from the names, and only a split's files are fetched."""
    collection = folders.collection(tree, classes_only=False)

    def load(split: str) -> Source:
        names = [name for name in tree.files if split == ALL or f"/{split}/" in f"/{name}"]
        tree.place = hub.find(repository, lambda *_: names, kind="dataset", revision=revision, root=root).path
        return collection.load(split)

    def load_some(split: str, few: Few) -> Source:
        names = [name for name in tree.files if split == ALL or f"/{split}/" in f"/{name}"]
        chosen = few.choose(names, [name.rpartition("/")[0] for name in names])
        place = hub.find(repository, lambda *_: chosen, kind="dataset", revision=revision, root=root).path
        source = folders.collection(replace(tree, place=place, files=chosen), classes_only=False).load(split)
        source.notes.append(f"read {len(chosen):,} of the {len(names):,} images of {split}, by seed {few.seed}")
        return source

    return Collection(repository, collection.splits, load, load_some=load_some)


@dataclass
class Meaning:
    """What `datasets` takes a folder's or repository's files for: its module, files by split, class names by column."""

    module: str
    files: dict[str, list[str]]
    names: dict[str, list[str]]
    base: str = ""

    def relative(self, file: str) -> str:
        """A file's path in its repository: of a local path, or of hf://datasets/owner/name@commit/path."""
        remote = re.fullmatch(r"hf://datasets/[^/]+/[^/]+?(@[^/]+)?/(.+)", file)
        return remote[2] if remote else Path(file).relative_to(Path(self.base).resolve()).as_posix()


def resolve(path: str, where: str, configuration: str = "", revision: str | None = None) -> Meaning:
    """Ask `datasets`. path: a local folder, or a repository on the hub. where: for messages."""
    options: dict[str, Any] = {"revision": revision, "cache_dir": str(cache())}
    with _asking(where) as datasets:
        if configuration and Path(path, configuration).is_dir() and configuration not in _configurations(path):
            builder = datasets.load_dataset_builder(path, data_dir=configuration, **options)
        else:
            builder = datasets.load_dataset_builder(path, configuration or None, **options)
    files = {str(split): list(map(str, of_split)) for split, of_split in (builder.config.data_files or {}).items()}
    features = builder.info.features or {}
    names = {column: list(map(str, kind.names)) for column, kind in features.items() if hasattr(kind, "names")}
    meaning = Meaning(_module(builder), files, names, path)
    if list(files) == ["train"] and builder.config.name.startswith("default"):
        meaning.files = _by_any_spelling(meaning, files["train"])
    if meaning.module == "parquet" and not configuration:
        _check_folders(meaning, where)
    return meaning


def _configurations(path: str) -> list[str]:
    import datasets

    return datasets.get_dataset_config_names(path)


def _module(builder: datasets.DatasetBuilder) -> str:
    return type(builder).__module__.rpartition(".")[2]


def _by_any_spelling(meaning: Meaning, files: list[str]) -> dict[str, list[str]]:
    """`datasets` knows the splits' words in lower case only, and takes all other files for training."""
    groups: dict[str, list[str]] = {}
    for file in files:
        parts = PurePosixPath(meaning.relative(file)).with_suffix("").parts
        groups.setdefault(next((part for part in map(role, parts) if part), "train"), []).append(file)
    return groups


def _check_folders(meaning: Meaning, where: str) -> None:
    """Several folders that each have files of a split may be configurations: the user says which."""
    for split, files in meaning.files.items():
        parents = {PurePosixPath(meaning.relative(file)).parent for file in files}
        places = {(parent.parent if role(parent.name) else parent).as_posix() for parent in parents}
        if len(places) > 1:
            choices = ", ".join(sorted(places))
            raise UserError(f"{where}: several configurations have a split {split} ({choices}); add :<configuration>")


def cache() -> Path:
    """Where `datasets` keeps its tables; can be deleted."""
    return paths.cache_dir() / "datasets"


@contextmanager
def _asking(where: str) -> Iterator[Any]:
    """`datasets`, quiet; what it raises becomes one line."""
    with process.quiet():
        import datasets

        shown = datasets.is_progress_bar_enabled() if hasattr(datasets, "is_progress_bar_enabled") else True
        datasets.disable_progress_bars()
        try:
            yield datasets
        except (UserError, KeyboardInterrupt, MemoryError):
            raise
        except ConnectionError:
            raise
        except Exception as error:  # each of its readers has its own
            cause = error.__cause__ or error
            reason = " ".join(str(cause).split()).removesuffix(".")
            reason = reason if len(reason) < 300 else reason[:300] + " ..."
            raise UserError(f"{where}: `datasets` cannot read it ({reason}); expected {EXPECTED}") from error
        finally:
            if shown:
                datasets.enable_progress_bars()


# Reading -------------------------------------------------------------------------------------------------------------


def _read(meaning: Meaning, files: list[Path], split: str, words: str, label: str | None, image: str | None) -> Source:
    """The images of a split's files, which are on this machine."""
    if meaning.module == "parquet":
        return parquet.source(files, split, words, label, image, meaning.names)
    given = {split: [str(file) for file in files]}
    options = {"sep": "\t"} if meaning.module == "csv" and files[0].suffix == ".tsv" else {}
    with _asking(words) as datasets:
        table = datasets.load_dataset(meaning.module, data_files=given, split=split, cache_dir=str(cache()), **options)
    identity = json.dumps(["datasets", meaning.module, [hub.file_identity(file) for file in files]])
    return _table_source(table, identity, split, words, label, image, meaning.names)


def _open_saved(path: Path, label: str | None, image: str | None) -> Collection:
    """A folder that `save_to_disk` wrote: a data set, or several by split."""
    with _asking(str(path)) as datasets:
        saved = datasets.load_from_disk(str(path))
    tables = dict(saved) if isinstance(saved, dict) else {str(saved.split or "all"): saved}

    def load(split: str) -> Source:
        table = tables[split]
        files = [Path(file["filename"]) for file in table.cache_files]
        identity = json.dumps(["saved", [hub.file_identity(file) for file in files]])
        return _table_source(table, identity, split, f"saved data set {path}", label, image, {})

    return Collection(str(path), list(map(str, tables)), load)


def _table_source(
    table: datasets.Dataset,
    identity: str,
    split: str,
    words: str,
    label: str | None,
    image: str | None,
    names: dict[str, list[str]],
) -> Source:
    """A source of a `datasets` table: the columns chosen, its images not decoded by it."""
    import datasets

    names = names | {c: list(map(str, kind.names)) for c, kind in table.features.items() if hasattr(kind, "names")}
    schema = table.features.arrow_schema
    image, label = columns.choose(words, schema, names, label, image)
    if isinstance(table.features[image], datasets.Image):
        table = table.cast_column(image, datasets.Image(decode=False))
    labels = table.select_columns([label]).with_format("arrow")[:].column(label)
    pictures = table.select_columns([image]).with_format("arrow")
    rows = TableRows(pictures, image, split, words, identity)
    return parquet.labelled(rows, labels, image, label, names.get(label), split, words, rows.names)


class TableRows:
    """Encoded images in a `datasets` table, which lies on the disk and is read row by row."""

    def __init__(self, table: datasets.Dataset, image: str, split: str, words: str, identity: str) -> None:
        import pyarrow as pa

        self._table, self._image, self._words, self.identity = table, image, words, identity
        column = table.data.column(image)
        self._struct = pa.types.is_struct(column.type)
        chunks = column.chunks if self._struct else []
        stored = [path for chunk in chunks for path in chunk.field("path").to_pylist()] or [None] * len(table)
        if table._indices is not None:  # a shuffled or filtered set
            stored = [stored[row] for row in table._indices.column(0).to_pylist()]
        self.paths = stored
        self.names = [PurePosixPath(path).name if path else f"{split}-{row:06d}" for row, path in enumerate(stored)]

    def where(self, row: int) -> str:
        return f"{self._words} row {row} ({self.names[row]})"

    def read(self, rows: Sequence[int]) -> list[bytes]:
        column = self._table[np.asarray(rows, np.int64)].column(self._image).to_pylist()
        return [self._bytes(int(row), value) for row, value in zip(rows, column, strict=True)]

    def _bytes(self, row: int, value: dict | bytes | None) -> bytes:
        data = value.get("bytes") if isinstance(value, dict) else value
        path = self.paths[row]
        if data is None and path and Path(path).is_file():
            return folders.read_file(Path(path))
        if data is None:
            raise UserError(f"{self.where(row)}: no bytes in the row, and no file {path or ''}; copy the images there")
        return data
