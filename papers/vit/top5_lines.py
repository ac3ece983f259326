"""The lines of `vit_part4_top5.py`: the article's own, char for char, and the suite's tables."""

from __future__ import annotations

from collections.abc import Sequence

from papers.vit.top5_scoring import TOP, ClassScore, Counts, Scores, short
from shared.verdict import wilson


def headline(images: int, data: str, classes: int = 1000) -> str:
    """The article's title, without the signs around it."""
    return f"top-1 and top-5 accuracy over all {classes} ImageNet classes, on the {images:,} {data} pictures"


def model_line(name: str, counts: Counts) -> str:
    """One classifier, as the article prints it."""
    return (
        f"  {name:12} top-1 {counts.top1:.2f}%   top-5 {counts.top5:.2f}%   "
        f"top-1 wrong on {counts.wrong} pictures, of which {counts.forgiven} have the label in the top 5"
    )


def examples_lines(
    model: str, scores: Scores, chosen: Sequence[int], candidates: int, seed: int,
    files: Sequence[str], label_names: Sequence[str],
) -> list[str]:  # fmt: skip
    """The drawn images, as the article prints them. `chosen` are rows of `scores`, out of `candidates`."""
    how = f"{len(chosen)} picked at random, seed {seed}"
    if len(chosen) == candidates:
        how = "there is none" if candidates == 0 else f"all {candidates} there are"
    lines = [f"  {model}, pictures whose top-1 is not the label but whose top-5 contains it ({how}):"]
    for i in chosen:
        label, best = short(label_names[scores.label[i]]), short(label_names[scores.top[i, 0]])
        lines.append(f"    {files[i]:28} label: {label:16} top-1: {best:22} label at rank {scores.rank[i]}")
    return lines


def sum_line(name: str, counts: Counts, tied: int) -> str:
    """That the counts add up (`count` has checked it), and how often the order of equal logits mattered."""
    return (
        f"  {name:20} {counts.right:,} right + {counts.forgiven:,} wrong with the label in the top {TOP} + "
        f"{counts.rest:,} rest = {counts.images:,} images; equal logits decided by index on {tied}"
    )


def share(successes: int, n: int) -> str:
    """`84.92% (83.77 to 86.01)`: a proportion with its Wilson interval at 95 %; `-` when there is nothing to count."""
    if n == 0:
        return "-"
    low, high = wilson(successes, n)
    return f"{100 * successes / n:.2f}% ({100 * low:.2f} to {100 * high:.2f})"


def origin_rows(groups: Sequence[tuple[str, Counts | None]]) -> list[list[str]]:
    """[which images, how many, top-1 with interval, top-5 with interval]; None: no such image."""
    rows = []
    for what, counts in groups:
        if counts is None:
            rows.append([what, "0", "-", "-"])
            continue
        five = counts.right + counts.forgiven
        rows.append([what, f"{counts.images:,}", share(counts.right, counts.images), share(five, counts.images)])
    return rows


def class_rows(found: Sequence[ClassScore], telling: Sequence[str]) -> list[list[str]]:
    """[class, images, top-1, top-5, top-1 of the data set's classes, most frequent wrong top-1 with counts]."""
    rows = []
    for row in found:
        shares = [f"{100 * n / row.images:.1f}%" if row.images else "-" for n in (row.top1, row.top5, row.of_few)]
        confused = ", ".join(f"{telling[index]} {n}" for index, n in row.confusions) or "none"
        rows.append([telling[row.index], f"{row.images:,}", *shares, confused])
    return rows


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    """A table in plain text, two spaces in front and between; the columns `left` are aligned left, others right."""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]

    def pad(i: int, cell: str) -> str:
        return cell.ljust(widths[i]) if i in left else cell.rjust(widths[i])

    return ["  " + "  ".join(pad(i, cell) for i, cell in enumerate(row)).rstrip() for row in cells]
