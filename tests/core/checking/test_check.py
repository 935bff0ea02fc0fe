"""The exact Gaussian process beside an approximation, on a subsample of rows."""

import inspect
import re

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.checking.verdict import LIMITS, verdict
from pymc_scalable_gp.core.rows.subsamples import subsamples
from pymc_scalable_gp.utils.compiled import evaluate

N = 80
RNG = np.random.default_rng(4)
X = RNG.uniform(-1.0, 1.0, (N, 2))
Y = np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * RNG.standard_normal(N)
POINT = {"ell": 0.6, "eta": 1.2, "sigma": 0.3}
OPTIONS = {"progressbar": False, "rows": 50, "neighbors": None}

POOR = {
    "features": (sgp.GriefGP, {"rank": 4, "grid": 8, "approx": "DTC"}, "rank=.*approx=.VIF"),
    "corrected": (sgp.GriefGP, {"rank": 4, "grid": 8, "approx": "FITC"}, "rank=.*approx=.VIF"),
    "points": (sgp.SoftKIMarginal, {"inducing": 5}, "inducing=.*approx=.VIF"),
    "neighbors": (sgp.VecchiaMarginal, {"n_inducing": 0, "neighbors": 1, "block": 1}, "neighbors="),
}
GOOD = {
    "features": (sgp.GriefGP, {"rank": 64, "grid": 12}),
    "neighbors": (sgp.VecchiaMarginal, {"n_inducing": 20, "neighbors": 40, "block": 8}),
    "exact": (sgp.ExactMarginal, {}),
}


def model_of(kind, options, sigma=None):
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell", 0.0, 0.5), pm.HalfNormal("eta")
        gp = kind(cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=ell), **options)
        gp.build(X, **({"point": POINT} if kind is sgp.GriefGP else {}))
        noise = pm.HalfNormal("sigma") if sigma is None else sigma
        gp.marginal_likelihood("y", X, Y, noise)
    return gp, model


