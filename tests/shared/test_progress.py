"""How far long work is: words once a minute where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io

import pytest

from shared import progress
from shared.progress import Progress, duration


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves: `clock.now`, seconds."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(progress.time, "monotonic", lambda: Clock.now)
    return Clock


def run(clock, steps: int, seconds: float, **how) -> None:
    with Progress("ViT-1000", 2500, "step", **how) as work:
        for _ in range(steps):
            clock.now += seconds
            work.step(25, loss="1.0")


def test_about_one_line_a_minute_says_how_much_is_left(clock, capsys):
    run(clock, 60, 10.0, later=2500, lead="run 1 of 2")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10  # in ten minutes: early, then one a minute
    # 25 steps take 10 s: 2,350 of this run are left and 2,500 of the next one
    assert lines[0] == "run 1 of 2, ViT-1000, step 150 of 2,500, 32 minutes left"
    assert lines[1] == "run 1 of 2, ViT-1000, step 300 of 2,500, 31 minutes left"


def test_short_work_and_other_processes_say_nothing(clock, capsys):
    run(clock, 100, 0.1)
    run(clock, 100, 30.0, quiet=True)
    assert capsys.readouterr().err == ""


def test_what_was_there_before_says_nothing_about_the_pace(clock, capsys):
    with Progress("m on pets", 1000, "image") as work:
        work.skip(900)
        for _ in range(8):
            clock.now += 10
            work.step(10)
    assert capsys.readouterr().err.splitlines()[0] == "m on pets, image 970 of 1,000, 30 seconds left"


def test_on_a_terminal_there_is_a_bar_and_no_line(clock, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    run(clock, 60, 10.0)
    assert "minutes left" not in screen.getvalue() and "ViT-1000:" in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"), [(45.4, "45 seconds"), (119, "119 seconds"), (720, "12 minutes"), (12240, "3.4 hours")]
)
def test_a_duration_in_words(seconds, words):
    assert duration(seconds) == words
