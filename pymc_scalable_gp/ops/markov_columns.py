"""Solutions, draws and smoothing with the covariance of Markov processes, for many vectors at once."""

from functools import partial

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable

from pymc_scalable_gp.ops import _markov_jax as in_jax
from pymc_scalable_gp.ops._elementwise import add_multiple, sum_product
from pymc_scalable_gp.ops._jax import jax_form
from pymc_scalable_gp.ops._markov_op import MarkovOp, recursion
from pymc_scalable_gp.ops._markov_single import single_columns
from pymc_scalable_gp.ops._markov_steps import (
    DEPENDENT,
    add_observed,
    add_prior,
    carry_back_columns,
    carry_back_rows,
    carry_columns,
    carry_rows,
    observed,
    process,
    retime,
    states,
)


class ColumnsOp(MarkovOp):
    """An Op with columns, which cannot be differentiated."""

    def pullback(self, inputs, outputs, cotangents):
        """Raise ValueError."""
        raise ValueError(f"{type(self).__name__} has no gradient: differentiate markov_logp")


class MarkovSolve(ColumnsOp):
    """``(K + D)^-1 B``: see `markov_solve`."""

    gufunc_signature = "(n),(f),(k),(n,k),(n),(n,c)->(n,c)"


class MarkovColor(ColumnsOp):
    """``L W`` with ``L L' = K + D``: see `markov_color`."""

    gufunc_signature = "(n),(f),(k),(n,k),(n),(n,c)->(n,c)"


class MarkovSmooth(ColumnsOp):
    """Posterior means, one for each column, and variances: see `markov_smooth`."""

    gufunc_signature = "(n),(f),(k),(n,k),(n),(n,c)->(n,c),(n)"


def markov_solve(dt, rates, variances, features, noise, columns, orders, counts, sizes):
    """``(K + D)^-1 B`` for columns B (n, c), with the arguments of :func:`markov_logp`.

    O(n (s^2 + s c)) time, O(n (s + c)) memory. No gradient. NaN where it is not positive definite.
    """
    return _columns(MarkovSolve, dt, rates, variances, features, noise, columns, orders, counts, sizes)


def markov_color(dt, rates, variances, features, noise, white, orders, counts, sizes):
    """``L W`` (n, c) for columns W, with ``L L' = K + D`` and the arguments of :func:`markov_logp`.

    The noise may be 0, times may be equal. O(n (s^2 + s c)). No gradient.
    """
    return _columns(MarkovColor, dt, rates, variances, features, noise, white, orders, counts, sizes)


def markov_smooth(dt, rates, variances, features, noise, columns, orders, counts, sizes):
    """Posterior means ``K (K + D)^-1 B`` (n, c) and variances (n,) of the function at all rows.

    Given columns B of targets, with the arguments of :func:`markov_logp`. Rows whose noise is infinite have
    no target, so that they are predicted. O(n (s^2 + s c)) time, O(n (s + c)) memory. No gradient.
    """
    return _columns(MarkovSmooth, dt, rates, variances, features, noise, columns, orders, counts, sizes)


def _columns(kind, *args):
    *inputs, orders, counts, sizes = args
    return kind(orders, counts, sizes)(*(pt.as_tensor(x) for x in inputs))


@register_jitable
def predict(p, i, dt, M, C):
    """Means (s, c) and covariance (s, s) of the states before row i: ``A M``, ``P + A (C - P) A'``.

    Both are zeros before the first row.
    """
    if i:
        retime(p, dt[i])
        carry_rows(p, M)
        add_prior(p, -1.0, False, C)
        carry_rows(p, C)
        carry_columns(p, C)
    add_prior(p, 1.0, i == 0, C)


@register_jitable
def gains(p, i, C, v):
    """``v = C h_i``; returns ``h_i' v``."""
    for r in range(len(C)):
        v[r] = observed(p, i, C[r])
    return observed(p, i, v)


@register_jitable
def observed_rows(p, i, X, out):
    """``out = h_i' X`` for X (s, c)."""
    out[:] = 0.0
    for j in range(len(p.plan)):
        size, start, first = p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        for k in range(size):
            add_multiple(out, p.G[i, first + k], X[start + k])


@register_jitable
def add_outer(X, v, scale, row):
    """``X += scale v row'``, for means or the covariance."""
    for r in range(len(v)):
        add_multiple(X[r], scale * v[r], row)


@register_jitable
def add_observed_rows(p, i, row, X):
    """``X += h_i row'`` for X (s, c)."""
    for j in range(len(p.plan)):
        size, start, first = p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        for k in range(size):
            add_multiple(X[start + k], p.G[i, first + k], row)


