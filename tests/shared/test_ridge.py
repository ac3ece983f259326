"""The closed form against independent solutions: exact arithmetic, scikit-learn, the normal equations."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from shared import ridge

LAMBDAS = [10.0**i for i in range(-4, 5)]


def exact_scores(x, y, z, penalty):
    """z (X'X + penalty I)^-1 X'Y with 60 digits."""
    with mpmath.workdps(60):
        X, Y, Z = (mpmath.matrix(a.astype(float).tolist()) for a in (x, y, z))
        system = X * X.T + mpmath.mpf(penalty) * mpmath.eye(X.rows)
        return np.array((Z * (X.T * (mpmath.inverse(system) * Y))).tolist(), dtype=float)


def normal_equations(x, y, z, penalty):
    x, z = x.astype(float), z.astype(float)
    return z @ np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)


def relative_error(measured, expected):
    return np.abs(measured - expected).max() / np.abs(expected).max()


def rows(kind: str, rng) -> np.ndarray:
    """float32 rows of every awkward kind; at most 24 of them, so that exact arithmetic stays quick."""
    r = rng.standard_normal
    a = {
        "n < d": lambda: r((16, 24)),
        "n > d": lambda: r((24, 14)),
        "ill-conditioned": lambda: r((16, 24)) * np.logspace(0, -6, 24),
        "rank 6": lambda: r((16, 6)) @ r((6, 24)),
        "duplicate rows": lambda: np.repeat(r((8, 24)), 2, axis=0),
        "duplicate rows, n > d": lambda: np.repeat(r((12, 10)), 2, axis=0),
        "large mean": lambda: 1e3 + r((16, 24)),
        "one row": lambda: r((1, 5)),
    }[kind]()
    return a.astype(np.float32)


KINDS = [
    *("n < d", "n > d", "ill-conditioned", "rank 6", "duplicate rows", "duplicate rows, n > d", "large mean"),
    "one row",
]


@pytest.mark.parametrize("scale", [1, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_exact_arithmetic(kind, scale):
    rng = np.random.default_rng(0)
    x = rows(kind, rng) * np.float32(scale)
    z = rng.standard_normal((3, x.shape[1])).astype(np.float32) * scale
    labels = np.arange(len(x)) % 3
    penalties = [1e-4, 1.0, 1e4]
    scores = ridge.Pool(x, labels, 3, z).scores(range(len(x)), penalties)
    for measured, penalty in zip(scores, penalties, strict=True):
        expected = exact_scores(x, ridge.targets(labels, 3).numpy(), z, penalty)
        assert relative_error(measured, expected) <= 1e-6, penalty


@pytest.mark.parametrize(("n", "d"), [(30, 64), (120, 40)])
@pytest.mark.parametrize("penalty", LAMBDAS)
def test_scores_equal_scikit_learn(n, d, penalty):
    rng = np.random.default_rng(1)
    x, z = rng.standard_normal((n, d)), rng.standard_normal((50, d))
    labels = rng.integers(0, 7, n)
    peer = Ridge(alpha=penalty, fit_intercept=False, solver="svd").fit(x, ridge.targets(labels, 7).numpy())
    scores = ridge.Pool(x, labels, 7, z).scores(range(n), [penalty])[0]
    assert relative_error(scores, peer.predict(z)) <= 1e-9


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40), d=st.integers(1, 40), k=st.integers(2, 5), power=st.integers(-1, 4), seed=st.integers(0, 99)
)
def test_scores_and_weights_equal_the_normal_equations(n, d, k, power, seed):
    rng = np.random.default_rng(seed)
    x, z, labels = rng.standard_normal((n, d)), rng.standard_normal((4, d)), rng.integers(0, k, n)
    penalty = 10.0**power
    expected = normal_equations(x, ridge.targets(labels, k).numpy(), z, penalty)
    assert relative_error(ridge.Pool(x, labels, k, z).scores(range(n), [penalty])[0], expected) <= 1e-8
    assert relative_error(z @ ridge.weights(x, labels, k, penalty).numpy(), expected) <= 1e-8


def test_the_float32_solve_fails_where_ours_is_right():
    """Features as encoders give them: a large common part, class differences that are small beside it."""
    rng = np.random.default_rng(2)
    classes, d = 20, 384
    means = 0.01 * rng.standard_normal((classes, d))

    def sample(labels):
        return (20 + means[labels] + 0.005 * rng.standard_normal((len(labels), d))).astype(np.float32)

    labels, truth = np.arange(200) % classes, np.arange(400) % classes
    x, z = sample(labels), sample(truth)
    y = ridge.targets(labels, classes)
    X, Z = torch.from_numpy(x), torch.from_numpy(z)
    w32 = torch.linalg.solve(X.T @ X + 1e-4 * torch.eye(d), X.T @ y.float())
    naive = float(((Z @ w32).argmax(1).numpy() == truth).mean())
    ours = ridge.Pool(x, labels, classes, z).correct([range(200)], [1e-4], truth)[0, 0] / 400
    double = (normal_equations(x, y.numpy(), z, 1e-4).argmax(1) == truth).mean()
    assert ours == double > 0.95
    assert naive < 0.5


def test_draws_of_several_sizes_are_sub_blocks_of_the_pool():
    """The pool's products are shared, draws come in any order and size, the counts are those of separate fits."""
    rng = np.random.default_rng(3)
    x, z = rng.standard_normal((60, 50)).astype(np.float32), rng.standard_normal((90, 50)).astype(np.float32)
    labels, truth = np.arange(60) % 6, np.arange(90) % 6
    draws = [rng.permutation(60)[:n] for n in (6, 55, 12, 30, 50, 45, 40)]  # 55 rows take the other side
    pool = ridge.Pool(x, labels, 6, z)
    counts = pool.correct(draws, LAMBDAS, truth[10:70], slice(10, 70))
    assert pool._gram is not None
    for draw, found in zip(draws, counts, strict=True):
        alone = ridge.Pool(x[draw], labels[draw], 6, z[10:70]).scores(range(len(draw)), LAMBDAS)
        classes = ridge.predict(torch.from_numpy(alone))[0].numpy()
        assert found.tolist() == (classes == truth[10:70]).sum(-1).tolist()


def test_classes_that_a_draw_lacks_are_tied_and_the_lowest_wins():
    """Equal targets give equal scores but for rounding, which differs between processors: noise must not decide."""
    rng = np.random.default_rng(9)
    x, z = rng.standard_normal((6, 50)), rng.standard_normal((40, 50))
    labels = np.array([0, 0, 1, 1, 3, 3])  # 2, 4 and 5 are lacking
    scores = ridge.Pool(x, labels, 6, z).scores(range(6), LAMBDAS)
    expected, tied = ridge.predict(torch.from_numpy(scores))
    assert not np.isin(expected, [4, 5]).any() and (expected == 2).any()
    assert tied.tolist() == (expected == 2).tolist()
    for seed in range(5):
        noise = 1 + 1e-12 * np.random.default_rng(seed).standard_normal(scores.shape)
        noisy, still_tied = ridge.predict(torch.from_numpy(scores * noise))
        assert (noisy == expected).all() and (still_tied == tied).all()


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.floats(1e-6, 1e6))
def test_predict_is_argmax_by_the_lowest_index_at_every_scale(row, scale):
    """Scores a hundredth apart are never tied, equal ones always, whatever their scale."""
    exact = np.round(row, 2)
    classes, tied = ridge.predict(torch.from_numpy(exact * scale)[None])
    assert classes.item() == exact.argmax()
    assert tied.item() == ((exact == exact.max()).sum() > 1)


