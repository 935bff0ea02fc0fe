"""SoftKI: features, likelihood paths, points with priors, latent form, the paper's QR system."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from compared import dense_marginal
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg
from scipy.special import softmax

import pymc_scalable_gp as sgp
from pymc_scalable_gp.testing import check_feature_map, check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

FAST = {"mode": "FAST_COMPILE"}  # no Numba: these functions are called a few times
JITTER = 1e-6  # of the mean prior variance at the points


def toy(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    return X, y


def distance(a, b):
    return np.sqrt(((a[:, None] - b) ** 2).sum(-1))


def gauss(a, b, ell):
    return np.exp(-0.5 * distance(a / ell, b / ell) ** 2)


def hyper(d):
    ell = pm.InverseGamma("ell", 3, 3, shape=d)
    eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1)
    return ell, eta, sigma


# -- features -----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.3, np.array([0.5, 1.0, 2.0])])
def test_features_interpolate_the_kernel_between_points(temperature):
    X, _ = toy(30, 3)
    Z, _ = toy(6, 3, seed=1)
    cov = 2.0 * pm.gp.cov.ExpQuad(3, ls=0.7)
    gp = sgp.SoftKIMarginal(cov_func=cov, inducing=Z, temperature=temperature)
    assert gp.build(X) == 6
    phi = check_feature_map(gp, X, tol=2 * JITTER)
    weights = softmax(-distance(X / temperature, Z / temperature), axis=1)
    K = 2.0 * gauss(Z, Z, 0.7) + 2.0 * JITTER * np.eye(6)
    assert_allclose(phi @ phi.T, weights @ K @ weights.T, atol=1e-13)


def test_features_at_low_temperature_are_the_nearest_points_values():
    X, _ = toy(30, 2)
    gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.5), inducing=X, temperature=1e-4)
    phi = gp.features(X).eval(**FAST)
    assert_allclose(phi @ phi.T, gauss(X, X, 0.5), atol=2 * JITTER)


@pytest.mark.parametrize(
    "cov",
    [
        pm.gp.cov.Matern52(3, ls=0.8),
        pm.gp.cov.RatQuad(3, ls=0.8, alpha=1.5),
        pm.gp.cov.ExpQuad(3, ls=[0.5, 1.0, 2.0]) + 0.5 * pm.gp.cov.Matern32(3, active_dims=[1], ls=1),
        pm.gp.cov.Linear(3, c=0.3) + 0.1,
    ],
    ids=["Matern52", "RatQuad", "sum", "linear"],
)
def test_any_kernel(cov):
    X, y = toy(25, 3)
    with pm.Model() as model:
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=8)
        gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1))
    assert gp.likelihood_path == "summarized"
    check_marginal_logp(gp, model, mode="FAST_COMPILE")


def test_weights_use_the_kernels_columns_only():
    X, _ = toy(20, 3)
    cov = pm.gp.cov.ExpQuad(3, active_dims=[0, 2], ls=0.7)
    gp = sgp.SoftKIMarginal(cov_func=cov, inducing=5)
    phi = gp.features(X).eval(**FAST)
    Z = gp.inducing.eval()[:, [0, 2]]
    weights = softmax(-distance(X[:, [0, 2]], Z), axis=1)
    expected = weights @ gauss(Z, Z, 0.7) @ weights.T
    assert_allclose(phi @ phi.T, expected, atol=2 * JITTER)


def test_kmeans_points_follow_the_seed():
    X, _ = toy(60, 2)
    cov = pm.gp.cov.ExpQuad(2, ls=1)
    points = []
    for seed in (0, 0, 1):
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=7)
        gp.build(X, random_seed=seed)
        points.append(gp.inducing.eval())
    assert_array_equal(points[0], points[1])
    assert (points[0] != points[2]).any()


def test_interpolation_at_the_data_approaches_the_exact_gp():
    """With every row a point and a low temperature the kernel is the exact one."""
    X, y = toy(40, 2)
    cov = pm.gp.cov.Matern52(2, ls=0.8)
    with pm.Model() as model:
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=X, temperature=1e-3)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.2)
        pm.gp.Marginal(cov_func=cov).marginal_likelihood("z", X=X, y=y, sigma=0.2)
    ours, exact = model.compile_fn(model.logp(sum=False), inputs=[], **FAST)({})
    assert_allclose(ours.sum(), exact.sum(), atol=1e-3)  # jitter of 1e-6 against sigma^2 = 0.04


# -- likelihood ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("approx", "path"), [("DTC", "summarized"), ("FITC", "full"), ("VFE", "full")])
def test_marginal_logp_against_the_dense_normal(approx, path):
    X, y = toy(30, 3)
    with pm.Model() as model:
        ell, eta, sigma = hyper(3)
        cov = eta**2 * pm.gp.cov.ExpQuad(3, ls=ell)
        gp = sgp.SoftKIMarginal(cov_func=cov, approx=approx, inducing=9)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    assert gp.likelihood_path == path
    check_marginal_logp(gp, model, **FAST)


@pytest.mark.parametrize("reason", ["points", "temperature", "sigma per row", "mean", "pm.Data"])
def test_full_path_where_something_of_size_n_is_free(reason):
    X, y = toy(25, 2)
    options, Xu, mean = {}, None, None
    with pm.Model() as model:
        ell, eta, sigma = hyper(2)
        if reason == "points":
            Xu = pm.Normal("Xu", 0, 0.5, shape=(4, 2))
        elif reason == "pm.Data":
            Xu = pm.Data("Xu", X[:4])
        elif reason == "temperature":
            options["temperature"] = pm.LogNormal("T", 0, 0.5)
        elif reason == "mean":
            # A product: not linear in its coefficients, as far as its parts tell.
            mean = pm.gp.mean.Constant(pm.Normal("c")) * pm.gp.mean.Constant(2.0)
        else:
            sigma = sigma * np.linspace(0.5, 1.5, 25)
        cov = eta**2 * pm.gp.cov.ExpQuad(2, ls=ell)
        gp = sgp.SoftKIMarginal(mean_func=mean, cov_func=cov, inducing=4, **options)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma, Xu=Xu)
    assert gp.likelihood_path == "full"
    check_marginal_logp(gp, model, mode="FAST_COMPILE")


def test_both_paths_agree_and_the_summarised_one_needs_no_rows():
    X, y = toy(400, 3)
    found = {}
    for path, sigma in {"summarized": 0.1, "full": np.full(400, 0.1)}.items():
        with pm.Model() as model:
            ell, eta, _ = hyper(3)
            cov = eta**2 * pm.gp.cov.ExpQuad(3, ls=ell)
            gp = sgp.SoftKIMarginal(cov_func=cov, inducing=20)
            gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        assert gp.likelihood_path == path
        logp = model.logp(vars=[model["y"]])
        value = model.compile_fn(
            [logp, *pt.grad(logp, model.value_vars[:2])],
            inputs=model.value_vars,
            on_unused_input="ignore",
            **FAST,
        )
        found[path] = value(model.initial_point(0))
        if path == "summarized":
            sizes = [
                v.data.shape
                for v in pytensor.graph.traversal.ancestors([logp])
                if isinstance(v, pytensor.graph.basic.Constant) and getattr(v.data, "ndim", 0) == 2
            ]
            assert max((s[0] for s in sizes), default=0) <= 20
    for a, b in zip(*found.values(), strict=True):
        assert_allclose(a, b, rtol=1e-9)


def test_memory_mapped_rows(tmp_path):
    X, y = toy(5000, 3)
    file = np.memmap(tmp_path / "X", dtype="float64", mode="w+", shape=X.shape)
    file[:] = X
    logps = []
    for rows in (X, file):
        with pm.Model() as model:
            gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(3, ls=1), inducing=X[:10])
            gp.marginal_likelihood("y", X=rows, y=y, sigma=0.1)
        logps.append(model.compile_logp(**FAST)({}))
    assert logps[0] == logps[1]


def test_new_data_are_summarised_when_the_density_is_built():
    X, y = toy(60, 2)
    with pm.Model() as model:
        data_X, data_y = pm.Data("X", X), pm.Data("y_data", y)
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1), inducing=8)
        gp.marginal_likelihood("y", X=data_X, y=data_y, sigma=pm.HalfNormal("sigma", 1))
        assert gp.likelihood_path == "summarized"
        X2, y2 = toy(35, 2, seed=3)
        pm.set_data({"X": 0.8 * X2, "y_data": y2})  # within the first ones' range
        logp = model.compile_fn(model.logp(vars=[model["y"]]), **FAST)
    point = model.initial_point(0)
    phi = gp.features(0.8 * X2).eval(**FAST)
    sigma = np.exp(point["sigma_log__"])
    assert_allclose(logp(point), dense_marginal(phi, sigma**2, y2), rtol=1e-8)


# -- the paper's formulation --------------------------------------------------------------------


def paper_alpha(W, K, noise, y, solver, dtype="float64"):
    """Weights a of the posterior mean ``w(x)' K a`` by the paper's equations.

    ``C a = K W' y / noise`` with ``C = K + K W' W K / noise``; "qr" solves the least squares problem
    ``[W K / noise^1/2; U] a = [y / noise^1/2; 0]`` with ``K = U' U`` instead.
    """
    W, K, y = (a.astype(dtype) for a in (W, K, y))
    scale = np.asarray(1.0 / np.sqrt(noise), dtype)
    tall = W @ K * scale
    if solver == "qr":
        U = linalg.cholesky(K)
        Q, R = linalg.qr(np.concatenate([tall, U]), mode="economic")
        return linalg.solve_triangular(R, Q[: len(y)].T @ (y * scale))
    C = K + tall.T @ tall
    if solver == "cholesky":
        return linalg.cho_solve(linalg.cho_factor(C), tall.T @ (y * scale))
    a, step = np.zeros(len(K), dtype), tall.T @ (y * scale)  # conjugate gradients
    rest = step.copy()
    for _ in range(500):
        Cp = C @ step
        size = (rest @ rest) / (step @ Cp)
        a, new = a + size * step, rest - size * Cp
        if np.linalg.norm(new) < 1e-4 * np.linalg.norm(tall.T @ (y * scale)):
            break
        step, rest = new + step * (new @ new) / (rest @ rest), new
    return a


def fitted(noise=1e-3):
    rng = np.random.default_rng(0)
    X, y = toy(300, 3)
    Z = X[:40] + 0.1 * rng.standard_normal((40, 3))
    cov = 2.0 * pm.gp.cov.ExpQuad(3, ls=0.8)
    with pm.Model() as model:
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=Z)
        gp.marginal_likelihood("y", X=X, y=y, sigma=np.sqrt(noise))
    K = 2.0 * gauss(Z, Z, 0.8) + 2.0 * JITTER * np.eye(40)
    return gp, model, X, y, Z, softmax(-distance(X, Z), axis=1), K


def test_posterior_mean_is_that_of_the_papers_qr_system():
    gp, model, X, y, Z, W, K = fitted()
    Xnew, _ = toy(50, 3, seed=5)
    Xnew = np.clip(Xnew, X.min(axis=0), X.max(axis=0))
    mean, var = gp.predict(Xnew, {}, diag=True, model=model)
    alpha = paper_alpha(W, K, 1e-3, y, "qr")
    w = softmax(-distance(Xnew, Z), axis=1)
    assert_allclose(mean, w @ K @ alpha, atol=1e-8)
    C = K + K @ W.T @ W @ K / 1e-3
    # k~ - k~(x, X) (k~ + noise I)^-1 k~(X, x) = w' K C^-1 K w
    assert_allclose(var, np.einsum("ij,ij->i", w @ K, np.linalg.solve(C, K @ w.T).T), atol=1e-8)


def test_little_noise_needs_qr():
    """The paper's B.3: squaring doubles the digits lost; the prediction keeps what its QR keeps."""
    gp, model, X, y, _Z, W, K = fitted(noise=1e-10)
    exact = W @ K @ paper_alpha(W, K, 1e-10, y, "qr")

    def error(fit):
        return np.linalg.norm(fit - exact) / np.linalg.norm(exact)

    found = error(gp.predict(X, {}, diag=True, model=model)[0])
    assert found < 1e-7
    assert error(W @ K @ paper_alpha(W, K, 1e-10, y, "cholesky")) > 10 * found


