"""Sums of Markov processes, their state and its transitions, one source for Python and Numba.

A process is a sum of groups. A group is a product of Matern processes of unit variance (or a constant), of
which there are independent copies, one for each feature of the group; the function is the sum of the
copies times their features and the roots of their variances. The state of a Matern process of order p
(smoothness p + 1/2) and rate r is ``x_a = (d/dt + r)^a f / r^a``, ``a = 0 .. p``. With ``u = r dt``

    A_ab = exp(-u) u^(b-a) / (b-a)!,        dA / du = F A,  F_ab = 1 [b = a + 1] - 1 [b = a],
    P_ab = c (2p-a-b)! / ((p-a)! (p-b)!) / 2^(2p-a-b+1)

are the transition and the stationary covariance. States of a product are Kronecker products.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import add_multiple, add_square, sum_product

STATIC = -1  # the order of a constant
FACTORIAL = np.array([1.0, 1.0, 2.0, 6.0, 24.0])
# Spectral density of the white noise that drives a process of order p, for k(0) = 1.
DRIVE = np.array([2.0, 4.0, 16.0 / 3.0])
# A feature whose share of the log determinant is below this is left out: see `features_in_use`.
NEGLIGIBLE = 1e-11
# A variance given all earlier rows that is below this share of the prior's is rounding.
DEPENDENT = 1e-14


class Process(NamedTuple):
    """Features in use, where their states are, and the transitions of the present step.

    `plan` has for each group the states q of a copy, the number of copies, where states, features and
    factors of the group begin, the number of its factors, and whether it moves. `up` has for each factor
    and state of a copy the state of next higher order in that factor, or 0.
    """

    V: Any  # (k,)
    G: Any  # (n, k)
    kept: Any  # (k,) places among the given features
    plan: Any  # (g, 7)
    orders: Any  # (f,)
    rates: Any  # (f,)
    A: Any  # (g, w, w), as P
    P: Any
    last: Any  # (1,) the step that A is for
    up: Any  # (f, w)


@register_jitable
def features_in_use(V, G, noise):
    """Places of the features that matter.

    Those for which ``V_k sum_i g_ik^2 / D_i``, which bounds what a feature adds to the log determinant, is
    above :data:`NEGLIGIBLE`. Rows without a target count as one with the least noise.
    """
    n, k = G.shape
    kept, count, bounds = np.empty(k, dtype=np.int64), 0, np.zeros(k)
    least = np.min(noise) if n else 1.0
    for i in range(n):
        weight = np.inf  # where no row has a variance that could bound it
        if 0.0 < least < np.inf:
            weight = 1.0 / (noise[i] if noise[i] < np.inf else least)
        add_square(bounds, weight, G[i])
    for j in range(k):
        if not abs(V[j]) * bounds[j] <= NEGLIGIBLE and V[j] != 0.0:
            kept[count] = j
            count += 1
    return kept[:count]


@register_jitable
def process(rates, V, G, noise, orders, counts, sizes):
    """The process of some groups, whose features are those that matter."""
    groups, factors = len(counts), len(orders)
    kept = features_in_use(V, G, noise)
    plan, kinds = np.zeros((groups, 7), dtype=np.int64), np.empty(factors, dtype=np.int64)
    w, state, feature, factor, given = 1, 0, 0, 0, 0
    for j in range(groups):
        q, size, row = 1, 0, plan[j]
        for f in range(factor, factor + counts[j]):
            kinds[f] = orders[f]
            q *= max(orders[f], 0) + 1
        for place in kept:
            if given <= place and place < given + sizes[j]:
                size += 1
        row[0], row[1], row[2], row[3], row[4] = q, size, state, feature, factor
        row[5], row[6] = counts[j], orders[factor] != STATIC
        state, feature, factor = state + q * size, feature + size, factor + counts[j]
        given, w = given + sizes[j], max(w, q)
    A, P = np.zeros((groups, w, w)), np.zeros((groups, w, w))
    up = np.zeros((factors, w), dtype=np.int64)
    found = Process(V[kept], G[:, kept], kept, plan, kinds, rates, A, P, np.full(1, np.nan), up)
    set_prior(found)
    set_neighbors(found)
    return found


@register_jitable
def states(p):
    """Number of states."""
    last = p.plan[len(p.plan) - 1]
    return last[2] + last[0] * last[1]


@register_jitable
def set_prior(p):
    """Stationary covariance of a copy of each group."""
    for j in range(len(p.plan)):
        q, factor, count = p.plan[j, 0], p.plan[j, 4], p.plan[j, 5]
        for a in range(q):
            for b in range(q):
                value, left, right = 1.0, a, b
                for f in range(factor + count - 1, factor - 1, -1):
                    order = p.orders[f]
                    if order != STATIC:
                        up, to = order - left % (order + 1), order - right % (order + 1)
                        value *= DRIVE[order] * FACTORIAL[up + to] / 2.0 ** (up + to + 1.0)
                        value /= FACTORIAL[up] * FACTORIAL[to]
                        left, right = left // (order + 1), right // (order + 1)
                p.P[j, a, b] = value


@register_jitable
def set_neighbors(p):
    """The states of next higher order: see `Process`."""
    for j in range(len(p.plan)):
        stride = p.plan[j, 0]
        for f in range(p.plan[j, 4], p.plan[j, 4] + p.plan[j, 5]):
            if p.orders[f] == STATIC:
                continue
            stride //= p.orders[f] + 1
            for a in range(p.plan[j, 0]):
                if (a // stride) % (p.orders[f] + 1) < p.orders[f]:
                    p.up[f, a] = a + stride


@register_jitable
def retime(p, dt):
    """Set the transitions of a step, unless they are those of the step before."""
    if p.last[0] == dt:
        return
    p.last[0] = dt
    for j in range(len(p.plan)):
        if not p.plan[j, 6]:
            continue
        q, factor, count = p.plan[j, 0], p.plan[j, 4], p.plan[j, 5]
        total = 0.0
        for f in range(factor, factor + count):
            total += p.rates[f]
        decay = np.exp(-total * dt)
        for a in range(q):
            for b in range(a, q):
                value, left, right = decay, a, b
                for f in range(factor + count - 1, factor - 1, -1):
                    wide = p.orders[f] + 1
                    steps = right % wide - left % wide
                    if steps < 0:
                        value = 0.0
                    for k in range(steps):
                        value *= p.rates[f] * dt / (k + 1.0)
                    left, right = left // wide, right // wide
                p.A[j, a, b] = value


@register_jitable
def carry_parts(p, width, X):
    """``x <- A x`` for each row x of X (c, s width), in which every state has `width` entries.

    In loops over entries, as parts of a row can be short.
    """
    for j in range(len(p.plan)):
        if not p.plan[j, 6]:
            continue
        q, size, start, A = p.plan[j, 0], p.plan[j, 1] * width, p.plan[j, 2] * width, p.A[j]
        for r in range(len(X)):
            for a in range(q):
                low = start + a * size
                next_to = low + size if a + 1 < q else low
                mix_parts(X, r, A[a, a], A[a, a + 1] if a + 1 < q else 0.0, low, next_to, size)
                for b in range(a + 2, q):
                    mix_parts(X, r, 1.0, A[a, b], low, start + b * size, size)


@register_jitable
def carry_parts_back(p, width, X):
    """``x <- A' x``, as `carry_parts`."""
    for j in range(len(p.plan)):
        if not p.plan[j, 6]:
            continue
        q, size, start, A = p.plan[j, 0], p.plan[j, 1] * width, p.plan[j, 2] * width, p.A[j]
        for r in range(len(X)):
            for a in range(q - 1, -1, -1):
                low = start + a * size
                next_to = low - size if a else low
                mix_parts(X, r, A[a, a], A[a - 1, a] if a else 0.0, low, next_to, size)
                for b in range(a - 1):
                    mix_parts(X, r, 1.0, A[b, a], low, start + b * size, size)


