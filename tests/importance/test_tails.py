"""A narrow mode with a long tail: coordinates in which it is near normal, and draws of both."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from marks import often
from scipy import stats

import pymc_scalable_gp as sgp
from pymc_scalable_gp.importance import tails
from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.mode import Mode, climb, find_mode
from pymc_scalable_gp.importance.rounds import Weighed
from pymc_scalable_gp.importance.tails import Rescaled, Scale, rescaled

SCALE = Scale([0.7, 0.2, 0.1], [-1.0, 2.0, -6.0], [0.3, 1.0, 2.0])
SHARE, CENTRE, SD = 0.2, 0.3, 1.2  # of a tail
SPLIT = 0.2  # where it begins


def normals(x, means, sds):
    return pm.logp(pm.Normal.dist(np.array(means), np.array(sds)), x).sum()


def long_tailed(sign=1.0, tails=1, p=9):
    """A model of p parameters, of which the first ones have a tail and move the others; evidence 1."""
    sds = np.linspace(0.1, 0.5, p - tails)

    def logp(x):
        logs = 0.0
        for j in range(tails):
            mode = np.log(1.0 - SHARE) + normals(sign * x[j], -0.9, 0.2)
            logs += pt.logaddexp(mode, np.log(SHARE) + normals(sign * x[j], CENTRE, SD))
        moved = pm.Normal.dist(0.3 * sds * pt.tanh(x[0]), sds)
        return logs + pm.logp(moved, x[tails:]).sum()

    with pm.Model() as model:
        x = pm.Normal("x", 0.5 * sign, 1.5, shape=p)
        pm.Potential("p", logp(x) - normals(x, [0.5 * sign] * p, [1.5] * p))
    return model


def start(sign=1.0, tails=1, p=9):
    return np.array([-0.9 * sign] * tails + [0.0] * (p - tails))


def test_scores_are_those_of_the_mixture():
    t = np.array([-9.0, -2.0, -1.1, -0.5, 0.6, 4.0])
    cdf = stats.norm.cdf(t[:, None], [-1.0, 2.0, -6.0], [0.3, 1.0, 2.0]) @ [0.7, 0.2, 0.1]
    np.testing.assert_allclose(SCALE.inverse(t), stats.norm.ppf(cdf), rtol=1e-9)


def test_scale_is_its_inverses_inverse_far_out_too():
    z = np.array([-38.0, -12.0, -3.0, -0.2, 0.0, 0.7, 2.5, 9.0, 30.0])
    t = SCALE.forward(z)
    assert (np.diff(t) > 0.0).all()
    np.testing.assert_allclose(SCALE.inverse(t), z, rtol=1e-9, atol=1e-9)


def test_slope_is_the_derivative_and_its_own():
    z, h = np.linspace(-5.0, 5.0, 21), 1e-5
    slope = (SCALE.forward(z + h) - SCALE.forward(z - h)) / (2 * h)
    log_slope, change = SCALE.slope(z, SCALE.forward(z))
    np.testing.assert_allclose(log_slope, np.log(slope), atol=1e-7)
    above, below = (SCALE.slope(z + s, SCALE.forward(z + s))[0] for s in (h, -h))
    np.testing.assert_allclose(change, (above - below) / (2 * h), atol=1e-6)


def test_gradient_in_the_new_coordinates_against_differences():
    density = Rescaled(Density(long_tailed()), {0: SCALE, 2: SCALE})
    z, h = np.linspace(-0.5, 0.8, 9), 1e-5
    value, gradient = density.with_gradients(z[None])
    np.testing.assert_allclose(value, density.values(z[None]))
    steps = h * np.eye(9)
    found = (density.values(z + steps) - density.values(z - steps)) / (2 * h)
    np.testing.assert_allclose(gradient[0], found, atol=1e-6)
    np.testing.assert_array_equal(density.slopes(z[None]), gradient)


@pytest.mark.parametrize("moved", [0.0, 0.8])
def test_a_mode_from_which_the_search_goes_far_away_is_kept(moved, monkeypatch):
    """A narrow mode with a twentieth of the mass, and a second parameter that is another one elsewhere."""
    shares, means, sds = [0.05, 0.95], [0.0, 4.0], [0.1, 1.0]
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        parts = [np.log(w) + normals(x[0], m, s) for w, m, s in zip(shares, means, sds, strict=True)]
        pm.Potential("p", pt.logaddexp(*parts) + normals(x[1], 0.0, 0.1))
        if moved:
            pm.Potential("q", normals(x[1] - moved * pt.tanh(x[0]), 0.0, 0.1) - normals(x[1], 0.0, 0.1))
    density = Density(model)
    known = find_mode(density, np.zeros(2))
    new = Rescaled(density, {0: Scale(shares, means, sds)})
    monkeypatch.setattr(tails, "mode_near", lambda new, *_: find_mode(new, np.array([0.0, moved])))
    found, *kept = new.modes(known)
    np.testing.assert_allclose(new.forward(found.location[None])[0], [3.9, moved], atol=0.15)
    assert len(kept) == (moved > 0.0)
    for mode in kept:
        np.testing.assert_allclose(new.forward(mode.location[None])[0], known.location, atol=1e-9)
        h = 1e-4 * mode.factor
        around = new.forward(mode.location + np.vstack([h.T, -h.T]))
        np.testing.assert_allclose((around[:2] - around[2:]) / 2e-4, known.factor.T, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(mode.logp, new.values(mode.location[None])[0], rtol=1e-9)


def test_points_and_densities_come_back_as_the_models_own():
    own = Density(long_tailed())
    density = Rescaled(own, {0: SCALE})
    z = np.random.default_rng(0).standard_normal((5, 9))
    one = np.ones(5)
    found = density.restored(Weighed(z, density.values(z), one, one, one, 0.0, 5.0, 0.0))
    np.testing.assert_allclose(found.logp, own.values(found.points), rtol=1e-10)
    np.testing.assert_array_equal(found.points[:, 1:], z[:, 1:])
    np.testing.assert_allclose(SCALE.inverse(found.points[:, 0]), z[:, 0], rtol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tail_is_found_on_its_side_and_nowhere_else(sign):
    density = Density(long_tailed(sign=sign))
    mode = find_mode(density, start(sign))
    scales = rescaled(density, [mode], np.random.default_rng(0))[0].scales
    assert list(scales) == [0]
    assert sign * scales[0].forward(np.array([2.5 * sign]))[0] > 1.0
    assert sign * scales[0].forward(np.array([-2.5 * sign]))[0] < -1.0


def test_normals_and_what_a_prior_does_not_reach_have_no_tail():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", 0.0, 5.0, shape=4), 0.5, observed=np.zeros(4))
    density = Density(model)
    modes = [find_mode(density, np.zeros(4))]
    rng = np.random.default_rng(0)
    found, same = rescaled(density, modes, rng)
    assert not found.scales
    assert same == modes
    for sd in (1e4, np.inf):  # a wide prior, and one without an end
        with pm.Model() as model:
            x = pm.Flat("x") if sd == np.inf else pm.Normal("x", 0.0, sd)
            pm.Normal("y", x, 0.01, observed=0.0)
        density = Density(model)
        modes = [find_mode(density, np.zeros(1))]
        assert not rescaled(density, modes, rng)[0].scales
    with pm.Model() as model:  # nothing but the prior
        pm.Normal("x", 0.0, 1.0)
    density = Density(model)
    modes = [find_mode(density, np.zeros(1))]
    before = density.evaluations
    assert not rescaled(density, modes, rng)[0].scales
    assert density.evaluations == before  # the prior ends where a tail would begin


def test_coordinates_stay_where_the_new_ones_have_no_mode(monkeypatch):
    density = Density(long_tailed())
    modes = [find_mode(density, start())]

    def nowhere(*_):
        raise ValueError("no mode")

    monkeypatch.setattr(tails, "mode_near", nowhere)
    with pytest.warns(UserWarning, match="no mode on the scale"):
        found, same = rescaled(density, modes, np.random.default_rng(0))
    assert not found.scales
    assert same == modes


@pytest.mark.parametrize("count", often([1, 3], 3))
def test_draws_have_the_tails_masses(count):
    idata = sgp.sample_importance(
        model=long_tailed(tails=count), progressbar=False, random_seed=1,
        start={"x": start(tails=count)},
    )  # fmt: skip
    x, attrs = idata["posterior"]["x"].values.reshape(-1, 9), idata["posterior"].attrs
    # .107, with a standard error of .015 from 400 draws; .000 to .005 in the model's own coordinates.
    far = (x[:, :count] > SPLIT).mean(axis=0)
    np.testing.assert_allclose(far, SHARE * stats.norm.sf(SPLIT, CENTRE, SD), atol=0.04)
    assert abs(attrs["log_evidence"]) < 3.0 * attrs["log_evidence_se"]  # of 1
    assert attrs["khat"] < 0.5


def scales_of(log_tail):
    """Scales of a coordinate with a normal's mode of sd 1, and a tail of a given log density."""

    class One:
        def from_prior(self, count, *_):
            return np.linspace(-30.0, 30.0, count)[:, None]

        def values(self, points):
            return np.where(points[:, 0] < 0.0, -1e3, log_tail(points[:, 0]))

    mode = Mode(np.zeros(1), 0.0, np.eye(1))
    return tails._scales(mode, tails._tails(One(), mode, np.random.default_rng(0)))


