"""Training of SoftKI's interpolation points, and of the hyperparameters, by minibatches."""

from dataclasses import dataclass, field

import numpy as np
import pymc as pm
from pymc.progress_bar import CustomProgress, default_progress_theme
from rich.console import Console
from rich.progress import Progress, TextColumn

from pymc_scalable_gp.core.data.inputs import Data, check_sigma
from pymc_scalable_gp.methods.softki.batches import training_rows
from pymc_scalable_gp.methods.softki.gp import SoftKILatent, SoftKIMarginal
from pymc_scalable_gp.methods.softki.points import kmeans_points
from pymc_scalable_gp.methods.softki.steps import ERROR_ROWS, OBJECTIVES, Trainer
from pymc_scalable_gp.utils.checks import check_choice, check_count
from pymc_scalable_gp.utils.warn import warn

# Rows of a batch: the paper's.
BATCH = 1024

# Noise variance, as a share of the target's, when sigma is left out: the paper's 0.001 for a
# standardised target.
NOISE_SHARE = 1e-3


@dataclass(frozen=True)
class InducingFit:
    """Result of :func:`fit_inducing`.

    Attributes
    ----------
    Z : array, shape (m, d)
        Trained points: ``SoftKIMarginal(cov_func=cov, inducing=fit.Z)``.
    point : dict
        Trained hyperparameters by name, untransformed: ``pm.sample(initvals=fit.point)``.
    losses : array, shape (epochs,)
        Mean over the batches of minus the objective, per row.
    validation : array, shape (epochs,)
        Root mean square error on the validation rows; empty without them.
    noise : float or None
        Noise variance that was held fixed; None when sigma was trained.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.random.default_rng(1).uniform(size=(40, 5))
    >>> with pm.Model():
    ...     cov = pm.gp.cov.ExpQuad(5, ls=pm.InverseGamma("ell", 3, 3))
    ...     gp = sgp.SoftKIMarginal(cov_func=cov, inducing=8)
    ...     options = {"epochs": 3, "progressbar": False, "mode": "FAST_COMPILE"}
    ...     fit = sgp.fit_inducing(gp, X, X.sum(axis=1), random_seed=1, **options)
    >>> fit.losses.shape, sorted(fit.point)
    ((3,), ['ell'])
    >>> gp = sgp.SoftKIMarginal(cov_func=cov, inducing=fit.Z)
    """

    Z: np.ndarray
    point: dict[str, np.ndarray]
    losses: np.ndarray
    validation: np.ndarray
    noise: float | None
    state: list[np.ndarray] = field(repr=False)

    @property
    def epochs(self) -> int:
        """Number of passes over the data so far."""
        return len(self.losses)


