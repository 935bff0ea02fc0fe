"""Each row given all others under a Gaussian likelihood, from parts of its precision matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from scipy.stats import norm

from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.likelihoods.predictor import in_two_stages
from pymc_scalable_gp.utils.blocks import blocks
from pymc_scalable_gp.utils.compiled import compile_outputs


@dataclass(frozen=True, eq=False)
class Precision:
    r"""``P = S^{-1}`` of the targets' covariance S, at one draw, by its diagonal and blocks.

    Given all other rows, those of G have mean ``y_G - P_GG^-1 (P e)_G`` and covariance ``P_GG^-1``.
    `block` computes ``P_GG`` (g, g) for rows G (g,).
    """

    y: np.ndarray
    noise: np.ndarray  # variances of the targets' noise, a scalar or (n,)
    alpha: np.ndarray  # P e
    diagonal: np.ndarray
    block: Callable[[np.ndarray], np.ndarray]

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Log density (n,) of each row given all others, and the probability (n,) below it."""
        mean, sd = self.y - self.alpha / self.diagonal, 1.0 / np.sqrt(self.diagonal)
        return norm.logpdf(self.y, mean, sd), norm.cdf(self.y, mean, sd)

    def group_logp(self, rows: np.ndarray) -> float:
        """Log density of some rows given all others."""
        P, alpha = self.block(rows), self.alpha[rows]
        sign, logdet = np.linalg.slogdet(P)
        if sign <= 0:
            return np.nan
        quad = alpha @ np.linalg.solve(P, alpha)
        return 0.5 * (logdet - quad - len(rows) * np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class _LowRankPrecision(Precision):
    r"""``P_GG = D^-1/2 (I - C C') D^-1/2``, so that a group of g rows costs O(g r^2).

    ``|I - C C'| = |I - C' C|`` and ``(I - C C')^-1 = I + C (I - C' C)^-1 C'``.
    """

    parts: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # C (g, r) and D (g,) of rows

    def group_logp(self, rows):
        """Log density of some rows given all others, by the smaller of (g, g) and (r, r)."""
        C, D = self.parts(rows)
        if len(rows) <= C.shape[1]:
            return super().group_logp(rows)
        inner, white = np.eye(C.shape[1]) - C.T @ C, np.sqrt(D) * self.alpha[rows]
        sign, logdet = np.linalg.slogdet(inner)
        if sign <= 0:
            return np.nan
        seen = C.T @ white
        quad = white @ white + seen @ np.linalg.solve(inner, seen)
        return 0.5 * (logdet - np.log(D).sum() - quad - len(rows) * np.log(2.0 * np.pi))


class LowRankPrecisions:
    r"""Precision of ``S = Phi W Phi' + D``, in row blocks: ``P = D^-1 - D^-1 Phi V Phi' D^-1``.

    V is the coefficients' posterior covariance, ``V = root' root``. O(n r^2) per draw.
    """

    def __init__(self, likelihood, model):
        data = likelihood.data
        feature_map, coef = likelihood.prediction_map(), likelihood.coefficients()
        X, common = pt.matrix("rows", dtype="float64"), feature_map.intermediates()
        phi = feature_map.features(X)
        outputs = [phi, mean_vector(data.mean_func, X)]
        states = [coef.mean, coef.root, likelihood.variance(), data.sigma**2, data.y.tensor, *common]
        self.inputs, self._state, self._rows = in_two_stages([X], states, common, model, outputs)
        self.X = held_value(data.X, "X")
        self.block_rows = feature_map.block_rows

    def __call__(self, values):
        """Compute alpha and the diagonal in row blocks; a group's features when they are asked for."""
        coef, root, variance, noise, y, *common = self._state(*values)
        noise, state = np.broadcast_to(noise, y.shape), (*values, *common)

        def parts(rows, X):
            phi, mean = self._rows(X, *state)
            D = variance[rows]
            factor = phi * root if root.ndim == 1 else phi @ root.T
            return factor, D, (y[rows] - mean - phi @ coef) / D

        def scaled(rows):
            factor, D, _ = parts(rows, self.X[rows])
            return factor / np.sqrt(D)[:, None], D

        def block(rows):
            C, D = scaled(rows)
            return (np.eye(len(D)) - C @ C.T) / np.sqrt(D[:, None] * D)

        alpha, diagonal = np.empty(len(y)), np.empty(len(y))
        for rows, X in blocks(self.X, self.block_rows):
            factor, D, alpha[rows] = parts(rows, X)
            diagonal[rows] = (1.0 - np.einsum("ij,ij->i", factor, factor) / D) / D
        return _LowRankPrecision(y, noise, alpha, diagonal, block, scaled)


class DensePrecisions:
    """Precision of a dense covariance: ``P = L^-T L^-1``. O(n^3) per draw."""

    def __init__(self, likelihood, model):
        data = likelihood.data
        outputs = [*likelihood.whitened(), data.y.tensor, data.sigma**2]
        self._function, self.inputs = compile_outputs(outputs, model)

    def __call__(self, values):
        """Form the whole matrix."""
        inverse, white, y, noise = self._function(*values)
        P = inverse.T @ inverse
        alpha = inverse.T @ white
        return Precision(y, noise, alpha, np.diagonal(P), lambda rows: P[np.ix_(rows, rows)])
