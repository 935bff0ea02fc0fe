"""Mode of a log density and the curvature there."""

from typing import NamedTuple

import numpy as np

from pymc_scalable_gp.utils.lbfgs import lowest

STEP = 1e-3  # of the central differences, in units of the quasi-Newton estimate of the scale
WIDEST = 5.0  # standard deviation along an axis without curvature
NEAR_GAIN = 0.1  # nats of a step, below which a mode is near enough for proposals
SMALL_GAIN, SMALL_STEPS = 0.02, 2  # nats, and steps in a row that gain less, where a search pauses
REST = 0.005  # nats that Newton's step may leave
KEPT = 0.5  # of what the curvature promises, that a search in units of it gains near a mode
MOVED = 0.5  # nats of a way, after which the curvature is taken again
CURVATURES = 4  # taken at most
AXIAL = 1.5  # where an axis is compared with the normal's, in standard deviations
SINGULAR = 1e7  # condition of the factor, in sds, above which the covariance has no inverse
FLAT = 50.0  # standard deviation along an axis, from which its ends are looked at
ENDLESS = 1e15  # units from the mode to there: a prior of any sensible width has fallen
BOUND = 300.0  # of a transformed parameter, which is within e^-300 of its bound, or above e^300
FAR = 3.0  # times sqrt(p): standard deviations from a mode to a point that it does not explain


class Mode(NamedTuple):
    """A mode: location (p,), log density, and factor L (p, p) with ``L L'`` its covariance."""

    location: np.ndarray
    logp: float
    factor: np.ndarray

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Mahalanobis distances (n,) of `points` (n, p)."""
        white = np.linalg.solve(self.factor, (np.atleast_2d(points) - self.location).T)
        return np.sqrt((white**2).sum(axis=0))

    def is_far(self, points: np.ndarray) -> np.ndarray:
        """Whether `points` (n, p) lie too far off to be this mode's, (n,)."""
        return self.distance(points) > FAR * np.sqrt(len(self.location))

    @property
    def sds(self) -> np.ndarray:
        """Standard deviations (p,) of the coordinates."""
        return np.sqrt((self.factor**2).sum(axis=1))

    @property
    def halfway(self) -> np.ndarray:
        """Square root of the factor's size along its axes (p, p).

        Far from a mode its curvature is not the density's, yet tells which coordinates are steep.
        """
        axes, sds, _ = np.linalg.svd(self.factor)
        return axes * np.sqrt(sds)

    @property
    def log_mass(self) -> float:
        """Laplace's approximation of the log mass around the mode, up to a constant."""
        return self.logp + float(np.linalg.slogdet(self.factor)[1])


class Unbounded(ValueError):
    """A density that rises without bound where a search ended, at `end`."""

    def __init__(self, message: str, end: Mode):
        super().__init__(message)
        self.end = end


def climb(density, start: np.ndarray, maxiter: int = 200, near=None, factor=None, gain=0.0, steps: int = 1):
    """Highest point found by L-BFGS from `start` (p,), its value, and scales (p,) of the coordinates there.

    With a `factor` L (p, p) the search takes its steps in units of it, as ``start + L z``. It ends early
    where ``near(point)`` is true, or `steps` in a row raise the log density by less than `gain` each.
    """
    own, factor = factor is None, np.eye(len(start)) if factor is None else factor
    last, small = np.inf, 0

    def objective(z):
        value, gradient = (found[0] for found in density.with_gradients((start + factor @ z)[None]))
        return -value, -gradient @ factor

    def arrived(z, value):
        nonlocal last, small
        small = small + 1 if last - value < gain else 0
        last = value
        return small >= steps or (near is not None and near(start + factor @ z))

    found = lowest(
        objective, np.zeros(len(start)), maxiter=maxiter, stop=arrived, ftol=1e-10, gtol=1e-4,
        maxls=40,
    )  # fmt: skip
    scales = np.sqrt((factor**2).sum(axis=1))
    if own and found.hess_inv is not None:
        scales = np.sqrt(np.clip(np.diag(found.hess_inv.todense()), 1e-10, 1.0))
    return start + factor @ found.theta, -found.value, scales


def mode_near(density, start: np.ndarray, factor: np.ndarray) -> Mode:
    """Mode near another, searched in units of its factor (p, p); ValueError if not finite at the start."""
    found = climb(density, start, maxiter=50, factor=factor, gain=NEAR_GAIN)
    _check_finite(found[1], "at the mean of the draws: are they draws of this model?")
    return mode_at(density, *found)


def find_mode(density, start: np.ndarray, maxiter: int = 200, near=None, factor=None) -> Mode | None:
    """Mode by L-BFGS from `start` (p,), with its curvature; None where it is `near` a known one.

    It begins in units of a `factor` (p, p). On a ridge steps get small far from the mode. Where a few are,
    the curvature tells what is left of the way: a step of Newton's ends it, or the search goes on in units
    of it. Where that gains less than it promises, as on a ridge that bends, the search goes on in the
    coordinates' own units until nothing is gained. Raises ValueError if the density is not finite at the
    start, or has no mode, because it rises up to where it fails or without bound.
    """
    ends: dict = {"maxiter": maxiter, "near": near}
    pauses, whole = ends | {"gain": SMALL_GAIN, "steps": SMALL_STEPS}, False
    location, logp, scales = climb(density, start, factor=factor, **pauses)
    for _ in range(CURVATURES):
        if near is not None and near(location):
            return None
        _check_finite(
            logp, "where the search of the mode starts: give start={...} with values of plausible "
            "size, or initval= to the priors",
        )  # fmt: skip
        factor, step, left, fits = _curvature(density, location, logp, scales)
        before = logp
        if whole or (fits and left <= NEAR_GAIN):
            there = location + step
            value = density.values(there[None])[0] if left > REST else logp
            location, logp = (there, value) if value > logp else (location, logp)
            break
        location, logp, scales = climb(density, location, factor=factor, **pauses)
        if logp - before > MOVED:
            continue
        if logp - before > KEPT * left:
            break
        whole = True
        location, logp, scales = climb(density, location, **ends)
    return _checked(density, Mode(location, logp, factor))


