"""The two networks: exact sizes and costs, and weights that are a function of the seed."""

from __future__ import annotations

import pytest
import torch

from papers.vit.part4 import networks as models
from papers.vit.part4.runs import NAMES
from shared.errors import UserError


def test_parameters_and_multiply_adds_in_both_conventions() -> None:
    # by hand: 64 patches x 48 x 128; 6 layers of 65 tokens x (4 x 128^2 + 2 x 128 x 512); a head of 128 x 10
    weights = 64 * 48 * 128 + 6 * 65 * (4 * 128**2 + 2 * 128 * 512) + 128 * 10
    vit, resnet = models.cost("ViT"), models.cost("ResNet")
    assert vit == models.Cost(1_205_898, weights=weights, attention=6 * 2 * 65 * 65 * 128)
    assert vit.total == 83_561_216 and vit.printed == ("1.21M", "77M")
    assert resnet == models.Cost(1_575_202, weights=78_522_240, attention=0)


@pytest.mark.parametrize("name", NAMES)
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (models.build(name, image_size=8, seed=s).state_dict() for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(("name", "size", "classes"), [("ViT", 8, 3), ("ViT", 20, 10), ("ResNet", 8, 3)])
def test_any_image_size_and_class_count(name: str, size: int, classes: int) -> None:
    model = models.build(name, classes=classes, image_size=size).eval()
    assert model(torch.zeros(2, 3, size, size)).shape == (2, classes)


def test_attention_code_changes_only_rounding() -> None:
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    eager, fused = (models.build("ViT", image_size=8, attention=code).eval()(x) for code in ("eager", "sdpa"))
    torch.testing.assert_close(eager, fused, atol=1e-6, rtol=1e-5)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="'VGG' is unknown; choose from ViT, ResNet"):
        models.build("VGG")
    for size in (4, 30):
        with pytest.raises(UserError, match=f"image size {size} must be a multiple of the 4-pixel patch"):
            models.build("ResNet", image_size=size)
