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

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import harness
import numpy as np
import torch
from sklearn.linear_model import Ridge

from shared import cli, ridge

LAMBDAS = [10.0**i for i in range(-4, 5)]
SHOTS, DRAWS, POOL = (1, 2, 5, 10), 5, 20
SELECTION = 5  # selection images per class
# classes and test images; the article's models have 2 x 768, 2 x 1,024, 1 x 1,280 and 2 x 2,048 features
DATA = {"CIFAR-100": (100, 1000), "Oxford-IIIT Pets": (37, 1110)}
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
    """One cell: features and labels of the pool, draws (its rows); the images scored, first those of the selection."""

    classes: int
    pool: np.ndarray
    labels: np.ndarray
    others: np.ndarray
    truth: np.ndarray
    draws: list[np.ndarray]

    @property
    def selection(self) -> slice:
        return slice(0, SELECTION * self.classes)


def make(name: str, dim: int) -> Work:
    rng = np.random.default_rng(dim)
    classes, test = DATA[name]
    means = rng.standard_normal((classes, dim))
    spectrum = 3 * np.arange(1, dim + 1) ** -0.5
    common = rng.standard_normal(dim)

    def sample(labels: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal((len(labels), dim))
        return (0.5 * common + (0.3 * means[labels] + noise) * spectrum).astype(np.float32)

    labels = np.repeat(np.arange(classes), POOL)
    truth = np.concatenate([np.repeat(np.arange(classes), SELECTION), np.arange(test) % classes])
    draws = [
        np.concatenate([c * POOL + rng.permutation(POOL)[:k] for c in range(classes)])
        for k in SHOTS
        for _ in range(DRAWS)
    ]
    return Work(classes, sample(labels), labels, sample(truth), truth, draws)


Fit = Callable[[np.ndarray, np.ndarray], Callable[[float], np.ndarray]]


def sweep(work: Work, fit: Fit) -> int:
    """A cell's work by a peer: `fit(x, y)` is lambda -> W, float64 [d, K]. The place of the best lambda."""
    targets = 2.0 * np.eye(work.classes)[work.labels] - 1.0
    pool, others, truth = work.pool.astype(np.float64), work.others.astype(np.float64), work.truth[work.selection]
    selection, test = others[work.selection], others[len(truth) :]
    solvers = [fit(pool[draw], targets[draw]) for draw in work.draws]
    weights = [[solve(penalty) for penalty in LAMBDAS] for solve in solvers]
    correct = [[((selection @ w).argmax(1) == truth).sum() for w in of_draw] for of_draw in weights]
    best = last_of_the_best(np.sum(correct, axis=0))
    for of_draw in weights:
        (test @ of_draw[best]).argmax(1)
    return best


def last_of_the_best(correct: np.ndarray) -> int:
    return int(np.flatnonzero(correct == correct.max())[-1])


def ours(work: Work) -> int:
    """The same by this suite."""
    pool, test = ridge.Pool(work.pool, work.labels, work.classes, work.others), slice(work.selection.stop, None)
    best = last_of_the_best(pool.correct(work.draws, LAMBDAS, work.truth[work.selection], work.selection).sum(0))
    pool.correct(work.draws, [LAMBDAS[best]], work.truth[test], test)
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
    wide = len(x) < x.shape[1]
    values, q = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
    left, right = (x.T @ q, q.T @ y) if wide else (q, q.T @ (x.T @ y))
    return lambda penalty: ((left / (values + penalty)) @ right).numpy()


PEERS: dict[str, Fit] = {
    "numpy, d x d": numpy_solve,
    "torch, d x d": torch_solve,
    "scikit-learn": scikit_learn,
    "eigh a draw": eigh_a_draw,
}


def measure(name: str, dim: int, rounds: int) -> dict:
    work, chosen = make(name, dim), {}
    sweeps = {"ours": ours} | {method: partial(sweep, fit=fit) for method, fit in PEERS.items()}

    def timed(method: str) -> float:
        return harness.seconds(lambda: chosen.update({method: sweeps[method](work)}))

    times = harness.alternate({method: partial(timed, method) for method in sweeps}, rounds)
    same = len(set(chosen.values())) == 1
    return {"rounds": rounds, "seconds": harness.medians(times), "same lambda": same, **exactness(work, chosen["ours"])}


def exactness(work: Work, best: int) -> dict:
    """Our scores and classes against the float64 d x d solve: all lambdas on selection, the chosen one on test."""
    pool = ridge.Pool(work.pool, work.labels, work.classes, work.others)
    others, targets = work.others.astype(np.float64), 2.0 * np.eye(work.classes)[work.labels] - 1.0
    worst, unequal, compared = 0.0, 0, 0
    for draw in work.draws:
        solve = torch_solve(work.pool[draw].astype(np.float64), targets[draw])
        mine = pool.scores(draw, LAMBDAS)
        for i, penalty in enumerate(LAMBDAS):
            part = slice(None) if i == best else work.selection
            theirs = others[part] @ solve(penalty)
            worst = max(worst, np.abs(mine[i][part] - theirs).max() / np.abs(theirs).max())
            unequal += int((mine[i][part].argmax(1) != theirs.argmax(1)).sum())
            compared += len(theirs)
    return {"relative error": worst, "unequal classes": unequal, "compared classes": compared}


def compare_solvers(rounds: int = 7) -> list[dict]:
    """One draw, nine lambdas, one thread: Cholesky factorisations against one eigendecomposition of the same block."""
    torch.set_num_threads(1)
    rows = []
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

        ways = {"cholesky": lambda: harness.seconds(cholesky), "eigh": lambda: harness.seconds(eigh)}
        times = harness.medians(harness.alternate(ways, rounds))
        rows.append({"classes": classes, "k": k, "n": n, **times})
    return rows


def report(results: dict) -> list[str]:
    """benchmarks/ridge.md"""
    cells, rows = results["cells"], []

    def row(start: list, seconds: dict[str, float], end: list, digits: int = 2) -> None:
        peers = [f"{seconds[p]:.{digits}f} ({seconds[p] / seconds['ours']:.1f}x)" for p in PEERS]
        rows.append([*start, f"{seconds['ours']:.2f}", *peers, *end])

    for key, cell in cells.items():
        exact = [f"{cell['unequal classes']} of {cell['compared classes']:,}", f"{cell['relative error']:.0e}"]
        row([*key.rsplit("/", 1), cell["rounds"]], cell["seconds"], exact)
    whole = {dim: models for dim, models in DIMS.items() if all(f"{name}/{dim}" in cells for name in DATA)}
    sums = [("both", dim, {dim: 1}) for dim in whole]
    if whole == DIMS:
        sums.append(("the article: 7 models x 2", "", DIMS))
    for title, dim, models in sums:
        every = [(count, cells[f"{name}/{d}"]["seconds"]) for d, count in models.items() for name in DATA]
        row([title, dim, ""], {m: sum(count * s[m] for count, s in every) for m in ["ours", *PEERS]}, ["", ""], 1)
    columns = ["data", "d", "rounds", "ours, s", *(f"{p}, s" for p in PEERS), "unequal classes", "relative error"]
    lines = [
        "# Closed form: 4 k x 5 draws x 9 lambdas for one model on one data set",
        "",
        f"Measured by `python benchmarks/ridge.py` on {results['machine']}. Medians of interleaved rounds; the ratio",
        "to ours in brackets. All float64. What the columns are: the script's docstring.",
        "",
        *harness.table(columns, rows),
    ]
    if "solvers" in results:
        solvers = []
        for r in results["solvers"]:
            ms = [f"{1e3 * r[name]:.2f}" for name in ("cholesky", "eigh")]
            solvers.append((r["classes"], r["k"], r["n"], *ms, f"{r['eigh'] / r['cholesky']:.2f}"))
        text = "One draw of n rows, K classes, nine lambdas, from the Gram block to the coefficients, one thread, ms."
        lines += ["", "## Nine Cholesky factorisations or one eigendecomposition", "", text, ""]
        lines += harness.table(["K", "k", "n", "nine Cholesky", "one eigh", "eigh / Cholesky"], solvers)
    return lines


def main(config: Config) -> None:
    results = harness.Results("ridge", report, cells={})
    results["machine"] = f"{harness.machine_line(harness.here()['machine'])}, torch {torch.__version__}"
    if config.solvers:
        results["solvers"] = compare_solvers()
    else:
        for name in config.data:
            for dim in config.dim:
                results["cells"][f"{name}/{dim}"] = cell = measure(name, dim, config.rounds)
                print(name, dim, cell, f"load {harness.here()['load']:.1f}", flush=True)
    order = [f"{name}/{dim}" for name in DATA for dim in DIMS]
    results["cells"] = {key: results["cells"][key] for key in order if key in results["cells"]}
    results.write()


if __name__ == "__main__":
    cli.run(main, Config)
