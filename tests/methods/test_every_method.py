"""What the public contract promises of every method: add one by a line in METHODS."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from compared import draw_many
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.testing import check_feature_map, check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (30, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(30)
XNEW = RNG.uniform(-0.7, 0.7, (6, 2))
FAST = {"mode": "FAST_COMPILE"}

METHODS = {
    "GriefGP": lambda **k: sgp.GriefGP(grid=5, rank=12, **k),
    "SoftKI": lambda **k: sgp.SoftKIMarginal(inducing=9, **k),
    "KMCG": lambda **k: sgp.KMCGMarginal(n_iter=12, probes=0, **k),
    "KMCG, subset": lambda **k: sgp.KMCGMarginal(n_iter=9, inducing=20, probes=0, **k),
    "CholQR": lambda **k: sgp.CholQRMarginal(n_inducing=9, **k),
    "SKIP": lambda **k: sgp.SKIPMarginal(grid_size=30, rank=6, **k),
}
LATENT = {
    "SKIP": lambda **k: sgp.SKIPLatent(grid_size=30, rank=5, **k),
    "GriefGP": lambda **k: sgp.GriefGP(grid=5, rank=12, **k),
    "SoftKI": lambda **k: sgp.SoftKILatent(inducing=9, **k),
}
POINT = {"ell": 0.8, "sigma": 0.2}

# Most tests here call no method's own verbs: CholQR's points are the kernel's.
pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")

every = pytest.mark.parametrize("method", METHODS)


def build(method):
    """GP and model with data that can be replaced."""
    with pm.Model(coords={"row": range(30), "column": "ab"}) as model:
        ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
        gp = METHODS[method](cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=ell))
        data_X, data_y = pm.Data("X", X, dims=("row", "column")), pm.Data("y_data", Y, dims="row")
        gp.marginal_likelihood("y", X=data_X, y=data_y, sigma=sigma, dims="row")
    return gp, model


@pytest.fixture(scope="module", params=METHODS)
def fitted(request):
    return build(request.param)


def test_density_and_features(fitted):
    gp, model = fitted
    check_marginal_logp(gp, model, **FAST)
    check_feature_map(gp, X, point=POINT, model=model, tol=2e-6)


def test_conditional_predict_and_noise_agree(fitted):
    gp, model = fitted
    mean, cov = gp.predict(XNEW, POINT, model=model)
    assert_allclose(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > -1e-9
    assert_allclose(gp.predict(XNEW, POINT, diag=True, model=model)[1], np.diag(cov))
    noisy = gp.predict(XNEW, POINT, diag=True, pred_noise=True, model=model)[1]
    assert_allclose(noisy, np.diag(cov) + POINT["sigma"] ** 2)
    with model:
        gp.conditional("f", XNEW, jitter=0.0)
    draws = draw_many(pm.do(model, POINT)["f"], 4000, 1)
    sd = np.sqrt(np.diag(cov))
    assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=0.07)  # 4 standard errors
    assert_allclose(np.cov(draws.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.1)


def test_prior_predictive_has_the_low_rank_covariance(fitted):
    gp, model = fitted
    draws = draw_many(pm.do(model, POINT)["y"], 4000, 2)
    with model:
        phi = pt.as_tensor(gp.features(X))
    (phi,) = evaluate([phi], POINT, model)
    expected = (phi**2).sum(axis=1) + POINT["sigma"] ** 2
    if gp.approx in (None, "FITC"):
        expected = np.full(30, 2.0 + POINT["sigma"] ** 2)
    assert_allclose(draws.var(axis=0) / expected, 1.0, atol=0.1)  # 4.5 standard errors


def test_posterior_to_predictions(fitted):
    """idata in, Dataset out: the mixture over draws is the mean of the draws' predictions."""
    gp, model = fitted
    draws = [{"ell": 0.8, "sigma": 0.2}, {"ell": 1.1, "sigma": 0.3}]
    posterior = {k: np.array([[d[k] for d in draws]]) for k in POINT}
    idata = xr.Dataset({k: (("chain", "draw"), v) for k, v in posterior.items()})
    found = gp.predict_posterior(XNEW, idata, model=model, progressbar=False)
    each = [gp.predict(XNEW, d, diag=True, model=model) for d in draws]
    means = np.stack([m for m, _ in each])
    assert_allclose(found["mean"], means.mean(axis=0))
    spread = np.stack([v for _, v in each]).mean(axis=0) + means.var(axis=0)
    assert_allclose(found["sd"], np.sqrt(spread))


# A subset of the rows differs from all of them in features and predictions alone.
almost_every = pytest.mark.parametrize(
    "method", often(METHODS, *(m for m in METHODS if m != "KMCG, subset"))
)


@almost_every
@pytest.mark.filterwarnings("ignore:X was replaced by inputs beyond")
def test_other_data(method):
    """The density is the dense one of the new rows, in the model and in a copy of it."""
    gp, model = build(method)
    point, found = model.initial_point(0), []
    for used in (model, model.copy()):
        with used:
            new = {"X": X[:20] + 0.01, "y_data": Y[:20]}
            pm.set_data(new, coords={"row": range(20)})
        found.append(float(used.compile_logp(vars=[used["y"]], **FAST)(point)))
    (expected,) = check_marginal_logp(gp, model, points=[point], **FAST)
    assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.slow
