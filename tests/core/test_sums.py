"""Sums of GPs: settings that one part brings are checked for all of them, and reach all of them."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import pymc_scalable_gp as sgp

rng = np.random.default_rng(3)
X = np.sort(rng.uniform(0.0, 1.0, (24, 1)), axis=0)
y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(24)
X_NEW = np.linspace(0.0, 1.0, 7)[:, None]


def kernel(ls=0.3):
    return pm.gp.cov.Matern52(1, ls=ls)


def logp_of(gp):
    with pm.Model() as model:
        gp.marginal_likelihood("y", X, y, 0.2)
    return float(model.compile_logp()({}))


def exact(cov_func):
    return logp_of(sgp.ExactMarginal(cov_func=cov_func))


def test_tasks_do_not_go_with_the_neighbours_of_another_part():
    tasks = sgp.SKIPMarginal(
        cov_func=pm.gp.cov.Matern52(1, ls=0.3), task_dim=1, task_cov=np.ones((2, 1)), rank=10
    )
    with pytest.raises(ValueError, match="leave out n_iter and task_dim"):
        tasks + sgp.GriefGP(cov_func=kernel(), approx="VIF")


def test_statistics_ask_every_part():
    tasks = sgp.SKIPMarginal(
        cov_func=pm.gp.cov.Matern52(2, ls=0.3, active_dims=[0]), task_dim=1,
        task_cov=np.ones((2, 1)), rank=10, approx="DTC",
    )  # fmt: skip
    total = tasks + sgp.GriefGP(cov_func=pm.gp.cov.Matern52(2, ls=0.3, active_dims=[0]), rank=10)
    with pytest.raises(ValueError, match="leave out n_iter and task_dim"):
        total.summarize(np.column_stack([X[:, 0], np.arange(24) % 2]), y, progressbar=False)


def test_statistics_go_by_the_approximation_of_the_sum():
    """The default of one part alone is FITC."""
    total = sgp.SoftKIMarginal(cov_func=kernel(), inducing=6, approx="DTC") + sgp.GriefGP(
        cov_func=kernel(1.0), rank=6
    )
    total.build(X)
    with pm.Model() as model:
        total.marginal_likelihood("y", statistics=total.summarize(X, y, progressbar=False), sigma=0.2)
    phi = total.features(X).eval()
    expected = stats.multivariate_normal(cov=phi @ phi.T + 0.04 * np.eye(24)).logpdf(y)
    assert_allclose(float(model.compile_logp()({})), expected, rtol=1e-9)


def test_frozen_basis_does_not_go_with_the_correction_of_another_part():
    frozen = sgp.GriefGP(cov_func=kernel(), basis="frozen")
    for approx in ("FITC", "VIF"):
        with pytest.raises(ValueError, match=f'"frozen" works with approx="DTC" only, got .{approx}'):
            frozen + sgp.GriefGP(cov_func=kernel(), approx=approx)


@pytest.mark.parametrize("first", [None, "VIF"])
def test_softki_with_neighbours_in_a_sum(first):
    """All rows are neighbours: the sum is exact, whatever the features."""
    parts = [
        sgp.SoftKIMarginal(cov_func=k, inducing=6, approx=approx, neighbors=30)
        for k, approx in ((kernel(), first), (0.5**2 * kernel(1.0), "VIF"))
    ]
    assert_allclose(logp_of(parts[0] + parts[1]), exact(kernel() + 0.5**2 * kernel(1.0)), rtol=1e-4)


def test_softki_takes_the_correction_of_the_sum():
    """As when it was given to both: what interpolation misses counts in predictions."""

    def predicted(approx):
        soft = sgp.SoftKIMarginal(cov_func=kernel(0.1), inducing=6, approx=approx)
        total = soft + sgp.GriefGP(cov_func=0.1**2 * kernel(1.0), rank=10, approx="FITC")
        with pm.Model():
            total.marginal_likelihood("y", X, y, 0.2)
            return total.predict(X_NEW, {}, diag=True)

    for given, wanted in zip(predicted(None), predicted("FITC"), strict=True):
        assert_allclose(given, wanted, rtol=1e-10)


def test_a_sum_has_the_most_neighbours_of_its_parts():
    few = sgp.GriefGP(cov_func=kernel(), approx="VIF", neighbors=3, block=9, pred_neighbors=5)
    many = sgp.GriefGP(cov_func=kernel(), approx="VIF", neighbors=7, block=2, pred_neighbors=11)
    for total in (few + many, many + few):
        assert total.settings() == {
            "approx": "VIF", "neighbors": 7, "block": 9, "pred_neighbors": 11,
        }  # fmt: skip


def test_sums_of_krylov_bases_share_their_rows():
    parts = [sgp.KMCGMarginal(cov_func=kernel(), n_iter=4, inducing=subset) for subset in (12, None)]
    for one, two in (parts, parts[::-1]):
        with pytest.raises(TypeError, match="inducing="):
            one + two
    total = parts[0] + sgp.KMCGMarginal(cov_func=kernel(1.0), n_iter=6, inducing=12)
    assert (total.n_iter, total.inducing) == (6, 12)
