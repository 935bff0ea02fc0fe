"""Densities and posteriors from summaries of rows in a fixed basis, without the rows."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.core.rows.statistics import RowStatistics
from pymc_scalable_gp.core.rows.triangle import RowFactor, triangle
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.graphs import fixed_shared

_LOG_2PI = np.log(2.0 * np.pi)

# Most that U'U of a rotated basis may differ from the identity, where rounding at the least singular values
# that are kept makes 2e-9.
_ORTHOGONAL = 1e-6

# Relative size of singular values that are rounding alone.
_ROUNDING = 1e-15


@dataclass(frozen=True, eq=False)
class RowSummary:
    r"""O(r^3) density, whatever n, of a fixed basis with scalar noise: ``B = U S V'``.

    ``log p = log N(u | 0, S V' W V S + noise I) - ((n - k) log(2 pi noise) + |T b|^2 / noise) / 2``
    with ``u = U'[H | y] b`` (k,), ``b = (-beta, 1)``, for a mean ``H beta`` (or none), and T the triangle
    of what ``[H | y]`` has outside the span of B. The features are B with prior variances
    ``W = diag(weights)``, or ``B L`` with ``W = L L'`` when `weights` is a matrix L.
    """

    singular: Singular
    projected: np.ndarray  # U'[H | y], (k, h + 1)
    outside: np.ndarray  # T, (h + 1, h + 1)
    size: int  # n

    path = "summarized"

    @classmethod
    def of(cls, factor: np.ndarray, columns: int, size: int) -> "RowSummary":
        """From the triangle of ``[B | H | y]``, whose first `columns` are the basis'."""
        # Nothing is divided by the singular values, and a mixing may scale the least of them up.
        singular, left = Singular.of(factor[:, :columns], cutoff=_ROUNDING)
        turned = left.T @ factor[:, columns:]
        rank = len(singular.values)
        return cls(singular, turned[:rank], triangle(turned[rank:]), size)

    @property
    def factor(self) -> np.ndarray:
        """``U'B = S V'`` (k, q)."""
        return (self.singular.vectors * self.singular.values).T

    def mean(self, beta: TensorVariable | None) -> TensorVariable:
        """``U'H beta`` (k,)."""
        if beta is None:
            return pt.zeros(len(self.projected))
        return pt.dot(fixed_shared(self.projected[:, :-1]), beta)

    def _known(self, beta, target=None):
        """``u`` (k,) and ``|T b|^2`` at the coefficients of the mean, or None; `target` is ``U'y``."""
        target = fixed_shared(self.projected[:, -1]) if target is None else target
        beyond = fixed_shared(self.outside[:, -1])
        if beta is not None:
            target = target - self.mean(beta)
            beyond = beyond - pt.dot(fixed_shared(self.outside[:, :-1]), beta)
        return target, (beyond**2).sum()

    def _terms(self, function, weights, noise, u):
        factor_t = fixed_shared(self.factor.T)
        if weights.ndim == 2:
            return function(product(weights, factor_t, transpose_a=True).T, noise, u)
        return function(factor_t.T, noise, u, weights=weights)

    def logp(self, weights, noise, beta=None, target=None) -> TensorVariable:
        """Log density of the targets; O(r^3)."""
        u, rest = self._known(beta, target)
        beyond = self.size - len(self.projected)
        outside = beyond * (_LOG_2PI + pt.log(noise)) + rest / noise
        return self._terms(lowrank_logp, weights, noise, u).logp - 0.5 * outside

    def coefficients(self, weights, noise, beta=None, target=None) -> Coefficients:
        """Posterior of the coefficients; O(r^3)."""
        u, _ = self._known(beta, target)
        found = self._terms(lowrank_posterior, weights, noise, u)
        return Coefficients(found.coef, found.root)


@dataclass(frozen=True, eq=False)
class RotatedSummary(RowSummary):
    r"""O(r) density, whatever n, in the basis ``B V = U S``, orthogonal on the training rows.

    ``log p = -1/2 [ sum_j (log t_j + u_j^2 / t_j) + (n - k) log noise + |T b|^2 / noise
    + n log 2 pi ]`` with ``t_j = w_j s_j^2 + noise``.
    """

    path = "rotated"

    @classmethod
    def of_rows(cls, read, columns: int, size: int, singular: Singular) -> "RotatedSummary":
        """From ``[B | H | y]`` in blocks, which `read()` gives twice; the first `columns` are B's."""
        V, s = singular.vectors, singular.values[:, None]
        cross = sum(rows[:, :columns].T @ rows[:, columns:] for rows in read())
        projected = V.T @ cross / s
        fitted, outside = V @ (projected / s), RowFactor(cross.shape[1])
        for rows in read():
            outside.add(rows[:, columns:] - rows[:, :columns] @ fitted)
        return cls(singular, projected, outside.triangle(), size)

    @classmethod
    def of_statistics(cls, found: RowStatistics, singular: Singular) -> "RotatedSummary":
        """From statistics, whose triangle stands for the rows; ValueError if V is that of other rows."""
        columns, count = found.mark.columns, len(singular.values)
        U = found.triangle[:, :columns] @ singular.vectors / singular.values
        if len(U) < count or np.abs(U.T @ U - np.eye(count)).max() > _ORTHOGONAL:
            raise ValueError(
                "the rotated basis was built on other rows than these statistics': call "
                "build(X, statistics=...) with them first"
            )
        return cls.of_rows(lambda: [found.triangle], columns, found.size, singular)

    @property
    def factor(self):
        """``U'B V = S`` (k, k)."""
        return np.diag(self.singular.values)

    def logp(self, weights, noise, beta=None, target=None):
        """Log density of the targets; O(r)."""
        n, k = self.size, len(self.projected)
        u, rest = self._known(beta, target)
        spread = weights * fixed_shared(self.singular.values**2) + noise
        inside = (pt.log(spread) + u**2 / spread).sum()
        return -0.5 * (inside + (n - k) * pt.log(noise) + rest / noise + n * _LOG_2PI)

    def coefficients(self, weights, noise, beta=None, target=None):
        """Posterior of the coefficients, independent of each other; O(r)."""
        u, _ = self._known(beta, target)
        s = fixed_shared(self.singular.values)
        spread = weights * s**2 + noise
        return Coefficients(weights * s * u / spread, pt.sqrt(weights * noise / spread))
