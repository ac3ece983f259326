"""Which class a classifier answers, where it ranks the label, and how often it is right: functions on arrays of logits.

A class of the data set is found in the model's list of labels by its wnid (WordNet's number of the noun, such as
`n01440764`) where it has one. By its name only where one class has that name: ImageNet has two classes "crane" and two
whose first name is "maillot".

Of two equal logits the one of the lower class index comes first, and the images where that decided are counted. Equal
means the same float32 number. A margin, as `shared.ridge.predict` has one, would find no more of them: it is 1e-9, and
two float32 numbers that are not the same differ by at least 6e-8 of their size.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np

from shared.errors import UserError
from shared.models import labels as imagenet
from shared.sources import normal_name

IMAGENET_CLASSES = 1000
TOP = 5
OF_SUBSET = "top-1 among the data set's classes"
ORIGINS = NOT_SEEN, SEEN, UNKNOWN = "ImageNet validation, not seen", "ImageNet training, seen", "origin unknown"
_WNID = re.compile(r"n\d{8}")
_OUT = "call the classes by wnid (n01440764), by ImageNet's names, by all numbers 0 to 999, or as the model's labels do"


@dataclass(frozen=True)
class Scores:
    """What a classifier says about n images. A class is its index in the classifier's own list of labels.

    `subset` is the data set's own classes: 10 of ImageNet's 1,000 on Imagenette.
    """

    label: np.ndarray  # int64 [n], the right class
    top: np.ndarray  # int64 [n, 5], the five best classes, best first
    probability: np.ndarray  # float64 [n, 5], their softmax over all classes
    rank: np.ndarray  # int64 [n], the place of the right class among all, 1 is the best
    best_of_subset: np.ndarray  # int64 [n], the best among the data set's own classes
    tied: np.ndarray  # bool [n], equal logits: the index decided an order among the five best or the label's rank

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
        """bool [n]: top-1 is not the label, but one of the four after it is, so top-5 counts the image as right."""
        return (self.top[:, 1:] == self.label[:, None]).any(1)

    @property
    def right_of_subset(self) -> np.ndarray:
        """bool [n]: the label is the best among the data set's own classes."""
        return self.best_of_subset == self.label


def score(logits: np.ndarray, label: np.ndarray, subset: np.ndarray) -> Scores:
    """Scores from finite logits, float [n, classes], the labels' classes, int [n], the data set's own, int [k]."""
    logits, label, subset = np.asarray(logits), np.asarray(label, np.int64), np.asarray(subset, np.int64)
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

    # The label's rank: 1, plus the classes with a higher logit, plus those with an equal one and a lower index.
    own = logits[rows, label][:, None]
    same = logits == own
    earlier = np.arange(logits.shape[1]) < label[:, None]
    subset = np.sort(subset)  # so that argmax breaks a tie among these by index too
    return Scores(
        label=label,
        top=best[:, :TOP],
        probability=np.exp(values[:, :TOP] - highest) / total,
        rank=1 + (logits > own).sum(1) + (same & earlier).sum(1),
        best_of_subset=subset[logits[:, subset].argmax(1)],
        tied=(values[:, 1:] == values[:, :-1]).any(1) | (same.sum(1) > 1),
    )


@dataclass(frozen=True)
class Counts:
    """Images by outcome: top-1 right, label in the top five though not first (forgiven), the rest."""

    images: int
    right: int
    forgiven: int
    rest: int

    @property
    def wrong(self) -> int:
        """Images whose top-1 is not the label."""
        return self.images - self.right

    @property
    def in_top5(self) -> int:
        """Images whose label is among the five best."""
        return self.right + self.forgiven

    @property
    def top1(self) -> float:
        """Percent."""
        return 100 * self.right / self.images

    @property
    def top5(self) -> float:
        """Percent."""
        return 100 * self.in_top5 / self.images

    def as_json(self) -> dict[str, float]:
        """The outcomes and percents under the names that the results have."""
        if self.images == 0:
            return {"images": 0}
        outcomes = {"right": self.right, "wrong, label in the top 5": self.forgiven, "rest": self.rest}
        return {"images": self.images, **outcomes, "top-1": self.top1, "top-5": self.top5}


def count(scores: Scores) -> Counts:
    """The outcomes, with the check that they add up: the rest is counted from the ranks, not by subtraction."""
    counts = Counts(len(scores), int(scores.right.sum()), int(scores.forgiven.sum()), int((scores.rank > TOP).sum()))
    if counts.right + counts.forgiven + counts.rest != counts.images:
        raise RuntimeError(f"the outcomes do not add up to the images: {counts}")
    return counts


class Mapping(NamedTuple):
    """For each class of the data set its index in the model's list of labels, int64 [k], and how it was found."""

    columns: np.ndarray
    how: str


