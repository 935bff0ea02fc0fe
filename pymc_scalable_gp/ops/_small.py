"""Small dense algebra in Numba that never wakes the threads of a BLAS.

OpenBLAS splits even a product of 50 x 50 matrices between threads, and every triangular solution: the
blocks here are too small for it, and chains that run side by side would wait for each other's threads.
"""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._kernels import (
    cholesky_lower,
    invert_lower,
    multiply_add,
    multiply_any,
    solve_lower,
)

_SMALL = 128  # rows, up to which loops take the place of LAPACK
_WORK = 200_000  # multiplications, up to which OpenBLAS keeps to one thread


@register_jitable
def factor_small(a):
    """As `cholesky_lower`: overwrite the lower triangle with its factor; False when it is not PD."""
    n = a.shape[0]
    if n > _SMALL:
        return cholesky_lower(a)
    upper = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            upper[j, i] = a[i, j]
    for k in range(0, n, 4):  # four rows, then what they leave of the rows below in one pass
        stop = min(k + 4, n)
        for p in range(k, stop):
            row = upper[p]
            for q in range(k, p):
                known, factor = upper[q], upper[q, p]
                for j in range(p, n):
                    row[j] -= factor * known[j]
            if not row[p] > 0.0:
                return False
            scale = 1.0 / np.sqrt(row[p])
            for j in range(p, n):
                row[j] *= scale
        for i in range(stop, n):
            row, u0, u1, u2, u3 = upper[i], upper[k], upper[k + 1], upper[k + 2], upper[k + 3]
            f0, f1, f2, f3 = u0[i], u1[i], u2[i], u3[i]
            for j in range(i, n):
                row[j] -= f0 * u0[j] + f1 * u1[j] + f2 * u2[j] + f3 * u3[j]
    for i in range(n):
        for j in range(i + 1):
            a[i, j] = upper[j, i]
        for j in range(i + 1, n):
            a[i, j] = 0.0
    return True


@register_jitable
def inverse_small(lower):
    """Inverse of a lower-triangular matrix, row by row; its upper triangle must hold zeros."""
    n = lower.shape[0]
    if n > _SMALL:
        out = lower.copy()
        invert_lower(out)
        return out
    out = np.zeros((n, n))
    for i in range(n):
        for k in range(i):
            factor = lower[i, k]
            for j in range(k + 1):
                out[i, j] -= factor * out[k, j]
        scale = 1.0 / lower[i, i]
        for j in range(i):
            out[i, j] *= scale
        out[i, i] = scale
    return out


@register_jitable
def solve_small(lower, rows, transpose, right):
    """As `solve_lower`: overwrite `rows` with ``op(L)^-1 rows``, or with ``rows op(L)^-1``."""
    if lower.shape[0] > _SMALL:
        solve_lower(lower, rows, transpose, right)
        return
    known, inverse = rows.copy(), inverse_small(lower)
    if right:
        multiply_small(known, inverse, False, transpose, rows)
    else:
        multiply_any(inverse, known, transpose, False, rows)


@register_jitable
def multiply_small(a, b, transpose_a, transpose_b, out):
    """As `multiply_any`, by rows of `a` where it is not transposed."""
    rows, inner = a.shape
    work = inner * out.shape[1]
    if transpose_a or rows * work <= _WORK:
        multiply_any(a, b, transpose_a, transpose_b, out)
        return
    step = max(1, _WORK // work)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        multiply_any(a[start:stop], b, False, transpose_b, out[start:stop])


@register_jitable
def add_small(a, b, transpose_b, factor, out):
    """``out += factor a @ op(b)``, as `multiply_small`."""
    rows, work = a.shape[0], max(1, a.shape[1] * out.shape[1])
    step = max(1, _WORK // work)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        multiply_add(a[start:stop], b, False, transpose_b, factor, out[start:stop])


@register_jitable
def subtract_gram(rows, out):
    """``out -= rows @ rows.T`` on the lower triangle, some rows at a time."""
    n = rows.shape[0]
    for start in range(0, n, 16):
        stop = min(start + 16, n)
        part = np.empty((stop - start, stop))
        multiply_small(rows[start:stop], rows[:stop], False, True, part)
        for i in range(start, stop):
            for j in range(i + 1):
                out[i, j] -= part[i - start, j]
