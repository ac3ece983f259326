"""Speed of the closed form against the ways it is usually computed, side by side in one run.

    python benchmarks/ridge.py --dim 1024 --data CIFAR-100      one cell: about a minute (d = 2,048: three)
    python benchmarks/ridge.py                                  all eight cells and the table of solvers: 15 minutes

The work of one cell is what `vit_part4_fewshot.py` asks of one model on one data set: 4 k x 5 draws x 9 lambdas scored
on the selection images, then the chosen lambda's draws on the test images. Features are float32, random with a
common part, class differences and a decaying spectrum, as encoders give them. Peers:

    numpy, torch     (X'X + lambda I)^-1 X'Y, d x d, float64, one solve a lambda (X'X once a draw)
    scikit-learn     Ridge(alpha, fit_intercept=False) in a loop, float64
    eigh a draw      one eigendecomposition of the smaller Gram matrix for each draw, from the features, float64 (the
                     way of big_vision's `fewshot_lsr`)

Rounds are interleaved; the median is reported, and the ratio of medians. Each peer's predicted classes are compared
with ours for every image, and the scores' relative error is against the torch solve. Results are merged into
benchmarks/ridge.json; benchmarks/ridge.md is written from it.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from sklearn.linear_model import Ridge

from shared import cli, ridge
from shared.paths import atomic_write
from shared.provenance import machine

HERE = Path(__file__).parent
LAMBDAS = [10.0**i for i in range(-4, 5)]
SHOTS, DRAWS, POOL = (1, 2, 5, 10), 5, 20
# classes, selection and test images; the article's models have 2 x 768, 2 x 1,024, 1 x 1,280 and 2 x 2,048 features
DATA = {"CIFAR-100": (100, 500, 1000), "Oxford-IIIT Pets": (37, 185, 1110)}
DIMS = {768: 2, 1024: 2, 1280: 1, 2048: 2}


@dataclass
class Config:
    data: tuple[Literal["CIFAR-100", "Oxford-IIIT Pets"], ...] = tuple(DATA)
    """data sets whose sizes are used"""
    dim: tuple[int, ...] = tuple(DIMS)
    """feature sizes"""
    rounds: int = 3
    solvers: bool = False
    """only the table: nine Cholesky factorisations against one eigendecomposition, by size"""


@dataclass
class Work:
    """One cell: features, labels, draws (rows of the pool)."""

    classes: int
    pool: np.ndarray
    labels: np.ndarray
    selection: np.ndarray
    truth: np.ndarray
    test: np.ndarray
    draws: list[np.ndarray]


def make(name: str, dim: int) -> Work:
    rng = np.random.default_rng(dim)
    classes, _, test = DATA[name]
    means = rng.standard_normal((classes, dim))
    spectrum = 3 * np.arange(1, dim + 1) ** -0.5
    common = rng.standard_normal(dim)

    def sample(labels: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal((len(labels), dim))
        return (0.5 * common + (0.3 * means[labels] + noise) * spectrum).astype(np.float32)

    labels = np.repeat(np.arange(classes), POOL)
    truth = np.repeat(np.arange(classes), 5)
    draws = [
        np.concatenate([c * POOL + rng.permutation(POOL)[:k] for c in range(classes)])
        for k in SHOTS
        for _ in range(DRAWS)
    ]
    return Work(classes, sample(labels), labels, sample(truth), truth, sample(np.arange(test) % classes), draws)


Fit = Callable[[np.ndarray, np.ndarray], Callable[[float], np.ndarray]]


def sweep(work: Work, fit: Fit, *, keep: bool = False) -> tuple[int, list[np.ndarray]]:
    """The cell's work by a peer: `fit(x, y)` gives a function lambda -> W, float64 [d, K]. With `keep`, the scores."""
    targets = 2.0 * np.eye(work.classes)[work.labels] - 1.0
    pool, selection, test = (a.astype(np.float64) for a in (work.pool, work.selection, work.test))
    kept, correct, fits = [], np.zeros(len(LAMBDAS), dtype=int), []
    for draw in work.draws:
        solve = fit(pool[draw], targets[draw])
        weights = [solve(penalty) for penalty in LAMBDAS]
        fits.append(weights)
        for i, w in enumerate(weights):
            scores = selection @ w
            correct[i] += (scores.argmax(1) == work.truth).sum()
            if keep:
                kept.append(scores)
    best = int(np.flatnonzero(correct == correct.max())[-1])
    predictions = [(test @ weights[best]).argmax(1) for weights in fits]
    return best, kept if keep else predictions


