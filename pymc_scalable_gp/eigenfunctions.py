"""Eigenfunctions of one product kernel on a Cartesian grid."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.cov import ProductTerm
from pymc_scalable_gp.grid import top_products
from pymc_scalable_gp.ops.eigh_sorted import eigh_sorted
from pymc_scalable_gp.ops.khatri_rao import khatri_rao_features
from pymc_scalable_gp.ops.stacked_product import stacked_product

# Eigenvalues of a 1-D grid matrix below this share of the largest are rounding noise.
EIGENVALUE_CUTOFF = 1e-10


@dataclass
class TermGrid:
    """Frozen grid of one product term: nodes and mask (d, m), rank, multi-indices (rank, d)."""

    term: ProductTerm
    nodes: np.ndarray
    mask: np.ndarray
    rank: int
    selection: np.ndarray | None = None

    def eigen(self):
        """``Q`` (d, m, m) and eigenvalues (d, m) of the grid matrices ``k_i(U_i, U_i)``."""
        mask = self.mask.astype(float)
        matrices = self.term.gram(self.nodes, self.nodes)
        values, vectors = eigh_sorted(matrices * mask[:, :, None] * mask[:, None, :])
        return vectors * mask[:, :, None], values

    def features(self, X):
        """``phi_j(x) = sqrt(scale) prod_i k_i(x_i, U_i) q_{i, idx[j, i]} / lambda^1/2``, (n, r)."""
        root_scale = pt.sqrt(self.term.scale)
        if not self.term.dims:  # a constant kernel
            return root_scale * pt.ones_like(X[:, :1])
        vectors, values = self.eigen()
        keep = values > EIGENVALUE_CUTOFF * values[:, :1]
        inverse_root = pt.switch(keep, pt.switch(keep, values, 1.0) ** -0.5, 0.0)
        projection = vectors * inverse_root[:, None, :]
        projection = pt.set_subtensor(projection[0], projection[0] * root_scale)
        cross = self.term.gram(self.nodes, X[:, self.term.dims].T)
        factors = stacked_product(projection, cross, transpose_a=True)
        d, m = self.nodes.shape
        flat = factors.reshape((d * m, X.shape[0]))
        return khatri_rao_features(flat.T, self.selection + m * np.arange(d))

    def select(self, values, fixed):
        """Keep the multi-indices (r, d) that lead at these eigenvalues (d, m).

        Below the cutoff the order is kept by a steep slope, since a later lengthscale may lift
        those eigenvalues; with a kernel that is `fixed` their features are zero for ever and go.
        """
        share = values / values[:, :1]
        alive = (share > EIGENVALUE_CUTOFF) & self.mask
        depth = np.cumsum(~alive, axis=1)
        logs = np.log(np.where(alive, share, EIGENVALUE_CUTOFF)) - 5.0 * depth
        logs = np.where(self.mask & (alive if fixed else True), logs, -np.inf)
        idx = top_products(logs, self.rank)
        self.selection = idx[np.isfinite(np.take_along_axis(logs.T, idx, axis=0)).all(axis=1)]
        self.rank = len(self.selection)
