r"""Density of features plus block Vecchia, block after block: nothing of (n, r) is kept but the features.

With M the covariance of a block's local rows, ``M = R R'``, the last rows of ``R^-1`` are
``U = L^-1 [-A, I]``, which whiten the block: ``W = U Phi_local``.
"""

import numpy as np
from numba.extending import register_jitable

from pymc_scalable_gp.ops._block_kernel import add_kernel_bars, block_factors, no_bars, sum_of_products
from pymc_scalable_gp.ops._elementwise import add, add_multiple, subtract, subtract_from, sum_product
from pymc_scalable_gp.ops._kernels import add_gram_columns, empty_matrix, matvec, multiply_any
from pymc_scalable_gp.ops._lowrank_terms import LOG_2PI, factor_qr, factor_scaled
from pymc_scalable_gp.ops._numba import inlined
from pymc_scalable_gp.ops._small import add_small, factor_small, inverse_small, multiply_small
from pymc_scalable_gp.ops._vecchia_blocks import (
    add_noise_and_features,
    add_rows,
    add_transpose,
    corner,
    count_known,
    from_stack,
    local_places,
    own_rows,
    put,
    split,
    take_rows,
    to_stack,
    zero_matrix,
)

_ROWS = 512  # whitened rows at a time


@register_jitable
def block_places(neighbors, b, n, g):
    """Local rows of block b, and how many of them are neighbours."""
    start, own = own_rows(n, 0, g, b)
    known = count_known(neighbors[b])
    return local_places(neighbors[b], known, start, own), known


@register_jitable
def whitening_rows(M, known, rows):
    """Fill U (own, s) from the lower triangle of M, which is overwritten.

    Returns the inverse factor of the neighbours' covariance, and log det L: NaN where M is not positive
    definite.
    """
    if not factor_small(M):
        return np.zeros((known, known)), np.nan
    root, lower, cross = split(M, known)
    near, inverse = inverse_small(root), inverse_small(lower)
    slope, logdet = np.zeros(cross.shape), 0.0
    for i in range(len(lower)):
        logdet += np.log(lower[i, i])
    cross *= -1.0
    multiply_small(cross, near, False, False, slope)
    multiply_small(inverse, slope, False, False, rows[:, :known])
    put(inverse, rows[:, known:])
    return near, logdet


@register_jitable
def whiten_column(U, neighbors, column, white):
    """``white = S^-1/2 column``, with the rows U (b, g, k + g) of all blocks."""
    for b in range(U.shape[0]):
        places, known = block_places(neighbors, b, len(column), U.shape[1])
        for i in range(len(places) - known):
            total = 0.0
            for j in range(len(places)):
                total += U[b, i, j] * column[places[j]]
            white[places[known + i]] = total


@register_jitable
def unwhiten_column(U, neighbors, white, out):
    """``out = S^-T/2 white``."""
    out[:] = 0.0
    for b in range(U.shape[0]):
        places, known = block_places(neighbors, b, len(white), U.shape[1])
        for i in range(len(places) - known):
            for j in range(len(places)):
                out[places[j]] += U[b, i, j] * white[places[known + i]]


@register_jitable
def whitened_features(U, neighbors, phi):
    """Whitened features (r, n), column by column."""
    n, r = phi.shape
    out = np.empty((r, n))
    for b in range(U.shape[0]):
        places, known = block_places(neighbors, b, n, U.shape[1])
        own, s = len(places) - known, len(places)
        W = np.zeros((own, r))
        multiply_small(corner(U[b], own, s), take_rows(phi, places), False, False, W)
        for j in range(r):
            for i in range(own):
                out[j, places[known + i]] = W[i, j]
    return out


