"""Checks and predictions, shared by the Marginal and the Latent front end."""

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import RLock

import numpy as np
from pymc.gp.util import JITTER_DEFAULT

from pymc_scalable_gp.core.checking.check import check_gp
from pymc_scalable_gp.core.checking.verdict import Check
from pymc_scalable_gp.core.data.draws import CHECKED, EXPORTED, model_mean
from pymc_scalable_gp.core.data.inputs import check_dims
from pymc_scalable_gp.core.data.keywords import conditional_keywords
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.export import Export
from pymc_scalable_gp.core.trained import TrainedGP
from pymc_scalable_gp.core.vecchia.likelihood import NeighborRows
from pymc_scalable_gp.utils.checks import check_count
from pymc_scalable_gp.utils.classes import as_typed
from pymc_scalable_gp.utils.compiled import check_reached
from pymc_scalable_gp.utils.threads import one_blas_thread

# PyTensor compiles, and a compiled function runs, in one thread at a time.
ONE_AT_A_TIME = RLock()


# Rows whose dense matrices one thread of BLAS takes.
FEW_ROWS = 1000


def blas_threads(training):
    """One BLAS thread for matrices that are too small for more: those of neighbours, and of few rows."""
    if training is None:
        return nullcontext()
    near = isinstance(training.at_mode, NeighborRows)
    return one_blas_thread() if near or len(training.X.value) <= FEW_ROWS else nullcontext()


