"""Posterior draws and the log evidence by adaptive importance sampling: the public function."""

import logging
from collections.abc import Mapping

from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.nuts import go_on_with_nuts
from pymc_scalable_gp.importance.result import as_tree
from pymc_scalable_gp.importance.rounds import find_modes
from pymc_scalable_gp.importance.run import Budget, Clock, complain, run, shortcomings
from pymc_scalable_gp.importance.start import offered_start
from pymc_scalable_gp.utils.checks import check_choice, generator
from pymc_scalable_gp.utils.graphs import model_here

_log = logging.getLogger("pymc")  # where pm.sample tells what it does


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

    1. a mode by L-BFGS, and the curvature there by central differences of the gradient. The search
       pauses where two steps in a row gain less than .02 nats; with the curvature there it ends in a
       step of Newton's, or goes on in units of it. Along each coordinate a few densities, up to the edge
       of the prior, tell of long tails; where there are any, the next steps take the coordinate on a
       scale on which the mode's normal and its tails, a mixture, are standard normal. Where a few steps
       of the other parameters gain three nats or more in such a tail, and over the mode's normal there,
       proposals start there too, with the curvature there;
    2. rounds of max(100, 10 p) or more quasi-random points of multivariate t distributions (7 degrees
       of freedom), of which only the density is taken; the last ones may be smaller. The first t is as skew
       along each parameter as the density is two sds to either side of the mode; with more than 12
       parameters 2 p gradients, ``sqrt(p)`` sds from the mode, move and widen it, up to four times. When
       points are as
       many as the coefficients of a quartic, or rounds are worth little, a Gaussian process on what the t
       leaves of the log density learns from all points so far, and further rounds come from what it
       expects of the density's square, if they are worth more. If both are worth little, it learns from
       gradients too, p for a round;
    3. weights against the mixture of the proposals ``q_k`` of all rounds [1]_, Pareto-smoothed [2]_:
       ``w(theta) = p(theta, y) / sum_k (n_k / N) q_k(theta)``. The next t has the weighted mean and
       covariance, in coordinates in which the weighted points are least skew [3]_;
    4. at least two rounds, until the effective sample size ``1 / sum w^2`` reaches `draws` with k-hat
       below .5, or twice that with k-hat below .7. Where no weight is above three times their mean,
       k-hat counts as 0 at most.

    The log evidence ``log p(y)`` is the log of the mean weight. It errs low where tails are hard to
    reach, as points are weighed under proposals that were fitted to them; its standard error counts the
    difference from the estimate of each round under its own proposal. Priors count as they are written: k
    independent variables under ``ordered`` keep 1 / k! of their mass, which takes ``log k!`` off, and a
    transform or a Potential of your own takes its share. A flat prior leaves an arbitrary constant.

    Parameters
    ----------
    draws : int
        Effective sample size asked for.
    start : dict, optional
        Values of free variables, untransformed, from which the mode is searched; the model's initial
        point for those left out. Default: where the model has a marginal GP of this package with 3000
        rows or more, the mode of the exact GP on 1000 of them (:func:`subset_map`); with neighbours and
        fewer rows, or under another likelihood, at most 20 steps towards it; else the initial point.
        Neighbours are chosen again there, once, if the GP was neither built nor rebuilt at a point by
        hand, the same for every seed; later calls start at the point they were chosen for.
    cores : int, optional
        Threads that evaluate densities side by side; results do not depend on it, up to rounding.
        Default: one for each processor, at most four. One alone under JAX, which has a device or all
        processors to itself, and for a model with ``pytensor.scan``, ``pm.ode``,
        ``pytensor.tensor.optimize`` or operations of your own.
    client : distributed.Client, optional
        Densities are evaluated on its workers, which are processes.
    max_evaluations : int, optional
        Limit of densities, those of the mode's search left out. Default: 40 rounds, 5120 for
        up to twelve parameters; thousands of `draws` may need more.
    max_seconds : float, optional
        No further round begins later than this; the first one always does.
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
        NaN, which have weight 0), ``log_evidence``, ``log_evidence_se``, ``flat_priors`` (variables that
        have one), and ``seconds`` by phase (JSON).

    Raises
    ------
    ValueError
        Without free variables, with discrete or circular ones, with more than 50 parameters, or where the
        density is not finite at the start, rises up to where it is not finite or without bound, or does
        not fall, as under an improper prior.

    Warns
    -----
    UserWarning
        If k-hat exceeds .7, or the effective sample size stays below a quarter of `draws`; if the density
        is NaN at more than a twentieth of the points in the middle of the posterior.

    References
    ----------
    .. [1] Cornuet, Marin, Mira, Robert (2012). Adaptive multiple importance sampling. Scandinavian
       Journal of Statistics 39. doi:10.1111/j.1467-9469.2011.00756.x
    .. [2] Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance sampling. JMLR 25.
    .. [3] Jones, Pewsey (2009). Sinh-arcsinh distributions. Biometrika 96. doi:10.1093/biomet/asp053

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
    check_choice("otherwise", otherwise, ("warn", "nuts"))
    budget = Budget(draws, cores, client, max_evaluations, max_seconds, progressbar)
    model = model_here(model)
    rng = generator(random_seed)
    clock = Clock()
    density = Density(model)
    if start is None:
        start = offered_start(density)
    begin = density.initial if start is None else density.start(start)
    clock.lap("build")
    weighed = run(
        density, lambda: find_modes(density, begin, rng), budget, clock, rng, "Importance sampling"
    )
    if found := shortcomings(weighed, draws):
        if otherwise == "nuts":
            _log.info(f"Importance sampling is not enough: {found}; going on with NUTS")
            return go_on_with_nuts(density, weighed, draws, rng, progressbar)
        complain(
            found,
            "Use pm.sample, or otherwise='nuts', which goes on with it from what was learnt; more "
            "max_evaluations or another start may help where the budget was short",
        )
    return as_tree(density, weighed, clock.laps, rng)
