"""Labelled images by name, decoded when asked for: `load_images("cifar10", "train")`.

Looked for in this order: a folder of the user's own, the mirror root (`--data-root` or `PAPERS_DATA`, laid out
`<hub repository>/<path in it>`), the Hugging Face hub's cache, the network. What is missing is an error that says what
to set; nothing is replaced silently.

Pillow does all decoding. torchvision's decoder gives the same pixels and is 1.3 to 1.8 times faster, but it fills the
missing part of a truncated JPEG with grey and says nothing, and importing it costs 1.6 s; an image takes a model far
longer than its 0.1 to 1 ms here, and `PixelStore` keeps it for all models of a run.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL
from PIL import Image, ImageOps, UnidentifiedImageError

from shared import paths
from shared.errors import UserError
from shared.folders import some
from shared.parquet import LFS_POINTER
from shared.sources import ALL, HUB_SETS, Collection, Source, open_set
from shared.text import notice, printable

__all__ = ["HUB_SETS", "ImageSet", "PixelStore", "copies", "decode", "digest", "load_images", "load_test", "load_two"]

DECODE_VERSION = 2  # raise it when `decode` gives other pixels: remembered content hashes are then computed again
ORIENTATION = 0x0112  # EXIF tag; 1 is upright
# What is opened. Not EPS and PDF, which Pillow hands to another program; a file's name does not count, its bytes do.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP", "DIB", "PPM", "JPEG2000", "AVIF", "ICO", "TGA", "PCX")
# A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where both sides stay at least this long: no model here looks at more
# than half of that, and a camera's 24 megapixels would take 72 MB each.
REDUCED = 1024
BLOCK = 128 << 20  # bytes of decoded images that are worked on at a time
T = TypeVar("T")
R = TypeVar("R")


def load_images(
    name: str,
    split: str = "train",
    *,
    root: Path | None = None,
    revision: str | None = None,
    label: str | None = None,
    image: str | None = None,
) -> ImageSet:
    """The images of a split.

    name: "cifar10", "cifar100", "pets", "imagenette" (splits train, validation, ilsvrc_val), "digits", a hub repository
    "<owner>/<name>", also with "@<revision>" and ":<configuration>", or a path: a folder or zip with one sub-folder a
    class (see `shared.folders`), a file or folder that `datasets` reads (see `shared.tables`). split: as it is called
    there, or another of the hub's words for it; "all": every folder is a class. root: a mirror, default `PAPERS_DATA`.
    revision: a commit, tag or branch of the hub repository. label, image: the columns, where there is a choice.

    UserError when the data set, the split or a file of it is missing.
    """
    root = Path(root) if root else None
    collection = open_set(name, root=root, revision=revision, label=label, image=image, classes_only=split == ALL)
    return _image_set(name, collection, collection.pick(split))


def load_two(
    name: str,
    *,
    train: str = "",
    test: str = "",
    root: Path | None = None,
    label: str | None = None,
    image: str | None = None,
) -> tuple[ImageSet, ImageSet]:
    """The images to train on and to test on, with one list of classes; twice the same set where it has one split only.

    train, test: the splits; "" for the usual ones (see `Collection.pick_train`, `pick_test`). The rest: `load_images`.
    UserError for a class in one of the two only. Labels of the test part in another order are brought into the first's.
    """
    collection = open_set(name, root=root, label=label, image=image, classes_only=train == ALL)
    splits = collection.pick_train(train), collection.pick_test(test)
    first = _image_set(name, collection, splits[0])
    second = first if splits[0] == splits[1] else _image_set(name, collection, splits[1])
    return _with_one_list_of_classes(first, second)


def load_test(
    name: str, split: str = "", *, root: Path | None = None, label: str | None = None, image: str | None = None
) -> ImageSet:
    """The images to test on: of `split`, else of the usual one (see `Collection.pick_test`); as `load_images`."""
    collection = open_set(name, root=root, label=label, image=image, classes_only=split == ALL)
    return _image_set(name, collection, collection.pick_test(split))


def _image_set(name: str, collection: Collection, split: str) -> ImageSet:
    source = collection.load(split)
    if collection.splits != [ALL] and set(collection.splits) != {"train", "test"}:
        source.notes.insert(0, f"splits found: {', '.join(collection.splits)}")
    return ImageSet(name, source)


def _with_one_list_of_classes(train: ImageSet, test: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Both with the classes that have images, in the order of `train`'s."""
    used = [_used(images) for images in (train, test)]
    if used[0] != used[1] and set(used[0]) != set(used[1]):
        in_one = [f"{c!r} only in {train.split}" for c in used[0] if c not in used[1]]
        in_one += [f"{c!r} only in {test.split}" for c in used[1] if c not in used[0]]
        raise UserError(
            f"{train.name}: {train.split} has images of {len(used[0])} classes and {test.split} of {len(used[1])}: "
            f"{some(in_one)}; give both the same classes, or name other splits: --split, --test-split"
        )
    if train.class_names == test.class_names == used[0]:
        return train, test
    first = train.with_classes(used[0])
    return first, first if test is train else test.with_classes(used[0])


