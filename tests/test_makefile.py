"""The Makefile and the CI script, as a user and as CI call them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shared.paths import ROOT

NAMES = (
    "setup demo test test-environments lint tables part5-compute fewshot fewshot-offline top5 top5-offline scratch "
    "scratch-demo curves factors pictures resnet-tables resnet-cifar resnet-cifar-short probe compare check report "
    "picture paper bench clean"
)
TARGETS = NAMES.split()


def make(*arguments: str, folder: Path = ROOT, **options) -> subprocess.CompletedProcess:
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, **options)


def listed(folder: Path) -> list[str]:
    return [line.split()[0] for line in make(folder=folder).stdout.splitlines() if line.startswith("  ")]


def test_make_alone_prints_help_in_order():
    targets = listed(ROOT)
    assert targets == [target for target in TARGETS if target in targets]
    assert {"setup", "test", "lint", "tables", "check"} <= set(targets)


def test_a_target_whose_script_is_not_there_is_not_listed(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    assert listed(tmp_path) == ["clean"]
    (tmp_path / "papers" / "vit").mkdir(parents=True)
    (tmp_path / "papers" / "vit" / "vit_part4_tables.py").touch()
    assert listed(tmp_path) == ["tables", "clean"]


def test_every_target_has_a_recipe_and_passes_arguments_on():
    for target in TARGETS:
        done = make("-n", target, "PY=some-python", "ARGS=--flag")
        assert done.returncode == 0, done.stderr
        assert ".venv/bin/python" not in done.stdout
        if target not in ("setup", "lint", "clean"):
            calls = [line for line in done.stdout.splitlines() if "some-python" in line or "--flag" in line]
            assert calls and calls[-1].endswith("--flag"), target


STUB = """#!/bin/sh
case "$*" in
  *shared.report*) echo "$*" > note.txt; echo "the page to look at"; exit 0;;
  *part5_compute*) file=vit/part5-compute.json;;
  *tables*) file=vit/tables.json;; *compare*) file=comparisons/resnet-block-vs-vit-b16.json;;
  *fewshot.py*) file=vit/fewshot-demo.json;; *pictures*) file=vit/pictures-demo.json;;
  *curves*) file=vit/scratch-demo-curves.json;; *scratch*) file=vit/scratch-demo.json;;
esac
echo "$file" >> ran.txt
echo "said by the script"
[ -e "broken-$(basename $file)" ] && { echo "error: no network; set PIP_FIND_LINKS" >&2; exit 2; }
mkdir -p $(dirname $PAPERS_RESULTS/$file) && touch $PAPERS_RESULTS/$file
"""
STEPS = ["tables", "part5-compute", "resnet-block-vs-vit-b16", "fewshot-demo", "pictures-demo"]
STEPS += ["scratch-demo", "scratch-demo-curves"]


@pytest.fixture
def demo(tmp_path):
    """`make demo` where the Python is a stub that writes empty results; returns the call and what has run since."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("papers/vit/x.py", "papers/vit/published/x.json", "shared/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "stub").write_text(STUB, encoding="utf-8")
    (tmp_path / "stub").chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "PAPERS_RESULTS"}
    for path in tmp_path.rglob("*"):
        os.utime(path, (1e9, 1e9))

    def run() -> tuple[subprocess.CompletedProcess, list[str]]:
        (tmp_path / "ran.txt").unlink(missing_ok=True)
        done = make("demo", "PY=./stub", folder=tmp_path, env=environment)
        ran = tmp_path / "ran.txt"
        return done, [Path(line).stem for line in ran.read_text(encoding="utf-8").splitlines()] if ran.exists() else []

    return run


def test_the_demo_makes_every_step_once_and_keeps_what_is_newer_than_the_code(demo, tmp_path):
    done, ran = demo()
    assert done.returncode == 0 and ran == STEPS and done.stdout.rstrip().endswith("the page to look at")
    assert "[4/7] Few-shot" in done.stdout and "about a minute" in done.stdout  # a title with its cost
    assert "said by" not in done.stdout and "said by" in (tmp_path / "results" / "demo" / "tables.txt").read_text(
        encoding="utf-8"
    )
    done, ran = demo()
    assert done.returncode == 0 and ran == []
    assert [line.partition(": kept")[0] for line in done.stdout.splitlines() if ": kept" in line] == STEPS
    for changed, again in (
        ("shared/x.py", STEPS),
        ("papers/vit/published/x.json", STEPS),
        ("configs/vit/fewshot-demo.toml", ["fewshot-demo", "pictures-demo"]),  # and what reads its result
    ):
        os.utime(tmp_path / changed)
        assert demo()[1] == again, changed
    (tmp_path / "results" / "demo" / "vit" / "scratch-demo.json").unlink()
    assert demo()[1] == ["scratch-demo", "scratch-demo-curves"]


