"""Peak memory and rate of extraction from 5,000 and from 50,000 CIFAR-10 training images.

    PAPERS_DATA=... python benchmarks/features_memory.py        # about half a minute; no model needed

Claim: the memory is bounded by a batch and the features; 50,000 images need at most 300 MB more than 5,000. The
network is a mean over the image spread to 768 numbers, so that what is measured is the path around a model: reading,
decoding, hashing, resizing to 64x64, shards. Cold caches in a temporary folder, one process a size.

Measured (2 cores, torch 2.14.1, CIFAR-10 as lossless WebP): peak 639 MiB and 802 MiB, so 163 MiB more, of which the
features themselves are 131 MiB; torch and the other libraries are most of the 639 MiB.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass

import harness

from shared import cli
from shared.provenance import peak_memory_mb

SIZES = (5_000, 50_000)
DIM = 768


@dataclass
class Config:
    count: int = 0
    """measure this many images in this process and print JSON, in place of the comparison"""


def measure(count: int) -> dict[str, float]:
    """MB are 10^6 bytes."""
    import torch
    from torch import nn

    from shared import process
    from shared.data import load_images
    from shared.device import choose
    from shared.features import extract
    from shared.models import Identity
    from shared.models.encoder import Encoder
    from shared.transforms import Transform

    class Mean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((1, 2, 3)).unsqueeze(1).expand(-1, DIM).contiguous()

    process.set_up()
    choice = choose("cpu", "float32")
    transform = Transform((64, 64), "bilinear", (0.5,) * 3, (0.5,) * 3)
    identity = Identity("mean", "mean", "timm", DIM, transform, "-", "-")
    encoder = Encoder(identity, Mean(), choice, rebuild=lambda _: encoder)
    images = load_images("cifar10").subset(range(count))
    start = time.perf_counter()
    features = extract(encoder, images, choice)
    seconds = time.perf_counter() - start
    assert features.shape == (count, DIM)
    return {"images": count, "peak_mb": peak_memory_mb(), "images_a_second": count / seconds}


def main(config: Config) -> int:
    if config.count:
        print(json.dumps(measure(config.count)))
        return 0
    rows = []
    for count in SIZES:
        with tempfile.TemporaryDirectory() as cache:
            rows.append(harness.process(__file__, "--count", str(count), PAPERS_CACHE=cache))
        line = "{images:6,} images: peak {peak_mb:6.0f} MB, {images_a_second:5.0f} images/s".format(**rows[-1])
        print(f"{line}  (features alone: {count * DIM * 4 / 1e6:.0f} MB)")
    more = rows[1]["peak_mb"] - rows[0]["peak_mb"]
    print(f"{SIZES[1]:,} images need {more:.0f} MB more than {SIZES[0]:,}; claim: at most 300")
    return 0 if more <= 300 else 1


if __name__ == "__main__":
    cli.run(main, Config)
