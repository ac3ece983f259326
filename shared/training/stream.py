"""Images to train on: nested balanced subsets, the stream of batches, crop and flip in one gather. Knows no paper.

Every draw is a function of (seed, what it is for, step), so a run can be taken up at any step without generator states,
and a ViT and a ResNet of one seed see the same images in the same order with the same crops.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from shared.errors import UserError
from shared.text import notice

if TYPE_CHECKING:
    from shared.data import ImageSet

SUBSET, SPLIT, ORDER, AUGMENT, HOLD_OUT = range(5)  # what a draw is for: each gets its own stream


def balanced(labels: np.ndarray, count: int, draw: list[int], what: str, names: Sequence[str] = ()) -> np.ndarray:
    """Sorted positions int64 [count] of random images, of every class as many; a larger `count` contains a smaller one.

    labels: int64 [n]; draw: the seed of the choice; what: the count's name in messages; names: the classes'. Raises
    UserError unless `count` is a multiple of the number of classes and every class has enough images.
    """
    classes = int(labels.max()) + 1
    if count < classes or count % classes:
        raise UserError(
            f"{what} {count} does not divide into {classes} classes of equal count; use a multiple of {classes}"
        )
    rng = np.random.default_rng(draw)
    chosen = []
    for label in range(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) < count // classes:
            raise UserError(
                f"{what} {count}: {count // classes} images per class are asked for, class "
                f"{names[label] if names else label} has {len(members)}; choose a smaller number"
            )
        chosen.append(members[: count // classes])
    return np.sort(np.concatenate(chosen))


def nested_subset(labels: np.ndarray, size: int, seed: int, names: Sequence[str] = ()) -> np.ndarray:
    """Positions (sorted int64 [size]) of a class-balanced subset; for one seed each size lies inside the next."""
    return balanced(labels, size, [seed, SUBSET], "size", names)


def split_test(labels: np.ndarray, validation: int, names: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """(validation, held-out) positions: a balanced choice that no seed changes, and all the others.

    Raises UserError as `balanced` does, and if no image is left for the held-out part.
    """
    if validation >= len(labels):
        raise UserError(
            f"--validation {validation} leaves none of {len(labels)} test images held out; choose a smaller number"
        )
    chosen = balanced(labels, validation, [SPLIT], "--validation", names)
    return chosen, np.setdiff1d(np.arange(len(labels)), chosen)


@lru_cache(maxsize=4)
def epoch_order(n: int, epoch: int, seed: int) -> np.ndarray:
    """The order of epoch `epoch` (from 0) over n images."""
    return np.random.default_rng([seed, ORDER, epoch]).permutation(n)


def batch_positions(n: int, step: int, batch: int, seed: int) -> np.ndarray:
    """Positions int64 [batch] of step `step` (from 0): shuffled epochs one after another, no rest dropped."""
    at = np.arange(step * batch, (step + 1) * batch)
    parts = [epoch_order(n, int(e), seed)[at[at // n == e] % n] for e in np.unique(at // n)]
    return np.concatenate(parts)


@dataclass(frozen=True)
class Augmentation:
    """One batch's draws: corner of the crop in the padded image (int64 [B] each, 0..2*pad) and flip (bool [B])."""

    top: torch.Tensor
    left: torch.Tensor
    flip: torch.Tensor


def draw_augmentation(step: int, batch: int, seed: int, pad: int) -> Augmentation:
    """Step `step`'s crops and flips, one per image, on the CPU."""
    rng = np.random.default_rng([seed, AUGMENT, step])
    top, left = rng.integers(0, 2 * pad + 1, size=(2, batch))
    return Augmentation(torch.from_numpy(top), torch.from_numpy(left), torch.from_numpy(rng.random(batch) < 0.5))


def crop_flip(images: torch.Tensor, draws: Augmentation, pad: int, mode: str = "constant") -> torch.Tensor:
    """uint8 [B, C, H, W] -> uint8 [B, C, H, W]: pad with black, crop and flip, the whole batch in one gather.

    Same pixels as torchvision's RandomCrop(H, padding=pad) and RandomHorizontalFlip with these draws. `mode`: padding
    as torch.nn.functional.pad names it.
    """
    batch, channels, height, width = images.shape
    device = images.device
    padded = F.pad(images, (pad, pad, pad, pad), mode=mode)
    columns = torch.arange(width, device=device)
    # a flipped image reads its columns backwards, so the flip costs nothing
    columns = torch.where(draws.flip.to(device)[:, None], width - 1 - columns, columns) + draws.left.to(device)[:, None]
    rows = torch.arange(height, device=device) + draws.top.to(device)[:, None]
    places = rows[:, :, None] * (width + 2 * pad) + columns[:, None, :]
    places = places.view(batch, 1, -1).expand(batch, channels, -1)
    return padded.flatten(2).gather(2, places).view_as(images)


def pixel_mean(images: torch.Tensor) -> torch.Tensor:
    """Mean of each pixel of uint8 [n, C, H, W], of values in 0..1: float32 [C, H, W]. Integers add up exactly."""
    return (images.sum(0, dtype=torch.int64).double() / (255 * len(images))).float()


