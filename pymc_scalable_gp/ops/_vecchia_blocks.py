"""Regressions of blocks of rows on their neighbours: what the Vecchia Ops do for one block.

A block's local rows are its neighbours, then its own. With ``M = [[M_NN, M_Nb], [M_bN, M_bb]]`` their
covariance, the block given its neighbours has mean ``A v_N``, ``A = M_bN M_NN^-1``, and covariance
``L L' = M_bb - A M_Nb``.
"""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._block_kernel import add_kernel_bars, block_factors, no_bars, sum_of_products
from pymc_scalable_gp.ops._kernels import empty_matrix
from pymc_scalable_gp.ops._numba import inlined
from pymc_scalable_gp.ops._small import add_small, factor_small, multiply_small, solve_small, subtract_gram


@register_jitable
def own_rows(n, first, block, b):
    """First row of block b, and how many rows it has."""
    start = first + b * block
    return start, max(min(block, n - start), 0)


@register_jitable
def count_known(neighbors):
    """Number of neighbours before the padding, -1."""
    count = 0
    while count < len(neighbors) and neighbors[count] >= 0:
        count += 1
    return count


@register_jitable
def count_fitting(neighbors, start):
    """As `count_known`, and -1 unless all are rows before `start` and the padding comes last."""
    known = count_known(neighbors)
    for i in range(len(neighbors)):
        if neighbors[i] >= start or (i >= known and neighbors[i] >= 0):
            return -1
    return known


@register_jitable
def blocks_fit(neighbors, n, first, block):
    """Whether blocks hold all n rows from `first` on, neighbours come before, and their padding last."""
    for b in range(len(neighbors)):
        if count_fitting(neighbors[b], first + min(b * block, n)) < 0:
            return False
    return n <= len(neighbors) * block


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
        row, own = (values[places[i]], out[i])  # faster than by two places: none of them may be negative
        for j in range(q):
            own[j] = row[j]
    return out


@register_jitable
def zero_matrix(rows, columns):
    """Zeros, on huge pages where they are many."""
    out = empty_matrix(rows, columns)
    out[:] = 0.0
    return out


@register_jitable
def add_rows(out, places, factor, rows):
    """Add multiples of rows to those of `out` at some places."""
    for i in range(len(places)):
        target, row = out[places[i]], rows[i]
        for j in range(out.shape[1]):
            target[j] += factor * row[j]


@register_jitable
def add_noise_and_features(M, noise, local, places):
    """Add ``D - local local'`` to the lower triangle of M (s, s)."""
    for i in range(len(places)):
        M[i, i] += noise[places[i]]
    if local.shape[1] > 0:
        subtract_gram(local, M)


@register_jitable
def factor_block(M, count, A, L, F):
    """Fill A (g, k), L (g, g) and the factor F (k, k) of M_NN from the lower triangle of M.

    Places that a block does not use keep zeros, and ones on the diagonals. NaN where M is not positive
    definite.
    """
    total = 0.0
    for i in range(len(M)):
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
    root, lower, cross = split(M, count)
    solve_small(root, cross, False, True)
    put(cross, A)
    put(lower, L)
    put(root, F)


