"""GP-GRIEF: features, likelihoods and their three paths, weights, staleness."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from compared import dense_marginal
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.features.eigenfunctions import node_masses
from pymc_scalable_gp.testing import check_feature_map, check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

FAST = {"mode": "FAST_COMPILE"}  # no Numba: these functions are called a few times


def toy(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    return X, y


def gauss(a, b, ell):
    d2 = (((a[:, None] - b[None]) / ell) ** 2).sum(-1)
    return np.exp(-0.5 * d2)


def cartesian(gp):
    """All grid points of a one-term GP."""
    return np.stack(np.meshgrid(*gp.feature_map.grids[0].nodes, indexing="ij"), -1).reshape(-1, 2)


# -- features -----------------------------------------------------------------------------------


def test_full_rank_features_are_the_nystrom_formula():
    """phi phi' = K_XU K_UU^-1 K_UX on the 5 x 5 grid; K_UU has condition number 3e5, hence 1e-8."""
    X, _ = toy(30, 2)
    ell = np.array([0.5, 0.7])
    gp = sgp.GriefGP(cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=ell), grid=5, rank=25)
    assert gp.build(X) == 25
    phi = gp.features(X).eval()
    U = cartesian(gp)
    cross = 2.0 * gauss(X, U, ell)
    expected = cross @ np.linalg.solve(2.0 * gauss(U, U, ell), cross.T)
    assert_allclose(phi @ phi.T, expected, atol=1e-8)
    check_feature_map(gp, X)


@pytest.mark.parametrize("rank", [1, 7, 24])
def test_truncated_features_keep_the_leading_eigenpairs(rank):
    """Those of V^1/2 K_UU V^1/2 with V the Kronecker product of the nodes' masses."""
    X, _ = toy(30, 2)
    ell = np.array([0.5, 0.7])
    gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), grid=5, rank=rank)
    gp.build(X)
    phi = gp.features(X).eval()
    U = cartesian(gp)
    nodes = gp.feature_map.grids[0].nodes
    root = np.sqrt(np.kron(*(node_masses(X[:, i], nodes[i]) for i in range(2))))
    values, vectors = np.linalg.eigh(root[:, None] * gauss(U, U, ell) * root)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    expected = (gauss(X, U, ell) * root) @ vectors / np.sqrt(values)
    assert_allclose(phi @ phi.T, expected @ expected.T, atol=1e-8)
    check_feature_map(gp, X)


def test_features_on_grid_points_reproduce_the_kernel():
    axes = [np.linspace(-1, 1, 4), np.array([0.0, 0.3, 1.0])]
    X = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.6), grid=axes, rank=12)
    phi = gp.features(X).eval()
    assert_allclose(phi @ phi.T, gauss(X, X, 0.6), atol=1e-9)


def test_sum_of_kernels_has_the_terms_features_side_by_side():
    X, _ = toy(30, 2)
    one = pm.gp.cov.ExpQuad(2, ls=0.8)
    two = 0.5 * pm.gp.cov.Matern32(2, ls=0.5, active_dims=[1])
    gp = sgp.GriefGP(cov_func=one + two + 0.3, grid=9, rank=90)
    assert gp.build(X) == 9 + 1 + 80
    phi = check_feature_map(gp, X)
    full = (one + two + 0.3)(X).eval()
    assert_allclose(np.linalg.norm(phi @ phi.T - full) / np.linalg.norm(full), 0, atol=0.02)


def test_a_hundred_dimensions():
    """A grid of 1e200 points: seconds, and only the leading products of eigenvalues."""
    X, _y = toy(50, 100)
    with pm.Model() as model:
        ell = pm.LogNormal("ell", np.log(20.0), 0.1, shape=100)
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(100, ls=ell), grid=100, rank=120)
        assert gp.build(X) == 120
    phi = check_feature_map(gp, X, model=model, tol=1e-7)
    share = (phi**2).sum(axis=1)
    assert share.min() > 0.95  # 120 features of lengthscale 20 hold nearly everything


