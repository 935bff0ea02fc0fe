"""Leading eigenfunctions of product kernels on a Cartesian grid, in a fixed basis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.features.feature_map import FeatureMap, side_by_side
from pymc_scalable_gp.core.features.reach import InputRange
from pymc_scalable_gp.cov.products import ProductTerm
from pymc_scalable_gp.ops.khatri_rao import ColumnProducts, khatri_rao_features
from pymc_scalable_gp.ops.stacked_cholesky import inverse_cholesky
from pymc_scalable_gp.ops.stacked_product import stacked_product
from pymc_scalable_gp.utils.checks import check_kernel_values
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import depends_only_on, fixed_shared
from pymc_scalable_gp.utils.jitter import GRAM_JITTER

# Eigenvalues of a 1-D grid matrix, and mean squares, below this share of the largest are rounding errors.
EIGENVALUE_CUTOFF = 1e-10
# Part of a column's mass that is divided equally among its nodes. Measured on seven UCI sets at rank 1000:
# 0 to 0.5 differ by 2% in RMSE, and 0.25 misses 1.1 to 4 times less prior variance than equal masses.
EVEN_MASS = 0.25
# Rows of X on which eigenfunctions are compared.
PROBE_ROWS = 2048
# Hadamard powers tried for directions whose eigenvalues are rounding errors at the build's hyperparameters.
POWERS = 6


@dataclass(frozen=True)
class TermGrid:
    """Fixed grid of one product term: nodes (d, m), basis ``V_i^1/2 Q_i`` (d, m, q), table (r, d).

    The basis has the leading q columns, as many as the table refers to; places of nodes that are not used
    have zeros there.
    """

    term: ProductTerm
    nodes: np.ndarray
    basis: np.ndarray
    selection: np.ndarray

    @property
    def rank(self) -> int:
        """Number of features r."""
        return len(self.selection)

    @cached_property
    def places(self) -> np.ndarray:
        """Table (r, d) of places among the basis functions of all columns, d q of them."""
        d, _, q = self.basis.shape
        return self.selection + q * np.arange(d)

    @cached_property
    def products(self) -> ColumnProducts:
        """The basis functions that each feature multiplies."""
        return ColumnProducts.of(self.places)

    @cached_property
    def _tensors(self):
        """Nodes and basis, for graphs."""
        return fixed_shared(self.nodes), fixed_shared(self.basis)

    def inner(self):
        """``(V_i^1/2 Q_i)' k_i(U_i, U_i) V_i^1/2 Q_i``, (d, q, q)."""
        nodes, basis = self._tensors
        gram = self.term.gram(nodes, nodes)
        return stacked_product(stacked_product(basis, gram, transpose_a=True), basis)

    def factors(self, X):
        """``psi_{i, a}(x_i)``, (d, q, n): columns of ``k_i(x_i, U_i) V_i^1/2 Q_i L_i^-T``.

        ``L_i L_i'`` is :meth:`inner` with a jitter. At the hyperparameters where ``Q_i`` diagonalises it,
        these are the eigenfunctions; elsewhere they are a smooth function of the hyperparameters, which
        eigenvectors are not: those of equal eigenvalues rotate, those of crossing ones swap.
        """
        nodes, basis = self._tensors
        projection = stacked_product(basis, inverse_cholesky(self.inner()), transpose_b=True)
        # The scale enters here, once, and not by a pass over n r entries.
        projection = pt.set_subtensor(projection[0], projection[0] * pt.sqrt(self.term.scale))
        cross = self.term.gram(nodes, X[:, self.term.dims].T)
        return stacked_product(projection, cross, transpose_a=True)

    def features(self, X):
        """``phi_j(x) = sqrt(scale) prod_i psi_{i, table[j, i]}(x_i)``, (n, r)."""
        if not self.term.dims:  # a constant kernel
            return pt.sqrt(self.term.scale) * pt.ones_like(X[:, :1])
        return self.combined(self.factors(X))

    def combined(self, factors):
        """Features (n, r) from one-dimensional functions (d, q, n), of the columns in turn."""
        d, _, q = self.basis.shape
        return khatri_rao_features(factors.reshape((d * q, factors.shape[2])).T, self.products)


