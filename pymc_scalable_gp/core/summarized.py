"""Likelihoods whose rows are summarised once: a fixed basis, one noise variance, a fixed mean."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.likelihood import FullRows, Likelihood, MarginalData, fixed_residual
from pymc_scalable_gp.core.singular import Singular, compile_features, project, singular_factor
from pymc_scalable_gp.core.summaries import (
    RotatedSummary,
    RowSummary,
    Snapshot,
    present_value,
)
from pymc_scalable_gp.core.summarized_normal import SummarizedNormal


@dataclass(frozen=True, eq=False)
class SummarizedRows(Likelihood):
    """The density and the posterior of the coefficients, from a summary of the rows."""

    data: MarginalData
    summary: RowSummary
    snapshot: Snapshot

    @property
    def path(self):
        """Of the summary."""
        return self.summary.path

    @property
    def _weights(self):
        """Prior variances of the basis' coefficients, or the matrix that mixes it."""
        mixing = self.data.feature_map.mixing()
        if mixing is not None:
            return mixing
        weights = self.data.weights
        return pt.ones(self.data.feature_map.rank) if weights is None else weights

    @property
    def _inputs(self):
        return self.data.X.tensor if self.data.X.mutable else None

    @property
    def state(self):
        """Whether the data still are those that were summarised."""
        return self.snapshot.matches(self._inputs, self.data.y.tensor)

    def observe(self, name, **kwargs):
        """A :class:`SummarizedNormal`."""
        data = self.data
        basis = data.guarded(data.feature_map.basis(data.X.tensor))
        return SummarizedNormal(
            name, data.mean, basis, self._weights, data.sigma, self._inputs,
            summary=self.summary, snapshot=self.snapshot, observed=data.y.tensor, **kwargs,
        )  # fmt: skip

    def coefficients(self):
        """From the summary; from the rows where they were replaced."""
        data = self.data
        if not self.state:
            return FullRows(data).coefficients()
        found = self.summary.coefficients(self._weights, data.sigma**2)
        mean = self.snapshot.guard(found.mean, self._inputs, data.y.tensor)
        return found._replace(mean=mean)


def can_summarize(data: MarginalData) -> bool:
    """Whether nothing of size n depends on a parameter: DTC, one sigma, a fixed basis and mean."""
    if data.approx != "DTC" or data.sigma.ndim:
        return False
    if any(d.mutable and present_value(d.tensor) is None for d in (data.X, data.y)):
        return False  # an expression: nothing tells when its value changes
    basis = data.feature_map.training_basis(data.X.tensor)
    return data.is_fixed(basis, data.mean)


def summarize(data: MarginalData, rotation: Singular | None = None, progressbar=True):
    """Likelihood from one or two passes over the rows, in blocks.

    With the `rotation` that made the basis orthogonal on these rows: O(r) an evaluation.
    """
    feature_map, X = data.feature_map, data.X.value
    residual = fixed_residual(data)
    if rotation is None:
        kind, basis = RowSummary, compile_features(feature_map.training_basis)
        mixing = feature_map.mixing()
        width = feature_map.rank if mixing is None else mixing.type.shape[0]
        singular = singular_factor(basis, X, width, progressbar)
        projected = project(basis, X, residual, singular, progressbar)
    else:
        # The features are B V already, with B V = U S: their products with e are S u.
        kind, singular = RotatedSummary, rotation
        turned = compile_features(feature_map.features)
        whole = Singular(singular.values, np.eye(len(singular.values)))
        projected = project(turned, X, residual, whole, progressbar)
    summary = kind(singular, projected, float(residual @ residual), len(residual))
    # Copies: what nothing can replace may be kept as it is, what can be needs its value now.
    inputs = np.array(X) if data.X.mutable else None
    snapshot = Snapshot(inputs, np.array(data.y.value), data.X.mutable or data.y.mutable)
    return SummarizedRows(data, summary, snapshot)
