"""Near-exact Gaussian processes: inducing points, and neighbours for the variance that they miss."""

import numpy as np

from pymc_scalable_gp.core.data.inputs import check_inputs
from pymc_scalable_gp.core.features.nystrom import NystromMap, pivoted_rows
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.cov.queries import used_columns, warn_unused_columns
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.classes import as_typed
from pymc_scalable_gp.utils.graphs import data_shared


class PivotMap(NystromMap):
    """Inducing points in a shared variable, so that :meth:`move` reaches a model that uses them."""

    def __init__(self, cov_func, X, points):
        super().__init__(cov_func, data_shared(points), X.min(axis=0), X.max(axis=0))

    def move(self, points: np.ndarray) -> None:
        """Replace the points; where there are fewer than before, old ones fill the remaining places."""
        old = self.points.get_value()
        self.points.set_value(np.concatenate([points, old])[: len(old)])


@as_typed
class PivotedGP(FeatureGP):
    """A GP on inducing points that the kernel alone chooses: base of the marginal and the latent class."""

    def __init__(self, *, cov_func, n_inducing, **options):
        self.n_inducing = check_count("n_inducing", n_inducing, 0)
        super().__init__(cov_func=cov_func, **options)

    def _fit(self, X, point=None, random_seed=0):
        """Features of the points that the kernel chooses."""
        used_columns(self.cov_func, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        return PivotMap(self.cov_func, X, self._points(X, point, random_seed))

    def _points(self, X, point, random_seed=0):
        """Rows of X (n, d), each with the largest variance given those before."""
        return X[pivoted_rows(self.cov_func, X, min(self.n_inducing, len(X)), random_seed, point)]

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        return super().settings() | {"n_inducing": self.rank if self.is_built else self.n_inducing}

    def build(self, X, point=None, random_seed=0) -> int:
        """Choose inducing points, and fix the hyperparameters that determine order and neighbours.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        point : dict, optional
            Hyperparameters; the model's initial point for those left out.
        random_seed : int, optional
            Seed of the choice among rows of the same variance.

        Returns
        -------
        int
            Number of inducing points: fewer than `n_inducing` where the rest depend on them.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, or, outside the model context, random hyperparameters.
        """
        return self._build(check_inputs(X), point=point, random_seed=random_seed)

    def move_points(self, feature_map, X, point) -> None:
        """Choose inducing points again; the point is then that of the build."""
        feature_map.move(self._points(X, point))
        self._reference = point


class VecchiaMarginal(PivotedGP, FeatureMarginal):
    r"""Near-exact Gaussian process for thousands to a million rows, any kernel; any likelihood.

    .. math:: y \sim N(\mu,\; \Phi\Phi^\top + S), \qquad
              S^{-1} = B^\top D^{-1} B \approx (K - \Phi\Phi^\top + \sigma^2 I)^{-1}

    Features of a few inducing points describe the smooth part of the function. The rest is kept too: rows
    are divided into blocks that lie close together, and each block is regressed on its nearest earlier
    rows (a block Vecchia approximation of the residual, "VIF"). With more neighbours the density
    approaches that of `pm.gp.Marginal`, whatever the inducing points.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel.
    n_inducing : int
        Number m of inducing points: 50 to 200. With 0 this is the nearest-neighbour GP, for rough kernels
        (Matern) in one to three inputs; where very many rows lie within a lengthscale, the neighbours
        cover too short a distance, and inducing points are needed. So they are, 50 or more, under
        ``likelihood=`` where targets say little, as low counts: without a mode of f the density is NaN.
    neighbors : int
        Number k of earlier rows that each block is conditioned on: 30, or 60 in six and more inputs, where
        the nearest rows of one row of a block are not those of the others.
    block : int
        Rows g of a block. The cost per row falls with g as long as g is below k; 1 is the classical
        Vecchia approximation, which needs the fewest neighbours.
    pred_neighbors : int, optional
        Rows that each new row is conditioned on: twice `neighbors` when left out. They are cheap, and in
        many inputs predictions need them.

    Raises
    ------
    TypeError, ValueError
        For an option out of range, or `WhiteNoise` inside the kernel (give it as sigma).

    See Also
    --------
    VecchiaLatent : The same prior, for a function that enters several likelihoods.
    ExactMarginal : Faster up to some 600 rows.

    Notes
    -----
    ====================  ==============================================  ====================
    step                  time                                            memory
    ====================  ==============================================  ====================
    build                 O(n m^2), and the search of neighbours          one (m, n) array
    likelihood, gradient  O(n (m^2 + (g + k)^2 (m + g + k) / g))          O(n (m + g + k))
    prediction            O(n* (m^2 + p^2 m + p^3)) per draw                O(n (m + k))
    ====================  ==============================================  ====================

    with p the `pred_neighbors`. Points, order and neighbours are chosen at the hyperparameters of the
    build and stay fixed, so that the density is smooth. :meth:`rebuild` chooses them again; :meth:`check`
    says whether that is worth it.

    Sums of products of stationary and periodic kernels, `PerGroup` and `GreatCircle` among them, are
    evaluated block by block. Of others, such as `Linear` or `Cosine`, the kernel between all local rows is
    stored, ``n (g + k)^2 / g`` numbers; as it is under another `likelihood`, for all steps to its mode.

    References
    ----------
    .. [1] Gyger, T., Furrer, R. and Sigrist, F. (2025). Vecchia-Inducing-Points Full-Scale
       Approximations for Gaussian Processes. https://doi.org/10.48550/arXiv.2507.05064
    .. [2] Guinness, J. (2018). Permutation and Grouping Methods for Sharpening Gaussian Process
       Approximations. https://doi.org/10.1080/00401706.2018.1437476

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(size=(60, 2))
    >>> y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    >>> with pm.Model() as model:
    ...     ell, eta = pm.InverseGamma("ell", 3, 3, shape=2), pm.HalfNormal("eta", 1)
    ...     gp = sgp.VecchiaMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=ell), n_inducing=20)
    ...     _ = gp.marginal_likelihood("y", X=X, y=y, sigma=pm.HalfNormal("sigma", 1))
    >>> gp.rank, gp.likelihood_path
    (20, 'vecchia')
    >>> with model:  # doctest: +SKIP
    ...     start = pm.find_MAP()
    ...     gp.rebuild(start)
    ...     idata = pm.sample(initvals=start)
    >>> pred = gp.predict_posterior(X, idata, model=model)  # doctest: +SKIP
    """

    default_approx = "VIF"
    knobs = "neighbors= (and n_inducing=)"
    abilities = {"marginal_likelihood": "", "likelihood": "", "any kernel": "", "export": ""}
    approximations = ("VIF",)

    def __init__(
        self, *, mean_func=None, cov_func, n_inducing=200, neighbors=30, block=16,
        pred_neighbors=None,
    ):  # fmt: skip
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, n_inducing=n_inducing, neighbors=neighbors,
            block=block, pred_neighbors=pred_neighbors,
        )  # fmt: skip

    def build_at(self, X, point) -> None:
        """Build on the rows X at a point."""
        self.build(X, point=point)
