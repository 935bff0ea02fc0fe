"""Marginal front end, shared by every method: the function integrated out."""

from dataclasses import astuple

import xarray as xr

from pymc_scalable_gp.core.checking.correct import correct_gp
from pymc_scalable_gp.core.checking.loo import LeaveOut, leave_out
from pymc_scalable_gp.core.features.feature_map import SumMap
from pymc_scalable_gp.core.gp import ONE_AT_A_TIME, blas_threads
from pymc_scalable_gp.core.observed import ObservedGP
from pymc_scalable_gp.core.sums import Additive, joint_approx
from pymc_scalable_gp.core.vecchia.likelihood import VecchiaSettings
from pymc_scalable_gp.importance.run import Budget
from pymc_scalable_gp.utils.classes import as_typed


@as_typed
class FeatureMarginal(ObservedGP):
    """Front end that integrates the function out: rows are left out, draws corrected."""

    # -- rows left out ----------------------------------------------------------------------

    def loo(
        self, idata, *, groups=None, num_samples=None, progressbar: bool = True, random_seed=None,
        model=None,
    ):  # fmt: skip
        r"""Leave-one-out cross-validation, without fitting again.

        At each draw the density of a row given *all others* is known in closed form,

        .. math:: p(y_i \mid y_{-i}, \theta) = N(y_i \mid y_i - [P e]_i / P_{ii},\; 1 / P_{ii})

        with P the inverse of the targets' covariance and e their residual. Draws are weighted towards
        the posterior of the hyperparameters without the row by Pareto-smoothed importance sampling:
        of a few hyperparameters, so that a row hardly moves them. Under ``likelihood=`` the row's
        density is integrated over its f given all others, by quadrature.

        Parameters
        ----------
        idata : DataTree
            What `pm.sample` returned.
        groups : array, shape (n,), optional
            Labels: all rows with one label are left out together (children, folds, blocks in space).
        num_samples, progressbar, random_seed, model
            As for :meth:`predict_posterior`.

        Returns
        -------
        arviz.ELPDData
            For `az.compare`; with pointwise densities and Pareto k (by group, in the labels' order).

        Raises
        ------
        TypeError, ValueError
            For draws without the needed variables or fewer than 25, groups that do not match or are
            given under ``likelihood=``, statistics without rows, and KMCG beyond 4000 rows (complete grids
            excepted) or with ``inducing=``.

        See Also
        --------
        check : How far the approximation is from the exact Gaussian process.

        Notes
        -----
        Each draw costs O(n r^2) with features, O(n (r^2 + (k + g)^2)) with neighbours, O(n^3) exactly; a
        group of g rows O(g^3) more, with features O(g r^2) at most. SKIP by products forms its features
        for it, 8 n r bytes; KMCG takes the kernel's own matrix, which its iterations stand for. Features
        stay where they are when a row is left out: inducing points and grids were chosen with it. The
        approximation is that of the likelihood ("VFE" as "DTC").

        References
        ----------
        .. [1] Vehtari, A. et al. (2016). Bayesian Leave-One-Out Cross-Validation Approximations for
           Gaussian Latent Variable Models. JMLR 17(103). https://doi.org/10.48550/arXiv.1412.7461
        """
        return self._leave_out(idata, groups, num_samples, progressbar, random_seed, model).elpd

    def loo_pit(
        self, idata, *, num_samples=None, progressbar: bool = True, random_seed=None, model=None
    ) -> xr.DataArray:
        """Probability integral transform of each row, given all others: uniform if the model is right.

        Parameters and errors as in :meth:`loo`, which says what it costs; after it with the same
        arguments, nothing.

        Returns
        -------
        xarray.DataArray, shape (n,)
            Over ``obs``, between 0 and 1. Too many near 0 and 1: predictive sds are too small; too many
            in the middle: too large.
        """
        pit = self._leave_out(idata, None, num_samples, progressbar, random_seed, model).pit
        if pit.isnull().all():
            raise ValueError(
                "PyMC does not know the cumulative distribution of this likelihood, which the integral "
                "transform needs: gp.loo works without it"
            )
        return pit

    def _leave_out(self, idata, groups, num_samples, progressbar, random_seed, model) -> LeaveOut:
        """Both figures of one pass over the draws; kept, so that the second need not be a second pass."""
        model = self.model_of(model)
        with ONE_AT_A_TIME, blas_threads(self.training):
            return leave_out(
                self, self._left_out, idata, groups, num_samples, progressbar, random_seed, model
            )

    # -- a better posterior -----------------------------------------------------------------

    def correct(
        self, idata, target: str = "exact", *, neighbors: int | None = None,
        n_inducing: int | None = None, draws: int = 400, cores: int | None = None, client=None,
        max_evaluations: int | None = None, max_seconds: float | None = None,
        otherwise: str = "warn", progressbar: bool = True, random_seed=None, model=None,
    ) -> xr.DataTree:  # fmt: skip
        r"""Draws of the exact Gaussian process's posterior, or of a closer approximation's.

        The draws of the approximate posterior place the first proposal of adaptive importance sampling
        (:func:`pymc_scalable_gp.sample_importance`), after a few steps towards the mode of

        .. math:: \log p(\theta, y) - \log \tilde p(y \mid \theta) + \log p_\text{better}(y \mid \theta)

        and rounds go on under this density. With k-hat below .7 they are draws of the better posterior,
        whatever the approximation was, but for long tails that no point came near: compare two seeds.

        Parameters
        ----------
        idata : DataTree
            Draws of all free variables under this model, from any sampler: at least 25.
        target : {"exact", "likelihood"}
            "exact": the dense likelihood of all rows with the whole kernel, at most 10 000 rows, on
            a GPU (PyTensor's mode "JAX") as many as its memory holds. Under
            ``likelihood=`` it also takes away the error of Laplace's approximation, by 64 pairs of
            functions near the posterior, whose own error ``log_evidence_se`` counts, and "likelihood" that
            alone. The functions' weights vary with the root of the number of rows: a ``khat_functions``
            above .7, of which a warning tells, leaves nothing of the correction.
        neighbors, n_inducing : int, optional
            Either of them: the target is the likelihood with that many neighbours (default: this one's
            own or 60, whichever is more) and inducing points (default: 200) instead; Laplace's
            approximation stays.
        draws, cores, client, max_evaluations, max_seconds, progressbar, random_seed
            As for :func:`pymc_scalable_gp.sample_importance`. As many `cores` as memory holds.
        otherwise : {"warn", "nuts"}
            What to do where k-hat exceeds .7, or the effective sample size stays below a quarter of
            `draws`: warn, or go on with NUTS under the better density. Not where Laplace's own error is
            taken away, which has no gradient.
        model : pm.Model, optional
            As for :meth:`predict`.

        Returns
        -------
        xarray.DataTree
            As of :func:`pymc_scalable_gp.sample_importance`, and a group ``correction`` over
            ``hyperparameter``: ``shift`` of the mean, in sds of the given draws, and ``sd_ratio``, the
            new sd over theirs. ``predict_posterior(Xnew, idata, exact=True)`` predicts with the exact
            GP; the class's own predictions take these draws as well.

        Raises
        ------
        TypeError, ValueError
            Without a marginal likelihood, for statistics without rows, a frozen or free prior of weights,
            the exact class itself, fewer than 25 draws, more than 50 parameters, or more rows or memory
            than there are (the message has the seconds and the memory needed).

        See Also
        --------
        check : Whether this is needed.

        Notes
        -----
        A density of the exact GP takes n^3 / 3 operations and two n x n arrays, the few gradients three
        times that and four arrays; 500 to 1500 densities are usual for ten parameters.
        """
        with self.model_of(model) as model:
            budget = Budget(draws, cores, client, max_evaluations, max_seconds, progressbar)
            return correct_gp(
                self, idata, target, neighbors, n_inducing, budget, otherwise, random_seed, model
            )


