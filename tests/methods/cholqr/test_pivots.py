"""The factors behind CholQR: swaps keep them exact, and never raise the objective."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from pymc_scalable_gp.methods.cholqr import pivots
from pymc_scalable_gp.methods.cholqr.pivots import Candidates, PivotFactor, grow, swap

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (250, 2))
Y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) + 0.1 * RNG.standard_normal(250)
NOISE = 0.01


class Dense:
    """A kernel matrix that counts how many of its columns are asked for."""

    def __init__(self, K):
        self.K, self.asked, self.diag = K, 0, np.diag(K).copy()

    def columns(self, rows):
        self.asked += len(rows)
        return self.K[:, rows]


def gauss(X, ls=1.0):
    return np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2) / ls**2)


KERNEL = Dense(gauss(X))


def factor(m=20, seed=1, kernel=KERNEL, noise=NOISE):
    return PivotFactor(kernel, Y, noise, np.random.default_rng(seed).permutation(len(Y))[:m])


def dense_objective(K, pivots, noise, variational):
    root = np.linalg.cholesky(K[np.ix_(pivots, pivots)] + 1e-13 * np.eye(len(pivots)))
    phi = np.linalg.solve(root, K[pivots]).T
    cov = phi @ phi.T + noise * np.eye(len(Y))
    value = -stats.multivariate_normal(np.zeros(len(Y)), cov).logpdf(Y)
    return value + variational * 0.5 * (np.trace(K) - (phi**2).sum()) / noise


@pytest.mark.parametrize("variational", [False, True])
@pytest.mark.parametrize("noise", [1e-2, 1e-4])
def test_objective(variational, noise):
    found = factor(noise=noise)
    expected = dense_objective(KERNEL.K, found.pivots, noise, variational)
    assert_allclose(found.objective(variational), expected, rtol=1e-9)


def test_moving_and_replacing_keep_the_factors():
    found = factor()
    for place in (0, 7, 19, 3):
        found.to_last(place)
        assert found.drift() < 1e-13
        L, pivots = found.L[: found.size].T, found.pivots[: found.size]
        assert_allclose(np.triu(L[pivots], 1), 0.0, atol=1e-13)
        assert_allclose(L @ L[pivots].T, KERNEL.K[:, pivots], atol=1e-12)
    found.to_last(5)
    found.size -= 1
    row = int(np.setdiff1d(np.arange(250), found.pivots)[0])
    found.append(row, found.residual(row))
    assert found.drift() < 1e-13
    expected = dense_objective(KERNEL.K, found.pivots, NOISE, True)
    assert_allclose(found.objective(True), expected, rtol=1e-9)


@pytest.mark.parametrize("variational", [False, True])
def test_gain_is_the_fall_of_the_objective(variational):
    found = factor()
    found.to_last(4)
    smaller = PivotFactor(KERNEL, Y, NOISE, found.pivots[:-1])
    gain = found.gain(found.L[found.size - 1], variational)
    fall = smaller.objective(variational) - found.objective(variational)
    assert_allclose(gain, fall, rtol=1e-8)


@pytest.mark.parametrize("variational", [False, True])
def test_with_all_rows_as_information_pivots_the_gains_are_exact(variational):
    found = factor(m=8)
    found.to_last(2)
    gains = Candidates(found, 242, np.random.default_rng(0)).gains(7, variational)
    for row in np.flatnonzero(np.isfinite(gains))[:40:5]:
        exact = found.gain(found.residual(row, 7), variational)
        assert_allclose(gains[row], exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variational", [False, True])
def test_gains_of_several_rows_are_those_of_each(variational, monkeypatch):
    found = factor()
    found.to_last(2)
    rows = np.setdiff1d(np.arange(250), found.pivots)[:30]
    exact = [found.gain(found.residual(r, 19), variational) for r in rows]
    for entries in (2**22, 1000):
        monkeypatch.setattr(pivots, "_ENTRIES", entries)
        assert_allclose(found.gains(rows, 19, variational), exact, rtol=1e-9)
    assert found.gains(found.pivots[:3], 19, variational).max() == -np.inf


def test_growing_takes_the_best_of_all_rows():
    """With every row's gain exact, the first pivots are those of the greedy search itself."""
    found = PivotFactor(KERNEL, Y, NOISE, [], room=6)
    candidates = Candidates(found, 16, np.random.default_rng(0), 10**4)
    for k in range(6):
        gains = found.gains(np.arange(250), k, True)
        grow(found, candidates, True)
        assert found.pivots[k] == np.argmax(gains)
    assert_allclose(found.objective(True), dense_objective(KERNEL.K, found.pivots, NOISE, True))


def test_few_information_pivots_rank_the_rows_well():
    found = factor()
    found.to_last(2)
    gains = Candidates(found, 16, np.random.default_rng(0)).gains(19, True)
    rows = np.flatnonzero(np.isfinite(gains))
    exact = found.gains(rows, 19, True)
    assert stats.spearmanr(gains[rows], exact).statistic > 0.7