# -- predictions --------------------------------------------------------------------------------


@pytest.mark.parametrize("approx", ["DTC", "FITC"])
def test_far_from_the_data_the_prior_returns(approx):
    X, y = toy(60, 3)
    with pm.Model() as model:
        cov = 4.0 * pm.gp.cov.Matern52(3, ls=0.5)
        mean = pm.gp.mean.Constant(7.0)
        gp = sgp.SoftKIMarginal(mean_func=mean, cov_func=cov, approx=approx, inducing=10)
        gp.marginal_likelihood("y", X=X, y=y + 7.0, sigma=0.1)
    with pytest.warns(UserWarning, match=r"column 0 reaches \d+.* beyond the training inputs"):
        mu, var = gp.predict(np.full((1, 3), 30.0), {}, diag=True, model=model)
    assert_allclose(mu, 7.0, atol=1e-8)
    assert_allclose(var, 4.0, rtol=1e-8)


def test_extrapolation_is_continuous_and_warns_only_outside():
    X, y = toy(60, 2)
    with pm.Model() as model:
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.5), inducing=10)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)
    edge = X[:, 0].max()
    steps = edge + np.array([-1e-6, 1e-6])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mu, var = gp.predict(np.column_stack([steps, [0.0, 0.0]]), {}, diag=True, model=model)
    assert abs(mu[1] - mu[0]) < 1e-4
    assert abs(var[1] - var[0]) < 1e-4


