"""The Krylov basis of a kernel matrix and the targets."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, check_rows
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
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER, KRYLOV_JITTER, with_diagonal

# Default number of steps P, where there are at least as many rows.
DEFAULT_STEPS = 100

# A direction that may consist of rounding errors gets less weight: half, where the beta before it is this
# share of the trace. Rounding errors are 1e-16 of the trace, and the direction is divided by beta.
DEFLATION = 1e-11

# Rounding errors of a direction grow in the next one by what the matrix does to the remaining directions,
# divided by beta. The largest alpha difference and beta of so many steps ahead tell that; ratios up to
# SLACK + 1 are those of decaying eigenvalues, whose errors do not grow.
SLACK, AHEAD = 4.0, 3
MOST_GROWTH = 50.0  # its logarithm, above which nothing of a direction is left


@dataclass(frozen=True, eq=False)
class KrylovBasis:
    r"""``K_M Q_P = Q_{P+1} (T; beta_P e_P')`` from P Lanczos steps that start at the residual.

    With ``L L' = T + R``, the features are ``phi(x) = L^{-1} Q_P' k(X_M, x)``; at the rows M themselves
    ``Phi = Q_{P+1} A`` with ``A = (T; beta_P e_P') L^{-T}``. Where rows occur more than once, M holds the
    distinct rows and the kernel matrix is ``D k D``, with D the square roots of how often each occurs. The
    steps start at ``D^{-1}`` times the sum of the residuals at each: the same Krylov space, without K_M's
    null space. Where they span all distinct rows, these are the directions, which no rounding errors enter.
    """

    cov_func: Any
    steps: int  # P, the number of features
    X: Data
    inner: TensorVariable  # the rows M
    size: int  # their number at present
    operator: LinearOperator  # K_M, or D k D
    Q: TensorVariable  # (M, P + 1)
    alpha: TensorVariable
    beta: TensorVariable
    is_subset: bool  # M is not all rows
    weights: np.ndarray | None = None  # D, where rows are repeated
    group: np.ndarray | None = None  # the place in M of each row, where rows are repeated
    spans: bool = False  # directions are the rows M themselves

    @classmethod
    def of(
        cls, cov_func, steps: int | None, subset, X: Data, residual: TensorVariable, distinct=False
    ) -> "KrylovBasis":
        """The basis for inputs X, a subset of their rows (a number, indices or None) and residuals (n,).

        `steps` is 100 by default, or the number of rows if that is less. With `distinct`, which is for
        features alone, and rows that stay, repeated ones count once, and the rows serve as directions where
        the steps span them all. Raises TypeError or ValueError for a bad subset, or more steps than rows.
        """
        warn_unused_columns(cov_func, X.value.shape[1])
        rows = np.arange(X.value.shape[0]) if subset is None else choose_rows(subset, len(X.value))
        size = len(rows)
        if steps is None:
            steps = min(DEFAULT_STEPS, size)
        if steps > size:
            raise ValueError(f"n_iter={steps} exceeds the {size} rows it works on: lower it")
        index = slice(None) if subset is None else rows
        if X.mutable and np.ndim(subset) == 0 and subset is not None:
            places = pt.arange(size) * (X.tensor.shape[0] - 1) / max(size - 1, 1)
            index = pt.round(places).astype("int64")
        weights = group = None
        start, distinct = residual[index], distinct and not (X.mutable or is_random(X.tensor))
        if distinct:
            _, first, group, counts = np.unique(X.value[rows], True, True, True, axis=0)
            if len(first) < size:
                index, size, weights, group = rows[first], len(first), counts**0.5, group.ravel()
                start = pt.zeros(size)[group].inc(start) / weights
            else:
                group = None
        inner = X.tensor[index]
        if X.grid is not None:
            operator = kernel_operator(cov_func, X.grid, X.grid)
        else:
            K = kernel_matrix(cov_func, inner)
            operator = Dense(K if weights is None else weights[:, None] * K * weights)
        spans = distinct and steps >= size
        steps = min(steps, size)
        start = pt.specify_shape(start, (None if X.mutable else size,))
        Q, alpha, beta = lanczos(operator, nonzero(start), steps)
        return cls(
            cov_func, steps, X, inner, size, operator, Q, alpha, beta, subset is not None, weights,
            group, spans,
        )  # fmt: skip

    @cached_property
    def L(self) -> TensorVariable:
        """Cholesky factor of T + R, or of the kernel between distinct rows; NaN where that fails."""
        if self.spans:
            T = self.operator.matmat(pt.eye(self.steps))
            trace, share = pt.trace(T), KERNEL_JITTER / self.steps
        else:
            T, share = tridiagonal(self.alpha, self.beta), KRYLOV_JITTER
            trace = pt.trace(T)
            added = trace * (DEFLATION * trace) ** 2 * self._errors()
            T = with_diagonal(T, pt.concatenate([pt.zeros(1), added]))
        jitter = share * pt.maximum(trace, np.finfo(float).tiny)
        return cholesky(T + jitter * pt.eye(self.steps))

    def _errors(self) -> TensorVariable:
        r"""Squared growth (P - 1,) of a unit rounding error up to each direction after the first.

        That is ``sum_{i < j} (g_j / (g_{i+1} beta_i))^2``, ``g_j = prod_{i < j} max(1, s_i / beta_i -
        SLACK)``, s_i the largest of ``|alpha_k - alpha_i|`` and beta_k for k = i, ..., i + AHEAD. A
        direction of rounding errors and all later ones fade out, continuously in the parameters. They grow
        where eigenvalues lie in narrow clusters: where rows nearly coincide, and others are many
        lengthscales apart.
        """
        # Where the basis has ended, beta is zero and no direction follows.
        beta = self.beta[:-1]
        inverse = pt.switch(pt.eq(beta, 0.0), 0.0, 1.0 / pt.switch(pt.eq(beta, 0.0), 1.0, beta))
        reached = pt.concatenate([pt.ones(1), pt.cumprod(pt.neq(beta, 0.0))])
        later = (np.tri(self.steps, k=AHEAD) * np.tri(self.steps).T)[:-1] * reached
        apart = pt.maximum(abs(self.alpha - self.alpha[:-1, None]), self.beta)
        growth = pt.maximum(1.0, (later * apart).max(axis=1) * inverse - SLACK)
        growth = pt.exp(pt.minimum(pt.cumsum(pt.log(growth)), MOST_GROWTH))
        return growth**2 * pt.cumsum((inverse / growth) ** 2)

    def features(self) -> TensorVariable:
        """Features (n, P) at all rows of X, where M is all of them."""
        if self.spans:
            found = self.scaled(self.operator.matmat(pt.eye(self.steps)))
        else:
            found = self.Q @ self.coordinates
        return found if self.group is None else (found / self.weights[:, None])[self.group]

    @cached_property
    def coordinates(self) -> TensorVariable:
        """Coordinates A (P + 1, P) of the features in the basis."""
        last = pt.set_subtensor(pt.zeros(self.steps)[-1], self.beta[-1])
        T = tridiagonal(self.alpha, self.beta)
        return self.scaled(pt.concatenate([T, last[None, :]], axis=0))

    @cached_property
    def directions(self) -> TensorVariable:
        """Directions (M, P): the basis Q_P or unit vectors, times D."""
        found = pt.eye(self.steps) if self.spans else self.Q[:, :-1]
        return found if self.weights is None else self.weights[:, None] * found

    @cached_property
    def on_all_cells(self) -> TensorVariable:
        """The directions at all cells of a grid, zero at cells without data."""
        grid = self.X.grid
        if grid is None or grid.observed is None:
            return self.directions
        return pt.zeros((grid.size, self.steps))[grid.places].set(self.directions)

    def scaled(self, products) -> TensorVariable:
        """``products L^{-T}``."""
        return lower_solve(self.L, products.T).T

    def residuals(self, points=(None,), model=None, noise=0.0) -> np.ndarray:
        """``|b - (K_M + c I) x_j| / |b|`` (points, P) of conjugate gradients after each step j.

        With c the `noise` variance: of one for each row the harmonic mean, as their information adds up.
        Each of a subset of M rows stands for n / M, and has M / n of it. Shifts leave the basis as it is.
        """
        noise = pt.as_tensor(noise)
        shift = 1.0 / (1.0 / noise).mean() if noise.ndim else noise
        if self.is_subset:
            rows = self.size if self.weights is None else (self.weights**2).sum()
            shift = shift * rows / self.X.tensor.shape[0]
        runs = evaluate_at([self.alpha + shift, self.beta], points, model)
        return np.array([cg_residuals(*run) for run in runs])


def nonzero(start):
    """The start vector; ones in place of zeros, which have no direction."""
    return pt.switch(pt.eq(start, 0.0).all(), pt.ones_like(start), start)


def choose_rows(subset, n) -> np.ndarray:
    """The rows given, or so many evenly spaced ones; TypeError or ValueError where there are none such."""
    if isinstance(subset, int | np.integer) and not isinstance(subset, bool):
        if not 1 <= subset <= n:
            raise ValueError(f"inducing={subset} must lie between 1 and the number of rows, {n}")
        return np.linspace(0, n - 1, subset).round().astype(int)
    return check_rows(subset, n, "inducing", "the size of a subset, or ")
