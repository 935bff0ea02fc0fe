"""The likelihood or prior of a GP: Gaussian likelihoods of several kinds, and latent functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, held_value
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.coefficients import Coefficients
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.likelihoods.lowrank import LowRank
from pymc_scalable_gp.core.likelihoods.precision import LowRankPrecisions
from pymc_scalable_gp.core.likelihoods.predictor import Predictor
from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal
from pymc_scalable_gp.ops.lowrank_posterior import lowrank_posterior
from pymc_scalable_gp.ops.stacked_product import product
from pymc_scalable_gp.utils.graphs import is_random, present_value


@dataclass(frozen=True, eq=False)
class MarginalData:
    """Features, mean, data and noise of a marginal likelihood; they stay when a GP is built again.

    `weights` are prior variances of the features' coefficients, or None for 1; `noise_cov` the kernel of
    noise that covaries, besides that of single rows, or None.
    """

    feature_map: FeatureMap
    mean_func: Any
    X: Data
    y: Data
    sigma: TensorVariable
    approx: str
    weights: TensorVariable | None = None
    noise_cov: Any = None

    @cached_property
    def mean(self) -> TensorVariable:
        """Prior mean (n,)."""
        return mean_vector(self.mean_func, self.X.tensor)

    @property
    def residual(self) -> TensorVariable:
        """Targets less their mean (n,)."""
        return self.y.tensor - self.mean

    @property
    def size(self) -> int:
        """Number of rows n, now."""
        present = present_value(self.X.tensor)
        return len(self.X.value if present is None else present)

    def with_rows(self, X: Data, y: Data, sigma: TensorVariable) -> "MarginalData":
        """The same model with other rows."""
        return replace(self, X=X, y=y, sigma=sigma)

    def part(self, rows: np.ndarray) -> "MarginalData":
        """The same model with some of its rows, by their numbers."""
        X, y, sigma = held_value(self.X, "X")[rows], self.y, self.sigma
        if is_random(y.tensor):  # pseudo-targets
            y = Data(y.tensor[rows], np.zeros(len(rows)), True)
        else:
            y = Data.fixed(held_value(y, "y")[rows])
        return self.with_rows(Data.fixed(X), y, sigma if sigma.ndim == 0 else sigma[rows])

    def corrected(self, missed, noise) -> tuple[TensorVariable, TensorVariable]:
        """Variances D (n,) beside the features, and what the bound of "VFE" takes off the density.

        From prior variances (n,) that the features leave unexplained, and the noise's.
        """
        noise = noise * pt.ones_like(missed)
        if self.approx == "FITC":
            return noise + missed, pt.constant(0.0)
        penalty = 0.5 * (missed / noise).sum() if self.approx == "VFE" else pt.constant(0.0)
        return noise, penalty

    def guarded(self, rows: TensorVariable) -> TensorVariable:
        """`rows`, computed from X, refused where X was replaced by what the features do not hold.

        Under "FITC" the diagonal has what they leave unexplained; inputs with a prior are not replaced.
        """
        limits = self.feature_map.input_range
        fixed = not self.X.mutable or is_random(self.X.tensor)
        if limits is None or fixed or self.approx == "FITC":
            return rows
        return limits.guard(self.X.tensor, rows)


class Training(ABC):
    """A likelihood or a prior at training inputs X; `sigma` is the noise sd, None if it is not Gaussian."""

    X: Data
    sigma: TensorVariable | None
    has_rows: ClassVar[bool] = True  # X holds the training inputs, not their range alone
    any_likelihood: ClassVar[bool] = False  # new observations are drawn by a user's distribution
    gaussian: "Likelihood | None" = None  # what is evaluated; a latent function has none
    present_data: Any = None  # that a compiled prediction keeps, where they can be replaced

    @property
    @abstractmethod
    def predictive(self) -> "TrainingRows":
        """The Gaussian likelihood, or the latent function, that predictions follow from."""

    @property
    def at_mode(self) -> "TrainingRows":
        """The same, but for likelihoods that predict by another mean of the function than its mode."""
        return self.predictive

    def observing(self, predictor, likelihood, model):
        """Predictor of new observations; `likelihood` is that of new rows where a user has one."""
        if likelihood is not None:
            raise TypeError(
                "likelihood= is for new observations, pred_noise=True, of a GP that was given one"
            )
        return predictor

    def of_observations(self) -> "Training":
        """What predictions of new observations follow from, but for the noise of single rows."""
        return self

    def log_ratios(self) -> TensorVariable | None:
        """Log weights of functions towards the likelihood itself, where it is approximated; else None."""
        return None

    def around(self, gaussian: "Likelihood") -> "Training":
        """The same likelihood with another Gaussian one; latent functions have none."""
        raise NotImplementedError


class TrainingRows(Training):
    """Training inputs, features and their coefficients' posterior, from which predictions follow."""

    holds_residual: ClassVar[bool] = False  # the variance beside the features is the function's

    @property
    def predictive(self):
        return self

    @abstractmethod
    def coefficients(self) -> Coefficients:
        """Posterior of the coefficients of :meth:`prediction_map`'s features."""

    @abstractmethod
    def prediction_map(self) -> FeatureMap:
        """Features of predictions."""

    def prior_map(self) -> FeatureMap:
        """Features of the prior."""
        return self.prediction_map()

    def of_parts(self, parts: Sequence, places: Sequence[int]) -> tuple[FeatureMap, Coefficients]:
        """Features and coefficients of some `places` among the `parts`, the GPs that a sum holds."""
        total = self.prediction_map()
        found = self.coefficients().of(total.columns(places))
        chosen = [total.parts[place] for place in places]
        return (chosen[0] if len(chosen) == 1 else type(total)(chosen)), found

    def predictor(self, feature_map, mean_func, coef, noise, model) -> Predictor:
        """Compiled predictions with some features and their coefficients."""
        return Predictor(feature_map, mean_func, coef, noise, model)

    def conditional(
        self, name, data: Data, feature_map, mean_func, coef, variance, **kwargs
    ) -> TensorVariable:
        """Random variable of the function at new inputs; `variance` is added to each row's own."""
        phi = feature_map.features(data.tensor)
        mean = mean_vector(mean_func, data.tensor) + product(phi, coef.mean)
        variance = feature_map.missed(data.tensor, phi) + variance
        factor = coef.factor(phi)
        if factor is None:
            return pm.Normal(name, mean, pt.sqrt(variance), **kwargs)
        return LowRank(mean, factor, variance).variable(name, **kwargs)

    def figures(self, points, model=None) -> dict[str, float]:
        """Figures of this likelihood's own approximation, at the worst of some points."""
        return {}


