"""What tells whether a marginal GP is to be believed: the exact one beside it, and rows left out."""

import xarray as xr

from pymc_scalable_gp.core.check import check_gp
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.loo import elpd, left_out, pit
from pymc_scalable_gp.utils.checks import check_count


class AssessedGP(FeatureGP):
    """Checks of a GP with a marginal likelihood."""

    def check(
        self, idata_or_point=None, *, rows: int = 400, num_samples=40, progressbar: bool = True,
        random_seed=0, model=None,
    ):  # fmt: skip
        """Compare with the exact Gaussian process, on a random subsample of rows.

        Both get the same rows, this one with its features, order and settings as they are, and both
        predict other rows, at one point or over posterior draws.

        Parameters
        ----------
        idata_or_point : DataTree or dict, optional
            Posterior draws, or a point such as ``pm.find_MAP`` returns; the model's initial point when
            left out.
        rows : int
            Rows of the subsample; half as many others are predicted, or the same where there are none.
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
            Prints as a verdict with a remedy. Over ``sample``: ``logp_exact`` and ``logp_approx``. Over
            ``obs``, the row numbers: ``mean_shift``, of the predictive mean in predictive sds;
            ``sd_ratio``, of the predictive sds (1: no difference); ``missing``, the share of prior variance
            that the features miss. With ten draws or more, over ``hyperparameter``: ``moved`` and
            ``sd_change``, what weights towards the exact posterior (PSIS) do to the mean, in sds, and to
            the sd. Attributes: ``gap`` and ``lost``, mean and sd over the draws of the log densities'
            difference; ``k_hat``; ``verdict``.

        Raises
        ------
        TypeError, ValueError
            Without a marginal likelihood of X and y, for draws without the needed variables, and for
            KMCG and SKIP by products or by task, whose likelihood has no counterpart on a subsample.

        Notes
        -----
        O(rows^3) a draw. On all rows the posterior differs more than on a subsample: a poor verdict is
        certain, a good one holds for as many rows as were compared.
        """
        rows = check_count("rows", rows, 2)
        return check_gp(self, idata_or_point, rows, num_samples, progressbar, random_seed, model)

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
            For draws without the needed variables, groups that do not match, and likelihoods without a
            closed form (KMCG, SKIP by products or by task, statistics without rows).

        Notes
        -----
        A draw costs O(n r^2) with features, O(n (r^2 + (k + g)^2)) with neighbours, O(n^3) exactly; a
        group of g rows O(g^3) more. Features stay where they are when a row is left out: inducing
        points and grids were chosen with it. The approximation is that of the likelihood ("VFE" as "DTC").

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
