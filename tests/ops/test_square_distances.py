"""Squared distances: values, gradients, offsets, symmetry, close and equal points."""

import tracemalloc

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_scalable_gp.ops import square_distances
from pymc_scalable_gp.ops.square_distances import (
    BY_PRODUCT,
    SquareDistances,
    WeightedDifferences,
    WeightedSquares,
)
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON

MANY = BY_PRODUCT + 6


def reference(X, Z, scale):
    return (((X[:, None] - Z) * scale) ** 2).sum(axis=-1)


def twin(X, Z, scale):
    return (((X[:, None] - Z) * scale) ** 2).sum(axis=-1)


RNG = np.random.default_rng(0)
# Few and many inputs; n or m = 0, 1; more than a block of four, and of 256; strided; Fortran order.
SHAPES = [(7, 5, 3), (6, 3, MANY), (3, 0, MANY), (0, 3, 1), (1, 4, 1), (3, 1, MANY), (258, 3, MANY)]
POINTS = [(RNG.standard_normal((n, d)), RNG.standard_normal((m, d))) for n, m, d in SHAPES]
POINTS.append((RNG.standard_normal((14, 6))[::2, ::-2], RNG.standard_normal((8, 3))[::2]))
POINTS.append(tuple(np.asfortranarray(a) for a in POINTS[1]))
CASES = [(X, Z, RNG.uniform(0.5, 2.0, X.shape[1])) for X, Z in POINTS]


def test_op():
    check_op(SquareDistances, square_distances, reference, CASES, twin=twin, rtol=1e-13, grad_rtol=1e-12)


def differences(X, Z, scale, g):
    return (g[:, :, None] * (X[:, None] - Z)).sum(axis=1)


def squares(X, Z, g):
    return (g[:, :, None] * (X[:, None] - Z) ** 2).sum(axis=(0, 1))


@pytest.mark.parametrize(
    ("op", "expected", "places"),
    [(WeightedDifferences, differences, (0, 1, 2)), (WeightedSquares, squares, (0, 1))],
)
def test_second_derivatives(op, expected, places):
    """Their Numba and JAX forms run in the gradients of `test_op`."""
    rng = np.random.default_rng(0)
    given = [
        (*(case[i] for i in places), rng.standard_normal((len(case[0]), len(case[1]))))
        for case in CASES
        if len(case[1])  # a mean of no points has no gradient
    ]
    check_op(op, op(), expected, given, twin=expected, rtol=1e-12, grad_rtol=1e-11, modes=(), jax_cases=0)


def compiled(mode, symmetric=False):
    X, Z = pt.dmatrix("X"), pt.dmatrix("Z")
    scale, g = pt.dvector("scale"), pt.dmatrix("g")
    out = square_distances(X, None if symmetric else Z, scale)
    grads = pt.grad((out * g).sum(), [X, Z, scale], disconnected_inputs="ignore")
    return pytensor.function([X, Z, scale, g], [out, *grads], mode=mode, on_unused_input="ignore")


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
@pytest.mark.parametrize("d", [2, MANY])
def test_an_offset_changes_nothing(d, mode):
    """On multiples of 2^-10 every difference is exact; the plain expansion is off by 1e-16 1e18."""
    rng = np.random.default_rng(d)
    X, Z = (np.round(rng.standard_normal((n, d)) * 1024) / 1024 for n in (9, 6))
    scale, g = rng.uniform(5.0, 10.0, d), rng.standard_normal((9, 6))
    function = compiled(mode)
    here, there = function(X, Z, scale, g), function(X + 2.0**31, Z + 2.0**31, scale, g)
    for a, b in zip(here, there, strict=True):
        assert_allclose(a, b, rtol=1e-11, atol=1e-11 * np.abs(a).max())


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
@pytest.mark.parametrize("d", [1, 5, MANY])
def test_symmetric_with_zeros_on_the_diagonal(d, mode):
    rng = np.random.default_rng(d)
    X = 1e6 + rng.standard_normal((300, d))
    X[3] = X[200]
    scale, g = rng.uniform(0.5, 2.0, d), rng.standard_normal((300, 300))
    out, gx, _, _ = compiled(mode, symmetric=True)(X, X, scale, g)
    assert_array_equal(out, out.T)
    assert_array_equal(np.diag(out), 0.0)
    assert out[3, 200] == 0.0
    both = compiled(mode)(X, X, scale, g)
    assert_allclose(out, both[0], rtol=1e-12)
    assert_allclose(gx, both[1] + both[2], rtol=1e-9, atol=1e-9 * np.abs(gx).max())


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
@pytest.mark.parametrize("d", [2, MANY])
@pytest.mark.parametrize("gap", [1e-14, 1e-9, 1e-3])
def test_close_points_keep_all_digits(d, gap, mode):
    rng = np.random.default_rng(d)
    Z = np.round(rng.standard_normal((6, d)) * 1024) / 1024
    X = Z + gap * rng.standard_normal((6, d))
    out = compiled(mode)(X, Z, np.ones(d), np.ones((6, 6)))[0]
    exact = ((X[:, None].astype(np.longdouble) - Z) ** 2).sum(axis=-1).astype(float)
    # Many inputs are centred first, which moves X - Z by a rounding.
    assert_allclose(out, exact, rtol=1e-12 if d == 2 else 1e-12 + 1e-15 / gap)


def test_nan_in_gives_nan_out():
    X, Z = np.zeros((3, 2)), np.ones((2, 2))
    X[1, 0] = np.nan
    for mode in (IN_PYTHON, "NUMBA"):
        out = compiled(mode)(X, Z, np.ones(2), np.ones((3, 2)))[0]
        assert_array_equal(np.isnan(out).all(axis=1), [False, True, False])


@pytest.mark.parametrize("d", [60, 500])
def test_memory_is_the_result_and_a_block(d):
    """An array (n, m, d) would take 48 and 400 MB here."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((2000, d)), rng.standard_normal((50, d))
    for op, more in ((SquareDistances(), []), (WeightedDifferences(), [np.ones((2000, 50))])):
        inputs = [X, Z, np.ones(d), *more]
        node = op.make_node(*inputs)
        tracemalloc.start()
        op.perform(node, inputs, [[None]])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 30e6  # X centred and scaled: 8 MB each


def test_refuses_other_shapes():
    with pytest.raises(TypeError, match=r"SquareDistances needs inputs of shapes \(n, d\), "):
        square_distances(np.zeros((3, 1)), np.zeros(3), np.ones(1))


def test_a_vector_is_refused_at_once(capfd):
    """In words alone: a graph of its second length was folded before, with a traceback on the screen."""
    with pytest.raises(TypeError, match="needs inputs of"):
        square_distances(np.arange(3.0))
    assert capfd.readouterr() == ("", "")
