"""Leave-one-out and leave-group-out predictions in closed form, mixed over posterior draws."""

from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_scalable_gp.core.data.draws import FEWEST, posterior_draws, refuse_failed
from pymc_scalable_gp.core.data.inputs import digest, held_value, refuse_masked
from pymc_scalable_gp.core.data.missing import refuse_replaced
from pymc_scalable_gp.utils.blocks import BLOCK, with_progress
from pymc_scalable_gp.utils.recent import Recent

EVEN = 1e-9  # nats between densities that are alike at all draws


class LeaveOut(NamedTuple):
    """ArviZ' `ELPDData`, and the probability integral transform (None for groups)."""

    elpd: Any
    pit: xr.DataArray | None


def leave_out(gp, cache: Recent, idata, groups, num_samples, progressbar, random_seed, model) -> LeaveOut:
    """Each row, or each group of rows, given all others; results for rows are kept in `cache`."""
    training = gp.training
    if training is None or training.gaussian is None:
        raise ValueError(
            f"{type(gp).__name__} has no marginal likelihood yet: call marginal_likelihood first (with a "
            "likelihood of your own, pm.compute_log_likelihood and az.loo are for you)"
        )
    if not training.has_rows:
        raise ValueError(
            "this likelihood knows its rows by their statistics alone: leave folds out by "
            "subtracting their statistics"
        )
    refuse_replaced(training)
    members = None if groups is None else check_groups(groups, len(held_value(training.X, "X")))
    made_of, now = (training, model), digest(*_replaceable(gp.variable, training))
    function = cache.get(made_of, ("precisions", now), lambda: training.precisions(model))
    rng = np.random.default_rng(random_seed)
    draws = posterior_draws(idata, function.inputs, model, num_samples, rng)
    if len(draws) < FEWEST:
        raise ValueError(
            f"{len(draws)} draws are too few for importance weights: leaving rows out needs {FEWEST}"
        )
    shape = draws.chains, len(draws) // draws.chains
    columns = zip(function.inputs, zip(*draws.values, strict=True), strict=True)
    posterior = {v.name: np.reshape(c, (*shape, *np.shape(c[0]))) for v, c in columns}

    def make():
        logp, below = _densities(function, draws.values, members, progressbar)
        refuse_failed(np.isnan(logp).any(axis=1), "density")
        logp = np.reshape(_told_apart(np.array(logp)), (*shape, -1))
        groups = {"posterior": posterior or {"none": np.zeros(shape)}, "log_likelihood": {"y": logp}}
        data = az.from_dict(groups)
        weights, k = _smoothed(data, progressbar)
        pit = _pit(weights, np.reshape(below, (*shape, -1))) if members is None else None
        found = az.loo(data, var_name="y", pointwise=True, log_weights=weights, pareto_k=k)
        return LeaveOut(found, pit)

    return make() if members else cache.get(made_of, (digest(*posterior.values()), now), make)


def _replaceable(variable, training) -> list[np.ndarray]:
    """Values of all shared variables that the likelihood depends on."""
    found = ancestors([variable, training.data.X.tensor, training.data.y.tensor])
    shared = {v for v in found if isinstance(v, SharedVariable)}
    values = [v.get_value(borrow=True) for v in sorted(shared, key=lambda v: str(v.name))]
    return [value for value in values if isinstance(value, np.ndarray)]


def _densities(function, values, members, progressbar) -> tuple[list, list]:
    """At each draw: log densities of what is left out, and each row's probability below it."""
    logp, below = [], []
    for at in with_progress(values, "Leaving rows out", len(values), progressbar):
        found = function(at)
        if members is None:
            own, under = found.left_out()
            logp.append(own)
            below.append(under)
        else:
            logp.append([found.group_logp(rows) for rows in members])
    return logp, below


def _told_apart(logp: np.ndarray) -> np.ndarray:
    """Log densities (s, n) with those of a row that all but agree spread over `EVEN` nats.

    PSIS fits a tail to weights that differ, and fails for all rows if one's do not.
    """
    even = np.ptp(logp, axis=0) < EVEN
    spread = EVEN * np.linspace(-0.5, 0.5, len(logp))
    logp[:, even] = logp[:, even].mean(axis=0) + spread[:, None]
    return logp


def check_groups(groups, n: int) -> list[np.ndarray]:
    """Rows of each group, in the order of the labels."""
    refuse_masked(groups, "groups")
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(
            f"groups must have one label for each row with a target, shape ({n},), got {labels.shape}"
        )
    place, kinds = pd.factorize(labels, sort=True)
    if missing := int((place < 0).sum()):
        raise ValueError(
            f"groups has no label for {missing} rows: give each of them one of its own, or drop them"
        )
    if len(kinds) < 2:
        raise ValueError("groups has one label only: there is nothing to predict it from")
    return [np.flatnonzero(place == i) for i in range(len(kinds))]


def _smoothed(data, progressbar) -> tuple[xr.DataArray, xr.DataArray]:
    """Log weights (chain, draw, units) towards the posterior without each unit, and their Pareto k.

    By PSIS as in ``az.loo``, which takes milliseconds a unit without a sign of how far it is.
    """
    logp, share = data["log_likelihood"]["y"], 1.0
    *sample, unit = logp.dims
    if logp.sizes["chain"] > 1:
        sizes = data["posterior"].azstats.ess(method="mean")
        count = logp.sizes["chain"] * logp.sizes["draw"]
        share = np.hstack([sizes[v].values.ravel() for v in sizes.data_vars]).mean() / count
    options = {"r_eff": share, "dim": sample}
    starts = range(0, logp.sizes[unit], BLOCK)
    shown = progressbar and len(starts) > 1
    found = [
        logp.isel({unit: slice(start, start + BLOCK)}).azstats.psislw(**options)
        for start in with_progress(starts, "Smoothing weights", len(starts), shown)
    ]
    weights, k = (xr.concat(each, unit) for each in zip(*found, strict=True))
    return weights.transpose(*logp.dims), k


def _pit(log_weights, below) -> xr.DataArray:
    """Probability that each row's predictive distribution, given all others, puts below the row."""
    weights, sample = np.exp(log_weights.values), (0, 1)
    return xr.DataArray((weights * below).sum(sample) / weights.sum(sample), dims="obs", name="pit")
