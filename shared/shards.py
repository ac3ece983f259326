"""Features on disk in shards with checksums, and between the processes of one job."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared import paths
from shared.data import ImageSet

SHARD = 256  # images


@dataclass
class Shard:
    """The features of SHARD consecutive images; `notes` are what a reader of them has to know."""

    number: int
    features: np.ndarray  # float32 [at most SHARD, dim]
    notes: list[str]


def count(images: ImageSet) -> int:
    """How many shards the images make."""
    return -(-len(images) // SHARD)


def part(images: ImageSet, number: int) -> slice:
    """The images of shard `number`."""
    return slice(number * SHARD, min((number + 1) * SHARD, len(images)))


class Folder:
    """The shards of one recipe (see `features.recipe`), for any images.

    A shard's file name is the sha256 of the recipe and its images' content hashes, so whatever changes the numbers
    leads to another file. `about.json` has the recipe for a human reader.
    """

    def __init__(self, name: str, recipe: dict[str, str]) -> None:
        about = json.dumps(recipe, indent=1, sort_keys=True)
        self._key = hashlib.sha256(about.encode()).digest()
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[-60:]
        self.path = paths.cache_dir() / "features" / f"{slug}-{self._key.hex()[:16]}"
        if not (self.path / "about.json").exists():
            paths.atomic_write(self.path / "about.json", about)

    def file(self, images: ImageSet, number: int) -> Path:
        """Decodes the shard's images if they were never decoded on this machine."""
        content = images.subset(part(images, number)).digests(save=False)
        return self.path / f"{hashlib.sha256(self._key + content.tobytes()).hexdigest()[:32]}.safetensors"

    def write(self, images: ImageSet, shard: Shard) -> None:
        """Atomic; the same shard gives the same bytes."""
        from safetensors.numpy import save

        features = np.ascontiguousarray(shard.features)
        # One entry only: safetensors writes several in an order that changes from run to run.
        about = {"sha256": hashlib.sha256(features).hexdigest(), "notes": shard.notes}
        content = save({"features": features}, {"about": json.dumps(about)})
        paths.atomic_write(self.file(images, shard.number), content)

    def read(self, images: ImageSet, number: int, dim: int) -> Shard | None:
        """None when there is no such shard. ValueError when its file is damaged or its checksum does not fit."""
        from safetensors import SafetensorError, safe_open

        path = self.file(images, number)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                about = json.loads(file.metadata()["about"])
                features = file.get_tensor("features")
            rows = part(images, number)
            expected = (rows.stop - rows.start, dim), np.dtype(np.float32), about["sha256"]
            if (features.shape, features.dtype, hashlib.sha256(features).hexdigest()) == expected:
                return Shard(number, features, list(about["notes"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError):
            pass
        raise ValueError(f"{path}: damaged")


def exchange(own: dict[int, Shard], images: ImageSet) -> Iterator[Shard]:
    """The other processes' shards, by torch.distributed, in turns of one shard a process.

    `own` are this process's, number % world == rank. The images' content hashes travel along, so no process reads
    images that another has read.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    group = None if "gloo" in dist.get_backend() else dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for turn in range(-(-count(images) // world)):
        number = turn * world + rank
        mine = None
        if number in own:
            mine = own[number], images.subset(part(images, number)).digests(save=False)
        everyones: list[tuple[Shard, np.ndarray] | None] = [None] * world
        dist.all_gather_object(everyones, mine, group=group)
        for other, theirs in enumerate(everyones):
            if theirs is not None and other != rank:
                shard, content = theirs
                images.subset(part(images, shard.number)).learn(content)
                yield shard
