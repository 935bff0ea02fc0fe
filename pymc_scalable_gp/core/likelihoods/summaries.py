"""Summaries of rows in a fixed basis: all that a likelihood with one noise variance needs of them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Cast
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.core.rows.triangle import triangle
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.evaluate import evaluate
from pymc_scalable_gp.utils.graphs import fixed_shared, is_random

_LOG_2PI = np.log(2.0 * np.pi)

# Most that U'U of a rotated basis may differ from the identity, where rounding at the least singular values
# that are kept makes 2e-9.
_ORTHOGONAL = 1e-6


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
        singular, left = Singular.of(factor[:, :columns])
        turned = left.T @ factor[:, columns:]
        rank = len(singular.values)
        return cls(singular, turned[:rank], triangle(turned[rank:]), size)

    @property
    def factor(self) -> np.ndarray:
        """``U'B = S V'`` (k, q)."""
        return (self.singular.vectors * self.singular.values).T

    @property
    def target(self) -> np.ndarray:
        """``U'y`` (k,)."""
        return self.projected[:, -1]

    def _known(self, beta, target=None):
        """``u`` (k,) and ``|T b|^2`` at the coefficients of the mean, or None; `target` is ``U'y``."""
        target = fixed_shared(self.target) if target is None else target
        if beta is None:
            return target, fixed_shared(self.outside[:, -1] @ self.outside[:, -1])
        designs, outside = fixed_shared(self.projected[:, :-1]), fixed_shared(self.outside)
        beyond = outside[:, -1] - pt.dot(outside[:, :-1], beta)
        return target - pt.dot(designs, beta), (beyond**2).sum()

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

    def coefficients(self, weights, noise, beta=None) -> Coefficients:
        """Posterior of the coefficients; O(r^3)."""
        u, _ = self._known(beta)
        found = self._terms(lowrank_posterior, weights, noise, u)
        return Coefficients(found.coef, found.root)


@dataclass(frozen=True, eq=False)
class RotatedSummary(RowSummary):
    r"""O(r) density, whatever n, in the basis ``Phi V``, orthogonal on the training rows.

    ``log p = -1/2 [ sum_j (log t_j + u_j^2 / t_j) + (n - k) log noise + |T|^2 / noise
    + n log 2 pi ]`` with ``t_j = w_j s_j^2 + noise``.
    """

    path = "rotated"

    @classmethod
    def turned(cls, cross, square: float, singular: Singular, size: int) -> "RotatedSummary":
        """From ``V'B'y`` (k,) and ``y'y``, where ``B V = U S`` is orthogonal already."""
        projected = cross / singular.values
        rest = np.sqrt(max(square - projected @ projected, 0.0))
        return cls(singular, projected[:, None], np.array([[rest]]), size)

    @classmethod
    def of_rotated(
        cls, factor: np.ndarray, columns: int, size: int, singular: Singular
    ) -> "RotatedSummary":
        """From the triangle of ``[B | H | y]``, and a V that makes ``B V`` orthogonal.

        Raises
        ------
        ValueError
            If it does not: V is that of other rows.
        """
        found = factor[:, :columns] @ singular.vectors / singular.values
        count = len(singular.values)
        if len(found) < count or np.abs(found.T @ found - np.eye(count)).max() > _ORTHOGONAL:
            raise ValueError(
                "the rotated basis was built on other rows than these statistics': call "
                "build(X, statistics=...) with them first"
            )
        rest = factor[:, columns:]
        beyond = np.linalg.qr(found, mode="complete")[0][:, count:].T @ rest
        return cls(singular, found.T @ rest, triangle(beyond), size)

    @property
    def factor(self):
        """``U'B V = S`` (k, k)."""
        return np.diag(self.singular.values)

    def logp(self, weights, noise, beta=None, target=None):
        """Log density of the targets; O(r)."""
        n, (k, _) = self.size, self.projected.shape
        u, rest = self._known(beta, target)
        spread = weights * fixed_shared(self.singular.values**2) + noise
        inside = (pt.log(spread) + u**2 / spread).sum()
        return -0.5 * (inside + (n - k) * pt.log(noise) + rest / noise + n * _LOG_2PI)

    def coefficients(self, weights, noise, beta=None):
        """Posterior of the coefficients, independent of each other; O(r)."""
        u, _ = self._known(beta)
        s = fixed_shared(self.singular.values)
        spread = weights * s**2 + noise
        return Coefficients(weights * s * u / spread, pt.sqrt(weights * noise / spread))


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
            "compile it again, and make gp.conditional anew"
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


def renewed(
    summary: RowSummary, snapshot: Snapshot, again, X, y
) -> tuple[RowSummary | None, Snapshot]:
    """Summary and snapshot of the data that X and y hold now; `again` makes those of other data."""
    if snapshot.matches(X, y):
        return summary, snapshot
    inputs = None if X is None else np.array(present_value(X))
    targets = np.array(present_value(y))
    return again(inputs, targets), Snapshot(inputs, targets, True)


def held_value(data, name: str) -> np.ndarray:
    """What checked inputs or targets hold now.

    Raises
    ------
    ValueError
        If they have a prior.
    """
    if is_random(data.tensor):
        raise ValueError(f"{name} has a prior, and this needs rows that are known")
    present = present_value(data.tensor)
    return np.asarray(evaluate([data.tensor])[0] if present is None else present)


def _holds(variable, value) -> bool:
    present = present_value(variable)
    return present is not None and np.array_equal(present, value)


def _same(tensor, value):
    """Whether `tensor` equals `value`, without an error where their lengths differ."""
    rows = pt.eq(tensor.shape[0], len(value))
    kept = fixed_shared(value)
    count = pt.minimum(tensor.shape[0], len(value))
    return rows & pt.eq(tensor[:count], kept[:count]).all()
