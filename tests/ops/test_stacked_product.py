"""Products of stacked matrices, either factor transposed or not."""

import numpy as np
import pytest

from pymc_scalable_gp.ops.stacked_product import StackedProduct, product, stacked_product
from pymc_scalable_gp.testing import check_op


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_op(transpose_a, transpose_b):
    rng = np.random.default_rng(0)

    def pair(d, p, m, q):
        a, b = rng.standard_normal((d, p, m)), rng.standard_normal((d, m, q))
        return (
            a.swapaxes(1, 2).copy() if transpose_a else a,
            b.swapaxes(1, 2).copy() if transpose_b else b,
        )

    def reference(a, b):
        a = a.swapaxes(1, 2) if transpose_a else a
        return a @ (b.swapaxes(1, 2) if transpose_b else b)

    strided = tuple(np.repeat(x, 2, axis=2)[:, :, ::2] for x in pair(3, 2, 4, 5))
    check_op(
        StackedProduct,
        lambda a, b: stacked_product(a, b, transpose_a=transpose_a, transpose_b=transpose_b),
        reference,
        [pair(3, 2, 4, 5), pair(0, 2, 2, 2), pair(1, 1, 1, 1), pair(2, 3, 0, 2), strided],
        rtol=1e-13,
        grad_rtol=1e-12,
        jax_cases=1,
    )


def test_needs_stacks():
    with pytest.raises(TypeError, match=r"StackedProduct needs inputs of shapes \(d, p, m\), \(d, m, q\)"):
        stacked_product(np.eye(2), np.eye(2))


def test_product_of_matrices_and_of_a_matrix_and_a_vector():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    for found, expected in (
        (product(a, b), a @ b),
        (product(a.T, b, transpose_a=True), a @ b),
        (product(a, b.T, transpose_b=True), a @ b),
        (product(a, b[:, 0]), a @ b[:, 0]),
        (product(a.T, b[:, 0], transpose_a=True), a @ b[:, 0]),
    ):
        assert found.type.shape == expected.shape
        np.testing.assert_allclose(found.eval(), expected, rtol=1e-14)
