"""Coordinates in which a parameter with a narrow mode and a long tail is near normal."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from pymc_scalable_gp.importance.mode import NEAR_GAIN, Mode, climb, mode_at, mode_near
from pymc_scalable_gp.utils.warn import warn

NEAR = 3.0  # standard deviations from a mode where a tail begins
FARTHER = 1.2  # times that, which the prior must reach for a tail to be looked for
PROBES = 4  # densities to either side of a mode along a coordinate
DRAWS = 128  # from the prior
EDGE = 0.02  # quantile of these, to either side, up to which a tail is looked for
IMPROPER = 30.0  # sds up to which it is, if the prior is improper
LEAST = 0.002  # mass of a tail relative to the mode's, of which a normal has .0013 there
LONG = 5.0  # sds from the mode to the mean of a tail: proposals are fitted to skew that reaches less far
MORE = 3.0  # mass of a tail, relative to that with all other parameters at their mode
SHARES = 0.05, 0.3  # of a tail in its parameter's mixture, at least and at most
# Where others follow a parameter into its tail, the density falls less than with all of them at the mode:
# a plateau, on which the density to this power is hardly wider, is taken with it, and with a larger share.
TEMPERED, PLATEAU, OF_PLATEAU = 0.3, 1.5, 0.1
FARTHEST = 1000.0  # times the distance where a tail begins, however wide the prior is
FOLLOWED = 1  # of the densities along a coordinate, the one from which others follow
HOPELESS = 15.0  # nats below the mode, from where on they do not
STEPS_UP = 8  # of theirs, at most
GAIN, LOWEST = 3.0, 12.0  # nats that they gain at least, and below the mode at most, in an arm
OF_ITS_OWN = 0.2  # sds of the mode: the scale of a tail's own coordinate there
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

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Gradients (n, p) at `z` (n, p), where densities are known."""
        theta = self.forward(z)
        log_slope, change = self._slopes(z, theta)
        return self.density.slopes(theta) * np.exp(log_slope) + change

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
        same = self.at(known)
        found = mode_near(self, same.location, same.factor)
        return [found, same] if found.is_far(same.location)[0] else [found]

    def at(self, known: Mode) -> Mode:
        """What is known at a point of the parameters, at that point in z."""
        z = known.location.copy()
        for j, scale in self.scales.items():
            z[j] = scale.inverse(z[None, j])[0]
        log_slopes = self._slopes(z[None], known.location[None])[0][0]
        return Mode(z, known.logp + log_slopes.sum(), known.factor / np.exp(log_slopes)[:, None])

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
    into a long tail, and weights do not tell of it. They start at the modes, and at each `_arm` into which
    other parameters follow one. Where no mode is found in the new coordinates, all stay as they are, and
    a warning says so.
    """
    tails = _tails(density, modes[0], rng)
    arms = {(t.j, t.sign): arm for t in tails if (arm := _arm(density, modes[0], t)) is not None}
    straight = [t for t in tails if (t.j, t.sign) not in arms]
    found = Rescaled(density, _scales(modes[0], straight))
    try:
        starts = [each for mode in modes for each in found.modes(mode)] if found.scales else modes
    except ValueError:
        warn(
            "The posterior has a long tail, and no mode on the scale on which it is short: draws may miss "
            "a part of the tail. Compare with pm.sample"
        )
        found, starts = Rescaled(density, {}), modes
    return found, [*starts, *(found.at(arm) for arm in arms.values())]


class Tail(NamedTuple):
    """Log densities (k,), less the mode's, at distances (k,) along coordinate `j`, others at the mode."""

    j: int
    sign: float
    distance: np.ndarray
    log: np.ndarray