def draws(count=40):
    rng = np.random.default_rng(1)
    shape = (2, count // 2)
    return az.from_dict(
        {"posterior": {k: v * np.exp(0.1 * rng.standard_normal(shape)) for k, v in POINT.items()}}
    )


def kernel(A, B, point):
    square = ((A[:, None] - B) ** 2).sum(axis=2)
    return point["eta"] ** 2 * np.exp(-0.5 * square / point["ell"] ** 2)


@pytest.mark.filterwarnings("ignore:the features do not explain")
@pytest.mark.parametrize(
    "case",
    ["features", "neighbors"]
    + [pytest.param(case, marks=pytest.mark.slow) for case in ("corrected", "points")],
)
def test_a_poor_approximation_is_seen_and_gets_its_remedy(case):
    kind, options, words = POOR[case]
    gp, model = model_of(kind, options)
    with model:
        found = gp.check(draws(), **OPTIONS)
    assert "Poor" in str(found)
    text = str(found).replace("\n", " ")
    assert re.search(words, text)
    # Only classes with an approx= that leaves a residual out are told of residual variance.
    assert ("sigma may contain variance" in text) == (case != "neighbors")
    assert "600 rows sgp.ExactMarginal is exact and costs less" in text
    assert dict(found.sizes) == {"sample": 40, "obs": 25, "hyperparameter": 3}
    assert (np.log(found.sd_ratio) ** 2).max() > 0.01 or found.mean_shift.max() > 0.25
    assert found.attrs["lost"] > 0.05


@pytest.mark.parametrize("case", ["features", "exact", pytest.param("neighbors", marks=pytest.mark.slow)])
def test_a_good_one_is_called_good(case):
    gp, model = model_of(*GOOD[case])
    found = gp.check(draws(), model=model, **OPTIONS)
    assert "Good" in str(found)
    assert ("ExactMarginal is exact and costs less" in found.details) == (gp.approx == "VIF")
    assert all(type(value) in (str, int, float) for value in found.attrs.values())  # netCDF has no others
    on_all = gp.check(draws(), model=model, rows=N, progressbar=False)
    assert on_all.attrs["verdict"].startswith("Good.\n")  # there are no more rows to compare
    assert found.attrs["lost"] < 0.1
    np.testing.assert_allclose(found.sd_ratio, 1.0, atol=0.05)
    np.testing.assert_allclose(found.mean_shift, 0.0, atol=0.2)


@pytest.mark.filterwarnings("ignore:the features do not explain")
@pytest.mark.parametrize("sigma", [None, np.linspace(0.2, 0.4, N)], ids=["sigma", "sigma per row"])
def test_its_figures_are_those_of_dense_algebra(sigma):
    gp, model = model_of(sgp.GriefGP, {"rank": 6, "grid": 8, "approx": "FITC"}, sigma)
    point = {name: POINT[name] for name in ("ell", "eta", "sigma") if name in model.named_vars}
    found = gp.check(point, model=model, **OPTIONS)
    own, others = subsamples(X, 50, 25, np.random.default_rng(0))
    np.testing.assert_array_equal(found.obs, others)
    noise = np.full(N, POINT["sigma"]) if sigma is None else sigma
    D = noise[own] ** 2
    with model:
        (phi,) = evaluate([gp.features(X)], POINT)
    K = kernel(X, X, POINT)
    low = phi @ phi.T
    low += np.diag(np.diag(K) - np.diag(low))
    for C, name in ((K, "logp_exact"), (low, "logp_approx")):
        logp = multivariate_normal(np.zeros(50), C[np.ix_(own, own)] + np.diag(D)).logpdf(Y[own])
        np.testing.assert_allclose(found[name], logp, rtol=1e-7)
    moments = []
    for C in (K, low):
        gain = np.linalg.solve(C[np.ix_(own, own)] + np.diag(D), C[np.ix_(own, others)]).T
        var = np.diag(C)[others] - np.einsum("ij,ji->i", gain, C[np.ix_(own, others)])
        moments.append((gain @ Y[own], np.sqrt(var + np.mean(D))))
    (mean, sd), (near, wide) = moments
    np.testing.assert_allclose(found.mean_shift, np.abs(near - mean) / sd, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.sd_ratio, wide / sd, rtol=1e-6)
    np.testing.assert_allclose(
        found.missing, 1.0 - (phi**2).sum(axis=1)[others] / POINT["eta"] ** 2, rtol=1e-7
    )


def test_a_draw_that_comes_many_times_has_no_tail():
    """As of a chain that stays where it is: the largest importance weights are one value."""
    gp, model = model_of(*GOOD["neighbors"])
    copies = draws(4).isel(draw=[0] * 20)
    found = gp.check(copies, model=model, **OPTIONS)
    assert found.attrs["k_hat"] == np.inf
    weights = np.exp(gap := (found.logp_exact - found.logp_approx).values) / np.exp(gap).sum()
    ell = copies.posterior.ell.values.ravel()
    expected = (weights @ ell - ell.mean()) / ell.std()
    np.testing.assert_allclose(found.moved.sel(hyperparameter="ell"), expected, atol=1e-12)


def test_a_few_draws_are_compared_but_not_weighted():
    """Importance weights of fewer than 25 draws have no tail to fit."""
    gp, model = model_of(*GOOD["neighbors"])
    for count, weighted in ((10, False), (24, False), (26, True)):
        found = gp.check(draws(count), model=model, **OPTIONS)
        assert found.attrs["draws"] == count
        assert ("moved" in found) == weighted
        assert ("25 tell how" in str(found)) == (not weighted)


def test_what_is_not_finite_is_not_called_good():
    gp, model = model_of(sgp.ExactMarginal, {})
    found = gp.check(POINT, model=model, **OPTIONS)
    assert "Good" in verdict(gp, gp.training, found)[0]
    for name in ("sd_ratio", "mean_shift"):
        assert (
            "predictions differ" in verdict(gp, gp.training, found.assign({name: found[name] * np.nan}))[0]
        )
    over = gp.check(draws(), model=model, **OPTIONS)
    names, zero = POINT.keys(), np.zeros(3)
    over = over.assign(moved=("hyperparameter", zero)).assign_coords(hyperparameter=list(names))
    over.attrs["k_hat"] = np.nan  # nearly equal weights
    assert "Good" in verdict(gp, gp.training, over)[0]
    assert "k-hat" not in verdict(gp, gp.training, over)[0]
    over.attrs["lost"] = 50.0  # all weight on one draw
    assert "the posterior of the hyperparameters" in verdict(gp, gp.training, over)[0]
    over.attrs["lost"] = 0.0
    unknown = over.assign(moved=("hyperparameter", zero * np.nan))
    assert "the posterior of the hyperparameters" in verdict(gp, gp.training, unknown)[0]
    over.attrs |= {"k_hat": 0.9, "lost": 1.0}
    assert "the posterior of the hyperparameters" in verdict(gp, gp.training, over)[0]
    found.attrs["lost"] = np.nan
    assert "log densities are not finite" in verdict(gp, gp.training, found)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_the_weights_go_towards_the_exact_posterior():
    gp, model = model_of(sgp.GriefGP, {"rank": 8, "grid": 8, "approx": "DTC"})
    idata = draws(600)
    found = gp.check(idata, model=model, num_samples=None, **OPTIONS)
    gap = (found.logp_exact - found.logp_approx).values
    weights = np.exp(gap - gap.max())
    weights /= weights.sum()
    for name, moved, change in zip(
        found.hyperparameter.values, found.moved.values, found.sd_change.values, strict=True
    ):
        values = idata["posterior"][str(name)].values.ravel()
        now = weights @ values
        np.testing.assert_allclose(moved, (now - values.mean()) / values.std(), atol=0.1)
        sd = np.sqrt(weights @ (values - now) ** 2)
        np.testing.assert_allclose(change, sd / values.std(), atol=0.1)
    assert np.abs(found.moved).max() > 0.3


def test_a_likelihood_multiplied_by_total_size_is_compared_as_it_is():
    """This likelihood alone was multiplied, ten times, beside the closer one."""
    found = []
    for options in ({}, {"total_size": 10 * N}):
        with pm.Model() as model:
            gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell", 0.0, 0.5)), rank=40)
            gp.build(X, point=POINT)
            gp.marginal_likelihood("y", X, Y, 0.3, **options)
        point = {"ell": POINT["ell"]}
        found.append(gp.check(point, model=model, rows=50, neighbors=10, progressbar=False))
    xr.testing.assert_allclose(*found, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_all_rows_beside_more_neighbors():
    """With all rows as neighbours the reference is the exact Gaussian process."""
    gp, model = model_of(sgp.GriefGP, {"rank": 6, "grid": 8, "approx": "FITC"})
    found = gp.check(draws(), model=model, rows=50, neighbors=N, progressbar=False)
    own = model.compile_logp(vars=[model["y"]], jacobian=False)
    posterior = az.extract(draws())
    for k in range(0, 40, 13):
        point = {name: float(posterior[name][k]) for name in POINT}
        C = kernel(X, X, point) + point["sigma"] ** 2 * np.eye(N)
        exact = multivariate_normal(np.zeros(N), C).logpdf(Y)
        np.testing.assert_allclose(found.logp_neighbors[k], exact, rtol=1e-6)
        at = {f"{name}_log__": np.log(value) for name, value in point.items()}
        np.testing.assert_allclose(found.logp_all[k], own(at), rtol=1e-9)
    gap = found.logp_neighbors - found.logp_all
    np.testing.assert_allclose([found.attrs["gap_all"], found.attrs["lost_all"]], [gap.mean(), gap.std()])
    assert "On all 80 rows" in found.attrs["details"]
    assert "on all rows the posterior is another one" in found.attrs["verdict"]
    assert dict(found.sizes) == {"sample": 40, "obs": 25, "hyperparameter": 3}
    assert "logp_all" not in gp.check(POINT, model=model, progressbar=False)  # the subsample is all


def test_a_reference_has_more_neighbors_than_what_it_judges():
    gp, model = model_of(*GOOD["neighbors"])
    found = gp.check(POINT, model=model, rows=40, neighbors=10, progressbar=False)
    assert found.attrs["neighbors"] == 80  # not 10: the model has 40
    assert "noise_inflation" not in found.attrs  # nothing is left out of the function
    assert found.attrs["neighbors_moved"] == 0.0
    assert found.attrs["verdict"].startswith("Good at this point; the posterior's draws tell more.")


def krylov(**options):
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell", 0.0, 0.5), pm.HalfNormal("eta")
        gp = sgp.KMCGMarginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=ell), **options)
        gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
    return gp, model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:after|the features|KMCG|hyperparameters")
