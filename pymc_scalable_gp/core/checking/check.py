"""How far an approximation is from the exact Gaussian process."""

from dataclasses import dataclass, field
from typing import Any

import arviz as az  # noqa: F401  its accessor smooths the weights
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.core.checking.comparison import (
    Pair,
    Predictions,
    all_rows,
    condition_number,
    rank_needed,
    subset_pair,
)
from pymc_scalable_gp.core.checking.verdict import Check, verdict
from pymc_scalable_gp.core.data.draws import (
    FEWEST,
    at_most,
    entry_names,
    mean_point,
    posterior_draws,
)
from pymc_scalable_gp.core.data.inputs import check_inputs, held_value
from pymc_scalable_gp.core.likelihoods.base import Conditioned, Likelihood
from pymc_scalable_gp.core.rows.subsamples import subsamples
from pymc_scalable_gp.cov.evaluate import kernel_matrix
from pymc_scalable_gp.utils.evaluate import (
    check_reached,
    compile_outputs,
    evaluate,
    model_inputs,
    point_values,
)


@dataclass
class Checked:
    """What is compared, and what was found: one value a draw."""

    gp: Any
    known: Conditioned | None
    model: pm.Model
    X: np.ndarray
    inside: np.ndarray  # rows of the subsample
    outside: np.ndarray  # rows that are predicted
    points: list[dict] = field(default_factory=list)
    posterior: dict[str, np.ndarray] = field(default_factory=dict)
    pair: Pair | None = None
    neighbors: int | None = None

    @property
    def compares(self) -> bool:
        """Whether the likelihood is that of the kernel."""
        known = self.known
        return (
            isinstance(known, Likelihood)
            and known.has_rows
            and self.gp.whole_kernel
            and known.data.weights is None
        )


def check_gp(gp, given, X, rows, neighbors, num_samples, progressbar, random_seed, model) -> Check:
    """:meth:`CheckedGP.check`."""
    job = _begin(gp, X, rows, random_seed, pm.modelcontext(model))
    if job.compares and job.known.divisible:
        job.pair = subset_pair(job.known, gp.cov_func, job.inside)
    features = _features(job)
    own = [] if job.pair is None else [each.logp() for each in job.pair]
    full = neighbors and job.compares and len(job.X) > rows and job.known.path != "exact"
    if full:
        own.append(pm.logp(gp.variable, job.known.data.y.tensor))
    rng = np.random.default_rng(random_seed)
    _take_points(job, [*features, *own], given, num_samples, rng)
    with job.model:
        if full:
            better, approximate, job.neighbors = all_rows(
                job.known, gp.cov_func, gp.variable, neighbors, mean_point(job.points), progressbar
            )
            own[-1:] = [better, approximate]
        figures = _figures(job)
    return _dataset(job, _evaluate(job, features, own, progressbar), figures)


