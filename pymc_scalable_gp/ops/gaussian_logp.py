"""Log density of a Gaussian vector with a dense covariance, and its hand-written gradient."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._elementwise import all_finite, fill_from, sum_log, sum_product
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._kernels import (
    cholesky_lower,
    empty_matrix,
    half_excess,
    inverse_of_factored,
    lower_of_sum,
    mirror,
    solve_lower,
)
from pymc_scalable_gp.ops._lowrank_terms import LOG_2PI
from pymc_scalable_gp.ops._numba import one_source


class GaussianLogp(GufuncOp):
    """Log density, ``K^-1 e`` and the Cholesky factor (see `gaussian_logp`).

    Only the density can be differentiated.
    """

    gufunc_signature = "(n,n),(n),(n)->(),(n),(n,n)"
    differentiable_outputs = (0,)

    def pullback(self, inputs, outputs, cotangents):
        """``K_bar = (a a' - S^-1) g / 2``, D's is its diagonal, ``e_bar = -a g``; ``a = S^-1 e``."""
        _, alpha, factor = outputs
        K_bar, noise_bar = GaussianLogpGrad()(alpha, factor, cotangents[0])
        return [K_bar, noise_bar, -alpha * cotangents[0]]


class GaussianLogpGrad(GufuncOp):
    """``(a a' - (L L')^-1) g / 2``, symmetric, and its diagonal."""

    gufunc_signature = "(n),(n,n),()->(n,n),(n)"


def gaussian_logp(K, noise, residual):
    r"""Log density of ``residual`` (n,) under ``N(0, K + D)``, K (n, n) symmetric, D = diag(noise).

    .. math:: \log p = -\tfrac12 e^\top S^{-1} e - \sum_j \log L_{jj} - \tfrac n2 \log 2\pi,
              \qquad L L^\top = S = K + D

    Parameters
    ----------
    K : tensor, shape (n, n)
        Counts as symmetric: the lower triangle is read.
    noise, residual : tensors, shape (n,)

    Returns
    -------
    scalar tensor
        NaN where S is not positive definite. Differentiable once in all arguments. The gradient costs
        the inverse from the factor, O(n^3), and no products of matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> import pymc_scalable_gp as sgp
    >>> K, noise, residual = np.ones((2, 2)), np.ones(2), np.array([0.5, -0.5])
    >>> print(sgp.ops.gaussian_logp(K, noise, residual).eval().round(4))
    -2.6372
    >>> print(stats.multivariate_normal(cov=K + np.diag(noise)).logpdf(residual).round(4))
    -2.6372
    """
    return GaussianLogp()(*(pt.as_tensor(x) for x in (K, noise, residual)))[0]


@one_source(GaussianLogp)
def _terms(K, noise, e):
    n = len(e)
    L, alpha = empty_matrix(n, n), np.empty((n, 1))
    finite, logp = lower_of_sum(K, noise, L), np.nan
    if finite and all_finite(e) and cholesky_lower(L):
        fill_from(alpha[:, 0], e)
        solve_lower(L, alpha, False, False)
        logp = -0.5 * (n * LOG_2PI + sum_product(alpha[:, 0], alpha[:, 0])) - sum_log(np.diag(L))
        solve_lower(L, alpha, True, False)
    if not np.isfinite(logp):
        logp = np.nan
        L[:] = np.nan
        alpha[:] = np.nan
    return np.asarray(logp), alpha[:, 0].copy(), L


@one_source(GaussianLogpGrad)
def _slope(alpha, factor, g):
    n = len(alpha)
    out = empty_matrix(n, n)
    out[:] = factor
    inverse_of_factored(out)
    half_excess(alpha, g.item(), out)
    mirror(out)
    return out, np.diag(out).copy()


@jax_form(GaussianLogp)
def _jax_terms(K, noise, e):
    L = jax.lax.linalg.cholesky(K + jnp.diag(noise), symmetrize_input=False)  # the lower triangle
    alpha = jax.scipy.linalg.cho_solve((L, True), e)
    logp = -0.5 * e @ alpha - jnp.log(jnp.diag(L)).sum() - 0.5 * len(e) * LOG_2PI
    return tuple(jnp.where(jnp.isfinite(logp), x, jnp.nan) for x in (logp, alpha, L))


@jax_form(GaussianLogpGrad, differentiable=False)
def _jax_slope(alpha, factor, g):
    inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(len(alpha)))
    slope = 0.5 * g * (alpha[:, None] * alpha - inverse)
    return slope, jnp.diag(slope)
