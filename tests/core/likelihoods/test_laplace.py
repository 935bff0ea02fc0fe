"""Any likelihood with the function integrated out, against dense Laplace and against Gaussian noise."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from marks import often
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import apply_ancestors
from scipy import stats
from scipy.optimize import brentq

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.checking.comparison import exact_rows, with_neighbors
from pymc_scalable_gp.core.checking.correct import better_density
from pymc_scalable_gp.core.likelihoods import laplace_mode
from pymc_scalable_gp.utils.compiled import compiled, evaluate

rng = np.random.default_rng(0)
N = 24
X = rng.uniform(0.0, 4.0, (N, 2))
F = np.sin(X[:, 0]) + 0.5 * np.cos(2.0 * X[:, 1])
Y = rng.poisson(np.exp(F)).astype(float)
POINT = {"ell": 1.1, "eta": 0.9, "b": 0.3}


def kernel(ell=1.1, eta=0.9):
    return eta**2 * sgp.cov.Product(pm.gp.cov.Matern52, 2, ls=ell)


CLASSES = {
    "exact": (sgp.ExactMarginal, {}),
    "CholQR": (sgp.CholQRMarginal, {"n_inducing": 12}),
    "CholQR DTC": (sgp.CholQRMarginal, {"n_inducing": 12, "approx": "DTC"}),
    "Grief": (sgp.GriefGP, {"rank": 12, "grid": 6}),
    "SKIP": (sgp.SKIPMarginal, {"rank": 6}),
    "SoftKI": (sgp.SoftKIMarginal, {"inducing": X[:10]}),
    "Vecchia": (sgp.VecchiaMarginal, {"n_inducing": 6, "neighbors": 5, "block": 4}),
    "Vecchia neighbors": (sgp.VecchiaMarginal, {"n_inducing": 0, "neighbors": 4, "block": 3}),
}


def made(name, **given):
    """Model and GP of a class, with free parameters."""
    kind, options = CLASSES[name]
    with pm.Model() as model:
        ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
        mean = pm.gp.mean.Constant(pm.Normal("b", 0, 1))
        gp = kind(cov_func=kernel(ell, eta), mean_func=mean, **options)
        gp.build(X)
        gp.marginal_likelihood("y", X=X, **given)
    return model, gp


def value_at(model, point=POINT, mode=None):
    """Log density of the targets at a point."""
    names = ["ell", "eta", "b"]
    places = {model[name]: pt.scalar(name, dtype="float64") for name in names}
    logp = pm.logp(model["y"], model.rvs_to_values[model["y"]])
    (logp,) = graph_replace([logp], places)
    function = pytensor.function([*places.values()], logp, mode=mode)
    return function, np.array([point[name] for name in names])


@pytest.mark.parametrize("name", often(CLASSES, "exact", "CholQR", "Vecchia"))
def test_a_normal_distribution_is_gaussian_noise(name):
    sigma = np.linspace(0.2, 0.5, N)
    own, _ = made(name, y=F, sigma=sigma)
    other, gp = made(name, y=F, likelihood=lambda f: pm.Normal.dist(f, sigma))
    (first, at), (second, _) = value_at(own), value_at(other)
    np.testing.assert_allclose(second(*at), first(*at), rtol=1e-8)
    assert gp.likelihood_path.startswith("Laplace, ")


def test_a_row_keeps_the_information_that_it_has():
    """Rows far from the others, of 1e11 times their noise variance, counted as of a fifth of that."""
    sigma = np.where(X[:, 0] < 2.0, 1e-5, 4.0)
    (first, at), (second, _) = (
        value_at(made("exact", y=F, **given)[0])
        for given in (dict(sigma=sigma), dict(likelihood=lambda f: pm.Normal.dist(f, sigma)))
    )
    np.testing.assert_allclose(second(*at), first(*at), rtol=1e-8)


def dense(logp, K, mean, y):
    """Laplace's approximation from scratch: mode by fixed steps of Newton's method in f."""
    f_ = pt.vector("f", dtype="float64")
    rows = logp(f_, pt.constant(y))
    slope = pt.grad(rows.sum(), f_)
    bend = pt.grad(slope.sum(), f_)
    function = pytensor.function([f_], [rows, slope, bend])
    f, P = mean.copy(), np.linalg.inv(K)
    for _ in range(200):
        _, g, h = function(f)
        step = np.linalg.solve(P + np.diag(np.maximum(-h, 1e-12)), g - P @ (f - mean))
        f = f + step * min(1.0, 0.5 / np.abs(step).max())
        if np.abs(step).max() < 1e-12:
            break
    own, _, h = function(f)
    B = np.eye(len(y)) - K * h
    e = f - mean
    return own.sum() - 0.5 * e @ P @ e - 0.5 * np.linalg.slogdet(B)[1], f, -h


def K_of(ell=1.1, eta=0.9, Z=X):
    return np.asarray(kernel(ell, eta)(pt.constant(Z)).eval())


DISTRIBUTIONS = {
    "Poisson": (lambda f: pm.Poisson.dist(mu=pm.math.exp(f)), Y),
    "NegativeBinomial": (lambda f: pm.NegativeBinomial.dist(mu=pm.math.exp(f), alpha=2.0), Y),
    "Binomial": (lambda f: pm.Binomial.dist(n=20, logit_p=f), np.minimum(Y, 20)),
    "Bernoulli logit": (lambda f: pm.Bernoulli.dist(logit_p=f), (Y > 1) * 1.0),
    "Bernoulli probit": (lambda f: pm.Bernoulli.dist(p=pm.math.invprobit(f)), (Y > 1) * 1.0),
    "Gamma": (lambda f: pm.Gamma.dist(alpha=2.0, beta=2.0 * pm.math.exp(-f)), np.exp(F) + 0.1),
    "Beta": (lambda f: pm.Beta.dist(mu=pm.math.sigmoid(f), nu=9.0), 1.0 / (1.0 + np.exp(-F))),
    "Exponential": (lambda f: pm.Exponential.dist(scale=pm.math.exp(f)), np.exp(F) + 0.1),
    "Weibull, censored": (
        lambda f: pm.Censored.dist(pm.Weibull.dist(1.5, pm.math.exp(f)), None, 2.0),
        np.minimum(np.exp(F), 2.0),
    ),
    "OrderedLogistic": (
        lambda f: pm.OrderedLogistic.dist(f, np.array([-0.5, 0.8])), np.minimum(Y, 2),
    ),
    "ZeroInflatedPoisson": (
        lambda f: pm.ZeroInflatedPoisson.dist(psi=0.9, mu=pm.math.exp(f)), np.maximum(Y, 1),
    ),
}  # fmt: skip


OFTEN = "Poisson", "Bernoulli probit", "Beta", "Weibull, censored", "OrderedLogistic", "ZeroInflatedPoisson"


@pytest.mark.parametrize("name", often(DISTRIBUTIONS, *OFTEN))
def test_the_density_is_laplaces(name):
    make, y = DISTRIBUTIONS[name]
    model, _ = made("exact", y=y, likelihood=make)
    function, at = value_at(model)

    def logp(f, y):
        variable = make(f)
        return pm.logp(variable, y.astype(variable.dtype))

    expected, _, W = dense(logp, K_of(), np.full(N, 0.3), y)
    assert (W > 0).all()
    np.testing.assert_allclose(function(*at), expected, rtol=1e-8)


def test_student_t_has_its_expected_information():
    y = F.copy()
    y[3] += 8.0  # an outlier, where the log density is convex
    nu, scale = 4.0, 0.3
    model, _ = made("exact", y=y, likelihood=lambda f: pm.StudentT.dist(nu=nu, mu=f, sigma=scale))
    function, at = value_at(model)
    K, f, W = K_of(), np.full(N, 0.3), (nu + 1.0) / ((nu + 3.0) * scale**2)
    for _ in range(500):  # Fisher's scoring
        g = (nu + 1.0) * (y - f) / (nu * scale**2 + (y - f) ** 2)
        f = 0.3 + K @ np.linalg.solve(K + np.eye(N) / W, f + g / W - 0.3)
    e = f - 0.3
    own = stats.t.logpdf(y, nu, f, scale).sum()
    expected = own - 0.5 * e @ np.linalg.solve(K, e) - 0.5 * np.linalg.slogdet(np.eye(N) + W * K)[1]
    # The last step's remainder is below 1e-7 of a row's scale.
    np.testing.assert_allclose(function(*at), expected, rtol=1e-7)


def counts(f):
    return pm.Poisson.dist(mu=pm.math.exp(f))


def with_outliers(f):
    return pm.StudentT.dist(nu=4.0, mu=f, sigma=0.5)


@pytest.fixture(scope="module")
def with_counts():
    """Model and exact GP of counts, which tests read."""
    return made("exact", y=Y, likelihood=counts)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "make", "mode"),
    [
        pytest.param("exact", counts, "FAST_COMPILE", marks=SLOW),
        pytest.param("CholQR", counts, "FAST_COMPILE", marks=SLOW),
        ("Vecchia neighbors", counts, "FAST_COMPILE"),
        ("Vecchia", counts, "FAST_COMPILE"),
        ("exact", with_outliers, "FAST_COMPILE"),
        pytest.param("exact", counts, "NUMBA", marks=SLOW),
        pytest.param("CholQR", counts, "NUMBA", marks=SLOW),
        pytest.param("Vecchia neighbors", counts, "NUMBA", marks=SLOW),
        pytest.param("Vecchia", counts, "NUMBA", marks=SLOW),
        pytest.param("exact", with_outliers, "NUMBA", marks=SLOW),
    ],
)
def test_the_gradient_is_that_of_the_density(name, make, mode, monkeypatch):
    """Also where a step does not forget where it came from: few neighbours, expected information."""
    monkeypatch.setattr(laplace_mode, "TOLERANCE", 1e-12)
    monkeypatch.setattr(laplace_mode, "ADJOINT_TOLERANCE", 1e-12)
    model, _ = made(name, y=Y, likelihood=make)
    names = ["ell", "eta", "b"]
    places = {model[name]: pt.scalar(name, dtype="float64") for name in names}
    logp = pm.logp(model["y"], model.rvs_to_values[model["y"]])
    (logp,) = graph_replace([logp], places)
    inputs = [*places.values()]
    function = pytensor.function(inputs, [logp, *pt.grad(logp, inputs)], mode=mode)
    at = np.array([POINT[name] for name in names])
    _, *found = function(*at)
    for i in range(3):
        h = np.zeros(3)
        h[i] = 1e-3
        values = [float(function(*(at + k * h))[0]) for k in (-2, -1, 1, 2)]
        # Five points: an error of order h^4.
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12e-3)
        np.testing.assert_allclose(found[i], slope, rtol=1e-6)


def test_the_gradient_where_the_mode_moves_nothing():
    """Under normal noise of sd 1/2 the density's slope in the mode is exactly zero."""
    given = {"sigma": 0.5}, {"likelihood": lambda f: pm.Normal.dist(f, 0.5)}
    models = [made("exact", y=F, **each)[0] for each in given]
    expected, found = (model.compile_dlogp()(model.initial_point()) for model in models)
    # The same regression, solved in another way.
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_what_no_step_changes_is_computed_once():
    """Features and the kernel between neighbours, and their gradients."""
    with pm.Model() as model:
        cov = pm.HalfNormal("eta", 1) ** 2 * pm.gp.cov.Matern52(2, ls=pm.InverseGamma("ell", 3, 3))
        gp = sgp.VecchiaMarginal(cov_func=cov, n_inducing=6, neighbors=5, block=4)
        gp.build(X)
        gp.marginal_likelihood("y", X=X, y=Y, likelihood=counts)
    nodes = model.compile_dlogp(mode="FAST_COMPILE").f.maker.fgraph.apply_nodes
    (gradient,) = (node.op for node in nodes if isinstance(node.op, laplace_mode.LaplaceGradient))
    names = [type(node.op).__name__ for node in apply_ancestors(gradient.outputs)]
    for name in ("Features", "FeaturesGrad", "Blocks", "BlocksGrad"):
        assert names.count(f"Stationary{name}") == 1, name
    assert not {"StationaryLogp", "StationaryFactor"} & set(names)


