"""`python -m shared.probe` on tiny images and a tiny network: what a user sees, and what stands in the files."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import Ridge

from shared import features, plots
from shared.features import Deferred
from shared.probe import __main__ as script
from shared.probe import head as heads

sys.path.insert(0, str(Path(__file__).parent))
import tiny_encoder


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Every model is the tiny network; its transform brings any image to 16 x 16."""

    def deferred(spec, choice, **settings):
        return Deferred(tiny_encoder.identity(), tiny_encoder.encoder)

    monkeypatch.setattr(features, "deferred", deferred)


def paint(path: Path, hue: int, seed: int, size: int = 16, mode: str = "RGB", noise: float = 12) -> None:
    """An image with noise around one colour."""
    rng = np.random.default_rng(seed)
    pixels = np.clip(rng.normal([hue, 255 - hue, 128], noise, (size, size, 3)), 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path)


def photos(folder: Path, counts: dict[str, int], first: int = 0) -> Path:
    """A folder per class with so many images."""
    for c, (name, count) in enumerate(counts.items()):
        for i in range(count):
            paint(folder / name / f"{name}-{i}.png", 60 * c, first + 1000 * c + i)
    return folder


def run(*arguments: object, code: int = 0, capsys=None) -> str:
    with pytest.raises(SystemExit) as end:
        script.main([str(a) for a in arguments])
    shown = capsys.readouterr() if capsys else None
    assert end.value.code == code, shown
    return (shown.out, shown.err) if shown else ""


def probe(data: Path, results: Path, *more: object, **options) -> dict:
    own = ("--model", "timm:tiny", "--results", results, "--device", "cpu", "--dtype", "fp32", "--no-figures")
    run("--data", data, *own, *more, **options)
    return json.loads((results / "probe" / "probe.json").read_text(encoding="utf-8"))


def test_a_folder_gives_a_table_files_and_figures(tmp_path, capsys):
    data = photos(tmp_path / "photos", {"red": 30, "green": 24, "blue": 6})
    out, _ = run(
        *("--data", data, "--model", "timm:tiny", "--results", tmp_path / "r", "--protocol", "all", "few-shot"),
        *("--protocol", "knn", "logistic", "--dtype", "fp32"),
        capsys=capsys,
    )
    result = json.loads((tmp_path / "r" / "probe" / "probe.json").read_text(encoding="utf-8"))
    (row,) = result["results"]["rows"]
    assert (row["train"], row["test"], row["names"]) == (48, 12, ["blue", "green", "red"])
    assert row["train_per_name"] == [5, 19, 24] and row["test_per_name"] == [1, 5, 6]
    its = row["protocols"]["all"]
    assert 0 < its["low"] < its["value"] <= its["high"] <= 1 and its["value"] > 0.6
    assert its["value"] == pytest.approx(np.average(its["per_name"], weights=row["test_per_name"]))
    assert its["balanced"] == pytest.approx(np.mean(its["per_name"])) and 0 <= its["ece"] <= 1
    assert set(row["protocols"]) == {"all", "few-shot", "knn", "logistic"} and row["protocols"]["knn"]["10"]
    assert len(row["protocols"]["few-shot"]["chosen"]["correct"]["5"]) == 5
    for words in ("accuracy [95 %]", "balanced", "10-shot", "20-NN", "logistic", "images/s", "squash to 16x16"):
        assert words in out, words
    assert "one split only: 20% of each class are tested, by seed 0" in out
    assert "12 test images: accuracies move by several points by chance" in out
    assert "10-shot: 1 of 3 classes have fewer images" in out
    (line,) = csv.DictReader((tmp_path / "r" / "probe" / "probe.csv").open(encoding="utf-8"))
    assert float(line["accuracy"]) == its["value"] and line["model"] == "tiny"
    figures = [figure["path"] for figure in result["figures"]]
    assert figures[0] == "figures/probe-models.png" and any("confusion" in name for name in figures)
    assert all((tmp_path / "r" / "probe" / name).is_file() for name in figures)
    matrix = list(csv.reader(next((tmp_path / "r" / "probe").glob("*-confusion.csv")).open(encoding="utf-8")))
    assert matrix[0] == ["class", "blue", "green", "red"] and sum(int(n) for line in matrix[1:] for n in line[1:]) == 12


