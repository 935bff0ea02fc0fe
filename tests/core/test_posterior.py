"""A full posterior by NUTS against that of the exact Gaussian process."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from scipy import linalg

import pymc_scalable_gp as sgp

NAMES = ["ell", "eta", "sigma"]


def problem(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    d2 = (((X[:, None] - X) / [0.6, 0.9]) ** 2).sum(-1)
    f = np.linalg.cholesky(np.exp(-0.5 * d2) + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
    return X, f + 0.2 * rng.standard_normal(n)


def exact_logp(X, y, ell, eta, sigma):
    """Log density of y under the exact GP, in NumPy."""
    d2 = (((X[:, None] - X) / ell) ** 2).sum(-1)
    chol = linalg.cholesky(eta**2 * np.exp(-0.5 * d2) + sigma**2 * np.eye(len(y)), lower=True)
    white = linalg.solve_triangular(chol, y, lower=True)
    constant = 0.5 * len(y) * np.log(2 * np.pi)
    return -0.5 * white @ white - np.log(np.diag(chol)).sum() - constant


def softki(cov, X):
    """Every row a point and a low temperature: the exact kernel, but for a jitter of 1e-6."""
    return sgp.SoftKIMarginal(cov_func=cov, inducing=X, temperature=1e-3)


def products(cov, X):
    """Conjugate gradients and 16 probes."""
    gp = sgp.SKIPMarginal(cov_func=cov, rank=14, grid_size=50, n_iter=12, probes=16, preconditioner=70)
    gp.build(X, point={"ell": np.array([0.6, 0.9]), "eta": 1.0, "sigma": 0.2})
    return gp


def chosen(cov, X):
    """Points by the kernel alone, at the hyperparameters of the data."""
    gp = sgp.CholQRMarginal(cov_func=cov, n_inducing=45)
    gp.build(X, point={"ell": np.array([0.6, 0.9]), "eta": 1.0, "sigma": 0.2})
    return gp


# What the densities' ratio may vary by, in nats, and the moments move, in posterior sds. S probes make it
# vary by up to 2 / sqrt(S), and a density that varies by s nats moves a mean by s sds to first order. Last,
# what they may differ by everywhere: of scattered rows the probes' determinant is off by a nat or two.
ALIKE, LIMITS = (0.1, 0.05, 0.5), {"SKIP, products": (0.5, 0.5, 0.5), "KMCG": (0.5, 0.5, 2.0)}
METHODS = {
    "GriefGP": (
        300, lambda cov, X: sgp.GriefGP(cov_func=cov, approx="FITC", grid=14, rank=100), 0.01
    ),
    "SoftKI": (80, softki, 1e-4),
    # Without probes the density has narrow steps where a part of y passes through zero: NUTS diverges.
    "KMCG": (80, lambda cov, X: sgp.KMCGMarginal(cov_func=cov, n_iter=70, probes=16), 1e-4),
    "SKIP": (80, lambda cov, X: sgp.SKIPMarginal(cov_func=cov, rank=14, grid_size=50), 0.01),
    "SKIP, products": (80, products, 0.01),
    "CholQR": (80, chosen, 0.01),
    # Without neighbours the densities differ by .25 nats more or less; the exact GP has no features.
    "Vecchia": (300, lambda cov, X: sgp.VecchiaMarginal(cov_func=cov, n_inducing=30, neighbors=80,
                                                        block=8), None),
    "Exact": (80, lambda cov, X: sgp.ExactMarginal(cov_func=cov), None),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_posterior_is_that_of_the_exact_gp(method):
    """Draws weighted by the ratio of the exact density to ours are draws of the exact posterior.

    Both moments come from the same draws, so Monte Carlo error cancels: the tolerance is far below
    the 2-3 standard errors that two separate chains could resolve.
    """
    n, build, tolerance = METHODS[method]
    spread, moved, constant = LIMITS.get(method, ALIKE)
    X, y = problem(n)
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 4, 3, shape=2)
        eta, sigma = pm.HalfNormal("eta", 1), pm.HalfNormal("sigma", 0.5)
        gp = build(eta**2 * pm.gp.cov.ExpQuad(2, ls=ell), X)
        gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
        idata = pm.sample(
            1000, tune=300, chains=2, cores=2, random_seed=1, progressbar=False,
            compile_kwargs={"mode": "NUMBA"},
        )  # fmt: skip
        pm.compute_log_likelihood(idata, progressbar=False, compile_kwargs={"mode": "FAST_COMPILE"})
    assert int(idata["sample_stats"]["diverging"].sum()) == 0
    posterior = idata["posterior"].to_dataset()[NAMES]
    rhat = az.rhat(posterior)
    assert max(float(rhat[k].max()) for k in NAMES) < 1.01

    draws = np.column_stack([posterior[k].values.reshape(2000, -1) for k in NAMES])
    ours = idata["log_likelihood"]["y"].values.reshape(2000)
    exact = np.array([exact_logp(X, y, p[:2], p[2], p[3]) for p in draws])
    ratio = exact - ours
    assert ratio.std() < spread, "the likelihoods differ in more than a constant"
    assert abs(ratio.mean()) < constant  # nats
    weight = np.exp(ratio - ratio.max())
    weight /= weight.sum()
    mean = weight @ draws
    sd = np.sqrt(weight @ (draws - mean) ** 2)
    assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=moved)
    assert_allclose(draws.std(axis=0) / sd, 1.0, atol=moved)
    if tolerance is not None:
        point = {k: posterior[k].mean(("chain", "draw")).values for k in NAMES}
        assert gp.check(point, model=model, progressbar=False).missing.max() < tolerance


def test_what_is_no_point():
    """Of many draws the first was taken."""
    with pm.Model():
        ell = pm.HalfNormal("ell", shape=1)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell))
        x = np.linspace(0.0, 1.0, 8)[:, None]
        gp.marginal_likelihood("y", X=x, y=np.sin(9.0 * x[:, 0]), sigma=0.1)
        many = az.from_dict({"posterior": {"ell": np.array([[[3.0], [0.2]]])}})
        one = az.from_dict({"posterior": {"ell": np.array([[[0.2]]])}})
        with pytest.raises(ValueError, match="a point is one value of each variable, got 1 x 2 draws"):
            gp.predict(x, many)
        with pytest.raises(ValueError, match=r"got 2 draws.*\.mean\(\['draw'\]\)"):
            gp.predict(x, many.isel(chain=0))
        mean = dict(many.posterior.mean(["chain", "draw"]))
        assert_allclose(gp.predict(x, mean)[0], gp.predict(x, {"ell": [1.6]})[0])
        same = many.isel(draw=[1])
        same["posterior"] = same["posterior"].dataset.transpose()
        for each in (one, same, many.isel(chain=0, draw=1), many.isel(chain=0, draw=[1])):
            assert_allclose(gp.predict(x, each)[0], gp.predict(x, {"ell": [0.2]})[0])
        for value in (0.3, [0.3, 0.4]):
            with pytest.raises(
                ValueError, match=r"point has ell of shape .*; the model's has shape \(1,\)"
            ):
                gp.predict(x, {"ell": value})


def test_a_posterior_of_one_variable():
    """ArviZ extracts it as an array, in whose values a name was looked up."""
    with pm.Model():
        ell = pm.HalfNormal("ell")
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(1, ls=ell))
        x = np.linspace(0.0, 1.0, 8)[:, None]
        gp.marginal_likelihood("y", X=x, y=np.sin(9.0 * x[:, 0]), sigma=0.1)
        whole = az.from_dict({"posterior": {"ell": np.array([[0.3, 0.2, 0.4]])}})
        alone = az.extract(whole)
        assert isinstance(alone, xr.DataArray)
        expected = gp.predict_posterior(x, whole, progressbar=False)
        assert_allclose(gp.predict_posterior(x, alone, progressbar=False)["sd"], expected["sd"], rtol=1e-12)
        assert gp.check(alone, progressbar=False).attrs["draws"] == 3
        with pytest.raises(ValueError, match=r"the posterior has no ell; it holds \['other'\]"):
            gp.predict_posterior(x, alone.rename("other"), progressbar=False)
        with pytest.raises(TypeError, match="idata must be what pm.sample returns.*, got DataArray"):
            gp.predict_posterior(x, alone.rename(None), progressbar=False)


LABELS = list("abc")
NEW = np.linspace(0.0, 3.0, 18).reshape(6, 3)


def named(labels=LABELS):
    """A lengthscale for each column, as a dimension with labels, and draws of their prior."""
    X = np.random.default_rng(1).uniform(0.0, 3.0, (30, len(labels)))
    with pm.Model(coords={"column": labels}):
        ell = pm.InverseGamma("ell", 3, 3, dims="column")
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(len(labels), ls=ell))
        gp.marginal_likelihood("y", X=X, y=np.sin(2.0 * X[:, 0]) + X[:, 1], sigma=0.3)
        return gp, pm.sample_prior_predictive(30, random_seed=2)["prior"].to_dataset()


def test_draws_and_points_of_another_number_of_columns():
    """PyTensor's types of variables with dims have no lengths, so that any were taken."""
    gp, draws = named()
    _, more = named(list("abcde"))
    one = draws.isel(column=[0])
    for call in (gp.predict_posterior, gp.export, gp.check, gp.loo, gp.correct):
        arguments = {gp.predict_posterior: (NEW, more), gp.export: (one, "no.npz")}.get(call, (more,))
        with pytest.raises(ValueError, match=r"ell has shape .* the model's has \(3,\)"):
            call(*arguments, progressbar=False)
    for value in (1.0, np.ones(1), np.ones(5)):
        with pytest.raises(ValueError, match=r"point has ell of shape .*; the model's has shape \(3,\)"):
            gp.predict(NEW, {"ell": value})
    assert len(gp.predict(NEW, {"ell": np.ones(3)}, diag=True)[0]) == 6


