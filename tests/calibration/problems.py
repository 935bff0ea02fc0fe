"""Data simulated from the exact Gaussian process, its parameters drawn from their priors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pymc as pm
from scipy.optimize import brentq

import pymc_scalable_gp as sgp

# Log-normal priors: median, and sd of the logarithm.
PRIORS = {"ell": (0.4, 0.35), "eta": (1.0, 0.3), "sigma": (0.25, 0.3)}
SHORT = PRIORS | {"ell": (0.2, 0.3)}  # lengthscales that a dozen features do not resolve
WIDE = PRIORS | {"ell": (1.2, 0.35)}  # for the distances between points of eight inputs
WEIGHTS = 15
FIXED_ELL = 0.4
JITTER = 1e-10  # of the prior variance, for a Cholesky factor of a smooth kernel's matrix


def scattered(n, d):
    """Uniform on the unit cube."""
    return np.random.default_rng(1).uniform(size=(n, d))


PLANE, LINE = scattered(48, 2), np.sort(scattered(40, 1), axis=0)
EIGHT = scattered(60, 8)
# Not a square: its equal eigenvalues would end the Krylov space of y early, and rounding go on.
GRID = sgp.RegularGrid([np.linspace(0.0, 1.0, 6), np.linspace(0.0, 1.0, 8)])
# One cell less: a complete grid is exact.
GAP = sgp.RegularGrid(GRID.axes, observed=np.arange(48).reshape(6, 8) != 27)
NEW = np.array([[0.5] * 8, [0.15, 0.7, 0.4, 0.6, 0.3, 0.5, 0.7, 0.4]])


THREE = np.column_stack([scattered(48, 1), np.arange(48) % 3])  # groups in the last column
# A common function, and one for each group.
GROUPS = PRIORS | {"own_ell": (0.3, 0.35), "spread": (0.5, 0.3)}


def squared_exponential(points, truth) -> np.ndarray:
    """Covariance of all points (p, d)."""
    square = ((points[:, None] - points) ** 2).sum(axis=-1)
    return truth.get("eta", 1.0) ** 2 * np.exp(-0.5 * square / truth.get("ell", FIXED_ELL) ** 2)


def matern32(points, truth) -> np.ndarray:
    """Covariance of all points (p, 1)."""
    u = np.sqrt(3.0) * np.abs(points - points.T) / truth["ell"]
    return truth["eta"] ** 2 * (1.0 + u) * np.exp(-u)


def by_groups(points, truth) -> np.ndarray:
    """Covariance of all points (p, 2): a common function of the first column, and each group's own."""
    own = {"eta": truth["spread"], "ell": truth["own_ell"]}
    same = points[:, 1:] == points[:, 1]
    return squared_exponential(points[:, :1], truth) + same * squared_exponential(points[:, :1], own)


@dataclass(frozen=True)
class Problem:
    """Inputs, priors and the noise: all that a data set is simulated from."""

    X: np.ndarray | sgp.RegularGrid
    priors: dict = field(default_factory=PRIORS.copy)
    noise: str = "normal"  # or "poisson", with the log link and a mean of one, or "bernoulli" of a logit
    weighted: bool = False  # whether the kernel's eigenfunctions have random weights
    cov: Callable = squared_exponential
    new: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """Inputs (n, d)."""
        return self.X.points if isinstance(self.X, sgp.RegularGrid) else self.X

    @property
    def Xnew(self) -> np.ndarray:
        """Two points between the inputs."""
        return self.new if self.new is not None else NEW[:, : self.rows.shape[1]]

    def truth(self, rng) -> dict[str, np.ndarray]:
        """Parameters from their priors."""
        values = {
            name: median * np.exp(sd * rng.standard_normal()) for name, (median, sd) in self.priors.items()
        }
        if self.weighted:
            location, scale = weights_location_scale()
            values["w"] = np.exp(location + scale * rng.standard_normal(WEIGHTS))
        return values

    def simulate(self, truth, rng) -> tuple[np.ndarray, np.ndarray]:
        """Function values at `Xnew`, and data, by a Cholesky factor of the exact kernel's matrix."""
        points = np.concatenate([self.rows, self.Xnew])
        cov = self.cov(points, truth)
        if self.weighted:
            phi = eigenfunctions()
            cov += (phi * (truth["w"] - 1.0)) @ phi.T  # of the kernel k + sum_j (w_j - 1) phi_j phi_j
        cov += JITTER * np.diag(cov).mean() * np.eye(len(points))
        f = np.linalg.cholesky(cov) @ rng.standard_normal(len(points))
        n = len(self.rows)
        if self.noise == "poisson":
            return f[n:], rng.poisson(np.exp(1.0 + f[:n])).astype(float)
        if self.noise == "bernoulli":
            return f[n:], (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-f[:n]))).astype(float)
        return f[n:], f[:n] + truth["sigma"] * rng.standard_normal(n)

    def medians(self) -> dict[str, float]:
        """The point at which approximations are built."""
        return {name: median for name, (median, _) in self.priors.items()}

    def variables(self) -> dict:
        """Random variables of the priors, in the model of the context."""
        return {name: pm.LogNormal(name, np.log(median), sd) for name, (median, sd) in self.priors.items()}


@cache
def eigenfunctions() -> np.ndarray:
    """The fixed kernel's leading eigenfunctions on the rows and new points of the plane."""
    cov = pm.gp.cov.ExpQuad(2, ls=FIXED_ELL)
    gp = sgp.GriefGP(cov_func=cov, rank=WEIGHTS)
    gp.build(PLANE)
    return gp.features(np.concatenate([PLANE, NEW[:, :2]])).eval()


@cache
def weights_location_scale() -> tuple[float, float]:
    """Of the logarithm of a log-normal variable with mode 1 and variance 100, as `weights_prior`'s."""
    s2 = brentq(lambda s: np.expm1(s) * np.exp(3.0 * s) - 100.0, 0.01, 5.0)
    return s2, np.sqrt(s2)