def test_a_gradient_of_parameter_after_parameter_is_one(with_counts):
    """As PyMC takes it for find_MAP: three parameters do not solve for the adjoint three times."""
    model, _ = with_counts
    function = model.compile_dlogp()
    nodes = [type(node.op).__name__ for node in function.f.maker.fgraph.toposort()]
    assert nodes.count("LaplaceGradient") == 1
    at = {"ell_log__": np.log(1.1), "eta_log__": np.log(0.9), "b": 0.3}
    together = model.logp_dlogp_function(ravel_inputs=True)
    together.set_extra_values({})
    values = np.array([at[v.name] for v in model.continuous_value_vars])
    np.testing.assert_allclose(function(at), together(values)[1], rtol=1e-10)


@pytest.mark.parametrize("own", ["a function of another", "a child of another"])
@pytest.mark.parametrize("name", often(["exact", "Vecchia", "grid"], "exact", "grid"))
def test_variables_that_depend_on_one_another_count_once(own, name):
    """The gradient counted the parent twice, or went through the child's prior, which has none."""
    sites = np.arange(N) % 3
    with pm.Model() as model:
        mu = pm.Normal("mu", initval=0.2)
        if own == "a child of another":
            u = pm.Normal("u", mu, 1.0, shape=3, initval=[0.1, 0.3, -0.2])
        else:
            u = pm.Deterministic("u", mu + pm.Normal("z", shape=3))
        if name == "grid":
            gp = sgp.KMCGMarginal(cov_func=kernel(1.1, pt.exp(mu)))
            gp.marginal_likelihood(
                "y", X=sgp.RegularGrid([np.arange(6.0), np.arange(4.0)]), y=Y,
                likelihood=lambda f: counts(f + mu + u[sites]),
            )  # fmt: skip
        else:
            kind, options = CLASSES[name]
            gp = kind(cov_func=kernel(1.1, pt.exp(mu)), **options)
            gp.marginal_likelihood("y", X=X, y=Y, likelihood=lambda f: counts(f + mu + u[sites]))
    point, logp = model.initial_point(0), model.compile_logp()
    found = model.compile_dlogp()(point)[0]  # of mu
    differences = [logp({**point, "mu": point["mu"] + h}) for h in (1e-4, -1e-4)]
    np.testing.assert_allclose(found, (differences[0] - differences[1]) / 2e-4, rtol=1e-5)


