"""Any timm model by name, as an encoder (timm's own pre-logits features) or an ImageNet-1k classifier."""

from __future__ import annotations

import difflib
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import UserError
from shared.models import hub
from shared.models.identity import DEPTHWISE, GROUP_NORM, SIZE, Identity, sha256_of, squash_or_crop
from shared.transforms import Transform

if TYPE_CHECKING:
    from torch import Tensor, nn

    from shared.device import Choice

PREFIX = "timm:"


def describe(spec: str, *, revision: str | None, transform: str, head: bool) -> Identity:
    """See `shared.models.describe`. `timm:<name>` takes the hub's weights, `timm:<name>@<path>` a file's."""
    name, _, path = spec.removeprefix(PREFIX).partition("@")
    settings = _settings(name, spec)
    if path:
        file = Path(path).expanduser()
        if not file.is_file():
            raise UserError(f"{spec}: no file {file}; give the checkpoint's path after the @")
        return of_file(spec, name, file, f"file {file.name}", transform=transform, head=head)
    if not settings.hf_hub_id:
        raise UserError(f"{spec}: timm names no hub repository for its weights; download them and give {spec}@<path>")
    located = hub.locate(settings.hf_hub_id, revision)
    files = hub.weight_files(located.path, spec)
    if len(files) != 1:
        raise UserError(
            f"{spec}: its weights come in {len(files)} shards, which timm does not read; give one file with @"
        )
    return of_file(spec, name, files[0], located.revision, transform=transform, head=head)


def of_file(
    spec: str,
    architecture: str,
    file: Path,
    revision: str,
    *,
    transform: str,
    head: bool,
    own: Transform | None = None,
) -> Identity:
    """The identity of timm's `architecture` with the weights in `file`. own: its recipe where timm's is another."""
    import timm
    import torch

    settings = _settings(architecture, spec)
    wnids, names = _labels(spec, settings) if head else ((), ())
    with torch.device("meta"):  # shapes only
        model = timm.create_model(architecture, num_classes=0)
    return Identity(
        spec=spec,
        name=spec.partition("@")[0],
        kind="timm",
        dim=len(wnids) if head else model.head_hidden_size,
        transform=transform_of(spec, settings, transform, own),
        revision=revision,
        weights_sha256=sha256_of([file]),
        head=head,
        float32_because=_float32_because(model),
        label_wnids=wnids,
        label_names=names,
        files=(file,),
    )


def _float32_because(model: nn.Module) -> str:
    from torch.nn import Conv2d, GroupNorm

    layers = list(model.modules())
    if any(isinstance(layer, Conv2d) and layer.groups == layer.in_channels > 1 for layer in layers):
        return DEPTHWISE
    return GROUP_NORM if any(isinstance(layer, GroupNorm) for layer in layers) else ""


def transform_of(spec: str, settings: object, kind: str, own: Transform | None = None) -> Transform:
    """timm's recipe as the suite's transform; encoders squash to 224x224 unless the architecture fixes another size."""
    fixed = settings.input_size[1:]
    if own is None:
        if settings.crop_mode not in ("center", "squash") and kind == "own":
            raise UserError(f"{spec}: timm's crop mode {settings.crop_mode!r} is not supported; use --transform squash")
        shortest = None if settings.crop_mode == "squash" else int(fixed[0] / (settings.crop_pct or 1))
        own = Transform(tuple(fixed), settings.interpolation, tuple(settings.mean), tuple(settings.std), shortest)
    size = tuple(fixed) if settings.fixed_input_size else (SIZE, SIZE)
    return squash_or_crop(kind, size, own.interpolation, own.mean, own.std, own)


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim]. UserError for a checkpoint that lacks a weight or does not fit."""
    return load(identity, identity.spec.removeprefix(PREFIX).partition("@")[0], choice)


def load(identity: Identity, architecture: str, choice: Choice) -> nn.Module:
    """timm's `architecture` with `identity`'s file, folded and cast. Weights that it has no place for are ignored."""
    import timm
    import torch
    from timm.models import load_state_dict

    from shared.models import fast
    from shared.models.hf_models import refuse_partial

    model = timm.create_model(architecture, **({} if identity.head else {"num_classes": 0}))
    try:
        state = load_state_dict(str(identity.files[0]), weights_only=True)
        # the module's own translation of older layouts, by timm's convention
        translate = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
        if translate:
            state = translate(state, model)
        heads = () if identity.head else _heads(model)
        state = {key: value for key, value in state.items() if not key.startswith(heads)}
        report = model.load_state_dict(state, strict=False)
    except Exception as error:  # torn file, pickle with code, other sizes: many classes, one meaning
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{identity.spec}: {identity.files[0].name} cannot be read as {architecture} ({reason})"
        ) from error
    refuse_partial(identity.spec, [key for key in report.missing_keys if not key.endswith("num_batches_tracked")])
    module = (model if identity.head else _pre_logits(model)).eval()
    if any(isinstance(layer, torch.nn.BatchNorm2d) for layer in module.modules()):
        fast.fold_batch_norms(module, identity.transform.size)
        module = module.to(memory_format=torch.channels_last)
    return module.to(device=choice.device, dtype=choice.dtype)


def _pre_logits(model: nn.Module) -> nn.Module:
    import torch

    class PreLogits(torch.nn.Module):
        """What timm's classifier layer would read: [B, 3, h, w] to [B, head_hidden_size]."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model.forward_head(self.model.forward_features(x), pre_logits=True)

    return PreLogits()


def _heads(model: nn.Module) -> tuple[str, ...]:
    classifier = model.pretrained_cfg.get("classifier") or ()
    names = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return tuple(f"{name}." for name in names)


def _settings(name: str, spec: str) -> object:
    import timm

    settings = None
    with suppress(RuntimeError):  # an unknown tag after the dot
        settings = timm.models.get_pretrained_cfg(name, allow_unregistered=False) if timm.is_model(name) else None
    if settings is None:
        near = difflib.get_close_matches(name, timm.list_models() + timm.list_pretrained(), n=1)
        raise UserError(f"{spec}: timm has no model {name!r}" + (f"; did you mean timm:{near[0]}?" if near else ""))
    return settings


def _labels(spec: str, settings: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from shared.models import labels

    wnids, names = labels.imagenet()
    if settings.num_classes != len(wnids):
        raise UserError(
            f"{spec}: has {settings.num_classes:,} classes; expected ImageNet-1k's 1,000 (a 21k head does not compare)"
        )
    return wnids, names
