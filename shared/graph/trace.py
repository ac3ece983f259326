"""A torch module as a Model: built and run on the `meta` device, with no weights and no memory.

Parameters are the module's own, each counted once. Multiply-accumulates are those that PyTorch's operation counter sees
(two operations each), the products inside attention included: on `meta` attention is taken apart into them.

What runs becomes rows in the vocabulary of graph files: a leaf module is one row, an attention module is one row, two
linear layers around an activation are one feed-forward row, additions of two activations are `add` rows, and
parameters that are used without a module of their own (class tokens, positions) are rows too. Edges follow the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.weak import WeakIdKeyDictionary

from shared.graph.measure import Layer, Model
from shared.graph.trace_rows import fuse, head_count, head_size, row_type, settings_of

_ACTIVATIONS = {"aten::relu": "relu", "aten::relu_": "relu", "aten::gelu": "gelu", "aten::silu": "swish"}


def trace(module: nn.Module, inputs: dict[str, torch.Tensor], name: str, source: str) -> Model:
    """Run `module` (on the meta device) once on `inputs` and return what ran.

    Raises whatever the module raises on inputs that it cannot take.
    """
    module.eval()
    tracer = _Tracer(module)
    counter = FlopCounterMode(display=False)
    tracer.flops = counter.get_total_flops
    for key, tensor in inputs.items():
        tracer.add_input(key, tensor)
    hooks = list(tracer.hooks())
    try:
        # the order matters: the counter takes attention apart, and what it issues then is seen by the tracer
        with torch.no_grad(), tracer.watch(), counter:
            output = module(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return tracer.finish(output, name, source)


@dataclass
class _Frame:
    """A module that is running. `row` is its index if it is a row itself, `first` the next row's index at its start."""

    module: nn.Module
    name: str
    first: int
    start: int
    row: Layer | None = None
    inner: int = 0
    parents: list[str] = field(default_factory=list)
    crossing: bool = False


class _Tracer:
    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.flops: Any = None
        self.rows: list[Layer] = []
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
        if row is not None:
            tensor = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)), None)
            row.output = None if tensor is None else tuple(tensor.shape)
            row.kept = (row.kept or 0) + (0 if tensor is None else tensor.numel())
            for leaf in tree_leaves(output):
                if isinstance(leaf, torch.Tensor):
                    # the activation inside a normalisation is the last row, and what comes out is its
                    self.origins[leaf] = (self.rows[-1].id if frame.row else row.id,)

    def _collapse(self, frame: _Frame, own: int, total: int, output: Any) -> Layer | None:
        """A module that multiplies activations itself: attention, or a product of its own."""
        heads = head_count(frame.module)
        # a model that has heads of its own and a product beside its attention layers is no attention layer
        if heads is None or any("projections" in row.settings for row in self.rows[frame.first :]):
            row = self._row(f"{frame.name}.product".lstrip("."), "matmul", {}, frame.parents)
            row.macs = own // 2
            return row
        inner = self.rows[frame.first :]
        del self.rows[frame.first :]
        causal = getattr(frame.module, "is_causal", False) or getattr(frame.module, "is_decoder", False)
        type = "crossAttention" if frame.crossing else "causalAttention" if causal else "multiHeadAttention"
        width = next(leaf.shape[-1] for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor))
        settings = {"embedDim": width, "numHeads": heads}
        key_heads = head_count(frame.module, keys=True)
        if key_heads and key_heads != heads:
            type, settings = "groupedQueryAttention", settings | {"numKVHeads": key_heads}
        row = self._row(frame.name, type, settings, frame.parents)
        row.parameters = sum(layer.parameters or 0 for layer in inner)
        self._count(row, frame.module)
        row.macs = total // 2
        projections = [layer for layer in inner if layer.type == "linear"]
        row.settings["projections"] = sum(
            layer.settings["inFeatures"] * layer.settings["outFeatures"] for layer in projections
        )
        # both products have as many terms as scores have numbers, times the head's size
        size = head_size(frame.module) or max(1, width // heads)
        scores = own // 4 // size
        if heads * size != width:
            row.settings["headDim"] = size
        row.kept = sum(layer.kept or 0 for layer in inner) + 2 * scores
        return row

    # rows -----------------------------------------------------------------------------------------------------------

    def add_input(self, name: str, tensor: torch.Tensor) -> None:
        row = self._row(name, "input", {"shape": list(tensor.shape)}, [])
        row.output = tuple(tensor.shape)
        self.origins[tensor] = (row.id,)

    def _row(self, name: str, type: str, settings: dict[str, Any], parents: list[str]) -> Layer:
        taken = {row.id for row in self.rows}
        id, again = name, 2
        while id in taken:
            id, again = f"{name}#{again}", again + 1
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
        length = next((leaf.shape[-1] for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)), 0)
        if row.settings["numEmbeddings"] >= max(length, 3):
            row.type = "positionalEncoding"
            row.settings = {"maxLen": row.settings["numEmbeddings"], "embedDim": row.settings["embeddingDim"]}

    def _inside_row(self) -> bool:
        # a normalisation with a built-in activation is a row, and so is the activation inside it
        return any(frame.row is not None and frame.row.type not in ("batchNorm", "groupNorm") for frame in self.stack)

    def _origin(self, *values: Any) -> list[str]:
        found: list[str] = []
        for leaf in tree_leaves(values):
            if isinstance(leaf, torch.Tensor):
                found += self.origins.get(leaf, ())
        return list(dict.fromkeys(found))

    # operations -----------------------------------------------------------------------------------------------------

    def watch(self) -> TorchDispatchMode:
        tracer = self

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                result = func(*args, **(kwargs or {}))
                tracer.saw(func, args, result)
                return result

        return Watch()

    def saw(self, func: Any, args: tuple, result: Any) -> None:
        """Note where the result comes from; make rows of merges, loose activations and loose parameters."""
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        origin = tuple(self._origin(tensors))
        if not self._inside_row():
            loose = [self._loose(tensor) for tensor in tensors if id(tensor) in self.names]
            for tensor in tensors:
                if id(tensor) in self.counted and tensor not in self.origins:
                    self.origins[tensor] = (self.counted[id(tensor)],)
            if loose and origin and func._schema.name in ("aten::add", "aten::mul"):
                # positions are added to what comes in, a scale multiplies it: the row stands in the chain
                loose[0].parents, loose[0].output = list(origin), tuple(result.shape)
                loose[0].kept, origin = result.numel(), (loose[0].id,)
            else:
                origin = tuple(self._origin(tensors))
                if isinstance(result, torch.Tensor) and result.is_floating_point():
                    origin = self._operation(func, args, tensors, result, origin)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.origins[leaf] = origin

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
        row.output, row.kept = tuple(result.shape), result.numel()
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
        tensor = next(leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor))
        rows = fuse(self.rows)
        parents = [id for id in self.origins.get(tensor, ()) if any(row.id == id for row in rows)]
        rows.append(Layer("output", "output", "output", {}, tuple(tensor.shape), 0, 0, 0, kept=0, parents=parents))
        for parameter in self.module.parameters():  # what did not run still belongs to the count
            if id(parameter) in self.names:
                left = self.names.pop(id(parameter))
                row = Layer(left, left, "parameter", {"shape": list(parameter.shape)}, tuple(parameter.shape),
                            parameter.numel(), None, 0, kept=0)  # fmt: skip
                row.notes.append("is not used in this forward pass")
                rows.insert(-1, row)
        for row in rows:
            row.row = row.parameters
            row.settings.pop("projections", None)
        return Model(name, source, rows)
