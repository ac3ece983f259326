"""The few-shot script: the article's lines, who may see which image, both protocols, verdicts, users' mistakes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from papers.vit import vit_part4_fewshot as script
from papers.vit.part4 import probes
from papers.vit.part4 import split as splits
from shared import cli, data, features, models, published, ridge
from shared.data import ImageSet, load_two
from shared.errors import UserError
from shared.paths import ROOT
from shared.record import Record
from shared.sources import Source, open_set

PETS = [
    breed.replace("_", " ")
    for breed in (
        *("abyssinian", "american_bulldog", "american_pit_bull_terrier", "basset_hound", "beagle", "bengal", "birman"),
        *("bombay", "boxer", "british_shorthair", "chihuahua", "egyptian_mau", "english_cocker_spaniel"),
        *("english_setter", "german_shorthaired", "great_pyrenees", "havanese", "japanese_chin", "keeshond"),
        *("leonberger", "maine_coon", "miniature_pinscher", "newfoundland", "persian", "pomeranian", "pug", "ragdoll"),
        *("russian_blue", "saint_bernard", "samoyed", "scottish_terrier", "shiba_inu", "siamese", "sphynx"),
        *("staffordshire_bull_terrier", "wheaten_terrier", "yorkshire_terrier"),
    )
]


# ---------------------------------------------------------------------------------------- images without files


@dataclass
class Memory:
    """Images in memory as a source's rows."""

    pixels: np.ndarray
    split: str
    identity: str = ""

    def read(self, rows):
        return [self.pixels[row] for row in rows]

    def where(self, row):
        return f"{self.split} row {row}"


def image_set(labels, names, *, split="train", pixels=None, name="toy", stand_in=None, seed=0) -> ImageSet:
    """Random 4x4 images, all different, in a shuffled order of labels."""
    labels = np.asarray(labels, dtype=np.int64)
    if pixels is None:
        pixels = np.random.default_rng([seed, len(split)]).integers(0, 256, (len(labels), 4, 4, 3)).astype(np.uint8)
    files = [f"{split}-{i}.png" for i in range(len(labels))]
    source = Source(split, "in memory", Memory(pixels, split), labels, list(names), files, list(names), stand_in)
    return ImageSet(name, source)


def parts(classes=4, train=12, test=6, **options) -> tuple[ImageSet, ImageSet]:
    names = [f"class {c}" for c in range(classes)]
    order = np.random.default_rng(7).permutation(classes * train)
    return (
        image_set((np.arange(classes * train) % classes)[order], names, **options),
        image_set(np.repeat(np.arange(classes), test), names, split="test", **options),
    )


SMALL = splits.Sizes(pool=6, selection=2, test=5)


# ---------------------------------------------------------------------------------------- the article's lines


@pytest.fixture
def record(tmp_path) -> Record:
    return Record("vit", "fewshot", results=tmp_path)


def test_section_1_is_the_articles_character_for_character(record, published_log):
    numbers = script.tiny_example(record)
    assert record.lines == published_log("vit_part4_fewshot")[:7]
    known = published.load("vit", "fewshot")
    assert all(known[id].printed == value for id, value in numbers.items())
    # what is worked out by hand there is what the library computes for the real features
    x, labels = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 2.0], [1.0, 3.0]]), np.array([0, 0, 1, 1])
    assert np.allclose(ridge.weights(x, labels, 2, 1.0).numpy(), json.loads(numbers["tiny example/W"]), atol=1e-12)


