"""ViT, BiT, ResNet and DINOv2 checkpoints in hub layout, through transformers, with nothing left to chance.

transformers fills what a checkpoint lacks with random numbers and a warning; here that is an error that names the
weights. Old and new layouts, safetensors and .bin (read with weights_only) and any stored precision come out alike,
in the precision asked for. No remote code is ever run: only the architectures in FAMILIES are known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from shared import hub, process, schema
from shared.errors import UserError
from shared.models import GROUP_NORM, Identity, checkpoint, labels, processors
from shared.specs import Spec

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shared.device import Choice

Width = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
# numbers that a network may have beyond its checkpoint's before it is made: a pooler, say, is then missed by name
MORE_NUMBERS = 10_000_000


class Config(msgspec.Struct):
    """What is read of a config.json, with transformers' defaults: with bounds. The rest is transformers' affair."""

    model_type: str = ""
    num_channels: int = 3
    image_size: Any = 224
    patch_size: Any = 16
    hidden_size: Width = 768
    intermediate_size: Width = 3072
    num_hidden_layers: Layers = 12
    num_attention_heads: Width = 12
    pooler_output_size: Width | None = None
    mlp_ratio: Annotated[float, msgspec.Meta(gt=0, le=100)] = 4
    layer_norm_eps: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1e-6
    embedding_size: Width = 64
    hidden_sizes: Annotated[tuple[Width, ...], msgspec.Meta(min_length=1)] = (256, 512, 1024, 2048)
    depths: Annotated[tuple[Layers, ...], msgspec.Meta(min_length=1)] = (3, 4, 6, 3)
    width_factor: Width = 1
    num_groups: Width = 32
    num_labels: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 2
    id2label: dict[str, str] = {}
    architecture: str | None = None  # how timm's own repositories name their network
    architectures: list[str] = []  # transformers' classes that wrote it
    auto_map: Any = None
    quantization_config: Any = None


class Family(NamedTuple):
    """One architecture: transformers' classes, its width out of config.json (with the class's defaults), its habits."""

    encoder: str
    classifier: str
    dim: Callable[[Config], int]
    processor: str  # of `processors.PROCESSORS`, where the preprocessor's file names none
    own: tuple[str, ...]  # the first parts of its weights' names, in this and in older layouts
    output: str = "pooler_output"  # the encoder's output that is the representation
    fixed_size: bool = False  # position embeddings that fit one image size
    transformer: bool = False
    one_token: bool = False  # of the last layer's tokens only the class token is read
    unused: tuple[str, ...] = ()  # weights that the forward pass never reads
    float32_because: str = ""


def _last(config: Config) -> int:
    return config.hidden_sizes[-1]


TRANSFORMER = ("embeddings", "encoder", "layers", "layernorm", "pooler", "classifier", "decoder", "head")
CONVOLUTIONAL = ("embedder", "encoder", "pooler", "norm", "classifier")
HEADS = ("classifier.", "decoder.", "head.", "lm_head.")  # and a pooler, where logits are asked for

# A further architecture is one more row, and a reference in tests/shared/test_models_hf.py.
FAMILIES = {
    "vit": Family(
        "ViTModel",
        "ViTForImageClassification",
        lambda c: c.pooler_output_size or c.hidden_size,
        processor="ViT",
        own=("vit", *TRANSFORMER),
        fixed_size=True,
        transformer=True,
        one_token=True,
    ),
    "bit": Family(
        "BitModel",
        "BitForImageClassification",
        lambda c: _last(c) * c.width_factor,
        processor="Bit",
        own=("bit", *CONVOLUTIONAL),
        float32_because=GROUP_NORM,
    ),
    "resnet": Family(
        "ResNetModel", "ResNetForImageClassification", _last, processor="ConvNext", own=("resnet", *CONVOLUTIONAL)
    ),
    "dinov2": Family(
        "Dinov2Model",
        "Dinov2ForImageClassification",
        lambda c: c.hidden_size,
        processor="Bit",
        own=("dinov2", *TRANSFORMER),
        transformer=True,
        unused=("embeddings.mask_token",),
    ),
}


def describe(spec: Spec, *, transform: str, head: bool) -> Identity:
    """See `shared.models.describe`. Reads settings and hashes weight files; transformers is not imported."""
    place = hub.model(spec)
    config = _config(place.path, spec.text)
    family = FAMILIES[config.model_type]
    files = hub.weight_files(place.path, spec.text)
    found = checkpoint.entries(spec.text, files)
    chosen = checkpoint.choose(spec.text, found, family.own, spec.weights)
    checkpoint.refuse_whole_numbers(spec.text, found)
    layers = config.num_hidden_layers if family.transformer else sum(config.depths)
    if layers > len(found):  # before they are made
        raise UserError(f"{spec}: config.json has {layers:,} layers, its checkpoint only {len(found):,} tensors")
    wnids, names = labels.match(spec.text, _label_list(config, spec)) if head else ((), ())
    recipe = hub.settings(place.path / processors.FILE, spec.text)
    fixed = _sides(config.image_size) if family.fixed_size else None
    revision = place.revision
    if revision in hub.WITHOUT_COMMIT:  # then the settings' sha256, since they change the numbers as weights do
        revision += f", settings {hub.sha256_of([place.path / file for file in hub.SETTINGS])[:12]}"
    return Identity(
        spec=spec.text,
        name=spec.name,
        kind="hf",
        dim=len(names) if head else family.dim(config),
        transform=processors.transform_of(transform, spec.text, recipe, family.processor, fixed),
        revision=revision + (f", {chosen.prefix}*" if chosen.prefix else ""),
        weights_sha256=hub.sha256_of(files),
        head=head,
        float32_because=family.float32_because,
        label_wnids=wnids,
        label_names=names,
        notes=(
            *chosen.notes,
            *_built_as(config, family, head),
            *_heads_beside(spec.text, found, chosen, head),
            *hub.assumed(files),
        ),
        transform_from=processors.keys_read(recipe),
        weights=spec.weights,
        folder=place.path,
        files=files,
    )


def _built_as(config: Config, family: Family, head: bool) -> tuple[str, ...]:
    """A word where the checkpoint was written by another class than those of this architecture."""
    others = [name for name in config.architectures if name not in (family.encoder, family.classifier)]
    if not others:
        return ()
    built = family.classifier if head else family.encoder
    return (f"config.json says that it is a {' or '.join(others)}; it is computed as a {built}",)


def _heads_beside(spec: str, found: dict, chosen: checkpoint.Chosen, head: bool) -> tuple[str, ...]:
    """What is left unread of a checkpoint with a head, where an encoder is asked for."""
    if head:
        return ()
    names = [name.removeprefix(chosen.prefix) for name in found if name.startswith(chosen.prefix)]
    return checkpoint.left_over(spec, [name for name in names if name.startswith(HEADS)], HEADS)


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim], in eval mode on the device. UserError for a partial checkpoint.

    A transformer is read straight into `choice.dtype`, without a float32 copy (ViT-H/14 in bf16 stays under 8 GB); a
    convolutional network is small and is read in float32, since its batch norms are folded before the cast.
    """
    import torch

    from shared.models import fast

    family = FAMILIES[_config(identity.folder, identity.spec).model_type]
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
    """transformers' model with the checkpoint's weights, every one of which has its place."""
    import torch
    import transformers

    spec = identity.spec
    found = checkpoint.entries(spec, identity.files)
    prefix = checkpoint.choose(spec, found, family.own, identity.weights).prefix
    model_class = getattr(transformers, family.classifier if identity.head else family.encoder)
    arguments: dict[str, Any] = {"attn_implementation": "sdpa"} if family.transformer else {}
    try:
        with process.quiet():
            config = model_class.config_class.from_pretrained(identity.folder)
            with torch.device("meta"):
                wanted = sum(p.numel() for p in model_class(config).parameters())
    except Exception as error:  # each setting has its own class of error
        raise UserError(f"{spec}: config.json describes no network ({_one_line(error)})") from error
    has = sum(torch.Size(entry.shape).numel() for name, entry in found.items() if name.startswith(prefix))
    if wanted > 1.1 * has + MORE_NUMBERS:  # before that much memory is asked for
        raise UserError(f"{spec}: config.json describes a network of {wanted:,} numbers, the checkpoint has {has:,}")
    if prefix:
        parts = [checkpoint.tensors_of(spec, file) for file in identity.files]
        state = {k.removeprefix(prefix): v for part in parts for k, v in part.items() if k.startswith(prefix)}
        place, arguments = None, {**arguments, "state_dict": state}
    else:
        place = identity.folder
        arguments["use_safetensors"] = identity.files[0].suffix == ".safetensors"
    try:
        with process.quiet():
            model, report = model_class.from_pretrained(
                place,
                config=config,
                dtype=dtype,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **arguments,
            )
    except Exception as error:  # a torn file, a pickle with code: many classes, one meaning
        raise UserError(f"{spec}: the checkpoint cannot be read ({_one_line(error)})") from error
    for key, shape, expected in sorted(report["mismatched_keys"]):
        checkpoint.refuse_shape(spec, key, shape, expected)
    checkpoint.refuse_partial(spec, [key for key in report["missing_keys"] if not key.endswith(family.unused)])
    checkpoint.left_over(spec, report["unexpected_keys"], (*HEADS, "pooler.") if identity.head else HEADS)
    checkpoint.refuse_not_finite(spec, model.state_dict())
    return model


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _config(folder: Path, spec: str) -> Config:
    """The checked config.json. UserError for another architecture, and for what cannot be computed as it is meant."""
    where, settings = f"{spec}: config.json", hub.settings(folder / "config.json", spec)
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        timms = settings.get("architecture")  # how timm's own repositories name their network
        instead = f"timm:{timms}@<its weight file>" if isinstance(timms, str) else "a timm:<name>"
        raise UserError(f"{spec}: model_type {kind!r:.60}; expected one of {', '.join(FAMILIES)}, or {instead}")
    given = {key: value for key, value in settings.items() if value is not None}
    config = schema.checked(given, Config, where, "copy it from the model's repository")
    if config.auto_map:
        why = "it names Python code of its own (auto_map), which is never run"
        raise UserError(f"{where}: {why}; take auto_map out of a local copy to compute it as transformers' {kind}")
    if config.quantization_config:
        raise UserError(f"{where}: quantised weights (quantization_config) are not read; take the float checkpoint")
    for key in ("image_size", "patch_size"):
        if _sides(value := getattr(config, key)) is None:
            raise UserError(f"{where}: {key} is {value!r:.60}; expected a whole number of pixels, or two")
    if config.num_channels != 3:
        raise UserError(f"{where}: num_channels is {config.num_channels}; only models of RGB images are known here")
    return config


def _sides(size: Any) -> tuple[int, int] | None:
    """(height, width) of an image_size or patch_size; None for what is no such size."""
    sides = tuple(size) if isinstance(size, list) else (size, size)
    right = all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= processors.LARGEST for n in sides)
    return sides if right and len(sides) == 2 else None


def _label_list(config: Config, spec: Spec) -> list[str]:
    table = config.id2label or {f"{i}": f"LABEL_{i}" for i in range(config.num_labels)}
    try:
        return [table[str(i)] for i in range(len(table))]
    except KeyError:
        raise UserError(f"{spec}: id2label in config.json does not number its classes from 0 without a gap") from None
