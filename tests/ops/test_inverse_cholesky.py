"""Inverse Cholesky factors: values, gradients, back-ends, failure."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from marks import in_back_ends
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops import inverse_cholesky
from pymc_scalable_gp.ops.stacked_cholesky import InverseCholesky
from pymc_scalable_gp.ops.stacked_product import stacked_product
from pymc_scalable_gp.testing import check_op
from pymc_scalable_gp.utils.compiled import IN_PYTHON


def symmetric(roots):
    return roots @ roots.swapaxes(-1, -2)


def reference(roots, jitter=0.01):
    A = symmetric(roots)
    eye = np.eye(A.shape[1])
    return np.stack([np.linalg.inv(np.linalg.cholesky(a + jitter * np.trace(a) * eye)) for a in A])


@in_back_ends
def test_op(modes):
    """A large jitter, so that its own part in the gradient shows."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((2, 4, 4))
    strided = rng.standard_normal((4, 8, 4))[::2, ::-2]
    cases = [base, base[:1, :1, :1], strided, np.asfortranarray(base)]

    def build(roots):
        # pt.matmul of stacks takes Numba minutes to compile.
        return inverse_cholesky(stacked_product(roots, roots, transpose_b=True), 0.01)

    check_op(
        InverseCholesky, build, reference, [(a,) for a in cases], rtol=1e-11, grad_rtol=1e-9,
        jax_cases=2, modes=modes,
    )  # fmt: skip


def test_gradient_against_pytensors_own_for_one_matrix():
    rng = np.random.default_rng(1)
    root, (g,) = pt.matrix(dtype="float64"), rng.standard_normal((1, 5, 5))
    A = root @ root.T
    own = pt.linalg.inv(pt.linalg.cholesky(A + 0.01 * pt.trace(A) * pt.eye(5)))
    losses = [(inverse_cholesky(A[None], 0.01)[0] * g).sum(), (own * g).sum()]
    function = pytensor.function([root], [pt.grad(loss, root) for loss in losses], mode=IN_PYTHON)
    found, expected = function(rng.standard_normal((5, 5)))
    assert_allclose(found, expected, rtol=1e-9)


def test_the_default_jitter_factors_a_singular_matrix():
    ones = np.ones((1, 50, 50))
    W = inverse_cholesky(ones).eval()[0]
    assert_allclose(W @ (ones[0] + 50e-10 * np.eye(50)) @ W.T, np.eye(50), atol=1e-3)


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA"])
def test_failure_gives_nan_and_leaves_the_others(mode):
    a = pt.tensor3(dtype="float64")
    function = pytensor.function([a], inverse_cholesky(a), mode=mode)
    good = 2.0 * np.eye(3)
    bad = np.diag([1.0, np.nan, 1.0]), np.diag([1.0, np.inf, 1.0]), np.diag([1.0, -1.0, 1.0])
    found = function(np.stack([good, *bad]))
    assert_allclose(found[0], np.eye(3) / np.sqrt(2.0), rtol=1e-9)
    assert np.isnan(found[1:]).all()


@pytest.mark.parametrize("mode", [IN_PYTHON, "NUMBA", "JAX"])
def test_a_matrix_of_zeros_has_the_jitter_of_one_of_trace_one(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    a = pt.tensor3(dtype="float64")
    function = pytensor.function([a], inverse_cholesky(a, 0.01), mode=mode)
    found = function(np.stack([np.zeros((2, 2)), np.eye(2)]))
    assert_allclose(found[0], 10.0 * np.eye(2), rtol=1e-12)
    assert_allclose(found[1], np.eye(2) / np.sqrt(1.02), rtol=1e-12)


def test_needs_stacked_matrices():
    with pytest.raises(TypeError, match=r"InverseCholesky needs inputs of shapes \(d, m, m\)"):
        inverse_cholesky(np.eye(3))
