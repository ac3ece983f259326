"""`make bench` lists what there is and refuses what there is not."""

from __future__ import annotations

import ast
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


def test_every_name_that_a_benchmark_takes_from_the_harness_is_there():
    # nobody runs the long ones between releases, so a name that went would be found too late
    names = {}
    for file in (ROOT / "benchmarks").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "harness":
                names[node.attr] = file.name
            elif isinstance(node, ast.ImportFrom) and node.module == "harness":
                names |= {alias.name: file.name for alias in node.names}
    harness = (ROOT / "benchmarks" / "harness.py").read_text(encoding="utf-8")
    there = {name for line in ast.parse(harness).body for name in bound(line)}
    assert {name: file for name, file in names.items() if name not in there} == {}


def bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module's top level binds."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return [name.id for target in ast.walk(node) for name in [target] if isinstance(name, ast.Name)]
    return [node.name] if hasattr(node, "name") else []
