"""Log density of a Gaussian vector with a dense covariance, and its hand-written gradient."""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.link.numba.dispatch import basic as nb
from scipy import linalg

from pymc_scalable_gp.ops._base import GufuncOp, connected
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._kernels import (
    cholesky_lower,
    empty_matrix,
    inverse_of_factored,
    solve_lower,
)
from pymc_scalable_gp.ops._lowrank_terms import LOG_2PI
from pymc_scalable_gp.ops._numba import inlined, register_numba


class GaussianLogp(GufuncOp):
    """Log density, ``K^-1 e`` and the Cholesky factor (see `gaussian_logp`).

    Only the density can be differentiated.
    """

    gufunc_signature = "(n,n),(n),(n)->(),(n),(n,n)"
    differentiable_outputs = (0,)

    def perform(self, node, inputs, output_storage):
        K, noise, e = inputs
        L = np.tril(K)
        np.fill_diagonal(L, np.diag(L) + noise)
        logp = np.nan
        with np.errstate(all="ignore"):
            if np.isfinite(L.sum() + e.sum()) and cholesky_lower(L):
                white = linalg.solve_triangular(L, e, lower=True, check_finite=False)
                alpha = linalg.solve_triangular(L, white, lower=True, trans=1, check_finite=False)
                logp = -0.5 * white @ white - np.log(np.diag(L)).sum() - 0.5 * len(e) * LOG_2PI
        if not np.isfinite(logp):
            logp, alpha, L = np.nan, np.full(len(e), np.nan), np.full(L.shape, np.nan)
        for storage, value in zip(output_storage, (logp, alpha, L), strict=True):
            storage[0] = np.asarray(value)

    def pullback(self, inputs, outputs, cotangents):
        """``K_bar = (a a' - S^-1) g / 2``, D's is its diagonal, ``e_bar = -a g``; ``a = S^-1 e``."""
        if any(map(connected, cotangents[1:])):
            raise ValueError("only the first output of GaussianLogp, logp, can be differentiated")
        if not connected(cotangents[0]):
            return [disconnected_type() for _ in inputs]
        _, alpha, factor = outputs
        K_bar, noise_bar = GaussianLogpGrad()(alpha, factor, cotangents[0])
        return [K_bar, noise_bar, -alpha * cotangents[0]]


class GaussianLogpGrad(GufuncOp):
    """``(a a' - (L L')^-1) g / 2``, symmetric, and its diagonal."""

    gufunc_signature = "(n),(n,n),()->(n,n),(n)"

    def perform(self, node, inputs, output_storage):
        alpha, factor, g = inputs
        inverse = factor.copy()
        inverse_of_factored(inverse)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        slope = 0.5 * g * (np.outer(alpha, alpha) - inverse)
        output_storage[0][0], output_storage[1][0] = slope, np.diag(slope).copy()


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


@inlined
def _terms(K, noise, e):
    n = K.shape[0]
    L, alpha = empty_matrix(n, n), np.empty((n, 1))
    total = 0.0
    for i in range(n):
        alpha[i, 0] = e[i]
        total += e[i]
        for j in range(i + 1):
            L[i, j] = K[i, j]
            total += K[i, j]
        for j in range(i + 1, n):
            L[i, j] = 0.0
        L[i, i] += noise[i]
        total += noise[i]
    logp = np.nan
    if np.isfinite(total) and cholesky_lower(L):
        solve_lower(L, alpha, False, False)
        logp = -0.5 * n * LOG_2PI
        for i in range(n):
            logp -= 0.5 * alpha[i, 0] ** 2 + np.log(L[i, i])
        solve_lower(L, alpha, True, False)
    if not np.isfinite(logp):
        logp = np.nan
        L[:] = np.nan
        alpha[:] = np.nan
    return logp, alpha[:, 0].copy(), L


@inlined
def _slope(alpha, factor, g):
    n = len(alpha)
    out = empty_matrix(n, n)
    out[:] = factor
    inverse_of_factored(out)
    for i in range(n):
        for j in range(i + 1):
            out[i, j] = 0.5 * g * (alpha[i] * alpha[j] - out[i, j])
    for start in range(0, n, 64):  # the upper triangle by tiles: a row of it is a column below
        for i in range(n):
            for j in range(max(start, i + 1), min(start + 64, n)):
                out[i, j] = out[j, i]
    diagonal = np.empty(n)
    for i in range(n):
        diagonal[i] = out[i, i]
    return out, diagonal


@register_numba(GaussianLogp)
def numba_gaussian_logp(op):
    @nb.numba_njit
    def gaussian_logp(K, noise, e):
        logp, alpha, factor = _terms(K, noise, e)
        return np.asarray(logp), alpha, factor

    return gaussian_logp


@register_numba(GaussianLogpGrad)
def numba_gaussian_logp_grad(op):
    @nb.numba_njit
    def gaussian_logp_grad(alpha, factor, g):
        return _slope(alpha, factor, g.item())

    return gaussian_logp_grad


@register_jax(GaussianLogp)
def jax_gaussian_logp(op):
    def forward(K, noise, e):
        L = jnp.linalg.cholesky(K + jnp.diag(noise))
        alpha = jax.scipy.linalg.cho_solve((L, True), e)
        logp = -0.5 * e @ alpha - jnp.log(jnp.diag(L)).sum() - 0.5 * len(e) * LOG_2PI
        return tuple(jnp.where(jnp.isfinite(logp), x, jnp.nan) for x in (logp, alpha, L))

    return forward


@register_jax(GaussianLogpGrad, differentiable=False)
def jax_gaussian_logp_grad(op):
    def forward(alpha, factor, g):
        inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(len(alpha)))
        slope = 0.5 * g * (alpha[:, None] * alpha - inverse)
        return slope, jnp.diag(slope)

    return forward
