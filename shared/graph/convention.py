"""How things are counted, as one object that is passed in. `RIGHT` is what a framework would count.

A publication that counts otherwise brings its own `Convention`: a few switches, and a table of formulas that stand in
place of those in the table of kinds. No kind asks which publication it is counted for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

Formula = Callable[[Any], Any] | str | int  # of a `place.Place`: a function, an expression in its sizes, a constant


@dataclass(frozen=True)
class Override:
    """Other formulas for the kinds `types`, by the names that they have in the table of kinds.

    words       why a count differs, as a sentence for the reader
    formulas    `parameters`, `macs`, or one of the kind's sizes -> the formula in its place
    rows        only the rows that count from their own settings (`Convention.declared_rows`) use it
    """

    words: str
    types: frozenset[str]
    formulas: dict[str, Formula]
    rows: bool = False


def _switch(default: bool, words: str) -> Any:
    """A field with the sentence that explains a number which it changes."""
    return field(default=default, metadata={"words": words})


@dataclass(frozen=True)
class Convention:
    """Every way in which two counts of one graph may differ. `words` of a field say why a number does."""

    name: str = "right"
    declared_rows: bool = _switch(
        False, "a row counts from its own settings alone; a size that they lack is not taken from the shape"
    )
    tied: bool = _switch(True, "weights that the graph declares tied are counted once for each layer that uses them")
    activations_in_memory: bool = _switch(True, "memory leaves the activations out")
    every_input: bool = _switch(True, "only the first input is shown")
    key_names: bool = _switch(False, "settings are compared by the names of their keys, not by what they mean")
    symmetric: bool = _switch(True, "ties of the alignment do not mind which side is left")
    file_order: bool = _switch(False, "sources are taken in file order, not in the order of their connections")
    overrides: tuple[Override, ...] = ()

    def formula(self, type: str, name: str, declared: bool) -> Formula | None:
        """What stands in place of the kind's own formula; None: nothing. `declared`: a row counts from its settings."""
        for override in self.overrides:
            if type in override.types and name in override.formulas and (declared or not override.rows):
                return override.formulas[name]
        return None


RIGHT = Convention()


def steps(start: Convention, goal: Convention) -> Iterator[tuple[str, Convention]]:
    """One convention for each rule in which `start` and `goal` differ: `start` with that rule alone taken from `goal`.

    Measuring under each says which rule is behind a difference. Yields (words, convention).
    """
    for rule in fields(start):
        if "words" in rule.metadata and getattr(start, rule.name) != getattr(goal, rule.name):
            yield rule.metadata["words"], replace(start, **{rule.name: getattr(goal, rule.name)})
    for override in goal.overrides:
        if override not in start.overrides:
            yield override.words, replace(start, overrides=(*start.overrides, override))
