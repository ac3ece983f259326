"""torchvision's classification networks with the weights of a file, as encoders or ImageNet-1k classifiers.

The representation is what enters the network's last layer. torchvision publishes several weights of one network with
several recipes for images; the file's name or the spec tells which recipe is meant, else one is assumed and said.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shared import hub, transforms
from shared.errors import UserError
from shared.models import Identity, checkpoint, labels
from shared.specs import Spec
from shared.transforms import SIZE, Transform

if TYPE_CHECKING:
    from torch import Tensor, nn

    from shared.device import Choice

AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")  # heads that only training reads
# How DenseNet's layers are called in the published files, and since torchvision 0.3.
DENSENET = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$")


class Published(NamedTuple):
    """torchvision's entry of some weights: a recipe for images, and the address. assumed: what is to be said of it."""

    name: str
    entry: Any
    assumed: str = ""


def describe(spec: Spec, *, transform: str, head: bool, pool: str = "") -> Identity:
    """See `shared.models.describe`."""
    from shared.models import fast

    architecture, _, tag = spec.name.partition(".")
    if pool:
        raise UserError(
            f"{spec}: pool {pool!r} is not known of torchvision's networks; leave it out, or take timm:<name>"
        )
    published = _published(spec, architecture, tag)
    file = spec.path or _downloaded(spec, published)
    sha256 = hub.sha256_of([file])
    _refuse_other_hash(spec, file, sha256, published)
    model = _network(architecture, published)
    weights = _weights(spec.text, file, model, head=head, wanted=spec.weights)
    to_pixels = _transform(published, architecture, transform)
    wnids, names = labels.imagenet() if head else ((), ())
    return Identity(
        spec=spec.text,
        name=f"torchvision:{spec.name}",
        kind="torchvision",
        dim=len(names) if head else _dim(spec.text, _without_head(model), to_pixels.size),
        transform=to_pixels,
        revision=f"file {file.name}" + (f", {weights.prefix}*" if weights.prefix else ""),
        weights_sha256=sha256,
        head=head,
        float32_because=fast.float32_because(model),
        label_wnids=wnids,
        label_names=names,
        notes=(*weights.notes, *([published.assumed] if published.assumed else []), *hub.assumed([file])),
        weights=spec.weights,
        representation="logits" if head else "what enters the last layer",
        transform_from=f"torchvision's recipe of {architecture} {published.name}",
        files=(file,),
    )


def build(identity: Identity, choice: Choice) -> nn.Module:
    """The network, float [B, 3, h, w] to [B, dim]. UserError for a checkpoint that lacks a weight or does not fit."""
    from shared.models import fast

    architecture, _, tag = identity.name.removeprefix("torchvision:").partition(".")
    spec = Spec(identity.spec, "torchvision", identity.name.removeprefix("torchvision:"), path=identity.files[0])
    published = _published(spec, architecture, tag)
    model = _network(architecture, published, device="cpu")
    weights = _weights(identity.spec, identity.files[0], model, head=identity.head, wanted=identity.weights)
    checkpoint.refuse_not_finite(identity.spec, weights.state)
    model.load_state_dict(weights.state, strict=False)
    module = (model if identity.head else _without_head(model)).eval()
    return fast.folded(module, identity.transform.size).to(device=choice.device, dtype=choice.dtype)


def _published(spec: Spec, architecture: str, tag: str) -> Published:
    """The weights whose recipe is meant: those of the spec's tag, of the file's name, or torchvision's best."""
    import torchvision.models as theirs

    known = theirs.list_models(module=theirs)
    if architecture not in known:
        near = difflib.get_close_matches(architecture, known, n=1)
        hint = f"; did you mean torchvision:{near[0]}?" if near else ""
        raise UserError(f"{spec}: torchvision has no classification network {architecture!r}{hint}")
    every = {entry.name: entry for entry in theirs.get_model_weights(architecture)}
    if tag:
        if tag not in every:
            raise UserError(f"{spec}: torchvision has no weights {tag!r} of {architecture}; it has {', '.join(every)}")
        return Published(tag, every[tag])
    for name, entry in every.items():
        if spec.path and spec.path.name == _file_name(entry):
            return Published(name, entry)
    default = theirs.get_model_weights(architecture).DEFAULT
    others = [name for name, entry in every.items() if _recipe(entry) != _recipe(default)]
    if not spec.path or not others:
        return Published(default.name, default)
    said = f"images enter by the recipe of torchvision's {default.name}, since the file's name is none of torchvision's"
    return Published(default.name, default, f"{said} (torchvision:{architecture}.{others[0]}@...: another recipe)")


def _file_name(entry: Any) -> str:
    return entry.url.rpartition("/")[2]


def _recipe(entry: Any) -> tuple:
    recipe = entry.transforms()
    crop, resize = recipe.crop_size[0], recipe.resize_size[0]
    return crop, resize, recipe.interpolation.value, tuple(recipe.mean), tuple(recipe.std)


