"""Triangles of tall matrices: in blocks, put together, taken away."""

import numpy as np
import pytest

from pymc_scalable_gp.core.rows.triangle import RowFactor, triangle, without


def matrix(n, p, seed=0):
    return np.random.default_rng(seed).standard_normal((n, p))


def of_blocks(A, sizes, **options):
    factor, start = RowFactor(A.shape[1], **options), 0
    for size in sizes:
        factor.add(A[start : start + size])
        start += size
    assert factor.size == start == len(A)
    return factor.triangle()


@pytest.mark.parametrize("sizes", [(5000,), (1, 4999), (2048, 2048, 904), (7,) * 714 + (2,)])
@pytest.mark.parametrize("limit", [np.inf, 1000 * 36.0, -1.0])
def test_blocks_do_not_matter(sizes, limit):
    A = matrix(5000, 6) * np.logspace(0, 4, 6)
    R = of_blocks(A, sizes, limit=limit)
    # QR keeps 16 digits whatever the scales of the columns; the Gram matrix is scaled to do as well here.
    np.testing.assert_allclose(R, triangle(A), rtol=1e-11, atol=1e-9)
    assert (np.diag(R) >= 0).all()
    assert not np.tril(R, -1).any()


@pytest.mark.parametrize("n", [0, 1, 3])
def test_fewer_rows_than_columns(n):
    A = matrix(n, 6)
    R = of_blocks(A, (n,))
    assert R.shape == (6, 6)
    np.testing.assert_allclose(R.T @ R, A.T @ A, atol=1e-14)


def test_digits_of_an_ill_conditioned_basis():
    """QR knows the smallest singular value; the Gram matrix loses those below 3e-8 of the largest."""
    U, _ = np.linalg.qr(matrix(4000, 5))
    V, _ = np.linalg.qr(matrix(5, 5, 1))
    values = np.array([1.0, 1e-3, 1e-6, 1e-10, 1e-12])
    A = (U * values) @ V
    by_qr = np.linalg.svd(of_blocks(A, (4000,)))[1]
    np.testing.assert_allclose(by_qr, values, rtol=1e-3, atol=0)
    by_gram = np.linalg.svd(of_blocks(A, (4000,), limit=-1.0))[1]
    np.testing.assert_allclose(by_gram[:3], values[:3], rtol=1e-3)
    np.testing.assert_allclose(by_gram, values, rtol=0, atol=3e-8)
    assert np.abs(by_gram[3:] / values[3:] - 1.0).max() > 0.5  # squares are rounded to 1e-16


def test_taking_rows_away():
    A = matrix(900, 7) @ np.diag([1, 1, 1, 1, 1, 1e-3, 1e3])
    whole, part = triangle(A), triangle(A[:300])
    np.testing.assert_allclose(without(whole, part), triangle(A[300:]), rtol=1e-10, atol=1e-10)


def test_taking_rows_away_of_dependent_columns():
    A = matrix(400, 4)
    A = np.column_stack([A, A[:, 0] + A[:, 1], np.zeros(400)])
    left = without(triangle(A), triangle(A[:100]))
    np.testing.assert_allclose(left.T @ left, A[100:].T @ A[100:], atol=1e-9)


@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["all that holds a direction", "no part"])
def test_what_rounding_swamps_is_refused(shift):
    A = matrix(500, 3)
    A[100:, 2] = 0.0  # the third column is known by the first hundred rows alone
    with pytest.raises(ValueError, match="sum of squares"):
        without(triangle(A), triangle(A[:100] * (1.0 + shift)))


def test_columns_in_small_units_stay_when_rows_are_taken_away():
    """Directions below 1e-7 of the largest are dropped: units must not make one so small."""
    A = matrix(400, 3) * [1.0, 1e-9, 1e6]
    expected = triangle(A[100:])
    lengths = np.linalg.norm(expected, axis=0)
    left = without(triangle(A), triangle(A[:100]))
    # To rounding of a few hundred sums, in each column's own unit.
    np.testing.assert_allclose(left / lengths, expected / lengths, atol=1e-12)


def test_a_direction_of_rounding_has_no_share_that_could_be_taken_away():
    """A column that is the sum of others leaves a singular value of 1e-16, whose share is any number."""
    for seed in range(10):
        A = matrix(60, 3, seed)
        A = np.column_stack([A, A.sum(axis=1)])
        left = without(triangle(A), triangle(A[:30]))
        np.testing.assert_allclose(left.T @ left, A[30:].T @ A[30:], atol=1e-10)


def test_zeros_leave_zeros():
    zeros = np.zeros((2, 2))
    np.testing.assert_array_equal(without(zeros, zeros), zeros)


def test_a_millionth_of_the_sum_of_squares_must_stay():
    for share in (1e-5, 2e-6):  # known to 1e-16 of the whole
        rows = np.array([[1.0], [share**0.5]])
        np.testing.assert_allclose(without(triangle(rows), rows[:1]), share**0.5, rtol=1e-9)
    with pytest.raises(ValueError, match="sum of squares"):
        without(triangle(np.array([[1.0], [5e-7**0.5]])), np.ones((1, 1)))
