"""Rows without a target: integrated out by the classes that are exact, refused by the others."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.data.missing import rows_with_targets

RNG = np.random.default_rng(5)
X = RNG.uniform(0.0, 4.0, (25, 1))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(25)
GONE = np.array([2, 3, 17])
KEPT = np.setdiff1d(np.arange(25), GONE)
HOLES = Y.copy()
HOLES[GONE] = np.nan
SIGMA = RNG.uniform(0.1, 0.3, 25)
CLASSES = [sgp.ExactMarginal, sgp.StateSpaceMarginal]
POINT = {"ell": 0.8}
SAID = "3 missing values in 25 rows: these rows are integrated out"


def model_of(kind, X, y, sigma):
    with pm.Model() as model:
        gp = kind(cov_func=pm.gp.cov.Matern52(1, ls=pm.LogNormal("ell")))
        gp.marginal_likelihood("y", X, y, sigma)
    return gp, model


@pytest.mark.parametrize("kind", CLASSES)
def test_as_without_these_rows(kind):
    """Density and predictions; and the function at the rows themselves."""
    with pytest.warns(UserWarning, match=SAID):
        gp, model = model_of(kind, X, HOLES, SIGMA)
    other, without = model_of(kind, X[KEPT], Y[KEPT], SIGMA[KEPT])
    at = {"ell_log__": -0.2}
    assert_allclose(model.compile_logp()(at), without.compile_logp()(at), rtol=1e-12)
    assert model["y"].eval().shape == (22,)
    found = gp.predict(X[GONE], POINT, model=model), other.predict(X[GONE], POINT, model=without)
    for own, expected in zip(*found, strict=True):
        assert_allclose(own, expected, rtol=1e-12)


def test_what_is_left_out_are_the_values_that_pymc_would_sample():
    """Density of all, of `pm.gp.Marginal` with values for the missing, less that of these values."""
    with pytest.warns(UserWarning, match=SAID):
        gp, model = model_of(sgp.ExactMarginal, X, HOLES, 0.2)
    with pm.Model() as theirs:
        marginal = pm.gp.Marginal(cov_func=pm.gp.cov.Matern52(1, ls=pm.LogNormal("ell")))
        with pytest.warns(Warning, match="imputed"):
            marginal.marginal_likelihood("y", X, HOLES, 0.2, jitter=0.0)
    values = np.array([0.3, -0.1, 0.8])
    both = theirs.compile_logp()({"ell_log__": -0.2, "y_unobserved": values})
    point = {"ell": np.exp(-0.2)}
    mean, cov = gp.predict(X[GONE], point, pred_noise=True, model=model)
    given = pm.logp(pm.MvNormal.dist(mean, cov=cov), values).eval()
    assert_allclose(model.compile_logp()({"ell_log__": -0.2}), both - given, rtol=1e-8)


@pytest.mark.parametrize(
    "y",
    [
        HOLES,
        np.ma.masked_invalid(HOLES),
        np.ma.masked_array(Y, np.isin(np.arange(25), GONE)),
        pd.Series(HOLES, index=np.arange(100, 125)),
        pd.Series(HOLES).astype("Float64"),
        np.array([None if np.isnan(v) else v for v in HOLES], dtype=object),
        list(HOLES),
    ],
    ids=["NaN", "masked NaN", "masked", "pandas", "pandas NA", "None", "list"],
)
def test_what_counts_as_missing(y):
    for sigma in (SIGMA, list(SIGMA), pd.Series(SIGMA, index=np.arange(100, 125)), 0.3, [0.3]):
        with pytest.warns(UserWarning, match=SAID):
            inputs, targets, noise = rows_with_targets(pd.DataFrame(X), y, sigma)
        assert_array_equal(inputs, X[KEPT])
        assert_array_equal(np.asarray(targets, "float64"), Y[KEPT])
        assert_array_equal(noise, SIGMA[KEPT] if np.size(sigma) == 25 else sigma)
    with pm.Model():
        sigma, one = pm.HalfNormal("sigma", shape=25), pm.HalfNormal("one", shape=1)
    with pytest.warns(UserWarning, match=SAID):
        assert rows_with_targets(X, y, sigma)[2].type.shape == (22,)
    with pytest.warns(UserWarning, match=SAID):
        assert rows_with_targets(X, y, one)[2] is one


def test_what_is_refused():
    """Other classes, other likelihoods, data that may be replaced, and targets that are all missing."""
    able = "ExactMarginal or StateSpaceMarginal"
    cov = pm.gp.cov.Matern52(1, ls=1.0)
    with pm.Model():
        with pytest.raises(ValueError, match=f"y has 3 NaN .*drop those rows.*{able}"):
            sgp.GriefGP(cov_func=cov, rank=5).marginal_likelihood("y", X, HOLES, 0.1)
        gp = sgp.ExactMarginal(cov_func=cov)
        with pytest.raises(ValueError, match="y has 3 NaN"):
            gp.marginal_likelihood("y", X, HOLES, likelihood=pm.Poisson.dist)
        with pytest.raises(ValueError, match="y has 3 NaN"):
            gp.marginal_likelihood("y", pm.Data("inputs", X), HOLES, 0.1)
        with pytest.raises(ValueError, match="y has no finite value among 25"):
            gp.marginal_likelihood("y", X, np.full(25, np.nan), 0.1)
        with pytest.raises(ValueError, match="25 values, but X has 24 rows"):
            gp.marginal_likelihood("y", X[:24], HOLES, 0.1)
        with pytest.warns(UserWarning, match=SAID), pytest.raises(ValueError, match="sigma has 1 masked"):
            gp.marginal_likelihood("y", X, HOLES, np.ma.masked_array(SIGMA, np.arange(25) == 0))


@pytest.mark.parametrize("kind", [*CLASSES, sgp.GriefGP])
def test_targets_replaced_by_missing_ones_are_refused_by_predictions(kind):
    options = {"rank": 10} if kind is sgp.GriefGP else {}
    with pm.Model() as model:
        gp = kind(cov_func=pm.gp.cov.Matern52(1, ls=0.8), **options)
        gp.marginal_likelihood("y", pm.Data("X", X), pm.Data("t", Y), 0.1)
        pm.set_data({"t": HOLES})
    for predict in (gp.predict, lambda X: gp.conditional("f", X), lambda X: gp.check(progressbar=False)):
        with model, pytest.raises(ValueError, match="y has 3 NaN in 25 rows since pm.set_data"):
            predict(X)
    with model:
        pm.set_data({"X": X[KEPT], "t": Y[KEPT]})
        mean, _ = gp.predict(X, diag=True)
    assert np.isfinite(mean).all()


class Polars:
    """A table or a column of polars': rows by their numbers; a mask is one of columns."""

    def __init__(self, values, columns=None):
        self.values, self.shape = values, values.shape
        if columns is not None:
            self.columns = columns

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __getitem__(self, key):
        if np.asarray(key).dtype == bool:
            raise TypeError("a mask of columns")
        return Polars(self.values[key], getattr(self, "columns", None))


def test_tables_whose_rows_go_by_their_numbers():
    with pytest.warns(UserWarning, match=SAID):
        inputs, targets, noise = rows_with_targets(Polars(X, ["a"]), Polars(HOLES), Polars(SIGMA))
    assert inputs.columns == ["a"]
    for found, expected in ((inputs, X), (targets, Y), (noise, SIGMA)):
        assert_array_equal(found, expected[KEPT])
