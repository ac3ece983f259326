"""Do the paper's tables agree with each other, and with the sentences about them?

Each function says its lines into a record and returns its numbers for `record.results`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product
from math import hypot, isclose

from papers.resnet.architectures import CIFAR_DEPTHS, cifar, imagenet, multiply_adds, parameters, vgg
from shared.published import Number, Published
from shared.record import Record
from shared.verdict import standard_error

TOP1, TOP5, TEST = "top-1 err.", "top-5 err.", "top-5 err. (test)"  # columns of Tables 3 to 5

Tables = dict[str, Published]


def half_unit(*cells: Number) -> float:
    """What the rounding of printed inputs leaves open in their sum or difference."""
    return sum(cell.half_unit for cell in cells)


def difference(a: Number, b: Number) -> float:
    """a - b of two printed cells. In their own digits: floats would leave 2.8499999999999979 of 27.88 - 25.03."""
    return round(a.value - b.value, max(a.decimals, b.decimals))


def claims(record: Record, tables: Tables) -> list[dict]:
    """Sentences that compare: the numbers behind each, and whether it holds."""
    two, three, four, five, six = (tables[f"table{i}"] for i in (2, 3, 4, 5, 6))
    rows: list[dict] = []

    def says(sentence: str, sign: str, *values: Number | float, holds: bool | None = None) -> None:
        """The values one after the other fall (">") or are equal ("="); `holds` where it is neither."""
        bare = [value.value if isinstance(value, Number) else value for value in values]
        if holds is None:
            holds = all(a > b if sign == ">" else a == b for a, b in pairwise(bare))
        rows.append({"sentence": sentence, "numbers": f" {sign} ".join(map(shown, values)), "holds": holds})

    says("Table 2: the deeper plain net is worse", ">", two["34 layers/plain"], two["18 layers/plain"])
    says("Table 2: the deeper ResNet is better", ">", two["18 layers/ResNet"], two["34 layers/ResNet"])
    says("Tables 2 and 3: plain-34", "=", two["34 layers/plain"], three[f"plain-34/{TOP1}"])
    says("Tables 2 and 3: ResNet-34 A", "=", two["34 layers/ResNet"], three[f"ResNet-34 A/{TOP1}"])
    for error in (TOP1, TOP5):
        options = [three[f"{row}/{error}"] for row in ("plain-34", "ResNet-34 A", "ResNet-34 B", "ResNet-34 C")]
        says(f"Table 3: all options beat the plain net, B beats A, C beats B ({error})", ">", *options)
        for table in (three, four):
            name = f"Table {table.experiment[-1]}"
            deeper = [table[f"ResNet-{net}/{error}"] for net in ("34 C", 50, 101, 152)]
            says(f"{name}: 50 layers beat the best ResNet-34, 101 beat 50, 152 beat 101 ({error})", ">", *deeper)
    earlier = [cell for row, cell in five.column(TEST).items() if not row.startswith("ResNet")]
    best = min(earlier, key=lambda cell: cell.value)
    says("Tables 4 and 5: ResNet-152 alone beats every earlier ensemble", ">", best, four[f"ResNet-152/{TOP5}"])
    costs = [multiply_adds(network) / 1e9 for network in (vgg(19), vgg(16), imagenet(152))]
    says("4.1: ResNet-152 costs less than both VGGs (10^9 multiply-adds, counted)", ">", *costs)
    plain, bottleneck = imagenet(34).stages[0][-1], imagenet(50).stages[0][-1]
    alike = isclose(plain.weights, bottleneck.weights, rel_tol=0.1)
    says(
        "Figure 5: both blocks cost about the same (counted per pixel)",
        "and",
        plain.weights,
        bottleneck.weights,
        holds=alike,
    )
    grown = bottleneck.weights + replace(bottleneck, shortcut="projection").projection.weights
    factor = grown / bottleneck.weights
    says(
        f"4.1: a projection doubles the bottleneck (counted: {factor:.2f} times)",
        "against",
        grown,
        bottleneck.weights,
        holds=round(factor) == 2,
    )
    says("Table 6: gains from 20 to 110 layers", ">", *(six[f"ResNet-{depth}/error"] for depth in CIFAR_DEPTHS[:-1]))
    says("Table 6: 1202 layers are worse than 110", ">", six["ResNet-1202/error"], six["ResNet-110/error"])
    for other in ("FitNet", "Highway-19", "Highway-32"):
        both = six[f"{other}/# params"], six["ResNet-110/# params"]
        says(f"4.2: ResNet-110 has fewer parameters than {other} (million)", ">", *both)
    both = parameters(cifar(110)), parameters(cifar(110, "none"))
    says("4.2: ResNet-110 has exactly as many parameters as plain-110 (counted)", "=", *both)
    cells = [[row["sentence"], row["numbers"], "holds" if row["holds"] else "does not hold"] for row in rows]
    record.say_table("Sentences against the numbers", ["sentence", "numbers", "result"], cells, left=(0, 1, 2))
    return rows


def shown(value: Number | float) -> str:
    if isinstance(value, Number):
        return value.printed
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def gaps(record: Record, tables: Tables) -> list[dict]:
    """Steps of Tables 2 to 4 against the standard error of 50,000 test images per side."""
    two = tables["table2"]
    steps = [
        (f"Table 2 {kind} 18 -> 34", TOP1, two[f"18 layers/{kind}"], two[f"34 layers/{kind}"]) for kind in two.columns
    ] + [(f"Table 2 {depth} plain -> ResNet", TOP1, *two.rows[depth].values()) for depth in two.rows]
    for name, options in (("table3", "ABC"), ("table4", "BC")):
        rows = [*(f"ResNet-34 {option}" for option in options), *(f"ResNet-{depth}" for depth in (50, 101, 152))]
        for (a, b), error in product(pairwise(rows), (TOP1, TOP5)):
            step = f"Table {name[-1]} {a.removeprefix('ResNet-')} -> {b.removeprefix('ResNet-')}"
            steps.append((step, error, tables[name][f"{a}/{error}"], tables[name][f"{b}/{error}"]))
    found = []
    for what, error, a, b in steps:
        change, noise = difference(b, a), 2 * hypot(*(standard_error(cell.value, cell.images) for cell in (a, b)))
        row = {"what": what, "error": error.split()[0], "from": a.printed, "to": b.printed, "change": change}
        found.append(row | {"two_standard_errors": noise, "beyond": abs(change) > noise})
    record.say()
    record.say_table(
        "Steps of Tables 2 to 4",
        ["step", "error", "from", "to", "change", "two standard errors", "result"],
        [
            [
                r["what"],
                r["error"],
                r["from"],
                r["to"],
                f"{r['change']:+.2f}",
                f"{r['two_standard_errors']:.2f}",
                "beyond" if r["beyond"] else "inside",
            ]
            for r in found
        ],
        left=(0, 1, 6),
        note="Standard errors of the test set, as if each side had been scored on 50,000 images of its own",
    )
    record.say(
        f"  {sum(r['beyond'] for r in found)} of {len(found)} steps are beyond two standard errors of two independent "
        "tests; the same images for\n  all make a step surer than that, one training of each network makes it less sure"
    )
    return found


def orders(record: Record, tables: Tables) -> list[dict]:
    """Pairs of methods that top-1 and top-5 error order differently."""
    found = []
    for name in ("table3", "table4"):
        both = {row: cells for row, cells in tables[name].rows.items() if None not in cells.values()}
        wrong = [row for row, cells in both.items() if cells[TOP5].value >= cells[TOP1].value]
        pairs = list(combinations(both, 2))
        for a, b in pairs:
            by = {error: difference(both[a][error], both[b][error]) for error in (TOP1, TOP5)}
            if by[TOP1] * by[TOP5] <= 0:
                found.append({"table": name, "pair": [a, b], "top-1": by[TOP1], "top-5": by[TOP5]})
        odd = [f for f in found if f["table"] == name]
        record.say(
            f"\n  Table {name[-1]}: top-5 error below top-1 error in {len(both) - len(wrong)} of {len(both)} rows; "
            f"both order {len(pairs) - len(odd)} of {len(pairs)} pairs alike"
        )
        for f in odd:
            a, b = f["pair"]
            record.say(f"    {a} - {b}: top-1 {f['top-1']:+.2f}, top-5 {f['top-5']:+.2f}")
    return found


def testing(record: Record, tables: Tables) -> list[dict]:
    """What the fully-convolutional test at several scales (Table 4) gains over ten crops (Table 3)."""
    crops, scales = tables["table3"].rows, tables["table4"].rows
    rows = [
        {"model": row} | {error: difference(scales[row][error], crops[row][error]) for error in (TOP1, TOP5)}
        for row in scales
        if row in crops
    ]
    record.say()
    record.say_table(
        "Several scales (Table 4) against ten crops (Table 3)",
        ["several scales minus ten crops", "top-1", "top-5"],
        [[row["model"], f"{row[TOP1]:+.2f}", f"{row[TOP5]:+.2f}"] for row in rows],
    )
    return rows


def ensembles(record: Record, tables: Tables) -> list[dict]:
    """Table 5's ensembles against the best single model of the same method in Table 4."""
    rows = []
    four = [number for id, number in tables["table4"].numbers.items() if id.endswith(TOP5)]
    for method, ensemble in tables["table5"].column(TEST).items():
        family = "ResNet-" if method.startswith("ResNet") else method
        single = min((cell for cell in four if cell.id.startswith(family)), key=lambda cell: cell.value)
        change = difference(ensemble, single)
        rows.append(
            {
                "method": method,
                "single": single.id.rpartition("/")[0],
                "single_error": single.printed,
                "ensemble_error": ensemble.printed,
                "change": change,
                "share": 100 * change / single.value,
            }
        )
    record.say()
    record.say_table(
        "Ensembles (Table 5) against single models (Table 4), top-5 error",
        ["ensemble", "best single model", "single", "ensemble", "change", "in %"],
        [
            [
                r["method"],
                r["single"],
                r["single_error"],
                r["ensemble_error"],
                f"{r['change']:+.2f}",
                f"{r['share']:+.0f}",
            ]
            for r in rows
        ],
        left=(0, 1),
        note="the ensembles are scored on the test set, the single models on the validation set",
    )
    return rows
