"""Searches of a mode: few gradients, and its place all the same."""

from contextlib import nullcontext

import numpy as np
import pytest

from pymc_scalable_gp.importance import mode as module
from pymc_scalable_gp.importance.mode import Mode, climb, find_mode, mode_near
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


def test_what_a_factor_says_of_a_mode():
    """By its covariance, whatever its axes: distances, sds, and the mass."""
    root = np.random.default_rng(2).normal(size=(4, 4)) * [1.0, 0.1, 3.0, 2.0]
    mode, cov = Mode(np.arange(4.0), -2.0, root), root @ root.T
    points = np.random.default_rng(3).normal(size=(5, 4))
    away = points - mode.location
    np.testing.assert_allclose(mode.distance(points) ** 2, (away @ np.linalg.inv(cov) * away).sum(axis=1))
    np.testing.assert_allclose(mode.sds, np.sqrt(np.diag(cov)))
    np.testing.assert_allclose(mode.log_mass, -2.0 + 0.5 * np.linalg.slogdet(cov)[1])
    direction = root @ np.array([1.0, 0.0, 0.0, 0.0])
    assert mode.is_far(mode.location + np.outer([5.9, -6.1], direction)).tolist() == [False, True]


class Plain(Counted):
    """The sum of a function of each of two coordinates, turned."""

    def __init__(self, each, slope):
        self.turn = np.array([[0.6, -0.8], [0.8, 0.6]])
        super().__init__(lambda x: (each(self.turn.T @ x).sum(), self.turn @ slope(self.turn.T @ x)), 2)

    def farthest(self, x):
        k = int(np.abs(x).argmax())
        return f"x{k} = {x[k]:.3g}"


def axes_of(density, at, scales):
    """Sds along the true axes by a curvature's factor; its step and what that promises."""
    factor, step, left, fits = module._curvature(density, at, density.values(at[None])[0], scales)
    return np.linalg.norm(density.turn.T @ factor, axis=1), step, left, fits


def test_curvature_is_that_at_the_point_and_newtons_step_leads_to_a_normals_mode():
    sds = np.array([0.3, 0.7])
    normal = Plain(lambda z: -0.5 * (z / sds) ** 2, lambda z: -z / sds**2)
    at = np.array([0.2, -0.1])
    found, step, left, fits = axes_of(normal, at, np.array([0.1, 2.0]))
    np.testing.assert_allclose(found, sds, rtol=1e-6)
    np.testing.assert_allclose(step, -at, rtol=1e-6)
    np.testing.assert_allclose(left, -normal.values(at[None])[0], rtol=1e-6)
    assert fits
    rising = Plain(lambda z: 1.0 - np.cosh(z), lambda z: -np.sinh(z))
    np.testing.assert_allclose(axes_of(rising, np.zeros(2), np.ones(2))[0], 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("each", "start", "sd"),
    [
        # .6 or 1.5 times until the density falls at 1.5 sds by a third to thrice a normal's 1.125.
        (lambda z: -0.5 * z**2 - 12.0 * z**4, 1.0, 0.36),
        (lambda z: -0.02 * z**4, 5.0, 1.8),
        (lambda z: -0.005 * z**2, 1.0, 1.5**5),
        (lambda z: -5e-7 * z**2, 1.0, 1.5**6),  # six times at most
        (lambda z: -0.5 * z**2 * np.where(z > 0.0, 100.0, 1.0), 1.0, 1.0),  # skew is left to the rounds
    ],
)
def test_an_axis_is_as_long_as_the_density_falls_along_it(each, start, sd):
    density = Plain(each, None)
    density.function = lambda x: (each(density.turn.T @ x).sum(), None)
    found = module._scaled(density, np.zeros(2), 0.0, density.turn, np.array([start, start]))
    np.testing.assert_allclose(found, sd)


