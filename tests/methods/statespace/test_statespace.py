"""The state-space form against the exact Gaussian process."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from compared import draw_many
from marks import often
from numpy.testing import assert_allclose
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cos

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.statespace.markov import all_coefficients, count_states
from pymc_scalable_gp.utils.compiled import evaluate

cov = pm.gp.cov
RNG = np.random.default_rng(0)
N = 24
X = RNG.uniform(-3.0, 5.0, (N, 1))  # in no order
X[4:6] = X[7]
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(N)
XNEW = np.array([[0.3], [-9.0], [40.0], [1.7], X[7], [4.99]])

KERNELS = {
    "Matern12": lambda a, b: cov.Matern12(1, ls=a),
    "Exponential": lambda a, b: cov.Exponential(1, ls=a),
    "Matern32": lambda a, b: cov.Matern32(1, ls=a),
    "Matern52": lambda a, b: cov.Matern52(1, ls=a),
    "ls of one entry": lambda a, b: cov.Matern52(1, ls=a[None]),
    "Cosine": lambda a, b: cov.Cosine(1, ls=a),
    "Periodic": lambda a, b: cov.Periodic(1, period=b, ls=a),
    "Periodic, short ls": lambda a, b: cov.Periodic(1, period=b, ls=0.25 * a),
    "Periodic, long ls": lambda a, b: cov.Periodic(1, period=b, ls=50.0 * a),
    "Linear": lambda a, b: cov.Linear(1, c=b),
    "scaled": lambda a, b: b**2 * cov.Matern32(1, ls=a),
    "scaled from the right": lambda a, b: cov.Matern32(1, ls=a) * b**2,
    "Constant times": lambda a, b: cov.Constant(b) * cov.Matern52(1, ls=a),
    "plus a number": lambda a, b: cov.Matern52(1, ls=a) + 2.0,
    "plus a scalar": lambda a, b: cov.Matern12(1, ls=a) + b,
    "two scales": lambda a, b: cov.Matern32(1, ls=a) + b * cov.Matern52(1, ls=0.2 * a),
    "three": lambda a, b: cov.Matern12(1, ls=a) + cov.Matern32(1, ls=b) + 0.1 * cov.Matern52(1, ls=3.0),
    "trend": lambda a, b: cov.Linear(1, c=1.0) * b + cov.Matern32(1, ls=a),
    "square trend": lambda a, b: 0.1 * cov.Linear(1, c=b) ** 2 + cov.Matern32(1, ls=a),
    "quasi-periodic": lambda a, b: cov.Matern32(1, ls=5.0 * a) * cov.Periodic(1, period=b, ls=1.0),
    "damped wave": lambda a, b: cov.Matern12(1, ls=a) * cov.Cosine(1, ls=b),
    "smooth wave": lambda a, b: b * cov.Matern52(1, ls=a) * cov.Cosine(1, ls=2.0),
    "product of two": lambda a, b: cov.Matern12(1, ls=a) * cov.Matern52(1, ls=b),
    "product of three": lambda a, b: (
        cov.Matern12(1, ls=a) * cov.Matern32(1, ls=b) * cov.Exponential(1, ls=2.0)
    ),
    "power": lambda a, b: b * cov.Matern32(1, ls=a) ** 2,
    "two waves": lambda a, b: cov.Cosine(1, ls=a) * cov.Cosine(1, ls=b),
    "growing wave": lambda a, b: cov.Linear(1, c=b) * cov.Cosine(1, ls=a),
    "sum times": lambda a, b: (cov.Matern32(1, ls=a) + cov.Linear(1, c=0.0)) * (cov.Cosine(1, ls=b) + 1.0),
    "day and week": lambda a, b: (
        cov.Matern32(1, ls=a) * (cov.Periodic(1, 1.0, ls=1.0) + b * cov.Periodic(1, 2.7, ls=2.0))
        + cov.Matern52(1, ls=4.0)
    ),
    "scaled by the input": lambda a, b: cov.ScaledCov(
        1, cov_func=cov.Matern32(1, ls=a), scaling_func=lambda x, c: 1.0 + c * x**2, args=(b,)
    ),
    "column": lambda a, b: cov.Matern52(1, ls=a, active_dims=[0]),
}
POINT = {"a": 0.9, "b": 1.3, "sigma": 0.4}


def fitted(gp_class, kernel, X=X, y=Y, mean=None, **kwargs):
    """GP, its model, and function of (a, b, sigma) for density and gradient."""
    with pm.Model() as model:
        a, b = (pm.HalfNormal("a", default_transform=None), pm.HalfNormal("b", default_transform=None))
        sigma = pm.HalfNormal("sigma", default_transform=None)
        noise = kwargs.pop("noise", lambda s: s)(sigma)
        gp = gp_class(mean_func=mean, cov_func=kernel(a, b))
        gp.marginal_likelihood("y", X=X, y=y, **({"sigma": noise} if noise is not None else {}) | kwargs)
    return gp, model


def density(model, point=POINT, names=("a", "b", "sigma")):
    """Log density of y, and its gradient."""
    logp = model.logp(vars=[model["y"]], sum=True)
    inputs = [v for v in model.value_vars if v.name in names]
    grads = pt.grad(logp, inputs, disconnected_inputs="ignore")
    function = pytensor.function(model.value_vars, [logp, *grads], on_unused_input="ignore")
    return function(*(point[v.name] for v in model.value_vars))


@pytest.mark.parametrize(
    "name",
    often(
        KERNELS, "Matern12", "Matern52", "ls of one entry", "Cosine", "Periodic", "Periodic, short ls",
        "Linear", "Constant times", "plus a scalar", "three", "square trend", "quasi-periodic",
        "product of three", "power", "growing wave", "sum times", "scaled by the input",
    ),
)  # fmt: skip
def test_density_and_gradient_of(name):
    (value, *grads), (expected, *exact) = (
        density(fitted(kind, KERNELS[name])[1]) for kind in (sgp.StateSpaceMarginal, sgp.ExactMarginal)
    )
    assert_allclose(value, expected, rtol=1e-8)
    assert_allclose(grads, exact, rtol=1e-6, atol=1e-7 * max(map(abs, exact)))


@pytest.mark.parametrize(
    "name", ["Matern52", "Cosine", "Periodic", "Linear", "scaled by the input", "sum times"]
)
def test_parameters_of_one_entry_by_dims(name):
    """Their types do not tell how many entries there are."""
    with pm.Model(coords={"one": ["a"]}) as model:
        a, b = (pm.HalfNormal(each, dims="one", default_transform=None) for each in "ab")
        gp = sgp.StateSpaceMarginal(cov_func=KERNELS[name](a, b))
        gp.marginal_likelihood("y", X=X, y=Y, sigma=POINT["sigma"])
        point = {each: np.full(1, POINT[each]) for each in "ab"}
        mu, _ = gp.predict(XNEW, point=point)
    value, *grads = density(model, point)
    scalar, whole = fitted(sgp.StateSpaceMarginal, KERNELS[name])
    expected, *exact = density(whole, names=("a", "b"))
    assert_allclose(value, expected, rtol=1e-12)
    assert_allclose(np.ravel(grads), exact, rtol=1e-10, atol=1e-12)
    assert_allclose(mu, scalar.predict(XNEW, point=POINT, model=whole)[0], rtol=1e-10, atol=1e-12)


def test_density_of_pymc():
    """One sigma per row, a mean with parameters."""
    sd = RNG.uniform(0.1, 0.4, N)
    found = []
    for kind in (sgp.StateSpaceMarginal, pm.gp.Marginal):
        _, model = fitted(
            kind, KERNELS["two scales"], mean=pm.gp.mean.Linear(np.array([0.3]), 0.2),
            noise=lambda s: s * sd, jitter=0.0,
        )  # fmt: skip
        found.append(density(model)[0])
    assert_allclose(found[0], found[1], rtol=1e-5)  # PyMC adds to distances


def few_harmonics(a, b):
    return cov.Matern32(1, ls=5.0 * a) * cov.Periodic(1, period=b, ls=3.0)


@pytest.fixture(scope="module")
def both():
    kernel = few_harmonics  # with more of them draws and rows left out take Python a minute
    mean = pm.gp.mean.Constant(0.5)
    return [fitted(kind, kernel, mean=mean) for kind in (sgp.StateSpaceMarginal, sgp.ExactMarginal)]


def test_predictions(both):
    """New rows on old ones, between, before and far behind, where the prior returns."""
    (gp, model), (exact, exact_model) = both
    for noise in (False, True):
        mean, full = gp.predict(XNEW, POINT, pred_noise=noise, model=model)
        expected, exact_cov = exact.predict(XNEW, POINT, pred_noise=noise, model=exact_model)
        assert_allclose(mean, expected, atol=1e-9)
        assert_allclose(full, exact_cov, atol=1e-9)
        diag = gp.predict(XNEW, POINT, diag=True, pred_noise=noise, model=model)
        assert_allclose(diag[0], expected, atol=1e-9)
        assert_allclose(diag[1], np.diag(exact_cov), atol=1e-9)
    assert_allclose([diag[0][2], diag[1][2]], [0.5, 1.0 + 0.16], atol=1e-4)
    assert gp.predict(XNEW[:0], POINT, diag=True, model=model)[0].shape == (0,)


def test_joint_draws(both):
    """Functions at new rows have the exact posterior's mean and covariance."""
    (gp, model), (exact, exact_model) = both
    new, rows = XNEW[[0, 3, 5]], gp.training
    joint = rows.with_new(pt.constant(new), rows.prediction_map())
    # A draw is linear in white noise: its mean where that is 0, and a column for each of its entries.
    white = np.vstack([np.zeros(2 * N + 3), np.eye(2 * N + 3)]).T
    f = joint.drawn_given(rows.noise_of(), rows.data.residual, white[: N + 3], white[N + 3 :])
    f = evaluate([f], POINT, model)[0] + 0.5
    mean, expected = exact.predict(new, POINT, model=exact_model)
    sd = np.sqrt(np.diag(expected))
    assert_allclose(f[:, 0], mean, rtol=1e-7)
    root = f[:, 1:] - f[:, :1]
    assert_allclose(root @ root.T, expected, rtol=1e-6, atol=1e-9)
    draws = xr.Dataset({k: (("chain", "draw"), np.full((1, 8), v)) for k, v in POINT.items()})
    found = gp.predict_posterior(new, draws, draws=True, random_seed=1, progressbar=False, model=model)
    assert_allclose(found["sd"], sd, rtol=1e-6)
    assert (abs(found["f"].values[0] - mean) < 5.0 * sd).all()
    assert found["f"].values[0].std(axis=0) == pytest.approx(sd, rel=0.5)


