"""What a GRIEF model is asked for, and its fit to training inputs."""

import math

import numpy as np

from pymc_scalable_gp.cov.kernels import kernel_diag
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.cov.queries import warn_unused_columns
from pymc_scalable_gp.methods.grief.eigenfunctions import (
    TermGrid,
    column_factors,
    frozen_basis,
    select,
)
from pymc_scalable_gp.methods.grief.features import GriefMap, Missing, is_constant
from pymc_scalable_gp.methods.grief.grid import (
    check_grid,
    grid_nodes,
    least_resolving,
    node_ladder,
    node_masses,
    share_rank,
)
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.warn import warn

# Rows, evenly spaced through X, on which eigenfunctions are compared when they are selected, and
# those on which sets of nodes are.
PROBE_ROWS = 2048
NODE_PROBE_ROWS = 200


class GriefSpec:
    """A product kernel (or a sum of them), the nodes, and the rank at most.

    Parameters
    ----------
    cov_func : pm.gp.cov.Covariance
    grid : None, int, or sequence of None, int or node array
        None: as many nodes as resolve the kernel, chosen by :meth:`fit`.
    rank : int

    Raises
    ------
    ValueError
        If the kernel is not a product over dimensions.
    """

    def __init__(self, cov_func, grid=None, rank=500):
        self.cov_func, self.grid, self.rank = cov_func, grid, rank
        self.terms = tuple(product_terms(cov_func))

    def fit(self, X: np.ndarray, point=None) -> GriefMap:
        """Features for training inputs X (n, d), selected at the hyperparameters `point`.

        Raises
        ------
        TypeError, ValueError
            For a grid that does not fit X, or a kernel that is not finite at `point`.
        """
        sizes = check_grid(self.grid, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        for term in self.terms:
            if max(term.dims, default=0) >= X.shape[1]:
                raise ValueError(
                    f"the kernel uses column {max(term.dims)}, but X has {X.shape[1]} columns"
                )
        columns = [_choose_nodes(term, X, sizes, point) for term in self.terms]
        cells = [math.prod(nodes.size for nodes in column) for column in columns]
        if self.rank > sum(cells) and all(size is not None for size in sizes):
            warn(
                f"rank={self.rank} exceeds the {sum(cells)} cells of the grid: using rank "
                f"{sum(cells)}. For a closer approximation give a finer grid="
            )
        ranks = share_rank(self.rank, cells)
        probe = evenly(X, PROBE_ROWS)
        prior = evaluate([kernel_diag(self.cov_func, probe)], point)[0].sum()
        parts = zip(self.terms, columns, ranks, strict=True)
        grids, resolved, held = zip(
            *(_fit_term(*part, probe, point) for part in parts), strict=True
        )
        missing = Missing(1.0 - sum(resolved) / prior, (sum(resolved) - sum(held)) / prior)
        return GriefMap(self.cov_func, grids, missing, X.shape[1])


def evenly(X, count):
    """At most `count` rows, evenly spaced through X."""
    n = X.shape[0]
    return X[np.unique(np.linspace(0, n - 1, min(n, count)).astype(int))]


def _stacked(columns):
    """Nodes of unequal number as a matrix (d, m), the last one repeated."""
    m = max((column.size for column in columns), default=1)
    padded = [np.pad(column, (0, m - column.size), mode="edge") for column in columns]
    return np.array(padded).reshape(len(columns), m)


def _choose_nodes(term, X, sizes, point):
    """Nodes of every column of a term: as given, or the fewest that resolve its kernel at `point`."""
    ladders = [
        node_ladder(X[:, dim], len(term.dims))
        if sizes[dim] is None
        else [grid_nodes(X[:, dim], sizes[dim])]
        for dim in term.dims
    ]
    if all(len(ladder) == 1 for ladder in ladders):
        return [ladder[0] for ladder in ladders]
    probe = evenly(X, NODE_PROBE_ROWS)
    points = [
        np.concatenate([probe[:, dim], *ladder])
        for dim, ladder in zip(term.dims, ladders, strict=True)
    ]
    stacked = _stacked(points)
    (grams,) = evaluate([term.gram(stacked, stacked)], point)
    chosen = []
    for gram, ladder, own in zip(grams, ladders, points, strict=True):
        sizes_ = [nodes.size for nodes in ladder]
        chosen.append(ladder[least_resolving(gram[: own.size, : own.size], sizes_)])
    return chosen


def _fit_term(term, columns, rank, probe, point):
    """Grid of one term, and the prior variance at the probe rows on the whole grid and in the features."""
    if not columns:  # a constant kernel
        held = evaluate([term.scale], point)[0] * len(probe)
        return (
            TermGrid(term, np.zeros((0, 1)), np.zeros((0, 1, 1)), np.zeros((1, 0), int)),
            held,
            held,
        )
    nodes = _stacked(columns)
    d, m = nodes.shape
    rows = probe[:, term.dims].T
    outputs = [term.gram(nodes, nodes), term.gram(nodes, rows), term.scale]
    grams, crosses, scale = evaluate(outputs, point)
    if not (np.isfinite(grams).all() and np.isfinite(crosses).all() and np.isfinite(scale)):
        raise ValueError(
            "the kernel is not finite at the hyperparameters of the build: give build(X, point=...) "
            "other ones"
        )
    basis, used = np.zeros((d, m, m)), np.zeros((d, m), bool)
    factors = np.zeros((d, m, len(probe)))
    for i, column in enumerate(columns):
        own = slice(column.size)
        used[i, own] = True
        basis[i, own, own] = frozen_basis(grams[i, own, own], node_masses(rows[i], column))
        factors[i, own] = column_factors(grams[i, own, own], crosses[i, own], basis[i, own, own])
    selection = select(factors, used, rank, fixed=is_constant(term))
    # Cholesky factors are nested: what lies behind the last function used is not needed.
    basis = np.ascontiguousarray(basis[:, :, : 1 + selection.max(initial=0)])
    phi = math.prod(factors[i, selection[:, i]] for i in range(d))
    resolved = np.square(factors).sum(axis=1).prod(axis=0).sum()
    return TermGrid(term, nodes, basis, selection), scale * resolved, scale * np.square(phi).sum()
