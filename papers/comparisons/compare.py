"""Two architectures side by side, and one model's check.

    python compare.py vit-b16 bert-base                     two real models, built without weights (10 s)
    python compare.py graph:bert-base graph:vit-b16         two graphs of the comparison pages, counted correctly
    python compare.py graph:bert-base graph:vit-b16 --as-published     as the pages count
    python compare.py vit-b16 timm:resnet50 --html          any timm model; a page to look at
    python compare.py plan graph:gpt2 --text                one model: memory, fit, cost (without --text as JSON)
    python compare.py plan graph:gpt2 --policy '{"max_params": 1e8}' --fail-on-block    exit code 2: too large
    python compare.py pages                                 all four pages, judged cell by cell (654 equal)
    python compare.py zoo papers/comparisons/graphs --results /tmp/zoo      all graph files of a folder
    python compare.py builtins                              parameters and operations of every built-in model

A model is a graph file (JSON), a built-in name, owner/name[@revision] on the hub, a folder in hub layout,
timm:<name>[@file], wheel:<name> or graph:<a graph of the pages>. Built-in: bert-base vit-b16 vit-b32 vit-l16 vit-l32
vit-h14 gpt2 t5-small resnet-50 bit-r50x1 dinov2-s14 efficientnet-lite0 article-vit article-resnet. `plan -` reads a
graph from the standard input. Comparisons of graphs import no torch.

Where the numbers are counted: a graph's in shared/graph/measure.py (its kinds of layers in kinds.py), a real model's in
shared/graph/trace.py, memory and cost in shared/graph/cost.py; which layers face each other in shared/graph/align.py.
How the pages count is in pages.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.comparisons import answers
from papers.comparisons import plan as planning
from papers.comparisons.lacking import missing
from papers.comparisons.models import Source, find, store
from papers.comparisons.needs import bounded
from papers.comparisons.pages import Pages, pages
from papers.comparisons.sidebyside import as_lines, pair_and_name, tell
from papers.comparisons.text import layers_csv
from papers.comparisons.whole import TOLERANCE
from shared import cli, specs
from shared.errors import UserError
from shared.graph.cost import Assumptions, short
from shared.graph.measure import measure
from shared.graph.read import read
from shared.paths import atomic_write
from shared.record import Record
from shared.schema import read_json
from shared.text import folded, say


@dataclass
class Plan(cli.Common, Assumptions):
    """One model's check as JSON: layers, parameters, shapes, MACs, memory, GPU fit and cost."""

    model: str = cli.positional()
    """a graph file, a built-in name, owner/name on the hub, a folder, timm:<name>, wheel:<name>; - reads a graph, or a
    request as the service takes it, from the standard input"""
    policy: str | None = None
    """[what] rules to keep, as JSON or a file of it: max_params, max_memory_gb, must_fit, forbid_types, require_types,
    max_layers, max_cost_usd"""
    base: str | None = None
    """what the model is compared with: the answer has the difference"""
    gpu: tuple[str, ...] = ()
    """further GPUs: a name such as L4 or RTX4090, or a memory such as 24GB"""
    fail_on_block: bool = False
    """exit with code 2 when a rule is not kept, as when the model cannot run"""
    length: int | None = None
    """[data] tokens of a text model (default: its longest sequence, of a language model at most 2,048)"""
    image_size: str | None = None
    """pixels of an image, 384 or 224x320 (default: the model's own)"""
    json: bool = False
    """[output] print JSON (so it does anyway); plan.schema.json describes it"""
    text: bool = False
    """print a card of plain text"""
    markdown: bool = False
    """print the card as markdown"""
    csv: bool = False
    """print the layers as CSV"""


@dataclass
class Compare(cli.Common, Assumptions):
    """Two models side by side."""

    left: str = cli.positional()
    """a graph file, a built-in name, owner/name on the hub, a folder, timm:<name>, wheel:<name>"""
    right: str = cli.positional()
    """what is compared with it"""
    as_published: bool = False
    """[what] count and print as the comparison pages do, whatever is wrong with it"""
    markdown: bool = False
    """[output] print markdown in the pages' form"""
    json: bool = False
    """print JSON with every count at full precision"""
    html: bool = False
    """write one self-contained page into the results folder"""
    csv: bool = False
    """print the layers as CSV, counts at full precision"""
    all_rows: bool = False
    """print every row of repeated blocks"""
    gpu: tuple[str, ...] = ()
    """[what] further GPUs: a name such as L4 or RTX4090, or a memory such as 24GB"""
    own_inputs: bool = False
    """[protocol] measure each of two real models at its own input, also where both could take the same"""
    length: int | None = None
    """[data] tokens of a text model (default: its longest sequence, of a language model at most 2,048)"""
    image_size: str | None = None
    """pixels of an image, 384 or 224x320 (default: the model's own)"""


