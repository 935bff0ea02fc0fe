"""Precision matrix of features and block Vecchia, by sparse matrices."""

import numpy as np
from scipy import sparse

from pymc_scalable_gp.core.likelihoods.precision import Precision
from pymc_scalable_gp.core.vecchia.normal import whitened_terms
from pymc_scalable_gp.utils.compiled import compile_outputs


class VecchiaPrecisions:
    r"""Precision under features and block Vecchia: ``P = W'W - G G'``.

    With ``W = D^-1/2 B`` sparse, ``Phi~ = W Phi`` and
    ``G = W' Phi~ (I + Phi~' Phi~)^-1/2``. O(n (r^2 + (k + g)^2)) per draw.
    """

    def __init__(self, likelihood, model):
        found = likelihood.regressions
        white, phi = whitened_terms(likelihood.residual, likelihood.phi, found)
        data = likelihood.data
        outputs = [white, phi, found.A, found.L, data.y.tensor, data.sigma**2]
        self._function, self.inputs = compile_outputs(outputs, model)
        ordering = likelihood.plan.ordering
        self._order, self._neighbors = ordering.order, ordering.neighbors

    def __call__(self, values):
        """Keep W sparse."""
        white, phi, A, L, y, noise = self._function(*values)
        W = _whitening(A, L, self._neighbors, len(y))[:, np.argsort(self._order)]
        inner = np.linalg.cholesky(np.eye(phi.shape[1]) + phi.T @ phi)
        turned = np.linalg.solve(inner, phi.T)  # (r, n)
        G = W.T @ turned.T
        alpha = W.T @ white - G @ (turned @ white)
        squares = np.asarray(W.multiply(W).sum(axis=0)).ravel()
        diagonal, W = squares - np.einsum("ij,ij->i", G, G), W.tocsc()

        def block(rows):
            own = W[:, rows]
            return (own.T @ own).toarray() - G[rows] @ G[rows].T

        return Precision(y, noise, alpha, diagonal, block)


def _whitening(A, L, neighbors, n):
    """Sparse ``W`` (n, n) with rows ``L_b^-1 [-A_b, I]`` at the neighbours and the block itself."""
    count, g, _ = A.shape
    own = np.arange(count)[:, None] * g + np.arange(g)
    # The last block may be short: its unused rows are left out below, and must not be singular here.
    inverse = np.linalg.inv(L + (own >= n)[:, :, None] * np.eye(g))
    columns = np.concatenate([neighbors, own], axis=1)
    values = np.concatenate([-inverse @ A, inverse], axis=2)
    there = (columns >= 0) & (columns < n)
    kept = there[:, None, :] & (own < n)[:, :, None]
    rows = np.broadcast_to(own[:, :, None], values.shape)
    places = np.broadcast_to(columns[:, None, :], values.shape)
    found = (values[kept], (rows[kept], places[kept]))
    return sparse.csr_array(found, shape=(n, n))
