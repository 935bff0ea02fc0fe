"""The Vecchia Ops on stacked blocks: one source for NumPy, many blocks at a time, and JAX, all at once.

`xp` is NumPy or ``jax.numpy``.
"""

from functools import reduce
from operator import mul

import numpy as np

from pymc_scalable_gp.ops._array_op import scatter
from pymc_scalable_gp.ops._jax import jax
from pymc_scalable_gp.ops._lowrank_terms import DTC, logp_terms
from pymc_scalable_gp.ops._stationary import SHAPED, shape_slope_of_squares, slope_of_squares
from pymc_scalable_gp.ops.lowrank_logp import jax_logp_terms
from pymc_scalable_gp.utils.stationary import kernel_of_squares

_ENTRIES = 2**22  # of a stack of blocks


def batches(count, entries, xp):
    """Slices of the blocks, at least one; NumPy's stacks of so many entries per block stay small."""
    step = max(1, _ENTRIES // max(entries, 1)) if xp is np else max(count, 1)
    return (slice(start, min(start + step, count)) for start in range(0, max(count, 1), step))


def joined(parts, xp):
    """Each output of all batches."""
    return tuple(values[0] if len(values) == 1 else xp.concatenate(values)
                 for values in zip(*parts, strict=True))  # fmt: skip


def local_rows(neighbors, part, first, n, g, xp):
    """Local rows (b, s) of some blocks, and which of them are there."""
    numbers = xp.arange(len(neighbors))[part]
    own = first + numbers[:, None] * g + xp.arange(g)
    places = xp.concatenate([neighbors[part], xp.where(own < n, own, -1)], axis=1)
    return xp.maximum(places, 0), places >= 0


def fitting(neighbors, first, n, g, xp):
    """Which blocks (b,) have neighbours before their own rows, and padding after these alone."""
    starts = xp.minimum(first + g * xp.arange(len(neighbors)), n)[:, None]
    last = (neighbors[:, 1:] < 0) | (neighbors[:, :-1] >= 0)
    return (neighbors < starts).all(axis=1) & last.all(axis=1)


def gather(values, places, there, xp):
    """Rows (b, s, q), zeros where there are none."""
    return xp.where(there[:, :, None], values[places], 0.0)


def cholesky(M, xp):
    """Stacked factors, NaN where there is none."""
    if xp is not np:
        return xp.linalg.cholesky(M)
    try:
        return np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        pass
    out = np.full(M.shape, np.nan)
    for i, matrix in enumerate(M):
        if np.isfinite(matrix).all():
            try:
                out[i] = np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                continue
    return out


def solve(lower, rows, xp, transpose=False, right=False):
    """Stacked ``op(L)^-1 rows``, or ``rows op(L)^-1``; op transposes where told."""
    if xp is np:
        singular = (np.diagonal(lower, axis1=1, axis2=2) == 0.0).any(axis=1)
        inverse = np.linalg.inv(np.where(singular[:, None, None], np.nan, np.tril(lower)))
        inverse = inverse.swapaxes(1, 2) if transpose else inverse
        return rows @ inverse if right else inverse @ rows
    if not lower.shape[1]:
        return rows
    return jax.lax.linalg.triangular_solve(
        lower, rows, lower=True, left_side=not right, transpose_a=transpose
    )


def factor(blocks_of, phi, noise, neighbors, first, g, xp):
    """A, L and F; ``blocks_of(part, places)`` gives kernel blocks."""
    (n, r), k = phi.shape, neighbors.shape[1]
    s, found = k + g, []
    good = fitting(neighbors, first, n, g, xp)
    neighbors = xp.where(good[:, None], neighbors, -1)
    for part in batches(len(neighbors), s * (s + r), xp):
        places, there = local_rows(neighbors, part, first, n, g, xp)
        local, eye = phi[places], xp.eye(s)
        M = blocks_of(part, places) - local @ local.swapaxes(1, 2)
        M = M + noise[places][:, :, None] * eye
        root = cholesky(xp.where(there[:, :, None] & there[:, None, :], M, eye), xp)
        bad = ~(xp.isfinite(root).all(axis=(1, 2)) & good[part])[:, None, None]
        root = xp.where(bad, eye, root)
        F, cross, L = root[:, :k, :k], root[:, k:, :k], root[:, k:, k:]
        A = solve(F, cross, xp, right=True)
        found.append([xp.where(bad, np.nan, values) for values in (A, L, F)])
    return joined(found, xp)


def covariance_bar(A, L, F, A_bar, L_bar, xp):
    """Symmetric cotangents (b, s, s) of M, as in `factor_block_grad`."""
    eye = xp.eye(L.shape[1])
    P = xp.tril(L.swapaxes(1, 2) @ L_bar) * (1.0 - 0.5 * eye)
    P = solve(L, solve(L, P, xp, transpose=True), xp, right=True)
    half = 0.25 * (P + P.swapaxes(1, 2))
    G = solve(F, solve(F, A_bar, xp, transpose=True, right=True), xp, right=True)
    Z = xp.concatenate([0.5 * G - half @ A, half], axis=2)
    Ut = xp.concatenate([-A, xp.broadcast_to(eye, L.shape)], axis=2)
    M_bar = Ut.swapaxes(1, 2) @ Z
    return M_bar + M_bar.swapaxes(1, 2)


def factor_grad(kernel_bar, phi, noise, neighbors, first, A, L, F, A_bar, L_bar, xp):
    """Batch by batch ``kernel_bar(places, M_bar)``; cotangents of features and noise."""

    def bar_of(part):
        return covariance_bar(A[part], L[part], F[part], A_bar[part], L_bar[part], xp)

    good = fitting(neighbors, first, len(phi), A.shape[1], xp)  # A and L of the others are NaN
    neighbors = xp.where(good[:, None], neighbors, -1)
    return residual_grad(bar_of, kernel_bar, phi, neighbors, first, A.shape[1], xp)


def residual_blocks(kernel_of, phi, neighbors, g, xp):
    """``K - Phi Phi'`` (b, s, s) between local rows; ``kernel_of(places)`` gives the kernel's blocks."""
    (n, r), s, found = phi.shape, neighbors.shape[1] + g, []
    for part in batches(len(neighbors), s * (s + r), xp):
        places, there = local_rows(neighbors, part, 0, n, g, xp)
        M = kernel_of(places) - phi[places] @ phi[places].swapaxes(1, 2)
        found.append([xp.where(there[:, :, None] & there[:, None, :], M, 0.0)])
    return joined(found, xp)


def residual_grad(bar_of, kernel_bar, phi, neighbors, first, g, xp):
    """As `factor_grad`, from the symmetric cotangents ``bar_of(part)`` of ``K - Phi Phi' + D``."""
    (n, r), s, found = phi.shape, neighbors.shape[1] + g, []
    phi_bar, noise_bar = xp.zeros(phi.shape), xp.zeros(n)
    for part in batches(len(neighbors), s * (s + r), xp):
        places, there = local_rows(neighbors, part, first, n, g, xp)
        M_bar = xp.where(there[:, :, None] & there[:, None, :], bar_of(part), 0.0)
        phi_bar = scatter(phi_bar, places, -2.0 * M_bar @ phi[places])
        noise_bar = scatter(noise_bar, places, xp.diagonal(M_bar, axis1=1, axis2=2))
        found.append(kernel_bar(places, M_bar))
    return found, phi_bar, noise_bar


def density(A, L, phi, residual, neighbors, xp):
    """Log densities (m,) of residuals (m, n) from regressions, and what their gradients need."""
    r, n = phi.shape[1], len(phi)
    terms = logp_terms if xp is np else jax_logp_terms
    W = whiten(xp.concatenate([phi, residual.T], axis=1), A, L, neighbors, xp)
    found = [terms(W[:, :r], xp.ones(r), xp.ones(1), w, xp.zeros(n), DTC) for w in W[:, r:].T]
    logp, coef = (xp.stack([each[place] for each in found]) for place in (0, 2))
    half = xp.log(xp.diagonal(L, axis1=1, axis2=2)).sum()
    rest = residual - coef @ phi.T
    white = W[:, r:] - W[:, :r] @ coef.T
    alpha = whiten_grad(rest.T, A, L, neighbors, white, white, xp)[0].T
    return logp - half, coef, found[0][3], rest, alpha


def density_grad(A, L, phi, coef, root, rest, neighbors, bar, xp):
    """Cotangents of features but for those in the blocks, and of A and L, from those (m,) of densities.

    By the cotangents of whitened columns; at the ridge solution its own change does not count.
    """
    r = phi.shape[1]
    columns = xp.concatenate([phi, rest.T], axis=1)
    W = whiten(columns, A, L, neighbors, xp)
    W_bar = -xp.concatenate([bar.sum() * W[:, :r] @ root.T @ root, bar * W[:, r:]], axis=1)
    back, A_bar, L_bar = whiten_grad(columns, A, L, neighbors, W, W_bar, xp)
    L_bar = L_bar - bar.sum() * xp.eye(L.shape[1]) / xp.diagonal(L, axis1=1, axis2=2)[:, None]
    return back[:, :r] - back[:, r:] @ coef, A_bar, L_bar


def whiten(V, A, L, neighbors, xp):
    """``L^-1 (own - A near)``."""
    (n, q), (count, g, k), found = V.shape, A.shape, []
    for part in batches(count, (k + g) * max(q, k + g), xp):
        local = gather(V, *local_rows(neighbors, part, 0, n, g, xp), xp)
        found.append([solve(L[part], local[:, k:] - A[part] @ local[:, :k], xp)])
    (blocks,) = joined(found, xp)
    return blocks.reshape((count * g, q))[:n]


def whiten_grad(V, A, L, neighbors, W, W_bar, xp):
    """Cotangents of V, A and L."""
    (n, q), (count, g, k), found = V.shape, A.shape, []
    V_bar = xp.zeros(V.shape)
    for part in batches(count, (k + g) * max(q, k + g), xp):
        places, there = local_rows(neighbors, part, 0, n, g, xp)
        near = gather(V, places, there, xp)[:, :k]
        white, bar = (gather(values, places, there, xp)[:, k:] for values in (W, W_bar))
        T = solve(L[part], bar, xp, transpose=True)
        back = xp.concatenate([-A[part].swapaxes(1, 2) @ T, T], axis=1)
        V_bar = scatter(V_bar, places, xp.where(there[:, :, None], back, 0.0))
        found.append([-T @ near.swapaxes(1, 2), -xp.tril(T @ white.swapaxes(1, 2))])
    return V_bar, *joined(found, xp)


def where_blocks_fit(function, inputs, neighbors, rest, xp):
    """``function(*inputs, neighbors, *rest)``, NaN in all outputs unless `blocks_fit`.

    `inputs` end with the rows and regressions A and L. With a `rest` the outputs are their cotangents.
    """
    *before, Z, A, _ = inputs
    first, n, g = len(before[0]) if before else 0, len(Z), A.shape[1]
    nan = tuple(xp.full(x.shape, xp.nan) for x in (inputs if rest else (Z,)))
    if n > len(neighbors) * g:
        return nan
    good = fitting(neighbors, first, first + n, g, xp).all()
    found = function(*inputs, xp.where(good, neighbors, -1), *rest)
    found = found if rest else (found,)
    return tuple(xp.where(good, x, each) for x, each in zip(found, nan, strict=True))


def in_order(neighbors, m, g):
    """For each block: its number, its own rows, and its neighbours, one block after the other."""
    for b, near in enumerate(neighbors):
        yield b, slice(b * g, min((b + 1) * g, m)), near[near >= 0]


def color(before, Z, A, L, neighbors):
    """``A near + L own``, block after block."""
    p, rows = len(before), np.concatenate([before, np.zeros(Z.shape)])
    for b, own, near in in_order(neighbors, len(Z), A.shape[1]):
        white = Z[own]
        made = A[b, : len(white), : len(near)] @ rows[near]
        made += L[b, : len(white), : len(white)] @ white
        rows[p + own.start : p + own.stop] = made
    return rows[p:]


def color_grad(before, Z, A, L, neighbors, Y, Y_bar):
    """Cotangents of the rows before, Z, A and L."""
    p, Z_bar, A_bar, L_bar = len(before), np.zeros(Z.shape), np.zeros(A.shape), np.zeros(L.shape)
    rows, total = np.concatenate([before, Y]), np.concatenate([np.zeros(before.shape), Y_bar])
    for b, own, near in reversed(list(in_order(neighbors, len(Z), A.shape[1]))):
        bar, count, known = total[p + own.start : p + own.stop], len(Z[own]), len(near)
        Z_bar[own] = L[b, :count, :count].T @ bar
        L_bar[b, :count, :count] = np.tril(bar @ Z[own].T)
        A_bar[b, :count, :known] = bar @ rows[near].T
        np.add.at(total, near, A[b, :count, :known].T @ bar)
    return total[:p], Z_bar, A_bar, L_bar


def local_squares(X, places, xp):
    """Squared differences (b, s, s) of inputs, one dimension after the other."""
    for a in range(X.shape[1]):
        x = X[places, a] - X[places[:, :1], a]
        yield (x[:, :, None] - x[:, None]) ** 2


def local_factors(factors, X, scale, shape, rows, places, xp):
    """Each factor (b, s, s) between local rows, with these rows' own, and its scaled squared distances."""
    for t, (kind, _) in enumerate(factors):
        squares = xp.zeros((*places.shape, places.shape[1]))
        for a, part in enumerate(local_squares(X, places, xp)):
            squares = squares + scale[t, a] * (scale[t, a] * part)
        value = kernel_of_squares(kind, squares, shape[t], xp)
        if len(rows):
            own = rows[t][places]
            value = value * own[:, :, None] * own[:, None]
        yield value, squares


def local_kernel(factors, X, scale, variance, shape, rows, places, xp):
    """Kernel (b, s, s) between local rows: a sum of products of `factors`, (kind, summand)."""
    parts = list(variance)
    for (value, _), (_, q) in zip(
        local_factors(factors, X, scale, shape, rows, places, xp), factors, strict=True
    ):
        parts[q] = parts[q] * value
    return sum(parts)


def kernel_bars(factors, X, scale, variance, shape, rows, places, M_bar, xp):
    """Cotangents of inputs, inverse lengthscales, variances, alphas, and the rows' factors."""
    found = list(local_factors(factors, X, scale, shape, rows, places, xp))
    x, X_bar, of_scale, of_variance, of_shape = X[places], xp.zeros(X.shape), [], [], []
    rows_bar = xp.zeros(rows.shape)
    for t, ((kind, q), (value, squares)) in enumerate(zip(factors, found, strict=True)):
        same = [u for u, (_, other) in enumerate(factors) if other == q]
        weight = reduce(mul, (found[u][0] for u in same if u != t), M_bar) * value
        if t == same[0]:
            of_variance.append(weight.sum())
        change = shape_slope_of_squares(kind, squares, shape[t], xp) if kind in SHAPED else 0.0
        of_shape.append(variance[q] * (weight * change).sum())
        slope = variance[q] * weight * slope_of_squares(kind, squares, shape[t], xp)
        parts = [(slope * part).sum() for part in local_squares(X, places, xp)]
        of_scale.append(2.0 * scale[t] * xp.asarray(parts))
        moved = slope.sum(axis=2)[:, :, None] * x - slope @ x
        X_bar = scatter(X_bar, places, 4.0 * scale[t] ** 2 * moved)
        if len(rows):
            change = 2.0 * variance[q] * weight.sum(axis=2) / rows[t][places]
            rows_bar = scatter(rows_bar, (t, places), change)
    return X_bar, *map(xp.stack, (of_scale, of_variance, of_shape)), rows_bar
