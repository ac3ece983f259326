"""The comparison pages judged, the folder of public graphs, the built-in models: what is committed under results/."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from papers.comparisons.contradictions import contradictions
from papers.comparisons.pages import AS_PUBLISHED, PAIRS, PUBLISHED_COST, TAGLINES, cells, page_graph
from papers.comparisons.report import Report
from papers.comparisons.sources import BUILTIN_NAMES, Source
from papers.comparisons.view_text import as_text, disagreement_lines, grouped, row_cells, table
from shared import cli
from shared.errors import UserError
from shared.graph.convention import RIGHT
from shared.graph.cost import Assumptions, train_cost
from shared.graph.disagree import disagreements
from shared.graph.explain import TOLERANCE, explain
from shared.graph.measure import measure
from shared.graph.names import dollars, short
from shared.graph.read import read
from shared.paths import atomic_write
from shared.published import load
from shared.record import Record

THEIRS = "as published"


@dataclass
class Pages(cli.Common):
    """All four comparison pages, judged cell by cell."""


@dataclass
class Zoo(cli.Common):
    """Every graph file of a folder: does it read and pass forward, and does its count meet the official one?"""

    folder: str = cli.positional()
    """folder of graph files (*.json)"""


@dataclass
class Builtins(cli.Common):
    """Every built-in model: parameters and multiply-accumulates."""


def page_beside(record: Record, sources: list[Source], report: Report, pair: str | None) -> None:
    """What the pages' conventions make of the same graphs, why, and for a published pair the verdict of each cell."""
    graphs = [source.graph for source in sources if source.graph is not None]
    right, published = (
        report.models
        if report.models[0].convention == convention
        else tuple(measure(graph, convention) for graph in graphs)
        for convention in (RIGHT, AS_PUBLISHED)
    )
    page = Report(published, PUBLISHED_COST, page=True)  # type: ignore[arg-type]
    record.section("counted rightly, and as the comparison pages count")
    rows = [["", "parameters", THEIRS, "MACs", THEIRS, "train cost", THEIRS]]
    assumed = report.assumed if not report.page else Assumptions()
    for ours, theirs in zip(right, published, strict=True):
        rows.append(
            [ours.name, f"{ours.parameters:,}", f"{theirs.parameters:,}", f"{ours.macs:,}", f"{theirs.macs:,}",
             dollars(train_cost(ours, assumed).dollars), dollars(train_cost(theirs, PUBLISHED_COST).dollars)]
        )  # fmt: skip
    record.say("\n".join(table(rows)))
    record.table("Counted rightly, and as the comparison pages count", rows[0], rows[1:])
    lines: list[str] = []
    found = {}
    for graph, ours, theirs in zip(graphs, right, published, strict=True):
        differing = disagreements(graph, ours, theirs)
        found[graph.name] = [asdict(one) for one in differing]
        lines += disagreement_lines(graph.name, differing, THEIRS)
    for line in grouped(dict.fromkeys(lines), 24):
        record.say(f"  - {line}")
    record.results["disagreements"] = found
    if pair is None:
        return
    record.section("what contradicts the page")
    wrong = contradictions(page, Report(right))  # type: ignore[arg-type]
    for one in wrong:
        record.say(f"  - {one.claim}\n      {one.arithmetic}")
    record.results["contradictions"] = [asdict(one) for one in wrong]
    record.table("What contradicts the page", ["the page says", "the arithmetic"], [astuple(one) for one in wrong])
    printed = cells(page)
    record.results["cells"] = printed
    for id, number in load("comparisons", pair).numbers.items():
        record.judge(number, printed.get(id), why_not_run="the page prints a cell that the report does not have")
    record.print_verdicts()


def write_html(record: Record, report: Report, pair: str | None) -> Path:
    """The report's page, beside the record."""
    from papers.comparisons.view_html import as_html

    path = record.directory / f"{record.experiment}.html"
    found = Counter(verdict.verdict for verdict in record.verdicts)
    atomic_write(path, as_html(report, record.results, found, TAGLINES.get(pair or "", "")))
    record.file(path, "side by side, both graphs drawn")
    return path


def show(record: Record, report: Report) -> None:
    """For the suite's report: the parameters drawn, both sides and the aligned layers as tables."""
    from papers.comparisons.figure import draw

    path = record.figures_dir / f"{record.experiment}.png"
    record.figure(path, draw(report, path))
    keys = [key for key in report.sides[0].cells if key != "name"]
    names = [model.name for model in report.models]
    record.table("Both sides", ["", *names], [[key, *(side.cells[key] for side in report.sides)] for key in keys])
    head, *rows = row_cells(report)
    padded = [row + [""] * (len(head) - len(row)) for row in rows]
    record.table("Layer by layer, counted rightly", head, padded, note=report.row_count_line)


