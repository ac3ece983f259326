"""Where a number came from besides its own configuration: package versions, the checkout, the machine, the memory."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from shared.paths import ROOT

PACKAGES = (
    "torch", "torchvision", "transformers", "timm", "numpy", "scipy", "scikit-learn", "pillow", "pyarrow",
    "safetensors", "huggingface_hub",
)  # fmt: skip


def package_versions() -> dict[str, str]:
    """Versions of the packages that can change a number, read without importing them."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def git_state(root: Path = ROOT) -> dict[str, Any]:
    """`commit`, and whether anything but results/ differs from it or is not in it (`dirty`); None outside git."""
    # a git hook points these at the repository that it runs in
    pointers = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
    environment = {key: value for key, value in os.environ.items() if key not in pointers}

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20,
                                  env=environment)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top, _, commit = (git("rev-parse", "--show-toplevel", "HEAD") or "").rpartition("\n")
    if not top or Path(top).resolve() != root.resolve():  # a copy inside somebody else's repository
        return {"commit": None, "dirty": None}
    status = git("status", "--porcelain", "--untracked-files=normal", "--", ".", ":(exclude)results")
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, operating system: no host name."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": model, "cores": cores, "system": f"{platform.system()} {platform.machine()}"}


def peak_memory_mb() -> float:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
