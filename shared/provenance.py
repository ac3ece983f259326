"""Where a number came from besides its own configuration: package versions, the checkout, the machine, the memory."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from shared.paths import ROOT

try:
    import resource
except ImportError:  # Windows
    resource = None

# those that can change a number
PACKAGES = "torch torchvision transformers timm numpy scipy scikit-learn pillow pyarrow safetensors huggingface_hub"


def package_versions() -> dict[str, str]:
    """Versions of the installed ones of PACKAGES, read without importing them."""
    versions = {}
    for name in PACKAGES.split():
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints in `root`; None where it fails or is not there."""
    # a git hook points these at the repository that it runs in
    pointers = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
    environment = {key: value for key, value in os.environ.items() if key not in pointers}
    try:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=20, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def came_with(file: Path) -> str:
    """Commit and day with which a file came into the repository; "" where it is in none."""
    return _git(file.parent, "log", "-1", "--diff-filter=A", "--format=%h of %cs", "--", file.name) or ""


def git_state(root: Path = ROOT) -> dict[str, Any]:
    """`commit`, and whether anything but results/ differs from it or is not in it (`dirty`); None outside git."""
    top, _, commit = (_git(root, "rev-parse", "--show-toplevel", "HEAD") or "").rpartition("\n")
    if not top or Path(top).resolve() != root.resolve():  # a copy inside somebody else's repository
        return {"commit": None, "dirty": None}
    status = _git(root, "status", "--porcelain", "--untracked-files=normal", "--", ".", ":(exclude)results")
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, operating system: no host name."""
    model = platform.processor() or platform.machine()
    with suppress(OSError):  # Linux has the processor's name here, others in platform.processor()
        if named := re.search(
            r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"), re.MULTILINE
        ):
            model = named[1].strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": model, "cores": cores, "system": f"{platform.system()} {platform.machine()}"}


def peak_memory_mb() -> float | None:
    """Peak resident memory of this process; None where the system does not tell (Windows)."""
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6, 1)
