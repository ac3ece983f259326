"""What the article's log does not ask of the paper's tables: do they agree, and what may be read off them?

Each section says its lines into a record and returns its numbers for `record.results`.
"""

from __future__ import annotations

import math
from itertools import pairwise, product

from papers.vit.part4.cells import BIT, H14, L16, RELEASED, TABLE5_CELL, error_cut, mean, spread, value
from shared.errors import UserError
from shared.published import Number, Published
from shared.record import Record, aligned
from shared.verdict import DIFFERS, EQUAL, Measured

DATASETS = ("ImageNet", "ImageNet ReaL", "CIFAR-10", "CIFAR-100", "Oxford-IIIT Pets", "Oxford Flowers-102")
FIVE = tuple(name for name in DATASETS if name != "ImageNet ReaL")  # "average over 5 datasets": Figure 5
PATCHES = {"ViT-Base": (16, 32), "ViT-Large": (16, 32), "ViT-Huge": (14,)}  # the sizes that the paper trains

Points = list[tuple[float, float]]  # (compute in exaFLOPs, accuracy in %)


# Do the tables agree with each other? -------------------------------------------------------------------------------


def shared_quantities(tables: dict[str, Published]) -> list[tuple[str, str, Number, Number | float, str]]:
    """Every quantity that stands in more than one table: (tables, what, one cell, the other, why they may differ)."""
    table2, table5, table6, table7 = (tables[name] for name in ("table2", "table5", "table6", "table7"))
    quantities: list[tuple[str, str, Number, Number | float, str]] = []
    for column, (pretraining, model) in TABLE5_CELL.items():
        for dataset in DATASETS:
            why = "Table 5 without averaging and 512/518 px" if dataset.startswith("ImageNet") else ""
            other = table5.rows[f"{pretraining}/{dataset}"][model]
            quantities.append(("2/5", f"{column} {dataset}", table2.rows[dataset][column], other, why))
    # Table 5's JFT column holds the longest training of each model that Table 6 lists ("ViT-L/16, 14 epochs")
    by_epochs = sorted(table6.rows, key=lambda row: int(row.partition(", ")[2].split()[0]))
    longest = {row.partition(",")[0]: row for row in by_epochs}
    for model in table5.columns:
        for dataset in DATASETS:
            cell, other = table5.rows[f"JFT-300M/{dataset}"][model], table6.rows[longest[model]][dataset]
            quantities.append(("5/6", f"{model} (JFT) {dataset}", cell, other, ""))
    for row6, column7 in (("ResNet50x1, 7 epochs", "ResNet50 Adam"), ("ResNet152x2, 7 epochs", "ResNet152x2 Adam")):
        for dataset in FIVE:
            other = table7.rows[dataset.replace("CIFAR-", "CIFAR")][column7]
            quantities.append(("6/7", f"{column7} {dataset}", table6.rows[row6][dataset], other, ""))
    for column in RELEASED:
        ours = mean([value(cell) for cell in tables["table9"].column(column).values()])
        quantities.append(("2/9", f"{column} VTAB mean", table2.rows["VTAB (19 tasks)"][column], ours, ""))
    return quantities


