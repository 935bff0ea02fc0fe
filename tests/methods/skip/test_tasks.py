"""SKIP with tasks: the likelihood summed over tasks, predictions, latent functions, bad input."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.skip.gp import SKIPMarginal
from pymc_scalable_gp.methods.skip.hadamard import training_roots
from pymc_scalable_gp.methods.skip.tasks import TaskNormal
from pymc_scalable_gp.testing import check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

FAST = {"mode": "FAST_COMPILE"}
COV = pm.gp.cov.ExpQuad(3, ls=1.0, active_dims=[0, 1])
NOT_BY_TASK = (SKIPMarginal, "_is_by_task", staticmethod(lambda data: False))


def tasks(n=60, s=4, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, (n, 2)), rng.integers(0, s, n)])
    X[:s, 2] = np.arange(s)
    return X, rng.standard_normal(n), rng.standard_normal((s, 2))


@pytest.mark.parametrize("task", [1.7, -1.0, 4.0])
def test_tasks_that_replace_those_of_the_build_are_checked(task):
    """1.7 counted as task 1, and -1 as the last one."""
    X, y = tasks()[:2]
    with pm.Model() as model:
        data = pm.Data("X", X)
        gp = sgp.SKIPMarginal(cov_func=COV, rank=5, task_dim=2, task_cov=np.ones((4, 1)), approx="FITC")
        gp.marginal_likelihood("y", X=data, y=y, sigma=0.3)
        logp = model.compile_logp(**FAST)
        before = logp({})
        pm.set_data({"X": np.where((np.arange(len(X)) == 3)[:, None] & [False, False, True], task, X)})
        with pytest.raises(ValueError, match="tasks, column 2, are whole numbers from 0 below"):
            logp({})
        pm.set_data({"X": X})
        assert logp({}) == before


def exact(cov, X):
    return evaluate([cov(X)])[0]


def gram(gp, X, *args):
    phi = evaluate([gp.features(X)], *args)[0]
    return phi @ phi.T


def growth(X, y, approx="FITC", terms=1, name="y", s=4, **options):
    """Two shared parts and one of each task, all free."""
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
        B, v = pm.Normal("B", shape=(s, 2)), pm.HalfNormal("v", shape=s)
        cov = eta**2 * pm.gp.cov.ExpQuad(3, ls=ell, active_dims=[0, 1])
        if terms == 2:
            cov = cov + pm.gp.cov.ExpQuad(3, ls=2.0 * ell, active_dims=[0])
        gp = sgp.SKIPMarginal(
            cov_func=cov, approx=approx, rank=6, grid_size=20, task_dim=2, task_cov=B, task_var=v,
            mean_func=pm.gp.mean.Constant(0.3), **options,
        )  # fmt: skip
        gp.marginal_likelihood(name, X=X, y=y, sigma=pm.HalfNormal("sigma", 1))
    return gp, model


POINT = {
    "ell": 0.9, "eta": 1.2, "B": np.array([[1.0, 0.3], [0.5, -1.0], [-0.2, 0.8], [0.7, 0.1]]),
    "v": np.array([0.2, 1.5, 0.6, 0.9]), "sigma": 0.3,
}  # fmt: skip


def test_tasks_have_the_coregionalised_covariance():
    X, y, B = tasks()
    cov = pm.gp.cov.ExpQuad(3, ls=0.8, active_dims=[0, 1])
    gp = sgp.SKIPMarginal(cov_func=cov, rank=25, task_dim=2, task_cov=B)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.2)
        both = cov * pm.gp.cov.Coregion(3, W=B, kappa=np.zeros(4), active_dims=[2])
        reference = pm.gp.Marginal(cov_func=both)
        reference.marginal_likelihood("z", X=X, y=y, sigma=0.2)
    assert gp.rank == 50
    assert_allclose(gram(gp, X), exact(both, X), atol=2e-3)
    check_marginal_logp(gp, model, **FAST)
    new = X[:8] * [0.9, 0.9, 1.0]
    for found, wanted in zip(*(g.predict(new, {}, model=model) for g in (gp, reference)), strict=True):
        assert_allclose(found, wanted, atol=1e-2)


def test_random_task_factor_with_independent_parts():
    X, y, _ = tasks()
    cov = pm.gp.cov.ExpQuad(3, ls=0.8, active_dims=[0, 1])
    with pm.Model() as model:
        B, v = pm.Normal("B", shape=(4, 1)), pm.HalfNormal("v", shape=4)
        factor = pt.concatenate([B, pt.diag(pt.sqrt(v))], axis=1)
        gp = sgp.SKIPMarginal(cov_func=cov, rank=9, task_dim=-1, task_cov=factor)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.2)
    assert gp.rank == 45
    check_marginal_logp(gp, model, **FAST)
    point = {"B": np.arange(4.0)[:, None], "v": np.arange(1.0, 5.0)}
    diag = evaluate([gp.feature_map.kernel_diag(pt.constant(X))], point, model)[0]
    t = X[:, 2].astype(int)
    assert_allclose(diag, t**2.0 + t + 1.0)


@pytest.mark.parametrize(("approx", "terms"), often([("DTC", 1), ("FITC", 2), ("VFE", 1)], ("DTC", 1)))
def test_the_sum_over_tasks_is_the_density_of_the_features(approx, terms):
    X, y, _ = tasks()
    gp, model = growth(X, y, approx, terms)
    assert gp.likelihood_path == "tasks"
    assert gp.rank == 6 * (2 + 4) * terms
    check_marginal_logp(gp, model, **FAST)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
def test_the_sum_over_tasks_in_other_back_ends(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    X, y, _ = tasks(30)
    _, model = growth(X, y)
    found = []
    for each in ("FAST_COMPILE", mode):
        function = model.logp_dlogp_function(ravel_inputs=True, mode=each)
        function.set_extra_values({})
        found.append(function(0.1 * np.arange(15.0)))
    assert_allclose(found[1][0], found[0][0], rtol=1e-12)
    assert_allclose(found[1][1], found[0][1], rtol=1e-9, atol=1e-9)


def test_a_little_noise_cancels_no_digits():
    """``y'y / D`` is 1e15 here, and |beta|^2 what is left of it: the sum of squares never holds it."""
    X, _, B = tasks(40)
    cov = pm.gp.cov.ExpQuad(3, ls=0.8, active_dims=[0, 1])
    gp = sgp.SKIPMarginal(cov_func=cov, rank=5, task_dim=2, task_cov=B, approx="DTC")
    gp.build(X)
    phi = evaluate([gp.features(X)])[0]
    (n, r), noise = phi.shape, 1e-7
    beta = np.random.default_rng(1).standard_normal(r)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=phi @ beta, sigma=noise)
    singular = np.linalg.svd(phi, compute_uv=False)
    assert singular[-1] > 1e-3  # so that noise^2 beside its square is nothing
    logdet = 2.0 * np.log(singular).sum() + (n - r) * np.log(noise**2)
    expected = -0.5 * (logdet + beta @ beta + n * np.log(2 * np.pi))
    assert_allclose(model.compile_logp(**FAST)({}), expected, rtol=1e-8)


