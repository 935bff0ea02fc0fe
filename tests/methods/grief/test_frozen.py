"""Features of a reference, mixed by a matrix of the hyperparameters."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.testing import check_marginal_logp

RNG = np.random.default_rng(2)
X = RNG.uniform(-1.0, 1.0, (60, 2))
Y = np.sin(4.0 * X[:, 0]) * X[:, 1] + 0.1 * RNG.standard_normal(60)
REFERENCE = {"ell": np.array([0.8, 1.1]), "eta": 1.4}


def kernel(kind="product"):
    ell, eta = pm.InverseGamma("ell", 3, 3, shape=2), pm.HalfNormal("eta")
    if kind == "sum":
        first = pm.gp.cov.Matern52(2, ls=ell[0], active_dims=[0])
        return eta**2 * first + 0.5 * pm.gp.cov.ExpQuad(2, ls=ell) + pm.gp.cov.Constant(0.3 * eta)
    return eta**2 * pm.gp.cov.ExpQuad(2, ls=ell)


def both(kind="product", **options):
    """GPs with free and with frozen features, built at the reference; in the model of the context."""
    cov = kernel(kind)
    options = {"grid": 8, "rank": 30} | options
    free = sgp.GriefGP(cov_func=cov, approx="DTC", **options)
    frozen = sgp.GriefGP(cov_func=cov, basis="frozen", reference=REFERENCE, **options)
    free.build(X, point=REFERENCE)
    frozen.build(X)
    return free, frozen


def values(gp, model, X, point):
    """Features at inputs and hyperparameters."""
    inputs = [model["ell"], model["eta"]]
    function = pytensor.function(inputs, gp.features(pt.constant(X)), mode="FAST_COMPILE")
    return function(point["ell"], point["eta"])


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_the_reference_is_grief(kind):
    with pm.Model() as model:
        free, frozen = both(kind)
    phi, expected = (values(gp, model, X, REFERENCE) for gp in (frozen, free))
    # The mixing's jitter, 1e-9 of the variance, is all that differs.
    np.testing.assert_allclose(phi @ phi.T, expected @ expected.T, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_nodes_keep_the_kernel_of_other_hyperparameters(kind):
    """With every cell of the grid the kernel is interpolated: exact at the nodes, wherever theta is."""
    nodes = np.linspace(-1.0, 1.0, 5)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(25, 2)
    with pm.Model() as model:
        _, frozen = both(kind, grid=[nodes, nodes], rank=31 if kind == "sum" else 25)
        cov = frozen.cov_func
        for scale in (0.6, 1.0, 1.5):
            point = {"ell": REFERENCE["ell"] * scale, "eta": 0.9}
            phi = values(frozen, model, grid, point)
            inputs = [model["ell"], model["eta"]]
            K = pytensor.function(inputs, cov(grid), mode="FAST_COMPILE")(*point.values())
            np.testing.assert_allclose(phi @ phi.T, K, rtol=0, atol=2e-6)


def test_the_density_and_its_gradient():
    with pm.Model() as model:
        _, frozen = both()
        sigma = pm.HalfNormal("sigma")
        frozen.marginal_likelihood("y", X, Y, sigma)
        assert frozen.likelihood_path == "summarized"
        assert frozen.approx == "DTC"
    check_marginal_logp(frozen, model)
    logp = model.logp_dlogp_function(ravel_inputs=True)
    logp.set_extra_values({})
    start = np.array([-0.3, 0.2, 0.1, -1.5])
    _, gradient = logp(start)
    for place in range(4):
        step = 1e-6 * np.eye(4)[place]
        slope = (logp(start + step)[0] - logp(start - step)[0]) / 2e-6
        np.testing.assert_allclose(gradient[place], slope, rtol=1e-6, atol=1e-6)


def test_more_features_than_the_kernel_has_variance_for():
    """Fifty of one input: the eigenvalues of most are rounding at the reference, and shorter."""
    x = np.sort(X[:, :1], axis=0)
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("ell", 3, 3))
        gp = sgp.GriefGP(cov_func=cov, rank=50, grid=50, basis="frozen", reference={"ell": 1.5})
        gp.marginal_likelihood("y", x, Y, 0.3)
    assert gp.rank == 50
    logp = model.compile_logp(mode="FAST_COMPILE")
    for ell in (1.5, 0.8, 3.0):
        K = np.exp(-0.5 * (x - x.T) ** 2 / ell**2) + 0.3**2 * np.eye(60)
        exact = multivariate_normal(np.zeros(60), K).logpdf(Y)
        found = logp({"ell_log__": np.log(ell)}) - model.compile_logp(vars=[model["ell"]])(
            {"ell_log__": np.log(ell)}
        )
        # Two jitters, of 1e-10 and 1e-9 of the variance, against a noise of 0.09 at sixty rows.
        np.testing.assert_allclose(found, exact, atol=5e-3)


def test_shorter_lengthscales_keep_their_directions():
    """Those of singular values near rounding at the reference, which the mixing scales up."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10, 200))[:, None]
    y = np.sin(2.0 * x[:, 0]) + 0.01 * rng.standard_normal(200)
    with pm.Model() as model:
        ell, eta = pm.LogNormal("ell"), pm.HalfNormal("eta")
        cov = eta**2 * pm.gp.cov.ExpQuad(1, ls=ell)
        point = {"ell": 3.0, "eta": 1.0}
        gp = sgp.GriefGP(cov_func=cov, grid=60, rank=60, basis="frozen", reference=point)
        gp.marginal_likelihood("y", x, y, 0.01)
    logp = model.compile_logp(vars=[model["y"]], mode="FAST_COMPILE")
    phi = pytensor.function([ell, eta], gp.features(pt.constant(x)), mode="FAST_COMPILE")
    for at in (0.7, 1.0, 3.0):
        features = phi(at, 3.0)
        expected = multivariate_normal(cov=features @ features.T + 1e-4 * np.eye(200)).logpdf(y)
        found = logp({"ell_log__": np.log(at), "eta_log__": np.log(3.0)})
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_far_from_the_data_the_prior_returns():
    with pm.Model() as model:
        _, frozen = both()
        frozen.marginal_likelihood("y", X, Y, 0.1)
    point = REFERENCE | {"eta": 1.1}
    with pytest.warns(UserWarning, match="beyond the grid"):
        mean, var = frozen.predict(np.full((1, 2), 30.0), point=point, diag=True, model=model)
    np.testing.assert_allclose((mean[0], var[0]), (0.0, 1.1**2), atol=1e-6)


