"""Modules that a library builds from a name or a configuration, on the meta device: without weights, of any size.

built = build(spec, length, image)      the module, what it may be given, what it lacks of the model that was meant
model = run(built, name, source)        counted; where it cannot be run its parameters are
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from papers.comparisons.samples import Sizes, longest, samples, setting
from shared import hub, specs
from shared.errors import UserError
from shared.graph.language import matrices
from shared.graph.measure import Model
from shared.graph.trace import outline, trace

UNUSED = "is not used in this forward pass"
# what a model of several kinds of input may be given; a video goes where an image does
OTHERS = {"pixel_values": "an image", "input_features": "a sound", "input_values": "a sound"}


@dataclass
class Built:
    """A module on the meta device.

    inputs: sets to try in order; used: the one that ran; lacks: what is known to be missing, a sentence; dtype: of the
    published weights, as a configuration says.
    """

    module: nn.Module
    inputs: Iterable[dict[str, Any]]
    lacks: str = ""
    dtype: str = ""
    used: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The class, as it is imported."""
        return type(self.module).__name__


def build(spec: specs.Spec, how: tuple | None, length: int | None, image: tuple[int, int] | None) -> Built:
    """how: what builds a built-in model, by the name of a function here and its arguments."""
    sizes = Sizes(length, image)
    with torch.device("meta"):
        if how is not None:
            builder, *arguments = how
            return BUILDERS[builder](*arguments, sizes=sizes)
        if spec.kind == "timm":
            return timm(spec.name, sizes=sizes)
        if spec.kind == "torchvision":
            return torchvision(spec.name.partition(".")[0], sizes=sizes)
        return wheel(spec, sizes) if spec.kind == "wheel" else from_hub(spec, sizes)


def run(built: Built, name: str, source: str) -> Model:
    """The module counted at the first of its inputs that it takes."""
    built.module.eval()
    reasons: list[str] = []
    model = None
    inputs: dict[str, Any] = {}
    try:
        for inputs in built.inputs:
            try:
                model = trace(built.module, inputs, name, source)
                built.used = inputs
                break
            except Exception as error:  # libraries raise what they like on inputs that they do not take
                reasons.append(first_line(error))
    except UserError:
        raise
    except Exception as error:
        reasons.append(first_line(error))
    if model is None:
        why = reasons[0] if reasons else "it is not known what it takes"
        model = outline(built.module, name, source, f"{built.name} was built, but could not be run here ({why})")
    else:
        _without_their_input(built, model, inputs)
    model.built_as, model.lacks = built.name, built.lacks
    config = getattr(built.module, "config", None)
    if config is not None:
        _experts(config, model)
    if built.dtype:
        model.stored = _stored(config, built.dtype, model)
    return model


EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
CHOSEN = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k",
    "num_selected_experts", "router_top_k",
)  # fmt: skip


def _experts(config: Any, model: Model) -> None:
    """Of the experts only those work on a token that it is sent to; the shared ones always do."""
    rows = [layer for layer in model.layers if "experts" in layer.name.split(".")]
    count, chosen = setting(config, *EXPERTS, of="text"), setting(config, *CHOSEN, of="text")
    count = max(count, default=0) if isinstance(count, list | tuple) else count
    if not rows or not isinstance(count, int) or count < 1:
        return
    if not isinstance(chosen, int):
        chosen = 1 if getattr(config, "model_type", "").startswith("switch") else None
    for layer in rows:
        if chosen is None:
            layer.notes.append(f"the configuration does not say how many of {count} experts a token is sent to")
        elif layer.parameters:
            layer.active = layer.parameters * min(chosen, count) // count


