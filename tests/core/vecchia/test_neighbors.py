"""Blocks of rows, their order and neighbours, against brute force."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from pymc_scalable_gp.core.vecchia.neighbors import Metric, _earlier, changed_share, cut, order_rows

rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, (230, 3)) * [1.0, 10.0, 0.1]
SCALES = [1.0, 10.0, 0.1]


def metric(scales=SCALES, rows=X):
    return Metric(pm.gp.cov.Matern32(3, ls=scales), rows)


def test_blocks_are_close_and_every_row_has_one():
    order = cut(X / SCALES, 10)
    assert_array_equal(np.sort(order), np.arange(230))
    placed = X / SCALES
    widths = [np.ptp(placed[order[i : i + 10]], axis=0).max() for i in range(0, 230, 10)]
    assert np.median(widths) < 1.0  # of 2; random blocks span nearly all of it


@pytest.mark.parametrize(("block", "count"), [(1, 6), (8, 20), (7, 3)])
def test_neighbors_come_before_their_block_and_are_near(block, count):
    """Against all earlier rows, by the distance from the nearest row of the block."""
    found = order_rows(X, metric(), block, count, progressbar=False)
    assert_array_equal(np.sort(found.order), np.arange(230))
    placed = (X[found.order] - X[0]) / SCALES
    assert_allclose(found.placed, placed, atol=1e-12)
    assert found.neighbors.shape == (-(-230 // block), count)
    wanted = got = 0.0
    for b, near in enumerate(found.neighbors):
        start = b * block
        near = near[near >= 0]
        assert len(near) == min(count, start)
        assert len(np.unique(near)) == len(near)
        assert (near < start).all()
        if start:
            distance = cdist(placed[start : start + block], placed[:start]).min(axis=0)
            wanted += np.sort(distance)[: len(near)].sum()
            got += distance[near].sum()
    if block == 1:
        assert_allclose(got, wanted, rtol=1e-12)
    assert wanted <= got * (1 + 1e-12) < 1.06 * wanted  # candidates are those near the centre


def test_the_seed_orders_the_blocks():
    first, again, other = (
        order_rows(X, metric(), 8, 4, random_seed=seed, progressbar=False).order for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_all_earlier_rows_when_so_many_are_asked_for():
    found = order_rows(X[:20], metric(), 6, 1000, progressbar=False)
    assert_array_equal((found.neighbors >= 0).sum(axis=1), [0, 6, 12, 18])


def test_rows_before_a_limit_are_found_however_many_others_are_nearer():
    rows = np.linspace(1.0, 0.0, 40)[:, None]
    found = _earlier(NearestNeighbors().fit(rows), np.zeros((3, 1)), np.array([5, 30, 2]), 3)
    for each, expected in zip(found, ([4, 3, 2], [29, 28, 27], [1, 0]), strict=True):
        assert_array_equal(each, expected)


def test_new_rows_find_training_rows_and_each_other():
    found = order_rows(X, metric(), 8, 2, 5, progressbar=False)
    assert found.neighbors.shape[1] == 2
    new = rng.uniform(-1.0, 1.0, (9, 3)) * SCALES
    distance = cdist(new / SCALES, X[found.order] / SCALES)
    assert_array_equal(found.nearest(new), np.argsort(distance, axis=1)[:, :5])
    jointly = found.nearest_jointly(np.repeat(new, 2, axis=0))
    assert_array_equal(jointly[1::2, 0], 230 + np.arange(0, 18, 2))  # the row's own double
    assert (jointly[0] < 230).all()
    beside = X[found.order[7]] + np.array([[3e-6], [1e-6]]) * SCALES
    assert_array_equal(found.nearest_jointly(beside)[1, :2], [230, 7])  # new ones first, however far
    assert found.nearest(new[:0]).shape == (0, 5)


def test_other_kernels_are_placed_by_their_features():
    """A periodic kernel: rows a period apart are near, rows half of one apart are not."""
    times = np.linspace(0.0, 10.0, 101)[:, None]
    place = Metric(pm.gp.cov.Periodic(1, period=2.0, ls=0.5), times).coordinates(times)
    near, far = np.linalg.norm(place[0] - place[20]), np.linalg.norm(place[0] - place[10])
    assert near < 1e-6 < 0.5 < far


def test_rows_of_any_variance_are_near_where_they_are_correlated():
    rows = np.array([[1.0], [-2.0], [3.0], [0.0]])
    place = Metric(pm.gp.cov.Linear(1, c=0.0), rows).coordinates(rows)
    assert_allclose(place / place[0], np.sign(rows), atol=1e-9)


def test_share_of_neighbors_that_moved():
    found = order_rows(X, metric(), 8, 10, progressbar=False)
    assert changed_share(found, X, metric()) == 0.0
    assert changed_share(found, X, metric([1.0, 10.0, 100.0])) > 0.2
    few = order_rows(X[:20], metric(), 6, 1000, progressbar=False)  # blocks have fewer than 18 before them
    assert changed_share(few, X[:20], metric([1.0, 10.0, 100.0])) == 0.0


def test_that_share_is_of_the_second_half_of_the_blocks():
    found, other = order_rows(X, metric(), 1, 10, progressbar=False), [1.0, 10.0, 100.0]
    placed = X[found.order] / other
    kept = [
        len(np.intersect1d(found.neighbors[b], np.argsort(cdist(placed[b : b + 1], placed[:b])[0])[:10]))
        for b in range(115, 230)
    ]
    assert_allclose(changed_share(found, X, metric(other)), 1.0 - np.sum(kept) / 1150, rtol=1e-12)
