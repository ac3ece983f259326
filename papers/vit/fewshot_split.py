"""Which images the few-shot test uses: fixed by one seed, and no image in two roles.

A train image counts only if its pixels are new: not those of a chosen test image, not those of another train
image that is used (CIFAR-100 has exact duplicates across its two parts, some under two labels). Hashes tell.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shared.data import HUB_SETS, ImageSet, load_images
from shared.errors import UserError

# test images a class in the article; other data: as many as the smallest class has, up to 30
ARTICLE_TEST = {"cifar100": 10, "pets": 30}
TEST_AT_MOST = 30


@dataclass(frozen=True)
class Sizes:
    """Images a class in each role; test None: the data set's own (see ARTICLE_TEST)."""

    pool: int = 20
    selection: int = 5
    test: int | None = None


@dataclass
class Split:
    """Rows of two image sets. Every array is [classes, images a class]; `train` and `test` may be one set.

    authors[s][c] is the order in which big_vision's seed s takes the train images of class c.
    """

    train: ImageSet
    test: ImageSet
    test_rows: np.ndarray
    pool: np.ndarray
    selection: np.ndarray
    authors: list[np.ndarray]
    left_out: list[str] = field(default_factory=list)

    @property
    def classes(self) -> int:
        return len(self.test_rows)

    @property
    def train_rows(self) -> np.ndarray:
        """All train rows that are used: those of the article's roles first, then the authors' further ones."""
        article = np.concatenate([self.pool.ravel(), self.selection.ravel()])
        further = np.setdiff1d(np.concatenate([a.ravel() for a in self.authors] or [article]), article)
        return np.concatenate([article, further])


def load(name: str, root: Path | None) -> tuple[ImageSet, ImageSet]:
    """The train and test part; a folder without such parts is one set in both roles. UserError: see `check`.

    Where a set has no test part (Imagenette, a folder with train/ and val/), its validation part is the test part.
    """
    train = load_images(name, "train", root=root)
    if train.split == "all":
        return train, train
    return train, load_images(name, _test_part(name), root=root)


def folder_of(name: str) -> Path | None:
    """The user's folder that a data set's name stands for, in one spelling; None for other data sets."""
    folder = Path(name).expanduser()
    return folder.resolve() if name not in (*HUB_SETS, "digits") and folder.is_dir() else None


def _test_part(name: str) -> str:
    known = HUB_SETS.get(name) or next((s for s in HUB_SETS.values() if s.repository == name), None)
    folder = folder_of(name)
    there = [part for part in ("test", "validation", "val")
             if (folder and (folder / part).is_dir()) or (not folder and known and part in known.images)]  # fmt: skip
    return there[0] if there else "test"


def make(
    train: ImageSet, test: ImageSet, sizes: Sizes, *, seed: int, authors_shots: int = 0, authors_seeds: int = 0
) -> Split:
    """Choose all images of one data set. UserError when a class has too few, with the counts."""
    one = train is test
    a_class = sizes.test or _test_size(train, test, sizes)
    needed = max(sizes.pool + sizes.selection, authors_shots)
    check(train, test, needed, a_class, one)
    rng = np.random.default_rng(seed)
    order = [rng.permutation(np.flatnonzero(test.labels == c)) for c in range(len(test.class_names))]
    test_rows = np.stack([rows[:a_class] for rows in order])
    candidates = [rows[a_class:] for rows in order] if one else None
    if candidates is None:
        candidates = [rng.permutation(np.flatnonzero(train.labels == c)) for c in range(len(train.class_names))]
    # the authors draw from the whole training part, in its order: default_rng(seed), class by class
    authors_candidates = []
    for s in range(authors_seeds):
        own = np.random.default_rng(s)
        authors_candidates.append([own.permutation(np.sort(rows)) for rows in candidates])

    fresh = _Fresh(train, test.subset(test_rows.ravel()).content_hashes())
    fresh.learn(np.concatenate([r[: needed + 2] for rows in [candidates, *authors_candidates] for r in rows]))
    chosen = np.stack([fresh.first(rows, sizes.pool + sizes.selection) for rows in candidates])
    authors = [np.stack([fresh.first(r, authors_shots) for r in rows]) for rows in authors_candidates]
    return Split(
        train, test, test_rows, chosen[:, : sizes.pool], chosen[:, sizes.pool :], authors, sorted(fresh.left_out)
    )