def test_draws_of_observations_have_noise():
    """The function is the same at rows so near to one another: what tells them apart is noise."""
    gp, model = fitted(sgp.StateSpaceMarginal, KERNELS["Matern12"])
    new = 1.0 + 1e-9 * np.arange(60.0)[:, None]
    with model:
        gp.conditional("f", new, pred_noise=True)
    draws = xr.Dataset({k: (("chain", "draw"), np.full((1, 1), v)) for k, v in POINT.items()})
    found = gp.predict_posterior(
        new, draws, pred_noise=True, draws=True, random_seed=1, progressbar=False, model=model
    )
    for drawn in (draw_many(pm.do(model, POINT)["f"], 1, 1), found["f"].values[0]):
        # Of 60 normal numbers the sd is known to 9%.
        assert drawn[0].std() == pytest.approx(POINT["sigma"], rel=0.35)


@pytest.mark.slow
def test_conditional(both):
    """Draws and density of the function at new rows."""
    (_, _), (exact, exact_model) = both
    gp, model = fitted(sgp.StateSpaceMarginal, few_harmonics, mean=pm.gp.mean.Constant(0.5))
    new = XNEW[[0, 3, 5]]
    with model:
        f = gp.conditional("f", new, jitter=1e-3)
    mean, expected = exact.predict(new, POINT, model=exact_model)
    expected = expected + 1e-3 * np.eye(3)
    draws = draw_many(pm.do(model, POINT)["f"], 4000, 1)
    sd = np.sqrt(np.diag(expected))
    assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=0.07)
    assert_allclose(np.cov(draws.T) / np.outer(sd, sd), expected / np.outer(sd, sd), atol=0.1)
    value = mean + 0.1
    logp = pm.logp(f, value)
    found = evaluate([logp], POINT, model)[0]
    assert_allclose(found, pm.logp(pm.MvNormal.dist(mean, expected), value).eval(), rtol=1e-7)


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(2)
    draws = {k: v * np.exp(0.05 * rng.standard_normal((1, 25))) for k, v in POINT.items()}
    return xr.Dataset({k: (("chain", "draw"), v) for k, v in draws.items()})


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_rows_left_out(both, draws):
    found, expected = (gp.loo(draws, progressbar=False, model=model) for gp, model in both)
    assert_allclose(found.elpd_i, expected.elpd_i, rtol=1e-7)
    found, expected = (gp.loo_pit(draws, progressbar=False, model=model) for gp, model in both)
    assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_groups_left_out(both, draws):
    found, expected = (
        gp.loo(draws, progressbar=False, model=model, groups=np.arange(N) // 3) for gp, model in both
    )
    assert_allclose(found.elpd_i, expected.elpd_i, rtol=1e-7)


@pytest.mark.slow
def test_any_likelihood():
    """Laplace's density, gradient, predictions and rows left out are those of the exact class."""
    counts = RNG.poisson(np.exp(Y))
    found, predicted = [], []
    for kind in (sgp.StateSpaceMarginal, sgp.ExactMarginal):
        gp, model = fitted(
            kind, KERNELS["two scales"], y=counts, noise=lambda s: None,
            likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)),
        )  # fmt: skip
        rows = gp.training.at_mode
        at_mode = rows.predictor(
            rows.prediction_map(), gp.mean_func, rows.coefficients(), pt.constant(0.0), model
        )
        moments = at_mode.diagonal(at_mode.state(POINT), XNEW)
        found.append([*density(model), *moments])
        predicted.append(gp.predict(XNEW, POINT, diag=True, model=model))
    for value, expected in zip(*found, strict=True):
        assert_allclose(value, expected, rtol=1e-6, atol=1e-8)
    (mean, var), (other, same) = predicted
    assert_allclose(same, var, rtol=1e-6, atol=1e-8)
    # The means are by 64 pairs of functions, which the classes draw by other numbers.
    assert np.abs((other - mean) / np.sqrt(var)).max() < 0.05


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of few draws
def test_rows_left_out_under_a_normal_distribution():
    """By quadrature around the cavity as in closed form."""
    t, found = np.linspace(0.0, 5.0, 20)[:, None], []
    noise = np.linspace(0.2, 0.5, 20)
    given = {"sigma": noise}, {"likelihood": lambda f: pm.Normal.dist(f, noise)}
    draws = xr.DataTree.from_dict(
        {"/posterior": xr.Dataset({"ell": (("chain", "draw"), np.linspace(0.9, 1.1, 30)[None])})}
    )
    for kwargs in given:
        with pm.Model():
            gp = sgp.StateSpaceMarginal(cov_func=pm.gp.cov.Matern32(1, ls=pm.Gamma("ell", 2, 2)))
            gp.marginal_likelihood("y", X=t, y=np.sin(t[:, 0]), **kwargs)
        found.append(gp.loo(draws, progressbar=False).elpd_i)
    assert_allclose(found[1], found[0], rtol=1e-7)


