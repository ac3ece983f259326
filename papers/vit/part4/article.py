"""Sections 1 to 8 of the article's table log: every figure that the article derives from the paper's printed tables.

A `Sheet` collects the lines. Each figure in them has a name, so that it can be judged against what the article printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from papers.vit.part4.cells import BIT, H14, L16, L16_21K, NOISY, RELEASED, TABLE5_CELL, error_cut, mean, spread, value
from shared.published import Published


@dataclass
class Sheet:
    """The log's lines, and the figures in them by id, at full precision."""

    lines: list[str] = field(default_factory=list)
    figures: dict[str, float | str] = field(default_factory=dict)

    def say(self, line: str = "") -> None:
        self.lines.append(line)

    def figures_of(self, line: str) -> Callable[..., str]:
        """`put(name, value, form)`: keeps the figure `<line>/<name>` and returns its text for the line."""

        def put(name: str, figure: float | str, form: str = "") -> str:
            id = f"{line}/{name}"
            if id in self.figures:
                raise ValueError(f"two figures are called {id!r}")
            self.figures[id] = figure
            return format(figure, form)

        return put


def article_sheet(tables: dict[str, Published]) -> Sheet:
    """The whole log, sections in order."""
    sheet = Sheet()
    for section in (core_days, error_rates, against_bit, polyak, pretraining, vtab, adam_or_sgd, objectnet):
        section(sheet, tables)
        sheet.say()
    return sheet