@pytest.mark.parametrize(("data", "classes", "chance"), [("CIFAR-100", 100, 1.0), ("Oxford-IIIT Pets", 37, 2.7)])
def test_a_table_prints_as_in_the_article(record, published_log, data, classes, chance):
    """The published numbers through our table give the published lines, blanks included."""
    log, known = published_log("vit_part4_fewshot"), published.load("vit", "fewshot")
    first = log.index(f"-- {data} ({classes} classes, chance = {chance}%) --")

    @dataclass
    class Printed:
        name: str
        correct = dict.fromkeys((1, 2, 5, 10), [0] * 5)
        images, tied = 10, 0

        def cell(self, k):
            number = known[f"{data}/{self.name}/{k}-shot"]
            return f"{number.printed} ± {number.std}"

        @property
        def lambda_(self):
            return float(known[f"{data}/{self.name}/lambda"].printed)

    dims = dict(zip(script.ARTICLE_MODELS.values(), (768, 768, 1024, 1024, 1280, 2048, 2048), strict=True))
    encoders = {name: FakeEncoder(FakeIdentity(name, dim)) for name, dim in dims.items()}
    models = [script.Model("", name, encoder, None) for name, encoder in encoders.items()]
    printed = script.Run(models, [], None, [], {(data, name): Printed(name) for name in dims}, {}, models[0], [])
    d = SimpleNamespace(title=data, classes=classes, stand_in=None)
    script.say_table_of(record, printed, d, data, "the article's protocol", printed.article)
    assert record.lines == log[first : first + 9]
    Printed.tied = 3  # ties are named under the table, where there are any
    script.say_table_of(record, printed, d, data, "the article's protocol", printed.article)
    assert sum("of 200 scored images" in line for line in record.lines) == 7
    assert any(line.startswith("  ViT-B/32: 3 of 200 scored images have their largest") for line in record.lines)


def test_the_breed_line_is_computed_from_timms_synonyms(record, published_log):
    pets = SimpleNamespace(spec="pets", test=SimpleNamespace(class_names=PETS))
    numbers = script.say_breeds(record, SimpleNamespace(data=[pets]))
    assert record.lines[1] in published_log("vit_part4_fewshot")
    assert set(record.results["breeds"]["longer_name"]) == {"german shorthaired", "wheaten terrier"}
    known = published.load("vit", "fewshot")
    assert len(numbers) == 2 and all(known[id].printed == value for id, value in numbers.items())


def precision(record, title, spec, data, dtype, device, cosines):
    choice = SimpleNamespace(dtype_name=dtype, device=SimpleNamespace(type=device))
    model = SimpleNamespace(starred=title, spec=spec, choice=choice)
    return script.say_precision(
        record, SimpleNamespace(precise=model, data=[SimpleNamespace(title=data)], cosines=cosines)
    )


def test_section_4_prints_as_in_the_article(record, published_log):
    huge, cosines = "google/vit-huge-patch14-224-in21k", [1.0, 0.9999986, 1.0, 1.0]
    numbers = precision(record, "ViT-H/14", huge, "CIFAR-100", "float16", "cuda", cosines)
    assert record.lines[1:] == published_log("vit_part4_fewshot")[-2:]
    assert list(numbers.values()) == cosines and set(numbers) <= set(published.load("vit", "fewshot").numbers)
    assert precision(record, "x", "x", "digits", "float32", "cpu", [1.0] * 4) == {}
    assert "nothing to compare" in record.lines[-1]


def test_published_numbers_are_the_articles(shared_folder):
    article = json.loads((shared_folder / "published" / "article_fewshot.json").read_text(encoding="utf-8"))
    known = published.load("vit", "fewshot")
    for title, values in article["datasets"].items():
        for model, result in values["results"].items():
            assert known[f"{title}/{model}/lambda"].value == result["lambda"]
            for k, accuracy in result["accuracy"].items():
                number = known[f"{title}/{model}/{k}-shot"]
                assert (number.value, float(number.std)) == (accuracy["mean"], accuracy["std"])
                assert (number.n, number.images) == (5, values["test_pictures"])
    assert known["breeds/the names"].printed == ", ".join(article["pets_breeds_also_in_imagenet1k"])


# ---------------------------------------------------------------------------------------- who sees which image


def contents(images: ImageSet, rows: np.ndarray) -> set[str]:
    return set(images.subset(rows.ravel()).content_hashes())


