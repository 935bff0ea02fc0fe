"""Classes and settings for data, kernel and budget, with what they cost and what they lose."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.spatial.distance import cdist

from pymc_scalable_gp.advice.candidates import EXACT, candidates
from pymc_scalable_gp.advice.costs import chains_at_once, cost_of, held, seconds
from pymc_scalable_gp.advice.facts import Facts, find_facts
from pymc_scalable_gp.advice.loss import Sample, expected_loss, profile_noise, take_sample
from pymc_scalable_gp.advice.report import GIB, MUCH, Suggestions, notes_on, verdict
from pymc_scalable_gp.core.data.inputs import check_inputs, check_target
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.cov.queries import check_kernel
from pymc_scalable_gp.methods.kmcg.regular_grid import RegularGrid
from pymc_scalable_gp.utils.checks import check_choice, check_count, check_positive
from pymc_scalable_gp.utils.graphs import is_random
from pymc_scalable_gp.utils.memory import free_memory

LIKELIHOODS = (
    "normal", "poisson", "bernoulli", "binomial", "negative_binomial", "student_t", "gamma", "beta",
    "other",
)  # fmt: skip

COLUMNS = (
    "class_name", "settings", "seconds_a_gradient", "minutes", "memory", "loss", "missed", "fits",
)  # fmt: skip

# Multiples of the columns' spread that are tried as lengthscales where no kernel was given, and rows on
# which they are.
LENGTHSCALES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
FITTED = 400


def suggest(
    X, y=None, cov_func=None, likelihood="normal", *, minutes=60.0, memory=None, point=None,
    random_seed=0, model=None,
) -> Suggestions:  # fmt: skip
    r"""Which class, with which settings: a table of candidates, what each costs, and what it loses.

    Nothing is fitted, and no other function of this package calls this one.

    Parameters
    ----------
    X : array, shape (n, d), or RegularGrid
        Inputs.
    y : array, shape (n,), optional
        Observations. Under "normal" the noise is estimated from some of them; left out, its variance is
        taken as a hundredth of the prior variance.
    cov_func : pm.gp.cov.Covariance, optional
        The kernel that is meant. Left out: `ExpQuad` with free lengthscales, compared at lengthscales in
        proportion to the columns' standard deviations.
    likelihood : str
        "normal", "poisson", "bernoulli", "binomial", "negative_binomial", "student_t", "gamma" or "beta":
        classes that integrate the function out, by ``likelihood=`` where it is not normal, beside latent
        ones; "other", without a second derivative in the function: latent ones.
    minutes : float
        Time for a posterior.
    memory : float, optional
        Memory in GiB for all chains. Default: half of what is free.
    point : dict, optional
        Hyperparameters at which losses are computed, such as :func:`~pymc_scalable_gp.subset_map`
        returns; the model's initial point for those left out. The lengthscales decide: give plausible
        ones.
    random_seed : int
        Seed of the rows that are compared.
    model : pm.Model, optional
        Needed outside the model context, where the kernel has random hyperparameters.

    Returns
    -------
    xarray.Dataset
        Over ``candidate``: those within the budget first, by ``loss``, then the others by how far they
        miss it. A loss of less than a nat over all rows counts as none; one that is not known, or known at
        one point alone (a frozen basis), as 100 nats per thousand rows. ``class_name``; ``settings``, a
        dictionary of keywords; ``seconds_a_gradient``; ``minutes``; ``memory`` in bytes; ``loss``;
        ``missed``, the share of the prior variance that features miss; ``fits``. ``attrs``: ``facts``,
        ``verdict`` and ``notes`` in words, and ``code`` for the first candidate. It prints as a table
        with these.

    Raises
    ------
    TypeError, ValueError
        For bad inputs, an unknown likelihood, a budget that is not positive, or random hyperparameters
        without a model.

    Notes
    -----
    *Seconds per gradient* are counts of operations times the rate of each class, as ``make bench`` measured
    it on one core of a server: nothing is timed here. They compare the classes with one another; on
    another machine all of them change by about one factor.

    *Minutes* are those of :func:`~pymc_scalable_gp.sample_importance` where the free parameters are few
    (300 gradients, of which the densities of an effective sample size of 400 cost two thirds); else of 1000
    draws of ``pm.sample`` after 1000 of tuning, chains side by side, one per core: 15 gradients per draw
    beyond 50 parameters, 31 where a few hundred coefficients are sampled, 127 with a variable for each
    row. 90 seconds of compilation with empty caches are added.

    *Loss* is the Kullback-Leibler divergence from the exact GP on up to 600 rows, half of them random and
    half in eight clumps of near rows, in nats per thousand rows: what log density the candidate loses on
    data that follow the exact GP, by its own likelihood, built on up to 6000 rows. A divergence that is
    the same for all hyperparameters would do no harm; it is not, and :meth:`FeatureMarginal.check` has the
    rest. On all rows of larger data more is lost than on these. SoftKI's is not known (NaN) before its
    points are learned. With a likelihood that is not normal it is that of the marginal class with the
    same features under the noise that is assumed; Laplace's approximation has its own loss, which
    :meth:`FeatureMarginal.check` tells. KMCG's is that of its steps and probes, on some cells of
    the grid that lie side by side.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_scalable_gp as sgp
    >>> X = np.random.default_rng(1).uniform(size=(60, 2))
    >>> with pm.Model():
    ...     cov = pm.gp.cov.Matern52(2, ls=pm.InverseGamma("ell", 3, 3, shape=2))
    ...     found = sgp.suggest(X, np.sin(6.0 * X[:, 0]), cov, minutes=30)
    >>> "ExactMarginal" in found.class_name.values
    True
    >>> print(found)  # doctest: +SKIP
    """
    check_choice("likelihood", likelihood, LIKELIHOODS)
    minutes = check_positive("minutes", minutes)
    memory = None if memory is None else GIB * check_positive("memory", memory)
    check_count("random_seed", random_seed, 0)
    model = model or pm.Model.get_context(error_if_none=False)
    as_grid = isinstance(X, RegularGrid)
    X, y, grid = _checked(X, y)
    is_normal = likelihood == "normal"
    y = y if is_normal else None  # of which the noise is estimated
    notes, is_free = [], None
    if cov_func is None:
        cov_func, text = default_kernel(X, y, random_seed)
        is_free, point, model = True, None, None
        notes.append(text)
    _check_kernel(cov_func, X, model)
    facts = find_facts(X, grid, cov_func, is_free, is_normal)
    facts = replace(facts, has_modes=likelihood != "other")
    sample = take_sample(X, y, cov_func, point, model, facts.is_dear, random_seed)
    found = compare(facts, sample, minutes, memory or 0.5 * free_memory(), notes)
    return found.assign_attrs(code=found.attrs["code"].splitlines()[-1]) if as_grid else found


def compare(facts: Facts, sample: Sample, minutes, memory, notes=()) -> Suggestions:
    """The table, from what is known of data and budget."""
    rows, refused = [], {}
    for candidate in candidates(facts):
        try:
            rows.append(_row(candidate, expected_loss(candidate, sample, facts), facts))
        except ValueError as reason:
            refused[candidate.class_name] = str(reason)
    if not rows:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    for row in rows:
        row["over"] = max(row["minutes"] / minutes, row["memory"] / memory)
        row["fits"] = row["over"] <= 1.0
    rows.sort(key=lambda row: order_of(row, facts.n))
    first = rows[0].pop("made_by")
    notes = [*notes, *notes_on(facts, sample, first)]
    notes += [f"{name} was left out: {reason}." for name, reason in refused.items()]
    data = {name: ("candidate", np.array([row[name] for row in rows])) for name in COLUMNS}
    return Suggestions(
        data, {"candidate": [row["candidate"] for row in rows]},
        attrs={
            "facts": facts.in_words(), "verdict": verdict(rows, facts.n, minutes, memory),
            "notes": " ".join(notes), "code": first.code(),
        },
    )  # fmt: skip


def _row(candidate, loss, facts) -> dict:
    """Figures of one candidate."""
    cost = cost_of(candidate.class_name, candidate.settings, facts, candidate.by_mode)
    gradient, once = seconds(candidate.class_name, cost)
    return {
        "candidate": str(candidate), "made_by": candidate, "class_name": candidate.class_name,
        "settings": candidate.settings, "seconds_a_gradient": gradient,
        "minutes": (once + candidate.gradients * gradient) / 60.0,
        "memory": held(cost, facts, chains_at_once()), **loss._asdict(),
    }  # fmt: skip


def order_of(row, n) -> tuple:
    """Within the budget by loss, beyond it by how far it is exceeded; then the faster first."""
    if not row["fits"]:
        return True, row["over"], row["minutes"]
    lost = MUCH if np.isnan(row["loss"]) else row["loss"]  # not known: neither good nor bad
    if lost * n < 1000.0:  # less than a nat over all rows: no posterior shows it
        lost = 0.0
    if row["settings"].get("basis") == "frozen":  # known at its reference alone: more elsewhere
        lost = max(lost, MUCH)
    if row["class_name"] in EXACT:  # nothing is lost at other hyperparameters either
        lost = -1.0
    return False, lost, row["minutes"]


def default_kernel(X, y, random_seed) -> tuple[pm.gp.cov.BaseCovariance, str]:
    """An ExpQuad with a lengthscale per column, and in words how these were chosen."""
    rows = np.random.default_rng(random_seed).permutation(len(X))[:FITTED]
    sd, d = X.std(axis=0), X.shape[1]
    sd = np.where(sd > 0.0, sd, 1.0)
    multiple, scale, how = np.sqrt(d), 1.0, "the square root of the number of columns"
    if y is not None:
        square = cdist(X[rows] / sd, X[rows] / sd, "sqeuclidean")
        e = y[rows] - y.mean()
        tried = [(profile_noise(np.exp(-0.5 * square / each**2), e), each) for each in LENGTHSCALES]
        (_, _, scale), multiple = max(tried)
        how = f"the best of {len(tried)} multiples on {len(rows)} rows"
    text = (
        f"No cov_func was given: ExpQuad with lengthscales of {multiple:.3g} standard deviations of each "
        f"column ({how})."
    )
    return float(scale) * pm.gp.cov.ExpQuad(d, ls=multiple * sd), text


def _checked(X, y):
    """Inputs, targets and grid as arrays."""
    if isinstance(X, RegularGrid):
        points = X.points
        return points, None if y is None else X.ravel(y), X
    value = check_inputs(X).value
    return value, None if y is None else check_target(y, len(value)).value, None


def _check_kernel(cov_func, X, model) -> None:
    check_kernel(cov_func)
    if model is None and is_random(kernel_matrix(cov_func, pt.constant(X[:2]))):
        raise ValueError(
            "cov_func has random hyperparameters, whose values losses need: call suggest in the model "
            "context, or give model="
        )
