"""Kernels of `pm.gp.cov` and `sgp.cov`, alone and within others, in every class: as `pm.gp.Marginal`."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

c = pm.gp.cov
RNG = np.random.default_rng(3)
N = 12
X = np.column_stack([np.linspace(0.1, 1.9, N) + 0.05 * RNG.uniform(size=N), np.arange(N) % 3])
Y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * RNG.standard_normal(N)
FIRST = {"input_dim": 2, "active_dims": [0]}

# Of one free parameter each.
KERNELS = {
    "ExpQuad": lambda a: c.ExpQuad(2, ls=a),
    "RatQuad": lambda a: c.RatQuad(2, ls=0.8, alpha=a),
    "Matern12": lambda a: c.Matern12(2, ls=a),
    "Exponential": lambda a: c.Exponential(2, ls=a),
    "Matern32": lambda a: c.Matern32(2, ls=a * np.array([1.0, 2.0])),
    "Matern52": lambda a: c.Matern52(2, ls=a),
    "Cosine": lambda a: c.Cosine(ls=3.0 * a, **FIRST),
    "Periodic": lambda a: c.Periodic(2, period=2.5, ls=a),
    "WrappedPeriodic": lambda a: c.WrappedPeriodic(c.Matern52(ls=a, **FIRST), period=2.5),
    "Linear": lambda a: c.Linear(2, c=a),
    "Polynomial": lambda a: c.Polynomial(c=0.3, d=2, offset=a, **FIRST),
    "Circular": lambda a: c.Circular(period=3.0, tau=4.0 + a, **FIRST),
    "Gibbs": lambda a: c.Gibbs(lengthscale_func=lambda x, a: a * (0.5 + x**2), args=(a,), **FIRST),
    "Coregion": lambda a: c.Coregion(2, W=np.ones((3, 1)), kappa=a * np.ones(3), active_dims=[1]),
    "GreatCircle": lambda a: sgp.cov.GreatCircle(c.Matern12, ls=100.0 * a),
    "PerGroup": lambda a: sgp.cov.PerGroup(
        c.Matern52, 2, ls=a * np.array([1.0, 0.6, 1.7]), scale=[1.0, 0.8, 1.5], group_dim=1
    ),
    "chords": lambda a: sgp.cov.GreatCircle(c.Matern52, ls=100.0 * a, distance="chord"),
    "ScaledCov": lambda a: c.ScaledCov(2, c.ExpQuad(2, ls=0.9), lambda x, a: 1.0 + a * x[:, 0], a),
    "WarpedInput": lambda a: c.WarpedInput(2, c.Matern52(2, ls=0.8), lambda x, a: pt.tanh(a * x), a),
}
WITHIN = {
    "alone": lambda k, b: k,
    "sum": lambda k, b: k + b * c.Matern32(ls=0.7, **FIRST),
    "product": lambda k, b: k * c.RatQuad(ls=1.1, alpha=b, **FIRST),
    "power": lambda k, b: k**2,
    "scaled": lambda k, b: b**2 * k,
}
# No sum of products of kernels on one column each, which GriefGP and SKIP need.
NO_PRODUCT = {
    *("RatQuad", "Matern12", "Exponential", "Matern32", "Matern52", "Linear"),
    *("ScaledCov", "WarpedInput", "GreatCircle", "chords"),
}
REFUSED = {"GRIEF": NO_PRODUCT, "SKIP": {*NO_PRODUCT, "Coregion"}}
ALL = {"approx": "VIF", "neighbors": N, "block": 3}
CLASSES = {
    "exact": lambda k: sgp.ExactMarginal(cov_func=k),
    "neighbors": lambda k: sgp.VecchiaMarginal(cov_func=k, n_inducing=0, neighbors=N, block=3),
    "both": lambda k: sgp.VecchiaMarginal(cov_func=k, n_inducing=4, neighbors=N, block=3),
    "SoftKI": lambda k: sgp.SoftKIMarginal(cov_func=k, inducing=X[::4], **ALL),
    "CholQR": lambda k: sgp.CholQRMarginal(cov_func=k, n_inducing=4, **ALL),
    "GRIEF": lambda k: sgp.GriefGP(cov_func=k, grid=4, rank=3, **ALL),
    "SKIP": lambda k: sgp.SKIPMarginal(cov_func=k, grid_size=12, rank=4, **ALL),
}
START = {"a_log__": np.log(0.9), "b_log__": np.log(0.8), "sigma_log__": np.log(0.3)}


def density(make, kernel, place, mode, **kwargs):
    """Log density of the targets, and its gradient."""
    with pm.Model() as model:
        a, b, sigma = (pm.HalfNormal(name) for name in ("a", "b", "sigma"))
        gp = make(WITHIN[place](KERNELS[kernel](a), b))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma, **kwargs)
    function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
    function.set_extra_values({})
    return function(np.array([START[v.name] for v in model.value_vars]))


@cache
def reference(kernel, place):
    return density(lambda k: pm.gp.Marginal(cov_func=k), kernel, place, "FAST_COMPILE", jitter=0.0)


def check(method, kernel, place, mode):
    value, slope = density(CLASSES[method], kernel, place, mode)
    expected, other = reference(kernel, place)
    assert_allclose(value, expected, rtol=1e-4)
    assert_allclose(slope, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize(
    ("method", "kernel", "place"),
    often(
        [
            ("neighbors", "RatQuad", "sum"),
            ("both", "RatQuad", "power"),
            ("both", "Gibbs", "scaled"),
            ("both", "Circular", "alone"),
            ("both", "GreatCircle", "sum"),
            ("neighbors", "GreatCircle", "scaled"),
            ("both", "PerGroup", "product"),
            ("exact", "WrappedPeriodic", "product"),
            ("exact", "Coregion", "sum"),
            ("SoftKI", "ScaledCov", "product"),
            ("CholQR", "WarpedInput", "sum"),
            ("GRIEF", "Polynomial", "scaled"),
            ("GRIEF", "Cosine", "sum"),
            ("SKIP", "Periodic", "product"),
            ("SKIP", "Circular", "product"),
        ],
        ("both", "RatQuad", "power"),
        ("neighbors", "GreatCircle", "scaled"),
        ("exact", "Coregion", "sum"),
        ("SoftKI", "ScaledCov", "product"),
        ("GRIEF", "Cosine", "sum"),
        ("SKIP", "Periodic", "product"),
    ),
)
def test_some_in_python(method, kernel, place):
    check(method, kernel, place, "FAST_COMPILE")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("place", WITHIN)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("method", CLASSES)
def test_all_in_numba(method, kernel, place):
    power = kernel == "PerGroup" and place == "power" and method in REFUSED
    if power or kernel in REFUSED.get(method, ()):
        with pytest.raises(ValueError, match="not a product of 1-D kernels|contains Coregion"):
            density(CLASSES[method], kernel, place, "NUMBA")
        return
    check(method, kernel, place, "NUMBA")
