"""Draws of a better posterior from those of an approximate one."""

import logging
from dataclasses import replace
from time import perf_counter

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from scipy import linalg

from pymc_scalable_gp.core.checking.comparison import (
    MOST_EXACT_ROWS,
    POINTS,
    check_comparable,
    exact_rows,
    with_neighbors,
)
from pymc_scalable_gp.core.data.draws import at_most, entry_names, mean_point, posterior_draws
from pymc_scalable_gp.core.likelihoods.base import TrainingRows
from pymc_scalable_gp.core.likelihoods.laplace_error import log_mean
from pymc_scalable_gp.core.vecchia.likelihood import NeighborRows
from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.mode import mode_near
from pymc_scalable_gp.importance.nuts import nuts_on_density
from pymc_scalable_gp.importance.result import as_tree
from pymc_scalable_gp.importance.rounds import BAD_KHAT, smoothed_tail
from pymc_scalable_gp.importance.run import MOST_CORES, Budget, Clock, complain, run, shortcomings
from pymc_scalable_gp.utils.checks import check_choice, check_count, generator
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.memory import accelerator, free_memory, free_on

_log = logging.getLogger("pymc")
MOST_DRAWS = 1000  # of those given, enough for a covariance of fifty parameters
FEWEST_DRAWS = 25
# Of n x n numbers, that a gradient of the dense density holds.
ARRAYS, ARRAYS_OF_JAX = 4, 8
NEIGHBORS = 60  # of the better likelihood, where inducing points alone were given
GIB = 2.0**30
COMPLETE = (
    ". Draws of all free variables are needed: if gp.conditional added one, write the model again, and "
    "call gp.conditional after gp.correct"
)


def correct_gp(
    gp, idata, target, neighbors, n_inducing, budget: Budget, otherwise, random_seed, model: pm.Model
) -> xr.DataTree:
    """``gp.correct``, in the model of the context."""
    check_choice("otherwise", otherwise, ("warn", "nuts"))
    clock, rng = Clock(), generator(random_seed)
    training = gp.training
    check_comparable(gp, training)
    if gp.variable not in model.observed_RVs:
        raise ValueError(
            f"{gp.variable.name} is not observed in this model, which may be a copy (pm.do, pm.observe): "
            "use the one that the GP was built in"
        )
    if isinstance(gp.variable.owner.op, MinibatchRandomVariable):
        raise ValueError("a likelihood with total_size= is no density of its rows: leave it out to correct")
    free = list(model.free_RVs)
    count = at_most(idata, MOST_DRAWS, MOST_DRAWS)
    given = posterior_draws(idata, free, model, count, rng, COMPLETE)
    if len(given) < FEWEST_DRAWS:
        raise ValueError(
            f"idata has {len(given)} draws, and the proposals need at least {FEWEST_DRAWS}: take more"
        )
    points = [dict(zip([v.name for v in free], each, strict=True)) for each in given.values]
    better, log_ratios, words, budget = _target(gp, training, target, neighbors, n_inducing, points, budget)
    if log_ratios is not None and otherwise == "nuts":
        raise ValueError(
            "otherwise='nuts' needs a gradient, and Laplace's corrected likelihood has none: leave it out"
        )
    density = better_density(model, gp.variable, better, log_ratios)
    theta = density.unconstrained(given.values)
    clock.lap("build")
    mean, factor = theta.mean(axis=0), _factor(theta)
    weighed = run(
        density, lambda: [mode_near(density, mean, factor)], budget, clock, rng,
        f"Correction towards {words}",
    )  # fmt: skip
    found = shortcomings(weighed, budget.draws)
    if found and otherwise == "nuts":
        _log.info(f"Correction is not enough: {found}; going on with NUTS")
        tree = nuts_on_density(density, weighed, budget.draws, rng, budget.progressbar)
    else:
        if found:
            complain(
                found,
                "The two posteriors are too far apart, or there are too many parameters: start from "
                "draws of a closer approximation (more inducing points and neighbors), raise "
                "max_evaluations, or give otherwise='nuts'",
            )
        tree = as_tree(density, weighed, clock.laps, rng)
        if log_ratios is not None:
            _count_functions(tree["posterior"].attrs, log_ratios, mean_point(points), model)
    tree["posterior"].attrs["target"] = words
    tree["correction"] = xr.DataTree(_moved(tree, points, weighed, words))
    return tree


def _target(gp, training, target, neighbors, n_inducing, points, budget) -> tuple:
    """The better likelihood, log weights of functions towards it, what it is, and the budget left."""
    check_choice("target", target, ("exact", "likelihood"))
    if not (neighbors is None and n_inducing is None):
        if target == "likelihood":
            raise ValueError(
                'target="likelihood" keeps the Gaussian process: leave out neighbors= and n_inducing='
            )
        better, words = _local(gp, training, neighbors, n_inducing, mean_point(points), budget)
        return better, None, words, budget
    gaussian, exact = training.gaussian is training, training.gaussian.is_exact
    if gaussian and target == "likelihood":
        raise ValueError(
            'target="likelihood" takes away the error of Laplace\'s approximation, and Gaussian noise '
            'has none: target="exact"'
        )
    if gaussian and exact:
        raise ValueError("this is the exact likelihood: there is nothing to correct")
    if target == "exact" and not exact:
        budget, training = _affordable(training.data.size, budget), exact_rows(gp, training)
    if gaussian:
        return training, None, "the exact GP", budget
    words = "the exact GP with its likelihood" if target == "exact" else "the likelihood itself"
    return training, training.log_ratios(), words, budget


