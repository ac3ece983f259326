"""Every key of a preprocessor_config.json: transformers' own features to cosine 0.9999, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from checkpoints import CONFIGS, FLOAT32, images, random_model, save
from transformers.processing_utils import ImagesKwargs

from shared import models
from shared.errors import UserError
from shared.models import processors
from shared.models.processors import PROCESSORS

OWN_CLASS = {"vit": "ViTImageProcessor", "bit": "BitImageProcessor", "dinov2": "BitImageProcessor"}
OWN_CLASS["resnet"] = "ConvNextImageProcessor"
# For each key values that change something; the sizes are those that the tiny networks take.
VALUES = {
    "do_convert_rgb": [True],
    "do_resize": [False],
    "size": [64, {"height": 64, "width": 64}, {"shortest_edge": 72}, {"longest_edge": 64}, [64, 64], {"max_height": 9}],
    "default_to_square": [True, False],
    "crop_size": [56, {"height": 56, "width": 70}],
    "resample": [0, 1, 2, 3, 4, 5],
    "do_rescale": [False],
    "rescale_factor": [1 / 127.5, 1 / 256],
    "do_normalize": [False],
    "image_mean": [0.4, [0.1, 0.2, 0.3]],
    "image_std": [0.4, [0.1, 0.2, 0.3]],
    "do_pad": [True],
    "pad_size": [{"height": 96, "width": 96}],
    "do_center_crop": [True, False],
    "data_format": ["channels_first"],
    "input_data_format": ["channels_last"],
    "device": ["cpu"],
    "return_tensors": ["pt"],
    "disable_grouping": [True],
    "image_seq_length": [7],
    "crop_pct": [0.8, 0.95],
    "do_flip_channel_order": [True],
    "rescale_offset": [True],
    "include_top": [True],
    "do_reduce_labels": [True],
    "patch_size": [8],
    "max_num_patches": [16],
}
CASES = [(key, value) for key, values in VALUES.items() for value in values]


def test_every_key_of_transformers_is_tried():
    keys = set(ImagesKwargs.__annotations__) | {"crop_pct"}
    for name in PROCESSORS:
        keys |= set(getattr(transformers, f"{name}ImageProcessor").valid_kwargs.__annotations__)
    assert keys == set(VALUES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny network of each family; its position embeddings fit every size that is tried, but for ViT's."""
    return {family: save(random_model(family), tmp_path_factory.mktemp(family)) for family in CONFIGS}


def setting(family: str, key: str, value: object) -> dict:
    base = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2], "image_processor_type": OWN_CLASS[family]}
    base["size"] = 64 if family in ("vit", "resnet") else {"shortest_edge": 72}
    if family in ("bit", "dinov2"):
        base |= {"crop_size": {"height": 70, "width": 70}}
    if key == "pad_size":
        base |= {"do_pad": True}
    return base | {key: value}


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize(("key", "value"), CASES)
def test_each_key_is_honoured_or_refused_by_name(folders, family, key, value):
    folder, settings = Path(folders[family]), setting(family, key, value)
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    try:
        transform = models.describe(str(folder), transform="own").transform
    except UserError as error:
        words = {"resample": "interpolation", "default_to_square": "size"}.get(key, key)
        assert words in str(error) or (family == "vit" and "position embeddings are for" in str(error)), error
        refused = {"size", "default_to_square", "resample", "do_resize", "pad_size", "crop_size", "do_center_crop"}
        refused |= set(processors.OF_ONE_CLASS)
        assert key in refused
        return
    theirs = getattr(transformers, OWN_CLASS[family]).from_pretrained(folder)
    some = images()
    with torch.no_grad():
        network = getattr(transformers, type(random_model(family)).__name__).from_pretrained(folder).eval()
        x = torch.cat(
            [theirs(image, return_tensors="pt", input_data_format="channels_last").pixel_values for image in some]
        )
        mine = transform(some)
        assert mine.shape == x.shape
        a, b = (network(pixel_values=y).pooler_output.flatten(1) for y in (mine, x))
    assert torch.nn.functional.cosine_similarity(a, b).min() > 0.9999


