"""`make bench` lists what there is and refuses what there is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.paths import ROOT

RUN = [sys.executable, ROOT / "benchmarks" / "run.py"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["ridge", "--help"]])
def test_without_a_name_and_for_help_it_lists_the_benchmarks_and_runs_none(arguments):
    done = subprocess.run([*RUN, *arguments], capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0
    listed = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert {"ridge", "extraction"} <= set(listed) and "run" not in listed and "harness" not in listed
    assert all(len(line.split()) > 3 for line in listed.values())


def test_an_unknown_name_is_one_line():
    done = subprocess.run([*RUN, "ridge", "rigde"], capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("error: rigde: no such benchmark; there are ")
    assert done.stderr.count("\n") == 1
