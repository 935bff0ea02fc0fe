"""Start values from the exact GP on a few rows: the posterior's mode, and starts that are refused."""

import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.fit.hyperparameters import Hyperparameters

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 3.0, (40, 1))
Y = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.standard_normal(40)
QUIET = {"progressbar": False}


def problem(**initval):
    """Priors far from the data, so that the mode is not the maximum of the likelihood."""
    with pm.Model() as model:
        ell = pm.LogNormal("ell", np.log(3.0), 0.1, initval=initval.get("ell"))
        eta = pm.HalfNormal("eta", 0.2, initval=initval.get("eta"))
        sigma = pm.HalfNormal("sigma", 1.0, initval=initval.get("sigma"))
        gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ell))
    return gp, model, sigma


def objective(logs, X, y, with_prior=True):
    """Minus the log density of y (and the prior) in the logarithms of ell, eta, sigma, densely."""
    ell, eta, sigma = np.exp(logs)
    K = eta**2 * np.exp(-0.5 * (X - X.T) ** 2 / ell**2) + sigma**2 * np.eye(len(y))
    value = -stats.multivariate_normal(np.zeros(len(y)), K).logpdf(y)
    if with_prior:
        value -= stats.lognorm(0.1, scale=3.0).logpdf(ell)
        value -= stats.halfnorm(scale=0.2).logpdf(eta) + stats.halfnorm(scale=1.0).logpdf(sigma)
    return value


def best(with_prior):
    start = np.log([3.0, 0.5, 0.5])
    return np.exp(optimize.minimize(objective, start, args=(X, Y, with_prior)).x)


def test_the_mode_of_the_posterior():
    gp, model, sigma = problem()
    found = sgp.subset_map(gp, X, Y, sigma, model=model, **QUIET)
    assert set(found) == {"ell", "eta", "sigma"}
    found = np.array([found[name] for name in ("ell", "eta", "sigma")])
    mode, likeliest = best(True), best(False)
    assert_allclose(found, mode, rtol=5e-3)
    assert (np.abs(np.log(likeliest / mode))[:2] > 0.5).all()  # the prior matters


def test_a_parameter_of_the_mean():
    """The intercept at the mode, all else given: the prior's and the data's precision share it."""
    with pm.Model() as model:
        gp = pm.gp.Marginal(
            cov_func=pm.gp.cov.ExpQuad(1, ls=0.7), mean_func=pm.gp.mean.Constant(pm.Normal("c"))
        )
    found = sgp.subset_map(gp, X, Y + 2.0, 0.3, model=model, **QUIET)
    K = np.exp(-0.5 * (X - X.T) ** 2 / 0.7**2) + 0.09 * np.eye(40)
    weights = np.linalg.solve(K, np.ones(40))
    assert_allclose(found["c"], weights @ (Y + 2.0) / (weights.sum() + 1.0), rtol=1e-4)


def test_a_mean_far_from_its_initial_value():
    with pm.Model() as model:
        mean = pm.gp.mean.Constant(pm.Normal("c", 0.0, 1e3))
        sigma, cov = pm.HalfNormal("sigma"), pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ell"))
        gp = pm.gp.Marginal(cov_func=cov, mean_func=mean)
    found = sgp.subset_map(gp, X, Y + 500.0, sigma, model=model, **QUIET)
    assert abs(found["c"] - 500.0) < 2.0
    assert abs(found["sigma"] - 0.2) < 0.1  # 10 units from 0, where it once stopped, leave 490 to it


def test_noise_with_a_kernel():
    """As if its kernel were the function's."""
    with pm.Model() as model:
        sd, cov = pm.HalfNormal("sd", initval=0.5), pm.gp.cov.Matern52(1, ls=pm.LogNormal("ell"))
        rest, white = 0.3 * pm.gp.cov.Matern12(1, ls=0.2), pm.gp.cov.WhiteNoise(sd)
    found = sgp.subset_map(sgp.ExactMarginal(cov_func=cov), X, Y, rest + white, model=model, **QUIET)
    expected = sgp.subset_map(pm.gp.Marginal(cov_func=cov + rest), X, Y, sd, model=model, **QUIET)
    assert_allclose([found["ell"], found["sd"]], [expected["ell"], expected["sd"]], rtol=1e-6)


def test_the_rows_are_drawn_by_the_seed():
    gp, model, sigma = problem()
    rows = np.sort(np.random.default_rng(3).permutation(40)[:15])
    options = {"model": model} | QUIET
    found = sgp.subset_map(gp, X, Y, sigma, max_rows=15, random_seed=3, **options)
    alone = sgp.subset_map(gp, X[rows], Y[rows], sigma, **options)
    for name, value in found.items():
        assert_allclose(value, alone[name], rtol=1e-6)


