"""Training of SoftKI's interpolation points and of the hyperparameters by minibatches."""

from dataclasses import dataclass, field

import numpy as np
from pymc.progress_bar import create_simple_progress

from pymc_scalable_gp.core.data.inputs import Data, check_sigma
from pymc_scalable_gp.methods.softki.batches import training_rows
from pymc_scalable_gp.methods.softki.gp import SoftKILatent, SoftKIMarginal
from pymc_scalable_gp.methods.softki.points import spread_points
from pymc_scalable_gp.methods.softki.steps import ERROR_ROWS, OBJECTIVES, Trainer
from pymc_scalable_gp.utils.checks import check_choice, check_count, check_positive
from pymc_scalable_gp.utils.graphs import model_here
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
    gp, X, y=None, sigma=None, *, objective: str = "exact", use_priors: bool = True,
    batch_size: int | None = None, epochs: int = 50, learning_rate: float = 0.01, probes: int = 10,
    validation: float = 0.1, patience: int = 5, start: InducingFit | None = None, random_seed=None,
    progressbar: bool = True, mode=None, model=None,
) -> InducingFit:  # fmt: skip
    r"""Train interpolation points and hyperparameters by Adam on minibatches.

    Each step takes a batch of b rows and ascends

    .. math::

        \tfrac1b \log N(y_b \mid \mu(X_b),\; W_b K_{zz} W_b^\top + \sigma^2 I) + \tfrac1n \log p(\theta)

    in the points Z, starting from k-means centres, and in every free variable that the mean, the
    covariance, sigma and the temperature depend on.

    Parameters
    ----------
    gp : SoftKIMarginal or SoftKILatent
        Not a sum of them. Gives kernel, mean, temperature, ``approx`` and the points to start from. "VIF"
        is trained as "FITC", since a batch has no neighbours.
    X, y : arrays, shapes (n, d) and (n,)
        Data; standardise both, as learning rate and temperature are in their units. NumPy memmaps, zarr
        and dask arrays, the path of Parquet files with the name of y, and a list of pairs (X, y), or
        another object that can be iterated again, are *streamed*: read once for a random sample of 65 536
        rows, from which the points start and the validation rows are taken, and then once per epoch, with
        65 536 rows at a time in a new order.
    sigma : float, array (n,) or random variable, optional
        Noise standard deviation; with a prior, it is trained. Default: fixed, with a variance of 0.001 of
        y's, the paper's choice, which is best for data with little noise (kin40k). For noisier data a
        larger or a trained one is better (elevators, bike): compare ``fit.validation.min()``. A fixed one
        does not estimate the noise: infer sigma afterwards, with the points fixed.
    objective : {"exact", "pseudo"}
        The density above, or Hutchinson's pseudo-loss, whose gradient estimates that of the density from
        `probes` Gaussian vectors scaled to norm ``b^1/2``. It needs ``approx="DTC"``.
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
        Share of the rows, in [0, 1), held out to stop early: training ends when their error has not fallen
        for `patience` epochs, and the values of the best epoch are returned. Without it noisy data are
        overfitted. With 0, all epochs are run and the last values returned, as in the paper.
    patience : int
        See `validation`.
    start : InducingFit, optional
        An earlier result to continue from, with the state of the optimiser. The number of points and the
        free variables have to be the same.
    random_seed : int, optional
        Seed of k-means, batches, probes and validation rows.
    progressbar : bool
        Show progress and loss.
    mode : optional
        PyTensor compilation mode of a step. Numba, the default, takes up to a minute to compile; steps are
        then 3 to 4 times as fast as with "FAST_COMPILE", which suits a few steps.
    model : pm.Model, optional
        Needed outside the model context.

    Returns
    -------
    InducingFit

    Raises
    ------
    TypeError, ValueError
        For bad data or options, a batch larger than the data, or a `start` of another model.
    FloatingPointError
        If the loss is not finite.

    Warns
    -----
    UserWarning
        If interrupted by Ctrl-C: the best values so far are returned.

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
    if not isinstance(gp, SoftKIMarginal | SoftKILatent):
        came = "a sum" if len(getattr(gp, "parts", ())) > 1 else type(gp).__name__
        raise TypeError(
            f"gp must be a SoftKI GP, got {came}: of a sum fit each part, or give one GP the kernel k1 + k2"
        )
    check_choice("objective", objective, OBJECTIVES)
    if objective == "pseudo" and gp.approx not in ("DTC", None):
        raise ValueError(f'objective="pseudo" works with approx="DTC" only, got {gp.approx!r}')
    model = model_here(model)
    rng = np.random.default_rng(random_seed)
    data = training_rows(X, y, validation, rng)
    batch_size = _batch_size(batch_size, data.count)
    check_positive("learning_rate", learning_rate)
    noise = None if sigma is not None else NOISE_SHARE * data.variance
    if noise == 0.0:
        raise ValueError("y is constant: there is nothing to interpolate (or give sigma)")
    sigma = check_sigma(np.sqrt(noise) if sigma is None else sigma, data.size, X, y)
    Z = _start_points(gp, data.sample.X, start, rng)
    trainer = Trainer(
        gp, model, sigma, Z, rows=data.count, learning_rate=learning_rate, objective=objective,
        probes=check_count("probes", probes), use_priors=use_priors, rng=rng, mode=mode,
    )  # fmt: skip
    losses, errors = [], []
    if start is not None:
        _check_variables(start, trainer.hyper)
        trainer.restore(start.state)
        losses, errors = list(start.losses), list(start.validation)
    epochs, patience = check_count("epochs", epochs), check_count("patience", patience)
    best = _train(trainer, data, losses, errors, epochs, patience, batch_size, rng, progressbar)
    state = trainer.state() if best is None else best
    trainer.restore(state)
    Z, point = trainer.values()
    return InducingFit(Z, point, np.array(losses), np.array(errors), noise, state)


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
    wanted = gp.given_inducing
    given = wanted.value if isinstance(wanted, Data) else None
    if start is None:
        Z = spread_points(gp.cov_func, X, wanted, rng) if given is None else given
    elif not isinstance(start, InducingFit):
        raise TypeError(
            f"start must be an earlier result of fit_inducing, got {type(start).__name__}: points alone "
            "go to the class, inducing=Z"
        )
    else:
        Z, count = start.Z, wanted if given is None else len(given)
        if count not in (None, len(Z)):
            raise ValueError(
                f"start has {len(Z)} points, but the GP has {count}: go on with a GP of inducing={len(Z)}"
            )
    if Z.shape[1] != X.shape[1]:
        raise ValueError(f"the points have {Z.shape[1]} columns, but X has {X.shape[1]}")
    return np.array(Z, dtype="float64")


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


def _train(trainer, data, losses, errors, epochs, patience, batch_size, rng, progressbar):
    """Run epochs, adding to `losses` and `errors`; the state to return, or None for the last one.

    The best epoch's, by the validation error; after an interruption without validation by the loss.
    """
    validated = len(data.held.y) > 0
    best, best_score, since = None, np.inf, 0
    progress = create_simple_progress(progressbar=progressbar)
    steps = epochs * -(-data.count // batch_size)
    with progress:
        task = progress.add_task("Training the points", completed=0, total=steps)
        try:
            for _ in range(epochs):
                batches = data.batches(batch_size, rng)
                losses.append(_epoch(trainer, batches, progress, task) / data.count)
                if validated:
                    errors.append(trainer.error(data.judges(ERROR_ROWS), data.held))
                score = errors[-1] if validated else losses[-1]
                since = 0 if score < best_score else since + 1
                if since == 0:
                    best, best_score = trainer.state(), score
                if validated and since >= patience:
                    break
            progress.update(task, completed=steps)  # it may have stopped early
        except KeyboardInterrupt:
            warn(
                f"interrupted after {len(losses)} epochs: returning the best values so far; "
                "continue with start="
            )
            return best
    return best if validated else None


def _epoch(trainer, batches, progress, task) -> float:
    """Sum over the rows of their batch's loss."""
    total = 0.0
    for batch in batches:
        loss = float(trainer.step(*batch))
        if not np.isfinite(loss):
            raise FloatingPointError(
                "the loss is not finite: lower learning_rate, standardise X and y, or give the "
                "hyperparameters priors that keep them away from 0"
            )
        total += loss * len(batch.y)
        progress.update(task, advance=1, description=f"Training the points, loss {loss:.4g}")
    return total
