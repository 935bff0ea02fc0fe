"""Normal vectors whose covariance is that of a sum of Markov processes plus a diagonal."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.likelihoods.structured_normal import StructuredNormal, white
from pymc_scalable_gp.methods.statespace.markov import Inputs, MarkovForm, MarkovKind
from pymc_scalable_gp.ops.markov_columns import markov_color, markov_smooth, markov_solve
from pymc_scalable_gp.ops.markov_logp import markov_logp
from pymc_scalable_gp.utils.compiled import evaluate
from pymc_scalable_gp.utils.graphs import depends_only_on, fixed_shared


def placed(values, order):
    """Rows in an order; None: as they are."""
    return values if order is None else values[order]


def replaced(values, order):
    """Rows in an order, as they were before."""
    return values if order is None else values[pt.argsort(order)]


class Series(NamedTuple):
    """Rows in the order of their times: steps (n,), features (n, k), and the place in X of each row.

    What its methods take and give is in the order of X.
    """

    dt: TensorVariable
    rates: TensorVariable
    variances: TensorVariable
    features: TensorVariable
    order: TensorVariable | None  # (n,); None where it is that of X
    kind: MarkovKind

    @classmethod
    def of(cls, form: MarkovForm, x: TensorVariable, order: TensorVariable | None) -> "Series":
        x = placed(x, order)
        dt = pt.concatenate([pt.zeros_like(x[:1]), x[1:] - x[:-1]])  # of no rows: none
        features = form.features(Inputs(x, x - disconnected_grad(x[:1].sum())))
        return cls(dt, form.rates, form.variances, features, order, form.kind)

    def with_known_features(self) -> "Series":
        """With fixed features computed once: waves are a good part of a density. A single one is ones."""
        if self.features.type.shape[1] == 1 or not depends_only_on([self.features]):
            return self
        return self._replace(features=fixed_shared(evaluate([self.features])[0]))

    def _applied(self, function, noise, values):
        """An Op of rows in the order of their times."""
        *process, order, kind = self
        return function(*process, placed(noise, order), placed(values, order), *kind)

    def logp(self, noise, values) -> TensorVariable:
        """Log density of values (n,) with noise variances (n,); see `markov_logp`."""
        return self._applied(markov_logp, noise, values)

    def solve(self, noise, values) -> TensorVariable:
        """Inverse covariance times columns (n, c)."""
        return replaced(self._applied(markov_solve, noise, values), self.order)

    def colored(self, noise, white) -> TensorVariable:
        """Draws (n, c) of process and noise, from white columns (n, c), which are in the times' order."""
        *process, order, kind = self
        return replaced(markov_color(*process, placed(noise, order), white, *kind), order)

    def smoothed(self, noise, values) -> tuple[TensorVariable, TensorVariable]:
        """Posterior means (n, c) and variances (n,), where the first rows alone have targets.

        From noise variances (m,) and values (m, c) of these. At times before all targets, where a prior
        variance that grows with the distance would cancel, variances are those of the series run backwards.
        """
        m, total = noise.shape[0], self.dt.shape[0]
        unseen = placed(pt.concatenate([noise, pt.full((total - m,), np.inf)]), self.order)
        values = placed(pt.concatenate([values, pt.zeros((total - m, values.shape[1]))]), self.order)
        dt, rates, variances, features, order, kind = self
        mean, var = markov_smooth(dt, rates, variances, features, unseen, values, *kind)
        back = pt.concatenate([dt[:1], dt[:0:-1]]), rates, variances, features[::-1]
        _, before = markov_smooth(*back, unseen[::-1], values[:, :0], *kind)
        var = pt.switch(pt.cumsum(pt.isfinite(unseen)) > 0, var, before[::-1])
        return replaced(mean, order), replaced(var, order)

    def drawn_given(self, noise, residual, path, own) -> TensorVariable:
        """Functions (n - m, c) at rows after the first m, given residuals (m,) with noise variances there.

        Prior functions of all rows, made of white `path` (n, c), are moved by what the residuals say beyond
        them and their noise, made of white `own` (m, c): ``f + K (K + D)^-1 (e - f - noise)``.
        """
        m = noise.shape[0]
        f = self.colored(pt.zeros_like(self.dt), path)
        left = residual[:, None] - f[:m] - pt.sqrt(noise)[:, None] * own
        return (f + self.smoothed(noise, left)[0])[m:]


@dataclass(frozen=True, eq=False)
class MarkovNormal(StructuredNormal):
    """``N(mean, K + diag(noise))`` by the Kalman filter; see `markov_logp`."""

    series: Series
    noise: TensorVariable  # (n,)

    def draw(self, rng, size):
        n = self.mean.shape[0]
        next_rng, (z,) = white(rng, size, (n,))
        colored = self.series.colored(self.noise, z.reshape((-1, n)).T)
        return next_rng, self.mean + colored.T.reshape(z.shape)

    def logp(self, value):
        return self.series.logp(self.noise, value - self.mean)

    def solve(self, values):
        return self.series.solve(self.noise, values)


@dataclass(frozen=True, eq=False)
class PathNormal(StructuredNormal):
    """The function at new rows, given residuals at old ones, which come first in the `joint` series."""

    prior: TensorVariable  # mean (m,) before the residuals
    joint: Series  # of all rows
    old: Series  # of those with residuals
    noise: TensorVariable  # (n,)
    residual: TensorVariable  # (n,)
    variance: TensorVariable  # (m,), added to that of the function

    @classmethod
    def of(cls, prior, joint: Series, old: Series, noise, residual, variance):
        mean = joint.smoothed(noise, residual[:, None])[0][noise.shape[0] :, 0]
        return cls(prior + mean, prior, joint, old, noise, residual, variance)

    def draw(self, rng, size):
        n, m = self.noise.shape[0], self.prior.shape[0]
        next_rng, (path, own, new) = white(rng, size, (n + m,), (n,), (m,))
        columns = path.reshape((-1, n + m)).T, own.reshape((-1, n)).T
        f = self.joint.drawn_given(self.noise, self.residual, *columns)
        return next_rng, self.prior + f.T.reshape(new.shape) + pt.sqrt(self.variance) * new

    def logp(self, value):
        """Of all rows, less that of the old ones."""
        values = pt.concatenate([self.residual, value - self.prior])
        noise = pt.concatenate([self.noise, self.variance])
        return self.joint.logp(noise, values) - self.old.logp(self.noise, self.residual)
