"""`make paper NAME=...`: what it writes runs, and nothing that is there is overwritten."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared import scaffold
from shared.errors import UserError
from shared.paths import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The library and what a new paper needs of a clone, in a folder of its own."""
    shutil.copytree(ROOT / "shared", tmp_path / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "papers/__init__.py", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_new_paper_runs_is_judged_tested_and_on_the_page(clone):
    own = {"PYTHONPATH": str(clone), "PAPERS_RESULTS": str(clone / "results"), "PAPERS_CACHE": str(clone / "cache")}

    def run(*call: str) -> str:
        done = subprocess.run(call, cwd=clone, env=os.environ | own, capture_output=True, encoding="utf-8", timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("make", "paper", "NAME=toy", f"PY={sys.executable}")
    assert "python papers/toy/toy_tables.py" in said
    config = str(clone / "configs" / "toy" / "tables.toml")
    told = run(sys.executable, "papers/toy/toy_tables.py", "--strict", "--config", config)
    assert "3 equal, 0 agrees, 0 differs" in told and "digits/images: published 1,797, measured 1,797: equal" in told
    assert "2 passed" in run(sys.executable, "-m", "pytest", "tests/papers/toy/test_toy_tables.py")
    assert "toy/tables" in run(sys.executable, "-m", "shared.check", "--strict")
    run(sys.executable, "-m", "shared.report")
    page = (clone / "results" / "report" / "index.html").read_text(encoding="utf-8")
    assert "Toy" in page and "The tables, counted" in page and "1,797" in page
    lint = subprocess.run([sys.executable, "-m", "ruff", "check", "papers", "tests"], cwd=clone, capture_output=True)
    assert lint.returncode == 0, lint.stdout
    again = subprocess.run(["make", "paper", "NAME=toy", f"PY={sys.executable}"], cwd=clone, capture_output=True)
    assert again.returncode == 2 and again.stderr.startswith(b"error: papers/toy is there already")


@pytest.mark.parametrize("name", ["", "To", "a-b", "../x", "class", "a b", "2x", "ü", "x" * 41, "a\n"])
def test_a_name_that_cannot_be_is_refused_in_one_line(name, tmp_path):
    with pytest.raises(UserError, match="as in: make paper NAME=toy"):
        scaffold.main(scaffold.Config(name), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["papers/toy", "configs/toy", "tests/papers/toy"])
def test_what_is_there_stays(folder, tmp_path):
    (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(UserError, match=f"{folder} is there already"):
        scaffold.main(scaffold.Config("toy"), tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
