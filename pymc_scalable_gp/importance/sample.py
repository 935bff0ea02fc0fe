"""Posterior draws and the log evidence by adaptive importance sampling: the public function."""

import logging
from collections.abc import Mapping
from time import perf_counter

import numpy as np
import pymc as pm
from joblib import cpu_count
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.nuts import go_on_with_nuts
from pymc_scalable_gp.importance.result import as_tree
from pymc_scalable_gp.importance.rounds import BAD_KHAT, find_modes, sample
from pymc_scalable_gp.importance.workers import side_by_side
from pymc_scalable_gp.utils.checks import check_choice, check_count
from pymc_scalable_gp.utils.warn import warn

_log = logging.getLogger("pymc")  # where pm.sample tells what it does
LONG = 20.0  # seconds of one core, above which processes are worth their start


def sample_importance(
    draws: int = 400,
    *,
    start: Mapping | None = None,
    cores: int | None = None,
    client=None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    otherwise: str = "warn",
    progressbar: bool = True,
    random_seed=None,
    model=None,
):
    r"""Posterior of a model with few free parameters by adaptive importance sampling.

    For any PyMC model with at most 50 continuous free parameters; worth it where a density is dear
    and the posterior not far from normal, as that of a Gaussian process's hyperparameters often is.
    With ``theta`` (p,) the unconstrained parameters:

    1. a mode by L-BFGS, and the curvature there by central differences of the gradient;
    2. rounds of max(100, 10 p) or more quasi-random points of multivariate t distributions (7 degrees
       of freedom), of which only the density is taken. Where such a round is worth little, as from
       about twelve parameters, the log density is learnt from gradients, by a Gaussian process on what
       the quadratic at the mode leaves of it, and rounds come from what was learnt if they are worth
       more;
    3. weights against the mixture of the proposals ``q_k`` of all rounds [1]_, Pareto-smoothed [2]_:
       ``w(theta) = p(theta, y) / sum_k (n_k / N) q_k(theta)``. The next proposal has the weighted mean
       and covariance;
    4. at least two rounds, until the effective sample size ``1 / sum w^2`` reaches `draws` and k-hat
       is below .5.

    The log evidence ``log p(y)`` is the log of the mean weight. It errs low where tails are hard to
    reach, as points are weighed under proposals that were fitted to them; its standard error counts the
    difference from the estimate of each round under its own proposal.

    Parameters
    ----------
    draws : int
        Effective sample size asked for.
    start : dict, optional
        Values of free variables, untransformed, from which the mode is searched; the model's initial
        point for those left out.
    cores : int, optional
        Processes that evaluate densities side by side; results do not depend on it, up to rounding.
        Default: one for each processor, at most four, where the densities of a run would take long,
        else one.
    client : distributed.Client, optional
        Densities are evaluated on its workers.
    max_evaluations : int, optional
        Limit of densities, those of the mode's search left out.
    max_seconds : float, optional
        No round begins later than this.
    otherwise : {"warn", "nuts"}
        What to do where k-hat exceeds .7, or the effective sample size stays below a quarter of
        `draws`: warn, or go on with ``pm.sample`` from the weighted mean, with the weighted covariance
        as its mass matrix.
    progressbar : bool
        Show progress.
    random_seed : int or numpy.random.Generator, optional
        Seed; calls with equal seeds agree.
    model : pm.Model, optional
        Needed outside the model context.

    Returns
    -------
    xarray.DataTree
        As ``pm.sample`` returns: ``posterior`` with four chains of equally weighted draws, as many as
        the weights are worth, each chain made from points of its own; ``sample_stats`` with ``lp``, the
        log density of the unconstrained parameters, and ``log_weight``; data. ``posterior.attrs`` has
        ``khat``, ``ess``, ``evaluations``, ``gradients``, ``failures`` (points where the density was
        NaN, which have weight 0), ``log_evidence``, ``log_evidence_se``, and ``seconds`` by phase (JSON).

    Raises
    ------
    ValueError
        Without free variables, with discrete ones, with more than 50 parameters, or where the density
        is not finite at the start.

    Warns
    -----
    UserWarning
        If k-hat exceeds .7, or the effective sample size stays below a quarter of `draws`.

    References
    ----------
    .. [1] Cornuet, Marin, Mira, Robert (2012). Adaptive multiple importance sampling. Scandinavian
       Journal of Statistics 39. doi:10.1111/j.1467-9469.2011.00756.x
    .. [2] Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0, 3.0])
    ...     idata = sgp.sample_importance(progressbar=False, random_seed=1)
    >>> float(idata.posterior["mu"].mean().round(1)), idata.posterior.attrs["khat"] < 0.5
    (1.5, True)
    """
    draws = check_count("draws", draws, 4)
    if max_evaluations is not None:
        check_count("max_evaluations", max_evaluations, 4)
    if cores is not None:
        check_count("cores", cores)
    check_choice("otherwise", otherwise, ("warn", "nuts"))
    model = pm.modelcontext(model)
    rng = np.random.default_rng(random_seed)
    clock = Clock()
    density = Density(model)
    begin = density.initial if start is None else density.start(start)
    clock.lap("build")
    modes = find_modes(density, begin, rng)
    clock.lap("mode")
    cores = _cores(density, begin) if cores is None else cores
    searched, density.evaluations = density.evaluations, 0
    until = None if max_seconds is None else clock.begin + max_seconds
    progress = create_simple_progress(progressbar=progressbar)
    with progress, side_by_side(density.graphs, cores, client) as where:
        density.where = where or density.where
        task = progress.add_task("Importance sampling", completed=0, total=draws)
        weighed = sample(
            density, modes, draws, rng, max_evaluations, until,
            lambda found: progress.update(task, completed=min(int(found.ess), draws)),
        )  # fmt: skip
    density.evaluations += searched
    clock.lap("rounds")
    if not weighed.ess > 0.0:
        raise ValueError(
            "the log density is finite at none of the points: give start={...} with values of "
            "plausible size, or use pm.sample"
        )
    _log.info(
        f"Importance sampling: {len(modes)} mode{'s' * (len(modes) > 1)}, {density.evaluations} "
        f"densities and {density.gradients} gradients, k-hat {weighed.khat:.2f}, effective sample size "
        f"{weighed.ess:.0f}"
        + (f", {density.failures} densities not finite" if density.failures else "")
    )
    if weighed.khat > BAD_KHAT or weighed.ess < draws / 4:
        _complain(weighed, draws, otherwise)
        if otherwise == "nuts":
            return go_on_with_nuts(density, weighed, draws, rng, progressbar)
    return as_tree(density, weighed, clock.laps, rng)


def _cores(density, point) -> int:
    """One, or a process for each of at most four processors where that pays its start."""
    begin = perf_counter()
    density.values(np.stack([point] * 2))
    return min(cpu_count(), 4) if 300 * (perf_counter() - begin) > LONG else 1


class Clock:
    """Seconds by phase."""

    def __init__(self):
        self.begin = self._last = perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """The phase that ends now."""
        now = perf_counter()
        self.laps[name], self._last = now - self._last, now


def _complain(weighed, draws, otherwise):
    """Warn of weights that cannot be relied on."""
    found = []
    if weighed.khat > BAD_KHAT:
        found.append(f"k-hat is {weighed.khat:.2f}, above {BAD_KHAT}")
    if weighed.ess < draws / 4:
        found.append(f"the effective sample size is {weighed.ess:.0f} of {draws} asked for")
    if otherwise == "nuts":
        _log.info(f"Importance sampling is not enough: {' and '.join(found)}; going on with NUTS")
        return
    warn(
        f"Importance sampling is not reliable here: {' and '.join(found)}. Use pm.sample, or "
        "otherwise='nuts', which goes on with it from what was learnt; more max_evaluations or another "
        "start may help where the budget was short"
    )
