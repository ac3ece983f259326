"""The article's seven encoders with random weights of the true architecture and size, in hub layout.

The hub is out of reach where the benchmarks run; speed, memory and shapes do not depend on the weights. Everything that
is measured on these checkpoints is marked `random weights`.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers


def _vit(patch: int, hidden: int, layers: int, heads: int, mlp: int) -> transformers.ViTConfig:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": mlp}
    return transformers.ViTConfig(**sizes, patch_size=patch)


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
HALF = {"size": 224, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PROCESSORS = {"vit": HALF, "bit": HALF, "resnet": {"size": 224, "crop_pct": 0.875, "resample": 3, **IMAGENET}}


def write(name: str, folder: Path) -> str:
    """`folder` as the hub would hold the model `name` (float32), weights as transformers starts them; its path."""
    config, _ = CONFIGS[name]
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[config.model_type]), encoding="utf-8")
    return str(folder)
