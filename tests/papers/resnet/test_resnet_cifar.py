"""Section 4.2 trained: the paper's schedule, split, mean, shortcuts and warm-up; kill and resume; what is judged."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv

from papers.resnet import architectures, networks
from papers.resnet import resnet_cifar as script
from papers.resnet.resnet_cifar import PAPER, Config, Curve, Experiment, Point, Recipe, Run, Trainer, departure
from shared import published
from shared.cli import read_config
from shared.data import load_images
from shared.errors import UserError
from shared.paths import ROOT
from shared.record import Record
from shared.training import experiment
from shared.training.stream import TrainingData, arrays_of, draw_augmentation, keep_apart
from shared.training.trainer import train
from shared.verdict import judge

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")
TINY = Recipe(steps=12, drops=(4, 8), batch=8, pad=1, validation=50, every=3, image_size=8)
OPTIONS = {
    "data": "digits",
    "image_size": 8,
    "pad": 1,
    "models": ("ResNet-8", "plain-8"),
    "steps": 12,
    "drops": (4, 8),
    "batch": 8,
    "validation": 50,
    "every": 3,
    "variant": "float32",
    "threads": 1,
    "device": "cpu",
    "estimate": False,
}


@pytest.fixture(scope="module")
def data() -> TrainingData:
    train_part, test = (arrays_of(load_images("digits", split), 8) for split in ("train", "test"))
    return keep_apart(train_part, test.take(np.arange(60)), 50, CPU)


def configured(results: Path, **changes) -> Config:
    return Config(**OPTIONS | {"results": results} | changes)


def test_the_schedule_is_the_papers() -> None:
    rates = {step: PAPER.rate(step) for step in (0, 31_999, 32_000, 47_999, 48_000, 63_999)}
    assert rates == pytest.approx(dict(zip(rates, (0.1, 0.1, 0.01, 0.01, 0.001, 0.001), strict=True)))
    assert PAPER.validates(64_000) and PAPER.validates(1_000) and not PAPER.validates(1_001)


def test_the_printed_settings_are_those_of_the_recipe(data: TrainingData) -> None:
    """As if the images were CIFAR-10's: counts and recipe print as section 4.2 has them."""
    text = published.load("resnet", "text")
    sizes = {"train": 45_000, "validation": 5_000, "held_out": 10_000}
    parts = {name: [None] * count for name, count in sizes.items()}
    plan = Experiment(runs=[Run("ResNet-110")], recipe=PAPER, device=CPU, folder=Path(), data=replace(data, **parts))
    found = {id: judge(text[id], value).verdict for id, value in script.settings(plan).items()}
    assert len(found) == 16 and set(found.values()) == {"equal"}


def test_the_split_is_kept_apart_and_the_same_for_every_seed(data: TrainingData) -> None:
    every = arrays_of(load_images("digits", "train"), 8)
    assert len(data.train) + len(data.validation) == len(every)
    assert data.validation.labels.bincount().tolist() == [5] * 10
    seen = {image.numpy().tobytes() for image in data.train.images}
    assert sum(image.numpy().tobytes() in seen for image in data.validation.images) == 0
    one, other = (script.identity(Run("ResNet-8", seed), TINY, data) for seed in (0, 1))
    assert {key for key in one if one[key] != other[key]} == {"seed"}
    assert {"train_sha256", "validation_sha256", "held_out_sha256"} <= set(one)
    whole = keep_apart(every, data.held_out, 0, CPU)
    assert len(whole.train) == len(every) and len(whole.validation) == 0
    with pytest.raises(UserError, match="leaves no image to train on"):
        keep_apart(data.validation, data.held_out, 50, CPU)


