"""The page: `templates/page.html` filled with what `collect` found. Text from data is escaped by the template engine.

The page may load nothing: its content security policy allows images in the page, its own style sheet and its own
script by their hashes, and no address outside it.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shared.paths import ROOT, atomic_write
from shared.report.collect import Experiment, Report, collect
from shared.report.images import Embedded, embed, thumbnail
from shared.verdict import AGREES, DIFFERS, EQUAL, NOT_COMPARABLE, NOT_RUN, VERDICTS

TEMPLATES = Path(__file__).parent / "templates"
MARKS = {EQUAL: "=", AGREES: "≈", DIFFERS: "≠", NOT_COMPARABLE: "◇", NOT_RUN: "–"}  # read without colour
MEANINGS = {
    EQUAL: "prints the same text as the publication",
    AGREES: "not the same text, but inside the tolerance",
    DIFFERS: "outside the tolerance: a finding, looked into where the experiment says so",
    NOT_COMPARABLE: "measured on a named stand-in: another model or other images than the publication's",
    NOT_RUN: "there is no measurement here, and the reason is given",
}
LONG = 12  # a measured table of more rows starts folded
THINNEST = 1.5  # percent of a bar: a single differing number must not vanish


def build(results: Path, output: Path, *, note: str = "", papers: Path = ROOT / "papers") -> Report:
    """Write the page `output` from all results below `results`; returns what it shows."""
    report = collect(results, output, papers)
    # a lone surrogate in a result is legal JSON but no legal text file
    atomic_write(output, render(report, note).encode("utf-8", "replace"))
    return report


def render(report: Report, note: str = "") -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"number": number, "short": short, "kind": kind}
    environment.globals |= {"bar": bar, "marks": MARKS, "figure": figure, "card_figure": card_figure}
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        report=report,
        note=note,
        verdicts=VERDICTS,
        long=LONG,
        meanings=MEANINGS,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# what the template calls ---------------------------------------------------------------------------------------------


def kind(verdict: str) -> str:
    """A verdict as a class name."""
    return verdict.replace(" ", "-")


def number(value: float, published: str, sign: bool = False) -> str:
    """A difference or tolerance with one digit more than the published text has."""
    if abs(float(value)) < 1e-9:  # what is left of a binary fraction
        return "0"
    decimals = len(published.partition(".")[2]) + 1 if published.replace(",", "").lstrip("+-")[:1].isdigit() else 3
    return f"{float(value):{'+' if sign else ''},.{min(decimals, 9)}f}".replace("-", "−")


def short(value: Any) -> str:
    """A measured table's cell: texts as they are, numbers with four digits, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return str(value)


def bar(counts: Counter) -> list[tuple[str, float, float]]:
    """(verdict, start, width) in percent of the bar, none thinner than can be seen."""
    present = [name for name in VERDICTS if counts[name]]
    total = sum(counts.values())
    widths = {name: max(100 * counts[name] / total, THINNEST) for name in present}
    scale, start, parts = 100 / sum(widths.values()) if widths else 0, 0.0, []
    for name, width in widths.items():
        parts.append((name, round(start, 3), round(width * scale, 3)))
        start += width * scale
    return parts


def figure(drawing: dict) -> dict[str, Any]:
    """The drawing with its `image`, or with the `problem` that keeps it from being shown."""
    try:
        return drawing | {"image": embed(drawing["files"], photographs=drawing["gallery"]), "problem": ""}
    except ValueError as error:
        return drawing | {"image": None, "problem": str(error)}


def card_figure(experiment: Experiment) -> Embedded | None:
    """The figure that answers the question, small; None where there is none or it cannot be shown."""
    try:
        return thumbnail(experiment.answer["files"]) if experiment.answer else None
    except ValueError:
        return None
