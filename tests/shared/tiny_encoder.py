"""A tiny encoder for the tests of extraction; as a program, one process of a job that extracts from noise.

python tests/shared/tiny_encoder.py RESULT.npy [SECONDS_A_BATCH]
"""

from __future__ import annotations

import copy
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from shared.data import ImageSet
from shared.device import Choice, rank_and_world
from shared.features import extract
from shared.models import Identity
from shared.models.encoder import Encoder
from shared.sources import ArrayRows, Source
from shared.transforms import Transform

FLOAT32 = Choice(torch.device("cpu"), torch.float32, "for a test")
BFLOAT16 = Choice(torch.device("cpu"), torch.bfloat16, "for a test")
TRANSFORM = Transform((16, 16), "bilinear", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


class Network(nn.Module):
    def __init__(self, seconds: float = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.GELU(), nn.Flatten(), nn.Linear(128, 6))
        self.seconds = seconds
        self.batches: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.batches.append(len(x))
        time.sleep(self.seconds)
        return self.layers(x)


def identity(weights_sha256: str = "0" * 64, transform: Transform = TRANSFORM) -> Identity:
    return Identity("tiny", "tiny", "timm", 6, transform, "r1", weights_sha256)


def encoder(module: nn.Module | None = None, choice: Choice = FLOAT32) -> Encoder:
    def rebuild(higher: Choice) -> Encoder:
        return encoder(copy.deepcopy(module), higher)

    module = module or Network()
    return Encoder(identity(), copy.deepcopy(module).to(choice.dtype) if choice != FLOAT32 else module, choice, rebuild)


def noise(count: int = 600) -> ImageSet:
    """Random 16x16 images of two classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), np.uint8)
    names = [f"noise-{i:04d}" for i in range(count)]
    labels = np.arange(count, dtype=np.int64) % 2
    return ImageSet("noise", Source("train", "noise", ArrayRows(pixels, names), labels, ["a", "b"], names, ["a", "b"]))


def main() -> None:

    result, seconds = sys.argv[1], float((sys.argv[2:] or ["0"])[0])
    rank = rank_and_world()[0]
    if "TINY_OWN_CACHE" in os.environ:  # machines without a common file system
        os.environ["PAPERS_CACHE"] += f"-{rank}"
    features = extract(encoder(Network(seconds)), noise(1300), FLOAT32)
    np.save(Path(result).with_name(f"{rank}-{Path(result).name}"), features)


if __name__ == "__main__":
    main()
