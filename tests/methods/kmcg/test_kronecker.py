"""Complete grids: the exact density, predictions, draws and rows left out, by the axes' eigenvectors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from compared import draw_many, figures_at
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.kmcg.kronecker import has_eigenbasis
from pymc_scalable_gp.methods.kmcg.kronecker_predict import eigen
from pymc_scalable_gp.utils.compiled import evaluate

FAST = {"mode": "FAST_COMPILE"}
RNG = np.random.default_rng(0)
AXES = [np.linspace(0.0, 3.0, 6), np.array([0.0, 0.5, 0.7, 1.5, 2.0])]
GRID = sgp.RegularGrid(AXES)
Y = np.sin(2.0 * AXES[0])[:, None] + AXES[1] + 0.3 * RNG.standard_normal((6, 5))
POINT = {"ell": np.array([0.8, 1.4]), "eta": 1.3, "sigma": 0.4, "slope": 0.7}
POINTS = np.array([[0.2, 0.6], [1.1, 0.5], [7.0, 1.0], [0.6, 0.5]])
# Between the cells, beyond them, at them; and not all of its own cells.
OTHER = sgp.RegularGrid([[0.6, 1.0, 4.0], [0.5, 0.6]], np.array([[1, 1], [0, 1], [1, 1]], dtype=bool))


def build(make, X, y=Y, kernel=pm.gp.cov.Matern52, **options):
    """A class on the cells, with free hyperparameters and a mean."""
    with pm.Model() as model:
        ell = pm.LogNormal("ell", shape=2)
        eta, sigma, slope = pm.LogNormal("eta"), pm.LogNormal("sigma"), pm.Normal("slope")
        gp = make(
            mean_func=pm.gp.mean.Linear(coeffs=pt.stack([slope, 0.0])),
            cov_func=eta**2 * sgp.cov.Product(kernel, 2, ls=ell), **options,
        )  # fmt: skip
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return gp, model


@pytest.fixture(scope="module")
def both():
    """This class on the grid, and the exact one on its points."""
    return build(sgp.KMCGMarginal, GRID), build(sgp.ExactMarginal, GRID.points, Y.ravel())


@pytest.fixture(scope="module")
def draws():
    """Thirty draws."""
    rng = np.random.default_rng(1)
    return xr.Dataset({
        name: (("chain", "draw", *("abc"[: np.ndim(at)])),
               at * np.exp(0.1 * rng.standard_normal((1, 30, *np.shape(at)))))
        for name, at in POINT.items()
    })  # fmt: skip


# -- density ----------------------------------------------------------------------------------------


def test_density_and_gradient_are_exact(both):
    (gp, model), (_, other) = both
    assert gp.likelihood_path == "kronecker"
    assert "kronecker likelihood" in repr(gp)
    point = {"ell_log__": np.log(POINT["ell"]), "eta_log__": 0.3, "sigma_log__": -0.9, "slope": 0.7}
    assert_allclose(model.compile_logp(**FAST)(point), other.compile_logp(**FAST)(point), rtol=1e-10)
    assert_allclose(model.compile_dlogp(**FAST)(point), other.compile_dlogp(**FAST)(point), rtol=1e-9)


def test_density_is_that_of_pymc():
    found = []
    for kind in ("pymc", "grid"):
        with pm.Model() as model:
            eta, sigma = pm.LogNormal("eta"), pm.LogNormal("sigma")
            if kind == "pymc":
                covs = [eta**2 * pm.gp.cov.ExpQuad(1, 0.8), pm.gp.cov.Periodic(1, 1.3, ls=0.7)]
                gp = pm.gp.MarginalKron(cov_funcs=covs)
                gp.marginal_likelihood("y", [a[:, None] for a in AXES], Y.ravel(), sigma=sigma)
            else:
                periodic = pm.gp.cov.Periodic(2, 1.3, ls=0.7, active_dims=[1])
                cov = eta**2 * pm.gp.cov.ExpQuad(2, 0.8, active_dims=[0]) * periodic
                gp = sgp.KMCGMarginal(cov_func=cov)
                gp.marginal_likelihood("y", GRID, Y, sigma=sigma)
        point = {"eta_log__": 0.3, "sigma_log__": -1.0}
        found.append(model.compile_logp(**FAST)(point))
    assert_allclose(*found, rtol=1e-10)


KERNELS = {
    "one axis": (pm.gp.cov.ExpQuad(1, 0.4), AXES[:1]),
    "sum on one axis": (pm.gp.cov.ExpQuad(1, 0.4) + pm.gp.cov.Linear(1, c=0.3), AXES[:1]),
    "three axes, one unused": (
        pm.gp.cov.ExpQuad(3, 0.4, active_dims=[0]) * pm.gp.cov.Linear(3, c=0.2, active_dims=[2]),
        [AXES[0], AXES[1][:2], AXES[1][:3]],
    ),
    "same axis twice": (pm.gp.cov.ExpQuad(2, 0.8), [AXES[1], AXES[1]]),
    "one cell": (pm.gp.cov.ExpQuad(2, 0.8), [[0.5], [1.0]]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_other_grids(name):
    """The dense density and predictions, at the cells and between them."""
    cov, axes = KERNELS[name]
    grid = sgp.RegularGrid(axes)
    y, new = np.random.default_rng(2).standard_normal(grid.n), grid.points + 0.1
    found = []
    for make, X in ((sgp.KMCGMarginal, grid), (sgp.ExactMarginal, grid.points)):
        with pm.Model() as model:
            gp = make(cov_func=cov)
            gp.marginal_likelihood("y", X, y, sigma=0.3)
        assert gp.likelihood_path == ("kronecker" if X is grid else "exact")
        mean, cov_new = gp.predict(new, {}, model=model)
        at = gp.predict(X, {}, diag=True, model=model)
        found.append(np.r_[model.compile_logp(**FAST)({}), mean, cov_new.ravel(), *at])
    assert_allclose(*found, rtol=1e-8, atol=1e-10)


def test_which_likelihood():
    """Gaps, sums, sigmas by row, asked for: features as before; steps and probes: exact all the same."""
    cov = pm.gp.cov.ExpQuad(2, ls=1.0)
    mask = np.ones((6, 5), dtype=bool)
    mask[2, 1] = False

    def path(cov=cov, grid=GRID, sigma=0.3, y=Y, **options):
        gp = sgp.KMCGMarginal(cov_func=cov, **options)
        with pm.Model():
            gp.marginal_likelihood("y", grid, y, sigma=sigma)
        return gp.likelihood_path

    gaps = sgp.RegularGrid(AXES, mask)
    assert path(n_iter=5, probes=3) == path(grid=sgp.RegularGrid(AXES, mask | True)) == "kronecker"
    assert path(probes=0, n_iter=5) == "coordinates"
    assert path(grid=sgp.RegularGrid(AXES, mask), n_iter=5) == "coordinates"
    assert path(cov + pm.gp.cov.ExpQuad(2, ls=2.0), n_iter=5) == "coordinates"
    assert path(grid=sgp.RegularGrid(AXES, mask), probes=5) == "coordinates"
    assert path(grid=sgp.RegularGrid(AXES, mask)) == "exact"
    assert path(cov + pm.gp.cov.ExpQuad(2, ls=2.0)) == "exact"
    assert path(grid=sgp.RegularGrid([np.arange(1501.0)], np.arange(1501) != 7), y=np.arange(1500.0),
                cov=pm.gp.cov.ExpQuad(1, ls=1.0)) == "exact"  # fmt: skip
    assert path(sigma=np.full(30, 0.3), n_iter=5) == "full"
    assert path(sigma=np.full(30, 0.3)) == path(grid=gaps, sigma=np.full((6, 5), 0.3)) == "exact"
    assert path(approx="VFE", n_iter=5) == "full"
    assert path(grid=GRID.points, y=Y.ravel(), n_iter=5) == "coordinates"


@pytest.mark.parametrize(
    ("shape", "wanted"), [((1000,), True), ((1001,), False), ((5000, 12), False), ((5000, 500), True)]
)
def test_long_axes_are_not_decomposed(shape, wanted):
    """A series of 10^5 times must not become a matrix of them."""
    cov = pm.gp.cov.ExpQuad(len(shape), ls=1.0)
    grid = sgp.RegularGrid([np.arange(m, dtype=float) for m in shape])
    assert has_eigenbasis(grid, cov) == wanted


def test_a_matrix_that_is_not_finite_has_no_eigenvalues():
    K = np.eye(3)
    K[0, 1] = K[1, 0] = np.nan
    assert all(np.isnan(each).all() for each in eigen(K))


# -- predictions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [POINTS, GRID, OTHER], ids=["points", "cells", "other cells"])
def test_predictions_are_exact(both, new, monkeypatch):
    from pymc_scalable_gp.methods.kmcg import kronecker_predict

    monkeypatch.setattr(kronecker_predict, "_ENTRIES", 18)  # several blocks
    (gp, model), (exact, other) = both
    rows = new if new is POINTS else new.points
    for options in ({"diag": True}, {"diag": True, "pred_noise": True}, {}):
        found = gp.predict(new, POINT, model=model, **options)
        expected = exact.predict(rows, POINT, model=other, **options)
        for a, b in zip(found, expected, strict=True):
            assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    found = gp.predict(new, POINT, diag=True, exact=True, model=model)
    assert_allclose(found, exact.predict(rows, POINT, diag=True, model=other), rtol=1e-9)


@pytest.mark.parametrize("new", [POINTS, OTHER], ids=["points", "cells"])
def test_mixture(both, draws, new):
    """The exact one's, and a draw for each of the model."""
    (gp, model), (exact, other) = both
    rows = new if new is POINTS else new.points
    found = gp.predict_posterior(new, draws, model=model, progressbar=False)
    expected = exact.predict_posterior(rows, draws, model=other, progressbar=False)
    assert_allclose(found["mean"], expected["mean"], rtol=1e-8)
    assert_allclose(found["sd"], expected["sd"], rtol=1e-8)
    f = gp.predict_posterior(
        new, draws, num_samples=3, draws=True, random_seed=1, model=model, progressbar=False
    )["f"]
    assert f.shape == (1, 3, len(rows))
    assert np.isfinite(f).all()


