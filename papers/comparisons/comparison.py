"""The comparison of two models, as one object: sums, aligned rows and every text that a reader sees.

    compared = compare(left, right)         two measured models
    as_text(compared)                       papers/comparisons/text.py: screen, log, markdown
    as_html(compared, ...)                  papers/comparisons/webpage.py
    compared.as_json()                      every count at full precision; null is unknown

The texts stand here once; the other files only lay them out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import msgspec

from papers.comparisons.needs import needs, shapes
from papers.comparisons.whole import Part
from shared.graph.align import ADDED, CHANGED, REMOVED, SAME, Row, align, counts
from shared.graph.convention import RIGHT
from shared.graph.cost import GPUS, Assumptions, Fit, dollars, fits, memory, percent, short, train_cost
from shared.graph.fold import Fold, fold
from shared.graph.kinds import label
from shared.graph.measure import Layer, Model
from shared.graph.place import text

NO_SIDE, BLANK = "—", "(blank)"
LARGE = 10  # from this ratio on a change prints as "114× the size"
_LOOKS = attrgetter("type", "output", "row", "parameters", "macs", "problem")  # rows of a block that repeats are equal

# the pages' own sentences, letter by letter
DERIVED = (
    "Parameter counts are derived from the graph, not read from a checkpoint. They are exact for a graph that is fully "
    "specified and approximate for one that is not."
)
ESTIMATES = "Cost and GPU fit are estimates from the graph under one set of assumptions, not measurements of a run."
HIGHLIGHT = (
    "A highlighted row is a card one of them fits and the other does not, which is the difference that decides a "
    "purchase."
)
# and the suite's
BUILT = (
    "Parameter counts of a real model are those of the module that its library builds from the configuration; no "
    "checkpoint is read."
)
UNDECLARED = (
    "Not every input declares a shape, so memory, cost and GPU fit hold only as far as a layer's size follows from its "
    "settings."
)


@dataclass
class Comparison:
    """`models[1]` relative to `models[0]`, both measured under one convention.

    built: some side was built as a torch module, so its counts are the library's.
    partial: what is known of each side that is only a part of its model.
    inputs_note: how both came to the same input, where one of them was not measured at its own.
    gpus: decimal GB by name.
    """

    models: tuple[Model, Model]
    assumed: Assumptions = field(default_factory=Assumptions)
    built: bool = False
    partial: Sequence[Part | None] = (None, None)
    inputs_note: str = ""
    gpus: Mapping[str, float] = field(default_factory=lambda: GPUS)

    def __post_init__(self) -> None:
        left, right = self.models
        # as the comparison pages count; then it prints no more than they do
        self.as_published = left.convention != RIGHT
        self.fits = fits(left, self.assumed, self.gpus), fits(right, self.assumed, self.gpus)
        self.sides = self._cells(left, self.fits[0]), self._cells(right, self.fits[1])
        self.keys = [key for key in self.sides[0] if key != "name"]
        inputs = [cells["Input"] for cells in self.sides]
        self.same_input, self._inputs = inputs[0] == inputs[1], " against ".join(inputs)
        # whether both sides say what comes in, and whether some layer cannot be counted
        self._declared = all(model.inputs and all(layer.output for layer in model.inputs) for model in self.models)
        self._some_unknown = any(model.unknown("parameters") for model in self.models)
        self.title = f"{left.name} vs {right.name}"
        self.relative = f"{right.name} relative to {left.name}"
        self.layer_delta = f"{len(right.body) - len(left.body):+d}"

    # aligning takes the longest, so it waits until somebody asks
    @cached_property
    def rows(self) -> list[Row]:
        return align(*self.models, self.models[0].convention)

    @cached_property
    def counts(self) -> dict[str, int]:
        return counts(self.rows)

    @cached_property
    def folds(self) -> list[Fold[Row]]:
        """The rows, a block that repeats kept once."""

        def looks(layer: Layer | None) -> tuple | None:
            return layer and (*_LOOKS(layer), repr(layer.settings))

        return fold(self.rows, lambda row: (row.status, *row.changed, looks(row.left), looks(row.right)))

    def parts(self, folded: bool) -> list[Fold[Row]]:
        return self.folds if folded else [Fold(self.rows, 1, 0)]

    @property
    def banners(self) -> list[str]:
        """Which part of its model each side is. Stands before anything that is said of the two."""
        return list(dict.fromkeys(part.banner for part in self.partial if part))

    @property
    def about(self) -> str:
        """The same in a few words, to stand beside memory, fit and cost; "" where both sides are whole."""
        words = "; ".join(dict.fromkeys(part.words for part in self.partial if part))
        return words and f"Memory, fit and cost below are of the graph, not of the real model ({words})."

    @property
    def inputs_differ(self) -> str:
        """To be said first: that the sides are not counted at the same input; "" where they are."""
        if self.same_input or not self._declared:
            return ""
        sides = ", ".join(f"{model.name} takes {shapes(model.inputs)}" for model in self.models)
        return (
            f"The inputs differ: {sides}. MACs, memory, fit and cost are each at its own input and do not compare the "
            "designs; parameters do."
        )

    @property
    def changes(self) -> list[tuple[str, str]]:
        """What changes from the first side to the second; operations only where the inputs are the same."""
        left, right = self.models
        found = [("Parameters", self.parameter_delta), ("Layers", self.layer_delta)]
        if (
            not self.as_published
            and self.same_input
            and left.macs
            and all(model.total_is("macs") == "exact" for model in self.models)
        ):
            change = right.macs - left.macs
            words = f"{'+' if change >= 0 else '-'}{short(abs(change))} ({percent(change / left.macs)})"
            found.insert(1, ("MACs", words))
        return found

    # the page's texts -----------------------------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        left, right = self.models
        change = right.parameters - left.parameters
        if self._some_unknown:
            first, second = (
                ("at least " if model.unknown("parameters") else "") + short(model.parameters) for model in self.models
            )
            size = f"{second} parameters, {left.name} {first}"
        elif change == 0:
            size = f"as many parameters as {left.name}"
        else:
            size = f"{short(abs(change))} {'more' if change > 0 else 'fewer'} parameters than {left.name}"
        added, removed, changed = (self.counts[status] for status in (ADDED, REMOVED, CHANGED))
        # the pages call rows "layers", inputs and outputs among them
        layers = ("layer" if self.as_published else "row") + ("" if added == 1 else "s")
        return f"{right.name} has {size}: {added} {layers} added, {removed} removed, {changed} changed."

    @property
    def parameter_delta(self) -> str:
        left, right = (model.parameters for model in self.models)
        words = f"{'+' if right >= left else '-'}{short(abs(right - left))}"
        if self._some_unknown:
            return f"{words} in the layers whose parameters are known"
        if not left:
            return words
        ratio = right / left
        return f"{words} ({f'{ratio:.0f}× the size' if ratio >= LARGE else percent(ratio - 1)})"

    def _cells(self, model: Model, gpus: list[Fit]) -> dict[str, str]:
        """One model's column, in the order of the page."""
        if not self.as_published:
            return {"name": model.name, **needs(model, self.assumed, gpus)}
        return {
            "name": model.name,
            "Layers": str(len(model.body)),
            "Parameters": short(model.parameters),
            "Input": shapes(model.inputs if model.convention.every_input else model.inputs[:1]),
            "Output": shapes(model.outputs),
            "Forward-passes": model.forward,
            "Est. train cost": dollars(train_cost(model, self.assumed).dollars),
            **{fit.gpu: "fits" if fit.fits else "does not fit" for fit in gpus},
        }

    @property
    def decisive(self) -> list[str]:
        """The keys of GPUs that one side fits and the other does not."""
        keys = [key for key in self.gpu_keys if not key.endswith(", inference")]
        return [k for k, one, other in zip(keys, *self.fits, strict=True) if {one.fits, other.fits} == {True, False}]

    @property
    def gpu_keys(self) -> list[str]:
        """The keys of `sides` that say which GPU holds what."""
        return [key for key in self.keys if key.partition(",")[0] in self.gpus]

    @property
    def count_line(self) -> str:
        n = self.counts
        return f"Added {n[ADDED]}, removed {n[REMOVED]}, changed {n[CHANGED]}, unchanged {n[SAME]}"

    @property
    def row_count_line(self) -> str:
        of = f"{self.counts[SAME]} of {len(self.rows)} rows"
        return f"Aligned in topological order. {of} are the same layer with the same parameters."

    @property
    def gpu_note(self) -> str:
        if not self._declared:
            return UNDECLARED
        if self.same_input:
            words = "Memory for the graph at the input shape both declare."
            return f"{words} {HIGHLIGHT}" if self.as_published else words
        # the pages add that both columns are right about their own model, which a graph of one block is not
        right = "Both columns are right about their own model; the" if self.as_published else "The"
        return (
            f"Each side is measured at its own declared input ({self._inputs}). {right} difference between them is not "
            "a fact about the designs."
        )

    @property
    def notes(self) -> list[str]:
        """What this is not."""
        notes = [BUILT if self.built else DERIVED, ESTIMATES]
        if not self._declared:
            notes.insert(0, UNDECLARED)
        elif not self.same_input:
            notes.insert(
                0,
                f"The two are priced at different declared inputs ({self._inputs}), so memory, cost and GPU fit are "
                f"{'each right about their own model and are ' if self.as_published else ''}not a comparison between "
                "them. The layer and parameter deltas are unaffected.",
            )
        for model in self.models:
            if model.unknown_types:
                names = ", ".join(f"{name} × {times}" for name, times in model.unknown_types.items())
                notes.append(f"{model.name} has layers of unknown type ({names}); they are in no total.")
        return notes

    @property
    def remarks(self) -> list[str]:
        """Assumptions and problems of single layers, equal ones together."""
        layers: dict[tuple[str, str], list[str]] = {}
        said = [f"{model.name}: {model.lacks}" for model in self.models if model.lacks]
        for model in self.models:
            for layer in model.layers:
                for note in ([f"cannot take its input: it {layer.problem}"] if layer.problem else []) + layer.notes:
                    layers.setdefault((model.name, note), []).append(layer.name)
        return said + [
            f"{model}, {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {note}"
            for (model, note), names in layers.items()
        ]

    # one row --------------------------------------------------------------------------------------------------------

    def status(self, row: Row) -> str:
        """The pages name the settings that change; the correct count says from what to what, where the columns beside
        it do not."""
        if not row.changed:
            return row.status
        shown = ("type", "shape")
        words = [one if self.as_published or one in shown else old_to_new(row, one) for one in row.changed]
        return f"{row.status} ({', '.join(words)})"

    def layer_cells(self, layer: Layer) -> dict[str, str]:
        return {
            "name": layer.name,
            "type": label(layer.type),
            "params": "?" if layer.row is None else short(layer.row) if layer.row else "",
            "output": text(layer.output),
        }

    # for programs ---------------------------------------------------------------------------------------------------

    def as_json(self, *, every_row: bool = True) -> dict[str, Any]:
        """Everything. Without `every_row` a repeated block's rows stand once; `folded` says how often they come."""
        left, right = self.models
        return {
            "title": self.title,
            "banners": self.banners,
            "headline": self.headline,
            "inputs_differ": self.inputs_differ or None,
            "inputs_note": self.inputs_note or None,
            "convention": left.convention.name,
            "assumptions": asdict(self.assumed),
            "sides": [
                model_json(model, self.assumed, self.gpus) | {"printed": cells}
                for model, cells in zip(self.models, self.sides, strict=True)
            ],
            "deltas": {
                "parameters": right.parameters - left.parameters,
                "layers": len(right.body) - len(left.body),
                "printed": [self.parameter_delta, self.layer_delta],
                **self.counts,
            },
            "rows": [
                {
                    "number": part.start + at,
                    "status": row.status,
                    "changed": row.changed,
                    "left": row.left and layer_json(row.left),
                    "right": row.right and layer_json(row.right),
                }
                for part in self.parts(folded=not every_row)
                for at, row in enumerate(part.items, 1)
            ],
            "folded": [
                {"first_row": part.start + 1, "rows": len(part.items), "times": part.times} for part in self.folds
            ],
            "notes": self.notes,
            "remarks": self.remarks,
        }


