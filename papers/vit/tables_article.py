"""Sections 1 to 8 of the article's table log, every figure computed from the printed tables.

A `Sheet` collects lines in which every figure has a name, so that each can be judged against what the article printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from string import Formatter

from papers.vit.tables_source import (
    BIT,
    H14,
    L16,
    L16_21K,
    NOISY,
    RELEASED,
    TABLE5_CELL,
    error_cut,
    mean,
    short,
    spread,
    value,
)  # fmt: skip
from shared.published import Published


@dataclass
class Sheet:
    """Lines of text whose figures have names: `{name:format}` in a template is the figure `<line>/<name>`."""

    lines: list[str] = field(default_factory=list)
    figures: dict[str, float | str] = field(default_factory=dict)  # id -> value at full precision

    def text(self, line: str = "") -> None:
        """A line without figures: a heading, a blank line."""
        self.lines.append(line)

    def line(self, id: str, template: str, **values: float | str) -> None:
        """A line with figures, each of them kept under `<id>/<name>`."""
        parts = []
        for literal, name, spec, _ in Formatter().parse(template):
            parts.append(literal)
            if name is not None:
                key = f"{id}/{name}"
                if key in self.figures:
                    raise ValueError(f"two figures are called {key!r}")
                self.figures[key] = values[name]
                parts.append(format(values[name], spec or ""))
        self.lines.append("".join(parts))


def article_sheet(tables: dict[str, Published]) -> Sheet:
    """The whole log, sections in order."""
    sheet = Sheet()
    for section in (core_days, error_rates, against_bit, polyak, pretraining, vtab, adam_or_sgd, objectnet):
        section(sheet, tables)
        sheet.text()
    return sheet


def core_days(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 2, last row: cores times days. A TPUv3 chip has 2 cores; the standard cloud machine 8."""
    cores_per_chip, cores, days = 2, 8, 30  # the paper's sentence about ViT-L/16: 8 cores, approximately 30 days
    table2 = tables["table2"]
    thousands = {column: table2[f"TPUv3-core-days/{column}"] for column in table2.columns}
    total = cores * days
    sheet.text("== 1. TPUv3-core-days: cores x days ==")
    sheet.line(
        "1/unit",
        '  one TPUv3 chip has {cores_per_chip} cores; "core-days" = (number of cores) x (days of training)',
        cores_per_chip=cores_per_chip,
    )
    sheet.line(
        "1/check",
        "  {cores} cores x {days} days = {total} core-days = {k:.2f}k   "
        "(Table 2 says {printed:.2f}k for ViT-L/16, I21k)",
        cores=cores, days=days, total=total, k=total / 1000, printed=value(thousands[L16_21K]),
    )  # fmt: skip
    for column, cell in thousands.items():
        core = value(cell) * 1000
        sheet.line(
            f"1/{column}",
            f"  {column:<26}{{k:>7.2f}}k core-days = {{chip_days:>6,.0f}} chip-days = "
            "{days:>5,.0f} days on one 8-core TPUv3",
            k=core / 1000, chip_days=core / cores_per_chip, days=core / cores,
        )  # fmt: skip

    def ratio(label: str, numerator: str, denominator: str, rest: str = "") -> None:
        a, b = thousands[numerator], thousands[denominator]
        sheet.line(
            f"1/{label.strip()}",
            f"  {label} = {{a}}k / {{b}}k{' ' if label.endswith(' ') else ''} = {{ratio:.1f}}x{rest}",
            a=a.printed, b=b.printed, ratio=value(a) / value(b),
        )  # fmt: skip

    ratio("BiT-L / ViT-L/16 (JFT)", BIT, L16, " more pre-training compute for BiT-L")
    ratio("BiT-L / ViT-H/14      ", BIT, H14)
    ratio("Noisy Student / ViT-H/14", NOISY, H14)


