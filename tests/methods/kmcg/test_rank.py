"""KMCG with as many steps as there are rows to tell apart: density and gradient stay right."""

import numpy as np
import pymc as pm
import pytest
from marks import often
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


@pytest.mark.parametrize("approx", often(["DTC", "FITC", "VFE"], "FITC"))
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
            pm.gp.cov.Matern52(2, ls=ell, active_dims=[0]) * pm.gp.cov.Cosine(2, ls=0.7, active_dims=[1])
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


SHORT = {
    "Exponential": (KERNELS["Exponential"], (0.1, 1.0)),
    "Matern52": (pm.gp.cov.Matern52, (0.1, 0.5)),
    "ExpQuad": (KERNELS["ExpQuad"], (0.16, 0.2, 0.3, 0.5)),
    "product": (
        lambda _, ls: (
            pm.gp.cov.Matern32(1, ls=ls) * pm.gp.cov.ExpQuad(1, ls=2.0 * ls)  # of one input
        ),
        (0.1, 0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "approx"),
    [
        ("ExpQuad", "FITC"),
        pytest.param("Exponential", "FITC", marks=pytest.mark.slow),
        ("Matern52", "VFE"),
        pytest.param("product", "FITC", marks=pytest.mark.slow),
        pytest.param("ExpQuad", "DTC", marks=pytest.mark.slow),
    ],
)
def test_lengthscales_below_the_spacing(kernel, approx):
    """The kernel matrix is nearly the identity: every beta is small, and none is rounding."""
    make, shares = SHORT[kernel]
    options = {"probes": 0} if approx == "DTC" else {}
    model, *_ = model_of(
        lambda ell: make(1, ls=ell), np.arange(50.0)[:, None], approx=approx, n_iter=43, **options
    )
    value, slope = model.compile_logp(), model.compile_dlogp()
    for share in shares:
        at, step = np.log(share), 1e-5
        up, down = (value({"ell_log__": at + h}) for h in (step, -step))
        found = slope({"ell_log__": np.array(at)})[0]
        assert_allclose(found, (up - down) / (2.0 * step), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_directions_fade_where_they_become_rounding():
    """Down to a matrix that is the identity to rounding, the density follows its own gradient."""
    model, *_ = model_of(
        lambda ell: pm.gp.cov.ExpQuad(1, ls=ell), np.arange(50.0)[:, None], n_iter=30, probes=0
    )
    value, slope = model.compile_logp(), model.compile_dlogp()
    at = np.log(np.geomspace(0.12, 0.2, 400))
    values = np.array([value({"ell_log__": x}) for x in at])
    slopes = np.array([slope({"ell_log__": x})[0] for x in at])
    assert values[0] - values[-1] > 20.0  # all but one direction have gone
    follows = np.diff(at) * (slopes[1:] + slopes[:-1]) / 2.0
    assert_allclose(np.diff(values), follows, atol=0.02)


def test_repeated_rows_count_as_one():
    """Fewer steps than distinct rows: the features of the rows that are told apart, and their gradient."""
    draws = np.random.default_rng(3)
    X = np.sort(draws.uniform(0.0, 40.0, 44))
    X = np.r_[X, X[[3, 3, 10, 20, 30, 40]]][:, None]
    model, gp, y = model_of(lambda ell: pm.gp.cov.Matern32(1, ls=ell), X, approx="VFE", n_iter=12)
    point = {"ell_log__": np.array(0.3)}
    K = pm.gp.cov.Matern32(1, ls=np.exp(0.3))(X).eval()
    S = (y / np.linalg.norm(y))[:, None]
    for _ in range(11):
        S = np.linalg.qr(np.column_stack([S, K @ S[:, -1]]))[0]
    features = K @ S @ np.linalg.inv(np.linalg.cholesky(S.T @ K @ S)).T
    missed = np.trace(K) - (features**2).sum()
    dense = pm.MvNormal.dist(np.zeros(50), features @ features.T + 0.09 * np.eye(50))
    expected = pm.logp(dense, y).eval() - 0.5 * missed / 0.09
    expected -= 0.5 * (0.3**2 + np.log(2.0 * np.pi))
    assert_allclose(model.compile_logp()(point), expected, rtol=1e-8)
    value = model.compile_logp()
    up, down = (value({"ell_log__": 0.3 + h}) for h in (1e-5, -1e-5))
    assert_allclose(model.compile_dlogp()(point)[0], (up - down) / 2e-5, rtol=1e-5, atol=1e-4)
    assert gp.rank == 12


@pytest.mark.parametrize("apart", often([0.0, 0.01], 0.0), ids=["repeated", "nearly repeated"])
@pytest.mark.parametrize(
    ("kernel", "share", "approx", "steps"),
    [
        ("ExpQuad", 0.2, "FITC", 35),
        pytest.param("ExpQuad", 0.2, "VFE", 49, marks=pytest.mark.slow),
        ("Exponential", 0.15, "FITC", 20),
        pytest.param("Exponential", 0.15, "DTC", 35, marks=pytest.mark.slow),
    ],
)
def test_repeated_rows_of_an_even_grid(kernel, share, approx, steps, apart):
    """Eigenvalues lie in two clusters: rounding errors grow from direction to direction."""
    X = np.arange(50.0)
    X = np.r_[X, X[::5] + apart][:, None]
    options = {"probes": 0} if approx == "DTC" else {}
    model, *_ = model_of(lambda ell: KERNELS[kernel](1, ls=ell), X, approx=approx, n_iter=steps, **options)
    value, slope = model.compile_logp(), model.compile_dlogp()
    at = np.log(share)
    near = np.array([value({"ell_log__": at + h}) for h in 1e-11 * np.arange(4)])
    assert_allclose(near, near[0], atol=3e-5, rtol=0.0)
    up, down = (value({"ell_log__": at + h}) for h in (1e-3, -1e-3))
    found = slope({"ell_log__": np.array(at)})[0]
    assert_allclose(found, (up - down) / 2e-3, rtol=2e-3, atol=2e-2)
