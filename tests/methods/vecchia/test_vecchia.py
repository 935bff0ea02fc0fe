"""VecchiaMarginal and approx="VIF": limits that are known, predictions, data that change."""

import tracemalloc

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from compared import draw_many, figures_at
from numpy.testing import assert_allclose
from scipy import stats

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.vecchia.normal import VecchiaNormal
from pymc_scalable_gp.utils.compiled import FEW_CALLS, compiled, evaluate

rng = np.random.default_rng(0)
N, D = 60, 2
X = rng.uniform(-2.0, 2.0, (N, D))
y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.2 * rng.standard_normal(N)
NEW = rng.uniform(-2.5, 2.5, (12, D))
POINT = {"ell": np.array([0.8, 1.1]), "eta": np.array(1.3), "sigma": np.array(0.25)}
START = {f"{name}_log__": np.log(value) for name, value in POINT.items()}


def kernel(kind=pm.gp.cov.Matern52):
    ell, eta = pm.InverseGamma("ell", 3, 3, shape=D), pm.HalfNormal("eta", 1)
    return eta**2 * kind(D, ls=ell)


def model_of(make, kind=pm.gp.cov.Matern52, targets=y, **kwargs):
    with pm.Model() as model:
        gp = make(kernel(kind))
        sigma = pm.HalfNormal("sigma", 1)
        if "point" in kwargs:
            gp.build(X, **kwargs)
        gp.marginal_likelihood("y", X=X, y=targets, sigma=sigma)
    return model, gp


def logp_of(model, at=None):
    """Log likelihood at the point, without priors."""
    (value,) = model.logp(vars=model.observed_RVs, sum=False)
    inputs = model.value_vars
    function = pytensor.function(inputs, value, mode=FEW_CALLS, on_unused_input="ignore")
    return float(function(*[(at or START)[v.name] for v in inputs]))


def vecchia(**settings):
    return lambda cov: sgp.VecchiaMarginal(cov_func=cov, **settings)


@pytest.fixture(scope="module")
def exact():
    model, gp = model_of(lambda cov: sgp.ExactMarginal(cov_func=cov))
    with model:
        mean, cov = gp.predict(NEW, point=POINT)
    return logp_of(model), mean, cov


def test_exact_marginal_is_pm_gp(exact):
    """Without pm.gp's jitter, which moves the log density by 2e-4."""
    K = (POINT["eta"] ** 2 * pm.gp.cov.Matern52(D, ls=POINT["ell"]))(np.concatenate([X, NEW])).eval()
    S = K[:N, :N] + POINT["sigma"] ** 2 * np.eye(N)
    assert_allclose(exact[0], stats.multivariate_normal.logpdf(y, np.zeros(N), S), rtol=1e-9)
    weights = np.linalg.solve(S, K[:N, N:])
    assert_allclose(exact[1], weights.T @ y, rtol=1e-7, atol=1e-9)
    assert_allclose(exact[2], K[N:, N:] - K[N:, :N] @ weights, atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_inducing": 15, "neighbors": N - 1, "block": 1},
        {"n_inducing": 0, "neighbors": N, "block": 7},
        {"n_inducing": 15, "neighbors": 0, "block": N},
        {"n_inducing": 9, "neighbors": 5, "block": 10 * N},
    ],
)
def test_all_neighbors_or_one_block_are_the_exact_gp(exact, settings):
    model, gp = model_of(vecchia(**settings))
    assert gp.likelihood_path == "vecchia"
    assert_allclose(logp_of(model), exact[0], rtol=1e-10)