def fit_inducing(
    gp,
    X,
    y=None,
    sigma=None,
    *,
    objective: str = "exact",
    use_priors: bool = True,
    batch_size: int | None = None,
    epochs: int = 50,
    learning_rate: float = 0.01,
    probes: int = 10,
    validation: float = 0.1,
    patience: int = 5,
    start: InducingFit | None = None,
    random_seed=None,
    progressbar: bool = True,
    mode=None,
    model=None,
) -> InducingFit:
    r"""Train interpolation points and hyperparameters by Adam on minibatches.

    Each step takes a batch of b rows and ascends

    .. math::

        \tfrac1b \log N(y_b \mid \mu(X_b),\; W_b K_{zz} W_b^\top + \sigma^2 I) + \tfrac1n \log p(\theta)

    in the points Z, starting from k-means centres, and in every free variable that the mean, the
    covariance, sigma and the temperature depend on.

    Parameters
    ----------
    gp : SoftKIMarginal or SoftKILatent
        Not a sum of them. Gives kernel, mean, temperature, ``approx`` and the points to start from. With
        "VIF" the points are those of "FITC", which is what it is without neighbours.
    X, y : arrays, shapes (n, d) and (n,)
        Data; standardise both, as learning rate and temperature are in their units. NumPy memmaps, zarr
        and dask arrays, the path of Parquet files with the name of y, and a list of pairs (X, y), or
        another object that can be iterated again, are *streamed*: read once for a random sample of 65 536
        rows, which starts the points and holds the validation rows, and then once an epoch, with
        65 536 rows at a time in a new order.
    sigma : float, array (n,) or random variable, optional
        Noise standard deviation; with a prior, it is trained. Default: fixed at a variance of
        0.001 of y's, the paper's choice, which is best for data with little noise (kin40k); where
        there is more, a larger or a trained one is better (elevators, bike). Compare
        ``fit.validation.min()``. A fixed one says nothing about the data's noise: infer sigma
        afterwards, with the points fixed.
    objective : {"exact", "pseudo"}
        The density above, or Hutchinson's pseudo-loss, whose gradient estimates its gradient with
        `probes` random vectors: Gaussian, scaled to unit norm and times ``b^1/2``, without which the
        log determinant would count b times too little.
    use_priors : bool
        Include the hyperparameters' log prior (MAP), or leave it out (maximum likelihood).
    batch_size : int, optional
        The paper's 1024 rows, or all rows for training where there are fewer. A batch should not be
        smaller than the number of points.
    epochs, learning_rate : int, float
        The paper's values.
    probes : int
        Random vectors of the pseudo-loss.
    validation : float
        Share of the rows, in [0, 1), held out to stop early: when their error has not fallen for
        `patience` epochs, training ends; the best epoch's values are returned. Noisy data are
        overfitted without it (protein: error .61 after 15 epochs, .85 after 50). With 0, all epochs
        are run and the last values returned, as in the paper.
    patience : int
        See `validation`.
    start : InducingFit, optional
        An earlier result to continue from, optimiser state included: of the same number of points
        and the same free variables.
    random_seed : int, optional
        Seed of k-means, batches, probes and validation rows.
    progressbar : bool
        Show progress and loss.
    mode : optional
        PyTensor compilation mode of a step. Numba, the default, takes up to a minute to compile
        and makes steps 3 to 4 times faster than "FAST_COMPILE", which suits a few steps.
    model : pm.Model, optional
        Needed outside the model context.

    Returns
    -------
    InducingFit

    Raises
    ------
    TypeError, ValueError
        For bad data or options, a batch larger than the data, or a `start` that does not fit.
    FloatingPointError
        If the loss is not finite.

    Warns
    -----
    UserWarning
        If interrupted (Ctrl-C): the best values so far are returned.

    Notes
    -----
    O(b m (m + d) + m^3) per step. Adam is PyMC's.

    References
    ----------
    .. [1] Camaño, C. and Huang, D. (2024). High-Dimensional Gaussian Process Regression with Soft
       Kernel Interpolation. https://doi.org/10.48550/arXiv.2410.21419

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.random.default_rng(1).standard_normal((50, 5))
    >>> with pm.Model() as model:
    ...     ell, sigma = pm.InverseGamma("ell", 3, 3), pm.HalfNormal("sigma", 1)
    ...     gp = sgp.SoftKIMarginal(cov_func=pm.gp.cov.ExpQuad(5, ls=ell), inducing=8)
    ...     fit = sgp.fit_inducing(
    ...         gp, X, np.sin(X[:, 0]), sigma, epochs=2, progressbar=False, mode="FAST_COMPILE"
    ...     )
    >>> fit.Z.shape, fit.epochs, sorted(fit.point)
    ((8, 5), 2, ['ell', 'sigma'])
    """
    _check_gp(gp)
    check_choice("objective", objective, OBJECTIVES)
    if objective == "pseudo" and getattr(gp, "approx", "DTC") != "DTC":
        raise ValueError(f'objective="pseudo" works with approx="DTC" only, got {gp.approx!r}')
    model = pm.modelcontext(model)
    rng = np.random.default_rng(random_seed)
    data = training_rows(X, y, validation, rng)
    batch_size = _batch_size(batch_size, data.count)
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, got {learning_rate}")
    noise = None if sigma is not None else NOISE_SHARE * data.variance
    if noise == 0.0:
        raise ValueError("y is constant: there is nothing to interpolate (or give sigma)")
    sigma = check_sigma(np.sqrt(noise) if sigma is None else sigma, data.size)
    Z = _start_points(gp, data.sample, start, rng)
    trainer = Trainer(
        gp, model, sigma, Z, rows=data.count, learning_rate=learning_rate, objective=objective,
        probes=check_count("probes", probes), use_priors=use_priors, rng=rng, mode=mode,
    )  # fmt: skip
    if start is not None:
        _check_variables(start, trainer.hyper)
        trainer.restore(start.state)
    loop = _Loop(trainer, data, start)
    check_count("epochs", epochs)
    loop.run(epochs, batch_size, check_count("patience", patience), rng, progressbar)
    state = trainer.state() if loop.best is None else loop.best
    trainer.restore(state)
    Z, point = trainer.values()
    return InducingFit(Z, point, np.array(loop.losses), np.array(loop.errors), noise, state)


