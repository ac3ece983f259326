"""The built-in real models and any other from transformers or timm, traced on the meta device: no weights, no memory.

Needs torch; graph comparisons never import this module.
"""

from __future__ import annotations

import difflib
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shared.errors import UserError
from shared.graph.measure import Model
from shared.graph.trace import trace
from shared.paths import data_root

Built = tuple[nn.Module, dict[str, torch.Tensor]]
LENGTH = 512  # tokens, where a configuration has no longest sequence
DECODER_LENGTH = 128


def _tokens(length: int) -> torch.Tensor:
    return torch.zeros(1, length, dtype=torch.long, device="meta")


def _image(size: int | tuple[int, int], channels: int = 3) -> torch.Tensor:
    height, width = (size, size) if isinstance(size, int) else size
    return torch.empty(1, channels, height, width, device="meta")


# the built-in models --------------------------------------------------------------------------------------------------


def _vit(patch: int, width: int, layers: int, heads: int, inner: int) -> Callable[[], Built]:
    """ViT with its ImageNet-1k head at 224 pixels (arXiv:2010.11929, table 1)."""

    def build() -> Built:
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(
            image_size=224, patch_size=patch, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=inner, num_labels=1000,
        )  # fmt: skip
        return ViTForImageClassification(config), {"pixel_values": _image(224)}

    return build


def _bert() -> Built:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), {"input_ids": _tokens(512)}


def _gpt2() -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()), {"input_ids": _tokens(1024)}


def _t5() -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=32128, d_model=512, d_ff=2048, d_kv=64, num_layers=6, num_heads=8)
    inputs = {"input_ids": _tokens(512), "decoder_input_ids": _tokens(DECODER_LENGTH)}
    return T5ForConditionalGeneration(config), inputs


def _resnet50() -> Built:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000)), {"pixel_values": _image(224)}


def _bit50() -> Built:
    from transformers import BitConfig, BitForImageClassification

    return BitForImageClassification(BitConfig(num_labels=1000)), {"pixel_values": _image(224)}


def _timm(name: str, size: int | None = None) -> Callable[[], Built]:
    def build() -> Built:
        import timm

        model = timm.create_model(name, pretrained=False)
        channels, height, width = model.pretrained_cfg["input_size"]
        return model, {"x": _image((size or height, size or width), channels)}

    return build


def _article(name: str) -> Callable[[], Built]:
    """The article's small networks on 32-pixel images."""

    def build() -> Built:
        from papers.vit.scratch_models import build as scratch

        return scratch(name).to("meta"), {"x": _image(32)}

    return build


BUILTINS: dict[str, tuple[str, Callable[[], Built]]] = {
    "bert-base": ("BERT Base", _bert),
    "vit-b16": ("ViT-B/16", _vit(16, 768, 12, 12, 3072)),
    "vit-b32": ("ViT-B/32", _vit(32, 768, 12, 12, 3072)),
    "vit-l16": ("ViT-L/16", _vit(16, 1024, 24, 16, 4096)),
    "vit-l32": ("ViT-L/32", _vit(32, 1024, 24, 16, 4096)),
    "vit-h14": ("ViT-H/14", _vit(14, 1280, 32, 16, 5120)),
    "gpt2": ("GPT-2", _gpt2),
    "t5-small": ("T5 Small", _t5),
    "resnet-50": ("ResNet-50", _resnet50),
    "bit-r50x1": ("BiT R50x1", _bit50),
    "dinov2-s14": ("DINOv2 S/14", _timm("vit_small_patch14_dinov2")),
    "efficientnet-lite0": ("EfficientNet-Lite0", _timm("efficientnet_lite0")),
    "article-vit": ("ViT, 1.2M (article)", _article("ViT")),
    "article-resnet": ("ResNet, 1.6M (article)", _article("ResNet")),
}


def builtin(name: str) -> Model:
    """A built-in model, traced."""
    label, build = BUILTINS[name]
    return _traced(build, label, name)


# any other model ------------------------------------------------------------------------------------------------------


def from_timm(name: str) -> Model:
    """`timm:<name>`. Raises UserError with the nearest names."""
    import timm

    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 3, 0.5)
        hint = f"near: {', '.join(near)}" if near else "timm.list_models() lists them"
        raise UserError(f"timm:{name}: timm has no such model; {hint}")
    return _traced(_timm(name), name, f"timm:{name}")


def from_hub(spec: str, length: int | None = None) -> Model:
    """`hf:<repository or local folder>`: the class that its configuration names, without weights and remote code."""
    import transformers

    transformers.logging.set_verbosity_error()
    folder = _settings_folder(spec)
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # the configuration's text decides what goes wrong in the library
        raise UserError(
            f"hf:{spec}: {folder / 'config.json'} cannot be used ({_first_line(error)}); it must be of a model that "
            "transformers has itself"
        ) from None

    def build() -> Built:
        names = getattr(config, "architectures", None) or [""]
        kind = getattr(transformers, names[0], None)
        model = (
            kind(config) if kind is not None else transformers.AutoModel.from_config(config, trust_remote_code=False)
        )
        return model, _hub_inputs(model, config, length)

    return _traced(build, spec.rstrip("/").rpartition("/")[2], f"hf:{spec}")


def _settings_folder(spec: str) -> Path:
    """The folder that holds the model's config.json: local, in the mirror, in the hub's cache, or fetched now."""
    local = Path(spec).expanduser()
    if local.exists():
        if not (local / "config.json").is_file():
            raise UserError(f"hf:{spec}: the folder has no config.json")
        return local
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec):
        raise UserError(f"hf:{spec}: neither a folder nor a repository `owner/name`")
    root = data_root()
    if root and (root / spec / "config.json").is_file():
        return root / spec
    from huggingface_hub import HfApi, hf_hub_download

    try:
        return Path(hf_hub_download(spec, "config.json", local_files_only=True)).parent
    except Exception:
        try:
            HfApi().model_info(spec, timeout=20)  # fails at once where the download would try for a minute
            return Path(hf_hub_download(spec, "config.json")).parent
        except Exception as error:  # the HTTP client's own errors, whose classes differ between versions
            raise UserError(
                f"hf:{spec}: its config.json cannot be had ({_first_line(error)}); check the name and the network, or "
                "name a local folder"
            ) from None


def _hub_inputs(model: nn.Module, config: Any, length: int | None) -> dict[str, torch.Tensor]:
    name = getattr(model, "main_input_name", "input_ids")
    if name == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        size = tuple(size) if isinstance(size, list | tuple) else size
        return {name: _image(size, getattr(config, "num_channels", 3))}
    if name != "input_ids":
        raise UserError(f"{type(model).__name__} takes {name}; models of images and of token ids can be compared")
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or LENGTH
    if length and length > longest:
        raise UserError(f"--length {length} is longer than the model's {longest} positions")
    inputs = {name: _tokens(length or longest)}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _tokens(min(length or longest, DECODER_LENGTH))
    return inputs


def _traced(build: Callable[[], Built], name: str, source: str) -> Model:
    with _quiet():
        try:
            with torch.device("meta"):
                module, inputs = build()
            return trace(module, inputs, name, source)
        except UserError:
            raise
        except Exception as error:  # libraries raise what they like on a configuration that they cannot build or run
            raise UserError(f"{source}: cannot be built and run on the meta device ({_first_line(error)})") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Libraries warn about weights that were never meant to be loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