def test_a_likelihood_without_subsamples_is_compared_on_all_rows():
    gp, model = krylov(n_iter=40, probes=8)
    found = gp.check(draws(), model=model, rows=50, neighbors=60, progressbar=False)
    assert "logp_exact" not in found
    assert found.attrs["lost_all"] < 0.5
    assert {"residual", "steps_needed", "logdet_se", "logdet_excess"} <= set(found.attrs)
    assert "Conjugate gradients leave" in found.attrs["details"]
    # Predictions are compared with those of that likelihood, where no exact one of some rows is.
    assert "60 neighbors on 80 rows, predictive means shift by up to" in str(found)
    assert 0.0 < found.mean_shift.max() < 0.25
    off = found.copy(deep=True)
    off["mean_shift"] = off.mean_shift + 0.25
    assert verdict(gp, gp.training, off)[0].startswith("Poor: predictions differ.")
    # What iterations leave is in the comparison; alone it is what the verdict goes by.
    assert "Good." in str(found)
    alone = gp.check(draws(), model=model, rows=50, neighbors=None, progressbar=False)
    assert "the log determinant is uncertain" in alone.attrs["verdict"]
    assert "Raise n_iter= and probes=" in alone.attrs["verdict"]
    # The worst of the draws, which lies elsewhere for each figure.
    names = ("residual", "steps_needed", "logdet_se", "logdet_excess")
    picked = az.extract(draws())
    points = [{name: float(picked[name][k]) for name in POINT} for k in range(40)]
    each = [gp.training.figures([point], model) for point in points[:3]]
    few, all_of_them = (gp.training.figures(some, model) for some in (points[:3], points))
    for name in names:
        assert few[name] == max(found[name] for found in each)
        assert alone.attrs[name] == all_of_them[name]


def normal_logp(C, y, point):
    return multivariate_normal(np.zeros(len(y)), C + point["sigma"] ** 2 * np.eye(len(y))).logpdf(y)


@pytest.mark.filterwarnings("ignore:without probes|the log determinant")
@pytest.mark.parametrize("probes", [0, 4])
def test_krylov_features_are_compared_on_all_rows_where_these_are_few(probes):
    """Such a check was called good whatever the density was."""
    gp, model = krylov(n_iter=6, probes=probes)
    found = gp.check(POINT, model=model, rows=N, progressbar=False)
    np.testing.assert_allclose(found.logp_exact, normal_logp(kernel(X, X, POINT), Y, POINT), rtol=1e-9)
    own = evaluate([pm.logp(model["y"], Y)], POINT, model)[0]
    np.testing.assert_allclose(found.logp_approx, own, rtol=1e-12)
    where = X[found.obs.values]
    mean, _ = gp.predict(where, POINT, diag=True, model=model)
    exact, var = gp.predict(where, POINT, diag=True, exact=True, pred_noise=True, model=model)
    np.testing.assert_allclose(found.mean_shift, np.abs(mean - exact) / np.sqrt(var), rtol=1e-6)
    assert found.attrs["verdict"].startswith("Poor: predictions differ")
    # One point does not tell whether an error of the determinant moves the posterior.
    assert ("determinant is uncertain" in found.attrs["verdict"]) == (probes > 0)
    assert "logp_exact" not in gp.check(POINT, model=model, rows=N - 1, neighbors=None, progressbar=False)