def test_rows_are_added_over_runs_and_a_repeated_one_is_replaced(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plots, "save", lambda figure, path, *words: paint(path, 0, 0) or path)  # drawing takes seconds
    first = photos(tmp_path / "first", {"red": 8, "green": 8})
    second = photos(tmp_path / "second", {"red": 9, "green": 9}, first=50)
    probe(first, tmp_path / "r", "--figures", capsys=capsys)
    result = probe(second, tmp_path / "r", capsys=capsys)
    assert [row["data"] for row in result["results"]["rows"]] == ["first", "second"]
    kept = [figure["path"] for figure in result["figures"]]
    assert kept[0] == "figures/probe-models.png" and any("first" in name for name in kept)
    result = probe(first, tmp_path / "r", "--protocol", "all", capsys=capsys)
    assert [list(row["protocols"]) for row in result["results"]["rows"]] == [["all"], ["all", "few-shot", "knn"]]
    log = (tmp_path / "r" / "probe" / "probe.log").read_text(encoding="utf-8")
    assert "tiny (earlier)" in log
    other = photos(tmp_path / "elsewhere" / "first", {"red": 8, "green": 8}, first=90)
    result = probe(other, tmp_path / "r", capsys=capsys)
    assert [row["data"] for row in result["results"]["rows"]] == [str(first), "second", str(other)]


def test_a_saved_head_is_scikit_learns_ridge_and_answers(tmp_path, capsys, monkeypatch):
    data = photos(tmp_path / "photos", {"red": 20, "green": 12, "blue": 12})
    taken = {}
    extract = features.extract

    def kept(encoder, images, *arguments, **options):
        taken[len(images)] = extract(encoder, images, *arguments, **options), images.labels
        return taken[len(images)][0]

    monkeypatch.setattr(features, "extract", kept)
    path = tmp_path / "head.safetensors"
    result = probe(data, tmp_path / "r", "--save", path, capsys=capsys)
    (row,) = result["results"]["rows"]
    head = heads.load(path)
    rows, labels = taken[row["train"]]
    ridge = Ridge(alpha=row["protocols"]["all"]["lambda"]).fit(
        rows.astype(np.float64), np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    )
    queries, truth = taken[row["test"]]
    expected = ridge.predict(queries.astype(np.float64))
    assert np.abs(head.scores(queries) - expected).max() < 1e-6
    assert row["protocols"]["all"]["value"] == (expected.argmax(1) == truth).mean()

    image = data / "red" / "red-0.png"
    out, _ = run("predict", path, image, data / "green", "--device", "cpu", "--dtype", "fp32", capsys=capsys)
    lines = [line.split() for line in out.splitlines()]
    assert len(lines) == 14 and lines[0][:3] == ["file", "class", "1"] and lines[1][:2] == [str(image), "red"]
    run("predict", path, data / "green", "--output", tmp_path / "out.csv", "--top", 1, "--dtype", "fp32", capsys=capsys)
    answered = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8")))
    assert len(answered) == 12 and 0 < float(answered[0]["probability"]) <= 1

    monkeypatch.setattr(
        features, "deferred", lambda *a, **o: Deferred(tiny_encoder.identity("1" * 64), tiny_encoder.encoder)
    )
    _, err = run("predict", path, image, code=2, capsys=capsys)
    assert "was trained on tiny with weights_sha256 000" in err and err.count("\n") == 1


def test_copies_across_splits_are_named_and_left_out(tmp_path, capsys):
    data = tmp_path / "photos"
    photos(data / "train", {"red": 10, "green": 10})
    photos(data / "test", {"red": 4, "green": 4}, first=500)
    (data / "train" / "red" / "copy.png").write_bytes((data / "test" / "red" / "red-1.png").read_bytes())
    paint(data / "test" / "green" / "green-2.png", 60, 9, noise=80)
    with Image.open(data / "test" / "green" / "green-2.png") as image:
        image.point(lambda value: min(255, value + 4)).save(data / "train" / "green" / "nearly.bmp")
    probe(data, tmp_path / "r", capsys=capsys)
    (row,) = json.loads((tmp_path / "r" / "probe" / "probe.json").read_text(encoding="utf-8"))["results"]["rows"]
    assert row["train"] == 21
    assert any(
        "train/red/copy.png = " in line and "test/red/red-1.png" in line and "left out" in line
        for line in row["warnings"]
    )
    assert any("train/green/nearly.bmp ~ " in line and "test/green/green-2.png" in line for line in row["warnings"])
    result = probe(
        data,
        tmp_path / "r",
        *("--duplicates", "keep", "--near-duplicates", "never", "--select", "split"),
        capsys=capsys,
    )
    (row,) = result["results"]["rows"]
    assert row["protocols"]["all"]["select"] == "accuracy on 20% of the training images"
    assert row["train"] == 22 and not any("~" in line for line in row["warnings"])


