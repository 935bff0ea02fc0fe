"""Groups without rows, rows without prior variance, parameters of one entry, columns from the end."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.skip.tree import SUPPORT_ROWS
from pymc_scalable_gp.utils.threads import ForThreads

cov = pm.gp.cov
RNG = np.random.default_rng(0)
T = np.linspace(0.0, 4.0, 40)


def logp_of(gp, X, y, sigma=0.3, **options):
    with pm.Model() as model:
        gp().marginal_likelihood("y", X=X, y=y, sigma=sigma)
    return model.compile_logp(**options)(model.initial_point())


@pytest.mark.parametrize("name", ["GriefGP", "frozen", "SKIP"])
def test_a_group_without_rows(name):
    X, y = np.c_[T, np.arange(40) % 2], np.sin(T)
    kernel = sgp.cov.PerGroup(cov.Matern52, 2, ls=[1.0, 2.0, 0.5], group_dim=1)
    make = {
        "GriefGP": lambda: sgp.GriefGP(cov_func=kernel, rank=40),
        "frozen": lambda: sgp.GriefGP(cov_func=kernel, rank=40, basis="frozen"),
        "SKIP": lambda: sgp.SKIPMarginal(cov_func=kernel, grid_size=20, rank=8),
    }[name]
    expected = logp_of(lambda: sgp.ExactMarginal(cov_func=kernel), X, y)
    assert_allclose(logp_of(make, X, y), expected, atol=0.05)  # what 40 or 8 features miss


def test_rows_without_prior_variance():
    X, y = np.arange(40.0)[:, None], 0.1 * T

    def gp():
        kernel = cov.Linear(1, c=0.0) * cov.Matern52(1, ls=9.0)
        return sgp.VecchiaMarginal(cov_func=kernel, n_inducing=5, neighbors=39, block=1)

    exact = logp_of(lambda: sgp.ExactMarginal(cov_func=gp().cov_func), X, y)
    assert_allclose(logp_of(gp, X, y), exact, rtol=1e-6)
    with pm.Model() as model:
        near = gp()
        near.marginal_likelihood("y", X=X[1:], y=y[1:], sigma=0.3)
    mean, var = near.predict(X[:1], {}, diag=True, model=model)
    assert_allclose([mean[0], var[0]], 0.0, atol=1e-12)
    for rows in (X[:3], X[[2, 0, 1]]):  # with other new rows too, whose neighbour it is
        together, alone = (
            near.predict(rows, {}, model=model),
            near.predict(rows, {}, diag=True, model=model),
        )
        assert_allclose(together[0], alone[0], atol=1e-4)
        assert_allclose(np.diag(together[1]), alone[1], atol=1e-4)
    with pm.Model() as latent:
        sgp.VecchiaLatent(cov_func=near.cov_func, n_inducing=0, neighbors=5, block=1).prior("f", X)
        take = latent.compile_fn([latent["f"]], inputs=latent.value_vars, on_unused_input="ignore")
        (f,) = take(latent.initial_point())
    assert np.isfinite(f).all()


@pytest.mark.parametrize("name", ["SoftKI", "CholQR"])
def test_outputs_of_very_different_units(name):
    """What is added to the diagonal was a share of the mean variance: more than that of the second output.

    As pressure in pascals and temperature in degrees; the third output has no prior variance at all.
    """
    rows = np.column_stack([np.tile(np.linspace(0.0, 4.0, 5), 3), np.repeat([0.0, 1.0, 2.0], 5)])
    variances = np.array([1e8, 25.0, 0.0])
    outputs = pm.gp.cov.Coregion(2, W=np.zeros((3, 1)), kappa=variances, active_dims=[1])
    cov = pm.gp.cov.Matern32(2, ls=1.0, active_dims=[0]) * outputs
    if name == "SoftKI":
        gp = sgp.SoftKIMarginal(cov_func=cov, inducing=rows)
        gp.build(rows)
        L = gp.feature_map.mixing().eval()
        found, share = (L**2).sum(axis=1), 1.0 + 1e-6
    else:
        gp = sgp.CholQRMarginal(cov_func=cov)
        gp.build(rows, indices=np.arange(15))
        found, share = (gp.features(rows).eval() ** 2).sum(axis=1), 1.0
    # CholQR's share is 1e-8; with it the third output has the variance of what is added there, or less.
    np.testing.assert_allclose(found, share * np.repeat(variances, 5), rtol=1.1e-8, atol=1e-4)


def test_features_do_not_go_by_the_order_of_rows():
    """Every other row is of the other group, and SKIP chooses directions at half of the rows."""
    n = 2 * SUPPORT_ROWS
    X = np.column_stack([np.random.default_rng(3).uniform(0.0, 4.0, (n, 2)), np.arange(n) % 2])
    kernel = sgp.cov.PerGroup(cov.ExpQuad, 3, ls=[0.5, 0.5], scale=[1.0, 1.0], group_dim=2)
    gp = sgp.SKIPMarginal(cov_func=kernel, grid_size=30, rank=8)
    gp.build(X)
    explained = (gp.features(X[:200]).eval() ** 2).sum(axis=1)
    assert min(explained[::2].mean(), explained[1::2].mean()) > 0.95  # .99 and .26 at every other row


def test_a_matrix_that_is_computed_once_is_not_chosen_again():
    """Its rows are in the order of the build."""
    X = np.column_stack([RNG.dirichlet([1.0, 1.0], 40), T])
    with pm.Model():
        ell = pm.InverseGamma("ell", 3, 3)
        kernel = sgp.cov.HistogramIntersection(3, active_dims=[0, 1]) * cov.Matern52(
            3, ls=ell, active_dims=[2]
        )
        gp = sgp.VecchiaMarginal(cov_func=kernel, n_inducing=8, neighbors=5)
        gp.marginal_likelihood("y", X=X, y=np.sin(T), sigma=0.3)
        with pytest.raises(ValueError, match="HistogramIntersection is computed once, in the order"):
            gp.rebuild({"ell": 5.0})
        idata = sgp.sample_importance(progressbar=False, random_seed=1, draws=30)  # nor by itself
    assert idata.posterior.attrs["khat"] < 0.7


@pytest.mark.parametrize("name", ["KMCG", "SKIP"])
def test_a_lengthscale_of_one_entry(name):
    axis = np.arange(5.0)
    grid = sgp.RegularGrid([axis, axis])
    y = np.sin(grid.points.sum(axis=1))
    make = {
        "KMCG": lambda k: sgp.KMCGMarginal(cov_func=k),
        "SKIP": lambda k: sgp.SKIPMarginal(cov_func=k, rank=6),
    }[name]
    found = [
        logp_of(lambda ls=ls: make(cov.ExpQuad(2, ls=ls)), grid if name == "KMCG" else grid.points, y)
        for ls in (1.3, np.array([1.3]))
    ]
    assert_allclose(found[1], found[0], rtol=1e-12)


@pytest.mark.parametrize(
    "kind", [sgp.ExactMarginal, lambda cov_func: sgp.VecchiaMarginal(cov_func=cov_func, n_inducing=5)]
)
def test_an_exponent_of_one_entry(kind):
    found = [
        logp_of(lambda a=a: kind(cov_func=cov.RatQuad(1, alpha=a, ls=0.5)), T[:, None], np.sin(T))
        for a in (0.7, np.array([0.7]))
    ]
    assert_allclose(found[1], found[0], rtol=1e-12)


@pytest.mark.parametrize("kernel", [cov.Periodic(1, period=1.0, ls=1.0), cov.ExpQuad(1, ls=0.3)])
def test_a_negative_scale_has_no_density(kernel):
    with pm.Model() as model:
        scale = pm.Normal("scale", initval=1.0)
        gp = sgp.GriefGP(cov_func=scale * kernel, rank=15, approx="DTC")
        gp.marginal_likelihood("y", X=T[:, None], y=np.sin(T), sigma=0.5)
    logp = model.compile_logp(vars=model.observed_RVs)
    assert np.isfinite(logp({"scale": 1.0}))
    assert not np.isfinite(logp({"scale": -1.0}))


@pytest.mark.filterwarnings("ignore:Only 1 column")
def test_a_task_column_from_the_end():
    X = np.c_[RNG.uniform(size=45), np.arange(45) % 3]
    y = np.sin(6.0 * X[:, 0]) * (1.0 - X[:, 1])
    factor, found = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.3]]), []
    for column in (1, -1):
        with pm.Model() as model:
            gp = sgp.SKIPMarginal(
                cov_func=cov.ExpQuad(1, ls=0.3), rank=10, task_dim=column, task_cov=factor
            )
            gp.marginal_likelihood("y", X=X, y=y, sigma=0.1)
        found.append(gp.predict(X[:6], {}, diag=True, exact=True, model=model)[0])
    assert_array_equal(found[1], found[0])
    whole = cov.ExpQuad(1, ls=0.3) * cov.Coregion(1, W=factor, kappa=np.zeros(3), active_dims=[-1])
    assert_allclose(
        logp_of(lambda: sgp.ExactMarginal(cov_func=whole), X, y, sigma=0.1),
        logp_of(lambda: sgp.ExactMarginal(cov_func=gp.prior_cov), X, y, sigma=0.1),
        rtol=1e-12,
    )


def test_threads_have_products_of_their_own():
    n, rate = 2000, pt.dscalar()
    operator = sgp.linops.Toeplitz(pt.specify_shape(pt.exp(-rate * np.arange(float(n))), (n,)))
    _, a, b = sgp.ops.lanczos(operator, np.ones(n) + np.arange(n) % 7, 20)
    function = ForThreads([rate], [a, b])
    rates = np.random.default_rng(0).uniform(0.01, 1.0, 60)
    alone = [function(x) for x in rates]
    with ThreadPoolExecutor(4) as pool:
        for found, expected in zip(pool.map(function, rates), alone, strict=True):
            assert_array_equal(found, expected)
