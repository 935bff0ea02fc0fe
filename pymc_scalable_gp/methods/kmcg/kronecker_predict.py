"""Exact predictions and rows left out on a complete grid, in the eigenbasis of the axes' kernels."""

from functools import reduce
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.likelihoods.precision import Precision
from pymc_scalable_gp.core.likelihoods.predictor import Predictor, in_two_stages
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.methods.kmcg.regular_grid import SharedAxes
from pymc_scalable_gp.utils.compiled import compile_outputs
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER

# Most entries of an array that a block of new rows is worked on with.
_ENTRIES = 2**22


class GridState(NamedTuple):
    """Values of the model's variables, and the posterior's eigenbasis there."""

    values: tuple
    noise: float  # added to predictions
    vectors: list[np.ndarray]  # (m_i, m_i), in columns
    inverse: np.ndarray  # 1 / (lambda + noise), of the grid's shape; NaN where that is not positive
    scaled: np.ndarray  # that times the residual's coordinates
    residual: np.ndarray
    own: float  # of the targets

    @classmethod
    def of(cls, values, noise, kernels, own, residual) -> "GridState":
        """From values of `KroneckerRows.posterior`."""
        pairs = [eigen(K) for K in kernels]
        spread = reduce(np.multiply.outer, [lengths for lengths, _ in pairs]) + own
        inverse = 1.0 / np.where(spread > 0.0, spread, np.nan)
        vectors = [each for _, each in pairs]
        scaled = along([V.T for V in vectors], residual) * inverse
        return cls(tuple(values), float(noise), vectors, inverse, scaled, residual, float(own))


