"""Leave-one-out and leave-group-out predictions in closed form, mixed over posterior draws."""

from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from pymc.progress_bar import create_simple_progress
from scipy.stats import norm

from pymc_scalable_gp.core.data.draws import FEWEST, posterior_draws
from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.likelihoods.base import Likelihood


class LeftOut(NamedTuple):
    """At each draw: log densities of what was left out, (chain, draw, units), and each row's PIT."""

    logp: np.ndarray
    pit: np.ndarray | None
    posterior: dict


def left_out(gp, idata, groups, num_samples, progressbar, random_seed, model) -> LeftOut:
    """Densities of each row, or of each group of rows, given all others, at posterior draws."""
    known = gp.conditioned
    if not isinstance(known, Likelihood):
        raise ValueError(
            f"{type(gp).__name__} has no marginal likelihood yet: call marginal_likelihood first (with a "
            "likelihood of your own, pm.compute_log_likelihood and az.loo are for you)"
        )
    if not known.has_rows:
        raise ValueError(
            "this likelihood knows its rows by their statistics alone: leave folds out by "
            "subtracting their statistics"
        )
    model = pm.modelcontext(model)
    function = known.precisions(model)
    members = None if groups is None else check_groups(groups, len(held_value(known.X, "X")))
    rng = np.random.default_rng(random_seed)
    draws = posterior_draws(idata, function.inputs, num_samples, rng)
    if len(draws) < FEWEST:
        raise ValueError(
            f"{len(draws)} draws are too few for importance weights: leaving rows out needs {FEWEST}"
        )
    logp, pit = [], []
    progress = create_simple_progress(progressbar=progressbar)
    with progress:
        task = progress.add_task("Leaving rows out", completed=0, total=len(draws))
        for values in draws.values:
            found = function(values)
            if members is None:
                mean, sd = found.singles()
                logp.append(norm.logpdf(found.y, mean, sd))
                pit.append(norm.cdf(found.y, mean, sd))
            else:
                logp.append([found.group_logp(rows) for rows in members])
            progress.advance(task)
    shape = draws.chains, len(draws) // draws.chains
    arranged = [np.reshape(a, (*shape, -1)) if len(a) else None for a in (logp, pit)]
    columns = zip(function.inputs, zip(*draws.values, strict=True), strict=True)
    posterior = {v.name: np.reshape(c, (*shape, *np.shape(c[0]))) for v, c in columns}
    return LeftOut(*arranged, posterior)


def check_groups(groups, n: int) -> list[np.ndarray]:
    """Rows of each group, in the order of the labels.

    Raises
    ------
    ValueError
        For labels that are not one a row, or a single group.
    """
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must have one label a row, shape ({n},), got {labels.shape}")
    kinds, place = np.unique(labels, return_inverse=True)
    if len(kinds) < 2:
        raise ValueError("groups has one label only: there is nothing to predict it from")
    return [np.flatnonzero(place == i) for i in range(len(kinds))]


def elpd(found: LeftOut, name: str):
    """ArviZ' `ELPDData`: importance weights by PSIS, towards the posterior without each unit."""
    data = {"log_likelihood": {name: found.logp}}
    posterior = found.posterior or {"none": np.zeros(found.logp.shape[:2])}
    return az.loo(az.from_dict({"posterior": posterior, **data}), var_name=name, pointwise=True)


def pit(found: LeftOut) -> xr.DataArray:
    """Probability that each row's predictive distribution, given all others, puts below the row."""
    logp = xr.DataArray(found.logp, dims=("chain", "draw", "obs"))
    # ArviZ smooths the weights 1 / p from log p.
    log_weights, _ = logp.azstats.psislw(dim=["chain", "draw"])
    weights = np.exp(log_weights - log_weights.max(["chain", "draw"]))
    values = xr.DataArray(found.pit, dims=("chain", "draw", "obs"))
    return ((weights * values).sum(["chain", "draw"]) / weights.sum(["chain", "draw"])).rename(
        "pit"
    )
