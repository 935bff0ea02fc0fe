"""What several files of tests compare with: draws, dense densities, and a check's figures."""

import numpy as np
import pymc as pm
from pymc.distributions.shape_utils import change_dist_size
from scipy import stats

from pymc_scalable_gp.utils.compiled import FEW_CALLS


def draw_many(variable, count: int, random_seed) -> np.ndarray:
    """Draws (count, ...) of a random variable whose parameters, unlike in `pm.draw`, are computed once."""
    many = change_dist_size(variable, (count,), expand=True)
    return pm.draw(many, random_seed=random_seed, mode=FEW_CALLS)


def dense_marginal(phi, noise, residual, weights=None, kdiag=None, approx="DTC") -> float:
    """Log density by SciPy of ``residual`` under ``Phi W Phi' + D``, for "VFE" with its trace term."""
    n = residual.size
    low = (phi if weights is None else phi * weights) @ phi.T
    missed = np.zeros(n) if kdiag is None else np.maximum(kdiag - np.diag(low), 0.0)
    noise = np.broadcast_to(noise, n)
    cov = low + np.diag(noise + (missed if approx == "FITC" else 0.0))
    value = stats.multivariate_normal(np.zeros(n), cov, allow_singular=False).logpdf(residual)
    return float(value - (0.5 * (missed / noise).sum() if approx == "VFE" else 0.0))


def figures_at(gp, point, model=None) -> dict[str, float]:
    """What `gp.check` says of the approximation itself, at a point of the model."""
    found = gp.check(point, neighbors=None, progressbar=False, model=model).attrs
    return {name: value for name, value in found.items() if name not in ("verdict", "details")}
