"""Inner loops, BLAS and LAPACK calls that one source can make from Python and from Numba.

Each function has a NumPy/SciPy body (used by ``perform`` and by set-up code) and a Numba
overload that calls SciPy's own BLAS/LAPACK through a cached pointer, as PyTensor does.
Matrices are C-ordered float64; triangular results are the *lower* triangle.
"""

import sys

import numpy as np
from numba import types
from numba.extending import overload, register_jitable
from scipy import linalg

from pymc_scalable_gp.ops._elementwise import fill_from
from pymc_scalable_gp.ops._numba import in_numba
from pymc_scalable_gp.utils.internals import fortran

_dsyrk = fortran("cython_blas", "dsyrk", "iiiidaidai")
_dgemm = fortran("cython_blas", "dgemm", "iiiiidaiaidai")
_dgemv = fortran("cython_blas", "dgemv", "iiidaiaidai")
_dtrsm = fortran("cython_blas", "dtrsm", "iiiiiidaiai")
_dpotrf = fortran("cython_lapack", "dpotrf", "iiaio")
_dpotri = fortran("cython_lapack", "dpotri", "iiaio")
_dtrtri = fortran("cython_lapack", "dtrtri", "iiiaio")
_dgeqrf = fortran("cython_lapack", "dgeqrf", "iiaiaaio")
_dsyevd = fortran("cython_lapack", "dsyevd", "iiiaiaaiaio")

# Fortran sees the transposes of C-ordered matrices.
_LEFT, _NO, _RIGHT, _YES, _UPPER, _VECTORS = (ord(letter) for letter in "LNRTUV")

_MADVISE = types.ExternalFunction("madvise", types.int32(types.intp, types.intp, types.int32))
_HUGE_PAGES = 14  # MADV_HUGEPAGE
_LARGE = 2**22  # bytes
_ROWS = 256  # of a triangle at a time


def empty_matrix(rows, columns):
    """Uninitialised matrix; a large one on huge pages where Linux has them, as NumPy's are.

    First writes to fresh 4 KiB pages otherwise take longer than the arithmetic that fills them.
    """
    return np.empty((rows, columns))


@overload(empty_matrix)
def _empty_matrix(rows, columns):
    if not sys.platform.startswith("linux"):
        return lambda rows, columns: np.empty((rows, columns))

    def impl(rows, columns):
        out = np.empty((rows, columns))
        if out.nbytes >= _LARGE:
            start = (out.ctypes.data + 4095) // 4096 * 4096
            _MADVISE(start, out.ctypes.data + out.nbytes - start, np.int32(_HUGE_PAGES))
        return out

    return impl


