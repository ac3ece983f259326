"""One look for every figure: no window system, PNG and SVG of the same drawing, the same bytes on every run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from shared.paths import atomic_write

if TYPE_CHECKING:  # matplotlib takes a third of a second, and most runs draw nothing
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.hashsalt": "paper-suite",  # ids that do not change from run to run
    "svg.fonttype": "none",
}


def figure_and_axes(width: float, height: float, columns: int = 1) -> tuple[Figure, Axes]:
    """A figure of `width` x `height` inches with one axes, or an array of `columns` axes that share nothing."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(1, columns)


def save(figure: Figure, path: Path, dpi: int = 160) -> Path:
    """Write `path` (PNG) and its SVG twin, atomically; returns `path`."""
    import matplotlib

    path = Path(path)
    with matplotlib.rc_context(STYLE):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
            atomic_write(path.with_suffix(f".{kind}"), buffer.getvalue())
    return path
