"""What Laplace's approximation leaves out: solutions, the correction, and the checks that show it."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from marks import often
from scipy import stats
from scipy.special import logsumexp

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.checking.correct import better_density
from pymc_scalable_gp.core.likelihoods import laplace_error, laplace_mean
from pymc_scalable_gp.core.likelihoods.rowwise import RowDistribution
from pymc_scalable_gp.utils.compiled import evaluate

rng = np.random.default_rng(0)
N = 24
X = rng.uniform(0.0, 4.0, (N, 2))
Y = rng.poisson(np.exp(np.sin(X[:, 0]))).astype(float)
POINT = {"eta": 0.9}
CLASSES = {
    "exact": (sgp.ExactMarginal, {}),
    "FITC": (sgp.CholQRMarginal, {"n_inducing": 12, "approx": "FITC"}),
    "Vecchia": (sgp.VecchiaMarginal, {"n_inducing": 6, "neighbors": 5, "block": 4}),
    "Vecchia neighbors": (sgp.VecchiaMarginal, {"n_inducing": 0, "neighbors": 4, "block": 3}),
    "SoftKI": (sgp.SoftKIMarginal, {"inducing": X[:10]}),
}


def counts(f):
    return pm.Poisson.dist(mu=pm.math.exp(f))


def classes(f):
    return pm.Bernoulli.dist(logit_p=f)


def made(name, likelihood=counts, y=Y, X=X, ls=1.1):
    kind, options = CLASSES[name]
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1)
        gp = kind(cov_func=eta**2 * pm.gp.cov.Matern52(X.shape[1], ls=ls), **options)
        if name == "FITC":
            gp.build(X, point=POINT)
        gp.marginal_likelihood("y", X=X, y=y, likelihood=likelihood)
    return model, gp


def corrected(gp):
    return gp.training.logp() + laplace_error.log_mean(gp.training.log_ratios())


def draws_of(count):
    eta = np.random.default_rng(3).lognormal(-0.2, 0.3, (1, count))
    return az.from_dict({"posterior": {"eta": eta}})


@pytest.mark.parametrize("name", CLASSES)
def test_a_solution_is_the_slope_of_the_density(name):
    model, gp = made(name)
    normal = gp.training.inner.normal(pt.constant(np.linspace(0.2, 0.9, N)))
    columns = np.random.default_rng(1).standard_normal((N, 3))
    values = [pt.constant(c) + normal.mean for c in columns.T]
    slopes = [pt.grad(normal.logp(value), value) for value in values]
    found, *expected = evaluate([normal.solve(pt.constant(columns)), *slopes], POINT, model)
    np.testing.assert_allclose(found, -np.array(expected).T, rtol=1e-8, atol=1e-10)


def test_the_correction_is_that_of_quadrature(monkeypatch):
    """Rows too far apart to know of one another: each has its own evidence, by quadrature."""
    monkeypatch.setattr(laplace_mean, "PAIRS", 20_000)
    y, far = np.array([0.0, 1.0, 1.0]), np.array([[0.0], [1e4], [2e4]])
    model, gp = made("exact", classes, y, far)
    laplace, found = evaluate([gp.training.logp(), corrected(gp)], {"eta": 2.0}, model)
    f = np.linspace(-20.0, 20.0, 100_001)
    p = 1.0 / (1.0 + np.exp(-f))
    each = [np.trapezoid(stats.norm.pdf(f, 0.0, 2.0) * q, f) for q in (1.0 - p, p, p)]
    expected = np.log(each).sum()
    assert abs(laplace - expected) > 0.05
    np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.parametrize("name", often(CLASSES, "exact", "FITC", "Vecchia"))
def test_functions_are_drawn_from_the_posterior_of_the_pseudo_targets(name, monkeypatch):
    """A likelihood of which Laplace's approximation knows all but a factor of two in the tails."""
    monkeypatch.setattr(laplace_mean, "PAIRS", 4000)
    y = (Y > 1) * 1.0
    model, gp = made(name, classes, y)
    training = gp.training
    precision, t, v, mode, at_mode = evaluate(
        [training.prior_function.solve(pt.eye(N)), *training.around_mean[:2], training.mode,
         training.pseudo_targets[0]], POINT, model
    )  # fmt: skip
    S = np.linalg.inv(precision + np.diag(1.0 / v))
    drawn = np.random.default_rng(2).standard_normal((4000, N)) @ np.linalg.cholesky(S).T
    drawn = np.vstack([S @ (t / v) + drawn, S @ (t / v) - drawn])
    signs = 2.0 * y - 1.0

    def density(t, f):
        """Of all targets, by weights of one or more functions."""
        logs = -np.log1p(np.exp(-signs * f)).sum(axis=1)
        logs = logs - stats.norm.logpdf(t, f, np.sqrt(v)).sum(axis=1)
        cov = np.linalg.inv(precision) + np.diag(v)
        return logsumexp(logs) - np.log(len(f)) + stats.multivariate_normal.logpdf(t, np.zeros(N), cov)

    expected = density(t, drawn) - density(at_mode, mode[None])
    found = evaluate([laplace_error.log_mean(training.log_ratios())], POINT, model)[0]
    # With neighbours the covariance of the targets is not quite that of the function and noise.
    np.testing.assert_allclose(found, expected, atol=0.15 if "Vecchia" in name else 0.02)


