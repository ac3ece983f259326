"""A comparison as one self-contained HTML page: no script, no request, every text escaped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from papers.comparisons.comparison import NO_SIDE, Comparison
from papers.comparisons.drawing import LEGEND, SIGNS, draw
from papers.comparisons.text import assumption_rows, disagreement_lines, repeats
from shared.graph.cost import GPUS
from shared.graph.measure import Disagreement
from shared.paths import atomic_write
from shared.record import Record

TEMPLATES = Path(__file__).parent / "templates"


def write(record: Record, compared: Comparison, tagline: str = "") -> Path:
    """The page beside the record's log and JSON, with what the record has to say about it; to be called last."""
    path = record.directory / f"{record.experiment}.html"
    verdicts = Counter(verdict.verdict for verdict in record.verdicts)
    atomic_write(path, as_html(compared, record.results, verdicts, tagline))
    record.file(path, "side by side, both graphs drawn")
    return path


def as_html(
    compared: Comparison, results: dict[str, Any] | None = None, verdicts: Counter[str] | None = None, tagline: str = ""
) -> str:
    """The page. `results` are a record's: `disagreements` and `contradictions` stand below the tables."""
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
        tagline=tagline,
        css=Markup(css()),
        legend=LEGEND,
        gpus=list(GPUS),
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
        verdicts=verdicts,
        assumptions=assumption_rows(compared.assumed),
    )


def css() -> str:
    """The page's style sheet, which colours the drawings too."""
    return (TEMPLATES / "compare.css").read_text()
