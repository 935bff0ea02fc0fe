"""Roots of SKIP's 1-D kernels: interpolated from even grids, or exact on a column's own values."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.features.reach import in_words
from pymc_scalable_gp.cov.products import Factor, ProductTerm
from pymc_scalable_gp.linops.structured import Dense, Toeplitz
from pymc_scalable_gp.ops.cubic_interpolation import cubic_interpolation, interpolate
from pymc_scalable_gp.ops.stacked_cholesky import cholesky, inverse_cholesky
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.stacked_solve import lower_solve
from pymc_scalable_gp.ops.whitened_columns import whitened_columns
from pymc_scalable_gp.utils.checks import check_kernel_values
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import depends_only_on, fixed_shared
from pymc_scalable_gp.utils.jitter import GRAM_JITTER

# The grid extends beyond the data by this share of their range on either side.
MARGIN = 0.1


class GridLeaves:
    """Roots ``W_i U_i`` of the factors of a term, interpolated from even grids: O(n r) per column.

    `anchor` holds the smallest training input of each column, and all else is relative to it: a large
    offset of the inputs costs neither nodes nor positions any digits.
    """

    def __init__(self, term: ProductTerm, columns, support, size, rank, point):
        self.term, self.size, self._directions = term, size, []
        self.anchor = columns.min(axis=0)
        width = columns.max(axis=0) - self.anchor
        margin = MARGIN * np.where(width > 0.0, width, 1.0)
        self.low, self.high = -margin, width + margin
        # Two nodes more on either side, which interpolation needs.
        self.step = (self.high - self.low) / (size - 5)
        self.origin = self.low - 2.0 * self.step
        # The same as tensors.
        self._anchor, self._low, self._high, self._origin, self._step = map(
            fixed_shared, (self.anchor, self.low, self.high, self.origin, self.step)
        )
        self.stationary = np.array([factor.stationary for factor in term.factors], dtype=bool)
        self.tables = self._tables(support, size, rank, point)

    def _tables(self, support, size, rank, point):
        """Tables ``U_i = T_i G_i L_i^{-T}`` (m, r_i): the factor's root at x is ``w(x)' U_i``."""
        start = np.where(self.stationary, 0.0, self.anchor + self.origin)
        nodes = fixed_shared(start[:, None] + self.step[:, None] * np.arange(size))
        first = self.term.gram(nodes[:, :1], nodes)[:, 0]
        full = self.term.gram(nodes, nodes)
        numeric = evaluate([full], point)[0]
        check_kernel_values(numeric)
        s = (support - self.anchor - self.origin) / self.step
        tables = []
        for i, K in enumerate(numeric):
            W = interpolate(s[:, i], np.eye(len(K)))
            G = leading_directions(K, W, rank, fill=self.stationary[i])
            T = Toeplitz(first[i]) if self.stationary[i] else Dense(full[i])
            G = fixed_shared(G)
            TG = pt.specify_shape(T.matmat(G), G.type.shape)
            tables.append(whitened_columns(TG, G, GRAM_JITTER))
            self._directions.append((G, TG))
        return tables

    def projected_roots(self, columns) -> list:
        """Roots ``k_i(x, nodes) G_i L_i^{-T}`` (n, r_i): best predictions from the nodes.

        Unlike interpolated ones, they never exceed the kernel and do not end with the grid; O(n m r) per
        column.
        """
        start = np.where(self.stationary, self.origin, self.anchor + self.origin)
        nodes = fixed_shared(start[:, None] + self.step[:, None] * np.arange(self.size))
        columns = columns - np.where(self.stationary, self.anchor, 0.0)
        cross = self.term.gram(columns.T, nodes)
        found = []
        for i, (G, TG) in enumerate(self._directions):
            inverse = inverse_cholesky(product(G, TG, transpose_a=True)[None], GRAM_JITTER)[0]
            root = product(cross[i], product(G, inverse, transpose_b=True))
            found.append(pt.specify_shape(root, (None, G.type.shape[1])))
        return found

    def roots(self, columns, inside) -> list:
        """Roots (n, r_i), fading beyond the grids unless all points are `inside`."""
        near = pt.clip(columns - self._anchor, self._low, self._high)
        s = (near - self._origin) / self._step  # positions (n, d) in units of the grids
        found = [cubic_interpolation(s[:, i], table) for i, table in enumerate(self.tables)]
        if inside:
            return found
        fade = self.fade(columns)
        return [root * fade[i][:, None] for i, root in enumerate(found)]

    def fade(self, columns):
        """``k_i(x_i, x_i') / k_i(x_i', x_i')`` (d, n), x' the nearest point of the grid."""
        columns = columns - self._anchor
        beyond = columns - pt.clip(columns, self._low, self._high)
        origin = np.zeros((len(self.low), 1))
        kept = self.stationary[:, None]
        share = self.term.gram(beyond.T, origin)[:, :, 0]
        alone = self.term.gram(origin, origin)[:, :, 0]
        return pt.switch(kept, share / pt.switch(kept, alone, 1.0), 1.0)

    def outside(self, columns) -> dict[int, str]:
        """How far columns reach beyond the grids, by column of X."""
        columns = columns - self.anchor
        beyond = np.maximum(self.low - columns.min(axis=0), columns.max(axis=0) - self.high)
        return {
            dim: f"column {dim} reaches {far:.3g} beyond the grid"
            for dim, far in zip(self.term.dims, beyond, strict=True)
            if far > 0.0
        }


class CategoryLeaf:
    """Root of a kernel that compares categories: rows of a table, selected exactly.

    With categories v and their matrix K the table is ``K G L^{-T}``, ``L L' = G' K G``: with G = I where
    the rank admits it, and otherwise K's leading directions at the training rows. Categories at
    which K is 0, whatever the parameters, have no column.
    """

    def __init__(self, factor: Factor, values, support, rank, point):
        self.factor, self.values, self._values = factor, values, fixed_shared(values)
        K = factor.plain_gram(self._values, self._values).astype("float64")
        G = np.eye(len(values))
        if len(values) > rank:
            selection = G[np.searchsorted(values, support)]
            numeric = evaluate([K], point)[0]
            check_kernel_values(numeric)
            G = leading_directions(numeric, selection, rank, fill=False)
        elif depends_only_on([K]):
            alive = np.flatnonzero(np.diag(evaluate([K])[0]) > 0.0)
            G = G[:, alive if alive.size else [0]]
        G = fixed_shared(G)
        KG = pt.specify_shape(K @ G, G.type.shape)
        self.tables = [whitened_columns(KG, G, GRAM_JITTER)]

    def roots(self, column):
        """Root (n, r); NaN at a category that the training inputs did not have."""
        values = self._values
        place = pt.clip(pt.searchsorted(values, column), 0, len(self.values) - 1)
        known = pt.eq(values[place], column)
        return pt.switch(known[:, None], self.tables[0][place], np.nan)

    def outside(self, column):
        """Raise ValueError for a value that was not in the training inputs; nothing else lies outside."""
        new = np.setdiff1d(column, self.values)
        if len(new):
            raise ValueError(
                f"column {self.factor.dim} holds {in_words(new)}, which no training input has: its kernel "
                "compares categories (groups, labels), and SKIP has a root for those of the build alone. "
                "Leave those rows out; or build the GP on inputs with every category, "
                "gp.build(np.concatenate([X, Xnew])), before the likelihood; or take another class, as "
                "sgp.VecchiaMarginal. A kernel of your own that is continuous says so by categorical = "
                "False in its class"
            )
        return {}


class ValueLeaf:
    """Root ``L^-1 k(v, x)``, ``L L' = k(v, v)``, of a column of few values v: predictions from these."""

    def __init__(self, factor: Factor, values):
        self.factor, self.values, self._values = factor, values, fixed_shared(values)
        count, nodes = len(values), self._values
        K = pt.specify_shape(factor.plain_gram(nodes, nodes).astype("float64"), (count, count))
        jitter = GRAM_JITTER * pt.trace(K)
        self.tables = [cholesky(K + jitter * pt.eye(count))]

    def roots(self, column):
        """Root (n, number of values)."""
        K = self.factor.plain_gram(self._values, column).astype("float64")
        root = lower_solve(self.tables[0], K).T
        return pt.specify_shape(root, (None, len(self.values)))

    def outside(self, column):
        """No warnings: the kernel is evaluated at the new inputs themselves."""
        return {}


def few_values(factor: Factor, column, grid_size, rank) -> tuple[type | None, np.ndarray]:
    """The exact leaf for a column of training inputs, if there is one, and its distinct values.

    A kernel that compares categories always gets its table; so does one that is not known to be
    continuous, on whole numbers. A continuous one gets its values where they are no more than the
    rank: its root is then no wider than an interpolated one.
    """
    values = np.unique(column)
    categorical = factor.categorical
    if categorical is None:
        categorical = len(values) <= grid_size and np.array_equal(values, np.round(values))
    if categorical:
        return CategoryLeaf, values
    return (ValueLeaf if len(values) <= rank else None), values


def leading_directions(K, W, rank, fill):
    """``G = W' Omega`` (m, r), Omega leading eigenvectors of ``W K W'``; `fill`: with cosines up to r."""
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    inner = W.T @ W
    values, vectors = np.linalg.eigh(root.T @ inner @ root)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    keep = values > 1e-12 * values[0]
    omega = root @ vectors[:, keep] / np.sqrt(values[keep])  # W omega is orthonormal
    if fill and omega.shape[1] < rank:  # a shorter lengthscale will need them
        grid = (np.arange(len(K)) + 0.5) / len(K)
        cosines = np.cos(np.pi * np.arange(rank) * grid[:, None])
        basis, triangle = np.linalg.qr(np.column_stack([inner @ omega, inner @ cosines]))
        fresh = np.abs(np.diag(triangle)) > 1e-8 * np.abs(triangle).max()
        return basis[:, fresh][:, :rank]
    return inner @ omega
