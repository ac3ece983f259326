"""Ridge regression from sums: scikit-learn's numbers, leave-one-out by leaving out, and the same from any split."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from shared import gram
from shared.errors import UserError
from shared.paths import ROOT

LAMBDAS = (1e-3, 1.0, 100.0)


def rows(n: int = 60, d: int = 7, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features far from zero, some of them alike, and labels that they tell of."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    x = rng.standard_normal((n, d)) + 50 + np.eye(classes, d)[labels] * 2
    x[:, -1] = x[:, 0] + 1e-3 * x[:, -1]
    return x, labels


def sums_of(x, y, targets: int, block: int = 10_000) -> gram.Sums:
    sums = gram.Sums(x.shape[1], targets)
    for start in range(0, len(x), block):
        sums.add(x[start : start + block], y[start : start + block])
    return sums


def plus_minus(labels: np.ndarray, classes: int = 3) -> np.ndarray:
    return 2.0 * np.eye(classes)[labels] - 1


@pytest.mark.parametrize("n", [60, 5])
def test_weights_are_scikit_learns(n):
    from sklearn.linear_model import Ridge

    x, labels = rows(n)
    path = sums_of(x, labels, 3).solve()
    for lambda_ in LAMBDAS:
        theirs = Ridge(alpha=lambda_).fit(x, plus_minus(labels))
        w, b = path.weights(lambda_)
        np.testing.assert_allclose(x @ w.numpy() + b.numpy(), theirs.predict(x), atol=1e-8)
        if n > x.shape[1]:
            np.testing.assert_allclose(w.numpy(), theirs.coef_.T, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_left_out_scores_are_those_of_fits_without_the_row(kind):
    from sklearn.linear_model import Ridge

    x, labels = rows(20)
    numbers = np.random.default_rng(1).standard_normal((20, 2)) if kind == "numbers" else plus_minus(labels)
    given = numbers if kind == "numbers" else labels
    path = sums_of(x, given, numbers.shape[1]).solve()
    expected = np.empty((len(LAMBDAS), *numbers.shape))
    for i, lambda_ in enumerate(LAMBDAS):
        for row in range(len(x)):
            others = np.arange(len(x)) != row
            expected[i, row] = Ridge(alpha=lambda_).fit(x[others], numbers[others]).predict(x[[row]])[0]
    np.testing.assert_allclose(path.left_out(x, given, LAMBDAS).numpy(), expected, atol=1e-7)

    blocks = [(x[:13], given[:13]), (x[13:], given[13:])]
    found = path.leave_one_out(blocks, LAMBDAS)
    np.testing.assert_allclose(found.squared_error, ((expected - numbers) ** 2).sum(1), rtol=1e-6)
    assert found.rows == 20
    if kind == "labels":
        assert found.correct.tolist() == (expected.argmax(2) == labels).sum(1).tolist()
        assert found.correct[found.best()] == found.correct.max()
    assert found.best("squared_error") == found.squared_error.sum(1).argmin()


def test_equally_good_lambdas_give_the_largest():
    found = gram.LeaveOneOut((1.0, 9.0, 3.0), np.array([[2.0], [5.0], [2.0]]), np.array([4, 4, 4]), 4)
    assert found.best() == 1 and found.best("squared_error") == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_blocks_and_files_give_the_same_sums(tmp_path, dtype, monkeypatch):
    x, labels = rows(50)
    x = x.astype(dtype)
    whole = sums_of(x, labels, 3)
    monkeypatch.setattr(gram, "BLOCK", 8)
    apart = sums_of(x, labels, 3, block=11)
    merged = sums_of(x[:20], labels[:20], 3)
    merged.merge(gram.Sums(7, 3))
    merged.merge(sums_of(x[20:], labels[20:], 3))
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    np.save(files[0], x[:32])
    np.save(files[1], x[32:])
    from_files = gram.Sums(7, 3)
    for part in gram.blocks(files, labels, size=9):
        from_files.add(*part)
    for other in (apart, merged, from_files):
        same(whole, other)
    assert whole.count == 50
    np.testing.assert_allclose(whole.target_squares, ((plus_minus(labels) - plus_minus(labels).mean(0)) ** 2).sum(0))


def same(a: gram.Sums, b: gram.Sums) -> None:
    assert a.count == b.count
    for name in ("mean", "target_mean", "gram", "cross", "target_squares"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one - other).abs().max() <= 1e-10 * one.abs().max(), name


def test_blocks_are_dealt_out_to_the_processes_once_each(tmp_path):
    x, labels = rows(50)
    np.save(tmp_path / "a.npy", x)
    for source in ([tmp_path / "a.npy"], x):
        dealt = [list(gram.blocks(source, labels, size=7, rank=rank, world=3)) for rank in range(3)]
        assert [len(part) for part in dealt] == [3, 3, 2]
        places = np.concatenate([y for part in dealt for _, y in part])
        assert sorted(places) == sorted(labels)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no array", "no array that can be read"),
        (np.zeros(3), r"float64 \[3\]; expected features"),
        (np.zeros((2, 2), int), r"int64 \[2, 2\]"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_array_of_features_is_one_line(tmp_path, content, words):
    file = tmp_path / "x.npy"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        np.save(file, content)
    with pytest.raises(UserError, match=words) as error:
        list(gram.blocks([file], np.zeros(3)))
    assert "\n" not in str(error.value) and str(file) in str(error.value)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros((3, 6)), [0, 1, 2], "expected .n, 7."),
        (np.zeros((3, 7)), [0, 1], "as many targets"),
        (np.zeros((3, 7)), [0, 1, 3], "labels 0 to 3; expected 0 to 2"),
        (np.zeros((3, 7)), np.zeros((3, 2)), "expected labels .n., or numbers .n, 3."),
        (np.full((3, 7), np.nan), [0, 1, 2], "not finite"),
    ],
)
def test_what_does_not_fit_is_refused(x, y, words):
    with pytest.raises(ValueError, match=words):
        gram.Sums(7, 3).add(x, np.asarray(y))


def test_nothing_to_solve():
    with pytest.raises(ValueError, match="no rows"):
        gram.Sums(7, 3).solve()
    alike = sums_of(np.ones((4, 7)), np.array([0, 1, 2, 0]), 3).solve()
    with pytest.raises(ValueError, match="the same features"):
        alike.lambdas()
    assert alike.weights(1.0)[0].abs().max() == 0
    with pytest.raises(ValueError, match="above 0"):
        alike.weights(0)


def test_lambdas_follow_the_features_scale():
    x, labels = rows()
    small, large = (np.array(sums_of(scale * x, labels, 3).solve().lambdas()) for scale in (1, 10))
    np.testing.assert_allclose(large / small, 100, rtol=1e-3)
    assert len(small) == 10 and (np.diff(small) > 0).all()


def job(world: int) -> list[subprocess.Popen]:
    """This file as the processes of a job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world), "PYTHONPATH": str(ROOT)}
    return [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **own, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
        )
        for rank in range(world)
    ]


