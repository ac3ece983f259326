"""The probe's closed form against the ways a linear probe is usually trained, on the same features, side by side.

    python benchmarks/probe.py                                            random features, 50,000 x 1,024: an hour
    python benchmarks/probe.py --peers RidgeClassifierCV "SGD sweep" AdamW   the same without the slowest: 15 minutes
    python benchmarks/probe.py --images 2000 --dim 128 --classes 10 --steps 500    a trial
    PAPERS_DATA=<mirror> python benchmarks/probe.py --model wheel:vit-s14-saliency --data cifar10 --images 10000

Each way gets float32 features and labels of the training images, chooses its penalty or learning rate by itself, and
names the test images. Ours is what `python -m shared.probe` does: 19 lambdas by leave-one-out. Peers:

    RidgeClassifierCV    scikit-learn, the same lambdas, its own leave-one-out (squared error)
    SGD sweep            DINOv2's linear evaluation: 13 learning rates at once, SGD with momentum 0.9, batch 128, a
                         cosine, 12,500 steps (`--steps`); the best on a held-out tenth. Its features are in memory
                         here, which spares it the network's 12,500 batches
    AdamW                CLIP_benchmark's linear probe: features of length 1, AdamW, 10 epochs, batch 64, rate 0.1
    logistic sweep       scikit-learn's L-BFGS, seven penalties, the best on a held-out tenth, fitted again on all

The first two alternate over `--rounds` after one round that does not count; the slow ones run `--slow-rounds` times,
each between two runs of ours. Results go to benchmarks/probe.json and probe.md.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import harness
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from threadpoolctl import threadpool_limits

from shared import cli, gram, ridge
from shared.errors import UserError
from shared.probe.probing import LAMBDAS

RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)  # for a batch of 256
SLOW = ("SGD sweep", "AdamW", "logistic sweep")


@dataclass
class Config:
    images: int = 50_000
    """training images; of a data set: at most so many"""
    test: int = 10_000
    dim: int = 1024
    """of random features"""
    classes: int = 100
    """of random features"""
    model: str = ""
    """a model's features instead, of the images of --data"""
    data: str = "cifar10"
    peers: tuple[str, ...] = ("RidgeClassifierCV", *SLOW)
    steps: int = 12_500
    """of the SGD sweep"""
    rounds: int = 3
    slow_rounds: int = 1
    threads: int = 2


@dataclass
class Work:
    """rows float32 [n, d], labels int64 [n]; queries [q, d] and truth [q]."""

    rows: np.ndarray
    labels: np.ndarray
    queries: np.ndarray
    truth: np.ndarray
    words: str

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    def part(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows that are fitted, rows that choose): nine tenths and one tenth, at random."""
        order = np.random.default_rng(1).permutation(len(self.rows))
        return order[len(order) // 10 :], order[: len(order) // 10]


def random_features(config: Config) -> Work:
    """A common part, class differences and a decaying spectrum, as encoders give them; not all classes apart."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((config.classes, config.dim))
    spectrum, common = 3 * np.arange(1, config.dim + 1) ** -0.5, rng.standard_normal(config.dim)

    def sample(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, config.classes, count)
        noise = rng.standard_normal((count, config.dim))
        return (0.5 * common + (0.12 * means[labels] + noise) * spectrum).astype(np.float32), labels

    (rows, labels), (queries, truth) = sample(config.images), sample(config.test)
    return Work(rows, labels, queries, truth, "random features")


def real_features(config: Config) -> Work:
    """Of a model and a data set, a random part of its images."""
    from shared import device, features
    from shared.data import load_two

    choice, rng = device.choose("cpu", "fp32"), np.random.default_rng(0)
    train, test = load_two(config.data)
    parts = [
        images.subset(np.sort(rng.permutation(len(images))[:most]))
        for images, most in ((train, config.images), (test, config.test))
    ]
    encoder = features.deferred(config.model, choice, transform="own")
    taken = [features.extract(encoder, images, choice) for images in parts]
    words = f"{encoder.identity.name} on {config.data}"
    return Work(taken[0], parts[0].labels, taken[1], parts[1].labels, words)