@pytest.mark.filterwarnings("ignore:without probes")
@pytest.mark.parametrize("approx", ["DTC", "FITC"])
def test_krylov_features_of_fixed_rows_are_those_of_a_subsample(approx):
    gp, model = krylov(n_iter=8, inducing=np.arange(0, N, 4), approx=approx)
    found = gp.check(POINT, model=model, rows=30, neighbors=40, most_rows=40, progressbar=False)
    rng = np.random.default_rng(0)
    own, others = subsamples(X, 30, 15, rng)
    part = subsamples(X, 40, 0, rng)[0]
    np.testing.assert_array_equal(found.obs, others)
    (phi,) = evaluate([gp.features(X)], POINT, model)
    K, low = kernel(X, X, POINT), phi @ phi.T
    low += np.diag(np.diag(K) - np.diag(low)) if approx == "FITC" else 0.0
    for C, rows, name in (
        (K, own, "logp_exact"), (low, own, "logp_approx"),
        (K, part, "logp_neighbors"), (low, part, "logp_all"),
    ):  # fmt: skip
        logp = normal_logp(C[np.ix_(rows, rows)], Y[rows], POINT)
        np.testing.assert_allclose(found[name], logp, rtol=1e-7)
    assert np.abs(found.attrs["gap"]) > 1.0
    assert found.attrs["verdict"].startswith("Poor: predictions differ")


def test_products_are_compared_on_all_rows_where_these_are_few():
    with pm.Model() as model:
        gp = sgp.SKIPMarginal(
            cov_func=1.2**2 * pm.gp.cov.ExpQuad(2, ls=0.3), rank=5, grid_size=20, n_iter=10,
            preconditioner=20,
        )  # fmt: skip
        gp.marginal_likelihood("y", X, Y, 0.3)
    found = gp.check(model=model, rows=N, progressbar=False)
    K = kernel(X, X, {"ell": 0.3, "eta": 1.2})
    np.testing.assert_allclose(found.logp_exact, normal_logp(K, Y, {"sigma": 0.3}), rtol=1e-9)
    np.testing.assert_allclose(found.logp_approx, pm.logp(model["y"], Y).eval(), rtol=1e-12)
    assert np.abs(found.attrs["gap"]) > 1.0
    assert found.mean_shift.max() > 0.0
    assert "logp_exact" not in gp.check(model=model, rows=50, neighbors=None, progressbar=False)


@pytest.mark.filterwarnings("ignore:the features do not explain")
@pytest.mark.parametrize(
    ("rank", "verdict"), [(3, "Poor: the function lacks variance"), (64, "no exact likelihood")]
)
def test_latent_functions(rank, verdict):
    with pm.Model():
        ell = pm.LogNormal("ell", 0.0, 0.5)
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), rank=rank, grid=10)
        gp.prior("f", X)
        (phi,) = evaluate([gp.features(X)], POINT)
        found = gp.check({"ell": POINT["ell"]}, progressbar=False)
        over = gp.check(draws(), progressbar=False)
    np.testing.assert_allclose(found.missing, 1.0 - (phi**2).sum(axis=1), atol=1e-10)
    assert verdict in found.attrs["verdict"]
    assert ("take VecchiaLatent" in found.attrs["verdict"]) == (rank == 3)
    assert set(over.data_vars) == {"missing"}
    assert over.attrs["draws"] == 40


def test_figures_of_the_solver_go_by_a_free_mean():
    """Where there is no density, nothing else that is shown depends on the mean: here, by products."""
    with pm.Model() as model:
        level = pm.gp.mean.Constant(pm.Normal("level", 0.0, 10.0))
        gp = sgp.SKIPMarginal(
            mean_func=level, cov_func=pm.gp.cov.ExpQuad(2, ls=0.3), rank=5, grid_size=20, n_iter=3,
            preconditioner=3,
        )  # fmt: skip
        gp.marginal_likelihood("y", X, Y, 0.05)
    point = {"level": np.array(20.0)}
    found = gp.check(point, model=model, **OPTIONS)
    expected = gp.training.figures([point], model)
    assert found.attrs["residual"] == expected["residual"]
    assert abs(expected["residual"] - gp.training.figures([{}], model)["residual"]) > 0.01


