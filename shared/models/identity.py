"""What identifies a model's numbers, and its weight files' sha256. No torch here: a warm run must start quickly."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shared import paths
from shared.errors import UserError
from shared.transforms import Transform

if TYPE_CHECKING:
    from shared.device import Choice

TRANSFORMS = ("squash", "crop", "own")
SIZE = 224  # what the article and the paper's few-shot probe feed every model
# Measured (benchmarks/extraction.py): EfficientNet-Lite0's own weights give a cosine of 0.994 on real images and no
# speed; BiT R50x1 with random weights gives 0.998, of which half is lost by rounding the weights alone.
DEPTHWISE = "depthwise convolutions are no faster in bfloat16 and lose too much"
GROUP_NORM = "a ResNet with group norms loses too much in bfloat16"
CROP_SHARE = 0.875  # "crop": the centre crop's share of the shortest side, as in ImageNet's usual evaluation


@dataclass(frozen=True)
class Identity:
    """A model before its weights are read.

    dim: numbers an image (features, or 1,000 logits). weights_sha256: of the weight file; of the list of the files'
    sha256 where there are several. stand_in: why a verdict must not compare it with a published number, or None.
    """

    spec: str
    name: str
    kind: str  # "hf", "timm" or "wheel"
    dim: int
    transform: Transform
    revision: str
    weights_sha256: str
    stand_in: str | None = None
    head: bool = False
    float32_because: str = ""  # why it does not run in bfloat16, see `computed_in`
    label_wnids: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    folder: Path | None = field(default=None, compare=False)
    files: tuple[Path, ...] = field(default=(), compare=False)

    @property
    def preprocessing(self) -> str:
        """The transform as one string."""
        return str(self.transform)


def computed_in(identity: Identity, choice: Choice) -> Choice:
    """The device and precision that this model really runs in, with the reason; `choice` unless bfloat16 does not suit.

    bfloat16 keeps 8 bits of a number. Transformers and batch-normalised ResNets bear it (cosine of the features to
    float32 at least 0.9995 for every image); two kinds of network do not, and are computed in float32 instead.
    """
    if not identity.float32_because or choice.dtype_name != "bfloat16":
        return choice
    import torch

    reason = f"{choice.reason}; float32 for {identity.name}: {identity.float32_because}"
    return replace(choice, dtype=torch.float32, reason=reason)


def squash_or_crop(
    kind: str,
    size: tuple[int, int],
    interpolation: str,
    mean: Sequence[float],
    std: Sequence[float],
    own: Transform | None,
) -> Transform:
    """The transform called `kind` of TRANSFORMS for a model with this size, interpolation, mean and std."""
    if kind == "own" and own is not None:
        return own
    if kind not in TRANSFORMS:
        raise UserError(f"transform {kind!r}: expected one of {', '.join(TRANSFORMS)}")
    shortest = round(max(size) / CROP_SHARE) if kind == "crop" else None
    return Transform(size, interpolation, tuple(mean), tuple(std), shortest)


def sha256_of(files: Sequence[Path]) -> str:
    """Hex sha256 of one file, or of the lines `<sha256>  <name>` of several; remembered by path, size and time."""
    if len(files) == 1:
        return _remembered_sha256(files[0])
    lines = "".join(f"{_remembered_sha256(path)}  {path.name}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _remembered_sha256(path: Path) -> str:
    resolved = path.resolve()
    stat = resolved.stat()
    key = hashlib.sha256(f"{resolved}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()
    memory = paths.cache_dir() / "weights-sha256" / key
    try:
        return memory.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        value = paths.sha256_file(resolved)
        paths.atomic_write(memory, value)
        return value
