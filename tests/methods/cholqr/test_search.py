"""The search in turns: what it starts from, which steps it takes, and when it ends."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.fit.hyperparameters import Hyperparameters
from pymc_scalable_gp.methods.cholqr import search
from pymc_scalable_gp.methods.cholqr.search import Hybrid, Target

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (100, 2))
Y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * RNG.standard_normal(100)
QUIET = {"progressbar": False}


def problem(count=12, **options):
    with pm.Model() as model:
        ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
        gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern52(2, ls=ell), n_inducing=count, **options)
    return gp, model, sigma


def hybrid(point=None):
    gp, model, sigma = problem()
    target = Target(gp, X, Y, sigma, model)
    found = Hybrid(target, True, 16, np.random.default_rng(0))
    found.begin(target.hyper.start(point), np.arange(12))
    return found


def test_the_objective_is_that_of_the_model():
    """Minus the bound on the evidence at the initial point, and the log prior."""
    found = hybrid()
    gp, model, sigma = problem()
    gp.build(X, indices=np.arange(12))
    with model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    logp = model.compile_logp(jacobian=False, mode="FAST_COMPILE")(model.initial_point())
    assert_allclose(-found.value(), logp, rtol=1e-6)


@pytest.mark.parametrize("claimed", [-1e6, 0.0])
def test_a_step_that_does_not_lower_the_objective_is_not_taken(monkeypatch, claimed):
    """Whatever the optimiser says of it: with other factors and other rows it may be worse."""
    found = hybrid({"ell": 1.0, "sigma": 0.7})
    before, theta, rows = found.value(), found.theta.copy(), found.pivots
    worse = theta + np.array([0.0, 3.0])
    monkeypatch.setattr(Hyperparameters, "minimize", lambda *args, **kwargs: (worse, claimed))
    found.improve(5)
    assert_array_equal(found.theta, theta)
    assert_array_equal(found.pivots, rows)
    assert found.value() == before


def test_a_step_that_lowers_it_is_taken(monkeypatch):
    found = hybrid({"ell": 1.0, "sigma": 3.0})
    before = found.value()
    better = found.theta - np.array([0.0, 2.0])
    monkeypatch.setattr(Hyperparameters, "minimize", lambda *args, **kwargs: (better, 0.0))
    found.improve(5)
    assert_array_equal(found.theta, better)
    assert found.value() < before - 10.0


def test_steps_that_cannot_be_evaluated_are_told(monkeypatch):
    found = hybrid()
    theta = found.theta.copy()
    monkeypatch.setattr(found.target, "loss", lambda theta, points: (np.nan, theta))
    with pytest.warns(UserWarning, match="the hyperparameters stay where they are.*at ell = "):
        found.improve(5)
    assert_array_equal(found.theta, theta)


def test_places_that_a_smooth_start_leaves_free_are_filled_later():
    gp, model, sigma = problem()
    gp.cov_func = pm.gp.cov.ExpQuad(2, ls=model["ell"])
    target = Target(gp, X, Y, sigma, model)
    found = Hybrid(target, True, 16, np.random.default_rng(0))
    found.begin(target.hyper.start({"ell": 50.0}), np.arange(40))
    few = len(found.pivots)
    assert few < 25
    found.theta = target.hyper.start({"ell": 0.8, "sigma": 0.2})
    found.factor, found.prior, _ = found._factor(found.theta, found.pivots)
    assert len(found.pivots) == 40
    found.begin(target.hyper.start({"ell": 50.0}), np.arange(40))
    found.theta = target.hyper.start({"ell": 0.8, "sigma": 0.2})
    found.greedy()
    assert len(found.pivots) == 40


def test_the_start_is_greedy_unless_rows_are_given():
    gp, model, sigma = problem(15)
    options = {"model": model, "rounds": 1, "swaps": 1, "steps": 0} | QUIET
    rows = np.random.default_rng(0).permutation(100)[:15]
    given = gp.select_inducing(X, Y, sigma, start=rows, **options)
    greedy = gp.select_inducing(X, Y, sigma, **options)
    assert_allclose(given.objective[0], greedy.objective[0])  # the same random rows
    assert len(given.objective) == 3
    assert len(greedy.objective) == 4
    assert greedy.objective[1] < given.objective[-1] - 1.0


def test_random_rows_to_start_from_are_distinct():
    rows = np.repeat(X[:20], 5, axis=0)
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern32(2, ls=0.5), n_inducing=18)
    options = {"rounds": 1, "swaps": 1, "max_seconds": 0.0} | QUIET
    chosen = gp.select_inducing(rows, np.repeat(Y[:20], 5), 0.1, **options)
    assert len(np.unique(rows[chosen.indices], axis=0)) == 18


def test_random_rows_to_start_from_are_the_first_of_a_random_order():
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern32(2, ls=0.5), n_inducing=18)
    assert_array_equal(gp._start_rows(X, None, 3), np.random.default_rng(3).permutation(100)[:18])


def test_duplicated_rows_to_start_from():
    rows = np.r_[X[:20], X[:20]]
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=4)
    with pytest.warns(UserWarning, match="1 of the 4 rows to start from depend on") as found:
        gp.select_inducing(rows, np.r_[Y[:20], Y[:20]], 0.1, start=[0, 20, 3, 5], **QUIET)
    assert found[0].filename == __file__
    assert gp.rank == 4
    assert len(np.unique(rows[gp.indices], axis=0)) == 4


def test_fewer_independent_rows_than_points():
    rows = np.repeat(X[:6], 5, axis=0)
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=10)
    with pytest.warns(UserWarning, match="only 6 of 10 inducing points are independent"):
        gp.select_inducing(rows, np.repeat(Y[:6], 5), 0.1, start=np.arange(0, 30, 3), **QUIET)
    assert gp.rank == 6


def test_an_interruption_returns_what_was_chosen(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "swap", interrupted)
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=5)
    with pytest.warns(UserWarning, match="interrupted") as found:
        chosen = gp.select_inducing(X, Y, 0.1, **QUIET)
    assert found[0].filename == __file__
    assert len(chosen.indices) == 5


def test_an_interrupted_step_ends_the_search_too(monkeypatch):
    gp, model, sigma = problem()
    loss, calls = Target.__init__, []

    def limited(self, *args):
        loss(self, *args)
        inner = self.loss

        def counted(*args):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return inner(*args)

        self.loss = counted

    monkeypatch.setattr(Target, "__init__", limited)
    with pytest.warns(UserWarning, match="interrupted"):
        chosen = gp.select_inducing(X, Y, sigma, model=model, **QUIET)
    assert len(calls) == 4
    assert len(chosen.indices) == 12


def test_the_bar_is_full_when_the_search_converges(bar_of):
    bar = bar_of(search)
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_inducing=5)
    chosen = gp.select_inducing(X, Y, 0.1, rounds=9)
    assert 1 <= len(chosen.proposed) < 9
    assert bar.completed == bar.total == 9
