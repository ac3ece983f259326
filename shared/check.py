"""The verdict of every published number that the suite knows.

    python -m shared.check                  a summary an experiment, and every line that differs
    python -m shared.check --strict         exit code 1 if one differs
    python -m shared.check --json           the same for machines

A number's verdict is that of the newest result that measured it; a measurement on a stand-in counts only where there is
no real one, and `not run` only where there is no measurement at all.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from shared import cli
from shared.errors import UserError
from shared.paths import results_dir
from shared.published import Number, load_all
from shared.record import count_line
from shared.result import RUN_AGAIN, read_result, result_files
from shared.verdict import DIFFERS, NOT_COMPARABLE, NOT_RUN, Verdict, judge


@dataclass
class Config(cli.Common):
    json: bool = False
    """print one JSON object instead of text"""


@dataclass(frozen=True)
class Outcome:
    """What became of one published number, and in which result (None: in none)."""

    number: Number
    verdict: Verdict
    result: str | None = None
    started: str | None = None


def outcomes(root: Path) -> tuple[list[Outcome], list[str]]:
    """Every published number with its verdict from the results below `root`, and a line for each problem on the way."""
    results, problems = [], []
    for path in result_files(root):
        try:
            results.append((path.relative_to(root).as_posix(), read_result(path)))
        except UserError as error:
            problems.append(str(error))
    best: dict[tuple[str, str], tuple[int, Verdict, str, str]] = {}
    for path, result in sorted(results, key=lambda item: item[1].provenance.started):
        for verdict in result.verdicts:
            rank = {NOT_RUN: 0, NOT_COMPARABLE: 1}.get(verdict.verdict, 2)
            key = (verdict.source, verdict.id)
            if key not in best or rank >= best[key][0]:  # results come oldest first: the newest of a rank stays
                best[key] = (rank, verdict, path, result.provenance.started)
    every = []
    for number in (number for published in load_all() for number in published.numbers.values()):
        outcome = Outcome(number, judge(number, None, why_not_run="no result here"))
        if kept := best.get((number.source, number.id)):
            _, verdict, path, started = kept
            if verdict.published == number.printed:  # else the published file was corrected after the run
                outcome = Outcome(number, verdict, path, started)
            else:
                problems.append(
                    f"{path}: {number.source} {number.id} was judged against {verdict.published!r}, "
                    f"the published file says {number.printed!r}; {RUN_AGAIN}"
                )
        every.append(outcome)
    return every, problems


def main(config: Config) -> int:
    root = Path(config.results or results_dir())
    if not root.is_dir():
        raise UserError(f"{root}: no such folder of results; run an experiment first, for instance `make tables`")
    every, problems = outcomes(root)
    counts: dict[str, Counter] = defaultdict(Counter)
    for outcome in every:
        counts[outcome.number.source][outcome.verdict.verdict] += 1
    differing = [outcome for outcome in every if outcome.verdict.verdict == DIFFERS]
    if config.json:
        summary = {source: dict(sorted(own.items())) for source, own in counts.items()}
        rows = [o.verdict.as_json() | {"result": o.result, "started": o.started} for o in every]
        print(json.dumps({"summary": summary, "problems": problems, "verdicts": rows}, indent=1, ensure_ascii=False))
    else:
        print(f"{len(every)} published numbers, results in {root}")
        for source, own in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
            print(f"  {source:<40} {count_line(own)}")
        for problem in problems:
            print(f"  problem: {problem}")
        if differing:
            print("\nwhat differs:")
        for outcome in differing:
            print(f"  {outcome.number.source} {outcome.verdict.line()}   [{outcome.result}]")
    return 1 if config.strict and (differing or problems) else 0


if __name__ == "__main__":
    cli.run(main, Config)
