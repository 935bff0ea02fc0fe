"""Grids: masked and missing cells, and axes in another order."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.kmcg.regular_grid import at_cells

AXES = [np.arange(4.0), np.arange(5.0)]
Y = np.arange(20.0).reshape((4, 5))
MASK = np.zeros((4, 5), dtype=bool)
MASK[1, 2] = MASK[3, 4] = True
MASKED = np.ma.MaskedArray(Y, MASK, fill_value=1e20)


def test_masked_cells_are_missing_cells():
    grid = sgp.RegularGrid(AXES, observed=~MASK)
    assert_array_equal(grid.ravel(MASKED), Y[~MASK])
    assert not isinstance(grid.ravel(MASKED), np.ma.MaskedArray)
    with pytest.raises(ValueError, match=r"y has 2 NaN or infinite .* \(masked values are NaN\)"):
        sgp.RegularGrid(AXES).ravel(MASKED)
    with pytest.raises(ValueError, match="y has 2 NaN or infinite"):
        sgp.RegularGrid(AXES).ravel(MASKED.ravel())
    other = ~MASK
    other[1, 2] = True
    with pytest.raises(ValueError, match="y has 1 NaN or infinite"):
        sgp.RegularGrid(AXES, observed=other).ravel(MASKED)
    assert_array_equal(sgp.RegularGrid(AXES).ravel(np.ma.MaskedArray(Y)), Y.ravel())
    whole = np.ma.MaskedArray(Y.astype(int), MASK)
    assert_array_equal(grid.ravel(whole), Y[~MASK])


def test_what_the_message_says_works():
    grid = sgp.RegularGrid(AXES, observed=np.isfinite(MASKED))
    assert_array_equal(grid.observed, ~MASK)
    assert_array_equal(grid.ravel(MASKED), Y[~MASK])


def test_the_density_is_that_of_the_observed_cells():
    """A fill value of 1e20 went into it."""
    densities = []
    for y in (MASKED, np.where(MASK, np.nan, Y), Y[~MASK]):
        with pm.Model() as model:
            gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0), n_iter=5, probes=0)
            gp.marginal_likelihood("y", X=sgp.RegularGrid(AXES, ~MASK), y=y, sigma=0.5)
            densities.append(model.compile_logp(mode="FAST_COMPILE")({}))
    assert densities[0] == densities[1] == densities[2]
    assert np.isfinite(densities[0])


def test_masked_axes_and_points_are_refused():
    with pytest.raises(ValueError, match=r"axes\[1\] has 1 masked values"):
        sgp.RegularGrid([AXES[0], np.ma.MaskedArray(AXES[1], AXES[1] == 2.0)])
    points = np.ma.MaskedArray(np.arange(6.0), np.arange(6) == 2)
    with pytest.raises(ValueError, match="X has 1 masked values"):
        sgp.RegularGrid.from_points(points)


@pytest.mark.parametrize(
    ("given", "axis"),
    [
        ([3.0, 0.0, 1.0], [0.0, 1.0, 2.0, 3.0]),
        ([0.0, 5.0], [0.0, 5.0]),
        ([0.0, 1.0, 2.5], [0.0, 1.0, 2.5]),
        ([0.0, 1.0, 303.0], [0.0, 1.0, 303.0]),
        ([0.0, 1.0, 2.05, 4.0], [0.0, 1.0, 2.05, 4.0]),  # a twentieth of a step off: not even
        ([7.0], [7.0]),
    ],
)
def test_gaps_of_an_axis_are_filled_where_steps_are_multiples(given, axis):
    grid, order = sgp.RegularGrid.from_points(given)
    np.testing.assert_allclose(grid.axes[0], axis)
    np.testing.assert_allclose(grid.points[:, 0], np.array(given)[order])


def test_a_long_axis_is_filled_though_its_smallest_step_is_a_rounded_one():
    """Of 200 steps the smallest would be off by more than a thousandth at the end."""
    whole = np.arange(200.0)
    noisy = np.delete(whole, 50) + 1e-4 * np.random.default_rng(0).uniform(-1.0, 1.0, 199)
    grid, _ = sgp.RegularGrid.from_points(noisy)
    np.testing.assert_allclose(grid.axes[0], whole, atol=2e-4)
    assert not grid.observed[50]


def test_coordinates_that_rounding_tells_apart_are_one():
    points = np.stack(np.meshgrid(0.1 * np.arange(5), [1e9, 2e9], indexing="ij"), axis=-1).reshape(-1, 2)
    noisy = points * (1.0 + 1e-13 * np.random.default_rng(0).standard_normal(points.shape))
    grid, order = sgp.RegularGrid.from_points(noisy)
    assert (grid.shape, grid.observed) == ((5, 2), None)
    np.testing.assert_allclose(grid.points, points[order], rtol=1e-9)


def test_a_decreasing_axis_gets_words():
    with pytest.raises(ValueError, match=r"axes\[0\] is decreasing, from 3 to 0: .* np\.flip\(y, axis=0"):
        sgp.RegularGrid([AXES[0][::-1], AXES[1]])
    with pytest.raises(ValueError, match=r"axes\[1\] must be strictly increasing.* a decrease at"):
        sgp.RegularGrid([AXES[0], np.array([0.0, 2.0, 1.0])])


def test_grids_given_as_arrays_are_named():
    """Regular series and complete grids, shuffled or with gaps; not scattered rows, nor other kernels."""

    def built(X, cov_func):
        X = rng.permutation(X)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            sgp.KMCGMarginal(cov_func=cov_func, n_iter=2).build(X, X[:, 0])
        return any("RegularGrid.from_points(X)" in str(each.message) for each in told)

    rng, kernel = np.random.default_rng(0), pm.gp.cov.ExpQuad
    series = np.delete(np.linspace(0.0, 9.0, 1200), np.r_[30:60])[:, None]
    cells = sgp.RegularGrid([np.linspace(0.0, 1.0, 34), rng.uniform(size=31).cumsum()]).points
    assert built(series, kernel(1, ls=1.0))
    assert built(cells, kernel(2, ls=1.0))
    assert not built(series[:900], kernel(1, ls=1.0))
    assert not built(rng.uniform(size=(1100, 1)), kernel(1, ls=1.0))
    assert not built(rng.uniform(size=(1100, 2)), kernel(2, ls=1.0))
    assert not built(np.r_[cells, cells[:5]], kernel(2, ls=1.0))
    assert not built(cells, kernel(2, ls=1.0) + pm.gp.cov.Linear(2, c=0.0))


def test_a_sum_takes_the_most_steps_and_probes_of_its_parts():
    cov = pm.gp.cov.ExpQuad(2, ls=1.0)
    settings = ({"n_iter": 5, "probes": 8}, {"n_iter": 7, "probes": 2}, {})
    total = sum(
        (sgp.KMCGMarginal(cov_func=cov, **each) for each in settings[1:]),
        sgp.KMCGMarginal(cov_func=cov, **settings[0]),
    )
    assert (total.n_iter, total.probes, total.approx) == (7, 8, "DTC")


def test_targets_and_noise_of_the_grids_shape():
    """As arrays or as data of the model, with and without missing cells."""
    sigma, values = 0.2 + 0.01 * Y, {"mode": "FAST_COMPILE"}
    for observed in (None, ~MASK):
        grid = sgp.RegularGrid(AXES, observed)
        flat = sigma.ravel() if observed is None else sigma[observed]
        found = []
        for y, noise, shared in ((Y, flat, False), (Y, sigma, False), (Y, sigma, True)):
            with pm.Model() as model:
                gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0), n_iter=10)
                y = pm.Data("data", y) if shared else y
                noise = pm.Data("noise", noise) if shared else noise
                gp.marginal_likelihood("y", X=grid, y=y, sigma=noise)
            found.append(float(model.compile_logp(**values)({})))
        np.testing.assert_allclose(found, found[0], rtol=1e-12)
        with pm.Model(), pytest.raises(ValueError, match=r"y must have the grid's shape \(4, 5\)"):
            gp.marginal_likelihood("y", X=grid, y=pm.Data("data", Y.T), sigma=0.3)
        with pm.Model(), pytest.raises(ValueError, match=r"sigma must have the grid's shape"):
            gp.marginal_likelihood("y", X=grid, y=Y, sigma=sigma.T)


@pytest.mark.parametrize("kind", ["shape", "dims", "data", "observed cells"])
def test_noise_along_one_axis_with_gaps(kind):
    """Of the axis' length or of the observed cells', whichever it has."""
    observed, found = np.array([True, False, True, True]), []
    values, y = np.array([0.3, 9.0, 0.5, 0.8]), np.array([1.0, 7.0, 2.0, 4.0])
    for known in (True, False):
        with pm.Model(coords={"cell": range(4)}) as model:
            noise = values[observed] if known else {
                "shape": lambda: pm.HalfNormal("noise", 1, shape=4),
                "dims": lambda: pm.HalfNormal("noise", 1, dims="cell"),
                "data": lambda: 2.0 * pm.Data("noise", values / 2.0),
                "observed cells": lambda: pm.Data("noise", values[observed]),
            }[kind]()  # fmt: skip
            target = y if known else pm.Data("target", y)
            gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0), probes=0)
            gp.marginal_likelihood("y", X=sgp.RegularGrid(AXES[:1], observed), y=target, sigma=noise)
        logp = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")
        found.append(float(logp({"noise_log__": np.log(values)} if model.free_RVs else {})))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.array([0.0, np.nan, 2.0]), "X has 1 NaN or infinite"),
        (np.zeros((0, 2)), "at least one row"),
        (np.zeros((3, 0)), "at least one row and one column"),
        (np.zeros((2, 2, 2)), r"X must have shape \(n, d\)"),
    ],
)
def test_points_of_no_grid(points, words):
    with pytest.raises(ValueError, match=words):
        sgp.RegularGrid.from_points(points)


def test_columns_that_are_counted_from_the_last():
    """Alone, beside a kernel of the same column, and with gaps."""
    for observed in (None, ~MASK):
        grid, kernel = sgp.RegularGrid(AXES, observed), pm.gp.cov.Matern32(2, ls=2.0, active_dims=[1])
        found = []
        for dim in (1, -1):
            last = pm.gp.cov.ExpQuad(2, ls=1.5, active_dims=[dim])
            for cov in (last, last * kernel):
                with pm.Model() as model:
                    sgp.KMCGMarginal(cov_func=cov).marginal_likelihood("y", X=grid, y=Y, sigma=0.3)
                found.append(float(model.compile_logp(mode="FAST_COMPILE")({})))
        np.testing.assert_allclose(found[:2], found[2:], rtol=1e-12)


def test_new_grids_of_dates_count_from_those_of_the_training_grid():
    """Days since each array's own first date are other dates: February was taken for January."""
    dates = np.datetime64("2000-01-01") + np.arange(40)
    data = xr.DataArray(np.sin(0.3 * np.arange(40.0)), coords={"time": dates}, dims="time")
    grid, values = sgp.RegularGrid.from_xarray(data[:30])
    with pm.Model():
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.Matern52(1, ls=3.0))
        gp.marginal_likelihood("y", X=grid, y=values, sigma=0.1)
        new, _ = sgp.RegularGrid.from_xarray(data[30:])
        with pytest.raises(ValueError, match="since 2000-01-31.*in days since 2000-01-01.*like=grid"):
            gp.predict(new, {}, diag=True)
        given = {"X": new, "y": data[30:], "sigma": 0.1}
        with pytest.raises(ValueError, match=r'given\["X"\] has time in days since 2000-01-31.*like=grid'):
            gp.predict(grid, {}, diag=True, given=given)
        numbers, _ = sgp.RegularGrid.from_xarray(data.assign_coords(time=np.arange(40.0)), like=grid)
        with pytest.raises(ValueError, match="has time in numbers, .* of data with dates"):
            gp.predict(numbers, {}, diag=True)
        with pytest.raises(ValueError, match="like= has no dates along time"):
            sgp.RegularGrid.from_xarray(data[30:], like=sgp.RegularGrid(grid.axes))
        new, _ = sgp.RegularGrid.from_xarray(data[30:], like=grid)
        np.testing.assert_allclose(new.points[:, 0], np.arange(30.0, 40.0))
        found, expected = gp.predict(new, {}, diag=True), gp.predict(new.points, {}, diag=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_axes_of_another_array_in_another_order():
    data = xr.DataArray(np.arange(20.0).reshape(4, 5), coords={"a": np.arange(4.0), "b": np.arange(5.0)})
    grid, values = sgp.RegularGrid.from_xarray(data)
    with pm.Model():
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=[2.0, 3.0]))
        gp.marginal_likelihood("y", X=grid, y=values - 10.0, sigma=0.1)
        with pytest.raises(ValueError, match=r"Xnew has columns in another order.*as \['a', 'b'\]"):
            gp.predict(sgp.RegularGrid.from_xarray(data.T)[0], {}, diag=True)