def test_roles_are_disjoint_by_row_and_by_content():
    train, test = parts()
    pixels, copied = train.arrays(), test.arrays()
    for target, source in ((3, 0), (17, 8), (30, 20)):  # in test under the same or another label
        pixels[target] = copied[source]
    pixels[5] = pixels[4]  # twice in train
    train = image_set(train.labels, train.class_names, pixels=pixels)
    split = splits.make(train, test, SMALL, seed=0, authors_shots=7, authors_seeds=3)
    rows = np.concatenate([split.pool.ravel(), split.selection.ravel()])
    assert len(set(rows.tolist())) == len(rows) == 4 * 8
    hidden = contents(test, split.test_rows)
    pool, selection = contents(train, split.pool), contents(train, split.selection)
    authors = set().union(*(contents(train, a) for a in split.authors))
    assert not hidden & (pool | selection | authors)
    assert not pool & selection
    assert len(contents(train, split.used_rows)) == len(split.used_rows)
    assert any("test set" in reason for reason in split.left_out)
    assert any("train row 5: the same image as train row 4" in reason for reason in split.left_out)
    for c in range(4):
        assert (train.labels[split.pool[c]] == c).all() and (train.labels[split.selection[c]] == c).all()
        assert (test.labels[split.test_rows[c]] == c).all()


def test_roles_are_disjoint_on_cifar100(data_mirror, monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path))
    train, test = load_two("cifar100", root=data_mirror)
    split = splits.make(train, test, splits.Sizes(), seed=0)
    assert split.pool.shape == (100, 20) and split.selection.shape == (100, 5) and split.test_rows.shape == (100, 10)
    assert not contents(test, split.test_rows) & contents(train, split.used_rows)


def test_one_seed_fixes_everything_and_shots_do_not_disturb_each_other():
    def chosen(seed, shots=(1, 2)):
        split = splits.make(*parts(), SMALL, seed=seed, authors_shots=3, authors_seeds=2)
        return split, splits.draws(split, shots, 5, seed=seed)

    (a, da), (b, db), (c, _) = chosen(0), chosen(0, (2, 5, 1)), chosen(1)
    assert (a.pool == b.pool).all() and (a.test_rows == b.test_rows).all() and (a.selection == b.selection).all()
    assert all((da[k] == db[k]).all() for k in (1, 2))
    assert not (a.pool == c.pool).all()
    assert da[2].shape == (5, 4, 2)
    for draw in da[2]:
        assert len(set(draw.ravel().tolist())) == 4 * 2  # no image twice in a draw
        assert (a.train.labels[a.pool.ravel()[draw]] == np.arange(4)[:, None]).all()  # k images of each class


def test_the_authors_draws_are_their_recipe():
    """default_rng(seed), one permutation a class over the whole training part, nested: the first k of one order."""
    train, test = parts()
    split = splits.make(train, test, SMALL, seed=5, authors_shots=4, authors_seeds=2)
    for seed, rows in enumerate(split.authors):
        rng = np.random.default_rng(seed)
        expected = [rng.permutation(np.where(train.labels == c)[0])[:4] for c in range(4)]
        assert (rows == np.stack(expected)).all()


def test_a_set_without_parts_lends_its_images_to_one_role_each():
    both, _ = parts(train=20)
    split = splits.make(both, both, SMALL, seed=0, authors_shots=9, authors_seeds=3)
    used = np.concatenate([split.test_rows.ravel(), split.used_rows])
    assert len(set(used.tolist())) == len(used)


@pytest.mark.parametrize(("there", "taken"), [(("val",), "val"), (("val", "test"), "test")])
def test_the_validation_part_serves_where_there_is_no_test_part(tmp_path, there, taken):
    from PIL import Image

    for part in ("train", *there):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (2, 2)).save(tmp_path / part / name / "0.png")
    train, test = load_two(str(tmp_path))
    assert (train.split, test.split) == ("train", taken)
    assert open_set("imagenette").pick_test() == "validation" and open_set("pets").pick_test() == "test"


