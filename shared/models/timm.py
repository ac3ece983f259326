"""Any timm model by name, as an encoder (timm's own pre-logits features) or an ImageNet-1k classifier."""

from __future__ import annotations

import difflib
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from shared import hub, schema, transforms
from shared.errors import UserError
from shared.models import Identity, checkpoint, labels
from shared.models.processors import INSTEAD, LARGEST
from shared.specs import Spec
from shared.transforms import SIZE, Transform

if TYPE_CHECKING:
    from torch import Tensor, nn

    from shared.device import Choice

Side = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
# What timm resamples for images of another size; that other tensors are made to fit means another architecture.
RESAMPLED = re.compile(r"pos_embed|rel_pos|relative_position|pos_emb")


def describe(spec: Spec, *, transform: str, head: bool, pool: str = "") -> Identity:
    """See `shared.models.describe`. The weights are those of `spec.path`, or the hub's."""
    from shared.models import fast

    settings, settings_from = _settings(spec)
    if head and settings.num_classes != 1000 and not spec.path:
        why = "expected ImageNet-1k's 1,000 (a 21k head cannot be compared), or a file of your own with @"
        raise UserError(f"{spec}: has {settings.num_classes:,} classes; {why}")
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
    if settings.input_size[0] != 3:
        raise UserError(f"{spec}: takes images of {settings.input_size[0]} channels; only RGB images are known here")
    weights = _weights(spec.text, spec.name, file, head=head, wanted=spec.weights)
    wnids, names, notes = _labels(spec, weights.classes) if head else ((), (), ())
    beside = _beside(file) if spec.path else {}
    notes = (*notes, *_built_as(spec.name, weights.said, beside.get("architecture")))
    words = _pooled(spec.text, weights.model, settings, pool)
    return Identity(
        spec=spec.text,
        name=f"timm:{spec.name}",
        kind="timm",
        dim=_dim(weights, names, head, pool),
        transform=_transform(spec, settings, transform),
        revision=revision + (f", {weights.prefix}*" if weights.prefix else ""),
        weights_sha256=hub.sha256_of([file]),
        head=head,
        float32_because=fast.float32_because(weights.model),
        label_wnids=wnids,
        label_names=names,
        pool=pool,
        notes=(*weights.notes, *notes, *hub.assumed([file])),
        transform_from=settings_from,
        weights=spec.weights,
        representation="logits" if head else words,
        files=(file,),
    )


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim]. UserError for a checkpoint that lacks a weight or does not fit."""
    return load(identity, identity.name.removeprefix("timm:"), choice)


def load(identity: Identity, architecture: str, choice: Choice) -> nn.Module:
    """timm's `architecture` with `identity`'s file, folded and cast."""
    import torch

    from shared.models import fast

    weights = _weights(identity.spec, architecture, identity.files[0], head=identity.head, wanted=identity.weights)
    checkpoint.refuse_not_finite(identity.spec, weights.state)
    # what no checkpoint holds (tables of positions and the like) is computed by a network that is made in memory
    with torch.random.fork_rng([]):
        model = _network(architecture, weights.classes, device="cpu")
    model.load_state_dict(weights.state, strict=False)
    module = model
    if not identity.head:
        module = fast.Tokens(model, identity.pool) if identity.pool else fast.PreLogits(model)
    return fast.folded(module.eval(), identity.transform.size).to(device=choice.device, dtype=choice.dtype)


def _network(architecture: str, classes: int | None, device: str = "meta") -> nn.Module:
    """timm's network without weights; on "meta" only its shapes. classes: of its head; 0: none; None: timm's number."""
    import timm
    import torch

    with torch.device(device):
        return timm.create_model(architecture, **({} if classes is None else {"num_classes": classes}))


def _beside(file: Path) -> dict[str, Any]:
    """timm's own settings file where one lies beside the weights (as in timm's repositories); else nothing."""
    path = file.with_name("config.json")
    if not path.is_file():
        return {}
    found: dict[str, Any] = {}
    with suppress(UserError):  # some other program's
        found = hub.settings(path, file.name)
    return found if isinstance(found.get("architecture"), str) else {}


def _labels(spec: Spec, classes: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(wnids, names, notes) of the head's columns, as a settings file beside the weights names them.

    Without one 1,000 columns are taken for ImageNet-1k's, and others have no names.
    """
    told = _beside(spec.path).get("label_names") if spec.path else None
    if isinstance(told, list) and len(told) == classes and all(isinstance(name, str) for name in told):
        return *labels.match(spec.text, told), ("the classes are named by label_names in the config.json beside it",)
    if classes == 1000:
        taken = "its 1,000 columns are taken for ImageNet-1k's classes in the usual order"
        return *labels.imagenet(), (taken,) * bool(spec.path)
    count = f" ({len(told):,} are named there)" if isinstance(told, list) else ""
    lacks = f"its {classes:,} columns have no names: write architecture and label_names, a list, into a config.json"
    return (), tuple(f"LABEL_{i}" for i in range(classes)), (f"{lacks} beside it{count}",)


