"""Features of randomly initialised models against their library's own forward pass: every architecture, in float32.

    python benchmarks/families.py                            all: a few minutes on two cores
    python benchmarks/families.py --only clip,swin,resnet18  these

Each model is made by its library, every number of it random (norms and statistics too), saved as its library saves it,
and loaded by this suite, which computes features of six images of three sizes, all at once and one by one. Expected is
what the library's own class, loaded from the same files, gives for the same pixels: the output that the table of
`shared/models/families.py` declares, and for models with tokens the other ways to pool. `difference`: the largest one,
over the largest number; at most 1e-4. hf: tiny networks of the architecture. timm, torchvision: at their real sizes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import harness
import numpy as np
import torch
from torch import Tensor, nn

from shared import cli, models
from shared.device import Choice
from shared.errors import UserError
from shared.models.families import source

TOLERANCE = 1e-4
FLOAT32 = Choice(torch.device("cpu"), torch.float32, "benchmark")
RECIPE = {"size": 32, "resample": 2, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2]}

VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
VIT32 = {**VIT, "patch_size": 8, "image_size": 32}
DINO = {**VIT, "patch_size": 32, "image_size": 64, "mlp_ratio": 2}
STAGES = {"depths": [1, 1, 2, 1], "hidden_sizes": [8, 16, 24, 32]}
WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
TEXT = {**VIT, "vocab_size": 50, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}


def pooled(model: nn.Module, x: Tensor) -> Tensor:
    return model(pixel_values=x).pooler_output.flatten(1)


def first(model: nn.Module, x: Tensor) -> Tensor:
    return model(pixel_values=x).last_hidden_state[:, 0]


def places(model: nn.Module, x: Tensor) -> Tensor:
    return model(pixel_values=x).last_hidden_state.mean((2, 3))


def rest(prefix: int) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda model, x: model(pixel_values=x).last_hidden_state[:, prefix:].mean(1)


def both(model: nn.Module, x: Tensor, a: Callable, b: Callable) -> Tensor:
    return torch.cat([a(model, x), b(model, x)], dim=1)


def tower(model: nn.Module, x: Tensor) -> Tensor:
    return model.vision_model(pixel_values=x).pooler_output


def any_order(model: nn.Module, x: Tensor) -> Tensor:
    """ViT-MAE with nothing hidden; the order of the patches, random here, must not matter."""
    model.config.mask_ratio = 0.0
    return model(pixel_values=x).last_hidden_state[:, 0]


def naflex(model: nn.Module, x: Tensor) -> Tensor:
    """Through transformers' own cutting into patches."""
    from transformers.models.siglip2.image_processing_siglip2 import convert_image_to_patches

    patches = torch.stack([convert_image_to_patches(image, model.config.patch_size) for image in x])
    grid = torch.tensor([[x.shape[2] // model.config.patch_size, x.shape[3] // model.config.patch_size]] * len(x))
    mask = torch.ones(patches.shape[:2], dtype=torch.int32)
    return model(pixel_values=patches, pixel_attention_mask=mask, spatial_shapes=grid).pooler_output


class HF(NamedTuple):
    """A transformers model: the class that is saved, its settings, the class that is asked, and what it is asked.

    more: pool -> the expected numbers. recipe: keys of preprocessor_config.json besides RECIPE.
    """

    saved: str
    settings: dict[str, Any]
    expected: Callable[[nn.Module, Tensor], Tensor] = pooled
    asked: str = ""
    more: Mapping[str, Callable[[nn.Module, Tensor], Tensor]] = MappingProxyType({})
    recipe: Mapping[str, Any] = MappingProxyType({})


def _with_class_token(prefix: int, cls: Callable = first) -> dict[str, Callable]:
    mean = rest(prefix)
    return {"cls": cls, "mean": mean, "cls+mean": lambda model, x: both(model, x, cls, mean)}


VISION_AND_TEXT = {"vision_config": VIT32, "text_config": TEXT, "projection_dim": 16}
MOBILE = {"image_size": 32, "tf_padding": False}
HUGGING_FACE = {
    "vit": HF("ViTModel", VIT32, more=_with_class_token(1)),
    "bit": HF(
        "BitModel",
        {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 2], "num_groups": 8, "global_padding": "SAME"},
        recipe={"size": {"shortest_edge": 32}, "crop_size": 32},
    ),
    "resnet": HF("ResNetModel", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2]}),
    "dinov2": HF("Dinov2Model", DINO, more=_with_class_token(1)),
    "dinov2_with_registers": HF(
        "Dinov2WithRegistersModel", {**DINO, "num_register_tokens": 3}, first, more=_with_class_token(4)
    ),
    "dinov3_vit": HF(
        "DINOv3ViTModel", {**VIT, "patch_size": 32, "num_register_tokens": 4}, first, more=_with_class_token(5)
    ),
    "dinov3_convnext": HF("DINOv3ConvNextModel", STAGES, more={"mean": rest(1)}),
    "clip": HF("CLIPModel", VISION_AND_TEXT, tower, recipe={"crop_size": 32}),
    "clip_vision_model": HF("CLIPVisionModel", VIT32, more=_with_class_token(1, pooled)),
    "metaclip_2": HF("MetaClip2Model", VISION_AND_TEXT, tower),
    "chinese_clip": HF("ChineseCLIPModel", VISION_AND_TEXT, tower),
    "siglip": HF("SiglipModel", {"vision_config": VIT32, "text_config": TEXT}, tower),
    "siglip_vision_model": HF("SiglipVisionModel", VIT32, more={"mean": rest(0)}),
    "siglip2": HF(
        "Siglip2Model",
        {"vision_config": {**VIT, "patch_size": 8, "num_patches": 16}, "text_config": TEXT},
        naflex,
        asked="Siglip2VisionModel",
        recipe={"size": None, "patch_size": 8, "max_num_patches": 16},
    ),
    "aimv2_vision_model": HF("Aimv2VisionModel", VIT32, more={"mean": rest(0)}),
    "deit": HF("DeiTModel", VIT32, first, more=_with_class_token(2)),
    "vit_msn": HF("ViTMSNModel", VIT32, first, more=_with_class_token(1)),
    "vit_mae": HF("ViTMAEModel", VIT32, any_order),
    "ijepa": HF("IJepaModel", VIT32, rest(0)),
    "pixio": HF("PixioModel", {**DINO, "n_cls_tokens": 3}, more={"mean": rest(3)}),
    "beit": HF("BeitModel", {**VIT32, "use_relative_position_bias": True}, more=_with_class_token(1)),
    "beit, class token": HF("BeitModel", {**VIT32, "use_mean_pooling": False}),
    "data2vec-vision": HF(
        "Data2VecVisionForImageClassification", VIT32, lambda model, x: pooled(model.data2vec_vision, x)
    ),
    "hiera": HF(
        "HieraModel",
        {
            "image_size": [32, 32],
            "patch_size": [3, 3],
            "patch_stride": [2, 2],
            "patch_padding": [1, 1],
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [1, 2],
            "query_stride": [2, 2],
            "masked_unit_size": [4, 4],
            "num_query_pool": 1,
        },
        more={"mean": rest(0)},
    ),
    "swin": HF("SwinModel", WINDOWS, more={"mean": rest(0)}),
    "swinv2": HF("Swinv2Model", WINDOWS),
    "focalnet": HF(
        "FocalNetModel", {**WINDOWS, "hidden_sizes": [8, 16], "focal_levels": [2, 2], "focal_windows": [3, 3]}
    ),
    "levit": HF(
        "LevitModel",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        recipe={"size": 64, "crop_size": 64},
    ),
    "pvt": HF(
        "PvtModel",
        {
            "image_size": 32,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "sequence_reduction_ratios": [2, 1],
            "patch_sizes": [4, 2],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
        first,
    ),
    "pvt_v2": HF(
        "PvtV2Model",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2]},
        places,
    ),
    "segformer": HF("SegformerModel", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}, places),
    "convnext": HF("ConvNextModel", STAGES),
    "convnextv2": HF("ConvNextV2Model", STAGES),
    "regnet": HF("RegNetModel", {"embedding_size": 8, **STAGES, "groups_width": 4}),
    "efficientnet": HF("EfficientNetModel", {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320}),
    "mobilenet_v1": HF("MobileNetV1Model", {**MOBILE, "depth_multiplier": 0.25, "min_depth": 8}),
    "mobilenet_v2": HF("MobileNetV2Model", {**MOBILE, "depth_multiplier": 0.25}),
    "mobilevit": HF(
        "MobileViTModel",
        {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32], "num_attention_heads": 2},
    ),
    "mobilevitv2": HF("MobileViTV2Model", {"width_multiplier": 0.25, "n_attn_blocks": [1, 1, 1]}),
    "poolformer": HF(
        "PoolFormerForImageClassification",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_encoder_blocks": 4},
        lambda model, x: model.norm(model.poolformer(x).last_hidden_state).mean((2, 3)),
    ),
    "swiftformer": HF(
        "SwiftFormerForImageClassification",
        {"depths": [1, 1, 1, 1], "embed_dims": [8, 16, 24, 32]},
        lambda model, x: model.norm(model.swiftformer(x).last_hidden_state).flatten(2).mean(2),
    ),
    "cvt": HF(
        "CvtForImageClassification",
        {"embed_dim": [8, 16, 32], "num_heads": [1, 2, 2], "depth": [1, 2, 3]},
        lambda model, x: model.layernorm(model.cvt(x).cls_token_value).mean(1),
    ),
}
TIMM = (
    *(
        "vit_tiny_patch16_224",
        "vit_little_patch16_reg4_gap_256",
        "deit_tiny_distilled_patch16_224",
        "vit_tiny_r_s16_p8_224",
    ),
    *("eva02_tiny_patch14_224", "cait_xxs24_224", "swin_tiny_patch4_window7_224", "pvt_v2_b0", "convnext_atto"),
    *("resnet18", "resnetv2_50", "regnetx_002", "efficientnet_b0", "mobilenetv3_small_100", "mobilevit_xxs"),
)
TORCHVISION = ("resnet18", "densenet121", "squeezenet1_0", "mobilenet_v3_small", "vit_b_16", "swin_t", "googlenet")
POOLED = {"vit_tiny_patch16_224": ("cls", "mean"), "vit_little_patch16_reg4_gap_256": ("mean",)}  # and so by timm too


