"""The four comparison pages: their conventions, their graphs and their printed cells.

Sources: BERT Base vs ViT-B/16, GPT-2 vs BERT Base, BERT Base vs T5 Small, ResNet Block vs ViT-B/16. The conventions
were found by experiment: with them each of the 71 rows, all counts, all totals and all five costs come out as printed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from papers.comparisons.report import BLANK, NO_SIDE, Report
from shared.graph.convention import Convention
from shared.graph.cost import Assumptions
from shared.graph.read import Graph, read

GRAPHS = Path(__file__).parent / "graphs"
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
    row_channels=1,
    unbiased=frozenset({"causalAttention"}),
    tied=False,
    learned_positions=False,
    attention_products=1,
    own_key_length=False,
    norm_macs=2,
    activation_macs=1,
    activations_in_memory=False,
    every_input=False,
    key_names=True,
    symmetric=False,
    file_order=True,
)
# one A10G at $1.10 an hour; memory is 16 bytes a parameter times 1.3, without activations
PUBLISHED_COST = Assumptions(factor=1.3, reserved_gb=0.0, idle_floor=True)


def page_graph(name: str) -> Graph:
    """One of the five graphs that the pages compare."""
    return replace(read(GRAPHS / f"{name}.json"), source=f"graph:{name}")


def page_names() -> list[str]:
    return sorted(path.stem for path in GRAPHS.glob("*.json"))


def pair_of(left: Graph, right: Graph) -> str | None:
    """Which page compares these two graphs, if one does: ids, types, names, settings and edges must be the page's.

    A tie is left out, because the pages tie nothing.
    """
    for pair, names in PAIRS.items():
        if (left.id, right.id) == names and all(
            _content(graph) == _content(page_graph(name)) for graph, name in zip((left, right), names, strict=True)
        ):
            return pair
    return None


def _content(graph: Graph) -> tuple:
    nodes = [
        (node.id, node.type, node.name, {key: value for key, value in node.settings.items() if key != "tied"})
        for node in graph.nodes
    ]
    return nodes, graph.edges


def cells(report: Report) -> dict[str, str]:
    """Every cell of a page by its id in `published/<pair>.json`, as this report prints it."""
    found = {"title": report.title, "headline": report.headline, "deltas/relative": report.relative}
    for at, side in enumerate(report.sides, 1):
        found |= {f"sides/{at}/{key}": value for key, value in side.cells.items()}
    found |= {"deltas/parameters": report.parameter_delta, "deltas/layers": report.layer_delta}
    found |= {f"counts/{'unchanged' if key == 'same' else key}": str(n) for key, n in report.counts.items()}
    found |= {"rows": str(len(report.rows)), "row-count-line": report.row_count_line}
    found["gpu-section-note"] = report.gpu_note
    found |= {f"notes/{at}": note for at, note in enumerate(report.notes, 1)}
    for number, row in enumerate(report.rows, 1):
        at = f"rows/{number:02d}"
        found[f"{at}/status"] = report.status(row)
        for side, layer in (("left", row.left), ("right", row.right)):
            if layer is None:
                found[f"{at}/{side}"] = NO_SIDE
            else:
                found |= {f"{at}/{side}/{key}": value or BLANK for key, value in report.layer_cells(layer).items()}
    return found
