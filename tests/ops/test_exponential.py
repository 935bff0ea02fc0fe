"""The exponential of loops in Numba against the C library's."""

import numba
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from pymc_scalable_gp.ops._exponential import exponential


@numba.njit
def fill(x, out):
    for i in range(x.size):
        out[i] = exponential(x[i])


def in_numba(x):
    out = np.empty_like(x)
    fill(x, out)
    return out


def test_to_the_last_digits():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-708.0, 709.0, 10_000), rng.uniform(-1.0, 1.0, 10_000)])
    assert_allclose(in_numba(x), np.exp(x), rtol=4e-16)  # two units in the last place
    assert_array_equal(exponential(x), np.exp(x))


def test_ends():
    """Exactly 1 at 0, 0 where the result would be subnormal, infinite above; NaN stays NaN."""
    x = np.array([0.0, -0.0, -708.01, -1e300, -np.inf, 709.01, np.inf, np.nan])
    assert_array_equal(in_numba(x), [1.0, 1.0, 0.0, 0.0, 0.0, np.inf, np.inf, np.nan])
