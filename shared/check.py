"""The verdict of every published number that the suite knows.

    python -m shared.check                  a summary an experiment, and every line that differs
    python -m shared.check --strict         exit code 1 if one differs
    python -m shared.check --json           the same for machines

A number's verdict is that of the newest result that measured it; a measurement on a stand-in counts only where there is
no real one, and `not run` only where there is no measurement at all.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from shared import cli
from shared.errors import UserError
from shared.paths import results_dir
from shared.published import Number, load_all
from shared.record import Record, count_line
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
    result: str | None
    started: str | None


def read_results(root: Path) -> tuple[list[tuple[str, dict]], list[str]]:
    """All results below `root` as (path, data), oldest first, and one line for each that cannot be read."""
    found, problems = [], []
    for path in sorted(root.glob("*/*.json")):
        try:
            found.append((path.relative_to(root).as_posix(), Record.load(path)))
        except UserError as error:
            problems.append(str(error))
    return sorted(found, key=lambda item: item[1]["provenance"]["started"]), problems


def outcomes(root: Path) -> tuple[list[Outcome], list[str]]:
    """Every published number with its verdict, and what was found wrong on the way."""
    results, problems = read_results(root)
    best: dict[tuple[str, str], tuple[int, Verdict, str, str]] = {}
    for path, data in results:
        for fields in data["verdicts"]:
            try:
                verdict = Verdict(**fields)
            except TypeError:
                problems.append(f"{path}: a verdict has other fields than this version's; run the experiment again")
                break
            rank = {NOT_RUN: 0, NOT_COMPARABLE: 1}.get(verdict.verdict, 2)
            key = (verdict.source, verdict.id)
            if key not in best or rank >= best[key][0]:  # results come oldest first: the newest of a rank stays
                best[key] = (rank, verdict, path, data["provenance"]["started"])
    every = []
    for published in load_all():
        for number in published.numbers.values():
            rank, verdict, path, started = best.get((number.source, number.id), (0, None, None, None))
            if verdict is not None and verdict.published != number.printed:
                problems.append(f"{path}: {number.source} {number.id} was judged against {verdict.published!r}, "
                                f"the published file says {number.printed!r}; run the experiment again")  # fmt: skip
                verdict = None
            if verdict is None:
                verdict, path, started = judge(number, None, why_not_run="no result here"), None, None
            every.append(Outcome(number, verdict, path, started))
    return every, problems


def main(config: Config) -> int:
    root = Path(config.results or results_dir())
    if not root.is_dir():
        raise UserError(f"{root}: no such folder of results; run an experiment first, for instance `make tables`")
    every, problems = outcomes(root)
    by_source = defaultdict(list)
    for outcome in every:
        by_source[outcome.number.source].append(outcome)
    differing = [o for o in every if o.verdict.verdict == DIFFERS]
    if config.json:
        summary = {source: _counts(found) for source, found in by_source.items()}
        rows = [o.verdict.as_json() | {"result": o.result, "started": o.started} for o in every]
        print(json.dumps({"summary": summary, "problems": problems, "verdicts": rows}, indent=1, ensure_ascii=False))
    else:
        print(f"{len(every)} published numbers, results in {root}")
        for source, found in by_source.items():
            print(f"  {source:<40} {count_line(o.verdict.verdict for o in found)}")
        print(f"  {'all':<40} {count_line(o.verdict.verdict for o in every)}")
        for problem in problems:
            print(f"  problem: {problem}")
        if differing:
            print("\nwhat differs:")
        for o in differing:
            print(f"  {o.number.source} {o.verdict.line()}   [{o.result}]")
    return 1 if config.strict and (differing or problems) else 0


def _counts(found: list[Outcome]) -> dict[str, int]:
    names = [o.verdict.verdict for o in found]
    return {name: names.count(name) for name in sorted(set(names))}


if __name__ == "__main__":
    cli.run(main, Config)
