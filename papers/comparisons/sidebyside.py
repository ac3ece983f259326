"""Two named models compared: everything that `compare.py A B` prints and the service answers.

told = tell(record, sources, assumed)     what is asked first, layer by layer, how the published pages count
told.as_json() .markdown() .csv() .html()
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from papers.comparisons import webpage
from papers.comparisons.comparison import Comparison, compare
from papers.comparisons.inputs import measured
from papers.comparisons.models import Source
from papers.comparisons.pages import PAIRS, TAGLINES, as_pages_count, beside, both_counts, pair_of, truth
from papers.comparisons.text import as_csv, as_markdown, as_text, bullets
from papers.comparisons.whole import part
from shared.errors import UserError
from shared.graph.cost import GPUS, Assumptions, gpu
from shared.record import Record

LARGEST_IMAGE = 65_536  # pixels of a side
CANNOT_SHOW = (
    "what a trained model does: sizes and operations follow from the graph, quality and measured speed do not."
)


def pair_and_name(sources: Sequence[Source]) -> tuple[str | None, str]:
    """The page that compares these two, if one does, and the name of the result."""
    graphs = [source.graph for source in sources if source.graph is not None]
    pair = pair_of(*graphs) if len(graphs) == 2 else None
    name = pair or f"{sources[0].file_name}-vs-{sources[1].file_name}"
    # two real models, or edited graphs: not the evidence of a page
    return pair, f"{name}-unpublished" if pair is None and name in PAIRS else name


@dataclass
class Told:
    """A comparison and what was said of it. `record` need not be written."""

    record: Record
    compared: Comparison
    published: Comparison | None
    pair: str | None
    folded: bool = True

    @property
    def tagline(self) -> str:
        return TAGLINES.get(self.pair or "", "")

    def as_json(self) -> str:
        """Every row, every count at full precision."""
        return as_lines(self.record.results | {"comparison": self.compared.as_json()})

    def markdown(self) -> str:
        return as_markdown(self.compared, tagline=self.tagline, folded=self.folded)

    def csv(self) -> str:
        return as_csv(self.compared)

    def html(self) -> str:
        """The page as text; `write` puts it beside the record's log."""
        verdicts = Counter(verdict.verdict for verdict in self.record.verdicts)
        published = self.published if self.pair else None
        return webpage.as_html(self.compared, self.record.results, verdicts, self.tagline, published)

    def write(self) -> Path:
        published = self.published if self.pair else None
        return webpage.write(self.record, self.compared, self.tagline, published)


def tell(
    record: Record,
    sources: Sequence[Source],
    assumed: Assumptions,
    *,
    as_published: bool = False,
    own_inputs: bool = False,
    all_rows: bool = False,
    length: int | None = None,
    image_size: Any = None,
    gpus: Sequence[str] = (),
) -> Told:
    """Compare, say it to the record and keep it there."""
    if as_published and assumed != Assumptions():
        raise UserError("--as-published has the pages' own assumptions; leave it out to set others")
    image = check_sizes(length, image_size, sources)
    cards = GPUS | dict(gpu(name) for name in gpus)
    pair, _ = pair_and_name(sources)
    correct, published = None, None
    if all(source.graph is not None for source in sources):
        correct, published = both_counts(sources, assumed, cards)
        compared = published if as_published else correct
    else:
        models, note = measured(sources, length, image, own=own_inputs)
        parts = [part(source.graph, model) for source, model in zip(sources, models, strict=True)]
        compared = compare(*models, assumed, built=True, partial=parts, inputs_note=note, gpus=cards)
    if pair:
        truth(record, sources, compared)
    elif compared.banners:
        record.say("\n".join(bullets(compared.banners)))
    record.say(("\n" if compared.banners else "") + as_text(compared, folded=not all_rows))
    record.results["comparison"] = compared.as_json(every_row=False)
    if published:
        beside(record, sources, correct, published, pair)
    else:
        as_pages_count(record, sources, compared.models)
    record.question = f"How do {compared.models[0].name} and {compared.models[1].name} differ, layer by layer?"
    record.cannot_show(CANNOT_SHOW)
    return Told(record, compared, published, pair, not all_rows)


def check_sizes(length: int | None, image: Any, sources: Sequence[Source]) -> tuple[int, int] | None:
    """Height and width of the images. Raises UserError for a size below 1, or one that no side would use."""
    if length is not None and length < 1:
        raise UserError(f"--length must be at least 1, got {length}")
    if length is not None and not any(source.takes_tokens for source in sources):
        raise UserError(
            "--length is for models that take tokens: built-in ones, from the hub or a folder; a graph declares its "
            "input, and images have no length"
        )
    if image is None:
        return None
    sides = image if isinstance(image, list) else str(image).lower().split("x")
    found = [int(side) if str(side).isdigit() else 0 for side in sides]
    found = found * 2 if len(found) == 1 else found
    if len(found) != 2 or not all(1 <= side <= LARGEST_IMAGE for side in found):
        raise UserError(f"--image-size: expected pixels such as 384, or height x width such as 224x320, got {image!r}")
    if all(source.graph is not None for source in sources):
        raise UserError("--image-size is for models that are built; a graph declares its input")
    return found[0], found[1]


def as_lines(answer: dict[str, Any]) -> str:
    """JSON as every answer is printed and sent: indented, UTF-8, one line break at its end.

    msgspec, because the standard library's encoder works in Python where it has to indent.
    """
    try:
        return msgspec.json.format(msgspec.json.encode(answer), indent=1).decode() + "\n"
    except UnicodeEncodeError:  # half a pair of UTF-16 in a name
        return json.dumps(answer, indent=1, ensure_ascii=False) + "\n"
