"""How far long work has come: a bar on a terminal, elsewhere about one line per minute; on stderr, never in a log."""

from __future__ import annotations

import time
from typing import Self

from tqdm import tqdm

from shared.text import notice

EVERY, FIRST = 60.0, 5.0  # seconds between two lines; and before the first one, if more than EVERY is left
ENOUGH = 5  # timed calls behind a first guess: one may be slow by chance


class Progress:
    """A context manager around work of `total` units, of which `done` were there before.

    title   what is worked on
    unit    what is counted: step, image
    later   units of the same cost that come after this work; the time that is left counts them
    quiet   neither bar nor lines: another process tells
    """

    def __init__(
        self, title: str, total: int, unit: str, *, done: int = 0, later: int = 0, lead: str = "", quiet: bool = False
    ) -> None:
        self.title, self.total, self.unit, self.later, self.lead = title, total, unit, later, lead
        # None: tqdm asks whether stderr is a terminal
        look = {"desc": title, "unit": f" {unit}s", "leave": False}
        self.bar = tqdm(total=total, initial=done, disable=True if quiet else None, **look)
        self.in_words = self.bar.disable and not quiet
        self.done, self.computed, self.calls = done, 0, 0
        self.start: float | None = None  # of what is timed
        self.told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def skip(self, units: int) -> None:
        """`units` were there before: they say nothing about the pace."""
        self.done += units
        self.bar.update(units)

    def step(self, units: int, **shown: str) -> None:
        """`units` more are done; shown: what the bar has beside it."""
        self.bar.set_postfix(shown, refresh=False)
        self.skip(units)
        now = time.monotonic()
        if self.start is None:  # the first ones pay for loading and compiling: they are not timed
            self.start = self.told = now
            return
        self.computed += units
        self.calls += 1
        left = (now - self.start) / self.computed * (self.total - self.done + self.later)
        first = self.told == self.start and self.calls >= ENOUGH and now - self.start >= FIRST and left > EVERY
        due = first or now - self.told >= EVERY
        if self.in_words and due and self.done < self.total:
            self.told = now
            lead = f"{self.lead}, " if self.lead else ""
            notice(f"{lead}{self.title}, {self.unit} {self.done:,} of {self.total:,}, {duration(left)} left")


def duration(seconds: float) -> str:
    """`45 seconds`, `12 minutes`, `3.4 hours`."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