def test_a_nonstationary_kernel_extrapolates_as_it_is():
    X, y = toy(60, 2)
    with pm.Model() as model:
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.Linear(2, c=0.0), inducing=10)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)
    with pytest.warns(UserWarning, match="beyond.* stay what they are at the edge"):
        mu, _ = gp.predict(np.full((1, 2), 30.0), {}, diag=True, model=model)
    assert np.isfinite(mu).all()


# -- latent -------------------------------------------------------------------------------------


def test_latent_and_marginal_have_the_same_posterior_of_f():
    """The latent posterior under a normal likelihood is normal: find it by linear algebra."""
    X, y = toy(50, 3)
    Xnew, _ = toy(20, 3, seed=2)
    cov, sigma = 1.5 * pm.gp.cov.Matern32(3, ls=0.8), 0.2
    with pm.Model() as marginal:
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=X[:12])
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    mean, var = gp.predict(Xnew, {}, diag=True, model=marginal)
    with pm.Model() as latent:
        gp = sgp.SoftKILatent(cov_func=cov, inducing=X[:12])
        f = gp.prior("f", X=X)
        z = latent["f_coeffs"]
        phi = pytensor.function([z], f, **FAST)(np.zeros(12))
        phi = np.stack([pytensor.function([z], f, **FAST)(row) for row in np.eye(12)], axis=1)
        precision = np.eye(12) + phi.T @ phi / sigma**2
        coef = np.linalg.solve(precision, phi.T @ y / sigma**2)
        mu, missed = gp.predict(Xnew, {"f_coeffs": coef}, diag=True, model=latent)
        new = gp.features(Xnew).eval(**FAST)
    spread = np.einsum("ij,ij->i", new, np.linalg.solve(precision, new.T).T)
    assert_allclose(mu, mean, atol=1e-10)
    assert_allclose(missed + spread, var, atol=1e-10)