def _affordable(n: int, budget: Budget) -> Budget:
    """The budget with as many cores as hold dense matrices; raise ValueError where none does."""
    if (device := accelerator()) is not None:  # it has one density at a time
        size, free = ARRAYS_OF_JAX * 8.0 * n**2, free_on(device)
        if size > free:
            raise ValueError(
                f"{n} rows of the exact GP need {size / GIB:.1f} GiB, and "
                f"{free / GIB:.1f} GiB of {device.device_kind} are free: give neighbors= and n_inducing= "
                "for a closer approximation instead"
            )
        return budget
    size = ARRAYS * 8.0 * n**2
    if n > MOST_EXACT_ROWS:
        raise ValueError(
            f"{n} rows are too many for the exact GP, at most {MOST_EXACT_ROWS}: a density would take "
            f"{_rate() * n**3:.0f} seconds and {size / GIB:.1f} GiB, and hundreds are needed. Give "
            "neighbors= and n_inducing= for a closer approximation instead, or a GPU by "
            "PyTensor's mode JAX"
        )
    cores, asked = int(free_memory() // size), budget.cores or 1
    if cores < asked:
        fewer = "fewer cores=, or " if asked > 1 else ""
        raise ValueError(
            f"{n} rows of the exact GP need {size / GIB:.1f} GiB for each of {asked} "
            f"threads, and {free_memory() / GIB:.1f} GiB are free: give {fewer}neighbors= and "
            "n_inducing= for a closer approximation instead"
        )
    return replace(budget, most_cores=min(cores, MOST_CORES))


def _rate(n: int = 1000) -> float:
    """Seconds of a Cholesky factor (n, n), the second of two, for each of n^3."""
    for _ in range(2):
        begin = perf_counter()
        linalg.cholesky(np.eye(n), lower=True, check_finite=False)
    return (perf_counter() - begin) / n**3


def _local(gp, training, neighbors, n_inducing, point, budget) -> tuple:
    """A likelihood with more neighbours and inducing points, and its name."""
    if neighbors is None:
        rows = training.gaussian
        own = rows.settings.neighbors if isinstance(rows, NeighborRows) else NEIGHBORS
        neighbors = max(own, NEIGHBORS)
    neighbors = check_count("neighbors", neighbors)
    count = POINTS if n_inducing is None else check_count("n_inducing", n_inducing, 0)
    better = with_neighbors(training, gp.prior_cov, neighbors, point, budget.progressbar, count)
    return better, f"{count} inducing points and {neighbors} neighbors"


def better_density(model, variable, better: TrainingRows, log_ratios=None) -> Density:
    """The model's log density with the better likelihood in the observed variable's place.

    With `log_ratios` their log mean is added; gradients are without it.
    """
    others = [v for v in [*model.basic_RVs, *model.potentials] if v is not variable]
    rest, logp = model.logp(vars=others), better.logp()
    error = pt.constant(0.0) if log_ratios is None else log_mean(log_ratios)
    smooth, error = model.replace_rvs_by_values([logp, error])
    if log_ratios is None:
        return Density(model, rest + smooth)
    return Density(model, rest + smooth + error, rest + smooth)


def _count_functions(attrs, log_ratios, point, model) -> None:
    """Add the error of the mean weight of functions at a point to the evidence's, and their Pareto k.

    They are antithetic pairs, the same at all points and for all seeds, so that the error does not average
    out. Their log weights vary with the root of the number of rows: a warning where they tell nothing.
    """
    found = evaluate([log_ratios], point, model)[0]
    weights = np.exp(found - found.max()).reshape(2, -1).mean(axis=0)
    error = weights.std() / weights.mean() / np.sqrt(len(weights))
    attrs["log_evidence_se"] = float(np.hypot(attrs["log_evidence_se"], error))
    attrs["khat_functions"] = k_hat = smoothed_tail(found)[1]
    if k_hat > BAD_KHAT:
        complain(
            f"k-hat is {k_hat:.2f} for the weights of functions, which do not tell Laplace's error then",
            "There are too many rows for them, or each says too much: stay with the draws that were given, "
            "or sample the function, as sgp.VecchiaLatent does",
        )


def _factor(theta: np.ndarray) -> np.ndarray:
    """Factor (p, p) of the draws' covariance, shrunk to its diagonal where draws are few."""
    n, p = theta.shape
    cov = np.cov(theta.T).reshape(p, p)
    trust = n / (n + 2.0 * p)
    cov = trust * cov + (1.0 - trust) * np.diag(np.diag(cov))
    return np.linalg.cholesky(cov + 1e-12 * np.diag(np.diag(cov).clip(1e-300)))


def _moved(tree, points, weighed, words) -> xr.Dataset:
    """Shift of each mean in the given draws' sds, and the ratio of the sds."""
    names = list(points[0])
    before = np.hstack([np.array([p[name] for p in points]).reshape(len(points), -1) for name in names])
    found = tree["posterior"].dataset
    count = found.sizes["chain"] * found.sizes["draw"]
    after = np.hstack([found[name].values.reshape(count, -1) for name in names])
    sd = before.std(axis=0)
    sd = np.where(sd > 0.0, sd, 1.0)
    return xr.Dataset(
        {
            "shift": ("hyperparameter", (after.mean(axis=0) - before.mean(axis=0)) / sd),
            "sd_ratio": ("hyperparameter", after.std(axis=0) / sd),
        },
        coords={"hyperparameter": entry_names(points[0])},
        attrs={"target": words, "khat": weighed.khat, "ess": weighed.ess},
    )
