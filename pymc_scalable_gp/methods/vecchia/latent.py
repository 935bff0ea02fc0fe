"""Near-exact Gaussian processes under any likelihood: inducing points and neighbours."""

from dataclasses import asdict

import pymc as pm

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.latent import FeatureLatent
from pymc_scalable_gp.core.vecchia.likelihood import RowPlan, VecchiaFunction, VecchiaSettings
from pymc_scalable_gp.methods.vecchia.gp import PivotedGP


class VecchiaLatent(PivotedGP, FeatureLatent):
    r"""Near-exact Gaussian process, any kernel, any likelihood.

    .. math:: f = \mu + \Phi z + u, \qquad u_b = A_b u_{N(b)} + L_b\,\varepsilon_b, \qquad
              z \sim N(0, I_m),\; \varepsilon \sim N(0, I_n)

    with the features, blocks and neighbours of :class:`VecchiaMarginal`, so that the prior of f is close to
    that of the kernel. For counts, classes, survival times and other data without Gaussian noise.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel.
    n_inducing : int
        Number m of inducing points, 50 to 200: they describe variation over long distances, which is
        hard to sample through the neighbours.
    neighbors : int or None
        Number k of earlier rows that each block is conditioned on. None: inducing points alone, m latent
        variables instead of m + n; predictions still include the variance that the points miss.
    block : int
        Rows g of a block.
    pred_neighbors : int, optional
        Rows that each new row is conditioned on: twice `neighbors` when left out.

    Raises
    ------
    TypeError, ValueError
        For an option out of range, or `WhiteNoise` inside the kernel.

    See Also
    --------
    VecchiaMarginal : The function integrated out.
    ExactMarginal : With ``likelihood=``, exact but for Laplace's approximation; faster up to some 600 rows.

    Notes
    -----
    O(n (m^2 + (g + k)^2 (m + g + k) / g)) per gradient. With neighbors, a latent variable per row makes
    trajectories long: where the points miss little of the prior variance (``check()["missing"]``),
    neighbors=None is far faster. A millionth of the prior variance is added to that of the residual at
    each row, so that blocks with close rows can be factorised.

    References
    ----------
    .. [1] Gyger, T., Furrer, R. and Sigrist, F. (2025). Vecchia-Inducing-Points Full-Scale
       Approximations for Gaussian Processes. https://doi.org/10.48550/arXiv.2507.05064
    .. [2] Datta, A. et al. (2016). Hierarchical Nearest-Neighbor Gaussian Process Models for Large
       Geostatistical Datasets. https://doi.org/10.1080/01621459.2015.1044091

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(size=(40, 2))
    >>> with pm.Model() as model:
    ...     ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
    ...     gp = sgp.VecchiaLatent(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=ell), n_inducing=10)
    ...     f = gp.prior("f", X)
    ...     _ = pm.Poisson("counts", pm.math.exp(f), observed=rng.poisson(1.0, 40))
    >>> gp.rank, sorted(v.name for v in model.free_RVs)
    (10, ['ell', 'eta', 'f_coeffs', 'f_white'])
    >>> idata = pm.sample(model=model)  # doctest: +SKIP
    """

    knobs = "n_inducing= and neighbors="
    abilities = {"prior": "", "any kernel": "", "export": ""}

    def __init__(
        self, *, mean_func=None, cov_func, n_inducing=200, neighbors=15, block=16,
        pred_neighbors=None,
    ):  # fmt: skip
        super().__init__(mean_func=mean_func, cov_func=cov_func, n_inducing=n_inducing)
        self.local = None
        if neighbors is not None:
            self.local = VecchiaSettings.checked(neighbors, block, pred_neighbors)

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        found = super().settings() | {"neighbors": None}
        return found if self.local is None else found | asdict(self.local)

    def check_addable(self):
        """Only without neighbours, which belong to one kernel."""
        if self.local is not None:
            raise TypeError(
                "GPs with neighbors= do not add, 0 of them included: add their kernels, in one cov_func, "
                "or give neighbors=None"
            )

    def prior(self, name, X, **kwargs):
        """Function values at X, for any likelihood.

        As :meth:`FeatureLatent.prior`, with white residuals ``{name}_white`` beside the coefficients
        ``{name}_coeffs``. Where `pm.set_data` replaces X, evaluation raises: call :meth:`rebuild`.
        """
        if self.local is None:
            return super().prior(name, X, **kwargs)
        keywords = self._prior_keywords(kwargs)
        data = self._latent_inputs(X, keywords, bound=False)
        ordering = self.local.order(self.cov_func, data.value, self.reference)
        found = VecchiaFunction(
            self.feature_map.for_residual(), data, self.cov_func, self.local, RowPlan(ordering, data.value),
            pm.Normal(f"{name}_coeffs", 0.0, 1.0, shape=self.rank),
            pm.Normal(f"{name}_white", 0.0, 1.0, shape=len(data.value)),
        )  # fmt: skip
        f = mean_vector(self.mean_func, data.tensor) + found.values()
        self._follow(found)
        return pm.Deterministic(name, f, **keywords)

    def rebuild(self, point=None) -> None:
        """Choose points, order and neighbours again: as :meth:`VecchiaMarginal.rebuild`."""
        training = self.training
        if not isinstance(training, VecchiaFunction):
            raise ValueError(
                "rebuild is for a prior with neighbors; without them build(X, point) again and write the "
                "model again"
            )
        training.reorder(point)
        self.move_points(training.prediction_map(), training.present_inputs(), point)