@pytest.mark.parametrize("squash", ["squash", "crop"])
def test_the_scale_of_the_pixels_holds_for_every_transform(folders, squash):
    folder = Path(folders["resnet"])
    base = setting("resnet", "size", 224)

    def pixels(**more: object) -> torch.Tensor:
        (folder / "preprocessor_config.json").write_text(json.dumps(base | more), encoding="utf-8")
        return models.describe(str(folder), transform=squash).transform(images())

    grey = pixels(image_mean=[0, 0, 0], image_std=[1, 1, 1]) * 255
    mean, std = (torch.tensor(base[key]).view(3, 1, 1) for key in ("image_mean", "image_std"))
    torch.testing.assert_close(pixels(), (grey / 255 - mean) / std, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pixels(do_normalize=False), grey / 255, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pixels(do_rescale=False), (grey - mean) / std, atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(pixels(do_rescale=False, do_normalize=False), grey, atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(pixels(rescale_factor=1 / 127.5), (grey / 127.5 - mean) / std, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", PROCESSORS)
def test_defaults_are_transformers_own(name):
    theirs, ours = getattr(transformers, f"{name}ImageProcessor"), PROCESSORS[name]
    if not ours.free:
        sides = {"height": ours.size, "width": ours.size} if ours.square else {"shortest_edge": ours.size}
        assert dict(theirs.size) == sides
    assert int(theirs.resample) == ours.resample
    assert bool(getattr(theirs, "do_center_crop", None)) == (ours.crop is not None)
    if ours.crop:
        assert dict(theirs.crop_size) == {"height": ours.crop, "width": ours.crop}
    assert (getattr(theirs, "crop_pct", None) or ours.crop_pct) == ours.crop_pct
    assert bool(getattr(theirs, "do_flip_channel_order", False)) == ours.bgr
    assert bool(getattr(theirs, "include_top", False)) == ours.twice
    for flag in ("do_resize", "do_rescale"):
        assert getattr(theirs, flag) is True
    assert bool(theirs.do_normalize) == ours.normalise


SCALE = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2]}


@pytest.mark.parametrize("name", [name for name, processor in PROCESSORS.items() if not processor.free])
def test_pixels_are_those_of_transformers_class(name):
    """To two grey levels: resampling rounds once or twice, in another order or not at all."""
    sides = {"height": 48, "width": 48} if PROCESSORS[name].square else {"shortest_edge": 48}
    crop = {"crop_size": {"height": 40, "width": 40}} if PROCESSORS[name].crop else {}
    settings = {**SCALE, "size": sides, **crop}
    cases = [settings, {**settings, "resample": 0}, {**settings, "rescale_factor": 1 / 127.5}]
    if name == "EfficientNet":
        cases += [{**settings, "include_top": False}, {**settings, "rescale_offset": True, "rescale_factor": 1 / 127.5}]
    if name == "MobileViT":
        cases += [{**settings, "do_flip_channel_order": False}]
    if PROCESSORS[name].enlarged:
        cases += [{**settings, "size": {"height": 48, "width": 48}}, {**settings, "crop_pct": 0.7}]
    for case in cases:
        theirs = getattr(transformers, f"{name}ImageProcessor")(**case)
        ours = processors.transform_of(
            "own", "m", {**case, "image_processor_type": f"{name}ImageProcessor"}, "ViT", None
        )
        level = 1 / (255 * min(ours.std))
        for image in images(2):
            x = theirs(image, return_tensors="pt", input_data_format="channels_last").pixel_values
            assert (ours([image]) - x).abs().max() < 2.5 * level, case


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"do_flip_channel_order": True}, "unknown key 'do_flip_channel_order'"),
        ({"size_divisor": 32}, "unknown key 'size_divisor'"),
        ({"offset": True}, "unknown key 'offset'"),
        ({"auto_map": {"AutoImageProcessor": "mine.Processor"}}, "unknown key 'auto_map'"),
        (
            {"image_processor_type": "PerceiverImageProcessor"},
            "image_processor_type 'PerceiverImageProcessor' is not known",
        ),
        ({"image_processor_type": 7}, "image_processor_type: expected str"),
        ({"image_mean": "0.5"}, "image_mean is '0.5'; expected three numbers"),
        ({"image_mean": [0.5]}, r"image_mean is \[0.5\]; expected three numbers, for red, green and blue"),
        ({"image_mean": [0.5] * 4}, "image_mean is .*expected three numbers"),
        ({"image_mean": [0.5, "a", None]}, "image_mean is"),
        ({"image_std": [0.5, 0, 1]}, "image_std is .*above 0"),
        ({"resample": "bicubic"}, "resample: expected int"),
        ({"resample": True}, "resample: expected int"),
        ({"resample": 17}, "interpolation '17'"),
        ({"do_normalize": "no"}, "do_normalize: expected bool"),
        ({"rescale_factor": 0}, "rescale_factor 0"),
        ({"rescale_factor": -1.0}, "rescale_factor -1"),
        ({"size": "224"}, "size is '224'"),
        ({"size": 0}, "size is 0"),
        ({"size": -224}, "size is -224"),
        ({"size": True}, "size is True"),
        ({"size": 10_000_000}, "size is 10000000"),
        ({"size": {"height": "a", "width": 2}}, "size is"),
        ({"size": [1, 2, 3]}, "size is"),
        ({"size": None, "crop_pct": 0}, "crop_pct is 0"),
        ({"crop_pct": "a"}, "crop_pct: expected float"),
        ({"do_center_crop": True, "crop_size": 0}, "crop_size is 0"),
        ({"do_center_crop": True, "crop_size": 32}, "crop_size 32"),
    ],
)
def test_settings_of_a_wrong_kind_are_one_line(folders, settings, words):
    folder = Path(folders["resnet"])
    (folder / "preprocessor_config.json").write_text(
        json.dumps(setting("resnet", "size", 64) | settings), encoding="utf-8"
    )
    with pytest.raises(UserError, match=words) as error:
        models.describe(str(folder), transform="own")
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


def test_null_and_false_switch_nothing_on(folders):
    folder = Path(folders["vit"])
    base = setting("vit", "size", 64)
    (folder / "preprocessor_config.json").write_text(json.dumps(base), encoding="utf-8")
    plain = models.describe(str(folder), transform="own").preprocessing
    nothing = {"crop_size": None, "do_reduce_labels": False, "do_center_crop": None, "unheard_of": None}
    (folder / "preprocessor_config.json").write_text(json.dumps(base | nothing), encoding="utf-8")
    assert models.describe(str(folder), transform="own").preprocessing == plain
    assert models.load_encoder(str(folder), FLOAT32).encode(images()).shape == (5, 32)


def test_which_keys_were_read_is_told():
    file = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": 224, "do_convert_rgb": True, "resample": None}
    words = "image_mean, image_std; for `own` also size; without effect here: do_convert_rgb"
    assert processors.keys_read(file) == f"keys read of preprocessor_config.json: {words}"
    assert processors.keys_read({}) == "keys read of preprocessor_config.json: none"
