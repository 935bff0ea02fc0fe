"""Inducing points that can move, chosen among the rows by the kernel."""

from dataclasses import dataclass

import numpy as np
from pymc.gp.cov import BaseCovariance

from pymc_scalable_gp.core.features.nystrom import NystromMap, pivoted_rows
from pymc_scalable_gp.cov.queries import used_columns, warn_unused_columns
from pymc_scalable_gp.utils.graphs import data_shared


@dataclass(frozen=True)
class VecchiaSpec:
    """Kernel, and the number of inducing points."""

    cov_func: BaseCovariance
    count: int

    def fit(self, X, point=None, random_seed=0) -> "PivotMap":
        """Rows of X (n, d) as points, each with the largest variance given those before."""
        used_columns(self.cov_func, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        return PivotMap(self.cov_func, X, self.points(X, point, random_seed))

    def points(self, X, point=None, random_seed=0) -> np.ndarray:
        """The points (m, d)."""
        return X[pivoted_rows(self.cov_func, X, min(self.count, len(X)), random_seed, point)]


class PivotMap(NystromMap):
    """Inducing points in a shared variable, so that :meth:`move` reaches a model that uses them."""

    def __init__(self, cov_func, X, points):
        super().__init__(cov_func, data_shared(points), X.min(axis=0), X.max(axis=0))

    def move(self, points: np.ndarray) -> None:
        """Replace the points; where there are fewer than before, old ones fill the remaining places."""
        old = self.points.get_value()
        self.points.set_value(np.concatenate([points, old])[: len(old)])
