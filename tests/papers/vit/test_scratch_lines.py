"""What is printed: the article's log character for character from the article's numbers, and the suite's additions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from papers.vit import scratch_curves as curves
from papers.vit import scratch_lines as lines
from papers.vit import scratch_recipe, scratch_verdicts
from papers.vit.scratch_lines import Score
from papers.vit.scratch_recipe import Recipe
from shared import published
from shared.record import Record

# Unrounded accuracies that print as the article's; its gaps follow from such, not from the printed ones.
ARTICLE = {
    ("ViT", 1000): 39.04, ("ResNet", 1000): 54.56, ("ViT", 5000): 57.4, ("ResNet", 5000): 76.5,
    ("ViT", 50000): 63.75, ("ResNet", 50000): 84.24,
}  # fmt: skip
SIZES = (1000, 5000, 50000)


def one_run(accuracies: dict[tuple[str, int], float]) -> dict[tuple[str, int], Score]:
    return {cell: Score([value], [value - 1], [2000], [0]) for cell, value in accuracies.items()}


def test_the_articles_log(published_log) -> None:
    got = lines.header("cifar10", Recipe(), ("ViT", "ResNet"), 10)
    got += lines.table(one_run(ARTICLE), SIZES, Recipe(), 10)
    assert got == published_log("vit_part4_scratch")


def test_a_cell_without_a_run_prints_a_dash() -> None:
    scores = one_run({("ViT", 1000): 39.0, ("ResNet", 1000): 50.0, ("ViT", 50000): 60.0})
    got = lines.table(scores, SIZES, Recipe(), 10)
    assert got[1].split() == ["1,000", "100", "320", "39.0%", "50.0%", "+11.0"]
    assert got[2].split() == ["5,000", "500", "64", "-", "-", "-"]
    assert got[3].split() == ["50,000", "5,000", "6", "60.0%", "-", "-"]
    assert got[4] == "  going from 1,000 to 50,000 images: ViT 39.0% -> 60.0% (+21.0)"


def test_both_conventions_are_printed() -> None:
    got = lines.cost_lines(("ViT", "ResNet"), Recipe(), 10)
    assert "77,071,616 in layers with weights + 6,489,600 in attention products = 83.6M" in got[0]
    assert "1.06 of a ResNet's" in got[2]


def test_held_out_difference() -> None:
    scores = {("ViT", 1000): Score([40.0, 42.0], [39.0, 40.5], [500, 750], [0, 3])}
    got = lines.held_out_lines(scores)
    assert got[1].split() == ["1,000", "ViT", "0", "500", "40.00%", "39.00%", "+1.00"]
    assert got[3] == "  mean difference over 2 runs: +1.25 points"


def test_standard_error_of_the_gap() -> None:
    one = lines.gap_error(Score([40.0], [0.0], [1], [0]), Score([55.0], [0.0], [1], [0]), 5000)
    assert one == pytest.approx((0.4 * 0.6 / 5000 + 0.55 * 0.45 / 5000) ** 0.5 * 100)
    vit, resnet = (Score(best, [0.0] * 3, [1] * 3, [0, 1, 2]) for best in ([40.0, 41.0, 42.0], [50.0, 53.0, 53.0]))
    assert lines.gap_error(vit, resnet, 5000) == pytest.approx(1 / 3**0.5)  # gaps 10, 12, 11: deviation 1
    text = "\n".join(lines.seed_lines({("ViT", 1000): vit, ("ResNet", 1000): resnet}, (1000,), 5000))
    assert "ViT 41.00% ± 1.00 over 3 seeds" in text and "gap +11.00, standard error 0.58 over 3 seeds" in text


@pytest.fixture
def record(tmp_path: Path):
    with Record("vit", "scratch", results=tmp_path, quiet=True) as opened:
        yield opened


def judged(record: Record, accuracies: dict[tuple[str, int], float], why: str | None = None) -> dict[str, str]:
    numbers = published.load("vit", "scratch")
    scratch_verdicts.judge_costs(record, numbers, Recipe(), 10)
    scratch_verdicts.judge_accuracies(record, numbers, one_run(accuracies), 5000, why)
    return {v.id: v.verdict for v in record.verdicts}


def test_the_articles_numbers_are_all_equal(record: Record) -> None:
    verdicts = judged(record, ARTICLE)
    assert len(verdicts) == 18 and set(verdicts.values()) == {"equal"}


def test_verdicts_tell_noise_from_a_difference(record: Record) -> None:
    verdicts = judged(record, ARTICLE | {("ResNet", 1000): 50.5, ("ViT", 5000): 58.5})
    assert verdicts["1,000 images/ResNet best"] == verdicts["1,000 images/ResNet - ViT"] == "differs"
    assert verdicts["5,000 images/ViT best"] == verdicts["5,000 images/ResNet - ViT"] == "agrees"
    assert verdicts["1,000 -> 50,000 images/ViT gains"] == "equal"


def test_a_stand_in_is_not_comparable_and_a_missing_run_not_run(record: Record) -> None:
    verdicts = judged(record, {("ViT", 1000): 39.0}, why="embedded digits")
    assert verdicts["1,000 images/ViT best"] == "not comparable"
    assert verdicts["5,000 images/ViT best"] == verdicts["1,000 images/ResNet - ViT"] == "not run"


def test_several_seeds_widen_the_tolerance(record: Record) -> None:
    numbers = published.load("vit", "scratch")
    seeds = {
        ("ResNet", 1000): Score([50.0, 52.0], [0.0] * 2, [1] * 2, [0, 1]),
        ("ViT", 1000): Score([39.0] * 2, [0.0] * 2, [1] * 2, [0, 1]),
    }
    scratch_verdicts.judge_accuracies(record, numbers, seeds, 5000, None)
    found = {v.id: v for v in record.verdicts}["1,000 images/ResNet best"]
    # deviation 1.41; the article's is one more run, so 1.41^2 (1 + 1/2) beside two binomial variances
    assert found.tolerance == pytest.approx(0.05 + 2 * (2 * 1.5 + 2 * 54.6 * 45.4 / 5000) ** 0.5)


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
    assert scratch_recipe.departure(data, stand_in, recipe, scratch_recipe.CIFAR10_VALIDATION) == why


def test_other_images_under_the_right_name_cannot_be_compared() -> None:
    assert "other images" in scratch_recipe.departure("cifar10", None, Recipe(), "0" * 64)


def test_schedule_values() -> None:
    recipe = Recipe()
    rates = [recipe.rate(step) for step in (0, 1, 250, 1375, 2500)]
    assert rates == pytest.approx([0.0, 4e-6, 1e-3, 5e-4, 0.0], abs=1e-12)
    assert [s for s in range(1, 2501) if recipe.validates(s)] == list(range(250, 2501, 250))
    assert [s for s in range(1, 31) if Recipe(steps=30, warmup=5, every=20).validates(s)] == [20, 30]


# ------------------------------------------------------------------------------------------------------------- curves


def curve_file(folder: Path, model: str, size: int, points: dict[int, tuple[float, float]], best: tuple[float, int],
               steps: int = 2500, seed: int = 0, variant: str = "float32") -> None:  # fmt: skip
    """A run's file with these (accuracy, smoothed loss) at these steps and this best."""
    last = max(points)
    losses: list[float] = []
    for step, (_, loss) in sorted(points.items()):
        losses += [loss] * (step - len(losses))  # hundreds of equal losses: the moving average has arrived
    at = {step: accuracy for step, (accuracy, _) in points.items()} | {best[1]: best[0]}
    content = {
        "schema": 1, "complete": last == steps, "validation_images": 5000, "held_out_images": 5000,
        "identity": vars(Recipe(steps=steps)) | {
            "model": model, "size": size, "seed": seed, "variant": variant,
            "validation_sha256": scratch_recipe.CIFAR10_VALIDATION,
        },
        "validations": [{"step": s, "correct": round(a * 50)} for s, a in sorted(at.items())],
        "best": {"step": best[1], "correct": round(best[0] * 50), "held_out_correct": 0 if last == steps else None},
        "losses": losses,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    suffix = "" if variant == "float32" else f"-{variant}"
    (folder / f"{model}-{size}-seed{seed}{suffix}.json").write_text(json.dumps(content))


def article_curves(folder: Path) -> None:
    for model, size, points, best in (
        ("ViT", 1000, {500: (36.0, 1.272), 1500: (37.7, 0.08), 2500: (38.6, 0.004)}, (39.0, 2000)),
        ("ResNet", 1000, {500: (47.5, 0.36), 1500: (53.3, 0.003), 2500: (54.1, 0.001)}, (54.6, 2000)),
        ("ViT", 50000, {500: (41.5, 1.657), 1500: (57.7, 1.23), 2500: (63.8, 1.059)}, (63.8, 2500)),
        ("ResNet", 50000, {500: (55.0, 1.047), 1500: (79.7, 0.594), 2500: (84.2, 0.432)}, (84.2, 2500)),
    ):
        curve_file(folder, model, size, points, best)


def test_the_articles_curves(tmp_path: Path, published_log, record: Record) -> None:
    article_curves(tmp_path)
    found, damaged = curves.read(tmp_path, seed=0)
    assert [curves.TITLE, *(c.line() for c in found)] == published_log("vit_part4_scratch_curves")
    assert not damaged
    curves.judge(record, published.load("vit", "scratch"), curves.with_repeats(tmp_path, found), 0)
    accuracies = [v for v in record.verdicts if v.id.startswith("curve")]
    losses = [v for v in record.verdicts if v.id.startswith("loss")]
    assert len(accuracies) == len(losses) == 12
    assert {v.verdict for v in accuracies} == {"equal"} and {v.verdict for v in losses} == {"not comparable"}


def test_seeds_make_the_verdict_of_a_point(tmp_path: Path, record: Record) -> None:
    article_curves(tmp_path)
    for seed, accuracy in ((1, 38.0), (2, 42.0)):  # both stopped at step 500; with the first 36.0: 38.67 ± 3.06
        curve_file(tmp_path, "ViT", 1000, {500: (accuracy, 1.2)}, (accuracy, 500), seed=seed)
    curve_file(tmp_path, "ViT", 1000, {500: (90.0, 1.2)}, (90.0, 500), seed=3, variant="bf16")  # another arithmetic
    found, _ = curves.read(tmp_path, seed=0)
    repeats = curves.with_repeats(tmp_path, found)
    assert curves.seed_lines(repeats) == ["   1,000 images  ViT    step 500: 38.7 ± 3.1 % over 3 seeds, 36.0 to 42.0"]
    curves.judge(record, published.load("vit", "scratch"), repeats, 0)
    points = {v.id: v for v in record.verdicts}
    several, one = (points[f"curve, 1,000 images/ViT step {step}"] for step in (500, 1500))
    assert several.measured == "38.7" and several.verdict == "agrees"
    assert several.measured_std == pytest.approx(3.055 * (4 / 3) ** 0.5, abs=1e-3)
    assert one.measured == "37.7" and one.measured_std is None
    assert points["loss, 1,000 images/ViT step 500"].measured == "1.272"  # seed 0's


def test_a_copy_under_another_name_is_no_second_seed(tmp_path: Path) -> None:
    article_curves(tmp_path)
    copy = tmp_path / "ViT-1000-seed0-old.json"
    copy.write_bytes((tmp_path / "ViT-1000-seed0.json").read_bytes())
    found, left_out = curves.read(tmp_path, seed=0)
    assert not curves.seed_lines(curves.with_repeats(tmp_path, found))
    assert left_out == [
        f"left out: {copy}: holds the run ViT-1000-seed0, which its name does not say; rename or delete it"
    ]


def test_a_curve_with_a_change_is_another_recipe(tmp_path: Path) -> None:
    article_curves(tmp_path)
    content = json.loads((tmp_path / "ViT-1000-seed0.json").read_text())
    assert scratch_recipe.departure_of(content["identity"]) is None
    assert scratch_recipe.departure_of(content["identity"] | {"change": "init"}) == "another recipe (change: init)"


def test_a_curve_cut_short_prints_what_it_has(tmp_path: Path) -> None:
    curve_file(tmp_path, "ViT", 1000, {500: (36.0, 1.2), 750: (37.0, 0.9)}, (37.0, 750))
    (tmp_path / "ResNet-1000-seed0.json").write_text('{"schema": 1, "identity": {"mod')
    (tmp_path / "ViT-1000-seed0.machine.json").write_text("{}")
    found, damaged = curves.read(tmp_path, seed=0)
    assert found[0].line() == "   1,000 images  ViT    step 500: 36.0% / loss 1.200   best 37.0% at step 750"
    assert "ends at step 750 of 2,500; start vit_part4_scratch.py again" in found[0].missing()
    assert len(damaged) == 1 and "ResNet-1000-seed0.json: damaged curve" in damaged[0]


def test_a_finished_run_is_shown_before_an_attempt_in_another_arithmetic(tmp_path: Path) -> None:
    whole, cut = {500: (36.0, 1.2), 2500: (38.6, 0.1)}, {500: (10.0, 2.0)}
    curve_file(tmp_path, "ViT", 1000, cut, (10.0, 500), variant="bf16")
    curve_file(tmp_path, "ViT", 1000, whole, (38.6, 2500), variant="float32-compiled")
    curve_file(tmp_path, "ResNet", 1000, whole, (38.6, 2500), variant="bf16-compiled")
    curve_file(tmp_path, "ResNet", 1000, whole, (38.6, 2500))
    found, left_out = curves.read(tmp_path, seed=0)
    assert [c.identity["variant"] for c in found] == ["float32-compiled", "float32"]
    assert left_out == [
        "1,000 images ViT: also there in bf16 (cut short), not shown",
        "1,000 images ResNet: also there in bf16-compiled, not shown",
    ]
    assert curves.arithmetic(found) == "trained in float32-compiled: ViT 1,000; float32: ResNet 1,000"


@pytest.mark.parametrize(
    "change",
    [
        {"losses": []}, {"losses": None}, {"losses": ["x"] * 2500}, {"validation_images": 0}, {"schema": 2},
        {"identity": {}}, {"identity": {"variant": "int8"}}, {"identity": {"lr": "fast"}}, {"validations": []},
        {"best": {}}, {"complete": True, "validations": [{"step": 500, "correct": 1}]}, {"validations": [3]},
    ],
)  # fmt: skip
def test_a_file_that_is_no_curve_is_left_out_by_name(tmp_path: Path, change: dict) -> None:
    article_curves(tmp_path)
    path = tmp_path / "ResNet-50000-seed0.json"
    content = json.loads(path.read_text())
    identity = content["identity"] | change.pop("identity") if change.get("identity") else change.pop("identity", None)
    content |= change | ({} if identity is None else {"identity": identity})
    path.write_text(json.dumps(content))
    (tmp_path / "notes.json").write_text("{}")  # somebody's own file is nobody's business
    found, left_out = curves.read(tmp_path, seed=0)
    assert len(found) == 3 and len(left_out) == 1 and str(path) in left_out[0] and "\n" not in left_out[0]


def test_seeds_are_paired_by_their_number() -> None:
    vit, resnet = Score([40.0, 41.0], [0.0] * 2, [1] * 2, [0, 2]), Score([50.0, 55.0], [0.0] * 2, [1] * 2, [1, 2])
    one, other = lines.paired(vit, resnet)
    assert (one.best, other.best, one.seeds) == ([41.0], [55.0], [2])
    assert lines.paired(vit, Score([1.0], [1.0], [1], [7])) is None and lines.paired(None, vit) is None
    table = lines.table({("ViT", 1000): vit, ("ResNet", 1000): resnet}, (1000,), Recipe(), 10)
    assert table[1].split()[-3:] == ["40.5%", "52.5%", "+14.0"]


def test_smoothing_is_an_exponential_moving_average() -> None:
    assert curves.smooth([1.0, 0.0, 0.0]) == pytest.approx([1.0, 0.99, 0.9801])


def test_figures_have_a_panel_a_size_and_their_twins(tmp_path: Path) -> None:
    from papers.vit import scratch_figures

    article_curves(tmp_path)
    found, _ = curves.read(tmp_path, seed=0)
    path = scratch_figures.draw_curves(found, tmp_path / "curves.png")
    text = path.with_suffix(".svg").read_text()
    assert path.read_bytes().startswith(b"\x89PNG") and "1,000 images" in text and "50,000 images" in text
    (tmp_path / "ResNet-50000-seed0.json").unlink()
    few = scratch_figures.draw_curves(curves.read(tmp_path, seed=0)[0], tmp_path / "few.png")
    assert ">ResNet<" in few.with_suffix(".svg").read_text()  # the legend names what another panel shows
    path = scratch_figures.draw_sizes(found, published.load("vit", "scratch"), tmp_path / "sizes.png")
    assert "ResNet, article" in path.with_suffix(".svg").read_text()
