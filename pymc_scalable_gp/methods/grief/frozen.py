"""GRIEF's features fixed at reference hyperparameters, and mixed by a matrix that follows others."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace

from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.methods.grief.eigenfunctions import TermGrid
from pymc_scalable_gp.methods.grief.features import GriefMap
from pymc_scalable_gp.ops.inverse_cholesky import inverse_cholesky
from pymc_scalable_gp.ops.khatri_rao import ColumnProducts, khatri_rao_features
from pymc_scalable_gp.ops.stacked_cholesky import cholesky, stacked_cholesky
from pymc_scalable_gp.ops.stacked_product import product, stacked_product
from pymc_scalable_gp.utils.compiled import check_reached, evaluate, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.jitter import GRAM_JITTER, MIXING_JITTER


@dataclass(frozen=True, eq=False)
class FrozenTerm:
    """One product term: its grid, and what its columns were at the reference.

    `turn` (d, q, q) is ``L_i^-1`` there, with ``L_i L_i'`` the kernel between the columns of the basis.
    """

    grid: TermGrid
    turn: np.ndarray
    scale: float

    @classmethod
    def of(cls, grid: TermGrid, point, model) -> "FrozenTerm":
        """At the hyperparameters `point`."""
        if not grid.term.dims:
            return cls(
                grid, np.zeros((0, 1, 1)), float(evaluate([grid.term.scale], point, model)[0])
            )
        inner = inverse_cholesky(_inner(grid))
        turn, scale = evaluate([inner, grid.term.scale], point, model)
        return cls(grid, turn, float(scale))

    @cached_property
    def _products(self):
        """The columns that each feature multiplies, as data of graphs."""
        d, q, _ = self.turn.shape
        return ColumnProducts.of(self.grid.selection + q * np.arange(d))

    def mixing(self):
        r"""Cholesky factor of ``M = scale / scale_0 prod_i C_i[idx_i, idx_i]`` (r, r).

        ``C_i = L_i^-1 B_i' k_i(U_i, U_i) B_i L_i^-T``, ``B_i`` the basis of the column's nodes: the
        kernel of the coordinates in which the reference's is the identity. M is a principal submatrix
        of their Kronecker product, hence positive semidefinite; from a factor of each ``C_i`` it stays so
        where L_i is singular to rounding.
        """
        ratio = self.grid.term.scale / self.scale
        if not self.grid.term.dims:
            return pt.sqrt(ratio) * pt.ones((1, 1))
        d, q, _ = self.turn.shape
        inner = _inner(self.grid)
        turn = fixed_shared(self.turn)
        jitter = GRAM_JITTER * pt.einsum("ijj->i", inner)[:, None, None] * pt.eye(q)
        root = stacked_product(turn, stacked_cholesky(inner + jitter))
        kernels = stacked_product(root, root, transpose_b=True)
        places = self.grid.selection + q * np.arange(d)
        rows = kernels.reshape((d * q, q))[places.ravel()].reshape((len(places), d * q))
        M = khatri_rao_features(rows, self._products)
        return pt.sqrt(ratio) * cholesky(M + MIXING_JITTER * pt.eye(len(places)))


def _inner(grid: TermGrid):
    """``B_i' k_i(U_i, U_i) B_i`` (d, q, q)."""
    nodes, basis = fixed_shared(grid.nodes), fixed_shared(grid.basis)
    gram = grid.term.gram(nodes, nodes)
    return stacked_product(stacked_product(basis, gram, transpose_a=True), basis)


class FrozenMap(FeatureMap):
    r"""``k~(x, z) = psi(x)' M psi(z)``: features psi of one reference, a matrix M of all hyperparameters.

    At the reference M is the identity and this is GRIEF. Elsewhere the kernel is interpolated between
    the nodes, where GRIEF projects: its variance may exceed ``k(x, x)``.
    """

    def __init__(self, base: GriefMap, point, model):
        self.base = base
        self.terms = tuple(FrozenTerm.of(grid, point, model) for grid in base.grids)
        X = pt.matrix("X", dtype="float64")
        phi = base.features(X)
        inputs = model_inputs([phi], model)
        check_reached([phi], inputs)
        values = point_values(inputs, point, model, fill=True, whole=False)
        self.reference = {v.name: value for v, value in zip(inputs, values, strict=True)}
        fixed = {v: v.type.filter_variable(value) for v, value in zip(inputs, values, strict=True)}
        self._X, self._basis = X, clone_replace(phi, fixed)

    @property
    def rank(self):
        """Number of features."""
        return self.base.rank

    def basis(self, X):
        """The features at the reference (n, r)."""
        return clone_replace(self._basis, {self._X: X})

    def mixing(self):
        """Block diagonal of the terms' factors (r, r)."""
        blocks = [term.mixing() for term in self.terms]
        found = blocks[0] if len(blocks) == 1 else pt.linalg.block_diag(*blocks)
        return pt.specify_shape(found, (self.rank, self.rank))

    def features(self, X):
        """``basis @ mixing``, stored column by column."""
        return product(self.mixing(), self.basis(X).T, transpose_a=True).T

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return self.base.kernel_diag(X)

    def for_residual(self):
        """GRIEF's own features, which project."""
        return self.base

    @property
    def input_range(self):
        """Ends of the grid."""
        return self.base.input_range

    def outside(self, X):
        """Describe inputs beyond the grid, as the reference features do."""
        return self.base.outside(X)
