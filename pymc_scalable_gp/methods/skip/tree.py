"""Roots of product kernels by a tree of compressed Hadamard products (SKIP)."""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.cov.products import ProductTerm
from pymc_scalable_gp.methods.skip.leaves import CategoryLeaf, GridLeaves, ValueLeaf, few_values
from pymc_scalable_gp.ops.hadamard import (
    apply_rows,
    project_rows,
    row_kronecker_apply,
    row_kronecker_project,
)
from pymc_scalable_gp.ops.segments import segment_times
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.whitened_columns import whiten, whitened_columns
from pymc_scalable_gp.utils.blocks import some_rows
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.jitter import GRAM_JITTER
from pymc_scalable_gp.utils.subspace import leading_eigenpairs

# Rows of X that carry the frozen directions of every merge.
SUPPORT_ROWS = 3000


class Roots(NamedTuple):
    """``k~ = (A A') * (B B')``; B is None for a kernel with one factor."""

    A: pt.TensorVariable
    B: pt.TensorVariable | None

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.A.type.shape[1] * (1 if self.B is None else self.B.type.shape[1])

    def features(self):
        """``A # B`` (n, a b)."""
        if self.B is None:
            return self.A
        # Stored column by column, as the likelihood reads them.
        columns = self.A.T[:, None, :] * self.B.T[None, :, :]
        columns = columns.reshape((self.rank, self.A.shape[0]))
        return pt.specify_shape(columns.T, (None, self.rank))

    def times(self, coef):
        """``(A # B) coef`` (n,), without the features."""
        if self.B is None:
            return product(self.A, coef)
        a, b = self.A.type.shape[1], self.B.type.shape[1]
        return (product(self.A, coef.reshape((a, b))) * self.B).sum(axis=1)


class OwnRoots(NamedTuple):
    """``k~ = (A A') * (S S')`` with S (n, s) zero except ``scale_i`` in column `task_i`."""

    A: pt.TensorVariable
    scale: pt.TensorVariable
    task: pt.TensorVariable
    count: int

    @property
    def B(self):
        """S (n, s), formed."""
        return pt.eq(self.task[:, None], pt.arange(self.count)) * self.scale[:, None]

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.A.type.shape[1] * self.count

    def features(self):
        """``A # S`` (n, a s)."""
        return Roots(self.A, self.B).features()

    def times(self, coef):
        """``(A # S) coef`` (n,): O(n a), whatever the number of tasks."""
        coef = coef.reshape((self.A.type.shape[1], 1, self.count)).transpose((2, 1, 0))
        return self.scale * segment_times(coef, self.A, self.task)[:, 0]


