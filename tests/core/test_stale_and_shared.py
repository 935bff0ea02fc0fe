"""What predictions must not keep from before, nor share: new rows, closures, threads, dimensions."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.importance.density import Density

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 10.0, (60, 1)), axis=0)
Y = np.sin(3.0 * X[:, 0])


def fitted(kind=sgp.ExactMarginal, sigma=0.05, **options):
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        gp = kind(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=0.5), **options)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=sigma)
    return gp, model


def draws_of(*values, **others):
    return xr.Dataset({"eta": (("chain", "draw"), np.array([values]))} | others)


def test_new_rows_that_are_replaced_need_other_neighbors():
    """Draws went by the neighbours of the rows before."""
    gp, model = fitted(sgp.VecchiaMarginal, n_inducing=5, neighbors=10)
    with model:
        new = pm.Data("new", np.linspace(0.5, 2.0, 5)[:, None])
        f = gp.conditional("f", new)
        assert np.isfinite(pm.draw(f, 2, random_seed=1)).all()
        pm.set_data({"new": np.linspace(7.5, 9.0, 5)[:, None]})
        with pytest.raises(ValueError, match="Xnew of gp.conditional was replaced"):
            pm.draw(f, 2, random_seed=1)
        pm.set_data({"new": np.linspace(7.5, 9.0, 4)[:, None]})
        with pytest.raises(ValueError, match="Xnew of gp.conditional was replaced"):
            pm.draw(f, 2, random_seed=1)


@pytest.mark.parametrize(
    "make",
    [
        sgp.ExactMarginal,
        sgp.VecchiaMarginal,
        lambda cov_func: sgp.GriefGP(cov_func=cov_func, basis="frozen", rank=40),
        lambda cov_func: sgp.SoftKIMarginal(cov_func=cov_func, inducing=8),
    ],
    ids=["exact", "neighbors", "frozen", "inducing points"],
)
@pytest.mark.parametrize("columns", [1, 3])
def test_data_of_another_number_of_columns_are_refused(make, columns):
    """Kernels took the first of more columns, and repeated a single one, without a word."""
    rows = np.column_stack([X[:, 0], np.cos(X[:, 0])])
    with pm.Model() as model:
        shared = pm.Data("X", rows)
        gp = make(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.HalfNormal("ls")))
        gp.marginal_likelihood("y", X=shared, y=Y, sigma=0.1)
        f = gp.conditional("f", pm.Data("new", rows[:4]))
        density, point = model.compile_logp(model["y"]), model.initial_point()
        pm.set_data({"new": rows[:3, :1].repeat(columns, 1)})
        with pytest.raises(ValueError, match="Xnew had 2 columns .* give 2 columns, or build a new model"):
            pm.draw(f, random_seed=1)
        pm.set_data({"X": rows[:, :1].repeat(columns, 1)})
    calls = (
        lambda: density(point),
        lambda: model.compile_logp(model["y"])(point),
        lambda: gp.predict(rows[:2], point={"ls": 1.0}),
    )
    for call in calls:
        with pytest.raises(ValueError, match="X had 2 columns .* give 2 columns, or build a new model"):
            call()


def test_jax_refuses_another_number_of_columns_as_it_traces():
    """Without PyTensor's warning of checks that JAX leaves out."""
    pytest.importorskip("jax")
    with pm.Model() as model:
        shared = pm.Data("X", X)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern32(1, ls=pm.HalfNormal("ls")))
        gp.marginal_likelihood("y", X=shared, y=Y, sigma=0.1)
        density, point = model.compile_logp(mode="JAX"), model.initial_point()
        assert_allclose(density(point), model.compile_logp()(point), rtol=1e-9)
        pm.set_data({"X": X.repeat(2, 1)})
    with pytest.raises(ValueError, match="Invalid shape"):
        density(point)


def test_a_likelihood_of_new_rows_is_read_again():
    exposure = np.ones(4)

    def counts(f):
        return pm.Poisson.dist(exposure * pm.math.exp(f))

    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern32(1, ls=0.5))
        gp.marginal_likelihood(
            "y", X=X, y=np.arange(60) % 3, likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f))
        )
    options = {"diag": True, "pred_noise": True, "likelihood": counts, "model": model}
    once, _ = gp.predict(X[:4], {}, **options)
    exposure = np.full(4, 10.0)
    assert_allclose(gp.predict(X[:4], {}, **options)[0], 10.0 * once, rtol=1e-10)


def test_a_dimension_of_the_user_may_be_called_sample():
    gp, model = fitted()
    plain = draws_of(0.5, 1.0, 2.0)
    other = plain.assign(effect=(("chain", "draw", "sample"), np.zeros((1, 3, 7))))
    stacked = plain.stack(sample=("chain", "draw"))
    expected, *found = (
        gp.predict_posterior(X[:3] + 0.1, each, progressbar=False, model=model)
        for each in (plain, other, stacked)
    )
    for each in found:
        assert_allclose(each["sd"], expected["sd"], rtol=1e-12)


def test_threads_that_leave_rows_out_do_not_disturb_one_another():
    """Functions have places for their inputs that calls share."""
    draws = [draws_of(*np.linspace(a, 1.2 * a, 30)) for a in (0.5, 1.0, 2.0, 4.0)]

    def pits(map_):
        gp, model = fitted(sigma=0.3)
        gp.loo_pit(draws[0] * 1.01, progressbar=False, model=model)  # compiled
        return list(map_(lambda d: gp.loo_pit(d, progressbar=False, model=model).values, draws))

    with ThreadPoolExecutor(4) as pool:
        assert_allclose(pits(pool.map), pits(map), rtol=1e-12)


def test_draws_of_a_function_that_is_nearly_known():
    """Rounding goes with the prior's variance, of which the posterior's is a millionth."""
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        gp = sgp.ExactMarginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=3.0))
        gp.marginal_likelihood("y", X=X, y=np.sin(X[:, 0]), sigma=1e-3)
    new = np.linspace(0.0, 10.0, 100)[:, None]
    found = gp.predict_posterior(new, draws_of(1.0, 1.0), draws=True, progressbar=False, model=model)
    assert_allclose(found["f"], np.sin(new[:, 0]) * np.ones((1, 2, 1)), atol=0.01)


@pytest.mark.parametrize("initval", [None, 1.0])
def test_draws_from_the_prior_are_not_initial_values(initval):
    with pm.Model() as model:
        pm.LogNormal("s", 0.0, 3.0, initval=initval)
    points = Density(model).from_prior(200, np.random.default_rng(0))
    assert_allclose(points.std(), 3.0, rtol=0.15)


@pytest.mark.filterwarnings("ignore:points were chosen")
def test_the_number_of_rows_is_that_of_now():
    with pm.Model():
        inputs, targets = pm.Data("inputs", X[:20]), pm.Data("targets", Y[:20])
        eta = pm.HalfNormal("eta")
        gp = sgp.CholQRMarginal(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=0.5), n_inducing=8)
        gp.marginal_likelihood("y", X=inputs, y=targets, sigma=0.1)
        assert gp.training.data.size == 20
        pm.set_data({"inputs": X, "targets": Y})
        assert gp.training.data.size == 60
