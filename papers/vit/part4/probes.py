"""The two few-shot probes on one set of features: how lambda is chosen, and how many test images come out right.

`article`: random draws of k images per class from a pool, raw features, no bias. One lambda for a model and data set:
the one with the best mean accuracy on the selection images, over all k and draws.
`big_vision`: the paper authors' own (`big_vision/evaluators/fewshot_lsr.py`): features standardised by the draw, a
constant feature of 100, lambda 2^10, three seeds, and for each seed the draws of all k nested in one order.

The closed form itself is in `shared.ridge`; `tiny_example` of the few-shot script works it out by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from papers.vit.part4.split import Split
from shared import ridge
from shared.verdict import standard_error

BIG_VISION_CONSTANT = 100.0
BIG_VISION_LAMBDA = 2.0**10


@dataclass(frozen=True)
class Outcome:
    """How many test images got their label, for each k one count per draw, and how lambda came about.

    images: test images. selection: lambda -> mean accuracy on the selection images, in %; empty where lambda was given.
    tied: test images, over all draws, whose largest score two classes or more shared.
    """

    correct: dict[int, list[int]]
    images: int
    lambda_: float
    selection: dict[float, float]
    tied: int = 0

    def accuracies(self, k: int) -> np.ndarray:
        """float64 [draws], in %."""
        return 100.0 * np.array(self.correct[k]) / self.images

    def mean(self, k: int) -> float:
        return float(self.accuracies(k).mean())

    def std(self, k: int) -> float | None:
        """Sample standard deviation over the draws, in points; None for a single draw."""
        values = self.accuracies(k)
        return float(values.std(ddof=1)) if len(values) > 1 else None

    def binomial(self, k: int) -> float:
        """Standard error of one draw's accuracy from the size of the test set alone, in points."""
        return standard_error(self.mean(k), self.images)

    def cell(self, k: int) -> str:
        """`53.9 ± 2.6`; without a spread where there is a single draw."""
        std = self.std(k)
        return f"{self.mean(k):.1f}" + (f" ± {std:.1f}" if std is not None else "")

    def as_json(self) -> dict:
        shots = {
            str(k): {"correct": counts, "mean": self.mean(k), "std": self.std(k), "binomial": self.binomial(k)}
            for k, counts in self.correct.items()
        }
        selection = {f"{lambda_:g}": score for lambda_, score in self.selection.items()}
        kept = {"lambda": self.lambda_, "selection": selection, "test_images": self.images, "shots": shots}
        return kept | ({"tied": self.tied} if self.tied else {})


def article(
    split: Split, pool: np.ndarray, selection: np.ndarray, test: np.ndarray, lambdas: tuple[float, ...], device: str
) -> Outcome:
    """The article's protocol. pool, selection, test: float32 features [images, d] in the order of the split's arrays,
    class by class. device: where to fit.
    """
    classes = np.arange(split.classes)
    labels, selection_labels, test_labels = (
        np.repeat(classes, len(rows) // len(classes)) for rows in (pool, selection, test)
    )
    # one pool of queries: the selection images, then the test images
    probe = ridge.Pool(pool, labels, len(classes), np.concatenate([selection, test]), device)
    for_selection, for_test = slice(0, len(selection)), slice(len(selection), None)
    every = [draw.ravel() for draws in split.draws.values() for draw in draws]

    # Lambda: every draw is fitted with every lambda, and the selection images that come out right are counted. Each k
    # has as many draws, so the largest count is the best mean accuracy over k and draws. Counts are whole numbers, so
    # equal means are seen as equal; among them the largest lambda wins, the strongest penalty that costs nothing.
    counts = probe.count(every, lambdas, selection_labels, for_selection)[0].sum(0).tolist()
    right = dict(zip(lambdas, counts, strict=True))
    best = max(right, key=lambda lambda_: (right[lambda_], lambda_))
    scores = {lambda_: 100.0 * count / (len(every) * len(selection)) for lambda_, count in right.items()}

    # The test images are scored once, with that lambda.
    right_on_test, tied = probe.count(every, [best], test_labels, for_test)
    by_draw = iter(right_on_test[:, 0].tolist())
    correct = {k: [next(by_draw) for _ in draws] for k, draws in split.draws.items()}
    return Outcome(correct, len(test), best, scores, int(tied.sum()))


def big_vision(split: Split, train: list[np.ndarray], test: np.ndarray, shots: tuple[int, ...]) -> Outcome:
    """The authors' protocol. train: for each seed float32 features [classes, images per class, d] in the authors'
    order; test: float32 features [t, d], class by class.
    """
    classes = split.classes
    queries = torch.from_numpy(test).double()
    truth = torch.arange(classes).repeat_interleave(len(test) // classes)

    def fit_and_count(task: tuple[int, np.ndarray]) -> tuple[int, int]:
        k, features = task
        rows, labels = features[:, :k].reshape(classes * k, -1), np.repeat(np.arange(classes), k)
        w, bias = ridge.standardised_weights(rows, labels, classes, BIG_VISION_LAMBDA, constant=BIG_VISION_CONSTANT)
        predicted, tied = ridge.predict(queries @ w + bias)
        return int((predicted == truth).sum()), int(tied.sum())

    # the largest fits first, so that no thread is left alone with one at the end
    tasks = [(k, features) for k in sorted(shots, reverse=True) for features in train]
    counts = ridge.each_on_one_thread(fit_and_count, tasks)
    correct = {k: [right for (of, _), (right, _) in zip(tasks, counts, strict=True) if of == k] for k in shots}
    return Outcome(correct, len(test), BIG_VISION_LAMBDA, {}, sum(tied for _, tied in counts))
