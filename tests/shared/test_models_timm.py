from __future__ import annotations

import json
from argparse import Namespace

import pytest
import timm
import torch
from checkpoints import BFLOAT16, FLOAT32, images
from safetensors.torch import save_file

from shared import models, specs
from shared.errors import UserError

SMALL = ["test_vit", "test_resnet", "test_efficientnet", "test_convnext"]


def saved(name: str, path, **changes) -> torch.nn.Module:
    """A random timm model with its weights in `path`."""
    torch.manual_seed(0)
    model = timm.create_model(name, **changes).eval()
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if "running_var" in key:
                tensor.uniform_(0.5, 2)
            elif "running_mean" in key:
                tensor.normal_()
    save_file(model.state_dict(), path)
    return model


@pytest.mark.parametrize("name", SMALL)
def test_pre_logits_are_timms(name, tmp_path):
    model = saved(name, tmp_path / "m.safetensors")
    encoder = models.load_encoder(f"timm:{name}@{tmp_path / 'm.safetensors'}", FLOAT32)
    with torch.no_grad():
        x = encoder.identity.transform(images())
        expected = model.forward_head(model.forward_features(x), pre_logits=True)
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-3, atol=1e-4)
    assert encoder.dim == expected.shape[1]
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in encoder.module.modules())


def test_checkpoint_with_another_head_and_torch_format(tmp_path):
    model = saved("test_resnet", tmp_path / "unused.safetensors", num_classes=7)
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "mine.pth")
    encoder = models.load_encoder(f"timm:test_resnet@{tmp_path / 'mine.pth'}", FLOAT32)
    with torch.no_grad():
        expected = model.forward_head(model.forward_features(encoder.identity.transform(images())), pre_logits=True)
    torch.testing.assert_close(encoder.encode(images()), expected, rtol=1e-3, atol=1e-4)


def test_missing_weight_is_named(tmp_path):
    model = saved("test_vit", tmp_path / "m.safetensors")
    state = {key: value for key, value in model.state_dict().items() if key != "blocks.1.mlp.fc1.weight"}
    save_file(state, tmp_path / "m.safetensors")
    with pytest.raises(UserError, match=r"has no blocks\.1\.mlp\.fc1\.weight, which would be random"):
        models.load_encoder(f"timm:test_vit@{tmp_path / 'm.safetensors'}", FLOAT32)


def test_checkpoint_of_another_architecture(tmp_path):
    saved("test_resnet", tmp_path / "m.safetensors")
    with pytest.raises(UserError, match=r"has no |cannot be read as"):
        models.load_encoder(f"timm:test_vit@{tmp_path / 'm.safetensors'}", FLOAT32)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("timm:vit_base_patch16_223", r"no model 'vit_base_patch16_223'; did you mean timm:vit_base_patch16_224"),
        ("timm:resnet50.no_such_tag", "no model 'resnet50.no_such_tag'"),
        ("timm:", "nothing after the colon"),
        ("timm:resnet50@/no/such/file.pth", "no file /no/such/file.pth"),
    ],
)
def test_names_that_are_none(spec, words):
    with pytest.raises(UserError, match=words):
        models.describe(spec)


def test_classifier_and_its_recipe(tmp_path):
    model = saved("test_efficientnet", tmp_path / "m.safetensors")
    classifier = models.load_classifier(f"timm:test_efficientnet@{tmp_path / 'm.safetensors'}", FLOAT32)
    with torch.no_grad():
        expected = model(classifier.identity.transform(images()))
    torch.testing.assert_close(classifier.encode(images()), expected, rtol=1e-3, atol=1e-3)
    assert classifier.label_names[0] == "tench, Tinca tinca"
    config = model.pretrained_cfg
    shortest = int(config["input_size"][1] / config["crop_pct"])
    assert classifier.preprocessing.startswith(f"shortest side to {shortest}, centre crop 160x160")


def tags() -> list[str]:
    """Every tag of timm's with ImageNet-1k's classes; no weights are needed."""
    return [t for t in timm.list_pretrained() if timm.models.get_pretrained_cfg(t).num_classes == 1000]


def test_own_is_timms_validation_recipe_for_every_tag():
    from timm.data import resolve_data_config

    from shared.models import timm as module

    larger = 0
    for tag in tags():
        settings = timm.models.get_pretrained_cfg(tag)
        theirs = resolve_data_config(pretrained_cfg=settings.to_dict(), use_test_size=True)
        ours = module._transform(specs.parse(f"timm:{tag}"), settings, "own")
        size, pct = theirs["input_size"][1:], theirs["crop_pct"]
        scaled = tuple(int(side / pct) for side in size)
        assert (ours.size, ours.interpolation) == (size, theirs["interpolation"]), tag
        assert (ours.mean, ours.std) == (tuple(theirs["mean"]), tuple(theirs["std"])), tag
        if theirs["crop_mode"] == "squash":
            assert (ours.squashed or ours.size, ours.shortest) == (scaled, None), tag
        else:
            assert (ours.shortest, ours.squashed) == (scaled[0], None), tag
        larger += size != tuple(settings.input_size[1:])
    assert larger > 250 and len(tags()) > 1300


