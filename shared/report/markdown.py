"""A paper's results as Markdown, `results/<paper>/report.md`: the page's tables, to paste into an issue or a paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from shared.paths import atomic_write
from shared.published import KINDS
from shared.report.collect import Contents, Experiment, Paper, Row
from shared.report.page import cell, number
from shared.result import Table
from shared.verdict import NOT_RUN, VERDICTS

HEADS = ("number", "published", "measured", "difference", "tolerance", "verdict")


def write(contents: Contents, results: Path) -> list[Path]:
    """`report.md` beside the results of each paper; returns the files."""
    written = []
    for paper in contents.papers:
        path = results / paper.name / "report.md"
        atomic_write(path, render(contents, paper).encode("utf-8", "replace"))
        written.append(path)
    return written


def render(contents: Contents, paper: Paper) -> str:
    head = [f"# {text(paper.title)}"]
    if paper.source:
        head.append(f"[{text(paper.source)}]({paper.url})" if paper.url.startswith("https://") else text(paper.source))
    for source in paper.sources:
        title = f"[{text(source.title)}]({source.url})" if source.url.startswith("https://") else text(source.title)
        head.append(f"{text(source.name)}: {title}")
    own = {work: share for (name, work), share in contents.summary.coverage.items() if name == paper.name}
    rows = [
        [
            work,
            share["printed"],
            *(share[kind] for kind in KINDS),
            f"{100 * share['measured'] / share['printed']:.0f} %",
        ]
        for work, share in own.items()
    ]
    head.append(table(["work", "printed", *KINDS.values(), "measured"], rows) if rows else "")
    parts = [part for experiment in contents.of(paper) for part in experiment_parts(experiment)]
    return "\n\n".join(filter(None, [*head, *parts])) + "\n"


def experiment_parts(e: Experiment) -> list[str]:
    """Question, answer, what differs first, the measured tables, what it cannot show."""
    if e.problem:
        return [f"## {text(e.title)}", text(e.problem)]
    counts = ", ".join(f"{e.counts[name]:,} {name}" for name in VERDICTS if e.counts[name])
    parts = [f"## {text(e.title)}", f"**{text(e.question)}**", text(e.answer), counts]
    for group in e.groups:
        shown = [row for row in group.rows if row.verdict.verdict != NOT_RUN]
        if shown:
            parts += [f"### {text(group.title)}", table(HEADS, map(verdict_cells, shown))]
    parts += [part for side_by_side in e.tables for t in side_by_side for part in measured_table(t)]
    return [*parts, f"What this cannot show: {text(e.cannot_show)}" if e.cannot_show else ""]


def verdict_cells(row: Row) -> list[str]:
    v = row.verdict
    spread = f" ± {v.published_std}" if v.published_std else ""
    ours = f" ± {number(v.measured_std, v.published)}" if v.measured_std is not None else ""
    difference = "" if v.difference is None else number(v.difference, v.published, sign=True)
    tolerance = "" if v.tolerance is None else number(v.tolerance, v.published)
    reason = f" ({v.reason})" if v.reason else ""
    return [row.label, f"{v.published}{spread}", f"{v.shown}{ours}", difference, tolerance, f"{v.verdict}{reason}"]


def measured_table(t: Table) -> list[str]:
    return [f"### {text(t.title)}", text(t.note), table(t.columns, [map(cell, row) for row in t.rows])]


def table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A pipe table; columns of numbers are aligned right by their rows, not here: every viewer does as it likes."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(text(str(one)) for one in line)} |" for line in lines)


def text(words: str) -> str:
    """Text from data as Markdown that shows it as it stands: one line, no markup, no HTML."""
    words = re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", " ".join(words.split()))
    return words.replace("&", "&amp;")
