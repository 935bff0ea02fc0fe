"""Marginal and latent front ends against dense linear algebra in the same features."""

import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from compared import dense_marginal, draw_many
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.likelihoods import predictor
from pymc_scalable_gp.testing import check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

FAST = {"mode": "FAST_COMPILE"}  # no Numba: these functions are called a few times
RNG = np.random.default_rng(7)
X = RNG.uniform(-1.0, 1.0, (30, 2))
Y = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(30)
XNEW = RNG.uniform(-0.9, 0.9, (6, 2))
POINT = {"ell": 0.7, "eta": 1.2, "sigma": 0.2, "slope": 0.4}
PART = {"ell": 0.7, "slope": 0.4}


def linear_mean(x):
    return POINT["slope"] * x.sum(axis=1) + 1.0


def build_model(X=X, y=Y, approx="FITC", sigma=None, coords=None, **kwargs):
    """Mean and kernel have parameters; few features, so that much of the variance is missed."""
    with pm.Model(coords=coords) as model:
        ell, eta = pm.LogNormal("ell"), pm.HalfNormal("eta")
        slope = pm.Normal("slope")
        noise = pm.HalfNormal("sigma") if sigma is None else sigma
        gp = sgp.GriefGP(
            mean_func=pm.gp.mean.Linear(coeffs=slope * np.ones(2), intercept=1.0),
            cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=ell),
            approx=approx,
            grid=5,
            rank=12,
        )
        gp.build(X, point=POINT)
        gp.marginal_likelihood("y", X=X, y=y, sigma=noise, **kwargs)
    return gp, model


def features(gp, model, X):
    return evaluate([gp.features(X)], POINT, model)[0]


def posterior(phi, variance, residual):
    """Mean and covariance of the coefficients."""
    inner = np.linalg.inv(np.eye(phi.shape[1]) + (phi.T / variance) @ phi)
    return inner @ phi.T @ (residual / variance), inner


def dense_prediction(gp, model, approx="FITC", noise=None, x=X, y=Y, new=XNEW):
    phi, phi_new = features(gp, model, x), features(gp, model, new)
    k = POINT["eta"] ** 2
    noise = POINT["sigma"] ** 2 if noise is None else noise
    variance = np.broadcast_to(noise, len(y)) + (approx == "FITC") * (k - (phi**2).sum(axis=1))
    mean, cov = posterior(phi, variance, y - linear_mean(x))
    missed = k - (phi_new**2).sum(axis=1)
    return linear_mean(new) + phi_new @ mean, phi_new @ cov @ phi_new.T + np.diag(missed)


@pytest.fixture(scope="module")
def fitc():
    return build_model()


# -- predict ------------------------------------------------------------------------------------


@pytest.mark.parametrize("approx", ["DTC", "FITC", "VFE"])
def test_predict_against_the_dense_posterior(approx):
    gp, model = build_model(approx=approx)
    mean, cov = dense_prediction(gp, model, approx)
    found_mean, found_cov = gp.predict(XNEW, point=POINT, model=model)
    assert isinstance(found_mean, np.ndarray)
    assert_allclose(found_mean, mean, rtol=1e-9)
    assert_allclose(found_cov, cov, rtol=1e-8, atol=1e-11)


def test_diag_pred_noise_and_the_model_context(fitc):
    gp, model = fitc
    with model:
        mean, cov = gp.predict(XNEW, point=POINT)
        same, var = gp.predict(XNEW, point=POINT, diag=True)
        _, noisy = gp.predict(XNEW, point=POINT, diag=True, pred_noise=True)
        _, noisy_cov = gp.predict(XNEW, point=POINT, pred_noise=True)
    assert_allclose(same, mean, rtol=1e-12)
    assert_allclose(var, np.diag(cov), rtol=1e-12)
    assert_allclose(noisy, var + POINT["sigma"] ** 2, rtol=1e-12)
    assert_allclose(noisy_cov, cov + POINT["sigma"] ** 2 * np.eye(6), rtol=1e-12, atol=1e-14)


def test_predictions_in_blocks_equal_those_in_one_piece(fitc, monkeypatch):
    gp, model = fitc
    whole = gp.predict(XNEW, point=POINT, diag=True, model=model)
    monkeypatch.setattr(predictor.blocks, "__defaults__", (4, *predictor.blocks.__defaults__[1:]))
    split = gp.predict(XNEW, point=POINT, diag=True, model=model)
    assert_allclose(split, whole, rtol=1e-13)


