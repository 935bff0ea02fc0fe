"""The log density along fine paths of the hyperparameters: no jumps, kinks or blow-ups."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.testing import dense_marginal

STEPS = 400


def rational(d, ell, dim):
    return pm.gp.cov.RatQuad(d, alpha=0.8, ls=ell, active_dims=[dim])


# Kernel of two lengthscales (ell, other), number of columns.
KERNELS = {
    "ExpQuad": (lambda a, b: pm.gp.cov.ExpQuad(1, ls=a), 1),
    "Matern52": (lambda a, b: pm.gp.cov.Matern52(1, ls=a), 1),
    "RatQuad": (lambda a, b: rational(1, a, 0), 1),
    "ExpQuad x Matern32": (
        lambda a, b: (
            pm.gp.cov.ExpQuad(2, ls=a, active_dims=[0])
            * pm.gp.cov.Matern32(2, ls=b, active_dims=[1])
        ),
        2,
    ),
    "Periodic": (lambda a, b: pm.gp.cov.Periodic(1, period=1.3, ls=a), 1),
    "Periodic x ExpQuad": (
        lambda a, b: pm.gp.cov.Periodic(1, period=1.3, ls=a) * pm.gp.cov.ExpQuad(1, ls=b),
        1,
    ),
    "Periodic x ExpQuad in two": (
        lambda a, b: (
            pm.gp.cov.Periodic(2, period=1.3, ls=a, active_dims=[0])
            * pm.gp.cov.ExpQuad(2, ls=b, active_dims=[1])
        ),
        2,
    ),
    "free Periodic": (lambda a, b: pm.gp.cov.Periodic(1, period=b, ls=a), 1),
    "free Cosine": (lambda a, b: pm.gp.cov.Cosine(1, ls=b), 1),
    "free Periodic x ExpQuad in two": (
        lambda a, b: (
            pm.gp.cov.Periodic(2, period=b, ls=1.0, active_dims=[0])
            * pm.gp.cov.ExpQuad(2, ls=a, active_dims=[1])
        ),
        2,
    ),
}


def inputs(kind, d):
    rng = np.random.default_rng(1)
    X = rng.uniform(0.0, 3.0, (40, d))
    if kind == "duplicates":
        X[20:] = X[:20]
    if kind == "discrete":
        X[:, -1] = rng.integers(0, 5, 40) / 2.0
    if kind == "skewed":
        X = X**4 / 27.0
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(40)


def model_of(kernel, kind, marginal=False, rank=15):
    make, d = KERNELS[kernel]
    X, y = inputs(kind, d)
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0.0, 1.0), pm.LogNormal("b", 0.0, 0.5)
        gp = sgp.GriefGP(cov_func=make(a, b), grid=20, rank=rank)
        gp.build(X, point={"a": 1.0, "b": 1.0})
        if marginal:
            gp.marginal_likelihood("y", X=X, y=y, sigma=0.3)
        else:
            pm.Normal("y", gp.prior("f", X), 0.3, observed=y)
    return gp, model, X, y


def walk(gp, model, swing=0.9):
    """Changes of the log density along a path through the prior's range, and those its slope gives."""
    rng = np.random.default_rng(2)
    named = {v.name: v for v in model.value_vars}
    logp = model.logp(vars=[model["y"]])
    a, b = named["a_log__"], named["b_log__"]
    grads = pt.grad(logp, [a, b], disconnected_inputs="ignore")
    function = model.compile_fn(
        [logp, *grads], inputs=model.value_vars, mode="FAST_COMPILE", on_unused_input="ignore"
    )
    z = {"f_coeffs": rng.standard_normal(gp.rank)} if "f_coeffs" in named else {}
    # From the 1% to the 99% quantile of a, and to and fro in b.
    time = np.linspace(0.0, 1.0, STEPS + 1)
    path = np.column_stack([-2.3 + 4.6 * time, swing * np.sin(7.0 * time)])
    speed = np.column_stack([4.6 + 0.0 * time, 7.0 * swing * np.cos(7.0 * time)])
    found = [function({**z, "a_log__": a, "b_log__": b}) for a, b in path]
    values = np.array([value for value, *_ in found])
    slopes = np.array([np.dot(grad, rate) for (_, *grad), rate in zip(found, speed, strict=True)])
    # Fourth-order rule for the integral of the slope over a step from the four slopes around it.
    explained = (13.0 * (slopes[1:-2] + slopes[2:-1]) - slopes[:-3] - slopes[3:]) / 24.0
    return np.diff(values)[1:-1], explained * time[1], values
