"""Passes over the rows of a training set in blocks: factor, projections, predictions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.ops._kernels import add_gram, qr_transposed

BLOCK = 4096
# Above this many multiplications the Gram matrix replaces the QR: half the work, at matrix-product
# speed, and singular values are then good to 1e-8 of the largest.
QR_LIMIT = 5e10


def compile_features(feature_map) -> Callable[[np.ndarray], np.ndarray]:
    """Function (rows, d) -> features (rows, r) of a map without free parameters."""
    X = pt.matrix("X", dtype="float64")
    return pytensor.function([X], feature_map.features(X), trust_input=True)


def blocks(
    X: np.ndarray, size: int = BLOCK, label: str | None = None, progressbar: bool = True
) -> Iterator[tuple[slice, np.ndarray]]:
    """Row blocks of X, contiguous, with a progress bar when there are many."""
    n = X.shape[0]
    starts = range(0, n, size)
    progress = create_simple_progress(progressbar=progressbar and label and len(starts) > 20)
    with progress:
        task = progress.add_task(label, completed=0, total=len(starts))
        for start in starts:
            yield slice(start, min(start + size, n)), np.ascontiguousarray(X[start : start + size])
            progress.advance(task)


@dataclass(frozen=True)
class Singular:
    """``Phi = U diag(s) V'`` without U: what an orthogonal basis on the training rows needs."""

    values: np.ndarray  # (r~,), decreasing
    vectors: np.ndarray  # V, (r, r~)


def singular_factor(features, X, rank: int, progressbar: bool = True) -> Singular:
    """Singular values and right singular vectors of the feature matrix at X, in row blocks.

    ``features`` maps (rows, d) to (rows, r). O(n r^2) time, O(BLOCK r + r^2) memory. Directions with
    ``s <= 1e-7 s_max`` (their variance is below rounding of the largest) are left out.
    """
    use_qr = X.shape[0] * float(rank) ** 2 <= QR_LIMIT
    gram = np.zeros((rank, rank))
    work = np.zeros((rank, rank + BLOCK))
    for _, block in blocks(X, label="Rotating the basis", progressbar=progressbar):
        phi_t = np.ascontiguousarray(features(block).T)
        if use_qr:
            work[:, rank : rank + phi_t.shape[1]] = phi_t
            work[:, rank + phi_t.shape[1] :] = 0.0
            qr_transposed(work)
            work[:, :rank] = np.tril(work[:, :rank])
        else:
            add_gram(phi_t, gram, 1.0)
    if use_qr:
        _, values, vectors_t = np.linalg.svd(work[:, :rank].T)
        vectors = vectors_t.T
    else:
        squares, vectors = np.linalg.eigh(gram)
        values, vectors = np.sqrt(np.maximum(squares[::-1], 0.0)), vectors[:, ::-1]
    keep = values > 1e-7 * values[0]
    return Singular(values[keep], np.ascontiguousarray(vectors[:, keep]))


@dataclass(frozen=True)
class Summary:
    """``Phi = Q R``: R, ``Q'e`` and what is left of ``e'e``, all that a scalar-noise likelihood needs."""

    n: int
    factor: np.ndarray  # R, (r, r)
    projected: np.ndarray  # Q'e, (r,)
    rest: float  # ||e||^2 - ||Q'e||^2


def summarize(features, X, residual, rank: int, progressbar: bool = True) -> Summary:
    """Summary of feature rows and residual by QR in row blocks; costs as `singular_factor`."""
    work = np.zeros((rank + 1, rank + 1 + BLOCK))
    for rows, block in blocks(X, label="Summarising the rows", progressbar=progressbar):
        phi_t = features(block).T
        count = phi_t.shape[1]
        work[:rank, rank + 1 : rank + 1 + count] = phi_t
        work[rank, rank + 1 : rank + 1 + count] = residual[rows]
        work[:, rank + 1 + count :] = 0.0
        qr_transposed(work)
        work[:, : rank + 1] = np.tril(work[:, : rank + 1])
    factor = work[:rank, :rank].T.copy()
    return Summary(X.shape[0], factor, work[rank, :rank].copy(), float(work[rank, rank] ** 2))


def project(features, X, residual, singular: Singular, progressbar: bool = True) -> np.ndarray:
    """``u = U' e`` in one pass: `features` gives the rotated rows ``U diag(s)``."""
    total = np.zeros(len(singular.values))
    for rows, block in blocks(X, label="Projecting the targets", progressbar=progressbar):
        total += features(block).T @ residual[rows]
    return total / singular.values
