"""Renew README's counts, its table of results and every report.md from results/.

    python -m shared.report.readme

A test holds them together with the recorded results, and with what `make check` and the page say.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from shared import cli
from shared.check import Summary, coverage_lines, summarise
from shared.paths import ROOT, atomic_write
from shared.published import KINDS
from shared.report import markdown
from shared.report.collect import collect, read_papers
from shared.result import read_result
from shared.verdict import VERDICTS

HEAD = "| Experiment | Verdicts | Evidence |\n|---|---|---|\n"
COUNTS = "| What was done | Published numbers | Verdicts |\n|---|---|---|\n"


def says(counts: Counter) -> str:
    """`12 equal, 1 differs`: only what there is."""
    return ", ".join(f"{counts[v]:,} {v}" for v in VERDICTS if counts[v]) or "none"


def counts_table(summary: Summary) -> str:
    """The counts over all experiments by kind, then what was reached of each work."""
    kinds = [(KINDS[kind], own) for kind, own in summary.by_kind.items()]
    rows = [f"| {words} | {own.total():,} | {says(own)} |\n" for words, own in [*kinds, ("**all**", summary.counts)]]
    rows.append(f"| contradictions found in print | | {len(summary.contradictions):,} |\n")
    return COUNTS + "".join(rows) + "\n" + "".join(f"- {line}\n" for line in coverage_lines(summary))


def table(root: Path = ROOT) -> str:
    """One row per result, in the papers' reading order; results that no paper.toml names come last."""
    rows = []
    for paper in read_papers(root / "papers"):
        files = {path.stem: path for path in sorted((root / "results" / paper.name).glob("*.json"))}
        for name in paper.in_order(list(files)):
            counts = Counter(verdict.verdict for verdict in read_result(files[name]).verdicts)
            stem = files[name].relative_to(root).with_suffix("").as_posix()
            shown = says(counts) if counts else "no published number to compare with"
            rows.append(f"| {paper.title_of(name)} | {shown} | [log]({stem}.log) · [JSON]({stem}.json) |\n")
    return HEAD + "".join(rows)


@dataclass
class Config:
    """It has no options."""


def main(config: Config) -> None:
    markdown.write(collect(ROOT / "results", ROOT / "results" / "report" / "index.html"), ROOT / "results")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    counts = counts_table(summarise(ROOT / "results"))
    text = re.sub(re.escape(COUNTS) + r"(\|.*\n)*\n(- .*\n)*", lambda _: counts, text)
    atomic_write(readme, re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table(), text))


if __name__ == "__main__":
    cli.run(main, Config)