def frozen_basis(gram: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Basis ``V^1/2 Q`` (m, m) of one column: eigenvectors of ``V^1/2 K V^1/2``, leading ones first.

    Eigenvectors whose eigenvalues are rounding errors would be noise, yet they matter at shorter
    lengthscales. In the space that is left they are those of a Hadamard power of K instead, which is
    positive semidefinite as K is (Schur) and has a shorter lengthscale.
    """
    root = np.sqrt(masses)
    power = gram / max(np.abs(gram).max(), np.finfo(float).tiny)
    columns, rest = [], np.eye(masses.size)
    for attempt in range(POWERS + 1):
        values, vectors = np.linalg.eigh(rest.T @ (power * root[:, None] * root) @ rest)
        values, vectors = values[::-1], vectors[:, ::-1]
        keep = values > EIGENVALUE_CUTOFF * (masses @ np.diag(power))
        if attempt == POWERS:
            keep[:] = True
        columns.append(rest @ vectors[:, keep])
        rest = rest @ vectors[:, ~keep]
        if rest.shape[1] == 0:
            break
        power = power**4
    return root[:, None] * np.hstack(columns)


def column_factors(gram: np.ndarray, cross: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """`TermGrid.factors` of one column (m, n), in numbers: ``L^-1 basis' k(U, x)``."""
    inner = basis.T @ gram @ basis
    jitter = GRAM_JITTER * (np.trace(inner) or 1.0) * np.eye(len(inner))
    try:
        lower = np.linalg.cholesky(inner + jitter)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the kernel matrix of a column's nodes is not positive semidefinite at the "
            "hyperparameters of the build: give build(X, point=...) other ones"
        ) from error
    return np.linalg.solve(lower, basis.T @ cross)


def select(factors: np.ndarray, used: np.ndarray, rank: int, fixed: bool) -> np.ndarray:
    """Table (rank, d) of the products with the largest mean square on the data, column by column.

    `factors` (d, m, n) are one-dimensional functions at n rows and the build's hyperparameters, `used`
    (d, m) the places that have one. Functions that are rounding errors are left out where the
    hyperparameters are `fixed`; otherwise they come last, in their order, since they matter at other
    lengthscales. Eigenvalues are close to these mean squares, since the nodes' masses follow the data, but
    depend on the data through the nodes alone.
    """
    scores = np.mean(np.square(factors), axis=2)
    alive = (scores > EIGENVALUE_CUTOFF * scores.max(axis=1, keepdims=True)) & used
    depth = np.cumsum(~alive, axis=1)
    least = np.min(scores, axis=1, where=alive, initial=np.inf, keepdims=True)
    logs = np.log(np.where(alive, scores, least)) - 5.0 * depth * ~alive
    logs = np.where(alive if fixed else used, logs, -np.inf)
    order = np.argsort(-logs, axis=1, kind="stable")
    places = top_products(np.take_along_axis(logs, order, axis=1), rank)
    idx = np.take_along_axis(order.T, places, axis=0)
    return idx[np.isfinite(np.take_along_axis(logs.T, idx, axis=0)).all(axis=1)]


