"""The log determinant by probes: the default, its error, what is warned of, kernels of low rank."""

import re

import numpy as np
import pymc as pm
import pytest
from compared import figures_at
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp

FAST = {"mode": "FAST_COMPILE"}
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 1.0, (60, 1)), axis=0)
Y = np.sin(6.0 * X[:, 0]) + 0.1 * RNG.standard_normal(60)
GAP = X - X[:, 0]


def fixed(cov, y=Y, sigma=0.1, X=X, **options):
    """GP, model and log density without parameters."""
    with pm.Model() as model:
        gp = sgp.KMCGMarginal(cov_func=cov, **options)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return gp, model, float(model.compile_logp(**FAST)({}))


def free(X=X, y=Y, kernel=pm.gp.cov.ExpQuad, sigma=None, **options):
    """GP and model with a free lengthscale."""
    with pm.Model() as model:
        gp = sgp.KMCGMarginal(cov_func=kernel(1, ls=pm.HalfNormal("ell")), **options)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1 if sigma is None else sigma)
    return gp, model


def dense(K, y=Y, noise=0.01):
    return multivariate_normal.logpdf(y, np.zeros(len(y)), K + noise * np.eye(len(y)))


# -- defaults ---------------------------------------------------------------------------------------


def test_probes_are_the_default_on_scattered_rows():
    cov = pm.gp.cov.Exponential(1, ls=0.3)
    assert fixed(cov)[2] == fixed(cov, probes=8)[2]
    assert abs(fixed(cov)[2] - fixed(cov, n_iter=10, probes=0)[2]) > 20.0


