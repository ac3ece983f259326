"""Checkpoints in hub layout, of the architectures in `families`, through transformers, with nothing left to chance.

transformers fills what a checkpoint lacks with random numbers and a warning; here that is an error that names the
weights. Old and new layouts, safetensors and .bin (read with weights_only) and any stored precision come out alike,
in the precision asked for. No remote code is ever run: only the architectures in `families` are known.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from shared import hub, process, schema
from shared.errors import UserError
from shared.models import Identity, checkpoint, families, labels, processors
from shared.models.families import FAMILIES, HEADS, POOLER, Family
from shared.specs import Spec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from shared.device import Choice

Width = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
# numbers that a network may have beyond its checkpoint's before it is made: a pooler, say, is then missed by name
MORE_NUMBERS = 10_000_000
DEPTHS = re.compile(r"num_hidden_layers|num_layers|depths?|num_blocks|layers")  # how configs call numbers of layers


class Config(msgspec.Struct):
    """What is read of every config.json. The rest is transformers' affair."""

    model_type: str = ""
    num_channels: int = 3
    num_labels: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 2
    id2label: dict[str, str] = {}
    architectures: list[str] = []  # transformers' classes that wrote it
    auto_map: Any = None
    quantization_config: Any = None


class ArticleConfig(Config):
    """And what is read of the article's families, with transformers' defaults: with bounds."""

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


class _Shape(NamedTuple):
    """What is known of a network before its weights are read. fixed: the one size of images that it takes.

    dim: numbers an image as an encoder, 0 where `network`, which has no weights, has to be asked.
    """

    dim: int
    fixed: tuple[int, int] | None
    own: tuple[str, ...]
    float32_because: str
    network: nn.Module | None = None


