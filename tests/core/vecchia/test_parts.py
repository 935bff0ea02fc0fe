"""Parts of a sum with neighbours: rows alone, jointly in several blocks, and in draws."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.vecchia import predictor

c = pm.gp.cov
RNG = np.random.default_rng(2)
N = 30
X = np.sort(RNG.uniform(0.0, 5.0, (N, 1)), axis=0)
Y = 0.5 * X[:, 0] + np.sin(4.0 * X[:, 0]) + 0.2 * RNG.standard_normal(N)
NEW = np.linspace(-0.5, 5.5, 9)[:, None]
ALL = {"n_inducing": 6, "neighbors": N, "block": 4, "pred_neighbors": 2 * N}


def summed(kind, options, **data):
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell"), pm.HalfNormal("eta", 1.0)
        parts = [
            kind(cov_func=eta**2 * c.Matern52(1, ls=3.0), mean_func=pm.gp.mean.Constant(0.4), **options),
            kind(cov_func=c.Periodic(1, period=1.6, ls=ell), **options),
            kind(cov_func=0.3**2 * c.Matern12(1, ls=0.2), **options),
        ]  # fmt: skip
        total = parts[0] + parts[1] + parts[2]
        total.marginal_likelihood("y", X, Y, **data)
    return parts, total, model


POINT = {"ell": 0.9, "eta": 1.3}


@pytest.fixture(scope="module")
def both():
    return [
        summed(kind, options, sigma=0.2)
        for kind, options in ((sgp.VecchiaMarginal, ALL), (sgp.ExactMarginal, {}))
    ]


def chosen(found, places):
    parts, total, model = found
    first, *rest = (parts[place] for place in places)
    return sum(rest, start=first), {"given": {"gp": total}, "model": model}


@pytest.mark.parametrize("places", [(2,), (0, 2), (1, 0, 2)])
def test_parts_are_those_of_the_exact_gp(both, places, monkeypatch):
    """In blocks of new rows, whose neighbours are those of earlier blocks too, and rows alone."""
    monkeypatch.setattr(predictor, "_ROWS", 4)
    (gp, near), (exact, dense) = (chosen(found, places) for found in both)
    mean, cov = exact.predict(NEW, POINT, **dense)
    for found in (gp.predict(NEW, POINT, **near), gp.predict(NEW, POINT, diag=True, **near)):
        assert_allclose(found[0], mean, rtol=1e-6, atol=1e-6)
        assert_allclose(found[1], cov if found[1].ndim == 2 else np.diag(cov), rtol=1e-6, atol=1e-6)
    mean_alone, cov_alone = gp.predict(NEW, POINT, joint=False, **near)
    assert_allclose(mean_alone, mean, rtol=1e-6, atol=1e-6)
    assert_allclose(np.diag(cov_alone), np.diag(cov), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_draws_of_a_part(both):
    """Whitened by the exact posterior they are standard normal."""
    (gp, near), (exact, dense) = (chosen(found, (0, 1)) for found in both)
    idata = xr.Dataset({k: (("chain", "draw"), np.full((1, 150), v)) for k, v in POINT.items()})
    mean, cov = exact.predict(NEW, POINT, **dense)
    options = {"draws": True, "progressbar": False, "random_seed": 1}
    found = gp.predict_posterior(NEW, idata, **options, **near)["f"].values[0]
    white = np.linalg.solve(np.linalg.cholesky(cov), (found - mean).T)
    assert_allclose(white.mean(axis=1), 0.0, atol=0.33)
    assert_allclose((white**2).mean(), 1.0, atol=0.16)