@as_typed
class FeatureGP(TrainedGP):
    """A GP that is conditioned on data, and what follows: base of the public classes."""

    # -- checks -----------------------------------------------------------------------------

    def check(
        self, idata_or_point=None, X=None, y=None, *, rows: int = 400, neighbors: int | None = 60,
        most_rows: int | None = 20_000, num_samples: int | None = CHECKED, progressbar: bool = True,
        random_seed=0, model=None,
    ) -> Check:  # fmt: skip
        r"""How far the approximation is from the exact Gaussian process, and what to do about it.

        Some rows, one from each of as many cells with nearly equal numbers of rows, get the exact
        likelihood beside this one, which keeps its features, order and settings, and both predict other
        rows. All rows, or 20 000 of more, get this likelihood beside one with 200 inducing points and
        many neighbours. Log densities are compared at one point or over posterior draws, whose weights
        :math:`\exp(\log p_\text{better} - \log p)` tell what the difference does to the posterior.

        Parameters
        ----------
        idata_or_point : DataTree or dict, optional
            Posterior draws, or a point such as ``pm.find_MAP`` returns; the model's initial point when
            left out.
        X : array, shape (n, d), optional
            Inputs at which only the features are looked at, with or without a likelihood.
        y : array, shape (n,), optional
            Targets at X: the likelihood of these rows is compared. For one made from statistics.
        rows : int
            Size of the subsample; half as many other rows are predicted, or the same rows if none are left.
        neighbors, most_rows : int or None
            Neighbours of the better likelihood of all rows, at least twice this one's (None leaves it
            out), and rows that get it at most (None for all).
        num_samples : int or None
            Number of draws, taken at random by `random_seed` as the rows are; None for all. Left out: 40,
            or all of fewer.
        progressbar, random_seed, model
            As for :meth:`predict_posterior`.

        Returns
        -------
        xarray.Dataset
            Prints "Good." with the largest shifts, or what is poor with a remedy and the figures; its
            ``details`` has all figures in words, :func:`plot_check` draws them.

            - over ``obs``, the row numbers: ``missing``, the share
              :math:`1 - \|\phi(x)\|^2 / k(x, x)` of prior variance that the features do not explain;
              ``mean_shift``, of the predictive mean in predictive sds; ``sd_ratio``, of the predictive sds
              (1: no difference);
            - over ``sample``: ``logp_exact`` and ``logp_approx``, of the subsample; ``logp_neighbors`` and
              ``logp_all``, of all rows; for a frozen basis ``logp_recomputed``, of the subsample with
              features computed anew at the draw, and ``excess``, the largest share by which the frozen
              features' variance exceeds the kernel's;
            - over ``hyperparameter``, with 25 draws or more: ``moved`` and ``sd_change``, what weights
              towards the exact posterior (PSIS) do to the mean, in sds, and to the sd; ``moved_all`` and
              ``sd_change_all`` towards that with more neighbours; for a frozen basis ``from_reference``,
              the distance of the mean from the reference, in sds.

            Attributes: ``gap`` and ``lost``, mean and sd over the draws of the log densities'
            difference, and ``k_hat`` of the weights (``gap_all``, ``lost_all``, ``k_hat_all``: of all
            rows; ``gap_recomputed``, ``lost_recomputed``: of a frozen basis; ``gap_laplace`` and so on,
            as ``moved_laplace`` and ``sd_change_laplace``: of the likelihood itself under ``likelihood=``);
            ``k_hat_functions``, of the weights of functions, and ``modes_missing``, the number of draws
            without a mode; ``rank``;
            ``missing_mean``; ``noise_inflation``, that residual variance as a share of the
            noise's; ``kernel_share``, prior variance as a share of that with noise; ``rank_needed``, how
            many of the best features leave less than 5% of the noise variance, by the eigenvalues of the
            subsample (infinite: more than half of `rows`); ``condition`` number of the targets' covariance;
            ``holds_residual``, whether neighbours (or all rows) keep the residual variance; ``verdict``,
            ``details``.
            Some kinds of likelihood add figures, each at the worst of the draws: ``residual`` of conjugate
            gradients, ``steps_needed`` to .01, ``logdet_se`` and ``logdet_excess`` of the log
            determinant (KMCG, SKIP by products); at the draws' mean ``neighbors_moved``, the share of
            neighbours that those hyperparameters would replace.

        Raises
        ------
        TypeError, ValueError
            Without a likelihood, a prior or X, for statistics without X, and for other points or draws.

        See Also
        --------
        loo : How well rows that are left out are predicted.
        pymc_scalable_gp.plot_check : A picture of the result.

        Notes
        -----
        O(rows^3) per draw, and for all rows what a density of `neighbors` costs. On all rows the posterior
        differs more than on a subsample: a poor verdict is certain, a good one holds for as many rows as
        were compared. Latent functions and eigenfunctions with ``weights=`` have no exact counterpart, and
        likelihoods by products or by task, and KMCG's without ``inducing=``, none on a subsample, but on up
        to `rows` rows in all: the rest is reported, and where all rows are compared with a closer
        likelihood, its predictions stand beside these too. Log densities are those of the rows, which
        ``total_size=`` does not multiply here.
        """
        with ONE_AT_A_TIME, self.model_of(model) as model, blas_threads(self.training):
            return check_gp(
                self, idata_or_point, X, y, rows=check_count("rows", rows, 2),
                neighbors=None if neighbors is None else check_count("neighbors", neighbors),
                most_rows=None if most_rows is None else check_count("most_rows", most_rows, 2),
                num_samples=num_samples, progressbar=progressbar, random_seed=random_seed,
                model=model,
            )  # fmt: skip

    # -- predictions ------------------------------------------------------------------------

    def conditional(self, name, Xnew, pred_noise=False, given=None, jitter=JITTER_DEFAULT, **kwargs):
        r"""Random variable for the function at new inputs, given the training data.

        .. math:: f_* \sim N(\mu_* + \Phi_*\,m,\; \Phi_* S \Phi_*^\top
                  + \mathrm{diag}(k_{**} - \|\phi_*\|^2) + \mathrm{jitter})

        with :math:`m, S` the posterior mean and covariance of the feature coefficients. Draws are
        joint and cost O(n* r); far from the data their variance returns to the prior's.

        Parameters
        ----------
        name : str
            Name of the random variable.
        Xnew : array, shape (n*, d), or pm.Data
            New inputs.
        pred_noise : bool
            Add the observation noise (Marginal classes with a scalar sigma).
        given : dict, optional
            ``{"X", "y", "sigma", "gp"}`` as in `pm.gp.Marginal`; ``gp`` is the sum that this GP is
            a part of. For a latent GP ``{"gp": total}``.
        jitter : float
            Added to the variance of each point.
        **kwargs
            Passed to the distribution, such as ``dims``.

        Returns
        -------
        TensorVariable, shape (n*,)

        Raises
        ------
        ValueError
            Before ``marginal_likelihood`` or ``prior``, or for bad inputs.
        TypeError
            For an unknown keyword.
        """
        kwargs = conditional_keywords(self, kwargs)
        model = self.model_of(given=given)
        training, places = self._given(given)
        data = self._new_inputs(Xnew, training, pred_noise)
        self._warn_beyond(training, data, True)
        check_dims(kwargs.get("dims"), data, "Xnew")
        feature_map, coef = self._features_of(training, places, given)
        variance = self._noise(training, pred_noise) + jitter
        X, noise = data.tensor, [] if training.sigma is None else [training.sigma]
        used = [feature_map.features(X), feature_map.kernel_diag(X), mean_vector(self.mean_func, X)]
        check_reached([*used, coef.mean, variance, *noise], model.basic_RVs)
        source = training.of_observations() if pred_noise else training
        return source.predictive.conditional(
            name, data, feature_map, self.mean_func, coef, variance, **kwargs
        )

    def predict(
        self, Xnew, point=None, diag=False, pred_noise=False, given=None, model=None, *, joint=True,
        exact: bool = False, likelihood=None,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Mean and (co)variance of the function at new inputs for one point, as NumPy arrays.

        Parameters
        ----------
        Xnew : array, shape (n*, d)
        point : dict
            Values of the model's variables, such as ``pm.find_MAP()`` returns.
        diag : bool
            True: variances (n*,), computed in row blocks. False: the n* x n* covariance.
        pred_noise : bool
            Add the observation noise.
        given : dict, optional
            As in :meth:`conditional`.
        model : pm.Model, optional
            That of the context or, outside of any, of the likelihood or prior when left out.
        joint : bool
            With neighbours and ``diag=False``: whether each new row is conditioned on new rows before it
            too, as draws and :meth:`conditional` are. Nearest rows that are new take the places of
            training rows, so that means and variances differ from those of ``diag=True``, the more the
            fewer neighbours there are (.2 sd with ten): raise `pred_neighbors`. False: each new row
            stands alone, with the means and variances of ``diag=True``; rows then covary through the
            features alone.
        exact : bool
            Predict with the exact Gaussian process instead, O(n^3): for a point or for draws of its own
            posterior, as :meth:`correct` gives them.
        likelihood : callable, optional
            With ``pred_noise=True`` and a ``likelihood=`` that has values for each training row
            (exposures, offsets): the same function of f with those of the new rows.

        Returns
        -------
        mean : array, shape (n*,)
        var : array, shape (n*,) or (n*, n*)
            Under ``likelihood=`` and ``pred_noise=True`` those of new observations, by quadrature over
            f: (n*, k) probabilities and their variances for k classes. It needs ``diag=True``.

        Raises
        ------
        ValueError
            Before ``marginal_likelihood`` or ``prior``, when `point` lacks a value, or has one of another
            shape or with labels other than the model's ``coords``, for a model other than the GP's own (a
            copy, as ``pm.do`` makes it), or for bad inputs.
        """
        with ONE_AT_A_TIME, ExitStack() as stack:
            training, places = self._given(given, exact, model)
            stack.enter_context(blas_threads(training))
            data = self._new_inputs(Xnew, training, pred_noise)
            model = self.model_of(model, given)
            if not diag:
                data = replace(data, grid=None)  # a dense covariance is asked for
            predictor = self._predictor(data, training, places, given, pred_noise, model, likelihood)
            state = predictor.state(point)
            self._warn_beyond(training, data, joint and not diag, lambda: point, model)
            if diag:
                return predictor.diagonal(state, data.value)
            return (predictor.full if joint else predictor.alone)(state, data.value)

    def predict_posterior(
        self, Xnew, idata, *, num_samples: int | None = None, pred_noise: bool = False,
        draws: bool = False, given=None, progressbar: bool = True, random_seed=None, model=None,
        exact: bool = False, likelihood=None,
    ):  # fmt: skip
        """Mean and sd at new inputs, averaged over posterior draws.

        Parameters
        ----------
        Xnew : array, shape (n*, d)
            Any number of rows: they are taken in blocks.
        idata : DataTree or Dataset
            Result of ``pm.sample`` (its ``posterior`` group), one chain of it, or what ``az.extract``
            makes of it.
        num_samples : int, optional
            Number of draws, taken at random without replacement; all of them when left out.
        pred_noise : bool
            Add the observation noise.
        draws : bool
            Also return a sample of the function, jointly over all rows, for each posterior draw:
            8 n* bytes per draw.
        progressbar : bool
            Show progress over the draws.
        random_seed : int, optional
            Seed of the choice of draws and of the samples.
        given, model, exact, likelihood
            As in :meth:`predict`: exact, O(n^3) for each draw.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``sd`` over ``obs``: mean and standard deviation of the equal-weight mixture
            of the draws' normal predictions. With `draws`, also ``f`` over ``chain``, ``draw`` and
            ``obs`` (one chain, when `num_samples` picks draws). Under ``likelihood=`` and with
            `pred_noise` mean and sd are those of new observations, of which `draws` adds a sample ``y``;
            over ``class`` too, with probabilities for means, for classes.

        Raises
        ------
        TypeError, ValueError
            As :meth:`predict`; when there are no draws, or a variable of the model is not in the posterior
            or NaN at some draws, and where predictions are NaN at some.
        """
        if not isinstance(draws, bool):
            raise TypeError(f"draws is True or False, got {draws!r}: num_samples= is their number")
        with ONE_AT_A_TIME, ExitStack() as stack:
            training, places = self._given(given, exact, model)
            stack.enter_context(blas_threads(training))
            data = self._new_inputs(Xnew, training, pred_noise)
            model = self.model_of(model, given)
            predictor = self._predictor(data, training, places, given, pred_noise, model, likelihood)
            found = predictor.mixture(data.value, idata, num_samples, draws, progressbar, random_seed)
            self._warn_beyond(training, data, draws, lambda: model_mean(idata, model), model)
            return found

    def export(
        self, idata, path, *, num_samples: int | None = EXPORTED, exact: bool = False,
        progressbar: bool = True, random_seed=0, model=None,
    ) -> Path:  # fmt: skip
        """Write a file from which :func:`pymc_scalable_gp.load_predictor` predicts without compiling.

        Parameters
        ----------
        idata : DataTree or Dataset
            As for :meth:`predict_posterior`.
        path : path or str
            NumPy's npz, under just this name: numbers, and the names of kernel and mean.
        num_samples : int, optional
            Draws that the file holds, taken at random without replacement; None for all. Left out:
            100, or all of fewer.
        exact : bool
            Export the predictions of the exact Gaussian process, as ``predict_posterior(exact=True)``.
        progressbar, random_seed, model
            As for :meth:`predict_posterior`, which takes the same draws with the same seed.

        Returns
        -------
        pathlib.Path
            The file's.

        Raises
        ------
        TypeError, ValueError
            Before predictions are compiled: without a likelihood or prior, and for what a file cannot hold:
            features other than those of inducing points, kernels and means that are functions of one's
            own, and sums of features. For draws as :meth:`predict_posterior`, and more than 1 GiB.

        Notes
        -----
        In numbers, for each draw, with m inducing points and n rows: 2 m^2; n with neighbours; n^2 for an
        exact Gaussian process.
        """
        if self.training is None:
            raise ValueError(
                f"{type(self).__name__} has no data yet: call marginal_likelihood(...) or prior(...) first "
                "(of a sum the whole is exported, no part)"
            )
        with ONE_AT_A_TIME, ExitStack() as stack:
            training, _ = self._given(None, exact)
            stack.enter_context(blas_threads(training))
            model = self.model_of(model)
            found = Export(self, training.predictive)
            noisy = training.sigma is not None and not training.sigma.ndim
            predictor = self._predictor(replace(training.X, grid=None), training, None, None, noisy, model)
            arrays = found.arrays(predictor, idata, num_samples, noisy, progressbar, random_seed)
            return found.write(Path(path), arrays)
