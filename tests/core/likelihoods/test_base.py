"""What a GP is conditioned on: nothing is frozen that can change, nothing changes that was made."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.testing import check_marginal_logp

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (40, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(40)
XNEW = RNG.uniform(-0.7, 0.7, (6, 2))
FAST = {"mode": "FAST_COMPILE"}
pytestmark = pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
COV = 2.0 * pm.gp.cov.ExpQuad(2, ls=0.7)

# Every kind of likelihood that needs no rows, and those that do.
MARGINAL = {
    "GriefGP": lambda **k: sgp.GriefGP(approx="DTC", grid=5, rank=12, **k),
    "GriefGP, FITC": lambda **k: sgp.GriefGP(grid=5, rank=12, **k),
    "GriefGP, rotated": lambda **k: sgp.GriefGP(rotate=True, grid=5, rank=12, **k),
    "SoftKI": lambda **k: sgp.SoftKIMarginal(inducing=X[:9], **k),
    "CholQR": lambda **k: sgp.CholQRMarginal(approx="DTC", n_inducing=9, **k),
    "SKIP": lambda **k: sgp.SKIPMarginal(approx="DTC", grid_size=30, rank=6, **k),
    "SKIP, products": lambda **k: sgp.SKIPMarginal(grid_size=30, rank=6, n_iter=10, preconditioner=10, **k),
    "KMCG": lambda **k: sgp.KMCGMarginal(n_iter=12, probes=0, **k),
    "KMCG, subset": lambda **k: sgp.KMCGMarginal(n_iter=9, inducing=20, probes=0, **k),
}
NO_GRADIENT = ("GriefGP, rotated", "SKIP, products")
LATENT = {
    "GriefGP": lambda **k: sgp.GriefGP(grid=5, rank=12, **k),
    "SKIP": lambda **k: sgp.SKIPLatent(grid_size=30, rank=5, **k),
    "SoftKI": lambda **k: sgp.SoftKILatent(inducing=X[:9], **k),
}


def logp(model):
    return float(model.compile_logp(**FAST)(model.initial_point(0)))


# -- what may change is not frozen ----------------------------------------------------------------


@pytest.mark.parametrize("method", often(MARGINAL, "GriefGP, FITC", "CholQR", "SKIP"))
def test_data_inside_the_mean(method):
    """As if the model were built with the new value: in the compiled density, and compiled anew."""

    def built(shift):
        with pm.Model() as model:
            gp = MARGINAL[method](cov_func=COV, mean_func=pm.gp.mean.Constant(shift()))
            if "CholQR" in method:
                gp.build(X, indices=np.arange(9))
            gp.marginal_likelihood("y", X=X, y=Y, sigma=pm.HalfNormal("sigma", 1))
        return model

    model, expected = built(lambda: pm.Data("shift", 0.0)), built(lambda: 1.5)
    compiled = model.compile_logp(**FAST)
    before = float(compiled(model.initial_point(0)))
    pm.set_data({"shift": 1.5}, model=model)
    assert_allclose(compiled(model.initial_point(0)), logp(expected), rtol=1e-9)
    assert_allclose(logp(model), logp(expected), rtol=1e-9)
    assert abs(before - logp(model)) > 1.0


@pytest.mark.parametrize(
    "method", often([m for m in MARGINAL if "rotated" not in m], "GriefGP", "SoftKI", "CholQR")
)
def test_data_inside_the_kernel(method):
    with pm.Model() as model:
        ls = pm.Data("ls", 0.7)
        gp = MARGINAL[method](cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=ls))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=pm.HalfNormal("sigma", 1))
    before = logp(model)
    pm.set_data({"ls": 1.1}, model=model)
    assert abs(logp(model) - before) > 0.1
    if "products" not in method:
        check_marginal_logp(gp, model, **FAST)


def test_data_inside_the_temperature():
    with pm.Model() as model:
        gp = sgp.SoftKIMarginal(cov_func=COV, inducing=X[:9], temperature=pm.Data("T", 1.0))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=pm.HalfNormal("sigma", 1))
    assert gp.likelihood_path == "full"
    before = logp(model)
    pm.set_data({"T": 0.4}, model=model)
    assert abs(logp(model) - before) > 0.1
    check_marginal_logp(gp, model, **FAST)


@pytest.mark.parametrize("method", LATENT)
def test_data_inside_a_latent_function(method):
    with pm.Model() as model:
        ls = pm.Data("ls", 0.7)
        gp = LATENT[method](cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=ls))
        f = gp.prior("f", X)
    point = {"f_coeffs": RNG.standard_normal(gp.rank)}
    function = model.compile_fn(f, inputs=[model["f_coeffs"]], point_fn=False, **FAST)
    before = function(point["f_coeffs"])
    pm.set_data({"ls": 1.1}, model=model)
    phi = model.compile_fn(gp.features(X), inputs=[], point_fn=False, **FAST)()
    assert_allclose(function(point["f_coeffs"]), phi @ point["f_coeffs"], atol=1e-10)
    assert np.abs(function(point["f_coeffs"]) - before).max() > 0.01


@pytest.mark.parametrize("method", LATENT)
def test_replaced_inputs_of_a_latent_function(method):
    """The kernel has no parameter: only that X may change keeps its features from being numbers."""
    with pm.Model() as model:
        gp = LATENT[method](cov_func=COV)
        f = gp.prior("f", pm.Data("X", X))
    coef = RNG.standard_normal(gp.rank)
    function = model.compile_fn(f, inputs=[model["f_coeffs"]], point_fn=False, **FAST)
    for rows in (X, 0.9 * X[:7]):
        pm.set_data({"X": rows}, model=model)
        phi = model.compile_fn(gp.features(rows), inputs=[], point_fn=False, **FAST)()
        assert_allclose(function(coef), phi @ coef, atol=1e-10)


@pytest.mark.parametrize("method", LATENT)
def test_a_latent_function_of_inputs_with_measurement_error(method):
    with pm.Model() as model:
        x = pm.Normal("x", X, 0.1, shape=X.shape)
        gp = LATENT[method](cov_func=COV)
        f = gp.prior("f", x)
    coef, rows = RNG.standard_normal(gp.rank), 0.9 * X
    function = model.compile_fn(f, inputs=[x, model["f_coeffs"]], point_fn=False, **FAST)
    phi = model.compile_fn(gp.features(rows), inputs=[], point_fn=False, **FAST)()
    assert_allclose(function(rows, coef), phi @ coef, atol=1e-10)


def test_inputs_with_measurement_error_are_not_frozen():
    with pm.Model() as model:
        x = pm.Normal("x", X, 0.1, shape=X.shape)
        gp = sgp.GriefGP(cov_func=COV, approx="DTC", grid=5, rank=12)
        gp.marginal_likelihood("y", X=x, y=Y, sigma=0.3)
    assert gp.likelihood_path == "full"
    check_marginal_logp(gp, model, **FAST)


# -- data that were replaced ----------------------------------------------------------------------


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("name", ["X", "y_data"])
def test_every_row_is_guarded(name, rotate):
    """One row in a thousand is enough, in the compiled density and in predictions compiled before."""
    rng = np.random.default_rng(1)
    rows = {"X": rng.uniform(-1.0, 1.0, (1000, 2)), "y_data": rng.standard_normal(1000)}
    with pm.Model() as model:
        data = {key: pm.Data(key, value) for key, value in rows.items()}
        gp = sgp.GriefGP(cov_func=COV, grid=5, rank=12, approx="DTC", rotate=rotate)
        sigma = pm.HalfNormal("sigma", 1)
        gp.marginal_likelihood("y", X=data["X"], y=data["y_data"], sigma=sigma)
    compiled = model.compile_logp(**FAST)
    assert np.isfinite(compiled(model.initial_point(0)))
    changed = rows[name].copy()
    changed[501] += 0.01
    pm.set_data({name: changed}, model=model)
    with pytest.raises(ValueError, match="were replaced after it was compiled"):
        compiled(model.initial_point(0))
    after = logp(model)
    pm.set_data({name: rows[name]}, model=model)
    replaced = rows | {name: changed}
    with pm.Model() as expected:
        sigma = pm.HalfNormal("sigma", 1)
        phi = gp.features(replaced["X"])
        sgp.LowRankNormal("y", 0.0, phi, sigma, observed=replaced["y_data"])
    assert_allclose(after, logp(expected), rtol=1e-9)


def _replaceable():
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=COV, grid=5, rank=12, approx="DTC")
        inputs, targets = pm.Data("X", X.copy()), pm.Data("y_data", Y.copy())
        gp.marginal_likelihood("y", X=inputs, y=targets, sigma=pm.HalfNormal("sigma", 1))
    return model


@pytest.mark.parametrize("name", ["X", "y_data"])
def test_data_changed_in_place(name):
    """Nothing is told of it: a new function summarises again, and one compiled before refuses."""
    model, other = _replaceable(), _replaceable()
    values, point = model[name].get_value(borrow=True), model.initial_point(0)
    values[3] *= 0.9
    compiled = model.compile_logp(**FAST)
    pm.set_data({name: values}, model=other)
    assert_allclose(compiled(point), other.compile_logp(**FAST)(point), rtol=1e-12)
    values[3] *= 0.9
    with pytest.raises(ValueError, match="were replaced"):
        compiled(point)


@pytest.mark.parametrize("method", ["SoftKI", "GriefGP, rotated", "GriefGP, FITC"])
@pytest.mark.parametrize("at", ["X", "y_data"])
def test_inputs_and_targets_of_different_lengths(at, method):
    """Fewer or more of one of them: no density and no prediction pairs them; draws at new rows go on."""
    whole = {"X": X, "y_data": Y}
    with pm.Model() as model:
        gp = MARGINAL[method](cov_func=COV)
        inputs, targets = pm.Data("X", X), pm.Data("y_data", Y)
        y = gp.marginal_likelihood("y", X=inputs, y=targets, sigma=pm.HalfNormal("sigma", 1))
    draws = az.from_dict({"posterior": {"sigma": np.full((1, 30), 0.3)}})
    before = logp(model)
    for other in (whole[at][:11], np.concatenate([whole[at], whole[at][:3]])):
        pm.set_data({at: other}, model=model)
        words = "rows and y .* values since pm.set_data: replace both"
        for ask in (
            lambda: gp.predict(XNEW, {"sigma": 0.3}),
            lambda: gp.predict_posterior(XNEW, draws, progressbar=False),
            lambda: gp.conditional("f", XNEW),
            lambda: gp.check({"sigma": 0.3}, progressbar=False),
            lambda: gp.loo(draws, progressbar=False),
        ):
            with model, pytest.raises(ValueError, match=words):
                ask()
        with pytest.raises(ValueError, match="broadcast" if "FITC" in method else words):
            logp(model)
        if at == "X":
            assert pm.draw(y, random_seed=1, **FAST).shape == (len(other),)
    pm.set_data(whole, model=model)
    assert_allclose(logp(model), before, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_parameters_that_overflow_give_nan():
    with pm.Model() as model:
        shift = pm.Flat("shift")
        gp = sgp.KMCGMarginal(cov_func=COV, mean_func=pm.gp.mean.Constant(shift), n_iter=12, probes=0)
        gp.marginal_likelihood("y", X=X, y=pm.Data("y_data", Y), sigma=0.3)
    compiled = model.compile_logp(**FAST)
    assert np.isfinite(compiled({"shift": 0.1}))
    for value in (1e200, np.inf, np.nan):
        assert not np.isfinite(compiled({"shift": value}))
    pm.set_data({"y_data": Y[::-1]}, model=model)
    compiled({"shift": 0.1})  # the basis follows the targets


# -- what was made stays ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [m for m in MARGINAL if "rotated" not in m])
def test_built_again_leaves_the_old_fit_as_it_was(method):
    with pm.Model() as model:
        gp = MARGINAL[method](cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=0.7))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        before = gp.predict(XNEW, {}, diag=True)
        other = X[::2] ** 3 - 0.2
        gp.build(other, Y[::2]) if "KMCG" in method else gp.build(other)
        compiled_again = gp.predict(XNEW, {}, diag=True, pred_noise=True)
    assert_allclose(gp.predict(XNEW, {}, diag=True, model=model), before)
    assert_allclose(compiled_again[0], before[0])
    assert_allclose(compiled_again[1], before[1] + 0.09)


# -- a conditional in a model that is sampled -------------------------------------------------------


@pytest.mark.parametrize(
    "method", often([m for m in MARGINAL if m not in NO_GRADIENT], "GriefGP, FITC", "SoftKI")
)
def test_the_conditional_has_a_gradient(method):
    """``pm.find_MAP`` and ``pm.sample`` work after ``gp.conditional`` in the same model."""
    with pm.Model() as model:
        ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
        gp = MARGINAL[method](cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=ell))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
        gp.conditional("f", XNEW)
    inputs = model.value_vars
    total = model.logp()
    names = [v.name for v in inputs]
    function = model.compile_fn([total, *pt.grad(total, inputs)], inputs=inputs, **FAST)
    rng = np.random.default_rng(2)
    point = model.initial_point(0) | {"f": gp.predict(XNEW, {"ell": 1.5, "sigma": 0.8}, model=model)[0]}
    direction = {name: rng.standard_normal(np.shape(point[name])) for name in names}
    h = 1e-5
    sides = [
        function({name: point[name] + sign * h * direction[name] for name in names})[0] for sign in (1, -1)
    ]
    slope = sum((g * direction[name]).sum() for g, name in zip(function(point)[1:], names, strict=True))
    assert_allclose((sides[0] - sides[1]) / (2 * h), slope, rtol=1e-4)


def test_products_have_no_gradient_rather_than_a_wrong_one():
    with pm.Model() as model:
        gp = MARGINAL["SKIP, products"](cov_func=pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ell", 3, 3)))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
        gp.conditional("f", XNEW)
    with pytest.raises(ValueError, match="no gradient: add gp.conditional after"):
        model.compile_dlogp(**FAST)


@pytest.mark.parametrize("method", LATENT)
def test_a_latent_conditional_has_a_gradient(method):
    with pm.Model() as model:
        gp = LATENT[method](cov_func=pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ell", 3, 3)))
        pm.Normal("y", gp.prior("f", X), 0.3, observed=Y)
        gp.conditional("g", XNEW)
    assert np.isfinite(model.compile_dlogp(**FAST)(model.initial_point(0))).all()
