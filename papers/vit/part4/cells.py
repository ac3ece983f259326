"""The paper's printed tables as the scripts read them: names of columns, cells as numbers, means."""

from __future__ import annotations

import math

from shared.errors import UserError
from shared.published import Number, Published, load, published_file

TABLES = ("table1", "table2", "table5", "table6", "table7", "table8", "table9", "objectnet")
H14, L16, L16_21K = "ViT-H/14 (JFT)", "ViT-L/16 (JFT)", "ViT-L/16 (I21k)"
BIT, NOISY = "BiT-L (R152x4)", "Noisy Student (EffNet-L2)"
RELEASED = (H14, L16, L16_21K)  # the three ViT columns of Tables 2 and 9
BLANK = {"table2": 5, "table5": 6, "table8": 4}  # cells that the paper leaves blank; everywhere else there are none
TABLE5_CELL = {  # Table 2's column -> (pre-training, model) in Table 5
    H14: ("JFT-300M", "ViT-H/14"),
    L16: ("JFT-300M", "ViT-L/16"),
    L16_21K: ("ImageNet-21k", "ViT-L/16"),
}


def read_tables() -> dict[str, Published]:
    """The paper's tables by name (`TABLES`). Raises `UserError` for a file that is damaged or has lost a cell."""
    tables = {name: load("vit", name) for name in TABLES}
    for name, table in tables.items():
        blank = sum(cell is None for cells in table.rows.values() for cell in cells.values())
        if blank != BLANK.get(name, 0):
            raise UserError(
                f"{published_file('vit', name)}: {blank} blank cells, the paper has {BLANK.get(name, 0)}; "
                "restore the file from version control"
            )
    return tables


def value(cell: Number | None) -> float:
    """A cell's number; NaN where the table is blank."""
    return math.nan if cell is None or cell.value is None else cell.value


def spread(cell: Number | None) -> float:
    """A cell's printed deviation; NaN where none is printed."""
    return math.nan if cell is None or cell.std is None else float(cell.std)


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def error_cut(old: float, new: float) -> float:
    """Relative error reduction (e_old - e_new) / e_old of two accuracies in %; NaN where there was no error."""
    return (new - old) / (100 - old) if old < 100 else math.nan
