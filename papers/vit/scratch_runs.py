"""All runs of one experiment: which there are, what they will cost, training them one after another or one a rank."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from papers.vit.scratch_checkpoint import only_start
from papers.vit.scratch_data import Arrays, TrainingData, prepare
from papers.vit.scratch_files import curve_file, read_curve
from papers.vit.scratch_recipe import Recipe, Run
from papers.vit.scratch_train import Trainer, finished_curve, identity, settled_curve, train
from shared.device import Choice, choose, rank_and_world, require_compiler

TIMED_STEPS = 20
FORWARD_SHARE = 0.31  # of a step: a forward pass in evaluation mode on as many images (measured on two cores)


def recipe_of(config: Any) -> Recipe:
    """The recipe that a script's options make; what is no option stays the article's."""
    return Recipe(**{key: getattr(config, key) for key in vars(Recipe()) if hasattr(config, key)})


def device_of(config: Any) -> Choice:
    """Where a script's `device` and `variant` train. UserError if the variant is compiled and nothing can compile."""
    choice = choose(config.device, "bf16" if config.variant.startswith("bf16") else "fp32")
    if config.variant.endswith("compiled") and choice.device.type == "cpu" and config.train:
        require_compiler(f"--variant {config.variant}")
    return choice


def plan(models: tuple[str, ...], sizes: tuple[int, ...], seeds: int, variant: str) -> list[Run]:
    """Every run, the first seed's first; sizes and models in the order given."""
    return [Run(m, n, s, variant) for s in range(seeds) for n in sizes for m in models]


@dataclass
class Bench:
    """What the runs of an experiment share: images on the CPU, recipe, device and the folder of their files.

    `until`: the validation step at which every run stops, if not at the recipe's last.
    """

    train: Arrays
    test: Arrays
    recipe: Recipe
    device: torch.device
    folder: Path
    until: int | None = None
    _last: tuple[tuple[int, int], TrainingData] | None = field(default=None, init=False, repr=False)

    def data(self, run: Run) -> TrainingData:
        """A run's images. Both networks of a cell use the same, so the last ones are kept."""
        cell = (run.size, run.seed)
        if self._last is None or self._last[0] != cell:
            validation = self.recipe.validation
            self._last = (
                cell,
                prepare(self.train, self.test, size=run.size, seed=run.seed, validation=validation, device=self.device),
            )
        return self._last[1]

    def finished(self, run: Run) -> dict[str, Any] | None:
        """The curve of a finished run; UserError if the file in its place is of another configuration."""
        path = curve_file(self.folder, run)
        return finished_curve(path, identity(run, self.recipe, self.data(run))) if path.exists() else None

    def settled(self, run: Run) -> bool:
        """Whether nothing is left to train: the run is finished, or has reached `until`."""
        path = curve_file(self.folder, run)
        return path.exists() and bool(settled_curve(path, identity(run, self.recipe, self.data(run)), self.until))


def estimate(bench: Bench, runs: list[Run]) -> float:
    """Seconds that `runs` will take on this machine: 20 timed steps of each network, validation counted on top.

    The timed networks are thrown away, so the runs do not depend on whether anybody asked.
    """
    seconds = {}
    for run in {run.model: run for run in runs}.values():
        trainer = Trainer(run, dataclasses.replace(bench.recipe, steps=TIMED_STEPS + 3), bench.data(run), bench.device)
        times = []
        for _ in range(TIMED_STEPS + 3):
            started = time.perf_counter()
            trainer.step()
            trainer.fetch()  # waits for the device
            times.append(time.perf_counter() - started)
        seconds[run.model] = statistics.median(times[3:])
    recipe, last = bench.recipe, bench.until or bench.recipe.steps
    scored = sum(recipe.validates(step) for step in range(1, last + 1)) * recipe.validation
    scored += (len(bench.test) - recipe.validation) * (last == recipe.steps)
    steps = last + FORWARD_SHARE * scored / recipe.batch
    return sum(seconds[run.model] * steps for run in runs)


