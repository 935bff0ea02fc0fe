"""Draws of the exact posterior from those of an approximate one."""

import logging
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.checking import correct as module
from pymc_scalable_gp.core.checking.comparison import exact_rows
from pymc_scalable_gp.core.checking.correct import better_density

RNG = np.random.default_rng(5)
X = np.sort(RNG.uniform(0.0, 6.0, (40, 1)), axis=0)
Y = np.sin(2.0 * X[:, 0]) + 0.3 * RNG.standard_normal(40)
NEW = np.linspace(-1.0, 7.0, 9)[:, None]
QUIET = {"progressbar": False, "random_seed": 1}


def kernel():
    """A kernel with a prior on its lengthscale."""
    return pm.gp.cov.Matern52(1, ls=pm.LogNormal("ell", 0.0, 0.7))


def poor(cov_func=None, **options):
    """A GP whose three inducing points and one neighbour miss much of the function."""
    settings = {"n_inducing": 3, "neighbors": 1, "block": 1} | options
    return sgp.VecchiaMarginal(cov_func=cov_func or kernel(), **settings)


def draws(model, count=60, sd=0.2):
    """Draws around the initial point, as any sampler might have made them."""
    start, rng = pm.Model.initial_point(model, 0), np.random.default_rng(2)
    found = {}
    for rv, value in zip(model.free_RVs, model.value_vars, strict=True):
        transform = model.rvs_to_transforms[rv]
        at = start[value.name] + sd * rng.standard_normal((count, *np.shape(start[value.name])))
        back = at if transform is None else transform.backward(at).eval()
        found[rv.name] = (("chain", "draw", *(f"{rv.name}_{k}" for k in range(at.ndim - 1))), back[None])
    return xr.Dataset(found)


@pytest.fixture(scope="module")
def corrected():
    """A poor model, its own draws, and what they become."""
    with pm.Model() as model:
        gp = poor()
        sigma = pm.HalfNormal("sigma", 1.0)
        gp.marginal_likelihood("y", X, Y, sigma)
        idata = sgp.sample_importance(**QUIET)
        found = gp.correct(idata, cores=1, **QUIET)
    return model, gp, idata, found


def test_the_posterior_is_the_exact_one(corrected):
    """Against quadrature of the exact GP; the approximate posterior is another one."""
    _, _, idata, found = corrected
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=kernel())
        gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma", 1.0))
    logp = model.compile_logp()
    ell, sigma = np.meshgrid(np.linspace(-2.5, 2.5, 31), np.linspace(-3.0, 0.8, 31))
    values = np.array(
        [logp({"ell_log__": a, "sigma_log__": b}) for a, b in zip(ell.flat, sigma.flat, strict=True)]
    )
    cell = 5.0 / 30 * 3.8 / 30
    weights = np.exp(values - values.max())
    evidence = values.max() + np.log(weights.sum() * cell)
    weights /= weights.sum()
    attrs = found.posterior.attrs
    assert attrs["khat"] < 0.5
    assert attrs["ess"] >= 400
    assert abs(attrs["log_evidence"] - evidence) < 4 * attrs["log_evidence_se"] + 1e-3
    off = []
    for name, grid in (("ell", ell), ("sigma", sigma)):
        mean = weights @ grid.ravel()
        sd = np.sqrt(weights @ (grid.ravel() - mean) ** 2)
        new, old = np.log(found.posterior[name]), np.log(idata.posterior[name])
        assert abs(float(new.mean()) - mean) < 0.2 * sd  # 4 / sqrt(400)
        assert_allclose(float(new.std()), sd, rtol=0.15)
        off.append(abs(float(old.mean()) - mean) / sd)
    assert max(off) > 0.5


