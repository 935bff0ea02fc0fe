"""The contract of feature maps, and their sums."""

import numpy as np
from numpy.testing import assert_array_equal

from pymc_scalable_gp.core.features.feature_map import FeatureMap, SumMap
from pymc_scalable_gp.core.features.reach import InputRange


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


def test_a_sum_takes_the_columns_of_its_parts():
    assert_array_equal(SumMap([Columns(), Columns(), Columns()]).columns([2, 0]), [4, 5, 0, 1])
