"""Frozen networks as encoders: uint8 images in, float32 representations out.

    encoder = load_encoder("google/vit-base-patch16-224-in21k", device.choose())
    features = encoder.encode(images)                       # list of uint8 [H, W, 3] -> float32 [B, 768]

`shared.specs` has the grammar of a model's name. What the numbers are, unless `pool` says otherwise:
- a hub repository or a folder like one (`hf`): what `families` says of its architecture, through transformers (a ViT's
  pre-logits, BiT's and ResNet's pooled numbers, DINOv2's class token after the last norm, ...);
- `timm:`: timm's own pre-logits features; `torchvision:`: what enters its last layer;
- `wheel:`: two real networks out of PyPI wheels, for work without a hub.

Nothing is substituted: a missing network, file, pooler or weight is a `UserError` that says what to do.
No torch here: a run whose features are all in the cache must start quickly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from shared import specs
from shared.errors import UserError
from shared.text import printable
from shared.transforms import Transform

if TYPE_CHECKING:
    from shared.device import Choice
    from shared.models.encoder import Encoder

# Measured (benchmarks/extraction.py): EfficientNet-Lite0's own weights give a cosine of 0.994 on real images and no
# speed; BiT R50x1 with random weights gives 0.998, of which half is lost by rounding the weights alone.
DEPTHWISE = "depthwise convolutions are no faster in bfloat16 and lose too much"
GROUP_NORM = "a ResNet with group norms loses too much in bfloat16"
POOLS = ("", "cls", "mean", "cls+mean")


@dataclass(frozen=True)
class Identity:
    """Everything that identifies a model's numbers, before its weights are read.

    spec: in its shortest spelling. kind: "hf", "timm", "torchvision" or "wheel". dim: numbers per image.
    weights_sha256: of the weight file; of the list of the files' sha256 where there are several. stand_in: why a
    verdict must not compare it with a published number, or None. float32_because: see `computed_in`. label_wnids,
    label_names: one a column of a classifier, see `labels.match`. notes: what was assumed or left unread, for the log.
    transform_from: where the transform was read, and which keys; "" where it is pinned here.
    weights: "model" or "ema", where the spec asks for one. pool: the way that was asked for, "" for the model's own.
    representation: what the numbers are, in words.
    """

    spec: str
    name: str
    kind: str
    dim: int
    transform: Transform
    revision: str
    weights_sha256: str
    stand_in: str | None = None
    head: bool = False
    float32_because: str = ""
    label_wnids: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    pool: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
    transform_from: str = field(default="", compare=False)
    weights: str = field(default="", compare=False)
    representation: str = field(default="", compare=False)
    folder: Path | None = field(default=None, compare=False)
    files: tuple[Path, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Names come from files, and go into lines with others: a line's end in one is shown as `\\n`."""
        for key in ("name", "revision", "transform_from"):
            object.__setattr__(self, key, printable(getattr(self, key)))
        for key in ("label_names", "notes"):
            object.__setattr__(self, key, tuple(printable(text) for text in getattr(self, key)))

    @property
    def preprocessing(self) -> str:
        """The transform as one string."""
        return str(self.transform)

    @property
    def facts(self) -> str:
        """What a reader of the numbers has to know of them, in one line."""
        return "; ".join(part for part in (self.representation, self.preprocessing, self.transform_from) if part)


def describe(
    spec: str, *, revision: str | None = None, transform: str = "squash", head: bool = False, pool: str = ""
) -> Identity:
    """Everything that identifies a model's numbers, without reading its weights into memory.

    A hub model that is not in the cache is downloaded. `head`: as a classifier. pool: one of POOLS.
    """
    parsed = specs.parse_with_weights(spec)
    if revision:
        parsed = replace(parsed, revision=revision)
    if pool not in POOLS:
        raise UserError(f"pool {pool!r}: expected one of {', '.join(POOLS[1:])}")
    return _source(parsed.kind).describe(parsed, transform=transform, head=head, pool=pool)


def load_encoder(
    spec: str,
    choice: Choice,
    *,
    revision: str | None = None,
    transform: str = "squash",
    pool: str = "",
    compile: bool = False,
) -> Encoder:
    """The encoder for `spec`, its weights on `choice.device` in `choice.dtype` (see `computed_in`), ready to run.

    transform: "squash" to 224x224 (or the one size that the network allows), "crop" (shortest side to size / 0.875,
    centre crop), or "own", the model's published recipe. pool: "" for the representation that its family declares,
    "cls", "mean" (of the patches) or "cls+mean" of its tokens. `compile`: the first batch takes a minute or more,
    later ones less time; worth it from some thousand images.
    """
    return _load(describe(spec, revision=revision, transform=transform, pool=pool), choice, compile=compile)


def load_classifier(
    spec: str, choice: Choice, *, transform: str = "own", revision: str | None = None, compile: bool = False
) -> Encoder:
    """A model with its head: `encode` gives logits [B, classes], `label_names[i]` names column i.

    transform: "own" (the model's published recipe), "squash", or "crop" (shortest side to size / 0.875, centre crop).
    `label_wnids` has the classes' wnids, or is empty for a head that is not ImageNet-1k's. UserError for a list of
    1,000 labels that leaves a doubt which class is which.
    """
    return _load(describe(spec, revision=revision, transform=transform, head=True), choice, compile=compile)


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


def _load(identity: Identity, choice: Choice, *, compile: bool) -> Encoder:
    from shared.models.encoder import Encoder

    choice = computed_in(identity, choice)
    module = _source(identity.kind).build(identity, choice)
    return Encoder(identity, module, choice, partial(_load, identity, compile=False), compile=compile)


def _source(kind: str) -> ModuleType:
    """The module with this kind's `describe(spec, transform=, head=, pool=)` and `build(identity, choice)`."""
    return import_module(f"shared.models.{'wheels' if kind == 'wheel' else kind}")