def ours(work: Work) -> int:
    pool = ridge.Pool(work.pool, work.labels, work.classes, np.concatenate([work.selection, work.test]))
    n = len(work.selection)
    correct = pool.correct(work.draws, LAMBDAS, work.truth, slice(0, n)).sum(0)
    best = int(np.flatnonzero(correct == correct.max())[-1])
    pool.correct(work.draws, [LAMBDAS[best]], np.arange(len(work.test)) % work.classes, slice(n, None))
    return best


def numpy_solve(x: np.ndarray, y: np.ndarray) -> Callable[[float], np.ndarray]:
    system, right = x.T @ x, x.T @ y
    return lambda penalty: np.linalg.solve(system + penalty * np.eye(len(system)), right)


def torch_solve(x: np.ndarray, y: np.ndarray) -> Callable[[float], np.ndarray]:
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    system, right, eye = x.T @ x, x.T @ y, torch.eye(x.shape[1], dtype=torch.float64)
    return lambda penalty: torch.linalg.solve(system + penalty * eye, right).numpy()


def scikit_learn(x: np.ndarray, y: np.ndarray) -> Callable[[float], np.ndarray]:
    return lambda penalty: Ridge(alpha=penalty, fit_intercept=False).fit(x, y).coef_.T


def eigh_a_draw(x: np.ndarray, y: np.ndarray) -> Callable[[float], np.ndarray]:
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if len(x) >= x.shape[1]:
        values, q = torch.linalg.eigh(x.T @ x)
        left, right = q, q.T @ (x.T @ y)
    else:
        values, q = torch.linalg.eigh(x @ x.T)
        left, right = x.T @ q, q.T @ y
    return lambda penalty: ((left / (values + penalty)) @ right).numpy()


PEERS: dict[str, Fit] = {
    "numpy, d x d": numpy_solve,
    "torch, d x d": torch_solve,
    "scikit-learn": scikit_learn,
    "eigh a draw": eigh_a_draw,
}


def measure(name: str, dim: int, rounds: int) -> dict:
    work = make(name, dim)
    best = ours(work)  # warm: threads and memory
    times: dict[str, list[float]] = {method: [] for method in ["ours", *PEERS]}
    chosen = {}
    for _ in range(rounds):
        for method in times:
            start = time.perf_counter()
            chosen[method] = ours(work) if method == "ours" else sweep(work, PEERS[method])[0]
            times[method].append(time.perf_counter() - start)
    return {
        "rounds": rounds,
        "seconds": {method: statistics.median(values) for method, values in times.items()},
        "same lambda": len({best, *chosen.values()}) == 1,
        **exactness(work, best),
    }


def exactness(work: Work, best: int) -> dict:
    """Our scores and classes against the float64 d x d solve: all lambdas on selection, the chosen one on test."""
    pool = ridge.Pool(work.pool, work.labels, work.classes, np.concatenate([work.selection, work.test]))
    n, targets = len(work.selection), 2.0 * np.eye(work.classes)[work.labels] - 1.0
    worst, unequal, compared = 0.0, 0, 0
    for draw in work.draws:
        solve = torch_solve(work.pool[draw].astype(np.float64), targets[draw])
        mine = pool.scores(draw, LAMBDAS)
        for i, penalty in enumerate(LAMBDAS):
            part = slice(None) if i == best else slice(0, n)
            theirs = np.concatenate([work.selection, work.test])[part].astype(np.float64) @ solve(penalty)
            worst = max(worst, np.abs(mine[i][part] - theirs).max() / np.abs(theirs).max())
            unequal += int((mine[i][part].argmax(1) != theirs.argmax(1)).sum())
            compared += len(theirs)
    return {"relative error": worst, "unequal classes": unequal, "compared classes": compared}


