"""The exact Gaussian process on the same front end."""

from pymc_scalable_gp.core.features.nystrom import NystromMap
from pymc_scalable_gp.core.likelihoods.exact import ExactRows
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.sums import Sum
from pymc_scalable_gp.cov.queries import used_columns, warn_unused_columns
from pymc_scalable_gp.utils.warn import warn

# Above this number of rows a gradient takes seconds, and each of its arrays 200 MB.
MANY = 5000


class ExactMarginal(FeatureMarginal):
    r"""Exact Gaussian process, for up to about 3000 rows, any kernel; any likelihood.

    .. math:: y \sim N(\mu,\; K + \sigma^2 I)

    The model of `pm.gp.Marginal` with a faster gradient and the methods of the other classes, which are
    compared with it. They add, as in `pm.gp`: ``gp1 + gp2`` has the likelihood, and
    ``gp1.predict(Xnew, given={"gp": gp1 + gp2})`` is the first part given the data of the sum. As there,
    ``sigma=`` may be a kernel, as ``Matern32(...) + WhiteNoise(s)`` for noise that is correlated;
    predictions are of the function, and with ``pred_noise=True`` of another run, with new noise.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel.

    Raises
    ------
    TypeError, ValueError
        For `WhiteNoise` inside the kernel (give it as sigma), or bad inputs.

    Warns
    -----
    UserWarning
        In :meth:`marginal_likelihood`, for more than 5000 rows, and for missing targets: their rows are
        integrated out.

    See Also
    --------
    VecchiaMarginal : Nearly exact, for more rows.

    Notes
    -----
    O(n^3) per likelihood or gradient, and about five arrays (n, n). No jitter is added: a covariance that
    is not positive definite gives NaN.

    A kernel may hold a fixed matrix, ``k + M``, with a row for each of the likelihood's: predictions are at
    those rows alone, but for a part of a sum of GPs without the matrix.

    References
    ----------
    .. [1] Rasmussen, C. E. and Williams, C. K. I. (2006). Gaussian Processes for Machine Learning.
       https://doi.org/10.7551/mitpress/3206.001.0001

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 20)[:, None]
    >>> y = np.sin(6.0 * X[:, 0])
    >>> with pm.Model() as model:
    ...     ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
    ...     gp = sgp.ExactMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=ell))
    ...     _ = gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1))
    >>> point = {"ell": 0.5, "eta": 1.0, "sigma": 0.1}
    >>> mean, var = gp.predict(np.array([[0.25]]), point, diag=True, model=model)
    >>> print(mean.round(2), var.round(3))
    [0.98] [0.003]
    >>> idata = pm.sample(model=model)  # doctest: +SKIP
    """

    default_approx = "exact"
    approximations = ("exact",)
    knobs = "nothing: it is exact"
    abilities = {
        "marginal_likelihood": "", "likelihood": "", "any kernel": "", "fixed matrix": "", "export": "",
        "missing targets": "", "noise with a kernel": "",
    }  # fmt: skip

    def __init__(self, *, mean_func=None, cov_func):
        super().__init__(mean_func=mean_func, cov_func=cov_func)

    def settings(self):
        """No arguments besides mean and covariance."""
        return {}

    def _fit(self, X):
        """No features."""
        used_columns(self.cov_func, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        return NystromMap.without_points(self.cov_func, X)

    def make_likelihood(self, data, progressbar=True):
        """The dense likelihood, with a warning for many rows."""
        if data.size > MANY:
            warn(
                f"an exact GP on {data.size} rows takes O(n^3) time and O(n^2) memory per gradient: "
                "sgp.VecchiaMarginal is close to it at O(n), and gp.check says how close"
            )
        return ExactRows(data, self.cov_func)


class AdditiveExact(Sum, ExactMarginal):
    """Sum of exact GPs."""


ExactMarginal.sum_classes = AdditiveExact.sum_classes = (AdditiveExact,)
