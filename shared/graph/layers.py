"""What a layer type is, and how a layer looks at its place in a graph.

A `Kind` says for one type of layer which shape comes out, how many parameters it has, how many multiply-accumulates
one forward pass takes, and how many numbers it keeps for the backward pass. `KINDS` holds them by type name; the
families are in `layers_dense`, `layers_attention`, `layers_conv` and `layers_other`. A type that is not there is
unknown: it is reported, its counts are None, and None stays None in every total that it would belong to.

Shapes are tuples as the files write them: images [C, H, W] or [B, C, H, W], token ids [B, L], hidden states
[L, D] or [B, L, D]. A layer's features are its last axis, or the channel axis where only that one has the size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from shared.errors import UserError
from shared.graph.convention import RIGHT, Convention
from shared.graph.read import LARGEST_SIZE, Node, integer, quoted, sizes

Shape = tuple[int, ...]


class Missing(Exception):
    """A size that neither the settings nor the shapes give: the count is unknown."""


class Mismatch(Exception):
    """The layer cannot take its input. `shape` is what it would give by its own settings (None: unknown)."""

    def __init__(self, message: str, shape: Shape | None = None):
        super().__init__(message)
        self.shape = shape


@dataclass
class Place:
    """One layer where it stands: its settings, the shapes that come in, the convention, remarks made on the way.

    `inputs` are the shapes of the parents in connection order (None: unknown). With `declared` nothing is known but
    the settings: the rows of a publication that counts so.
    """

    node: Node
    inputs: list[Shape | None]
    convention: Convention = RIGHT
    source: str = ""
    declared: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def x(self) -> Shape:
        """The main input's shape; Missing if it is unknown."""
        if not self.inputs or self.inputs[0] is None or self.declared:
            raise Missing("its input")
        return self.inputs[0]

    def bad(self, message: str) -> UserError:
        return UserError(f"{self.source}: node {quoted(self.node.id)} ({self.node.type}): {message}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def setting(self, *keys: str) -> object:
        """The first of these keys that the settings have with a value; None if there is none."""
        settings = self.node.settings
        for key in keys:
            value = settings.get(key)
            if value is not None:
                return value
        return None

    def size(self, *keys: str, least: int = 1) -> int | None:
        """A whole number of the settings. Raises UserError for a negative, fractional or non-numeric one."""
        value = self.setting(*keys)
        if value is None:
            return None
        found = integer(value)
        if found is None or not least <= found <= LARGEST_SIZE:
            raise self.bad(f"{_key(self, keys)}: expected a whole number of at least {least}, got {quoted(value)}")
        return found

    def need(self, *keys: str) -> int:
        """`size`, or Missing."""
        found = self.size(*keys)
        if found is None:
            raise Missing(keys[0])
        return found

    def flag(self, key: str, default: bool) -> bool:
        value = self.setting(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.bad(f"{key}: expected true or false, got {quoted(value)}")
        return value

    def bias(self, default: bool = True) -> bool:
        return self.flag("bias", default)

    def pair(self, *keys: str, default: int | None = None, axes: int = 2, least: int = 1) -> Shape:
        """A kernel, stride or padding: one number for all axes, or a list of one an axis."""
        value = self.setting(*keys)
        if value is None:
            if default is None:
                raise Missing(keys[0])
            return (default,) * axes
        items = value if isinstance(value, list) else [value] * axes
        found = [integer(item) for item in items]
        if len(found) != axes or any(item is None or not least <= item <= LARGEST_SIZE for item in found):
            raise self.bad(
                f"{_key(self, keys)}: expected {axes} whole numbers of at least {least}, or one, got {quoted(value)}"
            )
        return tuple(item for item in found if item is not None)

    def shape_setting(self, *keys: str) -> Shape | None:
        value = self.setting(*keys)
        return None if value is None else sizes(value, f"{self.source}: node {quoted(self.node.id)}: {keys[0]}")

    # the input's axes -----------------------------------------------------------------------------------------------

    def rank(self, *allowed: int, words: str) -> Shape:
        """The main input, if it has one of these ranks. Raises UserError: a layer of this type cannot stand here."""
        if len(self.x) not in allowed:
            raise self.bad(f"takes {words}, gets {text(self.x)}")
        return self.x

    def axis(self, features: int, result: Shape | None = None) -> int:
        """Which axis of the input holds `features`: the last, or else a channel axis. Raises Mismatch."""
        x = self.x
        for axis in (-1, -3, -2):
            if len(x) >= -axis and x[axis] == features:
                if axis != -1:
                    self.note(f"its {features} features are axis {len(x) + axis + 1} of {text(x)}: a channel axis")
                return len(x) + axis
        raise Mismatch(f"expects {features:,} features, gets {text(x)}", result or (*x[:-1], features))

    def width(self, *keys: str) -> int:
        """The feature size: declared, or the input's last axis."""
        return self.size(*keys) or self.x[-1]

    def tokens(self, features: int) -> int:
        """How many vectors of `features` numbers the input holds."""
        return prod(self.x) // features if prod(self.x) % features == 0 else prod(self.x[:-1])


def _key(place: Place, keys: tuple[str, ...]) -> str:
    return next(key for key in keys if place.node.settings.get(key) is not None)


def text(shape: Shape | None) -> str:
    """`1 × 512 × 768`; `?` for an unknown shape."""
    return "?" if shape is None else " × ".join(map(str, shape))


def nothing(place: Place) -> int:
    return 0


def same_shape(place: Place) -> Shape:
    """The main input's shape."""
    return place.x


def output_size(place: Place, shape: Shape) -> int:
    """Numbers kept for the backward pass by a layer that keeps its output alone."""
    return prod(shape)


def no_memory(place: Place, shape: Shape) -> int:
    return 0


@dataclass(frozen=True)
class Kind:
    """One layer type. Each function may raise Missing (unknown) or Mismatch (does not pass forward).

    shape       Place -> shape of the output
    parameters  Place -> trained numbers
    macs        Place -> multiply-accumulates of matrix products and convolutions in one forward pass
    kept        (Place, output shape) -> numbers kept for the backward pass, for one declared input
    positions   a source of position information: a parent that is neither an operand nor a key
    """

    shape: Callable[[Place], Shape | None] = same_shape
    parameters: Callable[[Place], int] = nothing
    macs: Callable[[Place], int] = nothing
    kept: Callable[[Place, Shape], int] = output_size
    positions: bool = False


class Kinds:
    """Every known type by name, gathered from the families at the first look-up."""

    @cached_property
    def all(self) -> dict[str, Kind]:
        from shared.graph import layers_attention, layers_conv, layers_dense, layers_other

        found: dict[str, Kind] = {}
        for family in (layers_dense, layers_attention, layers_conv, layers_other):
            found |= family.KINDS
        return found

    def get(self, type: str) -> Kind | None:
        return self.all.get(type)


KINDS = Kinds()

NORMALISATIONS = frozenset(
    {"batchNorm", "layerNorm", "rmsNorm", "instanceNorm", "groupNorm"}
)  # one family when two models are aligned
