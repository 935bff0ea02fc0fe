"""CO2 at Mauna Loa, the model of PyMC's gallery: trend, changing season, medium term, correlated noise."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp

cov = pm.gp.cov
RNG = np.random.default_rng(8)
YEARS = (np.arange(120.0)[np.arange(120) % 11 > 0] / 12.0)[:, None]  # a month is missing now and then
T = YEARS[:, 0]
PPM = 1.5 * T + 0.01 * T**2 + 3.0 * np.sin(2.0 * np.pi * T) + 0.3 * RNG.standard_normal(len(T))
SCALE = PPM.std()
Y = PPM / SCALE
NEW = np.linspace(0.0, 12.0, 25)[:, None]
SIGMA = 0.05


def kernels(markov):
    """Season, medium term, trend and noise; the nearest that are Markov for two of them."""
    season = 0.6**2 * cov.Periodic(1, period=1.0, ls=1.0) * cov.Matern52(1, ls=130.0)
    medium = cov.Matern52(1, ls=1.9) if markov else cov.RatQuad(1, alpha=1.2, ls=1.9)
    trend = cov.Matern52(1, ls=52.0) if markov else cov.ExpQuad(1, ls=52.0)
    return season, 0.1**2 * medium, 1.8**2 * trend, 0.05**2 * cov.Matern32(1, ls=0.15)


def components(kind, markov=False, as_written=False):
    """Means and sds of season, medium term and trend at new times, in ppm.

    `as_written` in the gallery the noise is a kernel; elsewhere it is a part of the sum.
    """
    *parts, noise = kernels(markov)
    with pm.Model() as model:
        gps = [kind(cov_func=kernel) for kernel in parts]
        total = gps[0] + gps[1] + gps[2]
        if as_written:
            data = {"X": YEARS, "y": Y, "sigma": noise + cov.WhiteNoise(SIGMA)}
            total.marginal_likelihood("y", **data)
        else:
            total, data = total + kind(cov_func=noise), {}
            total.marginal_likelihood("y", YEARS, Y, SIGMA)
        given = data | {"gp": total}
        found = [gp.predict(NEW, {}, diag=True, given=given, model=model) for gp in gps]
    return SCALE * np.array([[mean, np.sqrt(var)] for mean, var in found])


@pytest.mark.parametrize("as_written", [True, False])
def test_the_components_are_those_of_pymc(as_written):
    """To .1 ppm."""
    found = components(sgp.ExactMarginal, as_written=as_written)
    expected = components(pm.gp.Marginal, as_written=True)
    assert_allclose(found, expected, rtol=0, atol=0.02)


@pytest.mark.slow
def test_in_state_space_with_the_nearest_kernels():
    found, exact = (components(kind, True) for kind in (sgp.StateSpaceMarginal, sgp.ExactMarginal))
    assert_allclose(found, exact, rtol=0, atol=1e-5)
    assert np.abs(found - components(sgp.ExactMarginal)).max() > 0.05  # other kernels


@pytest.mark.slow
def test_with_inducing_points_and_neighbors():
    """To .1 ppm: few points for each part, and neighbours for what they miss."""
    exact = components(sgp.ExactMarginal)
    found = components(partial(sgp.VecchiaMarginal, n_inducing=20))
    assert_allclose(found, exact, rtol=0, atol=0.1)
    few = partial(sgp.VecchiaMarginal, n_inducing=5, neighbors=3)
    assert np.abs(components(few) - exact).max() > 0.1
