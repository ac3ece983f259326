"""Scores over all classes of a classifier, by class index and never by name: pure functions on arrays.

A class of the data set meets a class of the model through its wnid (WordNet's number of the noun, `n01440764`), because
names do not tell classes apart: ImageNet has two classes "crane" and two whose short name is "maillot".

Equal logits are put in order by the class index, the lower one first, and the images where that decided are counted.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from shared.errors import UserError

IMAGENET_CLASSES = 1000
TOP = 5
_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class Scores:
    """What a classifier says about n images. A class is its index in the classifier's own list of labels."""

    label: np.ndarray
    """int64 [n], the right class"""
    top: np.ndarray
    """int64 [n, 5], the five best classes, best first"""
    probability: np.ndarray
    """float64 [n, 5], their softmax over all classes"""
    rank: np.ndarray
    """int64 [n], the place of the right class among all, 1 is the best"""
    best_of_few: np.ndarray
    """int64 [n], the best among the data set's own classes"""
    tied: np.ndarray
    """bool [n], equal logits: the index decided an order among the five best or the place of the label"""

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: np.ndarray) -> Self:
        """The images `rows` (indices or a mask)."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The scores of batches, one after the other."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})

    @property
    def right(self) -> np.ndarray:
        """bool [n]: top-1 is the label."""
        return self.top[:, 0] == self.label

    @property
    def forgiven(self) -> np.ndarray:
        """bool [n]: top-1 is not the label, but one of the four after it is."""
        return (self.top[:, 1:] == self.label[:, None]).any(1)

    @property
    def right_of_few(self) -> np.ndarray:
        """bool [n]: the label is the best among the data set's own classes."""
        return self.best_of_few == self.label


def score(logits: np.ndarray, label: np.ndarray, few: np.ndarray) -> Scores:
    """Scores from finite logits, float [n, classes], the labels' classes, int [n], the data set's own, int [k]."""
    logits, label, few = np.asarray(logits), np.asarray(label, np.int64), np.asarray(few, np.int64)
    rows = np.arange(len(logits))
    # argmax returns the first of equal values, so repeating it breaks ties by index. The sixth shows a tie at the edge.
    left = logits.astype(np.float64)
    best = []
    for _ in range(min(TOP + 1, logits.shape[1])):
        best.append(left.argmax(1))
        left[rows, best[-1]] = -np.inf
    best = np.stack(best, axis=1)
    values = logits[rows[:, None], best].astype(np.float64)
    highest = values[:, :1]
    total = np.exp(logits - highest).sum(1, keepdims=True)

    own = logits[rows, label][:, None]
    same = logits == own
    earlier = np.arange(logits.shape[1]) < label[:, None]
    few = np.sort(few)  # so that a tie among the few is broken by index too
    return Scores(
        label=label,
        top=best[:, :TOP],
        probability=np.exp(values[:, :TOP] - highest) / total,
        rank=1 + (logits > own).sum(1) + (same & earlier).sum(1),
        best_of_few=few[logits[:, few].argmax(1)],
        tied=(values[:, 1:] == values[:, :-1]).any(1) | (same.sum(1) > 1),
    )


@dataclass(frozen=True)
class Counts:
    """Images by outcome: top-1 right, label in the top five though not first, the rest."""

    images: int
    right: int
    forgiven: int
    rest: int

    @property
    def wrong(self) -> int:
        """Top-1 is not the label."""
        return self.images - self.right

    @property
    def top1(self) -> float:
        """Percent."""
        return 100 * self.right / self.images

    @property
    def top5(self) -> float:
        """Percent."""
        return 100 * (self.right + self.forgiven) / self.images


def count(scores: Scores) -> Counts:
    """The outcomes, with the check that they add up: the rest is counted from the ranks, not by subtraction."""
    counts = Counts(len(scores), int(scores.right.sum()), int(scores.forgiven.sum()), int((scores.rank > TOP).sum()))
    if counts.right + counts.forgiven + counts.rest != counts.images:
        raise RuntimeError(f"the outcomes do not add up to the images: {counts}")
    return counts


