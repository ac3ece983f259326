"""Result JSON files as what the page shows. A result that is absent, older or damaged is named, and stops nothing.

What a paper is called and in which order its experiments are read stands in `papers/<paper>/paper.toml`; what an
experiment asks, shows and cannot show stands in its own result.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.errors import UserError
from shared.paths import ROOT
from shared.record import Record
from shared.report.names import href, slug, unique, words
from shared.report.papers import Entry, Paper, read_papers
from shared.report.provenance import provenance
from shared.verdict import DIFFERS, VERDICTS, Verdict

FOLD = 40  # an experiment with more verdicts than this starts folded, but for the groups in which something differs
SPLIT = 30  # a source with more verdicts than this is split by the first part of its ids,
PART = 8  # if the parts then have at least so many each, on average


@dataclass(frozen=True)
class Absent:
    """An experiment that `paper.toml` names and no result answers."""

    paper: str
    name: str
    title: str
    run: str


@dataclass
class Row:
    """One verdict with its place on the page."""

    verdict: Verdict
    anchor: str
    label: str


@dataclass
class Group:
    """Verdicts of one source, or of one part of it; `reason` is set when all rows give the same one."""

    title: str
    anchor: str
    rows: list[Row]
    reason: str = ""
    open: bool = False

    @property
    def counts(self) -> Counter:
        return Counter(row.verdict.verdict for row in self.rows)


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
    cannot_show: str = ""
    started: str = ""
    groups: list[Group] = field(default_factory=list)
    figures: list[dict] = field(default_factory=list)
    tables: list[list[dict]] = field(default_factory=list)  # by group: those of one list stand side by side
    files: list[dict] = field(default_factory=list)
    provenance: list[tuple[str, list[str]]] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)
    answer: dict | None = None  # the figure that answers the question

    @property
    def verdicts(self) -> list[str]:
        return [row.verdict.verdict for group in self.groups for row in group.rows]

    @property
    def counts(self) -> Counter:
        return Counter(self.verdicts)


@dataclass
class Report:
    papers: list[Paper]
    experiments: list[Experiment]
    absent: list[Absent]

    @property
    def counts(self) -> Counter:
        return sum((e.counts for e in self.experiments), Counter())

    def of(self, paper: Paper) -> list[Experiment]:
        return [e for e in self.experiments if e.paper == paper.name]


def collect(results: Path, output: Path, papers: Path = ROOT / "papers") -> Report:
    """All results below `results`; links are relative to the page `output`. UserError when there is no such folder."""
    if not results.is_dir():
        raise UserError(f"{results}: no such results folder; run an experiment first (make tables takes a second)")
    paths = sorted(path for path in results.glob("*/*.json") if not path.name.startswith("."))
    known = {paper.name: paper for paper in read_papers(papers)}
    for path in paths:
        known.setdefault(path.parent.name, Paper(path.parent.name, title=words(path.parent.name)))
    found, absent = [], []
    for paper in known.values():
        mine = {path.stem: path for path in paths if path.parent.name == paper.name}
        listed = paper.experiments
        for name in [*(n for n in listed if n in mine), *(n for n in mine if n not in listed)]:
            found.append(read_experiment(mine[name], output, paper))
        by_name = {e.name: e for e in found if e.paper == paper.name}
        for experiment in by_name.values():
            drawn_by = by_name.get(listed[experiment.name].figure_from) if experiment.name in listed else None
            drawings = [figure for figure in drawn_by.figures if not figure["gallery"]] if drawn_by else []
            experiment.answer = next(iter(experiment.figures + drawings), None)
        absent += [
            Absent(paper.name, entry.name, entry.title or words(entry.name), entry.run)
            for entry in listed.values()
            if entry.name not in mine and not entry.optional
        ]
    return Report([paper for paper in known.values() if any(e.paper == paper.name for e in found)], found, absent)


def read_experiment(path: Path, output: Path, paper: Paper) -> Experiment:
    """One result file; a damaged one becomes an experiment with a `problem`."""
    base = Path(os.path.relpath(path.parent.resolve(), output.parent.resolve()))
    entry = paper.experiments.get(path.stem) or Entry(path.stem)
    known = {
        "paper": paper.name, "name": path.stem, "title": entry.title or words(path.stem), "run": entry.run,
        "anchor": slug(f"{paper.name} {path.stem}"), "json_href": href(base / path.name),
    }  # fmt: skip
    try:
        experiment = Experiment(**known)
        _fill(experiment, Record.load(path), path, base, paper)
        return experiment
    except UserError as error:
        problem = str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{path}: damaged result ({type(error).__name__}: {error}); run the experiment again"
    # half of a result is not shown, nor where the folder lies on this machine
    return Experiment(**known, problem=problem.replace(str(path), f"{paper.name}/{path.name}"))


def _fill(experiment: Experiment, data: dict, path: Path, base: Path, paper: Paper) -> None:
    log = path.with_suffix(".log")
    experiment.log_href = href(base / log.name) if log.exists() else ""
    experiment.question = _text(data.get("question", "")) or experiment.title
    experiment.cannot_show = _text(data.get("cannot_show", ""))
    experiment.started = _text(data["provenance"].get("started") or "")
    verdicts = [_verdict(fields) for fields in data["verdicts"]]
    experiment.groups = group_verdicts(verdicts, experiment.anchor, paper.groups)
    experiment.figures = one_per_stem([_figure(entry, path.parent, base) for entry in data.get("figures", [])])
    by_group: dict[object, list[dict]] = {}
    for i, entry in enumerate(data.get("tables", [])):
        if entry["rows"]:  # a head without rows says nothing
            by_group.setdefault(entry.get("group") or i, []).append(_table(entry))
    experiment.tables = list(by_group.values())
    experiment.files = [
        {"href": href(base / _text(entry["path"])), "caption": _text(entry["caption"])}
        for entry in data.get("files", [])
    ]
    experiment.provenance = provenance(data["provenance"])
    used = data["provenance"].get("data", []) + data["provenance"].get("models", [])
    stand_ins = [f"{item['name']}: {item['stand_in']}" for item in used if item.get("stand_in")]
    experiment.stand_ins = list(dict.fromkeys(stand_ins))  # the parts of one data set say the same


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r:.60}")
    return value


def _verdict(fields: dict) -> Verdict:
    verdict = Verdict(**fields)
    if verdict.verdict not in VERDICTS:
        raise ValueError(f"unknown verdict {verdict.verdict!r}")
    for text in (verdict.id, verdict.published, verdict.unit, verdict.reason, verdict.source, verdict.measured or ""):
        _text(text)
    for number in (verdict.difference, verdict.tolerance, *verdict.tolerance_terms.values()):
        if number is not None:
            float(number)
    return verdict


def _figure(entry: dict, folder: Path, base: Path) -> dict:
    relative = Path(_text(entry["path"]))
    file = (folder / relative).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise ValueError(f"figure {relative} lies outside the results folder")
    return {"file": file, "href": href(base / relative), "caption": _text(entry.get("caption", "")),
            "name": relative.as_posix(), "gallery": entry.get("kind") == "gallery"}  # fmt: skip


def one_per_stem(figures: list[dict]) -> list[dict]:
    """Each drawing once, with all its files: a PNG and an SVG of one name are one drawing."""
    drawings: dict[Path, dict] = {}
    for figure in figures:
        drawing = drawings.setdefault(figure["file"].with_suffix(""), figure | {"files": []})
        drawing["files"].append(figure["file"])
    return list(drawings.values())


def _table(entry: dict) -> dict:
    columns, rows = list(entry["columns"]), [list(row) for row in entry["rows"]]
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"table {entry['title']!r}: a row has not one cell a column")
    return {"title": _text(entry["title"]), "note": _text(entry.get("note", "")), "columns": columns, "rows": rows}


def group_verdicts(verdicts: list[Verdict], prefix: str, titles: dict[str, str]) -> list[Group]:
    """By source, and a long source by the first part of its ids; in the result's own order."""
    by_source: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_source.setdefault(verdict.source, []).append(verdict)
    groups, used = [], set()
    for source, members in by_source.items():
        name = words(source.rpartition("/")[2]) or "Published numbers"
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
            reasons = {row.verdict.reason for row in rows}
            title = titles.get(f"{source.rpartition('/')[2]}/{part}") or _group_title(name, part, len(by_source))
            group = Group(title, anchor, rows, reason=reasons.pop() if len(reasons) == 1 and len(rows) > 1 else "")
            group.open = len(verdicts) <= FOLD or group.counts[DIFFERS] > 0
            groups.append(group)
    return groups


def _group_title(source: str, part: str, sources: int) -> str:
    """The part alone where there is one source: its name would say nothing."""
    if not part:
        return source
    return f"{source} · {part}" if sources > 1 else part[:1].upper() + part[1:]
