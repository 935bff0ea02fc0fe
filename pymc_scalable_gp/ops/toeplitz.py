"""Symmetric Toeplitz matrix times a matrix, by FFT."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.link.numba.dispatch import basic as nb
from scipy import fft
from scipy.linalg import matmul_toeplitz

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._fft import (
    backward_fft,
    circulant_length,
    forward_fft,
    roots_of_unity,
)
from pymc_scalable_gp.ops._jax import jnp, register_jax
from pymc_scalable_gp.ops._numba import register_numba


class ToeplitzMatmul(GufuncOp):
    """``T(c) V`` for the first column c (m,) and V (m, k) (see `toeplitz_matvec`)."""

    gufunc_signature = "(m),(m,k)->(m,k)"

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = _matmul(*inputs)

    def pullback(self, inputs, outputs, cotangents):
        """``dV = T(c) G`` and ``dc_l = sum over |i - j| = l of (G V')_ij``."""
        (column, V), (g,) = inputs, cotangents
        return [ToeplitzLags()(V, g), self(column, g)]


class ToeplitzLags(GufuncOp):
    """``c_l = sum over |i - j| = l of (G V')_ij`` (m,): the adjoint of `ToeplitzMatmul` in c."""

    gufunc_signature = "(m,k),(m,k)->(m)"

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = _lags(*inputs)

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

    See Also
    --------
    pymc_scalable_gp.linops.Toeplitz : The matrix as an operator.

    Notes
    -----
    O(k m log m) by a circulant embedding. Rounding is relative to the largest entry of the result.

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


def _matmul(column, V):
    if V.size == 0:
        return np.zeros(V.shape)
    return np.ascontiguousarray(matmul_toeplitz(column, V, check_finite=False))


def _lags(V, G):
    m, k = V.shape
    if m == 0 or k == 0:
        return np.zeros(m)
    size = _length(m)
    # Rows of V' are contiguous: transforms along the last axis need no strided access.
    spectrum = fft.rfft(np.ascontiguousarray(G.T), size)
    spectrum *= np.conj(fft.rfft(np.ascontiguousarray(V.T), size))
    both = fft.irfft(spectrum.sum(axis=0), size)
    lags = both[:m].copy()
    lags[1:] += both[: size - m : -1]
    return lags


@register_jitable
def _load(rows, j, x, y):
    """Rows j and j + 1, if there is one, filled up by zeros, as real and imaginary parts."""
    m = rows.shape[1]
    x[:], y[:] = 0.0, 0.0
    x[:m] = rows[j]
    if j + 1 < rows.shape[0]:
        y[:m] = rows[j + 1]


def _matmul_by_pairs(column, V):
    """As `_matmul`: the matrix is real, so that two columns go as one complex vector."""
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


def _lags_by_pairs(V, G):
    """As `_lags`: the real part of the complex vectors' correlation is the sum of the columns'."""
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


@register_numba(ToeplitzMatmul)
def numba_toeplitz_matmul(op):
    return nb.numba_njit(_matmul_by_pairs)


@register_numba(ToeplitzLags)
def numba_toeplitz_lags(op):
    return nb.numba_njit(_lags_by_pairs)


@register_jax(ToeplitzMatmul)
def jax_toeplitz_matmul(op):
    def forward(column, V):
        m = V.shape[0]
        if V.size == 0:
            return jnp.zeros(V.shape)
        size = _length(m)
        circulant = jnp.zeros(size).at[:m].set(column).at[size - m + 1 :].set(column[:0:-1])
        product = jnp.fft.rfft(circulant)[:, None] * jnp.fft.rfft(V, size, axis=0)
        return jnp.fft.irfft(product, size, axis=0)[:m]

    return forward


@register_jax(ToeplitzLags, differentiable=False)
def jax_toeplitz_lags(op):
    def forward(V, G):
        m = V.shape[0]
        if V.size == 0:
            return jnp.zeros(m)
        size = _length(m)
        product = jnp.fft.rfft(G, size, axis=0) * jnp.conj(jnp.fft.rfft(V, size, axis=0))
        both = jnp.fft.irfft(product.sum(axis=1), size)
        return both[:m].at[1:].add(both[: size - m : -1])

    return forward