def error_rates(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 2 as errors, and the share of BiT-L's errors that ViT-H/14 no longer makes."""
    columns = [*RELEASED, BIT]
    sheet.text("== 2. Table 2 as error rates (100 - accuracy) ==")
    sheet.text(f"  {'dataset':<19}" + "".join(f"{short(c):>16}" for c in columns) + "   H/14 vs BiT-L: error cut")
    for row, cells in tables["table2"].rows.items():
        errors = {c: 100 - value(cells[c]) for c in columns}
        names = [f"e{i}" for i in range(len(columns))]
        sheet.line(
            f"2/{row}",
            f"  {row:<19}" + "".join(f"{{{n}:>16.2f}}" for n in names)
            + "   {old:.2f} -> {new:.2f}: {cut:.0f}% fewer errors",
            **dict(zip(names, errors.values(), strict=True)),
            old=errors[BIT], new=errors[H14], cut=100 * error_cut(value(cells[BIT]), value(cells[H14])),
        )  # fmt: skip


def against_bit(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Row by row: the gap in points and in the larger printed deviation; then the two sentences after it."""
    table2 = tables["table2"]
    sheet.text("== 3. ViT-L/16 (JFT) against BiT-L, row by row (gap in points, and in units of the larger std) ==")
    gaps = {}
    for row, cells in table2.rows.items():
        # two printed cents differ by a whole number of cents
        gap = gaps[row] = round(value(cells[L16]) - value(cells[BIT]), 2)
        larger = max((s for s in (spread(cells[L16]), spread(cells[BIT])) if not math.isnan(s)), default=math.nan)
        sheet.line(
            f"3/{row}",
            f"  {row:<20} {{vit:.2f}} - {{bit:>6.2f}} = {{gap:+.2f}}   "
            "(larger std {std:.2f}, gap = {in_std:.1f} std)   {higher}",
            vit=value(cells[L16]), bit=value(cells[BIT]), gap=gap, std=larger,
            in_std=gap / larger if larger else math.nan,
            higher="equal" if gap == 0 else "ViT-L/16 higher" if gap > 0 else "BiT-L higher",
        )  # fmt: skip
    ties = [row for row, gap in gaps.items() if gap == 0]
    lower = [row for row, gap in gaps.items() if gap < 0]
    behind = -sum(gaps[row] for row in lower)
    bit_std = max((spread(table2.rows[row][BIT]) for row in lower), default=math.nan)
    sheet.line(
        "3/summary",
        "  ViT-L/16 (JFT) is strictly higher on {wins} of {rows} rows; {ties} is a tie and {lower} is {behind:.2f} "
        "lower, {where} BiT-L's std of {std:.2f}",
        wins=sum(gap > 0 for gap in gaps.values()), rows=len(gaps), ties=" and ".join(ties) or "no row",
        lower=" and ".join(row.partition(" (")[0] for row in lower) or "no row", behind=behind,
        where="inside" if behind <= bit_std else "outside", std=bit_std,
    )  # fmt: skip
    sheet.text()
    names = [f"gap{i}" for i in range(len(table2.rows))]
    huge = [round(value(cells[H14]) - value(cells[L16]), 2) for cells in table2.rows.values()]
    sheet.line(
        "3/huge",
        "  ViT-H/14 minus ViT-L/16 (both JFT), row by row: "
        + ", ".join(f"{row} {{{n}:+.2f}}" for row, n in zip(table2.rows, names, strict=True)),
        **dict(zip(names, huge, strict=True)),
    )
    sheet.text()
    imagenet = table2.rows["ImageNet"]
    sheet.line(
        "3/public",
        "  ViT-L/16 (I21k) against BiT-L on ImageNet: {gap:+.2f} points, for {vit}k against {bit}k core-days",
        gap=value(imagenet[L16_21K]) - value(imagenet[BIT]),
        vit=table2[f"TPUv3-core-days/{L16_21K}"].printed, bit=table2[f"TPUv3-core-days/{BIT}"].printed,
    )  # fmt: skip


def polyak(sheet: Sheet, tables: dict[str, Published]) -> None:
    """ImageNet in Table 2 (512/518 px, Polyak averaging) and in Table 5 (384 px, none)."""
    sheet.text("== 4. Table 2 versus Table 5: ImageNet with and without Polyak averaging and 512/518 px fine-tuning ==")
    for column, (pretraining_set, model) in TABLE5_CELL.items():
        with_, without = tables["table2"].rows["ImageNet"][column], tables["table5"].rows[f"{pretraining_set}/ImageNet"]
        sheet.line(
            f"4/{column}",
            f"  {column:<16} Table 2: {{table2:.2f}}   Table 5 (384 px, no averaging): {{table5:.2f}}   "
            "difference {gap:+.2f}",
            table2=value(with_), table5=value(without[model]), gap=value(with_) - value(without[model]),
        )  # fmt: skip


def pretraining(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 5's ImageNet rows: Figure 3."""
    table5 = tables["table5"]
    sheet.text(
        "== 5. Table 5: ImageNet top-1 after fine-tuning, by pre-training dataset (the numbers behind Figure 3) =="
    )
    scores = {row.partition("/")[0]: cells for row, cells in table5.rows.items() if row.endswith("/ImageNet")}
    for name, cells in scores.items():
        printed = {model: value(cell) for model, cell in cells.items() if cell is not None}
        keys = [model.replace("/", "_") for model in printed]
        sheet.line(
            f"5/{name}",
            f"  pre-trained on {name:<13}"
            + "".join(f" {model} {{{key}:.2f}} " for model, key in zip(printed, keys, strict=True)).rstrip(),
            **dict(zip(keys, printed.values(), strict=True)),
        )
        sheet.line(
            f"5/{name}/order",
            "      best to worst: {order};   ViT-L/16 - ViT-B/16 = {gap:+.2f}",
            order=" > ".join(sorted(printed, key=printed.get, reverse=True)),
            gap=value(cells["ViT-L/16"]) - value(cells["ViT-B/16"]),
        )
    gain = {m: value(scores["JFT-300M"][m]) - value(scores["ImageNet"][m]) for m in ("ViT-B/16", "ViT-L/16")}
    sheet.line(
        "5/gain",
        "  ImageNet -> JFT-300M pre-training: ViT-B/16 gains {base:+.2f} points, ViT-L/16 gains {large:+.2f} points",
        base=gain["ViT-B/16"], large=gain["ViT-L/16"],
    )  # fmt: skip


def vtab(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 9: means by group (Figure 2), and the largest and smallest gains."""
    table9 = tables["table9"]
    sheet.text("== 6. Table 9: the 19 VTAB-1k tasks, grouped as in Figure 2 ==")
    for column in RELEASED:
        tasks = {task: value(cell) for task, cell in table9.column(column).items()}
        lowest = min(tasks, key=tasks.get)
        groups = {name: mean([tasks[task] for task in members]) for name, members in table9.groups.items()}
        sheet.line(
            f"6/{column}",
            f"  {column:<16} mean of {{tasks}} = {{mean:.2f}} (table: {{table}})   "
            + "   ".join(f"{name} {{{name}:.1f}}" for name in groups)
            + "   lowest task: {lowest} {score:.1f}",
            tasks=len(tasks), mean=mean(list(tasks.values())), table=table9[f"mean/{column}"].printed, **groups,
            lowest=lowest, score=tasks[lowest],
        )  # fmt: skip
    sheet.text()
    gaps = {task: value(cells[H14]) - value(cells[L16_21K]) for task, cells in table9.rows.items()}
    order = sorted(gaps, key=lambda task: -round(gaps[task], 1))
    for id, label, chosen in (
        ("6/largest", "  ViT-H/14 (JFT) minus ViT-L/16 (I21k), largest gaps: ", order[:4]),
        ("6/smallest", "  ... smallest: ", order[-3:]),
    ):
        fields = [(f"task{i}", f"gap{i}") for i in range(len(chosen))]
        sheet.line(
            id,
            label + ", ".join(f"{{{task}}} {{{gap}:+.1f}}" for task, gap in fields),
            **{task: name for (task, _), name in zip(fields, chosen, strict=True)},
            **{gap: gaps[name] for (_, gap), name in zip(fields, chosen, strict=True)},
        )


def adam_or_sgd(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 7: fine-tuned accuracy of ResNets pre-trained with either optimiser."""
    table7 = tables["table7"]
    heads = ("R50 Adam", "R50 SGD", "Adam-SGD", "R152x2 Adam", "R152x2 SGD", "Adam-SGD")
    widths = (10, 10, 10, 13, 12, 10)
    sheet.text("== 7. Table 7 (Appendix D.1): ResNets pre-trained on JFT with Adam or SGD, then fine-tuned ==")
    sheet.text(" " * 21 + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))

    def row(name: str, scores: list[float], gaps: bool = True) -> None:
        a, b, c, d = scores
        gap = "{g50:>+10.2f}" if gaps else " " * 10
        sheet.line(
            f"7/{name}",
            f"  {name:<19}{{a50:>10.2f}}{{s50:>10.2f}}{gap}{{a152:>13.2f}}{{s152:>12.2f}}"
            + ("{g152:>+10.2f}" if gaps else ""),
            a50=a, s50=b, g50=a - b, a152=c, s152=d, g152=c - d,
        )  # fmt: skip

    for name, cells in table7.rows.items():
        row(name, [value(cells[column]) for column in table7.columns])
    ours = [mean([value(cell) for cell in table7.column(column).values()]) for column in table7.columns]
    row("average (ours)", ours)
    row("average (table)", [value(table7[f"average/{column}"]) for column in table7.columns], gaps=False)
    pairs = [
        (value(cells[adam]), value(cells[sgd]))
        for cells in table7.rows.values()
        for adam, sgd in (table7.columns[:2], table7.columns[2:])
    ]
    sheet.line(
        "7/count",
        "  Adam is higher in {higher} of {pairs} dataset-model pairs",
        higher=sum(adam > sgd for adam, sgd in pairs), pairs=len(pairs),
    )  # fmt: skip


def objectnet(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Appendix D.9 beside the BiT paper's Table 6."""
    table = tables["objectnet"]
    vit, bit = table.rows["ViT-H/14 (JFT)"], table.rows["BiT-L (R152x4, JFT), resize and crop"]
    imagenet = value(tables["table2"].rows["ImageNet"][H14])
    sheet.text("== 8. ObjectNet (Appendix D.9) ==")
    sheet.line(
        "8/vit",
        "  ViT-H/14: ObjectNet top-1 {top1:.1f}%, top-5 {top5:.1f}%;  ImageNet top-1 (Table 2) {imagenet:.2f}%",
        top1=value(vit["top-1"]), top5=value(vit["top-5"]), imagenet=imagenet,
    )  # fmt: skip
    sheet.line(
        "8/drop",
        "  drop from ImageNet to ObjectNet, top-1: {drop:.2f} points",
        drop=imagenet - value(vit["top-1"]),
    )
    sheet.line(
        "8/bit",
        "  BiT-L (R152x4, JFT), the BiT paper, Table 6, resize and crop: "
        "ObjectNet top-1 {top1:.1f}%, top-5 {top5:.1f}%",
        top1=value(bit["top-1"]), top5=value(bit["top-5"]),
    )  # fmt: skip
    sheet.line(
        "8/gap",
        "  ViT-H/14 minus BiT-L on ObjectNet: top-1 {top1:+.1f}, top-5 {top5:+.1f} points",
        top1=value(vit["top-1"]) - value(bit["top-1"]), top5=value(vit["top-5"]) - value(bit["top-5"]),
    )  # fmt: skip
    small = {m: (value(table[f"{m}/BiT-S top-1"]), value(table[f"{m}/BiT-L top-1"])) for m in ("R50x1", "R152x4")}
    sheet.line(
        "8/data",
        "  BiT paper, Table 6, top-1, BiT-S -> BiT-L: "
        + ", ".join(f"{m} {{{m}_S:.1f}} -> {{{m}_L:.1f}} ({{{m}_gain:+.1f}})" for m in small),
        **{f"{m}_{key}": v for m, (S, L) in small.items() for key, v in (("S", S), ("L", L), ("gain", L - S))},
    )
