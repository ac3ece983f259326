"""Labelled images by name: `load_images("cifar10", "train")`.

Looked for in this order: a folder of the user's own, the mirror root (`--data-root` or `PAPERS_DATA`, laid out
`<hub repository>/<path in it>`), the Hugging Face hub's cache, the network. What cannot be had is an error that says
what to set; nothing is replaced silently. Parquet files of the hub are read directly, row group by row group:
`datasets` would write a second copy of everything and takes seconds to import.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL

from shared import hub, images, paths
from shared.errors import UserError
from shared.sources import Source, digits_source, folder_source, parquet_source

IMAGENETTE_NAMES = {
    "n01440764": "tench",
    "n02102040": "english springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "french horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


@dataclass(frozen=True)
class HubSet:
    """A data set of the hub: where its parquet files lie, the commit they are read at, and how many images it has."""

    repository: str
    folder: str
    revision: str | None  # a commit; None reads the newest one and names it in the source
    images: dict[str, int]


HUB_SETS = {
    "cifar10": HubSet(
        "uoft-cs/cifar10", "plain_text", "0b2714987fa478483af9968de7c934580d0bb9a2", {"train": 50_000, "test": 10_000}
    ),
    "cifar100": HubSet(
        "uoft-cs/cifar100", "cifar100", "aadb3af77e9048adbea6b47c21a81e47dd092ae5", {"train": 50_000, "test": 10_000}
    ),
    "pets": HubSet("timm/oxford-iiit-pet", "data", None, {"train": 3_680, "test": 3_669}),
    "imagenette": HubSet("frgfm/imagenette", "data", None, {"train": 9_469, "validation": 3_925, "ilsvrc_val": 500}),
}


def load_images(
    name: str, split: str = "train", *, root: Path | None = None, revision: str | None = None, label: str | None = None
) -> ImageSet:
    """The images of a split.

    name: "cifar10", "cifar100", "pets", "imagenette" (splits train, validation, ilsvrc_val), "digits", a hub repository
    "<owner>/<name>" or "<owner>/<name>:<configuration>", or the path of a folder with one sub-folder a class (see
    `sources.folder_source`). root: a mirror, default `PAPERS_DATA`. revision: a commit, tag or branch of the hub
    repository. label: the label column (CIFAR-100: "fine_label" unless "coarse_label" is asked for).

    UserError when the data set, the split or a file of it is not to be had.
    """
    source = _find(name, split, Path(root) if root else paths.data_root(), revision, label)
    return ImageSet(name, source)


def _find(name: str, split: str, root: Path | None, revision: str | None, label: str | None) -> Source:
    if name == "digits":
        return digits_source(split)
    if name not in HUB_SETS and Path(name).expanduser().is_dir():
        return folder_source(Path(name).expanduser(), split)
    known = HUB_SETS.get(name) or next((s for s in HUB_SETS.values() if s.repository == name), None)
    if known:
        repository, folder, revision = known.repository, known.folder, revision or known.revision
        split = {"val": "validation"}.get(split, split) if "validation" in known.images else split
        if split not in known.images:
            raise UserError(f"{name}: no split {split}; it has {', '.join(known.images)}")
    else:
        repository, _, folder = name.partition(":")
        if repository.count("/") != 1 or not all(repository.split("/")):
            choices = ", ".join([*HUB_SETS, "digits"])
            raise UserError(f"data set {name!r}: expected {choices}, <owner>/<name> on the hub, or an existing folder")
    imagenette = known is not None and known is HUB_SETS["imagenette"]
    if imagenette and not hub.in_mirror(root, repository):
        source = hub.torchvision_imagenette(split)
        if len(source.labels) != known.images[split]:
            found = f"{len(source.labels):,} of {known.images[split]:,} images"
            raise UserError(f"{source.words}: {found} of {split}; delete the folder to have it fetched again")
    else:
        files, words = hub.parquet_files(repository, folder, split, root=root, revision=revision)
        source = parquet_source(files, split, words, label=label)
        if known and len(source.labels) != known.images[split]:
            source.stand_in = f"copy with {len(source.labels):,} of {known.images[split]:,} images"
        elif imagenette:
            source.stand_in = "parquet copy, not the 160-pixel files of torchvision"
    if imagenette:
        source.class_names = [IMAGENETTE_NAMES[wnid] for wnid in source.class_ids]
    return source


class ImageSet:
    """Labelled images in a fixed order, decoded when asked for.

    name, split, source (where they come from, in words); labels int64 [n]; class_names, in normal form
    (`sources.normal_name`), and class_ids, as the source spells them, both in label order; names, the n file names;
    stand_in, None or why these are not the images that `name` says.

    Parts made by `subset` share decoded images and hashes, so an image is decoded once in a process.
    """

    def __init__(
        self, name: str, source: Source, rows: np.ndarray | None = None, shared: _Shared | None = None
    ) -> None:
        self.name = name
        self.split = source.split
        self.source = source.words
        self.class_names = source.class_names
        self.class_ids = source.class_ids
        self.stand_in = source.stand_in
        self._source = source
        self._rows = np.arange(len(source.labels)) if rows is None else rows
        self._shared = shared or _Shared(source)
        self.labels = source.labels[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    @functools.cached_property
    def names(self) -> list[str]:
        return [self._source.names[row] for row in self._rows]

    def where(self, index: int) -> str:
        """File and row of an image, for messages."""
        return self._source.rows.where(int(self._rows[index]))

    def image(self, index: int) -> np.ndarray:
        """uint8 [H, W, 3]."""
        return self.batch([index])[0]

    def batch(self, indices: Sequence[int] | np.ndarray | slice) -> list[np.ndarray]:
        """uint8 [H, W, 3] each, in the order of `indices`, decoded in parallel. UserError for an unreadable one."""
        return self._shared.pixels(self._rows[_as_index(indices)])

    def batches(self, size: int) -> Iterator[list[np.ndarray]]:
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))

    def arrays(self) -> np.ndarray:
        """uint8 [n, H, W, 3]. UserError when the images have different sizes."""
        result = None
        for start, batch in zip(range(0, len(self), 512), self.batches(512), strict=True):
            if result is None:
                result = np.empty((len(self), *batch[0].shape), np.uint8)
            for index, pixels in enumerate(batch, start):
                if pixels.shape != result.shape[1:]:
                    raise UserError(
                        f"{self.where(index)}: {pixels.shape[1]}x{pixels.shape[0]} pixels where the first image has "
                        f"{result.shape[2]}x{result.shape[1]}; bring all images to one size"
                    )
                result[index] = pixels
        return np.empty((0, 0, 0, 3), np.uint8) if result is None else result

    def subset(self, indices: Sequence[int] | np.ndarray | slice) -> ImageSet:
        """The images at `indices`, in that order."""
        return ImageSet(self.name, self._source, self._rows[_as_index(indices)], self._shared)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256, in order, over each image's 32-byte content hash and its label as eight little-endian bytes."""
        whole = hashlib.sha256()
        for content, label in zip(self.digests(), self.labels.astype("<i8"), strict=True):
            whole.update(content.tobytes() + label.tobytes())
        return whole.hexdigest()

    def content_hashes(self) -> list[str]:
        """sha256 of each decoded image (`images.digest`), in hex: equal for exact duplicates."""
        return [content.tobytes().hex() for content in self.digests()]

    def digests(self, *, save: bool = True) -> np.ndarray:
        """The content hashes as uint8 [n, 32]; decodes only what was never decoded on this machine.

        save: write newly found ones to the cache now; otherwise `remember` does it.
        """
        return self._shared.digests(self._rows, save)

    def fetch(self) -> None:
        """Decode ahead of `batch`, each image once and in the source's order, whatever the order here."""
        self._shared.fetch(self._rows)

    def learn(self, digests: np.ndarray) -> None:
        """Take over content hashes (uint8 [n, 32]) that another process has computed from the same source."""
        self._shared.learn(self._rows, digests)

    def remember(self) -> None:
        """Write the content hashes known so far to the cache, for the next run."""
        self._shared.save()


