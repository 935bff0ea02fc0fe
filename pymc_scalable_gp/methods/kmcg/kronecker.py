"""The exact likelihood of a complete grid, by the eigendecompositions of a product kernel's factors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData
from pymc_scalable_gp.cov.products import one_factor, product_terms
from pymc_scalable_gp.methods.kmcg.kernel_operator import axis_kernel
from pymc_scalable_gp.methods.kmcg.kronecker_conditional import CellsGivenCells, rows_given_cells
from pymc_scalable_gp.methods.kmcg.kronecker_normal import KroneckerNormal
from pymc_scalable_gp.methods.kmcg.kronecker_predict import (
    KroneckerCells,
    KroneckerPoints,
    KroneckerPrecisions,
)
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid

# Axes up to this length are decomposed whatever the others are.
LONG_AXIS = 1000
# Longer ones, where decompositions take at most so many times the work of products with all factors.
DECOMPOSITIONS = 10


class NoFeatures(FeatureMap):
    """Nothing, besides the kernel: predictions take the kernel itself."""

    rank = 0

    def __init__(self, cov_func):
        self.cov_func = cov_func

    def features(self, X):
        """No columns."""
        return pt.zeros((X.shape[0], 0))


def has_eigenbasis(grid: RegularGrid, cov_func) -> bool:
    """Whether a grid without gaps has one product kernel, with axes that are not too long to decompose."""
    if grid.n < grid.size:
        return False
    lengths = np.array(grid.shape, dtype=float)
    products = DECOMPOSITIONS * grid.size * lengths.sum()
    if lengths.max() > LONG_AXIS and (lengths**3).sum() > products:
        return False
    return len(product_terms(cov_func)) == 1


@dataclass(frozen=True, eq=False)
class KroneckerRows(Likelihood):
    """All cells of a complete grid, exactly, O(sum_i m_i^3 + n sum_i m_i); `remade` takes other data."""

    data: MarginalData
    cov_func: Any
    remade: Callable[[MarginalData], Likelihood]

    path = "kronecker"
    is_exact = True
    holds_residual = True
    subsets_share_features = False  # some cells are no grid

    @property
    def grid(self) -> RegularGrid:
        """The cells."""
        return self.data.X.grid

    def factors(self, rows, columns=None, cov_func=None) -> tuple[TensorVariable, ...]:
        """Kernel matrices between coordinates along each axis; the first has the kernel's scale.

        `cov_func` may be that of a part of a sum: a sum is one product where all are of one column.
        """
        whole, d = cov_func is None or cov_func is self.cov_func, len(self.grid.axes)
        (term,) = product_terms(self.cov_func, d) if whole else [one_factor(cov_func, d)]
        columns = rows if columns is None else columns
        found = [axis_kernel(term, i, a, b) for i, (a, b) in enumerate(zip(rows, columns, strict=True))]
        return term.scale * found[0], *found[1:]

    @cached_property
    def kernels(self) -> tuple[TensorVariable, ...]:
        """Kernel matrices of the axes."""
        return self.factors(self.grid.axes)

    def normal(self, noise):
        """In the eigenbasis."""
        return KroneckerNormal(self.data.mean, self.kernels, noise)

    def given(self, X, y, sigma):
        """The likelihood of those data."""
        return self.remade(self.data.with_rows(X, y, sigma))

    @property
    def posterior(self) -> list[TensorVariable]:
        """What predictions follow from: the axes' kernel matrices, noise, residual of the grid's shape."""
        target, noise = self.handed(None, None)
        return [*self.kernels, noise, (target - self.data.mean).reshape(self.grid.shape)]

    def of_parts(self, parts, places):
        """The parts' kernel, without features."""
        first, *rest = (parts[place].cov_func for place in places)
        return NoFeatures(sum(rest, start=first)), self.coefficients()

    def precisions(self, model):
        """In the eigenbasis: the diagonal by products with the squares of the eigenvectors."""
        return KroneckerPrecisions(self, model)

    def predictor(self, feature_map, mean_func, coef, noise, model):
        """Rows in blocks."""
        return KroneckerPoints(self, feature_map.cov_func, mean_func, noise, model)

    def cell_predictor(self, data, feature_map, mean_func, coef, noise, model):
        """At the observed cells of another grid, axis by axis; of a part of a sum at their points."""
        if feature_map.cov_func is not self.cov_func:
            return self.predictor(feature_map, mean_func, coef, noise, model)
        return KroneckerCells(self, data, mean_func, noise, model)

    def conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs):
        """Draws axis by axis at the cells of a grid; dense at other rows, and of a part of a sum."""
        if data.grid is None or feature_map.cov_func is not self.cov_func:
            cov_func, X = feature_map.cov_func, data.tensor
            return rows_given_cells(self, name, cov_func, X, mean_func, variance, **kwargs)
        return CellsGivenCells.of(self, data, mean_func, variance).variable(name, **kwargs)
