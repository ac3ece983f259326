"""The verdict of every published number that the suite knows.

    python -m shared.check                              the counts, and what differs
    python -m shared.check ResNet 50,000 step 500       all about the numbers whose names have these words
    python -m shared.check --show-equal                 a line for every number
    python -m shared.check --strict                     exit code 1 if one differs
    python -m shared.check --json                       the same for machines

A number's verdict is that of its reference experiments (`reference` in its published file): the first of them that
measured it, before one that measured a stand-in, before one that did not run. Results of other experiments are listed
beside it under their own name. When a result was made plays no part.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shared import cli
from shared.errors import UserError
from shared.paths import ROOT, results_dir
from shared.provenance import came_with
from shared.published import KINDS, Kind, Number, Published, load_all
from shared.record import count_line
from shared.result import RUN_AGAIN, Contradiction, Result, read_result, result_files
from shared.text import folded, printable, say
from shared.verdict import AGREES, DIFFERS, EQUAL, NOT_COMPARABLE, NOT_RUN, UNDECIDED, Verdict, judge

ORDER = (DIFFERS, UNDECIDED, AGREES, EQUAL, NOT_COMPARABLE, NOT_RUN)  # what to look at first
MOST = 8  # numbers that are told in full; more are listed


@dataclass
class Config(cli.Common):
    words: tuple[str, ...] = cli.positional(())
    """words or digits of a published number's name or value: all about the numbers that have them"""
    json: bool = False
    """[output] print one JSON object instead of text"""


@dataclass(frozen=True)
class Outcome:
    """What became of one published number: its verdict, the result that says so (None: none), others beside it."""

    number: Number
    verdict: Verdict
    result: str | None = None  # "<paper>/<experiment>"
    others: tuple[tuple[str, Verdict], ...] = ()

    @property
    def kind(self) -> Kind:
        return self.verdict.kind or self.number.kind

    @property
    def name(self) -> str:
        return f"{self.number.source}: {self.number.id}"


