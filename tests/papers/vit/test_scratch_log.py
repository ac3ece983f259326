"""What is printed: the article's log character for character from the article's numbers, and the suite's additions."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from papers.vit import vit_part4_scratch as script
from papers.vit import vit_part4_scratch_curves as curves
from papers.vit.part4.runs import (
    CIFAR10_VALIDATION,
    NAMES,
    Best,
    Curve,
    Recipe,
    Run,
    Validation,
    departure,
    departure_of,
)
from shared import published
from shared.errors import UserError
from shared.plots import in_words
from shared.record import Record
from shared.training.runs import MachineNote, Start, read_starts, write_json

# Unrounded accuracies that print as the article's; its gaps follow from such, not from the printed ones.
ARTICLE = {
    ("ViT", 1000): 39.04,
    ("ResNet", 1000): 54.56,
    ("ViT", 5000): 57.4,
    ("ResNet", 5000): 76.5,
    ("ViT", 50000): 63.75,
    ("ResNet", 50000): 84.24,
}
SIZES = (1000, 5000, 50000)


def finished(accuracy: float, held_out: float = 0.0, step: int = 2000) -> Curve:
    """A finished run with this best accuracy, and on the held-out images that one, in % of 10,000."""
    last = Validation(2500, 0) if step < 2500 else None
    return Curve(
        schema=1,
        identity={"steps": 2500, "model": "ViT", "size": 1000, "seed": 0, "variant": "float32"},
        complete=True,
        validation_images=10_000,
        held_out_images=10_000,
        validations=[Validation(step, round(100 * accuracy)), *([last] if last else [])],
        best=Best(step, round(100 * accuracy), round(100 * held_out)),
        losses=[1.0] * 2500,
    )


def cell(*accuracies: float, seeds: tuple[int, ...] = (0, 1, 2)) -> script.Cell:
    return {seed: finished(accuracy) for seed, accuracy in zip(seeds, accuracies, strict=False)}


def one_run(accuracies: dict[tuple[str, int], float]) -> script.Cells:
    return {key: cell(value) for key, value in accuracies.items()}


def test_the_articles_log(published_log) -> None:
    got = script.header(script.Config(), Recipe(), 10)
    got += script.table(one_run(ARTICLE), SIZES, Recipe(), 10)
    assert got == published_log("vit_part4_scratch")


def test_a_cell_without_a_run_prints_a_dash() -> None:
    cells = one_run({("ViT", 1000): 39.0, ("ResNet", 1000): 50.0, ("ViT", 50000): 60.0})
    got = script.table(cells, SIZES, Recipe(), 10)
    assert got[1].split() == ["1,000", "100", "320", "39.0%", "50.0%", "+11.0"]
    assert got[2].split() == ["5,000", "500", "64", "-", "-", "-"]
    assert got[3].split() == ["50,000", "5,000", "6", "60.0%", "-", "-"]
    assert got[4] == "  going from 1,000 to 50,000 images: ViT 39.0% -> 60.0% (+21.0)"


def test_both_conventions_are_printed() -> None:
    got = script.cost_lines(NAMES, Recipe(), 10)
    assert "77,071,616 in layers with weights + 6,489,600 in attention products = 83.6M" in got[0]
    assert "1.06 of a ResNet's" in got[2]


def test_held_out_difference(record: Record) -> None:
    script.held_out_table(record, {("ViT", 1000): {0: finished(40.0, 39.0, 500), 3: finished(42.0, 40.5, 750)}})
    assert record.lines[1].split() == ["1,000", "ViT", "0", "500", "40.00%", "39.00%", "+1.00"]
    assert record.lines[3] == "  mean difference over 2 runs: +1.25 points"


def test_standard_error_of_the_gap() -> None:
    one = script.gap_error(cell(40.0), cell(55.0), 5000)
    assert one == pytest.approx((0.4 * 0.6 / 5000 + 0.55 * 0.45 / 5000) ** 0.5 * 100)
    vit, resnet = cell(40.0, 41.0, 42.0), cell(50.0, 53.0, 53.0)
    assert script.gap_error(vit, resnet, 5000) == pytest.approx(1 / 3**0.5)  # gaps 10, 12, 11: deviation 1
    text = "\n".join(script.seed_lines({("ViT", 1000): vit, ("ResNet", 1000): resnet}, (1000,), 5000))
    assert "ViT 41.00% ± 1.00 over 3 seeds" in text and "gap +11.00, standard error 0.58 over 3 seeds" in text


@pytest.fixture
def record(tmp_path: Path):
    with Record("vit", "scratch", results=tmp_path, quiet=True) as opened:
        yield opened


def judged(record: Record, cells: script.Cells, why: str | None = None) -> dict:
    """The verdicts by their published ids."""
    record.judge_all(published.load("vit", "scratch"), script.measured(cells, Recipe(), 10, why), "a curve's")
    return {v.id: v for v in record.verdicts if v.reason != "a curve's"}


def words(verdicts: dict) -> dict[str, str]:
    return {id: v.verdict for id, v in verdicts.items()}


def test_the_articles_numbers_are_all_equal(record: Record) -> None:
    verdicts = words(judged(record, one_run(ARTICLE)))
    assert len(verdicts) == 18 and set(verdicts.values()) == {"equal"}


def test_the_two_scripts_judge_all_that_is_published() -> None:
    article = published.load("vit", "scratch")
    of_scripts = [script.measured({}, Recipe(), 10, None), curves.measured(article, {}, 0)]
    assert sorted([*of_scripts[0], *of_scripts[1]]) == sorted(article.numbers)


def test_a_run_that_was_not_asked_for_is_told_from_one_that_is_unfinished() -> None:
    asked = {("ViT", 1000), ("ResNet", 1000), ("ViT", 50000)}
    why = {id: number.why_not_run for id, number in script.measured({}, Recipe(), 10, None, asked=asked).items()}
    assert why["1,000 images/ViT best"] == "this run was not finished"
    assert why["1,000 images/ResNet - ViT"] == why["1,000 -> 50,000 images/ViT gains"]
    assert why["1,000 images/ResNet - ViT"] == "one of the two runs was not finished"
    for id in ("5,000 images/ViT best", "50,000 images/ResNet best", "50,000 images/ResNet - ViT"):
        assert why[id] == "not part of this run"
    assert why["1,000 -> 50,000 images/ResNet gains"] == "not part of this run"


def test_verdicts_tell_noise_from_a_difference(record: Record) -> None:
    verdicts = words(judged(record, one_run(ARTICLE | {("ResNet", 1000): 50.5, ("ViT", 5000): 58.5})))
    assert verdicts["1,000 images/ResNet best"] == verdicts["1,000 images/ResNet - ViT"] == "differs"
    assert verdicts["5,000 images/ViT best"] == verdicts["5,000 images/ResNet - ViT"] == "agrees"
    assert verdicts["1,000 -> 50,000 images/ViT gains"] == "equal"


def test_a_stand_in_is_not_comparable_and_a_missing_run_not_run(record: Record) -> None:
    verdicts = words(judged(record, one_run({("ViT", 1000): 39.0}), why="embedded digits"))
    assert verdicts["1,000 images/ViT best"] == "not comparable"
    assert verdicts["5,000 images/ViT best"] == verdicts["1,000 images/ResNet - ViT"] == "not run"


def test_one_seed_is_judged_and_further_ones_stand_beside_it(record: Record) -> None:
    """However many seeds a point has: a spread that only some points know would widen their tolerance alone."""
    of_one = judged(record, {("ResNet", 1000): cell(52.0), ("ViT", 1000): cell(39.0)})
    record.verdicts.clear()
    of_several = judged(record, {("ResNet", 1000): cell(52.0, 62.0), ("ViT", 1000): cell(39.0, 39.0, 41.0)})
    for id, verdict in of_several.items():
        assert (verdict.measured, verdict.tolerance) == (of_one[id].measured, of_one[id].tolerance), id
    assert "2 seeds here give 57.0 ± 7.1 %, 52.0 to 62.0" in of_several["1,000 images/ResNet best"].reason
    assert "2 seeds here give 18.0 ± 7.1 points" in of_several["1,000 images/ResNet - ViT"].reason
    record.verdicts.clear()
    without = judged(record, {("ResNet", 1000): cell(52.0, seeds=(1,))})
    assert without["1,000 images/ResNet best"].verdict == "not run"


@pytest.mark.parametrize(
    ("data", "stand_in", "recipe", "why"),
    [
        ("cifar10", None, Recipe(), None),
        ("cifar10", "a copy with fewer images", Recipe(), "a copy with fewer images"),
        ("my/folder", None, Recipe(), "other images (my/folder)"),
        ("cifar10", None, Recipe(steps=30, every=10), "another recipe (steps 30, every 10)"),
    ],
)
def test_what_cannot_be_compared(data: str, stand_in: str | None, recipe: Recipe, why: str | None) -> None:
    assert departure(data, stand_in, recipe, CIFAR10_VALIDATION) == why


def test_other_images_under_the_right_name_cannot_be_compared() -> None:
    assert "other images" in departure("cifar10", None, Recipe(), "0" * 64)


def test_schedule_values() -> None:
    recipe = Recipe()
    rates = [recipe.rate(step) for step in (0, 1, 250, 1375, 2500)]
    assert rates == pytest.approx([0.0, 4e-6, 1e-3, 5e-4, 0.0], abs=1e-12)
    assert [s for s in range(1, 2501) if recipe.validates(s)] == list(range(250, 2501, 250))
    assert [s for s in range(1, 31) if Recipe(steps=30, warmup=5, every=20).validates(s)] == [20, 30]


# ------------------------------------------------------------------------------------------------------------- curves


Points = dict[int, tuple[float, float]]


def curve_file(
    folder: Path,
    model: str,
    size: int,
    points: Points,
    best: tuple[float, int],
    seed: int = 0,
    variant: str = "float32",
) -> None:
    """A run's file with these (accuracy, smoothed loss) at these steps and this best, of the article's 2,500 steps."""
    last = max(points)
    losses: list[float] = []
    for step, (_, loss) in sorted(points.items()):
        losses += [loss] * (step - len(losses))  # hundreds of equal losses: the moving average has arrived
    at = {step: accuracy for step, (accuracy, _) in points.items()} | {best[1]: best[0]}
    run = Run(model, size, seed, variant)
    which = {key: value for key, value in vars(run).items() if key != "change"}
    curve = Curve(
        schema=1,
        identity=which | vars(Recipe()) | {"validation_sha256": CIFAR10_VALIDATION},
        complete=last == 2500,
        validation_images=5000,
        held_out_images=5000,
        validations=[Validation(s, round(a * 50)) for s, a in sorted(at.items())],
        best=Best(best[1], round(best[0] * 50), 0 if last == 2500 else None),
        losses=losses,
    )
    write_json(run.curve_file(folder), curve)


def article_curves(folder: Path) -> None:
    for model, size, points, best in (
        ("ViT", 1000, {500: (36.0, 1.272), 1500: (37.7, 0.08), 2500: (38.6, 0.004)}, (39.0, 2000)),
        ("ResNet", 1000, {500: (47.5, 0.36), 1500: (53.3, 0.003), 2500: (54.1, 0.001)}, (54.6, 2000)),
        ("ViT", 50000, {500: (41.5, 1.657), 1500: (57.7, 1.23), 2500: (63.8, 1.059)}, (63.8, 2500)),
        ("ResNet", 50000, {500: (55.0, 1.047), 1500: (79.7, 0.594), 2500: (84.2, 0.432)}, (84.2, 2500)),
    ):
        curve_file(folder, model, size, points, best)


def judge_curves(record: Record, repeats: curves.Repeats) -> None:
    article = published.load("vit", "scratch")
    record.judge_all(article, curves.measured(article, repeats, 0), "the table's")


def test_the_articles_curves(tmp_path: Path, published_log, record: Record) -> None:
    article_curves(tmp_path)
    shown, repeats, left_out = curves.read(tmp_path, seed=0)
    assert [curves.TITLE, *map(curves.line, shown)] == published_log("vit_part4_scratch_curves")
    assert not left_out
    judge_curves(record, repeats)
    accuracies = [v for v in record.verdicts if v.id.startswith("curve")]
    losses = [v for v in record.verdicts if v.id.startswith("loss")]
    assert len(accuracies) == len(losses) == 12
    assert {v.verdict for v in accuracies} == {"equal"} and {v.verdict for v in losses} == {"not comparable"}


def test_further_seeds_of_a_point_stand_beside_its_verdict(tmp_path: Path, record: Record) -> None:
    article_curves(tmp_path)
    for seed, accuracy in ((1, 38.0), (2, 42.0)):  # both stopped at step 500; with the first 36.0: 38.67 ± 3.06
        curve_file(tmp_path, "ViT", 1000, {500: (accuracy, 1.2)}, (accuracy, 500), seed=seed)
    curve_file(tmp_path, "ViT", 1000, {500: (90.0, 1.2)}, (90.0, 500), seed=3, variant="bf16")  # another arithmetic
    _, repeats, _ = curves.read(tmp_path, seed=0)
    assert curves.seed_lines(repeats) == ["   1,000 images  ViT    step 500: 38.7 ± 3.1 % over 3 seeds, 36.0 to 42.0"]
    judge_curves(record, repeats)
    points = {v.id: v for v in record.verdicts}
    several, one = (points[f"curve, 1,000 images/ViT step {step}"] for step in (500, 1500))
    assert several.measured == "36.0" and several.verdict == "equal" and several.measured_std is None
    assert several.reason.endswith("3 seeds here give 38.7 ± 3.1 %, 36.0 to 42.0") and not one.reason
    assert several.tolerance == pytest.approx(0.05 + 2 * (2 * 36 * 64 / 5000) ** 0.5)
    assert several.runs == ["ViT-1000-seed0.json"]
    assert points["loss, 1,000 images/ViT step 500"].measured == "1.272"  # seed 0's


def test_a_copy_under_another_name_is_no_second_seed(tmp_path: Path) -> None:
    article_curves(tmp_path)
    copy = tmp_path / "ViT-1000-seed0-old.json"
    copy.write_bytes((tmp_path / "ViT-1000-seed0.json").read_bytes())
    _, repeats, left_out = curves.read(tmp_path, seed=0)
    assert not curves.seed_lines(repeats)
    assert left_out == [
        f"left out: {copy}: holds the run ViT-1000-seed0, which its name does not say; rename or delete it"
    ]


def test_a_curve_with_a_change_is_another_recipe(tmp_path: Path) -> None:
    article_curves(tmp_path)
    curve = Curve.read(tmp_path / "ViT-1000-seed0.json")
    assert departure_of(curve) is None
    changed = replace(curve, identity=curve.identity | {"change": "init"})
    assert departure_of(changed) == "another recipe (change: init)"


def test_a_curve_cut_short_prints_what_it_has(tmp_path: Path) -> None:
    curve_file(tmp_path, "ViT", 1000, {500: (36.0, 1.2), 750: (37.0, 0.9)}, (37.0, 750))
    (tmp_path / "ResNet-1000-seed0.json").write_text('{"schema": 1, "identity": {"mod', encoding="utf-8")
    (tmp_path / "ViT-1000-seed0.machine.json").write_text("{}", encoding="utf-8")
    shown, _, damaged = curves.read(tmp_path, seed=0)
    assert curves.line(shown[0]) == "   1,000 images  ViT    step 500: 36.0% / loss 1.200   best 37.0% at step 750"
    assert "ends at step 750 of 2,500; start vit_part4_scratch.py again" in curves.missing(shown[0])
    assert len(damaged) == 1 and "ResNet-1000-seed0.json: damaged curve" in damaged[0]


def test_a_finished_run_is_shown_before_an_attempt_in_another_arithmetic(tmp_path: Path) -> None:
    whole, cut = {500: (36.0, 1.2), 2500: (38.6, 0.1)}, {500: (10.0, 2.0)}
    curve_file(tmp_path, "ViT", 1000, cut, (10.0, 500), variant="bf16")
    curve_file(tmp_path, "ViT", 1000, whole, (38.6, 2500), variant="float32-compiled")
    curve_file(tmp_path, "ResNet", 1000, whole, (38.6, 2500), variant="bf16-compiled")
    curve_file(tmp_path, "ResNet", 1000, whole, (38.6, 2500))
    shown, _, left_out = curves.read(tmp_path, seed=0)
    assert [c.run.variant for c in shown] == ["float32-compiled", "float32"]
    assert left_out == [
        "1,000 images ViT: also there in bf16 (cut short), not shown",
        "1,000 images ResNet: also there in bf16-compiled, not shown",
    ]
    assert curves.arithmetic(shown) == "trained in float32-compiled: ViT 1,000; float32: ResNet 1,000"


@pytest.mark.parametrize(
    "change",
    [
        {"losses": []},
        {"losses": None},
        {"losses": ["x"] * 2500},
        {"losses": [float("nan")] * 2500},
        {"validation_images": 0},
        {"validation_images": 100},
        {"schema": 2},
        {"identity": {}},
        {"identity": {"variant": "int8"}},
        {"identity": {"lr": "fast"}},
        {"validations": []},
        {"validations": [3]},
        {"complete": True, "validations": [{"step": 500, "correct": 1}]},
        {"best": {}},
        {"best": {"step": 2500, "correct": 50_000, "held_out_correct": 0}},  # more than there are images
        {"best": {"step": 500, "correct": 2750, "held_out_correct": 0}},  # not the best validation
        {"best": {"step": 2500, "correct": 4210, "held_out_correct": 5001}},
        {"best": {"step": 2500, "correct": 4210, "held_out_correct": None}},
    ],
)
def test_a_file_that_is_no_curve_is_left_out_by_name(tmp_path: Path, change: dict) -> None:
    article_curves(tmp_path)
    path = tmp_path / "ResNet-50000-seed0.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    identity = content["identity"] | change.pop("identity") if change.get("identity") else change.pop("identity", None)
    content |= change | ({} if identity is None else {"identity": identity})
    path.write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")  # somebody's own file is nobody's business
    shown, _, left_out = curves.read(tmp_path, seed=0)
    assert len(shown) == 3 and len(left_out) == 1 and str(path) in left_out[0] and "\n" not in left_out[0]


def test_seeds_are_paired_by_their_number() -> None:
    vit, resnet = cell(40.0, 41.0, seeds=(0, 2)), cell(50.0, 55.0, seeds=(1, 2))
    one, other = script.paired(vit, resnet)
    assert (script.accuracies(one), script.accuracies(other), list(one), list(other)) == ([41.0], [55.0], [2], [2])
    assert script.paired(vit, cell(1.0, seeds=(7,))) is None and script.paired(None, vit) is None
    table = script.table({("ViT", 1000): vit, ("ResNet", 1000): resnet}, (1000,), Recipe(), 10)
    assert table[1].split()[-3:] == ["40.5%", "52.5%", "+14.0"]


def test_smoothing_is_an_exponential_moving_average() -> None:
    assert curves.smooth([1.0, 0.0, 0.0]) == pytest.approx([1.0, 0.99, 0.9801])


def test_figures_have_a_panel_a_size_and_the_articles_points_beside_ours(tmp_path: Path) -> None:
    article_curves(tmp_path)
    article = published.load("vit", "scratch")
    shown, repeats, _ = curves.read(tmp_path, seed=0)
    words = in_words(curves.draw_curves(shown, repeats, article))
    assert "1,000 images: " in words and "50,000 images: " in words and "(log scale)" in words
    printed = article["curve, 50,000 images/ViT step 500"].printed
    assert f"{printed} at 500" in words and "0.004 at 2,500" in words
    assert "article" not in in_words(curves.draw_curves(shown, repeats, None))
    (tmp_path / "ResNet-50000-seed0.json").unlink()
    shown, repeats, _ = curves.read(tmp_path, seed=0)
    few = curves.draw_curves(shown, repeats, None)
    legend = few.axes[1].get_legend() or few.axes[0].get_legend()
    assert "ResNet" in [text.get_text() for text in legend.get_texts()]  # names what another panel shows


def test_the_sizes_stand_on_a_log_axis_with_their_errors_and_the_articles_points() -> None:
    cells = {("ViT", 1000): cell(40.0, 42.0, seeds=(0, 1)), ("ViT", 5000): cell(50.0), ("ResNet", 1000): cell(52.0)}
    figure = script.draw_sizes(cells, published.load("vit", "scratch"), 5000)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log" and axes.get_ylim()[0] == 0
    words = in_words(figure)
    assert "ViT, ours: 41 at 1,000, 50 at 5,000" in words and "ViT, article: 39 at 1,000" in words
    assert "article" not in in_words(script.draw_sizes(cells, None, 5000))
    assert script.gaps_in_words(cells) == "" or "points at 1,000 images" in script.gaps_in_words(cells)


@pytest.mark.parametrize(("old", "new"), [(b": 1885}", b": 1886}"), (b"0.08, 0.08", b"0.08, 0.09")])
def test_a_curve_whose_bytes_changed_is_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    """Also within the bounds that a training keeps. What was written before there were checksums stays readable."""
    article_curves(tmp_path)
    path = Run("ViT", 1000).curve_file(tmp_path)
    before = path.read_bytes()
    changed = before.replace(old, new, 1)
    assert Curve.read(path).best.correct == 1950 and changed != before
    path.write_bytes(changed)
    with pytest.raises(UserError, match=r"ViT-1000-seed0\.json: damaged curve .its checksum does not fit"):
        Curve.read(path)
    path.write_bytes(re.sub(rb',\n "checksum": "\w+"', b"", before))
    assert b"checksum" not in path.read_bytes() and Curve.read(path).best.correct == 1950


def test_a_note_of_the_machine_whose_bytes_changed_is_refused(tmp_path: Path) -> None:
    start = Start("2026-01-01T00:00:00Z", 0, 250, 61.5, 2.5, "cpu", 2, "2.11")
    write_json(tmp_path / "x.machine.json", MachineNote(1, [start]))
    assert read_starts(tmp_path / "x.machine.json") == [start]
    content = (tmp_path / "x.machine.json").read_bytes()
    (tmp_path / "x.machine.json").write_bytes(content.replace(b"61.5", b"16.5"))
    with pytest.raises(UserError, match="its checksum does not fit"):
        read_starts(tmp_path / "x.machine.json")
