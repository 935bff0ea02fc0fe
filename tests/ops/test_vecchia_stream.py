"""The streamed density with neighbours in Numba, beside Python's, which has all blocks at once."""

from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from block_plans import plan
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops import _numba
from pymc_scalable_gp.ops.stationary_logp import StationaryLogp
from pymc_scalable_gp.utils.compiled import IN_PYTHON


@cache
def functions(g):
    """Value and gradients in features and residual, by Numba and by Python."""
    X, phi, neighbors = pt.dmatrix(), pt.dmatrix(), pt.lmatrix()
    scale, noise, e = pt.dvector(), pt.dvector(), pt.dvector()
    found = StationaryLogp((("RatQuad",),), g)(
        X, scale[None], np.ones(1), np.ones(1), pt.zeros((0, X.shape[0])), phi, noise, e, neighbors
    )
    inputs, outputs = ([X, scale, phi, noise, e, neighbors], [*found[:2], *pt.grad(found[0], [phi, e])])
    return [pytensor.function(inputs, outputs, mode=mode) for mode in ("NUMBA", IN_PYTHON)]


def numba_logp(*arguments):
    """The same at some arguments, the last of which is the length of blocks."""
    *values, g = arguments
    return [function(*values) for function in functions(g)]


@pytest.mark.parametrize(("n", "g", "k", "r"), [(1300, 16, 5, 3), (300, 140, 7, 2), (40, 1, 0, 0)])
def test_streamed_density_at_other_sizes(n, g, k, r):
    """More rows than are whitened at a time; blocks too large for the small kernels; no features."""
    rng = np.random.default_rng(7)
    X, phi, e = (rng.standard_normal((n, 2)), 0.1 * rng.standard_normal((n, r)), rng.standard_normal(n))
    fast, expected = numba_logp(X, np.ones(2), phi, np.full(n, 0.5), e, plan(n, g, k), g)
    for a, b in zip(fast, expected, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max(initial=0.0))


def test_all_lengths_of_blocks_share_machine_code():
    functions(1)
    before = len(_numba._CALLED)
    functions(17)  # a length that no other test has
    assert len(_numba._CALLED) == before


def test_streamed_density_of_nearly_collinear_features():
    """Coefficients as well determined as by the QR factor of the whitened features."""
    rng = np.random.default_rng(8)
    n, base = 200, rng.standard_normal((200, 1))
    phi = np.concatenate([base, base + 1e-6 * rng.standard_normal((n, 1))], axis=1)
    phi *= np.sqrt((1.0 - 1e-8) / (phi**2).sum(axis=1, keepdims=True))
    X, e = np.arange(n)[:, None] * 10.0, base[:, 0] + 1e-6 * rng.standard_normal(n)
    none = np.zeros((n, 0), dtype=int)
    fast, expected = numba_logp(X, np.ones(1), phi, np.full(n, 1e-10), e, none, 1)
    assert np.isfinite(expected[0])
    assert_allclose(fast[0], expected[0], rtol=1e-9)
    assert_allclose(fast[1], expected[1], rtol=1e-6)


def test_streamed_density_fails_with_nan():
    phi = np.zeros((4, 1))
    phi[3] = 2.0  # more than the prior variance
    for found in numba_logp(
        np.arange(4.0)[:, None], np.ones(1), phi, np.zeros(4), np.ones(4), plan(4, 1, 2), 1
    ):
        assert all(np.isnan(x).all() for x in found)
