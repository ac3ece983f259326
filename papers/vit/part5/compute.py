"""Table 6 as section 4.4 reads it: its exaFLOPs counted, and its sentences tested on its own digits.

Each section says its lines into a record and returns its numbers for `record.results`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from papers.vit.part4.audit import DATASETS, FIVE, Points, compute_ratio, frontier
from papers.vit.part4.cells import mean, value
from papers.vit.part5.architectures import ALL, NO_HEAD, NO_PADDING, NO_PATCHES, NO_SCORES, readings
from papers.vit.part5.claims import HOLDS, Finding, in_words
from shared.errors import UserError
from shared.published import RESTORE, Named, Number, Published
from shared.record import Record
from shared.verdict import Measured, binomial_variance

FAMILIES = {"ViT": "ViT-", "ResNet": "ResNet", "hybrid": "R50x1+"}  # how their rows in Table 6 begin
OPERATIONS = 6  # of one multiply-add in training: two forward, four backward
AVERAGE = "average of 5"
DIGITS = 9  # kept of what comes from a logarithm: its last bits are each C library's own
ODD = "R50x1+ViT-L/16, 7 epochs"  # printed above its own 14-epoch row's half
ROW = re.compile(rf"({'|'.join(map(re.escape, FAMILIES.values()))}).+, \d+ epochs")
TEST_IMAGES = {  # of the test sets as the paper uses them; ReaL: those images of ImageNet's 50,000 that have a label
    "ImageNet": 50_000,
    "ImageNet ReaL": 46_837,
    "CIFAR-10": 10_000,
    "CIFAR-100": 10_000,
    "Oxford-IIIT Pets": 3_669,
    "Oxford Flowers-102": 6_149,
}


@dataclass(frozen=True)
class Row:
    """One row of Table 6. compute: printed exaFLOPs; scores: accuracy in % by data set, and the average of five."""

    name: str
    cell: Number
    compute: float
    scores: dict[str, float]

    @property
    def model(self) -> str:
        return self.name.partition(",")[0]

    @property
    def epochs(self) -> int:
        return int(self.name.partition(", ")[2].split()[0])

    @property
    def family(self) -> str:
        return rows_family(self.name)

    @property
    def brief(self) -> str:
        """`R50+L/16*` for a label; * is 14 epochs."""
        text = self.model
        for long, short in (("R50x1+ViT-", "R50+"), ("ResNet", "R"), ("ViT-", "")):
            text = text.replace(long, short)
        return text + "*" * (self.epochs == 14)


Rows = dict[str, Row]


def rows_family(name: str) -> str:
    return next(family for family, prefix in FAMILIES.items() if name.startswith(prefix))


def read_rows(table6: Published) -> Rows:
    """Table 6 by the names of its rows. UserError for a name that says no family and epochs, and for an exaFLOPs that
    is not above 0: its logarithm is taken."""
    rows: Rows = Named("table6.json: rows")
    for name, cells in table6.rows.items():
        cell, scores = cells["exaFLOPs"], {d: value(cells[d]) for d in DATASETS}
        if not ROW.fullmatch(name):
            raise UserError(f"table6.json: row {name!r}: expected a name such as {ODD!r}; {RESTORE}")
        if not value(cell) > 0:
            raise UserError(f"table6.json: {name}: exaFLOPs must be above 0; {RESTORE}")
        rows[name] = Row(name, cell, value(cell), {AVERAGE: mean([scores[d] for d in FIVE]), **scores})
    return rows


def of(rows: Rows, family: str) -> list[Row]:
    return [row for row in rows.values() if row.family == family]


def points(rows: Iterable[Row], data: str) -> Points:
    return [(row.compute, row.scores[data]) for row in rows]


def of_all(parts: dict[str, bool]) -> str:
    """The verdict over the data sets, with that on their average in front where it is another."""
    sets = {data: holds for data, holds in parts.items() if data != AVERAGE}
    words = in_words(sets)
    if parts[AVERAGE] == words.startswith(HOLDS):
        return words
    return f"{HOLDS if parts[AVERAGE] else 'does not hold'} on average; a data set at a time: {words}"


def standard_error(first: float, second: float, data: str) -> float:
    """Of the difference of two accuracies in %, from the test sets alone (binomial, images of its own for each)."""
    return math.sqrt(sum(binomial_variance(percent, TEST_IMAGES[data]) for percent in (first, second)))


def error_of(first: Row, second: Row, data: str) -> float:
    """The same of two rows; of the average, from its five data sets."""
    sets = FIVE if data == AVERAGE else (data,)
    each = [standard_error(first.scores[d], second.scores[d], d) for d in sets]
    return math.hypot(*each) / len(each)


# exaFLOPs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """A row's exaFLOPs under each reading of what is counted; `ALL` is judged."""

    row: Row
    readings: dict[str, float]

    @property
    def full(self) -> float:
        return self.readings[ALL]

    @property
    def off(self) -> float:
        """Counted above the printed, as a share."""
        return self.full / self.row.compute - 1

    def prints(self) -> list[str]:
        """The readings that print the published digits."""
        return [name for name, count in self.readings.items() if self.row.cell.format(count) == self.row.cell.printed]


