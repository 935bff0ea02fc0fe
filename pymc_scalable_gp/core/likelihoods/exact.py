"""The dense likelihood: all rows given all others."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.nystrom import NystromMap
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.precision import DensePrecisions
from pymc_scalable_gp.core.likelihoods.predictor import Predictor, in_two_stages
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, product_of, white
from pymc_scalable_gp.cov.kernels import kernel_diag, kernel_matrix
from pymc_scalable_gp.cov.queries import fixed_matrices
from pymc_scalable_gp.ops.gaussian_logp import GaussianLogp, gaussian_logp
from pymc_scalable_gp.ops.stacked_cholesky import inverse_cholesky
from pymc_scalable_gp.ops.stacked_solve import stacked_solve
from pymc_scalable_gp.utils.jitter import KERNEL_JITTER, with_diagonal


@dataclass(frozen=True, eq=False)
class DenseNormal(StructuredNormal):
    """``N(mean, cov + diag(noise))``: `pm.MvNormal` with a faster gradient, and NaN for a bad `cov`."""

    cov: TensorVariable  # (n, n)
    noise: TensorVariable  # (n,)

    def _root(self):
        return pt.linalg.cholesky(with_diagonal(self.cov, self.noise), on_error="nan")

    def draw(self, rng, size):
        next_rng, (z,) = white(rng, size, (self.mean.shape[0],))
        return next_rng, self.mean + z @ self._root().T

    def logp(self, value):
        return gaussian_logp(self.cov, self.noise, value - self.mean)

    def product(self, left, right):
        """By one factor, which iterations share whose `right` stays; the gradient has no inverse."""
        _, solved, L = map(disconnected_grad, GaussianLogp()(self.cov, self.noise, right))
        white = stacked_solve(L[None], left[None, :, None])
        other = stacked_solve(L[None], white, transpose=True)[0, :, 0]
        return product_of(left, right, (other, solved), lambda v: self.cov @ v + self.noise * v)

    def solve(self, values):
        return pt.linalg.cho_solve((self._root(), True), values)


@dataclass(frozen=True, eq=False)
class ExactRows(Likelihood):
    """The kernel's own matrix, O(n^3); `new_noise` is the kernel of a new run's noise, for predictions."""

    data: MarginalData
    cov_func: Any
    new_noise: Any = field(default=None, kw_only=True)

    path = "exact"
    is_exact = True
    holds_residual = True

    @cached_property
    def kernel(self) -> TensorVariable:
        """Kernel matrix (n, n), with that of noise that covaries."""
        noise = self.data.noise_cov
        return kernel_matrix(self.cov_func if noise is None else self.cov_func + noise, self.data.X.tensor)

    def normal(self, noise):
        return DenseNormal(self.data.mean, self.kernel, noise * pt.ones(self.kernel.shape[0]))

    def of_observations(self):
        return replace(self, new_noise=self.data.noise_cov)

    def of_parts(self, parts, places):
        """A map of the parts' kernel, without features."""
        first, *rest = (parts[place].prior_cov for place in places)
        found = NystromMap.without_points(sum(rest, start=first), self.data.X.value)
        return found, self.coefficients()

    def _kernel_of(self, feature_map):
        """Kernel of what is predicted: the whole, unless the map is one of some parts."""
        return self.cov_func if feature_map is self.prediction_map() else feature_map.cov_func

    def given(self, X, y, sigma):
        return ExactRows(self.data.with_rows(X, y, sigma), self.cov_func)

    def whitened(self) -> tuple[TensorVariable, TensorVariable]:
        """``L^-1`` (n, n) and ``L^-1 e`` (n,)."""
        target, noise = self.handed(None, None)
        normal = self.normal(noise)
        inverse = inverse_cholesky(with_diagonal(normal.cov, normal.noise)[None], 0.0)[0]
        return inverse, inverse @ (target - normal.mean)

    def precisions(self, model):
        return DensePrecisions(self, model)

    def predictor(self, feature_map, mean_func, coef, noise, model):
        return ExactPredictor(self, self._kernel_of(feature_map), mean_func, noise, model)

    def prior_of(self, cov_func):
        """Kernel of what is predicted before there are data."""
        return cov_func if self.new_noise is None else cov_func + self.new_noise

    def conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs):
        X = data.tensor
        inverse, white = self.whitened()
        cov_func = self._kernel_of(feature_map)
        V = inverse @ kernel_matrix(cov_func, self.X.tensor, X)
        prior = kernel_matrix(self.prior_of(cov_func), X)
        cov = prior - V.T @ V + variance * pt.eye(X.shape[0])
        return pm.MvNormal(name, mean_vector(mean_func, X) + V.T @ white, cov=cov, **kwargs)


class ExactPredictor(Predictor):
    """As `Predictor`, from the dense factor: with ``V = L^-1 k(X, x*)``, mean ``V' L^-1 e``.

    k is the kernel of what is predicted: that of the likelihood, or of a part of the sum.
    """

    def __init__(self, likelihood, cov_func, mean_func, noise, model):
        self.model = model
        # New rows at a time: all of them, where a fixed matrix holds them.
        self.block_rows = len(likelihood.X.value) if fixed_matrices(cov_func) else 2048
        X, (inverse, white) = pt.matrix("Xnew", dtype="float64"), likelihood.whitened()
        V = inverse @ kernel_matrix(cov_func, likelihood.X.tensor, X)
        mean = mean_vector(mean_func, X) + V.T @ white
        prior = likelihood.prior_of(cov_func)
        left = pt.maximum(kernel_diag(prior, X) - (V**2).sum(axis=0), 0.0)
        cov = kernel_matrix(prior, X) - V.T @ V
        self.inputs, self._state, self._features, self._full, self._prior = in_two_stages(
            [X], [pt.zeros(0), noise, inverse, white], [inverse, white], model,
            [pt.zeros((X.shape[0], 0)), mean, left], [mean, cov], [kernel_diag(prior, X).mean()],
        )  # fmt: skip

    def full(self, state, X):
        mean, cov = self._full(X, *state.values)
        return mean, cov + state.noise * np.eye(len(X))

    def _sample_jointly(self, state, X, rng):
        """Draw from the covariance of all rows."""
        (mean, cov), (prior,) = self.full(state, X), self._prior(X, *state.values)
        # Rounding goes with the prior's variance, from which the posterior's is what is left.
        cov += KERNEL_JITTER * prior * np.eye(len(X))
        return mean + np.linalg.cholesky(cov) @ rng.standard_normal(len(X))
