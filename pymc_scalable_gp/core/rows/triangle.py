"""The triangular factor of a tall matrix whose rows come in blocks, are put together, or taken away."""

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.features.singular import SINGULAR_CUTOFF
from pymc_scalable_gp.utils.blocks import blocks
from pymc_scalable_gp.utils.threads import ForThreads

# Above this many multiplications the Gram matrix replaces the QR: half the work, at matrix-product
# speed. Squares of singular values are then good to 1e-15 of the largest, singular values to 3e-8.
QR_LIMIT = 5e10

# Rows that are worked on at a time, at least.
_ROWS = 2048

# Least share of a direction's sum of squares that must stay when rows are taken away. What stays is
# known to 1e-16 / share, and to 1e-9 / share in directions of the cutoff's size.
_LEAST_LEFT = 1e-6


def triangle(rows: np.ndarray) -> np.ndarray:
    """Upper triangle R (p, p), diagonal not negative, with ``R'R = rows' rows`` for rows (b, p)."""
    p = rows.shape[1]
    found = np.zeros((p, p))
    r = np.linalg.qr(rows, mode="r")
    found[: len(r)] = r
    found[np.diagonal(found) < 0.0] *= -1.0
    return found


def triangle_of_gram(gram: np.ndarray) -> np.ndarray:
    """R with ``R'R = gram`` (p, p), positive semidefinite up to rounding."""
    scale = _lengths(np.sqrt(np.diagonal(gram)))
    values, vectors = np.linalg.eigh(gram / scale[:, None] / scale)
    return triangle(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T * scale)


def _lengths(norms):
    """Norms of columns, to divide by."""
    return np.where(norms > 0.0, norms, 1.0)


def without(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
    r"""R with ``R'R = whole' whole - part' part``, for triangles (p, p).

    With ``whole = U S V'`` and ``part V S^-1 = P diag(c) W'``: ``R'R = V S W diag(1 - c^2) W' S V'``.

    Raises ValueError when less than 1e-6 of a direction's sum of squares would be left: rounding would
    be in its place.
    """
    scale = _lengths(np.linalg.norm(whole, axis=0))
    _, values, vectors_t = np.linalg.svd(whole / scale)
    keep = values > SINGULAR_CUTOFF * values[0]
    values, vectors_t = values[keep], vectors_t[keep]
    _, shares, turned = np.linalg.svd((part / scale) @ vectors_t.T / values)
    left = 1.0 - shares**2
    if left.size and left.min() < _LEAST_LEFT:
        raise ValueError(
            f"taking those rows away leaves {max(left.min(), 0.0):.1g} of the sum of squares in some "
            "direction, which rounding swamps (or they are no part of the whole): summarise the rows "
            "that stay instead"
        )
    return triangle(np.sqrt(left)[:, None] * (turned * values) @ vectors_t * scale)


class RowFactor:
    """``R'R = A'A`` of rows A (n, p) that come in blocks: O(n p^2) time, O(p^2) memory.

    By QR of each block under the triangle so far (TSQR), and by the Gram matrix once `limit`
    multiplications are spent.
    """

    def __init__(self, width: int, limit: float = QR_LIMIT):
        self.width, self.size = width, 0
        self._limit = limit
        self._work = np.zeros((width + max(_ROWS, 2 * width), width))
        self._held = 0  # rows of the work space, below the triangle, that are not in it yet
        self._gram: np.ndarray | None = None
        self._by_gram()

    def add(self, rows: np.ndarray) -> None:
        """Take in rows (b, p)."""
        space = len(self._work) - self.width
        while len(rows) and self._gram is None:
            taken = rows[: space - self._held]
            start = self.width + self._held
            self._work[start : start + len(taken)] = taken
            self._held += len(taken)
            self.size += len(taken)
            rows = rows[len(taken) :]
            if self._held == space:
                self._reduce()
        if len(rows):
            self._gram += rows.T @ rows
            self.size += len(rows)

    def add_triangle(self, factor: np.ndarray, size: int) -> None:
        """Take in the triangle (p, p) of `size` rows."""
        self.add(factor)
        self.size += size - len(factor)

    def _by_gram(self):
        if self.size * float(self.width) ** 2 > self._limit:
            top = self._work[: self.width]
            self._gram = top.T @ top

    def _reduce(self):
        self._work[: self.width] = triangle(self._work[: self.width + self._held])
        self._held = 0
        self._by_gram()

    def triangle(self) -> np.ndarray:
        """R (p, p) of all rows so far."""
        if self._held:
            self._reduce()
        return self._work[: self.width].copy() if self._gram is None else triangle_of_gram(self._gram)


class RowFunction(ForThreads):
    """Numbers of a symbolic map (rows, d) -> (rows, p) that has no free parameters."""

    def __init__(self, function):
        X = pt.matrix("X", dtype="float64")
        super().__init__([X], function(X), trust_input=True)


def target_blocks(function: RowFunction, X, target, label=None, progressbar=True):
    """Values at X (n, d) in blocks; with a `target` (n,) the last column is that, less the last value."""
    for rows, block in blocks(X, label=label, progressbar=progressbar):
        values = function(block)
        if target is not None:
            values[:, -1] = target[rows] - values[:, -1]
        yield values


def triangle_of_rows(function: RowFunction, X, target=None, progressbar=True) -> np.ndarray:
    """R with ``R'R = A'A``, for A the rows of :func:`target_blocks`."""
    factor = None
    for values in target_blocks(function, X, target, "Summarising the rows", progressbar):
        factor = RowFactor(values.shape[1]) if factor is None else factor
        factor.add(values)
    return factor.triangle()
