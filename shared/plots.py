"""One look for every figure, as a paper takes it: PNG at 300 dpi, SVG and PDF of one drawing, on every run the same.

A drawing is made with `figure_and_axes` and kept with `publish`, which writes the three files with a title, what the
drawing shows in words, and the script and the data that it is from. Without a window system.
"""

from __future__ import annotations

import io
import re
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.paths import atomic_write

if TYPE_CHECKING:  # matplotlib takes a third of a second, and most runs draw nothing
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from shared.record import Record

DPI = 300
SMALLEST = 8  # points: what a page of a paper still shows
ALL = 12  # a series of more points is told by its ends

STYLE = {
    "font.size": 9,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.hashsalt": "paper-suite",  # ids that do not change from run to run
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters, not outlines: can be searched and copied
}
DATES = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}


def figure_and_axes(width: float, height: float, columns: int = 1, rows: int = 1, **sharing: Any) -> tuple[Figure, Any]:
    """A figure of `width` x `height` inches with one axes, or an array of them; sharing: as of `Figure.subplots`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, **sharing)


def publish(record: Record, figure: Figure, name: str, caption: str, *, data: str, words: str = "") -> None:
    """Save the drawing below the record's figures and enter it there.

    data: where the drawn numbers stand. words: what it shows, where that is not read off its axes.
    """
    script, words = Path(sys._getframe(1).f_globals.get("__file__") or "").name, words or in_words(figure)
    path = save(figure, record.figures_dir / f"{name}.png", caption, f"Drawn by {script} from {data}.", words)
    record.figure(path, caption, alt=words, data=f"{script}, from {data}")


def save(figure: Figure, path: Path, title: str = "", origin: str = "", words: str = "") -> Path:
    """Write `path` (PNG) with its SVG and PDF twins, atomically; returns `path`. words: what it shows, if not its axes.

    ValueError for letters that are smaller than SMALLEST: a figure is not to be shrunk until it fits.
    """
    import matplotlib

    path, words = Path(path), words or in_words(figure)
    for legend in filter(None, (axes.get_legend() for axes in figure.axes)):
        legend.set_frame_on(False)
        for text in legend.get_texts():
            text.set_fontsize(SMALLEST)
    _plain_log_axes(figure)
    shown = [t for t in _texts(figure) if t.get_visible() and t.get_text()]
    # a raised or lowered digit is drawn at 70 % of the text's size
    raised = {t for t in shown if re.search(r"\$[^$]*[\^_]", t.get_text()) and 0.7 * t.get_fontsize() < SMALLEST}
    small = {t.get_text() for t in shown if t.get_fontsize() < SMALLEST or t in raised}
    if small:
        raise ValueError(f"{path.name}: letters below {SMALLEST} points: {', '.join(sorted(small)[:3])}")
    said = {
        "png": {"Title": title, "Description": f"{words} {origin}"},
        "svg": {"Title": title or path.stem},
        "pdf": {"Title": title, "Subject": f"{words} {origin}"},
    }
    with matplotlib.rc_context(STYLE):
        for kind, dates in DATES.items():
            buffer = io.BytesIO()
            known = {key: value for key, value in said[kind].items() if value}
            figure.savefig(buffer, format=kind, dpi=DPI, metadata=known | dates)
            data = buffer.getvalue()
            atomic_write(path.with_suffix(f".{kind}"), _described(data, f"{words} {origin}") if kind == "svg" else data)
    return path


def _described(svg: bytes, words: str) -> bytes:
    """The SVG as one image with a description: what is read aloud in its place, after its title."""
    text = svg.decode().replace("<svg ", '<svg role="img" ', 1)
    return text.replace("</title>", f"</title>\n <desc>{escape(words.strip())}</desc>", 1).encode()


def _plain_log_axes(figure: Figure) -> None:
    """0.001 in place of a ten with a raised -3, on every logarithmic axis whose ticks have no names of their own."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(axis.get_major_formatter(), LogFormatter):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        if isinstance(axis.get_minor_formatter(), LogFormatter):
            axis.set_minor_formatter(NullFormatter())


