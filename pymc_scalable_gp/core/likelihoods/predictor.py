"""Numerical predictions at one point or mixed over posterior draws, in row blocks."""

from itertools import chain
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
import xarray as xr

from pymc_scalable_gp.core.data.draws import posterior_draws, refuse_failed
from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.utils.blocks import blocks, with_progress
from pymc_scalable_gp.utils.compiled import check_reached, compiled, model_inputs, point_values

_CACHED_VALUES = 2**26  # keep fixed features of up to this many entries (0.5 GB) between draws


class State(NamedTuple):
    """What predictions at a point need: inputs of `_features`, coefficients, a draw of them if asked."""

    values: tuple
    coef: np.ndarray
    noise: float
    root: np.ndarray | None
    sample: np.ndarray | None = None


class Mixture:
    """Mean and variance of an equal-weight mixture, by Welford's update; for each part, if it is NaN."""

    def __init__(self):
        self.count, self.mean = 0, 0.0
        self.failed: list[bool] = []
        self._between, self._within = 0.0, 0.0

    def add(self, mean, var) -> None:
        """One more part."""
        self.count += 1
        self.failed.append(bool(np.isnan(mean).any()))
        shift = mean - self.mean
        self.mean = self.mean + shift / self.count
        self._between = self._between + shift * (mean - self.mean)
        self._within = self._within + var

    @property
    def variance(self):
        """Mean of the variances plus variance of the means."""
        return (self._within + self._between) / self.count


