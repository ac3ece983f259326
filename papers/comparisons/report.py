"""Two measured models as a page: headline, sides, deltas, GPU table, layer by layer, what this is not.

A `Report` holds every text once; `view_text` and `view_html` only lay it out, and `as_json` gives it to machines.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from papers.comparisons.machine import layer_json, model_json
from shared.graph.align import ADDED, CHANGED, REMOVED, SAME, Row, align, counts
from shared.graph.cost import Assumptions, Fit, fits, memory, train_cost
from shared.graph.fold import Fold, fold
from shared.graph.layers import text
from shared.graph.measure import Layer, Model
from shared.graph.names import dollars, gigabytes, label, percent, short

NO_SIDE, BLANK = "—", "(blank)"
LARGE = 10  # from this ratio on a change prints as "114× the size"

DERIVED = (
    "Parameter counts are derived from the graph, not read from a checkpoint. They are exact for a graph that is fully "
    "specified and approximate for one that is not."
)
ESTIMATES = "Cost and GPU fit are estimates from the graph under one set of assumptions, not measurements of a run."
BUILT = (
    "Parameter counts of a real model are those of the module that its library builds from the configuration; no "
    "checkpoint is read."
)
HIGHLIGHT = (
    "A highlighted row is a card one of them fits and the other does not, which is the difference that decides a "
    "purchase."
)
UNDECLARED = (
    "Not every input declares a shape, so memory, cost and GPU fit hold only as far as a layer's size follows from its "
    "settings."
)


@dataclass
class Side:
    """One column's texts, in the order of the page."""

    model: Model
    cells: dict[str, str]
    fits: list[Fit]


