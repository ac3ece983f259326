"""The demo repeats what changed, keeps what did not and says so, and goes on past a step that cannot run."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from shared import demo
from shared.errors import UserError
from shared.paths import ROOT

SCRIPT = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["PAPERS_RESULTS"]) / "toy"
folder.mkdir(parents=True, exist_ok=True)
count = folder / "runs.txt"
count.write_text(count.read_text() + "x" if count.exists() else "x")
print("said by the script")
if "fail" in sys.argv:
    sys.exit("error: no network; set PIP_FIND_LINKS")
(folder / "toy.json").write_text('{"schema": 0}')
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    (tmp_path / "toy.py").write_text(SCRIPT)
    path = tmp_path / "plan.toml"
    path.write_text(
        'note = "a demo"\n'
        '[[steps]]\nname = "broken"\ntitle = "Breaks"\ncommand = ["toy.py", "fail"]\ninputs = ["*.py"]\noutputs = []\n'
        '[[steps]]\nname = "toy"\ntitle = "A toy"\ncommand = ["toy.py"]\ninputs = ["*.py"]\n'
        'outputs = ["toy/toy.json"]\n'
    )
    return path


def call(plan: Path, **options: object) -> int:
    return demo.main(demo.Config(plan=plan, results=plan.parent / "results", **options))


def runs(plan: Path) -> int:
    return len((plan.parent / "results" / "toy" / "runs.txt").read_text())


def test_a_step_that_fails_is_named_and_the_rest_runs(plan, capfd):
    assert call(plan) == 2
    out, err = capfd.readouterr()
    assert "could not run (exit code 1" in out and "1 of 2 steps could not run: broken" in out
    assert "error: no network" in err  # the step's own words
    results = plan.parent / "results"
    assert (results / "toy" / "toy.json").exists() and "said by" in (results / "toy.txt").read_text()
    page = results / "report" / "index.html"
    assert out.rstrip().endswith(str(page)) and "Could not run this time: Breaks." in page.read_text()


def test_a_step_is_kept_until_something_it_depends_on_changes(plan, capfd):
    call(plan)
    assert runs(plan) == 2  # both steps count
    call(plan)
    assert runs(plan) == 3  # the failed one again, the other one kept
    assert "kept: nothing it depends on has changed since" in capfd.readouterr().out
    (plan.parent / "toy.py").write_text(SCRIPT + "# changed\n")
    call(plan)
    assert runs(plan) == 5
    (plan.parent / "results" / "toy" / "toy.json").write_text("spoilt")
    call(plan)
    assert runs(plan) == 7
    call(plan, again=True)
    assert runs(plan) == 9
    (plan.parent / "results" / demo.STATE).write_text("[damaged")
    call(plan)
    assert runs(plan) == 11


@pytest.mark.parametrize(
    ("text", "says"),
    [('[[steps]]\nname = "x"\n', "title"), ("steps = 3", "not a plan"), ("[[", "not a plan"), ("", "not a plan")],
)
def test_a_wrong_plan_is_one_line(tmp_path, text, says):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=says):
        demo.read_plan(path)
    with pytest.raises(UserError, match="no such plan"):
        demo.read_plan(tmp_path / "none.toml")


def test_an_input_that_matches_nothing_is_a_mistake_in_the_plan(plan):
    plan.write_text(plan.read_text().replace("*.py", "*.pyx"))
    with pytest.raises(UserError, match=r"no file matches the input '\*\.pyx'"):
        call(plan)


def test_a_step_is_repeated_when_what_it_reads_of_another_has_changed(plan):
    results = plan.parent / "results"
    _, (_, step) = demo.read_plan(plan)
    before = demo.step_key(replace(step, reads=["other.json"]), results)
    results.mkdir()
    (results / "other.json").write_text("{}")
    assert demo.step_key(replace(step, reads=["other.json"]), results) != before


def test_the_suites_own_plan_is_whole():
    data = tomllib.loads((ROOT / "configs" / "demo.toml").read_text())
    note, steps = demo.read_plan(ROOT / "configs" / "demo.toml")
    assert "demo" in note and len(steps) == len(data["steps"])
    for step in steps:
        assert (ROOT / step.command[0]).is_file() and demo.step_key(step, ROOT / "results")
        for i, argument in enumerate(step.command):
            if argument == "--config":
                assert (ROOT / step.command[i + 1]).is_file() and step.command[i + 1] in step.inputs
        folder = os.path.dirname(step.command[0])
        assert any(pattern.startswith(f"{folder}/") and pattern.endswith("*.py") for pattern in step.inputs)