def test_prior_draws_of_a_mixture_are_of_its_own_parameter():
    """All draws of psi were one number: the observed variable had taken its generator."""
    with pm.Model() as model:
        psi = pm.Beta("psi", 5, 1)
        gp = sgp.ExactMarginal(cov_func=kernel())
        gp.marginal_likelihood(
            "y", X=X, y=Y, likelihood=lambda f: pm.ZeroInflatedPoisson.dist(psi, pm.math.exp(f))
        )
    assert psi.owner.inputs[0] not in model["y"].owner.inputs
    drawn, y = pm.draw([psi, model["y"]], draws=30, random_seed=1)
    assert len(np.unique(drawn)) == 30
    assert len(np.unique(y, axis=0)) == 30


def test_second_derivatives_are_refused(with_counts):
    """They were those of the priors, as in pm.find_hessian."""
    model, _ = with_counts
    with pytest.raises(NotImplementedError, match="take differences of its gradient"):
        model.d2logp(negate_output=False)


def test_predictions_are_those_of_the_dense_posterior(with_counts):
    y, Z = Y, rng.uniform(0.0, 4.0, (5, 2))
    model, gp = with_counts
    _, _, W = dense(lambda f, y: pm.logp(pm.Poisson.dist(mu=pm.math.exp(f)), y), K_of(), np.full(N, 0.3), y)
    t, v, _ = evaluate([*gp.training.around_mean], POINT, model)  # see test_laplace_mean.py
    np.testing.assert_allclose(v, 1.0 / W, rtol=1e-7)
    both = K_of(Z=np.concatenate([X, Z]))
    cross, own = both[N:, :N], both[N:, N:]
    mean = 0.3 + cross @ np.linalg.solve(K_of() + np.diag(1.0 / W), t - 0.3)
    cov = own - cross @ np.linalg.solve(K_of() + np.diag(1.0 / W), cross.T)
    found, full = gp.predict(Z, POINT, model=model)
    np.testing.assert_allclose(found, mean, rtol=1e-7)
    np.testing.assert_allclose(full, cov, atol=1e-7)
    _, var = gp.predict(Z, POINT, diag=True, model=model)
    np.testing.assert_allclose(var, np.diag(cov), atol=1e-7)


