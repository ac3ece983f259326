"""Count what He et al.'s networks cost, hold their text to their tables and their tables to each other.

    python papers/resnet/resnet_tables.py              under a second, no torch
    python papers/resnet/resnet_tables.py --figures    also draws both figures: PNG, SVG and PDF

Nothing is trained. Every count is made under each reading that the paper leaves open, a column each; the verdict is on
the paper's own. Writes results/resnet/tables.log and tables.json.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.resnet import agreement
from papers.resnet.agreement import TEST, TOP1, TOP5, Tables, difference, half_unit
from papers.resnet.architectures import (
    CIFAR_DEPTHS,
    IMAGENET_BLOCKS,
    VGG_LAYERS,
    Block,
    ResNet,
    cifar,
    imagenet,
    multiply_adds,
    output_sizes,
    parameters,
    projections,
    vgg,
    weighted_layers,
)
from shared import cli
from shared.plots import beside, figure_and_axes, mark_cut, publish
from shared.published import Number, load
from shared.record import Record, aligned
from shared.verdict import AGREES, DIFFERS, EQUAL, NOT_RUN, Measured, standard_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = ("table1", "table2", "table3", "table4", "table5", "table6", "text")
OWN = "own"  # the paper's own reading

Numbers = dict[str, Measured | float | str]


@dataclass
class Config(cli.Common):
    figures: bool = False
    """[output] draw the figures into results/resnet/figures (imports matplotlib)"""


def main(config: Config) -> Record:
    tables = {name: load("resnet", name) for name in TABLES}
    question = "Do the networks cost what the paper prints, and do its tables and its text agree?"
    with Record("resnet", "tables", config=config, results=config.results, question=question) as record:
        flops = flops_section(record, tables)
        parameter_section(record, tables)
        measured = {name: {} for name in TABLES} | {
            "table1": table1_numbers(flops),
            "table6": table6_numbers(),
            "text": text_numbers(tables, flops),
        }
        record.section("cross-checks: what is printed, against what else is printed or counted")
        record.results["claims"] = agreement.claims(record, tables)
        record.results["gaps"] = agreement.gaps(record, tables)
        record.results["orders"] = agreement.orders(record, tables)
        record.results["testing"] = agreement.testing(record, tables)
        record.results["ensembles"] = agreement.ensembles(record, tables)
        if config.figures:
            data = "papers/resnet/published and the networks counted"
            publish(record, draw_flops(flops), "tables-flops", FLOPS_CAPTION, data=data)
            publish(record, draw_errors(tables, flops), "tables-errors", ERRORS_CAPTION, data=data)
        known = explanations(tables, flops)
        for name, published in tables.items():
            explained = {}
            for id, number in measured[name].items():
                if why := known.get((f"resnet/{name}", id)):
                    ours = number if isinstance(number, Measured) else Measured(number)
                    explained[id] = replace(ours, reason=why)
            record.judge_all(published, measured[name] | explained, why_not_run)
        record.contradictions(contradictions(record))
        record.print_verdicts()
        record.results["reasons"] = reasons(record, tables, flops)
        record.answer(in_words(record))
        record.cannot_show(
            "whether the printed errors are right. It counts what the networks cost and compares what is printed; the "
            "training runs on ImageNet and CIFAR-10 are not repeated here."
        )
    return record


def in_words(record: Record) -> str:
    """What came out, for somebody who reads no table."""
    counts = Counter(v.verdict for v in record.verdicts)
    done = counts.total() - counts[NOT_RUN]
    off = ", ".join(v.id.replace("/", ": ") for v in record.verdicts if v.verdict == DIFFERS)
    sentences, steps = record.results["claims"], record.results["gaps"]
    holds, beyond = sum(row["holds"] for row in sentences), sum(row["beyond"] for row in steps)
    return (
        f"Of {done} printed numbers that can be counted or worked out here {counts[EQUAL]} come out as printed, "
        f"{counts[AGREES]} inside the rounding, and {counts[DIFFERS]} differ ({off}). {holds} of "
        f"{len(sentences)} sentences that compare numbers hold. Of {len(steps)} steps from one network to the next "
        f"{beyond} change the error by more than two standard errors of the test images."
    )


def contradictions(record: Record) -> list[dict[str, str]]:
    """Sentences that the numbers do not bear out, and printed counts that no network of the paper has."""
    broken = [row for row in record.results["claims"] if not row["holds"]]
    found = [{"where": "text", "claim": row["sentence"], "arithmetic": row["numbers"]} for row in broken]
    for v in record.verdicts:
        if v.verdict == DIFFERS and v.difference is not None:
            claim = f"{v.id}: {v.published} {v.unit}".rstrip()
            found.append({"where": v.source, "claim": claim, "arithmetic": f"{v.shown}: {v.reason}"})
    return found


def why_not_run(number: Number) -> str:
    if number.source == "resnet/table1":
        return "words for the last layers, no number of their own"
    if number.source == "resnet/table6" and number.unit != "%":
        return "another paper's network"
    if number.source == "resnet/text" and number.unit != "%":
        return "a setting of training runs or a size of image sets that this script does not use"
    return "the training runs are not repeated"


# Table 1: multiply-adds under each reading ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """A network's multiply-adds, printed and under each reading of what was counted.

    reading     in words, what the paper itself says that it counted
    counts      reading -> multiply-adds; OWN is the paper's
    """

    name: str
    printed: Number
    reading: str
    counts: dict[str, int]

    @property
    def own(self) -> float:
        """In units of the printed number, 10^9."""
        return self.counts[OWN] / 1e9

    def prints(self, reading: str, truncated: bool = False) -> str:
        """The count in the printed format, rounded or cut off."""
        scale = 10**self.printed.decimals
        count = self.counts[reading]
        return self.printed.format(count * scale // 10**9 / scale if truncated else count / 1e9)

    def ways(self) -> str:
        """Which readings print the published digits, and whether rounded or truncated, in words."""
        found = []
        for reading, count in self.counts.items():
            if reading != OWN and count == self.counts[OWN]:
                continue  # another name for the same
            ways = [
                word
                for truncated, word in ((False, "rounded"), (True, "truncated"))
                if self.prints(reading, truncated) == self.printed.printed
            ]
            if ways:
                found.append(f"{self.reading if reading == OWN else reading} ({' or '.join(ways)})")
        return ", ".join(found) or "no reading here"


def flops_readings(tables: Tables) -> dict[str, Count]:
    """Table 1's networks and both VGGs, by the names of their columns.

    The paper's own reading: option A for 18 and 34 layers (Table 2), B for more (section 4.1); a bottleneck's stride
    in its first 1x1, the block's first layer ("conv3_1" in Table 1's caption) and so in the released models;
    convolutions and linear layers.
    """
    found = {}
    for depth in IMAGENET_BLOCKS:
        own = imagenet(depth)
        counts = {OWN: multiply_adds(own)}
        for option in "ABC":
            counts[f"option {option}"] = multiply_adds(imagenet(depth, option))
        if depth >= 50:
            counts["stride in the 3x3"] = multiply_adds(imagenet(depth, stride_in="3x3"))
        counts["no linear layer"] = multiply_adds(own, linear=False)
        reading = "option B with the stride in the first 1x1" if depth >= 50 else "option A as in the plain net"
        found[f"{depth}-layer"] = Count(own.name, tables["table1"][f"FLOPs/{depth}-layer"], reading, counts)
    for depth in VGG_LAYERS:
        counts = {OWN: multiply_adds(vgg(depth)), "no linear layer": multiply_adds(vgg(depth), linear=False)}
        printed = tables["text"][f"4.1/FLOPs of VGG-{depth}"]
        found[f"VGG-{depth}"] = Count(f"VGG-{depth}", printed, "all layers", counts)
    return found


def flops_section(record: Record, tables: Tables) -> dict[str, Count]:
    flops = flops_readings(tables)
    record.say("== Table 1: multiply-adds of one 224x224 image, 10^9, under each reading ==")
    readings = [reading for reading in LOOKS if reading != OWN]
    rows = []
    for count in flops.values():
        cells = [f"{count.counts[r] / 1e9:.3f}" if r in count.counts else None for r in readings]
        own = [count.printed.printed, f"{count.own:.3f}", count.prints(OWN), count.prints(OWN, truncated=True)]
        rows.append([count.name, *own, *cells, count.reading])
    columns = ["network", "printed", "counted", "rounded", "truncated", *readings]
    lines = [
        "  options of a shortcut (section 3.3) where a block is wider than its input: A fills up with zeros, B "
        "projects (a 1x1 convolution); C projects in every block",
        *aligned(columns, [row[:-1] for row in rows]),
    ]
    for reading in dict.fromkeys(count.reading for count in flops.values()):
        whose = ", ".join(count.name for count in flops.values() if count.reading == reading)
        lines.append(f"  counted for {whose}: {reading}, the paper's own reading")
    columns.append("the paper's own reading, counted")
    record.say_table("Multiply-adds, 10^9, under each reading", columns, rows, lines=lines)
    for truncated, word in ((False, "rounded"), (True, "truncated")):
        missed = [c.name for c in flops.values() if c.prints(OWN, truncated) != c.printed.printed]
        record.say(
            f"  {word}, the paper's own reading prints all but {', '.join(missed)}" if missed else f"  {word}: all"
        )
    record.results["multiply_adds"] = {name: count.counts for name, count in flops.items()}
    return flops


def table1_numbers(flops: dict[str, Count]) -> Numbers:
    """Table 1 cell by cell, as the networks that are counted here have it."""
    numbers: Numbers = {}
    for depth in IMAGENET_BLOCKS:
        network, column = imagenet(depth), f"{depth}-layer"
        numbers[f"FLOPs/{column}"] = flops[column].own
        stem = network.stem
        numbers[f"max pool/{column}"] = f"{square(network.pool.kernel)} max pool, stride {network.pool.stride}"
        numbers[f"conv1/{column}"] = f"{square(stem.kernel)}, {stem.width}, stride {stem.stride}"
        for stage, blocks in enumerate(network.stages, start=2):
            numbers[f"conv{stage}_x/{column}"] = stage_words(blocks)
    sizes = {f"conv{stage + 1}_x": size for stage, size in output_sizes(network).items() if 0 < stage < 5}
    sizes |= {"conv1": output_sizes(network)[0], "max pool": sizes["conv2_x"], "head": output_sizes(network)[5]}
    return numbers | {f"{row}/output size": square(size) for row, size in sizes.items()}


def stage_words(blocks: tuple[Block, ...]) -> str:
    """`[3×3, 64; 3×3, 64] × 2`."""
    each = {"; ".join(f"{square(conv.kernel)}, {conv.width}" for conv in block.convs) for block in blocks}
    return " or ".join(f"[{words}] × {len(blocks)}" for words in sorted(each))


def square(size: int) -> str:
    return f"{size}×{size}"


# Table 6: parameters under each reading ------------------------------------------------------------------------------


def parameter_section(record: Record, tables: Tables) -> None:
    record.section("Table 6: parameters of the CIFAR-10 networks under each reading")
    readings: dict[str, Callable[[int], int]] = {
        "option A, plain": lambda depth: parameters(cifar(depth)),
        "option B": lambda depth: parameters(cifar(depth, "B")),
        "option C": lambda depth: parameters(cifar(depth, "C")),
        "A, no norms": lambda depth: parameters(cifar(depth), norms=False),
        "A, no linear layer": lambda depth: parameters(cifar(depth), linear=False),
    }
    printed = {depth: tables["table6"][f"ResNet-{depth}/# params"] for depth in CIFAR_DEPTHS}
    counts = {depth: {reading: count(depth) for reading, count in readings.items()} for depth in CIFAR_DEPTHS}
    rows = [
        [f"ResNet-{depth}", f"{printed[depth].printed}M", *(f"{count:,}" for count in counts[depth].values())]
        for depth in CIFAR_DEPTHS
    ]
    record.say_table("Parameters under each reading", ["network", "printed", *readings], rows)
    for reading in readings:
        equal = [d for d in CIFAR_DEPTHS if printed[d].format(counts[d][reading] / 1e6) == printed[d].printed]
        missed = ", ".join(str(depth) for depth in CIFAR_DEPTHS if depth not in equal)
        record.say(f"  {reading}: {len(equal)} of {len(CIFAR_DEPTHS)} as printed" + f", not {missed}" * bool(missed))
    record.results["parameters"] = {f"ResNet-{depth}": own for depth, own in counts.items()}


def table6_numbers() -> Numbers:
    numbers: Numbers = {}
    for depth in CIFAR_DEPTHS:
        numbers[f"ResNet-{depth}/# layers"] = weighted_layers(cifar(depth))
        numbers[f"ResNet-{depth}/# params"] = parameters(cifar(depth)) / 1e6
    return numbers


# The text ------------------------------------------------------------------------------------------------------------


def text_numbers(tables: Tables, flops: dict[str, Count]) -> Numbers:
    """The text's numbers by their ids: counted on the networks, or arithmetic on the printed tables."""
    small, large, baseline, big = flops["50-layer"], flops["152-layer"], flops["34-layer"], flops["VGG-19"]
    plain = imagenet(34, "none")
    block = imagenet(50).stages[0][-1]  # Figure 5, right
    more = projections(imagenet(34, "C")) - projections(imagenet(34, "B"))
    counted = {
        "abstract/depth of ResNet-152 against VGG": weighted_layers(imagenet(152)) / weighted_layers(vgg(19)),
        "3.3/weighted layers of the plain net": weighted_layers(plain),
        "3.3/FLOPs of the 34-layer baseline": multiply_adds(plain) / 1e9,
        "3.3/share of VGG-19": ratio_of_printed(baseline.printed, big.printed),
        "3.3/FLOPs of VGG-19": big.own,
        "3.3/stride of a shortcut across two sizes": one({b.stride for b in shortcuts(imagenet(34)) if b.stride > 1}),
        "Figure 3/FLOPs of VGG-19": big.own,
        "Figure 3/FLOPs of plain-34": multiply_adds(plain) / 1e9,
        "Figure 3/FLOPs of ResNet-34": baseline.own,
        "4.1/projection shortcuts of option C": {13: "thirteen"}.get(more, str(more)),
        "4.1/bottleneck with a projection shortcut": times(
            1 + replace(block, shortcut="projection").projection.weights / block.weights
        ),
        "4.1/FLOPs of the 50-layer ResNet": small.own,
        "4.1/FLOPs of the 152-layer ResNet": large.own,
        "4.1/FLOPs of VGG-16": flops["VGG-16"].own,
        "4.1/FLOPs of VGG-19": big.own,
    }
    two, four, five, six = (tables[f"table{i}"] for i in (2, 4, 5, 6))
    printed = {
        "4.1/34-layer ResNet better than the 18-layer one by": gap(two["34 layers/ResNet"], two["18 layers/ResNet"]),
        "4.1/34-layer ResNet better than plain-34 by": gap(two["34 layers/ResNet"], two["34 layers/plain"]),
        "4.1/single-model top-5 error of ResNet-152": same(four[f"ResNet-152/{TOP5}"]),
        "4.1/ensemble top-5 error": same(five[f"ResNet (ILSVRC’15)/{TEST}"]),
        "4.2/test error of ResNet-110": same(six["ResNet-110/error"]),
        "4.2/test error of ResNet-1202": same(six["ResNet-1202/error"]),
    }
    return counted | printed | cifar_numbers(tables)