def randomise(model: nn.Module) -> nn.Module:
    """Every number random, norms and statistics too, as large as keeps the images' differences alive."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not tensor.is_floating_point():
                continue
            spread = torch.randn_like(tensor) * (2 / max(tensor[0].numel(), 1)) ** 0.5 if tensor.ndim > 1 else None
            if spread is None:
                spread = torch.randn_like(tensor) * 0.1
                if "var" in name or name.endswith("weight") or "gamma" in name or "lambda" in name or "scale" in name:
                    spread = 1 + spread.abs()
            tensor.copy_(spread)
    return model.eval()


def images() -> list[np.ndarray]:
    """uint8 [H, W, 3]: six of three sizes, of squares that a mean over all places does not make alike."""
    rng = np.random.default_rng(0)
    squares = [rng.integers(0, 256, (5 + i % 3, 7, 3), dtype=np.uint8) // (1 + i % 2) for i in range(6)]
    return [some.repeat(8, axis=0).repeat(8, axis=1) for some in squares]


def saved(name: str, folder: Path) -> tuple[str, nn.Module, dict[str, Callable[[nn.Module, Tensor], Tensor]]]:
    """(spec, the library's own model, pool -> what to ask it) of a model `<library> <name>`, its files in `folder`."""
    library, _, called = name.partition(" ")
    if library == "hf":
        import transformers

        case = HUGGING_FACE[called]
        made = getattr(transformers, case.saved)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        randomise(made(made.config_class(**case.settings))).save_pretrained(folder)
        recipe = {key: value for key, value in {**RECIPE, **case.recipe}.items() if value is not None}
        (folder / "preprocessor_config.json").write_text(json.dumps(recipe), encoding="utf-8")
        theirs = getattr(transformers, case.asked or case.saved).from_pretrained(folder).eval()
        return str(folder), theirs, {"": case.expected, **case.more}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "weights.pth"
    if library == "timm":
        import timm

        model = randomise(timm.create_model(called))
        asked: dict[str, Callable] = {"": lambda m, x: m.forward_head(m.forward_features(x), pre_logits=True)}
        from timm.models.vision_transformer import global_pool_nlc

        for pool in POOLED.get(called, ()):
            kind = {"cls": "token", "mean": "avg"}[pool]
            asked[pool] = lambda m, x, kind=kind: global_pool_nlc(m.forward_features(x), kind, m.num_prefix_tokens)
    else:
        import torchvision

        more = {"init_weights": False, "transform_input": True} if called == "googlenet" else {}  # as for its weights
        model = randomise(torchvision.models.get_model(called, weights=None, **more))
        asked = {"": _before_the_last_layer}
    torch.save(model.state_dict(), file)
    return f"{library}:{called}@{file}", model, asked


def _before_the_last_layer(model: nn.Module, x: Tensor) -> Tensor:
    """Seen by a hook: what its last linear layer (SqueezeNet: convolution, then a mean over the places) gets."""
    layer = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d) and len(m.weight) == 1000][-1]
    got: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: got.append(inputs[0]))
    model(x)
    hook.remove()
    return got[0].mean((2, 3)) if got[0].ndim == 4 else got[0]


