"""The Vecchia Ops in NumPy: many blocks at a time as stacked matrices."""

import numpy as np

from pymc_scalable_gp.ops._stationary import (
    kernel_of_squares,
    shape_slope_of_squares,
    slope_of_squares,
)

_ENTRIES = 2**22  # of a stack of blocks


def batches(count: int, entries: int):
    """Slices of the blocks, so that stacks with so many entries per block stay small."""
    step = max(1, _ENTRIES // max(entries, 1))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def local_rows(neighbors, part, first, n, g):
    """Local rows (b, s) of some blocks, and which of them are there."""
    numbers = np.arange(len(neighbors))[part]
    own = first + numbers[:, None] * g + np.arange(g)
    places = np.concatenate([neighbors[part], np.where(own < n, own, -1)], axis=1)
    return np.maximum(places, 0), places >= 0


def gather(values, places, there):
    """Rows (b, s, q), zeros where there are none."""
    return np.where(there[:, :, None], values[places], 0.0)


def scatter(out, places, there, values):
    """Add rows to `out`, which repeats may meet."""
    np.add.at(out, places[there], values[there])


def cholesky(M):
    """Stacked factors, NaN where there is none."""
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


def factor(blocks_of, phi, noise, neighbors, first, g):
    """A, L and F; ``blocks_of(part, places)`` gives kernel blocks."""
    (count, k), n, s = neighbors.shape, len(phi), neighbors.shape[1] + g
    A, L, F = np.empty((count, g, k)), np.empty((count, g, g)), np.empty((count, k, k))
    for part in batches(count, s * (s + phi.shape[1])):
        places, there = local_rows(neighbors, part, first, n, g)
        local = phi[places]
        M = blocks_of(part, places) - local @ local.transpose(0, 2, 1)
        M = M + noise[places][:, :, None] * np.eye(s)
        M = np.where(there[:, :, None] & there[:, None, :], M, np.eye(s))
        M[~np.isfinite(M).all(axis=(1, 2))] = np.nan
        root = cholesky(M)
        bad = ~np.isfinite(root).all(axis=(1, 2))[:, None, None]
        root = np.where(bad, np.eye(s), root)
        F[part], L[part] = root[:, :k, :k], root[:, k:, k:]
        A[part] = root[:, k:, :k] @ np.linalg.inv(F[part])
        for out in (A, L, F):
            out[part] = np.where(bad, np.nan, out[part])
    return A, L, F


def covariance_bar(A, L, F, A_bar, L_bar, there):
    """Symmetric cotangents (b, s, s) of M, as in `factor_block_grad`."""
    inverse, eye = np.linalg.inv(L), np.eye(L.shape[1])
    P = np.tril(L.transpose(0, 2, 1) @ L_bar) * (1.0 - 0.5 * eye)
    P = inverse.transpose(0, 2, 1) @ P @ inverse
    half, near = 0.25 * (P + P.transpose(0, 2, 1)), np.linalg.inv(F)
    G = A_bar @ near.transpose(0, 2, 1) @ near
    Z = np.concatenate([0.5 * G - half @ A, half], axis=2)
    Ut = np.concatenate([-A, np.broadcast_to(eye, L.shape)], axis=2)
    M_bar = Ut.transpose(0, 2, 1) @ Z
    M_bar += M_bar.transpose(0, 2, 1)
    return np.where(there[:, :, None] & there[:, None, :], M_bar, 0.0)


def factor_grad(phi, noise, neighbors, first, A, L, F, A_bar, L_bar):
    """Cotangents of features and noise, and batch by batch those of the kernel's blocks."""
    n, g = len(phi), A.shape[1]
    s, bars = neighbors.shape[1] + g, []
    phi_bar, noise_bar = np.zeros(phi.shape), np.zeros(n)
    for part in batches(len(neighbors), s * (s + phi.shape[1])):
        places, there = local_rows(neighbors, part, first, n, g)
        M_bar = covariance_bar(A[part], L[part], F[part], A_bar[part], L_bar[part], there)
        scatter(phi_bar, places, there, -2.0 * M_bar @ phi[places])
        scatter(noise_bar, places, there, np.einsum("bii->bi", M_bar))
        bars.append((part, places, M_bar))
    return bars, phi_bar, noise_bar


def whiten(V, A, L, neighbors):
    """``L^-1 (own - A near)``."""
    (n, q), (count, g, k) = V.shape, A.shape
    out = np.empty((count * g, q))
    for part in batches(count, (k + g) * max(q, k + g)):
        local = gather(V, *local_rows(neighbors, part, 0, n, g))
        white = np.linalg.inv(L[part]) @ (local[:, k:] - A[part] @ local[:, :k])
        out[part.start * g : part.stop * g] = white.reshape((-1 if q else white.shape[0] * g, q))
    return out[:n]


def whiten_grad(V, A, L, neighbors, W, W_bar):
    """Cotangents of V, A and L."""
    n, (count, g, k) = len(V), A.shape
    V_bar, A_bar, L_bar = np.zeros(V.shape), np.zeros(A.shape), np.zeros(L.shape)
    for part in batches(count, (k + g) * max(V.shape[1], k + g)):
        places, there = local_rows(neighbors, part, 0, n, g)
        near = gather(V, places, there)[:, :k]
        white, bar = (gather(values, places, there)[:, k:] for values in (W, W_bar))
        T = np.linalg.inv(L[part]).transpose(0, 2, 1) @ bar
        back = np.concatenate([-A[part].transpose(0, 2, 1) @ T, T], axis=1)
        scatter(V_bar, places, there, back)
        A_bar[part] = -T @ near.transpose(0, 2, 1)
        L_bar[part] = -np.tril(T @ white.transpose(0, 2, 1))
    return V_bar, A_bar, L_bar


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


def local_squares(X, scale, places):
    """Squared differences of scaled inputs, one dimension after the other."""
    for a in range(X.shape[1]):
        x = (X[places, a] - X[places[:, :1], a]) * scale[a]
        yield (x[:, :, None] - x[:, None]) ** 2


def add_kernel_bars(bars, kind, X, scale, variance, shape, places, M_bar):
    """Add to the cotangents of the inverse lengthscales, of the variance and of alpha."""
    squares = sum(local_squares(X, scale, places), np.zeros(M_bar.shape))
    value = kernel_of_squares(kind, squares, shape, np)
    slope = value * slope_of_squares(kind, squares, shape, np)
    d = X.shape[1]
    bars[d] += (M_bar * value).sum()
    if kind == "RatQuad":
        change = shape_slope_of_squares(squares, shape, np)
        bars[d + 1] += (M_bar * variance * value * change).sum()
    weight = M_bar * slope * variance
    for a, part in enumerate(local_squares(X, scale, places)):
        total = (weight * part).sum()
        if total != 0.0:
            bars[a] += 2.0 * total / scale[a]
