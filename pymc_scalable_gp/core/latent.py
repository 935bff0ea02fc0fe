"""Latent front end, shared by every method: any likelihood."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, count
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, check_dims, check_inputs, check_weights
from pymc_scalable_gp.core.data.keywords import prior_keywords
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.likelihoods.base import LatentFunction
from pymc_scalable_gp.core.sums import Additive
from pymc_scalable_gp.cov.queries import refuse_new_labels
from pymc_scalable_gp.utils.classes import as_typed
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import depends_only_on, fixed_shared, is_random


@as_typed
class FeatureLatent(FeatureGP):
    """Front end for any likelihood: the function's coefficients are random variables."""

    def prior(self, name, X, **kwargs) -> TensorVariable:
        r"""Function values at X, for any likelihood: ``f = mean + Phi z``, ``z ~ N(0, I_r)``.

        Parameters
        ----------
        name : str
            Name of the deterministic variable; the coefficients are ``{name}_coeffs``.
        X : array, shape (n, d), or pm.Data
            Inputs. Where `pm.set_data` replaces them by others beyond the range of those that the GP was
            built on, evaluation raises: the features hold no prior variance there.
        **kwargs
            Passed to `pm.Deterministic`: ``dims``. What `pm.gp.Latent` takes besides may be its default.

        Returns
        -------
        TensorVariable, shape (n,)

        Raises
        ------
        TypeError, ValueError
            For bad inputs or an unknown keyword, before anything is built.
        """
        keywords = self._prior_keywords(kwargs)
        return self._latent(name, self._latent_inputs(X, keywords), keywords)

    def _prior_keywords(self, kwargs) -> dict[str, Any]:
        """Checked keywords of a prior, before anything is built."""
        self.check_unconditioned()
        for part in self.parts:
            part.check_latent()
        return prior_keywords(self, kwargs)

    def check_latent(self) -> None:
        """Raise ValueError for a kernel with which the density of the coefficients jumps."""

    def _latent_inputs(self, X, keywords, bound=True) -> Data:
        """Checked inputs, with the features built on them unless they were before."""
        data = check_inputs(X)
        check_dims(keywords.get("dims"), data, "X")
        self.build_for(data, bound)
        tensor = refuse_new_labels(self.cov_func, data.tensor) if data.mutable else data.tensor
        return replace(data, tensor=tensor)

    def _latent(self, name, data, keywords, coef=None, weights=None) -> TensorVariable:
        """The function, with coefficients `coef` (r,), or new ones, of prior variances `weights`."""
        feature_map, weights = self.feature_map, check_weights(weights, self.rank)
        feature_map = feature_map.covering(data.value.min(axis=0), data.value.max(axis=0))
        coef = pm.Normal(f"{name}_coeffs", 0.0, 1.0, shape=self.rank) if coef is None else coef
        coef = coef if weights is None else coef * pt.sqrt(weights)
        held = pm.modelcontext(None).name_for(f"{name}_features")
        names = chain([held], (f"{held}_{place}" for place in count(2)))  # nutpie wants every name once
        hold = partial(computed_once, data=data, names=names)
        f = feature_map.times(data.tensor, coef, hold)
        if data.mutable and not is_random(data.tensor) and feature_map.input_range:
            f = feature_map.input_range.guard(data.tensor, f)
        f = pm.Deterministic(name, mean_vector(self.mean_func, data.tensor) + f, **keywords)
        self._follow(LatentFunction(feature_map, data, coef, weights))
        return f


def computed_once(tensor: TensorVariable, data: Data, names: Iterator[str]) -> TensorVariable:
    """A tensor's value, if it depends on nothing but inputs that stay; else the tensor itself."""
    if data.mutable or not depends_only_on([tensor], [data.tensor]):
        return tensor
    return fixed_shared(evaluate([tensor])[0], next(names))


class AdditiveLatent(Additive, FeatureLatent):
    """Sum of latent GPs, as ``gp1 + gp2`` makes it."""


FeatureLatent.sum_classes = AdditiveLatent.sum_classes = (AdditiveLatent,)
