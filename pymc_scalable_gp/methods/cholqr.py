"""CholQR: inducing points chosen among the data by swaps that lower the objective."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_scalable_gp.cov import leaves, refuse_white_noise, split_scale, used_columns
from pymc_scalable_gp.discrete import FromFunction
from pymc_scalable_gp.features import FeatureMap
from pymc_scalable_gp.marginal import FeatureMarginal
from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS
from pymc_scalable_gp.point import is_random
from pymc_scalable_gp.selection import Hybrid, InducingSelection, Target, run
from pymc_scalable_gp.validate import (
    check_choice,
    check_count,
    check_inputs,
    check_sigma,
    check_target,
)

# Added to the diagonal of K[I, I], as a share of its mean.
JITTER = 1e-8


class CholQRMap(FeatureMap):
    """``phi(x) = L^{-1} k(X_I, x)`` with ``L L' = k(X_I, X_I)``, for rows I of the training inputs."""

    def __init__(self, cov_func, count):
        self.cov_func, self.count = cov_func, count
        self.indices: np.ndarray | None = None
        scale, kernels = split_scale(cov_func)
        self.scale = pt.as_tensor_variable(scale).astype("float64")
        self.shape = cov_func if len(kernels) != 1 or self.scale.ndim else kernels[0]
        if self.shape is cov_func:
            self.scale = pt.constant(1.0)

    @property
    def is_fitted(self):
        """Whether the points are known."""
        return self.indices is not None

    @property
    def rank(self):
        """Number of points."""
        if self.indices is None:
            raise AttributeError(
                "the rank is known once the points are: call select_inducing or build first"
            )
        return len(self.indices)

    def fit_to(self, X, indices=None, random_seed=0):
        """Take rows of X (n, d) as points: the given ones, or random distinct ones."""
        n = X.shape[0]
        used_columns(self.cov_func, X.shape[1])
        if indices is None:
            if self.count >= n:
                raise ValueError(
                    f"n_inducing={self.count} must be below the number of rows, {n}: take fewer, or "
                    "pm.gp.Marginal, which is exact"
                )
            rng = np.random.default_rng(random_seed)
            order = rng.permutation(n)
            distinct = np.sort(np.unique(X[order], axis=0, return_index=True)[1])
            indices = order[distinct[: self.count]]
        self.indices = check_indices(indices, n)
        self.points = pt.constant(X[self.indices])

    def features_from(self, X, points):
        """Features (n, m) of the whole kernel for any points (m, d)."""
        return _nystrom(self.cov_func, X, points)

    def basis(self, X):
        """Features of the kernel without its scale."""
        return pt.specify_shape(_nystrom(self.shape, X, self.points), (None, self.rank))

    def constant_basis(self, X):
        """The same, where nothing but the scale is free."""
        return None if is_random(self.shape(self.points)) else self.basis(X)

    def mixing(self):
        """The root of the scale, as a matrix."""
        return pt.sqrt(self.scale) * pt.eye(self.rank)

    def features(self, X):
        """Features (n, m)."""
        return pt.sqrt(self.scale) * self.basis(X)

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return self.cov_func(X, diag=True).astype("float64")

    def outside(self, X):
        """Nothing to warn of: the features use the exact kernel everywhere."""
        return None


def _nystrom(cov_func, X, points):
    K = cov_func(points).astype("float64")
    jitter = JITTER * pt.diag(K).mean()
    L = cholesky(K + jitter * pt.eye(K.shape[0]), lower=True, on_error="nan")
    return solve_triangular(L, cov_func(X, points).astype("float64").T, lower=True).T


def check_indices(indices, n) -> np.ndarray:
    """Distinct rows out of n.

    Raises
    ------
    TypeError, ValueError
        For indices that are not whole numbers, out of range, or given twice.
    """
    rows = np.asarray(indices)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise TypeError(
            f"indices must be integer rows of X, shape (m,), got {rows.dtype} of shape {rows.shape}"
        )
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"indices name row {rows.max()}, but X has {n} rows")
    if len(np.unique(rows)) < len(rows):
        raise ValueError("indices name a row more than once")
    return rows.astype(int)


