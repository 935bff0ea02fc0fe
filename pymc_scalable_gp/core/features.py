"""The contract between a method and the front ends: a finite feature map."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.utils.blocks import BLOCK


class FeatureMap(ABC):
    """``k~(x, z) = phi(x)' phi(z)`` with ``phi`` fixed once :meth:`fit_to` has run.

    A method implements :meth:`fit_to`, :meth:`features` and :attr:`rank`; everything else of the
    package (likelihoods, predictions, additive models) follows from them. Where the parameters only
    mix functions that do not depend on them, :meth:`constant_basis` and :meth:`mixing` say so, and a
    likelihood that needs no rows follows too.
    """

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of features r (static). Needs :meth:`fit_to`."""

    @property
    @abstractmethod
    def is_fitted(self) -> bool:
        """Whether :meth:`fit_to` has run."""

    @abstractmethod
    def fit_to(self, X: np.ndarray) -> None:
        """Freeze what depends on the training inputs (n, d): grids, centres, pivots."""

    @abstractmethod
    def features(self, X: TensorVariable) -> TensorVariable:
        """Feature matrix (n, r) at inputs (n, d), differentiable in the hyperparameters."""

    def features_at(self, data) -> TensorVariable:
        """Features at checked inputs, whose structure a method may use."""
        return self.features(data.tensor)

    def constant_basis(self, X: TensorVariable) -> TensorVariable | None:
        """Functions (n, k) without parameters that span the features at training rows, or None."""
        return None

    def basis(self, X: TensorVariable) -> TensorVariable:
        """Functions (n, k) at any inputs, with ``features = basis @ mixing``."""
        return self.features(X)

    def mixing(self) -> TensorVariable | None:
        """Matrix (k, r) with ``features = basis @ mixing``; None stands for the identity."""
        return None

    def intermediates(self) -> list[TensorVariable]:
        """What the features at new rows have in common: computed once, not for every block of rows."""
        return []

    @property
    def block_rows(self) -> int:
        """Number of new rows to compute features for at a time."""
        return BLOCK

    @abstractmethod
    def kernel_diag(self, X: TensorVariable) -> TensorVariable:
        """Prior variances ``k(x_i, x_i)`` (n,) of the kernel that is approximated."""

    def missed(self, X: TensorVariable, phi: TensorVariable) -> TensorVariable:
        """Prior variances (n,) that the features `phi` at X do not hold."""
        return pt.maximum(self.kernel_diag(X) - (phi**2).sum(axis=1), 0.0)

    @abstractmethod
    def outside(self, X: np.ndarray) -> str | None:
        """What to warn of when predicting at X, or None."""


class SumMap(FeatureMap):
    """Features of a sum of independent GPs: the parts' features side by side."""

    def __init__(self, parts: Sequence[FeatureMap]):
        self.parts = tuple(
            part for given in parts for part in getattr(given, "parts", (given,))
        )  # nested sums are flattened, so that each part can be found by identity

    @property
    def rank(self) -> int:
        """Sum of the parts' ranks."""
        return sum(part.rank for part in self.parts)

    @property
    def is_fitted(self) -> bool:
        """Whether all parts are."""
        return all(part.is_fitted for part in self.parts)

    def fit_to(self, X, *args):
        """Fit every part."""
        for part in self.parts:
            part.fit_to(X, *args)

    def features(self, X):
        """Concatenation along the features."""
        return pt.concatenate([part.features(X) for part in self.parts], axis=1)

    def intermediates(self):
        """Those of all parts."""
        return [tensor for part in self.parts for tensor in part.intermediates()]

    @property
    def block_rows(self):
        """The least of the parts'."""
        return min(part.block_rows for part in self.parts)

    def kernel_diag(self, X):
        """Sum of the parts' prior variances."""
        return sum(part.kernel_diag(X) for part in self.parts)

    def missed(self, X, phi):
        """Sum of what the parts miss."""
        starts = np.cumsum([0, *(part.rank for part in self.parts)])
        columns = zip(self.parts, starts[:-1], starts[1:], strict=True)
        return sum(part.missed(X, phi[:, start:stop]) for part, start, stop in columns)

    def outside(self, X):
        """Join the parts' warnings."""
        found = [text for part in self.parts if (text := part.outside(X))]
        return "; ".join(found) or None

    def columns(self, parts: Sequence[FeatureMap]) -> np.ndarray | None:
        """Feature columns that belong to `parts`, or None when one of them is not in the sum."""
        starts = np.cumsum([0, *(part.rank for part in self.parts)])
        found = []
        for wanted in parts:
            place = next((i for i, part in enumerate(self.parts) if part is wanted), None)
            if place is None:
                return None
            found.append(np.arange(starts[place], starts[place + 1]))
        return np.concatenate(found)
