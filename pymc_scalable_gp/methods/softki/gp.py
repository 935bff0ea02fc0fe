"""SoftKI: soft kernel interpolation from learned points."""

import numpy as np
import pandas as pd
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import Data, check_inputs, check_temperature
from pymc_scalable_gp.core.features.reach import MISSING_SHARE, in_words, missing_share
from pymc_scalable_gp.core.fit.start import reference_on_subset
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.latent import FeatureLatent
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.observed import WITH_RESIDUAL
from pymc_scalable_gp.cov.queries import categorical_columns, check_rows, warn_unused_columns
from pymc_scalable_gp.methods.softki.features import SoftKIMap
from pymc_scalable_gp.methods.softki.points import (
    check_inducing,
    check_points,
    present_points,
    spread_points,
)
from pymc_scalable_gp.utils.blocks import some_rows
from pymc_scalable_gp.utils.classes import as_typed
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.warn import warn

ALL = 0.99  # the weight of a point that has next to all of it


@as_typed
class _SoftKI(FeatureGP):
    """A GP on interpolation points: base of the marginal and the latent class."""

    knobs = "inducing= (X standardised, points trained by sgp.fit_inducing, ten rows for each)"

    def __init__(self, *, cov_func, inducing, temperature, **options):
        self.given_inducing = check_inducing(inducing)
        self.temperature = check_temperature(temperature)
        super().__init__(cov_func=cov_func, **options)

    @property
    def inducing(self) -> TensorVariable:
        """The points (m, d), as a tensor; known once ``build(X)`` has run."""
        return self.feature_map.points.tensor

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        points = self.given_inducing
        inducing = points.value.shape if isinstance(points, Data) else points
        return super().settings() | {"inducing": inducing}

    def build(self, X, Xu=None, random_seed=0) -> int:
        """Fix the interpolation points and the range of the training inputs X.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        Xu : array or tensor, shape (m, d), optional
            Points to use in place of ``inducing=``: an array, a random variable or pm.Data.
        random_seed : int, optional
            Seed of k-means, when ``inducing`` is a number.

        Returns
        -------
        int
            Number of points m.

        Raises
        ------
        TypeError, ValueError
            For bad inputs or points, more points than distinct rows, or columns that X lacks.
        """
        return self._build(check_inputs(X), Xu=Xu, random_seed=random_seed)

    def _fit(self, X, Xu=None, random_seed=0) -> SoftKIMap:
        """Take the points given, or the k-means centres of X (n, d); note the range of X."""
        warn_unused_columns(self.cov_func, X.shape[1])
        given, name = self.given_inducing, "inducing"
        if Xu is not None:
            given, name = check_points(Xu, "Xu"), "Xu"
        self._are_centres = not isinstance(given, Data)
        if self._are_centres:
            points = Data.fixed(spread_points(self.cov_func, X, given, random_seed))
        else:
            points = present_points(given, X.shape[1], name)
        columns = categorical_columns(self.cov_func, X.shape[1], wrapped=False)
        known = {int(j): np.unique(X[:, j]) for j in columns}
        if not is_random(points.tensor):
            check_rows(self.cov_func, points.value, name)
            apart = categorical_columns(self.cov_func, X.shape[1], wrapped=False, alone=True)
            for together in (apart, *([j] for j in np.setdiff1d(columns, apart))):
                self._warn_bare(X, points.value, together)
        return SoftKIMap(self.cov_func, self.temperature, points, X.min(axis=0), X.max(axis=0), known)

    @staticmethod
    def _warn_bare(X, points, columns) -> None:
        """Warn of labels, or of labels together, in `columns` of rows X that no point has."""
        if not len(columns):
            return
        held = set(map(tuple, points[:, columns]))
        rows = pd.DataFrame(X[:, columns]).drop_duplicates()  # NumPy compares rows slowly: seconds of 1e6
        bare = [in_words(row) for row in np.unique(rows, axis=0) if tuple(row) not in held]
        if bare:
            shown = "; ".join(bare[:5]) + "; ..." * (len(bare) > 5)
            warn(
                f"no point lies at {shown} of column {', '.join(map(str, columns))}: rows there take "
                "the points of the nearest labels. Give more points, or some of every label"
            )

    def _warn_untrained(self) -> None:
        """Warn of what points that were not learned make of the function, in the model of the context."""
        rows = some_rows(self.training.X.value, self.feature_map.block_rows)
        if self._are_centres and len(rows) > self.rank:
            (weights,) = evaluate([self.feature_map.basis(pt.constant(rows))])
            alone = (weights.max(axis=1) > ALL).mean()
            if alone > 0.5:
                warn(
                    f"at {alone:.0%} of the rows one of the {self.rank} points has all of the weight, so "
                    f"that the function is a staircase: {self._towards('standardise X, or raise')}"
                )
        if not self._are_centres or self.given_inducing is not None:
            return
        missed = missing_share(self.feature_map, self.training.X)
        if missed > MISSING_SHARE:
            warn(
                f"the points are {self.rank} k-means centres that were not trained, and interpolation "
                f"between them averages away {missed:.0%} of the prior variance at the model's initial "
                "point: variation over shorter distances is attributed to noise. Train them "
                f"(sgp.fit_inducing), or {self._towards('lower')}"
            )

    def _towards(self, change: str) -> str:
        """Advice to `change` the temperature, unless there is one point, or one for most labels."""
        distance = self.feature_map.spacing
        if self.rank == 1:
            return "give more points, inducing=np.unique(X, axis=0) where few rows are distinct"
        if np.isinf(distance):
            return "give more points, as most are the only one of their label"
        return f"{change} temperature= towards the distance between points, {distance:.2g}"


