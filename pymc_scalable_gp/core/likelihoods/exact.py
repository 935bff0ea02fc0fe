"""The dense likelihood: all rows given all others."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.logprob.abstract import _logprob
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.precision import DensePrecisions
from pymc_scalable_gp.core.likelihoods.predictor import Predictor
from pymc_scalable_gp.cov.evaluate import kernel_diag, kernel_matrix
from pymc_scalable_gp.ops.gaussian_logp import gaussian_logp
from pymc_scalable_gp.ops.inverse_cholesky import inverse_cholesky
from pymc_scalable_gp.utils.evaluate import FEW_CALLS, check_reached, model_inputs

# Added to the diagonal of a covariance of new rows that draws are made from, as a share of its mean.
JITTER = 1e-8


class DenseNormalRV(SymbolicRandomVariable):
    """Random graph of :class:`DenseNormal`."""

    _print_name = ("DenseNormal", "\\operatorname{DenseNormal}")
    extended_signature = "[rng],[size],(n),(n,n),(n)->[rng],(n)"

    @classmethod
    def rv_op(cls, mu, cov, noise, *, rng=None, size=None):
        """Build the graph; `noise` (n,) is added to the diagonal."""
        mu, cov, noise = (pt.as_tensor(x) for x in (mu, cov, noise))
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        shape = mu.shape if rv_size_is_none(size) else (*tuple(size), mu.shape[0])
        next_rng, white = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
        root = pt.linalg.cholesky(cov + pt.diag(noise), on_error="nan")
        draws = mu + white @ root.T
        op = cls(inputs=[rng, size, mu, cov, noise], outputs=[next_rng, draws])
        return op(rng, size, mu, cov, noise)


class DenseNormal(Continuous):
    """Multivariate normal with covariance ``cov + diag(noise)``: `pm.MvNormal` with a faster gradient.

    A covariance that is not positive definite gives NaN.
    """

    rv_type = DenseNormalRV
    rv_op = DenseNormalRV.rv_op

    @classmethod
    def dist(cls, mu, cov, noise, **kwargs):
        """Distribution outside a model: mean (n,), covariance (n, n), variances (n,)."""
        return super().dist([pt.as_tensor(x) for x in (mu, cov, noise)], **kwargs)

    @staticmethod
    def support_point(rv, rng, size, mu, *_parameters):
        """Mean."""
        return pt.full_like(rv, mu)


@_logprob.register(DenseNormalRV)
def dense_normal_logprob(op, values, rng, size, mu, cov, noise, **kwargs):
    """Log density of one vector."""
    (value,) = values
    if value.ndim != 1:
        raise NotImplementedError("DenseNormal's logp takes one vector at a time")
    return gaussian_logp(cov, noise, value - mu)


@dataclass(frozen=True, eq=False)
class ExactRows(Likelihood):
    """The kernel's own matrix: O(n^3)."""

    data: MarginalData
    cov_func: Any

    path = "exact"
    holds_residual = True

    @cached_property
    def kernel(self) -> TensorVariable:
        """Kernel matrix (n, n)."""
        return kernel_matrix(self.cov_func, self.data.X.tensor)

    @cached_property
    def noise(self) -> TensorVariable:
        """Noise variances (n,)."""
        return self.data.sigma**2 * pt.ones(self.data.X.tensor.shape[0])

    def observe(self, name, **kwargs):
        """A :class:`DenseNormal`."""
        return DenseNormal(
            name, self.data.mean, self.kernel, self.noise, observed=self.data.y.tensor, **kwargs
        )

    def coefficients(self):
        """There are no features."""
        return Coefficients(pt.zeros(0), None)

    def given(self, X, y, sigma):
        """The same with other data."""
        return ExactRows(replace(self.data, X=X, y=y, sigma=sigma), self.cov_func)

    def whitened(self) -> tuple[TensorVariable, TensorVariable]:
        """``L^-1`` (n, n) and ``L^-1 e`` (n,)."""
        inverse = inverse_cholesky((self.kernel + pt.diag(self.noise))[None], 0.0)[0]
        return inverse, inverse @ self.data.residual

    def logp(self):
        """Dense."""
        return gaussian_logp(self.kernel, self.noise, self.data.residual)

    def precisions(self, model):
        """Dense."""
        return DensePrecisions(self, model)

    def predictor(self, feature_map, mean_func, coef, noise, model):
        """Dense."""
        return ExactPredictor(self, mean_func, noise, model)

    def conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs):
        """A `pm.MvNormal`."""
        X = data.tensor
        inverse, white = self.whitened()
        V = inverse @ kernel_matrix(self.cov_func, self.X.tensor, X)
        cov = kernel_matrix(self.cov_func, X) - V.T @ V + variance * pt.eye(X.shape[0])
        return pm.MvNormal(name, mean_vector(mean_func, X) + V.T @ white, cov=cov, **kwargs)


class ExactPredictor(Predictor):
    """As `Predictor`, from the dense factor: with ``V = L^-1 K(X, x*)``, mean ``V' L^-1 e``."""

    def __init__(self, likelihood, mean_func, noise, model):
        self.model, self.block_rows = model, 2048
        self.has_root, self.deflated, self.diagonal_root = False, False, False
        self.fixed_features = False
        X, inverse = pt.matrix("Xnew", dtype="float64"), pt.matrix("inverse", dtype="float64")
        white, cov_func = pt.vector("white", dtype="float64"), likelihood.cov_func
        states = [pt.zeros(0), noise, *likelihood.whitened()]
        V = inverse @ kernel_matrix(cov_func, likelihood.X.tensor, X)
        mean = mean_vector(mean_func, X) + V.T @ white
        left = pt.maximum(kernel_diag(cov_func, X) - (V**2).sum(axis=0), 0.0)
        cov = kernel_matrix(cov_func, X) - V.T @ V
        self.inputs = model_inputs([*states, mean, cov], model)
        check_reached([*states, mean, cov], self.inputs)
        options = {"on_unused_input": "ignore", "allow_input_downcast": True, "mode": FEW_CALLS}
        self._state = pytensor.function(self.inputs, states, **options)
        given = [X, *self.inputs, inverse, white]
        nothing = pt.zeros((X.shape[0], 0))
        self._features = pytensor.function(given, [nothing, mean, left], **options)
        self._full = pytensor.function(given, [mean, cov], **options)

    def full(self, state, X):
        """Mean (n*,) and covariance (n*, n*)."""
        mean, cov = self._full(X, *state.values)
        return mean, cov + state.noise * np.eye(len(X))

    def _sample_jointly(self, state, X, rng):
        """From the covariance of all rows."""
        mean, cov = self.full(state, X)
        cov += JITTER * np.diag(cov).mean() * np.eye(len(X))
        return mean + np.linalg.cholesky(cov) @ rng.standard_normal(len(X))