def test_one_sigma_a_row_is_drawn_with_the_rows():
    gp, model, _ = problem()
    spread = np.linspace(0.1, 2.0, 40)
    rows = np.sort(np.random.default_rng(3).permutation(40)[:15])
    options = {"model": model} | QUIET
    found = sgp.subset_map(gp, X, Y, spread, max_rows=15, random_seed=3, **options)
    alone = sgp.subset_map(gp, X[rows], Y[rows], spread[rows], **options)
    assert set(found) == {"ell", "eta"}
    for name, value in found.items():
        assert_allclose(value, alone[name], rtol=1e-6)


def test_rows_that_coincide_have_a_density_without_noise():
    rows = np.repeat(X[:10], 2, axis=0)
    with pm.Model() as model:
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.Matern52(1, ls=pm.LogNormal("ell")))
    found = sgp.subset_map(gp, rows, np.sin(2.0 * rows[:, 0]), 1e-10, maxiter=3, model=model, **QUIET)
    assert np.isfinite(found["ell"])


def test_starts_of_plausible_size_find_the_same_mode():
    gp, model, sigma = problem(ell=1.5, eta=5.0)
    found = sgp.subset_map(gp, X, Y, sigma, model=model, **QUIET)
    near = {"ell": 3.0, "eta": 0.5, "sigma": 0.5}
    other = sgp.subset_map(gp, X, Y, sigma, point=near, model=model, **QUIET)
    for name, value in found.items():
        assert_allclose(value, other[name], rtol=1e-2)


@pytest.mark.parametrize("bad", [{"eta": 1e200}, {"ell": 1e-200, "eta": 1e160}])
def test_a_start_where_the_density_is_not_finite_is_refused_with_its_values(bad):
    gp, model, sigma = problem(**bad)
    name = "eta"
    words = rf"not finite at the start, .*{name} = {bad[name]:.0e}".replace("e+", r"\.e\+")
    with pytest.raises(ValueError, match=words):
        sgp.subset_map(gp, X, Y, sigma, model=model, **QUIET)
    point = {"ell": 3.0, "eta": 0.5}
    found = sgp.subset_map(gp, X, Y, sigma, point=point, model=model, **QUIET)
    assert_allclose([found[k] for k in ("ell", "eta", "sigma")], best(True), rtol=1e-2)


def test_a_point_is_what_build_takes():
    """The single draw of ``pm.find_MAP(return_inferencedata=True)``, which was passed over in silence."""
    gp, model, sigma = problem(ell=1.5)
    options, values = {"maxiter": 1, "model": model} | QUIET, {"ell": 4.0, "eta": 0.3}
    draw = az.from_dict({"posterior": {name: np.full((1, 1), value) for name, value in values.items()}})
    dictionary = values | {"of another part": 1.0}
    ours, theirs, none = (
        sgp.subset_map(gp, X, Y, sigma, point=point, **options)["ell"] for point in (draw, dictionary, None)
    )
    assert ours == theirs != none
    with pytest.raises(
        ValueError, match=r"point has els \(is ell meant\?\), which the model does not know"
    ):
        sgp.subset_map(gp, X, Y, sigma, point={"els": 4.0}, **options)


@pytest.mark.parametrize("ls", [lambda: 1.0, lambda: 1.0 + pm.Normal("shift", shape=0).sum()])
def test_nothing_free(ls):
    with pm.Model():
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ls()))
        with pytest.raises(ValueError, match="there is nothing to fit"):
            sgp.subset_map(gp, X, Y, 0.3, **QUIET)


def test_bad_data():
    gp, model, _ = problem()
    with pytest.raises(ValueError, match="y has 3 values"):
        sgp.subset_map(gp, X, Y[:3], 0.3, model=model)
    with pytest.raises(ValueError, match="max_rows must be at least 2"):
        sgp.subset_map(gp, X, Y, 0.3, max_rows=1, model=model)


def test_kernels_that_hold_a_matrix_say_which_rows_they_have():
    with pm.Model() as model:
        kernel = pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ell"))
        options, words = {"model": model} | QUIET, "fixed matrix of"
        whole, other = (pm.gp.Marginal(cov_func=kernel + np.eye(n)) for n in (40, 39))
        with pytest.raises(ValueError, match=f"X has 40 rows, but cov_func holds a {words} 39"):
            sgp.subset_map(other, X, Y, 0.3, **options)
        with pytest.raises(ValueError, match=f"the choice of max_rows= has 15 rows, .* {words} 40"):
            sgp.subset_map(whole, X, Y, 0.3, max_rows=15, **options)


TASKS = RNG.integers(0, 3, 80)
XT = np.column_stack([RNG.uniform(0.0, 4.0, 80), TASKS])
B = np.array([[1.0, 0.2], [0.5, -0.8], [0.1, 0.9]])


