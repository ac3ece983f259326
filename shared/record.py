"""One run's evidence: the screen's lines as a log, the numbers and their origin as JSON, written whole at the end.

    results/<paper>/<experiment>.log    exactly what was said
    results/<paper>/<experiment>.json   schema, question, provenance, results, verdicts, figures, what this cannot show

Nothing is written when the run fails: the earlier result stays. So it does where another script made it (the run is
refused before it starts), and where this run has less to show: then it is written beside, as `<experiment>-part`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from shared import verdict as verdicts
from shared.errors import UserError
from shared.paths import ROOT, atomic_write_all, require_writable, results_dir
from shared.provenance import git_state, machine, package_versions, peak_memory_mb
from shared.published import Number, Published
from shared.result import (
    RUN_AGAIN,
    SCHEMA,
    Figure,
    File,
    Images,
    Model,
    Provenance,
    Result,
    Table,
    TrainingRun,
    read_raw,
    read_result,
)
from shared.schema import checked, sealed
from shared.text import WIDTH, folded, notice, printable, quoted, say

if TYPE_CHECKING:
    from shared.data import ImageSet
    from shared.models import Identity

LONGEST_NAME = 235  # bytes; most file systems take 255, and a temporary file has 18 more than the name
SHORTEST_PART = 10  # characters of a word that is broken, in a table that fits in no other way
PARTS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[\w)][_./,-])(?=\w)")
TIME_FIELDS = ("started", "duration_s", "peak_memory_mb")  # all that may differ between two equal runs


class Record:
    """A context manager; see the module's docstring. Units: seconds, MB (10^6 bytes)."""

    def __init__(
        self,
        paper: str,
        experiment: str,
        *,
        config: Any = None,
        question: str = "",
        results: Path | None = None,
        quiet: bool = False,
    ):
        require_plain(experiment)
        self.paper, self.experiment, self.question, self.quiet = paper, experiment, question, quiet
        self.directory = Path(results or results_dir()) / paper
        self.figures_dir = self.directory / "figures"
        self.config = config
        self.seed: int | None = None
        self.results: dict[str, Any] = {}
        self.verdicts: list[verdicts.Verdict] = []
        self.lines: list[str] = []
        self._discarded = False
        self._answer = self._closing = ""
        self._figures: list[Figure] = []
        self._tables: list[Table] = []
        self._files: list[File] = []
        self._origin = Provenance(started="", script=_caller())

    def __enter__(self) -> Self:
        self._require_own()
        self._clock = time.perf_counter()
        self._origin.started = datetime.now(UTC).isoformat(timespec="seconds")
        # an unwritable folder is found out now, not after an hour of work
        require_writable(self.directory / f"{self.experiment}.json")
        return self

    def discard(self) -> None:
        """Write nothing at the end: for a process that only helps another one, or a run that was stopped on purpose."""
        self._discarded = True

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if kind is None and not self._discarded:
            self.write()

    # what the reader sees -------------------------------------------------------------------------------------------

    def say(self, text: str = "", *, exact: bool = False) -> None:
        """One line or several, to the screen and the log alike; what would command a terminal stands as an escape.

        A line of more than `WIDTH` characters is broken. exact: it stays, because it has a publication's own form.
        """
        text = printable(text, keep="\n\t")
        text = text if exact else folded(text)
        self.lines += text.split("\n")
        if not self.quiet:
            try:
                say(text)
            except OSError as error:
                # whoever read the screen left (`| head`), or it is full: the work and its record go on
                self.quiet = True
                if not isinstance(error, BrokenPipeError):
                    notice(f"the screen's output stops here: {error.strerror}; the log is complete")
                with suppress(OSError, ValueError):  # what is left in the buffer must not fail at exit
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def section(self, title: str, *, exact: bool = False) -> None:
        """A blank line and `== title ==`; exact: as in `say`."""
        self.say(f"\n== {printable(title)} ==", exact=exact)

    def answer(self, text: str) -> None:
        """What came out, in a sentence or two for somebody who reads no table: the answer to `question`."""
        self._answer = text
        self.say(f"\nThe answer: {text}")

    def cannot_show(self, text: str) -> None:
        """The closing line: what this experiment cannot show."""
        self._closing = text
        self.say(f"\nWhat this cannot show: {text}")

    # what the numbers came from -------------------------------------------------------------------------------------

    def use_device(self, device: str, dtype: str, reason: str) -> None:
        self._origin.device, self._origin.dtype, self._origin.reason = device, dtype, reason

    def use_data(
        self, name: str, *, split: str, source: str, images: int, fingerprint: str, stand_in: str | None = None
    ) -> None:
        """Images used; the arguments are those of `shared.result.Images`."""
        self._origin.data.append(Images(name, split, source, images, fingerprint, stand_in))

    def use_images(
        self,
        images: ImageSet,
        name: str | None = None,
        split: str | None = None,
        count: int | None = None,
        of: ImageSet | None = None,
    ) -> None:
        """Images used; name, split and count where they are not the set's own. of: the set they were chosen from."""
        name, split, count = name or images.name, split or images.split, len(images) if count is None else count
        self._origin.data.append(
            Images(name, split, images.source, count, images.fingerprint, images.stand_in, images.assumed())
        )

    def say_assumed(self) -> None:
        """What was assumed of the images that `use_images` has named, a line each."""
        for line in dict.fromkeys(line for images in self._origin.data for line in images.assumed):
            self.say(f"  {line}")

    def use_model(self, name: str, **origin: str | None) -> None:
        """A model used; `origin`: the further fields of `shared.result.Model`."""
        self._origin.models.append(Model(name, **origin))

    def use_identity(self, identity: Identity, name: str | None = None, preprocessing: str | None = None) -> None:
        """`use_model` for a model's identity; name and preprocessing where they are not the model's own."""
        keys = ("revision", "weights_sha256", "stand_in", "transform_from")
        same = {key: getattr(identity, key) for key in keys}
        self.use_model(name or identity.name, preprocessing=preprocessing or identity.preprocessing, **same)

    def use_run(self, path: Path, seed: int | None = None, starts: Sequence[str] = ()) -> str:
        """A training's file below `directory`, with its starts in words; returns the name that verdicts give it."""
        name = self._below(path)
        if name not in [run.path for run in self._origin.runs]:
            digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            self._origin.runs.append(TrainingRun(path=name, sha256=digest, seed=seed, starts=list(starts)))
        return name

    # what the report shows besides the verdicts -------------------------------------------------------------------

    def figure(
        self,
        path: Path,
        caption: str,
        *,
        kind: Literal["figure", "gallery"] = "figure",
        alt: str = "",
        data: str = "",
    ) -> None:
        """An image that was written below `directory`. The first one is the answer to `question`.

        gallery: photographs, shown at full width. alt, data: see `shared.result.Figure`.
        """
        self._figures.append(Figure(self._below(path), caption, kind, alt, data))

    def table(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, note: str = "", group: str = ""
    ) -> None:
        """A measured table. Cells: text in the log's format, numbers (shown with 4 digits), None (blank).

        Tables of one `group` stand side by side. ValueError when a row has not one cell per column.
        """
        self._tables.append(Table(title, list(columns), [list(row) for row in rows], note, group))

    def say_table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        left: Sequence[int] = (0,),
        lines: Sequence[str] | None = None,
        exact: bool = False,
        note: str = "",
        group: str = "",
    ) -> None:
        """A measured table, written once: aligned text for the screen and the log, the cells for the JSON and the page.

        left: the columns aligned to the left. lines: the log's text where it has a form of its own, as in an article
        (exact: as in `say`); the cells go to the JSON and the page all the same.
        """
        rows = [list(row) for row in rows]
        self.table(title, columns, rows, note=note, group=group)
        self.say("\n".join(aligned(columns, rows, left) if lines is None else lines), exact=exact)

    def file(self, path: Path, caption: str) -> None:
        """Another file that was written below `directory`, to be linked to: a page, a CSV."""
        self._files.append(File(self._below(path), caption))

    def _below(self, path: Path) -> str:
        return Path(path).relative_to(self.directory).as_posix()

    # what became of the published numbers ---------------------------------------------------------------------------

    def judge(self, number: Number, measured: verdicts.Measured | float | str | None, **more: Any) -> verdicts.Verdict:
        """`shared.verdict.judge`, kept in the record."""
        verdict = verdicts.judge(number, measured, **more)
        self.verdicts.append(verdict)
        return verdict

    def judge_all(
        self,
        published: Published,
        numbers: Mapping[str, verdicts.Measured | float | str | None],
        why_not_run: str | Callable[[Number], str],
    ) -> None:
        """A verdict for every number of `published`, in its order; `numbers` are the measured ones by its ids.

        why_not_run: the reason for those that `numbers` lacks or has as None. Ids that nothing is published for are
        left alone: a run may measure more than was printed.
        """
        for id, number in published.numbers.items():
            measured = numbers.get(id)
            if not isinstance(measured, verdicts.Measured):
                measured = verdicts.Measured(measured)
            if measured.value is None and not measured.why_not_run:
                why = why_not_run if isinstance(why_not_run, str) else why_not_run(number)
                measured = verdicts.Measured(None, why_not_run=why)
            self.judge(number, measured)

    def contradictions(self, found: Iterable[Mapping[str, str]]) -> None:
        """What is wrong in print: the fields of `shared.result.Contradiction`. They are counted, not judged."""
        self.results["contradictions"] = [dict(one) for one in found]

    @property
    def differs(self) -> int:
        """How many verdicts differ (for --strict)."""
        return sum(v.verdict == verdicts.DIFFERS for v in self.verdicts)

    def print_verdicts(self) -> None:
        """A section of its own: the counts, then a line for each verdict, what differs first.

        Those that are `equal` get a line with the option --show-equal only. Of those not comparable and those not run
        each reason is said once.
        """
        self.section("verdicts: published against measured")
        self.say(f"  {count_line(v.verdict for v in self.verdicts)}")
        listed = [verdicts.DIFFERS, verdicts.UNDECIDED, verdicts.AGREES]
        listed += [verdicts.EQUAL] * bool(getattr(self.config, "show_equal", False))
        for name in listed:
            for v in self.verdicts:
                if v.verdict == name:
                    self.say(f"  {printable(v.line())}")
        for name in (verdicts.NOT_COMPARABLE, verdicts.NOT_RUN):
            by_reason: dict[str, list[verdicts.Verdict]] = {}
            for v in self.verdicts:
                if v.verdict == name:
                    by_reason.setdefault(v.reason, []).append(v)
            for reason, those in by_reason.items():
                self.say(f"  {len(those)} {name}: {reason}")
                if name == verdicts.NOT_COMPARABLE:
                    self.say("\n".join(f"    {printable(v.numbers())}" for v in those))

    # writing and reading --------------------------------------------------------------------------------------------

    def as_json(self) -> dict:
        """The record as it is written."""
        origin = self._origin
        origin.command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        origin.config, origin.seed = self.config, self.seed
        origin.packages, origin.python = package_versions(), platform.python_version()
        origin.machine, origin.git = machine(), git_state()
        origin.duration_s = round(time.perf_counter() - self._clock, 3)
        origin.peak_memory_mb = peak_memory_mb()
        return _plain(
            Result(
                schema=SCHEMA,
                paper=self.paper,
                experiment=self.experiment,
                question=self.question,
                answer=self._answer,
                provenance=origin,
                results=self.results,
                verdicts=self.verdicts,
                figures=self._figures,
                tables=self._tables,
                files=self._files,
                cannot_show=self._closing,
            )
        )

    def write(self) -> None:
        """Log and JSON, both or neither; the JSON last, because it is what others read."""
        if lost := self._lost():
            whole, self.experiment = self.experiment, f"{self.experiment}-part"
            self.say(
                f"\n{self.directory / whole}.json is kept: it has {lost} that this run has not; this run is in "
                f"{self.experiment}.json and .log beside it (delete the former to replace it)"
            )
        stem = self.directory / self.experiment
        log = ("\n".join(self.lines).strip("\n") + "\n").encode("utf-8", "backslashreplace")
        content = sealed({**self.as_json(), "log_sha256": hashlib.sha256(log).hexdigest()})
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        atomic_write_all({stem.with_name(f"{stem.name}.log"): log, stem.with_name(f"{stem.name}.json"): f"{text}\n"})

    def _earlier(self) -> Result | None:
        """The result that this one would replace; None where there is none that can be read."""
        path = self.directory / f"{self.experiment}.json"
        with suppress(UserError):
            return read_result(path) if path.is_file() else None

    def _require_own(self) -> None:
        """Raise UserError where another script's result has this experiment's name."""
        earlier = self._earlier()
        if earlier and earlier.script not in ("", Path(self._origin.script).name, Path(sys.argv[0]).name):
            raise UserError(
                f"{self.directory / self.experiment}.json: was made by {earlier.script}, and this is "
                f"{Path(self._origin.script).name}; choose another --experiment or --results, or delete the file"
            )

    def _lost(self) -> str:
        """What the earlier result has and this run has not, in words: measurements, figures; "" for nothing."""
        earlier = self._earlier()
        if earlier is None:
            return ""
        missing = {(v.source, v.id) for v in self.verdicts if v.verdict == verdicts.NOT_RUN}
        had = sum(v.verdict != verdicts.NOT_RUN and (v.source, v.id) in missing for v in earlier.verdicts)
        lost = [f"{had} measured number{'s' * (had > 1)}"] * bool(had)
        lost += [f"{len(earlier.figures)} figures"] * bool(earlier.figures and not self._figures)
        return " and ".join(lost)

    @staticmethod
    def load(path: Path) -> dict:
        """A result as a dictionary. Raises `UserError` naming the file: absent, damaged, or of another schema."""
        data = read_raw(path)
        checked(data, Result, path, RUN_AGAIN)
        return data