@pytest.mark.parametrize("approx", ["DTC", "FITC"])
def test_predictions_are_those_of_the_features(approx, monkeypatch):
    X, y, _ = tasks()
    rng = np.random.default_rng(3)
    new = np.column_stack([rng.uniform(-1, 1, (9, 2)), np.arange(9) % 4])
    gp, model = growth(X, y, approx)
    monkeypatch.setattr(*NOT_BY_TASK)
    dense, other = growth(X, y, approx)
    assert dense.likelihood_path == "full"
    for diag in (True, False):
        found = gp.predict(new, POINT, diag=diag, pred_noise=diag, model=model)
        expected = dense.predict(new, POINT, diag=diag, pred_noise=diag, model=other)
        assert_allclose(found[0], expected[0], atol=1e-8)
        assert_allclose(found[1], expected[1], atol=1e-8)
    given = {"X": X[:30], "y": y[:30], "sigma": 0.4}
    found = gp.predict(new, POINT, given=given, model=model)
    expected = dense.predict(new, POINT, given=given, model=other)
    assert_allclose(found[0], expected[0], atol=1e-8)
    assert_allclose(found[1], expected[1], atol=1e-8)


def test_given_rows_beyond_the_grids_are_refused():
    """They counted as noise alone: the features of the posterior have no ends of their own."""
    X, y, B = tasks()
    gp = sgp.SKIPMarginal(cov_func=COV, rank=6, grid_size=20, task_dim=2, task_cov=B, approx="DTC")
    with pm.Model():
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.2)
        assert gp.likelihood_path == "tasks"
        near, far = ({"X": np.add(X, [by, 0.0, 0.0]), "y": y, "sigma": 0.2} for by in (0.05, 3.0))
        assert np.isfinite(gp.predict(X[:3], {}, given=near)[0]).all()
        with pytest.raises(ValueError, match="column 0 of X reaches .* call gp.build"):
            gp.predict(X[:3], {}, given=far)