def test_selection_is_deterministic_and_stays_when_parameters_move():
    X, _ = toy(40, 3)
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0.0, 1.0, shape=3)
        gps = [sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(3, ls=ell), rank=30) for _ in range(2)]
        for gp in gps:
            gp.build(X, point={"ell": np.array([0.3, 1.0, 3.0])})
    first, second = (gp.feature_map.grids[0].selection for gp in gps)
    assert_array_equal(first, second)
    used = first.max(axis=0)
    assert used[0] > used[1] > used[2]  # the shortest lengthscale needs most eigenfunctions
    phi = [evaluate([gp.features(X)], {"ell": np.array([2.0, 1.0, 0.5])}, model)[0] for gp in gps]
    assert_array_equal(phi[0], phi[1])
    assert_array_equal(gps[0].feature_map.grids[0].selection, first)


def test_constant_features_of_a_fixed_kernel_drop_null_directions():
    """Eigenvalues below rounding give features that are zero for ever: not worth a column."""
    X, _ = toy(30, 1)
    gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, ls=5.0), grid=20, rank=20)
    rank = gp.build(X)
    phi = gp.features(X).eval()
    assert rank < 15
    assert (np.abs(phi).max(axis=0) > 0).all()


# -- type II likelihood -------------------------------------------------------------------------


@pytest.mark.parametrize("approx", ["DTC", "FITC", "VFE"])
def test_marginal_logp_against_the_dense_normal(approx):
    X, y = toy(25, 2)
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3, shape=2)
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1)
        slope = pm.Normal("slope")
        cov = eta**2 * pm.gp.cov.ExpQuad(2, ls=ell)
        mean = pm.gp.mean.Linear(coeffs=slope * np.ones(2), intercept=0.5)
        gp = sgp.GriefGP(mean_func=mean, cov_func=cov, approx=approx, grid=6, rank=12)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    values = check_marginal_logp(gp, model, **FAST)
    # The same by SciPy, at the initial point.
    point = model.initial_point(0)
    named = {
        "ell": np.exp(point["ell_log__"]), "eta": np.exp(point["eta_log__"]),
        "sigma": np.exp(point["sigma_log__"]), "slope": point["slope"],
    }  # fmt: skip
    phi, kdiag, mu = evaluate([gp.features(X), cov(X, diag=True), mean(X)], named, model)
    expected = dense_marginal(phi, named["sigma"] ** 2, y - mu, kdiag=kdiag, approx=approx)
    assert_allclose(values[0], expected, rtol=1e-9)


@pytest.fixture(scope="module")
def type_two():
    X, y = toy(25, 2)
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3, shape=2)
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 1)
        cov = eta**2 * pm.gp.cov.ExpQuad(2, ls=ell)
        gp = sgp.GriefGP(cov_func=cov, grid=6, rank=12)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return gp, model


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "JAX"])
def test_gradient_of_the_model_against_differences(type_two, mode):
    """Through kernel, eigenproblems, Khatri-Rao products and likelihood at once."""
    if mode == "JAX":
        pytest.importorskip("jax")
    _, model = type_two
    values = model.value_vars
    logp = model.logp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = pytensor.function(values, [logp, *pt.grad(logp, values)], mode=mode)
    rng = np.random.default_rng(3)
    start = model.initial_point(0)
    point = [start[v.name] + 0.3 * rng.standard_normal(start[v.name].shape) for v in values]
    direction = [rng.standard_normal(p.shape) for p in point]
    _, *grads = function(*point)

    def shifted(step):
        return float(function(*(p + step * u for p, u in zip(point, direction, strict=True)))[0])

    step = 1e-4  # fourth-order differences: error ~ step^4, rounding 1e-12
    slope = (8 * (shifted(step) - shifted(-step)) - shifted(2 * step) + shifted(-2 * step)) / (12 * step)
    expected = sum((np.asarray(g) * u).sum() for g, u in zip(grads, direction, strict=True))
    assert_allclose(expected, slope, rtol=1e-7)


def test_logp_is_finite_and_its_gradient_too_at_extreme_lengthscales(type_two):
    """Nearly constant and nearly white kernels: equal and tiny eigenvalues."""
    _gp, model = type_two
    logp, dlogp = model.compile_logp(**FAST), model.compile_dlogp(**FAST)
    start = model.initial_point(0)
    for shift in (-4.0, 4.0, 8.0):
        point = {**start, "ell_log__": start["ell_log__"] + shift}
        assert np.isfinite(logp(point))
        assert np.isfinite(dlogp(point)).all()


