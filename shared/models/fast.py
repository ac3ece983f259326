"""What makes a frozen network quick without changing its numbers beyond rounding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shared.errors import UserError
from shared.models import DEPTHWISE, GROUP_NORM

FOLD_TOLERANCE = 1e-4  # relative; folding in float32 costs about 1e-6


class _Reads(TorchDispatchMode):
    """Counts how often each tensor's memory is read, itself or through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[int] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.count.update(memory_of(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        return function(*args, **kwargs)


def memory_of(tensor: Tensor) -> int:
    """The address of a tensor's memory, which its views share."""
    return tensor.untyped_storage().data_ptr()


def fold_batch_norms(module: nn.Module, size: tuple[int, int]) -> int:
    """Fold every batch norm that alone reads a convolution's output into its weights, in place; returns how many.

    Which one reads which is seen in a run on one random image, not guessed from names: the norm's input is the very
    tensor that the convolution returned, and nothing else reads its memory (in CoAtNet a shortcut does). float32 and
    eval mode only. Where the answer changed by more than rounding all the same, the network is left as it was.
    """
    names = {child: (parent, name) for parent in module.modules() for name, child in parent.named_children()}
    reads = _Reads()
    outputs: dict[int, tuple[nn.Conv2d, Tensor]] = {}  # kept alive: an address is only unique among living tensors
    calls: Counter[nn.Module] = Counter()
    pairs: list[tuple[nn.Conv2d, nn.BatchNorm2d, int]] = []

    def after_convolution(conv: nn.Conv2d, _: Any, out: Tensor) -> None:
        outputs[memory_of(out)] = conv, out
        reads.count[memory_of(out)] = 0  # what was read of a tensor that lay there before does not count
        calls[conv] += 1

    def before_norm(norm: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
        calls[norm] += 1
        address = memory_of(inputs[0])
        if address in outputs and inputs[0] is outputs[address][1]:
            pairs.append((outputs[address][0], norm, address))

    hooks = [m.register_forward_hook(after_convolution) for m in module.modules() if isinstance(m, nn.Conv2d)]
    hooks += [m.register_forward_pre_hook(before_norm) for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    x = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(0)) - 0.5
    with torch.no_grad():
        with reads:
            before = module(x)
        for hook in hooks:
            hook.remove()
        outputs.clear()
        alone = [(c, n) for c, n, at in pairs if reads.count[at] == 1 and calls[c] == calls[n] == 1]
        earlier = [(conv, conv.weight, conv.bias, *names[norm], norm) for conv, norm in alone]
        for conv, _, _, parent, name, norm in earlier:
            fused = fuse_conv_bn_eval(conv, norm)
            conv.weight, conv.bias = fused.weight, fused.bias
            # timm's norm layers also hold the activation
            rest = [layer for layer in (getattr(norm, "drop", None), getattr(norm, "act", None)) if layer is not None]
            setattr(parent, name, nn.Sequential(*rest) if rest else nn.Identity())
        after = module(x)
    if torch.allclose(before, after, rtol=FOLD_TOLERANCE, atol=FOLD_TOLERANCE * float(before.abs().max())):
        return len(alone)
    for conv, weight, bias, parent, name, norm in earlier:
        conv.weight, conv.bias = weight, bias
        setattr(parent, name, norm)
    return 0


def standardise_weights(module: nn.Module) -> int:
    """Replace BiT's weight-standardised convolutions by plain ones whose weights are standardised once; how many.

    The layer normalises its weights anew in every forward pass, and in the pass's precision; here once, in float32.
    """
    from transformers.models.bit.modeling_bit import WeightStandardizedConv2d

    targets = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if isinstance(child, WeightStandardizedConv2d)
    ]
    for parent, name, old in targets:
        rows = old.weight.detach().flatten(1)
        variance, mean = torch.var_mean(rows, dim=1, correction=0, keepdim=True)
        names = ["in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"]
        plain = nn.Conv2d(*(getattr(old, name) for name in names), bias=old.bias is not None)
        plain.weight = nn.Parameter(((rows - mean) / (variance + old.eps).sqrt()).view_as(old.weight))
        if old.bias is not None:
            plain.bias = old.bias
        setattr(parent, name, plain if old.pad is None else nn.Sequential(old.pad, plain))
    return len(targets)


