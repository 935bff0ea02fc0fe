"""Wrong calls: each raises before compilation and says what came and what would work."""

import datetime as dt

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from scipy import sparse

import pymc_scalable_gp as sgp
from pymc_scalable_gp.testing import check_marginal_logp

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(20, 3))
Y = RNG.standard_normal(20)
COV = pm.gp.cov.ExpQuad(3, ls=0.8)


def gp_with(cov=COV, **options):
    return sgp.GriefGP(cov_func=cov, **{"grid": 4, "rank": 10, **options})


def likelihood(X=X, y=Y, sigma=0.3, gp=None, **kwargs):
    with pm.Model() as model:
        gp = gp_with() if gp is None else gp
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, **kwargs)
    return gp, model


def spoiled(array, *places, value=np.nan):
    array = array.copy()
    for place in places:
        array[place] = value
    return array


@pytest.mark.parametrize("kind", [sgp.ExactMarginal, sgp.StateSpaceMarginal])
def test_variables_without_a_name_are_refused(kind):
    """Where nothing is built from them too; a density with them failed in PyMC's words."""
    gp = kind(cov_func=pm.gp.cov.Matern32(1, ls=pm.HalfNormal.dist(1.0)))
    with pm.Model(), pytest.raises(ValueError, match="a random variable without a name, which dist"):
        gp.marginal_likelihood("y", X=X[:, :1], y=Y, sigma=0.3)


# -- data that are refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"X": spoiled(X, (0, 1), (4, 1), (2, 2))}, ValueError,
         r"X has 3 NaN or infinite values, in column 1 \(2\), column 2 \(1\): drop or impute"),
        ({"X": spoiled(X, (3, 0), value=-np.inf)}, ValueError, r"column 0 \(1\)"),
        ({"X": pd.DataFrame(spoiled(X, (0, 1)), columns=["a", "b", "c"])}, ValueError,
         r"in column b \(1\)"),
        ({"X": spoiled(X, (slice(None), 2))}, ValueError,
         r"in column 2 \(20\): leave out columns without a finite value \(constant ones, divided by"),
        ({"X": X[:, 0]}, ValueError, r"X must have shape \(n, d\), got shape \(20,\); reshape"),
        ({"X": X[None]}, ValueError, r"got shape \(1, 20, 3\)"),
        ({"X": X[:0], "y": Y[:0]}, ValueError, "at least one row and one column"),
        ({"X": X[:, :0]}, ValueError, "at least one row and one column"),
        ({"X": X.astype(str)}, TypeError, "X must be numeric, got dtype <U.*: encode text"),
        ({"X": X.astype(np.dtypes.StringDType())}, TypeError, "got dtype StringDType.*: encode text"),
        ({"X": np.array([["a", 1.0, 2.0]] * 20, dtype=object)}, TypeError,
         "X must be numeric, got dtype object: encode text .* as numbers, new rows as X: pd.Cate"),
        ({"X": X + 0j}, TypeError, "X must be numeric, got dtype complex128"),
        ({"X": X.astype("datetime64[s]")}, TypeError, "datetime64.*: of dates give days or seconds"),
        ({"X": np.array([[dt.date(2026, 1, 1), 1.0, 2.0]] * 20, dtype=object)}, TypeError,
         "object: of dates give days"),
        ({"X": X.astype("timedelta64[s]")}, TypeError, "timedelta64.*: of dates give days or seconds"),
        ({"X": sparse.csr_array(X)}, TypeError, r"X is sparse, and must be dense: give X.toarray\(\)"),
        ({"y": spoiled(Y, 3, 5)}, ValueError, "y has 2 NaN or infinite values: drop those rows"),
        ({"X": pd.DataFrame(X), "y": pd.Series(Y, np.arange(20)[::-1])}, ValueError,
         r"index of X in another order.*give y.loc\[X.index\]"),
        ({"y": np.full(20, np.nan)}, ValueError, "y has no finite value among 20"),
        ({"y": spoiled(Y, 3, value=np.inf)}, ValueError, "y has 1 NaN or infinite values"),
        ({"y": Y[:, None]}, ValueError, r"y must have shape \(n,\), got shape \(20, 1\); use y\[:, 0\]"),
        ({"y": Y[:7]}, ValueError, "y has 7 values, but X has 20 rows"),
        ({"sigma": 0.0}, ValueError, "sigma must be positive, got 0: for data without noise"),
        ({"sigma": -0.1}, ValueError, "sigma must be positive, got -0.1"),
        ({"sigma": np.nan}, ValueError, "sigma has 1 NaN"),
        ({"sigma": spoiled(np.ones(20), 4, 5)}, ValueError, "sigma has 2 NaN or infinite values"),
        ({"sigma": spoiled(np.ones(20), 4, value=0.0)}, ValueError, "sigma must be positive"),
        ({"sigma": np.ones(7)}, ValueError, "sigma has 7 values, but X has 20 rows"),
        ({"sigma": np.eye(20)}, ValueError, "sigma must be a scalar or have shape"),
        ({"sigma": "big"}, TypeError, "sigma must be numeric"),
        ({"sigma": COV}, TypeError, "got the covariance ExpQuad: only WhiteNoise"),
    ],
)  # fmt: skip
def test_bad_data(kwargs, error, match):
    with pytest.raises(error, match=match):
        likelihood(**kwargs)