def test_coinciding_draws_are_found():
    split = splits.make(*parts(train=8), SMALL, seed=0, authors_shots=8, authors_seeds=3)
    assert [k for k in (1, 5, 8) if split.shared_by_seeds(k) == 1] == [8]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (parts(classes=1), "one class only"),
        (parts(train=7), r"8 training images per class are needed.*class 0 7, class 1 7.*--pool"),
        (parts(test=3), r"5 test images per class are needed.*class 0 3"),
    ],
)
def test_data_that_does_not_do_is_refused_with_the_counts(sets, message):
    with pytest.raises(UserError, match=message):
        splits.make(*sets, SMALL, seed=0)


def test_too_many_duplicates_in_a_class_are_refused_by_name():
    train, test = parts(train=8)
    pixels = train.arrays()
    pixels[train.labels == 2] = pixels[train.labels == 2][:1]
    with pytest.raises(UserError, match=r"'class 2': 1 different training images, but 8.*; 7 more are copies"):
        splits.make(image_set(train.labels, train.class_names, pixels=pixels), test, SMALL, seed=0)


# ---------------------------------------------------------------------------------------- the protocols


def make_features(split: splits.Split, d=24, seed=0, noise=1.5):
    """Features for all roles, in the split's order."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((split.classes, d))

    def sample(rows):
        labels = np.repeat(np.arange(split.classes), rows.shape[1])
        return (means[labels] + noise * rng.standard_normal((len(labels), d))).astype(np.float32)

    return sample(split.pool), sample(split.selection), sample(split.test_rows)


PENALTIES = (1e-2, 1.0, 1e2)


def drawn(shots, count) -> splits.Split:
    split = splits.make(*parts(), SMALL, seed=0)
    split.draws = splits.draws(split, shots, count, seed=0)
    return split


def test_article_equals_the_formula_of_the_article():
    split = drawn((1, 3), 4)
    draws, (pool, selection, test) = split.draws, make_features(split)
    outcome = probes.article(split, pool, selection, test, PENALTIES, "cpu")

    def right(draw, queries, a_class, penalty):
        x = pool[draw.ravel()].astype(float)
        y = 2 * np.eye(4)[np.repeat(np.arange(4), draw.shape[1])] - 1
        w = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
        return int(((queries @ w).argmax(1) == np.repeat(np.arange(4), a_class)).sum())

    for penalty in PENALTIES:
        scores = [right(d, selection, 2, penalty) for k in draws for d in draws[k]]
        assert outcome.selection[penalty] == pytest.approx(100 * np.mean(scores) / 8)
    best = max(PENALTIES, key=lambda p: (outcome.selection[p], p))
    assert outcome.lambda_ == best
    for k in draws:
        assert outcome.correct[k] == [right(d, test, 5, best) for d in draws[k]]
        assert outcome.std(k) == pytest.approx(np.std(outcome.accuracies(k), ddof=1))


def test_a_tie_goes_to_the_larger_lambda():
    """Classes far apart: every lambda names every selection image."""
    split = drawn((2,), 3)
    outcome = probes.article(split, *make_features(split, noise=0.01), (1e-2, 1.0, 1e-3), "cpu")
    assert set(outcome.selection.values()) == {100.0}
    assert outcome.lambda_ == 1.0


def test_no_test_image_chooses_anything():
    split = drawn((1, 2), 5)
    pool, selection, test = make_features(split)
    a = probes.article(split, pool, selection, test, PENALTIES, "cpu")
    b = probes.article(split, pool, selection, np.roll(test, 5, axis=0), PENALTIES, "cpu")
    assert (a.lambda_, a.selection) == (b.lambda_, b.selection)
    assert a.correct != b.correct


def test_big_vision_equals_its_recipe():
    split = splits.make(*parts(), SMALL, seed=0, authors_shots=7, authors_seeds=2)
    rng = np.random.default_rng(3)
    means = rng.standard_normal((4, 9))
    seeds = [(means[:, None] + rng.standard_normal((4, 7, 9))).astype(np.float32) for _ in range(2)]
    test = (np.repeat(means, 5, axis=0) + rng.standard_normal((20, 9))).astype(np.float32)
    outcome = probes.big_vision(split, seeds, test, (1, 7))
    for k in (1, 7):
        for seed, x in enumerate(seeds):
            x = x[:, :k].reshape(4 * k, 9).astype(float)
            mean, deviation = x.mean(0), x.std(0) + 1e-5
            x = np.column_stack([(x - mean) / deviation, np.full(len(x), 100.0)])
            z = np.column_stack([(test - mean) / deviation, np.full(len(test), 100.0)])
            y = 2 * np.eye(4)[np.repeat(np.arange(4), k)] - 1
            w = np.linalg.solve(x.T @ x + 1024 * np.eye(10), x.T @ y)
            assert outcome.correct[k][seed] == ((z @ w).argmax(1) == np.repeat(np.arange(4), 5)).sum()
    assert outcome.lambda_ == 1024 and outcome.selection == {}


def test_tied_scores_are_decided_by_the_first_class_and_counted():
    """Test features of zero score every class alike in the article's protocol: all are tied, class 0 is right."""
    split = drawn((2,), 3)
    pool, selection, test = make_features(split)
    outcome = probes.article(split, pool, selection, np.zeros_like(test), PENALTIES, "cpu")
    assert outcome.correct[2] == [5] * 3 and outcome.tied == 3 * 20
    assert outcome.as_json()["tied"] == 60
    assert probes.article(split, pool, selection, test, PENALTIES, "cpu").tied == 0
    # two classes of the same training features have the same column of W in big_vision's protocol too
    seed = np.random.default_rng(0).standard_normal((4, 2, 9)).astype(np.float32)
    seed[1] = seed[0]
    outcome = probes.big_vision(split, [seed], np.repeat(seed[:, 0], 5, axis=0), (2,))
    assert outcome.correct[2] == [15] and outcome.tied == 10


