"""Softmax interpolation: values, gradients of X, Z and T, close, equal and far points."""

import tracemalloc

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from marks import in_back_ends
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax

from pymc_scalable_gp.ops import softmax_interpolation
from pymc_scalable_gp.ops.softmax_interpolation import _BLOCK, SoftmaxInterpolation
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def reference(X, Z, T=1.0):
    size = np.sqrt((((X[:, None] - Z) / T) ** 2).sum(axis=-1))
    return softmax(-size, axis=1) if len(Z) else np.zeros((len(X), 0))


def twin(X, Z, T=1.0):
    squares = (((X[:, None] - Z) / T) ** 2).sum(axis=-1)
    size = pt.switch(squares > 0, pt.sqrt(pt.switch(squares > 0, squares, 1.0)), 0.0)
    return pt.special.softmax(-size, axis=1)


def compiled(*shapes, mode="NUMBA"):
    """Value and gradients for given cotangents."""
    inputs = [pt.tensor(dtype="float64", shape=(None,) * k) for k in shapes]
    g = pt.matrix(dtype="float64")
    out = softmax_interpolation(*inputs)
    grads = pt.grad((out * g).sum(), inputs)
    return pytensor.function([*inputs, g], [out, *grads], mode=mode)


@in_back_ends
# n = 0, 1 and one block plus a rest; one point; more points than inputs; d where few pairs, and
# where nearly all pairs, go through the matrix product; strided; Fortran order.
@pytest.mark.parametrize("d", [1, pytest.param(3, marks=pytest.mark.slow), 40])
def test_op(d, modes):
    rng = np.random.default_rng(d)
    shapes = [(7, 4), (0, 3), (1, 5), (_BLOCK + 3, 4), (3, 1), (3, 9)]
    cases = [(rng.standard_normal((n, d)), rng.standard_normal((m, d))) for n, m in shapes]
    cases.append((rng.standard_normal((14, 2 * d))[::2, ::-2], rng.standard_normal((8, d))[::2]))
    cases.append(tuple(np.asfortranarray(a) for a in cases[0]))
    check_op(
        SoftmaxInterpolation,
        softmax_interpolation,
        reference,
        cases,
        twin=twin,
        rtol=1e-13,  # d roundings of each distance
        grad_rtol=1e-12,
        fd_step=1e-7,
        modes=modes,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (3,)])
def test_temperature(shape):
    rng = np.random.default_rng(0)
    X, Z, T = rng.standard_normal((9, 3)), rng.standard_normal((4, 3)), rng.uniform(0.5, 2, shape)
    check_op(SoftmaxInterpolation, softmax_interpolation, reference, [(X, Z, T)], twin=twin, rtol=1e-13)


def test_low_temperature_gives_the_nearest_point_everything():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((20, 2)), rng.standard_normal((5, 2))
    weights = softmax_interpolation(X, Z, 1e-6).eval(mode=IN_PYTHON)
    nearest = np.argmin(((X[:, None] - Z) ** 2).sum(-1), axis=1)
    assert_array_equal(weights, np.eye(5)[nearest])


@pytest.mark.parametrize("mode", ["NUMBA", IN_PYTHON])
@pytest.mark.parametrize("d", [2, 30])
@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-9, 1e-5, 1e-2])
def test_close_points_keep_all_digits(d, gap, mode):
    """The product form alone is off by 1e-8 / 1e-5 in the distance at x = z / at a gap of 1e-5.

    The offset of 100 makes X - Z itself good to 1e-14 only, hence gaps below that are compared with
    what is left of them.
    """
    rng = np.random.default_rng(d)
    Z = 100.0 + rng.standard_normal((6, d))
    X = np.concatenate([Z + gap * rng.standard_normal((6, d)), rng.standard_normal((3, d))])
    g = rng.standard_normal((9, 6))
    out, gx, gz = compiled(2, 2, mode=mode)(X, Z, g)
    difference = (X[:, None] - Z).astype(np.longdouble)
    size = np.sqrt((difference**2).sum(-1))
    weights = np.exp(size.min(axis=1, keepdims=True) - size)
    weights /= weights.sum(axis=1, keepdims=True)
    bar = weights * ((g * weights).sum(axis=1, keepdims=True) - g)
    C = np.where(size > 0, bar / np.where(size > 0, size, 1), 0)[:, :, None] * difference
    assert_allclose(out, weights.astype(float), atol=1e-12)
    # Centring moves X - Z by a rounding of 100, which turns the direction of a gap of that size.
    turn = 1e-10 + (3e-14 / gap if gap else 0.0)
    assert_allclose(gx, C.sum(axis=1).astype(float), atol=turn)
    assert_allclose(gz, -C.sum(axis=0).astype(float), atol=turn)


@pytest.mark.parametrize("scale", [1e3, 1e8, 1e100])
def test_far_points_neither_overflow_nor_underflow(scale):
    rng = np.random.default_rng(0)
    X, Z = scale * rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    out, *grads = compiled(2, 2)(X, Z, rng.standard_normal((5, 4)))
    # From far away only the direction counts: -||x - z|| = -||x|| + z'x / ||x|| + O(1 / ||x||).
    limit = softmax(X @ Z.T / np.linalg.norm(X, axis=1, keepdims=True), axis=1)
    if scale < 1e7:
        assert_allclose(out, limit, atol=10 / scale)
        assert_allclose(out, reference(X, Z), rtol=1e-9)  # 1e3 roundings of the distance
    assert_allclose(out.sum(axis=1), 1.0, rtol=1e-14)
    assert all(np.isfinite(grad).all() for grad in grads)


def test_duplicate_points_share_the_weight():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((6, 3)), rng.standard_normal((4, 3))
    out = softmax_interpolation(X, np.concatenate([Z, Z[:1]])).eval(mode=IN_PYTHON)
    assert_array_equal(out[:, 0], out[:, 4])
    assert_allclose(out.sum(axis=1), 1.0, rtol=1e-14)


def test_nan_in_gives_nan_out():
    X, Z = np.zeros((3, 2)), np.ones((2, 2))
    X[1, 0] = np.nan
    for mode in (IN_PYTHON, "NUMBA"):
        out = compiled(2, 2, mode=mode)(X, Z, np.ones((3, 2)))[0]
        assert_array_equal(np.isnan(out).all(axis=1), [False, True, False])


def test_memory_is_the_result_and_a_block():
    """An array (n, m, d) would take 400 MB here."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((2000, 500)), rng.standard_normal((50, 500))
    op = SoftmaxInterpolation()
    node = op.make_node(X, Z)
    tracemalloc.start()
    op.perform(node, [X, Z], [[None]])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # X centred: 8 MB


def test_refuses_other_shapes():
    with pytest.raises(TypeError, match=r"SoftmaxInterpolation needs inputs of shapes \(n, d\), \(m, d\)"):
        softmax_interpolation(np.zeros(3), np.zeros((2, 3)))


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan, [0.5, -0.5, 1.0]])
def test_refuses_a_temperature_that_is_not_positive(bad):
    for wrong in (np.ones(5), np.ones((3, 1))):
        with pytest.raises(ValueError, match="temperature must be a scalar or have shape"):
            softmax_interpolation(np.ones((3, 2)), np.ones((3, 2)), wrong)
    with pytest.raises(ValueError, match="temperature must be positive"):
        softmax_interpolation(np.zeros((4, 3)), np.zeros((2, 3)), bad)
