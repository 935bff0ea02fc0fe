"""Exact Gaussian processes of one input in linear time."""

import numpy as np

from pymc_scalable_gp.core.features.nystrom import NystromMap
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.sums import Sum
from pymc_scalable_gp.methods.statespace.likelihood import MarkovRows
from pymc_scalable_gp.methods.statespace.markov import column_of, markov_form, uses_harmonics
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import is_random, model_here


class StateSpaceMarginal(FeatureMarginal):
    r"""Exact Gaussian process of one input in linear time; any likelihood.

    .. math:: y \sim N(\mu,\; K + \sigma^2 I)

    For kernels that are Markov: the function and its derivatives up to some order, or a few more such
    states, are all that the future depends on. The Kalman filter then gives the density of
    :class:`ExactMarginal`, without its matrix. GPs of this class add, as in `pm.gp`: ``gp1 + gp2`` has the
    likelihood, and ``gp1.predict(Xnew, given={"gp": gp1 + gp2})`` is the first part given the data.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out. Trends with normal weights may stand in the kernel (`Linear`).
    cov_func : pm.gp.cov.Covariance
        Sums and products of `Matern12`, `Exponential`, `Matern32`, `Matern52`, `Cosine`, `Periodic`,
        `Constant`, `Linear` and scalars, of one column; powers 1 to 4, and `ScaledCov`.
    harmonics : int
        Harmonics of each `Periodic` kernel's Fourier series. With 24 the series is exact to 1e-12 of the
        variance for ``ls`` above .18; where more than that is missing the density is NaN, and a sampler
        stays away. Harmonics that do not matter to the density cost nothing.

    Raises
    ------
    TypeError, ValueError
        For other kernels (the message names the nearest that is Markov) and several columns;
        in :meth:`marginal_likelihood`, for a `Periodic` kernel that needs more harmonics at the
        model's initial point.

    See Also
    --------
    ExactMarginal : Any kernel, few rows.
    VecchiaMarginal : Any kernel, several inputs, nearly exact.

    Notes
    -----
    O(n s^2) per likelihood, two to five times that with its gradient, with s states: 1, 2 and 3 for the
    Matern kernels, 1 for `Constant` and `Linear`, 2 for `Cosine`, 1 and 2 for each harmonic for `Periodic`;
    those of a sum add up, those of a product multiply. Rows may come in any order, at any times, equal ones
    too; ``sigma`` may be one value per row.

    References
    ----------
    .. [1] Särkkä, S. and Solin, A. (2019). Applied Stochastic Differential Equations, chapter 12.
       https://doi.org/10.1017/9781108186735
    .. [2] Solin, A. and Särkkä, S. (2014). Explicit Link Between Periodic Covariance Functions and State
       Space Models. AISTATS. https://proceedings.mlr.press/v33/solin14.html

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 20)[:, None]
    >>> y = np.sin(6.0 * X[:, 0])
    >>> with pm.Model() as model:
    ...     ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
    ...     gp = sgp.StateSpaceMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=ell))
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
    abilities = {"marginal_likelihood": "", "likelihood": "", "missing targets": ""}

    def __init__(self, *, mean_func=None, cov_func, harmonics=24):
        super().__init__(mean_func=mean_func, cov_func=cov_func)
        self.harmonics = check_count("harmonics", harmonics)
        markov_form([cov_func], self.harmonics)  # refuses other kernels before there are rows

    def settings(self):
        """Arguments besides mean and covariance."""
        return {"harmonics": self.harmonics} if uses_harmonics(self.cov_func) else {}

    def _fit(self, X):
        """No features; find the column that the kernel looks at."""
        self._column = column_of(self.cov_func, X.shape[1])
        return NystromMap.without_points(self.cov_func, X)

    def make_likelihood(self, data, progressbar=True):
        """The Kalman filter, refused where a Periodic kernel needs more harmonics at the initial point."""
        summands = tuple(part.cov_func for part in self.parts)
        found = MarkovRows(data, self.cov_func, self._column, self.harmonics, summands)
        if not uses_harmonics(self.cov_func):
            return found
        variances, model = found.form.variances, model_here(needed=False) or self.model
        known = model is not None or not is_random(variances)
        if known and np.isnan(evaluate([variances], model=model)[0]).any():
            raise ValueError(
                f"harmonics={self.harmonics} leave out more than 1e-12 of a Periodic kernel's variance at "
                "the model's initial point: its ls is small; give more harmonics="
            )
        return found


class AdditiveStateSpace(Sum, StateSpaceMarginal):
    """Sum of GPs of this class."""

    def __init__(self, parts):
        super().__init__(parts, harmonics=max(part.harmonics for part in parts))


StateSpaceMarginal.sum_classes = AdditiveStateSpace.sum_classes = (AdditiveStateSpace,)
