"""What `compare.py` may be given (the grammar of `shared.specs`), found and measured.

A graph file is counted as it is. Every other model is built on the meta device, without weights and memory, and counted
as its library builds it: the built-in ones of `BUILTINS`, any timm model, any configuration that transformers knows.
torch is imported only when such a model is measured, because a comparison of graphs should start at once.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from shared import process, specs
from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention
from shared.graph.measure import Layer, Model, check_exists, measure
from shared.graph.read import Graph, read
from shared.paths import atomic_write

GRAPHS = Path(__file__).parent / "graphs"  # the five graphs of the comparison pages
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
        if self.spec.kind == "builtin" and length is None and image is None and (kept := stored(self.spec.name)):
            return kept
        return self.build(length, image)

    def build(self, length: int | None = None, image: tuple[int, int] | None = None) -> Model:
        """Built by its library and run without weights. torch is imported only here."""
        from papers.comparisons import building

        spec, how = self.spec, BUILTINS[self.spec.name] if self.spec.kind == "builtin" else None
        name = how[0] if how else spec.name.rstrip("/").rpartition("/")[2]
        try:
            with process.quiet():  # libraries warn about weights that nobody means to load
                model = building.run(building.build(spec, how and how[1:], length, image), name, str(spec))
        except UserError:
            raise
        except Exception as error:  # libraries raise what they like on a configuration that they cannot build
            raise UserError(f"{spec}: cannot be built ({building.first_line(error)})") from error
        if model.not_run and (length or image):
            raise UserError(f"{spec}: {model.not_run}; without a size of yours it has the model's own")
        return model

    @property
    def takes_tokens(self) -> bool:
        """Whether a number of tokens may be chosen: false for graphs, which declare theirs, and for images."""
        arguments = BUILTINS[self.spec.name][2:] if self.spec.kind == "builtin" else ()
        return self.spec.kind == "hf" or any(isinstance(one, dict) and "input_ids" in one for one in arguments)

    @property
    def file_name(self) -> str:
        """The model's part of a result's file name: two files of one graph id, and two owners of one name, have two."""
        name, kind = self.spec.name.rstrip("/").rpartition("/")[2], self.spec.kind
        if self.graph is not None:
            stem = self.spec.path.stem if self.spec.path else self.graph.id
            text = self.graph.id if stem == self.graph.id else f"{self.graph.id}-{stem}"
        else:
            owned = self.spec.name if self.spec.path is None else name
            text = owned.replace("/", "-") if kind in ("builtin", "hf") else f"{kind}-{name}"
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


# real models ----------------------------------------------------------------------------------------------------------

IMAGE, IMAGENET = {"pixel_values": (3, 224, 224)}, {"num_labels": 1000}
T5_INPUTS = {"input_ids": (512,), "decoder_input_ids": (128,)}
T5 = {"vocab_size": 32128, "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 6, "num_heads": 8}
# by the names of `shared.specs.BUILTINS`: how a model is called in tables, and what builds it (`building.BUILDERS`)
BUILTINS: dict[str, tuple] = {
    "bert-base": ("BERT Base", "transformers", "BertModel", {"input_ids": (512,)}),
    "vit-b16": ("ViT-B/16", "vit", 16, 768, 12, 12, 3072),
    "vit-b32": ("ViT-B/32", "vit", 32, 768, 12, 12, 3072),
    "vit-l16": ("ViT-L/16", "vit", 16, 1024, 24, 16, 4096),
    "vit-l32": ("ViT-L/32", "vit", 32, 1024, 24, 16, 4096),
    "vit-h14": ("ViT-H/14", "vit", 14, 1280, 32, 16, 5120),
    "gpt2": ("GPT-2", "transformers", "GPT2LMHeadModel", {"input_ids": (1024,)}),
    "t5-small": ("T5 Small", "transformers", "T5ForConditionalGeneration", T5_INPUTS, T5),
    "resnet-50": ("ResNet-50", "transformers", "ResNetForImageClassification", IMAGE, IMAGENET),
    "bit-r50x1": ("BiT R50x1", "transformers", "BitForImageClassification", IMAGE, IMAGENET),
    "dinov2-s14": ("DINOv2 S/14", "timm", "vit_small_patch14_dinov2"),
    "efficientnet-lite0": ("EfficientNet-Lite0", "timm", "efficientnet_lite0"),
    "article-vit": ("ViT, 1.2M (article)", "article", "ViT"),
    "article-resnet": ("ResNet, 1.6M (article)", "article", "ResNet"),
}

MEASURED = Path(__file__).parent / "measured"  # the built-in models at their own inputs, counted once


def stored(name: str) -> Model | None:
    """A built-in model as it was counted once, because importing torch takes ten times as long as the answer; a test
    counts it anew. None: it was not."""
    try:
        data = json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    rows = data.pop("layers")
    for row in rows:
        row["output"] = row["output"] and tuple(row["output"])
    return Model(**data, layers=[Layer(**row) for row in rows])


def store(model: Model, name: str) -> None:
    """Keep a built-in model for `stored`: a line per layer."""
    plain = {field.name: field.default for field in fields(Layer)}
    rows = [
        {key: value for key, value in asdict(layer).items() if value not in ([], None) and value != plain[key]}
        | {key: getattr(layer, key) for key in ("output", "parameters", "row", "macs")}
        for layer in model.layers
    ]
    head = {"name": model.name, "source": model.source, "built_as": model.built_as, "decided": model.decided}
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = json.dumps(head)[:-1] + f',\n "layers": [\n  {lines}\n]}}\n'
    atomic_write(MEASURED / f"{name}.json", text)
