"""Full posteriors against the exact Gaussian process, by long runs of NUTS."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

NAMES = ["ell", "eta", "sigma"]


def problem(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    d2 = (((X[:, None] - X) / [0.6, 0.9]) ** 2).sum(-1)
    f = np.linalg.cholesky(np.exp(-0.5 * d2) + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
    return X, f + 0.2 * rng.standard_normal(n)


def sample(make):
    X, y = problem()
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 4, 3, shape=2)
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 0.5)
        gp = make(eta**2 * pm.gp.cov.ExpQuad(2, ls=ell))
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        idata = pm.sample(1000, tune=500, chains=2, cores=2, random_seed=1, progressbar=False)
    return idata, gp, model


def moments(idata):
    posterior = idata["posterior"].to_dataset()
    ess = az.ess(posterior)
    stacked = {k: posterior[k].values.reshape(2000, -1) for k in NAMES}
    mean = np.concatenate([stacked[k].mean(axis=0) for k in NAMES])
    sd = np.concatenate([stacked[k].std(axis=0) for k in NAMES])
    size = np.concatenate([np.atleast_1d(ess[k].values) for k in NAMES])
    return mean, sd, size


@pytest.mark.slow
def test_the_posterior_is_that_of_the_exact_gp():
    """Rank 150 of a 12 x 12 grid leaves nothing out: only Monte Carlo error remains."""
    exact, _, _ = sample(lambda cov: pm.gp.Marginal(cov_func=cov))
    found, gp, model = sample(
        lambda cov: sgp.GriefGP(cov_func=cov, approx="FITC", grid=14, rank=150)
    )
    for idata in (exact, found):
        assert int(idata["sample_stats"]["diverging"].sum()) == 0
        rhat = az.rhat(idata["posterior"].to_dataset())
        assert max(float(rhat[k].max()) for k in NAMES) < 1.01
    (mean, sd, size), (other, other_sd, other_size) = moments(exact), moments(found)
    error = np.sqrt(sd**2 / size + other_sd**2 / other_size)
    assert_allclose((mean - other) / error, 0.0, atol=3.0)
    assert_allclose(other_sd / sd, 1.0, atol=0.15)
    point = {k: idata["posterior"][k].mean(("chain", "draw")).values for k in NAMES}
    assert gp.diagnostics(point=point, model=model)["missing_max"] < 0.01
