"""Which epoch's values a training returns."""

import numpy as np
import pymc as pm
from numpy.testing import assert_array_equal

import pymc_scalable_gp as sgp


def test_the_values_are_those_of_the_best_epoch():
    """A run that ends there, with the same seed, has gone the same way."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    y = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.05 * rng.standard_normal(120)

    def fit(epochs, patience=3):
        with pm.Model():
            cov = pm.gp.cov.ExpQuad(3, ls=pm.LogNormal("ell", 0.0, 0.3))
            return sgp.fit_inducing(
                sgp.SoftKIMarginal(cov_func=cov, inducing=30), X, y, epochs=epochs, batch_size=40,
                learning_rate=0.1, validation=0.3, patience=patience, random_seed=1,
                progressbar=False, mode="FAST_COMPILE",
            )  # fmt: skip

    whole = fit(40)
    best = int(np.argmin(whole.validation)) + 1
    assert 2 < best < whole.epochs == best + 3
    assert not np.array_equal(fit(1).Z, whole.Z)
    short = fit(best)
    assert_array_equal(short.validation, whole.validation[:best])
    assert_array_equal(short.Z, whole.Z)
    assert short.point == whole.point
    assert not np.array_equal(fit(best + 1, patience=1).losses, short.losses)
