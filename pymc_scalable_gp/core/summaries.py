"""Posterior of the feature coefficients, from the full rows, their summary, or a rotated basis."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import Assert
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.coefficients import Coefficients
from pymc_scalable_gp.core.singular import Singular
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp

_LOG_2PI = np.log(2.0 * np.pi)


@dataclass(frozen=True)
class FrozenRows(ABC):
    """Base of the likelihoods that never look at the rows again, for the rows they were made of.

    `X_value` is None for inputs that nothing can replace.
    """

    X_value: np.ndarray | None
    y_value: np.ndarray
    mutable: bool

    def inputs_in(self, graph: TensorVariable) -> TensorVariable | None:
        """The inputs that `graph` was built on, if they may change and hold the rows summarised.

        A copy of a model (``pm.do``, a frozen model) has inputs of its own, so they are looked up.
        """
        if self.X_value is None:
            return None
        for variable in ancestors([graph]):
            if variable.owner is None and getattr(variable.type, "ndim", 0) == 2:
                present = _present(variable)
                if present is not None and np.array_equal(present, self.X_value):
                    return variable
        return None

    def knows(self, X: TensorVariable | None) -> bool:
        """Whether X, from :meth:`inputs_in`, holds the rows that were summarised."""
        return self.X_value is None or X is not None

    def applies_to(self, value: TensorVariable) -> bool:
        """Whether `value` holds, now, the targets that were summarised."""
        present = _present(value)
        return present is not None and np.array_equal(present, self.y_value)

    def guard(self, logp: TensorVariable, X: TensorVariable, value: TensorVariable):
        """Refuse to go on in a compiled function whose data were replaced (checked on 64 rows)."""
        if not self.mutable:
            return logp
        n = len(self.y_value)
        same = pt.eq(value.shape[0], n)
        probe = np.unique(np.linspace(0, n - 1, min(n, 64)).astype(int))
        probe_t = pt.minimum(probe, value.shape[0] - 1)
        same &= pt.eq(value[probe_t], self.y_value[probe]).all()
        if self.X_value is not None:
            probe_t = pt.minimum(probe, X.shape[0] - 1)
            same &= pt.eq(X.shape[0], n) & pt.eq(X[probe_t], self.X_value[probe]).all()
        message = (
            "the data behind a summarised likelihood were replaced after it was compiled: "
            "compile it again, and make gp.conditional anew (a rotated basis: build the GP again)"
        )
        return Assert(message)(logp, same)

    def density(self, value, mu, phi, weights, noise, logdet=None) -> TensorVariable | None:
        """Log density of `value`, or None, with a warning, if it is not what was summarised."""
        X = self.inputs_in(phi)
        if self.applies_to(value) and self.knows(X):
            return self.guard(self.logp(weights, noise), X, value)
        warnings.warn(
            "the data differ from those that this GP's likelihood was summarised for: every "
            "evaluation now costs O(n r^2). Build the model again with the new data",
            UserWarning,
            stacklevel=3,
        )
        return None

    @abstractmethod
    def logp(self, weights, noise) -> TensorVariable:
        """Log density of the training targets."""

    @abstractmethod
    def coefficients(self, weights, noise) -> Coefficients:
        """Posterior of the coefficients."""


def _present(variable):
    """Current value of a constant or shared variable (perhaps behind a cast), else None."""
    while variable.owner is not None and len(variable.owner.inputs) == 1:
        variable = variable.owner.inputs[0]
    if isinstance(variable, SharedVariable):
        return variable.get_value(borrow=True)
    return getattr(variable, "data", None)


@dataclass(frozen=True)
class SummarizedRows(FrozenRows):
    r"""O(r^3) likelihood, whatever n, of a fixed basis with scalar noise: ``B = U S V'``.

    ``log p = log N(u | 0, S V' W V S + noise I) - ((n - k) log(2 pi noise) + (e'e - u'u) / noise) / 2``
    with ``u = U'e`` (k,). The features are B with prior variances ``W = diag(weights)``, or ``B L``
    with ``W = L L'`` when `weights` is a matrix L.
    """

    singular: Singular
    projected: np.ndarray  # u, (k,)
    total: float  # e'e

    path = "summarized"

    @property
    def rest(self) -> float:
        """Squared length of the residual outside the features' span."""
        return max(self.total - float(self.projected @ self.projected), 0.0)

    def _terms(self, weights, noise):
        factor_t = self.singular.vectors * self.singular.values
        factor_t = pytensor.shared(factor_t, borrow=True)
        u = pt.constant(self.projected)
        if weights.ndim == 2:
            return lowrank_logp((weights.T @ factor_t).T, noise, u)
        return lowrank_logp(factor_t.T, noise, u, weights=weights)

    def logp(self, weights, noise):
        """Log density of the training targets; O(r^3)."""
        outside = len(self.y_value) - len(self.projected)
        rest = outside * (_LOG_2PI + pt.log(noise)) + self.rest / noise
        return self._terms(weights, noise)[0] - 0.5 * rest

    def coefficients(self, weights, noise):
        """Posterior of the coefficients; O(r^3)."""
        _logp, _alpha, mean, root, _variance = self._terms(weights, noise)
        return Coefficients(mean, root)


@dataclass(frozen=True)
class RotatedRows(SummarizedRows):
    r"""O(r) likelihood, whatever n, in the basis ``Phi V``, orthogonal on the training rows.

    ``log p = -1/2 [ sum_j (log t_j + u_j^2 / t_j) + (n - k) log noise + (e'e - u'u) / noise
    + n log 2 pi ]`` with ``t_j = w_j s_j^2 + noise``.
    """

    path = "rotated"

    def logp(self, weights, noise):
        """Log density of the training targets; O(r)."""
        n, k = len(self.y_value), len(self.projected)
        spread = weights * self.singular.values**2 + noise
        inside = (pt.log(spread) + self.projected**2 / spread).sum()
        return -0.5 * (inside + (n - k) * pt.log(noise) + self.rest / noise + n * _LOG_2PI)

    def coefficients(self, weights, noise):
        """Posterior of the coefficients, independent of each other; O(r)."""
        s = self.singular.values
        spread = weights * s**2 + noise
        return Coefficients(
            weights * s * self.projected / spread, pt.sqrt(weights * noise / spread)
        )