def test_the_mean_of_each_pixel_is_subtracted_before_zeros_are_padded(data: TrainingData) -> None:
    images = data.train.images.double().numpy() / 255
    np.testing.assert_allclose(data.mean, images.mean(0), atol=1e-7)
    ours, draws = Trainer(Run("ResNet-8"), TINY, data, CPU), draw_augmentation(0, 8, 0, 1)
    got = ours.inputs(data.train.images[:8], draws)
    for i in range(8):
        padded = tv.pad(torch.from_numpy(images[i] - images.mean(0)), [1], fill=0)
        crop = tv.crop(padded, int(draws.top[i]), int(draws.left[i]), 8, 8)
        torch.testing.assert_close(got[i].double(), tv.hflip(crop) if draws.flip[i] else crop, rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", ["ResNet-20", "plain-20"])
def test_what_is_trained_is_the_papers_network(model: str, data: TrainingData) -> None:
    ours = Trainer(Run(model), TINY, data, CPU)
    kinds = [type(block.shortcut).__name__ for stage in ours.model.stages for block in stage]
    grows = "Pad" if model == "ResNet-20" else "NoneType"
    same = "Identity" if model == "ResNet-20" else "NoneType"
    assert kinds == [same] * 3 + [grows, same, same] * 2
    assert sum(p.numel() for p in ours.model.parameters()) == architectures.parameters(architectures.cifar(20))
    first = networks.initialise(networks.build(script.network(model)), 0)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), ours.model.parameters(), strict=True))
    (group,) = ours.optimizer.param_groups  # every parameter decays
    assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.9, 0.0001, False)
    assert len(group["params"]) == len(list(ours.model.parameters()))


def test_the_optimiser_is_plain_sgd(data: TrainingData) -> None:
    """The fused one takes the steps of the textbook one, by the same gradients, at the paper's learning rates."""
    ours, textbook = (Trainer(Run("ResNet-8"), TINY, data, CPU) for _ in range(2))
    parameters = list(textbook.model.parameters())
    plain = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.0001, foreach=False)
    for step in range(6):
        plain.param_groups[0]["lr"] = TINY.rate(step)
        ours.step()
        for theirs, own in zip(parameters, ours.model.parameters(), strict=True):
            theirs.grad = own.grad.clone()
        plain.step()
        for theirs, own in zip(parameters, ours.model.parameters(), strict=True):
            torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-6)  # float32 rounding of a few steps


