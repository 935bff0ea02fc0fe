"""The mean of the function under any likelihood, corrected from the mode: its equations, and the truth."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from marks import often
from scipy import optimize, special

import pymc_scalable_gp as sgp
from pymc_scalable_gp.core.likelihoods import laplace_mean
from pymc_scalable_gp.core.likelihoods.laplace_mean import SmoothedRows
from pymc_scalable_gp.core.likelihoods.rowwise import RowDistribution
from pymc_scalable_gp.utils.compiled import evaluate

N = 24
rng = np.random.default_rng(3)
X = np.sort(rng.uniform(0.0, 6.0, N))[:, None]
EVENTS = (rng.random(N) < special.expit(6.0 * np.sin(X[:, 0]))).astype(int)
COUNTS = rng.poisson(np.exp(1.5 * np.sin(X[:, 0]) - 1.0))
NEW = np.array([[0.5], [1.6], [3.3], [4.7]])
# Log density, slope and information of rows, in NumPy.
BERNOULLI = (
    EVENTS,
    lambda f: EVENTS * f - np.logaddexp(0.0, f),
    lambda f: EVENTS - special.expit(f),
    lambda f: special.expit(f) * special.expit(-f),
    lambda f: pm.Bernoulli.dist(logit_p=f),
)
POISSON = (
    COUNTS,
    lambda f: COUNTS * f - np.exp(f) - special.gammaln(COUNTS + 1.0),
    lambda f: COUNTS - np.exp(f),
    np.exp,
    lambda f: pm.Poisson.dist(mu=pm.math.exp(f)),
)
KINDS = {"Bernoulli": BERNOULLI, "Poisson": POISSON}
CLASSES = {
    "exact": (sgp.ExactMarginal, {}),
    "CholQR": (sgp.CholQRMarginal, {"n_inducing": 20}),
    "Vecchia": (sgp.VecchiaMarginal, {"n_inducing": 6, "neighbors": 23, "block": 4}),
    "state space": (sgp.StateSpaceMarginal, {}),
}


def made(likelihood, y, name="exact", X=X, **given):
    kind, options = CLASSES[name]
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 5.0)
        gp = kind(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=1.5), **options)
        if name == "CholQR":
            gp.build(X, point={"eta": 5.0})
        gp.marginal_likelihood("y", X=X, y=y, likelihood=likelihood, **given)
    return model, gp


def kernel(A, B, eta):
    r = np.sqrt(5.0) * np.abs(A[:, None] - B) / 1.5
    return eta**2 * (1.0 + r + r**2 / 3.0) * np.exp(-r)


def posterior(kind, eta):
    """Mean and sd of f at the rows, and the log density of each row given all others.

    From importance draws of a wide t around the mode; and what these are worth.
    """
    _, logp, slope, information, _ = KINDS[kind]
    K = kernel(X[:, 0], X[:, 0], eta)
    L = np.linalg.cholesky(K + 1e-9 * eta**2 * np.eye(N))

    def loss(w):
        f = L @ w
        return 0.5 * w @ w - logp(f).sum(), w - L.T @ slope(f)

    w = optimize.minimize(loss, np.zeros(N), jac=True).x
    H = np.eye(N) + L.T @ (information(L @ w)[:, None] * L)
    R = np.linalg.cholesky(np.linalg.inv(H))
    own = np.random.default_rng(0)
    z = own.standard_normal((200_000, N)) / np.sqrt(own.chisquare(8, (200_000, 1)) / 8.0)
    f = (w + z @ R.T) @ L.T
    rows = logp(f)
    ours = rows.sum(axis=1) - 0.5 * ((w + z @ R.T) ** 2).sum(axis=1)
    logs = ours + 0.5 * (8 + N) * np.log1p((z**2).sum(axis=1) / 8.0)
    logs -= special.logsumexp(logs)
    weights = np.exp(logs)
    mean, left_out = weights @ f, -special.logsumexp(logs[:, None] - rows, axis=0)
    return mean, np.sqrt(weights @ (f - mean) ** 2), left_out, 1.0 / (weights**2).sum()


@pytest.mark.parametrize(
    ("kind", "eta", "most"), [("Bernoulli", 5.0, 0.12), ("Bernoulli", 10.0, 0.18), ("Poisson", 3.0, 0.12)]
)
def test_the_mean_is_the_posteriors(kind, eta, most):
    """Off by less than .12 sds, or .18 where one round leaves .3, and the mode by more than .4."""
    y, *_, likelihood = KINDS[kind]
    model, gp = made(likelihood, y)
    truth, sd, _, worth = posterior(kind, eta)
    assert worth > 2000.0
    mode = evaluate([gp.training.mode], {"eta": eta}, model)[0]
    mean, var = gp.predict(X, {"eta": eta}, diag=True, model=model)
    assert np.abs((mode - truth) / sd).max() > 0.4
    assert np.abs((mean - truth) / sd).max() < most
    assert np.abs(np.log(np.sqrt(var) / sd)).max() < (0.2 if most < 0.15 else 0.35)


@pytest.mark.parametrize(
    ("kind", "eta", "half", "most"), [("Bernoulli", 2.0, 0.004, 0.1), ("Poisson", 1.5, 0.012, 0.22)]
)
def test_rows_left_out_follow_the_corrected_mean(kind, eta, half, most):
    """Nats of half of the rows, and of all; with the targets of the mode .029 and .2, .058 and .37."""
    y, *_, likelihood = KINDS[kind]
    model, gp = made(likelihood, y)
    _, _, truth, worth = posterior(kind, eta)
    assert worth > 2000.0
    found, _ = gp.training.precisions(model)([np.array(eta)]).left_out()
    assert np.median(np.abs(found - truth)) < half
    assert np.abs(found - truth).max() < most


@pytest.mark.parametrize(("kind", "eta"), [("Bernoulli", 4.0), ("Poisson", 4.0), ("Poisson", 20.0)])
def test_mean_and_sds_solve_their_equations(kind, eta, monkeypatch):
    """With the sds of the first round held, by a root finder and another quadrature."""
    monkeypatch.setattr(laplace_mean, "ROUNDS", 1)
    y, _, slope, information, likelihood = KINDS[kind]
    model, gp = made(likelihood, y)
    t, v, moved, mode = evaluate([*gp.training.around_mean, gp.training.mode], {"eta": eta}, model)
    z, w = np.polynomial.hermite_e.hermegauss(80)
    w /= w.sum()

    def smoothed(function, m, s):
        return sum(weight * function(m + s * node) for node, weight in zip(z, w, strict=True))

    most = np.sqrt((moved**2).mean(axis=0))
    others = np.maximum(1.0 / most**2 - 1.0 / v, 0.0)

    def excess(s, i):
        return s**2 * (others[i] + smoothed(information, mode, np.full(N, s))[i]) - 1.0

    s = np.array([optimize.brentq(excess, 1e-3, 20.0, args=(i,)) for i in range(N)])
    s = np.minimum(s, most)
    K = kernel(X[:, 0], X[:, 0], eta)
    m = optimize.root(lambda m: m - K @ smoothed(slope, m, s), mode, tol=1e-12).x
    # The logarithm of sds is found to 6 / 2^8, from below.
    found = m + v * smoothed(slope, m, s)
    np.testing.assert_allclose(t, found, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("name", often(list(CLASSES), "CholQR", "Vecchia"))
def test_draws_have_the_covariance_at_the_mode(name, monkeypatch):
    monkeypatch.setattr(laplace_mean, "PAIRS", 20_000)
    model, gp = made(BERNOULLI[-1], EVENTS, name)
    v, moved = evaluate([*gp.training.around_mean[1:]], {"eta": 3.0}, model)
    K = kernel(X[:, 0], X[:, 0], 3.0)
    cov = K - K @ np.linalg.solve(K + np.diag(v), K)
    np.testing.assert_allclose(moved.T @ moved / len(moved), cov, atol=0.06 * np.diag(cov).max())


@pytest.mark.parametrize("name", often(list(CLASSES), "CholQR", "state space"))
def test_classes_agree(name):
    """Those that are exact here, and draw other numbers, to what 64 pairs tell of sds."""
    one, gp = made(BERNOULLI[-1], EVENTS)
    other, same = made(BERNOULLI[-1], EVENTS, name)
    mean, var = gp.predict(NEW, {"eta": 3.0}, diag=True, model=one)
    found = same.predict(NEW, {"eta": 3.0}, diag=True, model=other)
    assert (np.abs(found[0] - mean) / np.sqrt(var)).max() < 0.12
    np.testing.assert_allclose(found[1], var, rtol=0.01)


@pytest.mark.parametrize("var", [np.zeros(2), np.array([0.5, 0.2])])
def test_tasks_agree_with_the_exact_kernel_of_tasks(var):
    """In the function, in rows left out and in the error of the evidence, to the interpolation."""
    B, inputs = np.array([[1.5, 0.0], [1.0, 1.2]]), np.column_stack([X, np.arange(N) % 2])
    base = pm.gp.cov.Matern52(2, ls=1.5, active_dims=[0])
    coregion = pm.gp.cov.Coregion(2, W=B, kappa=var, active_dims=[1])
    by_task = sgp.SKIPMarginal(cov_func=base, task_dim=1, task_cov=B, task_var=var, grid_size=80, rank=20)
    found, new = [], np.column_stack([NEW, [0, 1, 1, 0]])
    for gp in (by_task, sgp.ExactMarginal(cov_func=base * coregion)):
        with pm.Model() as model:
            gp.marginal_likelihood("y", X=inputs, y=EVENTS, likelihood=BERNOULLI[-1])
            mean, variance = gp.predict(new, {}, diag=True)
        (mode,) = evaluate([gp.training.mode], {}, model)
        (logs,) = evaluate([gp.training.log_ratios()], {}, model)
        left_out, _ = gp.training.precisions(model)([]).left_out()
        found.append((mean, np.sqrt(variance), mode, left_out, special.logsumexp(logs) - np.log(len(logs))))
    first, second = found
    assert by_task.training.path == "Laplace, tasks"
    np.testing.assert_allclose(first[2], second[2], atol=2e-3 * np.abs(second[2]).max())
    assert (np.abs(first[0] - second[0]) / second[1]).max() < 0.02
    np.testing.assert_allclose(first[1], second[1], rtol=0.01)
    np.testing.assert_allclose(first[3], second[3], atol=0.02)
    np.testing.assert_allclose(first[4], second[4], atol=0.01)


def test_a_normal_likelihood_keeps_its_mean():
    sigma = np.linspace(0.2, 0.8, N)
    y = np.sin(X[:, 0])
    model, gp = made(lambda f: pm.Normal.dist(f, sigma), y)
    with pm.Model() as plain:
        eta = pm.HalfNormal("eta", 5.0)
        closed = sgp.ExactMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=1.5))
        closed.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    found = gp.predict(NEW, {"eta": 2.0}, model=model)
    expected = closed.predict(NEW, {"eta": 2.0}, model=plain)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-7)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-9)


@pytest.mark.parametrize(("kind", "eta"), [("Bernoulli", 30.0), ("Bernoulli", 300.0), ("Poisson", 30.0)])
def test_wide_priors_have_a_mean(kind, eta):
    """Where the variance at the mode would smooth an exponential out of all bounds."""
    y, *_, likelihood = KINDS[kind]
    model, gp = made(likelihood, y)
    mean, var = gp.predict(X, {"eta": eta}, diag=True, model=model)
    assert np.isfinite(mean).all()
    assert (np.abs(mean) < 1.5 * eta).all()
    assert (var > 0.0).all()


def test_rows_that_were_replaced_have_their_own_mean():
    """More rows than before, to the error of 64 pairs of draws; those of 3 rows, repeated, miss by .34."""
    many = EVENTS
    with pm.Model():
        data, seen = pm.Data("X", X[::8]), pm.Data("seen", EVENTS[::8])
        gp = sgp.ExactMarginal(cov_func=pm.HalfNormal("eta", 5.0) ** 2 * pm.gp.cov.Matern52(1, ls=1.5))
        gp.marginal_likelihood("y", X=data, y=seen, likelihood=BERNOULLI[-1])
        gp.predict(NEW, {"eta": 3.0}, diag=True)
        pm.set_data({"X": X, "seen": many})
        found = gp.predict(NEW, {"eta": 3.0}, diag=True)
    other, fresh = made(BERNOULLI[-1], many)
    mean, var = fresh.predict(NEW, {"eta": 3.0}, diag=True, model=other)
    assert (np.abs(found[0] - mean) / np.sqrt(var)).max() < 0.1
    np.testing.assert_allclose(found[1], var, rtol=1e-6)


@pytest.mark.slow
def test_draws_follow_the_mean_in_machine_code():
    """The mode where a factor failed there."""
    model, gp = made(BERNOULLI[-1], EVENTS)
    mean, _ = gp.predict(NEW, {"eta": 5.0}, diag=True, model=model)
    with model:
        centre = pm.distributions.moments.means.mean(gp.conditional("f", NEW))
    eta = model["eta"]
    np.testing.assert_allclose(pytensor.function([eta], centre, mode="NUMBA")(5.0), mean, rtol=1e-6)


def test_there_is_no_mean_where_a_factor_fails(monkeypatch):
    """Not the mode in its place, without a word."""
    monkeypatch.setattr(laplace_mean, "_drawn", lambda _, v: np.nan * v[None])
    model, gp = made(BERNOULLI[-1], EVENTS)
    assert np.isnan(gp.predict(NEW, {"eta": 5.0}, diag=True, model=model)[0]).all()


def test_draws_and_observations_follow_the_mean():
    """`conditional`, `predict` and the probabilities of new events are of one function."""
    model, gp = made(BERNOULLI[-1], EVENTS)
    point = {"eta": 5.0}
    mean, var = gp.predict(NEW, point, diag=True, model=model)
    with model:
        f = gp.conditional("f", NEW)
    (centre,) = evaluate([pm.distributions.moments.means.mean(f)], point, model)
    np.testing.assert_allclose(centre, mean, rtol=1e-6)
    p, _ = gp.predict(NEW, point, diag=True, pred_noise=True, model=model)
    z, w = np.polynomial.hermite_e.hermegauss(60)
    expected = special.expit(mean[:, None] + np.sqrt(var)[:, None] * z) @ w / w.sum()
    np.testing.assert_allclose(p, expected, atol=1e-3)


def test_the_mean_under_jax():
    pytest.importorskip("jax")
    import pytensor

    model, gp = made(BERNOULLI[-1], EVENTS)
    mean, var = gp.predict(NEW, {"eta": 3.0}, diag=True, model=model)
    with pytensor.config.change_flags(mode="JAX"):
        model, gp = made(BERNOULLI[-1], EVENTS)
        found = gp.predict(NEW, {"eta": 3.0}, diag=True, model=model)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], var, rtol=1e-6)


def test_rows_of_mixtures_and_classes_are_smoothed_under_jax():
    """Their derivatives split arrays, of which JAX takes no batch; in pieces of other lengths here."""
    pytest.importorskip("jax")
    with pm.Model() as model:
        make = lambda f: pm.OrderedLogistic.dist(f, np.array([-1.0, 0.0, 1.0]))  # noqa: E731
        rows = RowDistribution(make, model, 5)
    f, y, sd = np.linspace(-1.0, 1.0, 5), np.array([0.0, 3.0, 1.0, 2.0, 0.0]), np.full(5, 0.7)
    smoothed = SmoothedRows(rows, pt.constant(sd)).graphs
    found = pytensor.function([rows.f, rows.y], smoothed, mode="JAX")(f, y)
    each = pytensor.function([rows.f, rows.y], rows.graphs)
    at = [each(f + sd * node, y) for node in laplace_mean.NODES]
    np.testing.assert_allclose(found, np.tensordot(laplace_mean.WEIGHTS, at, 1), rtol=1e-10, atol=1e-15)
