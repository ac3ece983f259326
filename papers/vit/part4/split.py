"""Which images the few-shot test uses: fixed by one seed, and no image in two roles.

test        scored, never used to choose anything
selection   choose lambda
pool        the draws of k images per class are taken from it
authors     big_vision's own draws, from the whole training part

A training image counts only if its pixels are new: not those of a chosen test image, not those of another training
image that is used (CIFAR-100 has exact duplicates across its two parts, some under two labels).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from shared.data import ImageSet
from shared.errors import UserError
from shared.folders import some

# test images per class in the article; other data: as many as the smallest class has, up to 30
ARTICLE_TEST = {"cifar100": 10, "pets": 30}
TEST_AT_MOST = 30


@dataclass(frozen=True)
class Sizes:
    """Images a class in each role; test None: the data set's own (see ARTICLE_TEST). pool 0: only big_vision draws."""

    pool: int = 20
    selection: int = 5
    test: int | None = None


@dataclass
class Split:
    """One data set's images by role: rows of `train` and `test` (which may be one set).

    test_rows, pool, selection: int64 [classes, images per class]. authors[s][c] is the order in which big_vision's seed
    s takes the training images of class c. left_out: the training images that were passed over because their pixels are
    in use, one line each. used, tested: the images of all training rows, in the order of `used_rows`, and of test_rows.
    """

    train: ImageSet
    test: ImageSet
    test_rows: np.ndarray
    pool: np.ndarray
    selection: np.ndarray
    authors: list[np.ndarray]
    left_out: list[str]
    used: ImageSet
    tested: ImageSet
    draws: dict[int, np.ndarray] = field(default_factory=dict)  # see `draws`
    spec: str = ""
    title: str = ""

    @property
    def classes(self) -> int:
        return len(self.test_rows)

    @property
    def stand_in(self) -> str | None:
        """Why these are not the images that the data set's name says; None where they are."""
        return self.train.stand_in or self.test.stand_in

    @property
    def used_rows(self) -> np.ndarray:
        return all_rows(self.pool, self.selection, self.authors)

    def shared_by_seeds(self, k: int) -> float:
        """The smallest share of a big_vision draw of k that another seed's draw has too; 0 with one seed."""
        sets = [set(rows[:, :k].ravel().tolist()) for rows in self.authors]
        return min((len(a & b) / len(a) for i, a in enumerate(sets) for b in sets[:i]), default=0.0)

    def rows_as_text(self) -> dict:
        """Every row that was used, for the JSON: one line of numbers per draw, class by class."""

        def text(rows: np.ndarray) -> str:
            return " ".join(map(str, rows.ravel().tolist()))

        pool = self.pool.ravel()
        return {
            "train_split": self.train.split,
            "test_split": self.test.split,
            "order": "class by class, as many a class each",
            "test": text(self.test_rows),
            "pool": text(self.pool),
            "selection": text(self.selection),
            "draws": {str(k): [text(pool[draw]) for draw in draws] for k, draws in self.draws.items()},
            "big_vision": [text(rows) for rows in self.authors],
        }


def all_rows(pool: np.ndarray, selection: np.ndarray, authors: list[np.ndarray]) -> np.ndarray:
    """All training rows in use, int64 [n]: those of the article's roles first, then the authors' further ones."""
    article = np.concatenate([pool.ravel(), selection.ravel()])
    further = np.setdiff1d(np.concatenate([rows.ravel() for rows in authors] or [article]), article)
    return np.concatenate([article, further])


def make(
    train: ImageSet, test: ImageSet, sizes: Sizes, *, seed: int, authors_shots: int = 0, authors_seeds: int = 0
) -> Split:
    """Choose all images of one data set. UserError when a class has too few, with the counts."""
    needed = max(sizes.pool + sizes.selection, authors_shots)
    tests_a_class = sizes.test or _test_size(train, test, needed)
    check(train, test, needed, tests_a_class)
    rng = np.random.default_rng(seed)
    order = [rng.permutation(np.flatnonzero(test.labels == c)) for c in range(len(test.class_names))]
    test_rows = np.stack([rows[:tests_a_class] for rows in order])
    if train is test:  # what the test left over, in the same random order
        candidates = [rows[tests_a_class:] for rows in order]
    else:
        candidates = [rng.permutation(np.flatnonzero(train.labels == c)) for c in range(len(train.class_names))]
    # the authors draw from the whole training part, in its order: default_rng(seed), class by class
    generators = [np.random.default_rng(s) for s in range(authors_seeds)]
    authors_orders = [[own.permutation(np.sort(rows)) for rows in candidates] for own in generators]

    fresh = _Fresh(train, test.subset(test_rows.ravel()).content_hashes())
    # hash what will be needed in one go, with two in reserve for duplicates: images are decoded in parallel
    orders = [candidates, *authors_orders] if sizes.pool + sizes.selection else authors_orders
    fresh.learn(np.concatenate([rows[: needed + 2] for classes in orders for rows in classes]))
    chosen = np.stack([fresh.first(rows, sizes.pool + sizes.selection) for rows in candidates])
    authors = [np.stack([fresh.first(rows, authors_shots) for rows in classes]) for classes in authors_orders]
    pool, selection = chosen[:, : sizes.pool], chosen[:, sizes.pool :]
    used, tested = train.subset(all_rows(pool, selection, authors)), test.subset(test_rows.ravel())
    return Split(train, test, test_rows, pool, selection, authors, sorted(fresh.left_out), used, tested)