def compare(name: str, folder: Path) -> dict[str, Any]:
    """The row of one model. SystemExit when its features are not its library's."""
    spec, theirs, asked = saved(name, folder)
    row: dict[str, Any] = {"parameters": sum(p.numel() for p in theirs.parameters())}
    worst: dict[str, float] = {}
    for pool, expect in asked.items():
        encoder = models.load_encoder(spec, FLOAT32, pool=pool)
        x = encoder.identity.transform(images())
        with torch.no_grad():
            expected = expect(theirs, x)
        whole, single = encoder.encode(images()), torch.cat([encoder.encode([image]) for image in images()])
        if whole.shape != expected.shape:
            raise SystemExit(f"{name} {pool}: {list(whole.shape)}, expected {list(expected.shape)}")
        apart = (expected - expected.mean(0)).abs().max() / expected.abs().max()
        if not apart > 20 * TOLERANCE:
            raise SystemExit(f"{name} {pool}: the images look alike ({apart:.1e}), which would hide a mistake")
        for way, features in (("whole", whole), ("single", single)):
            worst[way] = max(worst.get(way, 0), float((features - expected).abs().max() / expected.abs().max()))
        if not pool:
            row |= {"features": encoder.dim, "size": list(encoder.identity.transform.size)}
            row["representation"] = encoder.identity.representation
    row["pools"] = [pool for pool in asked if pool]
    return row | {"difference": worst["whole"], "difference, one by one": worst["single"]}