def said(wrong: int, of: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of a batch with so many wrong answers."""
    labels = torch.zeros(of, dtype=torch.int64)
    return torch.eye(2)[(torch.arange(of) < wrong).long()], labels


def test_a_deep_network_is_warmed_up_until_enough_is_right(data: TrainingData, monkeypatch) -> None:
    monkeypatch.setattr(script, "WINDOW", 3)
    assert Trainer(Run("ResNet-56"), TINY, data, CPU).rate() == 0.1
    ours = Trainer(Run("plain-110"), TINY, data, CPU)
    for wrong, rate in ((7, 0.01), (8, 0.01), (8, 0.01), (7, 0.01), (4, 0.1), (8, 0.1)):
        ours.done += 1  # updates 2 to 4 are 96 % wrong, updates 3 to 5 are 79 %
        ours.observe(*said(wrong))
        assert ours.rate() == (rate if rate == 0.01 else TINY.rate(ours.done)), ours.done
    assert ours.warmup == 5 and int(ours.wrong) == 42


def stopped(trainer: Trainer, folder: Path, after: int) -> None:
    fetch = trainer.fetch

    def stopping(checkpoint: str) -> float:
        if trainer.done == after:
            raise KeyboardInterrupt
        return fetch(checkpoint)

    trainer.fetch = stopping
    with pytest.raises(KeyboardInterrupt):
        train(trainer, folder)


def test_a_stop_in_the_warm_up_changes_nothing(data: TrainingData, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(script, "WARMED", 8)
    monkeypatch.setattr(script, "WINDOW", 5)
    run, recipe = Run("ResNet-8"), replace(TINY, warmup_below=101)  # it ends as soon as five updates are known
    whole = train(Trainer(run, recipe, data, CPU), tmp_path / "whole")
    for after in (2, 4, 7):  # before the first checkpoint, in the warm-up, after it
        stopped(Trainer(run, recipe, data, CPU), tmp_path / "parts", after)
    assert train(Trainer(run, recipe, data, CPU), tmp_path / "parts") == whole
    files = [run.curve_file(tmp_path / name).read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1] and whole.warmup == 5 and Curve.read(run.curve_file(tmp_path / "whole")) == whole


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    results = tmp_path_factory.mktemp("cifar")
    script.main(configured(results))
    return results


def test_killed_and_started_again_ends_with_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    options = [f"--{key.replace('_', '-')}" for key in OPTIONS]
    words = [
        [option, *map(str, v)] if isinstance(v, tuple) else [option, str(v)]
        for option, v in zip(options, OPTIONS.values(), strict=True)
    ]
    flat = [w for pair in words[:-1] for w in pair] + ["--no-estimate", "--results", str(tmp_path)]
    launch = [sys.executable, str(ROOT / "papers" / "resnet" / "resnet_cifar.py"), *flat]
    process = subprocess.Popen(launch, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    curve, until = tmp_path / "resnet" / "cifar" / "ResNet-8-seed0.json", time.monotonic() + 120
    while not curve.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert curve.exists() and not (tmp_path / "resnet" / "cifar.json").exists()
    script.main(configured(tmp_path))
    for name in ("ResNet-8-seed0.json", "plain-8-seed0.json"):
        one, other = (folder / "resnet" / "cifar" / name for folder in (finished, tmp_path))
        assert one.read_bytes() == other.read_bytes()


def test_the_record_of_other_images_judges_nothing(finished: Path) -> None:
    result = Record.load(finished / "resnet" / "cifar.json")
    log = (finished / "resnet" / "cifar.log").read_text(encoding="utf-8")
    assert result["verdicts"] == [] and len(result["figures"]) == 1 and "embedded digits" in log
    assert "ResNet-8" in log and result["provenance"]["runs"][0]["path"] == "cifar/ResNet-8-seed0.json"
    assert all("sha256" in key for key in result["results"]["runs"]["ResNet-8-seed0"]["images_sha256"])


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        (PAPER, None),
        (replace(PAPER, every=500, validation=0), None),
        (replace(PAPER, steps=8_000, drops=(4_000, 6_000)), "a short run: 8,000 updates in place of 64,000"),
        (replace(PAPER, steps=8_000, drops=(4_000, 7_000)), r"another recipe \(steps 8000, drops"),
        (replace(PAPER, batch=256), r"another recipe \(batch 256\)"),
        (replace(PAPER, validation=1_000), r"another recipe \(validation 1000\)"),
    ],
)
def test_what_may_be_compared(recipe: Recipe, why: str | None) -> None:
    found = departure("cifar10", None, recipe)
    assert found is None if why is None else re.match(why, found)


def test_other_images_may_not_be_compared() -> None:
    assert departure("cifar100", None, PAPER) == "other images (cifar100)"
    assert "CIFAR-10's test split" in departure("cifar10", None, PAPER, "0" * 64)


def curve_of(run: Run, wrong: int, recipe: Recipe = PAPER) -> Curve:
    """A finished run that named `wrong` of 10,000 test images wrongly."""
    who = {"model": run.model, "seed": run.seed, "variant": run.variant, "steps": recipe.steps}
    return Curve(1, who, True, 0, 5_000, 10_000, [Point(recipe.steps, 0.1, 128_000, 1_000, 450, wrong)])


def verdicts(wrong: dict[str, list[int]], data: TrainingData, why: str | None = None) -> dict:
    plan = Experiment(runs=[Run(m) for m in wrong], recipe=PAPER, device=CPU, folder=Path("cifar"), data=data)
    repeats = {m: [curve_of(Run(m, seed), count) for seed, count in enumerate(counts)] for m, counts in wrong.items()}
    record = Record("resnet", "cifar", quiet=True)
    numbers = script.measured(repeats, plan, why)
    for table in script.answered(list(wrong), numbers, why):
        record.judge_all(table, numbers, script.why_not_run)
    return {v.id: v for v in record.verdicts}


def test_the_error_is_judged_with_its_binomial_term_and_the_seeds_spread(data: TrainingData) -> None:
    found = verdicts({"ResNet-20": [900, 880, 920], "plain-20": [950]}, data)
    v = found["ResNet-20/error"]
    assert v.verdict == "agrees" and v.difference == pytest.approx(0.25) and v.measured_std == pytest.approx(0.2)
    assert set(v.tolerance_terms) == {"rounding", "measured spread", "binomial"}
    p = 0.5 * (0.0875 + 0.09)
    assert v.tolerance == pytest.approx(0.005 + 2 * (1e4 * p * (1 - p) * 2e-4 + 0.2**2 / 3) ** 0.5)
    assert verdicts({"ResNet-20": [1000]}, data)["ResNet-20/error"].verdict == "differs"
    assert found["ResNet-56/error"].verdict == "not run" and "--models" in found["ResNet-56/error"].reason
    assert not any(id.startswith(("Maxout", "plain-20")) for id in found)


def test_a_short_run_is_never_judged(data: TrainingData) -> None:
    why = departure("cifar10", None, replace(PAPER, steps=8_000, drops=(4_000, 6_000)))
    found = verdicts({"ResNet-20": [875], "plain-20": [1_000]}, data, why)
    assert {id: v.verdict for id, v in found.items()} == {"ResNet-20/error": "not comparable"}


def test_of_110_layers_the_best_of_five_is_judged_and_the_mean(data: TrainingData) -> None:
    few = verdicts({"ResNet-110": [650, 660]}, data)
    assert few["ResNet-110/error"].verdict == "not run" and few["ResNet-110/mean"].verdict == "agrees"
    five = verdicts({"ResNet-110": [643, 650, 660, 670, 680]}, data)
    assert five["ResNet-110/error"].verdict == "equal" and five["ResNet-110/mean"].measured == "6.61"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ("ResNet-21",)}, "a depth is 6n"),
        ({"models": ("VGG-16",)}, "--models VGG-16: expected ResNet-N or plain-N"),
        ({"models": ("plain-8", "plain-8")}, "each once"),
        ({"drops": (8, 4)}, "--drops 8 4: must rise"),
        ({"drops": (4, 12)}, "--drops 4 12: must rise, between 0 and --steps 12"),
        ({"image_size": 6}, "--image-size 6: must be a multiple of 4"),
        ({"until": 4}, "--until 4: must be a multiple of --every 3"),
        ({"batch": 1}, "--batch 1: must be at least 2"),
    ],
)
def test_bad_values_are_one_line(changes: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        script.main(configured(tmp_path, **changes))


def test_configurations_load() -> None:
    folder = ROOT / "configs" / "resnet"
    full, short = (read_config(Config, folder / f"{name}.toml") for name in ("cifar", "cifar-short"))
    assert (full.steps, full.drops, full.seeds) == (PAPER.steps, PAPER.drops, 1)
    assert (short.steps, short.drops, short.seeds) == (8_000, (4_000, 6_000), 3)
    assert 8 * short.steps == full.steps and [8 * drop for drop in short.drops] == list(full.drops)


@pytest.mark.parametrize(
    ("unit", "compiler", "variant"),
    [
        ("AMX", True, "bf16-compiled"),
        (None, True, "float32-compiled"),
        ("AVX512-BF16", False, "bf16"),
        (None, False, "float32"),
    ],
)
def test_the_arithmetic_is_what_the_processor_has(unit, compiler, variant, monkeypatch) -> None:
    def none_found(option: str) -> None:
        raise UserError(option)

    monkeypatch.setattr("shared.device.bf16_unit", lambda: (unit, f"unit {unit}"))
    monkeypatch.setattr(experiment, "require_compiler", (lambda option: None) if compiler else none_found)
    choice, found = experiment.arithmetic("auto", "cpu", training=True)
    assert found == variant and f"unit {unit}" in choice.reason and "C++ compiler" in choice.reason
    assert experiment.arithmetic("float32", "cpu", training=True)[1] == "float32"
