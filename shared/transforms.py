"""From decoded images to a network's input: the suite's own transforms, each of which is one loggable string.

An image enters as uint8 [H, W, 3] of any size and leaves as float32 [3, h, w], resized on the device that runs the
model, one call an image size, so an image's pixels never depend on its batch.

Resampling is antialiased and rounds to whole grey levels, as Pillow does (and with it the processors that published
these models). On the CPU that is torch's uint8 kernel: 0.03 to 0.3 ms an image where the float32 kernel takes 0.3 to
1.9 ms, and half of the best ResNet-50's time is at stake. Other devices have no uint8 kernel: there the same two passes
run in float32 and round after each, which gives the same image to one grey level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import torch

INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
TRANSFORMS = ("squash", "crop", "own")
SIZE = 224  # what the article and the paper's few-shot probe feed every model
CROP_SHARE = 0.875  # "crop": the centre crop's share of the shortest side, as in ImageNet's usual evaluation


@dataclass(frozen=True)
class Transform:
    """Squash to `size`; or the shortest side to `shortest`, or a squash to `squashed`, then `size` from the centre.

    size, squashed: (height, width) in pixels. mean, std: per channel, on the scale 0..1. floor: half a pixel of the
    cut's corner is dropped, as transformers does; else rounded to even, as torchvision (and with it timm) does. Where
    the image is smaller than what is cut from it, black is put around it, as all of them do. bgr: the network takes
    blue first; mean and std are in that order then.
    """

    size: tuple[int, int]
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    shortest: int | None = None
    squashed: tuple[int, int] | None = None
    floor: bool = False
    bgr: bool = False

    def __post_init__(self) -> None:
        if self.interpolation not in INTERPOLATIONS:
            raise UserError(f"interpolation {self.interpolation!r}: expected one of {', '.join(INTERPOLATIONS)}")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise UserError(f"mean {self.mean} and std {self.std}: expected three numbers each, std above 0")

    def __str__(self) -> str:
        """The string that stands in every log, result and cache key: nothing that changes a pixel is left out."""
        size = f"{self.size[0]}x{self.size[1]}"
        way = f"squash to {size}"
        if self.shortest is not None:
            way = f"shortest side to {self.shortest}, centre crop {size}"
        elif self.squashed is not None:
            way = f"squash to {self.squashed[0]}x{self.squashed[1]}, centre crop {size}"
        mean, std = (", ".join(f"{v:.6g}" for v in values) for values in (self.mean, self.std))
        corner = ", the crop's corner rounded down" if self.floor and "crop" in way else ""
        kind = self.interpolation if self.interpolation == "nearest" else f"{self.interpolation} antialias"
        order = ", blue first" if self.bgr else ""
        return f"{way}, {kind}, whole grey levels{corner}{order}; (x/255 - [{mean}]) / [{std}]"

    def __call__(self, images: torch.Tensor | Sequence[np.ndarray | torch.Tensor], device="cpu") -> torch.Tensor:
        """float32 [B, 3, h, w] on `device` from a uint8 tensor [B, 3, H, W] or a sequence of uint8 [H, W, 3].

        Raises `UserError` for another dtype or shape.
        """
        return self.normalise(self.resize(images, device))

    def resize(self, images: torch.Tensor | Sequence[np.ndarray | torch.Tensor], device="cpu") -> torch.Tensor:
        """uint8 [B, 3, h, w] on `device`: the first half of the transform, grey levels still whole."""
        import torch

        if isinstance(images, torch.Tensor):
            if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
                raise UserError(f"images: expected uint8 [B, 3, H, W], got {images.dtype} {list(images.shape)}")
            return self._resize(images.to(device))
        # torch warns of read-only arrays (a decoder's own memory): those are copied, they are one image each
        writable = (p if isinstance(p, torch.Tensor) or p.flags.writeable else p.copy() for p in images)
        tensors = [torch.as_tensor(image) for image in writable]
        by_size: dict[torch.Size, list[int]] = {}
        for i, image in enumerate(tensors):
            if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[2] != 3:
                raise UserError(f"image {i}: expected uint8 [H, W, 3], got {image.dtype} {list(image.shape)}")
            by_size.setdefault(image.shape, []).append(i)
        out = torch.empty(len(tensors), 3, *self.size, dtype=torch.uint8, device=device)
        for places in by_size.values():
            batch = torch.stack([tensors[i] for i in places]).to(device)
            out[places] = self._resize(batch.permute(0, 3, 1, 2))  # a view with the channel innermost: fastest
        return out

    def normalise(self, x: torch.Tensor) -> torch.Tensor:
        """(x/255 - mean) / std of uint8 [B, 3, h, w]: float32, one multiplication and one addition a pixel."""
        import torch

        scale = torch.tensor([1 / (255 * s) for s in self.std], device=x.device).view(3, 1, 1)
        shift = torch.tensor([-m / s for m, s in zip(self.mean, self.std, strict=True)], device=x.device).view(3, 1, 1)
        if self.bgr:
            x = x.flip(1)
        return torch.addcmul(shift, x.float(), scale)

    def _resize(self, x: torch.Tensor) -> torch.Tensor:
        import torch.nn.functional as F

        height, width = x.shape[-2:]
        if self.shortest is None:
            target = self.squashed or self.size
        elif height <= width:
            target = (self.shortest, int(self.shortest * width / height))
        else:
            target = (int(self.shortest * height / width), self.shortest)
        if target != (height, width) and self.interpolation == "nearest":
            x = F.interpolate(x, size=target, mode="nearest-exact")  # the one whose pixels are Pillow's
        elif target != (height, width) and x.device.type == "cpu":
            x = F.interpolate(x, size=target, mode=self.interpolation, antialias=True)
        elif target != (height, width):
            x = _resize_in_float32(x, target, self.interpolation)
        if target != self.size:
            short = [max(b - a, 0) for a, b in zip(target, self.size, strict=True)]
            if any(short):
                x = F.pad(x, (short[1] // 2, short[1] - short[1] // 2, short[0] // 2, short[0] - short[0] // 2))
                target = tuple(x.shape[-2:])
            corner = int if self.floor else round
            top, left = (corner((a - b) / 2) for a, b in zip(target, self.size, strict=True))
            x = x[..., top : top + self.size[0], left : left + self.size[1]]
        return x


def named(
    name: str,
    size: tuple[int, int],
    interpolation: str,
    mean: Sequence[float],
    std: Sequence[float],
    own: Transform | None = None,
    bgr: bool = False,
) -> Transform:
    """The transform called `name` of TRANSFORMS for a model: "squash", "crop", or "own", its published recipe."""
    if name == "own" and own is not None:
        return own
    if name not in TRANSFORMS:
        raise UserError(f"transform {name!r}: expected one of {', '.join(TRANSFORMS)}")
    shortest = round(max(size) / CROP_SHARE) if name == "crop" else None
    return Transform(size, interpolation, tuple(mean), tuple(std), shortest, bgr=bgr)


def _resize_in_float32(x: torch.Tensor, target: tuple[int, int], interpolation: str) -> torch.Tensor:
    """uint8 [B, 3, H, W] to uint8 [B, 3, *target] as Pillow orders it: columns first, whole grey levels, then rows."""
    import torch.nn.functional as F

    y = x.float()
    for size in ((x.shape[-2], target[1]), target):
        y = F.interpolate(y, size=size, mode=interpolation, antialias=True).round_().clamp_(0, 255)
    return y.to(x.dtype)