def compare(
    left: Model,
    right: Model,
    assumed: Assumptions | None = None,
    *,
    built: bool = False,
    partial: Sequence[Part | None] = (None, None),
    inputs_note: str = "",
    gpus: Mapping[str, float] = GPUS,
) -> Comparison:
    """Two measured models side by side. Two different models of one name get their source behind it."""
    if left.name == right.name and left.source != right.source:
        left, right = (replace(model, name=f"{model.name} ({model.source})") for model in (left, right))
    return Comparison((left, right), assumed or Assumptions(), built, partial, inputs_note, gpus)


def old_to_new(row: Row, field: str) -> str:
    """`outFeatures 512 -> 768`"""
    if row.left is None or row.right is None:
        return field
    if field == "type":
        return f"type {row.left.type} -> {row.right.type}"
    if field == "shape":
        return f"shape {text(row.left.output)} -> {text(row.right.output)}"
    old, new = (json.dumps(layer.settings.get(field), ensure_ascii=False)[:40] for layer in (row.left, row.right))
    return f"{field} {old} -> {new}"


def layer_json(layer: Layer) -> dict[str, Any]:
    """One layer; null is unknown."""
    fields = {key: getattr(layer, key) for key in ("id", "name", "type", "settings", "output", "parameters")}
    problem = layer.problem or None
    return fields | {"row_parameters": layer.row, "macs": layer.macs, "problem": problem, "notes": layer.notes}