def _checked(density, mode: Mode) -> Mode:
    """The mode; raise ValueError where there is none, or no proper posterior around it.

    Where some parameters are all but functions of others there, or an axis is flat to its ends; or where a
    transformed one is so near its bound that squares vanish.
    """
    if np.abs(mode.location).max() > BOUND and "__ = " in density.farthest(mode.location):
        raise _at_an_edge(density, mode.location)
    if np.linalg.cond(mode.factor / mode.sds[:, None]) > SINGULAR:
        raise Unbounded(
            "the log density rises without bound, so that it has no mode: the search ended at "
            f"{density.farthest(mode.location)} (unconstrained), where some parameters leave others no "
            "room, as a scale near zero does that of effects: write these as scale * pm.Normal(...), "
            "non-centred, or use pm.sample",
            mode,
        )
    lengths = np.sqrt((mode.factor**2).sum(axis=0))
    for axis in (mode.factor / lengths).T[lengths > FLAT]:
        values = density.values(mode.location + ENDLESS * np.array([axis, -axis]))
        if mode.logp - values.max() < 1.0:
            name = density.farthest(axis).split(" = ")[0]
            raise ValueError(
                f"the log density does not fall as {name} goes on, so that the posterior is improper: give "
                f"{name} a proper prior"
            )
    return mode


def _check_finite(logp: float, where: str) -> None:
    if not np.isfinite(logp):
        raise ValueError(f"the log density or its gradient is not finite {where}")


def mode_at(density, location: np.ndarray, logp: float, scales: np.ndarray) -> Mode:
    """A point (p,) with the curvature there, by steps in units of `scales` (p,); ValueError at an edge."""
    factor = _curvature(density, location, logp, scales)[0]
    return _checked(density, Mode(location, logp, factor))


def _curvature(density, location, logp, scales) -> tuple[np.ndarray, np.ndarray, float, bool]:
    """Factor (p, p) of the covariance, axes in columns; Newton's step (p,), and what that promises.

    And whether the density falls along no axis much faster than its curvature says.

    The Hessian's columns are ``(g(m + h e_i) - g(m - h e_i)) / (2 h)``. Eigenvalues that are not
    positive are floored, and each axis is then scaled so that the density falls along it about as a
    normal density would. Raises ValueError where there is no mode.
    """
    steps = np.diag(STEP * scales)
    points = np.concatenate([location + steps, location - steps])
    values, gradients = density.with_gradients(points)
    p = len(location)
    _refuse_an_edge(density, location, logp - values.reshape(2, p))
    hessian = (gradients[:p] - gradients[p:]) / (2.0 * np.diag(steps)[:, None])
    hessian = np.where(np.isfinite(hessian), hessian, 0.0)
    values, axes = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    sds = 1.0 / np.sqrt(np.where(values > WIDEST**-2 * 1e-4, values, WIDEST**-2))
    slope = np.where(np.isfinite(gradients), gradients, 0.0).mean(axis=0)
    step = axes @ (sds**2 * (axes.T @ slope))
    scaled = _scaled(density, location, logp, axes, sds)
    return axes * scaled, step, 0.5 * float(slope @ step), bool((scaled >= sds).all())


def _refuse_an_edge(density, location, falls) -> None:
    """ValueError where a density rises to where it fails; `falls` (2, p) are its losses to either side."""
    fails = ~np.isfinite(falls)
    rising = np.where(fails, -np.inf, falls).max(axis=0) > STEP  # at a mode about STEP^2 / 2
    if (fails.any(axis=0) & (rising | fails.all(axis=0))).any():
        raise _at_an_edge(density, location)


def _at_an_edge(density, location) -> ValueError:
    return ValueError(
        "the log density rises up to where it cannot be computed, so that it has no mode: the search "
        f"ended at {density.farthest(location)} (unconstrained). If that is the scale of effects, write "
        "these as scale * pm.Normal(...), non-centred. Else data drive it to a bound, as they do the "
        "noise where targets have none: give it a prior that stays away from there, such as "
        "sigma = 0.01 + pm.HalfNormal(...)"
    )


def _scaled(density, location, logp, axes, sds, tries: int = 6):
    """Standard deviations (p,) along `axes` at which the density falls by about ``AXIAL^2 / 2``."""
    sds, open_ = sds.copy(), np.arange(len(sds))
    expected = 0.5 * AXIAL**2
    for _ in range(tries):
        reach = AXIAL * sds[open_] * axes[:, open_]
        falls = logp - density.values(np.concatenate([location + reach.T, location - reach.T]))
        fall = np.minimum(*falls.reshape(2, -1))  # of the longer side: the skew is the rounds' task
        steep, flat = fall > 3.0 * expected, fall < expected / 3.0
        sds[open_[steep]] *= 0.6
        sds[open_[flat]] *= 1.5
        open_ = open_[steep | flat]
        if not len(open_):
            break
    return sds
