"""Densities that are learnt from values and gradients, and when proposals come from them."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_scalable_gp.importance import surrogate
from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.proposals import Mixture, StudentT, truncation
from pymc_scalable_gp.importance.rounds import Chooser, Weighed
from pymc_scalable_gp.importance.skew import Skew
from pymc_scalable_gp.importance.surrogate import Blend, Lessons, Residual, Surrogate


def density_of(logp):
    """A density of two flat parameters."""
    with pm.Model() as model:
        pm.Potential("logp", logp(pm.Flat("x", shape=2)))
    return Density(model)


def test_a_blend_draws_its_shares_and_integrates_to_one():
    parts = [Mixture([StudentT(np.array([at]), np.eye(1))], [1.0]) for at in (0.0, 100.0)]
    blend = Blend(parts, np.array([0.75, 0.25]))
    drawn = blend.draw(400, np.random.default_rng(0))[:, 0]
    assert (drawn > 50.0).sum() == 100
    assert len(blend.draw(1, np.random.default_rng(0))) == 1
    grid = np.linspace(-400.0, 500.0, 900_001)[:, None]
    density = np.exp(blend.logpdf(grid)) * 1e-3
    np.testing.assert_allclose(density.sum(), 1.0, rtol=1e-4)
    np.testing.assert_allclose(density[grid[:, 0] > 50.0].sum(), 0.25, rtol=1e-4)


def weighed_points(points, logp, weights):
    """Weighed points, of which only these are looked at."""
    return Weighed(points, logp, None, weights, None, 0.0, 1.0, 0.0)


def test_a_surrogate_without_points_is_none():
    density = density_of(lambda x: -0.5 * (x**2).sum())
    t = StudentT(np.zeros(2), np.eye(2))
    lessons, known = Lessons(density), density.gradients
    nothing = weighed_points(np.ones((3, 2)), np.zeros(3), np.zeros(3))
    rng = np.random.default_rng(0)
    assert lessons.learn(nothing, Mixture([t], [1.0]), rng, ask=True) is None
    assert lessons.gradients == density.gradients - known == 0


def test_a_surrogate_learns_from_values_and_gradients():
    """In two dimensions; it asks for two gradients at a time, at points that it had none of."""
    density = density_of(lambda x: -pt.cosh(x).sum())
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 2))
    logp = density.values(points)
    points[0], logp[0] = 50.0, -400.0  # as deep as this, a value teaches nothing
    found = weighed_points(points, logp, np.full(40, 1 / 40))
    lessons, t = Lessons(density), StudentT(np.zeros(2), np.eye(2))
    for asked in (2, 4):
        blend = lessons.learn(found, Mixture([t], [1.0]), rng, ask=True)
        assert lessons.gradients == len(np.unique(lessons._rows)) == asked
    (learnt,) = blend.parts
    near = 0.7 * rng.standard_normal((200, 2))
    over_t = density.values(near) - t.logpdf(near)
    assert np.std(learnt.residual(t.white(near))[0] - over_t) < 0.05 < 0.2 < np.std(over_t)
    np.testing.assert_allclose(lessons._gradients[0], -np.sinh(points[lessons._rows[0]]), rtol=1e-10)


def test_residual_follows_values_and_gradients():
    z = np.random.default_rng(0).normal(size=(30, 3))
    near = np.random.default_rng(1).normal(size=(40, 3))

    def value(z):
        return np.sin(z[:, 0]) + 0.3 * z[:, 1] * z[:, 2]

    def gradient(z):
        return np.column_stack([np.cos(z[:, 0]), 0.3 * z[:, 2], 0.3 * z[:, 1]])

    for known in (30, 10, 0):
        residual = Residual(z, value(z), gradient(z[:known]))
        mean, variance = residual(z)
        np.testing.assert_allclose(mean, value(z), atol=0.01 if known else 0.03)
        assert variance.max() < 0.01
        mean, variance = residual(near)
        assert np.sqrt(np.mean((mean - value(near)) ** 2)) < (0.1 if known else 0.25)  # .8 unlearnt
        far = residual(np.full((1, 3), 30.0))
        np.testing.assert_allclose(far, [[residual.mean], [residual.scale]])
        assert variance.max() < 0.3 * residual.scale


def test_residual_is_the_dense_posterior():
    """Mean and variance given values alone, by the matrices that its formula has."""
    rng = np.random.default_rng(2)
    z, new = rng.normal(size=(25, 2)), rng.normal(size=(7, 2))
    value = np.sin(z).sum(axis=1)
    found = Residual(z, value, np.empty((0, 2)))

    def cov(a, b):
        return np.exp(-0.5 * (((a[:, None] - b) / found.lengthscale) ** 2).sum(axis=2))

    target = value - np.median(value)
    evidences = {}
    for nugget in surrogate.NUGGETS:
        K = cov(z, z) + nugget * np.eye(25)
        scale = target @ np.linalg.solve(K, target) / 25
        evidences[nugget] = stats.multivariate_normal(cov=scale * K).logpdf(target), K, scale
    _, K, scale = max(evidences.values(), key=lambda each: each[0])
    mean, variance = found(new)
    solved = np.linalg.solve(K, cov(z, new))
    np.testing.assert_allclose(mean, np.median(value) + solved.T @ target, rtol=1e-6)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-6)
    expected = scale * (1.0 - (cov(z, new) * solved).sum(axis=0))
    np.testing.assert_allclose(variance, expected, rtol=1e-4, atol=1e-9)


def test_covariances_of_gradients_are_derivatives_of_those_of_values():
    rng = np.random.default_rng(3)
    z, lengthscale, step = rng.normal(size=(5, 3)), np.array([1.0, 2.0, 0.7]), 1e-4
    found = surrogate._joint(z, 2, lengthscale)
    moved = np.concatenate([[z + sign * step * axis for sign in (1, -1)] for axis in np.eye(3)])
    values = surrogate._joint(np.concatenate([z, *moved]), 0, lengthscale).reshape(7, 5, 7, 5)
    slopes = (values[1::2] - values[2::2]) / (2 * step)  # of the first argument, along each axis
    both = (slopes[:, :, 1::2] - slopes[:, :, 2::2]) / (2 * step)
    np.testing.assert_allclose(found[:5, :5], values[0, :, 0])
    np.testing.assert_allclose(found[5:, :5], slopes[:, :2, 0].reshape(6, 5), atol=1e-7)
    np.testing.assert_allclose(found[5:, 5:], both[:, :2, :, :2].reshape(6, 6), atol=1e-6)
    np.testing.assert_allclose(found, found.T)


@pytest.mark.parametrize("skew", [0.0, 0.7])
def test_slopes_of_a_log_density_over_a_t(skew):
    """Beside differences, in units of its scale; `white` are the places of what is drawn."""
    location, factor = np.array([1.0, -2.0]), np.array([[1.0, 0.0], [0.5, 2.0]])
    t = StudentT(location, factor, Skew(location, np.array([1.5, 0.8]), np.array([skew, -0.4])))
    z, step = np.array([[0.3, -1.2], [2.0, 0.1]]), 1e-6

    def points(z):
        return t.skew.inverse(location + z @ t.scale.T)

    def over_t(z):
        return np.sin(points(z)).sum(axis=1) - t.logpdf(points(z))

    found = t.slopes_over(points(z), np.cos(points(z)))
    for j, axis in enumerate(np.eye(2)):
        slope = (over_t(z + step * axis) - over_t(z - step * axis)) / (2 * step)
        np.testing.assert_allclose(found[:, j], slope, rtol=1e-6)
    np.testing.assert_allclose(t.white(points(z)), z, rtol=1e-12)


def test_a_surrogate_is_high_where_the_density_is_high_and_where_it_may_be():
    """``sqrt(E[p^2])`` of a lognormal: the mean of its log plus the variance, up to its limit."""
    t = StudentT(np.zeros(1), np.eye(1))
    points = np.linspace(-1.0, 1.0, 9)[:, None]
    logp = -0.5 * points[:, 0] ** 2 + np.sin(2.0 * points[:, 0])
    rng = np.random.default_rng(0)
    learnt = Surrogate(t, points, logp, np.empty((0, 1)), rng)
    new = np.array([[0.1], [1.5], [4.0]])
    mean, variance = learnt.residual(t.white(new))
    assert variance[0] < 1e-3
    assert variance[2] > 0.3
    expected = (mean + np.minimum(variance, 8.0)).clip(max=learnt._above_t)
    over_t = learnt.logpdf(new) - t.logpdf(new)
    shares = 0.7 * np.exp(expected - learnt._log_constant) + 0.3
    np.testing.assert_allclose(over_t, np.log(shares), rtol=1e-10)


def test_surrogate_density_integrates_to_one():
    points = np.linspace(-2.0, 4.0, 13)[:, None]
    z = (points[:, 0] - 1.0) / 0.7
    logp = -2.0 - 0.5 * z**2 + 0.1 * np.sin(z) - 0.1 * z
    gradient = ((-z + 0.1 * np.cos(z) - 0.1) / 0.7)[:, None]
    t = StudentT(np.ones(1), np.array([[0.7]]))
    surrogate = Surrogate(t, points, logp, gradient, np.random.default_rng(0))
    grid = np.linspace(-200, 200, 400001)[:, None]
    np.testing.assert_allclose(np.exp(surrogate.logpdf(grid)).sum() * 1e-3, 1.0, rtol=0.02)
    drawn = surrogate.draw(4000, np.random.default_rng(1))
    density = np.exp(surrogate.logpdf(grid)) * 1e-3
    np.testing.assert_allclose(drawn.mean(), float(density @ grid[:, 0]), atol=0.05)


def test_a_surrogate_that_rises_away_from_its_points_integrates_to_one():
    """What it learns is as high everywhere: without its cut it would have no integral."""
    flat = np.linspace(-2.0, 2.0, 9)[:, None]
    t = StudentT(np.zeros(1), np.eye(1))
    rng = np.random.default_rng(0)
    found = Surrogate(t, flat, np.zeros(9), np.zeros((9, 1)), rng)
    wide = np.linspace(-100.0, 100.0, 200_001)[:, None]
    density = np.exp(found.logpdf(wide))
    np.testing.assert_allclose(np.trapezoid(density, wide[:, 0]), 1.0, atol=0.05)  # 1 / sqrt(400)
    drawn = np.abs(found.draw(4000, rng)[:, 0])
    for at in (2.0, 5.0, 10.0):
        inside = np.abs(wide[:, 0]) < at
        share = np.trapezoid(density[inside], wide[inside, 0])
        np.testing.assert_allclose((drawn < at).mean(), share, atol=0.04)


def test_the_largest_cut_of_weights_by_bisection():
    logs = 0.5 * np.random.default_rng(0).standard_normal(5000)
    assert not truncation(logs, 400) < logs.max()  # nothing is too heavy
    logs[:300] += np.linspace(0.0, 30.0, 300)
    low, high = -50.0, 50.0
    for _ in range(200):
        cut = 0.5 * (low + high)
        w = np.exp(np.minimum(logs, cut))
        low, high = (cut, high) if w.max() <= w.sum() / 400 else (low, cut)
    np.testing.assert_allclose(truncation(logs, 400), low, rtol=1e-12)


class Lesson:
    """In the place of lessons: notes whether gradients are asked for, ten at a time."""

    def __init__(self):
        self.gradients, self.asked = 0, []

    def learn(self, weighed, mixture, rng, ask):
        self.asked.append(ask)
        self.gradients += 10 * ask
        return SimpleNamespace(kind="surrogate")


def chooser(p, points, counts, worth, ess=50.0, khat=0.2):
    """A chooser after `counts` rounds with that many points, and one round of it of at most 128."""
    played = []
    rounds = SimpleNamespace(
        density=SimpleNamespace(size=p), points=np.zeros((points, p)), counts=[0] * counts,
        mixture=SimpleNamespace(kind="t"), rng=None,
        play=lambda proposal, size: played.append((proposal.kind, size)) or 0.5,
    )  # fmt: skip
    found = Chooser(rounds, 400)
    found._lessons, found._worth = Lesson(), dict(found._worth, **worth)
    found._fitted_to = ess
    weighed = Weighed(None, None, None, None, None, khat, ess, 0.0)
    return found, weighed, played


@pytest.mark.parametrize(
    ("p", "points", "counts", "t", "asked"),
    [
        (2, 14, 1, 0.5, []),  # a quartic of two variables has 15 coefficients
        (2, 15, 1, 0.5, [False]),
        (2, 15, 1, 0.1, [False]),
        (10, 128, 1, 0.29, []),  # modes without mass may still be there
        (10, 256, 2, 0.31, []),
        (10, 256, 2, 0.29, [True]),
    ],
)
def test_when_a_surrogate_is_tried_first(p, points, counts, t, asked):
    found, weighed, played = chooser(p, points, counts, {"t": t})
    found.play(weighed, 128)
    assert found._lessons.asked == asked
    assert played[0][0] == ("surrogate" if asked else "t")
    price = 30 if asked == [True] else 0
    at = played[0][1]
    assert found._worth[played[0][0]] == pytest.approx(0.5 * at / (at + price))


@pytest.mark.parametrize(
    ("points", "surrogate", "kind"), [(199, 0.39, "t"), (199, 0.41, "surrogate"), (200, 0.1, "surrogate")]
)  # fmt: skip
def test_when_a_surrogate_is_tried_again(points, surrogate, kind):
    found, weighed, played = chooser(10, points, 3, {"t": 0.4, "surrogate": surrogate})
    found._learnt_from = 100
    found.play(weighed, 128)
    assert played[0][0] == kind
    assert found._lessons.asked == [False] * (kind == "surrogate")


@pytest.mark.parametrize(
    ("ess", "expected", "kind"), [(101.0, 0.5, "t"), (99.0, 0.9, "surrogate"), (101.0, 0.3, "surrogate")]
)
def test_when_the_t_is_tried_again(ess, expected, kind):
    """Its 65 moments from 101 effective points count .61 times what they say, here .305 or .18."""
    found, weighed, played = chooser(10, 199, 3, {"t": 0.1, "surrogate": 0.2}, ess)
    found._learnt_from, found._fitted_to = 100, 50.0
    weighed.expected_share = lambda proposal: expected
    found.play(weighed, 128)
    assert played[0][0] == kind
    assert found._fitted_to == (ess if kind == "t" else 50.0)


@pytest.mark.parametrize(("khat", "times"), [(0.49, 4), (0.51, 12)])
def test_how_often_gradients_are_asked_for(khat, times):
    found, weighed, _ = chooser(10, 256, 2, {"t": 0.1, "surrogate": 0.2}, khat=khat)
    for _ in range(15):
        found._worth["surrogate"] = 0.2
        found.play(weighed, 128)
    assert sum(found._lessons.asked) == times


@pytest.mark.parametrize(
    ("ess", "khat", "size"), [(300.0, 0.2, 128), (380.0, 0.2, 52), (380.0, 0.5, 128), (399.0, 0.2, 32)]
)
def test_a_last_round_is_of_the_points_that_should_do(ess, khat, size):
    """With half of them effective, 1.25 times 20 / .5 are 50, in four chains 52."""
    found, weighed, played = chooser(10, 600, 5, {"t": 0.5}, ess, khat)
    found.play(weighed, 128)
    assert played == [("t", size)]
