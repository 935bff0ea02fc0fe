"""Likelihoods whose rows are summarised once: a fixed basis, one noise variance, a fixed mean."""

from dataclasses import dataclass

import numpy as np

from pymc_scalable_gp.core.likelihood import FullRows, Likelihood, MarginalData, fixed_residual
from pymc_scalable_gp.core.row_function import RowFunction, triangle_of_rows
from pymc_scalable_gp.core.singular import Singular
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
        return self.data.feature_map.coefficient_prior(self.data.weights)

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
    """Likelihood from one pass over the rows, in blocks.

    With the `rotation` that made the basis orthogonal on these rows: O(r) an evaluation.
    """
    residual = fixed_residual(data)
    # With a rotation the features are B V already.
    basis = data.feature_map.training_basis if rotation is None else data.feature_map.features
    triangle = triangle_of_rows(RowFunction(basis), data.X.value, residual, progressbar)
    if rotation is None:
        summary = RowSummary.of(triangle, len(triangle) - 1, len(residual))
    else:
        summary = RotatedSummary.turned(triangle, rotation, len(residual))
    # Copies: what nothing can replace may be kept as it is, what can be needs its value now.
    inputs = np.array(data.X.value) if data.X.mutable else None
    snapshot = Snapshot(inputs, np.array(data.y.value), data.X.mutable or data.y.mutable)
    return SummarizedRows(data, summary, snapshot)
