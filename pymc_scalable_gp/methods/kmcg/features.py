"""Features from the Krylov space of a kernel matrix and the targets."""

import numpy as np

from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.methods.kmcg.basis import KrylovBasis
from pymc_scalable_gp.methods.kmcg.kernel_operator import axis_kernel, kernel_operator
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.blocks import BLOCK

# Largest number of entries of an intermediate array, for features at points between the cells of a grid.
_ENTRIES = 2**24


class KMCGMap(FeatureMap):
    """``phi(x) = L^{-1} Q_P' k(X_M, x)`` for the basis' kernel, or for a part of it in a sum.

    Features of a part say how it covaries with the rows, and leave much of its own variance out.
    """

    cells: RegularGrid | None = None  # where structured products between grids give the features

    def __init__(self, cov_func, basis: KrylovBasis):
        self.cov_func, self.krylov = cov_func, basis
        self.is_of_part = cov_func is not basis.cov_func

    @property
    def rank(self):
        return self.krylov.steps

    def features(self, X):
        """``k(X, X_M) Q_P L^{-T}`` (n, P)."""
        grid = self.krylov.X.grid
        if self.cells is not None:
            operator = kernel_operator(self.cov_func, self.cells, grid)
            return self.krylov.scaled(operator.matmat(self.krylov.directions))
        if grid is None:
            kernel = kernel_matrix(self.cov_func, X, self.krylov.inner)
            return self.krylov.scaled(product(kernel, self.krylov.directions))
        terms = product_terms(self.cov_func, len(grid.axes))
        rank, V = self.krylov.steps, self.krylov.on_all_cells
        return self.krylov.scaled(sum(_contract(t, grid, X, V, rank) for t in terms))

    def intermediates(self):
        """The basis and the factor of T, which all rows share."""
        return [self.krylov.on_all_cells, self.krylov.L]

    @property
    def block_rows(self):
        """Rows whose products with the training rows stay small."""
        train = self.krylov.X
        if train.grid is None:
            width = self.krylov.size
        else:
            first, *rest = train.grid.shape
            width = max(first, int(np.prod(rest)) * self.rank)
        return max(1, min(BLOCK, _ENTRIES // width))


def _contract(term, grid, X, full, steps):
    """``prod_i k_i(x_i, axis_i)`` times a matrix (cells, steps), axis by axis: (rows, steps)."""
    out = full.reshape((grid.shape[0], -1))
    for i, axis in enumerate(grid.axes):
        K = axis_kernel(term, i, X[:, i], axis)
        if i == 0:
            out = product(K, out)
        else:
            out = (out.reshape((X.shape[0], len(axis), -1)) * K[:, :, None]).sum(axis=1)
    return term.scale * out.reshape((X.shape[0], steps))