@pytest.mark.parametrize("new", [POINTS, OTHER], ids=["points", "cells"])
def test_joint_draws(both, new):
    """Draws at one point of the model have the exact moments."""
    (gp, model), (exact, other) = both
    data, rows, noise = gp._new_inputs(new, gp.training), gp.training, gp.training.sigma**2
    given = gp.feature_map, gp.mean_func, None, noise, model
    at_cells = data.grid is not None
    predictor = rows.cell_predictor(data, *given) if at_cells else rows.predictor(*given)
    state, rng = predictor.state(POINT), np.random.default_rng(1)
    f = np.array([predictor.sampled(state, data.value, rng) for _ in range(1000)])
    _agree(f, *exact.predict(data.value, POINT, pred_noise=True, model=other))


def _agree(f, mean, cov):
    """Moments within some five standard errors."""
    sd, error = np.sqrt(np.diag(cov)), 1.0 / np.sqrt(len(f))
    assert_allclose((f.mean(axis=0) - mean) / sd, 0.0, atol=4.5 * error)
    assert_allclose(np.cov(f.T) / np.outer(sd, sd), cov / np.outer(sd, sd), atol=5.5 * error)


@pytest.mark.parametrize("new", [POINTS, OTHER], ids=["points", "cells"])
def test_conditional(new):
    """Draws and density of the variable are those of the exact class's."""
    found = []
    for make, X, at in (
        (sgp.KMCGMarginal, GRID, new),
        (sgp.ExactMarginal, GRID.points, new if new is POINTS else new.points),
    ):
        with pm.Model() as model:
            gp = make(cov_func=pm.gp.cov.ExpQuad(2, ls=[0.8, 1.4]), mean_func=pm.gp.mean.Constant(0.5))
            gp.marginal_likelihood("y", X, Y.ravel(), sigma=0.3)
            gp.conditional("f", at, jitter=1e-4)
        found.append((gp, model))
    (_, model), (exact, other) = found
    mean, cov = exact.predict(POINTS if new is POINTS else new.points, {}, model=other)
    _agree(draw_many(model["f"], 4000, 1), mean, cov + 1e-4 * np.eye(len(mean)))
    values = {"f": mean + 0.1}
    assert_allclose(model.compile_logp(**FAST)(values), other.compile_logp(**FAST)(values), rtol=1e-8)