def test_waves_that_nothing_changes_are_computed_once():
    for period, rows, once in ((1.3, X, True), (1.3, None, False), (None, X, False)):
        with pm.Model() as model:
            rows = pm.Data("X", X) if rows is None else rows
            period = pm.HalfNormal("period") if period is None else period
            gp = sgp.StateSpaceMarginal(cov_func=cov.Periodic(1, period=period, ls=1.0))
            gp.marginal_likelihood("y", X=rows, y=Y, sigma=0.3)
        ops = [v.owner.op for v in ancestors([model.logp()]) if v.owner is not None]
        waves = [op for op in ops if isinstance(getattr(op, "scalar_op", None), Cos)]
        assert (not waves) == once


def test_other_rows():
    """Replaced rows, more of them, in another order."""
    with pm.Model() as model:
        data = pm.Data("X", X, dims=("row", "column")), pm.Data("obs", Y, dims="row")
        gp = sgp.StateSpaceMarginal(cov_func=cov.Matern32(1, ls=pm.HalfNormal("a", default_transform=None)))
        gp.marginal_likelihood("y", X=data[0], y=data[1], sigma=0.3)
        rows = np.r_[X[::-1], [[7.0], [-8.0]]]
        targets = np.r_[Y[::-1], 0.3, 0.2]
        pm.set_data({"X": rows, "obs": targets}, coords={"row": range(N + 2), "column": [0]})
        mean, _ = gp.predict(XNEW, {"a": 0.9}, diag=True)
    with pm.Model() as other:
        exact = sgp.ExactMarginal(cov_func=cov.Matern32(1, ls=pm.HalfNormal("a", default_transform=None)))
        exact.marginal_likelihood("y", X=rows, y=targets, sigma=0.3)
        expected, _ = exact.predict(XNEW, {"a": 0.9}, diag=True)
    values = [
        float(m.compile_logp(vars=[m["y"]])({"a": 0.9})) for m in (model, other)
    ]  # fmt: skip
    assert_allclose(values[0], values[1], rtol=1e-9)
    assert_allclose(mean, expected, atol=1e-9)
    with model:
        pm.set_data({"X": X[:0], "obs": Y[:0]}, coords={"row": [], "column": [0]})
    assert float(model.compile_logp(vars=[model["y"]])({"a": 0.9})) == 0.0
    with model:
        pm.set_data({"X": rows, "obs": targets}, coords={"row": range(N + 2), "column": [0]})
    given = {"X": X, "y": Y, "sigma": 0.3}
    found = [
        g.predict(XNEW, {"a": 0.9}, diag=True, given=given, model=m)[0]
        for g, m in ((gp, model), (exact, other))
    ]
    assert_allclose(found[0], found[1], atol=1e-9)


