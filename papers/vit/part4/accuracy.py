"""Accuracy of few-shot probes against the images per class, drawn from a result's outcomes. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared import plots
from shared.published import Published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# marker, line and grey of a model: told apart without colour
STYLES = (
    *(("o", "-", "#000000"), ("s", "--", "#5a5a5a"), ("^", "-.", "#000000"), ("D", ":", "#5a5a5a")),
    *(("v", "-", "#8a8a8a"), ("P", "--", "#000000"), ("X", "-.", "#8a8a8a")),
)
ARTICLE = "#c05a00"
CAPTION = (
    "{}: few-shot accuracy of frozen models against the images per class (log scale). Thick bars: the standard "
    "deviation over {} draws; thin ones: with the standard error of {:,} test images too. {}"
)


def draw(title: str, outcomes: dict[str, dict], classes: int, article: Published | None) -> tuple[Figure, str]:
    """(figure, caption) of one data set. outcomes: by model, as a result has them. article: the printed accuracies."""
    protocol = "article" if all(o["article"] for o in outcomes.values()) else "big_vision"
    figure, axes = plots.figure_and_axes(7.0, 3.8)
    every: set[int] = set()
    for (name, outcome), (marker, line, grey) in zip(outcomes.items(), STYLES * 9, strict=False):
        shots = {int(k): values for k, values in outcome[protocol]["shots"].items()}
        every |= shots.keys()
        mean, spread, error = ([v[key] for v in shots.values()] for key in ("mean", "std", "binomial"))
        label = name + " *" * bool(outcome["stand_in"])
        look = {"marker": marker, "markersize": 4, "linestyle": line, "color": grey, "label": label}
        plots.direct_errors(axes, list(shots), mean, spread, error, **look)
    beside = draw_article(axes, title, outcomes, article) if article else ""
    axes.axhline(100 / classes, color="#8a8a8a", linewidth=0.8)
    axes.annotate("chance", (min(every), 100 / classes), xytext=(0, 3), textcoords="offset points", size=8)
    axes.set_xscale("log")
    axes.set_xticks(sorted(every), [str(k) for k in sorted(every)])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("labelled images per class, k (log scale)")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(title, loc="left", fontsize=9)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
    first = next(iter(outcomes.values()))[protocol]
    draws = len(first["shots"][str(min(every))]["correct"])
    stars = "* a stand-in." if any(o["stand_in"] for o in outcomes.values()) else ""
    return figure, CAPTION.format(title, draws, first["test_images"], f"{beside} {stars}".strip()).strip()


def draw_article(axes: Axes, title: str, outcomes: Mapping[str, dict], article: Published) -> str:
    """The article's printed points, hollow: those of the models drawn, or where none is its own, what its models span.

    Returns the caption's words for them; "" where it prints nothing on this data set.
    """
    printed: dict[str, dict[int, tuple[float, float]]] = {}
    for id, number in article.numbers.items():
        data, _, rest = id.partition("/")
        model, _, column = rest.rpartition("/")
        if data == title and column.endswith("-shot") and number.value is not None:
            shots = int(column.removesuffix("-shot"))
            printed.setdefault(model, {})[shots] = number.value, float(number.std or 0)
    if not printed:
        return ""
    if own := [name for name in printed if name in outcomes]:
        for name in own:
            values, stds = zip(*printed[name].values(), strict=True)
            look = {"color": ARTICLE, "markerfacecolor": "none", "linestyle": "none", "capsize": 2, "elinewidth": 0.8}
            look |= {"label": "article" if name == own[0] else None, "transform": plots.beside(axes)}
            axes.errorbar(list(printed[name]), values, stds, marker="o", markersize=4, **look)
        return "Hollow: the article's printed accuracies, with their deviation over draws."
    shots = sorted(set.intersection(*(set(points) for points in printed.values())))
    low, high = ([pick(points[k][0] for points in printed.values()) for k in shots] for pick in (min, max))
    axes.fill_between(shots, low, high, color=ARTICLE, alpha=0.12, linewidth=0)
    for edge, label in ((low, None), (high, f"article: its {len(printed)} models")):
        axes.plot(shots, edge, ":o", color=ARTICLE, markerfacecolor="none", markersize=4, linewidth=0.8, label=label)
    return f"Hollow: the worst and the best of the article's {len(printed)} models, on all of the data set's images."