def _used(images: ImageSet) -> list[str]:
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    return [name for name, count in zip(images.class_names, counts, strict=True) if count]


def tell_assumed(*sets: ImageSet) -> None:
    """Say on the screen, before long work, what was assumed."""
    for line in dict.fromkeys(line for images in sets for line in images.assumed()):
        notice(f"  {line}")


def repeated(images: ImageSet) -> np.ndarray:
    """int64 [k]: which of `images` have the very pixels of an earlier one."""
    firsts = np.unique(images.digests().view("V32").ravel(), return_index=True)[1]
    return np.setdiff1d(np.arange(len(images)), firsts)


def copies(images: ImageSet, others: ImageSet) -> np.ndarray:
    """int64 [k]: which of `images` have the very pixels of one of `others`."""
    mine, theirs = (part.digests().view("V32").ravel() for part in (images, others))
    return np.flatnonzero(np.isin(mine, theirs))


class ImageSet:
    """Labelled images in a fixed order, decoded when asked for.

    name, split, source (where they come from, in words); labels int64 [n]; class_names, in normal form
    (`sources.normal_name`), and class_ids, as the source spells them, both in label order; names, the n file names;
    stand_in, None or why these are not the images that `name` says; notes, what was assumed and what was left out.

    Parts made by `subset` share decoded images and hashes, so an image is decoded once in a process.
    """

    def __init__(
        self, name: str, source: Source, rows: np.ndarray | None = None, shared: _Shared | None = None
    ) -> None:
        self.name, self.split, self.source, self.stand_in = name, source.split, source.words, source.stand_in
        self.class_names, self.class_ids, self.notes = source.class_names, source.class_ids, source.notes
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
        return printable(self._source.rows.where(int(self._rows[index])))

    def image(self, index: int) -> np.ndarray:
        """uint8 [H, W, 3]."""
        return self.batch([index])[0]

    def batch(self, indices: Sequence[int] | np.ndarray | slice) -> list[np.ndarray]:
        """uint8 [H, W, 3] each, in the order of `indices`, decoded in parallel. UserError for an unreadable one."""
        return self._shared.pixels(self._rows[_as_index(indices)])

    def blocks(self, indices: Sequence[int] | np.ndarray | slice = slice(None)) -> Iterator[list[np.ndarray]]:
        """`batch` in pieces, in order: at most 256 images, and `BLOCK` bytes and one image."""
        rows = self._rows[_as_index(indices)]
        for start in range(0, len(rows), 256):
            part = rows[start : start + 256]
            self._shared.fetch(part)  # an image per thread in memory; now the sizes are known
            ends = np.cumsum(self._shared.sizes(part)) // BLOCK
            for piece in np.split(part, np.flatnonzero(np.diff(ends)) + 1):
                yield self._shared.pixels(piece)

    def with_classes(self, names: list[str]) -> ImageSet:
        """The same images with `names` as their list of classes: all that have images, in any order."""
        place = {name: label for label, name in enumerate(names)}
        new = np.array([place.get(name, -1) for name in self.class_names])
        ids = [self.class_ids[self.class_names.index(name)] for name in names]
        absent = [name for name in self.class_names if name not in place]
        notes = [f"classes without an image, left out: {some(absent)}"] if absent else []
        if (np.diff(new[new >= 0]) < 0).any():
            notes.append(f"the labels of {self.split} are in another order, and were matched by name")
        changes = {"labels": new[self._source.labels], "class_names": names, "class_ids": ids}
        source = replace(self._source, notes=[*self.notes, *notes], **changes)
        return ImageSet(self.name, source, self._rows, self._shared)

    def assumed(self) -> list[str]:
        """What a reader has to know of where images, labels and classes were found, a line each."""
        counts = np.bincount(self.labels, minlength=len(self.class_names))
        classes = [f"{name} {count:,}" for name, count in zip(self.class_names, counts, strict=True)]
        if len(classes) > 8:
            classes = [*classes[:4], "...", *classes[-2:]]
        line = f"{len(self):,} images of {len(self.class_names):,} classes: {', '.join(classes)}"
        return [printable(words) for words in (f"{self.split}: {line}; {self.source}", *self.notes)]

    def arrays(self) -> np.ndarray:
        """uint8 [n, H, W, 3]. UserError when the images have different sizes."""
        if len(self) == 0:
            return np.empty((0, 0, 0, 3), np.uint8)
        result = np.empty((len(self), *self.image(0).shape), np.uint8)
        for index, pixels in enumerate(pixels for block in self.blocks() for pixels in block):
            if pixels.shape != result.shape[1:]:
                raise UserError(
                    f"{self.where(index)}: {pixels.shape[1]}x{pixels.shape[0]} pixels where the first image has "
                    f"{result.shape[2]}x{result.shape[1]}; bring all images to one size"
                )
            result[index] = pixels
        return result

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
        """sha256 of each decoded image (`digest`), in hex: equal for exact duplicates."""
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
        self._store = PixelStore()
        self._hashes = np.zeros((len(source.labels), 32), np.uint8)  # all zero: not known
        self._sizes = np.zeros(len(source.labels), np.int64)  # bytes of the decoded image; 0: not known
        self._unsaved = False
        self._file = None
        if source.rows.identity:
            key = repr((source.rows.identity, DECODE_VERSION, PIL.__version__)).encode()
            self._file = paths.cache_dir() / "hashes" / f"{hashlib.sha256(key).hexdigest()[:24]}.bin"
            self._load()

    def pixels(self, rows: np.ndarray) -> list[np.ndarray]:
        kept = [self._store.get(int(row)) for row in rows]
        missing = np.array([position for position, pixels in enumerate(kept) if pixels is None], np.int64)
        self._decode(rows[missing], lambda number, pixels: kept.__setitem__(missing[number], pixels))
        return kept

    def sizes(self, rows: np.ndarray) -> np.ndarray:
        """Bytes of each decoded image, int64; where that is not known, what a large one takes."""
        return np.where(self._sizes[rows] > 0, self._sizes[rows], BLOCK // 8)

    def fetch(self, rows: np.ndarray) -> None:
        """Decode what is not kept or not hashed; only an image per thread is in memory at a time."""
        hashed = self._hashes[rows].any(axis=1)
        kept = [self._file is None or self._store.has(int(row)) for row in rows]  # no file: nothing needs decoding
        self._decode(rows[~(hashed & np.array(kept, bool))], lambda number, pixels: None)

    def _decode(self, rows: np.ndarray, use: Callable[[int, np.ndarray], None]) -> None:
        """Read and decode in the source's order, which reads every row group once; `use` gets number and pixels."""

        def one(job: tuple[int, bytes | np.ndarray]) -> None:
            number, data = job
            use(number, self._decode_one(int(rows[number]), data))

        order, start, count = np.argsort(rows, kind="stable"), 0, 8
        while start < len(rows):
            block = order[start : start + count]
            encoded = self._source.rows.read(rows[block])
            jobs = list(zip(block.tolist(), encoded, strict=True))
            in_parallel(one, jobs, small=sum(map(len, encoded)) < 4096 * len(encoded))
            start += count
            count = min(64, 2 * count) if sum(map(len, encoded)) < BLOCK // 8 else max(1, count // 2)

    def _decode_one(self, row: int, data: bytes | np.ndarray) -> np.ndarray:
        if isinstance(data, np.ndarray):
            pixels = data.copy()
        else:
            pixels = decode(data, self._source.rows.where(row))
            self._store.put(row, pixels)
        self._sizes[row] = pixels.nbytes
        if not self._hashes[row].any():
            self._hashes[row] = np.frombuffer(digest(pixels), np.uint8)
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
            unknown = ~self._hashes.any(axis=1)
            self._hashes[unknown] = np.frombuffer(payload, np.uint8).reshape(-1, 32)[unknown]


# Decoding ------------------------------------------------------------------------------------------------------------


def decode(data: bytes, where: str) -> np.ndarray:
    """Pixels of an encoded image, uint8 [H, W, 3], RGB, upright.

    Grey, black-and-white and palette images become RGB; 16-bit grey is scaled (65,535 to 255); CMYK is converted;
    transparent pixels are laid on white, as a viewer shows them; an EXIF rotation is carried out; of an animation the
    first frame counts; a large JPEG comes at a reduced scale (see REDUCED). `where` names the image (file, row, file
    name) in the UserError for what cannot be read: truncated or damaged bytes, another format, or 32-bit samples, which
    have no fixed white.
    """
    size = "size unknown"
    try:
        image = Image.open(BytesIO(data), formats=formats())
        size = f"{image.width:,}x{image.height:,} pixels"
        image.draft(None, (REDUCED, REDUCED))
        image.load()
        if image.getexif().get(ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
        return np.array(_rgb(image, where))
    except UserError:
        raise
    except MemoryError as error:
        raise UserError(
            f"{where}: not enough memory to decode it ({size}); end other programs, or make the image smaller"
        ) from error
    except UnidentifiedImageError as error:
        raise UserError(f"{where}: not a readable image ({_what_it_is(data)}); replace it or take it out") from error
    except Exception as error:  # OSError, SyntaxError, ValueError, struct.error, ...: each decoder has its own
        reason = f"{len(data):,} bytes; {re.sub('<_io.BytesIO[^>]*>', 'it', str(error))}"
        raise UserError(f"{where}: not a readable image ({reason}); replace it or take it out") from error


@functools.cache
def formats() -> tuple[str, ...]:
    """Those of FORMATS that this Pillow opens."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _what_it_is(data: bytes) -> str:
    """A word on bytes that are none of FORMATS."""
    start = data[:200].lstrip(b" \r\n\t").lower()
    known = {
        "an EPS drawing, which is not opened; convert it to PNG": start.startswith(b"%!ps")
        or data[:4] == b"\xc5\xd0\xd3\xc6",
        "a PDF, which is not opened; convert it to PNG": start.startswith(b"%pdf"),
        "a git-lfs pointer, not the image: run `git lfs pull`": start.startswith(LFS_POINTER),
        "a web page, saved in the image's place": start.startswith((b"<!doctype html", b"<html")),
        "HEIC, which this Pillow does not open; convert it to JPEG": data[4:8] == b"ftyp",
        "an SVG drawing, which is not opened; convert it to PNG": b"<svg" in start,
        "an empty file": not data,
    }
    what = next((words for words, is_it in known.items() if is_it), "damaged, or none of " + ", ".join(formats()))
    return f"{len(data):,} bytes; {what}"


def _rgb(image: Image.Image, where: str) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16"):
        # Pillow's own conversion clips at 255, which turns most 16-bit images white.
        return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise UserError(f"{where}: 32-bit samples (mode {image.mode}) have no fixed white; save it with 8 or 16 bits")
    if image.has_transparency_data:
        opaque = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(opaque, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def digest(pixels: np.ndarray) -> bytes:
    """sha256 of a decoded image: of the line "<height>x<width>" and its uint8 RGB bytes, row by row."""
    state = hashlib.sha256(f"{pixels.shape[0]}x{pixels.shape[1]}\n".encode())
    state.update(np.ascontiguousarray(pixels))
    return state.digest()


def in_parallel(function: Callable[[T], R], items: Iterable[T], *, small: bool) -> list[R]:
    """`[function(x) for x in items]`, on several threads unless the images are `small`.

    Below about 4 KB waiting for Python's lock costs more than a second thread gains (CIFAR: 130 us an image on one
    thread, 210 on two).
    """
    return [function(item) for item in items] if small else list(_pool().map(function, items))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(2, min(16, os.cpu_count() or 2)), thread_name_prefix="decode")


class PixelStore:
    """Decoded images in a file without a name: every image is decoded once in a process, the memory stays free.

    The file lies in the cache folder and vanishes with the process, however that ends. Beyond `limit` bytes, or when
    less than ROOM is left on the disk for features and results, further images are simply not kept and are decoded
    again when they are needed again.
    """

    ROOM = 1 << 30  # bytes
    STEP = 32 << 20  # bytes between two looks at the disk

    def __init__(self, limit: int = 2 << 30) -> None:
        self.limit = limit
        self._file = None
        self._end = self._look_again = 0
        self._places: dict[int, tuple[int, int, int]] = {}  # row: (offset, height, width)
        self._lock = threading.Lock()

    def has(self, row: int) -> bool:
        """Whether there is no need to decode the row: it is here, or could not be kept anyway."""
        return row in self._places or self._end >= self.limit

    def get(self, row: int) -> np.ndarray | None:
        """uint8 [H, W, 3], a copy of its own; None when the row is not kept."""
        place = self._places.get(row)
        if place is None:
            return None
        offset, height, width = place
        pixels = np.empty((height, width, 3), np.uint8)
        with self._lock:
            self._file.seek(offset)
            whole = self._file.readinto(memoryview(pixels).cast("B")) == pixels.nbytes
        return pixels if whole else None

    def put(self, row: int, pixels: np.ndarray) -> None:
        """Keep the row's pixels, uint8 [H, W, 3], if there is room."""
        with self._lock:
            if row in self._places:
                return
            try:
                if self._end + pixels.nbytes > self.limit:
                    raise OSError("limit reached")
                if self._file is None:
                    paths.cache_dir().mkdir(parents=True, exist_ok=True)
                    self._file = tempfile.TemporaryFile(dir=paths.cache_dir(), buffering=0)  # noqa: SIM115, stays open
                if self._end >= self._look_again:
                    if shutil.disk_usage(paths.cache_dir()).free < self.ROOM:
                        raise OSError("the rest of the disk is for others")
                    self._look_again = self._end + self.STEP
                self._file.seek(self._end)
                if self._file.write(memoryview(np.ascontiguousarray(pixels)).cast("B")) != pixels.nbytes:
                    raise OSError("disk full")
            except OSError:
                self.limit = self._end  # further images are not kept
                return
            self._places[row] = (self._end, *pixels.shape[:2])
            self._end += pixels.nbytes
