"""Cubic convolution (Keys) interpolation from an even 1-D grid, and its adjoint."""

import numpy as np
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._jax import jnp, register_jax
from pymc_scalable_gp.ops._numba import register_numba

# Row p holds the coefficients of 1, t, t^2, t^3 in the weight of node j + p - 1.
_KEYS = 0.5 * np.array([[0, -1, 2, -1], [2, 0, -5, 3], [0, 1, 4, -3], [0, 0, -1, 1]], dtype=float)


_SLOPES = np.column_stack([_KEYS[:, 1:] * [1, 2, 3], np.zeros(4)])


class CubicInterpolation(GufuncOp):
    """``W(s) U`` or, with ``slope``, ``W'(s) U`` (see `cubic_interpolation`)."""

    __props__ = ("slope",)
    gufunc_signature = "(n),(m,k)->(n,k)"

    def __init__(self, slope=False):
        self.slope = bool(slope)

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = interpolate(*inputs, _SLOPES if self.slope else _KEYS)

    def pullback(self, inputs, outputs, cotangents):
        """``dU = W' G`` and ``ds_i = sum_k G_ik (W'(s) U)_ik``; `W` is piecewise smooth in s."""
        (s, U), (g,) = inputs, cotangents
        if self.slope:
            raise NotImplementedError("cubic_interpolation has no second derivative")
        return [(g * CubicInterpolation(True)(s, U)).sum(axis=1), CubicSpread()(s, g, U)]


class CubicSpread(GufuncOp):
    """``W(s)' G`` (m, k): the adjoint of `CubicInterpolation` in the table, whose shape it needs."""

    gufunc_signature = "(n),(n,k),(m,k)->(m,k)"

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = _spread(*inputs)


def cubic_interpolation(s, U):
    r"""Values between the nodes of an even grid, by cubic convolution with four nodes per point.

    .. math:: (W U)_{ik} = \sum_{p=-1}^{2} w_p(s_i - j_i)\, U_{j_i + p,\,k}, \quad j_i = \lfloor s_i \rfloor

    with Keys' weights, exact for quadratics and once continuously differentiable.

    Parameters
    ----------
    s : tensor, shape (n,)
        Positions in units of the grid: node j is at s = j. Within [1, m - 2]; beyond, the outermost
        cubic is continued.
    U : tensor, shape (m, k)
        Values at the nodes, m at least 4.

    Returns
    -------
    tensor, shape (n, k)
        Differentiable once in both.

    Notes
    -----
    O(n k), nothing of size n x m. The error is O(h^3) in the spacing h.

    References
    ----------
    .. [1] Keys, R. (1981). Cubic convolution interpolation for digital image processing.
       https://doi.org/10.1109/TASSP.1981.1163711

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> squares = np.arange(6.0)[:, None] ** 2
    >>> sgp.ops.cubic_interpolation(np.array([1.5, 2.5]), squares).eval().round(3)
    array([[2.25],
           [6.25]])
    """
    return CubicInterpolation()(s, U)


def _cells(s, m):
    """First of four nodes, and the place within the cell, which may be NaN."""
    cell = np.fmin(np.fmax(np.floor(s), 1.0), m - 3.0)
    return cell.astype(np.int64) - 1, s - cell


def interpolate(s, U, table=_KEYS):
    """`cubic_interpolation` of arrays."""
    out = np.zeros((s.size, U.shape[1]))
    if U.shape[0] < 4:
        return out * np.nan
    first, t = _cells(s, U.shape[0])
    for p in range(4):
        w = table[p, 0] + t * (table[p, 1] + t * (table[p, 2] + t * table[p, 3]))
        out += w.reshape((-1, 1)) * U[first + p]
    return out


def _spread(s, G, U):
    out = np.zeros((U.shape[0], G.shape[1]))
    if U.shape[0] < 4:
        return out
    first, t = _cells(s, U.shape[0])
    for p in range(4):
        w = _KEYS[p] @ np.stack([np.ones_like(t), t, t**2, t**3])
        np.add.at(out, first + p, w[:, None] * G)
    return out


@register_numba(CubicInterpolation)
def numba_cubic_interpolation(op):
    table = _SLOPES if op.slope else _KEYS

    @nb.numba_njit
    def interpolation(s, U):
        n, k, m = s.size, U.shape[1], U.shape[0]
        out = np.zeros((n, k))
        if m < 4:
            return out * np.nan
        for i in range(n):
            j = np.fmin(np.fmax(np.floor(s[i]), 1.0), m - 3.0)
            t, row = s[i] - j, np.int64(j) - 1
            for p in range(4):
                w = table[p, 0] + t * (table[p, 1] + t * (table[p, 2] + t * table[p, 3]))
                for c in range(k):
                    out[i, c] += w * U[row + p, c]
        return out

    return interpolation


@register_numba(CubicSpread)
def numba_cubic_spread(op):
    @nb.numba_njit
    def spread(s, G, U):
        n, k, m = s.size, G.shape[1], U.shape[0]
        out = np.zeros((m, k))
        if m < 4:
            return out
        for i in range(n):
            j = np.fmin(np.fmax(np.floor(s[i]), 1.0), m - 3.0)
            t, row = s[i] - j, np.int64(j) - 1
            for p in range(4):
                w = _KEYS[p, 0] + t * (_KEYS[p, 1] + t * (_KEYS[p, 2] + t * _KEYS[p, 3]))
                for c in range(k):
                    out[row + p, c] += w * G[i, c]
        return out

    return spread


def _jax_cells(s, m):
    cell = jnp.fmin(jnp.fmax(jnp.floor(s), 1), m - 3)
    powers = jnp.stack([jnp.ones_like(s), s - cell, (s - cell) ** 2, (s - cell) ** 3])
    return cell.astype(int) - 1, powers


@register_jax(CubicInterpolation)
def jax_cubic_interpolation(op):
    def forward(s, U):
        if U.shape[0] < 4:
            return jnp.full((s.size, U.shape[1]), jnp.nan)
        first, powers = _jax_cells(s, U.shape[0])
        weights = (_SLOPES if op.slope else _KEYS) @ powers
        return sum(weights[p][:, None] * U[first + p] for p in range(4))

    return forward


@register_jax(CubicSpread, differentiable=False)
def jax_cubic_spread(op):
    def forward(s, G, U):
        size = U.shape[0]
        if size < 4:
            return jnp.zeros((size, G.shape[1]))
        first, powers = _jax_cells(s, size)
        weights, out = _KEYS @ powers, jnp.zeros((size, G.shape[1]))
        for p in range(4):
            out = out.at[first + p].add(weights[p][:, None] * G)
        return out

    return forward
