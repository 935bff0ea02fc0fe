"""Grid nodes and the leading products of eigenvalues."""

import itertools
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_scalable_gp.core.features.eigenfunctions import (
    column_factors,
    frozen_basis,
    node_masses,
    select,
    share_rank,
    top_products,
)
from pymc_scalable_gp.methods.grief.grid import check_grid, grid_nodes, least_resolving, node_ladder


def test_nodes_of_an_even_column_are_even():
    assert_allclose(grid_nodes(np.linspace(-1.0, 3.0, 101), 5), [-1, 0, 1, 2, 3], atol=1e-12)


def test_nodes_follow_a_heavy_tail_and_cover_it():
    x = np.random.default_rng(0).lognormal(sigma=2.0, size=1000)
    nodes = grid_nodes(x, 10)
    assert nodes.size == 10
    assert_allclose([nodes[0], nodes[-1]], [x.min(), x.max()])
    assert nodes[1] < np.linspace(x.min(), x.max(), 10)[1]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([3.0, 1.0, 1.0, 2.5, 3.0], [1.0, 2.5, 3.0]),  # discrete: just its values
        ([2.0] * 9, [2.0]),  # constant
        ([0.0, 1.0] * 5, [0.0, 1.0]),  # a flag
        ([0.0, 1.0, 2.0, 4.0, 9.0], [0.0, 1.0, 2.0, 4.0, 9.0]),  # exactly as many values as nodes
    ],
)
def test_columns_with_few_values_use_those(column, expected):
    assert_array_equal(grid_nodes(np.array(column), 5), expected)


def test_given_nodes_are_taken_as_they_are():
    assert_array_equal(grid_nodes(np.zeros(3), np.array([0, 1, 5])), [0.0, 1.0, 5.0])


def test_check_grid_spreads_one_number():
    assert check_grid(4, 3) == [4, 4, 4]
    assert check_grid((np.int64(2), 3), 2) == [2, 3]
    assert check_grid(1, 1) == [1]
    mixed = check_grid([3, [0.0, 1.0]], 2)
    assert mixed[0] == 3
    assert_array_equal(mixed[1], [0.0, 1.0])


@pytest.mark.parametrize(
    ("nodes", "words"),
    [([0.5, 0.1], "decreasing order, 0.5 before 0.1"), ([0.0, 1.0, 1.0], "twice the same node, 1 bef")],
)
def test_check_grid_refuses_nodes_out_of_order(nodes, words):
    with pytest.raises(ValueError, match=rf"grid\[1\] has .*{words}.*np.unique"):
        check_grid([[0.0, 1.0], nodes], 2)


def test_check_grid_leaves_columns_to_be_chosen():
    assert check_grid(None, 2) == [None, None]
    assert check_grid([None, 7], 2) == [None, 7]


@pytest.mark.parametrize(
    ("d", "sizes"),
    [
        (1, [100, 150, 200]),
        (2, [50, 75, 112, 168, 200]),
        (3, [33, 49, 73, 100]),
        (8, [12, 18, 27, 37]),
        (20, [10, 15, 20]),
        (100, [10, 15, 20]),
    ],
)
def test_ladder_of_node_counts(d, sizes):
    x = np.random.default_rng(0).uniform(size=1000)
    assert [nodes.size for nodes in node_ladder(x, d)] == sizes


def test_ladder_ends_with_the_distinct_values():
    x = np.repeat(np.arange(120.0), 2)
    ladder = node_ladder(x, 1)
    assert [nodes.size for nodes in ladder] == [100, 120]
    assert_array_equal(ladder[-1], np.arange(120.0))
    assert [nodes.size for nodes in node_ladder(np.arange(5.0), 1)] == [5]


@pytest.mark.parametrize(("ell", "place"), [(1.0, 0), (0.67, 1), (0.2, 1), (0.05, 2), (0.001, 2)])
def test_the_first_set_of_nodes_below_the_lengthscale_is_taken(ell, place):
    """Spacings of 0.5, 0.125 and 0.03."""
    probe, sets = np.linspace(0.1, 3.9, 77), [np.linspace(0, 4, m) for m in (9, 33, 129)]
    points = np.concatenate([probe, *sets])
    gram = 7.0 * np.exp(-0.5 * ((points[:, None] - points) / ell) ** 2)
    assert least_resolving(gram, [9, 33, 129]) == place


def brute_force(logs, rank):
    d, m = logs.shape
    cells = np.array(list(itertools.product(range(m), repeat=d)))
    return np.sort(logs[np.arange(d), cells].sum(axis=1))[::-1][:rank]


@pytest.mark.parametrize(("d", "m"), [(1, 6), (2, 5), (3, 4), (6, 3)])
@pytest.mark.parametrize("rank", [1, 3, 20, 1000])
def test_top_products_against_brute_force(d, m, rank):
    rng = np.random.default_rng(d)
    logs = -np.sort(-rng.normal(size=(d, m)), axis=1)
    idx = top_products(logs, rank)
    values = logs[np.arange(d), idx].sum(axis=1)
    assert idx.shape == (min(rank, m**d), d)
    assert_allclose(values, brute_force(logs, rank), rtol=1e-12)  # so it is in decreasing order
    assert len(np.unique(idx, axis=0)) == len(idx)


def test_ties_go_to_the_lower_place_and_are_reproducible():
    idx = top_products(np.zeros((2, 3)), 4)
    assert_array_equal(idx, top_products(np.zeros((2, 3)), 4))
    assert_array_equal(idx[0], [0, 0])
    assert len(np.unique(idx, axis=0)) == 4
    levels = -np.repeat(np.arange(6.0), 10)  # sorts of so many are stable only if they are asked to be
    pairs = [(i, j) for i in range(60) for j in range(60) if (i + 1) * (j + 1) <= 200]
    pairs.sort(key=lambda pair: -levels[list(pair)].sum())
    assert_array_equal(top_products(np.stack([levels, levels]), 200), pairs[:200])


def test_unused_places_come_last():
    logs = np.array([[0.0, -np.inf, -np.inf], [0.0, -1.0, -np.inf]])
    assert_array_equal(top_products(logs, 2), [[0, 0], [0, 1]])


def test_a_grid_of_1e200_cells_costs_no_more_than_its_rank():
    """d = m = 100: nothing of size m^d, and no more than a few (rank, d) arrays, exists."""
    rng = np.random.default_rng(0)
    logs = -np.cumsum(rng.exponential(size=(100, 100)), axis=1)
    tracemalloc.start()
    idx = top_products(logs, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    values = logs[np.arange(100), idx].sum(axis=1)
    assert idx.shape == (1000, 100)
    assert (np.diff(values) <= 1e-9).all()
    assert peak < 10 * idx.nbytes
    # Any better index would differ from the first in places of a small loss: all single changes.
    single = logs[:, 0].sum() + (logs[:, 1] - logs[:, 0])
    missing = single[single > values[-1] + 1e-9]
    assert np.isin(np.round(missing, 9), np.round(values, 9)).all()


@pytest.mark.parametrize(
    ("rank", "cells", "expected"),
    [
        (10, [100, 100], [5, 5]),
        (11, [100, 100], [5, 6]),
        (10, [1, 100], [1, 9]),  # a constant kernel takes one
        (90, [81, 9, 1], [80, 9, 1]),
        (500, [81, 9, 1], [81, 9, 1]),
        (10, [10**200, 10**200, 3], [3, 4, 3]),
    ],
)
def test_share_rank(rank, cells, expected):
    assert share_rank(rank, cells) == expected


def test_masses_are_the_data_near_each_node():
    x = np.array([0.0, 0.25, 0.25, 1.0])
    assert_allclose(
        node_masses(x, np.array([0.0, 0.25, 0.5, 1.0])), 0.0625 + 0.75 * np.array([0.25, 0.5, 0.0, 0.25])
    )


def test_masses_of_even_data_are_those_of_the_trapezoidal_rule():
    found = node_masses(np.linspace(0, 1, 100_001), np.linspace(0, 1, 5))
    assert_allclose(found, 0.05 + 0.75 * np.array([1, 2, 2, 2, 1]) / 8, atol=1e-5)


def test_masses_outside_given_nodes_go_to_the_nearest():
    assert_allclose(
        node_masses(np.array([-3.0, 9.0]), np.array([0.0, 1.0, 2.0])),
        [1 / 12 + 0.375, 1 / 12, 1 / 12 + 0.375],
    )
    assert_allclose(node_masses(np.zeros(3), np.array([5.0])), [1.0])


def test_a_kernel_that_is_zero_has_a_basis_and_functions_that_are_zero():
    none = np.zeros((3, 3))
    basis = frozen_basis(none, np.full(3, 1 / 3))
    assert_allclose(basis.T @ basis, np.eye(3) / 3, atol=1e-15)
    assert_array_equal(column_factors(none, none, basis), none)


def test_products_of_functions_that_are_rounding_errors():
    """They are left out where nothing can change them, however many are asked for; else they come last."""
    factors = np.ones((2, 3, 5))
    factors[0, 2] = 1e-9
    used = np.ones((2, 3), bool)
    fixed, free = (select(factors, used, 9, fixed=each) for each in (True, False))
    assert sorted(map(tuple, fixed)) == list(itertools.product(range(2), range(3)))
    assert sorted(map(tuple, free)) == list(itertools.product(range(3), range(3)))
    assert (free[-3:, 0] == 2).all()
    used[1, 0] = False
    assert sorted(map(tuple, select(factors, used, 9, fixed=True))) == [
        (0, 1), (0, 2), (1, 1), (1, 2),
    ]  # fmt: skip