# The ways: each returns its predictions of the test images -----------------------------------------------------------


def ours(work: Work) -> np.ndarray:
    sums = gram.Sums(work.rows.shape[1], work.classes)
    for rows, labels in gram.blocks(work.rows, work.labels):
        sums.add(rows, labels)
    path = sums.solve()
    lambdas = path.lambdas(LAMBDAS)
    best = path.leave_one_out(gram.blocks(work.rows, work.labels), lambdas).best()
    weights, bias = path.weights(lambdas[best])
    return ridge.predict(torch.from_numpy(work.queries).double() @ weights + bias)[0].numpy()


def lambdas_of(work: Work) -> np.ndarray:
    """The lambdas that ours chooses from, for its peer."""
    sums = gram.Sums(work.rows.shape[1], work.classes)
    sums.add(work.rows, work.labels)
    return np.array(sums.solve().lambdas(LAMBDAS))


def ridge_classifier_cv(work: Work, lambdas: np.ndarray) -> np.ndarray:
    model = RidgeClassifierCV(alphas=lambdas).fit(work.rows.astype(np.float64), work.labels)
    return model.predict(work.queries.astype(np.float64))


def sgd_sweep(work: Work, steps: int, batch: int = 128) -> np.ndarray:
    """All learning rates in one product: the heads' weights side by side."""
    generator = torch.Generator().manual_seed(0)
    fitted, choosing = work.part()
    x, y = torch.from_numpy(work.rows[fitted]), torch.from_numpy(work.labels[fitted])
    d, k, heads = x.shape[1], work.classes, len(RATES)
    weights = torch.empty(heads, d, k).normal_(0, 0.01, generator=generator)
    bias = torch.zeros(heads, 1, k)
    speed, bias_speed = torch.zeros_like(weights), torch.zeros_like(bias)
    rates = torch.tensor(RATES)[:, None, None] * batch / 256
    for step in range(steps):
        at = torch.randint(len(x), (batch,), generator=generator)
        error = torch.baddbmm(bias, x[at].expand(heads, -1, -1), weights).softmax(-1)
        error[:, torch.arange(batch), y[at]] -= 1  # the gradient of the cross-entropy
        speed.mul_(0.9).add_(x[at].mT @ error, alpha=1 / batch)
        bias_speed.mul_(0.9).add_(error.mean(1, keepdim=True))
        now = rates * 0.5 * (1 + np.cos(np.pi * step / steps))
        weights -= now * speed
        bias -= now * bias_speed
    others, truth = torch.from_numpy(work.rows[choosing]), torch.from_numpy(work.labels[choosing])
    right = [((others @ w + b).argmax(1) == truth).sum().item() for w, b in zip(weights, bias, strict=True)]
    best = int(np.argmax(right))
    return (torch.from_numpy(work.queries) @ weights[best] + bias[best]).argmax(1).numpy()


