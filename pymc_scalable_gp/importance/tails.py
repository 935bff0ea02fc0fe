"""Coordinates in which a parameter with a narrow mode and a long tail is near normal."""

from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from pymc_scalable_gp.importance.mode import Mode, mode_near
from pymc_scalable_gp.utils.warn import warn

NEAR = 3.0  # standard deviations from a mode where a tail begins
FARTHER = 1.2  # times that, which the prior must reach for a tail to be looked for
PROBES = 4  # densities to either side of a mode along a coordinate
DRAWS = 128  # from the prior
EDGE = 0.02  # quantile of these, to either side, up to which a tail is looked for
IMPROPER = 30.0  # sds up to which it is, if the prior is improper
LEAST = 0.002  # mass of a tail relative to the mode's, of which a normal has .0013 there
MORE = 3.0  # mass of a tail, relative to that with all other parameters at their mode
SHARES = 0.05, 0.3  # of a tail in its parameter's mixture, at least and at most
# Where others follow a parameter into its tail, the density falls less than with all of them at the mode:
# a plateau, on which the density to this power is hardly wider, is taken with it, and with a larger share.
TEMPERED, PLATEAU, OF_PLATEAU = 0.3, 1.5, 0.1
FARTHEST = 1000.0  # times the distance where a tail begins, however wide the prior is
DEEPEST = 1e6  # nats below the mode, where the density fails
STEPS, EXACT = 60, 1e-13  # at most, towards a value, and the relative error at which it is found


