"""Which results are evidence: those under version control, as they were committed. A user's own runs are not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from shared.paths import ROOT


def recorded_results() -> list[Path]:
    """The committed result files that nobody has run over since.

    Outside git (a source archive) those that were made in a checkout: a run in the archive itself knows no commit.
    """
    there = sorted(path for path in (ROOT / "results").glob("*/*.json") if path.parent.name != "demo")
    tracked, changed = _git("ls-files", "--", "results"), _git("diff", "--name-only", "HEAD", "--", "results")
    if tracked is None or changed is None:
        return [path for path in there if json.loads(path.read_bytes())["provenance"]["git"]["commit"]]
    return [path for path in there if path.relative_to(ROOT).as_posix() in tracked - changed]


def _git(*arguments: str) -> set[str] | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, encoding="utf-8", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return set(done.stdout.splitlines()) if done.returncode == 0 else None
