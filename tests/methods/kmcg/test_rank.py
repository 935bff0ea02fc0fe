"""KMCG with as many steps as there are rows to tell apart: density and gradient stay right."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

rng = np.random.default_rng(0)
KERNELS = {
    "Exponential": pm.gp.cov.Exponential,
    "Matern32": pm.gp.cov.Matern32,
    "ExpQuad": pm.gp.cov.ExpQuad,
}
pytestmark = pytest.mark.filterwarnings("ignore:without probes")


def model_of(make, X, **options):
    y = np.sin(6.0 * X[:, 0]) + 0.2 * np.random.default_rng(1).standard_normal(len(X))
    with pm.Model() as model:
        gp = sgp.KMCGMarginal(cov_func=make(pm.Lognormal("ell")), **options)
        gp.marginal_likelihood("y", X, y, sigma=0.3)
    return model, gp, y


def exact_logp(make, X, y, log_ell):
    ell = np.exp(log_ell)
    K = make(ell)(X).eval() + 0.3**2 * np.eye(len(X))
    return pm.logp(pm.MvNormal.dist(np.zeros(len(X)), K), y).eval() - 0.5 * (
        log_ell**2 + np.log(2.0 * np.pi)
    )


@pytest.mark.parametrize("approx", ["DTC", "FITC", "VFE"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_all_rows_spanned(kernel, approx):
    """The exact Gaussian process: density, and gradient against differences of its density."""

    def make(ell):
        return KERNELS[kernel](1, ls=ell)

    X = np.linspace(0.0, 3.0, 50)[:, None]
    options = {"probes": 0} if approx == "DTC" else {}
    model, gp, y = model_of(make, X, approx=approx, **options)
    value, slope = model.compile_logp(), model.compile_dlogp()
    for log_ell in (-3.0, -1.0, 0.2):
        point = {"ell_log__": np.array(log_ell)}
        assert_allclose(value(point), exact_logp(make, X, y, log_ell), rtol=1e-5, atol=1e-4)
        up, down = (exact_logp(make, X, y, log_ell + h) for h in (1e-4, -1e-4))
        assert_allclose(slope(point)[0], (up - down) / 2e-4, rtol=2e-3, atol=2e-3)
    assert gp.rank == 50


def test_more_steps_than_distinct_rows():
    X = rng.permutation(np.r_[np.linspace(0.0, 1.0, 46), 0.2, 0.4, 0.6, 0.8])[:, None].round(12)

    def make(ell):
        return pm.gp.cov.Exponential(1, ls=ell)

    model, gp, y = model_of(make, X, approx="FITC", n_iter=49)
    value = model.compile_logp()
    for log_ell in (-2.6, -1.4, 0.2):
        found = value({"ell_log__": np.array(log_ell)})
        assert_allclose(found, exact_logp(make, X, y, log_ell), rtol=1e-5)
    assert gp.rank == len(np.unique(X))


def test_a_kernel_of_low_rank():
    X = rng.uniform(0.0, 1.0, (40, 2))
    products = [
        lambda ell: pm.gp.cov.Kron([pm.gp.cov.Matern52(1, ls=ell), pm.gp.cov.Cosine(1, ls=0.7)]),
        lambda ell: (
            pm.gp.cov.Matern52(2, ls=ell, active_dims=[0])
            * pm.gp.cov.Cosine(2, ls=0.7, active_dims=[1])
        ),
    ]
    found = []
    for make in products:
        model, *_ = model_of(make, X, approx="FITC")
        found.append(model.compile_logp()({"ell_log__": np.array(0.0)}))
    assert_allclose(found[0], found[1], rtol=1e-6)


def test_predictions_of_a_spanned_grid():
    """On a grid with gaps, by cells and by rows: as the exact Gaussian process."""
    grid = sgp.RegularGrid(
        [np.linspace(0.0, 1.0, 6), np.linspace(0.0, 1.0, 5)], rng.uniform(size=(6, 5)) < 0.8
    )
    y = np.sin(4.0 * grid.points[:, 0])
    cov = pm.gp.cov.ExpQuad(2, ls=0.5)
    new = sgp.RegularGrid(grid.axes)
    with pm.Model():
        gp, exact = sgp.KMCGMarginal(cov_func=cov, approx="FITC"), pm.gp.Marginal(cov_func=cov)
        gp.marginal_likelihood("y", grid, y, sigma=0.3)
        exact.marginal_likelihood("z", grid.points, y, sigma=0.3)
        wanted = exact.predict(new.points, point={}, diag=True)
        for X in (new, new.points):
            for found, expected in zip(gp.predict(X, {}, diag=True), wanted, strict=True):
                assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