LATITUDES = np.array([60.0, 50.0, 40.0])
RASTER = xr.DataArray(
    np.arange(9.0).reshape(3, 3), coords={"lat": LATITUDES, "lon": [1.0, 2.0, 3.0]}, dims=("lat", "lon")
)


@pytest.mark.parametrize("named", [True, False])
def test_data_arrays_are_taken_by_their_coordinates(named):
    """`from_xarray` turns decreasing latitudes: y= and sigma= beside its grid came upside down."""
    grid, y = sgp.RegularGrid.from_xarray(RASTER)
    grid = grid if named else sgp.RegularGrid(grid.axes)
    for other in (RASTER, RASTER[::-1], RASTER[[1, 0, 2]], *([RASTER.T, RASTER.T[::-1]] if named else [])):
        assert_array_equal(at_cells(grid, other, "sigma"), y)
    single = RASTER.assign_coords(lon=RASTER["lon"].astype("float32") * np.float32(1.0 + 1e-7))
    assert_array_equal(grid.ravel(single), y)
    assert_array_equal(grid.ravel(RASTER.drop_vars(["lat", "lon"]).rename(lat="a")), RASTER.values.ravel())
    for moved in (
        RASTER.assign_coords(lat=LATITUDES + 1.0),
        RASTER.assign_coords(lat=["c", "b", "a"]),
        RASTER.stack(cell=("lat", "lon")),
    ):
        with pytest.raises(
            ValueError, match=r"sigma has other coordinates along (lat|cell) .*sigma\.values"
        ):
            at_cells(grid, moved, "sigma")
    with pytest.raises(ValueError, match=r"must have the grid's shape \(3, 3\)"):
        grid.ravel(RASTER[:2])


