"""Train a network on images: one run, which goes on after a kill; then all runs of an experiment.

Here are the loop, the validations, the checkpoint, and the order of the runs. The recipe is in runs.py, the networks
are in networks.py, the images and their order in stream.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import math
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tqdm import tqdm

from papers.vit.part4 import networks, runs, stream
from papers.vit.part4.networks import FACTORS, Factor
from papers.vit.part4.runs import Curve, Recipe, Run
from papers.vit.part4.stream import Arrays, TrainingData
from shared import paths
from shared.device import rank_and_world
from shared.errors import UserError
from shared.provenance import git_state, machine
from shared.text import notice

# Images a forward pass in evaluation: as many as an accelerator is kept busy by; on a CPU as many as leave the
# activations in memory that the allocator has at hand (ViT 1.4x, ResNet 1.6x quicker than 500 a pass on two cores).
CPU_EVALUATION_BATCH, EVALUATION_BATCH = 125, 1000
MAGIC = b"scratch1"  # a checkpoint starts with it; then sha256 of the rest, then torch.save's bytes
KEPT = ("done", "losses", "validations", "best")  # of a trainer, in its checkpoint, besides network and optimiser
TIMED_STEPS, UNTIMED_STEPS = 20, 3
FORWARD_SHARE = 0.31  # of a step: a forward pass in evaluation mode on as many images (measured on two cores)


class NotFinite(UserError):
    """The loss became NaN or infinite; the message names the step and the last good checkpoint."""


class Trainer:
    """The state of one run: network, optimiser, updates done, losses, validations and the best weights so far."""

    def __init__(
        self, run: Run, recipe: Recipe, data: TrainingData, device: torch.device, factor: Factor | None = None
    ) -> None:
        """`data`: as the run's change makes them; `factor`: another change than the run's own."""
        if run.variant not in runs.VARIANTS:
            raise UserError(f"variant {run.variant!r} is unknown; choose from {', '.join(runs.VARIANTS)}")
        factor = factor or FACTORS[run.change or runs.PLAIN]
        self.run, self.recipe, self.data, self.device, self.augment = run, recipe, data, device, factor.augment
        # A convolution's fast kernels want the channel as the innermost axis; the ViT has a single convolution.
        self.layout = torch.channels_last if run.model == "ResNet" else torch.contiguous_format
        which = {"classes": data.classes, "image_size": recipe.image_size, "seed": run.seed}
        model = networks.build(run.model, **which, attention=networks.attention_code(run, device))
        for change in factor.init:
            change(model, run.seed)
        self.model = model.to(device=device, memory_format=self.layout)
        compiled = networks.compiles(run, device)
        self.forward = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.optimizer = factor.optimizer(self.model, recipe)
        self.mean = torch.tensor(data.mean, device=device).view(1, -1, 1, 1)
        self.std = torch.tensor(data.std, device=device).view(1, -1, 1, 1)
        self.done = 0
        self.losses: list[float] = []
        self.pending: list[torch.Tensor] = []  # losses not yet fetched from the device
        self.validations: list[dict[str, int]] = []
        self.best: dict[str, Any] | None = None  # {"step", "correct", "weights"}

    def autocast(self) -> contextlib.AbstractContextManager:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.run.variant.startswith("bf16"))

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 [B, 3, S, S] -> float32 of mean 0 and deviation 1 over the training images."""
        return ((images.float() / 255 - self.mean) / self.std).contiguous(memory_format=self.layout)

    def step(self) -> torch.Tensor:
        """One update; returns the loss (a scalar on the device) without waiting for it."""
        recipe, train = self.recipe, self.data.train
        # order, crops and flips are drawn from (seed, step): a run that goes on needs no state of a generator
        positions = stream.batch_positions(len(train), self.done, recipe.batch, self.run.seed)
        batch = train.take(positions)
        draws = stream.draw_augmentation(self.done, recipe.batch, self.run.seed, recipe.pad)
        images = self.normalise(self.augment(batch.images, draws, recipe.pad))
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate(self.done)
        self.model.train()
        with self.autocast():
            loss = F.cross_entropy(self.forward(images).float(), batch.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.done += 1
        self.pending.append(loss.detach())  # asking for its value now would make the host wait for the device
        return self.pending[-1]

    def fetch(self, checkpoint: str = "none yet") -> float:
        """Move pending losses to the list; raises NotFinite naming the first bad step."""
        for value in torch.stack(self.pending).tolist() if self.pending else []:
            if not math.isfinite(value):
                raise NotFinite(
                    f"{self.run.name}: the loss is {value} at step {len(self.losses) + 1}; "
                    f"the last good checkpoint is {checkpoint}; lower the learning rate or try the float32 variant"
                )
            self.losses.append(value)
        self.pending.clear()
        return self.losses[-1]

    @torch.inference_mode()
    def correct(self, arrays: Arrays) -> int:
        """How many images the network names correctly, in evaluation mode."""
        self.model.eval()
        hits = torch.zeros((), dtype=torch.int64, device=self.device)
        batch = CPU_EVALUATION_BATCH if self.device.type == "cpu" else EVALUATION_BATCH
        with self.autocast():
            for images, labels in zip(arrays.images.split(batch), arrays.labels.split(batch), strict=True):
                hits += (self.forward(self.normalise(images)).argmax(1) == labels).sum()
        return int(hits)

    def validate(self) -> float:
        """Score the validation images; keeps the weights if they are the best (of equals the first). Returns %."""
        correct = self.correct(self.data.validation)
        self.validations.append({"step": self.done, "correct": correct})
        if self.best is None or correct > self.best["correct"]:
            weights = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}
            self.best = {"step": self.done, "correct": correct, "weights": weights}
        return 100 * correct / len(self.data.validation)

    def held_out_correct(self) -> int:
        """Score of the kept weights on images that chose nothing. The network holds those weights afterwards."""
        assert self.best is not None
        self.model.load_state_dict(self.best["weights"])
        return self.correct(self.data.held_out)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds: tensors and plain values."""
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return parts | {key: getattr(self, key) for key in KEPT}

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        vars(self).update({key: state[key] for key in KEPT})

    def curve(self, identity: dict[str, Any], held_out_correct: int | None) -> Curve:
        """What the run has left so far; `held_out_correct` is None while it trains."""
        assert self.best is not None
        return Curve(
            schema=1,
            identity=identity,
            complete=held_out_correct is not None,
            validation_images=len(self.data.validation),
            held_out_images=len(self.data.held_out),
            validations=[runs.Validation(**v) for v in self.validations],
            best=runs.Best(self.best["step"], self.best["correct"], held_out_correct),
            losses=[float(f"{x:.7g}") for x in self.losses],  # seven digits hold a float32
        )


def identity(run: Run, recipe: Recipe, data: TrainingData) -> dict[str, Any]:
    """Everything that a run's numbers depend on besides the machine; a file of another identity is refused."""
    images = {"mean": list(data.mean), "std": list(data.std), "classes": data.classes}
    digests = {f"{part}_sha256": digest for part, digest in data.fingerprints.items()}
    which = {key: value for key, value in asdict(run).items() if key != "change"}
    return ({"change": run.change} if run.changed else {}) | which | asdict(recipe) | images | digests