def test_no_neighbors_are_fitc_and_pitc():
    """Blocks of one row: FITC. Larger ones: their own covariance is exact, and nothing between them."""
    model, gp = model_of(vecchia(n_inducing=12, neighbors=0, block=1))
    with model:
        points = gp.feature_map.points.get_value()
    rows = [int(np.flatnonzero((X == p).all(axis=1))[0]) for p in points]

    def cholqr(cov):
        found = sgp.CholQRMarginal(cov_func=cov, n_inducing=12, approx="FITC")
        found.build(X, indices=np.array(rows))
        return found

    fitc, _ = model_of(cholqr)
    assert_allclose(logp_of(model), logp_of(fitc), rtol=1e-10)
    block, gp = model_of(vecchia(n_inducing=12, neighbors=0, block=7))
    with block:
        phi, K = evaluate([gp.features(X), gp.cov_func(X)], POINT)
    order = gp.training.plan.ordering.order
    S = phi @ phi.T
    for start in range(0, N, 7):
        own = np.ix_(order[start : start + 7], order[start : start + 7])
        S[own] = K[own]
    S += POINT["sigma"] ** 2 * np.eye(N)
    assert_allclose(logp_of(block), stats.multivariate_normal.logpdf(y, np.zeros(N), S), rtol=1e-9)


def test_more_neighbors_come_closer(exact):
    errors = [
        abs(logp_of(model_of(vecchia(n_inducing=10, neighbors=k, block=4))[0]) - exact[0])
        for k in (0, 5, 30)
    ]
    assert errors[0] > 10.0 * errors[1] > 50.0 * errors[2]


