"""Section 4.4 without weights: counts by a second route, sentences on tables of known answer, the script's record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from recorded import recorded_results

from papers.resnet.architectures import imagenet, multiply_adds
from papers.vit import vit_part5_compute
from papers.vit.part4.cells import read_tables
from papers.vit.part5 import architectures, claims, compute, drawings, scaling, settings
from papers.vit.part5.architectures import ALL, CLASSES, ENCODERS, NO_PADDING, NO_SCORES, counted, readings
from papers.vit.part5.compute import AVERAGE, ODD
from shared.errors import UserError
from shared.paths import ROOT
from shared.plots import in_words
from shared.published import load
from shared.record import Record


@pytest.fixture(scope="module")
def rows():
    return compute.read_rows(load("vit", "table6"))


@pytest.fixture
def record(tmp_path):
    return Record("vit", "part5-compute", results=tmp_path, quiet=True)


def changed(rows, name: str, **scores: float):
    """Table 6 with other scores in one row, and the average of five that follows."""
    new = rows[name].scores | {key.replace("_", " "): value for key, value in scores.items()}
    new[AVERAGE] = sum(new[d] for d in compute.FIVE) / 5
    return rows | {name: replace(rows[name], scores=new)}


# counting -------------------------------------------------------------------------------------------------------------


def encoder(size: str, patches: int, pixels: int) -> int:
    """A ViT's multiply-adds in closed form; pixels: numbers of one patch."""
    layers, width, mlp, _ = ENCODERS[size]
    tokens = patches + 1
    per_layer = tokens * (4 * width**2 + 2 * width * mlp) + 2 * tokens**2 * width
    return patches * pixels * width + layers * per_layer + width * CLASSES


@pytest.mark.parametrize(
    ("name", "patches", "pixels"), [("ViT-B/32", 49, 3072), ("ViT-L/16", 196, 768), ("ViT-H/14", 256, 588)]
)
def test_a_vit_costs_its_closed_form(name, patches, pixels):
    assert counted(name).macs == encoder(name[4], patches, pixels)


def body(depth: int = 50) -> int:
    """The residual network's own multiply-adds without its last layer, as another paper's module counts them."""
    return multiply_adds(imagenet(depth, stride_in="3x3"), linear=False)


@pytest.mark.parametrize("depth", [50, 101, 152])
def test_a_residual_network_in_bits_layout_costs_what_the_same_layout_costs_elsewhere(depth):
    assert counted(f"ResNet{depth}x1").macs == body(depth) + 2048 * CLASSES
    stem = 112**2 * 49 * 3 * 64  # three channels come in, whatever the width
    assert counted(f"R{depth}x3").macs == 9 * (body(depth) - stem) + 3 * stem + 3 * 2048 * CLASSES


def test_a_hybrids_patches_are_places_of_the_last_map_and_its_other_option_is_four_times_as_long():
    assert counted("R50x1+ViT-B/32").macs == body() + encoder("B", 49, 2048)
    shapes = [layer.output for layer in counted("R50x1+ViT-B/16").layers if layer.type == "concatenate"]
    assert shapes == [(197, 768)]
    stages = [layer.output for layer in counted("R50x1+ViT-B/16").layers if layer.type == "add"]
    assert [stages.count((256 * 2**i, 56 // 2**i, 56 // 2**i)) for i in range(4)] == [3, 4, 9, 0]


def test_axial_attention_costs_two_blocks_on_rows():
    layers, width, mlp, _ = ENCODERS["B"]
    block = 196 * (4 * width**2 + 2 * width * mlp) + 14 * 2 * 14**2 * width
    assert counted("Axial-ViT-B/16").macs == 196 * 768 * width + 2 * layers * block + width * CLASSES


@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 3, 1), (8, 3, 2), (9, 7, 2), (5, 1, 2)])
def test_products_with_padding_are_those_that_a_sum_of_ones_does_not_have(size, kernel, stride):
    drawing = architectures.Drawing("one convolution")
    drawing.last = drawing.source("input", shape=(1, size, size))
    architectures._conv(drawing, 1, kernel, stride)
    (layer,) = [one for one in architectures.measure(drawing.graph()).layers if one.type == "conv2d"]
    ones = torch.ones(1, 1, size, size), torch.ones(1, 1, kernel, kernel)
    products = torch.nn.functional.conv2d(*ones, stride=stride, padding=kernel // 2).sum().item()
    assert architectures.unpadded(layer, size) == products


def test_readings_leave_out_what_they_say():
    found = readings("ViT-B/32")
    assert found[ALL] - found[NO_SCORES] == 12 * 2 * 50**2 * 768 and NO_PADDING not in found
    assert set(readings("ResNet50x1")) == {ALL, NO_PADDING, architectures.NO_HEAD}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ViT-X/16",
        "ViT-B/0",
        "ResNet50x1+",
        "Axial-",
        "Axial-ResNet50x1",
        "ResNet51x1",
        "R50x1ViT-B/16",
        "+ViT-B/16",
    ],
)
def test_a_name_that_is_no_network_is_refused(name):
    with pytest.raises(UserError, match="network"):
        counted(name)