def test_a_single_draw_has_no_spread():
    outcome = probes.Outcome({1: [5]}, 20, 1.0, {})
    assert outcome.std(1) is None
    assert outcome.cell(1) == "25.0"
    assert outcome.binomial(1) == pytest.approx(100 * np.sqrt(0.25 * 0.75 / 20))


# ---------------------------------------------------------------------------------------- the whole script


@dataclass(frozen=True)
class FakeIdentity:
    name: str
    dim: int = 12
    preprocessing: str = "none"
    revision: str = "r"
    weights_sha256: str = "0" * 64
    stand_in: str | None = None
    transform_from: str = ""


@dataclass
class FakeEncoder:
    identity: FakeIdentity


@pytest.fixture
def fakes(monkeypatch):
    """Images in memory and a random projection of their pixels as every model; tells what was extracted."""
    seen = []

    def deferred(spec, choice, *, compile=False, revision=None):
        stand_in = "a fake network" if spec.startswith("wheel:") else None
        return FakeEncoder(FakeIdentity(spec.split("/")[-1].removeprefix("wheel:"), stand_in=stand_in))

    def extract(encoder, images, choice, say=None, later=0):
        seen.append((encoder.identity.name, images.split, len(images)))
        x = images.arrays().reshape(len(images), -1) / 255.0
        projection = np.random.default_rng(len(encoder.identity.name)).standard_normal((x.shape[1], 12))
        return (x @ projection).astype(np.float32)

    def load(name, **options):
        train, test = parts(classes=5, train=26, test=31, stand_in=None)
        names = ["beagle", "pug", "bombay", "persian", "sphynx"] if name == "pets" else train.class_names
        give = lambda s: image_set(s.labels, names, split=s.split, name=name)  # noqa: E731
        return give(train), give(test)

    monkeypatch.setattr(features, "deferred", deferred)
    monkeypatch.setattr(features, "extract", extract)
    monkeypatch.setattr(models, "computed_in", lambda identity, choice: choice)
    monkeypatch.setattr(data, "load_two", load)
    return seen


CONFIG = script.Config(
    models=("google/vit-base-patch32-224-in21k", "wheel:fake"), data=("cifar100", "pets"), device="cpu", dtype="fp32"
)


def run(folder: Path, **changes) -> dict:
    """The JSON of one run of the script."""
    config = replace(CONFIG, results=folder, **changes)
    script.main(config)
    return json.loads((folder / "vit" / f"{config.experiment}.json").read_text(encoding="utf-8"))


