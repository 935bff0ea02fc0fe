"""The whitened sum of Hadamard products, as an operator."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner
from pymc_scalable_gp.methods.skip.hadamard import WhitenedProducts

WIDTHS = (2, 3, 4, 1)  # two terms


def parts(n):
    """Roots, scale, orthonormal vectors, shrinkage, and a matrix to multiply by."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((n, min(n, 3))))[0]
    shrinkage = rng.uniform(0.1, 0.9, vectors.shape[1])
    roots = [rng.standard_normal((n, w)) for w in WIDTHS]
    return roots, rng.uniform(0.5, 2, n), vectors, shrinkage, rng.standard_normal((n, 2))


def dense(roots, scale, vectors, shrinkage):
    """The matrix, formed; of arrays or tensors."""
    white = np.eye(len(vectors)) - (vectors * shrinkage) @ vectors.T
    A, B, C, D = roots
    middle = (A @ A.T) * (B @ B.T) + (C @ C.T) * (D @ D.T)
    return white @ (np.eye(len(vectors)) + scale[:, None] * middle * scale) @ white


@pytest.mark.parametrize("mode", ["FAST_COMPILE", pytest.param("NUMBA", marks=pytest.mark.slow)])
@pytest.mark.parametrize("n", [7, 1])
def test_the_operator_its_diagonal_and_its_gradients(n, mode):
    roots, scale, vectors, shrinkage, V = parts(n)
    inputs = [*map(pt.constant, roots), pt.constant(scale)]
    tensors = [x.type() for x in inputs]
    operator = WhitenedProducts(tensors[:4], tensors[4], vectors, shrinkage)
    matrix = dense(tensors[:4], tensors[4], vectors, shrinkage)
    values = [*roots, scale]

    def compiled(product, diagonal, mode):
        slopes = pt.grad((product**2).sum() + (diagonal**3).sum(), tensors)
        return pytensor.function(tensors, [product, diagonal, *slopes], mode=mode)(*values)

    found = compiled(operator.matmat(pt.constant(V)), operator.diag(), mode)
    expected = compiled(matrix @ V, pt.diag(matrix), "FAST_COMPILE")
    assert_allclose(expected[0], dense(roots, scale, vectors, shrinkage) @ V, atol=1e-12)
    for f, e in zip(found, expected, strict=True):
        assert_allclose(f, e, rtol=1e-11, atol=1e-11 * np.abs(e).max(initial=0.0))


def test_the_preconditioner_makes_it_the_identity():
    """Where P is exact, nothing is left to do."""
    roots, scale, _, _, _ = parts(7)
    A, B, C, D = roots
    middle = scale[:, None] * ((A @ A.T) * (B @ B.T) + (C @ C.T) * (D @ D.T)) * scale
    P = LowRankPreconditioner.from_products(lambda V: middle @ V, 7, 7)
    operator = WhitenedProducts(roots, scale, P.vectors, P.shrinkage)
    assert_allclose(operator.to_dense().eval(mode="FAST_COMPILE"), np.eye(7), atol=1e-11)
