"""Latent front end, shared by every method: any likelihood."""

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.conditioned import LatentFit
from pymc_scalable_gp.core.data import check_inputs
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.utils.graphs import is_random


class FeatureLatent(FeatureGP):
    """Front end for any likelihood: the function's coefficients are random variables."""

    def prior(self, name, X, **kwargs) -> TensorVariable:
        r"""Function values at X, for any likelihood: ``f = mean + Phi z``, ``z ~ N(0, I_r)``.

        Parameters
        ----------
        name : str
            Name of the deterministic variable; the coefficients are ``{name}_coeffs``.
        X : array, shape (n, d), or pm.Data
            Inputs.
        **kwargs
            Passed to `pm.Deterministic`, such as ``dims``.

        Returns
        -------
        TensorVariable, shape (n,)

        Raises
        ------
        TypeError, ValueError
            For bad inputs, before anything is compiled.
        """
        return self._prior(name, X, None, **kwargs)

    def _prior(self, name, X, weights, **kwargs):
        data = check_inputs(X)
        if not self._map.is_fitted:
            self.build(X)
        coef = pm.Normal(f"{name}_coeffs", 0.0, 1.0, shape=self.rank)
        if weights is not None:
            coef = coef * pt.sqrt(weights)
        phi, mixed = self._map.features(data.tensor), coef
        mixing, constant = self._map.mixing(), self._map.constant_basis(data.tensor)
        if mixing is not None and constant is not None:
            phi = self._map.basis(data.tensor) if data.mutable else constant
            mixed = mixing @ coef
        if not data.mutable and not is_random(phi):
            phi = pytensor.shared(phi.eval(), name=f"{name}_features")
        f = pm.Deterministic(name, self.mean_func(data.tensor) + phi @ mixed, **kwargs)
        self._fit = LatentFit(self, data, coef)
        return f