def test_the_observed_variable_is_real():
    """Draws, dims, data that are replaced, parameters of the likelihood's own."""
    with pm.Model(coords={"row": np.arange(N)}) as model:
        exposure = pm.Data("exposure", np.ones(N))
        rows, targets = pm.Data("X", X), pm.Data("targets", Y)
        alpha = pm.Gamma("alpha", 4, 2)
        gp = sgp.CholQRMarginal(cov_func=kernel(), n_inducing=10)
        gp.build(X)
        y = gp.marginal_likelihood(
            "y", X=rows, y=targets, dims="row",
            likelihood=lambda f: pm.NegativeBinomial.dist(mu=exposure * pm.math.exp(f), alpha=alpha),
        )  # fmt: skip
        prior = pm.sample_prior_predictive(300, random_seed=1)
        logp = model.compile_logp()
        before = logp(model.initial_point())
        pm.set_data({"exposure": np.full(N, 2.0)})
        after = logp(model.initial_point())
        pm.set_data(
            {"exposure": np.ones(10), "X": X[:10], "targets": Y[:10]}, coords={"row": np.arange(10)}
        )
        fewer = logp(model.initial_point())
    drawn = prior.prior_predictive["y"]
    assert y.dtype == "int64" == drawn.dtype
    assert drawn.dims == ("chain", "draw", "row")
    # exp(f) has the mean exp(.81 / 2) = 1.5, of rows that are correlated.
    assert 1.2 < float(drawn.mean()) < 1.9
    assert before != after
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 4, 2)
        own = sgp.CholQRMarginal(cov_func=kernel(), n_inducing=10)
        own.build(X)
        own.marginal_likelihood(
            "y", X=X[:10], y=Y[:10],
            likelihood=lambda f: pm.NegativeBinomial.dist(mu=pm.math.exp(f), alpha=alpha),
        )  # fmt: skip
        np.testing.assert_allclose(fewer, model.compile_logp()(model.initial_point()), rtol=1e-7)


@pytest.mark.parametrize("value", [np.nan, 2.5])
def test_counts_replaced_by_no_whole_numbers_are_refused(value):
    """In the density too, as where they are given: the cast to whole numbers made them others."""
    with pm.Model() as model:
        targets = pm.Data("targets", Y)
        gp = sgp.CholQRMarginal(cov_func=kernel(), n_inducing=10)
        gp.build(X)
        gp.marginal_likelihood("y", X=X, y=targets, likelihood=counts)
        logp = model.compile_logp()
        before = logp({})
        pm.set_data({"targets": np.where(np.arange(N) == 3, value, Y)})
        with pytest.raises(ValueError, match="no whole numbers, or NaN: poisson takes counts"):
            logp({})
        with pytest.raises(ValueError, match=r"no whole numbers, or NaN|has 1 NaN"):
            gp.predict(X[:3], {}, diag=True)
        pm.set_data({"targets": Y})
        np.testing.assert_allclose(logp({}), before, rtol=1e-12)


@pytest.mark.parametrize("make", [sgp.ExactMarginal, sgp.CholQRMarginal])
@pytest.mark.parametrize("rows", [1, 10])
def test_inputs_replaced_by_fewer_than_the_targets_are_refused(make, rows):
    """In the density too, in words; a single row is not taken for all."""
    with pm.Model() as model:
        gp = make(cov_func=kernel(), **({} if make is sgp.ExactMarginal else {"n_inducing": 10}))
        gp.build(X)
        gp.marginal_likelihood("y", X=pm.Data("X", X), y=Y, likelihood=counts)
        logp = model.compile_logp()
        before = logp({})
        pm.set_data({"X": X[:rows]})
        with pytest.raises(ValueError, match="X has another number of rows than y since pm.set_data"):
            logp({})
        for ask in (lambda: gp.predict(X[:3], {}), lambda: gp.check({}, progressbar=False)):
            with pytest.raises(ValueError, match=f"X has {rows} rows and y {N} values since pm.set_data"):
                ask()
        pm.set_data({"X": X})
        np.testing.assert_allclose(logp({}), before, rtol=1e-12)


def test_sums_tasks_and_weights():
    """Of features side by side, by task, and with priors on their weights."""
    sigma = 0.4
    tasks = np.column_stack([X[:, 0], np.arange(N) % 2])

    def total():
        first = sgp.GriefGP(cov_func=kernel(), rank=6, grid=5, approx="DTC")
        return first + sgp.GriefGP(cov_func=kernel(0.5), rank=5, grid=5, approx="DTC")

    def by_task():
        cov = 1.0 * pm.gp.cov.Matern52(2, ls=1.0, active_dims=[0])
        return sgp.SKIPMarginal(
            cov_func=cov, rank=6, task_dim=1, task_cov=np.array([[1.0, 0.5], [0.5, 1.0]])
        )

    def weighted():
        gp = sgp.GriefGP(cov_func=kernel(), rank=8, grid=5)
        gp.build(X)
        return gp

    for make, Z, options in (
        (total, X, {}), (by_task, tasks, {}), (weighted, X, {"weights": np.linspace(0.5, 2.0, 8)}),
    ):  # fmt: skip
        values = []
        for given in ({"sigma": np.full(N, sigma)}, {"likelihood": lambda f: pm.Normal.dist(f, sigma)}):
            with pm.Model() as model:
                make().marginal_likelihood("y", X=Z, y=F, **given, **options)
                values.append(model.compile_logp()(model.initial_point()))
        np.testing.assert_allclose(values[1], values[0], rtol=1e-8)