def count_all(rows: Rows, images: Number) -> dict[str, Count]:
    """exaFLOPs of every row: operations x multiply-adds x images x epochs. images: in millions."""
    counts = {}
    for name, row in rows.items():
        passes = OPERATIONS * images.value * 1e6 * row.epochs
        counts[name] = Count(row, {reading: passes * macs / 1e18 for reading, macs in readings(row.model).items()})
    return counts


def tell_counts(record: Record, counts: dict[str, Count], images: Number) -> None:
    record.section("Table 6: exaFLOPs counted from the architectures")
    record.say(
        f"  counted = {OPERATIONS} x multiply-adds of one 224-px image x {images.printed} million images x epochs: "
        "two operations a multiply-add forward, four backward. A convolution also multiplies the zeros around its "
        "input; a counter that looks at its window may leave those out (without zero padding)"
    )
    shown = (ALL, NO_PADDING, NO_SCORES, NO_PATCHES, NO_HEAD)
    cells = []
    for name, count in counts.items():
        marks = {reading: " =" if reading in count.prints() else "" for reading in count.readings}
        each = [f"{count.readings[r]:.1f}{marks[r]}" if r in count.readings else None for r in shown]
        cells.append([name, count.row.cell.printed, f"{100 * count.off:+.1f} %", *each])
    columns = ["model", "printed", "counted above", "counted", *shown[1:]]
    note = "=: prints the published digits."
    record.say_table("exaFLOPs of Table 6, counted", columns, cells, note=note)
    record.say(f"  {note}")
    for family in FAMILIES:
        offs = [100 * count.off for name, count in counts.items() if count.row.family == family and name != ODD]
        but = f" (without {ODD})" if family == rows_family(ODD) else ""
        record.say(f"  {family}: counted {min(offs):+.1f} to {max(offs):+.1f} % from the printed{but}")
    bare = [100 * (c.readings[NO_PADDING] / c.row.compute - 1) for c in counts.values() if c.row.family == "ResNet"]
    record.say(f"  ResNet, {NO_PADDING}: {min(bare):+.1f} to {max(bare):+.1f} %")
    half = odd_half(counts)
    record.say(
        f"  the odd one: {ODD} has {counts[ODD].row.cell.printed} in print, {counts[ODD].full:.1f} counted; half of "
        f"its 14-epoch row is {half:.0f}"
    )
    record.results["exaflops"] = {name: count.readings for name, count in counts.items()}


def odd_half(counts: dict[str, Count]) -> float:
    """What the odd row would have if it were half of the same model's 14 epochs, as every other pair is."""
    return counts[ODD.replace("7", "14")].row.compute / 2


