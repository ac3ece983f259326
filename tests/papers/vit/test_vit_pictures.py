"""The images script shows what a few-shot result used, and refuses other images."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from papers.vit import vit_part4_fewshot as fewshot
from papers.vit import vit_part4_pictures as script
from papers.vit.part4 import accuracy
from shared import plots, published
from shared.errors import UserError
from shared.record import Record

COLOURS = {"british shorthair": (200, 40, 40), "pug": (40, 200, 40), "shiba inu": (40, 40, 200)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Images of one colour per class, none like another."""
    root, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for part, count in (("train", 8), ("test", 3)):
        for name, colour in COLOURS.items():
            (root / "breeds" / part / name.replace(" ", "_")).mkdir(parents=True)
            for i in range(count):
                pixels = np.clip(rng.normal(colour, 8, (12, 10, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / "breeds" / part / name.replace(" ", "_") / f"{i}.png")
    return root / "breeds"


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory) -> Path:
    """A few-shot result over `folder`, the network a fake."""
    from shared import features, models

    identity = SimpleNamespace(
        name="fake", dim=360, preprocessing="none", revision="r", weights_sha256="0" * 64, stand_in="a fake network"
    )
    identity.transform_from = ""
    root = tmp_path_factory.mktemp("made")
    sizes = {"pool": 4, "selection": 2, "shots": (1, 4), "draws": 3, "big_vision_shots": (1, 4)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "deferred", lambda *a, **o: SimpleNamespace(identity=identity))
        patch.setattr(
            features,
            "extract",
            lambda e, images, choice, **how: images.arrays().reshape(len(images), -1).astype(np.float32),
        )
        patch.setattr(models, "computed_in", lambda identity, choice: choice)
        fewshot.main(
            fewshot.Config(
                models=("wheel:fake",), data=(str(folder),), results=root, device="cpu", experiment="fewshot-toy",
                **sizes,
            )
        )  # fmt: skip
    return root


@pytest.fixture
def results(made, tmp_path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(made / "vit", tmp_path / "vit")
    return tmp_path


@pytest.fixture
def config(results) -> script.Config:
    return script.Config(result="fewshot-toy", data="breeds", results=results)


def test_the_sheet_shows_the_draw_of_the_result_and_the_figures_are_the_same_bytes_again(config, results):
    script.main(config)
    folder = results / "vit" / "figures"
    rows = json.loads((results / "vit" / "fewshot-toy.json").read_text(encoding="utf-8"))["results"]["data"]["breeds"][
        "rows"
    ]
    record = json.loads((results / "vit" / "pictures-toy.json").read_text(encoding="utf-8"))
    assert [p["class"] for p in record["results"]["images"]] == sorted(COLOURS)
    drawn = script.find_draw(
        config, results / "vit" / "fewshot-toy.json", Record.load(results / "vit/fewshot-toy.json")
    )
    assert drawn._rows.tolist() == [int(row) for row in rows["draws"]["1"][0].split()]
    assert drawn.names == [p["file"] for p in record["results"]["images"]]
    page = Image.open(folder / "fewshot-toy-breeds-1-shot.png").convert("RGB")
    for i, colour in enumerate(COLOURS.values()):  # the cells' colours are their classes'
        x = script.MARGIN + i * (script.CELL + script.MARGIN) + script.CELL // 2
        measured = page.getpixel((x, script.HEAD + script.MARGIN + script.CELL // 2))
        assert np.abs(np.array(measured) - colour).max() < 40
    assert [f["kind"] for f in record["figures"]] == ["gallery"]
    assert record["provenance"]["data"][0]["images"] == 3
    assert record["answer"].startswith("3 images of 3 classes, 1 for each")
    first = {p.name: p.read_bytes() for p in folder.iterdir()}
    script.main(config)
    assert first == {p.name: p.read_bytes() for p in folder.iterdir()}


def test_another_draw_is_another_training_set(config, results):
    path = results / "vit" / "fewshot-toy.json"
    sets = [script.find_draw(replace(config, shots=4, draw=draw), path, Record.load(path)) for draw in (0, 2)]
    assert [len(s) for s in sets] == [12, 12]
    assert sets[0].names != sets[1].names or sets[0].fingerprint != sets[1].fingerprint


def test_where_only_big_vision_was_run_its_draws_are_shown(config, results):
    """The article's draws are in every result, but nothing was fitted on them then."""
    path = results / "vit" / "fewshot-toy.json"
    result = Record.load(path)
    kept = result["results"]["data"]["breeds"]
    for outcome in kept["outcomes"].values():
        outcome["article"] = None
    shown = script.find_draw(replace(config, draw=1, shots=1), path, result)
    order = np.array(kept["rows"]["big_vision"][1].split(), dtype=np.int64).reshape(3, -1)
    assert shown._rows.tolist() == order[:, 0].tolist() and shown.labels.tolist() == [0, 1, 2]
    assert len(script.find_draw(replace(config, draw=1, shots=4), path, result)) == 12
    with pytest.raises(UserError, match="no draw 0 at k = 2"):
        script.find_draw(replace(config, shots=2), path, result)


def test_the_few_shot_result_has_its_own_figure(results):
    record = Record.load(results / "vit" / "fewshot-toy.json")
    (figure,) = record["figures"]
    folder = results / "vit" / "figures"
    made = sorted(path.suffix for path in folder.glob("fewshot-toy-breeds.*"))
    assert figure["path"] == "figures/fewshot-toy-breeds.png" and made == [".pdf", ".png", ".svg"]
    svg = (folder / "fewshot-toy-breeds.svg").read_text(encoding="utf-8")
    for text in ("fake *", "chance", "labelled images per class, k (log scale)", "test accuracy, %"):
        assert text in svg
    assert figure["data"] == "vit_part4_fewshot.py, from results/vit/fewshot-toy.json"
    shots = record["results"]["data"]["breeds"]["outcomes"]["fake"]["article"]["shots"]
    for k in ("1", "4"):  # what is drawn is what the result holds
        assert f"{shots[k]['mean']:,.4g} at {k}" in figure["alt"]


def test_the_articles_points_stand_beside_ours():
    """Its own models' where they were run, else the span of all of them; nothing where it prints nothing."""
    article = published.load("vit", "fewshot")
    shots = {str(k): {"correct": [5, 6], "mean": 50.0, "std": 3.0, "binomial": 4.0} for k in (1, 10)}
    kept = {"article": {"shots": shots, "test_images": 1000}, "big_vision": None, "stand_in": None}
    own, caption = accuracy.draw("CIFAR-100", {"ViT-B/32": kept}, 100, article)
    printed = article["CIFAR-100/ViT-B/32/10-shot"].printed
    assert f"{printed} at 10" in plots.in_words(own) and "printed accuracies" in caption
    others, caption = accuracy.draw("CIFAR-100", {"mine": kept | {"stand_in": "another"}}, 100, article)
    best = max(article[f"CIFAR-100/{model}/10-shot"].value for model in fewshot.ARTICLE_MODELS.values())
    assert f"{best} at 10" in plots.in_words(others) and "the worst and the best" in caption
    none, caption = accuracy.draw("my images", {"mine": kept}, 100, article)
    assert "article" not in plots.in_words(none) and "Hollow" not in caption


def test_seven_models_differ_without_colour():
    assert len({style[:2] for style in accuracy.STYLES}) == 7
    for _, _, colour in accuracy.STYLES:
        assert re.fullmatch(r"#(..)\1\1", colour)  # a grey


def test_pets_size_sheet_stays_below_a_megabyte(tmp_path):
    """37 breeds, the longest name, images as busy as photographs: noise at a quarter of the resolution."""
    rng = np.random.default_rng(0)
    images = [
        np.asarray(Image.fromarray(rng.integers(0, 256, (28, 28, 3), dtype=np.uint8)).resize((224, 224)))
        for _ in range(37)
    ]
    script.sheet(images, ["staffordshire bull terrier"] * 37, "title", tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").stat().st_size < 1_000_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"result": "fewshot"}, "no such result"),
        ({"data": "Oxford-IIIT Pets"}, "--data takes one of: breeds$"),
        ({"shots": 7}, r"it has k = 1 \(3 draws\), 4 \(3 draws\)"),
        ({"draw": 3}, "no draw 3 at k = 1"),
    ],
)
def test_what_the_result_does_not_have_is_refused(config, changes, message):
    with pytest.raises(UserError, match=message):
        script.main(replace(config, **changes))


def test_changed_images_are_refused(config, results, folder):
    result = results / "vit" / "fewshot-toy.json"
    data = Record.load(result)  # without its checksum
    for entry in data["provenance"]["data"]:
        entry["fingerprint"] = "0" * 64
    result.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UserError, match="not the images"):
        script.main(config)


def test_another_result_is_refused(config, results):
    (results / "vit" / "tables.json").write_text(
        json.dumps(Record.load(results / "vit" / "fewshot-toy.json") | {"results": {}}), encoding="utf-8"
    )
    with pytest.raises(UserError, match="not a few-shot result"):
        script.main(replace(config, result="tables"))


@pytest.mark.parametrize(
    ("experiment", "suffix"),
    [("fewshot", ""), ("fewshot-offline", "-offline"), ("mine", "-mine"), ("my-fewshot", "-my-fewshot")],
)
def test_a_result_of_any_name_keeps_its_dash(experiment, suffix):
    assert script.suffix_of(experiment) == suffix