def test_parameters_of_derived_distributions_are_the_models():
    """PyMC copies the graphs of what it derives densities from, censored ones and mixtures."""
    times = np.minimum(np.exp(F), 2.0)
    with pm.Model() as model:
        shape, share = pm.Gamma("shape", 4, 3), pm.Beta("share", 5, 2)
        sgp.ExactMarginal(cov_func=kernel()).marginal_likelihood(
            "times", X=X, y=times,
            likelihood=lambda f: pm.Censored.dist(pm.Weibull.dist(shape, pm.math.exp(f)), None, 2.0),
        )  # fmt: skip
        sgp.ExactMarginal(cov_func=kernel()).marginal_likelihood(
            "counts", X=X, y=np.maximum(Y, 1),
            likelihood=lambda f: pm.ZeroInflatedPoisson.dist(share, pm.math.exp(f)),
        )  # fmt: skip
        values = [
            model.compile_logp([model["times"], model["counts"]], sum=False)(
                {"shape_log__": np.log(shape), "share_logodds__": np.log(share / (1.0 - share))}
            )
            for shape, share in ((1.5, 0.9), (2.0, 0.9), (1.5, 0.7))
        ]
    (times0, counts0), (times1, counts1), (times2, counts2) = values
    assert times0 == times2 != times1
    assert counts0 == counts1 != counts2


def test_no_mode_gives_nan(monkeypatch):
    monkeypatch.setattr(laplace_mode, "LIMIT", 2)
    with pytest.warns(UserWarning, match="No mode of the function is found"):
        model, _ = made("exact", y=Y, likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)))
    function, at = value_at(model)
    assert np.isnan(function(*at))


def test_steps_that_lead_too_far_are_shortened():
    """From f = 0, exp overflows at Newton's first step towards counts of 10^4."""
    y = np.full(N, 1e4)
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=81.0 * kernel(100.0) + kernel())
        gp.marginal_likelihood("y", X=X, y=y, likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f)))
        mean, _ = gp.predict(X[:2], {}, diag=True)
        assert np.isfinite(model.compile_logp()(model.initial_point()))
    np.testing.assert_allclose(mean, np.log(1e4), atol=1e-2)


def test_steps_to_where_slopes_are_not_finite_are_shortened():
    """Halves of the first step lead to 3.9, where the slope is NaN and the density is not: 1.95 is next."""

    def up_to_an_edge(f):
        def logp(y, f):
            edge = pt.switch(f < 3.8, 0.0 * pt.sqrt(3.8 - f), 0.0)
            return y * f - pt.exp(f) - pt.gammaln(y + 1.0) + edge

        return pm.CustomDist.dist(f, logp=logp, dtype="int64")

    found = []
    for likelihood in (up_to_an_edge, lambda f: pm.Poisson.dist(pm.math.exp(f))):
        with pm.Model() as model:
            gp = sgp.ExactMarginal(cov_func=4.0 * pm.gp.cov.Matern52(1, ls=0.01))
            x, y = np.arange(3.0)[:, None], np.array([40, 39, 41])
            gp.marginal_likelihood("y", X=x, y=y, likelihood=likelihood)
        logp = pm.logp(model["y"], model.rvs_to_values[model["y"]])
        found.append(compiled([], [logp])()[0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


def scale_of(f):
    return pm.Normal.dist(0.0, pm.math.exp(f))


E, S = sgp.ExactMarginal, sgp.StateSpaceMarginal
HARD = {  # class, targets, likelihood, scales of the function
    "no counts": (E, np.zeros(N), lambda f: pm.Poisson.dist(pm.math.exp(f)), (5.0, 8.0, 15.0)),
    "no successes": (S, np.zeros(N), lambda f: pm.Binomial.dist(n=50, logit_p=f), (5.0, 8.0)),
    "none of many": (E, np.zeros(N), lambda f: pm.Binomial.dist(n=50, logit_p=f), (7.0, 12.0, 15.0, 20.0)),
    "one class": (E, np.zeros(N), lambda f: pm.Bernoulli.dist(logit_p=f), (60.0, 90.0, 200.0)),
    "small times": (S, 1e-8 * np.exp(F), lambda f: pm.Weibull.dist(2.0, pm.math.exp(f)), (1.0, 3.0)),
    "small scale": (E, 1e-3 * (1.0 + F) * np.sin(9.0 * F), scale_of, (2.0, 3.0, 4.0)),
    "smaller scale": (E, 1e-8 * (1.0 + F) * np.sin(9.0 * F), scale_of, (2.0, 3.0, 4.0)),
}


@pytest.mark.parametrize(
    "name", often(HARD, "no counts", "none of many", "one class", "small times", "small scale")
)
def test_modes_far_from_the_prior_mean(name):
    """Where rows hold next to no information steps looked short: the search ended, or went astray.

    After an accelerated step too, from which any step was taken, and measured by where it came from.
    """
    kind, y, likelihood, scales = HARD[name]
    time = X[:, :1]
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 5.0, initval=1.0)
        gp = kind(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=1.0))
        variable = gp.marginal_likelihood("y", X=time, y=y, likelihood=likelihood)
    density = model.compile_logp(vars=[variable], jacobian=False)
    unit = pm.gp.cov.Matern52(1, ls=1.0)(time).eval()
    for scale in scales:
        K = scale**2 * unit
        expected, _, _ = dense(lambda f, y: pm.logp(likelihood(f), y), K, np.zeros(N), y)
        np.testing.assert_allclose(density({"eta_log__": np.log(scale)}), expected, rtol=1e-5)


def test_a_long_step_from_where_rows_say_nothing_is_no_end(monkeypatch):
    """Wherever the search was led before: the density is right, or NaN."""
    monkeypatch.setattr(laplace_mode, "FALL", np.inf)
    kind, y, likelihood, scales = HARD["none of many"]
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 5.0, initval=1.0)
        gp = kind(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=1.0))
        variable = gp.marginal_likelihood("y", X=X[:, :1], y=y, likelihood=likelihood)
    density = model.compile_logp(vars=[variable], jacobian=False)
    unit, found = pm.gp.cov.Matern52(1, ls=1.0)(X[:, :1]).eval(), []
    for scale in scales:
        expected, _, _ = dense(lambda f, y: pm.logp(likelihood(f), y), scale**2 * unit, np.zeros(N), y)
        found.append(density({"eta_log__": np.log(scale)}))
        assert np.isnan(found[-1]) or abs(found[-1] - expected) < 1e-4
    assert np.isnan(found).any()


