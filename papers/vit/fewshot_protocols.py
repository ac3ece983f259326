"""The two few-shot protocols, on one set of features.

`article`: five random draws of k images a class from a pool, raw features, no bias; one lambda of nine for a model
and data set, the one with the best mean accuracy over all k and draws on selection images, ties to the larger.
`big_vision`: the paper authors' own (`big_vision/evaluators/fewshot_lsr.py`): features standardised by the draw, a
constant feature of 100, lambda 2^10, three seeds, and for each seed the draws of all k nested in one order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from papers.vit.fewshot_split import Split
from shared import ridge

BIG_VISION_CONSTANT = 100.0
BIG_VISION_LAMBDA = 2.0**10


@dataclass(frozen=True)
class Outcome:
    """Test images that were right, for each k one count a draw, and how lambda came about."""

    correct: dict[int, list[int]]
    images: int
    penalty: float
    selection: dict[float, float]  # lambda -> mean accuracy on the selection images, in %; empty: lambda was given

    def accuracies(self, k: int) -> np.ndarray:
        """In %, one a draw."""
        return 100.0 * np.array(self.correct[k]) / self.images

    def mean(self, k: int) -> float:
        return float(self.accuracies(k).mean())

    def std(self, k: int) -> float | None:
        """Sample standard deviation over the draws; None for a single draw."""
        values = self.accuracies(k)
        return float(values.std(ddof=1)) if len(values) > 1 else None

    def binomial(self, k: int) -> float:
        """Standard error of one draw's accuracy from the size of the test set alone, in points."""
        p = self.mean(k) / 100.0
        return 100.0 * float(np.sqrt(p * (1 - p) / self.images))

    def as_json(self) -> dict:
        return {
            "lambda": self.penalty,
            "selection": {f"{penalty:g}": score for penalty, score in self.selection.items()},
            "test_images": self.images,
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


def big_vision(split: Split, train: list[np.ndarray], test: np.ndarray, shots: tuple[int, ...]) -> Outcome:
    """train: for each seed the features [classes, images a class, d] in the authors' order; test [t, d]."""
    classes = split.classes
    truth = np.repeat(np.arange(classes), len(test) // classes)
    queries, truth = torch.from_numpy(test).double(), torch.from_numpy(truth)

    def right(task: tuple[int, np.ndarray]) -> int:
        k, features = task
        w, bias = ridge.standardised_weights(
            features[:, :k].reshape(classes * k, -1), np.repeat(np.arange(classes), k), classes, BIG_VISION_LAMBDA,
            constant=BIG_VISION_CONSTANT,
        )  # fmt: skip
        return int(((queries @ w + bias).argmax(1) == truth).sum())

    tasks = [(k, features) for k in sorted(shots, reverse=True) for features in train]
    counts = ridge.each_on_one_thread(right, tasks)
    correct = {k: [c for (of, _), c in zip(tasks, counts, strict=True) if of == k] for k in shots}
    return Outcome(correct, len(test), BIG_VISION_LAMBDA, {})


def coinciding(split: Split, shots: tuple[int, ...]) -> list[int]:
    """The k for which all seeds of big_vision draw the same images, because a class has no more of them."""
    return [k for k in shots if shared_by_seeds(split, k) == 1.0]


def shared_by_seeds(split: Split, k: int) -> float:
    """The smallest share of a big_vision draw of k that another seed's draw has too; 0 with one seed."""
    sets = [set(rows[:, :k].ravel().tolist()) for rows in split.authors]
    pairs = [len(a & b) / len(a) for i, a in enumerate(sets) for b in sets[:i]]
    return min(pairs, default=0.0)