class SoftKIMarginal(_SoftKI, FeatureMarginal):
    r"""Gaussian process by soft kernel interpolation (SoftKI), for 5 to 1000 inputs; any likelihood.

    Function values at m points ``z`` are interpolated to every input with softmax weights:

    .. math::

        \tilde k(x, x') = w(x)^\top K_{zz}\, w(x'), \qquad
        w_j(x) = \frac{\exp(-\|(x - z_j)/T\|)}{\sum_k \exp(-\|(x - z_k)/T\|)}

    Any kernel can be used, and the cost hardly depends on the number of inputs. The points have to be
    *learned*: train them first with :func:`~pymc_scalable_gp.fit_inducing`. With points and temperature
    fixed, W is summarised once in row blocks, and a likelihood over all of the kernel's parameters and
    sigma costs O(m^3) **whatever n**.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel, with one or d lengthscales. Standardise X: the weights use plain distances over
        the kernel's columns.
    approx : {"DTC", "FITC", "VFE", "VIF"}, optional
        Treatment of the prior variance that interpolation misses, as in `pm.gp.MarginalApprox`.
        Default: "DTC", the only one that needs no rows. Interpolation averages away far more than inducing
        points miss: with wide weights "FITC" attributes all noise to it.
    inducing : int or array, shape (m, d), optional
        The points, such as ``fit_inducing(...).Z``, or a number of k-means centres. 512 to 1024 for large
        data; more points resolve more detail and cost O(m^3). When left out: 512 centres, or half as many
        as there are distinct rows where that is less.
    temperature : float, array (d,) or random variable
        T. At 1 and standardised inputs the weights are spread over the nearest points; smaller values
        sharpen them. In one to three inputs take the distance between points, or less.
    neighbors, block, pred_neighbors : int
        With "VIF", as in :class:`VecchiaMarginal`.

    Raises
    ------
    TypeError, ValueError
        For an unknown option, points that are not finite or lie in another dimension, a temperature
        that is not positive, or `WhiteNoise` inside the kernel (give it as sigma).

    Warns
    -----
    UserWarning
        In :meth:`marginal_likelihood`, when neither points nor their number were given and more than 5%
        of the prior variance is missed at the model's initial point, with what to change.

    See Also
    --------
    SoftKILatent : The same features, for a function that enters several likelihoods.
    fit_inducing : Trains the points.

    Notes
    -----
    ====================  =========================  ====================
    step                  time                       memory
    ====================  =========================  ====================
    marginal_likelihood   O(n m (m + d)) once        O(block m + m^2)
    gradient, summarised  O(m^3)                     O(m^2)
    gradient, full        O(n m (m + d))             three (n, m) arrays
    prediction            O(n* m (m + d)) per draw     O(block m + m^2)
    ====================  =========================  ====================

    The full path is taken with random points or temperature, one sigma per row, a mean that is not linear
    in its parameters, FITC or VFE; :attr:`likelihood_path` tells.

    Beyond the range of the training inputs a stationary kernel's features fade as the kernel does:
    ``phi(x) = k(x, x') / k(x', x') L' w(x')`` with x' the nearest input in that range. Predictions far away
    are the mean function and the prior variance ``k(x, x)``.

    References
    ----------
    .. [1] Camaño, C. and Huang, D. (2024). High-Dimensional Gaussian Process Regression with Soft
       Kernel Interpolation. https://doi.org/10.48550/arXiv.2410.21419

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.random.default_rng(1).standard_normal((50, 5))
    >>> y = np.sin(X[:, 0])
    >>> with pm.Model() as model:
    ...     cov = pm.gp.cov.ExpQuad(5, ls=pm.InverseGamma("ell", 3, 3))
    ...     gp = sgp.SoftKIMarginal(cov_func=cov, inducing=8)
    ...     fit = sgp.fit_inducing(gp, X, y, epochs=2, random_seed=1, progressbar=False)
    ...     gp = sgp.SoftKIMarginal(cov_func=cov, inducing=fit.Z)
    ...     _ = gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1))
    >>> gp.rank, gp.likelihood_path
    (8, 'summarized')
    >>> idata = pm.sample(initvals=fit.point, model=model)  # doctest: +SKIP
    >>> pred = gp.predict_posterior(X, idata, model=model)  # doctest: +SKIP
    """

    default_approx = "DTC"
    approximations = WITH_RESIDUAL
    abilities = {
        "marginal_likelihood": "", "likelihood": "", "any kernel": "", "Xu": "",
        "statistics": "with fixed points and temperature",
    }  # fmt: skip

    def __init__(
        self, *, mean_func=None, cov_func, approx=None, inducing=None, temperature=1.0,
        neighbors=30, block=16, pred_neighbors=None,
    ):  # fmt: skip
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, inducing=inducing, temperature=temperature,
            approx=approx, neighbors=neighbors, block=block, pred_neighbors=pred_neighbors,
        )  # fmt: skip

    def map_for(self, approx):
        """The features; under FITC and VFE those that count what interpolation loses."""
        found = super().map_for(approx)
        return found.changed(corrected=True) if approx in ("FITC", "VFE") else found

    def marginal_likelihood(
        self, name, X=None, y=None, sigma=None, *, statistics=None, likelihood=None, Xu=None,
        progressbar=True, **kwargs,
    ):  # fmt: skip
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        Parameters
        ----------
        name, X, y, sigma, statistics, likelihood, progressbar, **kwargs
            As in the base class.
        Xu : array or tensor, shape (m, d), optional
            Points in place of ``inducing=``, as in `pm.gp.MarginalApprox`: they may have a prior.
        """
        keywords = self._likelihood_keywords(kwargs)
        if Xu is not None:
            if statistics is not None:
                raise TypeError("statistics= were made with the points of the GP: leave Xu out")
            self.build(X, Xu)
            if self.approx == "VIF" and sigma is not None:  # points are given, order and neighbours are not
                self._reference = reference_on_subset(self, *self._checked(X, y, sigma)[:3])
        found = self._likelihood_variable(name, X, y, sigma, statistics, progressbar, keywords, likelihood)
        if self.approx != "VIF" and statistics is None:
            self._warn_untrained()
        return found


class SoftKILatent(_SoftKI, FeatureLatent):
    r"""Gaussian process by soft kernel interpolation (SoftKI), under any likelihood.

    .. math:: f(x) = m(x) + w(x)^\top L z, \qquad L L^\top = K_{zz}, \qquad z \sim N(0, I_m)

    with the softmax weights of :class:`SoftKIMarginal`. Train the points on a Gaussian version of the data
    (for counts: their logarithm).

    **The prior is not that of the kernel.** f(x) is a mean of the function's values at the points, so that
    its prior variance ``|L'w(x)|^2``, under stationary kernels, is below ``k(x, x)`` everywhere, and it
    cannot vary over distances shorter than the weights' width. Scale and lengthscales compensate for that:
    they do not estimate the kernel's own. With k-means centres at the default temperature this is worst,
    and intervals are too narrow. In up to about eight inputs and for product kernels :class:`GriefGP` and
    :class:`SKIPLatent` keep the kernel's prior.

    Parameters
    ----------
    mean_func, cov_func, inducing, temperature
        As in :class:`SoftKIMarginal`; so are errors, and :meth:`prior` warns as its `marginal_likelihood`.

    See Also
    --------
    SoftKIMarginal : The function integrated out; names the paper.
    fit_inducing : Trains the points.

    Notes
    -----
    O(n m) per gradient, and O(m^3) for the kernel. With points and temperature fixed the weights
    (n, m) are computed once.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(size=(40, 5))
    >>> with pm.Model() as model:
    ...     ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
    ...     gp = sgp.SoftKILatent(cov_func=eta**2 * pm.gp.cov.ExpQuad(5, ls=ell), inducing=8)
    ...     f = gp.prior("f", X)
    ...     _ = pm.Poisson("counts", pm.math.exp(f), observed=rng.poisson(1.0, 40))
    >>> gp.rank, sorted(v.name for v in model.free_RVs)
    (8, ['ell', 'eta', 'f_coeffs'])
    >>> idata = pm.sample(model=model)  # doctest: +SKIP
    """

    abilities = {"prior": "", "any kernel": "", "Xu": ""}

    def __init__(self, *, mean_func=None, cov_func, inducing=None, temperature=1.0):
        super().__init__(mean_func=mean_func, cov_func=cov_func, inducing=inducing, temperature=temperature)

    def prior(self, name, X, *, Xu=None, **kwargs):
        """Latent function values, as :meth:`FeatureLatent.prior`, with optional points `Xu` (m, d)."""
        self._prior_keywords(kwargs)  # refused before anything is built
        if Xu is not None:
            self.build(X, Xu)
        found = super().prior(name, X, **kwargs)
        self._warn_untrained()
        return found
