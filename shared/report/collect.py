"""Result files as what the page shows. A result that is absent, older or damaged is named, and stops nothing.

What an experiment asks, shows and cannot show stands in its own result. What a paper is called and in which order its
experiments are read stands in `papers/<paper>/paper.toml`, all of it optional:

    title = "A paper"     source = "where it was published"     url = "https://..."     order = 1
    [[sources]]           name = "the article"     title = "its title"     url = "https://..."
    [[experiments]]       name = "table1"   title = "Table 1"   run = "make table1"     optional = true
                          findings = "table1-findings.md", a file beside the result
    [groups]              "table1/1" = "a title for the ids of <source> that begin with <first part>"
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from shared.check import Summary, summarise
from shared.errors import UserError
from shared.paths import ROOT
from shared.published import KINDS, Kind
from shared.result import (
    RUN_AGAIN,
    Contradiction,
    Images,
    Model,
    Provenance,
    Result,
    Table,
    TrainingRun,
    read_result,
    result_files,
)
from shared.schema import read_toml
from shared.text import quoted
from shared.verdict import DIFFERS, UNDECIDED, Verdict

SPLIT = 30  # a source with more verdicts than this is split by the first part of its ids,
PART = 8  # if the parts then have at least so many each, on average


# papers --------------------------------------------------------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment as `paper.toml` lists it. `run` makes its result; an `optional` one is not missed.

    `findings`: a Markdown file beside the result, written by hand: what was looked into.
    """

    name: str
    title: str = ""
    run: str = ""
    optional: bool = False
    findings: str = ""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another work that the experiments speak of, and what they call it. `url` is empty where none is known."""

    name: str
    title: str
    url: str = ""


class Paper(msgspec.Struct, forbid_unknown_fields=True):
    """A paper's name (its folder's) and reading order; `groups` gives titles to `<source>/<first part of the id>`."""

    title: str = ""
    source: str = ""
    url: str = ""
    order: int = 100
    sources: list[Source] = []
    experiments: list[Entry] = []
    groups: dict[str, str] = {}
    name: str = ""
    problem: str = ""  # why its description cannot be read; its results are shown all the same

    @property
    def anchor(self) -> str:
        return f"paper-{slug(self.name)}"

    @property
    def entries(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in self.experiments}

    def title_of(self, experiment: str) -> str:
        entry = self.entries.get(experiment)
        return (entry.title if entry else "") or words(experiment)

    def in_order(self, names: list[str]) -> list[str]:
        """Experiments in the paper's reading order; those that it does not list come last."""
        return [*(name for name in self.entries if name in names), *(n for n in names if n not in self.entries)]


def read_papers(root: Path) -> list[Paper]:
    """Every `paper.toml` below `root`, by `order` and then by name. A damaged one has its `problem` instead."""
    papers = []
    for path in root.glob("*/paper.toml"):
        try:
            papers.append(read_paper(path))
        except UserError as error:
            name = path.parent.name
            papers.append(
                Paper(name=name, title=words(name), problem=str(error).replace(str(path), f"{name}/{path.name}"))
            )
    return sorted(papers, key=lambda paper: (paper.order, paper.name))


def read_paper(path: Path) -> Paper:
    """One description. UserError when it is damaged."""
    paper = read_toml(path, "paper's description", "README shows one under 'Add a paper'", Paper)
    paper.name, paper.problem = path.parent.name, ""
    paper.title = paper.title or words(paper.name)
    return paper


# what the page shows -------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One verdict with its place on the page. `beside`: what other experiments say of the number, by their titles."""

    verdict: Verdict
    anchor: str
    label: str
    beside: list[tuple[str, Verdict]] = field(default_factory=list)


@dataclass
class Group:
    """Verdicts of one source, or of one part of it; `reason` is set when all rows give the same one.

    origin: where the numbers were printed. open: not folded, because these are to be looked at.
    """

    title: str
    anchor: str
    rows: list[Row]
    reason: str = ""
    open: bool = False
    origin: str = ""

    @property
    def counts(self) -> Counter:
        return Counter(row.verdict.verdict for row in self.rows)


