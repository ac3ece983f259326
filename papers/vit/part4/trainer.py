"""The trainer of "Section 4.3 in miniature": which network a run has, its validations, the best weights, its curve.

The loop and the checkpoint are shared/training/trainer.py. The recipe is in runs.py, the networks are in networks.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from papers.vit.part4 import networks, runs
from papers.vit.part4.networks import FACTORS, Factor
from papers.vit.part4.runs import Curve, Recipe, Run
from shared.training import experiment, stream, trainer
from shared.training.stream import Arrays, TrainingData


class Trainer(trainer.Trainer):
    """The state of one run; besides the shared trainer's, the validations and the best weights so far."""

    curve_type = Curve
    KEPT = ("done", "losses", "validations", "best")

    def __init__(
        self, run: Run, recipe: Recipe, data: TrainingData, device: torch.device, factor: Factor | None = None
    ) -> None:
        """`data`: as the run's change makes them; `factor`: another change than the run's own."""
        factor = factor or FACTORS[run.change or runs.PLAIN]
        which = {"classes": data.classes, "image_size": recipe.image_size, "seed": run.seed}
        model = networks.build(run.model, **which, attention=networks.attention_code(run, device))
        for change in factor.init:
            change(model, run.seed)
        super().__init__(
            run,
            recipe,
            data,
            device,
            model,
            lambda model: factor.optimizer(model, recipe),
            augment=factor.augment,
            # A convolution's fast kernels want the channel as the innermost axis; the ViT has a single convolution.
            layout=torch.channels_last if run.model == "ResNet" else torch.contiguous_format,
            compiled=networks.compiles(run, device),
        )
        self.validations: list[dict[str, int]] = []
        self.best: dict[str, Any] | None = None  # {"step", "correct", "weights"}

    def identity(self) -> dict[str, Any]:
        return identity(self.run, self.recipe, self.data)

    def score(self) -> dict[str, str]:
        """Score the validation images; keeps the weights if they are the best (of equals the first)."""
        correct = self.correct(self.data.validation)
        self.validations.append({"step": self.done, "correct": correct})
        if self.best is None or correct > self.best["correct"]:
            weights = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}
            self.best = {"step": self.done, "correct": correct, "weights": weights}
        return {"accuracy": f"{100 * correct / len(self.data.validation):.1f}%"}

    def held_out_correct(self) -> int:
        """Score of the kept weights on images that chose nothing. The network holds those weights afterwards."""
        assert self.best is not None
        self.model.load_state_dict(self.best["weights"])
        return self.correct(self.data.held_out)

    def curve(self, identity: dict[str, Any], complete: bool) -> Curve:
        held_out_correct = self.held_out_correct() if complete else None
        assert self.best is not None
        return Curve(
            schema=1,
            identity=identity,
            complete=complete,
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


@dataclass(kw_only=True)
class Experiment(experiment.Experiment[Run]):
    """All runs. train, test: images on the CPU."""

    curve_type = Curve

    train: Arrays
    test: Arrays
    kept: tuple = (None, None)

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

    def trainer(self, run: Run, recipe: Recipe | None = None) -> Trainer:
        return Trainer(run, recipe or self.recipe, self.data(run), self.device)

    def identity(self, run: Run) -> dict[str, Any]:
        return identity(run, self.recipe, self.data(run))

    def scored(self, last: int) -> int:
        recipe = self.recipe
        validated = sum(recipe.validates(step) for step in range(1, last + 1)) * recipe.validation
        return validated + (len(self.test) - recipe.validation) * (last == recipe.steps)

    def timed(self, run: Run) -> Run:
        return replace(run, change="")

    def may_fail(self, run: Run) -> bool:
        """What a change does to the training is a result."""
        return bool(run.change)
