from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graphs import chain
from torch import nn

from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention
from shared.graph.kinds import KINDS
from shared.graph.measure import Layer, Model, measure
from shared.graph.place import COMMON, Place, Size, compiled
from shared.graph.read import parse, read


def one(type: str, settings: dict, shape: list[int], convention: Convention = RIGHT) -> Layer:
    return measure(parse(chain((type, settings), shape=shape), "f"), convention).layers[1]


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


META = torch.device("meta")
AGAINST_TORCH = [
    ("linear", {"inFeatures": 5, "outFeatures": 7}, [3, 5], lambda: nn.Linear(5, 7)),
    ("linear", {"outFeatures": 7, "bias": False}, [3, 5], lambda: nn.Linear(5, 7, bias=False)),
    ("conv2d", {"outChannels": 6, "kernelSize": 3, "padding": 1}, [4, 9, 9], lambda: nn.Conv2d(4, 6, 3, padding=1)),
    (
        "conv2d",
        {"outChannels": 6, "kernelSize": [3, 5], "stride": [2, 1], "groups": 2, "bias": False},
        [1, 4, 9, 9],
        lambda: nn.Conv2d(4, 6, (3, 5), (2, 1), groups=2, bias=False),
    ),
    ("conv2d", {"outChannels": 6, "kernelSize": 3, "dilation": 2}, [4, 9, 9], lambda: nn.Conv2d(4, 6, 3, dilation=2)),
    ("depthwiseConv2d", {"inChannels": 4, "kernelSize": 3}, [4, 9, 9], lambda: nn.Conv2d(4, 4, 3, groups=4)),
    (
        "depthwiseConv2d",
        {"kernelSize": 3, "depthMultiplier": 2},
        [4, 9, 9],
        lambda: nn.Conv2d(4, 8, 3, groups=4),
    ),
    ("conv1d", {"outChannels": 6, "kernelSize": 4, "stride": 2}, [3, 20], lambda: nn.Conv1d(3, 6, 4, 2)),
    (
        "transposeConv2d",
        {"outChannels": 6, "kernelSize": 2, "stride": 2},
        [4, 9, 9],
        lambda: nn.ConvTranspose2d(4, 6, 2, 2),
    ),
    ("layerNorm", {"normalizedShape": [4, 5]}, [3, 4, 5], lambda: nn.LayerNorm((4, 5))),
    (
        "transposeConv2d",
        {"outChannels": 6, "kernelSize": 3, "stride": 2, "dilation": 2, "groups": 2, "bias": False},
        [4, 9, 9],
        lambda: nn.ConvTranspose2d(4, 6, 3, 2, dilation=2, groups=2, bias=False),
    ),
    (
        "conv2d",
        {"outChannels": 6, "kernelSize": 4, "padding": "same"},
        [4, 9, 9],
        lambda: nn.Conv2d(4, 6, 4, padding="same"),
    ),
    (
        "maxpool2d",
        {"kernelSize": 2, "stride": 3, "padding": 1, "ceilMode": True},
        [4, 5, 5],
        lambda: nn.MaxPool2d(2, 3, 1, ceil_mode=True),
    ),
    (
        "maxpool2d",
        {"kernelSize": 1, "stride": 4, "ceilMode": True},
        [4, 6, 4],
        lambda: nn.MaxPool2d(1, 4, ceil_mode=True),
    ),
    (
        "layerNorm",
        {"normalizedShape": 5, "elementwiseAffine": False},
        [3, 5],
        lambda: nn.LayerNorm(5, elementwise_affine=False),
    ),
    ("batchNorm", {"affine": False}, [2, 4, 9, 9], lambda: nn.BatchNorm2d(4, affine=False)),
    ("instanceNorm", {"numFeatures": 4}, [2, 4, 9, 9], lambda: nn.InstanceNorm2d(4)),
    ("instanceNorm", {"affine": True}, [2, 4, 9, 9], lambda: nn.InstanceNorm2d(4, affine=True)),
    ("layerNorm", {}, [3, 5], lambda: nn.LayerNorm(5)),
    ("rmsNorm", {"normalizedShape": 5}, [3, 5], lambda: nn.RMSNorm(5)),
    ("batchNorm", {}, [1, 4, 9, 9], lambda: nn.BatchNorm2d(4)),
    ("groupNorm", {"numGroups": 2, "numChannels": 4}, [1, 4, 9, 9], lambda: nn.GroupNorm(2, 4)),
    ("embedding", {"vocabSize": 11, "embeddingDim": 5}, [1, 3], lambda: nn.Embedding(11, 5)),
    ("prelu", {}, [3, 5], lambda: nn.PReLU()),
    ("maxpool2d", {"kernelSize": 3, "stride": 2, "padding": 1}, [4, 9, 9], lambda: nn.MaxPool2d(3, 2, 1)),
    ("avgpool2d", {"kernelSize": 2}, [4, 9, 9], lambda: nn.AvgPool2d(2)),
    ("maxpool1d", {"kernelSize": 2}, [4, 9], lambda: nn.MaxPool1d(2)),
    ("upsample", {"scaleFactor": 2}, [1, 4, 9, 9], lambda: nn.Upsample(scale_factor=2)),
]


@pytest.mark.parametrize(("type", "settings", "shape", "build"), AGAINST_TORCH)
def test_shape_parameters_and_products_as_torch_has_them(type, settings, shape, build) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    module = build().to(META)
    x = torch.zeros(shape, dtype=torch.long if type == "embedding" else torch.float32, device=META)
    with FlopCounterMode(display=False) as counter:
        out = module(x)
    layer = one(type, settings, shape)
    assert layer.output == tuple(out.shape)
    assert layer.parameters == size(module)
    if type != "transposeConv2d":  # the counter takes its output for its input
        assert layer.macs == counter.get_total_flops() // 2


@pytest.mark.parametrize(
    ("type", "settings", "shape", "module"),
    [
        ("lstm", {"hiddenSize": 6, "numLayers": 2}, [7, 5], nn.LSTM(5, 6, 2)),
        ("gru", {"hiddenSize": 6, "inputSize": 5, "bidirectional": True}, [7, 5], nn.GRU(5, 6, bidirectional=True)),
        ("multiHeadAttention", {"embedDim": 8, "numHeads": 2}, [7, 8], nn.MultiheadAttention(8, 2)),
        ("selfAttention", {"dModel": 8, "numHeads": 2, "bias": False}, [7, 8], nn.MultiheadAttention(8, 2, bias=False)),
        (
            "transformerBlock",
            {"embedDim": 8, "numHeads": 2, "ffDim": 32, "numLayers": 3},
            [7, 8],
            nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 32) for _ in range(3)]),
        ),
    ],
)
def test_parameters_of_composed_layers_as_torch_has_them(type, settings, shape, module) -> None:
    assert one(type, settings, shape).parameters == size(module)


def test_attention_counts_four_projections_and_both_products() -> None:
    layer = one("causalAttention", {"embedDim": 8, "numHeads": 2}, [1, 16, 8])
    assert layer.parameters == 4 * 64 + 4 * 8
    assert layer.macs == 16 * 4 * 64 + 2 * 16 * 16 * 8
    grouped = one("groupedQueryAttention", {"embedDim": 8, "numHeads": 4, "numKVHeads": 2, "headDim": 3}, [1, 16, 8])
    assert grouped.parameters == 2 * 8 * 12 + 2 * 8 * 6
    local = one("localAttention", {"embedDim": 8, "numHeads": 2, "windowSize": 4}, [16, 8])
    assert local.macs == 16 * 4 * 64 + 2 * 16 * 4 * 8
    sparse = one("nativeSparseAttention", {"embedDim": 8, "numHeads": 2, "blockSize": 2, "topBlocks": 3}, [16, 8])
    assert sparse.macs == 16 * 4 * 64 + 2 * 16 * 6 * 8


def crossed(type: str, settings: dict, first: list[int], second: list[int]) -> Layer:
    data = {
        "components": [
            {"id": "a", "type": "input", "params": {"shape": first}},
            {"id": "b", "type": "input", "params": {"shape": second}},
            {"id": "x", "type": type, "params": settings},
        ],
        "connections": [{"from": "a", "to": "x"}, {"from": "b", "to": "x"}],
    }
    return measure(parse(data, "f")).layers[-1]


def test_cross_attention_has_its_keys_at_their_own_length_and_width() -> None:
    layer = crossed("multiHeadAttention", {"embedDim": 8, "numHeads": 2}, [1, 4, 8], [1, 16, 8])
    assert layer.output == (1, 4, 8)
    assert layer.macs == 4 * 2 * 64 + 16 * 2 * 64 + 2 * 4 * 16 * 8
    assert layer.kept == 4 * 2 * 8 + 16 * 2 * 8 + 2 * 2 * 4 * 16 + 4 * 8  # q, output; k, v; scores twice; result
    wide = crossed("crossAttention", {"embedDim": 8, "numHeads": 2}, [4, 8], [16, 12])
    assert wide.parameters == 2 * 64 + 2 * 12 * 8 + 4 * 8
    modulated = crossed("multiHeadAttention", {"embedDim": 8, "numHeads": 2}, [4, 8], [1, 48])
    assert modulated.macs == 4 * 4 * 64 + 2 * 4 * 4 * 8
    assert "modulation" in modulated.notes[0]


def test_experts_count_all_weights_but_only_the_active_products() -> None:
    settings = {"embedDim": 8, "numExperts": 4, "numSharedExperts": 1, "expertDim": 16, "topK": 2}
    layer = one("sharedExpertMoE", settings, [1, 3, 8])
    assert layer.parameters == 8 * 4 + 5 * 3 * 8 * 16
    assert layer.macs == 3 * (8 * 4 + 3 * 3 * 8 * 16)


def test_more_experts_than_there_are_cannot_be_chosen() -> None:
    with pytest.raises(UserError, match="topK: 5 of 4 experts"):
        one("moeLayer", {"numExperts": 4, "topK": 5, "expertDim": 16}, [3, 8])


def test_a_batch_norm_that_has_to_guess_its_channels_says_so() -> None:
    assert "channels: 4 of 4 × 16 × 9 is assumed" in one("batchNorm", {}, [4, 16, 9]).notes[0]
    assert one("batchNorm", {}, [4, 9, 9]).notes == one("batchNorm", {"numFeatures": 16}, [4, 16, 9]).notes == []


def test_both_directions_keep_their_gates() -> None:
    kept = [one("lstm", {"hiddenSize": 6, "bidirectional": both}, [7, 5]).kept for both in (False, True)]
    assert kept == [7 * 5 * 6, 2 * 7 * 5 * 6]


def test_a_source_of_positions_is_not_why_a_shape_is_unknown() -> None:
    data = chain(("rope", {}), ("flux", {}), shape=[3, 8])
    data["connections"] = [{"from": "n1", "to": "n2"}, {"from": "n0", "to": "n2"}, {"from": "n2", "to": "n3"}]
    assert measure(parse(data, "f")).forward == "unknown: the shape after flux_2 is not known"


def test_gated_layers_read_hidden_dim_as_their_inner_size() -> None:
    assert one("geglu", {"dim": 8, "hiddenDim": 12}, [3, 8]).parameters == 3 * 8 * 12
    assert one("feedForward", {"hiddenDim": 8, "dFf": 12}, [3, 8]).parameters == 2 * 8 * 12 + 12 + 8


def test_positions_are_learned_unless_they_say_otherwise() -> None:
    assert one("positionalEncoding", {"maxLen": 20}, [1, 16, 8]).parameters == 160
    assert one("positionalEncoding", {"maxLen": 20, "type": "sinusoidal"}, [1, 16, 8]).parameters == 0
    assert one("learnedPositionalEmbedding", {"maxLen": 20, "embedDim": 8}, [1, 16, 8]).parameters == 160
    assert (
        one("positionalEncoding", {"maxLen": 10}, [1, 16, 8]).problem
        == "has 10 positions for the 16 tokens of 1 × 16 × 8"
    )


def test_features_may_stand_on_a_channel_axis() -> None:
    layer = one("layerNorm", {"normalizedShape": 4}, [4, 9, 9])
    assert layer.output == (4, 9, 9)
    assert "channel axis" in layer.notes[0]
    attention = one("multiHeadAttention", {"embedDim": 4, "numHeads": 2}, [4, 3, 3])
    assert attention.macs == 9 * 4 * 16 + 2 * 81 * 4
    assert one("linear", {"inFeatures": 4, "outFeatures": 6}, [4, 9]).output == (6, 9)
    assert one("linear", {"inFeatures": 36, "outFeatures": 6}, [4, 9]).output == (6,)


@pytest.mark.parametrize(
    ("type", "settings", "shape", "problem", "output"),
    [
        ("linear", {"inFeatures": 4096, "outFeatures": 3}, [1, 8], "expects 4,096 features, gets 1 × 8", (1, 3)),
        ("conv2d", {"inChannels": 5, "outChannels": 6, "kernelSize": 1}, [4, 9, 9], "expects 5 channels", (6, 9, 9)),
        ("conv2d", {"outChannels": 6, "kernelSize": 11}, [4, 9, 9], "its kernel 11 × 11 is larger", None),
        ("reshape", {"shape": [3, 3]}, [1, 8], "cannot reshape 1 × 8 (8 values) to 3 × 3 (9)", (3, 3)),
        ("patchEmbed", {"patchSize": 16, "embedDim": 8}, [3, 9, 9], "its patch 16 × 16 is larger", None),
    ],
)
def test_a_layer_that_cannot_take_its_input_says_why(type, settings, shape, problem, output) -> None:
    model = measure(parse(chain((type, settings), shape=shape), "f"))
    assert model.passes_forward is False
    assert model.layers[1].problem.startswith(problem)
    assert model.layers[1].output == output
    assert model.layers[1].macs is None
    assert model.forward.startswith(f"no: {type}_1 {problem}")


@pytest.mark.parametrize(
    ("type", "settings", "shape", "said"),
    [
        ("multiHeadAttention", {"embedDim": 8, "numHeads": 3}, [1, 16, 8], "8 features do not divide into 3 heads"),
        ("groupedQueryAttention", {"embedDim": 8, "numHeads": 4, "numKVHeads": 3}, [1, 16, 8], "4 heads do not divide"),
        ("groupNorm", {"numGroups": 3, "numChannels": 4}, [4, 9, 9], "do not divide into 3 groups"),
        ("conv2d", {"outChannels": 6, "kernelSize": 3}, [1, 512], "takes an image .* gets 1 × 512"),
        ("patchEmbed", {"patchSize": 2, "embedDim": 8}, [1, 512], "takes an image"),
        ("linear", {"outFeatures": -4}, [1, 8], "outFeatures: expected a whole number of at least 1, got '-4'"),
        ("linear", {"outFeatures": 0}, [1, 8], "outFeatures"),
        ("linear", {"outFeatures": "many"}, [1, 8], "outFeatures"),
        ("linear", {"outFeatures": 2.5}, [1, 8], "outFeatures"),
        ("conv2d", {"outChannels": 6, "kernelSize": [3, -3]}, [4, 9, 9], "kernelSize"),
        ("conv2d", {"outChannels": 6, "kernelSize": 3, "padding": -1}, [4, 9, 9], "padding"),
        ("linear", {"outFeatures": 4, "bias": "no"}, [1, 8], "bias: expected true or false"),
        ("concatenate", {"axis": 7}, [1, 8], "not an axis"),
        ("layerNorm", {"normalizedShape": [0]}, [1, 8], "normalizedShape: expected 1 to 8 positive"),
        ("batchNorm", {"numFeatures": -1}, [4, 9, 9], "numFeatures: expected 1 to 8 positive"),
    ],
)
def test_settings_that_no_layer_can_have_are_the_users_error(type, settings, shape, said) -> None:
    with pytest.raises(UserError, match=f"node 'n1' \\({type}\\): .*{said}|node 'n1' .*{said}") as caught:
        measure(parse(chain((type, settings), shape=shape), "f"))
    assert "\n" not in str(caught.value)


def test_an_unknown_type_is_unknown_and_never_zero() -> None:
    model = measure(parse(chain(("hyperNet", {"a": 1}), ("linear", {"outFeatures": 4}), shape=[1, 8]), "f"))
    assert model.unknown_types == {"hyperNet": 1}
    assert [layer.id for layer in model.unknown("parameters")] == ["n1", "n2"]
    assert model.passes_forward is None
    assert model.forward == "unknown: the shape after hyperNet_1 is not known"
    known = measure(parse(chain(("hyperNet", {}), ("linear", {"inFeatures": 8, "outFeatures": 4})), "f"))
    assert [layer.id for layer in known.unknown("parameters")] == ["n1"]
    assert known.parameters == 36


def test_a_missing_setting_is_named_and_the_shape_stays_known() -> None:
    layer = one("causalAttention", {"embedDim": 8}, [1, 16, 8])
    assert (layer.output, layer.parameters, layer.macs) == ((1, 16, 8), None, None)
    assert layer.notes == ["its numHeads is not given: its parameters are unknown"]


def test_a_repeated_layer_is_a_layer_of_its_own() -> None:
    first, second = measure(parse(chain(*[("add", {})] * 2, shape=[3, 8]), "f")).layers[1:3]
    assert (first.id, second.id, second.parents) == ("n1", "n2", ["n1"])
    assert first.notes == second.notes == ["has one parent: there is nothing to merge"]
    assert first.notes is not second.notes


def test_every_type_of_the_public_files_is_known() -> None:
    """The 61 types of the 92 public graph files, and the one more that the comparison pages use."""
    types = [
        "add", "rmsNorm", "groupedQueryAttention", "swiglu", "layerNorm", "conv2d", "feedForward",
        "multiHeadAttention", "relu", "moeLayer", "linear", "transformerBlock", "geglu", "concatenate", "batchNorm",
        "mla", "sharedExpertMoE", "input", "output", "embedding", "depthwiseConv2d", "gelu", "seBlock",
        "crossAttention", "sigmoid", "conv1d", "positionalEncoding", "patchEmbed", "maxpool2d", "globalAvgPool1d",
        "flatten", "avgpool2d", "swish", "projection", "softmax", "matmul", "globalAvgPool2d", "multiply",
        "groupNorm", "reshape", "dropout", "lstm", "localAttention", "upsample", "elu", "gru", "rope",
        "learnedPositionalEmbedding", "selfAttention", "prelu", "nativeSparseAttention", "alibi", "mamba",
        "transposeConv2d", "graphSAGE", "graphConv", "mean", "embeddingBag", "featureInteraction", "separableConv2d",
        "maxpool1d",
    ]  # fmt: skip
    assert len(types) == 61
    assert [type for type in [*types, "causalAttention"] if KINDS.get(type) is None] == []


def tied(settings: dict) -> Model:
    layers = [("embedding", {"numEmbeddings": 11, "embeddingDim": 8}), ("linear", settings)]
    return measure(parse(chain(*layers, shape=[1, 4]), "f"))


def test_tied_weights_count_once_where_their_owner_is_found() -> None:
    model = tied({"inFeatures": 8, "outFeatures": 11, "tied": True})
    assert model.parameters == 88
    assert model.layers[2].notes == ["its weights are those of embedding_1"]
    assert tied({"inFeatures": 8, "outFeatures": 11, "tied": True, "bias": True}).parameters == 88 + 11
    alone = tied({"inFeatures": 8, "outFeatures": 12, "tied": True})
    assert alone.parameters == 88 + 8 * 12 + 12
    assert "no other layer has weights of its shape" in alone.layers[2].notes[0]


@pytest.mark.parametrize(
    ("type", "settings", "shapes", "output"),
    [
        ("add", {}, [[3, 8], [3, 8]], (3, 8)),
        ("add", {}, [[1], [1, 8]], (1, 8)),
        ("concatenate", {}, [[3, 8], [3, 4]], (3, 12)),
        ("concatenate", {"axis": 1}, [[3, 9, 9], [2, 9, 9]], (5, 9, 9)),
        ("concatenate", {}, [[3, 9, 9], [2, 9, 9]], (5, 9, 9)),
        ("concatenate", {"dim": -1}, [[8], [1, 4]], (1, 12)),
        ("concatenate", {"dim": 1}, [[1, 5, 8], [1, 3, 8]], (1, 8, 8)),
        ("matmul", {}, [[3, 8], [8, 5]], (3, 5)),
        ("matmul", {}, [[3, 8], [5, 8]], (3, 5)),
        ("mean", {}, [[3, 8], [3, 8]], (3, 8)),
        ("featureInteraction", {}, [[8], [26, 8]], (27 * 26 // 2 + 8,)),
    ],
)
def test_merges(type, settings, shapes, output) -> None:
    assert crossed(type, settings, *shapes).output == output


@pytest.mark.parametrize("type", ["add", "concatenate", "matmul"])
def test_merges_of_shapes_that_do_not_fit(type: str) -> None:
    assert crossed(type, {}, [3, 7], [2, 5]).problem.startswith("cannot ")


@pytest.mark.parametrize(
    ("type", "settings", "shape", "count", "by_hand"),
    [
        ("swiglu", {"dim": 8, "hiddenDim": 16, "bias": True}, [3, 8], "parameters", 3 * 128 + 2 * 16 + 8),
        ("swiglu", {"dim": 8, "hiddenDim": 16}, [3, 8], "kept", 3 * 3 * 16 + 24),
        ("moeLayer", {"numExperts": 4, "topK": 2, "expertDim": 16}, [3, 8], "kept", 3 * 2 * 3 * 16 + 24),
        ("seBlock", {"channels": 16, "reduction": 4}, [16, 9, 9], "parameters", 2 * 64 + 4 + 16),
        ("separableConv2d", {"outChannels": 6, "kernelSize": 3, "padding": 1}, [4, 9, 9], "macs", 81 * (36 + 24)),
        ("graphSAGE", {"inChannels": 8, "outChannels": 5}, [3, 8], "macs", 3 * 2 * 40),
        ("mamba", {"embedDim": 8, "dState": 4}, [3, 8], "kept", 3 * (4 * 16 + 1 + 2 * 4) + 24),
        ("transformerBlock", {"embedDim": 8, "numHeads": 2, "ffDim": 16, "numLayers": 2}, [16, 8], "kept",
         2 * (16 * 32 + 2 * 2 * 256 + 128 + 16 * 32 + 128 + 2 * 128)),
        *(
            ("mla", {"embedDim": 8, "numHeads": 2, "headDim": 4, "ropeHeadDim": 2, "qLatentDim": 3, "kvLatentDim": 5},
             [16, 8], count, by_hand)
            for count, by_hand in (
                ("parameters", 60 + 136 + 64 + 5 + 3), ("macs", 16 * (260 + 16 * 20)), ("kept", 16 * 48 + 1024 + 128),
            )
        ),
    ],
)  # fmt: skip
def test_counts_by_hand(type, settings, shape, count, by_hand) -> None:
    assert getattr(one(type, settings, shape), count) == by_hand


def test_public_graphs_meet_their_official_counts(shared_folder: Path) -> None:
    """The 46 public graphs: all read, none has an unknown type, 10 of 15 official counts are met within 2 %."""
    models = {path.stem: measure(read(path)) for path in sorted((shared_folder / "graphs" / "zoo").glob("*.json"))}
    assert len(models) == 46
    assert not any(model.unknown_types for model in models.values())
    assert not any(model.unknown("parameters") for model in models.values())
    assert all(model.passes_forward is not None for model in models.values())
    failing = {name: model.problems[0].problem for name, model in models.items() if model.problems}
    assert failing == {
        "dcn": "expects 10 features, gets 1 × 390",
        "gemma-4-12b": "cannot reshape 1 × 196 × 3840 (752,640 values) to 1 × 280 × 3840 (1,075,200)",
        "mamba-block": "expects 4,096 features, gets 1 × 1027 × 2048",
        "mmoe": "expects 16 features, gets 1 × 624",
        "ple": "expects 16 features, gets 1 × 624",
    }
    official = {name: model.official_parameters for name, model in models.items() if model.official_parameters}
    assert len(official) == 15
    missed = [name for name, count in official.items() if abs(models[name].parameters / count - 1) > 0.02]
    assert missed == ["gpt-oss-120b", "gpt2-small", "kimi-k2.6", "llama-4-scout", "pythia-1.4b"]


def test_every_name_in_a_formula_is_known() -> None:
    """A formula is text until it is used: each may name sizes of its row, of every row, and what a place has."""
    place = set(dir(Place)) | set(Place.__dataclass_fields__)
    functions = {"ceil", "len", "max", "min", "prod"}
    for type, kind in KINDS.items():
        rules = [kind.parameters, kind.macs, kind.kept, *kind.sizes.values(), *COMMON.values()]
        formulas = [rule.default if isinstance(rule, Size) else rule for rule in rules]
        names = {name for text in formulas if isinstance(text, str) for name in compiled(text).co_names}
        if "width" not in kind.sizes:
            names -= {"width"}  # of the vectors that `tokens` counts
        assert names <= place | functions | set(kind.sizes) | set(COMMON) | {"biased"}, type


def test_no_size_hides_what_a_place_has() -> None:
    assert not {name for kind in KINDS.values() for name in kind.sizes} & (
        set(dir(Place)) | set(Place.__dataclass_fields__)
    )
