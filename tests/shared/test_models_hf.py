"""Checkpoints in hub layout: the right numbers from every layout and format, and no silently random weight."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import BFLOAT16, CONFIGS, FLOAT32, PROCESSOR, images, old_layout, random_model, save
from safetensors.torch import save_file

from shared import models
from shared.errors import UserError


@pytest.fixture(scope="module")
def vit():
    return random_model("vit")


@pytest.fixture(scope="module")
def vit_folder(vit, tmp_path_factory):
    return save(vit, tmp_path_factory.mktemp("vit"))


def reference(family: str, model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The representation as the article words it, from the model's own last hidden state."""
    with torch.no_grad():
        hidden = model(pixel_values=x).last_hidden_state
        if family == "vit":
            return torch.tanh(hidden[:, 0] @ model.pooler.dense.weight.T + model.pooler.dense.bias)
        if family == "dinov2":
            return hidden[:, 0]
        return hidden.mean((2, 3))


@pytest.mark.parametrize("family", CONFIGS)
def test_representation_of_each_family(family, tmp_path):
    model = random_model(family)
    encoder = models.load_encoder(save(model, tmp_path / "model"), FLOAT32)
    expected = reference(family, model, encoder.identity.transform(images()))
    features = encoder.encode(images())
    assert features.dtype == torch.float32
    assert features.shape == (5, encoder.dim) == (5, {"vit": 32, "dinov2": 32, "resnet": 32, "bit": 64}[family])
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", CONFIGS)
def test_bfloat16_follows_float32_and_the_batch_does_not_matter(family, tmp_path):
    spec = save(random_model(family), tmp_path / "model")
    exact, low = models.load_encoder(spec, FLOAT32), models.load_encoder(spec, BFLOAT16)
    whole = exact.encode(images())
    one_by_one = torch.cat([exact.encode([image]) for image in images()])
    torch.testing.assert_close(one_by_one, whole, rtol=1e-4, atol=1e-5)
    assert low.choice.dtype == (torch.float32 if family == "bit" else torch.bfloat16)
    assert torch.nn.functional.cosine_similarity(low.encode(images()), whole).min() > 0.9995
    assert low.at(torch.float32).encode(images()).equal(whole)
    assert whole.untyped_storage().nbytes() == whole.numel() * 4  # not a view of every token
    assert exact.encode([]).shape == (0, exact.dim)


@pytest.mark.parametrize("family", ["vit", "dinov2"])
def test_layout_from_before_version_5(family, tmp_path):
    model = random_model(family)
    old = old_layout(model.state_dict())
    assert any("encoder.layer.0.attention.attention.query" in name for name in old)
    new = models.load_encoder(save(model, tmp_path / "new"), FLOAT32).encode(images())
    assert models.load_encoder(save(model, tmp_path / "old", state=old), FLOAT32).encode(images()).equal(new)


def test_bin_and_shards_give_the_same(vit, vit_folder, tmp_path):
    expected = models.load_encoder(vit_folder, FLOAT32).encode(images())
    pickled = Path(save(vit, tmp_path / "bin"))
    (pickled / "model.safetensors").unlink()
    torch.save(vit.state_dict(), pickled / "pytorch_model.bin")
    assert models.load_encoder(str(pickled), FLOAT32).encode(images()).equal(expected)

    sharded = Path(save(vit, tmp_path / "shards"))
    (sharded / "model.safetensors").unlink()
    names = sorted(vit.state_dict())
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, keys in parts.items():
        save_file({key: vit.state_dict()[key].contiguous() for key in keys}, sharded / file)
    index = {"metadata": {}, "weight_map": {key: file for file, keys in parts.items() for key in keys}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    encoder = models.load_encoder(str(sharded), FLOAT32)
    assert encoder.encode(images()).equal(expected)
    assert len(encoder.weights_sha256) == 64
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors, which is not in"):
        models.describe(str(sharded))


def test_stored_precision_is_not_the_computed_one(vit, tmp_path):
    half = {name: value.half() for name, value in vit.state_dict().items()}
    encoder = models.load_encoder(save(vit, tmp_path / "half", state=half), FLOAT32)
    assert {p.dtype for p in encoder.module.parameters()} == {torch.float32}
    rounded = random_model("vit")
    rounded.load_state_dict({name: value.float() for name, value in half.items()})
    expected = reference("vit", rounded, encoder.identity.transform(images()))
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lacking", ["pooler.dense.weight", "layers.1.mlp.fc2.bias", "embeddings.cls_token"])
def test_partial_checkpoint_is_refused_by_name(vit, tmp_path, lacking):
    state = {name: value for name, value in vit.state_dict().items() if name != lacking}
    with pytest.raises(UserError, match=f"has no {lacking}, which would be random numbers"):
        models.load_encoder(save(vit, tmp_path / "partial", state=state), FLOAT32)


def test_fine_tuned_vit_has_no_pooler_and_says_so(tmp_path):
    spec = save(random_model("vit", head=7), tmp_path / "tuned")
    with pytest.raises(UserError, match=r"pooler\.dense.*use a checkpoint that kept it"):
        models.load_encoder(spec, FLOAT32)


def test_a_head_that_is_not_used_is_ignored(tmp_path):
    model = random_model("resnet", head=7)
    encoder = models.load_encoder(save(model, tmp_path / "tuned"), FLOAT32)
    expected = reference("resnet", model.resnet, encoder.identity.transform(images()))
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-4, atol=1e-5)


