"""Arrays with masked or missing entries, and numbers that are NumPy's."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
from numpy.testing import assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.data.inputs import (
    check_block,
    check_dims,
    check_given,
    check_inputs,
    check_rows,
    check_sigma,
    check_target,
    check_temperature,
    check_weights,
    digest,
    held_value,
    refuse_other_columns,
    split_noise,
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


def test_targets_that_go_by_variables_are_refused():
    """What is taken from y is a part of the mean."""
    with pm.Model():
        slope = pm.Normal("slope")
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(X.shape[1], ls=0.5))
        with pytest.raises(ValueError, match="y depends on variables .* they go into mean_func="):
            gp.marginal_likelihood("y", X, Y - slope * X[:, 0], sigma=0.3)


def test_a_variable_may_be_called_as_the_inputs_are():
    """Arrays among the inputs of a function have no name that a variable would have."""
    with pm.Model() as model:
        slope = pm.Normal("y_X")
        cov, mean = pm.gp.cov.ExpQuad(X.shape[1], ls=0.5), pm.gp.mean.Constant(slope)
        sgp.ExactMarginal(cov_func=cov, mean_func=mean).marginal_likelihood("y", X, Y, sigma=0.3)
    assert np.isfinite(model.point_logps()["y"])


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


BAD = np.array([1.0, np.nan, 2.0])


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.ones((3, 1)), np.ones(2), r"source: X and y must have shapes .*, got \(3, 1\) and \(2,\)"),
        (np.ones(3), np.ones(3), r"got \(3,\) and \(3,\)"),
        (np.ones((3, 1)), np.ones((3, 1)), r"got \(3, 1\) and \(3, 1\)"),
        (np.ones((3, 1)), BAD, "source: NaN or infinite values in 1 rows, the first of them row 101"),
        (np.column_stack([BAD, np.ones(3)]), np.ones(3), "in 1 rows, the first of them row 101"),
    ],
)
def test_blocks_of_a_source_say_where_they_are_wrong(X, y, words):
    with pytest.raises(ValueError, match=words):
        check_block(X, y, "source", 100)


def test_noise_is_white_and_the_sum_of_the_rest():
    """Two of each: variances add up, and kernels."""
    first, second = pm.gp.cov.Matern32(1, ls=0.3), pm.gp.cov.ExpQuad(1, ls=2.0)
    white = [pm.gp.cov.WhiteNoise(s) for s in (0.3, 0.4)]
    sd, kernel = split_noise(first + white[0] + second + white[1])
    np.testing.assert_allclose(sd.eval(), 0.5)
    np.testing.assert_allclose(kernel(X).eval(), (first(X) + second(X)).eval())
    sd, kernel = split_noise(white[0])
    assert kernel is None
    assert sd.eval() == 0.3


def test_a_sigma_of_another_length_is_refused():
    for length in (N - 1, N + 1):
        with pytest.raises(ValueError, match=f"sigma has {length} values, but X has 12 rows"):
            check_sigma(np.ones(length), N)
    with pm.Model(coords={"rows": range(N + 1)}):
        sigma = pm.HalfNormal("sigma", dims="rows")
        with pytest.raises(ValueError, match="sigma has 13 values, but X has 12 rows"):
            check_sigma(sigma, N)


def test_a_sigma_of_one_value_is_for_all_rows():
    for n, shape in ((N, ()), (1, (1,)), (None, ())):
        found = check_sigma(np.array([0.3]), n).eval()
        assert found.shape == shape
        assert_array_equal(found, 0.3)


@pytest.mark.parametrize(
    ("value", "words"), [(np.ma.masked, "1 masked values, in 1 rows"), (None, "1 NaN or infinite values")]
)
def test_a_scalar_that_is_missing(value, words):
    with pytest.raises(ValueError, match=f"sigma has {words}"):
        check_sigma(value, N)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([0, N], ValueError, "rows names row 12, but X has 12 rows"),
        ([-1, 3], ValueError, "rows names row -1, but X has 12 rows"),
        ([3, 5, 3], ValueError, "rows names a row more than once"),
        (np.empty(0, int), TypeError, r"rows must be a size or integer rows of X"),
        ([True, False], TypeError, "got bool of shape"),
        ([1.0], TypeError, "got float64 of shape"),
        ([[1]], TypeError, r"of shape \(1, 1\)"),
    ],
)
def test_rows_are_distinct_whole_numbers_within_the_data(rows, error, words):
    with pytest.raises(error, match=words):
        check_rows(rows, N, "rows", "a size or ")
    assert_array_equal(check_rows(np.array([N - 1, 0], "uint8"), N, "rows"), [N - 1, 0])


@pytest.mark.parametrize("weights", [[1.0, 0.0], [1.0, -1.0], [1.0, 1.0, 1.0], [1.0], 1.0])
def test_weights_are_positive_and_as_many_as_the_rank(weights):
    words = "weights must be positive" if np.shape(weights) == (2,) else r"weights must have shape \(2,\)"
    with pytest.raises(ValueError, match=words):
        check_weights(np.array(weights), 2)


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, [1.0, 0.0], np.ones((1, 1))])
def test_a_temperature_is_positive_and_finite(value):
    words = "a scalar or have shape" if np.ndim(value) == 2 else "positive and finite"
    with pytest.raises(ValueError, match=f"temperature must be {words}"):
        check_temperature(value)


@pytest.mark.parametrize(("given", "missing"), [({"X": X}, "'y', 'sigma'"), ({"X": X, "y": Y}, "'sigma'")])
def test_data_to_condition_on_are_given_together(given, missing):
    with pytest.raises(ValueError, match=rf"given lacks \[{missing}\]"):
        check_given(given)
    assert check_given({"gp": None}) == {"gp": None}


def test_arrays_are_copied_and_shared_data_may_change():
    array = X.copy()
    data = check_inputs(array)
    array[:] = 7.0
    assert_array_equal(data.value, X)
    assert_array_equal(held_value(data, "X"), X)
    assert not data.mutable
    assert not check_inputs(pytensor.tensor.constant(X)).mutable
    shared = pytensor.shared(X)
    data = check_inputs(shared)
    shared.set_value(X + 1.0)
    assert data.mutable
    assert_array_equal(held_value(data, "X"), X + 1.0)
    with pm.Model(), pytest.raises(ValueError, match="X has a prior, and this needs rows that are known"):
        held_value(check_inputs(pm.Normal("X", shape=X.shape)), "X")


def test_data_of_the_model_keep_their_names():
    with pm.Model() as model:
        X, y = pm.Data("inputs", np.arange(4.0)[:, None]), pm.Data("targets", np.zeros(4))
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        gp.marginal_likelihood("y", X, y, 0.1)
    assert [X.name, y.name] == [model["inputs"].name, model["targets"].name] == ["inputs", "targets"]


def test_columns_go_by_their_names_where_the_names_are_the_same():
    frame = pd.DataFrame(np.ones((2, 2)), columns=[1, 2])
    assert check_inputs(frame).columns == ("1", "2")
    refuse_other_columns(frame, ("1", "2"), "X")
    refuse_other_columns(frame, ("1", "3"), "X")  # renamed
    refuse_other_columns(frame.to_numpy(), ("2", "1"), "X")
    with pytest.raises(ValueError, match=r"X has columns in another order than before.*\['2', '1'\]"):
        refuse_other_columns(frame, ("2", "1"), "X")


def test_a_digest_tells_shapes_and_kinds_apart():
    zeros = [np.zeros((2, 3)), np.zeros((3, 2)), np.zeros((2, 3), int), np.zeros(12, "float32")]
    assert len({digest(each) for each in zeros}) == 4
    assert digest(np.asfortranarray(np.eye(3)[:2])) == digest(np.eye(3)[:2])


@pytest.mark.parametrize("length", [N - 1, N + 1])
def test_dims_have_the_length_of_the_rows(length):
    with pm.Model(coords={"rows": range(length), "cells": range(N)}):
        data = check_inputs(X)
        with pytest.raises(ValueError, match=f"dims='rows' has length {length}, but X has 12 rows"):
            check_dims("rows", data, "X")
        for dims in ("cells", ("cells",), "unknown", None):
            check_dims(dims, data, "X")
        for dims in (("cells", "rows"), ()):
            with pytest.raises(ValueError, match="dims must name one dimension"):
                check_dims(dims, data, "X")
        check_dims("rows", check_inputs(pytensor.shared(X)), "X")  # which may get as many
