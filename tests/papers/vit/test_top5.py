"""Top-1 and top-5: the article's lines from planted scores, the rules of scoring, and a tiny classifier end to end."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest

from papers.vit import vit_part4_top5 as script
from papers.vit.part4 import scoring
from papers.vit.part4.scoring import Scores, count, draw, map_classes, score
from papers.vit.vit_part4_top5 import Classifier, Config, Way
from shared import cli, models
from shared.data import load_images
from shared.device import Choice
from shared.errors import UserError
from shared.gallery import Card, draw_cards, draw_sheet
from shared.models import Identity, labels
from shared.models.encoder import Encoder
from shared.paths import ROOT
from shared.published import load
from shared.record import Record
from shared.transforms import Transform
from shared.verdict import wilson

WNIDS, NAMES = labels.imagenet()
NUMBERS = (1440764, 2102040, 2979186, 3000684, 3028079, 3394916, 3417042, 3425413, 3445777, 3888257)
IMAGENETTE = [f"n{number:08d}" for number in NUMBERS]
CPU = Choice(torch.device("cpu"), torch.float32, "a test")


# ------------------------------------------------------------------------------------------------- the article's lines


@dataclass
class Images:
    """What the report needs of an image set, without images."""

    names: list[str]
    labels: np.ndarray
    name: str = "imagenette"
    split: str = "validation"
    source: str = "planted"
    stand_in: str | None = None
    fingerprint: str = "0" * 64
    class_ids: list[str] = field(default_factory=lambda: IMAGENETTE)

    def __len__(self) -> int:
        return len(self.names)

    __hash__ = object.__hash__

    def image(self, i: int) -> np.ndarray:
        return np.full((16, 16, 3), i % 256, np.uint8)

    def assumed(self) -> list[str]:
        return []

    def where(self, i: int) -> str:
        return self.names[i]

    def digests(self) -> np.ndarray:
        return np.stack([np.frombuffer(hashlib.sha256(name.encode()).digest(), np.uint8) for name in self.names])


def identity(name: str = "planted", transform: str = "squash", **changes) -> Identity:
    size = (10, 10) if transform == "crop" else (8, 8)
    how = Transform(size, "bilinear", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    base = Identity(
        "planted", name, "timm", 1000, how, "r0", "0" * 64, None, True, label_wnids=WNIDS, label_names=NAMES
    )
    return replace(base, **changes)


def plant(label: np.ndarray, wrong: int, forgiven: int, rows: dict[int, tuple[str, int]] | None = None) -> Scores:
    """Scores with `wrong` wrong first guesses, the first `forgiven` of them with the label at rank 2.

    rows: for single images the wrong first guess by name, and the label's rank.
    """
    n = len(label)
    top = np.tile(np.arange(900, 905), (n, 1))
    rank = np.ones(n, np.int64)
    rank[:wrong] = 7
    rank[:forgiven] = 2
    short_names = [scoring.first_name(name) for name in NAMES]
    for i, (guess, place) in (rows or {}).items():
        top[i, 0], rank[i] = short_names.index(guess), place
    for i in np.flatnonzero(rank <= 5):
        top[i, rank[i] - 1] = label[i]
    share = np.tile([0.5, 0.2, 0.1, 0.1, 0.05], (n, 1))
    return Scores(label, top, share, rank, label.copy(), np.zeros(n, bool))


def article_run() -> tuple[list[Classifier], Images]:
    """The article's counts; the eight images lie where `random.Random(3).sample` finds them among ViT-L/16's 499."""
    published = load("vit", "top5")
    files = [id.split("/")[1] for id in published.numbers if id.endswith(".JPEG/top-1")]
    drawn = sorted(random.Random(3).sample(range(499), 8))
    own = np.array([WNIDS.index(wnid) for wnid in IMAGENETTE])
    names: list[str] = []
    for place in range(3925):
        if place in drawn:
            names.append(files[drawn.index(place)])
        else:  # sorts between its neighbours of the eight
            before = [p for p in drawn if p < place]
            names.append((files[len(before) - 1] if before else "n01440764_1.JPEG") + f"-{place:04d}")
    labels_ = np.array([IMAGENETTE.index(name[:9]) for name in names])
    images = Images(names, labels_)
    rows = {}
    for place, file in zip(drawn, files, strict=True):
        best, rank = (published[f"eight images/{file}/{what}"].printed for what in ("top-1", "rank of the label"))
        rows[place] = best, int(rank)
    classifiers = []
    for spec, wrong, forgiven in [
        ("google/vit-base-patch16-224", 662, 531),
        ("google/vit-large-patch16-224", 592, 499),
        ("microsoft/resnet-50", 810, 651),
    ]:
        scores = plant(own[labels_], wrong, forgiven, rows if "large" in spec else None)
        way = Way("own", "planted", images, scores, count(scores))
        classifiers.append(Classifier(spec, script.PRINTED_NAMES[spec], identity(), own, CPU, [way]))
    return classifiers, images


def test_planted_counts_give_the_articles_log_char_for_char(published_log, tmp_path: Path) -> None:
    classifiers, images = article_run()
    with Record("vit", "top5", config=Config(), results=tmp_path, quiet=True) as record:
        script.tell(record, Config(), classifiers, [images], [])
    log = [line for line in (tmp_path / "vit" / "top5.log").read_text(encoding="utf-8").split("\n") if line]
    article = published_log("vit_part4_top5")
    assert log[: len(article)] == article
    verdicts = {v.id: v.verdict for v in record.verdicts}
    assert len(verdicts) == len(load("vit", "top5").numbers) == 29
    assert {id for id, verdict in verdicts.items() if verdict != "equal"} == {"eight images/the draw"}
    assert verdicts["eight images/the draw"] == "not run"


def test_one_image_off_agrees_within_the_binomial_tolerance_and_a_fifth_off_differs(tmp_path: Path) -> None:
    classifiers, images = article_run()
    for c, wrong in zip(classifiers, (663, 700, 900), strict=True):
        scores = plant(c.headline.scores.label, wrong, c.headline.counts.forgiven)
        c.ways = [Way("own", "planted", images, scores, count(scores))]
    with Record("vit", "top5", results=tmp_path, quiet=True) as record:
        script.tell(record, Config(gallery="none"), classifiers, [images], [])
    verdicts = {v.id: v for v in record.verdicts}
    assert verdicts["Imagenette/ViT-B/16/top-1"].verdict == "agrees"
    near = verdicts["Imagenette/ViT-B/16/top-1 wrong"]
    assert near.verdict == "agrees"
    assert near.tolerance_terms["binomial"] == pytest.approx(2 * (2 * 662.5 * (1 - 662.5 / 3925)) ** 0.5)
    assert verdicts["Imagenette/ViT-L/16/top-1 wrong"].verdict == "differs"
    assert verdicts["Imagenette/ResNet-50/top-1"].verdict == "differs"
    assert record.differs


def test_a_stand_in_is_not_comparable_and_the_other_models_are_not_run(tmp_path: Path) -> None:
    classifiers, images = article_run()
    lite = classifiers[2]
    lite.spec, lite.name, lite.identity = "wheel:x", "Lite", identity(stand_in="a stand-in")
    with Record("vit", "top5", results=tmp_path, quiet=True) as record:
        script.tell(record, Config(stands_for="ResNet-50", gallery="none"), [lite], [images], [])
    kinds = {v.id: v.verdict for v in record.verdicts}
    assert {kind for id, kind in kinds.items() if "ResNet-50" in id} == {"not comparable"}
    assert {kind for id, kind in kinds.items() if "ResNet-50" not in id} == {"not run"}
    assert all("a stand-in" in v.reason for v in record.verdicts if v.verdict == "not comparable")


def test_other_images_than_imagenettes_make_no_verdict(tmp_path: Path) -> None:
    classifiers, images = article_run()
    images.name = "mine"
    with Record("vit", "top5", results=tmp_path, quiet=True) as record:
        script.tell(record, Config(gallery="none"), classifiers, [images], [])
    assert {v.verdict for v in record.verdicts} == {"not run"}
    assert "article's command list" not in "\n".join(record.lines)


def test_the_published_file_holds_the_articles_numbers(shared_folder: Path) -> None:
    source = json.loads((shared_folder / "published" / "article_top5.json").read_text(encoding="utf-8"))
    published = load("vit", "top5")
    for model, values in source["results"].items():
        columns = [published[f"Imagenette/{model}/{column}"] for column in published.columns]
        assert [number.value for number in columns] == list(values.values())
    for file, label, top1, rank in source["examples"]["rows"]:
        assert published[f"eight images/{file}/top-1"].printed == top1
        assert published[f"eight images/{file}/rank of the label"].value == rank
        assert label in {scoring.first_name(NAMES[WNIDS.index(file[:9])])}


def test_few_or_no_candidates_are_said() -> None:
    scores = plant(np.array([0, 0, 1]), 2, 2)
    images = Images(["b.JPEG", "a.JPEG", "c.JPEG"], np.array([0, 0, 1]))
    way = Way("own", "planted", images, scores, count(scores))
    shown = Classifier("m", "M", identity(), np.array([0, 1]), CPU, [way])
    few = script.drawn_lines(shown, draw(images.names, np.array([0, 1]), 8, 3), 2, 3)
    assert few[0].endswith("(all 2 there are):")
    assert [line.split()[0] for line in few[1:]] == ["a.JPEG", "b.JPEG"]
    assert script.drawn_lines(shown, [], 0, 3) == [
        "  M, pictures whose top-1 is not the label but whose top-5 contains it (there is none):"
    ]


# ------------------------------------------------------------------------------------------------------------- scoring


def naive(logits: np.ndarray, label: int) -> tuple[list[int], int]:
    """(order of the classes, rank of the label), by the definition."""
    order = sorted(range(len(logits)), key=lambda k: (-logits[k], k))
    return order, order.index(label) + 1


def test_scores_follow_the_definition_ties_included() -> None:
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 12, (200, 40)).astype(np.float32)  # few values: ties everywhere
    label = rng.integers(0, 40, 200)
    subset = np.array([31, 4, 17])
    scores = score(logits, label, subset)
    for i in range(200):
        order, rank = naive(logits[i], label[i])
        assert scores.top[i].tolist() == order[:5]
        assert scores.rank[i] == rank
        assert scores.best_of_subset[i] == next(k for k in order if k in subset)
        near, own = logits[i][order[:6]], logits[i, label[i]]
        assert scores.tied[i] == (len(set(near)) < 6 or (logits[i] == own).sum() > 1)
    share = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum(1, keepdims=True)
    np.testing.assert_allclose(scores.probability, np.take_along_axis(share, scores.top, 1), rtol=1e-6)


def test_a_tie_is_broken_by_index_and_counted() -> None:
    logits = np.zeros((3, 1000), np.float32)
    logits[0, [5, 7]] = 2  # the label 7 ties with 5: second
    logits[1] = np.arange(1000)  # no tie
    logits[2] = np.arange(1000)
    logits[2, 10] = logits[2, 20]  # far from the top and from the label
    scores = score(logits, np.array([7, 999, 998]), np.array([7]))
    assert scores.top[0].tolist() == [5, 7, 0, 1, 2]
    assert scores.rank.tolist() == [2, 1, 2]
    assert scores.tied.tolist() == [True, False, False]
    assert (scores.right.tolist(), scores.forgiven.tolist()) == ([False, True, False], [True, False, True])


def test_a_tie_for_the_fifth_place_counts() -> None:
    logits = np.arange(1000, dtype=np.float32)[None].repeat(2, 0)
    logits[0, 3] = 995  # the fifth best is now class 3, not 995
    logits[1, 3] = 994  # ties with the sixth: nothing of what is printed hangs on it
    scores = score(logits, np.array([999, 999]), np.array([999]))
    assert scores.top[:, 4].tolist() == [3, 995]
    assert scores.tied.tolist() == [True, False]


def test_batches_join_to_the_same_scores() -> None:
    rng = np.random.default_rng(1)
    logits, label, subset = rng.normal(size=(50, 30)).astype(np.float32), rng.integers(0, 30, 50), np.arange(5)
    whole = score(logits, label, subset)
    parts = Scores.join([score(logits[s], label[s], subset) for s in (slice(0, 7), slice(7, 50))])
    for name in ("label", "top", "probability", "rank", "best_of_subset", "tied"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


def test_counts_add_up_and_a_contradiction_stops_the_program() -> None:
    label = np.array([1, 2, 3, 4])
    scores = plant(label, 3, 2)
    counts = count(scores)
    assert (counts.right, counts.forgiven, counts.rest, counts.wrong) == (1, 2, 1, 3)
    assert (counts.top1, counts.top5) == (25.0, 75.0)
    with pytest.raises(RuntimeError, match="do not add up"):
        count(replace(scores, rank=np.array([1, 1, 1, 1])))


def test_a_permuted_label_list_gives_the_same_answers_by_wnid() -> None:
    rng = np.random.default_rng(2)
    logits, truth = rng.normal(size=(300, 1000)).astype(np.float32), rng.integers(0, 10, 300)
    order = rng.permutation(1000)
    wnids = [WNIDS[k] for k in order]
    own, moved = (map_classes("m", list_, NAMES, "d", IMAGENETTE).columns for list_ in (WNIDS, wnids))
    plain = score(logits, own[truth], own)
    permuted = score(logits[:, order], moved[truth], moved)
    assert [[wnids[k] for k in row] for row in permuted.top] == [[WNIDS[k] for k in row] for row in plain.top]
    np.testing.assert_array_equal(permuted.rank, plain.rank)
    np.testing.assert_array_equal(order[permuted.best_of_subset], plain.best_of_subset)


FIRST = [name.partition(",")[0] for name in NAMES]
OWN_HEAD = ["Egyptian_cat", "beagle", "pug", "Sphynx", "Bombay", "Birman", "boxer", "Persian", "Ragdoll", "havanese"]


@pytest.mark.parametrize(
    ("wnids", "names", "class_ids", "how", "places"),
    [
        (WNIDS, NAMES, ["tench", "English_springer", "church"], "by name", [0, 217, 497]),
        (WNIDS, NAMES, ["church, church building", "harp", "missile", "Cardigan"], "by name", [497, 594, 657, 264]),
        (WNIDS, NAMES, FIRST, "by name", list(range(1000))),
        (WNIDS, NAMES, [*map(str, range(999, -1, -1))], "by number, in the usual", list(range(999, -1, -1))),
        (WNIDS[::-1], NAMES[::-1], [*map(str, range(1000))], "by number, in the usual", list(range(999, -1, -1))),
        ((), OWN_HEAD, ["Beagle", "egyptian cat", "Ragdoll"], "by name, among the model's own 10", [1, 0, 8]),
        ((), [f"LABEL_{i}" for i in range(10)], [*"9876543210"], "by number", list(range(9, -1, -1))),
    ],
)
def test_classes_by_name_and_by_number(wnids, names, class_ids, how, places) -> None:
    found = map_classes("a/model", wnids, names, "pics", class_ids)
    assert found.how.startswith(how)
    assert found.columns.tolist() == places


@pytest.mark.parametrize(
    ("wnids", "names", "class_ids", "words"),
    [
        (
            (),
            [f"LABEL_{i}" for i in range(21841)],
            IMAGENETTE,
            r"21,841 classes \(ImageNet-21k\) and none of them has a",
        ),
        ((), OWN_HEAD, IMAGENETTE, "10 classes, and 'n01440764' of data pics is none of them"),
        ((), OWN_HEAD, [*"0123456789"], "10 classes, and '0' of data pics is none"),  # its labels are no numbers
        ((), [*OWN_HEAD, "Pug"], ["pug", "boxer"], r"class 'pug' of data pics \(pug\) stands twice in"),
        ((), [], IMAGENETTE, "no list of labels"),
        ([*WNIDS[:-1], WNIDS[0]], NAMES, IMAGENETTE, r"\(n01440764\) stands twice"),
        ([w for w in WNIDS if w != IMAGENETTE[3]] + ["n99999999"], NAMES, IMAGENETTE, "n03000684.* is not in its list"),
        (WNIDS, NAMES, ["tench", "crane"], r"'crane' fits 2 of ImageNet-1k's classes \(n02012849, n03126707\)"),
        (WNIDS, NAMES, ["tench", "sand viper"], "'sand viper' fits 2 of"),
        (WNIDS, NAMES, ["tench", "Ragdoll"], "'Ragdoll' is none of ImageNet-1k's"),
        (WNIDS, NAMES, ["tench", "Tinca tinca"], "'tench' and 'Tinca tinca' are one of ImageNet-1k's"),
        (WNIDS, NAMES, [*"0123456789"], "'0' is none of ImageNet-1k's"),  # ten numbers: of whose list?
        (WNIDS, NAMES, [], "it has no classes"),
    ],
)
def test_other_heads_and_other_classes_are_refused_with_the_reason(wnids, names, class_ids, words) -> None:
    with pytest.raises(UserError, match=words) as error:
        map_classes("a/model", wnids, names, "pics", class_ids)
    assert "\n" not in str(error.value)


def test_classes_of_one_name_are_told_apart_by_wnid() -> None:
    bird, machine = [i for i, name in enumerate(NAMES) if name == "crane"]
    logits = np.zeros((1, 1000), np.float32)
    logits[0, [bird, machine]] = 2, 3
    own = map_classes("m", WNIDS, NAMES, "d", [WNIDS[bird]]).columns
    scores = score(logits, own[[0]], own)
    assert (scores.right[0], scores.rank[0]) == (False, 2)  # a "crane", but not this one
    names = scoring.distinct_names(NAMES, WNIDS)
    assert names[bird] == f"crane ({WNIDS[bird]})"
    assert names[0] == "tench"
    rows = script.class_rows(scoring.by_class(scores, own, NAMES, WNIDS))
    assert rows[0][-1] == f"crane ({WNIDS[machine]}) 1"
    assert sum("maillot (" in name for name in names) == 2


def test_confusions_are_ordered_by_count_then_index() -> None:
    label = np.zeros(9, np.int64)
    scores = plant(label, 8, 0)
    scores.top[:8, 0] = [7, 7, 3, 3, 9, 5, 5, 5]
    rows = scoring.by_class(scores, np.array([0, 1]), NAMES, WNIDS)
    names = scoring.distinct_names(NAMES, WNIDS)
    frequent = [(names.index(wrong["class"]), wrong["images"]) for wrong in rows[0]["wrong top-1"]]
    assert frequent == [(5, 3), (3, 2), (7, 2)]
    assert list(rows[0].values())[:-1] == ["tench", "n01440764", 9, 1, 1, 9]
    assert list(rows[0])[2:6] == ["images", "top-1", "top-5", "top-1 among the data set's classes"]
    assert script.class_rows(rows[1:]) == [["goldfish", "0", "-", "-", "-", "none"]]


# ------------------------------------------------------------------------------------------------ the draw, the origins


def test_the_draw_is_from_the_list_sorted_by_file_name_as_text() -> None:
    names = ["n02102040_880.JPEG", "n02102040_8260.JPEG", "n02102040_2700.JPEG", "ILSVRC2012_val_00000293.JPEG"]
    assert scoring.in_file_order(names, np.arange(4)) == [3, 2, 1, 0]
    many = [f"{i}.JPEG" for i in range(100)]
    candidates = np.arange(0, 100, 2)
    ordered = sorted(many[i] for i in candidates)
    expected = sorted(random.Random(3).sample(ordered, 8))
    assert [many[i] for i in draw(many, candidates, 8, 3)] == expected
    assert [many[i] for i in draw(many, np.random.default_rng(0).permutation(candidates), 8, 3)] == expected
    assert draw(many, np.array([], np.int64), 8, 3) == []


def test_no_such_draw_gives_the_articles_rows(data_mirror: Path) -> None:
    names = sorted(load_images("imagenette", "validation", root=data_mirror).names)
    printed = [id.split("/")[1] for id in load("vit", "top5").numbers if id.endswith(".JPEG/top-1")]
    at_most = np.diff([names.index(file) for file in printed])  # places among the candidates are no farther apart

    def fits(places) -> bool:
        return bool((np.diff(np.sort(places)) <= at_most).all())

    assert at_most.min() == 2
    assert not fits(random.Random(3).sample(range(499), 8))
    assert fits(np.random.default_rng(3).choice(499, 8, replace=False))


def test_origins_and_their_intervals(tmp_path: Path) -> None:
    names = "ILSVRC2012_val_00000293.JPEG", "n02102040_880.JPEG", "cat.png"
    assert tuple(scoring.origin(name) for name in names) == scoring.ORIGINS
    scores = plant(np.array([1, 2, 3]), 1, 1)
    images = Images(["n02102040_1.JPEG", "n02102040_2.JPEG", "mine.png"], np.array([1, 2, 3]))
    way = Way("own", "planted", images, scores, count(scores))
    images_of = {"all": 3, "ImageNet validation, not seen": 0, "ImageNet training, seen": 2, "origin unknown": 1}
    assert {part: counts.images for part, counts in script.by_origin(way).items()} == images_of
    known = replace(way, images=replace(images, names=["n02102040_1.JPEG"] * 3))
    assert list(script.by_origin(known)) == list(images_of)[:3]
    with Record("vit", "top5", results=tmp_path, quiet=True) as record:
        script.tell_seen(record, [Classifier("m", "M", identity(), np.array([1, 2, 3]), CPU, [way])])
    rows = record.as_json()["tables"][0]["rows"]
    assert rows[1] == ["M", "ImageNet validation, not seen", "0", "-", "-"]
    assert rows[2] == ["M", "ImageNet training, seen", "2", "50.00% (9.45 to 90.55)", "100.00% (34.24 to 100.00)"]


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (82, 134), (348, 500), (3333, 3925), (1, 3)])
def test_wilson_equals_scipys(hits: int, n: int) -> None:
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert wilson(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert script.share(hits, n) == f"{100 * hits / n:.2f}% ({100 * expected.low:.2f} to {100 * expected.high:.2f})"


# -------------------------------------------------------------------------------------------------------- the images


def test_figures_stay_small_and_take_any_shape_and_any_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = [(160, 400), (500, 160), (1, 1), (224, 224)] * 6
    guesses = [("a name that is much too long for its place on the card", 0.9, False), ("tench", 0.001, True)]
    cards = [
        Card(rng.integers(0, 256, (*shape, 3)).astype(np.uint8), "f" * 60, "an endless label " * 4, 2, guesses)
        for shape in shapes
    ]
    for path in (
        draw_cards(tmp_path / "cards.png", "t" * 120, "note " * 80, cards[:8]),
        draw_sheet(tmp_path / "sheet.png", "title", "note", cards),
        draw_cards(tmp_path / "none.png", "title", "note", []),
    ):
        assert path.stat().st_size < 1_000_000  # noise: the worst case for PNG
        with Image.open(path) as image:
            assert image.width < 1100
    before = (tmp_path / "sheet.png").read_bytes()
    assert draw_sheet(tmp_path / "sheet.png", "title", "note", cards).read_bytes() == before


# ---------------------------------------------------------------------------------------------------------- end to end

TABLE = torch.zeros(256, 1000)  # logits by grey level


class Planted(torch.nn.Module):
    """Reads the grey level and answers with its row of TABLE."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return TABLE[(x.mean((1, 2, 3)) * 255).round().long()]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """A folder of 14 flat images of two classes, grey (mode L) ones among them, and a classifier that knows them."""
    monkeypatch.setenv("PAPERS_CACHE", str(tmp_path / "cache"))
    tench, church, altar = 0, WNIDS.index("n03028079"), WNIDS.index("n02699494")
    TABLE.zero_()
    for level in range(14):
        label = tench if level < 7 else church
        TABLE[level * 10, :5] = torch.arange(5.0, 0, -1)
        if level % 7 < 3:
            TABLE[level * 10, label] = 9  # right
        elif level % 7 < 6:
            TABLE[level * 10, [altar, label]] = torch.tensor([9.0, 8.0])  # second
        else:
            TABLE[level * 10, [7, 8, altar, 10, 11]] = 9.0  # wrong, all five tied
        folder = tmp_path / "pics" / WNIDS[label]
        folder.mkdir(parents=True, exist_ok=True)
        mode = "L" if level % 2 else "RGB"
        colour = level * 10 if level % 2 else (level * 10,) * 3
        name = f"ILSVRC2012_val_{level:08d}.JPEG" if level % 7 < 2 else f"{WNIDS[label]}_{level}.JPEG"
        Image.new(mode, (12, 9 + level), colour).save(folder / name, format="PNG")
    loaded: list[str] = []

    def describe(spec: str, *, transform: str = "own", head: bool = False, revision=None) -> Identity:
        return identity("tiny", transform, spec=spec)

    def load_classifier(spec: str, choice: Choice, *, transform: str = "own") -> Encoder:
        loaded.append(transform)
        return Encoder(identity("tiny", transform, spec=spec), Planted(), choice, lambda _: pytest.fail("rebuilt"))

    monkeypatch.setattr(models, "describe", describe)
    monkeypatch.setattr(models, "load_classifier", load_classifier)
    return {"data": str(tmp_path / "pics"), "results": str(tmp_path / "results"), "loaded": loaded}


def run(tiny: dict, *more: str) -> int:
    model = [] if "--models" in more else ["--models", "a/tiny"]  # an option that takes several adds up when repeated
    arguments = [*model, "--data", tiny["data"], "--results", tiny["results"], "--device", "cpu", *more]
    with pytest.raises(SystemExit) as exit_:
        cli.run(script.main, Config, [*arguments, "--dtype", "float32"])
    return exit_.value.code


def test_a_known_classifier_gives_the_known_lines_and_counts(tiny: dict, capsys: pytest.CaptureFixture) -> None:
    assert run(tiny, "--gallery", "all") == 0
    screen = capsys.readouterr().out
    folder = Path(tiny["results"]) / "vit"
    log = (folder / "top5.log").read_text(encoding="utf-8")
    assert screen.strip() == log.strip()
    start = "== top-1 and top-5 accuracy over all 1000 ImageNet classes, on the 14 pics pictures =="
    assert log.startswith(
        f"{start}\n  tiny         top-1 42.86%   top-5 85.71%   top-1 wrong on 8 pictures, of which 6 "
    )
    assert "(all 6 there are):\n    n01440764_3.JPEG             label: tench            top-1: altar  " in log
    assert "6 right + 6 wrong with the label in the top 5 + 2 rest = 14 images\n" in log
    assert "equal logits on 2: the class with the lower number goes first" in log
    data = Record.load(folder / "top5.json")
    (model,) = data["results"]["models"].values()
    assert model["headline"]["right"] == 6
    outcomes = {"images": 4, "right": 4, "wrong, label in the top 5": 0, "rest": 0}
    not_seen = model["by origin"]["ImageNet validation, not seen"]
    assert not_seen == outcomes | {"top-1": 100.0, "top-5": 100.0}
    assert [row["top-1"] for row in model["by class"]] == [3, 3]
    assert model["by class"][1]["wrong top-1"][0] == {"class": "altar", "images": 3}
    assert [(way["way"], way["right"]) for way in model["ways"]] == [("own", 6), ("squash", 6), ("crop", 6)]
    assert len({way["preprocessing"] for way in model["ways"]}) == 2
    figures = [figure["path"] for figure in data["figures"]]
    assert figures == [f"figures/top5_{name}.png" for name in ("drawn", "wrong_n01440764", "wrong_n03028079")]
    assert all((folder / path).stat().st_size < 1_000_000 for path in figures)
    assert data["figures"][1]["caption"].startswith("tench: what stayed wrong; 1 of 7 images whose label is not among")
    assert {v["verdict"] for v in data["verdicts"]} == {"not run"}


def test_the_second_run_loads_no_model_and_writes_the_same_bytes(tiny: dict) -> None:
    assert run(tiny) == 0
    assert tiny["loaded"] == ["own", "crop"]  # squash is own here: computed once
    folder = Path(tiny["results"]) / "vit"
    first = [(folder / name).read_bytes() for name in ("top5.log", "figures/top5_drawn.png")]
    assert run(tiny) == 0
    assert tiny["loaded"] == ["own", "crop"]
    assert [(folder / name).read_bytes() for name in ("top5.log", "figures/top5_drawn.png")] == first


def test_two_models_of_one_name_are_kept_apart_by_spec(tiny: dict) -> None:
    assert run(tiny, "--models", "a/tiny", "b/tiny", "--gallery", "none") == 0
    data = Record.load(Path(tiny["results"]) / "vit" / "top5.json")
    assert list(data["results"]["models"]) == ["tiny", "b/tiny"]


def test_a_users_mistake_is_one_line_and_code_2(tiny: dict, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    assert run(tiny, "--data", "no/such/folder/here") == 2
    assert run(tiny, "--models", "a/tiny", "hf:a/tiny") == 2
    small = identity(label_wnids=(), label_names=("dog", "cat"))
    monkeypatch.setattr(models, "describe", lambda *a, **k: small)
    assert run(tiny) == 2
    error = capsys.readouterr().err.strip().split("\n")
    assert len(error) == 3
    assert "model hf:a/tiny: named twice" in error[1]
    assert "its head has 2 classes" in error[2]


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        (ROOT, ["papers/vit/vit_part4_top5.py"]),
        (ROOT / "papers" / "vit", ["vit_part4_top5.py"]),
        (ROOT, ["-m", "papers.vit.vit_part4_top5"]),
    ],
)
def test_the_script_starts_from_the_root_from_its_folder_and_as_a_module(folder: Path, command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command, "--help"], cwd=folder, capture_output=True, encoding="utf-8", check=True
    )
    assert "gallery-of" in done.stdout


@pytest.mark.parametrize("name", ["top5", "top5-offline"])
def test_the_configurations_parse(name: str) -> None:
    config = cli.read_config(Config, ROOT / "configs" / "vit" / f"{name}.toml")
    assert config.experiment == name
    if name == "top5":
        assert config.models == Config().models
        assert len(config.models) == 4
    else:
        assert config.stands_for in {row.partition("/")[2] for row in load("vit", "top5").rows}


@pytest.mark.slow
def test_the_offline_run_ends_in_the_committed_numbers(data_mirror: Path, monkeypatch, tmp_path: Path) -> None:
    committed = Record.load(ROOT / "results" / "vit" / "top5-offline.json")
    monkeypatch.setenv("PAPERS_DATA", str(data_mirror))
    with pytest.raises(SystemExit) as exit_:
        cli.run(script.main, Config, ["--config", "configs/vit/top5-offline.toml", "--results", str(tmp_path)])
    assert exit_.value.code == 0
    again = Record.load(tmp_path / "vit" / "top5-offline.json")
    assert [d["fingerprint"] for d in again["provenance"]["data"]] == [
        d["fingerprint"] for d in committed["provenance"]["data"]
    ]
    for name, model in committed["results"]["models"].items():
        got = again["results"]["models"][name]
        assert got["headline"]["top-1"] == pytest.approx(model["headline"]["top-1"], abs=0.1)  # other CPUs, other bits
        assert got["headline"]["top-5"] == pytest.approx(model["headline"]["top-5"], abs=0.1)
