"""The scripts as a user starts them: what they write, what they refuse, kills and ranks."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from papers.vit import vit_part4_scratch as script
from papers.vit import vit_part4_scratch_curves as curves_script
from shared.cli import parse, read_config
from shared.errors import UserError
from shared.paths import ROOT
from shared.training.experiment import only_start

TINY = {
    "data": "digits",
    "image_size": 8,
    "sizes": (20, 40),
    "steps": 6,
    "warmup": 1,
    "batch": 16,
    "validation": 50,
    "every": 3,
    "threads": 1,
    "device": "cpu",
}


def configured(results: Path, **changes) -> script.Config:
    return script.Config(**TINY | {"results": results, "estimate": False} | changes)


def command(results: Path, *more: str) -> list[str]:
    flags = [str(ROOT / "papers" / "vit" / "vit_part4_scratch.py"), "--results", str(results), "--no-estimate"]
    for key, value in TINY.items():
        values = [str(v) for v in value] if isinstance(value, tuple) else [str(value)]
        flags += [f"--{key.replace('_', '-')}", *values]
    return [*flags, *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a tiny run of everything."""
    results = tmp_path_factory.mktemp("scratch")
    script.main(configured(results))
    return results


def curve_files(results: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (results / "vit" / "scratch").glob("*.json") if "machine" not in p.name}


def test_results_say_where_they_come_from(finished: Path) -> None:
    result = json.loads((finished / "vit" / "scratch.json").read_text(encoding="utf-8"))
    assert set(result["results"]["runs"]) == {f"{m}-{n}-seed0" for m in ("ViT", "ResNet") for n in (20, 40)}
    assert result["provenance"]["dtype"] == "float32" and result["provenance"]["data"][0]["stand_in"]
    run = result["results"]["runs"]["ViT-20-seed0"]
    assert run["starts"][0]["to_step"] == 6 and len(run["images_sha256"]["train_sha256"]) == 64
    # the embedded digits are no CIFAR-10, and the recipe is shorter
    assert {v["verdict"] for v in result["verdicts"]} <= {"not comparable", "not run"}
    log = (finished / "vit" / "scratch.log").read_text(encoding="utf-8")
    assert "digits from scratch" in log and "the other 450 test images" in log


def test_a_second_start_reads_what_is_finished(finished: Path, capsys: pytest.CaptureFixture) -> None:
    before = curve_files(finished)
    script.main(configured(finished))
    assert "4 of 4 runs were found finished" in capsys.readouterr().out and curve_files(finished) == before


def test_no_train_judges_what_is_there(finished: Path, capsys: pytest.CaptureFixture) -> None:
    record = script.main(configured(finished, train=False, sizes=(20, 40, 80)))
    assert "ViT-80-seed0                 not run" in capsys.readouterr().out and len(record.results["runs"]) == 4


def test_until_stops_and_the_same_command_without_it_goes_on(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    one = {"models": ("ResNet",), "sizes": (20,)}
    result = tmp_path / "vit" / "scratch.json"
    for until in (3, 3, 6):  # the second time nothing is left to do; 6 is the end
        if until == 6:
            assert not result.exists()  # a start that stops early replaces no result
            (tmp_path / "vit" / "scratch" / "checkpoints" / "ResNet-20-seed0.ckpt").rename(tmp_path / "away")
            # without its checkpoint a curve that went so far is not begun anew
            assert script.main(configured(tmp_path, **one, until=3)) is None
            (tmp_path / "away").rename(tmp_path / "vit" / "scratch" / "checkpoints" / "ResNet-20-seed0.ckpt")
            script.main(configured(tmp_path, **one, until=6))
        else:
            assert script.main(configured(tmp_path, **one, until=until)) is None
            said = " ".join(capsys.readouterr().out.split())
            assert "ResNet-20-seed0 not finished: step 3 of 6" in said and "without --until goes on" in said
    assert result.exists()
    assert curve_files(tmp_path)["ResNet-20-seed0.json"] == curve_files(finished)["ResNet-20-seed0.json"]


def test_compiling_without_a_compiler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder, exc

    def none_found() -> str:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none_found)
    with pytest.raises(UserError, match=r"--variant bf16-compiled: compiling needs a C\+\+ compiler .* install g\+\+"):
        script.main(configured(tmp_path, variant="bf16-compiled"))


