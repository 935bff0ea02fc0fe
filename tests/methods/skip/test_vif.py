"""SKIPMarginal(approx="VIF"): features that never exceed the kernel, so that what they miss is one."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.utils.compiled import evaluate

c = pm.gp.cov
RNG = np.random.default_rng(0)
N = 40
X = 4.0 * RNG.uniform(size=(N, 2))
Y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * RNG.standard_normal(N)
NEW = RNG.uniform(-1.0, 5.0, size=(12, 2))  # beyond the grids too
FAST = {"mode": "FAST_COMPILE"}
POLYNOMIAL = {"c": 0.5, "d": 2.0, "offset": 1.0}
KERNELS = {
    "ExpQuad": lambda: c.ExpQuad(2, ls=1.0),
    "Matern12": lambda: sgp.cov.Product(c.Matern12, 2, ls=1.0),
    "Cosine": lambda: sgp.cov.Product(c.Cosine, 2, ls=3.0),
    "Periodic": lambda: c.Periodic(2, period=2.0, ls=1.0),
    "Polynomial": lambda: sgp.cov.Product(c.Polynomial, 2, **POLYNOMIAL),
    "Polynomial squared": lambda: 0.01 * c.Linear(2, c=1.0, active_dims=[0]) ** 2,
    "sum": lambda: c.ExpQuad(2, ls=1.0) + 0.1 * c.Periodic(2, period=2.0, ls=1.0),
}


def observed(kind, sigma, **settings):
    with pm.Model() as model:
        gp = kind(cov_func=settings.pop("kernel")(), **settings)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    return gp, model


@pytest.mark.parametrize("name", KERNELS)
def test_the_residual_is_a_covariance(name):
    """Few nodes and columns: what interpolation exceeded the kernel by was a hundredth of it."""
    gp = sgp.SKIPMarginal(cov_func=KERNELS[name](), rank=6, grid_size=12)
    gp.build(X)
    rows = pt.constant(np.concatenate([X, NEW]))
    feature_map = gp.feature_map.for_residual()
    phi, K = evaluate([feature_map.features(rows), KERNELS[name]()(rows)])
    assert feature_map.rank == phi.shape[1]
    values = np.linalg.eigvalsh(K - phi @ phi.T)
    assert values[0] > -1e-5 * np.diag(K).max()  # pm.gp's own distances are off by 1e-6


@pytest.mark.parametrize("name", often(KERNELS, "Matern12", "Periodic", "Polynomial", "sum"))
def test_all_neighbors_are_the_exact_gp(name):
    """Density, joint predictions and those of single rows: NaN before, most of them."""
    sigma = 0.01
    settings = {"approx": "VIF", "rank": 6, "grid_size": 12, "neighbors": N, "block": 4}
    gp, model = observed(sgp.SKIPMarginal, sigma, kernel=KERNELS[name], **settings)
    exact, reference = observed(sgp.ExactMarginal, sigma, kernel=KERNELS[name])
    assert_allclose(
        model.compile_logp(**FAST)({}), reference.compile_logp(**FAST)({}), rtol=1e-4, atol=1e-3
    )
    expected, cov = exact.predict(NEW, {}, model=reference)
    scale = np.diag(exact.predict(NEW, {}, model=reference)[1]).max() + sigma**2
    mean, found = gp.predict(NEW, {}, model=model)
    alone, var = gp.predict(NEW, {}, diag=True, model=model)
    assert_allclose(mean, expected, atol=2e-3 * np.abs(expected).max())
    assert_allclose(alone, mean, atol=1e-3 * np.abs(expected).max())
    prior = np.diag(KERNELS[name]()(NEW).eval()).max()
    assert_allclose(found, cov, atol=1e-3 * scale + 2e-7 * prior)
    assert_allclose(np.diag(found), var, atol=1e-4 * scale + 2e-7 * prior)


def test_draws_are_finite_with_few_neighbors():
    settings = {"approx": "VIF", "rank": 6, "grid_size": 12, "neighbors": 5, "block": 4}
    gp, model = observed(sgp.SKIPMarginal, 0.01, kernel=KERNELS["Cosine"], **settings)
    assert np.isfinite(model.compile_logp(**FAST)({}))
    with model:
        f = gp.conditional("f", NEW)
    draws = pm.draw(f, 20, random_seed=1, **FAST)
    mean, cov = gp.predict(NEW, {}, model=model)
    assert_allclose(draws.mean(axis=0), mean, atol=1e-8 + 5.0 * np.sqrt(np.diag(cov).max() / 20))
