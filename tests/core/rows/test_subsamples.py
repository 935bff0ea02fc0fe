"""Subsamples that lie as all rows do."""

import numpy as np
import pytest

from pymc_scalable_gp.core.rows.subsamples import subsamples


def rng():
    return np.random.default_rng(0)


def test_every_stretch_of_the_inputs_has_its_share():
    X = np.sort(np.random.default_rng(1).exponential(size=3000))[:, None]
    own, other = subsamples(X, 200, 100, rng())
    assert (len(own), len(other)) == (200, 100)
    assert not set(own) & set(other)
    # 300 cells of ten rows each: one row of every cell.
    np.testing.assert_array_equal(np.sort(np.concatenate([own, other])) // 10, np.arange(300))
    # Of the cells in order, every third belongs to the second sample.
    assert np.diff(other).max() <= 49


def test_columns_count_by_their_spread():
    """A column in small units is cut as often as one in large units: a row from each quarter."""
    X = np.random.default_rng(2).uniform(size=(4096, 2)) * [1e-6, 1e6]
    for seed in range(5):
        own, other = subsamples(X, 3, 1, np.random.default_rng(seed))
        quarters = (X[[*own, *other]] > [0.5e-6, 0.5e6]) @ [1, 2]
        assert sorted(quarters) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("n", "sizes"), [(50, (50, 50)), (7, (7, 7)), (60, (50, 10)), (75, (50, 25)), (51, (50, 1))]
)
def test_few_rows(n, sizes):
    X = np.random.default_rng(3).normal(size=(n, 3))
    own, other = subsamples(X, 50, 25, rng())
    assert (len(own), len(other)) == sizes
    assert len(set(own) | set(other)) == min(n, 75)


def test_duplicates_and_constant_columns():
    X = np.zeros((400, 2))
    X[:, 0] = np.arange(400) // 100
    own, other = subsamples(X, 40, 20, rng())
    assert len(set(own) | set(other)) == 60
    assert np.bincount(X[np.concatenate([own, other]), 0].astype(int)).tolist() == [15] * 4


def test_the_seed_decides():
    X = np.random.default_rng(4).normal(size=(500, 2))
    first, again, another = (subsamples(X, 20, 10, np.random.default_rng(seed)) for seed in (0, 0, 1))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert set(first[0]) != set(another[0])


def test_row_numbers_come_in_order():
    X = np.random.default_rng(5).normal(size=(300, 2))
    for rows in subsamples(X, 40, 20, rng()):
        assert (np.diff(rows) > 0).all()