def test_hyperparameters_of_a_sine_by_default():
    """The best of a grid is the exact GP's; the paper's form ends elsewhere."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0.0, 10.0, 150))
    y = np.sin(4.0 * x) + 0.2 * rng.standard_normal(150)
    grid = [(ell, sigma) for ell in (0.01, 0.25, 0.5, 1.0) for sigma in (0.1, 0.2, 0.3, 0.7)]
    squares = (x[:, None] - x) ** 2
    exact = [dense(np.exp(-0.5 * squares / ell**2), y, sigma**2) for ell, sigma in grid]
    best = {}
    for probes in (None, 0):
        with pm.Model() as model:
            ell, sigma = pm.Flat("ell"), pm.Flat("sigma")
            cov = pm.gp.cov.ExpQuad(1, ls=ell + 1.0)  # both start at 0
            gp = sgp.KMCGMarginal(cov_func=cov, n_iter=30, probes=probes)
            gp.marginal_likelihood("y", X=x[:, None], y=y, sigma=sigma + 1.0)
        logp = model.compile_logp(**FAST)
        found = [float(logp({"ell": ell - 1.0, "sigma": sigma - 1.0})) for ell, sigma in grid]
        best[probes] = grid[int(np.argmax(found))]
    assert best[None] == grid[int(np.argmax(exact))] == (0.5, 0.2)
    assert best[0] != (0.5, 0.2)


def test_as_many_steps_as_rows():
    """The default of 100 steps failed below 100 rows."""
    gp, *_ = fixed(pm.gp.cov.ExpQuad(1, ls=0.3))
    assert gp.rank == 60
    assert "n_iter=60" in repr(gp)
    with pytest.raises(ValueError, match="n_iter=100 exceeds the 60 rows"):
        fixed(pm.gp.cov.ExpQuad(1, ls=0.3), n_iter=100)
    one, two = (sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=a)) for a in (0.2, 1.0))
    assert (one.rank, (one + two).rank) == (100, 100)
    few = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=0.2), n_iter=7)
    assert (few + one).rank == 7


def test_probes_with_data_that_can_be_replaced():
    with pm.Model() as model:
        data_X, data_y = pm.Data("X", X), pm.Data("y_data", Y)
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.Exponential(1, ls=0.3), n_iter=20)
        gp.marginal_likelihood("y", X=data_X, y=data_y, sigma=0.1)
    logp = model.compile_logp(**FAST)
    for inputs, targets in ((X, Y), (X**2, Y[::-1])):
        pm.set_data({"X": inputs, "y_data": targets}, model=model)
        expected = fixed(pm.gp.cov.Exponential(1, ls=0.3), targets, X=inputs, n_iter=20)[2]
        assert_allclose(logp({}), expected, rtol=1e-10)
    pm.set_data({"X": X[:40], "y_data": Y[:40]}, model=model)
    with pytest.raises(ValueError, match="drawn for 60 rows, and X has another number now"):
        logp({})


# -- the error of the estimate ----------------------------------------------------------------------


def test_the_standard_error_covers_the_exact_density():
    """The errors of six seeds, in standard errors that the same runs report; and the known formula."""
    K = np.exp(-np.abs(GAP) / 0.6)
    reported = []
    with pm.Model() as model:
        for seed in range(6):
            gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.Exponential(1, ls=0.3), n_iter=30)
            gp.marginal_likelihood(f"y{seed}", X=X, y=Y, sigma=0.1, random_seed=seed)
            report = figures_at(gp, {})
            reported.append(report["logdet_se"])
    found = np.ravel(model.compile_logp(sum=False, **FAST)({}))
    ratios = (found - dense(K)) / (0.5 * np.array(reported))
    assert report["logdet_excess"] < 1e-3
    assert np.abs(ratios).max() < 3.5
    assert 0.3 < np.sqrt(np.mean(np.square(ratios))) < 1.8
    values, vectors = np.linalg.eigh(K + 0.01 * np.eye(60))
    log = (vectors * np.log(values)) @ vectors.T
    spread = np.sqrt(2.0 / 8.0) * np.linalg.norm(log - np.diag(np.diag(log)))
    assert_allclose(np.sqrt(np.mean(np.square(reported))), spread, rtol=0.25)


def test_few_steps_show_as_an_excess():
    """The quadrature's own error lies below the bound, and is most of the error with five steps."""
    cov = pm.gp.cov.Exponential(1, ls=0.1)
    few, many = (figures_at(fixed(cov, n_iter=steps, probes=16)[0], {}, model=pm.Model())
                 for steps in (5, 30))  # fmt: skip
    assert few["logdet_excess"] > 15.0
    assert many["logdet_excess"] < 1e-3
    signs = 2.0 * np.random.default_rng(0).integers(0, 2, (16, 60), dtype=np.int8) - 1.0
    K = np.exp(-np.abs(GAP) / 0.2)
    values, vectors = np.linalg.eigh(K)
    exact = np.mean((signs @ vectors) ** 2 @ np.log(values + 0.01))
    found = []
    for z in signs:
        Q = np.linalg.qr(np.column_stack([np.linalg.matrix_power(K, k) @ z for k in range(5)]))[0]
        nodes, rotation = np.linalg.eigh(Q.T @ K @ Q)
        found.append((rotation.T @ (Q.T @ z)) ** 2 @ np.log(nodes + 0.01))
    error = np.mean(found) - exact
    assert 0.3 * few["logdet_excess"] < error < few["logdet_excess"]


def test_one_probe_has_no_standard_error():
    gp, model, _ = fixed(pm.gp.cov.ExpQuad(1, ls=0.3), n_iter=10, probes=1)
    assert np.isnan(figures_at(gp, {}, model=model)["logdet_se"])
    gp, model, _ = fixed(pm.gp.cov.ExpQuad(1, ls=0.3), n_iter=10, probes=0)
    assert "logdet_se" not in figures_at(gp, {}, model=model)


# -- warnings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"approx": "VFE"}, r'without probes \(approx="VFE"\)'),
        ({"approx": "FITC"}, r'without probes \(approx="FITC"\)'),
        ({"inducing": 30}, "without probes .inducing= takes a subset"),
        ({"sigma": np.full(60, 0.1)}, "without probes .there is one sigma per row"),
    ],
)
def test_free_hyperparameters_without_probes(options, match):
    with pytest.warns(UserWarning, match=match) as caught:
        free(n_iter=5, **options)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    free(n_iter=5, probes=0, **options)  # asked for: nothing is said
    given = dict(options)
    sigma = given.pop("sigma", 0.1)
    fixed(pm.gp.cov.ExpQuad(1, ls=0.3), sigma=sigma, n_iter=5, **given)