def measured_counts(counts: dict[str, Count], images: Number) -> dict[str, Measured]:
    """For the verdicts: the full count, with what the rounding of the number of images leaves open."""
    found = {}
    for name, count in counts.items():
        others = [f"{number:.1f} {reading}" for reading, number in count.readings.items() if reading == NO_PADDING]
        printed = " and ".join(count.prints())
        why = "; ".join([*others, f"{count.row.cell.printed} is the count {printed or 'of no reading here'}"])
        if name == ODD:
            why = f"half of the 14-epoch row is {odd_half(counts):.0f}: a misprint, or another run"
        slack = count.full * images.half_unit / images.value
        differs = abs(count.full - count.row.compute) > slack + count.row.cell.half_unit
        found[f"{name}/exaFLOPs"] = Measured(
            count.full,
            same_runs=True,  # of the same networks: no luck is in a count
            terms={"rounding of the images": slack},
            reason=why if differs else "",
        )
    return found


# the sentences -------------------------------------------------------------------------------------------------------


def accuracy_at(front: Points, compute: float) -> float:
    """Accuracy of a frontier at `compute`, linear in log compute between its points.

    Beyond its last point what that one has: no dearer model of the family is better. NaN before its first.
    """
    if compute >= front[-1][0]:
        return front[-1][1]
    for (c0, a0), (c1, a1) in pairwise(front):
        if c0 <= compute <= c1:
            return a0 + (a1 - a0) * math.log(compute / c0) / math.log(c1 / c0)
    return math.nan


def joint_frontier(rows: Rows, families: Iterable[str], data: str) -> list[Row]:
    """The Pareto front of these families' models, by rising compute: no cheaper one equals or beats them."""
    members = [row for family in families for row in of(rows, family)]
    front = frontier(points(members, data))
    return [row for point in front for row in members if (row.compute, row.scores[data]) == point]


def dominance(record: Record, rows: Rows) -> Finding:
    """4.4-a: which ResNets are on the joint frontier, and how far each is from the ViTs at its compute."""
    record.section("Section 4.4: do ViTs dominate ResNets? The joint frontier of accuracy and compute")
    cheapest = min(row.compute for row in of(rows, "ViT"))
    cheaper = [row.brief for row in of(rows, "ResNet") if row.compute < cheapest]
    record.say(f"  left out, because no ViT costs as little ({cheapest:g} exaFLOPs): {', '.join(cheaper)}")
    rivals = [row for row in of(rows, "ResNet") if row.compute >= cheapest]
    cells, parts = [], {}
    for data in (AVERAGE, *DATASETS):
        joint = {row.name for row in joint_frontier(rows, ("ViT", "ResNet"), data)}
        on = [row.brief for row in rivals if row.name in joint]
        front = frontier(points(of(rows, "ViT"), data))
        gaps = {row.brief: row.scores[data] - accuracy_at(front, row.compute) for row in rivals}
        best = max(gaps, key=gaps.get)
        parts[data] = not on
        cells.append([data, ", ".join(on) or "none", f"{min(gaps.values()):+.2f}", f"{gaps[best]:+.2f}", best])
    columns = ["data set", "ResNets on the joint frontier", "least, points", "most, points", "most by"]
    note = "Points: ResNet minus the ViTs' frontier at the ResNet's compute, linear in log compute. * 14 epochs."
    record.say_table("Do ViTs dominate ResNets?", columns, cells, left=(0, 1, 4), note=note)
    record.say(f"  {note}")
    record.results["dominance"] = {row[0]: row[1] for row in cells}
    numbers = "; ".join(f"{row[0]}: {row[1]}" for row in cells)
    return Finding(of_all(parts), f"ResNets on the joint frontier: {numbers}")


