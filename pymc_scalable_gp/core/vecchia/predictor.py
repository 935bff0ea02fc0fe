"""Predictions from features and neighbours."""

from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.data.mean import mean_vector
from pymc_scalable_gp.core.features.residual import Regressions, regressions
from pymc_scalable_gp.core.likelihoods.predictor import Predictor, in_two_stages
from pymc_scalable_gp.core.vecchia.normal import RegressedNormal
from pymc_scalable_gp.core.vecchia.parts import PartsMap
from pymc_scalable_gp.ops.repeat import by_parts
from pymc_scalable_gp.ops.vecchia_color import vecchia_color
from pymc_scalable_gp.utils.blocks import blocks
from pymc_scalable_gp.utils.checks import Refuse
from pymc_scalable_gp.utils.compiled import compiled
from pymc_scalable_gp.utils.graphs import data_shared, fixed_shared, is_random, same_values

_ROWS = 512  # new rows at a time, at most
_NUMBERS = 2**23  # of the kernel between their neighbours, at most

# Share of the prior variance that is added to that of new rows: what rounding may take from it.
ROUNDING = 1e-7


class TrainingValues(NamedTuple):
    """Training rows that new ones are given: inputs, features, residuals and noise variances."""

    X: TensorVariable  # (u, d)
    phi: TensorVariable  # (u, r)
    residual: TensorVariable  # (u,)
    noise: TensorVariable  # (u,)
    slack: TensorVariable  # mean noise variance of all training rows
    known: TensorVariable  # how many of these rows have targets: those before new ones


