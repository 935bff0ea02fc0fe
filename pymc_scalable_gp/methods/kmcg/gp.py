"""KMCG: kernel machine conjugate gradients, features from the Krylov space of the targets."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytensor
from pymc.gp.cov import BaseCovariance
from pymc.gp.gp import Base
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data import Data, check_given, check_inputs, check_sigma, check_target
from pymc_scalable_gp.core.lowrank_normal import LowRankNormal
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.cov.queries import refuse_white_noise, used_columns
from pymc_scalable_gp.methods.kmcg.features import KMCGMap, PartMap
from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator
from pymc_scalable_gp.methods.kmcg.likelihood import KMCGFit, KrylovRows
from pymc_scalable_gp.methods.kmcg.predict import GridPredictor
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS
from pymc_scalable_gp.ops.stochastic_logdet import stochastic_logdet
from pymc_scalable_gp.utils.checks import check_choice, check_count

# Probes of the log determinant on a grid.
DEFAULT_PROBES = 8


class KMCGMarginal(FeatureMarginal):
    r"""Gaussian process by kernel machine conjugate gradients (KMCG), with Gaussian noise.

    The features are the projections of the kernel that P steps of conjugate gradients on
    ``K_M a = y_M`` look at:

    .. math::

        \tilde k(x, x') = k(x, X_M)\, S\, (S^\top K_M S)^{-1} S^\top k(X_M, x'), \qquad
        \operatorname{span} S = \operatorname{span}\{y_M, K_M y_M, \dots, K_M^{P-1} y_M\}

    with the targets less their mean for y. They cost P products with the kernel matrix: use it where
    those are fast, on **grids and regular series**, gaps included, given as :class:`sgp.RegularGrid`.
    There it fits a million cells, whose structure a few hundred inducing points cannot describe. On
    scattered inputs a product costs M^2, and inducing points give better variances.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel; on a grid a product over dimensions, or a sum of such.
    approx : {"DTC", "FITC", "VFE"}, optional
        Treatment of the prior variance that the features miss, as in `pm.gp.MarginalApprox`.
        Default: "DTC", the paper's, and the only one that does not look at the rows again.
    n_iter : int
        P, the number of steps and of features. Fixed, so that the density is one function of the
        parameters. ``diagnostics()`` says how far CG has come: raise it until the residual falls
        below 0.01, or until the posterior no longer moves.
    probes : int, optional
        Number S of random vectors that estimate the log determinant of the exact ``K + sigma^2 I`` for the
        density, by P Lanczos steps each; 0 takes that of the P features, the paper's equation 16.
        Default: 8 on a `RegularGrid`, 0 for arrays. With 0, P has to reach nearly all of the kernel's
        variance (``diagnostics()["missing_mean"]``) before hyperparameters can be inferred:
        otherwise the few directions that y itself chose explain it under *any* kernel, and the
        density prefers lengthscales near zero. With S probes, posterior means move by about
        ``S^-1/2`` posterior standard deviations.
    inducing : int or integer array, optional
        M, or indices of the M rows whose kernel matrix is used; all when left out. An int takes
        evenly spaced rows: shuffle rows that are in a periodic order. Not for grids.

    Raises
    ------
    TypeError, ValueError
        For an unknown option, `WhiteNoise` inside the kernel, more steps than rows, or, on a grid, a
        kernel that is not a product.

    Notes
    -----
    ===================  ==========================  ==========================
    step                 grid of n cells             scattered rows
    ===================  ==========================  ==========================
    density              P products + O(n P^2)       O(M^2 P + n M P)
    gradient             twice that                  twice that
    memory               n P doubles (gradient too)  M^2 + n M + n P doubles
    prediction           P products for all cells    O(M P) a row
    ===================  ==========================  ==========================

    A product is O(n sum_i G_i) with dense factors of sizes ``G_i``, O(n log n) with Toeplitz ones.

    Each probe costs as much as the density itself; one basis is held besides, whatever S.

    With DTC, one sigma and all rows the features' density is that of P + 1 numbers, since the targets
    are the first basis vector: ``y = |y| Q e_1`` and ``Phi = Q A``. Its gradient is the exact gradient of
    these steps. The mean converges first, within tens of steps; the predictive variance is an upper
    bound that comes down to the exact one only when P nears the effective number of degrees of
    freedom.

    References
    ----------
    .. [1] Bartels, S. and Hennig, P. (2020). Conjugate Gradients for Kernel Machines. JMLR 21(55).
    """

    def __init__(
        self, *, mean_func=None, cov_func, approx=None, n_iter=100, probes=None, inducing=None
    ):
        approx = "DTC" if approx is None else approx
        check_choice("approx", approx, APPROXIMATIONS)
        if not isinstance(cov_func, BaseCovariance):
            raise TypeError(f"cov_func must be a pm.gp.cov kernel, got {type(cov_func).__name__}")
        refuse_white_noise(cov_func)
        feature_map = KMCGMap(cov_func, check_count("n_iter", n_iter), inducing)
        super().__init__(feature_map, mean_func=mean_func, cov_func=cov_func)
        self.approx = approx
        self.probes = None if probes is None else check_count("probes", probes, 0)
        if self.probes and (approx != "DTC" or inducing is not None):
            raise ValueError('probes need approx="DTC" and all rows: leave inducing= out')
        self._parts, self._seed = (self,), 0

    def __add__(self, other):
        """Sum of two independent GPs: one basis for the sum of the kernels."""
        if not isinstance(other, KMCGMarginal) or self.approx != other.approx:
            raise TypeError("a KMCGMarginal adds to another with the same approx only")
        total = copy.copy(self)
        Base.__init__(
            total,
            mean_func=self.mean_func + other.mean_func,
            cov_func=self.cov_func + other.cov_func,
        )
        steps = max(self.rank, other.rank)
        total._map = KMCGMap(total.cov_func, steps, self._map.subset)
        total._fit, total._compiled = None, {}
        total._parts = self._parts + other._parts
        return total

    def marginal_likelihood(self, name, X, y, sigma, *, random_seed=0, **kwargs):
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        Parameters
        ----------
        name, y, sigma, **kwargs
            As in the base class; on a grid, y may have the grid's shape, with NaN where it is not
            observed.
        X : array, shape (n, d), pm.Data or RegularGrid
        random_seed : int
            Seed of the probes: they are drawn once, so that the density is one function.
        """
        self._seed = random_seed
        return super().marginal_likelihood(name, X, y, sigma, **kwargs)

    def build(self, X, y=None) -> int:
        """Fix the rows that the Krylov basis is made of; done by ``marginal_likelihood``.

        Parameters
        ----------
        X : array, shape (n, d), pm.Data or RegularGrid
        y : array, shape (n,), or of the grid's shape
            Targets: the basis starts at them.

        Returns
        -------
        int
            Number of features P.
        """
        data, target = self._data(X, y)
        self._map.fit_to(data, target.tensor - self.mean_func(data.tensor))
        return self.rank

    def choose_steps(self, X, y, *, point=None, tolerance: float = 0.01, model=None) -> int:
        """Stop where conjugate gradients reach a tolerance at one point: the number of steps P.

        For one-shot fits, before ``marginal_likelihood``: while hyperparameters are sampled the
        number stays what it is here, since a stopping rule would make the density jump.

        Parameters
        ----------
        X : array, shape (n, d), or RegularGrid
        y : array, shape (n,), or of the grid's shape
        point : dict, optional
            Values of the hyperparameters; the model's initial point when left out.
        tolerance : float
            Norm of ``y - K a`` relative to that of y at which to stop.
        model : pm.Model, optional
            Needed outside the model context, unless all hyperparameters are numbers.

        Returns
        -------
        int
            Number of steps, at most ``n_iter``; also this GP's from now on.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, or a tolerance that is not positive.

        Warns
        -----
        UserWarning
            If ``n_iter`` steps do not reach the tolerance; all of them are kept.
        """
        if not tolerance > 0:
            raise ValueError(f"tolerance must be positive, got {tolerance}")
        self.build(X, y)
        residuals = self._map.residuals(point, model)
        below = np.flatnonzero(residuals <= tolerance)
        if len(below):
            self._map.steps = int(below[0]) + 1
            self.build(X, y)
        else:
            warnings.warn(
                f"after n_iter={self.rank} steps the residual is {residuals[-1]:.3g} of y's norm, above "
                f"tolerance={tolerance:g}: raise n_iter, or go on if predictions suffice",
                UserWarning,
                stacklevel=2,
            )
        return self.rank

    def diagnostics(self, X=None, point=None, model=None) -> dict[str, float]:
        """As in the base class, and how far conjugate gradients have come.

        Returns
        -------
        dict
            Also ``residual``, the norm of ``y - K a`` relative to that of y after P steps, and
            ``steps_needed``, the steps after which it is below 0.01 (infinite: not within P).
        """
        found = super().diagnostics(X, point, model)
        residuals = self._map.residuals(point, model)
        below = np.flatnonzero(residuals <= 0.01)
        return found | {
            "residual": float(residuals[-1]),
            "steps_needed": float(below[0] + 1) if len(below) else np.inf,
        }

    # -- plumbing ---------------------------------------------------------------------------

    def _inputs(self, X, name="X", d=None) -> Data:
        if not isinstance(X, RegularGrid):
            data = check_inputs(X, name, d)
            used_columns(self.cov_func, data.value.shape[1])
            return data
        if d is not None and len(X.axes) != d:
            raise ValueError(f"{name} has {len(X.axes)} axes, the GP was built on {d}")
        points = X.points
        return Data(pytensor.shared(points, borrow=True, shape=points.shape), points, False, X)

    def _data(self, X, y):
        data = self._inputs(X)
        if y is None:
            raise ValueError(
                "the features depend on the targets: call build(X, y), or a likelihood"
            )
        if data.grid is not None and self._map.subset is not None:
            raise ValueError("inducing is for scattered rows: on a RegularGrid all cells are used")
        if data.grid is not None:
            kernel_operator(self.cov_func, data.grid, data.grid)  # raises if it has no structure
            if not isinstance(y, TensorVariable):
                y = data.grid.ravel(y)
        return data, check_target(y, data.value.shape[0])

    def _marginal_fit(self, name, X, y, sigma) -> KMCGFit:
        data, target = self._data(X, y)
        noise_sd = check_sigma(sigma, None if data.mutable else data.value.shape[0])
        if not data.mutable:
            data.tensor.name = f"{name}_X"
        self._map.fit_to(data, target.tensor - self.mean_func(data.tensor))
        return KMCGFit(self, data, target, noise_sd, self.approx, basis=self._map)

    def _observe(self, name, fit, progressbar=True, **kwargs):
        X = fit.X.tensor
        observed = fit.y.tensor if fit.y.mutable else fit.y.value
        weights = shortcut = None
        if fit.basis.rows is None:
            phi, weights = fit.basis.Q, fit.basis.coordinates
        else:
            phi = fit.basis.features(X)
        if fit.in_coordinates:
            shortcut = KrylovRows(fit.y.value.copy(), fit.y.mutable or fit.X.mutable)
        variable = LowRankNormal(
            name, self.mean_func(X), phi, fit.sigma, weights=weights,
            kdiag=fit.basis.kernel_diag(X), logdet=self._logdet(fit), approx=fit.approx,
            shortcut=shortcut, observed=observed, **kwargs,
        )  # fmt: skip
        self._fit = fit
        return variable

    def _logdet(self, fit):
        """Estimate of ``log|K + sigma^2 I|``, or None."""
        count = self.probes
        if count is None:
            count = DEFAULT_PROBES if fit.X.grid is not None and fit.in_coordinates else 0
        if count == 0:
            return None
        if not fit.in_coordinates or fit.X.mutable:
            raise ValueError("probes need one sigma for all rows, and inputs that are not pm.Data")
        rng = np.random.default_rng(self._seed)
        signs = rng.integers(0, 2, (count, fit.X.value.shape[0]), dtype=np.int8)
        probes = pytensor.shared(2.0 * signs - 1.0, shape=signs.shape)
        return stochastic_logdet(fit.basis.operator, fit.sigma**2, probes, self.rank)

    def _given_fit(self, given):
        given = check_given(given)
        owner = given.get("gp", self)
        if owner is not self and self not in owner._parts:
            raise ValueError('given["gp"] must be a sum that this GP is a part of: gp1 + gp2')
        if "X" in given:
            other = copy.copy(owner)
            other._map = copy.copy(owner._map)
            fit = other._marginal_fit("given", given["X"], given["y"], given["sigma"])
            return replace(fit, gp=owner), None
        if owner._fit is None:
            raise ValueError(
                f"{type(self).__name__} has no data yet: call marginal_likelihood(...) first, or pass "
                'given={"X": X, "y": y, "sigma": sigma, "gp": total}'
            )
        return owner._fit, None

    def _map_for(self, fit):
        return fit.basis if fit.gp is self else PartMap(self.cov_func, fit.basis)

    def _new_inputs(self, Xnew, fit):
        data = self._inputs(Xnew, "Xnew", fit.X.value.shape[1])
        return data if fit.X.grid is not None else replace(data, grid=None)

    def _make_predictor(self, data, fit, coef, noise, model):
        if data.grid is None:
            return super()._make_predictor(data, fit, coef, noise, model)
        return GridPredictor(self, fit, data, coef, noise, model)
