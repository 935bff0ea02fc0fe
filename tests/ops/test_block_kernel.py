"""Loops over the rows of a block, in Python, beside the form of whole stacks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._block_kernel import add_kernel_bars, block_factors, no_bars, sum_of_products
from pymc_scalable_gp.ops._stationary import KINDS, kind_number

N, D = 9, 3
RNG = np.random.default_rng(4)
X = np.round(128.0 * RNG.standard_normal((N, D))) / 256.0
FAR = X + 2.0**31  # without rounding: scaled before any difference is taken, they would lose ten digits
PLACES = np.array([7, 1, 3, 2, 8])


def one_of_each():
    """A summand for each kernel: what is missing of one is the others' in no entry."""
    return [(kind, q) for q, kind in enumerate(KINDS)]


def products():
    """Three factors that stand apart, one alone, and two side by side."""
    return [("RatQuad", 0), ("Matern32", 1), ("Arc", 0), ("Matern52", 2), ("ExpQuad", 0), ("RatQuad", 2)]


def alone():
    """One factor, and so one row of the rows' factors."""
    return [("RatQuad", 0)]


@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.parametrize("make", [one_of_each, products, alone])
def test_kernel_and_cotangents_of_a_block(make, of_rows):
    """Machine code of each kernel is compared with this in slow tests alone."""
    factors = make()
    t, q = len(factors), 1 + max(q for _, q in factors)
    scale = RNG.uniform(0.3, 0.9, (t, D)) * (np.arange(t * D).reshape(t, D) % 4 > 0)
    variance, shape = RNG.uniform(0.5, 2.0, q), RNG.uniform(0.5, 2.0, t)
    rows = RNG.uniform(0.7, 1.2, (t if of_rows else 0, N))
    terms = np.array([(kind_number(kind), q) for kind, q in factors])

    found = block_factors(FAR, scale, shape, rows, terms, PLACES)
    K = sum_of_products(found[2], variance, terms)
    expected = batches.local_kernel(factors, X, scale, variance, shape, rows, PLACES[None], np)[0]
    assert_allclose(K, np.tril(expected), rtol=1e-12)

    M_bar = RNG.standard_normal((5, 5))
    M_bar += M_bar.T
    bars, X_bar = no_bars(scale, variance, shape, rows), np.ones((N, D))  # to which is added
    for _ in range(2):  # the slopes that are found are used up
        found = block_factors(FAR, scale, shape, rows, terms, PLACES)
        add_kernel_bars(found, M_bar, scale, variance, shape, rows, terms, PLACES, bars, X_bar)
    expected = batches.kernel_bars(
        factors, X, scale, variance, shape, rows, PLACES[None], M_bar[None], np
    )  # fmt: skip
    for have, want in zip((X_bar - 1.0, *bars), expected, strict=True):
        assert_allclose(have, 2.0 * want, rtol=1e-9, atol=1e-12)

    found = block_factors(FAR, scale, shape, rows, terms, PLACES)
    fixed, none = no_bars(scale, variance, shape, rows), np.zeros((0, D))  # inputs that are data
    add_kernel_bars(found, M_bar, scale, variance, shape, rows, terms, PLACES, fixed, none)
    for have, want in zip(fixed, bars, strict=True):
        assert_allclose(2.0 * have, want, rtol=1e-12)