def test_plateaus_are_taken_wider_than_tails_that_decline_exponentially():
    """Quantiles of mixtures with moments by quadrature; geometric nodes, the log linear between them."""

    def mixture(log_tail, power, least):
        nodes = 3.0 * (30.0 * 0.96 / 3.0) ** np.linspace(0.0, 1.0, 4)
        x = np.linspace(nodes[0], nodes[-1], 20_001)
        logs = np.interp(x, nodes, log_tail(nodes))
        p, q = np.exp(logs), np.exp(power * logs)
        mass, mean = np.trapezoid(p, x), np.trapezoid(x * q, x) / np.trapezoid(q, x)
        sd = max(np.sqrt(np.trapezoid((x - mean) ** 2 * q, x) / np.trapezoid(q, x)), 1.0)
        own = np.sqrt(2.0 * np.pi)
        share = np.clip(3.0 * mass / (own + 3.0 * mass), least, 0.3)
        return Scale([share, 1.0 - share], [mean, 0.0], [sd, 1.0])

    z = np.array([-1.0, 0.5, 1.5, 2.5])
    for log_tail, power, least in (
        (lambda x: -6.0 - 0.02 * x, 0.3, 0.1),
        (lambda x: -1.0 - 0.4 * x, 1.0, 0.05),
    ):
        found, expected = scales_of(log_tail)[0], mixture(log_tail, power, least)
        np.testing.assert_allclose(found.forward(z), expected.forward(z), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("slope", "count"), [(0.52, 0), (0.48, 1)])
