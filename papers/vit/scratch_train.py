"""One run of the recipe of "Section 4.3 in miniature": train, validate, keep the best, go on after a kill.

Source: ViT, explained, Part 4: AdamW, lr 0.001, 250 warm-up steps then cosine to 0, weight decay 0.05, batch 128, 2,500
steps, random crop with 4 pixels of padding and flip; validation every 250 steps, the best kept. What the article does
not print is the plainest choice: decay on every parameter, no label smoothing, no gradient clipping, black padding.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from papers.vit import scratch_checkpoint, scratch_files, scratch_models
from papers.vit.scratch_data import Arrays, Augmentation, TrainingData, batch_positions, crop_flip, draw_augmentation
from papers.vit.scratch_recipe import VARIANTS, Recipe, Run
from shared.errors import UserError
from shared.models.fast import keep_freed_memory

# Images a forward pass in evaluation: as many as an accelerator is kept busy by; on a CPU as many as leave the
# activations in memory that the allocator has at hand (ViT 1.4x, ResNet 1.6x quicker than 500 a pass on two cores).
CPU_EVALUATION_BATCH, EVALUATION_BATCH = 125, 1000


class NotFinite(UserError):
    """The loss became NaN or infinite; the message names the step and the last good checkpoint."""


Augment = Callable[[torch.Tensor, Augmentation, int], torch.Tensor]
Observer = Callable[[int, float, float | None], None]  # (updates done, loss, validation accuracy in % or None)


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW over every parameter; the fused kernel changes the speed only."""
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)


def attention_code(run: Run, device: torch.device) -> str:
    """The faster attention: PyTorch's fused one, except for bf16 on a CPU, where its backward pass is slow."""
    return "eager" if device.type == "cpu" and run.variant.startswith("bf16") else "sdpa"


def compiles(run: Run, device: torch.device) -> bool:
    """Whether the network is compiled: in a compiled variant, except where it was measured to gain nothing."""
    gains_nothing = run.model == "ViT" and run.variant == "float32-compiled" and device.type == "cpu"
    return run.variant.endswith("compiled") and not gains_nothing


class Trainer:
    """The state of one run: network, optimiser, updates done, losses, validations and the best weights so far."""

    def __init__(
        self, run: Run, recipe: Recipe, data: TrainingData, device: torch.device, *,
        model: nn.Module | None = None,
        augment: Augment = crop_flip,
        optimizer: Callable[[nn.Module, Recipe], torch.optim.Optimizer] = adamw,
        change: str = "",
    ) -> None:  # fmt: skip
        """`model`, `augment`, `optimizer`: what departs from the recipe, which `change` then names."""
        if run.variant not in VARIANTS:
            raise UserError(f"variant {run.variant!r} is unknown; choose from {', '.join(VARIANTS)}")
        self.run, self.recipe, self.data, self.device, self.augment = run, recipe, data, device, augment
        self.change = change
        if device.type == "cpu":
            keep_freed_memory()  # each step asks for the same memory again
        self.model = model or scratch_models.build(
            run.model, classes=data.classes, image_size=recipe.image_size, seed=run.seed,
            attention=attention_code(run, device),
        )  # fmt: skip
        # A convolution's fast kernels want the channel as the innermost axis; the ViT has a single convolution.
        self.layout = torch.channels_last if run.model == "ResNet" else torch.contiguous_format
        self.model = self.model.to(device=device, memory_format=self.layout)
        self.forward = torch.compile(self.model, dynamic=False) if compiles(run, device) else self.model
        self.optimizer = optimizer(self.model, recipe)
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
        positions = batch_positions(len(train), self.done, recipe.batch, self.run.seed)
        batch = train.take(positions)
        draws = draw_augmentation(self.done, recipe.batch, self.run.seed, recipe.pad)
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
        self.pending.append(loss.detach())
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

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "losses": self.losses, "validations": self.validations, "best": self.best,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done, self.losses, self.best = state["done"], list(state["losses"]), state["best"]
        self.validations = list(state["validations"])

    def held_out_correct(self) -> int:
        """Score of the kept weights on images that chose nothing. The network holds those weights afterwards."""
        assert self.best is not None
        self.model.load_state_dict(self.best["weights"])
        return self.correct(self.data.held_out)


def identity(run: Run, recipe: Recipe, data: TrainingData, change: str = "") -> dict[str, Any]:
    """Everything that a run's numbers depend on besides the machine; a file of another identity is refused."""
    return {
        **({"change": change} if change else {}),
        **asdict(run), **asdict(recipe), "mean": list(data.mean), "std": list(data.std), "classes": data.classes,
        **{f"{part}_sha256": digest for part, digest in data.fingerprints.items()},
    }  # fmt: skip


