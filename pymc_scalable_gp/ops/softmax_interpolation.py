"""Softmax interpolation weights ``W[i, j] = softmax_j(-||x_i - z_j||)`` in row blocks."""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Constant

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._distances import (
    add_differences,
    centered,
    distances,
    softmax_bar,
    softmax_of_minus,
)
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._kernels import empty_matrix
from pymc_scalable_gp.ops._numba import one_source
from pymc_scalable_gp.ops.square_distances import jax_differences, jax_squares

_BLOCK = 256  # rows whose distances to all points stay in a core's cache


class SoftmaxInterpolation(GufuncOp):
    """Weights of `softmax_interpolation` at temperature 1, transposed: one point a row, (m, n)."""

    gufunc_signature = "(n,d),(m,d)->(m,n)"

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

    Raises
    ------
    ValueError
        If a fixed temperature is not positive, or one has another shape.

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
    d, lengths = X.type.shape[-1:], temperature.type.shape
    if len(lengths) > 1 or (None not in (*d, *lengths) and lengths not in ((), d)):
        raise ValueError(f"temperature must be a scalar or have shape (d,), got shape {lengths}")
    if isinstance(temperature, Constant):
        if not np.all(temperature.data > 0.0):  # a negative one would count as its size
            raise ValueError(f"temperature must be positive, got {temperature.data}")
        if np.all(temperature.data == 1.0):
            return SoftmaxInterpolation()(X, Z).T
    # Centred before it is scaled: the quotient of a large offset has lost the digits that differ.
    center = disconnected_grad(Z.mean(axis=0))
    return SoftmaxInterpolation()((X - center) / temperature, (Z - center) / temperature).T


@one_source(SoftmaxInterpolation)
def _weights(X, Z):
    n, m = X.shape[0], Z.shape[0]
    out = empty_matrix(m, n)
    X, Z = centered(X, Z, np.ones(X.shape[1]))
    work = np.empty((m, min(_BLOCK, n)))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block = work if stop - start == work.shape[1] else np.empty((m, stop - start))
        distances(Z, X[start:stop], block)
        softmax_of_minus(block, out[:, start:stop])
    return out


@one_source(SoftmaxInterpolationGrad)
def _weights_grad(X, Z, weights_t, g, wrt):
    n, m = X.shape[0], Z.shape[0]
    X, Z = centered(X, Z, np.ones(X.shape[1]))
    out = np.zeros((X if wrt == 0 else Z).shape)
    work = np.empty((m, min(_BLOCK, n)))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block = work if stop - start == work.shape[1] else np.empty((m, stop - start))
        distances(Z, X[start:stop], block)
        softmax_bar(block, weights_t[:, start:stop], g[:, start:stop])
        add_differences(Z, X[start:stop], block, out[start:stop] if wrt == 0 else out, wrt)
    return out


def _jax_distances(X, Z):
    return jnp.sqrt(jax_squares(Z, X, jnp.ones(X.shape[1])))


@jax_form(SoftmaxInterpolation)
def _jax_weights(X, Z):
    return jax.nn.softmax(-_jax_distances(X, Z), axis=0)


@jax_form(SoftmaxInterpolationGrad, differentiable=False)
def _jax_weights_grad(X, Z, weights_t, g, wrt):
    size = _jax_distances(X, Z)
    bar = weights_t * ((g * weights_t).sum(axis=0) - g)
    bar = jnp.where(size > 0, bar / jnp.where(size > 0, size, 1.0), 0.0)
    return jax_differences(Z, X, None, bar) if wrt else jax_differences(X, Z, None, bar.T)
