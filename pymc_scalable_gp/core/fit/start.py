"""Where a search of the mode starts, and where neighbours are chosen before it."""

import logging

import pytensor.tensor as pt

from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.fit.subset_map import subset_map
from pymc_scalable_gp.core.vecchia.likelihood import VecchiaRows
from pymc_scalable_gp.importance.density import Density
from pymc_scalable_gp.importance.mode import climb
from pymc_scalable_gp.utils.compiled import model_inputs

_log = logging.getLogger("pymc")
# Rows from which the mode on some of them is worth its search.
FEWEST_FOR_SUBSET = 3000
# Steps towards the mode of all rows, under another likelihood than the normal.
STEPS = 10


def start_of_search(gp, density: Density, random_seed) -> dict | None:
    """Point from which samplers start that need one; None for few rows.

    Under Gaussian noise the mode on 1000 of the rows; under other likelihoods, whose parameters may go by
    rows, what a few steps with all of them reach. Neighbours of a GP that the user did not build are
    chosen again there.
    """
    training, model = gp.training, density.model
    known = training is not None and training.gaussian is not None and training.has_rows
    if not (known and gp.whole_kernel and model is gp.model) or training.data.weights is not None:
        return None
    near = isinstance(training.gaussian, VecchiaRows) and gp.is_built_unasked
    if training.any_likelihood:
        return _after_steps(gp, density) if near else None
    X, y = held_value(training.X, "X"), held_value(training.data.y, "y")
    if len(X) < FEWEST_FOR_SUBSET or not model_inputs([training.sigma, *_kernel(gp)], model):
        return None
    point = subset_map(
        gp, X, y, training.sigma, random_seed=random_seed, progressbar=False, model=model
    )
    words = "Starts from the mode of the exact GP on 1000 of the rows"
    if near:
        with model:
            gp.rebuild(point)
        words += "; neighbors are chosen again there"
    _log.info(words)
    return point


def _after_steps(gp, density) -> dict:
    """Where a few steps with all rows lead; neighbours are chosen again there."""
    location, *_ = climb(density, density.initial, maxiter=STEPS)
    shown = density.shown(location[None])
    point = {v.name: shown[v.name][0] for v in density.model.free_RVs}
    with density.model:
        gp.rebuild(point)
    _log.info("Neighbors are chosen again after a few steps towards the mode")
    return point


def _kernel(gp) -> list:
    """Kernel and mean at one row."""
    at = pt.zeros((1, gp.training.X.value.shape[1]))
    return [gp.cov_func(at), mean_vector(gp.mean_func, at)]
