"""What the paper prints about its trainings twice, held against each other: Tables 3 and 4, sections 4.1 and 4.6,
appendix B.1; and the gaps of Tables 5, 7 and 8 that its sentences speak of.

Each section says its lines into a record and returns numbers for the verdicts, by the ids of a published file.
"""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase

from papers.vit.part4.cells import value
from papers.vit.part5.architectures import ENCODERS
from papers.vit.part5.claims import Finding, in_words
from papers.vit.part5.compute import Rows
from shared.published import Number, Published
from shared.record import Record
from shared.verdict import Measured

Tables = dict[str, Published]
Numbers = dict[str, dict[str, Measured | float | str]]  # by published file, then by id
Found = list[dict[str, str]]  # contradictions in print
PLACES = {"section41": "4.1, B.1", "section44": "4.4", "section45": "4.5", "appendix_d": "D"}
IMAGES = 50_000  # of ImageNet's validation set, that Table 8 is scored on


def same(cell: Number | float | str) -> Measured:
    """The same quantity where else it is printed, or arithmetic on what is."""
    number = cell.value if isinstance(cell, Number) else cell
    return Measured(cell.printed if isinstance(cell, Number) and number is None else number, same_runs=True)


def plain(text: str) -> float:
    """A learning rate in either form: `4·10^-4`, `10^-3`, `0.0004`."""
    return float(re.sub(r"(?:^|·)10\^", lambda found: "e" if found[0].startswith("·") else "1e", text))


def models(name: str) -> list[str]:
    """`ViT-B/{16,32}` as ViT-B/16 and ViT-B/32."""
    found = re.fullmatch(r"(.*)\{(.+)\}(.*)", name)
    return [f"{found[1]}{part}{found[3]}" for part in found[2].split(",")] if found else [name]


def as_in_table3(model: str) -> str:
    """Table 6 says ResNet50x1 and R50x1+ViT-B/16 where Table 3 says R50x1 and R50+ViT-B/16."""
    return model.replace("ResNet", "R").replace("R50x1+", "R50+")


# Table 3 against Tables 5 and 6 --------------------------------------------------------------------------------------


def runs(record: Record, tables: Tables, rows: Rows) -> tuple[dict[str, Measured], Found]:
    """Which trainings Table 3 lists, and which Tables 5 and 6 have results of."""
    record.section("Table 3 against Tables 5 and 6: which trainings are listed, which have results")
    listed = {}  # (model, pre-training set) -> the row's name
    for name in tables["table3"].rows:
        group, _, data = name.partition(", ")
        listed |= {(model, data): name for model in models(group)}
    results: dict[str, set[int]] = {}  # Table 3's row -> epochs of its models that Table 6 has
    by_model: dict[str, set[int]] = {}
    contradictions, cells = [], []
    for row in rows.values():
        by_model.setdefault(as_in_table3(row.model), set()).add(row.epochs)
    for model, epochs in by_model.items():
        name = listed.get((model, "JFT-300M"))
        text = "/".join(map(str, sorted(epochs)))
        printed = tables["table3"].rows[name]["epochs"].printed if name else "not listed"
        cells.append([model, "JFT-300M", printed, text, "agree" if printed == text else "do not agree"])
        if name:
            results.setdefault(name, set()).update(epochs)
        if printed != text:
            claim = f"{model}, JFT-300M: {printed}" + " epochs" * bool(name)
            arithmetic = f"Table 6 has results of {text} epochs"
            contradictions.append({"where": "Tables 3 and 6", "claim": claim, "arithmetic": arithmetic})
    for pretraining in ("ImageNet", "ImageNet-21k"):
        scored = tables["table5"].rows[f"{pretraining}/ImageNet"]
        for model in [model for model, cell in scored.items() if cell is not None]:
            known = [n for (m, data), n in listed.items() if data == pretraining and fnmatchcase(model, m)]
            words = tables["table3"].rows[known[0]]["epochs"].printed if known else "not listed"
            cells.append([model, pretraining, words, "in Table 5", "agree" if known else "do not agree"])
            if not known:
                claim, arithmetic = f"{model}, {pretraining}: not listed", "Table 5 has its results"
                contradictions.append({"where": "Tables 3 and 5", "claim": claim, "arithmetic": arithmetic})
    columns = ["model", "pre-training", "epochs in Table 3", "results of", "result"]
    record.say_table("Trainings listed and trainings with results", columns, cells, left=(0, 1, 2, 3, 4))
    numbers = {}
    for name, epochs in results.items():
        text = "/".join(map(str, sorted(epochs)))
        wrong = text != tables["table3"].rows[name]["epochs"].printed
        numbers[f"{name}/epochs"] = Measured(
            text, same_runs=True, reason=f"Table 6 has results of {text} epochs" if wrong else ""
        )
    return numbers, contradictions


# settings that stand in two places -----------------------------------------------------------------------------------


