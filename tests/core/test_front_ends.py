"""Front ends at their edges: means, dims, copies of a model, sums, shapes of posteriors."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from compared import draw_many
from numpy.testing import assert_allclose
from scipy import stats

import pymc_scalable_gp as sgp

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (30, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(30)
XNEW = RNG.uniform(-0.7, 0.7, (5, 2))
FAST = {"mode": "FAST_COMPILE"}
pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
COV = 2.0 * pm.gp.cov.ExpQuad(2, ls=0.7)


def grief(**options):
    return sgp.GriefGP(**{"cov_func": COV, "grid": 5, "rank": 12, **options})


def fitted(**options):
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        gp = grief(cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ell", 3, 3)), **options)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    return gp, model


POINT = {"ell": 0.8, "sigma": 0.2}


# -- means ------------------------------------------------------------------------------------------


def test_a_column_of_means_does_not_broadcast():
    """`pm.gp.mean.Linear` with scalar coefficients of one column returns (n, 1)."""
    x = X[:, :1]
    with pm.Model() as model:
        slope = pm.Normal("slope")
        gp = sgp.GriefGP(
            cov_func=pm.gp.cov.ExpQuad(1, ls=0.7), mean_func=pm.gp.mean.Linear(coeffs=slope),
            grid=8, rank=8,
        )  # fmt: skip
        gp.marginal_likelihood("y", X=x, y=Y, sigma=0.3)
        exact = pm.gp.Marginal(
            cov_func=pm.gp.cov.ExpQuad(1, ls=0.7), mean_func=pm.gp.mean.Linear(coeffs=slope)
        )
        exact.marginal_likelihood("z", X=x, y=Y, sigma=0.3)
        point = {"slope": 1.7}
        mean, var = gp.predict(XNEW[:, :1], point)
        expected, cov = exact.predict(XNEW[:, :1], point)
        idata = xr.Dataset({"slope": (("chain", "draw"), [[1.7, 1.7]])})
        mixed = gp.predict_posterior(XNEW[:, :1], idata, progressbar=False)
    assert mean.shape == (5,)
    assert var.shape == (5, 5)
    assert_allclose(mean, expected, atol=2e-3)
    assert_allclose(np.diag(var), np.diag(cov), atol=2e-3)
    assert_allclose(mixed["mean"], mean)
    values = [v for v in model.compile_logp(sum=False, **FAST)({"slope": 1.7})]
    assert_allclose(values[1], values[2], atol=0.5)


def test_a_column_in_a_sum_or_product_of_means():
    line, level, x = pm.gp.mean.Linear(coeffs=2.0), pm.gp.mean.Constant(3.0), X[:, :1]
    for mean_func, values in ((line + level, 2.0 * x + 3.0), (level * (line + line), 12.0 * x)):
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7), mean_func=mean_func)
        with pm.Model():
            gp.marginal_likelihood("y", X=x, y=values[:, 0], sigma=0.3)
            mean, _ = gp.predict(x[:4], {}, diag=True)
        assert_allclose(mean, values[:4, 0])


def test_a_mean_of_many_columns_is_refused():
    class Two(pm.gp.mean.Mean):
        def __call__(self, X):
            return X[:, :2] @ np.eye(2)

    with pm.Model(), pytest.raises(ValueError, match="mean_func must give one value per row"):
        grief(mean_func=Two()).marginal_likelihood("y", X=X, y=Y, sigma=0.3)


def test_a_mean_of_certain_rows_is_of_those_alone():
    """Effects of a covariate that a mean knows by itself are right at the likelihood's rows alone."""
    covariate = np.linspace(0.0, 3.0, len(X))

    class Effects(pm.gp.mean.Mean):
        def __init__(self, covariate):
            super().__init__()
            self.covariate = covariate

        def __call__(self, X):
            return 2.0 * self.covariate

    for known in (np.asarray, lambda values: pm.Data("covariate", values)):
        with pm.Model():
            mean = Effects(known(covariate))
            gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), mean_func=mean)
            gp.marginal_likelihood("y", X=X, y=Y + 2.0 * covariate, sigma=0.3)
            found, _ = gp.predict(X, {}, diag=True)
            for new in (X[::-1], X[:1] + 0.1):
                with pytest.raises(ValueError, match=r"gives 30 values .* it must follow from X"):
                    gp.predict(new, {}, diag=True)
            with pytest.raises(ValueError, match="it must follow from X"):
                gp.conditional("f", X[:3])
        with pm.Model():
            plain = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7))
            plain.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
            assert_allclose(found - 2.0 * covariate, plain.predict(X, {}, diag=True)[0], atol=1e-9)


