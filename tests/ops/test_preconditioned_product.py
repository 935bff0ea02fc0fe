"""Products with a preconditioned sum of Hadamard products."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_scalable_gp.linops.preconditioner import LowRankPreconditioner
from pymc_scalable_gp.methods.skip.product_normal import WhitenedProducts
from pymc_scalable_gp.ops.preconditioned_product import (
    PreconditionedProduct,
    preconditioned_product,
)
from pymc_scalable_gp.testing import check_op

N, WIDTHS = 7, (2, 3, 4, 1)  # two terms


def case(k, n=N, step=1, seed=0):
    rng = np.random.default_rng(seed)
    a, b = sum(WIDTHS[::2]), sum(WIDTHS[1::2])
    A = rng.standard_normal((n * step, a))[::step]
    return rng.standard_normal((n, k)), A, rng.standard_normal((n, b)), rng.uniform(0.5, 2, n)


@pytest.mark.parametrize("n", [N, 1, 0])
def test_product(n):
    rng = np.random.default_rng(1)
    vectors = np.linalg.qr(rng.standard_normal((n, min(n, 3))))[0]
    shrinkage = rng.uniform(0.1, 0.9, vectors.shape[1])
    white = np.eye(n) - (vectors * shrinkage) @ vectors.T

    def dense(A, B):
        starts_a, starts_b = (0, 2, 6), (0, 3, 4)
        terms = (
            (A[:, a:c], B[:, b:d])
            for a, c, b, d in zip(starts_a, starts_a[1:], starts_b, starts_b[1:], strict=False)
        )
        return sum((At @ At.T) * (Bt @ Bt.T) for At, Bt in terms)

    def reference(V, A, B, scale):
        return white @ (white @ V + scale[:, None] * (dense(A, B) @ (scale[:, None] * (white @ V))))

    check_op(
        PreconditionedProduct,
        lambda *inputs: preconditioned_product(*inputs, vectors, shrinkage, WIDTHS),
        reference,
        [case(3, n), case(1, n), case(2, n, step=2)],
        twin=lambda V, A, B, s: pt.dot(
            white, pt.dot(white, V) + s[:, None] * (dense(A, B) @ (s[:, None] * pt.dot(white, V)))
        ),
        rtol=1e-12,
        jax_cases=1,
    )


def test_the_preconditioner_is_the_inverse_root():
    rng = np.random.default_rng(0)
    F = rng.standard_normal((9, 4))
    exact = np.eye(9) + F @ F.T
    for P in (
        LowRankPreconditioner.from_factor(F),
        LowRankPreconditioner.from_products(lambda V: F @ (F.T @ V), 9, 4),
    ):
        root = P.root_inverse(np.eye(9))
        np.testing.assert_allclose(root @ exact @ root, np.eye(9), atol=1e-10)
        np.testing.assert_allclose(P.logdet, np.linalg.slogdet(exact)[1], rtol=1e-10)


def test_the_operator_and_its_diagonal():
    rng = np.random.default_rng(2)
    roots = [rng.standard_normal((N, w)) for w in WIDTHS]
    scale = rng.uniform(0.5, 2, N)
    vectors, shrinkage = np.linalg.qr(rng.standard_normal((N, 3)))[0], rng.uniform(0.1, 0.9, 3)
    operator = WhitenedProducts.of([pt.constant(r) for r in roots], scale, vectors, shrinkage)
    A, B, C, D = roots
    white = np.eye(N) - (vectors * shrinkage) @ vectors.T
    middle = (A @ A.T) * (B @ B.T) + (C @ C.T) * (D @ D.T)
    expected = white @ (np.eye(N) + scale[:, None] * middle * scale) @ white
    found, diagonal = (x.eval(mode="FAST_COMPILE") for x in (operator.to_dense(), operator.diag()))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(diagonal, np.diag(expected), atol=1e-12)
