"""The contract between a method and the front ends: a finite feature map."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.blocks import BLOCK
from pymc_scalable_gp.utils.checks import Refuse

# Entries of a block of features that predictions work on.
_ENTRIES = 2**24

# Inputs that replace the training inputs may reach this share of the range beyond it.
_REACH = 0.05


class FeatureSpec(Protocol):
    """What a method needs to know before it has seen inputs: kernel, rank, and its own settings."""

    def fit(self, X: np.ndarray, **options) -> "FeatureMap":
        """Feature map for training inputs (n, d); what was fitted before stays as it is."""


class FeatureMap(ABC):
    """``k~(x, z) = phi(x)' phi(z)``, with everything that depends on the training inputs fixed.

    A method implements :attr:`rank`, :meth:`features`, :meth:`kernel_diag` and :meth:`outside`;
    everything else of the package (likelihoods, predictions, additive models) follows from them. Where
    the parameters only mix functions that do not depend on them, :meth:`basis` and :meth:`mixing` say
    so, and a likelihood that needs no rows follows too.
    """

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of features r (static)."""

    @abstractmethod
    def features(self, X: TensorVariable) -> TensorVariable:
        """Feature matrix (n, r) at inputs (n, d), differentiable in the hyperparameters."""

    def for_residual(self) -> "FeatureMap":
        """Map of nearly the same features that never exceed the kernel, so that it less them is one.

        Where it can, it stores features row by row, for neighbours are gathered.
        """
        return self

    def features_at(self, data: Data) -> TensorVariable:
        """Features at checked inputs, whose structure a method may use."""
        return self.features(data.tensor)

    def basis(self, X: TensorVariable) -> TensorVariable:
        """Functions (n, k) at inputs, with ``features = basis @ mixing``."""
        return self.features(X)

    def training_basis(self, X: TensorVariable) -> TensorVariable:
        """The basis at training inputs."""
        return self.basis(X)

    def mixing(self) -> TensorVariable | None:
        """Matrix (k, r) with ``features = basis @ mixing``; None stands for the identity."""
        return None

    @property
    def unrotated(self) -> "FeatureMap":
        """The map whose basis statistics of rows are in: this one, unless it was rotated."""
        return self

    @property
    def rotation(self) -> Singular | None:
        """With ``features = unrotated.features @ rotation.vectors``, orthogonal on some rows; or None."""
        return None

    def coefficient_prior(self, weights: TensorVariable | None) -> TensorVariable:
        """Prior variances (k,) of the basis' coefficients, or the matrix (k, r) that mixes it."""
        mixing = self.mixing()
        if mixing is not None:
            return mixing
        return pt.ones(self.rank) if weights is None else weights

    def design(self, X: TensorVariable) -> tuple:
        """What :meth:`times` needs of training inputs X: tensors, perhaps in nested tuples."""
        return (self.features(X) if self.mixing() is None else self.training_basis(X),)

    def times(self, design: tuple, coef: TensorVariable) -> TensorVariable:
        """``features @ coef`` (n,) from a design."""
        mixing = self.mixing()
        return product(design[0], coef if mixing is None else product(mixing, coef))

    def intermediates(self) -> list[TensorVariable]:
        """What the features at new rows have in common: computed once, not for every block of rows."""
        return []

    @property
    def block_rows(self) -> int:
        """Number of new rows to compute features for at a time: their features stay small."""
        return max(1, min(BLOCK, _ENTRIES // max(self.rank, 1)))

    @abstractmethod
    def kernel_diag(self, X: TensorVariable) -> TensorVariable:
        """Prior variances ``k(x_i, x_i)`` (n,) of the kernel that is approximated."""

    def missed(self, X: TensorVariable, phi: TensorVariable) -> TensorVariable:
        """Prior variances (n,) that the features `phi` at X do not hold."""
        return pt.maximum(self.kernel_diag(X) - (phi**2).sum(axis=1), 0.0)

    @abstractmethod
    def outside(self, X: np.ndarray) -> str | None:
        """What to warn of when predicting at X, or None."""

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Lowest and highest inputs (d,) between which the features hold the prior variance, or None."""
        return None

    def trained_on(self, X: np.ndarray) -> bool:
        """Whether `training_basis` is the basis at X too, for inputs that replace the training inputs."""
        return True

    def covering(self, low: np.ndarray, high: np.ndarray) -> "FeatureMap":
        """The map for rows in that range too, where the same features serve; else this one."""
        return self

    def probes(self) -> np.ndarray:
        """A few inputs (p, d) at which another map's values differ."""
        if self.box is None:
            raise ValueError(f"{type(self).__name__} has no range of inputs to tell its basis by")
        low, high = (np.where(np.isfinite(side), side, 0.0) for side in self.box)
        return low + (high - low) * np.random.default_rng(0).random((5, len(low)))

    def within(self, X: TensorVariable, rows: TensorVariable) -> TensorVariable:
        """`rows`, computed from X, behind a check that X, which may be replaced, stays in the range.

        Beyond it features die away, and without a term for the missing variance the model would be
        certain of the mean there.
        """
        if self.box is None:
            return rows
        low, high = self._reach()
        inside = (X >= low).all() & (X <= high).all()
        message = (
            "X was replaced by inputs beyond the range that the GP was built on, where its features "
            "hold no prior variance: use gp.conditional or gp.predict for new inputs, or build the "
            "model again on X that covers them"
        )
        return Refuse(message)(rows, inside)

    def _reach(self):
        """The box with a margin."""
        low, high = self.box
        margin = _REACH * (high - low) + 1e-9 * np.maximum(np.abs(low), np.abs(high))
        return low - margin, high + margin

    def check_range(self, X: np.ndarray) -> None:
        """Raise ValueError for training inputs (n, d) beyond the range, as `within` does later."""
        if self.box is None:
            return
        low, high = self._reach()
        beyond = np.flatnonzero((X.min(axis=0) < low) | (X.max(axis=0) > high))
        if len(beyond):
            j = beyond[0]
            raise ValueError(
                f"column {j} of X reaches from {X[:, j].min():.4g} to {X[:, j].max():.4g}, but the GP "
                f"was built on inputs between {self.box[0][j]:.4g} and {self.box[1][j]:.4g}, beyond which "
                "its features hold no prior variance: call gp.build(X) on inputs that cover these"
            )


def side_by_side(parts: Sequence[TensorVariable]) -> TensorVariable:
    """Feature matrices (n, r_i) as one, stored column by column as the likelihood reads them."""
    if len(parts) == 1:
        return parts[0]
    return pt.concatenate([part.T for part in parts], axis=0).T


class SumMap(FeatureMap):
    """Features of a sum of independent GPs: the parts' features side by side."""

    def __init__(self, parts: Sequence[FeatureMap]):
        self.parts = tuple(parts)
        self.starts = np.cumsum([0, *(part.rank for part in self.parts)])

    @property
    def rank(self) -> int:
        """Sum of the parts' ranks."""
        return int(self.starts[-1])

    def features(self, X):
        """Concatenation along the features."""
        return side_by_side([part.features(X) for part in self.parts])

    def for_residual(self):
        """Maps for the residual of all parts."""
        return SumMap([part.for_residual() for part in self.parts])

    def features_at(self, data):
        """Concatenation along the features."""
        return side_by_side([part.features_at(data) for part in self.parts])

    def design(self, X):
        """The parts' designs in turn."""
        return tuple(part.design(X) for part in self.parts)

    def times(self, design, coef):
        """Sum of the parts' products."""
        places = zip(self.parts, design, self.starts[:-1], self.starts[1:], strict=True)
        return sum(part.times(rows, coef[start:stop]) for part, rows, start, stop in places)

    def intermediates(self):
        """Intermediate tensors of all parts."""
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
        columns = zip(self.parts, self.starts[:-1], self.starts[1:], strict=True)
        return sum(part.missed(X, phi[:, start:stop]) for part, start, stop in columns)

    def outside(self, X):
        """Join the parts' warnings."""
        found = [text for part in self.parts if (text := part.outside(X))]
        return "; ".join(dict.fromkeys(found)) or None

    @property
    def box(self):
        """What all parts cover."""
        boxes = [part.box for part in self.parts if part.box is not None]
        if not boxes:
            return None
        low, high = (np.array(side) for side in zip(*boxes, strict=True))
        return low.max(axis=0), high.min(axis=0)

    def covering(self, low, high):
        """Maps of all parts for rows in that range."""
        return SumMap([part.covering(low, high) for part in self.parts])

    def columns(self, places: Sequence[int]) -> np.ndarray:
        """Feature columns of the parts at `places`."""
        return np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in places])
