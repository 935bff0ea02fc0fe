"""How far an approximation is from the exact Gaussian process, on a subsample of rows."""

import textwrap
from dataclasses import replace
from typing import NamedTuple

import arviz as az  # noqa: F401  its accessor smooths the weights
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.core.data import Data
from pymc_scalable_gp.core.draws import entry_names, posterior_draws
from pymc_scalable_gp.core.exact import ExactRows
from pymc_scalable_gp.core.likelihood import Likelihood
from pymc_scalable_gp.core.summaries import held_value
from pymc_scalable_gp.utils.evaluate import (
    check_reached,
    compile_outputs,
    model_inputs,
    point_values,
)
from pymc_scalable_gp.utils.graphs import fixed_shared

# What is worth a word: the tail of the weights (Vehtari et al. 2024), a move of a hyperparameter's mean in
# posterior sds, the 95% quantile of the predictive mean's shift in predictive sds, the change of
# the predictive sd, and the share of prior variance that features miss.
LIMITS = {"k_hat": 0.7, "moved": 0.5, "mean_shift": 0.25, "sd_ratio": 0.1, "missing": 0.05}


class Check(xr.Dataset):
    """Result of :meth:`FeatureMarginal.check`; printed as one paragraph."""

    __slots__ = ()

    def __str__(self):
        return textwrap.fill(self.attrs["verdict"], 88)


class Compared(NamedTuple):
    """Log densities of the subsample, and predictions at other rows, exact and approximate."""

    logp: np.ndarray  # (s, 2)
    mean: np.ndarray  # (s, 2, rows)
    var: np.ndarray  # of the function, (s, 2, rows)
    noise: np.ndarray  # (s,)
    missing: np.ndarray  # (s, rows)