class TermTree:
    r"""Roots of ``scale * prod_i k_i(x_i, z_i)``.

    Each 1-D kernel is interpolated from an even grid, or taken as it is where its column holds categories
    or few values (see `leaves`). Every matrix K that must be compressed, a 1-D one or the Hadamard product
    of two, is replaced by ``K W (W' K W)^-1 W' K``, with directions W (rows, r) frozen at the build, K's
    leading eigenvectors there. Nothing else depends on the build: the roots are smooth in the parameters,
    and K is never exceeded. The last two roots, or the only one, are not multiplied.
    """

    def __init__(self, term: ProductTerm, X, grid_size, rank, single, point):
        self.term, self.rank = term, rank
        columns = X[:, term.dims]
        support = some_rows(columns, SUPPORT_ROWS)
        self._choose(columns, support, grid_size, point)
        self.single, self.cores = single, []
        roots = self._roots(fixed_shared(support))
        leaves = list(zip(roots, evaluate(roots, point), strict=True))
        self.order = np.argsort([-_eigenvectors(value) for _, value in leaves], kind="stable")
        merge_by_halves([leaves[i] for i in self.order], self._freeze, single)

    def _choose(self, columns, support, grid_size, point):
        """A leaf for each column with categories or few values, and one for all columns on grids."""
        self.own, on_grid = {}, []
        for i, factor in enumerate(self.term.factors):
            kind, values = few_values(factor, columns[:, i], grid_size, self.rank)
            if kind is CategoryLeaf:
                self.own[i] = CategoryLeaf(factor, values, support[:, i], self.rank, point)
            elif kind is ValueLeaf:
                self.own[i] = ValueLeaf(factor, values)
            else:
                on_grid.append(i)
        self.on_grid, self.grid = on_grid, None
        if on_grid:
            part = self.term.restricted(on_grid)
            self.grid = GridLeaves(
                part, columns[:, on_grid], support[:, on_grid], grid_size, self.rank, point
            )

    def _roots(self, columns, inside=True, projected=False):
        """Roots (n, r_i) of the 1-D kernels."""
        found = {i: leaf.roots(columns[:, i]) for i, leaf in self.own.items()}
        if self.grid is not None:
            part = columns[:, self.on_grid]
            roots = self.grid.projected_roots(part) if projected else self.grid.roots(part, inside)
            found |= zip(self.on_grid, roots, strict=True)
        return [found[i] for i in range(len(found))]

    def outside(self, X) -> dict[int, str]:
        """How far X (n, d) reaches beyond the grids, by column; an error at new categories."""
        columns, found = X[:, self.term.dims], {}
        for i, leaf in self.own.items():
            found |= leaf.outside(columns[:, i])
        return found | (self.grid.outside(columns[:, self.on_grid]) if self.grid else {})

    def ends(self) -> dict[int, tuple[float, float]]:
        """Ends of grids and values, by column of X; categories have none."""
        found = {
            self.term.dims[i]: (leaf.values[0], leaf.values[-1])
            for i, leaf in self.own.items()
            if isinstance(leaf, ValueLeaf)
        }
        if self.grid is None:
            return found
        low, high = self.grid.anchor + self.grid.low, self.grid.anchor + self.grid.high
        return found | dict(zip(self.grid.term.dims, zip(low, high, strict=True), strict=True))

    def labels(self) -> dict[int, np.ndarray]:
        """Categories of the build, by column of X: others give NaN."""
        own = {self.term.dims[i]: leaf for i, leaf in self.own.items()}
        return {dim: leaf.values for dim, leaf in own.items() if isinstance(leaf, CategoryLeaf)}

    def _freeze(self, left, right):
        """Merge two roots, each with its present value; without a core (a, b, r) where a b <= r."""
        (left, left_value), (right, right_value) = left, right
        (n, a), b = left_value.shape, right_value.shape[1]
        if a * b <= self.rank:
            core = None
            value = (left_value[:, :, None] * right_value[:, None, :]).reshape((n, a * b))
        else:
            omega, product = _leading(left_value, right_value, self.rank)
            shape = (a, b, omega.shape[1])
            M = row_kronecker_project(left, right, fixed_shared(omega)).reshape((a * b, shape[2]))
            core = whitened_columns(M, M, GRAM_JITTER).reshape(shape)
            value = whiten(product, omega, GRAM_JITTER)
        self.cores.append(core)
        return _merge(left, right, core), value

    def roots(self, X, projected=False) -> Roots:
        """The last two roots, or the only one, at inputs X (n, d), with 1-D kernels `projected` if so."""
        cores = iter(self.cores)
        leaves = self._roots(X[:, self.term.dims], False, projected)
        roots = merge_by_halves(
            [leaves[i] for i in self.order],
            lambda left, right: _merge(left, right, next(cores)),
            self.single,
        )
        first = pt.sqrt(self.term.scale) * roots[0]
        return Roots(first, roots[1] if len(roots) == 2 else None)

    def intermediates(self):
        """Tables and cores, which all rows share."""
        leaves = [*self.own.values(), *([] if self.grid is None else [self.grid])]
        tables = [table for leaf in leaves for table in leaf.tables]
        return tables + [core for core in self.cores if core is not None]


def merge_by_halves(roots, merge, single=False) -> list:
    """Merge every other root, into two, or one if `single`: halves of descending roots are alike."""

    def fold(part):
        return part[0] if len(part) == 1 else merge(fold(part[::2]), fold(part[1::2]))

    if single or len(roots) == 1:
        return [fold(roots)]
    return [fold(roots[::2]), fold(roots[1::2])]


def _eigenvectors(A):
    """Effective number of eigenvectors of ``A A'``: ``(sum lambda)^2 / sum lambda^2``."""
    G = A.T @ A
    return np.trace(G) ** 2 / max((G**2).sum(), np.finfo(float).tiny)


def _merge(left, right, core):
    if core is None:
        return Roots(left, right).features()
    return row_kronecker_apply(left, right, core)


def _leading(A, B, rank):
    """Leading eigenvectors (rows, r) of ``K = (A A') * (B B')``; K times them."""
    n, (a, b) = len(A), (A.shape[1], B.shape[1])
    # Whichever is cheaper: at most SUPPORT_ROWS are multiplied here.
    dense = (A @ A.T) * (B @ B.T) if 2 * a * b > n else None

    def times(Q):
        return apply_rows(A, B, project_rows(A, B, Q)) if dense is None else dense @ Q

    _, omega, product = leading_eigenpairs(times, n, rank, most=a * b)
    return omega, product