def test_it_says_how_far_it_moved(corrected, caplog):
    model, gp, idata, found = corrected
    moved = found["correction"].dataset
    assert list(moved.hyperparameter.values) == ["ell", "sigma"]
    for name in ("ell", "sigma"):
        new, old = found.posterior[name], idata.posterior[name]
        at = moved.sel(hyperparameter=name)
        assert_allclose(at["shift"], (new.mean() - old.mean()) / old.std(), rtol=1e-10)
        assert_allclose(at["sd_ratio"], new.std() / old.std(), rtol=1e-10)
    assert moved.attrs["target"] == found.posterior.attrs["target"] == "the exact GP"
    assert moved.attrs["khat"] == found.posterior.attrs["khat"]
    with caplog.at_level(logging.INFO, logger="pymc"):
        gp.correct(idata, draws=20, max_evaluations=100, model=model, **QUIET)
    assert any("towards the exact GP: 1 mode" in r.message for r in caplog.records)


def test_equal_seeds_agree(corrected):
    model, gp, idata, found = corrected
    again = gp.correct(idata, cores=1, model=model, **QUIET)  # others round otherwise
    xr.testing.assert_equal(again["correction"].to_dataset(), found["correction"].to_dataset())


def test_predictions_of_the_exact_gp(corrected):
    _, gp, _, found = corrected
    point = {"ell": 0.8, "sigma": 0.3}
    with pm.Model():
        exact = sgp.ExactMarginal(cov_func=kernel())
        exact.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma", 1.0))
    for options in ({"diag": True}, {"diag": False}, {"diag": True, "pred_noise": True}):
        for own, theirs in zip(
            gp.predict(NEW, point, exact=True, **options), exact.predict(NEW, point, **options),
            strict=True,
        ):  # fmt: skip
            assert_allclose(own, theirs, rtol=1e-10, atol=1e-12)
    assert np.abs(gp.predict(NEW, point)[0] - exact.predict(NEW, point)[0]).max() > 1e-3
    few = {"num_samples": 20, "draws": True} | QUIET
    own = gp.predict_posterior(NEW, found, exact=True, **few)
    xr.testing.assert_allclose(own, exact.predict_posterior(NEW, found, **few))


@pytest.mark.slow
def test_more_neighbors_and_points_are_another_target(corrected):
    """With all rows as neighbours it is the exact density."""
    model, gp, idata, found = corrected
    near = gp.correct(idata, neighbors=40, n_inducing=5, model=model, **QUIET)
    assert near.posterior.attrs["target"] == "5 inducing points and 40 neighbors"
    assert_allclose(near["correction"]["shift"], found["correction"]["shift"], atol=0.15)
    both = gp.correct(idata, n_inducing=10, draws=20, model=model, **QUIET)
    assert both.posterior.attrs["target"] == "10 inducing points and 60 neighbors"
    alone = gp.correct(idata, n_inducing=0, draws=100, model=model, **QUIET)
    assert alone.posterior.attrs["target"] == "0 inducing points and 60 neighbors"
    assert_allclose(alone["correction"]["shift"], found["correction"]["shift"], atol=0.3)


def linear(**options):
    mean = pm.gp.mean.Linear(coeffs=pm.Normal("slope", 0.0, 1.0), intercept=pm.Normal("level"))
    return {"mean_func": mean} | options


def a_sum():
    slow = sgp.SoftKIMarginal(cov_func=pm.HalfNormal("a") ** 2 * pm.gp.cov.ExpQuad(1, 3.0), inducing=4)
    return slow + sgp.SoftKIMarginal(cov_func=kernel(), inducing=5)


def a_summary():
    """Rows that are summarised once, with a mean that is linear in free coefficients."""
    cov = pm.gp.cov.ExpQuad(1, 1.0)
    return sgp.GriefGP(cov_func=cov, rank=5, grid=8, approx="DTC", **linear())


def by_task():
    B = pm.Normal("B", shape=(2, 1))
    cov = pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell", 0.0, 0.7), active_dims=[0])
    return sgp.SKIPMarginal(
        cov_func=cov, task_dim=1, task_cov=B, task_var=pm.HalfNormal("v", shape=2), rank=4, grid_size=8
    )