def times(factor: float) -> str:
    """The paper's word for a factor of about two."""
    return "doubled" if round(factor) == 2 else f"{factor:.2f} times"


def cifar_numbers(tables: Tables) -> Numbers:
    """Section 4.2: the rules that it gives for n, read off networks of the depths in Table 6."""
    nets = {len(net.stages[0]): net for net in map(cifar, CIFAR_DEPTHS)}
    four = list(nets)[:4]
    first = nets[four[0]]
    on_path = {n: [layer for layer in net.layers() if not layer.shortcut] for n, net in nets.items()}

    def count(*stages: int, form: str = "{a}n+{b}") -> str:
        """Layers of these stages; stage 0 is the first convolution."""
        of_size = {n: sum(layer.stage in stages for layer in on_path[n]) for n in nets}
        return rule(of_size, form)

    numbers: Numbers = {
        "4.2/input": square(first.image_size),
        "4.2/first layer": square(first.stem.kernel),
        "4.2/stack of layers": rule({n: sum(len(b.convs) for b in net.blocks) for n, net in nets.items()}),
        "4.2/feature map sizes": braces([output_sizes(first)[stage] for stage in (1, 2, 3)]),
        "4.2/layers for each feature map size": one(
            {rule({n: sum(len(b.convs) for b in net.stages[i]) for n, net in nets.items()}) for i in range(3)}
        ),
        "4.2/numbers of filters": braces([stage[-1].width for stage in first.stages]),
        "4.2/way of the fully-connected layer": first.classes,
        "4.2/weighted layers": rule({n: weighted_layers(net) for n, net in nets.items()}),
        "4.2/layers on 32×32": count(0, 1, form="{b}+{a}n"),
        "4.2/layers on 16×16": count(2),
        "4.2/layers on 8×8": count(3),
        "4.2/shortcuts": rule({n: len(shortcuts(net)) for n, net in nets.items()}),
        "4.2/n compared": braces(four),
        "4.2/depths for these n": ", ".join(str(weighted_layers(nets[n])) for n in four),
        "4.2/parameters of the 1202-layer network": parameters(cifar(1202)) / 1e6,
    }
    for depth in (110, 1202):
        numbers[f"4.2/n of the {depth}-layer network"] = one({n for n in nets if weighted_layers(nets[n]) == depth})
    for other in ("FitNet", "Highway-19", "Highway-32"):
        theirs = tables["table6"][f"{other}/# params"].value
        fewer = parameters(cifar(110)) / 1e6 < theirs
        numbers[f"4.2/parameters of ResNet-110 against {other}"] = "fewer" if fewer else "more"
    return numbers


