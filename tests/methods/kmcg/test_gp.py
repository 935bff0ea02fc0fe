"""KMCG: the paper's equations, grids against arrays, sums, breakdown, predictions on grids."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from compared import dense_marginal, draw_many, figures_at
from marks import often
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.kmcg.basis import choose_rows
from pymc_scalable_gp.methods.kmcg.krylov_normal import KrylovNormal
from pymc_scalable_gp.testing import check_marginal_logp
from pymc_scalable_gp.utils.compiled import evaluate

FAST = {"mode": "FAST_COMPILE"}  # no Numba: these functions are called a few times
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (40, 2))
Y = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(40)
XNEW = RNG.uniform(-1.0, 1.0, (5, 2))
AXES = [np.linspace(0.0, 3.0, 7), np.array([0.0, 0.5, 0.7, 1.5, 2.0])]
MASK = RNG.random((7, 5)) > 0.25
SERIES = np.delete(np.arange(400.0) / 20.0, np.r_[50:80, 200:203])


def kernel(a, b, ell=0.6):
    return 1.3**2 * np.exp(-0.5 * (((a[:, None] - b) / ell) ** 2).sum(-1))


def cg_directions(A, b, steps):
    """Search directions of conjugate gradients, made conjugate to all earlier ones."""
    r, S = b.copy(), []
    for _ in range(steps):
        s = r.copy()
        for _ in range(2):
            for old in S:
                s -= old * (old @ A @ s) / (old @ A @ old)
        S.append(s / np.linalg.norm(s))
        coef = (S[-1] @ r) / (S[-1] @ A @ S[-1])
        r = r - coef * (A @ S[-1])
    return np.column_stack(S)


def marginal(X, y, sigma=0.2, d=2, ell=0.6, probes=0, **options):
    """The paper's form by default."""
    with pm.Model() as model:
        cov = 1.3**2 * pm.gp.cov.ExpQuad(d, ls=ell)
        gp = sgp.KMCGMarginal(cov_func=cov, probes=probes, **options)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return gp, model


# -- the paper -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [None, np.arange(0, 40, 2)], ids=["all", "subset"])
def test_equations_of_the_paper(rows):
    """Equations 14 to 16 with the search directions of conjugate gradients."""
    steps, noise = 7, 0.04
    inner = slice(None) if rows is None else rows
    K_M, K_X = kernel(X[inner], X[inner]), kernel(X, X[inner])
    S = cg_directions(K_M, Y[inner], steps)
    R, SKS = (K_X @ S).T, S.T @ K_M @ S
    core = R @ R.T + noise * SKS
    mean = kernel(XNEW, X[inner]) @ S @ np.linalg.solve(core, R @ Y)
    k_new = kernel(XNEW, X[inner]) @ S
    var = 1.3**2 - np.diag(k_new @ np.linalg.solve(SKS, k_new.T))
    var += noise * np.diag(k_new @ np.linalg.solve(core, k_new.T))
    evidence = -0.5 / noise * (Y @ Y - Y @ R.T @ np.linalg.solve(core, R @ Y))
    evidence -= 0.5 * np.linalg.slogdet(core)[1] - 0.5 * np.linalg.slogdet(SKS)[1]
    evidence -= 0.5 * (40 - steps) * np.log(noise) + 0.5 * 40 * np.log(2 * np.pi)

    gp, model = marginal(X, Y, n_iter=steps, inducing=rows)
    found = gp.predict(XNEW, {}, diag=True, model=model)
    assert_allclose(found[0], mean, rtol=1e-8)
    assert_allclose(found[1], var, rtol=1e-8)
    assert_allclose(model.compile_logp(**FAST)({}), evidence, rtol=1e-10)


def test_density_and_predictions_reach_the_exact_ones():
    errors = []
    exact_cov = kernel(X, X) + 0.04 * np.eye(40)
    exact = dense_marginal(np.linalg.cholesky(exact_cov - 0.04 * np.eye(40) + 1e-12 * np.eye(40)),
                           0.04, Y)  # fmt: skip
    weights = np.linalg.solve(exact_cov, kernel(X, XNEW))
    for steps in (5, 15, 40):
        gp, model = marginal(X, Y, n_iter=steps)
        mean, var = gp.predict(XNEW, {}, diag=True, model=model)
        logp = float(model.compile_logp(**FAST)({}))
        errors.append([
            abs(logp - exact),
            np.abs(mean - weights.T @ Y).max(),
            np.abs(var - 1.3**2 + np.diag(kernel(XNEW, X) @ weights)).max(),
        ])  # fmt: skip
    errors = np.array(errors)
    assert (np.diff(errors, axis=0) < 0).all()
    # The jitter on T, 1e-12 of its trace, leaves its square root.
    assert_allclose(errors[-1], 0.0, atol=1e-5)


