"""ViT, BiT, ResNet and DINOv2 checkpoints in hub layout, through transformers, with nothing left to chance.

transformers fills what a checkpoint lacks with random numbers and a warning; here that is an error that names the
weights. Old and new layouts, safetensors and .bin (read with weights_only) and any stored precision come out alike,
in the precision asked for. No remote code is ever run: only the four architectures below are known.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.errors import UserError
from shared.models import hub
from shared.models.identity import GROUP_NORM, SIZE, Identity, sha256_of, squash_or_crop
from shared.transforms import Transform

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shared.device import Choice

PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # how a preprocessor_config.json writes `resample`


class Family(NamedTuple):
    """One architecture: transformers' classes, its width out of config.json (with the class's defaults), its habits."""

    encoder: str
    classifier: str
    dim: Callable[[dict], int]
    resample: int  # the processor's default where the file has none
    fixed_size: bool = False  # position embeddings that fit one image size
    transformer: bool = False
    unused: tuple[str, ...] = ()  # weights that the forward pass never reads


def _last(config: dict) -> int:
    return config.get("hidden_sizes", [256, 512, 1024, 2048])[-1]


FAMILIES = {
    "vit": Family(
        "ViTModel",
        "ViTForImageClassification",
        lambda c: c.get("pooler_output_size") or c.get("hidden_size", 768),
        resample=2,
        fixed_size=True,
        transformer=True,
    ),
    "bit": Family("BitModel", "BitForImageClassification", lambda c: _last(c) * c.get("width_factor", 1), resample=3),
    "resnet": Family("ResNetModel", "ResNetForImageClassification", _last, resample=3),
    "dinov2": Family(
        "Dinov2Model",
        "Dinov2ForImageClassification",
        lambda c: c.get("hidden_size", 768),
        resample=3,
        transformer=True,
        unused=("embeddings.mask_token",),
    ),
}


def describe(spec: str, *, revision: str | None, transform: str, head: bool) -> Identity:
    """See `shared.models.describe`. Reads settings and hashes weight files; transformers is not imported."""
    located = hub.locate(spec, revision)
    return of_folder(spec, located, transform=transform, head=head)


def of_folder(spec: str, located: hub.Folder, *, transform: str, head: bool) -> Identity:
    """The identity of the checkpoint in a folder of hub layout."""
    config = hub.read_json(located.path / "config.json", spec)
    family = _family(config, spec)
    files = hub.weight_files(located.path, spec)
    wnids, names = (), ()
    if head:
        from shared.models import labels

        wnids, names = labels.match(spec, _label_list(config, spec))
    return Identity(
        spec=spec,
        name=spec if located.revision == hub.LOCAL else spec.partition("@")[0],
        kind="hf",
        dim=len(wnids) if head else family.dim(config),
        transform=_transform(
            transform, family, config, hub.read_json(located.path / "preprocessor_config.json", spec), spec
        ),
        revision=_revision(located),
        weights_sha256=sha256_of(files),
        head=head,
        float32_because=GROUP_NORM if config["model_type"] == "bit" else "",
        label_wnids=wnids,
        label_names=names,
        folder=located.path,
        files=files,
    )


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim], in eval mode on the device. UserError for a partial checkpoint.

    A transformer is read straight into `choice.dtype`, without a float32 copy (ViT-H/14 in bf16 stays under 8 GB); a
    convolutional network is small and is read in float32, since its batch norms are folded before the cast.
    """
    import torch

    from shared.models import fast
    from shared.models.encoder import Answer

    config = hub.read_json(identity.folder / "config.json", identity.spec)
    family = _family(config, identity.spec)
    dtype = choice.dtype if family.transformer else torch.float32
    model = _read(identity, family, dtype)
    if config["model_type"] == "vit":
        layers = model.vit.layers if identity.head else model.layers
        layers[-1] = fast.ClassTokenLayer(layers[-1])
    module = Answer(model, "logits" if identity.head else "pooler_output").eval()
    if not family.transformer:
        fast.standardise_weights(module)
        fast.fold_batch_norms(module, identity.transform.size)
        module = module.to(memory_format=torch.channels_last)
    return module.to(device=choice.device, dtype=choice.dtype)


