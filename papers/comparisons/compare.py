"""Two architectures side by side, and one model's check.

    python compare.py vit-b16 bert-base                         two real models, built without weights (10 s)
    python compare.py one.json other.json --html                two graph files (0.3 s)
    python compare.py graph:bert-base graph:vit-b16             two graphs of the comparison pages, the correct count
    python compare.py bert-base vit-b16 --as-published          the same as the pages count
    python compare.py google/vit-base-patch16-224 timm:resnet50 any configuration of transformers, any timm model
    python compare.py plan one.json                             one model: memory, fit, cost, as JSON
    python compare.py pages                                     all four pages, judged cell by cell (654 equal)
    python compare.py zoo FOLDER                                every graph file of a folder, against official counts
    python compare.py builtins                                  every built-in model's parameters and operations

A model is a graph file, a built-in name, owner/name[@revision] on the hub, a folder in hub layout, timm:<name>[@file],
wheel:<name> or graph:<a graph of the pages>. Built-in: bert-base vit-b16 vit-b32 vit-l16 vit-l32 vit-h14 gpt2 t5-small
resnet-50 bit-r50x1 dinov2-s14 efficientnet-lite0 article-vit article-resnet. Graph comparisons import no torch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.comparisons import comparison, webpage
from papers.comparisons.comparison import layer_json, model_json
from papers.comparisons.models import Source, find
from papers.comparisons.pages import FINDINGS, PAIRS, TAGLINES, beside, both_counts, pages, pair_of, truth
from papers.comparisons.text import as_markdown, as_text, bullets
from papers.comparisons.whole import TOLERANCE, part
from shared import cli, specs
from shared.errors import UserError
from shared.graph.cost import Assumptions, short
from shared.graph.measure import measure
from shared.graph.read import read
from shared.paths import atomic_write
from shared.record import Record

CANNOT_SHOW = (
    "what a trained model does: sizes and operations follow from the graph, quality and measured speed do not."
)


@dataclass
class Plan(cli.Common, Assumptions):
    """One model's check as JSON: layers, parameters, shapes, MACs, memory, GPU fit and cost."""

    model: str = cli.positional()
    """a graph file, a built-in name, owner/name on the hub, a folder, timm:<name>, wheel:<name>"""
    length: int | None = None
    """tokens of a text model from the hub (default: its longest sequence)"""


@dataclass
class Compare(cli.Common, Assumptions):
    """Two models side by side."""

    left: str = cli.positional()
    """a graph file, a built-in name, owner/name on the hub, a folder, timm:<name>, wheel:<name>"""
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
    """tokens of a text model from the hub (default: its longest sequence)"""


@dataclass
class Zoo(cli.Common):
    """Every graph file of a folder: does it read and pass forward, and does its count meet the official one?"""

    folder: str = cli.positional()
    """folder of graph files (*.json)"""


def compare(config: Compare) -> Record:
    """The default command: both models as text, markdown or JSON, with the pages' count beside two graphs."""
    if config.markdown and config.json:
        raise UserError("--markdown and --json both print; choose one")
    sources = [find(text, as_published=config.as_published) for text in (config.left, config.right)]
    if config.as_published and assumptions(config) != Assumptions():
        raise UserError("--as-published has the pages' own assumptions; leave it out to set others")
    check_length(config.length, sources)
    graphs = [source.graph for source in sources if source.graph is not None]
    pair, published = None, None
    if len(graphs) == 2:
        correct, published = both_counts(sources, assumptions(config))
        compared = published if config.as_published else correct
        pair = pair_of(*graphs)
    else:
        models = [source.measure(length=config.length) for source in sources]
        parts = [part(source.graph, model) for source, model in zip(sources, models, strict=True)]
        compared = comparison.compare(*models, assumptions(config), built=True, partial=parts)
    name = pair or f"{sources[0].file_name}-vs-{sources[1].file_name}"
    if pair is None and name in PAIRS:  # two real models, or edited graphs: not the evidence of a page
        name = f"{name}-unpublished"
    tagline = TAGLINES.get(pair or "", "")
    question = f"How do {compared.models[0].name} and {compared.models[1].name} differ, layer by layer?"
    quiet = config.markdown or config.json
    with Record("comparisons", name, config=config, question=question, results=config.results, quiet=quiet) as record:
        if pair:
            truth(record, sources, compared)
        elif compared.banners:
            record.say("\n".join(bullets(compared.banners)))
        record.say(("\n" if compared.banners else "") + as_text(compared, folded=not config.all_rows))
        record.results["comparison"] = compared.as_json(every_row=False)
        if published:
            beside(record, sources, correct, published, pair)
        record.cannot_show(CANNOT_SHOW)
        if config.html:
            path = webpage.write(record, compared, tagline, published if pair else None)
            print(f"page: {path}", file=sys.stderr if record.quiet else sys.stdout)
    if config.json:
        print(json.dumps(record.results | {"comparison": compared.as_json()}, indent=1, ensure_ascii=False))
    if config.markdown:
        print(as_markdown(compared, tagline=tagline, folded=not config.all_rows), end="")
    return record


def assumptions(config: Assumptions) -> Assumptions:
    """The assumptions among a command's options."""
    return Assumptions(**{field.name: getattr(config, field.name) for field in fields(Assumptions)})


