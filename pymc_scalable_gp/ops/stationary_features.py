"""A stationary kernel's matrix times a matrix, of which only blocks of rows exist at a time."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.ops._array_op import ArrayOp
from pymc_scalable_gp.ops._differences import fill_squared_sums
from pymc_scalable_gp.ops._elementwise import add, add_multiple
from pymc_scalable_gp.ops._kernels import empty_matrix, multiply_any
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._stationary import (
    KINDS,
    SHAPED,
    KindOp,
    kernel_value,
    relative_slope,
    shape_slope,
    shape_slope_of_squares,
    slope_of_squares,
)
from pymc_scalable_gp.ops._vecchia_batches import batches, joined
from pymc_scalable_gp.ops.square_distances import fill_scaled_squares
from pymc_scalable_gp.utils.stationary import kernel_of_squares

_BLOCK = 256  # rows: what a core's cache holds
_SHAPED = tuple(map(KINDS.index, SHAPED))


class StationaryFeatures(KindOp, ArrayOp):
    """``k(X, Z) root'`` (see `stationary_features`)."""

    gufunc_signature = "(n,d),(m,d),(d),(),(r,m)->(n,r)"

    def values(self, xp, X, Z, rates, shape, root):
        """Some rows at a time."""
        found = []
        for part in batches(len(X), len(Z), xp):
            squares = sum(_squares(X[part], Z, xp, rates), xp.zeros((len(X[part]), len(Z))))
            found.append([kernel_of_squares(self.kind, squares, shape, xp) @ root.T])
        return joined(found, xp)[0]

    def pullback(self, inputs, outputs, cotangents):
        """See `StationaryFeaturesGrad`."""
        return StationaryFeaturesGrad(self.kind)(*inputs, *cotangents)

    def fixed(self, inputs):
        """X and Z, which are data."""
        return 0, 1


class StationaryFeaturesGrad(KindOp, ArrayOp):
    """Cotangents of the inverse lengthscales, of alpha and of the matrix, computing the kernel again."""

    gufunc_signature = "(n,d),(m,d),(d),(),(r,m),(n,r)->(d),(),(r,m)"

    def values(self, xp, X, Z, rates, shape, root, bar):
        """Some rows at a time."""
        found = []
        for part in batches(len(X), len(Z), xp):
            squares = sum(_squares(X[part], Z, xp, rates), xp.zeros((len(X[part]), len(Z))))
            K = kernel_of_squares(self.kind, squares, shape, xp)
            weight = (bar[part] @ root) * K
            shaped = self.kind in SHAPED
            change = shape_slope_of_squares(self.kind, squares, shape, xp) if shaped else 0.0
            slope = weight * slope_of_squares(self.kind, squares, shape, xp)
            sums = [(slope * square).sum() for square in _squares(X[part], Z, xp)]
            found.append([2.0 * rates * xp.asarray(sums), (weight * change).sum(), bar[part].T @ K])
        return tuple(map(sum, zip(*found, strict=True)))


def _squares(X, Z, xp, rates=None):
    """Squared differences (n, m), scaled where told, one input after the other."""
    for a in range(X.shape[1]):
        part = X[:, a, None] - Z[:, a]
        yield (part if rates is None else part * rates[a]) ** 2


def stationary_features(kind, X, Z, rates, shape, root):
    """Features ``k(X, Z) R'`` (n, r) of a stationary kernel with unit variance, and `root` R (r, m).

    As with `stationary_kernel`, of points that get no gradient, without any array of (n, m), forwards and
    backwards: `rates` are inverse lengthscales, `shape` the alpha of a RatQuad.
    """
    return StationaryFeatures(kind)(*map(pt.as_tensor, (X, Z, rates, shape, root)))


@numba_form(StationaryFeatures)
def _features(X, Z, rates, shape, root, code):
    n, m, alpha = X.shape[0], Z.shape[0], shape.item()
    out, K = empty_matrix(n, root.shape[0]), np.empty((min(_BLOCK, n), m))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        count = stop - start
        fill_scaled_squares(X[start:stop], Z, rates, K[:count])
        for i in range(count):
            row = K[i]
            for j in range(m):
                row[j] = kernel_value(row[j], code, alpha)
        multiply_any(K[:count], root, False, True, out[start:stop])
    return out


@numba_form(StationaryFeaturesGrad)
def _features_grad(X, Z, rates, shape, root, bar, code):
    (n, d), (r, m), alpha = X.shape, root.shape, shape.item()
    sums, part, alpha_bar = np.zeros(d), np.empty(d), 0.0
    root_bar, product = np.zeros((r, m)), np.zeros((r, m))
    K, weights = np.empty((min(_BLOCK, n), m)), np.empty((min(_BLOCK, n), m))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        count = stop - start
        fill_scaled_squares(X[start:stop], Z, rates, K[:count])
        multiply_any(bar[start:stop], root, False, False, weights[:count])
        for i in range(count):
            row, weight = K[i], weights[i]
            for j in range(m):
                square = row[j]
                row[j] = kernel_value(square, code, alpha)
                weight[j] *= row[j]
                if code in _SHAPED:
                    alpha_bar += weight[j] * shape_slope(square, code, alpha)
                weight[j] *= relative_slope(square, code, alpha)
        multiply_any(bar[start:stop], K[:count], True, False, product)
        for i in range(r):
            add(root_bar[i], product[i])
        fill_squared_sums(X[start:stop], Z, weights[:count], part)
        add_multiple(sums, 2.0, part)
    return sums * rates, np.asarray(alpha_bar), root_bar
