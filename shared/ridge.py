"""Regularised least squares onto {-1, 1} targets, for many small draws from one pool: the few-shot linear probe.

The problem (Dosovitskiy et al., section 4.1; big_vision's `fewshot_lsr`). X [n, d] holds one feature row per image,
Y [n, K] is +1 at the image's class and -1 elsewhere, and a query z scores z W with

    W = (X'X + lambda I)^-1 X'Y                        [d, K]                                   (1)

Three identities make a sweep over draws and lambdas cheap.

- *The smaller side.* (X'X + lambda I)^-1 X' = X' (XX' + lambda I)^-1, so with n < d the d x d system of (1) becomes
  the n x n system (XX' + lambda I) a = Y, and the scores are (z X') a. Few-shot means n < d: 100 rows, not 2,048.
- *The pool.* A draw is some rows of the pool P. Its XX' is a sub-block of PP', its zX' are columns of ZP'. Both
  products are taken once; a draw only gathers from them. The features are not touched again.
- *The lambdas.* They change the diagonal only. Each costs one Cholesky factorisation, n^3 / 6 multiply-adds, into the
  same memory. One eigendecomposition would serve them all, but it costs dozens of factorisations' arithmetic: measured
  for nine lambdas it wins below about 400 rows, where a draw takes a few milliseconds either way, and loses where the
  time goes (benchmarks/ridge.md has the table). One way for all sizes is kept.

Precision. Everything is float64. The products square the condition number: with raw features (squared norms of
hundreds) and lambda = 1e-4 a float32 solve of (1) is wrong altogether. Float64 leaves room to about lambda = 1e-9 of
the largest diagonal entry even when the block is singular (duplicate rows, n > rank). Below that the factorisation's
own pivots tell, and the draw is solved by the singular values of X itself, which do not square anything; directions
that are null to rounding are left out, as they are in exact arithmetic, where they add nothing to any score.

Speed. On the CPU the draws are spread over threads, largest first, and each one is computed by a single thread: LAPACK
shares a 1,000 x 1,000 factorisation badly between cores, and one thread a draw gives the same bits on any number of
cores. Memory is kept from draw to draw, because fresh pages cost as much as the arithmetic. On a CUDA device the draws
of one size are one batched call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from shared.process import each_on_one_thread

# Smallest squared Cholesky pivot, relative to the largest diagonal entry, that still leaves the scores a relative
# error below 1e-6 (tests/shared/test_ridge.py measures it against extended precision).
SOUND = 1e-9

# Two scores closer than this part of their row's largest magnitude are tied. Classes that a draw lacks have equal
# targets, so their scores are equal in exact arithmetic and only rounding tells them apart, another way on each
# processor. Rounding of a sound solution stays well below 1e-9 (tests/shared/test_ridge.py), real gaps above it.
TIED = 1e-9


def predict(scores: Tensor) -> tuple[Tensor, Tensor]:
    """(classes [..., q] int64, tied [..., q] bool) of scores [..., q, K]: the largest score, ties by the lowest index.

    Scores within TIED of the largest, relative to the row's largest magnitude, count as equal to it, so the answer is
    the same on every processor. `tied` marks rows where more than one class was that close.
    """
    smallest, largest = scores.amin(-1, keepdim=True), scores.amax(-1, keepdim=True)  # aminmax is 6 times slower
    near = (scores >= largest - TIED * torch.maximum(largest.abs(), smallest.abs())).view(torch.uint8)
    return near.argmax(-1), near.sum(-1) > 1  # argmax of 0 and 1: the first 1


def targets(labels: np.ndarray | Tensor, classes: int) -> Tensor:
    """{-1, 1} targets, float64 [n, classes]: +1 at the label, so that every row sums to 2 - classes."""
    labels = torch.as_tensor(labels).long()
    result = torch.full((len(labels), classes), -1.0, dtype=torch.float64, device=labels.device)
    return result.scatter_(1, labels[:, None], 1.0)


def weights(rows: np.ndarray | Tensor, labels: np.ndarray | Tensor, classes: int, penalty: float) -> Tensor:
    """W of equation (1), float64 [d, classes], from rows [n, d] and labels [n]: a classifier to keep."""
    x, y = torch.as_tensor(rows).double(), targets(labels, classes)
    wide = len(x) > x.shape[1]
    system, right = (x.mT @ x, x.mT @ y) if wide else (x @ x.mT, y)
    solution, unsound = _Cholesky(system[None], right[None]).solve(penalty)
    if unsound:
        return _by_singular_values(x, y)(penalty)
    return solution[0].clone() if wide else x.mT @ solution[0]


def standardised_weights(
    rows: np.ndarray | Tensor, labels: np.ndarray | Tensor, classes: int, penalty: float, *, constant: float
) -> tuple[Tensor, Tensor]:
    """(W [d, classes], bias [classes]), float64, for raw features, fitted on standardised ones.

    The rows are standardised by their own mean and deviation (+ 1e-5) and get a constant feature; a large one is a bias
    that the penalty hardly touches. Both are folded into W and the bias, so queries need no transform: the scores are
    z W + bias. Source: big_vision's `fewshot_lsr`.
    """
    x = torch.as_tensor(rows).double()
    mean, deviation = x.mean(0), x.std(0, correction=0) + 1e-5
    x = torch.cat([(x - mean) / deviation, x.new_full((len(x), 1), constant)], dim=1)
    w = weights(x, labels, classes, penalty)
    folded = w[:-1] / deviation[:, None]
    return folded, constant * w[-1] - mean @ folded


class Pool:
    """Labelled rows that draws are taken from, and the query rows that each draw's W scores.

    rows [m, d], labels [m] in 0..classes-1, queries [q, d]; float32 or float64, numpy or torch. `device`: where to
    compute; a device without float64 (MPS) gives its work to the CPU. ValueError for shapes that do not fit and for
    features that are not finite.
    """

    def __init__(
        self,
        rows: np.ndarray | Tensor,
        labels: np.ndarray | Tensor,
        classes: int,
        queries: np.ndarray | Tensor,
        device: str | torch.device = "cpu",
    ):
        self.device = torch.device("cpu" if torch.device(device).type == "mps" else device)
        self.rows, self.queries = (torch.as_tensor(a).to(self.device, torch.float64) for a in (rows, queries))
        labels = torch.as_tensor(labels)
        if self.rows.ndim != 2 or self.queries.ndim != 2 or self.rows.shape[1] != self.queries.shape[1]:
            raise ValueError(f"rows {tuple(self.rows.shape)} and queries {tuple(self.queries.shape)}: not one width")
        if labels.shape != (len(self.rows),) or any(not 0 <= label < classes for label in labels.unique().tolist()):
            raise ValueError(f"{len(self.rows)} rows need as many labels in 0..{classes - 1}")
        if not (self.rows.sum() + self.queries.sum()).isfinite():  # a tenth of the cost of asking each number
            raise ValueError("features that are not finite")
        self.targets = targets(labels.to(self.device), classes)
        self._gram: Tensor | None = None  # rows x rows
        self._cross: Tensor | None = None  # queries x rows

    def scores(self, draw: Sequence[int], penalties: Sequence[float], queries: slice = slice(None)) -> np.ndarray:
        """Scores of the queries after fitting the rows of one draw: float64 [len(penalties), q, classes]."""
        group = self._prepare([draw], penalties)[0]
        return torch.stack([s[0].clone().cpu() for s in self._fit(group, penalties, queries)]).numpy()

    def correct(
        self,
        draws: Sequence[Sequence[int]],
        penalties: Sequence[float],
        labels: np.ndarray,
        queries: slice = slice(None),
    ) -> np.ndarray:
        """How many queries get their label: the first array of `count`."""
        return self.count(draws, penalties, labels, queries)[0]

    def count(
        self,
        draws: Sequence[Sequence[int]],
        penalties: Sequence[float],
        labels: np.ndarray,
        queries: slice = slice(None),
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many queries get their label by `predict`, and how many are tied: two int64 [draws, penalties].

        labels [q] are those of `queries`, a slice of the pool's queries. Draws may differ in size.
        """
        truth = torch.as_tensor(labels).to(self.device)
        right, ties = np.zeros((2, len(draws), len(penalties)), dtype=np.int64)

        def count(positions: list[int]) -> None:
            group = groups[positions[0]] if len(positions) == 1 else torch.stack([groups[p] for p in positions])
            for i, scores in enumerate(self._fit(group.reshape(len(positions), -1), penalties, queries)):
                predicted, tied = predict(scores)
                right[positions, i] = (predicted == truth).sum(-1).cpu().numpy()
                ties[positions, i] = tied.sum(-1).cpu().numpy()

        groups = self._prepare(draws, penalties)
        order = sorted(range(len(draws)), key=lambda p: -len(draws[p]))
        if self.device.type == "cpu":
            each_on_one_thread(count, [[p] for p in order])
        else:
            for _, same_size in groupby(order, key=lambda p: len(draws[p])):
                count(list(same_size))
        return right, ties

    def _prepare(self, draws: Sequence[Sequence[int]], penalties: Sequence[float]) -> list[Tensor]:
        """Draws as index tensors [1, n]; the pool's own products where they cost less than those of the draws."""
        if not all(penalty > 0 for penalty in penalties):
            raise ValueError(f"penalties must be above 0, got {list(penalties)}")
        groups = [torch.as_tensor(np.asarray(draw), device=self.device).long()[None] for draw in draws]
        if any(g.numel() == 0 for g in groups):
            raise ValueError("a draw without rows")
        dual = sum(g.shape[1] ** 2 for g in groups if g.shape[1] <= self.rows.shape[1])
        if self._gram is None and dual >= len(self.rows) ** 2:
            self._gram, self._cross = self.rows @ self.rows.mT, self.queries @ self.rows.mT
        return groups

    def _fit(self, draws: Tensor, penalties: Sequence[float], queries: slice) -> Iterator[Tensor]:
        """For each penalty the scores [D, q, classes] of draws [D, n], in memory that the next one overwrites."""
        (count, n), d = draws.shape, self.rows.shape[1]
        y = self.targets[draws]
        back: Tensor | None = None  # from the dual solution to W, where the queries' products are not at hand
        if n > d:
            x = self.rows[draws]
            system, right, left = x.mT @ x, x.mT @ y, self.queries[queries]
        elif self._gram is None:
            x = self.rows[draws]
            system, right, left, back = x @ x.mT, y, self.queries[queries], x.mT
        else:
            q = len(range(*queries.indices(len(self.queries))))
            system, left = _buffer("system", count, n, n, self.device), _buffer("left", count, q, n, self.device)
            right = y
            strip = _buffer("strip", 1, n, len(self.rows), self.device)[0]
            for j, draw in enumerate(draws):  # rows, then columns: much faster than one two-dimensional gather
                torch.index_select(torch.index_select(self._gram, 0, draw, out=strip), 1, draw, out=system[j])
                torch.index_select(self._cross[queries], 1, draw, out=left[j])
        cholesky = _Cholesky(system, right)
        scores = _buffer("scores", count, left.shape[-2], y.shape[-1], self.device)
        other: dict[int, Callable[[float], Tensor]] = {}
        for penalty in penalties:
            solution, unsound = cholesky.solve(penalty)
            torch.matmul(left, solution if back is None else back @ solution, out=scores)
            for j in unsound:
                if j not in other:
                    other[j] = _by_singular_values(self.rows[draws[j]], y[j])
                scores[j] = self.queries[queries] @ other[j](penalty)
            yield scores