@dataclass
class Summary:
    """All outcomes below one folder of results; the one place where verdicts are counted over experiments.

    problems: a line for each result that cannot be used. results: those that can, by "<paper>/<experiment>".
    """

    outcomes: list[Outcome]
    problems: list[str]
    results: dict[str, Result]
    origins: dict[str, str]  # source -> the published file's sentence about where it was printed
    contradictions: list[tuple[str, Contradiction]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kinds = {(o.number.source, o.number.id): o.number.kind for o in self.outcomes}
        found = [(name, one) for name, result in self.results.items() for one in result.contradictions]
        references = {name for outcome in self.outcomes for name in _references(outcome.number)}
        self.contradictions = [(name, one) for name, one in found if name in references]

    @property
    def counts(self) -> Counter:
        return Counter(outcome.verdict.verdict for outcome in self.outcomes)

    def kind_of(self, verdict: Verdict) -> Kind:
        """How a result's verdict came about, also where the result is of before kinds were written."""
        return verdict.kind or self._kinds.get((verdict.source, verdict.id), "measured")

    @property
    def by_kind(self) -> dict[Kind, Counter]:
        """Counts of verdicts by what was done to reach them; every kind is there."""
        return {kind: Counter(o.verdict.verdict for o in self.outcomes if o.kind == kind) for kind in KINDS}

    @property
    def by_source(self) -> dict[str, Counter]:
        counts: dict[str, Counter] = defaultdict(Counter)
        for outcome in self.outcomes:
            counts[outcome.number.source][outcome.verdict.verdict] += 1
        return dict(counts)

    @property
    def coverage(self) -> dict[tuple[str, str], Counter]:
        """Of each paper and work: its printed numbers (`printed`), and how many were reached in each kind.

        Reached is a number with a verdict that holds one against the other: not on a stand-in, and not undecided.
        """
        shares: dict[tuple[str, str], Counter] = defaultdict(Counter)
        for outcome in self.outcomes:
            work = shares[outcome.number.source.partition("/")[0], outcome.number.printed_in]
            work["printed"] += 1
            work[outcome.kind] += outcome.verdict.verdict in (EQUAL, AGREES, DIFFERS)
        return dict(shares)

    @property
    def others(self) -> dict[str, Counter]:
        """Counts of the experiments that are listed beside the references: numbers they measured."""
        counts: dict[str, Counter] = defaultdict(Counter)
        for outcome in self.outcomes:
            for name, verdict in outcome.others:
                counts[name][verdict.verdict] += verdict.verdict != NOT_RUN
        return {name: +own for name, own in counts.items() if +own}


def summarise(root: Path, papers: Path = ROOT / "papers") -> Summary:
    """Every published number with its verdict from the results below `root`."""
    results, problems = {}, []
    for path in result_files(root):
        try:
            results[f"{path.parent.name}/{path.stem}"] = read_result(path)
        except UserError as error:
            problems.append(str(error))
    published = load_all(papers)
    given: dict[tuple[str, str], dict[str, Verdict]] = defaultdict(dict)
    for name, result in results.items():
        for verdict in result.verdicts:
            given[verdict.source, verdict.id][name] = verdict
    outcomes = [_outcome(n, given[n.source, n.id], problems) for file in published for n in file.numbers.values()]
    origins = {f"{file.paper}/{file.experiment}": file.origin for file in published}
    problems += [line for name, result in results.items() for line in _changed(root / name, result)]
    problems += _unknown(results, published)
    return Summary(outcomes, problems, results, origins)


def _changed(stem: Path, result: Result) -> list[str]:
    """A line for each file of a result that is not what it was when the result was made: its log, its trainings."""
    beside = [(stem.with_name(f"{stem.name}.log"), result.log_sha256, "the run that wrote it")]
    beside += [
        (stem.parent / run.path, run.sha256, f"{stem.name}.json was made from it") for run in result.provenance.runs
    ]
    return [
        f"{file}: was changed after {when}; {RUN_AGAIN}"
        for file, sha256, when in beside
        if sha256 and _differs(file, sha256, stem.parent)
    ]


def _differs(file: Path, sha256: str, folder: Path) -> bool:
    """Whether a file below `folder` has other bytes; one that is not there, or elsewhere, is left alone."""
    with suppress(OSError, ValueError):  # a name that no file can have
        if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            return hashlib.sha256(file.read_bytes()).hexdigest() != sha256
    return False


def _references(number: Number) -> list[str]:
    """The results that a number's verdict may come from, the first the best."""
    return [f"{number.source.partition('/')[0]}/{experiment}" for experiment in number.reference]


def _outcome(number: Number, given: dict[str, Verdict], problems: list[str]) -> Outcome:
    """One number's outcome from the verdicts that results give it, by the results' names."""
    stale = [name for name, verdict in given.items() if verdict.published != number.printed]
    for name in stale:  # the published file was corrected after the run
        problems.append(
            f"{name}: {number.source} {number.id} was judged against {given[name].published!r}, "
            f"the published file says {number.printed!r}; {RUN_AGAIN}"
        )
    fit = {name: verdict for name, verdict in given.items() if name not in stale}
    ranks = {NOT_RUN: 2, NOT_COMPARABLE: 1}
    # the sort keeps the references' order within a rank
    kept = sorted((name for name in _references(number) if name in fit), key=lambda n: ranks.get(fit[n].verdict, 0))
    others = tuple((name, verdict) for name, verdict in fit.items() if name not in kept[:1])
    if kept:
        return Outcome(number, fit[kept[0]], kept[0], others)
    why = f"no result of its reference experiment {number.reference[0]} here"
    return Outcome(number, judge(number, None, why_not_run=why), None, others)


def _unknown(results: dict[str, Result], published: list[Published]) -> list[str]:
    """A line for each result with verdicts on numbers that no published file has."""
    known = {(number.source, id) for file in published for id, number in file.numbers.items()}
    lines = []
    for name, result in results.items():
        strange = [v for v in result.verdicts if (v.source, v.id) not in known]
        if strange:
            what = f"{len(strange)} verdicts on numbers" if len(strange) > 1 else "a verdict on a number"
            first = f"{strange[0].source} {strange[0].id}"
            lines.append(f"{name}: {what} that no published file has, as {first}; {RUN_AGAIN}")
    return lines


# one number ----------------------------------------------------------------------------------------------------------


def find(summary: Summary, words: tuple[str, ...]) -> list[Outcome]:
    """The numbers in whose source, name or printed text all words stand, whole ones before parts of words."""
    asked = [word.strip(":").replace("−", "-").lower() for text in words for word in text.split()]

    def text(outcome: Outcome) -> str:
        number = outcome.number
        return f"{number.source} {number.id} {number.printed} {number.unit}".replace("−", "-").lower()

    whole = [re.compile(rf"(?<![\w.])(?<!\d,){re.escape(word)}(?!\w|[.,]\d)") for word in asked]
    found = [o for o in summary.outcomes if all(pattern.search(text(o)) for pattern in whole)]
    return found or [o for o in summary.outcomes if all(word in text(o) for word in asked)]


def tell(summary: Summary, outcome: Outcome, root: Path) -> list[str]:
    """Everything about one number: where printed, what measured it and from what, its verdict and tolerance."""
    number, verdict = outcome.number, outcome.verdict
    paper, _, file = number.source.partition("/")
    spread = f" ± {number.std}" * bool(number.std)
    lines = [
        outcome.name,
        f"  published  {number.printed}{spread} {number.unit}".rstrip() + f", in {summary.origins[number.source]}",
        f"             papers/{paper}/published/{file}.json",
    ]
    if outcome.result is None:
        lines.append(f"  verdict    {verdict.verdict}: {verdict.reason}")
    else:
        ours = f" ± {verdict.measured_std:.3g}" if verdict.measured_std is not None else ""
        lines += [
            f"  measured   {verdict.shown}{ours} ({KINDS[outcome.kind]})",
            f"             {root / outcome.result}.log and .json",
            *_origin_lines(summary.results[outcome.result], verdict, root / paper),
            f"  verdict    {verdict.verdict}" + f": {verdict.reason}" * bool(verdict.reason),
        ]
    if verdict.tolerance is not None:
        terms = " + ".join(f"{name} {value:.3g}" for name, value in verdict.tolerance_terms.items())
        difference = verdict.shown_difference or "none"
        lines.append(f"  tolerance  {verdict.tolerance:.3g} = {terms}; difference {difference}")
    beside = [f"{name}: {other.line().removeprefix(f'{number.id}: ')}" for name, other in outcome.others]
    return lines + [f"  beside it  {line}" for line in beside]


def _origin_lines(result: Result, verdict: Verdict, folder: Path) -> list[str]:
    """What run measured it, then the trainings that it read."""
    origin = result.provenance
    changed = " with uncommitted changes" * bool(origin.git.get("dirty"))
    commit = f"commit {origin.git['commit'][:12]}{changed}" if origin.git.get("commit") else "outside of git"
    machine = ", ".join(str(origin.machine[key]) for key in ("processor", "system") if key in origin.machine)
    parts = [f"started {origin.started}", commit, machine, f"seed {origin.seed}" * (origin.seed is not None)]
    lines = [f"  run        {', '.join(filter(None, parts))}"]
    if origin.device:
        lines.append(f"             on {origin.device}, {origin.dtype}")
    for run in (run for run in origin.runs if run.path in verdict.runs):
        file = folder / run.path
        state = "" if file.is_file() else ": not there any more"
        if _differs(file, run.sha256, folder):
            state = ": changed since"
        seed = f", seed {run.seed}" * (run.seed is not None)
        lines += [f"  training   {file}{state}{seed}", *(f"             {start}" for start in run.starts)]
        if commit := came_with(file) if file.is_file() else "":
            lines.append(f"             in the repository since commit {commit}")
    return lines


# all of them ---------------------------------------------------------------------------------------------------------


def coverage_lines(summary: Summary) -> list[str]:
    """What share of each publication's printed numbers was checked, and how."""
    lines = []
    for (paper, work), share in summary.coverage.items():
        shown = {kind: words for kind, words in KINDS.items() if share[kind] or kind == "measured"}
        done = ", ".join(
            f"{share[kind]:,} {words} ({100 * share[kind] / share['printed']:.0f} %)" for kind, words in shown.items()
        )
        lines.append(f"{paper}, {work}: {share['printed']:,} printed numbers, {done}")
    return lines


def summary_lines(summary: Summary, root: Path, every: bool) -> list[str]:
    lines = [f"{len(summary.outcomes):,} published numbers, results in {root}"]
    kinds = [(words, summary.by_kind[kind]) for kind, words in KINDS.items()]
    lines += [f"  {words:<26} {count_line(own)}" for words, own in [*kinds, ("all", summary.counts)]]
    lines.append(f"  {'contradictions found':<26} {len(summary.contradictions)}, in what was printed")
    lines += ["", "how much of each publication was checked:", *(f"  {line}" for line in coverage_lines(summary))]
    lines += ["", "by published file:"]
    wide = max(map(len, [*summary.by_source, *summary.others]), default=0)
    lines += [f"  {source:<{wide}}  {count_line(own)}" for source, own in summary.by_source.items()]
    if others := summary.others:
        lines += ["", "further experiments, listed beside and not counted:"]
        lines += [f"  {name:<{wide}}  {count_line(own)}" for name, own in others.items()]
    lines += [f"  problem: {printable(problem)}" for problem in summary.problems]
    listed = ORDER if every else (DIFFERS, UNDECIDED)
    for name in listed:
        rows = [outcome for outcome in summary.outcomes if outcome.verdict.verdict == name]
        if rows:
            lines += ["", f"what {name}:" if name == DIFFERS else f"{name}:"]
            lines += [f"  {o.number.source}: {o.verdict.line()}" + f"   [{o.result}]" * bool(o.result) for o in rows]
    beside = [(o, n, v) for o in summary.outcomes for n, v in o.others if v.verdict == DIFFERS]
    if beside:
        lines += ["", "differs in an experiment listed beside:"]
        lines += [f"  {o.number.source}: {verdict.line()}   [{name}]" for o, name, verdict in beside]
    return lines


def as_json(summary: Summary) -> dict:
    """The counts by source, kind and work; a row for each number with its others; the contradictions."""
    rows = [
        o.verdict.as_json()
        | {"kind": o.kind, "result": o.result, "others": {name: verdict.as_json() for name, verdict in o.others}}
        for o in summary.outcomes
    ]
    return {
        "summary": {source: dict(sorted(own.items())) for source, own in summary.by_source.items()},
        "kinds": {KINDS[kind]: dict(sorted(own.items())) for kind, own in summary.by_kind.items()},
        "coverage": [{"paper": p, "printed_in": w, **share} for (p, w), share in summary.coverage.items()],
        "contradictions": [
            {"result": name, "where": one.where, "claim": one.claim, "arithmetic": one.arithmetic}
            for name, one in summary.contradictions
        ],
        "problems": summary.problems,
        "verdicts": rows,
    }


def main(config: Config) -> int:
    root = Path(config.results or results_dir())
    if not root.is_dir():
        raise UserError(f"{root}: no such folder of results; run an experiment first, for instance `make tables`")
    summary = summarise(root)
    counted = summary.counts[DIFFERS]
    if config.words:
        found = sorted(find(summary, config.words), key=lambda o: ORDER.index(o.verdict.verdict))
        if not found:
            asked = " ".join(config.words)
            raise UserError(f"{asked!r}: no published number has all of these words; --show-equal lists every number")
        summary.outcomes = found
        counted = summary.counts[DIFFERS]
    if config.json:
        say(json.dumps(as_json(summary), indent=1, ensure_ascii=False))
    elif config.words:
        if len(found) > MOST:
            say(f"{len(found)} numbers have these words; name more of them to see one with all that is known of it")
            say(folded("\n".join(f"  {o.number.source}: {o.verdict.line()}" for o in found)))
        else:
            say(folded("\n\n".join("\n".join(tell(summary, outcome, root)) for outcome in found)))
    else:
        say(folded("\n".join(summary_lines(summary, root, config.show_equal))))
    return 1 if config.strict and (counted or summary.problems) else 0


if __name__ == "__main__":
    cli.run(main, Config)