def test_observed_may_be_a_data_array():
    grid = sgp.RegularGrid([LATITUDES[::-1], RASTER["lon"]], observed=RASTER > 2.5)
    assert_array_equal(grid.observed, RASTER.values[::-1] > 2.5)
    assert_array_equal(grid.ravel(RASTER), RASTER.values[::-1][grid.observed])


def test_series_are_taken_by_their_dates():
    """With a gap: all of them, or those that are observed."""
    dates = np.datetime64("2000-01-01") + np.arange(5)
    data = xr.DataArray(np.arange(5.0), coords={"time": dates}, dims="time")
    grid, y = sgp.RegularGrid.from_xarray(data.where(data != 2.0))
    for other in (data, data[::-1], data[[4, 0, 1, 3]]):
        assert_array_equal(grid.ravel(other), y)
    for other in (data.assign_coords(time=dates + np.timedelta64(1, "D")), data[1:]):
        with pytest.raises(ValueError, match="y has other coordinates along time than the grid"):
            grid.ravel(other)
    counted = sgp.RegularGrid([np.arange(5.0)])  # in whatever way
    assert_array_equal(counted.ravel(data), data)
    with pytest.raises(ValueError, match="y has other coordinates along time than the grid"):
        counted.ravel(data[::-1])


def test_words_for_axes_of_dates_and_for_grids_in_other_classes():
    days = np.datetime64("2000-01-01") + np.arange(3)
    for axis, way in (
        (days, "of dates give days or seconds since a start, or take RegularGrid.from_xarray$"),
        (days.astype(object), "dtype object: of dates give days or seconds since a start$"),
        (["a", "b"], "must be numeric, got dtype <U1: encode text and categories as numbers"),
    ):
        with pytest.raises(TypeError, match=way):
            sgp.RegularGrid([axis])
    gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0))
    with pm.Model(), pytest.raises(TypeError, match=r"of a grid give grid\.points, and grid\.ravel\(y\)"):
        gp.marginal_likelihood("y", sgp.RegularGrid(AXES), Y, 0.3)


