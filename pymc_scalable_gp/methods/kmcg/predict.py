"""Predictions at the cells of a grid from a Krylov basis on a grid, a few columns at a time."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from scipy import linalg

from pymc_scalable_gp.core.predict import Predictor
from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator
from pymc_scalable_gp.utils.evaluate import FEW_CALLS, model_inputs

_COLUMNS = 8  # columns multiplied at a time


class GridPredictor(Predictor):
    """As `Predictor`, with structured products: O(P products) for all cells, never P arrays of them.

    With coefficients of mean c and covariance S, the mean is ``K Q L^{-T} c`` and the variance
    ``k - sum_p d_p (K Q L^{-T} v_p)^2`` for the eigenpairs of ``I - S``.
    """

    def __init__(self, gp, fit, data, coef, noise, model):
        self.model, self.block_rows = model, data.value.shape[0]
        self.has_root, self.fixed_features, self.diagonal_root = True, False, False
        feature_map = gp._map_for(fit)
        operator = kernel_operator(gp.cov_func, data.grid, fit.X.grid)
        V = pt.matrix("V", dtype="float64", shape=(fit.X.grid.n, None))
        states = [coef.mean, noise, coef.root, fit.basis.directions, fit.basis.L]
        diag, mean = feature_map.kernel_diag(data.tensor), gp.mean_func(data.tensor)
        product = operator.matmat(V)
        self.inputs = model_inputs([*states, diag, mean, product], model)
        options = {"on_unused_input": "ignore", "allow_input_downcast": True, "mode": FEW_CALLS}
        self._state = pytensor.function(self.inputs, states, **options)
        self._outer = pytensor.function(self.inputs, [diag, mean], **options)
        self._product = pytensor.function([V, *self.inputs], product, **options)

    def _parts(self, state, X):
        *values, _Q, _L = state.values
        yield slice(None), self._outer(*values)

    def _moments(self, state, parts):
        *values, Q, L = state.values
        diag, mean = parts
        share, vectors = np.linalg.eigh(np.eye(len(L)) - state.root.T @ state.root)
        vectors = vectors * np.sqrt(np.maximum(share, 0.0))
        weights = linalg.solve_triangular(
            L, np.column_stack([state.coef, vectors]), trans="T", lower=True
        )
        mean = mean + self._product(Q @ weights[:, :1], *values)[:, 0]
        var = np.array(diag)
        for start in range(1, weights.shape[1], _COLUMNS):
            columns = self._product(Q @ weights[:, start : start + _COLUMNS], *values)
            var -= np.einsum("ij,ij->i", columns, columns)
        return mean, np.maximum(var, 0.0) + state.noise