def test_draws_and_points_whose_labels_are_in_another_order():
    """Entries were taken by their place."""
    gp, draws = named()
    _, other = named(LABELS[::-1])
    _, renamed = named(["x", "b", "c"])
    expected = gp.predict_posterior(NEW, draws, progressbar=False)["mean"]
    by_place = draws.drop_vars("column")
    for same in (
        draws.sel(column=LABELS[::-1]).sel(column=LABELS), draws.stack(sample=("chain", "draw")),
        draws.transpose(), draws.assign_coords(column=np.array(LABELS, dtype=object)),
        by_place, by_place.assign_coords(column=range(3)),
    ):  # fmt: skip
        assert_allclose(gp.predict_posterior(NEW, same, progressbar=False)["mean"], expected)
    for wrong, words in ((other, "c at place 0 of column, the model a: sort it"),
                         (renamed, "x at place 0 of column, the model a: is it of this")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            gp.predict_posterior(NEW, wrong, progressbar=False)
        with pytest.raises(ValueError, match=words):
            gp.predict(NEW, dict(wrong.mean(("chain", "draw"))))
        with pytest.raises(ValueError, match=words):
            gp.predict(NEW, xr.DataTree.from_dict({"posterior": wrong.isel(draw=[0])}))
    _, numbered = named([2, 0, 1])
    with pytest.raises(ValueError, match="0 at place 0 of column, the model 2: sort it"):
        named([2, 0, 1])[0].predict_posterior(NEW, numbered.sel(column=[0, 1, 2]), progressbar=False)


@pytest.mark.parametrize(
    "labels",
    [pd.date_range("2020", periods=3), [0.5, np.nan, 2], [True, "x", 3], ["a", "a", "b"], [1, 2, 3]],
)
def test_labels_of_any_kind_are_known_again(labels, tmp_path):
    gp, draws = named(labels)
    draws.to_zarr(tmp_path / "draws.zarr", consolidated=False)
    for same in (draws, xr.open_zarr(tmp_path / "draws.zarr", consolidated=False)):
        gp.predict_posterior(NEW, same, progressbar=False)


def test_draws_that_are_missing(tmp_path):
    gp, draws = named()
    short = draws.isel(draw=slice(25))
    joined = xr.concat([draws, short.assign_coords(chain=[1])], "chain", join="outer")
    with pytest.raises(ValueError, match="no draws left, its dimensions are .*'draw': 0"):
        gp.predict_posterior(NEW, draws.isel(draw=slice(50, None)), progressbar=False)
    for call, place in ((gp.predict_posterior, (NEW, joined)), (gp.export, (joined, tmp_path / "gp.npz"))):
        with pytest.raises(ValueError, match="ell is NaN at 5 of 60 draws, .*leave these out"):
            call(*place, num_samples=None, progressbar=False)
    found = gp.predict_posterior(NEW, joined.dropna("draw"), progressbar=False)
    assert_allclose(found["mean"], gp.predict_posterior(NEW, short, progressbar=False)["mean"])


@pytest.mark.parametrize("counts", [False, True])
def test_draws_without_a_prediction_are_counted(counts, tmp_path):
    """All predictions were NaN without a word, those of an exported file as well."""
    x = np.linspace(0.0, 1.0, 8)[:, None]
    of_counts = {"likelihood": lambda f: pm.Poisson.dist(mu=pm.math.exp(f))}
    with pm.Model():
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=pm.HalfNormal("ell")))
        gp.marginal_likelihood("y", X=x, y=np.arange(8), **(of_counts if counts else {"sigma": 0.1}))
    draws = xr.Dataset({"ell": (("chain", "draw"), np.array([[0.3, 0.0, 0.4], [0.0, 0.0, 0.2]]))})
    words = "the prediction is NaN at 3 of 6 draws, where no mode was found"
    for options in ({}, {"draws": True}, {"draws": True, "pred_noise": True}):
        with pytest.raises(ValueError, match=words):
            gp.predict_posterior(x, draws, progressbar=False, **options)
    with pytest.raises(ValueError, match=words):
        gp.export(draws, tmp_path / "gp.npz", progressbar=False)
    assert not list(tmp_path.iterdir())


def test_fixed_features_without_a_prediction_are_counted():
    """All draws are mixed at once there."""
    x = np.linspace(0.0, 1.0, 30)[:, None]
    with pm.Model():
        gp = sgp.GriefGP(cov_func=pm.gp.cov.Matern52(1, ls=0.3), rank=8, rotate=True)
        sigma, w = pm.HalfNormal("sigma"), pm.HalfNormal("w", shape=gp.build(x))
        gp.marginal_likelihood("y", X=x, y=np.sin(6.0 * x[:, 0]), sigma=sigma, weights=w)
    values = np.array([[0.3, 0.0]])
    draws = xr.Dataset({
        "sigma": (("chain", "draw"), values),
        "w": (("chain", "draw", "entry"), np.repeat(values[..., None], gp.rank, axis=2)),
    })  # fmt: skip
    with pytest.raises(ValueError, match="the prediction is NaN at 1 of 2 draws"):
        gp.predict_posterior(x, draws, progressbar=False)
