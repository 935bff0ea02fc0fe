"""Eigenfunctions of one product kernel on a Cartesian grid."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.cov.products import ProductTerm
from pymc_scalable_gp.methods.grief.grid import top_products
from pymc_scalable_gp.ops.eigh_sorted import eigh_sorted
from pymc_scalable_gp.ops.khatri_rao import khatri_rao_features
from pymc_scalable_gp.ops.stacked_product import stacked_product

# Eigenvalues of a 1-D grid matrix below this share of the largest are rounding noise.
EIGENVALUE_CUTOFF = 1e-10


@dataclass
class TermGrid:
    """Frozen grid of one product term: nodes and masses (d, m), rank, multi-indices (rank, d).

    A mass is the weight ``V_i`` of a node in the eigenproblem; 0 marks an unused place.
    """

    term: ProductTerm
    nodes: np.ndarray
    masses: np.ndarray
    rank: int
    selection: np.ndarray | None = None

    def eigen(self):
        """``V_i^1/2 Q_i`` (d, m, m) and Lambda (d, m): ``V_i^1/2 k_i(U_i, U_i) V_i^1/2 = Q Lambda Q'``."""
        root = np.sqrt(self.masses)
        matrices = self.term.gram(self.nodes, self.nodes)
        values, vectors = eigh_sorted(matrices * root[:, :, None] * root[:, None, :])
        return vectors * root[:, :, None], values

    def factors(self, X):
        """``k_i(x_i, U_i) V_i^1/2 q_{i, a} / lambda_{i, a}^1/2`` for all i, a, (d, m, n); 0: dropped."""
        vectors, values = self.eigen()
        keep = values > EIGENVALUE_CUTOFF * values[:, :1]
        inverse_root = pt.switch(keep, pt.switch(keep, values, 1.0) ** -0.5, 0.0)
        projection = vectors * inverse_root[:, None, :]
        # The scale enters once, where it costs no pass over n r entries.
        projection = pt.set_subtensor(projection[0], projection[0] * pt.sqrt(self.term.scale))
        cross = self.term.gram(self.nodes, X[:, self.term.dims].T)
        return stacked_product(projection, cross, transpose_a=True)

    def features(self, X):
        """``phi_j(x) = sqrt(scale) prod_i factor_i[idx[j, i]](x_i)``, (n, r)."""
        if not self.term.dims:  # a constant kernel
            return pt.sqrt(self.term.scale) * pt.ones_like(X[:, :1])
        d, m = self.nodes.shape
        flat = self.factors(X).reshape((d * m, X.shape[0]))
        return khatri_rao_features(flat.T, self.selection + m * np.arange(d))

    def select(self, factors, fixed):
        """Keep the multi-indices (r, d) with the largest mean square on the data, column by column.

        `factors` (d, m, n) are those at some rows and hyperparameters. The eigenvalues are close to
        these mean squares, as the nodes' masses follow the data, but know no more of the data than
        the nodes do. Dropped eigenfunctions come last, in their order, since a later
        lengthscale may lift them; with a kernel that is `fixed` they are zero for ever and go.
        """
        scores = np.mean(np.square(factors), axis=2)
        alive = (scores > 1e-30 * scores.max(axis=1, keepdims=True)) & (self.masses > 0)
        depth = np.cumsum(~alive, axis=1)
        least = np.min(scores, axis=1, where=alive, initial=np.inf, keepdims=True)
        logs = np.log(np.where(alive, scores, least)) - 5.0 * depth * ~alive
        logs = np.where(alive if fixed else self.masses > 0, logs, -np.inf)
        order = np.argsort(-logs, axis=1, kind="stable")
        places = top_products(np.take_along_axis(logs, order, axis=1), self.rank)
        idx = np.take_along_axis(order.T, places, axis=0)
        self.selection = idx[np.isfinite(np.take_along_axis(logs.T, idx, axis=0)).all(axis=1)]
        self.rank = len(self.selection)
