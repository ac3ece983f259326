"""A torch module as a Model: built on the `meta` device and run dry (`shared.graph.dryrun`), with no weights.

Parameters are the module's own, each counted once; they need no run (`outline`). Multiply-accumulates are those that
PyTorch's operation counter sees (two operations each), the products inside attention included. What a layer keeps for
training is what autograd saves, each storage once, and a byte a value for the mask of a dropout; attention is fused.

What runs becomes rows in the vocabulary of graph files: a leaf module is one row, an attention module is one row, two
linear layers around an activation are one feed-forward row, additions of two activations are `add` rows, and
parameters that are used without a module of their own (class tokens, positions) are rows too. Edges follow the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakIdKeyDictionary

from shared.graph.dryrun import COUNTED, DryRun, Fused, is_whole
from shared.graph.measure import Layer, Model

# what a module is called in the vocabulary of graph files: by its class, or by the end of its class name, because
# libraries bring their own activation and normalisation classes
_OWN_NAME = (nn.Linear, nn.Conv1d, nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.Flatten)
_OTHER_NAME = {nn.BatchNorm1d: "batchNorm", nn.BatchNorm2d: "batchNorm", nn.LSTM: "lstm", nn.GRU: "gru"}
_BY_END = re.compile(
    r"""(?P<rmsNorm>RMSNorm$|T5LayerNorm$) | (?P<gelu>GELU\w*$) | (?P<swish>SiLU\w*$|Swish$) | (?P<relu6>ReLU6$)
    | (?P<relu>ReLU$) | (?P<tanh>Tanh$) | (?P<sigmoid>Sigmoid$) | (?P<hardswish>Hardswish$) | (?P<linear>^Conv1D$)
    | (?P<patchEmbed>PatchEmbed\w*$) | (?P<maxpool2d>MaxPool2d$) | (?P<globalAvgPool2d>AdaptiveAvgPool2d$)
    | (?P<avgpool2d>AvgPool2d\w*$) | (?P<layerScale>LayerScale$) | (?P<rope>RotaryEmbedding$)""",
    re.VERBOSE,
)
_WINDOW = {"kernelSize": "kernel_size", "stride": "stride", "padding": "padding"}
_CONV = {"inChannels": "in_channels", "outChannels": "out_channels", **_WINDOW, "groups": "groups"}
# settings that a graph file would give a row, and the module's attributes that hold them
_SETTINGS = {
    **dict.fromkeys(("conv2d", "depthwiseConv2d", "conv1d"), _CONV),
    "linear": {"inFeatures": "in_features", "outFeatures": "out_features"},
    "embedding": {"numEmbeddings": "num_embeddings", "embeddingDim": "embedding_dim"},
    "layerNorm": {"normalizedShape": "normalized_shape"},
    "batchNorm": {"numFeatures": "num_features"},
    "groupNorm": {"numGroups": "num_groups", "numChannels": "num_channels"},
    "dropout": {"p": "p"},
    **dict.fromkeys(("maxpool2d", "avgpool2d"), _WINDOW),
}
_ACTIVATIONS = {"aten::relu": "relu", "aten::relu_": "relu", "aten::gelu": "gelu", "aten::silu": "swish"}
_GATED = {"swish": "swiglu", "gelu": "geglu"}
# modules that mix tokens by products of their own, without a softmax: one row each, by its name
_MIXER = re.compile("Mamba|Mixer$|SSM|DeltaNet|Rwkv|RWKV|LinearAttention|LightningAttention|ShortConv|RecurrentBlock")
LOOPED = 8  # equal operations in one module: more are a loop, which is one row


def row_type(module: nn.Module) -> str | None:
    """The row's type, or None: a container, or nothing that counts."""
    name = type(module).__name__
    if isinstance(module, nn.Conv2d):
        return "depthwiseConv2d" if 1 < module.groups == module.in_channels else "conv2d"
    if isinstance(module, nn.Dropout):
        return "dropout" if module.p > 0 else None
    for known in (*_OWN_NAME, *_OTHER_NAME):
        if isinstance(module, known):
            return _OTHER_NAME.get(known) or _lower(known.__name__)
    end = _BY_END.search(name)
    if end and (end.lastgroup != "patchEmbed" or _only_conv(module)):
        return end.lastgroup
    leaf = next(module.children(), None) is None
    if not leaf or isinstance(module, nn.Identity) or name in ("DropPath", "Dropout"):
        return None
    return _lower(name)


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]