def test_the_floor_of_information_in_steps_moves_no_mode(monkeypatch):
    """Counts of 0 under an sd of 300, where the least information costs 1.6e-3 nats."""
    rows, found = np.linspace(0.0, 5.0, 40)[:, None], []
    for least in (laplace_mode.LEAST, 0.0):
        monkeypatch.setattr(laplace_mode, "LEAST", least)
        with pm.Model() as model:
            gp = sgp.ExactMarginal(cov_func=300.0**2 * pm.gp.cov.Matern52(1, ls=1.0))
            gp.marginal_likelihood("y", X=rows, y=np.zeros(40), likelihood=counts)
        found.append(model.compile_logp()({}))
    np.testing.assert_allclose(found[0], found[1], atol=3e-3)


@pytest.mark.parametrize("name", often(["exact", "CholQR", "Vecchia"], "exact", "Vecchia"))
def test_the_gradient_where_targets_say_what_the_mean_does(name):
    """The mode is exactly the mean, and pseudo-targets less it are a vector without a length."""
    model, _ = made(name, y=np.ones(N), likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)))
    at, logp = {"ell_log__": 0.1, "eta_log__": -0.1, "b": 0.0}, model.compile_logp()
    ends = [
        [logp(at | {v.name: at[v.name] + sign * 1e-4}) for sign in (1.0, -1.0)]
        for v in model.continuous_value_vars
    ]
    expected = np.array([(high - low) / 2e-4 for high, low in ends])
    np.testing.assert_allclose(model.compile_dlogp()(at), expected, rtol=1e-6, atol=1e-7)


def test_rows_that_are_linear_in_the_function_or_do_not_know_it():
    """They have no information: a linear row moves the mean of the others, one without slope nothing."""
    slope, known = np.zeros(N), np.arange(N) % 3 == 0
    slope[1::3] = 30.0

    def logp(y, f):
        return pt.switch(known, -0.5 * (y - f) ** 2, slope * f)

    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=kernel())
        gp.marginal_likelihood("y", X=X, y=F, likelihood=lambda f: pm.CustomDist.dist(f, logp=logp))
        found = model.compile_logp()({})
    K = K_of()
    mean, cov = K @ slope, K[np.ix_(known, known)] + np.eye(known.sum())
    expected = 0.5 * slope @ mean + 0.5 * known.sum() * np.log(2.0 * np.pi)
    expected += stats.multivariate_normal.logpdf(F[known], mean[known], cov)
    # A linear row's pseudo-target is 1e5 sds away, whose square leaves 6 digits behind the point.
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0.0)


def test_a_start_without_information_is_no_mode():
    """From f = -40 the step back is short in units of the information of counts of 0 there."""
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=64.0 * kernel())
        zeros = np.zeros(N, dtype=int)
        gp.marginal_likelihood("y", X=X, y=zeros, likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f)))
    logp = compiled([], [pm.logp(model["y"], model.rvs_to_values[model["y"]])])
    (expected,) = logp()
    gp.training.start.set_value(np.full(N, -40.0))
    np.testing.assert_allclose(logp()[0], expected, rtol=1e-8)


def test_searches_begin_at_the_mode_of_the_build():
    model, gp = made("exact", y=Y, likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)))
    start = gp.training.start.get_value()
    assert np.isfinite(start).all()
    function, at = value_at(model)
    before = function(*at)
    gp.training.start.set_value(np.full(N, np.nan))  # from the prior's mean
    np.testing.assert_allclose(function(*at), before, rtol=1e-10)


def test_a_start_worse_than_the_mean_is_left():
    """From f = 1000 Newton's first step is not finite, from -30 it overshoots."""
    model, gp = made("exact", y=Y, likelihood=lambda f: pm.Poisson.dist(mu=pm.math.exp(f)))
    function, at = value_at(model)
    expected = function(*at)
    for height in (1e3, -30.0, np.inf):
        gp.training.start.set_value(np.full(N, height))
        np.testing.assert_allclose(function(*at), expected, rtol=1e-10, err_msg=f"from {height}")


def test_slow_steps_are_accelerated():
    """Of a linear map with eigenvalues .95 and .2, whose steps shrink by .95: depth one ends them."""
    A, b = np.diag([0.95, 0.2]), np.array([1.0, 2.0])
    x, goal, way, last = np.zeros(2), np.zeros(2), np.zeros(2), np.inf
    for _ in range(12):
        new = A @ x + b
        change = np.abs(new - x).max()
        found = laplace_mode._acceleration(new - x, way, change, last, 1.0, np.array(True))
        slow, back = (v.eval() for v in found)
        assert slow == (np.isfinite(last) and change > 0.3 * last)
        left = laplace_mode._remaining(change, last, slow).eval()
        assert left == (change if slow or np.isinf(last) else change * change / last)
        x, goal, way, last = new - back * (new - goal), new, new - x, change
    np.testing.assert_allclose(x, [20.0, 2.5], rtol=1e-3)  # plain steps are 11 away from 20
    far = laplace_mode._acceleration(new - x, way, change, change, 1.0, np.array(False))
    assert [v.eval() for v in far] == [False, 0.0]
    same = laplace_mode._acceleration(new - x, new - x, change, change, 1.0, np.array(True))
    assert [v.eval() for v in same] == [True, 0.0]  # two steps alike say nothing of the next
    assert laplace_mode._remaining(2e-8, 1e-12, np.array(False)).eval() == 2e-8  # no more than the step