def pages(config: Pages) -> int | None:
    """`compare.py pages`: one record a page."""
    differing = 0
    for pair, names in PAIRS.items():
        sources = [Source(name, page_graph(name)) for name in names]
        models = tuple(source.model(RIGHT) for source in sources)
        with Record(
            "comparisons",
            pair,
            config=config,
            question=f"Does every printed cell of {models[0].name} vs {models[1].name} follow from its two graphs?",
            results=config.results,
        ) as record:
            report = Report(models)  # type: ignore[arg-type]
            published = tuple(source.model(AS_PUBLISHED) for source in sources)
            record.say("\n".join(as_text(Report(published, PUBLISHED_COST, page=True))))  # type: ignore[arg-type]
            record.results["comparison"] = report.as_json(every_row=False)
            show(record, report)
            page_beside(record, sources, report, pair)
            write_html(record, report, pair)
            record.cannot_show("whether the graphs are the makers' own: they are drawn after the pages, and fit them.")
        record.say() if pair != list(PAIRS)[-1] else None
        differing += record.differs
    return 1 if config.strict and differing else None


def zoo(config: Zoo) -> Record:
    """`compare.py zoo FOLDER`."""
    folder = Path(config.folder)
    files = sorted(folder.glob("*.json")) if config.folder else []
    if not files:
        raise UserError(f"{config.folder or 'zoo'}: name a folder that holds graph files (*.json)")
    with Record(
        "comparisons",
        "zoo",
        config=config,
        question="Do public graph files read, pass forward, and hold as many parameters as their model?",
        results=config.results,
    ) as record:
        record.say(
            f"{len(files)} graph files: parameters counted rightly, and the official count that a file carries\n"
        )
        rows = [["file", "layers", "parameters", "official", "difference", "MACs", "passes forward"]]
        reasons, found = [], {}
        for path in files:
            try:
                model = measure(read(path))
            except UserError as error:
                record.say(f"{path.name}: not read: {error}")
                found[path.stem] = {"read": False, "error": str(error)}
                continue
            told = explain(model)
            atleast = "at least " if model.unknown("macs") else ""
            rows.append(
                [path.stem, str(len(model.body)), f"{model.parameters:,}", f"{told.official:,}" if told else "",
                 f"{told.difference:+.2%}" if told else "", atleast + short(model.macs), model.forward]
            )  # fmt: skip
            found[path.stem] = {
                "read": True, "layers": len(model.body), "parameters": model.parameters, "macs": model.macs,
                "forward_passes": model.passes_forward,
                "problems": [f"{one.name} {one.problem}" for one in model.problems],
                "unknown_types": model.unknown_types, "official": asdict(told) if told else None,
            }  # fmt: skip
            if told and not told.within:
                words = " + ".join(f"{one.words} ({one.parameters:,})" for one in told.omissions)
                reasons.append(
                    f"{path.stem}: {told.counted:,} against {told.official:,}; "
                    + (f"what would close it to {told.left:+.2%}: {words}" if words else "no rule explains it")
                )
        record.say("\n".join(table(rows)))
        record.table("Every graph file", rows[0], rows[1:])
        official = [one["official"] for one in found.values() if one.get("official")]
        within = sum(one["within"] for one in official)
        record.say(f"\n{within} of {len(official)} official counts are met within {TOLERANCE:.0%}.")
        if reasons:
            record.section("the others: what the graph does not hold")
            for line in reasons:
                record.say(f"  - {line}")
        record.results |= {"files": found, "within_tolerance": within, "official_counts": len(official)}
        record.cannot_show("that a graph draws its model faithfully; only that the sizes it gives add up, or do not.")
    return record


def builtin_models(config: Builtins) -> Record:
    """`compare.py builtins`."""
    with Record(
        "comparisons",
        "builtins",
        config=config,
        question="How many parameters and multiply-accumulates do the real models have?",
        results=config.results,
    ) as record:
        record.say("built on the meta device: parameters of the library's module, operations with attention\n")
        rows = [["name", "model", "input", "layers", "parameters", "MACs"]]
        for name in BUILTIN_NAMES:
            model = Source(name).model(RIGHT)
            inputs = " and ".join(" × ".join(map(str, layer.output or ())) for layer in model.inputs)
            rows.append([name, model.name, inputs, str(len(model.body)), f"{model.parameters:,}", f"{model.macs:,}"])
            record.results[name] = {
                "name": model.name, "parameters": model.parameters, "macs": model.macs, "layers": len(model.body),
                "inputs": [layer.output for layer in model.inputs],
            }  # fmt: skip
        record.say("\n".join(table(rows)))
        record.table("Every built-in model", rows[0], rows[1:])
        record.use_device("meta", "float32", "nothing is computed: shapes, parameters and operations alone")
        record.cannot_show("measured speed: operations are counted, not timed.")
    return record