def announce(bench: Bench, todo: list[Run], world: int) -> None:
    """Say on stderr how long `todo` will take."""
    seconds, steps = estimate(bench, todo[::world]), bench.until or bench.recipe.steps
    print(
        f"about {words(seconds)} for {len(todo)} run{'s' * (len(todo) > 1)} of {steps:,} steps"
        + (f" on {world} ranks" if world > 1 else "")
        + f" ({TIMED_STEPS} steps timed); stop at any time, the same command goes on",
        file=sys.stderr,
    )


def words(seconds: float) -> str:
    """ "45 seconds", "12 minutes", "3.4 hours"."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


@contextlib.contextmanager
def ranks(folder: Path) -> Iterator[tuple[int, int]]:
    """(rank, world) under torchrun, (0, 1) without it; the folder is this start's alone while inside.

    Rank 0 takes the lock before any rank trains, and goes on after the others only when all of them are done.
    """
    rank, world = rank_and_world()
    lock = only_start(folder) if rank == 0 else contextlib.nullcontext()
    with lock:
        if world == 1:
            yield rank, world
            return
        from datetime import timedelta

        from torch import distributed

        # a run may take hours more than another rank's
        distributed.init_process_group("gloo", timeout=timedelta(days=7))
        try:
            yield rank, world
            distributed.barrier()
        finally:
            distributed.destroy_process_group()


def train_all(bench: Bench, runs: list[Run], *, show_estimate: bool) -> list[Run]:
    """Train what is not finished; returns the runs that were found finished. Progress goes to the terminal's stderr."""
    with ranks(bench.folder) as (rank, world):
        done = [run for run in runs if bench.settled(run)]
        todo = [run for run in runs if run not in done]
        if todo and rank == 0 and show_estimate:
            announce(bench, todo, world)
        for run in todo[rank::world]:
            train_one(Trainer(run, bench.recipe, bench.data(run), bench.device), bench.folder, bench.until)
    return done


def time_line(run: Run, starts: list[dict[str, Any]]) -> str:
    """How long a run trained, over all its starts, and where."""
    if not starts:
        return f"  {run.name:<28} (no note of the machine)"
    seconds, scoring = (sum(s[key] for s in starts) for key in ("seconds", "evaluation_seconds"))
    where = ", ".join(sorted({f"{s['device']} ({s['threads']} thread{'s' * (s['threads'] > 1)})" for s in starts}))
    return (
        f"  {run.name:<28} {words(seconds)} on {where}; validation took {100 * scoring / max(seconds, 0.1):.1f} %"
        + (f"; {len(starts)} starts" if len(starts) > 1 else "")
    )


def unfinished_line(folder: Path, run: Run, until: int | None = None) -> str:
    """How far a run came that has no result: its verdict stays `not run`."""
    path = curve_file(folder, run)
    if not path.exists():
        return f"  {run.name:<28} not run"
    curve = read_curve(path)
    best = 100 * curve["best"]["correct"] / curve["validation_images"]
    return (
        f"  {run.name:<28} not finished: step {curve['validations'][-1]['step']:,} of {curve['identity']['steps']:,}, "
        f"{best:.1f}% so far; the same command {'without --until ' if until else ''}goes on"
    )


def train_one(trainer: Trainer, folder: Path, until: int | None = None) -> dict[str, Any]:
    """One run under a progress bar: step, loss, last accuracy, time left. Returns its curve."""
    name = f"{trainer.run.name} {trainer.change}".rstrip()
    with tqdm(total=until or trainer.recipe.steps, desc=name, unit="step", disable=None, leave=False) as bar:
        shown: dict[str, str] = {}

        def observe(done: int, loss: float, accuracy: float | None) -> None:
            shown["loss"] = f"{loss:.3f}"
            if accuracy is not None:
                shown["accuracy"] = f"{accuracy:.1f}%"
            bar.set_postfix(shown, refresh=False)
            bar.update(done - bar.n)

        return train(trainer, folder, observe, until)
