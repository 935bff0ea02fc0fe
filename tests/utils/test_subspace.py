"""Leading eigenpairs by subspace iteration."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.utils.subspace import leading_eigenpairs

RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.standard_normal((40, 40)))[0]
SPECTRUM = 5.0 ** -np.arange(40.0)
K = (BASIS * SPECTRUM) @ BASIS.T


@pytest.mark.parametrize("rank", [1, 5])
def test_a_falling_spectrum(rank):
    values, vectors, products = leading_eigenpairs(lambda V: K @ V, 40, rank)
    assert_allclose(values, SPECTRUM[:rank], rtol=1e-12)
    assert_allclose(np.abs(vectors.T @ BASIS[:, :rank]), np.eye(rank), atol=1e-7)
    assert_allclose(products, K @ vectors, atol=1e-14)


def test_no_more_columns_than_the_rank_or_the_rows():
    widths = []

    def times(V):
        widths.append(V.shape[1])
        return F @ (F.T @ V)

    F = RNG.standard_normal((40, 3))
    values, vectors, _ = leading_eigenpairs(times, 40, 5, most=3)
    assert widths == [3, 3, 3]
    assert_allclose(values, np.linalg.eigvalsh(F.T @ F)[::-1], rtol=1e-12)
    assert vectors.shape == (40, 3)
    values, vectors, _ = leading_eigenpairs(lambda V: 2.0 * V, 4, 6)
    assert_allclose(values, 2.0 * np.ones(4), rtol=1e-14)
    assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-14)
    assert leading_eigenpairs(lambda V: -V, 4, 2)[0].max() == 0.0