@inlined
def stream_logp(X, scale, variance, shape, rows, phi, noise, residual, neighbors, terms, g):
    """Log densities (m,) of residuals (m, n), and what the gradient needs.

    Means (m, r) and root of the coefficients; ``rest = residual - Phi beta``, ``S^-1 rest``.
    """
    sums, half, filled = no_sums(neighbors, phi, residual, g), 0.0, 0
    for b in range(len(neighbors)):
        places, known = block_places(neighbors, b, phi.shape[0], g)
        local = take_rows(phi, places)
        values = block_factors(X, scale, shape, rows, terms, places)[2]
        M = sum_of_products(values, variance, terms)
        add_noise_and_features(M, noise, local, places)
        logdet, filled = add_block(M, b, places, known, local, residual, sums, filled)
        half += logdet
        if not np.isfinite(half):
            break
    return densities(neighbors, phi, residual, sums, half)


@register_jitable
def no_sums(neighbors, phi, residual, g):
    """Rows U (b, g, k + g) that whiten, whitened features at a time and residuals, and their products."""
    (count, k), r, (m, n) = neighbors.shape, phi.shape[1], residual.shape
    U = empty_matrix(count, g * (k + g)).reshape((count, g, k + g))
    return U, np.empty((max(_ROWS, g), r)), np.empty((m, n)), np.zeros((r, r)), np.zeros((m, r))


@register_jitable
def add_block(M, b, places, known, local, residual, sums, filled):
    """Add a block's part to the sums, from the covariance M of its local rows, which is overwritten.

    Returns log det L, NaN where M is not positive definite, and how many whitened features wait for
    their products.
    """
    U, W, white, gram, cross = sums
    s, own = len(places), len(places) - known
    whitening = np.empty((own, s))
    _, logdet = whitening_rows(M, known, whitening)
    if not np.isfinite(logdet):
        return np.nan, filled
    multiply_small(whitening, local, False, False, W[filled : filled + own])
    put(whitening, U[b])
    put(_whitened(whitening, residual, places), white[:, places[s - 1] + 1 - own :])
    filled += own
    if filled + U.shape[1] > len(W) or b == len(U) - 1:
        end, part = places[s - 1] + 1, np.empty(cross.shape[1])
        add_gram_columns(W[:filled], gram)
        for c in range(len(residual)):
            matvec(W[:filled], white[c, end - filled : end], True, part)
            add(cross[c], part)
        filled = 0
    return logdet, filled


@register_jitable
def densities(neighbors, phi, residual, sums, half):
    """What `stream_logp` returns, from the sums over blocks and the half log determinant of S."""
    U, _, white, gram, cross = sums
    (m, n), r = residual.shape, phi.shape[1]
    beta, root, logp = np.full((m, r), np.nan), np.full((r, r), np.nan), np.full(m, np.nan)
    rest, alpha = np.full((m, n), np.nan), np.full((m, n), np.nan)
    if not np.isfinite(half):
        return logp, beta, root, rest, alpha
    log_b, sharp = factor_scaled(np.ones(r), gram)
    for c in range(m):
        if not (sharp or np.isnan(log_b)):
            whitened = whitened_features(U, neighbors, phi)
            log_b = factor_qr(whitened, np.ones(r), np.ones(n), white[c], gram, cross[c])
        _solve_ridge(U, neighbors, phi, residual[c], gram, cross[c], white[c], rest[c], sharp)
        quad = sum_product(white[c], white[c]) + sum_product(cross[c], cross[c])
        logp[c] = -0.5 * (quad + log_b + n * LOG_2PI) - half
    if not np.isfinite(logp.sum()):
        logp[:], rest[:] = np.nan, np.nan
        return logp, beta, root, rest, alpha
    for c in range(m):
        unwhiten_column(U, neighbors, white[c], alpha[c])
    return logp, cross, gram, rest, alpha


