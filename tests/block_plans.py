"""Neighbours of blocks and dense regressions on them, for the tests of Ops."""

import numpy as np


def plan(n, g, k, first=0, seed=0):
    """Neighbours of blocks: random earlier rows, the first blocks have fewer than k."""
    rng = np.random.default_rng(seed)
    count = -(-(n - first) // g)
    out = np.full((count, k), -1)
    for b in range(count):
        before = first + b * g
        near = rng.permutation(before)[: min(k, before)]
        out[b, : len(near)] = near
    return out


def local(neighbors, b, n, g, first=0):
    """Known neighbours of block b, and its own rows."""
    near = neighbors[b][neighbors[b] >= 0]
    start = first + b * g
    return near, np.arange(start, min(start + g, n))


def dense_factor(K, neighbors, g, first=0):
    """A, L in full, from a covariance (n, n)."""
    count, k = neighbors.shape
    A, L = np.zeros((count, g, k)), np.tile(np.eye(g), (count, 1, 1))
    for b in range(count):
        near, own = local(neighbors, b, len(K), g, first)
        a = np.linalg.solve(K[np.ix_(near, near)], K[np.ix_(near, own)]).T
        A[b, : len(own), : len(near)] = a
        C = K[np.ix_(own, own)] - a @ K[np.ix_(near, own)]
        L[b, : len(own), : len(own)] = np.linalg.cholesky(C)
    return A, L


def dense_rows(A, L, neighbors, n):
    """Matrix (n, n) that whitens: L^-1 (own - A near), block by block."""
    g, out = A.shape[1], np.zeros((n, n))
    for b in range(len(A)):
        near, own = local(neighbors, b, n, g)
        rows = np.zeros((len(own), n))
        rows[np.arange(len(own)), own] = 1.0
        rows[:, near] -= A[b, : len(own), : len(near)]
        out[own] = np.linalg.solve(L[b, : len(own), : len(own)], rows)
    return out
