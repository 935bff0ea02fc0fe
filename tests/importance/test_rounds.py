"""Rounds: weights, evidence and its error by their formulas, further modes, and when it ends."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pymc_scalable_gp.importance import rounds as module
from pymc_scalable_gp.importance.mode import Mode
from pymc_scalable_gp.importance.proposals import StudentT
from pymc_scalable_gp.importance.rounds import Rounds, Weighed, effective, find_modes, sample, smooth


class Normal:
    """A normal log density of x (n, p), which counts its values; -inf from `edge` on."""

    def __init__(self, size=2, edge=np.inf):
        self.size, self.edge, self.evaluations = size, edge, 0

    def values(self, x):
        self.evaluations += len(x)
        return np.where(x[:, 0] < self.edge, -0.5 * (x**2).sum(axis=1), -np.inf)

    def slopes(self, x):
        return -x


def at(*place, logp=0.0):
    return Mode(np.array(place), logp, np.eye(len(place)))


def weighed(log_weight, round_evidence=0.0, **given):
    w = np.exp(log_weight - logsumexp(log_weight))
    points = np.arange(2.0 * len(w)).reshape(-1, 2)
    found = Weighed(points, None, log_weight, w, None, 0.0, effective(w), round_evidence)
    for name, value in given.items():
        setattr(found, name, value)
    return found


def test_points_are_weighed_against_all_proposals_by_their_shares():
    density = Normal()
    rounds = Rounds(density, [at(0.0, 0.0)], np.random.default_rng(1))
    proposals = [StudentT(np.zeros(2), np.eye(2)), StudentT(np.ones(2), 2.0 * np.eye(2))]
    drawn = [rounds.play(Alone(each), size) for each, size in zip(proposals, (None, 64), strict=True)]
    assert rounds.counts == [128, 64]
    found = rounds.weigh()
    logq = np.stack([each.logpdf(found.points) for each in proposals])
    mixed = logsumexp(logq, axis=0, b=np.array([[2.0], [1.0]]) / 3.0)
    np.testing.assert_allclose(found.log_weight, found.logp - mixed)
    own = found.logp - np.where(np.arange(192) < 128, *logq)
    np.testing.assert_allclose(found.round_evidence, logsumexp(own) - np.log(192))
    for share, part in zip(drawn, np.split(own, [128]), strict=True):
        np.testing.assert_allclose(share, effective(smooth(part)[0]) / len(part))
    np.testing.assert_array_equal(found.chain, np.r_[np.repeat(range(4), 32), np.repeat(range(4), 16)])
    assert len(np.unique(found.points, axis=0)) == 192  # each chain has a sequence of its own
    for chain in range(4):  # which is spread evenly
        assert (found.points[:128][found.chain[:128] == chain] > 0.0).sum(axis=0).tolist() == [16, 16]
    assert abs(found.log_evidence - np.log(2.0 * np.pi)) < 0.05


class Alone:
    """One t as a proposal."""

    kind = "t"

    def __init__(self, part):
        self.part, self.logpdf = part, part.logpdf

    def draw(self, count, rng):
        return module.Mixture([self.part], [1.0]).draw(count, rng)


def test_the_error_of_an_evidence():
    """The delta method's variance ``sum w^2 - 1 / n``, and the distance of the rounds' own estimate."""
    logs = np.log([1.0, 2.0, 3.0, 4.0])
    found = weighed(logs, np.log(2.5))
    np.testing.assert_allclose([found.log_evidence, found.log_evidence_se], [np.log(2.5), np.sqrt(0.05)])
    for off in (0.3, -0.3):
        assert weighed(logs, np.log(2.5) + off).log_evidence_se == pytest.approx(np.sqrt(0.14))
    assert weighed(np.full(9, 4.0), 4.0).log_evidence_se == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize(("p", "size"), [(1, 128), (12, 128), (13, 256), (60, 1024)])
def test_points_of_a_round(p, size):
    assert Rounds(Normal(p), [at(*np.zeros(p))], None).size == size


def test_first_shares_are_those_of_the_modes_masses():
    """A tenth at least, before they add up to one: Laplace's masses may be far off."""
    for logp, shares in ((np.log(3.0), [0.25, 0.75]), (9.0, [1.0 / 11.0, 10.0 / 11.0])):
        rounds = Rounds(Normal(), [at(0.0, 0.0), at(5.0, 5.0, logp=logp)], None)
        np.testing.assert_allclose(rounds.mixture.shares, shares, rtol=1e-3)


def test_few_weights_are_good_only_where_they_are_equal():
    for logs, khat in (
        (np.zeros(9), -np.inf), (np.zeros(90), -np.inf), (1e-3 * np.arange(9.0), np.inf),
    ):  # fmt: skip
        weights, found = smooth(logs)
        assert found == khat
        np.testing.assert_allclose(weights, np.exp(logs) / np.exp(logs).sum())
    some = np.random.default_rng(0).standard_normal(60)  # of which a tail has a fit
    assert 0.0 < smooth(some)[1] < 1.0
    assert smooth(0.3 * some)[1] <= 0.0  # no weight is three times the mean


@pytest.mark.parametrize(
    "logs",
    [
        np.append(np.zeros(100), 800.0),
        np.append(np.random.default_rng(0).normal(size=300), np.full(60, 5.0)),
    ],
    ids=["a huge one", "a tail of one value"],
)
def test_weights_whose_tail_has_no_fit_are_bad_and_stay(logs):
    weights, khat = smooth(logs)
    assert khat == np.inf
    np.testing.assert_allclose(weights, np.exp(logs - logsumexp(logs)))


