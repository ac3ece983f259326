"""A comparison as text for the screen and the log, and as markdown in the pages' own form."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from papers.comparisons.comparison import NO_SIDE, Comparison
from shared.graph.align import Row
from shared.graph.cost import Assumptions
from shared.graph.fold import Fold
from shared.graph.measure import COUNTS, Disagreement
from shared.record import aligned, row_lines

NAME_WIDTH = 44  # characters of a layer on the screen
MOST_REMARKS, MOST_DISAGREEMENTS = 12, 24  # lines


def as_text(compared: Comparison, *, folded: bool = True) -> str:
    """For the screen and the log. folded: a block of layers that repeats is printed once."""
    lines = _page_lines(compared) if compared.as_published else _question_lines(compared)
    lines += ["", "Layer by layer", f"  {compared.row_count_line}", *_layer_lines(compared, folded)]
    if compared.remarks:
        lines += ["", "Remarks", *bullets(compared.remarks, MOST_REMARKS)]
    lines += ["", "What this is not", *bullets(compared.notes)]
    if not compared.as_published:
        first, *rest = assumption_rows(compared.assumed)
        lines += ["", "Assumed (each is an option)", *aligned(first, rest, left=(0, 1, 2))]
    return "\n".join(lines)


def _sides(compared: Comparison) -> list[str]:
    sides = [[key, *(side[key] for side in compared.sides)] for key in compared.keys]
    return aligned(["", *(model.name for model in compared.models)], sides, left=(0, 1, 2))


def _page_lines(compared: Comparison) -> list[str]:
    """The first half in the pages' own form."""
    lines = [compared.title, "", compared.headline, "", "Sides", *_sides(compared)]
    lines += ["", f"Deltas ({compared.relative})", f"  Parameters: {compared.parameter_delta}"]
    return [*lines, f"  Layers: {compared.layer_delta}", f"  {compared.count_line}", "", f"  {compared.gpu_note}"]


def _question_lines(compared: Comparison) -> list[str]:
    """The first half with what a person asks first: how large, how much work, which GPU."""
    first = compared.inputs_differ or compared.inputs_note
    lines = [first, ""] if first else []
    lines += [compared.title, "", compared.headline, "", "What each one needs", *_sides(compared)]
    notes = [note for note in (compared.about, "" if first else compared.gpu_note) if note]
    lines += ["", *(f"  {note}" for note in notes)] if notes else []
    lines += ["", f"Differences ({compared.relative})", *(f"  {key}: {words}" for key, words in compared.changes)]
    return [*lines, f"  {compared.count_line}"]


