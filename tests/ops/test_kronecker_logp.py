"""Density under a Kronecker product plus noise: values, gradients, back-ends, failure."""

from functools import reduce

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from marks import in_back_ends
from numpy.testing import assert_allclose
from scipy import stats

from pymc_scalable_gp.ops._by_ops import BY_OPS
from pymc_scalable_gp.ops.kronecker_logp import KroneckerLogp, kronecker_logp
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON

rng = np.random.default_rng(0)


def build(*given):
    *factors, sd, e = given
    return kronecker_logp([0.5 * (K + K.T) for K in factors], sd**2, e)


def twin(*given):
    *factors, sd, e = given
    S = reduce(pt.linalg.kron, [0.5 * (K + K.T) for K in factors]) + sd**2 * pt.eye(e.size)
    L = pt.linalg.cholesky(S)
    white = pt.linalg.solve_triangular(L, e.ravel(), lower=True)
    return -0.5 * (white**2).sum() - pt.log(pt.diag(L)).sum() - 0.5 * e.size * np.log(2 * np.pi)


def reference(*given):
    *factors, sd, e = given
    S = reduce(np.kron, [0.5 * (K + K.T) for K in factors]) + sd**2 * np.eye(e.size)
    return stats.multivariate_normal.logpdf(e.ravel(), np.zeros(e.size), S)


def matrix(m):
    root = rng.standard_normal((m, m + 2))
    return root @ root.T / m


def case(*shape):
    return *map(matrix, shape), np.array(0.6), rng.standard_normal(shape)


@in_back_ends
def test_two_factors(modes):
    A, B, sd, e = case(6, 8)
    strided = np.asfortranarray(A)[::2, ::2], B[::-2, ::-2], sd, e[::2, ::-2]
    cases = [case(4, 3), case(1, 1), case(1, 5), strided]
    check_op(
        KroneckerLogp, build, reference, cases, twin=twin, differentiable=[0], modes=modes, jax_cases=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "modes"),
    [
        ((5,), ()),
        pytest.param((5,), ("NUMBA",), marks=pytest.mark.slow),
        pytest.param((3, 2, 4), ("NUMBA", BY_OPS), marks=pytest.mark.slow),
    ],
    ids=["one", "one in Numba", "three"],
)
def test_other_numbers_of_factors(shape, modes):
    check_op(
        KroneckerLogp, build, reference, [case(*shape)], twin=twin, differentiable=[0], modes=modes,
        jax_cases=1,
    )  # fmt: skip


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_equal_eigenvalues(mode):
    """Identity and ones have nothing else; the gradient is that of the dense form, to rounding."""
    tensors = [pt.matrix(dtype="float64") for _ in range(2)]
    e = rng.standard_normal((4, 3))
    inputs = [np.eye(4), np.ones((3, 3))]

    def slopes(make, mode):
        grads = pt.grad(make(*tensors, pt.constant(0.5), pt.constant(e)), tensors)
        return pytensor.function(tensors, grads, mode=mode)(*inputs)

    found, expected = slopes(build, mode), slopes(twin, IN_PYTHON)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS, "JAX"], ids=["py", "numba", "jax"])
@pytest.mark.filterwarnings("error")
def test_failure_gives_nan(mode):
    """Not positive definite, not finite, or too large."""
    if mode == "JAX":
        pytest.importorskip("jax")
    K, noise, e = (pt.tensor(dtype="float64", shape=(None,) * k) for k in (2, 0, 2))
    value = kronecker_logp([K, np.eye(2)], noise, e)
    function = pytensor.function([K, noise, e], [value, *pt.grad(value, [K, noise, e])], mode=mode)
    ones = np.ones((3, 2))
    for bad in (
        (np.diag([1.0, -1.0, 1.0]), 0.5, ones),
        (np.diag([1.0, np.nan, 1.0]), 0.5, ones),
        (np.eye(3), np.nan, ones),
        (np.eye(3), 1.0, np.full((3, 2), np.inf)),
        (1e-300 * np.eye(3), 0.0, np.full((3, 2), 1e200)),
    ):
        for found in function(*bad):
            assert np.isnan(found).all()
    assert np.isfinite(function(np.eye(3), 0.5, ones)[0])


@pytest.mark.parametrize("mode", [IN_PYTHON, BY_OPS])
def test_no_cells(mode):
    value = kronecker_logp([np.zeros((0, 0)), np.eye(2)], 1.0, np.zeros((0, 2)))
    assert pytensor.function([], value, mode=mode)() == 0.0


def test_wrong_calls():
    with pytest.raises(ValueError, match="at least one matrix"):
        kronecker_logp([], 1.0, np.zeros(0))
    with pytest.raises(TypeError, match="needs inputs of shapes"):
        kronecker_logp([np.eye(2)], 1.0, np.zeros((2, 2)))
    with pytest.raises(TypeError, match="got m1 = 2 and 3"):
        kronecker_logp([np.eye(2), np.eye(2)], 1.0, np.zeros((2, 3)))