def test_a_mean_of_certain_rows_goes_on_with_those_that_replaced_them():
    values = np.linspace(0.0, 3.0, len(X))
    found = []
    for covariate in (values, 0.0 * values):
        with pm.Model():
            inputs, own, targets = pm.Data("X", X), pm.Data("own", covariate), pm.Data("Y", Y + covariate)
            gp = sgp.ExactMarginal(cov_func=COV, mean_func=pm.gp.mean.Constant(own))
            gp.marginal_likelihood("y", X=inputs, y=targets, sigma=0.3)
            pm.set_data({"X": X[::-1], "own": covariate[::-1], "Y": (Y + covariate)[::-1]})
            found.append(gp.predict(X[::-1], {}, diag=True)[0] - covariate[::-1])
    assert_allclose(*found, atol=1e-9)


def test_neighbors_take_a_mean_of_certain_rows():
    """From 300 rows on they go by the mode on some of them, where that mean has no values."""
    x, covariate = np.linspace(0.0, 9.0, 300)[:, None], np.cos(np.arange(300.0))
    logp = []
    for kind, options in (
        (sgp.VecchiaMarginal, {"n_inducing": 30, "neighbors": 30}),
        (sgp.ExactMarginal, {}),
    ):
        with pm.Model() as model:
            cov = pm.gp.cov.Matern12(1, ls=pm.HalfNormal("ell"))
            gp = kind(cov_func=cov, mean_func=pm.gp.mean.Constant(covariate), **options)
            gp.marginal_likelihood("y", X=x, y=covariate, sigma=0.3)
        logp.append(model.compile_logp(**FAST)({"ell_log__": 0.0}))
    assert_allclose(logp[0], logp[1], rtol=1e-3)


# -- models and their copies ------------------------------------------------------------------------


def test_predictions_in_a_copy_are_refused():
    gp, model = fitted()
    for copied in (pm.do(model, {"sigma": 0.3}), pm.observe(model, {"ell": 0.5}), model.copy()):
        with pytest.raises(ValueError, match=r"depends on ell.* of another model"):
            gp.predict(XNEW, POINT, model=copied)
    one, two = (gp.predict(XNEW, POINT, model=model)[0] for _ in range(2))
    assert_allclose(one, two)


def test_repr():
    gp, _ = fitted()
    text = repr(gp)
    for part in ("GriefGP(", "ExpQuad(2)", "approx='FITC'", "grid=5", "rank=12", "rank 12", "full"):
        assert part in text
    assert "not built" in repr(grief())


# -- dims -------------------------------------------------------------------------------------------


def test_dims_of_another_length():
    with pm.Model(coords={"obs": range(29), "new": range(4)}):
        with pytest.raises(ValueError, match="dims='obs' has length 29, but X has 30 rows"):
            grief().marginal_likelihood("y", X=X, y=Y, sigma=0.3, dims="obs")
        with pytest.raises(ValueError, match="dims='obs' has length 29, but X has 30 rows"):
            grief().marginal_likelihood("y", X=X, y=Y, likelihood=pm.Normal.dist, dims="obs")
        with pytest.raises(ValueError, match="length 29"):
            grief().prior("f", X, dims="obs")
        gp = grief()
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        with pytest.raises(ValueError, match="length 4, but Xnew has 5"):
            gp.conditional("g", XNEW, dims="new")
        with pytest.raises(ValueError, match="one dimension"):
            gp.conditional("g", XNEW, dims=("new", "obs"))


