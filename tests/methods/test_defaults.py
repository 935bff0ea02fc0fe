"""Every Marginal class with nothing but its kernel, on small data: as good as the exact GP, or it warns."""

import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import minimize

import pymc_scalable_gp as sgp

# What a default may lose against the exact Gaussian process before it has to say so.
RMSE_SHARE, SIGMA_SHARE = 0.05, 0.10

METHODS = {
    "GriefGP": sgp.GriefGP,
    "SKIPMarginal": sgp.SKIPMarginal,
    "SoftKIMarginal": sgp.SoftKIMarginal,
    "CholQRMarginal": sgp.CholQRMarginal,
    "KMCGMarginal": sgp.KMCGMarginal,
}


class Set(NamedTuple):
    """Training rows, held-out rows, and the kernel of a model with parameters ``ell`` and ``eta``."""

    X: np.ndarray
    y: np.ndarray
    Xnew: np.ndarray
    ynew: np.ndarray
    kernel: type


def simulate(draw_inputs, function, noise, n, kernel=pm.gp.cov.ExpQuad, held_out=200):
    """A set of n rows; held-out ones lie within the range of the training inputs."""
    rng = np.random.default_rng(0)
    X = draw_inputs(rng, n)
    Xnew = np.clip(draw_inputs(rng, held_out), X.min(axis=0), X.max(axis=0))
    y, ynew = (function(x) + noise * rng.standard_normal(len(x)) for x in (X, Xnew))
    return Set(X, y, Xnew, ynew, kernel)


def uniform(low, high, d):
    return lambda rng, n: rng.uniform(low, high, (n, d))


def gauges(rng, n):
    """Places that crowd around a few towns, as rain gauges do."""
    towns = np.random.default_rng(5).uniform(0.0, 4.0, (12, 2))
    crowded = towns[rng.integers(0, 12, n)] + 0.4 * rng.standard_normal((n, 2))
    alone = rng.uniform(0.0, 4.0, (n, 2))
    return np.where(rng.uniform(size=(n, 1)) < 0.6, crowded, alone)


def rain(X):
    """A ridge, a gradient and rough hills."""
    ridge = np.exp(-2.0 * (X[:, 0] + 0.3 * X[:, 1] - 2.0) ** 2)
    return ridge + 0.3 * X[:, 1] + 0.5 * np.sin(2.5 * X[:, 0]) * np.cos(2.0 * X[:, 1]) - 1.0


def friedman(X):
    value = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return (value - 6.8) / 3.7


SETS = {
    "sine": lambda: simulate(uniform(0, 10, 1), lambda X: np.sin(4.0 * X[:, 0]), 0.2, 200),
    "step": lambda: simulate(
        uniform(0, 10, 1), lambda X: np.tanh(6.0 * (X[:, 0] - 5.0)), 0.1, 200, pm.gp.cov.Matern32
    ),
    "duplicates": lambda: simulate(
        lambda rng, n: rng.integers(0, 50, (n, 1)) / 5.0, lambda X: np.sin(X[:, 0]), 0.3, 200
    ),
    "surface": lambda: simulate(
        uniform(-2, 2, 2), lambda X: np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]), 0.2, 250
    ),
    "rain": lambda: simulate(gauges, rain, 0.5, 300),
    "friedman": lambda: simulate(uniform(0, 1, 3), friedman, 0.2, 250),
}


# Of the logarithm of the lengthscale, from the model's initial point.
STARTS = (0.0, -1.5)


def best_point(model):
    """Maximum a posteriori point by L-BFGS, the better one of two starts, by variable name.

    These posteriors, the exact GP's too, have a mode without a signal: which of the two a search from
    one start meets is its luck, and says nothing of the density.
    """
    to_array, to_point = pm.blocking.DictToArrayBijection.map, pm.blocking.DictToArrayBijection.rmap
    initial = model.initial_point(0)
    first, inputs = to_array(initial), model.value_vars
    logp = model.logp(jacobian=False)
    density = model.compile_fn(
        [logp, *pm.pytensorf.pt.grad(logp, inputs)], inputs=inputs, mode="FAST_COMPILE"
    )

    def objective(values):
        value, *slopes = density(to_point(first._replace(data=values)))
        if not np.isfinite(value):
            return 1e10, np.zeros_like(values)
        return -float(value), -np.concatenate([np.ravel(slope) for slope in slopes])

    assert [v.name for v in inputs] == [name for name, *_ in first.point_map_info]
    found = []
    for shift in STARTS:
        start = to_array(initial | {"ell_log__": initial["ell_log__"] + shift}).data
        bounds = [(value - 8.0, value + 8.0) for value in start]
        found.append(minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds))
    best = min(found, key=lambda each: each.fun).x
    shown = model.compile_fn(
        model.unobserved_value_vars, inputs=inputs, mode="FAST_COMPILE", point_fn=True
    )(to_point(first._replace(data=best)))
    return dict(zip((v.name for v in model.unobserved_value_vars), shown, strict=True))


def fit(kind, data):
    """RMSE of held-out targets and sigma at the best point, and whether the model warned of either."""
    d = data.X.shape[1]
    with pm.Model() as model:
        ell, eta = pm.Gamma("ell", 2, 1, shape=d), pm.HalfCauchy("eta", 5)
        sigma = pm.HalfCauchy("sigma", 5)
        gp = kind(cov_func=eta**2 * data.kernel(d, ls=ell))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gp.marginal_likelihood("y", X=data.X, y=data.y, sigma=sigma)
        point = best_point(model)
        mean, _ = gp.predict(data.Xnew, point, diag=True)
    rmse = float(np.sqrt(np.mean((mean - data.ynew) ** 2)))
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    return rmse, float(point["sigma"]), said


@cache
def exact(name):
    """RMSE and sigma of the exact GP."""
    return fit(pm.gp.Marginal, SETS[name]())[:2]


def check(name, method):
    """A default is close to the exact GP in error and noise, or has warned."""
    best, true_sigma = exact(name)
    rmse, sigma, said = fit(METHODS[method], SETS[name]())
    close = rmse <= (1 + RMSE_SHARE) * best and abs(sigma / true_sigma - 1) <= SIGMA_SHARE
    assert close or said, (
        f"RMSE {rmse:.3f} (exact {best:.3f}), sigma {sigma:.3f} (exact {true_sigma:.3f}), no warning"
    )


# Each compiles a density of its own: the slow test has every pair.
@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param("surface", "GriefGP", marks=pytest.mark.slow),
        pytest.param("surface", "SKIPMarginal", marks=pytest.mark.slow),
        ("sine", "SoftKIMarginal"),
        pytest.param("sine", "CholQRMarginal", marks=pytest.mark.slow),
    ],
)
def test_defaults(name, method):
    check(name, method)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("method", METHODS)
def test_defaults_of_every_method(name, method):
    check(name, method)
