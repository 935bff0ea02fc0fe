"""NUTS from what importance sampling has learnt."""

import numpy as np
import pymc as pm
from pymc.step_methods.hmc.quadpotential import QuadPotentialFull
from pytensor.graph.replace import graph_replace

from pymc_scalable_gp.importance.result import tree_of
from pymc_scalable_gp.importance.rounds import CHAINS

LEAST_TUNING, RIDGE = 200, 0.05


def go_on_with_nuts(density, weighed, draws: int, rng, progressbar: bool):
    """Result of ``pm.sample`` from near the weighted mean, with the weighted covariance as mass matrix."""
    shown = density.shown(weighed.moments()[0])
    starts = {v.name: shown[v.name] for v in density.model.free_RVs}
    return _sample(density.model, starts, density.size, weighed, draws, rng, progressbar)


def nuts_on_density(density, weighed, draws: int, rng, progressbar: bool):
    """As `go_on_with_nuts`, for a density that is not its model's own."""
    graphs = density.graphs
    with pm.Model(model=None) as model:  # not a part of the model of the context
        theta = pm.Flat("theta", shape=density.size)
        pm.Potential("logp", graph_replace(graphs.logp, {graphs.theta: theta.astype("float64")}))
    starts = {"theta": weighed.moments()[0]}
    found = _sample(model, starts, density.size, weighed, draws, rng, progressbar)
    posterior = found["posterior"].dataset
    attrs = {"sampling_method": "NUTS after adaptive importance sampling"}
    stats = found["sample_stats"].to_dataset()
    return tree_of(density, posterior["theta"].values, attrs, stats, rng)


def _sample(model, starts, p, weighed, draws, rng, progressbar):
    """Draws of a model with p parameters; the covariance shrinks to its diagonal while few points count."""
    _, cov = weighed.moments()
    trust = weighed.ess / (weighed.ess + 2.0 * p)
    # Where all weight is on one point there is no covariance: the proposals' own spread stands in.
    spread = np.cov(weighed.points.T).reshape(p, p)
    cov = trust * cov + (1.0 - trust) * np.diag(np.diag(spread))
    cov[np.diag_indices(p)] *= 1.0 + RIDGE
    with model:
        step = pm.NUTS(potential=QuadPotentialFull(cov), is_cov=True, model=model)
        return pm.sample(
            draws=max(draws // 2, 100), tune=LEAST_TUNING, chains=CHAINS, cores=1, step=step,
            initvals=starts, random_seed=int(rng.integers(2**31)), progressbar=progressbar,
        )  # fmt: skip