class _Shout:
    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


def test_a_pickle_with_code_is_not_run(vit, tmp_path):
    folder = Path(save(vit, tmp_path / "evil"))
    (folder / "model.safetensors").unlink()
    bomb = _Shout()
    bomb.path = str(tmp_path / "it ran")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"embeddings.cls_token": bomb}))
    with pytest.raises(UserError, match="cannot be read"):
        models.load_encoder(str(folder), FLOAT32)
    assert not (tmp_path / "it ran").exists()


def spoil(folder: Path, what: str) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if what == "torn weights":
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    elif what == "no weights":
        (folder / "model.safetensors").unlink()
    elif what == "torn config":
        (folder / "config.json").write_text('{"model_type": "vit",', encoding="utf-8")
    elif what == "other architecture":
        (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}), encoding="utf-8")
    elif what == "other size":
        (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 48}), encoding="utf-8")
    elif what == "no processor":
        (folder / "preprocessor_config.json").unlink()
    elif what == "no mean":
        (folder / "preprocessor_config.json").write_text(json.dumps({"image_std": [1, 1, 1]}), encoding="utf-8")
    elif what == "lanczos":
        (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, "resample": 1}), encoding="utf-8")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("torn weights", "cannot be read"),
        ("no weights", "no weights in .*expected model.safetensors"),
        ("torn config", "config.json: damaged settings file"),
        ("other architecture", "model_type 'bert'; expected one of vit, bit, resnet, dinov2, "),
        ("other size", r"cls_token is \[1, 1, 32\] in the checkpoint, expected \[1, 1, 48\]"),
        ("no processor", "preprocessor_config.json: no such settings file"),
        ("no mean", "has no image_mean"),
        ("lanczos", "interpolation 'lanczos'"),
    ],
)
def test_a_spoilt_folder_is_one_clear_line(vit, tmp_path, what, words):
    folder = Path(save(vit, tmp_path / "model"))
    spoil(folder, what)
    with pytest.raises(UserError, match=words) as error:
        models.load_encoder(str(folder), FLOAT32)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("family", "settings", "words"),
    [
        ("vit", {"model_type": 7}, "model_type 7; expected one of"),
        ("vit", {"model_type": ["vit"]}, r"model_type \['vit'\]; expected one of"),
        ("vit", {"model_type": None}, "model_type None"),
        ("vit", {"model_type": "bert", "architecture": 5}, "or a timm:<name>"),
        ("resnet", {"hidden_sizes": "big"}, "hidden_sizes: expected list"),
        ("resnet", {"hidden_sizes": []}, "hidden_sizes: expected list of length >= 1"),
        ("resnet", {"hidden_sizes": [16, "a"]}, "hidden_sizes/1: expected int"),
        ("resnet", {"hidden_sizes": [16, 0]}, "hidden_sizes/1: expected int >= 1"),
        ("resnet", {"depths": [1, 10_000_000]}, "depths/1: expected int <= 1000"),
        ("resnet", {"depths": [1]}, "describes no network|no place for"),
        ("vit", {"num_hidden_layers": 0}, "num_hidden_layers: expected int >= 1"),
        ("vit", {"num_hidden_layers": -1}, "num_hidden_layers: expected int >= 1"),
        ("vit", {"num_hidden_layers": 10_000_000}, "num_hidden_layers: expected int <= 1000"),
        ("vit", {"num_hidden_layers": 2.5}, "num_hidden_layers: expected int"),
        ("vit", {"num_hidden_layers": 900}, "config.json has 900 layers, its checkpoint only"),
        ("vit", {"hidden_size": 65_536}, "config.json describes a network of [0-9,]+ numbers, the checkpoint has"),
        ("vit", {"hidden_size": 10**30}, "hidden_size: expected int"),
        ("vit", {"hidden_size": True}, "hidden_size: expected int"),
        ("vit", {"num_attention_heads": 0}, "num_attention_heads: expected int >= 1"),
        ("vit", {"num_attention_heads": 3}, "describes no network|in the checkpoint, expected"),
        ("vit", {"image_size": "64"}, "image_size is '64'; expected a whole number"),
        ("vit", {"image_size": [64]}, "image_size is"),
        ("vit", {"image_size": 0}, "image_size is 0"),
        ("vit", {"patch_size": -1}, "patch_size is -1"),
        ("vit", {"patch_size": {"a": 1}}, "patch_size is"),
        ("vit", {"image_size": 16_384, "patch_size": 1}, "config.json describes a network of"),
        ("vit", {"hidden_act": "no such"}, "describes no network"),
        ("vit", {"layer_norm_eps": "small"}, "layer_norm_eps: expected float"),
        ("dinov2", {"mlp_ratio": 1e9}, "mlp_ratio: expected float"),
        ("vit", {"id2label": ["a", "b"]}, "id2label: expected object"),
        ("vit", {"id2label": {"0": 5}}, "id2label"),
        ("vit", {"num_labels": "many"}, "num_labels: expected int"),
        ("vit", {"auto_map": {"AutoModel": "modeling.Mine"}}, "Python code of its own .auto_map., which is never run"),
        ("resnet", {"auto_map": {"AutoConfig": "c.C"}}, "auto_map"),
        ("vit", {"quantization_config": {"bits": 4}}, "quantised weights .quantization_config. are not read"),
        ("bit", {"num_groups": 7}, "describes no network"),
    ],
)
def test_settings_out_of_sense_are_one_clear_line(tmp_path, family, settings, words):
    folder = Path(save(random_model(family), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **settings}), encoding="utf-8")
    start = time.monotonic()
    with pytest.raises(UserError, match=words) as error:
        models.load_encoder(str(folder), FLOAT32)
    assert "\n" not in str(error.value) and time.monotonic() - start < 30


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "[]", "7", '"vit"', "{", "", "NaN", '{"a": Infinity}']
)
@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json"])
def test_settings_that_are_no_object(vit, tmp_path, text, name):
    folder = Path(save(vit, tmp_path / "model"))
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=name) as error:
        models.describe(str(folder))
    assert "\n" not in str(error.value)