@register_jitable
def mix_parts(X, r, own, factor, target, source, size):
    """Some entries of a row become a multiple of themselves and of others."""
    if factor == 0.0:
        if own != 1.0:
            for k in range(size):
                X[r, target + k] *= own
        return
    for k in range(size):
        X[r, target + k] = own * X[r, target + k] + factor * X[r, source + k]


@register_jitable
def carry_rows(p, X):
    """``X <- A X`` for X (s, c), C-ordered: the rows of all copies of a state are one part."""
    carry_parts(p, X.shape[1], X.reshape((1, -1)))


@register_jitable
def carry_back_rows(p, X):
    """``X <- A' X`` for X (s, c), C-ordered."""
    carry_parts_back(p, X.shape[1], X.reshape((1, -1)))


@register_jitable
def carry_columns(p, X):
    """``X <- X A'`` for X (c, s)."""
    carry_parts(p, 1, X)


@register_jitable
def carry_back_columns(p, X):
    """``X <- X A`` for X (c, s)."""
    carry_parts_back(p, 1, X)


@register_jitable
def add_prior(p, sign, fixed, C):
    """``C += sign P kron diag(V)``, for groups that move and, if `fixed`, for the others."""
    for j in range(len(p.plan)):
        if not (fixed or p.plan[j, 6]):
            continue
        q, size, start, first = p.plan[j, 0], p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        for a in range(q):
            for b in range(q):
                scale = sign * p.P[j, a, b]
                for k in range(size):
                    C[start + a * size + k, start + b * size + k] += scale * p.V[first + k]


@register_jitable
def observed(p, i, x):
    """``h_i' x`` for x (s,): features times the states that they belong to."""
    total = 0.0
    for j in range(len(p.plan)):
        size, start, first = p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        total += sum_product(x[start : start + size], p.G[i, first : first + size])
    return total


@register_jitable
def add_observed(p, i, scale, x):
    """``x += scale h_i`` for x (s,)."""
    for j in range(len(p.plan)):
        size, start, first = p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        add_multiple(x[start : start + size], scale, p.G[i, first : first + size])
