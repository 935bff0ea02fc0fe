"""SoftKI's feature map."""

from collections.abc import Mapping

import numpy as np
import pytensor.tensor as pt
from scipy.spatial import cKDTree

from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.features.nystrom import NystromMap
from pymc_scalable_gp.core.features.reach import InputRange
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import (
    LAID_APART,
    is_embedded,
    is_stationary,
    layout,
    layout_values,
    turning_columns,
    used_columns,
    used_range,
)
from pymc_scalable_gp.ops.softmax_interpolation import softmax_interpolation
from pymc_scalable_gp.ops.stacked_cholesky import cholesky
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.stacked_solve import lower_solve
from pymc_scalable_gp.utils.graphs import depends_only_on
from pymc_scalable_gp.utils.jitter import LOOSE_JITTER, with_jitter


class SoftKIMap(FeatureMap):
    """Softmax interpolation from points (m, d), ``phi(x) = L(K_zz)' w(x)``.

    `low` and `high` (d,) are the range of the training inputs, without ends in columns that the kernel does
    not look at; `known` are their labels, by column.
    """

    # For FITC and VFE, which count the variance that interpolation loses as missed.
    corrected = False

    def __init__(self, cov_func, temperature, points: Data, low, high, known: Mapping | None = None):
        T, d = temperature, len(low)
        if T.ndim and T.type.shape[0] not in (None, d):
            raise ValueError(f"temperature has {T.type.shape[0]} values, but X has {d} columns")
        if T.ndim and is_embedded(cov_func):
            raise ValueError(
                f"temperature has {T.type.shape[0]} values, but the kernel looks at other inputs than the "
                "columns of X: give a scalar"
            )
        self.cov_func, self.stationary = cov_func, is_stationary(cov_func)
        self.low, self.high = used_range(cov_func, low, high)
        self.points, self.known = points, known or {}
        self.columns = used_columns(cov_func, d)
        self.temperature = T[self.columns] if T.ndim else T
        width = self.high - self.low
        self.apart = LAID_APART * max(1.0, width[np.isfinite(width)].max(initial=0.0))

    @property
    def rank(self):
        return self.points.value.shape[0]

    @property
    def spacing(self) -> float:
        """Median distance of a point from its nearest neighbour, in the kernel's columns.

        Infinite where most points are the only one of their label.
        """
        Z = layout_values(self.cov_func, self.points.value, self.apart)
        if len(Z) < 2:
            return 0.0
        nearest = cKDTree(Z).query(Z, k=2)[0][:, 1]
        return float(np.median(np.where(nearest < 0.5 * self.apart, nearest, np.inf)))

    @property
    def input_range(self):
        Z = self.points.value[:6]
        between_points = 0.5 * (Z[1:] + Z[:-1]) if len(Z) > 1 else Z
        turns = turning_columns(self.cov_func, len(self.low))
        return InputRange(self.low, self.high, between_points, self.known, turns)

    def covering(self, low, high):
        """The same weights, which fade only beyond a range that includes `low` and `high`."""
        rounding = 1e-12 * np.maximum(np.abs(low), np.abs(high))  # of longitudes on another turn
        if (self.low <= low + rounding).all() and (self.high >= high - rounding).all():
            return self
        return self.changed(low=np.minimum(self.low, low), high=np.maximum(self.high, high))

    def for_residual(self):
        """The points as inducing points, since the variance after interpolation may exceed the kernel's."""
        points = NystromMap(self.cov_func, self.points.tensor, self.low, self.high)
        return points.for_residual()

    def basis(self, X):
        """The weights ``w(x)`` (n, m): those of a row are positive and add up to 1."""
        d = len(self.low)
        X, Z = (layout(self.cov_func, points, d, self.apart) for points in (X, self.points.tensor))
        return softmax_interpolation(X, Z, self.temperature)

    def times(self, X, coef, hold):
        """As :meth:`features` fade beyond the range, where other inputs may take the place of X."""
        if depends_only_on([X]) or not self.stationary:
            return super().times(X, coef, hold)
        return super().times(self._inside(X), coef, hold) * self._decay(X)

    def _inside(self, X):
        """The nearest inputs x' (n, d) in the range of the training inputs."""
        return pt.clip(X, self.low, self.high)

    def _decay(self, X):
        """``g(x) = k(x, x') / k(x', x')`` (n,): 1 in the range of the training inputs."""
        origin = pt.zeros((1, len(self.low)))
        cross = kernel_matrix(self.cov_func, X - self._inside(X), origin)
        return cross[:, 0] / kernel_diag(self.cov_func, origin)

    def mixing(self):
        """Lower-triangular ``L`` (m, m) with ``L L' = K_zz + jitter``; NaN where that fails."""
        K = kernel_matrix(self.cov_func, self.points.tensor)
        K = pt.specify_shape(K, (self.rank, self.rank))
        return cholesky(with_jitter(K, LOOSE_JITTER))

    def features(self, X):
        """``g(x) L' w(x')`` (n, m), stored column by column.

        Beyond the range of the training inputs these are the features of the best prediction from x', so
        that the prior variance returns. Within it, and for kernels that are not stationary, ``g = 1`` and
        x' = x. Near a row with a new label there are no points: it takes those of the best prediction from
        all of them, ``L^-1 k(Z, x)``.
        """
        weights, L = self.basis(X), self.mixing()
        if self.stationary:
            weights = self.basis(self._inside(X)) * self._decay(X)[:, None]
        phi = product(L, weights.T, transpose_a=True).T
        if not self.known:
            return phi
        best = lower_solve(L, kernel_matrix(self.cov_func, self.points.tensor, X)).T
        return pt.switch(self.input_range.is_new(X)[:, None], best, phi)

    def missed(self, X, phi):
        """``(1 - g^2) (v + (1 - g^2)^4 (k(x, x) - v))`` with ``v = |L' w(x')|^2``.

        Interpolation averages the points' values, so that v is well below ``k(x, x)`` even between
        close points. SoftKI takes the interpolated kernel as the prior: within the range of the
        training inputs nothing is missed. Beyond it the variance first stays at v, then rises to
        ``k(x, x)``. Under FITC and VFE, and at new labels, ``k(x, x) - |phi|^2`` is missed.
        """
        missed = super().missed(X, phi)
        if self.corrected:
            return missed
        beyond = self._missed_beyond(X, phi)
        return pt.switch(self.input_range.is_new(X), missed, beyond) if self.known else beyond

    def _missed_beyond(self, X, phi):
        if not self.stationary:
            return pt.zeros_like(phi[:, 0])
        inside = product(self.basis(self._inside(X)), self.mixing())
        variance, lost = (inside**2).sum(axis=1), pt.maximum(1.0 - self._decay(X) ** 2, 0.0)
        return lost * (variance + lost**4 * (self.kernel_diag(X) - variance))

    def outside(self, X):
        return self.input_range.outside(X, "the training inputs")