def curve(trainer: Trainer, who: dict[str, Any], held_out: int | None) -> dict[str, Any]:
    """The content of a run's curve file; `held_out` is None while the run trains."""
    assert trainer.best is not None
    return {
        "schema": scratch_files.SCHEMA, "identity": who, "complete": held_out is not None,
        "validation_images": len(trainer.data.validation), "held_out_images": len(trainer.data.held_out),
        "validations": trainer.validations,
        "best": {"step": trainer.best["step"], "correct": trainer.best["correct"], "held_out_correct": held_out},
        # seven digits hold a float32
        "losses": [float(f"{x:.7g}") for x in trainer.losses],
    }  # fmt: skip


def train(
    trainer: Trainer,
    folder: Path,
    observe: Observer = lambda done, loss, accuracy: None,
    until: int | None = None,
) -> dict[str, Any]:
    """Train to the end, from the checkpoint if there is one; returns (and leaves in `folder`) the run's curve.

    A finished run of the same identity is read, not repeated. `until`: stop at this validation step; the run stays
    unfinished and can be gone on with. Raises UserError for files that are damaged or belong to another configuration,
    NotFinite when the loss is no longer a number.
    """
    run, recipe = trainer.run, trainer.recipe
    who = identity(run, recipe, trainer.data, trainer.change)
    curve_path, checkpoint = scratch_files.curve_file(folder, run), folder / "checkpoints" / f"{run.name}.ckpt"
    settled = settled_curve(curve_path, who, until)
    if settled:
        return settled
    state = scratch_checkpoint.load_checkpoint(checkpoint, who)
    if state:
        trainer.restore(state)
    machine = Machine(scratch_files.machine_file(folder, run), trainer)
    fetch_every = 1 if trainer.device.type == "cpu" else 25
    while trainer.done < (until or recipe.steps):
        trainer.step()
        validates = recipe.validates(trainer.done)
        if validates or trainer.done % fetch_every == 0:
            last = f"{checkpoint} (step {trainer.validations[-1]['step']})" if trainer.validations else "none yet"
            loss = trainer.fetch(last)
            started = time.perf_counter()
            accuracy = trainer.validate() if validates else None
            machine.evaluation_seconds += time.perf_counter() - started
            observe(trainer.done, loss, accuracy)
        if validates:
            scratch_checkpoint.save_checkpoint(checkpoint, {"identity": who, **trainer.state()})
            scratch_files.write_json(curve_path, curve(trainer, who, None))
            machine.save()
    if trainer.done < recipe.steps:
        return curve(trainer, who, None)
    result = curve(trainer, who, trainer.held_out_correct())
    scratch_files.write_json(curve_path, result)
    machine.save()
    checkpoint.unlink(missing_ok=True)
    return result


def finished_curve(path: Path, who: dict[str, Any]) -> dict[str, Any] | None:
    """The curve at `path` if its run is complete; UserError if it belongs to another configuration."""
    if not path.exists():
        return None
    content = scratch_files.read_curve(path)
    scratch_files.require_same(path, content["identity"], who)
    return content if content["complete"] else None


def settled_curve(path: Path, who: dict[str, Any], until: int | None) -> dict[str, Any] | None:
    """`finished_curve`, or the curve of an unfinished run that has reached `until`; None where there is work to do."""
    curve = finished_curve(path, who)
    if curve is None and until and path.exists():
        reached = scratch_files.read_curve(path)
        curve = reached if reached["validations"][-1]["step"] >= until else None
    return curve


class Machine:
    """What a run's speed and bits depend on, a line for each start: kept apart from the curve, which must not vary."""

    def __init__(self, path: Path, trainer: Trainer) -> None:
        self.path, self.trainer, self.first, self.evaluation_seconds = path, trainer, trainer.done, 0.0
        self.clock, self.started = time.perf_counter(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.earlier = scratch_files.read_starts(path)

    def save(self) -> None:
        device = self.trainer.device
        this = {
            "started": self.started, "from_step": self.first, "to_step": self.trainer.done,
            "seconds": round(time.perf_counter() - self.clock, 1),
            "evaluation_seconds": round(self.evaluation_seconds, 1),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "threads": torch.get_num_threads(), "torch": torch.__version__,
        }  # fmt: skip
        scratch_files.write_json(self.path, {"schema": scratch_files.SCHEMA, "starts": [*self.earlier, this]})