def test_neighbors_of_a_latent_function_go_by_the_draws():
    """Without inducing points its features depend on the prior variance alone."""
    with pm.Model():
        eta, ell = pm.HalfNormal("eta"), pm.LogNormal("ell", 0.0, 2.0, shape=2)
        gp = sgp.VecchiaLatent(cov_func=eta**2 * pm.gp.cov.Matern32(2, ls=ell), n_inducing=0, neighbors=5)
        gp.prior("f", X)
        few = {"eta": np.ones((1, 40)), "ell": np.tile([0.05, 50.0], (1, 40, 1))}
        found = gp.check(az.from_dict({"posterior": few}), progressbar=False)
        assert gp.check(progressbar=False).attrs["neighbors_moved"] == 0.0
        with pytest.raises(ValueError, match="the posterior has no ell"):
            gp.check(az.from_dict({"posterior": {"eta": few["eta"]}}), progressbar=False)
    assert found.attrs["neighbors_moved"] > 0.3
    assert "call gp.rebuild(point)" in found.attrs["verdict"]


def test_features_alone_of_a_class_that_integrates_them_out():
    with pm.Model():
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.2), inducing=10)
        found = gp.check({}, X, progressbar=False).attrs["verdict"]
    assert "sigma may contain variance" in found
    assert 'or take approx="VIF"' in found


def test_a_row_without_prior_variance():
    """Its share of unexplained variance was 0 / 0."""
    line = np.linspace(-1.0, 1.0, 31)[:, None]
    with pm.Model():
        gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Linear(1, c=0.0))
        gp.build(line, indices=[0])
        gp.marginal_likelihood("y", X=line, y=line[:, 0], sigma=0.1)
        found = gp.check({}, progressbar=False)
    assert found.attrs["missing_mean"] < 1e-7
    assert found.attrs["verdict"].startswith("Good")


@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_so_many_rows_are_compared_at_most():
    """Of more rows a part that lies as all do gets the likelihood with neighbours."""
    gp, model = model_of(sgp.GriefGP, {"rank": 6, "grid": 8, "approx": "FITC"})
    options = {"rows": 20, "neighbors": 45, "progressbar": False, "model": model}
    part = gp.check(POINT, most_rows=45, **options)
    assert (part.attrs["n"], part.attrs["n_all"]) == (45, N)
    assert "On 45 of 80 rows the log density with inducing points" in part.attrs["details"]
    rng = np.random.default_rng(0)
    subsamples(X, 20, 10, rng)
    chosen = subsamples(X, 45, 0, rng)[0]
    C = kernel(X[chosen], X[chosen], POINT) + POINT["sigma"] ** 2 * np.eye(45)
    exact = multivariate_normal(np.zeros(45), C).logpdf(Y[chosen])
    np.testing.assert_allclose(part.logp_neighbors, exact, rtol=1e-6)
    with model:
        (phi,) = evaluate([gp.features(X[chosen])], POINT)
    low = phi @ phi.T
    low += np.diag(np.diag(C) - np.diag(low))
    own = multivariate_normal(np.zeros(45), low).logpdf(Y[chosen])
    np.testing.assert_allclose(part.logp_all, own, rtol=1e-7)
    assert gp.check(POINT, most_rows=None, **options).attrs["n"] == N
    assert inspect.signature(gp.check).parameters["most_rows"].default == 20_000


@pytest.mark.filterwarnings("ignore:after|the features|KMCG|hyperparameters")
def test_what_is_none_of_some_rows_says_so():
    gp, model = krylov(n_iter=40, probes=8)
    found = gp.check(POINT, model=model, rows=50, most_rows=60, progressbar=False)
    assert "logp_all" not in found
    assert "most_rows=None compares them all" in found.attrs["details"]


def test_the_verdict_comes_first_and_all_figures_on_request():
    gp, model = model_of(sgp.ExactMarginal, {})
    found = gp.check(draws(), model=model, **OPTIONS)
    assert str(found).splitlines()[0] == "Good."
    assert str(found).splitlines()[1].startswith("Compared with the exact GP on 50 rows, predictive")
    assert found.details.startswith("On 50 rows the exact log density")
    assert "nats (natural logarithms)" in found.details
    assert repr(found).startswith(f"{found}\n\n<xarray.Check>")


@pytest.mark.parametrize("suffix", ["", "_all", "_laplace"])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_good_result_is_three_lines_with_its_largest_shift(suffix, weighted):
    gp, model = model_of(sgp.ExactMarginal, {})
    found = gp.check(draws(), model=model, **OPTIONS)
    zero = xr.zeros_like(found.logp_exact)
    found = found.drop_vars("moved", errors="ignore").assign(logp_all=zero, logp_neighbors=zero)
    found.attrs |= {"neighbors": 120, "n": 1_000_000, "n_all": 1_000_000, "rows": 4000}
    found.attrs |= {"modes_missing": 0, "k_hat_functions": 0.2}
    for each in ("", "_all", "_laplace"):
        size = 0.43 if each == suffix else 0.11
        found.attrs |= {f"gap{each}": -size, f"lost{each}": 0.1, f"k_hat{each}": size}
        if weighted:
            found[f"moved{each}"] = ("hyperparameter", [0.0, -size, 0.05])
    found = found.assign_coords(hyperparameter=list(POINT))
    text, details = verdict(gp, gp.training, found)
    found.attrs |= {"verdict": text, "details": details}
    lines = str(found).splitlines()
    assert lines[0] == "Good."
    assert len(lines) <= 3
    assert max(map(len, lines)) <= 88
    better = {"": "the exact GP on 4000 rows", "_all": "120 neighbors on 1000000 rows"}
    shown = " ".join(lines).partition(f"with {better.get(suffix, 'draws of the function')},")[2]
    words = "shift by up to 0.43 sds (k-hat 0.43)" if weighted else "differ by 0.43 nats"
    assert words in shown
    assert len(found.details.splitlines()) > 3


