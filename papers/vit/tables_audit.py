"""What the article's log does not ask of the paper's tables: do they agree, and what may be read off them?

Each function says its section into a record and returns the numbers for `record.results`.
"""

from __future__ import annotations

import math
from itertools import pairwise

from papers.vit.tables_source import RELEASED, TABLE5_CELL, half_unit, mean, value
from shared.errors import UserError
from shared.published import Number, Published
from shared.record import Record
from shared.verdict import EQUAL

DATASETS = ("ImageNet", "ImageNet ReaL", "CIFAR-10", "CIFAR-100", "Oxford-IIIT Pets", "Oxford Flowers-102")
FIVE = tuple(name for name in DATASETS if name != "ImageNet ReaL")  # "average over 5 datasets": Figure 5


def shared_quantities(tables: dict[str, Published]) -> list[tuple[str, str, Number, Number | float, str]]:
    """Every quantity that stands in more than one table: (tables, what, one cell, the other, why they may differ)."""
    table2, table5, table6, table7 = (tables[name] for name in ("table2", "table5", "table6", "table7"))
    found: list[tuple[str, str, Number, Number | float, str]] = []
    for column, (pretraining, model) in TABLE5_CELL.items():
        for dataset in DATASETS:
            setting = "Table 5 without averaging and 512/518 px" if dataset.startswith("ImageNet") else ""
            found.append(
                ("2/5", f"{column} {dataset}", table2.rows[dataset][column],
                 table5.rows[f"{pretraining}/{dataset}"][model], setting)
            )  # fmt: skip
    # Table 5's JFT column holds the longest training of each model that Table 6 lists
    longest = {row.partition(",")[0]: row for row in sorted(table6.rows, key=_epochs)}
    for model in table5.columns:
        for dataset in DATASETS:
            found.append(
                ("5/6", f"{model} (JFT) {dataset}", table5.rows[f"JFT-300M/{dataset}"][model],
                 table6.rows[longest[model]][dataset], "")
            )  # fmt: skip
    for row6, column7 in (("ResNet50x1, 7 epochs", "ResNet50 Adam"), ("ResNet152x2, 7 epochs", "ResNet152x2 Adam")):
        for dataset in FIVE:
            row7 = dataset.replace("CIFAR-", "CIFAR")
            found.append(("6/7", f"{column7} {dataset}", table6.rows[row6][dataset], table7.rows[row7][column7], ""))
    for column in RELEASED:
        ours = mean([value(cell) for cell in tables["table9"].column(column).values()])
        found.append(("2/9", f"{column} VTAB mean", table2.rows["VTAB (19 tasks)"][column], ours, ""))
    return found


def _epochs(row: str) -> int:
    return int(row.partition(", ")[2].split()[0])


