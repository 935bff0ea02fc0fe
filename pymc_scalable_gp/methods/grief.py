"""GP-GRIEF: grid-structured eigenfunctions of product kernels."""

import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from scipy.optimize import brentq

from pymc_scalable_gp.cov import product_terms
from pymc_scalable_gp.eigenfunctions import TermGrid
from pymc_scalable_gp.features import FeatureMap
from pymc_scalable_gp.grid import check_grid, count_cells, grid_nodes, node_masses, share_rank
from pymc_scalable_gp.latent import FeatureLatent
from pymc_scalable_gp.marginal import FeatureMarginal
from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS
from pymc_scalable_gp.point import evaluate, is_random
from pymc_scalable_gp.posterior import RotatedRows
from pymc_scalable_gp.rows import Singular, compile_features, singular_factor
from pymc_scalable_gp.validate import check_choice, check_count, check_inputs, check_weights

# New inputs this share of the grid's width beyond it are still covered; further out we warn.
OUTSIDE_SHARE = 0.05
# Rows, evenly spaced through X, on which eigenfunctions are compared when they are selected.
PROBE_ROWS = 2048


class GriefMap(FeatureMap):
    """Leading eigenfunctions of a (sum of) product kernel(s) on a Cartesian grid."""

    def __init__(self, cov_func, grid=10, rank=500):
        self.cov_func = cov_func
        self.terms = product_terms(cov_func)
        self.grid = grid
        self.max_rank = rank
        self.grids: list[TermGrid] | None = None
        self.singular: Singular | None = None

    @property
    def is_fitted(self):
        """Whether the grid is fixed."""
        return self.grids is not None

    @property
    def rank(self):
        """Number of eigenfunctions."""
        if self.grids is None:
            raise AttributeError("the rank is known once the grid is: call build(X) first")
        if self.singular is not None:
            return len(self.singular.values)
        return sum(grid.rank for grid in self.grids)

    def fit_to(self, X, point=None):
        """Place the grid over X (n, d), share the rank, and select at the hyperparameters `point`."""
        sizes = check_grid(self.grid, X.shape[1])
        n = X.shape[0]
        probe = X[np.unique(np.linspace(0, n - 1, min(n, PROBE_ROWS)).astype(int))]
        grids = []
        for term in self.terms:
            if max(term.dims, default=0) >= X.shape[1]:
                raise ValueError(
                    f"the kernel uses column {max(term.dims)}, but X has {X.shape[1]} columns"
                )
            columns = [grid_nodes(X[:, dim], sizes[dim]) for dim in term.dims]
            m = max((c.size for c in columns), default=1)
            nodes, masses = np.zeros((len(columns), m)), np.zeros((len(columns), m))
            for i, (column, dim) in enumerate(zip(columns, term.dims, strict=True)):
                nodes[i] = np.pad(column, (0, m - column.size), mode="edge")
                masses[i, : column.size] = node_masses(probe[:, dim], column)
            grids.append(TermGrid(term, nodes, masses, 0))
        cells = [count_cells(grid.masses > 0) for grid in grids]
        if self.max_rank > sum(cells):
            warnings.warn(
                f"rank={self.max_rank} exceeds the {sum(cells)} cells of the grid: using rank "
                f"{sum(cells)}. For a closer approximation give a finer grid=",
                UserWarning,
                stacklevel=4,
            )
        shares = share_rank(self.max_rank, cells)
        for grid, rank in zip(grids, shares, strict=True):
            grid.rank = rank
            if grid.term.dims:
                factors = grid.factors(pt.constant(probe))
                grid.select(evaluate([factors], point)[0], fixed=not is_random(factors))
        self.grids = grids

    def features(self, X):
        """Feature matrix (n, r) at inputs (n, d)."""
        phi = self.plain_features(X)
        return phi if self.singular is None else phi @ self.singular.vectors

    def plain_features(self, X):
        """Eigenfunctions (n, r) before any rotation."""
        parts = [grid.features(X) for grid in self.grids]
        return parts[0] if len(parts) == 1 else pt.concatenate(parts, axis=1)

    @property
    def is_constant(self):
        """Whether the features are one fixed function, without parameters or shared values."""
        seen = ancestors([grid.eigen()[1] for grid in self.grids if grid.term.dims])
        scales = [grid.term.scale for grid in self.grids]
        shared = any(isinstance(v, SharedVariable) for v in (*seen, *ancestors(scales)))
        return not shared and not is_random(*seen, *scales)

    def constant_basis(self, X):
        """The eigenfunctions, where kernel and grid are fixed."""
        return self.plain_features(X) if self.is_constant else None

    def rotate(self, X, progressbar=True):
        """Turn the features into a basis that is orthogonal on the rows of X."""
        self.singular = None
        phi = compile_features(self.plain_features)
        self.singular = singular_factor(phi, X, self.rank, progressbar)

    def kernel_diag(self, X):
        """``k(x_i, x_i)``."""
        return self.cov_func(X, diag=True).astype("float64")

    def outside(self, X):
        """Say how far X lies beyond the grid."""
        found = {}
        for grid in self.grids:
            for nodes, dim in zip(grid.nodes, grid.term.dims, strict=True):
                low, high = nodes.min(), nodes.max()
                beyond = max(low - X[:, dim].min(), X[:, dim].max() - high)
                if beyond > OUTSIDE_SHARE * (high - low) + 1e-9 * abs(high):
                    share = f", {beyond / (high - low):.0%} of its width" if high > low else ""
                    found[dim] = f"column {dim} reaches {beyond:.3g} beyond the grid{share}"
        return "; ".join(found.values()) + " (a wider grid covers it)" if found else None


