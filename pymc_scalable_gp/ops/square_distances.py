"""Squared distances between two sets of points, whatever their offset."""

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.gradient import disconnected_grad, disconnected_type
from pytensor.link.numba.dispatch import basic as nb

from pymc_scalable_gp.ops._base import GufuncOp, connected
from pymc_scalable_gp.ops._differences import fill_differences, fill_squared_sums, fill_squares
from pymc_scalable_gp.ops._distances import add_differences, distances
from pymc_scalable_gp.ops._elementwise import add, fill_from, multiply_by, set_product, subtract
from pymc_scalable_gp.ops._jax import jax, jnp, register_jax
from pymc_scalable_gp.ops._kernels import empty_matrix
from pymc_scalable_gp.ops._numba import inlined, register_numba

# Beyond so many inputs, matrix products take over, with close pairs by differences.
BY_PRODUCT = 64


_BLOCK = 256  # rows, in matrix products


class SquareDistances(GufuncOp):
    """Matrix (n, m) of `square_distances`; with `symmetric`, both sets are the same."""

    __props__ = ("symmetric",)
    gufunc_signature = "(n,d),(m,d),(d)->(n,m)"

    def __init__(self, symmetric=False):
        self.symmetric = bool(symmetric)

    def perform(self, node, inputs, output_storage):
        arrays = (np.ascontiguousarray(a) for a in inputs)
        output_storage[0][0] = _squares.py_func(*arrays, self.symmetric)

    def pullback(self, inputs, outputs, cotangents):
        """``dx_ia = 2 s_a^2 sum_j g_ij (x_ia - z_ja)``; for z with the roles exchanged.

        ``ds_a = 2 s_a sum_ij g_ij (x_ia - z_ja)^2``.
        """
        (X, Z, scale), (g,) = inputs, cotangents
        if not connected(g):
            return [disconnected_type() for _ in inputs]
        differences, weights = WeightedDifferences(), 2.0 * scale**2
        return [
            weights * differences(X, Z, scale, g),
            weights * differences(Z, X, scale, g.T),
            2.0 * scale * WeightedSquares()(X, Z, g),
        ]


class WeightedDifferences(GufuncOp):
    """``sum_j g_ij (x_ia - z_ja)`` (n, d); the scale says what is close."""

    __props__ = ()
    gufunc_signature = "(n,d),(m,d),(d),(n,m)->(n,d)"

    def perform(self, node, inputs, output_storage):
        X, Z, scale = (np.ascontiguousarray(a) for a in inputs[:3])
        output_storage[0][0] = _differences(X, Z, scale, inputs[3])

    def pullback(self, inputs, outputs, cotangents):
        """For second derivatives; products of centred inputs, which close pairs take as rounding."""
        (X, Z, scale, g), (h,) = inputs, cotangents
        if not connected(h):
            return [disconnected_type() for _ in inputs]
        x, z = _centered(X, Z)
        dg = (h * x).sum(axis=1)[:, None] - h @ z.T
        return [h * g.sum(axis=1)[:, None], -(g.T @ h), pt.zeros_like(scale), dg]


class WeightedSquares(GufuncOp):
    """``sum_ij g_ij (x_ia - z_ja)^2`` (d,)."""

    __props__ = ()
    gufunc_signature = "(n,d),(m,d),(n,m)->(d)"

    def perform(self, node, inputs, output_storage):
        X, Z = (np.ascontiguousarray(a) for a in inputs[:2])
        output_storage[0][0] = _squared_sums(X, Z, inputs[2])

    def pullback(self, inputs, outputs, cotangents):
        """The pullback of `WeightedDifferences`."""
        (X, Z, g), (h,) = inputs, cotangents
        if not connected(h):
            return [disconnected_type() for _ in inputs]
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
    scale = pt.ones(X.shape[1]) if scale is None else scale
    return SquareDistances(Z is None)(X, X if Z is None else Z, scale)


@register_jitable
def _scaled(X, Z, scale):
    """Both, shifted to the mean of Z, then scaled."""
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


@register_jitable
def fill_scaled_squares(X, Z, scale, out):
    """Squared distances (n, m), by differences or by products."""
    if X.shape[1] <= BY_PRODUCT:
        fill_squares(X, Z, scale, out)
        return
    n = X.shape[0]
    x, z = _scaled(X, Z, scale)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        distances(x[start:stop], z, out[start:stop])
    for i in range(n):
        set_product(out[i], out[i], out[i])


@register_jitable
def mirror(out):
    """The upper triangle from the lower one, which products leave a rounding apart."""
    for i in range(out.shape[0]):
        fill_from(out[i, i + 1 :], out[i + 1 :, i])


@inlined
def _squares(X, Z, scale, symmetric):
    out = empty_matrix(X.shape[0], Z.shape[0])
    fill_scaled_squares(X, Z, scale, out)
    if symmetric and X.shape[1] > BY_PRODUCT:
        mirror(out)
    return out


def _differences(X, Z, scale, g):
    n, m = X.shape[0], Z.shape[0]
    out = np.zeros(X.shape)
    if X.shape[1] <= BY_PRODUCT:
        fill_differences(X, Z, g, out)
        return out
    if n == 0 or m == 0:
        return out
    X, Z = _scaled(X, Z, scale)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        weights = np.empty((m, stop - start))
        for j in range(m):
            fill_from(weights[j], g[start:stop, j])
        add_differences(Z, X[start:stop], weights, out[start:stop], 0)
    for a in range(X.shape[1]):
        multiply_by(out[:, a], 1.0 / scale[a] if scale[a] != 0.0 else 0.0)
    return out


def _squared_sums(X, Z, g):
    out = np.empty(X.shape[1])
    fill_squared_sums(X, Z, g, out)
    return out


@register_numba(SquareDistances)
def numba_square_distances(op):
    symmetric = op.symmetric

    @nb.numba_njit
    def square_distances(X, Z, scale):
        return _squares(X, Z, scale, symmetric)

    return square_distances


@register_numba(WeightedDifferences, strided=(3,))
def numba_weighted_differences(op):
    return nb.numba_njit(_differences)


@register_numba(WeightedSquares, strided=(2,))
def numba_weighted_squares(op):
    return nb.numba_njit(_squared_sums)


def jax_squares(X, Z, scale):
    """Squared distances (n, m), one input after the other."""

    def add(total, columns):
        x, z, s = columns
        return total + ((x[:, None] - z) * s) ** 2, None

    return jax.lax.scan(add, jnp.zeros((len(X), len(Z))), (X.T, Z.T, scale))[0]


@register_jax(SquareDistances)
def jax_square_distances(op):
    return jax_squares


@register_jax(WeightedDifferences, differentiable=False)
def jax_weighted_differences(op):
    def forward(X, Z, scale, g):
        def column(columns):
            x, z = columns
            return (g * (x[:, None] - z)).sum(axis=1)

        return jax.lax.map(column, (X.T, Z.T)).T

    return forward


@register_jax(WeightedSquares, differentiable=False)
def jax_weighted_squares(op):
    def forward(X, Z, g):
        def column(columns):
            x, z = columns
            return (g * (x[:, None] - z) ** 2).sum()

        return jax.lax.map(column, (X.T, Z.T))

    return forward
