"""Start values from an exact Gaussian process on a few rows."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from better_optimize import minimize
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.pytensorf import join_nonshared_inputs
from pytensor.graph.traversal import ancestors

from pymc_scalable_gp.point import FEW_CALLS
from pymc_scalable_gp.validate import check_count, check_inputs, check_sigma, check_target


def subset_map(
    gp,
    X,
    y,
    sigma,
    *,
    max_rows: int = 1000,
    maxiter: int = 200,
    random_seed=None,
    progressbar: bool = True,
    model=None,
) -> dict[str, np.ndarray]:
    r"""Maximum a posteriori hyperparameters of the *exact* GP on randomly chosen rows.

    Maximises ``log N(y_s | mean(X_s), K(X_s, X_s) + sigma^2 I) + log prior`` by L-BFGS, the start of
    the GP-GRIEF paper. Use the result for ``gp.build(X, point=...)`` and ``pm.sample(initvals=...)``.

    Parameters
    ----------
    gp : a GP of this package or of `pm.gp`
        Its ``cov_func`` and ``mean_func`` are used.
    X, y : arrays, shapes (n, d) and (n,)
        Data; `max_rows` of them are taken without replacement.
    sigma : float, array (n,) or random variable
        Noise standard deviation.
    max_rows : int
        Cost is O(max_rows^3) an iteration: about 0.1 s at 1000.
    maxiter : int
        Limit of L-BFGS iterations.
    random_seed : int, optional
        Seed of the choice of rows.
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
        For bad inputs, or when nothing is free.
    """
    model = pm.modelcontext(model)
    X, count = check_inputs(X).value, check_count("max_rows", max_rows, 2)
    y = check_target(y, X.shape[0]).value
    sigma = check_sigma(sigma, X.shape[0])
    rng = np.random.default_rng(random_seed)
    rows = np.sort(rng.permutation(X.shape[0])[: min(count, X.shape[0])])
    Xs, ys = pt.constant(X[rows]), y[rows]
    noise = sigma[rows] if sigma.ndim else sigma
    prior_cov = gp.cov_func(Xs)
    jitter = 1e-8 * pt.diag(prior_cov).mean()
    exact = _gaussian_logp(
        ys - gp.mean_func(Xs), prior_cov + pt.eye(len(rows)) * (noise**2 + jitter)
    )
    wanted = set(ancestors([exact]))
    free = [rv for rv in model.free_RVs if rv in wanted]
    if not free:
        raise ValueError("the GP and sigma have no free hyperparameters: there is nothing to fit")
    prior = model.logp(vars=free, jacobian=False)
    (exact,) = model.replace_rvs_by_values([exact])
    values = [model.rvs_to_values[rv] for rv in free]
    start = model.initial_point()
    start = {v.name: start[v.name] for v in values}
    objective = _objective(-(exact + prior), values, start)
    x0 = DictToArrayBijection.map(start)
    result = minimize(
        objective, x0.data, method="L-BFGS-B", jac=True, progressbar=progressbar, maxiter=maxiter
    )
    best = DictToArrayBijection.rmap(RaveledVars(result.x, x0.point_map_info))
    names = {rv.name for rv in free}
    shown = [v for v in model.unobserved_value_vars if v.name in names]
    evaluate = model.compile_fn(shown, inputs=values, on_unused_input="ignore", mode=FEW_CALLS)
    return dict(zip([v.name for v in shown], evaluate(best), strict=True))


def _gaussian_logp(residual, cov):
    """Log density of ``N(0, cov)``; NaN where `cov` is not positive definite."""
    chol = pt.linalg.cholesky(cov, lower=True)
    white = pt.linalg.solve_triangular(chol, residual, lower=True)
    n = residual.shape[0]
    return -0.5 * (white @ white + n * np.log(2.0 * np.pi)) - pt.log(pt.diag(chol)).sum()


def _objective(loss, values, start):
    """Loss and gradient as a function of one vector."""
    [loss], joined = join_nonshared_inputs(start, [loss], values)
    function = pytensor.function([joined], [loss, pt.grad(loss, joined)], mode=FEW_CALLS)

    def objective(x):
        value, gradient = function(x)
        if not np.isfinite(value):  # a step too far: a wall that the line search backs away from
            return 1e100, np.zeros_like(x)
        return float(value), gradient

    return objective
