"""A comparison as one self-contained HTML page: no script, no request, every text escaped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from papers.comparisons.comparison import NO_SIDE, Comparison
from papers.comparisons.drawing import LEGEND, SIGNS, draw
from papers.comparisons.text import assumption_rows, disagreement_lines, repeats
from shared.graph.cost import GPUS
from shared.graph.disagree import Disagreement
from shared.graph.fold import Fold
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
        keys=[key for key in compared.keys if key not in GPUS],
        gpus=[
            {
                "name": name,
                "cells": [side.cells[name] for side in compared.sides],
                "differs": {side.fits[at].fits for side in compared.sides} == {True, False},
            }
            for at, name in enumerate(GPUS)
        ],
        signs=SIGNS | {"same": "="},
        parts=[_part(compared, part) for part in compared.folds],
        no_side=NO_SIDE,
        drawings=[
            (model.name, Markup(draw(model, compared.rows, side)[0]))
            for model, side in zip(compared.models, ("left", "right"), strict=True)
        ],
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


def _part(compared: Comparison, part: Fold) -> dict[str, Any]:
    """A block of rows: those that are always shown, and its repetitions, which a reader may open."""
    lines = [
        {
            "number": number,
            "status": row.status,
            "changed": row.changed,
            "cells": [layer and compared.layer_cells(layer) for layer in (row.left, row.right)],
        }
        for number, row in enumerate(compared.rows[part.start : part.end], part.start + 1)
    ]
    length = len(part.items)
    return {"times": part.times, "words": repeats(part), "first": lines[:length], "again": lines[length:]}
