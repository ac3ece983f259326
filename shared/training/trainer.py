"""Train a network on images: one run, which goes on after a kill and ends with the same bytes on the CPU.

Here are the update, the loop and the checkpoint. What is trained, with which recipe, what is scored and what the curve
holds is a paper's own: a subclass of `Trainer`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import nn

from shared import paths
from shared.errors import UserError
from shared.progress import Progress
from shared.provenance import git_state, machine
from shared.training import runs, stream
from shared.training.runs import Curve, RunFiles
from shared.training.stream import Arrays, Augmentation, TrainingData

# Images per forward pass in evaluation: as many as an accelerator is kept busy by; on a CPU as many as leave the
# activations in memory that the allocator has at hand (ViT 1.4x, ResNet 1.6x quicker than 500 a pass on two cores).
CPU_EVALUATION_BATCH, EVALUATION_BATCH = 125, 1000
MAGIC = b"scratch1"  # a checkpoint starts with it; then sha256 of the rest, then torch.save's bytes
Augment = Callable[[torch.Tensor, Augmentation, int], torch.Tensor]


class NotFinite(UserError):
    """The loss became NaN or infinite; the message names the step and the last good checkpoint."""


class Recipe(Protocol):
    """What of a paper's recipe the loop reads; each has more. Counts are of updates and of images."""

    steps: int
    batch: int
    pad: int

    def validates(self, done: int) -> bool:
        """Whether the network is scored, and a checkpoint written, after `done` updates."""


class Trainer:
    """The state of one run: network, optimiser, updates done and losses so far.

    A subclass says what is scored (`score`), what the run leaves (`curve`) and what makes it that run (`identity`); it
    may have a rule of its own for the learning rate, for a batch on its way into the network, or count what comes out.
    """

    curve_type: ClassVar[type[Curve]]
    # of a trainer, in its checkpoint, besides network and optimiser: plain values
    KEPT: ClassVar[tuple[str, ...]] = ("done", "losses")

    def __init__(
        self,
        run: RunFiles,
        recipe: Recipe,
        data: TrainingData,
        device: torch.device,
        model: nn.Module,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer],
        *,
        augment: Augment = stream.crop_flip,
        layout: torch.memory_format = torch.contiguous_format,
        compiled: bool = False,
    ) -> None:
        """model: fresh, on the CPU; optimizer: makes it once the model is on the device."""
        if run.variant not in runs.VARIANTS:
            raise UserError(f"variant {run.variant!r} is unknown; choose from {', '.join(runs.VARIANTS)}")
        self.run, self.recipe, self.data, self.device = run, recipe, data, device
        self.augment, self.layout = augment, layout
        self.model = model.to(device=device, memory_format=layout)
        self.forward = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.optimizer = optimizer(self.model)
        self.mean, self.std = (_over_pixels(values, device) for values in (data.mean, data.std))
        self.done = 0
        self.losses: list[float] = []
        self.pending: list[torch.Tensor] = []  # losses not yet fetched from the device

    # what a paper says ----------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """Everything that the run's numbers depend on besides the machine; a file of another identity is refused."""
        raise NotImplementedError

    def score(self) -> dict[str, str]:
        """Score the network as it is and keep the numbers; returns words for the progress bar."""
        raise NotImplementedError

    def curve(self, identity: dict[str, Any], complete: bool) -> Curve:
        """What the run has left so far. complete: it is over; what is scored once, at the end, is scored now."""
        raise NotImplementedError

    def rate(self) -> float:
        """The learning rate of the next update."""
        return self.recipe.rate(self.done)

    def inputs(self, images: torch.Tensor, draws: Augmentation) -> torch.Tensor:
        """uint8 [B, 3, S, S] of a batch -> float32 as the network trains on them."""
        return self.normalise(self.augment(images, draws, self.recipe.pad))

    def observe(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Called with what the network said of a batch in training (float32 [B, classes]), to count in it."""

    # ----------------------------------------------------------------------------------------------------------------

    def autocast(self) -> contextlib.AbstractContextManager:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.run.variant.startswith("bf16"))

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 [B, 3, S, S] -> float32, (pixel / 255 - mean) / deviation."""
        return ((images.float() / 255 - self.mean) / self.std).contiguous(memory_format=self.layout)

    def step(self) -> torch.Tensor:
        """One update; returns the loss (a scalar on the device) without waiting for it."""
        recipe, train = self.recipe, self.data.train
        # order, crops and flips are drawn from (seed, step): a run that goes on needs no state of a generator
        positions = stream.batch_positions(len(train), self.done, recipe.batch, self.run.seed)
        batch = train.take(positions)
        draws = stream.draw_augmentation(self.done, recipe.batch, self.run.seed, recipe.pad)
        images = self.inputs(batch.images, draws)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.model.train()
        with self.autocast():
            logits = self.forward(images).float()
            loss = F.cross_entropy(logits, batch.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.done += 1
        self.observe(logits.detach(), batch.labels)
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

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds: tensors and plain values."""
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return parts | {key: getattr(self, key) for key in self.KEPT}

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        vars(self).update({key: state[key] for key in self.KEPT})


def _over_pixels(values: tuple[float, ...] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """One number per channel, or float32 [3, S, S], as what broadcasts over [B, 3, S, S]."""
    constants = torch.as_tensor(values, dtype=torch.float32, device=device)
    return constants.view(-1, 1, 1) if constants.ndim == 1 else constants


def train(trainer: Trainer, folder: Path, until: int | None = None, *, lead: str = "", later: int = 0) -> Curve:
    """Train to the end, from the checkpoint if there is one; returns (and leaves in `folder`) the run's curve.

    A finished run of the same identity is read, not repeated. `until`: stop at this step, one with a score; the run
    stays unfinished and can be gone on with. lead, later: as of `Progress`, which run this is and the steps of the runs
    after it. Raises UserError for files that are damaged or belong to another configuration, NotFinite when the loss is
    no longer a number.
    """
    run, recipe, who = trainer.run, trainer.recipe, trainer.identity()
    path, note, checkpoint = run.curve_file(folder), run.machine_file(folder), run.checkpoint_file(folder)
    earlier = trainer.curve_type.of(path, who)
    if earlier and earlier.done(until):
        return earlier
    if state := load_checkpoint(checkpoint, who):
        trainer.restore(state)
    starts = runs.read_starts(note)
    date, clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.perf_counter()
    first, saved, scoring = trainer.done, trainer.done, 0.0  # scoring: seconds that the scores took
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
    with Progress(run.title, last, "step", done=first, later=later, lead=lead) as progress:
        while trainer.done < last:
            trainer.step()
            validates = recipe.validates(trainer.done)
            if not validates and trainer.done % fetch_every:
                continue
            good = f"{checkpoint} (step {saved})" if saved else "none yet"
            shown["loss"] = f"{trainer.fetch(good):.3f}"
            if validates:
                started = time.perf_counter()
                shown |= trainer.score()
                scoring += time.perf_counter() - started
                # the checkpoint first: a curve that is ahead of it could not be gone on with
                save_checkpoint(checkpoint, {"identity": who, **trainer.state()})
                saved = trainer.done
                save(trainer.curve(who, complete=False))
            progress.step(trainer.done - progress.done, **shown)
    if trainer.done < recipe.steps:
        return trainer.curve(who, complete=False)
    result = save(trainer.curve(who, complete=True))
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