def test_the_script_from_images_to_verdicts(fakes, tmp_path, published_log, capsys):
    record = script.main(replace(CONFIG, results=tmp_path))
    log = (tmp_path / "vit" / "fewshot.log").read_text(encoding="utf-8").splitlines()
    result = json.loads((tmp_path / "vit" / "fewshot.json").read_text(encoding="utf-8"))
    assert log[:7] == published_log("vit_part4_fewshot")[:7]
    assert capsys.readouterr().out.strip("\n").splitlines() == log

    verdicts = {v["id"]: v for v in result["verdicts"]}
    assert set(verdicts) == set(published.load("vit", "fewshot").numbers)
    assert verdicts["CIFAR-100/ViT-B/32/1-shot"]["verdict"] in ("differs", "agrees", "equal")
    assert verdicts["CIFAR-100/ViT-H/14/1-shot"]["verdict"] == "not run"
    assert verdicts["tiny example/W"]["verdict"] == "equal"
    assert verdicts["breeds/with an ImageNet-1k class of the same name"]["measured"] == "3"
    assert record.differs == sum(v["verdict"] == "differs" for v in result["verdicts"])
    unpublished = " ".join(log).partition("Oxford-IIIT Pets/fake: ")[2]
    assert "not comparable (stand-in: a fake network)" in " ".join(unpublished.split())
    assert any("fake *" in line for line in log)
    assert any("3 of 5 breeds" in line for line in log)

    kept = result["results"]["data"]["CIFAR-100"]
    rows = {role: kept["rows"][role].split() for role in ("pool", "selection")}
    assert len(rows["pool"]) == 5 * 20 and not set(rows["pool"]) & set(rows["selection"])
    assert [len(kept["rows"]["draws"][k]) for k in ("1", "2", "5", "10")] == [5] * 4
    assert all(set(draw.split()) <= set(rows["pool"]) for draws in kept["rows"]["draws"].values() for draw in draws)
    assert set(kept["outcomes"]["fake"]["article"]["selection"]) == {f"{x:g}" for x in CONFIG.lambdas}
    assert kept["outcomes"]["fake"]["big_vision"]["shots"]["25"]["correct"]
    assert result["provenance"]["seed"] == 0 and len(result["provenance"]["data"]) == 4


def test_the_hubs_own_names_are_the_articles_data(fakes, tmp_path):
    result = run(tmp_path, data=("uoft-cs/cifar100", "timm/oxford-iiit-pet"), protocol="article")
    assert list(result["results"]["data"]) == ["CIFAR-100", "Oxford-IIIT Pets"]
    assert len(result["results"]["data"]["CIFAR-100"]["rows"]["test"].split()) == 5 * 10


def test_other_spellings_of_a_model_are_that_model(fakes, tmp_path):
    hub = ("hf:google/vit-base-patch32-224-in21k", "https://huggingface.co/google/bit-50")
    result = run(tmp_path, models=hub, precision_model=hub[0])
    assert list(result["results"]["data"]["CIFAR-100"]["outcomes"]) == ["ViT-B/32", "BiT R50x1"]
    assert result["results"]["precision"]["model"] == "google/vit-base-patch32-224-in21k"
    cells = [v for v in result["verdicts"] if v["id"].startswith(("CIFAR-100/ViT-B/32/", "CIFAR-100/BiT R50x1/"))]
    assert len(cells) == 10 and "not run" not in {v["verdict"] for v in cells}
    with pytest.raises(UserError, match="two spellings"):
        run(tmp_path, models=(hub[0], hub[0].removeprefix("hf:")))


def test_an_architecture_without_weights_is_answered_with_a_model_that_has_some(fakes, tmp_path):
    with pytest.raises(UserError, match="google/vit-base-patch16-224-in21k"):
        run(tmp_path, models=("vit-b16",))
    assert not fakes


