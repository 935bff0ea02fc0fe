"""Better likelihoods to compare with: the exact one on some rows, more neighbours on all rows."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_scalable_gp.core.data.inputs import Data, held_value
from pymc_scalable_gp.core.data.missing import refuse_replaced_by_missing
from pymc_scalable_gp.core.features.nystrom import NystromMap, pivoted_rows
from pymc_scalable_gp.core.likelihoods.base import Likelihood, Training
from pymc_scalable_gp.core.likelihoods.exact import ExactRows
from pymc_scalable_gp.core.vecchia.likelihood import VecchiaRows, VecchiaSettings
from pymc_scalable_gp.utils.graphs import fixed_shared

# Reference with neighbours: most inducing points, and rows per block.
POINTS, BLOCK = 200, 16

# Most rows whose exact likelihood is evaluated hundreds of times.
MOST_EXACT_ROWS = 10_000

# A share of the noise variance (of the prior variance, without noise) that features may miss.
TAIL = 0.05


class Pair(NamedTuple):
    """A better likelihood, and the one that is checked, of the same rows."""

    better: Likelihood
    own: Likelihood


def subset_pair(training: Likelihood, cov_func, rows: np.ndarray) -> Pair | None:
    """The exact likelihood of some rows, and this one's; None where it has none of these."""
    own = training.part(rows)
    return None if own is None else Pair(ExactRows(training.data.part(rows), cov_func), own)


def check_comparable(gp, training: Training | None) -> None:
    """Raise ValueError where no other likelihood of the same rows and prior can be had."""
    if training is None or training.gaussian is None:
        raise ValueError(
            f"{type(gp).__name__} has no marginal likelihood of which there is an exact one: call "
            "marginal_likelihood first; latent functions have none"
        )
    if not training.has_rows:
        raise ValueError("this likelihood knows its rows by their statistics alone: give it X and y")
    refuse_replaced_by_missing(training)
    if training.data.weights is not None:
        raise ValueError(
            "eigenfunctions with weights= are a prior of their own, which no exact kernel belongs to"
        )


def exact_rows(gp, training: Training) -> Training:
    """The same likelihood of the same rows, with the exact GP."""
    return training.around(ExactRows(training.gaussian.data, gp.prior_cov))


def with_neighbors(
    training, cov_func, neighbors: int, point, progressbar, n_inducing: int = POINTS
) -> Training:
    """The same likelihood of the same rows with inducing points and neighbours, chosen at a point."""
    X, noise = held_value(training.data.X, "X"), training.gaussian.data.noise_cov
    if noise is not None:  # neighbours know noise of single rows alone: the rest is the function's
        cov_func = cov_func + noise
    chosen = pivoted_rows(cov_func, X, min(n_inducing, len(X)), 0, point)
    points = NystromMap(cov_func, fixed_shared(X[chosen]), X.min(axis=0), X.max(axis=0))
    own = {"X": Data.fixed(X), "feature_map": points, "approx": "VIF", "weights": None, "noise_cov": None}
    data = replace(training.gaussian.data, **own)
    settings = VecchiaSettings.checked(neighbors, BLOCK)
    return training.around(VecchiaRows.of(data, cov_func, settings, point, progressbar))


def rank_needed(K: np.ndarray, noise: float | None) -> float:
    """Features that leave less than :data:`TAIL` of the noise variance, whatever they are.

    From the eigenvalues of the kernel matrix K (s, s) of some rows; infinite where it takes more than
    half of them, more than the subsample can tell.
    """
    if not np.isfinite(K).all():
        return np.nan
    values = np.linalg.eigvalsh(K)[::-1].clip(0.0)
    left = (values.sum() - np.cumsum(values)) / len(K)
    allowed = TAIL * (np.diag(K).mean() if noise is None else noise)
    needed = int(np.argmax(left <= allowed)) + 1
    return float(needed) if needed <= len(K) / 2 else np.inf


def condition_number(K: np.ndarray, noise: float, n: int) -> float:
    """Condition number of the covariance of n targets, estimated from K (s, s) of some rows."""
    if not np.isfinite(K).all():
        return np.nan
    return float(n / len(K) * np.linalg.eigvalsh(K)[-1] / noise + 1.0)
