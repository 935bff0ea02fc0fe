"""Regressions of blocks of rows on their neighbours: what the Vecchia Ops do for one block.

A block's local rows are its neighbours, then its own. With ``M = [[M_NN, M_Nb], [M_bN, M_bb]]`` their
covariance, the block given its neighbours has mean ``A v_N``, ``A = M_bN M_NN^-1``, and covariance
``L L' = M_bb - A M_Nb``.
"""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._small import factor_small, gram_small, multiply_small, solve_small


@register_jitable
def count_known(neighbors):
    """Number of neighbours before the padding, -1."""
    count = 0
    while count < len(neighbors) and neighbors[count] >= 0:
        count += 1
    return count


@register_jitable
def local_places(neighbors, count, first, own):
    """Rows that a block looks at: its neighbours, then its own."""
    places = np.empty(count + own, dtype=np.int64)
    for i in range(count):
        places[i] = neighbors[i]
    for i in range(own):
        places[count + i] = first + i
    return places


@register_jitable
def take_rows(values, places):
    """Rows of a matrix, contiguous."""
    q = values.shape[1]
    out = np.empty((len(places), q))
    for i in range(len(places)):
        for j in range(q):
            out[i, j] = values[places[i], j]
    return out


@register_jitable
def subtract_features(M, local):
    """``M - local local'`` in the lower triangle of M (s, s), which is overwritten."""
    s = M.shape[0]
    if local.shape[1] == 0:
        return
    gram = np.zeros((s, s))
    gram_small(local, gram)
    for i in range(s):
        for j in range(i + 1):
            M[i, j] -= gram[i, j]


@register_jitable
def factor_block(M, count, A, L, F):
    """Fill A (g, k), L (g, g) and the factor F (k, k) of M_NN from the lower triangle of M.

    Places that a block does not use keep zeros, and ones on the diagonals. NaN where M is not positive
    definite.
    """
    s = M.shape[0]
    own = s - count
    total = 0.0
    for i in range(s):
        for j in range(i + 1):
            total += M[i, j]
    if not (np.isfinite(total) and factor_small(M)):
        A[:] = np.nan
        L[:] = np.nan
        F[:] = np.nan
        return
    A[:] = 0.0
    L[:] = 0.0
    F[:] = 0.0
    for i in range(L.shape[0]):
        L[i, i] = 1.0
    for i in range(F.shape[0]):
        F[i, i] = 1.0
    root, cross = np.empty((count, count)), np.empty((own, count))
    for i in range(count):
        for j in range(count):
            root[i, j] = M[i, j]
            F[i, j] = M[i, j]
    for i in range(own):
        for j in range(count):
            cross[i, j] = M[count + i, j]
        for j in range(i + 1):
            L[i, j] = M[count + i, count + j]
    solve_small(root, cross, False, True)
    for i in range(own):
        for j in range(count):
            A[i, j] = cross[i, j]


@register_jitable
def corner(matrix, rows, columns):
    """The first rows and columns, contiguous."""
    out = np.empty((rows, columns))
    for i in range(rows):
        for j in range(columns):
            out[i, j] = matrix[i, j]
    return out


@register_jitable
def factor_block_grad(A, L, F, A_bar, L_bar, count, own):
    r"""Cotangent (s, s) of M, symmetric, from those of A and L.

    ``C = sym(L^-T P L^-1)`` with ``P = tril(L' L_bar)``, its diagonal halved; ``G = A_bar M_NN^-1``;
    ``M_bar = U Z + Z' U'`` with ``U' = [-A, I]`` and ``2 Z = C U' + [G, 0]``.
    """
    s = count + own
    a, lower, root = corner(A, own, count), corner(L, own, own), corner(F, count, count)
    slope, G = corner(L_bar, own, own), corner(A_bar, own, count)
    P, half = np.zeros((own, own)), np.zeros((own, own))
    multiply_small(lower, slope, True, False, P)
    for i in range(own):
        P[i, i] *= 0.5
        for j in range(i + 1, own):
            P[i, j] = 0.0
    solve_small(lower, P, True, False)
    solve_small(lower, P, False, True)
    solve_small(root, G, True, True)
    solve_small(root, G, False, True)
    for i in range(own):
        for j in range(own):
            half[i, j] = 0.25 * (P[i, j] + P[j, i])
    CA = np.zeros((own, count))
    multiply_small(half, a, False, False, CA)
    Z, Ut = np.empty((own, s)), np.zeros((own, s))
    for i in range(own):
        for j in range(count):
            Z[i, j] = 0.5 * G[i, j] - CA[i, j]
            Ut[i, j] = -a[i, j]
        for j in range(own):
            Z[i, count + j] = half[i, j]
        Ut[i, count + i] = 1.0
    M_bar = np.zeros((s, s))
    multiply_small(Ut, Z, True, False, M_bar)
    for i in range(s):
        M_bar[i, i] *= 2.0
        for j in range(i):
            both = M_bar[i, j] + M_bar[j, i]
            M_bar[i, j] = both
            M_bar[j, i] = both
    return M_bar


@register_jitable
def add_local(M_bar, local, places, phi_bar, noise_bar):
    """Add a block's part to the cotangents of the features, ``-2 M_bar local``, and of the noise."""
    s, r = local.shape
    if r > 0:
        product = np.zeros((s, r))
        multiply_small(M_bar, local, False, False, product)
        for i in range(s):
            for j in range(r):
                phi_bar[places[i], j] -= 2.0 * product[i, j]
    for i in range(s):
        noise_bar[places[i]] += M_bar[i, i]