def test_infinite_cells_are_not_missing():
    """As the logarithm of dry cells is: they went as NaN does."""
    data = xr.DataArray([[0.0, -np.inf], [np.nan, 1.0]], dims=("a", "b"))
    with pytest.raises(ValueError, match="y has 1 NaN or infinite values at cells that count as observed"):
        sgp.RegularGrid.from_xarray(data)


def test_an_axis_is_even_to_a_millionth_of_its_steps():
    for moved, expected in ((1e-7, 1.0), (1e-5, None)):
        grid = sgp.RegularGrid([[0.0, 1.0, 2.0 + moved, 3.0], [5.0]])
        assert grid.spacing(0) == expected
        assert grid.spacing(1) is None


def test_coordinates_a_millionth_of_the_axis_apart_are_two():
    grid, _ = sgp.RegularGrid.from_points([0.0, 1e-6, 1.0])
    np.testing.assert_array_equal(grid.axes[0], [0.0, 1e-6, 1.0])


def test_a_few_scattered_points_may_have_ten_thousand_cells():
    """A hundred cells to a point are too many, but of small grids none is."""
    points = np.random.default_rng(0).uniform(size=(20, 3))
    grid, order = sgp.RegularGrid.from_points(points)
    assert (grid.size, grid.n) == (8000, 20)
    np.testing.assert_array_equal(grid.points, points[order])


