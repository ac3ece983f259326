"""How things are counted, as one object that is passed in. `RIGHT` is what a framework would count.

A publication that counts otherwise brings its own `Convention`; no layer asks which publication it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any


def _rule(default: Any, words: str) -> Any:
    """A field with the sentence that explains a number which it changes."""
    return field(default=default, metadata={"words": words})


@dataclass(frozen=True)
class Convention:
    """Every way in which two counts of one graph may differ. `words` of a field say why a number does."""

    name: str = "right"
    declared_rows: bool = _rule(
        False, "a row counts from its own settings alone; a size that they lack is not taken from the shape"
    )
    row_channels: int | None = _rule(None, "a convolution row without inChannels counts this many input channels")
    unbiased: frozenset[str] = _rule(frozenset(), "the biases of this attention type are left out")
    tied: bool = _rule(True, "weights that the graph declares tied are counted once for each layer that uses them")
    learned_positions: bool = _rule(True, "learned positions are counted as 0")
    attention_products: int = _rule(2, "one of the two attention products (q k^T, weights v) is left out")
    own_key_length: bool = _rule(True, "cross attention reads its keys and values at the query's length")
    norm_macs: int = _rule(0, "element-wise operations of a normalisation are counted as multiply-accumulates")
    activation_macs: int = _rule(0, "element-wise operations of a ReLU are counted as multiply-accumulates")
    activations_in_memory: bool = _rule(True, "memory leaves the activations out")
    every_input: bool = _rule(True, "only the first input is shown")
    key_names: bool = _rule(False, "settings are compared by the names of their keys, not by what they mean")
    symmetric: bool = _rule(True, "ties of the alignment do not mind which side is left")
    file_order: bool = _rule(False, "sources are taken in file order, not in the order of their connections")


RIGHT = Convention()


def steps(start: Convention, goal: Convention) -> Iterator[tuple[str, Convention]]:
    """One convention for each rule in which `start` and `goal` differ: `start` with that rule alone taken from `goal`.

    Measuring under each says which rule is behind a difference. Yields (words, convention).
    """
    for rule in fields(start):
        if rule.name != "name" and getattr(start, rule.name) != getattr(goal, rule.name):
            yield rule.metadata["words"], replace(start, **{rule.name: getattr(goal, rule.name)})