@every
def test_numba(method):
    """What every sampler runs by default: the density and its gradient are those of Python.

    The Ops one by one are compared in ``tests/ops``, one model through every sampler in
    ``tests/core/test_samplers.py``: this is the matrix of the methods, which takes long to compile.
    """
    _, model = build(method)
    found = []
    for mode in ("FAST_COMPILE", "NUMBA"):
        function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
        function.set_extra_values({})
        found.append(function(np.array([0.2, -1.0])))
    assert_allclose(found[1][0], found[0][0], rtol=1e-10)
    assert_allclose(found[1][1], found[0][1], rtol=1e-8)


@pytest.mark.parametrize("method", often(METHODS, "GriefGP", "SKIP", "SoftKI"))
def test_sum_of_two(method):
    with pm.Model() as model:
        one = METHODS[method](cov_func=pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ell", 3, 3)))
        two = METHODS[method](cov_func=0.3 * pm.gp.cov.ExpQuad(2, ls=0.3))
        total = one + two
        total.marginal_likelihood("y", X=X, y=Y, sigma=0.2)
    check_marginal_logp(total, model, **FAST)
    point = {"ell": 0.8}
    parts = [gp.predict(XNEW, point, diag=True, given={"gp": total}, model=model)[0] for gp in (one, two)]
    assert_allclose(sum(parts), total.predict(XNEW, point, diag=True, model=model)[0], rtol=1e-8)


@almost_every
@pytest.mark.filterwarnings("ignore:rank=", "ignore:at 100% of the rows one of the 9 points")
def test_odd_shapes_of_data(method):
    """Duplicate rows, a constant column, a column too many for the rows."""
    cases = {
        "duplicates": np.repeat(X[:15], 2, axis=0),
        "constant": np.column_stack([X[:, 0], np.ones(30)]),
        "large numbers": 1e6 * X,
    }
    for name, rows in cases.items():
        with pm.Model() as model:
            cov = pm.gp.cov.ExpQuad(2, ls=0.7 * np.abs(rows).max())
            gp = METHODS[method](cov_func=cov)
            gp.marginal_likelihood("y", X=rows, y=Y, sigma=0.2)
        check_marginal_logp(gp, model, **FAST)
        mean, var = gp.predict(rows[:3], {}, diag=True, model=model)
        assert np.isfinite(mean).all(), name
        assert (var > 0).all(), name


@pytest.mark.parametrize("method", LATENT)
def test_latent(method):
    with pm.Model(coords={"row": range(30)}) as model:
        ell = pm.InverseGamma("ell", 3, 3)
        gp = LATENT[method](cov_func=pm.gp.cov.ExpQuad(2, ls=ell))
        f = gp.prior("f", X=X, dims="row")
        pm.Poisson("counts", pm.math.exp(f), observed=np.ones(30))
        gp.conditional("f_new", XNEW)
    gradient = model.compile_dlogp(**FAST)(model.initial_point(0))
    assert np.isfinite(gradient).all()
    assert len(gradient) == 1 + gp.rank + len(XNEW)
    drawn = pm.draw(model["f_new"], 3, random_seed=0, **FAST)
    assert drawn.shape == (3, 6)


@every
@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"X": X[:, 0]}, ValueError, r"reshape a single column, X\[:, None\] \(of a table X.to_frame"),
        ({"X": np.where(X > 0.9, np.nan, X)}, ValueError, "NaN or infinite values, in column"),
        ({"y": Y[:, None]}, ValueError, r"use y\[:, 0\]"),
        ({"y": Y[:7]}, ValueError, "y has 7 values, but X has 30 rows"),
        ({"sigma": 0.0}, ValueError, "sigma must be positive"),
        ({"sigma": np.ones(7)}, ValueError, "sigma has 7 values"),
    ],
)
def test_bad_data(method, change, error, match):
    gp = METHODS[method](cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
    with pm.Model(), pytest.raises(error, match=match):
        gp.marginal_likelihood("y", **({"X": X, "y": Y, "sigma": 0.2} | change))


@every
def test_bad_calls(method):
    gp = METHODS[method](cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
    with pytest.raises(ValueError, match="has no data yet"):
        gp.predict(X)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.2)
    with pytest.raises(ValueError, match="Xnew has 1 columns, the GP was built on 2"):
        gp.predict(X[:, :1], {}, model=model)
    if not method.startswith(("KMCG", "CholQR")):  # its features are made of the exact kernel everywhere
        with pytest.warns(UserWarning, match="lies outside"):
            gp.predict(X + 5.0, {}, model=model)
    with pytest.raises(ValueError, match="approx must be one of"):
        METHODS[method](cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), approx="SOR")
    with pytest.raises(TypeError, match="must be a pm.gp.cov kernel"):
        METHODS[method](cov_func=np.eye(2))
    with pytest.raises(ValueError, match="column 2, but X has 2 columns"):
        METHODS[method](cov_func=pm.gp.cov.ExpQuad(3, ls=1.0)).build(X)
    with pytest.raises(ValueError, match="WhiteNoise"):
        METHODS[method](cov_func=pm.gp.cov.ExpQuad(2, ls=1.0) + pm.gp.cov.WhiteNoise(0.1))