@pytest.mark.parametrize("mode", [FEW_CALLS, pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_gradient_against_differences(mode):
    model, _ = model_of(vecchia(n_inducing=10, neighbors=8, block=4))
    function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
    function.set_extra_values({})
    x = np.concatenate([np.ravel(START[v.name]) for v in model.value_vars])
    value, slope = function(x)
    for i in range(len(x)):
        step = 1e-5 * np.eye(len(x))[i]
        difference = (function(x + step)[0] - function(x - step)[0]) / 2e-5
        assert_allclose(slope[i], difference, rtol=1e-6, atol=1e-6)
    python = model.compile_fn(model.logp(), mode=FEW_CALLS)
    assert_allclose(value, python(START), rtol=1e-10)


@pytest.mark.parametrize("kind", ["sum", "generic"])
def test_other_kernels_take_the_general_route(exact, kind):
    """The same kernel, written as a sum and with a warping."""

    def make(cov):
        if kind == "sum":
            cov = 0.25 * cov + 0.75 * cov
        else:
            cov = pm.gp.cov.WarpedInput(D, cov, lambda x: x)
        return sgp.VecchiaMarginal(cov_func=cov, n_inducing=10, neighbors=8, block=4)

    model, gp = model_of(make)
    plain, _ = model_of(vecchia(n_inducing=10, neighbors=8, block=4))
    tolerance = 1e-10 if kind == "sum" else 0.01  # a warped kernel's neighbours are others
    assert_allclose(logp_of(model), logp_of(plain), rtol=tolerance)
    with model:
        mean, var = gp.predict(NEW, point=POINT, diag=True)
    assert_allclose(mean, exact[1], atol=0.4)
    assert (var > 0).all()


CLASSES = {
    "GriefGP": lambda cov, **local: sgp.GriefGP(cov_func=cov, grid=8, rank=30, **local),
    "SKIPMarginal": lambda cov, **local: sgp.SKIPMarginal(cov_func=cov, rank=6, **local),
    "CholQRMarginal": lambda cov, **local: sgp.CholQRMarginal(cov_func=cov, n_inducing=10, **local),
    "SoftKIMarginal": lambda cov, **local: sgp.SoftKIMarginal(cov_func=cov, inducing=10, **local),
}


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_with_all_neighbors_is_the_exact_gp(name):
    """ExpQuad, a product over inputs. SKIP's interpolation is off by 1e-4 of the variance."""
    near = NEW * 0.7
    reference, gp = model_of(lambda cov: sgp.ExactMarginal(cov_func=cov), pm.gp.cov.ExpQuad)
    with reference:
        mean, cov = gp.predict(near, point=POINT)
    model, gp = model_of(
        lambda cov: CLASSES[name](cov, approx="VIF", neighbors=N, block=3), pm.gp.cov.ExpQuad
    )
    tolerance = 1e-3 if name == "SKIPMarginal" else 1e-8
    assert_allclose(logp_of(model), logp_of(reference), rtol=tolerance)
    with model:
        found, var = gp.predict(near, point=POINT, diag=True)
    assert_allclose(found, mean, atol=10 * tolerance)
    assert_allclose(var, np.diag(cov), atol=10 * tolerance)
    assert "VIF" in repr(gp)


def test_predictions_with_all_neighbors_are_exact(exact):
    model, gp = model_of(vecchia(n_inducing=15, neighbors=N, block=5))
    with model:
        mean, var = gp.predict(NEW, point=POINT, diag=True)
        noisy = gp.predict(NEW, point=POINT, diag=True, pred_noise=True)[1]
    assert_allclose(mean, exact[1], atol=1e-7)
    assert_allclose(var, np.diag(exact[2]), atol=1e-7)
    assert_allclose(noisy - var, POINT["sigma"] ** 2, rtol=1e-9)


@pytest.mark.parametrize("numbers", [1, 2**23])
@pytest.mark.parametrize("settings", [{"neighbors": 3, "pred_neighbors": N}, {"neighbors": N // 2}])
def test_new_rows_have_neighbors_of_their_own(exact, settings, numbers, monkeypatch):
    """Without inducing points all of them make the exact GP's predictions; by default twice as many."""
    monkeypatch.setattr("pymc_scalable_gp.core.vecchia.predictor._NUMBERS", numbers)
    model, gp = model_of(vecchia(n_inducing=0, block=5, **settings))
    assert gp.settings()["pred_neighbors"] == N
    with model:
        mean, var = gp.predict(NEW, point=POINT, diag=True)
    assert_allclose(mean, exact[1], atol=1e-7)
    assert_allclose(var, np.diag(exact[2]), atol=1e-7)


def test_new_rows_without_neighbors_have_the_prior():
    model, gp = model_of(vecchia(n_inducing=0, neighbors=20, pred_neighbors=0))
    with model:
        mean, var = gp.predict(NEW, point=POINT, diag=True)
    assert_allclose(mean, 0.0)
    assert_allclose(var, POINT["eta"] ** 2)
    with pytest.raises(ValueError, match="pred_neighbors"):
        sgp.VecchiaMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pred_neighbors=-1)


def test_predictions_follow_inputs_with_a_prior():
    """All neighbours of rows that have moved since the order was made: the exact GP's predictions."""
    moved, found = X + 0.2 * rng.standard_normal(X.shape), {}
    exact = {"exact": lambda cov: sgp.ExactMarginal(cov_func=cov)}
    for name, make in (exact | {"near": vecchia(n_inducing=5, neighbors=2 * N, block=5)}).items():
        with pm.Model():
            places = pm.Normal("places", X, 0.3, shape=X.shape)
            gp = make(pm.gp.cov.Matern52(D, ls=[0.8, 1.1]))
            gp.marginal_likelihood("y", X=places, y=y, sigma=0.3)
            point = {"places": moved}
            joint = gp.predict(NEW, point=point)
            found[name] = *gp.predict(NEW, point=point, diag=True), *joint
    for near, expected in zip(found["near"], found["exact"], strict=True):
        assert_allclose(near, expected, atol=1e-7)


def test_joint_predictions_hold_together(exact):
    """Mean and covariance; the conditional's density; draws over posterior draws."""
    model, gp = model_of(vecchia(n_inducing=15, neighbors=N + 12, block=5))
    with model:
        mean, cov = gp.predict(NEW, point=POINT)
        f = gp.conditional("f", NEW, jitter=1e-4)
    assert_allclose(mean, exact[1], atol=1e-5)
    assert_allclose(cov, exact[2], atol=1e-5)
    value = exact[1] + 0.1
    (density,) = evaluate([pm.logp(f, value)], POINT, model)
    expected = stats.multivariate_normal.logpdf(value, exact[1], exact[2] + 1e-4 * np.eye(12))
    assert_allclose(density, expected, rtol=1e-3)


def test_new_rows_may_stand_alone():
    """With ten neighbours the joint means are up to .2 sd from those of single rows; alone they are not."""
    model, gp = model_of(vecchia(n_inducing=10, neighbors=5, block=4, pred_neighbors=10))
    with model:
        mean, var = gp.predict(NEW, point=POINT, diag=True)
        alone, cov = gp.predict(NEW, point=POINT, joint=False)
        jointly, _ = gp.predict(NEW, point=POINT)
        nothing = gp.predict(NEW[:0], point=POINT, joint=False)
    assert_allclose(alone, mean, rtol=1e-12)
    assert_allclose(np.diag(cov), var, rtol=1e-10)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    assert abs(cov[0, 1]) > 0.0
    assert abs((jointly - mean) / np.sqrt(var)).max() > 0.01
    assert [x.shape for x in nothing] == [(0,), (0, 0)]


def test_joint_predictions_in_blocks_are_those_of_all_rows_at_once(monkeypatch):
    """Mean, covariance and draws; no compiled function sees more new rows than a block holds."""
    import xarray as xr

    predictor = "pymc_scalable_gp.core.vecchia.predictor"
    posterior = {k: (("chain", "draw", "dim")[: 2 + v.ndim], v[None, None]) for k, v in POINT.items()}
    found, largest = [], 0

    def watched(inputs, outputs):
        function = compiled(inputs, outputs)

        def call(*values):
            nonlocal largest
            if inputs[0].name == "Xnew":
                largest = max(largest, len(values[0]))
            return function(*values)

        return call

    monkeypatch.setattr(f"{predictor}.compiled", watched)
    for rows in (512, 5):
        monkeypatch.setattr(f"{predictor}._ROWS", rows)
        model, gp = model_of(vecchia(n_inducing=8, neighbors=6, block=4))
        options = {"draws": True, "progressbar": False, "random_seed": 1, "model": model}
        largest = 0
        f = gp.predict_posterior(NEW, xr.Dataset(posterior), **options)["f"].values
        found.append([f, *gp.predict(NEW, point=POINT, model=model)])
        assert largest == min(rows, len(NEW))
    for blocked, whole in zip(*found, strict=True):
        assert_allclose(blocked, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("sum_", [False, True], ids=["stationary", "any kernel"])
def test_a_conditional_takes_new_rows_in_parts(monkeypatch, sum_):
    """The density, its gradient and a draw are those of all rows at once, in a third of the memory."""

    def kind(d, ls):
        first = pm.gp.cov.Matern52(d, ls=ls)
        return first + pm.gp.cov.Linear(d, c=0.0) if sum_ else first

    new, found, peaks = np.random.default_rng(1).uniform(-2.5, 2.5, (203, D)), [], []
    for rows in (512, 8):
        monkeypatch.setattr("pymc_scalable_gp.core.vecchia.predictor._ROWS", rows)
        settings = vecchia(n_inducing=8, neighbors=6, block=4, pred_neighbors=40)
        model, gp = model_of(settings, kind)
        with model:
            f = gp.conditional("f", new, jitter=1e-4)
        function = model.compile_fn([model.logp(vars=[f]), model.dlogp()], mode=FEW_CALLS)
        tracemalloc.start()
        density = function({**START, "f": np.sin(new[:, 0])})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        found.append([*density, pm.draw(f, random_seed=3)])
    for parts, whole in zip(*found, strict=True):
        assert_allclose(parts, whole, rtol=1e-8)
    assert peaks[1] < peaks[0] / 3.0


@pytest.mark.slow
def test_draws_over_the_posterior(exact):
    import xarray as xr

    model, gp = model_of(vecchia(n_inducing=15, neighbors=N, block=5))
    names = {name: (("chain", "draw", *["dim"] * value.ndim), np.tile(value, (1, 600, *[1] * value.ndim)))
             for name, value in POINT.items()}  # fmt: skip
    with model:
        found = gp.predict_posterior(NEW, xr.Dataset(names), draws=True, progressbar=False, random_seed=1)
    assert_allclose(found["mean"], exact[1], atol=1e-6)
    assert_allclose(found["sd"], np.sqrt(np.diag(exact[2])), atol=1e-6)
    f = found["f"].values[0]
    scale = np.sqrt(np.diag(exact[2]))
    # Standard errors of 600 draws: .04 sd for means; .06 for variances, .04 for correlations.
    assert_allclose((f.mean(axis=0) - exact[1]) / scale, 0.0, atol=0.17)
    assert_allclose(np.cov(f.T) / np.outer(scale, scale), exact[2] / np.outer(scale, scale), atol=0.2)


def test_far_away_the_prior_returns():
    model, gp = model_of(vecchia(n_inducing=15, neighbors=10, block=5))
    far = NEW[:3] + 60.0
    with model:
        mean, var = gp.predict(far, point=POINT, diag=True)
        _, cov = gp.predict(far, point=POINT)
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(var, POINT["eta"] ** 2, rtol=1e-6)
    K = (POINT["eta"] ** 2 * pm.gp.cov.Matern52(D, ls=POINT["ell"]))(far).eval()
    assert_allclose(cov, K, atol=1e-6)


def test_draws_of_the_distribution():
    """Prior predictive draws have the covariance of the density; order and blocks are undone."""
    gp = sgp.VecchiaMarginal(
        cov_func=1.3 * pm.gp.cov.Matern52(D, ls=[0.8, 1.1]), n_inducing=5, neighbors=4, block=3
    )
    with pm.Model():
        variable = gp.marginal_likelihood("y", X=X[:10], y=y[:10], sigma=0.3)
    draws = draw_many(variable, 4000, 1)
    function = pytensor.function([v := pt.vector(dtype="float64")], pm.logp(variable, v), mode=FEW_CALLS)
    base, eye = float(function(np.zeros(10))), np.eye(10)
    single = np.array([float(function(row)) for row in eye])
    both = np.array([[float(function(a + b)) for b in eye] for a in eye])
    precision = -(both - single[:, None] - single + base)
    cov = np.linalg.inv(precision)
    assert_allclose(np.cov(draws.T), cov, atol=0.12)
    assert isinstance(variable.owner.op.form, VecchiaNormal)


def test_a_conditional_starts_at_its_mean():
    """``pm.sample`` and ``pm.find_MAP`` begin at the support point, of as many rows as are new."""
    model, gp = model_of(vecchia(n_inducing=8, neighbors=5, block=4))
    with model:
        gp.conditional("f", NEW, jitter=0.0)
        start = model.initial_point(0)
        at = {name: np.exp(start[f"{name}_log__"]) for name in POINT}
        expected, _ = gp.predict(NEW, at)
    assert_allclose(start["f"], expected, atol=1e-9)
    assert np.isfinite(float(model.compile_logp(mode="FAST_COMPILE")(start)))


def test_replaced_targets_count_and_replaced_inputs_are_refused():
    with pm.Model() as model:
        data_X, data_y = pm.Data("X", X), pm.Data("t", y)
        gp = sgp.VecchiaMarginal(cov_func=kernel(), n_inducing=8, neighbors=8, block=4)
        gp.marginal_likelihood("y", X=data_X, y=data_y, sigma=pm.HalfNormal("sigma", 1))
    before = logp_of(model)
    with model:
        pm.set_data({"t": y + 1.0})
    fresh, _ = model_of(vecchia(n_inducing=8, neighbors=8, block=4), targets=y + 1.0)
    assert_allclose(logp_of(model), logp_of(fresh), rtol=1e-10)
    assert logp_of(model) < before - 1.0
    with model:
        pm.set_data({"X": X[::-1].copy(), "t": y[::-1].copy()})
    with pytest.raises(ValueError, match=r"gp\.rebuild\(\)"):
        logp_of(model)
    with model:
        gp.rebuild()
    assert_allclose(logp_of(model), before, rtol=0.01)  # the same rows in another order
    with model:
        pm.set_data({"X": X[:10], "t": y[:10]})
        with pytest.raises(ValueError, match="another number"):
            logp_of(model)
        with pytest.raises(ValueError, match="write it again"):
            gp.rebuild()


def test_rebuild_takes_the_neighbors_of_another_point(exact):
    """At the point itself nothing would move."""
    model, gp = model_of(vecchia(n_inducing=8, neighbors=6, block=3))
    other = POINT | {"ell": np.array([20.0, 0.05])}
    with model:
        assert figures_at(gp, other)["neighbors_moved"] > 0.3
        before = logp_of(model)
        points = gp.feature_map.points.get_value()
        gp.rebuild(POINT)
        assert figures_at(gp, POINT)["neighbors_moved"] == 0.0
        assert abs(logp_of(model) - exact[0]) < abs(before - exact[0]) + 0.1
        gp.rebuild(other)
    assert not np.array_equal(points, gp.feature_map.points.get_value())
    fresh, _ = model_of(vecchia(n_inducing=8, neighbors=6, block=3), point=other)
    assert_allclose(logp_of(model), logp_of(fresh), rtol=1e-9)


def test_sigma_for_each_row(exact):
    sigma = 0.2 + 0.2 * rng.uniform(size=N)
    settings = {"n_inducing": 8, "neighbors": N, "block": 7}
    K = (1.3 * pm.gp.cov.Matern52(D, ls=0.9))(X).eval()
    with pm.Model() as model:
        gp = sgp.VecchiaMarginal(cov_func=1.3 * pm.gp.cov.Matern52(D, ls=0.9), **settings)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    expected = stats.multivariate_normal.logpdf(y, np.zeros(N), K + np.diag(sigma**2))
    assert_allclose(logp_of(model, {"y": 0.0}), expected, rtol=1e-9)


def test_rows_that_say_nothing_take_no_digits_from_predictions():
    """What stabilises a new row's regression grew with the mean noise, and rounding took its variance."""
    sigma, known = np.where(np.arange(N) % 3 == 0, 1e9, 0.25), np.arange(N) % 3 != 0
    cov = pm.gp.cov.Matern52(D, ls=0.8)
    with pm.Model():
        gp = sgp.VecchiaMarginal(cov_func=cov, neighbors=N)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        few = sgp.ExactMarginal(cov_func=cov)
        few.marginal_likelihood("few", X=X[known], y=y[known], sigma=0.25)
        found, wanted = (each.predict(NEW, diag=True) for each in (gp, few))
    assert_allclose(found[0], wanted[0], atol=1e-6)
    assert_allclose(found[1], wanted[1], rtol=1e-6)


@pytest.mark.parametrize(
    "rows",
    [np.zeros(40, dtype=int), np.arange(40) // 4, np.arange(1), np.arange(3)],
    ids=["one row, forty times", "each row four times", "n = 1", "n < block"],
)
def test_repeated_and_few_rows(rows):
    """Exact repeats leave R singular; the noise carries it."""
    cov = 1.3 * pm.gp.cov.Matern52(D, ls=0.9)
    with pm.Model() as model:
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=5, neighbors=60, block=8)
        gp.marginal_likelihood("y", X=X[rows], y=y[: len(rows)], sigma=0.3)
        mean, var = gp.predict(X[:5], point={}, diag=True)
    K = cov(X[rows]).eval() + 0.09 * np.eye(len(rows))
    expected = stats.multivariate_normal.logpdf(y[: len(rows)], np.zeros(len(rows)), K)
    assert_allclose(logp_of(model, {"y": 0.0}), expected, rtol=1e-6)
    assert (var >= 0.0).all()
    assert_allclose(mean, cov(X[:5], X[rows]).eval() @ np.linalg.solve(K, y[: len(rows)]), atol=1e-4)


def test_an_indefinite_kernel_gives_nan():
    cov = pm.gp.cov.ExpQuad(D, ls=1.0) + -0.9 * pm.gp.cov.ExpQuad(D, ls=0.2)
    with pm.Model() as model:
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=0, neighbors=20, block=4)
        gp.marginal_likelihood("y", X=X, y=y, sigma=1e-6)
    assert np.isnan(logp_of(model, {"y": 0.0}))


def test_words():
    cov = pm.gp.cov.ExpQuad(D, ls=1.0)
    with pytest.raises(ValueError, match="neighbors must be at least 0"):
        sgp.VecchiaMarginal(cov_func=cov, neighbors=-1)
    with pytest.raises(ValueError, match="block must be at least 1"):
        sgp.GriefGP(cov_func=cov, approx="VIF", block=0)
    with pytest.raises(ValueError, match="approx"):
        sgp.KMCGMarginal(cov_func=cov, approx="VIF")
    with pytest.raises(ValueError, match='works with approx="DTC" only'):
        sgp.GriefGP(cov_func=cov, approx="VIF", rotate=True)
    with pytest.raises(ValueError, match="leave out n_iter and task_dim"):
        sgp.SKIPMarginal(cov_func=cov, approx="VIF", n_iter=5)
    gp = sgp.GriefGP(cov_func=cov)
    with pytest.raises(ValueError, match="rebuild is for"):
        gp.rebuild()


def test_sums_take_the_kernel_of_the_sum():
    part = {"n_inducing": 5, "neighbors": N, "block": 3}
    with pm.Model() as model:
        first = sgp.VecchiaMarginal(cov_func=pm.gp.cov.ExpQuad(D, ls=1.0), **part)
        second = sgp.VecchiaMarginal(cov_func=0.3 * pm.gp.cov.Matern32(D, ls=0.4), **part)
        total = first + second
        total.marginal_likelihood("y", X=X, y=y, sigma=0.3)
        part, _ = first.predict(NEW, point={}, given={"gp": total}, diag=True)
        mean, _ = total.predict(NEW, point={}, diag=True)
    K = total.cov_func(np.concatenate([X, NEW])).eval()
    S = K[:N, :N] + 0.09 * np.eye(N)
    expected = stats.multivariate_normal.logpdf(y, np.zeros(N), S)
    assert_allclose(logp_of(model, {"y": 0.0}), expected, rtol=1e-9)
    assert_allclose(mean, K[N:, :N] @ np.linalg.solve(S, y), atol=1e-6)
    assert_allclose(part, first.cov_func(NEW, X).eval() @ np.linalg.solve(S, y), atol=1e-6)


def test_given_other_data():
    model, gp = model_of(vecchia(n_inducing=8, neighbors=N, block=3))
    given = {"X": X[:30], "y": y[:30], "sigma": 0.25}
    with model:
        mean, _ = gp.predict(NEW, point=POINT, diag=True, given=given)
    K = POINT["eta"] ** 2 * pm.gp.cov.Matern52(D, ls=POINT["ell"])
    S = K(X[:30]).eval() + 0.0625 * np.eye(30)
    assert_allclose(mean, K(NEW, X[:30]).eval() @ np.linalg.solve(S, y[:30]), atol=1e-6)


def test_neighbors_for_predictions_alone():
    """All rows in one block: predictions had no neighbours, and were the prior's."""
    with pm.Model():
        cov, sigma = pm.gp.cov.Matern52(D, ls=1.0), 0.2
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=0, neighbors=0, block=N, pred_neighbors=N)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        whole = sgp.ExactMarginal(cov_func=cov)
        whole.marginal_likelihood("z", X=X, y=y, sigma=sigma)
        for a, b in zip(gp.predict(NEW, {}, diag=True), whole.predict(NEW, {}, diag=True), strict=True):
            assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_rebuild_chooses_neighbors_of_given_data_too():
    """Those of the call before it were kept."""
    given, other = {"X": X[:40], "y": y[:40], "sigma": 0.3}, POINT | {"ell": np.array([20.0, 0.05])}
    found = []
    for calls in (2, 1):
        model, gp = model_of(vecchia(n_inducing=0, neighbors=3, block=1), point=POINT)
        with model:
            if calls == 2:
                before = gp.predict(NEW, POINT, diag=True, given=given)[0]
            gp.rebuild(other)
            found.append(gp.predict(NEW, POINT, diag=True, given=given)[0])
    assert np.abs(before - found[1]).max() > 0.01
    assert_allclose(*found, rtol=1e-10)


def test_rebuild_moves_the_points_of_all_parts():
    with pm.Model():
        ell = pm.InverseGamma("ell", 3, 3, shape=D)
        gps = [
            sgp.VecchiaMarginal(cov_func=kind(D, ls=ell), n_inducing=8, neighbors=6)
            for kind in (pm.gp.cov.Matern52, pm.gp.cov.Matern32)
        ]
        total = gps[0] + gps[1]
        total.marginal_likelihood("y", X=X, y=y, sigma=0.3)
        parts = total.training.prediction_map().parts
        before = [part.points.get_value() for part in parts]
        total.rebuild({"ell": np.array([20.0, 0.05])})
    for part, points in zip(parts, before, strict=True):
        assert np.abs(part.points.get_value() - points).max() > 0.1


def test_sigmas_of_another_length_under_data_of_the_model():
    """More of them than rows were cut."""
    with pm.Model():
        gp = sgp.VecchiaMarginal(cov_func=pm.gp.cov.Matern52(D, ls=1.0), n_inducing=5)
        with pytest.raises(ValueError, match=f"sigma has {N + 5} values, but X has {N} rows"):
            gp.marginal_likelihood("y", X=pm.Data("X", X), y=y, sigma=np.full(N + 5, 0.3))


def test_the_rows_that_are_kept_do_not_change_with_the_data():
    """What replaced rows are compared with shared its memory with pm.Data."""
    with pm.Model():
        data = pm.Data("X", X)
        gp = sgp.VecchiaMarginal(cov_func=pm.gp.cov.Matern52(D, ls=1.0), n_inducing=5)
        gp.marginal_likelihood("y", X=data, y=y, sigma=0.3)
    kept = gp.training.plan.X.get_value(borrow=True)
    assert not np.shares_memory(kept, data.get_value(borrow=True))


def test_a_conditional_goes_on_with_the_neighbors_of_a_rebuild():
    """Its rows were named by places in the order before, and were others."""
    model, gp = model_of(vecchia(n_inducing=0, neighbors=6, block=3, pred_neighbors=N))
    with model:
        f = gp.conditional("f", NEW, jitter=0.0)
        gp.rebuild(POINT | {"ell": np.array([20.0, 0.05])})
        found = evaluate([f.owner.op.dist_params(f.owner)[0]], POINT, model)[0]
    assert_allclose(found, gp.predict(NEW, point=POINT, model=model)[0], atol=1e-9)


@pytest.mark.parametrize("classes", [(sgp.VecchiaMarginal,) * 2, (sgp.VecchiaMarginal, sgp.CholQRMarginal)])
def test_a_sum_is_built_at_the_point_that_it_was_given(classes):
    """Inducing points went by it, order and neighbours by the model's initial point."""
    with pm.Model():
        ell = pm.InverseGamma("ell", 3, 3, shape=D)
        kinds = pm.gp.cov.Matern52, pm.gp.cov.Matern32
        one, two = (
            kind(
                cov_func=cov(D, ls=ell),
                n_inducing=8,
                **({"approx": "VIF"} if "Chol" in kind.__name__ else {}),
            )
            for kind, cov in zip(classes, kinds, strict=True)
        )
        total = one + two
        total.build(X, point={"ell": np.array([20.0, 0.05])})
        total.marginal_likelihood("y", X=X, y=y, sigma=0.3)
    placed = total.training.plan.ordering.metric.coordinates(X)
    assert np.ptp(placed[:, 0]) < 0.1 * np.ptp(placed[:, 1])
