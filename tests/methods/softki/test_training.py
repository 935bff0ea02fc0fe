"""Training of interpolation points: objective, gradient estimate, options, resuming, interruption."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from compared import dense_marginal
from marks import often
from numpy.testing import assert_allclose, assert_array_equal

import pymc_scalable_gp as sgp
from pymc_scalable_gp.methods.softki import points, training
from pymc_scalable_gp.methods.softki.batches import Batch
from pymc_scalable_gp.methods.softki.steps import Trainer
from pymc_scalable_gp.utils.compiled import evaluate

OPTIONS = {"progressbar": False, "random_seed": 0, "validation": 0.0, "mode": "FAST_COMPILE"}


def toy(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.05 * rng.standard_normal(n)


def softki(inducing=15, **options):
    """GP with two hyperparameters, in the model context."""
    ell, eta = pm.LogNormal("ell", 0.0, 0.3), pm.HalfNormal("eta", 2.0)
    cov = eta**2 * pm.gp.cov.ExpQuad(3, ls=ell)
    return sgp.SoftKIMarginal(cov_func=cov, inducing=inducing, **options)


def trainer(gp, model, sigma=0.1, **options):
    settings = {"rows": 200, "learning_rate": 0.01, "objective": "exact", "probes": 5,
                "use_priors": True, "rng": np.random.default_rng(0), "mode": "FAST_COMPILE"}  # fmt: skip
    Z = toy()[0][:15].copy()
    return Trainer(gp, model, pt.as_tensor(sigma), Z, **(settings | options))


def test_the_loss_is_the_batch_density_and_the_prior_a_row():
    X, y = toy()
    with pm.Model() as model:
        gp = softki(inducing=X[:15])
        with_prior = trainer(gp, model)
        without = trainer(gp, model, use_priors=False)
    gp.build(X)
    rows = np.arange(64)
    point = model.initial_point(0)
    (phi,) = evaluate([gp.features(X[rows])], None, model)
    density = dense_marginal(phi, 0.01, y[rows])
    prior = model.compile_logp(jacobian=False, mode="FAST_COMPILE")(point)
    assert_allclose(without.step(X[rows], y[rows], rows), -density / 64, rtol=1e-9)
    assert_allclose(with_prior.step(X[rows], y[rows], rows), -density / 64 - prior / 200, rtol=1e-9)


def test_with_neighbors_it_trains_for_the_part_that_is_on_the_diagonal():
    X, y = toy()
    fits = []
    for approx in ("VIF", "FITC", "DTC"):
        with pm.Model():
            gp = softki(inducing=X[:15], approx=approx)
            fits.append(sgp.fit_inducing(gp, X, y, 0.1, epochs=1, **OPTIONS))
    assert_array_equal(fits[0].Z, fits[1].Z)
    assert np.abs(fits[0].Z - fits[2].Z).max() > 1e-4


def test_a_step_is_adams():
    """The first step moves every coordinate by the learning rate against its gradient's sign."""
    X, y = toy()
    with pm.Model() as model:
        step = trainer(softki(), model)
    before = step.Z.get_value()
    step.step(X[:64], y[:64], np.arange(64))
    assert_allclose(np.abs(step.Z.get_value() - before), 0.01, rtol=1e-4)


def test_the_pseudo_loss_estimates_the_gradient():
    """Averaged over probes, the change of Adam's first moment is 0.1 times the exact gradient."""
    X, y = toy()
    rows = np.arange(64)
    moments = {}
    with pm.Model() as model:
        gp = softki()
        for objective, probes in {"exact": 1, "pseudo": 4000}.items():
            made = trainer(gp, model, objective=objective, probes=probes)
            made.step(X[rows], y[rows], rows)
            moments[objective] = 10.0 * made.state()[0]
    error = np.linalg.norm(moments["pseudo"] - moments["exact"])
    assert error < 0.1 * np.linalg.norm(moments["exact"])  # 4000^-1/2 of a larger trace: about 4%


@pytest.mark.slow
@pytest.mark.parametrize("objective", often(["exact", "pseudo"], "exact"))
def test_training_beats_kmeans_points(objective):
    X, y = toy(600)
    new = toy(300, seed=1)
    inside = (np.abs(new[0]) < 2).all(axis=1)
    Xnew, ynew = new[0][inside], new[1][inside]
    errors = {}
    with pm.Model() as model:
        gp = softki(30)
        fit = sgp.fit_inducing(gp, X, y, objective=objective, epochs=40, batch_size=100, **OPTIONS)
        assert fit.Z.shape == (30, 3)
        assert set(fit.point) == {"ell", "eta"}
        assert fit.losses.shape == (40,)
        assert fit.losses[-1] < fit.losses[0]
        assert_allclose(fit.noise, 1e-3 * y.var())
        for name, Z in {"kmeans": points.kmeans_points(X, 30, 0), "trained": fit.Z}.items():
            trained = sgp.SoftKIMarginal(cov_func=gp.cov_func, inducing=Z)
            trained.marginal_likelihood(name, X=X, y=y, sigma=np.sqrt(fit.noise))
            mean, _ = trained.predict(Xnew, fit.point, diag=True, model=model)
            errors[name] = np.sqrt(np.mean((mean - ynew) ** 2))
    assert errors["trained"] < 0.7 * errors["kmeans"]


