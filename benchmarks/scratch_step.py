"""A training step of the recipe against the usual loop, paired in one run: speed, the same losses, augmentation.

    python benchmarks/scratch_step.py                        about 9 minutes on two quiet cores
    python benchmarks/scratch_step.py --models ResNet-20     a third of that: only the network of resnet_cifar.py

The usual loop: PIL images in a DataLoader with two workers, torchvision's RandomCrop, RandomHorizontalFlip, ToTensor,
Normalize on each image, float32, the optimiser as it comes (neither fused nor channels_last). Ours: the variants of
`vit_part4_scratch.py` and `resnet_cifar.py`. ViT and ResNet are the article's, trained with AdamW; ResNet-20 is that of
He et al., section 4.2, trained with SGD. Batch 128, images are random.

Every way has a process of its own, as a user's training has: ours tells the allocator to keep freed memory, from which
the usual loop must not gain. Rounds are interleaved (every way takes its steps in turn while the others wait), medians
and ratios of medians are reported, and the smallest and largest ratio of a round. Losses: the largest difference
between the usual loop and ours over the first 20 steps, with augmentation off on both sides.
Writes benchmarks/scratch_step.json, and benchmarks/scratch_step.md from it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import harness
import numpy as np
import torch
import torch.nn.functional as F
from harness import seconds
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from papers.resnet import networks as residual
from papers.resnet import resnet_cifar
from papers.vit.part4 import networks
from papers.vit.part4.runs import NAMES, Recipe, Run
from papers.vit.part4.trainer import Trainer
from shared import cli, process
from shared.training import stream, trainer
from shared.training.runs import VARIANTS

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CPU = torch.device("cpu")
RESIDUAL = "ResNet-20"  # of the residual networks' own paper
# The usual loop's two workers prepare two batches each while the others compute: those steps of a round do not count.
WAITING, COUNTED = 4, 3


@dataclass
class Config:
    models: tuple[str, ...] = (*NAMES, RESIDUAL)
    """networks to time; others keep the numbers that they have"""
    rounds: int = 5
    """rounds of seven steps for each way, of which three count"""


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
    if name == RESIDUAL:
        recipe = resnet_cifar.PAPER
        model = residual.initialise(residual.build(resnet_cifar.network(name)), 0)
        settings = {"momentum": recipe.momentum, "weight_decay": recipe.weight_decay}
        optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr, **settings)
    else:
        recipe, model = Recipe(), networks.build(name, attention="sdpa")
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


def material() -> stream.TrainingData:
    """1,000 random images to train on, 5,000 to validate."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (1000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.arange(1000) % 10
    test = stream.Arrays(images.repeat(5, 1, 1, 1), labels.repeat(5))
    return stream.TrainingData(stream.Arrays(images, labels), test, test, MEAN, STD, 10)


def trainer_of(name: str, variant: str, data: stream.TrainingData) -> trainer.Trainer:
    process.set_up()
    if name == RESIDUAL:
        return resnet_cifar.Trainer(resnet_cifar.Run(name, variant=variant), resnet_cifar.PAPER, data, CPU)
    return Trainer(Run(name, len(data.train), variant=variant), Recipe(), data, CPU)


def loop_of(name: str, way: str, augment: bool = True) -> Iterator[float]:
    """The losses of `way` ("usual" or one of our variants), a step each."""
    data = material()
    if way == "usual":
        order = np.concatenate([stream.batch_positions(1000, step, 128, 0) for step in range(400)]).tolist()
        yield from usual_loop(name, data.train.images, data.train.labels, order, augment)
    ours = trainer_of(name, way, data)
    if not augment:
        ours.augment = lambda images, draws, pad: images
    while True:
        ours.step()
        yield ours.fetch()


def begin(name: str, way: str, threads: int) -> None:
    """In a process of its own: the loop, past compilation, the allocator's growth and the workers' start."""
    global loop
    torch.set_num_threads(threads)
    loop = loop_of(name, way)
    for _ in range(WAITING + 1):
        next(loop)


def one_round() -> float:
    """In the process that began: seconds of a step, the mean of those that count."""
    times = [seconds(lambda: next(loop)) for _ in range(WAITING + COUNTED)]
    return statistics.fmean(times[WAITING:])


def timed(name: str, ways: list[str], rounds: int) -> dict[str, list[float]]:
    """`one_round` of every way in every round. SystemExit if one of the processes dies."""
    spawn, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
    with contextlib.ExitStack() as running:
        pools = {way: running.enter_context(ProcessPoolExecutor(1, spawn, begin, (name, way, threads))) for way in ways}
        try:
            return harness.alternate(
                {way: lambda pool=pool: pool.submit(one_round).result() for way, pool in pools.items()}, rounds
            )
        except BrokenProcessPool:
            raise SystemExit(f"{name}: the process of one of the ways died, see above") from None


def augmentation(images: torch.Tensor) -> dict[str, float]:
    """Milliseconds for a batch of 128: one gather, the same per image on tensors, torchvision on PIL images."""
    batch = images[:128]
    draws = stream.draw_augmentation(0, 128, 0, 4)
    pil = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in batch]
    usual = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()])

    def per_image() -> torch.Tensor:
        padded = F.pad(batch, (4, 4, 4, 4))
        crops = [p[:, t : t + 32, x : x + 32] for p, t, x in zip(padded, draws.top, draws.left, strict=True)]
        return torch.stack([c.flip(-1) if f else c for c, f in zip(crops, draws.flip, strict=True)])

    assert torch.equal(per_image(), stream.crop_flip(batch, draws, 4))
    ways: dict[str, Callable[[], object]] = {
        "one gather": lambda: stream.crop_flip(batch, stream.draw_augmentation(0, 128, 0, 4), 4),
        "per image, tensors": per_image,
        "per image, torchvision on PIL": lambda: [usual(p) for p in pil],
    }
    timed_ways = {name: lambda way=way: 1e3 * seconds(way) for name, way in ways.items()}
    return {name: round(ms, 3) for name, ms in harness.medians(harness.alternate(timed_ways, 100, quiet=True)).items()}