def settings(record: Record, tables: Tables, rows: Rows) -> Numbers:
    """The text's settings as the tables have them. What a table prints is then held against nothing else."""
    three, four, nine = (tables[name] for name in ("table3", "table4", "table9"))
    pixels = three["resolution"]
    section41 = {
        "VTAB/tasks": same(float(len(nine.rows))),
        "VTAB/groups": same(float(len(nine.groups))),
        "pre-training/batch": same(three["batch"]),
        "pre-training/weight decay": weight_decay(three),
        "fine-tuning/batch": same(four["batch"]),
        "fine-tuning/px otherwise": same(four["resolution"]),
        "training/px": same(pixels),
        "hybrid/sequence length of option (ii)": same(((pixels.value / 16) / (pixels.value / 32)) ** 2),
        "B.1.1/VTAB learning rate": same(four["VTAB (19 tasks)/base LR"]),
        "B.1.1/VTAB steps": same(four["VTAB (19 tasks)/steps"]),
    }
    section45 = {
        "Figure 7 centre/grid": same(pixels.value / 32),
        "Figure 7 right/heads": same(float(ENCODERS["L"][3])),
        "Figure 11/heads": same(float(ENCODERS["L"][3])),
        "Figure 11/image width": same(pixels),
        "Figure 10/grid": same(pixels.value / 16),
    }
    long = three.rows["ViT-L/16, JFT-300M"]
    for panel, epochs in enumerate(long["epochs"].printed.split("/"), start=2):  # the first is another setting
        section45[f"Figure 10/panel {panel} epochs"] = same(float(epochs))
        section45[f"Figure 10/panel {panel} LR"] = same(plain(long["base LR"].printed))
        section45[f"Figure 10/panel {panel} WD"] = same(long["weight decay"])
    appendix = {
        "D.1/epochs of pre-training": same(three["R50x{1,2}, JFT-300M/epochs"]),
        "D.4/patch grid": same(pixels.value / 16),
        "D.4/pixel grid": same(pixels),
    }
    epochs = sorted({row.epochs for row in rows.values()})
    kinds = {"models/ResNets": "ResNet", "models/Vision Transformers": "ViT", "models/hybrids": "hybrid"}
    section44 = {id: same(float(sum(row.family == kind for row in rows.values()))) for id, kind in kinds.items()}
    section44 |= {"epochs/short": same(float(epochs[0])), "epochs/long": same(float(epochs[-1]))}
    numbers: Numbers = {"section41": section41, "section44": section44, "section45": section45, "appendix_d": appendix}
    _tell_settings(record, tables, numbers)
    return numbers


def weight_decay(table3: Published) -> Measured:
    """That of the rows of JFT-300M; the others' stand in the reason."""
    sets: dict[str, set[str]] = {}
    for row, cell in table3.column("weight decay").items():
        sets.setdefault(cell.printed, set()).add(row.partition(", ")[2])
    ours = [number for number, names in sets.items() if "JFT-300M" in names]
    others = [f"{number} for {' and '.join(sorted(names))}" for number, names in sets.items() if number not in ours]
    reason = f"Table 3's rows of JFT-300M; it has {', '.join(others)}"
    return Measured(" or ".join(ours), same_runs=True, reason=reason)


def odd_settings(tables: Tables) -> Found:
    """Settings that two places print differently, or that cannot be as they are printed."""
    text, four, found = tables["section41"], tables["table4"], []
    extra = text["B.1.1/extra learning rate for ResNets on ImageNet"].printed
    rates = four["ImageNet/base LR"].printed
    if extra in re.findall(r"[\d.]+", rates):
        claim, arithmetic = f"{extra} added for ResNets on ImageNet", f"Table 4 has {rates} for all models"
        found.append({"where": "B.1.1 and Table 4", "claim": f"the learning rate {claim}", "arithmetic": arithmetic})
    tuned, patch = four["resolution"], 14
    if tuned.value % patch:
        claim = f"fine-tuning at {tuned.printed} px, with which Tables 5 and 6 give ViT-H/{patch}"
        arithmetic = f"{tuned.printed} / {patch} = {tuned.value / patch:.2f}: no whole number of patches"
        found.append({"where": "Table 4", "claim": claim, "arithmetic": arithmetic})
    return found


def _tell_settings(record: Record, tables: Tables, numbers: Numbers) -> None:
    record.section("Sections 4.1, 4.4, 4.5 and appendices against the tables: what is printed in two places")
    cells = []
    for file, own in numbers.items():
        for id, measured in own.items():
            number = tables[file][id]
            other = measured.value if isinstance(measured.value, str) else number.format(measured.value)
            cells.append([PLACES[file], id, number.printed, other, "equal" if other == number.printed else "differs"])
    columns = ["where", "what", "printed", "by the tables", "result"]
    record.say_table("Settings that stand in two places", columns, cells, left=(0, 1, 4))


# 4.6, D.1 and D.4 ----------------------------------------------------------------------------------------------------


