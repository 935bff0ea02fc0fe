"""Inner loops, BLAS and LAPACK calls that one source can make from Python and from Numba.

Each function has a NumPy/SciPy body (used by ``perform`` and by set-up code) and a Numba
overload that calls SciPy's own BLAS/LAPACK through a cached pointer, as PyTensor does.
Matrices are C-ordered float64; triangular results are the *lower* triangle.
"""

import sys

import llvmlite.binding as llvm
import numpy as np
from numba.core import types
from numba.core.extending import get_cython_function_address, overload
from pytensor.link.numba.dispatch.linalg._LAPACK import (
    int_ptr_to_val,
    val_to_dptr,
    val_to_int_ptr,
)
from scipy import linalg

_INT = types.CPointer(types.int32)


_REAL = types.CPointer(types.float64)


def _routine(module: str, name: str, signature: str):
    """Numba function for a Fortran routine; `signature` has an ``i`` or ``d`` an argument.

    A symbol that LLVM resolves: machine code that calls it can be kept on disk, and needs no
    detour over Python to find the address, which would take longest to compile.
    """
    arguments = [{"i": _INT, "d": _REAL}[kind] for kind in signature]
    symbol = f"sgp_{name}"
    llvm.add_symbol(symbol, get_cython_function_address(f"scipy.linalg.{module}", name))
    return types.ExternalFunction(symbol, types.void(*arguments))


_dsyrk = _routine("cython_blas", "dsyrk", "iiiiddiddi")


_dgemm = _routine("cython_blas", "dgemm", "iiiiiddididdi")


_dgemv = _routine("cython_blas", "dgemv", "iiiddididdi")


_dtrsm = _routine("cython_blas", "dtrsm", "iiiiiiddidi")


_dpotrf = _routine("cython_lapack", "dpotrf", "iidii")


_dpotri = _routine("cython_lapack", "dpotri", "iidii")


_dtrtri = _routine("cython_lapack", "dtrtri", "iiidii")


_dgeqrf = _routine("cython_lapack", "dgeqrf", "iididdii")


_MADVISE = types.ExternalFunction("madvise", types.int32(types.intp, types.intp, types.int32))


_HUGE_PAGES = 14  # MADV_HUGEPAGE


_LARGE = 2**22  # bytes


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


def add_gram(rows, out):
    """``out += rows @ rows.T`` on the lower triangle; `rows` (r, k), last axis contiguous."""
    out += rows @ rows.T


@overload(add_gram)
def _add_gram(rows, out):
    def impl(rows, out):
        r, k = rows.shape
        if r == 0 or k == 0:
            return
        _dsyrk(
            val_to_int_ptr(ord("U")),
            val_to_int_ptr(ord("T")),
            val_to_int_ptr(np.int32(r)),
            val_to_int_ptr(np.int32(k)),
            val_to_dptr(1.0),
            rows.ctypes,
            val_to_int_ptr(np.int32(max(rows.strides[0] // 8, k))),
            val_to_dptr(1.0),
            out.ctypes,
            val_to_int_ptr(np.int32(r)),
        )

    return impl


def multiply(matrix, rows, out):
    """``out[...] = matrix @ rows``: (p, r) by (r, k); last axes of `rows` and `out` contiguous."""
    out[...] = matrix @ rows


@overload(multiply)
def _multiply(matrix, rows, out):
    def impl(matrix, rows, out):
        p, r = matrix.shape
        k = rows.shape[1]
        if p == 0 or k == 0:
            return
        _dgemm(
            val_to_int_ptr(ord("N")),
            val_to_int_ptr(ord("N")),
            val_to_int_ptr(np.int32(k)),
            val_to_int_ptr(np.int32(p)),
            val_to_int_ptr(np.int32(r)),
            val_to_dptr(1.0),
            rows.ctypes,
            val_to_int_ptr(np.int32(max(rows.strides[0] // 8, k))),
            matrix.ctypes,
            val_to_int_ptr(np.int32(max(r, 1))),
            val_to_dptr(0.0),
            out.ctypes,
            val_to_int_ptr(np.int32(max(out.strides[0] // 8, k))),
        )

    return impl


def multiply_any(a, b, transpose_a, transpose_b, out):
    """``out[...] = op(a) @ op(b)`` for contiguous matrices; op transposes where told."""
    np.matmul(a.T if transpose_a else a, b.T if transpose_b else b, out=out)


@overload(multiply_any)
def _multiply_any(a, b, transpose_a, transpose_b, out):
    def impl(a, b, transpose_a, transpose_b, out):
        p, q = out.shape
        inner = a.shape[0] if transpose_a else a.shape[1]
        if p == 0 or q == 0:
            return
        # Fortran sees the transposes: out' (q, p) = op(b)' op(a)'.
        _dgemm(
            val_to_int_ptr(ord("T") if transpose_b else ord("N")),
            val_to_int_ptr(ord("T") if transpose_a else ord("N")),
            val_to_int_ptr(np.int32(q)),
            val_to_int_ptr(np.int32(p)),
            val_to_int_ptr(np.int32(inner)),
            val_to_dptr(1.0),
            b.ctypes,
            val_to_int_ptr(np.int32(max(b.shape[1], 1))),
            a.ctypes,
            val_to_int_ptr(np.int32(max(a.shape[1], 1))),
            val_to_dptr(0.0),
            out.ctypes,
            val_to_int_ptr(np.int32(q)),
        )

    return impl


def matvec(matrix, vector, transpose, out):
    """``out[...] = op(matrix) @ vector`` for contiguous arrays; op transposes if told."""
    np.dot(matrix.T if transpose else matrix, vector, out=out)


@overload(matvec)
def _matvec(matrix, vector, transpose, out):
    def impl(matrix, vector, transpose, out):
        p, q = matrix.shape
        if p == 0 or q == 0:
            out[:] = 0.0
            return
        _dgemv(
            val_to_int_ptr(ord("N") if transpose else ord("T")),
            val_to_int_ptr(np.int32(q)),
            val_to_int_ptr(np.int32(p)),
            val_to_dptr(1.0),
            matrix.ctypes,
            val_to_int_ptr(np.int32(q)),
            vector.ctypes,
            val_to_int_ptr(np.int32(1)),
            val_to_dptr(0.0),
            out.ctypes,
            val_to_int_ptr(np.int32(1)),
        )

    return impl


def norm_one(lower):
    """1-norm of the symmetric matrix whose lower triangle is given."""
    size = np.abs(np.tril(lower))
    return np.max(size.sum(axis=0) + size.sum(axis=1) - np.diag(size), initial=0.0)


@overload(norm_one)
def _norm_one(lower):
    def impl(lower):
        r = lower.shape[0]
        total = np.zeros(r)
        for i in range(r):
            for j in range(i):
                value = abs(lower[i, j])
                total[i] += value
                total[j] += value
            total[i] += abs(lower[i, i])
        largest = 0.0
        for i in range(r):
            largest = max(largest, total[i])
        return largest

    return impl


def cholesky_lower(a):
    """Overwrite the lower triangle of `a` with its Cholesky factor; False when `a` is not PD."""
    try:
        a[...] = linalg.cholesky(np.tril(a) + np.tril(a, -1).T, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    return True


@overload(cholesky_lower)
def _cholesky_lower(a):
    def impl(a):
        n = a.shape[0]
        info = val_to_int_ptr(np.int32(0))
        size = val_to_int_ptr(np.int32(max(n, 1)))
        _dpotrf(val_to_int_ptr(ord("U")), val_to_int_ptr(np.int32(n)), a.ctypes, size, info)
        for i in range(n):
            for j in range(i + 1, n):
                a[i, j] = 0.0
        return int_ptr_to_val(info) == 0

    return impl


def invert_lower(a):
    """Overwrite the lower-triangular `a` with its inverse; False when it is singular."""
    if a.shape[0] == 0:
        return True
    inverse, info = linalg.lapack.dtrtri(a, lower=1)
    a[...] = inverse
    return info == 0


@overload(invert_lower)
def _invert_lower(a):
    def impl(a):
        n = a.shape[0]
        info = val_to_int_ptr(np.int32(0))
        size = val_to_int_ptr(np.int32(max(n, 1)))
        _dtrtri(
            val_to_int_ptr(ord("U")),
            val_to_int_ptr(ord("N")),
            val_to_int_ptr(np.int32(n)),
            a.ctypes,
            size,
            info,
        )
        return int_ptr_to_val(info) == 0

    return impl


def inverse_of_factored(lower):
    """Overwrite the factor L with ``(L L')^-1``, in its lower triangle."""
    if lower.shape[0]:
        inverse, _ = linalg.lapack.dpotri(lower, lower=1)
        lower[...] = inverse


@overload(inverse_of_factored)
def _inverse_of_factored(lower):
    def impl(lower):
        n = lower.shape[0]
        info = val_to_int_ptr(np.int32(0))
        size = val_to_int_ptr(np.int32(max(n, 1)))
        _dpotri(val_to_int_ptr(ord("U")), val_to_int_ptr(np.int32(n)), lower.ctypes, size, info)

    return impl


def qr_transposed(columns):
    """Factor ``columns.T = Q R`` and overwrite `columns` (p, k).

    Its first min(p, k) *columns* then hold ``R.T`` in their lower triangle; the rest is undefined.
    """
    r = np.linalg.qr(columns.T, mode="r")
    columns[:, : r.shape[0]] = r.T


@overload(qr_transposed)
def _qr_transposed(columns):
    def impl(columns):
        p, k = columns.shape
        if p == 0 or k == 0:
            return
        tau = np.empty(min(p, k))
        query = np.empty(1)
        info = val_to_int_ptr(np.int32(0))
        rows_ = val_to_int_ptr(np.int32(k))
        cols_ = val_to_int_ptr(np.int32(p))
        _dgeqrf(
            rows_, cols_, columns.ctypes, rows_, tau.ctypes, query.ctypes,
            val_to_int_ptr(np.int32(-1)), info,
        )  # fmt: skip
        lwork = np.int32(query[0])
        work = np.empty(lwork)
        _dgeqrf(
            rows_, cols_, columns.ctypes, rows_, tau.ctypes, work.ctypes,
            val_to_int_ptr(lwork), info,
        )  # fmt: skip

    return impl


def solve_lower(lower, rows, transpose, right):
    """Overwrite `rows` with ``op(L)^-1 rows``, or with ``rows op(L)^-1`` where `right`; both contiguous.

    op transposes L where told.
    """
    factor = lower.T if transpose else lower
    if right:
        rows[...] = linalg.solve_triangular(factor.T, rows.T, lower=transpose, check_finite=False).T
    else:
        rows[...] = linalg.solve_triangular(factor, rows, lower=not transpose, check_finite=False)


@overload(solve_lower)
def _solve_lower(lower, rows, transpose, right):
    def impl(lower, rows, transpose, right):
        p, q = rows.shape
        if p == 0 or q == 0:
            return
        # Fortran sees L', upper, and rows'.
        _dtrsm(
            val_to_int_ptr(ord("L") if right else ord("R")),
            val_to_int_ptr(ord("U")),
            val_to_int_ptr(ord("T") if transpose else ord("N")),
            val_to_int_ptr(ord("N")),
            val_to_int_ptr(np.int32(q)),
            val_to_int_ptr(np.int32(p)),
            val_to_dptr(1.0),
            lower.ctypes,
            val_to_int_ptr(np.int32(lower.shape[0])),
            rows.ctypes,
            val_to_int_ptr(np.int32(q)),
        )

    return impl