KINDS = {
    "sum": a_sum,
    "summary": a_summary,
    "tasks": by_task,
    "kmcg": lambda: sgp.KMCGMarginal(cov_func=kernel(), n_iter=20),
    "cholqr": lambda: sgp.CholQRMarginal(cov_func=kernel(), n_inducing=4, **linear()),
    "vecchia": poor,
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what few features miss
@pytest.mark.parametrize("kind", KINDS)
def test_the_density_has_the_exact_likelihood_and_all_the_rest_of_the_model(kind):
    """Priors, a potential and a second observed variable stay as they are."""
    inputs = np.column_stack([X, np.arange(40) % 2]) if kind == "tasks" else X
    with pm.Model() as model:
        gp = KINDS[kind]()
        sigma = pm.HalfNormal("sigma", 1.0)
        gp.marginal_likelihood("y", inputs, Y, sigma)
        pm.Potential("extra", -(sigma**2))
        pm.Normal("other", sigma, 1.0, observed=[0.3, 0.4])
    assert (gp.likelihood_path == "summarized") == (kind in ("summary", "sum"))
    density = better_density(model, gp.variable, exact_rows(gp, gp.training))
    idata = draws(model)
    values = [[idata[rv.name].values[0, k] for rv in model.free_RVs] for k in range(2)]
    theta = density.unconstrained(values)
    own = model.logp(vars=[v for v in [*model.basic_RVs, *model.potentials] if v is not gp.variable])
    rest = model.compile_fn(own)
    for k in range(2):
        point = {rv.name: idata[rv.name].values[0, k] for rv in model.free_RVs}
        K = gp.prior_cov(inputs)
        at = [gp.mean_func(inputs), K, gp.training.sigma]
        given = model.free_RVs
        mean, cov, sd = pm.compile(given, at, on_unused_input="ignore")(*(point[v.name] for v in given))
        cov = cov + sd**2 * np.eye(40)
        alpha = np.linalg.solve(cov, Y - mean)
        expected = -0.5 * (Y - mean) @ alpha - 0.5 * np.linalg.slogdet(2.0 * np.pi * cov)[1]
        shown, flat, at = {}, theta[k], 0
        for value, rv in zip(model.value_vars, model.free_RVs, strict=True):
            size = np.size(point[rv.name])
            shown[value.name] = flat[at : at + size].reshape(np.shape(point[rv.name]))
            at += size
        assert_allclose(density.values(theta[[k]])[0], expected + rest(shown), rtol=1e-9)


def test_a_grid_of_tasks_has_the_tasks_covariance():
    with pm.Model() as model:
        gp = by_task()
    at = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    B, v = np.array([[1.0], [-0.5]]), np.array([0.3, 0.2])
    K = pm.compile(model.free_RVs, gp.prior_cov(at))(
        *({"B": B, "v": v, "ell": 2.0}[rv.name] for rv in model.free_RVs)
    )
    near = np.exp(-0.5 / 4.0)
    expected = [[1.3, -0.5, -0.5 * near], [-0.5, 0.45, 0.45 * near], [-0.5 * near, 0.45 * near, 0.45]]
    assert_allclose(K, expected, rtol=1e-10)


def test_refusals_in_words(corrected, monkeypatch):
    model, gp, idata, _ = corrected
    with pytest.raises(ValueError, match="24 draws, and the proposals need at least 25"):
        gp.correct(idata.posterior.isel(chain=[0], draw=slice(24)), model=model)
    with pytest.raises(ValueError, match="target must be one of 'exact', 'likelihood', got 'better'"):
        gp.correct(idata, "better", model=model)
    with pytest.raises(ValueError, match="target must be one of"):
        gp.correct(idata, "better", neighbors=5, model=model)
    with pytest.raises(ValueError, match="keeps the Gaussian process: leave out neighbors="):
        gp.correct(idata, "likelihood", neighbors=5, model=model)
    with pytest.raises(ValueError, match="posterior has no sigma.*conditional.*after gp.correct"):
        gp.correct(idata.posterior.dataset[["ell"]], model=model)
    monkeypatch.setattr(module, "MOST_EXACT_ROWS", 39)
    with pytest.raises(ValueError, match=r"40 rows are too many.* seconds and .* GiB.*neighbors="):
        gp.correct(idata, model=model)
    monkeypatch.setattr(module, "MOST_EXACT_ROWS", 40)
    monkeypatch.setattr(module, "free_memory", lambda: 4 * 8 * 40**2 * 2.5)
    with pytest.raises(ValueError, match="GiB for each of 3 threads, and"):
        gp.correct(idata, cores=3, model=model)
    monkeypatch.setattr(module, "free_memory", lambda: 4 * 8 * 40**2 * 0.5)
    with pytest.raises(ValueError, match="are free: give neighbors="):
        gp.correct(idata, model=model)
    monkeypatch.setattr(module, "free_memory", lambda: 4 * 8 * 40**2 * 2.5)
    assert module._affordable(40, module.Budget(400)).most_cores == 2
    with pytest.raises(ValueError, match=r"y is not observed in this model, which may be a copy \(pm.do"):
        gp.correct(idata, model=pm.do(model, {"sigma": 0.3}))


def test_classes_without_an_exact_counterpart():
    with pm.Model() as model:
        exact = sgp.ExactMarginal(cov_func=kernel())
        exact.marginal_likelihood("y", X, Y, 0.3)
    with pytest.raises(ValueError, match="nothing to correct"):
        exact.correct(draws(model), model=model)
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0), rank=4, grid=8)
        w = sgp.weights_prior("w", gp.build(X))
        gp.marginal_likelihood("y", X, Y, 0.3, weights=w)
        with pytest.raises(ValueError, match="weights= are a prior of their own"):
            gp.correct(draws(model))
        with pytest.raises(ValueError, match="weights= are a prior of their own"):
            gp.predict(NEW, model.initial_point(), exact=True)
    with pm.Model() as model:
        scaled = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0), rank=4, grid=8)
        scaled.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"), total_size=400)
        with pytest.raises(ValueError, match="total_size= is no density of its rows"):
            scaled.correct(draws(model))
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0), rank=4, grid=8, approx="DTC")
        stats = gp.summarize(X, Y, progressbar=False)
        gp.marginal_likelihood("y", statistics=stats, sigma=pm.HalfNormal("sigma"))
        with pytest.raises(ValueError, match="statistics alone"):
            gp.correct(draws(model))
    with pm.Model():
        latent = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, 1.0), rank=4, grid=8)
        latent.prior("f", X)
        with pytest.raises(ValueError, match="no marginal likelihood"):
            latent.predict(NEW, {}, exact=True)


