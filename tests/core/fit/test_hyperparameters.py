"""The flat vector of free variables: values, prior, starts, and L-BFGS with a wall."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

from pymc_scalable_gp.core.fit import hyperparameters
from pymc_scalable_gp.core.fit.hyperparameters import Hyperparameters

POINT = {"scale": np.array([0.5, 2.0]), "rate": 0.3, "share": 0.2}


def problem():
    """A graph of three variables, one of them a parent of another; a fourth is not reached."""
    with pm.Model() as model:
        rate = pm.Exponential("rate", 2.0)
        scale = pm.Gamma("scale", 2.0, rate, shape=2)
        share = pm.Uniform("share", 0.0, 0.5)
        pm.Normal("other")
    return model, scale.sum() * share


def value_at(hyper, graphs, theta):
    vector = pt.vector("theta", shape=(hyper.size,))
    return [g.eval({vector: theta}) for g in hyper.as_functions_of(vector, graphs)]


def test_the_variables_that_a_graph_depends_on_and_their_parents():
    model, graph = problem()
    hyper = Hyperparameters([graph], model)
    assert hyper.names == ["rate", "scale", "share"]
    assert hyper.size == 4
    assert_allclose(value_at(hyper, [graph], hyper.start(POINT))[0], 2.5 * 0.2)


def test_a_start_from_a_point_and_back():
    model, graph = problem()
    hyper = Hyperparameters([graph], model)
    found = hyper.untransformed(hyper.start(POINT | {"other": 3.0, "unknown": 1.0}))
    assert set(found) == set(POINT)
    for name, value in POINT.items():
        assert_allclose(found[name], value)
    assert hyper.in_words(hyper.start(POINT)) == "rate = 0.3, scale = [0.5 2. ], share = 0.2"


def test_a_start_from_the_initial_point_and_from_a_part_of_a_point():
    model, graph = problem()
    hyper = Hyperparameters([graph], model)
    initial = hyper.untransformed(hyper.start())
    assert_allclose([initial["rate"], initial["share"]], [0.5, 0.25])  # the priors' means
    partly = hyper.untransformed(hyper.start({"share": 0.1}))
    assert_allclose(partly["share"], 0.1)
    assert_allclose(partly["scale"], initial["scale"])
    start = hyper.start()
    start += 1.0
    assert_array_equal(hyper.start(), hyper.initial)


def test_the_prior_is_that_of_the_untransformed_values():
    model, graph = problem()
    hyper = Hyperparameters([graph], model)
    vector = pt.vector("theta", shape=(hyper.size,))
    found = hyper.log_prior(vector).eval({vector: hyper.start(POINT)})
    expected = (
        stats.expon(scale=0.5).logpdf(0.3)
        + stats.gamma(2.0, scale=1 / 0.3).logpdf(POINT["scale"]).sum()
        + stats.uniform(0.0, 0.5).logpdf(0.2)
    )
    assert_allclose(found, expected)


def test_nothing_free():
    model, _ = problem()
    for of in (model, None):
        hyper = Hyperparameters([pt.constant(2.0)], of)
        assert hyper.size == 0
        assert hyper.untransformed(hyper.start({"share": 0.1})) == {}
        graph = pt.constant(2.0)
        assert hyper.as_functions_of(pt.vector(), [graph]) == [graph]
        assert hyper.log_prior(pt.vector()).eval() == 0.0


@pytest.mark.parametrize(
    ("point", "match"),
    [
        ({"scale": 1.0}, r"point\['scale'\] has shape \(\), but the variable has shape \(2,\)"),
        ({"share": 0.7}, "outside the priors' support, at share = 0.7"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the logarithm of a negative number
def test_bad_points(point, match):
    model, graph = problem()
    with pytest.raises(ValueError, match=match):
        Hyperparameters([graph], model).start(point)


def test_discrete_variables_are_refused():
    with pm.Model() as model:
        which = pm.Bernoulli("which", 0.5)
    with pytest.raises(ValueError, match="which: discrete hyperparameters have no gradient"):
        Hyperparameters([which * 1.0], model)


# -- L-BFGS -----------------------------------------------------------------------------------------


def two_variables():
    with pm.Model() as model:
        both = pm.Normal("both", shape=2, initval=np.zeros(2))
    return Hyperparameters([both], model)


def bowl(theta):
    """Lowest, -3, at (1, 2)."""
    away = theta - np.array([1.0, 2.0])
    return away @ (np.array([1.0, 100.0]) * away) - 3.0, 2.0 * np.array([1.0, 100.0]) * away


def test_the_minimum():
    theta, value = two_variables().minimize(bowl, np.zeros(2), maxiter=50)
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

    theta, value = two_variables().minimize(counted, np.zeros(2), maxiter=100, restarts=2)
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

    theta, value = two_variables().minimize(objective, np.zeros(2), maxiter=100, restarts=restarts)
    assert_allclose(value, objective(theta)[0])
    assert 1.9 < theta[0] <= 2.0


def test_the_best_point_that_was_met_counts(monkeypatch):
    """Before the wall or not: whatever the optimiser ends with."""
    met = [np.array([0.9, 1.9]), np.array([0.5, 0.5])]

    def visit(objective, _start, **_options):
        for theta in met:
            objective(theta)

    monkeypatch.setattr(hyperparameters, "minimize", visit)
    theta, value = two_variables().minimize(bowl, np.zeros(2), maxiter=20)
    assert_array_equal(theta, met[0])
    assert value == bowl(met[0])[0]


def test_a_start_that_is_not_finite_is_returned_with_nan():
    start = np.array([3.0, 3.0])
    theta, value = two_variables().minimize(
        lambda theta: (np.inf, np.zeros(2)), start, maxiter=5, restarts=2
    )
    assert np.isnan(value)
    assert_array_equal(theta, start)


def test_never_above_the_start(monkeypatch):
    """Whatever the optimiser returns."""
    start = np.array([0.5, 0.5])
    worse = optimize.OptimizeResult(x=start + 9.0, fun=bowl(start + 9.0)[0])
    monkeypatch.setattr(hyperparameters, "minimize", lambda *args, **kwargs: worse)
    theta, value = two_variables().minimize(bowl, start, maxiter=20, restarts=1)
    assert value == bowl(start)[0]
    assert_array_equal(theta, start)


def test_restarts_go_on_while_they_gain():
    """One iteration a run: each run adds one."""
    values = [
        two_variables().minimize(bowl, np.zeros(2), maxiter=1, restarts=k)[1] for k in range(3)
    ]
    assert values[2] < values[1] < values[0] < bowl(np.zeros(2))[0]


def test_no_step_beyond_the_reach():
    """An objective without a minimum ends where a parameter has changed by e^10."""
    start = np.array([1.0, -2.0])
    theta, value = two_variables().minimize(
        lambda theta: (-theta.sum(), -np.ones(2)), start, maxiter=100
    )
    assert_allclose(theta, start + hyperparameters.REACH)
    assert_allclose(value, -theta.sum())
