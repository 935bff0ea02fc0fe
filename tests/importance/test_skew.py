"""Coordinates in which skew densities are nearly normal."""

import numpy as np
import pytest

from pymc_scalable_gp.importance.first import at_mode
from pymc_scalable_gp.importance.mode import Mode
from pymc_scalable_gp.importance.proposals import StudentT, _fitted, _root
from pymc_scalable_gp.importance.rounds import smooth
from pymc_scalable_gp.importance.skew import Skew

SKEW = Skew(np.array([1.0, -2.0, 0.0]), np.array([0.5, 2.0, 1.0]), np.array([0.8, -0.3, 0.0]))
X = np.random.default_rng(0).normal(0.0, 3.0, (40, 3))


def test_coordinates_and_their_slopes():
    y, h = SKEW.forward(X), 1e-6
    np.testing.assert_allclose(SKEW.inverse(y), X, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(y[:, 2], X[:, 2], rtol=1e-12)  # without a skew
    np.testing.assert_allclose(SKEW.forward(np.array([[1e6, 1e6, 0.0]]))[0, :2],
                               1e6 * np.exp(SKEW.skew[:2]), rtol=1e-4)  # fmt: skip
    log_slope, change = SKEW.slopes(X)
    found = (SKEW.forward(X + h) - SKEW.forward(X - h)) / (2 * h)
    np.testing.assert_allclose(log_slope, np.log(found), atol=1e-8)
    found = (SKEW.slopes(X + h)[0] - SKEW.slopes(X - h)[0]) / (2 * h)
    np.testing.assert_allclose(change, found, atol=1e-8)


def test_the_fitted_skew_is_that_of_largest_penalised_likelihood():
    """By the formula; more points that say the same say it louder, and zero weights say nothing."""
    rng = np.random.default_rng(1)
    points = np.column_stack([np.log(rng.gamma(1.0, size=60)), rng.standard_normal(60)])
    weights = rng.uniform(0.2, 1.0, 60)
    weights /= weights.sum()
    known = np.array([0.1, -0.05])
    found = Skew.fitted(points, weights, known)
    np.testing.assert_allclose(found.centre, weights @ points)
    np.testing.assert_allclose(found.scale**2, weights @ (points - found.centre) ** 2)
    for j, x in enumerate(points.T):
        heights = []
        for e in np.linspace(-1.0, 1.0, 41):
            v = (x - found.centre[j]) / found.scale[j]
            y = np.sinh(np.arcsinh(v) + e)
            slope = np.cosh(np.arcsinh(v) + e) / np.sqrt(1.0 + v**2)
            sd = np.sqrt(np.cov(y, aweights=weights, ddof=0))
            fit = (weights @ np.log(slope) - np.log(sd)) / (weights**2).sum()
            heights.append(fit - 0.5 * ((e - known[j]) / 0.3) ** 2)
        assert found.skew[j] == np.linspace(-1.0, 1.0, 41)[np.argmax(heights)]
    assert found.skew[0] > 0.2 > abs(found.skew[1])
    twice = Skew.fitted(np.tile(points, (9, 1)), np.tile(weights, 9) / 9, known)
    assert twice.skew[0] > found.skew[0]
    one = Skew.fitted(points, np.eye(60)[3], np.zeros(2))
    np.testing.assert_array_equal([one.skew, one.scale], [np.zeros(2), np.ones(2)])


def test_even_weights_have_no_tail():
    """Two values, the larger 2.5 times the mean: the generalised Pareto's shape says otherwise."""
    rng = np.random.default_rng(4)
    even = np.where(np.arange(2000) % 50 < 1, 2.5, 1.0) + 1e-3 * rng.random(2000)
    far = np.where(np.arange(2000) % 50 < 1, 5.0, 1.0) + 1e-3 * rng.random(2000)
    assert smooth(np.log(even))[1] <= 0.0 < 0.7 < smooth(np.log(far))[1]
    assert smooth(np.log(even[:25]))[1] == np.inf  # too few to tell


def test_a_skew_t_is_a_density_whose_draws_follow_it():
    t = StudentT(np.array([0.5]), np.array([[1.2]]), Skew(np.zeros(1), np.ones(1), np.array([0.6])))
    grid = np.linspace(-400.0, 100.0, 2_000_001)[:, None]
    density = np.exp(t.logpdf(grid))
    np.testing.assert_allclose(np.trapezoid(density, grid[:, 0]), 1.0, rtol=1e-6)
    drawn = t.draw(np.random.default_rng(2).random((20_000, 2)))[:, 0]
    for q in (0.05, 0.25, 0.75, 0.95):
        below = grid[:, 0] < np.quantile(drawn, q)
        assert np.trapezoid(density[below], grid[below, 0]) == pytest.approx(q, abs=0.01)


def test_the_first_proposal_is_as_skew_as_the_density_beside_its_mode():
    """Half normals of sds 1 and e^-.6, which are those of a skew of .3; and one that fails."""
    root = np.array([[1.0, 0.0], [0.8, 0.6]])

    class Halves:
        def values(self, points):
            z = np.linalg.solve(root, points.T).T
            sd = np.where(z[:, 0] < 0.0, 1.0, np.exp(-0.6))
            return -0.5 * (z[:, 0] / sd) ** 2 - 0.5 * z[:, 1] ** 2

    found = at_mode(Halves(), Mode(np.zeros(2), 0.0, root))
    np.testing.assert_allclose(found.skew.skew[0], 0.3)
    # 2 sds of the second move the first by 1.6 and the rest by 1.2.
    left, right = (0.5 * (1.6 / sd) ** 2 + 0.5 * 1.2**2 for sd in (1.0, np.exp(-0.6)))
    np.testing.assert_allclose(found.skew.skew[1], 0.25 * np.log(right / left))
    np.testing.assert_allclose(found.centre, 0.0, atol=1e-12)
    step = 1e-6 * np.array([[1.0, 2.0]])
    np.testing.assert_allclose(found.white(step) @ (1.5 * root).T, step, rtol=1e-5)

    class Edge:
        def values(self, points):
            return np.where(points[:, 0] > 1.0, -np.inf, -0.5 * (points**2).sum(axis=1))

    found = at_mode(Edge(), Mode(np.zeros(2), 0.0, np.eye(2)))
    np.testing.assert_allclose(found.skew.skew, [0.25 * np.log(100.0 / 2.0), 0.0])

    class Ridge:  # it rises on one side, and falls far on the other
        def values(self, points):
            return np.where(points[:, 0] > 0.0, 1.0, -1e9)

    found = at_mode(Ridge(), Mode(np.zeros(1), 0.0, np.eye(1)))
    np.testing.assert_allclose(found.skew.skew, -1.0)  # from .1 to 100 nats, and no more than that


def test_proposals_are_fitted_to_skew():
    """As of log variances: their share of effective points, which a symmetric t's is a third of."""
    rng = np.random.default_rng(3)
    points = np.log(rng.gamma(1.0, size=(4000, 10)))
    fitted = _fitted(points, np.full(4000, 1 / 4000), StudentT(np.zeros(10), np.eye(10)))
    plain = StudentT(points.mean(axis=0), np.linalg.cholesky(np.cov(points.T)))
    shares = []
    for t in (fitted, plain):
        drawn = t.draw(rng.random((8000, 11)))
        weights, _ = smooth((drawn - np.exp(drawn)).sum(axis=1) - t.logpdf(drawn))
        shares.append(1.0 / (weights**2).sum() / 8000)
    assert shares[0] > 0.6
    assert shares[0] > 2.5 * shares[1]


def test_moments_count_by_the_effective_points_that_they_are_of():
    """Seven effective points against the five numbers of a mean and a covariance of two parameters."""
    rng = np.random.default_rng(6)
    points, weights = rng.standard_normal((9, 2)), np.repeat([1.0, 2.0, 0.5], 3)
    weights /= weights.sum()
    known = StudentT(np.array([4.0, -3.0]), np.diag([2.0, 5.0]))
    found = _fitted(points, weights, known)
    ess = 1.0 / (weights**2).sum()
    trust, y = ess / (ess + 5.0), found.skew.forward(points)
    mean = weights @ y
    cov = (weights[:, None] * (y - mean)).T @ (y - mean)
    np.testing.assert_allclose(found.location, trust * mean + (1.0 - trust) * known.location)
    np.testing.assert_allclose(
        found.factor @ found.factor.T, trust * cov + (1.0 - trust) * np.diag([4.0, 25.0])
    )


def test_small_variances_beside_large_ones_are_no_rounding():
    cov = np.diag([1e-20, 1.0, 0.0])
    root = _root(cov)
    np.testing.assert_allclose(np.diag(root @ root.T), [1e-20, 1.0, 1e-10], rtol=1e-9)