def test_a_feature_for_each_row_has_the_exact_determinant():
    free(n_iter=60, sigma=np.full(60, 0.1))  # nothing is said
    with pytest.warns(UserWarning, match="without probes .inducing= takes a subset"):
        free(n_iter=30, inducing=30)


def test_a_free_sigma_alone_without_probes():
    with pm.Model():
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=0.3), n_iter=20, approx="FITC")
        sigma = pm.HalfNormal("sigma")
        with pytest.warns(UserWarning, match="without probes"):
            gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)


def test_a_large_error_is_warned_of():
    rough = {"kernel": pm.gp.cov.Exponential, "n_iter": 30}
    with pytest.warns(UserWarning, match=r"a standard error of .* with probes=2 \(give probes=") as told:
        gp, model = free(probes=2, **rough)
    error = 0.5 * gp.training.logdet.errors(model=model)[0][0]
    needed = int(re.search(r"give probes=(\d+)", str(told[0].message))[1])
    # Two nats, by the root of their number; in fours.
    assert needed % 4 == 0
    assert needed - 4 < 2.0 * (error / 2.0) ** 2 <= needed
    with pytest.warns(UserWarning, match=r"by up to .* downwards with n_iter=3 \(raise n_iter\)"):
        free(probes=64, **rough | {"n_iter": 3})
    free(probes=64, **rough)
    fixed(pm.gp.cov.Exponential(1, ls=0.8), n_iter=3, probes=2)  # a constant: nothing to follow it


def test_a_start_without_a_finite_kernel():
    """The check at the initial point must not fail where the kernel does: a lengthscale of 0."""
    with pm.Model() as model:
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Flat("ell")), n_iter=10)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1)
    assert np.isnan(figures_at(gp, {"ell": np.nan}, model=model)["logdet_se"])


def test_priors_of_an_outer_model():
    with pm.Model():
        ell = pm.HalfNormal("ell")
        with pm.Model("inner"):
            gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell), n_iter=10, probes=64)
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)


# -- kernels of low rank ------------------------------------------------------------------------------


LOW_RANK = {
    "Cosine, short": (lambda: pm.gp.cov.Cosine(1, ls=0.3), np.cos(2.0 * np.pi * GAP / 0.3)),
    "Cosine, long": (lambda: pm.gp.cov.Cosine(1, ls=2.0), np.cos(np.pi * GAP)),
    "Linear": (lambda: pm.gp.cov.Linear(1, c=0.2), (X - 0.2) * (X[:, 0] - 0.2)),
    "Constant + ExpQuad": (
        lambda: pm.gp.cov.Constant(6.0) + pm.gp.cov.ExpQuad(1, ls=5.0),
        6.0 + np.exp(-0.5 * (GAP / 5.0) ** 2),
    ),
}


@pytest.mark.parametrize(("name", "y"), [*((name, Y) for name in LOW_RANK), ("Cosine, long", np.zeros(60))])
def test_kernels_of_low_rank_are_exact(name, y):
    """The basis ends after a few steps of the 60, and what it has is all there is."""
    cov, K = LOW_RANK[name]
    noisy = K + 0.01 * np.eye(60)
    signs = 2.0 * np.random.default_rng(0).integers(0, 2, (8, 60), dtype=np.int8) - 1.0
    values, vectors = np.linalg.eigh(K)
    logs = (signs @ vectors) ** 2 @ np.log(np.maximum(values, 0.0) + 0.01)
    quadratic = y @ np.linalg.solve(noisy, y)
    gp, model, logp = fixed(cov(), y, n_iter=60)
    # The jitter on T, 1e-12 of its trace, over the noise.
    assert_allclose(logp, -0.5 * (quadratic + logs.mean() + 60 * np.log(2 * np.pi)), rtol=1e-7)
    weights = np.linalg.solve(noisy, K[:, :3])
    mean, var = gp.predict(X[:3], {}, diag=True, model=model)
    assert_allclose(mean, weights.T @ y, rtol=1e-5, atol=1e-8)
    assert_allclose(var, np.diag(K)[:3] - (weights * K[:, :3]).sum(axis=0), rtol=1e-4)
    assert np.isfinite(list(figures_at(gp, {}, model=model).values())).all()
