"""Features of the cells of a grid that do not depend on the targets: leading eigenvectors of its axes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.core.features.eigenfunctions import (
    PROBE_ROWS,
    EigenfunctionMap,
    TermGrid,
    fit_term,
    share_rank,
    stacked,
)
from pymc_scalable_gp.core.features.feature_map import SumMap, side_by_side
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.exact import ExactRows
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.methods.kmcg.kronecker import LONG_AXIS, NoFeatures
from pymc_scalable_gp.methods.kmcg.likelihood import DENSE_CELLS
from pymc_scalable_gp.utils.blocks import some_rows

# Products of eigenvectors, where no number is given.
DEFAULT_PRODUCTS = 500


class CellMap(EigenfunctionMap):
    r"""Products of eigenvectors of the axes' kernel matrices, on all cells and between them.

    ``phi_j(x) = sqrt(s) prod_i [k_i(x_i, U_i) B_i L_i^-T]_{I_ji}``, ``L_i L_i' = B_i' k_i(U_i, U_i) B_i``:
    U_i are an axis' coordinates (at most 1000, evenly spaced), B_i the eigenvectors of its kernel matrix,
    weighted by how many cells are observed at each, at the point where the map was made. There features are
    ``sqrt(lambda) u`` of the largest eigenvalues; elsewhere B_i stays and L_i follows the kernel, so that
    nothing jumps where eigenvalues cross. With all products the kernel at the cells is exact.
    """

    def __init__(self, cov_func, grids: Sequence[TermGrid], cells: Data):
        super().__init__(cov_func, grids, len(cells.grid.axes))
        self.cells = cells

    @classmethod
    def of(cls, cov_func, cells: Data, rank: int, point=None) -> "CellMap":
        """At most `rank` products, chosen at a point of the model."""
        terms, grid = product_terms(cov_func, len(cells.grid.axes)), cells.grid
        columns = [[_evenly(grid.axes[dim], LONG_AXIS) for dim in term.dims] for term in terms]
        ranks = share_rank(rank, [int(np.prod([len(u) for u in each])) for each in columns])
        probe = some_rows(cells.value, PROBE_ROWS)
        parts = zip(terms, columns, ranks, strict=True)
        return cls(cov_func, [fit_term(*part, probe, point)[0] for part in parts], cells)

    def features(self, X):
        """Eigenfunctions (n, r) at inputs (n, d): from those of each axis where X are the cells."""
        if X is not self.cells.tensor:
            return super().features(X)
        return side_by_side([self._at_cells(grid) for grid in self.grids])

    def _at_cells(self, term_grid):
        dims, grid = term_grid.term.dims, self.cells.grid
        if not dims:
            return term_grid.features(self.cells.tensor)
        along = stacked([grid.axes[dim] for dim in dims])
        coordinates = np.zeros((along.shape[1], len(grid.axes)))
        coordinates[:, dims] = along.T
        factors = term_grid.factors(pt.constant(coordinates))
        places = np.arange(grid.size) if grid.places is None else grid.places
        at = np.unravel_index(places, grid.shape)
        return term_grid.combined(pt.stack([factors[i][:, at[dim]] for i, dim in enumerate(dims)]))


def _evenly(axis: np.ndarray, count: int) -> np.ndarray:
    """At most `count` nodes, evenly spaced through an axis."""
    n = len(axis)
    return axis[np.unique(np.linspace(0, n - 1, min(n, count)).astype(int))]


def likelihood_of_cells(data: MarginalData, gp, plain: bool) -> Likelihood:
    """That of pseudo-targets under a GP: exact for few cells if `plain`, else by its parts' features."""
    if plain and data.X.grid.n <= DENSE_CELLS:
        return ExactRows(replace(data, feature_map=NoFeatures(gp.cov_func)), gp.cov_func)
    maps = [CellMap.of(p.cov_func, data.X, p.n_iter or DEFAULT_PRODUCTS) for p in gp.parts]
    return FullRows(replace(data, feature_map=maps[0] if len(maps) == 1 else SumMap(maps)))