def core_days(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 2, last row: cores times days. A TPUv3 chip has 2 cores; the standard cloud machine 8."""
    cores_per_chip, cores, days = 2, 8, 30  # the paper's sentence about ViT-L/16: 8 cores, approximately 30 days
    table2 = tables["table2"]
    thousands = {column: table2[f"TPUv3-core-days/{column}"] for column in table2.columns}
    sheet.say("== 1. TPUv3-core-days: cores x days ==")
    put = sheet.figures_of("core-days")
    sheet.say(
        f"  one TPUv3 chip has {put('cores of a chip', cores_per_chip)} cores; "
        '"core-days" = (number of cores) x (days of training)'
    )
    put = sheet.figures_of("core-days/the sentence about ViT-L/16 (I21k)")
    sheet.say(
        f"  {put('cores', cores)} cores x {put('days', days)} days = {put('core-days', cores * days)} core-days = "
        f"{put('thousand core-days', cores * days / 1000, '.2f')}k   "
        f"(Table 2 says {put('Table 2, thousand core-days', value(thousands[L16_21K]), '.2f')}k for ViT-L/16, I21k)"
    )
    for column, cell in thousands.items():
        put, total = sheet.figures_of(f"core-days/{column}"), value(cell) * 1000
        sheet.say(
            f"  {column:<26}{put('thousand core-days', total / 1000, '>7.2f')}k core-days = "
            f"{put('chip-days', total / cores_per_chip, '>6,.0f')} chip-days = "
            f"{put('days on one 8-core TPUv3', total / cores, '>5,.0f')} days on one 8-core TPUv3"
        )
    for label, a, b, width, rest in (
        ("BiT-L / ViT-L/16 (JFT)", BIT, L16, 5, " more pre-training compute for BiT-L"),
        ("BiT-L / ViT-H/14", BIT, H14, 5, ""),
        ("Noisy Student / ViT-H/14", NOISY, H14, 0, ""),
    ):
        put, a, b = sheet.figures_of(f"core-days/{label}"), thousands[a], thousands[b]
        sheet.say(
            f"  {label:<22} = {put('first, thousand', a.printed)}k / "
            f"{put('second, thousand', b.printed) + 'k':<{width}} = "
            f"{put('ratio', value(a) / value(b), '.1f')}x{rest}"
        )


def error_rates(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 2 as errors, and the share of BiT-L's errors that ViT-H/14 no longer makes."""
    columns = [*RELEASED, BIT]
    sheet.say("== 2. Table 2 as error rates (100 - accuracy) ==")
    heads = "".join(f"{column.partition(' (')[0]:>16}" for column in columns)
    sheet.say(f"  {'dataset':<19}{heads}   H/14 vs BiT-L: error cut")
    for row, cells in tables["table2"].rows.items():
        put = sheet.figures_of(f"error rates/{row}")
        errors = [100 - value(cells[column]) for column in columns]
        texts = [put(f"error of {column}", error, ">16.2f") for column, error in zip(columns, errors, strict=True)]
        cut = 100 * error_cut(value(cells[BIT]), value(cells[H14]))
        sheet.say(
            f"  {row:<19}{''.join(texts)}   "
            f"{put('errors cut from', errors[-1], '.2f')} -> {put('errors cut to', errors[0], '.2f')}: "
            f"{put('fewer errors, %', cut, '.0f')}% fewer errors"
        )


def against_bit(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Row by row: the gap in points and in the larger printed deviation; then the two sentences after it."""
    table2 = tables["table2"]
    sheet.say("== 3. ViT-L/16 (JFT) against BiT-L, row by row (gap in points, and in units of the larger std) ==")
    gaps = {}
    for row, cells in table2.rows.items():
        put, vit, bit = sheet.figures_of(f"against BiT-L/{row}"), cells[L16], cells[BIT]
        # both are printed in hundredths, so is their difference; floats would leave 0.21999 or a tie of 1e-14
        gap = gaps[row] = round(value(vit) - value(bit), 2)
        std = max((s for s in (spread(vit), spread(bit)) if not math.isnan(s)), default=math.nan)
        higher = "equal" if gap == 0 else "ViT-L/16 higher" if gap > 0 else "BiT-L higher"
        sheet.say(
            f"  {row:<20} {put('ViT-L/16', value(vit), '.2f')} - {put('BiT-L', value(bit), '>6.2f')} = "
            f"{put('gap', gap, '+.2f')}   (larger std {put('larger std', std, '.2f')}, "
            f"gap = {put('gap in std', gap / std if std else math.nan, '.1f')} std)   {put('which is higher', higher)}"
        )
    lower = [row for row, gap in gaps.items() if gap < 0]
    behind = -sum(gaps[row] for row in lower)
    std = max((spread(table2.rows[row][BIT]) for row in lower), default=math.nan)
    ties = " and ".join(row for row, gap in gaps.items() if gap == 0) or "no row"
    names = " and ".join(row.partition(" (")[0] for row in lower) or "no row"
    put = sheet.figures_of("against BiT-L/all rows")
    sheet.say(
        f"  ViT-L/16 (JFT) is strictly higher on {put('ViT-L/16 higher', sum(gap > 0 for gap in gaps.values()))} of "
        f"{put('rows', len(gaps))} rows; {put('tie', ties)} is a tie and {put('lower', names)} is "
        f"{put('points lower', behind, '.2f')} lower, "
        f"{put('inside or outside', 'inside' if behind <= std else 'outside')} "
        f"BiT-L's std of {put('std', std, '.2f')}"
    )
    sheet.say()
    put = sheet.figures_of("against BiT-L/ViT-H/14 minus ViT-L/16")
    huge = {row: round(value(cells[H14]) - value(cells[L16]), 2) for row, cells in table2.rows.items()}
    sheet.say(
        "  ViT-H/14 minus ViT-L/16 (both JFT), row by row: "
        + ", ".join(f"{row} {put(row, gap, '+.2f')}" for row, gap in huge.items())
    )
    sheet.say()
    put, imagenet = sheet.figures_of("against BiT-L/ViT-L/16 (I21k) on ImageNet"), table2.rows["ImageNet"]
    sheet.say(
        "  ViT-L/16 (I21k) against BiT-L on ImageNet: "
        f"{put('gap', value(imagenet[L16_21K]) - value(imagenet[BIT]), '+.2f')} points, for "
        f"{put('thousand core-days of ViT-L/16', table2[f'TPUv3-core-days/{L16_21K}'].printed)}k against "
        f"{put('thousand core-days of BiT-L', table2[f'TPUv3-core-days/{BIT}'].printed)}k core-days"
    )


def polyak(sheet: Sheet, tables: dict[str, Published]) -> None:
    """ImageNet in Table 2 (512/518 px, Polyak averaging) and in Table 5 (384 px, none)."""
    sheet.say("== 4. Table 2 versus Table 5: ImageNet with and without Polyak averaging and 512/518 px fine-tuning ==")
    for column, (pretraining_set, model) in TABLE5_CELL.items():
        put = sheet.figures_of(f"Polyak averaging/{column}")
        averaged = value(tables["table2"].rows["ImageNet"][column])
        plain = value(tables["table5"].rows[f"{pretraining_set}/ImageNet"][model])
        sheet.say(
            f"  {column:<16} Table 2: {put('Table 2', averaged, '.2f')}   Table 5 (384 px, no averaging): "
            f"{put('Table 5', plain, '.2f')}   difference {put('difference', averaged - plain, '+.2f')}"
        )


def pretraining(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 5's ImageNet rows: Figure 3."""
    sheet.say(
        "== 5. Table 5: ImageNet top-1 after fine-tuning, by pre-training dataset (the numbers behind Figure 3) =="
    )
    rows = {row.partition("/")[0]: cells for row, cells in tables["table5"].rows.items() if row.endswith("/ImageNet")}
    scores = {name: {model: value(cell) for model, cell in cells.items() if cell} for name, cells in rows.items()}
    for name, by_model in scores.items():
        put = sheet.figures_of(f"pre-training sets/{name}")
        gap = value(rows[name]["ViT-L/16"]) - value(rows[name]["ViT-B/16"])
        printed = (f" {model} {put(f'accuracy of {model}', score, '.2f')} " for model, score in by_model.items())
        sheet.say(f"  pre-trained on {name:<13}" + "".join(printed).rstrip())
        sheet.say(
            f"      best to worst: {put('order', ' > '.join(sorted(by_model, key=by_model.get, reverse=True)))};   "
            f"ViT-L/16 - ViT-B/16 = {put('ViT-L/16 minus ViT-B/16', gap, '+.2f')}"
        )
    put = sheet.figures_of("pre-training sets/ImageNet to JFT-300M")
    base, large = (value(rows["JFT-300M"][m]) - value(rows["ImageNet"][m]) for m in ("ViT-B/16", "ViT-L/16"))
    sheet.say(
        f"  ImageNet -> JFT-300M pre-training: ViT-B/16 gains {put('gain of ViT-B/16', base, '+.2f')} points, "
        f"ViT-L/16 gains {put('gain of ViT-L/16', large, '+.2f')} points"
    )


def vtab(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 9: means by group (Figure 2), and the largest and smallest gains."""
    table9 = tables["table9"]
    sheet.say("== 6. Table 9: the 19 VTAB-1k tasks, grouped as in Figure 2 ==")
    for column in RELEASED:
        put = sheet.figures_of(f"VTAB/{column}")
        tasks = {task: value(cell) for task, cell in table9.column(column).items()}
        lowest = min(tasks, key=tasks.get)
        means = {name: mean([tasks[task] for task in members]) for name, members in table9.groups.items()}
        sheet.say(
            f"  {column:<16} mean of {put('tasks', len(tasks))} = {put('mean', mean(list(tasks.values())), '.2f')} "
            f"(table: {put('mean in the table', table9[f'mean/{column}'].printed)})   "
            + "   ".join(f"{name} {put(f'mean of {name}', score, '.1f')}" for name, score in means.items())
            + f"   lowest task: {put('lowest task', lowest)} {put('accuracy on the lowest task', tasks[lowest], '.1f')}"
        )
    sheet.say()
    gaps = {task: value(cells[H14]) - value(cells[L16_21K]) for task, cells in table9.rows.items()}
    order = sorted(gaps, key=lambda task: -round(gaps[task], 1))
    for id, label, chosen in (
        ("VTAB/largest gaps", "  ViT-H/14 (JFT) minus ViT-L/16 (I21k), largest gaps: ", order[:4]),
        ("VTAB/smallest gaps", "  ... smallest: ", order[-3:]),
    ):
        put = sheet.figures_of(id)
        texts = [f"{put(f'task {i}', task)} {put(f'gap {i}', gaps[task], '+.1f')}" for i, task in enumerate(chosen, 1)]
        sheet.say(label + ", ".join(texts))


def adam_or_sgd(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Table 7: fine-tuned accuracy of ResNets pre-trained with either optimiser."""
    table7 = tables["table7"]
    sheet.say("== 7. Table 7 (Appendix D.1): ResNets pre-trained on JFT with Adam or SGD, then fine-tuned ==")
    sheet.say(" " * 21 + "  R50 Adam   R50 SGD  Adam-SGD  R152x2 Adam  R152x2 SGD  Adam-SGD")
    scores = {row: [value(cell) for cell in cells.values()] for row, cells in table7.rows.items()}
    rows = scores | {
        "average (ours)": [mean(list(column)) for column in zip(*scores.values(), strict=True)],
        "average (table)": [value(table7[f"average/{column}"]) for column in table7.columns],
    }
    for name, (a50, s50, a152, s152) in rows.items():
        put, gaps = sheet.figures_of(f"Adam or SGD/{name}"), name != "average (table)"
        sheet.say(
            f"  {name:<19}{put('ResNet50 Adam', a50, '>10.2f')}{put('ResNet50 SGD', s50, '>10.2f')}"
            + (put("ResNet50 Adam minus SGD", a50 - s50, ">+10.2f") if gaps else " " * 10)
            + f"{put('ResNet152x2 Adam', a152, '>13.2f')}{put('ResNet152x2 SGD', s152, '>12.2f')}"
            + (put("ResNet152x2 Adam minus SGD", a152 - s152, ">+10.2f") if gaps else "")
        )
    put, pairs = (
        sheet.figures_of("Adam or SGD/all pairs"),
        [pair for row in scores.values() for pair in (row[:2], row[2:])],
    )
    sheet.say(
        f"  Adam is higher in {put('Adam higher', sum(adam > sgd for adam, sgd in pairs))} of "
        f"{put('pairs', len(pairs))} dataset-model pairs"
    )


def objectnet(sheet: Sheet, tables: dict[str, Published]) -> None:
    """Appendix D.9 beside the BiT paper's Table 6."""
    table = tables["objectnet"]
    vit, bit = ([value(cell) for cell in cells.values()] for cells in table.rows.values())  # top-1 and top-5
    imagenet = value(tables["table2"].rows["ImageNet"][H14])
    sheet.say("== 8. ObjectNet (Appendix D.9) ==")
    put = sheet.figures_of("ObjectNet/ViT-H/14")
    sheet.say(
        f"  ViT-H/14: ObjectNet top-1 {put('top-1', vit[0], '.1f')}%, top-5 {put('top-5', vit[1], '.1f')}%;  "
        f"ImageNet top-1 (Table 2) {put('ImageNet top-1', imagenet, '.2f')}%"
    )
    sheet.say(f"  drop from ImageNet to ObjectNet, top-1: {put('drop from ImageNet', imagenet - vit[0], '.2f')} points")
    put = sheet.figures_of("ObjectNet/BiT-L")
    sheet.say(
        "  BiT-L (R152x4, JFT), the BiT paper, Table 6, resize and crop: "
        f"ObjectNet top-1 {put('top-1', bit[0], '.1f')}%, top-5 {put('top-5', bit[1], '.1f')}%"
    )
    put = sheet.figures_of("ObjectNet/ViT-H/14 minus BiT-L")
    sheet.say(
        f"  ViT-H/14 minus BiT-L on ObjectNet: top-1 {put('top-1', vit[0] - bit[0], '+.1f')}, "
        f"top-5 {put('top-5', vit[1] - bit[1], '+.1f')} points"
    )
    put, texts = sheet.figures_of("ObjectNet/BiT paper"), []
    for model in ("R50x1", "R152x4"):
        small, large = (value(table[f"{model}/BiT-{size} top-1"]) for size in "SL")
        texts.append(
            f"{model} {put(f'{model} BiT-S', small, '.1f')} -> {put(f'{model} BiT-L', large, '.1f')} "
            f"({put(f'{model} gain', large - small, '+.1f')})"
        )
    sheet.say("  BiT paper, Table 6, top-1, BiT-S -> BiT-L: " + ", ".join(texts))