def test_latent_and_marginal_have_the_same_posterior_of_f():
    with pm.Model() as model:
        _, frozen = both()
        frozen.marginal_likelihood("y", X, Y, 0.3)
        latent = sgp.GriefGP(cov_func=frozen.cov_func, basis="frozen", reference=REFERENCE, grid=8, rank=30)
        f = latent.prior("f", X)
    point = {"ell": np.array([0.6, 1.3]), "eta": 1.1}
    phi = values(latent, model, X, point)
    mean, _ = frozen.predict(X, point=point, model=model)
    z = np.linalg.solve(phi.T @ phi / 0.09 + np.eye(30), phi.T @ Y / 0.09)
    inputs = [model["ell"], model["eta"], model["f_coeffs"]]
    at = pytensor.function(inputs, f, mode="FAST_COMPILE")(*point.values(), z)
    np.testing.assert_allclose(at, mean, rtol=0, atol=1e-7)


def test_bad_options():
    with pm.Model():
        cov = kernel()
        for options, text in [
            ({"basis": "fixed"}, "'free', 'frozen'"),
            ({"reference": REFERENCE}, "basis="),
            ({"basis": "frozen", "approx": "FITC"}, 'basis="frozen" works with approx="DTC"'),
            ({"basis": "frozen", "rotate": True}, "rotate=True needs"),
        ]:
            with pytest.raises(ValueError, match=text):
                sgp.GriefGP(cov_func=cov, **options)
        gp = sgp.GriefGP(cov_func=cov, basis="frozen", rank=5, grid=5)
        with pytest.raises(ValueError, match="recentre is for"):
            gp.recentre(X, None)
        gp.build(X)
        assert "basis='frozen'" in repr(gp)
        with pytest.raises(ValueError, match="weights are for a fixed kernel"):
            gp.marginal_likelihood("y", X, Y, 0.1, weights=np.ones(5))


