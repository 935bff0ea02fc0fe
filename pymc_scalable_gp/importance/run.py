"""One run of adaptive importance sampling from known modes: threads, progress, and what it says."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from joblib import cpu_count
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.mode import Mode
from pymc_scalable_gp.importance.rounds import BAD_KHAT, Weighed, sample
from pymc_scalable_gp.importance.tails import rescaled
from pymc_scalable_gp.importance.workers import side_by_side
from pymc_scalable_gp.utils.checks import check_count, check_positive
from pymc_scalable_gp.utils.warn import warn

_log = logging.getLogger("pymc")  # where pm.sample tells what it does
MOST_CORES = 4
# Share of the posterior's mass that is its middle, and of NaN among the points there that is reported.
MOST, HOLES = 0.9, 0.05


class Clock:
    """Seconds by phase."""

    def __init__(self):
        self.begin = self._last = perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """The phase that ends now."""
        now = perf_counter()
        self.laps[name], self._last = now - self._last, now


@dataclass(frozen=True)
class Budget:
    """What a run may take, checked."""

    draws: int  # effective sample size asked for
    cores: int | None = None  # threads; None for one for each processor, at most `most_cores`
    client: Any = None  # a distributed.Client
    max_evaluations: int | None = None
    max_seconds: float | None = None
    progressbar: bool = True
    most_cores: int = MOST_CORES

    def __post_init__(self):
        check_count("draws", self.draws, 4)
        if self.max_evaluations is not None:
            check_count("max_evaluations", self.max_evaluations, 4)
        if self.cores is not None:
            check_count("cores", self.cores)
        if self.max_seconds is not None:
            check_positive("max_seconds", self.max_seconds)
        client = self.client
        if client is not None and not callable(getattr(client, "scheduler_info", None)):
            raise TypeError(f"client must be a distributed.Client, got {type(client).__name__}")
        if getattr(client, "asynchronous", False):
            raise TypeError("client must be a distributed.Client that is not asynchronous")


def run(
    density: Density, find: Callable[[], list[Mode]], budget: Budget, clock: Clock, rng, label: str
) -> Weighed:
    """Weighed points around the modes of `find`, logged as `label`; ValueError if none is finite."""
    draws = budget.draws
    until = None if budget.max_seconds is None else clock.begin + budget.max_seconds
    progress = create_simple_progress(progressbar=budget.progressbar)
    with progress, side_by_side(density.graphs, _cores(density, budget), budget.client) as where:
        density.where = where or density.where
        modes = find()
        scaled, starts = rescaled(density, modes, rng)
        clock.lap("mode")
        searched, density.evaluations = density.evaluations, 0
        task = progress.add_task(label, completed=0, total=draws)
        weighed = sample(
            scaled, starts, draws, rng, budget.max_evaluations, until,
            lambda found: progress.update(task, completed=min(int(found.ess), draws)),
        )  # fmt: skip
        weighed = scaled.restored(weighed)
    density.evaluations += searched
    clock.lap("rounds")
    if not weighed.ess > 0.0:
        raise ValueError(
            "the log density is finite at none of the points: give start={...} with values of "
            "plausible size, or use pm.sample"
        )
    _log.info(
        f"{label}: {len(modes)} mode{'s' * (len(modes) > 1)}, {density.evaluations} "
        f"densities and {density.gradients} gradients, k-hat {weighed.khat:.2f}, effective sample size "
        f"{weighed.ess:.0f}" + (f", {len(density.failed)} densities not finite" if density.failed else "")
    )
    if (share := share_failed(weighed, density.failed)) > HOLES:
        warn(
            f"The log density is NaN at {share:.0%} of the points where the posterior lies, which lacks "
            "these parts: no mode of the function is found there, as happens under likelihood= with few "
            "inducing points (give n_inducing=50 or more), or a matrix is singular, as where sigma is "
            "nearly zero"
        )
    return weighed


def share_failed(weighed: Weighed, failed: list) -> float:
    """Share of points with a NaN density among those as near to the mean as most of the posterior."""
    if not failed:
        return 0.0
    mean, cov = weighed.moments()
    inverse = np.linalg.pinv(cov, hermitian=True)

    def distances(points):
        return (((points - mean) @ inverse) * (points - mean)).sum(axis=1)

    found = distances(weighed.points)
    order = np.argsort(found)
    radius = found[order][np.searchsorted(np.cumsum(weighed.weights[order]), MOST)]
    lost = (distances(np.array(failed)) <= radius).sum()
    kept = ((found <= radius) & (weighed.weights > 0.0)).sum()
    return float(lost / (lost + kept))


def _cores(density, budget) -> int:
    """Threads, or one for densities that do not run side by side in a process.

    JAX spreads a single one over all processors, or has an accelerator, which is one.
    """
    if not density.graphs.by_ops:
        return 1
    return budget.cores or min(cpu_count(), budget.most_cores)


def shortcomings(weighed: Weighed, draws: int) -> str:
    """In words why the weights cannot be relied on; empty where they can."""
    found = []
    if weighed.khat > BAD_KHAT:
        found.append(f"k-hat is {weighed.khat:.2f}, above {BAD_KHAT}")
    if weighed.ess < draws / 4:
        found.append(f"the effective sample size is {weighed.ess:.0f} of {draws} asked for")
    return " and ".join(found)


def complain(found: str, remedy: str) -> None:
    """Warn of `shortcomings`."""
    warn(f"Importance sampling is not reliable here: {found}. {remedy}")
