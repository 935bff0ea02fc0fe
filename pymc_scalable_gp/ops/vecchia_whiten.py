"""Columns whitened by regressions of blocks of rows on their neighbours."""

from functools import partial

import numpy as np

from pymc_scalable_gp.ops import _vecchia_batches as batches
from pymc_scalable_gp.ops._array_op import ArrayOp
from pymc_scalable_gp.ops._base import integers
from pymc_scalable_gp.ops._numba import numba_form
from pymc_scalable_gp.ops._small import add_small, multiply_small, solve_small
from pymc_scalable_gp.ops._vecchia_blocks import (
    add_rows,
    blocks_fit,
    corner,
    count_known,
    own_rows,
    put,
    take_rows,
)


class VecchiaWhiten(ArrayOp):
    """``L_b^-1 (V_b - A_b V_N)`` for every block b (see `vecchia_whiten`)."""

    gufunc_signature = "(n,q),(b,g,k),(b,g,g),(b,k)->(n,q)"
    discrete = (3,)

    def values(self, xp, *inputs):
        """See `_vecchia_batches.whiten`."""
        *given, neighbors = inputs
        return batches.where_blocks_fit(partial(batches.whiten, xp=xp), given, neighbors, (), xp)[0]

    def pullback(self, inputs, outputs, cotangents):
        """See `VecchiaWhitenGrad`."""
        return VecchiaWhitenGrad()(*inputs, *outputs, *cotangents)


class VecchiaWhitenGrad(ArrayOp):
    """Cotangents of V, A and L: with ``T = L^-T W_bar``, ``V_b += T``, ``V_N -= A' T``.

    ``A_bar = -T V_N'`` and ``L_bar = -tril(T W')``.
    """

    gufunc_signature = "(n,q),(b,g,k),(b,g,g),(b,k),(n,q),(n,q)->(n,q),(b,g,k),(b,g,g)"
    discrete = (3,)

    def values(self, xp, *inputs):
        """See `_vecchia_batches.whiten_grad`."""
        (*given, neighbors), rest = inputs[:4], inputs[4:]
        return batches.where_blocks_fit(partial(batches.whiten_grad, xp=xp), given, neighbors, rest, xp)


def vecchia_whiten(columns, A, L, neighbors):
    r"""Whiten columns under the covariance S of a block Vecchia approximation.

    .. math:: W_b = L_b^{-1}(V_b - A_b V_N), \qquad W^\top W = V^\top S^{-1} V, \qquad
              \log\det S = 2 \sum_{b,j} \log (L_b)_{jj}

    Parameters
    ----------
    columns : tensor, shape (n, q)
        V, in the order of the blocks.
    A : tensor, shape (b, g, k)
    L : tensor, shape (b, g, g)
        As :func:`vecchia_factor` gives them.
    neighbors : integer tensor, shape (b, k)
        Rows before the block's own, then -1.

    Returns
    -------
    tensor, shape (n, q)
        NaN where neighbours are others, or the blocks do not hold all rows.

    See Also
    --------
    vecchia_color : Its inverse.

    Notes
    -----
    O(n q (k + g)). Differentiable once in `columns`, `A` and `L`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_scalable_gp as sgp
    >>> K, neighbors = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[-1], [0]])
    >>> A, L = sgp.ops.vecchia_factor(np.stack([K, K]), np.zeros((2, 0)), np.zeros(2), neighbors)
    >>> W = sgp.ops.vecchia_whiten(np.eye(2), A, L, neighbors).eval()
    >>> (W.T @ W).round(3)
    array([[ 1.333, -0.667],
           [-0.667,  1.333]])
    >>> np.linalg.inv(K).round(3)
    array([[ 1.333, -0.667],
           [-0.667,  1.333]])
    """
    return VecchiaWhiten()(columns, A, L, integers("neighbors", neighbors))


@numba_form(VecchiaWhiten)
def _whiten(V, A, L, neighbors):
    n, q = V.shape
    g = A.shape[1]
    out = np.empty((q, n))  # column by column, as the likelihood reads features
    if not blocks_fit(neighbors, n, 0, g):
        out[:] = np.nan
        return out.T
    for b in range(A.shape[0]):
        start, own = own_rows(n, 0, g, b)
        known = count_known(neighbors[b])
        T = corner(V[start:], own, q)
        add_small(corner(A[b], own, known), take_rows(V, neighbors[b, :known]), False, -1.0, T)
        solve_small(corner(L[b], own, own), T, False, False)
        put(T.T, out[:, start:])
    return out.T


@numba_form(VecchiaWhitenGrad, strided=(4, 5))
def _whiten_grad(V, A, L, neighbors, W, W_bar):
    n, q = V.shape
    g = A.shape[1]
    V_bar, A_bar, L_bar = np.zeros((n, q)), np.zeros(A.shape), np.zeros(L.shape)
    if not blocks_fit(neighbors, n, 0, g):
        V_bar[:], A_bar[:], L_bar[:] = np.nan, np.nan, np.nan
        return V_bar, A_bar, L_bar
    for b in range(A.shape[0]):
        start, own = own_rows(n, 0, g, b)
        known = count_known(neighbors[b])
        T, white = np.empty((own, q)), np.empty((own, q))
        for j in range(q):
            for i in range(own):
                T[i, j] = W_bar[start + i, j]
                white[i, j] = W[start + i, j]
        solve_small(corner(L[b], own, own), T, True, False)
        back, slope, square = np.zeros((known, q)), np.zeros((own, known)), np.zeros((own, own))
        multiply_small(corner(A[b], own, known), T, True, False, back)
        multiply_small(T, take_rows(V, neighbors[b, :known]), False, True, slope)
        multiply_small(T, white, False, True, square)
        for i in range(own):
            for j in range(q):
                V_bar[start + i, j] += T[i, j]
            for j in range(known):
                A_bar[b, i, j] = -slope[i, j]
            for j in range(i + 1):
                L_bar[b, i, j] = -square[i, j]
        add_rows(V_bar, neighbors[b, :known], -1.0, back)
    return V_bar, A_bar, L_bar