SIZES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def _stored(config: Any, dtype: str, model: Model) -> dict[str, Any]:
    """What the configuration says of the published weights: their type, and in how many bits the matrices are."""
    found: dict[str, Any] = {"dtype": dtype, "quantisation": None, "bytes": None}
    size, quant = SIZES.get(dtype), getattr(config, "quantization_config", None)
    quant = quant if isinstance(quant, dict) else quant.to_dict() if hasattr(quant, "to_dict") else None
    if size is None:
        return found
    if quant is None:
        return found | {"bytes": float(size * model.parameters)}
    method = str(quant.get("quant_method", ""))
    bits = quant.get("bits") or quant.get("w_bit") or {"fp8": 8, "mxfp4": 4, "fbgemm_fp8": 8}.get(method)
    bits = bits or (4 if quant.get("load_in_4bit") else 8 if quant.get("load_in_8bit") else None)
    group = quant.get("group_size") or {"mxfp4": 32}.get(method, 0)
    if not isinstance(bits, int) or not isinstance(group, int):
        return found | {"quantisation": method or "of a method that is not known"}
    each = bits + ((8 if method == "mxfp4" else 16) / group if group > 0 else 0)
    few = matrices(model)
    if method == "mxfp4":  # the experts alone
        few = sum(layer.parameters or 0 for layer in model.layers if layer.active is not None)
    words = f"{method or 'quantised'}, {bits} bits" + (f" in groups of {group}" if group > 0 else "")
    return found | {"quantisation": words, "bytes": few * each / 8 + (model.parameters - few) * size}


def _without_their_input(built: Built, model: Model, inputs: dict[str, Any]) -> None:
    """A tower that was given nothing to work on: its operations are not 0, they are not known."""
    takes = inspect.signature(built.module.forward).parameters
    missing = [words for name, words in OTHERS.items() if name in takes and name not in inputs]
    idle = [layer for layer in model.layers if UNUSED in layer.notes]
    if missing and idle and getattr(built.module, "input_modalities", None):
        for layer in idle:
            layer.macs = layer.kept = None
            layer.notes = [f"is not run: it may need {' or '.join(dict.fromkeys(missing))}, which was not given"]


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


# libraries ------------------------------------------------------------------------------------------------------------


def given(shapes: dict[str, tuple[int, ...]], sizes: Sizes) -> list[dict[str, torch.Tensor]]:
    """`(tokens,)` gives token ids, `(channels, height, width)` an image; each with a batch axis of 1."""
    found = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            count = min(sizes.length or shape[0], shape[0]) if name.startswith("decoder") else sizes.length or shape[0]
            found[name] = torch.ones(1, count, dtype=torch.long, device="cpu")
        else:
            size = sizes.image if sizes.image and len(shape) == 3 else shape[1:]
            found[name] = torch.empty(1, shape[0], *size, device="meta")
    return [found]


def transformers_class(
    kind: str, inputs: dict[str, tuple[int, ...]], settings: dict[str, Any] | None = None, *, sizes: Sizes
) -> Built:
    """A class of transformers with its default configuration, but for `settings`."""
    import transformers

    model = getattr(transformers, kind)
    config = model.config_class(**settings or {})
    _check_length(config, sizes)
    return Built(model(config), given(inputs, sizes))


def vit(patch: int, width: int, layers: int, heads: int, mlp: int, *, sizes: Sizes) -> Built:
    """ViT with its ImageNet-1k head at 224 pixels (arXiv:2010.11929, table 1)."""
    settings = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    settings |= {"intermediate_size": mlp, "patch_size": patch, "num_labels": 1000}
    return transformers_class("ViTForImageClassification", {"pixel_values": (3, 224, 224)}, settings, sizes=sizes)


def timm(name: str, settings: dict[str, Any] | None = None, *, sizes: Sizes) -> Built:
    import timm as library

    if not library.is_model(name):
        near = difflib.get_close_matches(name, library.list_models(), 3, 0.5)
        hint = f"near: {', '.join(near)}" if near else "timm.list_models() lists them"
        raise UserError(f"timm:{name}: timm has no such model; {hint}")
    model = library.create_model(name, pretrained=False, **settings or {})
    return Built(model, given({"x": model.pretrained_cfg["input_size"]}, sizes))