def test_an_image_smaller_than_a_patch_is_refused():
    with pytest.raises(UserError, match="8 px"):
        counted("ViT-B/16", 8)


def test_the_number_of_classes_is_the_papers():
    number = load("vit", "section41")["datasets/JFT/classes"]
    assert (number.value * 1000, number.unit) == (CLASSES, "thousand")


def test_exponents_are_two_for_pixels_and_rise_with_attention():
    assert [value for _, value in scaling.exponents([(10, 100), (20, 400), (40, 6400)])] == pytest.approx([2, 4])
    ends = {
        name: scaling.exponents([(s, counted(name, s).macs) for s in (480, 512)])[0][1]
        for name in ("ViT-B/16", "ViT-L/16")
    }
    tokens, width = 31**2 + 1, 768  # at 496 px; 2 and twice the share of attention, but for the class token
    assert ends["ViT-B/16"] == pytest.approx(2 + 2 * tokens / (6 * width + tokens), abs=0.02)
    assert ends["ViT-B/16"] > ends["ViT-L/16"]


# the sentences --------------------------------------------------------------------------------------------------------


def test_a_verdict_in_words():
    assert claims.in_words({"a": True, "b": True}) == "holds"
    assert claims.in_words({"a": True, "b": True, "c": False}) == "holds without c"
    assert claims.in_words({"a": True, "b": False}) == "does not hold on the printed table, except for a"
    assert claims.in_words({"a": False}, "here") == "does not hold here"
    assert compute.of_all({AVERAGE: True, "x": True, "y": True, "z": False}) == "holds without z"
    assert compute.of_all({AVERAGE: False, "x": True}) == "does not hold on average; a data set at a time: holds"


def test_every_claim_of_the_reference_is_there_in_other_words(shared_folder):
    reference = json.loads((shared_folder / "published/paper_claims.json").read_text(encoding="utf-8"))["claims"]
    ours = claims.read_claims()
    assert {claim["id"] for claim in reference} <= set(ours)
    for claim in reference:
        assert claim["quote"].lower() not in ours[claim["id"]].says.lower()


def test_a_claim_without_a_finding_is_a_fault(record):
    with pytest.raises(ValueError, match=r"4\.4-a"):
        claims.tell(record, "part5-compute", {})


def test_the_joint_frontier_tells_a_resnet_that_is_on_it(rows, record):
    assert [row.name for row in compute.joint_frontier(rows, ("ViT", "ResNet"), "CIFAR-10")][:2] == [
        "ResNet50x1, 7 epochs",
        "ViT-B/32, 7 epochs",
    ]
    poor = rows
    for name in [name for name in rows if name.startswith("ResNet")]:
        poor = changed(poor, name, **{d.replace(" ", "_"): 50.0 for d in compute.DATASETS})
    assert compute.dominance(record, poor).verdict == "holds"
    rich = changed(poor, "ResNet152x1, 7 epochs", ImageNet=99.0)
    assert compute.dominance(record, rich).verdict == "holds without ImageNet"


def test_saturation_is_seen(rows, record):
    assert compute.saturation(record, rows).verdict == "holds without Oxford-IIIT Pets"
    better = changed(rows, "ViT-H/14, 14 epochs", **{"Oxford-IIIT_Pets": 97.12})
    assert compute.saturation(record, better).verdict == "holds"


def test_accuracy_on_a_frontier():
    front = [(10.0, 80.0), (1000.0, 90.0)]
    assert compute.accuracy_at(front, 100.0) == pytest.approx(85)
    assert compute.accuracy_at(front, 1000.0) == compute.accuracy_at(front, 5000.0) == 90
    assert compute.accuracy_at(front, 9.0) != compute.accuracy_at(front, 9.0)  # NaN


def test_a_hybrid_on_the_line_has_no_gap_and_the_odd_row_moves_with_its_compute(rows):
    vit = rows["ViT-L/32, 7 epochs"]
    level = rows | {ODD: replace(rows[ODD], compute=vit.compute, scores=vit.scores)}
    assert compute.hybrid_gaps(level, "ImageNet")[ODD][0] == pytest.approx(0)
    halved = rows | {ODD: replace(rows[ODD], compute=834.0)}
    gaps = [compute.hybrid_gaps(each, "ImageNet")[ODD][0] for each in (rows, halved)]
    assert gaps[0] < gaps[1]


