"""Observed targets of every method, with the function integrated out."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.gp.cov import BaseCovariance
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.inputs import (
    Data,
    check_dims,
    check_inputs,
    check_sigma,
    check_target,
    digest,
    held_value,
    split_noise,
)
from pymc_scalable_gp.core.data.keywords import marginal_keywords
from pymc_scalable_gp.core.data.missing import rows_with_targets
from pymc_scalable_gp.core.features.feature_map import FeatureMap
from pymc_scalable_gp.core.fit.start import reference_on_subset, start_of_search
from pymc_scalable_gp.core.gp import FeatureGP
from pymc_scalable_gp.core.likelihoods.base import FullRows, Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.laplace import LaplaceRows
from pymc_scalable_gp.core.likelihoods.rowwise import RowDistribution
from pymc_scalable_gp.core.likelihoods.summary import can_summarize, likelihood_of, summarize
from pymc_scalable_gp.core.rows.dask_rows import summarize_source
from pymc_scalable_gp.core.rows.statistics import RowStatistics
from pymc_scalable_gp.core.vecchia.likelihood import VecchiaRows, VecchiaSettings
from pymc_scalable_gp.cov.queries import check_rows, refuse_new_labels
from pymc_scalable_gp.importance.start import Offer
from pymc_scalable_gp.ops.lowrank_logp import APPROXIMATIONS
from pymc_scalable_gp.utils.checks import check_choice
from pymc_scalable_gp.utils.classes import as_typed
from pymc_scalable_gp.utils.graphs import model_here
from pymc_scalable_gp.utils.recent import Recent

# Choices of `approx` for classes whose features leave a residual that is itself a covariance.
WITH_RESIDUAL = (*APPROXIMATIONS, "VIF")
# Choices of `approx` whose likelihood also holds the residual variance.
KEEPS_ALL = ("VIF", "exact")


@as_typed
class ObservedGP(FeatureGP):
    """A GP whose values are observed, with Gaussian noise or under any likelihood.

    A method chooses how its likelihood is evaluated in :meth:`make_likelihood`; `variable` is the
    observed random variable.
    """

    default_approx = "FITC"
    approximations: ClassVar[tuple[str, ...]] = APPROXIMATIONS
    variable: TensorVariable | None = None

    def __init__(
        self, *, mean_func=None, cov_func, approx=None, neighbors=30, block=16, pred_neighbors=None
    ):
        super().__init__(mean_func=mean_func, cov_func=cov_func)
        if approx is not None:
            self.check_approx(approx)
        self.given_approx: str | None = approx
        self.local = VecchiaSettings.checked(neighbors, block, pred_neighbors)

    @property
    def approx(self) -> str:
        """Treatment of the prior variance that features do not explain, as in `pm.gp.MarginalApprox`."""
        return self.given_approx or self.default_approx

    def check_approx(self, approx) -> None:
        """Raise ValueError for an `approx`, the GP's own or that of a sum, that it does not go with."""
        check_choice("approx", approx, self.approximations)

    def map_for(self, approx) -> FeatureMap:
        """The features that go with an `approx`, the GP's own or that of a sum."""
        return self.feature_map

    def settings(self):
        """Arguments of the class besides mean and covariance, by name."""
        return {"approx": self.approx} | (asdict(self.local) if self.approx == "VIF" else {})

    def marginal_likelihood(
        self, name, X=None, y=None, sigma=None, *, statistics: RowStatistics | None = None,
        likelihood: Callable | None = None, progressbar: bool = True, **kwargs,
    ) -> TensorVariable:  # fmt: skip
        r"""Observed random variable, the function integrated out: Gaussian noise, or any likelihood.

        .. math:: y \sim N(\mu(X),\; \Phi\Phi^\top + D)

        Parameters
        ----------
        name : str
            Name of the random variable.
        X : array, shape (n, d), or pm.Data
            Inputs. NumPy, pandas, xarray and integer or float32 arrays are taken as float64.
        y : array, shape (n,), or pm.Data
            Observations. Exact classes take missing ones (NaN or masked) under Gaussian noise: their rows
            are integrated out, with a warning.
        sigma : float, array (n,), or random variable
            Noise standard deviation, scalar or one value per row. ExactMarginal and sums of it take noise
            with a covariance too, a kernel such as ``Matern32(...) + WhiteNoise(s)``.
        statistics : RowStatistics, optional
            What :meth:`summarize` made of the rows, in place of X and y. The variable's value is then
            ``U'y``, the targets in the span of the basis; its density is that of all targets.
        likelihood : callable, optional
            In place of `sigma`: takes f (n,) and returns a PyMC distribution, elementwise in f, such as
            ``lambda f: pm.Poisson.dist(mu=exposure * pm.math.exp(f))``. Its other parameters, random or
            data, are those of the model. f is integrated out by Laplace's approximation.
        progressbar : bool
            Show progress while many rows are summarised.
        **kwargs
            Passed to the distribution, such as ``dims``. As in `pm.gp.Marginal`, ``jitter`` is added to
            the targets' variance, ``sigma^2`` (default here: 0), and ``is_observed`` may be True.

        Returns
        -------
        TensorVariable, shape (n,)

        Raises
        ------
        TypeError, ValueError
            For bad inputs or an unknown keyword, before anything is built; for statistics of another
            basis, or with an `approx` other than "DTC".

        Notes
        -----
        An evaluation costs O(n r^2). Under "DTC", with a scalar sigma, a mean that is fixed or linear in
        free coefficients (Constant, Linear, sums), and features that the parameters at most mix, the
        rows are summarised once and it costs O(r^3) whatever n: :attr:`likelihood_path` tells. With
        `pm.Data` each evaluation then compares the data with those that were summarised, O(n d); arrays
        need no comparison.

        With neighbours (``approx="VIF"``), Gaussian noise and 300 rows or more, order and neighbours
        (and the inducing points of VecchiaMarginal) of a GP that was not built go by the mode of the
        exact GP on 300 of the rows: :func:`pymc_scalable_gp.subset_map` with a fixed seed, a few
        seconds. With fewer rows, and for sums, they go by the model's initial point. Calling ``build``
        before chooses another point.

        With ``likelihood=`` the density is Laplace's approximation at the mode of f,

        .. math:: \log N(t;\ \mu, C + W^{-1}) + \sum_i [\log p(y_i | f_i) - \log N(t_i;\ f_i, 1/W_i)],
            \qquad t_i = f_i + g_i / W_i

        with g and -W the first and second derivatives of ``log p(y_i | f_i)``. Each of Newton's steps costs
        about as much as Gaussian noise. For a Student t the expected information stands for W; other rows
        where W is not positive count as rows without information. A mode
        that is not found in 100 steps gives NaN. Predictions have the covariance at the mode, and the mean
        of the nearest normal with about such variances [3]_; if none is found, the mode.

        References
        ----------
        .. [1] Rasmussen, C. E. and Williams, C. K. I. (2006). Gaussian Processes for Machine Learning,
           section 3.4.
        .. [2] Margossian, C. et al. (2020). Hamiltonian Monte Carlo using an adjoint-differentiated
           Laplace approximation. NeurIPS 33. https://doi.org/10.48550/arXiv.2004.12550
        .. [3] van Niekerk, J. and Rue, H. (2024). Low-rank variational Bayes correction to the Laplace
           method. JMLR 25. https://doi.org/10.48550/arXiv.2111.12945
        """
        keywords = self._likelihood_keywords(kwargs)
        return self._likelihood_variable(name, X, y, sigma, statistics, progressbar, keywords, likelihood)

    def _likelihood_keywords(self, kwargs) -> tuple[float, dict]:
        """Checked keywords of a likelihood, before anything is built."""
        self.check_unconditioned()
        return marginal_keywords(self, kwargs)

    def _likelihood_variable(
        self, name, X, y, sigma, statistics, progressbar, keywords, likelihood=None, weights=None,
        **options,
    ):  # fmt: skip
        """The observed variable; `options` are those of :meth:`make_likelihood`."""
        if likelihood is not None:
            given = name, X, y, (sigma, statistics), likelihood
            return self._observe_any(*given, progressbar, keywords, weights, **options)
        if statistics is not None:
            return self._observe_statistics(name, X, y, sigma, statistics, keywords, weights)
        if X is None or y is None or sigma is None:
            raise TypeError("give X, y and sigma, or statistics= and sigma, or X, y and likelihood=")
        checked, (jitter, kwargs) = self._checked(X, y, sigma), keywords
        if self.approx == "VIF":
            self._build_near_mode(*checked[:3])
        data = self._data(*checked, weights)
        check_dims(kwargs.get("dims"), data.X, "X")
        if jitter:
            data = replace(data, sigma=pt.sqrt(data.sigma**2 + jitter))
        found = self._likelihood_of(data, progressbar, **options)
        for tensor, label in ((data.X, f"X of {name}"), (data.y, name)):
            if not tensor.mutable:
                tensor.tensor.name = pm.modelcontext(None).name_for(label)
        return self._made(found, name, kwargs)

    def summarize(
        self, source, y=None, *, columns=None, checkpoint=None, progressbar: bool = True
    ) -> RowStatistics:
        r"""Sufficient statistics of rows from any source, in one pass, whatever their number.

        Parameters
        ----------
        source : array, table, path, pair or iterable
            Inputs (n, d): a NumPy array or memmap, a zarr, xarray or dask array, with `y` beside it (or
            both as a pair); a pandas or dask DataFrame, an xarray Dataset or the path of a Parquet file
            or folder, with `y` the name of a column; or an iterable of pairs (X, y), blocks of rows.
        y : array, shape (n,), or str
            Targets, or their column.
        columns : sequence of str, optional
            Columns of a table that are inputs, in the kernel's order; all but y when left out.
        checkpoint : path, optional
            File that holds the statistics so far, each minute and when the pass ends early: a call with
            the same file goes on from there, reading the source from that row on (an iterable is read
            from its beginning). It is deleted at the end. Not for dask, which repeats lost tasks itself.
        progressbar : bool
            Show progress.

        Returns
        -------
        RowStatistics

        Raises
        ------
        TypeError, ValueError
            For NaN or infinite values (source, block and row are named), blocks of other widths,
            different lengths of X and y, no rows, rows beyond the range that the GP was built on, or a
            basis with free parameters.

        Notes
        -----
        O(n k^2) time for k basis functions, O(k^2) memory and a block of rows. Chunks of the source
        do not change the result beyond 1e-10. dask runs on its active scheduler: threads, or the
        cluster of a ``distributed.Client``. ``build(X)`` first, on a sample of rows that spans the range
        of all; for a NumPy array that is done here.
        """
        return summarize_source(self, source, y, columns, checkpoint, progressbar)

    def check_summarizable(self, approx=None) -> None:
        """Raise ValueError if no statistics of rows give this GP's likelihood, with a sum's `approx`."""
        approx = approx or self.approx
        if approx != "DTC":
            raise ValueError(
                f'statistics of rows need approx="DTC", this GP has {approx!r}, for single rows'
            )

    def _observe_statistics(self, name, X, y, sigma, statistics, keywords, weights=None):
        if X is not None or y is not None or sigma is None:
            raise TypeError("statistics= stands for the rows: give sigma, and leave X and y out")
        jitter, kwargs = keywords
        if kwargs.get("dims") is not None:
            raise TypeError("with statistics= there are no rows that dims= could label")
        sigma = check_sigma(sigma, None)
        sigma = pt.sqrt(sigma**2 + jitter) if jitter else sigma
        return self._made(likelihood_of(self, statistics, sigma, weights), name, kwargs)

    def _made(self, likelihood, name, kwargs) -> TensorVariable:
        self.variable = likelihood.observe(name, **kwargs)
        self._follow(likelihood)
        self.variable.tag.start = Offer(partial(start_of_search, self))
        return self.variable

    @property
    def likelihood_path(self) -> str | None:
        """How it is evaluated: "full" O(n r^2), "summarized" O(r^3), ..., "Laplace, full" and so on."""
        training = self._training
        return None if training is None or training.gaussian is None else training.path

    def make_likelihood(self, data: MarginalData, progressbar: bool = True) -> Likelihood:
        """The kind of likelihood that is cheapest for the data; a method may know others."""
        if can_summarize(data):
            return summarize(data, progressbar=progressbar)
        return FullRows(data)

    def _likelihood_of(self, data, progressbar=True, **options) -> Likelihood:
        """Likelihood with neighbours under "VIF", else the kind that the method chooses."""
        if data.approx != "VIF":
            return self.make_likelihood(data, progressbar, **options)
        return VecchiaRows.of(data, self.cov_func, self.local, self.reference, progressbar)

    def rebuild(self, point=None) -> None:
        """Choose order, neighbours and points again, in the model as it stands (``approx="VIF"``).

        Parameters
        ----------
        point : dict, optional
            Hyperparameters, such as ``pm.find_MAP()`` returns; the model's initial point for those
            left out. Call it in the model context.

        Raises
        ------
        ValueError
            Without a likelihood that has neighbours.

        Notes
        -----
        The log density becomes another function: do not go on with draws or adaptations from before.
        Functions that PyMC compiled for JAX keep the old one.
        """
        observed = self._training
        training = None if observed is None else observed.gaussian
        if not isinstance(training, VecchiaRows):
            raise ValueError(
                'rebuild is for a marginal_likelihood with approx="VIF"; for the others build(X, point) '
                "again and write the model anew"
            )
        training.reorder(point)
        self._givens = Recent()  # their neighbours were chosen as those of the likelihood were
        self.move_points(training.prediction_map(), training.present_inputs(), point)
        if isinstance(observed, LaplaceRows):
            observed.begin(point)

    def move_points(self, feature_map, X, point) -> None:
        """Choose inducing points again among rows X (n, d), where :meth:`rebuild` may; keep its point."""
        self._reference = point

    def _observe_any(self, name, X, y, others, likelihood, progressbar, keywords, weights, **options):
        """The observed variable of a user's likelihood."""
        self.check_integrable()
        jitter, kwargs = keywords
        if X is None or y is None or any(other is not None for other in others) or jitter:
            raise TypeError("likelihood= goes with X and y, in place of sigma=, statistics= and jitter=")
        model = model_here()
        inputs, target = self._checked_pair(X, y)
        n = len(held_value(inputs, "X"))
        fixed = not (inputs.mutable or target.mutable)
        rows = RowDistribution(likelihood, model, n if fixed else None)
        data = self._data(inputs, target, pt.ones(n), None, weights)
        check_dims(kwargs.get("dims"), data.X, "X")
        inner = self._likelihood_of(data, progressbar, **options)
        found = LaplaceRows.of(rows, inner, data.y, model)
        rows.check(data.y.value, data.mean, model)
        found.begin(self.reference)
        return self._made(found, name, kwargs)

    def check_integrable(self) -> None:
        """Raise TypeError if this GP takes no ``likelihood=``."""

    def _build_near_mode(self, X: Data, y: Data, sigma) -> None:
        """Build a GP with neighbours, which nobody built for these rows, at the mode on some of them."""
        rows = digest(X.value)
        if self.is_built and self._unasked in (None, rows):
            return
        if (point := reference_on_subset(self, X, y, sigma)) is not None:
            self.build_at(X.tensor if X.mutable else X.value, point)
            self._reference, self._unasked, self._columns = point, rows, X.columns

    def build_at(self, X, point) -> None:
        """Build on the rows X for the hyperparameters of `point`, where features go by them."""
        self._build_unasked(X)

    def _data(self, X: Data, y: Data, sigma, noise_cov, weights=None, again=True) -> MarginalData:
        """Data with this GP's features, which are built on X where :meth:`build_for` does."""
        if noise_cov is not None:
            check_rows(noise_cov, X.value)
        feature_map, approx = self._map_for(X, again), self.approx if weights is None else "DTC"
        X = replace(X, tensor=refuse_new_labels(self.cov_func, X.tensor)) if X.mutable else X
        return MarginalData(feature_map, self.mean_func, X, y, sigma, approx, weights, noise_cov)

    def _checked(self, X, y, sigma):
        """Inputs, targets, sd of the noise, and the kernel of what of it covaries, or None."""
        sigma, noise_cov = split_noise(sigma) if "noise with a kernel" in self.abilities else (sigma, None)
        if "missing targets" in self.abilities:
            X, y, sigma = rows_with_targets(X, y, sigma)
        data, target = self._checked_pair(X, y)
        return data, target, check_sigma(sigma, data.value.shape[0], X, y), noise_cov

    def _checked_pair(self, X, y) -> tuple[Data, Data]:
        """Inputs and targets, none of which is missing."""
        data = check_inputs(X)
        return data, check_target(y, data.value.shape[0], X)

    def _map_for(self, X, again=True) -> FeatureMap:
        self.build_for(X, self.approx not in KEEPS_ALL, again)
        return self.map_for(self.approx).covering(X.value.min(axis=0), X.value.max(axis=0))

    def conditioned_on(self, given):
        """The likelihood made before, with other data where ``given=`` brings them."""
        training = self._training
        if "X" not in given:
            return training
        came = [given[name] for name in ("X", "y", "sigma")]
        X, y, sigma, noise_cov = checked = self._checked(*came)
        if training is None:
            return self._likelihood_of(self._data(*checked), False)
        if training.gaussian is None:  # a latent function: its features and weights stay
            return self._likelihood_of(self._data(*checked, training.weights, again=False), False)
        training = training.gaussian  # given data have Gaussian noise
        self._check_inputs_as(training, X, 'given["X"]', [*(p.prior_cov for p in self.parts), noise_cov])
        if (limits := training.prior_map().input_range) and self.approx not in KEEPS_ALL:
            limits.check(X.value)
        symbolic = [each if isinstance(each, Variable | BaseCovariance) else None for each in came]
        noise = [np.asarray(came[2])] if symbolic[2] is None else []
        key = digest(X.value, y.value, *noise)
        data = replace(training.data, noise_cov=noise_cov)
        source = training if noise_cov is training.data.noise_cov else replace(training, data=data)
        return self._givens.get((training, *symbolic), key, lambda: source.given(X, y, sigma))
