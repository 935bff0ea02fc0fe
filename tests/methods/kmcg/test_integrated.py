"""Any likelihood with the function integrated out, on a grid."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.likelihoods import laplace_mode
from pymc_scalable_gp.utils.compiled import evaluate

FAST = {"mode": "FAST_COMPILE"}
AXES = [np.linspace(0.0, 2.0, 6), np.array([0.0, 0.5, 0.8, 1.4, 2.0])]
MASK = np.ones((6, 5), bool)
MASK[[0, 2, 5], [1, 3, 0]] = False
GRID = sgp.RegularGrid(AXES, MASK)
RNG = np.random.default_rng(5)
F = np.sin(2.0 * GRID.points[:, 0]) + np.cos(GRID.points[:, 1])
Y = RNG.poisson(np.exp(F)).astype(float)
POINT = {"ell": 0.9, "eta": 1.2}
FEW = pytest.mark.filterwarnings("ignore:the features do not explain")


def counts(f):
    return pm.Poisson.dist(mu=pm.math.exp(f))


def kernel(ell=0.9, eta=1.2):
    return eta**2 * sgp.cov.Product(pm.gp.cov.Matern52, 2, ls=ell)


def made(X=GRID, y=Y, kind=sgp.KMCGMarginal, given=None, **options):
    """Model and GP with free parameters on the plain scale."""
    with pm.Model() as model:
        ell, eta = (pm.Flat(name, initval=value) for name, value in POINT.items())
        gp = kind(cov_func=kernel(ell, eta), **options)
        gp.marginal_likelihood("y", X=X, y=y, **(given or {"likelihood": counts}))
    return model, gp


def value(model, point=POINT):
    return float(model.compile_logp(**FAST)({k: np.array(v) for k, v in point.items()}))


def mode_of(C):
    """Mode, information and Laplace's log density of the counts, for a covariance C of the function."""
    from scipy.special import gammaln

    f = np.zeros(len(Y))
    for _ in range(100):
        W = np.exp(f)
        f = C @ np.linalg.solve(C + np.diag(1.0 / W), f + (Y - W) / W)
    W = np.exp(f)
    own = (Y * f - W - gammaln(Y + 1.0)).sum()
    logdet = np.linalg.slogdet(np.eye(len(Y)) + W[:, None] * C)[1]
    return f, W, own - 0.5 * f @ np.linalg.solve(C, f) - 0.5 * logdet


@FEW
def test_features_under_laplace_and_their_predictions():
    """Against dense algebra with the same features, on the grid and between its cells."""
    model, gp = made(n_iter=9)
    new = np.array([[0.3, 0.3], [1.1, 1.9], [40.0, -30.0]])
    with pm.Model():
        own = sgp.KMCGMarginal(cov_func=kernel(), n_iter=9)
        own.marginal_likelihood("y", X=GRID, y=Y, likelihood=counts)
        phi, at_new = (own.feature_map.features(pt.constant(x)).eval() for x in (GRID.points, new))
        direct = own.feature_map.features(own.training.X.tensor).eval()
    assert_allclose(direct, phi, rtol=1e-10, atol=1e-12)  # by axis, and row by row
    missed = np.diag(1.2**2 - (phi**2).sum(axis=1))
    f, W, expected = mode_of(phi @ phi.T + missed)
    assert_allclose(value(model), expected, rtol=1e-8)
    S = phi @ phi.T + missed + np.diag(1.0 / W)
    cross = at_new @ phi.T
    t, v, _ = evaluate([*gp.training.around_mean], POINT, model)
    assert_allclose(v, 1.0 / W, rtol=1e-6)
    assert np.abs(t - f - (Y - W) / W).max() > 0.05  # of the mean, not the mode
    mean = cross @ np.linalg.solve(S, t)
    var = 1.2**2 - np.diag(cross @ np.linalg.solve(S, cross.T))
    with pytest.warns(UserWarning, match="outside what the approximation covers"):
        found = gp.predict(new, POINT, diag=True, model=model)
    assert_allclose(found[0], mean, rtol=1e-6, atol=1e-8)
    assert_allclose(found[1], var, rtol=1e-6)
    assert_allclose([found[0][2], found[1][2]], [0.0, 1.2**2], atol=1e-8)  # the prior returns
    assert (gp.rank, gp.approx, gp.likelihood_path) == (9, "FITC", "Laplace, full")


