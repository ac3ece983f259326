from __future__ import annotations

import pytest
import torch
from torch import nn

from shared.graph.measure import Model
from shared.graph.trace import trace


def run(module: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> Model:
    return trace(module.to("meta"), {"x": torch.zeros(*shape, dtype=dtype, device="meta")}, "tiny", "test")


def table(model: Model) -> list[tuple]:
    return [(layer.type, layer.parameters, layer.output) for layer in model.layers]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, project: bool = True) -> None:
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width) if project else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Gated(Mlp):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__(width, inner)
        self.act, self.up = nn.SiLU(), nn.Linear(width, inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int = 8, mlp: type[nn.Module] = Mlp) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, 2)
        self.norm2, self.mlp = nn.LayerNorm(width), mlp(width, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def test_a_block_has_the_rows_of_a_graph_file_and_edges_along_its_tensors() -> None:
    model = run(Block(), 1, 16, 8)
    shape = (1, 16, 8)
    assert table(model) == [
        ("input", 0, shape),
        ("layerNorm", 16, shape),
        ("multiHeadAttention", 4 * 64 + 4 * 8, shape),
        ("add", 0, shape),
        ("layerNorm", 16, shape),
        ("feedForward", 2 * 8 * 32 + 32 + 8, shape),
        ("add", 0, shape),
        ("output", 0, shape),
    ]
    by_type = {layer.id: layer for layer in model.layers}
    assert [by_type[id].type for id in model.layers[3].parents] == ["input", "multiHeadAttention"]
    assert [by_type[id].type for id in model.layers[6].parents] == ["add", "feedForward"]
    assert model.layers[2].macs == 16 * 4 * 64 + 2 * 16 * 16 * 8
    assert model.layers[5].macs == 16 * 2 * 8 * 32
    assert model.layers[2].settings == {"embedDim": 8, "numHeads": 2}
    # what comes in, q, k, v, the heads' output twice (its axes are moved), one number a query and head
    assert model.layers[2].kept == 16 * 8 + 16 * 24 + 2 * 16 * 8 + 2 * 16


def test_a_gate_makes_a_gated_feed_forward() -> None:
    model = run(Block(mlp=Gated), 1, 16, 8)
    assert [(layer.type, layer.settings) for layer in model.layers if layer.type == "swiglu"] == [
        ("swiglu", {"embedDim": 8, "ffDim": 32})
    ]


class Embedded(nn.Module):
    """Tokens, learned positions as a parameter and as an embedding, and a head with the tokens' weights."""

    def __init__(self, as_embedding: bool) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight
        self.cls = nn.Parameter(torch.zeros(1, 1, 8))
        self.table = nn.Embedding(20, 8) if as_embedding else None
        self.pos = None if as_embedding else nn.Parameter(torch.zeros(1, 17, 8))
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), self.tokens(x)], dim=1)
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(x + (self.pos if self.table is None else self.table(places)[None]))


@pytest.mark.parametrize("as_embedding", [True, False])
def test_positions_ties_loose_and_unused_parameters(as_embedding: bool) -> None:
    with torch.device("meta"):  # moving a module there would untie its weights
        module = Embedded(as_embedding)
    model = run(module, 1, 16, dtype=torch.long)
    assert model.parameters == sum(parameter.numel() for parameter in module.parameters())
    types = [layer.type for layer in model.layers]
    assert types.count("positionalEncoding") == 1
    assert "concatenate" in types
    found = {layer.name: layer for layer in model.layers}
    assert found["head"].parameters == 0
    assert found["head"].notes == ["its weights are those of tokens"]
    assert found["unused"].notes == ["is not used in this forward pass"]
    assert found["cls"].parameters == 8


def test_convolutions_normalisations_and_loose_activations() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.depth, self.head = nn.Conv2d(4, 4, 3, groups=4), nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.bn(self.conv(x)))
            return self.head(torch.relu(x + self.depth(nn.functional.pad(x, (1, 1, 1, 1)))).mean(dim=(2, 3)))

    model = run(Net(), 1, 3, 8, 8)
    assert [layer.type for layer in model.layers] == [
        "input", "conv2d", "batchNorm", "relu", "depthwiseConv2d", "add", "relu", "globalAvgPool2d", "linear", "output",
    ]  # fmt: skip
    assert model.layers[1].macs == 64 * 3 * 4 * 9
    assert model.layers[1].settings["bias"] is False
    assert model.layers[4].macs == 64 * 4 * 9


def test_a_shared_module_counts_once_and_runs_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(torch.relu(self.fc(x)))

    model = run(Twice(), 1, 8)
    assert model.parameters == 72
    assert model.macs == 128
    assert len({layer.id for layer in model.layers}) == len(model.layers)


def test_torchs_own_attention_is_one_row() -> None:
    module = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True, device="meta")
    model = trace(module, {"src": torch.empty(1, 10, 16, device="meta")}, "layer", "test")
    assert model.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert model.macs == 10 * 4 * 16 * 16 + 2 * 10 * 10 * 16 + 10 * 2 * 16 * 64
    assert [layer.type for layer in model.layers if layer.parameters] == [
        "multiHeadAttention", "layerNorm", "feedForward", "layerNorm",
    ]  # fmt: skip


def test_heads_need_not_share_the_width() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads, self.head_dim = 2, 16
            self.qkv, self.out = nn.Linear(8, 96), nn.Linear(32, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).reshape(1, 10, 3, 2, 16).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).reshape(1, 10, 32))

    row = run(Wide(), 1, 10, 8).layers[1]
    assert (row.type, row.settings) == ("multiHeadAttention", {"embedDim": 8, "numHeads": 2, "headDim": 16})
    assert row.macs == 10 * 8 * 96 + 2 * 10 * 10 * 32 + 10 * 32 * 8
    assert row.kept == 10 * 8 + 10 * 96 + 2 * 10 * 32 + 2 * 10  # what comes in; q, k, v; the output twice; the queries


def test_a_product_beside_attention_does_not_swallow_the_model() -> None:
    class Scored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads, self.block = 2, Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.block(x)
            return y @ y.transpose(1, 2)

    model = run(Scored(), 1, 16, 8)
    assert [layer.type for layer in model.layers].count("multiHeadAttention") == 1
    assert [(layer.type, layer.macs) for layer in model.layers][-2] == ("matmul", 16 * 16 * 8)