def model_json(model: Model, assumed: Assumptions, gpus: Mapping[str, float] = GPUS) -> dict[str, Any]:
    """One model's totals, memory in bytes, fit and cost; null is unknown."""
    need = memory(model, assumed)
    training = {"weights": need.weights, "gradients": need.gradients, "adam_states": need.adam}
    training |= {"activations": need.activations, "total": round(need.training)}
    inference = {"weights": need.weights, "activations": need.inference - need.weights, "total": need.inference}
    return {
        "name": model.name,
        "source": model.source,
        "layers": len(model.body),
        "parameters": model.parameters,
        "parameters_unknown_in": [layer.id for layer in model.unknown("parameters")],
        "macs": model.macs,
        "macs_unknown_in": [layer.id for layer in model.unknown("macs")],
        "totals": {what: model.total_is(what) for what in ("parameters", "macs", "memory", "cost")},
        "built_as": model.built_as or None,
        "not_run": model.not_run or None,
        "lacks": model.lacks or None,
        "stored": model.stored,
        "unknown_types": model.unknown_types,
        "inputs": [{"name": layer.name, "shape": layer.output} for layer in model.inputs],
        "outputs": [{"name": layer.name, "shape": layer.output} for layer in model.outputs],
        "forward_passes": model.passes_forward,
        "forward_problem": None if model.passes_forward else model.forward,
        "memory_bytes": {
            "batch": need.batch,
            "training": training,
            "inference": inference,
            "activations_per_sample": need.per_sample,
            "lower_bound": model.total_is("memory") == "at least",
        },
        "gpus": {
            fit.gpu: {
                "memory_gb": fit.memory_gb,
                "fits_batch": fit.fits,
                "largest_batch": fit.largest_batch,
                "largest_inference_batch": fit.largest_inference_batch,
            }
            for fit in fits(model, assumed, gpus)
        },
        "training": msgspec.structs.asdict(train_cost(model, assumed)),
    }
