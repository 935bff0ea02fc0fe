"""Inputs 10^9 away from zero, under Numba: what depends on differences does not see where they lie."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops import softmax_interpolation, stationary_kernel
from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops.square_distances import BY_PRODUCT

FAR = 2.0**30
MAPS = {
    "kernel": lambda X, Z, s: stationary_kernel("Matern52", X, Z, s),
    "softmax": lambda X, Z, s: softmax_interpolation(X / s, Z / s),
}


@pytest.mark.parametrize("name", ["kernel", pytest.param("softmax", marks=pytest.mark.slow)])
def test_an_offset_changes_nothing_under_numba(name):
    """Multiples of 2^-10 over powers of two: every difference is exact, here and there."""
    X, Z, g, s = pt.dmatrix("X"), pt.dmatrix("Z"), pt.dmatrix("g"), pt.dvector("s")
    out = MAPS[name](X, Z, s)
    grads = pt.grad((out * g).sum(), [X, Z])
    function = pytensor.function([X, Z, s, g], [out, *grads], mode=BY_OPS)
    for d in (2, BY_PRODUCT + 6):
        rng = np.random.default_rng(d)
        rows, points = (np.round(rng.standard_normal((n, d)) * 1024) / 1024 for n in (9, 6))
        scale, bar = np.full(d, 4.0), rng.standard_normal((9, 6))
        here = function(rows, points, scale, bar)
        there = function(rows + FAR, points + FAR, scale, bar)
        for a, b in zip(here, there, strict=True):
            assert_allclose(b, a, rtol=1e-9, atol=1e-9 * np.abs(a).max())
