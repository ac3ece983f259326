"""Few-shot probes: random draws of k images a class, in the two ways that the field has.

`chosen`: raw features, no bias, one lambda for a model and data set: the one with the best mean accuracy on selection
images that are in no draw, over all k and draws. `fixed`: features standardised by the draw, a constant feature of 100
as the bias, lambda 1,024; the draws of one seed are nested. A class with fewer than k images gives those that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from shared import ridge
from shared.process import each_on_one_thread

LAMBDAS = tuple(10.0**power for power in range(-4, 5))
POOL, SELECTION = 20, 5  # images a class that draws are taken from, and others that choose lambda
CONSTANT, LAMBDA = 100.0, 1024.0  # of the protocol `fixed`


@dataclass
class Draws:
    """Which training images are drawn; all rows are of the training set.

    used: every row that some draw needs, int64, sorted. selection: those that choose lambda. chosen, fixed: for each k
    the draws of the two protocols, a list of int64 rows each. short: for each k how many classes have fewer images.
    """

    used: np.ndarray
    selection: np.ndarray
    chosen: dict[int, list[np.ndarray]]
    fixed: dict[int, list[np.ndarray]]
    short: dict[int, int]


def most(shots: Sequence[int]) -> int:
    """How many images of a class are looked at."""
    return max(POOL, *shots) + SELECTION


def candidates(labels: np.ndarray, shots: Sequence[int], seed: int) -> list[np.ndarray]:
    """For each class, in a random order, the rows that few-shot looks at: so many that all draws have enough."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.flatnonzero(labels == c))[: most(shots)] for c in range(int(labels.max()) + 1)]


def draw(labels: np.ndarray, shots: Sequence[int], count: int, seed: int) -> Draws:
    """`count` draws of each k for both protocols, from the `candidates`. labels int64 [n]."""
    orders = candidates(labels, shots, seed)
    # a quarter of a small class, so that it can be drawn from as well
    aside = [min(SELECTION, len(rows) // 4) for rows in orders]
    pools = [rows[few:] for rows, few in zip(orders, aside, strict=True)]
    selection = np.concatenate([rows[:few] for rows, few in zip(orders, aside, strict=True)])
    chosen, fixed = {}, {k: [] for k in sorted(shots)}
    for k in sorted(shots):
        own = np.random.default_rng([seed, k])  # other shots asked for do not change these
        chosen[k] = [np.concatenate([own.permutation(pool)[:k] for pool in pools]) for _ in range(count)]
    for number in range(count):
        own = np.random.default_rng([seed, 0, number])
        nested = [own.permutation(pool) for pool in pools]
        for k in fixed:
            fixed[k].append(np.concatenate([rows[:k] for rows in nested]))
    short = {k: sum(len(rows) < k for rows in pools) for k in chosen}
    used = np.unique(np.concatenate([selection, *pools]))
    return Draws(used, selection, chosen, fixed, short)


@dataclass(frozen=True)
class Outcome:
    """correct: for each k, right test images a draw, of `images`. tied: test images whose best score several shared."""

    correct: dict[int, list[int]]
    images: int
    lambda_: float
    selection: dict[float, float]
    tied: int

    def cell(self, k: int) -> str:
        """`53.9 ± 2.6`: mean and standard deviation over the draws, in %."""
        values = 100 * np.array(self.correct[k]) / self.images
        spread = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
        return f"{values.mean():.1f}{spread}"

    def as_json(self) -> dict:
        return {
            "lambda": self.lambda_,
            "selection": {f"{lambda_:g}": share for lambda_, share in self.selection.items()},
            "test_images": self.images,
            "tied": self.tied,
            "correct": {str(k): counts for k, counts in self.correct.items()},
        }


def with_chosen_lambda(
    draws: Draws, rows: np.ndarray, labels: np.ndarray, queries: np.ndarray, truth: np.ndarray, device: str
) -> Outcome | None:
    """The protocol `chosen`; None where no class has images to spare for the choice.

    rows float32 [len(draws.used), d], in that order; labels int64 [n] of the whole training set; queries float32
    [q, d] and truth [q]: the test images.
    """
    if not len(draws.selection):
        return None
    classes = int(labels.max()) + 1
    place = np.searchsorted(draws.used, draws.selection)
    probe = ridge.Pool(rows, labels[draws.used], classes, np.concatenate([rows[place], queries]), device)
    every = [np.searchsorted(draws.used, one) for of_k in draws.chosen.values() for one in of_k]
    aside, rest = slice(0, len(place)), slice(len(place), None)
    counts = probe.count(every, LAMBDAS, labels[draws.selection], aside)[0].sum(0).tolist()
    right = dict(zip(LAMBDAS, counts, strict=True))
    best = max(right, key=lambda lambda_: (right[lambda_], lambda_))  # equal: the strongest penalty
    shares = {lambda_: count / (len(every) * len(place)) for lambda_, count in right.items()}
    right_on_test, tied = probe.count(every, [best], truth, rest)
    by_draw = iter(right_on_test[:, 0].tolist())
    correct = {k: [next(by_draw) for _ in of_k] for k, of_k in draws.chosen.items()}
    return Outcome(correct, len(queries), best, shares, int(tied.sum()))


def with_fixed_lambda(
    draws: Draws, rows: np.ndarray, labels: np.ndarray, queries: np.ndarray, truth: np.ndarray
) -> Outcome:
    """The protocol `fixed`; arguments as of `with_chosen_lambda`."""
    classes = int(labels.max()) + 1
    z, right_class = torch.as_tensor(queries).double(), torch.as_tensor(truth)

    def fit_and_count(one: np.ndarray) -> tuple[int, int]:
        x = rows[np.searchsorted(draws.used, one)]
        w, bias = ridge.standardised_weights(x, labels[one], classes, LAMBDA, constant=CONSTANT)
        predicted, tied = ridge.predict(z @ w + bias)
        return int((predicted == right_class).sum()), int(tied.sum())

    every = [one for of_k in draws.fixed.values() for one in of_k]
    counts = each_on_one_thread(fit_and_count, every)
    by_draw = iter(right for right, _ in counts)
    correct = {k: [next(by_draw) for _ in of_k] for k, of_k in draws.fixed.items()}
    return Outcome(correct, len(queries), LAMBDA, {}, sum(tied for _, tied in counts))