def test_a_second_prediction_uses_the_point_it_is_given(fitc):
    """The compiled function is kept; its values are not."""
    gp, model = fitc
    first = gp.predict(XNEW, point=POINT, diag=True, model=model)
    other = gp.predict(XNEW, point={**POINT, "sigma": 2.0}, diag=True, model=model)
    again = gp.predict(XNEW, point=POINT, diag=True, model=model)
    assert_allclose(first, again, rtol=0)
    assert (other[1] > first[1]).all()


def test_given_other_data(fitc):
    gp, model = fitc
    given = {"X": X[:10], "y": Y[:10] + 1.0, "sigma": 0.5}
    mean, cov = dense_prediction(gp, model, noise=0.25, x=X[:10], y=Y[:10] + 1.0)
    found = gp.predict(XNEW, point=POINT, given=given, model=model)
    assert_allclose(found[0], mean, rtol=1e-9)
    assert_allclose(found[1], cov, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"X": X[:10], "y": Y[:10]}, "lacks .*sigma.*: pass X, y and sigma together"),
        ({"sigma": 0.5}, "lacks .*'X', 'y'"),
        ({"X": X[:10], "f": Y[:10]}, "unknown keys .*'f'"),
    ],
)
def test_half_of_the_given_data_is_refused(fitc, given, words):
    gp, model = fitc
    with pytest.raises(ValueError, match=words):
        gp.predict(XNEW, point=POINT, given=given, model=model)


def test_given_before_any_likelihood():
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), grid=7, rank=49)
        mean, _ = gp.predict(XNEW, given={"X": X, "y": Y, "sigma": 0.2}, model=model)
    phi, new = gp.features(X).eval(), gp.features(XNEW).eval()
    coef, _ = posterior(phi, np.full(30, 0.04), Y)
    assert_allclose(mean, new @ coef, rtol=0.05, atol=0.02)  # FITC or DTC: nearly full rank


@pytest.mark.parametrize("far", [20.0, -1e3])
def test_far_from_the_data_the_prior_returns(fitc, far):
    gp, model = fitc
    where = np.full((3, 2), far)
    with pytest.warns(UserWarning, match="Xnew lies outside"):
        mean, var = gp.predict(where, point=POINT, diag=True, model=model)
    assert_allclose(mean, linear_mean(where), rtol=1e-9)
    assert_allclose(var, POINT["eta"] ** 2, rtol=1e-9)


def test_predict_takes_what_find_map_returns(fitc):
    """A dictionary, or the DataTree that PyMC is going to return by default."""
    gp, model = fitc
    drawn = {k: np.array(v)[None, None] for k, v in POINT.items()}
    tree = az.from_dict({"posterior": drawn})
    expected = gp.predict(XNEW, point=POINT, diag=True, model=model)
    assert_allclose(gp.predict(XNEW, point=tree, diag=True, model=model), expected, rtol=1e-14)
    transformed = {f"{k}_log__": np.log(v) for k, v in POINT.items() if k != "slope"}
    found = gp.predict(XNEW, point={**transformed, **POINT}, diag=True, model=model)
    assert_allclose(found, expected, rtol=1e-14)


def test_what_features_miss(fitc):
    gp, model = fitc
    phi = features(gp, model, X)
    share = 1.0 - (phi**2).sum(axis=1) / POINT["eta"] ** 2
    found = gp.check(POINT, model=model, progressbar=False)
    assert found.attrs["rank"] == 12
    assert found.attrs["missing_mean"] == pytest.approx(share.mean())
    assert_allclose(found.missing, share)
    assert_allclose(gp.check(POINT, X[:1], model=model, progressbar=False).missing, share[:1])


# -- predict_posterior --------------------------------------------------------------------------


def draws(count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "ell": rng.uniform(0.5, 1.0, (2, count)),
        "eta": rng.uniform(0.8, 1.5, (2, count)),
        "sigma": rng.uniform(0.1, 0.3, (2, count)),
        "slope": rng.normal(size=(2, count)),
    }