class AdditiveMarginal(Additive, FeatureMarginal):
    """Sum of GPs under Gaussian noise, as ``gp1 + gp2`` makes it."""

    def __init__(self, parts):
        Additive.__init__(self, parts)
        self.given_approx = joint_approx(parts)
        for part in parts:
            if part.approximations == ("VIF",) and self.approx != "VIF":
                raise TypeError(
                    f"cannot add a {type(part).__name__} to GPs with approx {self.approx!r}: give them "
                    'approx="VIF", all that it knows'
                )
            part.check_approx(self.approx)
        widest = zip(*(astuple(part.local) for part in self.parts), strict=True)
        self.local = VecchiaSettings(*map(max, widest))

    def map_for(self, approx):
        """Features of the parts side by side."""
        return SumMap([part.map_for(approx) for part in self.parts])

    def move_points(self, feature_map, X, point):
        """Choose those of each part."""
        for part, own in zip(self.parts, feature_map.parts, strict=True):
            part.move_points(own, X, point)

    def check_summarizable(self, approx=None):
        """Check the sum and each of its parts."""
        super().check_summarizable(approx)
        for part in self.parts:
            part.check_summarizable(approx or self.approx)


FeatureMarginal.sum_classes = AdditiveMarginal.sum_classes = (AdditiveMarginal,)
