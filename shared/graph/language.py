"""What is asked of a language model: active parameters, the cache of keys and values, weights in few bits, adapters.

    asked = language(model)          None for a model without tokens
    asked.cache(length)              numbers that one sequence of so many tokens keeps
    weight_bytes(model)              by how weights are stored; training_bytes(model): by how they are trained

All of it is read off the rows, so a graph file and a built module are answered alike.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from shared.graph.kinds import ATTENTION_TYPES, POSITION_TYPES, label
from shared.graph.measure import Layer, Model

CAUSAL = frozenset({"causalAttention", "multiQueryAttention", "slidingWindowAttention"})
# groups of weights share a scale of 16 bits: 128 as GPTQ and AWQ store them, 32 in MXFP4 with a scale of 8 bits
BITS = {"int8": 8 + 16 / 128, "int4": 4 + 16 / 128, "mxfp4": 4 + 8 / 32}
PLAIN = {"float32": 4, "bfloat16": 2}
RANK = 16  # of LoRA's adapters


@dataclass(frozen=True)
class Attends:
    """Attention layers that are alike: how many, what a token adds to the cache, how far a query sees."""

    layers: int
    type: str
    causal: bool | None
    window: int | None
    cached: int

    @property
    def words(self) -> str:
        mask = {True: "causal", False: "not causal", None: "causal or not is not said"}[self.causal]
        sees = f"a window of {self.window:,} tokens" if self.window else "no window"
        return f"{self.layers} × {label(self.type)}: {mask}, {sees}, {self.cached:,} numbers of a token in the cache"


@dataclass(frozen=True)
class Language:
    """Counts of parameters and the layers that attend.

    length: tokens of the measured input. head: whether some layer gives a number for each token of the vocabulary.
    """

    parameters: int
    active: int
    embedding: int
    length: int | None
    attention: tuple[Attends, ...]
    head: bool

    @property
    def caching(self) -> list[Attends]:
        """The layers that keep earlier tokens: the causal ones. Where none says so, all of them, but only in a model
        that gives numbers for the vocabulary and whose attention is all of one type."""
        said = [one for one in self.attention if one.causal]
        alike = self.head and len({one.type for one in self.attention}) == 1
        return said or [one for one in self.attention if alike and one.causal is None]

    @property
    def assumed(self) -> bool:
        """Whether the layers of the cache are only taken to be causal."""
        return any(one.causal is None for one in self.caching)

    def cache(self, length: int) -> int:
        """Numbers that one sequence of `length` tokens keeps."""
        return sum(
            one.layers * one.cached * (min(length, one.window) if one.window else length) for one in self.caching
        )


def active(model: Model) -> int:
    """Parameters that work on one token: of the experts only those that it is sent to."""
    return sum((layer.parameters or 0) if layer.active is None else layer.active for layer in model.layers)


def language(model: Model) -> Language | None:
    """None for a model that looks up no tokens, or has no attention."""
    embeddings = [one for one in model.layers if one.type in ("embedding", "embeddingBag")]
    attending = Counter(found for layer in model.layers if (found := _attends(layer)))
    if not embeddings or not attending:
        return None
    positions = sum(one.parameters or 0 for one in model.layers if one.type in POSITION_TYPES)
    shape = embeddings[0].output or ()
    return Language(
        parameters=model.parameters,
        active=active(model),
        embedding=sum(one.parameters or 0 for one in embeddings) + positions,
        length=shape[-2] if len(shape) > 1 else None,
        attention=tuple(
            Attends(count * times, type, causal, window, cached // times)
            for (type, causal, window, cached, times), count in attending.items()
        ),
        head=any(_is_head(layer, _vocabularies(model)) for layer in model.layers),
    )


def _attends(layer: Layer) -> tuple[str, bool | None, int | None, int, int] | None:
    """Type, causal, window, cached numbers of a token, and how many layers the row stands for."""
    if layer.type not in ATTENTION_TYPES or not layer.cached:
        return None
    given = layer.settings
    said = given.get("causal", given.get("isCausal"))
    causal = True if layer.type in CAUSAL or layer.type == "mla" else said if isinstance(said, bool) else None
    causal = False if layer.type == "crossAttention" else causal
    window, times = (value if type(value) is int else None for value in map(given.get, ("windowSize", "numLayers")))
    return layer.type, causal, window, layer.cached, times or 1


def _vocabularies(model: Model) -> set[Any]:
    return {
        layer.settings.get(key)
        for layer in model.layers
        if layer.type == "embedding"
        for key in ("numEmbeddings", "vocabSize")
        if layer.settings.get(key)
    }


def _is_head(layer: Layer, vocabularies: set[Any]) -> bool:
    """Whether a layer gives a number for each token of the vocabulary."""
    return layer.type == "lmHead" or (layer.type == "linear" and layer.settings.get("outFeatures") in vocabularies)


def matrices(model: Model) -> int:
    """Weights that a quantised model stores in few bits: those of linear layers, attention and experts, but for the
    layer that gives a number for each token of the vocabulary."""
    known = _vocabularies(model)
    found = [one for one in model.layers if (one.sides or one.active is not None) and not _is_head(one, known)]
    return sum(layer.parameters or 0 for layer in found)


def weight_bytes(model: Model) -> dict[str, float]:
    """Bytes of all weights by how they are stored; in few bits only the matrices, the rest in 16."""
    few = matrices(model)
    plain = {name: float(model.parameters * size) for name, size in PLAIN.items()}
    return plain | {name: few * bits / 8 + (model.parameters - few) * 2 for name, bits in BITS.items() if few}


def training_bytes(model: Model) -> dict[str, float]:
    """Weights, gradients and optimiser state, without activations."""
    count, adapters = model.parameters, RANK * sum(layer.sides for layer in model.layers)
    found = {
        "AdamW, float32": 16.0 * count,
        "AdamW, bfloat16 with a float32 copy": 16.0 * count,
        "AdamW with 8-bit states, bfloat16": 6.0 * count,
    }
    if adapters:
        found[f"LoRA of rank {RANK}, bfloat16"] = 2.0 * count + 16.0 * adapters
        found[f"QLoRA of rank {RANK}, int4"] = weight_bytes(model).get("int4", 2.0 * count) + 16.0 * adapters
    return found
