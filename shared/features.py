"""Features of images, computed once: shards on disk that a killed run continues and several processes share.

    features = extract("timm:vit_base_patch16_224", load_images("pets", "test"), device.choose())   # float32 [n, dim]

A shard holds the features of `SHARD` consecutive images. Its file name is the sha256 of everything its numbers depend
on (`recipe`) and of the content hashes of its images. So with one number of threads a process a shard is the same bytes
wherever a run was killed and however many processes share the work (another number of threads, as under torchrun's
default of one, may give other last bits on a CPU), and a set whose features are all there needs neither the model nor
one decoded image.

Under `torchrun` the processes take the shards in turn; each gets the whole array in the end. What they exchange are
small CPU arrays, so gloo serves on GPUs too.

One thread decodes, resizes and copies two batches ahead of the one that computes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from shared import models, paths
from shared.data import ImageSet
from shared.device import Choice, bf16_unit, gloo_group, rank_and_world
from shared.errors import UserError
from shared.progress import Progress
from shared.text import notice

if TYPE_CHECKING:
    from shared.models.encoder import Encoder

T = TypeVar("T")
Say = Callable[[str], None]
SHARD = 256  # images
# Images a pass, by rule and not by timing: another batch size gives other last bits. More are no faster on a CPU; a GPU
# takes a whole shard, which every card for such networks holds in float16.
CPU_BATCH, GPU_BATCH = 32, SHARD
# The steps from decoded images to numbers. When a step comes to give other numbers, raise its version: features in
# users' caches are then computed again. tests/shared/test_reference_features.py notices such a change. Decoding is not
# a step: the key has the hashes of the decoded images. A wheel's conversion has its own number, `wheels.CONVERSION`.
FEATURES_VERSION = {"extract": 1, "transform": 1, "hf": 1, "timm": 1, "torchvision": 1}
LIBRARIES = ("torch", "torchvision", "transformers", "timm", "pillow")


class Deferred:
    """An encoder that is loaded when the first shard is missing, and once.

    `load` gives the encoder that `identity` describes; `compiled` says whether it compiles.
    """

    def __init__(self, identity: models.Identity, load: Callable[[], Encoder], *, compiled: bool = False) -> None:
        self.identity, self.compiled, self._load = identity, compiled, load
        self.at = functools.cache(lambda dtype: self.encoder.at(dtype))  # the same model in a higher precision

    @functools.cached_property
    def encoder(self) -> Encoder:
        return self._load()


def deferred(
    spec: str,
    choice: Choice,
    *,
    revision: str | None = None,
    transform: str = "squash",
    pool: str = "",
    compile: bool = False,
) -> Deferred:
    """The encoder called `spec` (see `shared.models.load_encoder`), identified but not loaded."""
    how: dict[str, Any] = {"revision": revision, "transform": transform, "pool": pool}
    load = functools.partial(models.load_encoder, spec, choice, compile=compile, **how)
    return Deferred(models.describe(spec, **how), load, compiled=compile)


def extract(
    encoder: Encoder | Deferred | str,
    images: ImageSet,
    choice: Choice,
    *,
    cache: bool = True,
    batch_size: int | str = "auto",
    say: Say | None = None,
    later: int = 0,
) -> np.ndarray:
    """float32 [n, dim]: the encoder's numbers for every image, from the cache where it has them.

    batch_size "auto": by the kind of device (CPU_BATCH, GPU_BATCH); halved when the memory is not enough. A batch with
    numbers that are not finite is computed again in float32 (float64 after float32). `say` (default: stderr) is told of
    both, on this run and on every later one that takes these features from the cache. later: images
    that the caller gives the encoder after these, for the time that is left.

    UserError: numbers stay without a finite value; not even one image fits into the memory; an image is unreadable.
    """
    say = say or notice
    if batch_size != "auto" and not (isinstance(batch_size, int) and batch_size >= 1):
        raise UserError(f"batch size {batch_size}: expected auto or a number from 1")
    if isinstance(encoder, str):
        encoder = deferred(encoder, choice)
    elif not isinstance(encoder, Deferred):
        loaded = encoder
        encoder = Deferred(loaded.identity, lambda: loaded, compiled=loaded.compiled)
    return _Extraction(encoder, images, choice, cache, batch_size, say).run(later)


def recipe(encoder: Deferred, choice: Choice, batch_size: int | str) -> dict[str, str]:
    """Everything besides the images that the numbers depend on."""
    identity = encoder.identity
    readers = ("hf", "timm") if identity.kind == "wheel" else (identity.kind,)  # a wheel is read by one of the two
    steps = [f"{step} {FEATURES_VERSION[step]}" for step in ("extract", "transform", *readers)]
    libraries = [f"{name} {version(name)}" for name in LIBRARIES]
    own = {"shard": SHARD, "batch": images_a_pass(choice, batch_size), "compiled": encoder.compiled}
    own |= {"device": choice.device.type, "dtype": choice.dtype_name, "steps": steps, "libraries": libraries}
    own |= {f.name: getattr(identity, f.name) for f in fields(identity) if f.compare}
    if not identity.pool:  # as it was before there was a choice: what is in users' caches stays
        del own["pool"]
    return {name: str(value) for name, value in own.items()}


def images_a_pass(choice: Choice, batch_size: int | str) -> int:
    """How many images go through the network at once, as long as the memory is enough."""
    if batch_size != "auto":
        return batch_size
    return CPU_BATCH if choice.device.type == "cpu" else GPU_BATCH


# Extraction ----------------------------------------------------------------------------------------------------------


@dataclass
class _Batch:
    shard: int
    first: int  # index of its first image in the set
    inputs: Tensor


class _Extraction:
    def __init__(
        self, encoder: Deferred, images: ImageSet, choice: Choice, cache: bool, batch_size: int | str, say: Say
    ) -> None:
        self.encoder, self.images, self.choice, self.say = encoder, images, choice, say
        self.name = encoder.identity.name
        self.folder = ShardFolder(self.name, recipe(encoder, choice, batch_size)) if cache else None
        self.whole_batch = self.batch_size = images_a_pass(choice, batch_size)
        self.rank, self.world = rank_and_world()
        self.own = range(self.rank, shard_count(images), self.world)

    def run(self, later: int) -> np.ndarray:
        result = np.empty((len(self.images), self.encoder.identity.dim), np.float32)
        notes = [f"{self.name}: {note}" for note in self.encoder.identity.notes]

        def take(shard: Shard) -> None:
            rows = rows_of(self.images, shard.number)
            result[rows] = shard.features
            shard.features = result[rows]  # a view: the features are in memory once
            notes.extend(shard.notes)

        own = {}
        slices = [rows_of(self.images, number) for number in self.own]
        images = sum(rows.stop - rows.start for rows in slices)
        title, follow = f"{self.name} on {self.images.name}", -(-later // self.world)
        with Progress(title, images, "image", later=follow, quiet=self.rank != 0) as progress:
            for shard in self._shards(progress):
                take(shard)
                own[shard.number] = shard
        if self.world > 1:
            for shard in exchange(own, self.images):
                take(shard)
                self._write(shard)
        self.images.remember()
        for note in sorted(set(notes)):
            self.say(note)
        return result

    # Reading thread: images to the network's input

    def _work(self) -> Iterator[_Batch | Shard]:
        """This process's shards in order: a whole one from the cache, or its images as batches."""
        for number in self.own:
            kept = self._read(number)
            if kept:
                yield kept
                continue
            encoder = self.encoder.encoder
            rows = rows_of(self.images, number)
            self.images.subset(rows).fetch()
            first = rows.start
            while first < rows.stop:
                last = min(first + self.batch_size, rows.stop)
                yield _Batch(number, first, prepared(encoder, self.images, range(first, last)))
                first = last

    def _read(self, number: int) -> Shard | None:
        try:
            return self.folder.read(self.images, number, self.encoder.identity.dim) if self.folder else None
        except ValueError as error:
            self.say(f"{error}, its images are computed again")
            return None

    def _write(self, shard: Shard) -> None:
        if self.folder:
            self.folder.write(self.images, shard)

    # Computing thread

    def _shards(self, progress: Progress) -> Iterator[Shard]:
        """Every shard of this process, in order; a computed one is on disk when it comes."""
        parts: list[np.ndarray] = []
        notes: list[str] = []
        for item in ahead(self._work()):
            if isinstance(item, Shard):
                progress.skip(len(item.features))
                yield item
                continue
            features = self._forward(self.encoder.encoder, item.inputs)
            if not np.isfinite(features).all():
                features, note = self._again_in_higher_precision(item, features)
                notes.append(note)
            parts.append(features)
            progress.step(len(features))
            if item.first + len(features) == rows_of(self.images, item.shard).stop:
                if self.batch_size < self.whole_batch:
                    notes.append(
                        f"{self.name}: {self.batch_size} images a pass, since the memory was not enough for "
                        f"{self.whole_batch}; the last digits can differ by that"
                    )
                shard = Shard(item.shard, np.concatenate(parts), notes)
                self._write(shard)
                yield shard
                parts, notes = [], []

    def _forward(self, encoder: Encoder, inputs: Tensor) -> np.ndarray:
        while True:
            size = min(self.batch_size, len(inputs))
            try:
                return torch.cat([encoder.forward(part).cpu() for part in inputs.split(size)]).numpy()
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
            # Outside the handler: the exception's traceback keeps the failed batch's tensors alive.
            if size == 1:
                raise UserError(f"{self.name}: not even one image fits into the memory of {self.choice.name}")
            self.batch_size = size // 2
            if inputs.device.type == "cuda":
                torch.cuda.empty_cache()
            notice(f"{self.name}: out of memory with {size} images, going on with {self.batch_size}")

    def _again_in_higher_precision(self, batch: _Batch, features: np.ndarray) -> tuple[np.ndarray, str]:
        indices = range(batch.first, batch.first + len(features))
        used = self.encoder.encoder.choice.dtype
        bad = int((~np.isfinite(features).all(1)).sum())
        ladder = [torch.float32, torch.float64] if self.choice.device.type != "mps" else [torch.float32]
        for dtype in ladder[ladder.index(used) + 1 if used in ladder else 0 :]:
            higher = self.encoder.at(dtype)
            again = self._forward(higher, prepared(higher, self.images, indices))
            if np.isfinite(again).all():
                note = (
                    f"{self.name}: {bad} of {len(again)} images from {self.images.where(indices.start)} on "
                    f"not finite in {_name(used)}; this batch was computed in {_name(dtype)}"
                )
                return again, note
            features = again
        image = self.images.where(indices[int(np.flatnonzero(~np.isfinite(features).all(1))[0])])
        raise UserError(f"{self.name}: features of {image} are not finite in any precision; the weights are damaged")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def prepared(encoder: Encoder, images: ImageSet, indices: range) -> Tensor:
    """The network's input for some images, a block of them in memory at a time: a camera's images are large."""
    parts = [encoder.prepare(_stacked(block)) for block in images.blocks(indices)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _stacked(images: list[np.ndarray]) -> Tensor | list[np.ndarray]:
    """uint8 [B, 3, H, W] (a channels_last view) when all have one size, else the list as it is."""
    if len({image.shape for image in images}) > 1:
        return images
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def _out_of_memory(error: RuntimeError) -> bool:
    """CUDA has a class for it; the CPU's allocator and MPS only have words."""
    words = ("can't allocate memory", "out of memory", "not enough memory")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error).lower() for word in words)


