"""Features of images, computed once: shards on disk that a killed run continues and several processes share.

    features = extract("timm:vit_base_patch16_224", load_images("pets", "test"), device.choose())   # float32 [n, dim]

A shard holds the features of `SHARD` consecutive images. Its file name is the sha256 of everything its numbers depend
on: the encoder's identity (weights, preprocessing), device type, dtype, batch size, the code of the path with its
libraries, and the content hashes of its images. So with one number of threads a process a shard is the same bytes
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
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shared import shards
from shared.ahead import Progress, ahead
from shared.data import ImageSet
from shared.device import Choice, rank_and_world
from shared.errors import UserError
from shared.shards import SHARD, Shard

if TYPE_CHECKING:
    from shared.models import Identity
    from shared.models.encoder import Encoder

CPU_BATCH = 32  # fixed, since another batch size gives other last bits; larger ones are no faster on CPUs
FORMAT = 1  # raise it when this file comes to give other numbers from the same model and images
Say = Callable[[str], None]


class Deferred:
    """An encoder that is loaded when the first shard is missing, and once.

    `load` gives the encoder that `identity` describes; `compiled` says whether it compiles.
    """

    def __init__(self, identity: Identity, load: Callable[[], Encoder], *, compiled: bool = False) -> None:
        self.identity = identity
        self.compiled = compiled
        self._load = load
        self._higher: dict[torch.dtype, Encoder] = {}

    @functools.cached_property
    def encoder(self) -> Encoder:
        return self._load()

    def at(self, dtype: torch.dtype) -> Encoder:
        """The same model in a higher precision."""
        if dtype not in self._higher:
            self._higher[dtype] = self.encoder.at(dtype)
        return self._higher[dtype]


def deferred(spec: str, choice: Choice, *, revision: str | None = None, compile: bool = False) -> Deferred:
    """The encoder called `spec` (see `shared.models`), identified but not loaded."""
    from shared import models

    load = functools.partial(models.load_encoder, spec, choice, revision=revision, compile=compile)
    return Deferred(models.describe(spec, revision=revision), load, compiled=compile)


def extract(
    encoder: Encoder | Deferred | str,
    images: ImageSet,
    choice: Choice,
    *,
    cache: bool = True,
    batch_size: int | str = "auto",
    say: Say | None = None,
) -> np.ndarray:
    """float32 [n, dim]: the encoder's numbers for every image, from the cache where it has them.

    batch_size "auto": 32 on a CPU, on a GPU the one found fastest; halved when the memory is not enough. A batch with
    numbers that are not finite is computed again in float32 (float64 after float32), and `say` (default: stderr) is
    told so, on this run and on every later one that takes these features from the cache.

    UserError: numbers stay without a finite value; not even one image fits into the memory; an image is unreadable.
    """
    say = say or (lambda line: print(line, file=sys.stderr))
    if batch_size != "auto" and not (isinstance(batch_size, int) and batch_size >= 1):
        raise UserError(f"batch size {batch_size}: expected auto or a number from 1")
    if isinstance(encoder, str):
        encoder = deferred(encoder, choice)
    elif not isinstance(encoder, Deferred):
        loaded = encoder
        encoder = Deferred(loaded.identity, lambda: loaded, compiled=loaded.compiled)
    return _Extraction(encoder, images, choice, cache, batch_size, say).run()


def recipe(encoder: Deferred, choice: Choice, batch_size: int | str) -> dict[str, str]:
    """Everything besides the images that the numbers depend on."""
    auto = CPU_BATCH if choice.device.type == "cpu" else "auto"
    own = {"format": FORMAT, "shard": SHARD, "batch": auto if batch_size == "auto" else batch_size}
    identity = {f.name: getattr(encoder.identity, f.name) for f in fields(encoder.identity) if f.compare}
    where = {"device": choice.device.type, "dtype": choice.dtype_name, "compiled": encoder.compiled}
    return {name: str(value) for name, value in {**own, **identity, **where, "code": code_version()}.items()}


@functools.cache
def code_version() -> str:
    """sha256 over the source files between an image's bytes and its features, and their libraries' versions."""
    here = Path(__file__).parent
    state = hashlib.sha256()
    for file in [here / "images.py", here / "transforms.py", *sorted((here / "models").glob("*.py"))]:
        state.update(file.read_bytes())
    for library in ("torch", "torchvision", "transformers", "timm", "pillow"):
        state.update(f"{library} {version(library)}\n".encode())
    return state.hexdigest()


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
        self.folder = shards.Folder(self.name, recipe(encoder, choice, batch_size)) if cache else None
        self.batch_size = CPU_BATCH if batch_size == "auto" and choice.device.type == "cpu" else batch_size
        self.rank, self.world = rank_and_world()
        self.own = range(self.rank, shards.count(images), self.world)

    def run(self) -> np.ndarray:
        result = np.empty((len(self.images), self.encoder.identity.dim), np.float32)
        notes: list[str] = []

        def take(shard: Shard) -> None:
            part = shards.part(self.images, shard.number)
            result[part] = shard.features
            shard.features = result[part]  # a view: the features are in memory once
            notes.extend(shard.notes)

        own = {}
        parts = [shards.part(self.images, number) for number in self.own]
        with Progress(self.name, sum(part.stop - part.start for part in parts), quiet=self.rank != 0) as progress:
            for shard in self._shards(progress):
                take(shard)
                own[shard.number] = shard
        if self.world > 1:
            for shard in shards.exchange(own, self.images):
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
            found = self._read(number)
            if found:
                yield found
                continue
            encoder = self.encoder.encoder
            if self.batch_size == "auto":
                self.batch_size = best_batch_size(encoder, self.images)
            part = shards.part(self.images, number)
            self.images.subset(part).fetch()
            first = part.start
            while first < part.stop:
                last = min(first + self.batch_size, part.stop)
                yield _Batch(number, first, encoder.prepare(_stacked(self.images.batch(range(first, last)))))
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
            progress.done(len(features))
            if item.first + len(features) == shards.part(self.images, item.shard).stop:
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
            self.say(f"{self.name}: out of memory with {size} images, going on with {self.batch_size}")

    def _again_in_higher_precision(self, batch: _Batch, features: np.ndarray) -> tuple[np.ndarray, str]:
        indices = range(batch.first, batch.first + len(features))
        used = self.encoder.encoder.choice.dtype
        bad = int((~np.isfinite(features).all(1)).sum())
        ladder = [torch.float32, torch.float64] if self.choice.device.type != "mps" else [torch.float32]
        for dtype in ladder[ladder.index(used) + 1 if used in ladder else 0 :]:
            higher = self.encoder.at(dtype)
            again = self._forward(higher, higher.prepare(_stacked(self.images.batch(indices))))
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


def _stacked(images: list[np.ndarray]) -> Tensor | list[np.ndarray]:
    """uint8 [B, 3, H, W] (a channels_last view) when all have one size, else the list as it is."""
    if len({image.shape for image in images}) > 1:
        return images
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def best_batch_size(encoder: Encoder, images: ImageSet, smallest: int = 32) -> int:
    """The batch size, doubled from `smallest` to at most SHARD, beyond which the rate grows by less than 5 %.

    Timed on the set's own first images. The last one that fits into the memory when it runs out before that.
    """
    best, best_rate = smallest, 0.0
    size = smallest
    while size <= min(SHARD, len(images)):
        try:
            inputs = encoder.prepare(_stacked(images.batch(range(size))))
            encoder.forward(inputs).cpu()  # chooses and loads kernels
            start = time.perf_counter()
            encoder.forward(inputs).cpu()  # `.cpu()` waits for the device
            rate = size / (time.perf_counter() - start)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            return best if best_rate else max(1, smallest // 2)
        if rate < 1.05 * best_rate:
            return best
        best, best_rate, size = size, rate, size * 2
    return best


def _out_of_memory(error: RuntimeError) -> bool:
    """CUDA has a class for it; the CPU's allocator and MPS only have words."""
    words = ("can't allocate memory", "out of memory", "not enough memory")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error).lower() for word in words)
