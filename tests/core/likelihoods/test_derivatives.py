"""Distributions whose derivatives in f need care, and searches that find no mode."""

import subprocess
import sys
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from marks import often
from scipy import stats

import pymc_scalable_gp as sgp

X = np.linspace(0.0, 4.0, 12)[:, None]
Y = 1.0 + 0.5 * np.sin(2.0 * X[:, 0])


def model_of(likelihood, X=X, y=Y, make=sgp.ExactMarginal, **options):
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1.0)
        gp = make(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=1.0), **options)
        gp.marginal_likelihood("y", X=X, y=y, likelihood=likelihood)
    return model, gp


def value(model, mode=None):
    return float(model.compile_logp(vars=[model["y"]], mode=mode)(model.initial_point()))


@pytest.mark.parametrize(("shift", "rows"), [(0.0, len(X)), (0.2, 1)])
def test_a_student_t_that_f_scales(shift, rows):
    """With many degrees of freedom it is a normal distribution, whose derivatives are exact."""
    found, normal = (
        value(
            model_of(lambda f, dist=dist: dist(mu=shift * f, sigma=0.5 * pt.exp(f)), X[:rows], Y[:rows])[0]
        )
        for dist in (partial(pm.StudentT.dist, 1000.0), pm.Normal.dist)
    )
    assert found == pytest.approx(normal, abs=2e-3 * rows)


def test_a_student_t_that_f_scales_alone():
    """One row: Laplace's approximation beside the integral, as near as it is for a normal."""
    f = np.linspace(-9.0, 9.0, 8001)
    for dist, exact in [
        (
            lambda f: pm.StudentT.dist(4.0, mu=0.0, sigma=pt.exp(f)),
            stats.t.logpdf(1.5, 4.0, 0.0, np.exp(f)),
        ),
        (lambda f: pm.Normal.dist(0.0, pt.exp(f)), stats.norm.logpdf(1.5, 0.0, np.exp(f))),
    ]:
        model, _ = model_of(dist, X[:1], np.array([1.5]))
        with model:
            point = {"eta_log__": 0.0}
        found = float(model.compile_logp(vars=[model["y"]])(point))
        integral = np.log(np.trapezoid(stats.norm.pdf(f) * np.exp(exact), f))
        assert abs(found - integral) < 0.05


FAR_BOUND = """
import sys
import numpy as np
import pymc as pm
import pymc_scalable_gp as sgp
found = []
for bound in (10.0, 50.0):
    with pm.Model() as model:
        gp = sgp.ExactMarginal(cov_func=pm.HalfNormal("eta", 1.0) * pm.gp.cov.Matern52(1, ls=1.0))
        likelihood = lambda f: pm.Truncated.dist(pm.Normal.dist(f, 0.7), lower=-2.0, upper=bound)
        gp.marginal_likelihood("y", X=np.arange(3.0)[:, None], y=np.ones(3), likelihood=likelihood)
    found.append(float(model.compile_logp(mode=sys.argv[1])(model.initial_point())))
assert abs(found[1] - found[0]) < 1e-9, found
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA", "JAX"])
def test_a_bound_that_is_far_off(mode):
    """There the branch of the normal's distribution function that is not taken overflows.

    Rewrites make nothing of its derivatives: here, in a process of its own, graphs have them in Python too.
    """
    if mode == "JAX":
        pytest.importorskip("jax")
    subprocess.run([sys.executable, "-c", FAR_BOUND, mode], check=True)


def test_one_bound_is_refused_with_what_helps():
    with pytest.raises(ValueError, match="a truncated normal needs both bounds"):
        model_of(lambda f: pm.TruncatedNormal.dist(f, 0.7, lower=-2.0))


def test_a_bound_that_cuts_nothing_off_is_refused_with_what_helps():
    """PyMC's log density of counts between 0 and 8 has the gradient of log 0 in it."""
    counts = np.arange(len(X)) % 9
    with pytest.raises(ValueError, match="counts truncated above take no lower=0"):
        model_of(lambda f: pm.Truncated.dist(pm.Poisson.dist(mu=pt.exp(f)), lower=0, upper=8), y=counts)


def test_a_distribution_without_second_derivatives_is_refused():
    with pytest.raises(ValueError, match="rice, whose log density has no second derivative"):
        model_of(lambda f: pm.Rice.dist(nu=pt.exp(f), sigma=0.7))