def test_prior_draws():
    """Draws of the observed variable have its covariance."""
    with pm.Model() as model:
        gp = sgp.KMCGMarginal(cov_func=1.3 * pm.gp.cov.ExpQuad(2, ls=[0.8, 1.4]))
        gp.marginal_likelihood("y", GRID, Y, sigma=0.3)
    cov = 1.3 * pm.gp.cov.ExpQuad(2, ls=[0.8, 1.4])(GRID.points).eval() + 0.09 * np.eye(30)
    _agree(draw_many(model["y"], 4000, 1), np.zeros(30), cov)


# -- what else follows ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Estimated shape")
def test_rows_left_out(both, draws):
    (gp, model), (exact, other) = both
    for call, more in (("loo", {}), ("loo_pit", {}), ("loo", {"groups": np.arange(30) % 4})):
        found = getattr(gp, call)(draws, model=model, progressbar=False, **more)
        expected = getattr(exact, call)(draws, model=other, progressbar=False, **more)
        if call == "loo":
            found, expected = found.elpd_i, expected.elpd_i
        assert_allclose(found, expected, rtol=1e-7)


def test_check_says_that_it_is_exact(both, draws):
    (gp, model), _ = both
    found = gp.check(draws, rows=10, model=model, progressbar=False)
    assert found.attrs["verdict"].startswith("Good.")
    assert "logp_all" not in found
    assert figures_at(gp, POINT, model=model)["holds_residual"]
    with pytest.raises(ValueError, match="this is the exact likelihood: there is nothing to correct"):
        gp.correct(draws.isel(draw=np.arange(30)), model=model)