def test_a_grid_is_not_changed_by_its_arrays():
    axis, observed = np.arange(3.0), np.array([True, False, True])
    grid = sgp.RegularGrid([axis], observed=observed)
    axis[0], observed[1] = -5.0, True
    assert (grid.axes[0][0], grid.n) == (0.0, 2)
    for own in (grid.axes[0], grid.observed):
        with pytest.raises(ValueError, match="read-only"):
            own[0] = 0


@pytest.mark.parametrize(
    ("axis", "moved", "are_the_same"),
    [
        (1e6 + np.arange(3.0), 1e-4, True),
        (1e6 + np.arange(3.0), 0.1, False),  # a tenth of a step, though a ten-millionth of a coordinate
        (1e3 * np.arange(3.0), 1e-3, True),
        (1e3 * np.arange(3.0), 0.5, False),  # more than single precision makes, though little of a step
    ],
)
def test_coordinates_are_those_of_the_grid_to_single_precision_and_a_thousandth_of_a_step(
    axis, moved, are_the_same
):
    grid = sgp.RegularGrid([axis])
    data = xr.DataArray([3.0, 2.0, 1.0], dims="x", coords={"x": axis[::-1] + moved})
    if are_the_same:
        np.testing.assert_array_equal(grid.ravel(data), [1.0, 2.0, 3.0])
    else:
        with pytest.raises(ValueError, match="y has other coordinates along x"):
            grid.ravel(data)


def test_an_axis_without_cells_is_refused():
    with pytest.raises(ValueError, match=r"axes\[1\] must be a vector of coordinates, got shape \(0,\)"):
        sgp.RegularGrid([[0.0, 1.0], np.zeros(0)])
