"""Ridge regression from sums: any number of images in the memory of one d x d matrix, every lambda at once.

    sums = gram.Sums(features=1024, targets=10)
    for rows, labels in gram.blocks(["a.npy", "b.npy"], all_labels):
        sums.add(rows, labels)                       # first pass over the features
    sums.all_reduce()                                # under torchrun; nothing to do in one process
    path = sums.solve()
    lambdas = path.lambdas()
    loo = path.leave_one_out(gram.blocks(...), lambdas)         # second pass
    w, b = path.weights(lambdas[loo.best()])                    # scores = rows @ w + b

The problem. Rows x_i in R^d, targets y_i in R^K (+1 and -1 for classes), m and t their means:

    minimise  sum_i |y_i - t - W'(x_i - m)|^2 + lambda |W|^2      W = (C + lambda I)^-1 R,   b = t - W'm             (1)

with C = sum (x_i - m)(x_i - m)' [d, d] and R = sum (x_i - m)(y_i - t)' [d, K]. The intercept b is not penalised. This
is scikit-learn's Ridge(alpha=lambda), and RidgeClassifier for classes.

- *One pass.* C, R and the means of two parts with n1 and n2 rows give those of the whole: with e = m2 - m1,
  C = C1 + C2 + n1 n2 / (n1 + n2) e e', and R likewise (Chan, Golub and LeVeque, 1983). So a block of rows, another
  process's part and another file's part are added by one formula, and no large numbers cancel, as they would in
  sum x x' - n m m'.
- *Every lambda.* C = V diag(c) V' once; then (C + lambda I)^-1 = V diag(1 / (c + lambda)) V' costs nothing.
- *Leave-one-out.* The score of row i from a fit without it needs no other fit: with z_i = V'(x_i - m) and
  h_i = 1/n + sum_j z_ij^2 / (c_j + lambda), the residual without the row is the residual with it over 1 - h_i. It holds
  exactly for (1), intercept included. The h_i need C, so this is a second pass.

Everything is float64. Directions whose c is zero to rounding are left out: in exact arithmetic they add nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shared.device import gloo_group
from shared.errors import UserError
from shared.ridge import predict, targets

Array = np.ndarray | Tensor
BLOCK = 4096  # rows that are in memory as float64 at a time


class Sums:
    """The sums of (1) over the rows that were added: float64, d x d numbers and a few, however many rows there are.

    features, targets: d and K. device: where to add and solve; one without float64 (MPS) gives its work to the CPU.
    count: rows. mean [d], target_mean [K], gram [d, d], cross [d, K], target_squares [K]: see (1); the last is
    sum (y_i - t)^2, for R2.
    """

    def __init__(self, features: int, targets: int, device: str | torch.device = "cpu") -> None:
        self.features, self.targets = features, targets
        self.device = torch.device("cpu" if torch.device(device).type == "mps" else device)
        self.count = 0
        d, k = features, targets
        self.mean, self.target_mean, self.gram, self.cross, self.target_squares = (
            torch.zeros(shape, dtype=torch.float64, device=self.device) for shape in ((d,), (k,), (d, d), (d, k), (k,))
        )

    def add(self, rows: Array, targets: Array) -> None:
        """Add rows [n, d] of any float type. targets: labels [n] of an integer type in 0..K-1, or numbers [n, K].

        ValueError for shapes that do not fit and for numbers that are not finite.
        """
        for x, y, _ in _parts(rows, targets, self.features, self.targets, self.device):
            part = Sums.__new__(Sums)
            part.count, part.mean, part.target_mean = len(x), x.mean(0), y.mean(0)
            x, y = x - part.mean, y - part.target_mean
            self._between(part)
            self.gram.addmm_(x.mT, x)
            self.cross.addmm_(x.mT, y)
            self.target_squares += y.square().sum(0)

    def merge(self, other: Sums) -> None:
        """Add the rows of `other`, which stays as it is. ValueError for other sizes."""
        if (other.features, other.targets) != (self.features, self.targets):
            sizes = f"{other.features} features and {other.targets} targets"
            raise ValueError(f"{sizes}, expected {self.features} and {self.targets}")
        self._between(other)
        self.gram += other.gram.to(self.device)
        self.cross += other.cross.to(self.device)
        self.target_squares += other.target_squares.to(self.device)

    def all_reduce(self) -> None:
        """Under torchrun: every process gets the sums over the rows of all. In one process nothing happens."""
        import torch.distributed as dist

        world, group = gloo_group()
        if world == 1:
            return
        counts = torch.cat([self.mean * self.count, self.target_mean * self.count]).cpu()
        counts = torch.cat([counts, torch.tensor([self.count], dtype=torch.float64)])
        dist.all_reduce(counts, group=group)
        total = int(counts[-1])
        means = (counts[:-1] / max(total, 1)).to(self.device)
        # each part is moved to the common means, then the parts are added
        shift, turn = means[: self.features] - self.mean, means[self.features :] - self.target_mean
        self._spread(self.count, shift, turn)
        for name in ("gram", "cross", "target_squares"):
            whole = getattr(self, name).cpu()
            dist.all_reduce(whole, group=group)
            setattr(self, name, whole.to(self.device))
        self.count, self.mean, self.target_mean = total, means[: self.features], means[self.features :]

    def solve(self) -> Path:
        """The solutions for every lambda: one eigendecomposition of d x d. ValueError without rows."""
        return Path(self)

    def _between(self, part: Sums) -> None:
        """What the two means' distance adds, and the common means; the rows' own squares are the caller's affair."""
        total = self.count + part.count
        if not part.count:
            return
        shift, turn = part.mean.to(self.device) - self.mean, part.target_mean.to(self.device) - self.target_mean
        self._spread(self.count * part.count / total, shift, turn)
        self.mean = self.mean + shift * (part.count / total)
        self.target_mean = self.target_mean + turn * (part.count / total)
        self.count = total

    def _spread(self, weight: float, shift: Tensor, turn: Tensor) -> None:
        self.gram.addr_(shift, shift, alpha=weight)
        self.cross.addr_(shift, turn, alpha=weight)
        self.target_squares += weight * turn.square()


