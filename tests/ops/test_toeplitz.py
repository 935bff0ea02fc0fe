"""Symmetric Toeplitz products by FFT, and their adjoint."""

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from marks import in_back_ends
from numpy.testing import assert_allclose
from scipy.linalg import toeplitz

from pymc_scalable_gp.ops.toeplitz import (
    ToeplitzLags,
    ToeplitzMatmul,
    lags_by_pairs,
    matmul_by_pairs,
    toeplitz_matvec,
)
from pymc_scalable_gp.testing import check_op


def reference(column, V):
    return toeplitz(column) @ V if len(column) else np.zeros(V.shape)


def twin(column, V):
    n = column.shape[0]
    lag = pt.abs(pt.arange(n)[:, None] - pt.arange(n))
    return column[lag] @ V


def lags(V, G):
    m = len(V)
    places = np.abs(np.subtract.outer(np.arange(m), np.arange(m)))
    return np.bincount(places.ravel(), (G @ V.T).ravel(), m) if m else np.zeros(0)


RNG = np.random.default_rng(0)
# m = 0, 1, 2, even and odd, a prime; k = 0, 1, more columns than rows; strided; Fortran order.
SHAPES = [(7, 3), (1, 2), (2, 1), (0, 2), (16, 4), (31, 1), (5, 0), (3, 9)]
CASES = [(RNG.standard_normal(m), RNG.standard_normal((m, k))) for m, k in SHAPES]
CASES.append((RNG.standard_normal(14)[::2], RNG.standard_normal((14, 6))[::2, ::-2]))
CASES.append((CASES[0][0], np.asfortranarray(CASES[0][1])))


@in_back_ends
def test_op(modes):
    check_op(ToeplitzMatmul, ToeplitzMatmul(), reference, CASES, twin=twin, rtol=1e-13,
             grad_rtol=1e-12, modes=modes)  # fmt: skip


def test_adjoint():
    cases = [(V, RNG.standard_normal(V.shape)) for _, V in CASES]
    check_op(ToeplitzLags, ToeplitzLags(), lags, cases, rtol=1e-13, grad_rtol=1e-12)


@pytest.mark.parametrize("shape", [(9,), (9, 2)])
def test_vectors_and_matrices(shape):
    column, V = RNG.standard_normal(9), RNG.standard_normal(shape)
    found = toeplitz_matvec(column, V).eval(mode="FAST_COMPILE")
    assert_allclose(found, toeplitz(column) @ V, atol=1e-13)


def test_second_derivatives():
    column, V = pt.vector(dtype="float64"), pt.vector(dtype="float64")
    value = (toeplitz_matvec(column, V) ** 3).sum()
    slope = (pt.grad(value, column) ** 2).sum()
    again = pytensor.function([column, V], [slope, pt.grad(slope, column)], mode="FAST_COMPILE")
    c, v, step = RNG.standard_normal(5), RNG.standard_normal(5), 1e-6
    direction = RNG.standard_normal(5)
    up, down = (again(c + s * step * direction, v)[0] for s in (1, -1))
    assert_allclose((up - down) / (2 * step), again(c, v)[1] @ direction, rtol=1e-7)


@pytest.mark.parametrize("m", [4096, 5000, 4097])
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_long_columns(m, mode):
    """Values and gradients of a slowly decaying kernel and of noise, some columns at once."""
    rng = np.random.default_rng(m)
    column, V, G = pt.dvector(), pt.dmatrix(), pt.dmatrix()
    product = toeplitz_matvec(column, V)
    slopes = pt.grad((product * G).sum(), [column, V])
    function = pytensor.function([column, V, G], [product, *slopes], mode=mode)
    for c in (np.exp(-np.arange(m) / 300.0), rng.standard_normal(m)):
        v, g = rng.standard_normal((2, m, 3))
        T = toeplitz(c)
        by_lag = [np.correlate(g[:, j], v[:, j], "full") for j in range(3)]
        both = np.sum(by_lag, axis=0)
        lag = both[m - 1 :] + np.r_[0.0, both[m - 2 :: -1]]
        for found, e in zip(function(c, v, g), (T @ v, lag, T @ g), strict=True):
            assert_allclose(found, e, rtol=0, atol=1e-12 * np.abs(e).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "inputs"), [(matmul_by_pairs, CASES[0]), (lags_by_pairs, CASES[0][1:] * 2)]
)
def test_numba_never_calls_python(body, inputs):
    """Object mode would take the GIL: a block of it is lifted out of the compiled function."""
    function = numba.njit(body)
    function.compile(tuple(map(numba.typeof, inputs)))
    compiled = list(function.overloads.values())
    assert len(compiled) == 1
    assert not any(result.lifted for result in compiled)


def test_refuses_other_shapes():
    with pytest.raises(TypeError, match=r"ToeplitzMatmul needs inputs of shapes \(m\), \(m, k\); got 2, 2"):
        ToeplitzMatmul()(np.eye(2), np.eye(2))