def _tails(density, mode: Mode, rng) -> list[Tail]:
    """Log densities along each coordinate from `NEAR` sds to the prior's edge, where that is far."""
    sds = mode.sds
    draws = density.from_prior(DRAWS, rng, mode.location, IMPROPER * sds)
    largest = np.finfo(float).max
    draws = draws.clip(-largest, largest)  # infinite at a bound of the prior
    edges = np.quantile(draws, [EDGE, 1.0 - EDGE], axis=0)
    tried = []
    for sign, edge in zip((-1.0, 1.0), edges, strict=True):
        reach = np.minimum(sign * (edge - mode.location) / (NEAR * sds), FARTHEST)
        tried += [(j, sign, reach[j]) for j in np.flatnonzero(reach > FARTHER)]
    if not tried:
        return []
    points = np.tile(mode.location, (len(tried), PROBES, 1))
    away = [NEAR * sds[j] * r ** np.linspace(0.0, 1.0, PROBES) for j, _, r in tried]
    for along, (j, sign, _), distance in zip(points, tried, away, strict=True):
        along[:, j] += sign * distance
    logs = (density.values(points.reshape(-1, len(sds))) - mode.logp).clip(-DEEPEST)
    return [
        Tail(j, sign, distance, log)
        for (j, sign, _), distance, log in zip(tried, away, logs.reshape(-1, PROBES), strict=True)
    ]


def _arm(density, mode: Mode, tail: Tail) -> Mode | None:
    """Where the density is far higher in a tail if other parameters follow, with the curvature there.

    As lengthscales do: where one is long another is short. From a point of the tail the others take a few
    steps in units of the mode's conditional factor ``L - c_j l_j / c_jj``, of which row j is zero, with l_j
    that row of L and c_j that column of ``L L'``. Coordinate j is held: there is no mode, but proposals are
    fitted to what lies around. None where little is gained, over the tail or over the mode's normal there,
    whose parameters follow one another as well; or where the density fails beside the point.
    """
    j, known = tail.j, tail.log[FOLLOWED]
    if known < -HOPELESS:
        return None
    point = mode.location.copy()
    point[j] += tail.sign * tail.distance[FOLLOWED]
    column = mode.factor @ mode.factor[j]
    factor = mode.factor - np.outer(column / column[j], mode.factor[j])
    found, logp, _ = climb(density, point, maxiter=STEPS_UP, factor=factor, gain=NEAR_GAIN)
    normal = -0.5 * (tail.distance[FOLLOWED] / mode.sds[j]) ** 2
    if logp - mode.logp < max(known + GAIN, normal + GAIN, -LOWEST):
        return None
    scales = np.sqrt((factor**2).sum(axis=1))
    scales[j] = OF_ITS_OWN * mode.sds[j]
    try:
        return mode_at(density, found, logp, scales)
    except ValueError:
        return None


def _scales(mode: Mode, tails: list[Tail]) -> dict[int, Scale]:
    """Scales, by coordinate, along which a mode has a long tail."""
    sds = mode.sds
    own = np.sqrt(2.0 * np.pi / np.diag(np.linalg.inv(mode.factor @ mode.factor.T)))
    parts: dict[int, list] = {}
    for j, sign, distance, log in tails:
        mass, mean, sd = _moments(distance, log)
        if mass > LEAST * own[j] and mean > LONG * sds[j]:
            share = np.clip(MORE * mass / (own[j] + MORE * mass), *SHARES)
            _, *wider = _moments(distance, TEMPERED * log)
            if wider[1] < PLATEAU * sd:
                (mean, sd), share = wider, max(share, OF_PLATEAU)
            parts.setdefault(j, []).append((share, mode.location[j] + sign * mean, max(sd, sds[j])))
    found = {}
    for j, each in parts.items():
        shares, means, widths = zip(*each, strict=True)
        shares = np.append(shares, 1.0 - np.sum(shares))
        found[j] = Scale(shares, [*means, mode.location[j]], [*widths, sds[j]])
    return found


def _moments(x, logs):
    """Mass, mean and sd of a density, its log linear between nodes `x` (k,); zero mass where it fails."""
    fine = np.geomspace(x[0], x[-1], 400)
    p = np.exp(np.interp(fine, x, logs))
    mass = np.trapezoid(p, fine)
    if not mass > 0.0:
        return 0.0, x[0], 0.0
    mean = np.trapezoid(p * fine, fine) / mass
    return mass, mean, np.sqrt(np.trapezoid(p * (fine - mean) ** 2, fine) / mass)
