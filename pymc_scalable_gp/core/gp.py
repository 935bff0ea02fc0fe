"""What the Marginal and the Latent front end share: features, sums, predictions, diagnostics."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.gp import Base
from pymc.gp.mean import Zero
from pymc.gp.util import JITTER_DEFAULT
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core import predict as prediction
from pymc_scalable_gp.core.coefficients import Coefficients
from pymc_scalable_gp.core.conditioned import LatentFit, MarginalFit
from pymc_scalable_gp.core.data import Data, check_given, check_inputs, check_sigma, check_target
from pymc_scalable_gp.core.features import FeatureMap, SumMap
from pymc_scalable_gp.core.lowrank_normal import LowRankNormal


class FeatureGP(Base):
    """What every GP with a finite feature map can do; base of the public classes."""

    approx: str | None = None

    def __init__(self, feature_map: FeatureMap, *, mean_func=None, cov_func):
        super().__init__(mean_func=Zero() if mean_func is None else mean_func, cov_func=cov_func)
        self._map = feature_map
        self._fit: MarginalFit | LatentFit | None = None
        self._compiled: dict[bool, Any] = {}

    @property
    def rank(self) -> int:
        """Number of features r; known once ``build(X)`` has run."""
        return self._map.rank

    def features(self, X) -> TensorVariable:
        """Symbolic feature matrix (n, r) at inputs X (n, d); ``phi @ phi.T`` approximates the kernel."""
        tensor = X if isinstance(X, TensorVariable) else check_inputs(X).tensor
        if not self._map.is_fitted:
            self.build(X)
        return self._map.features(tensor)

    def build(self, X) -> int:
        """Fix what depends on the training inputs X (n, d); returns the rank."""
        self._map.fit_to(check_inputs(X).value)
        return self.rank

    def __add__(self, other):
        """Sum of two independent GPs; their features stand side by side."""
        if type(self) is not type(other):
            raise TypeError(f"cannot add {type(self).__name__} and {type(other).__name__}")
        if self.approx != other.approx:
            raise TypeError(f"cannot add GPs with approx={self.approx!r} and {other.approx!r}")
        total = copy.copy(self)
        Base.__init__(
            total,
            mean_func=self.mean_func + other.mean_func,
            cov_func=self.cov_func + other.cov_func,
        )
        total._map = SumMap([self._map, other._map])
        total._fit, total._compiled = None, {}
        return total

    # -- predictions ------------------------------------------------------------------------

    def conditional(
        self, name, Xnew, pred_noise=False, given=None, jitter=JITTER_DEFAULT, **kwargs
    ):
        r"""Random variable for the function at new inputs, given the training data.

        .. math:: f_* \sim N(\mu_* + \Phi_*\,m,\; \Phi_* S \Phi_*^\top
                  + \mathrm{diag}(k_{**} - \|\phi_*\|^2) + \mathrm{jitter})

        with :math:`m, S` the posterior mean and covariance of the feature coefficients. Draws are
        joint and cost O(n* r); far from the data their variance returns to the prior's.

        Parameters
        ----------
        name : str
            Name of the random variable.
        Xnew : array, shape (n*, d), or pm.Data
            New inputs.
        pred_noise : bool
            Add the observation noise (Marginal classes with a scalar sigma).
        given : dict, optional
            ``{"X", "y", "sigma", "gp"}`` as in `pm.gp.Marginal`; ``gp`` is the sum that this GP is
            a part of. For a latent GP ``{"gp": total}``.
        jitter : float
            Added to the variance of each point.
        **kwargs
            Passed to the distribution, such as ``dims``.

        Returns
        -------
        TensorVariable, shape (n*,)

        Raises
        ------
        ValueError
            Before ``marginal_likelihood`` or ``prior``, or for bad inputs.
        """
        fit, columns = self._given_fit(given)
        data = self._new_inputs(Xnew, fit)
        mean, factor, variance = self._conditional_terms(data, fit, columns, pred_noise)
        sd = pt.sqrt(variance + jitter)
        if factor is None:
            return pm.Normal(name, mean, sd, **kwargs)
        return LowRankNormal(name, mean, factor, sd, **kwargs)

    def predict(
        self, Xnew, point=None, diag=False, pred_noise=False, given=None, model=None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and (co)variance of the function at new inputs for one point, as NumPy arrays.

        Parameters
        ----------
        Xnew : array, shape (n*, d)
        point : dict
            Values of the model's variables, such as ``pm.find_MAP()`` returns.
        diag : bool
            True: variances (n*,), computed in row blocks. False: the n* x n* covariance.
        pred_noise : bool
            Add the observation noise.
        given : dict, optional
            As in :meth:`conditional`.
        model : pm.Model, optional
            Needed outside the model context.

        Returns
        -------
        mean : array, shape (n*,)
        var : array, shape (n*,) or (n*, n*)

        Raises
        ------
        ValueError
            Before ``marginal_likelihood`` or ``prior``, when `point` lacks a value, or for bad inputs.
        """
        fit, columns = self._given_fit(given)
        data = self._new_inputs(Xnew, fit)
        if not diag:
            data = replace(data, grid=None)  # a dense covariance is asked for
        predictor, value = self._predictor(data, fit, columns, pred_noise, model), data.value
        state = predictor.state(point)
        return predictor.diagonal(state, value) if diag else predictor.full(state, value)

    def predict_posterior(
        self,
        Xnew,
        idata,
        *,
        num_samples: int | None = None,
        pred_noise: bool = False,
        given=None,
        progressbar: bool = True,
        random_seed=None,
        model=None,
    ):
        """Mean and sd at new inputs, mixed over posterior draws.

        Parameters
        ----------
        Xnew : array, shape (n*, d)
            Any number of rows: they are taken in blocks.
        idata : DataTree or Dataset
            Result of ``pm.sample`` (its ``posterior`` group).
        num_samples : int, optional
            Number of draws, taken at random without replacement; all of them when left out.
        pred_noise : bool
            Add the observation noise.
        given : dict, optional
            As in :meth:`conditional`.
        progressbar : bool
            Show progress over the draws.
        random_seed : int, optional
            Seed of the choice of draws.
        model : pm.Model, optional
            Needed outside the model context.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``sd`` over ``obs``: mean and standard deviation of the equal-weight mixture
            of the draws' normal predictions.

        Raises
        ------
        ValueError
            As :meth:`predict`, or when a variable of the model is not in the posterior.
        """
        fit, columns = self._given_fit(given)
        data = self._new_inputs(Xnew, fit)
        predictor = self._predictor(data, fit, columns, pred_noise, model)
        return predictor.mixture(data.value, idata, num_samples, progressbar, random_seed)

    def diagnostics(self, X=None, point=None, model=None) -> dict[str, float]:
        """How much prior variance the features miss, at training (or given) inputs and one point.

        Parameters
        ----------
        X : array, shape (n, d), optional
            Inputs; the training inputs when left out.
        point : dict, optional
            Values of the hyperparameters; the model's initial point when left out.
        model : pm.Model, optional
            Needed outside the model context.

        Returns
        -------
        dict
            ``rank``; ``missing_mean`` and ``missing_max``, the mean and largest share
            ``1 - ||phi(x)||^2 / k(x, x)`` over the rows. Above a few per cent, sigma (DTC) or the
            diagonal correction (FITC) takes over what the features miss: raise the rank.
        """
        if X is None and self._fit is None:
            raise ValueError("give X, or call marginal_likelihood or prior first")
        data = self._fit.X if X is None else check_inputs(X, "X")
        return prediction.missing_variance(self._map, data, point, model)

    # -- plumbing ---------------------------------------------------------------------------

    def _new_inputs(self, Xnew, fit) -> Data:
        """Checked inputs of a prediction, with a warning where the features do not reach."""
        data = check_inputs(Xnew, "Xnew", fit.X.value.shape[1])
        prediction.warn_outside(self._map, data.value)
        return data

    def _given_fit(self, given):
        """The fit to condition on and this GP's columns among its features (None: all)."""
        given = check_given(given)
        owner = given.get("gp", self)
        fit = owner._fit
        if "X" in given:
            X = check_inputs(given["X"])
            if not owner._map.is_fitted:
                owner._map.fit_to(X.value)
            y = check_target(given["y"], X.value.shape[0])
            approx = owner.approx or "FITC"
            base = fit if isinstance(fit, MarginalFit) else MarginalFit(owner, X, y, None, approx)
            sigma = check_sigma(given["sigma"], X.value.shape[0])
            fit = replace(base, X=X, y=y, sigma=sigma, frozen=None)
        if fit is None:
            raise ValueError(
                f"{type(self).__name__} has no data yet: call marginal_likelihood(...) or prior(...) "
                'first, or pass given={"X": X, "y": y, "sigma": sigma, "gp": total}'
            )
        if owner is self:
            return fit, None
        columns = SumMap([owner._map]).columns(SumMap([self._map]).parts)
        if columns is None:
            raise ValueError('given["gp"] must be a sum that this GP is a part of: gp1 + gp2')
        return fit, columns

    def _posterior(self, fit, columns) -> Coefficients:
        coef = fit.coefficients()
        if columns is None:
            return coef
        root = coef.root
        return Coefficients(coef.mean[columns], None if root is None else root[..., columns])

    def _noise(self, fit, pred_noise):
        """Noise variance of a new observation (a scalar)."""
        if not pred_noise:
            return pt.constant(0.0)
        if fit.sigma is None:
            raise ValueError("pred_noise=True needs a marginal likelihood: the likelihood is yours")
        if fit.sigma.ndim:
            raise ValueError(
                "pred_noise=True needs a scalar sigma: with one value a training row the noise of "
                "new rows is unknown. Add it to the result instead"
            )
        return fit.sigma**2

    def _conditional_terms(self, data, fit, columns, pred_noise):
        """Mean (n*,), factor (n*, k) or None, and independent variance (n*,)."""
        coef = self._posterior(fit, columns)
        X, feature_map = data.tensor, self._map_for(fit)
        phi = feature_map.features_at(data)
        mean = self.mean_func(X) + phi @ coef.mean
        missed = feature_map.missed(X, phi)
        return mean, coef.factor(phi), missed + self._noise(fit, pred_noise)

    def _predictor(self, data, fit, columns, pred_noise, model):
        """Compiled predictor, kept for the next call on the same model, fit and kind of data."""
        model = pm.modelcontext(model)
        summarized = isinstance(fit, MarginalFit) and fit.is_summarized
        key = (model, fit, data.grid, summarized)
        held, predictor = self._compiled.get(pred_noise, (None, None))
        if held is not None and all(a is b for a, b in zip(held, key, strict=True)):
            return predictor
        coef = self._posterior(fit, columns)
        predictor = self._make_predictor(data, fit, coef, self._noise(fit, pred_noise), model)
        self._compiled[pred_noise] = (key, predictor)
        return predictor

    def _make_predictor(self, data, fit, coef, noise, model):
        return prediction.Predictor(self._map_for(fit), self.mean_func, coef, noise, model)

    def _map_for(self, fit) -> FeatureMap:
        """Own features, as functions of the coefficients of `fit`."""
        return self._map