def train(trainer: Trainer, folder: Path, until: int | None = None) -> Curve:
    """Train to the end under a progress bar, from the checkpoint if there is one; returns (and leaves in `folder`)
    the run's curve.

    A finished run of the same identity is read, not repeated. `until`: stop at this validation step; the run stays
    unfinished and can be gone on with. Raises UserError for files that are damaged or belong to another configuration,
    NotFinite when the loss is no longer a number.
    """
    run, recipe = trainer.run, trainer.recipe
    who = identity(run, recipe, trainer.data)
    path, note, checkpoint = run.curve_file(folder), run.machine_file(folder), run.checkpoint_file(folder)
    earlier = Curve.of(path, who)
    if earlier and earlier.done(until):
        return earlier
    if state := load_checkpoint(checkpoint, who):
        trainer.restore(state)
    starts = runs.read_starts(note)
    date, clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.perf_counter()
    first, scoring = trainer.done, 0.0  # scoring: seconds that the validations took
    git = git_state()  # now: the files may change while it trains
    commit = f"{git['commit']}{' with uncommitted changes' * bool(git['dirty'])}" if git["commit"] else ""

    def save(curve: Curve) -> Curve:
        seconds = round(time.perf_counter() - clock, 1), round(scoring, 1)
        where = trainer.device
        where = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
        which = torch.__version__, machine()["processor"], commit
        start = runs.Start(date, first, trainer.done, *seconds, where, torch.get_num_threads(), *which)
        runs.write_json(path, curve)
        runs.write_json(note, runs.MachineNote(1, [*starts, start]))
        return curve

    # a wait for the device at every step costs time there; a CPU has computed the loss when `step` returns
    fetch_every = 1 if trainer.device.type == "cpu" else 25
    last, shown = until or recipe.steps, {}
    title = f"{run.name} {run.change}".rstrip()
    with tqdm(total=last, initial=first, desc=title, unit="step", disable=None, leave=False) as bar:
        while trainer.done < last:
            trainer.step()
            validates = recipe.validates(trainer.done)
            if not validates and trainer.done % fetch_every:
                continue
            good = f"{checkpoint} (step {trainer.validations[-1]['step']})" if trainer.validations else "none yet"
            shown["loss"] = f"{trainer.fetch(good):.3f}"
            if validates:
                started = time.perf_counter()
                shown["accuracy"] = f"{trainer.validate():.1f}%"
                scoring += time.perf_counter() - started
                # the checkpoint first: a curve that is ahead of it could not be gone on with
                save_checkpoint(checkpoint, {"identity": who, **trainer.state()})
                save(trainer.curve(who, None))
            bar.set_postfix(shown, refresh=False)
            bar.update(trainer.done - bar.n)
    if trainer.done < recipe.steps:
        return trainer.curve(who, None)
    result = save(trainer.curve(who, trainer.held_out_correct()))
    checkpoint.unlink(missing_ok=True)
    return result


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors and plain values) so that damage is noticed on reading."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    paths.atomic_write(path, MAGIC + hashlib.sha256(payload).digest() + payload)