class GriefGP(FeatureMarginal, FeatureLatent):
    r"""Gaussian process on grid-structured eigenfunctions (GP-GRIEF), for 1 to 100 inputs.

    A product kernel ``k(x, z) = prod_i k_i(x_i, z_i)`` is replaced by r eigenfunctions computed from
    a Cartesian grid of ``m^d`` points that is never formed:

    .. math::

        \tilde k(x, z) = \sum_{j=1}^r w_j\,\phi_j(x)\phi_j(z), \qquad
        \phi_j(x) = \prod_{i=1}^d
            \frac{k_i(x_i, U_i)\,V_i^{1/2} q_{i, I_{ji}}}{\sqrt{\lambda_{i, I_{ji}}}}

    with ``V_i^1/2 k_i(U_i, U_i) V_i^1/2 = Q_i diag(lambda_i) Q_i'`` in each dimension, ``V_i`` the
    share of the data near each node, and ``I`` (r x d) the multi-indices of the r products that
    carry most variance on the data, dimension by dimension.

    * *Type II* (default): the kernel's parameters are free, ``w = 1``. O(n r^2) an evaluation.
    * *Type I*: the kernel is fixed and the weights ``w`` are free. O(r^3) an evaluation whatever n,
      or O(r) with ``rotate=True``, which makes the basis orthogonal on the training rows.

    Parameters
    ----------
    mean_func : pm.gp.mean.Mean, optional
        Mean function; zero when left out.
    cov_func : pm.gp.cov.Covariance
        A product of 1-D kernels: ExpQuad with one or d lengthscales, 1-D kernels on different
        columns multiplied together, :func:`sgp.cov.Product`, scalings, and sums of these.
    approx : {"DTC", "FITC", "VFE"}, optional
        Treatment of the prior variance that r features miss, as in `pm.gp.MarginalApprox`.
        Default: "FITC", and "DTC" (the only choice) with weights or ``rotate=True``.
    grid : int, sequence of int, or list of 1-D arrays
        Nodes in each dimension, half way between even spacing and the column's quantiles; a column
        with fewer distinct values uses those. Choose a spacing below the lengthscale where the data
        are; more nodes cost little.
    rank : int
        Number of eigenfunctions r, at most; of a sum of kernels each term gets an equal part. Raise
        it until the posterior stops moving, or :meth:`diagnostics` shows little missing variance.
    rotate : bool
        Use the orthogonal basis (needs a kernel without free parameters).

    Raises
    ------
    ValueError
        For a kernel that is not a product over dimensions, or bad options.

    Notes
    -----
    ====================  =============================  ==========================
    step                  time                           memory
    ====================  =============================  ==========================
    build                 O(d m^3 + d r log r)           O(r d)
    build, rotate         O(n r^2) once                  O(block r + r^2)
    type II gradient      O(n r^2)                       two (n, r) arrays
    type I gradient       O(r^3), rotated O(r)           O(r^2), rotated O(r)
    prediction            O(n* r^2), rotated O(n* r)     O(block r + r^2)
    ====================  =============================  ==========================

    The selection ``I`` is made once, by :meth:`build`, at given hyperparameters, so that the
    likelihood is smooth. Hand-written gradients serve PyTensor, numpyro and blackjax alike; under
    JAX only reverse mode is available.

    Examples
    --------
    .. code-block:: python

        with pm.Model() as model:
            ell = pm.InverseGamma("ell", 3, 3, shape=d)
            eta = pm.HalfNormal("eta", 1)
            sigma = pm.HalfNormal("sigma", 1)
            gp = sgp.GriefGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(d, ls=ell), rank=500)
            start = sgp.subset_map(gp, X, y, sigma)
            gp.build(X, point=start)
            gp.marginal_likelihood("y", X=X, y=y, sigma=sigma)
            idata = pm.sample(initvals=start)
        pred = gp.predict_posterior(Xnew, idata, model=model)

    References
    ----------
    .. [1] Evans, T. W. and Nair, P. B. (2018). Scalable Gaussian Processes with Grid-Structured
       Eigenfunctions (GP-GRIEF). ICML. https://doi.org/10.48550/arXiv.1807.02125
    """

    def __init__(self, *, mean_func=None, cov_func, approx=None, grid=10, rank=500, rotate=False):
        if approx is not None:
            check_choice("approx", approx, APPROXIMATIONS)
        if not isinstance(rotate, bool | np.bool_):
            raise TypeError(f"rotate must be True or False, got {rotate!r}")
        if rotate and approx not in (None, "DTC"):
            raise ValueError(f'rotate=True works with approx="DTC" only, got {approx!r}')
        if not isinstance(cov_func, BaseCovariance):
            raise TypeError(f"cov_func must be a pm.gp.cov kernel, got {type(cov_func).__name__}")
        feature_map = GriefMap(cov_func, grid, check_count("rank", rank))
        super().__init__(feature_map, mean_func=mean_func, cov_func=cov_func)
        self.approx, self.rotate = approx, bool(rotate)

    def __add__(self, other):
        """Sum of two independent GPs; not with a rotated basis, which belongs to one kernel."""
        if self.rotate or getattr(other, "rotate", False):
            raise TypeError(
                "GPs with rotate=True cannot be added: add the kernels, k1 + k2, instead"
            )
        return super().__add__(other)

    def build(self, X, point=None, progressbar: bool = True) -> int:
        """Fix grid, selection of eigenfunctions and rotation for training inputs X.

        Parameters
        ----------
        X : array, shape (n, d), or pm.Data
        point : dict, optional
            Values of the hyperparameters at which the leading eigenfunctions are selected, such as
            :func:`sgp.subset_map` or ``pm.find_MAP`` returns; the model's initial point when left
            out. Give one when lengthscales may differ much from their prior.
        progressbar : bool
            Show the progress of a rotation over many rows.

        Returns
        -------
        int
            Number of features (with ``rotate=True`` the numerical rank on the rows of X): the
            length of ``weights``.
        """
        data = check_inputs(X)
        self._map.fit_to(data.value, point)
        if self.rotate:
            if not self._map.is_constant:
                raise ValueError(
                    "rotate=True needs a kernel without free parameters: fix them, for instance at "
                    "sgp.subset_map(...), or use rotate=False"
                )
            self._map.rotate(data.value, progressbar)
            self._built_on = data.value.copy() if data.mutable else data.value
        return self.rank

    def marginal_likelihood(
        self, name, X, y, sigma, *, weights=None, progressbar: bool = True, **kwargs
    ):
        """Observed random variable, as :meth:`FeatureMarginal.marginal_likelihood`.

        Parameters
        ----------
        name, X, y, sigma, progressbar, **kwargs
            As in the base class.
        weights : tensor, shape (rank,), optional
            Positive eigenfunction weights w; call :meth:`build` first to know their number.

        Notes
        -----
        With a kernel without free parameters, a scalar sigma and a fixed mean, the rows are
        summarised once and an evaluation costs O(r^3), or O(r) with ``rotate=True``, whatever n;
        :attr:`likelihood_path` tells.
        """
        fit = self._marginal_fit(name, X, y, sigma)
        typed = self.rotate or weights is not None
        if weights is not None and self.approx not in (None, "DTC"):
            raise ValueError(
                f'weights work with approx="DTC" only, got {self.approx!r}: the weighted features '
                "no longer approximate k(x, x), which the correction needs"
            )
        approx = self.approx or ("DTC" if typed else "FITC")
        fit = replace(fit, weights=check_weights(weights, self.rank), approx=approx)
        return self._observe(name, fit, progressbar, **kwargs)

    def prior(self, name, X, *, weights=None, **kwargs):
        """Latent function values, as :meth:`FeatureLatent.prior`, with optional `weights` (rank,)."""
        if not self._map.is_fitted:
            self.build(X)
        return self._prior(name, X, check_weights(weights, self.rank), **kwargs)

    def _singular(self, basis, X, progressbar):
        if not self.rotate:
            return super()._singular(basis, X, progressbar)
        if not np.array_equal(self._built_on, X):
            raise ValueError(
                "the rotated basis was built on other rows than X: call build(X) again with this X"
            )
        return self._map.singular, RotatedRows


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
    ValueError
        If `mode` or `variance` is not positive.
    """
    if not (mode > 0 and variance > 0):
        raise ValueError(f"mode and variance must be positive, got {mode} and {variance}")
    ratio = np.log(variance) - 2.0 * np.log(mode)
    s2 = brentq(lambda s: np.log(np.expm1(s)) + 3.0 * s - ratio, 1e-12, 700.0)
    rank = check_count("rank", rank)
    return pm.LogNormal(name, np.log(mode) + s2, np.sqrt(s2), shape=rank, **kwargs)
