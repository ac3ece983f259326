"""The figures of a probe: all models beside each other; of each one the confusion matrix, the calibration and the most
confident mistakes. Drawn from the numbers that go into the result."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared import gallery, plots
from shared.folders import some
from shared.paths import atomic_write
from shared.probe import scores
from shared.probe.rows import Row, names_of, write_csv
from shared.result import Figure
from shared.verdict import wilson

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from shared.probe.images import Sets
    from shared.probe.probing import Found, Model
    from shared.record import Record

NAMED = 30  # classes, up to which the confusion matrix has their names
MISTAKES = 12
MARKS = "o^sDvPX*"


def details(record: Record, model: Model, sets: Sets, found: Found, row: Row) -> list[Figure]:
    """Draw what there is to see of one model on one data set; the figures, not yet entered into the record."""
    stem, where = f"{record.experiment}-{row['file']}", f"{model.title} on {sets.title}"
    if sets.task == "number" and found.scores is not None:
        caption = f"What the probe says of the test images: {where}. On the line it is right."
        return [keep(record, draw_numbers(found.scores, sets.test.targets, sets.names), f"{stem}-numbers", caption)]
    if found.predicted is None:
        return []
    truth, classes = sets.test.targets, len(sets.names)
    matrix = scores.confusion(found.predicted, truth, classes)
    path = record.directory / f"{stem}-confusion.csv"
    lines = [[name, *counts] for name, counts in zip(sets.names, matrix.tolist(), strict=True)]
    atomic_write(path, write_csv(["class", *sets.names], lines))
    record.file(path, f"confusion matrix of {where} as CSV")
    worst = most_confused(matrix, sets.names)
    caption = f"Confusion matrix of {where}: rows are the classes, columns what they were taken for, in % of the row."
    kept = [keep(record, draw_confusion(matrix, sets.names), f"{stem}-confusion", caption, alt=worst)]
    its = scores.reliability(found.probabilities, truth)
    caption = (
        f"Calibration of {where}: where the probe is sure to p %, p % should be right (the diagonal). Expected "
        f"calibration error {100 * its.ece:.1f} %, {len(truth):,} test images in {scores.BINS} bins."
    )
    kept.append(keep(record, draw_reliability(its), f"{stem}-calibration", caption))
    if shown := draw_mistakes(record.figures_dir / f"{stem}-mistakes.png", where, sets, found):
        kept.append(Figure(f"figures/{shown.name}", f"The most confident mistakes of {where}.", "gallery"))
    return kept


def keep(record: Record, drawing: Drawing, name: str, caption: str, alt: str = "") -> Figure:
    """Save a drawing below the record's figures; how it is to be entered there."""
    data = f"results/probe/{record.experiment}.json"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = plots.save(drawing, record.figures_dir / f"{name}.png", caption, f"Drawn by shared/probe from {data}.")
    if any("Glyph" in str(one.message) for one in caught):
        caption += " Letters that the figure's font has not are boxes; the tables have them."
    return Figure(
        f"figures/{path.name}", caption, alt=alt or plots.in_words(drawing), data=f"shared/probe, from {data}"
    )


def enter(record: Record, figures: Sequence[Figure]) -> None:
    """Enter saved figures into the record, in order: the first one is the answer."""
    for one in figures:
        record.figure(record.directory / one.path, one.caption, kind=one.kind, alt=one.alt, data=one.data)