@dataclass(frozen=True, eq=False)
class LatentFunction(TrainingRows):
    """A latent function: its coefficients are random variables of the model.

    `weights` are their prior variances, or None for 1.
    """

    feature_map: FeatureMap
    X: Data
    coef: TensorVariable
    weights: TensorVariable | None = None

    sigma = None

    def coefficients(self) -> Coefficients:
        return Coefficients(self.coef, None)

    def prediction_map(self) -> FeatureMap:
        return self.feature_map


class Likelihood(TrainingRows):
    """Gaussian likelihood with the function integrated out: one way to evaluate it.

    A method chooses the kind in ``make_likelihood(data)``. A kind gives the distribution of targets and
    the coefficients' posterior, both for whatever targets and noise are handed in, and says which
    features predictions take.
    """

    path: ClassVar[str]
    is_exact: ClassVar[bool] = False  # that of the exact Gaussian process, on all rows
    subsets_share_features: ClassVar[bool] = True  # a subset of rows keeps the features
    data: MarginalData

    @property
    def gaussian(self):
        return self

    def around(self, gaussian: "Likelihood") -> "Likelihood":
        return gaussian

    @property
    def X(self) -> Data:
        """Training inputs."""
        return self.data.X

    @property
    def sigma(self) -> TensorVariable:
        """Noise standard deviation."""
        return self.data.sigma

    @abstractmethod
    def normal(self, noise: TensorVariable) -> StructuredNormal:
        """Distribution of targets with noise variances, a scalar or (n,)."""

    def coefficients(self, target=None, noise=None) -> Coefficients:
        """Posterior given targets (n,) and noise variances, see :meth:`handed`; none without features."""
        return Coefficients(pt.zeros(0), None)

    def handed(self, target, noise) -> tuple[TensorVariable, TensorVariable]:
        """Targets and noise variances that were handed in; the data's own in place of None."""
        target = self.data.y.tensor if target is None else target
        return target, self.data.sigma**2 if noise is None else noise

    def observe(self, name: str, **kwargs) -> TensorVariable:
        """The observed random variable, in the model of the context."""
        target, noise = self.handed(None, None)
        return self.normal(noise).variable(name, observed=target, **kwargs)

    def logp(self, target=None, noise=None) -> TensorVariable:
        """Log density of targets (n,) with noise variances: see :meth:`handed`."""
        target, noise = self.handed(target, noise)
        return self.normal(noise).logp(target)

    def variance(self) -> TensorVariable:
        """Variances (n,) of rows beside the features', of which the density and :meth:`coefficients` are.

        Where they are small, others that differ by rounding alone would not go with these coefficients.
        """
        return self.data.sigma**2 * pt.ones_like(self.data.y.tensor)

    def precisions(self, model) -> Callable:
        """Precision matrix of the targets as a function of its `inputs`, variables of the model."""
        return LowRankPrecisions(self, model)

    def prediction_map(self) -> FeatureMap:
        return self.data.feature_map

    def prior_map(self) -> FeatureMap:
        """Features of the prior, before any correction."""
        return self.data.feature_map

    def given(self, X: Data, y: Data, sigma: TensorVariable) -> "Likelihood":
        """Likelihood of other data with the same features and hyperparameters."""
        return FullRows(self.data.with_rows(X, y, sigma))

    def part(self, rows: np.ndarray) -> "Likelihood | None":
        """The same approximation of some of the rows, by their numbers, or None where there is none such.

        Where subsets do not share the features it is that of all rows alone.
        """
        if self.subsets_share_features:
            data = self.data.part(rows)
            return self.given(data.X, data.y, data.sigma)
        return self if len(rows) == self.data.size and not self.is_exact else None


@dataclass(frozen=True, eq=False)
class FullRows(Likelihood):
    """All rows at every evaluation: O(n r^2)."""

    data: MarginalData

    path = "full"

    def _phi(self):
        """Features (n, r)."""
        return self.data.guarded(self.data.feature_map.features(self.data.X.tensor))

    def _features(self):
        """Features, and what "FITC" and "VFE" need besides."""
        data = self.data
        kdiag = None if data.approx == "DTC" else data.feature_map.kernel_diag(data.X.tensor)
        return self._phi(), kdiag

    def normal(self, noise):
        data, (phi, kdiag) = self.data, self._features()
        return LowRank(data.mean, phi, noise, data.weights, kdiag, data.approx)

    def _posterior(self, target, noise):
        """The same terms as the density's."""
        target, noise = self.handed(target, noise)
        data, (phi, kdiag) = self.data, self._features()
        return lowrank_posterior(
            phi, noise, target - data.mean, weights=data.weights, kdiag=kdiag, approx=data.approx
        )

    def variance(self):
        return self._posterior(None, None).variance

    def coefficients(self, target=None, noise=None):
        found = self._posterior(target, noise)
        return Coefficients(found.coef, found.root)