def test_how_many_features_are_needed():
    """The eigenvalues say it: with that many of the best, what is left is 5% of the noise."""
    gp, model = model_of(sgp.ExactMarginal, {})
    found = gp.check(POINT, model=model, rows=N, progressbar=False).attrs
    values = np.linalg.eigvalsh(kernel(X, X, POINT))[::-1]
    needed = int(found["rank_needed"])
    allowed = 0.05 * POINT["sigma"] ** 2 * N
    assert values[needed:].sum() <= allowed < values[needed - 1 :].sum()
    condition = 1.0 + values[0] / POINT["sigma"] ** 2
    np.testing.assert_allclose(found["condition"], condition, rtol=1e-9)
    rough = gp.check(POINT | {"ell": 1e-3}, model=model, progressbar=False).attrs
    assert rough["rank_needed"] == np.inf


@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_the_noise_that_features_add():
    gp, model = model_of(sgp.GriefGP, {"rank": 4, "grid": 8, "approx": "DTC"})
    found = gp.check(POINT, model=model, **OPTIONS)
    added = float(found.missing.mean()) * POINT["eta"] ** 2 / POINT["sigma"] ** 2
    np.testing.assert_allclose(found.attrs["noise_inflation"], added, rtol=1e-9)
    assert re.search(r"Raise rank= .* \(\d+ of the best possible features would do", found.attrs["verdict"])


def test_a_function_of_next_to_no_variance_is_told():
    """At .05 of the variance nothing is said; below it, that another mode may be missed."""
    with pm.Model():
        eta = pm.HalfNormal("eta", 1.0)
        gp = sgp.VecchiaMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=0.3), n_inducing=20)
        gp.marginal_likelihood("y", X, Y, sigma=2.0)
    for share in (0.049, 0.051):
        point = {"eta": 2.0 * np.sqrt(share / (1.0 - share))}
        found = gp.check(point, rows=20, neighbors=None, progressbar=False)
        np.testing.assert_allclose(found.attrs["kernel_share"], share, rtol=1e-12)
        assert str(found).startswith("Good")
        assert ("has 4.9% of the variance" in str(found)) is (share < 0.05)


def test_an_exact_density_that_is_not_finite_gets_advice_that_can_be_followed():
    gp, model = model_of(sgp.ExactMarginal, {})
    verdict = gp.check(POINT | {"eta": 1e200}, model=model, progressbar=False).attrs["verdict"]
    assert "log densities are not finite" in verdict
    assert "look at its parameters and the data" in verdict
    assert "Raise" not in verdict
    assert "rebuild" not in verdict


@pytest.mark.filterwarnings("ignore:the features do not explain")
@pytest.mark.parametrize("kind", ["free", "weights", "rotated"])
def test_neighbors_are_advised_where_they_would_be_taken(kind):
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(2, ls=0.3)
        gp = sgp.GriefGP(cov_func=cov, rank=4, grid=8, rotate=kind == "rotated")
        rank = gp.build(X)
        weights = None if kind == "free" else sgp.weights_prior("w", rank)
        gp.marginal_likelihood("y", X, Y, 0.3, weights=weights)
    verdict = gp.check(model=model, rows=50, progressbar=False).attrs["verdict"]
    assert verdict.startswith("Poor")
    assert ('take approx="VIF"' in verdict) == (kind == "free")