def test_settings_that_two_places_print(record, rows):
    tables = read_tables() | {name: load("vit", name) for name in vit_part5_compute.TEXTS}
    numbers, odd = settings.runs(record, tables, rows)
    assert {one["claim"] for one in odd} == {
        "R152x2, JFT-300M: 7 epochs",
        "R200x3, JFT-300M: not listed",
        "ViT-H/14, ImageNet-21k: not listed",
    }
    assert numbers["ViT-L/16, JFT-300M/epochs"].value == "7/14"
    assert [settings.plain(text) for text in ("8·10^-4", "10^-3", "0.0004")] == [8e-4, 1e-3, 4e-4]
    assert settings.models("ViT-B/{16,32}") == ["ViT-B/16", "ViT-B/32"]


def test_table_8_in_standard_errors(record):
    gap, spread = settings.positions(record, read_tables())
    assert (gap.verdict, spread.verdict) == ("holds", "holds")
    assert record.results["positions"]["smallest gap, s.e."] == pytest.approx(0.02582 / 0.00305, rel=0.01)


# the script -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", vit_part5_compute.TEXTS)
def test_every_digit_is_that_of_the_reference(name, shared_folder):
    reference = json.loads((shared_folder / f"published/paper_{name}.json").read_text(encoding="utf-8"))
    wanted = {id: one["printed"] for id, one in reference.get("numbers", {}).items() if not id.startswith("D.9/")}
    for row, cells in reference.get("rows", {}).items():
        wanted |= {f"{row}/{column}": cell for column, cell in zip(reference["columns"], cells, strict=True)}
    assert {id: number.printed for id, number in load("vit", name).numbers.items()} == wanted


def test_the_script_judges_every_number_and_the_record_is_what_it_says_now(tmp_path):
    record = vit_part5_compute.main(vit_part5_compute.Config(results=tmp_path))
    data = Record.load(tmp_path / "vit" / "part5-compute.json")
    judged = {(v["source"], v["id"]) for v in data["verdicts"]}
    for name in vit_part5_compute.TEXTS:
        assert {(n.source, n.id) for n in load("vit", name).numbers.values()} <= judged
    odd = next(v for v in record.verdicts if v.id == f"{ODD}/exaFLOPs")
    assert (odd.verdict, odd.measured) == ("differs", "834") and "half of the 14-epoch row is 834" in odd.reason
    assert all(v.reason for v in record.verdicts if v.verdict == "differs")
    evidence = ROOT / "results" / "vit" / "part5-compute.json"
    if evidence in recorded_results():
        recorded = Record.load(evidence)
        assert (recorded["tables"], recorded["answer"]) == (data["tables"], data["answer"])
        shown = [[(v["id"], v["measured"], v["verdict"], v["reason"]) for v in r["verdicts"]] for r in (recorded, data)]
        assert shown[0] == shown[1]  # as printed: the last bits of a logarithm are a library's own


def test_a_damaged_table_is_one_line(rows):
    table6 = load("vit", "table6")
    cells = dict(table6.rows["ViT-B/32, 7 epochs"])
    cells["exaFLOPs"] = replace(cells["exaFLOPs"], printed="0")
    with pytest.raises(UserError, match="ViT-B/32, 7 epochs: exaFLOPs must be above 0"):
        compute.read_rows(replace(table6, rows=table6.rows | {"ViT-B/32, 7 epochs": cells}))
    with pytest.raises(UserError, match="row 'ViT-B/32': expected a name such as"):
        compute.read_rows(replace(table6, rows={"ViT-B/32": cells}))
    with pytest.raises(UserError, match="'ViT-L/16, 14 epochs' is missing"):
        compute.read_rows(replace(table6, rows={}))["ViT-L/16, 14 epochs"]


def test_the_figures_hold_every_row_and_say_what_they_show(rows):
    images = load("vit", "section41")["datasets/JFT/images"]
    counts, curves = compute.count_all(rows, images), scaling.curves()
    figures = {name: figure for figure, name, _ in drawings.all_of(rows, counts, images, curves)}
    assert list(figures) == [f"part5-compute-{name}" for name in ("figure5", "counted", "image-size")]
    panels = figures["part5-compute-figure5"].axes
    for axes, data in zip(panels, (AVERAGE, *compute.DATASETS), strict=False):
        drawn = {point for line in axes.lines for point in zip(*line.get_data(), strict=True)}
        assert {(row.compute, row.scores[data]) for row in rows.values()} <= drawn and axes.get_title() == data
    assert "859" in in_words(figures["part5-compute-figure5"]) and all(map(in_words, figures.values()))


def test_it_runs_without_torch(tmp_path):
    code = (
        "import runpy, sys; sys.modules['torch'] = None; sys.argv.pop(0); runpy.run_path(*sys.argv, None, '__main__')"
    )
    script = ROOT / "papers" / "vit" / "vit_part5_compute.py"
    done = subprocess.run(
        [sys.executable, "-c", code, script],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env=os.environ | {"PAPERS_RESULTS": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "What this cannot show" in done.stdout and (tmp_path / "vit" / "part5-compute.json").is_file()
