"""Cubic convolution (Keys) interpolation from an even 1-D grid, and its adjoint."""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._array_op import ArrayOp, scatter
from pymc_scalable_gp.ops._numba import numba_form

# Row p holds the coefficients of 1, t, t^2, t^3 in the weight of node j + p - 1.
_KEYS = 0.5 * np.array([[0, -1, 2, -1], [2, 0, -5, 3], [0, 1, 4, -3], [0, 0, -1, 1]], dtype=float)


_SLOPES = np.column_stack([_KEYS[:, 1:] * [1, 2, 3], np.zeros(4)])


class CubicInterpolation(ArrayOp):
    """``W(s) U`` or, with ``slope``, ``W'(s) U`` (see `cubic_interpolation`)."""

    __props__ = ("slope",)
    slope = False
    gufunc_signature = "(n),(m,k)->(n,k)"

    def options(self):
        """The table of weights."""
        return (_SLOPES if self.slope else _KEYS,)

    def values(self, xp, s, U):
        """By `interpolate`."""
        return interpolate(s, U, *self.options(), xp)

    def pullback(self, inputs, outputs, cotangents):
        """``dU = W' G`` and ``ds_i = sum_k G_ik (W'(s) U)_ik``; `W` is piecewise smooth in s."""
        (s, U), (g,) = inputs, cotangents
        if self.slope:
            return super().pullback(inputs, outputs, cotangents)
        return [(g * CubicInterpolation(True)(s, U)).sum(axis=1), CubicSpread()(s, g, U)]


class CubicSpread(ArrayOp):
    """``W(s)' G`` (m, k): the adjoint of `CubicInterpolation` in the table, whose shape it needs."""

    gufunc_signature = "(n),(n,k),(m,k)->(m,k)"

    def values(self, xp, s, G, U):
        """One node of each cell after the other."""
        out = xp.zeros((U.shape[0], G.shape[1]))
        if U.shape[0] < 4:
            return out
        first, powers = _cells(s, U.shape[0], xp)
        for p, weights in enumerate(_KEYS @ powers):
            out = scatter(out, first + p, weights[:, None] * G)
        return out


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
        Values at the nodes, m at least 4: fewer give NaN.

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


def _cells(s, m, xp):
    """First of four nodes, and powers (4, n) of the place within the cell, which may be NaN."""
    cell = xp.fmin(xp.fmax(xp.floor(s), 1.0), m - 3.0)
    t = s - cell
    return cell.astype("int64") - 1, xp.stack([xp.ones_like(t), t, t**2, t**3])


def interpolate(s, U, table=_KEYS, xp=np):
    """`cubic_interpolation` of arrays: `xp` is NumPy or JAX's."""
    if U.shape[0] < 4:
        return xp.full((s.size, U.shape[1]), xp.nan)
    first, powers = _cells(s, U.shape[0], xp)
    weights = table @ powers
    return sum(weights[p][:, None] * U[first + p] for p in range(4))


@register_jitable
def _cell(s, m):
    """As `_cells`, for one point: the first node, and the place."""
    j = np.fmin(np.fmax(np.floor(s), 1.0), m - 3.0)
    return np.int64(j) - 1, s - j


@numba_form(CubicInterpolation)
def _interpolate_loop(s, U, table):
    n, k, m = s.size, U.shape[1], U.shape[0]
    out = np.zeros((n, k))
    if m < 4:
        return out * np.nan
    for i in range(n):
        first, t = _cell(s[i], m)
        for p in range(4):
            w = table[p, 0] + t * (table[p, 1] + t * (table[p, 2] + t * table[p, 3]))
            for c in range(k):
                out[i, c] += w * U[first + p, c]
    return out


@numba_form(CubicSpread)
def _spread_loop(s, G, U):
    n, k, m = s.size, G.shape[1], U.shape[0]
    out = np.zeros((m, k))
    if m < 4:
        return out
    for i in range(n):
        first, t = _cell(s[i], m)
        for p in range(4):
            w = _KEYS[p, 0] + t * (_KEYS[p, 1] + t * (_KEYS[p, 2] + t * _KEYS[p, 3]))
            for c in range(k):
                out[first + p, c] += w * G[i, c]
    return out
