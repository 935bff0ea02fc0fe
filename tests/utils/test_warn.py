"""Warnings point at the line outside the package."""

import numpy as np
import pymc as pm
import pytest

import pymc_scalable_gp as sgp


def test_the_line_is_the_callers_however_deep_the_warning():
    gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern52(1, ls=1.0), n_inducing=3)
    X = np.array([[0.0], [0.0], [1.0], [1.0]])
    with pytest.warns(UserWarning, match="only 2 of 3") as found:
        gp.features(X)  # build, the map, the choice of points
    assert found[0].filename == __file__