def test_inputs_with_a_prior():
    """The gradient in the times is that of the dense density."""
    found = []
    for kind in (sgp.StateSpaceMarginal, sgp.ExactMarginal):
        with pm.Model() as model:
            t = pm.Normal("t", np.sort(X[8:, 0]), 0.01, shape=N - 8)
            gp = kind(cov_func=KERNELS["quasi-periodic"](pt.constant(0.9), pt.constant(1.3)))
            gp.marginal_likelihood("y", X=t[:, None], y=Y[8:], sigma=0.3)
        function = model.compile_dlogp(), model.compile_logp()
        found.append([f({"t": np.sort(X[8:, 0])}) for f in function])
    assert_allclose(found[0][0], found[1][0], rtol=1e-7, atol=1e-7)
    assert_allclose(found[0][1], found[1][1], rtol=1e-9)


@pytest.mark.parametrize("n", [1, 2])
def test_few_rows(n):
    found = [
        density(fitted(kind, KERNELS["quasi-periodic"], X=X[:n], y=Y[:n])[1])
        for kind in (sgp.StateSpaceMarginal, sgp.ExactMarginal)
    ]
    assert_allclose(found[0], found[1], rtol=1e-8, atol=1e-10)


def test_seconds_since_1970():
    seconds = 1.6e9 + 3600.0 * np.arange(N)[:, None]
    found = [
        density(fitted(kind, lambda a, b: (
            cov.Matern32(1, ls=1e5 * a) * cov.Periodic(1, period=86_400.0 * b, ls=1.0)
        ), X=seconds)[1])
        for kind in (sgp.StateSpaceMarginal, sgp.ExactMarginal)
    ]  # fmt: skip
    assert_allclose(found[0], found[1], rtol=1e-8)


