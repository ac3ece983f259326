"""One layer where it stands in a graph, and what a row of the table of kinds may ask of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import ceil, prod
from types import CodeType
from typing import Any

from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention, Formula
from shared.graph.read import LARGEST_SIZE, Node, integer, sizes
from shared.text import quoted

Shape = tuple[int, ...]


class Missing(Exception):
    """A size that neither the settings nor the shapes give: the count is unknown."""


class Mismatch(Exception):
    """The layer cannot take its input. `shape` is what it would give by its own settings (None: unknown)."""

    def __init__(self, message: str, shape: Shape | None = None):
        super().__init__(message)
        self.shape = shape


@dataclass(frozen=True)
class Size:
    """A size that the settings give under one of `keys`; the first key is its usual name, the others are aliases.

    default     a formula where the settings do not say; None: the size is then Missing
    least       the smallest number that a setting may be
    product     the setting may be a list: the size is its product
    """

    keys: tuple[str, ...]
    default: Formula | None = None
    least: int = 1
    product: bool = False

    def given(self, p: Place) -> int | None:
        """What the settings say. Raises UserError for a number that is negative, fractional or none."""
        key, value = p.setting(*self.keys)
        if value is None:
            return None
        if self.product:
            return prod(p.shape_setting(*self.keys))
        found = integer(value)
        if found is None or not self.least <= found <= LARGEST_SIZE:
            raise p.bad(f"{key}: expected a whole number of at least {self.least}, got {quoted(value)}")
        return found


def size(keys: str, default: Formula | None = None, **options: Any) -> Size:
    """`size("embedDim dim", default)`: keys in one string, the usual name first."""
    return Size(tuple(keys.split()), default, **options)


@dataclass(frozen=True)
class Kind:
    """One row of the table. Each formula may raise Missing (unknown) or Mismatch (does not pass forward).

    shape       shape of the output
    parameters  trained numbers
    macs        multiply-accumulates of matrix products and convolutions in one forward pass
    kept        numbers kept for the backward pass, for one declared input; usually the output
    sizes       the names that the formulas use
    axis        which axis of the output holds its features, from the end; None: as in what comes in
    rank        axes of one sample of what comes in, where the kind tells: one more is a batch
    biased      whether the layer has biases where its settings do not say
    family      `normalisation` (these align with each other), `activation`, `attention`, or `positions` (a source of
                position information, which is neither an operand nor a key where it is a parent)
    """

    shape: Callable[[Place], Shape] = lambda p: p.x
    parameters: Formula = 0
    macs: Formula = 0
    kept: Formula = "values"
    sizes: dict[str, Size | Formula] = field(default_factory=dict)
    axis: Formula | None = None
    rank: int = 0
    biased: bool = True
    family: str = ""

    @cached_property
    def rules(self) -> dict[str, Size | Formula]:
        """Every count and size of the row by its name."""
        return COMMON | self.sizes | {"parameters": self.parameters, "macs": self.macs, "kept": self.kept}

    @property
    def aliases(self) -> list[tuple[str, ...]]:
        """Keys of one meaning, the usual name first."""
        return [rule.keys for rule in self.sizes.values() if isinstance(rule, Size) and len(rule.keys) > 1]


# what every row may use: numbers of the output, vectors of `width` numbers in the input, switches of the settings
COMMON: dict[str, Formula] = {
    "values": lambda p: prod(p.out),
    "tokens": lambda p: prod(p.x) // p.width if prod(p.x) % p.width == 0 else prod(p.x[:-1]),
    "bias": lambda p: p.flag("bias", p.kind.biased),
    "sides": 0,
    "cached": 0,
    "working": lambda p: p.parameters,
    "affine": lambda p: p.flag("affine", True) and p.flag("elementwiseAffine", True),
}
_FUNCTIONS = {"__builtins__": {}, "ceil": ceil, "len": len, "max": max, "min": min, "prod": prod}


@cache
def compiled(formula: str) -> CodeType:
    return compile(formula, formula, "eval")


@dataclass
class Place:
    """One layer: its kind, its settings, the shapes that come in, the convention, remarks made on the way.

    `inputs` are the shapes of the parents in connection order (None: unknown). With `declared` nothing is known but
    the settings: the rows of a publication that counts so. `axes` say which axis of each input holds its features, from
    the end (None: nothing tells, so it is the last), `origins` the parents' types.
    """

    kind: Kind | None
    node: Node
    inputs: list[Shape | None]
    convention: Convention = RIGHT
    source: str = ""
    declared: bool = False
    axes: Sequence[int | None] = ()
    origins: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        """A count or size of the kind's row by its name, worked out once. A convention's own formula goes first."""
        rules = self.kind.rules if self.kind and not name.startswith("_") else {}
        if name not in rules:
            raise AttributeError(f"{name}: no size of this kind")
        rule = self.convention.formula(self.node.type, name, self.declared)
        rule = rules[name] if rule is None else rule
        value = rule.given(self) if isinstance(rule, Size) else None
        if value is None:
            formula = rule.default if isinstance(rule, Size) else rule
            if formula is None:
                raise Missing(rule.keys[0])  # type: ignore[union-attr]
            # formulas are the table's and the conventions' own text, never a file's
            value = eval(compiled(formula), _FUNCTIONS, self) if isinstance(formula, str) else formula
            value = value(self) if callable(value) else value
        self.__dict__[name] = value
        return value

    def __getitem__(self, name: str) -> Any:
        """The names in a formula."""
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    @property
    def x(self) -> Shape:
        """The main input's shape; Missing if it is unknown."""
        if not self.inputs or self.inputs[0] is None or self.declared:
            raise Missing("its input")
        return self.inputs[0]

    @property
    def xs(self) -> list[Shape]:
        """Every input's shape, for merges; Missing if one is unknown."""
        known = [shape for shape in self.inputs if shape is not None]
        if not known or len(known) < len(self.inputs):
            raise Missing("one of its inputs" if self.inputs else "its input")
        return known

    @property
    def at(self) -> int:
        """Which axis of the main input holds its features, from the end: of what a convolution gives, its channels."""
        axis = self.axes[0] if self.axes else None
        return axis if axis is not None and len(self.x) >= -axis else -1

    @property
    def features(self) -> int:
        """How many features come in. A number of tokens or pixels is never one of them."""
        return self.x[self.at]

    @property
    def out_axis(self) -> int | None:
        """Which axis of the output holds its features, from the end; None: nothing tells."""
        rule = self.kind.axis if self.kind else None
        if rule is not None:
            found = eval(compiled(rule), _FUNCTIONS, self) if isinstance(rule, str) else rule
            return found(self) if callable(found) else found
        if "used_axis" in self.__dict__:
            return self.used_axis
        kept = self.axes and self.inputs[0] is not None and len(self.inputs[0]) == len(self.out)
        return self.axes[0] if kept else None

    @cached_property
    def out(self) -> Shape:
        """The output's shape. Raises Missing (unknown) or Mismatch (does not pass forward)."""
        return self.kind.shape(self)

    def bad(self, message: str) -> UserError:
        return UserError(f"{self.source}: node {quoted(self.node.id)} ({self.node.type}): {message}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def setting(self, *keys: str) -> tuple[str, Any]:
        """The first of these keys that the settings have with a value, and the value; None if there is none."""
        key = next((key for key in keys if self.node.settings.get(key) is not None), keys[0])
        return key, self.node.settings.get(key)

    def shape_setting(self, *keys: str) -> Shape:
        """A setting that is a shape or one number; () if there is none."""
        key, value = self.setting(*keys)
        where = f"{self.source}: node {quoted(self.node.id)} ({self.node.type}): {key}"
        return () if value is None else sizes(value, where)

    def given(self, name: str) -> int | None:
        """What the settings alone say of a size of the row; None: nothing."""
        rule = self.kind.sizes[name]
        return rule.given(self) if isinstance(rule, Size) else None

    def flag(self, key: str, default: bool) -> bool:
        _, value = self.setting(key)
        if value is not None and not isinstance(value, bool) and value not in (0, 1):
            raise self.bad(f"{key}: expected true or false, got {quoted(value)}")
        return default if value is None else bool(value)

    def each(self, keys: str, default: Shape | int | None = None, least: int = 1) -> Shape:
        """A kernel, stride or padding: one number for all `window_axes` of the row, or a list of one an axis."""
        (key, value), axes = self.setting(*keys.split()), self.window_axes
        if value is None and default is None:
            raise Missing(key)
        if value is None:
            return default if isinstance(default, tuple) else (default,) * axes  # type: ignore[return-value]
        found = [integer(item) for item in (value if isinstance(value, list) else [value] * axes)]
        if len(found) != axes or any(item is None or not least <= item <= LARGEST_SIZE for item in found):
            raise self.bad(f"{key}: expected {axes} whole numbers of at least {least}, or one, got {quoted(value)}")
        return tuple(item for item in found if item is not None)

    def axis(self, features: int, result: Shape | None = None) -> int:
        """Which axis of the input holds `features`: the last, or else a channel axis. Raises Mismatch."""
        x = self.x
        for axis in (self.at, -1, -3, -2):
            if len(x) >= -axis and x[axis] == features:
                self.__dict__["used_axis"] = axis
                if axis != -1:
                    self.note(f"its {features} features are axis {len(x) + axis + 1} of {text(x)}: a channel axis")
                return len(x) + axis
        raise Mismatch(f"expects {features:,} features, gets {text(x)}", result or (*x[:-1], features))


def text(shape: Shape | None) -> str:
    """`1 × 512 × 768`; `?` for an unknown shape."""
    return "?" if shape is None else " × ".join(map(str, shape))
