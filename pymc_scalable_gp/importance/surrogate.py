"""A log density learnt from values and gradients, and drawn from."""

import numpy as np
from scipy import linalg
from scipy.special import logsumexp, softmax

from pymc_scalable_gp.importance.proposals import Mixture, StudentT, truncation

CLOUD = 10_000  # points of the t that are resampled
RELIABLE = 400  # of them effective at least, so that the learnt density's constant is known to 5%
MOVES = 30  # Metropolis steps of each, so that no point of the cloud is drawn twice
DEFENCE = 0.3  # share of the t
LENGTHSCALES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # in units of the t's scale
NUGGETS = (1e-4, 1e-2)
SEARCHED = 500  # rows of the matrices whose evidence is compared, and of that for the variance
DEEPEST = 25.0  # nats below the highest value at which one no longer teaches anything
MOST_SLOPES, MOST_VALUES = 1200, 800  # rows of the matrix, for gradients and for values
MOST_RISE = 8.0  # nats that the variance adds, at most
BLOCK = 4096  # points at a time


class Residual:
    r"""Gaussian process on what a t leaves of a log density, from values and gradients.

    On points ``z`` in units of the t's scale, `value` (n,) are ``log p - log t``, `gradient` (k, p) its
    slopes at the first k. The mean is their median, the covariance ``s^2 [exp(-|(z - z') / l|^2 / 2) +
    nugget]``. The l_j are shorter along steeper axes; their factor, whether they differ, and the nugget
    have the largest evidence on a small grid, on some of the points, with s^2 at its maximum. The variance
    is that given the values at some points. LinAlgError where no choice gives a positive definite matrix.
    """

    def __init__(self, z, value, gradient):
        (n, p), known = z.shape, len(gradient)
        few = min(known, SEARCHED // (2 * p))
        some = np.r_[:few, known : min(n, known + SEARCHED - few * (p + 1))]
        self.mean = float(np.median(value))
        target = np.concatenate([value[some] - self.mean, gradient[:few].T.ravel()])
        self.lengthscale, nugget = _best(z[some], target, gradient)
        target = np.concatenate([value - self.mean, gradient.T.ravel()])
        found = _solved(_joint(z, known, self.lengthscale), target, nugget)
        if found is None:
            raise linalg.LinAlgError("the matrix of all values is not positive definite")
        _, self.scale, coefficients = found
        self._slopes = np.zeros((n, p))
        self._slopes[:known] = coefficients[n:].reshape(p, known).T / self.lengthscale
        self._own = z / self.lengthscale
        self._offset = coefficients[:n] - (self._slopes * self._own).sum(axis=1)
        self._near = np.linspace(0, n - 1, min(n, SEARCHED)).astype(int)
        near = _joint(z[self._near], 0, self.lengthscale)
        near[np.diag_indices(len(near))] += nugget
        root = linalg.cholesky(near, lower=True, overwrite_a=True, check_finite=False)
        self._whitened = linalg.solve_triangular(root, np.eye(len(root)), lower=True).T

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior means and variances (n,) at `z` (n, p), block by block."""
        square = (self._own**2).sum(axis=1)
        mean, explained = np.empty(len(z)), np.empty(len(z))
        for at in range(0, len(z), BLOCK):
            rows = slice(at, at + BLOCK)
            u = z[rows] / self.lengthscale
            kernel = np.exp(u @ self._own.T - 0.5 * ((u**2).sum(axis=1)[:, None] + square))
            mean[rows] = (kernel * (self._offset + u @ self._slopes.T)).sum(axis=1)
            explained[rows] = ((kernel[:, self._near] @ self._whitened) ** 2).sum(axis=1)
        return self.mean + mean, self.scale * (1.0 - explained).clip(0.0)


def _best(z, target, gradient):
    """Lengthscales (p,) and nugget of largest evidence; `target` holds values at `z`, then gradients.

    Lengthscales are alike, or shorter along axes that are steeper by all of `gradient` (k, p).
    """
    shapes, known = [np.ones(z.shape[1])], (len(target) - len(z)) // z.shape[1]
    if len(gradient):
        steep = np.sqrt((gradient**2).mean(axis=0)) + 1e-3
        shapes.append(np.sqrt(np.exp(np.log(steep).mean()) / steep).clip(0.5, 2.0))
    best, chosen = -np.inf, None
    for lengthscale in [factor * shape for shape in shapes for factor in LENGTHSCALES]:
        cov = _joint(z, known, lengthscale)
        for nugget in NUGGETS:
            found = _solved(cov.copy(), target, nugget)
            if found is not None and found[0] > best:
                best, chosen = found[0], (lengthscale, nugget)
    if chosen is None:
        raise linalg.LinAlgError("no lengthscale gives a positive definite matrix")
    return chosen


def _solved(cov, target, nugget):
    """Log evidence, its best scale, coefficients; None where `cov`, which is overwritten, is singular."""
    cov[np.diag_indices(len(cov))] += nugget
    try:
        chol = linalg.cho_factor(cov, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return None
    coefficients = linalg.cho_solve(chol, target, check_finite=False)
    scale = max(float(target @ coefficients) / len(target), 1e-300)
    half_logdet = np.log(np.diag(chol[0])).sum()
    return -0.5 * len(target) * np.log(scale) - half_logdet, scale, coefficients


def _joint(z, known, lengthscale):
    """Covariance of values at `z` (n, p), then of gradients at the first `known`, axis by axis."""
    n, p = z.shape
    u = z / lengthscale
    square = (u**2).sum(axis=1)
    cov = np.empty((n + known * p, n + known * p))
    cov[:n, :n] = np.exp(u @ u.T - 0.5 * (square[:, None] + square))
    kernel, away = cov[:known, :n], u[:known, None, :] - u[None, :, :]
    for j in range(p):
        rows = slice(n + known * j, n + known * (j + 1))
        steep = -kernel * away[:, :, j] / lengthscale[j]  # with respect to the first argument
        cov[rows, :n], cov[:n, rows] = steep, steep.T
        for k in range(j + 1):
            columns = slice(n + known * k, n + known * (k + 1))
            block = steep[:, :known] * away[:, :known, k]
            if j == k:
                block += kernel[:, :known] / lengthscale[j]
            cov[rows, columns] = block / lengthscale[k]
            cov[columns, rows] = cov[rows, columns].T
    return cov


class Surrogate:
    r"""Proposal: seven tenths of a learnt density, and three of a t as a defence.

    With m and v `Residual`'s mean and variance, the learnt density is the t's times ``exp(m + v)``: points
    in proportion to ``sqrt(E[p^2])`` give the evidence of least expected variance. It is drawn by
    resampling 10 000 points of the t, which give its constant too, and Metropolis steps. As it may rise
    where nothing was learnt, it is cut at the largest multiple of the t with which none of these counts for
    over one in 400. `gradient` (k, p) are those at the first k of the `points` (n, p).
    """

    kind = "surrogate"

    def __init__(self, t: StudentT, points, logp, gradient, rng):
        self.t = t
        slopes = t.slopes_over(points[: len(gradient)], gradient)
        self.residual = Residual(t.white(points), logp - t.logpdf(points), slopes)
        self._cloud = t.draw(rng.random((CLOUD, len(t.location) + 1)))
        logs = self._uncut(self._cloud)
        self._above_t = truncation(logs, RELIABLE)
        logs = np.minimum(logs, self._above_t)
        self._log_constant = float(logsumexp(logs) - np.log(CLOUD))
        self._weights = softmax(logs)  # of sum one, whatever digits large logs have lost

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
        logp = self._over_t(points) + self.t.logpdf(points)
        for _ in range(MOVES):
            tried = points + rng.standard_normal((n, p)) @ walk.T
            new = self._over_t(tried) + self.t.logpdf(tried)
            taken = np.log(rng.random(n)) < new - logp
            points = np.where(taken[:, None], tried, points)
            logp = np.where(taken, new, logp)
        return points

    def logpdf(self, points: np.ndarray) -> np.ndarray:
        """Log densities (n,) at `points` (n, p)."""
        learnt = np.log1p(-DEFENCE) + self._over_t(points) - self._log_constant
        return self.t.logpdf(points) + np.logaddexp(learnt, np.log(DEFENCE))

    def _over_t(self, points):
        """Log of the learnt density over the t's (n,), unnormalised."""
        return np.minimum(self._uncut(points), self._above_t)

    def _uncut(self, points):
        """The same before it is cut."""
        mean, variance = self.residual(self.t.white(points))
        return mean + np.minimum(variance, MOST_RISE)


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
    """What a posterior's surrogate is learnt from: all points so far, and gradients at some."""

    def __init__(self, density):
        self.density = density
        self._rows, self._gradients = np.empty(0, int), np.empty((0, density.size))

    @property
    def gradients(self) -> int:
        """How many were asked for."""
        return len(self._rows)

    def learn(self, weighed, mixture: Mixture, rng, ask: bool) -> Blend | None:
        """Mixture of surrogates, one for each part of a `mixture` of t's; None where none could be fitted.

        A part is learnt from the points that it explains best, and is a t where it cannot be. With `ask`
        p gradients more are taken for each.
        """
        nearest = np.argmax(mixture.by_part(weighed.points), axis=0)
        parts = []
        for k, t in enumerate(mixture.parts):
            weights = weighed.weights * (nearest == k)
            if ask:
                self._ask(weighed.points, weights, rng)
            parts.append(self._learnt(weighed, weights, t, rng) or Mixture([t], [1.0]))
        found = any(isinstance(part, Surrogate) for part in parts)
        return Blend(parts, mixture.shares) if found else None

    def _ask(self, points, weights, rng):
        """Gradients at as many new points as there are parameters, by their weights."""
        weights = weights.copy()
        weights[self._rows] = 0.0
        fresh = _chosen(np.flatnonzero(weights > 0.0), weights, self.density.size, rng)
        if not len(fresh):
            return
        self._rows = np.concatenate([fresh, self._rows])
        gradients = self.density.slopes(points[fresh])
        self._gradients = np.concatenate([gradients, self._gradients])

    def _learnt(self, weighed, weights, t, rng):
        """Surrogate around one `t`, from points with `weights` (n,); None if there are none or it fails."""
        usable = weights > 0.0
        usable &= weighed.logp > weighed.logp[usable].max(initial=-np.inf) - DEEPEST
        sloped = usable[self._rows] & np.isfinite(self._gradients).all(axis=1)
        sloped = np.flatnonzero(sloped)[: MOST_SLOPES // self.density.size]
        usable[self._rows[sloped]] = False
        others = _chosen(np.flatnonzero(usable), weights, MOST_VALUES, rng)
        rows = np.concatenate([self._rows[sloped], others])
        if not len(rows):
            return None
        known = weighed.points[rows], weighed.logp[rows], self._gradients[sloped]
        try:
            return Surrogate(t, *known, rng)
        except linalg.LinAlgError:
            return None


def _chosen(rows, weights, most: int, rng):
    """At most that many of `rows`, by the roots of their weights: a heavy one does not crowd out others."""
    if len(rows) <= most:
        return rows
    share = np.sqrt(weights[rows] / weights[rows].max())
    return rng.choice(rows, most, replace=False, p=share / share.sum())
