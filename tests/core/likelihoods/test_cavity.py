"""What is known of a row under any likelihood, given all others: quadrature against closed forms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from pymc_scalable_gp.core.likelihoods.cavity import CavityPrecision

MEAN, SD = 0.4, 0.9  # of the function, given all other rows


def left_out(y, noise, logp, below):
    """Rows that have this mean and sd without their own target, which has a pseudo-noise (n,)."""
    diagonal = 1.0 / (SD**2 + noise)
    return CavityPrecision(y, noise, (y - MEAN) * diagonal, diagonal, None, logp, below).left_out()


@pytest.mark.parametrize("sigma", [1e-5, 1e-3, 0.05, 1.0, 100.0])
def test_normal_noise(sigma):
    """Narrow beside the function's sd or wide, and for targets far out too."""
    total = np.hypot(SD, sigma)
    y = MEAN + total * np.array([-40.0, -3.0, -0.6, 0.0, 0.3, 2.0, 40.0])
    logp, below = left_out(
        y, np.full(7, sigma**2), lambda f: stats.norm.logpdf(y, f, sigma),
        lambda f: stats.norm.cdf(y, f, sigma),
    )  # fmt: skip
    assert_allclose(logp, stats.norm.logpdf(y, MEAN, total), rtol=1e-7)
    assert_allclose(below, stats.norm.cdf(y, MEAN, total), atol=1e-6)


def test_a_peak_where_the_pseudo_target_says_nothing():
    """Noise with outliers has no second derivative that would count, and a peak for all that."""
    y, (p, q) = np.linspace(-3.0, 4.0, 50), (0.1, 2.0)

    def mixed(function, f, of_f=0.0):
        return 0.9 * function(y, f, np.hypot(p, of_f)) + 0.1 * function(y, f, np.hypot(q, of_f))

    logp, below = left_out(
        y, np.full(50, 1e6), lambda f: np.log(mixed(stats.norm.pdf, f)),
        lambda f: mixed(stats.norm.cdf, f),
    )  # fmt: skip
    # The peak is a ninth of the function's sd wide: three nodes in most places.
    assert_allclose(logp, np.log(mixed(stats.norm.pdf, MEAN, SD)), atol=1e-4)
    assert_allclose(below, mixed(stats.norm.cdf, MEAN, SD), atol=1e-7)


def test_a_density_that_overflows_far_out():
    """A density that is NaN where nothing of it is left has no weight there."""
    y = np.array([0.3])
    logp, _ = left_out(
        y, np.array([0.01]),
        lambda f: np.where(f > MEAN + 5.0, np.nan, stats.norm.logpdf(y, f, 0.1)), lambda f: 0.0 * f,
    )  # fmt: skip
    assert_allclose(logp, stats.norm.logpdf(y, MEAN, np.hypot(SD, 0.1)), rtol=1e-7)
