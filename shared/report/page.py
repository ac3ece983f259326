"""The page: `templates/page.html` filled with what `collect` read. Text from data is escaped by the template engine.

The page may load nothing: its content security policy allows images in the page, its own style sheet and its own
script by their hashes, and no address outside it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections import Counter
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from PIL import Image

from shared.check import Summary
from shared.paths import ROOT, atomic_write
from shared.published import KINDS
from shared.report.collect import Contents, Drawing, Experiment, Paper, broken, collect
from shared.report.glossary import WORDS
from shared.result import RUN_AGAIN
from shared.verdict import AGREES, DIFFERS, EQUAL, NOT_COMPARABLE, NOT_RUN, UNDECIDED, VERDICTS

TEMPLATES = Path(__file__).parent / "templates"
MARKS = {
    EQUAL: "=",
    AGREES: "≈",
    UNDECIDED: "?",
    DIFFERS: "≠",
    NOT_COMPARABLE: "◇",
    NOT_RUN: "–",
}  # read without colour
MEANINGS = {
    EQUAL: "prints the same text as the publication",
    AGREES: "not the same text, but inside the tolerance",
    UNDECIDED: "inside the tolerance, but the tolerance is too wide to say anything",
    DIFFERS: "outside the tolerance: a finding; where a reason is known it stands below the number",
    NOT_COMPARABLE: "measured with another model or other images than the publication's (a stand-in), which are named",
    NOT_RUN: "not measured here; the reason is given",
}
THINNEST = 1.5  # percent of a bar: a single differing number must not vanish
LARGEST_SVG = 30_000  # bytes; above it a drawing is shown from its PNG, which is smaller on the page
COLOURS = 32  # of a drawing with pixels: few and exact are smaller than many and blurred; photographs take all
LARGEST_FIGURE = 50_000_000  # bytes
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # Pillow would hand others to programs of the system
WIDTH, CARD_WIDTH = 1200, 420  # pixels: at least the width on a desktop, more for fine screens


def build(results: Path, output: Path, *, note: str = "", papers: Path = ROOT / "papers") -> Contents:
    """Write the page `output` from all results below `results`; returns what it shows."""
    contents = collect(results, output, papers)
    try:
        page = render(contents, note)
    except Exception:  # one file's content is the reason; the page of all others is made without it
        contents.experiments = [_rendered_alone(e, contents.summary) for e in contents.experiments]
        page = render(contents, note)
    # a lone surrogate in a result is legal JSON but no legal text file
    atomic_write(output, page.encode("utf-8", "replace"))
    return contents


def _rendered_alone(experiment: Experiment, summary: Summary) -> Experiment:
    """An experiment, or its names with a problem where no page can be made of it."""
    try:
        paper = Paper(name=experiment.paper)
        render(Contents([paper], [experiment], [], summary))
        return experiment
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:300]
        return broken(experiment, f"{experiment.paper}/{experiment.name}.json: cannot be shown ({why}); {RUN_AGAIN}")


def render(contents: Contents, note: str = "") -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "cell": cell, "kind": lambda verdict: verdict.replace(" ", "-")}
    environment.filters |= {"linked": linked, "origin": with_addresses, "markdown": markdown}
    environment.globals |= {"bar": bar, "marks": MARKS, "shown": shown, "card_image": card_image, "kinds": KINDS}
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        page=contents,
        note=note,
        verdicts=VERDICTS,
        meanings=MEANINGS,
        glossary=WORDS,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# what the template calls ---------------------------------------------------------------------------------------------


def number(value: float, published: str, sign: bool = False) -> str:
    """A difference or tolerance with one digit more than the published text has."""
    if abs(value) < 1e-9:  # what is left of a binary fraction
        return "0"
    decimals = len(published.partition(".")[2]) + 1 if published.replace(",", "").lstrip("+-")[:1].isdigit() else 3
    return f"{value:{'+' if sign else ''},.{min(decimals, 9)}f}".replace("-", "−")


def cell(value: Any) -> str:
    """A measured table's cell: texts as they are, numbers with four digits, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return str(value)


def bar(counts: Counter) -> list[tuple[str, float, float]]:
    """(verdict, start, width) in percent of the bar, none thinner than can be seen."""
    total = counts.total()
    widths = {name: max(100 * counts[name] / total, THINNEST) for name in VERDICTS if counts[name]}
    scale, start, parts = 100 / sum(widths.values()) if widths else 0, 0.0, []
    for name, width in widths.items():
        parts.append((name, round(start, 3), round(width * scale, 3)))
        start += width * scale
    return parts