def adamw(work: Work, epochs: int = 10, batch: int = 64, rate: float = 0.1) -> np.ndarray:
    generator = torch.Generator().manual_seed(0)
    unit = partial(torch.nn.functional.normalize, dim=1)
    x, y = unit(torch.from_numpy(work.rows)), torch.from_numpy(work.labels)
    head = torch.nn.Linear(x.shape[1], work.classes)
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(x) // batch))
    for _ in range(epochs):
        for at in torch.randperm(len(x), generator=generator).split(batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(head(x[at]), y[at]).backward()
            optimizer.step()
            schedule.step()
    with torch.inference_mode():
        return head(unit(torch.from_numpy(work.queries))).argmax(1).numpy()


def logistic_sweep(work: Work) -> np.ndarray:
    """Penalties from strong to weak, each fit from where the last one ended; 1,000 steps at most."""
    fitted, choosing = work.part()
    scale = float(work.rows.std())
    x, others = work.rows[fitted] / scale, work.rows[choosing] / scale
    model, right = LogisticRegression(max_iter=1000, warm_start=True), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged after 1,000 steps
        for c in 10.0 ** np.arange(-6, 1):
            model.set_params(C=c).fit(x, work.labels[fitted])
            right[c] = (model.predict(others) == work.labels[choosing]).mean()
        model.set_params(C=max(right, key=right.get)).fit(work.rows / scale, work.labels)
    return model.predict(work.queries / scale)


# Measuring -----------------------------------------------------------------------------------------------------------


def measure(config: Config, work: Work) -> dict:
    accuracy: dict[str, float] = {}
    ways: dict[str, Callable[[Work], np.ndarray]] = {
        "ours": ours,
        "RidgeClassifierCV": partial(ridge_classifier_cv, lambdas=lambdas_of(work)),
        "SGD sweep": partial(sgd_sweep, steps=config.steps),
        "AdamW": adamw,
        "logistic sweep": logistic_sweep,
    }

    def timed(name: str) -> float:
        start = time.perf_counter()
        predicted = ways[name](work)
        seconds = time.perf_counter() - start
        accuracy[name] = float(100 * (predicted == work.truth).mean())
        return seconds

    times: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    quick = [name for name in config.peers if name not in SLOW]
    found = harness.alternate({name: partial(timed, name) for name in ["ours", *quick]}, config.rounds)
    for name in quick:
        ratios[name] = harness.ratios(found[name], found["ours"])
    times |= found
    for name in (name for name in config.peers if name in SLOW):
        times[name], ratios[name] = [], []
        for _ in range(config.slow_rounds):
            before, own, after = timed("ours"), timed(name), timed("ours")
            times[name].append(own)
            ratios[name].append(own / ((before + after) / 2))
            print(f"{name}: {own:.1f} s, ours {before:.2f} and {after:.2f} s", flush=True)
    return {
        "work": work.words,
        "images": len(work.rows),
        "dim": work.rows.shape[1],
        "classes": work.classes,
        "test": len(work.truth),
        "threads": config.threads,
        "steps": config.steps,
        "seconds": {name: harness.spread(values) for name, values in times.items()},
        "times as long": {name: harness.spread(values) for name, values in ratios.items()},
        "rounds": {name: len(values) for name, values in times.items()},
        "accuracy": accuracy,
        **harness.here(),
    }


def write(cells: list[dict]) -> None:
    lines = [
        "# The probe beside other ways to train one",
        "",
        *"\n\n".join((__doc__ or "").split("\n\n")[2:4]).splitlines(),
        "",
    ]
    for cell in cells:
        size = f"{cell['images']:,} x {cell['dim']:,}, {cell['classes']} classes, {cell['test']:,} test images"
        lines += [f"## {cell['work']}: {size}", ""]
        rows = [
            [
                name,
                harness.show(seconds, 2),
                harness.show(cell["times as long"][name], 1) if name in cell["times as long"] else "",
                f"{cell['accuracy'][name]:.2f}",
                f"{cell['accuracy'][name] - cell['accuracy']['ours']:+.2f}" if name != "ours" else "",
                cell["rounds"][name],
            ]
            for name, seconds in cell["seconds"].items()
        ]
        lines += harness.table(["", "seconds", "times as long", "accuracy, %", "less ours", "rounds"], rows)
        lines += [
            "",
            f"{harness.machine_line(cell['machine'])}, {cell['threads']} threads, load {cell['load']:.1f}, "
            f"{cell['date']}; SGD sweep: {cell['steps']:,} steps. Median (smallest to largest).",
            "",
        ]
    harness.atomic_write(harness.HERE / "probe.md", "\n".join(lines))


def main(config: Config) -> None:
    unknown = [name for name in config.peers if name not in ("RidgeClassifierCV", *SLOW)]
    if unknown:
        raise UserError(f"--peers {unknown[0]}: expected {', '.join(('RidgeClassifierCV', *SLOW))}")
    torch.set_num_threads(config.threads)
    with threadpool_limits(config.threads):  # NumPy's and SciPy's
        cell = measure(config, real_features(config) if config.model else random_features(config))
    path = harness.HERE / "probe.json"
    cells = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    same = ("work", "images", "dim", "classes")
    cells = [c for c in cells if any(c[key] != cell[key] for key in same)] + [cell]
    harness.atomic_write(path, json.dumps(cells, indent=1) + "\n")
    write(cells)
    print((harness.HERE / "probe.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    cli.run(main, Config)
