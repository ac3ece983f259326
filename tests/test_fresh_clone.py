"""The two commands of the README on a new machine: a clone in a temporary folder. Slow, because it installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from shared.paths import ROOT

MINUTE = 60.0


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not in a git checkout")
    folder = tmp_path_factory.mktemp("fresh") / "suite"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


def make(clone: Path, target: str, minutes: float) -> tuple[subprocess.CompletedProcess, float]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("PAPERS_")}
    own["PAPERS_CACHE"] = str(clone.parent / "cache")
    clock = time.monotonic()
    done = subprocess.run(
        ["make", target], cwd=clone, env=own, capture_output=True, encoding="utf-8", timeout=minutes * MINUTE
    )
    return done, time.monotonic() - clock


@pytest.mark.slow
def test_make_demo_twice(clone):
    make(clone, "setup", 30)
    done, took = make(clone, "demo", 10)
    assert done.returncode == 0, done.stdout + done.stderr
    assert took < 6 * MINUTE
    assert Path(done.stdout.strip().splitlines()[-1]).is_file()
    done, took = make(clone, "demo", 2)
    assert done.returncode == 0 and done.stdout.count(": kept, nothing it depends on has changed") >= 4
    assert took < 20


@pytest.mark.slow
def test_make_test(clone):
    done, _ = make(clone, "test", 40)
    assert done.returncode == 0, done.stdout[-4000:]
