"""Likelihoods whose rows are seen once, in a fixed basis: from arrays, or from statistics alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, check_inputs
from pymc_scalable_gp.core.data.mean import MeanDesign, mean_design
from pymc_scalable_gp.core.data.missing import refuse_lengths
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.lowrank import draw_low_rank
from pymc_scalable_gp.core.likelihoods.row_summary import RotatedSummary, RowSummary
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal
from pymc_scalable_gp.core.rows.collect import basis_of, row_function
from pymc_scalable_gp.core.rows.triangle import target_blocks, triangle_of_rows
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.checks import Refuse
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import depends_only_on, fixed_shared, present_value, same_values
from pymc_scalable_gp.utils.warn import warn


@dataclass(frozen=True, eq=False)
class DataCopy:
    """Data at some time; X is None for inputs that nothing can replace."""

    X: np.ndarray | None
    y: np.ndarray

    @classmethod
    def now(cls, *variables) -> "DataCopy":
        """Copies of what X, or None, and y hold."""
        found = (None if v is None else np.array(present_value(v), "float64") for v in variables)
        return cls(*found)

    def __eq__(self, other):
        """Whether all entries are the same."""
        same = isinstance(other, DataCopy) and np.array_equal(self.y, other.y)
        return same and (self.X is None or np.array_equal(self.X, other.X))

    __hash__ = None

    def guard(self, result: TensorVariable, X, y) -> TensorVariable:
        """`result`, refused in a compiled function whose data were replaced since: compared in O(n d)."""
        same = same_values(y, fixed_shared(self.y))
        if self.X is not None:
            same &= same_values(X, fixed_shared(self.X))
        message = (
            "the data behind a summarised likelihood were replaced after it was compiled: "
            "compile it again, and make gp.conditional anew"
        )
        return Refuse(message)(result, same)


class ArrayRows:
    """A model's own rows: their summary, made again where `pm.set_data` replaced them."""

    def __init__(self, data: MarginalData, design: MeanDesign, rotation, progressbar):
        feature_map, X, y = data.feature_map, data.X, np.array(data.y.value)
        # With a rotation the features are B V already.
        basis = feature_map.basis if rotation is None else feature_map.features
        self._function, self._design = row_function(basis, design), design
        self._kept = None if X.mutable else X.value
        self._map = feature_map
        self._mutable = X.mutable or data.y.mutable
        # Copies: what can be replaced needs its value now.
        self._first = DataCopy(np.array(X.value) if X.mutable else None, y)
        if rotation is None:
            self._summary = self._summarized(X.value, y, progressbar)
        else:
            plain = row_function(feature_map.basis, design)
            self._summary = RotatedSummary.of_rows(
                lambda: target_blocks(plain, X.value, y, "Projecting the targets", progressbar),
                len(rotation.vectors), len(y), rotation,
            )  # fmt: skip
        self.path = self._summary.path

    def _summarized(self, X, y, progressbar=True) -> RowSummary:
        refuse_lengths(X, y)
        factor = triangle_of_rows(self._function, X, y, progressbar)
        return RowSummary.of(factor, len(factor) - self._design.count - 1, len(y))

    def present_data(self, X, y) -> DataCopy | None:
        """The data that X and y hold now, where they can be replaced."""
        return DataCopy.now(X, y) if self._mutable else None

    def present(self, X, y) -> tuple[RowSummary, Callable] | None:
        """Summary of the data that X and y hold now, and what refuses a result once these are replaced.

        None where the features at X are not those of a fixed basis, or no value is known.
        """
        if any(v is not None and present_value(v) is None for v in (X, y)):
            return None
        now, summary = DataCopy.now(X, y), self._summary
        if now != self._first:
            if X is not None:
                evaluate([X])  # refused with another number of columns
            if X is not None and (limits := self._map.input_range) is not None:
                limits.check_replaced(now.X)
            if X is not None and self._map.mixing() is not None:
                rows = now.X if limits is None else limits.turned(now.X)
                if self._map.covering(rows.min(axis=0), rows.max(axis=0)) is not self._map:
                    return None
            summary = self._summarized(self._kept if X is None else now.X, now.y)
        elif not self._mutable:
            return summary, lambda result: result
        return summary, partial(now.guard, X=X, y=y)


