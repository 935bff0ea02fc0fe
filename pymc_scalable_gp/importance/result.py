"""Weighted points as the DataTree that pm.sample would return."""

import json

import numpy as np
import xarray as xr
from pymc.backends.arviz import to_inference_data

from pymc_scalable_gp.importance.rounds import CHAINS


def resample(weights: np.ndarray, count: int, rng) -> np.ndarray:
    """Indices (count,) by systematic resampling in random order, copies of a point side by side.

    Copies then count as autocorrelation, so that an effective sample size does not count them twice.
    """
    order = rng.permutation(len(weights))
    total = np.cumsum(weights[order])
    ticks = (rng.random() + np.arange(count)) / count * total[-1]
    found = order[np.minimum(np.searchsorted(total, ticks), len(order) - 1)]
    names, copies = np.unique(found, return_counts=True)
    shuffle = rng.permutation(len(names))
    return np.repeat(names[shuffle], copies[shuffle])


def equally_weighted(weighed, rng) -> np.ndarray:
    """Indices (4, m) of the points that become draws, each chain from points of its own."""
    count = max(int(weighed.ess // CHAINS), 4)
    rows = []
    for chain in range(CHAINS):
        mine = np.flatnonzero((weighed.chain == chain) & (weighed.weights > 0.0))
        if not len(mine):
            mine = np.flatnonzero(weighed.weights > 0.0)
        rows.append(mine[resample(weighed.weights[mine], count, rng)])
    return np.array(rows)


def as_tree(density, weighed, seconds: dict, rng):
    """DataTree with posterior, sample_stats, observed_data and constant_data.

    Parameters
    ----------
    density : Density
    weighed : Weighed
    seconds : dict
        Seconds by phase.
    rng : numpy.random.Generator
    """
    which = equally_weighted(weighed, rng)
    values = density.shown(weighed.points[which])
    # The converter takes draws without a chain, and splits them from observed variables by name.
    flat = {name: v.reshape(-1, *v.shape[2:]) for name, v in values.items()}
    tree = to_inference_data(prior=flat, model=density.model)
    posterior = tree["prior"].to_dataset().isel(chain=0, drop=True)
    posterior = _by_chain(posterior, which.shape)
    attrs = {name: v for name, v in tree["prior"].attrs.items() if isinstance(v, str)}
    posterior.attrs = attrs | {
        "sampling_method": "adaptive importance sampling",
        "khat": weighed.khat,
        "ess": weighed.ess,
        "evaluations": density.evaluations,
        "gradients": density.gradients,
        "failures": density.failures,
        "log_evidence": weighed.log_evidence,
        "log_evidence_se": weighed.log_evidence_se,
        "seconds": json.dumps({name: round(v, 3) for name, v in seconds.items()}),
    }
    dims = ("chain", "draw")
    stats = xr.Dataset(
        {"lp": (dims, weighed.logp[which]), "log_weight": (dims, weighed.log_weight[which])},
        coords={name: posterior[name] for name in dims},
    )
    groups = {"posterior": posterior, "sample_stats": stats}
    for name in ("observed_data", "constant_data"):
        if name in tree.children:
            groups[name] = tree[name].to_dataset()
    return xr.DataTree.from_dict({f"/{name}": each for name, each in groups.items()})


def _by_chain(flat, shape):
    """A dataset over (draw,) as one over (chain, draw) of `shape`."""
    chains, draws = shape
    found = {}
    for name, v in flat.data_vars.items():
        values = v.values.reshape(chains, draws, *v.shape[1:])
        found[name] = (("chain", "draw", *v.dims[1:]), values)
    coords = {name: c for name, c in flat.coords.items() if name != "draw"}
    coords |= {"chain": np.arange(chains), "draw": np.arange(draws)}
    return xr.Dataset(found, coords=coords)
