"""New observations under any likelihood: moments by quadrature, draws, and what is refused."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from marks import often

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.likelihoods.new_rows import moments

rng = np.random.default_rng(0)
X = rng.uniform(0.0, 4.0, (30, 1))
F = np.sin(2.0 * X[:, 0])
EXPOSURE = rng.uniform(0.5, 2.0, 30)
COUNTS = rng.poisson(EXPOSURE * np.exp(F)).astype(float)
NEW = np.array([[0.5], [1.7], [9.0]])
POINT = {"eta": 0.8}
AT = np.array([-0.4, 0.0, 0.3])
exp, sigmoid = pm.math.exp, pm.math.sigmoid

DISCRETE = {
    "Poisson": lambda f: pm.Poisson.dist(mu=2.0 * exp(f)),
    "NegativeBinomial": lambda f: pm.NegativeBinomial.dist(mu=exp(f), alpha=3.0),
    "Binomial": lambda f: pm.Binomial.dist(n=7, logit_p=f),
    "Bernoulli": lambda f: pm.Bernoulli.dist(p=pm.math.invprobit(f)),
    "Geometric": lambda f: pm.Geometric.dist(p=sigmoid(f)),
    "ZeroInflatedPoisson": lambda f: pm.ZeroInflatedPoisson.dist(psi=0.7, mu=exp(f)),
}
CONTINUOUS = {
    "Normal": lambda f: pm.Normal.dist(f, 0.7),
    "Laplace": lambda f: pm.Laplace.dist(f, 0.7),
    "Logistic": lambda f: pm.Logistic.dist(f, 0.7),
    "LogNormal": lambda f: pm.LogNormal.dist(f, 0.4),
    "Exponential": lambda f: pm.Exponential.dist(scale=exp(f)),
    "Gamma": lambda f: pm.Gamma.dist(alpha=2.0, beta=2.0 * exp(-f)),
    "Beta": lambda f: pm.Beta.dist(mu=sigmoid(f), nu=9.0),
    "Weibull": lambda f: pm.Weibull.dist(1.5, exp(f)),
    "StudentT": lambda f: pm.StudentT.dist(nu=9.0, mu=f, sigma=0.5),
    "Mixture": lambda f: pm.Mixture.dist([0.3, 0.7], [pm.Normal.dist(f, 0.5), pm.Normal.dist(-f, 1.0)]),
    "Mixture of one": lambda f: pm.Mixture.dist(
        [0.3, 0.7], pm.Normal.dist(pt.stack([f, -f], axis=-1), [0.5, 1.0])
    ),
}


def evaluated(make):
    f = pt.vector("f")
    return pytensor.function([f], list(moments(make(f))))(AT)


@pytest.mark.parametrize(
    "name",
    often(
        DISCRETE | CONTINUOUS, "Poisson", "NegativeBinomial", "Bernoulli", "ZeroInflatedPoisson", "Normal",
        "Gamma", "Beta", "Weibull", "StudentT", "Mixture", "Mixture of one",
    ),
)  # fmt: skip
def test_moments_are_those_of_the_density(name):
    make = (DISCRETE | CONTINUOUS)[name]
    mean, var = evaluated(make)
    grid = np.arange(400) if name in DISCRETE else (np.arange(600_000) + 0.5) / 5000.0 - 60.0
    for i, f in enumerate(AT):
        logp = pm.logp(make(pt.constant(np.full(len(grid), f))), grid)
        with np.errstate(all="ignore"):
            p = np.exp(logp.eval())
        p[np.isinf(p)] = 0.0
        p /= p.sum()
        np.testing.assert_allclose(mean[i], p @ grid, rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(var[i], p @ (grid - p @ grid) ** 2, rtol=1e-4)


def made(likelihood, y=COUNTS, cls=sgp.ExactMarginal, **options):
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1)
        gp = cls(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=0.8), **options)
        gp.marginal_likelihood("y", X=X, y=y, likelihood=likelihood)
    return model, gp


def draws_of(count):
    return az.from_dict({"posterior": {"eta": np.full((1, count), POINT["eta"])}})


def counts(f):
    return pm.Poisson.dist(mu=exp(f))


def test_new_counts_have_the_moments_of_a_lognormal_mixture():
    model, gp = made(counts)
    m, s2 = gp.predict(NEW, POINT, diag=True, model=model)
    mean, var = gp.predict(NEW, POINT, diag=True, pred_noise=True, model=model)
    expected = np.exp(m + s2 / 2.0)
    np.testing.assert_allclose(mean, expected, rtol=1e-8)
    np.testing.assert_allclose(var, expected + expected**2 * np.expm1(s2), rtol=1e-8)


COUNTED = {"pred_noise": True, "draws": True, "progressbar": False}


@pytest.mark.slow
def test_draws_of_new_counts_have_these_moments():
    model, gp = made(counts, cls=sgp.VecchiaMarginal, n_inducing=8, neighbors=5)
    found = gp.predict_posterior(NEW, draws_of(500), random_seed=1, model=model, **COUNTED)
    assert found.y.dims == ("chain", "draw", "obs")
    assert found.f.shape == found.y.shape
    drawn = found.y.values[0]
    error = found.sd.values / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - found["mean"].values) < 4.0 * error).all()
    np.testing.assert_allclose(drawn.std(axis=0), found.sd, rtol=0.1)


def test_draws_of_new_counts_have_one_seed():
    model, gp = made(counts, cls=sgp.VecchiaMarginal, n_inducing=8, neighbors=5)
    found, again = (
        gp.predict_posterior(NEW, draws_of(20), random_seed=2, model=model, **COUNTED) for _ in range(2)
    )
    np.testing.assert_array_equal(found.y, again.y)
    assert len(np.unique(found.y.values[0, :, 1])) > 3  # a generator that goes on from draw to draw


@pytest.mark.parametrize("name", ["StudentT", "Mixture"])
def test_small_variances_far_from_zero(name):
    """Squares of metres north have no digits left for hundredths."""
    north, sd = 5e6, 0.01
    likelihood = {
        "StudentT": lambda f: pm.StudentT.dist(nu=4.0, mu=f, sigma=sd),
        "Mixture": lambda f: pm.Mixture.dist(
            [0.9, 0.1], [pm.Normal.dist(f, sd), pm.Normal.dist(f, 10.0 * sd)]
        ),
    }[name]
    own = {"StudentT": 2.0 * sd**2, "Mixture": 10.9 * sd**2}[name]
    with pm.Model() as model:
        gp = sgp.ExactMarginal(
            cov_func=0.02**2 * pm.gp.cov.Matern52(1, ls=1.0), mean_func=pm.gp.mean.Constant(north)
        )
        gp.marginal_likelihood("y", X=X, y=north + 0.01 * F, likelihood=likelihood)
    _, var = gp.predict(NEW, {}, diag=True, model=model)
    mean, found = gp.predict(NEW, {}, diag=True, pred_noise=True, model=model)
    np.testing.assert_allclose(found, var + own, rtol=1e-3)  # 5e6 has nine digits beyond the point
    np.testing.assert_allclose(mean, gp.predict(NEW, {}, diag=True, model=model)[0], rtol=0, atol=1e-8)


def test_the_mixture_over_draws_has_both_variances():
    model, gp = made(counts)
    idata = az.from_dict({"posterior": {"eta": np.array([[0.5, 1.0]])}})
    found = gp.predict_posterior(NEW, idata, pred_noise=True, progressbar=False, model=model)
    each = [gp.predict(NEW, {"eta": eta}, diag=True, pred_noise=True, model=model) for eta in (0.5, 1.0)]
    means, variances = np.moveaxis(np.array(each), 1, 0)
    np.testing.assert_allclose(found["mean"], means.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(found.sd**2, variances.mean(axis=0) + means.var(axis=0), rtol=1e-10)


def grades():
    """Model of three ordered classes, and its GP."""
    classes = np.digitize(F, [-0.4, 0.5]).astype(float)
    return made(lambda f: pm.OrderedLogistic.dist(f, np.array([-0.4, 0.5])), classes)


def test_classes_have_probabilities():
    model, gp = grades()
    mean, var = gp.predict(NEW, POINT, diag=True, pred_noise=True, model=model)
    assert mean.shape == (3, 3)
    np.testing.assert_allclose(mean.sum(axis=1), 1.0, rtol=1e-10)
    np.testing.assert_allclose(var, mean * (1.0 - mean), rtol=1e-9)


@pytest.mark.slow
def test_draws_of_classes_have_these_probabilities():
    model, gp = grades()
    options = {"pred_noise": True, "draws": True, "progressbar": False, "model": model}
    found = gp.predict_posterior(NEW, draws_of(1000), random_seed=1, **options)
    assert found["mean"].dims == ("obs", "class")
    share = (found.y.values[0][:, :, None] == np.arange(3)).mean(axis=0)
    np.testing.assert_allclose(share, found["mean"], atol=0.05)


def test_censored_observations_are_drawn_alone():
    def likelihood(f):
        return pm.Censored.dist(pm.Exponential.dist(scale=exp(f)), None, 2.0)

    model, gp = made(likelihood, np.minimum(np.exp(F), 2.0))
    options = {"pred_noise": True, "progressbar": False, "model": model}
    with pytest.raises(ValueError, match="draws=True"):
        gp.predict_posterior(NEW, draws_of(30), **options)
    found = gp.predict_posterior(NEW, draws_of(30), draws=True, random_seed=1, **options)
    assert found.y.max() <= 2.0
    np.testing.assert_allclose(found["mean"], found.y.mean(("chain", "draw")))
    np.testing.assert_allclose(found.sd, found.y.std(("chain", "draw")))


@pytest.mark.parametrize("n", [3, 30])
def test_values_of_training_rows_are_not_those_of_new_rows(n):
    """For as many new rows as training rows too, where shapes would not tell."""
    new = np.linspace(0.0, 4.0, n)[:, None]
    model, gp = made(lambda f: pm.Poisson.dist(mu=EXPOSURE * exp(f)))
    options = {"diag": True, "pred_noise": True, "model": model}
    with pytest.raises(ValueError, match="likelihood=, a function of f"):
        gp.predict(new, POINT, **options)
    given = gp.predict(
        new, POINT, likelihood=lambda f: pm.Poisson.dist(mu=np.full(n, 2.0) * exp(f)), **options
    )[0]
    f, s2 = gp.predict(new, POINT, diag=True, model=model)
    np.testing.assert_allclose(given, 2.0 * np.exp(f + s2 / 2.0), rtol=1e-8)


@pytest.mark.parametrize("data", [False, True])
def test_nor_are_those_behind_a_deterministic(data):
    """They were taken for new rows in silence, for as many as there are training rows."""
    with pm.Model() as model:
        eta, base = pm.HalfNormal("eta", 1), pm.HalfNormal("base", 1)
        exposure = pm.Data("exposure", EXPOSURE) if data else EXPOSURE
        rate = pm.Deterministic("rate", base * exposure)
        gp = sgp.ExactMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=0.8))
        gp.marginal_likelihood("y", X=X, y=COUNTS, likelihood=lambda f: pm.Poisson.dist(rate * exp(f)))
    with pytest.raises(ValueError, match="for each of the .* training rows"):
        gp.predict(X, POINT | {"base": 1.0}, diag=True, pred_noise=True, model=model)


@pytest.mark.parametrize("size", [{"shape": 30}, {"dims": "obs"}])
def test_nor_are_effects_of_training_rows(size):
    """Their length is known where a dimension's name stands for it, too."""
    with pm.Model(coords={"obs": range(30), "group": range(3)}) as model:
        effect, level = pm.Normal("effect", **size), pm.Normal("level", dims="group")
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=0.8))
        gp.marginal_likelihood(
            "y", X=X, y=COUNTS, likelihood=lambda f: pm.Poisson.dist(exp(f + effect + level.sum()))
        )
    point = {"effect": np.linspace(-2.0, 2.0, 30), "level": np.zeros(3)}
    with pytest.raises(ValueError, match="has effect with a value for each of the 30 training rows"):
        gp.predict(X, point, diag=True, pred_noise=True, model=model)