@register_jitable
def _solve_ridge(U, neighbors, phi, residual, gram, cross, white, rest, sharp):
    """``beta = B^-1 cross`` into `cross`, unless it is there, by the inverse factor of B in `gram`.

    `white` (n,) is the whitened residual, and then that of ``rest = residual - Phi beta``. Errors of the
    solution enter the density squared, but its gradient as they are: hence one step of refinement.
    """
    n, r = phi.shape
    step, turned = np.empty(r), np.empty(r)
    if sharp:
        matvec(gram, cross, False, turned)
        matvec(gram, turned, True, cross)
    for sweep in range(2):
        matvec(phi, cross, False, rest)
        subtract_from(rest, residual)
        whiten_column(U, neighbors, rest, white)
        if sweep == 0:
            back = np.empty(n)
            unwhiten_column(U, neighbors, white, back)
            matvec(phi, back, True, step)
            subtract(step, cross)
            matvec(gram, step, False, turned)
            matvec(gram, turned, True, step)
            add(cross, step)


@inlined
def stream_grad(
    X, scale, variance, shape, rows, phi, noise, neighbors, beta, root, rest, bar, terms, g, X_bar
):  # fmt: skip
    r"""Cotangents of the kernel's parameters, features and noise, through the blocks again.

    That of the inputs is added to `X_bar` (n, d), unless it has no rows.

    At the ridge solution its own change does not count. With ``B^-1 = root' root``, ``v = rest`` and
    ``w = U v_local`` the cotangents of ``W`` and ``w`` are ``W_bar = -W B^-1`` and ``-w``, that of
    ``log det L`` is -1, and that of M is ``U'Y + Y'U`` with

    .. math:: 2 Y = -\tfrac12 (\bar W W^\top + \bar w w^\top + I)\,U
                    - [(\bar W \Phi_N^\top + \bar w v_N^\top) M_{NN}^{-1},\ 0].
    """
    n, r = phi.shape
    bars, middle = no_bars(scale, variance, shape, rows), np.zeros((r, r))
    phi_bar, noise_bar = zero_matrix(n, r), np.zeros(n)
    multiply_any(root, root, True, False, middle)
    for b in range(len(neighbors)):
        places, known = block_places(neighbors, b, n, g)
        s, own = len(places), len(places) - known
        whitening, local = np.empty((own, s)), take_rows(phi, places)
        factors = block_factors(X, scale, shape, rows, terms, places)
        M = sum_of_products(factors[2], variance, terms)
        add_noise_and_features(M, noise, local, places)
        near, _ = whitening_rows(M, known, whitening)
        W, W_bar = np.zeros((own, r)), np.zeros((own, r))
        multiply_small(whitening, local, False, False, W)
        multiply_small(W, middle, False, False, W_bar)
        W_bar *= -bar.sum()
        w = _whitened(whitening, rest, places)
        both, M_bar = _covariance_bar(whitening, near, W, W_bar, w, local, rest, places, bar)
        turned, local_bar = np.zeros((2 * own, r)), np.zeros((s, r))
        W *= -2.0
        put(W_bar, turned)
        put(W, turned[own:])
        add_small(both[own:], local, False, -2.0, turned[:own])
        for i in range(own):
            for c in range(len(bar)):
                add_multiple(turned[i], bar[c] * w[c, i], beta[c])
        multiply_any(both, turned, True, False, local_bar)
        add_kernel_bars(factors, M_bar, scale, variance, shape, rows, terms, places, bars, X_bar)
        add_rows(phi_bar, places, 1.0, local_bar)
        for i in range(s):
            noise_bar[places[i]] += M_bar[i, i]
    return bars, phi_bar, noise_bar


@register_jitable
def _whitened(rows, columns, places):
    """``U v_local`` (m, own), for each of the columns (m, n)."""
    own, s = rows.shape
    out = np.zeros((len(columns), own))
    for c in range(len(columns)):
        for i in range(own):
            for j in range(s):
                out[c, i] += rows[i, j] * columns[c, places[j]]
    return out