CELLS = sgp.RegularGrid([np.linspace(0.0, 3.0, 8), np.linspace(0.0, 2.0, 7)])
COUNTS = np.random.default_rng(3).poisson(1.0, (8, 7))
TAKEN = {
    "probes": (sgp.KMCGMarginal, {"n_iter": 6}, X, {"sigma": 0.3}, "n_iter= and probes="),
    "corrected": (sgp.KMCGMarginal, {"n_iter": 6, "approx": "FITC"}, X, {"sigma": 0.3}, "n_iter="),
    "sigma per row": (sgp.KMCGMarginal, {"n_iter": 6}, X, {"sigma": np.full(N, 0.3)}, "n_iter="),
    "subset": (
        sgp.KMCGMarginal, {"n_iter": 6, "inducing": 20}, X, {"sigma": 0.3}, "n_iter= and inducing=",
    ),
    "counts": (
        sgp.KMCGMarginal, {"n_iter": 6}, CELLS,
        {"y": COUNTS, "likelihood": lambda f: pm.Poisson.dist(pm.math.exp(f))}, "n_iter=",
    ),
    "products": (
        sgp.SKIPMarginal, {"rank": 3, "grid_size": 9, "n_iter": 4, "approx": "DTC"}, X, {"sigma": 0.3},
        "rank=, grid_size=, n_iter= and preconditioner=",
    ),
    "features": (
        sgp.SKIPMarginal, {"rank": 3, "grid_size": 9, "approx": "DTC"}, X, {"sigma": 0.3},
        "rank= and grid_size=",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:without probes|the log determinant|the features do not explain")
@pytest.mark.parametrize("case", TAKEN)
def test_what_is_advised_can_be_given(case):
    kind, options, rows, given, knobs = TAKEN[case]
    with pm.Model() as model:
        gp = kind(cov_func=pm.gp.cov.ExpQuad(2, ls=0.3), **options)
        gp.marginal_likelihood("y", rows, given.get("y", Y), **{k: v for k, v in given.items() if k != "y"})
    text = gp.check(model=model, neighbors=None, progressbar=False).attrs["verdict"]
    assert re.search(rf"Raise {knobs}( to| \(|, or take)", text), text
    # Under another likelihood there is no sigma that could contain what the features miss.
    assert ("the function lacks variance" in text) == (case == "counts")
    assert ("sigma may contain variance" in text) == (case != "counts")


@pytest.mark.filterwarnings("ignore:the log determinant")
@pytest.mark.parametrize(
    ("options", "sigma", "ell", "advice"),
    [
        ({}, 0.3, 2.0, "Raise probes=, or take VecchiaMarginal."),
        ({"n_iter": 20}, 0.3, 2.0, "Raise n_iter= and probes=, or take VecchiaMarginal."),
        ({"approx": "VFE"}, 1e-4, 0.2, "Take VecchiaMarginal."),
    ],
)
def test_steps_are_not_to_be_more_than_the_rows(options, sigma, ell, advice):
    """More steps were advised, which are refused, and more features than a number that there were."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((21, 4))
    with pm.Model() as model:
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(4, ls=ell), **options)
        targets = np.sin(rows[:, 0]) + 0.3 * rng.standard_normal(21)
        gp.marginal_likelihood("y", rows, targets, sigma, progressbar=False)
    text = gp.check(model=model, neighbors=None, progressbar=False).attrs["verdict"]
    assert f". {advice}" in text.splitlines()[0], text


@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_rows_that_are_known_by_their_statistics_get_no_advice_that_needs_them():
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        gp = sgp.CholQRMarginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=0.3), n_inducing=5, approx="DTC")
        gp.build(X)
        gp.marginal_likelihood("y", statistics=gp.summarize(X, Y), sigma=pm.HalfNormal("sigma"))
    text = gp.check(draws(), X, Y, model=model, **OPTIONS).attrs["verdict"]
    assert "posterior of the hyperparameters is another one" in text
    assert "Raise n_inducing=" in text
    assert not re.search("VIF|Vecchia|gp.correct", text)


@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_the_advice_to_correct_draws_goes_by_the_likelihoods_own_rows(monkeypatch):
    """Not by those that were given to the check, nor where weights= leave no exact GP to go to."""
    monkeypatch.setattr("pymc_scalable_gp.core.checking.verdict.MOST_EXACT_ROWS", N - 1)
    gp, model = model_of(*POOR["features"][:2])
    text = gp.check(draws(), X[:30], Y[:30], model=model, neighbors=None, progressbar=False)
    assert "gp.correct(idata, neighbors=60)" in text.attrs["verdict"]
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.6), rank=20, grid=8)
        count = {"likelihood": lambda f: pm.Poisson.dist(pm.math.exp(f))}
        weights = sgp.weights_prior("w", gp.build(X))
        gp.marginal_likelihood("y", X, np.arange(N) % 3, weights=weights, **count)
    found = gp.check(model=model, progressbar=False)
    found.attrs |= {"k_hat_functions": 0.8, "missing_mean": 0.0}
    poor, details = verdict(gp, gp.training, found)
    assert "ExactMarginal" not in details
    assert poor.startswith("Poor: Laplace's approximation is poor.")
    assert "gp.correct" not in poor


@pytest.mark.parametrize(
    ("k_hat", "advice"), [(0.8, "sample it, as sgp.VecchiaLatent"), (0.6, "gp.correct")]
)
def test_a_correction_is_advised_where_functions_tell_the_error(k_hat, advice):
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(2, ls=0.6))
        gp.marginal_likelihood(
            "y", X, np.arange(N) % 3, likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f))
        )
    found = gp.check({"eta": 1.0}, model=model, progressbar=False, rows=20)
    found["moved_laplace"] = "hyperparameter", [2.0 * LIMITS["moved"]]
    found = found.assign_coords(hyperparameter=["eta"])
    found.attrs |= {"k_hat_functions": k_hat, "k_hat_laplace": 0.1, "lost_laplace": 1.0}
    poor, details = verdict(gp, gp.training, found)
    assert "ExactMarginal" not in details
    assert poor.startswith("Poor: Laplace's approximation is poor.")
    assert advice in " ".join(poor.split())
    assert ("gp.correct" in poor) is (k_hat < 0.7)


def test_weights_have_no_exact_counterpart():
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.6), rank=20, grid=8)
        gp.marginal_likelihood("y", X, Y, 0.3, weights=sgp.weights_prior("w", 20))
    assert set(gp.check(model=model, rows=50, progressbar=False).data_vars) == {"missing"}


@pytest.mark.parametrize("path", ["tasks", "summarized"])
def test_tasks_are_compared_with_the_kernel_of_tasks(path):
    tasks, B = np.column_stack([X, np.arange(N) % 2]), np.array([[1.0, 0.3], [-0.5, 0.8]])
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(3, ls=0.6, active_dims=[0, 1])
        options = {"approx": "DTC", "rank": 8, "grid_size": 20, "task_dim": 2, "task_cov": B}
        gp = sgp.SKIPMarginal(cov_func=cov, **options)
        rows = tasks if path == "tasks" else pm.Data("X", tasks)
        gp.marginal_likelihood("y", rows, Y, 0.3)
    assert gp.likelihood_path == path
    found = gp.check(model=model, rows=50, neighbors=N, progressbar=False)
    both = cov * pm.gp.cov.Coregion(3, B=B @ B.T, active_dims=[2])

    def density(K, y):
        return pm.logp(pm.MvNormal.dist(np.zeros(len(K)), K + 0.3**2 * np.eye(len(K))), y).eval()

    phi = gp.features(tasks).eval()
    np.testing.assert_allclose(found.logp_neighbors, density(both(tasks).eval(), Y), rtol=1e-6)
    np.testing.assert_allclose(found.logp_all, density(phi @ phi.T, Y), rtol=1e-6)
    assert ("logp_exact" in found) == (path != "tasks")
    every = gp.check(model=model, rows=N, progressbar=False)
    np.testing.assert_allclose(every.logp_exact, found.logp_neighbors, rtol=1e-6)
    np.testing.assert_allclose(every.logp_approx, found.logp_all, rtol=1e-9)
    assert "VIF" not in found.attrs["verdict"]
    of_rows = np.diag(both(tasks[found.obs.values]).eval())
    missed = 1.0 - (phi[found.obs.values] ** 2).sum(axis=1) / of_rows
    np.testing.assert_allclose(found.missing, missed, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:the features do not explain")
@pytest.mark.parametrize("over", ["draws", pytest.param("point", marks=pytest.mark.slow)])
def test_the_picture(over):
    gp, model = model_of(sgp.GriefGP, {"rank": 6, "grid": 8, "approx": "FITC"})
    given = draws() if over == "draws" else POINT
    check = gp.check(given, model=model, rows=50, neighbors=20, progressbar=False)
    picture = sgp.plot_check(check, backend="none")
    panels = {"difference", "difference_all", "mean_shift", "sd_ratio", "missing"}
    if over == "draws":
        panels |= {"moved", "moved_all"}
    assert set(picture.viz["plot"].data_vars) == panels
    exact, other = model_of(sgp.ExactMarginal, {})
    shown = sgp.plot_check(exact.check(POINT, model=other, **OPTIONS), backend="none")
    assert set(shown.viz["plot"].data_vars) == {"difference", "mean_shift", "sd_ratio"}
    with pytest.raises(TypeError, match="what gp.check returns"):
        sgp.plot_check(check.attrs)
    check.attrs["holds_residual"] = True  # as neighbours of latent functions
    with pytest.raises(ValueError, match="nothing to draw"):
        sgp.plot_check(check.drop_vars([name for name in check.data_vars if name != "missing"]))


def test_what_cannot_be_compared_is_refused():
    cov = pm.gp.cov.ExpQuad(2, ls=1.0)
    with pm.Model():
        with pytest.raises(ValueError, match="give X, or call marginal_likelihood or prior first"):
            sgp.ExactMarginal(cov_func=cov).check()
        softki = sgp.SoftKIMarginal(cov_func=cov, inducing=9)
        softki.marginal_likelihood("known", statistics=softki.summarize(X, Y), sigma=0.2)
        with pytest.raises(ValueError, match="statistics alone"):
            softki.check()
        for wrong in ({"rows": 1}, {"neighbors": 0}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                softki.check(X=X, **wrong)
        latent = sgp.GriefGP(cov_func=cov, rank=5, grid=5)
        latent.build(X)
        latent.marginal_likelihood("latent", pm.Normal("inputs", 0.0, 0.3, shape=X.shape), Y, 0.2)
        for call in (latent.check, lambda: latent.loo(draws())):
            with pytest.raises(ValueError, match="X has a prior"):
                call()


@pytest.mark.filterwarnings("ignore:the features do not explain")
def test_rows_that_say_next_to_nothing_do_not_hide_a_difference():
    """Counts at low rates: by the mean of the rows' noise the largest shift was half of this."""
    rng = np.random.default_rng(4)
    inputs = rng.uniform(0.0, 1.0, (80, 1))
    f = -6.0 + 8.0 * inputs[:, 0] + np.sin(25.0 * inputs[:, 0])
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 3)
        gp = sgp.GriefGP(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=0.1), rank=5, grid=12)
        gp.marginal_likelihood(
            "y", inputs, rng.poisson(np.exp(f)), likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f))
        )
    point, options = {"eta": 2.0}, {"diag": True, "model": model}
    found = gp.check(point, model=model, **OPTIONS)
    where = inputs[found["obs"].values]
    mean, _ = gp.predict(where, point, **options)
    better, var = gp.predict(where, point, exact=True, **options)
    own = np.abs(mean - better) / np.sqrt(var)  # without noise
    assert float(found["mean_shift"].max()) > 0.1 * own.max()
