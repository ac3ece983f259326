"""Recompute every figure that the article derives from the paper's tables, then audit the tables themselves.

    python vit_part4_tables.py              under a second, no torch; all figures of the article's log: equal
    python vit_part4_tables.py --models     also Table 1's parameter counts from configurations (needs torch, 10 s)
    python vit_part4_tables.py --figures    also draws Figures 2 and 3 and Table 6, PNG, SVG and PDF (10 s)

The figures of the article are computed in part4/article.py, the audit in part4/audit.py. Writes results/vit/tables.log
and tables.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.vit.part4 import audit
from papers.vit.part4.article import article_sheet
from papers.vit.part4.audit import FIVE, frontier
from papers.vit.part4.cells import RELEASED, mean, read_tables, spread, value
from shared import cli
from shared.errors import UserError
from shared.plots import figure_and_axes, mark_cut, publish
from shared.published import Number, Published, load, published_file
from shared.record import Record
from shared.verdict import EQUAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Config(cli.Common):
    models: bool = False
    """[what] count Table 1's parameters from the models' configurations (imports torch)"""
    figures: bool = False
    """[output] draw the figures into results/vit/figures (imports matplotlib)"""


def main(config: Config) -> Record:
    published = load("vit", "tables")
    tables = read_tables()
    question = "Is every figure that the article derives from the paper's tables right, and do the tables agree?"
    with Record("vit", "tables", config=config, results=config.results, question=question) as record:
        sheet = article_sheet(tables)
        record.say("\n".join(sheet.lines).strip("\n"), exact=True)
        odd = set(sheet.figures) ^ set(published.numbers)
        if odd:
            raise UserError(
                f"{published_file('vit', 'tables')}: does not belong to the tables beside it "
                f"({min(odd)!r} is in one only); restore them from version control"
            )
        record.judge_all(published, sheet.figures, why_not_run="")
        record.results["article"] = sheet.figures

        record.results["cross_table"] = audit.cross_table(record, tables)
        record.results["noise"] = audit.noise(record, tables)
        record.results["compute"] = audit.compute_claim(record, tables)
        record.results["rounding"] = audit.rounding(record, tables)
        if config.models:
            record.results["table1"] = audit.table1(record, tables)
        record.contradictions(audit.contradictions(record))
        if config.figures:
            for draw, name, caption, data in FIGURES:
                publish(record, draw(tables), name, caption, data=f"papers/vit/published ({data})")
        audit.inputs(record, tables)
        judge_the_rest(record, tables)
        record.print_verdicts()
        record.answer(summary(record))
        record.cannot_show(
            "whether the printed accuracies are right. It repeats the arithmetic on them; the runs behind them "
            "(JFT-300M, thousands of TPUv3-core-days) are not repeated."
        )
    return record


def summary(record: Record) -> str:
    """What the sections found, in numbers."""
    pairs, rows, ratios = (record.results[key] for key in ("cross_table", "noise", "compute"))
    apart = [row for row in pairs if not row["equal"]]
    same_setting = sum(not row["setting"] for row in apart)
    resnets = [row for row in ratios if row["other"] == "ResNet" and row["overlap"]]
    inside = sum(row["min"] >= 2 and row["max"] <= 4 for row in resnets)
    beaten = {model: [r for r in rows if r["model"] == model] for model in dict.fromkeys(r["model"] for r in rows)}
    called = [f"{m} on {sum(r['different'] is True for r in own)} of {len(own)} rows" for m, own in beaten.items()]
    equal = sum(v.verdict == EQUAL for v in record.verdicts)
    return (
        f"The arithmetic: {equal} of the article's and the paper's numbers come out as printed. The tables: of "
        f"{len(pairs)} quantities that stand in two of them {len(apart)} are not equal, {same_setting} of them with "
        f"no stated reason. Table 2's gaps to BiT-L are more than the luck of fine-tuning (Welch, 5 %) for "
        f"{' and for '.join(called)}. Two to four times less compute than ResNets: over the whole common range in "
        f"{inside} of {len(resnets)} comparisons, in part of it in the others."
    )


def judge_the_rest(record: Record, tables: dict[str, Published]) -> None:
    """Every other printed cell of the paper gets its verdict too: nobody measured it here."""

    def why(number: Number) -> str:
        if number.source != "vit/table1":
            return "the paper's own training runs are not repeated"
        return "counted with --models" if number.id.endswith("/params") else "a definition, not a measurement"

    judged = {(v.source, v.id) for v in record.verdicts}
    for table in tables.values():
        rest = {id: number for id, number in table.numbers.items() if (number.source, id) not in judged}
        record.judge_all(replace(table, numbers=rest), {}, why)


# The figures. Readable without colour: every series has its own marker, line style or hatch as well. -----------------

FAMILIES = {  # name -> how its rows in Table 6 begin, marker, line, colour
    "ViT": ("ViT", "o", "-", "#1b4f8a"),
    "hybrid": ("R50x1+", "D", ":", "#7a7a7a"),
    "ResNet": ("ResNet", "s", "--", "#c8642c"),
}
UPPER_LEFT = ("L/32", "L/16*", "R50+B/32", "R50+L/32", "R50+L/16")  # labels that would sit on a neighbour's point


def figure2(tables: dict[str, Published]) -> Figure:
    table2, table9 = tables["table2"], tables["table9"]
    groups = {"VTAB": list(table9.rows), **table9.groups}
    figure, axes = figure_and_axes(7.5, 3.6)
    width = 0.26
    looks = (("", "#1b4f8a"), ("///", "#7fa8d1"), ("...", "#dfe8f2"))
    for i, (column, (hatch, shade)) in enumerate(zip(RELEASED, looks, strict=True)):
        scores = [mean([value(table9.rows[task][column]) for task in tasks]) for tasks in groups.values()]
        at = [x + (i - 1) * width for x in range(len(groups))]
        look = {"color": shade, "hatch": hatch, "edgecolor": "#222", "linewidth": 0.6}
        bars = axes.bar(at, scores, width * 0.92, label=column, **look)
        # Table 2 prints a deviation of the mean over all tasks; Table 9 prints none of a task
        known = spread(table2.rows["VTAB (19 tasks)"][column])
        axes.errorbar(at[0], scores[0], known, fmt="none", ecolor="black", elinewidth=1, capsize=3)
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=4)
    axes.set_xticks(range(len(groups)), [f"{name}\n{len(tasks)} tasks" for name, tasks in groups.items()])
    axes.set_ylim(0, 105)
    axes.set_ylabel("accuracy, %")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    return figure


def figure3(tables: dict[str, Published]) -> Figure:
    """Accuracy against the number of pre-training images, as the paper gives them: 1.3, 14 and 303 million."""
    table5 = tables["table5"]
    sets = [row.partition("/")[0] for row in table5.rows if row.endswith("/ImageNet")]
    images = dict(zip(sets, (1.3e6, 14e6, 303e6), strict=True))
    figure, axes = figure_and_axes(6.2, 3.8)
    styles = ("o-", "o--", "s-", "s--", "^-")
    colours = ("#7fa8d1", "#7fa8d1", "#1b4f8a", "#1b4f8a", "#c8642c")
    for model, style, colour in zip(table5.columns, styles, colours, strict=True):
        cells = {images[name]: table5.rows[f"{name}/ImageNet"][model] for name in sets}
        points = [(count, value(cell)) for count, cell in cells.items() if cell is not None]
        axes.plot(*zip(*points, strict=True), style, color=colour, label=model, markersize=5)
    axes.set_xscale("log")
    axes.set_xticks(list(images.values()), [f"{n}\n{c / 1e6:g}M" for n, c in images.items()])
    axes.minorticks_off()
    axes.set_xlabel("pre-training set and its images (log scale)")
    axes.set_ylabel("ImageNet top-1, %")
    mark_cut(axes)
    axes.legend()
    return figure


def table6(tables: dict[str, Published]) -> Figure:
    table = tables["table6"]
    figure, axes = figure_and_axes(7.2, 4.6)
    for family, (prefix, marker, line, colour) in FAMILIES.items():
        rows = {row: cells for row, cells in table.rows.items() if row.startswith(prefix)}
        points = {r: (value(cells["exaFLOPs"]), mean([value(cells[d]) for d in FIVE])) for r, cells in rows.items()}
        dots = {"color": colour, "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.5}
        axes.plot(*zip(*points.values(), strict=True), marker, **dots)
        axes.plot(*zip(*frontier(list(points.values())), strict=True), f"{marker}{line}", lw=1.2, label=family, **dots)
        for row, point in points.items():
            label, _, epochs = row.partition(", ")
            for long, brief in (("R50x1+ViT-", "R50+"), ("ResNet", "R"), ("ViT-", "")):
                label = label.replace(long, brief)
            label += "*" * epochs.startswith("14")
            at, side = ((-5, 5), "right") if label in UPPER_LEFT else ((5, -10), "left")
            look = {"fontsize": 8, "color": colour, "textcoords": "offset points", "ha": side}
            axes.annotate(label, point, xytext=at, **look)
    axes.set_xscale("log")
    axes.set_xlim(40, 7000)
    axes.set_xticks([50, 100, 200, 500, 1000, 2000, 5000], ["50", "100", "200", "500", "1,000", "2,000", "5,000"])
    axes.minorticks_off()
    axes.set_xlabel("pre-training compute, exaFLOPs (log scale; * 14 epochs, others 7)")
    axes.set_ylabel("mean accuracy of five data sets, %")
    mark_cut(axes)
    axes.legend(loc="lower right", title="Pareto front of", title_fontsize=8)
    return figure


FIGURES = (
    (
        figure2,
        "figure2-vtab",
        "Figure 2, recomputed from Table 9: VTAB accuracy by task group, three ViT models. Bars on VTAB: the standard "
        "deviation that Table 2 prints; the tasks have none in print.",
        "Tables 2 and 9",
    ),
    (
        figure3,
        "figure3-pretraining",
        "Figure 3, from Table 5: ImageNet accuracy by pre-training set. One run per point, no deviation in print.",
        "Table 5",
    ),
    (
        table6,
        "table6-compute",
        "Table 6: accuracy against pre-training compute, average of five data sets. Lines: each family's Pareto front, "
        "the models that no cheaper one beats. One run per point, no deviation in print.",
        "Table 6",
    ),
)

if __name__ == "__main__":
    cli.run(main, Config)
