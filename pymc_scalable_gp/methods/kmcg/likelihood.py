"""KMCG's Gaussian likelihood."""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.raise_op import Assert
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.coefficients import Coefficients
from pymc_scalable_gp.core.conditioned import MarginalFit
from pymc_scalable_gp.core.summaries import _LOG_2PI, _present
from pymc_scalable_gp.methods.kmcg.features import KMCGMap
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp


@dataclass(frozen=True)
class KMCGFit(MarginalFit):
    """A marginal fit with the Krylov basis that belongs to its data."""

    basis: KMCGMap | None = None

    @property
    def in_coordinates(self) -> bool:
        """Whether the likelihood is that of P + 1 coordinates: DTC, one sigma, all rows."""
        return self.approx == "DTC" and not self.sigma.ndim and self.basis.rows is None

    def coefficients(self):
        """Posterior of the coefficients of the features."""
        residual = self.y.tensor - self.gp.mean_func(self.X.tensor)
        if self.in_coordinates:
            length = pt.sqrt((residual**2).sum())
            terms = KrylovRows.terms(self.basis.coordinates, length, self.sigma**2)
        else:
            terms = lowrank_logp(
                self.basis.features(self.X.tensor), self.sigma**2, residual,
                kdiag=self.basis.kernel_diag(self.X.tensor), approx=self.approx,
            )  # fmt: skip
        return Coefficients(terms[2], terms[3])


@dataclass(frozen=True)
class KrylovRows:
    """O(P^3) likelihood for features ``Q A`` of a Krylov basis Q that starts at the residual e itself.

    Q is orthonormal with first column ``e / |e|``, so that only |e| and the small matrix A matter.
    """

    y_value: np.ndarray
    mutable: bool

    def density(self, value, mu, Q, A, noise, logdet=None) -> TensorVariable | None:
        """Log density of `value`, or None if the basis does not start at it."""
        present = _present(value)
        if present is None or not np.array_equal(present, self.y_value):
            return None
        residual = value - mu
        length = pt.sqrt((residual**2).sum())
        outside = value.shape[0] - A.shape[0]

        def density(length):
            return self.terms(A, length, noise)[0] - 0.5 * outside * (_LOG_2PI + pt.log(noise))

        logp = density(length)
        if logdet is not None:
            logp = logp - density(pt.zeros(())) - 0.5 * (logdet + value.shape[0] * _LOG_2PI)
        if not self.mutable:
            return logp
        message = "the targets were replaced by others than the inputs' Krylov basis starts at"
        return Assert(message)(logp, pt.le((1.0 - 1e-6) * length, Q[:, 0] @ residual))

    @staticmethod
    def terms(A, length, noise):
        """`lowrank_logp` in the coordinates of Q, where the residual is ``|e|`` times the first axis."""
        projected = pt.concatenate([length[None], pt.zeros(A.shape[0] - 1)])
        return lowrank_logp(A, noise, projected)