@pytest.mark.parametrize(
    "tag",
    [
        "resnet50.a1_in1k",
        "dm_nfnet_f0.dm_in1k",
        "vit_base_patch32_clip_384.openai_ft_in12k_in1k",
        "volo_d4_448.sail_in1k",
    ],
)
def test_own_gives_timms_pixels(tag):
    """To two grey levels: Pillow and torch round the weights of their kernels differently, and twice."""
    from PIL import Image
    from timm.data import create_transform, resolve_data_config

    from shared.models import timm as module

    settings = timm.models.get_pretrained_cfg(tag)
    recipe = resolve_data_config(pretrained_cfg=settings.to_dict(), use_test_size=True)
    theirs = create_transform(**recipe, is_training=False)
    ours = module._transform(specs.parse(f"timm:{tag}"), settings, "own")
    for image in images():
        a, b = ours([image])[0], theirs(Image.fromarray(image))
        assert a.shape == b.shape
        assert (a - b).abs().max() * 255 * max(recipe["std"]) < 2.5


def test_a_21k_head_is_refused():
    with pytest.raises(UserError, match="has 21,843 classes"):
        models.describe("timm:vit_tiny_patch16_224.augreg_in21k", head=True)


@pytest.mark.parametrize("name", [*SMALL, "test_byobnet"])
@pytest.mark.parametrize("named", [True, False])
def test_a_head_of_ones_own_is_an_encoder_and_a_classifier(name, named, tmp_path):
    model = saved(name, tmp_path / "unused.safetensors", num_classes=3)
    torch.save({"state_dict": model.state_dict()}, tmp_path / "mine.pth")
    spec, x = f"timm:{name}@{tmp_path / 'mine.pth'}", images()
    if named:
        settings = {"architecture": name, "num_classes": 3, "label_names": ["pug", "boxer", "beagle"]}
        (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    encoder, classifier = (load(spec, FLOAT32) for load in (models.load_encoder, models.load_classifier))
    with torch.no_grad():
        y = model.forward_head(model.forward_features(encoder.identity.transform(x)), pre_logits=True)
        logits = model(classifier.identity.transform(x))
    torch.testing.assert_close(encoder.encode(x), y, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(classifier.encode(x), logits, rtol=1e-3, atol=1e-3)
    assert classifier.label_names == (("pug", "boxer", "beagle") if named else ("LABEL_0", "LABEL_1", "LABEL_2"))
    told = " ".join(classifier.identity.notes)
    assert ("are named by label_names in the config.json" if named else "its 3 columns have no names") in told


def test_what_a_checkpoint_says_that_it_is(tmp_path):
    """Two of timm's EfficientNets have one set of weights and pad differently: nothing else can tell them apart."""
    model = saved("test_efficientnet", tmp_path / "m.safetensors")
    spec = f"timm:test_efficientnet@{tmp_path}"
    for number, said in enumerate(({"arch": "tf_efficientnet"}, {"args": Namespace(model="tf_efficientnet.a1")})):
        torch.save({"state_dict": model.state_dict(), **said}, tmp_path / f"{number}.pth")
        (note,) = [n for n in models.describe(f"{spec}/{number}.pth").notes if "computed as" in n]
        assert "says that it is a tf_efficientnet" in note and note.endswith("it is computed as a test_efficientnet")
    assert not models.describe(f"{spec}/m.safetensors").notes
    (tmp_path / "config.json").write_text('{"architecture": "tf_efficientnet"}', encoding="utf-8")
    assert "says that it is a tf_efficientnet;" in models.describe(f"{spec}/m.safetensors").notes[0]
    (tmp_path / "config.json").write_text("// some other program's", encoding="utf-8")
    assert not models.describe(f"{spec}/m.safetensors").notes


def test_depthwise_networks_run_in_float32_and_say_why(tmp_path):
    saved("test_efficientnet", tmp_path / "m.safetensors")
    encoder = models.load_encoder(f"timm:test_efficientnet@{tmp_path / 'm.safetensors'}", BFLOAT16)
    assert encoder.choice.dtype == torch.float32
    assert encoder.choice.reason.startswith("test; float32 for timm:test_efficientnet")
    saved("test_resnet", tmp_path / "r.safetensors")
    plain = models.describe(f"timm:test_resnet@{tmp_path / 'r.safetensors'}")
    assert models.computed_in(plain, BFLOAT16) is BFLOAT16


def test_the_recipe_beside_a_file_counts_and_is_told(tmp_path):
    saved("test_resnet", tmp_path / "m.safetensors")
    spec = f"timm:test_resnet@{tmp_path / 'm.safetensors'}"
    plain = models.describe(spec, head=True, transform="own")
    assert plain.transform_from == "image sizes, mean and std are timm's for test_resnet.r160_in1k"
    recipe = {"mean": [0.5, 0.4, 0.3], "std": [0.25] * 3, "input_size": [3, 96, 96], "crop_pct": 1.0, "tag": "mine"}
    settings = {"architecture": "test_resnet", "pretrained_cfg": recipe}
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    mine = models.describe(spec, head=True, transform="own")
    assert (mine.transform.mean, mine.transform.std) == ((0.5, 0.4, 0.3), (0.25,) * 3) != plain.transform.mean
    assert mine.transform.size == (96, 96)
    assert "keys read of the config.json beside it: input_size, crop_pct, mean, std; the rest" in mine.transform_from
    for key, value in (("std", [0, 1, 1]), ("mean", "grey"), ("input_size", [3, 10**9, 5]), ("crop_pct", -1)):
        settings["pretrained_cfg"] = {key: value}
        (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
        with pytest.raises(UserError, match=rf"config\.json: pretrained_cfg: {key}"):
            models.describe(spec)