def most_confused(matrix: np.ndarray, names: Sequence[str]) -> str:
    """The largest entries beside the diagonal, in words."""
    off = matrix * (1 - np.eye(len(matrix), dtype=np.int64))
    order = np.argsort(-off, axis=None, kind="stable")[:5]
    pairs = [(i // len(matrix), i % len(matrix)) for i in order.tolist()]
    said = [f"{names[i]} taken for {names[j]} {off[i, j]} times" for i, j in pairs if off[i, j]]
    return f"Confusion matrix. Most often: {'; '.join(said)}." if said else "Confusion matrix. No image was mistaken."


def draw_confusion(matrix: np.ndarray, names: Sequence[str]) -> Drawing:
    """matrix int64 [classes, classes]: images of the row's class taken for the column's."""
    named = len(names) <= NAMED
    side = 2.8 + 0.2 * min(len(names), 24) if named else 7.0
    figure, axes = plots.figure_and_axes(side + 1.6, side)
    total = matrix.sum(1, keepdims=True)
    share = 100 * np.divide(matrix, total, out=np.zeros(matrix.shape), where=total > 0)
    image = axes.imshow(share, cmap="Greys", vmin=0, vmax=100, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    if named:
        short = [name if len(name) <= 24 else f"{name[:23]}…" for name in names]
        axes.set_xticks(range(len(names)), short, rotation=90)
        axes.set_yticks(range(len(names)), short)
        for i, j in zip(*np.nonzero(matrix), strict=True) if len(names) <= 12 else ():
            axes.annotate(
                str(matrix[i, j]),
                (j, i),
                ha="center",
                va="center",
                fontsize=8,
                color="white" if share[i, j] > 55 else "black",
            )
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("% of the class")
    bar.ax.tick_params(labelsize=plots.SMALLEST)
    return figure


def draw_reliability(its: scores.Reliability) -> Drawing:
    """Above, how often the probe was right by how sure it was; below, how many images are in each bin."""
    figure, (upper, lower) = plots.figure_and_axes(4.6, 4.6, rows=2, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
    there = its.images > 0
    sure, right = 100 * its.confidence[there], 100 * its.right[there]
    upper.plot([0, 100], [0, 100], color="#8a8a8a", linewidth=0.8)
    error = [
        wilson(round(r * n), n) for r, n in zip(its.right[there].tolist(), its.images[there].tolist(), strict=True)
    ]
    low, high = 100 * np.array(error).T
    bars = [np.maximum(right - low, 0), np.maximum(high - right, 0)]
    look = {"fmt": "o", "color": "#1a4f8a", "capsize": 2, "elinewidth": 0.8, "clip_on": False}
    upper.errorbar(sure, right, bars, label="test images", **look)
    upper.set_ylim(0, 100)
    upper.set_ylabel("right, %")
    edges = np.linspace(0, 100, scores.BINS + 1)
    lower.bar(edges[:-1], its.images, width=100 / scores.BINS, align="edge", color="#8a8a8a")
    lower.set_xlim(0, 100)
    lower.set_xlabel("how sure the probe is, %")
    lower.set_ylabel("images")
    return figure


def draw_numbers(said: np.ndarray, truth: np.ndarray, names: Sequence[str]) -> Drawing:
    """said, truth: float64 [n, K]; a panel a target, four at most."""
    shown = min(len(names), 4)
    figure, panels = plots.figure_and_axes(0.6 + 3.2 * shown, 3.4, columns=shown, squeeze=False)
    for k, axes in enumerate(panels[0]):
        ends = [min(truth[:, k].min(), said[:, k].min()), max(truth[:, k].max(), said[:, k].max())]
        axes.plot(ends, ends, color="#8a8a8a", linewidth=0.8)
        axes.plot(truth[:, k], said[:, k], "o", color="#1a4f8a", markersize=3, alpha=0.6, label="test images")
        axes.set_xlabel("target")
        axes.set_ylabel("predicted")
        axes.set_title(names[k], loc="left", fontsize=9)
    return figure


def draw_mistakes(path: Path, where: str, sets: Sets, found: Found) -> Path | None:
    """The wrong test images that the probe was surest of; None where all are right."""
    truth = sets.test.targets
    wrong = np.flatnonzero(found.predicted != truth)
    if not len(wrong):
        return None
    order = np.argsort(-found.probabilities[wrong].max(1), kind="stable")
    shown = wrong[order[:MISTAKES]]
    cards = []
    for i in shown.tolist():
        own, label = found.probabilities[i], int(truth[i])
        ranked = np.argsort(-own, kind="stable")
        guesses = [(sets.names[k], float(own[k]), k == label) for k in ranked[:3].tolist()]
        rank = int(np.flatnonzero(ranked == label)[0]) + 1
        cards.append(
            gallery.Card(sets.test.images.image(i), sets.test.images.names[i], sets.names[label], rank, guesses)
        )
    note = (
        f"Of {len(truth):,} test images {len(wrong):,} are wrong. Of these the probe was surest; bars: probabilities."
    )
    title, columns = f"Most confident mistakes: {where}", min(4, max(3, len(cards)))
    return gallery.draw_cards(path, title, note, cards, columns=columns)


def overall(record: Record, rows: Sequence[Row]) -> list[Figure]:
    """Every model's accuracy, a panel a data set; nothing where no row has a measure in %."""
    shown = [row for row in rows if _points(row)]
    data = list(dict.fromkeys(row["data"] for row in shown))
    if not shown:
        return []
    most = max(sum(row["data"] == one for row in shown) for one in data)
    lines = max(len(_points(row)) for row in shown)
    height = 0.9 + len(data) * (0.6 + most * max(0.32, 0.14 * lines))
    figure, panels = plots.figure_and_axes(7.0, height, rows=len(data), sharex=True, squeeze=False)
    for axes, one in zip(panels[:, 0], data, strict=True):
        own = [row for row in shown if row["data"] == one]
        names = names_of(own)
        series: dict[str, list[tuple[int, float, float, float]]] = {}
        for y, row in enumerate(own):
            points = _points(row)
            for i, (name, point) in enumerate(points.items()):  # one below the other, so that all can be seen
                series.setdefault(name, []).append((y + 0.8 * ((i + 0.5) / len(points) - 0.5), *point))
        for (name, points), mark in zip(series.items(), MARKS * 9, strict=False):
            y, value, low, high = np.array(points).T
            error = [np.maximum(value - low, 0), np.maximum(high - value, 0)]
            first = name == next(iter(series))
            look = {"color": "#000000" if first else "#7a7a7a", "markerfacecolor": None if first else "none"}
            axes.errorbar(
                value,
                y,
                xerr=error,
                fmt=mark,
                label=name,
                capsize=2,
                elinewidth=0.8,
                markersize=5,
                clip_on=False,
                **look,
            )
        axes.set_yticks(range(len(own)), names)
        axes.set_ylim(len(own) - 0.5, -0.5)
        axes.set_xlim(0, 100)
        axes.grid(visible=True, axis="x")
        axes.set_title(one, loc="left", fontsize=9)
        if axes is panels[0, 0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1.03, 1.0), borderaxespad=0)
    panels[-1, 0].set_xlabel("test images right, %")
    caption = (
        f"Probes of frozen models on {some(data, 4)}. Bars: the 95 % interval from the number of test images; of "
        "few-shot the standard deviation over draws, cut at 0 and 100."
    )
    return [keep(record, figure, f"{record.experiment}-models", caption)]


def _points(row: Row) -> dict[str, tuple[float, float, float]]:
    """Series -> (value, low, high) in %."""
    protocols, points = row["protocols"], {}
    if (its := protocols.get("all")) and its["measure"] != "R2":
        words = "all training images" if its["measure"] == "accuracy" else "mAP"
        points[words] = tuple(100 * (np.nan if its[k] is None else its[k]) for k in ("value", "low", "high"))
    few = protocols.get("few-shot")
    for k, correct in (few["chosen"] or few["fixed"])["correct"].items() if few else ():
        values = 100 * np.array(correct) / (few["chosen"] or few["fixed"])["test_images"]
        mean, spread = values.mean(), values.std(ddof=1) if len(values) > 1 else 0.0
        points[f"{k}-shot"] = float(mean), float(max(0.0, mean - spread)), float(min(100.0, mean + spread))
    for k, its in protocols.get("knn", {}).items():
        points[f"{k} neighbours"] = tuple(100 * its[name] for name in ("value", "low", "high"))
    if its := protocols.get("logistic"):
        points["logistic"] = tuple(100 * its[name] for name in ("value", "low", "high"))
    return points