# -- sums -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sums_of_latent_gps():
    """Every pair of latent classes: the density is that of the parts' features side by side."""
    makers = [
        lambda ls: sgp.SKIPLatent(cov_func=pm.gp.cov.ExpQuad(2, ls=ls), grid_size=30, rank=4),
        lambda ls: sgp.SoftKILatent(cov_func=pm.gp.cov.ExpQuad(2, ls=ls), inducing=X[:7]),
        lambda ls: sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=ls), grid=4, rank=9),
    ]
    for one in makers:
        for two in makers:
            with pm.Model() as model:
                first, second = one(0.7), two(pm.InverseGamma("ell", 3, 3))
                total = first + second
                f = total.prior("f", X)
                first.conditional("first", XNEW, given={"gp": total}, jitter=0.0)
                second.conditional("second", XNEW, given={"gp": total}, jitter=0.0)
            coef, ell = RNG.standard_normal(total.rank), 0.9
            inputs = [model["f_coeffs"], model["ell"]]
            phi = [gp.features(X) for gp in (first, second)]
            found, left, right = model.compile_fn([f, *phi], inputs=inputs, point_fn=False, **FAST)(
                coef, ell
            )
            assert_allclose(found, np.hstack([left, right]) @ coef, atol=1e-10)
            point = {"f_coeffs": coef, "ell": ell}
            mean = total.predict(XNEW, point, model=model)[0]
            parts = [gp.predict(XNEW, point, given={"gp": total}, model=model)[0] for gp in (first, second)]
            assert_allclose(mean, sum(parts), atol=1e-10)


def test_sums_take_the_approximation_that_is_given():
    assert (grief(approx="DTC") + grief()).approx == "DTC"
    assert (grief() + grief()).approx == "FITC"
    with pytest.raises(TypeError, match="cannot add GPs with approx 'DTC', 'FITC'"):
        grief(approx="DTC") + grief(approx="FITC")
    with pytest.raises(TypeError, match="cannot add GriefGP and int"):
        grief() + 1
    with pytest.raises(TypeError, match="cannot add SKIPLatent and CholQRMarginal"):
        sgp.SKIPLatent(cov_func=COV) + sgp.CholQRMarginal(cov_func=COV)


def test_variance_of_a_sum_counts_what_each_part_misses():
    with pm.Model() as model:
        one, two = grief(rank=3), grief(cov_func=pm.gp.cov.ExpQuad(2, ls=0.3), rank=4)
        total = one + two
        total.marginal_likelihood("y", X=X, y=Y, sigma=5e3)  # the data say nothing
        var = total.predict(XNEW, {}, diag=True)[1]
    assert_allclose(var, 3.0, rtol=1e-5)
    del model


# -- given= -----------------------------------------------------------------------------------------


def test_given_before_a_likelihood():
    """A rotated basis goes with "DTC", here too."""
    with pm.Model():
        rotated, plain = grief(rotate=True), grief(approx="DTC")
        given = {"X": X, "y": Y, "sigma": 0.3}
        expected = plain.predict(XNEW, {}, given=given)
        assert_allclose(rotated.predict(XNEW, {}, given=given)[0], expected[0], atol=1e-6)


# -- posteriors of every shape ----------------------------------------------------------------------


def posterior():
    rng = np.random.default_rng(3)
    return xr.Dataset({
        name: (("chain", "draw"), value * rng.uniform(0.9, 1.1, (2, 3)))
        for name, value in POINT.items()
    })  # fmt: skip


