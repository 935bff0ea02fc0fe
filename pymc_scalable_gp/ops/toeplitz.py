"""Symmetric Toeplitz matrix times a matrix, by FFT."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from scipy import fft

from pymc_scalable_gp.ops._array_op import ArrayOp
from pymc_scalable_gp.ops._fft import backward_fft, circulant_length, forward_fft, roots_of_unity
from pymc_scalable_gp.ops._numba import numba_form


class ToeplitzMatmul(ArrayOp):
    """``T(c) V`` for the first column c (m,) and V (m, k) (see `toeplitz_matvec`)."""

    gufunc_signature = "(m),(m,k)->(m,k)"

    def values(self, xp, column, V):
        """By NumPy and SciPy's transforms or by JAX's, along the rows of V'."""
        m, k = V.shape
        if m == 0 or k == 0:
            return xp.zeros((m, k))
        size, fft = _length(m), _transforms(xp)
        gap = xp.zeros(size - 2 * m + 1)
        circulant = fft.rfft(xp.concatenate([column, gap, column[:0:-1]]))
        product = fft.irfft(fft.rfft(V.T, size) * circulant, size)[:, :m].T
        return np.ascontiguousarray(product) if xp is np else product

    def pullback(self, inputs, outputs, cotangents):
        """``dV = T(c) G`` and ``dc_l = sum over |i - j| = l of (G V')_ij``."""
        (column, V), (g,) = inputs, cotangents
        return [ToeplitzLags()(V, g), self(column, g)]


class ToeplitzLags(ArrayOp):
    """``c_l = sum over |i - j| = l of (G V')_ij`` (m,): the adjoint of `ToeplitzMatmul` in c."""

    gufunc_signature = "(m,k),(m,k)->(m)"

    def values(self, xp, V, G):
        """By the columns' correlations."""
        m, k = V.shape
        if m == 0 or k == 0:
            return xp.zeros(m)
        size, fft = _length(m), _transforms(xp)
        spectrum = fft.rfft(G.T, size) * xp.conj(fft.rfft(V.T, size))
        both = fft.irfft(spectrum.sum(axis=0), size)
        return both[:m] + xp.concatenate([xp.zeros(1), both[: size - m : -1]])

    def pullback(self, inputs, outputs, cotangents):
        """Both arguments alike: ``dV = T(c_bar) G``, ``dG = T(c_bar) V``."""
        (V, G), (c_bar,) = inputs, cotangents
        return [ToeplitzMatmul()(c_bar, G), ToeplitzMatmul()(c_bar, V)]


def toeplitz_matvec(column, V):
    """Product of a symmetric Toeplitz matrix with a vector or a matrix.

    Parameters
    ----------
    column : tensor, shape (m,)
        First column: entry (i, j) of the matrix is ``column[|i - j|]``.
    V : tensor, shape (m,) or (m, k)

    Returns
    -------
    tensor, of the shape of `V`
        Differentiable in both, any number of times.

    Notes
    -----
    O(k m log m) by a circulant embedding. Rounding is relative to the largest entry of the result.
    :class:`~pymc_scalable_gp.linops.Toeplitz` is the matrix as an operator.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.linalg import toeplitz
    >>> import pymc_scalable_gp as sgp
    >>> column, v = np.array([2.0, 1.0, 0.5]), np.array([1.0, 2.0, 3.0])
    >>> sgp.ops.toeplitz_matvec(column, v).eval().round(3)
    array([5.5, 8. , 8.5])
    >>> toeplitz(column) @ v
    array([5.5, 8. , 8.5])
    """
    V = pt.as_tensor_variable(V)
    if V.ndim == 1:
        return ToeplitzMatmul()(column, V[:, None])[:, 0]
    return ToeplitzMatmul()(column, V)


def _length(m):
    """Length of the circulant: at least 2 m - 1, and quick to transform."""
    return fft.next_fast_len(max(2 * m - 1, 1), real=True)


def _transforms(xp):
    """SciPy's, of NumPy's arrays, or JAX's."""
    return fft if xp is np else xp.fft


@register_jitable
def _load(rows, j, x, y):
    """Rows j and j + 1, if there is one, filled up by zeros, as real and imaginary parts."""
    m = rows.shape[1]
    x[:], y[:] = 0.0, 0.0
    x[:m] = rows[j]
    if j + 1 < rows.shape[0]:
        y[:m] = rows[j + 1]


@numba_form(ToeplitzMatmul)
def matmul_by_pairs(column, V):
    """As its `values`: the matrix is real, so that two columns go as one complex vector."""
    m, k = V.shape
    out = np.zeros((k, m))
    if m == 0 or k == 0:
        return out.T.copy()
    size = circulant_length(m)
    roots, spectrum, y = roots_of_unity(size), np.zeros(size), np.zeros(size)
    spectrum[:m] = column
    spectrum[size - m + 1 :] = column[:0:-1]
    spectrum /= size
    forward_fft(spectrum, y, roots)  # real, for a symmetric circulant
    x, rows = np.empty(size), np.ascontiguousarray(V.T)
    for j in range(0, k, 2):
        _load(rows, j, x, y)
        forward_fft(x, y, roots)
        x *= spectrum
        y *= spectrum
        backward_fft(x, y, roots)
        out[j] = x[:m]
        if j + 1 < k:
            out[j + 1] = y[:m]
    return np.ascontiguousarray(out.T)


@numba_form(ToeplitzLags)
def lags_by_pairs(V, G):
    """As its `values`: the real part of the complex vectors' correlation is the sum of the columns'."""
    m, k = V.shape
    lags = np.zeros(m)
    if m == 0 or k == 0:
        return lags
    size = circulant_length(m)
    roots, total_x, total_y = roots_of_unity(size), np.zeros(size), np.zeros(size)
    a, b, c, d = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    rows_v, rows_g = np.ascontiguousarray(V.T), np.ascontiguousarray(G.T)
    for j in range(0, k, 2):
        _load(rows_g, j, a, b)
        _load(rows_v, j, c, d)
        forward_fft(a, b, roots)
        forward_fft(c, d, roots)
        total_x += a * c + b * d
        total_y += b * c - a * d
    backward_fft(total_x, total_y, roots)
    lags[0] = total_x[0] / size
    for i in range(1, m):
        lags[i] = (total_x[i] + total_x[size - i]) / size
    return lags