def _check_gp(gp):
    if isinstance(gp, SoftKIMarginal | SoftKILatent):
        return
    came = "a sum" if len(getattr(gp, "parts", ())) > 1 else type(gp).__name__
    raise TypeError(
        f"gp must be a SoftKI GP, got {came}: of a sum fit each part, or give one GP the kernel k1 + k2"
    )


def _batch_size(batch_size, rows):
    """Rows of a batch: at most as many as there are for training."""
    if batch_size is None:
        return min(BATCH, rows)
    if check_count("batch_size", batch_size) > rows:
        raise ValueError(
            f"batch_size={batch_size} exceeds the {rows} rows for training: take fewer, or leave it out"
        )
    return int(batch_size)


def _start_points(gp, X, start, rng):
    """Points (m, d) of the earlier result, of the GP, or k-means centres."""
    wanted = gp.spec.inducing
    if start is not None:
        Z = _started_points(start, len(wanted.value) if isinstance(wanted, Data) else wanted)
    elif isinstance(wanted, Data):
        Z = wanted.value
    else:
        Z = kmeans_points(X, wanted, rng)
    if Z.shape[1] != X.shape[1]:
        raise ValueError(f"the points have {Z.shape[1]} columns, but X has {X.shape[1]}")
    return np.array(Z, dtype="float64")


def _started_points(start, count):
    if not isinstance(start, InducingFit):
        raise TypeError(
            f"start must be an earlier result of fit_inducing, got {type(start).__name__}: points alone "
            "go to the class, inducing=Z"
        )
    if count is not None and len(start.Z) != count:
        raise ValueError(
            f"start has {len(start.Z)} points, but the GP has {count}: go on with a GP of "
            f"inducing={len(start.Z)}"
        )
    return start.Z


def _check_variables(start, hyper):
    here = hyper.untransformed(hyper.initial)
    trained, free = (
        [f"{name} {np.shape(value)}" for name, value in sorted(point.items())]
        for point in (start.point, here)
    )
    if trained != free:
        raise ValueError(
            f"start comes from another model: it trained {', '.join(trained) or 'no variables'}, and "
            f"here {', '.join(free) or 'no variables'} are free"
        )


class _Loop:
    """Epochs of minibatches; keeps the best state where one is judged, and on an interruption."""

    def __init__(self, trainer, data, start):
        self.trainer, self.data = trainer, data
        self.judged = len(data.held.y) > 0
        self.losses = [] if start is None else list(start.losses)
        self.errors = [] if start is None else list(start.validation)
        self.best = None

    def run(self, epochs, batch_size, patience, rng, progressbar):
        """All epochs, or fewer."""
        progress = CustomProgress(
            *Progress.get_default_columns(),
            TextColumn("{task.fields[loss]}"),
            console=Console(theme=default_progress_theme),
            disable=not progressbar,
        )
        steps = -(-self.data.count // batch_size)
        best_score, since = np.inf, 0
        with progress:
            task = progress.add_task("Training the points", total=epochs * steps, loss="")
            try:
                for _ in range(epochs):
                    self._epoch(batch_size, rng, progress, task)
                    score = self.errors[-1] if self.judged else self.losses[-1]
                    since = 0 if score < best_score else since + 1
                    if since == 0:
                        best_score, candidate = score, self.trainer.state()
                    if self.judged and since >= patience:
                        break
                done = progress.tasks[task].completed
                progress.update(task, total=done)  # it may have stopped early
            except KeyboardInterrupt:
                warn(
                    f"interrupted after {len(self.losses)} epochs: returning the best values so far; "
                    "continue with start="
                )
                self.best = candidate if np.isfinite(best_score) else None
                return
        if self.judged:
            self.best = candidate

    def _epoch(self, batch_size, rng, progress, task):
        total = 0.0
        for batch in self.data.batches(batch_size, rng):
            loss = float(self.trainer.step(*batch))
            if not np.isfinite(loss):
                raise FloatingPointError(
                    "the loss is not finite: lower learning_rate, standardise X and y, or give the "
                    "hyperparameters priors that keep them away from 0"
                )
            total += loss * len(batch.y)
            progress.update(task, advance=1, loss=f"loss {loss:.4g}")
        self.losses.append(total / self.data.count)
        if self.judged:
            judges = self.data.judges(ERROR_ROWS)
            self.errors.append(self.trainer.error(judges, self.data.held))
