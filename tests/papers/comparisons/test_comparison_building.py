"""Modules of libraries: what they are given, what they lack, and that parameters need no run. All of them tiny."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from papers.comparisons.building import of_config, run
from papers.comparisons.models import find
from papers.comparisons.plan import answer
from papers.comparisons.samples import Sizes
from shared.errors import UserError
from shared.graph.language import language, weight_bytes
from shared.graph.measure import Model

TEXT = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = TEXT | {"num_key_value_heads": 2, "max_position_embeddings": 64, "eos_token_id": 2, "bos_token_id": 1}
DECODER |= {"pad_token_id": 0}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
}
VISION |= {"patch_size": 8}


def built(kind: str, sizes: Sizes | None = None, **settings: Any) -> tuple[Model, torch.nn.Module]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with torch.device("meta"):
        found = of_config(CONFIG_MAPPING[kind](**settings), sizes or Sizes(), kind)
    return run(found, kind, kind), found.module


def linear_macs(tokens: int, layers: int = 2, width: int = 16, keys: int = 8, inner: int = 24) -> int:
    """A decoder's layers: projections, products, gated feed-forward."""
    attention = 2 * width * width + 2 * width * keys + 2 * tokens * width
    return layers * tokens * (attention + 3 * width * inner)


CASES: dict[str, dict[str, Any]] = {
    "llama": DECODER,
    "mixtral": DECODER | EXPERTS,
    "clip": {"text_config": TEXT | {"max_position_embeddings": 20, "eos_token_id": 2}, "vision_config": VISION},
    "wav2vec2": TEXT | {"conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [5, 2], "num_conv_pos_embeddings": 4,
                        "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2},
    "whisper": {"vocab_size": 40, "num_mel_bins": 8, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
                "max_source_positions": 20, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
                "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "pad_token_id": 0, "decoder_start_token_id": 1,
                "bos_token_id": 1, "eos_token_id": 2},
    "llava": {"text_config": DECODER | {"model_type": "llama"},
              "vision_config": VISION | {"model_type": "clip_vision_model"},
              "image_token_id": 39},
    "xlnet": {"vocab_size": 40, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24},
    "mamba2": {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_heads": 4, "head_dim": 8,
               "state_size": 4, "n_groups": 1},
}  # fmt: skip
INPUTS = {"clip": {"input_ids", "pixel_values"}, "llava": {"input_ids", "pixel_values"}, "wav2vec2": {"input_values"},
          "whisper": {"input_features", "decoder_input_ids"}}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_every_sort_of_model_is_built_and_run(kind: str) -> None:
    found, module = built(kind, **CASES[kind])
    assert found.parameters == sum(one.numel() for one in module.parameters())
    assert found.built_as == type(module).__name__ and not found.not_run
    assert found.total_is("macs") == "exact" and found.macs > 0
    assert {layer.name for layer in found.inputs} == INPUTS.get(kind, {"input_ids"})


def test_a_grouped_convolution_says_its_groups() -> None:
    found, _ = built("wav2vec2", **CASES["wav2vec2"])
    grouped = [layer for layer in found.layers if layer.settings.get("groups") == 2]
    assert [layer.type for layer in grouped] == ["conv1d"]
    assert grouped[0].parameters == 16 * 8 * 4 + 16 + 4, "a weight, a bias, and the norm of each of its four places"


def test_operations_of_experts_are_those_that_a_token_is_sent_to() -> None:
    plain, _ = built("llama", Sizes(10), **DECODER)
    assert plain.macs == linear_macs(10)
    found, _ = built("mixtral", Sizes(10), **DECODER | EXPERTS)
    assert found.macs == linear_macs(10) + 2 * 10 * (16 * 4 + 3 * 16 * 24)
    asked = language(found)
    assert asked is not None and found.parameters - asked.active == 2 * 2 * 3 * 16 * 24


def test_the_image_of_a_model_of_images_and_text_is_seen() -> None:
    found, module = built("llava", **CASES["llava"])
    tower = [layer for layer in found.layers if "vision_tower" in layer.name]
    assert sum(layer.macs or 0 for layer in tower) > 0
    assert found.inputs[0].output == (1, 16 + 64), "16 patches of the image and 64 tokens of text"
    del module


def test_the_cache_of_keys_and_values() -> None:
    found, _ = built("llama", **DECODER)
    asked = language(found)
    assert asked is not None and not asked.assumed
    assert [(one.layers, one.causal, one.window, one.cached) for one in asked.attention] == [(2, True, None, 16)]
    assert asked.cache(100) == 100 * 2 * 16
    assert asked.embedding == 40 * 16
    windows, _ = built("mistral", **DECODER | {"sliding_window": 8})
    asked = language(windows)
    assert asked is not None and asked.attention[0].window == 8 and asked.cache(100) == 8 * 2 * 16
    latent = {"kv_lora_rank": 6, "q_lora_rank": 5, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
    experts = {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 8,
    }
    found, _ = built(
        "deepseek_v3", **DECODER | latent | experts | {"first_k_dense_replace": 1, "num_key_value_heads": 4}
    )
    asked = language(found)
    assert asked is not None and [one.cached for one in asked.attention] == [6 + 4]
    assert asked.active < asked.parameters


def test_the_default_length_is_sane_and_may_be_chosen() -> None:
    long = DECODER | {"max_position_embeddings": 131_072}
    assert built("llama", **long)[0].inputs[0].output == (1, 2048)
    assert built("llama", Sizes(33), **long)[0].inputs[0].output == (1, 33)
    assert built("vit", Sizes(image=(64, 48)), **VISION | {"image_size": 64})[0].not_run, "it is made for 64 by 64"
    assert built("convnext", Sizes(image=(64, 96)), hidden_sizes=[4, 4, 4, 4], depths=[1] * 4)[0].inputs[0].output == (
        1,
        3,
        64,
        96,
    )


def test_what_cannot_be_run_still_has_its_parameters() -> None:
    for kind, settings in (
        ("speecht5", {"hidden_size": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
                      "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}),
        ("vit", VISION | {"num_channels": 5, "image_size": 4}),
    ):  # fmt: skip
        found, module = built(kind, **settings)
        assert found.parameters == sum(one.numel() for one in module.parameters()) > 0
        assert "could not be run here" in found.not_run and found.total_is("macs") == "not known"


# a folder in hub layout -----------------------------------------------------------------------------------------------


def folder(path: Path, **config: Any) -> str:
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"hf:{path}"


def test_the_class_is_named_and_what_it_lacks_is_said(tmp_path: Path) -> None:
    tiny = DECODER | {"model_type": "llama"}
    whole = find(folder(tmp_path, **tiny, architectures=["LlamaForCausalLM"])).measure()
    assert whole.built_as == "LlamaForCausalLM" and whole.lacks == ""
    for architectures, said in (
        (None, "The configuration names no class: LlamaModel is counted, without a head."),
        (["LlamaForCausalLMs"], "transformers does not have (near: LlamaForCausalLM)"),
        (["MyOwnModel"], "names MyOwnModel"),
    ):
        found = find(folder(tmp_path, **tiny, architectures=architectures)).measure()
        assert found.built_as == "LlamaModel" and said in found.lacks
        assert whole.parameters - found.parameters == 40 * 16
        text = answer({"model": f"hf:{tmp_path}"}, find)
        assert text["lacks"] == found.lacks and found.lacks in text["text"] and text["built_as"] == "LlamaModel"


def test_a_repository_of_timm_is_built_by_timm(tmp_path: Path) -> None:
    found = find(folder(tmp_path, architecture="test_vit", num_classes=7)).measure()
    other = find("timm:test_vit").measure()
    width = next(layer for layer in reversed(other.layers) if layer.type == "linear").settings["inFeatures"]
    assert other.parameters - found.parameters == (1000 - 7) * (width + 1)
    with pytest.raises(UserError, match="timm has no such model"):
        find(folder(tmp_path, architecture="test_vitt")).measure()


def test_weights_by_how_they_are_stored(tmp_path: Path) -> None:
    tiny = DECODER | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    found = find(folder(tmp_path, **tiny)).measure(length=4)
    assert found.stored == {"dtype": "bfloat16", "quantisation": None, "bytes": 2.0 * found.parameters}
    few = 2 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 24)
    assert weight_bytes(found)["int4"] == few * (4 + 16 / 128) / 8 + (found.parameters - few) * 2
    quant = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    found = find(folder(tmp_path, **tiny, quantization_config=quant)).measure(length=4)
    assert found.stored is not None and found.stored["quantisation"] == "gptq, 4 bits in groups of 128"
    assert found.stored["bytes"] == weight_bytes(found)["int4"]


# the committed sweeps -------------------------------------------------------------------------------------------------

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("library", ["transformers", "timm"])
def test_the_sweep_keeps_what_is_promised(library: str) -> None:
    """Recounted from its lines: parameters equal for 99 of 100, operations within 1 % for 90 of 100."""
    data = json.loads((BENCHMARKS / "architectures.json").read_text(encoding="utf-8"))
    built = [one for one in data[library].values() if one.get("built")]
    other = [one for one in built if one.get("macs") is not None and one.get("independent") is not None]
    near = [one for one in other if abs(one["macs"] - one["independent"]) <= 0.01 * max(one["independent"], 1)]
    assert len(built) > 300 and sum(one["parameters"] == one["real"] for one in built) >= 0.99 * len(built)
    assert other and len(near) >= 0.9 * len(other)
    said = data["summary"][library]
    assert (said["built"], said["counted independently too"], said["within 1 %"]) == (len(built), len(other), len(near))


def test_what_training_keeps_is_never_less_than_torch_keeps() -> None:
    networks = json.loads((BENCHMARKS / "activations.json").read_text(encoding="utf-8"))["networks"]
    assert len(networks) >= 12 and all(1 <= one["ours"] / one["torch"] <= 1.25 for one in networks.values())