class _Cholesky:
    """(system + penalty I)^-1 right for one penalty after another; systems [D, n, n], right sides [D, n, K].

    The systems' diagonals are overwritten. Few and large operations: each small one of two threads costs a hand-over of
    Python's lock. Factors and solutions stand in this thread's memory, which the next object uses again.
    """

    def __init__(self, system: Tensor, right: Tensor):
        count, n, k = right.shape
        # LAPACK wants columns next to each other; a symmetric system's transposed view is that for nothing
        self.system, self.right = system.mT, right.mT.contiguous().mT
        self.diagonal = system.diagonal(dim1=-2, dim2=-1)
        self.own = self.diagonal.clone()
        self.factor = _buffer("factor", count, n, n, right.device).mT
        self.solution = _buffer("solution", count, k, n, right.device).mT
        self.info = torch.empty(count, dtype=torch.int32, device=right.device)
        self.sound_from = float("inf")

    def solve(self, penalty: float) -> tuple[Tensor, list[int]]:
        """The solutions [D, n, K], and the numbers of the systems whose solution is not sound."""
        torch.add(self.own, penalty, out=self.diagonal)
        torch.linalg.cholesky_ex(self.system, out=(self.factor, self.info))
        unsound: list[int] = []
        if penalty < self.sound_from:  # pivots grow with the penalty: what was sound stays sound
            pivots = self.factor.diagonal(dim1=-2, dim2=-1).square().amin(-1)
            sound = (self.info == 0) & (pivots > SOUND * self.own.amax(-1))
            unsound = (~sound).nonzero().flatten().tolist()
            if not unsound:
                self.sound_from = penalty
        torch.linalg.solve_triangular(self.factor, self.right, upper=False, out=self.solution)
        torch.linalg.solve_triangular(self.factor.mT, self.solution, upper=True, out=self.solution)
        return self.solution, unsound


def _by_singular_values(x: Tensor, y: Tensor) -> Callable[[float], Tensor]:
    """penalty -> W of (1), float64 [d, K], by the singular values of x, null directions left out."""
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    rank = int((s > s[0] * max(x.shape) * torch.finfo(s.dtype).eps).sum())
    u, s, vt = u[:, :rank], s[:rank], vt[:rank]
    uy = u.mT @ y
    return lambda penalty: vt.mT @ ((s / (s.square() + penalty))[:, None] * uy)


# Memory -------------------------------------------------------------------------------------------------

_own = threading.local()


def _buffer(name: str, count: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """This thread's float64 memory of that name, [count, rows, columns], grown when it is too small."""
    size = count * rows * columns
    kept = _own.__dict__.get((name, device))
    if kept is None or kept.numel() < size:
        kept = _own.__dict__[name, device] = torch.empty(size, dtype=torch.float64, device=device)
    return kept[:size].view(count, rows, columns)