def test_two_processes_give_what_one_gives(tmp_path):
    outputs = []
    for process in job(2):
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        outputs.append(out)
    x, labels = rows(200)
    path = sums_of(x, labels, 3).solve()
    lambdas = path.lambdas(4)
    found = path.leave_one_out([(x, labels)], lambdas)
    expected = np.concatenate(
        [*(path.weights(some)[0].numpy().ravel() for some in lambdas), found.squared_error.ravel()]
    )
    for out in outputs:
        measured = np.frombuffer(out, dtype=np.float64)
        np.testing.assert_allclose(measured[:-5], expected, rtol=1e-10, atol=1e-10 * abs(expected).max())
        assert measured[-5:].tolist() == [*found.correct.tolist(), 200]


def main() -> None:
    """One process of a job: its own blocks, and what all of them together give."""
    from shared.device import rank_and_world

    rank, world = rank_and_world()
    x, labels = rows(200)
    sums = gram.Sums(7, 3)
    for part in gram.blocks(x, labels, size=17, rank=rank, world=world):
        sums.add(*part)
    sums.all_reduce()
    path = sums.solve()
    lambdas = path.lambdas(4)
    found = path.leave_one_out(gram.blocks(x, labels, size=17, rank=rank, world=world), lambdas)
    found.all_reduce()
    parts = [*(path.weights(lambda_)[0].numpy().ravel() for lambda_ in lambdas), found.squared_error.ravel()]
    sys.stdout.buffer.write(np.concatenate([*parts, found.correct, [found.rows]]).astype(np.float64).tobytes())


if __name__ == "__main__":
    main()