def load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The state saved at `path`, on the CPU; None if there is none yet.

    Raises UserError for a damaged file, and for one of another configuration (`identity`), naming what differs.
    """
    if not path.exists():
        return None
    data = path.read_bytes()
    head, payload = data[: len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    if head != MAGIC + hashlib.sha256(payload).digest():
        raise UserError(
            f"{path}: this checkpoint is damaged (its checksum does not fit); delete it to train the run anew"
        )
    state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    runs.require_same(path, state["identity"], identity)
    return state


# all runs of an experiment -------------------------------------------------------------------------------------------


@dataclass
class Experiment:
    """Runs, and what they share: images on the CPU, recipe, device and the folder of their files.

    until: the validation step at which every run stops, if not at the recipe's last.
    """

    runs: list[Run]
    train: Arrays
    test: Arrays
    recipe: Recipe
    device: torch.device
    folder: Path
    until: int | None = None
    kept: tuple = (None, None)
    identities: dict[Run, dict[str, Any]] = field(default_factory=dict)

    def data(self, run: Run) -> TrainingData:
        """Images of the run, as its change makes them; the last ones before a change are kept."""
        key = run.size, run.seed
        if self.kept[0] != key:
            which = {"size": run.size, "seed": run.seed, "validation": self.recipe.validation}
            self.kept = key, stream.prepare(self.train, self.test, **which, device=self.device)
        return FACTORS[run.change or runs.PLAIN].images(self.kept[1])

    @property
    def classes(self) -> int:
        return len(self.train.names)

    def curve(self, run: Run) -> Curve | None:
        """What a run has left so far; UserError if the file in its place is damaged or of another configuration."""
        if run not in self.identities:
            self.identities[run] = identity(run, self.recipe, self.data(run))
        return Curve.of(run.curve_file(self.folder), self.identities[run])

    def finished(self) -> dict[Run, Curve]:
        """The curves of the complete runs."""
        return {run: curve for run in self.runs if (curve := self.curve(run)) and curve.complete}

    def estimate(self, todo: list[Run]) -> float:
        """Seconds for the runs `todo` on this machine: 20 timed steps of each network, validation counted on top.

        The timed networks are thrown away, so the runs do not depend on whether anybody asked.
        """
        seconds, count = {}, UNTIMED_STEPS + TIMED_STEPS
        for run in {run.model: dataclasses.replace(run, change="") for run in todo}.values():
            recipe = dataclasses.replace(self.recipe, steps=count)
            trainer = Trainer(run, recipe, self.data(run), self.device)
            times = []
            for _ in range(count):
                started = time.perf_counter()
                trainer.step()
                trainer.fetch()  # waits for the device
                times.append(time.perf_counter() - started)
            seconds[run.model] = statistics.median(times[UNTIMED_STEPS:])
        recipe, last = self.recipe, self.until or self.recipe.steps
        scored = sum(recipe.validates(step) for step in range(1, last + 1)) * recipe.validation
        scored += (len(self.test) - recipe.validation) * (last == recipe.steps)
        steps = last + FORWARD_SHARE * scored / recipe.batch
        return sum(seconds[run.model] * steps for run in todo)

    def train_all(self, show_estimate: bool) -> tuple[list[Run], dict[Run, str]]:
        """Train what is not done. Returns the runs that were done before, and the changes that failed, with the reason.

        Progress goes to the terminal's stderr. What a change does to the training is a result, so after a loss that is
        no number the others go on; without a change it is an error.
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
            for run in todo[rank::world]:
                try:
                    train(Trainer(run, self.recipe, self.data(run), self.device), self.folder, self.until)
                except NotFinite as error:
                    if not run.change:
                        raise
                    failed[run] = str(error).partition("; the last")[0]
        return before, failed

    def line(self, run: Run) -> str:
        """How long a finished run trained, over all its starts, and where; or how far an unfinished one came."""
        curve = self.curve(run)
        if curve is None:
            return f"{run.name:<28} not run"
        if not curve.complete:
            return (
                f"{run.name:<28} not finished: step {curve.last_step:,} of {curve.steps:,}, {curve.best_accuracy:.1f}% "
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


def duration(seconds: float) -> str:
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
