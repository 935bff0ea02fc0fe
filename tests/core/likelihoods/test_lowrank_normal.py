"""LowRankNormal as a PyMC distribution."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from compared import dense_marginal
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

FAST = {"mode": "FAST_COMPILE"}
RNG = np.random.default_rng(3)
N, R = 7, 3
PHI = RNG.standard_normal((N, R))
MU, Y = RNG.standard_normal((2, N))
WEIGHTS = np.array([0.5, 1.0, 2.0])
KDIAG = (PHI**2 * WEIGHTS).sum(axis=1) + RNG.uniform(-0.5, 1.0, N)
SIGMA = {"scalar": 0.6, "row": np.linspace(0.3, 0.9, N)}


def covariance(approx, sigma):
    low = (PHI * WEIGHTS) @ PHI.T
    missed = np.maximum(KDIAG - np.diag(low), 0.0) * (approx == "FITC")
    return low + np.diag(np.broadcast_to(sigma, N) ** 2 + missed)


def dist(approx="DTC", sigma=0.6, mu=MU, **kwargs):
    return sgp.LowRankNormal.dist(mu, PHI, sigma, weights=WEIGHTS, kdiag=KDIAG, approx=approx, **kwargs)


@pytest.mark.parametrize("approx", ["DTC", "FITC", "VFE"])
@pytest.mark.parametrize("sigma", SIGMA)
def test_logp_against_scipy(approx, sigma):
    sigma = SIGMA[sigma]
    found = pm.logp(dist(approx, sigma), Y).eval(**FAST)
    expected = dense_marginal(PHI, np.square(sigma), Y - MU, WEIGHTS, KDIAG, approx)
    assert_allclose(found, expected, rtol=1e-11)


def test_defaults_are_unit_weights_no_correction_and_a_scalar_mean():
    found = pm.logp(sgp.LowRankNormal.dist(0.5, PHI, 0.6), Y).eval(**FAST)
    assert_allclose(found, dense_marginal(PHI, 0.36, Y - 0.5), rtol=1e-11)


def test_float32_and_integer_parameters():
    phi = np.round(3 * PHI)
    rv = sgp.LowRankNormal.dist(np.float32(0.5), phi.astype("float32"), 1, weights=np.array([1, 2, 3]))
    found = pm.logp(rv, Y).eval(**FAST)
    assert_allclose(found, dense_marginal(phi, 1.0, Y - 0.5, [1, 2, 3]), rtol=1e-11)


@pytest.mark.parametrize(("approx", "sigma"), [("DTC", "scalar"), ("FITC", "row"), ("VFE", "row")])
def test_draws_have_the_mean_and_covariance(approx, sigma):
    """40 000 draws: 4 standard errors are 0.02 sd of a mean, 0.03 of a covariance."""
    sigma = SIGMA[sigma]
    draws = pm.draw(dist(approx, sigma, size=40_000), random_seed=1, **FAST)
    assert draws.shape == (40_000, N)
    cov = covariance(approx, sigma)
    sd = np.sqrt(np.diag(cov))
    assert_allclose((draws.mean(axis=0) - MU) / sd, 0.0, atol=0.02)
    assert_allclose(np.cov(draws.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.03)


def test_seeds():
    rv = dist()
    first, second = (pm.draw(rv, random_seed=s, **FAST) for s in (1, 2))
    assert_allclose(pm.draw(rv, random_seed=1, **FAST), first)
    assert not np.allclose(first, second)
    two = pm.draw(rv, 2, random_seed=1, **FAST)
    assert not np.allclose(two[0], two[1])


def test_support_point_is_the_mean():
    with pm.Model() as model:
        sgp.LowRankNormal("f", MU, PHI, 0.6)
    assert_allclose(model.initial_point(0)["f"], MU)


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"obs": list("abcdefg")}) as model:
        mu = pm.Normal("mu")
        sigma = pm.HalfNormal("sigma")
        sgp.LowRankNormal("y", mu, PHI, sigma, kdiag=KDIAG + 5.0, approx="FITC", observed=Y, dims="obs")
    return model


def test_model_gradient_against_differences(model):
    logp, dlogp = model.compile_logp(**FAST), model.compile_dlogp(**FAST)
    point = {"mu": 0.3, "sigma_log__": -0.4}
    slopes = [
        (logp({**point, k: v + 1e-5}) - logp({**point, k: v - 1e-5})) / 2e-5 for k, v in point.items()
    ]
    assert_allclose(dlogp(point), slopes, rtol=1e-7)


def test_dims_and_predictive_draws(model):
    prior = pm.sample_prior_predictive(4, model=model, random_seed=1, compile_kwargs=FAST)
    assert prior["prior_predictive"]["y"].dims == ("chain", "draw", "obs")
    assert list(prior["observed_data"]["y"].coords["obs"].values) == list("abcdefg")
    posterior = {"mu": np.full((1, 800), 0.5), "sigma": np.full((1, 800), 0.6)}
    drawn = pm.sample_posterior_predictive(
        az.from_dict({"posterior": posterior}), model=model, random_seed=1, progressbar=False,
        compile_kwargs=FAST,
    )["posterior_predictive"]["y"].values[0]  # fmt: skip
    variance = np.maximum(KDIAG + 5.0, (PHI**2).sum(axis=1)) + 0.36
    assert_allclose((drawn.mean(axis=0) - 0.5) / np.sqrt(variance), 0, atol=0.15)
    assert_allclose(drawn.var(axis=0), variance, rtol=0.2)  # 4 sqrt(2 / 800)


def test_log_likelihood_is_one_number_a_draw(model):
    idata = az.from_dict({"posterior": {"mu": np.array([[0.5, 0.1]]), "sigma": np.array([[0.6, 1.0]])}})
    with model:
        pm.compute_log_likelihood(idata, progressbar=False, compile_kwargs=FAST)
    found = idata["log_likelihood"]["y"].values[0]
    expected = [
        dense_marginal(PHI, s**2, Y - m, kdiag=KDIAG + 5.0, approx="FITC")
        for m, s in [(0.5, 0.6), (0.1, 1.0)]
    ]
    assert found.size == 2
    assert_allclose(found.ravel(), expected, rtol=1e-10)


@pytest.mark.parametrize("sigma", [0.0, -0.5, np.nan])
def test_impossible_variance_gives_nan(sigma):
    s = pt.scalar(dtype="float64")
    logp = pytensor.function([s], pm.logp(sgp.LowRankNormal.dist(0.0, PHI, s), Y), **FAST)
    assert np.isnan(logp(sigma))
    assert np.isfinite(logp(1.0))


def test_refusals():
    with pytest.raises(ValueError, match="approx must be one of .DTC., .FITC., .VFE., got .SOR."):
        sgp.LowRankNormal.dist(0.0, PHI, 1.0, approx="SOR")
    with pytest.raises(ValueError, match="approx='FITC' needs kdiag"):
        sgp.LowRankNormal.dist(0.0, PHI, 1.0, approx="FITC")
    with pytest.raises(NotImplementedError, match="one vector at a time"):
        pm.logp(dist(size=4), np.zeros((4, N)))
    with pytest.raises(ValueError, match="sigma must be positive, got -0.5"):
        dist(sigma=-0.5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"phi": Y}, r"phi must have shape \(n, r\), got \(7,\)"),
        ({"phi": PHI[None]}, r"phi must have shape \(n, r\), got \(1, 7, 3\)"),
        ({"mu": np.ones(5)}, r"mu must be a scalar or have shape \(n,\) = \(7,\), .* phi, got \(5,\)"),
        ({"mu": np.ones((N, 1))}, r"mu must be a scalar or have shape .* got \(7, 1\)"),
        ({"sigma": np.ones(5)}, r"sigma must be a scalar or have shape \(n,\) = \(7,\), .* got \(5,\)"),
        ({"weights": np.ones(5)}, r"weights must have shape \(r,\) = \(3,\), .* phi, got \(5,\)"),
        ({"weights": 2.0}, r"weights must have shape \(r,\) = \(3,\), .* phi, got \(\)"),
        ({"kdiag": 8.0, "approx": "FITC"}, r"kdiag must have shape \(n,\) = \(7,\), .* phi, got \(\)"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_with_its_name(given, words):
    with pytest.raises(ValueError, match=words):
        sgp.LowRankNormal.dist(**{"mu": 0.0, "phi": PHI, "sigma": 0.6} | given)


def test_parameters_of_one_entry_hold_for_all_rows():
    found = pm.logp(sgp.LowRankNormal.dist([0.5], PHI, [0.6]), Y).eval(**FAST)
    assert_allclose(found, dense_marginal(PHI, 0.36, Y - 0.5), rtol=1e-11)


def test_draws_where_the_features_exceed_the_prior_variance():
    """Nothing is missed there: rounding must not take from the noise."""
    rv = sgp.LowRankNormal.dist(MU, PHI, 1e-6, kdiag=(PHI**2).sum(axis=1) - 1e-9, approx="FITC")
    assert np.isfinite(pm.draw(rv, random_seed=1, **FAST)).all()