def _as_index(indices: Sequence[int] | np.ndarray | slice) -> np.ndarray | slice:
    return indices if isinstance(indices, slice) else np.asarray(indices, np.int64)


class _Shared:
    """What all parts of a source share: decoded images, and content hashes that outlive the process.

    The hashes lie in the cache folder under the identity (path, size, time of change) of the source's files, after
    their own sha256. So a run from cached features needs no image, only this file.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._store = images.PixelStore()
        self._hashes = np.zeros((len(source.labels), 32), np.uint8)  # all zero: not known
        self._unsaved = False
        self._file = None
        if source.rows.identity:
            code = images.__name__, PIL.__version__, paths.sha256_file(Path(images.__file__))
            key = hashlib.sha256(repr((source.rows.identity, code)).encode()).hexdigest()
            self._file = paths.cache_dir() / "hashes" / f"{key[:24]}.bin"
            self._load()

    def pixels(self, rows: np.ndarray) -> list[np.ndarray]:
        found = [self._store.get(int(row)) for row in rows]
        missing = np.array([position for position, pixels in enumerate(found) if pixels is None], np.int64)
        self._decode(rows[missing], lambda number, pixels: found.__setitem__(missing[number], pixels))
        return found

    def fetch(self, rows: np.ndarray) -> None:
        """Decode what is neither in the store nor hashed; only an image a thread is in memory at a time."""
        known = self._hashes[rows].any(axis=1)
        here = [self._file is None or self._store.has(int(row)) for row in rows]
        needed = [row for row, *ready in zip(rows, known, here, strict=True) if not all(ready)]
        self._decode(np.array(needed, np.int64), lambda number, pixels: None)

    def _decode(self, rows: np.ndarray, use: Callable[[int, np.ndarray], None]) -> None:
        """Read and decode in the source's order, which reads every row group once; `use` gets number and pixels."""
        order = np.argsort(rows, kind="stable")
        for start in range(0, len(rows), 64):
            block = order[start : start + 64]
            encoded = self._source.rows.read(rows[block])

            def one(job: tuple[int, bytes | np.ndarray]) -> None:
                number, data = job
                use(number, self._decode_one(int(rows[number]), data))

            jobs = list(zip(block.tolist(), encoded, strict=True))
            images.in_parallel(one, jobs, small=sum(map(len, encoded)) < 4096 * len(encoded))

    def _decode_one(self, row: int, data: bytes | np.ndarray) -> np.ndarray:
        if isinstance(data, np.ndarray):
            pixels = data.copy()
        else:
            pixels = images.decode(data, self._source.rows.where(row))
            self._store.put(row, pixels)
        if not self._hashes[row].any():
            self._hashes[row] = np.frombuffer(images.digest(pixels), np.uint8)
            self._unsaved = True
        return pixels

    def learn(self, rows: np.ndarray, digests: np.ndarray) -> None:
        self._hashes[rows] = digests
        self._unsaved = True

    def digests(self, rows: np.ndarray, save: bool) -> np.ndarray:
        self.fetch(rows[~self._hashes[rows].any(axis=1)])
        if save:
            self.save()
        return self._hashes[rows]

    def save(self) -> None:
        if self._unsaved and self._file:
            self._load()  # another process may have found further ones
            payload = self._hashes.tobytes()
            paths.atomic_write(self._file, hashlib.sha256(payload).digest() + payload)
        self._unsaved = False

    def _load(self) -> None:
        try:
            content = self._file.read_bytes()
        except OSError:
            return
        payload = content[32:]
        if hashlib.sha256(payload).digest() == content[:32] and len(payload) == self._hashes.nbytes:
            stored = np.frombuffer(payload, np.uint8).reshape(-1, 32)
            unknown = ~self._hashes.any(axis=1)
            self._hashes[unknown] = stored[unknown]
