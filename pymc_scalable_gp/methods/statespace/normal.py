"""Normal vectors whose covariance is that of a sum of Markov processes plus a diagonal."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.methods.statespace.markov import Inputs, MarkovForm
from pymc_scalable_gp.ops.markov_columns import markov_color, markov_smooth, markov_solve
from pymc_scalable_gp.ops.markov_logp import markov_logp


def placed(values, order):
    """Rows in an order; None: as they are."""
    return values if order is None else values[order]


def replaced(values, order):
    """Rows in an order, as they were before."""
    return values if order is None else values[pt.argsort(order)]


class Series(NamedTuple):
    """Rows in the order of their times: steps (n,), features (n, k), and the place in X of each row."""

    dt: TensorVariable
    rates: TensorVariable
    variances: TensorVariable
    features: TensorVariable
    order: TensorVariable | None  # (n,); None where it is that of X

    @classmethod
    def of(cls, form: MarkovForm, x: TensorVariable, order: TensorVariable | None) -> "Series":
        """Of times x (n,) in an order."""
        x = placed(x, order)
        dt = pt.concatenate([pt.zeros(1), x[1:] - x[:-1]])
        features = form.features(Inputs(x, x - disconnected_grad(x[0])))
        return cls(dt, form.rates, form.variances, features, order)

    @property
    def process(self) -> tuple[TensorVariable, ...]:
        """The first arguments of `markov_logp`."""
        return self.dt, self.rates, self.variances, self.features


@dataclass(frozen=True, eq=False)
class MarkovNormal(StructuredNormal):
    """``N(mean, K + diag(noise))`` by the Kalman filter; see `markov_logp`."""

    dt: TensorVariable
    rates: TensorVariable
    variances: TensorVariable
    features: TensorVariable
    order: TensorVariable | None  # place in `mean` of each row of the others
    noise: TensorVariable  # (n,), in the order of the times
    kind: Any

    label = "MarkovNormal"

    @classmethod
    def of(cls, mean, series: Series, noise, kind) -> "MarkovNormal":
        """Of rows in the order of their times, with noise variances (n,) in the order of `mean`."""
        return cls(mean, *series, placed(noise, series.order), kind)

    @property
    def _process(self):
        return self.dt, self.rates, self.variances, self.features, self.noise

    def draw(self, rng, size):
        """All draws at once, as columns."""
        n = self.mean.shape[0]
        next_rng, (z,) = white(rng, size, (n,))
        colored = markov_color(*self._process, z.reshape((-1, n)).T, *self.kind)
        return next_rng, self.mean + replaced(colored, self.order).T.reshape(z.shape)

    def logp(self, value):
        return markov_logp(*self._process, placed(value - self.mean, self.order), *self.kind)

    def solve(self, values):
        solved = markov_solve(*self._process, placed(values, self.order), *self.kind)
        return replaced(solved, self.order)

    def precision_diagonal(self) -> TensorVariable:
        """Diagonal (n,) of the inverse covariance: twice the log density's slope in the noise, at 0."""
        logp = markov_logp(*self._process, pt.zeros_like(self.noise), *self.kind)
        return -2.0 * replaced(pt.grad(logp, self.noise), self.order)


def smoothed(joint: Series, noise, values, kind) -> tuple[TensorVariable, TensorVariable]:
    """Posterior means (N, c) and variances (N,) of a joint series whose first rows (n,) have targets.

    From noise variances (n,) and values (n, c) of these; all in the order of X.
    """
    n, total = noise.shape[0], joint.dt.shape[0]
    unseen = pt.concatenate([noise, pt.full((total - n,), np.inf)])
    values = pt.concatenate([values, pt.zeros((total - n, values.shape[1]))])
    mean, var = markov_smooth(
        *joint.process, placed(unseen, joint.order), placed(values, joint.order), *kind
    )
    return replaced(mean, joint.order), replaced(var, joint.order)


def drawn_given(joint: Series, noise, residual, path, own, kind) -> TensorVariable:
    """Functions (m, c) at the rows after the first n, given residuals (n,) with noise variances there.

    Prior functions of all rows, made of white `path` (N, c), are moved by what the residuals say beyond
    them and their noise, made of white `own` (n, c): ``f + K (K + D)^-1 (e - f - noise)``.
    """
    n, nothing = noise.shape[0], pt.zeros_like(joint.dt)
    f = replaced(markov_color(*joint.process, nothing, path, *kind), joint.order)
    left = residual[:, None] - f[:n] - pt.sqrt(noise)[:, None] * own
    return (f + smoothed(joint, noise, left, kind)[0])[n:]


@dataclass(frozen=True, eq=False)
class PathNormal(StructuredNormal):
    r"""The function at new rows, given residuals at old ones, which come first in the `joint` series.

    Its log density is that of both, less that of the residuals: O(n + m), as draws are.
    """

    prior: TensorVariable  # mean (m,) before the residuals
    joint: tuple  # Series of all rows
    old: tuple  # Series of those with residuals
    noise: TensorVariable  # (n,)
    residual: TensorVariable  # (n,)
    variance: TensorVariable  # (m,), added to that of the function
    kind: Any

    label = "PathNormal"

    @classmethod
    def of(cls, prior, joint: Series, old: Series, noise, residual, variance, kind):
        """With its mean."""
        mean = smoothed(joint, noise, residual[:, None], kind)[0][noise.shape[0] :, 0]
        return cls(prior + mean, prior, tuple(joint), tuple(old), noise, residual, variance, kind)

    def draw(self, rng, size):
        """All draws at once, as columns."""
        n, m = self.noise.shape[0], self.prior.shape[0]
        next_rng, (path, own, new) = white(rng, size, (n + m,), (n,), (m,))
        columns = path.reshape((-1, n + m)).T, own.reshape((-1, n)).T
        f = drawn_given(Series(*self.joint), self.noise, self.residual, *columns, self.kind)
        return next_rng, self.prior + f.T.reshape(new.shape) + pt.sqrt(self.variance) * new

    def logp(self, value):
        """Of all rows, less that of the old ones."""
        values = pt.concatenate([self.residual, value - self.prior])
        noise = pt.concatenate([self.noise, self.variance])
        densities = [
            markov_logp(
                *series.process, placed(d, series.order), placed(e, series.order), *self.kind
            )
            for series, d, e in (
                (Series(*self.joint), noise, values),
                (Series(*self.old), self.noise, self.residual),
            )
        ]
        return densities[0] - densities[1]
