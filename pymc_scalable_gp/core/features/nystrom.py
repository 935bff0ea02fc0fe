"""Features from inducing points: any kernel, any points."""

from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.features.reach import InputRange
from pymc_scalable_gp.core.features.residual import FusedKernel, fused_kernel
from pymc_scalable_gp.cov.embedded import first_row
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import categorical_columns, split_scale, turning_columns, used_range
from pymc_scalable_gp.ops.stacked_cholesky import inverse_cholesky
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.ops.stationary_features import stationary_features
from pymc_scalable_gp.utils.compiled import check_reached, compiled, evaluate, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import is_random, model_here
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER, with_jitter

# A row whose residual variance is below this share of the largest prior variance depends on the points.
DEPENDENT = 1e-10

# A residual variance below minus this share of the largest prior variance is more than rounding error.
INDEFINITE = 1e-6

# Points are chosen among at most this many rows, which represent the others: with all rows, the partial
# Cholesky factor might be the largest array of all.
ROWS = 65_536

# Variances that differ by a smaller share are equal: the seed decides between such rows, not rounding.
TIE = 1e-9


class NystromMap(FeatureMap):
    """``phi(x) = L^{-1} k(Z, x)`` with ``L L' = k(Z, Z)``, for inducing points Z (m, d).

    `low` and `high` (d,) are the range of the training inputs, without ends in columns that the kernel does
    not look at.
    """

    by_rows = False

    def __init__(self, cov_func, points, low, high):
        self.cov_func, self.points = cov_func, points
        self.low, self.high = used_range(cov_func, low, high)
        scale, kernels = split_scale(cov_func)
        scale = pt.as_tensor_variable(scale).astype("float64")
        self.scale, self.unscaled = pt.constant(1.0), cov_func
        if kernels and not scale.ndim:
            self.scale, self.unscaled = scale, reduce(mul, kernels)

    @classmethod
    def without_points(cls, cov_func, X: np.ndarray) -> "NystromMap":
        """The kernel alone, on training inputs X (n, d)."""
        return cls(cov_func, pt.constant(X[:0]), X.min(axis=0), X.max(axis=0))

    @property
    def rank(self):
        return self.points.type.shape[0]

    def basis(self, X):
        """Features of the kernel without its scale."""
        if not self.rank:
            return pt.zeros((X.shape[0], 0))
        return pt.specify_shape(nystrom(self.unscaled, X, self.points), (None, self.rank))

    @property
    def input_range(self):
        probes = InputRange(self.low, self.high, labels=self.labels).probes  # at labels that there are
        return InputRange(self.low, self.high, probes, turns=turning_columns(self.cov_func, len(self.low)))

    @property
    def labels(self):
        """Those of the points; training rows may have others, so that a range does not refuse them."""
        columns = categorical_columns(self.cov_func, len(self.low), wrapped=False)
        if not len(columns) or is_random(self.points):
            return {}
        (points,) = evaluate([self.points])
        return {int(column): np.unique(points[:, column]) for column in columns}

    def mixing(self):
        return pt.sqrt(self.scale) * pt.eye(self.rank)

    def projection(self):
        if not self.rank:
            return self.points, pt.zeros((0, 0))
        return self.points, _inverse_root(self.unscaled, self.points) / pt.sqrt(self.scale)

    def features(self, X):
        if not self.rank:
            return self.basis(X)
        root = pt.sqrt(self.scale)
        if not self.by_rows:
            return pt.specify_shape(nystrom(self.unscaled, X, self.points, root), (None, self.rank))
        root = root * _inverse_root(self.unscaled, self.points)
        origin = first_row(X)
        kernel, points = (fused_kernel(self.unscaled, x, origin) for x in (X, self.points))
        if not (_is_single(kernel) and _is_single(points)):
            phi = product(kernel_matrix(self.unscaled, X, self.points), root, transpose_b=True)
        else:
            ((kind,),) = kernel.summands
            phi = stationary_features(
                kind, kernel.X, points.X, kernel.rates[0], kernel.shape[0], kernel.variance[0] * root
            )
        return pt.specify_shape(phi, (None, self.rank))

    def for_residual(self):
        return self.changed(by_rows=True)