def map_classes(model: str, label_wnids: Sequence[str], data: str, class_ids: Sequence[str]) -> np.ndarray:
    """int64 [k]: for each class of the data set its index in the model's list of labels, found by wnid.

    UserError, with the reason, for a head that does not choose among ImageNet's 1,000 classes and for classes that
    are not wnids.
    """
    out = "name a classifier with ImageNet-1k's 1,000 classes"
    strangers = [name for name in class_ids if not _WNID.fullmatch(name)]
    if strangers or not class_ids:
        what = f"class {strangers[0]!r} is not a wnid such as n01440764" if strangers else "it has no classes"
        raise UserError(f"data {data}: {what}; use imagenette or a folder whose sub-folders are wnids")
    if len(label_wnids) != IMAGENET_CLASSES:
        which = {0: "no list of labels", 21841: "21,841 classes (ImageNet-21k)", 21843: "21,843 classes (ImageNet-21k)"}
        has = which.get(len(label_wnids), f"{len(label_wnids):,} classes")
        raise UserError(
            f"model {model}: its head has {has}; top-1 and top-5 are over ImageNet-1k's 1,000 classes only, and a "
            f"choice among more or fewer is another question: {out}"
        )
    place = {wnid: i for i, wnid in enumerate(label_wnids)}
    if len(place) != len(label_wnids):
        twice = next(wnid for wnid, n in Counter(label_wnids).items() if n > 1)
        raise UserError(f"model {model}: wnid {twice!r} stands twice in its list of labels; {out}")
    missing = [wnid for wnid in class_ids if wnid not in place]
    if missing:
        raise UserError(f"model {model}: its list of labels lacks {missing[0]} of data {data}; {out}")
    return np.array([place[wnid] for wnid in class_ids], np.int64)


def in_file_order(names: Sequence[str], candidates: np.ndarray) -> list[int]:
    """The candidates' rows, sorted by file name as text (880 comes after 8260); equal names by row."""
    return sorted((int(i) for i in np.asarray(candidates)), key=lambda i: (names[i], i))


def draw(names: Sequence[str], candidates: np.ndarray, k: int, seed: int) -> list[int]:
    """`k` of the candidates (all, if there are fewer), drawn from their list sorted by file name; in its order."""
    ordered = in_file_order(names, candidates)
    places = random.Random(seed).sample(range(len(ordered)), min(k, len(ordered)))
    return [ordered[place] for place in sorted(places)]


@dataclass(frozen=True)
class ClassScore:
    """One class of the data set: images, how many are right by three rules, the most frequent wrong top-1."""

    index: int
    images: int
    top1: int
    top5: int
    of_few: int
    confusions: list[tuple[int, int]]
    """(class index, images), most frequent first, equal ones by index"""


def by_class(scores: Scores, few: np.ndarray, confusions: int = 3) -> list[ClassScore]:
    """One row for each class index of `few`, in that order."""
    rows = []
    for index in (int(i) for i in few):
        mine = scores.take(scores.label == index)
        wrong = Counter(mine.top[~mine.right, 0].tolist())
        frequent = sorted(wrong.items(), key=lambda item: (-item[1], item[0]))[:confusions]
        rows.append(
            ClassScore(
                index, len(mine), int(mine.right.sum()), int((mine.rank <= TOP).sum()), int(mine.right_of_few.sum()),
                frequent,
            )
        )  # fmt: skip
    return rows


ORIGINS = ("validation", "training", "unknown")


def origin(name: str) -> str:
    """ImageNet's part that an image comes from, told by its file name: `validation`, `training` or `unknown`."""
    if name.startswith("ILSVRC2012_val_"):
        return "validation"
    return "training" if re.match(r"n\d{8}_\d+\.", name) else "unknown"


def short(name: str) -> str:
    """A class's name cut at the first comma, as the article prints it."""
    return name.split(",")[0]


def telling_names(names: Sequence[str], wnids: Sequence[str]) -> list[str]:
    """Short names; where two classes share one, the wnid follows in brackets."""
    shared = Counter(short(name) for name in names)
    return [
        f"{short(name)} ({wnid})" if shared[short(name)] > 1 else short(name)
        for name, wnid in zip(names, wnids, strict=True)
    ]
