"""How far an approximation is from the exact Gaussian process."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp

from pymc_scalable_gp.core.checking.comparison import Pair, kernel_figures, with_neighbors
from pymc_scalable_gp.core.checking.verdict import Check, verdict
from pymc_scalable_gp.core.data.draws import (
    CHECKED,
    FEWEST,
    at_most,
    entry_names,
    mean_point,
    posterior_draws,
)
from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.data.missing import refuse_replaced
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, TrainingRows
from pymc_scalable_gp.core.likelihoods.exact import ExactRows
from pymc_scalable_gp.core.rows.subsamples import subsamples
from pymc_scalable_gp.core.vecchia.likelihood import NeighborRows
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.cov.queries import check_rows
from pymc_scalable_gp.importance.rounds import smoothed_tail
from pymc_scalable_gp.utils.blocks import with_progress
from pymc_scalable_gp.utils.compiled import (
    check_reached,
    compile_outputs,
    evaluate,
    model_inputs,
    point_values,
)


@dataclass
class Comparison:
    """A comparison: symbolic log densities by name, and the points at which to evaluate them."""

    gp: Any
    training: TrainingRows | None
    model: pm.Model
    X: np.ndarray
    inside: np.ndarray  # rows of the subsample
    outside: np.ndarray  # rows that are predicted
    pair: Pair | None = None
    densities: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, Any] = field(default_factory=dict)  # of the likelihood's own approximation
    points: list[dict] = field(default_factory=list)
    posterior: dict[str, np.ndarray] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def compares(self) -> bool:
        """Whether the likelihood is that of the kernel."""
        training = self.training
        return isinstance(training, Likelihood) and training.has_rows and training.data.weights is None

    @property
    def frozen(self):
        """The features of a frozen basis, of the likelihood where there is one: the GP's may be newer."""
        newest = self.gp.frozen
        own = None if self.training is None else self.training.prior_map()
        return own if newest is not None and isinstance(own, type(newest)) else newest


def check_gp(
    gp, given, X, y, *, rows, neighbors, most_rows, num_samples, progressbar, random_seed, model
) -> Check:
    """``gp.check``, in the model of the context."""
    rng = np.random.default_rng(random_seed)
    job = _begin(gp, X, y, rows, rng, model)
    if job.compares:
        _take_subset(job)
    larger = None
    if neighbors and job.compares and len(job.X) > rows and not job.training.is_exact:
        larger = _larger(job, most_rows, rng)
    features = _features(job)
    shown = [*features, *job.densities.values(), *job.errors.values()]
    # Figures of solver and neighbours go by all of the prior, what is shown perhaps by a part of it.
    _take_points(job, [*shown, *gp.prior_graphs(job.X)], given, num_samples, rng)
    if larger is not None:
        used = neighbors
        if isinstance(larger, NeighborRows):
            used = max(neighbors, 2 * larger.settings.neighbors)
        better = with_neighbors(larger, gp.prior_cov, used, mean_point(job.points), progressbar)
        job.densities["logp_neighbors"] = better.logp()
        job.pair = job.pair or Pair(better, larger)
        job.figures |= {"neighbors": used, "n": larger.data.size}
    _add_figures(job)
    return _dataset(job, _evaluate(job, features, progressbar))


