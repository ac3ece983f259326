"""Peak memory: the article's seven encoders at full size, and extraction from 5,000 and from 50,000 images.

    PAPERS_DATA=... python benchmarks/memory.py                          about 4 minutes on two cores
    python benchmarks/memory.py --what encoders --models ViT-H/14        one of them; numbers go into memory.json

Encoders: random weights of the true architecture, saved in hub layout (float32, 2.5 GB for ViT-H/14) in a temporary
folder, loaded and run as a script does it. The peak counts the pages of the checkpoint that are mapped while it is
read. Expected: ViT-H/14 in bfloat16 under 8 GB (about 4.5).

Images: memory is bounded by a batch and the features; 50,000 images need at most 300 MB more than 5,000. The network is
a mean over the image spread to 768 numbers, so that what is measured is the path around a model: reading, decoding,
hashing, resizing to 64x64, shards. Measured (2 cores, torch 2.14.1, CIFAR-10 as lossless WebP): peak 639 MiB and
802 MiB, so 163 MiB more, of which the features themselves are 131 MiB; the libraries are most of the 639 MiB.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import harness
import torch
from torch import nn

from shared import cli, models, process
from shared.data import load_images
from shared.device import Choice, choose
from shared.features import extract
from shared.models.encoder import Encoder
from shared.transforms import Transform

COUNTS = (5_000, 50_000)
DIM = 768


@dataclass
class Config:
    what: Literal["all", "encoders", "images"] = "all"
    models: tuple[str, ...] = tuple(harness.ENCODERS)
    """encoders to measure"""
    dtype: str = "bfloat16"


def peak_bytes() -> int:
    """Of this process on Linux. getrusage would count the parent's memory before exec too."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))[1]) * 1024


def load_and_run(spec: str, dtype: str) -> dict:
    """In a process of its own: what the encoder computes for four images, and what it takes."""
    choice = Choice(torch.device("cpu"), getattr(torch, dtype), "benchmark")
    loaded = []
    load_s = harness.seconds(lambda: loaded.append(models.load_encoder(spec, choice)))
    encoder = loaded[0]
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = encoder.encode(images)
    return {
        "dim": encoder.dim,
        "shape": list(features.shape),
        "finite": bool(features.isfinite().all()),
        "computed in": encoder.choice.dtype_name,
        "parameters": sum(p.numel() for p in encoder.module.parameters()),
        "load_s": round(load_s, 2),
        "peak_rss_bytes": peak_bytes(),
        "preprocessing": encoder.preprocessing,
    }


def measure_encoder(name: str, dtype: str, folder: Path) -> dict:
    """`load_and_run` of random weights written to `folder`."""
    report = harness.apart(load_and_run, harness.random_checkpoint(name, folder), dtype)
    if report["dim"] != (expected := harness.ENCODERS[name][2]):
        raise SystemExit(f"{name}: {report['dim']} features, expected {expected}")
    return report


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((1, 2, 3)).unsqueeze(1).expand(-1, DIM).contiguous()


def extract_all(count: int, cache: str) -> dict[str, float]:
    """In a process of its own: peak memory (MB are 10^6 bytes) and rate for so many CIFAR-10 training images."""
    os.environ["PAPERS_CACHE"] = cache
    process.set_up()
    choice = choose("cpu", "float32")
    transform = Transform((64, 64), "bilinear", (0.5,) * 3, (0.5,) * 3)
    encoder = Encoder(models.Identity("mean", "mean", "timm", DIM, transform, "-", "-"), Mean(), choice, lambda _: None)
    images = load_images("cifar10").subset(range(count))
    seconds = harness.seconds(lambda: extract(encoder, images, choice))
    return {"images": count, "peak_mb": peak_bytes() / 1e6, "images_a_second": count / seconds}


def main(config: Config) -> int:
    results, peaks = harness.Results("memory"), []
    for name in config.models if config.what != "images" else ():
        with tempfile.TemporaryDirectory(prefix="memory-") as folder:
            report = measure_encoder(name, config.dtype, Path(folder))
        size, peak = report["parameters"] / 1e6, report["peak_rss_bytes"] / 1e9
        print(
            f"{name:<10} {report['dim']:>5} features  {size:6.1f} M parameters  in {report['computed in']}  "
            f"load {report['load_s']:5.1f} s  peak {peak:.2f} GB  (random weights)",
            flush=True,
        )
        results[f"{name}, {config.dtype}"] = {"weights": "random, true architecture", **report, **harness.here()}
        results.write()
    for count in COUNTS if config.what != "encoders" else ():
        with tempfile.TemporaryDirectory(prefix="memory-") as cache:
            row = harness.apart(extract_all, count, cache)
        print(
            "{images:6,} images: peak {peak_mb:6.0f} MB, {images_a_second:5.0f} images/s".format(**row),
            f" (features alone: {count * DIM * 4 / 1e6:.0f} MB)",
        )
        peaks.append(row["peak_mb"])
    if not peaks:
        return 0
    more = peaks[1] - peaks[0]
    print(f"{COUNTS[1]:,} images need {more:.0f} MB more than {COUNTS[0]:,}; claim: at most 300")
    return 0 if more <= 300 else 1


if __name__ == "__main__":
    cli.run(main, Config)
