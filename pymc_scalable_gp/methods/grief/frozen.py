"""GRIEF's features fixed at reference hyperparameters, and mixed by a matrix of the present ones."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace, graph_replace

from pymc_scalable_gp.core.features.eigenfunctions import TermGrid
from pymc_scalable_gp.core.features.feature_map import side_by_side
from pymc_scalable_gp.methods.grief.features import GriefMap
from pymc_scalable_gp.methods.grief.waves import WaveTerm
from pymc_scalable_gp.ops.khatri_rao import khatri_rao_features
from pymc_scalable_gp.ops.stacked_cholesky import cholesky, inverse_cholesky, stacked_cholesky
from pymc_scalable_gp.ops.stacked_product import product, stacked_product
from pymc_scalable_gp.utils.compiled import check_reached, evaluate, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.jitter import GRAM_JITTER, MIXING_JITTER


@dataclass(frozen=True, eq=False)
class FrozenTerm:
    """One product term: its grid, and its scale and `turn` at the reference."""

    grid: TermGrid
    turn: np.ndarray  # L_i^-1 (d, q, q), with L_i L_i' = grid.inner()
    scale: float

    @classmethod
    def of(cls, grid: TermGrid, point, model) -> "FrozenTerm":
        """At the hyperparameters `point`."""
        turn = inverse_cholesky(grid.inner()) if grid.term.dims else pt.zeros((0, 1, 1))
        turn, scale = evaluate([turn, grid.term.scale], point, model)
        return cls(grid, turn, float(scale))

    def basis(self, X):
        """Features (n, r) of the present hyperparameters: at the reference, those that are mixed."""
        return self.grid.features(X)

    def mixing(self):
        r"""Cholesky factor of ``M = scale / scale_0 prod_i C_i[idx_i, idx_i]`` (r, r).

        ``C_i = L_i^-1 B_i' k_i(U_i, U_i) B_i L_i^-T``, ``B_i`` the basis of the column's nodes: the
        kernel in the coordinates where that of the reference is the identity. M is a principal submatrix
        of their Kronecker product, hence positive semidefinite. It is computed from a factor of each
        ``C_i``, so that it stays so where L_i is singular to rounding.
        """
        ratio = self.grid.term.scale / self.scale
        if not self.grid.term.dims:
            return pt.sqrt(ratio) * pt.ones((1, 1))
        if not len(self.grid.places):  # a group without rows has no functions
            return pt.zeros((0, 0))
        d, q, _ = self.turn.shape
        inner = self.grid.inner()
        turn = fixed_shared(self.turn)
        jitter = GRAM_JITTER * pt.einsum("ijj->i", inner)[:, None, None] * pt.eye(q)
        root = stacked_product(turn, stacked_cholesky(inner + jitter))
        kernels = stacked_product(root, root, transpose_b=True)
        places = self.grid.places
        rows = kernels.reshape((d * q, q))[places.ravel()].reshape((len(places), d * q))
        M = khatri_rao_features(rows, self.grid.products)
        return pt.sqrt(ratio) * cholesky(M + MIXING_JITTER * pt.eye(len(places)))


class FrozenMap(GriefMap):
    r"""``k~(x, z) = psi(x)' M psi(z)``: features psi of one reference, a matrix M of all hyperparameters.

    At the reference M is the identity and the features are those of `base`. Elsewhere the kernel is
    interpolated between the nodes, whereas `base` projects: its variance may exceed ``k(x, x)``. Terms
    that are Fourier series are the same as in `base` everywhere.
    """

    def __init__(self, base: GriefMap, point, model):
        super().__init__(base.cov_func, base.grids, base.missing, base.columns)
        self.base = base
        self.terms = tuple(
            grid if isinstance(grid, WaveTerm) else FrozenTerm.of(grid, point, model) for grid in base.grids
        )
        X = pt.matrix("X", dtype="float64")
        phi = side_by_side([term.basis(X) for term in self.terms])
        inputs = model_inputs([phi], model)
        check_reached([phi], inputs)
        values = point_values(inputs, point, model, fill=True, whole=False)
        self.reference = {v.name: value for v, value in zip(inputs, values, strict=True)}
        fixed = {v: v.type.filter_variable(value) for v, value in zip(inputs, values, strict=True)}
        self._X, self._basis = X, clone_replace(phi, fixed)

    def basis(self, X):
        X = pt.cast(X, "float64")
        return graph_replace([self._basis], {self._X: X}, strict=False)[0]  # X may be random

    def mixing(self):
        blocks = [term.mixing() for term in self.terms]
        found = blocks[0] if len(blocks) == 1 else pt.linalg.block_diag(*blocks)
        return pt.specify_shape(found, (self.rank, self.rank))

    def features(self, X):
        """``basis @ mixing``, stored column by column."""
        return product(self.mixing(), self.basis(X).T, transpose_a=True).T

    def for_residual(self):
        """The features of the present hyperparameters."""
        return self.base
