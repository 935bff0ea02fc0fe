"""Features from inducing points: any kernel, any points."""

import pytensor.tensor as pt

from pymc_scalable_gp.core.features import FeatureMap
from pymc_scalable_gp.cov.evaluate import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import split_scale
from pymc_scalable_gp.ops.inverse_cholesky import inverse_cholesky
from pymc_scalable_gp.ops.stacked_product import product

# Added to the diagonal of k(Z, Z), as a share of its mean.
JITTER = 1e-8


class NystromMap(FeatureMap):
    """``phi(x) = L^{-1} k(Z, x)`` with ``L L' = k(Z, Z)``, for inducing points Z (m, d).

    `low` and `high` (d,) are the range of the training inputs.
    """

    def __init__(self, cov_func, points, low, high):
        self.cov_func, self.points, self.low, self.high = cov_func, points, low, high
        scale, kernels = split_scale(cov_func)
        self.scale = pt.as_tensor_variable(scale).astype("float64")
        self.shape = cov_func if len(kernels) != 1 or self.scale.ndim else kernels[0]
        if self.shape is cov_func:
            self.scale = pt.constant(1.0)

    @property
    def rank(self):
        """Number of points."""
        return self.points.type.shape[0]

    def basis(self, X):
        """Features of the kernel without its scale."""
        if not self.rank:
            return pt.zeros((X.shape[0], 0))
        return pt.specify_shape(nystrom(self.shape, X, self.points), (None, self.rank))

    @property
    def box(self):
        """The range of the training inputs: beyond it the points say less and less."""
        return self.low, self.high

    def mixing(self):
        """The root of the scale, as a matrix."""
        return pt.sqrt(self.scale) * pt.eye(self.rank)

    def features(self, X):
        """Features (n, m)."""
        if not self.rank:
            return self.basis(X)
        found = nystrom(self.shape, X, self.points, pt.sqrt(self.scale))
        return pt.specify_shape(found, (None, self.rank))

    def features_by_rows(self, X):
        """Features (n, m), row by row."""
        if not self.rank:
            return self.features(X)
        root = pt.sqrt(self.scale) * _inverse_root(self.shape, self.points)
        found = product(kernel_matrix(self.shape, X, self.points), root, transpose_b=True)
        return pt.specify_shape(found, (None, self.rank))

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return kernel_diag(self.cov_func, X)

    def outside(self, X):
        """Nothing to warn of: the features use the exact kernel everywhere."""
        return None


def nystrom(cov_func, X, points, factor=1.0):
    """Features (n, m) of the whole kernel at X (n, d) times a number, for any points (m, d).

    Column by column.
    """
    # By a product with the inverse, which is several times as fast as to solve for n columns.
    cross = kernel_matrix(cov_func, X, points)
    return product(factor * _inverse_root(cov_func, points), cross, transpose_b=True).T


def _inverse_root(cov_func, points):
    K = kernel_matrix(cov_func, points)
    K = K + JITTER * pt.diag(K).mean() * pt.eye(K.shape[0])
    return inverse_cholesky(K[None], 0.0)[0]