def test_fourier_coefficients():
    """Against Bessel functions; too few harmonics are not passed over in silence."""
    from scipy.special import ive

    for ls in (0.18, 0.5, 3.0, 200.0):
        q = all_coefficients(pt.constant(ls), 24).eval()
        a = 1.0 / (4.0 * ls**2)
        assert_allclose(q, np.r_[1.0, np.full(24, 2.0)] * ive(np.arange(25), a), atol=5e-15)
    for ls in (0.1, 0.16):  # the latter leaves out 4e-12
        assert np.isnan(all_coefficients(pt.constant(ls), 24).eval()).all()


def test_check_says_that_it_is_exact(both):
    (gp, model), _ = both
    found = gp.check(POINT, progressbar=False, model=model)
    assert abs(found.attrs["gap"]) < 1e-8
    assert "exact" in found.attrs["verdict"]
    assert found.attrs["holds_residual"]


REFUSED = {
    "ExpQuad": (lambda: cov.ExpQuad(1, ls=1.0), "ExpQuad is not Markov.*Matern52"),
    "RatQuad": (lambda: cov.RatQuad(1, alpha=1.0, ls=1.0), "RatQuad is not Markov"),
    "in a sum": (lambda: cov.Matern32(1, ls=1.0) + cov.ExpQuad(1, ls=1.0), "ExpQuad"),
    "warped": (
        lambda: cov.WarpedInput(1, cov.Matern32(1, ls=1.0), lambda x: x, ()), "WarpedInput",
    ),
    "two columns": (lambda: cov.Matern32(2, ls=[1.0, 1.0]), "one input"),
    "power": (lambda: cov.Matern32(1, ls=1.0) ** 0.5, "powers 1 to 4"),
    "one power and a half": (lambda: cov.Matern32(1, ls=1.0) ** 1.5, "powers 1 to 4"),
    "power of zero": (lambda: cov.Matern32(1, ls=1.0) ** 0, "powers 1 to 4"),
    "fifth power": (lambda: cov.Matern32(1, ls=1.0) ** 5, "powers 1 to 4.*got 5"),
    "noise": (lambda: cov.Matern32(1, ls=1.0) + cov.WhiteNoise(0.1), "WhiteNoise.*sigma="),
    "array": (lambda: cov.Matern32(1, ls=1.0) * np.ones((N, N)), "array of shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    kernel, match = REFUSED[name]
    with pytest.raises(ValueError, match=match):
        sgp.StateSpaceMarginal(cov_func=kernel())


def test_states_are_counted():
    """Those of a sum add up, those of a product multiply; a Periodic kernel has 8 harmonics that matter."""
    column = {"ls": 1.0, "active_dims": [1]}
    assert count_states(cov.Matern32(2, **column) + cov.Matern12(2, **column)) == 3
    assert count_states(cov.Matern52(1, ls=1.0) * cov.Cosine(1, ls=1.0)) == 6
    assert count_states(cov.Periodic(1, 1.0, ls=1.0)) == 17
    assert count_states(cov.ExpQuad(1, ls=1.0)) is None


def test_bad_calls():
    two = cov.Matern32(2, ls=1.0, active_dims=[0]) + cov.Matern32(2, ls=1.0, active_dims=[1])
    with pytest.raises(ValueError, match=r"the kernel looks at columns \[0, 1\]"):
        sgp.StateSpaceMarginal(cov_func=two).build(np.ones((3, 2)))
    short = cov.Periodic(1, 1.0, ls=0.1)
    within = cov.ScaledCov(1, cov.Matern32(1, ls=9.0) * short, lambda x: 1.0 + x[:, 0] ** 2)
    for kernel in (short, within):
        gp = sgp.StateSpaceMarginal(cov_func=kernel)
        with pm.Model(), pytest.raises(ValueError, match="give more harmonics="):
            gp.marginal_likelihood("y", X=X, y=Y, sigma=0.1)
    with pytest.raises(ValueError, match="harmonics"):
        sgp.StateSpaceMarginal(cov_func=cov.Periodic(1, 1.0, ls=1.0), harmonics=0)


@pytest.mark.parametrize("eta", [1.0, 10.0, 100.0])
def test_variances_before_the_first_row_of_years_under_a_line(eta):
    """The prior variance there is 4e6 eta^2, and that of the posterior about 1: see the closed form."""
    t = 2015.0 + np.sort(np.random.default_rng(7).uniform(0.0, 4.0, 40))
    new = np.array([2000.0, 2014.0, 2014.99, 2017.0, 2025.0])
    matern = pm.gp.cov.Matern32(1, ls=0.1)
    with pm.Model() as model:
        gp = sgp.StateSpaceMarginal(cov_func=eta**2 * pm.gp.cov.Linear(1, c=0.0) + matern)
        gp.marginal_likelihood("y", X=t[:, None], y=np.sin(t), sigma=0.2)
    _, found = gp.predict(new[:, None], {}, diag=True, model=model)
    inverse = np.linalg.inv(matern(t[:, None]).eval() + 0.04 * np.eye(40))
    k = matern(t[:, None], new[:, None]).eval()
    left = new - k.T @ inverse @ t
    slope = 1.0 / (eta**-2.0 + t @ inverse @ t)
    expected = 1.0 - (k * (inverse @ k)).sum(axis=0) + slope * left**2
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_lengthscale_of_either_sign():
    """Distances are squared in the kernel."""
    found = []
    for ls in (1.3, -1.3):
        with pm.Model() as model:
            sgp.StateSpaceMarginal(cov_func=pm.gp.cov.Matern32(1, ls=ls)).marginal_likelihood(
                "y", X, Y, 0.3
            )
        found.append(model.compile_logp(mode="FAST_COMPILE")({}))
    assert_allclose(found[1], found[0], rtol=1e-12)