def test_the_same_seed_gives_the_same_result_and_a_resumed_run_goes_on():
    X, y = toy()
    with pm.Model():
        gp = softki()
        runs = [sgp.fit_inducing(gp, X, y, epochs=2, batch_size=64, **OPTIONS) for _ in range(2)]
        first, second = runs
        assert_array_equal(first.Z, second.Z)
        assert_array_equal(first.losses, second.losses)
        more = sgp.fit_inducing(gp, X, y, epochs=3, batch_size=64, start=first, **OPTIONS)
        assert more.epochs == 5
        assert_array_equal(more.losses[:2], first.losses)
        assert more.state[-1] == 5 * 4  # Adam's count of steps goes on


def test_a_start_that_does_not_fit_gets_words():
    X, y = toy()
    options = {"epochs": 1, "batch_size": 64} | OPTIONS
    with pm.Model():
        gp = softki()
        first = sgp.fit_inducing(gp, X, y, **options)
        words = r"another model: it trained ell \(\), eta \(\), and here ell \(\), eta \(\), sigma"
        with pytest.raises(ValueError, match=words):
            sgp.fit_inducing(gp, X, y, pm.HalfNormal("sigma"), start=first, **options)
        larger = sgp.SoftKIMarginal(cov_func=gp.cov_func, inducing=20)
        with pytest.raises(ValueError, match="start has 15 points, but the GP has 20"):
            sgp.fit_inducing(larger, X, y, start=first, **options)
        given = sgp.SoftKIMarginal(cov_func=gp.cov_func, inducing=X[:9])
        with pytest.raises(ValueError, match="start has 15 points, but the GP has 9"):
            sgp.fit_inducing(given, X, y, start=first, **options)
        with pytest.raises(TypeError, match="start must be an earlier result .* got ndarray"):
            sgp.fit_inducing(gp, X, y, start=first.Z, **options)
    with pm.Model():
        cov = pm.LogNormal("eta") * pm.gp.cov.ExpQuad(3, ls=pm.LogNormal("ell", shape=3))
        other = sgp.SoftKIMarginal(cov_func=cov, inducing=15)
        with pytest.raises(ValueError, match=r"and here ell \(3,\), eta"):
            sgp.fit_inducing(other, X, y, start=first, **options)


def test_a_batch_is_1024_rows_or_all_there_are():
    for n, validation, steps in ((1300, 0.0, 2), (1100, 0.1, 1), (60, 0.0, 1)):
        X, y = toy(n)
        options = OPTIONS | {"validation": validation}
        with pm.Model():
            fit = sgp.fit_inducing(softki(), X, y, epochs=1, **options)
        assert fit.state[-1] == steps  # Adam's count of steps


def test_a_fixed_kernel_trains_the_points_alone():
    X, y = toy()
    gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(3, ls=1.0), inducing=15)
    with pm.Model():
        fit = sgp.fit_inducing(gp, X, y, epochs=2, **OPTIONS)
    assert fit.point == {}
    assert np.abs(fit.Z - points.kmeans_points(X, 15, 0)).max() > 1e-3


def test_the_bar_shows_the_loss_and_is_full_when_training_stops_early(bar_of):
    bar = bar_of(training)
    X, y = toy(120)
    options = OPTIONS | {"validation": 0.3, "patience": 2}
    with pm.Model():
        fit = sgp.fit_inducing(softki(40), X, y, epochs=60, batch_size=50, learning_rate=0.3, **options)
    assert fit.epochs < 60
    assert re.fullmatch(r"Training the points, loss -?\d\S*", bar.description)
    assert bar.steps == 2 * fit.epochs
    assert bar.completed == bar.total == 120


def test_noise_may_be_trained_or_one_a_row():
    X, y = toy()
    with pm.Model():
        sigma = pm.HalfNormal("sigma", 1.0)
        fit = sgp.fit_inducing(softki(), X, y, sigma, epochs=1, batch_size=64, **OPTIONS)
        assert fit.noise is None
        assert set(fit.point) == {"ell", "eta", "sigma"}
    with pm.Model():
        spread = np.linspace(0.1, 0.3, 200)
        fit = sgp.fit_inducing(softki(), X, y, spread, epochs=1, batch_size=64, **OPTIONS)
        assert np.isfinite(fit.losses).all()


