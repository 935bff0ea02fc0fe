"""Matrices of stationary kernels between two sets of points, from the distances in one pass."""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import pullback
from pytensor.graph.replace import graph_replace

from pymc_scalable_gp.ops._jax import jax_form, jnp
from pymc_scalable_gp.ops._kernels import empty_matrix, mirror
from pymc_scalable_gp.ops._numba import in_numba, one_source
from pymc_scalable_gp.ops._stationary import (
    KINDS,
    SHAPED,
    KindOp,
    kernel_value,
    relative_slope,
    shape_slope_of_squares,
    slope_of_squares,
)
from pymc_scalable_gp.ops.square_distances import (
    BY_PRODUCT,
    SquareDistances,
    WeightedDifferences,
    WeightedSquares,
    fill_scaled_squares,
    jax_squares,
)
from pymc_scalable_gp.utils.stationary import kernel_of_squares

_BLOCK = 256  # rows: what a core's cache holds
_EXPQUAD = KINDS.index("ExpQuad")


class StationaryKernel(KindOp):
    """Matrix (n, m) of `stationary_kernel`; with `symmetric`, both sets are the same."""

    __props__ = ("kind", "symmetric")
    gufunc_signature = "(n,d),(m,d),(d),()->(n,m)"
    symmetric = False

    def fixed(self, inputs):
        """`shape`, where the kernel has none."""
        return () if self.kind in SHAPED else (3,)

    def pullback(self, inputs, outputs, cotangents):
        """The pullback of `SquareDistances` at the squares' cotangent, which `StationarySlope` gives."""
        (X, Z, ls, shape), (K,), (g,) = inputs, outputs, cotangents
        g = StationarySlope(self.kind)(X, Z, ls, shape, K, g)
        differences, scale = WeightedDifferences(), 1.0 / ls
        found = [
            2.0 * differences(X, Z, scale, g) / ls**2,
            2.0 * differences(Z, X, scale, g.T) / ls**2,
            -2.0 * WeightedSquares()(X, Z, g) / ls**3,
        ]
        if self.kind in SHAPED:
            squares = SquareDistances(self.symmetric)(X, Z, scale)
            change = shape_slope_of_squares(self.kind, squares, shape, pt)
            found.append((cotangents[0] * K * change).sum())
        return found


class StationarySlope(KindOp):
    """Cotangent of the squared distances: ``g K (d log k / d square)`` (n, m), from K and g (n, m)."""

    gufunc_signature = "(n,d),(m,d),(d),(),(n,m),(n,m)->(n,m)"

    def fixed(self, inputs):
        """`shape`, where the kernel has none, and what makes distances, where none is in the slope."""
        return () if self.kind in SHAPED else (0, 1, 2, 3) if self.kind == "ExpQuad" else (3,)

    def pullback(self, inputs, outputs, cotangents):
        """For second derivatives, by differentiating the formula."""
        (h,) = cotangents
        own = [x.type() for x in inputs]  # K is a function of the others in a graph, but not here
        free = [x for place, x in enumerate(own) if place not in self.fixed(inputs)]
        X, Z, ls, shape, K, g = own
        slope = slope_of_squares(self.kind, SquareDistances()(X, Z, 1.0 / ls), shape, pt)
        found = pullback(g * K * slope, free, h)
        return graph_replace(found, dict(zip(own, inputs, strict=True)), strict=False)


def stationary_kernel(kind, X, Z=None, ls=None, shape=1.0):
    r"""Kernel matrix of a stationary kernel with unit variance.

    .. math:: K_{ij} = k\Bigl(\sum_a (x_{ia} - z_{ja})^2 / \ell_a^2\Bigr)

    Parameters
    ----------
    kind : {"ExpQuad", "Matern12", "Exponential", "Matern32", "Matern52", "RatQuad"}
    X : tensor, shape (n, d)
    Z : tensor, shape (m, d), optional
        The same points when left out: the result is then exactly symmetric.
    ls : tensor, shape (d,), optional
        Lengthscales; ones when left out.
    shape : scalar tensor
        alpha of a RatQuad, unused by the others.

    Returns
    -------
    tensor, shape (n, m)
        Exactly 1 between equal points. Differentiable in all arguments; the gradient of a kernel of the
        distance itself is 0 where that is 0.

    Raises
    ------
    ValueError
        For a kind that is not one of these.

    Notes
    -----
    O(n m d) time. Distances are those of :func:`square_distances`, a block of rows at a time, and again
    for the gradient: besides the result and its cotangent nothing of size (n, m) is kept.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> sgp.ops.stationary_kernel("Matern12", X[:1], X).eval().round(3)
    array([[1.   , 0.368, 0.05 ]])
    >>> np.exp([0.0, -1.0, -3.0]).round(3)
    array([1.   , 0.368, 0.05 ])
    """
    X = pt.as_tensor_variable(X)
    ls = pt.ones(X.shape[-1]) if ls is None else ls
    return StationaryKernel(kind, Z is None)(X, X if Z is None else Z, ls, shape)


def _to_values(squares, code, shape):
    """Squared distances, overwritten by the kernel."""
    squares[...] = kernel_of_squares(KINDS[code], squares, shape, np)


@in_numba(_to_values)
def _numba_to_values(squares, code, shape):
    for i in range(squares.shape[0]):
        for j in range(squares.shape[1]):
            squares[i, j] = kernel_value(squares[i, j], code, shape)


def _to_weights(squares, K, g, code, shape):
    """Squared distances, overwritten by the cotangents of them."""
    squares[...] = g * K * slope_of_squares(KINDS[code], squares, shape, np)


@in_numba(_to_weights)
def _numba_to_weights(squares, K, g, code, shape):
    for i in range(squares.shape[0]):
        for j in range(squares.shape[1]):
            squares[i, j] = g[i, j] * K[i, j] * relative_slope(squares[i, j], code, shape)


@one_source(StationaryKernel)
def _values(X, Z, ls, shape, code, symmetric):
    n = X.shape[0]
    out, scale = empty_matrix(n, Z.shape[0]), 1.0 / ls
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        fill_scaled_squares(X[start:stop], Z, scale, out[start:stop])
        _to_values(out[start:stop], code, shape.item())
    if symmetric and X.shape[1] > BY_PRODUCT:
        mirror(out)
    return out


@one_source(StationarySlope, strided=(4, 5))
def _weights(X, Z, ls, shape, K, g, code):
    n = X.shape[0]
    out, scale = empty_matrix(n, Z.shape[0]), 1.0 / ls
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        if code != _EXPQUAD:
            fill_scaled_squares(X[start:stop], Z, scale, out[start:stop])
        _to_weights(out[start:stop], K[start:stop], g[start:stop], code, shape.item())
    return out


@jax_form(StationaryKernel)
def _jax_values(X, Z, ls, shape, code, symmetric):
    return kernel_of_squares(KINDS[code], jax_squares(X, Z, 1.0 / ls), shape, jnp)


@jax_form(StationarySlope, differentiable=False)
def _jax_weights(X, Z, ls, shape, K, g, code):
    return g * K * slope_of_squares(KINDS[code], jax_squares(X, Z, 1.0 / ls), shape, jnp)
