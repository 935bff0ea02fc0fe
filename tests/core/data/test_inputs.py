"""Arrays with masked or missing entries, and numbers that are NumPy's."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
from numpy.testing import assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.data.inputs import (
    check_inputs,
    check_sigma,
    check_target,
    check_temperature,
    check_weights,
)
from pymc_scalable_gp.methods.kmcg.basis import choose_rows

N = 12
X = np.linspace(0.0, 1.0, N)[:, None]
Y = np.sin(3.0 * X[:, 0])
pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")


def masked(array, *places):
    mask = np.zeros(np.shape(array), dtype=bool)
    for place in places:
        mask[place] = True
    return np.ma.MaskedArray(array, mask, fill_value=1e20)


def cov():
    return pm.gp.cov.ExpQuad(1, ls=0.4)


CHECKS = {
    "X": lambda value: check_inputs(value),
    "y": lambda value: check_target(value, N),
    "sigma": lambda value: check_sigma(value, N),
    "weights": lambda value: check_weights(value, N),
    "temperature": lambda value: check_temperature(value),
}


@pytest.mark.parametrize("name", CHECKS)
def test_masked_entries_are_refused(name):
    value = np.ones((N, 1)) if name == "X" else np.ones(N)
    with pytest.raises(ValueError, match=rf"^{name} has 2 masked values, in 2 rows: drop those"):
        CHECKS[name](masked(value, 3, 5))


@pytest.mark.parametrize("name", CHECKS)
def test_without_masked_entries_an_array_is_an_array(name):
    value = np.ones((N, 1)) if name == "X" else np.ones(N)
    found = CHECKS[name](np.ma.MaskedArray(value))
    assert_array_equal(found.value if hasattr(found, "value") else found.eval(), value)
    assert not isinstance(getattr(found, "value", value), np.ma.MaskedArray)


def test_rows_are_counted_once():
    with pytest.raises(ValueError, match=r"X has 3 masked values, in 2 rows"):
        check_inputs(masked(np.ones((5, 2)), (1, 0), (1, 1), (4, 0)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: sgp.GriefGP(cov_func=cov(), grid=6, rank=6),
        lambda: sgp.SoftKIMarginal(cov_func=cov(), inducing=6),
        lambda: sgp.KMCGMarginal(cov_func=cov(), n_iter=5),
        lambda: sgp.CholQRMarginal(cov_func=cov(), n_inducing=6),
        lambda: sgp.SKIPMarginal(cov_func=cov(), grid_size=20, rank=6),
    ],
    ids=["GriefGP", "SoftKI", "KMCG", "CholQR", "SKIP"],
)
def test_every_class_refuses_them(make):
    """They were taken with their fill values: a log density of -6.6e9."""
    with pm.Model():
        with pytest.raises(ValueError, match="X has 1 masked values"):
            make().marginal_likelihood("y", X=masked(X, 4), y=Y, sigma=0.1)
        with pytest.raises(ValueError, match="y has 1 masked values"):
            make().marginal_likelihood("y", X=X, y=masked(Y, 4), sigma=0.1)
        with pytest.raises(ValueError, match="sigma has 1 masked values"):
            make().marginal_likelihood("y", X=X, y=Y, sigma=masked(np.ones(N), 4))
        gp = make()
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1)
        with pytest.raises(ValueError, match="Xnew has 1 masked values"):
            gp.predict(masked(X[:3], 1), point={})
        with pytest.raises(ValueError, match="y has 1 masked values"):
            gp.predict(X[:3], point={}, given={"X": X, "y": masked(Y, 4), "sigma": 0.1})


def test_weights_and_points_too():
    with pm.Model():
        gp = sgp.GriefGP(cov_func=cov(), grid=6, rank=6)
        with pytest.raises(ValueError, match="weights has 1 masked values"):
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1, weights=masked(np.ones(6), 2))
    with pytest.raises(ValueError, match="inducing has 1 masked values"):
        sgp.SoftKIMarginal(cov_func=cov(), inducing=masked(X[:4], 2))


def test_missing_values_of_pandas():
    y = pd.Series(Y).astype("Float64")
    y[3] = pd.NA
    with pytest.raises(ValueError, match=r"y has 1 (missing|NaN or infinite) values.* drop those"):
        check_target(y, N)
    frame = pd.DataFrame({"a": pd.array([1, 2, pd.NA], dtype="Int64"), "b": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"X has 1 (missing|NaN or infinite) values.* drop"):
        check_inputs(frame)
    with pytest.raises(ValueError, match=r"y has 2 missing values"):
        check_target(np.array([1.0, None, pd.NA, 2.0], dtype=object), 4)
    with pytest.raises(ValueError, match=r"sigma has 1 missing values"):
        check_sigma(np.array([1.0, pd.NA], dtype=object), 2)
    with pytest.raises(TypeError, match="y must be numeric, got dtype object: encode text"):
        check_target(np.array([1.0, "a"], dtype=object), 2)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_counts_of_numpy(kind):
    """`inducing=np.int64(10)` was refused."""
    assert_array_equal(choose_rows(kind(4), 10), choose_rows(4, 10))
    with pm.Model():
        for gp in (
            sgp.KMCGMarginal(cov_func=cov(), n_iter=kind(3), inducing=kind(6)),
            sgp.SoftKIMarginal(cov_func=cov(), inducing=kind(6)),
            sgp.CholQRMarginal(cov_func=cov(), n_inducing=kind(6), n_candidates=kind(2)),
            sgp.SKIPMarginal(cov_func=cov(), grid_size=kind(20), rank=kind(6)),
            sgp.GriefGP(cov_func=cov(), grid=kind(6), rank=kind(6)),
        ):
            gp.marginal_likelihood(type(gp).__name__, X=pm.Data(str(id(gp)), X), y=Y, sigma=0.1)
            assert gp.rank in (3, 6)
    with pytest.raises(ValueError, match="must lie between 1 and the number of rows, 10"):
        choose_rows(kind(11), 10)
    with pytest.raises(TypeError, match="inducing must be the size of a subset"):
        choose_rows(True, 10)


@pytest.mark.parametrize("shared", [False, True])
def test_float32_that_rounds_rows_together_is_warned_of(shared):
    """``pm.Data`` under floatX=float32 gives Unix seconds in steps of 128."""
    seconds = np.c_[1.7e9 + 10.0 * np.arange(40), np.arange(40.0), np.full(40, 1e9)]
    X = seconds.astype("float32")
    given = pytensor.shared(X) if shared else X
    words = "X came as float32, in which column 0 has steps of 128 and a range of 384"
    with pytest.warns(UserWarning, match=words) as caught:
        check_inputs(given)
    assert len(caught) == 1  # neither of small numbers nor of a constant


@pytest.mark.parametrize("kind", ["frame", "list", "pm.Data"])
def test_float32_within_other_containers_is_warned_of(kind):
    X = (1.6e9 + 3600.0 * np.arange(30, dtype="float32"))[:, None].astype("float32")
    with pm.Model():
        given = {"frame": pd.DataFrame(X), "list": list(X), "pm.Data": pm.Data("X", X)}[kind]
        with pytest.warns(UserWarning, match="X came as float32, in which column 0 has steps of 128"):
            check_inputs(given)
        check_inputs(pm.Data("seconds", 1.6e9 + 3600.0 * np.arange(30.0)[:, None]))
        check_inputs(pm.Data("few", 1.6e9 + 128.0 * np.arange(3.0)[:, None]))


@pytest.mark.parametrize("offset", [0.0, 500.0])
def test_float32_of_plain_inputs_is_taken_without_a_word(offset):
    X = np.linspace(offset, offset + 1.0, 50, dtype="float32")[:, None]
    assert check_inputs(X).value.dtype == "float64"
    assert check_inputs(X[:0], empty=True).value.shape == (0, 1)


@pytest.mark.parametrize("likelihood", [False, True])
def test_minibatches_are_refused(likelihood):
    """Predictions were those from the rows that one draw of them held."""
    with pm.Model():
        gp = sgp.ExactMarginal(cov_func=cov())
        how = {"likelihood": pm.Poisson.dist} if likelihood else {"sigma": 0.1}
        with pytest.raises(
            ValueError, match=r"y is a pm\.Minibatch: the rows of a GP depend on one another"
        ):
            gp.marginal_likelihood("y", *pm.Minibatch(X, Y, batch_size=5), total_size=N, **how)