def shortcuts(network: ResNet) -> list[Block]:
    return [block for block in network.blocks if block.shortcut != "none"]


def rule(counts: dict[int, int], form: str = "{a}n+{b}") -> str:
    """The straight line through `counts` by n, as text; "no rule" where they are not on one."""
    (n, count), (m, other), *_ = counts.items()
    a, rest = divmod(other - count, m - n)
    b = count - a * n
    if rest or any(a * n + b != count for n, count in counts.items()):
        return "no rule"
    return form.format(a=a, b=b) if b else f"{a}n"


def braces(values: list[int]) -> str:
    return f"{{{', '.join(map(str, values))}}}"


def one(values: set) -> int | str:
    """The only member, or all of them in words."""
    return next(iter(values)) if len(values) == 1 else " or ".join(sorted(map(str, values)))


def gap(better: Number, worse: Number) -> Measured:
    return Measured(difference(worse, better), terms={"rounding of inputs": half_unit(better, worse)}, same_runs=True)


def same(cell: Number) -> Measured:
    """The same number in a table."""
    return Measured(cell.value, same_runs=True)


def ratio_of_printed(part: Number, whole: Number) -> Measured:
    """100 part / whole, with what the rounding of both leaves open to first order."""
    open_by = half_unit(part) / part.value + half_unit(whole) / whole.value
    share = 100 * part.value / whole.value
    return Measured(share, terms={"rounding of inputs": share * open_by}, same_runs=True)


