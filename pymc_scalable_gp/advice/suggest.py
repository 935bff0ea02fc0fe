"""Classes and settings for data, kernel and budget, with their costs and losses."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from joblib import cpu_count
from scipy.spatial.distance import cdist

from pymc_scalable_gp.advice.candidates import candidates
from pymc_scalable_gp.advice.costs import cost_of, held, seconds
from pymc_scalable_gp.advice.facts import Facts, find_facts
from pymc_scalable_gp.advice.loss import Sample, expected_loss, profile_noise, take_sample
from pymc_scalable_gp.advice.report import GIB, Suggestions, notes_on, rank, verdict
from pymc_scalable_gp.core.data.inputs import check_inputs, check_target
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.cov.queries import check_kernel
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.utils.blocks import with_progress
from pymc_scalable_gp.utils.checks import check_choice, check_count, check_positive
from pymc_scalable_gp.utils.graphs import is_random, model_here
from pymc_scalable_gp.utils.memory import free_memory

LIKELIHOODS = (
    "normal", "poisson", "bernoulli", "binomial", "negative_binomial", "student_t", "gamma", "beta",
    "other",
)  # fmt: skip

# Multiples of the columns' spread that are tried as lengthscales where no kernel was given, and on how
# many rows.
LENGTHSCALES, FITTED = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 400


def suggest(
    X, y=None, cov_func=None, likelihood="normal", *, minutes=60.0, memory=None, point=None,
    progressbar: bool = True, random_seed=0, model=None,
) -> Suggestions:  # fmt: skip
    """Which class, with which settings: a table of candidates, with the cost and the loss of each.

    Nothing is fitted, and no other function of this package calls this one.

    Parameters
    ----------
    X : array, shape (n, d), or RegularGrid
        Inputs.
    y : array, shape (n,), optional
        Observations, from some of which the noise is estimated under "normal". Default: its variance is
        a hundredth of the prior variance.
    cov_func : pm.gp.cov.Covariance, optional
        The kernel. Default: `ExpQuad`, with free lengthscales in proportion to the columns' spread.
    likelihood : str or callable
        "normal", "poisson", "bernoulli", "binomial", "negative_binomial", "student_t", "gamma" or "beta",
        or the function that ``likelihood=`` takes: classes that integrate the function out, beside latent
        ones where it is not normal. "other", without a second derivative in the function: latent ones.
    minutes : float
        Time for a posterior.
    memory : float, optional
        GiB for all chains, or for all threads of :func:`sample_importance`. Default: half of what is free.
    point : dict, optional
        Hyperparameters at which losses are computed, such as :func:`~pymc_scalable_gp.subset_map`
        returns; the model's initial point for those left out. The lengthscales decide.
    progressbar : bool
        Show progress over the candidates.
    random_seed : int
        Seed of the rows that are compared.
    model : pm.Model, optional
        Needed outside the model context, where the kernel has random hyperparameters.

    Returns
    -------
    xarray.Dataset
        Over ``candidate``, in this order: within the budget by ``ranked``, the exact ones first, then by
        ``minutes``; beyond it by how far they exceed it. ``ranked`` is ``loss``, but 0 below 1 nat over all
        rows, and at least 100 where it is known at one point (a frozen basis) or not at all. ``why`` says
        it in words. ``class_name``; ``settings``, a dictionary of keywords; ``seconds_per_gradient``;
        ``memory`` in bytes; ``missed``, the unexplained share of the prior variance; ``fits``.
        ``attrs``: ``facts``, ``verdict``, ``notes``, and ``code`` for the first. `print` shows five of
        the columns and these; ``to_dataframe()`` has all.

    Raises
    ------
    TypeError, ValueError
        For bad inputs, an unknown likelihood, a budget that is not positive, or random hyperparameters
        without a model.

    Notes
    -----
    *Seconds* are counted operations times the rate of each class on one core of a server (``make bench``):
    another machine changes all by about one factor. *Minutes* are those of 400 draws: by
    :func:`~pymc_scalable_gp.sample_importance`, 300 gradients' worth, up to 50 parameters; else by
    ``pm.sample``, after 1000 of tuning, 15 gradients per draw, 31 with a few hundred coefficients, 127 with
    a variable for each row. 90 seconds of compilation are added.

    *Loss* is the Kullback-Leibler divergence of a candidate's own likelihood, built on up to 6000 rows,
    from the exact GP on up to 600, half of them in clumps of near rows, in nats per thousand rows. It is
    larger on all rows of larger data. KMCG's is half the error of its log determinant, on adjacent cells.
    Under another likelihood it is that of the same features under the assumed noise; Laplace's
    approximation has its own loss, which :meth:`FeatureMarginal.check` tells.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.random.default_rng(1).uniform(size=(60, 2))
    >>> with pm.Model():
    ...     cov = pm.gp.cov.Matern52(2, ls=pm.InverseGamma("ell", 3, 3, shape=2))
    ...     found = sgp.suggest(X, np.sin(6.0 * X[:, 0]), cov, minutes=30)
    >>> print(found.attrs["code"])
    gp = sgp.ExactMarginal(cov_func=cov)
    """
    if not callable(likelihood):
        check_choice("likelihood", likelihood, LIKELIHOODS)
    minutes = check_positive("minutes", minutes)
    memory = 0.5 * free_memory() if memory is None else GIB * check_positive("memory", memory)
    check_count("random_seed", random_seed, 0)
    model = model_here(model, needed=False)
    grid = X if isinstance(X, RegularGrid) else None
    y = X.ravel(y) if grid and y is not None else y
    given, X = X, check_inputs(X.points if grid else X).value
    y = None if y is None else check_target(y, len(X), given).value
    is_normal, notes, is_free = likelihood == "normal", [], None
    y = y if is_normal and y is not None and np.ptp(y) > 0.0 else None  # for estimating the noise
    if cov_func is None:
        cov_func, text = default_kernel(X, y)
        is_free, point, model = True, None, None
        notes.append(text)
    check_kernel(cov_func)
    if model is None and is_random(kernel_matrix(cov_func, pt.constant(X[:2]))):
        raise ValueError(
            "cov_func has random hyperparameters, whose values losses need: call suggest in the model "
            "context, or give model="
        )
    facts = find_facts(X, grid, cov_func, is_free, is_normal, likelihood != "other")
    sample = take_sample(X, y, cov_func, point, model, facts.is_dear, random_seed)
    found = compare(facts, sample, minutes, memory, notes, progressbar)
    return found.assign_attrs(code=found.attrs["code"].splitlines()[-1]) if grid else found


def compare(facts: Facts, sample: Sample, minutes, memory, notes=(), progressbar=False) -> Suggestions:
    """The table, from what is known of data and budget."""
    rows, refused, cores = [], {}, min(4, cpu_count())  # of chains, or of threads
    tried = candidates(facts)
    for each in with_progress(tried, "Comparing classes", len(tried), progressbar):
        try:
            loss = expected_loss(each, sample, facts)
        except ValueError as reason:
            refused[each.class_name] = str(reason)
            continue
        cost = cost_of(each.class_name, each.settings, facts, each.by_mode)
        gradient, once = seconds(each.class_name, cost)
        row = {
            "candidate": each.call(), "made_by": each, "label": each.label, "settings": each.settings,
            "class_name": each.class_name, "seconds_per_gradient": gradient,
            "minutes": (once + each.gradients * gradient) / 60.0,
            "memory": held(cost, facts, cores, each.steps is None), **loss._asdict(),
        }  # fmt: skip
        rows.append(rank(row, facts.n, minutes, memory))
    if not rows:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    rows.sort(key=lambda row: row["place"])
    notes = [*notes, *notes_on(facts, sample, rows[0]["made_by"])]
    notes += [f"{name} was left out: {reason}." for name, reason in refused.items()]
    columns = [name for name in rows[0] if name not in ("candidate", "made_by", "place")]
    data = {name: ("candidate", np.array([row[name] for row in rows])) for name in columns}
    return Suggestions(
        data, {"candidate": [row["candidate"] for row in rows]},
        attrs={
            "facts": facts.in_words(), "verdict": verdict(rows, minutes, memory),
            "notes": " ".join(notes), "code": rows[0]["made_by"].code(),
        },
    )  # fmt: skip


def default_kernel(X, y) -> tuple[pm.gp.cov.BaseCovariance, str]:
    """An ExpQuad with a lengthscale per column, and in words how these were chosen."""
    sd, d = X.std(axis=0), X.shape[1]
    sd = np.where(sd > 0.0, sd, 1.0)
    found = [(0.0, 1.0, np.sqrt(d))]
    if y is not None:
        rows = np.random.default_rng(0).permutation(len(X))[:FITTED]
        square, e = cdist(X[rows] / sd, X[rows] / sd, "sqeuclidean"), y[rows] - y.mean()
        tried = [(profile_noise(np.exp(-0.5 * square / m**2), e), m) for m in LENGTHSCALES]
        found = [(logp, scale, m) for (logp, _, scale), m in tried]
    _, scale, multiple = max(found)
    text = "No cov_func was given: ExpQuad with lengthscales of "
    text += f"{multiple:.3g} standard deviations of each column."
    return float(scale) * pm.gp.cov.ExpQuad(d, ls=multiple * sd), text
