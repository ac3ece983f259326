"""A result file, `results/<paper>/<experiment>.json`: what it holds, and reading it. `shared.record` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from shared.errors import UserError
from shared.schema import checked, read_json
from shared.verdict import Verdict

SCHEMA = 1
RUN_AGAIN = "run the experiment again"


class Images(msgspec.Struct):
    """Images used. fingerprint: a sha256 over them and their labels, in order. stand_in: why they are not `name`'s.
    assumed: how classes, columns and splits were found, and what was left out."""

    name: str
    split: str
    source: str
    images: int
    fingerprint: str
    stand_in: str | None = None
    assumed: list[str] = []


class Model(msgspec.Struct):
    """A model used. `weights_sha256` as in `Identity`; preprocessing: its transform as one string.

    transform_from: where that was read, and which keys; "" where the suite pins it.
    """

    name: str
    revision: str | None
    weights_sha256: str | None
    preprocessing: str
    stand_in: str | None = None
    transform_from: str = ""


class TrainingRun(msgspec.Struct, kw_only=True):
    """A training whose files the result was made from, perhaps long after: a re-print names it too.

    path: its file, relative to the result's folder, with the sha256 of its bytes. starts: each start of the training in
    words (when, how long, on what, at which commit).
    """

    path: str
    sha256: str
    seed: int | None = None
    starts: list[str] = []


class Provenance(msgspec.Struct, kw_only=True):
    """Where the numbers come from: all that decided them, and the run's cost in seconds and MB (10^6 bytes).

    script: the file that made the result, from the repository's root; "" in results of before.
    """

    script: str = ""
    runs: list[TrainingRun] = []
    command: list[str] = []
    config: dict[str, Any] | None = None
    seed: int | None = None
    data: list[Images] = []
    models: list[Model] = []
    device: str | None = None
    dtype: str | None = None
    reason: str | None = None
    packages: dict[str, str] = {}
    python: str = ""
    machine: dict[str, Any] = {}
    git: dict[str, Any] = {}
    started: str
    duration_s: float | None = None
    peak_memory_mb: float | None = None


class Figure(msgspec.Struct):
    """A drawing or, as a `gallery`, photographs. Paths here and below are relative to the result's folder.

    alt: what it shows in words, for whoever does not see it. data: the script that drew it, and from what.
    """

    path: str
    caption: str = ""
    kind: Literal["figure", "gallery"] = "figure"
    alt: str = ""
    data: str = ""


class Table(msgspec.Struct):
    """A measured table. Cells: text in the log's format, a number, or None (blank)."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""
    group: str = ""  # tables of one group stand side by side

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: {len(self.columns)} columns, but a row of {len(row)}: {row}")


class File(msgspec.Struct):
    """Another file to link to: a page, a CSV."""

    path: str
    caption: str


class Contradiction(msgspec.Struct):
    """Something printed that other printed numbers, or arithmetic on them, contradict."""

    claim: str
    arithmetic: str
    where: str = ""


class Result(msgspec.Struct, kw_only=True):
    """One experiment's result. `results` is the experiment's own; the rest every result has.

    log_sha256: of the log beside it; "" in results of before.
    """

    schema: int
    paper: str
    experiment: str
    question: str = ""
    answer: str = ""
    provenance: Provenance
    results: dict[str, Any]
    verdicts: list[Verdict]
    figures: list[Figure] = []
    tables: list[Table] = []
    files: list[File] = []
    cannot_show: str = ""
    log_sha256: str = ""

    @property
    def contradictions(self) -> list[Contradiction]:
        """What the experiment found wrong in print (`Record.contradictions`)."""
        return [Contradiction(**one) for one in self.results.get("contradictions", [])]

    @property
    def script(self) -> str:
        """The name of the file that made it; "" where that is not known (a test, an interactive session)."""
        name = self.provenance.script or "".join(self.provenance.command[:1])
        return Path(name).name if name.endswith(".py") and not name.endswith("__main__.py") else ""


def read_result(path: Path) -> Result:
    """Raises `UserError` naming the file: absent, damaged, of another schema, or another experiment's by its name."""
    result = checked(read_raw(path), Result, path, RUN_AGAIN)
    if "contradictions" in result.results:
        checked(result.results["contradictions"], list[Contradiction], path, RUN_AGAIN, at="results/contradictions")
    if (result.paper, result.experiment) != (path.parent.name, path.stem):
        raise UserError(
            f"{path}: holds the result of {result.paper}/{result.experiment}, expected {path.parent.name}/{path.stem}; "
            "give it back its name or delete it"
        )
    return result


def read_raw(path: Path) -> dict:
    """A result file of this schema as a dictionary, its parts not yet checked. Raises `UserError` naming the file."""
    if Path(path).exists() and not Path(path).is_file():  # reading a pipe would wait for ever
        raise UserError(f"{path}: expected a result, this is no file; {RUN_AGAIN}")
    data = read_json(path, "result", RUN_AGAIN, seal=True)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise UserError(f"{path}: result of schema {schema!r}, this version reads {SCHEMA}; {RUN_AGAIN}")
    return data


def result_files(root: Path) -> list[Path]:
    """The result files of every paper below a results folder, in a fixed order."""
    return sorted(path for path in root.glob("*/*.json") if not path.name.startswith("."))