def test_points_without_any_weight_move_no_proposal():
    assert effective(np.zeros(3)) == 0.0
    rounds = Rounds(Normal(), [at(0.0, 0.0)], None)
    before = rounds.mixture
    rounds.adapt(weighed(np.zeros(3), weights=np.zeros(3), ess=0.0))
    assert rounds.mixture is before


@pytest.mark.parametrize(("place", "is_new"), [((30.0, 30.0), True), ((1.0, 1.0), False), (None, False)])
def test_a_further_mode_has_a_fifth_of_the_points(place, is_new, monkeypatch):
    """It is searched from the point of largest weight; what is near a known mode, or none, adds nothing."""

    def search(density, start, maxiter):
        np.testing.assert_array_equal(start, [4.0, 5.0])
        if place is None:
            raise ValueError
        return at(*place)

    monkeypatch.setattr(module, "find_mode", search)
    rounds = Rounds(Normal(), [at(0.0, 0.0), at(50.0, 0.0)], None)
    found = rounds.look_elsewhere(weighed(np.array([0.0, 1.0, 3.0, -9.0])))
    assert found == is_new
    expected = [0.4, 0.4, 0.2] if is_new else [0.5, 0.5]
    np.testing.assert_allclose(rounds.mixture.shares, expected)
    if is_new:
        np.testing.assert_allclose(rounds.mixture.parts[-1].centre, place)


@pytest.mark.parametrize(
    ("second", "kept"),
    [
        (-12.1, "first"),
        (-11.9, "both"),
        (11.9, "both"),
        (12.1, "second"),
        (None, "first"),
        ("none", "first"),
    ],
)
def test_which_of_two_modes_are_kept(second, kept, monkeypatch):
    """By their masses: e^-12 of the other's is nothing. The second is searched from the best prior draw.

    That is one far from the first mode, or what lies opposite to a draw.
    """
    first, starts = at(1.0, 1.0), []

    def search(density, start, maxiter=200, near=None, factor=None):
        starts.append(start)
        if near is None:
            return first
        assert near(np.array([2.0, 1.0]))
        assert not near(np.array([9.0, 1.0]))
        if second == "none":
            raise ValueError
        return None if second is None else at(30.0, 30.0, logp=second)

    density, draws = Normal(), np.array([[-40.0, 2.0]] + 14 * [[0.0, 1.0]] + [[-60.0, 0.0]])
    density.from_prior = lambda count, rng: draws[:count]
    density.values = lambda x: x[:, 0] - 100.0 * (x == [-40.0, 2.0]).all(axis=1)
    monkeypatch.setattr(module, "find_mode", search)
    found = find_modes(density, np.zeros(2), None)
    np.testing.assert_array_equal(starts, [[0.0, 0.0], [42.0, 0.0]])
    places = {"first": [1.0], "second": [30.0], "both": [1.0, 30.0]}[kept]
    assert [mode.location[0] for mode in found] == places


@pytest.mark.parametrize("edge", [-1e9, 30.0])
def test_no_second_search_without_a_draw_that_is_far_and_finite(edge, monkeypatch):
    monkeypatch.setattr(module, "find_mode", lambda density, start: at(0.0, 0.0))
    density = Normal(edge=edge)
    density.from_prior = lambda count, rng: np.full((count, 2), 40.0 if edge < 0.0 else 1.0)
    assert len(find_modes(density, np.zeros(2), None)) == 1


class PlainChooser:
    """Rounds of the mixture alone."""

    def __init__(self, rounds, draws):
        self.rounds = rounds

    def play(self, weighed, size):
        self.rounds.play(self.rounds.mixture, size)


@pytest.mark.parametrize(
    ("budget", "counts"), [(304, [128, 128, 44]), (132, [128]), (2, [4]), (None, [128] * 39 + [124])]
)
def test_the_budget_is_spent_and_no_more(budget, counts, monkeypatch):
    """That of forty rounds unless told, four densities of which the first proposal takes."""
    monkeypatch.setattr(module, "Chooser", PlainChooser)
    monkeypatch.setattr(module, "is_enough", lambda *_: False)
    monkeypatch.setattr(module, "smooth", lambda logs: (np.full(len(logs), 1.0 / len(logs)), 0.0))
    monkeypatch.setattr(Rounds, "adapt", lambda *_: None)
    monkeypatch.setattr(Rounds, "look_elsewhere", lambda *_: None)
    density, told = Normal(), []
    found = sample(
        density, [at(0.0, 0.0)], 400, np.random.default_rng(1), max_evaluations=budget, tell=told.append
    )
    assert np.diff([0, *(len(each.points) for each in told)]).tolist() == counts
    assert found is told[-1]


def test_one_round_is_never_enough():
    """Its proposal is fitted to no points yet."""
    density = Normal()
    found = sample(density, [at(0.0, 0.0)], 1, np.random.default_rng(1))
    assert len(found.points) > 128


@pytest.mark.parametrize(("khat", "after"), [(0.69, []), (0.71, [4, 8])])
def test_other_modes_are_looked_for_twice_where_khat_is_bad(khat, after, monkeypatch):
    looked = []
    weigh = Rounds.weigh

    def as_told(rounds):
        found = weigh(rounds)
        found.khat = khat
        return found

    monkeypatch.setattr(module, "Chooser", PlainChooser)
    monkeypatch.setattr(Rounds, "weigh", as_told)
    monkeypatch.setattr(Rounds, "look_elsewhere", lambda rounds, _: looked.append(len(rounds.counts)))
    sample(Normal(), [at(0.0, 0.0)], 10**9, np.random.default_rng(1), max_evaluations=9 * 128)
    assert looked == after
