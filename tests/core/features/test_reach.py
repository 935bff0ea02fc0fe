"""The range of inputs in which features hold the prior variance."""

import numpy as np
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_array_equal

from pymc_scalable_gp.core.features.reach import InputRange


def test_a_twentieth_of_the_width_is_no_reach_beyond_the_range():
    limits = InputRange(np.array([0.0]), np.array([10.0]))
    for inside in (-0.49, 10.49):
        assert limits.outside(np.array([[inside]]), "") is None
        limits.check_replaced(np.array([[inside]]))
    for beyond in (-0.51, 10.51):
        assert limits.outside(np.array([[beyond]]), "").startswith("column 0 reaches 0.51 beyond")
        with pytest.raises(ValueError, match="X was replaced"):
            limits.check_replaced(np.array([[beyond]]))


def test_longitudes_are_on_the_turn_nearest_to_the_middle():
    limits = InputRange(np.array([10.0, 0.0]), np.array([200.0, 1.0]), turns=[0])
    found = limits.turned(np.array([[195.0, 400.0], [-165.0, 0.0], [555.0, 0.0], [370.0, 0.0]]))
    assert_array_equal(found, [[195.0, 400.0], [195.0, 0.0], [195.0, 0.0], [10.0, 0.0]])
    limits.check_replaced(np.array([[-165.0, 0.5]]))


def test_new_labels_in_any_column():
    labels = {0: np.array([1.0, 3.0]), 2: np.array([0.0, 5.0])}
    limits = InputRange(np.zeros(3), np.full(3, 5.0), labels=labels)
    X = np.array([[1.0, 2.0, 5.0], [2.0, 2.0, 5.0], [3.0, 2.0, 1.0], [9.0, 2.0, 0.0], [3.0, 2.0, 9.0]])
    assert_array_equal(limits.is_new(pt.constant(X)).eval(), [False, True, True, True, True])
    limits.check_replaced(X[:1])
    for row in X[1:3]:  # between the labels
        with pytest.raises(ValueError, match="X was replaced"):
            limits.check_replaced(row[None])
    held = {column: np.unique(limits.probes[:, column]) for column in labels}
    for column, known in labels.items():
        assert_array_equal(held[column], known)
