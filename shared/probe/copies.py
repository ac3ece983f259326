"""Images that are in both parts, or twice in one: the same pixels, and pixels that look nearly the same.

Exact copies are found by the hash of the decoded pixels. Near ones by a difference hash: the image as 9 x 8 grey
pixels, and for each of the 64 neighbours in a row one bit, whether the left one is brighter. Re-encoded, resized and
slightly brightened copies keep nearly all bits. Two images are near when at most `NEAR` bits differ and the small grey
images are alike too, which flat images of equal bits need not be. That is a warning, not a proof: look at the pairs.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from PIL import Image

from shared.data import ImageSet

NEAR = 3  # bits of 64; with four bands of 16 bits, two such hashes agree in one band at least
ALIKE = 6.0  # mean difference of the small grey images, in levels of 255, less their own mean brightness


def exact(images: ImageSet, others: ImageSet) -> list[tuple[int, int]]:
    """(index in images, index in others) for each of `images` whose pixels one of `others` has."""
    place = {content: i for i, content in reversed(list(enumerate(others.content_hashes())))}
    return [(i, place[content]) for i, content in enumerate(images.content_hashes()) if content in place]


def repeated(images: ImageSet) -> list[tuple[int, int]]:
    """(index, index of the first with these pixels) for each image that comes again."""
    first: dict[str, int] = {}
    return [(i, first[c]) for i, c in enumerate(images.content_hashes()) if first.setdefault(c, i) != i]


def small(images: ImageSet) -> np.ndarray:
    """uint8 [n, 8, 9]: every image as that many grey pixels."""
    found = [
        np.asarray(Image.fromarray(pixels).convert("L").resize((9, 8), Image.Resampling.BOX))
        for block in images.blocks()
        for pixels in block
    ]
    return np.stack(found) if found else np.empty((0, 8, 9), np.uint8)


def near(images: np.ndarray, others: np.ndarray) -> list[tuple[int, int]]:
    """(index in images, index in others): pairs of small grey images (`small`) that look the same, one for each."""
    mine, theirs = _bits(images), _bits(others)
    pairs: dict[int, int] = {}
    for band in range(4):
        key = np.uint64(16 * band)
        by_key: dict[int, list[int]] = defaultdict(list)
        for i, value in enumerate(((theirs >> key) & np.uint64(0xFFFF)).tolist()):
            by_key[value].append(i)
        for i, value in enumerate(((mine >> key) & np.uint64(0xFFFF)).tolist()):
            candidates = by_key.get(value)
            if i in pairs or not candidates:
                continue
            candidates = np.array(candidates)
            candidates = candidates[np.bitwise_count(theirs[candidates] ^ mine[i]) <= NEAR]
            if len(candidates):
                gaps = _gap(images[i], others[candidates])
                if gaps.min() <= ALIKE:
                    pairs[i] = int(candidates[gaps.argmin()])
    return sorted(pairs.items())


def _bits(images: np.ndarray) -> np.ndarray:
    """uint64 [n]: the difference hash."""
    left_brighter = (images[:, :, :-1] > images[:, :, 1:]).reshape(len(images), 64)
    return np.packbits(left_brighter, axis=1).view(">u8").ravel().astype(np.uint64)


def _gap(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """float64 [k]: mean difference to each, the mean brightness taken away; a flat image has too little to compare."""
    one = one - one.mean()
    others = others - others.mean((1, 2), keepdims=True)
    gap = np.abs(others - one).mean((1, 2))
    return np.where(np.abs(one).mean() > 2 * ALIKE, gap, np.inf)