def yardstick(choice: Choice, *, may_compile: bool = False) -> str:
    """What a run will take, in words: how long 1,000 images of a ViT-B/16 take on a CPU, from a product timed now.

    Good to a factor of 1.5. It is for the person who waits; nothing is chosen by it. Empty for other devices, where
    extraction takes minutes at most. `may_compile`: the script has --compile and it was not given, so it is offered
    where float32 is all that there is. It stays a choice of the user's: its numbers differ in the last bits, and the
    minutes that compiling takes pay from some thousand images on (benchmarks/processors.md).
    """
    if choice.device.type != "cpu":
        return ""
    rows, inner, outer = 8 * 197, 768, 3072  # a batch of 8 in the first half of a layer's feed-forward part
    x, weight = torch.ones(rows, inner, dtype=choice.dtype), torch.ones(outer, inner, dtype=choice.dtype)
    with torch.inference_mode():
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            seconds.append(time.perf_counter() - start)
    share = rows * inner * outer / (17.6e9 * 1000)  # of the multiply-adds of 1,000 images
    minutes = min(seconds) / share / 60
    took = f"{minutes:.0f} min" if minutes >= 2 else f"{60 * minutes:.0f} s"
    faster = "; --compile is faster there from some thousand images on" if may_compile and no_bf16(choice) else ""
    return f"; 1,000 images of a model as large as ViT-B/16 take about {took} here{faster}"


