"""SoftKI: soft kernel interpolation from learned points."""

import numpy as np
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.cov import is_stationary, refuse_white_noise, used_columns
from pymc_scalable_gp.features import FeatureMap
from pymc_scalable_gp.gp import FeatureGP
from pymc_scalable_gp.latent import FeatureLatent
from pymc_scalable_gp.marginal import FeatureMarginal
from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS
from pymc_scalable_gp.ops.softmax_interpolation import softmax_interpolation
from pymc_scalable_gp.point import is_random
from pymc_scalable_gp.points import check_inducing, kmeans_points
from pymc_scalable_gp.validate import Data, check_choice, check_inputs, check_temperature

# Added to the diagonal of K_zz, as a share of the mean prior variance: points that have come close
# make it singular to working precision. pm.gp adds the same.
JITTER = 1e-6
# New inputs this share of a column's range beyond it are still covered; further out we warn.
OUTSIDE_SHARE = 0.05


class SoftKIMap(FeatureMap):
    """Softmax interpolation from points, ``phi(x) = L(K_zz)' w(x)``."""

    def __init__(self, cov_func, inducing, temperature, corrected=False):
        self.cov_func, self.corrected = cov_func, corrected
        self.wanted = inducing
        self.temperature = temperature
        self.stationary = is_stationary(cov_func)
        self.points: Data | None = None
        self.low = self.high = None

    @property
    def is_fitted(self):
        """Whether the points are known."""
        return self.points is not None

    @property
    def rank(self):
        """Number of points."""
        if self.points is None:
            raise AttributeError("the rank is known once the points are: call build(X) first")
        return self.points.value.shape[0]

    def fit_to(self, X, Xu=None, random_seed=0):
        """Take the points given, or the k-means centres of X (n, d); note the range of X."""
        sizes = self.temperature.type.shape
        if self.temperature.ndim and sizes[0] not in (None, X.shape[1]):
            raise ValueError(f"temperature has {sizes[0]} values, but X has {X.shape[1]} columns")
        points = self.wanted if Xu is None else Xu
        if isinstance(points, int):
            points = kmeans_points(X, points, random_seed)
        self.columns = used_columns(self.cov_func, X.shape[1])
        self.points = check_inducing(points, X.shape[1], "inducing" if Xu is None else "Xu")
        self.low, self.high = X.min(axis=0), X.max(axis=0)

    def weights(self, X):
        """``w(x)`` (n, m): each row a convex combination of the points."""
        T = self.temperature[self.columns] if self.temperature.ndim else self.temperature
        Z = self.points.tensor
        return softmax_interpolation(X[:, self.columns], Z[:, self.columns], T)

    def basis(self, X):
        """``g(x) w(x')`` (n, m): x' is x moved into the range of the training inputs.

        ``g(x) = k(x, x') / k(x', x')``, so that beyond that range the features are those of the best
        prediction from x', and the prior variance returns. Within it ``g = 1``.
        """
        if not self.stationary:
            return self.weights(X)
        return self.weights(pt.clip(X, self.low, self.high)) * self.decay(X)[:, None]

    def decay(self, X):
        """``g(x) = k(x, x') / k(x', x')`` (n,): 1 in the range of the training inputs."""
        beyond = X - pt.clip(X, self.low, self.high)
        origin = pt.zeros((1, len(self.low)))
        return self.cov_func(beyond, origin)[:, 0] / self.cov_func(origin)[0, 0]

    def constant_basis(self, X):
        """The weights, where points and temperature are fixed."""
        if self.points.mutable or is_random(self.points.tensor, self.temperature):
            return None
        return self.weights(X)

    def mixing(self):
        """Lower-triangular ``L`` (m, m) with ``L L' = K_zz + jitter``; NaN where that fails."""
        K = self.cov_func(self.points.tensor)
        K = pt.specify_shape(K, (self.rank, self.rank)).astype("float64")
        jitter = JITTER * pt.diag(K).mean()
        return cholesky(K + jitter * pt.eye(self.rank), lower=True, on_error="nan")

    def features(self, X):
        """``basis @ mixing`` (n, m), stored column by column."""
        return (self.mixing().T @ self.basis(X).T).T

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return self.cov_func(X, diag=True).astype("float64")

    def missed(self, X, phi):
        """``(1 - g^2) (v + (1 - g^2)^4 (k(x, x) - v))`` with ``v = |L' w(x')|^2``.

        Interpolation averages the points' values, so that v is well below ``k(x, x)`` even between
        close points. SoftKI takes the interpolated kernel as the prior: within the range of the
        training inputs nothing is missed. Beyond it the variance first stays at v, then goes to
        ``k(x, x)``. With the correction of FITC or VFE it is ``k(x, x) - |phi|^2`` everywhere.
        """
        if self.corrected:
            return super().missed(X, phi)
        if not self.stationary:
            return pt.zeros_like(phi[:, 0])
        inside = self.weights(pt.clip(X, self.low, self.high)) @ self.mixing()
        variance, lost = (inside**2).sum(axis=1), pt.maximum(1.0 - self.decay(X) ** 2, 0.0)
        return lost * (variance + lost**4 * (self.kernel_diag(X) - variance))

    def outside(self, X):
        """Say how far X lies beyond the range of the training inputs."""
        width = self.high - self.low
        beyond = np.maximum(self.low - X.min(axis=0), X.max(axis=0) - self.high)
        far = np.flatnonzero(beyond > OUTSIDE_SHARE * width + 1e-9 * np.abs(self.high))
        if not len(far):
            return None
        shown = [f"column {j} reaches {beyond[j]:.3g} beyond the training inputs" for j in far[:5]]
        return "; ".join(shown) + (f"; and {len(far) - 5} more" if len(far) > 5 else "")


