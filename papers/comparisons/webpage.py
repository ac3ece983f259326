"""A comparison as one self-contained HTML page: no script, no request, every text escaped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from papers.comparisons import bars
from papers.comparisons.comparison import NO_SIDE, Comparison
from papers.comparisons.drawing import LEGEND, SIGNS, draw
from papers.comparisons.text import assumption_rows, disagreement_lines, repeats
from papers.comparisons.whole import REAL_NOTE
from shared.graph.measure import Disagreement
from shared.paths import atomic_write
from shared.record import Record

TEMPLATES = Path(__file__).parent / "templates"


def write(record: Record, compared: Comparison, tagline: str = "", published: Comparison | None = None) -> Path:
    """The page beside the record's log and JSON, with what the record has to say about it; to be called last.

    published: the same graphs as a comparison page counts them; what it prints is then reproduced first.
    """
    path = record.directory / f"{record.experiment}.html"
    verdicts = Counter(verdict.verdict for verdict in record.verdicts)
    atomic_write(path, as_html(compared, record.results, verdicts, tagline, published))
    record.file(path, "side by side, both graphs drawn")
    return path


def as_html(
    compared: Comparison,
    results: dict[str, Any] | None = None,
    verdicts: Counter[str] | None = None,
    tagline: str = "",
    published: Comparison | None = None,
) -> str:
    """The page. `results` are a record's: the real models stand first, what contradicts a page below the page."""
    import jinja2  # not at the top: most comparisons write no page, and start sooner without it
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results = results or {}
    return environment.get_template("compare.html").render(
        compared=compared,
        published=published if published is not compared else None,
        real_models=results.get("real_models", []),
        real_note=REAL_NOTE,
        bars=Markup(bars.draw(compared)),
        bars_caption=bars.caption(compared),
        tagline=tagline,
        h=3 if published else 2,
        css=Markup(css()),
        legend=LEGEND,
        signs=SIGNS | {"same": "="},
        repeats=repeats,
        no_side=NO_SIDE,
        drawings=[Markup(draw(compared, side)[0]) for side in (0, 1)],
        disagreements=[
            line
            for name, differing in results.get("disagreements", {}).items()
            for line in disagreement_lines(name, [Disagreement(**one) for one in differing])
        ],
        contradictions=results.get("contradictions", []),
        verdicts=verdicts or {},
        assumptions=assumption_rows(compared.assumed),
    )


def css() -> str:
    """The page's style sheet, which colours the drawings too."""
    return (TEMPLATES / "compare.css").read_text(encoding="utf-8")