@dataclass
class LeaveOneOut:
    """What a fit without the row says of each row, counted over the rows of all blocks.

    lambdas: L of them. rows: n. squared_error: float64 [L, K], sums over the rows. correct: int64 [L], rows whose
    largest score is their label's (zeros where targets are numbers).
    """

    lambdas: tuple[float, ...]
    squared_error: np.ndarray
    correct: np.ndarray
    rows: int = 0

    def best(self, by: Literal["correct", "squared_error"] = "correct") -> int:
        """The place of the best lambda; of equally good ones the largest."""
        good = self.correct if by == "correct" else -self.squared_error.sum(1)
        return max(range(len(self.lambdas)), key=lambda i: (good[i], self.lambdas[i]))

    def all_reduce(self) -> None:
        """Under torchrun: every process gets the counts over the rows of all."""
        import torch.distributed as dist

        world, group = gloo_group()
        if world == 1:
            return
        whole = torch.from_numpy(np.concatenate([self.squared_error.ravel(), self.correct, [self.rows]]).astype(float))
        dist.all_reduce(whole, group=group)
        size = self.squared_error.size
        self.squared_error = whole[:size].numpy().reshape(self.squared_error.shape)
        self.correct, self.rows = whole[size:-1].numpy().astype(np.int64), int(whole[-1])


class Path:
    """The solutions of (1) for every lambda above 0."""

    def __init__(self, sums: Sums) -> None:
        if not sums.count:
            raise ValueError("no rows were added")
        self.sums = sums
        values, vectors = torch.linalg.eigh(sums.gram)
        keep = values > values[-1] * len(values) * torch.finfo(values.dtype).eps
        self.values, self.vectors = values[keep], vectors[:, keep]  # c [r], V [d, r]
        self.projected = self.vectors.mT @ sums.cross  # V'R [r, K]

    def lambdas(self, points: int = 10) -> tuple[float, ...]:
        """Powers of 10 (or steps between) from a millionth of the mean eigenvalue of C to a thousand of it.

        Relative to it, since a lambda that is large for one model's features is nothing for another's.
        """
        mean = float(self.sums.gram.trace()) / self.sums.features
        if not mean > 0:
            raise ValueError("all images have the same features")
        return tuple(float(f"{mean * power:.4g}") for power in np.logspace(-6, 3, points))

    def weights(self, lambda_: float) -> tuple[Tensor, Tensor]:
        """(W [d, K], b [K]), float64: scores = rows @ W + b, for rows as they were added."""
        _above_zero([lambda_])
        w = self.vectors @ (self.projected / (self.values + lambda_)[:, None])
        return w, self.sums.target_mean - self.sums.mean @ w

    def left_out(self, rows: Array, targets: Array, lambdas: Sequence[float]) -> Tensor:
        """Scores of rows that were added, each from a fit without it: float64 [L, n, K]."""
        parts = _parts(rows, targets, self.sums.features, self.sums.targets, self.sums.device)
        return torch.cat([torch.stack(list(self._left_out(x, y, lambdas))) for x, y, _ in parts], dim=1)

    def leave_one_out(self, blocks: Iterable[tuple[Array, Array]], lambdas: Sequence[float]) -> LeaveOneOut:
        """The second pass over (rows, targets) as they were added, in blocks of any size."""
        k = self.sums.targets
        result = LeaveOneOut(tuple(lambdas), np.zeros((len(lambdas), k)), np.zeros(len(lambdas), np.int64))
        for rows, given in blocks:
            for x, y, labels in _parts(rows, given, self.sums.features, k, self.sums.device):
                for i, scores in enumerate(self._left_out(x, y, lambdas)):
                    result.squared_error[i] += (y - scores).square().sum(0).cpu().numpy()
                    if labels is not None:
                        result.correct[i] += int((predict(scores)[0] == labels).sum())
                result.rows += len(x)
        return result

    def _left_out(self, x: Tensor, y: Tensor, lambdas: Sequence[float]) -> Iterator[Tensor]:
        """For each lambda the left-out scores [n, K] of x [n, d] with targets y [n, K]."""
        _above_zero(lambdas)
        z = (x - self.sums.mean) @ self.vectors
        squares = z.square()
        for lambda_ in lambdas:
            inverse = 1 / (self.values + lambda_)
            fitted = z @ (self.projected * inverse[:, None]) + self.sums.target_mean
            left = 1 - 1 / self.sums.count - squares @ inverse  # 1 - h
            yield y - (y - fitted) / left[:, None].clamp_min(torch.finfo(left.dtype).tiny)