def test_far_away_the_prior_returns():
    gp, model = marginal(X, Y, n_iter=10)
    mean, var = gp.predict(X[:2] + 50.0, {}, diag=True, model=model)
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(var, 1.3**2, rtol=1e-12)


def test_residual_is_that_of_conjugate_gradients():
    """Of the system with the noise; without it K alone took more steps than were needed."""
    gp, model = marginal(X, Y, n_iter=8)
    for noise in (0.0, 0.04):
        A = kernel(X, X) + noise * np.eye(40)
        found = gp.feature_map.krylov.residuals([{}], model, noise)[0, [0, 3, 7]]
        assert_allclose(found, [left(A, Y, steps) for steps in (1, 4, 8)], rtol=1e-6)
    report = figures_at(gp, {}, model=model)
    assert report["residual"] == found[-1]
    assert report["steps_needed"] == np.inf
    assert 0.0 < report["missing_mean"] < 1.0


def left(A, b, steps):
    """Share of b that conjugate gradients leave after so many steps."""
    S = cg_directions(A, b, steps)
    return np.linalg.norm(b - A @ S @ np.linalg.solve(S.T @ A @ S, S.T @ b)) / np.linalg.norm(b)


def test_residuals_of_repeated_rows_and_of_a_nearly_singular_kernel():
    """K alone has no solution there: the residual was called 0.0 after it broke down, or never fell."""
    places = np.tile(np.arange(10), 4)
    rows, y = X[:10][places], Y + 0.3 * RNG.standard_normal(40)
    sums = np.bincount(places, y) / 2.0  # of the four targets of each row, as the system of D k D has them
    for steps in (4, 7):
        for options in ({}, {"approx": "FITC"}):
            gp, model = marginal(rows, y, 0.3, n_iter=steps, **options)
            own = left(4.0 * kernel(X[:10], X[:10]) + 0.09 * np.eye(10), sums, steps)
            assert_allclose(figures_at(gp, {}, model=model)["residual"], own, rtol=1e-6)
    gp, model = marginal(rows, y, 0.3, n_iter=7, probes=2)
    A = kernel(rows, rows) + 0.09 * np.eye(40)
    assert_allclose(figures_at(gp, {}, model=model)["residual"], left(A, y, 7), rtol=1e-6)
    smooth, model = marginal(X, Y, 0.3, ell=8.0, n_iter=12)
    assert figures_at(smooth, {}, model=model)["residual"] < 1e-3
    alone = smooth.feature_map.krylov.residuals([{}], model)[0]
    # No combination of the few functions that K has there is nearer to y, whose residuals they share.
    values, vectors = np.linalg.eigh(kernel(X, X, 8.0))
    beyond = vectors[:, values < 1e-12 * values[-1]]
    assert alone[-1] > np.linalg.norm(beyond.T @ Y) / np.linalg.norm(Y)


def test_residuals_of_a_subset_and_of_one_sigma_for_each_row():
    """The noise of a subset's rows is less by what the others tell; many sigmas count by information."""
    inner = np.arange(0, 40, 2)
    K = kernel(X[inner], X[inner])
    sigmas = np.linspace(0.1, 0.4, 40)
    for sigma, noise in ((0.2, 0.04), (sigmas, 1.0 / np.mean(sigmas**-2.0))):
        gp, model = marginal(X, Y, sigma, n_iter=6, inducing=inner)
        own = left(K + 0.5 * noise * np.eye(20), Y[inner], 6)
        assert_allclose(figures_at(gp, {}, model=model)["residual"], own, rtol=1e-6)


# -- densities of every form ----------------------------------------------------------------------


FORMS = {
    "array": (X, Y, {}),
    "subset": (X, Y, {"inducing": 20}),
    "VFE": (X, Y, {"approx": "VFE"}),
    "FITC": (X, Y, {"approx": "FITC"}),
    "grid": (sgp.RegularGrid(AXES), RNG.standard_normal((7, 5)), {}),
    "gaps": (sgp.RegularGrid(AXES, MASK), RNG.standard_normal((7, 5)), {}),
    "gaps, FITC": (sgp.RegularGrid(AXES, MASK), RNG.standard_normal((7, 5)), {"approx": "FITC"}),
}


ALIKE = ("VFE", "grid", "FITC")  # the same graphs are in the others


@pytest.mark.parametrize(
    "form", [pytest.param(each, marks=pytest.mark.slow if each in ALIKE else ()) for each in FORMS]
)
def test_density_and_gradient(form):
    inputs, targets, options = FORMS[form]
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 3, shape=2)
        eta, sigma, slope = pm.HalfNormal("eta"), pm.HalfNormal("sigma"), pm.Normal("slope")
        gp = sgp.KMCGMarginal(
            mean_func=pm.gp.mean.Linear(coeffs=pt.stack([slope, 0.0])),
            cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=ell), n_iter=6, probes=0, **options,
        )  # fmt: skip
        gp.marginal_likelihood("y", X=inputs, y=targets, sigma=sigma)
    check_marginal_logp(gp, model, **FAST)


