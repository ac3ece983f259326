"""Build the report: one self-contained page from every result below the results folder (a few seconds, no network).

python -m shared.report                         writes results/report/index.html
python -m shared.report --results results/demo  of another folder, into <that folder>/report/index.html
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared import cli
from shared.paths import results_dir
from shared.record import count_line
from shared.report.page import build


@dataclass
class Config(cli.Common):
    output: Path | None = None
    """the page (default: report/index.html below the results folder)"""
    note: str = ""
    """a line at the top of the page, for instance what this run was"""


def main(config: Config) -> int:
    results = Path(config.results or results_dir())
    output = config.output or results / "report" / "index.html"
    report = build(results, output, note=config.note)
    shown = [e for e in report.experiments if not e.problem]
    print(f"{len(shown)} experiments: {count_line(v for e in shown for v in e.verdicts)}")
    for experiment in report.experiments:
        if experiment.problem:
            print(f"  problem: {experiment.problem}")
    for absent in report.absent:
        print(f"  no result yet: {absent.paper}/{absent.name}" + (f" ({absent.run})" if absent.run else ""))
    print(output.resolve())
    return 1 if config.strict and any(e.problem or e.counts.get("differs") for e in report.experiments) else 0


if __name__ == "__main__":
    cli.run(main, Config)