def describe(spec: Spec, *, transform: str, head: bool, pool: str = "") -> Identity:
    """See `shared.models.describe`. Reads settings and hashes weight files.

    transformers is not imported for the article's families; any other network is made, without weights.
    """
    place = hub.model(spec)
    config, layers = _config(place.path, spec.text)
    family = FAMILIES[config.model_type]
    words = families.chosen(spec.text, family, pool)[1]
    if head and not family.classifier:
        raise UserError(f"{spec}: transformers has no classifier of model_type {config.model_type!r}, only an encoder")
    files = hub.weight_files(place.path, spec.text)
    found = checkpoint.entries(spec.text, files)
    checkpoint.refuse_whole_numbers(spec.text, found)
    if layers > len(found):  # before they are made
        raise UserError(f"{spec}: config.json has {layers:,} layers, its checkpoint only {len(found):,} tensors")
    wnids, names = labels.match(spec.text, _label_list(config, spec)) if head else ((), ())
    recipe_file, recipe = _recipe(place.path, spec.text)
    shape = _shape(spec.text, place.path, config, family, head, pool, recipe)
    chosen = checkpoint.choose(spec.text, found, shape.own, spec.weights)
    to_pixels = processors.transform_of(transform, spec.text, recipe, family.processor, shape.fixed)
    revision = place.revision
    if revision in hub.WITHOUT_COMMIT:  # then the settings' sha256, since they change the numbers as weights do
        revision += f", settings {hub.sha256_of([place.path / hub.SETTINGS[0], recipe_file])[:12]}"
    return Identity(
        spec=spec.text,
        name=spec.name,
        kind="hf",
        dim=len(names) if head else shape.dim or _dim(spec.text, shape.network, to_pixels.size),
        transform=to_pixels,
        revision=revision + (f", {chosen.prefix}*" if chosen.prefix else ""),
        weights_sha256=hub.sha256_of(files),
        head=head,
        float32_because=shape.float32_because,
        label_wnids=wnids,
        label_names=names,
        pool=pool,
        notes=(
            *chosen.notes,
            *_built_as(config, family, head),
            *_heads_beside(spec.text, found, chosen, head),
            *hub.assumed(files),
        ),
        transform_from=processors.keys_read(recipe, recipe_file.name),
        weights=spec.weights,
        representation="logits" if head else words,
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


def _recipe(folder: Path, spec: str) -> tuple[Path, dict[str, Any]]:
    """The preprocessor's file and its settings; transformers 5 may write them as a part of processor_config.json."""
    file, other = folder / processors.FILE, folder / hub.PROCESSOR
    if not file.is_file() and other.is_file():
        part = hub.settings(other, spec).get("image_processor")
        if isinstance(part, dict):
            return other, part
    return file, hub.settings(file, spec)


# The network before its weights ---------------------------------------------------------------------------------------


def _shape(
    spec: str, folder: Path, config: Any, family: Family, head: bool, pool: str, recipe: dict[str, Any]
) -> _Shape:
    if family.article:
        dim = family.dim(config) if not pool else config.hidden_size * len(pool.split("+"))
        fixed = _sides(config.image_size) if family.fixed_size else None
        return _Shape(dim, fixed, family.own, family.float32_because)
    from shared.models import fast

    theirs, model = _without_weights(spec, folder, family, head, pool)
    fixed = None
    if family.processor == "Siglip2":
        fixed = (processors.naflex_side(spec, recipe),) * 2
    elif family.fixed_size and (fixed := _sides(theirs.image_size)) is None:
        raise UserError(f"{spec}: config.json: image_size is {theirs.image_size!r:.60}; expected pixels")
    module = _answer(spec, model, family, theirs, head, pool)
    dim = 0 if family.dim is None or pool else family.dim(theirs)
    return _Shape(dim, fixed, _own(family, model), fast.float32_because(model), module)


def _own(family: Family, model: nn.Module) -> tuple[str, ...]:
    """The first parts of the network's own names, in this and in older layouts."""
    if family.own:
        return family.own
    older = {model.base_model_prefix, *families.TRANSFORMER, *families.CONVOLUTIONAL} - {"vision_model"}
    return tuple({key.partition(".")[0] for key in model.state_dict()} | older)


def _without_weights(spec: str, folder: Path, family: Family, head: bool, pool: str) -> tuple[Any, nn.Module]:
    """(transformers' settings, its network without numbers). UserError for settings that describe no network."""
    import torch
    import transformers

    model_class = getattr(transformers, family.classifier if head else family.encoder)
    try:
        with process.quiet(), torch.device("meta"):
            config = model_class.config_class.from_pretrained(folder)
            for key, value in family.settings:
                setattr(config, key, value)
            return config, model_class(config, **_arguments(model_class, family, head, pool))
    except Exception as error:  # each setting has its own class of error
        raise UserError(f"{spec}: config.json describes no network ({_one_line(error)})") from error


def _arguments(model_class: type, family: Family, head: bool, pool: str) -> dict[str, Any]:
    """The class's own arguments: tokens that are pooled here need no pooler, which a checkpoint may lack."""
    if head:
        return {}
    able = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    return {**dict(family.arguments), **({"add_pooling_layer": False} if pool and able else {})}


def _answer(spec: str, model: nn.Module, family: Family, config: Any, head: bool, pool: str) -> nn.Module:
    """transformers' model as a function of images alone."""
    from torch import nn

    from shared.models import fast

    if not head:
        for name in family.cut:
            setattr(model, name, nn.Identity())
    prefix = family.prefix + (getattr(config, family.more) if family.more else 0)
    cls = POOLER if family.class_token == POOLER else ""
    inputs = INPUTS.get(family.encoder)
    output = "logits" if head else families.chosen(spec, family, pool)[0]
    return fast.Answer(model, output, prefix=prefix, cls=cls, inputs=inputs and inputs(config)).eval()


def _all_in_order(config: Any) -> Callable[[Tensor], dict[str, Tensor]]:
    """ViT-MAE hides patches by a random order; here none is hidden, and the order is theirs."""

    def inputs(x: Tensor) -> dict[str, Tensor]:
        import torch

        patches = (x.shape[2] // config.patch_size) * (x.shape[3] // config.patch_size)
        return {"pixel_values": x, "noise": torch.arange(patches, device=x.device).expand(len(x), -1)}

    return inputs


def _as_patches(config: Any) -> Callable[[Tensor], dict[str, Tensor]]:
    """NaFlex takes rows of patches [B, patches, numbers of a patch], a mask of those that are there, and the grid."""

    def inputs(x: Tensor) -> dict[str, Tensor]:
        import torch

        b, side = len(x), config.patch_size
        rows, columns = x.shape[2] // side, x.shape[3] // side
        patches = x.unfold(2, side, side).unfold(3, side, side)  # [B, 3, rows, columns, side, side]
        patches = patches.permute(0, 2, 3, 4, 5, 1).reshape(b, rows * columns, -1)
        return {
            "pixel_values": patches,
            "pixel_attention_mask": torch.ones(b, rows * columns, dtype=torch.int32, device=x.device),
            "spatial_shapes": torch.tensor([[rows, columns]], device=x.device).expand(b, -1),
        }

    return inputs


INPUTS = {"ViTMAEModel": _all_in_order, "Siglip2VisionModel": _as_patches}


def _dim(spec: str, network: nn.Module, size: tuple[int, int]) -> int:
    """How many numbers an image of this size gives: seen in a run without weights."""
    import torch

    try:
        with torch.no_grad(), process.quiet():
            return network(torch.empty(1, 3, *size, device="meta")).shape[1]
    except UserError as error:
        raise UserError(f"{spec}: {error}") from None
    except Exception as error:  # a size that the network does not take: many classes
        what = f"images of {size[0]}x{size[1]} do not fit this network ({_one_line(error)})"
        raise UserError(f"{spec}: {what}; choose the way in which images enter: own, squash or crop") from error


# The network with its weights -----------------------------------------------------------------------------------------


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim], in eval mode on the device. UserError for a partial checkpoint.

    A transformer is read straight into `choice.dtype`, without a float32 copy (ViT-H/14 in bf16 stays under 8 GB); a
    network with batch norms is small and is read in float32, since they are folded before the cast.
    """
    import torch

    from shared.models import fast

    family = FAMILIES[_config(identity.folder, identity.spec)[0].model_type]
    model, config = _read(identity, family, choice)
    if family.one_token and identity.pool in ("", "cls"):
        layers = model.base_model.layers
        layers[-1] = fast.ClassTokenLayer(layers[-1])
    module = _answer(identity.spec, model, family, config, identity.head, identity.pool)
    if family.article and not family.transformer:
        fast.standardise_weights(module)
        module = module.to(memory_format=torch.channels_last)
    return fast.folded(module, identity.transform.size).to(device=choice.device, dtype=choice.dtype)


def _read(identity: Identity, family: Family, choice: Choice) -> tuple[nn.Module, Any]:
    """(transformers' model with the checkpoint's weights, every one of which has its place; its settings)."""
    import torch
    from torch import nn

    spec, head, pool = identity.spec, identity.head, identity.pool
    config, network = _without_weights(spec, identity.folder, family, head, pool)
    model_class = type(network)
    found = checkpoint.entries(spec, identity.files)
    wanted = sum(p.numel() for p in network.parameters())
    has = sum(torch.Size(entry.shape).numel() for entry in found.values())
    if wanted > 1.1 * has + MORE_NUMBERS:  # before that much memory is asked for
        raise UserError(f"{spec}: config.json describes a network of {wanted:,} numbers, the checkpoint has {has:,}")
    convolutional = any(isinstance(m, nn.BatchNorm2d) for m in network.modules())
    if family.article:
        convolutional = not family.transformer
    arguments: dict[str, Any] = {"attn_implementation": "sdpa"} if family.transformer else {}
    arguments |= _arguments(model_class, family, head, pool)
    prefix = checkpoint.choose(spec, found, _own(family, network), identity.weights).prefix
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
                dtype=torch.float32 if convolutional else choice.dtype,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **arguments,
            )
    except Exception as error:  # a torn file, a pickle with code: many classes, one meaning
        raise UserError(f"{spec}: the checkpoint cannot be read ({_one_line(error)})") from error
    _check(spec, family, head, pool, report)
    checkpoint.refuse_not_finite(spec, model.state_dict())
    return model, config


def _check(spec: str, family: Family, head: bool, pool: str, report: dict[str, Any]) -> None:
    """UserError unless each of the checkpoint's tensors has its place, and each place its tensor."""
    cut = () if head else tuple(f"{name}." for name in family.cut)
    for key, shape, expected in sorted(report["mismatched_keys"]):
        if not key.startswith(cut):
            checkpoint.refuse_shape(spec, key, shape, expected)
    missing = [key for key in report["missing_keys"] if not key.endswith(family.unused) and not key.startswith(cut)]
    checkpoint.refuse_partial(spec, missing)
    pooler = ("pooler.",) if head or pool else ()
    checkpoint.left_over(spec, report["unexpected_keys"], (*HEADS, *family.not_read, *pooler))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _config(folder: Path, spec: str) -> tuple[Any, int]:
    """(the checked config.json, its number of layers). UserError for another architecture, and for what is not read."""
    where, settings = f"{spec}: config.json", hub.settings(folder / "config.json", spec)
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        timms, classes = settings.get("architecture"), settings.get("architectures")
        # timm's own repositories name their network so
        instead = f"timm:{timms}@<its weight file>" if isinstance(timms, str) else "a timm:<name>"
        called = f" ({classes[0]:.60})" if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
        raise UserError(f"{spec}: model_type {kind!r:.60}{called}; expected one of {', '.join(FAMILIES)}, or {instead}")
    family, given = FAMILIES[kind], settings
    if family.vision and isinstance(settings.get("vision_config"), dict):
        whole = {key: settings[key] for key in Config.__struct_fields__ if key in settings and key != "num_channels"}
        given = {**settings["vision_config"], **whole}
    given = {key: value for key, value in given.items() if value is not None}
    way_out = "copy it from the model's repository"
    config = schema.checked(given, ArticleConfig if family.article else Config, where, way_out)
    if config.auto_map:
        why = "it names Python code of its own (auto_map), which is never run"
        raise UserError(f"{where}: {why}; take auto_map out of a local copy to compute it as transformers' {kind}")
    if config.quantization_config:
        method = isinstance(config.quantization_config, dict) and config.quantization_config.get("quant_method")
        by = f", {method}" if isinstance(method, str) else ""
        raise UserError(f"{where}: quantised weights (quantization_config{by}) are not read; take the float checkpoint")
    for key in ("image_size", "patch_size") if family.article else ():
        if _sides(value := getattr(config, key)) is None:
            raise UserError(f"{where}: {key} is {value!r:.60}; expected a whole number of pixels, or two")
    if config.num_channels != 3:
        raise UserError(f"{where}: num_channels is {config.num_channels}; only models of RGB images are known here")
    return config, _layers(config, family, given)


def _layers(config: Any, family: Family, given: dict[str, Any]) -> int:
    if family.article:
        return config.num_hidden_layers if family.transformer else sum(config.depths)
    numbers = [n for key, value in given.items() if DEPTHS.fullmatch(key) for n in _numbers(value)]
    return sum(n for n in numbers if n > 0)


def _numbers(value: Any) -> list[int]:
    return [n for n in (value if isinstance(value, list) else [value]) if isinstance(n, int)]


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
