"""Images of parquet files, read directly: row group by row group, without a second copy on the disk.

`datasets` reads the same rows (a test compares them), but first writes a copy of everything and takes most of a second
to import: benchmarks/reading.md has the figures. So it says what a repository's files mean (`shared.tables`), and the
images are read here.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared import columns, hub
from shared.errors import UserError
from shared.sources import Rows, Source, normal_names

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

NUMBERED = re.compile(r"-(\d{5})-of-(\d{5})")  # a part's number and how many parts there are
LFS_POINTER = b"version https://git-lfs"
MOST_COMPRESSED, ROOM = 1000, 64 << 20  # a row group may grow by this factor and by so many bytes
COPY = "missing from the copy; fetch it from the hub"


def words(place: hub.Folder, repository: str) -> str:
    """Where a repository's files were found, for the log."""
    return f"mirror {place.path}" if place.revision == hub.MIRROR else f"hub {repository} at {place.path.name}"


def split_files(names: list[str], where: str, folder: str, split: str) -> list[str]:
    """A known set's parquet files of a split, in order. UserError names a missing one.

    They are called `<folder>/<split>-00000-of-00002.parquet` and so on, `<folder>/<split>.parquet`, or
    `<folder>/<split>/0000.parquet` (the hub's own conversion).
    """
    stem = re.escape(f"{folder}/{split}" if folder else split)
    pattern = re.compile(rf"(.*/)?{stem}(-\d{{5}}-of-\d{{5}}[^/]*|/\d+)?\.parquet")
    files = sorted(name for name in names if pattern.fullmatch(name))
    if not files:
        expected = Path(where, folder, f"{split}-00000-of-00001.parquet")
        raise UserError(
            f"{expected}: {COPY}, or unset PAPERS_DATA / --data-root; on the hub itself name another split, or ask for "
            "its own conversion with revision refs/convert/parquet"
        )
    return complete(files, where)


def complete(files: list[str], where: str) -> list[str]:
    """The files, unless they are numbered and one is missing: UserError."""
    for file in files:
        if number := NUMBERED.search(Path(file).name):
            stem = file[: file.rindex(number[0])]
            there = {match[1] for other in files if other.startswith(stem) and (match := NUMBERED.search(other))}
            for part in range(min(int(number[2]), len(files) + 1)):
                if f"{part:05d}" not in there:
                    raise UserError(f"{Path(where, f'{stem}-{part:05d}-of-{number[2]}.parquet')}: {COPY}")
    return files


def source(
    files: list[Path],
    split: str,
    words: str,
    label: str | None = None,
    image: str | None = None,
    names: dict[str, list[str]] | None = None,
) -> Source:
    """Images of parquet files: a column of structs (bytes, path) or of bytes, and a label column (`shared.columns`).

    names: class names by column where the files do not have them. UserError when a file is damaged, a column is
    missing, a label lies outside the class names, or a file claims more rows than it has bytes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for file in files:
            _check_size(file, pq.read_metadata(file))
        schema = pq.read_schema(files[0])
        names = (names or {}) | class_names(schema)
        image, label = columns.choose(str(files[0]), schema, names, label, image)
        struct = pa.types.is_struct(schema.field(image).type)
        wanted = [*([f"{image}.path"] if struct else []), label]
        tables = [table for file in files for table in _tables(file, wanted)]
        table = pa.concat_tables(tables, promote_options="permissive")
        paths = columns.values(table.column(image).combine_chunks().field("path")) if struct else [None] * len(table)
        file_names = [path or f"{split}-{row:06d}" for row, path in enumerate(paths)]
        rows = ParquetRows(files, image, file_names, struct)
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{files[0]}: not a readable parquet file ({reason}); fetch it again{lfs(files[0])}") from error
    return labelled(rows, table.column(label), image, label, names.get(label), split, words, file_names)


def labelled(
    rows: Rows,
    column: pa.ChunkedArray,
    image: str,
    label: str,
    names: list[str] | None,
    split: str,
    words: str,
    file_names: list[str],
) -> Source:
    """A source from rows and their label column; rows without a label are left out, and that is noted."""
    labels, ids = columns.classes(column, label, words, rows.where, names)
    notes = [f"columns: image {image}, label {label}"]
    without = int((labels < 0).sum())
    if without == len(labels) > 0:
        raise UserError(
            f"{words}: no row of the split {split} has a label (column {label}); name another split: --split, "
            "--test-split, or another column: --label"
        )
    if without:
        kept = np.flatnonzero(labels >= 0)
        rows, labels, file_names = SomeRows(rows, kept), labels[kept], [file_names[row] for row in kept]
        notes.append(f"ignored: {without:,} rows without a label")
    return Source(split, words, rows, labels, normal_names(ids), file_names, ids, notes=notes)


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """The names of each ClassLabel column, from the `huggingface` entry of the file's metadata."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {column: list(map(str, it["names"])) for column, it in features.items() if "names" in it}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def opened(file: Path, wanted: Sequence[str]) -> pq.ParquetFile:
    """A parquet file. What the columns `wanted` hold once and name many times stays so in memory, as dictionaries.

    Not mapped: a mapped file would stay in the resident memory.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    leaves = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    named = [leaf for leaf in leaves if any(f"{leaf}.".startswith(f"{column}.") for column in wanted)]
    return pq.ParquetFile(file, metadata=metadata, read_dictionary=named)


def _tables(file: Path, wanted: list[str]) -> list[pa.Table]:
    """Some columns of a file, as stored where that can be read (`opened`)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = opened(file, wanted)
    with suppress(pa.ArrowNotImplementedError):  # a dictionary that its writer gave up half way, inside of a struct
        if reader.num_row_groups:
            return [reader.read_row_group(group, columns=wanted) for group in range(reader.num_row_groups)]
    return [pq.ParquetFile(file).read(columns=wanted)]