class _Fresh:
    """Training rows whose content is neither a test image's nor that of an earlier training row in use."""

    def __init__(self, train: ImageSet, forbidden: list[str]):
        self.train, self.forbidden = train, set(forbidden)
        self.content: dict[int, str] = {}  # of the rows looked at
        self.owner: dict[str, int] = {}  # the row that stands for a content
        self.left_out: set[str] = set()  # why, one line each

    def learn(self, rows: np.ndarray) -> None:
        rows = np.setdiff1d(rows, list(self.content))
        for row, content in zip(rows.tolist(), self.train.subset(rows).content_hashes(), strict=True):
            self.content[row] = content
            self.owner.setdefault(content, row)

    def first(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The first `count` fresh ones of `rows`, all of one class."""
        chosen: list[int] = []
        for row in rows.tolist():
            if len(chosen) == count:
                break
            if row not in self.content:
                self.learn(np.array([row]))
            owner = self.owner[self.content[row]]
            if self.content[row] in self.forbidden:
                self.left_out.add(f"{self.train.where(row)}: the same image is in the test set")
            elif owner != row:
                self.left_out.add(f"{self.train.where(row)}: the same image as {self.train.where(owner)}")
            else:
                chosen.append(row)
        if len(chosen) < count:
            name = self.train.class_names[int(self.train.labels[rows[0]])] if len(rows) else "?"
            raise UserError(
                f"{self.train.name}, class {name!r}: {len(chosen)} different training images, but {count} are needed; "
                f"{len(rows) - len(chosen)} more are copies of test images or of other training images, and no image "
                "counts twice; add images or lower --pool, --selection or --big-vision-shots"
            )
        return np.array(chosen, dtype=np.int64)


def _test_size(train: ImageSet, test: ImageSet, needed: int) -> int:
    """Test images per class where the user names none."""
    if train.name in ARTICLE_TEST:
        return ARTICLE_TEST[train.name]
    smallest = min(Counter(test.labels.tolist()).values(), default=0)
    if train is test:
        smallest -= needed
    return max(1, min(TEST_AT_MOST, smallest))


def check(train: ImageSet, test: ImageSet, needed: int, tests_a_class: int) -> None:
    """UserError with the counts: one class, too few images in a class. Both parts have one list of classes."""
    name = train.name
    if len(train.class_names) < 2:
        raise UserError(f"{name}: one class only ({', '.join(train.class_names) or 'none'}); two or more are needed")
    roles = [(train, needed, "training"), (test, tests_a_class, "test")]
    if train is test:
        roles = [(train, needed + tests_a_class, "training and test")]
    for images, count, role in roles:
        there = np.bincount(images.labels, minlength=len(images.class_names))
        few = [f"{images.class_names[c]} {there[c]}" for c in np.flatnonzero(there < count)]
        if few:
            raise UserError(
                f"{name}: {count} {role} images per class are needed, but there are fewer of {len(few)} of "
                f"{len(there)} classes: {some(few)}; add images or lower --pool, --selection, --test or "
                "--big-vision-shots (--protocol article needs no 25 shots)"
            )


def draws(split: Split, shots: tuple[int, ...], count: int, *, seed: int) -> dict[int, np.ndarray]:
    """For each k `count` random draws of k images per class: int64 [draws, classes, k], positions in `pool.ravel()`."""
    classes, a_class = split.pool.shape
    result = {}
    for k in shots:
        rng = np.random.default_rng([seed, k])  # a stream of its own: asking for other shots does not change these
        columns = np.array([[rng.permutation(a_class)[:k] for _ in range(classes)] for _ in range(count)])
        result[k] = columns + np.arange(classes)[:, None] * a_class
    return result
