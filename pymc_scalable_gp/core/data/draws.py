"""Values of a model's variables at posterior draws, in whatever shape they come."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.compiled import check_labels, misfit

# Draws below which the tail of importance weights has no fit.
FEWEST = 25

# Draws that are taken unless the user says how many.
CHECKED, EXPORTED = 40, 100

# Dimensions over which draws are arranged; a user's own dimension may be called "sample" too.
_DIMS = ("chain", "draw")
_STACKED = ("sample",)


def mean_point(points: list[dict]) -> dict[str, np.ndarray]:
    """Mean of each variable over some points."""
    return {name: np.mean([p[name] for p in points], axis=0) for name in points[0]}


@dataclass(frozen=True)
class Draws:
    """Values of variables at each draw, and how the draws are arranged in chains."""

    values: list[list[np.ndarray]]
    chains: int

    def __len__(self):
        return len(self.values)


def _dims(sizes) -> list[str]:
    """Those that the draws have."""
    return [dim for dim in _DIMS if dim in sizes] or [dim for dim in _STACKED if dim in sizes]


def _posterior(idata):
    """The posterior group, or what came itself; of one variable, as `az.extract` gives it, a Dataset."""
    found = idata["posterior"] if "posterior" in getattr(idata, "children", {}) else idata
    alone = hasattr(found, "to_dataset") and not hasattr(found, "data_vars")
    return found.to_dataset() if alone and found.name else found


def _check_present(posterior, names, remedy: str = "") -> None:
    missing = [name for name in names if name not in posterior]
    if missing:
        raise ValueError(f"the posterior has no {', '.join(missing)}; it holds {list(posterior)}{remedy}")


def at_most(idata, num_samples: int | None, usual: int) -> int | None:
    """`num_samples`, which :func:`posterior_draws` checks; None, for all, where the `usual` are more."""
    sizes = getattr(_posterior(idata), "sizes", {})
    few = np.prod([sizes[dim] for dim in _dims(sizes)]) <= usual
    return None if few and num_samples == usual else num_samples


def posterior_draws(idata, inputs, model, num_samples=None, rng=None, remedy: str = "") -> Draws:
    """Values of `inputs`, variables of `model`, at all or some posterior draws.

    Takes a DataTree with a ``posterior`` group or that group itself, with dimensions chain and draw in
    any order, one of them left out, or both stacked to ``sample`` as `az.extract` does. What the
    posterior lacks is refused, with a `remedy` at the end; so are other shapes and labels, and NaN.
    """
    posterior = _posterior(idata)
    sizes = getattr(posterior, "sizes", None)
    if sizes is None or not hasattr(posterior, "data_vars"):
        raise TypeError(
            "idata must be what pm.sample returns, its posterior group, or az.extract of it, got "
            f"{type(idata).__name__}"
        )
    _check_present(posterior, [v.name for v in inputs], remedy)
    order = _dims(sizes)
    if not order:
        raise ValueError(f"the posterior has no dimension chain, draw or sample, only {list(sizes)}")
    total = int(np.prod([sizes[dim] for dim in order]))
    if not total:
        raise ValueError(
            f"the posterior has no draws left, its dimensions are {dict(sizes)}: were too many taken off?"
        )
    chains = sizes["chain"] if "chain" in order else 1
    keep = np.arange(total)
    if num_samples is not None:
        if check_count("num_samples", num_samples) > total:
            raise ValueError(f"num_samples must lie in 1..{total}, the number of draws")
        keep, chains = np.sort(rng.permutation(total)[:num_samples]), 1
    columns = [_column(posterior[v.name], v, order, total, model)[keep] for v in inputs]
    return Draws([list(values) for values in zip(*columns, strict=True)] or [[]] * len(keep), chains)


def _column(variable, v, order, total, model):
    """Values (total, ...) of one variable `v` of the model."""
    absent = [dim for dim in order if dim not in variable.dims]
    if absent:
        raise ValueError(f"{v.name} lacks the dimension {', '.join(absent)} of the other variables")
    array = np.asarray(variable.transpose(*order, ...))
    array = array.reshape(total, *array.shape[len(order) :])
    if (wanted := misfit(v, array.shape[1:])) is not None:
        raise ValueError(
            f"{v.name} has shape {array.shape[1:]} at a draw of the posterior, the model's has {wanted}"
        )
    check_labels(v.name, variable.isel(dict.fromkeys(order, 0)), model)
    if unknown := int(np.isnan(array.astype(float)).reshape(total, -1).any(axis=1).sum()):
        raise ValueError(
            f"{v.name} is NaN at {unknown} of {total} draws, as where chains of several lengths were "
            'joined: leave these out, idata["posterior"].to_dataset().dropna("draw")'
        )
    return array.astype(v.dtype)


def refuse_failed(failed, label: str) -> None:
    """Raise ValueError unless the `label` was found at all draws: `failed` says, for each, where not."""
    if count := int(np.sum(failed)):
        raise ValueError(
            f"the {label} is NaN at {count} of {len(failed)} draws, where no mode was found or no matrix "
            "could be factorised: is the idata of this model? gp.check says more"
        )


def posterior_mean(idata, names) -> dict[str, xr.DataArray]:
    """Mean of some variables over all draws."""
    posterior = _posterior(idata)
    _check_present(posterior, names)
    over = _dims(posterior.sizes)
    return {name: posterior[name].mean(over) for name in names}


def model_mean(idata, model) -> dict[str, xr.DataArray]:
    """Mean over all draws of those of a model's free variables that the posterior has."""
    return posterior_mean(idata, [v.name for v in model.free_RVs if v.name in _posterior(idata)])


def entry_names(values) -> list[str]:
    """Names of all entries of arrays by name: ``eta``, ``ell[0]``, ``ell[1]``."""
    return [
        name + (f"[{', '.join(map(str, place))}]" if place else "")
        for name, value in values.items()
        for place in np.ndindex(np.shape(value))
    ]
