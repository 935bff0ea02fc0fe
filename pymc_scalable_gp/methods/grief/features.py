"""GP-GRIEF's feature map."""

import warnings

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_scalable_gp.core.features import FeatureMap
from pymc_scalable_gp.core.singular import Singular, compile_features, singular_factor
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.cov.queries import warn_unused_columns
from pymc_scalable_gp.methods.grief.eigenfunctions import TermGrid
from pymc_scalable_gp.methods.grief.grid import (
    check_grid,
    count_cells,
    grid_nodes,
    node_masses,
    share_rank,
)
from pymc_scalable_gp.utils.evaluate import evaluate
from pymc_scalable_gp.utils.graphs import is_random

# New inputs this share of the grid's width beyond it are still covered; further out we warn.
OUTSIDE_SHARE = 0.05


# Rows, evenly spaced through X, on which eigenfunctions are compared when they are selected.
PROBE_ROWS = 2048


class GriefMap(FeatureMap):
    """Leading eigenfunctions of a (sum of) product kernel(s) on a Cartesian grid."""

    def __init__(self, cov_func, grid=10, rank=500):
        self.cov_func = cov_func
        self.terms = product_terms(cov_func)
        self.grid = grid
        self.max_rank = rank
        self.grids: list[TermGrid] | None = None
        self.singular: Singular | None = None

    @property
    def is_fitted(self):
        """Whether the grid is fixed."""
        return self.grids is not None

    @property
    def rank(self):
        """Number of eigenfunctions."""
        if self.grids is None:
            raise AttributeError("the rank is known once the grid is: call build(X) first")
        if self.singular is not None:
            return len(self.singular.values)
        return sum(grid.rank for grid in self.grids)

    def fit_to(self, X, point=None):
        """Place the grid over X (n, d), share the rank, and select at the hyperparameters `point`."""
        sizes, self.columns = check_grid(self.grid, X.shape[1]), X.shape[1]
        warn_unused_columns(self.cov_func, X.shape[1])
        n = X.shape[0]
        probe = X[np.unique(np.linspace(0, n - 1, min(n, PROBE_ROWS)).astype(int))]
        grids = []
        for term in self.terms:
            if max(term.dims, default=0) >= X.shape[1]:
                raise ValueError(
                    f"the kernel uses column {max(term.dims)}, but X has {X.shape[1]} columns"
                )
            columns = [grid_nodes(X[:, dim], sizes[dim]) for dim in term.dims]
            m = max((c.size for c in columns), default=1)
            nodes, masses = np.zeros((len(columns), m)), np.zeros((len(columns), m))
            for i, (column, dim) in enumerate(zip(columns, term.dims, strict=True)):
                nodes[i] = np.pad(column, (0, m - column.size), mode="edge")
                masses[i, : column.size] = node_masses(probe[:, dim], column)
            grids.append(TermGrid(term, nodes, masses, 0))
        cells = [count_cells(grid.masses > 0) for grid in grids]
        if self.max_rank > sum(cells):
            warnings.warn(
                f"rank={self.max_rank} exceeds the {sum(cells)} cells of the grid: using rank "
                f"{sum(cells)}. For a closer approximation give a finer grid=",
                UserWarning,
                stacklevel=4,
            )
        shares = share_rank(self.max_rank, cells)
        for grid, rank in zip(grids, shares, strict=True):
            grid.rank = rank
            if grid.term.dims:
                factors = grid.factors(pt.constant(probe))
                grid.select(evaluate([factors], point)[0], fixed=not is_random(factors))
        self.grids = grids

    def features(self, X):
        """Feature matrix (n, r) at inputs (n, d)."""
        phi = self.plain_features(X)
        return phi if self.singular is None else phi @ self.singular.vectors

    def plain_features(self, X):
        """Eigenfunctions (n, r) before any rotation."""
        parts = [grid.features(X) for grid in self.grids]
        return parts[0] if len(parts) == 1 else pt.concatenate(parts, axis=1)

    @property
    def is_constant(self):
        """Whether the features are one fixed function, without parameters or shared values."""
        seen = ancestors([grid.eigen()[1] for grid in self.grids if grid.term.dims])
        scales = [grid.term.scale for grid in self.grids]
        shared = any(isinstance(v, SharedVariable) for v in (*seen, *ancestors(scales)))
        return not shared and not is_random(*seen, *scales)

    @property
    def box(self):
        """Ends of the grid; infinite for columns that the kernel does not use."""
        low, high = np.full(self.columns, -np.inf), np.full(self.columns, np.inf)
        for grid in self.grids:
            for nodes, dim in zip(grid.nodes, grid.term.dims, strict=True):
                low[dim], high[dim] = nodes.min(), nodes.max()
        return low, high

    def rotate(self, X, progressbar=True):
        """Turn the features into a basis that is orthogonal on the rows of X."""
        self.singular = None
        phi = compile_features(self.plain_features)
        self.singular = singular_factor(phi, X, self.rank, progressbar)

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return self.cov_func(X, diag=True).astype("float64")

    def outside(self, X):
        """Say how far X lies beyond the grid."""
        found = {}
        for grid in self.grids:
            for nodes, dim in zip(grid.nodes, grid.term.dims, strict=True):
                low, high = nodes.min(), nodes.max()
                beyond = max(low - X[:, dim].min(), X[:, dim].max() - high)
                if beyond > OUTSIDE_SHARE * (high - low) + 1e-9 * abs(high):
                    share = f", {beyond / (high - low):.0%} of its width" if high > low else ""
                    found[dim] = f"column {dim} reaches {beyond:.3g} beyond the grid{share}"
        return "; ".join(found.values()) + " (a wider grid covers it)" if found else None
