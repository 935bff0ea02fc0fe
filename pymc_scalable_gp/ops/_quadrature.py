"""Gauss quadrature for ``b' log(A + c I) b`` from the Lanczos coefficients of A and b."""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import fill_from
from pymc_scalable_gp.ops._jax import jax, jnp

# The trapezoidal rule in log s: this far beyond the eigenvalues the integrand is below rounding, and with
# this many nodes their distance stays below 1/2 for ratios of up to 1e50.
_TAIL, _NODES = 37.0, 400


@register_jitable
def quadrature(alpha, beta, shift):
    """``e_1' log(T + c I) e_1`` and its gradients in alpha, beta and c, in Python and Numba.

    ``T = tridiag(beta, alpha, beta)``, whose last beta is not used; NaN if T + c I is not positive
    definite. O(P): ``log x = log x_0 + int_0^inf 1 / (x_0 + s) - 1 / (x + s) ds``, by the trapezoidal rule
    in log s, exact to rounding, and ``(T + c I + s I)^-1 e_1`` by a recurrence. Its entries, and with them
    the gradient, are right relative to their own size: they fall off along a converged basis, whose adjoint
    divides by their like.
    """
    p, c = alpha.size, float(shift)
    g_alpha, g_beta = np.zeros(p), np.zeros(p)
    size = 0.0
    if p:
        size = np.abs(alpha).max() + 2.0 * np.abs(beta).max() + c
    if not (c > 0.0 and np.isfinite(size)):
        return np.nan, g_alpha * np.nan, g_beta * np.nan, np.nan
    s, weights = _nodes(c, size)
    # Pivots of the elimination from the last row on: d_j = alpha_j + c + s - beta_j^2 / d_{j+1}.
    pivots = np.empty((p, s.size))
    fill_from(pivots[p - 1], alpha[p - 1] + c + s)
    for j in range(p - 2, -1, -1):
        fill_from(pivots[j], alpha[j] + c + s - beta[j] ** 2 / pivots[j + 1])
    if not pivots.min() > 0.0:
        return np.nan, g_alpha * np.nan, g_beta * np.nan, np.nan
    start = alpha[0] + c
    first = 1.0 / pivots[0]  # entry j of (T + c + s)^-1 e_1
    value = np.log(start) + np.sum(weights * (1.0 / (start + s) - first))
    g_alpha[0] = np.sum(weights * first**2)
    for j in range(1, p):
        following = -first * beta[j - 1] / pivots[j]
        g_alpha[j] = np.sum(weights * following**2)
        g_beta[j - 1] = 2.0 * np.sum(weights * first * following)
        first = following
    return value, g_alpha, g_beta, g_alpha.sum()


@register_jitable
def _nodes(low, high):
    """Shifts s and weights ds of the trapezoidal rule, for eigenvalues between low and high."""
    left, right = np.log(low) - _TAIL, np.log(high) + _TAIL
    step = (right - left) / (_NODES - 1)
    s = np.exp(left + step * np.arange(_NODES))
    return s, step * s


def jax_quadrature(alpha, beta, shift):
    """As `quadrature`."""
    size = jnp.abs(alpha).max() + 2.0 * jnp.abs(beta).max() + shift
    left, right = jnp.log(shift) - _TAIL, jnp.log(size) + _TAIL
    step = (right - left) / (_NODES - 1)
    s = jnp.exp(left + step * jnp.arange(_NODES))
    weights = step * s

    def eliminate(after, row):
        pivot = row[0] + shift + s - row[1] ** 2 / after
        return pivot, pivot

    def substitute(first, row):
        following = -first * row[0] / row[1]
        return following, (following, first * following)

    last = alpha[-1] + shift + s
    rows = jnp.stack([alpha[:-1], beta[:-1]], axis=1)
    pivots = jnp.concatenate([jax.lax.scan(eliminate, last, rows, reverse=True)[1], last[None]])
    first, start = 1.0 / pivots[0], alpha[0] + shift
    value = jnp.log(start) + (weights * (1.0 / (start + s) - first)).sum()
    _, (entries, products) = jax.lax.scan(substitute, first, (beta[:-1], pivots[1:]))
    g_alpha = jnp.concatenate([first[None] ** 2, entries**2]) @ weights
    g_beta = jnp.concatenate([2.0 * products @ weights, jnp.zeros(1)])
    value = jnp.where((pivots > 0.0).all() & (shift > 0.0), value, jnp.nan)
    return value, g_alpha, g_beta, g_alpha.sum()
