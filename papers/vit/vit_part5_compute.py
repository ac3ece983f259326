"""Section 4.4 and what can be checked without weights: compute counted, Table 6's sentences tested, settings compared.

    python vit_part5_compute.py              a second, no torch
    python vit_part5_compute.py --figures    also draws Figure 5, the counts and the cost by image size (10 s)

Writes results/vit/part5-compute.log and part5-compute.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # started as a file: the code of this checkout, not an installed one
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.vit.part4.audit import FIVE
from papers.vit.part4.cells import read_tables
from papers.vit.part5 import claims, compute, drawings, scaling, settings
from papers.vit.part5.settings import Found, Numbers, Tables, same
from shared import cli
from shared.plots import publish
from shared.published import Number, load
from shared.record import Record
from shared.verdict import AGREES, EQUAL

EXPERIMENT = "part5-compute"
TEXTS = ("table3", "table4", "section41", "section44", "section45", "section46", "appendix_d")


@dataclass
class Config(cli.Common):
    figures: bool = False
    """[output] draw the figures into results/vit/figures (imports matplotlib)"""


def main(config: Config) -> Record:
    tables: Tables = read_tables() | {name: load("vit", name) for name in TEXTS}
    rows = compute.read_rows(tables["table6"])
    images = tables["section41"]["datasets/JFT/images"]
    question = "Does Table 6 cost what it prints, and do its numbers bear out what section 4.4 says of them?"
    with Record("vit", EXPERIMENT, config=config, results=config.results, question=question) as record:
        epochs, odd_runs = settings.runs(record, tables, rows)
        numbers = settings.settings(record, tables, rows)
        counts = compute.count_all(rows, images)
        compute.tell_counts(record, counts, images)
        found = {"4.4-a": compute.dominance(record, rows)}
        ratio = compute.ratio_claim(record, rows)
        found |= {"4.4-b": compute.hybrids(record, rows), "4.4-c": compute.saturation(record, rows)}
        compute.consequences(record, rows, counts)
        section46, found["4.6-a"] = settings.masked(record, tables)
        found["D.1-a"] = settings.adam(record, tables)
        found["D.4-a"], found["D.4-b"] = settings.positions(record, tables)
        curves = scaling.curves()
        found |= {"D.5-a": scaling.image_size(record, curves), "D.6-a": scaling.axial(record)}
        numbers |= {"table3": epochs, "section46": section46}
        numbers["section44"] |= ratio | {"compute/datasets in the average": same(float(len(FIVE)))}
        judge(record, tables, numbers | {"table6": compute.measured_counts(counts, images)})
        record.section("what the paper says in words")
        claims.tell(record, EXPERIMENT, found)
        record.contradictions(odd_runs + settings.odd_settings(tables) + contradictions(counts, found))
        if config.figures:
            for figure, name, caption in drawings.all_of(rows, counts, images, curves):
                publish(record, figure, name, caption, data="papers/vit/published (Table 6) and the networks counted")
        record.print_verdicts()
        record.answer(answer(record, counts, found))
        record.cannot_show(
            "whether the printed accuracies are right, or what a second training would give: each row of Table 6 is "
            "one run, and only the test sets' error is known. It counts operations, not seconds."
        )
    return record


def judge(record: Record, tables: Tables, numbers: Numbers) -> None:
    """A verdict for every number of the texts, and for Table 6's exaFLOPs; its accuracies are another experiment's."""
    for name in TEXTS:
        record.judge_all(tables[name], numbers.get(name, {}), why_not_run)
    for id, measured in numbers["table6"].items():
        record.judge(tables["table6"][id], measured)


def why_not_run(number: Number) -> str:
    if number.source == "vit/section45":
        return "a setting of a figure of the paper's own networks"
    if number.source in ("vit/table3", "vit/table4"):
        return "a setting of the paper's own trainings; where the text prints it too, the text's number is judged"
    return "a setting or a result of the paper's own trainings that is printed in no second place"


def contradictions(counts: dict[str, compute.Count], found: dict[str, claims.Finding]) -> Found:
    """The odd exaFLOPs, and sentences that the numbers bear out nowhere or not everywhere."""
    odd = counts[compute.ODD]
    odd_words = f"counted {odd.full:.0f}; half of its 14-epoch row is {compute.odd_half(counts):.0f}"
    claim = f"{compute.ODD}: {odd.row.cell.printed} exaFLOPs"
    broken: Found = [{"where": "Table 6", "claim": claim, "arithmetic": odd_words}]
    for id, one in claims.read_claims().items():
        if id in found and ("not hold" in found[id].verdict or "without" in found[id].verdict):
            words = f"{found[id].verdict}: {found[id].numbers}"
            broken.append({"where": one.where, "claim": one.says, "arithmetic": words})
    return broken


def answer(record: Record, counts: dict[str, compute.Count], found: dict[str, claims.Finding]) -> str:
    """What came out, in numbers."""
    judged = [v for v in record.verdicts if v.source == "vit/table6"]
    near = sum(v.verdict in (EQUAL, AGREES) for v in judged)
    odd, ratio = counts[compute.ODD], record.results["ratio"]
    resnets = [100 * c.off for c in counts.values() if c.row.family == "ResNet"]
    return (
        f"Counted, {near} of {len(judged)} exaFLOPs are as printed; the ResNets come out {min(resnets):.1f} to "
        f"{max(resnets):.1f} % above, and the {odd.row.cell.printed} of {compute.ODD} would be "
        f"{compute.odd_half(counts):.0f} by its row of 14 epochs. For the same average accuracy ResNets need "
        f"{ratio['min']:.1f} to {ratio['max']:.1f} times the ViTs' compute (median {ratio['median']:.1f}). That ViTs "
        f"dominate ResNets {found['4.4-a'].verdict}. That hybrids are ahead with little compute and level with much "
        f"{found['4.4-b'].verdict}. That ViTs do not saturate {found['4.4-c'].verdict}."
    )


if __name__ == "__main__":
    cli.run(main, Config)
