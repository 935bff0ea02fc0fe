"""CholQR: inducing points chosen among the data by swaps that lower the objective."""

import numpy as np

from pymc_scalable_gp.core.data.inputs import check_inputs, check_rows, check_sigma, check_target
from pymc_scalable_gp.core.features.nystrom import NystromMap, pivoted_rows
from pymc_scalable_gp.core.marginal import FeatureMarginal
from pymc_scalable_gp.core.observed import WITH_RESIDUAL
from pymc_scalable_gp.cov.objects import FromFunction
from pymc_scalable_gp.cov.queries import leaves, used_columns, warn_unused_columns
from pymc_scalable_gp.methods.cholqr.search import Hybrid, InducingSelection, Target, run
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.graphs import fixed_shared
from pymc_scalable_gp.utils.warn import warn

# Inducing points where no number is given.
DEFAULT_POINTS = 100


class CholQRMarginal(FeatureMarginal):
    r"""Gaussian process on inducing points chosen among the data (CholQR); any likelihood.

    .. math:: \tilde k(x, z) = k(x, X_I)\,k(X_I, X_I)^{-1}\,k(X_I, z)

    with rows I of the training inputs. :meth:`build` chooses them by the kernel alone, each the row of
    largest variance given those before. :meth:`select_inducing` finds better ones by swaps: one point is
    taken out, a cheap approximation ranks all rows by how much they would lower the objective, this gain is
    computed exactly for the first of them and for some random rows, and the best row replaces the point if
    the objective falls. The kernel may be any covariance, on numbers or, with
    :class:`~pymc_scalable_gp.cov.FromFunction`, :class:`~pymc_scalable_gp.cov.Spectrum` and others,
    on strings, sets, graphs and categories.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        Any kernel.
    approx : {"DTC", "FITC", "VFE", "VIF"}, optional
        As in `pm.gp.MarginalApprox`. Default "VFE", the bound of Titsias; the others choose points by
        the likelihood of DTC.
    n_inducing : int, optional
        Number of points m, below n. Default: 100, or one less than the number of rows where that is less.
    n_candidates : int
        Number z of information pivots, from which the rows are ranked.
    n_exact : int, optional
        Number c of rows whose gain is computed exactly, a quarter of them the first in the ranking and the
        rest random; the paper's choice is 1. Each costs a column of the kernel matrix. Default: 64, or 4
        with a :class:`~pymc_scalable_gp.cov.FromFunction`, whose columns are expensive.
    neighbors, block, pred_neighbors : int
        With "VIF", as in :class:`VecchiaMarginal`.

    Raises
    ------
    TypeError, ValueError
        For an option out of range, or `WhiteNoise` inside the kernel (give it as sigma).

    Notes
    -----
    ====================  ==================  =========================
    step                  time                memory
    ====================  ==================  =========================
    build, kernel alone   O(m^2 n)            one (m, n) array
    one swap              O((z + c) m n)      two (m, n) arrays, kept
    step on parameters    O(m^2 n)            three (n, m) arrays
    likelihood, gradient  O(m^2 n)            three (n, m) arrays
    prediction            O(n* m^2) per draw    O(block m + m^2)
    ====================  ==================  =========================

    Under "DTC", where only a scale of the kernel and sigma are free, the rows are summarised once and
    the likelihood costs O(m^3) whatever n.

    References
    ----------
    .. [1] Cao, Y., Brubaker, M., Fleet, D. and Hertzmann, A. (2013). Efficient Optimization for Sparse
       Gaussian Process Regression. https://doi.org/10.48550/arXiv.1310.6007

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> y = np.sin(6.0 * X[:, 0])
    >>> with pm.Model() as model:
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
    ...     gp = sgp.CholQRMarginal(cov_func=pm.gp.cov.Matern52(1, ls=ell), n_inducing=8)
    ...     chosen = gp.select_inducing(X, y, sigma, rounds=1, progressbar=False)
    ...     _ = gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
    >>> gp.rank, gp.approx, gp.likelihood_path
    (8, 'VFE', 'full')
    >>> idata = pm.sample(initvals=chosen.point, model=model)  # doctest: +SKIP
    """

    default_approx = "VFE"
    knobs = "n_inducing="
    abilities = {
        "marginal_likelihood": "", "likelihood": "", "export": "", "any kernel": "",
        "points": "n_inducing= and gp.build(X, indices=...)",
        "statistics": "with a kernel fixed but for its scale",
    }  # fmt: skip
    approximations = WITH_RESIDUAL

    def __init__(
        self, *, mean_func=None, cov_func, approx=None, n_inducing=None, n_candidates=16, n_exact=None,
        neighbors=30, block=16, pred_neighbors=None,
    ):  # fmt: skip
        self.n_inducing = None if n_inducing is None else check_count("n_inducing", n_inducing)
        self.n_candidates = check_count("n_candidates", n_candidates)
        if n_exact is None:
            n_exact = 4 if any(isinstance(leaf, FromFunction) for leaf in leaves(cov_func)) else 64
        self.n_exact = check_count("n_exact", n_exact)
        super().__init__(
            mean_func=mean_func, cov_func=cov_func, approx=approx, neighbors=neighbors, block=block,
            pred_neighbors=pred_neighbors,
        )  # fmt: skip

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        return super().settings() | {"n_inducing": self.rank if self.is_built else self.n_inducing}

    @property
    def indices(self) -> np.ndarray:
        """Rows of the training inputs that are the inducing points."""
        return self.feature_map.indices

    def build(self, X, indices=None, random_seed=0, point=None) -> int:
        """Take rows of X as inducing points, without a search and without y.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
            Its present values: the points stay when pm.Data are replaced later.
        indices : integer array, shape (m,), optional
            The rows. When left out they are chosen one after the other, each with the largest variance
            given those before, O(n m^2), among at most 65 536 random rows.
        random_seed : int, optional
            Seed of the choice among rows of the same variance.
        point : dict, optional
            Hyperparameters for that choice; the model's initial point for those left out. The
            lengthscale decides how close together the points are.

        Returns
        -------
        int
            Number of points.

        Raises
        ------
        TypeError, ValueError
            For bad inputs, rows out of range or given twice, n_inducing not below n, a kernel that is
            not positive semidefinite, or, outside the model context, random hyperparameters.

        Warns
        -----
        UserWarning
            If fewer than n_inducing rows are independent up to rounding: those are taken.
        """
        return self._build(check_inputs(X), indices=indices, random_seed=random_seed, point=point)

    def _fit(self, X, indices=None, random_seed=0, point=None) -> NystromMap:
        """Take rows of X (n, d) as points: the given ones, or those that the kernel alone suggests."""
        used_columns(self.cov_func, X.shape[1])
        warn_unused_columns(self.cov_func, X.shape[1])
        if indices is not None:
            chosen = check_rows(indices, len(X), "indices")
        else:
            count = self._count(len(X))
            chosen = pivoted_rows(self.cov_func, X, count, random_seed, point)
            if len(chosen) < count:
                warn(
                    f"only {len(chosen)} of {count} inducing points are independent at these "
                    "hyperparameters (duplicates, or a smooth kernel): going on with those. A shorter "
                    "lengthscale in point={...}, or select_inducing, may use more"
                )
        found = NystromMap(self.cov_func, fixed_shared(X[chosen]), X.min(axis=0), X.max(axis=0))
        return found.changed(indices=chosen)

    def _start_rows(self, X, start, random_seed) -> np.ndarray:
        """Rows for a search to start from: `start` (m,), or random distinct ones."""
        used_columns(self.cov_func, X.shape[1])
        count = self._count(len(X))
        if start is None:
            order = np.random.default_rng(random_seed).permutation(len(X))
            distinct = np.sort(np.unique(X[order], axis=0, return_index=True)[1])
            return order[distinct[:count]]
        rows = check_rows(start, len(X), "start")
        if len(rows) != count:
            raise ValueError(
                f"start has {len(rows)} rows, but n_inducing={count}: give {count} rows, or "
                f"n_inducing={len(rows)} to the class"
            )
        return rows

    def _count(self, n: int) -> int:
        """Number of points among n rows; ValueError where the one given is not below n."""
        if self.n_inducing is None:
            return max(min(DEFAULT_POINTS, n - 1), 1)
        if self.n_inducing >= n:
            raise ValueError(
                f"n_inducing={self.n_inducing} must be below the number of rows, {n}: take fewer, or "
                "sgp.ExactMarginal, which is exact"
            )
        return self.n_inducing

    def select_inducing(
        self, X, y, sigma, *, start=None, point=None, rounds=20, swaps=60, steps=15,
        tolerance=1e-4, max_seconds=None, progressbar=True, random_seed=0, model=None,
    ) -> InducingSelection:  # fmt: skip
        """Choose the inducing points together with the hyperparameters.

        Parameters
        ----------
        X : array, shape (n, d)
            Training inputs.
        y : array, shape (n,)
            Targets.
        sigma : float or random variable
            Noise standard deviation, a scalar.
        start : integer array, shape (m,), optional
            Rows to start from, n_inducing of them, such as an earlier result's. When left out: the
            hyperparameters are fitted with random rows as points, and the points then chosen one after
            the other.
        point : dict, optional
            Hyperparameters to start from; the model's initial point for those left out.
        rounds : int
            Most rounds of swaps and steps on the hyperparameters.
        swaps : int
            Swaps tried in a round, at most one per point.
        steps : int
            L-BFGS iterations in a round, on the objective with the log prior; 0 keeps the hyperparameters.
        tolerance : float
            A round that lowers the objective by less than this much per row is the last.
        max_seconds : float, optional
            No round begins later than this.
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
            For bad inputs, n_inducing not below n, another number of rows in `start`, one sigma per row,
            a sum of GPs, a start where the objective is not finite, or a kernel that turns out not to
            be positive semidefinite.

        Warns
        -----
        UserWarning
            If fewer than n_inducing rows are independent up to rounding, when rows of `start` had to be
            replaced, or when interrupted by Ctrl-C, which returns the points chosen so far.

        Notes
        -----
        The objective never rises.
        """
        data = check_inputs(X)
        inputs = data.value
        target_y = check_target(y, len(inputs), X).value
        noise_sd = check_sigma(sigma, len(inputs), X, y)
        if noise_sd.ndim:
            raise ValueError(
                "select_inducing needs a scalar sigma, got one value per row: gp.build(X) chooses "
                "points by the kernel alone"
            )
        for name, value, least in (("rounds", rounds, 1), ("swaps", swaps, 1), ("steps", steps, 0)):
            check_count(name, value, least)
        rows = self._start_rows(inputs, start, random_seed)
        target = Target(self, inputs, target_y, noise_sd, model)
        rng = np.random.default_rng(random_seed)
        hybrid = Hybrid(target, self.approx == "VFE", self.n_candidates, rng, self.n_exact)
        hybrid.begin(target.hyper.start(point), rows, start is not None)
        history, proposed, accepted = run(
            hybrid, rounds, swaps, steps, tolerance, max_seconds, progressbar, start is None
        )
        if len(hybrid.pivots) < len(rows):
            warn(
                f"only {len(hybrid.pivots)} of {len(rows)} inducing points are independent "
                "(duplicates, or a smooth kernel): going on with those"
            )
        found = target.hyper.untransformed(hybrid.theta)
        self._build(data, indices=hybrid.pivots, point=found)
        return InducingSelection(hybrid.pivots, found, history, proposed, accepted)

    def _build_unasked(self, X) -> None:
        """Warn that the points were chosen by the kernel alone."""
        super()._build_unasked(X)
        warn(
            "points were chosen by the kernel alone: call gp.select_inducing(...) to choose them with "
            "y, or gp.build(X, point=...) at the hyperparameters you expect"
        )
