"""The Kalman filter of Markov processes, a block of rows at a time, one source for Python and Numba.

A block has b rows at times ``tau_r`` after the row before it, where the states have mean m, covariance C.
``E = C - P``, with P the stationary covariance of the groups that move and 0 for the others. With H (b, s)
what rows see of these states, ``H_r = A(tau_r)' h_r``, and A the transition to the last row,

    S = H E H' + K + D,     G = H E A' + T,     S alpha = z = e - H m,
    m+ = A m + G' alpha,    C+ = A E A' + P - G' S^-1 G,

where K (b, b) is the prior covariance of the moving groups' sum at the rows, T (b, s) that of it with the
states at the last row. What costs more than O(b s) for each row are products of matrices.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import add_multiple, sum_product
from pymc_scalable_gp.ops._kernels import matvec
from pymc_scalable_gp.ops._lowrank_terms import LOG_2PI
from pymc_scalable_gp.ops._markov_steps import add_prior, carry_columns, carry_rows, retime
from pymc_scalable_gp.ops._small import add_small, factor_small, inverse_small, multiply_small

ROWS = 16  # of a block


class Block(NamedTuple):
    """What the states before a block say of its rows."""

    tau: Any  # (b,)
    heads: Any  # (b, g, w, w) A(tau_r)
    pairs: Any  # (b, b, g, w) the first columns of A(tau_r - tau_k) P, for k up to r
    H: Any  # (b, s)
    X: Any  # (b, s) H E
    covariances: Any  # (g, b, b) covariances of the features' sums, G V G'
    inverse: Any  # (b, b) L^-1, L L' = S
    alpha: Any  # (b,)
    gain: Any  # (b, s) G
    logp: Any


@register_jitable
def product(a, b, transpose_a, transpose_b, rows, columns):
    """``op(a) @ op(b)``."""
    out = np.empty((rows, columns))
    multiply_small(a, b, transpose_a, transpose_b, out)
    return out


@register_jitable
def times(p, dt, i, b):
    """Times of the rows, `heads` and `pairs`: those of a row follow from those of the row before."""
    g, w = len(p.plan), p.P.shape[1]
    tau, heads, pairs = np.zeros(b), np.zeros((b, g, w, w)), np.zeros((b, b, g, w))
    for r in range(b):
        step = dt[i + r] if i + r else 0.0
        tau[r] = (tau[r - 1] if r else 0.0) + step
        retime(p, step)
        for j in range(g):
            if not p.plan[j, 6]:
                heads[r, j, 0, 0] = 1.0
                continue
            q, A = p.plan[j, 0], p.A[j]
            for a in range(q):
                pairs[r, r, j, a] = p.P[j, a, 0]
                for c in range(a, q):
                    if r == 0:
                        heads[0, j, a, c] = A[a, c]
                    else:
                        for d in range(a, c + 1):
                            heads[r, j, a, c] += A[a, d] * heads[r - 1, j, d, c]
                    for k in range(r):
                        pairs[r, k, j, a] += A[a, c] * pairs[r - 1, k, j, c]
    return tau, heads, pairs


@register_jitable
def features(p, j, i, b):
    """Features of a group (b, size), and these times their variances."""
    size, first = p.plan[j, 1], p.plan[j, 3]
    own, weighted = np.empty((b, size)), np.empty((b, size))
    for r in range(b):
        for k in range(size):
            own[r, k] = p.G[i + r, first + k]
            weighted[r, k] = own[r, k] * p.V[first + k]
    return own, weighted


@register_jitable
def add_features(p, i, factors, weighted, out):
    """``out[r] += factors[r, j, a] g_rk`` at state (j, a, k), times ``V_k`` if `weighted`; (b, s)."""
    for j in range(len(p.plan)):
        q, size, start, first = p.plan[j, 0], p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        for r in range(len(out)):
            for a in range(q):
                at, factor = start + a * size, factors[r, j, a]
                for k in range(size):
                    scale = factor * p.V[first + k] if weighted else factor
                    out[r, at + k] += scale * p.G[i + r, first + k]


@register_jitable
def look(p, dt, noise, e, i, b, m, C):
    """The block of rows i to i + b, after states of mean m and covariance C; C becomes E."""
    s, g = len(m), len(p.plan)
    tau, heads, pairs = times(p, dt, i, b)
    H, covariances = np.zeros((b, s)), np.zeros((g, b, b))
    add_features(p, i, heads[:, :, 0], False, H)
    for j in range(g):
        if p.plan[j, 6] and p.plan[j, 1]:
            own, weighted = features(p, j, i, b)
            multiply_small(weighted, own, False, True, covariances[j])
    add_prior(p, -1.0, False, C)
    X = product(H, C, False, False, b, s)
    S = product(X, H, False, True, b, b)
    for r in range(b):
        S[r, r] += noise[i + r]
        for k in range(r + 1):
            for j in range(g):
                S[r, k] += pairs[r, k, j, 0] * covariances[j, r, k]
    if not factor_small(S):
        return Block(tau, heads, pairs, H, X, covariances, S, tau, X, np.nan)
    inverse, z = inverse_small(S), np.empty(b)
    logp = -0.5 * b * LOG_2PI
    for r in range(b):
        z[r] = e[i + r] - sum_product(H[r], m)
        logp -= np.log(S[r, r])
    half, alpha = np.empty(b), np.empty(b)
    matvec(inverse, z, False, half)
    matvec(inverse, half, True, alpha)
    logp -= 0.5 * sum_product(half, half)
    p.A[:], p.last[0] = heads[b - 1], tau[b - 1]
    gain = X.copy()
    carry_columns(p, gain)
    add_features(p, i, pairs[b - 1], True, gain)
    return Block(tau, heads, pairs, H, X, covariances, inverse, alpha, gain, logp)


@register_jitable
def move(p, m, E):
    """``A m`` and ``A E A'``, in place."""
    carry_columns(p, m.reshape((1, -1)))
    carry_rows(p, E)
    carry_columns(p, E)


@register_jitable
def run(p, dt, noise, e, start, stop, m, C, kept_m, kept_C, step):
    """Filter rows `start` to `stop`; returns their log density.

    `m` and `C` are those after the row before, and change. Before every `step`-th block they are kept.
    """
    logp, s = 0.0, len(m)
    for place, i in enumerate(range(start, stop, ROWS)):
        b = min(ROWS, stop - i)
        if i == 0:
            m[:], C[:] = 0.0, 0.0
            add_prior(p, 1.0, True, C)
        if place % step == 0 and place // step < len(kept_m):
            kept_m[place // step], kept_C[place // step] = m, C
        block = look(p, dt, noise, e, i, b, m, C)
        logp += block.logp
        if not np.isfinite(block.logp):
            return np.nan
        move(p, m, C)
        add_prior(p, 1.0, False, C)
        white = product(block.gain, block.inverse, True, True, s, b)
        add_small(white, white, True, -1.0, C)
        for r in range(b):
            add_multiple(m, block.alpha[r], block.gain[r])
    return logp