def test_identity_follows_weights_and_settings(vit, tmp_path):
    first = models.describe(save(vit, tmp_path / "a"))
    assert models.describe(save(vit, tmp_path / "a")).weights_sha256 == first.weights_sha256
    other = models.describe(save(random_model("vit", seed=1), tmp_path / "a"))
    assert other.weights_sha256 != first.weights_sha256
    assert other.revision == first.revision
    config = json.loads((tmp_path / "a" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "a" / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}), encoding="utf-8")
    assert models.describe(str(tmp_path / "a")).revision != first.revision


def test_describing_loads_neither_torch_nor_transformers(vit_folder):
    code = f"""
import sys
from shared import models
models.describe({vit_folder!r})
models.describe("wheel:vit-s14-saliency")
models.describe("wheel:efficientnet-lite0", head=True)
print(sorted({{"torch", "transformers", "timm"}} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert result.stdout.strip() == "[]"


def recipe(folder: str, settings: dict) -> str:
    (Path(folder) / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3, **settings}), encoding="utf-8"
    )
    from shared import specs
    from shared.models import hf

    return hf.describe(specs.parse(folder), transform="own", head=False).preprocessing


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [
        ("vit", {"size": 64, "resample": 2}, "squash to 64x64, bilinear"),
        ("vit", {"size": {"height": 64, "width": 64}}, "squash to 64x64, bilinear"),
        (
            "resnet",
            {"size": 224, "crop_pct": 0.875, "resample": 3},
            "shortest side to 256, centre crop 224x224, bicubic",
        ),
        ("resnet", {"size": {"shortest_edge": 224}}, "shortest side to 256, centre crop 224x224, bicubic"),
        ("resnet", {"size": {"shortest_edge": 384}}, "squash to 384x384, bicubic"),
        (
            "dinov2",
            {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True},
            "shortest side to 256, centre crop 224x224, bicubic",
        ),
        ("bit", {"size": 480, "crop_size": 448, "resample": 2}, "shortest side to 480, centre crop 448x448, bilinear"),
    ],
)
def test_published_recipes_in_their_spellings(tmp_path, family, settings, expected):
    folder = save(random_model(family), tmp_path / "model")
    assert recipe(folder, settings).startswith(expected)


def test_recipe_that_the_position_embeddings_forbid(tmp_path, vit):
    folder = save(vit, tmp_path / "model")
    with pytest.raises(UserError, match="position embeddings are for"):
        recipe(folder, {"size": 96})
    with pytest.raises(UserError, match="no fixed image size"):
        recipe(folder, {"size": {"shortest_edge": 256}, "do_center_crop": False})


@pytest.mark.parametrize("family", ["vit", "resnet", "bit"])
def test_classifier_gives_its_models_logits(family, tmp_path):
    from shared.models import labels

    model = random_model(family, head=1000)
    wnids, names = labels.imagenet()
    model.config.id2label = dict(enumerate(names))
    classifier = models.load_classifier(save(model, tmp_path / "model"), FLOAT32, transform="squash")
    with torch.no_grad():
        expected = model(pixel_values=classifier.identity.transform(images())).logits
    torch.testing.assert_close(classifier.encode(images()), expected, rtol=1e-4, atol=1e-4)
    assert classifier.label_wnids == wnids
    assert classifier.dim == 1000


def test_three_transforms_of_a_classifier(tmp_path):
    from shared.models import labels

    model = random_model("resnet", head=1000)
    model.config.id2label = dict(enumerate(labels.imagenet()[1]))
    spec = save(model, tmp_path / "model", processor={**PROCESSOR, "size": 224, "crop_pct": 0.8})
    found = [models.describe(spec, head=True, transform=kind).preprocessing for kind in ("squash", "crop", "own")]
    assert [text.split(", bilinear")[0] for text in found] == [
        "squash to 224x224",
        "shortest side to 256, centre crop 224x224",
        "shortest side to 280, centre crop 224x224",
    ]
    with pytest.raises(UserError, match="transform 'stretch': expected one of squash, crop, own"):
        models.describe(spec, head=True, transform="stretch")


@pytest.mark.parametrize("classes", [10, 21_843])
def test_other_heads_keep_their_own_labels(tmp_path, classes):
    model = random_model("resnet", head=classes)
    model.config.id2label = {i: f"kind {i}" for i in range(classes)}
    classifier = models.load_classifier(save(model, tmp_path / "model"), FLOAT32)
    assert classifier.label_wnids == () and classifier.label_names[:2] == ("kind 0", "kind 1")
    assert classifier.encode(images()).shape == (5, classes)


def test_compiled_encoder_fills_up_a_short_batch(vit_folder, monkeypatch):
    """The compiler is replaced: what counts here is that it sees one shape and that the answers stay right."""
    from shared.models import fast

    shapes = []

    def observed(module):
        def run(x):
            shapes.append(len(x))
            return module(x)

        return run

    monkeypatch.setattr(fast, "compiled", observed)
    encoder = models.load_encoder(vit_folder, FLOAT32, compile=True)
    plain = models.load_encoder(vit_folder, FLOAT32).encode(images())
    features = torch.cat([encoder.encode(images()[:3]), encoder.encode(images()[3:])])
    assert shapes == [3, 3]
    torch.testing.assert_close(features, plain, rtol=1e-4, atol=1e-5)


def test_float32_is_not_rounded_to_tf32_on_gpus(vit_folder):
    """Seen from inside the forward pass: cuDNN stays on, without its TF32; and is as before afterwards."""
    encoder = models.load_encoder(vit_folder, FLOAT32)
    seen = []
    cudnn = torch.backends.cudnn
    encoder.module.register_forward_hook(lambda *_: seen.append((cudnn.enabled, cudnn.allow_tf32)))
    before = (cudnn.enabled, cudnn.allow_tf32)
    encoder.encode(images())
    assert seen == [(True, False)]
    assert (cudnn.enabled, cudnn.allow_tf32) == before


def test_numpy_and_tensor_batches_agree(vit_folder):
    encoder = models.load_encoder(vit_folder, FLOAT32)
    stack = np.stack(images()[::2])
    assert encoder.encode(torch.from_numpy(stack).permute(0, 3, 1, 2)).equal(encoder.encode(list(stack)))


@pytest.mark.parametrize(
    ("family", "said", "told"),
    [
        ("vit", ["ViTForMaskedImageModeling"], "a ViTForMaskedImageModeling; it is computed as a ViTModel"),
        ("vit", ["MyViT", "ViTModel"], "a MyViT; it is computed as a ViTModel"),
        ("dinov2", ["Dinov2Backbone"], "a Dinov2Backbone; it is computed as a Dinov2Model"),
        ("resnet", ["RegNetModel"], "a RegNetModel; it is computed as a ResNetModel"),
        ("vit", ["ViTForImageClassification"], ""),
        ("bit", [], ""),
    ],
)
def test_another_class_in_the_settings_is_told(tmp_path, family, said, told):
    folder = Path(save(random_model(family), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"architectures": said}), encoding="utf-8")
    notes = [note for note in models.describe(str(folder)).notes if "it is computed as" in note]
    assert notes == ([f"config.json says that it is {told}"] if told else [])