def test_functions_are_in_pairs_around_the_mean(monkeypatch):
    seen, logp_of = [], RowDistribution.logp_of
    monkeypatch.setattr(
        RowDistribution, "logp_of", lambda rows, f, y: seen.append(f) or logp_of(rows, f, y)
    )
    model, gp = made("exact")
    gp.training.log_ratios()
    (functions,) = evaluate(seen, POINT, model)
    mean, _ = gp.predict(X, POINT, diag=True, model=model)
    one, other = functions.reshape(2, -1, N)
    # Predictions add 1e-10 of the variance to the kernel's diagonal, or so.
    np.testing.assert_allclose(0.5 * (one + other), np.broadcast_to(mean, one.shape), atol=1e-6)
    assert np.abs(one - other).min() > 1e-6


def test_nothing_is_left_out_under_a_normal_distribution():
    model, gp = made("exact", lambda f: pm.Normal.dist(f, 0.5))
    both = evaluate([gp.training.logp(), corrected(gp)], POINT, model)
    np.testing.assert_allclose(*both, rtol=1e-9)


@pytest.mark.parametrize("n", [1, N])
def test_weights_that_differ_by_rounding_alone_are_no_fault(n):
    """Under a normal distribution a check's importance weights have no tail; of one row many are equal."""
    model, gp = made("exact", lambda f: pm.Normal.dist(f, 0.5), Y[:n], X[:n])
    found = gp.check(draws_of(40), progressbar=False, model=model)
    assert str(found).startswith("Good.")
    assert found.attrs["k_hat_functions"] == -np.inf
    assert "k-hat" not in found.attrs["details"]


def test_a_function_at_which_the_likelihood_fails_weighs_nothing():
    """The mean is that of the others over all 128; a check counts no mode as missing."""

    def likelihood(f):
        """Normal, but NaN above 4."""

        def logp(value, f):
            return pt.switch(f > 4.0, np.nan, -0.5 * (value - f) ** 2)

        return pm.CustomDist.dist(f, logp=logp)

    model, gp = made("exact", likelihood)
    found = evaluate([gp.training.log_ratios()], POINT, model)[0]
    fails = np.isneginf(found)
    assert 0 < fails.sum() < 10
    np.testing.assert_allclose(found[~fails], 0.0, atol=1e-12)
    checked = gp.check(draws_of(40), progressbar=False, model=model)
    assert checked.attrs["modes_missing"] == 0
    assert np.isfinite(checked.attrs["gap_laplace"])


def test_a_check_of_laplace_under_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        model, gp = made("exact")
        found = gp.check(draws_of(40), progressbar=False, rows=12, model=model)
    assert abs(found.attrs["gap_laplace"]) < 0.5
    assert found.attrs["lost_laplace"] > 0.0


@pytest.mark.slow
def test_the_corrected_density_is_one_function():
    found = []
    for _ in range(2):
        model, gp = made("Vecchia")
        density = better_density(model, gp.variable, gp.training, gp.training.log_ratios())
        at = density.unconstrained([[np.array(0.7)], [np.array(1.1)]])
        found += [density.values(at), density.values(at)]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-12)
    plain = better_density(model, gp.variable, gp.training)
    known = density.evaluations
    np.testing.assert_allclose(density.slopes(at), plain.with_gradients(at)[1], rtol=1e-9)
    assert density.evaluations == known  # densities are not taken again for gradients alone
    assert np.abs(density.values(at) - plain.values(at)).min() > 1e-4