def test_converges_to_the_exact_gp():
    """Errors in logp fall with rank and grid, to 1e-4 of the exact value."""
    X, y = toy(60, 2)
    cov = 1.3 * pm.gp.cov.ExpQuad(2, ls=[0.5, 0.8])
    K = cov(X).eval() + 0.1**2 * np.eye(60)
    exact = dense_marginal(np.linalg.cholesky(K - 0.05**2 * np.eye(60)), 0.05**2, y)
    errors = []
    for grid, rank in [(5, 10), (8, 30), (12, 80), (16, 200)]:
        gp = sgp.GriefGP(cov_func=cov, grid=grid, rank=rank)
        gp.build(X)
        phi = gp.features(X).eval()
        kdiag = cov(X, diag=True).eval()
        errors.append(abs(dense_marginal(phi, 0.01, y, kdiag=kdiag, approx="FITC") - exact))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4 * abs(exact)


# -- type I likelihood --------------------------------------------------------------------------


COV = 1.5 * pm.gp.cov.ExpQuad(2, ls=[0.6, 0.9])


def type_one(X, y, rotate=False, weighted=True, sigma=None, **kwargs):
    with pm.Model() as model:
        gp = sgp.GriefGP(cov_func=COV, grid=6, rank=15, rotate=rotate, approx="DTC")
        rank = gp.build(X)
        w = sgp.weights_prior("w", rank) if weighted else None
        sd = pm.HalfNormal("sigma", 1) if sigma is None else sigma
        gp.marginal_likelihood("y", X=X, y=y, sigma=sd, weights=w, **kwargs)
    return gp, model


def y_logp(model, w=None, sigma=0.3):
    point = {"sigma_log__": np.log(sigma)}
    if w is not None:
        point["w_log__"] = np.log(w)
    return float(model.compile_logp(vars=[model["y"]], **FAST)(point))


@pytest.mark.parametrize("rotate", [False, True])
def test_type_one_paths_against_the_dense_normal(rotate):
    X, y = toy(40, 2)
    gp, model = type_one(X, y, rotate)
    assert gp.likelihood_path == ("rotated" if rotate else "summarized")
    check_marginal_logp(gp, model, **FAST)
    phi = gp.features(X).eval()
    w = np.random.default_rng(4).lognormal(size=gp.rank)
    expected = dense_marginal(phi, 0.3**2, y, weights=w)
    assert_allclose(y_logp(model, w), expected, rtol=1e-9)
    if rotate:
        assert_allclose(phi.T @ phi, np.diag(np.diag(phi.T @ phi)), atol=1e-9)


def test_all_paths_agree_at_unit_weights():
    """w = 1 is the base kernel in the plain and in the orthogonal basis."""
    X, y = toy(40, 2)
    found, kinds = [], []
    for gp, model in (type_one(X, y, True), type_one(X, y, False)):
        found.append(y_logp(model, np.ones(gp.rank)))
        kinds.append(gp.likelihood_path)
    rows = type_one(X, y, False, sigma=0.3 * np.ones(40))  # a sigma per row: no summary
    found.append(float(rows[1].compile_logp(vars=[rows[1]["y"]], **FAST)({"w_log__": np.zeros(15)})))
    kinds.append(rows[0].likelihood_path)
    assert kinds == ["rotated", "summarized", "full"]
    assert_allclose(found[0], found[1], rtol=1e-9)
    assert_allclose(found[1], found[2], rtol=1e-9)


def test_rotated_features_are_the_plain_ones_times_v():
    X, y = toy(40, 2)
    gp, _ = type_one(X, y, True)
    plain, _ = type_one(X, y, False)
    V = gp.feature_map.rotation.vectors
    assert_allclose(V.T @ V, np.eye(gp.rank), atol=1e-12)
    Xnew, _ = toy(7, 2, seed=9)
    assert_allclose(gp.features(Xnew).eval(), plain.features(Xnew).eval() @ V, atol=1e-12)


