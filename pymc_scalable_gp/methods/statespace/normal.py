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


class Series(NamedTuple):
    """Rows in the order of their times: steps (n,), features (n, k), and the place in X of each row."""

    dt: TensorVariable
    rates: TensorVariable
    variances: TensorVariable
    features: TensorVariable
    order: TensorVariable  # (n,)

    @classmethod
    def of(
        cls, form: MarkovForm, x: TensorVariable, order: TensorVariable | None = None
    ) -> "Series":
        """Of times x (n,), whose `order` may be known."""
        order = pt.argsort(x) if order is None else order
        x = x[order]
        dt = pt.concatenate([pt.zeros(1), x[1:] - x[:-1]])
        features = form.features(Inputs(x, x - disconnected_grad(x[0])))
        return cls(dt, form.rates, form.variances, features, order)

    @property
    def process(self) -> tuple[TensorVariable, ...]:
        """The first arguments of `markov_logp`."""
        return self.dt, self.rates, self.variances, self.features

    @property
    def inverse(self) -> TensorVariable:
        """Where each row of X is."""
        return pt.argsort(self.order)


@dataclass(frozen=True, eq=False)
class MarkovNormal(StructuredNormal):
    """``N(mean, K + diag(noise))`` by the Kalman filter; see `markov_logp`."""

    dt: TensorVariable
    rates: TensorVariable
    variances: TensorVariable
    features: TensorVariable
    order: TensorVariable  # place in `mean` of each row of the others
    noise: TensorVariable  # (n,), in the order of the times
    kind: Any

    label = "MarkovNormal"

    @classmethod
    def of(cls, mean, series: Series, noise, kind) -> "MarkovNormal":
        """Of rows in the order of their times, with noise variances (n,) in the order of `mean`."""
        return cls(mean, *series, noise[series.order], kind)

    @property
    def _process(self):
        return self.dt, self.rates, self.variances, self.features, self.noise

    def draw(self, rng, size):
        """All draws at once, as columns."""
        n = self.mean.shape[0]
        next_rng, (z,) = white(rng, size, (n,))
        colored = markov_color(*self._process, z.reshape((-1, n)).T, *self.kind)
        return next_rng, self.mean + colored[pt.argsort(self.order)].T.reshape(z.shape)

    def logp(self, value):
        """By the filter."""
        return markov_logp(*self._process, (value - self.mean)[self.order], *self.kind)

    def solve(self, values):
        """By the filter and its adjoint."""
        solved = markov_solve(*self._process, values[self.order], *self.kind)
        return solved[pt.argsort(self.order)]

    def precision_diagonal(self) -> TensorVariable:
        """Diagonal (n,) of the inverse covariance: twice the log density's slope in the noise, at 0."""
        logp = markov_logp(*self._process, pt.zeros_like(self.noise), *self.kind)
        return -2.0 * pt.grad(logp, self.noise)[pt.argsort(self.order)]


def smoothed(joint: Series, noise, values, kind) -> tuple[TensorVariable, TensorVariable]:
    """Posterior means (N, c) and variances (N,) of a joint series whose first rows (n,) have targets.

    From noise variances (n,) and values (n, c) of these; all in the order of X.
    """
    n, total = noise.shape[0], joint.order.shape[0]
    unseen = pt.concatenate([noise, pt.full((total - n,), np.inf)])[joint.order]
    rest = pt.zeros((total - n, values.shape[1]))
    values = pt.concatenate([values, rest])[joint.order]
    mean, var = markov_smooth(*joint.process, unseen, values, *kind)
    return mean[joint.inverse], var[joint.inverse]


def drawn_given(joint: Series, noise, residual, path, own, kind) -> TensorVariable:
    """Functions (m, c) at the rows after the first n, given residuals (n,) with noise variances there.

    Prior functions of all rows, made of white `path` (N, c), are moved by what the residuals say beyond
    them and their noise, made of white `own` (n, c): ``f + K (K + D)^-1 (e - f - noise)``.
    """
    n, nothing = noise.shape[0], pt.zeros(joint.order.shape[0])
    f = markov_color(*joint.process, nothing, path, *kind)[joint.inverse]
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
            markov_logp(*series.process, d[series.order], e[series.order], *self.kind)
            for series, d, e in (
                (Series(*self.joint), noise, values),
                (Series(*self.old), self.noise, self.residual),
            )
        ]
        return densities[0] - densities[1]
