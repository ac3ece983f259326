"""A run without weights counts what a run with weights counts, and keeps what autograd keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from shared.graph.language import language
from shared.graph.measure import Model
from shared.graph.trace import outline, trace

TOKENS, WIDTH = 12, 8


class Experts(nn.Module):
    """Four experts, each token goes to two, one expert after the other, as libraries loop."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.router = way, nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, WIDTH)
        weights, chosen = self.router(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            if self.way == "where":
                token, place = torch.where(chosen == at)
            else:
                token, place = (F.one_hot(chosen, 4)[..., at] > 0).nonzero(as_tuple=True)
            if len(token) == 0:
                continue
            result.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return result


class Reads(nn.Module):
    """Decisions that hang on whole numbers of the input: they are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = ids == 3
        if int(mask.sum()) != 4:
            raise ValueError("it must see four 3s")
        hidden = self.table(ids)
        last = int(mask.nonzero()[-1, 1])
        return self.head(hidden[mask][:, :] + hidden[:, last])


class Values(nn.Module):
    """Decisions that hang on values: taken by rule."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.isinf(x).any():
            x = torch.clamp(x, -1, 1)
        for _ in range(int(x.abs().max())):
            x = self.head(x)
        return x[x.sum(-1) > 0]


def floats(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def dry(module: Callable[[], nn.Module], **inputs: torch.Tensor) -> Model:
    with torch.device("meta"):
        made = module()
    return trace(made, inputs, "m", "m")


def counted(module: nn.Module, *inputs: Any) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module.eval()(*inputs)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("way", ["where", "one_hot"])
def test_experts_one_by_one_get_their_share_of_the_tokens(way: str) -> None:
    found = dry(lambda: Experts(way), x=floats(1, TOKENS, WIDTH))
    assert (
        found.macs
        == TOKENS * WIDTH * 4 + 2 * TOKENS * WIDTH * WIDTH
        == counted(Experts(way), torch.rand(1, TOKENS, WIDTH))
    )
    assert found.decided == {"a choice was spread evenly": 1}


def test_whole_numbers_are_computed() -> None:
    ids = torch.tensor([[1, 3, 3, 2, 3, 3, 0]])
    found = dry(Reads, ids=ids)
    assert found.macs == 4 * WIDTH * 3 == counted(Reads(), ids) and not found.decided


def test_decisions_on_values_are_taken_by_rule_and_said() -> None:
    found = dry(Values, x=floats(TOKENS, WIDTH))
    assert found.macs == TOKENS * WIDTH * WIDTH and found.outputs[0].output == (TOKENS, WIDTH)
    assert found.decided == {
        "truth values were taken as false": 1,
        "numbers were taken as 1": 1,
        "masks were taken to hold everywhere": 1,
    }


class Attention(nn.Module):
    def __init__(self, groups: int = 2, fused: bool = True) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.fused, self.groups = 2, WIDTH // 2, fused, groups
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, groups * WIDTH // 2)
        self.v, self.o = nn.Linear(WIDTH, groups * WIDTH // 2), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, WIDTH // 2)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.fused:
            out = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.groups != 2)
        else:
            out = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.o(out.transpose(1, 2).flatten(2))


class Learned(Attention):
    """With positions that are learned as a mask, as T5 has them."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, 2, 20, 20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, WIDTH // 2)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias * 2).transpose(1, 2).flatten(2))


class Scan(nn.Module):
    """A state-space mixer: heads, products of its own, a loop over the tokens, no softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2
        self.inner, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, state, states = self.inner(x), torch.zeros(1, WIDTH, 4, device=x.device), []
        for at in range(x.shape[1]):
            state = state + F.silu(x[:, at, :, None]) * torch.ones(1, 1, 4, device=x.device)
            states.append(state.sum(-1))
        mixed = torch.stack(states, 1)
        return self.out(mixed @ mixed.transpose(1, 2) @ x)


class Mamba9Mixer(Scan):
    pass


class GatedDeltaNet(Scan):
    pass


class Holds(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(WIDTH), kind()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mixer(self.norm(x))


@pytest.mark.parametrize(
    ("kind", "type"), [(Mamba9Mixer, "mamba"), (GatedDeltaNet, "gatedDeltaNet"), (Attention, "multiHeadAttention")]
)
def test_a_mixer_is_one_row_and_no_attention(kind: type[nn.Module], type: str) -> None:
    for length in (5, 60):
        found = dry(lambda: Holds(kind), x=floats(1, length, WIDTH))
        assert [layer.type for layer in found.layers] == ["input", "layerNorm", type, "add", "output"]
        assert found.macs == counted(Holds(kind), torch.rand(1, length, WIDTH)) or kind is Attention


def test_a_loop_over_tokens_is_one_row_of_a_type() -> None:
    found = dry(lambda: Holds(Scan), x=floats(1, 60, WIDTH))
    assert [layer.type for layer in found.layers].count("swish") == 1
    assert any("is done 60 times in a loop" in layer.notes for layer in found.layers)
    ids = {layer.id for layer in found.layers}
    assert all(parent in ids for layer in found.layers for parent in layer.parents)


def kept(module: nn.Module, *inputs: torch.Tensor) -> int:
    """Bytes that autograd keeps, each storage once, without the weights."""
    held = {one.untyped_storage().data_ptr() for one in [*module.parameters(), *module.buffers()]}
    sizes: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            alive.append(storage)
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = module.eval()(*inputs)
    del result
    return sum(sizes.values())


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.ReLU()
    )


def block() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))


@pytest.mark.parametrize(
    ("module", "shape"),
    [(convolutions, (1, 3, 16, 16)), (block, (1, 20, WIDTH)), (Attention, (1, 20, WIDTH)),
     (Learned, (1, 20, WIDTH)), (lambda: Attention(groups=1), (1, 20, WIDTH)),
     (lambda: Attention(fused=False), (1, 20, WIDTH)),
     (lambda: nn.Sequential(block(), nn.Dropout(0.1), nn.Linear(WIDTH, 3)), (1, 20, WIDTH))],
)  # fmt: skip
def test_what_is_kept_is_what_autograd_keeps(module: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    real = kept(module(), torch.rand(shape))
    with torch.device("meta"):
        made = module()
    name = "x" if isinstance(made, Attention) else "input"
    found = 4 * trace(made, {name: floats(*shape)}, "m", "m").total("kept")
    assert real <= found <= 1.25 * real


def test_a_module_that_cannot_run_has_its_parameters() -> None:
    with torch.device("meta"):
        made = nn.Sequential(nn.Embedding(9, 4), nn.Linear(5, 6), nn.LSTM(6, 7), nn.Conv2d(3, 4, 3))
    found = outline(made, "m", "m", "why")
    assert found.parameters == sum(one.numel() for one in made.parameters())
    assert found.forward == "unknown: why" and found.total_is("parameters") == "exact"
    assert [found.total_is(what) for what in ("macs", "memory", "cost")] == ["not known", "at least", "not known"]
    assert [layer.type for layer in found.layers] == ["embedding", "linear", "lstm", "conv2d"]
    assert language(copy.copy(found)) is None