def test_rotation_drops_directions_that_the_rows_cannot_see():
    X = np.repeat(toy(6, 2)[0], 3, axis=0)  # 6 distinct rows
    y = np.arange(18.0)
    gp, model = type_one(X, y, True)
    assert gp.rank == 6
    w = np.linspace(0.5, 2.0, 6)
    expected = dense_marginal(gp.features(X).eval(), 0.09, y, weights=w)
    assert_allclose(y_logp(model, w), expected, rtol=1e-9)


@pytest.mark.parametrize("rotate", [False, True])
def test_prediction_does_not_depend_on_the_path(rotate):
    X, y = toy(40, 2)
    Xnew = X[:5] * 0.9
    gp, model = type_one(X, y, rotate, weighted=False)
    assert gp.likelihood_path == ("rotated" if rotate else "summarized")
    point = {"sigma": 0.3}
    mean, cov = gp.predict(Xnew, point=point, model=model)
    plain = sgp.GriefGP(cov_func=COV, grid=6, rank=15)
    plain.build(X)
    phi, new = plain.features(X).eval(), plain.features(Xnew).eval()
    inner = np.linalg.inv(np.eye(15) + phi.T @ phi / 0.09)
    missed = 1.5 - (new**2).sum(axis=1)
    assert_allclose(mean, new @ inner @ phi.T @ y / 0.09, rtol=1e-7)
    assert_allclose(cov, new @ inner @ new.T + np.diag(missed), rtol=1e-6, atol=1e-9)


def test_weighted_prediction():
    X, y = toy(40, 2)
    Xnew = X[:5] * 0.9
    gp, model = type_one(X, y)
    w = np.linspace(0.5, 2.0, 15)
    mean, var = gp.predict(Xnew, point={"sigma": 0.3, "w": w}, diag=True, model=model)
    phi, new = gp.features(X).eval(), gp.features(Xnew).eval()
    inner = np.linalg.inv(np.diag(1 / w) + phi.T @ phi / 0.09)
    missed = 1.5 - (new**2).sum(axis=1)
    assert_allclose(mean, new @ inner @ phi.T @ y / 0.09, rtol=1e-7)
    assert_allclose(var, np.einsum("ij,jk,ik->i", new, inner, new) + missed, rtol=1e-6)


@pytest.mark.parametrize(
    ("mode", "variance"), [(1.0, 100.0), (0.5, 0.04), (2.0, 1e-4), (1e-3, 10.0), (3.0, 1e-14)]
)
def test_weights_prior_has_the_mode_and_variance_asked_for(mode, variance):
    with pm.Model():
        w = sgp.weights_prior("w", 3, mode=mode, variance=variance)
    mu, s = (p.eval().item() for p in w.owner.op.dist_params(w.owner))
    assert w.eval().shape == (3,)
    assert_allclose(np.exp(mu - s**2), mode, rtol=1e-8)
    assert_allclose(np.expm1(s**2) * np.exp(2 * mu + s**2), variance, rtol=1e-7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mode": np.inf}, "mode must be positive and finite, got inf"),
        ({"variance": np.inf}, "variance must be positive and finite, got inf"),
        ({"mode": np.ones(3)}, "mode must be a number, got ndarray"),
        ({"mode": "a"}, "mode must be a number, got str 'a'"),
    ],
)
def test_weights_prior_refuses_what_is_no_positive_number(given, words):
    with pm.Model(), pytest.raises((TypeError, ValueError), match=words):
        sgp.weights_prior("w", 3, **given)


# -- replaced data ------------------------------------------------------------------------------