def test_one_sigma_a_row():
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(2, ls=pm.HalfNormal("ell"))
        gp = sgp.KMCGMarginal(cov_func=cov, n_iter=6, probes=0)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=np.linspace(0.1, 0.3, 40))
    check_marginal_logp(gp, model, **FAST)


@pytest.mark.parametrize(
    "cov",
    [
        pytest.param(1.7 * pm.gp.cov.ExpQuad(2, ls=[0.8, 1.3]), marks=pytest.mark.slow),
        pm.gp.cov.ExpQuad(2, ls=1.0) + 0.3 * pm.gp.cov.Matern32(2, active_dims=[1], ls=0.5),
        pm.gp.cov.Linear(2, c=0.5, active_dims=[0]) * pm.gp.cov.Periodic(2, 1.0, ls=1, active_dims=[1]),
        pytest.param(
            sgp.cov.Product(pm.gp.cov.Matern52, 2, ls=[0.8, 1.3]), marks=pytest.mark.slow
        ),
    ],
    ids=["ExpQuad", "sum", "not stationary", "Matern"],
)  # fmt: skip
def test_grid_is_the_array_of_its_points(cov):
    grid = sgp.RegularGrid(AXES, MASK)
    y = RNG.standard_normal(grid.n)
    whole = sgp.RegularGrid(AXES)
    found = []
    for inputs in (grid, grid.points):
        with pm.Model() as model:
            gp = sgp.KMCGMarginal(cov_func=cov, n_iter=9, probes=0)
            gp.marginal_likelihood("y", X=inputs, y=y, sigma=0.3)
        at_points = gp.predict(whole.points, {}, diag=True, pred_noise=True, model=model)
        at_cells = gp.predict(whole, {}, diag=True, pred_noise=True, model=model)
        joint = gp.predict(whole, {}, model=model)[1]
        assert_allclose(np.diag(joint) + 0.09, at_points[1], rtol=1e-8)
        found.append(np.r_[model.compile_logp(**FAST)({}), *at_points, *at_cells])
    # Rounding of the products, over the square root of the smallest Ritz value.
    assert_allclose(found[0], found[1], rtol=1e-7, atol=1e-8)
    assert_allclose(found[0][1:71], found[0][71:], rtol=1e-8, atol=1e-9)


def test_long_series_with_gaps_is_toeplitz():
    grid, order = sgp.RegularGrid.from_points(SERIES)
    assert grid.shape == (400,)
    assert grid.n == len(SERIES)
    assert_allclose(grid.points[:, 0], SERIES[order], atol=1e-12)
    y = np.sin(SERIES)
    logps = []
    for inputs in (grid, SERIES[:, None]):
        _, model = marginal(inputs, y, d=1, ell=0.5, n_iter=12, probes=0)
        logps.append(float(model.compile_logp(**FAST)({})))
    assert_allclose(*logps, rtol=1e-9)
    assert any(type(f).__name__ == "Toeplitz" for f in _factors(grid))


def _factors(grid):
    from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator

    return kernel_operator(pm.gp.cov.ExpQuad(1, ls=0.5), grid, grid).operator.operator.factors


# -- the log determinant of the kernel itself --------------------------------------------------------