@FEW
@pytest.mark.slow
def test_more_products_reach_the_exact_gp():
    exact = value(made(GRID.points, kind=sgp.ExactMarginal)[0])
    assert_allclose(value(made()[0]), exact, rtol=1e-9)  # few cells
    errors = [abs(value(made(n_iter=rank)[0]) - exact) for rank in (4, 12, 30)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-5  # all products of 6 x 5


@FEW
def test_the_gradient_is_that_of_the_density(monkeypatch):
    monkeypatch.setattr(laplace_mode, "TOLERANCE", 1e-12)
    monkeypatch.setattr(laplace_mode, "ADJOINT_TOLERANCE", 1e-12)
    model, _ = made(n_iter=9)
    logp, dlogp = model.compile_logp(**FAST), model.compile_dlogp(**FAST)
    at = {"ell": np.array(0.7), "eta": np.array(1.0)}
    for slope, name in zip(dlogp(at), at, strict=True):
        ends = [float(logp(at | {name: at[name] + k * 1e-3})) for k in (-2, -1, 1, 2)]
        assert_allclose(slope, (ends[0] - 8.0 * ends[1] + 8.0 * ends[2] - ends[3]) / 12e-3, rtol=1e-6)


@pytest.mark.parametrize("complete", [False, True])
def test_a_normal_distribution_is_gaussian_noise(complete):
    """By the dense matrix of few cells, beside that or the axes' eigenvectors."""
    X, y = (sgp.RegularGrid(AXES), RNG.standard_normal(30)) if complete else (GRID, F)
    own = made(X, y, given={"sigma": 0.3})[0]
    other = made(X, y, given={"likelihood": lambda f: pm.Normal.dist(f, 0.3)})[0]
    assert_allclose(value(other), value(own), rtol=1e-8)


@pytest.mark.slow
@FEW
def test_draws_targets_that_are_replaced_and_sums():
    with pm.Model() as model:
        targets = pm.Data("targets", Y)
        first = sgp.KMCGMarginal(cov_func=kernel(), n_iter=8)
        second = sgp.KMCGMarginal(cov_func=0.3 * pm.gp.cov.ExpQuad(2, ls=5.0), n_iter=4)
        gp = first + second
        gp.marginal_likelihood("y", X=GRID, y=targets, likelihood=counts)
        prior = pm.sample_prior_predictive(20, random_seed=1).prior_predictive["y"]
        before = model.compile_logp(**FAST)({})
        parts = [p.predict(GRID, {}, diag=True, given={"gp": gp})[0] for p in (first, second)]
        assert_allclose(sum(parts), gp.predict(GRID, {}, diag=True)[0], rtol=1e-8)
        pm.set_data({"targets": Y[::-1]})
        after = model.compile_logp(**FAST)({})
    assert prior.dtype == "int64"
    assert prior.shape == (1, 20, 27)
    assert before != after
    raster = np.full(MASK.shape, np.nan)
    raster[MASK] = Y
    assert value(made(y=raster)[0]) == value(made()[0])
    assert gp.approx == "FITC"


def test_refusals_and_the_warning():
    cov = kernel()
    with pm.Model(), pytest.raises(TypeError, match=r"made of Gaussian targets.*from_points"):
        sgp.KMCGMarginal(cov_func=cov).marginal_likelihood("y", X=GRID.points, y=Y, likelihood=counts)
    with pm.Model(), pytest.raises(ValueError, match="probes= are for Gaussian noise"):
        sgp.KMCGMarginal(cov_func=cov, probes=4).marginal_likelihood("y", X=GRID, y=Y, likelihood=counts)
    with pm.Model(), pytest.warns(UserWarning, match="the features do not explain .* raise n_iter=, now 2"):
        sgp.KMCGMarginal(cov_func=cov, n_iter=2).marginal_likelihood("y", X=GRID, y=Y, likelihood=counts)