def ratio_claim(record: Record, rows: Rows) -> dict[str, Measured]:
    """2 to 4 times less compute, for the average of five; the data sets one by one are in part 4's log."""
    vit, resnet = (frontier(points(of(rows, family), AVERAGE)) for family in ("ViT", "ResNet"))
    found = compute_ratio(vit, resnet)
    row = {key: round(number, DIGITS) if isinstance(number, float) else number for key, number in found.items()}
    record.section("Section 4.4: 2 to 4 times less compute for the same accuracy, average of 5")
    share = f"{100 * row['inside_2_4']:.0f} %"
    record.say(
        f"  from {row['low']:.2f} to {row['high']:.2f} % accuracy ResNets need {row['min']:.2f} to {row['max']:.2f} "
        f"times the ViTs' compute, median {row['median']:.2f}; 2 to 4 times on {share} of that range"
    )
    record.results["ratio"] = row
    why = f"median {row['median']:.2f}; between 2 and 4 on {share} of the accuracies that both reach"
    # an exaFLOPs of two digits is known to a hundredth; the ratio has one on either side
    open_by = sum(max(r.cell.half_unit / r.compute for r in of(rows, family)) for family in ("ViT", "ResNet"))

    def judged(edge: str) -> Measured:
        return Measured(row[edge], same_runs=True, terms={"rounding of exaFLOPs": open_by * row[edge]}, reason=why)

    return {"compute/ViT uses less, from": judged("min"), "compute/ViT uses less, to": judged("max")}


def hybrid_gaps(rows: Rows, data: str) -> dict[str, tuple[float, float]]:
    """By hybrid: (its accuracy minus the ViTs' frontier at its compute in points, two standard errors)."""
    front = frontier(points(of(rows, "ViT"), data))
    found = {}
    for row in sorted(of(rows, "hybrid"), key=lambda row: row.compute):
        # the test sets' error is that against a model of the frontier's accuracy: the ViT nearest in compute
        near = min(of(rows, "ViT"), key=lambda vit: abs(math.log(vit.compute / row.compute)))
        gap = round(row.scores[data] - accuracy_at(front, row.compute), DIGITS)
        found[row.name] = (gap, round(2 * error_of(row, near, data), DIGITS))
    return found


def hybrid_parts(rows: Rows) -> dict[str, tuple[bool, bool]]:
    """By data set: whether every hybrid is ahead with little compute, and the difference gone for all with much."""
    edge = cheapest_large(rows)
    found = {}
    for data in (AVERAGE, *DATASETS):
        gaps = hybrid_gaps(rows, data)
        little = [gap > 0 for name, (gap, _) in gaps.items() if rows[name].compute < edge]
        much = [abs(gap) <= noise for name, (gap, noise) in gaps.items() if rows[name].compute >= edge]
        found[data] = all(little), all(much)
    return found


def cheapest_large(rows: Rows) -> float:
    """exaFLOPs from which on compute is "much" here: the cheapest ViT-L/16."""
    return min(row.compute for row in of(rows, "ViT") if row.model == "ViT-L/16")


def hybrid_verdict(rows: Rows) -> str:
    return of_all({data: ahead and gone for data, (ahead, gone) in hybrid_parts(rows).items()})


def hybrids(record: Record, rows: Rows) -> Finding:
    """4.4-b: ahead with little compute, and level with much?"""
    edge, gaps = cheapest_large(rows), {data: hybrid_gaps(rows, data) for data in (AVERAGE, *DATASETS)}
    record.section("Section 4.4: are hybrids better with little compute, and is the difference gone with much?")
    record.say(
        "  hybrid minus the ViTs' frontier at its compute, points (in brackets: two standard errors of the test "
        f"sets); little is below the cheapest ViT-L/16, {edge:g} exaFLOPs"
    )
    cells = []
    for data, (ahead, gone) in hybrid_parts(rows).items():
        words = ["yes" if one else "no" for one in (ahead, gone)]
        cells.append([data, *(f"{gap:+.2f} ({noise:.2f})" for gap, noise in gaps[data].values()), *words])
    heads = [f"{rows[name].brief} at {rows[name].compute:g}" for name in gaps[AVERAGE]]
    columns = ["data set", *heads, f"ahead below {edge:g}", "gone from there"]
    record.say_table("Hybrids against ViTs at equal compute", columns, cells)
    record.results["hybrids"] = gaps
    of_average = ", ".join(f"{rows[name].brief} {gap:+.2f}" for name, (gap, _) in gaps[AVERAGE].items())
    return Finding(hybrid_verdict(rows), f"{AVERAGE}, points: {of_average}")


