"""The exact likelihood of one input in state-space form."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.nystrom import NystromMap
from pymc_scalable_gp.core.likelihoods.base import Likelihood, MarginalData
from pymc_scalable_gp.core.likelihoods.precision import Precision
from pymc_scalable_gp.core.likelihoods.predictor import Predictor, in_two_stages
from pymc_scalable_gp.cov.kernels import kernel_matrix
from pymc_scalable_gp.methods.statespace.markov import MarkovForm, markov_form
from pymc_scalable_gp.methods.statespace.normal import MarkovNormal, PathNormal, Series
from pymc_scalable_gp.utils.compiled import compile_outputs, compiled
from pymc_scalable_gp.utils.graphs import fixed_shared

_ROWS = 2**20  # new rows at a time: each block goes through all old rows


class PartsMap(NystromMap):
    """The kernel of some parts of a sum of GPs, without features, and the parts' `places`."""

    places: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MarkovRows(Likelihood):
    """All rows given all others, by the Kalman filter: O(n s^2) for s states."""

    data: MarginalData
    cov_func: Any
    column: int
    harmonics: int
    summands: tuple  # kernels of the parts of a sum of GPs, or the kernel alone

    path = "exact"
    is_exact = True
    holds_residual = True

    @cached_property
    def form(self) -> MarkovForm:
        return markov_form(self.summands, self.harmonics)

    @cached_property
    def times(self):
        """The input (n,)."""
        return self.X.tensor[:, self.column]

    @cached_property
    def series(self) -> Series:
        """Rows in the order of their times."""
        if self.X.mutable:
            return Series.of(self.form, self.times, pt.argsort(self.times))
        order = np.argsort(self.X.value[:, self.column], kind="stable")
        known = (order == np.arange(len(order))).all()
        found = Series.of(self.form, self.times, None if known else fixed_shared(order))
        return found.with_known_features()

    def with_new(self, X, feature_map) -> Series:
        """Rows of the data and new ones X (m, d), as one series; of parts of a sum, new rows are these."""
        times = pt.concatenate([self.times, X[:, self.column]])
        found = Series.of(self.form, times, pt.argsort(times))
        if not isinstance(feature_map, PartsMap):
            return found
        own = pt.constant(np.isin(self.form.owners, feature_map.places).astype("float64"))
        new = pt.ge(found.order, self.times.shape[0])[:, None]
        return found._replace(features=pt.switch(new, found.features * own, found.features))

    def of_parts(self, parts, places):
        """A map that tells the parts, without features."""
        first, *rest = (self.summands[place] for place in places)
        found = PartsMap.without_points(sum(rest, start=first), self.data.X.value)
        return found.changed(places=tuple(places)), self.coefficients()

    def noise_of(self, noise=None):
        """Noise variances (n,), those of the data where none are given."""
        _, noise = self.handed(None, noise)
        return noise * pt.ones(self.times.shape[0])

    def normal(self, noise):
        return MarkovNormal(self.data.mean, self.series, self.noise_of(noise))

    def given(self, X, y, sigma):
        return replace(self, data=self.data.with_rows(X, y, sigma))

    def precisions(self, model):
        return MarkovPrecisions(self, model)

    def predictor(self, feature_map, mean_func, coef, noise, model):
        return MarkovPredictor(self, feature_map, mean_func, noise, model)

    def conditional(self, name, data, feature_map, mean_func, coef, variance, **kwargs):
        X = data.tensor
        found = PathNormal.of(
            mean_vector(mean_func, X), self.with_new(X, feature_map), self.series, self.noise_of(),
            self.data.residual, variance * pt.ones(X.shape[0]),
        )  # fmt: skip
        return found.variable(name, **kwargs)


class MarkovPrecisions:
    """Precision, its diagonal from the density's slope in the noise; O(n (s^2 + s g)) for g rows."""

    def __init__(self, likelihood, model):
        noise, y = likelihood.noise_of(), likelihood.data.y.tensor
        normal = likelihood.normal(noise)
        alpha = normal.solve((y - normal.mean)[:, None])[:, 0]
        columns = pt.matrix("columns", dtype="float64")
        diagonal = -2.0 * pt.grad(normal.series.logp(noise, pt.zeros_like(noise)), noise)
        outputs = [alpha, diagonal, y, likelihood.data.sigma**2]
        self._function, self.inputs = compile_outputs(outputs, model)
        self._solved = compiled([columns, *self.inputs], normal.solve(columns))

    def __call__(self, values):
        """Solution and diagonal; a group's block when it is asked for."""
        alpha, diagonal, y, noise = self._function(*values)

        def block(rows):
            columns = np.zeros((len(y), len(rows)))
            columns[rows, np.arange(len(rows))] = 1.0
            return self._solved(columns, *values)[rows]

        return Precision(y, noise, alpha, diagonal, block)


class MarkovPredictor(Predictor):
    """As `Predictor`, by smoothing old and new rows as one series, of which the new have no targets."""

    def __init__(self, likelihood, feature_map, mean_func, noise, model):
        self.model, self.block_rows = model, _ROWS
        X = pt.matrix("Xnew", dtype="float64")
        path, own = (pt.matrix(name, dtype="float64") for name in ("path", "own"))
        joint = likelihood.with_new(X, feature_map)
        old, residual = likelihood.noise_of(), likelihood.data.residual
        n = residual.shape[0]
        prior = mean_vector(mean_func, X)
        mean, var = (v[n:] for v in joint.smoothed(old, residual[:, None]))
        mean = prior + mean[:, 0]
        draw = prior + joint.drawn_given(old, residual, path, own)[:, 0]
        cov_func = feature_map.cov_func
        cross = kernel_matrix(cov_func, likelihood.X.tensor, X)
        taken = cross.T @ likelihood.normal(old).solve(cross)
        cov = kernel_matrix(cov_func, X) - 0.5 * (taken + taken.T)
        states, outputs = [pt.zeros(0), noise], [pt.zeros((X.shape[0], 0)), mean, var]
        self.inputs, self._state, self._features, self._full = in_two_stages(
            [X], states, [], model, outputs, [mean, cov]
        )
        self._draw, self._rows = compiled([X, path, own, *self.inputs], draw), compiled(self.inputs, n)

    def full(self, state, X):
        mean, cov = self._full(X, *state.values)
        return mean, cov + state.noise * np.eye(len(X))

    def _sample_jointly(self, state, X, rng):
        """A function of all rows: see `Series.drawn_given`."""
        n = int(self._rows(*state.values))
        path, own = rng.standard_normal((n + len(X), 1)), rng.standard_normal((n, 1))
        f = self._draw(X, path, own, *state.values)
        return f + np.sqrt(state.noise) * rng.standard_normal(len(X))
