"""The log density along fine paths of the hyperparameters: no jumps, kinks or blow-ups."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from marks import often
from numpy.testing import assert_allclose
from scipy import stats

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.grief.waves import check_periods

STEPS = 320


def rational(d, ell, dim):
    return pm.gp.cov.RatQuad(d, alpha=0.8, ls=ell, active_dims=[dim])


# Kernel of two lengthscales (ell, other), number of columns.
KERNELS = {
    "ExpQuad": (lambda a, b: pm.gp.cov.ExpQuad(1, ls=a), 1),
    "Matern52": (lambda a, b: pm.gp.cov.Matern52(1, ls=a), 1),
    "RatQuad": (lambda a, b: rational(1, a, 0), 1),
    "ExpQuad x Matern32": (
        lambda a, b: (
            pm.gp.cov.ExpQuad(2, ls=a, active_dims=[0]) * pm.gp.cov.Matern32(2, ls=b, active_dims=[1])
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


def model_of(kernel, kind, marginal=False, grid=20, rank=15):
    make, d = KERNELS[kernel]
    X, y = inputs(kind, d)
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0.0, 1.0), pm.LogNormal("b", 0.0, 0.5)
        gp = sgp.GriefGP(cov_func=make(a, b), grid=grid, rank=rank)
        gp.build(X, point={"a": 1.0, "b": 1.0})
        if marginal:
            gp.marginal_likelihood("y", X=X, y=y, sigma=0.3)
        else:
            pm.Normal("y", gp.prior("f", X), 0.3, observed=y)
    return gp, model, X, y


def walk(gp, model, swing=0.9, low=-2.3):
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
    path = np.column_stack([low + (2.3 - low) * time, swing * np.sin(7.0 * time)])
    speed = np.column_stack([(2.3 - low) + 0.0 * time, 7.0 * swing * np.cos(7.0 * time)])
    found = [function({**z, "a_log__": a, "b_log__": b}) for a, b in path]
    values = np.array([value for value, *_ in found])
    slopes = np.array([np.dot(grad, rate) for (_, *grad), rate in zip(found, speed, strict=True)])
    # Fourth-order rule for the integral of the slope over a step from the four slopes around it.
    explained = (13.0 * (slopes[1:-2] + slopes[2:-1]) - slopes[:-3] - slopes[3:]) / 24.0
    return np.diff(values)[1:-1], explained * time[1], values


PATHS = [
    ("ExpQuad", "plain"),
    ("ExpQuad", "skewed"),
    ("Matern52", "duplicates"),
    ("RatQuad", "discrete"),
    ("ExpQuad x Matern32", "plain"),
    ("ExpQuad x Matern32", "discrete"),
    ("Periodic", "plain"),
    ("Periodic x ExpQuad", "skewed"),
    ("Periodic x ExpQuad in two", "discrete"),
]


@pytest.mark.parametrize(
    ("kernel", "kind", "marginal"),
    # The marginal density does not depend on the basis within a span: a few of them are enough.
    often(
        [(*path, False) for path in PATHS] + [(*path, True) for path in PATHS[1::6]],
        *((*path, False) for path in PATHS[:4]),
        (*PATHS[1], True),
    ),
)
def test_the_density_changes_by_what_its_slope_explains(kernel, kind, marginal):
    """At fixed coefficients; 1e-3 is above the rule's own error, the density changing by nats per step.

    With eigenvectors of the moving kernel the latent density jumped by 13 (ExpQuad x Matern32 on a
    discrete column) to 276 nats (Periodic), and by 0.05 without any sign or order changing.
    """
    rank = 60 if KERNELS[kernel][1] > 1 else 5 if kind == "discrete" else 15
    gp, model, _, _ = model_of(kernel, kind, marginal, rank=rank)
    changes, explained, values = walk(gp, model)
    assert np.isfinite(values).all()
    assert np.ptp(values) > 10.0  # the path leads somewhere
    assert_allclose(changes, explained, atol=1e-3)


def test_marginal_density_with_a_free_period_is_the_exact_one_and_smooth():
    """Nodes at all 40 rows: the exact GP's density, by SciPy, anywhere on the path."""
    gp, model, X, y = model_of("free Periodic", "plain", marginal=True, grid=None, rank=40)
    function = model.compile_logp(vars=[model["y"]], mode="FAST_COMPILE")
    for a, b in [(0.5, 1.0), (1.0, 0.7), (2.0, 1.3), (5.0, 2.2)]:
        delta = np.sin(np.pi * (X - X.T) / b) / a
        # The jitter, 1e-10 of the kernel, is amplified by the 100 / sigma^2 of 40 rows.
        cov = np.exp(-0.5 * delta**2) + 0.09 * np.eye(40)
        expected = stats.multivariate_normal(np.zeros(40), cov).logpdf(y)
        assert_allclose(function({"a_log__": np.log(a), "b_log__": np.log(b)}), expected, rtol=1e-6)
    changes, explained, values = walk(gp, model, swing=0.02, low=-1.0)
    assert np.ptp(values) > 3.0
    assert_allclose(changes, explained, atol=1e-3)


@pytest.mark.parametrize(
    ("cov", "argument"),
    [
        (lambda p: pm.gp.cov.Periodic(1, period=p, ls=1.0), "period"),
        (lambda p: pm.gp.cov.Cosine(1, ls=p), "ls"),
        (lambda p: pm.gp.cov.ExpQuad(1, ls=2.0) * pm.gp.cov.Periodic(1, period=p, ls=1.0), "period"),
        (lambda p: 2.0 + 3.0 * pm.gp.cov.Cosine(1, ls=p) ** 2, "ls"),
        (lambda p: pm.gp.cov.Kron([pm.gp.cov.Cosine(1, ls=p)]), "ls"),
        (lambda p: pm.gp.cov.WarpedInput(1, pm.gp.cov.Cosine(1, ls=p), lambda x: 2.0 * x), "ls"),
    ],
)
def test_a_free_period_is_refused_in_a_latent_model(cov, argument):
    X, _ = inputs("plain", 1)
    with pm.Model():
        gp = sgp.GriefGP(cov_func=cov(pm.LogNormal("p", 0.0, 0.1)), grid=10, rank=10)
        with pytest.raises(ValueError, match=f"free {argument}=.*marginal_likelihood.*SKIPLatent"):
            gp.prior("f", X)
        for other in (sgp.GriefGP, sgp.SKIPLatent):  # as a part of a sum, too
            total = gp + other(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0))
            with pytest.raises(ValueError, match=f"free {argument}=.*marginal_likelihood.*SKIPLatent"):
                total.prior("f", X)
    check_periods(cov(1.3))