@dataclass
class Drawing:
    """One drawing with all its files: a PNG, an SVG and a PDF of one name are one. `href` and `name`: of the first.

    formats: (kind, link) of every file. alt, data: as of `shared.result.Figure`.
    """

    href: str
    caption: str
    name: str
    gallery: bool
    files: list[Path]
    alt: str = ""
    data: str = ""
    formats: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Experiment:
    """One result file. With a `problem` only the names are known."""

    paper: str
    name: str
    title: str
    anchor: str
    json_href: str
    run: str = ""
    problem: str = ""
    log_href: str = ""
    question: str = ""
    answer: str = ""
    cannot_show: str = ""
    beside: bool = False  # a variant: the verdicts of its numbers are another experiment's
    findings: str = ""  # Markdown
    groups: list[Group] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)
    tables: list[list[Table]] = field(default_factory=list)  # those of one list stand side by side
    files: list[dict[str, str]] = field(default_factory=list)  # href, caption
    provenance: list[tuple[str, list[str]]] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)  # what it found wrong in print
    by_kind: dict[Kind, Counter] = field(default_factory=dict)  # its verdicts by how they were reached

    @property
    def figure(self) -> Drawing | None:
        """The one that answers the question."""
        return next(iter(self.drawings), None)

    @property
    def counts(self) -> Counter:
        return self.counts_of(self.groups)

    @staticmethod
    def counts_of(groups: list[Group]) -> Counter:
        return sum((group.counts for group in groups), Counter())


@dataclass
class Contents:
    """Everything on the page. `absent`: experiments that a `paper.toml` names and that have no result.

    Counts over experiments are `summary`'s, those of `make check` and README; an experiment's own are of its result.
    """

    papers: list[Paper]
    experiments: list[Experiment]
    absent: list[tuple[Paper, Entry]]
    summary: Summary

    @property
    def counts(self) -> Counter:
        """Verdicts of all published numbers."""
        return self.summary.counts

    @property
    def problems(self) -> list[str]:
        """What cannot be read, shown or counted, a line per file."""
        shown = [e.problem for e in self.experiments if e.problem and f"{e.paper}/{e.name}" in self.summary.results]
        return [*self.summary.problems, *(paper.problem for paper in self.papers if paper.problem), *shown]

    def of(self, paper: Paper) -> list[Experiment]:
        return [e for e in self.experiments if e.paper == paper.name]

    def work(self, name: str, work: str) -> tuple[str, str]:
        """The title and the address ("": none) of a work whose numbers stand below the paper `name`."""
        paper = next((p for p in self.papers if p.name == name), Paper(name=name, title=name))
        for source in paper.sources:
            if source.name == work:
                return source.title, source.url
        alone = sum(key[0] == name for key in self.summary.coverage) == 1
        return (paper.title, paper.url) if alone or work == "the paper" else (f"{paper.title}: {work}", "")

    def title_of(self, paper: str, experiment: str = "") -> str:
        """A paper's title, or an experiment's."""
        if experiment:
            return next((e.title for e in self.experiments if (e.paper, e.name) == (paper, experiment)), experiment)
        return next((p.title for p in self.papers if p.name == paper), paper)


def collect(results: Path, output: Path, papers: Path = ROOT / "papers") -> Contents:
    """All results below `results`; links are relative to the page `output`. UserError when there is no such folder."""
    if not results.is_dir():
        raise UserError(f"{results}: no such results folder; run an experiment first (make tables takes a second)")
    paths = result_files(results)
    known = {paper.name: paper for paper in read_papers(papers)}
    for path in paths:
        known.setdefault(path.parent.name, Paper(name=path.parent.name, title=words(path.parent.name)))
    contents = Contents([], [], [], summarise(results, papers))
    for paper in known.values():
        own = {path.stem: path for path in paths if path.parent.name == paper.name}
        names = paper.in_order(list(own))
        experiments = [read_experiment(own[name], output, paper, contents.summary) for name in names]
        contents.papers += [paper] if experiments or paper.problem else []
        contents.experiments += experiments
        contents.absent += [(paper, e) for e in paper.entries.values() if e.name not in own and not e.optional]
    put_beside(contents)
    return contents


def put_beside(contents: Contents) -> None:
    """Below a number's row what other experiments say of it, under their own names; none of it is counted."""
    titles = {f"{e.paper}/{e.name}": e.title for e in contents.experiments}
    outcomes = {(o.number.source, o.number.id): o for o in contents.summary.outcomes}
    own = {o.result for o in outcomes.values()}
    for e in contents.experiments:
        name = f"{e.paper}/{e.name}"
        rows = [row for group in e.groups for row in group.rows]
        # numbers that no published file has are another problem, and stay in sight
        e.beside = name not in own and any((row.verdict.source, row.verdict.id) in outcomes for row in rows)
        for row in rows:
            outcome = outcomes.get((row.verdict.source, row.verdict.id))
            if outcome and outcome.result == name:
                others = [(titles.get(other, other), v) for other, v in outcome.others if v.measured is not None]
                row.beside = others


