"""What a GP was conditioned on, and the posterior of its feature coefficients."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.coefficients import Coefficients
from pymc_scalable_gp.core.data import Data
from pymc_scalable_gp.core.summaries import FrozenRows
from pymc_scalable_gp.ops.lowrank_logp import lowrank_logp

if TYPE_CHECKING:
    from pymc_scalable_gp.core.gp import FeatureGP


@dataclass(frozen=True)
class MarginalFit:
    """What a marginal likelihood was made of; gives the posterior of the feature coefficients."""

    gp: "FeatureGP"
    X: Data
    y: Data
    sigma: TensorVariable
    approx: str
    weights: TensorVariable | None = None
    frozen: FrozenRows | None = None

    @property
    def is_summarized(self) -> bool:
        """Whether the rows were summarised and still are what they were."""
        frozen, X = self.frozen, self.X.tensor
        return (
            frozen is not None
            and frozen.applies_to(self.y.tensor)
            and frozen.knows(frozen.inputs_in(X))
        )

    def corrected(self, missed) -> tuple[TensorVariable, TensorVariable]:
        """Variances D (n,) beside the features, and what the bound of "VFE" takes off the density.

        From prior variances (n,) that the features miss.
        """
        noise = self.sigma**2 * pt.ones(self.X.value.shape[0])
        if self.approx == "FITC":
            return noise + missed, pt.constant(0.0)
        penalty = 0.5 * (missed / noise).sum() if self.approx == "VFE" else pt.constant(0.0)
        return noise, penalty

    def coefficients(self) -> Coefficients:
        """Posterior of the coefficients of the GP's features."""
        noise = self.sigma**2
        weights = pt.ones(self.gp.rank) if self.weights is None else self.weights
        if self.is_summarized:
            mixing = self.gp._map.mixing()
            found = self.frozen.coefficients(weights if mixing is None else mixing, noise)
            mean = self.frozen.guard(found.mean, self.X.tensor, self.y.tensor)
            return Coefficients(mean, found.root)
        X = self.X.tensor
        _logp, _alpha, mean, root, _variance = lowrank_logp(
            self.gp.features(X), noise, self.y.tensor - self.gp.mean_func(X),
            weights=weights, kdiag=self.gp._map.kernel_diag(X), approx=self.approx,
        )  # fmt: skip
        return Coefficients(mean, root)


@dataclass(frozen=True)
class LatentFit:
    """A latent function's coefficients: themselves random variables of the model."""

    gp: "FeatureGP"
    X: Data
    coef: TensorVariable

    sigma = None

    def coefficients(self) -> Coefficients:
        """The coefficients, known exactly at each draw."""
        return Coefficients(self.coef, None)