def _read(identity: Identity, family: Family, dtype: torch.dtype) -> nn.Module:
    import transformers

    kind = getattr(transformers, family.classifier if identity.head else family.encoder)
    arguments: dict[str, Any] = {"attn_implementation": "sdpa"} if family.transformer else {}
    arguments["use_safetensors"] = identity.files[0].suffix == ".safetensors"
    try:
        with _quiet(transformers):
            model, report = kind.from_pretrained(
                identity.folder, dtype=dtype, local_files_only=True, output_loading_info=True, **arguments
            )
    except Exception as error:  # a torn file, a pickle with code, sizes that do not fit: many classes, one meaning
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{identity.spec}: the checkpoint cannot be read ({type(error).__name__}: {reason})") from error
    ill = {*report["missing_keys"], *(key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"])}
    refuse_partial(identity.spec, sorted(key for key in ill if not key.endswith(family.unused)))
    return model


def refuse_partial(spec: str, missing: list[str]) -> None:
    """UserError that names the weights which a checkpoint lacks and which would be random numbers."""
    if not missing:
        return
    shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    hint = (
        "; the pre-logits need the pooler: use a checkpoint that kept it, e.g. an -in21k one"
        if "pooler" in shown
        else ""
    )
    raise UserError(f"{spec}: the checkpoint has no {shown}, which would be random numbers{hint}")


def _family(config: dict, spec: str) -> Family:
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise UserError(f"{spec}: model_type {kind!r}; expected one of {', '.join(FAMILIES)}, or a timm:<name>")
    return FAMILIES[kind]


def _revision(located: hub.Folder) -> str:
    """The commit; for a folder that has none its settings' sha256, since they change the numbers as weights do."""
    if located.revision not in hub.WITHOUT_COMMIT:
        return located.revision
    return f"{located.revision}, settings {sha256_of([located.path / file for file in hub.SETTINGS])[:12]}"


def _label_list(config: dict, spec: str) -> list[str]:
    table = config.get("id2label") or {f"{i}": f"LABEL_{i}" for i in range(config.get("num_labels", 2))}
    try:
        return [table[str(i)] for i in range(len(table))]
    except KeyError:
        raise UserError(f"{spec}: id2label in config.json does not number its classes from 0 without a gap") from None


def _transform(kind: str, family: Family, config: dict, settings: dict, spec: str) -> Transform:
    for key in ("image_mean", "image_std"):
        if not isinstance(settings.get(key), list):
            raise UserError(f"{spec}: preprocessor_config.json has no {key}; add the three numbers it was trained with")
    interpolation = PILLOW.get(settings.get("resample", family.resample), str(settings.get("resample")))
    image_size = config.get("image_size", SIZE)
    size = tuple(image_size) if isinstance(image_size, list) else (image_size, image_size)
    size = size if family.fixed_size else (SIZE, SIZE)
    mean, std = settings["image_mean"], settings["image_std"]
    own = None
    if kind == "own":
        own_size, shortest = _published_size(settings, family, spec)
        if family.fixed_size and own_size != size:
            raise UserError(f"{spec}: its recipe makes {own_size} images, its position embeddings are for {size}")
        own = Transform(own_size, interpolation, tuple(mean), tuple(std), shortest)
    return squash_or_crop(kind, size, interpolation, mean, std, own)


def _published_size(settings: dict, family: Family, spec: str) -> tuple[tuple[int, int], int | None]:
    """(crop size, shortest side or None to squash) of a preprocessor_config.json in any of its spellings."""
    size, crop = settings.get("size", SIZE), settings.get("crop_size")
    edge = size if isinstance(size, int) else size.get("shortest_edge")
    if (
        family.encoder == "ResNetModel" and edge
    ):  # transformers' ConvNext processor: crop_pct below 384, squash from there
        if edge >= 384:
            return (edge, edge), None
        return (edge, edge), int(edge / (settings.get("crop_pct") or 224 / 256))
    if settings.get("do_center_crop", crop is not None) and edge and crop:
        height, width = (crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])
        return (height, width), edge
    if isinstance(size, int):
        return (size, size), None
    if "height" in size and "width" in size:
        return (size["height"], size["width"]), None
    raise UserError(f"{spec}: preprocessor_config.json gives no fixed image size (size {size}); use --transform squash")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No load report, no progress bar: what they would say is checked and raised here."""
    before = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(before)
        if bars:
            transformers.logging.enable_progress_bar()
