"""CholQR's feature map."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_scalable_gp.core.features import FeatureMap
from pymc_scalable_gp.cov.evaluate import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import split_scale, used_columns, warn_unused_columns
from pymc_scalable_gp.utils.graphs import is_random

# Added to the diagonal of K[I, I], as a share of its mean.
JITTER = 1e-8


class CholQRMap(FeatureMap):
    """``phi(x) = L^{-1} k(X_I, x)`` with ``L L' = k(X_I, X_I)``, for rows I of the training inputs."""

    def __init__(self, cov_func, count):
        self.cov_func, self.count = cov_func, count
        self.indices: np.ndarray | None = None
        scale, kernels = split_scale(cov_func)
        self.scale = pt.as_tensor_variable(scale).astype("float64")
        self.shape = cov_func if len(kernels) != 1 or self.scale.ndim else kernels[0]
        if self.shape is cov_func:
            self.scale = pt.constant(1.0)

    @property
    def is_fitted(self):
        """Whether the points are known."""
        return self.indices is not None

    @property
    def rank(self):
        """Number of points."""
        if self.indices is None:
            raise AttributeError(
                "the rank is known once the points are: call select_inducing or build first"
            )
        return len(self.indices)

    def fit_to(self, X, indices=None, random_seed=0):
        """Take rows of X (n, d) as points: the given ones, or random distinct ones."""
        n = X.shape[0]
        used_columns(self.cov_func, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        if indices is None:
            if self.count >= n:
                raise ValueError(
                    f"n_inducing={self.count} must be below the number of rows, {n}: take fewer, or "
                    "pm.gp.Marginal, which is exact"
                )
            rng = np.random.default_rng(random_seed)
            order = rng.permutation(n)
            distinct = np.sort(np.unique(X[order], axis=0, return_index=True)[1])
            indices = order[distinct[: self.count]]
        self.indices = check_indices(indices, n)
        self.points = pt.constant(X[self.indices])

    def features_from(self, X, points):
        """Features (n, m) of the whole kernel for any points (m, d)."""
        return _nystrom(self.cov_func, X, points)

    def basis(self, X):
        """Features of the kernel without its scale."""
        return pt.specify_shape(_nystrom(self.shape, X, self.points), (None, self.rank))

    def constant_basis(self, X):
        """The same, where nothing but the scale is free."""
        return None if is_random(self.shape(self.points)) else self.basis(X)

    def mixing(self):
        """The root of the scale, as a matrix."""
        return pt.sqrt(self.scale) * pt.eye(self.rank)

    def features(self, X):
        """Features (n, m)."""
        return pt.sqrt(self.scale) * self.basis(X)

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return kernel_diag(self.cov_func, X)

    def outside(self, X):
        """Nothing to warn of: the features use the exact kernel everywhere."""
        return None


def _nystrom(cov_func, X, points):
    K = kernel_matrix(cov_func, points)
    jitter = JITTER * pt.diag(K).mean()
    L = cholesky(K + jitter * pt.eye(K.shape[0]), lower=True, on_error="nan")
    return solve_triangular(L, kernel_matrix(cov_func, X, points).T, lower=True).T


def check_indices(indices, n) -> np.ndarray:
    """Distinct rows out of n.

    Raises
    ------
    TypeError, ValueError
        For indices that are not whole numbers, out of range, or given twice.
    """
    rows = np.asarray(indices)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise TypeError(
            f"indices must be integer rows of X, shape (m,), got {rows.dtype} of shape {rows.shape}"
        )
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"indices name row {rows.max()}, but X has {n} rows")
    if len(np.unique(rows)) < len(rows):
        raise ValueError("indices name a row more than once")
    return rows.astype(int)