def test_latent_with_fixed_points_computes_the_weights_once():
    X, _ = toy(50, 3)
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3)
        gp = sgp.SoftKILatent(cov_func=pm.gp.cov.ExpQuad(3, ls=ell), inducing=8)
        f = gp.prior("f", X=X)
    ops = {type(v.owner.op).__name__ for v in pytensor.graph.traversal.ancestors([f]) if v.owner}
    assert "SoftmaxInterpolation" not in ops
    point = {"ell": 0.7, "f_coeffs": np.arange(8.0)}
    values, phi = evaluate([f, gp.features(X)], point, model)
    assert_allclose(values, phi @ np.arange(8.0), rtol=1e-12)


def test_latent_points_may_be_random_and_data_may_change():
    X, _ = toy(30, 2)
    with pm.Model() as model:
        data = pm.Data("X", X)
        gp = sgp.SoftKILatent(cov_func=pm.gp.cov.ExpQuad(2, ls=0.7), inducing=5)
        f = gp.prior("f", X=data, Xu=pm.Normal("Xu", shape=(5, 2)))
        pm.Potential("tilt", f.sum())
        pm.set_data({"X": X[:7]})
        drawn = pm.draw(f, random_seed=0, mode="FAST_COMPILE")
    assert drawn.shape == (7,)
    logp = model.compile_dlogp(mode="FAST_COMPILE")
    assert np.isfinite(logp(model.initial_point(0))).all()


