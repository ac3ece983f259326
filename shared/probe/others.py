"""The two other probes of frozen features that the field uses: nearest neighbours, and logistic regression."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

NEIGHBOURS = (10, 20)
TEMPERATURE = 0.07  # of a neighbour's vote, as Wu et al. (2018) and DINO have it
QUERIES = 1024  # scored at a time
# Inverse penalties of the logistic regression, weakest last, for features of mean squared deviation 1
INVERSE_PENALTIES = tuple(10.0**power for power in range(-6, 5))
STEPS = 500  # of L-BFGS for one penalty


def nearest(
    rows: np.ndarray, labels: np.ndarray, queries: np.ndarray, classes: int, ks: Sequence[int] = NEIGHBOURS
) -> dict[int, np.ndarray]:
    """k -> predicted class int64 [q]: the k most similar training images vote.

    rows float32 [n, d], labels int64 [n], queries float32 [q, d]. Similarity is the cosine; a vote weighs
    exp(similarity / 0.07). A k above n is left out. Equal votes go to the lower class.
    """
    x, q = (_unit(torch.as_tensor(a)) for a in (rows, queries))
    truth = torch.as_tensor(labels)
    most = [k for k in ks if k <= len(x)]
    found: dict[int, list[Tensor]] = {k: [] for k in most}
    for part in q.split(QUERIES) if most else ():
        similarity, index = (part @ x.mT).topk(max(most), dim=1)
        votes = ((similarity - similarity[:, :1]).double() / TEMPERATURE).exp()  # relative to the best: no overflow
        for k in most:
            sums = votes.new_zeros(len(part), classes).scatter_add_(1, truth[index[:, :k]], votes[:, :k])
            found[k].append(sums.argmax(1))
    return {k: torch.cat(parts).numpy() for k, parts in found.items()}


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x.float(), dim=1)


@dataclass(frozen=True)
class Logistic:
    """predicted: int64 [q]. c: the chosen inverse penalty. losses: wrong share on the held-out images for each.

    stopped: penalties whose fit had not converged after STEPS.
    """

    predicted: np.ndarray
    c: float
    losses: dict[float, float]
    stopped: int


def logistic(
    rows: np.ndarray,
    labels: np.ndarray,
    fitted: np.ndarray,
    others: np.ndarray,
    others_labels: np.ndarray,
    queries: np.ndarray,
) -> Logistic:
    """scikit-learn's multinomial logistic regression with an L2 penalty, L-BFGS, from strong to weak penalties.

    rows float32 [n, d], labels [n]; fitted: bool [n], what the sweep fits; others, others_labels: images that choose
    among the penalties. Each fit starts where the one before ended. The chosen penalty is then fitted on all rows.
    Features are centred and divided by one number, so that a penalty means the same for every model.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    mean = rows.mean(0, dtype=np.float64)
    scale = float(np.sqrt(((rows - mean) ** 2).mean())) or 1.0

    def scaled(x: np.ndarray) -> np.ndarray:
        return ((x - mean) / scale).astype(np.float64)

    model = LogisticRegression(max_iter=STEPS, warm_start=True)
    wrong, stopped = {}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        x, y = scaled(rows[fitted]), labels[fitted]
        choosing = scaled(others)
        best = None
        for c in INVERSE_PENALTIES:
            model.set_params(C=c).fit(x, y)
            stopped += int(np.max(model.n_iter_) >= STEPS)
            wrong[c] = float((model.predict(choosing) != others_labels).mean())
            if best is None or wrong[c] < wrong[best[0]]:  # among equal ones the strongest penalty
                best = c, model.coef_.copy(), model.intercept_.copy()
        c, model.coef_, model.intercept_ = best
        if set(np.unique(y)) != set(np.unique(labels)):
            model = LogisticRegression(max_iter=STEPS)  # a class that the sweep did not see: no start from there
        model.set_params(C=c).fit(scaled(rows), labels)
    return Logistic(model.predict(scaled(queries)).astype(np.int64), c, wrong, stopped)