def test_predict_posterior_is_the_mixture_of_the_draws(fitc):
    gp, model = fitc
    sampled = draws(3)
    idata = az.from_dict({"posterior": sampled})
    points = [{k: v[c, i] for k, v in sampled.items()} for c in range(2) for i in range(3)]
    each = [gp.predict(XNEW, p, diag=True, pred_noise=True, model=model) for p in points]
    means, variances = np.array([m for m, _ in each]), np.array([v for _, v in each])
    found = gp.predict_posterior(XNEW, idata, pred_noise=True, progressbar=False, model=model)
    assert found["mean"].dims == found["sd"].dims == ("obs",)
    assert_allclose(found["mean"], means.mean(axis=0), rtol=1e-10)
    assert_allclose(found["sd"], np.sqrt(variances.mean(axis=0) + means.var(axis=0)), rtol=1e-10)
    dataset = idata["posterior"].to_dataset()
    same = gp.predict_posterior(XNEW, dataset, pred_noise=True, progressbar=False, model=model)
    assert_allclose(same["sd"], found["sd"], rtol=1e-14)


def test_predict_posterior_of_some_draws(fitc):
    gp, model = fitc
    idata = az.from_dict({"posterior": draws(10)})
    options = {"progressbar": False, "model": model, "num_samples": 3}
    first = gp.predict_posterior(XNEW, idata, random_seed=1, **options)
    assert_allclose(first["mean"], gp.predict_posterior(XNEW, idata, random_seed=1, **options)["mean"])
    other = gp.predict_posterior(XNEW, idata, random_seed=2, **options)
    assert not np.allclose(first["mean"], other["mean"])
    for count, error, text in [
        (0, ValueError, "at least 1"), (21, ValueError, r"lie in 1\.\.20"), (2.5, TypeError, "an int"),
    ]:  # fmt: skip
        with pytest.raises(error, match=f"num_samples must (be )?{text}"):
            gp.predict_posterior(XNEW, idata, num_samples=count, model=model)
    with pytest.raises(TypeError, match="draws is True or False"):
        gp.predict_posterior(XNEW, idata, draws=10, model=model)