def test_two_models_or_data_sets_of_one_name_are_kept_apart(fakes, tmp_path):
    for folder in ("a/pics", "b/pics"):
        (tmp_path / folder).mkdir(parents=True)
    data = tuple(str(tmp_path / folder) for folder in ("a/pics", "b/pics"))
    options = {"protocol": "article", "models": ("one/net", "two/net")}
    kept = run(tmp_path, data=data, **options)["results"]["data"]
    assert list(kept) == list(data)
    assert all(list(d["outcomes"]) == ["one/net", "two/net"] for d in kept.values())
    with pytest.raises(UserError, match="two spellings"):
        run(tmp_path, data=(data[0], data[0] + "/../pics"), **options)
    with pytest.raises(UserError, match="two spellings"):
        run(tmp_path, data=("cifar100", "uoft-cs/cifar100"), **options)


@pytest.mark.parametrize(("option", "value"), [("lambdas", (1.0, 10.0)), ("shots", (1, 2)), ("pool", 19)])
def test_another_protocol_than_the_articles_is_not_compared(fakes, tmp_path, option, value):
    verdicts = {v["id"]: v for v in run(tmp_path, **{"shots": (10, 5, 2, 1)} | {option: value})["verdicts"]}
    cell = verdicts["CIFAR-100/ViT-B/32/1-shot"]
    assert cell["verdict"] == "not comparable" and f"--{option} differ" in cell["reason"]


def test_the_same_seed_gives_the_same_numbers(fakes, tmp_path):
    a, b, c = (run(tmp_path / str(i), seed=seed)["results"]["data"] for i, seed in enumerate((0, 0, 1)))
    assert a == b != c


