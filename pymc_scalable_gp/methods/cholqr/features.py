"""CholQR's feature map."""

from dataclasses import dataclass

import numpy as np
from pymc.gp.cov import BaseCovariance

from pymc_scalable_gp.core.data.inputs import check_rows
from pymc_scalable_gp.core.features.nystrom import NystromMap, pivoted_rows
from pymc_scalable_gp.cov.queries import used_columns, warn_unused_columns
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.warn import warn


@dataclass(frozen=True)
class CholQRSpec:
    """Kernel, and the number of points to choose."""

    cov_func: BaseCovariance
    count: int

    def fit(self, X, indices=None, random_seed=0, point=None) -> "CholQRMap":
        """Take rows of X (n, d) as points: the given ones, or those that the kernel alone suggests."""
        used_columns(self.cov_func, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        if indices is not None:
            return CholQRMap(self.cov_func, X, check_rows(indices, len(X), "indices"))
        self._check_rows(len(X))
        chosen = pivoted_rows(self.cov_func, X, self.count, random_seed, point)
        if len(chosen) < self.count:
            warn(
                f"only {len(chosen)} of {self.count} inducing points are independent at these "
                "hyperparameters (duplicates, or a smooth kernel): going on with those. A shorter "
                "lengthscale in point={...}, or select_inducing, may use more"
            )
        return CholQRMap(self.cov_func, X, chosen)

    def start_rows(self, X, start, random_seed) -> np.ndarray:
        """Rows for a search to start from: `start` (m,), or random distinct ones."""
        used_columns(self.cov_func, X.shape[1])
        if start is None:
            self._check_rows(len(X))
            order = np.random.default_rng(random_seed).permutation(len(X))
            distinct = np.sort(np.unique(X[order], axis=0, return_index=True)[1])
            return order[distinct[: self.count]]
        rows = check_rows(start, len(X), "start")
        if len(rows) != self.count:
            raise ValueError(
                f"start has {len(rows)} rows, but n_inducing={self.count}: give {self.count} rows, or "
                f"n_inducing={len(rows)} to the class"
            )
        return rows

    def _check_rows(self, n):
        if self.count >= n:
            raise ValueError(
                f"n_inducing={self.count} must be below the number of rows, {n}: take fewer, or "
                "pm.gp.Marginal, which is exact"
            )


class CholQRMap(NystromMap):
    """Features of the rows `indices` of the training inputs, as points."""

    def __init__(self, cov_func, X: np.ndarray, indices: np.ndarray):
        super().__init__(cov_func, fixed_shared(X[indices]), X.min(axis=0), X.max(axis=0))
        self.indices = indices
