"""LowRankNormal as a PyMC distribution."""

import numpy as np
import pymc as pm
import pytest
import scipy.stats as st

import pymc_scalable_gp as sgp

RNG = np.random.default_rng(3)
N, R = 12, 4
PHI = RNG.normal(size=(N, R))
Y = RNG.normal(size=N)
KDIAG = (PHI**2).sum(axis=1) + RNG.uniform(-0.2, 1.0, N)
SLACK = np.maximum(KDIAG - (PHI**2).sum(axis=1), 0.0)


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"obs": np.arange(N)}) as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        sgp.LowRankNormal("y", 0.5, PHI, sigma, observed=Y, dims="obs")
    return model


@pytest.mark.parametrize("sigma", [0.7, RNG.uniform(0.3, 1.0, N)], ids=["scalar", "per row"])
@pytest.mark.parametrize("approx", ["DTC", "FITC", "VFE"])
def test_logp_is_that_of_the_dense_normal(approx, sigma):
    weights = RNG.uniform(0.5, 2.0, R)
    q = (PHI**2) @ weights
    slack = np.maximum(KDIAG - q, 0.0)
    noise = np.broadcast_to(np.square(sigma), N)
    cov = (PHI * weights) @ PHI.T + np.diag(noise + (slack if approx == "FITC" else 0.0))
    expected = st.multivariate_normal(np.full(N, 0.5), cov).logpdf(Y)
    if approx == "VFE":
        expected -= 0.5 * (slack / noise).sum()
    dist = sgp.LowRankNormal.dist(0.5, PHI, sigma, weights=weights, kdiag=KDIAG, approx=approx)
    got = pm.logp(dist, Y).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(got, expected, rtol=1e-10)


@pytest.mark.parametrize("approx", ["DTC", "FITC"])
def test_draws_have_the_covariance(approx):
    dist = sgp.LowRankNormal.dist(1.0, PHI, 0.5, kdiag=KDIAG, approx=approx)
    draws = pm.draw(dist, 40_000, random_seed=1, mode="FAST_COMPILE")
    cov = PHI @ PHI.T + np.diag(np.full(N, 0.25) + (SLACK if approx == "FITC" else 0.0))
    # Standard error of a covariance entry: sqrt((S_ii S_jj + S_ij^2) / 40 000); five of them.
    se = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / 40_000)
    assert (np.abs(np.cov(draws.T) - cov) < 5 * se).all()
    assert (np.abs(draws.mean(axis=0) - 1.0) < 5 * np.sqrt(np.diag(cov) / 40_000)).all()


def test_it_is_an_observed_variable(model):
    (observed,) = model.observed_RVs
    assert observed.name == "y"
    assert model.named_vars_to_dims["y"] == ("obs",)


def test_predictive_and_log_likelihood(model):
    with model:
        prior = pm.sample_prior_predictive(20, random_seed=1)
        idata = pm.sample(
            30,
            tune=30,
            chains=2,
            progressbar=False,
            random_seed=1,
            compute_convergence_checks=False,
        )
        pm.sample_posterior_predictive(
            idata, extend_inferencedata=True, progressbar=False, random_seed=1
        )
        pm.compute_log_likelihood(idata, progressbar=False)
    assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "obs")
    assert idata["posterior_predictive"]["y"].shape == (2, 30, N)
    sigma = idata["posterior"]["sigma"].values[1, 4]
    expected = st.multivariate_normal(np.full(N, 0.5), PHI @ PHI.T + sigma**2 * np.eye(N)).logpdf(Y)
    np.testing.assert_allclose(idata["log_likelihood"]["y"].values[1, 4], expected, rtol=1e-8)


def test_replicates_differ():
    dist = sgp.LowRankNormal.dist(0.0, PHI, 1.0, size=(3,))
    draws = pm.draw(dist, random_seed=2, mode="FAST_COMPILE")
    assert draws.shape == (3, N)
    assert np.abs(draws[0] - draws[1]).max() > 0.1


def test_bad_arguments():
    with pytest.raises(ValueError, match="approx must be"):
        sgp.LowRankNormal.dist(0.0, PHI, 1.0, approx="PITC")
    with pytest.raises(ValueError, match="needs kdiag"):
        sgp.LowRankNormal.dist(0.0, PHI, 1.0, approx="FITC")