def masked(record: Record, tables: Tables) -> tuple[dict[str, Measured], Finding]:
    """4.6 and B.1.2: differences to Table 5, and the arithmetic inside the recipe."""
    own, five, images = tables["section46"], tables["table5"], tables["section41"]["datasets/JFT/images"]
    record.section("Section 4.6 and B.1.2: masked patch prediction against Table 5, and its own arithmetic")
    reached = own["ImageNet/self-supervised ViT-B/16"]
    scratch, large, jft = (five[f"{name}/ImageNet/ViT-B/16"] for name in ("ImageNet", "ImageNet-21k", "JFT-300M"))
    steps, batch = own["training/steps"], own["training/batch"]
    epochs = steps.value * 1e6 * batch.value / (images.value * 1e6)
    gain, behind = reached.value - scratch.value, large.value - reached.value
    slack = reached.half_unit + scratch.half_unit
    shares = [own[f"corruption/{kind}"].value for kind in ("mask embedding", "random other patch embedding")]
    small = own["option 2/downsized patch"].value
    record.say(
        f"  {reached.printed} - {scratch.printed} (Table 5, from scratch) = {gain:+.2f} points\n"
        f"  {large.printed} (ImageNet-21k) - {reached.printed} = {behind:.2f}; {jft.printed} (JFT-300M) - "
        f"{reached.printed} = {jft.value - reached.value:.2f}\n"
        f"  {steps.printed} million steps x {batch.printed} images / {images.printed} million = {epochs:.2f} epochs"
    )
    numbers = {
        "ImageNet/gain over training from scratch": Measured(gain, same_runs=True, terms={"rounding of inputs": slack}),
        "ImageNet/behind supervised pre-training": Measured(
            behind,
            same_runs=True,
            terms={"rounding of inputs": slack},
            reason=f"{jft.value - reached.value:.2f} to JFT-300M's",
        ),
        "corruption/kept": same(100 - sum(shares)),
        "target/colours": same(2.0 ** (3 * own["target/bits a channel"].value)),
        "training/epochs": same(epochs),
        "training/batch": same(tables["table3"]["batch"]),
        "option 2/predictions": same(small**2),
        "option 3/regressions": same(16.0**2),
    }
    equal = {
        "the gain": abs(gain - own["ImageNet/gain over training from scratch"].value) <= 0.5 + slack,
        "the rest": abs(behind - own["ImageNet/behind supervised pre-training"].value) <= 0.5 + slack,
    }
    return numbers, Finding(in_words(equal, "on Table 5"), f"{gain:+.2f} and {-behind:.2f} points")


def adam(record: Record, tables: Tables) -> Finding:
    """D.1-a: pairs and means of Table 7."""
    seven = tables["table7"]
    won, pairs, means = 0, 0, {}
    for network in ("ResNet50", "ResNet152x2"):
        gaps = [round(value(row[f"{network} Adam"]) - value(row[f"{network} SGD"]), 6) for row in seven.rows.values()]
        won, pairs = won + sum(gap > 0 for gap in gaps), pairs + len(gaps)
        means[network] = seven[f"average/{network} Adam"].value - seven[f"average/{network} SGD"].value
    record.section("Appendix D.1: Adam or SGD, Table 7")
    numbers = f"Adam higher in {won} of {pairs} pairs; means " + ", ".join(
        f"{n} {gap:+.2f}" for n, gap in means.items()
    )
    record.say(f"  {numbers}")
    parts = {"most pairs": 2 * won > pairs} | {f"the mean of {n}": gap > 0 for n, gap in means.items()}
    return Finding(in_words(parts), numbers)


def positions(record: Record, tables: Tables) -> tuple[Finding, Finding]:
    """D.4: Table 8's gaps, in standard errors of two independent tests on 50,000 images."""
    eight = tables["table8"]
    cells = {cell.id: cell.value for cells in eight.rows.values() for cell in cells.values() if cell is not None}
    none, others = next((i, v) for i, v in cells.items() if i.startswith("No ")), {}
    others = {id: share for id, share in cells.items() if id != none[0]}
    record.section("Appendix D.4, Table 8: gaps in standard errors")

    def in_errors(a: float, b: float) -> tuple[float, float]:
        error = math.sqrt((a * (1 - a) + b * (1 - b)) / IMAGES)
        return error, (a - b) / error

    rows = []
    best = max(others, key=others.get)
    for id, share in others.items():
        (_, to_none), (error, to_best) = in_errors(share, none[1]), in_errors(others[best], share)
        gaps = [f"{share - none[1]:+.5f}", f"{to_none:.1f}", f"{others[best] - share:.5f}", f"{to_best:.1f}"]
        rows.append([id, f"{share:.5f}", *gaps])
    columns = ["embedding", "accuracy", "above none", "in s.e.", "below the best", "in s.e. too"]
    note = (
        f"One s.e. of a difference: {error:.4f}, two tests of {IMAGES:,} images; the luck of the five images a class "
        "and of the training comes on top."
    )
    record.say_table("Table 8 in standard errors", columns, rows, note=note)
    record.say(f"  {note}")
    low = min(others.values())
    gap, spread = in_errors(low, none[1])[1], in_errors(others[best], low)[1]
    record.results["positions"] = {"smallest gap, s.e.": gap, "range of the others, s.e.": spread}
    large = Finding(in_words({"": gap > 2}), f"smallest gap {low - none[1]:.5f}, {gap:.1f} standard errors")
    words = f"largest difference {others[best] - low:.5f}, {spread:.1f} standard errors"
    return large, Finding(in_words({"": abs(spread) < 2}), words)
