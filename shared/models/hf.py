"""ViT, BiT, ResNet and DINOv2 checkpoints in hub layout, through transformers, with nothing left to chance.

transformers fills what a checkpoint lacks with random numbers and a warning; here that is an error that names the
weights. Old and new layouts, safetensors and .bin (read with weights_only) and any stored precision come out alike,
in the precision asked for. No remote code is ever run: only the architectures in FAMILIES are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from shared import hub, process, transforms
from shared.errors import UserError
from shared.models import GROUP_NORM, Identity, labels
from shared.specs import Spec
from shared.transforms import SIZE, Transform

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
    output: str = "pooler_output"  # the encoder's output that is the representation
    fixed_size: bool = False  # position embeddings that fit one image size
    transformer: bool = False
    one_token: bool = False  # of the last layer's tokens only the class token is read
    unused: tuple[str, ...] = ()  # weights that the forward pass never reads
    float32_because: str = ""


def _last(config: dict) -> int:
    return config.get("hidden_sizes", [256, 512, 1024, 2048])[-1]


def _hidden(config: dict) -> int:
    return config.get("hidden_size", 768)


# A further architecture is one more row, and a reference in tests/shared/test_models_hf.py.
FAMILIES = {
    "vit": Family(
        "ViTModel",
        "ViTForImageClassification",
        lambda c: c.get("pooler_output_size") or _hidden(c),
        resample=2,
        fixed_size=True,
        transformer=True,
        one_token=True,
    ),
    "bit": Family(
        "BitModel",
        "BitForImageClassification",
        lambda c: _last(c) * c.get("width_factor", 1),
        resample=3,
        float32_because=GROUP_NORM,
    ),
    "resnet": Family("ResNetModel", "ResNetForImageClassification", _last, resample=3),
    "dinov2": Family(
        "Dinov2Model",
        "Dinov2ForImageClassification",
        _hidden,
        resample=3,
        transformer=True,
        unused=("embeddings.mask_token",),
    ),
}


def describe(spec: Spec, *, transform: str, head: bool) -> Identity:
    """See `shared.models.describe`. Reads settings and hashes weight files; transformers is not imported."""
    place = hub.model(spec)
    config = hub.settings(place.path / "config.json", spec.text)
    family = _family(config, spec)
    files = hub.weight_files(place.path, spec.text)
    wnids, names = labels.match(spec.text, _label_list(config, spec)) if head else ((), ())
    recipe = hub.settings(place.path / "preprocessor_config.json", spec.text)
    revision = place.revision
    if revision in hub.WITHOUT_COMMIT:  # then the settings' sha256, since they change the numbers as weights do
        revision += f", settings {hub.sha256_of([place.path / file for file in hub.SETTINGS])[:12]}"
    return Identity(
        spec=spec.text,
        name=spec.name,
        kind="hf",
        dim=len(wnids) if head else family.dim(config),
        transform=transform_of(transform, family, config, recipe, spec.text),
        revision=revision,
        weights_sha256=hub.sha256_of(files),
        head=head,
        float32_because=family.float32_because,
        label_wnids=wnids,
        label_names=names,
        folder=place.path,
        files=files,
    )


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim], in eval mode on the device. UserError for a partial checkpoint.

    A transformer is read straight into `choice.dtype`, without a float32 copy (ViT-H/14 in bf16 stays under 8 GB); a
    convolutional network is small and is read in float32, since its batch norms are folded before the cast.
    """
    import torch

    from shared.models import fast

    family = _family(hub.settings(identity.folder / "config.json", identity.spec), identity.spec)
    model = _read(identity, family, choice.dtype if family.transformer else torch.float32)
    if family.one_token:
        layers = model.base_model.layers
        layers[-1] = fast.ClassTokenLayer(layers[-1])
    module = fast.Answer(model, "logits" if identity.head else family.output).eval()
    if not family.transformer:
        fast.standardise_weights(module)
        fast.fold_batch_norms(module, identity.transform.size)
        module = module.to(memory_format=torch.channels_last)
    return module.to(device=choice.device, dtype=choice.dtype)


