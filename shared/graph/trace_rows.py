"""What a torch module is called in the vocabulary of graph files, and which rows belong together."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from shared.graph.measure import Layer

# by the end of the class name, because libraries bring their own activation and normalisation classes
_BY_NAME = (
    (r"RMSNorm$|T5LayerNorm$", "rmsNorm"), (r"GELU\w*$", "gelu"), (r"SiLU\w*$|Swish$", "swish"), (r"ReLU6$", "relu6"),
    (r"ReLU$", "relu"), (r"Tanh$", "tanh"), (r"Sigmoid$", "sigmoid"), (r"Hardswish$", "hardswish"),
    (r"PatchEmbed\w*$", "patchEmbed"), (r"^Conv1D$", "linear"), (r"MaxPool2d$", "maxpool2d"),
    (r"AdaptiveAvgPool2d$", "globalAvgPool2d"), (r"AvgPool2d\w*$", "avgpool2d"), (r"LayerScale$", "layerScale"),
    (r"RotaryEmbedding$", "rope"),
)  # fmt: skip
_GATED = {"swish": "swiglu", "gelu": "geglu"}


def row_type(module: nn.Module) -> str | None:
    """The row's type, or None: a container, or nothing that counts."""
    found = _exact(module)
    if found:
        return found
    name = type(module).__name__
    for pattern, kind in _BY_NAME:
        if re.search(pattern, name) and (kind != "patchEmbed" or _only_conv(module)):
            return kind
    leaf = next(module.children(), None) is None
    if not leaf or isinstance(module, nn.Identity) or name in ("DropPath", "Dropout"):
        return None
    return name[:1].lower() + name[1:]


def _exact(module: nn.Module) -> str | None:
    if isinstance(module, nn.Conv2d):
        return "depthwiseConv2d" if 1 < module.groups == module.in_channels else "conv2d"
    if isinstance(module, nn.Dropout):
        return "dropout" if module.p > 0 else None
    for kind, name in (
        (nn.Linear, "linear"), (nn.Conv1d, "conv1d"), (nn.Embedding, "embedding"), (nn.LayerNorm, "layerNorm"),
        (nn.BatchNorm2d, "batchNorm"), (nn.BatchNorm1d, "batchNorm"), (nn.GroupNorm, "groupNorm"), (nn.LSTM, "lstm"),
        (nn.GRU, "gru"), (nn.Flatten, "flatten"),
    ):  # fmt: skip
        if isinstance(module, kind):
            return name
    return None


def _only_conv(module: nn.Module) -> nn.Conv2d | None:
    convolutions = [inner for inner in module.modules() if isinstance(inner, nn.Conv2d)]
    return convolutions[0] if len(convolutions) == 1 else None


def settings_of(module: nn.Module, kind: str) -> dict[str, Any]:
    """The settings that a graph file would give this layer."""
    if kind == "patchEmbed":
        module = _only_conv(module) or module
        return {"patchSize": _one(module.kernel_size), "embedDim": module.out_channels, "inChans": module.in_channels}
    if isinstance(module, nn.Conv2d | nn.Conv1d):
        found = {
            "inChannels": module.in_channels, "outChannels": module.out_channels,
            "kernelSize": _one(module.kernel_size), "stride": _one(module.stride), "padding": _one(module.padding),
        }  # fmt: skip
        if module.groups > 1:
            found["groups"] = module.groups
        return found | ({} if module.bias is not None else {"bias": False})
    if isinstance(module, nn.Linear):
        found = {"inFeatures": module.in_features, "outFeatures": module.out_features}
        return found | ({} if module.bias is not None else {"bias": False})
    if kind == "linear":  # a weight [in, out]
        return {"inFeatures": module.weight.shape[0], "outFeatures": module.weight.shape[1]}
    if isinstance(module, nn.Embedding):
        return {"numEmbeddings": module.num_embeddings, "embeddingDim": module.embedding_dim}
    if isinstance(module, nn.LayerNorm):
        return {"normalizedShape": _one(module.normalized_shape)}
    if kind == "rmsNorm" and getattr(module, "weight", None) is not None:
        return {"normalizedShape": module.weight.shape[-1]}
    if kind == "batchNorm":
        return {"numFeatures": module.num_features}
    if kind == "groupNorm":
        return {"numGroups": module.num_groups, "numChannels": module.num_channels}
    if kind == "dropout":
        return {"p": module.p}
    if kind in ("maxpool2d", "avgpool2d") and hasattr(module, "kernel_size"):
        return {key: _one(getattr(module, value)) for key, value in
                (("kernelSize", "kernel_size"), ("stride", "stride"), ("padding", "padding"))}  # fmt: skip
    return {}


