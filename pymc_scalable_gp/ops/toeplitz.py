"""Symmetric Toeplitz matrix times a matrix, by FFT."""

import numba
import numpy as np
import pytensor.tensor as pt
from pytensor.link.numba.dispatch import basic as nb
from scipy import fft

from pymc_scalable_gp.ops._base import GufuncOp
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

    Notes
    -----
    O(k m log m) by a circulant embedding. Rounding is relative to the largest entry of the result.
    """
    V = pt.as_tensor_variable(V)
    if V.ndim == 1:
        return ToeplitzMatmul()(column, V[:, None])[:, 0]
    return ToeplitzMatmul()(column, V)


def _length(m):
    """Length of the circulant: at least 2 m - 1, and quick to transform."""
    return fft.next_fast_len(max(2 * m - 1, 1), real=True)


def _matmul(column, V):
    m, k = V.shape
    if m == 0 or k == 0:
        return np.zeros((m, k))
    size = _length(m)
    circulant = np.zeros(size)
    circulant[:m] = column
    circulant[size - m + 1 :] = column[:0:-1]
    # Rows of V' are contiguous: transforms along the last axis need no strided access.
    spectrum = fft.rfft(np.ascontiguousarray(V.T), size)
    spectrum *= fft.rfft(circulant)
    return np.ascontiguousarray(fft.irfft(spectrum, size, overwrite_x=True)[:, :m].T)


def _lags(V, G):
    m, k = V.shape
    if m == 0 or k == 0:
        return np.zeros(m)
    size = _length(m)
    spectrum = fft.rfft(np.ascontiguousarray(G.T), size)
    spectrum *= np.conj(fft.rfft(np.ascontiguousarray(V.T), size))
    both = fft.irfft(spectrum.sum(axis=0), size)
    lags = both[:m].copy()
    lags[1:] += both[: size - m : -1]
    return lags


@register_numba(ToeplitzMatmul)
def numba_toeplitz_matmul(op):
    # Numba has no FFT; SciPy's is called, whose time is far above that of the call.
    @nb.numba_njit
    def toeplitz_matmul(column, V):
        with numba.objmode(out="float64[:,::1]"):
            out = _matmul(column, V)
        return out

    return toeplitz_matmul


@register_numba(ToeplitzLags)
def numba_toeplitz_lags(op):
    @nb.numba_njit
    def toeplitz_lags(V, G):
        with numba.objmode(out="float64[::1]"):
            out = _lags(V, G)
        return out

    return toeplitz_lags


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
