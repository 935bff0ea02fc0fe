"""Mode of a log density and the curvature there."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

STEP = 1e-3  # of the central differences, in units of the quasi-Newton estimate of the scale
WIDEST = 5.0  # standard deviation along an axis without curvature
AXIAL = 1.5  # where an axis is compared with the normal's, in standard deviations


class Mode(NamedTuple):
    """A mode: location (p,), log density, and factor L (p, p) with ``L L'`` its covariance."""

    location: np.ndarray
    logp: float
    factor: np.ndarray

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Mahalanobis distances (n,) of `points` (n, p)."""
        white = np.linalg.solve(self.factor, (np.atleast_2d(points) - self.location).T)
        return np.sqrt((white**2).sum(axis=0))

    @property
    def log_mass(self) -> float:
        """Laplace's approximation of the log mass around the mode, up to a constant."""
        return self.logp + float(np.linalg.slogdet(self.factor)[1])


def climb(density, start: np.ndarray, maxiter: int = 200, near=None):
    """Highest point found by L-BFGS from `start` (p,), and scales (p,) of the coordinates there.

    `near`, a function of a point, ends the search early where it is true.
    """
    best = {"x": start, "value": -np.inf}

    def objective(x):
        value, gradient = (found[0] for found in density.with_gradients(x[None]))
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return 1e100, np.zeros_like(x)
        if value > best["value"]:
            best.update(x=x.copy(), value=value)
        return -value, -gradient

    def stop(intermediate_result):
        if near is not None and near(intermediate_result.x):
            raise StopIteration

    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", callback=stop,
        options={"maxiter": maxiter, "ftol": 1e-10, "gtol": 1e-4, "maxls": 40},
    )  # fmt: skip
    scales = np.sqrt(np.clip(np.diag(found.hess_inv.todense()), 1e-10, 1.0))
    return best["x"], best["value"], scales


def find_mode(density, start: np.ndarray, maxiter: int = 200, near=None) -> Mode:
    """Mode by L-BFGS from `start` (p,), with its curvature.

    Raises
    ------
    ValueError
        If the density is not finite at the start.
    """
    location, logp, scales = climb(density, start, maxiter, near)
    if not np.isfinite(logp):
        raise ValueError(
            "the log density or its gradient is not finite where the search of the mode starts: give "
            "start={...} with values of plausible size, or initval= to the priors"
        )
    return Mode(location, logp, _factor(density, location, logp, scales))


def _factor(density, location, logp, scales) -> np.ndarray:
    """Factor (p, p) of the covariance, axes in columns.

    The Hessian's columns are ``(g(m + h e_i) - g(m - h e_i)) / (2 h)``. Eigenvalues that are not
    positive are floored, and each axis is then scaled so that the density falls along it about as a
    normal density would.
    """
    steps = np.diag(STEP * scales)
    points = np.concatenate([location + steps, location - steps])
    _, gradients = density.with_gradients(points)
    p = len(location)
    hessian = (gradients[:p] - gradients[p:]) / (2.0 * np.diag(steps)[:, None])
    hessian = np.where(np.isfinite(hessian), hessian, 0.0)
    values, axes = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    sds = 1.0 / np.sqrt(np.where(values > WIDEST**-2 * 1e-4, values, WIDEST**-2))
    return axes * _scaled(density, location, logp, axes, sds)


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
