"""Searches of a mode: few gradients, and its place all the same."""

import numpy as np
import pytest

from pymc_scalable_gp.importance import mode as module
from pymc_scalable_gp.importance.mode import climb, find_mode
from pymc_scalable_gp.importance.rounds import find_modes
from pymc_scalable_gp.utils.lbfgs import Lowest

P = 6
TURN = np.linalg.qr(np.random.default_rng(1).normal(size=(P, P)))[0]
SDS = np.geomspace(1e-3, 1.0, P)


class Counted:
    """A log density of x (n, p) and its gradient, with the number of points that each is asked for."""

    def __init__(self, function, size, reach=30.0):
        self.function, self.size, self.reach = function, size, reach
        self.evaluations, self.gradients = 0, 0

    def values(self, x):
        self.evaluations += len(x)
        return np.array([self.function(each)[0] for each in x])

    def with_gradients(self, x):
        self.gradients += len(x)
        value, gradient = zip(*map(self.function, x), strict=True)
        return np.array(value), np.array(gradient)

    def from_prior(self, count, rng):
        return self.reach * rng.standard_normal((count, self.size))


def stiff(x):
    """A normal whose axes are turned, and of very different sds."""
    white = TURN.T @ x / SDS
    return -0.5 * white @ white, -TURN @ (white / SDS)


def curved(x):
    """A narrow ridge along a parabola, the mode at 0."""
    off = (x[1] - x[0] ** 2) / 0.05
    slope = np.array([-x[0] / 9.0 + 2.0 * x[0] * off / 0.05, -off / 0.05])
    return -0.5 * (x[0] / 3.0) ** 2 - 0.5 * off**2, slope


def flat_topped(x):
    """A density that is flatter than a normal at its mode, where Newton's steps fall short."""
    return -((x**4).sum()), -4.0 * x**3


@pytest.mark.parametrize(
    ("function", "start"),
    [(stiff, np.ones(P)), (curved, np.array([3.0, 9.0])), (flat_topped, np.full(3, 2.0))],
)
def test_the_mode_is_found_though_steps_before_it_are_small(function, start):
    """A normal's REST nats are a tenth of an sd."""
    mode = find_mode(Counted(function, len(start)), start)
    assert mode.logp == pytest.approx(function(mode.location)[0], abs=1e-12)
    np.testing.assert_allclose(mode.logp, 0.0, atol=2.0 * module.REST)


def test_a_search_without_curvature_stops_on_the_ridge():
    """What the others of these tests are about: steps are small there, and the mode is far."""
    ends = {"gain": module.SMALL_GAIN, "steps": module.SMALL_STEPS}
    _, logp, _ = climb(Counted(curved, 2), np.array([3.0, 9.0]), **ends)
    assert logp < -10.0 * module.REST


def test_a_normal_is_left_with_one_step_of_newtons():
    """Two small steps, one curvature, and no search after it."""
    density = Counted(lambda x: (-0.5 * x @ x, -x), 4)
    find_mode(density, np.full(4, 0.14))
    assert density.gradients <= 2 * 4 + 4


def test_steps_that_gain_little_are_counted_in_a_row(monkeypatch):
    """A small step before a large one ends no search."""
    gains, taken = [0.01, 1.0, 0.01, 1.0, 0.01, 0.01, 5.0], []

    def steps_of(objective, start, *, stop, **_):
        for gain in gains:
            taken.append(gain)
            if stop(start, -sum(taken)):
                break
        return Lowest(start, -sum(taken), None)

    monkeypatch.setattr(module, "lowest", steps_of)
    climb(Counted(stiff, P), np.ones(P), gain=0.02, steps=2)
    assert taken == gains[:-1]


@pytest.mark.parametrize(
    ("curvatures", "gains", "expected"),
    [
        ([(0.004, True)], [], "P"),
        ([(0.05, True)], [], "PN"),
        ([(0.3, True)], [0.29], "PF"),
        ([(3.0, True), (0.004, True)], [2.9], "PF"),
        ([(3.0, True), (0.05, True)], [2.9], "PFN"),
        ([(3.0, True), (0.004, True)], [0.4, 0.3], "PFW"),
        ([(9.0, False), (0.05, True)], [0.6], "PFN"),  # far: curvature there said little
        ([(0.05, False)], [0.04], "PF"),
        ([(0.05, False), (0.3, False)], [0.01, 0.1], "PFWN"),
        ([(3.0, True), (3.0, False), (0.004, True)], [2.9, 0.1, 0.4], "PFFW"),
        ([(3.0, True)] * 4, [1.0] * 4, "PFFFF"),  # four curvatures at most
    ],
)
def test_how_a_search_goes_on(monkeypatch, curvatures, gains, expected):
    """What a curvature says (nats that are left, whether it fits), what searches gain, and what is done.

    P: a search that pauses, F: in units of the curvature, W: the whole of it; N: Newton's step.
    """
    done, told, won, reached = [], iter(curvatures), iter([0.0, *gains]), 0.0

    def search(density, start, maxiter, near, factor=None, gain=0.0, steps=1):
        nonlocal reached
        assert (gain, steps) in {(0.0, 1), (0.02, 2)}
        assert factor is None or factor[0, 0] == 7.0
        done.append("F" if factor is not None else "P" if gain else "W")
        reached += next(won)
        return start, reached, np.ones(1)

    class Density:
        def values(self, x):
            done.append("N")
            return np.array([100.0])

    curvature = np.full((1, 1), 7.0), np.ones(1)  # and a step of Newton's, which leads to 1
    monkeypatch.setattr(module, "climb", search)
    monkeypatch.setattr(module, "_curvature", lambda *_: (*curvature, *next(told)))
    mode = find_mode(Density(), np.zeros(1))
    assert "".join(done) == expected
    assert not list(told)
    assert mode.location[0] == ("N" in expected)
    assert mode.logp == (100.0 if "N" in expected else sum(gains))


def test_newtons_step_is_left_where_it_falls(monkeypatch):
    """As on a density that is not finite there."""
    density = Counted(stiff, P)
    monkeypatch.setattr(module, "_curvature", lambda *_: (np.eye(P), np.full(P, np.inf), 0.05, True))
    density.values = lambda x: np.full(len(x), -np.inf)
    assert np.isfinite(find_mode(density, 1e-4 * np.ones(P)).location).all()


def test_whether_a_curvature_fits():
    """Not on a ridge that bends, where the density falls along every straight line."""
    for function, at, expected in ((stiff, np.zeros(P), True), (curved, np.array([3.0, 9.0]), False)):
        scales = SDS if function is stiff else np.array([1.0, 0.05])
        density = Counted(function, len(at))
        *_, fits = module._curvature(density, at, function(at)[0], scales)
        assert fits is expected


def test_a_second_search_needs_no_curvature_to_come_back():
    """It ends near the first mode, in units between the coordinates' own and the mode's."""
    density = Counted(stiff, P)
    (mode,) = find_modes(density, np.full(P, 1e-3), np.random.default_rng(1))
    first = Counted(stiff, P)
    find_mode(first, np.full(P, 1e-3))
    back = Counted(stiff, P)  # in the coordinates' own units
    climb(back, mode.location + 10.0, near=lambda x: not mode.is_far(x)[0])
    assert density.gradients - first.gradients < 0.7 * back.gradients
    np.testing.assert_allclose(np.linalg.eigvalsh(mode.halfway @ mode.halfway.T), SDS, rtol=1e-3)
