"""Summaries of rows in a fixed basis: all that a likelihood with one noise variance needs of them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Cast
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.coefficients import Coefficients
from pymc_scalable_gp.core.singular import Singular
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.graphs import fixed_shared

_LOG_2PI = np.log(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class RowSummary:
    r"""O(r^3) density, whatever n, of a fixed basis with scalar noise: ``B = U S V'``.

    ``log p = log N(u | 0, S V' W V S + noise I) - ((n - k) log(2 pi noise) + (e'e - u'u) / noise) / 2``
    with ``u = U'e`` (k,). The features are B with prior variances ``W = diag(weights)``, or ``B L``
    with ``W = L L'`` when `weights` is a matrix L.
    """

    singular: Singular
    projected: np.ndarray  # u, (k,)
    total: float  # e'e
    size: int  # n

    path = "summarized"

    @property
    def rest(self) -> float:
        """Squared length of the residual outside the features' span."""
        return max(self.total - float(self.projected @ self.projected), 0.0)

    def _terms(self, function, weights, noise):
        factor_t = self.singular.vectors * self.singular.values
        factor_t, u = fixed_shared(factor_t), fixed_shared(self.projected)
        if weights.ndim == 2:
            return function(product(weights, factor_t, transpose_a=True).T, noise, u)
        return function(factor_t.T, noise, u, weights=weights)

    def logp(self, weights, noise) -> TensorVariable:
        """Log density of the targets; O(r^3)."""
        outside = self.size - len(self.projected)
        rest = outside * (_LOG_2PI + pt.log(noise)) + fixed_shared(self.rest) / noise
        return self._terms(lowrank_logp, weights, noise).logp - 0.5 * rest

    def coefficients(self, weights, noise) -> Coefficients:
        """Posterior of the coefficients; O(r^3)."""
        found = self._terms(lowrank_posterior, weights, noise)
        return Coefficients(found.coef, found.root)


@dataclass(frozen=True, eq=False)
class RotatedSummary(RowSummary):
    r"""O(r) density, whatever n, in the basis ``Phi V``, orthogonal on the training rows.

    ``log p = -1/2 [ sum_j (log t_j + u_j^2 / t_j) + (n - k) log noise + (e'e - u'u) / noise
    + n log 2 pi ]`` with ``t_j = w_j s_j^2 + noise``.
    """

    path = "rotated"

    def logp(self, weights, noise):
        """Log density of the targets; O(r)."""
        n, k = self.size, len(self.projected)
        squares, projected = fixed_shared(self.singular.values**2), fixed_shared(self.projected)
        spread, rest = weights * squares + noise, fixed_shared(self.rest)
        inside = (pt.log(spread) + projected**2 / spread).sum()
        return -0.5 * (inside + (n - k) * pt.log(noise) + rest / noise + n * _LOG_2PI)

    def coefficients(self, weights, noise):
        """Posterior of the coefficients, independent of each other; O(r)."""
        s, projected = fixed_shared(self.singular.values), fixed_shared(self.projected)
        spread = weights * s**2 + noise
        return Coefficients(weights * s * projected / spread, pt.sqrt(weights * noise / spread))


class Snapshot(NamedTuple):
    """The data that were summarised; X is None for inputs that nothing can replace."""

    X: np.ndarray | None
    y: np.ndarray
    mutable: bool

    def matches(self, X: TensorVariable | None, y: TensorVariable) -> bool:
        """Whether X and y hold, now, what was summarised."""
        return _holds(y, self.y) and (self.X is None or _holds(X, self.X))

    def guard(self, result: TensorVariable, X: TensorVariable | None, y: TensorVariable):
        """`result`, refused in a compiled function whose data were replaced since.

        All entries are compared, O(n d): data given as arrays need no comparison.
        """
        if not self.mutable:
            return result
        same = _same(y, self.y) if self.X is None else _same(y, self.y) & _same(X, self.X)
        message = (
            "the data behind a summarised likelihood were replaced after it was compiled: "
            "compile it again, and make gp.conditional anew (a rotated basis: build the GP again)"
        )
        return Assert(message)(result, same)


def present_value(variable):
    """Current value of a constant or shared variable (perhaps behind a cast), else None."""
    while variable.owner is not None and isinstance(
        getattr(variable.owner.op, "scalar_op", None), Cast
    ):
        variable = variable.owner.inputs[0]
    if isinstance(variable, SharedVariable):
        return variable.get_value(borrow=True)
    return getattr(variable, "data", None)


def _holds(variable, value) -> bool:
    present = present_value(variable)
    return present is not None and np.array_equal(present, value)


def _same(tensor, value):
    """Whether `tensor` equals `value`, without an error where their lengths differ."""
    rows = pt.eq(tensor.shape[0], len(value))
    kept = fixed_shared(value)
    count = pt.minimum(tensor.shape[0], len(value))
    return rows & pt.eq(tensor[:count], kept[:count]).all()