def saturation(record: Record, rows: Rows) -> Finding:
    """4.4-c: the last step of the ViTs, a data set at a time."""
    record.section("Section 4.4: do ViTs saturate? From ViT-L/16 to ViT-H/14, both 14 epochs")
    small, large = rows["ViT-L/16, 14 epochs"], rows["ViT-H/14, 14 epochs"]
    doublings = math.log2(large.compute / small.compute)
    cells, parts = [], {}
    for data in (AVERAGE, *DATASETS):
        gain = round(large.scores[data] - small.scores[data], 6)
        noise = 2 * error_of(large, small, data)
        parts[data] = gain > 0
        result = "beyond" if gain > noise else "inside"
        cells.append([data, f"{gain:+.2f}", f"{gain / doublings:+.2f}", f"{noise:.2f}", result])
    columns = ["data set", "gain, points", "a doubling of compute", "2 s.e.", "result"]
    note = "2 s.e.: the test sets' binomial error; a second training of each network would add to it."
    record.say_table("From ViT-L/16 to ViT-H/14", columns, cells, left=(0, 4), note=note)
    record.results["saturation"] = {row[0]: row[1] for row in cells}
    beyond = sum(row[4] == "beyond" for row in cells)
    numbers = ", ".join(f"{row[0]} {row[1]}" for row in cells)
    return Finding(of_all(parts), f"{numbers}; beyond two standard errors of the test sets: {beyond} of {len(cells)}")


def consequences(record: Record, rows: Rows, counts: dict[str, Count]) -> None:
    """Every result that uses the odd row, with its compute as printed and with half of its 14-epoch row."""
    half = odd_half(counts)
    both = (rows, rows | {ODD: replace(rows[ODD], compute=half)})
    labels = [f"{each[ODD].compute:g}" for each in both]
    record.section(f"What hangs on {labels[0]}: the same with {labels[1]} exaFLOPs for {ODD}")
    cells = []
    for data in (AVERAGE, *DATASETS):
        gaps = [f"{hybrid_gaps(each, data)[ODD][0]:+.2f}" for each in both]
        on = [any(row.name == ODD for row in joint_frontier(each, FAMILIES, data)) for each in both]
        cells.append(
            [data, *gaps, *(_ratio_words(each, data) for each in both), *("yes" if one else "no" for one in on)]
        )
    heads = ("minus ViTs", "compute / ViTs'", "on frontier")
    columns = ["data set", *(f"{head}: {label}" for head in heads for label in labels)]
    note = (
        "This hybrid minus the ViTs at its compute, points; hybrids' compute over the ViTs' at equal accuracy, median "
        "and range; whether this hybrid is on the frontier of all three families."
    )
    record.say_table("What the odd row changes", columns, cells, note=note)
    record.say(f"  {note}")
    verdicts = [hybrid_verdict(each) for each in both]
    words = "the same" if verdicts[0] == verdicts[1] else f"with {labels[1]}: {verdicts[1]}"
    record.say(
        f"  hybrids against ViTs, the verdict: {words}\n"
        "  dominance, 2 to 4 times and saturation compare ViTs and ResNets only: none of them uses the row"
    )
    record.results["odd row"] = {"columns": columns, "rows": cells, "verdicts": verdicts}


def _ratio_words(rows: Rows, data: str) -> str:
    vit, hybrid = (frontier(points(of(rows, family), data)) for family in ("ViT", "hybrid"))
    row = compute_ratio(vit, hybrid)
    return "{median:.2f} ({min:.2f} to {max:.2f})".format(**row) if row["overlap"] else "-"