def no_bf16(choice: Choice) -> bool:
    """Float32 is the fastest that this CPU has."""
    return choice.device.type == "cpu" and choice.dtype is torch.float32 and not bf16_unit()[0]


# Shards on disk and between processes --------------------------------------------------------------------------------


@dataclass
class Shard:
    """The features of SHARD consecutive images; `notes` are what a reader of them has to know."""

    number: int
    features: np.ndarray  # float32 [at most SHARD, dim]
    notes: list[str]


def shard_count(images: ImageSet) -> int:
    """How many shards the images make."""
    return -(-len(images) // SHARD)


def rows_of(images: ImageSet, number: int) -> slice:
    """The images of shard `number`."""
    return slice(number * SHARD, min((number + 1) * SHARD, len(images)))


class ShardFolder:
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
        content = images.subset(rows_of(images, number)).digests(save=False)
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
            rows = rows_of(images, number)
            expected = (rows.stop - rows.start, dim), np.dtype(np.float32), about["sha256"]
            if (features.shape, features.dtype, hashlib.sha256(features).hexdigest()) == expected:
                return Shard(number, features, list(about["notes"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError):
            pass
        raise ValueError(f"{path}: damaged")


def exchange(own: dict[int, Shard], images: ImageSet) -> Iterator[Shard]:
    """The other processes' shards, by torch.distributed, in turns of one shard per process.

    `own` are this process's, number % world == rank. The images' content hashes travel along, so no process reads
    images that another has read.
    """
    import torch.distributed as dist

    world, group = gloo_group()
    rank = dist.get_rank()
    for turn in range(-(-shard_count(images) // world)):
        number = turn * world + rank
        mine = None
        if number in own:
            mine = own[number], images.subset(rows_of(images, number)).digests(save=False)
        everyones: list[tuple[Shard, np.ndarray] | None] = [None] * world
        dist.all_gather_object(everyones, mine, group=group)
        for other, theirs in enumerate(everyones):
            if theirs is not None and other != rank:
                shard, content = theirs
                images.subset(rows_of(images, shard.number)).learn(content)
                yield shard


# Reading ahead -------------------------------------------------------------------------------------------------------


def ahead(items: Iterator[T], depth: int = 3) -> Iterator[T]:
    """`items` in order, made by a thread that is up to `depth` of them ahead."""
    end = object()
    thread = ThreadPoolExecutor(1, thread_name_prefix="images")
    try:
        coming = deque(thread.submit(next, items, end) for _ in range(depth))
        while (item := coming.popleft().result()) is not end:
            coming.append(thread.submit(next, items, end))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)  # and wait: an interpreter that exits under a running kernel crashes