# What differs, and why -----------------------------------------------------------------------------------------------


def explanations(tables: Tables, flops: dict[str, Count]) -> dict[tuple[str, str], str]:
    """(source, id) -> why the number counted here is not the printed one, where that is known."""
    places = {
        "50-layer": [("table1", "FLOPs/50-layer"), ("text", "4.1/FLOPs of the 50-layer ResNet")],
        "VGG-16": [("text", "4.1/FLOPs of VGG-16")],
    }
    found = {}
    for name, ids in places.items():
        count = flops[name]
        for table, id in ids:
            found[f"resnet/{table}", id] = (
                f"{count.own:.3f} under the paper's own reading ({count.reading}); "
                f"{count.printed.printed} is printed by: {count.ways()}"
            )
    two, six = tables["table2"], tables["table6"]
    shallow, deep = two["18 layers/ResNet"], two["34 layers/ResNet"]
    found["resnet/text", "4.1/34-layer ResNet better than the 18-layer one by"] = (
        f"{shallow.printed} - {deep.printed} = {difference(shallow, deep):.2f}, half way between two tenths"
    )
    ours, theirs = six["ResNet-110/# params"].printed, six["Highway-32/# params"].printed
    found["resnet/text", "4.2/parameters of ResNet-110 against Highway-32"] = (
        f"{ours}M against {theirs}M in Table 6: the sentence holds for the other Highway network, of "
        f"{six['Highway-19/# params'].printed}M"
    )
    return found