def cross_table(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Equal or not, with the difference."""
    record.section("cross-table audit: every quantity that stands in more than one table")
    rows = []
    for pair, what, cell, other, setting in shared_quantities(tables):
        is_cell = isinstance(other, Number)
        second = other.printed if is_cell else f"{other:.{cell.decimals}f}"
        difference = round((value(other) if is_cell else other) - value(cell), 6)
        row = {"tables": pair, "what": what, "first": cell.printed, "second": second, "equal": second == cell.printed}
        rows.append(row | {"difference": difference, "setting": setting})
    lines, cells = [], []
    for pair in dict.fromkeys(row["tables"] for row in rows):
        of_pair = [row for row in rows if row["tables"] == pair]
        unequal = sum(not row["equal"] for row in of_pair)
        name = pair.replace("/", " and ")
        lines.append(f"  Tables {name}: {len(of_pair)} quantities in both, {unequal} not equal")
        for row in of_pair:
            note = f"   ({row['setting']})" if row["setting"] else ""
            mark = "equal" if row["equal"] else f"differs by {row['difference']:+.2f}{note}"
            lines.append(f"    {row['what']:<38} {row['first']:>6}  {row['second']:>6}   {mark}")
            apart = "" if row["equal"] else f"{row['difference']:+.2f}"
            cells.append([name, row["what"], row["first"], row["second"], apart, row["setting"]])
    columns = ["tables", "quantity", "in the first", "in the second", "difference", "why they may differ"]
    title = "Audit of the tables: every quantity that stands in more than one"
    record.say_table(title, columns, sorted(cells, key=lambda row: not row[4]), lines=lines)
    return rows


def contradictions(record: Record) -> list[dict[str, str]]:
    """What the tables print against each other or against arithmetic, of the sections told so far.

    Two numbers for one quantity whose settings are the same; a mean that no rounding of the printed values gives; a
    count of parameters that differs. Table 2's VTAB means stand under the means, because rounding may explain them.
    """
    found = []
    for row in record.results["cross_table"]:
        if not (row["equal"] or row["setting"] or row["tables"] == "2/9"):
            first, second = row["tables"].split("/")
            claim = f"{row['what']}: {row['first']} in Table {first}, {row['second']} in Table {second}"
            arithmetic = f"one quantity, two numbers {abs(row['difference']):.2f} apart; no other setting is stated"
            found.append({"where": f"Tables {first} and {second}", "claim": claim, "arithmetic": arithmetic})
    for row in record.results["rounding"]:
        if not row["possible"]:
            arithmetic = (
                f"the mean of the printed values is {row['mean']:.3f}, and rounding moves it by {row['slack']:.3f}"
            )
            found.append({"where": row["what"], "claim": f"a mean of {row['printed']}", "arithmetic": arithmetic})
    for verdict in record.verdicts:
        if verdict.source == "vit/table1" and verdict.verdict == DIFFERS:
            claim = f"{verdict.id}: {verdict.published} {verdict.unit}"
            found.append({"where": "Table 1", "claim": claim, "arithmetic": verdict.reason})
    return found


# Which gaps of Table 2 are more than the luck of three fine-tuning runs per side? -------------------------------------


def noise(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Table 2's gaps with Welch's t, three runs per side, and the article's rule (gap in units of the larger std)."""
    record.section("noise: gaps of Table 2 against the standard error of two means of three runs (Welch)")
    record.say(
        "  luck of fine-tuning only: each model was pre-trained once, and the test set's error is not in it;\n"
        "  p with the range that the rounding of the printed means and deviations leaves open"
    )
    rows = []
    for ours in (L16, H14):
        record.say(f"\n  {ours} against {BIT}")
        of_model = [
            {"model": ours, "dataset": dataset, **compare(cells[ours], cells[BIT])}
            for dataset, cells in tables["table2"].rows.items()
        ]
        called = sum(row["different"] is True for row in of_model)
        record.say_table(
            f"Welch's test: {ours} against {BIT}, row by row of Table 2",
            [
                "dataset",
                "gap",
                "standard error",
                "t",
                "degrees of freedom",
                "p",
                "p with the rounding",
                "different at 5 %?",
            ],
            [_noise_cells(row) for row in of_model],
            left=(0, 7),
            note="Three fine-tuning runs per side; one pre-training each, and the test set's own error is not in it.",
            group="Welch",
        )
        record.say(f"  different at the 5 % level: {called} of {len(of_model)} rows")
        record.say(f"\n  the same gaps by the article's rule, and the share of {BIT}'s errors that is gone")
        columns = ["dataset", "gap in larger std", "fewer errors", "95 % interval"]
        record.say("\n".join(aligned(columns, [_cut_cells(row) for row in of_model])))
        rows += of_model
    return rows


DIFFERENT = {True: "yes", False: "no", None: "rounding decides"}


def _noise_cells(row: dict) -> list[str | None]:
    head = [row["dataset"], f"{row['gap']:+.2f}"]
    if row["p"] is None:
        return [*head, None, None, None, None, None, "cannot tell: no deviation printed"]
    t, (low, high) = row["t"] + 0.0, row["p_range"]
    tested = [f"{row['se']:.3f}", f"{t:.1f}", f"{row['dof']:.1f}", f"{row['p']:.4f}", f"{low:.4f} to {high:.4f}"]
    return [*head, *tested, DIFFERENT[row["different"]]]


def _cut_cells(row: dict) -> list[str | None]:
    def percent(share: float) -> str:
        return f"{round(100 * share) + 0:d}%" if math.isfinite(share) else "-"

    if row["p"] is None:
        return [row["dataset"], None, percent(row["cut"]), None]
    interval = f"{percent(row['cut_low'])} to {percent(row['cut_high'])}"
    return [row["dataset"], f"{row['in_std']:.1f}", percent(row["cut"]), interval]


def compare(a: Number, b: Number) -> dict:
    """Two printed means with Welch's t, and the cut of b's errors with Fieller's interval (which excludes no cut
    exactly when t is significant); p is None where a deviation or the number of runs is not printed."""
    m1, m2, gap = value(a), value(b), value(a) - value(b)
    s1, s2 = spread(a), spread(b)
    row: dict = {"gap": gap, "cut": error_cut(m2, m1), "p": None, "different": None}
    if math.isnan(s1 + s2) or min(a.n or 0, b.n or 0) < 2 or max(s1, s2) == 0:
        return row
    t, dof, p, se = welch(gap, s1, s2, a.n, b.n)
    # what the printed digits stand for: the gap may be two half units off, each deviation one; the corners bound p
    slack = a.half_unit + b.half_unit
    gaps = [gap - slack, gap + slack, *([0.0] if abs(gap) < slack else [])]
    stds = [(max(0.0, s1 + i * a.half_unit), max(0.0, s2 + j * b.half_unit)) for i, j in product((-1, 1), (-1, 1))]
    corners = [welch(g, *pair, a.n, b.n)[2] for g, pair in product(gaps, stds) if max(pair) > 0]
    low, high = min(p, *corners), max(p, *corners)
    cut_low, cut_high = fieller(100 - m1, 100 - m2, s1**2 / a.n, s2**2 / b.n, dof)
    row |= {"se": se, "t": t, "dof": dof, "p": p, "p_range": (low, high), "in_std": abs(gap) / max(s1, s2)}
    different = True if high < 0.05 else False if low >= 0.05 else None
    return row | {"different": different, "cut_low": cut_low, "cut_high": cut_high}


def welch(gap: float, s1: float, s2: float, n1: int, n2: int) -> tuple[float, float, float, float]:
    """(t, degrees of freedom, two-sided p, standard error) of a difference of two means of n1 and n2 runs."""
    from scipy.special import stdtr

    v1, v2 = s1**2 / n1, s2**2 / n2
    dof = (v1 + v2) ** 2 / (v1**2 / (n1 - 1) + v2**2 / (n2 - 1))
    se = math.sqrt(v1 + v2)
    return gap / se, dof, 2 * float(stdtr(dof, -abs(gap) / se)), se


def fieller(e1: float, e2: float, v1: float, v2: float, dof: float) -> tuple[float, float]:
    """95 % interval of the cut 1 - e1/e2 of two error rates with variances v1, v2; infinite where e2 may be 0."""
    from scipy.special import stdtrit

    g = float(stdtrit(dof, 0.975)) ** 2
    a, b, c = e2**2 - g * v2, e1 * e2, e1**2 - g * v1  # a r^2 - 2 b r + c <= 0 for the ratio r = e1/e2
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    return 1 - (b + root) / a, 1 - (b - root) / a


# Section 4.4: "2-4x less compute for the same performance", from Table 6 --------------------------------------------


def frontier(points: Points) -> Points:
    """The Pareto front, by rising compute: the points that no cheaper one beats."""
    best: Points = []
    for compute, accuracy in sorted(points):
        if not best or accuracy > best[-1][1]:
            best.append((compute, accuracy))
    return best


def compute_needed(front: Points, accuracy: float) -> float:
    """Least compute at which a frontier attains `accuracy`, linear in log compute between its points; NaN outside."""
    for (c0, a0), (c1, a1) in pairwise(front):
        if a0 <= accuracy <= a1:
            return c0 * (c1 / c0) ** ((accuracy - a0) / (a1 - a0))
    return front[0][0] if accuracy == front[0][1] else math.nan


def compute_claim(record: Record, tables: dict[str, Published]) -> list[dict]:
    """The claim for each data set and for the average of five, with ResNets and with hybrids as ViT's rival."""
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
        "  least compute at equal accuracy on each family's Pareto front, linear in log(exaFLOPs);\n"
        "  ratio = the other family's compute / ViT's, over the accuracies that both families reach"
    )
    results: list[dict] = []
    for other in ("ResNet", "hybrid"):
        for name, by_row in scores.items():
            vit, rival = (frontier([(cost[r], a) for r, a in by_row.items() if family[r] == f]) for f in ("ViT", other))
            results.append({"other": other, "data": name, **compute_ratio(vit, rival)})
        record.say(f"\n  {other} against ViT")
        record.say_table(
            f"2 to 4 times less compute? {other} against ViT, by data set",
            ["data set", "accuracies that both reach, %", f"{other}'s compute / ViT's", "median", "in words"],
            [_compute_cells(row) for row in results if row["other"] == other],
            left=(0, 4),
            note="Least compute at equal accuracy, on the Pareto front of each family's models (Table 6).",
            group="compute",
        )
    return results