def _is_single(kernel: FusedKernel | None) -> bool:
    """Whether it is one stationary kernel, with data for inputs and one variance for all rows."""
    if kernel is None or kernel.moving or kernel.rows is not None:
        return False
    return [len(kinds) for kinds in kernel.summands] == [1]


def nystrom(cov_func, X, points, factor=1.0):
    """Features (n, m) of the kernel at X (n, d) times `factor`, for points (m, d); stored by columns."""
    # By a product with the inverse, which is several times as fast as to solve for n columns.
    cross = kernel_matrix(cov_func, X, points)
    return product(factor * _inverse_root(cov_func, points), cross, transpose_b=True).T


def _inverse_root(cov_func, points):
    K = with_jitter(kernel_matrix(cov_func, points), KERNEL_JITTER)
    return inverse_cholesky(K[None], 0.0)[0]


class KernelColumns(NamedTuple):
    """The kernel matrix of n rows in numbers."""

    diag: np.ndarray  # (n,)
    columns: Callable[[np.ndarray], np.ndarray]  # of rows (k,): (n, k)


def kernel_columns(cov_func, X, point=None) -> KernelColumns:
    """The kernel matrix of the rows of X (n, d) at a point of the model, which may lack variables.

    Raises ValueError outside the model context, where a hyperparameter is a random variable; or where
    the prior variances at `point` are not finite and positive.
    """
    rows, points = pt.constant(X), pt.matrix("points", dtype="float64")
    graphs = [kernel_matrix(cov_func, rows, points), kernel_diag(cov_func, rows)]
    inputs, values = reference_values(graphs, point, [points])
    columns = compiled([*inputs, points], graphs[0])
    diag = np.array(compiled(inputs, graphs[1])(*values), dtype=float)
    if not (np.isfinite(diag).all() and diag.max() > 0.0):
        given = dict(zip([v.name for v in inputs], values, strict=True))
        raise ValueError(
            f"the prior variances are not finite and positive at {given}: build with "
            "point={...}, values of plausible size"
        )
    return KernelColumns(diag, lambda rows: np.asarray(columns(*values, X[rows]), dtype=float))


def reference_values(graphs, point=None, known=()) -> tuple[list, list]:
    """Random variables behind graphs of `known` inputs, and their values at a point of the model.

    Raises ValueError outside the model context, where there are any.
    """
    if not is_random(*graphs, known=known):
        return [], []
    model = model_here(needed=False)
    if model is None:
        raise ValueError(
            "cov_func has random hyperparameters, whose values the choice of points needs: build in "
            "the model context, or give indices="
        )
    inputs = model_inputs(graphs, model)
    check_reached(graphs, [*inputs, *known])
    return inputs, point_values(inputs, point, model, fill=True, whole=False)


def indefinite(row, variance, scale) -> ValueError:
    """The error for a residual `variance` at `row` that is negative beyond rounding."""
    return ValueError(
        f"the kernel is not positive semidefinite: given the other points, row {row} has variance "
        f"{variance:.3g} (prior variances are up to {scale:.3g})"
    )


def pivots(kernel: KernelColumns, count: int, rng) -> np.ndarray:
    r"""Rows chosen one after the other, each with the largest variance given those before.

    Partial Cholesky factor ``L`` of K (n, n) with complete pivoting: row i has variance
    ``K_ii - sum_k L_ki^2`` given the rows before. O(n m^2), and m columns of K. `rng` chooses among rows
    of the same variance. There are fewer than `count` rows where the rest depend on them up to rounding.

    Raises ValueError if a variance is negative beyond rounding, so that K is not positive semidefinite,
    or a column is not finite.
    """
    left = kernel.diag.copy()
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
    """Rows of X (n, d) chosen by the kernel alone, among at most `ROWS` random ones; see :func:`pivots`."""
    rng = np.random.default_rng(random_seed)
    rows = np.arange(len(X))
    if not count:
        return rows[:0]
    if len(X) > ROWS:
        rows = np.sort(rng.permutation(len(X))[:ROWS])
    return rows[pivots(kernel_columns(cov_func, X[rows], point), count, rng)]
