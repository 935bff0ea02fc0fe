"""CholQR's feature map."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_scalable_gp.core.features import FeatureMap
from pymc_scalable_gp.cov.evaluate import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import split_scale, used_columns, warn_unused_columns
from pymc_scalable_gp.methods.cholqr.spread import ROWS, KernelAt, spread
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.warn import warn

# Added to the diagonal of K[I, I], as a share of its mean.
JITTER = 1e-8


@dataclass(frozen=True)
class CholQRSpec:
    """Kernel, and the number of points to choose."""

    cov_func: BaseCovariance
    count: int

    def fit(self, X, indices=None, random_seed=0, point=None) -> "CholQRMap":
        """Take rows of X (n, d) as points: the given ones, or those that the kernel alone suggests."""
        used_columns(self.cov_func, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        if indices is None:
            self._check_count(len(X))
            indices = self._spread(X, random_seed, point)
        return CholQRMap(self.cov_func, X, check_indices(indices, len(X)))

    def start_rows(self, X, start, random_seed) -> np.ndarray:
        """Rows for a search to start from: `start` (m,), or random distinct ones."""
        n = X.shape[0]
        used_columns(self.cov_func, X.shape[1])
        if start is None:
            self._check_count(n)
            order = np.random.default_rng(random_seed).permutation(n)
            distinct = np.sort(np.unique(X[order], axis=0, return_index=True)[1])
            return order[distinct[: self.count]]
        rows = check_indices(start, n, "start")
        if len(rows) != self.count:
            raise ValueError(
                f"start has {len(rows)} rows, but n_inducing={self.count}: give {self.count} rows, or "
                f"n_inducing={len(rows)} to the class"
            )
        return rows

    def _check_count(self, n):
        if self.count >= n:
            raise ValueError(
                f"n_inducing={self.count} must be below the number of rows, {n}: take fewer, or "
                "pm.gp.Marginal, which is exact"
            )

    def _spread(self, X, random_seed, point):
        rng = np.random.default_rng(random_seed)
        rows = np.arange(len(X))
        if len(X) > ROWS:
            rows = np.sort(rng.permutation(len(X))[:ROWS])
        chosen = rows[spread(KernelAt(self.cov_func, X[rows], point), self.count, rng)]
        if len(chosen) < self.count:
            warn(
                f"only {len(chosen)} of {self.count} inducing points are independent at these "
                "hyperparameters (duplicates, or a smooth kernel): going on with those. A shorter "
                "lengthscale in point={...}, or select_inducing, may use more"
            )
        return chosen


class CholQRMap(FeatureMap):
    """``phi(x) = L^{-1} k(X_I, x)`` with ``L L' = k(X_I, X_I)``, for rows I of the training inputs."""

    def __init__(self, cov_func, X: np.ndarray, indices: np.ndarray):
        self.cov_func, self.indices = cov_func, indices
        self.low, self.high = X.min(axis=0), X.max(axis=0)
        self.points = fixed_shared(X[indices])
        scale, kernels = split_scale(cov_func)
        self.scale = pt.as_tensor_variable(scale).astype("float64")
        self.shape = cov_func if len(kernels) != 1 or self.scale.ndim else kernels[0]
        if self.shape is cov_func:
            self.scale = pt.constant(1.0)

    @property
    def rank(self):
        """Number of points."""
        return len(self.indices)

    def basis(self, X):
        """Features of the kernel without its scale."""
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
        return pt.sqrt(self.scale) * self.basis(X)

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return kernel_diag(self.cov_func, X)

    def outside(self, X):
        """Nothing to warn of: the features use the exact kernel everywhere."""
        return None


def nystrom(cov_func, X, points):
    """Features (n, m) of the whole kernel at X (n, d), for any points (m, d)."""
    K = kernel_matrix(cov_func, points)
    jitter = JITTER * pt.diag(K).mean()
    L = cholesky(K + jitter * pt.eye(K.shape[0]), lower=True, on_error="nan")
    return solve_triangular(L, kernel_matrix(cov_func, X, points).T, lower=True).T


def check_indices(indices, n, name="indices") -> np.ndarray:
    """Distinct rows out of n.

    Raises
    ------
    TypeError, ValueError
        For indices that are not whole numbers, out of range, or given twice.
    """
    rows = np.asarray(indices)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise TypeError(
            f"{name} must be integer rows of X, shape (m,), got {rows.dtype} of shape {rows.shape}"
        )
    if rows.min() < 0 or rows.max() >= n:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise ValueError(f"{name} names row {wrong}, but X has {n} rows")
    if len(np.unique(rows)) < len(rows):
        raise ValueError(f"{name} names a row more than once")
    return rows.astype(int)
