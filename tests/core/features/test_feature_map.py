"""The contract of feature maps, and their sums."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pymc_scalable_gp.core.features.feature_map import FeatureMap, SumMap
from pymc_scalable_gp.core.features.nystrom import NystromMap
from pymc_scalable_gp.core.features.reach import InputRange
from pymc_scalable_gp.cov.objects import Hamming


class Columns(FeatureMap):
    """Features that are the columns of X, for inputs in a box."""

    rank = 2
    input_range = None

    def __init__(self, *box):
        if box:
            self.input_range = InputRange(*(np.array(side, float) for side in box))

    def features(self, X):
        return X


def test_a_sum_holds_its_prior_where_every_part_does():
    parts = [Columns([-3.0, -1.0], [1.0, 4.0]), Columns([-2.0, -5.0], [2.0, 3.0]), Columns()]
    common = SumMap(parts).input_range
    assert_array_equal(common.low, [-2.0, -1.0])
    assert_array_equal(common.high, [1.0, 3.0])
    assert SumMap([Columns(), Columns()]).input_range is None


def test_a_sum_holds_the_labels_that_every_part_holds():
    parts = [Columns([0.0, 0.0], [1.0, 4.0]) for _ in range(3)]
    for part, labels in zip(parts, [{1: np.arange(4)}, {1: np.array([0, 3, 4])}, {}], strict=True):
        part.input_range = replace(part.input_range, labels=labels)
    total, X = SumMap(parts), np.array([[0.5, 1.0], [0.5, 9.0], [0.5, 3.0]])
    assert_array_equal(total.labels[1], [0, 3])
    assert total.input_range.unknown(X) == "column 1 holds 1, 9, which the inputs of the build do not have"
    assert total.input_range.unknown(X[2:]) is None
    assert total.input_range.outside(X, "the range") is None  # a label lies nowhere
    assert parts[2].input_range.outside(X, "the range").startswith("column 1 reaches 5 beyond the range")


def test_a_sum_refuses_no_label_that_no_part_refuses():
    X, kernel = np.c_[np.zeros(4), np.arange(4.0)], Hamming(2, active_dims=[1], ls=1.0)
    part = NystromMap(kernel, pt.constant(X[:2]), X.min(axis=0), X.max(axis=0))
    total = SumMap([part, part])
    assert_array_equal(total.labels[1], [0, 1])  # of the points
    assert not part.input_range.labels
    assert not total.input_range.labels


def test_longitudes_turn_in_a_sum_where_they_do_in_every_part_with_ends():
    parts = [Columns([0.0, 0.0], [9.0, 9.0]), Columns([-np.inf, 0.0], [np.inf, 9.0])]
    parts[0].input_range = replace(parts[0].input_range, turns=[0, 1])
    assert SumMap(parts).input_range.turns == [0]
    assert SumMap([parts[0], parts[0]]).input_range.turns == [0, 1]


@pytest.mark.parametrize(
    "kernel", [pm.gp.cov.Periodic(1, period=0.7, ls=0.5), pm.gp.cov.Matern52(1, ls=0.5)]
)
def test_features_stored_by_rows_are_those_stored_by_columns(kernel):
    X = np.linspace(0.0, 1.0, 7)[:, None]
    part = NystromMap(3.0 * kernel, pt.constant(X[[5, 2, 3]]), X[0], X[-1])
    by_columns, by_rows = (each.features(pt.constant(X)).eval() for each in (part, part.for_residual()))
    assert_allclose(by_rows, by_columns, atol=1e-12)


def test_a_sum_takes_the_columns_of_its_parts():
    assert_array_equal(SumMap([Columns(), Columns(), Columns()]).columns([2, 0]), [4, 5, 0, 1])
