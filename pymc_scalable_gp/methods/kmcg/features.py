"""Features from the Krylov space of a kernel matrix and the targets."""

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_scalable_gp.core.data import Data
from pymc_scalable_gp.core.features import FeatureMap
from pymc_scalable_gp.cov.evaluate import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.cov.queries import warn_unused_columns
from pymc_scalable_gp.linops.krylov import cg_residuals, tridiagonal
from pymc_scalable_gp.linops.structured import Dense
from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator
from pymc_scalable_gp.ops.lanczos import lanczos
from pymc_scalable_gp.utils.blocks import BLOCK
from pymc_scalable_gp.utils.evaluate import evaluate

# Added to the diagonal of T, as a share of its trace: rounding makes small Ritz values negative.
JITTER = 1e-12


# Entries of an intermediate array when features are computed far from the grid.
_ENTRIES = 2**24


class KMCGMap(FeatureMap):
    r"""``phi(x) = L^{-1} Q_P' k(X_M, x)``, with Q the Krylov basis of ``K_M`` and the targets.

    ``L L' = T = Q_P' K_M Q_P``; at the training rows ``Phi = Q_{P+1} A``, ``A = (T; beta_P e_P') L^{-T}``.
    """

    def __init__(self, cov_func, steps, subset):
        self.cov_func, self.steps, self.subset = cov_func, steps, subset
        self.train: Data | None = None

    @property
    def rank(self):
        """Number of Krylov directions P."""
        return self.steps

    @property
    def is_fitted(self):
        """Whether the training rows and targets are known."""
        return self.train is not None

    def fit_to(self, X, residual=None):
        """Take the training rows (Data) and the residuals (n,) that the basis starts at."""
        self.train = X
        warn_unused_columns(self.cov_func, X.value.shape[1])
        self.rows = None if self.subset is None else choose_rows(self.subset, X.value.shape[0])
        size = X.value.shape[0] if self.rows is None else len(self.rows)
        if self.steps > size:
            raise ValueError(f"n_iter={self.steps} exceeds the {size} rows it works on: lower it")
        index = slice(None) if self.rows is None else self.rows
        if X.mutable and isinstance(self.subset, int | np.integer):
            steps = pt.arange(size) * (X.tensor.shape[0] - 1) / max(size - 1, 1)
            index = pt.round(steps).astype("int64")
        self.inner, start = X.tensor[index], residual[index]
        self.operator = self._kernel()  # one object: its compiled products are shared
        self._decompose(pt.specify_shape(start, (None if X.mutable else size,)))

    def _kernel(self):
        """``K_M`` as a structured operator."""
        if self.train.grid is not None:
            return kernel_operator(self.cov_func, self.train.grid, self.train.grid)
        return Dense(kernel_matrix(self.cov_func, self.inner))

    def _decompose(self, start):
        Q, self.alpha, self.beta = lanczos(self.operator, start, self.steps)
        T = tridiagonal(self.alpha, self.beta)
        jitter = JITTER * pt.maximum(self.alpha.sum(), np.finfo(float).tiny)
        L = cholesky(T + jitter * pt.eye(self.steps), lower=True, on_error="nan")
        last = pt.set_subtensor(pt.zeros(self.steps)[-1], self.beta[-1])
        stacked = pt.concatenate([T, last[None, :]], axis=0)
        self.coordinates = solve_triangular(L, stacked.T, lower=True).T  # A, (P + 1, P)
        self.Q, self.L, self.directions = Q, L, Q[:, :-1]
        grid, self.spread = self.train.grid, self.directions  # over all cells of a grid
        if grid is not None and grid.observed is not None:
            self.spread = pt.zeros((grid.size, self.steps))[grid.places].set(self.directions)

    def features(self, X):
        """Features (n, P): ``Q A`` at the training rows, ``k(X, X_M) Q_P L^{-T}`` elsewhere."""
        if X is self.train.tensor and self.rows is None:
            return self.Q @ self.coordinates
        return self.cross(self.cov_func, X)

    def features_at(self, data):
        """As `features`; between grids by structured products."""
        return self.cross_at(self.cov_func, data)

    def cross_at(self, cov_func, data):
        """As `cross`, at checked inputs."""
        if data.grid is None:
            return self.cross(cov_func, data.tensor)
        operator = kernel_operator(cov_func, data.grid, self.train.grid)
        return self.scaled(operator.matmat(self.directions))

    def cross(self, cov_func, X):
        """``k(X, X_M) Q_P L^{-T}`` for the kernel or a part of it."""
        grid = self.train.grid
        if grid is None:
            return self.scaled(kernel_matrix(cov_func, X, self.inner) @ self.directions)
        terms = product_terms(cov_func)
        return self.scaled(sum(_contract(t, grid, X, self.spread, self.steps) for t in terms))

    def scaled(self, products):
        """``products L^{-T}``."""
        return solve_triangular(self.L, products.T, lower=True).T

    def intermediates(self):
        """The basis and the factor of T, which all rows share."""
        return [self.spread, self.L]

    @property
    def block_rows(self):
        """Rows whose products with the training rows stay small."""
        if self.train.grid is None:
            width = self.train.value.shape[0] if self.rows is None else len(self.rows)
        else:
            first, *rest = self.train.grid.shape
            width = max(first, int(np.prod(rest)) * self.steps)
        return max(1, min(BLOCK, _ENTRIES // width))

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return kernel_diag(self.cov_func, X)

    def outside(self, X):
        """Nothing to warn of: everywhere, features use the exact kernel with the training rows."""
        return None

    def residuals(self, point=None, model=None) -> np.ndarray:
        """``|b - K_M x_j| / |b|`` of conjugate gradients on ``K_M x = b`` after j = 1..P steps."""
        return cg_residuals(*evaluate([self.alpha, self.beta], point, model))


class PartMap(FeatureMap):
    """Features of one kernel of a sum, in the coefficients of the sum."""

    def __init__(self, cov_func, total: KMCGMap):
        self.cov_func, self.total = cov_func, total

    rank = property(lambda self: self.total.rank)
    is_fitted = property(lambda self: True)
    block_rows = property(lambda self: self.total.block_rows)

    def fit_to(self, X):
        """Nothing: the sum is fitted."""

    def features(self, X):
        """``k_part(X, X_M) Q_P L^{-T}``."""
        return self.total.cross(self.cov_func, X)

    def features_at(self, data):
        """As `features`; between grids by structured products."""
        return self.total.cross_at(self.cov_func, data)

    def intermediates(self):
        """Those of the sum."""
        return self.total.intermediates()

    def kernel_diag(self, X):
        """Of the part."""
        return kernel_diag(self.cov_func, X)

    def outside(self, X):
        """Nothing to warn of."""
        return None


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


def _contract(term, grid, X, full, steps):
    """``prod_i k_i(x_i, axis_i)`` times a matrix (cells, steps), axis by axis: (rows, steps)."""
    factors = {f.dim: f for group in term.groups for f in group}
    out = full.reshape((grid.shape[0], -1))
    for i, axis in enumerate(grid.axes):
        if i in factors:
            K = factors[i].plain_gram(X[:, i], pt.constant(axis)).astype("float64")
        else:
            K = pt.ones((X.shape[0], len(axis)))
        if i == 0:
            out = K @ out
        else:
            out = (out.reshape((X.shape[0], len(axis), -1)) * K[:, :, None]).sum(axis=1)
    return term.scale * out.reshape((X.shape[0], steps))