def compute_ratio(vit: Points, rival: Points) -> dict:
    """The rival's compute over ViT's, over the accuracies that both frontiers reach. Exact: its logarithm is linear in
    accuracy between the points of either frontier."""
    low, high = max(vit[0][1], rival[0][1]), min(vit[-1][1], rival[-1][1])
    row = {"low": low, "high": high, "vit": (vit[0][1], vit[-1][1]), "rival": (rival[0][1], rival[-1][1])}
    if low > high:
        return row | {"overlap": False}
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

    lower, upper = min(logs), max(logs)
    for _ in range(60):  # bisection: half of the range lies below the median
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if share(-math.inf, middle) < 0.5 else (lower, middle)
    row |= {"overlap": True, "min": math.exp(min(logs)), "median": math.exp(upper), "max": math.exp(max(logs))}
    return row | {"inside_2_4": share(math.log(2), math.log(4)), "rival_cheaper": share(-math.inf, -1e-12)}


def _compute_words(row: dict) -> str:
    """How the claim fares on the range that both families reach."""
    words, other = [], row["other"]
    if other == "ResNet":  # the claim is about ResNets
        where = [text for text, is_so in (("below 2x", row["min"] < 2), ("above 4x", row["max"] > 4)) if is_so]
        share = f"2-4x on {100 * row['inside_2_4']:.0f} % of the range"
        words.append(f"{share}, {' and '.join(where)} elsewhere" if where else "2-4x everywhere")
    if other == "hybrid" or row["rival_cheaper"]:
        words.append(f"the {other} is the cheaper on {100 * row['rival_cheaper']:.0f} %")
    return "; ".join(words)


