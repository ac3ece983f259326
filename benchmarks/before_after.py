"""Is this tree slower than another commit of it? Extraction, ridge regression and the training step, in turn.

    git worktree add --detach ../before COMMIT
    python benchmarks/before_after.py ../before            6 minutes on two quiet cores

Each tree does its work in processes of its own, which stay. A round asks one tree, then the other, for the same work
(seeded random weights and images), so that both meet the same other work on the machine. A ratio is seconds now /
seconds before, so 1.03 is 3 % slower; the aim is a median of 1.03 or less. Results: before_after.json, before_after.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

WORK = ("extraction: ViT-B/16", "extraction: ResNet-50", "ridge: pool and 20 draws", "step: ViT", "step: ResNet")
AIM = 1.03


def extraction(name: str, folder: str) -> Callable[[], object]:
    """64 images of 32 x 32 from pixels to features: resized, normalised, through the network in batches."""
    import torch
    import transformers

    from shared import device, models

    transformers.logging.disable_progress_bar()
    choice = device.choose("cpu")
    encoder = models.load_encoder(str(Path(folder) / name.replace("/", "-")), choice)
    photos = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)

    def work() -> None:
        with torch.inference_mode():
            for at in range(0, len(photos), 32):
                encoder.forward(encoder.prepare(photos[at : at + 32]))

    return work


def ridge() -> Callable[[], object]:
    """A pool of 2,000 images of 100 classes, 1,500 test images, 1,024 features; 20 draws at 9 penalties."""
    from shared.ridge import Pool

    rng = np.random.default_rng(0)
    rows, queries = (rng.standard_normal((count, 1024)).astype(np.float32) for count in (2000, 1500))
    labels, truth = np.arange(2000) % 100, np.arange(1500) % 100
    draws = [
        np.concatenate([np.arange(c, 2000, 100)[rng.permutation(20)[:shots]] for c in range(100)])
        for shots in (1, 2, 5, 10)
        for _ in range(5)
    ]
    penalties = [10.0**power for power in range(-4, 5)]
    return lambda: Pool(rows, labels, 100, queries).correct(draws, penalties, truth)


def step(name: str) -> Callable[[], object]:
    """Three steps of the article's training from scratch, 128 images each."""
    sys.path.insert(0, str(Path.cwd() / "benchmarks"))
    import scratch_step  # of the tree that is asked

    loop = scratch_step.loop_of(name, "bf16")
    return lambda: [next(loop) for _ in range(3)]


def serve(work: str, folder: str) -> None:
    """In a tree's own process: prepare, then for each line asked print the seconds that the work took."""
    import time

    import torch

    if Path("shared/process.py").exists():  # a tree without it sets the allocator where a network is built
        from shared import process

        process.set_up()
    torch.set_num_threads(2)
    kind, _, name = work.partition(": ")
    todo = extraction(name, folder) if kind == "extraction" else ridge() if kind == "ridge" else step(name)
    for _ in range(2):
        todo()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        todo()
        print(time.perf_counter() - start, flush=True)


class Asked:
    """A process of one tree that does one kind of work; calling it gives the seconds."""

    def __init__(self, tree: Path, work: str, folder: str):
        arguments = [sys.executable, str(Path(__file__).resolve()), "--serve", work, folder]
        environment = harness.os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
        self.process = subprocess.Popen(
            arguments, cwd=tree, env=environment, encoding="utf-8", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.answer("ready")

    def answer(self, what: str = "seconds") -> str:
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"{self.process.args[-2]}: its process died before it gave {what}, see above")
        return line

    def __call__(self) -> float:
        self.process.stdin.write("once\n")
        self.process.stdin.flush()
        return float(self.answer())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def commit_of(tree: Path) -> str:
    """Its short name, with `+` where files differ from it."""
    git = ["git", "-C", str(tree), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(git, capture_output=True, encoding="utf-8", check=True).stdout.strip()


def measure(work: str, before: Path, folder: str, rounds: int) -> dict:
    asked = {"before": Asked(before, work, folder), "now": Asked(harness.ROOT, work, folder)}
    try:
        times = harness.alternate(dict(asked), rounds)
    finally:
        for one in asked.values():
            one.close()
    return {
        "seconds": {name: harness.spread(values) for name, values in times.items()},
        "now / before": harness.spread(harness.ratios(times["now"], times["before"])),
        "before": commit_of(before),
        "now": commit_of(harness.ROOT),
        **harness.here(),
    }


def report(results: dict) -> list[str]:
    """benchmarks/before_after.md"""
    lines = [
        "# This tree against an earlier commit",
        "",
        "Written by `python benchmarks/before_after.py`; what the work is: the script's docstring.",
        f"Medians of rounds in turn (smallest to largest), two threads. The aim: a median of {AIM} or less.",
        "",
    ]
    columns = ["", "before, s", "now, s", "now / before", "commits", "processor"]
    rows = [
        [
            work,
            *(harness.show(result["seconds"][name], 3) for name in ("before", "now")),
            harness.show(result["now / before"], 3),
            f"{result['before']}, {result['now']}",
            harness.machine_line(result["machine"]),
        ]
        for work, result in results.items()
    ]
    return [*lines, *harness.table(columns, rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the earlier commit")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=WORK, help="one kind of work; the others keep their numbers")
    options = parser.parse_args()
    results = harness.Results("before_after", report)
    with tempfile.TemporaryDirectory(prefix="before-after-") as folder:
        for name in ("ViT-B/16", "ResNet-50"):
            harness.random_checkpoint(name, Path(folder) / name.replace("/", "-"))
        for work in [options.only] if options.only else WORK:
            results[work] = measure(work, options.before.resolve(), folder, options.rounds)
            results.write()
            print(f"{work}: now / before {json.dumps(results[work]['now / before'])}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        import harness

        main()
