"""Small dense algebra: loops up to a size, and LAPACK beyond it."""

import numba
import numpy as np
import pytest
from marks import often
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops._small import add_small, factor_small, multiply_small, solve_small, subtract_gram


@numba.njit
def run(K, rows, wide, other):
    lower = K.copy()
    good = factor_small(lower)
    left, right = rows.copy(), rows.copy().T.copy()
    solve_small(lower, left, False, False)
    solve_small(lower, right, True, True)
    product, turned = np.zeros((len(K), wide.shape[1])), np.zeros(wide.shape)
    multiply_small(K, wide, False, False, product)
    multiply_small(other, wide, True, False, turned)
    gram = K.copy()
    subtract_gram(wide, gram)
    sums = np.ones((len(K), len(K)))
    add_small(wide, wide, True, -2.0, sums)
    add_small(K, other, False, 3.0, sums)
    return good, lower, left, right, product, turned, gram, sums


@pytest.mark.parametrize("n", often([1, 7, 60, 131], 60))
def test_against_numpy(n):
    """With 60 rows and 90 columns products and Gram matrices are cut in pieces."""
    rng = np.random.default_rng(n)
    F = rng.standard_normal((n, n + 2))
    K, rows = F @ F.T + np.eye(n), rng.standard_normal((n, 3))
    wide, other = rng.standard_normal((n, 90)), rng.standard_normal((n, n))
    good, lower, left, right, product, turned, gram, sums = run(
        np.tril(K) + np.tril(K, -1).T, rows, wide, other
    )
    expected = np.linalg.cholesky(K)
    solved = np.linalg.solve(expected, rows)
    assert good
    assert_allclose(lower, expected, rtol=1e-10, atol=1e-10)
    assert_allclose(left, solved, rtol=1e-9, atol=1e-10)
    assert_allclose(right, solved.T, rtol=1e-9, atol=1e-10)
    assert_allclose(product, K @ wide, rtol=1e-11, atol=1e-10)
    assert_allclose(turned, other.T @ wide, rtol=1e-11, atol=1e-10)
    assert_allclose(np.tril(gram), np.tril(K - wide @ wide.T), rtol=1e-11, atol=1e-10)
    assert_allclose(sums, 1.0 - 2.0 * wide @ wide.T + 3.0 * K @ other, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize(("n", "last"), [(3, -1.0), (3, np.nan), (130, -1.0)])
def test_what_is_not_positive_definite(n, last):
    @numba.njit
    def factor(a):
        return factor_small(a)

    K = np.eye(n)
    K[-1, -1] = last
    assert not factor(K)
