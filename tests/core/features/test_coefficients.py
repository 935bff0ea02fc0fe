"""Posteriors of coefficients whose covariance is the identity minus a low-rank part."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from pymc.gp.mean import Zero

from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.likelihoods.predictor import Predictor
from pymc_scalable_gp.utils.compiled import IN_PYTHON

RNG = np.random.default_rng(0)
MAP = RNG.standard_normal((3, 5))
G = np.linalg.qr(RNG.standard_normal((5, 2)))[0] * [0.99, 0.4]  # I - GG' is positive definite
X = RNG.standard_normal((6, 3))
MEAN = RNG.standard_normal(5)


class Linear(FeatureMap):
    """Features X M: nothing is missed."""

    rank = 5

    def features(self, X):
        return X @ MAP

    def kernel_diag(self, X):
        return ((X @ MAP) ** 2).sum(axis=1)

    def outside(self, X):
        return None


def test_the_factor_is_a_root_of_the_covariance():
    phi = X @ MAP
    factor = Coefficients(pt.constant(MEAN), pt.constant(G), downdates=True).factor(phi).eval()
    assert_allclose(factor @ factor.T, phi @ (np.eye(5) - G @ G.T) @ phi.T, atol=1e-11)


def test_the_factor_of_a_diagonal_root_and_of_none():
    phi, root = X @ MAP, np.linspace(0.2, 1.0, 5)
    factor = Coefficients(pt.constant(MEAN), pt.constant(root)).factor(phi).eval()
    assert_allclose(factor @ factor.T, (phi * root**2) @ phi.T, atol=1e-12)
    assert Coefficients(pt.constant(MEAN), None).factor(phi) is None


@pytest.mark.parametrize("columns", [2, 5], ids=["tall", "square"])
def test_the_gradient_of_the_factor_where_singular_values_repeat(columns):
    """Every root of ``I - G G'`` is as good, but its slope is that of the root that is given."""
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0][:, :columns]
    weights = np.random.default_rng(2).standard_normal((6, 5))
    G = pt.dmatrix("G")
    factor = Coefficients(pt.constant(MEAN), G, downdates=True).factor(X @ MAP)
    loss = (factor * weights).sum()
    function = pytensor.function([G], [loss, pt.grad(loss, G)], mode=IN_PYTHON)
    at, direction = 0.8 * turn, np.random.default_rng(3).standard_normal((5, columns))
    high, low = (function(at + step * direction)[0] for step in (1e-6, -1e-6))
    assert_allclose((function(at)[1] * direction).sum(), (high - low) / 2e-6, rtol=1e-7)


def test_a_covariance_without_rank_has_a_factor():
    """Rounding may leave ``I - G'G`` below zero, where the coefficients are known."""
    G = np.eye(5)[:, :2] * (1.0 + 1e-15)
    factor = Coefficients(pt.constant(MEAN), pt.constant(G), downdates=True).factor(np.eye(5)).eval()
    assert_allclose(factor @ factor.T, np.eye(5) - G @ G.T, atol=1e-11)


def test_some_of_the_coefficients():
    part = Coefficients(pt.constant(MEAN), pt.constant(G), downdates=True).of(np.array([3, 1]))
    phi = X[:, :2]
    expected = phi @ (np.eye(2) - G[[3, 1]] @ G[[3, 1]].T) @ phi.T
    factor = part.factor(phi).eval()
    assert_allclose(part.mean.eval(), MEAN[[3, 1]])
    assert_allclose(factor @ factor.T, expected, atol=1e-11)


def test_draws_have_the_covariance():
    """20 000 draws: 5 standard errors are 0.05 of a covariance."""
    coef = Coefficients(pt.constant(MEAN), pt.constant(G), downdates=True)
    predictor = Predictor(Linear(), Zero(), coef, pt.constant(0.0), pm.Model())
    idata = xr.Dataset({"unused": ("sample", np.zeros(20_000))})
    found = predictor.mixture(X, idata, None, True, False, 1)
    f = found["f"].values[0]
    phi = X @ MAP
    cov = phi @ (np.eye(5) - G @ G.T) @ phi.T
    sd = np.sqrt(np.diag(cov))
    assert_allclose((f.mean(axis=0) - phi @ MEAN) / sd, 0.0, atol=0.035)
    assert_allclose(np.cov(f.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.05)
    assert_allclose(found["sd"], sd, rtol=1e-10)
