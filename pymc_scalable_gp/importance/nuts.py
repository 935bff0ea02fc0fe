"""NUTS from what importance sampling has learnt."""

import numpy as np
import pymc as pm
from pymc.step_methods.hmc.quadpotential import QuadPotentialFull

from pymc_scalable_gp.importance.rounds import CHAINS

LEAST_TUNING, RIDGE = 200, 0.05


def go_on_with_nuts(density, weighed, draws: int, rng, progressbar: bool):
    """Result of ``pm.sample`` from near the weighted mean, with the weighted covariance as mass matrix.

    The covariance is shrunk towards its diagonal while few points carry the weight.
    """
    mean, cov = weighed.moments()
    p = density.size
    trust = weighed.ess / (weighed.ess + 2.0 * p)
    # Where all weight is on one point there is no covariance: the proposals' own spread stands in.
    spread = np.cov(weighed.points.T).reshape(p, p)
    cov = trust * cov + (1.0 - trust) * np.diag(np.diag(spread))
    cov[np.diag_indices(p)] *= 1.0 + RIDGE
    starts = _untransformed(density, mean)
    with density.model:
        step = pm.NUTS(potential=QuadPotentialFull(cov), is_cov=True, model=density.model)
        return pm.sample(
            draws=max(draws // 2, 100), tune=LEAST_TUNING, chains=CHAINS, cores=1, step=step,
            initvals=starts, random_seed=int(rng.integers(2**31)), progressbar=progressbar,
        )  # fmt: skip


def _untransformed(density, theta) -> dict:
    """Values of the free variables at `theta` (p,), by name."""
    shown = density.shown(np.asarray(theta))
    return {v.name: shown[v.name] for v in density.model.free_RVs}
