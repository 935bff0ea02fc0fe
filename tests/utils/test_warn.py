"""Warnings point at the line of the user."""

import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_scalable_gp as sgp
from pymc_scalable_gp.utils.warn import warn


def test_at_the_first_line_outside_the_package():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn("direct")
    assert [(str(w.message), w.category, w.filename) for w in found] == [("direct", UserWarning, __file__)]


def test_from_deep_within_a_call():
    points = np.zeros((3, 1))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), inducing=points)
    assert [w.filename for w in found] == [__file__]
    assert "duplicates" in str(found[0].message)


def test_from_deeper_still():
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern52(1, ls=1.0), n_inducing=3)
    X = np.array([[0.0], [0.0], [1.0], [1.0]])
    with pytest.warns(UserWarning, match="only 2 of 3") as found:
        gp.build(X)  # the map, the choice of points
    assert found[0].filename == __file__