def test_bad_shared_data():
    shared = pytensor.shared(spoiled(X, (0, 0)))
    with pm.Model(), pytest.raises(ValueError, match="X has 1 NaN or infinite values"):
        gp_with().marginal_likelihood("y", X=shared, y=Y, sigma=0.3)


def test_a_refused_likelihood_leaves_the_gp_without_data():
    gp = gp_with()
    with pytest.raises(ValueError, match="y has 7 values"):
        likelihood(y=Y[:7], gp=gp)
    with pytest.raises(ValueError, match="GriefGP has no data yet: call marginal_likelihood"):
        gp.predict(X)


# -- data that are taken ------------------------------------------------------------------------


def logp(rank=10, **kwargs):
    """Log density; a fixed kernel and FITC, so that rows are not summarised."""
    _, model = likelihood(gp=gp_with(approx="FITC", rank=rank), **kwargs)
    return float(model.compile_logp(mode="FAST_COMPILE")({}))


def test_kinds_of_arrays():
    whole = np.round(10 * X)
    expected = logp(X=whole, y=np.round(Y))
    frame = pd.DataFrame(whole, columns=["a", "b", "c"], index=np.arange(20)[::-1])
    kinds = {
        "integer": (whole.astype(int), np.round(Y).astype(int)),
        "float32": (whole.astype("float32"), np.round(Y).astype("float32")),
        "pandas": (frame, pd.Series(np.round(Y), index=np.arange(20) + 5)),
        "xarray": (xr.DataArray(whole), xr.DataArray(np.round(Y), dims="obs")),
        "object": (whole.astype(object), np.round(Y).astype(object)),
        "lists": (whole.tolist(), np.round(Y).tolist()),
        "fortran": (np.asfortranarray(whole), np.repeat(np.round(Y), 2)[::2]),
        "tensor": (pt.constant(whole), pt.constant(np.round(Y))),
    }
    for kind, (inputs, targets) in kinds.items():
        assert_allclose(logp(X=inputs, y=targets), expected, rtol=1e-13, err_msg=kind)


def test_booleans_are_numbers():
    flags = X > 0.5
    assert_allclose(logp(X=flags, rank=8), logp(X=flags.astype(float), rank=8), rtol=1e-13)


def test_white_noise_and_one_element_sigma_are_scalars():
    expected = logp(sigma=0.3)
    assert_allclose(logp(sigma=pm.gp.cov.WhiteNoise(0.3)), expected, rtol=1e-13)
    assert_allclose(logp(sigma=np.array([0.3])), expected, rtol=1e-13)
    assert_allclose(logp(sigma=np.full(20, 0.3)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(np.repeat(X[:5], 4, axis=0), id="duplicates"),
        pytest.param(spoiled(X, (slice(None), 1), value=2.0), id="constant column"),
        pytest.param(np.ones((20, 3)), id="all constant"),
        pytest.param(X * [1e-9, 1.0, 1e9], id="scales"),
    ],
)
def test_degenerate_inputs(inputs):
    gp = gp_with(pm.gp.cov.ExpQuad(3, ls=np.ptp(inputs, axis=0) + 0.5), rank=1)
    gp, model = likelihood(X=inputs, gp=gp)
    assert np.isfinite(check_marginal_logp(gp, model, mode="FAST_COMPILE")).all()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_rows(n):
    """n = 1 has one grid node a column; n < rank."""
    gp = gp_with(grid=[np.linspace(0, 1, 4)] * 3)
    gp, model = likelihood(X=X[:n], y=Y[:n], gp=gp)
    assert gp.rank > n
    check_marginal_logp(gp, model, mode="FAST_COMPILE")
    mean, var = gp.predict(X[:n], diag=True, model=model)
    assert np.isfinite(mean).all()
    assert (var > 0).all()