def beside(axes: Axes, points: float = 5) -> Any:
    """A transform that draws data `points` to the right of its place: what is printed beside what is measured."""
    from matplotlib.transforms import ScaledTranslation

    return axes.transData + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)


def _texts(figure: Figure) -> list:
    from matplotlib.text import Text

    return figure.findobj(Text)


def mark_cut(axes: Axes) -> None:
    """Two strokes across the vertical axis where it does not begin at 0, and the word for it."""
    low, high = sorted(axes.get_ylim())
    if axes.get_yscale() != "linear" or low <= 0 <= high:
        return
    stroke = [(-1, -0.6), (1, 0.6)]
    look = {"marker": stroke, "markersize": 9, "linestyle": "none", "color": "black", "clip_on": False, "zorder": 9}
    axes.plot([0, 0], [0.025, 0.05], transform=axes.transAxes, **look)
    axes.set_ylabel(f"{axes.get_ylabel()} (axis cut: not from 0)")


def direct_errors(axes: Axes, x: Any, y: Any, spread: Any, error: Any, **look: Any) -> Any:
    """Points with two bars: thick for the spread of repeats, thin with caps for the spread and the test set together.

    x, y, spread, error: float [n], spread and error as standard deviations in y's unit; None where it is not known.
    """
    both = [((s or 0) ** 2 + (e or 0) ** 2) ** 0.5 for s, e in zip(spread, error, strict=True)]
    bars = axes.errorbar(x, y, both, elinewidth=0.8, capsize=3, **look)
    thick = [(at, value, s) for at, value, s in zip(x, y, spread, strict=True) if s]
    if thick:
        at, value, s = zip(*thick, strict=True)
        axes.errorbar(at, value, s, fmt="none", ecolor=look.get("color"), elinewidth=2.6, capsize=0, alpha=0.55)
    return bars


def in_words(figure: Figure) -> str:
    """What a drawing shows, for whoever does not see it: each panel's axes, and each named series with its points."""
    return " ".join(filter(None, (_axes_in_words(axes) for axes in figure.axes)))


def _axes_in_words(axes: Axes) -> str:
    handles, labels = axes.get_legend_handles_labels()
    series = [f"{label}: {_points(axes, handle)}" for handle, label in zip(handles, labels, strict=True)]
    if not series:
        return ""
    names = [axes.get_xlabel() and f"across {axes.get_xlabel()}", axes.get_ylabel() and f"up {axes.get_ylabel()}"]
    title = axes.get_title(loc="left") or axes.get_title()
    head = f"{title}: " * bool(title) + ", ".join(filter(None, names))
    return _one_line(f"{head}. {'; '.join(filter(None, series))}.")


def _points(axes: Axes, handle: Any) -> str:
    """The points of a line, of error bars or of bars: all of a few, the ends of many."""
    across, up = axes.xaxis, axes.yaxis
    if getattr(handle, "orientation", "") == "horizontal":  # bars that lie: their length is read across
        across, up = up, across
        points = [(bar.get_y() + bar.get_height() / 2, bar.get_x() + bar.get_width()) for bar in handle.patches]
    elif hasattr(handle, "patches"):  # bars
        points = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in handle.patches]
    else:
        line = handle[0] if isinstance(handle, tuple) else handle
        if not hasattr(line, "get_xdata"):
            return ""
        points = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    few = points if len(points) <= ALL else [points[0], points[-1]]
    said = [f"{_place(up, y)} at {_place(across, x)}" for x, y in few]
    return (", ".join(said) if few is points else " to ".join(said)) or "no point"


def _place(axis: Any, value: float) -> str:
    """A tick's own label where the value is (or a bar stands) at a named tick, else the number."""
    labels = [label.get_text() for label in axis.get_ticklabels()] if axis.get_scale() == "linear" else []
    if any(re.search(r"[^\W\d_]{2}", label) for label in labels):
        tick, label = min(zip(axis.get_majorticklocs(), labels, strict=True), key=lambda one: abs(one[0] - value))
        if abs(tick - value) < 0.5:
            return label
    return f"{float(value):,.4g}" if abs(value) < 1e4 else f"{float(value):,.0f}"


def _one_line(text: str) -> str:
    return " ".join(text.replace("$", "").split())
