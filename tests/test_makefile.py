"""The Makefile and the CI script, as a user and as CI call them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from shared.paths import ROOT

TARGETS = [
    "setup", "demo", "test", "lint", "tables", "fewshot", "fewshot-offline", "top5", "top5-offline", "scratch",
    "scratch-demo", "curves", "factors", "pictures", "compare", "check", "report", "bench", "clean",
]  # fmt: skip


def make(*arguments: str, folder: Path = ROOT, **options) -> subprocess.CompletedProcess:
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, **options)


def listed(folder: Path) -> list[str]:
    return [line.split()[0] for line in make(folder=folder).stdout.splitlines() if line.startswith("  ")]


def test_make_alone_prints_help_in_order():
    found = listed(ROOT)
    assert found == [target for target in TARGETS if target in found]
    assert {"setup", "test", "lint", "tables", "check"} <= set(found)


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
            assert "some-python" in done.stdout and done.stdout.rstrip().endswith("--flag"), target


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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [p for extra in project["optional-dependencies"].values() for p in extra]
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
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
    stub.write_text(f"#!/bin/sh\necho \"make $@\"\necho '{printed}'\n")
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{stub.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", clone / ".ci" / "run"], env=environment, capture_output=True, text=True)
    assert done.returncode == code
    assert "make lint" in done.stdout and "make test" in done.stdout


def test_ci_fails_when_a_test_fails(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    stub = tmp_path / "make"
    stub.write_text('#!/bin/sh\n[ "$1" = lint ] || exit 2\n')
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(["bash", tmp_path / ".ci" / "run"], env=environment, capture_output=True).returncode != 0


def test_without_a_fit_python_one_line_says_what_to_name(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for stub, code in (("absent", None), ("old", 1)):
        python = tmp_path / stub
        if code is not None:
            python.write_text(f"#!/bin/sh\nexit {code}\n")
            python.chmod(0o755)
        done = make("setup", f"PYTHON={python}", folder=tmp_path)
        assert done.returncode == 2 and not (tmp_path / ".venv").exists()
        assert f"error: {python} is not Python 3.11 or newer; name one: make setup PYTHON=" in done.stderr


def test_a_half_made_environment_is_made_again(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    stub = tmp_path / "python"  # a fit Python whose venv cannot be made, as on a Debian without python3-venv
    stub.write_text('#!/bin/sh\n[ "$1" = -m ] && mkdir -p .venv && exit 1\nexit 0\n')
    stub.chmod(0o755)
    done = make("setup", f"PYTHON={stub}", folder=tmp_path)
    assert done.returncode == 2 and not (tmp_path / ".venv").exists()


def test_the_environment_of_the_shell_does_not_leak_in():
    done = make("-n", "test", env=os.environ | {"PY": "other", "ARGS": "--leak"})
    assert "other" not in done.stdout and "--leak" not in done.stdout
    assert ".venv/bin/python -m pytest" in make("-n", "test", "PY=").stdout
