"""Multivariate t proposals with quasi-random points, and mixtures of them."""

import warnings

import numpy as np
from scipy import stats
from scipy.stats import qmc

from pymc_scalable_gp.importance.skew import Skew

FREEDOM = 7.0
WIDEST = 1.5
TINY = 1e-12
LEAST, NEGLIGIBLE = 0.05, 1e-3  # share of a part, and weight below which it goes


def uniform(count: int, dims: int, rng) -> np.ndarray:
    """Scrambled Sobol points (count, dims), strictly inside the unit cube."""
    with warnings.catch_warnings():  # counts that are no power of two lose balance, nothing else
        warnings.simplefilter("ignore", UserWarning)
        found = qmc.Sobol(dims, rng=rng).random(count)
    return np.maximum(found, TINY)  # they are below 1


class StudentT:
    """Multivariate t with 7 degrees of freedom, wider than what it is fitted to.

    Moments of points with weights leave out the tails that no point has reached, and so would the next
    points. The scale is therefore ``min(1 + 1 / p, 1.5)`` times that of the covariance, which costs
    less of the effective sample size the more dimensions there are: there the t itself reaches far.

    It is a t of the coordinates that `skew` makes of the parameters, these themselves by default. There
    `factor` L (p, p) has ``L L'`` the covariance of what it is fitted to.
    """

    def __init__(self, location, factor, skew: Skew | None = None):
        self.location, self.factor = location, factor
        self.skew = Skew.none(location) if skew is None else skew
        p = len(location)
        self.scale = min(1.0 + 1.0 / p, WIDEST) * factor
        self.log_volume = np.linalg.slogdet(self.scale)[1]
        self._law = stats.multivariate_t(shape=np.eye(len(location)), df=FREEDOM)

    @property
    def centre(self) -> np.ndarray:
        """The parameters (p,) at its location."""
        return self.skew.inverse(self.location)

    def draw(self, u: np.ndarray) -> np.ndarray:
        """Points (n, p) from points `u` (n, p + 1) of the unit cube."""
        radius = np.sqrt(stats.chi2.ppf(u[:, -1], FREEDOM) / FREEDOM)
        y = self.location + (stats.norm.ppf(u[:, :-1]) / radius[:, None]) @ self.scale.T
        return self.skew.inverse(y)

    def logpdf(self, points: np.ndarray) -> np.ndarray:
        """Log densities (n,) at `points` (n, p)."""
        # In units of the scale: SciPy takes small eigenvalues beside large ones for rounding.
        white = np.atleast_1d(self._law.logpdf(self.white(points)))
        return white - self.log_volume + self.skew.slopes(points)[0].sum(axis=1)

    def white(self, points: np.ndarray) -> np.ndarray:
        """Points (n, p) in units of the scale, z."""
        return np.linalg.solve(self.scale, (self.skew.forward(points) - self.location).T).T

    def slopes_over(self, points: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Gradients (n, p) in z of ``log p - log t`` at points (n, p), from those of log p there."""
        z = self.white(points)
        own = -(FREEDOM + z.shape[1]) * z / (FREEDOM + (z**2).sum(axis=1))[:, None]
        return self.skew.gradient(points, gradient) @ self.scale - own


class Mixture:
    """Mixture of t proposals, drawn in fixed shares (k,), which are not negative and add up to 1."""

    kind = "t"

    def __init__(self, parts, shares):
        self.parts, self.shares = list(parts), np.asarray(shares, float)

    def draw(self, count: int, rng) -> np.ndarray:
        """Points (count, p)."""
        p = len(self.parts[0].location)
        if len(self.parts) == 1:
            return self.parts[0].draw(uniform(count, p + 1, rng))
        u = uniform(count, p + 2, rng)
        which = np.minimum(np.searchsorted(np.cumsum(self.shares), u[:, -1]), len(self.parts) - 1)
        points = np.empty((count, p))
        for k, part in enumerate(self.parts):
            points[which == k] = part.draw(u[which == k, :-1])
        return points

    def logpdf(self, points: np.ndarray) -> np.ndarray:
        """Log densities (n,) at `points` (n, p)."""
        return np.logaddexp.reduce(self.by_part(points), axis=0)

    def by_part(self, points: np.ndarray) -> np.ndarray:
        """Log of share times density, (k, n), for each part."""
        return np.array(
            [np.log(s) + part.logpdf(points) for s, part in zip(self.shares, self.parts, strict=True)]
        )

    def adapted(self, points: np.ndarray, weights: np.ndarray, leave_out: bool):
        """The mixture with the weighted shares, means and covariances of its parts.

        `weights` (n,) sum to one. Each point counts for a part by its responsibility (Cappé et al.
        2008), and a part of which few points carry the weight stays near what it was, as far as its moments
        are not :func:`trusted`. A part that has next to no weight goes if it is asked to `leave_out` those.
        """
        logs = self.by_part(points)
        members = np.exp(logs - np.logaddexp.reduce(logs, axis=0)) * weights
        parts, shares = [], []
        for part, w in zip(self.parts, members, strict=True):
            total = w.sum()
            if leave_out and total < NEGLIGIBLE:
                continue
            shares.append(max(total, LEAST))
            parts.append(_fitted(points, w / total, part) if total > 0.0 else part)
        return Mixture(parts, np.array(shares) / sum(shares))


def _fitted(points, weights, known: StudentT) -> StudentT:
    """A t with the weighted moments of points, shrunk towards a known one as if it had its coordinates."""
    p = points.shape[1]
    skew = Skew.fitted(points, weights, known.skew.skew)
    points = skew.forward(points)
    mean = weights @ points
    away = points - mean
    trust = trusted(1.0 / (weights**2).sum(), p)
    cov = trust * (weights[:, None] * away).T @ away + (1.0 - trust) * known.factor @ known.factor.T
    return StudentT(trust * mean + (1.0 - trust) * known.location, _root(cov), skew)


def trusted(ess: float, p: int) -> float:
    """How much moments count: the effective sample size against the p (p + 3) / 2 numbers that they are."""
    return ess / (ess + p * (p + 3) / 2)


def _root(cov):
    """Factor L of a covariance, floored against rounding, with its axes in columns."""
    scale = np.sqrt(np.diag(cov))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, axes = np.linalg.eigh(cov / np.outer(scale, scale))
    return scale[:, None] * axes * np.sqrt(np.maximum(values, 1e-10))


def truncation(logs: np.ndarray, count: int) -> float:
    """The largest cut of log weights (n,) after which each is at most one in `count` of their sum.

    With the k largest cut at c, ``k e^c + sum_rest e^log = count e^c``, for the first k that leaves none
    above c. `count` is n at most.
    """
    largest = -np.sort(-logs)
    rest = np.logaddexp.accumulate(largest[::-1])[::-1][:count]
    cuts = rest - np.log(count - np.arange(count))
    return float(cuts[np.argmax(cuts >= largest[:count])])