def test_temperature_and_mean_may_be_trained():
    X, y = toy()
    with pm.Model():
        T, mean = pm.LogNormal("T", 0.0, 0.5), pm.gp.mean.Constant(pm.Normal("c"))
        gp = softki(temperature=T, mean_func=mean)
        fit = sgp.fit_inducing(gp, X, y, epochs=1, batch_size=64, **OPTIONS)
    assert set(fit.point) == {"ell", "eta", "T", "c"}


def test_validation_stops_early_and_returns_the_best_epoch():
    X, y = toy(120)
    with pm.Model():
        options = OPTIONS | {"validation": 0.3, "patience": 2}
        fit = sgp.fit_inducing(softki(40), X, y, epochs=60, batch_size=50, learning_rate=0.3, **options)
    assert fit.epochs < 60
    assert len(fit.validation) == fit.epochs
    assert np.argmin(fit.validation) == fit.epochs - 3


def test_the_validation_error_is_that_of_the_prediction():
    """At the training rows' own points no row lies outside, where features would fade."""
    X, y = toy()
    train, held = np.arange(150), np.arange(10, 60)
    with pm.Model() as model:
        gp = softki(inducing=X[:15])
        batches = (Batch(X[rows], y[rows], rows) for rows in (train, held))
        error = trainer(gp, model).error(*batches)
        gp.marginal_likelihood("y", X=X[train], y=y[train], sigma=0.1)
        start = model.initial_point(0)
        point = {name.removesuffix("_log__"): np.exp(value) for name, value in start.items()}
        mean, _ = gp.predict(X[held], point, diag=True)
    assert_allclose(error, np.sqrt(np.mean((mean - y[held]) ** 2)), rtol=1e-8)


def test_an_interruption_returns_what_there_is(monkeypatch):
    X, y = toy()
    steps = []
    original = Trainer.__init__

    def interrupting(self, *args, **kwargs):
        original(self, *args, **kwargs)
        step = self.step

        def counted(*args):
            steps.append(1)
            if len(steps) == 7:  # in the second epoch of four steps
                raise KeyboardInterrupt
            return step(*args)

        self.step = counted

    monkeypatch.setattr(Trainer, "__init__", interrupting)
    with pm.Model(), pytest.warns(UserWarning, match="interrupted after 1 epochs"):
        fit = sgp.fit_inducing(softki(), X, y, epochs=9, batch_size=64, **OPTIONS)
    assert fit.epochs == 1
    assert np.isfinite(fit.Z).all()


def test_points_find_a_latent_gp_too():
    X, y = toy()
    with pm.Model():
        ell = pm.LogNormal("ell", 0.0, 0.3)
        gp = sgp.SoftKILatent(cov_func=pm.gp.cov.ExpQuad(3, ls=ell), inducing=10)
        fit = sgp.fit_inducing(gp, X, y, epochs=1, batch_size=64, **OPTIONS)
    assert fit.Z.shape == (10, 3)


def test_a_latent_gp_takes_either_objective():
    """Without `approx` of its own it trains by DTC."""
    X, y = toy()
    with pm.Model():
        gp = sgp.SoftKILatent(cov_func=pm.gp.cov.ExpQuad(3, ls=1.0), inducing=10)
        fit = sgp.fit_inducing(gp, X, y, epochs=1, objective="pseudo", **OPTIONS)
    assert np.isfinite(fit.losses).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"batch_size": 500}, ValueError, "batch_size=500 exceeds the 200 rows"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"objective": "elbo"}, ValueError, "objective must be one of 'exact', 'pseudo'"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be positive"),
        ({"validation": 1.0}, ValueError, r"share of the rows in \[0, 1\)"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"probes": 1.5}, TypeError, "probes must be an int"),
        ({"y": np.ones(200)}, ValueError, "y is constant"),
        ({"sigma": -1.0}, ValueError, "sigma must be positive"),
        ({"X": np.full((200, 3), np.nan)}, ValueError, "600 NaN"),
        ({"gp": "exact"}, TypeError, "must be a SoftKI GP, got Marginal"),
        ({"gp": "sum"}, TypeError, r"fit each part, or give one GP the kernel k1 \+ k2"),
        ({"gp": "FITC", "objective": "pseudo"}, ValueError, 'works with approx="DTC" only'),
    ],
)
def test_bad_input(change, error, words):
    X, y = toy()
    with pm.Model():
        kind = change.pop("gp", "softki")
        gp = softki(**({"approx": "FITC"} if kind == "FITC" else {}))
        if kind == "exact":
            gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(3, ls=1))
        if kind == "sum":
            gp = gp + sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(3, ls=1), inducing=15)
        arguments = {"X": X, "y": y, "batch_size": 64} | OPTIONS | change
        with pytest.raises(error, match=words):
            sgp.fit_inducing(gp, **arguments)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy says so too
def test_a_loss_that_is_not_finite_is_reported():
    X, y = toy()
    with pm.Model():
        with pytest.raises(FloatingPointError, match="lower learning_rate"):
            sgp.fit_inducing(softki(), X, y, batch_size=64, learning_rate=1e5, **OPTIONS)
