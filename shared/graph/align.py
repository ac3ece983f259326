"""Two models side by side: which layer stands for which, what was added, removed and changed.

Both are taken in topological order and aligned globally at the least cost: a gap costs 1, a pair of one type nothing, a
pair of two different normalisations 1, and no other pair is ever made. Names, sizes and shapes play no part in the
cost. Ties go to the alignment with fewer pairs of different normalisations, then, from the end, to a pair, to an added
layer, to a removed one. The shorter side is taken as the left one while that is decided, so that swapping the sides
swaps what is added and what is removed and nothing else (a convention may leave both out).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention
from shared.graph.kinds import KINDS, NORMALISATIONS
from shared.graph.measure import Layer, Model

LARGEST_TABLE = 30_000_000  # cells; two models of 5,400 layers each, about 15 seconds
SAME, CHANGED, ADDED, REMOVED = "same", "changed", "added", "removed"
_NEVER = 1 << 30
Pair = tuple[int | None, int | None]  # indices of the left and right layer; None is a gap


@dataclass
class Row:
    """One line of the table. `changed` names the settings in which a pair differs, `type` first."""

    status: str
    left: Layer | None
    right: Layer | None
    changed: list[str] = field(default_factory=list)


def align(left: Model, right: Model, convention: Convention = RIGHT) -> list[Row]:
    """The rows in order; a removed layer stands before an added one. Raises UserError for models too long to align."""
    types = [[layer.type for layer in model.layers] for model in (left, right)]
    rows = []
    for i, j in align_types(*types, symmetric=convention.symmetric):
        first, second = None if i is None else left.layers[i], None if j is None else right.layers[j]
        if first is None or second is None:
            rows.append(Row(ADDED if first is None else REMOVED, first, second))
        else:
            changed = changed_fields(first, second, by_name=convention.key_names)
            rows.append(Row(CHANGED if changed else SAME, first, second, changed))
    return rows


def align_types(left: Sequence[str], right: Sequence[str], *, symmetric: bool = True) -> list[Pair]:
    """Time and memory grow with the product of the two lengths."""
    n, m = len(left), len(right)
    if n * m > LARGEST_TABLE:
        raise UserError(
            f"{n:,} against {m:,} layers are too many to align (at most {LARGEST_TABLE:,} pairs); compare parts of them"
        )
    if symmetric and (m, list(right)) < (n, list(left)):
        # among alignments of one cost the choice must not depend on which side is left
        return _removed_first([(i, j) for j, i in align_types(right, left)])
    # symmetric: a cost is (gaps + mixed pairs) * unit + mixed pairs, so the second term only ever settles ties
    unit = n + m + 1 if symmetric else 1
    mixed = unit + (1 if symmetric else 0)
    table = [[j * unit for j in range(m + 1)]]
    for i in range(1, n + 1):
        above, type = table[-1], left[i - 1]
        family = type in NORMALISATIONS
        best = i * unit
        row = [best]
        add = row.append
        for j in range(1, m + 1):
            other = right[j - 1]
            up = above[j]
            best = (best if best < up else up) + unit
            if other == type:
                pair = above[j - 1]  # a call of `min` would cost a tenth of the time
                best = pair if pair < best else best
            elif family and other in NORMALISATIONS:
                pair = above[j - 1] + mixed
                best = pair if pair < best else best
            add(best)
        table.append(row)
    return _trace(table, left, right, unit, mixed)


def _removed_first(pairs: list[Pair]) -> list[Pair]:
    """The same rows, in each run of gaps the left side's before the right side's."""
    runs = (run for _, run in groupby(pairs, key=lambda pair: None in pair))
    return [pair for run in runs for pair in sorted(run, key=lambda pair: pair[0] is None)]


def _trace(table: list[list[int]], left: Sequence[str], right: Sequence[str], unit: int, mixed: int) -> list[Pair]:
    i, j = len(left), len(right)
    pairs: list[Pair] = []
    while i or j:
        if i and j:
            here, a, b = table[i][j], left[i - 1], right[j - 1]
            cost = 0 if a == b else mixed if a in NORMALISATIONS and b in NORMALISATIONS else _NEVER
            if here == table[i - 1][j - 1] + cost:
                i, j = i - 1, j - 1
                pairs.append((i, j))
                continue
        if j and table[i][j] == table[i][j - 1] + unit:
            j -= 1
            pairs.append((None, j))
        else:
            i -= 1
            pairs.append((i, None))
    return pairs[::-1]


def changed_fields(left: Layer, right: Layer, *, by_name: bool = False) -> list[str]:
    """`type` first, then the left side's settings in order, then those that only the right side has.

    Settings are compared by what they mean (`hiddenDim` of a feed-forward is its `embedDim`), or `by_name` of the key.
    By meaning, layers of equal settings but unequal `parameters` (another input, a tie) are changed too.
    """
    first, second = (layer.settings if by_name else meaning(layer) for layer in (left, right))
    keys = [*first, *(key for key in second if key not in first)]
    absent = object()
    differing = [key for key in keys if first.get(key, absent) != second.get(key, absent)]
    if not by_name and not differing and left.parameters != right.parameters:
        differing = ["parameters"]
    return (["type"] if left.type != right.type else []) + differing


def meaning(layer: Layer) -> dict[str, Any]:
    """Settings under one name for each meaning: aliases resolved, null left out, one-element lists as numbers."""
    given = {key: value for key, value in layer.settings.items() if value is not None}
    usual = {}
    for keys in KINDS[layer.type].aliases if layer.type in KINDS else ():
        used = [key for key in keys if key in given]
        if len(used) == 1:  # two keys of one meaning stay as they are: leaving one out could hide a change
            usual[used[0]] = keys[0]
    return {
        usual.get(key, key): value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in given.items()
    }


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows are added, removed, changed and same."""
    found = Counter(row.status for row in rows)
    return {status: found[status] for status in (ADDED, REMOVED, CHANGED, SAME)}