def _begin(gp, X, y, rows, rng, model) -> Comparison:
    """Choose the likelihood, its inputs, and the rows to compare and to predict."""
    training = gp.training
    refuse_replaced(training)
    if y is not None:
        if X is None or not isinstance(training, Likelihood) or training.sigma.ndim:
            raise ValueError("y= goes with X=, after marginal_likelihood with a scalar sigma")
        sigma, noise = training.sigma, training.data.noise_cov
        sigma = sigma if noise is None else noise + pm.gp.cov.WhiteNoise(sigma)
        training = gp.conditioned_on({"X": X, "y": y, "sigma": sigma})
        values = training.X.value
    elif X is not None:
        gp.build_missing(X, asked=False)
        training, values = None, gp.inputs_of(X).value
    elif training is None:
        raise ValueError("give X, or call marginal_likelihood or prior first")
    elif not training.has_rows:
        raise ValueError("give X, or X and y: this likelihood knows its rows by their statistics alone")
    else:
        values = held_value(training.X, "X")
    inside, outside = subsamples(values, rows, rows // 2, rng)
    check_rows(gp.prior_cov, values[inside], "the subsample of rows=")
    if training is None or training.gaussian is None:
        return Comparison(gp, training, model, values, inside, outside)
    if isinstance(training.gaussian, NeighborRows):
        evaluate([training.gaussian.order])  # refuses rows that replaced those of the neighbours
    # Under any likelihood what stands for the rows is compared: the pseudo-targets at each mode.
    found = Comparison(gp, training.at_mode, model, values, inside, outside)
    log_ratios = training.log_ratios()
    return found if log_ratios is None else replace(found, errors={"laplace": log_ratios})


def _take_subset(job) -> None:
    """Densities of the subsample where there are such, with features that are not frozen too."""
    own = job.training.part(job.inside)
    if own is None:
        return
    job.pair = Pair(ExactRows(job.training.data.part(job.inside), job.gp.prior_cov), own)
    job.densities |= {"logp_exact": job.pair.better.logp(), "logp_approx": own.logp()}
    if job.frozen is not None:
        data = replace(own.data, feature_map=job.frozen.base)
        job.densities["logp_recomputed"] = FullRows(data).logp()


def _larger(job, most_rows, rng) -> Likelihood | None:
    """Likelihood of all rows, or of `most_rows` where it can be had of some; else None."""
    training = job.training
    job.figures["n_all"] = len(job.X)
    if most_rows is not None and len(job.X) > most_rows:
        training = training.part(subsamples(job.X, most_rows, 0, rng)[0])
        if training is None:
            return None
    job.densities["logp_all"] = training.logp()  # not the variable's, which total_size= multiplies
    return training


def _features(job) -> list:
    """Residual variance at each predicted row as a share of the prior's; means of it, noise and prior."""
    source = job.training if job.pair is None else job.pair.better
    sigma = None if source is None else source.sigma
    noise = pt.constant(np.nan) if sigma is None else _noise(job, sigma)
    # Features of the prior: predictions by task use features of the posterior.
    feature_map = job.gp.feature_map
    if job.training is not None:
        feature_map = job.training.prior_map()
    where = pt.constant(job.X[job.outside])
    prior = feature_map.kernel_diag(where)
    missed = prior - (feature_map.features(where) ** 2).sum(axis=1)
    return [pt.switch(pt.gt(prior, 0.0), missed / prior, 0.0), missed.mean(), noise, prior.mean()]


def _noise(job, sigma):
    """Mean noise variance; of pseudo-targets, huge where a row says next to nothing, the harmonic mean."""
    if job.gp.training.any_likelihood:
        return 1.0 / (sigma**-2).mean()
    return (sigma**2).mean()


def _take_points(job, outputs, given, num_samples, rng) -> None:
    """Points of the model, and their values by name."""
    inputs = model_inputs(outputs, job.model)
    check_reached(outputs, inputs)
    group = given["posterior"] if "posterior" in getattr(given, "children", {}) else given
    if hasattr(group, "sizes"):
        values = posterior_draws(group, inputs, job.model, at_most(group, num_samples, CHECKED), rng).values
    else:
        values = [point_values(inputs, given, job.model, fill=True)]
    names = [v.name for v in inputs]
    job.points = [dict(zip(names, each, strict=True)) for each in values]
    job.posterior = {name: np.array([p[name] for p in job.points]) for name in names}


def _add_figures(job) -> None:
    """Add figures of the solver (worst point) and of the kernel's eigenvalues (mean point)."""
    job.figures["rank"] = job.gp.rank
    if job.training is not None:
        job.figures |= job.training.figures(job.points, job.model)
    sigma = None if job.training is None else job.training.sigma
    variance = [] if sigma is None else [_noise(job, sigma)]
    K, *noise = evaluate(
        [kernel_matrix(job.gp.prior_cov, pt.constant(job.X[job.inside])), *variance],
        mean_point(job.points), job.model,
    )  # fmt: skip
    job.figures |= kernel_figures(K, float(noise[0]) if noise else None, len(job.X))


def _evaluate(job, features, progressbar) -> dict[str, np.ndarray]:
    """Evaluate at each point: residual variances, log densities, predictions of the pair."""
    shown = job.densities | job.errors
    function, inputs = compile_outputs([*features, *shown.values()], job.model)
    where, mean_func, zero = job.X[job.outside], job.gp.mean_func, pt.constant(0.0)
    predictors = [
        each.predictor(each.prediction_map(), mean_func, each.coefficients(), zero, job.model)
        for each in job.pair or ()
    ]
    found, moments = [], []
    for point in with_progress(job.points, "Comparing", len(job.points), progressbar):
        found.append(function(*(point[v.name] for v in inputs)))
        moments.append([each.diagonal(each.state(point), where) for each in predictors])
    names = ("missing", "missed", "noise", "prior", *shown)
    result = {name: np.array(each) for name, each in zip(names, zip(*found, strict=True), strict=True)}
    if predictors:
        result["mean"], result["var"] = np.moveaxis(np.array(moments), 2, 0)
    return result


def _dataset(job, found) -> Check:
    """Dataset of all figures, with the verdict."""
    data = {"missing": ("obs", found["missing"].mean(axis=0))}
    coords: dict[str, Any] = {"obs": job.outside}
    attrs = {"missing_mean": float(found["missing"].mean())} | job.figures
    attrs |= {"rows": len(job.inside), "draws": len(job.points)}
    followed = job.gp.training
    holds = followed is not None and followed.at_mode.holds_residual
    attrs["holds_residual"] = int(holds)  # netCDF has no bool
    if job.training is not None and job.training.sigma is not None and not attrs["holds_residual"]:
        attrs["noise_inflation"] = float((found["missed"] / found["noise"]).mean())
    if isinstance(job.training, Likelihood) and not followed.any_likelihood:
        attrs["kernel_share"] = float((1.0 - found["noise"] / (found["prior"] + found["noise"])).mean())
    if "mean" in found:
        spread = np.sqrt(found["var"] + found["noise"][:, None, None])
        shift = np.abs(found["mean"][:, 1] - found["mean"][:, 0]) / spread[:, 0]
        data["mean_shift"] = ("obs", shift.mean(axis=0))
        data["sd_ratio"] = ("obs", (spread[:, 1] / spread[:, 0]).mean(axis=0))
    data |= {name: ("sample", found[name]) for name in job.densities}
    for better, own, suffix in (
        ("logp_exact", "logp_approx", ""),
        ("logp_neighbors", "logp_all", "_all"),
        ("logp_recomputed", "logp_approx", "_recomputed"),
    ):
        if better in found:
            gap = found[better] - found[own]
            _add_gap(gap, suffix, job, data, attrs, weigh=better != "logp_recomputed")
    if "laplace" in found:
        _add_laplace(found["laplace"], job, data, attrs)
    if job.frozen is not None:
        data["excess"] = ("sample", np.maximum(-found["missing"].min(axis=1), 0.0))
        if len(job.points) > 1:
            data["from_reference"] = ("hyperparameter", _from_reference(job))
    if any(dims == "hyperparameter" for dims, _ in data.values()):
        coords["hyperparameter"] = entry_names(job.points[0])
    check = Check(data, coords, attrs)
    check.attrs["verdict"], check.attrs["details"] = verdict(job.gp, job.training, check)
    return check


def _add_gap(gap, suffix, job, data, attrs, weigh) -> None:
    """Add the difference to a better log density at the draws, and the effect of weights by it."""
    attrs |= {f"gap{suffix}": float(gap.mean()), f"lost{suffix}": float(gap.std())}
    if weigh and len(gap) >= FEWEST and gap.std() > 0.0:
        moved, sds, attrs[f"k_hat{suffix}"] = _weighted(gap, job)
        data[f"moved{suffix}"] = ("hyperparameter", moved)
        data[f"sd_change{suffix}"] = ("hyperparameter", sds)


def _add_laplace(log_ratios, job, data, attrs) -> None:
    """Add the error of Laplace's approximation at each draw, from log weights (draws, 2 s)."""
    usable = np.isfinite(log_ratios.max(axis=1))
    attrs["modes_missing"] = int((~usable).sum())
    log_ratios = log_ratios[usable]
    if not len(log_ratios):
        return
    attrs["k_hat_functions"] = float(np.median([smoothed_tail(logs)[1] for logs in log_ratios]))
    gap = logsumexp(log_ratios, axis=1) - np.log(log_ratios.shape[1])
    _add_gap(gap, "_laplace", job, data, attrs, weigh=usable.all())


def _entries(job) -> list[np.ndarray]:
    """Values (draws, entries) of each hyperparameter."""
    return [values.reshape(len(values), -1) for values in job.posterior.values()]


def _from_reference(job) -> np.ndarray:
    """Distance of the draws' mean from a frozen basis' reference, in the draws' sds; NaN for others."""
    reference = job.frozen.reference
    found = []
    for name, flat in zip(job.posterior, _entries(job), strict=True):
        start = np.ravel(reference[name]) if name in reference else np.nan
        found += list((flat.mean(axis=0) - start) / flat.std(axis=0))
    return np.array(found)


def _weighted(gap, job):
    """Changes of the hyperparameters' means and sds by weights towards the better posterior."""
    log_weights, k_hat = smoothed_tail(gap)
    weights = np.exp(log_weights - logsumexp(log_weights))
    moved, changed = [], []
    for flat in _entries(job):
        mean, sd = flat.mean(axis=0), flat.std(axis=0)
        sd = np.where(sd > 0.0, sd, 1.0)
        now = weights @ flat
        moved += list((now - mean) / sd)
        changed += list(np.sqrt(weights @ (flat - now) ** 2) / sd)
    return np.array(moved), np.array(changed), k_hat
