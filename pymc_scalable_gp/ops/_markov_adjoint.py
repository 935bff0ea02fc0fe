"""The adjoint of the Kalman filter in blocks of rows, for Python and Numba: see `_markov_blocks`."""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import add_multiple, add_product, sum_product, sum_product3
from pymc_scalable_gp.ops._kernels import matvec
from pymc_scalable_gp.ops._markov_blocks import features, look, move, product
from pymc_scalable_gp.ops._markov_steps import carry_back_columns, carry_back_rows, carry_columns


class Slopes(NamedTuple):
    """Gradients of the log density, in the features that are in use."""

    dt: Any
    rates: Any
    V: Any
    G: Any
    noise: Any
    e: Any


@register_jitable
def block_back(p, i, b, dt, noise, e, m, C, m_bar, C_bar, out):
    """From the adjoint after a block to that before it; `m` and `C` are those before, and change."""
    s = len(m)
    block = look(p, dt, noise, e, i, b, m, C)
    alpha, gain, inverse = block.alpha, block.gain, block.inverse
    precision = product(inverse, inverse, True, False, b, b)
    y, t = np.empty(b), np.empty(b)
    matvec(gain, m_bar, False, y)
    matvec(precision, y, False, t)
    U = product(precision, gain, False, False, b, s)
    Y = product(U, C_bar, False, False, b, s)
    S_bar = product(Y, U, False, True, b, b)
    gain_bar = -2.0 * Y
    for r in range(b):
        add_multiple(gain_bar[r], alpha[r], m_bar)
        for k in range(b):
            S_bar[r, k] += 0.5 * (alpha[r] * alpha[k] - precision[r, k])
            S_bar[r, k] -= 0.5 * (t[r] * alpha[k] + alpha[r] * t[k])
    z_bar = t - alpha
    X_bar = product(S_bar, block.H, False, False, b, s)
    H_bar = product(S_bar, block.X, False, False, b, s)
    ends = block.X.copy()
    for r in range(b):
        out.noise[i + r], out.e[i + r] = S_bar[r, r], z_bar[r]
    carry_columns(p, ends)
    E = C.copy()
    tau_bar = np.zeros(b)
    before = m.copy()
    move(p, m, E)
    add_variances(p, 1.0, False, C_bar, out.V)
    add_ends(p, block, m, E, ends, m_bar, C_bar, gain_bar, tau_bar, out)
    add_tails(p, i, block, gain_bar, tau_bar, out)
    add_kernels(p, i, block, S_bar, tau_bar, out)
    carry_back_columns(p, m_bar.reshape((1, -1)))
    carry_back_columns(p, C_bar)
    carry_back_rows(p, C_bar)
    carry_back_columns(p, gain_bar)
    X_bar += gain_bar
    H_bar += product(X_bar, C, False, False, b, s)
    add_symmetric(product(block.H, X_bar, True, False, s, s), C_bar)
    for r in range(b):
        add_multiple(m_bar, -z_bar[r], block.H[r])
        add_multiple(H_bar[r], -z_bar[r], before)
    add_heads(p, i, block, H_bar, tau_bar, out)
    add_variances(p, -1.0, False, C_bar, out.V)
    if i == 0:
        add_variances(p, 1.0, True, C_bar, out.V)
    later = 0.0
    for r in range(b - 1, -1, -1):
        later += tau_bar[r]
        if i + r:
            out.dt[i + r] = later


@register_jitable
def add_variances(p, sign, fixed, C_bar, V_bar):
    """The adjoint of `add_prior`."""
    for j in range(len(p.plan)):
        if not (fixed or p.plan[j, 6]):
            continue
        q, size, start, first = p.plan[j, 0], p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        for a in range(q):
            for b in range(q):
                scale = sign * p.P[j, a, b]
                for k in range(size):
                    V_bar[first + k] += scale * C_bar[start + a * size + k, start + b * size + k]


@register_jitable
def slope_of(p, j, f, values, bars):
    """``bars' F_f values`` for vectors (q,): with ``dA / d(r_f t) = F_f A``, see `_markov_steps`."""
    total = 0.0
    for a in range(p.plan[j, 0]):
        total -= bars[a] * values[a]
        if p.up[f, a]:
            total += bars[a] * values[p.up[f, a]]
    return total


@register_jitable
def add_symmetric(half, out):
    """``out += (half + half') / 2``."""
    for a in range(len(half)):
        for b in range(a):
            value = 0.5 * (half[a, b] + half[b, a])
            out[a, b] += value
            out[b, a] += value
        out[a, a] += half[a, a]


