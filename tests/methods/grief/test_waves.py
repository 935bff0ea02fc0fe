"""Periodic kernels with a fixed period: Fourier series, of which parameters move the variances alone."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.grief.waves import WaveTerm

cov = pm.gp.cov
RNG = np.random.default_rng(3)
X = 7.0e3 + np.sort(RNG.uniform(0.0, 8.0, 60))[:, None]
Y = np.sin(2.0 * np.pi * X[:, 0] / 1.7) + 0.2 * X[:, 0] - 1400.8 + 0.1 * RNG.standard_normal(60)
BUILT = {"ls": 1.0, "slow": 4.0, "eta": 1.0}


def parameters():
    return pm.LogNormal("ls"), pm.LogNormal("slow"), pm.HalfNormal("eta")


def kernels(ls, slow, eta):
    return 1.5 * cov.ExpQuad(1, ls=slow), eta**2 * cov.Periodic(1, period=1.7, ls=ls)


def density(model):
    found = model.logp_dlogp_function(ravel_inputs=True)
    found.set_extra_values({})
    return found


POINTS = [[0.0, 1.4, 0.0, -2.0] + 0.3 * RNG.standard_normal(4) for _ in range(3)]


def test_features_hold_the_kernel_at_any_lengthscale():
    """In one of two columns, far from zero; down to half the build's lengthscale to 1e-10."""
    rows = np.column_stack([RNG.standard_normal(60), X[:, 0]])
    with pm.Model() as model:
        ls, _, eta = parameters()
        kernel = eta**2 * cov.Periodic(2, period=1.7, ls=ls, active_dims=[1])
        gp = sgp.GriefGP(cov_func=kernel, grid=3)
        assert gp.build(rows, point=BUILT) == 21
    inputs = [model["ls"], model["eta"]]
    found = pytensor.function(inputs, gp.features(pt.constant(rows)), mode="FAST_COMPILE")
    exact = pytensor.function(inputs, kernel(rows), mode="FAST_COMPILE")
    for ls, atol in [(0.5, 1e-9), (1.0, 1e-11), (50.0, 1e-11), (0.34, 1e-7)]:
        phi = found(ls, 0.8)
        assert_allclose(phi @ phi.T, exact(ls, 0.8), rtol=0, atol=atol)


def test_a_lengthscale_of_one_entry_by_dims():
    """Its type does not tell how many entries it has."""
    found = []
    for dims in (None, "one"):
        with pm.Model(coords={"one": ["a"]}) as model:
            kernel = cov.Periodic(1, period=1.7, ls=pm.LogNormal("ls", dims=dims))
            sgp.GriefGP(cov_func=kernel).marginal_likelihood("y", X, Y, 0.5)
        found.append(model.compile_logp()({"ls_log__": np.full(1 if dims else (), 0.2)}))
    assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("kind", ["sum kernel", "sum of GPs"])
def test_a_frozen_basis_is_summarised_and_near_the_exact_gp(kind):
    def gp_of(kind, ls, slow, eta):
        first, second = kernels(ls, slow, eta)
        options = {"rank": 40, "basis": "frozen", "reference": BUILT}
        if kind == "exact":
            return sgp.ExactMarginal(cov_func=first + second)
        if kind == "sum kernel":
            return sgp.GriefGP(cov_func=first + second, **options)
        return sgp.GriefGP(cov_func=first, **options) + sgp.GriefGP(cov_func=second, **options)

    found = []
    for each in (kind, "exact"):
        with pm.Model() as model:
            gp = gp_of(each, *parameters())
            gp.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
        found.append(density(model))
        if each == kind:
            assert gp.likelihood_path == "summarized"
    for point in POINTS:
        (logp, slope), (exact, exact_slope) = (each(point) for each in found)
        # The mixing's jitters, 1e-9 of the variance, against a noise of 0.02 at sixty rows.
        assert_allclose(logp, exact, atol=2e-3)
        assert_allclose(slope, exact_slope, atol=2e-2)
        directions = 1e-5 * np.eye(4)
        numeric = [(found[0](point + h)[0] - found[0](point - h)[0]) / 2e-5 for h in directions]
        assert_allclose(slope, numeric, rtol=1e-5, atol=1e-5)


def test_latent_and_marginal_have_the_same_posterior_of_f():
    with pm.Model() as model:
        first, second = kernels(*parameters())
        options = {"rank": 40, "basis": "frozen", "reference": BUILT}
        gps = [sgp.GriefGP(cov_func=k, **options) for k in (first, second)]
        marginal, latent = (
            gps[0] + gps[1],
            sgp.GriefGP(cov_func=first, **options) + sgp.GriefGP(cov_func=second, **options),
        )
        marginal.marginal_likelihood("y", X, Y, 0.1)
        f = latent.prior("f", X)
    point = BUILT | {"ls": 0.8, "slow": 3.0}
    mean, _ = marginal.predict(X, point=point, model=model)
    inputs = [model[name] for name in ("ls", "slow", "eta")]
    phi = latent.feature_map.features(pt.constant(X))
    values = pytensor.function(inputs, phi, mode="FAST_COMPILE")(*point.values())
    z = np.linalg.solve(values.T @ values / 0.01 + np.eye(latent.rank), values.T @ Y / 0.01)
    at = pytensor.function([*inputs, model["f_coeffs"]], f, mode="FAST_COMPILE")
    assert_allclose(at(*point.values(), z), mean, rtol=0, atol=1e-6)


