"""Build the report: one self-contained page from every result below the results folder (a few seconds, no network).

    python -m shared.report                            writes results/report/index.html
    python -m shared.report --results results/demo     of another folder, into report/index.html below it

Also writes <results>/<paper>/report.md: the same tables in Markdown, to paste into an issue or a paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared import cli
from shared.paths import results_dir
from shared.record import count_line
from shared.report import markdown
from shared.report.page import build
from shared.text import printable, say
from shared.verdict import DIFFERS


@dataclass
class Config(cli.Common):
    output: Path | None = None
    """[output] the page (default: report/index.html below the results folder)"""
    note: str = ""
    """a line at the top of the page, for instance what this run was"""


def main(config: Config) -> int:
    results = Path(config.results or results_dir())
    output = config.output or results / "report" / "index.html"
    contents = build(results, output, note=config.note)
    tables = markdown.write(contents, results)
    unread = [e.problem for e in contents.experiments if e.problem]
    say(f"{len(contents.experiments) - len(unread)} experiments; published numbers: {count_line(contents.counts)}")
    for problem in contents.problems:
        say(f"  problem: {printable(problem)}")
    for paper, entry in contents.absent:
        say(f"  no result yet: {paper.name}/{entry.name}" + (f" ({entry.run})" if entry.run else ""))
    for path in tables:
        say(f"  tables in Markdown: {path}")
    say(output.resolve())
    return 1 if config.strict and (contents.problems or contents.counts[DIFFERS]) else 0


if __name__ == "__main__":
    cli.run(main, Config)