def test_a_check_of_ordered_classes():
    """The density of one function alone has another shape there, which PyTensor refused."""
    y = (Y > 0) * 1 + (Y > 2)
    cuts = np.array([-1.0, 1.0])
    model, gp = made("exact", lambda f: pm.OrderedLogistic.dist(eta=f, cutpoints=cuts), y)
    found = gp.check(draws_of(30), progressbar=False, model=model)
    assert 0.0 < abs(found.attrs["gap_laplace"]) < 0.3


@pytest.mark.parametrize("name", often(["exact", "Vecchia"], "exact"))
def test_a_check_shows_the_error(name):
    model, gp = made(name)
    found = gp.check(draws_of(40), progressbar=False, rows=12, model=model)
    assert found.attrs["modes_missing"] == 0
    assert abs(found.attrs["gap_laplace"]) < 0.5
    assert found.attrs["lost_laplace"] > 0.0
    assert "Draws of the function put the log density" in found.attrs["details"]
    assert {"moved_laplace", "logp_exact"} <= set(found)
    if name == "exact":
        np.testing.assert_allclose(found.logp_exact, found.logp_approx, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "advice"), [(30, 'target="likelihood"'), (60, "sgp.VecchiaLatent")])
def test_a_poor_approximation_is_called_so(n, advice):
    """Yes-or-no outcomes that know nothing of one another, under a wide prior: draws tell fewer of them."""
    far = np.column_stack([1e4 * np.arange(n), np.zeros(n)])
    model, gp = made("exact", classes, np.arange(n) % 2, far)
    eta = np.random.default_rng(3).lognormal(1.2, 0.5, (1, 60))
    found = gp.check(az.from_dict({"posterior": {"eta": eta}}), progressbar=False, model=model)
    assert abs(found.attrs["gap_laplace"]) > 0.3
    assert "Laplace's approximation is poor" in str(found)
    assert advice in str(found)
    assert (found.attrs["k_hat_functions"] > 0.7) == (n == 60)


@pytest.mark.slow
def test_draws_go_on_to_the_likelihood_itself():
    """Posterior of one parameter against quadrature of the corrected density."""
    y = (X[:, 0] > 2.0) * 1.0
    model, gp = made("exact", classes, y)
    found = gp.correct(draws_of(200), "likelihood", progressbar=False, random_seed=1, cores=1, model=model)
    density = better_density(model, gp.variable, gp.training, gp.training.log_ratios())
    grid = np.linspace(-4.0, 2.5, 101)
    weights = np.exp((values := density.values(grid[:, None])) - values.max())
    mean = (weights * np.exp(grid)).sum() / weights.sum()
    posterior = found.posterior.eta
    error = float(posterior.std()) / np.sqrt(found.posterior.attrs["ess"])
    assert abs(float(posterior.mean()) - mean) < 4.0 * error
    assert found.posterior.attrs["khat"] < 0.7
    assert "likelihood itself" in found["correction"].attrs["target"]


@pytest.mark.slow
def test_the_evidence_has_the_error_of_the_functions():
    """They are the same for every seed, so that calls agree; .02 was their evidences' own error."""
    y = (X[:, 0] > 2.0) * 1.0
    with pm.Model() as model:
        eta = pm.LogNormal("eta", np.log(5.0), 0.01)
        gp = sgp.ExactMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=1.1))
        gp.marginal_likelihood("y", X=X, y=y, likelihood=classes)
    idata = az.from_dict(
        {"posterior": {"eta": np.random.default_rng(1).lognormal(np.log(5), 0.01, (1, 60))}}
    )
    found = gp.correct(idata, "likelihood", progressbar=False, random_seed=1, cores=1, model=model)
    ratios = evaluate([gp.training.log_ratios()], {"eta": 5.0}, model)[0]
    pairs = np.exp(np.logaddexp(*ratios.reshape(2, -1)))
    error = pairs.std() / pairs.mean() / 8.0
    assert error > 0.03
    np.testing.assert_allclose(found.posterior.attrs["log_evidence_se"], error, rtol=0.2)


def test_gaussian_noise_has_no_such_error():
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1)
        gp = sgp.VecchiaMarginal(cov_func=eta * pm.gp.cov.Matern52(2, ls=1.0), n_inducing=5)
        gp.marginal_likelihood("y", X=X, y=Y, sigma=1.0)
    with pytest.raises(ValueError, match="has none"):
        gp.correct(draws_of(40), "likelihood", progressbar=False, model=model)
