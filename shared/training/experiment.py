"""All runs of a script: what they will cost, in which order, in one process or (under torchrun) in several.

A paper's own is a subclass: which images a run has, and what trains it.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch

from shared import paths
from shared.device import Choice, choose, rank_and_world, require_compiler
from shared.errors import UserError
from shared.progress import duration
from shared.text import notice
from shared.training import runs
from shared.training.runs import Curve, RunFiles, Variant
from shared.training.trainer import NotFinite, Recipe, Trainer, train

TIMED_STEPS, UNTIMED_STEPS = 20, 3
FORWARD_SHARE = 0.31  # of a step: a forward pass in evaluation mode on as many images (measured on two cores)
R = TypeVar("R", bound=RunFiles)


@dataclass(kw_only=True)
class Experiment(Generic[R]):
    """Runs, and what they share: recipe, device and the folder of their files.

    until: the step, one with a score, at which every run stops, if not at the recipe's last.
    """

    curve_type: ClassVar[type[Curve]]

    runs: list[R]
    recipe: Recipe
    device: torch.device
    folder: Path
    until: int | None = None
    identities: dict[R, dict[str, Any]] = field(default_factory=dict)

    # what a paper says ----------------------------------------------------------------------------------------------

    def trainer(self, run: R, recipe: Recipe | None = None) -> Trainer:
        """A fresh one; `recipe` in place of the experiment's, for a trial."""
        raise NotImplementedError

    def identity(self, run: R) -> dict[str, Any]:
        """That of the run's trainer, without making it."""
        raise NotImplementedError

    def scored(self, last: int) -> int:
        """Images that all scores of a run take up to the step `last`."""
        raise NotImplementedError

    def timed(self, run: R) -> R:
        """The run that is timed in its place."""
        return run

    def may_fail(self, run: R) -> bool:
        """Whether a loss that is no number is a result of this run; else it is an error."""
        return False

    # ----------------------------------------------------------------------------------------------------------------

    def curve(self, run: R) -> Any:
        """What a run has left so far; UserError if the file in its place is damaged or of another configuration."""
        if run not in self.identities:
            self.identities[run] = self.identity(run)
        return self.curve_type.of(run.curve_file(self.folder), self.identities[run])

    def finished(self) -> dict[R, Any]:
        """The curves of the complete runs."""
        return {run: curve for run in self.runs if (curve := self.curve(run)) and curve.complete}

    def estimate(self, todo: list[R]) -> float:
        """Seconds for the runs `todo` on this machine: 20 timed steps of each network, the scores counted on top.

        The timed networks are thrown away, so the runs do not depend on whether anybody asked.
        """
        seconds, count = {}, UNTIMED_STEPS + TIMED_STEPS
        for run in {run.model: self.timed(run) for run in todo}.values():
            trainer = self.trainer(run, replace(self.recipe, steps=count))
            times = []
            for _ in range(count):
                started = time.perf_counter()
                trainer.step()
                trainer.fetch()  # waits for the device
                times.append(time.perf_counter() - started)
            seconds[run.model] = statistics.median(times[UNTIMED_STEPS:])
        last = self.until or self.recipe.steps
        steps = last + FORWARD_SHARE * self.scored(last) / self.recipe.batch
        return sum(seconds[run.model] * steps for run in todo)

    def train_all(self, show_estimate: bool) -> tuple[list[R], dict[R, str]]:
        """Train what is not done. Returns the runs that were done before, and the runs that failed, with the reason.

        How far it is goes to stderr. After a loss that is no number the others go on where it is a result,
        see `may_fail`.
        """
        before, failed = [], {}
        with ranks(self.folder) as (rank, world):
            before = [run for run in self.runs if (curve := self.curve(run)) and curve.done(self.until)]
            todo = [run for run in self.runs if run not in before]
            if todo and rank == 0 and show_estimate:
                notice(
                    f"about {duration(self.estimate(todo[::world]))} for {len(todo)} run{'s' * (len(todo) > 1)} of "
                    f"{self.until or self.recipe.steps:,} steps{f' on {world} ranks' * (world > 1)} "
                    f"({TIMED_STEPS} steps timed); stop at any time, the same command goes on"
                )
            own = todo[rank::world]
            for at, run in enumerate(own, 1):
                which = {"lead": f"run {todo.index(run) + 1} of {len(todo)}"}
                # of every step's cost this run's is known: the networks of one experiment cost about the same
                which["later"] = (len(own) - at) * (self.until or self.recipe.steps)
                try:
                    train(self.trainer(run), self.folder, self.until, **which)
                except NotFinite as error:
                    if not self.may_fail(run):
                        raise
                    failed[run] = str(error).partition("; the last")[0]
        return before, failed

    def line(self, run: R) -> str:
        """How long a finished run trained, over all its starts, and where; or how far an unfinished one came."""
        curve = self.curve(run)
        if curve is None:
            return f"{run.name:<28} not run"
        if not curve.complete:
            return (
                f"{run.name:<28} not finished: step {curve.last_step:,} of {curve.steps:,}, {curve.so_far} "
                f"so far; the same command {'without --until ' if self.until else ''}goes on"
            )
        starts = runs.read_starts(run.machine_file(self.folder))
        if not starts:
            return f"{run.name:<28} (no note of the machine)"
        seconds, scoring = sum(s.seconds for s in starts), sum(s.evaluation_seconds for s in starts)
        where = ", ".join(sorted({f"{s.device} ({s.threads} thread{'s' * (s.threads > 1)})" for s in starts}))
        share = f"validation took {100 * scoring / max(seconds, 0.1):.1f} %"
        several = f"; {len(starts)} starts" * (len(starts) > 1)
        return f"{run.name:<28} {duration(seconds)} on {where}; {share}{several}"