def draws(ell, eta, count=30):
    """A posterior around some hyperparameters."""
    import arviz as az

    rng = np.random.default_rng(0)
    shape = (2, count // 2)
    return az.from_dict(
        {
            "posterior": {
                "ell": np.asarray(ell) * np.exp(0.02 * rng.standard_normal((*shape, 2))),
                "eta": eta * np.exp(0.02 * rng.standard_normal(shape)),
                "sigma": 0.1 * np.exp(0.02 * rng.standard_normal(shape)),
            }
        }
    )


@pytest.mark.slow
def test_check_sees_what_moved():
    with pm.Model() as model:
        _, frozen = both(rank=30)
        frozen.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
    options = {"neighbors": None, "num_samples": 30, "progressbar": False}
    away = draws(0.6 * REFERENCE["ell"], 1.4)
    near, far = (frozen.check(at, **options) for at in (draws(REFERENCE["ell"], 1.4), away))
    assert list(near.hyperparameter.values) == ["ell[0]", "ell[1]", "eta", "sigma"]
    assert near.attrs["lost_recomputed"] < 0.01
    assert far.attrs["lost_recomputed"] > 5 * near.attrs["lost_recomputed"]
    assert (np.abs(near.from_reference[:3]) < 1.0).all()
    assert (np.abs(far.from_reference[:2]) > 10).all()
    assert np.isnan(far.from_reference[3])
    gap = near.logp_recomputed - near.logp_approx
    np.testing.assert_allclose(near.attrs["gap_recomputed"], gap.mean())
    assert (near.excess >= 0.0).all()
    assert far.excess.max() > near.excess.max()
    assert "recentre" not in near.attrs["verdict"]
    assert "gp.recentre(X, idata)" in far.attrs["verdict"].splitlines()[0]
    assert "ell[" in far.attrs["verdict"].splitlines()[1]
    frozen.recentre(X, away)  # in the model of the likelihood
    np.testing.assert_allclose(
        frozen.feature_map.reference["ell"], away["posterior"]["ell"].mean(("chain", "draw"))
    )
    assert frozen.model is model
    again = frozen.check(away, **options)  # the likelihood's features are still those of the build before
    np.testing.assert_allclose(again.from_reference, far.from_reference)
    np.testing.assert_allclose(again.logp_recomputed, far.logp_recomputed)


def test_check_of_statistics_takes_rows():
    """A likelihood that was made from statistics is compared on rows that are given."""
    with pm.Model():
        _, frozen = both(rank=30)
        frozen.marginal_likelihood("y", statistics=frozen.summarize(X, Y), sigma=pm.HalfNormal("sigma"))
    options = {"neighbors": None, "num_samples": 30, "progressbar": False}
    near = draws(REFERENCE["ell"], 1.4)
    found = frozen.check(near, X, Y, **options)
    assert {"logp_exact", "logp_recomputed", "from_reference"} <= set(found)
    only = frozen.check(near, X, **options)
    assert {"missing", "excess", "from_reference"} == set(only)
    with pytest.raises(ValueError, match="y= goes with X="):
        frozen.check(near, y=Y, **options)


def test_inputs_that_are_random():
    """Their values are those of the model: in the density, and where new rows follow from a variable."""
    at = X[:, 1] + 0.05
    with pm.Model() as model:
        moved = pm.Normal("moved", X[:, 1], 0.1)
        _, frozen = both()
        where = pt.stack([pt.constant(X[:, 0]), moved], axis=1)
        frozen.marginal_likelihood("y", where, Y, 0.2)
        frozen.conditional("f", where[:2])
        point = {"moved": at} | REFERENCE
        idata = az.from_dict({"posterior": {k: np.array(v)[None, None] for k, v in point.items()}})
        drawn = pm.sample_posterior_predictive(idata, var_names=["f"], random_seed=1, progressbar=False)
    logp = model.compile_logp(vars=[model["y"]], jacobian=False)
    theta = {"ell_log__": np.log(REFERENCE["ell"]), "eta_log__": np.log(1.4)}
    with pm.Model() as fixed:
        _, same = both()
        same.marginal_likelihood("y", np.stack([X[:, 0], at], axis=1), Y, 0.2)
    expected = fixed.compile_logp(vars=[fixed["y"]], jacobian=False)
    np.testing.assert_allclose(logp(theta | {"moved": at, "f": np.zeros(2)}), expected(theta), rtol=1e-9)
    mean, cov = same.predict(np.stack([X[:2, 0], at[:2]], axis=1), REFERENCE, model=fixed)
    assert np.abs(drawn["posterior_predictive"]["f"].values[0, 0] - mean).max() < 4.0 * cov.max() ** 0.5


def test_inputs_of_single_precision():
    """As `pm.Data` holds them under floatX=float32."""
    with pm.Model() as model:
        frozen = both()[1]
        single = X.astype("float32")
        found = values(frozen, model, single, REFERENCE)
        np.testing.assert_allclose(
            found, values(frozen, model, single.astype(float), REFERENCE), rtol=1e-12
        )
