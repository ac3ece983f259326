"""Tiny random checkpoints in hub layout, of the article's architectures, for the tests of `shared.models`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from shared.device import Choice

FLOAT32 = Choice(torch.device("cpu"), torch.float32, "test")
BFLOAT16 = Choice(torch.device("cpu"), torch.bfloat16, "test")

VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "patch_size": 16,
    "image_size": 64,
}
CONFIGS = {
    "vit": transformers.ViTConfig(**VIT),
    "dinov2": transformers.Dinov2Config(**{**VIT, "patch_size": 14, "image_size": 70}, mlp_ratio=2),
    "resnet": transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2]),
    "bit": transformers.BitConfig(
        embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2], num_groups=8, global_padding="SAME"
    ),
}
PROCESSOR = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2], "resample": 2, "size": 64}


def images(n: int = 5, seed: int = 0) -> list[np.ndarray]:
    """uint8 [H, W, 3] of two sizes."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (40 + 8 * (i % 2), 56, 3), dtype=np.uint8) for i in range(n)]


def random_model(family: str, *, head: int | None = None, seed: int = 0) -> torch.nn.Module:
    """A model in eval mode whose every number is random, norms and statistics too. head: classes, or None."""
    from shared.models.hf import FAMILIES

    torch.manual_seed(seed)
    config = type(CONFIGS[family]).from_dict(CONFIGS[family].to_dict())
    if head is not None:
        config.num_labels = head
    model = getattr(transformers, FAMILIES[family].encoder if head is None else FAMILIES[family].classifier)(config)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                spread = torch.randn_like(tensor) * 0.1
                tensor.copy_(1 + spread.abs() if "var" in name or ("norm" in name and "weight" in name) else spread)
    return model.eval()


def save(model: torch.nn.Module, folder: Path, *, state: dict | None = None, processor: dict | None = None) -> str:
    """`folder` in hub layout with one model.safetensors; its path as a model spec."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(model.config.to_json_string(use_diff=False), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(
        json.dumps(PROCESSOR if processor is None else processor), encoding="utf-8"
    )
    state = model.state_dict() if state is None else state
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")
    return str(folder)


def old_layout(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A ViT's or DINOv2's weights under the names that transformers used before version 5 (and the hub still has)."""
    dinov2 = any("layer_scale" in name for name in state)
    pairs = [(r"attention\.([qkv])_proj", r"attention.attention.\1"), (r"attention\.o_proj", "attention.output.dense")]
    if not dinov2:
        pairs += [(r"^(vit\.)?layers\.", r"\1encoder.layer.")]
        pairs += [(r"mlp\.fc1", "intermediate.dense"), (r"mlp\.fc2", "output.dense")]
    long = {"q": "query", "k": "key", "v": "value"}
    renamed = {}
    for name, value in state.items():
        for new, old in pairs:
            name = re.sub(new, old, name)
        renamed[re.sub(r"attention\.attention\.([qkv])\.", lambda m: f"attention.attention.{long[m[1]]}.", name)] = (
            value
        )
    return renamed
