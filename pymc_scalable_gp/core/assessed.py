"""What tells whether a marginal GP is to be believed: the exact one beside it, and rows left out."""

import xarray as xr

from pymc_scalable_gp.core.checking.check import check_gp
from pymc_scalable_gp.core.checking.loo import elpd, left_out, pit
from pymc_scalable_gp.core.checking.verdict import Check
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.utils.checks import check_count


class CheckedGP(FeatureGP):
    """A GP that can be compared with the exact one."""

    def check(
        self, idata_or_point=None, X=None, *, rows: int = 400, neighbors: int | None = 60,
        num_samples: int | None = 40, progressbar: bool = True, random_seed=0, model=None,
    ) -> Check:  # fmt: skip
        r"""How far the approximation is from the exact Gaussian process, and what to do about it.

        Some rows, one from each of as many cells with nearly equal numbers of rows, get the exact
        likelihood beside this one, which keeps its features, order and settings, and both predict other
        rows. All rows get this likelihood beside one with 200 inducing points and many neighbours. Log
        densities are compared at one point or over posterior draws, whose weights
        :math:`\exp(\log p_\text{better} - \log p)` tell what the difference does to the posterior.

        Parameters
        ----------
        idata_or_point : DataTree or dict, optional
            Posterior draws, or a point such as ``pm.find_MAP`` returns; the model's initial point when
            left out.
        X : array, shape (n, d), optional
            Inputs at which only the features are looked at, with or without a likelihood.
        rows : int
            Rows of the subsample; half as many others are predicted, or the same where there are none.
        neighbors : int or None
            Neighbours of the better likelihood of all rows, at least twice this one's; None leaves it out.
        num_samples : int or None
            Number of draws, taken at random; None for all.
        progressbar : bool
        random_seed : int, optional
            Of rows and draws.
        model : pm.Model, optional
            Needed outside the model context.

        Returns
        -------
        xarray.Dataset
            Prints as a verdict with a remedy; :func:`plot_check` draws it.

            - over ``obs``, the row numbers: ``missing``, the share
              :math:`1 - \|\phi(x)\|^2 / k(x, x)` of prior variance that the features miss;
              ``mean_shift``, of the predictive mean in predictive sds; ``sd_ratio``, of the predictive sds
              (1: no difference);
            - over ``sample``: ``logp_exact`` and ``logp_approx``, of the subsample; ``logp_neighbors`` and
              ``logp_all``, of all rows;
            - over ``hyperparameter``, with 25 draws or more: ``moved`` and ``sd_change``, what weights
              towards the exact posterior (PSIS) do to the mean, in sds, and to the sd; ``moved_all`` and
              ``sd_change_all`` towards that with more neighbours.

            Attributes: ``gap`` and ``lost``, mean and sd over the draws of the log densities'
            difference, and ``k_hat`` of the weights (``gap_all``, ``lost_all``, ``k_hat_all``: of all
            rows); ``rank``; ``missing_mean``; ``noise_inflation``, the variance that features miss as a
            share of the noise's; ``rank_needed``, how many of the best features leave less than 5% of the
            noise variance, by the eigenvalues of the subsample (infinite: more than half of `rows`);
            ``condition`` number of the targets' covariance; ``holds_residual``, whether
            neighbours (or all rows) keep what features miss; ``verdict``. Some kinds of likelihood add
            figures, each at the worst of the draws: ``residual`` of conjugate gradients,
            ``steps_needed`` to .01, ``logdet_se`` and ``logdet_excess`` of the log determinant (KMCG,
            SKIP by products); at the draws' mean ``neighbors_moved``, the share of neighbours that those
            hyperparameters would replace.

        Raises
        ------
        TypeError, ValueError
            Without a likelihood, a prior or X, for statistics without X, and for draws without the needed
            variables.

        See Also
        --------
        loo : How well rows that are left out are predicted, under Gaussian noise.
        pymc_scalable_gp.plot_check : A picture of the result.

        Notes
        -----
        O(rows^3) a draw, and for all rows what a density of `neighbors` costs. On all rows the posterior
        differs more than on a subsample: a poor verdict is certain, a good one holds for as many rows as
        were compared. Latent functions, likelihoods by products or by task, KMCG's and eigenfunctions with
        ``weights=`` have no exact counterpart on a subsample: the rest is reported.
        """
        rows = check_count("rows", rows, 2)
        if neighbors is not None:
            neighbors = check_count("neighbors", neighbors)
        return check_gp(
            self, idata_or_point, X, rows, neighbors, num_samples, progressbar, random_seed, model
        )


class AssessedGP(CheckedGP):
    """One with a marginal likelihood, of which rows can be left out."""

    def loo(
        self, idata, *, groups=None, num_samples=None, progressbar: bool = True, random_seed=None,
        model=None,
    ):  # fmt: skip
        r"""Leave-one-out cross-validation, without fitting again.

        At each draw the density of a row given *all others* is known in closed form,

        .. math:: p(y_i \mid y_{-i}, \theta) = N(y_i \mid y_i - [P e]_i / P_{ii},\; 1 / P_{ii})

        with P the inverse of the targets' covariance and e their residual. Draws are weighted towards
        the posterior of the hyperparameters without the row by Pareto-smoothed importance sampling:
        of a few hyperparameters, so that a row hardly moves them.

        Parameters
        ----------
        idata : DataTree
            What `pm.sample` returned.
        groups : array, shape (n,), optional
            Labels: all rows with one label are left out together (children, folds, blocks in space).
        num_samples : int, optional
            Number of draws, taken at random; all when left out.
        progressbar : bool
        random_seed : int, optional
            Of the draws.
        model : pm.Model, optional
            Needed outside the model context.

        Returns
        -------
        arviz.ELPDData
            For `az.compare`; with pointwise densities and Pareto k (by group, in the labels' order).

        Raises
        ------
        TypeError, ValueError
            For draws without the needed variables or fewer than 25, groups that do not match, statistics
            without rows, and KMCG beyond 4000 rows or with ``inducing=``.

        See Also
        --------
        check : How far the approximation is from the exact Gaussian process.

        Notes
        -----
        A draw costs O(n r^2) with features, O(n (r^2 + (k + g)^2)) with neighbours, O(n^3) exactly; a
        group of g rows O(g^3) more. SKIP by products forms its features for it, 8 n r bytes; KMCG takes
        the kernel's own matrix, which its iterations stand for. Features stay where they are when a row is
        left out: inducing points and grids were chosen with it. The approximation is that of the
        likelihood ("VFE" as "DTC").

        References
        ----------
        .. [1] Vehtari, A. et al. (2016). Bayesian Leave-One-Out Cross-Validation Approximations for
           Gaussian Latent Variable Models. JMLR 17(103). https://doi.org/10.48550/arXiv.1412.7461
        """
        found = left_out(self, idata, groups, num_samples, progressbar, random_seed, model)
        return elpd(found, "y")

    def loo_pit(
        self, idata, *, num_samples=None, progressbar: bool = True, random_seed=None, model=None
    ) -> xr.DataArray:
        """Probability integral transform of each row, given all others: uniform if the model is right.

        Parameters and errors as in :meth:`loo`, which says what it costs.

        Returns
        -------
        xarray.DataArray, shape (n,)
            Over ``obs``, between 0 and 1. Too many near 0 and 1: predictive sds are too small; too many
            in the middle: too large.
        """
        return pit(left_out(self, idata, None, num_samples, progressbar, random_seed, model))