def test_tails_that_are_near_are_left_to_skew(slope, count):
    """From 3 sds on the mean of an exponential tail is 1 / slope farther: 4.92 and 5.08."""
    assert len(scales_of(lambda x: -1.0 - slope * x)) == count


BEND = 1.2  # how far the second parameter goes where the first is long


def substitutes(bend=BEND, p=6):
    """A model whose first parameter has a tail, in which the second is short; evidence 1."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 3.0, shape=p)
        arm = np.log(0.3) + normals(x[0], 3.0, 1.0)
        first = pt.logaddexp(np.log(0.7) + normals(x[0], 0.0, 0.4), arm)
        second = pm.Normal.dist(-bend * pt.sigmoid(4.0 * (x[0] - 1.5)), 0.3)
        rest = normals(x[2:], [0.0] * (p - 2), [0.5] * (p - 2))
        pm.Potential("p", first + pm.logp(second, x[1]) + rest - normals(x, [0.0] * p, [3.0] * p))
    return model


def test_arms_lie_where_another_parameter_follows_with_the_curvature_there():
    density = Density(substitutes())
    mode = find_mode(density, np.zeros(6))
    probed = tails._tails(density, mode, np.random.default_rng(0))
    (tail,) = [each for each in probed if each.j == 0 and each.sign > 0.0]
    before = density.gradients
    arm = tails._arm(density, mode, tail)
    assert density.gradients - before <= 12 + 12  # a search of a few steps, and the curvature
    assert not [each for each in probed if each is not tail and tails._arm(density, mode, each)]
    first = mode.location[0] + tail.distance[1]
    expected = [first, -BEND / (1.0 + np.exp(-4.0 * (first - 1.5))), 0.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(arm.location, expected, atol=0.1)
    np.testing.assert_allclose(arm.location[0], first, rtol=1e-12)  # held
    np.testing.assert_allclose(arm.logp, density.values(arm.location[None])[0], rtol=1e-9)
    np.testing.assert_allclose(arm.sds[2:], 0.5, rtol=0.02)
    steep = 4.0 * expected[1] * (1.0 + expected[1] / BEND)  # of the bend there
    np.testing.assert_allclose(arm.sds[1], np.hypot(0.3, steep * arm.sds[0]), rtol=0.1)


def test_an_arm_is_what_gains_enough_and_lies_high_enough(monkeypatch):
    """By 8 steps from 15 nats below the mode or less; it gains 3, and lies 12 below the mode at most."""
    density = Density(substitutes())
    mode = find_mode(density, np.zeros(6))
    probed = tails._tails(density, mode, np.random.default_rng(0))
    (tail,) = [each for each in probed if each.j == 0 and each.sign > 0.0]
    narrow = Mode(mode.location, mode.logp, 0.6 * mode.factor)  # its normal has nothing there
    height = tails._arm(density, narrow, tail).logp - mode.logp

    def is_arm(known, below=0.0):
        higher, log = Mode(mode.location, mode.logp + below, narrow.factor), np.full(4, known)
        return tails._arm(density, higher, tail._replace(log=log)) is not None

    assert -12.0 < height < 0.0
    assert [is_arm(known) for known in (-14.99, -15.01)] == [True, False]
    assert [is_arm(height - gain) for gain in (3.01, 2.99)] == [True, False]
    assert [is_arm(-14.99, height + low) for low in (11.99, 12.01)] == [True, False]
    steps = []
    monkeypatch.setattr(
        tails, "climb", lambda *a, maxiter, **k: steps.append(maxiter) or climb(*a, maxiter=maxiter, **k)
    )
    assert is_arm(-14.99)
    assert steps == [8]


def test_a_normal_whose_parameters_are_correlated_has_no_arms():
    """Others follow there too, and gain as much, but no more than the mode's own normal knows."""
    cov = np.full((4, 4), 0.5) + 0.5 * np.eye(4)
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 4.0, shape=4)
        pm.Potential("p", pm.logp(pm.MvNormal.dist(np.zeros(4), cov), x))
    density = Density(model)
    mode = find_mode(density, np.ones(4))
    probed = tails._tails(density, mode, np.random.default_rng(0))
    gains = [-0.5 * (t.distance[1] / mode.sds[t.j]) ** 2 - t.log[1] for t in probed]
    assert max(gains) > 4.0
    assert not [each for each in probed if tails._arm(density, mode, each)]


