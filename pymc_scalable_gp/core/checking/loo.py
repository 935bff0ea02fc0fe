"""Leave-one-out and leave-group-out predictions in closed form, mixed over posterior draws."""

from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_scalable_gp.core.data.draws import FEWEST, posterior_draws, with_progress
from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.likelihoods.base import Likelihood


@dataclass(frozen=True)
class LeaveOut:
    """Results of one pass over the draws, with the likelihood, draws and data they are for."""

    elpd: Any
    pit: xr.DataArray | None  # None for groups
    training: Likelihood
    model: pm.Model
    inputs: list
    posterior: dict[str, np.ndarray]
    data: list[np.ndarray]

    def is_of(self, posterior, data) -> bool:
        """Whether it was made of these draws and data, which ``pm.set_data`` may have replaced."""
        return (
            self.pit is not None
            and len(data) == len(self.data)
            and all(a is b for a, b in zip(data, self.data, strict=True))
            and all(np.array_equal(self.posterior[name], posterior[name]) for name in posterior)
        )


def leave_out(
    gp, idata, groups, num_samples, progressbar, random_seed, model, before: LeaveOut | None
) -> LeaveOut:
    """Each row, or each group of rows, given all others; returns `before` if nothing has changed since."""
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
    members = None if groups is None else check_groups(groups, len(held_value(training.X, "X")))
    again = before is not None and before.training is training and before.model is model
    function = None if again else training.precisions(model)
    inputs = before.inputs if again else function.inputs
    draws = posterior_draws(idata, inputs, num_samples, np.random.default_rng(random_seed))
    if len(draws) < FEWEST:
        raise ValueError(
            f"{len(draws)} draws are too few for importance weights: leaving rows out needs {FEWEST}"
        )
    shape = draws.chains, len(draws) // draws.chains
    columns = zip(inputs, zip(*draws.values, strict=True), strict=True)
    posterior = {v.name: np.reshape(c, (*shape, *np.shape(c[0]))) for v, c in columns}
    data = _replaceable(gp.variable, training)
    if again and members is None and before.is_of(posterior, data):
        return before
    function = training.precisions(model) if function is None else function
    logp, below = _densities(function, draws.values, members, progressbar)
    logp = np.reshape(logp, (*shape, -1))
    pit = _pit(logp, np.reshape(below, (*shape, -1))) if members is None else None
    return LeaveOut(_elpd(logp, posterior), pit, training, model, inputs, posterior, data)


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


def check_groups(groups, n: int) -> list[np.ndarray]:
    """Rows of each group, in the order of the labels."""
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(
            f"groups must have one label for each row, shape ({n},), got {labels.shape}"
        )
    kinds, place = np.unique(labels, return_inverse=True)
    if len(kinds) < 2:
        raise ValueError("groups has one label only: there is nothing to predict it from")
    return [np.flatnonzero(place == i) for i in range(len(kinds))]


def _elpd(logp, posterior):
    """ArviZ' `ELPDData`: importance weights by PSIS, towards the posterior without each unit."""
    posterior = posterior or {"none": np.zeros(logp.shape[:2])}
    groups = {"posterior": posterior, "log_likelihood": {"y": logp}}
    return az.loo(az.from_dict(groups), var_name="y", pointwise=True)


def _pit(logp, below) -> xr.DataArray:
    """Probability that each row's predictive distribution, given all others, puts below the row."""
    logp = xr.DataArray(logp, dims=("chain", "draw", "obs"))
    # ArviZ smooths the weights 1 / p from log p.
    log_weights, _ = logp.azstats.psislw(dim=["chain", "draw"])
    weights = np.exp(log_weights - log_weights.max(["chain", "draw"]))
    values = xr.DataArray(below, dims=("chain", "draw", "obs"))
    return (
        (weights * values).sum(["chain", "draw"], skipna=False) / weights.sum(["chain", "draw"])
    ).rename("pit")
