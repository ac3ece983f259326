"""Repeated blocks as one: rows that come again and again in the same way are kept once with how often they come."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
LONGEST_BLOCK = 80  # rows; a block of GPT-style models has 6, of an unfolded torch block about 12


@dataclass(frozen=True)
class Fold(Generic[T]):
    """`items` stand `times` times in a row; the first of them has index `start`."""

    items: Sequence[T]
    times: int
    start: int

    @property
    def end(self) -> int:
        """Index after the last repetition."""
        return self.start + len(self.items) * self.times


def fold(items: Sequence[T], signature: Callable[[T], Hashable]) -> list[Fold[T]]:
    """Items in order, as runs: single stretches (times 1) and blocks that repeat. Unfolding gives the items again.

    Greedy from the front: at each place the block that covers most, the shorter one of two; a block of one row must
    come three times, because two equal rows read better than a fold.
    """
    keys = [signature(item) for item in items]
    folds: list[Fold[T]] = []
    single = at = 0
    while at < len(keys):
        length, times = _best(keys, at)
        if times == 1:
            at += 1
            continue
        if single < at:
            folds.append(Fold(items[single:at], 1, single))
        folds.append(Fold(items[at : at + length], times, at))
        at = single = at + length * times
    if single < at:
        folds.append(Fold(items[single:at], 1, single))
    return folds


def _best(keys: list[Hashable], at: int) -> tuple[int, int]:
    best, covered = (1, 1), 1
    for length in range(1, min(LONGEST_BLOCK, (len(keys) - at) // 2) + 1):
        if keys[at] != keys[at + length]:
            continue
        block, times = keys[at : at + length], 1
        while keys[at + length * times : at + length * (times + 1)] == block:
            times += 1
        if times > (2 if length == 1 else 1) and length * times > covered:
            best, covered = (length, times), length * times
    return best
