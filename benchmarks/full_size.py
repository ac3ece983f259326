"""The article's seven encoders at full size through the suite's own path: shapes, dims, load time, peak memory.

    python benchmarks/full_size.py                          about 3 minutes on two cores; writes full_size.json
    python benchmarks/full_size.py --models ViT-H/14        one of them

Weights are random, of the true architecture, saved in hub layout (float32, 2.5 GB for ViT-H/14) in a temporary folder.
Each model is loaded and run in a process of its own, whose peak resident memory is reported; it counts the pages of the
checkpoint that are mapped while it is read. Expected: ViT-H/14 in bfloat16 under 8 GB (about 4.5).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import harness
import random_checkpoints

from shared import cli

CHILD = """
import json, re, sys, time
from pathlib import Path
import torch
from shared import models
from shared.device import Choice

start = time.perf_counter()
encoder = models.load_encoder(sys.argv[1], Choice(torch.device("cpu"), getattr(torch, sys.argv[2]), "benchmark"))
loaded = time.perf_counter() - start
images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
features = encoder.encode(images)
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({
    "dim": encoder.dim, "shape": list(features.shape), "finite": bool(features.isfinite().all()),
    "computed in": encoder.choice.dtype_name, "parameters": sum(p.numel() for p in encoder.module.parameters()),
    "load_s": round(loaded, 2), "peak_rss_bytes": peak, "preprocessing": encoder.preprocessing,
}))
"""


@dataclass
class Config:
    models: tuple[str, ...] = ()
    """names of random_checkpoints.CONFIGS; all if none is given"""
    dtype: str = "bfloat16"
    write: bool = True
    """merge the numbers into full_size.json"""


def measure(name: str, dtype: str, folder: Path) -> dict:
    """Load and run `name` in a child process; what it reports."""
    spec = random_checkpoints.write(name, folder / name.replace("/", "-"))
    report = harness.process("-c", CHILD, spec, dtype)
    expected = random_checkpoints.CONFIGS[name][1]
    if report["dim"] != expected:
        raise SystemExit(f"{name}: {report['dim']} features, expected {expected}")
    return report


def main(config: Config) -> None:
    results = harness.Results("full_size")
    for name in config.models or random_checkpoints.CONFIGS:
        with tempfile.TemporaryDirectory(prefix="full-size-") as folder:
            report = measure(name, config.dtype, Path(folder))
        size, peak = report["parameters"] / 1e6, report["peak_rss_bytes"] / 1e9
        print(
            f"{name:<10} {report['dim']:>5} features  {size:6.1f} M parameters  in {report['computed in']}  "
            f"load {report['load_s']:5.1f} s  peak {peak:.2f} GB  (random weights)",
            flush=True,
        )
        results[f"{name}, {config.dtype}"] = {"weights": "random, true architecture", **report, **harness.here()}
        if config.write:
            results.write()


if __name__ == "__main__":
    cli.run(main, Config)
