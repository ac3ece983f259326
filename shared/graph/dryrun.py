"""A forward pass without weights: numbers with a point are shapes alone, whole numbers and truth values are computed.

Weights and activations live on the `meta` device, so a model of any size runs in little memory. Token ids, masks, grids
and lengths are small, and the way through a model hangs on them: they are real, on the processor. Where a decision
hangs on a value that does not exist, it is taken by rule, and `decided` says so:

    an expert, a largest value     the choice is spread evenly: token 0 goes to expert 0, token 1 to expert 1, ...
    a truth value                  false
    a number                       1
    the places where a mask holds  all

Attention is one fused operation that keeps its inputs, its output and one number a query, as torch's own kernels do;
not where its mask is learned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
META, CPU = torch.device("meta"), torch.device("cpu")
_CHOICES = ("aten::topk", "aten::sort", "aten::argsort", "aten::argmax", "aten::argmin", "aten::multinomial")
MOST_NUMBERS = 10**7  # that are made up for a module which reads them
# checks of numbers that do not exist
_CHECKS = ("aten::_assert_async", "aten::_assert_scalar", "aten::_assert_tensor_metadata")


def is_whole(dtype: torch.dtype | None) -> bool:
    return dtype is not None and not (dtype.is_floating_point or dtype.is_complex)


def shape_only(value: Any) -> Any:
    """A tensor without its numbers; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.device != META:
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=META)
    return value