class _Fresh:
    """Train rows whose content is neither a test image's nor that of an earlier train row in use."""

    def __init__(self, train: ImageSet, forbidden: list[str]):
        self.train, self.forbidden = train, set(forbidden)
        self.content: dict[int, str] = {}  # of the train rows looked at
        self.owner: dict[str, int] = {}  # the row that stands for a content
        self.left_out: set[str] = set()  # why, one line each

    def learn(self, rows: np.ndarray) -> None:
        rows = np.setdiff1d(rows, list(self.content))
        for row, content in zip(rows.tolist(), self.train.subset(rows).content_hashes(), strict=True):
            self.content[row] = content
            self.owner.setdefault(content, row)

    def first(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The first `count` fresh ones of `rows`, all of one class."""
        found: list[int] = []
        for row in rows.tolist():
            if len(found) == count:
                break
            if row not in self.content:
                self.learn(np.array([row]))
            if self.content[row] in self.forbidden:
                self.left_out.add(f"{self.train.where(row)}: the same image is in the test set")
            elif self.owner[self.content[row]] != row:
                other = self.owner[self.content[row]]
                self.left_out.add(f"{self.train.where(row)}: the same image as {self.train.where(other)}")
            else:
                found.append(row)
        if len(found) < count:
            name = self.train.class_names[int(self.train.labels[rows[0]])] if len(rows) else "?"
            doubles = len(rows) - len(found)
            raise UserError(
                f"{self.train.name}, class {name!r}: {len(found)} different training images, but {count} are needed; "
                f"{doubles} more are copies of test images or of other training images, and no image counts "
                "twice; add images or lower --pool, --selection or --big-vision-shots"
            )
        return np.array(found, dtype=np.int64)


def _test_size(train: ImageSet, test: ImageSet, sizes: Sizes) -> int:
    """Test images a class where the user names none."""
    if train.name in ARTICLE_TEST:
        return ARTICLE_TEST[train.name]
    smallest = min(Counter(test.labels.tolist()).values(), default=0)
    if train is test:
        smallest -= sizes.pool + sizes.selection
    return max(1, min(TEST_AT_MOST, smallest))


def check(train: ImageSet, test: ImageSet, needed: int, test_size: int, one: bool) -> None:
    """UserError with the counts: one class, a class in one part only, too few images in a class."""
    name = train.name
    if len(train.class_names) < 2:
        raise UserError(f"{name}: one class only ({', '.join(train.class_names) or 'none'}); two or more are needed")
    if train.class_names != test.class_names:
        lonely = [f"{c!r} only in train" for c in train.class_names if c not in test.class_names]
        lonely += [f"{c!r} only in test" for c in test.class_names if c not in train.class_names]
        raise UserError(
            f"{name}: train has {len(train.class_names)} classes and test {len(test.class_names)}: {_some(lonely)}; "
            "give both parts the same class folders"
        )
    for images, count, role in ((train, needed, "training"), (test, test_size, "test")):
        if one:
            count, role = needed + test_size, "training and test"
        sizes = np.bincount(images.labels, minlength=len(images.class_names))
        short = [f"{images.class_names[c]} {sizes[c]}" for c in np.flatnonzero(sizes < count)]
        if short:
            raise UserError(
                f"{name}: {count} {role} images a class are needed, but there are fewer of {len(short)} of "
                f"{len(sizes)} classes: {_some(short)}; add images or lower --pool, --selection, --test or "
                "--big-vision-shots (--protocol article needs no 25 shots)"
            )


def _some(items: list[str], most: int = 6) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def draws(split: Split, shots: tuple[int, ...], count: int, *, seed: int) -> dict[int, np.ndarray]:
    """For each k `count` random draws of k images a class from the pool: columns of `pool`, [draws, classes, k]."""
    pool, result = split.pool.shape[1], {}
    for k in shots:
        rng = np.random.default_rng([seed, k])  # a stream of its own: asking for other shots does not change these
        result[k] = np.array([[rng.permutation(pool)[:k] for _ in range(split.classes)] for _ in range(count)])
    return result
