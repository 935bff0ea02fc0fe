"""Distances between two sets of points, and what their gradient needs, for one block of rows.

As in `_kernels`, each function has a NumPy body and a Numba overload. Squared distances come from a
matrix product, which loses digits for pairs that are close compared with their norms; those are
taken again from the differences.
"""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._elementwise import add, fill_from, multiply_by, set_product, subtract
from pymc_scalable_gp.ops._exponential import exponential
from pymc_scalable_gp.ops._kernels import multiply_any
from pymc_scalable_gp.ops._numba import in_numba

# A pair is close when its squared distance is below this share of ||x||^2 + ||z||^2; above it, the
# product form keeps all but the last two digits.
CLOSE = 0.05


_PAIRS = 2**18  # entries of differences held at a time


@register_jitable
def _row_squares(A):
    """Squared norm of each row."""
    out = np.zeros(A.shape[0])
    for i in range(A.shape[0]):
        for a in range(A.shape[1]):
            out[i] += A[i, a] * A[i, a]
    return out


@register_jitable
def centered(X, Z, scale):
    """Both, shifted to the mean of Z, where norms are as small as they can be, then scaled."""
    center = np.zeros(Z.shape[1])
    for j in range(Z.shape[0]):
        add(center, Z[j])
    multiply_by(center, 1.0 / max(Z.shape[0], 1))
    return _moved(X, center, scale), _moved(Z, center, scale)


@register_jitable
def _moved(A, center, scale):
    out = np.empty(A.shape)
    for i in range(A.shape[0]):
        fill_from(out[i], A[i])
        subtract(out[i], center)
        set_product(out[i], out[i], scale)
    return out


def _squared_by_product(Z, X, out):
    """``||z_j - x_i||^2`` by the product form, and the places of close pairs."""
    z2, x2 = np.einsum("ij,ij->i", Z, Z), np.einsum("ij,ij->i", X, X)
    ones = np.ones(len(Z)), np.ones(len(X))
    # The norms ride along in the product: no further pass over the result.
    left, right = np.column_stack([-2.0 * Z, z2, ones[0]]), np.column_stack([X, ones[1], x2])
    np.matmul(left, right.T, out=out)
    norms = z2[:, None] + x2
    norms *= CLOSE
    return np.divmod(np.flatnonzero(out < norms), max(len(X), 1))  # of the flat array: much faster


def _pairs(close, d):
    """Places of close pairs, a bounded number of them at a time."""
    rows, columns = close
    step = max(_PAIRS // max(d, 1), 1)
    for start in range(0, len(rows), step):
        yield rows[start : start + step], columns[start : start + step]


def distances(Z, X, out):
    """``out[j, i] = ||z_j - x_i||`` for points (m, d) and a block of inputs (k, d)."""
    close = _squared_by_product(Z, X, out)
    for j, i in _pairs(close, Z.shape[1]):
        out[j, i] = ((Z[j] - X[i]) ** 2).sum(axis=1)
    np.sqrt(out, out=out)


@in_numba(distances)
def _distances(Z, X, out):
    m, d = Z.shape
    k = X.shape[0]
    multiply_any(Z, X, False, True, out)
    z2, x2 = _row_squares(Z), _row_squares(X)
    for j in range(m):
        for i in range(k):
            out[j, i] = z2[j] + x2[i] - 2.0 * out[j, i]
        for i in range(k):
            if out[j, i] < CLOSE * (z2[j] + x2[i]):
                total = 0.0
                for a in range(d):
                    total += (Z[j, a] - X[i, a]) ** 2
                out[j, i] = total
        for i in range(k):
            out[j, i] = np.sqrt(out[j, i])


def softmax_of_minus(values, out):
    """``out = softmax(-values)`` down each column; `values` is overwritten."""
    if values.shape[0] == 0:
        return
    np.subtract(values.min(axis=0), values, out=values)
    np.exp(values, out=out)
    out /= out.sum(axis=0)


@in_numba(softmax_of_minus)
def _softmax_of_minus(values, out):
    m, k = values.shape
    if m == 0:
        return
    least, total = values[0].copy(), np.zeros(k)
    for j in range(1, m):
        for i in range(k):
            least[i] = min(least[i], values[j, i])
    for j in range(m):
        for i in range(k):
            out[j, i] = exponential(least[i] - values[j, i])
            total[i] += out[j, i]
    for i in range(k):
        total[i] = 1.0 / total[i]
    for j in range(m):
        for i in range(k):
            out[j, i] *= total[i]


def softmax_bar(values, weights, g):
    """Overwrite distances by ``C = weights (sum_j g weights - g) / distance``, 0 at distance 0."""
    bar = weights * ((g * weights).sum(axis=0) - g)
    np.divide(bar, values, out=values, where=values > 0.0)


@in_numba(softmax_bar)
def _softmax_bar(values, weights, g):
    m, k = values.shape
    total = np.zeros(k)
    for j in range(m):
        for i in range(k):
            total[i] += g[j, i] * weights[j, i]
    for j in range(m):
        for i in range(k):
            if values[j, i] > 0.0:
                values[j, i] = weights[j, i] * (total[i] - g[j, i]) / values[j, i]


def add_differences(Z, X, C, out, wrt):
    """Add ``sum_j C_ji (x_i - z_j)`` to out (k, d) (`wrt` = 0) or ``sum_i C_ji (z_j - x_i)`` (m, d).

    C is overwritten.
    """
    close = _squared_by_product(Z, X, np.empty_like(C))
    for j, i in _pairs(close, Z.shape[1]):
        part = C[j, i][:, None] * (Z[j] - X[i])
        np.add.at(out, j if wrt else i, part if wrt else -part)
    C[close] = 0.0
    if wrt:
        out += C.sum(axis=1)[:, None] * Z - C @ X
    else:
        out += C.sum(axis=0)[:, None] * X - C.T @ Z


@in_numba(add_differences)
def _add_differences(Z, X, C, out, wrt):
    m, d = Z.shape
    k = X.shape[0]
    product = np.empty((m, k))
    multiply_any(Z, X, False, True, product)
    z2, x2 = _row_squares(Z), _row_squares(X)
    by_z, by_x = np.zeros(m), np.zeros(k)
    for j in range(m):
        for i in range(k):
            norms = z2[j] + x2[i]
            if norms - 2.0 * product[j, i] < CLOSE * norms:
                for a in range(d):
                    part = C[j, i] * (Z[j, a] - X[i, a])
                    if wrt:
                        out[j, a] += part
                    else:
                        out[i, a] -= part
                C[j, i] = 0.0
        for i in range(k):
            by_z[j] += C[j, i]
            by_x[i] += C[j, i]
    if wrt:
        product = np.empty((m, d))
        multiply_any(C, X, False, False, product)
        for j in range(m):
            for a in range(d):
                out[j, a] += by_z[j] * Z[j, a] - product[j, a]
    else:
        product = np.empty((k, d))
        multiply_any(C, Z, True, False, product)
        for i in range(k):
            for a in range(d):
                out[i, a] += by_x[i] * X[i, a] - product[i, a]