def test_draws_of_the_conditional_and_of_the_prior():
    X, y, _ = tasks()
    new = X[:4] * [0.9, 0.9, 1.0]
    gp, model = growth(X, y)
    with model:
        f = gp.conditional("f", new, jitter=0.0, shape=(20_000, 4))
    mean, cov = gp.predict(new, POINT, model=model)
    draws = pm.draw(pm.do(model, POINT)[f.name], random_seed=0, **FAST)
    error = np.sqrt(np.diag(cov) / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * error).all()
    assert_allclose(np.cov(draws.T), cov, atol=0.03 * np.diag(cov).max())

    rng = np.random.default_rng(0)
    A, B, v = rng.standard_normal((5, 3)), rng.standard_normal((3, 2)), np.array([0.0, 0.5, 2.0])
    task, D = np.array([0, 1, 1, 2, 2]), np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    params = map(pt.as_tensor, (np.full(5, 0.7), D, A, task, B, v, 0.0))
    prior = TaskNormal(*params).dist(size=200_000)
    draws = pm.draw(prior, random_seed=1, **FAST)
    shared = (B @ B.T)[np.ix_(task, task)] + np.where(task[:, None] == task, v[task], 0.0)
    expected = (A @ A.T) * shared + np.diag(D)
    assert_allclose(draws.mean(axis=0), 0.7, atol=4 * np.sqrt(expected.max() / 200_000))
    assert_allclose(np.cov(draws.T), expected, atol=0.01 * expected.max())


def test_a_task_without_rows_has_the_prior_that_is_its_own():
    X, y, _ = tasks(40)
    with pytest.warns(UserWarning, match="1 tasks have no rows"):
        gp, model = growth(X[X[:, 2] < 3], y[X[:, 2] < 3])
    alone = POINT | {"B": POINT["B"] * [[1.0], [1.0], [1.0], [0.0]]}
    mean, var = gp.predict(np.array([[0.1, 0.2, 3.0]]), alone, diag=True, model=model)
    assert_allclose(mean, 0.3, atol=1e-12)
    assert_allclose(var, 1.2**2 * 0.9, rtol=1e-9)


def test_the_posterior_is_mixed_over_draws():
    X, y, _ = tasks(30)
    gp, model = growth(X, y)
    with model:
        idata = pm.sample_prior_predictive(5, random_seed=0, compile_kwargs=FAST)
        found = gp.predict_posterior(X[:5], idata["prior"].to_dataset(), progressbar=False)
    draws = idata["prior"].to_dataset().isel(chain=0)
    parts = [
        gp.predict(X[:5], {k: draws[k][i].values for k in POINT}, diag=True, model=model) for i in range(5)
    ]
    means, variances = np.array(parts).transpose((1, 0, 2))
    assert_allclose(found["mean"], means.mean(axis=0), rtol=1e-10)
    assert_allclose(found["sd"] ** 2, variances.mean(axis=0) + means.var(axis=0), rtol=1e-10)


def test_factors_larger_than_the_features_take_the_features():
    X, y, _ = tasks(30)
    with pm.Model():
        gp = sgp.SKIPMarginal(cov_func=COV, rank=3, task_dim=2, task_cov=np.ones((4, 25)))
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)
    assert gp.likelihood_path == "full"
    with pm.Model():
        data = pm.Data("X", X)
        gp = sgp.SKIPMarginal(cov_func=COV, rank=3, task_dim=2, task_cov=np.ones((4, 1)))
        gp.marginal_likelihood("y", X=data, y=y, sigma=0.1)
    assert gp.likelihood_path == "full"


def test_sums_and_products_take_own_variances_too():
    X, y, _ = tasks(25)
    v = np.array([0.2, 1.5, 0.6, 0.9])
    options = {"rank": 3, "task_dim": 2, "task_cov": np.ones((4, 1)), "task_var": v}
    with pm.Model() as model:
        first = sgp.SKIPMarginal(cov_func=COV, **options)
        second = sgp.SKIPMarginal(cov_func=pm.gp.cov.Linear(3, c=0.0, active_dims=[1]), rank=1)
        total = first + second
        total.marginal_likelihood("y", X=X, y=y, sigma=0.3)
    check_marginal_logp(total, model, **FAST)
    with pm.Model():
        gp = sgp.SKIPMarginal(cov_func=COV, n_iter=25, **options)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.3)
    A, B, C, D = evaluate(training_roots(gp.training.data))
    assert_allclose((A @ A.T) * (B @ B.T) + (C @ C.T) * (D @ D.T), gram(gp, X), atol=1e-12)


def test_named_dims_do_as_a_shape_does():
    X, y, _ = tasks()

    def logp(of_factor, of_variances):
        with pm.Model(coords={"task": range(4), "part": range(2)}) as model:
            gp = sgp.SKIPMarginal(
                cov_func=COV, rank=6, grid_size=20, task_dim=2, task_cov=pm.Normal("B", **of_factor),
                task_var=pm.LogNormal("v", **of_variances),
            )  # fmt: skip
            gp.marginal_likelihood("y", X=X, y=y, sigma=0.3)
        point = {"B": POINT["B"], "v_log__": np.log(POINT["v"])}
        return model.compile_logp(mode="FAST_COMPILE")(point), gp.likelihood_path

    named = logp({"dims": ("task", "part")}, {"dims": "task"})
    shaped = logp({"shape": (4, 2)}, {"shape": 4})
    assert named[1] == shaped[1] == "tasks"
    assert_allclose(named[0], shaped[0], rtol=1e-10)