def check_length(length: int | None, sources: Sequence[Source]) -> None:
    """Raises UserError for a length below 1, or one that no side would use."""
    if length is None:
        return
    if length < 1:
        raise UserError(f"--length must be at least 1, got {length}")
    if not any(source.spec.kind == "hf" for source in sources):
        raise UserError(
            "--length is for models from the hub or a folder; a graph declares its input, a built-in model has its own"
        )


def plan(config: Plan) -> None:
    """`compare.py plan MODEL`: one JSON object on the screen, and with --results in a file."""
    source = find(config.model)
    check_length(config.length, [source])
    model = source.measure(length=config.length)
    assumed = assumptions(config)
    layers = [layer_json(layer) | {"kept_numbers": layer.kept} for layer in model.layers]
    answer = model_json(model, assumed) | {"assumptions": asdict(assumed), "layer_list": layers}
    text = json.dumps(answer, indent=1, ensure_ascii=False)
    if config.results is not None:
        atomic_write(Path(config.results) / "comparisons" / f"plan-{source.file_name}.txt", text + "\n")
    print(text)


def zoo(config: Zoo) -> Record:
    """`compare.py zoo FOLDER`: the count of each graph file beside the official one in it, and what it may lack."""
    files = sorted(Path(config.folder).glob("*.json")) if config.folder else []
    if not files:
        raise UserError(f"{config.folder or 'zoo'}: name a folder that holds graph files (*.json)")
    known = json.loads(FINDINGS.read_text(encoding="utf-8"))["zoo"]
    question = "Do public graph files read, pass forward, and hold as many parameters as their model?"
    with Record("comparisons", "zoo", config=config, question=question, results=config.results) as record:
        record.say(f"{len(files)} graph files: the correct count of parameters, and the official one in the file\n")
        rows, missed, results = [], [], {}
        for path in files:
            try:
                model = measure(read(path))
            except UserError as error:
                record.say(f"{path.name}: not read: {error}")
                results[path.stem] = {"read": False, "error": str(error)}
                continue
            counted, official = model.parameters, model.official_parameters
            difference = counted / official - 1 if official else None
            printed = [f"{official:,}", f"{difference:+.2%}"] if official else ["", ""]
            macs = f"{'at least ' if model.unknown('macs') else ''}{short(model.macs)}"
            rows.append([path.stem, str(len(model.body)), f"{counted:,}", *printed, macs, model.forward])
            results[path.stem] = {
                "read": True,
                "layers": len(model.body),
                "parameters": counted,
                "macs": model.macs,
                "forward_passes": model.passes_forward,
                "problems": [f"{one.name} {one.problem}" for one in model.problems],
                "unknown_types": model.unknown_types,
                "official": official,
                "difference": difference,
            }
            if official and abs(difference) > TOLERANCE:
                reason = missing(known.get(path.stem), counted, official)
                missed.append(f"{path.stem}: {counted:,} against {official:,}; {reason}")
        columns = ["file", "layers", "parameters", "official", "difference", "MACs", "passes forward"]
        record.say_table("Every graph file", columns, rows, left=range(7))
        officials = sum(bool(one.get("official")) for one in results.values())
        met = officials - len(missed)
        record.say(f"\n{met} of {officials} official counts are met within {TOLERANCE:.0%}.")
        if missed:
            record.section("the others: what the graph may lack")
            record.say("\n".join(f"  - {line}" for line in missed))
        record.results |= {"files": results, "within_tolerance": met, "official_counts": officials}
        record.cannot_show("that a graph draws its model faithfully; only that the sizes it gives add up, or do not.")
    return record


def missing(finding: dict | None, counted: int, official: int) -> str:
    """What is known of this file: only for the two counts that it was found for, never a guess."""
    if finding is None or (finding["counted"], finding["official"]) != (counted, official):
        return "no reason is known"
    left = (counted + sum(one["parameters"] for one in finding["missing"])) / official - 1
    words = " + ".join(f"{one['what']} ({one['parameters']:,})" for one in finding["missing"])
    return f"off by {left:+.2%} with {words}"


def builtins(config: cli.Common) -> Record:
    """`compare.py builtins`: every built-in model, built and counted."""
    question = "How many parameters and multiply-accumulates do the real models have?"
    with Record("comparisons", "builtins", config=config, question=question, results=config.results) as record:
        record.say("built on the meta device: parameters of the library's module, operations with attention\n")
        rows = []
        for name in specs.BUILTINS:
            model = find(name).measure()
            inputs = " and ".join(" × ".join(map(str, layer.output or ())) for layer in model.inputs)
            rows.append([name, model.name, inputs, str(len(model.body)), f"{model.parameters:,}", f"{model.macs:,}"])
            counts = {"name": model.name, "parameters": model.parameters, "macs": model.macs, "layers": len(model.body)}
            record.results[name] = counts | {"inputs": [layer.output for layer in model.inputs]}
        columns = ["name", "model", "input", "layers", "parameters", "MACs"]
        record.say_table("Every built-in model", columns, rows, left=range(6))
        record.use_device("meta", "float32", "nothing is computed: shapes, parameters and operations alone")
        record.cannot_show("measured speed: operations are counted, not timed.")
    return record


COMMANDS = {"plan": (plan, Plan), "pages": (pages, cli.Common), "zoo": (zoo, Zoo), "builtins": (builtins, cli.Common)}


def main(argv: list[str] | None = None) -> None:
    """A first word that is a command, or two models."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in COMMANDS:
        cli.run(*COMMANDS[arguments[0]], arguments[1:])
    cli.run(compare, Compare, arguments)


if __name__ == "__main__":
    main()