def read_experiment(path: Path, output: Path, paper: Paper, summary: Summary) -> Experiment:
    """One result file; a damaged one becomes an experiment with a `problem`."""
    name = path.stem
    base = Path(os.path.relpath(path.parent.resolve(), output.parent.resolve()))
    experiment = Experiment(
        paper.name,
        name,
        title=paper.title_of(name),
        anchor=slug(f"{paper.name} {name}"),
        json_href=_href(base / path.name),
        run=paper.entries[name].run if name in paper.entries else "",
    )
    try:
        return _filled(experiment, path, base, paper, summary)
    except UserError as error:
        # half of a result is not shown, nor where the folder lies on this machine
        return broken(experiment, str(error).replace(str(path), f"{paper.name}/{path.name}"))
    except Exception as error:  # whatever a file makes a reader trip over is this file's problem, not the page's
        return broken(experiment, f"{paper.name}/{path.name}: {type(error).__name__}: {error}; {RUN_AGAIN}"[:500])


def broken(experiment: Experiment, problem: str) -> Experiment:
    """The same with its names and a `problem`."""
    names = {key: getattr(experiment, key) for key in ("paper", "name", "title", "anchor", "json_href", "run")}
    return Experiment(**names, problem=problem)


def _filled(experiment: Experiment, path: Path, base: Path, paper: Paper, summary: Summary) -> Experiment:
    result, log = read_result(path), path.with_suffix(".log")
    experiment.drawings = _drawings(result, path, base)
    experiment.log_href = _href(base / log.name) if log.exists() else ""
    experiment.question = result.question or experiment.title
    experiment.answer = result.answer
    experiment.cannot_show = result.cannot_show
    experiment.findings = _findings(path, paper)
    experiment.groups = group_verdicts(result.verdicts, experiment.anchor, paper.groups, summary.origins)
    experiment.by_kind = {
        kind: Counter(v.verdict for v in result.verdicts if summary.kind_of(v) == kind) for kind in KINDS
    }
    tables: dict[object, list[Table]] = {}
    for i, table in enumerate(result.tables):
        if table.rows:  # a head without rows says nothing
            tables.setdefault(table.group or i, []).append(table)
    experiment.tables = list(tables.values())
    for file in result.files:
        _inside(path, file.path, "file")
        experiment.files.append({"href": _href(base / file.path), "caption": file.caption})
    experiment.contradictions = result.contradictions
    experiment.provenance = provenance(result.provenance)
    used = result.provenance.data + result.provenance.models
    stand_ins = [f"{item.name}: {item.stand_in}" for item in used if item.stand_in]
    experiment.stand_ins = list(dict.fromkeys(stand_ins))  # the parts of one data set say the same
    return experiment


def _inside(path: Path, name: str, what: str) -> Path:
    """The file `name` of the result `path`, which the page links to or shows. UserError outside the result's folder."""
    try:
        file = (path.parent / name).resolve()
        inside = file.is_relative_to(path.parent.resolve())
    except (OSError, ValueError, RuntimeError):  # no path: too long, a zero byte, links in a circle
        inside = False
    if not inside:
        raise UserError(f"{path}: {what} {quoted(name)} lies outside the results folder; {RUN_AGAIN}")
    return file


def _drawings(result: Result, path: Path, base: Path) -> list[Drawing]:
    drawings: dict[Path, Drawing] = {}
    for figure in result.figures:
        file = _inside(path, figure.path, "figure")
        name = Path(figure.path).as_posix()
        new = Drawing(
            _href(base / name), figure.caption, name, figure.kind == "gallery", [], figure.alt, figure.data, []
        )
        drawing = drawings.setdefault(file.with_suffix(""), new)
        # a drawing's other forms have its name; the result lists one of them, or several
        kinds = [file.suffix] if new.gallery else [file.suffix, ".png", ".svg", ".pdf"]
        files = [file, *(f for f in map(file.with_suffix, kinds) if f.exists())]
        for one in dict.fromkeys(f for f in files if f not in drawing.files):
            drawing.files.append(one)
            link = _href((base / name).with_suffix(one.suffix))
            drawing.formats += [(one.suffix[1:].upper(), link)] if one.exists() else []
    return list(drawings.values())


def _findings(path: Path, paper: Paper) -> str:
    entry = paper.entries.get(path.stem)
    file = _inside(path, entry.findings, "findings") if entry and entry.findings else None
    return file.read_text(encoding="utf-8", errors="replace") if file and file.is_file() else ""