class CholQRMarginal(FeatureMarginal):
    r"""Gaussian process on inducing points chosen among the data (CholQR); Gaussian noise.

    .. math:: \tilde k(x, z) = k(x, X_I)\,k(X_I, X_I)^{-1}\,k(X_I, z)

    with rows I of the training inputs that :meth:`select_inducing` finds by swaps: one point is taken
    out, all rows are ranked by the fall of the objective that a cheap approximation promises, the fall
    itself is computed for the first of them and for some random rows, and the best comes in if it beats
    the point that was there. The kernel may be any covariance, on numbers or, with
    :class:`sgp.cov.FromFunction`, :class:`sgp.cov.Spectrum` and others, on strings, sets, graphs and
    categories.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel.
    approx : {"DTC", "FITC", "VFE"}, optional
        As in `pm.gp.MarginalApprox`. Default "VFE", the bound of Titsias; the others choose points by
        the likelihood of DTC.
    n_inducing : int
        Number of points m, below n.
    n_candidates : int
        Number z of information pivots behind the ranking of the rows.
    n_exact : int, optional
        Number c of rows, a quarter of them first in the ranking and the rest random, whose gain is
        computed before the best is taken; 1 is the paper's choice. Each costs a column of the kernel's
        matrix. Default: 64, or 4 with a :class:`sgp.cov.FromFunction`, whose columns are dear.

    Raises
    ------
    TypeError, ValueError
        For an option out of range, or `WhiteNoise` inside the kernel (give it as sigma).

    Notes
    -----
    ====================  ==================  =========================
    step                  time                memory
    ====================  ==================  =========================
    one swap              O((z + c) m n)      two (m, n) arrays, kept
    step on parameters    O(m^2 n)            three (n, m) arrays
    likelihood, gradient  O(m^2 n)            three (n, m) arrays
    prediction            O(n* m^2) a draw    O(block m + m^2)
    ====================  ==================  =========================

    Under "DTC", where only a scale of the kernel and sigma are free, the rows are summarised once and
    the likelihood costs O(m^3) whatever n.

    Examples
    --------
    .. code-block:: python

        with pm.Model() as model:
            ell, eta = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("eta", 1)
            sigma = pm.HalfNormal("sigma", 1)
            gp = sgp.CholQRMarginal(cov_func=eta**2 * pm.gp.cov.Matern52(d, ls=ell), n_inducing=200)
            chosen = gp.select_inducing(X, y, sigma)
            gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
            idata = pm.sample(initvals=chosen.point)

    References
    ----------
    .. [1] Cao, Y., Brubaker, M., Fleet, D. and Hertzmann, A. (2013). Efficient Optimization for Sparse
       Gaussian Process Regression. https://doi.org/10.48550/arXiv.1310.6007
    """

    _map: CholQRMap

    def __init__(
        self,
        *,
        mean_func=None,
        cov_func,
        approx=None,
        n_inducing=100,
        n_candidates=16,
        n_exact=None,
    ):
        if not isinstance(cov_func, BaseCovariance):
            raise TypeError(f"cov_func must be a pm.gp.cov kernel, got {type(cov_func).__name__}")
        refuse_white_noise(cov_func)
        approx = "VFE" if approx is None else approx
        check_choice("approx", approx, APPROXIMATIONS)
        count = check_count("n_inducing", n_inducing)
        self.n_candidates = check_count("n_candidates", n_candidates)
        dear = any(isinstance(leaf, FromFunction) for leaf in leaves(cov_func))
        self.n_exact = check_count("n_exact", (4 if dear else 64) if n_exact is None else n_exact)
        super().__init__(CholQRMap(cov_func, count), mean_func=mean_func, cov_func=cov_func)
        self.approx = approx

    @property
    def indices(self) -> np.ndarray:
        """Rows of the training inputs that are the inducing points."""
        if not self._map.is_fitted:
            raise AttributeError("the points are known after select_inducing or build")
        return self._map.indices

    def build(self, X, indices=None, random_seed=0) -> int:
        """Take rows of X as inducing points without a search.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        indices : integer array, shape (m,), optional
            The rows; random distinct ones when left out.
        random_seed : int, optional
            Seed of the random choice.

        Returns
        -------
        int
            Number of points.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, rows out of range or given twice, or n_inducing not below n.
        """
        self._map.fit_to(check_inputs(X).value, indices, random_seed)
        return self.rank

    def select_inducing(
        self, X, y, sigma, *, start=None, point=None, rounds=20, swaps=60, steps=15,
        tolerance=1e-4, max_seconds=None, progressbar=True, random_seed=0, model=None,
    ) -> InducingSelection:  # fmt: skip
        """Choose the inducing points, and the hyperparameters with them.

        Parameters
        ----------
        X : array, shape (n, d)
            Training inputs.
        y : array, shape (n,)
            Targets.
        sigma : float or random variable
            Noise standard deviation, a scalar.
        start : integer array, shape (m,), optional
            Rows to start from, such as an earlier result's. When left out: the hyperparameters are
            fitted to random rows, and the points then chosen one after the other.
        point : dict, optional
            Hyperparameters to start from; the model's initial point for those left out.
        rounds : int
            Most rounds of swaps and steps on the hyperparameters.
        swaps : int
            Swaps tried in a round, at most one a point.
        steps : int
            L-BFGS iterations in a round; 0 keeps the hyperparameters. Their priors count.
        tolerance : float
            A round that lowers the objective by less than this much a row is the last.
        max_seconds : float, optional
            No round begins after so long.
        progressbar : bool
            Show progress over the rounds.
        random_seed : int, optional
            Seed of the start, of the order of the swaps and of the information pivots.
        model : pm.Model, optional
            Needed outside the model context, unless all hyperparameters are numbers.

        Returns
        -------
        InducingSelection
            Also kept in this GP: :meth:`marginal_likelihood` uses it.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, n_inducing not below n, one sigma a row, or a kernel that turns out not to
            be positive semidefinite.

        Notes
        -----
        The objective never rises. Ctrl-C returns what has been chosen so far, with a warning.
        """
        if model is None:
            model = pm.Model.get_context(error_if_none=False)
        inputs = check_inputs(X).value
        target_y = check_target(y, len(inputs)).value
        noise_sd = check_sigma(sigma, len(inputs))
        if noise_sd.ndim:
            raise ValueError("select_inducing needs a scalar sigma, got one value a row")
        for name, value, least in (("rounds", rounds, 1), ("swaps", swaps, 1), ("steps", steps, 0)):
            check_count(name, value, least)
        self._map.fit_to(inputs, start, random_seed)
        target = Target(self, inputs, target_y, noise_sd, model)
        rng = np.random.default_rng(random_seed)
        hybrid = Hybrid(target, self.approx == "VFE", self.n_candidates, rng, self.n_exact)
        hybrid.begin(target.starting_at(point), self._map.indices, start is not None)
        history, proposed, accepted = run(
            hybrid, rounds, swaps, steps, tolerance, max_seconds, progressbar, start is None
        )
        self._map.fit_to(inputs, hybrid.pivots)
        found = target.untransformed(hybrid.theta)
        return InducingSelection(hybrid.pivots, found, history, proposed, accepted)

    def marginal_likelihood(self, name, X, y, sigma, *, progressbar=True, **kwargs):
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        The points are those of :meth:`select_inducing` or :meth:`build`; without either, they are
        searched for here, with a scalar sigma, from the model's initial point.
        """
        if not self._map.is_fitted and isinstance(self._map, CholQRMap):
            data = check_inputs(X)
            target_y = check_target(y, data.value.shape[0])
            noise_sd = check_sigma(sigma, data.value.shape[0])
            if noise_sd.ndim:
                self.build(X)
            else:
                self.select_inducing(data.value, target_y.value, sigma, progressbar=progressbar)
        return super().marginal_likelihood(name, X, y, sigma, progressbar=progressbar, **kwargs)
