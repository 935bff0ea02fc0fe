"""Roots of product kernels by a tree of compressed Hadamard products (SKIP)."""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.cov.products import ProductTerm
from pymc_scalable_gp.linops.structured import Dense, Toeplitz
from pymc_scalable_gp.ops.cubic_interpolation import cubic_interpolation, interpolate
from pymc_scalable_gp.ops.hadamard import (
    apply_rows,
    project_rows,
    row_kronecker_apply,
    row_kronecker_project,
)
from pymc_scalable_gp.ops.segments import segment_times
from pymc_scalable_gp.ops.whitened_columns import whiten, whitened_columns
from pymc_scalable_gp.utils.evaluate import evaluate
from pymc_scalable_gp.utils.subspace import leading_eigenpairs

# Rows, evenly spaced through X, that carry the frozen directions of every merge.
SUPPORT_ROWS = 3000


# The grid goes on beyond the data by this share of their range, on either side.
MARGIN = 0.1


# Added to a Gram matrix before its Cholesky factor, as a share of its trace.
JITTER = 1e-10


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
        rows = (self.A[:, :, None] * self.B[:, None, :]).reshape((self.A.shape[0], self.rank))
        return pt.specify_shape(rows, (None, self.rank))

    def times(self, coef):
        """``(A # B) coef`` (n,), without the features."""
        if self.B is None:
            return self.A @ coef
        a, b = self.A.type.shape[1], self.B.type.shape[1]
        return ((self.A @ coef.reshape((a, b))) * self.B).sum(axis=1)


