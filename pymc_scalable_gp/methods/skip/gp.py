"""SKIP: products of interpolated 1-D kernels, merged as a tree; latent, marginal and multi-task."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import Coregion
from pytensor.graph.basic import Constant

from pymc_scalable_gp.core.data.inputs import check_inputs
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.latent import FeatureLatent
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.observed import WITH_RESIDUAL
from pymc_scalable_gp.cov.queries import leaves
from pymc_scalable_gp.methods.skip.features import SKIPSpec
from pymc_scalable_gp.methods.skip.hadamard import HadamardProducts
from pymc_scalable_gp.methods.skip.tasks import ByTask
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.classes import as_typed


@as_typed
class _SKIP(FeatureGP):
    """What the marginal and the latent class share."""

    knobs = "rank= and grid_size="

    @staticmethod
    def _spec_of(cov_func, grid_size, rank, task_dim, task_cov, task_var) -> SKIPSpec:
        if any(isinstance(leaf, Coregion) for leaf in leaves(cov_func)):
            raise ValueError(
                "cov_func contains Coregion: give the task's column as task_dim=, W as task_cov= and "
                "kappa as task_var="
            )
        grid_size = check_count("grid_size", grid_size, 6)
        rank = check_count("rank", rank)
        if rank > grid_size:
            raise ValueError(f"rank={rank} exceeds grid_size={grid_size}: raise the grid's size")
        task_cov = _check_task_cov(task_dim, task_cov)
        task_var = _check_task_var(task_cov, task_var)
        return SKIPSpec(cov_func, grid_size, rank, task_dim, task_cov, task_var)

    @property
    def prior_cov(self):
        """The kernel, times the tasks' covariance ``B B' + diag(v)``."""
        return self._spec.prior_cov

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        return super().settings() | {"grid_size": self.grid_size, "rank": self.max_rank}

    def build(self, X, point=None) -> int:
        """Fix the grids over X and every merge's directions.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        point : dict, optional
            Hyperparameters whose kernel the directions are best for; the model's initial point when
            left out. The closer to the posterior, the less is missed at the same rank: give a MAP
            estimate, for instance ``sgp.subset_map(gp, X, y, sigma)``.

        Returns
        -------
        int
            Number of features.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, columns that X lacks, or tasks that are not 0, 1, ....
        """
        return self._build(check_inputs(X).value, point=point)


def _check_task_cov(task_dim, task_cov):
    if (task_dim is None) != (task_cov is None):
        raise ValueError("task_dim and task_cov go together: give both or neither")
    if task_dim is None:
        return None
    if isinstance(task_dim, bool) or not isinstance(task_dim, int | np.integer):
        raise TypeError(f"task_dim must be the index of a column, got {task_dim!r}")
    factor = pt.as_tensor_variable(task_cov).astype("float64")
    if factor.ndim != 2 or factor.type.shape[1] is None:
        raise ValueError(
            "task_cov must be a factor B (tasks, q) with a known number of columns, B B' being the "
            f"tasks' covariance; got shape {factor.type.shape}"
        )
    return factor


def _check_task_var(task_cov, task_var):
    if task_var is None:
        return None
    if task_cov is None:
        raise ValueError("task_var goes with task_dim and task_cov: give all three")
    variances = pt.as_tensor_variable(task_var).astype("float64")
    shape, count = variances.type.shape, task_cov.type.shape[0]
    if len(shape) != 1 or None in (shape[0], count) or shape[0] != count:
        raise ValueError(
            "task_var must hold one variance per task, shape (tasks,), known and equal to task_cov's "
            f"rows; got {shape}, and {count} rows"
        )
    if isinstance(variances, Constant) and not (variances.data >= 0.0).all():
        raise ValueError("task_var must not be negative")
    return variances


class SKIPMarginal(_SKIP, FeatureMarginal):
    r"""Gaussian process on a product of interpolated 1-D kernels (SKIP); Gaussian noise.

    .. math:: K \approx (W_1 T_1 W_1^\top) \circ \dots \circ (W_d T_d W_d^\top)
              \approx (A A^\top) \circ (B B^\top)

    Each 1-D kernel is interpolated from an even grid (four cubic weights per row), and the d factors are
    multiplied pairwise as a tree whose inner products are compressed to r columns. The last product
    stays as it is: up to r^2 features, with an exact root. The likelihood is theirs exactly or, with
    `n_iter`, by products alone.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        A product of 1-D kernels, as in :class:`GriefGP`, or a sum of such.
    approx : {"DTC", "FITC", "VFE", "VIF"}, optional
        Treatment of the prior variance that the features miss, as in `pm.gp.MarginalApprox`.
        Default "FITC": from about 6 inputs on, much is missed, and most of it lies on the diagonal.
        Under "VIF" the 1-D kernels are not interpolated but projected on the nodes, O(n d m r): such
        features never exceed the kernel, and what they miss is a covariance within the grids and beyond.
    grid_size : int
        Nodes m of every 1-D grid, which goes beyond the data by a tenth of their range. The error is
        third order in the spacing: a fifth of the lengthscale is plenty.
    rank : int
        Columns r of a root. 10 to 30; up to 100 with `n_iter`.
    n_iter : int, optional
        Steps P of preconditioned conjugate gradients and stochastic Lanczos quadrature, which take the
        features' place in the likelihood: for ranks whose r^2 features are too many. Fixed, so that the
        density is one function; ``check().attrs["residual"]`` says whether they suffice, 20 often do.
        The features themselves when left out.
    probes : int
        With `n_iter`: random vectors S that estimate the log determinant, fixed at the build. Posterior
        means move by up to about ``2 S^-1/2`` posterior standard deviations.
    preconditioner : int
        With `n_iter`: leading eigenvectors k, frozen at the build, that the steps need not find, and
        in whose span (with that of the steps) the posterior's variance is exact. Elsewhere it is an
        upper bound. 100 to 500.
    task_dim : int, optional
        Column of X that holds the task, 0, 1, ....
    task_cov : tensor, shape (s, q), optional
        Factor B of the tasks' covariance: the kernel is ``k(x, z) (B B')[t, t']``. Random or fixed.
    task_var : tensor, shape (s,), optional
        Variances v of the tasks' own functions: the kernel is ``k(x, z) (B B' + diag(v))[t, t']``,
        as of `pm.gp.cov.Coregion` with W = B and kappa = v. Any number of tasks: they are integrated
        out one by one, each with r coefficients.
    neighbors, block, pred_neighbors : int
        With "VIF": rows that each block of rows is given, rows of a block, and rows that each new row is
        given, as in :class:`VecchiaMarginal`.

    Raises
    ------
    TypeError, ValueError
        For a kernel that is not a product over dimensions, rank above grid_size, tasks that are not
        whole numbers in range, or bad options.

    See Also
    --------
    SKIPLatent : The same features under any likelihood.

    Notes
    -----
    ====================  =======================================  ==========================
    step                  time                                     memory
    ====================  =======================================  ==========================
    build                 O(d m^3 + d s (r^3 + s r)), s <= 3000    O(s^2)
    roots, gradient       O(n d (r + r^3) + d m^2 r)               4 d arrays (n, r)
    likelihood            O(n r^4)                                 two arrays (n, r^2)
    with s tasks          O(n r^2 + s r^2 (r + q^2) + r^3 q^3)     O(n r + s (r^2 + q^2))
    with n_iter           O((1 + S) P n (r^2 + k)), P <= 100       4 arrays (n, max(r, k, P))
    prediction            O(n* r^4) per draw; O(n* r^2 k)            O(block r^2)
    ====================  =======================================  ==========================

    The directions of every compression are frozen at the build, at the leading eigenvectors there, and
    the compressed matrix is the best one with these directions at each value of the parameters: smooth,
    never above the matrix itself, and, at the same rank, closer to it than Lanczos steps are.

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

    approximations = WITH_RESIDUAL
    abilities = {"marginal_likelihood": "", "points": "rank=", "likelihood": "without n_iter="}

    def __init__(
        self, *, mean_func=None, cov_func, approx=None, grid_size=100, rank=30, task_dim=None,
        task_cov=None, task_var=None, n_iter=None, probes=8, preconditioner=200, neighbors=30,
        block=16, pred_neighbors=None,
    ):  # fmt: skip
        self.n_iter = None if n_iter is None else check_count("n_iter", n_iter)
        self.grid_size, self.max_rank, self.task_dim = grid_size, rank, task_dim
        super().__init__(
            self._spec_of(cov_func, grid_size, rank, task_dim, task_cov, task_var),
            mean_func=mean_func, cov_func=cov_func, approx=approx,
            neighbors=neighbors, block=block, pred_neighbors=pred_neighbors,
        )  # fmt: skip
        self.probes = check_count("probes", probes)
        self.preconditioner = check_count("preconditioner", preconditioner)

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        own = {} if self.n_iter is None else {"n_iter": self.n_iter, "probes": self.probes}
        return super().settings() | own

    def check_approx(self, approx):
        """Neighbours go with the features of one function."""
        super().check_approx(approx)
        if approx == "VIF" and (self.task_dim is not None or self.n_iter is not None):
            raise ValueError(
                'approx="VIF" works with the features of one function: leave out n_iter and task_dim (for '
                "tasks give sgp.VecchiaMarginal a kernel with pm.gp.cov.Coregion)"
            )

    def check_addable(self):
        """Not with `n_iter`: products are those of one kernel."""
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
        """Not by products, whose probes are for one noise variance."""
        if self.n_iter is not None:
            raise TypeError("likelihood= needs the features of SKIP: leave out n_iter")

    def check_summarizable(self, approx=None):
        """Not with likelihoods by products or by task, which have no features of one function."""
        super().check_summarizable(approx)
        if self.n_iter is not None or self.task_dim is not None:
            raise ValueError(
                "statistics of rows need the features of one function: leave out n_iter and task_dim"
            )

    def make_likelihood(self, data, progressbar=True, random_seed=0):
        """By products with `n_iter`, task by task where that is cheaper, else by the features."""
        if self.n_iter is not None:
            return self._by_products(data, random_seed)
        if self._is_by_task(data):
            return ByTask(data)
        return super().make_likelihood(data, progressbar)

    def _by_products(self, data, random_seed) -> HadamardProducts:
        if data.X.mutable or data.y.mutable:
            raise ValueError("n_iter needs X and y that are arrays, not pm.Data: probes are fixed")
        if self.n_iter > data.size:
            raise ValueError(
                f"n_iter={self.n_iter} exceeds the {data.size} rows: lower it, or leave it out"
            )
        signs = np.random.default_rng(random_seed).integers(0, 2, (self.probes, data.size))
        return HadamardProducts.of(data, self.n_iter, 2.0 * signs - 1.0, self.preconditioner)

    @staticmethod
    def _is_by_task(data) -> bool:
        """Whether to sum over tasks: known tasks, and factors smaller than the features would be."""
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
    SKIPMarginal : For Gaussian noise, the function integrated out.

    Notes
    -----
    O(n d r^3) per gradient, and 4 d arrays (n, r): for n = 500 000, d = 8 and r = 20 about 3 GB. With
    fixed hyperparameters everything of size n but the last two roots is computed once, and a gradient
    costs O(n r^2).

    References
    ----------
    .. [1] Gardner, J. et al. (2018). Product Kernel Interpolation for Scalable Gaussian Processes.
       https://doi.org/10.48550/arXiv.1802.08903

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
        self,
        *,
        mean_func=None,
        cov_func,
        grid_size=100,
        rank=30,
        task_dim=None,
        task_cov=None,
        task_var=None,
    ):
        spec = self._spec_of(cov_func, grid_size, rank, task_dim, task_cov, task_var)
        super().__init__(spec, mean_func=mean_func, cov_func=cov_func)
        self.grid_size, self.max_rank = grid_size, rank

    def prior(self, name, X, *, centered: bool = False, **kwargs):
        """Function values at X, for any likelihood.

        Parameters
        ----------
        name : str
            Name of the deterministic variable; the coefficients are ``{name}_coeffs``.
        X : array, shape (n, d), or pm.Data
            Inputs.
        centered : bool
            Give the coefficients the kernel's scale as their prior sd, in place of scaling the roots:
            better where the data say much about the function.
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
        keywords = self._prior_keywords(kwargs)
        data, terms = self._latent_inputs(X, keywords), self.feature_map.terms
        if centered and len(terms) > 1:
            raise ValueError("centered=True needs one product kernel, not a sum of them")
        scale = pt.sqrt(terms[0].scale) if centered else 1.0
        coef = pm.Normal(f"{name}_coeffs", 0.0, scale, shape=self.rank) / scale
        return self._latent(name, data, coef, keywords)