def test_probes_replace_the_determinant_only():
    """``-2 log p`` is the features' quadratic form plus the probes' estimate plus a constant."""
    grid, steps = sgp.RegularGrid(AXES, MASK), 6
    y = RNG.standard_normal(grid.n)
    gp, model = marginal(grid, y, n_iter=steps, probes=3)
    signs = 2.0 * np.random.default_rng(0).integers(0, 2, (3, grid.n), dtype=np.int8) - 1.0
    K = kernel(grid.points, grid.points)
    logs = []
    for z in signs:
        Q = np.linalg.qr(np.column_stack([np.linalg.matrix_power(K, k) @ z for k in range(steps)]))[0]
        values, vectors = np.linalg.eigh(Q.T @ K @ Q)
        first = vectors.T @ (Q.T @ z)
        logs.append(first**2 @ np.log(values + 0.04))
    with model:
        phi = evaluate([gp.features(grid.points)], {}, model)[0]
    quadratic = y @ np.linalg.solve(phi @ phi.T + 0.04 * np.eye(grid.n), y)
    expected = -0.5 * (quadratic + np.mean(logs) + grid.n * np.log(2 * np.pi))
    assert_allclose(model.compile_logp(**FAST)({}), expected, rtol=1e-7)
    # Other targets, of which the basis knows nothing: the same determinant, and a warning.
    with pm.Model() as other:
        gp.marginal_likelihood("y", X=grid, y=y, sigma=0.2)
    with pytest.warns(UserWarning, match="steps start at the targets that the model was written with"):
        value = pm.logp(other["y"], pt.constant(y + 1.0))
    quadratic = (y + 1.0) @ np.linalg.solve(phi @ phi.T + 0.04 * np.eye(grid.n), y + 1.0)
    expected = -0.5 * (quadratic + np.mean(logs) + grid.n * np.log(2 * np.pi))
    assert_allclose(value.eval(**FAST), expected, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:the log determinant is estimated")
def test_gradient_with_probes():
    targets = np.random.default_rng(17).standard_normal((7, 5))
    with pm.Model() as model:
        ell, eta, sigma = (pm.Flat(name) for name in ("ell", "eta", "sigma"))
        cov = pm.math.exp(eta) * pm.gp.cov.ExpQuad(2, ls=pm.math.exp(ell))
        gp = sgp.KMCGMarginal(cov_func=cov, n_iter=8, probes=2)
        gp.marginal_likelihood("y", X=sgp.RegularGrid(AXES, MASK), y=targets, sigma=pm.math.exp(sigma))
    logp, dlogp = model.compile_logp(**FAST), model.compile_dlogp(**FAST)
    point = {"ell": np.array(-0.2), "eta": np.array(0.1), "sigma": np.array(-1.5)}
    gradient = dlogp(point)
    for name, slope in zip(("ell", "eta", "sigma"), gradient, strict=True):
        ends = [logp(point | {name: point[name] + s * 1e-6}) for s in (1, -1)]
        # The difference of two densities of size 100 is known to 1e-7 of the step and no better.
        assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:the log determinant is estimated")
@pytest.mark.parametrize("ell", [0.05, *(pytest.param(ell, marks=pytest.mark.slow) for ell in (0.02, 0.2))])
def test_gradient_on_a_square_grid_with_more_steps_than_eigenvalues(ell):
    """28 distinct eigenvalues, all near 1 where the lengthscale is below the spacing, and 40 steps."""
    axis = np.linspace(0.0, 1.0, 7)
    with pm.Model() as model:
        t = pm.Flat("t")
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.math.exp(t)), n_iter=40, probes=2)
        gp.decomposes = False
        gp.marginal_likelihood(
            "y", X=sgp.RegularGrid([axis, axis]), y=np.random.default_rng(3).standard_normal((7, 7)),
            sigma=0.3,
        )  # fmt: skip
    logp, dlogp = model.compile_logp(**FAST), model.compile_dlogp(**FAST)
    at, step = np.log(ell), 1e-5
    slope = (logp({"t": at + step}) - logp({"t": at - step})) / (2.0 * step)
    # Rounding of two densities of 100, and the curvature over the step.
    assert_allclose(dlogp({"t": at}), [slope], rtol=1e-6, atol=1e-6)


def test_probes_keep_the_lengthscale_where_features_alone_lose_it():
    """Few steps, many degrees of freedom: without probes shorter lengthscales win."""
    n, series = 400, np.arange(400.0)
    K = np.exp(-0.5 * (series[:, None] - series) ** 2 / 3.0**2)
    y = np.linalg.cholesky(K + 1e-8 * np.eye(n)) @ RNG.standard_normal(n)
    y += 0.1 * RNG.standard_normal(n)
    ells, found = np.array([0.2, 2.0, 3.0, 4.5]), {}
    for probes in (0, 8):
        with pm.Model() as model:
            ell = pm.Flat("ell")
            gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell), n_iter=40, probes=probes)
            gp.decomposes = False
            gp.marginal_likelihood("y", X=sgp.RegularGrid([series]), y=y, sigma=0.1)
        logp = model.compile_logp(**FAST)
        found[probes] = [float(logp({"ell": value})) for value in ells]
    assert ells[np.argmax(found[0])] < 3.0
    assert ells[np.argmax(found[8])] == 3.0


def test_probes_that_cannot_be_used():
    with pytest.raises(ValueError, match='probes need approx="DTC"'):
        sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), approx="VFE", probes=2)
    with pytest.raises(ValueError, match="probes must be at least 0"):
        sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), probes=-1)
    gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_iter=5, probes=2)
    with pm.Model(), pytest.raises(ValueError, match="probes need one sigma"):
        gp.marginal_likelihood("y", X=X, y=Y, sigma=np.full(40, 0.1))


def test_rows_that_are_replaced_are_told_apart_anew():
    """Each was there twice when the model was written."""
    with pm.Model() as model:
        data = pm.Data("X", np.vstack([X[:20], X[:20]]))
        gp = sgp.KMCGMarginal(cov_func=1.3**2 * pm.gp.cov.ExpQuad(2, ls=0.6), probes=0, n_iter=7)
        gp.marginal_likelihood("y", X=data, y=Y, sigma=0.2)
        pm.set_data({"X": X})
    _, fresh = marginal(X, Y, n_iter=7)
    assert_allclose(model.compile_logp(**FAST)({}), fresh.compile_logp(**FAST)({}), rtol=1e-9)


