"""Which column of a table is the image and which the label, and the classes that the labels name.

Nothing is guessed where two readings exist. The image is the only column that can be one, or the one called `image` or
`img`; the label is called `label` or `labels`, or `fine_label` (CIFAR-100), or it is the only column with class names,
or the only column that can be a label. Otherwise the user says: `--image COLUMN`, `--label COLUMN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

IMAGES = ("image", "img")
LABELS = ("label", "labels", "fine_label")


def choose(
    where: str, schema: pa.Schema, names: dict[str, list[str]], label: str | None, image: str | None
) -> tuple[str, str]:
    """(image column, label column) of a table. names: class names by column. UserError that lists the columns."""
    columns = ", ".join(schema.names)
    for option, asked in (("--label", label), ("--image", image)):
        if asked and asked not in schema.names:
            raise UserError(f"{where}: no column {asked} among {columns}; {option} takes one of these")
    images = [name for name, kind in zip(schema.names, schema.types, strict=True) if holds_images(kind)]
    image = image or next((name for name in IMAGES if name in images), None) or _only(images)
    if image is None:
        what = f"several image columns ({', '.join(images)})" if images else "no image column (bytes and path)"
        raise UserError(f"{where}: {what} among {columns}; name one: --image")
    if image not in images:
        raise UserError(f"{where}: the column {image} is {schema.field(image).type}, not images (bytes and path)")
    candidates = [
        name
        for name, kind in zip(schema.names, schema.types, strict=True)
        if name not in images and not name.startswith("__") and _may_be_label(kind)
    ]
    usual = next((name for name in LABELS if name in schema.names), None)
    label = label or usual or _only([name for name in candidates if name in names]) or _only(candidates)
    if label is None:
        what = f"which column is the label? There are {', '.join(candidates)}" if candidates else "no label column"
        raise UserError(f"{where}: {what} (columns: {columns}); name one: --label")
    return image, label


def _only(names: list[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def holds_images(kind: pa.DataType) -> bool:
    """Whether a column of this type can have images: structs (bytes, path), or bytes."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return {"bytes", "path"} <= {child.name for child in kind}
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _may_be_label(kind: pa.DataType) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, _is_large_string))


def _is_large_string(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_large_string(kind)


def classes(
    column: pa.ChunkedArray, name: str, where: str, row_words: Callable[[int], str], names: Sequence[str] | None
) -> tuple[np.ndarray, list[str]]:
    """Labels int64 [n], -1 for a row without one, and the class names as the table spells them.

    where, row_words: the table and a row of it in words. names: those of the column, if it has any; a label is then a
    number among them. Else the different values are the classes, in order: numbers, texts, false and true. So what is
    made grows with the rows, never with a value. UserError for values that are no classes: 3.5, lists, dates.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pc.max(pc.list_value_length(column)).as_py() not in (None, 0, 1):
            raise UserError(f"{where}: the column {name} holds lists, several labels per image; name another: --label")
        return classes(pc.list_element(column, 0), name, where, row_words, names)
    if pa.types.is_dictionary(kind):
        # once for each different value that a row has; values written out row by row could take any memory
        whole = column.combine_chunks()
        used = pc.drop_null(pc.unique(whole.indices))
        labels, found = classes(pa.chunked_array([whole.dictionary.take(used)]), name, where, row_words, names)
        place = pc.index_in(whole.indices, value_set=used)  # None for a row without a value
        return np.array([-1 if at is None else labels[at] for at in place.to_pylist()], np.int64), found
    if pa.types.is_floating(kind):
        values = column.drop_null()
        values = values.filter(pc.is_finite(values))
        if len(values) and not pc.all(pc.equal(pc.floor(values), values)).as_py():
            odd = next(v for v in values.to_pylist() if v != int(v))
            raise UserError(
                f"{where}: the column {name} holds numbers such as {odd:g}, no classes; name another: --label"
            )
        whole = [None if v is None or v != v or abs(v) == float("inf") else int(v) for v in column.to_pylist()]
        return classes(pa.chunked_array([pa.array(whole, pa.int64())]), name, where, row_words, names)
    if names is not None and pa.types.is_integer(kind):
        return _numbered(column, name, row_words, names), list(names)
    if pa.types.is_null(kind):
        return np.full(len(column), -1, np.int64), []
    if not _may_be_label(kind):
        raise UserError(f"{where}: the column {name} is {kind}, no classes; name another: --label")
    if pa.types.is_boolean(kind) or not pa.types.is_integer(kind):
        column = column.cast(pa.string() if not _is_large_string(kind) else kind)
        column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), pa.scalar(None, column.type), column)
    values = sorted(value for value in pc.unique(column).to_pylist() if value is not None)
    if values and values[0] == -1 and (len(values) == 1 or 0 in values):
        values = values[1:]  # how the hub writes "no label"; -1 and 1 alone are two classes
    found = pc.index_in(column, value_set=pa.array(values, column.type))
    labels = np.array([-1 if place is None else place for place in found.to_pylist()], np.int64)
    return labels, [str(value) for value in values]


def values(column: pa.Array) -> list:
    """As `to_pylist`; equal values of a dictionary are one object in memory."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()
    known = column.dictionary.to_pylist()
    return [None if at is None else known[at] for at in column.indices.to_pylist()]


def _numbered(column: pa.ChunkedArray, name: str, row_words: Callable[[int], str], names: Sequence[str]) -> np.ndarray:
    """int64 [n]: the labels of a column with class names; -1 for none."""
    # By way of a list: pyarrow's conversion to numpy imports pandas, half a second.
    values = [-1 if value is None else value for value in column.to_pylist()]
    row = next((row for row, value in enumerate(values) if not -1 <= value < len(names)), None)
    if row is not None:
        raise UserError(f"{row_words(row)}: label {values[row]}, but the column {name} names {len(names)} classes")
    return np.array(values, np.int64)