class _SoftKI(FeatureGP):
    """What the marginal and the latent class share."""

    _map: SoftKIMap

    def __init__(self, *, mean_func, cov_func, inducing, temperature, corrected):
        if not isinstance(cov_func, BaseCovariance):
            raise TypeError(f"cov_func must be a pm.gp.cov kernel, got {type(cov_func).__name__}")
        refuse_white_noise(cov_func)
        inducing = check_inducing(inducing)
        feature_map = SoftKIMap(cov_func, inducing, check_temperature(temperature), corrected)
        super().__init__(feature_map, mean_func=mean_func, cov_func=cov_func)

    @property
    def inducing(self) -> TensorVariable:
        """The points (m, d), as a tensor; known once ``build(X)`` has run."""
        if not self._map.is_fitted:
            raise AttributeError("the points are known once build(X) has run")
        return self._map.points.tensor

    def build(self, X, Xu=None, random_seed=0) -> int:
        """Fix the interpolation points and the range of the training inputs X.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        Xu : array or tensor, shape (m, d), optional
            Points to use in place of ``inducing=``: numbers, a random variable or pm.Data.
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
        self._map.fit_to(check_inputs(X).value, Xu, random_seed)
        return self.rank


class SoftKIMarginal(_SoftKI, FeatureMarginal):
    r"""Gaussian process by soft kernel interpolation (SoftKI), for 5 to 1000 inputs; Gaussian noise.

    Function values at m points ``z`` are interpolated to every input with softmax weights:

    .. math::

        \tilde k(x, x') = w(x)^\top K_{zz}\, w(x'), \qquad
        w_j(x) = \frac{\exp(-\|(x - z_j)/T\|)}{\sum_k \exp(-\|(x - z_k)/T\|)}

    Any kernel serves, and the cost hardly depends on the number of inputs. The points have to be
    *learned*: train them first with :func:`sgp.fit_inducing`; k-means centres alone predict about
    two times worse. With points and temperature fixed, W is summarised once in row blocks, and a
    likelihood over all of the kernel's parameters and sigma costs O(m^3) **whatever n**.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel, with one or d lengthscales. Standardise X: the weights use plain distances over
        the kernel's columns.
    approx : {"DTC", "FITC", "VFE"}, optional
        Treatment of the prior variance that interpolation misses, as in `pm.gp.MarginalApprox`.
        Default: "DTC", the only one that needs no rows.
    inducing : int or array, shape (m, d)
        The points, such as ``fit_inducing(...).Z``; a number stands for that many k-means centres.
        512 to 1024 for large data; more points resolve more detail and cost O(m^3).
    temperature : float, array (d,) or random variable
        T. At 1 and standardised inputs the weights spread over the nearest points; smaller values
        sharpen them.

    Raises
    ------
    TypeError, ValueError
        For an unknown option, points that are not finite or lie in another dimension, a temperature
        that is not positive, or `WhiteNoise` inside the kernel (give it as sigma).

    Notes
    -----
    ====================  =========================  ====================
    step                  time                       memory
    ====================  =========================  ====================
    marginal_likelihood   O(n m (m + d)) once        O(block m + m^2)
    gradient, summarised  O(m^3)                     O(m^2)
    gradient, full        O(n m (m + d))             three (n, m) arrays
    prediction            O(n* m (m + d)) a draw     O(block m + m^2)
    ====================  =========================  ====================

    The full path is taken with random points or temperature, one sigma a row, a mean with free
    parameters, FITC or VFE; :attr:`likelihood_path` tells.

    Beyond the range of the training inputs a stationary kernel's features fade as the kernel does:
    x is moved to the nearest x' in that range, and ``phi(x) = k(x, x') / k(x', x') L' w(x')``. Far
    away mean function and prior variance ``k(x, x)`` return.

    Examples
    --------
    .. code-block:: python

        with pm.Model() as model:
            ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
            sigma = pm.HalfNormal("sigma", 1)
            cov = eta**2 * pm.gp.cov.ExpQuad(d, ls=ell)
            fit = sgp.fit_inducing(sgp.SoftKIMarginal(cov_func=cov, inducing=512), X, y)
            gp = sgp.SoftKIMarginal(cov_func=cov, inducing=fit.Z)
            gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
            idata = pm.sample(initvals=fit.point)
        pred = gp.predict_posterior(Xnew, idata, model=model)

    References
    ----------
    .. [1] Camaño, C. and Huang, D. (2024). High-Dimensional Gaussian Process Regression with Soft
       Kernel Interpolation. https://doi.org/10.48550/arXiv.2410.21419
    """

    def __init__(self, *, mean_func=None, cov_func, approx=None, inducing=512, temperature=1.0):
        approx = "DTC" if approx is None else approx
        check_choice("approx", approx, APPROXIMATIONS)
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, inducing=inducing, temperature=temperature,
            corrected=approx != "DTC",
        )  # fmt: skip
        self.approx = approx

    def marginal_likelihood(self, name, X, y, sigma, *, Xu=None, **kwargs):
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        Parameters
        ----------
        name, X, y, sigma, **kwargs
            As in the base class.
        Xu : array or tensor, shape (m, d), optional
            Points in place of ``inducing=``, as in `pm.gp.MarginalApprox`: they may have a prior.
        """
        if Xu is not None:
            self.build(X, Xu)
        return super().marginal_likelihood(name, X, y, sigma, **kwargs)