def test_a_subset_may_be_of_all_rows():
    assert_allclose(choose_rows(40, 40), np.arange(40))
    with pytest.raises(ValueError, match="between 1 and the number of rows, 40"):
        choose_rows(41, 40)


# -- predictions on grids --------------------------------------------------------------------------


def test_draws_on_a_grid_have_the_predicted_moments():
    gp, model = marginal(sgp.RegularGrid(AXES, MASK), RNG.standard_normal((7, 5)), n_iter=8)
    new = sgp.RegularGrid([AXES[0], [0.2, 1.0]])
    mean, cov = gp.predict(new, {}, model=model)
    # At cells, draws take what the features leave out as each cell's own.
    phi = gp.training.prediction_map().features(new.points).eval()
    left = gp.cov_func(new.points).eval() - phi @ phi.T
    cov += np.diag(np.diag(left)) - left
    with model:
        gp.conditional("f", new, jitter=0.0)
    draws = draw_many(model["f"], 4000, 1)
    sd = np.sqrt(np.diag(cov))
    assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=0.07)  # 4 standard errors
    assert_allclose(np.cov(draws.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=0.1)


def test_mixture_over_draws_on_a_grid():
    with pm.Model() as model:
        ell, sigma = pm.HalfNormal("ell"), pm.HalfNormal("sigma")
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), n_iter=8)
        gp.marginal_likelihood(
            "y", X=sgp.RegularGrid(AXES, MASK), y=RNG.standard_normal((7, 5)), sigma=sigma
        )
    idata = xr.Dataset({
        "ell": (("chain", "draw"), [[0.5, 0.9]]), "sigma": (("chain", "draw"), [[0.3, 0.2]]),
    })  # fmt: skip
    new = sgp.RegularGrid(AXES)
    found = gp.predict_posterior(new, idata, model=model, progressbar=False)
    points = gp.predict_posterior(new.points, idata, model=model, progressbar=False)
    assert_allclose(found["mean"], points["mean"], rtol=1e-8, atol=1e-10)
    assert_allclose(found["sd"], points["sd"], rtol=1e-8)


def test_parts_of_a_sum_share_one_basis():
    grid = sgp.RegularGrid(AXES, MASK)
    y = RNG.standard_normal(grid.n)
    with pm.Model() as model:
        smooth = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0), n_iter=10)
        rough = sgp.KMCGMarginal(cov_func=0.3 * pm.gp.cov.ExpQuad(2, ls=0.4), n_iter=10)
        total = smooth + rough
        total.marginal_likelihood("y", X=grid, y=y, sigma=0.2)
    means = [gp.predict(grid, {}, diag=True, given={"gp": total}, model=model)[0]
             for gp in (smooth, rough)]  # fmt: skip
    assert_allclose(sum(means), total.predict(grid, {}, diag=True, model=model)[0], rtol=1e-8)
    with pytest.raises(ValueError, match="must be a sum that this GP is a part of"):
        rough.predict(grid, {}, given={"gp": smooth}, model=model)
    one, two = (sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0), approx=a) for a in ("DTC", "VFE"))
    with pytest.raises(TypeError, match="cannot add GPs with approx 'DTC', 'VFE'"):
        one + two
    with pytest.raises(TypeError, match="cannot add KMCGMarginal and GriefGP"):
        one + sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=2.0))


@pytest.mark.parametrize("where", ["rows", "gaps"])
def test_joint_predictions_of_a_sum_and_of_its_parts(where):
    """Steps as many as rows hold all that the rows say, but not the variance of the parts."""
    grid = sgp.RegularGrid(
        [np.linspace(0.0, 2.0, 9), np.linspace(0.0, 1.0, 5)], np.arange(45).reshape(9, 5) % 4 > 0
    )
    rows = grid.points if where == "gaps" else RNG.uniform(0.0, 2.0, (30, 2))
    kernels = pm.gp.cov.ExpQuad(2, ls=1.1), 0.6 * pm.gp.cov.ExpQuad(2, ls=0.4)
    y, new = RNG.standard_normal(len(rows)), RNG.uniform(0.0, 2.0, (4, 2))
    with pm.Model() as model:
        parts = [sgp.KMCGMarginal(cov_func=k, n_iter=len(rows)) for k in kernels]
        total = parts[0] + parts[1]
        total.marginal_likelihood("y", X=grid if where == "gaps" else rows, y=y, sigma=0.4)
        draws = parts[1].conditional("f", new, given={"gp": total})
    S = sum(k(rows).eval() for k in kernels) + 0.16 * np.eye(len(rows))
    for gp, k in zip((*parts, total), (*kernels, kernels[0] + kernels[1]), strict=True):
        cross = k(rows, new).eval()
        given = None if gp is total else {"gp": total}
        mean, cov = gp.predict(new, {}, given=given, model=model)
        expected = k(new).eval() - cross.T @ np.linalg.solve(S, cross)
        assert_allclose(mean, cross.T @ np.linalg.solve(S, y), atol=1e-4)
        assert_allclose(cov, expected, atol=1e-4)
        variance = gp.predict(new, {}, diag=True, given=given, model=model)[1]
        assert_allclose(np.diag(cov), variance, rtol=1e-8)
        if gp is parts[1]:
            assert_allclose(draws.owner.op.dist_params(draws.owner)[1].eval(), cov, atol=1e-5)
    if where == "gaps":
        with model, pytest.raises(ValueError, match="give grid.points"):
            parts[0].conditional("at_cells", grid, given={"gp": total})
        posterior = xr.Dataset(coords={"chain": [0], "draw": np.arange(3)})
        posterior["unused"] = ("chain", "draw"), np.zeros((1, 3))
        options = {"given": {"gp": total}, "model": model, "progressbar": False, "draws": True}
        with pytest.raises(ValueError, match="give grid.points"):
            parts[0].predict_posterior(grid, posterior, **options)
        assert parts[0].predict_posterior(grid.points, posterior, **options)["f"].shape == (1, 3, 33)