def cross_table(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Equal or not, with the difference."""
    record.section("cross-table audit: every quantity that stands in more than one table")
    rows = []
    for pair, what, cell, other, setting in shared_quantities(tables):
        if isinstance(other, Number):
            a, b, printed = value(cell), value(other), other.printed
        else:
            a, b, printed = value(cell), other, f"{other:.{cell.decimals}f}"
        same = printed == cell.printed
        rows.append({"tables": pair, "what": what, "first": cell.printed, "second": printed, "equal": same,
                     "difference": round(b - a, 6), "setting": setting})  # fmt: skip
    for pair in dict.fromkeys(row["tables"] for row in rows):
        of_pair = [row for row in rows if row["tables"] == pair]
        unequal = [row for row in of_pair if not row["equal"]]
        first, second = pair.split("/")
        record.say(f"  Tables {first} and {second}: {len(of_pair)} quantities in both, {len(unequal)} not equal")
        for row in of_pair:
            mark = "equal" if row["equal"] else f"differs by {row['difference']:+.2f}"
            note = f"   ({row['setting']})" if row["setting"] and not row["equal"] else ""
            record.say(f"    {row['what']:<38} {row['first']:>6}  {row['second']:>6}   {mark}{note}")
    return rows


def frontier(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """(compute, accuracy) points that no cheaper point beats, by rising compute."""
    best: list[tuple[float, float]] = []
    for compute, accuracy in sorted(points):
        if not best or accuracy > best[-1][1]:
            best.append((compute, accuracy))
    return best


def compute_needed(front: list[tuple[float, float]], accuracy: float) -> float:
    """Least compute at which a frontier attains `accuracy`, linear in log compute between its points; NaN outside."""
    for (c0, a0), (c1, a1) in pairwise(front):
        if a0 <= accuracy <= a1:
            return c0 * (c1 / c0) ** ((accuracy - a0) / (a1 - a0))
    return front[0][0] if accuracy == front[0][1] else math.nan


def compute_claim(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Section 4.4: "2-4x less compute for the same performance", from Table 6."""
    table6 = tables["table6"]
    family = {row: next((f for f in ("ViT", "ResNet") if row.startswith(f)), "hybrid") for row in table6.rows}
    cost = {row: value(cell) for row, cell in table6.column("exaFLOPs").items()}
    free = next((row for row, exaflops in cost.items() if not exaflops > 0), None)
    if free:
        raise UserError(f"table6.json: {free}: exaFLOPs must be above 0; restore the file from version control")
    scores = {
        "average of 5": {row: mean([value(cells[d]) for d in FIVE]) for row, cells in table6.rows.items()},
        **{d: {row: value(cells[d]) for row, cells in table6.rows.items()} for d in DATASETS},
    }
    record.section("Section 4.4, Table 6: does a ViT need 2 to 4 times less compute for the same accuracy?")
    record.say(
        "  least compute at equal accuracy, between the models of each family that no cheaper one beats, linear in"
    )
    record.say(
        "  log(exaFLOPs); ratio = the other family's compute / ViT's, over the accuracies that both families reach"
    )
    results = []
    for other in ("ResNet", "hybrid"):
        record.say(f"  {other} against ViT")
        for name, by_row in scores.items():
            vit, rival = (frontier([(cost[r], a) for r, a in by_row.items() if family[r] == f]) for f in ("ViT", other))
            row = {"other": other, "data": name, **compute_ratio(vit, rival)}
            results.append(row)
            record.say(f"    {name:<20} {_compute_words(row)}")
    return results


def compute_ratio(vit: list[tuple[float, float]], rival: list[tuple[float, float]]) -> dict:
    """The rival's compute over ViT's, over the accuracies that both frontiers reach. Exact: its logarithm is linear in
    accuracy between the points of either frontier."""
    low, high = max(vit[0][1], rival[0][1]), min(vit[-1][1], rival[-1][1])
    found = {"low": low, "high": high, "vit": (vit[0][1], vit[-1][1]), "rival": (rival[0][1], rival[-1][1])}
    if low > high:
        return found | {"overlap": False}
    knots = sorted({low, high, *(a for _, a in vit + rival if low <= a <= high)})
    logs = [math.log(compute_needed(rival, a) / compute_needed(vit, a)) for a in knots]
    pieces = [(x1 - x0, *sorted((y0, y1))) for (x0, y0), (x1, y1) in pairwise(zip(knots, logs, strict=True))]
    pieces = pieces or [(1.0, logs[0], logs[0])]  # a single accuracy that both reach
    whole = sum(width for width, _, _ in pieces)

    def share(bottom: float, top: float) -> float:
        """Part of the range in which the ratio's logarithm lies in [bottom, top]."""
        inside = 0.0
        for width, y0, y1 in pieces:
            if y0 == y1:
                inside += width * (bottom <= y0 <= top)
            else:
                inside += width * max(0.0, min(y1, top) - max(y0, bottom)) / (y1 - y0)
        return inside / whole

    bottom, top = min(logs), max(logs)
    lower, upper = bottom, top
    for _ in range(60):  # bisection: half of the range lies below the median
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if share(-math.inf, middle) < 0.5 else (lower, middle)
    return found | {
        "overlap": True, "min": math.exp(bottom), "median": math.exp(upper), "max": math.exp(top),
        "inside_2_4": share(math.log(2), math.log(4)), "rival_cheaper": share(-math.inf, -1e-12),
    }  # fmt: skip


def _compute_words(row: dict) -> str:
    other = row["other"]
    if not row["overlap"]:
        ranges = " and ".join(
            f"{name} {a:.2f} to {b:.2f} %" for name, (a, b) in (("ViT", row["vit"]), (other, row["rival"]))
        )
        return f"no common range: {ranges}"
    words = []
    if other == "ResNet":  # the claim is about ResNets
        where = [text for text, is_so in (("below 2x", row["min"] < 2), ("above 4x", row["max"] > 4)) if is_so]
        share = f"2-4x on {100 * row['inside_2_4']:.0f} % of the range"
        words.append(f"{share}, {' and '.join(where)} elsewhere" if where else "2-4x everywhere")
    if other == "hybrid" or row["rival_cheaper"]:
        words.append(f"the {other} is the cheaper on {100 * row['rival_cheaper']:.0f} %")
    return (
        f"{row['low']:5.2f} to {row['high']:5.2f} %   ratio {row['min']:4.2f} to {row['max']:4.2f}, "
        f"median {row['median']:4.2f}   {'; '.join(words)}"
    )


def rounding(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Can a printed mean be that of the printed values, each known to half a unit of its last digit only?"""
    record.section("rounding: can a printed mean be the mean of the printed values?")
    checks: list[tuple[str, Number, list[Number]]] = []
    for name, label in (("table7", "average"), ("table9", "mean")):
        table = tables[name]
        for column in table.columns:
            cells = list(table.column(column).values())
            checks.append((f"Table {name[-1]} {column}", table[f"{label}/{column}"], cells))
    for column in RELEASED:
        cell = tables["table2"].rows["VTAB (19 tasks)"][column]
        checks.append((f"Table 2 VTAB {column} from Table 9", cell, list(tables["table9"].column(column).values())))
    results = []
    for what, printed, cells in checks:
        ours = mean([value(cell) for cell in cells])
        slack = mean([half_unit(cell) for cell in cells])
        possible = abs(ours - value(printed)) <= slack + half_unit(printed) + 1e-9
        verdict = record.judge(printed, ours, same_runs=True, terms={"rounding of the values": slack})
        words = {True: f"possible: the true mean lies in {ours - slack:.3f} to {ours + slack:.3f}", False: "impossible"}
        results.append({"what": what, "printed": printed.printed, "mean": ours, "slack": slack, "possible": possible})
        record.say(
            f"  {what:<42} printed {printed.printed:>6}   mean of the printed values {ours:.3f}   "
            f"{'equal' if verdict.verdict == EQUAL else words[possible]}"
        )
    return results


def inputs(record: Record, tables: dict[str, Published]) -> None:
    """Every printed cell that went in, so that the log shows what it was computed from."""
    record.section("the inputs: every printed cell")
    for name, table in tables.items():
        record.say(f"  {name}: {', '.join(table.columns)}")
        for row, cells in table.rows.items():
            texts = ("-" if c is None else c.printed + (f" ± {c.std}" if c.std else "") for c in cells.values())
            record.say(f"    {row:<36} {'  '.join(texts)}")
        in_rows = {cell.id for cells in table.rows.values() for cell in cells.values() if cell is not None}
        for id, number in table.numbers.items():
            if id not in in_rows:
                record.say(f"    {id:<36} {number.printed}")