@register_jitable
def _step(rows):
    """Entries from one row to the next."""
    return max(rows.strides[0] // 8, rows.shape[1], 1)


def add_gram(rows, out):
    """``out += rows @ rows.T`` on the lower triangle; `rows` (r, k), last axis contiguous."""
    out += rows @ rows.T


@in_numba(add_gram)
def _add_gram(rows, out):
    r, k = rows.shape
    if r and k:
        _dsyrk(_UPPER, _YES, r, k, 1.0, rows, _step(rows), 1.0, out, r)


def add_gram_columns(rows, out):
    """``out += rows.T @ rows`` on the lower triangle; contiguous."""
    out += rows.T @ rows


@in_numba(add_gram_columns)
def _add_gram_columns(rows, out):
    k, r = rows.shape
    if r and k:
        _dsyrk(_UPPER, _NO, r, k, 1.0, rows, r, 1.0, out, r)


def multiply_any(a, b, transpose_a, transpose_b, out):
    """``out[...] = op(a) @ op(b)`` for matrices of contiguous rows; op transposes where told."""
    np.matmul(a.T if transpose_a else a, b.T if transpose_b else b, out=out)


@in_numba(multiply_any)
def _multiply_any(a, b, transpose_a, transpose_b, out):
    _multiply(a, b, transpose_a, transpose_b, 1.0, 0.0, out)


def multiply_add(a, b, transpose_a, transpose_b, factor, out):
    """``out += factor op(a) @ op(b)``, as `multiply_any`."""
    out += factor * ((a.T if transpose_a else a) @ (b.T if transpose_b else b))


@in_numba(multiply_add)
def _multiply_add(a, b, transpose_a, transpose_b, factor, out):
    _multiply(a, b, transpose_a, transpose_b, factor, 1.0, out)


@register_jitable
def _multiply(a, b, transpose_a, transpose_b, factor, keep, out):
    p, q = out.shape
    inner = a.shape[0] if transpose_a else a.shape[1]
    if p and q:  # out' (q, p) = op(b)' op(a)'
        _dgemm(
            _YES if transpose_b else _NO, _YES if transpose_a else _NO, q, p, inner,
            factor, b, _step(b), a, _step(a), keep, out, _step(out),
        )  # fmt: skip


def matvec(matrix, vector, transpose, out):
    """``out[...] = op(matrix) @ vector`` for contiguous arrays; op transposes if told."""
    np.dot(matrix.T if transpose else matrix, vector, out=out)


@in_numba(matvec)
def _matvec(matrix, vector, transpose, out):
    p, q = matrix.shape
    if p == 0 or q == 0:
        out[:] = 0.0
    else:
        turn = _NO if transpose else _YES
        _dgemv(turn, q, p, 1.0, matrix, q, vector, 1, 0.0, out, 1)


def mirror(out):
    """Fill the upper triangle of `out` from the lower one."""
    for start in range(0, len(out), _ROWS):
        stop = start + _ROWS
        out[:start, start:stop] = out[start:stop, :start].T
        square = out[start:stop, start:stop]
        square[:] = np.tril(square) + np.tril(square, -1).T


@in_numba(mirror)
def _mirror(out):
    """By tiles: its rows are columns there."""
    n = out.shape[0]
    for start in range(0, n, 64):
        stop = min(start + 64, n)
        for i in range(stop):
            first = max(start, i + 1)
            fill_from(out[i, first:stop], out[first:stop, i])


def lower_of_sum(K, noise, out):
    """Fill the lower triangle of `out` with that of ``K + diag(noise)``; whether all of it is finite."""
    good = bool(np.isfinite(noise).all())
    for start in range(0, len(out), _ROWS):
        stop = start + _ROWS
        part = np.tril(K[start:stop, :stop], start)
        good = good and bool(np.isfinite(part).all())
        out[start:stop, :stop] = part
    out[np.diag_indices(len(out))] += noise
    return good


@in_numba(lower_of_sum)
def _lower_of_sum(K, noise, out):
    good = True
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] = K[i, j]
        out[i, i] += noise[i]
        for j in range(i + 1):
            good = good and np.isfinite(out[i, j])
    return good


def symmetric_part(matrix, extra, out):
    """``out = (A + A') / 2 + extra I``."""
    np.add(matrix, matrix.T, out=out)
    out *= 0.5
    out[np.diag_indices(len(out))] += extra


@in_numba(symmetric_part)
def _symmetric_part(matrix, extra, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[0]):
            out[i, j] = 0.5 * (matrix[i, j] + matrix[j, i])
        out[i, i] += extra


def half_excess(a, factor, out):
    """``out = (a a' - out) factor / 2``, in the lower triangles."""
    for start in range(0, len(out), _ROWS):
        stop = start + _ROWS
        part = out[start:stop, :stop]
        np.subtract(np.outer(a[start:stop], a[:stop]), part, out=part)
        part *= 0.5 * factor


@in_numba(half_excess)
def _half_excess(a, factor, out):
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] = 0.5 * factor * (a[i] * a[j] - out[i, j])


def norm_one(lower):
    """1-norm of the symmetric matrix whose lower triangle is given."""
    size = np.abs(np.tril(lower))
    return np.max(size.sum(axis=0) + size.sum(axis=1) - np.diag(size), initial=0.0)


@in_numba(norm_one)
def _norm_one(lower):
    r = lower.shape[0]
    total = np.zeros(r)
    for i in range(r):
        for j in range(i):
            value = abs(lower[i, j])
            total[i] += value
            total[j] += value
        total[i] += abs(lower[i, i])
    return total.max() if r else 0.0  # NaN too


def _in_place(routine, a, **options):
    """Status of a LAPACK routine that overwrites the lower triangle of `a`, Fortran's upper one."""
    found, failed = routine(a.T, lower=0, **options)
    if not np.may_share_memory(found, a):
        a[...] = found.T
    return failed


def cholesky_lower(a):
    """Overwrite the lower triangle of `a` with its Cholesky factor; False when `a` is not PD."""
    return not a.size or _in_place(linalg.lapack.dpotrf, a, overwrite_a=1) == 0


@in_numba(cholesky_lower)
def _cholesky_lower(a):
    n = a.shape[0]
    failed = _dpotrf(_UPPER, n, a, max(n, 1))
    for i in range(n):
        for j in range(i + 1, n):
            a[i, j] = 0.0
    return failed == 0


def invert_lower(a):
    """Overwrite the lower-triangular `a` with its inverse; False when it is singular."""
    return not a.size or _in_place(linalg.lapack.dtrtri, a, overwrite_c=1) == 0


@in_numba(invert_lower)
def _invert_lower(a):
    n = a.shape[0]
    return _dtrtri(_UPPER, _NO, n, a, max(n, 1)) == 0


def inverse_of_factored(lower):
    """Overwrite the factor L with ``(L L')^-1``, in its lower triangle."""
    if lower.size:
        _in_place(linalg.lapack.dpotri, lower, overwrite_c=1)


@in_numba(inverse_of_factored)
def _inverse_of_factored(lower):
    n = lower.shape[0]
    _dpotri(_UPPER, n, lower, max(n, 1))


def qr_transposed(columns):
    """Factor ``columns.T = Q R`` and overwrite `columns` (p, k).

    Its first min(p, k) *columns* then hold ``R.T`` in their lower triangle; the rest is undefined.
    """
    r = np.linalg.qr(columns.T, mode="r")
    columns[:, : r.shape[0]] = r.T


@in_numba(qr_transposed)
def _qr_transposed(columns):
    p, k = columns.shape
    if p and k:
        tau, work = np.empty(min(p, k)), np.empty(1)
        _dgeqrf(k, p, columns, k, tau, work, -1)  # how much work space it wants
        size = int(work[0])
        _dgeqrf(k, p, columns, k, tau, np.empty(size), size)


def solve_lower(lower, rows, transpose, right):
    """Overwrite `rows` with ``op(L)^-1 rows``, or with ``rows op(L)^-1`` where `right`; both contiguous.

    op transposes L where told.
    """
    factor = lower.T if transpose else lower
    if right:
        rows[...] = linalg.solve_triangular(factor.T, rows.T, lower=transpose, check_finite=False).T
    else:
        rows[...] = linalg.solve_triangular(factor, rows, lower=not transpose, check_finite=False)


@in_numba(solve_lower)
def _solve_lower(lower, rows, transpose, right):
    p, q = rows.shape
    if p and q:
        side, turn = _LEFT if right else _RIGHT, _YES if transpose else _NO
        _dtrsm(side, _UPPER, turn, _NO, q, p, 1.0, lower, lower.shape[0], rows, q)


def eigen_rows(a, values):
    """Overwrite symmetric `a` with its eigenvectors as rows, `values` increasing; False on failure.

    The lower triangle is read. It must be finite.
    """
    try:
        values[...], vectors = np.linalg.eigh(a, UPLO="L")
    except np.linalg.LinAlgError:
        return False
    a[...] = vectors.T
    return True


@in_numba(eigen_rows)
def _eigen_rows(a, values):
    n = a.shape[0]
    if n == 0:
        return True
    size, whole = 1 + 6 * n + 2 * n * n, 3 + 5 * n
    work, places = np.empty(size), np.empty(whole // 2 + 1)  # integers, two in place of a float
    return _dsyevd(_VECTORS, _UPPER, n, a, n, values, work, size, places, whole) == 0