def group_verdicts(
    verdicts: list[Verdict], prefix: str, titles: dict[str, str], origins: dict[str, str] | None = None
) -> list[Group]:
    """What differs, what is undecided, then by source, and a long source by the first part of its ids; in each the
    result's own order. origins: where a source was printed.
    """
    groups: list[Group] = []
    used: set[str] = set()
    for title, name in (("What differs", DIFFERS), ("What is undecided", UNDECIDED)):
        rows = []
        for v in (v for v in verdicts if v.verdict == name):
            where = words(v.source.rpartition("/")[2])
            anchor = unique(f"{prefix}--{slug(where)}--{slug(v.id)}", used)
            rows.append(Row(v, anchor, f"{where}: {v.id}" if where else v.id))
        if rows:
            groups.append(Group(title, unique(f"{prefix}--{slug(title)}", used), rows, open=True))
    verdicts = [v for v in verdicts if v.verdict not in (DIFFERS, UNDECIDED)]
    by_source: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_source.setdefault(verdict.source, []).append(verdict)
    for source, members in by_source.items():
        file = source.rpartition("/")[2]
        name = words(file) or "Published numbers"
        parts: dict[str, list[Verdict]] = {}
        for verdict in members:
            parts.setdefault(verdict.id.partition("/")[0], []).append(verdict)
        if len(members) <= SPLIT or not 1 < len(parts) <= len(members) / PART:
            parts = {"": members}
        for part, own in parts.items():
            anchor = unique(f"{prefix}--{slug(f'{name} {part}')}", used)
            rows = [
                Row(v, unique(f"{anchor}--{slug(v.id)}", used), v.id.removeprefix(f"{part}/") if part else v.id)
                for v in own
            ]
            title = name
            if part:  # alone where there is one source: its name would say nothing
                title = f"{name} · {part}" if len(by_source) > 1 else part[:1].upper() + part[1:]
            group = Group(titles.get(f"{file}/{part}", title), anchor, rows, origin=(origins or {}).get(source, ""))
            reasons = {row.verdict.reason for row in rows}
            group.reason = reasons.pop() if len(reasons) == 1 and len(rows) > 1 else ""
            groups.append(group)
    return groups


def provenance(origin: Provenance) -> list[tuple[str, list[str]]]:
    """Where a result's numbers come from, as (what, lines to read); what the result does not know is left out."""
    commit, seed, seconds, megabytes = origin.git.get("commit"), origin.seed, origin.duration_s, origin.peak_memory_mb
    changed = " with uncommitted changes" if origin.git.get("dirty") else ""
    packages = [f"{name} {version}" for name, version in origin.packages.items()]
    config = [f"{key} = {_value(value)}" for key, value in (origin.config or {}).items() if value is not None]
    lines: list[tuple[str, list[str]]] = [
        ("command", [shlex.join(["python", *origin.command])]),
        ("configuration", config),
        ("script", [origin.script]),
        ("trainings", [_run(run) for run in origin.runs]),
        ("seed", [] if seed is None else [str(seed)]),
        ("images", [_item(item) for item in origin.data]),
        ("weights", [_item(item) for item in origin.models]),
        ("device", [", ".join(text for text in (origin.device, origin.dtype, origin.reason) if text)]),
        ("machine", [", ".join(f"{key}: {value}" for key, value in origin.machine.items())]),
        ("versions", [", ".join([f"Python {origin.python}"] * bool(origin.python) + packages)]),
        ("code", [f"commit {commit}{changed}" if commit else "not in a git checkout"]),
        ("started", [origin.started]),
        ("took", [] if seconds is None else [f"{seconds} s"]),
        ("peak memory", [] if megabytes is None else [f"{megabytes} MB"]),
    ]
    return [(what, [line for line in each if line]) for what, each in lines if any(each)]


def _run(run: TrainingRun) -> str:
    seed = "" if run.seed is None else f"seed {run.seed}, "
    return f"{run.path} ({seed}sha256: {run.sha256}): {'; '.join(run.starts) or 'no note of the machine'}"


def _item(item: Images | Model) -> str:
    named = msgspec.structs.asdict(item)
    rest = [f"{key.replace('_', ' ')}: {value}" for key, value in named.items() if key != "name" and value is not None]
    return f"{item.name} ({', '.join(rest)})"


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# names as titles, anchors and links ----------------------------------------------------------------------------------


def words(name: str) -> str:
    """A file's name as a title: `fewshot-offline` is "Fewshot offline", `table6` "Table 6"."""
    text = re.sub(r"(?<=[a-z])(?=\d)", " ", re.sub(r"[-_]+", " ", name)).strip()
    return text[:1].upper() + text[1:]


def slug(text: str) -> str:
    """Letters, digits and single dashes, for an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def unique(anchor: str, used: set[str]) -> str:
    """`anchor`, or with a number that no other has: two ids may have one slug."""
    candidate, number = anchor, 1
    while candidate in used:
        number += 1
        candidate = f"{anchor}-{number}"
    used.add(candidate)
    return candidate


def _href(path: Path) -> str:
    return quote(path.as_posix())
