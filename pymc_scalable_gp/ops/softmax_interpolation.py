"""Softmax interpolation weights ``W[i, j] = softmax_j(-||x_i - z_j||)`` in row blocks."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Constant
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._distances import (
    add_differences,
    distances,
    softmax_bar,
    softmax_of_minus,
)
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._kernels import empty_matrix
from pymc_scalable_gp.ops._numba import inlined, register_numba

_BLOCK = 256  # rows whose distances to all points stay in a core's cache


class SoftmaxInterpolation(GufuncOp):
    """Weights of `softmax_interpolation` at temperature 1, transposed: one point a row, (m, n)."""

    gufunc_signature = "(n,d),(m,d)->(m,n)"

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = _weights(*(np.ascontiguousarray(a) for a in inputs))

    def pullback(self, inputs, outputs, cotangents):
        r"""Cotangents through the logits ``l_ij = -||x_i - z_j||``.

        ``dl_ij = W_ij (G_ij - sum_k G_ik W_ik)``, ``C_ij = -dl_ij / ||x_i - z_j||`` (0 at distance 0),
        ``dx_i = sum_j C_ij (x_i - z_j)``, ``dz_j = sum_i C_ij (z_j - x_i)``.
        """
        (g,) = cotangents
        return [SoftmaxInterpolationGrad(wrt)(*inputs, *outputs, g) for wrt in (0, 1)]


class SoftmaxInterpolationGrad(GufuncOp):
    """Cotangent of X (`wrt` = 0) or of Z (1); two Ops, since mostly only one is wanted."""

    __props__ = ("wrt",)

    def __init__(self, wrt):
        self.wrt = wrt
        self.gufunc_signature = f"(n,d),(m,d),(m,n),(m,n)->{('(n,d)', '(m,d)')[wrt]}"

    def perform(self, node, inputs, output_storage):
        arrays = (np.ascontiguousarray(a) for a in inputs)
        output_storage[0][0] = _weights_grad.py_func(*arrays, self.wrt)


def softmax_interpolation(X, Z, temperature=1.0):
    r"""Soft assignment of inputs to points: the interpolation weights of SoftKI.

    .. math:: W_{ij} = \frac{\exp(-\|(x_i - z_j) / T\|)}{\sum_k \exp(-\|(x_i - z_k) / T\|)}

    Parameters
    ----------
    X : tensor, shape (n, d)
        Inputs.
    Z : tensor, shape (m, d)
        Interpolation points.
    temperature : tensor, scalar or shape (d,)
        Positive T: small values give the nearest point all the weight, large ones spread it.

    Returns
    -------
    tensor, shape (n, m)
        Rows sum to 1. Differentiable in all arguments; the norm's gradient at distance 0 is taken
        as 0. Stored column by column, as `lowrank_logp` reads features.

    Notes
    -----
    O(n m d) time, as a matrix product; besides the result only a block of rows, never (n, m, d).
    Distances come from ``||x||^2 + ||z||^2 - 2 x'z`` where that loses no digits and from the
    differences for close pairs, so that they are exact at and near 0.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> X, Z = np.array([[0.0], [0.5]]), np.array([[0.0], [1.0]])
    >>> sgp.ops.softmax_interpolation(X, Z).eval().round(3)
    array([[0.731, 0.269],
           [0.5  , 0.5  ]])
    >>> sgp.ops.softmax_interpolation(X, Z, temperature=0.1).eval().round(3)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    X, Z, temperature = (pt.as_tensor_variable(a) for a in (X, Z, temperature))
    if isinstance(temperature, Constant) and np.all(temperature.data == 1.0):
        return SoftmaxInterpolation()(X, Z).T
    # Centred before it is scaled: the quotient of a large offset has lost the digits that differ.
    center = disconnected_grad(Z.mean(axis=0))
    return SoftmaxInterpolation()((X - center) / temperature, (Z - center) / temperature).T


@register_jitable
def _centered(X, Z):
    """Both, shifted to the points' mean: squared norms are then as small as they can be."""
    center = np.zeros(Z.shape[1])
    for j in range(Z.shape[0]):
        center += Z[j]
    center /= max(Z.shape[0], 1)
    return X - center, Z - center


def _weights(X, Z):
    n, m = X.shape[0], Z.shape[0]
    out = empty_matrix(m, n)
    X, Z = _centered(X, Z)
    work = np.empty((m, min(_BLOCK, n)))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block = work if stop - start == work.shape[1] else np.empty((m, stop - start))
        distances(Z, X[start:stop], block)
        softmax_of_minus(block, out[:, start:stop])
    return out


@inlined
def _weights_grad(X, Z, weights_t, g, wrt):
    n, m = X.shape[0], Z.shape[0]
    X, Z = _centered(X, Z)
    out = np.zeros((X if wrt == 0 else Z).shape)
    work = np.empty((m, min(_BLOCK, n)))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block = work if stop - start == work.shape[1] else np.empty((m, stop - start))
        distances(Z, X[start:stop], block)
        softmax_bar(block, weights_t[:, start:stop], g[:, start:stop])
        add_differences(Z, X[start:stop], block, out[start:stop] if wrt == 0 else out, wrt)
    return out


@register_numba(SoftmaxInterpolation)
def numba_softmax_interpolation(op):
    return nb.numba_njit(_weights)


@register_numba(SoftmaxInterpolationGrad)
def numba_softmax_interpolation_grad(op):
    wrt = op.wrt

    @nb.numba_njit
    def softmax_interpolation_grad(X, Z, weights_t, g):
        return _weights_grad(
            X,
            Z,
            weights_t,
            g,
            wrt,
        )

    return softmax_interpolation_grad


def _jax_distances(X, Z):
    """``||z_j - x_i||`` (m, n), one input dimension after the other: exact, and never (n, m, d)."""

    def add(total, columns):
        x, z = columns
        return total + (z[:, None] - x) ** 2, None

    total, _ = jax.lax.scan(add, jnp.zeros((Z.shape[0], X.shape[0])), (X.T, Z.T))
    return jnp.sqrt(total)


@register_jax(SoftmaxInterpolation)
def jax_softmax_interpolation(op):
    def forward(X, Z):
        return jax.nn.softmax(-_jax_distances(X, Z), axis=0)

    return forward


@register_jax(SoftmaxInterpolationGrad, differentiable=False)
def jax_softmax_interpolation_grad(op):
    def forward(X, Z, weights_t, g):
        size = _jax_distances(X, Z)
        bar = weights_t * ((g * weights_t).sum(axis=0) - g)
        bar = jnp.where(size > 0, bar / jnp.where(size > 0, size, 1.0), 0.0)
        sign = 1.0 if op.wrt == 0 else -1.0

        def column(columns):
            x, z = columns
            return sign * (bar * (x - z[:, None])).sum(axis=op.wrt)

        return jax.lax.map(column, (X.T, Z.T)).T

    return forward
