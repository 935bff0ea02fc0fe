"""The Kalman filter of Markov processes, row by row, one source for Python and Numba."""

from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import add_multiple
from pymc_scalable_gp.ops._markov_steps import add_prior, carry, carry_columns, carry_rows, observed, retime


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
    carry_columns(p, C)
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