@dataclass
class Zoo(cli.Common):
    """Every graph file of a folder: does it read and pass forward, and does its count meet the official one?"""

    folder: str = cli.positional()
    """folder of graph files (*.json)"""


def compare(config: Compare) -> Record:
    """The default command: both models as text, markdown, JSON or CSV, with the pages' count beside."""
    printed = [name for name in ("markdown", "json", "csv") if getattr(config, name)]
    if len(printed) > 1:
        raise UserError(f"{' and '.join(f'--{name}' for name in printed)} both print; choose one")
    sources = [find(text, as_published=config.as_published) for text in (config.left, config.right)]
    how = {name: getattr(config, name) for name in ("as_published", "own_inputs", "all_rows", "length", "image_size")}
    how["gpus"] = config.gpu
    _, name = pair_and_name(sources)
    with Record("comparisons", name, config=config, results=config.results, quiet=bool(printed)) as record:
        told = tell(record, sources, assumptions(config), **how)
        if config.html:
            say(f"page: {told.write()}", sys.stderr if record.quiet else sys.stdout)
    for name, text in (("json", told.as_json), ("markdown", told.markdown), ("csv", told.csv)):
        if name in printed:
            say(text(), end="")
    return record


def assumptions(config: Assumptions) -> Assumptions:
    """The assumptions among a command's options."""
    return Assumptions(**{field.name: getattr(config, field.name) for field in fields(Assumptions)})


def plan(config: Plan) -> int | None:
    """`compare.py plan MODEL`: one JSON object, or the card in it as text or markdown, or its layers as CSV."""
    printed = [name for name in ("json", "text", "markdown", "csv") if getattr(config, name)]
    if len(printed) > 1:
        raise UserError(f"{' and '.join(f'--{name}' for name in printed)} both print; choose one")
    request, options = requested(config), assumptions(config)
    answer = planning.answer(request, named, options)
    text = as_lines(answer)
    if config.results is not None:
        name = planning.source_of(request["model"], named).file_name
        atomic_write(Path(config.results) / "comparisons" / f"plan-{name}.json", text)
    form = printed[0] if printed else "json"
    if form != "json":
        text = layers_csv(answer) if form == "csv" else folded(answer[form]) if form == "text" else answer[form]
    say(text, end="")
    stopped = planning.blocked(answer) if config.fail_on_block else not answer["plan"]["run"]["legal"]
    return 2 if stopped else None


def requested(config: Plan) -> dict[str, Any]:
    """The service's request that the options say; `-` reads a graph or a whole request from the standard input."""
    request: dict[str, Any] = {"model": config.model}
    if config.model == "-":
        data = planning.decode(sys.stdin.buffer.read(planning.LARGEST_REQUEST + 1), "standard input")
        request = planning.as_request(data)
    if config.base:
        request["base"] = config.base
    if config.policy:
        inline = config.policy.lstrip().startswith("{")
        request["policy"] = (
            planning.decode(config.policy.encode(), "--policy")
            if inline
            else read_json(Path(config.policy), "policy", "give a file, or the rules as JSON: '{\"max_params\": 1e8}'")
        )
    for key in ("length", "image_size"):
        if getattr(config, key) is not None:
            request[key] = getattr(config, key)
    return request | ({"gpus": list(config.gpu)} if config.gpu else {})


def named(model: str) -> Source:
    """On the command line every form of a name is allowed."""
    return find(model)