def every() -> list[str]:
    return [
        *(f"hf {name}" for name in HUGGING_FACE),
        *(f"timm {name}" for name in TIMM),
        *(f"torchvision {name}" for name in TORCHVISION),
    ]


@dataclass
class Config:
    only: tuple[str, ...] = ()
    """names of models (of any library); all if none is given"""


def main(config: Config) -> int:
    unknown = [name for name in config.only if name not in {one.partition(" ")[2] for one in every()}]
    if unknown:
        raise UserError(f"--only {unknown[0]}: no such model here; there are {', '.join(every())}")
    results, wrong = harness.Results("families", report), 0
    models_here = [name for name in every() if not config.only or name.partition(" ")[2] in config.only]
    if not config.only:
        results.clear()
    for name in models_here:
        with tempfile.TemporaryDirectory(prefix="families-") as folder:
            took: list[dict[str, Any]] = []
            seconds = harness.seconds(
                lambda name=name, at=Path(folder) / "model", to=took: to.append(compare(name, at))
            )
        row = took[0]
        wrong += max(row["difference"], row["difference, one by one"]) > TOLERANCE
        results[name] = row
        found = f"difference {row['difference']:.1e}, one by one {row['difference, one by one']:.1e}"
        print(f"{name:<45} {row['features']:>5} features  {found}  {seconds:.1f} s", flush=True)
        results.write()
    print(f"{len(models_here)} models, {wrong} beyond {TOLERANCE:.0e}")
    return 1 if wrong else 0


def linked(name: str) -> tuple[str, str]:
    """(library, model), with the library's own page on what an architecture gives."""
    library, _, called = name.partition(" ")
    return library, f"[{called}]({source(called.partition(',')[0])})" if library == "hf" else called


def report(results: dict) -> list[str]:
    """benchmarks/families.md"""
    lines = ["# Features of every architecture against their library's own", ""]
    lines += [
        "Written by `python benchmarks/families.py`; what is compared: the script's docstring. Random weights.",
        "",
    ]
    rows = [
        (
            *linked(name),
            f"{row['parameters']:,}",
            row["features"],
            row["representation"] + (f" (also pool {', '.join(row['pools'])})" if row["pools"] else ""),
            f"{row['difference']:.1e}",
            f"{row['difference, one by one']:.1e}",
        )
        for name, row in results.items()
    ]
    columns = ["library", "model", "parameters", "features", "representation", "difference", "one by one"]
    return lines + harness.table(columns, rows)


if __name__ == "__main__":
    cli.run(main, Config)