def layer_table(compared: Comparison, *, folded: bool = True) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of "layer by layer". The row about a repeated block has no number, its text in the 2nd cell."""
    left, right = (model.name for model in compared.models)
    rows = []
    for part in compared.parts(folded):
        for number, row in enumerate(part.items, part.start + 1):
            rows.append([str(number), compared.status(row)])
            for layer in (row.left, row.right):
                cells = layer and compared.layer_cells(layer)
                name = _cut(f"{cells['name']} ({cells['type']})") if cells else NO_SIDE
                rows[-1] += [name, cells["params"] if cells else "", cells["output"] if cells else ""]
        if part.times > 1:
            rows.append(["", f"× {part.times}: {repeats(part)}", *[""] * 6])
    return ["#", "Status", left, "Params", "Output", right, "Params", "Output"], rows


def _layer_lines(compared: Comparison, folded: bool) -> list[str]:
    columns, rows = layer_table(compared, folded=folded)
    # the long lines about repeated blocks must not widen the second column
    head, *numbered = row_lines(columns, [row for row in rows if row[0]], left=range(len(columns)))
    indent, numbered = " " * (4 + max(len(row[0]) for row in rows)), iter(numbered)
    return [*head, *(line for row in rows for line in (next(numbered) if row[0] else [indent + row[1]]))]


def repeats(part: Fold) -> str:
    """`rows 3 to 8 come 12 times, to row 74`."""
    first, many = part.start + 1, len(part.items)
    what = f"row {first} comes" if many == 1 else f"rows {first} to {first + many - 1} come"
    return f"{what} {part.times} times, to row {part.end}"


def _cut(text: str) -> str:
    return text if len(text) <= NAME_WIDTH else f"…{text[1 - NAME_WIDTH :]}"


def bullets(lines: Iterable[str], most: int | None = None) -> list[str]:
    """A list for the screen: at most `most` lines, then how many were left out."""
    lines = [f"  - {line}" for line in lines]
    more = len(lines) - (most or len(lines))
    return lines if more <= 0 else [*lines[:most], f"  - ... and {more} more (--json has them all)"]


def assumption_rows(assumed: Assumptions) -> list[list[str]]:
    """Option, value and meaning of each assumption."""
    return [
        [f"--{one.name.replace('_', '-')}", str(getattr(assumed, one.name)), one.metadata["help"]]
        for one in fields(assumed)
    ]


def disagreement_lines(model: str, disagreements: Sequence[Disagreement]) -> list[str]:
    """`model: layer (× 12), multiply-accumulates: 1,610 correct, 1,409 as published: because ...`, one per line."""
    lines = []
    for one in disagreements:
        times = f" (× {one.times})" if one.times > 1 else ""
        correct, published = (f"{count:,}" if count is not None else "unknown" for count in (one.ours, one.theirs))
        lines.append(
            f"{model}: {one.layer}{times}, {COUNTS[one.what]}: {correct} correct, {published} as published: "
            f"{'; '.join(one.reasons) or 'several rules together'}"
        )
    return lines


CSV_COLUMNS = ["name", "type", "parameters", "macs", "output"]


def as_csv(compared: Comparison) -> str:
    """Every row with exact counts; what is not known is empty. Text that a spreadsheet would run is quoted."""
    rows: list[list[object]] = []
    rows.append(["row", "status", "changed", *(f"{side} {one}" for side in ("left", "right") for one in CSV_COLUMNS)])
    for number, row in enumerate(compared.rows, 1):
        cells: list[object] = [number, row.status, _harmless(", ".join(row.changed))]
        for layer in (row.left, row.right):
            if layer is None:
                cells += [""] * len(CSV_COLUMNS)
            else:
                counts = ["" if count is None else count for count in (layer.row, layer.macs)]
                shape = "" if layer.output is None else "x".join(map(str, layer.output))
                cells += [_harmless(layer.name), _harmless(layer.type), *counts, shape]
        rows.append(cells)
    return _csv(rows)


def layers_csv(plan: dict[str, Any]) -> str:
    """The layers of `plan.plan`'s answer, one per row; what is not known is empty."""
    rows: list[list[object]] = [["id", *CSV_COLUMNS, "kept", "problem"]]
    for layer in plan["layer_list"]:
        counts = ["" if layer[key] is None else layer[key] for key in ("parameters", "macs")]
        shape = "x".join(map(str, layer["output"] or ()))
        words = [_harmless(layer[key] or "") for key in ("id", "name", "type", "problem")]
        kept = "" if layer["kept_numbers"] is None else layer["kept_numbers"]
        rows.append([*words[:3], *counts, shape, kept, words[3]])
    return _csv(rows)


def _csv(rows: list[list[object]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def _harmless(text: str) -> str:
    """A cell of text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# markdown -------------------------------------------------------------------------------------------------------------


def as_markdown(compared: Comparison, *, tagline: str = "", folded: bool = True) -> str:
    """The pages' markdown, without their links. Text of files is escaped where it would be markup."""
    left, right = (escape(model.name) for model in compared.models)
    lines = [*(f"> {escape(banner)}  " for banner in compared.banners), *[""][: len(compared.banners)]]
    lines += [f"# {escape(compared.title)}", ""] + ([tagline, ""] if tagline else [])
    first = "" if compared.as_published else compared.inputs_differ or compared.inputs_note
    lines += [escape(first), ""] if first else []
    lines += [f"**{escape(compared.headline)}**", "", "## Sides", "", f"| | {left} | {right} |", "|---|---|---|"]
    lines += [f"| {key} | {' | '.join(escape(side[key]) for side in compared.sides)} |" for key in compared.keys]
    lines += [
        "",
        f"## Deltas ({escape(compared.relative)})",
        "",
        *(f"- {key}: {words}" for key, words in compared.changes),
    ]
    lines += [f"- {compared.count_line}", "", "## Layer by layer", ""]
    lines += [f"| # | Status | {left} | Params | Output | {right} | Params | Output |", f"|{'---|' * 8}"]
    for part in compared.parts(folded):
        lines += [_markdown_row(compared, number, row) for number, row in enumerate(part.items, part.start + 1)]
        if part.times > 1:
            lines.append(f"| | × {part.times} | {repeats(part)} | | | | | |")
    if compared.remarks and not compared.as_published:
        lines += ["", "## Remarks", "", *(f"- {escape(line)}" for line in compared.remarks)]
    lines += ["", "## What this is not", "", *(f"- {escape(note)}" for note in compared.notes)]
    return "\n".join(lines) + "\n"


def _markdown_row(compared: Comparison, number: int, row: Row) -> str:
    line = f"| {number} | {escape(compared.status(row))} |"
    for layer in (row.left, row.right):
        if layer is None:
            line += "  | |  |"
        else:
            cells = compared.layer_cells(layer)
            line += f" {escape(cells['name'])} ({escape(cells['type'])}) | {cells['params']} | {cells['output']} |"
    return line


def escape(text: str) -> str:
    """Text that stays text inside a markdown table."""
    for sign, safe in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "\\`"), ("[", "\\["), ("]", "\\]")):
        text = text.replace(sign, safe)
    return text