def _built_as(architecture: str, *said: str | None) -> tuple[str, ...]:
    """A word where what lies with the weights names another network than the one that is built."""
    asked = architecture.partition(".")[0]
    others = dict.fromkeys(name for name in said if name and name.partition(".")[0] != asked)
    return tuple(f"the checkpoint says that it is a {name}; it is computed as a {asked}" for name in others)


class Weights(NamedTuple):
    """A state dict that fits `model`, which is on "meta" and has a head of `classes` (0: none).

    prefix, notes: as in `checkpoint.Chosen`. said: what network the file says that it is of, if it does.
    """

    state: dict[str, Tensor]
    prefix: str
    notes: tuple[str, ...]
    model: nn.Module
    classes: int
    said: str


def _weights(spec: str, architecture: str, file: Path, *, head: bool, wanted: str) -> Weights:
    """The tensors of `file` under the names of timm's network. UserError unless each of its weights is there once.

    A head has as many classes as the file's.
    """
    model = _network(architecture, None if head else 0)
    places = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    found, said = checkpoint.tensors_and_name(spec, file)
    if not found:
        raise UserError(f"{spec}: {file.name} has no weights in it; expected a state_dict")
    chosen = checkpoint.choose(spec, found, {key.partition(".")[0] for key in places}, wanted)
    state = {k.removeprefix(chosen.prefix): v for k, v in found.items() if k.startswith(chosen.prefix)}
    checkpoint.refuse_whole_numbers(
        spec, {k: checkpoint.Entry(str(v.dtype)[6:], tuple(v.shape)) for k, v in state.items()}
    )
    translated, notes = _translated(spec, file, state, model), list(chosen.notes)
    classifier = model.pretrained_cfg.get("classifier") or ()
    classifiers = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    heads = () if head else tuple(f"{c}." for c in classifiers)
    translated = {key: value for key, value in translated.items() if not key.startswith(heads)}
    classes = {len(translated[key]) for c in classifiers if (key := f"{c}.weight") in translated} if head else {0}
    if len(classes) == 1 and classes != {model.num_classes}:
        model = _network(architecture, *classes)
        places = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    missing = [key for key in places if key not in translated and not key.endswith("num_batches_tracked")]
    checkpoint.refuse_partial(spec, missing)
    notes += checkpoint.left_over(spec, translated.keys() - places.keys(), ())
    for key, shape in places.items():
        value, before = translated.get(key), state.get(key)
        if value is None:
            continue
        if tuple(value.shape) != shape:
            checkpoint.refuse_shape(spec, key, value.shape, shape)
        if before is not None and before.numel() != value.numel():  # made to fit by timm
            if not RESAMPLED.search(key):
                checkpoint.refuse_shape(spec, key, before.shape, shape)
            notes.append(f"{key} was resampled from {list(before.shape)} to {list(shape)}")
    return Weights(translated, chosen.prefix, tuple(notes), model, model.num_classes, said)


