"""Better likelihoods to compare with: the exact one on some rows, more neighbours on all rows."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_scalable_gp.core.data.inputs import Data, held_value
from pymc_scalable_gp.core.data.missing import refuse_replaced
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


def check_comparable(gp, training: Training | None) -> None:
    """Raise ValueError where no other likelihood of the same rows and prior can be had."""
    if training is None or training.gaussian is None:
        raise ValueError(
            f"{type(gp).__name__} has no marginal likelihood of which there is an exact one: call "
            "marginal_likelihood first; latent functions have none"
        )
    if not training.has_rows:
        raise ValueError("this likelihood knows its rows by their statistics alone: give it X and y")
    refuse_replaced(training)
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


def kernel_figures(K: np.ndarray, noise: float | None, n: int) -> dict[str, float]:
    """Figures by the eigenvalues of the kernel matrix K (s, s) of some of n rows; NaN if it is not finite.

    ``condition``, the condition number of the covariance of n targets, where they have a `noise`; and
    ``rank_needed``, features that leave less than :data:`TAIL` of the noise variance, whatever they are:
    infinite where it takes more than half of the s rows, more than these can tell.
    """
    values = np.linalg.eigvalsh(K)[::-1] if np.isfinite(K).all() else np.full(len(K), np.nan)
    found = {} if noise is None else {"condition": float(n / len(K) * values[0] / noise + 1.0)}
    values = values.clip(0.0)
    left = (values.sum() - np.cumsum(values)) / len(K)
    allowed = TAIL * (np.diag(K).mean() if noise is None else noise)
    needed = float(np.argmax(left <= allowed) + 1) if np.isfinite(left).all() else np.nan
    return found | {"rank_needed": np.inf if needed > len(K) / 2 else needed}
