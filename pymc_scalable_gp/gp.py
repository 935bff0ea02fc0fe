"""Marginal and Latent front ends, shared by every method."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.gp.gp import Base
from pymc.gp.mean import Zero
from pymc.gp.util import JITTER_DEFAULT
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp import predict as prediction
from pymc_scalable_gp.distribution import LowRankNormal
from pymc_scalable_gp.features import FeatureMap, SumMap
from pymc_scalable_gp.fits import LatentFit, MarginalFit
from pymc_scalable_gp.point import is_random
from pymc_scalable_gp.posterior import Coefficients, FrozenRows, SummarizedRows
from pymc_scalable_gp.rows import compile_features, project, singular_factor
from pymc_scalable_gp.validate import (
    check_given,
    check_inputs,
    check_sigma,
    check_target,
)


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
        data = check_inputs(Xnew, "Xnew", self._n_columns(fit))
        prediction.warn_outside(self._map, data.value)
        mean, factor, variance = self._conditional_terms(data.tensor, fit, columns, pred_noise)
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
        value = check_inputs(Xnew, "Xnew", self._n_columns(fit)).value
        prediction.warn_outside(self._map, value)
        predictor = self._predictor(fit, columns, pred_noise, model)
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
        value = check_inputs(Xnew, "Xnew", self._n_columns(fit)).value
        prediction.warn_outside(self._map, value)
        predictor = self._predictor(fit, columns, pred_noise, model)
        return predictor.mixture(value, idata, num_samples, progressbar, random_seed)

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

    def _n_columns(self, fit):
        return fit.X.value.shape[1]

    def _given_fit(self, given):
        """The fit to condition on and this GP's columns among its features (None: all)."""
        given = check_given(given, ("X", "y", "sigma", "f", "gp"))
        owner = given.get("gp", self)
        fit = owner._fit
        if all(key in given for key in ("X", "y", "sigma")):
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
        mean, root = fit.coefficients()
        if columns is None:
            return Coefficients(mean, root)
        return Coefficients(mean[columns], None if root is None else root[..., columns])

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

    def _conditional_terms(self, X, fit, columns, pred_noise):
        """Mean (n*,), factor (n*, k) or None, and independent variance (n*,)."""
        coef, root = self._posterior(fit, columns)
        phi = self._map.features(X)
        mean = self.mean_func(X) + phi @ coef
        missed = self._map.missed(X, phi)
        factor = None
        if root is not None:
            factor = phi * root if root.ndim == 1 else phi @ root.T
        return mean, factor, missed + self._noise(fit, pred_noise)

    def _predictor(self, fit, columns, pred_noise, model):
        """Compiled predictor, kept for the next call on the same model, fit and kind of data."""
        model = pm.modelcontext(model)
        summarized = isinstance(fit, MarginalFit) and fit.is_summarized
        key = (model, fit, summarized)
        held, predictor = self._compiled.get(pred_noise, ((None, None, None), None))
        if held[0] is model and held[1] is fit and held[2] == summarized:
            return predictor
        coef, root = self._posterior(fit, columns)
        noise = self._noise(fit, pred_noise)
        predictor = prediction.Predictor(self._map, self.mean_func, coef, root, noise, model)
        self._compiled[pred_noise] = (key, predictor)
        return predictor


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
            frozen=fit.frozen, observed=observed, **kwargs,
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
        X_value = fit.X.value.copy() if fit.X.mutable else fit.X.value
        basis = compile_features(self._map.constant_basis)
        singular, kind = self._singular(basis, X_value, progressbar)
        u = project(basis, X_value, residual, singular, progressbar)
        total, mutable = float(residual @ residual), fit.X.mutable or fit.y.mutable
        return kind(X_value, fit.y.value.copy(), mutable, singular, u, total)

    def _singular(self, basis, X, progressbar):
        """Singular factor of the basis at X, and the kind of likelihood that goes with it."""
        size = self.rank if self._map.mixing() is None else self._map.mixing().type.shape[0]
        return singular_factor(basis, X, size, progressbar), SummarizedRows


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
