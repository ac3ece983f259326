"""The demo: every step of a plan on small embedded data, then the report; real work, minutes on two cores.

    python -m shared.demo            the steps of configs/demo.toml into results/demo, apart from recorded evidence
    python -m shared.demo --again    also the steps that would be kept
    python -m shared.demo --verbose  with everything that the scripts print

A step is kept, not repeated, when nothing that it depends on has changed since it ended well: its command, its input
files (code, configuration, published numbers), the package versions, and the results that it wrote. It then says so.
A step that cannot run, say for lack of a network, says why; the others still run, and the exit code is 2.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from shared import cli
from shared.errors import UserError
from shared.paths import ROOT, atomic_write, results_dir, sha256_file
from shared.provenance import package_versions
from shared.report.page import build

say = functools.partial(print, flush=True)  # in order with what the steps write themselves, also into a pipe
STATE = ".steps"  # in the results folder: what each step depended on and wrote, as JSON


@dataclass
class Config(cli.Common):
    plan: Path = Path("configs/demo.toml")
    """TOML file with the steps"""
    again: bool = False
    """repeat the steps whose inputs have not changed too"""
    verbose: bool = False
    """show everything that the scripts print"""


@dataclass(frozen=True)
class Step:
    """`command`: script and arguments, from the repository's root. `inputs`: patterns of files that it depends on.

    `reads` and `outputs`: files below the results folder, of an earlier step and its own. `about`: what is real and
    what a stand-in, and the cost.
    """

    name: str
    title: str
    command: list[str]
    inputs: list[str]
    outputs: list[str]
    reads: list[str] = field(default_factory=list)
    about: str = ""


def main(config: Config) -> int:
    note, steps = read_plan(config.plan)
    results = Path(config.results or results_dir() / "demo").resolve()
    say(f"{len(steps)} steps, then the report; results in {results}")
    state, failed, started = _read_state(results), [], time.perf_counter()
    for i, step in enumerate(steps, 1):
        say(f"[{i}/{len(steps)}] {step.title}" + (f"\n      {step.about}" if step.about else ""))
        key, kept = step_key(step, results), state.get(step.name, {})
        if not config.again and kept.get("key") == key and kept.get("outputs") == _hashes(results, step.outputs):
            say(f"      kept: nothing it depends on has changed since {kept['ended']}, when it took {kept['took']} s")
            continue
        clock = time.perf_counter()
        code = run_step(step, results, verbose=config.verbose)
        took = round(time.perf_counter() - clock, 1)
        state.pop(step.name, None)
        written = _hashes(results, step.outputs)
        if code == 0 and all(written.values()):
            ended = datetime.now().isoformat(" ", "seconds")
            state[step.name] = {"key": key, "outputs": written, "ended": ended, "took": took}
            say(f"      took {took} s")
        else:
            failed.append(step)
            say(f"      could not run (exit code {code}, after {took} s): its own line above says why")
        atomic_write(results / STATE, json.dumps(state, indent=1))
    clock = time.perf_counter()
    page = results / "report" / "index.html"
    missing = f" Could not run this time: {'; '.join(step.title for step in failed)}." if failed else ""
    build(results, page, note=note + missing)
    say(f"report\n      took {time.perf_counter() - clock:.1f} s")
    if failed:
        say(f"{len(failed)} of {len(steps)} steps could not run: {', '.join(step.name for step in failed)}")
    say(f"all of it took {time.perf_counter() - started:.0f} s; the page to open:\n{page}")
    return 2 if failed else 0


def read_plan(path: Path) -> tuple[str, list[Step]]:
    """The page's note and the steps. UserError names the file and what is wrong with it."""
    if not path.exists() and not path.is_absolute():
        path = ROOT / path
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return str(data.get("note", "")), [Step(**step) for step in data["steps"]]
    except FileNotFoundError:
        raise UserError(f"{path}: no such plan; the suite's own is configs/demo.toml") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a plan of steps ({error}); compare it with configs/demo.toml") from None


def step_key(step: Step, results: Path) -> str:
    """sha256 over all that decides what the step computes: command, files, interpreter and packages."""
    files = sorted({path for pattern in step.inputs for path in _matching(step, pattern)})
    parts = [
        step.command,
        platform.python_version(),
        package_versions(),
        [(path.relative_to(ROOT).as_posix(), sha256_file(path)) for path in files],
        _hashes(results, step.reads),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _matching(step: Step, pattern: str) -> list[Path]:
    found = [path for path in ROOT.glob(pattern) if path.is_file() and "__pycache__" not in path.parts]
    if not found:
        raise UserError(f"step {step.name!r}: no file matches the input {pattern!r}; mend the plan")
    return found


def run_step(step: Step, results: Path, *, verbose: bool) -> int:
    """The step's exit code. Its errors and progress go to the screen, what it prints to `<results>/<name>.txt`."""
    environment = os.environ | {"PAPERS_RESULTS": str(results)}
    results.mkdir(parents=True, exist_ok=True)
    with open(results / f"{step.name}.txt", "wb") as printed:
        return subprocess.run(
            [sys.executable, *step.command], cwd=ROOT, env=environment, stdout=None if verbose else printed
        ).returncode


def _hashes(results: Path, names: list[str]) -> dict[str, str | None]:
    """sha256 of each file below the results folder; None for what is not there."""
    return {name: sha256_file(results / name) if (results / name).is_file() else None for name in names}


def _read_state(results: Path) -> dict[str, dict]:
    """What the last call left; a damaged note of it only means that the steps are repeated."""
    try:
        state = json.loads((results / STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) and all(isinstance(entry, dict) for entry in state.values()) else {}


if __name__ == "__main__":
    cli.run(main, Config)