@pytest.mark.parametrize("variational", [False, True])
def test_hundreds_of_swaps_never_raise_the_objective(variational):
    found, rng = factor(), np.random.default_rng(3)
    candidates, value, made = Candidates(found, 16, rng), found.objective(variational), 0
    first = value
    for step in range(300):
        if step % 20 == 0:
            candidates.redraw()
        made += swap(found, candidates, int(rng.integers(found.size)), variational)
        now = found.objective(variational)
        assert now <= value + 1e-9 * abs(value)
        value = now
    assert made > 10
    assert value < 0.8 * first
    assert found.drift() < 1e-12
    assert len(set(found.pivots)) == 20
    assert_allclose(value, dense_objective(KERNEL.K, found.pivots, NOISE, variational), rtol=1e-8)


def test_the_cached_residual_follows_swaps():
    found, rng = factor(), np.random.default_rng(3)
    candidates = Candidates(found, 10, rng)
    for _ in range(30):
        swap(found, candidates, int(rng.integers(found.size)), True)
    expected = KERNEL.K[candidates.rows] - found.L[:, candidates.rows].T @ found.L
    assert_allclose(candidates.rest, expected, atol=1e-11)


@pytest.mark.parametrize("verified", [1, 8])
def test_a_swap_costs_as_many_kernel_columns_as_gains_and_one(verified):
    kernel = Dense(gauss(X))
    found, rng = factor(kernel=kernel), np.random.default_rng(3)
    candidates = Candidates(found, 10, rng, verified)
    kernel.asked = 0
    for _ in range(10):
        swap(found, candidates, int(rng.integers(found.size)), True)
    assert kernel.asked <= 10 * (verified + 1)


def test_duplicates_are_left_out():
    rows = np.r_[X[:10], X[:10], X[20:250]]
    kernel = Dense(gauss(rows))
    found = PivotFactor(kernel, np.zeros(len(rows)), NOISE, [0, 10, 3, 13, 40])
    assert list(found.pivots[: found.size]) == [0, 3, 40]
    gains = Candidates(found, 16, RNG).gains(2, True)
    assert not np.isfinite(gains[[0, 10, 3, 13]]).any()


def test_an_indefinite_kernel_is_named():
    K = gauss(X)
    K[5] = K[:, 5] = 2.0 * K[5]
    K[5, 5] = 1.0
    with pytest.raises(ValueError, match="not positive semidefinite: given the other points, row"):
        PivotFactor(Dense(K), Y, NOISE, np.r_[5, np.arange(4), np.arange(6, 30)])


@pytest.mark.parametrize("seed", [99, 133, 255, 292])
def test_a_variance_that_rounding_made_negative_is_no_refusal(seed):
    """Random rows of a smooth kernel: the others are extrapolated, with weights of 10^5 and more."""
    x = np.random.default_rng(seed).uniform(0, 10, 200)[:, None]
    kernel = Dense(gauss(x, 1.5))
    found = PivotFactor(kernel, np.zeros(200), NOISE, np.arange(50))
    left = kernel.diag - (found.L**2).sum(axis=0)
    for row in range(200):
        new = found.residual(row)
        assert (new is None) == (left[row] <= pivots.DEPENDENT)


def test_an_indefinite_kernel_is_named_beside_points_that_nearly_depend():
    """The same rows, but one variance is too small by far more than rounding explains."""
    x = np.linspace(0, 10, 200)[:, None]
    K = gauss(x, 1.5)
    K[100, 100] -= 1e-3
    found = PivotFactor(Dense(K), np.zeros(200), NOISE, np.arange(0, 200, 7))
    assert found.size > 15
    with pytest.raises(ValueError, match="not positive semidefinite: given the other points, row 100"):
        found.residual(100)


def test_random_candidates_find_what_the_ranking_does_not_see():
    """One information pivot far from the only rows where y is not zero: the ranking is of the others."""
    x = np.linspace(0, 30, 120)[:, None]
    kernel, y = Dense(gauss(x) + 1e-6 * np.ones((120, 120))), np.zeros(120)
    y[5:9] = 10.0
    found = PivotFactor(kernel, y, NOISE, [60], room=2)
    drawn = Candidates(found, 1, np.random.default_rng(2), 40)
    assert abs(drawn.rows[0] - 7) > 30
    gains = drawn.gains(1, False)
    ranked = np.argsort(-gains)[: drawn.ranked]
    assert not set(ranked) & set(range(4, 11))
    best = drawn.best(1, False)
    assert 3 <= best <= 11
    assert found.gains(np.array([best]), 1, False) > found.gains(ranked, 1, False).max() + 100.0


def test_drifted_factors_are_renewed():
    found = factor()
    before = found.objective(True)
    found.renew()
    assert found.objective(True) == before
    found.Q *= 1.0 + 1e-7
    assert found.drift() > 1e-9
    found.renew()
    assert_allclose(found.objective(True), before, rtol=1e-12)


def test_either_error_is_drift():
    """A scaled triangle leaves Q orthogonal; a scale that moves from R to Q leaves their product."""
    found = factor()
    found.R *= 1.0 + 1e-7
    assert found.drift() > 1e-9
    found = factor()
    found.Q[: found.size] *= 1.0 + 1e-7
    found.R[: found.size, : found.size] /= 1.0 + 1e-7
    assert found.drift() > 1e-9