def test_predictions_of_one_part_follow_the_data_beyond_the_grid():
    with pm.Model() as model:
        first, second = kernels(*parameters())
        slow, season = (sgp.GriefGP(cov_func=k, rank=30) for k in (first, second))
        total = slow + season
        total.marginal_likelihood("y", X, Y, 0.1)
        given = {"gp": total}
        new = X[:5] + 1.7 * np.arange(20.0, 25.0)[:, None]
        with pytest.warns(UserWarning, match="beyond the grid"):  # the other part fades there
            found = season.predict(new, BUILT, diag=True, given=given, model=model)
        inside = season.predict(X[:5], BUILT, diag=True, given=given, model=model)
    assert_allclose(found, inside, atol=1e-8)


def test_a_basis_is_recentred_with_the_harmonics_of_the_posterior():
    """It took those of the initial point: a series' lengthscale is none of the basis's parameters."""
    away = BUILT | {"ls": 0.3}
    with pm.Model():
        first, second = kernels(*parameters())
        gp = sgp.GriefGP(cov_func=first + second, rank=100, basis="frozen")
        at_initial, rank = gp.build(X), gp.build(X, point=away)
        assert rank > at_initial
        draws = {name: np.full((1, 4), value) for name, value in away.items()}
        gp.build(X)
        assert gp.recentre(X, az.from_dict({"posterior": draws})) == rank
        with pytest.raises(ValueError, match="the posterior has no slow"):
            gp.recentre(X, az.from_dict({"posterior": {"ls": draws["ls"]}}))


def test_long_lengthscales_leave_a_finite_gradient():
    """All harmonics but a few are rounding there, and have no root to differentiate."""
    with pm.Model() as model:
        ls = pm.LogNormal("ls")
        gp = sgp.GriefGP(cov_func=cov.Periodic(1, period=1.7, ls=ls), basis="frozen", rank=30)
        gp.marginal_likelihood("y", X, Y, 0.3)
    assert all(np.isfinite(part).all() for part in density(model)(np.array([6.0])))


def test_which_kernels_have_a_series():
    """A scaled Periodic kernel of one column in a sum; not a free or replaceable period, nor a product."""
    with pm.Model():
        data = pm.Data("period", 1.7)
        free = pm.LogNormal("free")
        slow = cov.Matern52(1, ls=3.0)
        for kernel, expected in [
            (cov.Periodic(1, 1.7, ls=1.0) + slow, [False, True]),
            (2.0 * (0.3 * cov.Periodic(1, 1.7, ls=1.0)), [True]),
            (slow + cov.Periodic(1, 1.7, 1.0) + free**2 * cov.Periodic(1, 2.0, 1.0), [False, True, True]),
            (cov.Periodic(1, free, ls=1.0), [False]),
            (cov.Periodic(1, data, ls=1.0), [False]),
            (cov.Periodic(1, 1.7, ls=1.0) * slow, [False]),
            (cov.Periodic(2, 1.7, ls=1.0), [False]),
        ]:  # fmt: skip
            d = max(getattr(kernel, "input_dim", 1), 1)
            gp = sgp.GriefGP(cov_func=kernel, rank=10, grid=10)
            gp.build(np.repeat(X, d, axis=1) if d == 2 else X)
            assert [isinstance(grid, WaveTerm) for grid in gp.feature_map.grids] == expected


def test_the_rank_bounds_the_harmonics_and_build_says_what_is_missing():
    with pm.Model():
        gp = sgp.GriefGP(cov_func=cov.Periodic(1, 1.7, ls=pm.LogNormal("ls")), rank=4)
        with pytest.warns(UserWarning, match="because the rank is too low"):
            assert gp.build(X, point={"ls": 0.1}) == 3
        with pytest.raises(ValueError, match="not finite at the hyperparameters"):
            gp.build(X, {"ls": np.nan})


def test_a_grid_beyond_the_data_covers_what_a_series_does():
    """The series' ends are those of the data, and it fades nowhere."""
    X = np.linspace(0.0, 20.0, 60)[:, None]
    with pm.Model():
        eta = pm.HalfNormal("eta", shape=2)
        kernel = eta[0] ** 2 * cov.ExpQuad(1, ls=1.0) + eta[1] ** 2 * cov.Periodic(1, period=1.0, ls=1.0)
        gp = sgp.GriefGP(
            cov_func=kernel,
            grid=[np.linspace(0.0, 20.0, 80)],
            basis="frozen",
            reference={"eta": [1.0, 1.0]},
        )
        gp.build(X[X[:, 0] < 10.0])
        gp.marginal_likelihood("y", X=X, y=np.sin(X[:, 0]), sigma=0.3)
    assert gp.feature_map.input_range.high[0] == 20.0
