"""The script that runs the tests elsewhere says what failed there, and names what it has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import environments
import pytest
from environments import COMPUTING, ENVIRONMENTS, LOWEST, Outcome, table

from shared.paths import ROOT


def run(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "tests" / "environments.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)


def test_a_failure_there_is_named_and_is_the_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "test_elsewhere.py"
    file.write_text(
        "import os, pytest\n"
        "def test_good(): assert os.environ['TZ'] == 'Asia/Kathmandu'\n"
        "def test_bad(): assert False\n"
        "@pytest.mark.skip\n"
        "def test_left(): pass\n",
        encoding="utf-8",
    )
    done = run("--only", "kathmandu", "--no-recorded", "--tests", file)
    assert done.returncode == 1, done.stderr
    row, failure = done.stdout.split("\n")[-3:-1]
    assert row.split()[:4] == ["kathmandu", "1", "1", "1"] and failure.startswith("    failed: ")
    # pytest names the folders between its root and the file, which depend on where the suite stands
    assert failure.endswith("test_elsewhere::test_bad")


def test_an_unknown_name_is_refused() -> None:
    done = run("--only", "lowst")
    assert done.returncode == 2 and "lowst: no such environment; there are plain, " in done.stderr


def test_every_file_of_the_computing_tests_is_there() -> None:
    assert [name for name in COMPUTING if not (ROOT / name).is_file()] == []


def test_the_lowest_is_each_of_the_others_at_once() -> None:
    several = {name for e in ENVIRONMENTS.values() for name in e.variables if name in LOWEST}
    assert several == set(LOWEST)


def test_a_recorded_file_that_differs_is_told_apart_from_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "ARITHMETIC", ("vit/tables", "none/such"))

    (tmp_path / "results" / "vit").mkdir(parents=True)
    recorded = ROOT / "results" / "vit" / "tables.json"
    (tmp_path / "results" / "vit" / "tables.json").write_bytes(recorded.read_bytes().replace(b'"equal"', b'"agrees"'))
    (tmp_path / "results" / "vit" / "tables.log").write_bytes(recorded.with_suffix(".log").read_bytes())
    outcome = Outcome(passed=3)
    environments.compare(tmp_path / "results", outcome)
    assert outcome.same == 1
    assert outcome.wrong == ["differs: results/vit/tables.json", "not made: results/none/such.json"]
    assert "1 the same, 2 not" in table({"plain": outcome})[1]


def test_a_copy_has_every_file_and_no_git(tmp_path: Path) -> None:
    try:
        copy = environments.copy(tmp_path / "a copy" / "suite", git=False)
    except environments.Absent as reason:
        pytest.skip(str(reason))
    assert (copy / "pyproject.toml").read_bytes() == (ROOT / "pyproject.toml").read_bytes()
    assert not (copy / ".git").exists() and os.access(copy / ".ci" / "run", os.X_OK)


def test_where_others_cannot_run_this_python_the_systems_sees_its_packages(tmp_path: Path) -> None:
    place = environments.Place(tmp_path, tmp_path, dict(os.environ), tmp_path)
    other = environments.another_python(place)
    if other == sys.executable:
        pytest.skip("the system has no Python of this version")
    code = "import msgspec, sys; print(*sys.version_info[:2])"
    done = subprocess.run([other, "-c", code], capture_output=True, encoding="utf-8", cwd=tmp_path)
    assert done.stdout.split() == list(map(str, sys.version_info[:2])), done.stderr