@register_jitable
def put(matrix, out):
    """Overwrite the first rows and columns of `out`."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            out[i, j] = matrix[i, j]


@register_jitable
def corner(matrix, rows, columns):
    """The first rows and columns, contiguous."""
    out = np.empty((rows, columns))
    put(matrix[:rows, :columns], out)
    return out


@register_jitable
def split(factor, count):
    """Parts of the factor of a block's local rows: the neighbours', its own, and what is beside that."""
    own = len(factor) - count
    rows = factor[count:]
    return corner(factor, count, count), corner(rows[:, count:], own, own), corner(rows, own, count)


@register_jitable
def add_transpose(matrix):
    """Add its transpose to a matrix."""
    for i in range(len(matrix)):
        for j in range(i + 1):
            both = matrix[i, j] + matrix[j, i]
            matrix[i, j] = both
            matrix[j, i] = both


@register_jitable
def factor_block_grad(A, L, F, A_bar, L_bar, count, own):
    r"""Cotangent (s, s) of M, symmetric, from those of A and L.

    ``C = sym(L^-T P L^-1)`` with ``P = tril(L' L_bar)``, its diagonal halved; ``G = A_bar M_NN^-1``;
    ``M_bar = U Z + Z' U'`` with ``U' = [-A, I]`` and ``2 Z = C U' + [G, 0]``.
    """
    s = count + own
    a, lower, root = corner(A, own, count), corner(L, own, own), corner(F, count, count)
    slope, G = corner(L_bar, own, own), corner(A_bar, own, count)
    P, Z, Ut, M_bar = np.zeros((own, own)), np.zeros((own, s)), np.zeros((own, s)), np.zeros((s, s))
    multiply_small(lower, slope, True, False, P)
    for i in range(own):
        P[i, i] *= 0.5
        for j in range(i + 1, own):
            P[i, j] = 0.0
    solve_small(lower, P, True, False)
    solve_small(lower, P, False, True)
    solve_small(root, G, True, True)
    solve_small(root, G, False, True)
    add_transpose(P)
    P *= 0.25
    G *= 0.5
    a *= -1.0
    put(G, Z)
    add_small(P, a, False, 1.0, Z[:, :count])
    put(P, Z[:, count:])
    put(a, Ut)
    for i in range(own):
        Ut[i, count + i] = 1.0
    multiply_small(Ut, Z, True, False, M_bar)
    add_transpose(M_bar)
    return M_bar


@register_jitable
def add_features_bar(M_bar, local, places, phi_bar):
    """Add a block's part to the cotangent of the features, ``-2 M_bar local``."""
    s, r = local.shape
    if r > 0:
        product = np.zeros((s, r))
        multiply_small(M_bar, local, False, False, product)
        add_rows(phi_bar, places, -2.0, product)


@register_jitable
def stacked_place(i, known, k):
    """Place of a block's i-th local row in a stack that has room for k neighbours."""
    return i if i < known else k + i - known


@register_jitable
def from_stack(stacked, known, s, g):
    """Matrix (s, s) between a block's local rows, `known` neighbours first, as the stack has it."""
    M, k = np.empty((s, s)), len(stacked) - g
    for i in range(s):
        row = stacked[stacked_place(i, known, k)]
        for j in range(s):
            M[i, j] = row[stacked_place(j, known, k)]
    return M


@register_jitable
def to_stack(M, known, g, stacked):
    """Put a symmetric matrix between a block's local rows, from its lower triangle, in the stack."""
    k = len(stacked) - g
    for i in range(len(M)):
        row = stacked_place(i, known, k)
        for j in range(i + 1):
            column = stacked_place(j, known, k)
            stacked[row, column] = M[i, j]
            stacked[column, row] = M[i, j]


@inlined
def factor_blocks(
    blocks, X, scale, variance, shape, rows, phi, noise, neighbors, first, terms, g
):  # fmt: skip
    """A, L and F, block after block; without `terms` the kernel is read from `blocks` (b, s, s).

    NaN where neighbours are not rows before the block.
    """
    count, k = neighbors.shape
    A, L, F = np.empty((count, g, k)), np.empty((count, g, g)), np.empty((count, k, k))
    for b in range(count):
        start, own = own_rows(phi.shape[0], first, g, b)
        known = count_fitting(neighbors[b], min(start, phi.shape[0]))
        if known < 0:
            A[b], L[b], F[b] = np.nan, np.nan, np.nan
            continue
        places = local_places(neighbors[b], known, start, own)
        s = known + own
        if len(terms) == 0:
            M = from_stack(blocks[b], known, s, g)
        else:
            values = block_factors(X, scale, shape, rows, terms, places)[2]
            M = sum_of_products(values, variance, terms)
        add_noise_and_features(M, noise, take_rows(phi, places), places)
        factor_block(M, known, A[b], L[b], F[b])
    return A, L, F


@inlined
def factor_blocks_grad(
    blocks_bar, X, scale, variance, shape, rows, phi, noise, neighbors, first, A, L, F, A_bar, L_bar,
    terms, g, X_bar,
):  # fmt: skip
    """Cotangents of the kernel's parameters, features and noise; without `terms` fills `blocks_bar`.

    That of the inputs is added to `X_bar` (n, d), unless it has no rows.
    """
    bars = no_bars(scale, variance, shape, rows)
    phi_bar, noise_bar = zero_matrix(phi.shape[0], phi.shape[1]), np.zeros(noise.shape)
    for b in range(neighbors.shape[0]):
        start, own = own_rows(phi.shape[0], first, g, b)
        known = max(count_fitting(neighbors[b], min(start, phi.shape[0])), 0)  # else A, L are NaN
        places = local_places(neighbors[b], known, start, own)
        s = known + own
        M_bar = factor_block_grad(A[b], L[b], F[b], A_bar[b], L_bar[b], known, own)
        if len(terms) == 0:
            to_stack(M_bar, known, g, blocks_bar[b])
        else:
            factors = block_factors(X, scale, shape, rows, terms, places)
            add_kernel_bars(factors, M_bar, scale, variance, shape, rows, terms, places, bars, X_bar)
        add_features_bar(M_bar, take_rows(phi, places), places, phi_bar)
        for i in range(s):
            noise_bar[places[i]] += M_bar[i, i]
    return bars, phi_bar, noise_bar