def _transform(published: Published, architecture: str, name: str) -> Transform:
    crop, resize, interpolation, mean, std = _recipe(published.entry)
    own = Transform((crop, crop), interpolation, mean, std, shortest=resize)
    fixed = architecture.startswith(("vit_", "maxvit"))  # positions, or windows, of one image size
    size = own.size if fixed else (SIZE, SIZE)
    return transforms.named(name, size, interpolation, mean, std, own)


def _downloaded(spec: Spec, published: Published) -> Path:
    """torchvision's own download of these weights. UserError that says where to get them."""
    import torch

    file = Path(torch.hub.get_dir()) / "checkpoints" / _file_name(published.entry)
    if not file.is_file():
        way_out = f"download {published.entry.url} and give {spec}@<its path>"
        raise UserError(f"{spec}: no weights named, and torchvision's {published.name} are not at {file}; {way_out}")
    return file


def _refuse_other_hash(spec: Spec, file: Path, sha256: str, published: Published) -> None:
    """A published file's name ends with the first digits of its sha256."""
    digits = re.search(r"-([0-9a-f]{8})\.pth$", file.name)
    if digits and file.name == _file_name(published.entry) and not sha256.startswith(digits[1]):
        what = f"sha256 {sha256[:8]}..., expected {digits[1]}..."
        raise UserError(f"{spec}: {file.name} is not the file that torchvision publishes ({what}); download it again")


def _network(architecture: str, published: Published, device: str = "meta") -> nn.Module:
    import torch
    import torchvision.models as theirs

    more: dict[str, Any] = {}
    if architecture.startswith("vit_"):
        more["image_size"] = _recipe(published.entry)[0]
    if architecture in ("googlenet", "inception_v3"):
        # as torchvision makes them for its own weights, which expect images scaled once more
        more |= {"aux_logits": False, "init_weights": False, "transform_input": not published.assumed}
    with torch.random.fork_rng([]), torch.device(device):
        return theirs.get_model(architecture, weights=None, **more).eval()


def _last_layer(model: nn.Module) -> str:
    """The name of the layer that makes the classes' scores: the last one with as many outputs."""
    from torch import nn

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    return next(name for name, m in reversed(layers) if len(m.weight) == 1000)


def _without_head(model: nn.Module) -> nn.Module:
    from torch import nn

    parent, _, name = _last_layer(model).rpartition(".")
    setattr(model.get_submodule(parent), name, nn.Identity())
    return model


def _dim(spec: str, model: nn.Module, size: tuple[int, int]) -> int:
    import torch

    try:
        with torch.no_grad():
            return model(torch.empty(1, 3, *size, device="meta")).shape[1]
    except Exception as error:  # a size that the network does not take
        raise UserError(f"{spec}: images of {size[0]}x{size[1]} do not fit this network ({error})") from error


class Weights(NamedTuple):
    """A state dict that fits the network. prefix, notes: as in `checkpoint.Chosen`."""

    state: dict[str, Tensor]
    prefix: str
    notes: tuple[str, ...]


def _weights(spec: str, file: Path, model: nn.Module, *, head: bool, wanted: str) -> Weights:
    """The tensors of `file` under the names of `model`. UserError unless each of its weights is there once."""
    last = f"{_last_layer(model)}."
    places = {key: tuple(v.shape) for key, v in model.state_dict().items() if head or not key.startswith(last)}
    found = checkpoint.tensors_of(spec, file)
    if not found:
        raise UserError(f"{spec}: {file.name} has no weights in it; expected a state_dict")
    chosen = checkpoint.choose(spec, found, {key.partition(".")[0] for key in places}, wanted)
    state = {k.removeprefix(chosen.prefix): v for k, v in found.items() if k.startswith(chosen.prefix)}
    checkpoint.refuse_whole_numbers(
        spec, {k: checkpoint.Entry(str(v.dtype).removeprefix("torch."), tuple(v.shape)) for k, v in state.items()}
    )
    state = {DENSENET.sub(r"\1\2", key): value for key, value in state.items()}
    missing = [key for key in places if key not in state and not key.endswith("num_batches_tracked")]
    checkpoint.refuse_partial(spec, missing)
    unread = AUXILIARY if head else (*AUXILIARY, last)
    notes = chosen.notes + checkpoint.left_over(spec, state.keys() - places.keys(), unread)
    for key, shape in places.items():
        if key in state and tuple(state[key].shape) != shape:
            if head and key.startswith(last):
                why = "only ImageNet-1k's 1,000 can be named; use it as an encoder"
                raise UserError(f"{spec}: the head of {file.name} has {len(state[key]):,} classes; {why}")
            checkpoint.refuse_shape(spec, key, state[key].shape, shape)
    return Weights({key: value for key, value in state.items() if key in places}, chosen.prefix, notes)