@pytest.mark.parametrize("how", ["array", "pm.set_data", "sum", "random"])
@pytest.mark.parametrize("kind", ["ExpQuad", "Linear"])
def test_latent_values_a_little_beyond_the_range_are_those_of_predictions(how, kind):
    """Within the margin that is not refused they were a function that does not fade."""
    X, _ = toy(60, 2)
    moved = X + 0.03 * np.ptp(X, axis=0)
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0.0, 0.3)
        cov = pm.gp.cov.ExpQuad(2, ls=ell) if kind == "ExpQuad" else pm.gp.cov.Linear(2, c=ell)
        gp = sgp.SoftKILatent(cov_func=cov, inducing=8)
        gp.build(X)
        if how == "sum":
            other = sgp.SoftKILatent(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), inducing=5)
            other.build(X)
            gp = gp + other
        rows = {"pm.set_data": lambda: pm.Data("X", X), "random": lambda: pm.Normal("X", X, shape=X.shape)}
        f = gp.prior("f", rows.get(how, lambda: moved)())
        if how == "pm.set_data":
            pm.set_data({"X": moved})
        random = {"X": moved} if how == "random" else {}
        point = {"ell": 1.3, "f_coeffs": np.arange(float(gp.rank))} | random
        (values,) = evaluate([f], point, model)
        mean, _ = gp.predict(moved, point, diag=True)
    assert_allclose(mean, values, rtol=1e-9)


# -- wrong calls --------------------------------------------------------------------------------

COV = pm.gp.cov.ExpQuad(3, ls=1.0)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"inducing": 0}, ValueError, "inducing must be at least 1, got 0"),
        ({"inducing": True}, TypeError, "inducing must be an int"),
        ({"inducing": 9.5}, ValueError, r"inducing must have shape \(n, d\)"),
        ({"inducing": "many"}, TypeError, "inducing must be numeric"),
        ({"inducing": np.eye(2)}, ValueError, "inducing has 2 columns, .* built on 3"),
        ({"inducing": np.full((4, 3), np.inf)}, ValueError, "inducing has 12 NaN or infinite"),
        ({"inducing": 31}, ValueError, "inducing=31 points need as many distinct rows.* has 30"),
        ({"temperature": 0.0}, ValueError, "temperature must be positive"),
        ({"temperature": -np.ones(3)}, ValueError, "temperature must be positive"),
        ({"temperature": np.ones(2)}, ValueError, "temperature has 2 values, but X has 3 columns"),
        ({"temperature": np.eye(3)}, ValueError, "temperature must be a scalar or have shape"),
    ],
)
def test_bad_options(options, error, match):
    X, _ = toy(30, 3)
    with pytest.raises(error, match=match):
        sgp.SoftKIMarginal(cov_func=COV, **({"inducing": 5} | options)).build(X)


def test_duplicate_points_warn():
    X, _ = toy(30, 3)
    with pytest.warns(UserWarning, match=r"2 of the 6 points in inducing are duplicates: drop"):
        sgp.SoftKIMarginal(cov_func=COV, inducing=X[[0, 1, 2, 3, 0, 1]])


def test_duplicate_rows_are_too_few_for_kmeans():
    X = np.repeat(np.eye(3), 40, axis=0)
    with pytest.raises(ValueError, match=r"inducing=20.*distinct"):
        sgp.SoftKIMarginal(cov_func=COV, inducing=20).build(X)