def _check_size(file: Path, metadata: pq.FileMetaData) -> None:
    """Images take bytes, and cannot be compressed much: no memory is asked for what a file of a few KB claims."""
    size, rows = file.stat().st_size, metadata.num_rows
    if rows > size:
        raise UserError(f"{file}: claims {rows:,} rows in {size:,} bytes, which cannot be images; fetch it again")
    for group in range(metadata.num_row_groups):
        whole = metadata.row_group(group).total_byte_size
        if whole > MOST_COMPRESSED * size + ROOM:
            raise UserError(
                f"{file}: row group {group} becomes {whole:,} bytes out of a file of {size:,}, which cannot be images; "
                "fetch it again"
            )


def lfs(file: Path) -> str:
    """A hint where the file is only git-lfs's pointer to the real one."""
    try:
        with open(file, "rb") as opened:
            pointer = opened.read(40).startswith(LFS_POINTER)
    except OSError:
        return ""
    return " (it is a git-lfs pointer, not the file: run `git lfs pull`)" if pointer else ""


class SomeRows:
    """Some of the rows of another source."""

    def __init__(self, rows: Rows, chosen: np.ndarray) -> None:
        self._rows, self._chosen = rows, chosen
        self.identity = json.dumps([rows.identity, "some", chosen.tolist()]) if rows.identity else ""

    def where(self, row: int) -> str:
        return self._rows.where(int(self._chosen[row]))

    def read(self, rows: Sequence[int]) -> list[bytes] | list[np.ndarray]:
        return self._rows.read(self._chosen[np.asarray(rows, np.int64)])


class ParquetRows:
    """Encoded images in parquet files: one row group at a time is in memory, its rows are read together.

    A file may hold equal images once and name them many times (dictionary encoding); so they stay in memory.
    """

    def __init__(self, files: list[Path], image: str, names: list[str], struct: bool = True) -> None:
        self.files, self.image, self.names, self.struct = files, image, names, struct
        self.identity = json.dumps(["parquet", image, [hub.file_identity(file) for file in files]])
        self._leaf = f"{image}.bytes" if struct else image
        self._open = [opened(file, [self._leaf]) for file in files]
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
                row = int(rows[position])
                value = column[int(row - self._starts[group])].as_py()
                result[position] = self._beside(row, self._groups[group][0]) if value is None else value
        return result

    def _beside(self, row: int, file: int) -> bytes:
        """The image that a row names without having its bytes: a file beside the parquet file."""
        from shared.folders import read_file

        folder = self.files[file].parent.resolve()
        path = (folder / self.names[row]).resolve()
        if path.is_relative_to(folder) and path.is_file():
            return read_file(path)
        raise UserError(
            f"{self.where(row)}: no bytes in the row, and no file {self.names[row]} in {folder}; copy the images "
            "there, or save the set with its images inside"
        )

    def _group(self, group: int) -> pa.Array:
        with self._lock:
            if self._held is None or self._held[0] != group:
                self._held = None  # two groups are never in memory at once
                file, number = self._groups[group]
                try:
                    table = self._read(file, number)
                except OSError as error:  # ArrowException's reading errors are OSErrors too
                    why = f"row group {number} is damaged ({error}); fetch the file again"
                    raise UserError(f"{self.files[file]}: {why}") from error
                column = table.column(0).combine_chunks()
                self._held = group, column.field("bytes") if self.struct else column
            return self._held[1]

    def _read(self, file: int, number: int) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return self._open[file].read_row_group(number, columns=[self._leaf])
        except pa.ArrowNotImplementedError:
            # the writer gave the dictionary up, as it does for images that are not all the same: no longer asked for
            self._open[file] = pq.ParquetFile(self.files[file])
            return self._open[file].read_row_group(number, columns=[self._leaf])
