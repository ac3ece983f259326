"""The parts of the probe, each against another way to the same answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score, r2_score
from sklearn.neighbors import KNeighborsClassifier

from shared.errors import UserError
from shared.probe import copies, lists, others, scores, shots
from shared.probe import head as heads
from shared.probe.images import stratified


def test_neighbours_vote_as_scikit_learns_do():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 80)
    rows = (rng.standard_normal((80, 8)) + labels[:, None]).astype(np.float32)
    queries = rng.standard_normal((30, 8)).astype(np.float32) + 1

    def weights(distances: np.ndarray) -> np.ndarray:
        return np.exp((1 - distances) / others.TEMPERATURE)

    for k, predicted in others.nearest(rows, labels, queries, 4).items():
        peer = KNeighborsClassifier(k, weights=weights, metric="cosine").fit(rows.astype(float), labels)
        assert (predicted == peer.predict(queries.astype(float))).all()
    assert others.nearest(rows[:12], labels[:12], queries, 4).keys() == {10}


def test_logistic_regression_learns_a_class_that_the_sweep_did_not_see():
    rng = np.random.default_rng(0)
    labels = np.array([0] * 20 + [1] * 20 + [2])
    rows = (rng.standard_normal((41, 5)) + 6 * labels[:, None]).astype(np.float32)
    fitted = np.ones(41, bool)
    fitted[[0, 20, 40]] = False
    found = others.logistic(rows, labels, fitted, rows[~fitted], labels[~fitted], rows)
    assert (found.predicted == labels).mean() > 0.9 and set(found.predicted) >= {0, 1}
    assert min(found.losses.values()) == found.losses[found.c]


def test_precision_and_r2_are_scikit_learns_and_lie_in_their_intervals():
    rng = np.random.default_rng(0)
    targets = rng.random((200, 3)) < [0.5, 0.2, 0.05]
    values = rng.standard_normal((200, 3)) + targets
    values[:50, 0] = np.round(values[:50, 0])  # ties
    own = scores.average_precisions(values, targets)[0]
    assert own == pytest.approx([average_precision_score(targets[:, k], values[:, k]) for k in range(3)])
    measure = scores.mean_average_precision(values, targets, seed=0)
    assert measure.low < measure.value < measure.high and measure.value == pytest.approx(own.mean())
    truth = rng.standard_normal((200, 2)) * [1, 100]
    guess = truth + rng.standard_normal((200, 2)) * [0.5, 80]
    measure = scores.r2(guess, truth, seed=0)
    assert measure.value == pytest.approx(r2_score(truth, guess)) and measure.low < measure.value < measure.high
    assert np.isnan(scores.r2(guess, np.ones((200, 2)), seed=0).value)  # nothing to explain
    assert np.isnan(scores.average_precisions(values, np.zeros((200, 3), bool))).all()


def test_a_probe_that_is_as_sure_as_it_is_right_is_calibrated():
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((4000, 5))
    shares = scores.softmax(logits, 1.0)
    labels = (shares.cumsum(1) < rng.random((4000, 1))).sum(1).clip(0, 4)
    assert scores.reliability(shares, labels).ece < 0.03 < scores.reliability(scores.softmax(logits, 0.2), labels).ece
    assert scores.fit_temperature(7 * logits, labels) == pytest.approx(7, rel=0.1)


def test_classes_are_counted_alike_by_all_measures():
    labels, predicted = np.array([0, 0, 0, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 0])
    assert scores.accuracy(predicted, labels).value == pytest.approx(4 / 6)
    assert scores.balanced_accuracy(predicted, labels, 4) == pytest.approx((0.75 + 1 + 0) / 3)  # class 3 has no image
    assert scores.confusion(predicted, labels, 3).tolist() == [[3, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_draws_take_what_a_small_class_has_and_never_a_selection_image():
    labels = np.repeat([0, 1, 2], [40, 6, 1])
    draws = shots.draw(labels, (1, 5, 10), 3, seed=0)
    assert draws.short == {1: 0, 5: 1, 10: 2}
    for protocol in (draws.chosen, draws.fixed):
        for k, of_k in protocol.items():
            for rows in of_k:
                assert len(set(rows)) == len(rows) and not set(rows) & set(draws.selection)
                assert np.bincount(labels[rows]).tolist() == [k, min(k, 5), 1]
    for smaller, larger in zip(draws.fixed[1], draws.fixed[5], strict=True):
        assert set(smaller) < set(larger)
    again = shots.draw(labels, (5,), 3, seed=0)
    assert all((a == b).all() for a, b in zip(again.chosen[5], draws.chosen[5], strict=True))


def test_few_shot_without_an_image_to_spare_has_a_fixed_lambda_only():
    labels = np.array([0, 1, 2])
    draws = shots.draw(labels, (1,), 2, seed=0)
    rows = np.eye(3, dtype=np.float32)
    assert shots.with_chosen_lambda(draws, rows, labels, rows, labels, "cpu") is None
    assert shots.with_fixed_lambda(draws, rows, labels, rows, labels).correct == {1: [3, 3]}


def test_a_cut_takes_a_share_of_each_class_and_never_all():
    classes = np.repeat([0, 1, 2, 3], [50, 10, 2, 1])
    chosen = stratified(classes, 0.2, [0])
    assert np.bincount(classes[chosen], minlength=4).tolist() == [10, 2, 1, 0]
    assert np.bincount(classes[stratified(classes, 0.99, [0])], minlength=4).tolist() == [49, 9, 1, 0]
    assert (stratified(classes, 0.2, [0]) == chosen).all() and (stratified(classes, 0.2, [1]) != chosen).any()


def test_near_copies_are_found_and_flat_images_are_none():
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (40, 8, 9)).astype(np.uint8)
    noisy = np.clip(grey[:5].astype(int) + rng.integers(-3, 4, (5, 8, 9)) + 10, 0, 255).astype(np.uint8)
    assert copies.near(noisy, grey) == [(i, i) for i in range(5)]
    flat = np.full((3, 8, 9), 200, np.uint8)
    assert copies.near(flat, flat) == [] and copies.near(grey[:20], grey[20:]) == []


@pytest.mark.parametrize(
    ("text", "task", "names", "first"),
    [
        ("file,target\na.png,cat\nb.png,dog\n", "classes", ["cat", "dog"], 0),
        ("\ufefffile;y\na.png;10\nb.png;9\n", "classes", ["9", "10"], 1),
        ("file\ttarget\na.png\t1.5\nb.png\t2\n", "number", ["target"], [1.5]),
        ("file,target\na.png,x;y\nb.png,\n", "labels", ["x", "y"], [1, 1]),
        ("label,path\ntrue,a.png\nfalse,b.png\n", "classes", ["false", "true"], 1),
        ("a,name\n1,a.png\n0,b.png\n", "classes", ["0", "1"], 1),
    ],
)
def test_a_list_says_what_its_targets_are(tmp_path, text, task, names, first):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    listed = lists.read(path, tmp_path, "", "", "auto")
    assert (listed.task, listed.names, listed.targets[0].tolist()) == (task, names, first)
    assert any(lists.WORDS[task] in note for note in listed.notes)


def test_a_list_in_parquet_with_columns_a_label(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    path = tmp_path / "list.parquet"
    pq.write_table(pa.table({"file": ["a.png"] * 2, "dog": [0, 1], "cat": [1, 1]}), path)
    assert lists.is_list(path)
    listed = lists.read(path, tmp_path, "", "dog,cat", "auto")
    assert listed.task == "labels" and listed.names == ["dog", "cat"] and listed.targets.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("", {}, "no rows"),
        ("file\na.png\n", {}, "one column only"),
        ("a.png,cat\nb.png,dog\n", {}, "the first line names a file (a.png)"),
        ("file,target\na.png,cat\nz.png,dog\n", {}, "1 of 2 files are not there, row 3"),
        ("file,target\na.png,cat,x\n", {}, "line 2: 3 cells where the first line has 2"),
        ("file,target,target\na.png,1,2\n", {}, "should name each column once"),
        ("file,u,v\na.png,1,2\n", {}, "which column is the target? There are u, v"),
        ("file,target\na.png,cat\n", {"label": "kind"}, "no column kind among file, target"),
        ("file,target\na.png,cat\n", {"task": "number"}, "row 2: target is 'cat', expected a number"),
        ("file,target\na.png,\n", {}, "no row has both a file and a target"),
        (b"file,target\na.png,\xff\n", {}, "not UTF-8"),
    ],
)
def test_a_bad_list_is_one_line_that_names_it(tmp_path, text, options, says):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    path = tmp_path / "list.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    settings = {"image": "", "label": "", "task": "auto"} | options
    with pytest.raises(UserError) as error:
        lists.read(Path(path), tmp_path, **settings)
    assert says in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_few_images_of_many_files_need_few_files(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from shared import parquet
    from shared.sources import Few, open_set

    rng = np.random.default_rng(0)
    for number in range(8):
        rows = [Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8)) for _ in range(6)]
        images = []
        for row in rows:
            row.save(tmp_path / "x.png")
            images.append({"bytes": (tmp_path / "x.png").read_bytes(), "path": None})
        (tmp_path / "x.png").unlink()
        labels = ["b" if number < 4 else "a"] * 3 + ["c"] * 3  # sorted by class, but for the last
        table = pa.table({"image": images, "label": labels})
        pq.write_table(table, tmp_path / f"train-{number:05d}-of-00008.parquet")
    read, source = [], parquet.source
    monkeypatch.setattr(parquet, "source", lambda files, *rest: read.append(len(files)) or source(files, *rest))
    collection = open_set(str(tmp_path))
    found = collection.load_some("train", Few(3, 0, 0))
    assert read[-1] < 8 and set(found.class_names) == {"a", "b", "c"} and np.bincount(found.labels).min() >= 3
    assert found.notes[-1] == f"read {read[-1]} of the 8 files of train, by seed 0, which are enough"
    assert len(collection.load_some("train", Few(30, 0, 0)).labels) == 48  # not enough anywhere: all of them


def test_a_few_images_of_a_repository_of_images_are_all_that_is_fetched(tmp_path, monkeypatch):
    from shared import hub
    from shared.sources import Few, open_set

    for name in ("train/cat", "train/dog", "test/cat", "test/dog"):
        (tmp_path / "me" / "pets" / name).mkdir(parents=True)
        for i in range(9):
            Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / "me" / "pets" / name / f"{i}.png")
    fetched, find = [], hub.find

    def recording(*arguments, **options):
        place = find(*arguments, **options)
        fetched.append(len(place.files))
        return place

    monkeypatch.setattr(hub, "find", recording)
    collection = open_set("me/pets", root=tmp_path)
    some = collection.load_some("train", Few(2, 0, 0))
    assert fetched[-1] == 4 and np.bincount(some.labels).tolist() == [2, 2] and some.class_names == ["cat", "dog"]
    assert len(collection.load_some("test", Few(0, 5, 0)).labels) == fetched[-1] == 5


def test_a_heads_answers_are_classes_labels_or_numbers(tmp_path):
    import dataclasses

    about = heads.About(
        heads.FORMAT, "labels", ["a", "b"], "m", "r", "0", "p", "own", "own", "float32", 1.0, 2.0, "d", 2, "f"
    )
    head = heads.Head(np.eye(2), np.array([0.0, 0.5]), about)
    head.save(tmp_path / "head.safetensors")
    loaded = heads.load(tmp_path / "head.safetensors")
    assert loaded.about == about and (loaded.weights == head.weights).all()
    values = loaded.scores(np.array([[0.9, 0.0], [0.1, -0.5]], np.float32))
    assert heads.answers(loaded, values, 3) == (
        ["labels", "a", "b"],
        [["a, b", "0.900", "0.500"], ["-", "0.100", "0.000"]],
    )
    loaded.about = dataclasses.replace(about, task="classes")
    assert heads.answers(loaded, values, 1) == (["class", "probability"], [["a", "0.550"], ["a", "0.512"]])
    loaded.about = dataclasses.replace(about, task="number")
    assert heads.answers(loaded, values, 1)[1] == [["0.9", "0.5"], ["0.1", "0"]]
