"""Sums of GPs in state-space form: the likelihood of the sum, predictions of each part."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.utils.compiled import evaluate

cov = pm.gp.cov
RNG = np.random.default_rng(4)
X = 100.0 + RNG.uniform(0.0, 6.0, (40, 1))
Y = np.sin(2.0 * np.pi * X[:, 0]) + 0.3 * (X[:, 0] - 100.0) + 0.2 * RNG.standard_normal(40)
NEW = np.array([[101.3], [102.0], [105.5], [107.0]])
POINT = {"ell": 0.8, "eta": 1.3, "sigma": 0.2}
# Places of parts; two of them have states that stay as they are, and share a group.
CHOICES = [(0,), (1,), (2,), (0, 2), (0, 1, 2)]


def built(kind):
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell"), pm.HalfNormal("eta", 1.0)
        parts = [
            kind(cov_func=eta**2 * cov.Matern32(1, ls=ell), mean_func=pm.gp.mean.Constant(0.5)),
            kind(cov_func=0.7 * cov.Periodic(1, period=1.0, ls=0.9)),
            kind(cov_func=0.5 * cov.Linear(1, c=102.0) + cov.Periodic(1, period=2.5, ls=2.0)),
        ]
        total = parts[0] + parts[1] + parts[2]
        total.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma", 1.0))
    return parts, total, model


@pytest.fixture(scope="module")
def both():
    return built(sgp.StateSpaceMarginal), built(sgp.ExactMarginal)


def chosen(parts, places):
    first, *rest = (parts[place] for place in places)
    return sum(rest, start=first)


def test_the_density_is_that_of_the_sum(both):
    at = {"ell_log__": -0.2, "eta_log__": 0.1, "sigma_log__": -1.5}
    logp = [model.compile_logp()(at) for _, _, model in both]
    assert_allclose(logp[0], logp[1], rtol=1e-9)
    assert "AdditiveStateSpace" in repr(both[0][1])
    assert both[0][1].settings() == {"harmonics": 24}


@pytest.mark.parametrize("places", CHOICES)
def test_parts_are_predicted_as_by_the_dense_matrix(both, places):
    found = []
    for parts, total, model in both:
        gp, given = chosen(parts, places), {"gp": total}
        full = gp.predict(NEW, POINT, given=given, model=model)
        diag = gp.predict(NEW, POINT, diag=True, given=given, model=model)
        with model:
            name = f"f{len(model.named_vars)}"
            density = pm.logp(gp.conditional(name, NEW, given=given), pt.constant([0.5, 0, 1, 2]))
        found.append([*full, *diag, evaluate([density], POINT, model)[0]])
    for own, exact in zip(*found, strict=True):
        assert_allclose(own, exact, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("places", [(1,), (0, 2)])
def test_draws_of_a_part(both, places):
    """Functions of a part have its posterior mean and covariance."""
    (_, total, model), (parts, exact, exact_model) = both
    rows, count, rng = total.training, 3000, np.random.default_rng(1)
    part, _ = rows.of_parts(total.parts, places)
    joint = rows.with_new(pt.constant(NEW), part)
    white = rng.standard_normal((44, count)), rng.standard_normal((40, count))
    f = joint.drawn_given(rows.noise_of(), rows.data.residual, *white)
    f = evaluate([f], POINT, model)[0].T
    gp = chosen(parts, places)
    mean, expected = gp.predict(NEW, POINT, given={"gp": exact}, model=exact_model)
    mean = mean - (0.5 if 0 in places else 0.0)
    sd = np.sqrt(np.diag(expected))
    assert_allclose((f.mean(axis=0) - mean) / sd, 0.0, atol=0.08)
    assert_allclose(np.cov(f.T) / np.outer(sd, sd), expected / np.outer(sd, sd), atol=0.1)


def test_what_does_not_add():
    gp = sgp.StateSpaceMarginal(cov_func=cov.Matern32(1, ls=1.0))
    with pytest.raises(TypeError, match="cannot add StateSpaceMarginal and ExactMarginal"):
        gp + sgp.ExactMarginal(cov_func=cov.Matern32(1, ls=1.0))
