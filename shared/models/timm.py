"""Any timm model by name, as an encoder (timm's own pre-logits features) or an ImageNet-1k classifier."""

from __future__ import annotations

import difflib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shared import hub, transforms
from shared.errors import UserError
from shared.models import DEPTHWISE, GROUP_NORM, Identity, labels
from shared.specs import Spec
from shared.transforms import SIZE, Transform

if TYPE_CHECKING:
    from torch import nn

    from shared.device import Choice


def describe(spec: Spec, *, transform: str, head: bool) -> Identity:
    """See `shared.models.describe`. The weights are those of `spec.path`, or the hub's."""
    import timm
    import torch

    settings = _settings(spec)
    if spec.path:
        file, revision = spec.path, f"file {spec.path.name}"
    elif settings.hf_hub_id:
        place = hub.model(Spec(spec.text, "hf", settings.hf_hub_id, spec.revision))
        file, *more = hub.weight_files(place.path, spec.text)
        revision = place.revision
        if more:
            why = f"its weights come in {len(more) + 1} shards, which timm does not read"
            raise UserError(f"{spec}: {why}; give one file with @")
    else:
        raise UserError(f"{spec}: timm names no hub repository for its weights; download them and give {spec}@<path>")
    if head and settings.num_classes != 1000:
        why = "expected ImageNet-1k's 1,000 (a 21k head cannot be compared)"
        raise UserError(f"{spec}: has {settings.num_classes:,} classes; {why}")
    wnids, names = labels.imagenet() if head else ((), ())
    with torch.device("meta"):  # shapes only
        model = timm.create_model(spec.name, num_classes=0)
    return Identity(
        spec=spec.text,
        name=f"timm:{spec.name}",
        kind="timm",
        dim=len(wnids) if head else model.head_hidden_size,
        transform=_transform(spec, settings, transform),
        revision=revision,
        weights_sha256=hub.sha256_of([file]),
        head=head,
        float32_because=_float32_because(model),
        label_wnids=wnids,
        label_names=names,
        files=(file,),
    )


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim]. UserError for a checkpoint that lacks a weight or does not fit."""
    return load(identity, identity.name.removeprefix("timm:"), choice)


def load(identity: Identity, architecture: str, choice: Choice) -> nn.Module:
    """timm's `architecture` with `identity`'s file, folded and cast. Weights that it has no place for are ignored."""
    import timm
    import torch
    from timm.models import load_state_dict

    from shared.models import fast
    from shared.models.hf import refuse_partial

    model = timm.create_model(architecture, **({} if identity.head else {"num_classes": 0}))
    try:
        state = load_state_dict(str(identity.files[0]), weights_only=True)
        # the module's own translation of older layouts, by timm's convention
        translate = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
        if translate:
            state = translate(state, model)
        classifier = model.pretrained_cfg.get("classifier") or ()
        classifiers = (classifier,) if isinstance(classifier, str) else tuple(classifier)
        dropped = () if identity.head else tuple(f"{name}." for name in classifiers)
        state = {key: value for key, value in state.items() if not key.startswith(dropped)}
        report = model.load_state_dict(state, strict=False)
    except Exception as error:  # torn file, pickle with code, other sizes: many classes, one meaning
        reason = " ".join(str(error).split())[:200]
        file = identity.files[0].name
        raise UserError(f"{identity.spec}: {file} cannot be read as {architecture} ({reason})") from error
    refuse_partial(identity.spec, [key for key in report.missing_keys if not key.endswith("num_batches_tracked")])
    module = (model if identity.head else fast.PreLogits(model)).eval()
    if any(isinstance(layer, torch.nn.BatchNorm2d) for layer in module.modules()):
        fast.fold_batch_norms(module, identity.transform.size)
        module = module.to(memory_format=torch.channels_last)
    return module.to(device=choice.device, dtype=choice.dtype)


def _float32_because(model: nn.Module) -> str:
    from torch.nn import Conv2d, GroupNorm

    layers = list(model.modules())
    if any(isinstance(layer, Conv2d) and layer.groups == layer.in_channels > 1 for layer in layers):
        return DEPTHWISE
    return GROUP_NORM if any(isinstance(layer, GroupNorm) for layer in layers) else ""


def _transform(spec: Spec, settings: Any, name: str) -> Transform:
    """timm's recipe as the suite's transform; encoders squash to 224x224 unless the architecture fixes another size."""
    if settings.crop_mode not in ("center", "squash") and name == "own":
        raise UserError(f"{spec}: timm's crop mode {settings.crop_mode!r} is not supported; use --transform squash")
    published, mean, std = tuple(settings.input_size[1:]), tuple(settings.mean), tuple(settings.std)
    shortest = None if settings.crop_mode == "squash" else int(published[0] / (settings.crop_pct or 1))
    own = Transform(published, settings.interpolation, mean, std, shortest)
    size = published if settings.fixed_input_size else (SIZE, SIZE)
    return transforms.named(name, size, own.interpolation, mean, std, own)


def _settings(spec: Spec) -> Any:
    """timm's PretrainedCfg of the model: its weights' repository, recipe and classes."""
    import timm

    settings = None
    with suppress(RuntimeError):  # an unknown tag after the dot
        if timm.is_model(spec.name):
            settings = timm.models.get_pretrained_cfg(spec.name, allow_unregistered=False)
    if settings is None:
        near = difflib.get_close_matches(spec.name, timm.list_models() + timm.list_pretrained(), n=1)
        hint = f"; did you mean timm:{near[0]}?" if near else ""
        raise UserError(f"{spec}: timm has no model {spec.name!r}{hint}")
    return settings