def arithmetic(variant: str, device: str, *, training: bool) -> tuple[Choice, Variant]:
    """Where and how to compute, of the options --device and --variant; the choice says why.

    "auto": bf16 where the processor has units for it, else float32; compiled where there is a compiler (not on MPS).
    training: whether anything will be compiled. UserError where a compiler was asked for and is not there.
    """
    if variant != "auto":
        choice = choose(device, "bf16" if variant.startswith("bf16") else "fp32")
        if variant.endswith("compiled") and choice.device.type == "cpu" and training:
            require_compiler(f"--variant {variant}")
        return choice, variant
    choice = choose(device)
    if choice.device.type == "cuda":  # autocast to float16 would need the loss scaled
        choice = choose(device, "bf16" if torch.cuda.is_bf16_supported() else "fp32")
    compiled, why = "-compiled", "compiled: a C++ compiler is there"
    try:
        require_compiler("--variant auto")
    except UserError:
        compiled, why = "", "not compiled: no C++ compiler was found"
    if choice.device.type == "mps":
        compiled, why = "", "not compiled: on MPS"
    bf16 = choice.dtype is torch.bfloat16
    return replace(choice, reason=f"{choice.reason}; {why}"), f"{'bf16' if bf16 else 'float32'}{compiled}"


@contextlib.contextmanager
def ranks(folder: Path) -> Iterator[tuple[int, int]]:
    """(rank, world) under torchrun, (0, 1) without it; the folder is this start's alone while inside.

    Rank 0 takes the lock before any rank trains, and goes on after the others only when all of them are done.
    """
    rank, world = rank_and_world()
    with only_start(folder) if rank == 0 else contextlib.nullcontext():
        if world > 1:  # a run may take hours more than another rank's
            torch.distributed.init_process_group("gloo", timeout=timedelta(days=7))
        try:
            yield rank, world
            if world > 1:
                torch.distributed.barrier()
        finally:
            if world > 1:
                torch.distributed.destroy_process_group()


@contextlib.contextmanager
def only_start(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process. A second start on it raises UserError; a killed one leaves nothing behind."""
    path = folder / "checkpoints" / "lock"  # beside what is no evidence either and stays out of version control
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise paths.not_writable(path, error) from None
    with opened as file:
        try:
            if not paths.lock(file):
                file.seek(0)
                who = file.read().strip() or "process unknown"
                way_out = "wait for it or choose another --results"
                raise UserError(f"{folder}: another start ({who}) is training into this folder; {way_out}")
        except OSError as error:  # training needs no lock, two starts at once do
            notice(f"{path}: {error.strerror}: nothing keeps a second start from training into this folder")
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield
