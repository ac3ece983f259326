"""Nothing false is said of a graph: shapes that cannot be are problems, and nothing behind one is called a bound."""

from __future__ import annotations

import pytest
import torch
from graphs import chain
from torch import nn

from shared.errors import UserError
from shared.graph.measure import Layer, Model, measure
from shared.graph.read import parse


def model(*layers: tuple[str, dict], shape: list[int]) -> Model:
    return measure(parse(chain(*layers, shape=shape), "f"))


def last(*layers: tuple[str, dict], shape: list[int]) -> Layer:
    return model(*layers, shape=shape).layers[-2]


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def crossed(source: list[int], *before: tuple[str, dict], **settings: int) -> Layer:
    """Cross attention of 6 tokens of 8 features over what `before` makes of `source`."""
    data = chain(*before, shape=source)
    data["components"] += [
        {"id": "q", "type": "input", "params": {"shape": [6, 8]}},
        {"id": "a", "type": "crossAttention", "params": {"embedDim": 8, "numHeads": 2, **settings}},
    ]
    end = f"n{len(before)}"
    data["connections"] += [{"from": "q", "to": "a"}, {"from": end, "to": "a"}]
    return next(layer for layer in measure(parse(data, "f")).layers if layer.id == "a")


TOKENS = ("embedding", {"vocabSize": 9, "embeddingDim": 8})


@pytest.mark.parametrize("length", [5, 20, 300])
def test_parameters_never_hang_on_a_length(length: int) -> None:
    conv = ("conv1d", {"inChannels": 3, "outChannels": 8, "kernelSize": 3, "padding": 1})
    own = 4 * 8 * 8 + 4 * 8
    assert crossed([3, length], conv, ("gelu", {})).parameters == own
    assert crossed([length, 8]).parameters == own
    # another width than its own: that of the source's features, or the declared one
    wide = ("conv1d", {"inChannels": 3, "outChannels": 12, "kernelSize": 1})
    assert crossed([3, length], wide).parameters == own + 2 * 4 * 8
    assert crossed([length, 12], kvDim=12).parameters == own + 2 * 4 * 8
    for type, settings, count in (
        ("batchNorm", {}, 16),
        ("layerNorm", {}, 16),
        ("linear", {"outFeatures": 5}, 45),
        ("feedForward", {"ffDim": 4}, size(nn.Linear(8, 4)) + size(nn.Linear(4, 8))),
        ("multiHeadAttention", {"numHeads": 2}, own),
        ("lstm", {"hiddenSize": 2}, size(nn.LSTM(8, 2))),
        ("positionalEncoding", {"maxLen": 300}, 2400),
    ):
        assert last(conv, ("relu", {}), (type, settings), shape=[3, length]).parameters == count, type
    turned = last(conv, ("permute", {"dims": [1, 0]}), ("linear", {"outFeatures": 5}), shape=[3, length])
    assert (turned.parameters, turned.output) == (45, (length, 5))


def test_keys_of_another_width_than_declared_are_a_problem() -> None:
    assert "expects keys of 12 features" in crossed([20, 9], kvDim=12).problem


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([("embedding", {"vocabSize": 197, "embeddingDim": 8})], [1, 3, 32, 32]),
        ([("embedding", {"vocabSize": 197, "embeddingDim": 8})], [3, 32, 32]),
        ([("embeddingBag", {"vocabSize": 9, "embeddingDim": 8}), ("flatten", {})], [1, 1, 16, 16]),
        ([("linear", {"outFeatures": 6}), TOKENS], [4, 5]),
        ([("conv2d", {"outChannels": 2, "kernelSize": 1}), TOKENS], [3, 9, 9]),
    ],
)
def test_an_embedding_looks_up_whole_numbers(layers: list, shape: list[int]) -> None:
    found = model(*layers, shape=shape)
    assert "looks up whole numbers" in found.problems[0].problem and found.passes_forward is False


def test_embeddings_of_tokens_still_pass() -> None:
    settings = {"vocabSize": 9, "embeddingDim": 8}
    for shape in ([7], [1, 7], [1, 5, 3], [1, 7, 8]):
        assert model(("embedding", settings), shape=shape).passes_forward is True


@pytest.mark.parametrize(
    "wrong",
    [
        ("linear", {"inFeatures": 9, "outFeatures": 8}),
        ("layerNorm", {"normalizedShape": 9}),
        ("multiHeadAttention", {"embedDim": 9, "numHeads": 3}),
        ("conv1d", {"inChannels": 7, "outChannels": 8, "kernelSize": 1}),
    ],
)
def test_nothing_behind_a_problem_is_a_bound(wrong: tuple[str, dict]) -> None:
    behind = [
        ("linear", {"inFeatures": 8, "outFeatures": 8}),
        ("relu", {}),
        ("rmsNorm", {}),
        ("linear", {"outFeatures": 3}),
    ]
    found = model(("linear", {"outFeatures": 8}), wrong, *behind, shape=[1, 4, 5])
    before, problem, *rest = found.layers[1:-1]
    assert before.macs == 4 * 5 * 8 and problem.problem
    assert {layer.kept for layer in [problem, *rest]} == {None}
    assert [layer.macs for layer in rest] == [None, 0, 0, None], "what multiplies nothing is known to"
    assert rest[0].parameters == 72, "declared sizes count on"
    assert rest[2].parameters is None and rest[3].parameters is None, "a shape behind a problem is only assumed"
    assert [found.total_is(what) for what in ("parameters", "macs", "memory", "cost")] == ["at least"] + [
        "not known"
    ] * 3


def test_a_layer_of_unknown_type_leaves_lower_bounds() -> None:
    found = model(("linear", {"outFeatures": 8}), ("quantum", {}), shape=[1, 4, 5])
    assert [found.total_is(what) for what in ("parameters", "macs", "memory", "cost")] == ["at least"] * 4


BATCHES = [
    ([("conv2d", {"outChannels": 4, "kernelSize": 3})], [3, 9, 9]),
    ([("batchNorm", {}), ("conv2d", {"outChannels": 4, "kernelSize": 3})], [3, 9, 9]),
    ([("conv3d", {"outChannels": 4, "kernelSize": 3})], [3, 5, 9, 9]),
    ([TOKENS], [7]),
    ([("layerNorm", {}), ("multiHeadAttention", {"embedDim": 8, "numHeads": 2})], [5, 8]),
    ([("gru", {"hiddenSize": 3})], [5, 8]),
    ([("patchEmbed", {"embedDim": 8, "patchSize": 4})], [3, 8, 8]),
]


@pytest.mark.parametrize(("layers", "shape"), BATCHES)
def test_a_declared_batch_is_counted_for_one_sample(layers: list, shape: list[int]) -> None:
    alone, many = model(*layers, shape=[1, *shape]), model(*layers, shape=[8, *shape])
    assert (many.macs, many.parameters, many.total("kept")) == (alone.macs, alone.parameters, alone.total("kept"))
    assert many.inputs[0].notes == ["declares a batch of 8: counts are for one sample of it"]
    assert alone.inputs[0].notes == [] and many.macs + many.parameters > 0


def test_a_batch_that_a_layer_reshapes_to_stays() -> None:
    found = model(
        ("conv2d", {"outChannels": 4, "kernelSize": 1}), ("reshape", {"shape": [8, 4, 16]}), shape=[8, 3, 4, 4]
    )
    assert found.passes_forward is True and found.inputs[0].output == (8, 3, 4, 4)


def test_the_makers_own_format_is_read() -> None:
    data = chain(("conv2d", {"outChannels": 4, "kernelSize": 3}), ("flatten", {}), ("lmHead", {"vocabSize": 9}))
    data["components"][0] |= {"params": {}, "outputShape": [3, 8, 8]}
    data["components"][1]["outputShape"] = [4, 6, 6]
    found = measure(parse(data, "f"))
    assert found.layers[-2].output == (9,) and found.layers[-2].parameters == 144 * 9
    data["components"][1]["outputShape"] = [4, 7, 7]
    assert "the file says that its output is 4 × 7 × 7" in measure(parse(data, "f")).layers[1].notes
    data["components"][0] = {"id": "n0", "type": "input", "params": {"seqLen": 5}}
    data["components"][1] = {"id": "n1", "type": "embedding", "params": {"vocabSize": 9, "embeddingDim": 2}}
    assert measure(parse(data, "f")).layers[1].output == (5, 2)


def test_a_module_of_the_users_own_says_what_it_has() -> None:
    data = chain(("customModule", {"paramCount": 123}), ("relu", {}), shape=[4, 6])
    found = measure(parse(data, "f"))
    assert found.parameters == 123 and found.total_is("parameters") == "exact" and found.total_is("macs") == "at least"
    data["components"][1] = {"id": "n1", "type": "customModule", "paramCount": 7, "outputShape": [4, 2]}
    found = measure(parse(data, "f"))
    assert found.parameters == 7 and found.layers[2].output == (4, 2)
    assert "its output 4 × 2 is the one that the file declares" in found.layers[1].notes


@pytest.mark.parametrize(("type", "meant"), [("Linear", "linear"), ("Conv2D", "conv2d"), ("layernorm", "layerNorm"),
                                             ("multiHeadAtention", "multiHeadAttention")])  # fmt: skip
def test_a_misspelt_type_is_told_the_right_one(type: str, meant: str) -> None:
    assert f"did you mean {meant}?" in last((type, {}), shape=[4]).notes[0]


def test_a_tie_is_true_or_false() -> None:
    for value in ("yes", 3, [True]):
        with pytest.raises(UserError, match="tied: expected true or false"):
            model(
                ("embedding", {"vocabSize": 9, "embeddingDim": 8}),
                ("linear", {"outFeatures": 9, "tied": value}),
                shape=[5],
            )


def test_flatten_says_what_it_takes_for_a_batch() -> None:
    assert last(("flatten", {}), shape=[2, 8]).output == (16,) and last(("flatten", {}), shape=[2, 8]).notes
    assert last(("flatten", {"startDim": 1}), shape=[1, 2, 8]).output == (1, 16)
    assert last(("flatten", {"startDim": 0}), shape=[2, 8]).output == (16,)
    assert last(("flatten", {"startDim": 2}), shape=[1, 2, 3, 4]).output == (1, 2, 12)
    assert last(("flatten", {"startDim": 1, "endDim": 2}), shape=[1, 2, 3, 4]).output == (1, 6, 4)


def test_a_size_that_is_too_large_is_called_so() -> None:
    with pytest.raises(UserError, match="a size is at most 10\\^12"):
        model(("relu", {}), shape=[10**13])


META = torch.device("meta")
NEW = [
    ("conv3d", {"outChannels": 4, "kernelSize": 3}, [3, 7, 8, 9], lambda: nn.Conv3d(3, 4, 3)),
    ("depthwiseConv1d", {"kernelSize": 3}, [4, 9], lambda: nn.Conv1d(4, 4, 3, groups=4)),
    (
        "transposeConv1d",
        {"outChannels": 4, "kernelSize": 2, "stride": 2},
        [3, 7],
        lambda: nn.ConvTranspose1d(3, 4, 2, 2),
    ),
    ("transposeConv3d", {"outChannels": 4, "kernelSize": 2}, [3, 5, 5, 5], lambda: nn.ConvTranspose3d(3, 4, 2)),
    ("maxpool3d", {"kernelSize": 2}, [3, 8, 8, 8], lambda: nn.MaxPool3d(2)),
    ("adaptiveAvgPool2d", {"outputSize": [2, 3]}, [3, 8, 8], lambda: nn.AdaptiveAvgPool2d((2, 3))),
    ("adaptiveMaxPool1d", {"outputSize": 2}, [3, 8], lambda: nn.AdaptiveMaxPool1d(2)),
    ("pixelShuffle", {"upscaleFactor": 2}, [8, 3, 3], lambda: nn.PixelShuffle(2)),
    ("pixelUnshuffle", {"downscaleFactor": 2}, [2, 6, 6], lambda: nn.PixelUnshuffle(2)),
    ("zeroPad2d", {"padding": 2}, [2, 6, 6], lambda: nn.ZeroPad2d(2)),
    ("glu", {}, [5, 8], lambda: nn.GLU()),
    ("lmHead", {"embedDim": 8, "vocabSize": 20}, [5, 8], lambda: nn.Linear(8, 20, bias=False)),
    ("dropPath", {"p": 0.1}, [5, 8], lambda: nn.Identity()),
    ("logSoftmax", {}, [5, 8], lambda: nn.LogSoftmax(-1)),
]


@pytest.mark.parametrize(
    ("type", "settings", "shape", "module"), NEW, ids=lambda value: value if isinstance(value, str) else ""
)
def test_further_types_count_as_torch_does(type: str, settings: dict, shape: list[int], module) -> None:
    found = last((type, settings), shape=shape)
    with META:
        made = module()
        assert found.output == tuple(made(torch.zeros(1, *shape)).shape[1:])
    assert found.parameters == size(made)


def test_both_directions_of_a_recurrent_layer() -> None:
    for type, module in (("bidirectionalLSTM", nn.LSTM), ("bidirectionalGRU", nn.GRU)):
        found = last((type, {"inputSize": 8, "hiddenSize": 3, "numLayers": 2}), shape=[5, 8])
        assert found.parameters == size(module(8, 3, 2, bidirectional=True)) and found.output == (5, 6)


def test_layers_that_move_numbers() -> None:
    assert last(("split", {"chunks": 2}), shape=[5, 8]).output == (5, 4)
    assert last(("slice", {"dim": 0, "start": 0, "end": 1}), shape=[5, 8]).output == (1, 8)
    assert last(("transpose", {}), shape=[2, 5, 8]).output == (2, 8, 5)
    assert last(("permute", {"dims": [0, 2, 1]}), shape=[5, 8]).output == (8, 5), "counts a batch axis"
    assert last(("squeeze", {}), shape=[1, 5, 1]).output == (5,)
    assert last(("unsqueeze", {"dim": 1}), shape=[5, 8]).output == (5, 1, 8)
    assert "does not order the axes" in last(("permute", {"dims": [0, 0]}), shape=[5, 8]).problem
    assert "do not divide" in last(("split", {"chunks": 3}), shape=[5, 8]).problem


def test_attention_of_further_types() -> None:
    found = last(("multiQueryAttention", {"embedDim": 8, "numHeads": 4}), shape=[5, 8])
    assert found.parameters == 2 * 8 * 8 + 2 * 8 * 2 and found.cached == 2 * 2
    seen = last(("windowAttention", {"embedDim": 8, "numHeads": 2, "windowSize": 2}), shape=[16, 8])
    assert seen.macs == 16 * 4 * 64 + 2 * 16 * 4 * 8


def test_latent_attention_with_other_heads_of_values() -> None:
    def latent(**sizes: int) -> int:
        return last(("mla", {"embedDim": 128, "numHeads": 8, "kvLatentDim": 32, **sizes}), shape=[20, 128]).parameters

    nope, rope, value = 32, 16, 24
    shared = 128 * (32 + rope) + 32 * 8 * (nope + value) + 8 * value * 128 + 32
    assert latent(headDim=32, vHeadDim=24, ropeHeadDim=16, qLatentDim=48) == shared + 48 * (128 + 8 * 48) + 48 == 69_712
    assert latent(headDim=32, vHeadDim=24, ropeHeadDim=16) == shared + 128 * 8 * 48
    assert latent(vHeadDim=16) == latent(headDim=16) == 128 * 32 + 32 * 8 * 32 + 128 * 128 * 2 + 32
