"""Marginal front end, shared by every method: Gaussian noise, the function integrated out."""

from dataclasses import replace

import numpy as np
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.conditioned import MarginalFit
from pymc_scalable_gp.core.data import check_inputs, check_sigma, check_target
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.lowrank_normal import LowRankNormal
from pymc_scalable_gp.core.singular import compile_features, project, singular_factor
from pymc_scalable_gp.core.summaries import FrozenRows, SummarizedRows
from pymc_scalable_gp.utils.graphs import is_random


class FeatureMarginal(FeatureGP):
    """Front end for Gaussian noise: the function is integrated out."""

    def marginal_likelihood(
        self, name, X, y, sigma, *, progressbar: bool = True, **kwargs
    ) -> TensorVariable:
        r"""Observed random variable for data with Gaussian noise, the function integrated out.

        .. math:: y \sim N(\mu(X),\; \Phi\Phi^\top + D)

        Parameters
        ----------
        name : str
            Name of the random variable.
        X : array, shape (n, d), or pm.Data
            Inputs. NumPy, pandas, xarray and integer or float32 arrays are taken as float64.
        y : array, shape (n,), or pm.Data
            Observations; no missing values.
        sigma : float, array (n,), or random variable
            Noise standard deviation, scalar or one value a row.
        progressbar : bool
            Show progress while many rows are summarised.
        **kwargs
            Passed to :class:`LowRankNormal`, such as ``dims``.

        Returns
        -------
        TensorVariable, shape (n,)

        Raises
        ------
        TypeError, ValueError
            For bad inputs, before anything is compiled.

        Notes
        -----
        An evaluation costs O(n r^2). Under "DTC", with a scalar sigma, a fixed mean and features that
        the parameters at most mix, the rows are summarised once and it costs O(r^3) whatever n:
        :attr:`likelihood_path` tells.
        """
        fit = self._marginal_fit(name, X, y, sigma)
        return self._observe(name, fit, progressbar, **kwargs)

    @property
    def likelihood_path(self) -> str | None:
        """How the likelihood is evaluated: "full" O(n r^2), "summarized" O(r^3) or "rotated" O(r)."""
        if not isinstance(self._fit, MarginalFit):
            return None
        return "full" if self._fit.frozen is None else self._fit.frozen.path

    def _marginal_fit(self, name, X, y, sigma) -> MarginalFit:
        data = check_inputs(X)
        n = data.value.shape[0]
        target = check_target(y, n)
        noise_sd = check_sigma(sigma, None if data.mutable else n)
        if not self._map.is_fitted:
            self.build(X)
        if not data.mutable:
            data.tensor.name = f"{name}_X"
        return MarginalFit(self, data, target, noise_sd, self.approx or "FITC")

    def _observe(self, name, fit, progressbar=True, **kwargs):
        X = fit.X.tensor
        observed = fit.y.tensor if fit.y.mutable else fit.y.value
        fit = replace(fit, frozen=self._freeze(fit, progressbar))
        mixing = self._map.mixing()
        if fit.frozen is None or mixing is None:
            phi, weights = self._map.features(X), fit.weights
        else:
            phi, weights = self._map.basis(X), mixing
        variable = LowRankNormal(
            name, self.mean_func(X), phi, fit.sigma, weights=weights,
            kdiag=self._map.kernel_diag(X), approx=fit.approx,
            shortcut=fit.frozen, observed=observed, **kwargs,
        )  # fmt: skip
        self._fit = fit
        return variable

    def _freeze(self, fit, progressbar) -> FrozenRows | None:
        """The likelihood that needs no rows, where there is one: DTC, one sigma, nothing of size n free."""
        X = fit.X.tensor
        mean = self.mean_func(X)
        constant = self._map.constant_basis(X) is not None
        if fit.approx != "DTC" or fit.sigma.ndim or not constant or is_random(mean):
            return None
        residual = fit.y.value - np.broadcast_to(mean.eval(), fit.y.value.shape)
        X = fit.X.value.copy() if fit.X.mutable else fit.X.value
        basis = compile_features(self._map.constant_basis)
        singular, kind = self._singular(basis, X, progressbar)
        u = project(basis, X, residual, singular, progressbar)
        total, mutable = float(residual @ residual), fit.X.mutable or fit.y.mutable
        held = X if fit.X.mutable else None
        return kind(held, fit.y.value.copy(), mutable, singular, u, total)

    def _singular(self, basis, X, progressbar):
        """Singular factor of the basis at X, and the kind of likelihood that goes with it."""
        size = self.rank if self._map.mixing() is None else self._map.mixing().type.shape[0]
        return singular_factor(basis, X, size, progressbar), SummarizedRows