def test_given_data_are_used_and_forgotten():
    gp, model = marginal(X, Y, n_iter=10)
    other, model_other = marginal(X[:30], Y[:30], n_iter=10, sigma=0.3)
    expected = other.predict(XNEW, {}, diag=True, model=model_other)
    before = gp.predict(XNEW, {}, diag=True, model=model)
    found = gp.predict(XNEW, {}, diag=True, model=model,
                       given={"X": X[:30], "y": Y[:30], "sigma": 0.3})  # fmt: skip
    assert_allclose(found, expected, rtol=1e-10)
    assert_allclose(gp.predict(XNEW, {}, diag=True, model=model), before, rtol=1e-10)


# -- breakdown -------------------------------------------------------------------------------------


def test_kernel_of_low_rank_ends_the_basis():
    """A linear kernel has rank 2: more steps change nothing, and the density stays smooth."""
    values = []
    for steps in (2, 6):
        with pm.Model() as model:
            scale = pm.HalfNormal("scale")
            gp = sgp.KMCGMarginal(cov_func=scale * pm.gp.cov.Linear(2, c=0.0), n_iter=steps, probes=0)
            gp.marginal_likelihood("y", X=X, y=X @ [1.0, -2.0], sigma=0.2)
        logp = model.compile_logp(**FAST)
        dlogp = model.compile_dlogp(**FAST)
        points = [{"scale_log__": np.array(v)} for v in (0.3, 0.3 + 1e-5, 0.3 - 1e-5)]
        values.append(float(logp(points[0])))
        slope = (logp(points[1]) - logp(points[2])) / 2e-5
        assert_allclose(dlogp(points[0])[0], slope, rtol=1e-6)
    assert_allclose(values[0], values[1], rtol=1e-9)


@pytest.mark.parametrize("ell", often([0.3, 2.0, 20.0], 0.3, 20.0))
def test_gradient_where_the_basis_reaches_rounding(ell):
    """Smooth kernels have fewer than P directions above rounding: the gradient must not explode."""
    series = np.linspace(0.0, 10.0, 120)
    with pm.Model() as model:
        log_ell, log_sigma = pm.Flat("log_ell"), pm.Flat("log_sigma")
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.math.exp(log_ell)), n_iter=60)
        gp.decomposes = False
        gp.marginal_likelihood(
            "y", X=sgp.RegularGrid([series]), y=np.sin(series) + 0.1 * RNG.standard_normal(120),
            sigma=pm.math.exp(log_sigma),
        )  # fmt: skip
    logp, dlogp = model.compile_logp(**FAST), model.compile_dlogp(**FAST)
    point = {"log_ell": np.log(ell), "log_sigma": np.log(0.1)}
    step = 1e-4
    ends = [logp(point | {"log_ell": np.log(ell) + s * step}) for s in (1, -1)]
    assert_allclose(dlogp(point)[0], (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"n_iter": 50}, ValueError, "n_iter=50 exceeds the 40 rows"),
        ({"n_iter": 0}, ValueError, "n_iter must be at least 1"),
        ({"n_iter": 2.5}, TypeError, "n_iter must be an int"),
        ({"n_iter": 10, "inducing": 8}, ValueError, "n_iter=10 exceeds the 8 rows"),
        ({"n_iter": 5, "inducing": 41}, ValueError, "between 1 and the number of rows, 40"),
        ({"n_iter": 2, "inducing": [1, 1, 2]}, ValueError, "names a row more than once"),
        ({"n_iter": 2, "inducing": [1, 40]}, ValueError, "names row 40, but X has 40"),
        ({"n_iter": 2, "inducing": [0.5, 1.0]}, TypeError, "integer rows of X"),
    ],
)
def test_bad_options(change, error, match):
    with pytest.raises(error, match=match):
        marginal(X, Y, **change)