def as_dataset(mean, variance, draws, **samples) -> xr.Dataset:
    """Mean and sd of a mixture over rows, and over classes where it has some; samples of each draw."""
    dims = ("obs", "class")[: np.ndim(mean)]
    found = {"mean": (dims, mean), "sd": (dims, np.sqrt(variance))}
    shape = (draws.chains, len(draws) // draws.chains, len(mean))
    for name, values in samples.items():
        found[name] = (("chain", "draw", "obs"), np.reshape(values, shape))
    return xr.Dataset(found)


def in_two_stages(rows, states, common, model, *outputs) -> tuple:
    """Compile what is computed once for a point of the model, and what for each block of rows.

    Returns the model's variables among the inputs, the function of these for `states`, and for each list
    of `outputs` that of `rows`, of these and of `common`, the last of the states.
    """
    graphs = [*states, *chain(*outputs)]
    inputs = model_inputs(graphs, model)
    check_reached(graphs, inputs)
    given = {tensor: tensor.type() for tensor in common}
    of_rows = (compiled([*rows, *inputs, *given.values()], each, givens=given) for each in outputs)
    return inputs, compiled(inputs, states), *of_rows


class Predictor:
    """Compiled state and prediction functions of one GP in one model.

    ``state`` costs one pass over the training rows; each block of new rows then costs O(rows r^2),
    or O(rows r) when the coefficients' covariance is diagonal.
    """

    has_root = downdates = diagonal_root = fixed_features = False

    def __init__(self, feature_map, mean_func, coef, noise, model):
        self.model = model
        X = pt.matrix("Xnew", dtype="float64")
        phi, mean = feature_map.features(X), mean_vector(mean_func, X)
        missed = feature_map.missed(X, phi)
        common = feature_map.intermediates()
        root, self.downdates = coef.root, coef.downdates
        self.has_root = root is not None
        states = [coef.mean, noise] + ([root] if self.has_root else []) + common
        outputs = [phi, mean, missed]
        self.inputs, self._state, self._features = in_two_stages([X], states, common, model, outputs)
        self.fixed_features = not model_inputs(outputs, model)
        self.diagonal_root = self.has_root and root.ndim == 1
        self.block_rows = feature_map.block_rows

    def state(self, point):
        """State at a point of the model."""
        return self.at(point_values(self.inputs, point, self.model))

    def at(self, values, rng=None):
        """State at values of `inputs`, with a draw of the coefficients where `rng` is given."""
        coef, noise, *out = self._state(*values)
        root = out.pop(0) if self.has_root else None
        state = State((*values, *out), coef, float(noise), root)
        return state if rng is None else state._replace(sample=self._coefficients(state, rng))

    def _coefficients(self, state, rng):
        """A draw of the coefficients."""
        root = state.root
        if root is None:
            return state.coef
        if root.ndim == 1:
            return state.coef + root * rng.standard_normal(len(root))
        if not self.downdates:
            return state.coef + root.T @ rng.standard_normal(len(root))
        # Covariance I - G G' with G = U s V': the square root shrinks along U.
        U, s, _ = np.linalg.svd(root, full_matrices=False)
        z = rng.standard_normal(len(root))
        return state.coef + z - U @ ((1.0 - np.sqrt(np.maximum(1.0 - s**2, 0.0))) * (U.T @ z))

    def _parts(self, state, X):
        """Row blocks, and all that predictions there need of X."""
        for rows, block in blocks(X, self.block_rows):
            yield rows, self._features(block, *state.values)

    def diagonal(self, state, X):
        """Mean and variance (n*,), in row blocks."""
        mean, var = np.empty(X.shape[0]), np.empty(X.shape[0])
        for rows, part in self._parts(state, X):
            mean[rows], var[rows] = self._moments(state, part)
        return mean, var

    def _moments(self, state, parts):
        phi, mean, missed = parts
        var = missed + state.noise
        if self.has_root:
            factor = self._factor(state, phi)
            square = np.einsum("ij,ij->i", factor, factor)
            if self.downdates:
                square = np.maximum(np.einsum("ij,ij->i", phi, phi) - square, 0.0)
            var = var + square
        return mean + phi @ state.coef, var

    def _sample(self, state, parts, rng):
        """A draw of the function at some rows, with the draw of the coefficients."""
        phi, mean, missed = parts
        own = np.sqrt(missed + state.noise) * rng.standard_normal(len(mean))
        return mean + phi @ state.sample + own

    def sampled(self, state, X, rng):
        """A draw of the function at all rows, with the draw of the coefficients."""
        found = self._sample_jointly(state, X, rng)
        if found is None:
            found = np.empty(X.shape[0])
            for rows, part in self._parts(state, X):
                found[rows] = self._sample(state, part, rng)
        return found

    def _sample_jointly(self, state, X, rng):
        """A draw of the function at all rows, where it is not made block by block; else None."""
        return None

    def full(self, state, X):
        """Mean (n*,) and covariance (n*, n*)."""
        return self._together(state, self._features(X, *state.values))

    def _together(self, state, parts):
        phi, mean, missed = parts
        cov = np.diag(missed + state.noise)
        if self.has_root:
            factor = self._factor(state, phi)
            square = factor @ factor.T
            cov += phi @ phi.T - square if self.downdates else square
        return mean + phi @ state.coef, cov

    def alone(self, state, X):
        """As `full`, without conditioning new rows on one another; features never do."""
        return self.full(state, X)

    def _factor(self, state, phi):
        """Features times the root of the coefficients' covariance, or of its distance from the identity."""
        root = state.root
        if root.ndim == 1:
            return phi * root
        return phi @ (root if self.downdates else root.T)

    def mixture(self, X, idata, num_samples, sample, progressbar, random_seed):
        """Dataset of the mean and sd of the draws' mixture, and of one sample per draw if `sample`."""
        rng = np.random.default_rng(random_seed)
        draws = posterior_draws(idata, self.inputs, self.model, num_samples, rng)
        drawing = rng if sample else None
        each = with_progress(draws.values, "Predicting over draws", len(draws), progressbar)
        states = (self.at(values, drawing) for values in each)
        if self.diagonal_root and self.fixed_features and not sample:
            mean, var, f = *self._mix_diagonal(X, list(states)), None
        else:
            mean, var, f = self._mix(X, states, len(draws), drawing)
        return as_dataset(mean, var, draws, **({"f": f} if sample else {}))

    def _mix(self, X, states, count, rng):
        """One draw after the other."""
        n = X.shape[0]
        found, mean, var = Mixture(), np.empty(n), np.empty(n)
        f = None if rng is None else np.empty((count, n))
        kept = None
        for k, state in enumerate(states):
            parts = kept or self._parts(state, X)
            if kept is None and self.fixed_features and n * state.coef.size <= _CACHED_VALUES:
                parts = kept = list(parts)
            jointly = None if f is None else self._sample_jointly(state, X, rng)
            if jointly is not None:
                f[k] = jointly
            for rows, part in parts:
                mean[rows], var[rows] = self._moments(state, part)
                if f is not None and jointly is None:
                    f[k, rows] = self._sample(state, part, rng)
            found.add(mean, var)
        refuse_failed(found.failed, "prediction")
        return found.mean, found.variance, f

    def _mix_diagonal(self, X, states):
        """All draws at once: with a diagonal root every block is three matrix products."""
        coef = np.array([state.coef for state in states])
        refuse_failed(np.isnan(coef).any(axis=1), "prediction")
        noise = np.mean([state.noise for state in states])
        root2 = np.mean([state.root**2 for state in states], axis=0)
        out_mean, out_var = np.empty(X.shape[0]), np.empty(X.shape[0])
        for rows, block in blocks(X, 1024):
            phi, mean, missed = self._features(block, *states[0].values)
            means = phi @ coef.T
            out_mean[rows] = mean + means.mean(axis=1)
            out_var[rows] = missed + noise + phi**2 @ root2 + means.var(axis=1)
        return out_mean, out_var