@pytest.mark.parametrize(
    ("each", "slope", "sds", "fits"),
    [
        # Five where there is no curvature, or that of a saddle.
        (lambda z: -((z / 5.0) ** 4), lambda z: -4.0 * z**3 / 625.0, [3.0, 3.0], False),
        (lambda z: 0.5 * z**2, lambda z: z, [5.0 * 1.5**6] * 2, True),
        # One axis along which the density falls faster than its curvature says.
        (lambda z: -0.5 * z**2 - [12.0, 0.0] * z**4, lambda z: -z - [48.0, 0.0] * z**3, [0.36, 1.0], False),
    ],
)
def test_where_curvature_is_not_that_of_a_normal(each, slope, sds, fits):
    density = Plain(each, slope)
    density.turn = np.eye(2)
    found = axes_of(density, np.zeros(2), np.ones(2))
    np.testing.assert_allclose(found[0], sds, rtol=1e-3)
    assert found[3] == fits


def test_gradients_that_fail_beside_a_mode_count_as_none():
    density = Plain(lambda z: -0.5 * z**2, lambda z: np.where(z > 0.0, np.nan, -z))
    density.turn = np.eye(2)
    found, step, left, _ = axes_of(density, np.zeros(2), np.ones(2))
    assert np.isfinite([*found, *step, left]).all()


@pytest.mark.parametrize(
    ("falls", "refused"),
    [
        ([[np.inf, 1.0], [np.inf, 1.0]], True),  # it fails on both sides
        ([[np.nan, 1.0], [0.1, 1.0]], True),  # and rises up to there
        ([[0.1, 1.0], [np.inf, 1.0]], True),
        ([[np.inf, 1.0], [5e-7, 1.0]], False),  # a mode beside the edge
        ([[-1.0, 1.0], [1.0, 1.0]], False),  # it rises, and does not fail
    ],
)
def test_where_a_density_rises_to_an_edge(falls, refused):
    density = Plain(np.cos, np.sin)
    with (
        pytest.raises(ValueError, match=r"ended at x1 = 7 \(unconstrained\)") if refused else nullcontext()
    ):
        module._refuse_an_edge(density, np.array([0.0, 7.0]), np.array(falls))


def checked(factor, values=lambda x: np.full(len(x), -1e9), place=0.0, name="x{}"):
    """A mode with that factor, of log density 0, looked at."""
    density = Counted(None, 2)
    density.values, density.farthest = values, lambda x: f"{name.format(int(np.abs(x).argmax()))} = 1"
    return module._checked(density, Mode(np.array([0.0, place]), 0.0, np.array(factor)))


def test_when_parameters_leave_others_no_room():
    """By the correlation's condition, not that of scales far apart."""
    checked([[1e-12, 0.0], [0.0, 1.0]])
    checked([[1.0, 0.0], [1.0, 1e-6]])
    with pytest.raises(ValueError, match=r"rises without bound.*x0 = 1 \(unconstrained\)"):
        checked([[1.0, 0.0], [1.0, 1e-8]])


@pytest.mark.parametrize(("place", "name", "refused"), [
    (301.0, "x__", True), (-301.0, "x__", True), (299.0, "x__", False), (301.0, "x", False)
])  # fmt: skip
def test_a_transformed_parameter_at_its_bound(place, name, refused):
    with pytest.raises(ValueError, match="cannot be computed") if refused else nullcontext():
        checked(np.eye(2), place=place, name=name)


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize(
    ("sd", "fall", "refused"), [(51.0, 0.9, True), (51.0, 1.1, False), (49.0, 0.9, False)]
)
def test_an_axis_that_is_flat_to_one_of_its_ends(side, sd, fall, refused):
    """The longer axis lies along the second coordinate, in the first column."""

    def values(x):
        assert (np.abs(x[:, 1]) > 1e14).all()
        return np.where(side * x[:, 1] > 0.0, -fall, -1e9)

    with pytest.raises(ValueError, match="does not fall as x1 goes on") if refused else nullcontext():
        checked([[0.0, 1.0], [sd, 0.0]], values)


def test_draws_of_another_model_have_no_mode_near():
    density = Counted(lambda x: (-np.inf, np.zeros(2)), 2)
    with pytest.raises(ValueError, match="not finite at the mean of the draws"):
        mode_near(density, np.zeros(2), np.eye(2))