def test_given_data(both):
    """Another complete grid is exact as well; rows and gaps get a basis."""
    (gp, model), (exact, other) = both
    finer = sgp.RegularGrid([np.linspace(0.0, 3.0, 4), AXES[1]])
    y = np.cos(finer.points[:, 0])
    found = gp.predict(POINTS, POINT, diag=True, model=model,
                       given={"X": finer, "y": y, "sigma": 0.2})  # fmt: skip
    expected = exact.predict(POINTS, POINT, diag=True, model=other,
                             given={"X": finer.points, "y": y, "sigma": 0.2})  # fmt: skip
    assert_allclose(found, expected, rtol=1e-9)
    few = gp.predict(POINTS, POINT, diag=True, model=model,
                     given={"X": finer.points, "y": y, "sigma": 0.2})  # fmt: skip
    assert_allclose(few, expected, rtol=1e-4)
    assert gp.likelihood_path == "kronecker"


def test_features_and_likelihood_argument(both):
    (gp, model), _ = both
    with model:
        assert evaluate([gp.features(POINTS)], POINT, model)[0].shape == (4, 0)
    other = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
    with pm.Model(), pytest.raises(TypeError, match="features are made of Gaussian targets"):
        other.marginal_likelihood(
            "z", GRID.points, Y.ravel(), likelihood=lambda f: pm.Poisson.dist(pt.exp(f))
        )


def test_bad_values_give_nan(both):
    (gp, model), _ = both
    mean, var = gp.predict(POINTS, POINT | {"eta": np.nan}, diag=True, model=model)
    assert np.isnan(mean).all()
    assert np.isnan(var).all()


def test_predictions_are_nan_where_the_density_is():
    """Under next to no noise rounding makes variances in the eigenbasis negative."""
    grid = sgp.RegularGrid([np.linspace(0.0, 3.0, 30)])
    with pm.Model() as model:
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=3.0))
        gp.marginal_likelihood("y", grid, np.sin(grid.points[:, 0]), sigma=1e-10)
        f = gp.conditional("f", grid.points[:3])
    assert np.isnan(model.compile_logp([model["y"]], **FAST)({"f": np.zeros(3)}))
    for new in (grid, grid.points[:3]):
        assert np.isnan(gp.predict(new, {}, diag=True, model=model)).all()
    assert np.isnan(f.owner.op.dist_params(f.owner)[0].eval()).all()


def test_targets_that_are_replaced():
    with pm.Model() as model:
        y = pm.Data("targets", Y.ravel())
        gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
        gp.marginal_likelihood("y", GRID, y, sigma=0.3)
    logp = model.compile_logp(**FAST)
    pm.set_data({"targets": Y.ravel()[::-1]}, model=model)
    with pm.Model() as other:
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
        gp.marginal_likelihood("y", GRID.points, Y.ravel()[::-1], sigma=0.3)
    assert_allclose(logp({}), other.compile_logp(**FAST)({}), rtol=1e-10)


