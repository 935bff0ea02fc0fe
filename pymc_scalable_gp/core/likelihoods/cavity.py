"""Rows left out under any likelihood: the function there given all others, and what it says of the row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from scipy.special import logsumexp
from scipy.stats import norm

from pymc_scalable_gp.core.data.inputs import held_value
from pymc_scalable_gp.core.likelihoods.precision import Precision
from pymc_scalable_gp.utils.compiled import check_reached, compiled, model_inputs

# Nodes of the quadrature, of which so many are evaluated at once, and its reach in sds of the function.
_NODES, _AT_ONCE, _REACH = 160, 32, 8.5
# Probabilities below a target have no step that counts farther out than these sds.
_STEP = 4.0


@dataclass(frozen=True, eq=False)
class CavityPrecision(Precision):
    r"""Rows under any likelihood, from the precision of the pseudo-targets that predictions follow from.

    Given all others ``f_i ~ N(t_i - [P e]_i / P_ii, 1 / P_ii - 1 / W_i)``, and
    ``p(y_i | y_-i) = int p(y_i | f) N(f) df`` by the trapezoidal rule in t, ``f = c + s sinh t``: from
    nodes close together around the posterior mean c, within its sd s, to some as wide apart as N asks.
    """

    logp: Any  # log densities (s, n) of the targets at functions (s, n)
    below: Any  # probabilities (s, n) below the targets there

    def left_out(self):
        """Log density (n,) of each row given all others, and the probability (n,) below it."""
        mean = self.y - self.alpha / self.diagonal
        cavity = np.maximum(1.0 / self.diagonal - self.noise, 1e-12 / self.diagonal)
        own = 1.0 / (1.0 / cavity + 1.0 / self.noise)  # with the row's own pseudo-target
        centre = own * (mean / cavity + self.y / self.noise)
        sd, wide = np.sqrt(own), np.sqrt(cavity)

        def nodes(shares, middle):
            """Functions on both sides of `middle`, and the logarithms of their weights."""
            ends = np.arcsinh((np.abs(mean - middle) + _REACH * wide) / sd)
            t, step = shares[:, None] * ends, 2.0 * ends / (_NODES - 1)
            at = middle + sd * np.sinh(t)
            return at, np.log(step * sd * np.cosh(t)) + norm.logpdf(at, mean, wide)

        step = np.clip(centre, mean - _STEP * wide, mean + _STEP * wide)
        logp, below = np.full(len(mean), -np.inf), np.zeros(len(mean))
        for shares in np.split(np.linspace(-1.0, 1.0, _NODES), _NODES // _AT_ONCE):
            at, weights = nodes(shares, centre)
            # Far out a density may overflow to NaN, where it is 0.
            terms = weights + np.fmax(self.logp(at), -np.inf)
            logp = np.logaddexp(logp, logsumexp(terms, axis=0))
            at, weights = nodes(shares, step)
            below += (np.exp(weights) * self.below(at)).sum(axis=0)
        return logp, below.clip(0.0, 1.0)  # the weights' sum is 1 to rounding

    def group_logp(self, rows):
        """Raise ValueError: the rows of a group do not factorise."""
        raise ValueError(
            "groups= needs Gaussian noise: under other likelihoods leave groups out by fitting again"
        )


class CavityPrecisions:
    """Precision under a :class:`LaplaceRows`, as a function of the model's variables.

    Probabilities below what has a mass of its own (counts, classes, censored times, the zeros of a hurdle)
    are those of a random place within its step.
    """

    def __init__(self, laplace, model):
        pseudo, rows = laplace.predictive, laplace.rows
        self._inner = pseudo.precisions(model)
        functions = pt.matrix("functions", dtype="float64")
        y = laplace.y.tensor
        outputs = [rows.logp_of(functions, y), self._cdf(laplace, functions)]
        self.inputs = model_inputs([*outputs, *self._inner.inputs], model)
        check_reached(outputs, self.inputs)
        self._places = [self.inputs.index(v) for v in self._inner.inputs]
        self._logp, self._below = (compiled([functions, *self.inputs], [out]) for out in outputs)

    @staticmethod
    def _cdf(laplace, functions):
        """Probabilities (s, n) below the targets; NaN where PyMC does not know them."""
        rows, y = laplace.rows, laplace.y.tensor
        upper = rows.cdf_of(functions, y)
        if upper is None:
            return pt.full_like(functions, np.nan)
        step = 1.0 if rows.is_discrete else np.finfo(float).eps * abs(y) + np.finfo(float).tiny
        share = np.random.default_rng(0).uniform(size=len(held_value(laplace.y, "y")))
        under = rows.cdf_of(functions, y - step)
        return under + share * (upper - under)

    def __call__(self, values):
        """Precision of the pseudo-targets, and the rows' own densities."""
        found = self._inner([values[place] for place in self._places])
        return CavityPrecision(
            found.y, found.noise, found.alpha, found.diagonal, found.block,
            logp=lambda at: self._logp(at, *values)[0],
            below=lambda at: self._below(at, *values)[0],
        )  # fmt: skip
