"""Points chosen by the kernel alone: the largest variance given those before."""

from typing import Protocol

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_scalable_gp.cov.evaluate import kernel_diag, kernel_matrix
from pymc_scalable_gp.utils.evaluate import FEW_CALLS, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import is_random

# A pivot whose residual variance is below this share of the largest prior variance adds nothing.
DEPENDENT = 1e-10


# A residual variance below minus this share of the largest prior variance may be no rounding error.
INDEFINITE = 1e-6


# Points are chosen among so many rows at most: variance is covered without the others, and a factor of
# all rows would be the largest array of a likelihood that needs none.
ROWS = 65_536

# Variances that differ by a smaller share are equal: which row is taken then is the seed's choice, not
# that of rounding.
TIE = 1e-9


class Columns(Protocol):
    """A symmetric positive semidefinite matrix that is known by its columns and its diagonal."""

    def columns(self, rows: np.ndarray) -> np.ndarray:
        """Columns (n, k) at the given rows (k,)."""
        ...

    def diag(self) -> np.ndarray:
        """Diagonal (n,)."""
        ...


class KernelAt:
    """The kernel matrix of the rows of X (n, d) at one point of the model: its columns and diagonal.

    Parameters
    ----------
    cov_func : pm.gp.cov.Covariance
    X : array, shape (n, d)
    point : dict, optional
        Hyperparameters by name; the model's initial point for those left out.

    Raises
    ------
    ValueError
        Outside the model context, where a hyperparameter is a random variable; or where the prior
        variances at `point` are not finite and positive.
    """

    def __init__(self, cov_func, X, point=None):
        self.X = X
        rows, points = pt.constant(X), pt.matrix("points", dtype="float64")
        graphs = [kernel_matrix(cov_func, rows, points), kernel_diag(cov_func, rows)]
        inputs, values = reference_values(graphs, point, [points])
        options = {"mode": FEW_CALLS, "on_unused_input": "ignore", "allow_input_downcast": True}
        self._columns = pytensor.function([*inputs, points], graphs[0], **options)
        self._values = values
        diag = pytensor.function(inputs, graphs[1], **options)(*values)
        self._diag = np.array(diag, dtype=float)
        if not (np.isfinite(self._diag).all() and self._diag.max() > 0.0):
            given = dict(zip([v.name for v in inputs], values, strict=True))
            raise ValueError(
                f"the prior variances are not finite and positive at {given}: build with "
                "point={...}, values of plausible size"
            )

    def columns(self, rows):
        """Columns (n, k) at the given rows (k,)."""
        return np.asarray(self._columns(*self._values, self.X[rows]), dtype=float)

    def diag(self):
        """Diagonal (n,)."""
        return self._diag


def reference_values(graphs, point=None, known=()) -> tuple[list, list]:
    """Random variables behind graphs of `known` inputs, and their values at a point of the model.

    Raises
    ------
    ValueError
        Outside the model context, where there are any.
    """
    if not is_random(*graphs, known=known):
        return [], []
    model = pm.Model.get_context(error_if_none=False)
    if model is None:
        raise ValueError(
            "cov_func has random hyperparameters, whose values the choice of points needs: build in "
            "the model context, or give indices="
        )
    inputs = model_inputs(graphs, model)
    return inputs, point_values(inputs, point, model, fill=True)


def indefinite(row, variance, scale) -> ValueError:
    """The error for a residual `variance` at `row` that is negative beyond rounding."""
    return ValueError(
        f"the kernel is not positive semidefinite: given the other points, row {row} has variance "
        f"{variance:.3g} (prior variances are up to {scale:.3g})"
    )


def spread(kernel: Columns, count: int, rng) -> np.ndarray:
    r"""Rows chosen one after the other, each with the largest variance given those before.

    Partial Cholesky factor ``L`` of K with complete pivoting: row i has variance
    ``K_ii - sum_k L_ki^2`` given the rows before. O(n m^2), and m columns of K.

    Parameters
    ----------
    kernel : Columns
        The matrix K (n, n).
    count : int
        Most rows to choose.
    rng : np.random.Generator
        Chooses among rows of the same variance.

    Returns
    -------
    array, shape (m,)
        Fewer than `count` rows where the rest depend on them up to rounding.

    Raises
    ------
    ValueError
        If a variance is negative beyond rounding, so that K is not positive semidefinite, or a column
        is not finite.
    """
    left = kernel.diag().copy()
    scale, floor = left.max(), DEPENDENT * left.max()
    order = rng.permutation(len(left))
    L, chosen = np.zeros((count, len(left))), []
    while len(chosen) < count and left.max() > floor:
        k = len(chosen)
        row = order[np.argmax(left[order] >= left.max() * (1.0 - TIE))]
        column = kernel.columns(np.array([row]))[:, 0] - L[:k, row] @ L[:k]
        if not np.isfinite(column).all():
            raise ValueError(
                f"the kernel is not finite between row {row} and others: choose the points at "
                "hyperparameters of plausible size, point={...}"
            )
        # The diagonal and the columns of a kernel may differ in rounding, as Matern's do by 1e-6.
        floor = max(floor, 2.0 * abs(left[row] - column[row]))
        left[row] = 0.0
        if column[row] <= floor:
            continue
        L[k] = column / np.sqrt(column[row])
        left -= L[k] ** 2
        chosen.append(row)
        left[chosen] = 0.0
        if left.min() < -INDEFINITE * scale:
            raise indefinite(int(np.argmin(left)), left.min(), scale)
    return np.array(chosen, dtype=int)


def spread_rows(cov_func, X, count: int, random_seed=0, point=None) -> np.ndarray:
    """Rows of X (n, d) chosen by the kernel alone, of at most `ROWS` random ones; see :func:`spread`."""
    rng = np.random.default_rng(random_seed)
    rows = np.arange(len(X))
    if len(X) > ROWS:
        rows = np.sort(rng.permutation(len(X))[:ROWS])
    return rows[spread(KernelAt(cov_func, X[rows], point), count, rng)]