def of_tasks(ell, factor):
    """Covariance of the function at all rows."""
    square = (XT[:, :1] - XT[:, 0]) ** 2
    return np.exp(-0.5 * square / ell**2) * (factor @ factor.T)[np.ix_(TASKS, TASKS)]


root = np.linalg.cholesky(of_tasks(1.0, B) + 1e-6 * np.eye(80))
YT = root @ RNG.standard_normal(80) + 0.2 * RNG.standard_normal(80)


def of_tasks_and_priors(logs):
    ell, sigma = np.exp(logs)
    normal = stats.multivariate_normal(np.zeros(80), of_tasks(ell, B) + sigma**2 * np.eye(80))
    return -normal.logpdf(YT) - stats.invgamma(3, scale=3).logpdf(ell) - stats.halfnorm.logpdf(sigma)


@pytest.mark.parametrize("free", [False, True])
def test_tasks_are_part_of_the_kernel(free):
    """A random factor, which begins where all is 0 and nothing has a slope, is found too."""
    with pm.Model():
        ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
        factor = pm.Normal("B", 0, 1, shape=(3, 2)) if free else B
        cov = pm.gp.cov.ExpQuad(2, ls=ell, active_dims=[0])
        gp = sgp.SKIPMarginal(cov_func=cov, task_dim=1, task_cov=factor, grid_size=20, rank=6)
        found = sgp.subset_map(gp, XT, YT, sigma, random_seed=1, **QUIET)
    ell, sigma = np.exp(optimize.minimize(of_tasks_and_priors, np.log([1.0, 0.3])).x)
    if not free:
        assert_allclose([found["ell"], found["sigma"]], [ell, sigma], rtol=1e-3)
        return
    assert sorted(found) == ["B", "ell", "sigma"]
    assert abs(found["sigma"] - sigma) < 0.1
    share = np.corrcoef((found["B"] @ found["B"].T).ravel(), (B @ B.T).ravel())[0, 1]
    assert share > 0.8


def test_rows_without_targets_are_left_out():
    missing = np.where(np.arange(40) % 4 == 1, np.nan, Y)
    keep, options = ~np.isnan(missing), {"max_rows": 40, "random_seed": 0} | QUIET
    found = []
    for rows, y in ((X, missing), (X[keep], Y[keep])):
        with pm.Model():
            gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ell")))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="y has 10 missing values")
                found.append(sgp.subset_map(gp, rows, y, 0.2, **options)["ell"])
    assert found[0] == found[1]


def test_the_best_of_two_modes():
    """A wave with little noise is noise alone from where the lengthscale is long and the noise large."""
    rows = np.linspace(0.0, 10.0, 60)[:, None]
    y = np.sin(6.0 * rows[:, 0]) + 0.05 * np.random.default_rng(1).standard_normal(60)
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0.0, 1.5, initval=30.0)
        sigma = pm.HalfNormal("sigma", initval=1.0)
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell))
    given = (gp, rows, y, sigma)
    best = sgp.subset_map(*given, random_seed=1, model=model, **QUIET)
    assert best["ell"] < 1.0
    assert best["sigma"] < 0.1
    asked = sgp.subset_map(*given, point={"ell": 30.0}, random_seed=1, model=model, **QUIET)
    assert asked["ell"] > 3.0  # where the user starts, once


@pytest.mark.parametrize(("lower", "ell"), [(0.95, 2.0), (0.85, 5.0), (1.2, 2.0), (np.nan, 2.0)])
def test_the_second_start_counts_where_it_ends_a_tenth_of_a_nat_higher(lower, ell, monkeypatch):
    """It begins at the best of eight draws, among which a density that fails is the worst."""
    far, good = np.log([1e-3, 5.0, 1e-3]), np.log([3.0, 0.5, 0.3])
    ends, starts = iter([(np.log([2.0, 1.0, 1.0]), 1.0), (np.log([5.0, 1.0, 1.0]), lower)]), []

    def draws(hyper, count, rng):
        assert count == 8
        return [far, np.full(3, np.nan), good, far]

    monkeypatch.setattr(Hyperparameters, "from_prior", draws)
    monkeypatch.setattr(
        Hyperparameters, "minimize", lambda self, f, start, **_: starts.append(start) or next(ends)
    )
    gp, model, sigma = problem()
    found = sgp.subset_map(gp, X, Y, sigma, model=model, **QUIET)
    assert_allclose(found["ell"], ell)
    assert_allclose(starts[1], good)


def test_improper_priors_have_one_start():
    with pm.Model() as model:
        ell, sigma = pm.HalfFlat("ell", initval=1.0), pm.HalfNormal("sigma")
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell))
    found = sgp.subset_map(gp, X, Y, sigma, random_seed=1, model=model, **QUIET)
    assert 0.3 < found["ell"] < 3.0