def compare_solvers(rounds: int = 7) -> list[dict]:
    """One draw, nine lambdas, one thread: Cholesky factorisations against one eigendecomposition of the same block."""
    torch.set_num_threads(1)
    table = []
    for classes, k in [(37, 1), (37, 2), (37, 5), (37, 10), (100, 1), (100, 2), (100, 5), (100, 10)]:
        n = classes * k
        x = torch.from_numpy(np.random.default_rng(n).standard_normal((n, max(1024, n))))
        system, y = (x @ x.mT)[None], ridge.targets(np.arange(n) % classes, classes)[None]

        def cholesky(block=system, y=y) -> None:
            solver = ridge._Cholesky(block.clone(), y)
            for penalty in LAMBDAS:
                solver.solve(penalty)

        def eigh(block=system, y=y) -> None:
            values, q = torch.linalg.eigh(block)
            right = q.mT @ y
            for penalty in LAMBDAS:
                q @ (right / (values + penalty)[..., None])

        times: dict[str, list[float]] = {"cholesky": [], "eigh": []}
        for _ in range(rounds + 1):
            for name, function in (("cholesky", cholesky), ("eigh", eigh)):
                start = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - start)
        table.append({"classes": classes, "k": k, "n": n} | {a: statistics.median(b[1:]) for a, b in times.items()})
    return table


def report(results: dict) -> str:
    """benchmarks/ridge.md"""
    cells = results["cells"]
    lines = [
        "# Closed form: 4 k x 5 draws x 9 lambdas for one model on one data set",
        "",
        f"Measured by `python benchmarks/ridge.py` on {results['machine']}. Medians of interleaved rounds; the ratio",
        "to ours in brackets. All float64. What the columns are: the script's docstring.",
        "",
        "| data | d | rounds | ours, s | "
        + " | ".join(f"{p}, s" for p in PEERS)
        + " | unequal classes | relative error |",
        "|---|---|---|---|" + "---|" * (len(PEERS) + 2),
    ]
    for key, cell in cells.items():
        name, dim = key.rsplit("/", 1)
        seconds = cell["seconds"]
        peers = [f"{seconds[p]:.2f} ({seconds[p] / seconds['ours']:.1f}x)" for p in PEERS]
        exact = f"{cell['unequal classes']} of {cell['compared classes']:,} | {cell['relative error']:.0e}"
        lines.append(f"| {name} | {dim} | {cell['rounds']} | {seconds['ours']:.2f} | {' | '.join(peers)} | {exact} |")
    whole = {dim: models for dim, models in DIMS.items() if all(f"{name}/{dim}" in cells for name in DATA)}
    sums = [("both", dim, {dim: 1}) for dim in whole]
    if whole == DIMS:
        sums.append(("the article: 7 models x 2", "", DIMS))
    for title, dim, models in sums:
        total = {
            method: sum(count * cells[f"{name}/{d}"]["seconds"][method] for d, count in models.items() for name in DATA)
            for method in ["ours", *PEERS]
        }
        peers = [f"{total[p]:.1f} ({total[p] / total['ours']:.1f}x)" for p in PEERS]
        lines.append(f"| {title} | {dim} | | {total['ours']:.2f} | {' | '.join(peers)} | | |")
    if "solvers" in results:
        lines += [
            "",
            "## Nine Cholesky factorisations or one eigendecomposition",
            "",
            "One draw of n rows, K classes, nine lambdas, from the Gram block to the coefficients, one thread, ms.",
            "",
            "| K | k | n | nine Cholesky | one eigh | eigh / Cholesky |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {r['classes']} | {r['k']} | {r['n']} | {1e3 * r['cholesky']:.2f} | {1e3 * r['eigh']:.2f} | "
            f"{r['eigh'] / r['cholesky']:.2f} |"
            for r in results["solvers"]
        ]
    return "\n".join(lines) + "\n"


def main(config: Config) -> None:
    path = HERE / "ridge.json"
    results = json.loads(path.read_text()) if path.exists() else {"cells": {}}
    where = machine()
    results["machine"] = f"{where['processor']}, {where['cores']} cores, torch {torch.__version__}"
    if config.solvers:
        results["solvers"] = compare_solvers()
    else:
        for name in config.data:
            for dim in config.dim:
                results["cells"][f"{name}/{dim}"] = cell = measure(name, dim, config.rounds)
                print(name, dim, json.dumps(cell), f"load {os.getloadavg()[0]:.1f}", flush=True)
    order = [f"{name}/{dim}" for name in DATA for dim in DIMS]
    results["cells"] = {key: results["cells"][key] for key in order if key in results["cells"]}
    atomic_write(path, json.dumps(results, indent=1) + "\n")
    atomic_write(HERE / "ridge.md", report(results))


if __name__ == "__main__":
    cli.run(main, Config)
