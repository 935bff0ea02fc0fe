"""L-BFGS with a wall."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from pymc_scalable_gp.utils import lbfgs
from pymc_scalable_gp.utils.lbfgs import lowest


def bowl(theta):
    """Lowest, -3, at (1, 2)."""
    away = theta - np.array([1.0, 2.0])
    return away @ (np.array([1.0, 100.0]) * away) - 3.0, 2.0 * np.array([1.0, 100.0]) * away


def test_the_minimum():
    theta, value, _ = lowest(bowl, np.zeros(2), maxiter=50)
    assert_allclose(theta, [1.0, 2.0], atol=1e-4)
    assert_allclose(value, -3.0, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_wall_where_the_objective_is_not_finite(bad):
    """The first step lands far beyond it; the minimum lies just before it."""

    def objective(theta):
        value, slope = bowl(theta)
        return (bad, np.full(2, bad)) if theta[1] > 2.01 else (1e4 * value, 1e4 * slope)

    hits = []

    def counted(theta):
        found = objective(theta)
        hits.append(not np.isfinite(found[0]))
        return found

    theta, value, _ = lowest(counted, np.zeros(2), maxiter=100, reach=10.0, restarts=2)
    assert any(hits)
    assert_allclose(theta, [1.0, 2.0], atol=1e-3)
    assert_allclose(value, -3e4, rtol=1e-6)


@pytest.mark.parametrize(("height", "restarts"), [(0.0, 0), (1000.0, 2)])
def test_no_search_ends_behind_a_wall(height, restarts):
    """Downhill all the way to it: a step that gained is made longer, and lands behind.

    From 1000 one such step gains more than the wall is high: the run ends there, and another begins.
    """

    def objective(theta):
        if theta[0] > 2.0:
            return np.nan, np.full(2, np.nan)
        return height - 999.0 * theta[0] + theta[1] ** 2, np.array([-999.0, 2.0 * theta[1]])

    theta, value, _ = lowest(objective, np.zeros(2), maxiter=100, restarts=restarts)
    assert_allclose(value, objective(theta)[0])
    assert 1.9 < theta[0] <= 2.0


def test_the_best_point_that_was_met_counts(monkeypatch):
    """Before the wall or not: whatever the optimiser ends with."""
    met = [np.array([0.9, 1.9]), np.array([0.5, 0.5])]

    def visit(objective, _start, **_options):
        for theta in met:
            objective(theta)
        return optimize.OptimizeResult()

    monkeypatch.setattr(lbfgs, "minimize", visit)
    theta, value, _ = lowest(bowl, np.zeros(2), maxiter=20)
    assert_array_equal(theta, met[0])
    assert value == bowl(met[0])[0]


def test_a_start_that_is_not_finite_is_returned_with_nan():
    start = np.array([3.0, 3.0])
    theta, value, _ = lowest(lambda theta: (np.inf, np.zeros(2)), start, maxiter=5, restarts=2)
    assert np.isnan(value)
    assert_array_equal(theta, start)


def test_never_above_the_start(monkeypatch):
    """Whatever the optimiser returns."""
    start = np.array([0.5, 0.5])
    worse = optimize.OptimizeResult(x=start + 9.0, fun=bowl(start + 9.0)[0])
    monkeypatch.setattr(lbfgs, "minimize", lambda *args, **kwargs: worse)
    theta, value, _ = lowest(bowl, start, maxiter=20, restarts=1)
    assert value == bowl(start)[0]
    assert_array_equal(theta, start)


def test_restarts_go_on_while_they_gain():
    """One iteration a run: each run adds one."""
    values = [lowest(bowl, np.zeros(2), maxiter=1, restarts=k).value for k in range(3)]
    assert values[2] < values[1] < values[0] < bowl(np.zeros(2))[0]


def test_it_stops_where_it_is_told_and_evaluates_no_point_twice_in_a_row():
    seen = []

    def counted(theta):
        seen.append(theta.copy())
        return bowl(theta)

    found = lowest(counted, np.zeros(2), maxiter=50, stop=lambda theta, value: value < 0.0)
    assert -2.9 < found.value < 0.0
    assert all((one != two).any() for one, two in itertools.pairwise(seen))
    full = lowest(bowl, np.zeros(2), maxiter=50)
    assert_allclose(np.diag(full.hess_inv.todense()), [0.5, 0.005], rtol=0.3)