@pytest.mark.parametrize("rotate", [False, True])
def test_predict_posterior_with_fixed_features(rotate):
    """Features kept between the draws, or with a diagonal posterior all draws at once."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), grid=5, rank=12, rotate=rotate)
        gp.build(X)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    sd = np.array([[0.1, 0.3, 0.5]])
    each = [gp.predict(XNEW, {"sigma": s}, diag=True, pred_noise=True, model=model) for s in sd[0]]
    means, variances = np.array([m for m, _ in each]), np.array([v for _, v in each])
    idata = az.from_dict({"posterior": {"sigma": sd}})
    found = gp.predict_posterior(XNEW, idata, pred_noise=True, progressbar=False, model=model)
    assert_allclose(found["mean"], means.mean(axis=0), rtol=1e-10)
    assert_allclose(found["sd"], np.sqrt(variances.mean(axis=0) + means.var(axis=0)), rtol=1e-10)


# -- conditional --------------------------------------------------------------------------------


def test_conditional_draws_follow_the_prediction(fitc):
    """40 000 draws at once: means within 4 sd / 200, covariances within 4 sqrt(2) sd^2 / 200."""
    gp, model = build_model()
    with model:
        gp.conditional("f_draws", XNEW, size=40_000)
        gp.conditional("f_noisy", XNEW, pred_noise=True, size=40_000)
    mean, cov = gp.predict(XNEW, point=POINT, model=model)
    fixed = pm.do(model, POINT)
    sample, with_noise = pm.draw([fixed["f_draws"], fixed["f_noisy"]], random_seed=1, **FAST)
    sd = np.sqrt(np.diag(cov))
    assert sample.shape == with_noise.shape == (40_000, 6)
    assert_allclose((sample.mean(axis=0) - mean) / sd, 0, atol=0.02)
    assert_allclose(np.cov(sample.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.04)
    assert_allclose(with_noise.var(axis=0), sd**2 + POINT["sigma"] ** 2, rtol=0.04)


def test_conditional_with_data_of_another_length():
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), grid=5, rank=12)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1)
        new = pm.Data("new", XNEW, dims=("row", "column"))
        f = gp.conditional("f", new, dims="row")
        assert pm.draw(f, random_seed=1, **FAST).shape == (6,)
        pm.set_data({"new": XNEW[:4]})
        assert pm.draw(f, random_seed=1, **FAST).shape == (4,)
    assert model.named_vars_to_dims["f"] == ("row",)


# -- additive models ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def additive():
    with pm.Model() as model:
        ell, slope = pm.LogNormal("ell"), pm.Normal("slope")
        first = sgp.GriefGP(
            mean_func=pm.gp.mean.Constant(slope),
            cov_func=pm.gp.cov.ExpQuad(2, ls=ell, active_dims=[0]),
            grid=9,
            rank=9,
        )
        second = sgp.GriefGP(
            mean_func=pm.gp.mean.Constant(2.0),
            cov_func=0.5 * pm.gp.cov.ExpQuad(2, ls=0.8, active_dims=[1]),
            grid=9,
            rank=8,
        )
        total = first + second
        total.marginal_likelihood("y", X=X, y=Y, sigma=0.2)
    return first, second, total, model


def test_additive_likelihood_and_components(additive):
    first, second, total, model = additive
    check_marginal_logp(total, model, **FAST)
    assert total.rank == first.rank + second.rank == 17
    one, two = (features(g, model, X) for g in (first, second))
    k = (1.0 + 0.5) - (one**2).sum(axis=1) - (two**2).sum(axis=1)
    S = one @ one.T + two @ two.T + np.diag(0.04 + np.maximum(k, 0.0))
    weight = np.linalg.solve(S, Y - POINT["slope"] - 2.0)
    for gp, phi, mean, prior in ((first, one, POINT["slope"], 1.0), (second, two, 2.0, 0.5)):
        new = features(gp, model, XNEW)
        cross = new @ phi.T
        cov = new @ new.T - cross @ np.linalg.solve(S, cross.T)
        cov += np.diag(np.maximum(prior - (new**2).sum(axis=1), 0.0))
        found = gp.predict(XNEW, point=PART, given={"gp": total}, model=model)
        assert_allclose(found[0], mean + cross @ weight, rtol=1e-8)
        assert_allclose(found[1], cov, rtol=1e-7, atol=1e-9)
        data = {"X": X, "y": Y, "sigma": 0.2, "gp": total}
        assert_allclose(
            gp.predict(XNEW, point=PART, given=data, diag=True, model=model)[0], found[0], rtol=1e-9
        )
    whole, _ = total.predict(XNEW, point=PART, diag=True, model=model)
    parts = [
        gp.predict(XNEW, point=PART, given={"gp": total}, diag=True, model=model)[0]
        for gp in (first, second)
    ]
    assert_allclose(parts[0] + parts[1], whole, rtol=1e-9)


def test_components_need_their_sum(additive):
    first, second, total, model = additive
    with pytest.raises(ValueError, match="no data yet"):
        first.predict(XNEW, point=PART, model=model)
    stranger = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
    with pytest.raises(ValueError, match="a sum that this GP is a part of"):
        stranger.predict(XNEW, point=PART, given={"gp": total}, model=model)
    assert second.rank == 8


def test_sum_of_three_finds_each_part(additive):
    first, second, _, model = additive
    with model:
        third = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0), grid=4, rank=5)
        total = first + (second + third)
        total.marginal_likelihood("three", X=X, y=Y, sigma=0.2)
    found = [
        gp.predict(XNEW, point=PART, given={"gp": total}, diag=True, model=model)[0]
        for gp in (first, second, third, second + third)
    ]
    whole, _ = total.predict(XNEW, point=PART, diag=True, model=model)
    assert_allclose(found[0] + found[1] + found[2], whole, rtol=1e-9)
    assert_allclose(found[1] + found[2], found[3], rtol=1e-9)


# -- noise, data, dims --------------------------------------------------------------------------


@pytest.mark.parametrize("random", [False, True])
def test_one_sigma_a_row(random):
    sigma = np.linspace(0.1, 0.6, 30)
    with pm.Model() as model:
        slope = pm.Normal("slope")
        scale = pm.HalfNormal("scale") if random else 1.0
        gp = sgp.GriefGP(
            mean_func=pm.gp.mean.Linear(coeffs=slope * np.ones(2), intercept=1.0),
            cov_func=POINT["eta"] ** 2 * pm.gp.cov.ExpQuad(2, ls=0.7),
            grid=5,
            rank=12,
        )
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma * scale)
    point = {"slope": POINT["slope"], **({"scale": 1.0} if random else {})}
    phi = gp.features(X).eval()
    value = {"slope": POINT["slope"], **({"scale_log__": 0.0} if random else {})}
    logp = model.compile_logp(vars=[model["y"]], **FAST)(value)
    kdiag = np.full(30, POINT["eta"] ** 2)
    expected = dense_marginal(phi, sigma**2, Y - linear_mean(X), kdiag=kdiag, approx="FITC")
    assert_allclose(logp, expected, rtol=1e-9)
    mean, cov = dense_prediction(gp, model, noise=sigma**2)
    found = gp.predict(XNEW, point=point, model=model)
    assert_allclose(found[0], mean, rtol=1e-9)
    assert_allclose(found[1], cov, rtol=1e-8, atol=1e-11)
    with pytest.raises(ValueError, match="pred_noise=True needs a scalar sigma"):
        gp.predict(XNEW, point=point, pred_noise=True, model=model)


def test_set_data_with_another_number_of_rows():
    """The grid stays where it was built; likelihood, prior draws and predictions follow the data."""
    with pm.Model(coords={"row": np.arange(30)}):
        data_X, data_y = pm.Data("X", X, dims=("row", "column")), pm.Data("t", Y, dims="row")
        gp, model = None, pm.modelcontext(None)
        ell, sigma = pm.LogNormal("ell"), pm.HalfNormal("sigma")
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), grid=5, rank=12)
        gp.marginal_likelihood("y", X=data_X, y=data_y, sigma=sigma, dims="row")
    logp = model.compile_logp(vars=[model["y"]], **FAST)
    value = {"ell_log__": np.log(0.7), "sigma_log__": np.log(0.2)}
    point = {"ell": 0.7, "sigma": 0.2}

    def check(x, y):
        phi = features(gp, model, x)
        kdiag, noise = np.ones(len(y)), np.full(len(y), 0.04)
        expected = dense_marginal(phi, noise, y, kdiag=kdiag, approx="FITC")
        assert_allclose(logp(value), expected, rtol=1e-9)
        coef, _ = posterior(phi, noise + 1.0 - (phi**2).sum(axis=1), y)
        found, _ = gp.predict(XNEW, point=point, diag=True, model=model)
        assert_allclose(found, features(gp, model, XNEW) @ coef, rtol=1e-8)

    check(X, Y)
    with model:
        pm.set_data({"X": X[:17] * 0.9, "t": Y[:17]}, coords={"row": np.arange(17)})
    check(X[:17] * 0.9, Y[:17])
    prior = pm.sample_prior_predictive(5, model=model, random_seed=1, compile_kwargs=FAST)
    assert prior["prior_predictive"]["y"].sizes["row"] == 17


def test_dims_and_coords():
    rows = [f"r{i}" for i in range(30)]
    _, model = build_model(coords={"row": rows}, dims="row")
    prior = pm.sample_prior_predictive(3, model=model, random_seed=1, compile_kwargs=FAST)
    assert list(prior["prior_predictive"]["y"].coords["row"].values) == rows
    assert list(prior["observed_data"]["y"].coords["row"].values) == rows


# -- latent -------------------------------------------------------------------------------------


def build_latent(**kwargs):
    with pm.Model() as model:
        gp = sgp.GriefGP(
            mean_func=pm.gp.mean.Linear(coeffs=POINT["slope"] * np.ones(2), intercept=1.0),
            cov_func=POINT["eta"] ** 2 * pm.gp.cov.ExpQuad(2, ls=POINT["ell"]),
            approx="DTC",
            grid=5,
            rank=12,
        )
        f = gp.prior("f", X=X, **kwargs)
        pm.Normal("y", f, POINT["sigma"], observed=Y)
    return gp, model


def test_latent_and_marginal_agree():
    """With Gaussian noise the coefficients' posterior is normal: its mean gives the same function."""
    gp, model = build_latent()
    phi = gp.features(X).eval()
    coef, cov = posterior(phi, np.full(30, POINT["sigma"] ** 2), Y - linear_mean(X))
    dlogp = model.compile_dlogp(**FAST)
    assert_allclose(dlogp({"f_coeffs": coef}), 0.0, atol=1e-8)  # the model's own mode
    marginal, marginal_model = build_model(approx="DTC")
    mean, var = marginal.predict(XNEW, point=POINT, diag=True, model=marginal_model)
    found, spread = gp.predict(XNEW, point={"f_coeffs": coef}, diag=True, model=model)
    assert_allclose(found, mean, rtol=1e-8)
    new = gp.features(XNEW).eval()
    missed = POINT["eta"] ** 2 - (new**2).sum(axis=1)
    assert_allclose(spread, missed, rtol=1e-8, atol=1e-12)  # at one draw only what is missed
    assert_allclose(np.einsum("ij,jk,ik->i", new, cov, new) + spread, var, rtol=1e-7)
    drawn = np.random.default_rng(0).multivariate_normal(coef, cov, 4000)[None]
    idata = az.from_dict({"posterior": {"f_coeffs": drawn}})
    mixed = gp.predict_posterior(XNEW, idata, progressbar=False, model=model)
    assert_allclose(mixed["sd"] ** 2, var, rtol=0.1)  # 4 sd of a variance from 4000 draws