class VecchiaPredictor(Predictor):
    """As `Predictor`; what is known of a new row goes by its neighbours too.

    With ``a = (R + D)_NN^-1 R_N*`` the features are ``phi* - Phi_N' a``, the mean gets ``a' e_N``, and
    what they miss is ``R** - a' R_N*``; of parts of a sum see `PartsMap`.
    """

    def __init__(self, likelihood, feature_map, mean_func, coef, noise, model):
        self.model, self.likelihood = model, likelihood
        self.block_rows = _rows_at_a_time(likelihood.plan.ordering.count)
        self.has_root = coef.root is not None
        self._last = {}
        X, near = pt.matrix("Xnew", dtype="float64"), pt.lmatrix("near")
        rank, d = feature_map.rank, likelihood.X.value.shape[1]
        training = TrainingValues(
            pt.matrix("X", dtype="float64", shape=(None, d)),
            pt.matrix("phi", dtype="float64", shape=(None, rank)),
            pt.vector("residual", dtype="float64"),
            pt.vector("noise", dtype="float64"),
            pt.scalar("slack", dtype="float64"),
            pt.lscalar("known"),
        )
        # The rows' inputs are the draw's own: they may have a prior.
        rows = likelihood.inputs, likelihood.phi, likelihood.residual, likelihood.noise
        states = [coef.mean, noise] + ([coef.root] if self.has_root else [])
        states += [*rows, likelihood.noise.mean()]
        near_ = pt.specify_shape(near, (None, likelihood.plan.ordering.count))
        phi, mean = feature_map.features(X), mean_vector(mean_func, X)
        prior, kernels = feature_map.kernel_diag(X), _kernels(likelihood, feature_map)
        # Alone, a new row's regression does not depend on its own noise.
        # What is added is taken off again: no more than the prior variance, or rounding takes that.
        alone = ROUNDING * prior + pt.minimum(training.slack, pt.switch(prior > 0, prior, 1.0))
        found = _regressions(kernels, training, X, phi, alone, near_)
        outputs = _given_neighbors(training, phi, mean, alone, found)
        rounding = ROUNDING * pt.switch(prior > 0, prior, 1.0)
        found = _regressions(kernels, training, X, phi, rounding, near_)
        before = pt.matrix("before", dtype="float64")
        white = pt.matrix("white", dtype="float64")
        columns = vecchia_color(white, *found, before)
        given = [X, near, *training]
        self.inputs, self._state, self._features = in_two_stages(given, states, [], model, outputs)
        # Compiled when first asked for: most callers want rows alone.
        given = [X, near, training.X, training.phi, training.noise, training.known, before, white]
        given += self.inputs
        seen = [phi, rounding, columns, mean]
        self._jointly = cache(partial(compiled, given, seen))

    def _located(self, X, jointly=False):
        """Blocks of new rows, each with the rows that it is given, and its neighbours' places among those.

        Rows from n on are new ones of blocks before; kept for the next draw.
        """
        ordering = self.likelihood.plan.ordering
        key = X, ordering
        held, parts = self._last.get(jointly, (None, None))
        if held is None or any(a is not b for a, b in zip(held, key, strict=True)):
            near, n = ((ordering.nearest_jointly if jointly else ordering.nearest)(X), len(ordering.order))
            parts = [
                (rows, block, *_among(near[rows], n + (rows.start if jointly else 0)))
                for rows, block in blocks(X, self.block_rows)
            ]
            self._last[jointly] = (key, parts)
        return parts

    def _parts(self, state, X):
        *values, inputs, phi, residual, noise, slack = state.values
        for rows, block, around, near in self._located(X):
            training = [known[around] for known in (inputs, phi, residual, noise)]
            yield rows, self._features(block, near, *training, slack, len(around), *values)

    def alone(self, state, X):
        """Mean (n*,) and covariance (n*, n*) of new rows that are given training rows alone."""
        if not len(X):
            return self.full(state, X)
        parts = zip(*(part for _, part in self._parts(state, X)), strict=True)
        return self._together(state, map(np.concatenate, parts))

    def full(self, state, X):
        """Mean (n*,) and covariance (n*, n*); new rows are given those before them too."""
        rank, count = state.coef.size, len(X)
        *_, phi, residual, _, _ = state.values
        white = np.eye(count, 1 + rank + count, 1 + rank)
        phi, mean, columns = self._given_earlier(
            state, X, lambda rows: np.column_stack([residual[rows], phi[rows]]), white
        )
        features, own = phi - columns[:, 1 : 1 + rank], columns[:, 1 + rank :]
        cov = own @ own.T + state.noise * np.eye(count)
        if self.has_root:
            factor = features @ state.root.T
            cov += factor @ factor.T
        return mean + columns[:, 0] + features @ state.coef, cov

    def _sample_jointly(self, state, X, rng):
        """New rows are given those before them too."""
        *_, phi, residual, _, _ = state.values
        phi, mean, columns = self._given_earlier(
            state,
            X,
            lambda rows: (residual[rows] - phi[rows] @ state.sample)[:, None],
            rng.standard_normal((len(X), 1)),
        )
        found = mean + phi @ state.sample + columns[:, 0]
        return found + np.sqrt(state.noise) * rng.standard_normal(len(X))

    def _given_earlier(self, state, X, known, white):
        """Features, means and columns (n*, q) of new rows, given training rows and the new ones before.

        ``known(rows)`` are the first columns of training rows, whose others are 0; those of a new row are
        carried from its neighbours' and its own white ones. In row blocks: neighbours in earlier blocks
        are known by then.
        """
        n = len(self.likelihood.plan.ordering.order)
        *values, inputs, phi, _, noise, _ = state.values
        seen = [X, np.empty((len(X), phi.shape[1])), np.empty(len(X)), np.empty(white.shape)]
        mean = np.empty(len(X))
        for rows, block, around, near in self._located(X, jointly=True):
            old, new = around[around < n], around[around >= n] - n
            pairs = zip((inputs, phi, noise), seen, strict=False)
            training = [np.concatenate([a[old], b[new]]) for a, b in pairs]
            first, before = known(old), np.zeros((len(around), white.shape[1]))
            before[: len(old), : first.shape[1]], before[len(old) :] = first, seen[3][new]
            *made, mean[rows] = self._jointly()(
                block, near, *training, len(old), before, white[rows], *values
            )
            for kept, part in zip(seen[1:], made, strict=True):
                kept[rows] = part
        return seen[1], mean, seen[3]


