"""No class depends on where the inputs lie: years, metres of a map projection, seconds since 1970."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from pymc.gp import cov as c

import pymc_scalable_gp as sgp

# Multiples of 2^-16, so that X plus any of the offsets is exact.
RNG = np.random.default_rng(0)
X = np.sort(np.round(RNG.uniform(0.0, 2.0, 24) * 2**16) / 2**16)[:, None]
Y = np.sin(4.0 * X[:, 0]) + 0.1 * RNG.standard_normal(24)
XNEW = np.round(RNG.uniform(-0.2, 2.2, (5, 1)) * 2**16) / 2**16
AXIS = np.arange(24) / 16.0
HOLES = np.arange(24) % 5 != 3
POINTS = X[1::3]
SECONDS = 1_600_000_000.0
OFFSETS = [2020.25, 5.0e6, SECONDS]

KERNELS = {
    "ExpQuad": lambda: c.ExpQuad(1, ls=0.3),
    "Matern12": lambda: c.Matern12(1, ls=0.3),
    "Matern32": lambda: c.Matern32(1, ls=0.3),
    "Matern52": lambda: c.Matern52(1, ls=0.3),
    "Exponential": lambda: c.Exponential(1, ls=0.3),
    "RatQuad": lambda: c.RatQuad(1, ls=0.3, alpha=0.8),
    "Cosine": lambda: c.Cosine(1, ls=1.3) + 0.1 * c.ExpQuad(1, ls=0.3),
    "Periodic": lambda: c.Periodic(1, period=0.8, ls=0.7),
    "WrappedPeriodic": lambda: c.WrappedPeriodic(c.Matern52(1, ls=0.7), period=0.8),
    "power": lambda: 2.0 * c.Matern32(1, ls=0.3) ** 2,
}
METHODS = {
    "GriefGP": lambda at, **k: sgp.GriefGP(grid=[np.linspace(0, 2, 17) + at], rank=14, **k),
    "SoftKI": lambda at, **k: sgp.SoftKIMarginal(inducing=POINTS + at, **k),
    "KMCG": lambda at, **k: sgp.KMCGMarginal(n_iter=8, probes=0, **k),
    "CholQR": lambda at, **k: sgp.CholQRMarginal(n_inducing=8, **k),
    "SKIP": lambda at, **k: sgp.SKIPMarginal(grid_size=60, rank=10, **k),
    "Vecchia": lambda at, **k: sgp.VecchiaMarginal(n_inducing=6, neighbors=5, block=3, **k),
    "Exact": lambda at, **k: sgp.ExactMarginal(**k),
}
pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")


def answers(gp, X, y, Xnew):
    """Log density, and mean and variance of predictions."""
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)
        logp = model.compile_logp(mode="FAST_COMPILE")({})
        return np.concatenate([[logp], *gp.predict(Xnew, point={}, diag=True)])


def check(method, kernel, offset):
    here, there = (
        answers(METHODS[method](at, cov_func=KERNELS[kernel]()), X + at, Y, XNEW + at)
        for at in (0.0, offset)
    )
    assert np.isfinite(here).all()
    assert_allclose(there, here, rtol=1e-8, atol=1e-9)


# Every class with a few kernels, every kernel with one class; all pairs among the slow tests.
FEW = ("ExpQuad",), ("CholQR",)
PAIRS = [
    pytest.param(m, k, marks=() if k in FEW[0] or m in FEW[1] else pytest.mark.slow)
    for m in METHODS
    for k in KERNELS
]


@pytest.mark.parametrize(("method", "kernel"), PAIRS)
def test_seconds(method, kernel):
    """KMCG and CholQR gave NaN, or "not positive semidefinite"; SoftKI on seconds too."""
    check(method, kernel, SECONDS)


@pytest.mark.parametrize("offset", [OFFSETS[0], pytest.param(OFFSETS[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_years_and_metres(method, offset):
    check(method, "ExpQuad", offset)


@pytest.mark.parametrize(
    "kernel", [pytest.param(k, marks=() if k in FEW[0] else pytest.mark.slow) for k in KERNELS]
)
def test_a_grid(kernel):
    y = np.where(HOLES, np.sin(4.0 * AXIS), np.nan)
    found = []
    for at in (0.0, SECONDS):
        gp = sgp.KMCGMarginal(cov_func=KERNELS[kernel](), n_iter=8, probes=0)
        grid = sgp.RegularGrid([AXIS + at], observed=HOLES)
        found.append(answers(gp, grid, y, XNEW + at))
        found.append(answers(gp, grid, y, sgp.RegularGrid([AXIS + at])))
    assert_allclose(found[2], found[0], rtol=1e-8, atol=1e-9)
    assert_allclose(found[3], found[1], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("approx", ["DTC", "FITC", "VFE"])
def test_no_variance_is_lost_to_an_offset(approx):
    """The prior variances that features miss are the difference of numbers near 1."""
    found = []
    for at in (0.0, 5.0e6):
        gp = sgp.CholQRMarginal(cov_func=c.Matern52(1, ls=0.3), n_inducing=10, approx=approx)
        found.append(answers(gp, X + at, Y, XNEW + at))
    assert_allclose(found[1], found[0], rtol=1e-8)


def test_a_temperature():
    found = []
    for at in (0.0, SECONDS):
        gp = sgp.SoftKIMarginal(cov_func=c.ExpQuad(1, ls=0.3), inducing=POINTS + at, temperature=0.3)
        found.append(answers(gp, X + at, Y, XNEW + at))
    assert_allclose(found[1], found[0], rtol=1e-8)


def test_choosing_points_and_the_start():
    """`select_inducing` and `subset_map` evaluate the kernel themselves."""
    found = []
    for at in (0.0, SECONDS):
        with pm.Model():
            ell = pm.InverseGamma("ell", 3, 1)
            gp = sgp.CholQRMarginal(cov_func=c.ExpQuad(1, ls=ell), n_inducing=8)
            start = sgp.subset_map(gp, X + at, Y, 0.1, progressbar=False)
            chosen = gp.select_inducing(X + at, Y, sigma=0.1, rounds=1, progressbar=False)
        found.append([start["ell"], chosen.point["ell"], *chosen.indices])
    assert_allclose(found[1], found[0], rtol=1e-6)
