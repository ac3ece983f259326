"""Bytes of an image file to pixels, and keeping the pixels for the other models of a run.

Pillow does all decoding. torchvision's decoder gives the same pixels and is 1.3 to 1.8 times faster, but it fills the
missing part of a truncated JPEG with grey and says nothing, and importing it costs 1.6 s; an image takes a model far
longer than its 0.1 to 1 ms here, and `PixelStore` makes it once for all models of a run.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps

from shared.errors import UserError
from shared.paths import cache_dir

ORIENTATION = 0x0112  # EXIF tag; 1 is upright
T = TypeVar("T")
R = TypeVar("R")


def decode(data: bytes, where: str) -> np.ndarray:
    """Pixels of an encoded image, uint8 [H, W, 3], RGB, upright.

    Grey, black-and-white and palette images become RGB; 16-bit grey is scaled (65,535 to 255); CMYK is converted;
    transparent pixels are laid on white, as a viewer shows them; an EXIF rotation is carried out; of an animation the
    first frame counts. `where` names the image (file, row, file name) in the UserError for what cannot be read:
    truncated or damaged bytes, no image at all, or 32-bit samples, which have no fixed white.
    """
    try:
        image = Image.open(BytesIO(data))
        image.load()
        if image.getexif().get(ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
        return np.array(_rgb(image, where))
    except UserError:
        raise
    except (
        Exception
    ) as error:  # on damaged bytes the decoders raise OSError, SyntaxError, ValueError, struct.error, ...
        size = f"{len(data):,} bytes"
        raise UserError(f"{where}: not a readable image ({size}; {error}); replace it or take it out") from error


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
    """`[function(x) for x in items]` on threads. `small` images stay on this one: below about 4 KB handing the
    interpreter lock to and fro costs more than the second thread brings (CIFAR: 130 us an image against 210)."""
    return [function(item) for item in items] if small else list(_pool().map(function, items))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(2, min(16, os.cpu_count() or 2)), thread_name_prefix="decode")


class PixelStore:
    """Decoded images in a file without a name: every image is decoded once in a process, the memory stays free.

    The file lies in the cache folder and vanishes with the process, however that ends. Beyond `limit` bytes, or when
    the disk is full, further images are simply not kept and are decoded again when they are needed again.
    """

    def __init__(self, limit: int = 2 << 30) -> None:
        self.limit = limit
        self._file = None
        self._end = 0
        self._places: dict[int, tuple[int, int, int]] = {}  # row: (offset, height, width)
        self._lock = threading.Lock()

    def has(self, row: int) -> bool:
        """Whether there is no need to decode the row: it is here, or could not be kept anyway."""
        return row in self._places or self._end >= self.limit

    def get(self, row: int) -> np.ndarray | None:
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
        with self._lock:
            if row in self._places:
                return
            if self._end + pixels.nbytes > self.limit:
                self.limit = self._end
                return
            try:
                if self._file is None:
                    cache_dir().mkdir(parents=True, exist_ok=True)
                    self._file = tempfile.TemporaryFile(dir=cache_dir(), buffering=0)  # noqa: SIM115, open for good
                self._file.seek(self._end)
                if self._file.write(memoryview(np.ascontiguousarray(pixels)).cast("B")) != pixels.nbytes:
                    raise OSError("disk full")
            except OSError:
                self.limit = self._end
                return
            self._places[row] = (self._end, *pixels.shape[:2])
            self._end += pixels.nbytes
