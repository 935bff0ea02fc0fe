"""Weighted points as the DataTree that pm.sample would return."""

import json

import numpy as np
import xarray as xr
from pymc.backends.arviz import to_inference_data

from pymc_scalable_gp.importance.rounds import CHAINS

TINY = 1e-9  # distance from 0 and 1 at which a probability counts as either


def resample(weights: np.ndarray, count: int, rng, balance=None) -> np.ndarray:
    """Indices (count,) of draws with given weights, in random order, copies of a point side by side.

    Each point has ``count * w`` copies rounded up or down, with that expectation, so that the draws keep
    the weighted means of the columns of `balance` (n, q): the cube method (Deville and Tillé 2004). Copies
    side by side count as autocorrelation, so that an effective sample size does not count them twice.
    """
    expected = count * weights / weights.sum()
    copies = np.floor(expected)
    share = expected - copies
    constraints = np.ones((1, len(weights)))
    if balance is not None:
        constraints = np.concatenate([constraints, balance.T])
    # Once none of the walks can keep all means, it goes on with the first half of them, at last the count.
    rows = len(constraints)
    while rows:
        share, rows = _walk(share, constraints[:rows], rng), rows // 2
    copies = (copies + np.round(share)).astype(int)
    names = rng.permutation(np.flatnonzero(copies))
    return np.repeat(names, copies[names])


def _walk(share, constraints, rng):
    """A random walk of probabilities to 0 or 1 that keeps ``constraints @ share`` and each expectation."""
    share, q = share.copy(), len(constraints)
    waiting = list(rng.permutation(np.flatnonzero((share > TINY) & (share < 1.0 - TINY))))
    active = []
    while len(active) + len(waiting) > q:
        while len(active) <= q:
            active.append(waiting.pop())
        step = np.linalg.qr(constraints[:, active].T, mode="complete")[0][:, -1]
        at = share[active]
        with np.errstate(divide="ignore"):
            up = np.where(step > 0.0, (1.0 - at) / step, -at / step)[step != 0.0].min()
            down = np.where(step > 0.0, at / step, (at - 1.0) / step)[step != 0.0].min()
        move = up if rng.random() * (up + down) < down else -down
        share[active] = at + move * step
        active = [i for i in active if TINY < share[i] < 1.0 - TINY]
    return share


def equally_weighted(weighed, rng) -> np.ndarray:
    """Indices (4, m) of points that become draws, so that each chain keeps its own means and variances."""
    count = max(int(weighed.ess // CHAINS), 4)
    mean, cov = weighed.moments()
    sd = np.sqrt(np.diag(cov))
    z = (weighed.points - mean) / np.where(sd > 0.0, sd, 1.0)
    balance = np.concatenate([z, z**2], axis=1)
    rows = []
    for chain in range(CHAINS):
        mine = np.flatnonzero((weighed.chain == chain) & (weighed.weights > 0.0))
        if not len(mine):
            mine = np.flatnonzero(weighed.weights > 0.0)
        rows.append(mine[resample(weighed.weights[mine], count, rng, balance[mine])])
    return np.array(rows)


def as_tree(density, weighed, seconds: dict, rng):
    """DataTree with posterior, sample_stats, observed_data and constant_data; `seconds` are by phase."""
    which = equally_weighted(weighed, rng)
    attrs = {
        "sampling_method": "adaptive importance sampling",
        "khat": weighed.khat,
        "ess": weighed.ess,
        "evaluations": density.evaluations,
        "gradients": density.gradients,
        "failures": len(density.failed),
        "log_evidence": weighed.log_evidence,
        "log_evidence_se": weighed.log_evidence_se,
        "flat_priors": density.flat_priors,
        "seconds": json.dumps({name: round(v, 3) for name, v in seconds.items()}),
    }
    dims = ("chain", "draw")
    stats = {"lp": (dims, weighed.logp[which]), "log_weight": (dims, weighed.log_weight[which])}
    return tree_of(density, weighed.points[which], attrs, xr.Dataset(stats), rng)


def tree_of(density, draws: np.ndarray, attrs: dict, stats: xr.Dataset, rng):
    """DataTree of `draws` (chain, draw, p) of the unconstrained parameters and their statistics."""
    values = density.shown(draws, int(rng.integers(2**31)))
    # The converter takes draws without a chain, and splits them from observed variables by name.
    count = int(np.prod(draws.shape[:2]))
    flat = {name: v.reshape(count, *v.shape[2:]) for name, v in values.items()}
    tree = to_inference_data(prior=flat, model=density.model)
    posterior = tree["prior"].to_dataset().isel(chain=0, drop=True)
    found = {}
    for name, v in posterior.data_vars.items():
        dims = ("chain", "draw", *v.dims[1:])
        found[name] = (dims, v.values.reshape(*draws.shape[:2], *v.shape[1:]))
    coords = {name: c for name, c in posterior.coords.items() if name != "draw"}
    coords |= {"chain": np.arange(draws.shape[0]), "draw": np.arange(draws.shape[1])}
    posterior = xr.Dataset(found, coords=coords)
    own = {name: v for name, v in tree["prior"].attrs.items() if isinstance(v, str)}
    posterior.attrs = own | attrs
    stats = stats.assign_coords({name: posterior[name] for name in ("chain", "draw")})
    groups = {"posterior": posterior, "sample_stats": stats}
    for name in ("observed_data", "constant_data"):
        if name in tree.children:
            groups[name] = tree[name].to_dataset()
    return xr.DataTree.from_dict({f"/{name}": each for name, each in groups.items()})
