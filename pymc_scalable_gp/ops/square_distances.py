"""Squared distances between two sets of points, whatever their offset."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.gradient import disconnected_grad

from pymc_scalable_gp.ops._base import GufuncOp
from pymc_scalable_gp.ops._differences import fill_differences, fill_squared_sums, fill_squares
from pymc_scalable_gp.ops._distances import add_differences, centered, distances
from pymc_scalable_gp.ops._elementwise import fill_from, multiply_by, set_product
from pymc_scalable_gp.ops._jax import jax, jax_form, jnp
from pymc_scalable_gp.ops._kernels import empty_matrix, mirror
from pymc_scalable_gp.ops._numba import one_source

# Beyond so many inputs, matrix products take over, with close pairs by differences.
BY_PRODUCT = 64


_BLOCK = 256  # rows, in matrix products


class SquareDistances(GufuncOp):
    """Matrix (n, m) of `square_distances`; with `symmetric`, both sets are the same."""

    __props__ = ("symmetric",)
    symmetric = False
    gufunc_signature = "(n,d),(m,d),(d)->(n,m)"

    def pullback(self, inputs, outputs, cotangents):
        """``dx_ia = 2 s_a^2 sum_j g_ij (x_ia - z_ja)``; for z with the roles exchanged.

        ``ds_a = 2 s_a sum_ij g_ij (x_ia - z_ja)^2``.
        """
        (X, Z, scale), (g,) = inputs, cotangents
        differences, weights = WeightedDifferences(), 2.0 * scale**2
        return [
            weights * differences(X, Z, scale, g),
            weights * differences(Z, X, scale, g.T),
            2.0 * scale * WeightedSquares()(X, Z, g),
        ]


class WeightedDifferences(GufuncOp):
    """``sum_j g_ij (x_ia - z_ja)`` (n, d); the scale says what is close."""

    gufunc_signature = "(n,d),(m,d),(d),(n,m)->(n,d)"

    def pullback(self, inputs, outputs, cotangents):
        """For second derivatives; products of centred inputs, which close pairs take as rounding."""
        (X, Z, scale, g), (h,) = inputs, cotangents
        x, z = _centered(X, Z)
        dg = (h * x).sum(axis=1)[:, None] - h @ z.T
        return [h * g.sum(axis=1)[:, None], -(g.T @ h), pt.zeros_like(scale), dg]


class WeightedSquares(GufuncOp):
    """``sum_ij g_ij (x_ia - z_ja)^2`` (d,)."""

    gufunc_signature = "(n,d),(m,d),(n,m)->(d)"

    def pullback(self, inputs, outputs, cotangents):
        """The pullback of `WeightedDifferences`."""
        (X, Z, g), (h,) = inputs, cotangents
        x, z = _centered(X, Z)
        dg = (h * x**2).sum(axis=1)[:, None] - 2.0 * (h * x) @ z.T + (h * z**2).sum(axis=1)
        by_x, by_z = (g.sum(axis=1)[:, None] * x - g @ z), (g.T @ x - g.sum(axis=0)[:, None] * z)
        return [2.0 * h * by_x, -2.0 * h * by_z, dg]


def _centered(X, Z):
    """Both, shifted by a constant to where Z lies."""
    center = disconnected_grad(Z.mean(axis=0))
    return X - center, Z - center


def square_distances(X, Z=None, scale=None):
    r"""Squared distances between points, each dimension multiplied by its scale.

    .. math:: D_{ij} = \sum_a s_a^2 (x_{ia} - z_{ja})^2

    Parameters
    ----------
    X : tensor, shape (n, d)
    Z : tensor, shape (m, d), optional
        The same points when left out: the result is then exactly symmetric.
    scale : tensor, shape (d,), optional
        Inverse lengthscales; ones when left out.

    Returns
    -------
    tensor, shape (n, m)
        Non-negative, and exactly 0 between equal points. Differentiable in all arguments.

    Notes
    -----
    O(n m d) time; besides the result only blocks of rows. Up to 64 inputs differences are taken one
    dimension after the other, so that the result does not depend on a common offset of X and Z
    where ``X - Z`` does not. With more, it comes from a matrix product of centred inputs, and from the
    differences for pairs so close that the product would lose digits.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> sgp.ops.square_distances(X).eval()
    array([[ 0., 25.],
           [25.,  0.]])
    >>> sgp.ops.square_distances(X, scale=np.array([1.0, 0.5])).eval()
    array([[ 0., 13.],
           [13.,  0.]])
    """
    X = pt.as_tensor_variable(X)
    scale = pt.ones(X.shape[-1]) if scale is None else scale
    return SquareDistances(Z is None)(X, X if Z is None else Z, scale)


@register_jitable
def fill_scaled_squares(X, Z, scale, out):
    """Squared distances (n, m), by differences or by products."""
    if X.shape[1] <= BY_PRODUCT:
        fill_squares(X, Z, scale, out)
        return
    n = X.shape[0]
    x, z = centered(X, Z, scale)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        distances(x[start:stop], z, out[start:stop])
    for i in range(n):
        set_product(out[i], out[i], out[i])


@one_source(SquareDistances)
def _squares(X, Z, scale, symmetric):
    out = empty_matrix(X.shape[0], Z.shape[0])
    fill_scaled_squares(X, Z, scale, out)
    if symmetric and X.shape[1] > BY_PRODUCT:
        mirror(out)
    return out


@one_source(WeightedDifferences, strided=(3,))
def _differences(X, Z, scale, g):
    n, m = X.shape[0], Z.shape[0]
    out = np.zeros(X.shape)
    if X.shape[1] <= BY_PRODUCT:
        fill_differences(X, Z, g, out)
        return out
    if n == 0 or m == 0:
        return out
    X, Z = centered(X, Z, scale)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        weights = np.empty((m, stop - start))
        for j in range(m):
            fill_from(weights[j], g[start:stop, j])
        add_differences(Z, X[start:stop], weights, out[start:stop], 0)
    for a in range(X.shape[1]):
        multiply_by(out[:, a], 1.0 / scale[a] if scale[a] != 0.0 else 0.0)
    return out


@one_source(WeightedSquares, strided=(2,))
def _squared_sums(X, Z, g):
    out = np.empty(X.shape[1])
    fill_squared_sums(X, Z, g, out)
    return out


@jax_form(SquareDistances)
def jax_squares(X, Z, scale, symmetric=False):
    """Squared distances (n, m), one input after the other."""

    def add(total, columns):
        x, z, s = columns
        return total + ((x[:, None] - z) * s) ** 2, None

    return jax.lax.scan(add, jnp.zeros((len(X), len(Z))), (X.T, Z.T, scale))[0]


@jax_form(WeightedDifferences, differentiable=False)
def jax_differences(X, Z, scale, g):
    """Value of `WeightedDifferences`, one input after the other."""

    def column(columns):
        x, z = columns
        return (g * (x[:, None] - z)).sum(axis=1)

    return jax.lax.map(column, (X.T, Z.T)).T


@jax_form(WeightedSquares, differentiable=False)
def _jax_squared_sums(X, Z, g):
    def column(columns):
        x, z = columns
        return (g * (x[:, None] - z) ** 2).sum()

    return jax.lax.map(column, (X.T, Z.T))
