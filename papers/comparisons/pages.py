"""The four comparison pages reproduced and judged: how they count, every cell they print, what is wrong on them.

Sources: BERT Base vs ViT-B/16, GPT-2 vs BERT Base, BERT Base vs T5 Small, ResNet Block vs ViT-B/16. Their way of
counting was found by experiment: with it each of the 71 rows, all counts, all totals and all five costs come out as
printed. `findings.json` says what is wrong on them; the tests recompute every number in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from papers.comparisons import bars, drawing, webpage
from papers.comparisons.comparison import BLANK, NO_SIDE, Comparison, compare
from papers.comparisons.models import Source, find, page_graph
from papers.comparisons.needs import bounded
from papers.comparisons.text import MOST_DISAGREEMENTS, as_text, bullets, disagreement_lines, layer_table
from papers.comparisons.whole import COLUMNS, REAL_NOTE, content, page_of, part, whole_of
from shared import cli
from shared.graph.convention import RIGHT, Convention, Override
from shared.graph.cost import GPUS, Assumptions, dollars, short, train_cost
from shared.graph.kinds import of_family
from shared.graph.measure import Model, disagreements
from shared.graph.read import Graph
from shared.published import load
from shared.record import Record
from shared.verdict import EQUAL

FINDINGS = Path(__file__).parent / "findings.json"
PAIRS = {
    "bert-base-vs-vit-b16": ("bert-base", "vit-b16"),
    "gpt2-vs-bert-base": ("gpt2", "bert-base"),
    "bert-base-vs-t5-small": ("bert-base", "t5-small"),
    "resnet-block-vs-vit-b16": ("resnet-block", "vit-b16"),
}
TAGLINES = {
    "bert-base-vs-vit-b16": "The same transformer applied to text and to images.",
    "gpt2-vs-bert-base": "Decoder-only against encoder-only, same era, same size class.",
    "bert-base-vs-t5-small": "Encoder-only against encoder-decoder.",
    "resnet-block-vs-vit-b16": "Convolution against attention for images.",
}

AS_PUBLISHED = Convention(
    name="as published",
    declared_rows=True,
    tied=False,
    activations_in_memory=False,
    every_input=False,
    key_names=True,
    symmetric=False,
    file_order=True,
    overrides=(
        Override(
            "a convolution row without inChannels counts one input channel",
            frozenset({"conv2d", "depthwiseConv2d", "conv1d", "separableConv2d", "transposeConv2d"}),
            {"channels": "given('channels') or 1"},
            rows=True,
        ),
        Override(
            "a patch embedding's row without inChannels counts three",
            frozenset({"patchEmbed"}),
            {"channels": "given('channels') or 3"},
            rows=True,
        ),
        Override("the biases of this attention type are left out", frozenset({"causalAttention"}), {"bias": False}),
        Override("learned positions are counted as 0", frozenset({"positionalEncoding"}), {"parameters": 0}),
        Override(
            "one of the two attention products (q k^T, weights v) is left out", of_family("attention"), {"products": 1}
        ),
        Override(
            "cross attention reads its keys and values at the query's length",
            of_family("attention"),
            {"key_tokens": "length"},
        ),
        Override(
            "element-wise operations of a normalisation are counted as multiply-accumulates",
            of_family("normalisation"),
            {"macs": "2 * prod(x)"},
        ),
        Override(
            "element-wise operations of a ReLU are counted as multiply-accumulates",
            of_family("activation"),
            {"macs": "prod(x)"},
        ),
    ),
)
# one A10G at $1.10 an hour; memory is 16 bytes per parameter times 1.3, without activations
PUBLISHED_COST = Assumptions(factor=1.3, reserved_gb=0.0, idle_floor=True)


@dataclass
class Pages(cli.Common):
    """The four published comparisons, cell by cell."""

    figures: bool = False
    """[output] draw the parameters of each layer and both graphs (imports matplotlib)"""


def pages(config: Pages) -> int | None:
    """`compare.py pages`: for each page its text, the correct count, the findings, each cell's verdict."""
    differing = 0
    for pair, names in PAIRS.items():
        sources = [find(f"graph:{name}") for name in names]
        correct, published = both_counts(sources)
        question = f"Does the page {correct.title} print what its two graphs have, and what the real models have?"
        with Record("comparisons", pair, config=config, question=question, results=config.results) as record:
            truth(record, sources, published)
            record.section("the published page, reproduced")
            record.say(as_text(published))
            record.results["comparison"] = correct.as_json(every_row=False)
            tables(record, correct)
            if config.figures:
                figures(record, correct)
            beside(record, sources, correct, published, pair)
            record.answer(in_words(record, sources, published))
            webpage.write(record, correct, TAGLINES[pair], published)
            record.cannot_show("whether the graphs are the makers' own: they are drawn after the pages, and fit them.")
        if pair != list(PAIRS)[-1]:
            record.say()
        differing += record.differs
    return 1 if config.strict and differing else None