@dataclass
class Report:
    """The comparison of `models[1]` with `models[0]`. `right` rules or a publication's are in the models' convention.

    traced      some side was built as a torch module
    page        print as the pages do: nothing beyond their lines
    """

    models: tuple[Model, Model]
    assumed: Assumptions = field(default_factory=Assumptions)
    page: bool = False
    traced: bool = False

    @cached_property
    def rows(self) -> list[Row]:
        return align(*self.models, self.models[0].convention)

    @cached_property
    def counts(self) -> dict[str, int]:
        return counts(self.rows)

    @cached_property
    def folds(self) -> list[Fold[Row]]:
        """The rows with repeated blocks as one."""
        return fold(self.rows, self._signature)

    def _signature(self, row: Row) -> tuple:
        return (row.status, *row.changed, *(self._looks(layer) for layer in (row.left, row.right)))

    def _looks(self, layer: Layer | None) -> tuple | None:
        if layer is None:
            return None
        return (layer.type, layer.output, layer.row, layer.parameters, layer.macs, repr(layer.settings), layer.problem)

    # the page's texts -----------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        return f"{self.models[0].name} vs {self.models[1].name}"

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
        # the pages say "layers" of rows, inputs and outputs among them
        layers = ("layer" if self.page else "row") + ("" if added == 1 else "s")
        return f"{right.name} has {size}: {added} {layers} added, {removed} removed, {changed} changed."

    @property
    def _some_unknown(self) -> bool:
        return any(model.unknown("parameters") for model in self.models)

    @property
    def relative(self) -> str:
        return f"{self.models[1].name} relative to {self.models[0].name}"

    @property
    def parameter_delta(self) -> str:
        left, right = (model.parameters for model in self.models)
        sign = "+" if right >= left else "-"
        words = f"{sign}{short(abs(right - left))}"
        if self._some_unknown:
            return f"{words} in the layers whose parameters are known"
        if not left:
            return words
        ratio = right / left
        return f"{words} ({f'{ratio:.0f}× the size' if ratio >= LARGE else percent(ratio - 1)})"

    @property
    def layer_delta(self) -> str:
        left, right = (len(model.body) for model in self.models)
        return f"{right - left:+d}"

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        return self._side(self.models[0]), self._side(self.models[1])

    def _side(self, model: Model) -> Side:
        found = fits(model, self.assumed)
        cells = {
            "name": model.name,
            "Layers": str(len(model.body)),
            "Parameters": self.total(model, "parameters"),
            "Input": self._ends(model.inputs if model.convention.every_input else model.inputs[:1]),
            "Output": self._ends(model.outputs),
            "Forward-passes": model.forward,
            "Est. train cost": ("at least " if model.unknown("macs") else "")
            + dollars(train_cost(model, self.assumed).dollars),
        }
        for fit in found:
            cells[fit.gpu] = self._fit_words(fit)
        if not self.page:
            need = memory(model, self.assumed)
            cells["MACs"] = self.total(model, "macs")
            least = "" if model.memory_known else "at least "
            cells["Training memory"] = f"{least}{gigabytes(need.training)} at batch {self.assumed.batch:,}"
            cells["Inference memory"] = f"{least}{gigabytes(need.inference)} at batch {self.assumed.batch:,}"
        return Side(model, cells, found)

    def total(self, model: Model, count: str) -> str:
        unknown = model.unknown(count)
        words = short(model.total(count))
        if not unknown:
            return words if self.page else f"{words} ({model.total(count):,})"
        return f"at least {words} ({len(unknown)} {'layer' if len(unknown) == 1 else 'layers'} unknown)"

    def _fit_words(self, fit: Fit) -> str:
        if fit.fits is None:
            return "unknown: a layer's memory is not known"
        if self.page:
            return "fits" if fit.fits else "does not fit"
        if fit.fits:
            return f"fits (batch up to {fit.largest_batch:,})" if fit.largest_batch is not None else "fits"
        return f"does not fit (batch up to {fit.largest_batch:,})" if fit.largest_batch else "does not fit"

    def _ends(self, layers: list[Layer]) -> str:
        return " and ".join(text(layer.output) for layer in layers) or "none"

    @property
    def same_input(self) -> bool:
        """Whether the sides show the same input."""
        return self.sides[0].cells["Input"] == self.sides[1].cells["Input"]

    @property
    def gpu_note(self) -> str:
        if not self._declared:
            return UNDECLARED
        if self.same_input:
            words = "Memory for the graph at the input shape both declare."
            return f"{words} {HIGHLIGHT}" if self.page else words
        return (
            f"Each side is measured at its own declared input ({self._inputs()}). Both columns are right about their "
            "own model; the difference between them is not a fact about the designs."
        )

    @property
    def _declared(self) -> bool:
        """Whether both sides say what comes in."""
        return all(model.inputs and all(layer.output for layer in model.inputs) for model in self.models)

    def _inputs(self) -> str:
        return " against ".join(side.cells["Input"] for side in self.sides)

    @property
    def row_count_line(self) -> str:
        return (
            f"Aligned in topological order. {self.counts[SAME]} of {len(self.rows)} rows are the same layer with the "
            "same parameters."
        )

    @property
    def notes(self) -> list[str]:
        """What this is not."""
        found = []
        if not self._declared:
            found.append(UNDECLARED)
        elif not self.same_input:
            found.append(
                f"The two are priced at different declared inputs ({self._inputs()}), so memory, cost and GPU fit are "
                "each right about their own model and are not a comparison between them. The layer and parameter "
                "deltas are unaffected."
            )
        found += [DERIVED, ESTIMATES] if not self.traced else [BUILT, ESTIMATES]
        for model in self.models:
            if model.unknown_types:
                names = ", ".join(f"{name} × {times}" for name, times in model.unknown_types.items())
                found.append(f"{model.name} has layers of unknown type ({names}); they are in no total.")
        return found

    @property
    def remarks(self) -> list[str]:
        """What was noticed while reading: assumptions and problems of single layers, equal ones together."""
        found: dict[tuple[str, str], list[str]] = {}
        for model in self.models:
            for layer in model.layers:
                for note in ([f"cannot take its input: it {layer.problem}"] if layer.problem else []) + layer.notes:
                    found.setdefault((model.name, note), []).append(layer.name)
        lines = []
        for (name, note), layers in found.items():
            more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
            lines.append(f"{name}, {layers[0]}{more}: {note}")
        return lines

    # one row --------------------------------------------------------------------------------------------------------

    def status(self, row: Row) -> str:
        return f"{row.status} ({', '.join(row.changed)})" if row.changed else row.status

    def layer_cells(self, layer: Layer) -> dict[str, str]:
        return {
            "name": layer.name,
            "type": label(layer.type),
            "params": "?" if layer.row is None else short(layer.row) if layer.row else "",
            "output": text(layer.output),
        }

    # for machines ---------------------------------------------------------------------------------------------------

    def as_json(self, *, every_row: bool = True) -> dict[str, Any]:
        """Everything, with the counts at full precision. None stands for unknown.

        Without `every_row` a repeated block's rows stand once, with `times`.
        """
        rows = [
            {
                "number": number,
                "status": row.status,
                "changed": row.changed,
                "left": layer_json(row.left),
                "right": layer_json(row.right),
            }
            for number, row in self._numbered(every_row)
        ]
        return {
            "title": self.title,
            "headline": self.headline,
            "convention": self.models[0].convention.name,
            "assumptions": asdict(self.assumed),
            "sides": [model_json(side.model, self.assumed) | {"printed": side.cells} for side in self.sides],
            "deltas": {
                "parameters": self.models[1].parameters - self.models[0].parameters,
                "layers": len(self.models[1].body) - len(self.models[0].body),
                "printed": [self.parameter_delta, self.layer_delta],
                **self.counts,
            },
            "rows": rows,
            "folded": [
                {"first_row": part.start + 1, "rows": len(part.items), "times": part.times} for part in self.folds
            ],
            "notes": self.notes,
            "remarks": self.remarks,
        }

    def _numbered(self, every_row: bool) -> list[tuple[int, Row]]:
        if every_row:
            return list(enumerate(self.rows, 1))
        return [(part.start + at, row) for part in self.folds for at, row in enumerate(part.items, 1)]
