"""Every architecture that can be named: its library's own numbers, the declared representation, or one clear line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers
from checkpoints import BFLOAT16, FLOAT32, images, random_model, save
from safetensors.torch import load_file, save_file

from shared import features, models
from shared.errors import UserError
from shared.models import families
from shared.models.processors import PROCESSORS
from shared.paths import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import families as random_models

# One of each kind: class token with registers, a tower of two, attention pooling, no class token, hidden patches,
# feature maps, batch norms that are folded, a norm that stands with the classifier. The rest: benchmarks/families.md.
QUICK = ["dinov3_vit", "clip", "siglip2", "ijepa", "vit_mae", "convnextv2", "levit", "poolformer"]


@pytest.mark.parametrize("name", QUICK)
def test_features_are_transformers_own(name, tmp_path):
    row = random_models.compare(f"hf {name}", tmp_path / "model")
    assert row["difference"] < 1e-4 and row["difference, one by one"] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", random_models.every())
def test_features_are_the_librarys_own(name, tmp_path):
    """Minutes; the same rows are in benchmarks/families.json."""
    row = random_models.compare(name, tmp_path / "model")
    assert row["difference"] < 1e-4 and row["difference, one by one"] < 1e-4


def test_every_row_of_the_table_is_compared_with_transformers():
    recorded = json.loads((ROOT / "benchmarks" / "families.json").read_text(encoding="utf-8"))
    assert set(recorded) == set(random_models.every()) and len(recorded) >= 40
    assert max(max(row["difference"], row["difference, one by one"]) for row in recorded.values()) < 1e-4
    # the table's names for the same row: a vision tower alone, or with its text tower
    same = {"aimv2": "aimv2_vision_model"}
    assert {f"hf {same.get(kind, kind)}" for kind in families.FAMILIES} <= set(recorded)
    for kind, family in families.FAMILIES.items():
        for called in (family.encoder, family.classifier):
            assert not called or hasattr(transformers, called), kind
        assert family.processor in PROCESSORS and family.words


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """`made(name)`: the folder of a random model of benchmarks/families.py, saved once."""
    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("made") / "model"
            random_models.saved(f"hf {name}", folders[name])
        return folders[name]

    return make


def copy(folder: Path, to: Path, **config: object) -> Path:
    """The model in another folder, keys of its config.json replaced."""
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    settings = json.loads((to / "config.json").read_text(encoding="utf-8"))
    (to / "config.json").write_text(json.dumps({**settings, **config}), encoding="utf-8")
    return to


def refused(spec: Path | str, words: str, **how: object) -> None:
    with pytest.raises(UserError, match=words) as error:
        models.load_encoder(str(spec), FLOAT32, **how)
    assert "\n" not in str(error.value)


def test_the_first_line_says_what_the_numbers_are(made):
    identity = models.describe(str(made("clip")), transform="own")
    scale = "(x/255 - [0.5, 0.4, 0.3]) / [0.5, 0.25, 0.2]"
    corner = "whole grey levels, the crop's corner rounded down"
    assert identity.facts == (
        "class token after post_layernorm, before the projection; "
        f"shortest side to 32, centre crop 32x32, bilinear antialias, {corner}; {scale}; "
        "keys read of preprocessor_config.json: resample, image_mean, image_std; for `own` also size, crop_size"
    )
    squashed = models.describe(str(made("clip")))
    assert squashed.preprocessing.startswith("squash to 32x32")
    assert any("text_model" in note for note in squashed.notes)


def test_a_pool_is_part_of_the_key_and_no_pool_is_not(made):
    keys = [
        features.recipe(features.deferred(str(made("dinov3_vit")), FLOAT32, pool=pool), FLOAT32, "auto")
        for pool in ("", "cls", "mean")
    ]
    assert "pool" not in keys[0] and keys[1]["pool"] == "cls" and keys[2]["pool"] == "mean"


@pytest.mark.parametrize(
    ("name", "pool", "words"),
    [
        ("ijepa", "cls", "has no class token; expected pool mean"),
        ("convnextv2", "mean", "has no tokens, only feature maps"),
        ("poolformer", "cls+mean", "has no tokens"),
        ("clip", "max", "pool 'max': expected one of cls, mean, cls.mean"),
    ],
)
def test_a_pool_that_a_family_does_not_have_is_one_line(made, name, pool, words):
    refused(made(name), words, pool=pool)


def test_a_vit_without_its_pooler_has_a_class_token(tmp_path):
    model = random_model("vit", head=7)
    spec = save(model, tmp_path / "tuned")
    refused(spec, "needs? the pooler.*pool cls")
    encoder = models.load_encoder(spec, FLOAT32, pool="cls+mean")
    with torch.no_grad():
        hidden = model.vit(pixel_values=encoder.identity.transform(images())).last_hidden_state
    expected = torch.cat([hidden[:, 0], hidden[:, 1:].mean(1)], 1)
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-4, atol=1e-5)


# What people have ---------------------------------------------------------------------------------------


def test_stored_in_bfloat16_and_in_shards(made, tmp_path):
    folder = copy(made("dinov3_vit"), tmp_path / "model")
    state = {name: value.bfloat16() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(state, folder / "model.safetensors")
    expected = models.load_encoder(str(folder), FLOAT32).encode(images())
    assert models.load_encoder(str(folder), BFLOAT16).encode(images()).isfinite().all()
    names = sorted(state)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, keys in parts.items():
        save_file({key: state[key] for key in keys}, folder / file)
    index = {"metadata": {}, "weight_map": {key: file for file, keys in parts.items() for key in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "model.safetensors").unlink()
    assert models.load_encoder(str(folder), FLOAT32).encode(images()).equal(expected)


def test_a_head_of_any_number_of_classes_is_left_alone(tmp_path):
    torch.manual_seed(0)
    config = transformers.SwinConfig(**random_models.WINDOWS, num_labels=7)
    model = random_models.randomise(transformers.SwinForImageClassification(config))
    model.save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "preprocessor_config.json").write_text(json.dumps(random_models.RECIPE), encoding="utf-8")
    folder = copy(tmp_path / "m", tmp_path / "wrong", num_labels=3, id2label=None)
    encoder = models.load_encoder(str(folder), FLOAT32)
    with torch.no_grad():
        expected = model.swin(encoder.identity.transform(images())).pooler_output
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-4, atol=1e-5)
    classifier = models.load_classifier(str(tmp_path / "m"), FLOAT32)
    with torch.no_grad():
        expected = model(classifier.identity.transform(images())).logits
    torch.testing.assert_close(classifier.encode(images()), expected, rtol=1e-4, atol=1e-4)


def test_a_preprocessor_inside_a_processor_config(made, tmp_path):
    folder = copy(made("clip"), tmp_path / "model")
    before = models.describe(str(folder)).preprocessing
    recipe = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    (folder / "preprocessor_config.json").unlink()
    refused(folder, "preprocessor_config.json: no such settings file")
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": recipe}), encoding="utf-8")
    identity = models.describe(str(folder))
    assert identity.preprocessing == before and "keys read of processor_config.json" in identity.transform_from


def test_no_pooled_output_is_one_line_and_the_mean_is_a_way_out(tmp_path):
    settings = {**random_models.VIT32, "vision_use_head": False}
    model = random_models.randomise(transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**settings)))
    model.save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "preprocessor_config.json").write_text(json.dumps(random_models.RECIPE), encoding="utf-8")
    refused(tmp_path / "m", "leave the pooled output out; choose a pool of its tokens .mean.")
    encoder = models.load_encoder(str(tmp_path / "m"), FLOAT32, pool="mean")
    with torch.no_grad():
        expected = model(encoder.identity.transform(images())).last_hidden_state.mean(1)
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-4, atol=1e-5)


def test_images_of_no_one_size(made):
    refused(made("siglip2"), "images keep their shape .max_num_patches.*take squash or crop", transform="own")
    assert models.describe(str(made("siglip2"))).transform.size == (32, 32)


def test_a_size_that_the_positions_forbid(made, tmp_path):
    folder = copy(made("ijepa"), tmp_path / "model")
    (folder / "preprocessor_config.json").write_text(json.dumps({**random_models.RECIPE, "size": 64}), encoding="utf-8")
    refused(folder, "its recipe makes .64, 64. images, its position embeddings are for .32, 32.", transform="own")
    assert models.load_encoder(str(folder), FLOAT32).identity.transform.size == (32, 32)


def test_an_adapter_is_not_a_model(made, tmp_path):
    alone = tmp_path / "adapter"
    alone.mkdir()
    (alone / "adapter_config.json").write_text('{"peft_type": "LORA"}', encoding="utf-8")
    save_file({"base_model.model.q.lora_A.weight": torch.ones(2, 2)}, alone / "adapter_model.safetensors")
    refused(alone, "holds an adapter .LoRA., not a whole model .*merge_and_unload")
    beside = copy(made("clip"), tmp_path / "beside")
    (beside / "adapter_config.json").write_text("{}", encoding="utf-8")
    refused(beside, "an adapter .LoRA. beside the weights")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            transformers.BertConfig(architectures=["BertForMaskedLM"]),
            r"model_type 'bert' \(BertForMaskedLM\); expected",
        ),
        (transformers.DetrConfig(architectures=["DetrForObjectDetection"]), r"model_type 'detr' \(DetrForObjectD"),
        (transformers.YolosConfig(), r"model_type 'yolos'"),
    ],
)
def test_a_model_of_texts_or_a_detector(tmp_path, config, words):
    config.save_pretrained(tmp_path)
    save_file({"weight": torch.ones(1)}, tmp_path / "model.safetensors")
    refused(tmp_path, words)


@pytest.mark.parametrize(
    ("config", "weights", "words"),
    [
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, {}, "n_config, bitsandbytes"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, {}, "quantization_config, gptq"),
        ({}, {"q.qweight": torch.ones(2, 2, dtype=torch.int32)}, "q.qweight is stored as i32; quantised"),
        ({}, {"q.weight": torch.ones(2, 2, dtype=torch.int8)}, "q.weight is stored as i8"),
        ({}, {"q.weight_qdata": torch.ones(2, 2, dtype=torch.int8)}, "q.weight_qdata is stored as i8"),
        ({}, {"q.weight._data": torch.ones(2, 2, dtype=torch.int8)}, "q.weight._data is stored as i8"),
        ({}, {"q.weight.absmax": torch.ones(2, dtype=torch.uint8)}, "q.weight.absmax is stored as u8"),
        ({}, {"q.weight": torch.ones(2, 2).to(torch.float8_e4m3fn)}, "q.weight is stored as f8_e4m3"),
        ({"num_channels": 1}, {}, "num_channels is 1; only models of RGB images"),
        ({"auto_map": {"AutoModel": "m.M"}}, {}, "auto_map"),
    ],
)
def test_quantised_one_channel_and_foreign_code_are_refused_by_name(made, tmp_path, config, weights, words):
    folder = copy(made("dinov3_vit"), tmp_path / "model", **config)
    save_file({**load_file(folder / "model.safetensors"), **weights}, folder / "model.safetensors")
    refused(folder, words)


@pytest.mark.parametrize("file", ["model_quantized.onnx", "model-Q4_K.gguf"])
def test_weights_in_another_format_are_named(made, tmp_path, file):
    folder = copy(made("dinov3_vit"), tmp_path / "model")
    (folder / "model.safetensors").rename(folder / file)
    refused(folder, f"no weights in .*{re.escape(file)} is in a format that is not read")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_hidden_layers": 10_000_000}, "config.json has 10,000,000 layers, its checkpoint only"),
        ({"hidden_size": 10**30}, "describes no network"),
        ({"hidden_size": 48}, "in the checkpoint, expected|describes no network"),
        ({"num_attention_heads": 0}, "describes no network"),
        ({"num_register_tokens": 5}, "register_tokens is .*in the checkpoint, expected"),
        ({"model_type": "dinov2"}, "is it a checkpoint of another architecture"),
    ],
)
def test_settings_out_of_sense(made, tmp_path, config, words):
    refused(copy(made("dinov3_vit"), tmp_path / "model", **config), words)


# torchvision --------------------------------------------------------------------------------------------


def torchvision_file(tmp_path: Path, name: str = "squeezenet1_1", **changes: object) -> tuple[torch.nn.Module, Path]:
    import torchvision

    model = random_models.randomise(torchvision.models.get_model(name, weights=None, **changes))
    torch.save(model.state_dict(), tmp_path / "mine.pth")
    return model, tmp_path / "mine.pth"


def test_a_torchvision_network_of_any_head(tmp_path):
    model, file = torchvision_file(tmp_path, num_classes=7)
    encoder = models.load_encoder(f"torchvision:squeezenet1_1@{file}", FLOAT32, transform="own")
    with torch.no_grad():
        expected = model.features(encoder.identity.transform(images())).mean((2, 3))
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-4, atol=1e-5)
    assert encoder.preprocessing.startswith("shortest side to 256, centre crop 224x224, bilinear")
    assert encoder.identity.transform_from == "torchvision's recipe of squeezenet1_1 IMAGENET1K_V1"
    with pytest.raises(UserError, match=r"the head of mine\.pth has 7 classes"):
        models.load_classifier(f"torchvision:squeezenet1_1@{file}", FLOAT32)


def test_which_recipe_of_a_torchvision_network_is_said(tmp_path):
    _, file = torchvision_file(tmp_path, "mobilenet_v2")
    assumed = models.describe(f"torchvision:mobilenet_v2@{file}", transform="own")
    said = "by the recipe of torchvision's IMAGENET1K_V2"
    assert "shortest side to 232" in assumed.preprocessing and said in " ".join(assumed.notes)
    named = models.describe(f"torchvision:mobilenet_v2.IMAGENET1K_V1@{file}", transform="own")
    assert "shortest side to 256" in named.preprocessing and "recipe" not in " ".join(named.notes)
    published = file.rename(tmp_path / "mobilenet_v2-b0353104.pth")
    refused(f"torchvision:mobilenet_v2@{published}", "not the file that torchvision publishes .*expected b0353104")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("torchvision:resnet51@{file}", "no classification network 'resnet51'; did you mean torchvision:resnet50"),
        ("torchvision:mobilenet_v2.V3@{file}", "no weights 'V3' of mobilenet_v2; it has IMAGENET1K_V1, IMAGENET1K_V2"),
        ("torchvision:resnet18@{file}", "has no .*which would be random"),
        ("torchvision:mobilenet_v2", "no weights named, .*download https://download.pytorch.org/"),
        ("torchvision:mobilenet_v2@/no/such.pth", "no file /no/such.pth"),
        ("torchvision:", "nothing after the colon"),
    ],
)
def test_torchvision_specs_that_name_nothing(tmp_path, monkeypatch, spec, words):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    _, file = torchvision_file(tmp_path)
    refused(spec.format(file=file), words)