def torchvision(name: str, *, sizes: Sizes) -> Built:
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.5)
        hint = f"near: {', '.join(near)}" if near else "torchvision.models.list_models() lists them"
        raise UserError(f"torchvision:{name}: torchvision has no such model; {hint}")
    return Built(models.get_model(name, weights=None), given({"x": (3, 224, 224)}, sizes))


def article(name: str, *, sizes: Sizes) -> Built:
    """The article's small networks on 32-pixel images."""
    from papers.vit.part4.networks import build as scratch

    return Built(scratch(name).to("meta"), given({"x": (3, 32, 32)}, sizes))


BUILDERS: dict[str, Callable[..., Built]] = {
    "transformers": transformers_class,
    "vit": vit,
    "timm": timm,
    "article": article,
}


def wheel(spec: specs.Spec, sizes: Sizes) -> Built:
    """The network of a PyPI wheel at the image size of its recipe; the wheel itself is not fetched."""
    from shared.models.wheels import VIT_CONFIG, WHEELS

    if spec.name not in WHEELS:
        raise UserError(f"{spec}: unknown; expected one of {', '.join(f'wheel:{name}' for name in WHEELS)}")
    one = WHEELS[spec.name]
    if one.architecture != "dinov2":
        return timm(one.architecture, sizes=sizes)
    settings = {key: value for key, value in VIT_CONFIG.items() if key != "model_type"}
    return transformers_class("Dinov2Model", {"pixel_values": (3, *one.own.size)}, settings, sizes=sizes)


def _check_length(config: Any, sizes: Sizes) -> None:
    most = longest(config)
    if sizes.length and most and sizes.length > most:
        raise UserError(f"--length {sizes.length} is longer than the model's {most} positions")


def from_hub(spec: specs.Spec, sizes: Sizes) -> Built:
    """The class that a configuration in hub layout names, without weights and without code from the repository."""
    import transformers

    folder = hub.model(spec, weights=False).path
    if name := timm_name(folder):
        return timm(*name, sizes=sizes)
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # the configuration's text decides what goes wrong in the library
        raise UserError(
            f"{spec}: {folder / 'config.json'} cannot be used ({first_line(error)}); it must be of a model that "
            "transformers has itself"
        ) from None
    return of_config(config, sizes, str(spec))


def timm_name(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """The architecture of a timm repository, and how many classes it has; None for any other."""
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or "model_type" in data or not isinstance(data.get("architecture"), str):
        return None
    known = {key: data[key] for key in ("num_classes", "global_pool") if isinstance(data.get(key), int | str)}
    more = data.get("model_args")
    return data["architecture"], {**known, **(more if isinstance(more, dict) else {})}


def of_config(config: Any, sizes: Sizes, source: str) -> Built:
    """The module that a configuration of transformers describes, and what its class may lack."""
    import transformers

    _check_length(config, sizes)
    named = (getattr(config, "architectures", None) or [""])[0]
    kind, lacks = getattr(transformers, named, None) if isinstance(named, str) and named else None, ""
    try:
        if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
            model = kind(config)
        else:
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
            lacks = _lacks(named, type(model), transformers)
    except Exception as error:
        raise UserError(f"{source}: {named or type(config).__name__} cannot be built ({first_line(error)})") from error
    said = str(getattr(config, "dtype", None) or "").removeprefix("torch.")
    return Built(model, samples(model, sizes), lacks, said)


def _lacks(named: str, built: type, transformers: Any) -> str:
    """A sentence about a class that is not the one that was meant."""
    if not named:
        return f"The configuration names no class: {built.__name__} is counted, without a head."
    near = difflib.get_close_matches(named, [name for name in dir(transformers) if "For" in name or "Model" in name], 1)
    hint = f" (near: {near[0]})" if near else ""
    return (
        f"The configuration names {named}, which transformers does not have{hint}: {built.__name__} is counted, and "
        "what the other has more is not."
    )
