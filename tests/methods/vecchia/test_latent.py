"""VecchiaLatent: the prior is the kernel's, predictions go on from a draw."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.vecchia.gp import PivotMap
from pymc_scalable_gp.utils.compiled import evaluate

rng = np.random.default_rng(0)
N = 24
X = rng.uniform(-2.0, 2.0, (N, 2))
NEW = rng.uniform(-2.0, 2.0, (6, 2))
COV = 1.5 * pm.gp.cov.Matern52(2, ls=0.9)


def model_of(**settings):
    with pm.Model() as model:
        gp = sgp.VecchiaLatent(cov_func=COV, **settings)
        f = gp.prior("f", X)
    return model, gp, f


def jacobian(model, f, sizes):
    """Columns of f for each of the white variables."""
    at = {name: np.zeros(size) for name, size in sizes.items()}
    columns = []
    for name, size in sizes.items():
        for i in range(size):
            columns.append(evaluate([f], at | {name: np.eye(size)[i]}, model)[0])
    return np.array(columns).T


@pytest.mark.parametrize("settings", [
    {"n_inducing": 5, "neighbors": N, "block": 4},
    {"n_inducing": 0, "neighbors": N, "block": 1},
])  # fmt: skip
def test_with_all_neighbors_the_prior_is_the_kernels(settings):
    model, gp, f = model_of(**settings)
    J = jacobian(model, f, {"f_coeffs": gp.rank, "f_white": N})
    assert_allclose(J @ J.T, COV(X).eval(), atol=1e-5)  # a jitter of 1.5e-6 and its effects


def test_variances_are_exact_with_few_neighbors():
    model, gp, f = model_of(n_inducing=5, neighbors=4, block=3)
    J = jacobian(model, f, {"f_coeffs": gp.rank, "f_white": N})
    assert_allclose(np.diag(J @ J.T), 1.5, atol=0.02)
    assert np.abs(J @ J.T - COV(X).eval()).max() < 0.25


@pytest.fixture(scope="module")
def drawn():
    model, gp, f = model_of(n_inducing=5, neighbors=N, block=4)
    point = {"f_coeffs": rng.standard_normal(gp.rank), "f_white": rng.standard_normal(N)}
    return model, gp, point, evaluate([f], point, model)[0]


def test_predictions_follow_from_the_draw(drawn):
    """All rows are neighbours: the mean and variance of a Gaussian given f at X.

    The points are rows, so that f tells the coefficients. The jitters, a millionth of the variance, are
    amplified by K^-1: means move by up to 3e-3, and by 3e-5 with jitters of a billionth.
    """
    model, gp, point, f = drawn
    K, cross = COV(X).eval(), COV(NEW, X).eval()
    expected = cross @ np.linalg.solve(K + 1.5e-6 * np.eye(N), f)
    left = COV(NEW).eval() - cross @ np.linalg.solve(K + 1.5e-6 * np.eye(N), cross.T)
    with model:
        mean, var = gp.predict(NEW, point, diag=True)
        joint, cov = gp.predict(NEW, point)
        at_rows = gp.predict(X, point, diag=True)
    assert_allclose(mean, expected, atol=3e-3)
    assert_allclose(var, np.diag(left), atol=1e-5)
    assert_allclose(joint, expected, atol=0.05)  # a new row pushes out the farthest training rows
    assert_allclose(cov, left, atol=0.01)
    assert_allclose(at_rows[0], f, atol=5e-3)
    assert_allclose(at_rows[1], 0.0, atol=1e-5)


def test_far_away_the_prior_returns(drawn):
    model, gp, point, _ = drawn
    with model:
        mean, var = gp.predict(NEW + 50.0, point, diag=True)
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(var, 1.5, rtol=1e-6)


def test_without_neighbors_predictions_carry_what_is_missed():
    model, gp, _ = model_of(n_inducing=5, neighbors=None)
    assert [v.name for v in model.free_RVs] == ["f_coeffs"]
    with model:
        _, var = gp.predict(NEW, {"f_coeffs": np.zeros(5)}, diag=True)
        phi = evaluate([gp.features(NEW)])[0]
    assert_allclose(var, 1.5 - (phi**2).sum(axis=1), rtol=1e-9)
    gp + gp


@pytest.mark.slow
def test_gradient_with_counts():
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3)
        gp = sgp.VecchiaLatent(cov_func=pm.gp.cov.Matern52(2, ls=ell), n_inducing=4, block=3,
                               neighbors=5)  # fmt: skip
        f = gp.prior("f", X)
        pm.Poisson("counts", pm.math.exp(f), observed=np.arange(N) % 3)
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    x = 0.3 * rng.standard_normal(1 + 4 + N)
    _, slope = function(x)
    for _ in range(4):
        direction = rng.standard_normal(len(x))
        step = 1e-5 * direction
        difference = (function(x + step)[0] - function(x - step)[0]) / 2e-5
        assert_allclose(slope @ direction, difference, rtol=1e-6)


def test_replaced_inputs_and_rebuild():
    with pm.Model() as model:
        data = pm.Data("X", X)
        gp = sgp.VecchiaLatent(cov_func=COV, n_inducing=4, neighbors=N, block=3)
        f = gp.prior("f", data)
        gp.rebuild()
    at = {"f_coeffs": np.ones(4), "f_white": np.ones(N)}
    before = evaluate([f], at, model)[0]
    with model:
        pm.set_data({"X": X + 0.1})
        with pytest.raises(ValueError, match="X was replaced"):
            evaluate([f], at, model)
        gp.rebuild()
        after = evaluate([f], at, model)[0]
    assert_allclose(after, before, atol=1e-6)  # a stationary kernel, all rows moved alike


def test_neighbors_and_points_go_by_the_point_of_the_build():
    with pm.Model():
        ell = pm.LogNormal("ell", 0.0, 1.0, shape=2)
        gp = sgp.VecchiaLatent(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), n_inducing=3, neighbors=4, block=2)
        point, other = {"ell": np.array([0.1, 10.0])}, {"ell": np.array([10.0, 0.1])}
        gp.build(X, point=point)
        gp.prior("f", X)
        own = gp.local.order(gp.cov_func, X, point).neighbors
        assert np.array_equal(gp.training.plan.neighbors.get_value(), own)
        assert not np.array_equal(gp.local.order(gp.cov_func, X).neighbors, own)
        gp.rebuild(other)
    assert_allclose(gp.reference["ell"], other["ell"])


def test_rows_beyond_those_of_the_build_have_neighbors():
    gp = sgp.VecchiaLatent(cov_func=COV, n_inducing=5, neighbors=4)
    gp.build(X)
    with pm.Model():
        assert gp.prior("f", X + 10.0).eval().shape == (N,)


def test_points_that_are_fewer_than_before_leave_old_ones_in_the_places_left():
    points = PivotMap(COV, X, X[:4])
    points.move(X[10:12])
    assert_allclose(points.points.get_value(), X[[10, 11, 0, 1]])


def test_words():
    cov = pm.gp.cov.ExpQuad(2, ls=1.0)
    gp = sgp.VecchiaLatent(cov_func=cov)
    with pytest.raises(TypeError, match="do not add"):
        gp + gp
    with pytest.raises(ValueError, match="rebuild is for"):
        gp.rebuild()
    with pytest.raises(TypeError, match="VecchiaMarginal"):
        gp.marginal_likelihood("y", X=X, y=X[:, 0], sigma=1.0)