def blocks(
    features: Array | Sequence[str | File],
    targets: Array,
    *,
    size: int = BLOCK,
    rank: int = 0,
    world: int = 1,
) -> Iterator[tuple[Array, Array]]:
    """(rows, targets) a block at a time, from an array [n, d] or from .npy files whose rows follow each other.

    A file is mapped for one block only: pages of a file that stays mapped count as this process's memory. Of several
    processes each gets every `world`-th block. UserError for a file that is no such array, ValueError for another
    number of targets.
    """
    if isinstance(features, np.ndarray | Tensor):
        sources: list[tuple[Array | File, int]] = [(features, len(features))]
    else:
        sources = [(File(file), len(_mapped(File(file)))) for file in features]
    if (total := sum(count for _, count in sources)) != len(targets):
        raise ValueError(f"{total} rows need as many targets, got {len(targets)}")
    number, first = 0, 0
    for source, count in sources:
        for start in range(0, count, size):
            stop = min(start + size, count)
            if number % world == rank:
                rows = np.array(_mapped(source)[start:stop]) if isinstance(source, File) else source[start:stop]
                yield rows, targets[first + start : first + stop]
            number += 1
        first += count


def _mapped(file: File) -> np.ndarray:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{file}: no array that can be read ({' '.join(str(error).split())[:100]})") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        what = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else "several arrays"
        raise UserError(f"{file}: {what}; expected features as float [images, dim] in NumPy's .npy")
    return array


def _parts(
    rows: Array, given: Array, features: int, count: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """At most BLOCK rows at a time: x float64 [n, d], y float64 [n, K], and the labels [n] where there are such."""
    given = torch.as_tensor(given)
    labelled = given.ndim == 1 and not given.is_floating_point()
    if rows.ndim != 2 or rows.shape[1] != features or len(given) != len(rows):
        shapes = f"rows {list(rows.shape)} and targets {list(given.shape)}"
        raise ValueError(f"{shapes}; expected [n, {features}], and as many targets")
    if not labelled and given.shape[1:] != (count,):
        raise ValueError(f"targets {list(given.shape)}; expected labels [n], or numbers [n, {count}]")
    if labelled and len(given) and not 0 <= int(given.min()) <= int(given.max()) < count:
        raise ValueError(f"labels {int(given.min())} to {int(given.max())}; expected 0 to {count - 1}")
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        if isinstance(part, np.ndarray):
            part = torch.from_numpy(np.array(part, dtype=np.float64))  # a copy: a mapped file's memory is read-only
        x, some = part.to(device, torch.float64), given[start : start + BLOCK].to(device)
        y = targets(some, count) if labelled else some.double()
        if not (x.sum() + y.sum()).isfinite():
            raise ValueError("features or targets that are not finite")
        yield x, y, some.long() if labelled else None


def _above_zero(lambdas: Sequence[float]) -> None:
    if not all(lambda_ > 0 for lambda_ in lambdas):
        raise ValueError(f"lambda must be above 0, got {list(lambdas)}")
