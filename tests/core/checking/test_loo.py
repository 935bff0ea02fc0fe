"""Rows left out in closed form: the precision of every likelihood, and what follows from it."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.stats import multivariate_normal, norm

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.checking import loo
from pymc_scalable_gp.core.checking.loo import check_groups
from pymc_scalable_gp.core.likelihoods.precision import Precision
from pymc_scalable_gp.methods.kmcg import likelihood as kmcg_likelihood

# Of Pareto fits to some forty draws, from none of which much is asked.
pytestmark = pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")

N = 60
RNG = np.random.default_rng(4)
X = RNG.uniform(-1.0, 1.0, (N, 2))
Y = 2.0 + np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * RNG.standard_normal(N)
POINT = {"ell": 0.8, "sigma": 0.3}
MEAN = pm.gp.mean.Constant(1.9)

CASES = {
    "GriefGP FITC": lambda cov: sgp.GriefGP(mean_func=MEAN, cov_func=cov, grid=5, rank=12),
    "GriefGP DTC": lambda cov: sgp.GriefGP(
        mean_func=MEAN, cov_func=cov, grid=5, rank=12, approx="DTC"
    ),
    "frozen": lambda cov: sgp.GriefGP(
        mean_func=MEAN, cov_func=cov, grid=5, rank=12, basis="frozen"
    ),
    "SoftKI": lambda cov: sgp.SoftKIMarginal(mean_func=MEAN, cov_func=cov, inducing=9),
    "CholQR": lambda cov: sgp.CholQRMarginal(
        mean_func=MEAN, cov_func=cov, n_inducing=8, approx="FITC"
    ),
    "SKIP": lambda cov: sgp.SKIPMarginal(mean_func=MEAN, cov_func=cov, rank=5, grid_size=20),
    "Vecchia": lambda cov: sgp.VecchiaMarginal(
        mean_func=MEAN, cov_func=cov, n_inducing=6, neighbors=5, block=7
    ),
    "no features": lambda cov: sgp.VecchiaMarginal(
        mean_func=MEAN, cov_func=cov, n_inducing=0, neighbors=5, block=1
    ),
    "GriefGP VIF": lambda cov: sgp.GriefGP(
        mean_func=MEAN, cov_func=cov, grid=5, rank=12, approx="VIF", neighbors=4, block=4
    ),
    "Exact": lambda cov: sgp.ExactMarginal(mean_func=MEAN, cov_func=cov),
    "KMCG": lambda cov: sgp.KMCGMarginal(mean_func=MEAN, cov_func=cov, n_iter=N, probes=0),
    "SKIP products": lambda cov: sgp.SKIPMarginal(
        mean_func=MEAN, cov_func=cov, rank=5, grid_size=20, n_iter=N, probes=1, preconditioner=10
    ),
    "sum FITC": lambda cov: (
        sgp.SoftKIMarginal(mean_func=MEAN, cov_func=cov, inducing=30, temperature=0.1, approx="FITC")
        + sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.5), grid=5, rank=12)
    ),
    **{
        f"SKIP tasks {approx}": lambda cov, approx=approx: sgp.SKIPMarginal(
            mean_func=MEAN, cov_func=cov, rank=5, grid_size=20, task_dim=2, task_cov=TASK_COV,
            task_var=np.array([0.4, 0.1, 0.2]), approx=approx,
        )
        for approx in ("FITC", "DTC")
    },
}  # fmt: skip
# One for each way in which rows are left out; the others are slow.
ALONE = ("GriefGP FITC", "no features", "Exact", "KMCG", "SKIP products", "SKIP tasks FITC")
TASK_COV = np.array([[1.0, 0.2], [0.7, -0.4], [0.3, 0.9]])
TASKS = np.concatenate([X, np.repeat([0.0, 1.0, 2.0], N // 3)[:, None]], axis=1)


def model_of(case, sigma=None, rows=slice(None)):
    inputs = TASKS if "tasks" in case else X
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0.0, 0.3)
        gp = CASES[case](pm.gp.cov.ExpQuad(inputs.shape[1], ls=ell, active_dims=[0, 1]))
        noise = pm.HalfNormal("sigma") if sigma is None else sigma
        gp.marginal_likelihood("y", inputs[rows], Y[rows], noise)
    return gp, model


def precision_of_the_density(model, point):
    """P and P e from differences of the log density, which is quadratic in the targets."""
    value = pt.vector("value", shape=(N,))
    inputs = [model[name] for name in point if name in model.named_vars]
    logp = pytensor.function([value, *inputs], pm.logp(model["y"], value), mode="FAST_COMPILE")
    at = [point[v.name] for v in inputs]
    unit = np.eye(N)
    plus, minus = ([logp(Y + s * row, *at) for row in unit] for s in (1.0, -1.0))
    base = logp(Y, *at)
    alpha = (np.array(minus) - plus) / 2.0
    pairs = {(i, j): plus[i] + plus[j] - base - logp(Y + unit[i] + unit[j], *at)
             for i in range(4) for j in range(4)}  # fmt: skip
    block = np.array([[pairs[i, j] for j in range(4)] for i in range(4)])
    return alpha, 2.0 * base - plus - minus, block


@pytest.mark.filterwarnings("ignore:the features do not explain")
@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
@pytest.mark.filterwarnings("ignore:the points are")
@pytest.mark.parametrize(
    ("case", "sigma"),
    [pytest.param(case, None, marks=() if case in ALONE else pytest.mark.slow) for case in CASES]
    + [
        pytest.param(case, np.linspace(0.2, 0.5, N), marks=() if case == "Vecchia" else pytest.mark.slow)
        for case in ("GriefGP FITC", "Vecchia", "Exact", "SKIP tasks FITC")
    ],
)
def test_the_precision_is_that_of_the_density(case, sigma):
    gp, model = model_of(case, sigma)
    function = gp.training.precisions(model)
    found = function([np.asarray(POINT[v.name]) for v in function.inputs])
    alpha, diagonal, block = precision_of_the_density(model, POINT)
    tight = 2e-7 if case == "KMCG" else 1e-8  # its density adds 1e-8 of the prior variance to K
    np.testing.assert_allclose(found.alpha, alpha, rtol=0, atol=tight * np.abs(alpha).max())
    np.testing.assert_allclose(found.diagonal, diagonal, rtol=0, atol=tight * diagonal.max())
    own = found.block(np.arange(4))
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(own[off], block[off], rtol=0, atol=tight * diagonal.max())
    np.testing.assert_allclose(np.diag(own), diagonal[:4], rtol=tight)
    rows = np.flatnonzero(np.arange(N) % 3)  # more than there are features
    cov = np.linalg.inv(found.block(rows))  # y_G less its mean given all others is cov @ alpha
    given = multivariate_normal(cov @ found.alpha[rows], cov).logpdf(np.zeros(len(rows)))
    np.testing.assert_allclose(found.group_logp(rows), given, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:points were chosen by the kernel alone")
def test_little_noise_beside_what_features_leave_out():
    """At rows that are points D is sigma^2 and a jitter, and D P_ii as small as rounding of another D."""
    Y0, sigma = np.sin(5.0 * X[:, 0]) + X[:, 1], 1e-4
    with pm.Model() as model:
        gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern52(2, ls=0.8), n_inducing=24, approx="FITC")
        gp.marginal_likelihood("y", X, Y0, sigma)
        phi = model.compile_fn(gp.features(X), inputs=[], point_fn=False)()
        function = gp.training.precisions(model)
    found = function([])
    D = sigma**2 + np.maximum(1.0 - (phi**2).sum(axis=1), 0.0)
    P = np.linalg.inv(phi @ phi.T + np.diag(D))
    assert (D * np.diag(P)).min() < 1e-4
    # S has a condition of 1e10 at most: what NumPy's inverse loses.
    np.testing.assert_allclose(found.diagonal, np.diag(P), rtol=1e-6)
    np.testing.assert_allclose(found.alpha, P @ Y0, rtol=0, atol=1e-6 * np.abs(P @ Y0).max())


def draws(count=40, spread=0.05):
    """A posterior around POINT."""
    rng = np.random.default_rng(1)
    shape = (2, count // 2)
    values = {name: at * np.exp(spread * rng.standard_normal(shape)) for name, at in POINT.items()}
    return az.from_dict({"posterior": values})


def test_targets_changed_in_place():
    """What is kept of a call before is that of other data."""
    with pm.Model():
        y = pm.Data("targets", Y)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell")), mean_func=MEAN)
        gp.marginal_likelihood("y", X, y, 0.3)
        before = gp.loo(draws())
        y.get_value(borrow=True)[3] += 5.0
        after = gp.loo(draws())
        pm.set_data({"targets": Y})
        again = gp.loo(draws())
    assert after.elpd < before.elpd - 10.0
    np.testing.assert_allclose(again.elpd, before.elpd, rtol=1e-10)


@pytest.mark.parametrize("case", ["GriefGP FITC", "Exact"])
def test_it_is_what_a_fit_without_the_row_predicts(case):
    gp, model = model_of(case)
    with model:
        found = gp.loo(draws(spread=1e-8))
        sixth = np.arange(N) % 6
        grouped = gp.loo(draws(spread=1e-8), groups=sixth)
        pit = gp.loo_pit(draws(spread=1e-8))
    for i in (0, 17, N - 1):
        rest = np.delete(np.arange(N), i)
        given = {"X": X[rest], "y": Y[rest], "sigma": model["sigma"]}
        mean, var = gp.predict(X[[i]], POINT, given=given, diag=True, pred_noise=True, model=model)
        np.testing.assert_allclose(found.elpd_i[i], norm.logpdf(Y[i], mean[0], var[0] ** 0.5), atol=1e-6)
        np.testing.assert_allclose(pit[i], norm.cdf(Y[i], mean[0], var[0] ** 0.5), atol=1e-6)
    rows = sixth == 2
    given = {"X": X[~rows], "y": Y[~rows], "sigma": model["sigma"]}
    mean, cov = gp.predict(X[rows], POINT, given=given, pred_noise=True, model=model)
    assert grouped.elpd_i.shape == (6,)
    np.testing.assert_allclose(grouped.elpd_i[2], multivariate_normal(mean, cov).logpdf(Y[rows]), atol=1e-6)
    assert (pit >= 0).all()
    assert (pit <= 1).all()


def test_draws_are_weighted_towards_the_posterior_without_the_row():
    gp, model = model_of("Exact")
    idata = draws(400)
    with model:
        found, pit = gp.loo(idata), gp.loo_pit(idata)
        singles = gp.loo(idata, groups=np.arange(N))
    function = gp.training.precisions(model)
    columns = [idata["posterior"][v.name].values.ravel() for v in function.inputs]
    precisions = [function(values) for values in zip(*columns, strict=True)]
    moments = [(p.y - p.alpha / p.diagonal, p.diagonal**-0.5) for p in precisions]
    logp = np.array([norm.logpdf(Y, *each) for each in moments])
    below = np.array([norm.cdf(Y, *each) for each in moments])
    # Plain importance sampling, which smoothing of the largest weights changes by little here.
    weights = np.exp(-logp) / np.exp(-logp).sum(axis=0)
    np.testing.assert_allclose(found.elpd_i, -np.log(np.exp(-logp).mean(axis=0)), atol=2e-3)
    np.testing.assert_allclose(pit, (weights * below).sum(axis=0), atol=1e-3)
    assert (np.asarray(found.pareto_k) < 0.7).all()
    np.testing.assert_allclose(singles.elpd_i, found.elpd_i, atol=1e-9)


def test_one_pass_serves_both(monkeypatch):
    with pm.Model() as model:
        shown = pm.Data("shown", Y)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=pm.LogNormal("ell", 0.0, 0.3)))
        gp.marginal_likelihood("y", X, shown, pm.HalfNormal("sigma"))
    passes, left_out = [], Precision.left_out
    monkeypatch.setattr(Precision, "left_out", lambda self: passes.append(1) or left_out(self))
    idata, options = draws(), {"progressbar": False}
    first = gp.loo(idata, **options)
    pit = gp.loo_pit(idata, **options)
    assert len(passes) == 40
    # Other draws, other data and another likelihood are other passes, whatever object they come in.
    idata["posterior"]["ell"] = 1.1 * idata["posterior"]["ell"]
    assert (gp.loo_pit(idata, **options) != pit).any()
    with model:
        pm.set_data({"shown": Y + np.linspace(0.0, 1.0, N)})
    assert gp.loo(idata, **options).elpd != first.elpd
    assert len(passes) == 120


def test_kernels_are_compared():
    gp, model = model_of("Exact")
    with pm.Model() as poor:
        ell = pm.LogNormal("ell", 0.0, 0.3)
        cov = pm.gp.cov.ExpQuad(2, ls=ell, active_dims=[1])
        other = sgp.ExactMarginal(mean_func=MEAN, cov_func=cov)
        other.marginal_likelihood("y", X, Y, pm.HalfNormal("sigma"))
    idata = draws()
    options = {"progressbar": False, "num_samples": 38, "random_seed": 0}
    table = az.compare({"both": gp.loo(idata, model=model, **options),
                        "one input": other.loo(idata, model=poor, **options)})  # fmt: skip
    assert list(table.index) == ["both", "one input"]


def test_what_has_no_closed_form_is_refused(monkeypatch):
    gp, model = model_of("Exact")
    with model:
        for groups, text in [(np.zeros(N), "one label only"), (np.arange(5), r"shape \(60,\)")]:
            with pytest.raises(ValueError, match=text):
                gp.loo(draws(), groups=groups)
        with pytest.raises(ValueError, match="4 draws are too few"):
            gp.loo(draws(4))
        with pytest.raises(ValueError, match="no ell"):
            gp.loo(az.from_dict({"posterior": {"sigma": np.ones((1, 4))}}))
        with pytest.raises(ValueError, match="call marginal_likelihood first"):
            sgp.ExactMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0)).loo(draws())
        softki = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0), inducing=9)
        stats = softki.summarize(X, Y)
        softki.marginal_likelihood("known", statistics=stats, sigma=model["sigma"])
        with pytest.raises(ValueError, match="subtracting their statistics"):
            softki.loo(draws())
        options = {"cov_func": pm.gp.cov.ExpQuad(2, ls=1.0), "n_iter": 5, "probes": 0}
        for inducing, most, text in [
            (20, N, "has inducing="),
            (None, N - 1, "up to 59 rows .* has 60 rows"),
        ]:
            monkeypatch.setattr(kmcg_likelihood, "DENSE_ROWS", most)
            krylov = sgp.KMCGMarginal(**options, inducing=inducing)
            krylov.marginal_likelihood(f"krylov {inducing}", X, Y, model["sigma"])
            with pytest.raises(ValueError, match=text):
                krylov.loo(draws())


@pytest.mark.parametrize(
    "labels",
    [
        np.array([np.nan, 1.0, 2.0]), np.array([None, "a", "b"]),
        pd.Series([None, "a", "b"], dtype="string"),
        pd.Series([None, "a", "b"]).astype("category"), pd.Series([None, 1, 2], dtype="Int64"),
        pd.Series([pd.NaT, pd.Timestamp("2020"), pd.Timestamp("2021")]),
    ],
)  # fmt: skip
def test_rows_without_a_label_are_no_group(labels):
    with pytest.raises(ValueError, match="no label for 1 rows"):
        check_groups(labels, 3)


def test_labels_behind_a_mask_and_of_several_kinds():
    with pytest.raises(ValueError, match="groups has 1 masked values"):
        check_groups(np.ma.masked_array([0, 1, 2], [True, False, False]), 3)
    found = check_groups(np.array([1, "a", 1, "b"], dtype=object), 4)
    assert sorted(map(list, found)) == [[0, 2], [1], [3]]


def test_draws_without_a_density_are_counted():
    """The sum was NaN without a word."""
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(2, ls=pm.HalfNormal("ell")))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=0.3)
    ell = np.r_[np.full(28, 0.8), 0.0, 0.0][None]
    for ask in (gp.loo, gp.loo_pit):
        with pytest.raises(ValueError, match="density is NaN at 2 of 30 draws"):
            ask(az.from_dict({"posterior": {"ell": ell}}), model=model, progressbar=False)


def test_a_draw_counts_as_failed_where_one_row_has_no_density(monkeypatch):
    gp, model = model_of("Exact")
    logp = np.zeros((38, N))
    logp[3, 7] = np.nan
    monkeypatch.setattr(loo, "_densities", lambda *_: (logp, logp))
    with pytest.raises(ValueError, match="density is NaN at 1 of 38 draws"):
        gp.loo(draws(38), model=model, progressbar=False)


def test_a_probability_that_is_unknown_at_a_draw_is_unknown():
    log_weights = xr.DataArray(np.random.default_rng(0).normal(size=(2, 20, 3)))
    below = np.full(log_weights.shape, 0.25)
    below[1, 4, 2] = np.nan
    # A weighted mean of equal values, to rounding.
    np.testing.assert_allclose(loo._pit(log_weights, below), [0.25, 0.25, np.nan], rtol=1e-12)


@pytest.mark.parametrize("chains", [1, 2])
def test_weights_are_those_of_arviz_in_blocks_of_rows(monkeypatch, chains):
    """With the share of independent draws of several chains, which sets how long a tail is smoothed."""
    monkeypatch.setattr(loo, "BLOCK", 4)
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.normal(size=(chains, 300)), axis=1)
    logp = 0.3 * steps[..., None] * rng.normal(size=9)
    data = az.from_dict({"posterior": {"x": steps}, "log_likelihood": {"y": logp}})
    expected = az.loo(data, pointwise=True)
    weights, k = loo._smoothed(data, progressbar=False)
    np.testing.assert_array_equal(k, expected.pareto_k)
    np.testing.assert_array_equal(weights, expected.log_weights.transpose(*weights.dims))


def test_two_groups_are_enough():
    assert [list(rows) for rows in check_groups(np.array(["b", "a", "b"]), 3)] == [[1], [0, 2]]


def test_hyperparameters_that_are_known():
    """All weights are equal; PSIS fits no tail to such."""
    with pm.Model() as model:
        pm.Normal("other")
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(2, ls=POINT["ell"]))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=POINT["sigma"])
    idata = az.from_dict({"posterior": {"other": RNG.standard_normal((2, 30))}})
    K = pm.gp.cov.Matern52(2, ls=POINT["ell"])(X).eval() + POINT["sigma"] ** 2 * np.eye(N)
    precision = np.linalg.inv(K)
    sd = np.diag(precision) ** -0.5
    z = (precision @ Y) * sd
    found = gp.loo(idata, progressbar=False, model=model)
    np.testing.assert_allclose(found.elpd_i, norm.logpdf(z) - np.log(sd), rtol=1e-7)
    assert (found.pareto_k < 0.5).all()
    pit = gp.loo_pit(idata, progressbar=False, model=model)
    np.testing.assert_allclose(pit, norm.cdf(z), rtol=1e-7)