def zoo(config: Zoo) -> Record:
    """`compare.py zoo FOLDER`: the count of each graph file beside the official one in it, and what it may lack."""
    files = sorted(Path(config.folder).glob("*.json")) if config.folder else []
    if not files:
        raise UserError(f"{config.folder or 'zoo'}: name a folder that holds graph files (*.json)")
    question = "Can public graph files be read, do their layers fit together, and have they their model's parameters?"
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
            macs = bounded(model, "macs", short(model.macs)).partition(":")[0]
            rows.append([path.stem, str(len(model.body)), f"{counted:,}", *printed, macs, model.forward])
            results[path.stem] = {
                "read": True,
                "layers": len(model.body),
                "parameters": counted,
                "macs": model.macs,
                "totals": {what: model.total_is(what) for what in ("parameters", "macs")},
                "forward_passes": model.passes_forward,
                "problems": [f"{one.name} {one.problem}" for one in model.problems],
                "unknown_types": model.unknown_types,
                "official": official,
                "difference": difference,
            }
            if official and abs(difference) > TOLERANCE:
                missed.append(f"{path.stem}: {counted:,} against {official:,}; {missing(model, official)}")
        columns = ["file", "layers", "parameters", "official", "difference", "MACs", "passes forward"]
        record.say_table("Every graph file", columns, rows, left=range(7))
        officials = sum(bool(one.get("official")) for one in results.values())
        met = officials - len(missed)
        record.say(f"\n{met} of {officials} official counts are met within {TOLERANCE:.0%}.")
        if missed:
            record.section("the others: what the graph may lack")
            record.say("\n".join(f"  - {line}" for line in missed))
        record.results |= {"files": results, "within_tolerance": met, "official_counts": officials}
        forward = sum(bool(one.get("forward_passes")) for one in results.values())
        why = f" What may fill the gaps of the other {len(missed)} stands in the log." if missed else ""
        record.answer(
            f"{len(rows)} of {len(files)} files are read and {forward} pass forward: every layer can take what the one "
            f"before it gives. {officials} files name their model's official number of parameters; {met} graphs have "
            f"it within {TOLERANCE:.0%}.{why}"
        )
        record.cannot_show("that a graph draws its model faithfully; only that the sizes it gives add up, or do not.")
    return record


@dataclass
class Builtins(cli.Common):
    """Every built-in model, built and counted."""

    store: bool = False
    """keep what was counted beside the code: comparisons answer from it without importing torch"""


def builtins(config: Builtins) -> Record:
    """`compare.py builtins`: every built-in model, built and counted."""
    question = "How many parameters do the real models have, and how many multiply-adds does one input cost?"
    with Record("comparisons", "builtins", config=config, question=question, results=config.results) as record:
        record.say("built without weights: parameters of the library's module, operations with attention's products\n")
        rows = []
        for name in specs.BUILTINS:
            model = find(name).build()
            if config.store:
                store(model, name)
            inputs = " and ".join(" × ".join(map(str, layer.output or ())) for layer in model.inputs)
            rows.append([name, model.name, inputs, str(len(model.body)), f"{model.parameters:,}", f"{model.macs:,}"])
            counts = {"name": model.name, "parameters": model.parameters, "macs": model.macs, "layers": len(model.body)}
            record.results[name] = counts | {"inputs": [layer.output for layer in model.inputs]}
        columns = ["name", "model", "input", "layers", "parameters", "MACs"]
        record.say_table("Every built-in model", columns, rows, left=range(6))
        span = f"{extremes(record.results, 'parameters')}, and {extremes(record.results, 'macs')} for one input"
        record.answer(f"The {len(rows)} models have {span}.")
        record.use_device("meta", "float32", "nothing is computed: shapes, parameters and operations alone")
        record.cannot_show("measured speed: operations are counted, not timed.")
    return record


def extremes(counted: dict[str, dict], what: str) -> str:
    """`from 1,205,898 parameters (ViT) to 632,045,800 (ViT-H/14)`: the models with the least and the most of `what`."""
    least, most = (choose(counted.values(), key=lambda one: one[what]) for choose in (min, max))
    word = {"parameters": "parameters", "macs": "multiply-adds"}[what]
    return f"from {least[what]:,} {word} ({least['name']}) to {most[what]:,} ({most['name']})"


def schema(config: cli.Common) -> None:
    """`compare.py schema`: the JSON Schema of `compare.py plan`."""
    say(as_lines(answers.schema()), end="")


COMMANDS = {
    "plan": (plan, Plan),
    "pages": (pages, Pages),
    "zoo": (zoo, Zoo),
    "builtins": (builtins, Builtins),
    "schema": (schema, cli.Common),
}


def main(argv: list[str] | None = None) -> None:
    """A first word that is a command, or two models."""
    cli.run_command(COMMANDS, compare, Compare, argv)


if __name__ == "__main__":
    main()