def require_plain(experiment: str, option: str = "--experiment") -> None:
    """Raise UserError unless an experiment's name can be a file's: no folder in it, not hidden, no option, not long."""
    odd = printable(experiment) != experiment or len(experiment.encode()) > LONGEST_NAME
    if not experiment or odd or Path(experiment).name != experiment or experiment[0] in ".-":
        raise UserError(f"{option} {quoted(experiment)}: expected a short plain name, it becomes a file's")


def aligned(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], left: Sequence[int] = (0,), width: int = WIDTH
) -> list[str]:
    """A table in plain text, two spaces in front and between; the columns `left` are aligned left, others right.

    Where it is wider than `width`, its head and its cells on the left take several lines.
    """
    return [line for lines in row_lines(columns, rows, left, width) for line in lines]


def row_lines(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], left: Sequence[int] = (0,), width: int = WIDTH
) -> list[list[str]]:
    """The lines of `aligned`, apart for the head and for each row."""
    cells = [["" if cell is None else printable(cell) for cell in row] for row in [columns, *rows]]
    widths = _widths(cells, left, width)
    sides = ["<" if at in left else ">" for at in range(len(columns))]
    found = []
    for row in cells:
        parts = [_in_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
        high = max(map(len, parts))
        empty = [[""] * (high - len(part)) for part in parts]
        # a head stands right above its column, a cell begins where its row begins
        parts = [e + p if row is cells[0] else p + e for p, e in zip(parts, empty, strict=True)]
        lines = [
            [f"{p:{side}{w}}" for p, side, w in zip(line, sides, widths, strict=True)]
            for line in zip(*parts, strict=True)
        ]
        found.append([f"  {'  '.join(line)}".rstrip() for line in lines])
    return found


def _widths(cells: list[list[str]], left: Sequence[int], width: int) -> list[int]:
    """The columns' widths. Where those of their cells are too much in all the widest are made narrower: first heads are
    broken, then cells on the left, at last words in them."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    bodies = [max(map(len, column[1:]), default=0) for column in columns]
    heads = [max(map(len, _words(column[0]))) for column in columns]
    words = [max(len(word) for cell in column for word in _words(cell)) for column in columns]
    for smallest in (bodies, words, [SHORTEST_PART] * len(columns)):
        least = [max(n if at in left else bodies[at], heads[at]) for at, n in enumerate(smallest)]
        while sum(widths) + 2 * len(widths) > width:
            wide = [at for at in range(len(widths)) if widths[at] > least[at]]
            if not wide:
                break
            widths[max(wide, key=lambda at: widths[at])] -= 1
    return widths


def _words(cell: str) -> list[str]:
    """Where a cell may be broken; a shape such as 3 × 224 × 224 is one word."""
    return re.split(r"(?<!×) (?!×)", cell)


def _in_lines(cell: str, width: int) -> list[str]:
    """`cell` as lines of at most `width` characters."""
    if len(cell) <= width:
        return [cell]
    lines = [""]
    for word in _words(cell):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + word
        while len(lines[-1]) > width:  # a name of code goes over the line at its parts: num_|heads, num|Heads
            at = max((m.start() for m in PARTS.finditer(lines[-1][: width + 1]) if m.start() <= width), default=width)
            lines[-1:] = [lines[-1][:at], lines[-1][at:]]
    return lines


def count_line(names: Iterable[str] | Counter) -> str:
    """`12 equal, 3 agrees, 0 differs, 0 not comparable, 5 not run`, of verdicts or of their counts.

    Undecided ones are named where there are any; logs of before do not know them.
    """
    counts = Counter(names)
    shown = [name for name in verdicts.VERDICTS if counts[name] or name != verdicts.UNDECIDED]
    return ", ".join(f"{counts[name]:,} {name}" for name in shown)


def _caller() -> str:
    """The file that opens a record, from the repository's root, or its name outside of it."""
    file = Path(sys._getframe(2).f_globals.get("__file__") or "")
    return file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name


def _plain(value: Any) -> Any:
    """JSON types: dataclasses become objects, paths texts, arrays lists; NaN becomes null."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
