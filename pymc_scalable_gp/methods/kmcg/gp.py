"""KMCG: kernel machine conjugate gradients, features from the Krylov space of the targets."""

from dataclasses import replace

import numpy as np

from pymc_scalable_gp.core.data.inputs import Data, check_inputs, check_target
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.sums import Sum, joint_approx
from pymc_scalable_gp.cov.queries import check_rows, used_columns
from pymc_scalable_gp.methods.kmcg.basis import DEFAULT_STEPS, KrylovBasis
from pymc_scalable_gp.methods.kmcg.cells import likelihood_of_cells
from pymc_scalable_gp.methods.kmcg.checks import check_integrable, warn_of_features, warn_of_logdet
from pymc_scalable_gp.methods.kmcg.features import KMCGMap
from pymc_scalable_gp.methods.kmcg.kernel_operator import kernel_operator, warn_of_grid
from pymc_scalable_gp.methods.kmcg.likelihood import KrylovSettings, likelihood_for
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid, at_cells, check_dates
from pymc_scalable_gp.utils.checks import check_count, check_positive
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.warn import warn

# Probes of the log determinant where none are given.
DEFAULT_PROBES = 8


class KMCGMarginal(FeatureMarginal):
    r"""Gaussian process by kernel machine conjugate gradients (KMCG); on grids any likelihood.

    On a **complete grid**, with a kernel that is one product over dimensions and one sigma, the
    likelihood, predictions and rows left out are exact, by eigendecompositions of the axes' kernel
    matrices: ``likelihood_path`` is then "kronecker", and `n_iter` and `probes` have no effect unless
    ``probes=0`` asks for the paper's density. Up to 1500 cells of **other grids**, with gaps, under a sum
    of products or of GPs, or with a sigma for each cell, all is exact too, by the dense kernel matrix,
    unless `n_iter` or `probes` are given.

    Elsewhere the features are projections of the kernel on the directions that P steps of conjugate
    gradients on ``K_M a = y_M`` use:

    .. math::

        \tilde k(x, x') = k(x, X_M)\, S\, (S^\top K_M S)^{-1} S^\top k(X_M, x'), \qquad
        \operatorname{span} S = \operatorname{span}\{y_M, K_M y_M, \dots, K_M^{P-1} y_M\}

    where y are the targets less their mean. They cost P products with the kernel matrix: use it where
    those are fast, on **grids and regular series** with gaps, given as
    :class:`~pymc_scalable_gp.RegularGrid`. There it fits a million cells, whose structure a few hundred
    inducing points cannot describe. On
    scattered inputs a product costs M^2, and inducing points give better variances.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel; on a grid a product over dimensions, or a sum of such.
    approx : {"DTC", "FITC", "VFE"}, optional
        Treatment of the prior variance that the features do not explain, as in `pm.gp.MarginalApprox`.
        Default: "DTC", as in the paper; the others need the features at all rows. Under ``likelihood=``
        "FITC".
    n_iter : int, optional
        P, the number of steps and of features. Fixed, so that the density is one function of the
        parameters. ``check()`` says how far CG has come: raise it until the residual falls
        below 0.01, or until the posterior no longer moves. Default: 100, or the number of rows where
        that is less; under ``likelihood=`` 500 features, or the dense matrix up to 1500 cells.
    probes : int, optional
        Number S of random vectors that estimate the log determinant of the exact ``K + sigma^2 I`` for the
        density, by P Lanczos steps each. Default: 8. With S probes, posterior means move by about
        ``S^-1/2`` posterior standard deviations; ``check().attrs["logdet_se"]`` is the estimate's standard
        error. They need "DTC", one sigma and all rows, and as many rows as the model was built with.

        ``probes=0`` is the paper's density: it takes the determinant of the P features, equation 16.
        It is meant for fixed hyperparameters. Hyperparameters that are inferred with it are wrong unless
        the features hold nearly all of the kernel's variance (:meth:`check`): the few directions come from
        y itself and explain it under *any* kernel, so that the density prefers lengthscales near zero.
    inducing : int or integer array, optional
        M, or indices of the M rows whose kernel matrix is used; all when left out. An int takes
        evenly spaced rows: shuffle rows that are in a periodic order. Not for grids.

    Raises
    ------
    TypeError, ValueError
        For an unknown option, `WhiteNoise` inside the kernel, more steps than rows, or, on a grid, a
        kernel that is not a product.

    See Also
    --------
    RegularGrid : Inputs on a grid.

    Notes
    -----
    ===================  ==========================  ==========================
    step                 grid of n cells             scattered rows
    ===================  ==========================  ==========================
    density              P products + O(n P^2)       O(M^2 P + n M P)
    gradient             twice that                  twice that
    memory               n P doubles (gradient too)  M^2 + n M + n P doubles
    prediction           P products for all cells    O(M P) per row
    ===================  ==========================  ==========================

    On a complete grid of axes with ``G_i`` cells, and one product, a density with its gradient, or a
    prediction of all cells, is ``O(sum_i G_i^3 + n sum_i G_i)``, at scattered points O(n) per row. Axes of
    more than 1000 cells are decomposed where that takes at most ten times the work of the products.
    ``likelihood_path`` is "kronecker" there, "exact" with a dense matrix, else "coordinates" or, with
    "FITC", "VFE", `inducing` or one sigma per row, "full".

    A product is O(n sum_i G_i) with dense factors of sizes ``G_i``, O(n log n) with Toeplitz ones.

    Each probe costs as much as the density itself. Memory grows by one basis, whatever S.

    With DTC, one sigma and all rows the features' density is that of P + 1 numbers, since the targets
    are the first basis vector: ``y = |y| Q e_1`` and ``Phi = Q A``. Its gradient is the exact gradient of
    these steps. The mean converges first, within tens of steps; the predictive variance is an upper
    bound that comes down to the exact one only when P nears the effective number of degrees of
    freedom.

    References
    ----------
    .. [1] Bartels, S. and Hennig, P. (2020). Conjugate Gradients for Kernel Machines. JMLR 21(55).
    .. [2] Saatci, Y. (2011). Scalable inference for structured Gaussian process models. PhD thesis,
       University of Cambridge.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> grid = sgp.RegularGrid([np.linspace(0.0, 1.0, 12), np.linspace(0.0, 1.0, 10)])
    >>> y = np.sin(6.0 * grid.points[:, 0]).reshape(grid.shape)
    >>> with pm.Model() as model:
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
    ...     gp = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell))
    ...     _ = gp.marginal_likelihood("y", X=grid, y=y, sigma=sigma)
    >>> gp.likelihood_path
    'kronecker'
    >>> gaps = sgp.RegularGrid(grid.axes, observed=y < 0.9)
    >>> with pm.Model() as other:
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
    ...     part = sgp.KMCGMarginal(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), n_iter=20, probes=64)
    ...     _ = part.marginal_likelihood("y", X=gaps, y=y, sigma=sigma)
    >>> part.rank, part.likelihood_path
    (20, 'coordinates')
    >>> idata = pm.sample(model=model)  # doctest: +SKIP
    """

    default_approx = "DTC"
    abilities = {"marginal_likelihood": "", "likelihood": "on a RegularGrid", "grid": ""}
    knobs = "n_iter= and probes="
    decomposes: bool = True  # whether complete grids get the exact likelihood, where there is one

    def __init__(self, *, mean_func=None, cov_func, approx=None, n_iter=None, probes=None, inducing=None):
        super().__init__(mean_func=mean_func, cov_func=cov_func, approx=approx)
        self.n_iter = None if n_iter is None else check_count("n_iter", n_iter)
        self.inducing = inducing
        self.probes = None if probes is None else check_count("probes", probes, 0)
        if self.probes and (self.approx != "DTC" or inducing is not None):
            raise ValueError('probes need approx="DTC" and all rows: leave inducing= out')

    @property
    def approx(self) -> str:
        """Treatment of the prior variance that features do not explain: the likelihood's, once made."""
        made = self._training is not None and self.given_approx is None
        return self._training.gaussian.data.approx if made else super().approx

    @property
    def rank(self) -> int:
        """Number of features P, one per step."""
        return self.feature_map.rank if self.is_built else self.n_iter or DEFAULT_STEPS

    @property
    def present_knobs(self):
        """Steps, up to the number of rows, and what else the likelihood takes: a subset, or probes."""
        if self.inducing is not None:
            return "n_iter= and inducing="
        sigma = None if self._training is None else self._training.sigma
        steps = sigma is None or self.rank < len(self._training.X.value)
        probes = self.approx == "DTC" and sigma is not None and not sigma.ndim
        return " and ".join(["n_iter="] * steps + ["probes="] * probes)

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        # The exact likelihood has no features: rank 0.
        return super().settings() | {"n_iter": self.rank or self.n_iter, "probes": self.probes}

    def marginal_likelihood(
        self, name, X=None, y=None, sigma=None, *, statistics=None, likelihood=None,
        progressbar=True, random_seed=0, **kwargs,
    ):  # fmt: skip
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        Parameters
        ----------
        name, y, sigma, statistics, progressbar, **kwargs
            As in the base class; on a grid, y may have the grid's shape, with NaN where it is not
            observed.
        X : array, shape (n, d), pm.Data or RegularGrid
        likelihood : callable, optional
            As in the base class, on a grid alone.
        random_seed : int
            Seed of the probes: they are drawn once, so that the density is one function.

        Raises
        ------
        TypeError, ValueError
            As the base class, and for ``likelihood=`` with inputs that are no grid, or with probes.

        Warns
        -----
        UserWarning
            With free hyperparameters: where probes cannot be used and ``probes=0`` was not asked for;
            or, up to 2048 rows, where the log determinant's error at the model's initial point makes
            the log density uncertain by more than 2. With ``likelihood=``, where the features miss more
            than 5% of the prior variance.
        """
        keywords = self._likelihood_keywords(kwargs)
        if integrated := likelihood is not None:
            check_integrable(self, X)
        variable = self._likelihood_variable(
            name, X, y, sigma, statistics, progressbar, keywords, likelihood,
            random_seed=random_seed, integrated=integrated,
        )  # fmt: skip
        gaussian = self._training.gaussian
        self._map = gaussian.data.feature_map
        if integrated and not gaussian.is_exact:
            warn_of_features(gaussian.data)
        elif not gaussian.is_exact:
            warn_of_logdet(self._training, self.probes)
        return variable

    def check_summarizable(self, approx=None):
        """Raise ValueError: the features come from the targets of all rows."""
        raise ValueError(
            "KMCG's features depend on the targets of all rows: statistics of rows need a fixed basis, as "
            f"has {self.names_with('statistics')}"
        )

    def build(self, X, y=None) -> int:
        """Fix the rows that the Krylov basis is made from; ``marginal_likelihood`` does this by itself.

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
        return self._keep(*self._checked_pair(X, y))

    def _keep(self, X, y) -> int:
        residual = y.tensor - mean_vector(self.mean_func, X.tensor)
        basis = KrylovBasis.of(self.cov_func, self.n_iter, self.inducing, X, residual)
        self._map = KMCGMap(self.cov_func, basis)
        return self.rank

    def choose_steps(self, X, y, sigma=None, *, point=None, tolerance: float = 0.01, model=None) -> int:
        """Choose the number of steps P after which conjugate gradients reach a tolerance at one point.

        Call it before ``marginal_likelihood``. The number then stays fixed while hyperparameters are
        sampled: a stopping rule would make the density jump.

        Parameters
        ----------
        X : array, shape (n, d), or RegularGrid
        y : array, shape (n,), or of the grid's shape
        sigma : float, array or random variable, optional
            Noise standard deviation; when left out that of the likelihood, if there is one, else zero: K
            alone takes more steps, and its system has no solution where rows are repeated.
        point : dict, optional
            Values of the hyperparameters; the model's initial point when left out.
        tolerance : float
            Norm of ``y - (K + sigma^2 I) a`` relative to that of y at which to stop.
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
        tolerance = check_positive("tolerance", tolerance)
        if sigma is None and self._training is not None:
            sigma = self._training.sigma
        X, y, *noise = self._checked_pair(X, y) if sigma is None else self._checked(X, y, sigma)
        self._keep(X, y)
        variance = noise[0] ** 2 if noise else 0.0
        (residuals,) = self.feature_map.krylov.residuals([point], model, variance)
        below = np.flatnonzero(residuals <= tolerance)
        if len(below):
            self.n_iter = int(below[0]) + 1
            self._keep(X, y)
        else:
            warn(
                f"after n_iter={self.rank} steps the residual is {residuals[-1]:.3g} of y's norm, above "
                f"tolerance={tolerance:g}: {'give sigma=, ' if sigma is None else ''}raise n_iter, or go "
                "on if predictions suffice"
            )
        return self.rank

    # -- plumbing ---------------------------------------------------------------------------

    def inputs_of(self, X, name="X", d=None, empty=False) -> Data:
        """Checked inputs: rows, or the cells of a grid."""
        if not isinstance(X, RegularGrid):
            data = check_inputs(X, name, d, empty)
            check_rows(self.cov_func, data.value, name)
            return data
        if d is not None and len(X.axes) != d:
            raise ValueError(f"{name} has {len(X.axes)} axes, the GP was built on {d}")
        points = X.points
        used_columns(self.cov_func, len(X.axes), "the grid")
        check_rows(self.cov_func, points, name)
        return Data(fixed_shared(points), points, False, X, X.names)

    def _checked_pair(self, X, y) -> tuple[Data, Data]:
        data = self.inputs_of(X)
        if data.grid is None and not data.mutable:
            warn_of_grid(self.cov_func, data.value)
        if y is None:
            raise ValueError("the features depend on the targets: call build(X, y), or a likelihood")
        if data.grid is not None and self.inducing is not None:
            raise ValueError("inducing is for scattered rows: on a RegularGrid all cells are used")
        if data.grid is not None:
            kernel_operator(self.cov_func, data.grid, data.grid)  # raises if it has no structure
            y = at_cells(data.grid, y, "y")
        return data, check_target(y, data.value.shape[0], X)

    def _checked(self, X, y, sigma):
        sigma = at_cells(X, sigma, "sigma") if isinstance(X, RegularGrid) else sigma
        return super()._checked(X, y, sigma)

    def _map_for(self, X, again=True):
        """None: the features are those of the likelihood's basis."""

    def make_likelihood(self, data, progressbar=True, random_seed=0, integrated=False):
        """Exact on a complete grid, where it can be; else by a basis, or features if `integrated`."""
        # What is observed decides, not what this GP was given before.
        data = replace(data, approx=self.given_approx or ("FITC" if integrated else "DTC"))
        if integrated:
            plain = self.given_approx in (None, "DTC") and self.n_iter is None and self.probes is None
            return likelihood_of_cells(data, self, plain)
        probes, exact = self._probes_for(data), self.probes != 0 and self.decomposes
        dense = self.n_iter is None and self.probes is None
        settings = KrylovSettings(self.n_iter, self.inducing, probes, random_seed, exact, dense)
        return likelihood_for(data, self.cov_func, settings)

    def _probes_for(self, data) -> int:
        """Number of probes: as given, or by default where they can be used."""
        usable = data.approx == "DTC" and not data.sigma.ndim and self.inducing is None
        if self.probes is None:
            return DEFAULT_PROBES if usable else 0
        if self.probes and not usable:
            raise ValueError("probes need one sigma for all rows")
        return self.probes

    def _new_inputs(self, Xnew, training, pred_noise=False):
        data = self.inputs_of(Xnew, "Xnew", training.X.value.shape[1], empty=True)
        self._check_inputs_as(training, data, "Xnew", ())
        return data if training.X.grid is not None else replace(data, grid=None)

    def _check_inputs_as(self, training, data, name, kernels):
        super()._check_inputs_as(training, data, name, kernels)
        check_dates(data.grid, training.X.grid, name)

    def _make_predictor(self, data, training, feature_map, coef, noise, model):
        if data.grid is None or not hasattr(training, "cell_predictor"):
            return super()._make_predictor(data, training, feature_map, coef, noise, model)
        return training.cell_predictor(data, feature_map, self.mean_func, coef, noise, model)


class AdditiveKMCG(Sum, KMCGMarginal):
    """Sum of GPs of this class: one basis for the sum of the kernels."""

    def __init__(self, parts):
        steps = [part.n_iter for part in parts if part.n_iter is not None]
        probes = [part.probes for part in parts if part.probes is not None]
        inducing, given = parts[0].inducing, any(part.given_approx for part in parts)
        if not all(np.array_equal(part.inducing, inducing) for part in parts):
            raise TypeError("cannot add GPs with different inducing=: a sum has one basis")
        super().__init__(
            parts, approx=joint_approx(parts) if given else None, n_iter=max(steps, default=None),
            probes=max(probes, default=None), inducing=inducing,
        )  # fmt: skip


KMCGMarginal.sum_classes = AdditiveKMCG.sum_classes = (AdditiveKMCG,)