def test_one_row_and_more_points_than_rows():
    """Given points may outnumber the rows: the likelihood is as good."""
    X, y = toy(30, 3)
    for n in (1, 4):
        with pm.Model() as model:
            sigma = pm.HalfNormal("sigma", 1)
            gp = sgp.SoftKIMarginal(cov_func=COV, inducing=X[:10])
            gp.marginal_likelihood("y", X=X[:n], y=y[:n], sigma=sigma)
        assert gp.likelihood_path == "summarized"
        check_marginal_logp(gp, model, mode="FAST_COMPILE")


def test_points_are_known_after_build():
    gp = sgp.SoftKIMarginal(cov_func=COV, inducing=5)
    with pytest.raises(AttributeError, match="build"):
        _ = gp.rank
    with pytest.raises(AttributeError, match="build"):
        _ = gp.inducing


def test_points_learned_inside_the_model():
    """MAP over points with a prior, as in pm.gp.MarginalApprox, fits better than where it began."""
    X, y = toy(80, 1)
    y = np.sin(6.0 * X[:, 0])
    with pm.Model() as model:
        Xu = pm.Normal("Xu", 0.0, 0.5, shape=(8, 1), initval=np.linspace(-0.3, 0.3, 8)[:, None])
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=0.3), temperature=0.1)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1, Xu=Xu)
        start = model.initial_point(0)
        found = pm.find_MAP(
            progressbar=False, return_inferencedata=True, jitter=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )  # fmt: skip
    best = found["posterior"]["Xu"].values[0, 0]
    errors = []
    for point in (start, {"Xu": best}):
        mean, _ = gp.predict(X, point, diag=True, model=model)
        errors.append(np.sqrt(np.mean((mean - y) ** 2)))
    assert errors[1] < 0.5 * errors[0]
    assert np.ptp(best) > 1.2  # they spread over the data from a third of their range


def test_the_variance_between_range_and_prior():
    """Beyond the range: s + (1 - delta^2)^5 (k - s), s the variance at its edge, delta the decay."""
    X, y = toy(40, 2)
    with pm.Model() as model:
        cov = 2.0 * pm.gp.cov.ExpQuad(2, ls=0.5)
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=8)
        gp.marginal_likelihood("y", X=X, y=y, sigma=1e4)  # the data say nothing
    new = np.tile(X.mean(axis=0), (4, 1))
    edge = new.copy()
    edge[:, 0] = X[:, 0].max()
    beyond = np.array([0.0, 0.05, 0.2, 0.6])
    new[:, 0] = edge[:, 0] + beyond
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        var = gp.predict(new, {}, diag=True, model=model)[1]
    held = (gp.features(edge).eval() ** 2).sum(axis=1)
    decay = np.exp(-0.5 * (beyond / 0.5) ** 2)
    assert_allclose(var, held + (1.0 - decay**2) ** 5 * (2.0 - held), rtol=1e-6)
    assert held.max() < 1.9


# -- points that nobody chose ---------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "copies", "count"), [(30, 1, 15), (31, 3, 15), (1, 4, 1)])
def test_default_points_are_half_the_distinct_rows(rows, copies, count):
    X = np.tile(toy(rows, 2)[0], (copies, 1))
    gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1))
    assert gp.build(X) == count
    assert "inducing=None" in repr(gp)


def test_default_points_are_512_of_many_rows():
    gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1))
    assert gp.build(toy(1100, 2)[0]) == 512


def test_default_points_say_what_they_lose():
    """The share is that of the prior variance at the initial point; the distance is a temperature."""
    X = np.linspace(0.0, 10.0, 40)[:, None]
    cov = 4.0 * pm.gp.cov.ExpQuad(1, ls=0.5)
    said = "20 k-means centres .* averages away 65% .* distance between points"
    gp = sgp.SoftKIMarginal(cov_func=cov)
    with pm.Model(), pytest.warns(UserWarning, match=said) as caught:
        gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=0.1)
    assert caught[0].filename == __file__
    phi = gp.features(X).eval(**FAST)
    assert f"{1.0 - (phi**2).sum(axis=1).mean() / 4.0:.0%}" in str(caught[0].message)
    Z = gp.inducing.eval()
    apart = np.median((distance(Z, Z) + 1e9 * np.eye(20)).min(axis=1))
    assert str(caught[0].message).endswith(f" {apart:.2g}")
    with pm.Model(), pytest.warns(UserWarning, match=said):
        sgp.SoftKILatent(cov_func=cov).prior("f", X)


