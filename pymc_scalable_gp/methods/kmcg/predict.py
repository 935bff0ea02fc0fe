"""Predictions from a Krylov basis: at any points, and at the cells of a grid a few columns at a time."""

import numpy as np
import pytensor.tensor as pt
from scipy import linalg

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.likelihoods.predictor import Predictor, in_two_stages
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator
from pymc_scalable_gp.utils.compiled import compiled

_COLUMNS = 8  # columns multiplied at a time

PART_AT_CELLS = (
    "joint draws of a part of a sum take the dense covariance of the new points: give grid.points, for as "
    "many cells as that allows"
)


class RowsPredictor(Predictor):
    """At any points: what features leave out, of a part of a sum the most, covaries as ``k - phi' phi``."""

    def __init__(self, feature_map, mean_func, coef, noise, model):
        super().__init__(feature_map, mean_func, coef, noise, model)
        X = pt.matrix("Xnew", dtype="float64")
        self._kernel = compiled([X, *self.inputs], kernel_matrix(feature_map.cov_func, X))

    def full(self, state, X):
        """Mean (n*,) and covariance (n*, n*)."""
        phi, mean, missed = self._features(X, *state.values)
        cov = self._kernel(X, *state.values[: len(self.inputs)]) - phi @ phi.T
        np.fill_diagonal(cov, missed + state.noise)
        factor = self._factor(state, phi)
        return mean + phi @ state.coef, cov + factor @ factor.T

    def _sample_jointly(self, state, X, rng):
        """Draw from the covariance of all rows, of which rounding makes small eigenvalues negative."""
        mean, cov = self.full(state, X)
        values, vectors = linalg.eigh(cov)
        return mean + vectors @ (np.sqrt(values.clip(0.0)) * rng.standard_normal(len(X)))


class GridPredictor(Predictor):
    """As `Predictor`, with structured products: O(P products) for all cells, never P arrays of them.

    With coefficients of mean c and covariance S, the mean is ``K Q L^{-T} c`` and the variance
    ``k - sum_p d_p (K Q L^{-T} v_p)^2`` for the eigenpairs of ``I - S``.
    """

    def __init__(self, feature_map, mean_func, data, coef, noise, model):
        self.model, self.block_rows = model, data.value.shape[0]
        self.has_root = True
        basis, self._is_of_part = feature_map.krylov, feature_map.is_of_part
        operator = kernel_operator(feature_map.cov_func, data.grid, basis.X.grid)
        V = pt.matrix("V", dtype="float64", shape=(basis.X.grid.n, None))
        states = [coef.mean, noise, coef.root, basis.directions, basis.L]
        diag, mean = feature_map.kernel_diag(data.tensor), mean_vector(mean_func, data.tensor)
        self.inputs, self._state, self._outer = in_two_stages([], states, [], model, [diag, mean])
        self._product = compiled([V, *self.inputs], operator.matmat(V))

    def _parts(self, state, X):
        *values, _Q, _L = state.values
        yield slice(None), self._outer(*values)

    def _moments(self, state, parts):
        *_, L = state.values
        diag, mean = parts
        share, vectors = np.linalg.eigh(np.eye(len(L)) - state.root.T @ state.root)
        vectors = vectors * np.sqrt(np.maximum(share, 0.0))
        mean = mean + self._products(state, state.coef[:, None])[:, 0]
        var = np.maximum(diag - self._squares(state, vectors), 0.0) + state.noise
        return mean, var

    def _sample(self, state, parts, rng):
        """A draw of the function at all cells, with the draw of the coefficients."""
        if self._is_of_part:
            raise ValueError(PART_AT_CELLS)
        diag, mean = parts
        missed = np.maximum(diag - self._squares(state, np.eye(len(state.coef))), 0.0)
        own = np.sqrt(missed + state.noise) * rng.standard_normal(len(mean))
        return mean + self._products(state, state.sample[:, None])[:, 0] + own

    def _products(self, state, columns):
        """``Phi columns``, for few columns."""
        *values, Q, L = state.values
        weights = linalg.solve_triangular(L, columns, trans="T", lower=True)
        return self._product(Q @ weights, *values)

    def _squares(self, state, columns):
        """Row sums of ``(Phi columns)^2``, a few columns at a time."""
        total = 0.0
        for start in range(0, columns.shape[1], _COLUMNS):
            part = self._products(state, columns[:, start : start + _COLUMNS])
            total = total + np.einsum("ij,ij->i", part, part)
        return total
