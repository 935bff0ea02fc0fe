"""Sums over pairs of points of what depends on their differences, one input dimension at a time.

As in `_kernels`, each function has a NumPy body and a Numba overload. No digits are lost to an offset
or to a large distance, and ``x - z = -(z - x)`` to the last bit.
"""

import numpy as np
from numba.core.extending import overload
from scipy.spatial.distance import cdist

_PAIRS = 2**15  # pairs of a block in NumPy: what a core's cache holds


def fill_squares(X, Z, s, out):
    """``out[i, j] = sum_a (s_a (x_ia - z_ja))^2`` for points (n, d), (m, d) and scales (d,)."""
    if out.size:
        cdist(X, Z, "sqeuclidean", w=s**2, out=out)


@overload(fill_squares)
def _fill_squares(X, Z, s, out):
    def impl(X, Z, s, out):
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

    return impl


def _blocks(n, m):
    step = max(_PAIRS // max(m, 1), 1)
    return (slice(start, start + step) for start in range(0, n, step))


def fill_moments(X, Z, g, out, power):
    """``out[i, a] = sum_j g_ij (x_ia - z_ja)^power`` for power 1 or 2; g (n, m), out (n, d)."""
    for rows in _blocks(*g.shape):
        for a in range(X.shape[1]):
            part = X[rows, a, None] - Z[:, a]
            if power == 2:
                part *= part
            out[rows, a] = np.einsum("ij,ij->i", g[rows], part)


@overload(fill_moments)
def _fill_moments(X, Z, g, out, power):
    def impl(X, Z, g, out, power):
        n, d = X.shape
        m = Z.shape[0]
        columns, row = np.ascontiguousarray(Z.T), np.empty(m)
        even = m - m % 4
        for i in range(n):
            for j in range(m):
                row[j] = g[i, j]
            for a in range(d):
                x, z = X[i, a], columns[a]
                # Four sums at a time: one alone waits for each addition before the next.
                t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
                for j in range(0, even, 4):
                    p0, p1, p2, p3 = x - z[j], x - z[j + 1], x - z[j + 2], x - z[j + 3]
                    if power == 2:
                        p0, p1, p2, p3 = p0 * p0, p1 * p1, p2 * p2, p3 * p3
                    t0 += row[j] * p0
                    t1 += row[j + 1] * p1
                    t2 += row[j + 2] * p2
                    t3 += row[j + 3] * p3
                for j in range(even, m):
                    p0 = x - z[j]
                    t0 += row[j] * (p0 * p0 if power == 2 else p0)
                out[i, a] = (t0 + t1) + (t2 + t3)

    return impl