def test_one_row_and_a_default_grid():
    gp = gp_with(rank=1)
    gp, model = likelihood(X=X[:1], y=Y[:1], gp=gp)
    assert gp.rank == 1
    mean, _ = gp.predict(X[:1], model=model)
    assert_allclose(mean, Y[0] / 1.09, rtol=1e-9)


# -- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"approx": "SOR"}, ValueError, r"approx must be one of 'DTC', 'FITC', 'VFE', 'VIF', got 'SOR'"),
        ({"rotate": "yes"}, TypeError, "rotate must be True or False, got 'yes'"),
        ({"rotate": True, "approx": "FITC"}, ValueError, 'rotate=True works with approx="DTC" only'),
        ({"rank": 0}, ValueError, "rank must be at least 1, got 0"),
        ({"rank": 10.0}, TypeError, "rank must be an int, got float 10.0"),
        ({"rank": True}, TypeError, "rank must be an int, got bool"),
        ({"cov": lambda x: x}, TypeError, "cov_func must be a pm.gp.cov kernel, got function"),
        ({"cov": 1.0}, TypeError, "cov_func must be a pm.gp.cov kernel, got float"),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        gp_with(**options)


@pytest.mark.parametrize(
    ("grid", "error", "match"),
    [
        ("fine", TypeError, "grid must be an int, one int per dimension, or a list"),
        (2.5, TypeError, "grid must be an int"),
        ([4, 4], ValueError, "grid has 2 entries, but X has 3 columns"),
        (0, ValueError, r"grid\[0\] is 0: a dimension needs at least 1 node"),
        ([4, -1, 4], ValueError, r"grid\[1\] is -1"),
        ([4, [0.0, np.nan], 4], ValueError, r"grid\[1\] must be an int or a non-empty 1-D array"),
        ([4, [], 4], ValueError, r"grid\[1\] must be"),
        ([4, np.eye(2), 4], ValueError, r"grid\[1\] must be .* got shape \(2, 2\)"),
    ],
)
def test_bad_grids(grid, error, match):
    with pytest.raises(error, match=match):
        gp_with(grid=grid).build(X)


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        sgp.GriefGP(COV)


def test_rank_above_the_number_of_cells_warns():
    gp = gp_with(grid=2, rank=100)
    with pytest.warns(UserWarning, match=r"rank=100 exceeds the 8 cells of the grid: using rank 8"):
        assert gp.build(X) <= 8


def test_kernel_over_fewer_columns_than_x():
    gp = gp_with(pm.gp.cov.ExpQuad(3, ls=0.8, active_dims=[0, 2]))
    gp, model = likelihood(gp=gp)
    assert gp.feature_map.grids[0].term.dims == [0, 2]
    moved = X.copy()
    moved[:, 1] = 50.0  # not a column of the kernel: not outside of anything
    same = gp.predict(X, diag=True, model=model)
    assert_allclose(gp.predict(moved, diag=True, model=model), same, rtol=1e-12)


def test_kernel_over_more_columns_than_x():
    with pytest.raises(ValueError, match="the kernel uses column 2, but X has 2 columns"):
        gp_with().build(X[:, :2])


@pytest.mark.parametrize(
    ("cov", "match"),
    [
        (pm.gp.cov.Matern52(3, ls=1.0), r"Matern52 on 3 dimensions .* sgp\.cov\.Product\("),
        (COV + pm.gp.cov.WhiteNoise(0.1), "WhiteNoise is no part of the function: give it as sigma="),
    ],
)
def test_kernels_that_are_no_products(cov, match):
    with pytest.raises(ValueError, match=match):
        gp_with(cov)


# -- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "weights", "error", "match"),
    [
        ({}, np.ones(9), ValueError, r"weights must have shape \(10,\).* got shape \(9,\)"),
        ({}, 1.0, ValueError, r"weights must have shape \(10,\)"),
        ({}, -np.ones(10), ValueError, "weights must be positive"),
        ({}, np.full(10, np.nan), ValueError, "weights must be positive"),
        ({"approx": "FITC"}, np.ones(10), ValueError, 'weights work with approx="DTC" only'),
        ({"approx": "VFE"}, np.ones(10), ValueError, 'weights work with approx="DTC" only'),
    ],
)
def test_bad_weights(options, weights, error, match):
    with pytest.raises(error, match=match):
        likelihood(gp=gp_with(**options), weights=weights)