def test_bad_grids():
    with pytest.raises(ValueError, match=r"axes\[1\] must be strictly increasing.* a decrease at"):
        sgp.RegularGrid([[0.0, 1.0], [0.0, 2.0, 1.0]])
    with pytest.raises(ValueError, match="a duplicate value at position 2"):
        sgp.RegularGrid([[0.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match="1 NaN or infinite"):
        sgp.RegularGrid([[0.0, np.nan]])
    with pytest.raises(ValueError, match="vector of coordinates"):
        sgp.RegularGrid([np.zeros((2, 2))])
    with pytest.raises(TypeError, match="must be numeric"):
        sgp.RegularGrid([["a", "b"]])
    with pytest.raises(ValueError, match="at least one axis"):
        sgp.RegularGrid([])
    with pytest.raises(ValueError, match="must have the grid's shape"):
        sgp.RegularGrid(AXES, MASK.T)
    with pytest.raises(TypeError, match="must be a bool array"):
        sgp.RegularGrid(AXES, MASK.astype(float))
    with pytest.raises(ValueError, match="marks no cell"):
        sgp.RegularGrid(AXES, np.zeros((7, 5), dtype=bool))
    with pytest.raises(ValueError, match="points occur twice"):
        sgp.RegularGrid.from_points([0.0, 1.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="do not lie on one"):
        sgp.RegularGrid.from_points(RNG.random((300, 2)))
    with pytest.raises(TypeError, match=r"must be an xarray\.DataArray"):
        sgp.RegularGrid.from_xarray(np.zeros(3))


def test_bad_data_on_a_grid():
    grid = sgp.RegularGrid(AXES, MASK)
    y = np.where(MASK, 1.0, np.nan)
    y[np.nonzero(MASK)[0][0], np.nonzero(MASK)[1][0]] = np.nan
    with pytest.raises(ValueError, match="y has 1 NaN or infinite values at cells that count"):
        marginal(grid, y, n_iter=3)
    with pytest.raises(ValueError, match=r"must have the grid's shape \(7, 5\) or one value for"):
        marginal(grid, np.zeros(3), n_iter=3)
    with pytest.raises(ValueError, match="on a RegularGrid all cells are used"):
        marginal(grid, np.zeros((7, 5)), n_iter=3, inducing=10)
    with pytest.raises(ValueError, match="the kernel uses column 2, but the grid has 2"):
        marginal(grid, np.zeros((7, 5)), n_iter=3, d=3)
    gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.Matern52(2, ls=1.0), n_iter=3)
    with pytest.raises(ValueError, match="not a product of 1-D kernels"):
        gp.build(grid, np.zeros((7, 5)))
    gp, model = marginal(grid, np.zeros((7, 5)), n_iter=3)
    with pytest.raises(ValueError, match="Xnew has 1 axes, the GP was built on 2"):
        gp.predict(sgp.RegularGrid(AXES[:1]), {}, model=model)
    with pytest.raises(ValueError, match=r"call build\(X, y\)"):
        sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), n_iter=3).features(X)


def test_grids_from_points_and_xarray():
    grid = sgp.RegularGrid(AXES, MASK)
    order = RNG.permutation(grid.n)
    again, back = sgp.RegularGrid.from_points(grid.points[order])
    assert_allclose(again.points, grid.points[order][back], atol=1e-12)
    values = RNG.standard_normal(grid.n)
    raster = grid.unravel(values)
    assert_allclose(grid.ravel(raster), values)
    assert np.isnan(raster[~MASK]).all()
    data = xr.DataArray(raster[::-1], coords={"u": AXES[0][::-1], "v": AXES[1]}, dims=("u", "v"))
    found, y = sgp.RegularGrid.from_xarray(data)
    assert_allclose(found.points, grid.points)
    assert_allclose(y, values)
    times = np.array("2000-01-01", dtype="datetime64[D]") + np.arange(4)
    dated = xr.DataArray([1.0, np.nan, 2.0, 3.0], coords={"time": times}, dims="time")
    found, y = sgp.RegularGrid.from_xarray(dated)
    assert_allclose(found.points[:, 0], [0.0, 2.0, 3.0])
    assert found.spacing(0) == 1.0
    assert repr(found) == "RegularGrid(4, 3 of 4 cells observed)"
    single = sgp.RegularGrid([[2.0]])
    assert (single.spacing(0), single.n) == (None, 1)