def test_a_row_of_zeros_is_tied_and_goes_to_the_first_class():
    classes, tied = ridge.predict(torch.zeros(2, 3, dtype=torch.float64))
    assert classes.tolist() == [0, 0] and tied.all()


def test_draws_in_one_batch_equal_draws_alone():
    """What a CUDA device does: all draws of one size in one call. One of them is singular and takes the other way."""
    rng = np.random.default_rng(4)
    x, z = 1e3 * rng.standard_normal((30, 40)), 1e3 * rng.standard_normal((20, 40))
    x[1] = x[0]
    pool = ridge.Pool(x, np.arange(30) % 3, 3, z)
    draws = torch.tensor([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    together = torch.stack([s.clone() for s in pool._fit(draws, [1e-4, 1.0], slice(None))]).numpy()
    for j, draw in enumerate(draws):
        # of the largest score; products of numbers about 1e6 cancel here, and MKL's portable kernels leave 2e-9 of it
        assert relative_error(together[:, j], pool.scores(draw, [1e-4, 1.0])) <= 1e-8


def test_the_number_of_threads_does_not_change_a_bit():
    rng = np.random.default_rng(5)
    x, z = rng.standard_normal((200, 64)), rng.standard_normal((50, 64))
    pool = ridge.Pool(x, np.arange(200) % 10, 10, z)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(pool.correct([rng.permutation(200)[:n] for n in (10, 50, 150)], LAMBDAS, np.arange(50) % 10))
        assert torch.get_num_threads() == threads
        rng = np.random.default_rng(5)
        rng.standard_normal((200, 64)), rng.standard_normal((50, 64))
    torch.set_num_threads(before)
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_targets_are_plus_and_minus_one_and_rows_sum_to_two_minus_classes(labels):
    y = ridge.targets(np.array(labels), 7)
    assert set(y.unique().tolist()) == {-1.0, 1.0}
    assert (y.sum(1) == 2 - 7).all()
    assert y.argmax(1).tolist() == labels


@pytest.mark.parametrize(("n", "d"), [(8, 5), (6, 12)])
def test_standardised_weights_are_the_authors_recipe(n, d):
    """Mean and deviation of the draw's rows (not of the queries), 1e-5, a constant feature, all folded into W."""
    rng = np.random.default_rng(6)
    x, z = rng.standard_normal((n, d)).astype(np.float32) * 3 + 7, rng.standard_normal((4, d)).astype(np.float32)
    x[:, 2] = 1.5  # a feature that the draw does not vary
    mean, deviation = x.mean(0, dtype=float), x.std(0, dtype=float) + 1e-5
    sx, sz = (np.column_stack([(a - mean) / deviation, np.full(len(a), 100.0)]) for a in (x, z))
    labels = np.arange(n) % 3
    expected = normal_equations(sx, ridge.targets(labels, 3).numpy(), sz, 1024.0)
    w, bias = ridge.standardised_weights(x, labels, 3, 1024.0, constant=100.0)
    assert relative_error(z @ w.numpy() + bias.numpy(), expected) <= 1e-9


def test_the_articles_tiny_example():
    w = ridge.weights(np.array([[1.0, 0], [2, 1], [0, 2], [1, 3]]), np.array([0, 0, 1, 1]), 2, 1.0)
    np.testing.assert_allclose(w, [[0.625, -0.625], [-0.475, 0.475]], rtol=1e-14)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.array([0, 1, 3])}, "labels"),
        ({"labels": np.array([0, 1])}, "labels"),
        ({"queries": np.zeros((2, 5))}, "width"),
        ({"rows": np.array([[1.0, 2, 3, np.nan]] * 3)}, "finite"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {"rows": np.eye(3, 4), "labels": np.array([0, 1, 2]), "classes": 3, "queries": np.zeros((2, 4))}
    with pytest.raises(ValueError, match=message):
        ridge.Pool(**arguments | change)


def test_a_classifier_that_was_kept_does_not_change():
    """The solver works in memory that it uses again; what it gives away is the caller's."""
    rng = np.random.default_rng(8)
    for n in (4, 30):
        x, labels = rng.standard_normal((n, 9)), np.arange(n) % 3
        kept = ridge.weights(x, labels, 3, 1.0)
        copy = kept.clone()
        ridge.weights(-x, labels, 3, 1.0)
        assert (kept == copy).all()


def test_a_penalty_of_zero_and_an_empty_draw_are_refused():
    pool = ridge.Pool(np.eye(3, 4), np.array([0, 1, 2]), 3, np.zeros((2, 4)))
    with pytest.raises(ValueError, match="above 0"):
        pool.scores([0, 1], [0.0])
    with pytest.raises(ValueError, match="without rows"):
        pool.scores([], [1.0])