@dataclass(frozen=True)
class Embedded:
    """An image in the page: `uri` is a data: address; width and height in CSS pixels (None: an SVG brings its own).

    With a `problem` there is no image; it says why.
    """

    uri: str = ""
    width: int | None = None
    height: int | None = None
    problem: str = ""


def shown(drawing: Drawing) -> Embedded:
    """The drawing whole, for its section: the SVG unless it is large, else what has pixels, as WebP."""

    def rank(file: Path) -> int:
        if file.suffix != ".svg":
            return 1
        return 0 if not drawing.gallery and file.exists() and file.stat().st_size <= LARGEST_SVG else 2

    problems = []
    for file in sorted((file for file in drawing.files if file.suffix != ".pdf"), key=rank):
        try:
            if file.suffix != ".svg":
                return _webp(file, WIDTH, drawing.gallery)
            data = _content(file)
            if b"<svg" not in data[:4096] or b"</svg>" not in data[-64:]:
                raise ValueError("not a whole SVG")
            return Embedded(_uri("image/svg+xml", data))
        except Exception as error:  # Pillow's decoders raise nearly anything for damaged files
            problems.append(f"{file.name}: {getattr(error, 'strerror', None) or error}")
    return Embedded(problem="; ".join(problems))


def card_image(drawing: Drawing) -> Embedded:
    """A small copy for the card: of the PNG where there is one, since an SVG cannot be scaled here."""
    for file in drawing.files:
        if file.suffix not in (".svg", ".pdf"):
            try:
                return _webp(file, CARD_WIDTH, drawing.gallery)
            except Exception:  # see above
                continue  # the section says what is wrong with it
    return shown(drawing)


def _webp(file: Path, width: int, photographs: bool) -> Embedded:
    """The image at most `width` pixels wide; one cut short raises, and does not become half an image."""
    with Image.open(BytesIO(_content(file)), formats=FORMATS) as image:
        small = image.convert("RGB")
        small.thumbnail((width, 2 * width), Image.Resampling.LANCZOS)
        buffer = BytesIO()
        if photographs:
            small.save(buffer, "WEBP", quality=50, method=6)
        else:
            few = small.quantize(COLOURS, method=Image.Quantize.FASTOCTREE).convert("RGB")
            few.save(buffer, "WEBP", lossless=True, method=4)
        return Embedded(_uri("image/webp", buffer.getvalue()), *small.size)


def _content(file: Path) -> bytes:
    """A figure's bytes. OSError for what is none: absent, a folder, a pipe that never ends, far too large."""
    if file.exists() and not file.is_file():
        raise OSError("not a file")
    if file.stat().st_size > LARGEST_FIGURE:
        raise OSError(f"{file.stat().st_size / 1e6:.0f} MB are too much for a page")
    return file.read_bytes()


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def linked(text: str, paper: Paper) -> Markup:
    """The text, escaped, in which each further source of the paper, where it is first named, leads to it."""
    links = {}
    for source in paper.sources:
        href = source.url if source.url.startswith("https://") else f"#{paper.anchor}"
        name, title = escape(source.name), escape(source.title)
        links[str(name)] = f'<a href="{escape(href)}" title="{title}" rel="noreferrer">{name}</a>'
    named = "|".join(rf"\b{re.escape(name)}\b" for name in links)
    # one pass, so that no link is made in another one's title; each source is linked once
    html = re.sub(named, lambda m: links.pop(m[0], m[0]), str(escape(text))) if links else str(escape(text))
    return Markup(html)


def with_addresses(text: str) -> Markup:
    """The text, escaped, with its https addresses and arXiv numbers as links."""
    html = re.sub(r"https://[^\s<>&,]+", r'<a href="\g<0>" rel="noreferrer">\g<0></a>', str(escape(text)))
    arxiv = r'<a href="https://arxiv.org/abs/\1" rel="noreferrer">arXiv:\1</a>'
    return Markup(re.sub(r"\barXiv:(\d{4}\.\d{4,5}(v\d+)?)", arxiv, html))


def markdown(text: str, label: str) -> Markup:
    """Findings as HTML: no HTML of their own, headings below the page's, tables that scroll in themselves."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(text)
    for token in tokens:
        if token.type.startswith("heading_"):
            token.tag = f"h{min(6, int(token.tag[1]) + 3)}"
    html = parser.renderer.render(tokens, parser.options, {})
    tables = itertools.count(1)

    def scrolling(_: re.Match) -> str:
        return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)} {next(tables)}"><table>'

    return Markup(
        re.sub("<table>", scrolling, html).replace("</table>", "</table></div>").replace("<th></th>", "<td></td>")
    )