@register_jitable
def add_ends(p, block, m, E, ends, m_bar, C_bar, gain_bar, tau_bar, out):
    """Slopes of the transition to the last row: ``m_bar' F m + 2 tr(C_bar F E) + tr(gain_bar F ends')``.

    `m`, E and the rows of `ends` are those after it.
    """
    last = len(block.tau) - 1
    for j in range(len(p.plan)):
        if not p.plan[j, 6]:
            continue
        q, size, start = p.plan[j, 0], p.plan[j, 1], p.plan[j, 2]
        still = agreement(start, start, q * size, m, E, ends, m_bar, C_bar, gain_bar)
        for f in range(p.plan[j, 4], p.plan[j, 4] + p.plan[j, 5]):
            slope = -still
            for a in range(q):
                if p.up[f, a]:
                    low, up = start + a * size, start + p.up[f, a] * size
                    slope += agreement(low, up, size, m, E, ends, m_bar, C_bar, gain_bar)
            out.rates[f] += slope * block.tau[last]
            tau_bar[last] += slope * p.rates[f]


@register_jitable
def agreement(low, up, count, m, E, ends, m_bar, C_bar, gain_bar):
    """Sum of products of the adjoints of states from `low` on with what the states from `up` on have."""
    rows, others = C_bar[low : low + count].reshape(-1), E[up : up + count].reshape(-1)
    total = 2.0 * sum_product(rows, others)
    total += sum_product(m_bar[low : low + count], m[up : up + count])
    for r in range(len(ends)):
        total += sum_product(gain_bar[r, low : low + count], ends[r, up : up + count])
    return total


@register_jitable
def add_tails(p, i, block, gain_bar, tau_bar, out):
    """Slopes of T: what a row and the last states have in common beyond the states before the block."""
    last, bars = len(block.tau) - 1, np.empty(p.P.shape[1])
    for j in range(len(p.plan)):
        if not p.plan[j, 6]:
            continue
        q, size, start, first = p.plan[j, 0], p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        V = p.V[first : first + size]
        for r in range(last + 1):
            g, moved = p.G[i + r, first : first + size], np.zeros(size)
            for a in range(q):
                bar = gain_bar[r, start + a * size : start + (a + 1) * size]
                bars[a] = sum_product3(bar, V, g)
                add_multiple(moved, block.pairs[last, r, j, a], bar)
            add_product(out.G[i + r, first : first + size], moved, V)
            add_product(out.V[first : first + size], moved, g)
            for f in range(p.plan[j, 4], p.plan[j, 4] + p.plan[j, 5]):
                slope = slope_of(p, j, f, block.pairs[last, r, j], bars)
                out.rates[f] += slope * (block.tau[last] - block.tau[r])
                tau_bar[last] += slope * p.rates[f]
                tau_bar[r] -= slope * p.rates[f]


@register_jitable
def add_kernels(p, i, block, S_bar, tau_bar, out):
    """Slopes of K: what rows have in common beyond the states before the block."""
    b = len(block.tau)
    bars, weights = np.zeros(p.P.shape[1]), np.empty((b, b))
    for j in range(len(p.plan)):
        size, first = p.plan[j, 1], p.plan[j, 3]
        if not p.plan[j, 6] or not size:
            continue
        own, _ = features(p, j, i, b)
        for r in range(b):
            for k in range(r + 1):
                weights[r, k] = S_bar[r, k] * block.pairs[r, k, j, 0]
                weights[k, r] = weights[r, k]
        moved = product(weights, own, False, False, b, size)
        for r in range(b):
            for k in range(size):
                out.G[i + r, first + k] += 2.0 * moved[r, k] * p.V[first + k]
                out.V[first + k] += moved[r, k] * own[r, k]
            for k in range(r):
                bars[0] = 2.0 * S_bar[r, k] * block.covariances[j, r, k]
                for f in range(p.plan[j, 4], p.plan[j, 4] + p.plan[j, 5]):
                    slope = slope_of(p, j, f, block.pairs[r, k, j], bars)
                    out.rates[f] += slope * (block.tau[r] - block.tau[k])
                    tau_bar[r] += slope * p.rates[f]
                    tau_bar[k] -= slope * p.rates[f]


@register_jitable
def add_heads(p, i, block, H_bar, tau_bar, out):
    """Slopes of H: what rows see of the states before the block."""
    w = p.P.shape[1]
    bars, zeroth = np.zeros(w), np.zeros(w)
    for j in range(len(p.plan)):
        q, size, start, first = p.plan[j, 0], p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        for r in range(len(block.tau)):
            for a in range(q):
                bar = H_bar[r, start + a * size : start + (a + 1) * size]
                bars[a] = sum_product(bar, p.G[i + r, first : first + size])
                add_multiple(out.G[i + r, first : first + size], block.heads[r, j, 0, a], bar)
            if not p.plan[j, 6]:
                continue
            for a in range(q):
                zeroth[a] = 0.0
                for k in range(q):
                    zeroth[a] += block.heads[r, j, a, k] * bars[k]
            bars[:] = 0.0
            bars[0] = 1.0
            for f in range(p.plan[j, 4], p.plan[j, 4] + p.plan[j, 5]):
                slope = slope_of(p, j, f, zeroth, bars)
                out.rates[f] += slope * block.tau[r]
                tau_bar[r] += slope * p.rates[f]