def test_a_class_of_one_an_empty_one_a_bad_file_and_odd_names_are_used_or_said(tmp_path, capsys):
    data = photos(tmp_path / "photos", {"köter 犬": 12, "katze": 11, "single": 1})
    (data / "empty").mkdir()
    (data / "katze" / "bad.jpg").write_bytes(b"no image")
    paint(data / "katze" / "grey.png", 60, 7, mode="L")
    paint(data / "katze" / "palette.png", 60, 8, mode="P")
    paint(data / "katze" / "large.png", 60, 9, size=300)
    _, err = run("--data", data, "--model", "timm:tiny", "--results", tmp_path / "r", code=2, capsys=capsys)
    assert "bad.jpg" in err and err.splitlines()[-1].startswith("error: ")
    result = probe(data, tmp_path / "r", "--skip-bad", capsys=capsys)
    (row,) = result["results"]["rows"]
    assert row["names"] == ["katze", "köter 犬", "single"] and row["train_per_name"] == [11, 10, 1]
    said = " ".join(row["warnings"])
    assert "bad.jpg" in said and "uneven classes: katze has 11 training images, single has 1" in said
    log = (tmp_path / "r" / "probe" / "probe.log").read_text(encoding="utf-8")
    assert "class folders without an image, left out: empty" in log


def test_a_list_of_labels_and_one_of_numbers(tmp_path, capsys):
    rng = np.random.default_rng(0)
    hues = rng.integers(0, 256, 60)
    for i, hue in enumerate(hues.tolist()):
        paint(tmp_path / "images" / f"{i}.png", hue, i)
    lines = [
        f"{i}.png,{'warm' if h > 128 else 'cold'}{';strong' if abs(h - 128) > 60 else ''}" for i, h in enumerate(hues)
    ]
    (tmp_path / "several.csv").write_text("file,target\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "numbers.csv").write_text(
        "file;target;split\n"
        + "\n".join(f"{i}.png;{h / 255};{'val' if i % 4 == 0 else 'train'}" for i, h in enumerate(hues)),
        encoding="utf-8",
    )
    result = probe(tmp_path / "images", tmp_path / "r", "--labels", tmp_path / "several.csv", capsys=capsys)
    (row,) = result["results"]["rows"]
    assert row["names"] == ["cold", "strong", "warm"] and row["protocols"]["all"]["measure"] == "mAP"
    assert 0.6 < row["protocols"]["all"]["value"] <= row["protocols"]["all"]["high"] <= 1
    path = tmp_path / "head.safetensors"
    options = ("--labels", tmp_path / "numbers.csv", "--save", path, "--name", "n")
    run("--data", tmp_path / "images", "--model", "timm:tiny", "--results", tmp_path / "r", *options, capsys=capsys)
    (row,) = json.loads((tmp_path / "r" / "probe" / "n.json").read_text(encoding="utf-8"))["results"]["rows"]
    assert (row["train"], row["test"], row["split"]) == (45, 15, "train/val")
    assert row["protocols"]["all"]["measure"] == "R2" and row["protocols"]["all"]["value"] > 0.5
    out, _ = run("predict", path, tmp_path / "images" / "0.png", capsys=capsys)
    assert abs(float(out.split()[-1]) - hues[0] / 255) < 0.3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--data is missing"),
        (["--data", "digits"], "--model is missing"),
        (["--data", "nowhere/at all", "--model", "timm:tiny"], "no such folder or file"),
        (["--data", "digits", "--model", "timm:tiny", "--protocol", "svm"], "--protocol svm: expected all, few-shot"),
        (["--data", "digits", "--model", "timm:tiny", "--test-share", "1"], "--test-share 1: expected a share"),
        (["--data", "digits", "--model", "timm:tiny", "--shots", "0"], "--shots 0: expected whole numbers from 1"),
        (["--data", "digits", "--model", "timm:tiny", "--lambdas", "0"], "--lambdas 0: expected numbers above 0"),
        (["--data", "digits", "digits", "--model", "timm:tiny"], "digits is named twice"),
        (["--data", "digits", "--model", "timm:tiny", "--task", "number"], "targets stand in a list of files"),
        (["--data", "digits", "--model", "timm:tiny", "--labels", "no.csv"], "--labels no.csv: no such list"),
        (["--data", "digits", "--model", "a", "b", "--save", "x"], "--save x: needs one model"),
        (["--data", "digits", "--model", "timm:tiny", "--name", "a/b"], "--name 'a/b': expected a short plain name"),
        (["--data", "digits", "--model", "a", "--save", "/proc/x/h"], "--save /proc/x/h: cannot be written"),
        (["predict"], "name a saved probe and images"),
        (["predict", "no.safetensors", "a.png"], "no.safetensors: no such head"),
        (["predict", __file__, "a.png"], "not a probe's head"),
    ],
)
def test_a_mistake_is_one_line(arguments, says, tmp_path, capsys):
    more = [] if "predict" in arguments else ["--results", tmp_path]
    _, err = run(*arguments, *more, code=2, capsys=capsys)
    last = err.splitlines()[-1]
    assert last.startswith("error: ") and says in last and "Traceback" not in err
