"""Start values from an exact Gaussian process on a few rows."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from better_optimize import minimize
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.pytensorf import join_nonshared_inputs
from pytensor.graph.traversal import ancestors
from scipy import linalg

from pymc_scalable_gp.core.data import check_inputs, check_sigma, check_target
from pymc_scalable_gp.cov.evaluate import kernel_matrix
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.evaluate import FEW_CALLS

JITTER = 1e-8  # of the mean prior variance


REACH = 10.0  # in the unconstrained space: a factor e^10 for a positive parameter


RESTARTS = 3


TOLERANCE = 1e-6  # relative gain of a step below which L-BFGS stops: a start, not an optimum


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
    prior_cov = kernel_matrix(gp.cov_func, Xs)
    jitter = JITTER * pt.diag(prior_cov).mean()
    cov = prior_cov + pt.eye(len(rows)) * (noise**2 + jitter)
    residual = ys - gp.mean_func(Xs)
    wanted = set(ancestors([cov, residual]))
    free = [rv for rv in model.free_RVs if rv in wanted]
    if not free:
        raise ValueError("the GP and sigma have no free hyperparameters: there is nothing to fit")
    values = [model.rvs_to_values[rv] for rv in free]
    start = model.initial_point()
    start = {v.name: start[v.name] for v in values}
    x0 = DictToArrayBijection.map(start)
    terms = model.replace_rvs_by_values([cov, residual])
    terms, joined = join_nonshared_inputs(
        start, [*terms, model.logp(vars=free, jacobian=False)], values
    )
    result = _minimize(_Objective(terms, joined), x0.data, maxiter, progressbar)
    best = DictToArrayBijection.rmap(RaveledVars(result, x0.point_map_info))
    names = {rv.name for rv in free}
    shown = [v for v in model.unobserved_value_vars if v.name in names]
    evaluate = model.compile_fn(shown, inputs=values, on_unused_input="ignore", mode=FEW_CALLS)
    return dict(zip([v.name for v in shown], evaluate(best), strict=True))


class _Objective:
    """Minus the log posterior of the exact GP and its gradient, from one Cholesky factor.

    With ``a = K^-1 e`` the density's cotangents are ``dK = (a a' - K^-1) / 2`` and ``de = -a``; PyTensor
    carries them on to the hyperparameters, so that nothing of its own O(n^3) gradient is needed.
    """

    def __init__(self, terms, joined):
        cov, residual, prior = terms
        cov_bar, residual_bar = pt.dmatrix(), pt.dvector()
        total = (cov * cov_bar).sum() + residual @ residual_bar + prior
        self.terms = pytensor.function([joined], [cov, residual, prior], mode=FEW_CALLS)
        self.gradient = pytensor.function(
            [joined, cov_bar, residual_bar], pt.grad(total, joined), mode=FEW_CALLS
        )
        self.wall = None

    def __call__(self, x):
        cov, residual, prior = self.terms(x)
        chol, info = linalg.lapack.dpotrf(cov, lower=1)
        if info != 0 or not np.isfinite(prior):
            # A wall just above the last value: the line search comes back from it.
            return self.wall, np.zeros_like(x)
        white = linalg.solve_triangular(chol, residual, lower=True)
        half_logdet = np.log(np.diag(chol)).sum()
        logp = -0.5 * (white @ white + len(white) * np.log(2.0 * np.pi)) - half_logdet
        alpha = linalg.solve_triangular(chol, white, lower=True, trans=1)
        inverse = linalg.lapack.dpotri(chol, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        gradient = self.gradient(x, 0.5 * (np.outer(alpha, alpha) - inverse), -alpha)
        value = -float(logp + prior)
        self.wall = value + abs(value) + 10.0
        return value, -gradient


def _minimize(objective, x0, maxiter, progressbar):
    """L-BFGS from `x0`, restarted while that gains: a wall or a bad scale may end a run early."""
    best, x = np.inf, x0
    bounds = [(v - REACH, v + REACH) for v in x0]
    for _ in range(RESTARTS):
        result = minimize(
            objective, x, method="L-BFGS-B", jac=True, progressbar=progressbar,
            maxiter=maxiter, bounds=bounds, tol=TOLERANCE,
        )  # fmt: skip
        gain, best, x = best - result.fun, min(best, result.fun), result.x
        if gain < 1e-2:
            break
    return x
