"""The features of a GRIEF model, fitted to training inputs."""

import math

import numpy as np

from pymc_scalable_gp.core.features.eigenfunctions import PROBE_ROWS, fit_term, share_rank, stacked
from pymc_scalable_gp.cov.kernels import kernel_diag
from pymc_scalable_gp.cov.queries import used_columns, warn_unused_columns
from pymc_scalable_gp.methods.grief.features import GriefMap, Missing
from pymc_scalable_gp.methods.grief.grid import check_grid, grid_nodes, least_resolving, node_ladder
from pymc_scalable_gp.methods.grief.waves import WaveTerm
from pymc_scalable_gp.utils.blocks import some_rows
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.warn import warn

# Rows of X on which sets of nodes are compared.
NODE_PROBE_ROWS = 200

# Labels of a column that get a node each: the cost of the features grows with the longest column of nodes.
MOST_LABELS = 2000


def fit_grief(cov_func, terms, grid, rank: int, X: np.ndarray, point=None) -> GriefMap:
    """Features for training inputs X (n, d), with nodes and eigenfunctions chosen at `point`.

    For the `terms` of a kernel, the user's `grid`, and at most `rank` features. Raises TypeError or
    ValueError for a grid that does not fit X, or a kernel that is not finite there.
    """
    sizes = check_grid(grid, X.shape[1])
    used_columns(cov_func, X.shape[1])
    warn_unused_columns(cov_func, X.shape[1])
    chosen = [
        term.fit(X, rank, point) if isinstance(term, WaveTerm) else _choose_nodes(term, X, sizes, point)
        for term in terms
    ]
    cells = [each.rank if isinstance(each, WaveTerm) else math.prod(map(len, each)) for each in chosen]
    by_grid = not any(isinstance(term, WaveTerm) for term in terms)
    if rank > sum(cells) and by_grid and all(size is not None for size in sizes):
        warn(
            f"rank={rank} exceeds the {sum(cells)} cells of the grid: using rank "
            f"{sum(cells)}. For a closer approximation give a finer grid="
        )
    probe = some_rows(X, PROBE_ROWS)
    prior = evaluate([kernel_diag(cov_func, probe)], point)[0].sum()
    fits = [
        each.within(most, probe, point)
        if isinstance(each, WaveTerm)
        else fit_term(term, each, most, probe, point)
        for term, each, most in zip(terms, chosen, share_rank(rank, cells), strict=True)
    ]
    grids, resolved, held = zip(*fits, strict=True)
    missing = Missing(1.0 - sum(resolved) / prior, (sum(resolved) - sum(held)) / prior)
    return GriefMap(cov_func, grids, missing, X.shape[1])


def _choose_nodes(term, X, sizes, point):
    """Nodes of every column of a term: as given, or the fewest that resolve its kernel at `point`."""
    ladders = [
        _ladder(factor, X[:, factor.dim], sizes[factor.dim], len(term.dims)) for factor in term.factors
    ]
    if all(len(ladder) == 1 for ladder in ladders):
        return [ladder[0] for ladder in ladders]
    probe = some_rows(X, NODE_PROBE_ROWS)
    points = [
        np.concatenate([probe[:, dim], *ladder]) for dim, ladder in zip(term.dims, ladders, strict=True)
    ]
    both = stacked(points)
    (grams,) = evaluate([term.gram(both, both)], point)
    return [
        ladder[least_resolving(gram[: own.size, : own.size], [nodes.size for nodes in ladder])]
        for gram, ladder, own in zip(grams, ladders, points, strict=True)
    ]


def _ladder(factor, x, size, d) -> list[np.ndarray]:
    """Sets of nodes of the column x of one of `d` factors, from few to many; of categories all of them."""
    if not factor.categorical or isinstance(size, np.ndarray):
        return node_ladder(x, d) if size is None else [grid_nodes(x, size)]
    labels = np.unique(x)  # whatever the size: nothing lies between two of them
    if labels.size > MOST_LABELS:
        raise ValueError(
            f"column {factor.dim} holds {labels.size} categories, which would need a node each: take "
            "sgp.VecchiaMarginal, or give the nodes of this column as an array in grid="
        )
    return [labels]
