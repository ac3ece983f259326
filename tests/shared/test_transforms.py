from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from shared import transforms
from shared.errors import UserError
from shared.transforms import Transform

HALF = (0.5, 0.5, 0.5)
PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    """An image with edges and gradients rather than noise."""
    small = np.random.default_rng(seed).integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(32, 32), (160, 213), (375, 500)])
def test_squash_is_pillows_to_a_grey_level(size, interpolation):
    image = smooth(*size)
    ours = Transform((224, 224), interpolation, HALF, HALF).resize([image])[0].permute(1, 2, 0).numpy().astype(int)
    theirs = np.asarray(Image.fromarray(image).resize((224, 224), PILLOW[interpolation])).astype(int)
    assert np.abs(ours - theirs).max() <= 2
    assert (ours != theirs).mean() < 0.01


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(32, 32), (100, 333)])
def test_route_for_other_devices_gives_the_same_image(size, interpolation):
    x = torch.from_numpy(smooth(*size).copy()).permute(2, 0, 1)[None]
    ours = Transform((224, 224), interpolation, HALF, HALF).resize(x).int()
    other = transforms._resize_in_float32(x, (224, 224), interpolation).int()
    assert (ours - other).abs().max() <= 2
    assert (ours != other).float().mean() < 0.01


@pytest.mark.parametrize("size", [(60, 81), (81, 60), (64, 64)])
def test_crop_is_torchvisions(size):
    from torchvision.transforms import v2

    # of a Pillow image: torchvision's own kernel for tensors is another one on a processor without AVX2
    image = smooth(*size)
    theirs = v2.Compose([v2.Resize(48, antialias=True), v2.CenterCrop(40)])(Image.fromarray(image))
    ours = Transform((40, 40), "bilinear", HALF, HALF, shortest=48).resize([image])[0].permute(1, 2, 0)
    difference = np.abs(ours.numpy().astype(int) - np.asarray(theirs).astype(int))
    assert difference.max() <= 1  # a crop that is one pixel off differs by dozens of grey levels


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_grey_levels_are_the_same_on_every_processor(interpolation):
    """The features' cache and the fingerprints rely on it: torch's uint8 kernels round as one, vectorised or not."""
    from shared.paths import ROOT

    code = (
        "import sys, hashlib, torch; from shared.transforms import Transform; "
        "x = torch.randint(0, 256, (2, 3, 57, 83), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)); "
        f"sizes = [(32, 32), (60, 61), (224, 224)]; half = (0.5,) * 3; "
        f"y = [Transform(size, '{interpolation}', half, half).resize(x) for size in sizes]; "
        "print(torch.backends.cpu.get_cpu_capability(), hashlib.sha256(torch.cat([a.flatten() for a in y]).numpy())"
        ".hexdigest())"
    )
    found = {}
    for capability in ("default", ""):
        own = {**os.environ, "ATEN_CPU_CAPABILITY": capability} if capability else os.environ
        done = subprocess.run([sys.executable, "-c", code], env=own, cwd=ROOT, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        kernels, digest = done.stdout.split()
        found[kernels] = digest
    assert len(set(found.values())) == 1, found


def test_mean_and_std():
    x = torch.tensor([0, 127, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    y = Transform((1, 1), "bilinear", (0.5, 127 / 255, 0.0), (0.5, 0.25, 2.0))(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.flatten(), torch.tensor([-1.0, 0.0, 0.5]))


def test_a_image_does_not_depend_on_its_batch():
    images = [smooth(40, 50, 1), smooth(33, 50, 2), smooth(40, 50, 3), smooth(224, 224, 4)]
    transform = Transform((224, 224), "bicubic", HALF, HALF)
    together = transform(images)
    alone = torch.cat([transform([image]) for image in images])
    assert torch.equal(together, alone)
    same = np.stack([images[0], images[2]])
    assert torch.equal(transform(torch.from_numpy(same).permute(0, 3, 1, 2)), together[[0, 2]])


def test_a_image_of_the_right_size_is_left_alone():
    image = smooth(64, 64)
    out = Transform((64, 64), "bicubic", HALF, HALF).resize([image])[0]
    assert np.array_equal(out.permute(1, 2, 0).numpy(), image)


def test_every_setting_stands_in_the_string():
    settings = [
        ((224, 224), "bilinear", HALF, HALF, None),
        ((224, 192), "bilinear", HALF, HALF, None),
        ((224, 224), "bicubic", HALF, HALF, None),
        ((224, 224), "bilinear", (0.485, 0.5, 0.5), HALF, None),
        ((224, 224), "bilinear", HALF, (0.5, 0.5, 0.229), None),
        ((224, 224), "bilinear", HALF, HALF, 256),
        ((224, 224), "bilinear", HALF, HALF, 257),
    ]
    assert len({str(Transform(*setting)) for setting in settings}) == len(settings)
    assert str(Transform((224, 224), "bicubic", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 256)) == (
        "shortest side to 256, centre crop 224x224, bicubic antialias, whole grey levels; "
        "(x/255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]"
    )


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([np.zeros((8, 8), np.uint8)], r"image 0: expected uint8 \[H, W, 3\]"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8, 3), np.float32)], "image 1"),
        (torch.zeros(2, 3, 8, 8), r"expected uint8 \[B, 3, H, W\]"),
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), r"\[2, 8, 8, 3\]"),
    ],
)
def test_other_images_are_refused(images, words):
    with pytest.raises(UserError, match=words):
        Transform((8, 8), "bilinear", HALF, HALF)(images)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (((8, 8), "lanczos", HALF, HALF), "lanczos"),
        (((8, 8), "bilinear", HALF, (0.5, 0.5, 0.0)), "above 0"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        Transform(*settings)


@pytest.mark.parametrize(
    ("size", "shortest", "squashed"), [((9, 9), 6, None), ((9, 12), None, (7, 15)), ((5, 5), 7, None)]
)
@pytest.mark.parametrize("shape", [(20, 33), (33, 20), (16, 16)])
def test_what_is_missing_of_a_crop_is_black_as_in_torchvision(size, shortest, squashed, shape):
    from torchvision.transforms.v2.functional import center_crop

    x = torch.randint(1, 256, (2, 3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ours = Transform(size, "bilinear", HALF, HALF, shortest, squashed)
    height, width = shape
    target = squashed or (
        (shortest, int(shortest * width / height)) if height <= width else (int(shortest * height / width), shortest)
    )
    resized = torch.nn.functional.interpolate(x, size=target, mode="bilinear", antialias=True)
    assert ours.resize(x).equal(center_crop(resized, list(size)))