def both_counts(
    sources: Sequence[Source], assumed: Assumptions | None = None, gpus: Mapping[str, float] = GPUS
) -> tuple[Comparison, Comparison]:
    """Two graphs compared by the correct count (under `assumed`, on `gpus`), and as the pages count."""
    found = []
    for convention, used, cards in ((RIGHT, assumed, gpus), (AS_PUBLISHED, PUBLISHED_COST, GPUS)):
        models = [source.measure(convention) for source in sources]
        parts = [part(source.graph, model) for source, model in zip(sources, models, strict=True)]
        found.append(compare(*models, used, partial=parts, gpus=cards))
    return found[0], found[1]


def truth(record: Record, sources: Sequence[Source], compared: Comparison) -> None:
    """What a reader must know before the numbers of a page: what the real models have, and what the graphs are."""
    wholes = {whole.model: whole for source in sources if (whole := whole_of(source.graph))}
    rows = [whole.cells(compared.assumed) for whole in wholes.values()]
    record.say("The real models\n")
    record.say_table("The real models", COLUMNS, rows, left=range(len(COLUMNS)), note=REAL_NOTE)
    record.say("\n" + "\n".join(bullets(compared.banners)))
    record.results["real_models"] = [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def in_words(record: Record, sources: Sequence[Source], published: Comparison) -> str:
    """What came of the page, for somebody who reads no table: how it counts, and what is true of the real models."""
    same, printed = sum(v.verdict == EQUAL for v in record.verdicts), len(record.verdicts)
    wrong = len(record.results["contradictions"])
    real = [
        f"the page's {model.name} is {whole.part} and has {short(model.parameters)} parameters, the real "
        f"{whole.name} has {whole.parameters:,}"
        for source, model in zip(sources, published.models, strict=True)
        if (whole := whole_of(source.graph))
    ]
    return (
        f"Of its graphs, yes: counted by the page's own rules {same} of {printed} cells come out as printed. Of the "
        f"real models, no: {'; '.join(real)}. {wrong} things on the page are contradicted by its own numbers or by a "
        "correct count."
    )


def tables(record: Record, correct: Comparison) -> None:
    """For the suite's report: both sides and the aligned layers as tables."""
    sides = [[key, *(side[key] for side in correct.sides)] for key in correct.keys]
    record.table("Both sides", ["", *(model.name for model in correct.models)], sides)
    record.table("Layer by layer, the correct count", *layer_table(correct), note=correct.row_count_line)


def figures(record: Record, correct: Comparison) -> None:
    """For the suite's report and a paper: the parameters of each layer, both graphs."""
    from shared.plots import publish

    graphs = f"Both graphs, layers from top to bottom: {drawing.LEGEND}"
    for name, drawn, caption, words in (
        ("parameters", bars.figure(correct), bars.caption(correct), ""),
        ("graphs", drawing.figure(correct), graphs, drawing.in_words(correct)),
    ):
        if drawn is not None:
            data = "papers/comparisons/graphs"
            publish(record, drawn, f"{record.experiment}-{name}", caption, data=data, words=words)


def beside(
    record: Record, sources: Sequence[Source], correct: Comparison, published: Comparison, pair: str | None
) -> None:
    """Where `pair` is one of the pages, what is wrong on it; the correct count and the pages' count of the same graphs,
    and why they differ; the verdict of each of the page's cells."""
    if pair is not None:
        record.section("what contradicts the page")
        found = findings(pair)
        rows = [[one["claim"], one["arithmetic"]] for one in found]
        lines = [f"  - {claim}\n      {arithmetic}" for claim, arithmetic in rows]
        record.say_table("What contradicts the page", ["the page says", "the arithmetic"], rows, lines=lines)
        record.contradictions(found)
    both_ways(record, sources, correct, published)
    if pair is not None:
        record.results["cells"] = cells(published)
        why = "the page prints a cell that the comparison does not have"
        record.judge_all(load("comparisons", pair), record.results["cells"], why)
        record.print_verdicts()


def as_pages_count(record: Record, sources: Sequence[Source], models: Sequence[Model]) -> None:
    """For real models that the pages name: what the pages count in their place."""
    rows, banners = [], []
    for source, model in zip(sources, models, strict=True):
        if name := page_of(source.spec):
            theirs = find(f"graph:{name}").measure(AS_PUBLISHED)
            cost = dollars(train_cost(theirs, PUBLISHED_COST).dollars)
            counts = [model.parameters, theirs.parameters, model.macs, theirs.macs]
            rows.append([model.name, *(f"{count:,}" for count in counts), cost])
            banners.append(part(page_graph(name), theirs).banner)
    if rows:
        title = "how the published comparison pages count"
        record.section(title)
        columns = ["", "parameters", "as published", "MACs", "as published", "train cost as published"]
        record.say_table(title.capitalize(), columns, rows, left=range(6))
        record.say("\n".join(bullets(dict.fromkeys(banners))))


def both_ways(record: Record, sources: Sequence[Source], correct: Comparison, published: Comparison) -> None:
    """The correct count and the pages' count of the same graphs, and the rules behind each difference."""
    title = "the correct count, and the count of the comparison pages"
    record.section(title)
    theirs = "as published"
    rows = [
        [
            ours.name,
            *(bounded(model, "parameters", f"{model.parameters:,}") for model in (ours, other)),
            *(bounded(model, "macs", f"{model.macs:,}") for model in (ours, other)),
            *(
                bounded(model, "cost", dollars(train_cost(model, assumed).dollars))
                for model, assumed in ((ours, correct.assumed), (other, published.assumed))
            ),
        ]
        for ours, other in zip(correct.models, published.models, strict=True)
    ]
    columns = ["", "parameters", theirs, "MACs", theirs, "train cost", theirs]
    record.say_table(title.capitalize(), columns, rows, left=range(7))
    differing = {
        ours.name: disagreements(source.graph, ours, other)
        for source, ours, other in zip(sources, correct.models, published.models, strict=True)
    }
    lines = [line for name, some in differing.items() for line in disagreement_lines(name, some)]
    record.say("\n".join(bullets(lines, MOST_DISAGREEMENTS))) if lines else None
    record.results["disagreements"] = {name: [asdict(one) for one in some] for name, some in differing.items()}


def findings(pair: str) -> list[dict[str, str]]:
    """What is wrong on a page: where it stands, the claim, the arithmetic; first of each graph, then of the pair."""
    known = json.loads(FINDINGS.read_text(encoding="utf-8"))
    return [*(one for name in PAIRS[pair] for one in known["graphs"][name]), *known["pages"][pair]]


def pair_of(left: Graph, right: Graph) -> str | None:
    """Which page compares these two graphs, if one does: all but ties must be the page's."""
    for pair, names in PAIRS.items():
        if (left.id, right.id) == names and all(
            content(graph) == content(page_graph(name)) for graph, name in zip((left, right), names, strict=True)
        ):
            return pair
    return None


def cells(published: Comparison) -> dict[str, str]:
    """Every cell of a page by its id in `published/<pair>.json`, as the comparison prints it."""
    printed = {"title": published.title, "headline": published.headline, "deltas/relative": published.relative}
    for at, side in enumerate(published.sides, 1):
        printed |= {f"sides/{at}/{key}": value for key, value in side.items()}
    printed |= {"deltas/parameters": published.parameter_delta, "deltas/layers": published.layer_delta}
    printed |= {f"counts/{'unchanged' if key == 'same' else key}": str(n) for key, n in published.counts.items()}
    printed |= {"rows": str(len(published.rows)), "row-count-line": published.row_count_line}
    printed["gpu-section-note"] = published.gpu_note
    printed |= {f"notes/{at}": note for at, note in enumerate(published.notes, 1)}
    for number, row in enumerate(published.rows, 1):
        at = f"rows/{number:02d}"
        printed[f"{at}/status"] = published.status(row)
        for side, layer in (("left", row.left), ("right", row.right)):
            if layer is None:
                printed[f"{at}/{side}"] = NO_SIDE
            else:
                texts = published.layer_cells(layer)
                printed |= {f"{at}/{side}/{key}": value or BLANK for key, value in texts.items()}
    return printed
