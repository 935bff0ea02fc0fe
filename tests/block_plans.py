"""Neighbours of blocks, for the tests of Ops."""

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