def mutable(rotate, shared_x=True):
    X, y = toy(40, 2)
    with pm.Model() as model:
        Xd = pm.Data("X", X) if shared_x else X
        yd = pm.Data("y_data", y)
        gp = sgp.GriefGP(cov_func=COV, grid=6, rank=15, rotate=rotate)
        gp.build(Xd)
        sigma = pm.HalfNormal("sigma", 1)
        w = sgp.weights_prior("w", gp.rank)
        gp.marginal_likelihood("y", X=Xd, y=yd, sigma=sigma, weights=w)
    return gp, model, X, y


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("what", ["X", "y", "both"])
def test_set_data_never_gives_the_old_likelihood(rotate, what):
    gp, model, X, y = mutable(rotate)
    w = np.linspace(0.5, 2.0, gp.rank)
    point = {"sigma_log__": np.log(0.3), "w_log__": np.log(w)}
    stale = model.compile_logp(vars=[model["y"]], **FAST)
    old = float(stale(point))
    assert_allclose(old, dense_marginal(gp.features(X).eval(), 0.09, y, weights=w), rtol=1e-9)
    new_X, new_y = X[::-1] * 0.8, y + 1.0
    replaced = {"X": new_X} if what == "X" else {"y_data": new_y}
    if what == "both":
        replaced = {"X": new_X, "y_data": new_y}
    with model:
        pm.set_data(replaced)
    with pytest.raises(ValueError, match="the data behind a summarised likelihood"):
        stale(point)
    fresh = float(model.compile_logp(vars=[model["y"]], **FAST)(point))
    now_X = replaced.get("X", X)
    now_y = replaced.get("y_data", y)
    phi = gp.features(now_X).eval()
    assert_allclose(fresh, dense_marginal(phi, 0.09, now_y, weights=w), rtol=1e-8)
    assert abs(fresh - old) > 1.0


@pytest.mark.parametrize("rotate", [False, True])
def test_set_data_never_gives_the_old_prediction(rotate):
    """Nor after it is called a second time: predictions follow the data, and come back with them."""
    gp, model, X, y = mutable(rotate)
    w = np.linspace(0.5, 2.0, gp.rank)
    point = {"sigma": 0.3, "w": w}
    phi = gp.features(X).eval()
    inner = np.linalg.inv(np.diag(1 / w) + phi.T @ phi / 0.09)
    for shift in (0.0, 1.0, -2.0, 0.0):
        with model:
            pm.set_data({"y_data": y + shift})
        mean, _ = gp.predict(X[:4], point=point, diag=True, model=model)
        expected = phi[:4] @ inner @ phi.T @ (y + shift) / 0.09
        assert_allclose(mean, expected, rtol=1e-6, atol=1e-8)


def test_putting_the_data_back_takes_the_fast_path_again():
    gp, model, _X, y = mutable(False)
    w = np.ones(gp.rank)
    point = {"sigma_log__": np.log(0.3), "w_log__": np.log(w)}
    expected = float(model.compile_logp(vars=[model["y"]], **FAST)(point))
    with model:
        pm.set_data({"y_data": y + 1.0})
        pm.set_data({"y_data": y})
    assert_allclose(float(model.compile_logp(vars=[model["y"]], **FAST)(point)), expected, rtol=1e-12)


def test_a_copy_of_the_model_with_other_inputs():
    """pm.do copies the model and its shared data; the copy's X must count, not the original's."""
    gp, model, X, y = mutable(False)
    copied = pm.do(model, {"sigma": 0.3})
    with copied:
        pm.set_data({"X": X[::-1] * 0.8})
    point = {"w_log__": np.zeros(gp.rank)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = float(copied.compile_logp(vars=[copied["y"]], **FAST)(point))
    phi = gp.features(X[::-1] * 0.8).eval()
    assert_allclose(found, dense_marginal(phi, 0.09, y), rtol=1e-8)


# -- refusals -----------------------------------------------------------------------------------


def test_rotation_needs_a_fixed_kernel():
    X, y = toy(20, 1)
    with pm.Model():
        ell = pm.HalfNormal("ell")
        gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ell), rank=5, rotate=True)
        with pytest.raises(ValueError, match="rotate=True needs a kernel without free parameters"):
            gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)


def test_rotation_belongs_to_the_rows_it_was_built_on():
    X, y = toy(20, 2)
    with pm.Model():
        gp = sgp.GriefGP(cov_func=COV, rank=8, rotate=True)
        gp.build(X)
        with pytest.raises(ValueError, match="the rotated basis was built on other rows"):
            gp.marginal_likelihood("y", X=X[::-1], y=y, sigma=0.1)


def test_rotated_gps_cannot_be_added():
    gp = sgp.GriefGP(cov_func=COV, rotate=True)
    with pytest.raises(TypeError, match="rotate=True cannot be added"):
        gp + gp


def test_rank_before_build():
    with pytest.raises(AttributeError, match="call build"):
        _ = sgp.GriefGP(cov_func=COV).rank


def test_likelihood_path_before_a_likelihood():
    assert sgp.GriefGP(cov_func=COV).likelihood_path is None