@pytest.mark.slow
def test_an_approximation_that_moves_with_the_noise_is_searched_in_fewer_steps(monkeypatch):
    """With few neighbours a step's own derivative is not zero; the density is that of the plain search."""
    y = np.minimum(np.exp(F), 2.0)
    given = {"y": y, "likelihood": DISTRIBUTIONS["Weibull, censored"][0]}
    found = []
    cases = (laplace_mode.SLOW, 20), (np.inf, 20), (np.inf, 1000)  # 18 steps, 23 without
    for slow, limit in cases:
        monkeypatch.setattr(laplace_mode, "SLOW", slow)
        monkeypatch.setattr(laplace_mode, "LIMIT", limit)
        model, gp = made("Vecchia neighbors", **given)
        gp.training.start.set_value(np.full(N, np.nan))
        function, at = value_at(model, POINT | {"eta": 100.0})
        found.append(function(*at))
    assert np.isnan(found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-7)


def mixed(f):
    return pm.Poisson.dist(mu=pm.math.exp(f - f.mean()))


def moved(f, by):
    return pm.Poisson.dist(mu=pm.math.exp(f - 0.5 * by))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"likelihood": "Poisson"}, TypeError, "takes a function of f"),
        ({"likelihood": pm.Poisson}, TypeError, "takes a function of f .* got Poisson"),
        ({"likelihood": lambda f: 3.0}, TypeError, "must return a distribution"),
        ({"likelihood": lambda f: pm.Poisson.dist(3.0)}, TypeError, "one distribution per row"),
        ({"likelihood": mixed}, TypeError, "elementwise in f"),
        ({"likelihood": lambda f: moved(f, f[0])}, TypeError, "elementwise in f"),
        ({"likelihood": lambda f: moved(f, pt.roll(f, 2))}, TypeError, "elementwise in f"),
        ({"likelihood": lambda f: moved(f, pm.Normal("own"))}, ValueError, "makes own: .* before"),
        ({"likelihood": lambda f: pm.Normal.dist(f, 1.0), "sigma": 1.0}, TypeError, "in place of"),
        ({"likelihood": lambda f: pm.Poisson.dist(pm.math.exp(f)), "y": F}, ValueError, "whole numbers"),
        (
            {"likelihood": lambda f: pm.Gamma.dist(2.0, pm.math.exp(f)), "y": F - 3.0},
            ValueError, r"y\[0\] = -.* has no density under gamma.* \(24 such rows\)",
        ),
        (
            {"likelihood": lambda f: pm.AsymmetricLaplace.dist(1.0, f, 1.0), "y": F},
            ValueError, "second derivative",
        ),
        ({"likelihood": lambda f: pm.Poisson.dist(pm.math.sqrt(f))}, ValueError, "initial point"),
    ],
)  # fmt: skip
def test_what_is_refused(given, error, words):
    with pm.Model():
        gp = sgp.ExactMarginal(cov_func=kernel())
        with pytest.raises(error, match=words):
            gp.marginal_likelihood("y", **{"X": X, "y": Y} | given)


def test_classes_that_take_no_likelihood_name_those_that_do():
    with pm.Model():
        with pytest.raises(TypeError, match="VecchiaMarginal"):
            sgp.KMCGMarginal(cov_func=kernel()).marginal_likelihood(
                "y", X=X, y=Y, likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f))
            )
        with pytest.raises(TypeError, match="n_iter"):
            sgp.SKIPMarginal(cov_func=kernel(), n_iter=5).marginal_likelihood(
                "y", X=X, y=Y, likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f))
            )


