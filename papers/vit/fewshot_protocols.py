"""The two few-shot protocols, on one set of features.

`article`: five random draws of k pictures a class from a pool, raw features, no bias; one lambda of nine for a model
and data set, the one with the best mean accuracy over all k and draws on selection pictures, ties to the larger.
`big_vision`: the paper authors' own (`big_vision/evaluators/fewshot_lsr.py`): features standardised by the draw, a
constant feature of 100, lambda 2^10, three seeds, and for each seed the draws of all k nested in one order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from papers.vit.fewshot_split import Split
from shared import ridge

BIG_VISION_CONSTANT = 100.0
BIG_VISION_LAMBDA = 2.0**10


@dataclass(frozen=True)
class Outcome:
    """Test pictures that were right, for each k one count a draw, and how lambda came about."""

    correct: dict[int, list[int]]
    pictures: int
    penalty: float
    selection: dict[float, float]  # lambda -> mean accuracy on the selection pictures, in %; empty: lambda was given

    def accuracies(self, k: int) -> np.ndarray:
        """In %, one a draw."""
        return 100.0 * np.array(self.correct[k]) / self.pictures

    def mean(self, k: int) -> float:
        return float(self.accuracies(k).mean())

    def std(self, k: int) -> float | None:
        """Sample standard deviation over the draws; None for a single draw."""
        values = self.accuracies(k)
        return float(values.std(ddof=1)) if len(values) > 1 else None

    def binomial(self, k: int) -> float:
        """Standard error of one draw's accuracy from the size of the test set alone, in points."""
        p = self.mean(k) / 100.0
        return 100.0 * float(np.sqrt(p * (1 - p) / self.pictures))

    def as_json(self) -> dict:
        return {
            "lambda": self.penalty,
            "selection": {f"{penalty:g}": score for penalty, score in self.selection.items()},
            "test_pictures": self.pictures,
            "shots": {
                str(k): {"correct": counts, "mean": self.mean(k), "std": self.std(k), "binomial": self.binomial(k)}
                for k, counts in self.correct.items()
            },
        }


def article(
    split: Split,
    draws: dict[int, np.ndarray],
    pool: np.ndarray,
    selection: np.ndarray,
    test: np.ndarray,
    penalties: tuple[float, ...],
    device: str = "cpu",
) -> Outcome:
    """pool, selection, test: features [., d] in the order of the split's arrays, class by class; see `Outcome`."""
    classes, a_class = split.pool.shape
    labels = {role: np.repeat(np.arange(classes), len(rows) // classes)
              for role, rows in (("pool", pool), ("selection", selection), ("test", test))}  # fmt: skip
    probe = ridge.Pool(pool, labels["pool"], classes, np.concatenate([selection, test]), device)
    rows = {k: [(np.arange(classes)[:, None] * a_class + columns).ravel() for columns in draws[k]] for k in draws}
    every = [draw for k in draws for draw in rows[k]]

    right = probe.correct(every, penalties, labels["selection"], slice(0, len(selection))).sum(0)
    # every k has as many draws, so the largest count is the best mean over k and draws, and ties are exact
    best = max(p for p, count in zip(penalties, right.tolist(), strict=True) if count == right.max())
    tried = len(every) * len(selection)
    counts = probe.correct(every, [best], labels["test"], slice(len(selection), None))[:, 0].tolist()
    correct = {k: [counts.pop(0) for _ in rows[k]] for k in draws}
    scores = {p: 100.0 * count / tried for p, count in zip(penalties, right.tolist(), strict=True)}
    return Outcome(correct, len(test), best, scores)


def big_vision(
    split: Split, train: list[np.ndarray], test: np.ndarray, shots: tuple[int, ...], device: str = "cpu"
) -> Outcome:
    """train: for each seed the features [classes, pictures a class, d] in the authors' order; test [t, d]."""
    classes = split.classes
    truth = np.repeat(np.arange(classes), len(test) // classes)
    correct: dict[int, list[int]] = {k: [] for k in shots}
    for features in train:
        for k in shots:
            rows, queries = ridge.standardise(
                features[:, :k].reshape(classes * k, -1), test, constant=BIG_VISION_CONSTANT
            )
            probe = ridge.Pool(rows, np.repeat(np.arange(classes), k), classes, queries, device)
            correct[k].append(int(probe.correct([range(len(rows))], [BIG_VISION_LAMBDA], truth)[0, 0]))
    return Outcome(correct, len(test), BIG_VISION_LAMBDA, {})


def coinciding(split: Split, shots: tuple[int, ...]) -> list[int]:
    """The k for which all seeds of big_vision draw the same pictures, because a class has no more of them."""
    if len(split.authors) < 2:
        return []
    first = split.authors[0]
    same = lambda k: all((np.sort(a[:, :k]) == np.sort(first[:, :k])).all() for a in split.authors[1:])  # noqa: E731
    return [k for k in shots if same(k)]