def test_another_recipe_in_the_same_folder_is_refused(finished: Path) -> None:
    with pytest.raises(UserError, match=r"belongs to another run \(steps is 6, asked for 9\)"):
        script.main(configured(finished, steps=9))


def test_the_estimate_leaves_the_runs_alone(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    script.main(configured(tmp_path, estimate=True, models=("ResNet",), sizes=(20,)))
    assert "for 1 run of 6 steps (20 steps timed)" in capsys.readouterr().err
    name = "ResNet-20-seed0.json"
    assert curve_files(tmp_path)[name] == curve_files(finished)[name]


def test_curves_of_the_run(finished: Path, capsys: pytest.CaptureFixture) -> None:
    record = curves_script.main(curves_script.Config(results=finished))
    out = capsys.readouterr().out
    assert "      20 images  ViT    step 3: " in out and "0.99 of the old value" in out
    assert (record.figures_dir / "scratch-curves.svg").exists()


def test_seeds_are_repeats_with_a_spread(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    script.main(configured(tmp_path, seeds=2, sizes=(20,), steps=1, warmup=0, every=1))
    assert "over 2 seeds" in capsys.readouterr().out
    first, second = (json.loads(v) for k, v in sorted(curve_files(tmp_path).items()) if k.startswith("ViT"))
    assert first["identity"]["train_sha256"] != second["identity"]["train_sha256"]
    assert first["identity"]["validation_sha256"] == second["identity"]["validation_sha256"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ("VGG",)}, "--models VGG: choose from ViT, ResNet"),
        ({"sizes": (25,)}, "size 25 does not divide into 10 classes"),
        ({"sizes": (5000,)}, "500 images per class are asked for"),
        ({"validation": 0}, "--validation 0: must be at least 1"),
        ({"validation": 7}, "--validation 7 does not divide into 10 classes of equal count; use a multiple of 10"),
        ({"validation": 500}, "--validation 500 leaves none of 500 test images held out"),
        ({"threads": -1}, "--threads -1: must be at least 0"),
        ({"batch": 1}, "--batch 1: must be at least 2"),
        ({"test_split": "train"}, "--test-split train: images that are trained on cannot validate"),
        ({"image_size": -8}, "image size -8 must be a multiple"),
        ({"warmup": 7}, "--warmup 7: must lie between 0 and --steps 6"),
        ({"until": 4}, "--until 4: must be a step with a validation, a multiple of --every 3 up to --steps 6"),
        ({"until": 9}, "--until 9: must be a step with a validation"),
        ({"image_size": 10}, "image size 10 must be a multiple"),
        ({"experiment": "../x"}, "expected a short plain name"),
        ({"data": "/nowhere"}, "/nowhere"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        script.main(configured(tmp_path, **changes))


def test_a_missing_class_is_named(tmp_path: Path) -> None:
    from PIL import Image

    for split, counts in (("train", {"cat": 4, "sea lion": 1}), ("test", {"cat": 3, "sea lion": 3})):
        for name, count in counts.items():
            (tmp_path / "data" / split / name).mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (8, 8), (20 * i, 0, 0)).save(tmp_path / "data" / split / name / f"{i}.png")
    with pytest.raises(UserError, match=r"size 4: 2 images per class are asked for, class sea[ _]lion has 1"):
        script.main(configured(tmp_path / "out", data=str(tmp_path / "data"), sizes=(4,), validation=2))


def test_ranks_without_torchrun_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="WORLD_SIZE=2: RANK is not set"):
        script.main(configured(tmp_path))


@pytest.mark.parametrize("note", ["", '{"schema": 1}', '{"schema": 1, "starts": [{"seconds": "3"}]}', "[]"])
def test_a_damaged_note_of_the_machine_is_found_before_anything_trains(tmp_path: Path, note: str) -> None:
    path = tmp_path / "vit" / "scratch" / "ResNet-40-seed0.machine.json"
    path.parent.mkdir(parents=True)
    path.write_text(note, encoding="utf-8")
    with pytest.raises(UserError, match=r"ResNet-40-seed0.machine.json: .*only the times of the run are lost"):
        script.main(configured(tmp_path))
    assert not curve_files(tmp_path)