def reasons(record: Record, tables: Tables, flops: dict[str, Count]) -> dict[str, str]:
    """What every verdict that is not `equal` comes from, then what can be read off the counts of several numbers."""
    known = explanations(tables, flops)
    record.section("what differs, and why")
    found = {}
    for verdict in record.verdicts:
        if verdict.verdict in (DIFFERS, AGREES):
            why = found[f"{verdict.source} {verdict.id}"] = known.get((verdict.source, verdict.id), "not known")
            record.say(f"  {verdict.source} {verdict.id}: {why}")
    missed = [
        ", ".join(c.name for c in flops.values() if c.prints(OWN, truncated) != c.printed.printed)
        for truncated in (False, True)
    ]
    small, large, base = flops["VGG-16"], flops["VGG-19"], flops["34-layer"]
    share = 100 * base.counts[OWN] / large.counts[OWN]
    found["FLOPs"] = f"no one rule prints them all: rounding misses {missed[0]}; truncation misses {missed[1]}"
    found["VGG"] = (
        f"VGG-16's {small.printed.printed} is printed by: {small.ways()}; "
        f"VGG-19's {large.printed.printed} by: {large.ways()}"
    )
    found["34 layers"] = (
        f"34 layers' {base.printed.printed} is printed by: {base.ways()}; "
        f"option B has {base.counts['option B'] / 1e9:.3f}, option C {base.counts['option C'] / 1e9:.3f}"
    )
    found["share"] = (
        f"{tables['text']['3.3/share of VGG-19'].printed} % is the ratio of the printed {base.printed.printed} and "
        f"{large.printed.printed}; the counts give {share:.2f} %"
    )
    for key in ("FLOPs", "VGG", "34 layers", "share"):
        record.say(f"  {found[key]}")
    return found