@register_jitable
def _covariance_bar(rows, near, W, W_bar, w, local, rest, places, bar):
    """``[U; Y]``, and the cotangent of M: see `stream_grad`; w and `rest` have a row for each residual."""
    own, s = rows.shape
    known = s - own
    square, slope = np.zeros((own, own)), np.zeros((own, known))
    half, both, M_bar = np.zeros((own, known)), np.zeros((2 * own, s)), np.zeros((s, s))
    multiply_small(W_bar, W, False, True, square)
    multiply_small(W_bar, local[:known], False, True, slope)
    for c in range(len(bar)):
        for i in range(own):
            weight = bar[c] * w[c, i]
            for j in range(own):
                square[i, j] -= weight * w[c, j]
            for j in range(known):
                slope[i, j] -= weight * rest[c, places[j]]
    square *= -0.25
    slope *= -0.5
    for i in range(own):
        square[i, i] -= 0.25 * bar.sum()
    put(rows, both)
    Y = both[own:]
    multiply_small(square, rows, False, False, Y)
    multiply_small(slope, near, False, True, half)
    add_small(half, near, False, 1.0, Y[:, :known])
    multiply_any(rows, Y, True, False, M_bar)
    add_transpose(M_bar)
    return both, M_bar


@inlined
def stacked_logp(blocks, phi, noise, residual, neighbors):
    """As `stream_logp`, from the kernel less the features' part in `blocks` (b, k + g, k + g)."""
    count, k = neighbors.shape
    g = blocks.shape[1] - k
    sums, half, filled = no_sums(neighbors, phi, residual, g), 0.0, 0
    for b in range(count):
        places, known = block_places(neighbors, b, phi.shape[0], g)
        M, local = from_stack(blocks[b], known, len(places), g), take_rows(phi, places)
        add_noise_and_features(M, noise, np.empty((len(places), 0)), places)
        logdet, filled = add_block(M, b, places, known, local, residual, sums, filled)
        half += logdet
        if not np.isfinite(half):
            break
    return densities(neighbors, phi, residual, sums, half)


@inlined
def stacked_grad(blocks, phi, noise, neighbors, beta, root, rest, alpha, bar, g):
    """Cotangents of `blocks`, features and noise, where the blocks hold the kernel less the features' part.

    As in `stream_grad`; what the features have in the log determinants is left out where the cotangents of
    the densities sum to 0, as those of a difference do.
    """
    n, r = phi.shape
    count, s_all = neighbors.shape[0], blocks.shape[1]
    blocks_bar = zero_matrix(count, s_all * s_all).reshape((count, s_all, s_all))
    phi_bar, noise_bar, total = zero_matrix(n, r), np.zeros(n), bar.sum()
    width = 0 if total == 0.0 else r
    features, middle = phi if width else np.empty((n, 0)), np.zeros((width, width))
    if width > 0:
        multiply_any(root, root, True, False, middle)
    for b in range(count):
        places, known = block_places(neighbors, b, n, g)
        s, own = len(places), len(places) - known
        whitening, local = np.empty((own, s)), take_rows(features, places)
        M = from_stack(blocks[b], known, s, g)
        add_noise_and_features(M, noise, np.empty((s, 0)), places)
        near, _ = whitening_rows(M, known, whitening)
        W, W_bar = np.zeros((own, width)), np.zeros((own, width))
        if width > 0:
            multiply_small(whitening, local, False, False, W)
            multiply_small(W, middle, False, False, W_bar)
            W_bar *= -total
            local_bar = np.zeros((s, width))
            multiply_any(whitening, W_bar, True, False, local_bar)
            add_rows(phi_bar, places, 1.0, local_bar)
        w = _whitened(whitening, rest, places)
        _, M_bar = _covariance_bar(whitening, near, W, W_bar, w, local, rest, places, bar)
        to_stack(M_bar, known, g, blocks_bar[b])
        for i in range(s):
            noise_bar[places[i]] += M_bar[i, i]
    for i in range(n):
        for c in range(len(bar)):
            add_multiple(phi_bar[i], bar[c] * alpha[c, i], beta[c])
    return blocks_bar, phi_bar, noise_bar