@pytest.mark.parametrize("inducing", [None, 15])
def test_points_among_inputs_in_metres_make_a_staircase(inducing):
    X = 5e5 + np.random.default_rng(0).uniform(0.0, 2000.0, (60, 2))
    gp = sgp.SoftKILatent(cov_func=pm.gp.cov.ExpQuad(2, ls=800.0), inducing=inducing)
    said = "of the rows one of the .* points has all of the weight.*: standardise X, or raise temperature"
    with pm.Model(), pytest.warns(UserWarning, match=said):
        gp.prior("f", X)


def test_a_single_point_is_not_told_of_the_temperature():
    """Half as many as there are distinct rows: whatever the temperature, the function is a constant."""
    X = (np.arange(30) % 2.0)[:, None]
    gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    said = r"one of the 1 points has all of the weight.*: give more points, inducing=np.unique\(X, axis=0\)"
    with pm.Model(), pytest.warns(UserWarning, match=said):
        gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=0.2)


@pytest.mark.parametrize(
    ("inducing", "said"), [(5, "give more points, as most are"), (20, "raise temperature")]
)
def test_distances_between_points_are_those_within_labels(inducing, said):
    """Labels are laid apart by a million widths, which no temperature should reach."""
    rng = np.random.default_rng(1)
    X = np.column_stack([1e3 * rng.standard_normal(60), np.arange(60) % 4])
    cov = sgp.cov.PerGroup(pm.gp.cov.Matern52, 2, ls=2e3, group_dim=1)
    gp = sgp.SoftKIMarginal(cov_func=cov, inducing=inducing)
    with pm.Model(), pytest.warns(UserWarning, match=f"all of the weight.*{said}"):
        gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=0.2)
    assert (gp.feature_map.spacing < 1e4) is (inducing == 20)


@pytest.mark.parametrize(
    "options", [{"inducing": 20}, {"inducing": np.linspace(0, 10, 20)[:, None]}, {"Xu": True}]
)
def test_points_that_were_chosen_draw_no_warning(options):
    X = np.linspace(0.0, 10.0, 40)[:, None]
    Xu = X[::2] if options.pop("Xu", False) else None
    gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5), **options)
    with pm.Model():
        gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=0.1, Xu=Xu)
    assert gp.rank == 20


def test_default_points_that_lose_little_draw_no_warning():
    X, y = toy(40, 1)
    with pm.Model():
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), temperature=0.05)
        gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)


def test_training_takes_the_default_points():
    X, y = toy(40, 2)
    with pm.Model():
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
        fit = sgp.fit_inducing(gp, X, y, 0.1, epochs=1, progressbar=False, random_seed=0)
        again = sgp.fit_inducing(gp, X, y, 0.1, epochs=1, start=fit, progressbar=False)
    assert fit.Z.shape == again.Z.shape == (20, 2)


def test_new_inputs_beyond_the_range_are_evaluated_row_by_row():
    """Features fade there with the kernel's own parameters: no summary holds them."""
    X, y = toy(60, 2)
    with pm.Model() as model:
        data = pm.Data("X", X)
        ell = pm.LogNormal("ell", 0.0, 0.3)
        gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), inducing=8)
        gp.marginal_likelihood("y", X=data, y=y, sigma=0.3)
        moved = X + 0.02 * np.ptp(X, axis=0)  # within the margin that is not refused
        pm.set_data({"X": moved})
        with pytest.warns(UserWarning, match="beyond the range"):
            logp = model.compile_fn(model.logp(vars=[model["y"]]), **FAST)
        mean, _ = gp.predict(moved[:3], {"ell": 1.3}, diag=True)
    (phi,) = evaluate([gp.features(moved)], {"ell": 1.3}, model)
    found = logp({"ell_log__": np.log(1.3)})
    assert_allclose(found, dense_marginal(phi, 0.09, y), rtol=1e-8)
    weights = np.linalg.solve(phi.T @ phi / 0.09 + np.eye(8), phi.T @ y / 0.09)
    assert_allclose(mean, phi[:3] @ weights, rtol=1e-7)