def channel_statistics(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 [n, C, H, W], of pixels in 0..1, to four digits.

    Over CIFAR-10's training images these are the constants everybody types: 0.4914 0.4822 0.4465, then
    0.2470 0.2435 0.2616.
    """
    values = np.arange(256) / 255
    means, stds = [], []
    for channel in range(images.shape[1]):
        # Counting the 256 values is exact and needs no float copy of the images.
        share = torch.bincount(images[:, channel].flatten(), minlength=256).numpy() / images[:, channel].numel()
        mean = float(share @ values)
        means.append(round(mean, 4))
        stds.append(round(float(np.sqrt(share @ (values - mean) ** 2)), 4) or 1.0)
    return tuple(means), tuple(stds)


@dataclass(frozen=True)
class Arrays:
    """Images uint8 [n, 3, S, S] and labels int64 [n], both on the training device; the classes' names if known."""

    images: torch.Tensor
    labels: torch.Tensor
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> Arrays:
        chosen = torch.from_numpy(positions).to(self.labels.device)
        return Arrays(self.images.index_select(0, chosen), self.labels.index_select(0, chosen), self.names)

    def to(self, device: torch.device) -> Arrays:
        return Arrays(self.images.to(device), self.labels.to(device), self.names)

    def fingerprint(self) -> str:
        """sha256 over the pixels (image after image, channels first) and the labels, in order."""
        digest = hashlib.sha256(np.ascontiguousarray(self.images.cpu().numpy()))
        digest.update(self.labels.cpu().numpy().astype("<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class TrainingData:
    """All that one run reads: its images to train on, the validation and the held-out images, and the normalisation.

    mean, std: of pixels in 0..1, one number per channel; the mean also one a pixel, float32 [3, S, S].
    """

    train: Arrays
    validation: Arrays
    held_out: Arrays
    mean: tuple[float, ...] | torch.Tensor
    std: tuple[float, ...]
    classes: int

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """sha256 of each part."""
        return {k: getattr(self, k).fingerprint() for k in ("train", "validation", "held_out")}


def prepare(
    train: Arrays, test: Arrays, *, size: int, seed: int, validation: int, device: torch.device
) -> TrainingData:
    """Choose the subset and split the test images. The normalisation is all training images', for every size."""
    labels = train.labels.cpu().numpy()
    mean, std = channel_statistics(train.images)
    chosen, rest = split_test(test.labels.cpu().numpy(), validation, test.names)
    return TrainingData(
        train=train.take(nested_subset(labels, size, seed, train.names)).to(device),
        validation=test.take(chosen).to(device),
        held_out=test.take(rest).to(device),
        mean=mean,
        std=std,
        classes=int(labels.max()) + 1,
    )


def keep_apart(train: Arrays, test: Arrays, count: int, device: torch.device) -> TrainingData:
    """Train on all but `count` images, which validate: of every class as many, a choice that no seed changes.

    The test images are the held-out ones. The mean of each pixel is that of the images trained on, the deviation 1.
    """
    labels = train.labels.cpu().numpy()
    chosen = np.array([], dtype=np.int64)
    if count:
        chosen = balanced(labels, count, [SPLIT], "--validation", train.names)
    if len(chosen) == len(labels):
        raise UserError(f"--validation {count} leaves no image to train on; choose a smaller number")
    rest = train.take(np.setdiff1d(np.arange(len(labels)), chosen))
    return TrainingData(
        train=rest.to(device),
        validation=train.take(chosen).to(device),
        held_out=test.to(device),
        mean=pixel_mean(rest.images).to(device),
        std=(1.0,),
        classes=int(labels.max()) + 1,
    )


def arrays_of(source: ImageSet, image_size: int) -> Arrays:
    """All images of a set as arrays on the CPU.

    An image of another size is squashed to `image_size` square (bilinear, antialiased); one of that size keeps its
    pixels.
    """
    images = torch.empty(len(source), 3, image_size, image_size, dtype=torch.uint8)
    for i, image in enumerate(image for block in source.blocks() for image in block):
        pixels = torch.from_numpy(image).permute(2, 0, 1)
        if pixels.shape[1:] != images.shape[2:]:
            size = (image_size, image_size)
            pixels = F.interpolate(pixels[None], size=size, mode="bilinear", antialias=True)[0]
        images[i] = pixels
    source.remember()
    return Arrays(images, torch.from_numpy(source.labels), tuple(source.class_names))


def load_sets(name: str, *, train: str = "", test: str = "", **where: Any) -> tuple[ImageSet, ImageSet]:
    """The images to train on and to test on, over one list of classes; what was assumed is said before anything trains.

    train, test: names of splits; where: as of `shared.data.load_two`. A set in one piece is divided by `hold_out`.
    """
    from shared.data import load_two, tell_assumed

    for_training, for_testing = load_two(name, train=train, test=test, **where)
    if for_testing is for_training:
        for_training, for_testing = hold_out(for_training)
    tell_assumed(for_training, for_testing)
    return for_training, for_testing


def note_copies(train: ImageSet, test: ImageSet) -> None:
    """Test images whose very pixels are trained on: counted and told, not left out, as papers train on all."""
    from shared.data import copies

    again = copies(test, train)
    which = f", e.g. {test.where(int(again[0]))}" if len(again) else ""
    test.notes.append(f"by content: {len(again):,} of {len(test):,} test images are training images too{which}")
    if len(again):
        notice(f"  {test.notes[-1]}")


def hold_out(images: ImageSet) -> tuple[ImageSet, ImageSet]:
    """(training part, test part) of a set that comes in one piece: a fifth of every class to test on, at least one.

    A choice that no seed changes. UserError for a class of one image.
    """
    rng = np.random.default_rng([HOLD_OUT])
    chosen = []
    for label, name in enumerate(images.class_names):
        members = rng.permutation(np.flatnonzero(images.labels == label))
        if len(members) < 2:
            raise UserError(f"{images.name}: class {name} has {len(members)} image; training and testing take two")
        chosen.append(members[: max(1, round(len(members) / 5))])
    test = np.sort(np.concatenate(chosen))
    images.notes.append(f"one split only: {len(test):,} of its images, a fifth of every class, are the test images")
    return images.subset(np.setdiff1d(np.arange(len(images)), test)), images.subset(test)