def test_parts_of_a_sum_have_no_exact_prediction():
    with pm.Model():
        total = a_sum()
        total.marginal_likelihood("y", X, Y, 0.3)
        point = {"a": 1.0, "ell": 1.0}
        total.predict(NEW, point, exact=True)
        with pytest.raises(ValueError, match="predicts a sum as a whole"):
            total.parts[0].predict(NEW, point, given={"gp": total}, exact=True)


def test_a_tail_of_the_draws_with_few_of_them_still_gives_a_proposal():
    """More parameters than the draws could tell the covariance of."""
    theta = np.random.default_rng(0).standard_normal((5, 9)) * np.arange(1.0, 10.0)
    factor = module._factor(theta)
    assert_allclose(np.diag(factor @ factor.T), theta.var(axis=0, ddof=1), rtol=1e-9)
    assert np.linalg.cond(factor) < 100.0


def test_correlations_of_draws_are_trusted_by_their_number():
    """Of n draws of p parameters a share n / (n + 2 p) of the covariances; variances stay."""
    theta = np.random.default_rng(1).standard_normal((10, 3))
    theta[:, 1] += theta[:, 0]
    cov, factor = np.cov(theta.T), module._factor(theta)
    # To the 1e-12 of the variances that is added.
    assert_allclose(factor @ factor.T, np.where(np.eye(3), cov, 10.0 / 16.0 * cov), rtol=1e-10)