def evaluation(name: str, variant: str, data: stream.TrainingData) -> float:
    """Seconds to score 5,000 images, the median of three."""
    ours = trainer_of(name, variant, data)
    way = {name: lambda: seconds(lambda: ours.correct(data.held_out))}
    return harness.medians(harness.alternate(way, 3, quiet=True))[name]


def measure(name: str, rounds: int, data: stream.TrainingData) -> dict:
    times = timed(name, ["usual", *VARIANTS], rounds)
    step, usual = harness.medians(times), times["usual"]
    by_round = {way: harness.ratios(usual, values) for way, values in times.items()}
    entry = {
        "step_ms": {way: round(1e3 * s, 1) for way, s in step.items()},
        "faster": {way: round(step["usual"] / s, 2) for way, s in step.items()},
        "faster_by_round": {way: [round(min(r), 2), round(max(r), 2)] for way, r in by_round.items()},
        "rounds": rounds,
        "machine": harness.machine_line(harness.here()["machine"]),
    }
    for variant in ("float32", "bf16-compiled") if name in NAMES else ():  # the shares are of the article's runs
        one = evaluation(name, variant, data)
        run = 2500 * step[variant] + 11 * one  # a run's 2,500 steps and eleven validations
        shares = {"share_of_run_each": round(one / run, 4), "share_of_run_all_eleven": round(11 * one / run, 4)}
        entry[f"evaluation {variant}"] = {"seconds": round(one, 2), **shares}
    usual = loop_of(name, "usual", augment=False)
    wanted = [next(usual) for _ in range(20)]
    for variant in ("float32", "float32-compiled", "bf16-compiled"):
        ours = loop_of(name, variant, augment=False)
        entry[f"largest loss difference {variant}"] = max(abs(next(ours) - loss) for loss in wanted)
    return entry


def report(result: dict) -> list[str]:
    """benchmarks/scratch_step.md"""
    steps, more = [], []
    for name, entry in result["models"].items():
        low_high = {v: "{:.2f} to {:.2f}".format(*entry["faster_by_round"][v]) for v in VARIANTS}
        cells = [f"{entry['step_ms'][v]:.0f} ({entry['faster'][v]:.2f}x, {low_high[v]})" for v in VARIANTS]
        where = entry.get("machine", harness.machine_line(result["machine"]))
        steps.append([f"{name}, {entry['rounds']} rounds", where, f"{entry['step_ms']['usual']:.0f}", *cells])
        for variant in VARIANTS:
            scoring, difference = entry.get(f"evaluation {variant}"), entry.get(f"largest loss difference {variant}")
            shares = [scoring[f"share_of_run_{part}"] for part in ("each", "all_eleven")] if scoring else []
            texts = [f"{scoring['seconds']:.1f}", *(f"{100 * s:.2f} %" for s in shares)] if scoring else ["", "", ""]
            more.append([name, variant, *texts, "" if difference is None else f"{difference:.0e}"])
    ways = result["augmentation_ms"]
    speeds = [(way, f"{ms:.2f}", f"{ms / ways['one gather']:.1f}x") for way, ms in ways.items()]
    minutes = result.get("six_runs_minutes_without_evaluation", {})
    return [
        "# A training step from scratch against the usual loop",
        "",
        f"Measured by `python benchmarks/scratch_step.py` on {harness.machine_line(result['machine'])}, torch",
        f"{result['torch']}. Batch 128, ms a step, medians of interleaved rounds, each way in a process of its own",
        "(ratio to the usual loop, its range over the rounds).",
        "",
        *harness.table(["", "on", "usual loop", *VARIANTS], steps),
        "",
        "Scoring 5,000 images, its share of a run, that of the eleven scorings of a run, and the largest difference to",
        "the usual loop's losses over 20 steps:",
        "",
        *harness.table(["", "variant", "scoring, s", "of a run", "eleven of a run", "losses differ by"], more),
        "",
        "Augmentation of a batch of 128, its draws included:",
        "",
        *harness.table(["way", "ms", "to one gather"], speeds),
        "",
        "The steps of the article's six runs, in minutes at this rate: "
        + ", ".join(f"{variant} {m:.0f}" for variant, m in minutes.items()),
    ]


def main(config: Config) -> None:
    data = material()
    result = harness.Results("scratch_step", report, models={})
    for entry in result["models"].values():  # those that are kept were measured on the machine of before
        entry.setdefault("machine", harness.machine_line(result["machine"]))
    result |= {**harness.here(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    result["augmentation_ms"] = augmentation(data.train.images)
    print("augmentation of 128 images, ms:", result["augmentation_ms"])
    for name in config.models:
        result["models"][name] = measure(name, config.rounds, data)
    if all(name in result["models"] for name in NAMES):
        for variant in VARIANTS:
            steps = sum(result["models"][n]["step_ms"][variant] for n in NAMES) / 1e3
            result.setdefault("six_runs_minutes_without_evaluation", {})[variant] = round(3 * 2500 * steps / 60, 1)
    print("\n".join(report(result)))
    result.write()


if __name__ == "__main__":
    cli.run(main, Config)