def _translated(spec: str, file: Path, state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The module's own translation of older layouts, by timm's convention."""
    translate = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if not translate:
        return state
    try:
        return dict(translate(dict(state), model))
    except Exception as error:  # a layout that timm does not know: KeyError, RuntimeError, ...
        reason = " ".join(str(error).split())[:150]
        raise UserError(f"{spec}: {file.name} is not in a layout of this network ({reason})") from error


def _dim(weights: Weights, names: tuple[str, ...], head: bool, pool: str) -> int:
    """How many numbers an image gives."""
    if head:
        return len(names)
    return weights.model.num_features * len(pool.split("+")) if pool else weights.model.head_hidden_size


def _pooled(spec: str, model: nn.Module, settings: Any, pool: str) -> str:
    """The representation in words. UserError for a `pool` of tokens that the network does not have."""
    if not pool:
        return "timm's pre-logits features"
    import torch

    with torch.no_grad():
        tokens = model.eval().forward_features(torch.empty(1, *settings.input_size, device="meta"))
    prefix = getattr(model, "num_prefix_tokens", None)
    if prefix is None or not isinstance(tokens, torch.Tensor) or tokens.ndim != 3:
        raise UserError(
            f"{spec}: has no tokens, only feature maps; leave pool {pool!r} out: it gives timm's pre-logits"
        )
    if "cls" in pool and getattr(model, "cls_token", None) is None:
        raise UserError(f"{spec}: has no class token; expected pool mean, or none for timm's pre-logits features")
    words = {"cls": "class token", "mean": "mean of the patch tokens"}
    return ", and ".join(words[part] for part in pool.split("+")) + " of timm's forward_features"


def _transform(spec: Spec, settings: Any, name: str) -> Transform:
    """timm's recipe as the suite's transform; encoders squash to 224x224 unless the architecture fixes another size.

    "own" is the recipe that timm validates with, which may have larger images than the training.
    """
    from timm.data import resolve_data_config

    recipe = resolve_data_config(pretrained_cfg=settings.to_dict(), use_test_size=True)
    if recipe["crop_mode"] not in ("center", "squash") and name == "own":
        raise UserError(f"{spec}: timm's crop mode {recipe['crop_mode']!r} is not known; {INSTEAD}")
    own_size, mean, std = tuple(recipe["input_size"][1:]), tuple(recipe["mean"]), tuple(recipe["std"])
    larger = tuple(int(side / recipe["crop_pct"]) for side in own_size)
    squash = recipe["crop_mode"] == "squash"
    way = {"squashed": larger if larger != own_size else None} if squash else {"shortest": larger[0]}
    own = Transform(own_size, recipe["interpolation"], mean, std, **way)
    size = tuple(settings.input_size[1:]) if settings.fixed_input_size else (SIZE, SIZE)
    return transforms.named(name, size, own.interpolation, mean, std, own)


class Recipe(msgspec.Struct):
    """What a settings file beside the weights may say of the images, by timm's keys."""

    input_size: tuple[Side, Side, Side] | None = None  # channels, height, width
    test_input_size: tuple[Side, Side, Side] | None = None
    fixed_input_size: bool | None = None
    interpolation: str | None = None
    crop_pct: Annotated[float, msgspec.Meta(gt=0, le=2)] | None = None
    test_crop_pct: Annotated[float, msgspec.Meta(gt=0, le=2)] | None = None
    crop_mode: str | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[Positive, Positive, Positive] | None = None


def _settings(spec: Spec) -> tuple[Any, str]:
    """timm's PretrainedCfg of the model (its weights' repository, recipe and classes), and where it is from.

    Of a file the recipe that lies beside it counts, as timm writes it; else timm's own for the name.
    """
    import timm

    settings = None
    with suppress(RuntimeError):  # an unknown tag after the dot
        if timm.is_model(spec.name):
            settings = timm.models.get_pretrained_cfg(spec.name, allow_unregistered=False)
    if settings is None:
        near = difflib.get_close_matches(spec.name, timm.list_models() + timm.list_pretrained(), n=1)
        hint = f"; did you mean timm:{near[0]}?" if near else ""
        raise UserError(f"{spec}: timm has no model {spec.name!r}{hint}")
    name = f"{settings.architecture}.{settings.tag}" if settings.tag else settings.architecture
    told = _beside(spec.path).get("pretrained_cfg") if spec.path else None
    if not isinstance(told, dict):
        return settings, f"image sizes, mean and std are timm's for {name}"
    where = f"{spec.path.with_name('config.json')}: pretrained_cfg"
    recipe = schema.checked(told, Recipe, where, "copy it from the model's repository")
    given = {key: value for key, value in msgspec.structs.asdict(recipe).items() if value is not None}
    keys = ", ".join(given) or "none"
    return replace(settings, **given), f"keys read of the config.json beside it: {keys}; the rest is timm's for {name}"