def map_classes(model: str, wnids: Sequence[str], names: Sequence[str], data: str, class_ids: Sequence[str]) -> Mapping:
    """Where each class of the data set stands in the model's list of labels.

    wnids, names: the list, as `shared.models.labels.match` gives it; without wnids it is a list of the model's own.
    ImageNet's classes may be called by wnid, by number (all of 0 to 999, as in ImageNetV2) or by name. UserError, with
    the reason, for a class that is not in the list, or that stands there twice.
    """
    if not class_ids:
        raise UserError(f"data {data}: it has no classes; {_OUT}")
    numbered = all(name.isdecimal() for name in class_ids) and sorted(map(int, class_ids)) == list(range(len(names)))
    if wnids:
        wanted, how = _wnids(data, class_ids, numbered)
        own = list(wnids)
    else:
        named = any(not re.fullmatch(r"(LABEL_)?\d+", name) for name in names)
        has = f"its head has {len(names):,} classes" if names else "it has no list of labels"
        has += " (ImageNet-21k)" if len(names) in (21841, 21843) else ""
        if numbered and not named:
            return Mapping(np.array([int(name) for name in class_ids], np.int64), "by number")
        if not named:
            why = "and none of them has a name" if names else ""
            raise UserError(
                f"model {model}: {has} {why}; name a classifier with ImageNet-1k's 1,000, or write id2label (of a timm "
                "file: label_names) into its config.json"
            )
        wanted, own = [normal_name(name) for name in class_ids], [normal_name(name) for name in names]
        how = f"by name, among the model's own {len(names):,}"
        missing = [name for name, key in zip(class_ids, wanted, strict=True) if key not in own]
        if missing:
            raise UserError(f"model {model}: {has}, and {missing[0]!r} of data {data} is none of them; {_OUT}")
    times = Counter(own)
    for name, key in zip(class_ids, wanted, strict=True):
        if times[key] != 1:
            where = "stands twice in" if times[key] else "is not in"
            raise UserError(f"model {model}: class {name!r} of data {data} ({key}) {where} its list of labels; {_OUT}")
    place = {key: i for i, key in enumerate(own)}
    return Mapping(np.array([place[key] for key in wanted], np.int64), how)


def _wnids(data: str, class_ids: Sequence[str], numbered: bool) -> tuple[list[str], str]:
    """The wnids of ImageNet-1k's classes as a data set calls them, and how it does."""
    if all(_WNID.fullmatch(name) for name in class_ids):
        return list(class_ids), "by wnid"
    usual = imagenet.imagenet()[0]
    if numbered:
        return [usual[int(name)] for name in class_ids], "by number, in the usual order of the wnids"
    if len(class_ids) == len(usual):
        # a whole list in the usual order says which of two equal names is which
        found = imagenet.match(f"data {data}", [name.replace("_", " ") for name in class_ids])[0]
        return list(found), "by name"
    found = []
    for name in class_ids:
        fits = imagenet.places(name)
        if len(fits) != 1:
            which = f"fits {len(fits)} of ImageNet-1k's classes" if fits else "is none of ImageNet-1k's classes"
            which += f" ({', '.join(usual[i] for i in sorted(fits))})" if fits else ""
            raise UserError(f"data {data}: class {name!r} {which}; {_OUT}")
        found.append(usual[next(iter(fits))])
    twice = [wnid for wnid, n in Counter(found).items() if n > 1]
    if twice:
        both = " and ".join(repr(name) for name, wnid in zip(class_ids, found, strict=True) if wnid == twice[0])
        raise UserError(f"data {data}: classes {both} are one of ImageNet-1k's ({twice[0]}); join them, or {_OUT}")
    return found, "by name"


def in_file_order(names: Sequence[str], candidates: np.ndarray) -> list[int]:
    """The candidates' rows, sorted by file name as text (880 comes after 8260); equal names by row."""
    return sorted((int(i) for i in np.asarray(candidates)), key=lambda i: (names[i], i))


def draw(names: Sequence[str], candidates: np.ndarray, k: int, seed: int) -> list[int]:
    """`k` of the candidates (all, if there are fewer), drawn from their list sorted by file name; in its order."""
    ordered = in_file_order(names, candidates)
    places = random.Random(seed).sample(range(len(ordered)), min(k, len(ordered)))
    return [ordered[place] for place in sorted(places)]


def by_class(scores: Scores, subset: np.ndarray, names: Sequence[str], wnids: Sequence[str]) -> list[dict]:
    """One row for each class index of `subset`, int [k], in that order, as the results have it.

    class, wnid (of a list without wnids: the label itself); images, and how many of them are right by three rules; the
    three most frequent wrong top-1. names and wnids are the classifier's list of labels.
    """
    names = distinct_names(names, wnids)
    rows = []
    for index in subset.tolist():
        mine = scores.take(scores.label == index)
        wrong = Counter(mine.top[~mine.right, 0].tolist())
        frequent = sorted(wrong.items(), key=lambda item: (-item[1], item[0]))[:3]  # equally frequent ones by index
        rows.append(
            {
                "class": names[index],
                "wnid": wnids[index],
                "images": len(mine),
                "top-1": int(mine.right.sum()),
                "top-5": int((mine.rank <= TOP).sum()),
                OF_SUBSET: int(mine.right_of_subset.sum()),
                "wrong top-1": [{"class": names[k], "images": n} for k, n in frequent],
            }
        )
    return rows


def origin(name: str) -> str:
    """One of ORIGINS: which part of ImageNet an image comes from, told by its file name."""
    if name.startswith("ILSVRC2012_val_"):
        return NOT_SEEN
    return SEEN if re.match(r"n\d{8}_\d+\.", name) else UNKNOWN


def first_name(name: str) -> str:
    """A class's name cut at the first comma, as the article prints it: `tench, Tinca tinca` is `tench`."""
    return name.split(",")[0]


def distinct_names(names: Sequence[str], wnids: Sequence[str]) -> list[str]:
    """First names; where two classes share one, the wnid follows in brackets."""
    first = [first_name(name) for name in names]
    times = Counter(first)
    return [f"{name} ({wnid})" if times[name] > 1 else name for name, wnid in zip(first, wnids, strict=True)]
