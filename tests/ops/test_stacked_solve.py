"""Solutions of stacked lower-triangular systems: values, gradients, back-ends, failure."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops.stacked_solve import StackedSolve, lower_solve, stacked_solve
from pymc_scalable_gp.testing import check_op


@pytest.mark.parametrize("transpose", [False, True])
def test_op(transpose):
    """Full matrices, whose upper triangles must not be read."""
    rng = np.random.default_rng(0)

    def pair(d, m, k):
        lower = rng.standard_normal((d, m, m)) + 2.0 * m * np.eye(m)
        return lower, rng.standard_normal((d, m, k))

    def factor(L, lib):
        L = lib.tril(L)
        return L.swapaxes(1, 2) if transpose else L

    strided = tuple(np.repeat(x, 2, axis=2)[:, :, ::2] for x in pair(2, 3, 4))
    check_op(
        StackedSolve,
        lambda L, B: stacked_solve(L, B, transpose=transpose),
        lambda L, B: np.linalg.solve(factor(L, np), B),
        [pair(2, 4, 3), pair(1, 1, 1), strided],
        twin=lambda L, B: pt.linalg.solve(factor(L, pt), B),
        rtol=1e-13,
        grad_rtol=1e-11,
        jax_cases=1,
    )


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA", "JAX"])
def test_a_zero_on_the_diagonal_gives_nan(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    L, B = pt.tensor3(dtype="float64"), pt.tensor3(dtype="float64")
    function = pytensor.function([L, B], stacked_solve(L, B), mode=mode)
    found = function(np.stack([np.eye(2), np.diag([1.0, 0.0])]), np.ones((2, 2, 1)))
    assert_allclose(found[0], 1.0)
    assert np.isnan(found[1]).all()
    for d, m, k in ((0, 2, 2), (2, 0, 3), (2, 3, 0)):
        assert function(np.ones((d, m, m)), np.ones((d, m, k))).shape == (d, m, k)


def test_one_matrix():
    L, b = np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0])
    assert_allclose(lower_solve(L, b).eval(), [1.0, 2.0])
    assert_allclose(lower_solve(L, b[:, None], transpose=True).eval(), [[-0.5], [3.0]])


def test_needs_stacks():
    with pytest.raises(TypeError, match=r"StackedSolve needs inputs of shapes \(d, m, m\)"):
        stacked_solve(np.eye(2), np.eye(2))
