"""GP-GRIEF: grid-structured eigenfunctions of product kernels."""

import numpy as np
import pymc as pm
from scipy.optimize import brentq

from pymc_scalable_gp.core.data.draws import model_mean, posterior_mean
from pymc_scalable_gp.core.data.inputs import check_inputs, check_weights
from pymc_scalable_gp.core.features.singular import Singular
from pymc_scalable_gp.core.latent import AdditiveLatent, FeatureLatent
from pymc_scalable_gp.core.likelihoods.base import FullRows
from pymc_scalable_gp.core.likelihoods.summary import can_summarize, summarize
from pymc_scalable_gp.core.marginal import AdditiveMarginal, FeatureMarginal
from pymc_scalable_gp.core.observed import KEEPS_ALL, WITH_RESIDUAL
from pymc_scalable_gp.core.rows.collect import basis_of
from pymc_scalable_gp.core.rows.triangle import RowFunction, triangle_of_rows
from pymc_scalable_gp.methods.grief.frozen import FrozenMap
from pymc_scalable_gp.methods.grief.spec import fit_grief
from pymc_scalable_gp.methods.grief.waves import check_periods, split_waves
from pymc_scalable_gp.utils.checks import check_choice, check_count, check_positive


class GriefGP(FeatureMarginal, FeatureLatent):
    r"""Gaussian process on grid-structured eigenfunctions (GP-GRIEF), for 1 to 100 inputs.

    A product kernel ``k(x, z) = prod_i k_i(x_i, z_i)`` is replaced by r eigenfunctions computed from
    a Cartesian grid of ``m^d`` points that is never formed:

    .. math::

        \tilde k(x, z) = \sum_{j=1}^r w_j\,\phi_j(x)\phi_j(z), \qquad
        \phi_j(x) = \prod_{i=1}^d
            \frac{k_i(x_i, U_i)\,V_i^{1/2} q_{i, I_{ji}}}{\sqrt{\lambda_{i, I_{ji}}}}

    with ``V_i^1/2 k_i(U_i, U_i) V_i^1/2 = Q_i diag(lambda_i) Q_i'`` in each dimension, ``V_i`` the
    share of the data near each node, and ``I`` (r x d) the multi-indices of the r products with the
    largest variance on the data.

    * *Type II* (default): the kernel's parameters are free, ``w = 1``.
    * *Frozen* (``basis="frozen"``): the kernel's parameters are free, the features are those of reference
      parameters, and a matrix ``M(theta)`` mixes them, ``M = I`` at the reference. The difference from type
      II grows with the distance from the reference, fast in many inputs: :meth:`check` reports it.
    * *Type I*: the kernel is fixed and the weights ``w`` are free; with ``rotate=True`` the basis is
      orthogonal on the training rows.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        A product of 1-D kernels: ExpQuad with one or d lengthscales, 1-D kernels on different
        columns multiplied together, :func:`~pymc_scalable_gp.cov.Product`, scalings, and sums of these.
        Of a Periodic kernel of one column with a fixed period, alone or as a term, the features are its
        Fourier series: no grid, and only their variances depend on parameters.
    approx : {"DTC", "FITC", "VFE", "VIF"}, optional
        Treatment of the prior variance that r features do not explain, as in `pm.gp.MarginalApprox`.
        Default: "FITC", and "DTC" (the only choice) with weights, ``rotate=True`` or a frozen basis.
    grid : int, sequence of int, or list of 1-D arrays, optional
        Nodes in each dimension, half way between even spacing and the column's quantiles; a column
        with fewer distinct values uses those, and one of categories all that there are. When left out,
        :meth:`build` takes as many as resolve the kernel: 100 to 200 in one dimension, 50 to 200 in two,
        10 to 30 in ten or more.
    rank : int
        Number of eigenfunctions r, at most; the terms of a sum of kernels get equal parts. Raise it until
        the posterior stops changing, or :meth:`check` shows little missing variance.
    basis : {"free", "frozen"}
        Whether the features follow the kernel's parameters, or stay those of `reference`.
    reference : dict, optional
        Parameters of a frozen basis, such as ``pm.find_MAP`` or :func:`~pymc_scalable_gp.subset_map`
        returns. When left out: those of ``build(X, point=...)``, or the model's initial point.
    rotate : bool
        Use the orthogonal basis (needs a kernel without free parameters).
    neighbors, block, pred_neighbors : int
        With "VIF", as in :class:`VecchiaMarginal`.

    Raises
    ------
    ValueError
        For a kernel that is not a product over dimensions, or bad options; in :meth:`prior` for
        a Periodic or Cosine kernel with a free period.

    Warns
    -----
    UserWarning
        In :meth:`build`, when the features of a kernel with free parameters miss more than 5% of the
        prior variance, with what to change.

    Notes
    -----
    ====================  =============================  ==========================
    step                  time                           memory
    ====================  =============================  ==========================
    build                 O(d m^3 + d r log r)           O(r d)
    build, rotate         O(n r^2) once                  O(block r + r^2)
    type II gradient      O(n r^2)                       two (n, r) arrays
    frozen gradient       O(r^3 + d r^2) for any n       O(r^2)
    type I gradient       O(r^3), rotated O(r)           O(r^2), rotated O(r)
    prediction            O(n* r^2), rotated O(n* r)     O(block r + r^2)
    ====================  =============================  ==========================

    The selection ``I`` and the eigenvectors ``Q`` are those at the hyperparameters of :meth:`build`.
    Elsewhere ``Q Lambda^-1/2`` becomes ``Q L^-T`` with ``L L' = Q'V^1/2 k(U, U) V^1/2 Q``, so that the
    density is smooth: eigenvectors swap and rotate where eigenvalues meet. Under JAX only reverse mode
    is available.

    References
    ----------
    .. [1] Evans, T. W. and Nair, P. B. (2018). Scalable Gaussian Processes with Grid-Structured
       Eigenfunctions (GP-GRIEF). ICML. https://doi.org/10.48550/arXiv.1807.02125

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(size=(50, 2))
    >>> y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(50)
    >>> with pm.Model() as model:
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3, shape=2), pm.HalfNormal("sigma", 1)
    ...     gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(2, ls=ell), rank=60)
    ...     start = sgp.subset_map(gp, X, y, sigma, random_seed=1, progressbar=False)
    ...     rank = gp.build(X, point=start)
    ...     _ = gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    >>> rank, gp.approx, gp.likelihood_path
    (60, 'FITC', 'full')
    >>> idata = pm.sample(initvals=start, model=model)  # doctest: +SKIP
    >>> pred = gp.predict_posterior(X, idata, model=model)  # doctest: +SKIP
    """

    knobs = "rank= (and grid=)"
    abilities = {
        "marginal_likelihood": "", "likelihood": "", "prior": "", "points": "rank=",
        "statistics": 'with a fixed kernel or basis="frozen"',
    }  # fmt: skip

    def __init__(
        self, *, mean_func=None, cov_func, approx=None, grid=None, rank=500, rotate=False,
        basis="free", reference=None, neighbors=30, block=16,
        pred_neighbors=None,
    ):  # fmt: skip
        check_choice("basis", basis, ("free", "frozen"))
        if reference is not None and basis == "free":
            raise ValueError('reference= is the point of a frozen basis: give basis="frozen" too')
        if not isinstance(rotate, bool | np.bool_):
            raise TypeError(f"rotate must be True or False, got {rotate!r}")
        check_count("rank", rank)
        self._terms = split_waves(cov_func)
        self.grid, self.max_rank, self.rotate, self.basis = grid, rank, bool(rotate), basis
        self.given_reference = reference
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, approx=approx, neighbors=neighbors, block=block,
            pred_neighbors=pred_neighbors,
        )  # fmt: skip
        if rotate and basis == "frozen":
            raise ValueError("rotate=True needs a kernel without free parameters, a frozen basis has some")
        self._rotated_rows: np.ndarray | None = None

    def check_approx(self, approx):
        """Raise ValueError for an unknown `approx`, or one that a rotated or frozen basis excludes."""
        if approx in WITH_RESIDUAL and approx not in self.approximations:
            kind = "rotate=True" if self.rotate else 'basis="frozen"'
            raise ValueError(f'{kind} works with approx="DTC" only, got {approx!r}')
        super().check_approx(approx)

    @property
    def approximations(self):
        """What `approx` may be: rotated and frozen features go with "DTC" alone."""
        return ("DTC",) if self.rotate or self.basis == "frozen" else WITH_RESIDUAL

    @property
    def default_approx(self):
        """The `approx` where none is given."""
        return "DTC" if self.approximations == ("DTC",) else "FITC"

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        rank = self.rank if self.is_built else self.max_rank
        own = {"grid": self.grid, "rank": rank, "rotate": self.rotate}
        return super().settings() | own | ({"basis": "frozen"} if self.basis == "frozen" else {})

    def check_addable(self):
        """Raise TypeError for a rotated basis, which belongs to one kernel."""
        if self.rotate:
            raise TypeError("GPs with rotate=True cannot be added: add the kernels, k1 + k2, instead")

    def build(self, X, point=None, progressbar: bool = True, *, statistics=None) -> int:
        """Fix grid, selection of eigenfunctions and rotation for training inputs X.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        point : dict, optional
            Hyperparameters at which the leading eigenfunctions are selected, such as
            :func:`~pymc_scalable_gp.subset_map` or ``pm.find_MAP`` returns; the model's initial point
            when left out. Give one when lengthscales may differ much from their prior.
        progressbar : bool
            Show the progress of a rotation over many rows.
        statistics : RowStatistics, optional
            With ``rotate=True`` and X a sample of more rows: what :meth:`summarize` made of all of them,
            after ``build(X)`` with the same X. The basis is made orthogonal on those rows.

        Returns
        -------
        int
            Number of features (with ``rotate=True`` the numerical rank on the rows): the length of
            ``weights``.

        Raises
        ------
        TypeError, ValueError
            For bad inputs or, with ``rotate=True``, a kernel with free parameters; for statistics of
            another basis, or without ``rotate=True``.
        """
        if statistics is not None and not self.rotate:
            raise TypeError("build takes statistics with rotate=True only")
        data = check_inputs(X)
        point = self.given_reference if point is None else point
        self._build(data, point=point)
        found = self.feature_map
        # Weights of a fixed kernel's features may make up for what they miss, as neighbours do.
        if not found.is_constant and self.approx not in KEEPS_ALL:
            found.missing.warn(found.rank)
        if self.basis == "frozen":
            self._map = FrozenMap(found, point, self.model_of())
        if self.rotate:
            self._rotate(data, statistics, progressbar)
        return self.rank

    def _fit(self, X, **options):
        """Eigenfunctions on the grid."""
        return fit_grief(self.cov_func, self._terms, self.grid, self.max_rank, X, **options)

    def _rotate(self, data, statistics, progressbar):
        """On the rows of X, or on those of the statistics."""
        if not self.feature_map.is_constant:
            raise ValueError(
                "rotate=True needs a kernel without free parameters: fix them, for instance at "
                "sgp.subset_map(...), or use rotate=False"
            )
        if statistics is not None:
            columns = basis_of(self, statistics).mark.columns
            triangle, self._rotated_rows = statistics.triangle[:, :columns], None
        else:
            function = RowFunction(self.feature_map.basis)
            triangle = triangle_of_rows(function, data.value, None, progressbar)
            self._rotated_rows = data.value.copy() if data.mutable else data.value
        self._map = self.feature_map.changed(rotation=Singular.of(triangle)[0])

    @property
    def frozen(self) -> FrozenMap | None:
        """The features of a frozen basis, once built."""
        return self._map if isinstance(self._map, FrozenMap) else None

    def recentre(self, X, idata) -> int:
        """Build a frozen basis again at the posterior mean of an earlier run.

        Parameters
        ----------
        X : array, shape (n, d)
            Training inputs, or a sample that spans their range.
        idata : DataTree
            What `pm.sample` returned.

        Returns
        -------
        int
            Number of features. Statistics of rows and likelihoods are then to be made again.

        Raises
        ------
        ValueError
            Without a frozen basis that is built.
        """
        if self.frozen is None:
            raise ValueError('recentre is for basis="frozen", after build(X): build(X, point) for others')
        with (model := self.model_of()):
            # A series has parameters that the basis does not: the model's others go along.
            point = model_mean(idata, model) | posterior_mean(idata, self.frozen.reference)
            return self.build(X, point=point)

    def marginal_likelihood(
        self, name, X=None, y=None, sigma=None, *, statistics=None, likelihood=None, weights=None,
        progressbar: bool = True, **kwargs,
    ):  # fmt: skip
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        Parameters
        ----------
        name, X, y, sigma, statistics, likelihood, progressbar, **kwargs
            As in the base class.
        weights : tensor, shape (rank,), optional
            Positive eigenfunction weights w; call :meth:`build` first to know their number.
        """
        keywords = self._likelihood_keywords(kwargs)
        if weights is not None:
            if self.basis == "frozen":
                raise ValueError(
                    'weights are for a fixed kernel: basis="frozen" is for one with free parameters'
                )
            if self.given_approx not in (None, "DTC"):
                raise ValueError(
                    f'weights work with approx="DTC" only, got {self.given_approx!r}: the weighted '
                    "features no longer approximate k(x, x), which the correction needs"
                )
            if X is not None:
                self.build_for(check_inputs(X))
            weights = check_weights(weights, self.rank)
        return self._likelihood_variable(
            name, X, y, sigma, statistics, progressbar, keywords, likelihood, weights
        )

    def make_likelihood(self, data, progressbar=True):
        """As the base class, or with ``rotate=True`` in the basis that is orthogonal on these rows."""
        if not self.rotate:
            return super().make_likelihood(data, progressbar)
        if not can_summarize(data):
            return FullRows(data)
        if not np.array_equal(self._rotated_rows, data.X.value):
            raise ValueError(
                "the rotated basis was built on other rows than X: call build(X) again with this X"
            )
        return summarize(data, data.feature_map.rotation, progressbar)

    def prior(self, name, X, *, weights=None, **kwargs):
        """Latent function values, as :meth:`FeatureLatent.prior`, with optional `weights` (rank,).

        Raises
        ------
        ValueError
            Also for a Periodic or Cosine kernel with a free period: the latent density would jump.
        """
        keywords = self._prior_keywords(kwargs)
        return self._latent(name, self._latent_inputs(X, keywords), keywords, weights=weights)

    def check_latent(self):
        """Raise ValueError for a Periodic or Cosine kernel with a free period."""
        check_periods(self.cov_func)


class AdditiveGriefGP(AdditiveMarginal, AdditiveLatent):
    """Sum of GPs of this class: a marginal likelihood, or a prior."""


GriefGP.sum_classes = (AdditiveGriefGP, AdditiveMarginal, AdditiveLatent)
AdditiveGriefGP.sum_classes = GriefGP.sum_classes


def weights_prior(name: str, rank: int, *, mode: float = 1.0, variance: float = 100.0, **kwargs):
    r"""Log-normal prior for eigenfunction weights with a given mode and variance (the paper's).

    Parameters
    ----------
    name : str
        Name of the random variable.
    rank : int
        Number of weights, as ``gp.build(X)`` returns it.
    mode, variance : float
        Mode and variance of each weight, both positive. The log-normal's ``s^2`` solves
        ``(exp(s^2) - 1) exp(3 s^2) = variance / mode^2`` and its location is ``log(mode) + s^2``.
    **kwargs
        Passed to `pm.LogNormal`, such as ``dims``.

    Returns
    -------
    TensorVariable, shape (rank,)

    Raises
    ------
    TypeError, ValueError
        If `mode` or `variance` is not a positive, finite number.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 30)[:, None]
    >>> gp = sgp.GriefGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.3), rank=10, rotate=True)
    >>> with pm.Model():
    ...     weights = sgp.weights_prior("w", gp.build(X))
    ...     _ = gp.marginal_likelihood(
    ...         "y", X=X, y=np.sin(6.0 * X[:, 0]), sigma=pm.HalfNormal("sigma", 1), weights=weights
    ...     )
    >>> gp.likelihood_path
    'rotated'
    """
    mode, variance = check_positive("mode", mode), check_positive("variance", variance)
    ratio = np.log(variance) - 2.0 * np.log(mode)
    log_s2 = brentq(lambda t: np.log(np.expm1(np.exp(t))) + 3.0 * np.exp(t) - ratio, -690.0, np.log(700.0))
    s2 = np.exp(log_s2)
    rank = check_count("rank", rank)
    return pm.LogNormal(name, np.log(mode) + s2, np.sqrt(s2), shape=rank, **kwargs)