def _compute_cells(row: dict) -> list[str | None]:
    if not row["overlap"]:
        (v0, v1), (r0, r1) = row["vit"], row["rival"]
        none = f"no common range: ViT {v0:.2f} to {v1:.2f} % and {row['other']} {r0:.2f} to {r1:.2f} %"
        return [row["data"], None, None, None, none]
    ratios = f"{row['min']:.2f} to {row['max']:.2f}", f"{row['median']:.2f}"
    return [row["data"], f"{row['low']:.2f} to {row['high']:.2f}", *ratios, _compute_words(row)]


# Printed means and parameter counts ---------------------------------------------------------------------------------


def rounding(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Can a printed mean be that of the printed values, each known to half a unit of its last digit only?"""
    record.section("rounding: can a printed mean be the mean of the printed values?")
    table2, table7, table9 = (tables[name] for name in ("table2", "table7", "table9"))
    checks = [(f"Table 7 {c}", table7[f"average/{c}"], table7.column(c)) for c in table7.columns]
    checks += [(f"Table 9 {c}", table9[f"mean/{c}"], table9.column(c)) for c in table9.columns]
    vtab = table2.rows["VTAB (19 tasks)"]
    checks += [(f"Table 2 VTAB {c} from Table 9", vtab[c], table9.column(c)) for c in RELEASED]
    results, rows = [], []
    for what, printed, cells in checks:
        ours = mean([value(cell) for cell in cells.values()])
        slack = mean([cell.half_unit for cell in cells.values()])
        possible = abs(ours - value(printed)) <= slack + printed.half_unit + 1e-9
        verdict = record.judge(printed, ours, same_runs=True, terms={"rounding of the values": slack})
        word = f"possible: the true mean lies in {ours - slack:.3f} to {ours + slack:.3f}" if possible else "impossible"
        word = "equal" if verdict.verdict == EQUAL else word
        results.append({"what": what, "printed": printed.printed, "mean": ours, "slack": slack, "possible": possible})
        rows.append([what, printed.printed, f"{ours:.3f}", word])
    columns = ["printed mean", "printed", "mean of values", "result"]
    record.say("\n".join(aligned(columns, rows, left=(0, 3))))
    return results


def count(row: dict, patch: int) -> dict[str, int]:
    """Parameters of one row of Table 1 with `patch` x `patch` patches at 224 px, from the configuration alone: built on
    the `meta` device, without weights and memory.

    The paper does not say what its millions include, so the parts are counted apart: the encoder with its embeddings
    and last norm, the pre-logits layer (dense + tanh, only there in pre-training) and the ImageNet-1k head.
    """
    import torch
    from transformers import ViTConfig, ViTModel

    layers, hidden, mlp, heads = (int(value(row[name])) for name in ("layers", "hidden size", "MLP size", "heads"))
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": heads}
    with torch.device("meta"):
        model = ViTModel(ViTConfig(**sizes, patch_size=patch, image_size=224), add_pooling_layer=True)
    pre_logits = sum(p.numel() for p in model.pooler.parameters())
    encoder = sum(p.numel() for p in model.parameters()) - pre_logits
    head = 1000 * (hidden + 1)  # 1,000 classes, a bias each
    return {
        "encoder": encoder,
        "encoder + pre-logits": encoder + pre_logits,
        "encoder + head": encoder + head,
        "encoder + pre-logits + head": encoder + pre_logits + head,
    }


def table1(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Counts beside the printed millions; judged is the encoder with pre-logits at the smallest patch size."""
    record.section("Table 1: parameters counted from the configurations (meta device, 224 px)")
    judged, results, misses, lines = "encoder + pre-logits", [], [], []
    for name, row in tables["table1"].rows.items():
        printed, of_model = row["params"], []
        for patch in PATCHES[name]:
            counts = count(row, patch)
            fits = [what for what, n in counts.items() if printed.format(n / 1e6) == printed.printed]
            of_model.append({"model": name, "patch": patch, "printed": printed.printed, "counts": counts, "fits": fits})
            counted = (f"{n:,}" for n in counts.values())
            lines.append([f"{name}/{patch}", f"{printed.printed}M", *counted, ", ".join(fits) or "none"])
        smallest, reason = of_model[0], ""  # as PATCHES names them
        if judged not in smallest["fits"]:
            others = [f"{name}/{other['patch']} ({' or '.join(other['fits'])})" for other in of_model if other["fits"]]
            reason = (
                f"{name}/{smallest['patch']} has {smallest['counts'][judged] / 1e6:.1f}M ({judged}); "
                f"{printed.printed}M is the count of {' or of '.join(others) or 'none of these networks'}"
            )
            misses.append(reason)
        record.judge(printed, Measured(smallest["counts"][judged] / 1e6, reason=reason))
        results += of_model
    columns = ["model", "printed", "encoder", "+ pre-logits", "+ 1k head", "+ both", "which prints the same"]
    record.say("\n".join(aligned(columns, lines, left=(0, 6))))
    what = "what ImageNet-21k and JFT pre-training holds besides its head"
    record.say(f"  judged: {judged} at the smallest patch size, {what}")
    record.say("\n".join(f"  {miss}" for miss in misses)) if misses else None
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
        for id in [id for id in table.numbers if id not in in_rows]:
            record.say(f"    {id:<36} {table[id].printed}")