def test_latent_functions_of_tasks():
    X, _, _ = tasks(30)
    v = np.array([0.2, 1.5, 0.6, 0.9])
    for changing in (False, True):
        with pm.Model() as model:
            inputs = pm.Data("X", X) if changing else X
            gp = sgp.SKIPLatent(cov_func=COV, rank=4, task_dim=2, task_cov=POINT["B"], task_var=v)
            f = gp.prior("f", X=inputs)
        coef = np.random.default_rng(0).standard_normal(gp.rank)
        phi = evaluate([gp.features(X)])[0]
        assert_allclose(evaluate([f], {"f_coeffs": coef}, model)[0], phi @ coef, atol=1e-12)
    t = X[:, 2].astype(int)
    scale = (POINT["B"] @ POINT["B"].T + np.diag(v))[np.ix_(t, t)]
    gp = sgp.SKIPLatent(cov_func=COV, rank=20, task_dim=2, task_cov=POINT["B"], task_var=v)
    gp.build(X)
    assert_allclose(gram(gp, X), exact(COV, X) * scale, atol=1e-3)


def test_a_matrix_that_is_not_definite_gives_nan():
    X, y, _ = tasks(20)
    _, model = growth(X, y)
    function = model.compile_logp(vars=[model["y"]], **FAST)
    start = model.initial_point()
    assert np.isfinite(function(start))
    assert np.isnan(function(start | {"eta_log__": np.array(np.nan)}))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"task_dim": 2}, ValueError, "go together"),
        ({"task_dim": "t", "task_cov": np.eye(2)}, TypeError, "index of a column"),
        ({"task_dim": True, "task_cov": np.eye(2)}, TypeError, "index of a column"),
        ({"task_dim": 2, "task_cov": np.ones(3)}, ValueError, r"task_cov must be a factor B"),
        ({"task_var": np.ones(3)}, ValueError, "task_var goes with task_dim and task_cov"),
        ({"task_dim": 2, "task_cov": np.eye(2), "task_var": np.ones(3)}, ValueError, "2 rows"),
        ({"task_dim": 2, "task_cov": np.eye(2), "task_var": 1.0}, ValueError, "one variance per task"),
        ({"task_dim": 2, "task_cov": np.eye(2), "task_var": [1.0, -1.0]}, ValueError, "negative"),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        sgp.SKIPMarginal(**({"cov_func": COV} | options))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({2: 0.5}, r"has 0.5 as task in row 3, column 2"),
        ({2: -1.0}, "has -1 as task in row 3"),
        ({2: 4.0}, "has 4 as task in row 3, column 2: tasks are whole numbers from 0 below 4"),
    ],
)
def test_bad_tasks(change, match):
    X, _, B = tasks()
    gp = sgp.SKIPMarginal(cov_func=COV, rank=5, task_dim=2, task_cov=B)
    gp.build(X)
    bad = X.copy()
    for column, value in change.items():
        bad[3, column] = value
    with pytest.raises(ValueError, match=match):
        gp.build(bad)
    with pm.Model() as model:
        gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=0.1)
    with pytest.raises(ValueError, match="Xnew " + match):
        gp.predict(bad, {}, model=model)


def test_what_is_just_possible():
    """As many columns as nodes; tasks in the last column, without functions of their own."""
    X, _, B = tasks()
    found = []
    for options in ({"task_dim": 2}, {"task_dim": -1, "task_var": np.zeros(len(B))}):
        gp = sgp.SKIPMarginal(cov_func=COV, rank=6, grid_size=6, task_cov=B, **options)
        gp.build(X)
        assert gp.feature_map.task_dim == 2
        found.append(gram(gp, X))
    assert_allclose(*found, atol=1e-12)


def test_task_columns_that_cannot_be():
    X, _, B = tasks()
    with pytest.raises(ValueError, match="task_dim=3, but X has 3 columns"):
        sgp.SKIPMarginal(cov_func=COV, task_dim=3, task_cov=B).build(X)
    with pytest.raises(ValueError, match="cov_func uses column 1, the task"):
        sgp.SKIPMarginal(cov_func=COV, task_dim=1, task_cov=B).build(X)
    with pytest.warns(UserWarning, match=r"1 tasks have no rows \(task 3\)"):
        sgp.SKIPMarginal(cov_func=COV, rank=5, task_dim=2, task_cov=B).build(X[X[:, 2] < 3])
