"""Cubic convolution interpolation and its adjoint."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from scipy.interpolate import CubicSpline

from pymc_scalable_gp.ops.cubic_interpolation import CubicInterpolation, cubic_interpolation
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON

RNG = np.random.default_rng(0)


def dense_weights(s, m):
    """W (n, m) by Keys' piecewise formula in the distance."""
    W = np.zeros((s.size, m))
    for i, x in enumerate(s):
        j = int(np.clip(np.floor(x), 1, m - 3))
        for p in range(j - 1, j + 3):
            u = abs(x - p)
            W[i, p] = 1.5 * u**3 - 2.5 * u**2 + 1 if u < 1 else -0.5 * u**3 + 2.5 * u**2 - 4 * u + 2
    return W


def twin(s, U):
    """The same by PyTensor's own operations."""
    m = U.shape[0]
    distance = pt.abs(s[:, None] - pt.arange(m)[None, :])
    near = 1.5 * distance**3 - 2.5 * distance**2 + 1
    far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
    weights = pt.switch(distance < 1, near, pt.switch(distance < 2, far, 0.0))
    return weights @ U


def test_op():
    def case(n, m, k):
        return RNG.uniform(1.05, m - 2.05, n), RNG.standard_normal((m, k))

    strided = RNG.uniform(1, 5, 20)[::2], RNG.standard_normal((8, 6))[:, ::2]
    check_op(
        CubicInterpolation,
        cubic_interpolation,
        lambda s, U: dense_weights(s, len(U)) @ U,
        [case(7, 9, 2), case(0, 5, 2), case(1, 4, 1), case(3, 30, 4), strided],
        twin=twin,
        rtol=1e-12,
        jax_cases=2,
    )


def test_quadratics_are_exact_and_smooth_functions_third_order():
    x = np.linspace(0.0, 1.0, 101)
    values = cubic_interpolation(1.0 + 10 * x, np.arange(-1.0, 12.0)[:, None] ** 2 / 100).eval()
    assert_allclose(values[:, 0], x**2, atol=1e-13)
    errors = []
    for h in (0.1, 0.05):
        nodes = np.arange(-1, round(1 / h) + 2) * h
        found = cubic_interpolation(1.0 + x / h, np.sin(3 * nodes)[:, None]).eval()[:, 0]
        errors.append(np.abs(found - np.sin(3 * x)).max())
        assert np.abs(found - CubicSpline(nodes, np.sin(3 * nodes))(x)).max() < 30 * h**3
    assert errors[0] / errors[1] > 7.0


def test_too_small_a_table_is_nan():
    assert np.isnan(cubic_interpolation(np.ones(3), np.ones((3, 1))).eval()).all()


def test_wrong_dimensions():
    with pytest.raises(TypeError, match=r"CubicInterpolation needs .* \(n\), \(m, k\); got 2, 2"):
        cubic_interpolation(np.ones((3, 1)), np.ones((5, 1)))


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", "JAX"], ids=["py", "numba", "jax"])
def test_nan_where_the_place_is_nan(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    s = pt.vector(dtype="float64")
    value = cubic_interpolation(s, np.arange(6.0)[:, None])
    function = pytensor.function([s], [value, pt.grad(value.sum(), s)], mode=mode)
    for found in map(np.asarray, function(np.array([2.5, np.nan]))):
        assert np.isnan(found.ravel()).tolist() == [False, True]