def test_a_scalar_from_the_rows_is_one_of_new_rows_too():
    with pm.Model() as model:
        base = pm.HalfNormal("base", 1)
        rate = pm.Deterministic("rate", base * pm.math.sum(pm.Data("exposure", EXPOSURE)))
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=0.8))
        gp.marginal_likelihood("y", X=X, y=COUNTS, likelihood=lambda f: pm.Poisson.dist(rate * exp(f)))
    f, s2 = gp.predict(NEW, {"base": 0.5}, diag=True, model=model)
    mean, _ = gp.predict(NEW, {"base": 0.5}, diag=True, pred_noise=True, model=model)
    np.testing.assert_allclose(mean, 0.5 * EXPOSURE.sum() * np.exp(f + s2 / 2.0), rtol=1e-8)


def test_other_parameters_are_those_of_the_draw():
    with pm.Model() as model:
        alpha = pm.Exponential("alpha", 1)
        gp = sgp.ExactMarginal(cov_func=pm.gp.cov.Matern52(1, ls=0.8))
        gp.marginal_likelihood(
            "y", X=X, y=COUNTS,
            likelihood=lambda f: pm.NegativeBinomial.dist(mu=exp(f), alpha=alpha),
        )  # fmt: skip
    wide, narrow = (
        gp.predict(NEW, {"alpha": a}, diag=True, pred_noise=True, model=model)[1] for a in (0.5, 50)
    )
    assert (wide > 1.5 * narrow).all()