def _only_conv(module: nn.Module) -> nn.Conv2d | None:
    convolutions = [inner for inner in module.modules() if isinstance(inner, nn.Conv2d)]
    return convolutions[0] if len(convolutions) == 1 else None


def settings_of(module: nn.Module, kind: str) -> dict[str, Any]:
    """The settings that a graph file would give this layer."""
    conv = _only_conv(module) if kind == "patchEmbed" else None
    if conv is not None:
        return {"patchSize": _one(conv.kernel_size), "embedDim": conv.out_channels, "inChans": conv.in_channels}
    # a weight is only looked at where it must be: one that is computed from others would be computed here
    if kind == "linear" and not isinstance(module, nn.Linear):  # a weight [in, out]
        return {"inFeatures": module.weight.shape[0], "outFeatures": module.weight.shape[1]}
    if kind == "rmsNorm" and getattr(module, "weight", None) is not None:
        return {"normalizedShape": module.weight.shape[-1]}
    names = _SETTINGS.get(kind, {})
    found = {key: _one(getattr(module, name)) for key, name in names.items() if hasattr(module, name)}
    if found.get("groups") == 1:
        del found["groups"]
    if isinstance(module, nn.Linear | nn.Conv2d | nn.Conv1d) and module.bias is None:
        found["bias"] = False
    return found


def _one(value: Any) -> Any:
    """(3, 3) as 3; other tuples as lists."""
    if not isinstance(value, tuple | list):
        return value
    return value[0] if len(set(value)) == 1 else list(value)


def _attribute(module: nn.Module, *names: str, config: bool = False) -> int | None:
    """The first of these attributes that is a positive number, of the module or (`config`) of its configuration."""
    owners = [module, *([getattr(module, "config", None)] if config and "Attention" in type(module).__name__ else [])]
    values = [getattr(owner, name, None) for owner in owners for name in names]
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def _window(module: nn.Module) -> int | None:
    """How many tokens a query sees, where its module or its configuration says so."""
    own = _attribute(module, "sliding_window", "window_size")
    config, at = getattr(module, "config", None), getattr(module, "layer_idx", None)
    if own or config is None or "Attention" not in type(module).__name__ or hasattr(module, "sliding_window"):
        return own
    kinds = getattr(config, "layer_types", None)
    if isinstance(kinds, list) and isinstance(at, int) and at < len(kinds):
        slides = kinds[at] == "sliding_attention"
    else:
        slides = getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None)
    return window if slides and isinstance(window, int) and window > 0 else None


def head_size(module: nn.Module) -> int | None:
    """Features of one head, where the module says so: they need not be its width divided by its heads."""
    return _attribute(module, "head_dim", "attention_head_size", "key_value_proj_dim", "d_head")


def trace(module: nn.Module, inputs: dict[str, Any], name: str, source: str) -> Model:
    """Run `module` dry, once, on `inputs` and return what ran.

    Raises whatever the module raises on inputs that it cannot take. Where it cannot be run with gradients, a layer is
    taken to keep its output.
    """
    module.eval()
    try:
        return _traced(module, inputs, name, source, gradients=True)
    except Exception:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        module.requires_grad_(False)
        try:
            return _traced(module, inputs, name, source, gradients=False)
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)


