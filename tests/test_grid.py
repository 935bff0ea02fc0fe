"""Grid nodes, and the leading products of a Kronecker product that is never formed."""

import itertools

import numpy as np
import pytest

from pymc_scalable_gp.grid import check_grid, count_cells, grid_nodes, share_rank, top_products


def test_nodes_span_the_range():
    x = np.random.default_rng(0).normal(size=100)
    nodes = grid_nodes(x, 7)
    np.testing.assert_allclose(nodes, np.linspace(x.min(), x.max(), 7))


@pytest.mark.parametrize("values", [[3.0], [0.0, 1.0], [1.0, 2.0, 5.0]])
def test_discrete_column_uses_its_values(values):
    x = np.repeat(values, 9)
    np.testing.assert_array_equal(grid_nodes(x, 5), values)


def test_given_nodes_are_kept_sorted():
    np.testing.assert_array_equal(grid_nodes(np.zeros(3), np.array([2.0, -1.0, 2.0])), [-1.0, 2.0])


@pytest.mark.parametrize(
    ("grid", "error", "match"),
    [
        ("ten", TypeError, "grid must be an int"),
        (0, ValueError, r"grid\[0\] is 0"),
        ([3, 4, 5], ValueError, "3 entries, but X has 2 columns"),
        ([3, np.array([np.nan])], ValueError, r"grid\[1\]"),
        ([3, np.zeros((2, 2))], ValueError, r"shape \(2, 2\)"),
    ],
)
def test_bad_grid(grid, error, match):
    with pytest.raises(error, match=match):
        check_grid(grid, 2)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("d", "m", "rank"), [(1, 5, 3), (2, 4, 7), (3, 4, 20), (4, 3, 81)])
def test_top_products_against_all_products(d, m, rank, seed):
    logs = -np.sort(-np.random.default_rng(seed).normal(size=(d, m)), axis=1)
    every = np.array(list(itertools.product(range(m), repeat=d)))
    sums = np.take_along_axis(logs.T, every, axis=0).sum(axis=1)
    idx = top_products(logs, rank)
    np.testing.assert_allclose(
        np.take_along_axis(logs.T, idx, axis=0).sum(axis=1), -np.sort(-sums)[:rank], rtol=1e-12
    )
    assert len(np.unique(idx, axis=0)) == rank


def test_top_products_of_a_grid_beyond_any_memory():
    d, m, rank = 100, 100, 200  # m^d = 1e200
    logs = np.tile(-0.5 * np.arange(m), (d, 1))
    idx = top_products(logs, rank)
    assert idx.shape == (rank, d)
    np.testing.assert_array_equal(idx[0], 0)
    # The next d products each take one second-largest factor; then come the pairs.
    np.testing.assert_array_equal(idx.sum(axis=1)[1 : d + 1], 1)
    assert (idx.sum(axis=1)[d + 1 :] == 2).all()


def test_top_products_is_deterministic_on_ties():
    logs = np.zeros((3, 2))
    np.testing.assert_array_equal(top_products(logs, 3), [[0, 0, 0], [0, 0, 1], [0, 1, 0]])


def test_share_rank():
    assert share_rank(10, [100, 100]) == [5, 5]
    assert share_rank(10, [2, 100]) == [2, 8]
    assert share_rank(10, [1, 2, 3]) == [1, 2, 3]


def test_count_cells_is_exact():
    assert count_cells(np.ones((200, 10), dtype=bool)) == 10**200
