"""What `compare.py` may be given (the grammar of `shared.specs`), found and measured.

A graph file is counted as it is. Every other model is built on the meta device, without weights and memory, and counted
as its library builds it: the built-in ones of `BUILTINS`, any timm model, any configuration that transformers knows.
torch is imported only when such a model is measured, because a comparison of graphs should start at once.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared import hub, process, specs
from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention
from shared.graph.measure import Model, check_exists, measure
from shared.graph.read import Graph, read

if TYPE_CHECKING:
    import torch
    from torch import nn

    Built = tuple[nn.Module, dict[str, torch.Tensor]]

GRAPHS = Path(__file__).parent / "graphs"  # the five graphs of the comparison pages
LENGTH = 512  # tokens, where a configuration names no longest sequence
DECODER_LENGTH = 128  # tokens of an encoder-decoder's second input
LONGEST_NAME = 100  # bytes of one model's part of a file name: two of them and an ending stay below 255


@dataclass(frozen=True)
class Source:
    """A model that was named: a graph that is read already, or one that is built when it is measured."""

    spec: specs.Spec
    graph: Graph | None = None

    def measure(
        self, convention: Convention = RIGHT, length: int | None = None, image: tuple[int, int] | None = None
    ) -> Model:
        """`convention` is for graphs; a built module is counted as it is. length: tokens of a text model; image: height
        and width of a model of images."""
        if self.graph is not None:
            model = measure(self.graph, convention)
            check_exists(model)
            return model
        return _traced(self.spec, length, image)

    @property
    def takes_tokens(self) -> bool:
        """Whether a number of tokens may be chosen: false for graphs, which declare theirs, and for images."""
        arguments = BUILTINS[self.spec.name][2:] if self.spec.kind == "builtin" else ()
        return self.spec.kind == "hf" or any(isinstance(one, dict) and "input_ids" in one for one in arguments)

    @property
    def file_name(self) -> str:
        """The model's part of a result's file name."""
        name, kind = self.spec.name.rstrip("/").rpartition("/")[2], self.spec.kind
        text = self.graph.id if self.graph is not None else name if kind in ("builtin", "hf") else f"{kind}-{name}"
        plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in text.lower()).strip(".-") or "model"
        return plain.encode()[:LONGEST_NAME].decode(errors="ignore")


def find(text: str, *, as_published: bool = False) -> Source:
    """The model that `text` names; as_published: a plain name means the comparison pages' graph. Raises UserError."""
    if not text:
        raise UserError(f"name two models (plan: one): {specs.FORMS}")
    if as_published and text in page_names():
        text = f"graph:{text}"
    spec = specs.parse(text)
    if spec.kind == "page":
        return Source(spec, page_graph(spec.name))
    if spec.kind == "graph":
        return Source(spec, read(spec.path))
    if as_published:
        raise UserError(
            f"{text}: the pages' way of counting is for graph files and the pages' graphs ({', '.join(page_names())}); "
            "leave out --as-published for a real model"
        )
    return Source(spec)


def page_names() -> list[str]:
    return sorted(path.stem for path in GRAPHS.glob("*.json"))


def page_graph(name: str) -> Graph:
    """One of the graphs that the comparison pages compare. Raises UserError with the names of all."""
    if name not in page_names():
        raise UserError(f"graph:{name}: the pages' graphs are {', '.join(page_names())}")
    return replace(read(GRAPHS / f"{name}.json"), source=f"graph:{name}")


# building -------------------------------------------------------------------------------------------------------------


def build(spec: specs.Spec, length: int | None = None, image: tuple[int, int] | None = None) -> Built:
    """The module, and one sample for each of its inputs. Under `torch.device("meta")` neither holds any numbers."""
    if spec.kind == "builtin":
        _, builder, *arguments = BUILTINS[spec.name]
        module, inputs = builder(*arguments)
    elif spec.kind == "timm":
        module, inputs = _timm(spec.name)
    else:
        module, inputs = _wheel(spec) if spec.kind == "wheel" else _hub(spec)
    return module, _sized(module, inputs, length, image)


def _sized(
    module: nn.Module, inputs: dict[str, torch.Tensor], length: int | None, image: tuple[int, int] | None
) -> dict[str, torch.Tensor]:
    """The inputs with `length` tokens, or images of size `image`; a decoder's input is at most as long as it was."""
    longest = _longest(getattr(module, "config", None))
    if length and longest and length > longest:
        raise UserError(f"--length {length} is longer than the model's {longest} positions")
    sized = {}
    for name, sample in inputs.items():
        if length and sample.ndim == 2:
            sample = sample.new_zeros(1, min(length, sample.shape[1]) if name.startswith("decoder") else length)
        elif image and sample.ndim == 4:
            sample = sample.new_zeros(*sample.shape[:2], *image)
        sized[name] = sample
    return sized


def _longest(config: Any) -> int | None:
    """Positions that a configuration of transformers has; None where it names no longest sequence."""
    return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)