def _read(identity: Identity, family: Family, dtype: torch.dtype) -> nn.Module:
    import transformers

    model_class = getattr(transformers, family.classifier if identity.head else family.encoder)
    arguments: dict[str, Any] = {"attn_implementation": "sdpa"} if family.transformer else {}
    arguments["use_safetensors"] = identity.files[0].suffix == ".safetensors"
    try:
        with process.quiet():
            model, report = model_class.from_pretrained(
                identity.folder, dtype=dtype, local_files_only=True, output_loading_info=True, **arguments
            )
    except Exception as error:  # a torn file, a pickle with code, sizes that do not fit: many classes, one meaning
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{identity.spec}: the checkpoint cannot be read ({type(error).__name__}: {reason})") from error
    lacking = {*report["missing_keys"], *(k[0] if isinstance(k, tuple) else k for k in report["mismatched_keys"])}
    refuse_partial(identity.spec, sorted(key for key in lacking if not key.endswith(family.unused)))
    return model


def refuse_partial(spec: str, missing: list[str]) -> None:
    """UserError that names the weights which a checkpoint lacks and which would be random numbers."""
    if not missing:
        return
    shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    needs_pooler = "; the pre-logits need the pooler: use a checkpoint that kept it, e.g. an -in21k one"
    hint = needs_pooler if "pooler" in shown else ""
    raise UserError(f"{spec}: the checkpoint has no {shown}, which would be random numbers{hint}")


def _family(config: dict, spec: Spec | str) -> Family:
    kind = config.get("model_type")
    if kind not in FAMILIES:
        timms = config.get("architecture")  # how timm's own repositories name their network
        instead = f"timm:{timms}@<its weight file>" if timms else "a timm:<name>"
        raise UserError(f"{spec}: model_type {kind!r}; expected one of {', '.join(FAMILIES)}, or {instead}")
    return FAMILIES[kind]


def _label_list(config: dict, spec: Spec) -> list[str]:
    table = config.get("id2label") or {f"{i}": f"LABEL_{i}" for i in range(config.get("num_labels", 2))}
    try:
        return [table[str(i)] for i in range(len(table))]
    except KeyError:
        raise UserError(f"{spec}: id2label in config.json does not number its classes from 0 without a gap") from None


def transform_of(name: str, family: Family, config: dict, recipe: dict, spec: str) -> Transform:
    """The transform called `name` for a config.json and a preprocessor_config.json (`recipe`)."""
    for key in ("image_mean", "image_std"):
        if not isinstance(recipe.get(key), list):
            raise UserError(f"{spec}: preprocessor_config.json has no {key}; add the three numbers it was trained with")
    interpolation = PILLOW.get(recipe.get("resample", family.resample), str(recipe.get("resample")))
    image_size = config.get("image_size", SIZE) if family.fixed_size else SIZE
    size = tuple(image_size) if isinstance(image_size, list) else (image_size, image_size)
    mean, std = tuple(recipe["image_mean"]), tuple(recipe["image_std"])
    own = None
    if name == "own":
        own_size, shortest = _published_size(recipe, family, spec)
        if family.fixed_size and own_size != size:
            raise UserError(f"{spec}: its recipe makes {own_size} images, its position embeddings are for {size}")
        own = Transform(own_size, interpolation, mean, std, shortest)
    return transforms.named(name, size, interpolation, mean, std, own)


def _published_size(recipe: dict, family: Family, spec: str) -> tuple[tuple[int, int], int | None]:
    """(crop size, shortest side or None to squash) of a preprocessor_config.json in any of its spellings."""
    size, crop = recipe.get("size", SIZE), recipe.get("crop_size")
    edge = size if isinstance(size, int) else size.get("shortest_edge")
    # ResNet has transformers' ConvNext processor: crop_pct below 384, squash from there
    if family.encoder == "ResNetModel" and edge:
        return (edge, edge), None if edge >= 384 else int(edge / (recipe.get("crop_pct") or 224 / 256))
    if recipe.get("do_center_crop", crop is not None) and edge and crop:
        return ((crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])), edge
    if isinstance(size, int):
        return (size, size), None
    if "height" in size and "width" in size:
        return (size["height"], size["width"]), None
    raise UserError(f"{spec}: preprocessor_config.json gives no fixed image size (size {size}); use --transform squash")
