"""Passes over the rows of a training set in blocks: singular factor and projections."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_scalable_gp.ops._kernels import add_gram, qr_transposed
from pymc_scalable_gp.utils.blocks import BLOCK, blocks
from pymc_scalable_gp.utils.evaluate import FEW_CALLS

# Above this many multiplications the Gram matrix replaces the QR: half the work, at matrix-product
# speed, and singular values are then good to 1e-8 of the largest.
QR_LIMIT = 5e10


# Directions of a relative size below this are left out: their variance, its square, is below the
# rounding of the largest.
SINGULAR_CUTOFF = 1e-7


def compile_features(features) -> Callable[[np.ndarray], np.ndarray]:
    """Compile a symbolic map (rows, d) -> (rows, r) that has no free parameters."""
    X = pt.matrix("X", dtype="float64")
    return pytensor.function([X], features(X), mode=FEW_CALLS, trust_input=True)


@dataclass(frozen=True)
class Singular:
    """``Phi = U diag(s) V'`` without U: all that a likelihood with one noise variance needs."""

    values: np.ndarray  # s, (k,), decreasing; k is the numerical rank
    vectors: np.ndarray  # V, (r, k)


def singular_factor(features, X, rank: int, progressbar: bool = True) -> Singular:
    """Singular values and right singular vectors of the feature matrix at X, in row blocks.

    ``features`` maps (rows, d) to (rows, r). O(n r^2) time, O(BLOCK r + r^2) memory.
    """
    label = "Summarising the rows"
    use_qr = X.shape[0] * float(rank) ** 2 <= QR_LIMIT
    gram = np.zeros((rank, rank))
    work = np.zeros((rank, rank + BLOCK))
    for _, block in blocks(X, label=label, progressbar=progressbar):
        phi_t = np.ascontiguousarray(features(block).T)
        if use_qr:
            work[:, rank : rank + phi_t.shape[1]] = phi_t
            work[:, rank + phi_t.shape[1] :] = 0.0
            qr_transposed(work)
            work[:, :rank] = np.tril(work[:, :rank])
        else:
            add_gram(phi_t, gram)
    if use_qr:
        _, values, vectors_t = np.linalg.svd(work[:, :rank].T)
        vectors = vectors_t.T
    else:
        squares, vectors = np.linalg.eigh(gram)
        values, vectors = np.sqrt(np.maximum(squares[::-1], 0.0)), vectors[:, ::-1]
    keep = values > SINGULAR_CUTOFF * values[0]
    return Singular(values[keep], np.ascontiguousarray(vectors[:, keep]))


def project(features, X, residual, singular: Singular, progressbar: bool = True) -> np.ndarray:
    """``u = U' e = S^-1 V' Phi' e`` in one pass over the rows."""
    total = np.zeros(singular.vectors.shape[0])
    for rows, block in blocks(X, label="Projecting the targets", progressbar=progressbar):
        total += features(block).T @ residual[rows]
    return (singular.vectors.T @ total) / singular.values