def _inputs(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """`(tokens,)` gives token ids, `(channels, height, width)` an image; each with a batch axis of 1."""
    import torch

    return {
        name: torch.zeros(1, *shape, dtype=torch.long if len(shape) == 1 else None, device="meta")
        for name, shape in shapes.items()
    }


def _transformers(kind: str, inputs: dict[str, tuple[int, ...]], settings: dict[str, Any] | None = None) -> Built:
    """A class of transformers with its default configuration, but for `settings`."""
    import transformers

    model = getattr(transformers, kind)
    return model(model.config_class(**settings or {})), _inputs(inputs)


def _vit(patch: int, width: int, layers: int, heads: int, mlp: int) -> Built:
    """ViT with its ImageNet-1k head at 224 pixels (arXiv:2010.11929, table 1)."""
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": mlp}
    return _transformers("ViTForImageClassification", IMAGE, {"patch_size": patch, **IMAGENET, **sizes})


def _timm(name: str) -> Built:
    import timm

    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 3, 0.5)
        hint = f"near: {', '.join(near)}" if near else "timm.list_models() lists them"
        raise UserError(f"timm:{name}: timm has no such model; {hint}")
    model = timm.create_model(name, pretrained=False)
    return model, _inputs({"x": model.pretrained_cfg["input_size"]})


def _article(name: str) -> Built:
    """The article's small networks on 32-pixel images."""
    from papers.vit.part4.networks import build as scratch

    return scratch(name).to("meta"), _inputs({"x": (3, 32, 32)})


IMAGE, IMAGENET = {"pixel_values": (3, 224, 224)}, {"num_labels": 1000}
T5_INPUTS = {"input_ids": (512,), "decoder_input_ids": (DECODER_LENGTH,)}
T5 = {"vocab_size": 32128, "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 6, "num_heads": 8}
# by the names of `shared.specs.BUILTINS`: how a model is called in tables, and what builds it
BUILTINS: dict[str, tuple] = {
    "bert-base": ("BERT Base", _transformers, "BertModel", {"input_ids": (512,)}),
    "vit-b16": ("ViT-B/16", _vit, 16, 768, 12, 12, 3072),
    "vit-b32": ("ViT-B/32", _vit, 32, 768, 12, 12, 3072),
    "vit-l16": ("ViT-L/16", _vit, 16, 1024, 24, 16, 4096),
    "vit-l32": ("ViT-L/32", _vit, 32, 1024, 24, 16, 4096),
    "vit-h14": ("ViT-H/14", _vit, 14, 1280, 32, 16, 5120),
    "gpt2": ("GPT-2", _transformers, "GPT2LMHeadModel", {"input_ids": (1024,)}),
    "t5-small": ("T5 Small", _transformers, "T5ForConditionalGeneration", T5_INPUTS, T5),
    "resnet-50": ("ResNet-50", _transformers, "ResNetForImageClassification", IMAGE, IMAGENET),
    "bit-r50x1": ("BiT R50x1", _transformers, "BitForImageClassification", IMAGE, IMAGENET),
    "dinov2-s14": ("DINOv2 S/14", _timm, "vit_small_patch14_dinov2"),
    "efficientnet-lite0": ("EfficientNet-Lite0", _timm, "efficientnet_lite0"),
    "article-vit": ("ViT, 1.2M (article)", _article, "ViT"),
    "article-resnet": ("ResNet, 1.6M (article)", _article, "ResNet"),
}


def _wheel(spec: specs.Spec) -> Built:
    """The network of a PyPI wheel at the image size of its recipe; the wheel itself is not fetched."""
    from shared.models.wheels import VIT_CONFIG, WHEELS

    if spec.name not in WHEELS:
        raise UserError(f"{spec}: unknown; expected one of {', '.join(f'wheel:{name}' for name in WHEELS)}")
    wheel = WHEELS[spec.name]
    if wheel.architecture != "dinov2":
        return _timm(wheel.architecture)
    settings = {key: value for key, value in VIT_CONFIG.items() if key != "model_type"}
    return _transformers("Dinov2Model", {"pixel_values": (3, *wheel.own.size)}, settings)


def _hub(spec: specs.Spec) -> Built:
    """The class that a configuration in hub layout names, without weights and without code from the repository."""
    import transformers

    folder = hub.model(spec, weights=False).path
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # the configuration's text decides what goes wrong in the library
        raise UserError(
            f"{spec}: {folder / 'config.json'} cannot be used ({_first_line(error)}); it must be of a model that "
            "transformers has itself"
        ) from None
    kind = getattr(transformers, (getattr(config, "architectures", None) or [""])[0], None)
    model = transformers.AutoModel.from_config(config, trust_remote_code=False) if kind is None else kind(config)
    return model, _inputs(_hub_inputs(model, config))


def _hub_inputs(model: nn.Module, config: Any) -> dict[str, tuple[int, ...]]:
    name = getattr(model, "main_input_name", "input_ids")
    if name == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return {name: (getattr(config, "num_channels", 3), height, width)}
    if name != "input_ids":
        raise UserError(f"{type(model).__name__} takes {name}; models of images and of token ids can be compared")
    shapes = {name: (_longest(config) or LENGTH,)}
    if getattr(config, "is_encoder_decoder", False):
        shapes["decoder_input_ids"] = (min(shapes[name][0], DECODER_LENGTH),)
    return shapes


def _traced(spec: specs.Spec, length: int | None, image: tuple[int, int] | None = None) -> Model:
    import torch

    from shared.graph.trace import trace

    name = BUILTINS[spec.name][0] if spec.kind == "builtin" else spec.name.rstrip("/").rpartition("/")[2]
    try:
        with process.quiet(), torch.device("meta"):  # quiet: libraries warn about weights that nobody means to load
            module, inputs = build(spec, length, image)
        with process.quiet():
            return trace(module, inputs, name, str(spec))
    except UserError:
        raise
    except Exception as error:  # libraries raise what they like on a configuration that they cannot build or run
        raise UserError(f"{spec}: cannot be built and run on the meta device ({_first_line(error)})") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