def test_nothing_follows_where_parameters_do_not_stand_for_one_another():
    for model, at in ((substitutes(bend=0.0), np.zeros(6)), (long_tailed(), start())):
        density = Density(model)
        mode = find_mode(density, at)
        probed = tails._tails(density, mode, np.random.default_rng(0))
        assert max(each.log[1] for each in probed) > -15.0  # others were let go
        assert not [each for each in probed if tails._arm(density, mode, each)]


def test_proposals_start_in_an_arm_in_the_tails_own_coordinate():
    density = Density(substitutes())
    mode = find_mode(density, np.zeros(6))
    scaled, (known, arm) = rescaled(density, [mode], np.random.default_rng(0))
    assert not scaled.scales
    np.testing.assert_array_equal(known.location, mode.location)
    assert arm.location[0] > 1.5


def test_an_arm_beside_which_the_density_fails_is_none(monkeypatch):
    density = Density(substitutes())
    mode = find_mode(density, np.zeros(6))
    probed = tails._tails(density, mode, np.random.default_rng(0))

    def fails(*_):
        raise ValueError("the log density rises up to where it cannot be computed")

    monkeypatch.setattr(tails, "mode_at", fails)
    assert not [each for each in probed if tails._arm(density, mode, each)]


@pytest.mark.parametrize("seed", often([1, 2], 1))
def test_draws_have_an_arms_mass(seed):
    idata = sgp.sample_importance(
        model=substitutes(), progressbar=False, random_seed=seed, start={"x": np.zeros(6)}, cores=1
    )
    x, attrs = idata["posterior"]["x"].values.reshape(-1, 6), idata["posterior"].attrs
    far = stats.norm.sf(2.0, 3.0, 1.0)
    np.testing.assert_allclose((x[:, 0] > 2.0).mean(), 0.3 * far, atol=0.05)
    assert attrs["khat"] < 0.5
    assert abs(attrs["log_evidence"]) < 3.0 * attrs["log_evidence_se"]  # of 1


def test_prior_draws_at_a_bound_have_edges():
    """A beta prior that rounds to 0 and 1: infinite on the line, without a warning of NumPy's."""
    with pm.Model():
        p = pm.Beta("p", 0.05, 0.05)
        pm.Binomial("y", 3, p, observed=0)
        found = sgp.sample_importance(60, random_seed=1, progressbar=False)
    # Given no success in three: a beta of .05 and 3.05.
    assert float(found.posterior["p"].mean()) == pytest.approx(0.05 / 3.1, abs=0.012)
