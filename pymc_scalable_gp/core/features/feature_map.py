"""The contract between a method and the front ends: a finite feature map."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.reach import InputRange
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.cov.kernels import kernel_diag
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.blocks import BLOCK

# Entries of a block of features that predictions work on.
_ENTRIES = 2**24


class FeatureMap(ABC):
    """``k~(x, z) = phi(x)' phi(z)``, with everything that depends on the training inputs fixed.

    A method sets `cov_func`, the kernel k, and implements :attr:`rank` and :meth:`features`; everything
    else of the package (likelihoods, predictions, additive models) follows from them. Where the
    parameters only mix functions that do not depend on them, :meth:`basis` and :meth:`mixing` say so,
    and a likelihood that needs no rows follows too.
    """

    cov_func: BaseCovariance
    # With ``features = basis @ rotation.vectors``, orthogonal on some rows; or None.
    rotation: Singular | None = None

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of features r (static)."""

    @abstractmethod
    def features(self, X: TensorVariable) -> TensorVariable:
        """Feature matrix (n, r) at inputs (n, d), differentiable in the hyperparameters."""

    def changed(self, **attributes) -> "FeatureMap":
        """The same map with other values of some attributes."""
        other = copy(self)
        vars(other).update(attributes)
        return other

    def for_residual(self) -> "FeatureMap":
        """Map of nearly the same features, such that ``k - k~`` is a covariance.

        Features are stored row by row where possible, because rows of neighbours are gathered.
        """
        return self

    def basis(self, X: TensorVariable) -> TensorVariable:
        """Functions (n, k) at training inputs, with ``features = basis @ mixing`` there."""
        return self.features(X)

    def mixing(self) -> TensorVariable | None:
        """Matrix (k, r) of the parameters with ``features = basis @ mixing``; None where there is none."""
        return None

    def projection(self) -> tuple[TensorVariable, TensorVariable] | None:
        """Points Z (m, d) and W (r, m) with ``features = k(X, Z) W'``; None where they are not that."""
        return None

    def times(self, X: TensorVariable, coef: TensorVariable, hold: Callable) -> TensorVariable:
        """``features @ coef`` (n,) at training inputs X; `hold` is called with each tensor made of X."""
        mixing = self.mixing()
        if mixing is None:
            return product(hold(self.features(X)), coef)
        return product(hold(self.basis(X)), product(mixing, coef))

    def intermediates(self) -> list[TensorVariable]:
        """Tensors that the features of all new rows need: computed once, not for every block of rows."""
        return []

    @property
    def block_rows(self) -> int:
        """Number of new rows to compute features for at a time: their features stay small."""
        return max(1, min(BLOCK, _ENTRIES // max(self.rank, 1)))

    def kernel_diag(self, X: TensorVariable) -> TensorVariable:
        """Prior variances ``k(x_i, x_i)`` (n,) of the kernel that is approximated."""
        return kernel_diag(self.cov_func, X)

    def missed(self, X: TensorVariable, phi: TensorVariable) -> TensorVariable:
        """Prior variances (n,) that the features `phi` at X do not hold."""
        return pt.maximum(self.kernel_diag(X) - (phi**2).sum(axis=1), 0.0)

    def outside(self, X: np.ndarray) -> str | None:
        """Description of how far X lies beyond what the features cover; None where they end nowhere."""
        return None

    @property
    def input_range(self) -> InputRange | None:
        """Inputs between which the features hold the prior variance, or None for all inputs."""
        return None

    @property
    def labels(self) -> Mapping[int, np.ndarray]:
        """Labels that the features hold, by column of X with categories."""
        return {} if self.input_range is None else self.input_range.labels

    def covering(self, low: np.ndarray, high: np.ndarray) -> "FeatureMap":
        """The map whose :meth:`basis` holds between `low` and `high` (d,) too: this one, if it does."""
        return self


def _common(labels: Iterable[Mapping]) -> dict[int, np.ndarray]:
    """Labels that each holds, by column."""
    found: dict[int, np.ndarray] = {}
    for each in labels:
        for column, held in each.items():
            found[column] = np.intersect1d(found.get(column, held), held)
    return found


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
        return int(self.starts[-1])

    def features(self, X):
        return side_by_side([part.features(X) for part in self.parts])

    def basis(self, X):
        return side_by_side([part.basis(X) for part in self.parts])

    def mixing(self):
        found = [part.mixing() for part in self.parts]
        if all(each is None for each in found):
            return None
        own = zip(found, self.parts, strict=True)
        return pt.linalg.block_diag(*(pt.eye(p.rank) if m is None else m for m, p in own))

    def for_residual(self):
        return SumMap([part.for_residual() for part in self.parts])

    def times(self, X, coef, hold):
        places = zip(self.parts, self.starts[:-1], self.starts[1:], strict=True)
        return sum(part.times(X, coef[start:stop], hold) for part, start, stop in places)

    def intermediates(self):
        return [tensor for part in self.parts for tensor in part.intermediates()]

    @property
    def block_rows(self):
        return min(part.block_rows for part in self.parts)

    def kernel_diag(self, X):
        return sum(part.kernel_diag(X) for part in self.parts)

    def missed(self, X, phi):
        columns = zip(self.parts, self.starts[:-1], self.starts[1:], strict=True)
        return sum(part.missed(X, phi[:, start:stop]) for part, start, stop in columns)

    def outside(self, X):
        texts = [text for part in self.parts if (text := part.outside(X))]
        return "; ".join(dict.fromkeys(texts)) or None

    @property
    def input_range(self):
        ranges = [part.input_range for part in self.parts if part.input_range is not None]
        if not ranges:
            return None
        low = np.max([each.low for each in ranges], axis=0)
        high = np.min([each.high for each in ranges], axis=0)
        probes = InputRange(low, high, labels=self.labels).probes  # at labels that there are
        labels = _common(each.labels for each in ranges)  # not the parts' own: a range may refuse fewer
        places = range(len(low))
        turns = [j for j in places if all(j in each.turns or np.isinf(each.low[j]) for each in ranges)]
        return InputRange(low, high, probes, labels, turns)

    @property
    def labels(self):
        return _common(part.labels for part in self.parts)

    def covering(self, low, high):
        found = [part.covering(low, high) for part in self.parts]
        same = all(part is own for part, own in zip(found, self.parts, strict=True))
        return self if same else SumMap(found)

    def columns(self, places: Sequence[int]) -> np.ndarray:
        """Feature columns of the parts at `places`."""
        return np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in places])
