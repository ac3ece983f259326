"""One change at a time: each factor changes what it says and nothing else, and its files are its own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torchvision.transforms.functional as TF
from torch import nn

from papers.vit import vit_part4_scratch as script
from papers.vit.part4 import changes, networks
from papers.vit.part4.runs import PLAIN, Best, Curve, Recipe, Run, Validation
from papers.vit.part4.trainer import Trainer, identity
from shared.data import load_images
from shared.errors import UserError
from shared.training.stream import Augmentation, TrainingData, arrays_of, crop_flip, draw_augmentation, prepare

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")
TINY = Recipe(steps=4, warmup=1, batch=16, validation=50, every=2, image_size=8, pad=1)
RUN = Run("ResNet", 40)
OPTIONS = {
    "data": "digits",
    "image_size": 8,
    "pad": 1,
    "models": ("ResNet",),
    "sizes": (40,),
    "steps": 4,
    "warmup": 1,
    "batch": 16,
    "validation": 50,
    "every": 2,
    "threads": 1,
    "device": "cpu",
    "estimate": False,
    "factors": ("all",),
}


@pytest.fixture(scope="module")
def data() -> TrainingData:
    train, test = (arrays_of(load_images("digits", split), 8) for split in ("train", "test"))
    return prepare(train, test, size=40, seed=0, validation=50, device=CPU)


def configured(results: Path, **changes) -> script.Config:
    return script.Config(**OPTIONS | {"results": results} | changes)


def made(change: str, data: TrainingData) -> Trainer:
    return Trainer(replace(RUN, change=change), TINY, networks.FACTORS[change].images(data), CPU)


def differences(name: str, data: TrainingData) -> set[str]:
    """What of a trainer is another one's than the plain recipe's."""
    plain, changed = (made(which, data) for which in (PLAIN, name))
    found = set()
    for part in ("train", "validation", "held_out"):
        one, other = getattr(plain.data, part), getattr(changed.data, part)
        assert torch.equal(one.labels, other.labels)
        if not torch.equal(one.images, other.images):
            found.add("images")
    if (plain.data.mean, plain.data.std) != (changed.data.mean, changed.data.std):
        found.add("normalisation")
    if any(not torch.equal(a, b) for a, b in zip(plain.model.parameters(), changed.model.parameters(), strict=True)):
        found.add("weights")
    decays = [{g["weight_decay"] for g in t.optimizer.param_groups} for t in (plain, changed)]
    if decays[0] != decays[1]:
        found.add("decay")
    draws, images = draw_augmentation(0, 16, 0, 1), plain.data.train.images[:16]
    if not torch.equal(plain.augment(images, draws, 1), changed.augment(images, draws, 1)):
        found.add("crops")
    return found


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("jpeg", "images"),
        ("init", "weights"),
        ("he", "weights"),
        ("zero", "weights"),
        ("decay", "decay"),
        ("normalisation", "normalisation"),
        ("padding", "crops"),
    ],
)
def test_a_factor_changes_one_thing(name: str, what: str, data: TrainingData) -> None:
    assert differences(name, data) == {what}


def test_the_plain_recipe_changes_nothing(data: TrainingData) -> None:
    assert differences(PLAIN, data) == set()
    assert {run.change for run in script.plan(configured(Path()))} == set(networks.FACTORS)
    assert set(changes.NAMES) == set(networks.FACTORS) - {"plain"}  # each has a name for the figure


def test_he_initialisation(data: TrainingData) -> None:
    model = networks.build("ResNet")
    state = torch.random.get_rng_state()
    networks.he_init(model, 0)
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's generator moved"
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.03)
    assert all(block.bn2.weight.min() == 1 for block in model.blocks)


def test_zero_initialisation(data: TrainingData) -> None:
    zero, both, he = (made(name, data).model for name in ("zero", "init", "he"))
    for model in (zero, both):
        assert all(block.bn2.weight.abs().max() == 0 and block.bn1.weight.min() == 1 for block in model.blocks)
    assert torch.equal(both.stem[0].weight, he.stem[0].weight)
    assert not torch.equal(zero.stem[0].weight, he.stem[0].weight)


def test_decay_leaves_biases_and_norms_alone(data: TrainingData) -> None:
    trainer = made("decay", data)
    decayed, left = sorted(trainer.optimizer.param_groups, key=lambda group: -group["weight_decay"])
    assert decayed["weight_decay"] == TINY.weight_decay and left["weight_decay"] == 0
    assert all(p.ndim > 1 for p in decayed["params"]) and all(p.ndim == 1 for p in left["params"])
    assert len(decayed["params"]) + len(left["params"]) == len(list(trainer.model.parameters()))
    trainer.step()  # the schedule reaches both groups
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {TINY.rate(0)}


def test_mirrored_padding_is_torchvisions() -> None:
    images = torch.randint(0, 256, (9, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    top, left = (t.flatten() for t in torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij"))
    flip = torch.arange(9) % 2 == 0
    ours = networks.FACTORS["padding"].augment(images, Augmentation(top, left, flip), 1)
    padded = TF.pad(images, [1], padding_mode="reflect")
    for i, image in enumerate(padded):
        crop = TF.crop(image, int(top[i]), int(left[i]), 8, 8)
        assert torch.equal(ours[i], TF.hflip(crop) if flip[i] else crop)
    assert not torch.equal(ours, crop_flip(images, Augmentation(top, left, flip), 1))


def test_jpeg_is_lossy_and_repeatable(data: TrainingData) -> None:
    once, twice = networks.through_jpeg(data), networks.through_jpeg(data)
    assert torch.equal(once.train.images, twice.train.images)
    apart = (once.held_out.images.int() - data.held_out.images.int()).abs().float().mean().item()
    assert 0.1 < apart < 30
    assert once.fingerprints["train"] != data.fingerprints["train"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("factors")
    script.main(configured(results, plain_seeds=2))
    return results


def test_the_table_holds_every_factor_against_plain(finished: Path) -> None:
    result = json.loads((finished / "vit" / "scratch-factors.json").read_text(encoding="utf-8"))["results"]
    assert set(result) == {f"{name}/seed0" for name in networks.FACTORS} | {"plain/seed1"}
    log = (finished / "vit" / "scratch-factors.log").read_text(encoding="utf-8")
    plain, jpeg = result["plain/seed0"]["best"], result["jpeg/seed0"]["best"]
    best = (jpeg["correct"] - plain["correct"]) * 100 / 50
    on_all = (sum(jpeg[k] - plain[k] for k in ("correct", "held_out_correct"))) * 100 / 500
    row = next(line for line in log.splitlines() if line.startswith("  jpeg ") and "%" in line)
    assert row.split()[-2:] == [f"{best:+.2f}", f"{on_all:+.2f}"]
    assert "on average over 2 seeds" in log and "article's one run" not in log  # the digits are no CIFAR-10


def test_plain_is_the_run_of_the_scratch_script(finished: Path, tmp_path: Path) -> None:
    script.main(configured(tmp_path, factors=()))
    theirs = (tmp_path / "vit" / "scratch" / "ResNet-40-seed0.json").read_bytes()
    assert (finished / "vit" / "scratch-factors" / "plain" / "ResNet-40-seed0.json").read_bytes() == theirs


def test_a_second_start_repeats_nothing(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Trainer, "step", never)
    script.main(configured(finished, plain_seeds=2))


def test_a_curve_in_another_factors_folder_is_refused(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "vit" / "scratch-factors" / "init"
    folder.mkdir(parents=True)
    source = finished / "vit" / "scratch-factors" / "decay" / "ResNet-40-seed0.json"
    (folder / source.name).write_bytes(source.read_bytes())
    with pytest.raises(UserError, match=r"belongs to another run \(change is 'decay', asked for 'init'\)"):
        script.main(configured(tmp_path, factors=("init",)))


def test_what_is_not_trained_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    script.main(configured(tmp_path, factors=("jpeg",), train=False))
    out = capsys.readouterr().out
    assert re.search(r"jpeg +ResNet-40-seed0 +not run", out) and "that needs two finished seeds" in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ("VGG",)}, "--models VGG: choose from ViT, ResNet"),
        (
            {"factors": ("luck",)},
            "--factors luck: choose from plain, jpeg, init, he, zero, decay, normalisation, padding",
        ),
        ({"models": ("ViT",), "factors": ("init",)}, "--factors init: the article leaves the ResNet's"),
        ({"plain_seeds": 0}, "--plain-seeds 0: every factor is held against"),
        ({"seeds": 0}, "--seeds 0: must be at least 1"),
        ({"pad": 8, "factors": ("padding",)}, "--factors padding: a mirror needs --pad between 1 and 7, not 8"),
        ({"pad": 0, "factors": ("padding",)}, "--factors padding: a mirror needs --pad between 1 and 7, not 0"),
        ({"sizes": (45,)}, "size 45 does not divide into 10 classes"),
        ({"sizes": (20, 40)}, "--factors: name one network and one number of images"),
        ({"warmup": 9}, "--warmup 9: must lie between 0 and --steps 4"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        script.main(configured(tmp_path, **changes))


def test_identity_names_the_change_only_where_there_is_one(data: TrainingData) -> None:
    for change in ("", PLAIN):
        assert "change" not in identity(replace(RUN, change=change), TINY, data)
    assert identity(replace(RUN, change="jpeg"), TINY, data)["change"] == "jpeg"


def test_what_does_not_apply_is_not_planned() -> None:
    def planned(**changes) -> list[str]:
        return [run.change for run in script.plan(configured(Path(), **changes))]

    assert planned(models=("ViT",), pad=0) == [PLAIN, "jpeg", "decay", "normalisation", PLAIN, PLAIN]
    assert planned(factors=(PLAIN,), plain_seeds=2) == [PLAIN, PLAIN]
    assert planned(factors=("jpeg", "jpeg"), seeds=2, plain_seeds=2) == [PLAIN, "jpeg"] * 2


def test_a_change_that_diverges_is_a_result_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    real = Trainer.step

    def bad(self):
        loss = real(self)
        if self.run.change == "jpeg":
            self.pending[-1] = loss * float("nan")
        return loss

    monkeypatch.setattr(Trainer, "step", bad)
    script.main(configured(tmp_path, factors=("jpeg", "decay"), plain_seeds=1))
    out = capsys.readouterr().out
    assert re.search(r"jpeg +ResNet-40-seed0: the loss is nan at step 1\n", out)
    assert re.search(r"decay +0 +\d", out)


def test_a_damaged_curve_is_found_before_anything_trains(tmp_path: Path) -> None:
    path = tmp_path / "vit" / "scratch-factors" / "padding" / "ResNet-40-seed0.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": 1', encoding="utf-8")
    with pytest.raises(UserError, match=r"padding/ResNet-40-seed0.json"):
        script.main(configured(tmp_path))
    assert not (tmp_path / "vit" / "scratch-factors" / "plain").exists()


def curves_of(correct: dict[tuple[str, int], int]) -> dict[Run, Curve]:
    """Finished runs by change and seed, of which so many of 50 validation images and 30 of 50 others are right."""
    return {
        Run("ResNet", 40, seed, change=change): Curve(
            1, {"steps": 4}, True, 50, 50, [Validation(4, count)], Best(4, count, 30), [1.0] * 4
        )
        for (change, seed), count in correct.items()
    }


def test_noise_is_students_t_of_the_plain_seeds() -> None:
    assert "is not known" in script.noise_lines(curves_of({(PLAIN, 0): 25}))[0]
    # 50, 52, 54 %: deviation 2; t of 2 degrees of freedom 4.303; of a difference 4.303 * sqrt(2) * 2 = 12.2
    curves = curves_of({(PLAIN, 0): 25, (PLAIN, 1): 26, (PLAIN, 2): 27, ("jpeg", 0): 20})
    text = "\n".join(script.noise_lines(curves))
    assert "52.00% on average over 3 seeds, SD 2.00 points" in text
    assert "within 12.2 points of each other in the best validation and 6.1 on all test images" in text
    assert text.endswith("differences looked at: 1")


def test_several_seeds_of_a_factor_have_a_mean_and_an_error() -> None:
    # -4 and -2 of 100 images
    curves = curves_of({(PLAIN, 0): 25, (PLAIN, 1): 25, ("jpeg", 0): 21, ("jpeg", 1): 23})
    assert script.mean_lines(curves) == [
        "  jpeg           -3.00 points on all test images, standard error 1.00 over 2 seeds"
    ]
