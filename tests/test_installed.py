"""The suite where it is not this checkout: installed by pip, copied without git, beside another clone's install."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shared.paths import ROOT

SCRIPTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("papers/*/*.py", "benchmarks/*.py")
    for path in ROOT.glob(pattern)
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)


def run(*command: str, folder: Path, path: Path | None = None) -> subprocess.CompletedProcess:
    """Python with `command` in `folder`; `path` alone is on PYTHONPATH, and no folder is named for results."""
    own = {key: value for key, value in os.environ.items() if key not in ("PAPERS_RESULTS", "PYTHONPATH")}
    own |= {"PYTHONPATH": str(path)} if path else {}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=own, capture_output=True, encoding="utf-8", timeout=300
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive: the checkout's files without .git."""
    copy = tmp_path_factory.mktemp("archive") / "suite"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "results", "tests")
    shutil.copytree(ROOT, copy, ignore=ignored)
    return copy


@pytest.fixture(scope="module")
def site(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip would install: the content of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    done = run(
        "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(archive), folder=folder
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_every_file_that_the_code_reads(archive, site):
    for top in ("papers", "shared", "configs"):
        there = {path.relative_to(archive) for path in (archive / top).rglob("*") if path.is_file()}
        packed = {path.relative_to(site) for path in (site / top).rglob("*") if path.is_file()}
        assert {p for p in there if "__pycache__" not in p.parts} == packed


def test_the_wheel_installs_the_probe_as_a_command(site):
    (entries,) = site.glob("*.dist-info/entry_points.txt")
    command, _, place = entries.read_text(encoding="utf-8").split()[1:]
    module, _, function = place.partition(":")
    assert command == "paper-probe" and (site / f"{module.replace('.', '/')}.py").is_file() and function == "main"


def test_installed_commands_work_from_any_folder_and_write_below_it(site, tmp_path):
    for command in (
        ["papers.vit.vit_part4_tables"],
        ["papers.comparisons.compare", "bert-base", "vit-b16"],
        ["shared.check"],
        ["shared.report"],
        ["shared.probe", "--help"],
    ):
        done = run("-m", *command, folder=tmp_path, path=site)
        assert done.returncode == 0, (command, done.stderr)
    ours = json.loads((tmp_path / "results" / "vit" / "tables.json").read_bytes())
    assert ours["provenance"]["git"] == {"commit": None, "dirty": None}
    assert {v["verdict"] for v in ours["verdicts"] if v["source"] == "vit/tables"} == {"equal"}
    assert "ViT" in (tmp_path / "results" / "report" / "index.html").read_text(encoding="utf-8")
    done = run("-m", "papers.vit.vit_part4_scratch", "--config", "configs/vit/none.toml", folder=tmp_path, path=site)
    assert done.returncode == 2 and "configs/vit/scratch-demo.toml" in done.stderr
    assert not (site / "results").exists()


@pytest.fixture(scope="module")
def other_install(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands for another clone's editable install: its packages end the program that imports them."""
    folder = tmp_path_factory.mktemp("other")
    for name in ("papers", "shared"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            "raise SystemExit('the code of another clone runs')", encoding="utf-8"
        )
    return folder


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_script_runs_the_code_beside_it(archive, other_install, tmp_path, script):
    done = run(str(archive / script), "--help", folder=tmp_path, path=other_install)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


def test_the_commit_in_a_result_is_that_of_the_code_that_ran(archive, other_install, tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    clone = tmp_path / "clone"
    shutil.copytree(archive, clone)
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a clone"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, encoding="utf-8", check=True
    ).stdout.strip()
    done = run(str(clone / "papers/vit/vit_part4_tables.py"), folder=tmp_path, path=other_install)
    assert done.returncode == 0, done.stderr
    ours = json.loads((clone / "results" / "vit" / "tables.json").read_bytes())
    assert ours["provenance"]["git"]["commit"] == commit