def _rows_at_a_time(count: int) -> int:
    """New rows that are taken at once, with so many neighbours each."""
    return max(min(_ROWS, _NUMBERS // max(count, 1) ** 2), 1)


def _among(near, limit):
    """The rows below a limit among neighbours, and places among those; others come after them."""
    rows = np.unique(near[(near >= 0) & (near < limit)])
    places = np.where(near < limit, np.searchsorted(rows, near), near - limit + len(rows))
    return rows, np.where(near < 0, -1, places)


def _kernels(likelihood, feature_map):
    """Kernel of what is predicted, and of what training rows hold beside it, or None."""
    if isinstance(feature_map, PartsMap):
        return feature_map.cov_func, feature_map.rest
    return likelihood.cov_func, None


def _regressions(kernels, training, X, phi, noise, near, first=0) -> Regressions:
    """New rows from `first` on, one by one, on rows of ``[training; new]``."""
    (cov_func, rest), start = kernels, training.X.shape[0] + first
    rest = None if rest is None else (rest, training.known)
    pairs = (training.X, X), (training.phi, phi), (training.noise, noise)
    return regressions(cov_func, *map(pt.concatenate, pairs), near, 1, start, rest)


def _regressions_by_parts(kernels, training, X, phi, noise, near, count: int, k: int) -> Regressions:
    """As `_regressions`, some of `count` new rows at a time: there are O(k^2) numbers for each of them."""
    rows = _rows_at_a_time(k)
    if count <= rows:
        return _regressions(kernels, training, X, phi, noise, near)
    firsts = np.arange(0, count, rows)
    unused = np.full((len(firsts) * rows - count, k), -1)
    parts = pt.concatenate([near, unused]).reshape((len(firsts), rows, k))
    first, some = pt.lscalar("first"), pt.lmatrix("near", shape=(rows, k))
    found = _regressions(kernels, training, X, phi, noise, some, first)
    A, L = by_parts([found.A, found.L], [first, some], [data_shared(firsts), parts])
    A, L = (x.reshape((-1, 1, x.shape[3]))[:count] for x in (A, L))
    return Regressions(A, L, near)


def _given_neighbors(training, phi, mean, added, found):
    """Features, mean and missing variance given training rows; what was `added` is taken off again."""
    A, near = found.A, pt.maximum(found.neighbors, 0)
    phi = phi - pt.matmul(A, training.phi[near])[:, 0]
    mean = mean + pt.matmul(A, training.residual[near][:, :, None])[:, 0, 0]
    return [phi, mean, pt.maximum(found.L[:, 0, 0] ** 2 - added, 0.0)]


def _kept(data):
    """New inputs, refused where they were replaced: their neighbours were chosen for those before."""
    if not data.mutable or is_random(data.tensor):
        return data.tensor
    return Refuse(
        "Xnew of gp.conditional was replaced, and its neighbours were chosen for the rows before: take "
        "gp.predict, or make another conditional with the new rows"
    )(data.tensor, same_values(data.tensor, fixed_shared(data.value)))


def joint_conditional(likelihood, name, data, feature_map, mean_func, coef, variance, **kwargs):
    """Random variable of new rows given the training data: see ``FeatureGP.conditional``.

    `variance` is added to every new row's own. Beside O(n* (r + k)) numbers, with k neighbours, the
    regressions are worked out for some rows at a time, also in gradients: O(k^2) numbers for each of them.
    """
    plan, noise = likelihood.plan, likelihood.noise
    near, n = plan.nearest_jointly(data.value), len(plan.ordering.order)
    training = TrainingValues(
        likelihood.inputs, likelihood.phi, likelihood.residual, noise, noise.mean(), noise.shape[0]
    )
    X = _kept(data)
    phi, mean = feature_map.features(X), mean_vector(mean_func, X)
    own = variance + ROUNDING * feature_map.kernel_diag(X)
    kernels = _kernels(likelihood, feature_map)
    size = len(data.value), plan.ordering.count
    found = _regressions_by_parts(kernels, training, X, phi, own, near, *size)
    # What training residuals add to the mean, and what training features take off those of new rows.
    before = pt.concatenate([training.residual[:, None], training.phi], axis=1)
    moved = vecchia_color(pt.zeros((phi.shape[0], before.shape[1])), *found, before)
    features = phi - moved[:, 1:]
    factor = pt.zeros((X.shape[0], 0)) if coef.root is None else features @ coef.root.T
    new = pt.where(near >= n, near - n, -1)
    mean = mean + moved[:, 0] + features @ coef.mean
    normal = RegressedNormal(mean, factor, new, pt.arange(X.shape[0]), found.A, found.L)
    return normal.variable(name, **kwargs)
