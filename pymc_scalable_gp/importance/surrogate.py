"""A log density learnt from values and gradients, and drawn from."""

import numpy as np
from scipy import linalg
from scipy.special import logsumexp

from pymc_scalable_gp.importance.proposals import Mixture, StudentT

CLOUD = 60_000  # points of the t that are resampled
RELIABLE = 400  # of them effective at least, so that the learnt density's constant is known to 5%
MOVES = 30  # Metropolis steps of each, so that no point of the cloud is drawn twice
DEFENCE = 0.1  # share of the t
LENGTHSCALES = (4.0, 6.0, 9.0, 14.0)  # in posterior sds
QUADRATIC = 0.01  # prior variance of the quadratic, relative to the Gaussian process's
NUGGET = 1e-6
DEEPEST = 20.0  # nats below the mode at which a value no longer teaches anything
MOST_VALUES = 3000  # rows of the Gaussian process's matrix


class Residual:
    r"""Gaussian process on what a quadratic leaves of a log density, from values and gradients.

    On whitened points ``z = L^-1 (theta - m)`` the target is ``r(z) = log p - log p(m) + |z|^2 / 2``,
    with covariance ``s^2 [exp(-|(z - z') / l|^2 / 2) + q (1 + z'z')^2]``, one lengthscale ``l_j`` per
    axis. Axes along which the residual is steeper have the shorter lengthscales; their common factor,
    and whether they differ, are those of largest evidence on a small grid, with ``s^2`` at its maximum.

    `value` (n,) and `gradient` (n, p) are those of the residual at `z` (n, p). With a `lengthscale` (p,),
    known from fewer points, nothing is searched.
    """

    def __init__(self, z, value, gradient, lengthscale=None):
        self.z = z
        target = np.concatenate([value, gradient.T.ravel()])
        steep = np.sqrt((gradient**2).mean(axis=0)) + 1e-3
        relative = np.sqrt(np.exp(np.log(steep).mean()) / steep).clip(0.5, 2.0)
        best = -np.inf
        shapes = (np.ones_like(relative), relative)
        grid = [factor * shape for shape in shapes for factor in LENGTHSCALES]
        for each in grid if lengthscale is None else [lengthscale]:
            found = self._fit(z, target, each)
            if found is not None and found[0] > best:
                best, self.lengthscale, coefficients = found[0], each, found[1]
        if not np.isfinite(best):
            raise linalg.LinAlgError("no lengthscale gives a positive definite matrix")
        n = len(z)
        self.alpha, self.beta = coefficients[:n], coefficients[n:].reshape(-1, n).T

    @staticmethod
    def _fit(z, target, lengthscale):
        """Log evidence with the scale at its maximum, and the coefficients; None if singular."""
        cov = _joint(z, lengthscale)
        try:
            chol = linalg.cho_factor(cov, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return None
        coefficients = linalg.cho_solve(chol, target, check_finite=False)
        scale = max(float(target @ coefficients) / len(target), 1e-300)
        half_logdet = np.log(np.diag(chol[0])).sum()
        return -0.5 * len(target) * np.log(scale) - half_logdet, coefficients

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Posterior mean (n,) at `z` (n, p), by two products per block of points."""
        slopes = self.beta / self.lengthscale  # with respect to z / l
        own = self.z / self.lengthscale
        offset = self.alpha - (slopes * own).sum(axis=1)
        square = (own**2).sum(axis=1)
        found = np.empty(len(z))
        for at in range(0, len(z), 4096):
            u = z[at : at + 4096] / self.lengthscale
            logs = u @ own.T - 0.5 * ((u**2).sum(axis=1)[:, None] + square)
            inner = 1.0 + z[at : at + 4096] @ self.z.T
            linear = 2.0 * inner * (z[at : at + 4096] @ self.beta.T)
            found[at : at + 4096] = (
                (np.exp(logs) * (offset + u @ slopes.T)).sum(axis=1)
                + QUADRATIC * (inner**2 @ self.alpha + linear.sum(axis=1))
            )  # fmt: skip
        return found


def _joint(z, lengthscale):
    """Covariance of values and gradients, (n + n p, n + n p), gradients axis by axis."""
    n, p = z.shape
    u = z / lengthscale
    away = u[:, None, :] - u[None, :, :]
    kernel = np.exp(-0.5 * (away**2).sum(axis=2))
    inner = 1.0 + z @ z.T
    cov = np.empty((n * (p + 1), n * (p + 1)))
    cov[:n, :n] = kernel + QUADRATIC * inner**2
    for j in range(p):
        rows = slice(n * (j + 1), n * (j + 2))
        slope = -kernel * away[:, :, j] / lengthscale[j]  # with respect to the first argument
        cov[rows, :n] = slope + QUADRATIC * 2.0 * inner * z[None, :, j]
        cov[:n, rows] = cov[rows, :n].T
        for k in range(j + 1):
            columns = slice(n * (k + 1), n * (k + 2))
            block = -kernel * away[:, :, j] * away[:, :, k]
            quadratic = 2.0 * z[None, :, j] * z[:, None, k]
            if j == k:
                block += kernel
                quadratic = quadratic + 2.0 * inner
            block /= lengthscale[j] * lengthscale[k]
            cov[rows, columns] = block + QUADRATIC * quadratic
            cov[columns, rows] = cov[rows, columns].T
    cov[np.diag_indices(len(cov))] += NUGGET
    return cov


class Surrogate:
    r"""Proposal: nine tenths of a learnt density, and a tenth of a t as a defence.

    The learnt log density is the quadratic at the mode plus `Residual`'s mean, capped at the mode's
    own. It is drawn from by resampling 60 000 points of the t, which give its constant as well, and by
    Metropolis steps from there. As it may rise where nothing was learnt, it is also capped at a multiple
    of the t, the largest with which no point of these counts for more than one in 400: else the constant,
    and with it the weights of all that is drawn, would be unknown.

    The `mode` makes the quadratic, `t` lies around the whole posterior, and `points` (n, p), `logp` and
    `gradient` (n, p) are what is known of the log density; `lengthscale` (p,) is an earlier surrogate's.
    """

    kind = "surrogate"

    def __init__(self, mode, t: StudentT, points, logp, gradient, rng, lengthscale=None):
        self.mode, self.t = mode, t
        keep = np.isfinite(logp) & np.isfinite(gradient).all(axis=1) & (logp > mode.logp - DEEPEST)
        most = max(MOST_VALUES // (points.shape[1] + 1), 1)
        keep = np.flatnonzero(keep)[:most]
        z = self._white(points[keep])
        value = logp[keep] - mode.logp + 0.5 * (z**2).sum(axis=1)
        self.residual = Residual(z, value, gradient[keep] @ mode.factor + z, lengthscale)
        self.cap = max(float(logp[keep].max()) - mode.logp, 0.0)
        self._cloud = t.draw(rng.random((CLOUD, len(t.location) + 1)))
        logs = self._uncut(self._cloud) - t.logpdf(self._cloud)
        self._above_t = _truncation(logs)
        logs = np.minimum(logs, self._above_t)
        self._log_constant = float(logsumexp(logs) - np.log(CLOUD))
        self._weights = np.exp(logs - logsumexp(logs))

    def draw(self, count: int, rng) -> np.ndarray:
        """Points (count, p)."""
        defence = int(np.round(DEFENCE * count + rng.random() - 0.5))
        p = len(self.t.location)
        which = rng.choice(CLOUD, count - defence, p=self._weights)
        points = self._moved(self._cloud[which], rng)
        if not defence:
            return points
        return np.concatenate([points, self.t.draw(rng.random((defence, p + 1)))])

    def _moved(self, points, rng):
        """Points (n, p) after a random walk of each that leaves the learnt density as it is."""
        n, p = points.shape
        walk = 2.38 / np.sqrt(p) * self.t.factor
        logp = self._learnt(points)
        for _ in range(MOVES):
            tried = points + rng.standard_normal((n, p)) @ walk.T
            new = self._learnt(tried)
            taken = np.log(rng.random(n)) < new - logp
            points = np.where(taken[:, None], tried, points)
            logp = np.where(taken, new, logp)
        return points

    def logpdf(self, points: np.ndarray) -> np.ndarray:
        """Log densities (n,) at `points` (n, p)."""
        log_t = self.t.logpdf(points)
        learnt = np.minimum(self._uncut(points), log_t + self._above_t)
        return np.logaddexp(
            np.log1p(-DEFENCE) + learnt - self._log_constant, np.log(DEFENCE) + log_t
        )

    def _learnt(self, points):
        """Learnt log density (n,), unnormalised."""
        return np.minimum(self._uncut(points), self.t.logpdf(points) + self._above_t)

    def _uncut(self, points):
        """The same before it is cut at a multiple of the t."""
        if not len(points):
            return np.empty(0)
        z = self._white(points)
        return np.minimum(self.residual(z) - 0.5 * (z**2).sum(axis=1), self.cap)

    def _white(self, points):
        """Points (n, p) in the quadratic's units."""
        return np.linalg.solve(self.mode.factor, (points - self.mode.location).T).T


def _truncation(logs: np.ndarray) -> float:
    """The largest cut of log weights (n,) after which each is at most one in `RELIABLE` of their sum.

    With the k largest cut at c, ``k e^c + sum_rest e^log = RELIABLE e^c``, for the first k that leaves
    none above c.
    """
    largest = -np.sort(-logs)
    rest = np.logaddexp.accumulate(largest[::-1])[::-1][:RELIABLE]
    cuts = rest - np.log(RELIABLE - np.arange(RELIABLE))
    return float(cuts[np.argmax(cuts >= largest[:RELIABLE])])


class Blend(Mixture):
    """Proposal: a mixture of `parts`, each a surrogate or a t, drawn in fixed shares (k,)."""

    kind = "surrogate"

    def draw(self, count: int, rng) -> np.ndarray:
        """Points (count, p)."""
        # Evenly spaced, so that each part has its share of the points but for rounding.
        u = (np.arange(count) + rng.random()) / count
        which = np.minimum(np.searchsorted(np.cumsum(self.shares), u), len(self.parts) - 1)
        counts = np.bincount(which, minlength=len(self.parts))
        return np.concatenate(
            [part.draw(int(k), rng) for part, k in zip(self.parts, counts, strict=True) if k]
        )


class Lessons:
    """What a posterior's surrogate is learnt from: the gradients around each of its modes."""

    def __init__(self, density):
        self.density = density
        self._learners: dict[int, Learner] = {}  # by the mode's place in the list of modes

    def learn(self, weighed, modes, mixture: Mixture, rng) -> Blend | None:
        """Mixture of surrogates, one for each part of a `mixture` of t's; None where none could be fitted.

        A part is learnt from the points that it explains best, as an offset from the quadratic at the mode
        that is nearest to it.
        """
        nearest = np.argmax(mixture.by_part(weighed.points), axis=0)
        parts, found = [], False
        for k, t in enumerate(mixture.parts):
            at = int(np.argmin([mode.distance(t.location)[0] for mode in modes]))
            if at not in self._learners:
                self._learners[at] = Learner(self.density, modes[at])
            learnt = self._learners[at].learn(
                weighed.points, weighed.weights * (nearest == k), t, rng
            )
            found = found or learnt is not None
            parts.append(Mixture([t], [1.0]) if learnt is None else learnt)
        return Blend(parts, mixture.shares) if found else None


class Learner:
    """The gradients that a surrogate is learnt from, and what it took."""

    def __init__(self, density, mode):
        self.density, self.mode = density, mode
        p = density.size
        reach = 1.5 * np.concatenate([np.zeros((1, p)), mode.factor.T, -mode.factor.T])
        self.points = mode.location + reach
        self.logp, self.gradient = density.with_gradients(self.points)
        self._lengthscale = None

    def learn(self, points, weights, t: StudentT, rng):
        """Surrogate from p more gradients, at `points` (n, p) chosen by their `weights` (n,).

        None where no point has weight, or none can be fitted.
        """
        alive = np.flatnonzero(weights > 0.0)
        if not len(alive):
            return None
        count = min(self.density.size, len(alive))
        # Tempered, so that one heavy point does not crowd out the others.
        w = np.sqrt(weights[alive] / weights.max())
        fresh = points[rng.choice(alive, count, replace=False, p=w / w.sum())]
        logp, gradient = self.density.with_gradients(fresh)
        self.points = np.concatenate([fresh, self.points])
        self.logp = np.concatenate([logp, self.logp])
        self.gradient = np.concatenate([gradient, self.gradient])
        try:
            found = Surrogate(
                self.mode, t, self.points, self.logp, self.gradient, rng, self._lengthscale
            )
        except linalg.LinAlgError:
            return None
        self._lengthscale = found.residual.lengthscale
        return found
