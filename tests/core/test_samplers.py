"""A tiny model through the samplers: they agree on the posterior within Monte Carlo error."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2, 2, 40))[:, None]
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(40)
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 5, 5), pm.HalfNormal("eta", 1)
        sigma = pm.HalfNormal("sigma", 0.5)
        gp = sgp.GriefGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ell), grid=10, rank=8)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return gp, model


NAMES = ["ell", "eta", "sigma"]


@pytest.fixture(scope="module")
def exact(model):
    """Posterior means and sds by quadrature over a grid of the three log parameters."""
    _, model = model
    logp = model.compile_logp(mode="FAST_COMPILE")
    axes = [np.linspace(-1.2, 1.2, 17), np.linspace(-1.4, 1.4, 13), np.linspace(-2.3, -0.9, 13)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    values = np.array([logp(dict(zip([f"{n}_log__" for n in NAMES], p, strict=True))) for p in points])
    weight = np.exp(values - values.max())
    weight /= weight.sum()
    mean = weight @ np.exp(points)
    return mean, np.sqrt(weight @ np.exp(points) ** 2 - mean**2)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "sampler", [pytest.param(each, marks=SLOW) for each in ("pymc", "nutpie", "numpyro")]
)
def test_posterior_means(model, exact, sampler):
    """300 draws, effective size 100 at worst: 4 standard errors are 0.4 sd.

    PyMC's own sampler runs in Python: nutpie, the default where it is installed, compiles by Numba.
    """
    if sampler in ("nutpie", "numpyro"):
        pytest.importorskip(sampler)
    _, model = model
    options = {"compile_kwargs": {"mode": "FAST_COMPILE"}} if sampler == "pymc" else {}
    idata = pm.sample(
        150, tune=300, chains=2, cores=1, random_seed=1, progressbar=False, model=model,
        compute_convergence_checks=False, nuts_sampler=sampler, **options,
    )  # fmt: skip
    mean, sd = exact
    found = np.array([float(idata["posterior"][n].mean()) for n in NAMES])
    assert_allclose((found - mean) / sd, 0.0, atol=0.4)
    assert int(idata["sample_stats"]["diverging"].sum()) <= 3


def test_find_map_and_predict(model):
    """The DataTree that find_MAP returns is a point."""
    gp, model = model
    point = pm.find_MAP(
        model=model, progressbar=False, return_inferencedata=True, jitter=False, random_seed=1,
        compile_kwargs={"mode": "FAST_COMPILE"},
    )  # fmt: skip
    mean, _ = gp.predict(np.array([[0.5]]), point=point, diag=True, model=model)
    assert_allclose(mean, np.sin(1.0), atol=0.15)
