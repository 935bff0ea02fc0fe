"""SKIP: products of interpolated 1-D kernels, merged as a tree; latent, marginal and multi-task."""

import pymc as pm
import pytensor.tensor as pt

from pymc_scalable_gp.core.data.inputs import check_inputs
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.latent import FeatureLatent
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.observed import APPROXIMATIONS, WITH_RESIDUAL
from pymc_scalable_gp.cov.products import product_terms
from pymc_scalable_gp.methods.skip.features import SKIPMap, check_product, checked_tasks
from pymc_scalable_gp.methods.skip.hadamard import HadamardProducts
from pymc_scalable_gp.methods.skip.tasks import ByTask
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.classes import as_typed


@as_typed
class _SKIP(FeatureGP):
    """What the marginal and the latent class share."""

    knobs = "rank= and grid_size="

    def __init__(self, *, cov_func, grid_size, rank, task_dim, task_cov, task_var, **options):
        check_product(cov_func, grid_size, rank)
        self.tasks = checked_tasks(task_dim, task_cov, task_var)
        product_terms(cov_func)  # raises where the kernel is not a product
        self.grid_size, self.max_rank = int(grid_size), int(rank)
        super().__init__(cov_func=cov_func, **options)

    @property
    def prior_cov(self):
        """The kernel, times the tasks' covariance ``B B' + diag(v)``."""
        return self.cov_func if self.tasks is None else self.tasks.times(self.cov_func)

    def _fit(self, X, point=None):
        """Place the grids over X (n, d), and freeze the directions of every merge at `point`."""
        found = SKIPMap(self.cov_func, X, self.grid_size, self.max_rank, self.tasks, point)
        if self.tasks is not None:  # a column that was counted from the end
            self.tasks = self.tasks._replace(dim=found.task_dim)
        return found

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        return super().settings() | {"grid_size": self.grid_size, "rank": self.max_rank}

    def build(self, X, point=None) -> int:
        """Place the grids over X, and fix the directions of every merge.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        point : dict, optional
            Hyperparameters at which the directions are best; the model's initial point when left
            out. The closer they are to the posterior, the more variance the features explain at the
            same rank: give a MAP estimate, for instance ``sgp.subset_map(gp, X, y, sigma)``.

        Returns
        -------
        int
            Number of features.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, columns that X lacks, or tasks that are not 0, 1, ....
        """
        return self._build(check_inputs(X), point=point)


