"""Sums over pairs of points of what depends on their differences, one input dimension at a time.

As in `_kernels`, each function has a NumPy body and a Numba overload. No digits are lost to an offset
or to a large distance, and ``x - z = -(z - x)`` to the last bit.
"""

import numpy as np
from numba.extending import register_jitable
from scipy.spatial.distance import cdist

from pymc_scalable_gp.ops._numba import in_numba

_PAIRS = 2**15  # pairs of a block in NumPy: what a core's cache holds


def fill_squares(X, Z, s, out):
    """``out[i, j] = sum_a (s_a (x_ia - z_ja))^2`` for points (n, d), (m, d) and scales (d,)."""
    if out.size:
        cdist(X, Z, "sqeuclidean", w=s**2, out=out)


@in_numba(fill_squares)
def _fill_squares(X, Z, s, out):
    n, d = X.shape
    m = Z.shape[0]
    columns = np.ascontiguousarray(Z.T)
    for i in range(n):
        for j in range(m):
            out[i, j] = 0.0
        for a in range(d):
            x, scale = X[i, a], s[a]
            for j in range(m):
                part = (x - columns[a, j]) * scale
                out[i, j] += part * part


def _blocks(n, m):
    step = max(_PAIRS // max(m, 1), 1)
    return (slice(start, start + step) for start in range(0, n, step))


def fill_differences(X, Z, g, out):
    """``out[i, a] = sum_j g_ij (x_ia - z_ja)``; g (n, m), out (n, d)."""
    for rows in _blocks(*g.shape):
        for a in range(X.shape[1]):
            out[rows, a] = np.einsum("ij,ij->i", g[rows], X[rows, a, None] - Z[:, a])


@in_numba(fill_differences)
def _fill_differences(X, Z, g, out):
    n, d = X.shape
    m = Z.shape[0]
    columns, row = np.ascontiguousarray(Z.T), np.empty(m)
    for i in range(n):
        for j in range(m):
            row[j] = g[i, j]
        for a in range(d):
            out[i, a] = _weighted(row, X[i, a], columns[a])


def fill_squared_sums(X, Z, g, out):
    """``out[a] = sum_ij g_ij (x_ia - z_ja)^2``; g (n, m), out (d,)."""
    out[:] = 0.0
    for rows in _blocks(*g.shape):
        for a in range(X.shape[1]):
            part = X[rows, a, None] - Z[:, a]
            part *= part
            out[a] += np.einsum("ij,ij->", g[rows], part)


@in_numba(fill_squared_sums)
def _fill_squared_sums(X, Z, g, out):
    n, d = X.shape
    m = Z.shape[0]
    columns, row, sums = np.ascontiguousarray(Z.T), np.empty(m), np.zeros((d, m))
    for i in range(n):
        for j in range(m):
            row[j] = g[i, j]
        for a in range(d):
            x, z, own = X[i, a], columns[a], sums[a]
            for j in range(m):
                part = x - z[j]
                own[j] += row[j] * part * part
    for a in range(d):
        out[a] = sums[a].sum()


@register_jitable
def _weighted(weights, x, z):
    """``sum_j weights_j (x - z_j)``, four sums at a time: one alone waits for each addition."""
    m = z.size
    even = m - m % 4
    t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
    for j in range(0, even, 4):
        t0 += weights[j] * (x - z[j])
        t1 += weights[j + 1] * (x - z[j + 1])
        t2 += weights[j + 2] * (x - z[j + 2])
        t3 += weights[j + 3] * (x - z[j + 3])
    for j in range(even, m):
        t0 += weights[j] * (x - z[j])
    return (t0 + t1) + (t2 + t3)
