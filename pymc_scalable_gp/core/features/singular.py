"""Singular values and vectors of a feature matrix, from the triangle of its rows."""

from dataclasses import dataclass

import numpy as np

# Where one divides by singular values, directions of a relative size below this are left out: their
# variance, its square, is below the rounding of the largest.
SINGULAR_CUTOFF = 1e-7


@dataclass(frozen=True)
class Singular:
    """``Phi = U diag(s) V'`` without U: all that a likelihood with one noise variance needs."""

    values: np.ndarray  # s, (k,), decreasing; k is the numerical rank
    vectors: np.ndarray  # V, (r, k)

    @classmethod
    def of(cls, triangle: np.ndarray, cutoff=SINGULAR_CUTOFF) -> tuple["Singular", np.ndarray]:
        """From R (q, r), with ``R'R = Phi'Phi``; also an orthogonal matrix (q, q), first columns R's U."""
        left, values, vectors_t = np.linalg.svd(triangle)
        keep = values > cutoff * values[0]
        return cls(values[keep], np.ascontiguousarray(vectors_t[: len(values)][keep].T)), left