class SoftKILatent(_SoftKI, FeatureLatent):
    r"""Gaussian process by soft kernel interpolation (SoftKI), under any likelihood.

    .. math:: f(x) = m(x) + w(x)^\top L z, \qquad L L^\top = K_{zz}, \qquad z \sim N(0, I_m)

    with the softmax weights of :class:`SoftKIMarginal`. Train the points on a Gaussian stand-in for
    the data (for counts: their logarithm), or use k-means centres where the inputs are few.

    Parameters
    ----------
    mean_func, cov_func, inducing, temperature
        As in :class:`SoftKIMarginal`.

    Raises
    ------
    TypeError, ValueError
        As :class:`SoftKIMarginal`.

    Notes
    -----
    O(n m) a gradient, and O(m^3) for the kernel. With points and temperature fixed the weights
    (n, m) are computed once.

    References
    ----------
    .. [1] Camaño, C. and Huang, D. (2024). High-Dimensional Gaussian Process Regression with Soft
       Kernel Interpolation. https://doi.org/10.48550/arXiv.2410.21419
    """

    def __init__(self, *, mean_func=None, cov_func, inducing=512, temperature=1.0):
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, inducing=inducing, temperature=temperature,
            corrected=False,
        )  # fmt: skip

    def prior(self, name, X, *, Xu=None, **kwargs):
        """Latent function values, as :meth:`FeatureLatent.prior`, with optional points `Xu` (m, d)."""
        if Xu is not None:
            self.build(X, Xu)
        return super().prior(name, X, **kwargs)
