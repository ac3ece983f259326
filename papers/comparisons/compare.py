"""Two architectures side by side, and one model's check.

    python compare.py vit-b16 bert-base                         two real models, built without weights (10 s)
    python compare.py one.json other.json --html                two graph files (0.3 s)
    python compare.py graph:bert-base graph:vit-b16             two graphs of the comparison pages, counted rightly
    python compare.py bert-base vit-b16 --as-published          the same as the pages count
    python compare.py hf:/models/mine timm:resnet50             any configuration of transformers, any timm model
    python compare.py plan one.json                             one model: memory, fit, cost, as JSON
    python compare.py pages                                     all four pages, judged cell by cell (654 equal)
    python compare.py zoo FOLDER                                every graph file of a folder, against official counts
    python compare.py builtins                                  every built-in model's parameters and operations

Built-in: bert-base vit-b16 vit-b32 vit-l16 vit-l32 vit-h14 gpt2 t5-small resnet-50 bit-r50x1 dinov2-s14
efficientnet-lite0 article-vit article-resnet. Graph comparisons import no torch.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from papers.comparisons import evidence
from papers.comparisons.machine import model_json
from papers.comparisons.pages import AS_PUBLISHED, PAIRS, PUBLISHED_COST, TAGLINES, pair_of
from papers.comparisons.report import Report
from papers.comparisons.sources import Source, resolve
from papers.comparisons.view_text import as_markdown, as_text
from shared import cli
from shared.errors import UserError
from shared.graph.convention import RIGHT
from shared.graph.cost import Assumptions
from shared.paths import atomic_write
from shared.record import Record

CANNOT_SHOW = (
    "what a trained model does: sizes and operations follow from the graph, quality and measured speed do not."
)


@dataclass
class Plan(cli.Common, Assumptions):
    """One model's check as JSON: layers, parameters, shapes, MACs, memory, GPU fit and cost."""

    model: str = cli.positional()
    """a graph file, a built-in name, hf:<repository or folder>, timm:<name>"""
    length: int | None = None
    """tokens of a text model from hf: (default: its longest sequence)"""


@dataclass
class Compare(cli.Common, Assumptions):
    """Two models side by side."""

    left: str = cli.positional()
    """a graph file, a built-in name, hf:<repository or folder>, timm:<name>"""
    right: str = cli.positional()
    """what is compared with it"""
    as_published: bool = False
    """count and print as the comparison pages do, whatever is wrong with it"""
    markdown: bool = False
    """print markdown in the pages' form"""
    json: bool = False
    """print JSON with every count at full precision"""
    html: bool = False
    """write one self-contained page into the results folder"""
    all_rows: bool = False
    """print every row of repeated blocks"""
    length: int | None = None
    """tokens of a text model from hf: (default: its longest sequence)"""


def assumptions(config: Assumptions) -> Assumptions:
    """The assumptions among a command's options."""
    return Assumptions(**{field.name: getattr(config, field.name) for field in fields(Assumptions)})


def compare(config: Compare) -> Record:
    """The default command."""
    if config.markdown and config.json:
        raise UserError("--markdown and --json both print; choose one")
    sources = [resolve(spec, pages=config.as_published) for spec in (config.left, config.right)]
    if config.as_published and assumptions(config) != Assumptions():
        raise UserError("--as-published has the pages' own assumptions; leave it out to set others")
    check_length(config.length, sources)
    report = build(sources, config)
    pair = pair_of(*(source.graph for source in sources)) if all(source.graph for source in sources) else None
    name = pair or f"{sources[0].short}-vs-{sources[1].short}"
    if pair is None and name in PAIRS:  # two real models, or edited graphs: not the evidence of a page
        name = f"{name}-unpublished"
    with Record(
        "comparisons",
        name,
        config=config,
        question=f"How do {report.models[0].name} and {report.models[1].name} differ, layer by layer?",
        results=config.results,
        quiet=config.markdown or config.json,
    ) as record:
        record.say("\n".join(as_text(report, folded=not config.all_rows)))
        record.results["comparison"] = report.as_json(every_row=False)
        if all(source.graph for source in sources):
            evidence.page_beside(record, sources, report, pair)
        record.cannot_show(CANNOT_SHOW)
        if config.html:
            path = evidence.write_html(record, report, pair)
            print(f"page: {path}", file=sys.stderr if record.quiet else sys.stdout)
    if config.json:
        print(json.dumps(record.results | {"comparison": report.as_json()}, indent=1, ensure_ascii=False))
    if config.markdown:
        print(as_markdown(report, tagline=TAGLINES.get(pair or "", ""), folded=not config.all_rows), end="")
    return record


def check_length(length: int | None, sources: list[Source]) -> None:
    """Raises UserError for a length that is none, or that no side would use."""
    if length is None:
        return
    if length < 1:
        raise UserError(f"--length must be at least 1, got {length}")
    if not any(source.spec.startswith("hf:") for source in sources):
        raise UserError("--length is for models from hf:; a graph declares its input, a built-in model has its own")


def build(sources: list[Source], config: Compare) -> Report:
    """Both sides measured under one convention."""
    convention = AS_PUBLISHED if config.as_published else RIGHT
    left, right = (source.model(convention, config.length) for source in sources)
    if left.name == right.name and left.source != right.source:
        for model in (left, right):
            model.name = f"{model.name} ({model.source})"
    return Report(
        (left, right),
        PUBLISHED_COST if config.as_published else assumptions(config),
        page=config.as_published,
        traced=any(source.graph is None for source in sources),
    )


def plan(config: Plan) -> None:
    """`compare.py plan MODEL`."""
    source = resolve(config.model)
    check_length(config.length, [source])
    model = source.model(RIGHT, config.length)
    assumed = assumptions(config)
    found = model_json(model, assumed) | {"assumptions": asdict(assumed)}
    found["layer_list"] = [
        {
            "id": layer.id, "name": layer.name, "type": layer.type, "output": layer.output,
            "parameters": layer.parameters, "macs": layer.macs, "kept_numbers": layer.kept,
            "problem": layer.problem or None, "notes": layer.notes,
        }
        for layer in model.layers
    ]  # fmt: skip
    text = json.dumps(found, indent=1, ensure_ascii=False)
    if config.results is not None:
        path = Path(config.results) / "comparisons" / f"plan-{source.short}.txt"
        atomic_write(path, text + "\n")
    print(text)


COMMANDS = {
    "plan": (plan, Plan),
    "pages": (evidence.pages, evidence.Pages),
    "zoo": (evidence.zoo, evidence.Zoo),
    "builtins": (evidence.builtin_models, evidence.Builtins),
}


def main(argv: list[str] | None = None) -> None:
    """A first word that is a command, or two models."""
    arguments = sys.argv[1:] if argv is None else argv
    command, config = COMMANDS.get(arguments[0], (None, None)) if arguments else (None, None)
    if command is not None:
        cli.run(command, config, arguments[1:])
    cli.run(compare, Compare, arguments)


if __name__ == "__main__":
    main()
