"""The Krylov basis of a kernel matrix and the targets."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.cov.queries import warn_unused_columns
from pymc_scalable_gp.linops.base import LinearOperator
from pymc_scalable_gp.linops.krylov import cg_residuals, tridiagonal
from pymc_scalable_gp.linops.structured import Dense
from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator
from pymc_scalable_gp.ops.lanczos import lanczos
from pymc_scalable_gp.ops.stacked_cholesky import cholesky
from pymc_scalable_gp.ops.stacked_solve import lower_solve
from pymc_scalable_gp.utils.compiled import evaluate_at
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER, KRYLOV_JITTER

# Steps P when none are given, and there are as many rows.
DEFAULT_STEPS = 100


@dataclass(frozen=True, eq=False)
class KrylovBasis:
    r"""``K_M Q_P = Q_{P+1} (T; beta_P e_P')`` from P Lanczos steps that start at the residual.

    With ``L L' = T``, the features are ``phi(x) = L^{-1} Q_P' k(X_M, x)``; at the rows M themselves
    ``Phi = Q_{P+1} A`` with ``A = (T; beta_P e_P') L^{-T}``.

    Where the steps span all rows, features need no steps: with the `distinct` rows for directions they
    are the same kernel, and its gradient does not run through directions that are rounding.
    """

    cov_func: Any
    steps: int
    X: Data
    rows: np.ndarray | None  # of X, or None for all of them
    inner: TensorVariable  # X at those rows
    operator: LinearOperator
    Q: TensorVariable  # (M, P + 1)
    alpha: TensorVariable
    beta: TensorVariable
    distinct: np.ndarray | None = None  # rows of M that stand for all, where the steps span them

    @classmethod
    def of(
        cls, cov_func, steps: int | None, subset, X: Data, residual: TensorVariable
    ) -> "KrylovBasis":
        """From inputs X, a subset of their rows (a number, indices or None), and residuals (n,).

        Without `steps`, of 100, or of as many as there are rows.

        Raises
        ------
        TypeError, ValueError
            For a bad subset, or more steps than rows.
        """
        warn_unused_columns(cov_func, X.value.shape[1])
        rows = None if subset is None else choose_rows(subset, X.value.shape[0])
        size = X.value.shape[0] if rows is None else len(rows)
        if steps is None:
            steps = min(DEFAULT_STEPS, size)
        if steps > size:
            raise ValueError(f"n_iter={steps} exceeds the {size} rows it works on: lower it")
        index = slice(None) if rows is None else rows
        if X.mutable and np.ndim(subset) == 0 and subset is not None:
            places = pt.arange(size) * (X.tensor.shape[0] - 1) / max(size - 1, 1)
            index = pt.round(places).astype("int64")
        inner, start = X.tensor[index], residual[index]
        if X.grid is not None:
            operator = kernel_operator(cov_func, X.grid, X.grid)
        else:
            operator = Dense(kernel_matrix(cov_func, inner))
        start = pt.specify_shape(start, (None if X.mutable else size,))
        Q, alpha, beta = lanczos(operator, _nonzero(start), steps)
        return cls(cov_func, steps, X, rows, inner, operator, Q, alpha, beta)

    def spanning(self) -> "KrylovBasis":
        """For features alone: by the distinct rows, where the steps are as many."""
        if self.X.mutable or is_random(self.X.tensor):  # other rows may come, more than steps
            return self
        values = self.X.value if self.rows is None else self.X.value[self.rows]
        distinct = np.sort(np.unique(values, axis=0, return_index=True)[1])
        return replace(self, distinct=distinct) if self.steps >= len(distinct) else self

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.steps if self.distinct is None else len(self.distinct)

    @cached_property
    def L(self) -> TensorVariable:
        """Cholesky factor of T, or of the kernel between distinct rows; NaN where that fails."""
        if self.distinct is None:
            T, share = tridiagonal(self.alpha, self.beta), KRYLOV_JITTER
        else:
            T, share = self.products[self.distinct], KERNEL_JITTER / self.rank
        jitter = share * pt.maximum(pt.diag(T).sum(), np.finfo(float).tiny)
        return cholesky(T + jitter * pt.eye(self.rank))

    @cached_property
    def products(self) -> TensorVariable:
        """Kernel matrix times the directions (M, rank)."""
        return self.operator.matmat(self.directions)

    def features(self) -> TensorVariable:
        """At the rows M."""
        if self.distinct is None:
            return self.Q @ self.coordinates
        return self.scaled(self.products)

    @cached_property
    def coordinates(self) -> TensorVariable:
        """A (P + 1, P)."""
        last = pt.set_subtensor(pt.zeros(self.steps)[-1], self.beta[-1])
        T = tridiagonal(self.alpha, self.beta)
        return self.scaled(pt.concatenate([T, last[None, :]], axis=0))

    @cached_property
    def directions(self) -> TensorVariable:
        """Q_P (M, P), or unit vectors."""
        if self.distinct is None:
            return self.Q[:, :-1]
        return pt.constant(np.eye(self.operator.shape[0])[:, self.distinct])

    @cached_property
    def on_all_cells(self) -> TensorVariable:
        """The directions over all cells of a grid, zero where it is not observed."""
        grid = self.X.grid
        if grid is None or grid.observed is None:
            return self.directions
        return pt.zeros((grid.size, self.rank))[grid.places].set(self.directions)

    def scaled(self, products) -> TensorVariable:
        """``products L^{-T}``."""
        return lower_solve(self.L, products.T).T

    def residuals(self, points=(None,), model=None) -> np.ndarray:
        """``|b - K_M x_j| / |b|`` of conjugate gradients on ``K_M x = b`` after j = 1..P steps.

        Of shape (len(points), P).
        """
        runs = evaluate_at([self.alpha, self.beta], points, model)
        return np.array([cg_residuals(*run) for run in runs])


def _nonzero(start):
    """The start vector; ones where it is zero: the variance does not depend on the targets' size."""
    return pt.switch(pt.eq(start, 0.0).all(), pt.ones_like(start), start)


def choose_rows(subset, n) -> np.ndarray:
    """Rows of the subset: the given ones, or so many evenly spaced ones.

    Raises
    ------
    TypeError, ValueError
        For more rows than there are, rows out of range, or a row given twice.
    """
    if isinstance(subset, int | np.integer) and not isinstance(subset, bool):
        if not 1 <= subset <= n:
            raise ValueError(f"inducing={subset} must lie between 1 and the number of rows, {n}")
        return np.linspace(0, n - 1, subset).round().astype(int)
    rows = np.asarray(subset)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise TypeError(
            "inducing must be the size of a subset, or the integer indices of its rows, got "
            f"{type(subset).__name__} of shape {rows.shape}"
        )
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"inducing names row {rows.max()}, but there are {n} rows")
    if len(np.unique(rows)) < len(rows):
        raise ValueError("inducing names a row more than once")
    return rows