class OwnRoots(NamedTuple):
    """``k~ = (A A') * (S S')`` with S (n, s) zero but for ``scale_i`` in column `task_i`."""

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

    Each 1-D kernel is interpolated from an even grid, ``W_i T_i W_i'``, and every matrix K that must
    be compressed, a 1-D one or the Hadamard product of two, is replaced by

    .. math:: K\,\Omega\,(\Omega^\top K\,\Omega)^{-1}\,\Omega^\top K

    with directions Omega (rows, r) frozen at the build: K's leading eigenvectors then. Nothing else
    depends on the build, so that the roots are smooth in the parameters and follow them, and K is
    never exceeded. The two roots that are left, or one, are not multiplied.
    """

    def __init__(self, term: ProductTerm, X, grid_size, rank, single, point):
        self.term, self.rank = term, rank
        columns = X[:, term.dims]
        self._place(columns, grid_size)
        self.support = columns[_support(len(X))]
        self.tables = self._factors(point)
        self.single, self.cores = single, []
        roots = self._leaves(pt.constant(self.support))
        leaves = list(zip(roots, evaluate(roots, point), strict=True))
        self.order = np.argsort([-_eigenvectors(value) for _, value in leaves], kind="stable")
        merge_by_halves([leaves[i] for i in self.order], self._freeze, single)

    def _place(self, columns, size):
        """Even grids over the data and a margin, and the two nodes more that interpolation needs."""
        low, high = columns.min(axis=0), columns.max(axis=0)
        margin = MARGIN * np.where(high > low, high - low, 1.0)
        self.low, self.high = low - margin, high + margin
        self.step = (self.high - self.low) / (size - 5)
        self.origin = self.low - 2.0 * self.step
        self.nodes = self.origin[:, None] + self.step[:, None] * np.arange(size)
        factors = [factor for group in self.term.groups for factor in group]
        self.stationary = np.array([factor.stationary for factor in factors], dtype=bool)

    def _positions(self, columns):
        """Positions (n, d) in units of the grids, of points moved onto the grid."""
        return (pt.clip(columns, self.low, self.high) - self.origin) / self.step

    def _factors(self, point):
        """Tables ``U_i = T_i G_i L_i^{-T}`` (m, r_i): the factor's root at x is ``w(x)' U_i``."""
        first = self.term.gram(self.nodes[:, :1], self.nodes)[:, 0]
        full = None if self.stationary.all() else self.term.gram(self.nodes, self.nodes)
        numeric = evaluate([self.term.gram(self.nodes, self.nodes)], point)[0]
        s = (self.support - self.origin) / self.step
        tables = []
        for i, K in enumerate(numeric):
            W = interpolate(s[:, i], np.eye(len(K)))
            G = _grid_directions(K, W, self.rank, fill=self.stationary[i])
            T = Toeplitz(first[i]) if self.stationary[i] else Dense(full[i])
            TG = pt.specify_shape(T.matmat(pt.constant(G)), G.shape)
            tables.append(whitened_columns(TG, G, JITTER))
        return tables

    def _leaves(self, columns, inside=True):
        """Roots (n, r_i) of the 1-D kernels."""
        s = self._positions(columns)
        leaves = [cubic_interpolation(s[:, i], table) for i, table in enumerate(self.tables)]
        if inside:
            return leaves
        fade = self.fade(columns)
        return [leaf * fade[i][:, None] for i, leaf in enumerate(leaves)]

    def fade(self, columns):
        """``k_i(x_i, x_i') / k_i(x_i', x_i')`` (d, n), x' the nearest point of the grid."""
        beyond = columns - pt.clip(columns, self.low, self.high)
        origin = np.zeros((len(self.low), 1))
        kept = self.stationary[:, None]
        share = self.term.gram(beyond.T, origin)[:, :, 0]
        alone = self.term.gram(origin, origin)[:, :, 0]
        return pt.switch(kept, share / pt.switch(kept, alone, 1.0), 1.0)

    def _freeze(self, left, right):
        """Merge of two roots, each with its value now; no core (a, b, r) where a b <= r already."""
        (left, left_value), (right, right_value) = left, right
        (n, a), b = left_value.shape, right_value.shape[1]
        if a * b <= self.rank:
            core = None
            value = (left_value[:, :, None] * right_value[:, None, :]).reshape((n, a * b))
        else:
            omega, product = _leading(left_value, right_value, self.rank)
            shape = (a, b, omega.shape[1])
            M = row_kronecker_project(left, right, omega).reshape((a * b, shape[2]))
            core = whitened_columns(M, M, JITTER).reshape(shape)
            value = whiten(product, omega, JITTER)
        self.cores.append(core)
        return _merge(left, right, core), value

    def roots(self, X) -> Roots:
        """The one or two last roots at inputs (n, d of X)."""
        cores = iter(self.cores)
        leaves = self._leaves(X[:, self.term.dims], inside=False)
        roots = merge_by_halves(
            [leaves[i] for i in self.order],
            lambda left, right: _merge(left, right, next(cores)),
            self.single,
        )
        first = pt.sqrt(self.term.scale) * roots[0]
        return Roots(first, roots[1] if len(roots) == 2 else None)

    def intermediates(self):
        """Tables and cores: what rows have in common."""
        return self.tables + [core for core in self.cores if core is not None]


def merge_by_halves(roots, merge, single=False) -> list:
    """The two roots that are left, one if `single`, when each is merged out of halves.

    A half is every other root: in descending order, the halves share what there is evenly.
    """

    def fold(part):
        return part[0] if len(part) == 1 else merge(fold(part[::2]), fold(part[1::2]))

    if single or len(roots) == 1:
        return [fold(roots)]
    return [fold(roots[::2]), fold(roots[1::2])]


def _eigenvectors(A):
    """How many eigenvectors hold the matrix ``A A'``: ``(sum lambda)^2 / sum lambda^2``."""
    G = A.T @ A
    return np.trace(G) ** 2 / max((G**2).sum(), np.finfo(float).tiny)


def _support(n):
    return np.unique(np.linspace(0, n - 1, min(n, SUPPORT_ROWS)).astype(int))


def _merge(left, right, core):
    if core is None:
        return Roots(left, right).features()
    return row_kronecker_apply(left, right, core)


def _grid_directions(K, W, rank, fill):
    """``G = W' Omega`` (m, r) with Omega the leading eigenvectors of ``W K W'``.

    Where those are fewer, and `fill`, cosines follow: a shorter lengthscale will need them.
    """
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    inner = W.T @ W
    values, vectors = np.linalg.eigh(root.T @ inner @ root)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    keep = values > 1e-12 * values[0]
    omega = root @ vectors[:, keep] / np.sqrt(values[keep])  # W omega is orthonormal
    if fill and omega.shape[1] < rank:
        grid = (np.arange(len(K)) + 0.5) / len(K)
        cosines = np.cos(np.pi * np.arange(rank) * grid[:, None])
        basis, triangle = np.linalg.qr(np.column_stack([inner @ omega, inner @ cosines]))
        fresh = np.abs(np.diag(triangle)) > 1e-8 * np.abs(triangle).max()
        return basis[:, fresh][:, :rank]
    return inner @ omega


def _leading(A, B, rank):
    """Leading eigenvectors (rows, r) of ``K = (A A') * (B B')``; K times them."""
    n, (a, b) = len(A), (A.shape[1], B.shape[1])
    # Whichever is cheaper: at most SUPPORT_ROWS are multiplied here.
    dense = (A @ A.T) * (B @ B.T) if 2 * a * b > n else None

    def times(Q):
        return apply_rows(A, B, project_rows(A, B, Q)) if dense is None else dense @ Q

    _, omega, product = leading_eigenpairs(times, n, rank, most=a * b)
    return omega, product
