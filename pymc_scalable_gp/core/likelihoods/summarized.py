"""Likelihoods whose rows are summarised once: a fixed basis, one noise variance, a fixed mean."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.precision import LowRankPrecisions
from pymc_scalable_gp.core.likelihoods.summaries import (
    RotatedSummary,
    RowSummary,
    Snapshot,
    present_value,
    renewed,
)
from pymc_scalable_gp.core.likelihoods.summarized_normal import SummarizedNormal
from pymc_scalable_gp.core.rows.triangle import RowFunction, cross_products, triangle_of_rows


class Summarizer:
    """Makes the summary of a model's rows: first, and again of what replaced them."""

    def __init__(self, data: MarginalData, rotation: Singular | None):
        # With a rotation the features are B V already.
        feature_map = data.feature_map
        basis = feature_map.training_basis if rotation is None else feature_map.features

        def rows(basis):
            return lambda X: pt.concatenate(
                [basis(X), mean_vector(data.mean_func, X)[:, None]], axis=1
            )

        self._function, self._rotation = RowFunction(rows(basis)), rotation
        plain = None if rotation is None else RowFunction(rows(feature_map.unrotated.features))
        self._plain = plain
        self._rows = None if data.X.mutable else data.X.value
        self._serves = feature_map.trained_on

    def __call__(self, X, y, progressbar: bool = True) -> RowSummary | None:
        """Summary of rows X (n, d), or None for those that nothing replaces, and targets y (n,).

        None where the features at X are not those of a fixed basis.
        """
        if X is not None and not self._serves(X):
            return None
        X = self._rows if X is None else X
        triangle = triangle_of_rows(self._function, X, y, progressbar)
        return RowSummary.of(triangle, len(triangle) - 1, len(y))

    def first(self, X, y, progressbar: bool) -> RowSummary:
        """As a call, of the rows that the basis was turned on."""
        if self._rotation is None:
            return self(X, y, progressbar)
        cross, square = cross_products(self._plain, X, y, progressbar)
        return RotatedSummary.turned(
            self._rotation.vectors.T @ cross, square, self._rotation, len(y)
        )


@dataclass(frozen=True, eq=False)
class SummarizedRows(Likelihood):
    """The density and the posterior of the coefficients, from a summary of the rows."""

    data: MarginalData
    summary: RowSummary
    snapshot: Snapshot
    again: Summarizer

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
            summary=self.summary, snapshot=self.snapshot, again=self.again,
            observed=data.y.tensor, **kwargs,
        )  # fmt: skip

    def precisions(self, model):
        """Low rank plus diagonal; the rows are read for it."""
        return LowRankPrecisions(self, model)

    def coefficients(self):
        """From the summary, made again where the rows were replaced, or else from the rows."""
        data, X = self.data, self._inputs
        summary, snapshot = renewed(self.summary, self.snapshot, self.again, X, data.y.tensor)
        if summary is None:
            return FullRows(data).coefficients()
        found = summary.coefficients(self._weights, data.sigma**2)
        return found._replace(mean=snapshot.guard(found.mean, X, data.y.tensor))


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
    again = Summarizer(data, rotation)
    summary = again.first(data.X.value, data.y.value, progressbar)
    # Copies: what nothing can replace may be kept as it is, what can be needs its value now.
    inputs = np.array(data.X.value) if data.X.mutable else None
    snapshot = Snapshot(inputs, np.array(data.y.value), data.X.mutable or data.y.mutable)
    return SummarizedRows(data, summary, snapshot, again)