def test_an_exact_gp_under_another_likelihood_is_not_made_dense():
    """The target is that of the likelihood it has, in linear time, however many rows there are."""
    training = SimpleNamespace(
        gaussian=SimpleNamespace(is_exact=True), data=SimpleNamespace(size=10**6), log_ratios=lambda: "logs"
    )
    budget = module.Budget(400)
    found = module._target(None, training, "exact", None, None, [], budget)
    assert found == (training, "logs", "the exact GP with its likelihood", budget)


def test_check_recommends_it(corrected):
    model, gp, idata, _ = corrected
    found = gp.check(idata, model=model, progressbar=False)
    assert "gp.correct(idata) makes draws of the exact posterior" in found.attrs["verdict"]


@pytest.mark.slow
def test_nuts_goes_on_under_the_better_density(corrected):
    """With four densities no weights are enough; the exact posterior's moments are those of `corrected`."""
    model, gp, idata, found = corrected
    after = gp.correct(idata, model=model, cores=1, max_evaluations=4, draws=240, otherwise="nuts", **QUIET)
    assert "diverging" in after.sample_stats
    assert "theta" not in model.named_vars
    assert after.posterior.attrs["target"] == "the exact GP"
    assert set(after.posterior.data_vars) == set(found.posterior.data_vars)
    for name in ("ell", "sigma"):
        own, other = np.log(after.posterior[name]), np.log(found.posterior[name])
        assert abs(float(own.mean() - other.mean())) < 0.3 * float(other.std())
        assert_allclose(float(own.std()), float(other.std()), rtol=0.25)
    assert after["correction"]["shift"].shape == (2,)


def test_nuts_is_refused_where_the_better_density_has_no_gradient(corrected):
    model, gp, idata, _ = corrected
    with pytest.raises(ValueError, match="otherwise must be one of 'warn', 'nuts'"):
        gp.correct(idata, model=model, otherwise="mcmc", **QUIET)
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=kernel())
        counts = np.random.default_rng(3).poisson(np.exp(Y))
        gp.marginal_likelihood("y", X, counts, likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)))
        with pytest.raises(ValueError, match="needs a gradient"):
            gp.correct(draws(model), target="likelihood", otherwise="nuts", **QUIET)


class Device:
    """A device of JAX with 8 x 8 bytes for each of 40^2 numbers, and half of them taken."""

    device_kind = "GPU of the tests"

    def memory_stats(self):
        return {"bytes_limit": 2 * 8 * 8 * 40**2, "bytes_in_use": 8 * 8 * 40**2}


def test_a_gpu_takes_as_many_rows_as_its_memory_holds(monkeypatch):
    monkeypatch.setattr(module, "accelerator", Device)
    monkeypatch.setattr(module, "MOST_EXACT_ROWS", 10)
    for cores in (None, 2):  # a device has one density at a time
        assert module._affordable(40, module.Budget(400, cores=cores)).cores == cores
    with pytest.raises(ValueError, match=r"41 rows .*GiB of GPU of the tests are free.*neighbors="):
        module._affordable(41, module.Budget(400))


@pytest.mark.parametrize(("spread", "tells"), [(0.5, True), (6.0, False)])
def test_functions_that_tell_nothing_are_warned_of(spread, tells):
    """Log weights of 128 functions with an sd of half a nat, and with one of 6, as of 10 000 rows."""
    logs, attrs = spread * np.random.default_rng(0).normal(size=128), {"log_evidence_se": 0.3}
    shown = nullcontext() if tells else pytest.warns(UserWarning, match="k-hat is 1.* for the weights of f")
    with shown:
        module._count_functions(attrs, pt.constant(logs), None, None)
    pairs = np.exp(logs).reshape(2, 64).mean(axis=0)
    assert_allclose(attrs["log_evidence_se"], np.hypot(0.3, pairs.std() / pairs.mean() / 8.0))
    assert (attrs["khat_functions"] < 0.7) is tells