class SKIPMarginal(_SKIP, FeatureMarginal):
    r"""Gaussian process on a product of interpolated 1-D kernels (SKIP); any likelihood.

    .. math:: K \approx (W_1 T_1 W_1^\top) \circ \dots \circ (W_d T_d W_d^\top)
              \approx (A A^\top) \circ (B B^\top)

    Each 1-D kernel is interpolated from an even grid (four cubic weights per row). The d factors are
    multiplied in pairs, as a tree, and each product but the last is compressed to r columns. The last
    one is kept as it is: up to r^2 features. The likelihood is computed from these features or, with
    `n_iter`, from products with their covariance alone.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        A product of 1-D kernels, as in :class:`GriefGP`, or a sum of such.
    approx : {"DTC", "FITC", "VFE", "VIF"}, optional
        Treatment of the prior variance that the features do not explain, as in `pm.gp.MarginalApprox`.
        Default "FITC": from about 6 inputs on, much is missed, and most of it lies on the diagonal.
        Under "VIF" the 1-D kernels are not interpolated but projected on the nodes, O(n d m r): such
        features never exceed the kernel, and what they miss is a covariance within the grids and beyond.
    grid_size : int
        Nodes m of every 1-D grid, which goes beyond the data by a tenth of their range. The error is
        third order in the spacing: a fifth of the lengthscale is fine enough.
    rank : int
        Columns r of each root: 10 to 30, with `n_iter` up to 100.
    n_iter : int, optional
        Steps P of preconditioned conjugate gradients and stochastic Lanczos quadrature, which replace the
        features in the likelihood where r^2 of them are too many. Fixed, so that the density is one
        function; ``check().attrs["residual"]`` says whether they are enough, as 20 often are. When left
        out, the likelihood is computed from the features.
    probes : int
        With `n_iter`: random vectors S that estimate the log determinant, fixed at the build. Posterior
        means move by up to about ``2 S^-1/2`` posterior standard deviations.
    preconditioner : int
        With `n_iter`: number k of leading eigenvectors, frozen at the build, that the steps need not
        find. In the space that they and the steps span, the posterior variance is exact; elsewhere it
        is an upper bound. 100 to 500.
    task_dim : int, optional
        Column of X that holds the task, 0, 1, ....
    task_cov : tensor, shape (s, q), optional
        Factor B of the tasks' covariance: the kernel is ``k(x, z) (B B')[t, t']``. Random or fixed.
    task_var : tensor, shape (s,), optional
        Variances v of the tasks' own functions: the kernel is ``k(x, z) (B B' + diag(v))[t, t']``,
        as of `pm.gp.cov.Coregion` with W = B and kappa = v. Any number of tasks: they are integrated
        out one by one, each with r coefficients.
    neighbors, block, pred_neighbors : int
        With "VIF", as in :class:`VecchiaMarginal`.

    Raises
    ------
    TypeError, ValueError
        For a kernel that is not a product over dimensions, rank above grid_size, tasks that are not
        whole numbers in range, or bad options.

    See Also
    --------
    SKIPLatent : The same features, for a function that enters several likelihoods.

    Notes
    -----
    ====================  =======================================  ==========================
    step                  time                                     memory
    ====================  =======================================  ==========================
    build                 O(d m^3 + d c (r^3 + c r)), c <= 3000    O(c^2), of c of the rows
    roots, gradient       O(n d (r + r^3) + d m^2 r)               4 d arrays (n, r)
    likelihood            O(n r^4)                                 two arrays (n, r^2)
    with s tasks          O(n r^2 + s r^2 (r + q^2) + r^3 q^3)     O(n r + s (r^2 + q^2))
    with n_iter           O((1 + S) P n (r^2 + k)), P <= 100       4 arrays (n, max(r, k, P))
    prediction            O(n* r^4) per draw; O(n* r^2 k)            O(block r^2)
    ====================  =======================================  ==========================

    The directions of every compression are frozen at the build: the leading eigenvectors there. At any
    value of the parameters the compressed matrix is the best one with these directions. It is smooth in
    the parameters, never above the matrix itself, and closer to it than Lanczos steps of the same rank.

    References
    ----------
    .. [1] Gardner, J. et al. (2018). Product Kernel Interpolation for Scalable Gaussian Processes.
       https://doi.org/10.48550/arXiv.1802.08903

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.random.default_rng(1).uniform(size=(50, 3))
    >>> with pm.Model() as model:
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3, shape=3), pm.HalfNormal("sigma", 1)
    ...     gp = sgp.SKIPMarginal(cov_func=pm.gp.cov.ExpQuad(3, ls=ell), grid_size=20, rank=6)
    ...     _ = gp.marginal_likelihood("y", X=X, y=X.sum(axis=1), sigma=sigma)
    >>> gp.rank, gp.likelihood_path
    (36, 'full')
    >>> idata = pm.sample(model=model)  # doctest: +SKIP
    """

    abilities = {
        "marginal_likelihood": "", "points": "rank=", "likelihood": "without n_iter=",
        "statistics": "with a fixed kernel",
    }  # fmt: skip

    def __init__(
        self, *, mean_func=None, cov_func, approx=None, grid_size=100, rank=30, task_dim=None,
        task_cov=None, task_var=None, n_iter=None, probes=8, preconditioner=200, neighbors=30,
        block=16, pred_neighbors=None,
    ):  # fmt: skip
        self.n_iter = None if n_iter is None else check_count("n_iter", n_iter)
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, grid_size=grid_size, rank=rank, task_dim=task_dim,
            task_cov=task_cov, task_var=task_var, approx=approx, neighbors=neighbors, block=block,
            pred_neighbors=pred_neighbors,
        )  # fmt: skip
        self.probes = check_count("probes", probes)
        self.preconditioner = check_count("preconditioner", preconditioner)

    @property
    def present_knobs(self):
        """With `n_iter` what makes products converge, too."""
        return self.knobs if self.n_iter is None else "rank=, grid_size=, n_iter= and preconditioner="

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        own = {} if self.n_iter is None else {"n_iter": self.n_iter, "probes": self.probes}
        return super().settings() | own

    @property
    def is_of_one_function(self) -> bool:
        """Whether the likelihood has the features of one function: neither tasks nor `n_iter`."""
        return self.tasks is None and self.n_iter is None

    @property
    def approximations(self):
        """What `approx` may be."""
        return WITH_RESIDUAL if self.is_of_one_function else APPROXIMATIONS

    def check_approx(self, approx):
        """Raise ValueError for neighbours together with tasks or products."""
        if approx == "VIF" and not self.is_of_one_function:
            raise ValueError(
                'approx="VIF" works with the features of one function: leave out n_iter and task_dim (for '
                "tasks give sgp.VecchiaMarginal a kernel with pm.gp.cov.Coregion)"
            )
        super().check_approx(approx)

    def check_addable(self):
        """Raise TypeError with `n_iter`: products are those of one kernel."""
        if self.n_iter is not None:
            raise TypeError("GPs with n_iter do not add: add their kernels, in one cov_func")

    def marginal_likelihood(
        self, name, X=None, y=None, sigma=None, *, statistics=None, likelihood=None,
        progressbar=True, random_seed=0, **kwargs,
    ):  # fmt: skip
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        Parameters
        ----------
        name, X, y, sigma, statistics, likelihood, progressbar, **kwargs
            As in the base class; with `n_iter`, X and y are arrays and `likelihood` is None.
        random_seed : int
            Seed of the probes: they are drawn once, so that the density is one function.
        """
        given = name, X, y, sigma, statistics, progressbar, self._likelihood_keywords(kwargs)
        return self._likelihood_variable(*given, likelihood, random_seed=random_seed)

    def check_integrable(self):
        """Raise TypeError with `n_iter`: the probes are for one noise variance."""
        if self.n_iter is not None:
            raise TypeError("likelihood= needs the features of SKIP: leave out n_iter")

    def check_summarizable(self, approx=None):
        """Raise ValueError with `n_iter` or tasks, where there are no features of one function."""
        super().check_summarizable(approx)
        if not self.is_of_one_function:
            raise ValueError(
                "statistics of rows need the features of one function: leave out n_iter and task_dim"
            )

    def make_likelihood(self, data, progressbar=True, random_seed=0):
        """By products with `n_iter`, task by task where that is cheaper, else by the features."""
        if self.n_iter is not None:
            if data.X.mutable or data.y.mutable:
                raise ValueError("n_iter needs X and y that are arrays, not pm.Data: probes are fixed")
            if self.n_iter > data.size:
                raise ValueError(
                    f"n_iter={self.n_iter} exceeds the {data.size} rows: lower it, or leave it out"
                )
            return HadamardProducts.of(data, self.n_iter, self.probes, self.preconditioner, random_seed)
        return ByTask(data) if self._is_by_task(data) else super().make_likelihood(data, progressbar)

    @staticmethod
    def _is_by_task(data) -> bool:
        """Whether to sum over tasks: their number is known, and factors are smaller than features."""
        tree = data.feature_map
        if tree.task_dim is None or tree.task_count is None or data.X.mutable:
            return False
        count, q = tree.task_cov.type.shape
        columns = tree.rank // (q + (count if tree.task_var is not None else 0))
        return count * q <= data.size * columns


class SKIPLatent(_SKIP, FeatureLatent):
    r"""Gaussian process on a product of interpolated 1-D kernels (SKIP), under any likelihood.

    .. math:: f_i = m(x_i) + a_i^\top Z\, b_i, \qquad Z_{jk} \sim N(0, 1)

    with ``a_i`` and ``b_i`` the rows of the last two roots of :class:`SKIPMarginal`: the r^2 features are
    never formed.

    Parameters
    ----------
    mean_func, cov_func, grid_size, rank, task_dim, task_cov, task_var
        As in :class:`SKIPMarginal`. With two inputs, rank 10 to 20 gives 100 to 400 coefficients.

    Raises
    ------
    TypeError, ValueError
        As :class:`SKIPMarginal`.

    See Also
    --------
    SKIPMarginal : The function integrated out; names the paper.

    Notes
    -----
    O(n d r^3) per gradient, and 4 d arrays (n, r): for n = 500 000, d = 8 and r = 20 about 3 GB. With
    fixed hyperparameters everything of size n but the last two roots is computed once, and a gradient
    costs O(n r^2).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(size=(40, 2))
    >>> with pm.Model() as model:
    ...     ell = pm.InverseGamma("ell", 3, 3, shape=2)
    ...     gp = sgp.SKIPLatent(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), grid_size=20, rank=8)
    ...     f = gp.prior("f", X)
    ...     _ = pm.Poisson("counts", pm.math.exp(f), observed=rng.poisson(1.0, 40))
    >>> gp.rank
    64
    >>> idata = pm.sample(model=model)  # doctest: +SKIP
    """

    abilities = {"prior": "", "points": "rank="}

    def __init__(
        self, *, mean_func=None, cov_func, grid_size=100, rank=30, task_dim=None, task_cov=None,
        task_var=None,
    ):  # fmt: skip
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, grid_size=grid_size, rank=rank, task_dim=task_dim,
            task_cov=task_cov, task_var=task_var,
        )  # fmt: skip

    def prior(self, name, X, *, centered: bool = False, **kwargs):
        """Function values at X, as :meth:`FeatureLatent.prior`.

        Parameters
        ----------
        name, X, **kwargs
            As in the base class.
        centered : bool
            Give the coefficients the kernel's scale as their prior sd, in place of scaling the roots:
            better where the data say much about the function. Not for a sum of kernels.
        """
        keywords = self._prior_keywords(kwargs)
        data, terms = self._latent_inputs(X, keywords), self.feature_map.terms
        if centered and len(terms) > 1:
            raise ValueError("centered=True needs one product kernel, not a sum of them")
        scale = pt.sqrt(terms[0].scale) if centered else 1.0
        coef = pm.Normal(f"{name}_coeffs", 0.0, scale, shape=self.rank) / scale
        return self._latent(name, data, keywords, coef)