def test_few_cells_of_a_grid_with_gaps_are_exact():
    """Density, gradient, predictions at cells and elsewhere, and other data, beside the exact class."""
    mask = np.ones((6, 5), dtype=bool)
    mask[2, 1] = mask[0, 4] = False
    grid, y = sgp.RegularGrid(AXES, mask), np.where(mask, Y, np.nan)
    found = []
    for kind, X, targets, cells in (
        (sgp.KMCGMarginal, grid, y, GRID), (sgp.ExactMarginal, grid.points, Y[mask], GRID.points)
    ):  # fmt: skip
        with pm.Model() as model:
            ell = pm.HalfNormal("ell")
            gp = kind(
                cov_func=pm.gp.cov.Matern52(2, ls=ell, active_dims=[0]) + pm.gp.cov.ExpQuad(2, ls=ell)
            )
            gp.marginal_likelihood("y", X=X, y=targets, sigma=0.3)
            c = gp.conditional("c", POINTS)
        point = {"ell": 0.7}
        other = {"X": X, "y": 2.0 * targets, "sigma": 0.2}
        given = gp.predict(POINTS, point, diag=True, model=model, given=other)
        moved = gp.predict(POINTS, point, model=model)
        cells = gp.predict(cells, point, diag=True, model=model)
        start = {"ell_log__": np.array(-0.3), "c": np.zeros(len(POINTS))}
        slope = model.compile_dlogp(mode="FAST_COMPILE")(start)
        found.append([model.compile_logp(mode="FAST_COMPILE")(start), slope, *given, *moved, *cells])
        assert gp.rank == 0
        assert c.eval({ell: 0.7}).shape == (len(POINTS),)
    for one, two in zip(*found, strict=True):
        assert_allclose(one, two, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("axes", [AXES[:1], AXES], ids=["series", "one of two axes"])
def test_parts_of_a_sum(axes):
    """Kernels of one column add to one product, whose parts failed in Python's words."""
    d, grid = len(axes), sgp.RegularGrid(axes)
    y = np.sin(2.0 * grid.points[:, 0]) + grid.points[:, -1] ** 2
    new = OTHER if d == 2 else sgp.RegularGrid(OTHER.axes[:1])
    c, own = pm.gp.cov, {"input_dim": d, "active_dims": [d - 1]}
    found, draws = [], xr.Dataset({"ell": (("chain", "draw"), [[0.7, 0.9]])})
    for kind, X, cells in ((sgp.KMCGMarginal, grid, new), (sgp.ExactMarginal, grid.points, new.points)):
        with pm.Model() as model:
            ell = pm.LogNormal("ell")
            kernels = (
                c.Matern52(ls=ell, **own), (c.Linear(c=0.3, **own) + 0.5) * c.ExpQuad(ls=1.5, **own),
                0.4 * c.Periodic(period=1.3, ls=1.0, **own),
            )  # fmt: skip
            parts = [kind(cov_func=k, mean_func=pm.gp.mean.Constant(m)) for m, k in enumerate(kernels)]
            total = parts[0] + parts[1] + parts[2]
            total.marginal_likelihood("y", X=X, y=y, sigma=0.3)
            to, values = {"given": {"gp": total}}, []
            for gp in (parts[1], parts[0] + parts[2]):
                f = gp.conditional(f"f{len(values)}", cells, jitter=1e-4, **to)
                values += evaluate(f.owner.op.dist_params(f.owner), {"ell": 0.7}, model)
                values += gp.predict(cells, {"ell": 0.7}, diag=True, **to)
                values += gp.predict(new.points + 0.1, {"ell": 0.7}, **to)
                mixed = gp.predict_posterior(cells, draws, draws=True, progressbar=False, **to)
                assert mixed["f"].shape == (1, 2, new.n)
                values += [mixed["mean"], mixed["sd"]]
        found.append(values)
        assert total.likelihood_path == ("kronecker" if X is grid else "exact")
    for one, two in zip(*found, strict=True):
        assert_allclose(one, two, rtol=1e-8, atol=1e-9)


def test_few_cells_with_a_sigma_each_are_exact():
    """They were warned of, though the features were as many as the cells; probes=0 asks for these still."""
    sigma = 0.2 + 0.1 * np.arange(30.0).reshape(6, 5)
    found = []
    for kind, where in ((sgp.KMCGMarginal, GRID), (sgp.ExactMarginal, GRID.points)):
        with pm.Model() as model:
            ell = pm.LogNormal("ell")
            gp = kind(cov_func=pm.gp.cov.ExpQuad(2, ls=ell))
            values = (Y, sigma) if where is GRID else (Y.ravel(), sigma.ravel())
            gp.marginal_likelihood("y", where, values[0], sigma=values[1])
        logp, mean = model.compile_logp(mode="FAST_COMPILE"), []
        for value in (0.1, 1.3):
            mean.append(gp.predict(GRID.points[:4] + 0.3, {"ell": value}, diag=True, model=model))
        found.append([logp({"ell_log__": np.log(0.7)}), *np.ravel(mean)])
    np.testing.assert_allclose(*found, rtol=1e-8)