def eigen(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, and eigenvectors in columns; NaN for a matrix that is not finite."""
    if not np.isfinite(K).all():
        return np.full(len(K), np.nan), np.full_like(K, np.nan)
    return np.linalg.eigh(K)


def along(matrices, values: np.ndarray) -> np.ndarray:
    """Multiply by a matrix along each axis: it is applied to the first axis, which then moves last."""
    for matrix in matrices:
        values = np.tensordot(values, matrix, axes=(0, 1))
    return values


def in_rows(parts, values: np.ndarray) -> np.ndarray:
    """``sum_c parts_1[:, c_1] parts_2[:, c_2] ... values[c]`` (b,), for parts (b, m_i)."""
    first, *rest = parts
    out = first @ values.reshape((first.shape[1], -1))
    for part in rest:
        out = np.einsum("bm,bmr->br", part, out.reshape((*part.shape, -1)))
    return out[:, 0]


def gram_of_rows(parts, weights: np.ndarray) -> np.ndarray:
    """``Q diag(weights) Q'`` (b, b), Q the row-wise Kronecker product of parts (b, m_i), never formed."""
    if len(parts) == 1:
        return (parts[0] * weights) @ parts[0].T
    first, *rest = parts
    Q = rest[0]
    for part in rest[1:]:
        Q = (Q[:, :, None] * part[:, None, :]).reshape((len(Q), -1))
    found = np.zeros((len(Q), len(Q)))
    for column, slab in zip(first.T, weights.reshape((first.shape[1], -1)), strict=True):
        scaled = Q * column[:, None]
        found += (scaled * slab) @ scaled.T
    return found


class KroneckerPoints(Predictor):
    r"""Predictions at rows, in blocks, O(n) per row.

    With ``q = (k_1(x_1) U_1) (x) (k_2(x_2) U_2) (x) ...`` and ``A = alpha / (lambda + noise)`` the mean
    is :math:`q^\top A`, and the variance :math:`k(x, x) - \sum_j q_j^2 / (\lambda_j + \sigma^2)`.
    The kernel k is the likelihood's, or that of a part of the sum.
    """

    _combined = staticmethod(in_rows)

    def __init__(self, likelihood, cov_func, mean_func, noise, model):
        self.model, grid = model, likelihood.grid
        self.block_rows = max(1, _ENTRIES // max(grid.size // grid.shape[0], max(grid.shape)))
        X = pt.matrix("Xnew", dtype="float64")
        columns = [X[:, i] for i in range(len(grid.axes))]
        outer = kernel_diag(cov_func, X), mean_vector(mean_func, X)
        rows = [*likelihood.factors(columns, grid.axes, cov_func), *outer]
        kernel = kernel_matrix(cov_func, X)
        self.inputs, self._state, self._features, self._kernel = in_two_stages(
            [X], [noise, *likelihood.posterior], [], model, rows, [kernel]
        )

    def at(self, values, rng=None):
        """State at values of `inputs`."""
        noise, *kernels, own, residual = self._state(*values)
        return GridState.of(values, noise, kernels, own, residual)

    def _moments(self, state, parts):
        *cross, diag, mean = parts
        turned = [k @ V for k, V in zip(cross, state.vectors, strict=True)]
        held = self._combined([part**2 for part in turned], state.inverse)
        return mean + self._combined(turned, state.scaled), np.maximum(diag - held, 0.0) + state.noise

    def full(self, state, X):
        """Mean (n*,) and covariance (n*, n*)."""
        *cross, _, mean = self._features(X, *state.values)
        turned = [k @ V for k, V in zip(cross, state.vectors, strict=True)]
        (prior,) = self._kernel(X, *state.values)
        cov = prior - gram_of_rows(turned, state.inverse)
        return mean + in_rows(turned, state.scaled), cov + state.noise * np.eye(len(X))

    def _sample_jointly(self, state, X, rng):
        """Draw from the covariance of all rows."""
        mean, cov = self.full(state, X)
        *_, prior, _ = self._features(X, *state.values)
        cov += KERNEL_JITTER * prior.mean() * np.eye(len(X))
        return mean + np.linalg.cholesky(cov) @ rng.standard_normal(len(X))


class KroneckerCells(KroneckerPoints):
    r"""Predictions at the cells of another grid, one axis after the other.

    A draw is one of the prior on both grids' axes together, moved by the data, by Matheron's rule (Wilson
    et al. 2021): :math:`f_* + K_* (K + \sigma^2 I)^{-1} (e - f - \epsilon)`.
    """

    def __init__(self, likelihood, data, mean_func, noise, model):
        self.model, self.block_rows = model, data.value.shape[0]
        self.axes = SharedAxes.of(likelihood.grid, data.grid)
        outer = kernel_diag(likelihood.cov_func, data.tensor), mean_vector(mean_func, data.tensor)
        kernels = likelihood.factors(self.axes.both)
        self.inputs, self._state, self._outer, self._kernels = in_two_stages(
            [], [noise, *likelihood.posterior], [], model, outer, kernels
        )

    def _parts(self, state, X):
        both = self._kernels(*state.values), self.axes.new, self.axes.old
        cross = [K[np.ix_(new, old)] for K, new, old in zip(*both, strict=True)]
        yield slice(None), [*cross, *self._outer(*state.values)]

    def _combined(self, parts, values):
        return along(parts, values).ravel()[self.axes.places]

    def _sample_jointly(self, state, X, rng):
        """Draw the prior on both grids, and move it."""
        kernels, axes = self._kernels(*state.values), self.axes
        pairs = [eigen(K) for K in kernels]
        roots = [V * np.sqrt(np.maximum(lengths, 0.0)) for lengths, V in pairs]
        prior = along(roots, rng.standard_normal([len(K) for K in kernels]))
        old = prior[np.ix_(*axes.old)]
        missed = state.residual - old - np.sqrt(state.own) * rng.standard_normal(old.shape)
        weights = along([V.T for V in state.vectors], missed) * state.inverse
        both = kernels, axes.new, axes.old, state.vectors
        gains = [K[np.ix_(new, place)] @ V for K, new, place, V in zip(*both, strict=True)]
        moved = (prior[np.ix_(*axes.new)] + along(gains, weights)).ravel()[self.axes.places]
        _, mean = self._outer(*state.values)
        return mean + moved + np.sqrt(state.noise) * rng.standard_normal(len(mean))


class KroneckerPrecisions:
    """Precision of ``K_1 (x) K_2 (x) ... + noise I``, in the eigenbasis.

    Its diagonal is ``(U_1^2 (x) U_2^2 (x) ...) (1 / (lambda + noise))``, with squares of entries.
    """

    def __init__(self, likelihood, model):
        outputs = [likelihood.data.y.tensor, *likelihood.posterior]
        self._function, self.inputs = compile_outputs(outputs, model)
        self.shape = likelihood.grid.shape

    def __call__(self, values):
        """``O(sum_i m_i^3 + n sum_i m_i)``; a group of g rows ``O(g^2 n)`` when it is asked for."""
        y, *kernels, own, residual = self._function(*values)
        state = GridState.of(values, 0.0, kernels, own, residual)

        def block(rows):
            places = np.unravel_index(rows, self.shape)
            parts = [V[at] for V, at in zip(state.vectors, places, strict=True)]
            return gram_of_rows(parts, state.inverse)

        diagonal = along([V**2 for V in state.vectors], state.inverse).ravel()
        alpha = along(state.vectors, state.scaled).ravel()
        return Precision(y, own, alpha, diagonal, block)
