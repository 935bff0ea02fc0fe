"""Functions of rows, evaluated in blocks, and the triangular factor of what they give."""

import threading

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_scalable_gp.core.row_factor import RowFactor
from pymc_scalable_gp.utils.blocks import blocks
from pymc_scalable_gp.utils.evaluate import FEW_CALLS


class RowFunction:
    """Numbers of a symbolic map (rows, d) -> (rows, p) that has no free parameters.

    It may be called from several threads, and sent to other processes: each compiles its own.
    """

    def __init__(self, function):
        self._X = pt.matrix("X", dtype="float64")
        self._values = function(self._X)
        self._local = threading.local()

    def __getstate__(self):
        return {"_X": self._X, "_values": self._values}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._local = threading.local()

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Values at inputs (rows, d)."""
        if not hasattr(self._local, "compiled"):
            self._local.compiled = pytensor.function(
                [self._X], self._values, mode=FEW_CALLS, trust_input=True, on_unused_input="ignore"
            )
        return self._local.compiled(X)


def triangle_of_rows(function: RowFunction, X, target=None, progressbar=True) -> np.ndarray:
    """R with ``R'R = A'A``, for A the function's values at X (n, d).

    With a `target` (n,) the last column of A is that, less the function's last value.
    """
    factor = None
    for rows, block in blocks(X, label="Summarising the rows", progressbar=progressbar):
        values = function(block)
        if target is not None:
            values[:, -1] = target[rows] - values[:, -1]
        factor = RowFactor(values.shape[1]) if factor is None else factor
        factor.add(values)
    return factor.triangle()


def cross_products(function: RowFunction, X, target, progressbar=True) -> tuple[np.ndarray, float]:
    """``B'e`` (k,) and ``e'e``, for ``[B | mean]`` the function's values and e the target less the mean."""
    cross, square = 0.0, 0.0
    for rows, block in blocks(X, label="Projecting the targets", progressbar=progressbar):
        values = function(block)
        e = target[rows] - values[:, -1]
        cross, square = cross + values[:, :-1].T @ e, square + float(e @ e)
    return cross, square
