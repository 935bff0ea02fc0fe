"""Likelihood from statistics alone: a model that never sees the rows."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, check_inputs
from pymc_scalable_gp.core.data.mean import MeanDesign, mean_design
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.statistics_normal import StatisticsNormal
from pymc_scalable_gp.core.likelihoods.summaries import RotatedSummary, RowSummary
from pymc_scalable_gp.core.rows.collect import Basis, collect
from pymc_scalable_gp.core.rows.dask_rows import collect_dask, is_dask
from pymc_scalable_gp.core.rows.sources import open_source
from pymc_scalable_gp.core.rows.statistics import RowStatistics
from pymc_scalable_gp.utils.graphs import fixed_shared


@dataclass(frozen=True, eq=False)
class StatisticsRows(Likelihood):
    """Density and posterior of the coefficients from statistics; `data` has the ends of X alone."""

    data: MarginalData
    summary: RowSummary
    beta: TensorVariable

    has_rows = False

    @property
    def path(self):
        """As the summary's."""
        return self.summary.path

    @property
    def _weights(self):
        return self.data.feature_map.coefficient_prior(self.data.weights)

    def observe(self, name, **kwargs):
        """A :class:`StatisticsNormal`."""
        return StatisticsNormal(
            name, self.beta, self._weights, self.data.sigma,
            summary=self.summary, observed=self.summary.target, **kwargs,
        )  # fmt: skip

    def coefficients(self):
        """From the summary."""
        return self.summary.coefficients(self._weights, self.data.sigma**2, self.beta)

    def given(self, X, y, sigma):
        """The same features and hyperparameters with rows in place of the statistics."""
        return FullRows(self.data.with_rows(X, y, sigma))


def _basis(gp) -> tuple[Basis, MeanDesign]:
    """What a GP's rows are summarised in."""
    gp.check_summarizable()
    if not gp.is_built:
        raise ValueError(
            "build(X) the GP first, on a sample of rows that spans the range of all (the same sample, "
            "wherever these statistics are used)"
        )
    feature_map = gp.feature_map.unrotated
    design = mean_design(gp.mean_func, feature_map.probes().shape[1])
    return Basis.of(feature_map, design), design


def summarize_source(gp, source, y, columns, checkpoint, progressbar) -> RowStatistics:
    """:meth:`FeatureMarginal.summarize`."""
    if is_dask(source):
        if checkpoint is not None:
            raise TypeError("checkpoint= is not for dask, which repeats lost tasks itself")
        return collect_dask(_basis(gp)[0], source, y, columns, progressbar)
    opened = open_source(source, y, columns)
    X = source[0] if isinstance(source, tuple) else source
    if not gp.is_built and isinstance(X, np.ndarray):
        gp.build(X)
    return collect(_basis(gp)[0], opened, progressbar, checkpoint)


def _basis_of(gp, statistics) -> tuple[Basis, MeanDesign]:
    """As `_basis`, if it is the statistics' own."""
    if not isinstance(statistics, RowStatistics):
        raise TypeError(
            f"statistics must be what gp.summarize(...) returns, got {type(statistics).__name__}"
        )
    basis, design = _basis(gp)
    difference = basis.mark.difference(statistics.mark)
    if difference:
        raise ValueError(
            f"these statistics were made in another basis: {difference}. Build the GP as it was then, "
            "or summarise the rows again"
        )
    return basis, design


def rotation_of(gp, statistics) -> Singular:
    """What makes a GP's basis orthogonal on the rows that the statistics have seen."""
    basis, _ = _basis_of(gp, statistics)
    return Singular.of(statistics.triangle[:, : basis.mark.columns])[0]


def likelihood_of(gp, statistics, sigma, weights=None) -> StatisticsRows:
    """Likelihood of the rows that the statistics have seen.

    Raises
    ------
    TypeError, ValueError
        For anything but statistics in this GP's basis, a basis rotated on other rows, or one sigma a row.
    """
    if sigma.ndim:
        raise ValueError("statistics of rows need a scalar sigma: the rows' own are not in them")
    basis, design = _basis_of(gp, statistics)
    known = statistics.triangle, basis.mark.columns, statistics.size
    rotation = gp.feature_map.rotation
    if rotation is None:
        summary = RowSummary.of(*known)
    else:
        summary = RotatedSummary.of_rotated(*known, rotation)
    ends = check_inputs(np.stack([statistics.low, statistics.high]))
    target = Data(fixed_shared(summary.target), summary.target, False)
    feature_map = gp.feature_map.covering(statistics.low, statistics.high)
    data = MarginalData(feature_map, gp.mean_func, ends, target, sigma, "DTC", weights)
    beta = pt.zeros(0) if design.beta is None else design.beta
    return StatisticsRows(data, summary, beta)