@pytest.mark.parametrize("protocol", ["article", "big_vision"])
def test_one_protocol_alone(fakes, tmp_path, protocol):
    result = run(tmp_path, protocol=protocol, data=("cifar100",))
    outcome = result["results"]["data"]["CIFAR-100"]["outcomes"]["ViT-B/32"]
    assert (outcome["article"] is None) == (protocol == "big_vision")
    assert (outcome["big_vision"] is None) == (protocol == "article")
    if protocol == "big_vision":
        cells = [v for v in result["verdicts"] if v["id"].startswith("CIFAR-100/ViT-B/32/")]
        assert {(v["verdict"], v["reason"]) for v in cells} == {("not run", "the article's protocol was not run")}
    reasons = {v["id"]: v["reason"] for v in result["verdicts"]}
    assert reasons["Oxford-IIIT Pets/ViT-B/32/1-shot"] == "Oxford-IIIT Pets's images are not in this run"
    assert reasons["CIFAR-100/BiT R50x1/lambda"] == "google/bit-50 is not among this run's models"
    assert reasons["breeds/the names"] == "Pets is not in this run"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shots": (1, 30)}, "pool has 20"),
        ({"shots": (0, 1)}, "--shots"),
        ({"shots": ()}, "--shots"),
        ({"draws": 0}, "--draws"),
        ({"lambdas": (0.0, 1.0)}, "--lambdas"),
        ({"lambdas": (1.0, 1.0)}, "twice"),
        ({"models": ()}, "--models"),
        ({"data": ("pets", "pets")}, "twice"),
        ({"selection": 0}, "--selection"),
        ({"test": 0}, "--test"),
        ({"seed": -1}, "--seed"),
        ({"experiment": "a/b"}, "--experiment"),
        ({"experiment": ".."}, "--experiment"),
        ({"pool": 0, "protocol": "big_vision"}, "--pool"),
        ({"big_vision_seeds": 0}, "--big-vision-seeds"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        run(tmp_path, **changes)
    assert not list(tmp_path.rglob("*.json"))


def test_other_processes_of_torchrun_extract_but_write_nothing(fakes, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "1")
    assert script.main(replace(CONFIG, results=tmp_path)) is None and fakes
    assert capsys.readouterr().out == "" and not list(tmp_path.rglob("*.json"))


def test_users_folder_end_to_end(monkeypatch, tmp_path):
    """A real folder of images, read by shared.data; only the network is a fake."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for c, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(9):
            pixels = np.clip(rng.normal(np.roll([200, 60, 60], c), 20, (6, 6, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    identity = FakeIdentity("fake", dim=108)
    monkeypatch.setattr(features, "deferred", lambda *a, **o: FakeEncoder(identity))
    monkeypatch.setattr(
        features,
        "extract",
        lambda e, images, choice, **how: images.arrays().reshape(len(images), -1).astype(np.float32),
    )
    monkeypatch.setattr(models, "computed_in", lambda identity, choice: choice)
    config = script.Config(
        models=("wheel:fake",), data=(str(tmp_path / "images"),), results=tmp_path, protocol="article", pool=4,
        selection=2, shots=(1, 4), device="cpu", experiment="mine",
    )  # fmt: skip
    script.main(config)
    data = json.loads((tmp_path / "vit" / "mine.json").read_text(encoding="utf-8"))["results"]["data"]["images"]
    assert data["class_names"] == ["cat", "dog"]
    assert data["outcomes"]["fake"]["article"]["shots"]["4"]["mean"] == 100.0
    with pytest.raises(UserError, match="training and test images per class are needed"):
        script.main(replace(config, pool=7))
    script.main(replace(config, test=1))  # fewer test images than the precision section takes
    assert (
        len(json.loads((tmp_path / "vit" / "mine.json").read_text(encoding="utf-8"))["results"]["precision"]["cosine"])
        == 2
    )


def test_torch_is_not_imported_for_the_help():
    import subprocess
    import sys

    code = "import sys, papers.vit.vit_part4_fewshot; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    assert torch  # imported here, not there


# ---------------------------------------------------------------------------------------- the recorded run


RECORDED = ROOT / "results" / "vit" / "fewshot-offline.json"


def test_the_recorded_run_keeps_its_promises(published_log):
    """What results/ says of itself holds: roles, draws, means from counts, lambda from the selection scores."""
    result = Record.load(RECORDED)
    log = RECORDED.with_suffix(".log").read_text(encoding="utf-8").splitlines()
    assert log[:7] == published_log("vit_part4_fewshot")[:7]
    assert published_log("vit_part4_fewshot")[-3] in log  # the breeds
    for title, kept in result["results"]["data"].items():
        rows = kept["rows"]
        pool, selection = set(rows["pool"].split()), set(rows["selection"].split())
        assert not pool & selection and len(pool) == 20 * kept["classes"] == 4 * len(selection)
        for k, draws in rows["draws"].items():
            assert len(draws) == 5
            assert all(set(d.split()) <= pool and len(set(d.split())) == int(k) * kept["classes"] for d in draws)
        for name, outcome in kept["outcomes"].items():
            article = outcome["article"]
            best = max(article["selection"].values())
            assert article["lambda"] == max(float(p) for p, score in article["selection"].items() if score == best)
            for k, values in article["shots"].items():
                accuracies = 100 * np.array(values["correct"]) / article["test_images"]
                assert values["mean"] == pytest.approx(accuracies.mean())
                assert values["std"] == pytest.approx(accuracies.std(ddof=1))
                assert any(f"{values['mean']:.1f} ± {values['std']:.1f}" in line for line in log), (title, name, k)
    assert {v["verdict"] for v in result["verdicts"]} == {"equal", "not run"}


@pytest.mark.slow
def test_the_recorded_run_again(data_mirror, tmp_path):
    """Minutes without a cache; the numbers are those recorded, up to the machine's own rounding of features."""
    config = cli.read_config(script.Config, ROOT / "configs" / "vit" / "fewshot-offline.toml")
    script.main(replace(config, results=tmp_path, data_root=data_mirror))
    again = Record.load(tmp_path / "vit" / "fewshot-offline.json")["results"]["data"]
    for title, kept in Record.load(RECORDED)["results"]["data"].items():
        assert again[title]["rows"] == kept["rows"]
        for name, outcome in kept["outcomes"].items():
            for protocol in ("article", "big_vision"):
                for k, values in outcome[protocol]["shots"].items():
                    measured = again[title]["outcomes"][name][protocol]["shots"][k]["mean"]
                    assert measured == pytest.approx(values["mean"], abs=0.5), (title, name, protocol, k)