class DryRun(TorchDispatchMode):
    """Entered before every other mode, so that the others see the operations as the module asked for them."""

    def __init__(self) -> None:
        super().__init__()
        self.decided: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        hollow = any(tensor.device == META for tensor in tensors)
        name = func._schema.name
        if not hollow:
            return self._real(func, name, tensors, args, kwargs)
        special = self._special(func, name, args, kwargs)
        if special is not NotImplemented:
            return special
        first = args[0] if args else None
        if name in ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"):
            args = (args[0], self._indices(args[1]), *args[2:])
        result = func(*tree_map(shape_only, args), **tree_map(shape_only, kwargs))
        if name in _CHOICES:
            return self._spread(name, args, result)
        if func._schema.is_mutable and name.endswith("_") and isinstance(first, torch.Tensor):
            return first  # what is written into a real tensor is lost; nothing but its shape is asked for
        return result

    def _real(self, func: Any, name: str, tensors: list[torch.Tensor], args: tuple, kwargs: dict) -> Any:
        """No tensor without numbers takes part: whole numbers stay real, whatever device was asked for."""
        if name == "aten::histc" and is_whole(args[0].dtype):  # a processor counts numbers with a point only
            return func(args[0].float(), *args[1:], **kwargs).to(args[0].dtype)
        device = kwargs.get("device")
        if device is None or torch.device(device) != META:
            return func(*args, **kwargs)
        if tensors:
            whole = all(is_whole(tensor.dtype) for tensor in tensors)
        else:
            values = [arg for arg in args if isinstance(arg, int | float)]
            given = kwargs.get("dtype")
            whole = is_whole(given) if given else "arange" in name and all(isinstance(one, int) for one in values)
        if whole:
            kwargs["device"] = CPU
        elif tensors:
            return func(*tree_map(shape_only, args), **kwargs)
        return func(*args, **kwargs)

    def _special(self, func: Any, name: str, args: tuple, kwargs: dict) -> Any:
        """Operations whose result is a number of the data."""
        if name in _CHECKS:
            return None
        if name == "aten::_local_scalar_dense":
            if args[0].dtype == torch.bool:
                self.decided["truth values were taken as false"] += 1
                return False
            self.decided["numbers were taken as 1"] += 1
            return 1 if is_whole(args[0].dtype) else 1.0
        if name in ("aten::_to_copy", "aten::to") and str(kwargs.get("device")) == "cpu":
            return self._made_up(args[0], kwargs.get("dtype"))
        if name == "aten::equal":
            self.decided["truth values were taken as false"] += 1
            return False
        if name == "aten::nonzero":
            return self._everywhere(args[0])
        if name == "aten::masked_select":
            self._everywhere(args[1])
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
            found = args[1].count_nonzero() if args[1].device != META else prod(shape)
            return args[0].new_empty(int(found))
        if name in ("aten::_unique2", "aten::unique_consecutive", "aten::unique_dim"):
            self.decided["values were taken as all different"] += 1
            count = args[0].numel()
            return args[0].new_empty(count), torch.arange(count).view(args[0].shape), torch.ones(count).long()
        if name == "aten::bincount":
            self.decided["a choice was spread evenly"] += 1
            return torch.ones(max(1, kwargs.get("minlength", 0) or (args[2] if len(args) > 2 else 0)), dtype=torch.long)
        if name == "aten::_grouped_mm":
            first, second = args[:2]
            return first.new_empty(*first.shape[:-1], second.shape[-1])
        return NotImplemented

    def _made_up(self, tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        """Numbers where a module asks to read some: each 1, or false."""
        dtype = dtype or tensor.dtype
        if tensor.numel() > MOST_NUMBERS:
            return tensor.to(dtype)
        self.decided["numbers were taken as 1, or as false"] += 1
        fill = torch.zeros if dtype == torch.bool else torch.ones
        return fill(tensor.shape, dtype=dtype, device=CPU)

    def _everywhere(self, mask: torch.Tensor) -> torch.Tensor:
        if mask.device != META:
            return mask.nonzero()
        self.decided["masks were taken to hold everywhere"] += 1
        return torch.ones(mask.shape, dtype=torch.bool).nonzero()

    def _indices(self, indices: Any) -> list[Any]:
        """Masks as the places where they hold, because how many those are is a shape."""
        found: list[Any] = []
        for index in indices:
            if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
                found += self._everywhere(index).unbind(1)
            else:
                found.append(index)
        return found

    def _spread(self, name: str, args: tuple, result: Any) -> Any:
        """The indices of a choice, as even as can be: experts then get equally many tokens."""
        self.decided["a choice was spread evenly"] += 1
        indices = result if isinstance(result, torch.Tensor) else result[1]
        axis = next((arg for arg in args[2:] if isinstance(arg, int)), -1) if name == "aten::topk" else -1
        shape, options = indices.shape, (args[0].shape[axis] if args[0].dim() else 1)
        if name in ("aten::argmax", "aten::argmin"):
            dim = next((arg for arg in args[1:] if isinstance(arg, int) and not isinstance(arg, bool)), None)
            options = args[0].numel() if dim is None else args[0].shape[dim]
        even = (torch.arange(prod(shape)) % max(options, 1)).view(shape)
        return even if isinstance(result, torch.Tensor) else (result[0], even, *result[2:])


class _Attention(torch.autograd.Function):
    """softmax(q k^T) v as one operation: [B, H, L, E], [B, G, S, E], [B, G, S, V] -> [B, H, L, V]; G divides H."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        repeats = query.shape[-3] // key.shape[-3] if query.dim() > 3 else 1
        wide = [one.repeat_interleave(repeats, -3) if repeats > 1 else one for one in (key, value)]
        result = torch.softmax(query @ wide[0].transpose(-2, -1), -1) @ wide[1]
        ctx.save_for_backward(query, key, value, result, result.new_empty(result.shape[:-1]))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError("a dry run has no backward pass")


def _plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention whose positions are learned as its mask: the scores are kept."""
    repeats = query.shape[-3] // key.shape[-3] if query.dim() > 3 else 1
    key, value = (one.repeat_interleave(repeats, -3) if repeats > 1 else one for one in (key, value))
    scale = query.shape[-1] ** -0.25
    return torch.softmax((query * scale) @ (key * scale).transpose(-2, -1) + mask, -1) @ value


class Fused(TorchFunctionMode):
    """Attention as one operation with the products of its matrices inside."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            given = [*args, *(kwargs[name] for name in ("query", "key", "value") if name in kwargs)][:3]
            mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
            if isinstance(mask, torch.Tensor) and mask.requires_grad:  # no fused operation learns its mask
                return _plain(*given, mask)
            return _Attention.apply(*given)
        if func in (torch.compiler.is_compiling,):
            return False
        return func(*args, **kwargs)


def grouped_flops(first: Any, second: Any, *_: Any, **__: Any) -> int:
    """[T, K] against one of [E, K, N] a token (or [E, T, K]): two operations a multiply-accumulate."""
    return 2 * prod(first) * second[-1]


COUNTED = {aten._grouped_mm: grouped_flops}