def test_a_step_of_the_demo_that_fails_is_named_and_the_rest_runs(demo, tmp_path):
    (tmp_path / "broken-tables.json").touch()
    done, ran = demo()
    assert done.returncode == 2 and ran == STEPS
    assert "could not run: its own line above says why" in done.stdout
    assert "error: no network" in done.stderr and "could not run: tables" in done.stderr
    assert "Could not run this time: tables." in (tmp_path / "note.txt").read_text(encoding="utf-8")
    (tmp_path / "broken-tables.json").unlink()
    done, ran = demo()
    assert done.returncode == 0 and ran == ["tables"]


def test_the_steps_of_the_demo_are_scripts_and_settings_that_are_there():
    lines = make("-n", "demo", "PY=some-python").stdout.splitlines()
    calls = [line.split(" > ")[0].split()[1:] for line in lines if line.startswith("some-python papers")]
    assert len(calls) == len(STEPS)
    for call in calls:
        assert all((ROOT / argument).is_file() for argument in call if argument.endswith((".py", ".toml"))), call


def test_a_fresh_clone_would_install_and_an_installed_one_starts_at_once(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    fresh = make("-n", "test", folder=tmp_path).stdout
    assert "-m venv .venv" in fresh and "-c constraints.txt -e '.[dev,offline]'" in fresh
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    assert make("-n", "test", folder=tmp_path).stdout.strip() == ".venv/bin/python -m pytest"
    os.utime(tmp_path / "pyproject.toml", (2e9, 2e9))
    assert "-m pip install" in make("-n", "test", folder=tmp_path).stdout


def test_constraints_pin_every_dependency_above_its_lower_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [p for extra in project["optional-dependencies"].values() for p in extra]
    pins = dict(
        re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    for requirement in wanted:
        name, bound = requirement.split(">=")
        pin = pins[re.sub(r"[-_.]+", "-", name).lower()]
        assert [int(x) for x in pin.split(".")] >= [int(x) for x in bound.split(".")], requirement
    assert (pins["torch"], pins["torchvision"]) == ("2.14.1", "0.29.1")


@pytest.mark.parametrize(
    ("beside", "printed", "code"),
    [
        (True, "SKIPPED [1] tests/conftest.py:17: ../shared is not beside this clone", 1),
        (False, "SKIPPED [1] tests/conftest.py:17: ../shared is not beside this clone", 0),
        (True, "SKIPPED [1] tests/x.py:1: chromium is not installed", 0),
    ],
)
def test_ci_fails_when_tests_skip_although_the_reference_is_there(tmp_path, beside, printed, code):
    clone = tmp_path / "clone"
    (clone / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", clone / ".ci")
    if beside:
        (tmp_path / "shared" / "published").mkdir(parents=True)
    stub = tmp_path / "bin" / "make"
    stub.parent.mkdir()
    stub.write_text(f"#!/bin/sh\necho \"make $@\"\necho '{printed}'\n", encoding="utf-8")
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{stub.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", clone / ".ci" / "run"], env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == code
    assert "make lint" in done.stdout and "make test" in done.stdout


def test_ci_fails_when_a_test_fails(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    stub = tmp_path / "make"
    stub.write_text('#!/bin/sh\n[ "$1" = lint ] || exit 2\n', encoding="utf-8")
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(["bash", tmp_path / ".ci" / "run"], env=environment, capture_output=True).returncode != 0


def test_without_a_fit_python_one_line_says_what_to_name(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for stub, code in (("absent", None), ("old", 1)):
        python = tmp_path / stub
        if code is not None:
            python.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
            python.chmod(0o755)
        done = make("setup", f"PYTHON={python}", folder=tmp_path)
        assert done.returncode == 2 and not (tmp_path / ".venv").exists()
        assert f"error: {python} is not Python 3.11 or newer; name one: make setup PYTHON=" in done.stderr


def test_a_half_made_environment_is_made_again(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    stub = tmp_path / "python"  # a fit Python whose venv cannot be made, as on a Debian without python3-venv
    stub.write_text('#!/bin/sh\n[ "$1" = -m ] && mkdir -p .venv && exit 1\nexit 0\n', encoding="utf-8")
    stub.chmod(0o755)
    done = make("setup", f"PYTHON={stub}", folder=tmp_path)
    assert done.returncode == 2 and not (tmp_path / ".venv").exists()


def test_the_environment_of_the_shell_does_not_leak_in():
    done = make("-n", "test", env=os.environ | {"PY": "other", "ARGS": "--leak"})
    assert "other" not in done.stdout and "--leak" not in done.stdout
    assert ".venv/bin/python -m pytest" in make("-n", "test", "PY=").stdout


def test_a_demo_that_may_not_write_says_so_and_where_else(tmp_path):
    (tmp_path / "results").write_text("a file where the folder should be", encoding="utf-8")
    environment = os.environ | {"PAPERS_RESULTS": str(tmp_path / "results")}
    command = ["make", "demo", f"PY={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}/results/demo: cannot be written; name another folder: PAPERS_")
