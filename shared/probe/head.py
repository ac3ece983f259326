"""A trained probe as a file: weights, bias, classes, preprocessing and the model that it belongs to; and its answers.

The file is safetensors: `weights` float64 [d, K] and `bias` float64 [K], and `about` as JSON. Scores are
features @ weights + bias. Without this suite: `safetensors.numpy.load_file("head.safetensors")`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.errors import UserError
from shared.paths import atomic_write
from shared.probe.scores import softmax

if TYPE_CHECKING:
    from shared.models import Identity

FORMAT = "probe head 1"
SURE = 0.5  # of a label, where an image may have several: scores are between -1 and 1


@dataclass
class About:
    """What a head belongs to. temperature: divides the scores before the softmax; 0 where there are no classes."""

    format: str
    task: str
    names: list[str]
    model: str
    revision: str
    weights_sha256: str
    preprocessing: str
    transform: str
    pool: str
    dtype: str
    lambda_: float
    temperature: float
    data: str
    train_images: int
    train_fingerprint: str


@dataclass
class Head:
    """weights float64 [d, K], bias float64 [K]."""

    weights: np.ndarray
    bias: np.ndarray
    about: About

    def scores(self, features: np.ndarray) -> np.ndarray:
        """float64 [n, K] of float32 features [n, d]."""
        return features.astype(np.float64) @ self.weights + self.bias

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """float64 [n, K], calibrated on training images that were left out one by one."""
        return softmax(scores, self.about.temperature)

    def save(self, path: Path) -> None:
        from safetensors.numpy import save

        # one entry: safetensors writes several in an order that changes from run to run
        tensors = {"weights": np.ascontiguousarray(self.weights), "bias": np.ascontiguousarray(self.bias)}
        atomic_write(path, save(tensors, {"about": json.dumps(asdict(self.about), ensure_ascii=False)}))


def load(path: Path) -> Head:
    """UserError for a file that is no head."""
    from safetensors import SafetensorError, safe_open

    way_out = "python -m shared.probe --data ... --model ... --save head.safetensors makes one"
    if not path.is_file():
        raise UserError(f"{path}: no such head; {way_out}")
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["about"])
            weights, bias = file.get_tensor("weights"), file.get_tensor("bias")
        about = msgspec.convert(about, About)
        if (
            about.format != FORMAT
            or weights.shape != (len(weights), len(about.names))
            or bias.shape != weights.shape[1:]
        ):
            raise ValueError("its parts do not fit together")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise UserError(f"{path}: not a probe's head ({error}); {way_out}") from error
    return Head(weights, bias, about)


def require_same_model(head: Head, identity: Identity, path: Path) -> None:
    """UserError where the model of that name is no longer the one that the head was trained on."""
    for what in ("weights_sha256", "preprocessing"):
        then, now = getattr(head.about, what), getattr(identity, what)
        if then != now:
            raise UserError(
                f"{path}: was trained on {head.about.model} with {what} {then}, but it now has {now}; bring that model "
                "back, or train the head again"
            )


def answers(head: Head, scores: np.ndarray, top: int) -> tuple[list[str], list[list[str]]]:
    """(columns, a row of texts an image): classes with probabilities, labels with scores, or numbers."""
    names = head.about.names
    if head.about.task == "number":
        return names, [[f"{value:.6g}" for value in row] for row in scores]
    if head.about.task == "labels":
        # targets are 0 and 1, so a score is near 1 where the label is likely
        has = [", ".join(names[k] for k in np.flatnonzero(row >= SURE)) or "-" for row in scores]
        return ["labels", *names], [
            [text, *(f"{value:.3f}" for value in row)] for text, row in zip(has, scores, strict=True)
        ]
    shares = head.probabilities(scores)
    top = min(top, len(names))
    columns = [
        text
        for i in range(1, top + 1)
        for text in ((f"class {i}", f"probability {i}") if top > 1 else ("class", "probability"))
    ]
    best = np.argsort(-shares, axis=1, kind="stable")[:, :top]
    return columns, [
        [text for k in row for text in (names[k], f"{own[k]:.3f}")] for row, own in zip(best, shares, strict=True)
    ]


def image_files(given: Sequence[str]) -> list[Path]:
    """Every image that is named, and those below folders that are named, in order. UserError for what is neither."""
    from shared.folders import look_at

    found: list[Path] = []
    for text in given:
        path = Path(text).expanduser()
        if path.is_dir():
            tree = look_at(path)
            inside = [tree.place / name for name in tree.files] if tree else []
            if not inside:
                raise UserError(f"{path}: no images below it")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such image or folder")
    return found