def test_a_mode_that_is_not_found_is_warned_of():
    """Low counts, and three neighbours alone."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (300, 2))
    y = rng.poisson(np.exp(np.sin(X[:, 0]) + np.cos(0.7 * X[:, 1]) - 2.0))
    with pm.Model():
        kernel = 16.0 * pm.gp.cov.Matern52(2, ls=8.0)
        mean = pm.gp.mean.Constant(-2.0)
        gp = sgp.VecchiaMarginal(mean_func=mean, cov_func=kernel, n_inducing=0, neighbors=5)
        with pytest.warns(UserWarning, match="No mode of the function is found"):
            gp.marginal_likelihood(
                "y", X=X, y=y, likelihood=lambda f: pm.Poisson.dist(pt.exp(f)), progressbar=False
            )


CLASSES = [sgp.ExactMarginal, sgp.CholQRMarginal, sgp.VecchiaMarginal]


@pytest.mark.parametrize("make", often(CLASSES, sgp.ExactMarginal, sgp.VecchiaMarginal))
def test_check_of_more_rows_than_before(make):
    options = {} if make is sgp.ExactMarginal else {"n_inducing": 8}
    more, counts = np.linspace(0.0, 4.0, 17)[:, None], np.arange(17.0) % 4
    found = []
    for first, target in [(X, np.ones(12)), (more, counts)]:
        with pm.Model():
            inputs, y = pm.Data("X", first), pm.Data("y_", target)
            gp = make(cov_func=pm.gp.cov.Matern52(1, ls=1.0), **options)
            if make is sgp.CholQRMarginal:
                gp.build(X)
            gp.marginal_likelihood("y", X=inputs, y=y, likelihood=lambda f: pm.Poisson.dist(pt.exp(f)))
            pm.set_data({"X": more, "y_": counts})
            if make is sgp.VecchiaMarginal and first is X:
                with pytest.raises(ValueError, match="X was replaced, and order and neighbors"):
                    gp.check({}, progressbar=False)
                continue
            found.append(gp.check({}, progressbar=False))
    assert str(found[0]) == str(found[-1])


def counts_of(rows, rng):
    return rng.poisson(np.exp(np.sin(rows[:, 0])))


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # draws that are all but alike
@pytest.mark.parametrize("kind", ["censored", "hurdle"])
def test_integral_transforms_of_a_row_with_a_probability_of_its_own(kind):
    """A random place within its step: uniform for data of the model, and within 0 and 1."""
    rng = np.random.default_rng(3)
    rows = np.sort(rng.uniform(0.0, 6.0, (150, 1)), axis=0)
    K = pm.gp.cov.Matern52(1, ls=0.9)(rows).eval()
    f = np.linalg.cholesky(K + 1e-8 * np.eye(150)) @ rng.standard_normal(150)
    if kind == "censored":
        times = np.exp(f) * rng.weibull(1.5, 150)
        special, y = times > 0.8, np.minimum(times, 0.8)

        def likelihood(f):
            return pm.Censored.dist(pm.Weibull.dist(1.5, pt.exp(f)), None, 0.8)
    else:
        special = rng.uniform(size=150) > 0.6
        y = np.where(special, 0.0, rng.gamma(2.0, np.exp(f) / 2.0))

        def likelihood(f):
            return pm.HurdleGamma.dist(psi=0.6, alpha=2.0, beta=2.0 * pt.exp(-f))

    model, gp = model_of(likelihood, rows, y)
    draws = {"eta": 1.0 + 0.03 * rng.standard_normal((1, 30))}
    pit = gp.loo_pit(az.from_dict({"posterior": draws}), progressbar=False, model=model).values
    assert ((pit >= 0.0) & (pit <= 1.0)).all()
    assert len(np.unique(pit[special])) == special.sum() > 30
    assert stats.kstest(pit, "uniform").pvalue > 0.05


@pytest.mark.parametrize("transposed", [False, True])
def test_values_of_training_rows_are_not_those_of_new_rows(transposed):
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((len(X), 2))
    with pm.Model():
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        shift = pt.dot(b, Z.T) if transposed else pt.dot(Z, b)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=1.0))
        gp.marginal_likelihood(
            "y", X, counts_of(X, rng), likelihood=lambda f: pm.Poisson.dist(pt.exp(f + shift))
        )
        with pytest.raises(ValueError, match="a value for each of the 12 training rows"):
            gp.predict(X + 0.1, diag=True, pred_noise=True)


@pytest.mark.filterwarnings("ignore:Operation with TensorVariable")
def test_exposures_of_pandas_are_told_to_be_arrays():
    """NumPy takes each of their entries times all of f; the error said that there were too few."""
    exposure = pytest.importorskip("pandas").Series(np.ones(len(X)))
    with pytest.raises(ValueError, match=r"sequence. What it has .* an array, of pandas .to_numpy\(\)"):
        model_of(lambda f: pm.Poisson.dist(exposure * pt.exp(f)))


def test_likelihoods_that_cannot_be_are_told_what_to_change():
    exposure = np.ones(len(X))
    exposure[3] = 0.0
    y = counts_of(X, np.random.default_rng(1))
    y[3] = 0
    with pytest.raises(ValueError, match=r"y\[3\] = 0 \(1 such rows\): .*an exposure of 0"):
        model_of(lambda f: pm.Poisson.dist(exposure * pt.exp(f)), y=y)
    with pytest.raises(ValueError, match=r"12 rows: Incompatible.*one value for each row with a target"):
        model_of(lambda f: pm.Poisson.dist(exposure[1:] * pt.exp(f)), y=y)
    with pytest.raises(ValueError, match="without a name.*before any likelihood= function"):
        model_of(lambda f: pm.Poisson.dist(pt.exp(f + pm.Normal.dist(shape=len(X)))), y=y)