@pytest.mark.parametrize("options", [{"mode": 0.0}, {"variance": -1.0}])
def test_bad_weights_prior(options):
    with pm.Model(), pytest.raises(ValueError, match="(mode|variance) must be positive and finite"):
        sgp.weights_prior("w", 3, **options)


# -- predictions --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    with pm.Model() as model:
        ell, sigma = pm.LogNormal("ell"), pm.HalfNormal("sigma")
        gp = gp_with(pm.gp.cov.ExpQuad(3, ls=ell))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    return gp, model


POINT = {"ell": 0.8, "sigma": 0.3}


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"Xnew": X[:, :2]}, ValueError, "Xnew has 2 columns, the GP was built on 3"),
        ({"Xnew": X[0]}, ValueError, r"Xnew must have shape \(n, d\), got shape \(3,\)"),
        ({"Xnew": spoiled(X, (0, 1))}, ValueError, r"Xnew has 1 NaN .* column 1 \(1\)"),
        ({"Xnew": spoiled(X, (slice(None), 1))}, ValueError, r"column 1 \(20\): drop or impute those rows"),
        ({"point": {"ell": 1.0}}, ValueError, r"point lacks a value for sigma; it holds \['ell'\]"),
        ({"point": None}, ValueError, "point lacks a value for ell, sigma"),
        ({"given": [1]}, TypeError, "given must be a dictionary, got list"),
        ({"given": {"x": X}}, ValueError, r"given has unknown keys \['x'\]; it takes"),
        ({"given": {"X": X, "y": Y[:3], "sigma": 1.0}}, ValueError, "y has 3 values, but X has 20"),
    ],
)
def test_bad_predictions(fitted, kwargs, error, match):
    gp, model = fitted
    with pytest.raises(error, match=match):
        gp.predict(**{"Xnew": X, "point": POINT, "model": model, **kwargs})


@pytest.mark.parametrize("call", ["predict", "conditional", "predict_posterior", "check"])
def test_before_any_likelihood(call):
    gp = gp_with()
    arguments = {"predict": (X,), "conditional": ("f", X), "predict_posterior": (X, None), "check": ()}[
        call
    ]
    with pm.Model(), pytest.raises(ValueError, match="call marginal_likelihood"):
        getattr(gp, call)(*arguments)


def test_posterior_without_a_variable(fitted):
    gp, model = fitted
    posterior = xr.Dataset({"ell": (("chain", "draw"), np.ones((1, 2)))})
    with pytest.raises(ValueError, match=r"the posterior has no sigma; it holds \['ell'\]"):
        gp.predict_posterior(X, posterior, model=model)


def test_inputs_beyond_the_grid_warn_and_say_how_far(fitted):
    gp, model = fitted
    low, high = X[:, 1].min(), X[:, 1].max()
    far = X.copy()
    far[2, 1] = high + 0.5 * (high - low)
    with pytest.warns(UserWarning, match=r"column 1 reaches .* beyond the grid, 50% of its width"):
        gp.predict(far, point=POINT, diag=True, model=model)
    near = X.copy()
    near[2, 1] = high + 0.02 * (high - low)
    gp.predict(near, point=POINT, diag=True, model=model)  # warnings are errors here


def test_gps_that_cannot_be_added():
    gp = gp_with()
    with pytest.raises(TypeError, match="cannot add GPs with approx 'DTC', 'VFE'"):
        gp_with(approx="VFE") + gp_with(approx="DTC")
    with pytest.raises(TypeError, match="cannot add GriefGP and"):
        gp + pm.gp.Marginal(cov_func=COV)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("rows", [20, 60])
