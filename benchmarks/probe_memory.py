"""Ridge regression on a million images' features in bounded memory, and how long it takes.

    python benchmarks/probe_memory.py                        1,000,000 x 1,024, 4.1 GB of files: 5 minutes on two cores
    python benchmarks/probe_memory.py --images 100000        a tenth of it
    python benchmarks/probe_memory.py --processes 2          and by two processes, compared with one

Synthetic features (float32, of ten classes that overlap, with a few strong directions as networks' features have) are
written to .npy files in a temporary folder. Then, in a process of its own whose memory is measured: one pass that
accumulates the Gram matrix (float64), the solutions for ten lambdas, a second pass for the leave-one-out scores of all
of them, and the accuracy on rows that were kept back. Claim: at most 2.5 GB of memory, whatever the number of images.
With --processes 2 the files are shared by two processes, whose solution must be the same to 1e-10.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from memory import peak_bytes

from shared import cli, gram, process
from shared.errors import UserError

LIMIT_GB = 2.5
CLASSES = 10
HELD_OUT = 10_000
ROWS_A_FILE = 100_000
SAME = 1e-10


@dataclass
class Config:
    images: int = 1_000_000
    features: int = 1024
    lambdas: int = 10
    processes: int = 1
    """also with so many processes, and compared with one"""
    folder: str = ""
    """where the files go for the time of the run; the system's temporary folder if none is given"""


def synthetic(rng: np.random.Generator, rows: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """(float32 [rows, features], labels [rows]); classes and directions are the same for every generator."""
    fixed = np.random.default_rng(0)
    centres = fixed.standard_normal((CLASSES, features), np.float32) * 0.12
    strong = fixed.standard_normal((16, features), np.float32)
    labels = rng.integers(0, CLASSES, rows)
    x = rng.standard_normal((rows, features), np.float32) + centres[labels]
    x += rng.standard_normal((rows, 16), np.float32) @ strong
    return x + 0.5, labels


def write(folder: Path, config: Config) -> tuple[list[str], str]:
    """The files of features, the last of which is for the test, and the one of labels."""
    sizes = [min(ROWS_A_FILE, config.images - start) for start in range(0, config.images, ROWS_A_FILE)]
    files, labels = [], []
    for number, rows in enumerate([*sizes, HELD_OUT]):
        x, y = synthetic(np.random.default_rng(number + 1), rows, config.features)
        files.append(str(folder / f"{number:05d}.npy"))
        np.save(files[-1], x)
        labels.append(y)
    np.save(folder / "labels.npy", np.concatenate(labels))
    return files, str(folder / "labels.npy")


def measure(files: list[str], labels_file: str, config: dict[str, Any], rank: int, world: int, port: int) -> dict:
    """In a process of its own: seconds of each step, peak memory, accuracy, and the chosen weights."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    process.set_up()
    labels = np.load(labels_file)
    train, test = files[:-1], files[-1:]
    count, seconds = config["images"], {}
    start = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal start
        seconds[name] = time.perf_counter() - start
        start = time.perf_counter()

    sums = gram.Sums(config["features"], CLASSES)
    for rows, y in gram.blocks(train, labels[:count], rank=rank, world=world):
        sums.add(rows, y)
    sums.all_reduce()
    lap("first pass")
    path = sums.solve()
    lambdas = path.lambdas(config["lambdas"])
    lap("solve")
    loo = path.leave_one_out(gram.blocks(train, labels[:count], rank=rank, world=world), lambdas)
    loo.all_reduce()
    lap("second pass")
    w, b = path.weights(lambdas[loo.best()])
    right = 0
    for rows, y in gram.blocks(test, labels[count:]):
        right += int(((torch.from_numpy(rows).double() @ w + b).argmax(1).numpy() == y).sum())
    return {
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "peak_gb": peak_bytes() / 1e9,
        "lambda": lambdas[loo.best()],
        "leave-one-out accuracy": 100 * float(loo.correct.max()) / loo.rows,
        "test accuracy": 100 * right / (len(labels) - count),
        "weights": w.numpy(),
    }


def run(files: list[str], labels: str, config: Config, world: int) -> list[dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ProcessPoolExecutor(world, get_context("spawn")) as pool:
        jobs = [pool.submit(measure, files, labels, asdict(config), rank, world, port) for rank in range(world)]
        return [job.result() for job in jobs]


def main(config: Config) -> int:
    needed = (config.images + HELD_OUT) * config.features * 4
    parent = Path(config.folder or tempfile.gettempdir())
    free = shutil.disk_usage(parent).free
    if needed > 0.9 * free:
        raise UserError(f"{parent}: {free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB needed; name another --folder")
    results = harness.Results("probe_memory")
    with tempfile.TemporaryDirectory(prefix="probe-memory-", dir=parent) as folder:
        print(f"writing {needed / 1e9:.1f} GB to {folder}", flush=True)
        written: list = []
        seconds = harness.seconds(lambda: written.append(write(Path(folder), config)))
        files, labels = written[0]
        print(f"written in {seconds:.0f} s", flush=True)
        alone = run(files, labels, config, 1)[0]
        row = {key: value for key, value in alone.items() if key != "weights"}
        row |= {"images": config.images, "features": config.features, "lambdas": config.lambdas, "bytes": needed}
        print(told(row), flush=True)
        difference = 0.0
        if config.processes > 1:
            together = run(files, labels, config, config.processes)
            apart = [abs(other["weights"] - alone["weights"]).max() / abs(alone["weights"]).max() for other in together]
            difference = float(max(apart))
            row |= {"processes": config.processes, "difference between one process and several": difference}
            print(
                f"{config.processes} processes: the weights differ by {difference:.1e}, at most {SAME:.0e}", flush=True
            )
    results[f"{config.images:,} x {config.features:,}"] = {**row, **harness.here()}
    results.write()
    return 0 if row["peak_gb"] <= LIMIT_GB and difference <= SAME else 1


def told(row: dict) -> str:
    steps = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in row["seconds"].items())
    right = f"leave-one-out {row['leave-one-out accuracy']:.2f} %, test {row['test accuracy']:.2f} %"
    return (
        f"{row['images']:,} x {row['features']:,}: {steps}; peak {row['peak_gb']:.2f} GB, claim: at most {LIMIT_GB}; "
        f"lambda {row['lambda']:g}, {right}"
    )


if __name__ == "__main__":
    cli.run(main, Config)
