"""A report as one self-contained HTML page: no script, no request, every text escaped."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from papers.comparisons.drawing import SIGNS, draw
from papers.comparisons.report import NO_SIDE, Report
from papers.comparisons.view_text import disagreement_lines, fold_words
from shared.graph.cost import GPUS
from shared.graph.disagree import Disagreement

TEMPLATES = Path(__file__).parent / "templates"


def as_html(report: Report, results: dict[str, Any], verdicts: Counter[str] | None = None, tagline: str = "") -> str:
    """The page. `results` are the record's: disagreements and contradictions stand below the tables if it has them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    keys = [key for key in report.sides[0].cells if key != "name" and key not in GPUS]
    return environment.get_template("compare.html").render(
        report=report,
        tagline=tagline,
        css=Markup((TEMPLATES / "compare.css").read_text()),
        keys=keys,
        gpus=[
            {"name": name, "cells": [side.cells[name] for side in report.sides], "differs": _one_fits(report, at)}
            for at, name in enumerate(GPUS)
        ],
        signs=SIGNS | {"same": "="},
        parts=_parts(report),
        no_side=NO_SIDE,
        drawings=[
            (model.name, Markup(draw(model, report.rows, side)))
            for model, side in zip(report.models, ("left", "right"), strict=True)
        ],
        otherwise=[
            line
            for name, found in results.get("disagreements", {}).items()
            for line in disagreement_lines(name, [Disagreement(**one) for one in found], "as published")
        ],
        contradictions=results.get("contradictions", []),
        verdicts=verdicts,
        assumptions=[
            (f"--{one.name.replace('_', '-')}", getattr(report.assumed, one.name), one.metadata["help"])
            for one in fields(report.assumed)
        ],
    )


def _one_fits(report: Report, at: int) -> bool:
    first, second = (side.fits[at].fits for side in report.sides)
    return {first, second} == {True, False}


def _parts(report: Report) -> list[dict[str, Any]]:
    """Blocks of rows: what is always shown, and the repetitions that a reader may open."""
    found = []
    for part in report.folds:
        length = len(part.items)
        rows = report.rows[part.start : part.end]
        lines = [
            {
                "number": part.start + at,
                "status": row.status,
                "changed": row.changed,
                "cells": [None if layer is None else report.layer_cells(layer) for layer in (row.left, row.right)],
            }
            for at, row in enumerate(rows, 1)
        ]
        found.append({"times": part.times, "words": fold_words(part), "first": lines[:length], "again": lines[length:]})
    return found
