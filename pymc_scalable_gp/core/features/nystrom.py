"""Features from inducing points: any kernel, any points."""

from copy import copy
from typing import Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.features.reach import InputRange
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import split_scale
from pymc_scalable_gp.ops.inverse_cholesky import inverse_cholesky
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.compiled import compiled, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER


class NystromMap(FeatureMap):
    """``phi(x) = L^{-1} k(Z, x)`` with ``L L' = k(Z, Z)``, for inducing points Z (m, d).

    `low` and `high` (d,) are the range of the training inputs.
    """

    by_rows = False

    def __init__(self, cov_func, points, low, high):
        self.cov_func, self.points, self.low, self.high = cov_func, points, low, high
        scale, kernels = split_scale(cov_func)
        self.scale = pt.as_tensor_variable(scale).astype("float64")
        self.shape = cov_func if len(kernels) != 1 or self.scale.ndim else kernels[0]
        if self.shape is cov_func:
            self.scale = pt.constant(1.0)

    @property
    def rank(self):
        """Number of points."""
        return self.points.type.shape[0]

    def basis(self, X):
        """Features of the kernel without its scale."""
        if not self.rank:
            return pt.zeros((X.shape[0], 0))
        return pt.specify_shape(nystrom(self.shape, X, self.points), (None, self.rank))

    @property
    def input_range(self):
        """The range of the training inputs, beyond which features lose prior variance."""
        return InputRange(self.low, self.high)

    def mixing(self):
        """The root of the scale, as a matrix."""
        return pt.sqrt(self.scale) * pt.eye(self.rank)

    def features(self, X):
        """Features (n, m)."""
        if not self.rank:
            return self.basis(X)
        root = pt.sqrt(self.scale)
        if self.by_rows:
            root = root * _inverse_root(self.shape, self.points)
            phi = product(kernel_matrix(self.shape, X, self.points), root, transpose_b=True)
        else:
            phi = nystrom(self.shape, X, self.points, root)
        return pt.specify_shape(phi, (None, self.rank))

    def for_residual(self):
        """The same features, stored row by row."""
        other = copy(self)
        other.by_rows = True
        return other

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return kernel_diag(self.cov_func, X)

    def outside(self, X):
        """None: the features use the exact kernel everywhere."""
        return None


def nystrom(cov_func, X, points, factor=1.0):
    """Features (n, m) of the kernel at X (n, d) times `factor`, for points (m, d); stored by columns."""
    # By a product with the inverse, which is several times as fast as to solve for n columns.
    cross = kernel_matrix(cov_func, X, points)
    return product(factor * _inverse_root(cov_func, points), cross, transpose_b=True).T


def _inverse_root(cov_func, points):
    K = kernel_matrix(cov_func, points)
    K = K + KERNEL_JITTER * pt.diag(K).mean() * pt.eye(K.shape[0])
    return inverse_cholesky(K[None], 0.0)[0]


# A pivot whose residual variance is below this share of the largest prior variance adds nothing.
DEPENDENT = 1e-10

# A residual variance below minus this share of the largest prior variance may be no rounding error.
INDEFINITE = 1e-6

# Most rows among which points are chosen: they cover the variance of the others, and a factor of all
# rows would be the largest array of a likelihood that needs none.
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
        self._columns = compiled([*inputs, points], graphs[0])
        self._values = values
        diag = compiled(inputs, graphs[1])(*values)
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
    return inputs, point_values(inputs, point, model, fill=True, whole=False)


def indefinite(row, variance, scale) -> ValueError:
    """The error for a residual `variance` at `row` that is negative beyond rounding."""
    return ValueError(
        f"the kernel is not positive semidefinite: given the other points, row {row} has variance "
        f"{variance:.3g} (prior variances are up to {scale:.3g})"
    )


def pivots(kernel: Columns, count: int, rng) -> np.ndarray:
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


def pivoted_rows(cov_func, X, count: int, random_seed=0, point=None) -> np.ndarray:
    """Rows of X (n, d) chosen by the kernel alone, of at most `ROWS` random ones; see :func:`pivots`."""
    rng = np.random.default_rng(random_seed)
    rows = np.arange(len(X))
    if len(X) > ROWS:
        rows = np.sort(rng.permutation(len(X))[:ROWS])
    return rows[pivots(KernelAt(cov_func, X[rows], point), count, rng)]