def test_a_run_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "scratch").write_text("a file", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot be written .* name another folder with --results"):
        script.main(configured(tmp_path))


def test_seeds_of_which_some_are_missing_keep_their_numbers(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    tiny = {"seeds": 2, "sizes": (20,), "steps": 1, "warmup": 0, "every": 1}
    script.main(configured(tmp_path, **tiny))
    (tmp_path / "vit" / "scratch" / "ViT-20-seed0.json").unlink()
    (tmp_path / "vit" / "scratch" / "ResNet-20-seed1.json").unlink()
    capsys.readouterr()
    script.main(configured(tmp_path, **tiny, train=False))
    out = capsys.readouterr().out
    rows = [line.split()[1:3] for line in out.splitlines() if line.startswith("        20  ") and "%" in line]
    assert ["ViT", "1"] in rows and ["ResNet", "0"] in rows
    assert "gap" not in out.partition("how sure the gap is")[2].partition("runs ==")[0].replace("how sure", "")
    assert "a point is one run" in out


def test_a_second_start_at_once_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "vit" / "scratch"
    with (
        only_start(folder),
        pytest.raises(UserError, match=f"another start .process {os.getpid()}. is training"),
    ):
        script.main(configured(tmp_path))
    script.main(configured(tmp_path, models=("ResNet",), sizes=(20,), steps=1, warmup=0, every=1))


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def resnets(results: Path) -> dict[str, bytes]:
    """The ResNet's curves: processes of their own train only it, because importing transformers takes seconds."""
    return {name: content for name, content in curve_files(results).items() if name.startswith("ResNet")}


def test_killed_and_started_again_ends_with_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    launch = [sys.executable, *command(tmp_path, "--models", "ResNet")]
    process = subprocess.Popen(launch, env=environment(), stdout=subprocess.DEVNULL)
    curve = tmp_path / "vit" / "scratch" / "ResNet-20-seed0.json"
    until = time.monotonic() + 120
    while not curve.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert curve.exists() and not (tmp_path / "vit" / "scratch.json").exists()
    script.main(configured(tmp_path, models=("ResNet",)))
    assert curve_files(tmp_path) == resnets(finished)


def test_two_ranks_give_what_one_gives(finished: Path, tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, *command(tmp_path, "--models", "ResNet")],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert curve_files(tmp_path) == resnets(finished)
    assert done.stdout.count("== Section 4.3 in miniature") == 1  # one rank tells the story


def test_the_command_line_is_frozen() -> None:
    assert [f.name for f in dataclasses.fields(script.Config)] == [
        "data_root",
        "label",
        "image",
        "split",
        "test_split",
        "config",
        "results",
        "strict",
        "show_equal",
        "experiment",
        "data",
        "models",
        "sizes",
        "seeds",
        "factors",
        "plain_seeds",
        "steps",
        "warmup",
        "batch",
        "validation",
        "every",
        "image_size",
        "pad",
        "variant",
        "device",
        "threads",
        "estimate",
        "until",
        "figures",
        "train",
    ]
    config = parse(script.Config, ["--sizes", "100", "200", "--models", "ViT", "--no-train", "--variant", "bf16"])
    assert config.sizes == (100, 200) and config.models == ("ViT",) and not config.train


def test_the_defaults_are_the_articles_recipe_and_configurations_load() -> None:
    from papers.vit.part4.runs import Recipe

    defaults, article = script.Config(), Recipe()
    assert all(
        getattr(defaults, key) == getattr(article, key)
        for key in ("steps", "warmup", "batch", "validation", "every", "image_size", "pad")
    )
    demo = read_config(script.Config, ROOT / "configs" / "vit" / "scratch-demo.toml")
    assert demo.data == "digits" and len(demo.sizes) == 2
    assert read_config(script.Config, ROOT / "configs" / "vit" / "scratch.toml").sizes == defaults.sizes