def test_latent_prior_covariance():
    gp, model = build_latent()
    draws = pm.draw(model["f"], 3000, random_seed=1, **FAST)
    phi = gp.features(X).eval()
    assert_allclose(np.cov(draws.T), phi @ phi.T, atol=0.15)  # 4 sqrt(2) eta^2 / sqrt(3000)
    assert_allclose(draws.mean(axis=0), linear_mean(X), atol=0.09)


def test_latent_conditional_and_weights():
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), grid=5, rank=12)
        gp.build(X)
        w = pt.constant(np.linspace(0.5, 2.0, 12))
        gp.prior("f", X=X, weights=w)
        gp.conditional("f_new", XNEW)
    z = np.random.default_rng(0).standard_normal(12)
    fixed = pm.do(model, {"f_coeffs": z})
    draws = draw_many(fixed["f_new"], 2000, 1)
    new = gp.features(XNEW).eval()
    missed = 1.0 - (new**2).sum(axis=1)
    expected = new @ (z * np.sqrt(w.data))
    assert_allclose((draws.mean(axis=0) - expected) / np.sqrt(missed), 0, atol=0.1)
    assert_allclose(draws.var(axis=0), missed, rtol=0.15)
    with pytest.raises(ValueError, match="pred_noise=True needs Gaussian noise"):
        gp.predict(XNEW, point={"f_coeffs": z}, pred_noise=True, model=model)


