"""The function's mean under any likelihood: its mode, corrected; and draws around it."""

from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.polynomial.hermite_e import hermegauss
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_scalable_gp.core.likelihoods.laplace_mode import LaplaceGraph
from pymc_scalable_gp.ops.repeat import repeat
from pymc_scalable_gp.utils.compiled import compiled, model_inputs, point_values
from pymc_scalable_gp.utils.graphs import fixed_shared

PAIRS = 64
NODES, _WEIGHTS = hermegauss(12)
WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
ROUNDS = 2  # in which variances and mean are found in turn
NEAR = 1e-3  # what may be left of the way to a mean, in units of each row's information
LEAST, HALVINGS = -6.0, 8  # of the logarithm of sds, in those at the mode
FEWEST_NUMBERS = 2**16  # from which draws are made at rows that may be replaced
NEVER = pt.constant(np.array(False))


class AroundMean(NamedTuple):
    """A normal near the posterior of the function at the training rows."""

    targets: TensorVariable  # pseudo-targets (n,) that lead to its mean
    noise: TensorVariable  # and their noise variances (n,)
    moved: TensorVariable  # draws (s, n), less the mean


class SmoothedRows:
    """A `RowDistribution` whose log density is the mean over a normal of the function, with sds (n,).

    By Gauss-Hermite quadrature of 12 nodes; slope and information are its derivatives in the normal's
    mean.
    """

    def __init__(self, rows, sd):
        self.size, self.vector, self.f, self.y = rows.size, rows.vector, rows.f, rows.y
        nodes = self.f + pt.constant(NODES[:, None]) * sd
        found = vectorize_graph(rows.graphs, {self.f: nodes})
        self.graphs = [pt.constant(WEIGHTS) @ each for each in found]

    def at(self, f, y) -> list[TensorVariable]:
        """Log density (n,), slope and information at values of the mean and targets."""
        return graph_replace(self.graphs, {self.f: f, self.y: y}, strict=False)


def around_mean(laplace) -> AroundMean:
    r"""A normal with the covariance at the mode, and the mean of a variational approximation.

    The mean m solves ``C^-1 (m - mu) = g``, ``g_i = E[d log p(y_i | f_i) / d f_i]`` under ``f_i ~ N(m_i,
    s_i^2)``, as of all normals with such variances the nearest to the posterior in Kullback-Leibler
    divergence does (Opper and Archambeau 2009; van Niekerk and Rue 2024). It is the mode of the likelihood
    that is smoothed so, and searched from the mode on. Of the variances, those nearest to the posterior,
    see :func:`_sds`, at the mode, and once more at the mean that was found. A round that finds none keeps
    the one before; there is none where a factor fails and draws are NaN. The targets are ``m + v g``, v
    the noise variances at the mode.
    """
    y, (t, v) = laplace.y.tensor, laplace.pseudo_targets
    moved = _drawn(laplace, v)
    most = pt.sqrt((moved**2).mean(axis=0))
    mean, before = laplace.rows.vector("mean"), laplace.rows.vector("before")
    rows = SmoothedRows(laplace.rows, _sds(laplace.rows, mean, y, most, v))
    found, left = LaplaceGraph(rows, laplace.inner, mean).mode(y)
    targets = found + v * rows.at(found, y)[1]
    after = [pt.switch(left <= NEAR, *pair) for pair in ((found, mean), (targets, before))]
    _, t = repeat([mean, before], after, [laplace.mode, t], NEVER, ROUNDS)
    return AroundMean(pt.switch(pt.isnan(most), np.nan, t), v, moved)


def _sds(rows, mean, y, most, v) -> TensorVariable:
    """Sds (n,) nearest to the posterior's, at most `most`, those at the mode, for a mean.

    With all other rows kept as they are at the mode they solve ``1 / s^2 = 1 / most^2 - 1 / v + W(s)``, W
    the smoothed information; by bisection of the logarithm. Less where the density is not finite.
    """
    others = pt.maximum(1.0 / most**2 - 1.0 / v, 0.0)
    low, high = rows.vector("low"), rows.vector("high")
    middle = 0.5 * (low + high)
    sd = most * pt.exp(middle)
    logp, _, information = SmoothedRows(rows, sd).at(mean, y)
    within = pt.isfinite(logp) & (sd**2 * (others + information) <= 1.0)
    after = [pt.switch(within, middle, low), pt.switch(within, high, middle)]
    none = pt.zeros_like(mean)
    found, _ = repeat([low, high], after, [none + LEAST, none], NEVER, HALVINGS)
    return most * pt.exp(found)


def _drawn(laplace, v) -> TensorVariable:
    """Draws (s, n) of the function given pseudo-targets, less its mean.

    With f0 from the prior less its mean and e from the noise, ``f0 - C S^-1 (f0 + e)``, as
    ``V S^-1 (f0 + e) - e``.
    """
    normal, n = laplace.inner.normal(v), laplace.X.tensor.shape[0]
    generator = pytensor.shared(np.random.default_rng(0))
    generator, drawn = laplace.prior_function.draw(generator, pt.constant([PAIRS]))
    _, white = pt.random.normal(size=(PAIRS, n), rng=generator, return_next_rng=True)
    drawn, white = _fixed([drawn, white], laplace.model)
    noise = pt.sqrt(v) * white
    return v * normal.solve((drawn - normal.mean + noise).T).T - noise


def _fixed(outputs, model) -> list[TensorVariable]:
    """Graphs with numbers in place of their standard normal variables: one function of the parameters."""
    known = set(model.named_vars.values())
    random = [
        v
        for v in ancestors(outputs, blockers=known)
        if v not in known and v.owner is not None and isinstance(v.owner.op, RandomVariable)
        and v is v.owner.outputs[1]
    ]  # fmt: skip
    inputs = model_inputs(random, model)  # of lengths alone
    values = compiled(inputs, random)(*point_values(inputs, None, model, fill=True))
    rng = np.random.default_rng(1)
    fixed = {v: _in_present_lengths(value, v, rng) for v, value in zip(random, values, strict=True)}
    return graph_replace(outputs, fixed)


def _in_present_lengths(value: np.ndarray, drawn, rng) -> TensorVariable:
    """Numbers for a standard normal variable in its present lengths, as rows may be replaced by more.

    They are taken in turn, so that a draw has none twice, but of as many entries as there are numbers.
    """
    if None not in drawn.type.shape:
        return fixed_shared(value).astype(drawn.dtype)
    numbers = np.concatenate([value.ravel(), rng.standard_normal(FEWEST_NUMBERS)])
    lengths = drawn.owner.op.size_param(drawn.owner)
    found = fixed_shared(numbers)[pt.arange(pt.prod(lengths)) % len(numbers)].astype(drawn.dtype)
    return pt.specify_shape(found.reshape(lengths, ndim=drawn.ndim), drawn.type.shape)