class Scale:
    r"""A monotone function ``t(z)`` that makes a mixture of normals standard normal.

    ``Phi(z) = sum_k w_k Phi((t(z) - m_k) / s_k)``, with `shares` w, `means` m and `sds` s (k,).
    """

    def __init__(self, shares, means, sds):
        self._logs, self._means, self._sds = np.log(shares), np.asarray(means), np.asarray(sds)

    def inverse(self, t: np.ndarray) -> np.ndarray:
        """Normal scores z (n,) of values (n,)."""
        u = self._standard(t)
        below = np.logaddexp.reduce(self._logs + log_ndtr(u), axis=1)
        above = np.logaddexp.reduce(self._logs + log_ndtr(-u), axis=1)
        return np.where(below < above, ndtri_exp(below), -ndtri_exp(above))

    def forward(self, z: np.ndarray) -> np.ndarray:
        """Values t (n,), by Newton's steps, halved intervals where these leave the parts' quantiles."""
        quantiles = self._means + self._sds * z[:, None]
        low, high = quantiles.min(axis=1), quantiles.max(axis=1)
        t = 0.5 * (low + high)
        for _ in range(STEPS):
            found = self.inverse(t)
            if (np.abs(found - z) <= EXACT * (1.0 + np.abs(z))).all():
                break
            low, high = np.where(found < z, t, low), np.where(found < z, high, t)
            t = t + (z - found) * np.exp(self.slope(found, t)[0])
            t = np.where((low <= t) & (t <= high), t, 0.5 * (low + high))
        return t

    def slope(self, z: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``log dt/dz`` (n,) and its derivative with respect to z (n,), at z and ``t = t(z)``."""
        u = self._standard(t)
        parts = self._logs - np.log(self._sds) - 0.5 * u**2
        total = np.logaddexp.reduce(parts, axis=1)
        log_slope = -0.5 * z**2 - total
        steepness = -(np.exp(parts - total[:, None]) * u / self._sds).sum(axis=1)
        return log_slope, -z - steepness * np.exp(log_slope)

    def _standard(self, t):
        return (t[:, None] - self._means) / self._sds


class Rescaled:
    """A density of ``z`` (p,), of which some are parameters ``theta_j = t_j(z_j)``, the others theirs."""

    def __init__(self, density, scales: dict[int, Scale]):
        self.density, self.scales = density, scales

    @property
    def size(self) -> int:
        """Number p of parameters."""
        return self.density.size

    @property
    def evaluations(self) -> int:
        """Densities so far."""
        return self.density.evaluations

    def values(self, z: np.ndarray) -> np.ndarray:
        """Log densities (n,) at `z` (n, p)."""
        theta = self.forward(z)
        return self.density.values(theta) + self._slopes(z, theta)[0].sum(axis=1)

    def with_gradients(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log densities (n,) and gradients (n, p) at `z` (n, p)."""
        theta = self.forward(z)
        logp, gradient = self.density.with_gradients(theta)
        log_slope, change = self._slopes(z, theta)
        return logp + log_slope.sum(axis=1), gradient * np.exp(log_slope) + change

    def farthest(self, z: np.ndarray) -> str:
        """Name and value of the parameter that is farthest from 0."""
        return self.density.farthest(self.forward(z[None])[0])

    def forward(self, z: np.ndarray) -> np.ndarray:
        """Parameters (n, p)."""
        theta = z.copy()
        for j, scale in self.scales.items():
            theta[:, j] = scale.forward(z[:, j])
        return theta

    def modes(self, known: Mode) -> list[Mode]:
        """The mode in z near one of the parameters; and that one, if the search went far away from it.

        What is likely in few parameters' scales may be unlikely in others'; both are then starts of
        proposals. Raises ValueError where there is no mode.
        """
        z = known.location.copy()
        for j, scale in self.scales.items():
            z[j] = scale.inverse(z[None, j])[0]
        log_slopes = self._slopes(z[None], known.location[None])[0][0]
        factor = known.factor / np.exp(log_slopes)[:, None]
        found = mode_near(self, z, factor)
        if not found.is_far(z)[0]:
            return [found]
        return [found, Mode(z, known.logp + log_slopes.sum(), factor)]

    def restored(self, weighed):
        """Weighed points as those of the parameters; weights are the same."""
        theta = self.forward(weighed.points)
        log_slope = self._slopes(weighed.points, theta)[0].sum(axis=1)
        return replace(weighed, points=theta, logp=weighed.logp - log_slope)

    def _slopes(self, z, theta):
        """Log of each ``dtheta/dz`` (n, p), and its derivative."""
        log_slope, change = np.zeros(z.shape), np.zeros(z.shape)
        for j, scale in self.scales.items():
            log_slope[:, j], change[:, j] = scale.slope(z[:, j], theta[:, j])
        return log_slope, change


def rescaled(density, modes: list[Mode], rng) -> tuple[Rescaled, list[Mode]]:
    """The density where long tails of the first mode are short, and where its proposals start.

    Proposals are fitted around modes and to points that came near them: in many dimensions no point comes
    into a long tail, and weights do not tell of it. Where no mode is found in the new coordinates, all
    stay as they are, and a warning says so.
    """
    found = Rescaled(density, _scales(density, modes[0], rng))
    if not found.scales:
        return found, modes
    try:
        return found, [each for mode in modes for each in found.modes(mode)]
    except ValueError:
        warn(
            "The posterior has a long tail, and no mode on the scale on which it is short: draws may miss "
            "a part of the tail. Compare with pm.sample"
        )
        return Rescaled(density, {}), modes


def _scales(density, mode: Mode, rng) -> dict[int, Scale]:
    """Scales, by coordinate, along which a mode has a long tail.

    Along each coordinate, with the others at the mode, the density is taken at a few points to either
    side, from `NEAR` sds to the edge of the prior, in geometric distances.
    """
    sds = np.sqrt((mode.factor**2).sum(axis=1))
    draws = density.from_prior(DRAWS, rng, mode.location, IMPROPER * sds)
    edges = np.quantile(draws, [EDGE, 1.0 - EDGE], axis=0)
    tried = []
    for sign, edge in zip((-1.0, 1.0), edges, strict=True):
        reach = np.minimum(sign * (edge - mode.location) / (NEAR * sds), FARTHEST)
        tried += [(j, sign, reach[j]) for j in np.flatnonzero(reach > FARTHER)]
    if not tried:
        return {}
    points = np.tile(mode.location, (len(tried) * PROBES, 1))
    away = [NEAR * sds[j] * r ** np.linspace(0.0, 1.0, PROBES) for j, _, r in tried]
    for i, (j, sign, _) in enumerate(tried):
        points[i * PROBES : (i + 1) * PROBES, j] += sign * away[i]
    logs = (density.values(points) - mode.logp).clip(-DEEPEST).reshape(-1, PROBES)
    own = np.sqrt(2.0 * np.pi / np.diag(np.linalg.inv(mode.factor @ mode.factor.T)))
    tails: dict[int, list] = {}
    for (j, sign, _), distance, log in zip(tried, away, logs, strict=True):
        mass, mean, sd = _moments(distance, log)
        if mass > LEAST * own[j]:
            share = np.clip(MORE * mass / (own[j] + MORE * mass), *SHARES)
            _, *wider = _moments(distance, TEMPERED * log)
            if wider[1] < PLATEAU * sd:
                (mean, sd), share = wider, max(share, OF_PLATEAU)
            tails.setdefault(j, []).append((share, mode.location[j] + sign * mean, max(sd, sds[j])))
    return {j: _scale(mode.location[j], sds[j], parts) for j, parts in tails.items()}


def _scale(location, sd, tails) -> Scale:
    """The scale of a mode's normal and its tails, each a share, a mean and an sd."""
    shares, means, sds = (np.array(each) for each in zip(*tails, strict=True))
    return Scale(np.append(shares, 1.0 - shares.sum()), [*means, location], [*sds, sd])


def _moments(x, logs):
    """Mass, mean and sd of a density, its log linear between nodes `x` (k,); zero mass where it fails."""
    fine = np.geomspace(x[0], x[-1], 400)
    p = np.exp(np.interp(fine, x, logs))
    mass = np.trapezoid(p, fine)
    if not mass > 0.0:
        return 0.0, x[0], 0.0
    mean = np.trapezoid(p * fine, fine) / mass
    return mass, mean, np.sqrt(np.trapezoid(p * (fine - mean) ** 2, fine) / mass)