def _traced(module: nn.Module, inputs: dict[str, Any], name: str, source: str, *, gradients: bool) -> Model:
    tracer, dry = _Tracer(module, gradients), DryRun()
    counter = FlopCounterMode(display=False, custom_mapping=COUNTED)
    tracer.flops = counter.get_total_flops
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor):
            tracer.add_input(key, value)
    hooks = list(tracer.hooks())
    saved = torch.autograd.graph.saved_tensors_hooks(tracer.saves, lambda tensor: tensor)
    try:
        # the order matters: the counter sees an operation first, then the tracer, and the dry run does it
        with torch.set_grad_enabled(gradients), dry, Fused(), saved, tracer, counter:
            output = module(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    model = tracer.finish(output, name, source)
    model.decided = dict(dry.decided)
    return model


def outline(module: nn.Module, name: str, source: str, reason: str) -> Model:
    """What can be said without a run: every layer that has parameters, and how many. reason: why it was not run."""
    tracer = _Tracer(module, False)
    for path, inner in module.named_modules():
        type = row_type(inner)
        own = [parameter for parameter in inner.parameters(recurse=False) if id(parameter) in tracer.names]
        if type and own and not any(path.startswith(f"{row.name}.") for row in tracer.rows[-1:]):
            row = tracer._row(path or type, type, settings_of(inner, type), [])
            tracer._count(row, inner)
    for parameter in module.parameters():
        if id(parameter) in tracer.names:
            tracer._loose(parameter)
    for row in tracer.rows:
        row.row, row.output, row.macs, row.kept = row.parameters, None, None, None
        row.settings.pop("projections", None)
    return Model(name, source, tracer.rows, not_run=reason)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@dataclass
class _Frame:
    """A module that is running. `row` is its row if it is one itself, `first` the next row's index at its start.

    loose: the rows of its own operations; attends: it takes a softmax or fused attention, so its products are those
    of attention.
    """

    module: nn.Module
    name: str
    first: int
    start: int
    row: Layer | None = None
    inner: int = 0
    parents: list[str] = field(default_factory=list)
    crossing: bool = False
    attends: bool = False
    loose: list[Layer] = field(default_factory=list)


class _Tracer(TorchDispatchMode):
    """Sees the modules that run by hooks, and the operations as a dispatch mode."""

    def __init__(self, module: nn.Module, gradients: bool) -> None:
        super().__init__()
        self.module = module
        self.gradients = gradients
        self.flops: Any = None
        self.rows: list[Layer] = []
        self.times: dict[str, int] = {}  # how many rows have this name
        self.renamed: dict[str, str] = {}  # rows that went into another
        own = [*module.parameters(), *module.buffers()]
        self.held = {tensor.untyped_storage()._cdata for tensor in own}  # weights are not kept a second time
        self.kept: list[Any] = []  # storages, held so that their addresses stay their own
        self.stack: list[_Frame] = []
        self.origins = WeakIdKeyDictionary()  # tensor -> ids of the rows that it comes from
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.counted: dict[int, str] = {}  # id of a parameter -> the row that counts it

    # hooks ----------------------------------------------------------------------------------------------------------

    def hooks(self) -> Iterator[Any]:
        for name, module in self.module.named_modules():
            yield module.register_forward_pre_hook(self._enter(name), with_kwargs=True)
            yield module.register_forward_hook(self._leave, with_kwargs=True)

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: tuple, kwargs: dict) -> None:
            frame = _Frame(module, name, len(self.rows), self.flops(), parents=self._origin(args, kwargs))
            around = next((outer.row for outer in self.stack if outer.row is not None), None)
            if around is not None:  # the activation inside a normalisation comes after it
                frame.parents = [around.id]
            frame.crossing = any(kwargs.get(key) is not None for key in ("key_value_states", "encoder_hidden_states"))
            type = row_type(module)
            if type and not self._inside_row():
                frame.row = self._row(name, type, settings_of(module, type), frame.parents)
                if type == "embedding" and not frame.parents:
                    self._positional(frame.row, args, kwargs)
                self._count(frame.row, module)
                if type == "linear":
                    frame.row.sides = frame.row.settings["inFeatures"] + frame.row.settings["outFeatures"]
            self.stack.append(frame)

        return enter

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        frame = self.stack.pop()
        total = self.flops() - frame.start
        own = total - frame.inner
        if self.stack:
            self.stack[-1].inner += total
        row = frame.row
        if row is None and own and list(module.children()):
            row = self._collapse(frame, own, total, output)
        elif row is not None:
            row.macs = total // 2
        if frame.row is None:
            self._looped(frame)
        if row is not None:
            results = _tensors(output)
            row.output = tuple(results[0].shape) if results else None
            if results and not self.gradients:
                row.kept = (row.kept or 0) + results[0].numel()
            elif results and isinstance(module, nn.Dropout) and module.p > 0:
                row.kept = (row.kept or 0) + -(-results[0].numel() // 4)  # its mask, a byte each
            for tensor in results:
                # the activation inside a normalisation is the last row, and what comes out is its
                self.origins[tensor] = (self.rows[-1].id if frame.row else row.id,)

    def _looped(self, frame: _Frame) -> None:
        """Operations that a module does again and again, a token at a time, become one row of each type."""
        by_type: dict[str, list[Layer]] = {}
        for row in frame.loose:
            by_type.setdefault(row.type, []).append(row)
        for rows in by_type.values():
            if len(rows) > LOOPED and frame.module is not self.module:
                first, gone = rows[0], {id(row) for row in rows[1:]}
                first.kept = sum(row.kept or 0 for row in rows)
                first.macs = sum(row.macs or 0 for row in rows)
                first.notes.append(f"is done {len(rows):,} times in a loop")
                self.renamed |= {row.id: first.id for row in rows[1:]}
                self.rows[frame.first :] = [row for row in self.rows[frame.first :] if id(row) not in gone]

    def _collapse(self, frame: _Frame, own: int, total: int, output: Any) -> Layer | None:
        """A module that multiplies activations itself: attention, another mixer of tokens, or a product of its own."""
        inner = self.rows[frame.first :]
        mixer = _MIXER.search(type(frame.module).__name__)
        heads = _attribute(frame.module, "num_heads", "num_attention_heads", "n_heads", "n_head", config=True)
        results = _tensors(output)
        attends = frame.attends and heads is not None and not mixer
        # a model that has heads of its own and a product beside its attention layers is no attention layer
        if not (attends or mixer) or not results or any("projections" in row.settings for row in inner):
            row = self._row(f"{frame.name}.product".lstrip("."), "matmul", {}, frame.parents)
            row.macs = own // 2
            return row
        del self.rows[frame.first :]
        if attends:
            kind, settings = self._attention(frame, heads or 1, results[0].shape[-1], inner)
        else:
            kind = "mamba" if "Mamba" in type(frame.module).__name__ else _lower(type(frame.module).__name__)
            settings = {"embedDim": results[0].shape[-1]}
        row = self._row(frame.name, kind, settings, frame.parents)
        row.parameters = sum(layer.parameters or 0 for layer in inner)
        self._count(row, frame.module)
        row.macs = total // 2
        row.kept = sum(layer.kept or 0 for layer in inner)
        row.sides = sum(layer.sides for layer in inner)
        row.cached = _cached(settings)
        if not self.gradients and attends:
            # both products have as many terms as scores have numbers, times the head's size
            row.kept += 2 * (own // 4 // (settings.get("headDim") or max(1, results[0].shape[-1] // (heads or 1))))
        frame.loose = []
        return row

    @staticmethod
    def _attention(frame: _Frame, heads: int, width: int, inner: list[Layer]) -> tuple[str, dict[str, Any]]:
        """The type and the settings of an attention module."""
        module = frame.module
        causal = getattr(module, "is_causal", False) or getattr(module, "is_decoder", False)
        kind = "crossAttention" if frame.crossing else "causalAttention" if causal else "multiHeadAttention"
        settings: dict[str, Any] = {"embedDim": width, "numHeads": heads}
        key_heads = _attribute(module, "num_key_value_heads", config=True)
        latent = _attribute(module, "kv_lora_rank")
        if latent:
            kind, settings = "mla", settings | {"kvLatentDim": latent}
            sizes = {"qk_rope_head_dim": "ropeHeadDim", "q_lora_rank": "qLatentDim", "v_head_dim": "vHeadDim"}
            settings |= {key: size for name, key in sizes.items() if (size := _attribute(module, name))}
            settings |= {"headDim": size} if (size := _attribute(module, "qk_nope_head_dim")) else {}
        elif key_heads and key_heads != heads:
            kind, settings = "groupedQueryAttention", settings | {"numKVHeads": key_heads}
        window = _window(module)
        if window:
            settings["windowSize"] = window
        if causal and kind != "causalAttention":
            settings["causal"] = True
        size = head_size(module) or max(1, width // heads)
        if heads * size != width and not latent:
            settings["headDim"] = size
        linear = [layer.settings for layer in inner if layer.type == "linear"]
        settings["projections"] = sum(one["inFeatures"] * one["outFeatures"] for one in linear)
        return kind, settings

    # rows -----------------------------------------------------------------------------------------------------------

    def add_input(self, name: str, tensor: torch.Tensor) -> None:
        row = self._row(name, "input", {"shape": list(tensor.shape)}, [])
        row.output = tuple(tensor.shape)
        self.origins[tensor] = (row.id,)

    def _row(self, name: str, type: str, settings: dict[str, Any], parents: list[str]) -> Layer:
        again = self.times[name] = self.times.get(name, 0) + 1
        id = name if again == 1 else f"{name}#{again}"
        row = Layer(id, name, type, settings, None, 0, 0, 0, kept=0, parents=list(dict.fromkeys(parents)))
        self.rows.append(row)
        return row

    def _count(self, row: Layer, module: nn.Module) -> None:
        """Give the row the parameters of its module that no earlier row has counted."""
        for parameter in module.parameters():
            owner = self.counted.setdefault(id(parameter), row.name)
            if owner == row.name:
                if id(parameter) in self.names:
                    row.parameters = (row.parameters or 0) + parameter.numel()
                    del self.names[id(parameter)]
            elif f"its weights are those of {owner}" not in row.notes and not owner.startswith(f"{row.name}."):
                row.notes.append(f"its weights are those of {owner}")

    def _loose(self, parameter: torch.Tensor) -> Layer:
        """The row of a parameter that is used without a module of its own."""
        name = self.names.pop(id(parameter))
        shape = list(parameter.shape)
        if "pos" in name.rpartition(".")[2] and len(shape) > 1:
            row = self._row(name, "positionalEncoding", {"maxLen": shape[-2], "embedDim": shape[-1]}, [])
        else:
            row = self._row(name, "parameter", {"shape": shape}, [])
        row.parameters, row.output, row.kept = parameter.numel(), tuple(shape), 0
        self.counted[id(parameter)] = name
        return row

    def _positional(self, row: Layer, args: tuple, kwargs: dict) -> None:
        """An embedding whose indices come from no input looks up positions, if there is a row for each."""
        lengths = [tensor.shape[-1] for tensor in _tensors((args, kwargs))]
        if row.settings["numEmbeddings"] >= max(3, *lengths[:1]):
            row.type = "positionalEncoding"
            row.settings = {"maxLen": row.settings["numEmbeddings"], "embedDim": row.settings["embeddingDim"]}

    def _inside_row(self) -> bool:
        # a normalisation with a built-in activation is a row, and so is the activation inside it
        return any(frame.row is not None and frame.row.type not in ("batchNorm", "groupNorm") for frame in self.stack)

    def _origin(self, *values: Any) -> list[str]:
        return list(dict.fromkeys(id for tensor in _tensors(values) for id in self.origins.get(tensor, ())))

    # operations -----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.saw(func, args, result)
        return result

    def saves(self, tensor: torch.Tensor) -> torch.Tensor:
        """Autograd keeps `tensor`: its storage belongs to the row that runs, or to the last one."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.held:
            self.held.add(storage._cdata)
            self.kept.append(storage)
            row = next((frame.row for frame in reversed(self.stack) if frame.row), self.rows[-1] if self.rows else None)
            if row is not None:
                row.kept = (row.kept or 0) + -(-storage.nbytes() // 4)
        return tensor

    def saw(self, func: Any, args: tuple, result: Any) -> None:
        """Note where the result comes from; make rows of merges, loose activations and loose parameters."""
        tensors = _tensors(args)
        origin = tuple(self._origin(tensors))
        if self.stack and func._schema.name in ("aten::_softmax", "aten::_safe_softmax"):
            around = next((frame for frame in reversed(self.stack) if frame.row is None), self.stack[0])
            around.attends = True
        if not self._inside_row():
            loose = [self._loose(tensor) for tensor in tensors if id(tensor) in self.names]
            for tensor in tensors:
                if id(tensor) in self.counted and tensor not in self.origins:
                    self.origins[tensor] = (self.counted[id(tensor)],)
            if loose and origin and func._schema.name in ("aten::add", "aten::mul"):
                # positions are added to what comes in, a scale multiplies it: the row stands in the chain
                loose[0].parents, loose[0].output = list(origin), tuple(result.shape)
                loose[0].kept = 0 if self.gradients else result.numel()
                origin = (loose[0].id,)
            else:
                origin = tuple(self._origin(tensors))
                if isinstance(result, torch.Tensor) and result.is_floating_point():
                    origin = self._operation(func, args, tensors, result, origin)
        for tensor in _tensors(result):
            self.origins[tensor] = origin

    def _operation(self, func: Any, args: tuple, tensors: list, result: torch.Tensor, origin: tuple) -> tuple:
        """The origin of a result: a row of its own for an operation that graph files have a type for."""
        name = func._schema.name
        type = _ACTIVATIONS.get(name) or self._pooling(func, args) or self._addition(func, tensors)
        if name == "aten::cat" and len(origin) > 1:
            type = "concatenate"
        if not type:
            return origin
        at = self.stack[-1].name if self.stack else ""
        row = self._row(f"{at}.{type}".lstrip("."), type, {}, list(origin))
        row.output, row.kept = tuple(result.shape), 0 if self.gradients else result.numel()
        if self.stack:
            self.stack[-1].loose.append(row)
        return (row.id,)

    def _addition(self, func: Any, tensors: list[torch.Tensor]) -> str | None:
        if func._schema.name not in ("aten::add", "aten::add_") or len(tensors) != 2:
            return None
        first, second = tensors
        activations = all(self.origins.get(tensor) for tensor in tensors) and not any(
            isinstance(tensor, nn.Parameter) for tensor in tensors
        )
        return "add" if activations and first.shape == second.shape and first.dim() > 1 else None

    @staticmethod
    def _pooling(func: Any, args: tuple) -> str | None:
        if func._schema.name != "aten::mean" or len(args) < 2 or not isinstance(args[1], list | tuple):
            return None
        rank = args[0].dim()
        axes = sorted(axis % rank for axis in args[1])
        return {(4, (2, 3)): "globalAvgPool2d", (3, (1,)): "globalAvgPool1d"}.get((rank, tuple(axes)))

    # the end --------------------------------------------------------------------------------------------------------

    def finish(self, output: Any, name: str, source: str) -> Model:
        tensors = [tensor for tensor in _tensors(output) if not is_whole(tensor.dtype)] or _tensors(output)
        shape = tuple(tensors[0].shape) if tensors else None
        origin = self.origins.get(tensors[0], ()) if tensors else ()
        last = Layer("output", "output", "output", {}, shape, 0, 0, 0, kept=0, parents=list(origin))
        rows = fuse([*self.rows, last], self.renamed)
        for parameter in self.module.parameters():  # what did not run still belongs to the count
            if id(parameter) in self.names:
                row = self._loose(parameter)
                row.macs, row.notes = 0, ["is not used in this forward pass"]
                rows.insert(-1, row)
        for row in rows:
            row.row = row.parameters
            row.settings.pop("projections", None)
        return Model(name, source, rows)


def _cached(settings: dict[str, Any]) -> int:
    """Numbers of one token in the cache of an attention row."""
    if "kvLatentDim" in settings:
        return settings["kvLatentDim"] + settings.get("ropeHeadDim", 0)
    heads = settings.get("numHeads", 0)
    size = settings.get("headDim") or (settings["embedDim"] // heads if heads else 0)
    return 2 * settings.get("numKVHeads", heads) * size


# rows that belong together --------------------------------------------------------------------------------------------


def fuse(rows: list[Layer], renamed: dict[str, str]) -> list[Layer]:
    """Attention takes up its output projection where a sibling module holds it; linear, activation, linear become a
    feed-forward row; a gate beside them makes it a gated one. Parents that are gone are renamed (`renamed`: some were
    before)."""
    renamed = dict(renamed)
    fused: list[Layer] = []
    at = 0
    while at < len(rows):
        length, type, settings = _group(rows[at : at + 20])
        group = rows[at : at + length]
        renamed |= {row.id: group[0].id for row in group}
        fused.append(group[0] if length == 1 else _merged(group, type, settings))
        at += length
    for row in fused:
        parents = [renamed.get(id, id) for id in row.parents]
        row.parents = list(dict.fromkeys(renamed[id] for id in parents if id in renamed and renamed[id] != row.id))
    return fused


def _group(rows: list[Layer]) -> tuple[int, str, dict[str, Any]]:
    """How many of the rows belong together from the first on, and what they are."""
    first, *rest = rows
    alone = 1, first.type, first.settings
    if "projections" in first.settings:
        width = first.settings["embedDim"]
        outside = first.settings["projections"] == 3 * width * width and _linear(rest, width, width)
        return (2, first.type, first.settings) if outside else alone
    if first.type != "linear" or not rest or rest[0].type not in ("relu", "gelu", "swish", "relu6", "tanh"):
        return alone
    outer, inner, act = first.settings["inFeatures"], first.settings["outFeatures"], rest.pop(0).type
    gated = act in _GATED and _linear(rest, outer, inner)
    rest = rest[1:] if gated else rest
    while rest and rest[0].type == "dropout":
        rest.pop(0)
    if inner == outer or not _linear(rest, inner, outer):
        return alone
    return len(rows) - len(rest) + 1, _GATED[act] if gated else "feedForward", {"embedDim": outer, "ffDim": inner}


def _linear(rows: list[Layer], features: int, out: int) -> bool:
    """Whether the first of the rows is a linear layer of these sizes."""
    settings = rows[0].settings if rows and rows[0].type == "linear" else {}
    return (settings.get("inFeatures"), settings.get("outFeatures")) == (features, out)


def _merged(group: list[Layer], type: str, settings: dict[str, Any]) -> Layer:
    first, last = group[0], group[-1]
    pairs = zip(first.name.split("."), last.name.split("."), strict=False)
    common = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    path = ".".join(common)
    return replace(
        first,
        # the path that the modules share; of a block as a whole its `ffn`
        name=f"{path}.ffn" if not common or common[-1].isdigit() else path,
        type=type,
        settings=settings,
        output=last.output,
        parameters=sum(row.parameters or 0 for row in group),
        macs=sum(row.macs or 0 for row in group),
        kept=sum(row.kept or 0 for row in group),
        sides=sum(row.sides for row in group),
        notes=[note for row in group for note in row.notes],
    )