def test_the_evidence_of_one_row():
    """Laplace in one dimension, where the mode solves a scalar equation."""
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=kernel())
        gp.marginal_likelihood("y", X=X[:1], y=[3.0], likelihood=lambda f: pm.Poisson.dist(pm.math.exp(f)))
        found = model.compile_logp()(model.initial_point())
    f = brentq(lambda f: 3.0 - np.exp(f) - f / 0.81, -5, 5, xtol=1e-14)
    expected = stats.poisson.logpmf(3, np.exp(f)) - 0.5 * f**2 / 0.81 - 0.5 * np.log1p(0.81 * np.exp(f))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def draws_of(points=40):
    """Posterior draws, scattered a little around a point."""
    noise = np.random.default_rng(1)
    return az.from_dict(
        {"posterior": {k: v + 0.02 * noise.standard_normal((1, points)) for k, v in POINT.items()}}
    )


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of few draws
@pytest.mark.parametrize("name", often(["exact", "CholQR", "Vecchia"], "Vecchia"))
def test_rows_left_out_under_a_normal_distribution(name):
    """By quadrature as in closed form."""
    sigma = np.linspace(0.2, 0.5, N)
    own, closed = made(name, y=F, sigma=sigma)
    other, gp = made(name, y=F, likelihood=lambda f: pm.Normal.dist(f, sigma))
    idata = draws_of()
    first = closed.loo(idata, progressbar=False, model=own)
    second = gp.loo(idata, progressbar=False, model=other)
    np.testing.assert_allclose(second.elpd_i, first.elpd_i, rtol=1e-7)
    np.testing.assert_allclose(
        gp.loo_pit(idata, progressbar=False, model=other),
        closed.loo_pit(idata, progressbar=False, model=own), atol=1e-7,
    )  # fmt: skip
    with pytest.raises(ValueError, match="Gaussian noise"):
        gp.loo(idata, groups=np.arange(N) // 2, progressbar=False, model=other)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of few draws
def test_rows_left_out_under_counts(with_counts):
    """The density of a row given the others, by draws of f from the others alone."""
    model, gp = with_counts
    noise = np.random.default_rng(2)
    point = {k: v + 1e-6 * noise.standard_normal((1, 30)) for k, v in POINT.items()}
    found = gp.loo(az.from_dict({"posterior": point}), progressbar=False, model=model).elpd_i
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for i in (0, 7, 15):
        rest = np.delete(np.arange(N), i)
        K, k, prior = K_of()[np.ix_(rest, rest)], K_of()[rest, i], np.full(N - 1, 0.3)
        _, mode, W = dense(lambda f, y: pm.logp(counts(f), y), K, prior, Y[rest])
        near = stats.multivariate_normal(mode, 1.5 * (K - K @ np.linalg.solve(K + np.diag(1.0 / W), K)))
        f = near.rvs(40_000, random_state=noise)
        exact = stats.multivariate_normal(prior, K, allow_singular=True)
        logs = stats.poisson.logpmf(Y[rest], np.exp(f)).sum(axis=1) + exact.logpdf(f) - near.logpdf(f)
        own = np.exp(logs - logs.max())
        a = np.linalg.solve(K, k)
        at = (0.3 + (f - 0.3) @ a)[:, None] + np.sqrt(K[0, 0] - k @ a) * nodes
        each = stats.poisson.pmf(Y[i], np.exp(at)) @ weights / weights.sum()
        # The cavity keeps the others' targets as they are with the row: a difference of second order.
        # With the targets of the mode .08 at the first.
        np.testing.assert_allclose(found[i], np.log(own @ each / own.sum()), atol=0.04)
    pit = gp.loo_pit(az.from_dict({"posterior": point}), progressbar=False, model=model)
    assert ((pit > 0) & (pit < 1)).all()
    assert 0.3 < float(pit.mean()) < 0.7


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of few draws
def test_no_transform_without_a_cumulative_distribution(monkeypatch):
    model, gp = made("exact", y=Y, likelihood=counts)
    monkeypatch.setattr(type(gp.training.rows), "cdf_of", lambda *args: None)
    assert np.isfinite(gp.loo(draws_of(), progressbar=False, model=model).elpd)
    with pytest.raises(ValueError, match="cumulative distribution"):
        gp.loo_pit(draws_of(), progressbar=False, model=model)


@pytest.mark.slow
def test_importance_sampling_runs_on_it():
    """Evidence against quadrature of the same density over one parameter."""
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1)
        gp = sgp.CholQRMarginal(cov_func=kernel(1.1, eta), n_inducing=12)
        gp.build(X)
        gp.marginal_likelihood("y", X=X, y=Y, likelihood=counts)
        idata = sgp.sample_importance(random_seed=1, progressbar=False, cores=1)
        logp = model.compile_logp()
    grid = np.linspace(-4.0, 2.0, 61)
    values = np.array([logp({"eta_log__": v}) for v in grid])
    evidence = np.log(np.trapezoid(np.exp(values - values.max()), grid)) + values.max()
    attrs = idata.posterior.attrs
    assert attrs["khat"] < 0.7
    assert abs(attrs["log_evidence"] - evidence) < 4 * attrs["log_evidence_se"] + 0.01


def test_corrections_and_exact_predictions_go_to_the_exact_gp(with_counts):
    model, gp = made("Vecchia", y=Y, likelihood=counts)
    exact_model, exact = with_counts
    density = better_density(model, gp.variable, exact_rows(gp, gp.training))
    at = density.unconstrained([[np.asarray(POINT[v.name]) for v in model.free_RVs]])
    point = dict(zip((v.name for v in exact_model.value_vars), at[0], strict=True))
    np.testing.assert_allclose(density.values(at)[0], exact_model.compile_logp()(point), rtol=1e-8)
    mean, var = gp.predict(X[:3] + 0.1, POINT, diag=True, exact=True, model=model)
    expected = exact.predict(X[:3] + 0.1, POINT, diag=True, model=exact_model)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-7)
    np.testing.assert_allclose(var, expected[1], rtol=1e-6)
    with model:
        more = better_density(
            model, gp.variable, with_neighbors(gp.training, gp.cov_func, N, POINT, False, 1)
        )
    # Every row is given all before it.
    np.testing.assert_allclose(more.values(at)[0], density.values(at)[0], rtol=1e-6)
    _, gaussian = made("exact", y=Y, sigma=0.5)
    with pytest.raises(ValueError, match="nothing to correct"):
        gaussian.correct(draws_of(), progressbar=False)


def stacked_classes(f):
    """Their gradient splits an array, by lengths that JAX has to know."""
    return pm.Categorical.dist(logit_p=pm.math.stack([0.0 * f, f], axis=1))


@pytest.mark.parametrize(
    ("name", "y", "likelihood"),
    [
        pytest.param("exact", Y, counts, marks=pytest.mark.slow),
        pytest.param("Vecchia", Y, counts, marks=pytest.mark.slow),
        ("exact", np.minimum(Y, 1), stacked_classes),
    ],
)
def test_jax_has_the_same_density_and_gradient(name, y, likelihood):
    jax = pytest.importorskip("jax")
    from pymc.sampling.jax import get_jaxified_logp

    model, _ = made(name, y=y, likelihood=likelihood)
    point = model.initial_point()
    function = get_jaxified_logp(model, negative_logp=False)
    with jax.enable_x64(True):
        at = [point[v.name] + 0.1 for v in model.value_vars]
        value, gradient = jax.value_and_grad(lambda x: -function(x))(at)
    point = dict(zip((v.name for v in model.value_vars), at, strict=True))
    np.testing.assert_allclose(value, model.compile_logp()(point), rtol=1e-9)
    np.testing.assert_allclose(np.hstack(gradient), model.compile_dlogp()(point), rtol=1e-6)
