"""Values of variables at posterior draws: which, in which order, and what is refused."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from pymc_scalable_gp.core.data.draws import (
    at_most,
    entry_names,
    mean_point,
    model_mean,
    posterior_draws,
    refuse_failed,
)

NUMBERS = np.arange(24.0).reshape(2, 6, 2)  # chain, draw, entry


def problem():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b", shape=2)
    draws = xr.Dataset({
        "a": (("chain", "draw"), NUMBERS[..., 0]),
        "b": (("draw", "entry", "chain"), NUMBERS.transpose(1, 2, 0)),
        "other": (("chain", "draw"), NUMBERS[..., 1]),
    })  # fmt: skip
    return model, [b, a], draws


def test_all_draws_chain_by_chain_in_the_order_of_the_inputs():
    model, inputs, draws = problem()
    found = posterior_draws(draws, inputs, model)
    assert (len(found), found.chains) == (12, 2)
    np.testing.assert_array_equal([b for b, _ in found.values], NUMBERS.reshape(12, 2))
    np.testing.assert_array_equal([a for _, a in found.values], NUMBERS[..., 0].ravel())
    assert found.values[0][0].dtype == inputs[0].dtype
    assert len(posterior_draws(draws, [], model)) == 12
    one, stacked = draws.astype(int).isel(chain=1), draws.stack(sample=("chain", "draw"))
    for given, rows in ((one, slice(6, None)), (stacked, slice(None))):
        found = posterior_draws(given, inputs, model)
        assert found.chains == 1
        assert found.values[0][0].dtype == inputs[0].dtype
        np.testing.assert_array_equal([b for b, _ in found.values], NUMBERS.reshape(12, 2)[rows])
    with pytest.raises(ValueError, match="no dimension chain, draw or sample, only"):
        posterior_draws(draws.isel(chain=0, draw=0), inputs, model)


def test_some_draws_are_distinct_in_order_and_by_the_seed():
    model, inputs, draws = problem()
    found = posterior_draws(draws, inputs, model, 5, np.random.default_rng(3))
    rows = np.sort(np.random.default_rng(3).permutation(12)[:5])
    assert found.chains == 1
    np.testing.assert_array_equal([a for _, a in found.values], NUMBERS[..., 0].ravel()[rows])
    assert len(posterior_draws(draws, inputs, model, 12, np.random.default_rng(3))) == 12
    for many in (13, 0):
        with pytest.raises(ValueError, match="num_samples must"):
            posterior_draws(draws, inputs, model, many, np.random.default_rng(3))


def test_few_draws_are_all_taken_where_the_user_did_not_say_how_many():
    _, _, draws = problem()
    assert at_most(draws, 12, 12) is None
    assert at_most(draws, 11, 11) == 11  # of twelve
    assert at_most(draws, 40, 40) is None
    assert at_most(draws, 50, 40) == 50  # said, and refused as too many
    assert at_most(draws.stack(sample=("chain", "draw")), 11, 11) == 11


def test_a_variable_without_the_others_dimension_is_refused():
    model, inputs, draws = problem()
    with pytest.raises(ValueError, match="a lacks the dimension chain of the other variables"):
        posterior_draws(draws.assign(a=draws["a"].isel(chain=0)), inputs, model)


def test_draws_of_which_one_entry_is_nan_are_counted():
    model, inputs, draws = problem()
    draws = draws.copy(deep=True)
    draws["b"][{"chain": 1, "draw": slice(2, 4), "entry": 0}] = np.nan
    with pytest.raises(ValueError, match="b is NaN at 2 of 12 draws"):
        posterior_draws(draws, inputs, model)


def test_draws_that_failed_are_counted():
    refuse_failed([False, False], "density")
    with pytest.raises(ValueError, match="the density is NaN at 2 of 3 draws"):
        refuse_failed(np.array([True, False, True]), "density")


def test_means_and_names_of_entries():
    model, _, draws = problem()
    found = model_mean(draws, model)
    assert list(found) == ["a", "b"]
    np.testing.assert_allclose(found["a"], NUMBERS[..., 0].mean())
    np.testing.assert_allclose(found["b"], NUMBERS.mean(axis=(0, 1)))
    points = [{"a": 1.0, "b": np.array([1.0, 2.0])}, {"a": 4.0, "b": np.array([3.0, 6.0])}]
    mean = mean_point(points)
    assert mean["a"] == 2.5
    np.testing.assert_allclose(mean["b"], [2.0, 4.0])
    names = entry_names({"eta": 1.0, "ell": np.ones(2), "B": np.ones((1, 2))})
    assert names == ["eta", "ell[0]", "ell[1]", "B[0, 0]", "B[0, 1]"]