# The figures. Readable without colour: every series has its own marker. ----------------------------------------------

FLOPS_CAPTION = (
    "Multiply-adds counted minus printed, under each reading: inside the band a count rounds to the printed digits "
    "(readings further than 0.5 away are left to the log). Options: the shortcuts have no weights (A), some where the "
    "size changes (B), or all have (C)"
)
ERRORS_CAPTION = (
    "Printed errors against counted cost: left ImageNet, top-1, ten crops (Tables 2 and 3); right CIFAR-10 (Table 6). "
    "Thin bars: the standard error of the test images. Lines join networks of one family; one run per point, and of "
    "two networks the mean and deviation of several runs too"
)
BARS = {"markersize": 4, "elinewidth": 0.8, "capsize": 2}
LOOKS = {  # reading -> marker, colour
    OWN: ("o", "#1b4f8a"),
    "option A": ("v", "#7fa8d1"),
    "option B": ("s", "#7a7a7a"),
    "option C": ("^", "#7a7a7a"),
    "stride in the 3x3": ("D", "#c8642c"),
    "no linear layer": ("x", "#222222"),
}


def draw_flops(flops: dict[str, Count]) -> Figure:
    figure, axes = figure_and_axes(7, 3.6)
    names = list(flops)
    axes.axvspan(-0.05, 0.05, color="#e6edf5", zorder=0)
    axes.axvline(0, color="#999999", lw=0.8, zorder=1)
    for reading, (marker, colour) in LOOKS.items():
        points = [
            (count.counts[reading] / 1e9 - count.printed.value, names.index(name))
            for name, count in flops.items()
            if reading in count.counts and (reading == OWN or count.counts[reading] != count.counts[OWN])
        ]
        near = [point for point in points if abs(point[0]) < 0.5]
        label = "the paper's own" if reading == OWN else reading
        size = 8 if reading == OWN else 5
        axes.plot(*zip(*near, strict=True), marker, color=colour, markersize=size, label=label, zorder=3, mfc="none")
    axes.set_yticks(range(len(names)), [f"{c.name}  {c.printed.printed}" for c in flops.values()])
    axes.set_ylabel("network and its printed count")
    axes.invert_yaxis()
    axes.set_xlabel("counted minus printed, billion multiply-adds")
    axes.legend(frameon=False, fontsize=8, title="reading", title_fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def draw_errors(tables: Tables, flops: dict[str, Count]) -> Figure:
    figure, (left, right) = figure_and_axes(9, 3.6, columns=2)
    three, two, six = tables["table3"], tables["table2"], tables["table6"]
    cost = {f"{kind}-{depth}": flops[f"{depth}-layer"].own for depth in IMAGENET_BLOCKS for kind in ("plain", "ResNet")}
    series = {
        "ResNet": (
            "o-",
            "#1b4f8a",
            {"ResNet-18": two["18 layers/ResNet"], "ResNet-34 A": three[f"ResNet-34 A/{TOP1}"]},
        ),
        "plain": ("s--", "#c8642c", {"plain-18": two["18 layers/plain"], "plain-34": three[f"plain-34/{TOP1}"]}),
        "VGG": ("^", "#7a7a7a", {"VGG-16": three[f"VGG-16/{TOP1}"]}),
    }
    series["ResNet"][2].update({f"ResNet-{depth}": three[f"ResNet-{depth}/{TOP1}"] for depth in (50, 101, 152)})
    cost["VGG-16"] = flops["VGG-16"].own
    for label, (look, colour, cells) in series.items():
        points = [(cost[name.removesuffix(" A")], cell.value) for name, cell in cells.items()]
        errors = [standard_error(cell.value, cell.images) for cell in cells.values()]
        left.errorbar(*zip(*points, strict=True), errors, fmt=look, color=colour, label=label, **BARS)
        for name, point in zip(cells, points, strict=True):
            # two networks at nearly the same point: their labels keep clear of both lines
            offset = {"plain-18": (-20, 8), "ResNet-18": (6, -4)}.get(name, (5, 4))
            left.annotate(name, point, xytext=offset, textcoords="offset points", fontsize=8, color=colour)
    left.set_xlim(0, 18)
    left.set_ylim(21, 29)
    left.set_xlabel("multiply-adds, billion (counted)")
    left.set_ylabel("ImageNet top-1 error, %")
    mark_cut(left)
    left.legend(frameon=False, fontsize=8)
    ours = [(parameters(cifar(depth)) / 1e6, six[f"ResNet-{depth}/error"].value) for depth in CIFAR_DEPTHS]
    others = [row for row in six.rows if six.rows[row]["# params"] and not row.startswith("ResNet")]
    theirs = [(six[f"{row}/# params"].value, six[f"{row}/error"].value) for row in others]
    for rows, points, look, colour, label in (
        ([f"ResNet-{depth}" for depth in CIFAR_DEPTHS], ours, "o-", "#1b4f8a", "ResNet, option A (counted)"),
        (others, theirs, "^", "#7a7a7a", "others (as printed)"),
    ):
        errors = [standard_error(cell.value, cell.images) for cell in (six[f"{row}/error"] for row in rows)]
        right.errorbar(*zip(*points, strict=True), errors, fmt=look, color=colour, label=label, **BARS)
    means = {
        "ResNet-110": ours[CIFAR_DEPTHS.index(110)][0],
        "Highway-19": dict(zip(others, theirs, strict=True))["Highway-19"][0],
    }
    for name, at in means.items():  # the only two with a spread in print
        mean = six[f"{name}/mean"]
        look = {"fmt": "_", "color": "black", "elinewidth": 1.6, "capsize": 3, "transform": beside(right)}
        label = None if name == "Highway-19" else "mean ± SD of runs"
        right.errorbar(at, mean.value, float(mean.std), label=label, **look)
    for name, point in zip([*map(str, CIFAR_DEPTHS), *others], ours + theirs, strict=True):
        offset = {"44": (-14, -11), "110": (-22, -4), "Highway-19": (12, 0)}.get(name, (6, 2))
        right.annotate(name, point, xytext=offset, textcoords="offset points", fontsize=8)
    right.set_xscale("log")
    right.set_ylim(6, 10)
    ticks = (0.3, 1, 3, 10, 20)
    right.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    right.minorticks_off()
    right.set_xlabel("parameters, million (log scale)")
    right.set_ylabel("CIFAR-10 error, %")
    mark_cut(right)
    right.legend(frameon=False, fontsize=8, loc="upper right")
    return figure


if __name__ == "__main__":
    cli.run(main, Config)
