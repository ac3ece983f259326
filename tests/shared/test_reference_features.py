"""Features that users have in their caches stay right: small recorded features of every path, of seeded models.

Where a path's features move, its number in `features.FEATURES_VERSION` has to be raised, so that cached ones are
computed again; then `python tests/shared/test_reference_features.py` records the new ones.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from checkpoints import CONFIGS, FLOAT32, random_model, save
from safetensors.torch import save_file

from shared import models
from shared.data import ImageSet
from shared.features import FEATURES_VERSION, extract
from shared.sources import ArrayRows, Source
from shared.transforms import Transform

RECORDED = Path(__file__).with_name("reference_features.json")
TIMM = ("test_vit", "test_resnet", "test_efficientnet")
PATHS = [f"hf {family}" for family in CONFIGS] + [f"timm {name}" for name in TIMM] + ["torchvision squeezenet1_1"]
TRANSFORMS = ["transform squash bilinear", "transform squash bicubic", "transform crop bicubic"]
# Other processors add in another order: 1e-5 of the largest number after a few layers. A wrong step is off by far more.
TOLERANCE = 1e-3
# torch's kernel for whole grey levels and its float32 kernel differ by one level where a value lies between two.
GREY_LEVEL = 1.01


def seeded(model: torch.nn.Module) -> torch.nn.Module:
    """Weights from numpy's generator, whose numbers are the same on every processor."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(tensor.shape))
                if tensor.ndim > 1:  # as large as keeps an image's differences from layer to layer
                    values = noise * (2 / tensor[0].numel()) ** 0.5
                else:
                    values = 1 + 0.1 * abs(noise) if name.endswith(("var", "weight")) else 0.1 * noise
                tensor.copy_(torch.from_numpy(values))
    return model


def image_set(size: tuple[int, int], count: int = 3) -> ImageSet:
    pixels = np.random.default_rng(1).integers(0, 256, (count, *size, 3), np.uint8)
    names = [f"{i}" for i in range(count)]
    return ImageSet(
        "noise", Source("train", "noise", ArrayRows(pixels, names), np.arange(count) % 2, names, names, names)
    )


def measure(path: str, folder: Path) -> np.ndarray:
    """float32 [3, at most 8]: features of images that have the model's size already, or a transform's grey levels."""
    kind, _, name = path.partition(" ")
    if kind == "transform":
        way, _, interpolation = name.partition(" ")
        transform = Transform((12, 16), interpolation, (0.5,) * 3, (0.5,) * 3, 20 if way == "crop" else None)
        resized = transform.resize(image_set((31, 40)).batch(slice(None)))
        return resized[:, 0, 3, :8].float().numpy()
    if kind == "hf":
        spec = save(seeded(random_model(name)), folder)
    else:
        folder.mkdir(exist_ok=True)
        model = timm.create_model(name) if kind == "timm" else torchvision.models.get_model(name, weights=None)
        save_file(seeded(model).state_dict(), folder / "m.safetensors")
        spec = f"{kind}:{name}@{folder / 'm.safetensors'}"
    encoder = models.load_encoder(spec, FLOAT32)
    return extract(encoder, image_set(encoder.identity.transform.size), FLOAT32, cache=False)[:, :8]


@pytest.mark.parametrize("path", PATHS + TRANSFORMS)
def test_features_of_every_path_are_the_recorded_ones(path, tmp_path):
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    step = path.partition(" ")[0]
    expected, measured = np.array(recorded["features"][path]), measure(path, tmp_path)
    allowed = GREY_LEVEL if step == "transform" else TOLERANCE * abs(expected).max()
    assert abs(measured - expected).max() <= allowed, f"features moved: raise FEATURES_VERSION[{step!r}], then record"
    apart = abs(expected - expected.mean(0)).max()
    assert apart > 10 * allowed, "the images look alike in these references: they would hide a change"
    assert recorded["versions"] == FEATURES_VERSION, "a version was raised: record the new features"


def record() -> None:
    """Write what this machine computes, unless features moved whose version was not raised."""
    import tempfile

    old = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {"features": {}, "versions": {}}
    features = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(PATHS + TRANSFORMS):
            features[path] = [[float(f"{v:.6g}") for v in row] for row in measure(path, Path(folder, str(number)))]
    new = {"versions": FEATURES_VERSION, "features": features}
    for path, values in old["features"].items():
        step = path.partition(" ")[0]
        raised = [s for s in (step, "extract") if old["versions"].get(s) != FEATURES_VERSION[s]]
        if path in features and features[path] != values and not raised:
            raise SystemExit(f"{path}: its features moved; raise FEATURES_VERSION[{step!r}] first")
    text = json.dumps(new, indent=1)
    RECORDED.write_text(
        re.sub(r"\[\s+([^\[\]]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    record()
