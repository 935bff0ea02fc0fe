"""Rounds of adaptive importance sampling, weighed against the mixture of all proposals."""

import contextlib
from dataclasses import dataclass
from math import comb, isqrt
from time import perf_counter

import numpy as np
from arviz_stats.base import array_stats
from scipy.special import logsumexp

from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.first import first_proposal
from pymc_scalable_gp.importance.mode import Mode, Unbounded, find_mode
from pymc_scalable_gp.importance.proposals import Mixture, truncation, trusted
from pymc_scalable_gp.importance.surrogate import Lessons

CHAINS = 4
FEWEST = 26  # weights of which the tail holds five
ALIKE = 1e-9  # nats between log weights that differ by rounding
EVEN = 3.0  # times the mean: where no weight is above, the largest are no tail
GOOD_KHAT, BAD_KHAT = 0.5, 0.7
FORGOTTEN = 12.0  # nats below the first mode's mass at which another one is left out
GRADIENT = 3.0  # densities for the price of a gradient
TIRESOME = 0.3  # effective share of points below which a surrogate is tried, and asks for gradients
LESSONS, MOST_LESSONS = 4, 12  # rounds in which it asks, if k-hat is good or poor
GROWN = 2.0  # times the points that a surrogate was learnt from, with which it is tried again
SPARE = 1.25  # times the points of a last round that should do


@dataclass
class Weighed:
    """Points with weights: Pareto-smoothed `weights` (n,) of sum one, and what they are worth."""

    points: np.ndarray
    logp: np.ndarray
    log_weight: np.ndarray
    weights: np.ndarray
    chain: np.ndarray
    khat: float
    ess: float
    round_evidence: float  # log evidence from each round's weights under its own proposal

    @property
    def log_evidence(self) -> float:
        """Log of the mean weight."""
        return float(logsumexp(self.log_weight) - np.log(len(self.log_weight)))

    @property
    def log_evidence_se(self) -> float:
        """Its standard error: the delta method's, and how far the rounds' own estimate lies off.

        Proposals are fitted to points that are weighed again under them, so that the mean weight errs
        low where tails are hard to reach; each round under its own proposal alone does not.
        """
        w = np.exp(self.log_weight - logsumexp(self.log_weight))
        variance = max((w**2).sum() - 1.0 / len(w), 0.0)
        return float(np.sqrt(variance + (self.log_evidence - self.round_evidence) ** 2))

    def expected_share(self, proposal) -> float:
        """Effective share ``Z / E_p[p / q]`` that points of another proposal q would have, by these."""
        alive = self.weights > 0.0
        logs = self.logp[alive] - proposal.logpdf(self.points[alive])
        return float(np.exp(self.log_evidence - logsumexp(logs, b=self.weights[alive])))

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Weighted mean (p,) and covariance (p, p)."""
        mean = self.weights @ self.points
        away = self.points - mean
        return mean, (self.weights[:, None] * away).T @ away


def smooth(log_weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Pareto-smoothed weights of sum one, and k-hat (Vehtari et al. 2024), 0 at most for even ones."""
    weights, alive = np.zeros(len(log_weight)), np.isfinite(log_weight)
    if not alive.any():
        return weights, np.inf
    logs, khat = log_weight[alive] - log_weight[alive].max(), np.inf
    if len(logs) >= FEWEST or np.ptp(logs) < ALIKE:
        logs, khat = smoothed_tail(logs)
    shares = np.exp(logs - logsumexp(logs))
    if shares.max() * len(shares) <= EVEN and len(shares) >= FEWEST:
        khat = min(khat, 0.0)
    weights[alive] = shares
    return weights, khat


def smoothed_tail(logs: np.ndarray) -> tuple[np.ndarray, float]:
    """Log weights (n,) with a Pareto-smoothed tail, and k-hat: -inf where all agree.

    They are returned as they are, with a k-hat of inf, where no distribution can be fitted: to a tail of
    one value, as of a draw that comes many times, or of a few huge weights.
    """
    if np.ptp(logs) < ALIKE:
        return logs, -np.inf
    with contextlib.suppress(ValueError), np.errstate(over="ignore"):
        smoothed, khat = array_stats.psislw(-logs)
        if np.isfinite(khat):
            return smoothed, float(khat)
    return logs, np.inf


def truncated(weights: np.ndarray) -> np.ndarray:
    """Weights (n,) of sum one, none of them above ``1 / sqrt(n)`` (Ionides 2008).

    What is fitted to weighed points would otherwise follow one that is far heavier than all others.
    """
    alive = weights > 0.0
    logs = np.log(weights[alive])
    most = truncation(logs, min(isqrt(len(weights)), len(logs)))
    kept = np.zeros(len(weights))
    kept[alive] = np.exp(np.minimum(logs, most))
    return kept / kept.sum()


def effective(weights: np.ndarray) -> float:
    """Effective sample size ``1 / sum w^2`` of weights of sum one; 0 where all are zero."""
    square = (weights**2).sum()
    return float(1.0 / square) if square > 0.0 else 0.0


