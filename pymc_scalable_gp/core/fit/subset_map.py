"""Start values from an exact Gaussian process on a few rows."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.data.inputs import check_inputs, check_sigma, check_target, split_noise
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.data.missing import rows_with_targets
from pymc_scalable_gp.core.fit.hyperparameters import Hyperparameters
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.cov.queries import check_rows
from pymc_scalable_gp.ops.gaussian_logp import gaussian_logp
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.compiled import compiled
from pymc_scalable_gp.utils.graphs import model_here
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER

RESTARTS = 2
DRAWS = 8  # from the prior, of which the best one is a second start
BETTER = 0.1  # nats by which that ends higher, where it ends at another mode
TOLERANCE = 1e-6  # relative gain of a step below which L-BFGS stops: a start, not an optimum


def subset_map(
    gp, X, y, sigma, *, point=None, max_rows: int = 1000, maxiter: int = 200, random_seed=None,
    progressbar: bool = True, model=None,
) -> dict[str, np.ndarray]:  # fmt: skip
    r"""Maximum a posteriori hyperparameters of the *exact* GP on randomly chosen rows.

    Maximises ``log N(y_s | mean(X_s), K(X_s, X_s) + sigma^2 I) + log prior`` by L-BFGS, the start of
    the GP-GRIEF paper. Use the result for ``gp.build(X, point=...)`` and ``pm.sample(initvals=...)``.
    The best of two modes: one is searched from the model's initial point, the other from the best of
    eight draws from the prior, where that is proper.

    Parameters
    ----------
    gp : a GP of this package or of `pm.gp`
        Its kernel, with that of tasks, and ``mean_func`` are used.
    X, y : arrays, shapes (n, d) and (n,)
        Data; `max_rows` of them are taken without replacement.
    sigma : float, array (n,) or random variable
        Noise standard deviation, or a kernel as in ``ExactMarginal.marginal_likelihood``.
    point : dict, optional
        Hyperparameters to start from, once; the model's initial point for those left out.
    max_rows : int
        Cost is O(max_rows^3) per iteration, of which there are tens, and more with many lengthscales.
    maxiter : int
        Limit of L-BFGS iterations.
    random_seed : int, optional
        Seed of the choice of rows and of the draws from the prior.
    progressbar : bool
        Show the optimiser's progress.
    model : pm.Model, optional
        Needed outside the model context.

    Returns
    -------
    dict
        Name and value of every free variable that the GP's mean, covariance and sigma depend on.

    Raises
    ------
    ValueError
        For bad inputs, when nothing is free, or a start where the density is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(size=(50, 1))
    >>> y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(50)
    >>> with pm.Model():
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
    ...     gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ell), rank=20)
    ...     start = sgp.subset_map(gp, X, y, sigma, max_rows=40, random_seed=1, progressbar=False)
    ...     rank = gp.build(X, point=start)
    >>> sorted(start), float(start["sigma"].round(1))
    (['ell', 'sigma'], 0.1)
    """
    model = model_here(model)
    sigma, noise_cov = split_noise(sigma)
    if "missing targets" in getattr(gp, "abilities", ()):
        X, y, sigma = rows_with_targets(X, y, sigma)
    given, X, count = X, check_inputs(X).value, check_count("max_rows", max_rows, 2)
    whole = getattr(gp, "prior_cov", gp.cov_func)  # with tasks, and of sums
    whole = whole if noise_cov is None else whole + noise_cov
    check_rows(whole, X)
    target = check_target(y, X.shape[0], given).value
    sigma = check_sigma(sigma, X.shape[0], given, y)
    rng = np.random.default_rng(random_seed)
    rows = np.sort(rng.permutation(X.shape[0])[: min(count, X.shape[0])])
    check_rows(whole, X[rows], "the choice of max_rows=")
    Xs, ys = pt.constant(X[rows]), target[rows]
    noise = sigma[rows] if sigma.ndim else sigma
    prior_cov = kernel_matrix(whole, Xs)
    jitter = KERNEL_JITTER * pt.diag(prior_cov).mean()
    variances = (noise**2 + jitter) * pt.ones(len(rows))
    logp = gaussian_logp(prior_cov, variances, ys - mean_vector(gp.mean_func, Xs))
    hyper = Hyperparameters([logp], model)
    if not hyper.size:
        raise ValueError("the GP and sigma have no free hyperparameters: there is nothing to fit")
    start = hyper.start(point)
    theta = pt.vector("theta", dtype="float64", shape=(hyper.size,))
    prior = hyper.log_prior(theta)
    loss = -(hyper.as_functions_of(theta, [logp])[0] + prior)
    objective = compiled([theta], [loss, pt.grad(loss, theta)])
    stuck = (start == 0.0) & (objective(start)[1] == 0.0)  # as a factor of tasks is where all are 0
    start[stuck] = rng.standard_normal(stuck.sum())
    options = {"maxiter": maxiter, "restarts": RESTARTS, "tol": TOLERANCE, "progressbar": progressbar}
    best, value = hyper.minimize(objective, start, **options)
    if point is None and np.isfinite(value) and (drawn := hyper.from_prior(DRAWS, rng)):
        second = drawn[np.nan_to_num([objective(each)[0] for each in drawn], nan=np.inf).argmin()]
        other, lower = hyper.minimize(objective, second, **options)
        best, value = (other, lower) if lower < value - BETTER else (best, value)
    if not np.isfinite(value):
        raise ValueError(
            f"the exact GP's density is not finite at the start, {hyper.in_words(start)}: give "
            "point={...} with values of plausible size, or initval= to the priors"
        )
    return hyper.untransformed(best)