def head_count(module: nn.Module, *, keys: bool = False) -> int | None:
    """The heads of an attention module (`keys`: its key-value heads), from itself or its configuration."""
    names = ("num_key_value_heads",) if keys else ("num_heads", "num_attention_heads", "n_heads")
    for owner in (module, getattr(module, "config", None) if "Attention" in type(module).__name__ else None):
        for name in names:
            value = getattr(owner, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return None


def head_size(module: nn.Module) -> int | None:
    """Features of one head, where the module says so: they need not be its width divided by its heads."""
    for name in ("head_dim", "attention_head_size", "key_value_proj_dim", "d_head"):
        value = getattr(module, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _one(value: Any) -> Any:
    """(3, 3) as 3; other tuples as lists."""
    if not isinstance(value, tuple | list):
        return value
    return value[0] if len(set(value)) == 1 else list(value)


# rows that belong together --------------------------------------------------------------------------------------------


def fuse(rows: list[Layer]) -> list[Layer]:
    """Attention takes up its output projection where a sibling module holds it; linear, activation, linear become a
    feed-forward row; a gate beside them makes it a gated one. Parents that are gone are renamed."""
    renamed: dict[str, str] = {}
    fused: list[Layer] = []
    at = 0
    while at < len(rows):
        group, merged = _group(rows, at)
        if merged is not None:
            renamed |= {row.id: merged.id for row in group}
        fused.append(merged or rows[at])
        at += len(group) if merged is not None else 1
    kept = {row.id for row in fused}
    for row in fused:
        parents = [renamed.get(id, id) for id in row.parents]
        row.parents = list(dict.fromkeys(id for id in parents if id in kept and id != row.id))
    return fused


def _group(rows: list[Layer], at: int) -> tuple[list[Layer], Layer | None]:
    first = rows[at]
    if "projections" in first.settings:
        width = first.settings["embedDim"]
        follows = rows[at + 1 : at + 2]
        if first.settings["projections"] == 3 * width * width and _linear(follows, width, width):
            return rows[at : at + 2], _merged(rows[at : at + 2], first.type, first.settings)
    if first.type != "linear":
        return [first], None
    outer, inner = first.settings["inFeatures"], first.settings["outFeatures"]
    group, rest = [first], rows[at + 1 :]
    act = rest[0].type if rest else ""
    if act not in ("relu", "gelu", "swish", "relu6", "tanh") or inner == outer:
        return group, None
    group.append(rest.pop(0))
    gated = _linear(rest, outer, inner) and act in _GATED
    if gated:
        group.append(rest.pop(0))
    while rest and rest[0].type == "dropout":
        group.append(rest.pop(0))
    if not _linear(rest, inner, outer):
        return [first], None
    group.append(rest.pop(0))
    settings = {"embedDim": outer, "ffDim": inner}
    return group, _merged(group, _GATED[act] if gated else "feedForward", settings)


def _linear(rows: list[Layer], features: int, out: int) -> bool:
    return bool(
        rows
        and rows[0].type == "linear"
        and (rows[0].settings["inFeatures"], rows[0].settings["outFeatures"]) == (features, out)
    )


def _merged(group: list[Layer], type: str, settings: dict[str, Any]) -> Layer:
    first, last = group[0], group[-1]
    return Layer(
        id=first.id,
        name=_common(first.name, last.name),
        type=type,
        settings=settings,
        output=last.output,
        parameters=sum(row.parameters or 0 for row in group),
        row=None,
        macs=sum(row.macs or 0 for row in group),
        kept=sum(row.kept or 0 for row in group),
        parents=first.parents,
        notes=[note for row in group for note in row.notes],
    )


def _common(first: str, last: str) -> str:
    """The path that two modules share; of a block as a whole its `ffn`."""
    parts = []
    for a, b in zip(first.split("."), last.split("."), strict=False):
        if a != b:
            break
        parts.append(a)
    path = ".".join(parts)
    return f"{path}.ffn" if not parts or parts[-1].isdigit() else path