class Rounds:
    r"""Adaptive multiple importance sampling (Cornuet et al. 2012).

    After rounds of ``n_k`` points from proposals ``q_k``, every point ``x`` of every round has weight

        w(x) = p(x, y) / sum_k (n_k / N) q_k(x),    N = sum_k n_k.
    """

    def __init__(self, density: Density, modes: list[Mode], rng):
        self.density, self.rng = density, rng
        mass = np.array([mode.log_mass for mode in modes])
        shares = np.clip(np.exp(mass - logsumexp(mass)), 0.1, None)
        parts = [first_proposal(density, mode, rng) for mode in modes]
        self.mixture = Mixture(parts, shares / shares.sum())
        self.proposals: list = []
        self.counts: list[int] = []
        p = density.size
        self.points, self.logp = np.empty((0, p)), np.empty(0)
        self.chain = np.empty(0, int)
        self._logq = np.empty((0, 0))  # log densities of all points under all proposals

    @property
    def size(self) -> int:
        """Points of a round: at least max(100, 10 p), a power of two for each chain."""
        least = max(100, 10 * self.density.size) / CHAINS
        return CHAINS * 2 ** int(np.ceil(np.log2(least)))

    def play(self, proposal, size: int | None = None) -> float:
        """One round from `proposal`: the effective share of its points under their own weights.

        Each chain's points are a scrambled sequence of their own, so that chains are independent.
        """
        each = max((size or self.size) // CHAINS, 1)
        fresh = np.concatenate([proposal.draw(each, self.rng) for _ in range(CHAINS)])
        logp = self.density.values(fresh)
        own = proposal.logpdf(fresh)
        new = np.vstack([*(q.logpdf(fresh) for q in self.proposals), own])
        old = np.vstack([self._logq, proposal.logpdf(self.points)]) if self.counts else new[:, :0]
        self._logq = np.hstack([old, new])
        self.proposals.append(proposal)
        self.counts.append(len(fresh))
        self.points = np.concatenate([self.points, fresh])
        self.logp = np.concatenate([self.logp, logp])
        self.chain = np.concatenate([self.chain, np.repeat(np.arange(CHAINS), each)])
        weights, _ = smooth(logp - own)
        return effective(weights) / len(fresh)

    def weigh(self) -> Weighed:
        """All points so far with their weights."""
        share = np.log(self.counts) - np.log(sum(self.counts))
        log_weight = self.logp - logsumexp(self._logq + share[:, None], axis=0)
        weights, khat = smooth(log_weight)
        mine = np.repeat(np.arange(len(self.counts)), self.counts)
        own = self.logp - self._logq[mine, np.arange(len(mine))]
        return Weighed(
            self.points, self.logp, log_weight, weights, self.chain, khat, effective(weights),
            float(logsumexp(own) - np.log(len(own))),
        )  # fmt: skip

    def adapt(self, weighed: Weighed) -> None:
        """Move the t proposals to the weighted moments; after two rounds, those that matter."""
        if weighed.ess > 0.0:
            leave_out = len(self.counts) >= 2
            self.mixture = self.mixture.adapted(weighed.points, truncated(weighed.weights), leave_out)

    def look_elsewhere(self, weighed: Weighed) -> bool:
        """Search a mode from the point of largest weight; true if that was a new one."""
        worst = weighed.points[int(np.argmax(weighed.log_weight))]
        known = [Mode(part.centre, 0.0, part.factor) for part in self.mixture.parts]
        try:
            mode = find_mode(self.density, worst, maxiter=50)
        except ValueError:
            return False
        if not all(each.is_far(mode.location)[0] for each in known):
            return False
        parts = [*self.mixture.parts, first_proposal(self.density, mode, self.rng)]
        self.mixture = Mixture(parts, np.append(0.8 * self.mixture.shares, 0.2))
        return True


def find_modes(density, start: np.ndarray, rng) -> list[Mode]:
    """The mode reached from `start` (p,), and that from the best of sixteen prior draws far from it.

    Where the density rises without bound from `start`, as into the neck of a funnel, the other has to have
    more mass than where that search ended.
    """
    unbounded = None
    try:
        first = find_mode(density, start)
    except Unbounded as found:
        first, unbounded = found.end, found
        if not np.isfinite(first.log_mass):  # nothing is far from it in its units
            raise
    second = _mode_beside(density, first, rng)
    more = -np.inf if second is None else second.log_mass - first.log_mass
    if unbounded and not more > FORGOTTEN:
        raise unbounded
    if more <= -FORGOTTEN:
        return [first]
    return [second] if more > FORGOTTEN else [first, second]


def _mode_beside(density, first: Mode, rng) -> Mode | None:
    """A mode far from the first, if one is found."""
    others = density.from_prior(16, rng)
    others = np.concatenate([others, [2.0 * first.location - others[0]]])
    others = others[first.is_far(others)]
    logp = density.values(others) if len(others) else np.empty(0)
    if not np.isfinite(logp).any():
        return None
    try:
        return find_mode(
            density, others[int(np.argmax(logp))], maxiter=50,
            near=lambda x: not first.is_far(x)[0], factor=first.halfway,
        )  # fmt: skip
    except ValueError:
        return None


def sample(density, modes, draws: int, rng, max_evaluations=None, until=None, tell=None) -> Weighed:
    """Rounds until the weights are worth `draws` effective draws, or until the budget is spent.

    That is `max_evaluations` densities (default: 40 rounds), or the time `until` of ``time.perf_counter``,
    after which no round begins. `tell` is called with the weighed points after each round.
    """
    rounds = Rounds(density, modes, rng)
    chooser = Chooser(rounds, draws)
    limit = 40 * rounds.size if max_evaluations is None else max_evaluations
    weighed = None
    while True:
        left = limit - density.evaluations
        if weighed is not None and left < CHAINS:
            break
        chooser.play(weighed, max(min(rounds.size, left), CHAINS))
        weighed = rounds.weigh()
        if tell is not None:
            tell(weighed)
        played = len(rounds.counts)
        if played >= 2 and is_enough(weighed, draws):
            break
        if until is not None and perf_counter() > until:
            break
        rounds.adapt(weighed)
        if played in (4, 8) and weighed.khat > BAD_KHAT:
            rounds.look_elsewhere(weighed)
    return weighed


def is_enough(weighed: Weighed, draws: int) -> bool:
    """Whether k-hat is good at the effective sample size, or not bad at twice that."""
    return (weighed.ess >= draws and weighed.khat < GOOD_KHAT) or (
        weighed.ess >= 2 * draws and weighed.khat < BAD_KHAT
    )


class Chooser:
    """The next round: of a t or of a surrogate, whichever was worth more for its price, and its size."""

    def __init__(self, rounds: Rounds, draws: int):
        self.rounds, self.draws = rounds, draws
        self._lessons = Lessons(rounds.density)
        self._surrogate, self._asked, self._learnt_from, self._fitted_to = None, 0, 0, 0.0
        self._worth = {"t": 0.0, "surrogate": np.inf}  # what was not tried may be the best

    def play(self, weighed: Weighed | None, size: int) -> None:
        """One round of at most `size` points."""
        before = self._lessons.gradients
        proposal = self._chosen(weighed)
        price = GRADIENT * (self._lessons.gradients - before)
        if proposal is self.rounds.mixture and weighed is not None:
            self._fitted_to = weighed.ess
        size = self._enough(weighed, size, self._worth[proposal.kind])
        self._worth[proposal.kind] = self.rounds.play(proposal, size) * size / (size + price)

    def _enough(self, weighed, size, worth):
        """A smaller size where that should do; at least a quarter."""
        if weighed is None or not weighed.khat < GOOD_KHAT or not 0.0 < worth < np.inf:
            return size
        needed = SPARE * (self.draws - weighed.ess) / (worth * CHAINS)
        return max(size // 4, min(size, CHAINS * max(int(np.ceil(needed)), 1)))

    def _chosen(self, weighed):
        """The proposal, which learns first where that is a surrogate."""
        rounds = self.rounds
        if weighed is None or not weighed.ess > 0.0 or not self._is_to_learn(weighed):
            return rounds.mixture
        most = LESSONS if weighed.khat < GOOD_KHAT else MOST_LESSONS
        # Where points are many, a first surrogate does without gradients.
        tried = [worth for worth in self._worth.values() if worth < np.inf or self._has_many()]
        ask = max(tried) < TIRESOME and self._asked < most
        self._asked += ask
        self._learnt_from = len(rounds.points)
        learnt = self._lessons.learn(weighed, rounds.mixture, rounds.rng, ask)
        self._surrogate = learnt or self._surrogate
        return self._surrogate or rounds.mixture

    def _is_to_learn(self, weighed) -> bool:
        """Whether a surrogate is next.

        It is tried first where points are many, or the t is tiresome in its second round, after which
        modes without mass are gone; and again where it was worth more than the t, or has twice the points
        to learn from. The t is tried again where its moments are those of twice as many effective points,
        which say that it would be worth more, as far as they are trusted.
        """
        if not self._learnt_from:
            tiresome = self._worth["t"] < TIRESOME and len(self.rounds.counts) >= 2
            return tiresome or self._has_many()
        if weighed.ess > GROWN * self._fitted_to:
            expected = weighed.expected_share(self.rounds.mixture)
            if expected * trusted(weighed.ess, self.rounds.density.size) > self._worth["surrogate"]:
                return False
        grown = len(self.rounds.points) >= GROWN * self._learnt_from
        return self._worth["surrogate"] > self._worth["t"] or grown

    def _has_many(self) -> bool:
        """Whether points are as many as the coefficients of a quartic, ``(p + 4)! / (4! p!)``."""
        return len(self.rounds.points) >= comb(self.rounds.density.size + 4, 4)