class Answer(nn.Module):
    """A transformers model as a plain function: float [B, 3, h, w] to [B, dim].

    output: one of the model's outputs, flattened; "maps": the mean over the places of its feature map; "cls", "mean",
    "cls+mean": of its tokens [B, prefix + patches, dim]. cls: the output that is the class token, "" for the first
    token. inputs: the images as the model takes them, where it is not by the name pixel_values.
    """

    def __init__(
        self,
        model: nn.Module,
        output: str,
        *,
        prefix: int = 0,
        cls: str = "",
        inputs: Callable[[Tensor], dict[str, Tensor]] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.output, self.prefix, self.cls = output, prefix, cls
        self.inputs = inputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.model(**(self.inputs(x) if self.inputs else {"pixel_values": x}))
        if self.output == "maps":
            return out.last_hidden_state.flatten(2).mean(2)
        if "cls" not in self.output and "mean" not in self.output:
            numbers = getattr(out, self.output)
            if numbers is None:
                raise UserError("its settings leave the pooled output out; choose a pool of its tokens (mean)")
            return numbers.flatten(1)
        tokens = out.last_hidden_state
        parts = []
        if "cls" in self.output:
            parts.append(getattr(out, self.cls) if self.cls else tokens[:, 0])
        if "mean" in self.output:
            parts.append(tokens[:, self.prefix :].mean(1))
        return torch.cat(parts, dim=1)


class Tokens(nn.Module):
    """A timm model's tokens [B, prefix + patches, dim], pooled: "cls", "mean" or "cls+mean"; float [B, 3, h, w] in."""

    def __init__(self, model: nn.Module, pool: str) -> None:
        super().__init__()
        self.model, self.pool = model, pool

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.model.forward_features(x)
        parts = {"cls": tokens[:, 0], "mean": tokens[:, self.model.num_prefix_tokens :].mean(1)}
        return torch.cat([parts[name] for name in self.pool.split("+")], dim=1)


class PreLogits(nn.Module):
    """What a timm model's classifier layer would read: float [B, 3, h, w] to [B, head_hidden_size]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model.forward_head(self.model.forward_features(x), pre_logits=True)


class ClassTokenLayer(nn.Module):
    """A ViT's last layer for its class token alone: all tokens are attended to, one is answered for.

    Pre-logits and logits read only that token of [B, 1 + patches, dim], so nobody looks at what the last layer's query,
    output and MLP products make of the patches: 7 % of ViT-B's work, 3 % of ViT-L's. Gives [B, 1, dim].
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, tokens: Tensor, attention_mask: None = None, **_: Any) -> Tensor:
        layer, attention = self.layer, self.layer.attention
        normed = layer.layernorm_before(tokens)

        def heads(x: Tensor) -> Tensor:
            return x.unflatten(2, (attention.num_attention_heads, -1)).transpose(1, 2)

        query = heads(attention.q_proj(normed[:, :1]))
        key, value = heads(attention.k_proj(normed)), heads(attention.v_proj(normed))
        seen = nn.functional.scaled_dot_product_attention(query, key, value, scale=attention.scaling)
        first = tokens[:, :1] + attention.o_proj(seen.transpose(1, 2).flatten(2))
        return first + layer.mlp(layer.layernorm_after(first))


def float32_because(module: nn.Module) -> str:
    """Why this network is computed in float32 where others are in bfloat16, or ""; see `shared.models.computed_in`."""
    layers = list(module.modules())
    if any(isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1 for layer in layers):
        return DEPTHWISE
    return GROUP_NORM if any(isinstance(layer, nn.GroupNorm) for layer in layers) else ""


def folded(module: nn.Module, size: tuple[int, int]) -> nn.Module:
    """A network with its batch norms folded, the channel innermost where it has such; `size`: of its images."""
    if any(isinstance(layer, nn.BatchNorm2d) for layer in module.modules()):
        fold_batch_norms(module, size)
        module = module.to(memory_format=torch.channels_last)
    return module


def compiled(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """`torch.compile` by inductor with frozen weights: constants are folded and packed for the matrix units.

    Freezing is set for these calls alone: in a network that is still trained it would keep old weights.
    """
    import torch._inductor.config as inductor

    run = torch.compile(module, dynamic=False)

    def frozen(x: Tensor) -> Tensor:
        with inductor.patch(freezing=True):
            return run(x)

    return frozen
