"""A training step of the recipe against the usual loop, paired in one run: speed, the same losses, augmentation.

    python benchmarks/scratch_step.py                   about 6 minutes on two quiet cores

The usual loop: PIL images in a DataLoader with two workers, torchvision's RandomCrop, RandomHorizontalFlip, ToTensor,
Normalize on each image, float32, AdamW as it comes (neither fused nor channels_last). Ours: the variants of
`vit_part4_scratch.py`. Networks and batch size (128) are the article's, images are random.

Every way has a process of its own, as a user's training has: ours tells the allocator to keep freed memory, from which
the usual loop must not gain. Rounds are interleaved (every way takes its steps in turn while the others wait), medians
and ratios of medians are reported, and the smallest and largest ratio of a round. `losses`: the largest difference
between the usual loop and ours over the first 20 steps, with augmentation off on both sides.
Writes benchmarks/scratch_step.json, and benchmarks/scratch_step.md from it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from papers.vit import scratch_data, scratch_models
from papers.vit.scratch_recipe import VARIANTS, Recipe, Run
from papers.vit.scratch_train import Trainer
from shared import cli
from shared.paths import atomic_write
from shared.provenance import machine

HERE = Path(__file__).parent
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CPU = torch.device("cpu")
# The usual loop's two workers prepare two batches each while the others compute: those steps of a round do not count.
WAITING, COUNTED = 4, 3


@dataclass
class Config:
    models: tuple[str, ...] = scratch_models.NAMES
    """networks to time"""
    rounds: int = 5
    """rounds of seven steps for each way, of which three count"""
    losses: bool = True
    """also compare 20 steps' losses"""
    update: bool = True
    """write benchmarks/scratch_step.json (models that were not timed keep their numbers)"""


class Usual(Dataset):
    """Images as a torchvision data set holds them: PIL, transformed one by one."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, augment: bool) -> None:
        self.images = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in images]
        self.labels = labels.tolist()
        random = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()] if augment else []
        self.transform = transforms.Compose([*random, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[index]), self.labels[index]


def usual_loop(
    name: str, images: torch.Tensor, labels: torch.Tensor, order: list[int], augment: bool
) -> Iterator[float]:
    """Yields a step's loss; the recipe's schedule, the same initial weights as ours."""
    recipe, model = Recipe(), scratch_models.build(name, attention="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    loader = DataLoader(Usual(images, labels, augment), batch_size=recipe.batch, sampler=order, num_workers=2)
    for step, (x, y) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.item()


def our_loop(name: str, variant: str, data: scratch_data.TrainingData, augment: bool = True) -> Iterator[float]:
    extra = {} if augment else {"augment": lambda images, draws, pad: images}
    trainer = Trainer(Run(name, len(data.train), variant=variant), Recipe(), data, CPU, **extra)
    while True:
        trainer.step()
        yield trainer.fetch()


def material() -> scratch_data.TrainingData:
    """1,000 random images to train on, 5,000 to validate."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (1000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.arange(1000) % 10
    test = scratch_data.Arrays(images.repeat(5, 1, 1, 1), labels.repeat(5))
    return scratch_data.TrainingData(scratch_data.Arrays(images, labels), test, test, MEAN, STD, 10)


def loop_of(name: str, way: str, augment: bool = True) -> Iterator[float]:
    """The losses of `way` ("usual" or one of our variants), a step each."""
    data = material()
    if way != "usual":
        return our_loop(name, way, data, augment)
    order = np.concatenate([scratch_data.batch_positions(1000, step, 128, 0) for step in range(400)]).tolist()
    return usual_loop(name, data.train.images, data.train.labels, order, augment)


def serve(name: str, way: str, threads: int, asked: Connection) -> None:
    """In a process of its own: a round of steps whenever asked, answered by the seconds of those that count."""
    torch.set_num_threads(threads)
    loop = loop_of(name, way)
    for _ in range(WAITING + 1):  # compilation, the allocator, the workers' start
        next(loop)
    asked.send(None)
    with contextlib.suppress(EOFError):  # whoever asks is gone
        while asked.recv():
            times = []
            for _ in range(WAITING + COUNTED):
                started = time.perf_counter()
                next(loop)
                times.append(time.perf_counter() - started)
            asked.send(times[WAITING:])


