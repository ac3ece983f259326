"""A report as text for the screen, and as markdown in the pages' own form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from papers.comparisons.report import NO_SIDE, Report
from shared.graph.align import ADDED, CHANGED, REMOVED, SAME, Row
from shared.graph.disagree import COUNTS, Disagreement
from shared.graph.fold import Fold

NAME_WIDTH = 44  # characters of a layer on the screen


def as_text(report: Report, *, folded: bool = True) -> list[str]:
    """Lines for the screen, tables in columns."""
    lines = [report.title, "", report.headline, "", "Sides"]
    keys = [key for key in report.sides[0].cells if key != "name"]
    lines += table(
        [["", report.models[0].name, report.models[1].name]]
        + [[key, *(side.cells[key] for side in report.sides)] for key in keys]
    )
    lines += ["", f"Deltas ({report.relative})"]
    lines += [f"  Parameters: {report.parameter_delta}", f"  Layers: {report.layer_delta}", f"  {_counts(report)}"]
    lines += ["", f"  {report.gpu_note}", "", "Layer by layer", f"  {report.row_count_line}"]
    lines += table(row_cells(report, folded=folded))
    if report.remarks:
        lines += ["", "Noticed on the way", *(f"  - {line}" for line in grouped(report.remarks))]
    lines += ["", "What this is not", *(f"  - {note}" for note in report.notes)]
    if not report.page:
        lines += ["", "Assumed (each is an option)"]
        lines += table(
            [
                [f"--{one.name.replace('_', '-')}", str(getattr(report.assumed, one.name)), one.metadata["help"]]
                for one in fields(report.assumed)
            ]
        )
    return lines


def _counts(report: Report) -> str:
    found = report.counts
    return f"Added {found[ADDED]}, removed {found[REMOVED]}, changed {found[CHANGED]}, unchanged {found[SAME]}"


def row_cells(report: Report, *, folded: bool = True) -> list[list[str]]:
    """The layer-by-layer table as cells, its head first; a line on a repeated block has two cells."""
    left, right = (model.name for model in report.models)
    found = [["#", "Status", left, "Params", "Output", right, "Params", "Output"]]
    if not folded:
        return found + [_row(report, number, row) for number, row in enumerate(report.rows, 1)]
    for part in report.folds:
        found += [_row(report, part.start + at, row) for at, row in enumerate(part.items, 1)]
        if part.times > 1:
            found.append(["", f"× {part.times}: {fold_words(part)}"])
    return found


def fold_words(part: Fold) -> str:
    """`rows 3 to 8 come 12 times, to row 74`."""
    first, many = part.start + 1, len(part.items)
    what = f"row {first} comes" if many == 1 else f"rows {first} to {first + many - 1} come"
    return f"{what} {part.times} times, to row {part.end}"


def _row(report: Report, number: int, row: Row) -> list[str]:
    cells = [str(number), report.status(row)]
    for layer in (row.left, row.right):
        if layer is None:
            cells += [NO_SIDE, "", ""]
        else:
            found = report.layer_cells(layer)
            cells += [_cut(f"{found['name']} ({found['type']})"), found["params"], found["output"]]
    return cells


def _cut(text: str) -> str:
    return text if len(text) <= NAME_WIDTH else f"…{text[1 - NAME_WIDTH :]}"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns, two blanks between; a row of fewer cells is a line of its own and widens nothing."""
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(cell) for cell in column) for column in zip(*full, strict=True)]
    found = []
    for row in rows:
        if len(row) < len(widths):
            found.append("  " + " " * (widths[0] + 2) + row[-1])
        else:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            found.append(("  " + "  ".join(cells)).rstrip())
    return found


def grouped(lines: Iterable[str], limit: int = 12) -> list[str]:
    """At most `limit` lines, and how many were left out."""
    found = list(lines)
    left = len(found) - limit
    return found if left <= 0 else [*found[:limit], f"... and {left} more (--json has them all)"]


def disagreement_lines(name: str, found: Sequence[Disagreement], theirs: str) -> list[str]:
    """`name: layer (x 12): multiply-accumulates 1,610 rightly, 1,409 as published, because ...`."""
    lines = []
    for one in found:
        times = f" (× {one.times})" if one.times > 1 else ""
        counts = [f"{count:,}" if count is not None else "unknown" for count in (one.ours, one.theirs)]
        lines.append(
            f"{name}: {one.layer}{times}, {COUNTS[one.what]}: {counts[0]} rightly, {counts[1]} {theirs}: "
            f"{'; '.join(one.reasons) or 'several rules together'}"
        )
    return lines


# markdown -------------------------------------------------------------------------------------------------------------


def as_markdown(report: Report, *, tagline: str = "", folded: bool = True) -> str:
    """The pages' markdown, without their links. Text of files is escaped where it would be markup."""
    left, right = (_plain(model.name) for model in report.models)
    lines = [f"# {_plain(report.title)}", ""] + ([tagline, ""] if tagline else [])
    lines += [f"**{_plain(report.headline)}**", "", "## Sides", "", f"| | {left} | {right} |", "|---|---|---|"]
    keys = [key for key in report.sides[0].cells if key != "name"]
    lines += [f"| {key} | {' | '.join(_plain(side.cells[key]) for side in report.sides)} |" for key in keys]
    lines += ["", f"## Deltas ({_plain(report.relative)})", "", f"- Parameters: {report.parameter_delta}"]
    lines += [f"- Layers: {report.layer_delta}", f"- {_counts(report)}", "", "## Layer by layer", ""]
    lines += [f"| # | Status | {left} | Params | Output | {right} | Params | Output |", f"|{'---|' * 8}"]
    for part in report.folds if folded else [Fold(report.rows, 1, 0)]:
        lines += [_markdown_row(report, part.start + at, row) for at, row in enumerate(part.items, 1)]
        if part.times > 1:
            lines.append(f"| | × {part.times} | {fold_words(part)} | | | | | |")
    if report.remarks and not report.page:
        lines += ["", "## Noticed on the way", "", *(f"- {_plain(line)}" for line in report.remarks)]
    lines += ["", "## What this is not", "", *(f"- {_plain(note)}" for note in report.notes)]
    return "\n".join(lines) + "\n"


def _markdown_row(report: Report, number: int, row: Row) -> str:
    cells = [f"| {number} | {_plain(report.status(row))} |"]
    for layer in (row.left, row.right):
        if layer is None:
            cells.append("  | |  |")
        else:
            found = report.layer_cells(layer)
            cells.append(
                f" {_plain(found['name'])} ({_plain(found['type'])}) | {found['params']} | {found['output']} |"
            )
    return "".join(cells)


def _plain(text: str) -> str:
    """Text that stays text inside a markdown table."""
    for sign, safe in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "\\`"), ("[", "\\["), ("]", "\\]")):
        text = text.replace(sign, safe)
    return text