@register_jitable
def forward(p, dt, noise, B):
    """Gains (n, s), variances S (n,), residuals Z (n, c) and what was expected (n, c) of columns B.

    False in the last place where S is not positive. Rows of infinite noise are passed over.
    """
    n, c = B.shape
    s = states(p)
    C, M = np.zeros((s, s)), np.zeros((s, c))
    vs, S, Z, E = np.empty((n, s)), np.empty(n), np.empty((n, c)), np.empty((n, c))
    for i in range(n):
        predict(p, i, dt, M, C)
        observed_rows(p, i, M, E[i])
        S[i] = gains(p, i, C, vs[i])
        if noise[i] == np.inf:
            Z[i] = 0.0
            continue
        S[i] += noise[i]
        if not S[i] > 0.0:
            return vs, S, Z, E, False
        Z[i] = B[i] - E[i]
        add_outer(M, vs[i], 1.0 / S[i], Z[i])
        add_outer(C, vs[i], -1.0 / S[i], vs[i])
    return vs, S, Z, E, True


@recursion(MarkovSolve, partial(single_columns, smooth=False))
def _solve(dt, rates, variances, features, noise, columns, orders, counts, sizes):
    n, c = columns.shape
    p = process(rates, variances, features, noise, orders, counts, sizes)
    vs, S, Z, _, good = forward(p, dt, noise, columns)
    out, X = np.full((n, c), np.nan), np.zeros((states(p), c))
    if not good:
        return out
    for i in range(n - 1, -1, -1):
        out[i] = Z[i]
        for r in range(len(X)):
            add_multiple(out[i], -vs[i, r], X[r])
        out[i] /= S[i]
        add_observed_rows(p, i, out[i], X)
        if i:
            retime(p, dt[i])
            carry_back_rows(p, X)
    return out


@recursion(MarkovColor)
def _color(dt, rates, variances, features, noise, white, orders, counts, sizes):
    n, c = white.shape
    p = process(rates, variances, features, noise, orders, counts, sizes)
    s = states(p)
    C, M = np.zeros((s, s)), np.zeros((s, c))
    v, out = np.empty(s), np.empty((n, c))
    for i in range(n):
        predict(p, i, dt, M, C)
        observed_rows(p, i, M, out[i])
        S, prior = gains(p, i, C, v) + noise[i], noise[i]
        for k in range(len(p.V)):
            prior += p.V[k] * p.G[i, k] * p.G[i, k]
        if not prior >= 0.0:
            out[:] = np.nan
            return out
        if S > DEPENDENT * prior:
            add_multiple(out[i], np.sqrt(S), white[i])
            add_outer(M, v, 1.0 / np.sqrt(S), white[i])
            add_outer(C, v, -1.0 / S, v)
    return out


@recursion(MarkovSmooth, partial(single_columns, smooth=True))
def _smooth(dt, rates, variances, features, noise, columns, orders, counts, sizes):
    n, c = columns.shape
    p = process(rates, variances, features, noise, orders, counts, sizes)
    s = states(p)
    vs, S, Z, mean, good = forward(p, dt, noise, columns)
    X, N, w, row, var = np.zeros((s, c)), np.zeros((s, s)), np.zeros(s), np.empty(c), np.empty(n)
    if not good:
        mean[:], var[:] = np.nan, np.nan
        return mean, var
    for i in range(n - 1, -1, -1):
        v = vs[i]
        if noise[i] < np.inf:
            row[:] = Z[i]
            for r in range(s):
                add_multiple(row, -v[r], X[r])
                w[r] = sum_product(N[r], v)
            row /= S[i]
            add_observed_rows(p, i, row, X)
            own = (1.0 + sum_product(v, w) / S[i]) / S[i]
            # N += h (own h / 2 - w / S)' and its transpose
            w *= -1.0 / S[i]
            add_observed(p, i, 0.5 * own, w)
            for r in range(s):
                add_observed(p, i, w[r], N[r])
            add_observed_rows(p, i, w, N)
        left = observed(p, i, v)
        for r in range(s):
            add_multiple(mean[i], v[r], X[r])
            left -= v[r] * sum_product(N[r], v)
        var[i] = max(left, 0.0)
        if i:
            retime(p, dt[i])
            carry_back_rows(p, X)
            carry_back_columns(p, N)
            carry_back_rows(p, N)
    return mean, var


jax_form(MarkovSolve, differentiable=False)(in_jax.solve)
jax_form(MarkovSmooth, differentiable=False)(in_jax.smooth)
jax_form(MarkovColor, differentiable=False)(in_jax.color)