def timed(name: str, ways: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step, the mean of each round, for every way. SystemExit if one of the processes dies."""
    start = multiprocessing.get_context("spawn")
    processes, pipes = {}, {}
    times: dict[str, list[float]] = {way: [] for way in ways}
    try:
        for way in ways:
            pipes[way], there = start.Pipe()
            processes[way] = start.Process(target=serve, args=(name, way, torch.get_num_threads(), there))
            processes[way].start()
            there.close()
            pipes[way].recv()
        for _ in range(rounds):
            for way, pipe in pipes.items():
                pipe.send(True)
                times[way].append(statistics.fmean(pipe.recv()))
    except (EOFError, OSError):
        raise SystemExit(f"{name}, {way}: its process died, see above") from None
    finally:
        for pipe in pipes.values():
            pipe.close()  # ends the loop of each process
        for process in processes.values():
            process.join(20)
            process.terminate()
    return times


def augmentation(images: torch.Tensor) -> dict[str, float]:
    """Milliseconds for a batch of 128: one gather, the same per image on tensors, torchvision on PIL images."""
    batch = images[:128]
    draws = scratch_data.draw_augmentation(0, 128, 0, 4)
    pil = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in batch]
    usual = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()])

    def per_image() -> torch.Tensor:
        padded = F.pad(batch, (4, 4, 4, 4))
        crops = [p[:, t : t + 32, x : x + 32] for p, t, x in zip(padded, draws.top, draws.left, strict=True)]
        return torch.stack([c.flip(-1) if f else c for c, f in zip(crops, draws.flip, strict=True)])

    assert torch.equal(per_image(), scratch_data.crop_flip(batch, draws, 4))
    ways: dict[str, Callable[[], object]] = {
        "one gather": lambda: scratch_data.crop_flip(batch, scratch_data.draw_augmentation(0, 128, 0, 4), 4),
        "per image, tensors": per_image,
        "per image, torchvision on PIL": lambda: [usual(p) for p in pil],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(101):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            times[name].append(1e3 * (time.perf_counter() - started))
    return {name: round(statistics.median(values[1:]), 3) for name, values in times.items()}


def evaluation(name: str, variant: str, data: scratch_data.TrainingData) -> float:
    """Seconds to score 5,000 images, the median of three."""
    trainer = Trainer(Run(name, len(data.train), variant=variant), Recipe(), data, CPU)
    times = []
    for _ in range(4):
        started = time.perf_counter()
        trainer.correct(data.held_out)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def report(result: dict) -> str:
    """benchmarks/scratch_step.md"""
    where, ways = result["machine"], result["augmentation_ms"]
    gather = ways["one gather"]
    lines = [
        "# A training step from scratch against the usual loop",
        "",
        f"Measured by `python benchmarks/scratch_step.py` on {where['processor']}, {where['cores']} cores, torch",
        f"{result['torch']}. Batch 128, ms a step, medians of interleaved rounds, each way in a process of its own",
        "(ratio to the usual loop, its range over the rounds).",
        "",
        "| | usual loop | " + " | ".join(VARIANTS) + " |",
        "|---|---|" + "---|" * len(VARIANTS),
    ]
    for name, entry in result["models"].items():
        step, faster = entry["step_ms"], entry["faster"]
        low_high = {v: "{:.2f} to {:.2f}".format(*entry["faster_by_round"][v]) for v in VARIANTS}
        cells = [f"{step[v]:.0f} ({faster[v]:.2f}x, {low_high[v]})" for v in VARIANTS]
        lines.append(f"| {name}, {entry['rounds']} rounds | {step['usual']:.0f} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Augmentation of a batch, its draws included: one gather {gather:.2f} ms; "
        + "; ".join(f"{way} {ms:.2f} ms ({ms / gather:.1f}x)" for way, ms in ways.items() if way != "one gather")
        + ".",
        "",
    ]
    for name, entry in result["models"].items():
        for variant in VARIANTS:
            if f"evaluation {variant}" in entry:
                e = entry[f"evaluation {variant}"]
                lines.append(
                    f"- {name}, {variant}: scoring 5,000 images takes {e['seconds']:.1f} s, "
                    f"{100 * e['share_of_run_each']:.2f} % of a run; the eleven times of a run "
                    f"{100 * e['share_of_run_all_eleven']:.1f} %."
                )
            if f"largest loss difference {variant}" in entry:
                difference = entry[f"largest loss difference {variant}"]
                lines.append(f"- {name}, {variant}: losses of 20 steps differ by at most {difference:.0e}.")
    if "six_runs_minutes_without_evaluation" in result:
        minutes = result["six_runs_minutes_without_evaluation"]
        lines.append(
            "- The steps of the article's six runs, in minutes at this rate: "
            + ", ".join(f"{variant} {m:.0f}" for variant, m in minutes.items())
            + "."
        )
    return "\n".join(lines) + "\n"


def main(config: Config) -> None:
    data = material()
    path = HERE / "scratch_step.json"
    result = json.loads(path.read_text()) if path.exists() else {"models": {}}
    result |= {"machine": machine(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    result["augmentation_ms"] = ways = augmentation(data.train.images)
    print("augmentation of 128 images, ms:", ways)
    for name in config.models:
        times = timed(name, ["usual", *VARIANTS], config.rounds)
        seconds = {way: statistics.median(values) for way, values in times.items()}
        ratios = {way: [u / s for u, s in zip(times["usual"], values, strict=True)] for way, values in times.items()}
        entry = {"step_ms": {way: round(1e3 * s, 1) for way, s in seconds.items()},
                 "faster": {way: round(seconds["usual"] / s, 2) for way, s in seconds.items()},
                 "faster_by_round": {way: [round(min(r), 2), round(max(r), 2)] for way, r in ratios.items()},
                 "rounds": config.rounds}  # fmt: skip
        for variant in ("float32", "bf16-compiled"):
            one = evaluation(name, variant, data)
            run = 2500 * seconds[variant] + 11 * one
            entry[f"evaluation {variant}"] = {"seconds": round(one, 2), "share_of_run_each": round(one / run, 4),
                                              "share_of_run_all_eleven": round(11 * one / run, 4)}  # fmt: skip
        if config.losses:
            usual = loop_of(name, "usual", augment=False)
            wanted = [next(usual) for _ in range(20)]
            for variant in ("float32", "float32-compiled", "bf16-compiled"):
                ours = loop_of(name, variant, augment=False)
                entry[f"largest loss difference {variant}"] = max(abs(next(ours) - w) for w in wanted)
        result["models"][name] = entry
        print(name, json.dumps(entry, indent=1))
    if all(name in result["models"] for name in scratch_models.NAMES):
        for variant in VARIANTS:
            steps = sum(result["models"][n]["step_ms"][variant] for n in scratch_models.NAMES) / 1e3
            result.setdefault("six_runs_minutes_without_evaluation", {})[variant] = round(3 * 2500 * steps / 60, 1)
        print("six runs, minutes:", result["six_runs_minutes_without_evaluation"])
    if config.update:
        atomic_write(path, json.dumps(result, indent=1) + "\n")
        atomic_write(path.with_suffix(".md"), report(result))


if __name__ == "__main__":
    cli.run(main, Config)
