"""The density of features on a square grid, whose eigenvalues come in pairs."""

import numpy as np
import pymc as pm
import pytest
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.ops._by_ops import BY_OPS

FAST = {"mode": "FAST_COMPILE"}
AXIS = np.linspace(0.0, 1.0, 7)
Y = np.random.default_rng(3).standard_normal((7, 7))
NOISE = 0.09


def axis_kernel(ell):
    return np.exp(-0.5 * (AXIS[:, None] - AXIS) ** 2 / ell**2)


def density_of_eigenspaces(ell):
    """In exact arithmetic: of each of 28 eigenspaces the part of y, which holds all of it."""
    values, vectors = np.linalg.eigh(axis_kernel(ell))
    along = vectors.T @ Y @ vectors
    i, j = np.triu_indices(7)
    squares = along[i, j] ** 2 + np.where(i == j, 0.0, along[j, i] ** 2)
    variance = values[i] * values[j] + NOISE
    rest = (Y.size - len(i)) * np.log(NOISE) + Y.size * np.log(2.0 * np.pi)
    return -0.5 * ((squares / variance).sum() + np.log(variance).sum() + rest)


def made(steps):
    with pm.Model() as model:
        t, mean = pm.Flat("t"), pm.Flat("mean")
        gp = sgp.KMCGMarginal(
            cov_func=pm.gp.cov.ExpQuad(2, ls=pm.math.exp(t)), mean_func=pm.gp.mean.Constant(mean),
            n_iter=steps, probes=0,
        )  # fmt: skip
        gp.marginal_likelihood("y", X=sgp.RegularGrid([AXIS, AXIS]), y=Y, sigma=np.sqrt(NOISE))
    return model.compile_logp(**FAST), model.compile_dlogp(**FAST)


@pytest.mark.parametrize("steps", often([20, 40], 20))
def test_equal_axes(steps):
    """Rounding in the other half of the eigenspaces moved it by .1 to 1 nats from one point to the next."""
    logp, dlogp = made(steps)
    for ell in (0.1, 0.2, 0.5):
        at = np.log(ell)
        if steps == 40:  # all of the 28 eigenspaces
            found = float(logp({"t": at, "mean": 0.0}))
            # Jitter of 1e-12 of a trace, and directions that fade, take off the smallest eigenvalues.
            assert_allclose(found, density_of_eigenspaces(ell), rtol=0.0, atol=1e-4)
        line = [float(logp({"t": at + k * 1e-7, "mean": 0.0})) for k in range(-4, 5)]
        assert np.abs(np.diff(line, 2)).max() < 1e-9
        point = {"t": at, "mean": np.array(0.2)}
        gradient = dlogp(point)
        for place, name in enumerate(point):
            ends = [float(logp(point | {name: point[name] + k * 1e-4})) for k in (-2, -1, 1, 2)]
            slope = (ends[0] - 8.0 * ends[1] + 8.0 * ends[2] - ends[3]) / 12e-4
            assert_allclose(gradient[place], slope, rtol=1e-6)


@pytest.mark.slow
def test_densities_without_machine_code_around_them():
    """Steps take the places of eigenspaces, integers, which machine code was made for as floats."""
    with pm.Model() as model:
        ell = pm.Flat("ell")
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), n_iter=20, probes=0)
        gp.marginal_likelihood("y", X=sgp.RegularGrid([AXIS, AXIS]), y=Y, sigma=0.3)
    found = float(model.compile_logp(mode=BY_OPS)({"ell": 0.3}))
    assert_allclose(found, float(model.compile_logp(**FAST)({"ell": 0.3})), rtol=1e-10)
