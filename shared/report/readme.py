"""Renew README's table of results from results/: `python -m shared.report.readme`. A test holds the two together."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from shared.paths import ROOT, atomic_write
from shared.report.collect import read_papers
from shared.result import read_result
from shared.verdict import VERDICTS

HEAD = "| Experiment | Verdicts | Evidence |\n|---|---|---|\n"


def table(root: Path = ROOT) -> str:
    """One row a result, in the papers' reading order; results that no paper.toml names come last."""
    rows = []
    for paper in read_papers(root / "papers"):
        files = {path.stem: path for path in sorted((root / "results" / paper.name).glob("*.json"))}
        for name in paper.in_order(list(files)):
            counts = Counter(verdict.verdict for verdict in read_result(files[name]).verdicts)
            says = ", ".join(f"{counts[v]:,} {v}" for v in VERDICTS if counts[v]) or "measured only"
            stem = files[name].relative_to(root).with_suffix("").as_posix()
            rows.append(f"| {paper.title_of(name)} | {says} | [log]({stem}.log) · [JSON]({stem}.json) |\n")
    return HEAD + "".join(rows)


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    atomic_write(readme, re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table(), text))


if __name__ == "__main__":
    main()