def test_misuse_is_refused():
    model, gp = made(counts)
    with pytest.raises(TypeError, match="pred_noise=True"):
        gp.predict(NEW, POINT, likelihood=counts, model=model)
    with pytest.raises(ValueError, match="diag=True"):
        gp.predict(NEW, POINT, pred_noise=True, model=model)
    with model, pytest.raises(ValueError, match="likelihood of your own"):
        gp.conditional("new", NEW, pred_noise=True)
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1)
        parts = [
            sgp.SoftKIMarginal(cov_func=eta * pm.gp.cov.ExpQuad(1, ls), inducing=X[:5]) for ls in (1, 3)
        ]
        total = parts[0] + parts[1]
        total.marginal_likelihood("y", X=X, y=COUNTS, likelihood=counts)
        other = sgp.ExactMarginal(cov_func=eta * pm.gp.cov.ExpQuad(1, 1.0))
        other.marginal_likelihood("z", X=X, y=F, sigma=0.1)
    with pytest.raises(ValueError, match="for the sum"):
        parts[0].predict(NEW, POINT, diag=True, pred_noise=True, given={"gp": total}, model=model)
    assert total.predict(X[:3], POINT, diag=True, pred_noise=True, model=model)[0].shape == (3,)
    with pytest.raises(TypeError, match="was given one"):
        other.predict(NEW, POINT, pred_noise=True, likelihood=counts, model=model)
