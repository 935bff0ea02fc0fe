"""The first proposals, from gradients where a normal's points lie."""

import numpy as np
import pytest
from scipy import stats

from pymc_scalable_gp.importance.first import MANY, MOST_STEPS, at_mode, first_proposal, typical
from pymc_scalable_gp.importance.mode import Mode, mode_at
from pymc_scalable_gp.importance.proposals import StudentT
from pymc_scalable_gp.importance.skew import Skew

P = 14
RNG = np.random.default_rng(3)
ROOT = np.tril(RNG.normal(size=(P, P)) / 4.0) + np.diag(RNG.uniform(0.5, 2.0, P))
AT = RNG.normal(size=P)


class Normal:
    """Normal coordinates y of a skew, with mean `at` and covariance ``root root'``."""

    def __init__(self, root, at=AT, skew=None):
        self.root, self.at, self.gradients = root, at, 0
        self.skew = Skew.none(at) if skew is None else skew

    def _white(self, x):
        return np.linalg.solve(self.root, (self.skew.forward(x) - self.at).T).T

    def values(self, x):
        return -0.5 * (self._white(x) ** 2).sum(axis=1) + self.skew.slopes(x)[0].sum(axis=1)

    def slopes(self, x):
        self.gradients += len(x)
        log_slope, change = self.skew.slopes(x)
        return -np.linalg.solve(self.root.T, self._white(x).T).T * np.exp(log_slope) + change


def covariance(t):
    return t.factor @ t.factor.T


@pytest.mark.parametrize("skew", [0.0, 0.5])
def test_a_normal_of_the_coordinates_is_found_in_one_step(skew):
    coordinates = Skew(AT, np.full(P, 1.5), np.linspace(-skew, skew, P))
    density = Normal(ROOT, skew=coordinates)
    t = StudentT(AT + 0.3 * ROOT @ np.ones(P), 0.6 * ROOT, coordinates)
    found = typical(density, t, np.random.default_rng(1))
    assert density.gradients == 2 * P
    np.testing.assert_allclose(found.location, AT, atol=1e-9)
    np.testing.assert_allclose(covariance(found), ROOT @ ROOT.T, rtol=1e-9, atol=1e-9)
    assert found.skew is coordinates


@pytest.mark.parametrize(("scale", "left"), [(1.4, 1.4), (0.4, 0.8)])
def test_it_gets_no_narrower_and_at_most_twice_as_wide(scale, left):
    found = typical(Normal(ROOT), StudentT(AT, scale * ROOT), np.random.default_rng(1))
    np.testing.assert_allclose(found.location, AT, atol=1e-9)
    np.testing.assert_allclose(covariance(found), left**2 * (ROOT @ ROOT.T), rtol=1e-9, atol=1e-9)


def test_a_step_is_no_longer_than_the_points_are_away():
    away = np.zeros(P)
    away[2] = 50.0
    found = typical(Normal(np.eye(P), AT + away), StudentT(AT, np.eye(P)), np.random.default_rng(1))
    np.testing.assert_allclose(found.location, AT + away * np.sqrt(P) / 50.0, atol=1e-9)


def test_the_typical_curvature_counts_not_that_of_the_mode():
    """With ``p(x) ~ (1 + x'x / 5)^-(5 + p)/2`` curvature is ``c = (5 + p) / (5 + p v)`` at ``p v``."""

    class HeavyTails(Normal):
        def slopes(self, x):
            return -(5 + P) * x / (5 + (x**2).sum(axis=1))[:, None]

    t = StudentT(np.zeros(P), 0.7 * np.eye(P))
    found = typical(HeavyTails(np.eye(P)), t, np.random.default_rng(1))
    np.testing.assert_allclose(found.location, 0.0, atol=1e-9)
    want = (5 + 0.49 * P) / (5 + P)
    np.testing.assert_allclose(covariance(found), want * np.eye(P), rtol=1e-9, atol=1e-9)


def test_without_finite_gradients_it_stays():
    class Fails(Normal):
        def slopes(self, x):
            return np.where(np.arange(len(x))[:, None] == 3, np.nan, super().slopes(x))

    t = StudentT(AT, ROOT)
    assert typical(Fails(ROOT), t, np.random.default_rng(1)) is t


@pytest.mark.parametrize(("p", "scale", "steps"), [(MANY, 0.8, 0), (MANY + 1, 0.95, 1), (MANY + 1, 0.8, 2)])
def test_few_parameters_need_no_gradients_and_many_few(p, scale, steps):
    density, mode = Normal(np.eye(p), np.zeros(p)), Mode(np.zeros(p), 0.0, scale * np.eye(p))
    found = first_proposal(density, mode, np.random.default_rng(1))
    assert density.gradients == steps * 2 * p
    np.testing.assert_allclose(
        found.factor @ found.factor.T, np.eye(p) if steps else scale**2 * np.eye(p), atol=1e-9
    )
    np.testing.assert_allclose(at_mode(density, mode).factor, scale * np.eye(p))


def test_steps_end():
    """Where curvature falls with the distance without end, as that of ``|x|``."""

    class Cone(Normal):
        def values(self, x):
            return -np.sqrt((x**2).sum(axis=1))

        def slopes(self, x):
            self.gradients += len(x)
            return -x / np.sqrt((x**2).sum(axis=1))[:, None]

    density = Cone(np.eye(P))
    first_proposal(density, Mode(np.zeros(P), 0.0, 0.01 * np.eye(P)), np.random.default_rng(1))
    assert density.gradients == MOST_STEPS * 2 * P


def test_more_of_its_points_count():
    """Effective shares ``1 / E_p[p / q]`` for a t of 30 dimensions, by draws from it."""

    class Student:
        def values(self, x):
            return -17.5 * np.log1p((x**2).sum(axis=1) / 5.0)

        def slopes(self, x):
            return -35.0 * x / (5.0 + (x**2).sum(axis=1))[:, None]

        def with_gradients(self, x):
            return self.values(x), self.slopes(x)

    density, rng = Student(), np.random.default_rng(2)
    mode = mode_at(density, np.zeros(30), 0.0, np.ones(30))
    law = stats.multivariate_t(shape=np.eye(30), df=5)
    draws = law.rvs(4000, random_state=rng)
    shares = [
        1.0 / np.exp(law.logpdf(draws) - t.logpdf(draws)).mean()
        for t in (at_mode(density, mode), first_proposal(density, mode, rng))
    ]
    assert shares[1] > 0.3 > 20 * shares[0]


def test_directions_are_random_and_orthogonal():
    asked = []

    class Asked(Normal):
        def slopes(self, x):
            asked.append(self._white(x))
            return super().slopes(x)

    for seed in (1, 2):
        typical(Asked(ROOT), StudentT(AT, ROOT), np.random.default_rng(seed))
    for z in asked:
        np.testing.assert_allclose(z[:P] @ z[:P].T, P * np.eye(P), atol=1e-9)
        np.testing.assert_allclose(z[P:], -z[:P], atol=1e-9)
        assert np.abs(z).max() < 0.9 * np.sqrt(P)  # not along the axes
    assert np.abs(asked[0] - asked[1]).max() > 1.0