@pytest.mark.parametrize("name", ["GriefGP", "SKIPMarginal", "CholQRMarginal", "ExactMarginal"])
def test_numba_refuses_inputs_and_targets_of_different_lengths(name, rows):
    """Machine code cut the targets off, or read beyond them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    with pm.Model() as model:
        inputs, y = pm.Data("X", X[:40]), pm.Data("observed", X[:40, 0])
        options = {"n_inducing": 8} if name == "CholQRMarginal" else {}
        options |= {"grid": 5, "rank": 10} if name == "GriefGP" else {}
        gp = getattr(sgp, name)(cov_func=pm.gp.cov.ExpQuad(2, ls=[0.5, 0.6]), **options)
        gp.marginal_likelihood("y", X=inputs, y=y, sigma=pm.HalfNormal("sigma", 1))
    density = model.compile_logp(mode="NUMBA")
    point = {"sigma_log__": np.asarray(-1.0)}
    assert np.isfinite(density(point))
    with model:
        pm.set_data({"X": X[:rows]})
    with pytest.raises(ValueError, match="arrays differ in n|Incompatible"):
        density(point)


def test_rows_of_pandas_in_another_order_are_refused_wherever_they_go_in():
    frame, back = pd.DataFrame(X), pd.Series(Y, np.arange(20)[::-1])
    with pm.Model():
        sigma, ell = pm.HalfNormal("sigma"), pm.HalfNormal("ell")
        cov = pm.gp.cov.ExpQuad(3, ls=ell)
        soft = sgp.SoftKIMarginal(cov_func=cov, inducing=X[:5])
        soft.build(X)
        discrete = sgp.CholQRMarginal(cov_func=cov, n_inducing=4)
        grid, exact = sgp.KMCGMarginal(cov_func=cov, n_iter=4), sgp.ExactMarginal(cov_func=cov)
        for call in (
            lambda y: soft.summarize(frame, y, progressbar=False),
            lambda y: sgp.subset_map(soft, frame, y, sigma, progressbar=False),
            lambda y: sgp.fit_inducing(soft, frame, y, progressbar=False),
            lambda y: discrete.select_inducing(frame, y, sigma, progressbar=False),
            lambda y: grid.marginal_likelihood("y", frame, y, sigma),
            lambda y: exact.marginal_likelihood("y", frame, y.where(y != y.iloc[3]), sigma),
            lambda y: sgp.suggest(frame, y, cov_func=cov),
        ):
            with pytest.raises(ValueError, match=r"give y.loc\[X.index\]"):
                call(back)
        y, own = pd.Series(Y), pd.Series(np.full(20, 0.1), back.index)
        for call in (
            lambda s: sgp.subset_map(soft, frame, y, s, progressbar=False),
            lambda s: sgp.fit_inducing(soft, frame, y, sigma=s, progressbar=False),
            lambda s: discrete.select_inducing(frame, y, s, progressbar=False),
            lambda s: exact.marginal_likelihood("y", frame, y, s),
            lambda s: exact.marginal_likelihood("y", frame, y.where(y != y.iloc[3]), s),
        ):
            with pytest.raises(ValueError, match=r"give sigma.loc\[X.index\]"):
                call(own)
        for call in (
            lambda s: sgp.subset_map(soft, X, y, s, progressbar=False),
            lambda s: sgp.fit_inducing(soft, X, y, sigma=s, progressbar=False),
            lambda s: discrete.select_inducing(X, y, s, progressbar=False),
            lambda s: exact.marginal_likelihood("y", X, y.where(y != y.iloc[3]), s),
        ):
            with pytest.raises(ValueError, match=r"give sigma.loc\[y.index\]"):
                call(own)


def test_rows_of_xarray_in_another_order_are_refused():
    """Labels of their dimension are what an index is to pandas, and either may stand beside the other."""
    da = pytest.importorskip("dask.array")
    places = np.arange(20)
    table = xr.DataArray(X, {"place": places}, ("place", "column"))
    back = xr.DataArray(Y, {"place": places[::-1]}, ("place",))
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(3, ls=1.0)
        soft, exact = sgp.SoftKIMarginal(cov_func=cov, inducing=X[:5]), sgp.ExactMarginal(cov_func=cov)
        soft.build(X)
        for call in (
            lambda y: exact.marginal_likelihood("y", table, y, 0.1),
            lambda y: exact.marginal_likelihood("y", table, y.where(y != y[3]), 0.1),
            lambda y: soft.summarize(table, y, progressbar=False),
            lambda y: soft.summarize(table.copy(data=da.from_array(X)), y, progressbar=False),
            lambda y: exact.marginal_likelihood("y", table, pd.Series(y, y.place), 0.1),
        ):
            with pytest.raises(ValueError, match=r"give y.loc\[X.indexes\['place'\]\]"):
                call(back)
        with pytest.raises(ValueError, match=r"give y.loc\[X.index\]"):
            exact.marginal_likelihood("y", pd.DataFrame(X), back, 0.1)
        with pytest.raises(ValueError, match=r"give sigma.loc\[y.indexes\['place'\]\]"):
            exact.marginal_likelihood("y", X, back[::-1], abs(back))
        y = exact.marginal_likelihood("y", table, back.loc[table.indexes["place"]], abs(back[::-1]))
    np.testing.assert_array_equal(model.rvs_to_values[y].eval(), Y[::-1])
