"""Where a search of the mode starts, and where neighbours are chosen before it."""

import logging

import numpy as np

from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.fit.subset_map import subset_map
from pymc_scalable_gp.core.vecchia.likelihood import VecchiaRows
from pymc_scalable_gp.cov.queries import fixed_matrices, kept_matrix
from pymc_scalable_gp.importance.density import MOST_PARAMETERS, Density
from pymc_scalable_gp.importance.mode import NEAR_GAIN, SMALL_STEPS, climb
from pymc_scalable_gp.utils.compiled import compiled, model_inputs
from pymc_scalable_gp.utils.graphs import is_random, model_here

_log = logging.getLogger("pymc")
# Rows from which the mode on some of them is worth its search.
FEWEST_FOR_SUBSET = 3000
# Rows at whose mode a likelihood chooses its neighbours, where there are as many.
REFERENCE_ROWS = 300
# Steps towards the mode of all rows: of fewer rows, or under another likelihood than the normal.
STEPS = 20


def start_of_search(gp, density: Density) -> dict | None:
    """Point from which samplers start that need one; None without neighbours to choose and few rows.

    Where neighbours were chosen again at a point, that one. Else, under Gaussian noise and with 3000 rows,
    the mode on 1000 of them; and, as parameters of other likelihoods may go by rows, what a few steps with
    all rows reach. Neighbours of a GP that the user did not build are chosen again there, once: they, and
    so the density, are the same for all seeds and in later runs.
    """
    training, model = gp.training, density.model
    known = training is not None and training.gaussian is not None and training.has_rows
    if not (known and model is gp.model) or training.data.weights is not None:
        return None
    if is_random(training.X.tensor):
        return None
    near = isinstance(training.gaussian, VecchiaRows)
    if near and (chosen := training.gaussian.plan.point):
        return {v.name: chosen[v.name] for v in model.free_RVs if v.name in chosen}
    near = near and gp.is_built_unasked and not kept_matrix(gp.prior_cov)
    X, y = held_value(training.X, "X"), held_value(training.data.y, "y")
    gaussian = not training.any_likelihood
    if gaussian and not model_inputs([training.sigma, *gp.prior_graphs(X)], model):
        return None
    if not gaussian or len(X) < FEWEST_FOR_SUBSET or fixed_matrices(gp.prior_cov):
        return _after_steps(gp, density) if near else None
    point = subset_map(
        gp, X, y, training.sigma, point=gp.reference, random_seed=0, progressbar=False, model=model
    )  # fmt: skip
    words = "Starts from the mode of the exact GP on 1000 of the rows"
    if near:
        with model:
            gp.rebuild(point)
        words += "; neighbors are chosen again there"
    _log.info(words)
    return point


def _after_steps(gp, density) -> dict | None:
    """Where a few steps with all rows lead; neighbours are chosen again there.

    None where the density is not finite at the start, which the search of the mode refuses: the next one
    may begin elsewhere, and neighbours are chosen for good.
    """
    location, value, _ = climb(density, density.initial, maxiter=STEPS, gain=NEAR_GAIN, steps=SMALL_STEPS)
    if not np.isfinite(value):
        return None
    shown = density.shown(location[None])
    point = {v.name: shown[v.name][0] for v in density.model.free_RVs}
    with density.model:
        gp.rebuild(point)
    _log.info("Neighbors are chosen again after a few steps towards the mode")
    return point


def reference_on_subset(gp, X, y, sigma) -> dict | None:
    """Hyperparameters that points and neighbours of a new likelihood go by: the mode on a few rows.

    None where nothing is free, for few rows, for inputs with a prior, and for more parameters than
    such rows tell: then they go by the model's initial point.
    """
    if len(X.value) < REFERENCE_ROWS or gp.parts != (gp,) or is_random(X.tensor):
        return None
    model = model_here()
    free = model_inputs([sigma, *gp.prior_graphs(X.value)], model)
    if not free or sum(compiled([], [rv.size for rv in free])()) > MOST_PARAMETERS:
        return None
    try:
        point = subset_map(
            gp, X.value, y.value, sigma, max_rows=REFERENCE_ROWS, random_seed=0, progressbar=False,
            model=model,
        )  # fmt: skip
    except ValueError as error:
        _log.info(f"Neighbors are chosen at the model's initial point, as {error}")
        return None
    _log.info(f"Neighbors are chosen at the mode of the exact GP on {REFERENCE_ROWS} of the rows")
    return point
