"""Images whose targets stand in a list: a CSV or Parquet file of file names and classes, labels or numbers.

    file,target            file,target               file,height,width
    a.jpg,cat              a.jpg,cat;indoors         a.jpg,1.71,0.4
    b.jpg,dog              b.jpg,dog                 b.jpg,0.62,0.3

A class an image; several labels an image (divided by ; or |, or 0 and 1 in a column a label); numbers. Which of them it
is follows from the values, is told, and `--task` decides otherwise. A column `split` says which images train and test.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from shared.errors import UserError
from shared.folders import FileRows, some
from shared.sources import Source, role
from shared.text import printable

Task = Literal["classes", "labels", "number"]
FILES = ("file", "filename", "file_name", "image", "img", "path", "image_path", "filepath")
TARGETS = ("target", "label", "labels", "class", "category", "y")
NONE = {"", "na", "nan", "null", "none", "n/a"}  # a cell without a target
SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
LARGEST_CELL = 1 << 20  # characters


@dataclass
class Listed:
    """files: n paths. task, targets: int64 [n] (classes) or float64 [n, K]. names: of the classes, labels or columns.

    splits: n names of splits, or None. notes: what was assumed.
    """

    path: Path
    files: list[Path]
    task: Task
    targets: np.ndarray
    names: list[str]
    splits: list[str] | None
    notes: list[str] = field(default_factory=list)

    def source(self, rows: np.ndarray, split: str) -> Source:
        """The images `rows` as a source; its labels number the different targets, so that a fingerprint has them."""
        files = [self.files[row] for row in rows]
        numbered = self.targets[rows]
        names = self.names
        if self.task != "classes":
            values, numbered = np.unique(numbered, axis=0, return_inverse=True)
            names = [" ".join(f"{value:.9g}" for value in row) for row in values]
        labels = numbered.astype(np.int64).ravel()
        words = f"list {self.path}"
        return Source(split, words, FileRows(files), labels, names, [f.name for f in files], names, notes=[])


def is_list(path: Path) -> bool:
    """Whether a file holds names of images: a CSV always, a Parquet file where no column has images themselves."""
    if not path.is_file() or path.suffix.lower() not in SUFFIXES:
        return False
    if path.suffix.lower() != ".parquet":
        return True
    import pyarrow as pa
    import pyarrow.parquet as pq

    from shared.columns import holds_images

    try:
        return not any(map(holds_images, pq.read_schema(path).types))
    except (pa.ArrowException, OSError):
        return False  # whoever reads it says what is wrong with it


def read(path: Path, folder: Path, image: str, label: str, task: str, *, skip_missing: bool = False) -> Listed:
    """A list's images below `folder`. image, label: columns ("a,b": several); "" for those that can only be it.

    task: "auto" or a Task. skip_missing: leave out files that are not there. UserError with the row's number else.
    """
    columns = _read(path)
    count = len(next(iter(columns.values())))
    file_column = _file_column(path, columns, folder, image)
    target_columns = _target_columns(path, columns, file_column, label)
    notes = [f"columns: file {file_column}, target {', '.join(target_columns)}"]
    files = [folder / name.strip() for name in columns[file_column]]
    there = np.array([file.is_file() for file in files])
    if not there.all():
        absent = [f"row {row + 2}: {files[row]}" for row in np.flatnonzero(~there)]
        if not skip_missing:
            raise UserError(
                f"{path}: {len(absent)} of {count} files are not there, {some(absent, 3)}; name their folder with "
                "--data, or leave them out with --skip-bad"
            )
        notes.append(f"left out, no such file: {some(absent, 3)}")
    cells = [columns[name] for name in target_columns]
    task, why = (task, "asked for") if task != "auto" else _task(cells)
    notes.append(f"targets are {WORDS[task]} ({why}; --task decides otherwise)")
    has = np.array(
        [task == "labels" or all(c[row].strip().casefold() not in NONE for c in cells) for row in range(count)]
    )
    if not has.all():
        notes.append(f"left out, no target: {(~has).sum():,} rows")
    rows = np.flatnonzero(there & has)
    if not len(rows):
        raise UserError(f"{path}: no row has both a file and a target; columns are {', '.join(columns)}")
    notes = [printable(note) for note in notes]
    kept = [[c[row].strip() for row in rows] for c in cells]
    targets, names = _targets(path, kept, target_columns, task, rows)
    names = [printable(name) for name in names]
    splits = columns.get("split")
    if splits is not None and len({role(value) for value in splits} - {None}) < 2:
        splits = None  # one split, or a column of another meaning
    return Listed(
        path,
        [files[row] for row in rows],
        task,
        targets,
        names,
        splits and [splits[row].strip() for row in rows],
        notes,
    )


WORDS = {"classes": "classes, one an image", "labels": "labels, any number an image", "number": "numbers"}


def _read(path: Path) -> dict[str, list[str]]:
    """Every column as texts."""
    try:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            table = pq.read_table(path)
            columns = {
                name: ["" if v is None else str(v) for v in table[name].to_pylist()] for name in table.schema.names
            }
        else:
            columns = _read_csv(path)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    except (OSError, ValueError, csv.Error) as error:  # ArrowException is one or the other
        raise UserError(f"{path}: not a readable list ({' '.join(str(error).split())}); save it as CSV") from error
    if not columns or not next(iter(columns.values())):
        raise UserError(f"{path}: no rows; expected a line `file,target` and a line for each image")
    if len(columns) < 2:
        raise UserError(f"{path}: one column only ({next(iter(columns))}); expected file names and targets")
    return columns


def _read_csv(path: Path) -> dict[str, list[str]]:
    csv.field_size_limit(LARGEST_CELL)
    with open(path, encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        counts = {mark: first.count(mark) for mark in ("\t", ",", ";")}
        delimiter = max(counts, key=lambda mark: counts[mark])
        file.seek(0)
        lines = [line for line in csv.reader(file, delimiter=delimiter) if any(cell.strip() for cell in line)]
    if not lines:
        return {}
    head = [cell.strip() for cell in lines[0]]
    if len(set(head)) < len(head) or not all(head):
        raise UserError(f"{path}: the first line should name each column once, but is {', '.join(map(repr, head))}")
    odd = next((number for number, line in enumerate(lines, 1) if len(line) != len(head)), None)
    if odd:
        raise UserError(
            f"{path} line {odd}: {len(lines[odd - 1])} cells where the first line has {len(head)}; put text with the "
            f"mark {delimiter!r} in quotes"
        )
    return {name: [line[i] for line in lines[1:]] for i, name in enumerate(head)}


def _file_column(path: Path, columns: dict[str, list[str]], folder: Path, asked: str) -> str:
    if asked:
        return _there(path, columns, asked, "--image")
    usual = [name for name in columns if name.casefold() in FILES]
    found = usual or [name for name, cells in columns.items() if (folder / cells[0].strip()).is_file()]
    if len(found) != 1:
        first = next(iter(columns))
        if not found and _is_image_name(first):
            raise UserError(f"{path}: the first line names a file ({first}); put a line `file,target` above it")
        raise UserError(f"{path}: which column has the file names? There are {', '.join(columns)}; name one: --image")
    return found[0]


def _is_image_name(text: str) -> bool:
    from shared.folders import image_suffixes

    return Path(text).suffix.lower() in image_suffixes()


def _target_columns(path: Path, columns: dict[str, list[str]], file_column: str, asked: str) -> list[str]:
    if asked in columns:
        return [asked]
    if asked:
        return [_there(path, columns, name.strip(), "--label") for name in asked.split(",")]
    rest = [name for name in columns if name not in (file_column, "split")]
    usual = [name for name in rest if name.casefold() in TARGETS]
    found = rest if len(rest) == 1 else usual
    if len(found) != 1:
        raise UserError(
            f"{path}: which column is the target? There are {', '.join(rest)}; name one: --label, or several: "
            f"--label {','.join(rest[:2])}"
        )
    return found


def _there(path: Path, columns: dict[str, list[str]], name: str, option: str) -> str:
    if name not in columns:
        raise UserError(f"{path}: no column {name} among {', '.join(columns)}; {option} takes one of these")
    return name


def _task(cells: list[list[str]]) -> tuple[Task, str]:
    """What the texts are, and why."""
    values = {cell.strip() for column in cells for cell in column} - {""}
    values = {value for value in values if value.casefold() not in NONE}
    numbers = [number for value in values if (number := _number(value)) is not None]
    if len(numbers) == len(values):
        if len(cells) > 1 and set(numbers) <= {0.0, 1.0}:
            return "labels", "0 and 1 in several columns"
        if len(cells) > 1 or any(number != int(number) for number in numbers):
            return "number", "several columns of numbers" if len(cells) > 1 else "numbers with a fraction"
        return "classes", f"{len(values)} different whole numbers"
    if len(cells) == 1 and any(mark in value for value in values for mark in ";|"):
        return "labels", "divided by ; or |"
    return "classes", f"{len(values)} different texts"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _targets(
    path: Path, cells: list[list[str]], columns: Sequence[str], task: Task, rows: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    if task == "classes":
        if len(cells) > 1:
            raise UserError(f"{path}: {len(cells)} columns of classes ({', '.join(columns)}); name one: --label")
        names = sorted(set(cells[0]), key=lambda text: (_number(text) is None, _number(text) or 0.0, text))
        place = {name: i for i, name in enumerate(names)}
        return np.array([place[cell] for cell in cells[0]], np.int64), names
    if task == "labels" and len(cells) == 1 and not set(cells[0]) <= {"0", "1"}:
        sets = [{one.strip() for one in cell.replace("|", ";").split(";")} - {""} for cell in cells[0]]
        names = sorted(set().union(*sets))
        place = {name: i for i, name in enumerate(names)}
        targets = np.zeros((len(sets), len(names)))
        for row, own in enumerate(sets):
            targets[row, [place[name] for name in own]] = 1
        return targets, names
    numbers = [[_number(cell) for cell in column] for column in cells]
    for column, name, texts in zip(numbers, columns, cells, strict=True):
        allowed = (0.0, 1.0) if task == "labels" else None
        bad = next((i for i, v in enumerate(column) if v is None or (allowed and v not in allowed)), None)
        if bad is not None:
            expected = "0 or 1" if allowed else "a number"
            raise UserError(f"{path} row {rows[bad] + 2}: {name} is {texts[bad]!r}, expected {expected}; see --task")
    return np.array(numbers, np.float64).T, list(columns)
