"""The article's seven encoders with random weights of the true architecture and size, in hub layout.

The hub is out of reach where the benchmarks run; speed, memory and shapes do not depend on the weights. Everything that
is measured on these checkpoints is marked `random weights`.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file


def _vit(patch: int, hidden: int, layers: int, heads: int, mlp: int) -> transformers.ViTConfig:
    return transformers.ViTConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=mlp,
        patch_size=patch,
    )


# The ViTs are Table 1 of the paper; BiT and ResNet are transformers' defaults, which are R50x1 and ResNet-50.
CONFIGS = {
    "ViT-B/32": (_vit(32, 768, 12, 12, 3072), 768),
    "ViT-B/16": (_vit(16, 768, 12, 12, 3072), 768),
    "ViT-L/32": (_vit(32, 1024, 24, 16, 4096), 1024),
    "ViT-L/16": (_vit(16, 1024, 24, 16, 4096), 1024),
    "ViT-H/14": (_vit(14, 1280, 32, 16, 5120), 1280),
    "BiT R50x1": (transformers.BitConfig(global_padding="SAME"), 2048),
    "ResNet-50": (transformers.ResNetConfig(), 2048),
}
PROCESSORS = {
    "vit": {"size": 224, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
    "bit": {"size": 224, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
    "resnet": {
        "size": 224,
        "crop_pct": 0.875,
        "resample": 3,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
}


def write(name: str, folder: Path) -> str:
    """`folder` as the hub would hold the model `name` (float32, one model.safetensors); its path."""
    config, _ = CONFIGS[name]
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    generator = torch.Generator().manual_seed(0)
    state = {}
    for key, place in model.state_dict().items():
        value = torch.empty(place.shape, dtype=place.dtype)
        if not value.is_floating_point():
            value.zero_()
        elif "norm" in key and value.ndim == 1:  # norms as they start: scale and variance 1, shift and mean 0
            value.fill_(float(key.endswith(("weight", "running_var"))))
        elif value.ndim == 4:
            value.normal_(0, (2 / value[0].numel()) ** 0.5, generator=generator)  # He: activations keep their size
        else:
            value.normal_(0, 0.02, generator=generator)
        state[key] = value
    folder.mkdir(parents=True, exist_ok=True)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[config.model_type]))
    save_file(state, folder / "model.safetensors")
    return str(folder)
