"""Renew README's table of results from results/: `python -m shared.report.readme`. A test holds the two together."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from shared.paths import ROOT, atomic_write
from shared.record import Record
from shared.report.papers import read_papers
from shared.verdict import VERDICTS

HEAD = "| Experiment | Verdicts | Evidence |\n|---|---|---|\n"


def table(root: Path = ROOT) -> str:
    """One row a result, in the papers' reading order; results that no paper.toml names come last."""
    rows = []
    for paper in read_papers(root / "papers"):
        files = {path.stem: path for path in sorted((root / "results" / paper.name).glob("*.json"))}
        named = [name for name in paper.experiments if name in files]
        for name in [*named, *(name for name in files if name not in paper.experiments)]:
            found = Counter(verdict["verdict"] for verdict in Record.load(files[name])["verdicts"])
            says = ", ".join(f"{found[v]:,} {v}" for v in VERDICTS if found[v]) or "measured only"
            title = paper.experiments[name].title if name in paper.experiments else name
            stem = files[name].relative_to(root).with_suffix("").as_posix()
            rows.append(f"| {title} | {says} | [log]({stem}.log) · [JSON]({stem}.json) |\n")
    return HEAD + "".join(rows)


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    atomic_write(readme, re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table(), text))


if __name__ == "__main__":
    main()