def node_masses(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Weights of a column's nodes, in sum 1: their share of the data, mixed with an equal share.

    Row x_i counts for the two nodes around it, in proportion to its nearness. The equal part keeps
    nodes without data in the basis, for predictions there.
    """
    if nodes.size == 1:
        return np.ones(1)
    left = np.clip(np.searchsorted(nodes, x, side="right") - 1, 0, nodes.size - 2)
    part = np.clip((x - nodes[left]) / (nodes[left + 1] - nodes[left]), 0.0, 1.0)
    counts = np.bincount(left, 1.0 - part, nodes.size) + np.bincount(left + 1, part, nodes.size)
    return EVEN_MASS / nodes.size + (1.0 - EVEN_MASS) * counts / x.size


def top_products(logs: np.ndarray, rank: int) -> np.ndarray:
    """Multi-indices (min(rank, m^d), d) of the largest entries of a Kronecker product of vectors.

    In decreasing order; ties go to the lower place. `logs` (d, m) are the logarithms of the factors, each
    row in decreasing order, with ``-inf`` at unused places.

    After each of the d Kronecker steps only the `rank` largest survive (Evans & Nair 2018,
    algorithm 1), and only pairs (a, b) with (a + 1)(b + 1) <= rank are tried, since both lists are
    sorted: O(d r log m log r) time and O(r (d + log m)) memory, whatever m^d.
    """
    d, m = logs.shape
    idx, best = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
    for i in range(d):
        reach = np.clip(rank // np.arange(1, best.size + 1), 1, m)
        parent = np.repeat(np.arange(best.size), reach)
        place = np.arange(parent.size) - np.repeat(np.cumsum(reach) - reach, reach)
        value = best[parent] + logs[i, place]
        keep = np.argsort(-value, kind="stable")[:rank]
        idx = np.column_stack([idx[parent[keep]], place[keep]])
        best = value[keep]
    return idx


def share_rank(rank: int, cells: Sequence[int]) -> list[int]:
    """Split `rank` evenly among the terms, none above its number of cells."""
    left, out = rank, [0] * len(cells)
    order = sorted(range(len(cells)), key=cells.__getitem__)
    for position, term in enumerate(order):
        out[term] = min(cells[term], left // (len(cells) - position))
        left -= out[term]
    return out


def fit_term(
    term: ProductTerm, columns: list[np.ndarray], rank: int, probe: np.ndarray, point
) -> tuple[TermGrid, float, float]:
    """Grid of a term on nodes of its columns, its basis and the leading `rank` products chosen at `point`.

    With the prior variance at probe rows (p, d) that the whole grid holds, and that its features do.
    """
    if not columns:  # a constant kernel
        held = evaluate([term.scale], point)[0] * len(probe)
        grid = TermGrid(term, np.zeros((0, 1)), np.zeros((0, 1, 1)), np.zeros((1, 0), int))
        return grid, held, held
    nodes = stacked(columns)
    d, m = nodes.shape
    rows = probe[:, term.dims].T
    outputs = [term.gram(nodes, nodes), term.gram(nodes, rows), term.scale]
    grams, crosses, scale = evaluate(outputs, point)
    check_kernel_values(grams, crosses, scale)
    basis, used = np.zeros((d, m, m)), np.zeros((d, m), bool)
    factors = np.zeros((d, m, len(probe)))
    for i, column in enumerate(columns):
        own = slice(column.size)
        used[i, own] = True
        basis[i, own, own] = frozen_basis(grams[i, own, own], node_masses(rows[i], column))
        factors[i, own] = column_factors(grams[i, own, own], crosses[i, own], basis[i, own, own])
    selection = select(factors, used, rank, fixed=is_constant(term))
    # Cholesky factors are nested: functions behind the last one in use are not needed.
    basis = np.ascontiguousarray(basis[:, :, : 1 + selection.max(initial=0)])
    phi = math.prod(factors[i, selection[:, i]] for i in range(d))
    resolved = np.square(factors).sum(axis=1).prod(axis=0).sum()
    return TermGrid(term, nodes, basis, selection), scale * resolved, scale * np.square(phi).sum()


def stacked(columns: list[np.ndarray]) -> np.ndarray:
    """Columns of unequal length as a matrix (d, m), filled with the last entry of each."""
    m = max(column.size for column in columns)
    padded = [np.pad(column, (0, m - column.size), mode="edge") for column in columns]
    return np.array(padded).reshape(len(columns), m)


def is_constant(term) -> bool:
    """Whether a product term depends on no random variable and no shared value."""
    point = pt.zeros((len(term.dims), 1))
    return depends_only_on([term.scale, term.gram(point, point)] if term.dims else [term.scale])


class EigenfunctionMap(FeatureMap):
    """Leading eigenfunctions of the terms of a (sum of) product kernel(s), side by side."""

    def __init__(self, cov_func, grids: Sequence[TermGrid], columns: int):
        self.cov_func, self.grids, self.columns = cov_func, tuple(grids), columns

    @property
    def rank(self):
        """Number of eigenfunctions."""
        return sum(grid.rank for grid in self.grids)

    def features(self, X):
        """Eigenfunctions (n, r) at inputs (n, d)."""
        return side_by_side([grid.features(X) for grid in self.grids])

    @property
    def input_range(self):
        """Ends of the grid; infinite for columns that the kernel does not use.

        Where a Fourier series, which comes after the grids, has the data's ends, those of a grid are taken.
        """
        low, high = np.full(self.columns, -np.inf), np.full(self.columns, np.inf)
        labels, between = {}, set()
        for grid in reversed(self.grids):
            for nodes, factor in zip(grid.nodes, grid.term.factors, strict=True):
                low[factor.dim], high[factor.dim] = nodes.min(), nodes.max()
                if factor.categorical:
                    labels[factor.dim] = np.unique(nodes)
                else:
                    between.add(factor.dim)
        return InputRange(low, high, labels={dim: labels[dim] for dim in labels.keys() - between})

    def outside(self, X):
        """How far X lies beyond the grid."""
        text = self.input_range.outside(X, "the grid")
        return text and f"{text} (a wider grid covers it)"
