"""The Kalman filter of Markov processes and its adjoint, row by row, one source for Python and Numba."""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import add_multiple, sum_product
from pymc_scalable_gp.ops._markov_steps import (
    add_observed,
    add_prior,
    carry,
    carry_back,
    carry_back_rows,
    carry_rows,
    observed,
    retime,
)

LOG_2PI = float(np.log(2.0 * np.pi))


@register_jitable
def predict(p, i, dt, m, C):
    """Mean (s,) and covariance (s, s) of the states before row i: ``A m``, ``P + A (C - P) A'``."""
    if i == 0:
        m[:] = 0.0
        C[:] = 0.0
        add_prior(p, 1.0, True, C)
        return
    retime(p, dt[i])
    carry(p, m)
    add_prior(p, -1.0, False, C)
    carry_rows(p, C)
    for r in range(len(C)):
        carry(p, C[r])
    add_prior(p, 1.0, False, C)


@register_jitable
def gains(p, i, C, v):
    """``v = C h_i``; returns ``h_i' v``."""
    for r in range(len(C)):
        v[r] = observed(p, i, C[r])
    return observed(p, i, v)


@register_jitable
def update(v, S, z, m, C):
    """Mean and covariance given a residual z of variance S."""
    add_multiple(m, z / S, v)
    for r in range(len(C)):
        add_multiple(C[r], -v[r] / S, v)


@register_jitable
def run(p, dt, noise, e, start, stop, m, C, kept_m, kept_C, step):
    """Filter rows `start` to `stop`; returns their log density.

    `m` and `C` are those after the row before, and change. Before every `step`-th row they are kept.
    """
    logp, v = 0.0, np.empty(len(m))
    for i in range(start, stop):
        if (i - start) % step == 0 and (i - start) // step < len(kept_m):
            kept_m[(i - start) // step], kept_C[(i - start) // step] = m, C
        predict(p, i, dt, m, C)
        S = gains(p, i, C, v) + noise[i]
        if not S > 0.0:
            return np.nan
        z = e[i] - observed(p, i, m)
        logp -= 0.5 * (LOG_2PI + np.log(S) + z * z / S)
        update(v, S, z, m, C)
    return logp


class Slopes(NamedTuple):
    """Gradients of the log density, in the features that are in use."""

    dt: Any
    rates: Any
    V: Any
    G: Any
    noise: Any
    e: Any


@register_jitable
def step_back(p, i, dt, noise, e, m, C, m_bar, C_bar, out):
    """From the adjoint after row i to that before it; `m` and `C` are those before, and change.

    Of ``logp_i = -(log 2 pi S + z^2 / S) / 2``, ``m+ = m- + v z / S``, ``C+ = C- - v v' / S`` with
    ``v = C- h``, ``S = h' v + D``, ``z = e - h' m-``.
    """
    s = len(m)
    v, v_bar = np.empty(s), np.empty(s)
    predict(p, i, dt, m, C)
    S = gains(p, i, C, v) + noise[i]
    z = e[i] - observed(p, i, m)
    moved = sum_product(v, m_bar)
    for r in range(s):
        v_bar[r] = sum_product(C_bar[r], v)
    S_bar = 0.5 * (z * z / S - 1.0) / S + (sum_product(v, v_bar) / S - z * moved / S) / S
    z_bar = (moved - z) / S
    for r in range(s):
        v_bar[r] = (m_bar[r] * z - 2.0 * v_bar[r]) / S
    out.noise[i], out.e[i] = S_bar, z_bar
    add_observed(p, i, S_bar, v_bar)
    add_observed(p, i, -z_bar, m_bar)
    for j in range(len(p.plan)):
        size, start, first = p.plan[j, 1], p.plan[j, 2], p.plan[j, 3]
        for k in range(size):
            at = start + k
            out.G[i, first + k] = S_bar * v[at] - z_bar * m[at] + sum_product(C[at], v_bar)
            add_multiple(C_bar[at], 0.5 * p.G[i, first + k], v_bar)
    for r in range(s):
        add_observed(p, i, 0.5 * v_bar[r], C_bar[r])
    add_variances(p, 1.0, i == 0, C_bar, out.V)
    if i:
        add_prior(p, -1.0, False, C)
        add_step(p, i, dt, m, C, m_bar, C_bar, out)
        carry_back(p, m_bar)
        for r in range(s):
            carry_back(p, C_bar[r])
        carry_back_rows(p, C_bar)
        add_variances(p, -1.0, False, C_bar, out.V)


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
def add_step(p, i, dt, m, E, m_bar, C_bar, out):
    """Slopes in the step and the rates: with ``dA / du = F A`` they are ``m_bar' F m + 2 tr(C_bar F E)``.

    `m` and ``E = A (C - P) A'`` are those after the transition.
    """
    for j in range(len(p.plan)):
        if not p.plan[j, 6]:
            continue
        q, size, start = p.plan[j, 0], p.plan[j, 1], p.plan[j, 2]
        factor, count = p.plan[j, 4], p.plan[j, 5]
        still = 0.0
        for r in range(start, start + q * size):
            still += m_bar[r] * m[r] + 2.0 * sum_product(C_bar[r], E[r])
        stride = q
        for f in range(factor, factor + count):
            stride //= p.orders[f] + 1
            slope = -still
            for a in range(q):
                if (a // stride) % (p.orders[f] + 1) < p.orders[f]:
                    for r in range(start + a * size, start + (a + 1) * size):
                        to = r + stride * size
                        slope += m_bar[r] * m[to] + 2.0 * sum_product(C_bar[r], E[to])
            out.rates[f] += slope * dt[i]
            out.dt[i] += slope * p.rates[f]