@dataclass(frozen=True, eq=False)
class SummarizedNormal(StructuredNormal):
    r"""``N(mean, B W B' + noise I)`` of targets whose rows were summarised in the basis B.

    The density of those targets comes from the summary, O(r^3) or O(r) whatever n; where `pm.set_data`
    replaced them, from one that is made again when the density is built. That of other values, and
    draws, come from the rows. Without rows the vector is ``U'y``, and B stands for ``U'B``: the
    density is that of all targets. A density that is built for inputs without a summary warns.
    """

    features: TensorVariable  # (n, r) at the rows, times the roots of their prior variances
    weights: TensorVariable  # (k,) prior variances of B's coefficients, or L (k, r), W = L L'
    noise: TensorVariable  # variance, a scalar or (n,)
    beta: TensorVariable | None  # (h,) coefficients of the mean
    X: TensorVariable | None  # (n, d) inputs, where `pm.set_data` may replace them
    rows: RowSummary | ArrayRows  # statistics alone, or the rows themselves

    def draw(self, rng, size):
        return draw_low_rank(self.mean, self.features, self.noise, rng, size)

    def logp(self, value):
        """Use the summary, or the rows where other inputs or targets have replaced them."""
        if isinstance(self.rows, RowSummary):
            return self.rows.logp(self.weights, self.noise, self.beta, value)
        if not self.noise.ndim:
            found = self.rows.present(self.X, value)
            if found is not None:
                summary, guard = found
                return guard(summary.logp(self.weights, self.noise, self.beta))
            if present_value(value) is not None:
                warn(
                    "X was replaced by inputs beyond the range that the GP was built on, where its "
                    "features have no fixed basis: every evaluation now costs O(n r^2). Build the model "
                    "again with the new data"
                )
        return lowrank_logp(self.features, self.noise, value - self.mean).logp


@dataclass(frozen=True, eq=False)
class SummarizedRows(Likelihood):
    """The density and the posterior of the coefficients, from a summary of the rows.

    Where only statistics are known, `data` holds the ends of X and the targets ``U'y``.
    """

    data: MarginalData
    beta: TensorVariable | None
    rows: RowSummary | ArrayRows

    @property
    def path(self):
        """Path of the summary."""
        return self.rows.path

    @property
    def has_rows(self):
        """Whether they are more than statistics."""
        return isinstance(self.rows, ArrayRows)

    @property
    def _weights(self):
        feature_map, weights = self.data.feature_map, self.data.weights
        mixing = feature_map.mixing()
        if mixing is not None:
            return mixing
        return pt.ones(feature_map.rank) if weights is None else weights

    @property
    def _inputs(self):
        return self.data.X.tensor if self.has_rows and self.data.X.mutable else None

    @property
    def present_data(self):
        return self.rows.present_data(self._inputs, self.data.y.tensor) if self.has_rows else None

    def normal(self, noise):
        """Distribution of the rows, or of their projections where only statistics are known."""
        data, weights = self.data, self._weights
        if self.has_rows:
            mean, phi = data.mean, data.guarded(data.feature_map.features(data.X.tensor))
            scaled = phi if data.weights is None else phi * pt.sqrt(data.weights)
        else:
            mean, basis = self.rows.mean(self.beta), fixed_shared(self.rows.factor)
            mixed = weights.ndim == 2
            scaled = product(basis, weights) if mixed else basis * pt.sqrt(weights)
        return SummarizedNormal(mean, scaled, weights, noise, self.beta, self._inputs, self.rows)

    def coefficients(self, target=None, noise=None):
        """From the summary, made again where the rows were replaced, or else from the rows."""
        y, variance = self.handed(target, noise)
        if not self.has_rows:
            return self.rows.coefficients(self._weights, variance, self.beta, y)
        found = None if variance.ndim else self.rows.present(self._inputs, y)
        if found is None:
            return FullRows(self.data).coefficients(y, variance)
        summary, guard = found
        coef = summary.coefficients(self._weights, variance, self.beta)
        return coef._replace(mean=guard(coef.mean))


def can_summarize(data: MarginalData) -> bool:
    """Whether nothing of size n depends on a parameter: DTC, one sigma, a fixed basis, a linear mean."""
    if data.approx != "DTC" or data.sigma.ndim:
        return False
    if any(d.mutable and present_value(d.tensor) is None for d in (data.X, data.y)):
        return False  # an expression: nothing tells when its value changes
    X = data.X.tensor
    fixed = depends_only_on([data.feature_map.basis(X)], [X])
    return fixed and mean_design(data.mean_func, data.X.value.shape[1]) is not None


def summarize(data: MarginalData, rotation: Singular | None = None, progressbar=True):
    """Likelihood from one pass over the rows, in blocks.

    With the `rotation` that made the basis orthogonal on these rows: O(r) per evaluation.
    """
    design = mean_design(data.mean_func, data.X.value.shape[1])
    return SummarizedRows(data, design.beta, ArrayRows(data, design, rotation, progressbar))


def likelihood_of(gp, statistics, sigma, weights=None) -> SummarizedRows:
    """Likelihood of the statistics' rows; an error for another basis or rotation, or a sigma per row."""
    if sigma.ndim:
        raise ValueError("statistics of rows need a scalar sigma: the rows' own are not in them")
    beta = basis_of(gp, statistics).design.beta
    rotation = gp.feature_map.rotation
    if rotation is None:
        summary = RowSummary.of(statistics.triangle, statistics.mark.columns, statistics.size)
    else:
        summary = RotatedSummary.of_statistics(statistics, rotation)
    ends = replace(check_inputs(np.stack([statistics.low, statistics.high])), columns=gp.columns)
    target = Data.fixed(summary.projected[:, -1])
    feature_map = gp.feature_map.covering(statistics.low, statistics.high)
    data = MarginalData(feature_map, gp.mean_func, ends, target, sigma, "DTC", weights)
    return SummarizedRows(data, beta, summary)