def test_latent_with_random_hyperparameters_and_new_rows():
    with pm.Model() as model:
        data = pm.Data("X", X)
        ell = pm.LogNormal("ell")
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), grid=5, rank=12)
        f = gp.prior("f", X=data)
        pm.Bernoulli("y", logit_p=f, observed=Y > 0, shape=f.shape)
        z = np.random.default_rng(0).standard_normal(12)
        for rows in (X, X[:8]):
            pm.set_data({"X": rows})
            found = evaluate([f], {"ell": 0.7, "f_coeffs": z}, model)[0]
            expected = evaluate([gp.features(rows)], {"ell": 0.7}, model)[0] @ z
            assert_allclose(found, expected, rtol=1e-12)


# -- sampling functions of PyMC -----------------------------------------------------------------


@pytest.mark.slow
def test_posterior_predictive_of_y_and_f(fitc):
    gp, model = build_model()
    with model:
        gp.conditional("f", XNEW)
        idata = az.from_dict({"posterior": {k: np.full((1, 1000), v) for k, v in POINT.items()}})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = pm.sample_posterior_predictive(
                idata, var_names=["f", "y"], random_seed=1, progressbar=False, compile_kwargs=FAST
            )["posterior_predictive"]
    mean, cov = gp.predict(XNEW, point=POINT, model=model)
    sample = found["f"].values[0]
    assert_allclose((sample.mean(axis=0) - mean) / np.sqrt(np.diag(cov)), 0, atol=0.13)
    assert found["y"].shape == (1, 1000, 30)
    # y is drawn from its marginal distribution given the parameters
    assert_allclose(found["y"].values[0].var(axis=0), 1.2**2 + 0.2**2, rtol=0.25)
