"""The flat vector of free variables: values, prior, starts, and how far a search goes."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

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
    start, before = hyper.start(), hyper.initial.copy()
    start += 1.0
    assert_array_equal(hyper.start(), before)


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


def test_draws_from_the_prior_are_of_all_variables_and_by_the_seed():
    model, graph = problem()
    hyper = Hyperparameters([graph], model)
    found = np.array(hyper.from_prior(5, np.random.default_rng(1)))
    assert found.shape == (5, 4)
    assert (np.ptp(found, axis=0) > 0.1).all()
    assert len(np.unique(found, axis=0)) == 5
    assert_array_equal(found, hyper.from_prior(5, np.random.default_rng(1)))
    values = [hyper.untransformed(each) for each in found]
    assert all(0.0 < each["share"] < 0.5 for each in values)
    with pm.Model() as model:
        flat = pm.HalfFlat("flat", initval=1.0)
    assert Hyperparameters([flat], model).from_prior(5, np.random.default_rng(1)) == []


def test_no_step_beyond_the_reach():
    """An objective without a minimum ends where a positive parameter has changed by e^10."""
    with pm.Model() as model:
        both = pm.HalfNormal("both", shape=2)
    start = np.array([1.0, -2.0])
    theta, value = Hyperparameters([both], model).minimize(
        lambda theta: (-theta.sum(), -np.ones(2)), start, maxiter=100
    )
    assert_allclose(theta, start + 10.0)
    assert_allclose(value, -theta.sum())


def test_what_may_be_any_number_has_no_reach():
    """Ten units are nothing where they are hundreds."""
    with pm.Model() as model:
        level, sd = pm.Normal("level", 0.0, 1e3), pm.HalfNormal("sd")
    hyper, far = Hyperparameters([level + sd], model), np.array([500.0, 3.0])
    theta, _ = hyper.minimize(
        lambda theta: (((theta - far) ** 2).sum(), 2.0 * (theta - far)), np.zeros(2), maxiter=100
    )
    assert_allclose(theta, far, rtol=1e-6)


def test_variables_of_another_model_are_not_taken_for_fixed_ones():
    model, graph = problem()
    copy = pm.do(model, {"rate": 1.0})
    with pytest.raises(ValueError, match="rate, scale, share of another model than this one"):
        Hyperparameters([graph], copy)