def check_gp(gp, given, rows, num_samples, progressbar, random_seed, model) -> Check:
    """:meth:`FeatureMarginal.check`."""
    known = gp.conditioned
    if not isinstance(known, Likelihood) or not known.has_rows:
        raise ValueError(
            "check compares a marginal likelihood of X and y with the exact one: make it first"
        )
    model, rng = pm.modelcontext(model), np.random.default_rng(random_seed)
    X = held_value(known.X, "X")
    order = rng.permutation(len(X))
    inside = np.sort(order[:rows])
    outside = np.sort(order[rows : rows + rows // 2]) if len(order) > rows else inside
    pair = _pair(gp, known, inside)
    points, posterior = _points(pair, given, num_samples, rng, model)
    found = _compare(gp, pair, X[outside], points, model, progressbar)
    return _dataset(gp, found, posterior, inside, outside)


def _pair(gp, known, rows) -> tuple[Likelihood, Likelihood]:
    """The exact likelihood of some rows, and this one's."""
    X, y = held_value(known.data.X, "X")[rows], held_value(known.data.y, "y")[rows]
    X, y = (Data(fixed_shared(value), value, False) for value in (X, y))
    sigma = known.sigma if known.sigma.ndim == 0 else known.sigma[rows]
    exact = ExactRows(replace(known.data, X=X, y=y, sigma=sigma), gp.cov_func)
    return exact, known.given(X, y, sigma)


def _points(pair, given, num_samples, rng, model):
    """Points of the model, and their values by name."""
    densities = [likelihood.logp() for likelihood in pair]
    inputs = model_inputs(densities, model)
    check_reached(densities, inputs)
    group = given["posterior"] if "posterior" in getattr(given, "children", {}) else given
    if hasattr(group, "sizes"):
        count = np.prod([group.sizes[d] for d in ("chain", "draw", "sample") if d in group.sizes])
        few = None if num_samples is None or num_samples >= count else num_samples
        values = posterior_draws(group, inputs, few, rng).values
    else:
        values = [point_values(inputs, given, model, fill=True)]
    names = [v.name for v in inputs]
    points = [dict(zip(names, each, strict=True)) for each in values]
    return points, {name: np.array([p[name] for p in points]) for name in names}


def _compare(gp, pair, X, points, model, progressbar) -> Compared:
    """At each point."""
    zero = pt.constant(0.0)
    makers = [
        each.predictor(each.prediction_map(), gp.mean_func, each.coefficients(), zero, model)
        for each in pair
    ]
    feature_map = pair[1].prediction_map()
    where = pt.constant(X)
    missed = 1.0 - (feature_map.features(where) ** 2).sum(axis=1) / feature_map.kernel_diag(where)
    outputs = [*(each.logp() for each in pair), (pair[0].sigma ** 2).mean(), missed]
    function, inputs = compile_outputs(outputs, model)
    logp, moments, noise, missing = [], [], [], []
    progress = create_simple_progress(progressbar=progressbar)
    with progress:
        task = progress.add_task("Comparing with the exact GP", completed=0, total=len(points))
        for point in points:
            *both, own, share = function(*(point[v.name] for v in inputs))
            logp.append(both)
            noise.append(own)
            missing.append(share)
            moments.append([each.diagonal(each.state(point), X) for each in makers])
            progress.advance(task)
    mean, var = np.moveaxis(np.array(moments), 2, 0)
    return Compared(np.array(logp), mean, var, np.array(noise), np.array(missing))


def _dataset(gp, found, posterior, inside, outside) -> Check:
    """Everything by name, and the verdict."""
    spread = np.sqrt(found.var + found.noise[:, None, None])
    shift = np.abs(found.mean[:, 1] - found.mean[:, 0]) / spread[:, 0]
    data = {
        "logp_exact": ("sample", found.logp[:, 0]),
        "logp_approx": ("sample", found.logp[:, 1]),
        "mean_shift": ("obs", shift.mean(axis=0)),
        "sd_ratio": ("obs", (spread[:, 1] / spread[:, 0]).mean(axis=0)),
        "missing": ("obs", found.missing.mean(axis=0)),
    }
    gap = found.logp[:, 0] - found.logp[:, 1]
    attrs = {"rows": len(inside), "gap": float(gap.mean()), "lost": float(gap.std())}
    coords = {"obs": outside}
    if len(gap) >= 10 and gap.std() > 0.0:
        moved, sds, names, k_hat = _weighted(gap, posterior)
        data |= {"moved": ("hyperparameter", moved), "sd_change": ("hyperparameter", sds)}
        coords["hyperparameter"], attrs["k_hat"] = names, k_hat
    check = Check(data, coords, attrs)
    check.attrs["verdict"] = verdict(gp, check)
    return check


def _weighted(gap, posterior):
    """What weights towards the exact posterior do to the hyperparameters' means and sds."""
    # ArviZ smooths the weights exp(-x) of what it is given.
    log_weights, k_hat = xr.DataArray(-gap, dims="sample").azstats.psislw(dim="sample")
    weights = np.exp(log_weights.values - log_weights.values.max())
    weights /= weights.sum()
    moved, changed = [], []
    for values in posterior.values():
        flat = values.reshape(len(values), -1)
        mean, sd = flat.mean(axis=0), flat.std(axis=0)
        sd = np.where(sd > 0.0, sd, 1.0)
        now = weights @ flat
        moved += list((now - mean) / sd)
        changed += list(np.sqrt(weights @ (flat - now) ** 2) / sd)
    names = entry_names({name: values[0] for name, values in posterior.items()})
    return np.array(moved), np.array(changed), names, float(k_hat)


def verdict(gp, check) -> str:
    """One paragraph: what was compared, what is off, what to do."""
    a = check.attrs
    shift, ratio = float(np.quantile(check.mean_shift.values, 0.95)), check.sd_ratio.values
    wide = float(ratio[np.abs(np.log(ratio)).argmax()])
    missing = 0.0 if gp.approx in ("VIF", "exact") else float(check.missing.mean())
    text = (
        f"On {a['rows']} rows the exact log density is {abs(a['gap']):.3g} nats "
        f"{'above' if a['gap'] >= 0.0 else 'below'} the approximate one, and the difference varies by "
        f"{a['lost']:.2g} (sd) over {check.sizes['sample']} draws. "
    )
    # A comparison with NaN is false, and what is not finite must not be called good.
    bad = [] if np.isfinite(a["lost"]) else ["log densities are not finite"]
    if "moved" in check:
        worst = int(np.abs(check.moved.values).argmax())
        name, by = str(check.hyperparameter.values[worst]), float(check.moved[worst])
        text += f"Weighted towards the exact posterior, {name} moves by {by:+.2f} posterior sds "
        text += f"(Pareto k {a['k_hat']:.2f}). "
        if not (a["k_hat"] <= LIMITS["k_hat"] and abs(by) <= LIMITS["moved"]):
            bad.append("the posterior of the hyperparameters is another one")
    text += (
        f"Predictive means shift by up to {shift:.2f} predictive sds (95% of rows), sds by a factor of "
        f"{wide:.2f} at most"
    )
    text += f"; features miss {missing:.1%} of the prior variance. " if missing else ". "
    if not (shift <= LIMITS["mean_shift"] and abs(np.log(wide)) <= LIMITS["sd_ratio"]):
        bad.append("predictions differ")
    if missing > LIMITS["missing"]:
        bad.append("sigma may take over what the features miss")
    if not bad:
        return text + "Good on that many rows; more of them tell more."
    return text + f"Poor: {'; '.join(bad)}. {remedy(gp)}"


def remedy(gp) -> str:
    """What to change."""
    if gp.approx == "VIF":
        return "Raise neighbors= (and n_inducing=), or call gp.rebuild(point) at a point of the posterior."
    more = "Raise the number of features (rank=, n_inducing= or inducing=)"
    if "VIF" in gp.approximations:
        return f'{more}, or take approx="VIF", which puts back what they miss.'
    return f"{more}, or take VecchiaMarginal."