def _begin(gp, X, rows, random_seed, model) -> Checked:
    """Inputs, and rows of them."""
    known = gp.conditioned if X is None else None
    if X is not None:
        gp.build_missing(X)
        values = check_inputs(X, "X").value
    elif known is None:
        raise ValueError("give X, or call marginal_likelihood or prior first")
    elif not known.has_rows:
        raise ValueError("give X: this likelihood knows its rows by their statistics alone")
    else:
        values = held_value(known.X, "X")
    inside, outside = subsamples(values, rows, rows // 2, np.random.default_rng(random_seed))
    return Checked(gp, known, model, values, inside, outside)


def _features(job) -> list:
    """Share of prior variance that features miss at each predicted row, the variance, and the noise's."""
    source = job.known if job.pair is None else job.pair.better
    sigma = None if source is None else source.sigma
    noise = pt.constant(np.nan) if sigma is None else (sigma**2).mean()
    # Those of the prior: predictions by task take features of the posterior.
    feature_map = job.gp.feature_map
    if job.known is not None:
        known = job.known
        feature_map = (
            known.data.feature_map if isinstance(known, Likelihood) else known.prediction_map()
        )
    where = pt.constant(job.X[job.outside])
    prior = feature_map.kernel_diag(where)
    missed = prior - (feature_map.features(where) ** 2).sum(axis=1)
    return [missed / prior, missed.mean(), noise]


def _take_points(job, outputs, given, num_samples, rng) -> None:
    """Points of the model, and their values by name."""
    inputs = model_inputs(outputs, job.model)
    check_reached(outputs, inputs)
    group = given["posterior"] if "posterior" in getattr(given, "children", {}) else given
    if hasattr(group, "sizes"):
        values = posterior_draws(group, inputs, at_most(group, num_samples), rng).values
    else:
        values = [point_values(inputs, given, job.model, fill=True)]
    names = [v.name for v in inputs]
    job.points = [dict(zip(names, each, strict=True)) for each in values]
    job.posterior = {name: np.array([p[name] for p in job.points]) for name in names}


def _figures(job) -> dict[str, float]:
    """From the solver, at its worst; from the kernel's eigenvalues, at the mean of the points."""
    found = {"rank": job.gp.rank}
    if job.known is not None:
        found |= job.known.figures(job.points, job.model)
    if not job.gp.whole_kernel:
        return found
    sigma = None if job.known is None else job.known.sigma
    variance = [] if sigma is None else [(sigma**2).mean()]
    K, *noise = evaluate(
        [kernel_matrix(job.gp.cov_func, pt.constant(job.X[job.inside])), *variance],
        mean_point(job.points), job.model,
    )  # fmt: skip
    noise = float(noise[0]) if noise else None
    if noise is not None:
        found["condition"] = condition_number(K, noise, len(job.X))
    return found | {"rank_needed": rank_needed(K, noise)}


def _evaluate(job, features, densities, progressbar) -> dict[str, np.ndarray]:
    """At each point: what features miss, log densities, and predictions of the pair."""
    function, inputs = compile_outputs([*features, *densities], job.model)
    predict = None
    if job.pair is not None:
        predict = Predictions(job.pair, job.gp.mean_func, job.X[job.outside], job.model)
    found, moments = [], []
    progress = create_simple_progress(progressbar=progressbar)
    with progress:
        task = progress.add_task("Comparing", completed=0, total=len(job.points))
        for point in job.points:
            found.append(function(*(point[v.name] for v in inputs)))
            if predict is not None:
                moments.append(predict(point))
            progress.advance(task)
    share, missed, noise, *logp = (np.array(each) for each in zip(*found, strict=True))
    result = {"missing": share, "inflation": missed / noise, "noise": noise}
    if moments:
        result["mean"], result["var"] = np.moveaxis(np.array(moments), 2, 0)
        result["subset"], logp = np.stack(logp[:2], axis=1), logp[2:]
    if logp:
        result["all"] = np.stack(logp, axis=1)
    return result


def _dataset(job, found, figures) -> Check:
    """Everything by name, and the verdict."""
    data = {"missing": ("obs", found["missing"].mean(axis=0))}
    coords: dict[str, Any] = {"obs": job.outside}
    attrs = {"missing_mean": float(found["missing"].mean())} | figures
    attrs |= {"rows": len(job.inside), "draws": len(job.points)}
    attrs["holds_residual"] = job.known is not None and job.known.holds_residual
    if job.known is not None and job.known.sigma is not None and not attrs["holds_residual"]:
        attrs["noise_inflation"] = float(found["inflation"].mean())
    if "mean" in found:
        spread = np.sqrt(found["var"] + found["noise"][:, None, None])
        shift = np.abs(found["mean"][:, 1] - found["mean"][:, 0]) / spread[:, 0]
        data["mean_shift"] = ("obs", shift.mean(axis=0))
        data["sd_ratio"] = ("obs", (spread[:, 1] / spread[:, 0]).mean(axis=0))
    for key, names, suffix in (
        ("subset", ("logp_exact", "logp_approx"), ""),
        ("all", ("logp_neighbors", "logp_all"), "_all"),
    ):
        if key not in found:
            continue
        better, own = found[key].T
        data |= {names[0]: ("sample", better), names[1]: ("sample", own)}
        gap = better - own
        attrs |= {f"gap{suffix}": float(gap.mean()), f"lost{suffix}": float(gap.std())}
        if len(gap) >= FEWEST and gap.std() > 0.0:
            moved, sds, coords["hyperparameter"], attrs[f"k_hat{suffix}"] = _weighted(gap, job)
            data[f"moved{suffix}"] = ("hyperparameter", moved)
            data[f"sd_change{suffix}"] = ("hyperparameter", sds)
    if job.neighbors is not None:
        attrs |= {"neighbors": job.neighbors, "n": len(job.X)}
    check = Check(data, coords, attrs)
    check.attrs["verdict"] = verdict(job.gp, job.known, check)
    return check


def _weighted(gap, job):
    """What weights towards the better posterior do to the hyperparameters' means and sds."""
    # ArviZ smooths the weights exp(-x) of what it is given.
    log_weights, k_hat = xr.DataArray(-gap, dims="sample").azstats.psislw(dim="sample")
    weights = np.exp(log_weights.values - log_weights.values.max())
    weights /= weights.sum()
    moved, changed = [], []
    for values in job.posterior.values():
        flat = values.reshape(len(values), -1)
        mean, sd = flat.mean(axis=0), flat.std(axis=0)
        sd = np.where(sd > 0.0, sd, 1.0)
        now = weights @ flat
        moved += list((now - mean) / sd)
        changed += list(np.sqrt(weights @ (flat - now) ** 2) / sd)
    names = entry_names({name: values[0] for name, values in job.posterior.items()})
    return np.array(moved), np.array(changed), names, float(k_hat)