def test_posteriors_of_every_shape():
    gp, model = fitted()
    options = {"model": model, "progressbar": False}
    whole = posterior()
    expected = gp.predict_posterior(XNEW, whole, **options)
    stacked = whole.stack(sample=("chain", "draw"))
    extracted = az.extract(xr.DataTree.from_dict({"posterior": whole}))
    mixed = whole.assign(ell=whole["ell"].transpose("draw", "chain"))  # draws still belong together
    for shape in (whole.transpose("draw", "chain"), mixed, stacked, extracted):
        found = gp.predict_posterior(XNEW, shape, **options)
        assert_allclose(found["mean"], expected["mean"])
        assert_allclose(found["sd"], expected["sd"])
    single = gp.predict_posterior(XNEW, whole.isel(chain=1), **options)
    kept = gp.predict_posterior(XNEW, whole.isel(chain=[1]), **options)
    assert_allclose(single["mean"], kept["mean"])
    with pytest.raises(TypeError, match="idata must be"):
        gp.predict_posterior(XNEW, 3, **options)
    with pytest.raises(ValueError, match="no dimension chain, draw or sample"):
        gp.predict_posterior(XNEW, whole.isel(chain=0, draw=0), **options)


@pytest.mark.parametrize("rotate", [pytest.param(False, marks=pytest.mark.slow), True])
def test_samples_of_the_function(rotate):
    if rotate:
        with pm.Model() as model:
            gp = grief(rotate=True)
            gp.marginal_likelihood("y", X=X, y=Y, sigma=pm.HalfNormal("sigma", 1))
        draws = xr.Dataset({"sigma": (("chain", "draw"), np.full((2, 2000), 0.2))})
    else:
        gp, model = fitted()
        draws = xr.Dataset({name: (("chain", "draw"), np.full((2, 2000), v)) for name, v in POINT.items()})
    found = gp.predict_posterior(
        XNEW, draws, draws=True, pred_noise=True, model=model, progressbar=False, random_seed=1
    )
    assert found["f"].dims == ("chain", "draw", "obs")
    assert found["f"].shape == (2, 2000, 5)
    point = {name: float(v[0, 0]) for name, v in draws.items()}
    mean, cov = gp.predict(XNEW, point, pred_noise=True, model=model)
    sd = np.sqrt(np.diag(cov))
    f = found["f"].values.reshape(-1, 5)
    assert_allclose((f.mean(axis=0) - mean) / sd, 0.0, atol=0.07)  # 4.4 standard errors
    assert_allclose(np.cov(f.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.1)
    again = gp.predict_posterior(
        XNEW, draws, draws=True, num_samples=7, model=model, progressbar=False, random_seed=1
    )
    assert again["f"].shape == (1, 7, 5)


def test_no_new_rows():
    gp, model = fitted()
    none = np.empty((0, 2))
    mean, cov = gp.predict(none, POINT, model=model)
    assert mean.shape == (0,)
    assert cov.shape == (0, 0)
    assert gp.predict(none, POINT, diag=True, model=model)[1].shape == (0,)
    found = gp.predict_posterior(none, posterior(), draws=True, model=model, progressbar=False)
    assert found["mean"].shape == (0,)
    assert found["f"].shape == (2, 3, 0)


# -- inputs beyond the range that the GP was built on -------------------------------------------------

LATENT = {
    "GriefGP": lambda **k: sgp.GriefGP(grid=8, rank=30, **k),
    "SKIP": lambda **k: sgp.SKIPLatent(grid_size=30, rank=6, **k),
    "SoftKI": lambda **k: sgp.SoftKILatent(inducing=X[:9], **k),
}
MARGINAL = {
    "GriefGP": lambda **k: sgp.GriefGP(approx="DTC", grid=8, rank=30, **k),
    "CholQR": lambda **k: sgp.CholQRMarginal(approx="DTC", n_inducing=9, **k),
    "SKIP": lambda **k: sgp.SKIPMarginal(approx="DTC", grid_size=30, rank=6, **k),
}


@pytest.mark.parametrize("method", LATENT)
def test_a_latent_function_beyond_its_range_is_refused(method):
    with pm.Model() as model:
        data = pm.Data("X", X)
        gp = LATENT[method](cov_func=pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ell", 3, 3)))
        f = gp.prior("f", data)
    pm.set_data({"X": 0.9 * X[:11]}, model=model)
    assert pm.draw(f, random_seed=1, **FAST).shape == (11,)
    pm.set_data({"X": X + 40.0}, model=model)
    with pytest.raises(ValueError, match=r"beyond the range .* gp.conditional"):
        pm.draw(f, random_seed=1, **FAST)


@pytest.mark.parametrize("free", [True, False])  # or with a kernel that is fixed: summarised
@pytest.mark.parametrize("method", MARGINAL)
def test_a_marginal_without_correction_beyond_its_range_is_refused(method, free):
    with pm.Model() as model:
        data, sigma = pm.Data("X", X), pm.HalfNormal("sigma")
        ell = pm.InverseGamma("ell", 3, 3) if free else 0.7
        gp = MARGINAL[method](cov_func=pm.gp.cov.ExpQuad(2, ls=ell))
        y = gp.marginal_likelihood("y", X=data, y=pm.Data("y_data", Y), sigma=sigma)
        point = {"sigma": 0.3} | ({"ell": 0.7} if free else {})
    pm.set_data({"X": X + 40.0}, model=model)
    for ask in (
        lambda: pm.draw(y, random_seed=1, **FAST),
        lambda: model.compile_logp(**FAST)(model.initial_point()),
        lambda: gp.predict(X, point, model=model),
    ):
        with pytest.raises(ValueError, match="beyond the range"):
            ask()


@pytest.mark.parametrize("method", ["CholQR", "SoftKI"])
def test_a_column_that_the_kernel_does_not_look_at_has_no_range(method):
    """As years have none that the mean alone looks at."""
    soft = {"SoftKI": lambda **k: sgp.SoftKIMarginal(approx="DTC", inducing=X[:9], **k)}
    gp = (MARGINAL | soft)[method](cov_func=pm.gp.cov.ExpQuad(2, ls=0.7, active_dims=[0]))
    gp.build(X)
    with pm.Model() as model:
        data = pm.Data("X", X + np.array([0.0, 40.0]))
        gp.marginal_likelihood("y", X=data, y=Y, sigma=0.3)
    first = model.compile_logp(**FAST)({})
    pm.set_data({"X": X + np.array([0.0, 80.0])}, model=model)
    assert_allclose(model.compile_logp(**FAST)({}), first, rtol=1e-12)


def test_a_diagonal_correction_needs_no_range():
    with pm.Model() as model:
        data = pm.Data("X", X)
        gp = grief(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7))
        y = gp.marginal_likelihood("y", X=data, y=Y, sigma=0.3)
    pm.set_data({"X": X + 40.0}, model=model)
    draws = draw_many(y, 400, 1)
    assert_allclose(draws.var(), 1.09, rtol=0.05)


# -- what is added to a conditional ------------------------------------------------------------------


@pytest.mark.parametrize("pred_noise", [False, True])
def test_noise_and_jitter_of_the_conditional(pred_noise):
    """The conditional's density is the dense normal's of `predict`, with the jitter given."""
    with pm.Model() as model:
        gp = grief()
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        f = gp.conditional("f", XNEW, pred_noise=pred_noise, jitter=0.05)
        mean, cov = gp.predict(XNEW, {}, pred_noise=pred_noise)
    value = RNG.standard_normal(5)
    found = model.compile_logp(vars=[f], **FAST)({"f": value})
    expected = stats.multivariate_normal(mean, cov + 0.05 * np.eye(5)).logpdf(value)
    assert_allclose(found, expected, rtol=1e-10)