def test_zero_targets_and_a_single_row():
    # The basis starts at ones then: the variance does not depend on the targets' size.
    for cov in (pm.gp.cov.ExpQuad(2, ls=0.6), pm.gp.cov.Cosine(2, ls=0.7, active_dims=[0])):
        found = []
        for y in (0.0, 1e-3):
            with pm.Model() as model:
                gp = sgp.KMCGMarginal(cov_func=cov, n_iter=12, probes=0)
                gp.marginal_likelihood("y", X=X, y=np.full(40, y), sigma=0.2)
            check_marginal_logp(gp, model, **FAST)
            found.append(gp.predict(X[:3], {}, diag=True, model=model)[1])
        assert_allclose(*found, rtol=1e-9)
    gp, model = marginal(X[:1], Y[:1], n_iter=1)
    mean, var = gp.predict(X[:1], {}, diag=True, model=model)
    assert_allclose(mean, Y[:1] * 1.69 / (1.69 + 0.04), rtol=1e-9)
    assert_allclose(var, 1.69 - 1.69**2 / (1.69 + 0.04), rtol=1e-6)
    assert np.isfinite(evaluate([gp.features(X[:1])], {}, model)[0]).all()


def test_the_tolerance_stops_the_steps_of_a_one_shot_fit():
    x = np.linspace(0.0, 5.0, 60)[:, None]
    y = np.sin(x[:, 0])
    cov = pm.gp.cov.ExpQuad(1, ls=1.0)
    gp = sgp.KMCGMarginal(cov_func=cov, n_iter=30)
    alone, few = gp.choose_steps(x, y), sgp.KMCGMarginal(cov_func=cov, n_iter=30)
    (residuals,) = gp.feature_map.krylov.residuals()
    assert residuals[-1] <= 0.01 < residuals[:-1].min()
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        steps = few.choose_steps(x, y, sigma, point={"sigma": 1.0})
        assert few.rank == steps < alone == gp.rank < 30  # K alone takes more
        for each, name in ((few, "y"), (gp, "z")):
            each.marginal_likelihood(name, X=x, y=y, sigma=sigma)
        assert figures_at(few, {"sigma": 1.0}, model=model)["steps_needed"] == steps
        assert gp.choose_steps(x, y, point={"sigma": 1.0}) == steps  # the likelihood's noise
    fewer = sgp.KMCGMarginal(cov_func=cov, n_iter=2)
    with pytest.warns(UserWarning, match="after n_iter=2 steps the residual is"):
        assert fewer.choose_steps(x, y, tolerance=1e-6) == 2
    with pytest.raises(ValueError, match="tolerance must be positive"):
        fewer.choose_steps(x, y, tolerance=0.0)
    with pytest.raises(ValueError, match="sigma has 3 values, but X has 60 rows"):
        fewer.choose_steps(x, y, np.ones(3))


def test_steps_on_a_grid_take_the_noise_of_its_cells():
    grid = sgp.RegularGrid(AXES, MASK)
    y = np.where(MASK, np.random.default_rng(1).standard_normal((7, 5)), np.nan)
    cov = pm.gp.cov.ExpQuad(2, ls=0.6)
    found = [sgp.KMCGMarginal(cov_func=cov).choose_steps(grid, y, s) for s in (0.3, np.full((7, 5), 0.3))]
    assert found[0] == found[1] < sgp.KMCGMarginal(cov_func=cov).choose_steps(grid, y)


def test_rows_that_contradict_each_other_have_no_steps_without_noise():
    x, y = np.repeat([0.0, 1.0, 2.0], 2)[:, None], np.array([1.0, -1.0, 2.0, 1.0, 0.5, -1.0])
    gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    with pytest.warns(UserWarning, match="after n_iter=6 steps.*give sigma=, raise n_iter"):
        gp.choose_steps(x, y)
    assert gp.choose_steps(x, y, 0.1) <= 4  # three places, and what each contradicts


def test_probes_by_default():
    """Eight on a grid, drawn by the seed."""
    grid = sgp.RegularGrid(AXES, MASK)
    y = np.random.default_rng(1).standard_normal(grid.n)

    def logp(seed=0, **options):
        with pm.Model() as model:
            gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=0.6), n_iter=6, **options)
            gp.marginal_likelihood("y", X=grid, y=y, sigma=0.2, random_seed=seed)
        return float(model.compile_logp(**FAST)({}))

    default = logp()
    assert_allclose(default, logp(probes=8), rtol=1e-12)
    assert abs(default - logp(probes=0)) > 1e-3
    assert abs(default - logp(seed=1)) > 1e-3


def test_targets_that_the_basis_does_not_start_at_are_refused():
    rng = np.random.default_rng(2)
    values = rng.standard_normal(12)
    Q = np.linalg.qr(np.column_stack([values + 0.1, rng.standard_normal((12, 3))]))[0]
    Q *= np.sign(Q[:, 0] @ values)
    y = pytensor.shared(values)
    params = map(pt.as_tensor, (np.zeros(12), Q, rng.standard_normal((4, 3)), 0.09))
    rv = KrylovNormal(*params, targets=values, mutable=True).dist()
    with pytest.raises(ValueError, match="the Krylov basis starts at other ones"):
        pm.logp(rv, y).eval(mode="FAST_COMPILE")
